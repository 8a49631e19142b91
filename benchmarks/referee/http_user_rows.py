"""Locust's HttpUser with benchmarks/http_user.py, a plain locustfile as most people write it. It has
no summary of tokens: its figures are those of the locustfile.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks.referee.rows import Row, arguments_of, write_rows

LOCUSTFILE = Path(__file__).resolve().parents[1] / "http_user.py"
COLUMNS = ("request_id", "ttft_ms", "tpot_ms", "e2el_ms", "itl_ms")


def main() -> int:
    """The exit code of Locust."""
    given = arguments_of(__doc__ or "")
    raw = given.csv.with_suffix(".json")
    streams = str(given.streams)
    command = [str(given.programs / "locust"), "--headless", "--loglevel", "ERROR"]
    command += ["-f", str(LOCUSTFILE), "--host", given.url, "--only-summary"]
    command += ["-u", streams, "-r", streams]
    environment = {
        **os.environ,
        "BENCH_OUT": str(raw),
        "BENCH_REQUESTS": str(given.requests),
        "BENCH_TOKENS": str(given.tokens),
    }
    code = subprocess.run(command, env=environment, check=False).returncode
    write_rows(given.csv, COLUMNS, rows_of(raw))
    return code


def rows_of(path: Path) -> Sequence[Row]:
    """The requests of the locustfile's result."""
    return [_row(each) for each in json.loads(path.read_text())["rows"]]


def _row(request: Mapping[str, object]) -> Row:
    gaps = request["itl_ms"]
    ttft_ms = request["ttft_ms"]
    assert isinstance(gaps, list)
    assert isinstance(ttft_ms, float)
    decode_ms = sum(gaps)
    return {
        "request_id": request["request_id"],
        "ttft_ms": ttft_ms,
        "tpot_ms": decode_ms / len(gaps) if gaps else "",
        "e2el_ms": ttft_ms + decode_ms,
        "itl_ms": " ".join(map(str, gaps)),
    }


if __name__ == "__main__":
    sys.exit(main())
