"""A run in one line."""

from __future__ import annotations

from llama_load.analysis.reports.exports import Export
from llama_load.analysis.reports.result_json import result_json
from llama_load.analysis.results.results import Results


def one_line(results: Results) -> str:
    """`VALID 912.4 ms`: the verdict, and the mean TTFT."""
    summary = result_json(results)
    word = summary["llama_load"]["verdict"]["word"]
    return f"{word} {summary['mean_ttft_ms']:.1f} ms\n"


ONE_LINE = Export("one-line", "formats", "one_line", package="parrot_plugin")
