"""k6 (Grafana) without extensions, with k6.js: it reads whole answers, so that it has only the
end-to-end latency.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.referee.rows import Row, arguments_of, write_rows

SCRIPT = Path(__file__).resolve().with_name("k6.js")
PROMPT = "Hello " * 40
COLUMNS = ("request_id", "e2el_ms")


def main() -> int:
    """The exit code of k6."""
    given = arguments_of(__doc__ or "")
    points = given.csv.with_suffix(".json")
    load = {
        "executor": "shared-iterations",
        "vus": given.streams,
        "iterations": given.requests,
        "maxDuration": "5m",
    }
    command = [str(given.programs / "k6"), "run", "--quiet", "--no-usage-report"]
    command += ["--out", f"json={points}", str(SCRIPT)]
    environment = {
        **os.environ,
        "REFEREE_URL": given.url,
        "REFEREE_TOKENS": str(given.tokens),
        "REFEREE_PROMPT": PROMPT,
        "REFEREE_OPTIONS": json.dumps({"scenarios": {"referee": load}}),
    }
    code = subprocess.run(command, env=environment, check=False).returncode
    write_rows(given.csv, COLUMNS, rows_of(points))
    return code


def rows_of(path: Path) -> Sequence[Row]:
    """The requests of k6's points."""
    rows: list[Row] = []
    for line in path.read_bytes().splitlines():
        if b'"referee_e2el"' not in line or b'"Point"' not in line:
            continue
        data = json.loads(line)["data"]
        request = data["tags"]["request"]
        rows.append({"request_id": request, "e2el_ms": data["value"]})
    return rows


if __name__ == "__main__":
    sys.exit(main())
