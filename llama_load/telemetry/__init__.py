"""Samples what happens beside the requests: GPUs, host, server processes, counters. In a process of
its own, for its cost."""
