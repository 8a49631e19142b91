"""`llama-load search` and `llama-load capacity`."""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import TYPE_CHECKING

from llama_load.analysis.statistics.carried_share import CARRIED_SHARE
from llama_load.cli.parser import LARGEST_SEED, Parser, number_between, whole_between
from llama_load.cli.say import say
from llama_load.ground.errors import UsageError
from llama_load.ground.exit_codes import INTERRUPTED

if TYPE_CHECKING:
    from llama_load.lab.search.state import SearchSettings

NOTHING_FOUND = 3
CONCURRENCY = "concurrency"
RATE = "rate"
VARIED = (CONCURRENCY, RATE)
PORTS_TEXT = "the usual ports of this machine"
# What a person notices: the start of an answer, and reading speed.
CAPACITY_GOALS = "ttft:2000 tpot:100"
MOST_USERS = 10**5
LONGEST_S = 10**7
MOST_REQUESTS = 10**8
PROBE_REQUESTS = 1500


def add_search(commands: argparse._SubParsersAction[Parser]) -> None:
    """Add the subcommands."""
    capacity = commands.add_parser(
        "capacity",
        help="how many users does this server serve well?",
        description=f"Search the number of users of whom {100 * CARRIED_SHARE:g} % of the "
        "requests get their first token within 2 "
        "s and further ones within 100 ms; --goodput sets other objectives. Without a URL it "
        f"looks for a server on {PORTS_TEXT}. What follows -- are flags of locust: workload, "
        "lengths.",
        examples={
            "The server on this machine": "llama-load capacity",
            "Another one": "llama-load capacity http://192.168.1.20:8080",
            "For half an hour at most": "llama-load capacity --max-time 1800",
            "Other objectives, requests per second": "llama-load capacity http://127.0.0.1:8080 "
            "--goodput ttft:500 --vary rate",
            "Start the server, long documents": "llama-load capacity --serve 'llama-server -m "
            "m.gguf -np 8' --goodput ttft:8000 -- -f long_document --document-tokens 4000",
        },
    )
    capacity.add_argument(
        "url",
        nargs="?",
        default="",
        metavar="URL",
        help=f"the server (default: the one on {PORTS_TEXT})",
    )
    capacity.add_argument(
        "--serve",
        default="",
        metavar="COMMAND",
        help="start the server by this command",
    )
    _add_goal(capacity)
    _add_common(capacity)
    capacity.set_defaults(run=_capacity)

    search = commands.add_parser(
        "search",
        help="capacity, under its old name and with its objectives required",
        description="Search the load at which a share of the requests meets all objectives. A "
        "search that was interrupted "
        "continues when it is started again with the same --out. What follows -- are flags of "
        "locust: workload, lengths.",
        examples={
            "Users within objectives": "llama-load search --serve http://127.0.0.1:8080 "
            "--goodput 'ttft:500 tpot:50'",
            "Requests per second of independent users": "llama-load search --serve "
            "http://127.0.0.1:8080 --vary rate "
            "--goodput ttft:500 --max-time 7200",
            "Start the server, long documents": "llama-load search --serve 'llama-server -m "
            "m.gguf -np 8' --goodput ttft:8000 "
            "-- -f long_document --document-tokens 4000",
            "An objective for each workload": "llama-load search --serve http://127.0.0.1:8080 "
            "--goodput 'document=ttft:8000 vision=ttft:3000' -- -f mixed",
        },
    )
    search.add_argument(
        "--serve",
        required=True,
        metavar="COMMAND|URL",
        help="the server: its URL, or the command to start it",
    )
    _add_goal(search, is_required=True)
    _add_common(search)
    search.set_defaults(run=_search)


def _add_goal(parser: Parser, *, is_required: bool = False) -> None:
    """What is varied, and what the requests must meet."""
    parser.add_argument(
        "--vary",
        choices=VARIED,
        default=CONCURRENCY,
        help="users (default), or requests per second",
    )
    parser.add_argument(
        "--goodput",
        action="append",
        default=[],
        required=is_required,
        metavar="OBJECTIVES",
        help="METRIC:MILLISECONDS, such as 'ttft:500 tpot:50'; WORKLOAD=METRIC:MILLISECONDS is "
        "one of a workload; can be repeated",
    )
    parser.add_argument(
        "--share",
        type=number_between(0.5, 0.999),
        default=CARRIED_SHARE,
        help=f"share of the requests that must meet all objectives (default {CARRIED_SHARE:g})",
    )
    parser.add_argument(
        "--seed",
        type=whole_between(0, LARGEST_SEED),
        default=0,
        help="seed of prompts and of the order of probes (default 0)",
    )
    parser.add_argument(
        "--probe-requests",
        type=whole_between(100, 10**6),
        default=PROBE_REQUESTS,
        help=f"with --vary rate: requests of a probe (default {PROBE_REQUESTS}, for which the "
        "interval was tested)",
    )


def _add_common(parser: Parser) -> None:
    parser.add_argument(
        "--out",
        type=Path,
        help="folder of the search (default: searches/<time>); an existing one is continued",
    )
    parser.add_argument(
        "--max-time",
        type=number_between(1, LONGEST_S),
        metavar="SECONDS",
        help="hard limit, starts of the server included",
    )
    parser.add_argument(
        "--max-requests",
        type=whole_between(1, MOST_REQUESTS),
        help="hard limit of requests",
    )
    parser.add_argument(
        "--max-users",
        type=whole_between(1, MOST_USERS),
        default=4096,
        help="try no more users (default 4096)",
    )


def _capacity(arguments: argparse.Namespace) -> int:
    from llama_load.cli.found_server import found_server, need_server

    url = arguments.url
    if url and arguments.serve:
        raise UsageError("give the server's URL or --serve, not both")
    url = url or arguments.serve or found_server("llama-load capacity")
    if not arguments.serve and not url.startswith(("http://", "https://")):
        raise UsageError(
            "llama-load capacity takes the URL of a server, such as http://127.0.0.1:8080, got "
            f"{url!r}; a command to start it is given with --serve"
        )
    if not arguments.serve:
        need_server(url)
    if arguments.goodput or arguments.vary != CONCURRENCY:
        return _run(
            arguments, _settings(arguments, url, arguments.goodput or [CAPACITY_GOALS])
        )
    say(
        f"{url}: how many users get 90 % of their first tokens within 2 s and the others within "
        "100 ms each?"
    )
    return _run(arguments, _settings(arguments, url, [CAPACITY_GOALS]))


def _search(arguments: argparse.Namespace) -> int:
    return _run(arguments, _settings(arguments, arguments.serve, arguments.goodput))


def _settings(
    arguments: argparse.Namespace, serve: str, goodput: list[str]
) -> SearchSettings:
    from llama_load.lab.search.search_probe import Goal
    from llama_load.lab.search.state import Budget, SearchSettings
    from llama_load.loadgen.options.objectives import parse_objectives

    return SearchSettings(
        vary=arguments.vary,
        serve=serve,
        locust=arguments.after_dashes,
        objectives=parse_objectives(goodput),
        goal=Goal(arguments.share, arguments.max_users, arguments.probe_requests),
        seed=arguments.seed,
        budget=Budget(arguments.max_time, arguments.max_requests),
    )


def _run(arguments: argparse.Namespace, settings: SearchSettings) -> int:
    from llama_load.lab.search.report import HTML, MARKDOWN, write_search
    from llama_load.lab.search.run_search import search

    out = arguments.out or Path("searches") / time.strftime("%Y%m%d-%H%M%S")
    say(f"folder {out}")
    try:
        answer = search(settings, out, say)
    except KeyboardInterrupt:
        say(f"interrupted; continue with --out {out}")
        return INTERRUPTED
    lines = write_search(answer, out, "Capacity")
    say(f"tables and charts: {out / HTML}, {out / MARKDOWN}")
    print(*lines, sep="\n")
    return NOTHING_FOUND if answer.capacity.value is None else 0
