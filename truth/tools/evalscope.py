"""evalscope perf (ModelScope)."""

from __future__ import annotations

import base64
import json
import re
import sqlite3
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, ClassVar

from truth.cases import CONSTANT
from truth.foreign import MOST_BYTES, text_of
from truth.result import Result, Seen
from truth.tools.tool import NoResult, Tool, known, load_json, times, total
from truth.work import Work

RUN = "run"
LOG = "benchmark.log"
DATABASE = "benchmark_data.db"
# Its names and factors of what its summary has at each percentile.
NAMES = {
    "ttft": ("TTFT (ms)", 1.0),
    "tpot": ("TPOT (ms)", 1.0),
    "itl": ("ITL (ms)", 1.0),
    "e2el": ("Latency (s)", 1e3),
}
QUERY = (
    "SELECT success, latency, first_chunk_latency, time_per_output_token,"
    " inter_token_latencies, prompt_tokens, completion_tokens,"
    " substr(response_messages, 1, 400) FROM result"
)
# The server's number of a request is in the id of each event. Answers are kept as pickles, of which
# nothing but this text is read: to load one would run what is in it.
ID = re.compile(rb"(?:chatcmpl|cmpl)-(\d{1,9})")
# Of a search its log has a line per objective: the objective, what it selected, and its state.
SELECTED = re.compile(
    r"\u2502[^\u2502]*\u2502\s*(\d+)\s*\u2502\s*best_observed\s*\u2502"
)
REQUESTS_PER_USER = 20  # of each probe of a search
MOST_USERS = 64


class Evalscope(Tool):
    """Its search halves the interval between loads that met the objective and loads that did not,
    and states a number without an interval."""

    name = "evalscope"
    title = "evalscope perf"
    searches = True
    lacks: ClassVar[Mapping[str, str]] = {
        "prompts": "is not started with a file of prompts here"
    }

    def unable(self, work: Work) -> str:
        if work.arrival == CONSTANT:
            return "has no evenly spaced arrivals"
        return super().unable(work)

    def commands(self, work: Work, folder: Path) -> list[list[str]]:
        command = ["evalscope", "perf", "--api", "openai", "--model", work.model]
        command += ["--url", f"{work.url}/v1/chat/completions"]
        command += ["--dataset", "random", "--tokenizer-path", work.tokenizer]
        command += ["--min-prompt-length", str(work.prompt_tokens)]
        command += ["--max-prompt-length", str(work.prompt_tokens)]
        command += ["--prefix-length", "0", "--stream", "--no-test-connection"]
        command += ["--max-tokens", str(work.tokens), "--min-tokens", str(work.tokens)]
        command += ["--outputs-dir", str(folder), "--no-timestamp", "--name", RUN]
        if work.ignore_eos:
            command += ["--extra-args", '{"ignore_eos": true}']
        if work.choices > 1:
            command += ["--n-choices", str(work.choices)]
        if work.warmup:
            command += ["--warmup-num", str(work.warmup)]
        if work.seconds:
            command += ["--duration", f"{work.seconds:g}"]
        return [[*command, *_load(work)]]

    def result(self, folder: Path) -> Path:
        return folder / RUN

    def read(self, path: Path) -> Result:
        if (path / "sla_summary.json").exists():
            found = SELECTED.search(text_of(path / LOG))
            return Result([], {"capacity_users": float(found[1])} if found else {})

        files = list(path.glob(f"*/{DATABASE}"))
        if not files:
            raise NoResult(f"no {DATABASE}")
        rows = _rows(files[0])
        seen = [_seen(row) for row in rows if row[0]]
        summary = load_json(files[0].with_name("benchmark_summary.json"))
        percentiles = load_json(files[0].with_name("benchmark_percentile.json"))
        return Result(
            requests=seen,
            reported=_reported(summary, percentiles),
            completed=summary["Success Requests"],
            failed=summary["Failed Requests"],
            output_tokens=total([each.output_tokens for each in seen]),
            input_tokens=total([each.prompt_tokens for each in seen]),
        )


def _load(work: Work) -> list[str]:
    if work.ttft_ms:
        objective = [{f"p{100 * work.share:g}_ttft": f"<={work.ttft_ms:g}ms"}]
        words = ["--parallel", "1", "--sla-auto-tune", "--sla-variable", "parallel"]
        words += ["--sla-params", json.dumps(objective), "--sla-num-runs", "1"]
        words += ["--sla-upper-bound", str(MOST_USERS)]
        return [*words, "--sla-number-multiplier", str(REQUESTS_PER_USER)]

    words = ["--number", str(work.requests)]
    if work.closed:
        return [*words, "--parallel", str(work.streams)]
    return [*words, "--open-loop", "--rate", f"{work.rate_rps:g}"]


def _rows(path: Path) -> list[tuple[Any, ...]]:
    if path.stat().st_size > MOST_BYTES:
        raise NoResult(f"{path.name} has more than {MOST_BYTES >> 20} MiB")
    try:
        with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as database:
            return database.execute(QUERY).fetchall()
    except sqlite3.Error as error:
        raise NoResult(f"{path.name}: {error}") from error


def _seen(row: tuple[Any, ...]) -> Seen:
    _, latency_s, first_s, tpot_s, gaps, prompt_tokens, tokens, answer = row
    named = ID.search(base64.b64decode(answer or ""))
    return Seen(
        number=int(named[1]) if named else None,
        ttft_ms=times(first_s, 1e3),
        tpot_ms=times(tpot_s, 1e3),
        e2el_ms=times(latency_s, 1e3),
        itl_ms=[float(gap) * 1e3 for gap in json.loads(gaps or "[]")],
        output_tokens=tokens,
        prompt_tokens=prompt_tokens,
    )


def _reported(
    summary: Mapping[str, float], percentiles: Sequence[Mapping[str, Any]]
) -> dict[str, float]:
    """Its percentiles are rows, named `99%`."""
    reported: dict[str, float | None] = {
        "request_rps": summary["Req Throughput (req/s)"],
        "output_tok_per_s": summary["Output Throughput (tok/s)"],
    }
    rows = {row["Percentiles"]: row for row in percentiles}
    for percent in (50, 99):
        row = rows[f"{percent}%"]
        for metric, (name, factor) in NAMES.items():
            reported[f"p{percent}_{metric}_ms"] = times(row.get(name), factor)
    return known(reported)
