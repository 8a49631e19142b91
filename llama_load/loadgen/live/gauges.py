"""Gauges of a run under way: titles of their charts with the unit, and names of their lines."""

from __future__ import annotations

# Gauges of what the client feels: title of the chart with its unit, and the name of the line (see
# `llama_load.loadgen.run.live_meters`).
LOOP_LAG = "Lag of the client's loop (ms): p99 of 10 s"
CORE_WAIT = "Client waits for a core (%): of the last second"
OTHERS = "CPU of other programs (% of all cores): of the last second"
WORKER_CPU = "CPU of a worker (% of a core): the busiest"
MASTER_LAG = "Master lag (s): records"
