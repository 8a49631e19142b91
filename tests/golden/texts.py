"""What a run prints and writes, as texts that are the same on every machine."""

from __future__ import annotations

import hashlib
import io
import json
import re
from collections.abc import Mapping
from typing import Any

from llama_load.analysis.reports.block import block
from llama_load.analysis.reports.first_screen import first_screen
from llama_load.analysis.reports.html.page import html_page
from llama_load.analysis.reports.result_json import result_json
from llama_load.analysis.reports.show import show
from llama_load.analysis.reports.write import RunReports, markdown
from llama_load.analysis.results.results import Results, analyze
from llama_load.run_folder import Run

# Processors add up floats in another order: of 16 digits the last six may differ.
DIGITS = 9
SCRIPT_HASHES = re.compile(r"sha256-[\w+/=]+")
STYLES = re.compile(r"<(style|script)>.*?</\1>", re.DOTALL)  # Bokeh's and ours
FLOATS = re.compile(r"-?\d+\.\d{8,}(?:e[+-]?\d+)?|-?\d+(?:\.\d+)?e[+-]?\d+")


def texts_of(run: Run) -> dict[str, str]:
    """By the names of outputs."""
    results = analyze(run)
    text = block(results)
    texts = {
        "summary.json": json.dumps(_rounded(result_json(results)), indent=1),
        "printed": _printed(results, text),
        "report.html": _page(results, text, "en"),
    }
    for language in ("en", "zh"):
        texts[f"report.{language}.md"] = markdown(results, text, language)
    return texts


def _printed(results: Results, text: str) -> str:
    out = io.StringIO()
    show(RunReports(results, text, {}, first_screen(results)), out)
    return out.getvalue()


def _page(results: Results, text: str, language: str) -> str:
    """The page with the values of its charts, without its scripts and styles."""
    page = STYLES.sub("", html_page(results, text, language, ""))
    page = SCRIPT_HASHES.sub("", page)
    return FLOATS.sub(lambda number: f"{float(number[0]):.{DIGITS}g}", page)


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.{DIGITS}g}")
    if isinstance(value, Mapping):
        return {key: _rounded(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_rounded(item) for item in value]
    return value


def digest(text: str) -> str:
    """Of its SHA-256 16 digits."""
    return hashlib.sha256(text.encode()).hexdigest()[:16]
