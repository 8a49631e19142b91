"""`llama-load compare`: which of several set-ups is better, and whether it is so."""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from llama_load.cli.parser import Parser
from llama_load.cli.say import say
from llama_load.ground.errors import UsageError

if TYPE_CHECKING:
    from llama_load.analysis.comparison.compare import Comparison
    from llama_load.analysis.comparison.gates import GateResult

FORMATS = ("text", "md", "json", "html")


def add_compare(commands: argparse._SubParsersAction[Parser]) -> None:
    """Add the subcommand."""
    compare = commands.add_parser(
        "compare",
        help="compare runs: which differences are real, and which runs must not be ranked",
        description="Compare sides, the first of which is the base. A side is a run folder, a "
        "folder of run folders (repeats), a "
        "summary.json, or a result JSON of vllm bench serve or vllm-bench. Several, separated by "
        "commas, are repeats of one "
        "set-up. Without repeats nothing is proven.",
        examples={
            "Five runs of each side, taken in turns, as a gate in CI": "llama-load compare "
            "runs/before runs/after "
            "--gate p99_ttft_ms:+5%",
            "Repeats, listed or by a pattern, with labels": "llama-load compare q4=runs/a,runs/b "
            "q8='runs/q8-*'",
            "Results of vllm bench serve, as Markdown": "llama-load compare vllm.json llama.json "
            "--format md",
        },
    )
    compare.add_argument(
        "sides",
        nargs="+",
        metavar="[LABEL=]PATH[#STAGE][,…]",
        help="runs of one set-up; #STAGE is a stage of a run",
    )
    compare.add_argument(
        "--gate",
        action="append",
        default=[],
        metavar="KEY:+N%",
        help="exit with 1 if this metric is worse than the base's by over N %% with confidence, "
        "with 3 if that cannot be judged: "
        "p99_ttft_ms:+5%% or output_throughput:-5%% (repeatable)",
    )
    compare.add_argument(
        "--format",
        choices=FORMATS,
        default="text",
        help="text (default), md (Markdown), json, or html with charts (needs --output)",
    )
    compare.add_argument(
        "--output",
        type=Path,
        metavar="FILE",
        help="write to this file instead of the terminal",
    )
    compare.add_argument(
        "--llama-bench",
        type=Path,
        action="append",
        default=[],
        metavar="FILE",
        help="hold the servers' decode speed against the tests in this file of `llama-bench -o "
        "json` (repeatable)",
    )
    compare.set_defaults(run=_compare)


def _compare(arguments: argparse.Namespace) -> int:
    from llama_load.analysis.comparison.compare import compare
    from llama_load.analysis.comparison.gates import exit_code, parse_gate
    from llama_load.analysis.comparison.llama_bench import bench_tests
    from llama_load.analysis.comparison.sources import read_groups

    is_page = arguments.format == "html"
    if is_page and arguments.output is None:
        raise UsageError("--format html needs a file: add --output comparison.html")
    gates = [parse_gate(text) for text in arguments.gate]
    bench = []
    groups = read_groups(_ended(arguments.sides), with_samples=is_page)
    for file in arguments.llama_bench:
        bench += bench_tests(file)

    comparisons = []
    results: list[GateResult] = []
    for group in groups:
        comparison = compare(group.sides, gates, bench)
        if gates and len(comparison.sides) < 2:
            raise UsageError(
                "--gate needs two sides: the base, and what is held against it"
            )
        comparisons.append((group.title, comparison))
        results += comparison.gates

    _show(comparisons, arguments.format, arguments.output)
    return exit_code(results)


def _ended(sides: list[str]) -> list[str]:
    """The sides without runs that go on, such as `runs/*` names them."""
    ended = []
    for side in sides:
        if _goes_on(Path(side)):
            say(f"{side} is left out: its run goes on")
        else:
            ended.append(side)
    if not ended:
        raise UsageError("no run has ended yet; compare them when they have")
    return ended


def _goes_on(folder: Path) -> bool:
    """Whether it is a run folder that a process is writing."""
    from llama_load.run_folder import lock_folder
    from llama_load.run_folder.manifest import MANIFEST, RUNNING, read_manifest

    if not (folder / MANIFEST).is_file() or read_manifest(folder).end != RUNNING:
        return False
    lock = lock_folder(folder, wait_s=0)
    if lock is None:
        return True
    lock.release()
    return False


def _show(
    comparisons: list[tuple[str, Comparison]], style: str, file: Path | None
) -> None:
    import msgspec

    from llama_load.analysis.reports.comparison.comparison_text import (
        comparison_lines,
        comparison_markdown,
    )
    from llama_load.analysis.reports.comparison.result import comparisons_json
    from llama_load.outside.foreign_text import redacted
    from llama_load.run_folder import write_whole

    if style == "html":
        from llama_load.analysis.reports.comparison.comparison_page import (
            comparison_page,
        )

        text = comparison_page(comparisons)
    elif style == "json":
        encoded = msgspec.json.encode(comparisons_json(comparisons))
        text = msgspec.json.format(encoded, indent=1).decode() + "\n"
    elif style == "md":
        parts = []
        for title, comparison in comparisons:
            heading = f"## {title.capitalize()}\n\n" if title else ""
            parts.append(heading + comparison_markdown(comparison))
        text = "\n".join(parts)
    else:
        columns = shutil.get_terminal_size((80, 24)).columns if file is None else 80
        blocks = []
        for title, comparison in comparisons:
            lines = [f"== {title} =="] if title else []
            lines += comparison_lines(comparison, columns)
            blocks.append("\n".join(lines))
        text = "\n\n".join(blocks) + "\n"

    if file is None:
        print(text, end="")
    else:
        write_whole(file, redacted(text).encode())
        print(f"Written to {file}")
