"""/metrics for Prometheus: in the web UI, and with --metrics-port on a port of its own."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import msgspec

from llama_load.bound_headers import is_bearer
from llama_load.errors import UsageError
from llama_load.live import LiveFigures
from llama_load.live.exposition import CONTENT_TYPE, exposition
from llama_load.options.flags import LOOPBACK
from llama_load.reports.about_run import about_run
from llama_load.run_folder import RunWriter
from llama_load.web.bounded_server import BoundedServer
from llama_load.web.guard import is_own_name

logger = logging.getLogger(__name__)


class RunMetrics:
    """The live figures of the present run, or of the last one until the next begins."""

    def __init__(self) -> None:
        self.live: LiveFigures | None = None
        self._writer: RunWriter | None = None

    def follow(self, live: LiveFigures, writer: RunWriter) -> None:
        """A run begins."""
        self.live, self._writer = live, writer

    @property
    def name(self) -> str | None:
        """The name of the run's folder."""
        return None if self._writer is None else self._writer.path.name

    @property
    def folder(self) -> Path | None:
        """The run's folder."""
        return None if self._writer is None else self._writer.path

    @property
    def stages(self) -> list[str]:
        """The names of the run's stages."""
        return [] if self._writer is None else [stage.name for stage in self._writer.manifest.stages]

    def about(self) -> list[tuple[str, str]]:
        """What runs, as names and texts; empty without a run."""
        return [] if self._writer is None else about_run(msgspec.to_builtins(self._writer.manifest))

    def text(self) -> bytes:
        """The text of /metrics."""
        info = {}
        if self._writer is not None:
            manifest = self._writer.manifest
            info = {
                "run": self._writer.path.name,
                "label": manifest.label or "",
                "workload": manifest.workload,
                "model": manifest.model or "",
                "server": manifest.backend or "",
            }
        return exposition(self.live, self.stages, info)


def add_metrics_page(web_ui: Any, metrics: RunMetrics) -> None:
    """Add /metrics to Locust's web UI, behind its login if it has one."""
    from flask import Response

    base = (web_ui.environment.parsed_options.web_base_path or "").rstrip("/")

    def page() -> Response:
        return Response(metrics.text(), content_type=CONTENT_TYPE)

    web_ui.app.add_url_rule(f"{base}/metrics", "llama_load_metrics", web_ui.auth_required_if_enabled(page))


def serve_metrics(address: tuple[str, int], metrics: RunMetrics, token: str | None = None) -> None:
    """Serve /metrics, and nothing else, at this address until the process ends; with a token only to those who send it. UsageError:
    the address cannot be used."""

    def answer(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        if address[0] == LOOPBACK and not is_own_name(f"//{environ.get('HTTP_HOST', '')}"):
            start_response("403 Forbidden", [("Content-Type", "text/plain")])
            return [b"that is not a name of this machine\n"]
        if token is not None and not is_bearer(environ.get("HTTP_AUTHORIZATION", ""), token):
            start_response("401 Unauthorized", [("Content-Type", "text/plain"), ("WWW-Authenticate", "Bearer")])
            return [b"send the token of --web-token as 'Authorization: Bearer TOKEN'\n"]
        if environ["PATH_INFO"] != "/metrics" or environ["REQUEST_METHOD"] not in ("GET", "HEAD"):
            start_response("404 Not Found", [("Content-Type", "text/plain")])
            return [b"the figures are at /metrics\n"]
        start_response("200 OK", [("Content-Type", CONTENT_TYPE)])
        return [metrics.text()]

    server = BoundedServer(address, answer, log=None, error_log=logger)
    try:
        server.start()
    except OSError as error:
        where = f"{address[0]}:{address[1]}"
        raise UsageError(f"--metrics-port: cannot listen at {where}: {error.strerror or error}; choose another port") from None
    if address[0] != LOOPBACK and token is None:
        logger.warning("everybody who reaches %s:%d can read the figures of this run", *address)
