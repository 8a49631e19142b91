"""The `llama-load` command: one function per subcommand, which calls the package that does the work."""

from __future__ import annotations

import argparse
import errno
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from llama_load.bundled import bundled
from llama_load.cli_parser import LARGEST_SEED, LONGEST_MS, MOST_REQUESTS, MOST_TOKENS, Parser, number, whole
from llama_load.errors import LlamaLoadError, RunError, UsageError
from llama_load.foreign_text import printable_lines
from llama_load.terminal import make_output_safe
from llama_load.version import __version__

if TYPE_CHECKING:
    from llama_load.workloads.counting import TokenCounter

# Errors caused by the path the user gave, not by the disk.
NO_SUCH_PATH = (errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.ENAMETOOLONG, errno.ELOOP)
DEMO_USERS = 8
DEMO_PROMPTS = 64


def main(argv: Sequence[str] | None = None) -> int:
    """Run a subcommand; turn errors into one sentence on stderr and an exit code."""
    make_output_safe()
    parser = _parser()
    arguments, further = parser.parse_known_args(argv)
    if further and arguments.run is not _demo:
        parser.error(f"unrecognized arguments: {' '.join(further)}")
    arguments.locust_args = further
    try:
        return int(arguments.run(arguments))
    except LlamaLoadError as error:
        print(f"llama-load: {printable_lines(str(error))}", file=sys.stderr)
        return error.exit_code
    except OSError as error:  # a disk or file error without a more specific message
        place = f" {str(error.filename)[:100]}:" if error.filename else ""
        print(f"llama-load:{place} {error.strerror or error}; make room or check the path, then try again", file=sys.stderr)
        return UsageError.exit_code if error.errno in NO_SUCH_PATH else RunError.exit_code
    except KeyboardInterrupt:
        return 130


def _parser() -> Parser:
    parser = Parser(
        prog="llama-load",
        description="Load tests for LLM servers. Locust runs the tests: "
        "locust -f locustfiles/sharegpt_chat.py --headless --host http://127.0.0.1:8080 -u 8 --num-prompts 64",
    )
    parser.add_argument("--version", action="version", version=f"llama-load {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)

    demo = commands.add_parser(
        "demo",
        help="run a short load test against an embedded llama-server",
        description="Start an embedded llama-server with a small random model and send it ShareGPT questions; takes under a "
        "minute. Other flags are passed to Locust, such as: llama-load demo -u 4 --num-prompts 16",
    )
    demo.set_defaults(run=_demo)

    serve = commands.add_parser("serve", help="start the embedded llama-server, or a simulated server with a known schedule")
    serve.add_argument("--host", default="127.0.0.1", help="address to listen on (default 127.0.0.1)")
    serve.add_argument("--port", type=whole(0, 65535), default=8080, help="port to listen on, 0 for a free one (default 8080)")
    serve.add_argument("--model", type=Path, help="a .gguf file (default: a small random model, generated on first use)")
    serve.add_argument(
        "--slots", type=whole(1, 10**4), help="slots: requests served at the same time (default 4; simulated: no limit)"
    )
    serve.add_argument(
        "--ctx-per-slot", type=whole(1, MOST_TOKENS), default=4096, help="context of a slot in tokens (default 4096)"
    )
    serve.add_argument("--threads", type=whole(1, 1024), default=1, help="number of compute threads (default 1)")
    serve.add_argument(
        "--api-key", default="", help="API key that requests must have; better in the environment as LLAMA_LOAD_SERVER_API_KEY"
    )
    serve.add_argument("--vision", action="store_true", help="add a small random vision projector, to accept images")
    serve.add_argument("--embeddings", action="store_true", help="serve /v1/embeddings instead of chat")
    serve.add_argument("--reranking", action="store_true", help="serve /v1/rerank instead of chat")
    serve.add_argument(
        "--simulated", action="store_true", help="no model: send tokens on a known schedule, for tests of timing and faults"
    )
    simulated = serve.add_argument_group("with --simulated")
    simulated.add_argument(
        "--first-token-ms",
        type=number(0, LONGEST_MS),
        default=100.0,
        help="time from getting a slot to the first token, ms (default 100)",
    )
    simulated.add_argument("--interval-ms", type=number(0, LONGEST_MS), default=20.0, help="time between tokens, ms (default 20)")
    simulated.add_argument(
        "--jitter-ms", type=number(0, LONGEST_MS), default=0.0, help="move every token by up to this time, ms (default 0)"
    )
    simulated.add_argument(
        "--tokens",
        type=whole(1, MOST_TOKENS),
        default=64,
        help="answer length in tokens if a request has no max_tokens (default 64)",
    )
    simulated.add_argument(
        "--lengths",
        default="asked",
        choices=("asked", "geometric"),
        help="geometric: draw answer lengths, mean --tokens; asked: use max_tokens (default asked)",
    )
    simulated.add_argument(
        "--merge", type=whole(1, MOST_TOKENS), default=1, help="tokens written to the socket together (default 1)"
    )
    simulated.add_argument(
        "--fault", default="", help="fault to inject: cut, reset, stall, error, garbage, no-finish, no-done, empty or status"
    )
    simulated.add_argument(
        "--fault-every", type=whole(1, MOST_REQUESTS), default=1, help="inject the fault into every n-th request (default 1: all)"
    )
    simulated.add_argument(
        "--fault-after", type=whole(0, MOST_TOKENS), default=0, help="tokens to send before the fault (default 0)"
    )
    simulated.add_argument("--status", type=whole(200, 599), default=500, help="HTTP status of the fault 'status' (default 500)")
    simulated.add_argument(
        "--stall-at-s", type=number(0, LONGEST_MS), default=0.0, help="seconds from the first request to the stall (default 0)"
    )
    simulated.add_argument(
        "--stall-s",
        type=number(0, LONGEST_MS),
        default=0.0,
        help="length of the stall in seconds: nothing is sent (default 0: no stall)",
    )
    simulated.add_argument(
        "--seed",
        type=whole(-LARGEST_SEED, LARGEST_SEED),
        default=0,
        help="random seed of the jitter and of drawn lengths (default 0)",
    )
    simulated.add_argument(
        "--cached-tokens",
        type=whole(-1, MOST_TOKENS),
        default=0,
        help="cached prompt tokens to report per prompt (default 0; -1: report none)",
    )
    simulated.add_argument("--log", type=Path, help="file for the log: one JSON line per request, with its receive and send times")
    serve.set_defaults(run=_serve)

    calibrate = commands.add_parser(
        "calibrate", help="measure how many streams one worker carries on this machine, and how many workers a load needs"
    )
    calibrate.add_argument(
        "--for", dest="load", default="", metavar="STREAMSxTOK/S", help="planned load, such as 2000x50: 2000 streams of 50 tokens/s"
    )
    calibrate.set_defaults(run=_calibrate)

    flags = commands.add_parser("flags", help="list the flags that llama-load adds to locust (locust --help does not show them)")
    flags.set_defaults(run=_flags)

    report = commands.add_parser("report", help="write the reports of runs again; also recovers a run that was killed")
    report.add_argument("runs", nargs="+", type=Path, metavar="RUN", help="a run folder")
    report.add_argument(
        "--add",
        type=Path,
        action="append",
        default=[],
        metavar="SPOOL",
        help="add the records that a worker of this run could not deliver, from its spool folder",
    )
    report.set_defaults(run=_report)

    runs = commands.add_parser("runs", help="list run folders: date, label, server, headline figures, verdict")
    runs.add_argument("folder", nargs="?", type=Path, default=Path("runs"), metavar="FOLDER", help="where they are (default runs)")
    runs.set_defaults(run=_runs)

    _add_datasets(commands)
    return parser


def _add_datasets(commands: argparse._SubParsersAction[Parser]) -> None:
    datasets = commands.add_parser(
        "datasets",
        help="list, fetch, inspect and make data sets",
        description="List the available data sets, fetch others, inspect one before a run, or generate one. "
        "Use one in a run with: locust -f locustfiles/sharegpt_chat.py --dataset-path PATH_OR_HF …",
    )
    actions = datasets.add_subparsers(title="actions", metavar="ACTION", required=True)

    listing = actions.add_parser(
        "list",
        help="list the available data sets",
        description="List the bundled samples and the data sets in Hugging Face's cache.",
    )
    listing.set_defaults(run=_datasets_list)

    fetch = actions.add_parser(
        "fetch",
        help="download a data set from the Hugging Face Hub",
        description="Download a data set into Hugging Face's cache, so that runs need no network. For chat it needs a "
        "column 'conversations' or 'messages', for vision a column of images.",
    )
    fetch.add_argument("name", metavar="hf:REPO[:split]", help="such as hf:OWNER/NAME or hf:OWNER/NAME:test (default train)")
    fetch.set_defaults(run=_datasets_fetch)

    inspect = actions.add_parser(
        "inspect",
        help="show turns, lengths, and how much fits a server's slots",
        description="Show the turns of a data set, the lengths of its prompts and answers, how many a run would use, and how many "
        "fit a slot. llama-server divides its context by its slots: -c 16384 with --parallel 4 leaves 4096 tokens per request "
        "for chat template, prompt and answer.",
    )
    inspect.add_argument("source", metavar="PATH_OR_HF", help="a JSON, JSONL or Parquet file, or hf:REPO[:split]")
    inspect.add_argument(
        "--tokenizer",
        type=Path,
        metavar="FILE",
        help="a tokenizer.json (or its folder) to count tokens with (default: an estimate)",
    )
    room = inspect.add_mutually_exclusive_group()
    room.add_argument(
        "--ctx-per-slot",
        type=whole(1, MOST_TOKENS),
        metavar="N",
        help="context of a slot in tokens (default 2048, 4096, 8192 and 16384)",
    )
    room.add_argument("--host", metavar="URL", help="use this server's context, chat template and token counts")
    inspect.add_argument(
        "--output-len", type=whole(1, MOST_TOKENS), metavar="N", help="answer length in tokens (default: the recorded answers')"
    )
    inspect.set_defaults(run=_datasets_inspect)

    make = actions.add_parser(
        "make",
        help="generate a data set, for trials without network",
        description="Generate random text in English and Chinese with log-normal lengths of the given means (in estimated tokens): "
        ".json in ShareGPT's layout, .jsonl as prompts for locustfiles/custom.py. The same seed gives the same file.",
    )
    make.add_argument("file", type=Path, metavar="FILE", help="the file to write, ending in .json or .jsonl")
    make.add_argument(
        "--conversations", type=whole(1, MOST_REQUESTS), default=200, metavar="N", help="number of conversations (default 200)"
    )
    make.add_argument("--turns", type=whole(1, 10**4), default=1, metavar="N", help="turns per conversation (default 1)")
    make.add_argument(
        "--input-len",
        type=whole(1, MOST_TOKENS),
        default=200,
        metavar="N",
        help="mean length of a question in tokens (default 200)",
    )
    make.add_argument(
        "--output-len",
        type=whole(1, MOST_TOKENS),
        default=200,
        metavar="N",
        help="mean length of an answer in tokens (default 200)",
    )
    make.add_argument("--seed", type=whole(-LARGEST_SEED, LARGEST_SEED), default=0, help="random seed (default 0)")
    make.set_defaults(run=_datasets_make)


def _demo(arguments: argparse.Namespace) -> int:
    from llama_load.serving.model_maker import ModelSize, cached_model
    from llama_load.serving.process import EmbeddedServer, embedded_llama_server

    print("Making a small random model and starting the embedded llama-server …", file=sys.stderr, flush=True)
    model = cached_model(ModelSize(), bundled("datasets/sharegpt_sample.json"))
    with (
        tempfile.TemporaryDirectory(prefix="llama-load-") as folder,
        embedded_llama_server(EmbeddedServer(model), Path(folder) / "server.log") as server,
    ):
        command = [sys.executable, "-m", "locust", "-f", str(bundled("locustfiles/sharegpt_chat.py")), "--headless"]
        command += ["--host", server.url, "-u", str(DEMO_USERS), "--num-prompts", str(DEMO_PROMPTS), "--loglevel", "WARNING"]
        command += ["--label", "demo", *arguments.locust_args]
        # Locust is in our process group and also receives Ctrl-C; we wait for its report. (Not SIG_IGN: Locust would inherit it.)
        previous = signal.signal(signal.SIGINT, lambda *_: None)
        try:
            return subprocess.call(command)
        finally:
            signal.signal(signal.SIGINT, previous)


def _serve(arguments: argparse.Namespace) -> int:
    try:
        socket.getaddrinfo(arguments.host, arguments.port)
    except (OSError, UnicodeError):
        raise UsageError(f"--host must be an address of this machine, such as 127.0.0.1, got {arguments.host!r}") from None
    return _serve_simulated(arguments) if arguments.simulated else _serve_embedded(arguments)


def _serve_embedded(arguments: argparse.Namespace) -> int:
    from llama_load.serving.model_maker import ModelSize, cached_model
    from llama_load.serving.process import SERVER_KEY, EmbeddedServer, free_port, refuse_other_than_gguf, refuse_taken
    from llama_load.serving.projector_maker import cached_projector

    model = arguments.model or cached_model(ModelSize(), bundled("datasets/sharegpt_sample.json"))
    refuse_other_than_gguf(model)
    refuse_taken(arguments.host, arguments.port)
    server = EmbeddedServer(
        model=model,
        host=arguments.host,
        slots=arguments.slots or 4,
        ctx_per_slot=arguments.ctx_per_slot,
        threads=arguments.threads,
        api_key=arguments.api_key or os.environ.get(SERVER_KEY, ""),
        embeddings=arguments.embeddings,
        reranking=arguments.reranking,
        projector=cached_projector(ModelSize().dim) if arguments.vision else None,
    )
    command = server.command(arguments.port or free_port(arguments.host))
    os.execve(command[0], command, os.environ | server.env)  # noqa: S606 - the server replaces this process, so it gets its signals and output


def _serve_simulated(arguments: argparse.Namespace) -> int:
    from llama_load.serving.simulated import SimulatedServer
    from llama_load.serving.simulated_schedule import FAULTS, Schedule

    if arguments.fault and arguments.fault not in FAULTS:
        raise UsageError(f"--fault must be one of {', '.join(FAULTS)}, got {arguments.fault!r}")
    schedule = Schedule(
        first_token_s=arguments.first_token_ms / 1e3,
        interval_s=arguments.interval_ms / 1e3,
        jitter_s=arguments.jitter_ms / 1e3,
        tokens=arguments.tokens,
        merge=arguments.merge,
        slots=arguments.slots or 0,
        fault=arguments.fault,
        fault_every=arguments.fault_every,
        fault_after=arguments.fault_after,
        status=arguments.status,
        seed=arguments.seed,
        lengths=arguments.lengths,
        cached_tokens=arguments.cached_tokens,
        stall_at_s=arguments.stall_at_s,
        stall_s=arguments.stall_s,
    )
    if arguments.log is not None:
        try:
            arguments.log.open("wb").close()
        except OSError as error:
            raise UsageError(f"--log {arguments.log} cannot be written: {error.strerror}") from None
    try:
        server = SimulatedServer(schedule, arguments.host, arguments.port, arguments.log)
    except OSError as error:
        raise UsageError(f"cannot listen on {arguments.host}:{arguments.port}: {error.strerror}; choose another --port") from None
    for each in (signal.SIGINT, signal.SIGTERM):
        signal.signal(each, lambda *_: server.stop())
    print(f"listening on http://{arguments.host}:{server.port}", flush=True)
    server.serve()
    return 0


def _calibrate(arguments: argparse.Namespace) -> int:
    from llama_load.experiments.calibrate import LIMITS_MS, calibrate, parse_load
    from llama_load.preflight.calibration import TOK_PER_S, Step, save

    load = parse_load(arguments.load) if arguments.load else None
    print(f"Increasing numbers of {TOK_PER_S} tokens/s streams on one worker, with a simulated server (takes some minutes):")
    print(f"{'streams':>8} {'tokens/s':>9} {'TTFT error p99 (ms)':>20} {'core':>6} {'others':>7}", flush=True)

    def show(step: Step) -> None:
        core, others = ("" if share is None else f"{share:.0%}" for share in (step.core_busy, step.others_busy))
        print(f"{step.streams:>8} {step.streams * TOK_PER_S:>9} {step.ttft_error_p99_ms:>20.2f} {core:>6} {others:>7}", flush=True)

    found = calibrate(show)
    for limit_ms in LIMITS_MS:
        streams = found.carried(limit_ms)
        print(f"{streams} streams ({streams * TOK_PER_S} tokens/s) per worker with a TTFT error within {limit_ms:g} ms")
    if load is not None:
        workers = found.workers_for(*load)
        enough = (
            f"need {workers} workers"
            if workers
            else f"are too many for this machine: one worker did not carry even {found.steps[0].streams} streams"
        )
        print(f"{load[0]} streams of {load[1]:g} tokens/s within {LIMITS_MS[-1]:g} ms {enough}")
        if workers and workers > (found.cores or 1):
            print(f"this machine has {found.cores} cores: use several machines, with --master and --worker")
    print(f"Saved to {save(found)}; the preflight of runs uses it.")
    return 0


def _flags(_: argparse.Namespace) -> int:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from llama_load.options.flags import FLAGS

    table = Table(box=None, padding=(0, 2, 0, 0), show_header=False)
    for flag in FLAGS:
        default = f" [{flag.default}]" if flag.default else ""
        table.add_row(Text(flag.name, "bold"), Text(flag.help_with_choices + default))
    console = Console()
    console.print(
        "Flags for locust with a llama-load locustfile; defaults are in brackets. Each can also be set in the web UI, or in the "
        "environment as LLAMA_LOAD_NAME:\n"
    )
    console.print(table)
    return 0


def _report(arguments: argparse.Namespace) -> int:
    from llama_load.reports.again import report_again

    if arguments.add and len(arguments.runs) > 1:
        raise UsageError("--add adds a worker's records to one run; name only that run")
    return max(report_again(path, arguments.add) for path in arguments.runs)


def _runs(arguments: argparse.Namespace) -> int:
    from llama_load.reports.layout import in_columns
    from llama_load.reports.run_list import COLUMNS, run_rows

    if not arguments.folder.is_dir():
        raise UsageError(f"there is no folder {arguments.folder}; give the folder that contains the run folders")
    rows = run_rows(arguments.folder)
    if not rows:
        print(f"No run folder in {arguments.folder}.")
        return 0
    for line in in_columns([COLUMNS, *rows], gap="  "):
        print(line)
    return 0


def _datasets_list(_: argparse.Namespace) -> int:
    from rich.console import Console
    from rich.filesize import decimal
    from rich.table import Table
    from rich.text import Text

    from llama_load.dataset_tools.catalogue import cached, hf_cache_folder, samples

    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    table.add_column("--dataset-path", overflow="fold")
    table.add_column("holds", justify="right", no_wrap=True)
    table.add_column("size", justify="right", no_wrap=True)
    from_the_hub = cached()
    for each in [*samples(), *from_the_hub]:
        table.add_row(Text(each.name), each.holds, decimal(each.size_bytes))
    console = Console()
    console.print(table)
    if not from_the_hub:
        none = f"No data set in Hugging Face's cache, {hf_cache_folder()}. To get one: llama-load datasets fetch hf:OWNER/NAME"
        console.print(Text("\n" + none))
    return 0


def _datasets_fetch(arguments: argparse.Namespace) -> int:
    from llama_load.dataset_tools.catalogue import fetch

    rows, columns = fetch(arguments.name)
    print(f"{arguments.name}: {rows:,} rows with the columns {', '.join(columns)}")
    return 0


def _datasets_inspect(arguments: argparse.Namespace) -> int:
    from rich.console import Console

    from llama_load.dataset_tools.inspection import CONTEXTS, inspect, report
    from llama_load.preflight.checks import GUESSED_TEMPLATE_TOKENS
    from llama_load.workloads.counting import EstimatedCounter, LocalCounter

    contexts: Sequence[int] = CONTEXTS if arguments.ctx_per_slot is None else [arguments.ctx_per_slot]
    overhead = GUESSED_TEMPLATE_TOKENS
    counter: TokenCounter = EstimatedCounter()
    if arguments.host is not None:
        server_context, overhead, counter = _probed(arguments.host)
        contexts = CONTEXTS if server_context is None else [server_context]
    if arguments.tokenizer is not None:
        counter = LocalCounter(arguments.tokenizer)
    with Console(stderr=True).status("Reading") as status:
        found = inspect(arguments.source, counter, output_len=arguments.output_len, tell=status.update)
    print(report(found, contexts, overhead), end="")
    return 0


def _probed(host: str) -> tuple[int | None, int, TokenCounter]:
    """From the server: context of a slot (None: not reported), tokens of the chat template, token counter."""
    from llama_load.preflight.checks import slot_budget
    from llama_load.targets.body import CHAT
    from llama_load.targets.probe import Probe, Wanted

    key = os.environ.get("LLAMA_LOAD_API_KEY")
    probe = Probe(Wanted(host, (("Authorization", f"Bearer {key}"),) if key else ()))
    target = probe.ask()
    budget = slot_budget([target], CHAT)
    return budget.context, budget.overhead, probe.counter()


def _datasets_make(arguments: argparse.Namespace) -> int:
    from llama_load.dataset_tools.generator import Recipe, make

    recipe = Recipe(arguments.conversations, arguments.turns, arguments.input_len, arguments.output_len, arguments.seed)
    made = make(arguments.file, recipe)
    print(f"{made} {'prompts' if arguments.file.suffix.lower() == '.jsonl' else 'conversations'} written to {arguments.file}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
