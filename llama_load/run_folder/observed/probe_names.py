"""Probes (--probe-rate) have records like all requests, in a file of their own. These are their
names there."""

from __future__ import annotations

# The workload of each, and the name by its phase: discarded ones that open the way, on the idle
# server, beside the load.
PROBE = "probe"
SETTLING = "settling"
ALONE = "alone"
BESIDE = "beside the load"
