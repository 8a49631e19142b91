"""Definitions of the metrics: one function per metric, the summary of a run, and its verdict.
Depends on no network or Locust."""
