"""Finished runs as the page shows them, from their folders: a row in the list, and a page each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from llama_load.analysis.keys import certain
from llama_load.foreign_text import printable
from llama_load.metrics.check import FAILED, INCOMPLETE, VALID
from llama_load.reports.run_list import SUMMARY
from llama_load.run_folder import MANIFEST
from llama_load.web.run_files import RunFiles

# JSON may hold integers of hundreds of digits, which cannot be written as floats.
MOST_LIMIT = 1e300
# A style for each kind of verdict.
GOOD, BAD, DOUBTFUL, NONE = "good", "bad", "doubtful", "none"
# The headline figures: key of summary.json, name, unit.
HEADLINES = (
    ("request_throughput", "requests", "/s"),
    ("output_throughput", "output", "tok/s"),
    ("median_ttft_ms", "TTFT median", "ms"),
    ("p99_ttft_ms", "TTFT p99", "ms"),
    ("median_tpot_ms", "TPOT median", "ms"),
    ("median_itl_ms", "ITL median", "ms"),
    ("p99_itl_ms", "ITL p99", "ms"),
    ("median_e2el_ms", "E2EL median", "ms"),
)
# The columns of the tables of stages, workloads and servers.
PART_COLUMNS = (
    ("completed", "Requests"),
    ("failed", "Failed"),
    ("request_throughput", "Req/s"),
    ("output_throughput", "Output tok/s"),
    ("tok_per_s_per_user", "tok/s per user"),
    ("median_ttft_ms", "TTFT median (ms)"),
    ("p99_ttft_ms", "TTFT p99 (ms)"),
    ("median_tpot_ms", "TPOT median (ms)"),
    ("p99_itl_ms", "ITL p99 (ms)"),
)


@dataclass(slots=True)
class RunView:
    """A run's page. `error` says why there are no results."""

    name: str
    title: str
    date: str
    words: list[str]
    style: str
    headline: str
    error: str
    figures: list[tuple[str, str, str]]
    bad_checks: list[tuple[str, str]]
    thresholds: list[tuple[str, bool]]
    parts: list[tuple[str, list[str], list[list[str]]]]
    failures: list[tuple[str, str]]
    preflight: list[tuple[str, str, str]]
    block: str
    command: str
    files: list[str] = field(default_factory=list)


def style_of(words: list[str]) -> str:
    """The style of a verdict's words, the gravest first."""
    if not words or words[0] in ("n/a", "") or words[0].startswith(("broken", "still")):
        return NONE
    return GOOD if words[0] == VALID else BAD if words[0] in (INCOMPLETE, FAILED) else DOUBTFUL


def headline_figures(files: RunFiles, name: str) -> dict[str, float]:
    """The headline figures of a run by their keys in summary.json, without those that are uncertain."""
    summary = files.json(name, SUMMARY) or {}
    known = certain(summary, _dict(_dict(summary.get("llama_load")).get("uncertain")))
    keys = ("completed", "failed", "tok_per_s_per_user", *(key for key, _, _ in HEADLINES))
    found = {key: known.get(key, _dict(known.get("llama_load")).get(key)) for key in keys}
    return {key: value for key, value in found.items() if isinstance(value, int | float) and abs(value) < MOST_LIMIT}


def run_view(files: RunFiles, name: str) -> RunView:
    """The page of a run."""
    manifest = files.json(name, MANIFEST) or {}
    summary = files.json(name, SUMMARY)
    ours = _dict(_dict(summary).get("llama_load"))
    verdict = _dict(ours.get("verdict"))
    words = [printable(str(word)) for word in _list(verdict.get("words"))]
    bad = [check for check in map(_dict, _list(verdict.get("checks"))) if check.get("ok") is False]
    error = (
        ""
        if summary is not None
        else "There are no results: it is still running, or it was killed (llama-load report finishes it)."
    )
    return RunView(
        name=printable(name),
        title=_text(manifest, "label") or _text(manifest, "workload") or printable(name),
        date=_text(manifest, "date"),
        words=words,
        style=style_of(words),
        headline=_text(verdict, "headline") or _headline(words, bad),
        error=error,
        figures=list(_figures(certain(_dict(summary), _dict(ours.get("uncertain"))))),
        bad_checks=[(_text(check, "stage"), _sentence(check)) for check in bad],
        thresholds=[_threshold(_dict(each)) for each in _list(ours.get("thresholds"))],
        parts=list(_parts(ours)),
        failures=[(_text(each, "kind"), str(each.get("count", ""))) for each in map(_dict, _list(ours.get("failures")))],
        preflight=[
            (_text(row, "level"), _text(row, "name"), _text(row, "value")) for row in map(_dict, _list(manifest.get("preflight")))
        ],
        block=files.text(name, "summary.txt"),
        command=" ".join(printable(str(word), None) for word in _list(manifest.get("command"))),
        files=files.present(name),
    )


def _headline(words: list[str], bad: list[dict[str, Any]]) -> str:
    """The verdict's words, with the first objection."""
    return f"{', '.join(words)}{': ' + _text(bad[0], 'text') if bad else ''}"


def _sentence(check: Mapping[str, Any]) -> str:
    """`Same: TPOT rose 2.0 x (limit 1.5); lower the rate`; older runs have no statement and no remedy."""
    statement, limit, remedy = _text(check, "statement"), check.get("limit"), _text(check, "remedy")
    text = _text(check, "text") + (f" (limit {limit:.4g})" if isinstance(limit, int | float) and abs(limit) < MOST_LIMIT else "")
    return (f"{statement}: " if statement else "") + text + (f"; {remedy}" if remedy else "")


def _figures(summary: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    for key, title, unit in HEADLINES:
        if isinstance(value := summary.get(key), int | float):
            yield title, _number(value), unit


def _threshold(each: Mapping[str, Any]) -> tuple[str, bool]:
    return _text(each, "line"), each.get("failed") is True


def _parts(ours: Mapping[str, Any]) -> Iterator[tuple[str, list[str], list[list[str]]]]:
    """Tables of the run's parts: where a run has several stages, workloads, models, servers."""
    for key, title in (("by_stage", "Stage"), ("by_workload", "Workload"), ("by_model", "Model"), ("by_host", "Server")):
        known = {name: _dict(part) for name, part in _dict(ours.get(key)).items()}
        parts = {name: certain(part, _dict(part.get("uncertain"))) for name, part in known.items()}
        if len(parts) < (1 if key == "by_stage" else 2):
            continue
        columns = [
            (key, name) for key, name in PART_COLUMNS if any(isinstance(part.get(key), int | float) for part in parts.values())
        ]
        rows = [[printable(name), *(_cell(part.get(key)) for key, _ in columns)] for name, part in parts.items()]
        yield title, [name for _, name in columns], rows


def _cell(value: Any) -> str:
    return _number(value) if isinstance(value, int | float) else "n/a"


def _number(value: float) -> str:
    """Three digits at least, and no more than two after the point."""
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.1f}" if abs(value) >= 100 else f"{value:.2f}"


def _text(values: Mapping[str, Any], key: str) -> str:
    value = values.get(key)
    return "" if value is None else printable(str(value))


def _dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
