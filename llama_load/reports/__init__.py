"""Reports of a run folder: the text block, summary.json, report.md. Depends on no network, gevent or Locust."""
