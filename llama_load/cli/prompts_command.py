"""`llama-load prompts`: a conversation of a run, turn by turn."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from llama_load.cli.parser import Parser
from llama_load.ground.errors import UsageError

if TYPE_CHECKING:
    from llama_load.servers.token_blocks import ServerTokens


def add_prompts(commands: argparse._SubParsersAction[Parser]) -> None:
    """Add the subcommand."""
    prompts = commands.add_parser(
        "prompts",
        help="show a conversation of a run or recording turn by turn: cached prompt tokens, "
        "those that were processed again, and why",
        description="Show one conversation of a run or recording, a row per turn after the "
        "first: the tokens of its prompt, those that could have been cached (the prompt of the "
        "turn before), those that were, those that were processed again, what they cost, and the "
        "cause. Where a prompt does not begin with the one before, the texts are shown in which "
        "they differ, if they were kept (--save-texts, or a recording without --digest). Without "
        "--conversation it is the one of which most was processed again.",
        examples={
            "The conversation that cost most": "llama-load prompts runs/20261121-203500-demo",
            "Another one": "llama-load prompts runs/20261121-203500-demo --conversation mend",
            "Of a recording": "llama-load prompts talk.jsonl",
        },
    )
    prompts.add_argument(
        "run_or_recording",
        type=Path,
        metavar="RUN|RECORDING",
        help="a run folder, or the file of llama-load record (talk.jsonl)",
    )
    prompts.add_argument(
        "--conversation",
        metavar="ID",
        help="its id in the data set (column conversation of requests.parquet), or in the "
        "recording",
    )
    prompts.add_argument(
        "--host",
        metavar="URL",
        help="find the first token that differs with this server's tokenizer and chat template "
        "(key from LLAMA_LOAD_API_KEY); for runs with --save-texts",
    )
    prompts.set_defaults(run=_show_prompts)


def _show_prompts(arguments: argparse.Namespace) -> int:
    from llama_load.outside.foreign_text import printable_lines

    given = arguments.run_or_recording
    if given.suffix == ".jsonl":
        if arguments.host is not None:
            raise UsageError("--host is for runs: a recording has the tokens already")
        lines = _of_recording(given, arguments.conversation)
    else:
        lines = _of_run(given, arguments.conversation, arguments.host)
    for line in lines:
        print(printable_lines(line))
    return 0


def _of_run(folder: Path, conversation: str | None, host: str | None) -> Iterator[str]:
    from llama_load.analysis.reports.conversation_prompts import conversation_prompts
    from llama_load.run_folder import load_run

    server = None if host is None else _server_tokens(host)
    return conversation_prompts(load_run(folder), conversation, server)


def _server_tokens(host: str) -> ServerTokens:
    """UsageError: it is no URL."""
    from llama_load.loadgen.options.server_keys import environment_key_for
    from llama_load.outside.plain_http import Session
    from llama_load.servers.address import parse_url
    from llama_load.servers.token_blocks import ServerTokens

    try:
        url = parse_url(host).url
    except ValueError as error:
        raise UsageError(f"--host: {error}") from None
    return ServerTokens(Session(environment_key_for(url)), url.removesuffix("/v1"))


def _of_recording(file: Path, conversation: str | None) -> Iterator[str]:
    from llama_load.analysis.reports.conversation_prompts import TurnTexts, turns_lines
    from llama_load.record.recorded_turns import read_turns

    recorded = read_turns(file)
    texts = {id(each.turn): TurnTexts(each.texts, each.token) for each in recorded}
    turns = [each.turn for each in recorded]
    return turns_lines(
        turns, conversation, lambda turn: texts[id(turn)], "record without --digest"
    )
