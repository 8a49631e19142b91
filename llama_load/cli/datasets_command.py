"""`llama-load datasets`: list, fetch, inspect and generate data sets."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from llama_load.cli.parser import (
    LARGEST_SEED,
    MOST_REQUESTS,
    MOST_TOKENS,
    Parser,
    whole_between,
)
from llama_load.ground.errors import UsageError
from llama_load.tables.bounded_console import LEAST_LIVE_WIDTH, bounded_console

if TYPE_CHECKING:
    from llama_load.servers.counting import TokenCounter


def add_datasets(commands: argparse._SubParsersAction[Parser]) -> None:
    """Add the subcommand."""
    datasets = commands.add_parser(
        "datasets",
        help="list, fetch, inspect and make data sets",
        description="List the available data sets, fetch others, inspect one before a run, or "
        "generate one. "
        "Use one in a run with: llama-load run --dataset-path PATH_OR_HF …",
    )
    actions = datasets.add_subparsers(title="actions", metavar="ACTION", required=True)

    listing = actions.add_parser(
        "list",
        help="list the available data sets",
        description="List the bundled samples and the data sets in Hugging Face's cache.",
        examples={"List them": "llama-load datasets list"},
    )
    listing.set_defaults(run=_datasets_list)

    fetch = actions.add_parser(
        "fetch",
        help="download a data set from the Hugging Face Hub",
        description="Download a data set into Hugging Face's cache, so that runs need no "
        "network. For chat it needs a "
        "column 'conversations' or 'messages', for vision a column of images.",
        examples={
            "Then use it with --dataset-path hf:OWNER/NAME": "llama-load datasets fetch "
            "hf:OWNER/NAME:test"
        },
    )
    fetch.add_argument(
        "name",
        metavar="hf:REPO[:split]",
        help="such as hf:OWNER/NAME or hf:OWNER/NAME:test (default train)",
    )
    fetch.set_defaults(run=_datasets_fetch)

    inspect = actions.add_parser(
        "inspect",
        help="show turns, lengths, and how much fits a server's slots",
        description="Show the turns of a data set, the lengths of its prompts and answers, how "
        "many a run would use, and how many "
        "fit a slot. llama-server divides its context by its slots: -c 16384 with --parallel 4 "
        "leaves 4096 tokens per request "
        "for chat template, prompt and answer.",
        examples={
            "How much of a file fits usual slots?": "llama-load datasets inspect talks.json",
            "How much fits this server?": "llama-load datasets inspect hf:OWNER/NAME --host "
            "http://127.0.0.1:8080",
        },
    )
    inspect.add_argument(
        "source",
        metavar="PATH_OR_HF",
        help="a JSON, JSONL or Parquet file, or hf:REPO[:split]",
    )
    inspect.add_argument(
        "--tokenizer",
        type=Path,
        metavar="FILE",
        help="a tokenizer.json (or its folder) to count tokens with (default: an estimate)",
    )
    room = inspect.add_mutually_exclusive_group()
    room.add_argument(
        "--ctx-per-slot",
        type=whole_between(1, MOST_TOKENS),
        metavar="N",
        help="context of a slot in tokens (default 2048, 4096, 8192 and 16384)",
    )
    room.add_argument(
        "--host",
        metavar="URL",
        help="use this server's context, chat template and token counts",
    )
    inspect.add_argument(
        "--output-len",
        type=whole_between(1, MOST_TOKENS),
        metavar="N",
        help="answer length in tokens (default: the recorded answers')",
    )
    inspect.set_defaults(run=_datasets_inspect)

    anonymize = actions.add_parser(
        "anonymize",
        help="make a trace without texts of a log of requests",
        description="Make a trace of a log: the time, lengths and roles of each request, and "
        "numbers for blocks of 16 tokens, so that prompts that begin alike have the same first "
        "numbers. No text is in it. Logs are requests of OpenAI's API as JSON Lines "
        '({"messages", "timestamp", …}, alone or under "request" or "body", the answer under '
        '"response"), OpenTelemetry spans as OTLP/JSON, or rows of LiteLLM\'s spend log. Tokens '
        "come from the server at --host, which gets the texts and generates nothing, from a "
        "tokenizer.json, or from an estimate. Replay it with locustfiles/replay.py --trace.",
        examples={
            "With the tokens of your server": "llama-load datasets anonymize requests.jsonl "
            "--host http://127.0.0.1:8080",
            "Without a server": "llama-load datasets anonymize spans.json --tokenizer "
            "tokenizer.json",
        },
    )
    anonymize.add_argument(
        "log", type=Path, metavar="FILE", help="the log, JSON or JSON Lines"
    )
    anonymize.add_argument(
        "--out",
        type=Path,
        default=Path("trace.jsonl"),
        metavar="FILE",
        help="the file to write, which must not exist (default trace.jsonl)",
    )
    tokens = anonymize.add_mutually_exclusive_group()
    tokens.add_argument(
        "--host",
        metavar="URL",
        help="count tokens with this server's tokenizer and chat template",
    )
    tokens.add_argument(
        "--tokenizer",
        type=Path,
        metavar="FILE",
        help="a tokenizer.json to count tokens with (default: an estimate)",
    )
    anonymize.set_defaults(run=_datasets_anonymize)

    make = actions.add_parser(
        "make",
        help="generate a data set, for trials without network",
        description="Generate random text in English and Chinese with log-normal lengths of the "
        "given means (in estimated tokens): "
        ".json in ShareGPT's layout, .jsonl as prompts for locustfiles/custom.py. The same seed "
        "gives the same file.",
        examples={
            "200 conversations of 4 turns": "llama-load datasets make talks.json --turns 4",
            "Prompts of about 1000 tokens": "llama-load datasets make prompts.jsonl --input-len "
            "1000",
        },
    )
    make.add_argument(
        "file",
        type=Path,
        metavar="FILE",
        help="the file to write, ending in .json or .jsonl",
    )
    for flag, most, default, text in (
        ("--conversations", MOST_REQUESTS, 200, "number of conversations"),
        ("--turns", 10**4, 1, "turns per conversation"),
        ("--input-len", MOST_TOKENS, 200, "mean length of a question in tokens"),
        ("--output-len", MOST_TOKENS, 200, "mean length of an answer in tokens"),
    ):
        make.add_argument(
            flag,
            type=whole_between(1, most),
            default=default,
            metavar="N",
            help=f"{text} (default {default})",
        )
    make.add_argument(
        "--seed",
        type=whole_between(-LARGEST_SEED, LARGEST_SEED),
        default=0,
        help="random seed (default 0)",
    )
    make.set_defaults(run=_datasets_make)


def _datasets_list(_: argparse.Namespace) -> int:
    from rich.filesize import decimal
    from rich.table import Table
    from rich.text import Text

    from llama_load.lab.dataset_tools.catalogue import cached, hf_cache_folder, samples

    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="bold")
    table.add_column("data set", overflow="fold")
    table.add_column("holds", justify="right", overflow="fold")
    table.add_column("size", justify="right", overflow="fold")
    table.add_column("flag", overflow="fold")
    from_the_hub = cached()
    for sample in [*samples(), *from_the_hub]:
        size = decimal(sample.size_bytes)
        table.add_row(Text(sample.name), sample.holds, size, sample.flag)
    console = bounded_console()
    console.print(table)
    if not from_the_hub:
        none = (
            f"No data set in Hugging Face's cache, {hf_cache_folder()}. To get one: "
            "llama-load datasets fetch hf:OWNER/NAME"
        )
        console.print(Text("\n" + none))
    return 0


def _datasets_fetch(arguments: argparse.Namespace) -> int:
    from llama_load.lab.dataset_tools.catalogue import fetch

    rows, columns = fetch(arguments.name)
    print(f"{arguments.name}: {rows:,} rows with the columns {', '.join(columns)}")
    return 0


def _datasets_inspect(arguments: argparse.Namespace) -> int:

    from llama_load.lab.dataset_tools.inspection import CONTEXTS, inspect, report
    from llama_load.loadgen.preflight.slot_budget import GUESSED_TEMPLATE_TOKENS
    from llama_load.servers.counting import EstimatedCounter, LocalCounter

    contexts: Sequence[int] = (
        CONTEXTS if arguments.ctx_per_slot is None else [arguments.ctx_per_slot]
    )
    overhead = GUESSED_TEMPLATE_TOKENS
    counter: TokenCounter = EstimatedCounter()
    if arguments.host is not None:
        server_context, overhead, counter = _probed(arguments.host)
        contexts = CONTEXTS if server_context is None else [server_context]
    if arguments.tokenizer is not None:
        counter = LocalCounter(arguments.tokenizer)
    with bounded_console(stderr=True, least_width=LEAST_LIVE_WIDTH).status(
        "Reading"
    ) as status:
        inspection = inspect(
            arguments.source,
            counter,
            output_len=arguments.output_len,
            tell=status.update,
        )
    print(report(inspection, contexts, overhead), end="")
    return 0


def _probed(host: str) -> tuple[int | None, int, TokenCounter]:
    """From the server: context of a slot (None: not reported), tokens of the chat template, token
    counter."""
    from llama_load.loadgen.options.server_keys import environment_key_for
    from llama_load.loadgen.preflight.slot_budget import slot_budget
    from llama_load.servers.apis import CHAT
    from llama_load.servers.probe import Probe, ProbeSettings

    probe = Probe(ProbeSettings(host, environment_key_for(host)))
    target = probe.ask()
    budget = slot_budget([target], CHAT)
    return budget.context, budget.overhead, probe.counter()


def _datasets_anonymize(arguments: argparse.Namespace) -> int:
    from llama_load.loadgen.options.server_keys import environment_key_for
    from llama_load.outside.foreign_text import printable
    from llama_load.outside.plain_http import Session
    from llama_load.record.anonymized_log import anonymize
    from llama_load.servers.token_blocks import (
        EstimatedTokens,
        FileTokens,
        FirstThatCan,
        PromptTokens,
        ServerTokens,
    )

    tokens: PromptTokens = EstimatedTokens()
    if arguments.tokenizer is not None:
        tokens = FileTokens(arguments.tokenizer)
    elif arguments.host is not None:
        url = _server_url(arguments.host)
        session = Session(environment_key_for(url))
        server = ServerTokens(session, url.removesuffix("/v1"))
        tokens = FirstThatCan(server, tokens)
    for sentence in anonymize(arguments.log, arguments.out, tokens):
        print(printable(sentence))
    return 0


def _server_url(url: str) -> str:
    """Raises UsageError: it is none."""
    from llama_load.servers.address import parse_url

    try:
        return parse_url(url).url
    except ValueError as error:
        raise UsageError(f"--host: {error}") from None


def _datasets_make(arguments: argparse.Namespace) -> int:
    from llama_load.lab.dataset_tools.generator import Recipe, make

    recipe = Recipe(
        arguments.conversations,
        arguments.turns,
        arguments.input_len,
        arguments.output_len,
        arguments.seed,
    )
    made = make(arguments.file, recipe)
    is_of_prompts = arguments.file.suffix.lower() == ".jsonl"
    what = "prompts" if is_of_prompts else "conversations"
    print(f"{made} {what} written to {arguments.file}")
    return 0
