"""`llama-load sweep` and `llama-load perplexity`."""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import TYPE_CHECKING

from llama_load.cli.parser import Parser, whole_between
from llama_load.cli.plan_question import add_yes, agree_to
from llama_load.cli.say import say
from llama_load.ground.errors import UsageError
from llama_load.ground.exit_codes import INTERRUPTED
from llama_load.ground.units import quantity
from llama_load.ground.version import __version__
from llama_load.outside.foreign_files import read_foreign
from llama_load.outside.foreign_text import printable

if TYPE_CHECKING:
    from llama_load.lab.sweep.cells import Cell
    from llama_load.lab.sweep.plan import Plan

SOME_FAILED = 1
NONE_RAN = 3


def add_sweep(commands: argparse._SubParsersAction[Parser]) -> None:
    """Add the subcommands."""
    sweep = commands.add_parser(
        "sweep",
        help="run a plan of servers, settings, loads and repeats, and compare them in one table",
        description="Run every cell of a plan: each server with each of its settings, each load, "
        "each repeat. A sweep that was "
        "interrupted continues when it is started again with the same --out.",
        examples={
            "A plan of your own": "llama-load sweep plan.yaml",
            "Which cells, and how long?": "llama-load sweep plan.yaml --dry-run",
            "A bundled plan with your own model": "llama-load sweep llama-bench --set "
            "model=qwen3-4b-q4_k_m.gguf",
            "Without a plan": "llama-load sweep --serve 'llama-server -m m.gguf -t {t} -ngl "
            "{ngl}' --vary t=1,2,4 --vary ngl=0,99 "
            "-- -f sharegpt_chat -u 8 --num-prompts 64",
        },
    )
    sweep.add_argument(
        "plan",
        nargs="?",
        help="a plan's file, or the name of a bundled plan (llama-load path lists them)",
    )
    sweep.add_argument(
        "--set",
        dest="sets",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a value of the plan's `set`; can be repeated",
    )
    sweep.add_argument(
        "--out",
        type=Path,
        help="folder of the sweep (default: sweeps/<time>-<plan>); an existing one is continued",
    )
    sweep.add_argument(
        "--dry-run",
        action="store_true",
        help="list the cells and the time they need; start nothing",
    )
    add_yes(sweep)
    sweep.add_argument(
        "--retry-failed",
        action="store_true",
        help="when continuing, also run the cells that failed",
    )
    sweep.add_argument(
        "--accept-changes",
        action="store_true",
        help="continue with a changed plan: keep the cells that are the same",
    )
    sweep.add_argument(
        "--serve",
        action="append",
        default=[],
        metavar="COMMAND",
        help="without a plan: a server's command or URL; {name} is replaced",
    )
    sweep.add_argument(
        "--vary",
        action="append",
        default=[],
        metavar="NAME=A,B,…",
        help="without a plan: values for {name}",
    )
    sweep.add_argument(
        "--repeats",
        type=whole_between(1, 1000),
        help="without a plan: runs of each cell (default 1)",
    )
    sweep.set_defaults(run=_sweep)

    perplexity = commands.add_parser(
        "perplexity",
        help="perplexity and bits per byte of a text, by a server or by llama-perplexity",
        description="Score a text with a server that reports log-probabilities of prompt tokens "
        "(vLLM, llama-cpp-python), or with "
        "llama.cpp's llama-perplexity. An API key is read from LLAMA_LOAD_API_KEY.",
        examples={
            "By a server": "llama-load perplexity --host http://127.0.0.1:8000",
            "By llama.cpp's program": "llama-load perplexity --binary llama-perplexity --model "
            "qwen3-4b-q4_k_m.gguf",
        },
    )
    perplexity.add_argument(
        "--host",
        default="",
        metavar="URL",
        help="the server; with --binary it only counts tokens",
    )
    perplexity.add_argument(
        "--text",
        default="",
        metavar="FILE",
        help="UTF-8 text to score (default: a bundled one of 8 kB)",
    )
    perplexity.add_argument(
        "--context",
        type=whole_between(8, 10**6),
        default=512,
        help="tokens of a window (default 512)",
    )
    perplexity.add_argument(
        "--stride",
        type=whole_between(1, 10**6),
        help="tokens scored per window (default: half of --context)",
    )
    perplexity.add_argument("--binary", default="", help="path of llama-perplexity")
    perplexity.add_argument(
        "--args",
        default="",
        help="with --binary: further flags of the program, such as --args '-ngl 99'",
    )
    perplexity.add_argument("--model", type=Path, help="with --binary: the .gguf file")
    perplexity.set_defaults(run=_perplexity)


def _sweep(arguments: argparse.Namespace) -> int:
    from llama_load.lab.search.run_search import search_cell
    from llama_load.lab.sweep.cells import expand
    from llama_load.lab.sweep.comparison import compare_cells, write_comparison
    from llama_load.lab.sweep.folder import DONE, open_folder
    from llama_load.lab.sweep.read_plan import plan_file
    from llama_load.lab.sweep.runner import Sweep, run_cells
    from llama_load.lab.sweep.sweep_progress import Progress

    plan, text, name = _plan_of_arguments(arguments)
    cells = expand(plan)
    if arguments.dry_run:
        return _dry_run(cells, arguments.out)
    if arguments.plan:
        agree_to(arguments, plan_file(arguments.plan), plan)
    out = arguments.out or Path("sweeps") / f"{time.strftime('%Y%m%d-%H%M%S')}-{name}"
    folder = open_folder(
        out, cells, text, __version__, accept_changes=arguments.accept_changes
    )
    sweep = Sweep(plan, cells, folder)
    pending = sweep.pending(retry_failed=arguments.retry_failed)
    say(
        f"{quantity(len(cells), 'cell')}, {len(cells) - len(pending)} already ended; folder {out}"
    )
    was_interrupted = False
    try:
        with Progress(sweep, pending) as progress:
            run_cells(
                sweep,
                progress,
                searcher=search_cell,
                retry_failed=arguments.retry_failed,
            )
    except KeyboardInterrupt:
        was_interrupted = True
    comparison = compare_cells(sweep)
    for line in write_comparison(comparison):
        print(line)
    folder.close()
    if was_interrupted:
        say(f"interrupted; continue with --out {out}")
        return INTERRUPTED

    ended = [folder.ended[cell.key] for cell in cells]
    done = [entry for entry in ended if entry.status == DONE]
    if not done:
        say(f"no cell gave a result; the first reason: {printable(ended[0].reason)}")
        return NONE_RAN
    if len(done) < len(ended) or any(entry.exit_code for entry in done):
        return SOME_FAILED
    return 0


def _plan_of_arguments(arguments: argparse.Namespace) -> tuple[Plan, bytes, str]:
    """The plan, its text and a name for its folder."""
    import yaml

    from llama_load.analysis.comparison.llama_bench import bench_tests
    from llama_load.lab.sweep.located import Faults, parse_yaml
    from llama_load.lab.sweep.read_plan import plan_file, plan_of, read_plan
    from llama_load.lab.sweep.short_form import plan_document

    if bool(arguments.plan) == bool(arguments.serve):
        raise UsageError(
            "llama-load sweep needs a plan or --serve, not both; llama-load sweep --help has "
            "examples of each"
        )
    if arguments.serve:
        if arguments.sets:
            raise UsageError(
                "--set replaces values of a plan; with --serve write them into the command"
            )
        document = plan_document(
            arguments.serve,
            arguments.vary,
            arguments.after_dashes,
            arguments.repeats or 1,
        )
        text = yaml.safe_dump(document, allow_unicode=True, sort_keys=False)
        faults = Faults("the plan made from --serve")
        return (
            plan_of(parse_yaml(text, faults.source, faults), {}, faults),
            text.encode(),
            "sweep",
        )
    if arguments.vary or arguments.repeats or arguments.after_dashes:
        raise UsageError(
            "--vary, --repeats and arguments of locust belong to --serve; write them into the plan"
        )
    sets = {}
    for setting in arguments.sets:
        name, is_set, value = setting.partition("=")
        if not is_set:
            raise UsageError(f"--set must be NAME=VALUE, got {setting!r}")
        sets[name] = value
    path = plan_file(arguments.plan)
    plan = read_plan(path, sets)
    for file in plan.llama_bench_files:
        # a bad file is refused before hours are spent on the cells
        bench_tests(Path(printable(file)))
    return plan, read_foreign(path), path.stem


def _dry_run(cells: list[Cell], out: Path | None) -> int:
    from llama_load.lab.sweep.folder import read_journal
    from llama_load.lab.sweep.time_needed import UNKNOWN, needed_text, planned_s
    from llama_load.tables.numbers import duration

    ended = read_journal(out) if out is not None else {}
    for number, cell in enumerate(cells, 1):
        seconds = planned_s(cell)
        if cell.key in ended:
            state = ended[cell.key].status
        elif seconds is None:
            state = "unknown time"
        else:
            state = duration(seconds)
        title = printable(cell.title)
        print(f"{number:>4}  {title}, repeat {cell.repeat}  ({state})")

    pending = [cell for cell in cells if cell.key not in ended]
    text = needed_text(pending, cells, ended)
    if UNKNOWN in text:
        text += " (give takes-s in the load)"
    print(f"{quantity(len(cells), 'cell')}, {len(pending)} to run: {text}")
    return 0


def _perplexity(arguments: argparse.Namespace) -> int:
    from llama_load.lab.perplexity.perplexity_servers import score_text
    from llama_load.lab.sweep.plan import PerplexityPlan
    from llama_load.lab.sweep.quality import by_binary, read_text
    from llama_load.loadgen.options.server_keys import environment_key_for
    from llama_load.servers.probe import ProbeSettings

    file, text = read_text(arguments.text)
    if arguments.binary:
        if arguments.model is None:
            raise UsageError("--binary needs --model, the path of a .gguf file")
        perplexity_plan = PerplexityPlan(
            arguments.text, arguments.context, None, arguments.binary, arguments.args
        )
        figures, reasons = by_binary(perplexity_plan, arguments.model, arguments.host)
        error = figures.get("perplexity_error")
        within = "" if error is None else f" ± {error:.4f}"
        print(f"Perplexity:    {figures['perplexity']:.4f}{within}")

        bits = figures.get("bits_per_byte")
        if bits is None:
            print(f"Bits per byte: NA: {reasons.get('bits_per_byte', '')}")
        else:
            print(f"Bits per byte: {bits:.4f}")
        return 0

    if not arguments.host:
        raise UsageError(
            "give --host, the URL of a vLLM or llama-cpp-python server, or --binary with --model"
        )
    stride = arguments.stride or arguments.context // 2
    score = score_text(
        ProbeSettings(arguments.host, environment_key_for(arguments.host)),
        text,
        arguments.context,
        stride,
    )
    bits = score.bits_per_byte
    print(f"Perplexity:    {score.perplexity:.4f}")
    print(f"Bits per byte: {'NA' if bits is None else f'{bits:.4f}'}")
    print(
        f"Scored:        {score.tokens} tokens, {score.bytes} bytes of {file.name}; windows of "
        f"{arguments.context}, stride {stride}"
    )
    return 0
