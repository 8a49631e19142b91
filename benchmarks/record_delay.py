"""What `llama-load record` adds to a request: the same requests to a simulated server, directly and
through the recorder, in turns.

python -m benchmarks.record_delay [--requests 300] [--streams 8]

Prints the percentiles of the time to the first token of both ways, and what the recorder says of
its own delay. The difference of the two ways holds everything: the second connection, the wake-ups
of one more process, and the copy.
"""

from __future__ import annotations

import argparse
import json
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy as np

FIRST_TOKEN_MS = 20
COMMAND = [sys.executable, "-m", "llama_load.cli.main"]


def first_token_ms(port: int, tokens: int) -> float:
    """From the connection's start to the first event of a stream, which is read to its end."""
    body = json.dumps({"stream": True, "max_tokens": tokens, "messages": [{"role": "user", "content": "x " * 2000}]}).encode()  # fmt: skip
    head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    started = time.perf_counter()
    first = None
    with socket.create_connection(("127.0.0.1", port), 20) as sock:
        sock.sendall(head.encode() + body)
        seen = b""
        while data := sock.recv(1 << 16):
            seen += data
            if first is None and b"content" in seen.partition(b"\r\n\r\n")[2]:
                first = time.perf_counter()
    assert first is not None, seen[:200]
    return (first - started) * 1000


def started(*words: str) -> tuple[subprocess.Popen[str], int]:
    process = subprocess.Popen([*COMMAND, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)  # fmt: skip
    assert process.stdout is not None
    line = process.stdout.readline()
    url = next(word for word in line.split() if word.startswith("http://"))
    return process, int(url.rstrip(";").rpartition(":")[2])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=300)
    parser.add_argument("--streams", type=int, default=8, help="other streams meanwhile, through the recorder")  # fmt: skip
    asked = parser.parse_args()
    folder = Path(tempfile.mkdtemp())
    server, port = started("serve", "--simulated", "--port", "0", "--first-token-ms", str(FIRST_TOKEN_MS), "--interval-ms", "10")  # fmt: skip
    recorder, through = started("record", "--to", f"http://127.0.0.1:{port}", "--port", "0", "--out", str(folder / "talk.jsonl"))  # fmt: skip
    ends = threading.Event()

    def others() -> None:
        while not ends.is_set():
            first_token_ms(through, 50)

    threads = [threading.Thread(target=others) for _ in range(asked.streams)]
    for thread in threads:
        thread.start()
    direct = []
    recorded = []
    for _ in range(asked.requests):
        direct.append(first_token_ms(port, 2))
        recorded.append(first_token_ms(through, 2))
    ends.set()
    for thread in threads:
        thread.join()
    recorder.send_signal(signal.SIGINT)
    _, said = recorder.communicate(timeout=60)
    server.terminate()
    print(
        f"TTFT of a first token after {FIRST_TOKEN_MS} ms, {asked.streams} other streams"
    )
    for name, values in (("direct", direct), ("recorded", recorded)):
        median, p99 = np.percentile(values, [50, 99])
        print(f"{name:>9}: median {median:.3f} ms, p99 {p99:.3f} ms")
    for line in said.splitlines():
        if line.startswith("Own delay"):
            print(line)


if __name__ == "__main__":
    main()
