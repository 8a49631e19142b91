"""`llama-load run`: one load test, with a locustfile of llama-load or with your own."""

from __future__ import annotations

import argparse
import os
import re
import shlex
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from llama_load.cli.parser import Parser
from llama_load.cli.say import say
from llama_load.ground.errors import UsageError
from llama_load.lab.start_run import DEFAULT_WORKLOAD
from llama_load.outside.terminal import STARTED_AS

if TYPE_CHECKING:
    from llama_load.loadgen.options.flag import Flag
    from llama_load.loadgen.options.vllm_command import OurRun

URLS = ("http://", "https://")
LOCUSTFILE = ("-f", "--locustfile")
HOST = ("-H", "--host")
# Files that may set flags of Locust, and so the server.
CONFIGURATIONS = ("locust.conf", "~/.locust.conf", "pyproject.toml")
MOST_BYTES = 1 << 20
_SETS_HOST = re.compile(r"^[ \t]*-*host[ \t]*[:=]", re.MULTILINE)


def add_run(commands: argparse._SubParsersAction[Parser]) -> None:
    """Add the subcommand."""
    run = commands.add_parser(
        "run",
        usage="llama-load run [URL] [-f LOCUSTFILE] [-u USERS] [-n REQUESTS] [FLAGS] "
        "[-- vllm bench serve …]",
        help="measure a server: with chat questions, or with any load and locustfile",
        description="Run one load test and print its verdict and figures. Without a URL it looks "
        "for a server on the usual ports of this machine. It is locust -f $(llama-load path "
        "sharegpt_chat) --headless --host URL in one word, and takes every flag of a run "
        "(llama-load flags).",
        examples={
            "8 users and 100 questions, within two minutes": "llama-load run "
            "http://127.0.0.1:8080",
            "8 users, 64 questions": "llama-load run http://127.0.0.1:8080 -u 8 -n 64",
            "The server on this machine": "llama-load run -u 8 -n 64",
            "Another workload (llama-load path lists them), or your own locustfile": "llama-load "
            "run http://127.0.0.1:8080 -f long_document -u 2 -n 16",
            "4 requests per second for a minute": "llama-load run http://127.0.0.1:8080 "
            "--request-rate 4 -t 60s",
            "The command of vllm bench serve": "llama-load run -- vllm bench serve --backend "
            "openai-chat --base-url http://127.0.0.1:8000 --dataset-name random --num-prompts 100",
        },
    )
    # The words are not argparse's: flags are those of Locust.
    run.set_defaults(run=_run_locust_words)


def split_run_words(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """What argparse reads of a command line, and what stands after `run` for Locust."""
    given = list(words)
    if given[:1] != ["run"]:
        return given, []
    end = given.index("--") if "--" in given else len(given)
    if "-h" in given[:end] or "--help" in given[:end]:
        return ["run", "--help"], []
    return given[:1], given[1:]


def _run_locust_words(arguments: argparse.Namespace) -> int:
    from llama_load.lab.start_run import locust_command, locustfile_of, typed_command

    url, workload, words = _parts_of_words(arguments.run_words)
    locustfile = locustfile_of(workload)
    if url is None and not _has_server(words, locustfile):
        from llama_load.cli.found_server import found_server

        url = found_server("llama-load run", words)
        say(f"{url} (the server on this machine)")

    os.environ[STARTED_AS] = typed_command(url, workload, words)
    command = locust_command(locustfile, url, words)
    sys.stdout.flush()
    sys.stderr.flush()
    # In the place of this process: signals and exit codes are Locust's own.
    os.execv(command[0], command)  # noqa: S606 - there is no shell, and none is wanted


def _parts_of_words(words: Sequence[str]) -> tuple[str | None, str, list[str]]:
    """The server's URL, the locustfile's name, and the other words.

    UsageError: what stands after -- is no command of `vllm bench serve`, or has no equal.
    """
    from llama_load.loadgen.options.others_flags import in_our_flags
    from llama_load.outside.command_secrets import redact_words

    own = list(words)
    ours: OurRun | None = None
    workload = DEFAULT_WORKLOAD
    if "--" in own:
        place = own.index("--")
        ours = _of_program(own[place + 1 :])
        own = own[:place]
    elif own and not own[0].startswith(("-", *URLS)):
        ours = _without_dashes(own)
        own = [] if ours else own

    urls, own = _without_urls(in_our_flags(own))
    url = ",".join(urls) or None
    given, own = _without_option(own, LOCUSTFILE)
    host, own = _without_option(own, HOST)
    url = host or url
    if ours is None:
        return url, given or workload, [*_api_of(url, own), *own]

    flags = [*ours.flags, *own]
    if url is None:
        url = ours.url
        if not ours.names_server:
            _withhold_keys(url, flags)
    workload = given or ours.workload
    flags = [*_api_of(url, flags), *flags]
    shown = redact_words(["llama-load", "run", url, "-f", workload, *flags])
    say(shlex.join(shown))
    for note in ours.notes:
        say(note)
    return url, workload, flags


def _api_of(url: str | None, flags: Sequence[str]) -> list[str]:
    """The flag of the API whose URL it is, unless --endpoint is given."""
    from llama_load.servers.address import parse_server_url, split_hosts
    from llama_load.servers.api_location import located
    from llama_load.servers.apis import OFFERED

    if any(word.startswith("--endpoint") for word in flags):
        return []
    for each in split_hosts(url or "")[:1]:
        with suppress(ValueError):
            api = located(parse_server_url(each)).api
            if api is not None and api.name in OFFERED[1:]:
                return ["--endpoint", api.name]
    return []


def _withhold_keys(url: str, flags: Sequence[str]) -> None:
    """Where vLLM's benchmark looks for a server nobody has named it: it gets no key unless the
    person agrees."""
    from llama_load.cli.found_server import withhold_keys

    withhold_keys(url, "llama-load run", flags)


def _without_dashes(words: Sequence[str]) -> OurRun | None:
    from llama_load.loadgen.options.program_command import run_of_command

    return run_of_command(words)


def _of_program(words: Sequence[str]) -> OurRun:
    from llama_load.loadgen.options.program_command import (
        known_programs,
        run_of_command,
    )

    ours = run_of_command(words)
    if ours is None:
        raise UsageError(
            f"what stands after -- must be a command of a load generator ({known_programs()}), "
            f"got {shlex.join(words)[:100]!r}; flags of the run stand before it, without --"
        )
    return ours


def _without_urls(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """The servers' URLs, and the other words.

    The first word is one unless it is a flag; later ones are known by http:// where no flag stands
    before them that takes a value.
    """
    urls: list[str] = []
    others: list[str] = []
    for number, word in enumerate(words):
        is_first = number == 0 and not word.startswith("-")
        is_url = word.startswith(URLS) and not _takes_value(others[-1:])
        if is_first or is_url:
            urls.append(word)
        else:
            others.append(word)
    return urls, others


def _takes_value(before: Sequence[str]) -> bool:
    """Whether the word before is a flag with a value that is still to come."""
    if not before or not before[0].startswith("-") or "=" in before[0]:
        return False
    flag = _flag_named(before[0])
    return flag is None or not flag.switch


def _flag_named(name: str) -> Flag | None:
    from llama_load.loadgen.options.flags import FLAGS

    for flag in FLAGS:
        if flag.name == name:
            return flag
    return None


def _without_option(
    words: Sequence[str], names: tuple[str, ...]
) -> tuple[str | None, list[str]]:
    """The value of an option, and the words without it. The last one counts."""
    value: str | None = None
    others: list[str] = []
    left = list(words)
    while left:
        word = left.pop(0)
        name, is_joined, joined = word.partition("=")
        if name not in names:
            others.append(word)
        elif is_joined:
            value = joined
        elif left:
            value = left.pop(0)
        else:
            raise UsageError(f"{name} has no value")
    return value, others


def _has_server(words: Sequence[str], locustfile: str) -> bool:
    """Whether a server is named elsewhere: in the environment, in a file of Locust's flags, in the
    locustfile; or none is needed, on a worker."""
    if "--worker" in words or os.environ.get("LOCUST_HOST"):
        return True
    if any(word.startswith("--config") for word in words):
        return True
    files = [Path(name).expanduser() for name in (*CONFIGURATIONS, locustfile)]
    return any(map(_sets_host, files))


def _sets_host(file: Path) -> bool:
    from llama_load.outside.foreign_files import begin_of

    if not file.is_file():
        return False
    text = begin_of(file, MOST_BYTES).decode("utf-8", "replace")
    return _SETS_HOST.search(text) is not None
