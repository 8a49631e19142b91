"""Reports of a run folder: the text block, summary.json, report.md.

They depend on no network, gevent or Locust.
"""
