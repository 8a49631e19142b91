"""The server on this machine, where the person has named none: it is found on the usual ports, and
gets no key unless the person agrees."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from urllib.parse import urlsplit

from llama_load.cli.ask import agrees, is_there
from llama_load.cli.say import say
from llama_load.ground.errors import UsageError
from llama_load.ground.processes import listens_as_we_do
from llama_load.loadgen.options.server_keys import (
    KEY_VARIABLES,
    KEYS_FOR,
    NOBODY,
    may_have_keys,
)
from llama_load.outside.command_secrets import is_secret_header
from llama_load.outside.plain_http import NoAnswerError, request
from llama_load.servers.address import parse_url

# Ports on which servers of LLMs listen unless told otherwise: llama-server, vLLM, SGLang, LM
# Studio, Ollama, text-generation-webui.
USUAL_PORTS = (8080, 8000, 8081, 8001, 30000, 1234, 11434, 5000)
LOOK_S = 0.5
CONNECT_S = 1.5  # of a server that was named, which may be far away


def found_server(command: str, given: Sequence[str] = ()) -> str:
    """The URL of the server on the usual ports of this machine; of several the person chooses.

    `command`: the command that takes a URL, for the messages; `given`: its words, which may hold
    keys. UsageError: there is none; or several, and nobody can be asked.
    """
    urls = find_servers()
    if not urls:
        ports = ", ".join(map(str, USUAL_PORTS))
        raise UsageError(
            f"no server found on the ports {ports} of this machine; give its URL: "
            f"{command} http://HOST:PORT, or start one: llama-load serve"
        )
    url = urls[0] if len(urls) == 1 else _chosen_server(urls, command)
    withhold_keys(url, command, given)
    return url


def find_servers(ports: Sequence[int] | None = None) -> list[str]:
    """The URLs of the servers of LLMs on these ports of this machine, within half a second."""
    if ports is None:
        ports = USUAL_PORTS
    tried = [f"http://127.0.0.1:{port}" for port in ports]
    with ThreadPoolExecutor(len(tried)) as pool:
        lists = list(pool.map(_lists_models, tried))
    return [url for url, is_server in zip(tried, lists, strict=True) if is_server]


def need_server(url: str) -> None:
    """Raise UsageError within two seconds where nothing listens at this URL."""
    parts = urlsplit(url)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    try:
        socket.create_connection((parts.hostname or "", port), CONNECT_S).close()
    except OSError as error:
        raise UsageError(
            f"no server at {url} ({error.strerror or error}); start it, or a server to try with: "
            "llama-load serve"
        ) from None


def _lists_models(url: str) -> bool:
    """Whether /v1/models answers, or asks for a key."""
    try:
        answer = request("GET", f"{url}/v1/models", within_s=LOOK_S)
    except NoAnswerError:
        return False
    is_json = "json" in answer.headers.get("content-type", "")
    return is_json and answer.status in (200, 401, 403)


def _chosen_server(urls: Sequence[str], command: str) -> str:
    """The one of several servers that the person at the terminal chooses by its number."""
    if not is_there():
        raise UsageError(
            f"there are {len(urls)} servers: {', '.join(urls)}; name one: {command} {urls[0]}"
        )
    for number, url in enumerate(urls, 1):
        say(f"{number}  {url}")
    print(f"Which one? [1-{len(urls)}] ", end="", file=sys.stderr, flush=True)
    answer = sys.stdin.readline().strip()
    numbers = [str(number) for number in range(1, len(urls) + 1)]
    if answer not in numbers:
        raise UsageError(f"no server was chosen; name one: {command} {urls[0]}")
    return urls[int(answer) - 1]


def withhold_keys(url: str, command: str, given: Sequence[str] = ()) -> None:
    """Nobody named the server that was found at this URL: it gets keys only if its process is ours
    and the person agrees."""
    keys = [name for name in KEY_VARIABLES if os.environ.get(name)]
    keys += _key_flags(given)
    if os.environ.get(KEYS_FOR, "").strip() and may_have_keys(url):
        return  # the person has named it there
    is_ours = listens_as_we_do(parse_url(url).port)
    if (
        keys
        and is_ours
        and is_there()
        and agrees(f"Send {' and '.join(keys)} to the server at {url}, which you run?")
    ):
        os.environ[KEYS_FOR] = url
        return
    os.environ[KEYS_FOR] = NOBODY
    if keys:
        whose = "" if is_ours else ", whose process another user may run"
        say(
            f"{url} was found and not named{whose}: it gets no key; to send it one: {command} "
            f"{url}"
        )


def _key_flags(words: Sequence[str]) -> list[str]:
    """The flags of a command line that hold a key for the server."""
    flags = []
    for word, following in pairwise((*words, "")):
        name, is_joined, value = word.partition("=")
        if name == "--api-key":
            flags.append(name)
        elif name == "--header":
            header = value if is_joined else following
            field, _, text = header.partition(":")
            if is_secret_header(field.strip(), text.strip()):
                flags.append(name)
    return flags
