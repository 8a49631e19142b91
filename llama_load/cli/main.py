"""The `llama-load` command: one function per subcommand, which calls the package that does the
work."""

from __future__ import annotations

import argparse
import errno
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from llama_load.analysis.reports.formats import FORMATS, export
from llama_load.cli.bench_command import add_bench
from llama_load.cli.compare_command import add_compare
from llama_load.cli.datasets_command import add_datasets
from llama_load.cli.files_command import add_files
from llama_load.cli.parser import Parser, split_dashes
from llama_load.cli.prompts_command import add_prompts
from llama_load.cli.record_command import add_record
from llama_load.cli.run_command import add_run, split_run_words
from llama_load.cli.search_command import add_search
from llama_load.cli.serve_command import add_serve
from llama_load.cli.share_command import add_share
from llama_load.cli.sweep_command import add_sweep
from llama_load.cli.telemetry_command import add_telemetry
from llama_load.cli.tune_command import add_tune
from llama_load.cli.verify_command import add_verify
from llama_load.ground.bundled import bundled
from llama_load.ground.errors import LlamaLoadError, RunError, UsageError
from llama_load.ground.exit_codes import INTERRUPTED
from llama_load.ground.languages import LANGUAGES
from llama_load.ground.own_modules import module_command, module_environment
from llama_load.ground.version import __version__
from llama_load.outside.command_secrets import secrets_of_words
from llama_load.outside.foreign_text import keep_secret, printable_lines
from llama_load.outside.terminal import STARTED_AS, make_output_safe
from llama_load.tables.bounded_console import bounded_console

if TYPE_CHECKING:
    from llama_load.loadgen.options.flag import Flag

# Errors caused by the path the user gave, not by the disk.
NO_SUCH_PATH = (
    errno.ENOENT,
    errno.ENOTDIR,
    errno.EISDIR,
    errno.ENAMETOOLONG,
    errno.ELOOP,
)
# The commands that --help lists, in this order; `llama-load more` lists the others.
FIRST_COMMANDS = ("demo", "run", "serve", "capacity", "compare", "report")
DEMO_USERS = 8
# Enough for a p99 (100 values), as answers of at most so many tokens: a quarter of a minute.
DEMO_PROMPTS = 150
DEMO_TOKENS = 128
# Flags that set a load of their own, so that the demo's number of users and of prompts do not
# apply.
OTHER_LOADS = ("--stages", "--request-rate", "--trace")


def main(argv: Sequence[str] | None = None) -> int:
    """Run a subcommand; turn errors into one sentence on stderr and an exit code."""
    parser = command_parser()
    if "_ARGCOMPLETE" in os.environ:  # the shell asks for completions
        import argcomplete

        argcomplete.autocomplete(parser)
    make_output_safe()
    words = sys.argv[1:] if argv is None else argv
    keep_secret(secrets_of_words(words))  # before a fault in them is shown
    if not words:
        print(parser.format_help(), end="")
        return 0
    own, after_dashes = split_dashes(words)
    own, run_words = split_run_words(own)
    arguments, further = parser.parse_known_args(own)
    arguments.after_dashes = after_dashes
    arguments.run_words = run_words
    if further and arguments.run is not _demo:
        arguments.parser.error(f"unrecognized arguments: {' '.join(further)}")
    arguments.locust_args = further
    try:
        return _run_command(arguments, words)
    except LlamaLoadError as error:
        print(f"llama-load: {printable_lines(str(error))}", file=sys.stderr)
        return error.exit_code
    except OSError as error:  # a disk or file error without a more specific message
        place = f" {str(error.filename)[:100]}:" if error.filename else ""
        print(
            f"llama-load:{place} {error.strerror or error}; make room or check the path, then "
            "try again",
            file=sys.stderr,
        )
        return (
            UsageError.exit_code if error.errno in NO_SUCH_PATH else RunError.exit_code
        )
    except KeyboardInterrupt:
        return INTERRUPTED


def _run_command(arguments: argparse.Namespace, words: Sequence[str]) -> int:
    from llama_load.ground.blas_threads import load_numpy_without_threads
    from llama_load.loadgen.options.known_secrets import learn_secrets

    load_numpy_without_threads()
    learn_secrets(words)
    return int(arguments.run(arguments))


def command_parser() -> Parser:
    """The parser of the command, with all subcommands."""
    parser = Parser(
        prog="llama-load",
        description="Load tests for LLM servers, run by Locust.",
        examples={
            "A first run, without a server": "llama-load demo",
            "Your own server, 8 users, 64 questions": "llama-load run http://127.0.0.1:8080 -u 8 "
            "-n 64",
            "Examples of a subcommand": "llama-load report --help",
        },
    )
    parser.add_argument(
        "--version", action="version", version=f"llama-load {__version__}"
    )
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)

    demo = commands.add_parser(
        "demo",
        help="run a short load test against an embedded llama-server",
        description="Start an embedded llama-server with a small random model and send it "
        "ShareGPT questions; takes under a "
        "minute. Other flags are passed to Locust.",
        examples={
            "8 users, 150 requests": "llama-load demo",
            "Fewer of both": "llama-load demo -u 4 --num-prompts 16",
            "An open loop of 4 requests per second for 30 s": "llama-load demo --request-rate 4 "
            "-t 30s",
        },
    )
    demo.set_defaults(run=_demo)

    add_run(commands)
    add_serve(commands)
    add_telemetry(commands)
    calibrate = commands.add_parser(
        "calibrate",
        help="measure how many streams one worker carries on this machine, and how many workers "
        "a load needs",
        description="Send increasing loads to a simulated server on this machine and compare the "
        "measured times with its log. "
        "Takes some minutes; stop other programs first.",
        examples={
            "How much does one worker carry?": "llama-load calibrate",
            "How many workers do 2000 streams of 50 tokens/s need?": "llama-load calibrate --for "
            "2000x50",
        },
    )
    calibrate.add_argument(
        "--for",
        dest="load",
        default="",
        metavar="STREAMSxTOK/S",
        help="planned load, such as 2000x50: 2000 streams of 50 tokens/s",
    )
    calibrate.set_defaults(run=_calibrate)

    flags = commands.add_parser(
        "flags",
        help="the flags of a run that are used most; --all: every flag (locust --help does not "
        "show them)",
        examples={
            "The usual flags": "llama-load flags",
            "Which flags set the load?": "llama-load flags --all | grep -i rate",
        },
    )
    flags.add_argument(
        "--all", dest="all_flags", action="store_true", help="every flag, by topic"
    )
    flags.set_defaults(run=_flags)

    report = commands.add_parser(
        "report",
        help="write the reports of runs again, or print them in another format; also recovers a "
        "run that was killed",
        examples={
            "Write the reports of a run again": "llama-load report runs/20261121-203500-demo",
            "Add the records that a worker could not deliver": "llama-load report "
            "runs/20261121-203500-demo --add runs/spool-w1",
            "A row per request, for a spreadsheet": "llama-load report runs/20261121-203500-demo "
            "--format csv --output a.csv",
            "Chinese headings in report.md and report.html": "llama-load report --lang zh "
            "runs/20261121-203500-demo",
            "A picture of the first screen": "llama-load report runs/20261121-203500-demo "
            "--format png --output run.png",
            "A JSON object per request": "llama-load report runs/20261121-203500-demo --format "
            "jsonl | jq .ttft_ms",
            "llm-d's Benchmark Report": "llama-load report runs/20261121-203500-demo --format "
            "llm-d --output report.json",
            "Spans and histograms for OpenTelemetry": "llama-load report "
            "runs/20261121-203500-demo --push http://127.0.0.1:4318",
        },
    )
    report.add_argument(
        "runs", nargs="+", type=Path, metavar="RUN", help="a run folder"
    )
    report.add_argument(
        "--add",
        type=Path,
        action="append",
        default=[],
        metavar="SPOOL",
        help="add the records that a worker of this run could not deliver, from its spool folder",
    )
    report.add_argument(
        "--block",
        action="store_true",
        help="on a terminal, print the block of vllm bench serve with all checks, too",
    )
    report.add_argument(
        "--format",
        choices=FORMATS,
        help="print the run in this format instead: csv, jsonl or parquet (a row per request), "
        "json, md or txt (the report), "
        "svg or png (a picture of the first screen), llm-d (its Benchmark Report 0.2), aiperf "
        "and aiperf-requests (its "
        "profile_export_aiperf.json and profile_export.jsonl), github-smaller and github-bigger "
        "(latencies and rates for "
        "github-action-benchmark), otlp-traces and otlp-metrics (OpenTelemetry), mlperf (points "
        "and regions of MLPerf Endpoints; "
        "RUN is then a folder of runs, such as a search's)",
    )
    report.add_argument(
        "--lang",
        choices=LANGUAGES,
        help="language of the headings in report.md and report.html (default: as in the run)",
    )
    report.add_argument(
        "--output",
        type=Path,
        metavar="FILE",
        help="with --format: write to this file (default: stdout)",
    )
    report.add_argument(
        "--push",
        metavar="URL",
        help="send spans and histograms to this OpenTelemetry collector (OTLP over HTTP in "
        "JSON); OTEL_EXPORTER_OTLP_HEADERS has "
        "its key",
    )
    report.set_defaults(run=_report)

    runs = commands.add_parser(
        "runs",
        help="list run folders: date, label, server, headline figures, verdict",
        examples={
            "Runs in ./runs": "llama-load runs",
            "Runs in another folder": "llama-load runs /data/runs",
        },
    )
    runs.add_argument(
        "folder",
        nargs="?",
        type=Path,
        default=Path("runs"),
        metavar="FOLDER",
        help="where they are (default runs)",
    )
    runs.set_defaults(run=_runs)

    add_verify(commands)
    add_prompts(commands)
    add_compare(commands)
    add_share(commands)
    add_search(commands)
    add_bench(commands)
    add_sweep(commands)
    add_tune(commands)
    add_datasets(commands)
    add_record(commands)
    add_files(commands)
    _add_more(commands)
    return parser


def _add_more(commands: argparse._SubParsersAction[Parser]) -> None:
    """`llama-load more`, which lists the commands that --help leaves out from here on."""
    listed = {action.dest: action for action in commands._choices_actions}
    others = {
        name: action.help or ""
        for name, action in listed.items()
        if name not in FIRST_COMMANDS
    }
    more = commands.add_parser(
        "more",
        help=f"the other commands: {', '.join(others)}",
        examples={"What else is there?": "llama-load more"},
    )
    more.set_defaults(run=_more, others=others)
    of_more = commands._choices_actions[-1]
    commands._choices_actions[:] = [listed[name] for name in FIRST_COMMANDS] + [of_more]


def _more(arguments: argparse.Namespace) -> int:
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else 100
    widest = max(map(len, arguments.others))
    for name, what in arguments.others.items():
        label = f"{name:<{widest}}  "
        for line in textwrap.wrap(
            what,
            max(width, 40),
            initial_indent=label,
            subsequent_indent=" " * len(label),
        ):
            print(line)
    return 0


def _demo(arguments: argparse.Namespace) -> int:
    from llama_load.servers.kinds import ServerSpec
    from llama_load.servers.serving.launch import serving

    print(
        "Making a small random model and starting the embedded llama-server …",
        file=sys.stderr,
        flush=True,
    )
    with (
        tempfile.TemporaryDirectory(prefix="llama-load-") as folder,
        serving(ServerSpec(is_for_one_client=True), Path(folder)) as server,
    ):
        locustfile = str(bundled("locustfiles/sharegpt_chat.py"))
        command = module_command("locust", "-f", locustfile, "--headless")
        command += ["--host", server.url, "--loglevel", "WARNING", "--label", "demo"]
        if not any(word.startswith(OTHER_LOADS) for word in arguments.locust_args):
            command += ["-u", str(DEMO_USERS), "--num-prompts", str(DEMO_PROMPTS)]
            command += ["--max-tokens", str(DEMO_TOKENS)]
        command += arguments.locust_args
        typed = shlex.join(["llama-load", "demo", *arguments.locust_args])
        # Locust is in our process group and also receives Ctrl-C; we wait for its report. (Not
        # SIG_IGN: Locust would inherit it.)
        previous = signal.signal(signal.SIGINT, lambda *_: None)
        try:
            environment = module_environment({STARTED_AS: typed})
            return subprocess.call(command, env=environment)
        finally:
            signal.signal(signal.SIGINT, previous)


def _percent(share: float | None) -> str:
    return "" if share is None else f"{share:.0%}"


def _calibrate(arguments: argparse.Namespace) -> int:
    from llama_load.lab.calibrate import LIMITS_MS, calibrate, parse_load
    from llama_load.loadgen.preflight.calibration import TOK_PER_S, Step, save

    load = parse_load(arguments.load) if arguments.load else None
    print(
        f"Increasing numbers of {TOK_PER_S} tokens/s streams on one worker, with a simulated "
        "server (takes some minutes):"
    )

    def show_row(streams: str, rate: str, error: str, core: str, others: str) -> None:
        left = f"{streams:>8} {rate:>9} {error:>20}"
        print(f"{left} {core:>6} {others:>7}", flush=True)

    def show(step: Step) -> None:
        show_row(
            str(step.streams),
            str(step.streams * TOK_PER_S),
            f"{step.ttft_error_p99_ms:.2f}",
            _percent(step.core_busy),
            _percent(step.others_busy),
        )

    show_row("streams", "tokens/s", "TTFT error p99 (ms)", "core", "others")
    calibration = calibrate(show)
    for limit_ms in LIMITS_MS:
        streams = calibration.carried(limit_ms)
        print(
            f"{streams} streams ({streams * TOK_PER_S} tokens/s) per worker with a TTFT error "
            f"within {limit_ms:g} ms"
        )

    if load is not None:
        workers = calibration.workers_for(*load)
        streams, rate = load
        if workers:
            enough = f"need {workers} workers"
        else:
            enough = (
                "are too many for this machine: one worker did not carry even "
                f"{calibration.steps[0].streams} streams"
            )
        within = f"within {LIMITS_MS[-1]:g} ms"
        print(f"{streams} streams of {rate:g} tokens/s {within} {enough}")
        if workers and workers > (calibration.cores or 1):
            print(
                f"this machine has {calibration.cores} cores: use several machines, with "
                "--master and --worker"
            )
    print(f"Saved to {save(calibration)}; the preflight of runs uses it.")
    return 0


def _flags(arguments: argparse.Namespace) -> int:
    from rich.table import Table
    from rich.text import Text

    from llama_load.loadgen.options.flags import grouped

    console = bounded_console()
    console.print(
        "Flags for locust with a llama-load locustfile; defaults are in brackets. Each can also "
        "be set in the web UI, or in the "
        "environment as LLAMA_LOAD_NAME. Locust's own flags (locust --help) apply too, above all "
        "-u, -t and --host."
    )
    groups = grouped() if arguments.all_flags else _usual(grouped())
    widest = max(len(flag.name) for flags in groups.values() for flag in flags)
    for title, flags in groups.items():
        table = Table(box=None, padding=(0, 2, 0, 0), show_header=False)
        table.add_column(width=widest)
        for flag in flags:
            default = f" [{flag.default}]" if flag.default else ""
            table.add_row(
                Text(flag.name, "bold"), Text(flag.help_with_choices + default)
            )
        console.print(Text(f"\n{title}", "bold underline"))
        console.print(table)
    if not arguments.all_flags:
        console.print("\nllama-load flags --all lists the others.")
    return 0


def _usual(groups: Mapping[str, list[Flag]]) -> dict[str, list[Flag]]:
    """The flags that are used most, by topic; topics without any are left out."""
    from llama_load.loadgen.options.flags import USUAL

    usual = {}
    for title, flags in groups.items():
        chosen = [flag for flag in flags if flag.name in USUAL]
        if chosen:
            usual[title] = chosen
    return usual


def _report(arguments: argparse.Namespace) -> int:
    from llama_load.analysis.reports.again import report_again

    if arguments.add and len(arguments.runs) > 1:
        raise UsageError("--add adds a worker's records to one run; name only that run")
    if arguments.push is not None:
        return _push(arguments)
    if arguments.format is not None:
        if arguments.add or len(arguments.runs) > 1:
            raise UsageError(
                "--format prints one run, without --add; name only that run"
            )
        export(arguments.runs[0], arguments.format, arguments.output, arguments.lang)
        return 0
    if arguments.output is not None:
        raise UsageError(f"--output needs --format: which of {', '.join(FORMATS)}?")
    return max(
        report_again(path, arguments.add, arguments.lang, with_block=arguments.block)
        for path in arguments.runs
    )


def _push(arguments: argparse.Namespace) -> int:
    from llama_load.cli.otlp_push import push_run

    if arguments.format is not None or arguments.add:
        raise UsageError(
            "--push sends runs as they are; give it without --format and --add"
        )
    for path in arguments.runs:
        print(push_run(path, arguments.push))
    return 0


def _runs(arguments: argparse.Namespace) -> int:
    from llama_load.analysis.reports.run_list import run_lines, run_rows

    if not arguments.folder.is_dir():
        raise UsageError(
            f"there is no folder {arguments.folder}; give the folder that contains the run folders"
        )
    rows = run_rows(arguments.folder)
    if not rows:
        print(f"No run folder in {arguments.folder}.")
        return 0
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    for line in run_lines(rows, width):
        print(line)
    return 0


if __name__ == "__main__":
    sys.exit(main())
