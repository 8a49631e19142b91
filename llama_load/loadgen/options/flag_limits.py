"""Defaults and limits of flags that other modules know, too."""

from __future__ import annotations

# The requests of a headless run without --num-prompts and without -t: p99 is known from 100 on.
DEFAULT_NUM_PROMPTS = 100
# Default address of the web UI.
LOOPBACK = "127.0.0.1"
# With --at-end wait: requests still in flight after the longest timeout are cut.
LONGEST_WAIT_S = 900.0
# Larger values are typos: no machine has the memory or the time for them.
MOST_REQUESTS = 10**7  # ten hours at 300 a second; their plan takes some GB
MOST_USERS = 10**6
MOST_TOKENS = 10**7  # of a prompt or an answer: ten times the longest contexts
MOST_PARTS = 10**4  # images or texts in a request, turns of a conversation
MOST = 10**9
MOST_PROBES_RPS = 10.0  # more is a load, not a probe
LONGEST_PROBE_GAP_S = 3600.0
