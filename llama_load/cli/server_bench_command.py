"""`llama-load server-bench`: llama.cpp's scripts/server-bench.py, with its flags and variables."""

from __future__ import annotations

import argparse
import shlex

from llama_load.cli.parser import MOST_REQUESTS, MOST_TOKENS, Parser, whole_between
from llama_load.errors import UsageError


def add_server_bench(commands: argparse._SubParsersAction[Parser]) -> None:
    """Add the subcommand."""
    bench = commands.add_parser(
        "server-bench",
        help="llama.cpp's scripts/server-bench.py: same flags, variables and figures",
        description="The same flags as scripts/server-bench.py; the server gets its flags from "
        "LLAMA_ARG_… in the environment. "
        "Figures are printed as there, with the verdict; charts are in the run folder's "
        "report.html.",
        examples={
            "A server that runs": "llama-load server-bench --path_server http://127.0.0.1:8080 "
            "--prompt_source rng-128-256 "
            "--n_prompts 64 --n_predict 64 --n_predict_min 32",
        },
    )
    bench.add_argument(
        "--path_server",
        default="llama-server",
        help="path of llama-server, or the URL of a server that runs",
    )
    bench.add_argument(
        "--path_log",
        default="server-bench-{port}.log",
        help="log of a server that is started",
    )
    bench.add_argument("--name", help="name of the run in reports and comparisons")
    bench.add_argument(
        "--prompt_source",
        default="rng-1024-2048",
        help="rng-MIN-MAX: random words of so many tokens (default rng-1024-2048); mmlu; or a "
        "file of JSON Lines",
    )
    bench.add_argument(
        "--n_prompts",
        type=whole_between(-1, MOST_REQUESTS),
        default=100,
        help="number of prompts (default 100)",
    )
    bench.add_argument(
        "--n_predict",
        type=whole_between(1, MOST_TOKENS),
        default=2048,
        help="most output tokens (default 2048)",
    )
    bench.add_argument(
        "--n_predict_min",
        type=whole_between(1, MOST_TOKENS),
        default=1024,
        help="fewest output tokens, for rng- only (default 1024)",
    )
    bench.add_argument(
        "--seed_offset",
        type=whole_between(-1, 2**31),
        default=0,
        help="seed of prompts and lengths (default 0)",
    )
    bench.set_defaults(run=_bench)


def _bench(arguments: argparse.Namespace) -> int:
    from llama_load.analysis.results import analyze
    from llama_load.lab.server_bench.server_bench import Bench, server_bench

    if arguments.n_prompts == 0:
        raise UsageError(
            "--n_prompts must be 1 or more, or -1 for all questions of mmlu"
        )
    values = {name: getattr(arguments, name) for name in Bench.__dataclass_fields__}
    typed = ["llama-load", "server-bench", "--path_server", arguments.path_server]
    run = server_bench(Bench(**values), shlex.join(typed))
    results = analyze(run)
    print(f"Verdict: {results.verdict.headline}\nRun folder: {run.path}")
    return results.exit_code
