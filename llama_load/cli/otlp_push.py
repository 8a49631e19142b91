"""`llama-load report RUN --push URL`: a run to a collector of OpenTelemetry, by OTLP over HTTP in
JSON."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import msgspec

from llama_load.ground.errors import RunError, UsageError
from llama_load.outside.bound_headers import UnsendableError, bound, field_lines
from llama_load.outside.foreign_json import decode_foreign
from llama_load.outside.foreign_text import keep_secret, printable, redacted
from llama_load.outside.plain_http import NoAnswerError, Session
from llama_load.servers.address import parse_url

# OpenTelemetry's own variable for headers such as a key: NAME=VALUE,NAME=VALUE with escapes as in
# URLs.
HEADERS = "OTEL_EXPORTER_OTLP_HEADERS"
WITHIN_S = 30.0  # of one message


def push_run(folder: Path, url: str) -> str:
    """Send the spans and the histograms of a run; the sentence that says what was taken. Raises
    UsageError, RunError."""
    from llama_load.analysis.reports.exports.otlp import metrics, traces
    from llama_load.analysis.results.results import analyze
    from llama_load.run_folder import load_run

    try:
        base = parse_url(url).url
    except ValueError as error:
        raise UsageError(f"--push {error}") from None
    session = Session(bound(base, _headers()))
    results = analyze(load_run(folder))
    sent = 0
    messages: Iterable[tuple[str, Any]] = chain(
        (("traces", message) for message in traces(results)),
        [("metrics", metrics(results))],
    )
    for kind, message in messages:
        _send(session, f"{base}/v1/{kind}", message, sent)
        sent += (
            len(message["resourceSpans"][0]["scopeSpans"][0]["spans"])
            if kind == "traces"
            else 0
        )
    return f"{sent} spans and the histograms of {folder} were taken by {base}"


def _headers() -> Iterator[tuple[str, str]]:
    for pair in filter(None, os.environ.get(HEADERS, "").split(",")):
        name, sign, value = pair.partition("=")
        if not sign or not name.strip():
            raise UsageError(f"{HEADERS} must be NAME=VALUE,NAME=VALUE")
        value = unquote(value.strip())
        keep_secret([value])
        try:
            field_lines([(name.strip(), value)])
        except UnsendableError as error:
            raise UsageError(f"{HEADERS}: {error}") from None
        yield name.strip(), value


def _send(session: Session, url: str, message: Any, sent: int) -> None:
    """One message. RunError: it was not taken, or only in part."""
    body = redacted(msgspec.json.encode(message).decode()).encode()
    before = f"; {sent} spans before it were taken" if sent else ""
    try:
        answer = session.post(url, body, within_s=WITHIN_S)
    except NoAnswerError as error:
        why = printable(str(error), 200)
        raise RunError(
            f"{url} takes no OTLP: {why}{before}; is it the address of a collector, such as "
            "http://127.0.0.1:4318?"
        ) from None
    if answer.status != 200:
        raise RunError(
            f"{url} answers {answer.status} ({printable(answer.text, 200)}){before}; does it "
            "take OTLP in JSON?"
        )
    try:
        partial = decode_foreign(answer.content or b"{}", _Answer).partialSuccess
    except ValueError:
        return  # a body that is not JSON beside 200, as some gateways send
    rejected = (
        partial.rejectedSpans
        if partial.rejectedSpans not in (0, "0")
        else partial.rejectedDataPoints
    )
    if rejected not in (0, "0"):
        raise RunError(
            f"{url} rejected {rejected} of a message: "
            f"{printable(partial.errorMessage, 200)}{before}"
        )


class _Partial(msgspec.Struct):
    rejectedSpans: int | str = 0
    rejectedDataPoints: int | str = 0
    errorMessage: str = ""


class _Answer(msgspec.Struct):
    partialSuccess: _Partial = msgspec.field(default_factory=_Partial)
