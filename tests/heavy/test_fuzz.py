"""Coverage-guided fuzzing: from what real servers sent, and from what every reader of foreign bytes
accepts."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from tests.searching import SECONDS, SEED
from tests.transcripts import errors, timed, titled

pytestmark = [pytest.mark.heavy, pytest.mark.search, pytest.mark.timeout(SECONDS + 300)]


def test_nothing_that_a_server_sends_raises(tmp_path: Path) -> None:
    """Catches an exception behind branches that only coverage guides to."""
    corpus = tmp_path / "corpus"
    corpus.mkdir()
    seeds = [
        bytes([0, 64]) + b"".join(step for step in timed(name).steps)
        for name in ("llama_stream", "vllm_stream")
    ]
    seeds += [
        bytes([0, 200]) + b"".join(capture.steps)
        for capture in titled("llama_cpp_server_rpc").values()
    ]
    seeds += [
        bytes([4, 255]) + line[6:].encode()
        for line in timed("llama_stream_no_usage").body.split("\n\n")
        if line
    ]
    seeds += [
        bytes([6, 0]) + body
        for _, body in [
            *errors("llama_errors").values(),
            *errors("vllm_errors").values(),
        ]
    ]
    for number, seed in enumerate(seeds):
        (corpus / str(number)).write_bytes(seed[:8192])
    fuzzed("tests.heavy.fuzz", corpus)


def test_no_bytes_of_others_raise(tmp_path: Path) -> None:
    """Catches the same in each reader of files and messages of others."""
    corpus = tmp_path / "corpus"
    corpus.mkdir()
    finds = run_module("tests.heavy.fuzz_readers", "--seeds", str(corpus))
    assert finds.returncode == 0, finds.stderr[-3000:]
    fuzzed("tests.heavy.fuzz_readers", corpus)


def fuzzed(module: str, corpus: Path) -> None:
    # Its own 2 GiB: Linux gives a program the peak of the process that started it.
    most_mib = 2048 + resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    limits = (
        f"-max_total_time={SECONDS:.0f}",
        f"-seed={SEED}",
        "-max_len=8192",
        f"-rss_limit_mb={most_mib}",
    )
    done = run_module(module, *limits, str(corpus))
    assert done.returncode == 0, done.stderr[-3000:]


def run_module(module: str, *words: str) -> subprocess.CompletedProcess[str]:
    root = Path(__file__).parents[2]
    return subprocess.run(
        [sys.executable, "-m", module, *words],
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
        cwd=root,
        env=os.environ | {"PYTHONPATH": str(root)},
    )
