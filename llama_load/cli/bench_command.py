"""`llama-load bench`."""

from __future__ import annotations

import argparse
import shlex
import time
from pathlib import Path

from llama_load.cli.parser import LARGEST_SEED, Parser, number_between, whole_between
from llama_load.cli.say import say
from llama_load.ground.errors import UsageError
from llama_load.ground.exit_codes import INTERRUPTED

TIME_S = 300
LONGEST_S = 10**6
BLOCK = "bench.md"
MOST_DEPTH = 10**7
TTFT_S = 2.0
TOK_PER_S = 15.0


def add_bench(commands: argparse._SubParsersAction[Parser]) -> None:
    """Add the subcommand."""
    bench = commands.add_parser(
        "bench",
        help="how fast is this server, alone and for several users? A block to post",
        description="Measure prompt processing and generation at several depths of context, in "
        "llama-bench's words, then what 1, 2, 4, 8 and more users get at each, within five "
        "minutes. Needs no tokenizer and no file. What follows -- are flags of locust.",
        examples={
            "The server on this machine": "llama-load bench",
            "Another one, in ten minutes": "llama-load bench http://192.168.1.20:8080 "
            "--max-time 600",
            "Other objectives": "llama-load bench http://127.0.0.1:8080 --ttft 1 --speed 30",
            "Start the server": "llama-load bench --serve 'llama-server -m m.gguf -np 4'",
            "Which of two is faster?": "llama-load bench --compare a.md b.md",
        },
    )
    bench.add_argument(
        "url",
        nargs="?",
        default="",
        metavar="URL",
        help="the server (default: the one on the usual ports of this machine)",
    )
    bench.add_argument(
        "--serve",
        default="",
        metavar="COMMAND",
        help="start the server by this command",
    )
    bench.add_argument(
        "--max-time",
        type=number_between(60, LONGEST_S),
        default=TIME_S,
        metavar="SECONDS",
        help=f"for all runs together (default {TIME_S})",
    )
    bench.add_argument(
        "--depths",
        default="0,4096,16384,32768",
        metavar="TOKENS",
        help="depths of context (default 0,4096,16384,32768: those that a slot has room for)",
    )
    bench.add_argument(
        "--ttft",
        type=number_between(0.001, 3600),
        default=TTFT_S,
        metavar="SECONDS",
        help=f"users are served whose first token comes within this time (default {TTFT_S:g})",
    )
    bench.add_argument(
        "--speed",
        type=number_between(0.01, 1e6),
        default=TOK_PER_S,
        metavar="TOK/S",
        help=f"and the others at this speed (default {TOK_PER_S:g})",
    )
    bench.add_argument(
        "--seed",
        type=whole_between(0, LARGEST_SEED),
        help="seed of the prompts (default: by the clock, so that no server has them cached)",
    )
    bench.add_argument(
        "--out", type=Path, help="folder of the runs (default: benches/<time>)"
    )
    bench.add_argument(
        "--compare",
        nargs=2,
        type=Path,
        metavar=("A", "B"),
        help="instead: compare two blocks, in files that may hold more text around them",
    )
    bench.set_defaults(run=_bench)


def _bench(arguments: argparse.Namespace) -> int:
    if arguments.compare:
        return _compare_blocks(*arguments.compare)

    from llama_load.cli.found_server import found_server
    from llama_load.lab.bench.bench_block import block_lines
    from llama_load.lab.bench.bench_session import BenchSettings
    from llama_load.lab.bench.run_bench import run_bench
    from llama_load.lab.bench.served import Objective
    from llama_load.lab.sweep.folder import write_text

    if arguments.url and arguments.serve:
        raise UsageError("give the server's URL or --serve, not both")
    serve = arguments.url or arguments.serve or found_server("llama-load bench")
    settings = BenchSettings(
        serve=serve,
        locust=arguments.after_dashes,
        objective=Objective(arguments.ttft, arguments.speed),
        time_s=arguments.max_time,
        seed=int(time.time()) if arguments.seed is None else arguments.seed,
        depths=_depths_of_text(arguments.depths),
        command=_posted_command(arguments),
    )
    out = arguments.out or Path("benches") / time.strftime("%Y%m%d-%H%M%S")
    say(f"folder {out}; {arguments.max_time:g} s at most")
    try:
        result = run_bench(settings, out, say)
    except KeyboardInterrupt:
        say(f"interrupted; the runs that ended are in {out}")
        return INTERRUPTED

    lines = block_lines(result)
    write_text(out / BLOCK, "\n".join(lines) + "\n")
    print("\n".join(lines))
    say(f"the block above is {out / BLOCK}; its runs are in {out / 'runs'}")
    return 0


def _depths_of_text(text: str) -> list[int]:
    """UsageError: not numbers of tokens."""
    try:
        depths = sorted({int(word) for word in text.split(",")})
    except ValueError:
        depths = [-1]
    if depths[0] < 0 or depths[-1] > MOST_DEPTH:
        raise UsageError(
            f"--depths must be numbers of tokens, such as 0,4096,16384, got {text!r}"
        )
    return depths


def _posted_command(arguments: argparse.Namespace) -> str:
    """The command without the server's address, which nobody else needs to know."""
    words = ["llama-load", "bench", "URL"]
    if arguments.max_time != TIME_S:
        words += ["--max-time", f"{arguments.max_time:g}"]
    if arguments.depths != arguments.parser.get_default("depths"):
        words += ["--depths", arguments.depths]
    if arguments.ttft != TTFT_S:
        words += ["--ttft", f"{arguments.ttft:g}"]
    if arguments.speed != TOK_PER_S:
        words += ["--speed", f"{arguments.speed:g}"]
    return shlex.join(words)


def _compare_blocks(first: Path, second: Path) -> int:
    from llama_load.lab.bench.bench_block import read_block_file
    from llama_load.lab.bench.posted_comparison import compared_table
    from llama_load.tables import text_lines

    table = compared_table(read_block_file(first), read_block_file(second))
    if not table.rows:
        raise UsageError(
            f"{first} and {second} have no test in common; make both with the same --depths"
        )
    for line in text_lines(table):
        print(line)
    return 0
