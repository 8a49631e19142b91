"""The command `truth`."""

from __future__ import annotations

import argparse
import json
import os
import shlex
import signal
import sys
import tempfile
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

from truth import __version__
from truth.cases import SUITES, Case, chosen, read_cases
from truth.columns import columns_of
from truth.convert import PROGRAMS, convert
from truth.finding import LEVELS
from truth.foreign import escaped_json, markdown, printable, text_of, value_of
from truth.judge import Verdict, judge
from truth.junit import junit
from truth.log import read_log
from truth.page import page
from truth.problem import Problem
from truth.repeats import merged
from truth.report import as_markdown, as_object, as_text, badge
from truth.runner import Client, Runner
from truth.server.serving import start, stop
from truth.table import table
from truth.tools import NAMES, READING_FAILED, as_read, tool_named
from truth.worst import worst

PASSED, BELOW, WRONG_USAGE, VOID = 0, 1, 2, 3
KEPT = Path("truth-kept")
GITHUB_SUMMARY = (
    "GITHUB_STEP_SUMMARY"  # names a file, to which the job's summary is added
)
NOT_READ = 128 + 13  # as a shell says it of SIGPIPE
RUN_EXAMPLES = """examples:
  A client that is known:
    truth run --tool vllm --suite quick
  Any client, with rows in CSV:
    truth run --format csv --result {out}/rows.csv --suite quick --closed '-c {streams}' \\
      --open '--rate {rate}' -- my-bench --url {url} -n {requests} {load} --csv {out}/rows.csv
"""


def main(words: Sequence[str] | None = None) -> int:
    """0: all cases have the level; 1: one has not; 2: wrong usage; 3: none was judged."""
    given = list(sys.argv[1:] if words is None else words)
    command: list[str] = []
    if "--" in given:
        place = given.index("--")
        command = given[place + 1 :]
        given = given[:place]

    arguments = parser().parse_args(given)
    arguments.command = command
    run: Callable[[argparse.Namespace], int] = arguments.run
    try:
        code = run(arguments)
        sys.stdout.flush()
        return code
    except Problem as problem:
        print(f"truth: {printable(str(problem))}", file=sys.stderr)
        return WRONG_USAGE
    except BrokenPipeError:
        # Who reads has read enough, as `head` does. Python would write once more at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return NOT_READ


def parser() -> argparse.ArgumentParser:
    """All commands and their options."""
    top = argparse.ArgumentParser(prog="truth", description=__doc__)
    top.add_argument("--version", action="version", version=__version__)
    commands = top.add_subparsers(metavar="COMMAND", required=True)
    _add_suites(commands.add_parser("suites", help="list suites and cases"))
    _add_serve(
        commands.add_parser("serve", help="serve cases, for a client started by hand")
    )
    _add_judge(
        commands.add_parser("judge", help="judge a client's result by a server's log")
    )
    _add_run(
        commands.add_parser(
            "run",
            help="serve, run a client and judge it, case by case",
            epilog=RUN_EXAMPLES,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
    )
    _add_convert(commands.add_parser("convert", help="a client's command as another's"))
    _add_page(
        commands.add_parser("page", help="a page of the results of several clients")
    )
    return top


def _add_cases(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--cases",
        type=Path,
        default=SUITES,
        metavar="FOLDER",
        help="folder of suites (default: those that come with truth)",
    )
    parser.add_argument(
        "--suite",
        "--case",
        nargs="+",
        default=["quick"],
        metavar="NAME",
        help="suites or cases, such as timing or T1; all, quick (default)",
    )


def _add_outputs(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--level",
        default="",
        choices=tuple(LEVELS),
        help="the least level that is enough, for all cases (default: that of each case)",
    )
    parser.add_argument(
        "--output", choices=("table", "json", "markdown"), default="table"
    )
    parser.add_argument(
        "--save", type=Path, metavar="FILE", help="write JSON to this file, too"
    )
    parser.add_argument(
        "--badge", type=Path, metavar="FILE", help="write a badge for shields.io"
    )
    parser.add_argument(
        "--junit", type=Path, metavar="FILE", help="write JUnit XML for CI"
    )
    parser.add_argument("--client-name", default="", help="for the report")
    parser.add_argument("--client-version", default="", help="for the report")


def _add_suites(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--cases", type=Path, default=SUITES, metavar="FOLDER")
    parser.add_argument(
        "--norms", action="store_true", help="with norm and reason of each case"
    )
    parser.set_defaults(run=suites)


def _add_serve(parser: argparse.ArgumentParser) -> None:
    _add_cases(parser)
    parser.add_argument(
        "--port", type=int, default=9100, help="of the first case (default 9100)"
    )
    parser.add_argument(
        "--logs", type=Path, default=Path("truth-logs"), metavar="FOLDER"
    )
    parser.set_defaults(run=serve)


def _add_judge(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("log", type=Path, metavar="LOG")
    parser.add_argument(
        "--client", type=Path, required=True, metavar="FILE", help="its result"
    )
    parser.add_argument("--format", required=True, choices=NAMES, metavar="NAME")
    parser.add_argument(
        "--case", default="", help="default: the one that the log names"
    )
    parser.add_argument("--cases", type=Path, default=SUITES, metavar="FOLDER")
    _add_outputs(parser)
    parser.set_defaults(run=judge_one)


def _add_run(parser: argparse.ArgumentParser) -> None:
    _add_cases(parser)
    parser.add_argument(
        "--tool",
        "--format",
        default="csv",
        choices=NAMES,
        metavar="NAME",
        help=", ".join(NAMES),
    )
    parser.add_argument(
        "--closed", default="", help="words for {load} in a closed loop"
    )
    parser.add_argument("--open", default="", help="words for {load} in an open loop")
    parser.add_argument(
        "--result", default="", help="where the client writes its result"
    )
    parser.add_argument(
        "--bin", type=Path, metavar="FOLDER", help="where its program lies"
    )
    parser.add_argument(
        "--keep",
        type=Path,
        nargs="?",
        const=KEPT,
        metavar="FOLDER",
        help=f"keep logs and results here (without a folder: {KEPT})",
    )
    parser.add_argument(
        "--timeout", type=float, default=180.0, help="seconds of a case"
    )
    parser.add_argument(
        "--runs",
        type=int,
        default=1,
        metavar="N",
        help="run each case so often, and give medians with the lowest and highest value",
    )
    _add_outputs(parser)
    parser.set_defaults(run=run, defaults=parser.get_default)


def _add_convert(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("text", metavar="COMMAND", help="in quotes")
    parser.add_argument("--to", required=True, choices=tuple(PROGRAMS), metavar="NAME")
    parser.add_argument("--folder", type=Path, default=Path(), help="for the result")
    parser.set_defaults(run=convert_one)


def _add_page(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "results",
        nargs="+",
        type=Path,
        help="files of --save; several of a client are a column",
    )
    parser.add_argument(
        "--to",
        type=Path,
        default=Path("truth.html"),
        metavar="FILE",
        help="a page, or a table of Markdown if it ends with .md",
    )
    parser.set_defaults(run=write_page)


def suites(arguments: argparse.Namespace) -> int:
    """A line per case."""
    for case in read_cases(arguments.cases):
        quick = "quick" if case.quick else ""
        print(f"{case.id:5}{case.suite:13}{quick:7}{case.title}")
        if arguments.norms:
            print(f"     {case.norm}\n     Why: {case.reason}\n")
    return PASSED


def serve(arguments: argparse.Namespace) -> int:
    """Until Ctrl-C; every case has its port."""
    cases = chosen(read_cases(arguments.cases), arguments.suite)
    arguments.logs.mkdir(parents=True, exist_ok=True)
    servers = []
    for place, case in enumerate(cases):
        log = (arguments.logs / f"{case.id}.jsonl").resolve()
        process, port = start(case.server, log, arguments.port + place, case.id)
        servers.append(process)
        print(
            f"{case.id:5}http://127.0.0.1:{port}  {asked(case)}  log {log}", flush=True
        )

    ended = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: ended.set())
    ended.wait()
    for process in servers:
        stop(process)
    return PASSED


def asked(case: Case) -> str:
    """What the client is to send, in words."""
    load = case.load
    text = f"{load.requests} requests of {load.prompt_tokens} + {load.tokens} tokens, "
    if load.streams:
        return text + f"{load.streams} in flight"
    return text + f"{load.rate_rps:g}/s, {load.arrival}"


def judge_one(arguments: argparse.Namespace) -> int:
    """A log and a result that are there."""
    log = read_log(arguments.log)
    name = arguments.case or str(log.server.get("case", ""))
    if not name:
        raise Problem("the log names no case: give --case")
    (case,) = chosen(read_cases(arguments.cases), [name])
    tool = tool_named(arguments.format)
    result = as_read(tool, arguments.client)
    try:
        verdict = judge(case, log, result)
    except READING_FAILED as error:
        reason = f"{type(error).__name__}: {error}"
        raise Problem(
            f"the log and the result cannot be compared ({reason})"
        ) from error
    return conclude([verdict], tool.title, arguments)


def run(arguments: argparse.Namespace) -> int:
    """Case by case."""
    cases = chosen(read_cases(arguments.cases), arguments.suite)
    client = Client(
        tool=tool_named(arguments.tool),
        command=arguments.command,
        closed=arguments.closed,
        open=arguments.open,
        result=arguments.result,
        programs=arguments.bin.resolve() if arguments.bin else None,
        timeout_s=arguments.timeout,
    )
    if arguments.runs < 1:
        raise Problem("--runs must be at least 1")
    with tempfile.TemporaryDirectory(prefix="truth-") as scratch:
        folder = (arguments.keep or Path(scratch)).resolve()
        repeats = [_run_aloud(client, cases, folder, n) for n in range(arguments.runs)]
    verdicts = [merged(of_a_case) for of_a_case in zip(*repeats, strict=True)]
    return conclude(verdicts, client.tool.title, arguments)


def _run_aloud(
    client: Client, cases: Sequence[Case], folder: Path, repeat: int
) -> list[Verdict]:
    """The first run lies in `folder` itself, each repeat in a folder in it."""
    runner = Runner(client, folder / f"repeat-{repeat}" if repeat else folder)
    verdicts: list[Verdict] = []
    for place, case in enumerate(cases, 1):
        where = f"{place}/{len(cases)} {case.id} {case.title}"
        print(f"{where} … ", end="", file=sys.stderr, flush=True)
        verdict = runner.verdict(case)
        print(verdict.word, file=sys.stderr, flush=True)
        verdicts.append(verdict)
    return verdicts


def conclude(
    verdicts: Sequence[Verdict], client: str, arguments: argparse.Namespace
) -> int:
    """Print and write what was asked for: the exit code."""
    name = arguments.client_name or client
    whole = as_object(verdicts, name, arguments.client_version)
    text = escaped_json(json.dumps(whole, indent=1, ensure_ascii=False)) + "\n"
    if arguments.output == "json":
        print(text, end="")
    elif arguments.output == "markdown":
        print(as_markdown(verdicts), end="")
    else:
        print(as_text(verdicts), end="")
        print(*worst_lines(verdicts, arguments), sep="\n", end="")
    if arguments.save:
        arguments.save.write_text(text, encoding="utf-8")
    if arguments.badge:
        arguments.badge.write_text(badge(verdicts), encoding="utf-8")
    if arguments.junit:
        arguments.junit.write_text(junit(verdicts, name), encoding="utf-8")
    if os.environ.get(GITHUB_SUMMARY):
        with Path(os.environ[GITHUB_SUMMARY]).open("a", encoding="utf-8") as file:
            file.write(f"### truth: {markdown(name)}\n\n{as_markdown(verdicts)}\n")

    judged = [verdict for verdict in verdicts if verdict.is_judged]
    if not judged:
        return VOID
    return PASSED if all(_enough(each, arguments.level) for each in judged) else BELOW


def worst_lines(
    verdicts: Sequence[Verdict], arguments: argparse.Namespace
) -> list[str]:
    """The worst findings, each with the command that shows it alone; none where all passed."""
    lines: list[str] = []
    for number, sentence in worst(verdicts):
        lines += [sentence, f"  alone: {alone(number, arguments)}"]
    return ["", "The worst:", *lines, ""] if lines else []


def alone(number: str, arguments: argparse.Namespace) -> str:
    """The command that runs this case alone and keeps what it leaves; without the client's command
    if it was judged by hand."""
    words = ["truth", "run", "--case", number, "--keep"]
    if arguments.run is not run:
        return shlex.join(words)
    for name in ("tool", "closed", "open", "result", "bin", "cases"):
        value = getattr(arguments, name)
        if value and value != arguments.defaults(name):
            words += [f"--{name}", str(value)]
    return shlex.join(
        [*words, "--", *arguments.command] if arguments.command else words
    )


def _enough(verdict: Verdict, level: str) -> bool:
    if not level:
        return verdict.passed
    return not verdict.failed and verdict.level >= LEVELS[level]


def convert_one(arguments: argparse.Namespace) -> int:
    """The commands on stdout, what still differs on stderr."""
    conversion = convert(arguments.text, arguments.to, arguments.folder.resolve())
    for command in conversion.commands:
        print(shlex.join(command))
    for difference in conversion.differences:
        print(f"differs: {difference}", file=sys.stderr)
    return PASSED


def write_page(arguments: argparse.Namespace) -> int:
    """A column per client."""
    results = []
    for path in arguments.results:
        try:
            results.append(value_of(text_of(path)))
        except (OSError, ValueError) as error:
            raise Problem(f"{path} cannot be read: {error}") from error
    try:
        columns = columns_of(results)
        text = table(columns) if arguments.to.suffix == ".md" else page(columns)
    except READING_FAILED as error:
        reason = f"{type(error).__name__}: {error}"
        raise Problem(f"a file is not one of --save ({reason})") from error
    arguments.to.write_text(text, encoding="utf-8")
    return PASSED
