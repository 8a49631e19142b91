"""A small load generator with the standard library, which writes rows in CSV. With --flaw it makes
one of the errors that the suites are to find."""

from __future__ import annotations

import argparse
import csv
import http.client
import json
import random
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

COLUMNS = (
    "number",
    "status",
    "ttft_ms",
    "tpot_ms",
    "e2el_ms",
    "itl_ms",
    "output_tokens",
    "prompt_tokens",
)
KEYS = ("content", "reasoning_content", "reasoning")


def events(answer: http.client.HTTPResponse) -> Iterator[tuple[float, str]]:
    """The data of each event, with the instant at which its line was read."""
    for line in answer:
        if line.startswith(b"data: "):
            yield time.monotonic(), line[6:].decode().strip()


def text_of(chunk: dict[str, Any]) -> str:
    pieces = []
    for choice in chunk.get("choices", ()):
        delta = choice.get("delta", {})
        pieces += [delta.get(key) or "" for key in KEYS]
        pieces += [
            call["function"]["arguments"] for call in delta.get("tool_calls", ())
        ]
    return "".join(pieces)


def ask(url: str, body: dict[str, Any], flaw: str) -> dict[str, Any]:
    address = urlsplit(url)
    connection = http.client.HTTPConnection(
        address.hostname or "", address.port, timeout=20
    )
    started = time.monotonic()
    instants: list[float] = []
    text, usage, ended, status = "", {}, False, "ok"
    try:
        connection.request(
            "POST",
            "/v1/chat/completions",
            json.dumps(body),
            {"Content-Type": "application/json"},
        )
        answer = connection.getresponse()
        if answer.status != 200:
            return {"status": f"http {answer.status}"}
        for instant, data in events(answer):
            if data == "[DONE]":
                ended = True
                break
            chunk = json.loads(data)
            usage = chunk.get("usage") or usage
            piece = text_of(chunk)
            if "error" in chunk:
                status = "error in the stream"
            if piece or (flaw == "role" and not instants):
                instants.append(instant)
            text += piece
    except (OSError, http.client.HTTPException):
        status = "cut"
    finally:
        connection.close()
    if not ended and status == "ok":
        status = "cut"
    if flaw == "cut" and instants:
        status = "ok"
    late = 0.005 if flaw == "late" else 0.0
    first = text.split(maxsplit=1)[0] if text.split() else ""
    tokens = usage.get("completion_tokens") or len(text.split())
    if flaw == "events":
        tokens = len(instants)
    row: dict[str, Any] = {
        "status": status,
        "number": first if first.isdigit() else "",
        "output_tokens": tokens,
    }
    row["prompt_tokens"] = usage.get("prompt_tokens", "")
    if instants:
        gaps = [(b - a) * 1e3 for a, b in zip(instants, instants[1:], strict=False)]
        row["ttft_ms"] = (instants[0] - started + late) * 1e3
        row["e2el_ms"] = (instants[-1] - started) * 1e3
        row["itl_ms"] = " ".join(f"{gap:.4f}" for gap in gaps)
    return row


def watch(pauses: list[float]) -> None:
    """Note each time in which this program did not run."""
    while True:
        before = time.monotonic()
        time.sleep(0.02)  # between two looks at the clock
        late = time.monotonic() - before - 0.02
        if late > 0.05:
            pauses.append(late)


def gap_s(given: argparse.Namespace) -> float:
    """Until the next request of an open loop."""
    if given.arrival == "constant":
        return 1 / given.rate
    return random.expovariate(given.rate)


def main() -> None:
    parser = argparse.ArgumentParser()
    for name in ("--url", "--csv", "--flaw", "--arrival"):
        parser.add_argument(name, default="")
    for name in ("--requests", "--tokens", "--prompt-tokens", "--choices"):
        parser.add_argument(name, type=int, default=1)
    parser.add_argument("--concurrency", type=int, default=1)
    parser.add_argument("--rate", type=float, default=0.0)
    given = parser.parse_args()
    pauses: list[float] = []
    threading.Thread(target=watch, args=(pauses,), daemon=True).start()

    rows: list[dict[str, Any]] = []
    left = iter(range(given.requests))
    lock = threading.Lock()

    def user(once: bool = False) -> None:
        while True:
            with lock:
                number = next(left, None)
            if number is None:
                return
            words = given.prompt_tokens - (7 if given.flaw == "short" else 0)
            prompt = " ".join(f"w{number}-{place}" for place in range(words))
            body = {
                "model": "simulated",
                "messages": [{"role": "user", "content": prompt}],
                "stream": True,
            }
            body |= {
                "max_tokens": given.tokens,
                "stream_options": {"include_usage": True},
            }
            if given.choices > 1:
                body["n"] = given.choices
            rows.append(ask(given.url, body, given.flaw))
            if once:
                return

    users = [threading.Thread(target=user) for _ in range(given.concurrency)]
    if given.rate:
        users = [
            threading.Thread(target=user, args=(True,)) for _ in range(given.requests)
        ]
    due = time.monotonic()
    for each in users:
        if given.rate:
            due += gap_s(given)
            time.sleep(max(0.0, due - time.monotonic()))  # until it is due
        each.start()
    for each in users:
        each.join()
    with Path(given.csv).open("w", encoding="utf-8", newline="") as file:
        if pauses:
            file.write(f"# doubt = it did not run {len(pauses)} times\n")
        writer = csv.DictWriter(file, COLUMNS)
        writer.writeheader()
        writer.writerows(rows)


if __name__ == "__main__":
    main()
