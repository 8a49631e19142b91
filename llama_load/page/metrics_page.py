"""/metrics for Prometheus: in the web UI, and with --metrics-port on a port of its own."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import Any

from llama_load.ground.errors import UsageError
from llama_load.loadgen.live.exposition import CONTENT_TYPE
from llama_load.loadgen.live.run_metrics import RunMetrics
from llama_load.loadgen.options.flag_limits import LOOPBACK
from llama_load.loadgen.wire.local_names import is_of_strangers
from llama_load.outside.bound_headers import is_bearer
from llama_load.page.bounded_server import BoundedServer
from llama_load.page.page_token import check_token

logger = logging.getLogger(__name__)


def add_metrics_page(web_ui: Any, metrics: RunMetrics) -> None:
    """Add /metrics to Locust's web UI, behind its login if it has one."""
    from flask import Response

    base = (web_ui.environment.parsed_options.web_base_path or "").rstrip("/")

    def page() -> Response:
        return Response(metrics.text(), content_type=CONTENT_TYPE)

    web_ui.app.add_url_rule(
        f"{base}/metrics", "llama_load_metrics", web_ui.auth_required_if_enabled(page)
    )


def metrics_answer(
    metrics: RunMetrics, token: str | None, *, is_local: bool
) -> Callable[..., Iterable[bytes]]:
    """The WSGI application of --metrics-port. `is_local`: only this machine reaches it."""
    # Who is refused asks again on a new connection, and by it is counted.
    refused = [("Content-Type", "text/plain"), ("Connection", "close")]

    def answer(
        environ: dict[str, Any], start_response: Callable[..., Any]
    ) -> Iterable[bytes]:
        if is_local and is_of_strangers(environ.get("HTTP_HOST", "")):
            start_response("403 Forbidden", refused)
            return [b"that is not a name of this machine\n"]
        if token is not None and not is_bearer(
            environ.get("HTTP_AUTHORIZATION", ""), token
        ):
            start_response(
                "401 Unauthorized", [*refused, ("WWW-Authenticate", "Bearer")]
            )
            return [b"send the token of --web-token as 'Authorization: Bearer TOKEN'\n"]
        if environ["PATH_INFO"] != "/metrics" or environ["REQUEST_METHOD"] not in (
            "GET",
            "HEAD",
        ):
            start_response("404 Not Found", refused)
            return [b"the figures are at /metrics\n"]

        start_response("200 OK", [("Content-Type", CONTENT_TYPE)])

        return [metrics.text()]

    return answer


def serve_metrics(
    address: tuple[str, int], metrics: RunMetrics, token: str | None = None
) -> None:
    """Serve /metrics, and nothing else, at this address until the process ends.

    With a token only to those who send it. UsageError: the address cannot be used, or the token can
    be guessed.
    """
    check_token(token)
    is_local = address[0] == LOOPBACK
    server = BoundedServer(
        address,
        metrics_answer(metrics, token, is_local=is_local),
        log=None,
        error_log=logger,
    )
    try:
        server.start()
    except OSError as error:
        where = f"{address[0]}:{address[1]}"
        why = error.strerror or error
        raise UsageError(
            f"--metrics-port: cannot listen at {where}: {why}; choose another port"
        ) from None

    if not is_local and token is None:
        logger.warning(
            "everybody who reaches %s:%d can read the figures of this run", *address
        )
