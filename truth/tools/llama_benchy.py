"""llama-benchy."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from truth.result import Result, Seen
from truth.tokenizer import WORDS
from truth.tools.tool import OFFLINE, Tool, load_lines, number_in, total
from truth.work import Work

PROGRESS = "progress.jsonl"
# It cuts its prompts out of a book, which it looks for in its cache by the digest of its address.
BOOK = "http://127.0.0.1/book"
BOOK_WORDS = 20_000


class LlamaBenchy(Tool):
    """Waves of requests: the next ones are sent when all of the last are answered. Its progress has
    every request, with the text of each event."""

    name = "llama-benchy"
    title = "llama-benchy"
    lacks: ClassVar[Mapping[str, str]] = {
        "warmup": "warms up by a wave of its own",
        "seconds": "has no end by time",
        "prompts": "cuts its prompts out of a book",
    }

    def unable(self, work: Work) -> str:
        if not work.closed:
            return "has no open loop"
        if work.requests % max(1, work.streams):
            return "sends waves of as many requests as are in flight"
        return super().unable(work)

    def commands(self, work: Work, folder: Path) -> list[list[str]]:
        _write_book(_home(work))
        command = ["llama-benchy", "--base-url", f"{work.url}/v1"]
        command += ["--model", work.model, "--tokenizer", work.tokenizer]
        command += ["--book-url", BOOK]
        command += ["--pp", str(work.prompt_tokens), "--tg", str(work.tokens)]
        command += ["--concurrency", str(work.streams)]
        command += ["--runs", str(work.requests // work.streams)]
        command += ["--no-warmup", "--no-adapt-prompt", "--skip-coherence"]
        command += ["--latency-mode", "none", "--no-cache"]
        if work.ignore_eos:
            command += ["--exact-tg"]
        if work.choices > 1:
            command += ["--extra-body", f"n={work.choices}"]
        return [[*command, "--emit-progress", str(self.result(folder))]]

    def env(self, work: Work) -> Mapping[str, str]:
        return {**OFFLINE, "HOME": str(_home(work))}

    def result(self, folder: Path) -> Path:
        return folder / PROGRESS

    def read(self, path: Path) -> Result:
        requests: dict[int, dict[str, Any]] = {}
        for event in load_lines(path):
            if "request_id" in event:
                its = requests.setdefault(event["request_id"], {})
                its.setdefault(event["type"], event)
        ended = [its for its in requests.values() if "request_end" in its]
        good = [its for its in ended if not its["request_end"]["error"]]
        seen = [_seen(its) for its in good]
        return Result(
            requests=seen,
            completed=len(good),
            failed=len(ended) - len(good),
            output_tokens=total([each.output_tokens for each in seen]),
            input_tokens=total([each.prompt_tokens for each in seen]),
        )


def _home(work: Work) -> Path:
    return Path(work.tokenizer) / "home"


def _write_book(home: Path) -> None:
    name = hashlib.md5(BOOK.encode(), usedforsecurity=False).hexdigest()
    book = home / ".cache" / "llama-benchy" / f"{name}.txt"
    book.parent.mkdir(parents=True, exist_ok=True)
    words = [f"w{place * 6 % WORDS}" for place in range(BOOK_WORDS)]
    book.write_text(" ".join(words), encoding="utf-8")


def _seen(its: Mapping[str, Any]) -> Seen:
    """Its end is that of the stream, after usage and [DONE]."""
    end = its["request_end"]
    first = its.get("request_first_token")
    ttft_ms = None
    e2el_ms = None
    if first is not None:
        ttft_ms = first["ttft_s"] * 1e3
        e2el_ms = ttft_ms + end["decode_seconds"] * 1e3
    text = its["tokens"]["snippet"] if "tokens" in its else ""
    return Seen(
        number=number_in(text) if isinstance(text, str) else None,
        ttft_ms=ttft_ms,
        e2el_ms=e2el_ms,
        output_tokens=end["total_tokens"],
        prompt_tokens=end["prompt_tokens"],
    )
