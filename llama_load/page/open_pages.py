"""Our pages in Locust's web UI, and /metrics on a port of its own."""

from __future__ import annotations

from llama_load.page.bounded_server import bound_locusts_page
from llama_load.page.guard import WebGuard
from llama_load.page.metrics_page import add_metrics_page
from llama_load.page.pages import add_pages
from llama_load.page.run_control import RunControl, Runs


def open_pages(runs: Runs) -> WebGuard:
    """Add our pages to Locust's, and bound and guard all of them."""
    guard = WebGuard(runs.environment)
    bound_locusts_page()
    add_metrics_page(runs.environment.web_ui, runs.metrics)
    add_pages(RunControl(runs, guard))
    return guard
