"""llama-load."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from truth.result import (
    COUNTS,
    LOAD,
    PERCENTILES,
    RATES,
    TIMES,
    TOPICS,
    Doubt,
    Result,
    Seen,
)
from truth.tools.tool import METRICS, NoResult, Tool, known, load_json, load_lines
from truth.work import Work

ROWS = "requests.jsonl"
SEARCH = "search.json"
LATENCIES = ("TTFT", "ITL", "TPOT", "E2EL", "upper percentiles")
# Checks of when requests were sent, and of other programs on the machine, which change no count.
OF_LOAD = ("late_p99_ms", "dropped", "client_pause_ms")
TOO_FEW = "needed"  # "10 values, 100 needed"
OF_MACHINE = ("other_programs_ratio",)


class LlamaLoad(Tool):
    """Its run folder, with a row per request in requests.jsonl, which its own command writes."""

    name = "llama-load"
    title = "llama-load"
    searches = True

    def commands(self, work: Work, folder: Path) -> list[list[str]]:
        run = self.result(folder)
        if work.ttft_ms:
            return [_search(work, folder, run)]
        locust = ["locust", "--headless", "--loglevel", "ERROR"]
        locust += ["-f", str(folder / "locustfile.py")]
        locust += ["--host", work.url]
        if work.warmup:
            locust += ["--warmup", str(work.warmup)]
        if work.seconds:
            locust += ["-t", f"{work.seconds:g}s"]
        else:
            locust += ["--num-prompts", str(work.requests)]
        if work.closed:
            locust += ["-u", str(work.streams)]
        else:
            locust += [
                "--request-rate",
                f"{work.rate_rps:g}",
                "--arrival",
                work.arrival,
            ]
        if work.tokenizer:
            locust += ["--tokenizer", work.tokenizer]
        if work.prompts:
            locust += ["--dataset-path", work.prompts]
            locust += ["--sharegpt-output-len", str(work.tokens)]
            # without a seed a word of the run is added, so that no cache has the prompts
            locust += ["--seed", str(work.seed or 0)]
        else:
            locust += ["--input-len", str(work.prompt_tokens)]
            locust += ["--output-len", str(work.tokens)]
        if work.ignore_eos:
            locust += ["--ignore-eos"]
        if work.seed is not None and not work.prompts:
            locust += ["--seed", str(work.seed)]
        if work.choices > 1:
            locust += ["--extra-body", f'{{"n": {work.choices}}}']
        locust += ["--percentile-metrics", ",".join(METRICS)]
        locust += ["--metric-percentiles", "50,99"]
        locust += ["--run-dir", str(run)]
        workload = "Custom" if work.prompts else "Synthetic"
        _write_locustfile(folder / "locustfile.py", workload)
        rows = ["llama-load", "report", str(run), "--format", "jsonl"]
        rows += ["--output", str(run / ROWS)]
        return [locust, rows]

    def result(self, folder: Path) -> Path:
        return folder / "run"

    def read(self, path: Path) -> Result:
        if (path / SEARCH).exists():
            return _of_search(load_json(path / SEARCH))
        if not (path / ROWS).exists():
            write = f"llama-load report {path} --format jsonl --output {path / ROWS}"
            raise NoResult(f"write its rows first: {write}")
        summary = load_json(path / "summary.json")
        rows = [row for row in load_lines(path / ROWS) if not row["warmup"]]
        good = [row for row in rows if row["status"] == "ok"]
        verdict = summary["llama_load"]["verdict"]
        return Result(
            requests=[_seen(row) for row in good],
            reported=_reported(summary),
            completed=summary["completed"],
            failed=summary["failed"],
            output_tokens=summary["total_output_tokens"],
            input_tokens=summary["total_input_tokens"],
            doubts=_doubts(summary),
            note=verdict["word"],
        )


def _search(work: Work, folder: Path, out: Path) -> list[str]:
    """The command that searches the most users."""
    _write_locustfile(folder / "locustfile.py", "Synthetic")
    command = ["llama-load", "capacity", work.url, "--out", str(out)]
    command += ["--goodput", f"ttft:{work.ttft_ms:g}", "--share", f"{work.share:g}"]
    command += ["--", "-f", str(folder / "locustfile.py"), "--ignore-eos"]
    command += ["--tokenizer", work.tokenizer, "--input-len", str(work.prompt_tokens)]
    return [*command, "--output-len", str(work.tokens)]


def _of_search(found: dict[str, Any]) -> Result:
    """Its doubts are probes that must not be compared."""
    names = {
        "capacity": "capacity_users",
        "low": "capacity_low",
        "high": "capacity_high",
    }
    reported = known({name: found.get(key) for key, name in names.items()})
    doubts = [Doubt(text) for text in found.get("not_ranked") or ()]
    return Result([], reported, doubts=doubts)


def _doubts(summary: dict[str, Any]) -> list[Doubt]:
    """The failed checks of its verdict, and the percentiles that it marks as those of too few
    values."""
    about = summary["llama_load"]
    failed = [check for check in about["verdict"]["checks"] if not check["ok"]]
    doubts = [Doubt(check["text"], _topics(check)) for check in failed]
    for figure, reason in (about.get("uncertain") or {}).items():
        if reason.endswith(TOO_FEW):
            doubts.append(Doubt(f"{figure}: {reason}", (PERCENTILES,)))
    return doubts


def _topics(check: dict[str, Any]) -> tuple[str, ...]:
    if check["name"] in OF_LOAD:
        return (LOAD, RATES)
    if check["name"] in OF_MACHINE:
        return (TIMES, RATES)
    # earlier versions did not say what a check spoils
    spoils = check.get("spoils", ["all figures"])
    if "all figures" in spoils:
        return TOPICS

    topics: list[str] = []
    if any(name in spoils for name in LATENCIES):
        topics.append(TIMES)
    if "rates" in spoils:
        topics.append(RATES)
    if "counts" in spoils:
        topics.append(COUNTS)
    return tuple(topics)


def _write_locustfile(path: Path, workload: str) -> None:
    path.write_text(
        f"from locust import task\n\nfrom llama_load import LlamaUser, {workload}\n\n\n"
        f"class Chat(LlamaUser):\n    workload = {workload}()\n\n"
        "    @task\n    def ask(self):\n        self.chat()\n",
        encoding="utf-8",
    )


def _reported(summary: dict[str, Any]) -> dict[str, float]:
    values = {
        "request_rps": summary["request_throughput"],
        "output_tok_per_s": summary["output_throughput"],
    }
    for metric in METRICS:
        for percent in (50, 99):
            name = f"p{percent}_{metric}_ms"
            values[name] = summary.get(name)
    return known(values)


def _seen(row: dict[str, Any]) -> Seen:
    """Latencies from the instant at which the client began, as every client's are judged, and TPOT
    by all tokens but one, also where the first event has several: as vLLM's keys of summary.json
    have them."""
    own_delay_ms = 0.0
    if row.get("asked_mono_ns") is not None:
        own_delay_ms = row["own_delay_ms"]

    return Seen(
        request_id=row["request_id"],
        ttft_ms=_with(own_delay_ms, row["ttft_ms"]),
        tpot_ms=_tpot_ms(row),
        e2el_ms=_with(own_delay_ms, row["e2el_ms"]),
        itl_ms=row["itl_ms"] or (),
        output_tokens=row["output_tokens"],
        prompt_tokens=row["prompt_tokens"],
        late_ms=row["late_ms"],
    )


def _tpot_ms(row: dict[str, Any]) -> float | None:
    tokens = row["output_tokens"]
    if row["tpot_ms"] is None or not tokens or tokens < 2:
        return None
    after_first_ms = float(row["e2el_ms"] - row["ttft_ms"])
    return after_first_ms / (int(tokens) - 1)


def _with(own_delay_ms: float, latency_ms: float | None) -> float | None:
    return None if latency_ms is None else latency_ms + own_delay_ms
