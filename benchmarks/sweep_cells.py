"""What a cell of a sweep costs beside its requests: tests of llama-bench on a small model whose
server is kept.

python -m benchmarks.sweep_cells
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

TESTS = ("pp64", "pp128", "tg16", "tg32")
PLAN = """
servers: {{one: {{embedded: {{args: "-np 1 -c 4096"}}}}}}
load: {{tests: [{tests}]}}
repeats: 3
after-a-cell: keep
idle-s: 0
"""


def main() -> None:
    """Print the seconds of each cell after the first, and their mean."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "plan.yaml").write_text(PLAN.format(tests=", ".join(TESTS)))
        command = [
            sys.executable,
            "-m",
            "llama_load.cli.main",
            "sweep",
            str(folder / "plan.yaml"),
            "--out",
            str(folder / "sweep"),
        ]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        found = json.loads((folder / "sweep" / "sweep.json").read_bytes())
    took = [cell["took_s"] for cell in found["cells"]][1:]
    print("seconds a cell: " + " ".join(f"{seconds:.2f}" for seconds in took))
    print(f"mean {statistics.mean(took):.2f} of {len(took)}")


if __name__ == "__main__":
    main()
