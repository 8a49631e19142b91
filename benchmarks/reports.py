"""The end of a long run: bytes on disk, and time, CPU and memory of its report, compared with numpy
computing percentiles of the same ITLs; time and size of report.html.

Records come in batches of 4, as the master of a swarm writes them; the run is killed, so that its
report reads the journal.

.venv/bin/python -m benchmarks.reports
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa

from benchmarks.harness import ended, heading
from llama_load.run_folder import TABLE, Manifest, RunWriter, load_run
from llama_load.run_folder.observed.record import RequestRecord, to_batch
from llama_load.run_folder.reading import recover

GAPS, BATCH, MADE = 200, 4, 1000
REQUESTS = (100_000, 1_000_000)
PAGE_REQUESTS = (100, 10_000)
PATTERN = RequestRecord(
    request_id="", worker="w", user="u", workload="Chat", name="Chat", host="http://127.0.0.1:1", endpoint="chat", status="ok",
    started_mono_ns=0, first_token_mono_ns=0, ended_mono_ns=0, started_wall_ns=0, ttft_ms=100.0, tpot_ms=20.0, e2el_ms=4100.0,
    prompt_tokens=100, output_tokens=GAPS + 1, token_events=GAPS + 1, token_source="usage",
)  # fmt: skip
NUMPY = """
import sys
import numpy as np, pyarrow.parquet as pq
gaps = pq.read_table(sys.argv[1], columns=["itl_ms"])["itl_ms"].combine_chunks().flatten().to_numpy()
print(np.mean(gaps), np.median(gaps), np.std(gaps), np.percentile(gaps, 99))
"""
PAGE = """
import sys, time
from pathlib import Path
from llama_load.analysis.results.results import analyze
from llama_load.analysis.reports.block import block
from llama_load.run_folder import load_run
results = analyze(load_run(Path(sys.argv[1])))
text = block(results)
begun = time.perf_counter()
from llama_load.analysis.reports.html.page import html_page
page = html_page(results, text, "en")
print(f"{time.perf_counter() - begun:.2f} {len(page.encode()) / 1e6:.2f}")
"""


def fill(folder: Path, requests: int) -> None:
    """A killed run, with 2000 requests per second."""
    writer = RunWriter(
        folder,
        Manifest(
            "0",
            "20260101-000000",
            "Chat",
            [],
            {},
            "chat",
            "openai",
            None,
            num_prompts=requests,
        ),
    )
    rng = np.random.default_rng(0)
    for first in range(0, requests, MADE):
        index = np.arange(first, min(first + MADE, requests))
        pattern, started_ns = to_batch([PATTERN] * len(index)), index * 500_000
        gaps = pa.array(rng.normal(20, 2, len(index) * GAPS).astype(np.float32))
        own = {
            "request_id": pa.array(index.astype(str).tolist()),
            "prompt_index": pa.array(index),
            "started_mono_ns": pa.array(started_ns),
            "first_token_mono_ns": pa.array(started_ns + 100_000_000),
            "ended_mono_ns": pa.array(started_ns + 4_100_000_000),
            "itl_ms": pa.ListArray.from_arrays(
                np.arange(0, len(gaps) + 1, GAPS, dtype=np.int32), gaps
            ),
        }
        made = pa.record_batch(
            [own.get(name, pattern[name]) for name in pattern.schema.names],
            schema=pattern.schema,
        )
        for place in range(0, made.num_rows, BATCH):
            writer.append_batch(made.slice(place, BATCH))
    writer.release()


def row(name: str, requests: int, command: list[str]) -> None:
    """Run it and print its row."""
    begun_s = time.monotonic()
    status, usage, memory_mib = ended(
        subprocess.Popen(command, stdout=subprocess.DEVNULL).pid
    )
    took_s = time.monotonic() - begun_s
    if status not in (0, 3 << 8):  # 3: a killed run is incomplete
        raise SystemExit(f"{' '.join(command)} failed")
    tokens = requests * (GAPS + 1) / 1e6
    cpu_s = usage.ru_utime + usage.ru_stime
    print(
        f"| {requests} | {tokens:.0f} | {name} | {took_s:.1f} | {cpu_s:.1f} | {memory_mib:.0f} |",
        flush=True,
    )


def main() -> None:
    """Measure and print."""
    print(heading())
    sizes: list[str] = []
    print("| requests | tokens (million) | | time (s) | CPU (s) | memory (MiB) |")
    print("|---:|---:|---|---:|---:|---:|")
    for requests in REQUESTS:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name) / "run"
            fill(folder, requests)
            journal = (
                sum(file.stat().st_size for file in folder.glob("*.arrows")) / requests
            )
            report = [
                sys.executable,
                "-m",
                "llama_load.cli.main",
                "report",
                str(folder),
            ]
            row("llama-load report of the killed run", requests, report)
            row("llama-load report, again", requests, report)
            row(
                "numpy: percentiles of the gaps",
                requests,
                [sys.executable, "-c", NUMPY, str(folder / TABLE)],
            )
            sizes.append(
                f"| {requests} | {journal:.0f} | {(folder / TABLE).stat().st_size / requests:.0f} |"
            )
    print("\n| requests | journal (bytes a record) | requests.parquet |")
    print("|---:|---:|---:|", *sizes, sep="\n")
    print("\n| requests | report.html (s, with imports) | (MB) |")
    print("|---:|---:|---:|")
    for requests in PAGE_REQUESTS:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name) / "run"
            fill(folder, requests)
            recover(load_run(folder))
            made = subprocess.run(
                [sys.executable, "-c", PAGE, str(folder)],
                check=True,
                capture_output=True,
                text=True,
            )
            seconds, megabytes = made.stdout.split()
            print(f"| {requests} | {seconds} | {megabytes} |", flush=True)


if __name__ == "__main__":
    main()
