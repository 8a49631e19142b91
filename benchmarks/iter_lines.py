"""How fast a stream of 50 tokens/s seems to be: to Locust's HttpUser with iter_lines, and to
llama-load.

    .venv/bin/python -m benchmarks.iter_lines

Tokens/s of one request are (tokens - 1) / (last token - first token). Without stream=True, requests
reads the whole answer before iter_lines begins: all lines then arrive together.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
from pathlib import Path

from locust.clients import HttpSession
from locust.event import EventHook

from benchmarks.harness import bench, heading

TOKENS = 200
REQUESTS = 5


def http_user(url: str, *, stream: bool) -> float:
    """Tokens/s as a task of an HttpUser computes them."""
    session = HttpSession(url, EventHook(), None)
    body = {
        "messages": [{"role": "user", "content": "Hello"}],
        "max_tokens": TOKENS,
        "stream": True,
    }
    response = session.post("/v1/chat/completions", json=body, stream=stream)
    stamps = []
    for line in response.iter_lines():
        if line.startswith(b"data: {"):
            choices = json.loads(line[6:])["choices"]
            if choices and choices[0]["delta"].get("content"):
                stamps.append(time.perf_counter())
    return (len(stamps) - 1) / (stamps[-1] - stamps[0])


def llama_load(url: str, folder: Path) -> float:
    """1000 / median TPOT of a run."""
    locustfile = (
        Path(__file__).resolve().parent.parent / "locustfiles" / "sharegpt_chat.py"
    )
    command = [
        sys.executable,
        "-m",
        "locust",
        "-f",
        str(locustfile),
        "--headless",
        "--host",
        url,
        "-u",
        "1",
        "--no-report-html",
    ]
    command += [
        "--num-prompts",
        str(REQUESTS),
        "--max-tokens",
        str(TOKENS),
        "--run-dir",
        str(folder / "run"),
    ]
    subprocess.run(command, cwd=folder, capture_output=True, check=False)
    return 1000 / float(
        json.loads((folder / "run" / "summary.json").read_text())["median_tpot_ms"]
    )


def main() -> None:
    """Measure and print."""
    print(heading())
    with bench("--first-token-ms", "100", "--interval-ms", "20") as server:
        url = server.server.url
        for stream in (False, True):
            speeds = [http_user(url, stream=stream) for _ in range(REQUESTS)]
            print(
                f"HttpUser, iter_lines, stream={stream}: {statistics.median(speeds):,.0f} tok/s"
            )
        print(f"llama-load: {llama_load(url, server.folder):,.1f} tok/s")


if __name__ == "__main__":
    main()
