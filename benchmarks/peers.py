"""llama-load compared with other load generators, each in its own virtual environment, on a known token schedule.

    make bench-peers              # vllm bench serve, aiperf, guidellm; 64 and 400 streams of 50 tokens/s

Each tool sends 2 x streams requests at a concurrency of `streams`. TTFT and ITL are the tool's own figures; the truth is the
simulated server's log of the same run. CPU is the tool's user and system time, including start-up and report.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.harness import Bench, bench, heading, pair

HERE = Path(__file__).resolve().parent
TOKENS = 200
PROMPT_TOKENS = 40


@dataclass(frozen=True)
class Peer:
    """A tool: its command line for a bench, and where it writes (p50, p99) of TTFT and ITL in ms."""

    name: str
    command: Callable[[Bench, int, int], list[str]]
    read: Callable[[Path], tuple[tuple[float, float], tuple[float, float]]]
    env: dict[str, str]


def vllm(against: Bench, streams: int, requests: int) -> list[str]:
    return [
        *(_program("PEER_VLLM", "vllm"), "bench", "serve", "--base-url", against.server.url, "--backend", "openai-chat"),
        *("--endpoint", "/v1/chat/completions", "--model", "simulated", "--tokenizer", os.environ["PEER_TOKENIZER"]),
        *("--dataset-name", "random", "--random-input-len", str(PROMPT_TOKENS), "--random-output-len", str(TOKENS)),
        *("--num-prompts", str(requests), "--max-concurrency", str(streams), "--ignore-eos", "--metric-percentiles", "50,99"),
        *("--save-result", "--result-dir", str(against.folder), "--result-filename", "result.json"),
    ]


def read_vllm(folder: Path) -> tuple[tuple[float, float], tuple[float, float]]:
    result = json.loads((folder / "result.json").read_text())
    return (result["p50_ttft_ms"], result["p99_ttft_ms"]), (result["p50_itl_ms"], result["p99_itl_ms"])


def aiperf(against: Bench, streams: int, requests: int) -> list[str]:
    return [
        *(_program("PEER_AIPERF", "aiperf"), "profile", "--model", "simulated", "--url", against.server.url),
        *("--endpoint-type", "chat", "--streaming", "--tokenizer", os.environ["PEER_TOKENIZER"], "--ui-type", "none"),
        *("--concurrency", str(streams), "--request-count", str(requests), "--artifact-dir", str(against.folder / "aiperf")),
        *("--synthetic-input-tokens-mean", str(PROMPT_TOKENS), "--output-tokens-mean", str(TOKENS)),
        *("--extra-inputs", "ignore_eos:true"),
    ]


def read_aiperf(folder: Path) -> tuple[tuple[float, float], tuple[float, float]]:
    (file,) = (folder / "aiperf").rglob("profile_export_aiperf.json")
    result = json.loads(file.read_text())
    return tuple(_two(result[name]) for name in ("time_to_first_token", "inter_token_latency"))


def guidellm(against: Bench, streams: int, requests: int) -> list[str]:
    tokens = f"prompt_tokens={PROMPT_TOKENS},output_tokens={TOKENS}"
    return [
        *(_program("PEER_GUIDELLM", "guidellm"), "run", "--disable-console"),
        *("--backend", f"kind=openai_http,target={against.server.url},model=simulated"),
        *("--profile", f"kind=concurrent,streams={streams}", "--constraint", f"kind=max_requests,count={requests}"),
        *("--data", f"kind=synthetic_text,{tokens}", "--tokenizer", f"kind=hf_auto,model={os.environ['PEER_TOKENIZER']}"),
        *("--output", f"kind=json,path={against.folder / 'result.json'}"),
    ]


def read_guidellm(folder: Path) -> tuple[tuple[float, float], tuple[float, float]]:
    result = json.loads((folder / "result.json").read_text())
    metrics = result["benchmarks"][0]["metrics"]
    names = ("time_to_first_token_ms", "inter_token_latency_ms")
    return tuple(_two(metrics[name]["successful"]["percentiles"]) for name in names)


def ours(against: Bench, streams: int, requests: int) -> list[str]:
    return [
        *(sys.executable, "-m", "locust", "-f", str(HERE / "llama_load_user.py"), "--headless", "--host", against.server.url),
        *("-u", str(streams), "--num-prompts", str(requests), "--run-dir", str(against.folder / "run")),
        *("--metric-percentiles", "50,99", "--loglevel", "ERROR"),
    ]


def read_ours(folder: Path) -> tuple[tuple[float, float], tuple[float, float]]:
    result = json.loads((folder / "run" / "summary.json").read_text())
    return (result["p50_ttft_ms"], result["p99_ttft_ms"]), (result["p50_itl_ms"], result["p99_itl_ms"])


OFFLINE = {"HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1"}
PEERS = (
    Peer("vllm bench serve", vllm, read_vllm, OFFLINE),
    Peer("aiperf", aiperf, read_aiperf, {}),
    Peer("guidellm", guidellm, read_guidellm, OFFLINE),
    Peer("llama-load", ours, read_ours, {"BENCH_TOKENS": str(TOKENS), "BENCH_OUT": os.devnull}),
)


def _program(folder: str, name: str) -> str:
    if folder not in os.environ:
        raise SystemExit("run 'make bench-peers', which installs the other tools")
    return str(Path(os.environ[folder]) / "bin" / name)


def _two(found: dict[str, Any]) -> tuple[float, float]:
    return found["p50"], found["p99"]


def main() -> None:
    """Measure and print a Markdown table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--streams", type=int, nargs="+", default=[64, 400])
    parser.add_argument("--only", nargs="+", default=[peer.name for peer in PEERS])
    arguments = parser.parse_args()
    print(heading())
    print("| streams x 50 tok/s | tool | TTFT p50 / p99 (ms) | truth | ITL p50 / p99 (ms) | truth | CPU (s) | memory (MiB) |")
    print("|---:|---|---:|---:|---:|---:|---:|---:|")
    for streams in arguments.streams:
        for peer in PEERS:
            if peer.name not in arguments.only:
                continue
            with bench() as against:
                cost = against.run(peer.command(against, streams, streams * 2), peer.env)
                try:
                    ttft, itl = peer.read(against.folder)
                except (OSError, ValueError, KeyError) as error:
                    tail = (against.folder / "client.out").read_text(errors="replace")[-3000:]
                    raise SystemExit(f"{peer.name} left no result ({error!r}):\n{tail}") from None
                rows = [entry for entry in against.truth() if len(entry["sent_mono_ns"]) > 1]
                first = [(entry["sent_mono_ns"][0] - entry["received_mono_ns"]) / 1e6 for entry in rows]
                gaps = np.concatenate([np.diff(entry["sent_mono_ns"]) for entry in rows]) / 1e6
            cells = [str(streams), peer.name, *(f"{low:.1f} / {high:.1f}" for low, high in [ttft])]
            cells += [pair(first, "{:.1f}".format), f"{itl[0]:.1f} / {itl[1]:.1f}", pair(gaps, "{:.1f}".format)]
            print(f"| {' | '.join([*cells, f'{cost.cpu_s:.1f}', f'{cost.memory_mib:.0f}'])} |", flush=True)


if __name__ == "__main__":
    main()
