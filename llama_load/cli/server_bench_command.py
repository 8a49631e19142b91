"""`llama-load server-bench`: llama.cpp's scripts/server-bench.py and its server's k6 script, with their flags and variables."""

from __future__ import annotations

import argparse
import os
import shlex
from pathlib import Path

from llama_load.cli.parser import MOST_REQUESTS, MOST_TOKENS, Parser, whole
from llama_load.errors import UsageError

CUT_OFF = 1


def add_server_bench(commands: argparse._SubParsersAction[Parser]) -> None:
    """Add the subcommand."""
    bench = commands.add_parser(
        "server-bench",
        help="llama.cpp's scripts/server-bench.py, or with --k6 the k6 script of its server: same flags, variables and figures",
        description="The same flags as scripts/server-bench.py; the server gets its flags from LLAMA_ARG_… in the environment. "
        "Figures and plots (prompt_time.png, gen_rate.png) are printed and written as there, with the verdict and a run folder. "
        "With --k6 the variables SERVER_BENCH_… of tools/server/bench and k6's options.",
        examples={
            "A server that runs": "llama-load server-bench --path_server http://127.0.0.1:8080 --prompt_source rng-128-256 "
            "--n_prompts 64 --n_predict 64 --n_predict_min 32",
            "As the k6 script": "llama-load server-bench --k6 --duration 10m --iterations 500 --vus 8",
        },
    )
    bench.add_argument("--path_server", default="llama-server", help="path of llama-server, or the URL of a server that runs")
    bench.add_argument("--path_log", default="server-bench-{port}.log", help="log of a server that is started")
    bench.add_argument("--path_db", type=Path, help="sqlite database that gets a row, table server_bench")
    bench.add_argument("--name", help="name in plots and database")
    bench.add_argument(
        "--prompt_source",
        default="rng-1024-2048",
        help="rng-MIN-MAX: random words of so many tokens (default rng-1024-2048); mmlu; or a file of JSON Lines",
    )
    bench.add_argument("--n_prompts", type=whole(-1, MOST_REQUESTS), default=100, help="number of prompts (default 100)")
    bench.add_argument("--n_predict", type=whole(1, MOST_TOKENS), default=2048, help="most output tokens (default 2048)")
    bench.add_argument(
        "--n_predict_min", type=whole(1, MOST_TOKENS), default=1024, help="fewest output tokens, for rng- only (default 1024)"
    )
    bench.add_argument("--seed_offset", type=whole(-1, 2**31), default=0, help="seed of prompts and lengths (default 0)")
    bench.add_argument("--k6", action="store_true", help="the k6 script of tools/server/bench instead")
    bench.add_argument("--duration", default="10m", help="with --k6: most time (default 10m)")
    bench.add_argument("--iterations", type=whole(1, MOST_REQUESTS), help="with --k6: number of requests (default: by time)")
    bench.add_argument("--vus", type=whole(1, 10**5), default=8, help="with --k6: users (default 8)")
    bench.set_defaults(run=_bench)


def _bench(arguments: argparse.Namespace) -> int:
    from llama_load.analysis.results import analyze

    typed = "llama-load server-bench"
    if arguments.k6:
        from llama_load.lab.server_bench.k6_script import MOST_CUT, k6_run, k6_settings

        settings = k6_settings(os.environ, arguments.duration, arguments.iterations, arguments.vus)
        run, cut = k6_run(settings, f"{typed} --k6")
        if cut >= MOST_CUT:
            print(f"{cut:.0%} of the answers ended with their length, where the script's threshold is {MOST_CUT:.0%}")
            return CUT_OFF
    else:
        from llama_load.lab.server_bench.server_bench import Bench, server_bench

        if arguments.n_prompts == 0:
            raise UsageError("--n_prompts must be 1 or more, or -1 for all questions of mmlu")
        values = {name: getattr(arguments, name) for name in Bench.__dataclass_fields__}
        run = server_bench(Bench(**values), shlex.join([*typed.split(), "--path_server", arguments.path_server]))
    results = analyze(run)
    print(f"Verdict: {results.verdict.headline}\nRun folder: {run.path}")
    return results.exit_code
