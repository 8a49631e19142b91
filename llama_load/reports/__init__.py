"""From a run folder to what people read: the text block, summary.json, report.md. Knows no network, gevent or Locust."""
