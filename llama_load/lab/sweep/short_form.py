"""A sweep without a plan's file: --serve 'llama-server -m m.gguf -t {t}' --vary t=1,2,4 -- locust arguments."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from llama_load.errors import UsageError
from llama_load.lab.sweep.locustfile_flags import flag_fault, texts_of
from llama_load.lab.sweep.server_spec import words
from llama_load.targets.servers import STARTS

SERVERS = ", ".join(start.typed for start in STARTS.values()) + ", or a URL"
_SETTING = re.compile(r"(\w[\w.-]*)=(.+)", re.DOTALL)


def plan_document(serve: Sequence[str], vary: Sequence[str], locust_args: Sequence[str], repeats: int) -> dict[str, Any]:
    """The plan as the values of its YAML. UsageError: a flag or a command cannot be read."""
    servers: dict[str, Any] = {}
    for number, text in enumerate(serve, 1):
        name, server = _server(text, number)
        servers[f"{name}-{number}" if name in servers else name] = server
    settings = {}
    for text in vary:
        match = _SETTING.fullmatch(text)
        if match is None:
            raise UsageError(f"--vary must be NAME=VALUE,VALUE, such as t=1,2,4, got {text!r}")
        if not any(f"{{{match[1]}}}" in word for word in [*serve, *locust_args]):
            raise UsageError(f"--vary {match[1]}: neither --serve nor the arguments of locust have {{{match[1]}}}")
        if match[1] in settings:
            raise UsageError(f"--vary {match[1]} is given twice; give all its values at once: --vary {match[1]}=A,B,C")
        settings[match[1]] = {"values": [value.strip() for value in match[2].split(",") if value.strip()]}
    workload, load = _locust(locust_args)
    document = {"servers": servers, "repeats": repeats, "workload": workload, "load": [load]}
    return document | ({"vary": settings} if settings else {})


def _server(text: str, number: int) -> tuple[str, dict[str, Any]]:
    if text.startswith(("http://", "https://")):
        return f"server-{number}", {"url": text}
    command = list(words(text))
    env = {}
    while command and re.fullmatch(r"[A-Za-z_]\w*=.*", command[0]):
        name, _, value = command.pop(0).partition("=")
        env[name] = value
    if not command:
        raise UsageError(f"--serve takes a command, got {text!r}; it can be {SERVERS}")
    settings: dict[str, Any] = {"env": env} if env else {}
    for name, start in STARTS.items():
        if (own := start.settings_of(command[0], command[1:])) is not None:
            return name, {name: settings | own}
    raise UsageError(f"--serve cannot start {Path(command[0]).name}; it can be {SERVERS}")


def _locust(arguments: Sequence[str]) -> tuple[str, dict[str, Any]]:
    """The locustfile, and the flags by name."""
    workload, flags = "sharegpt_chat", dict[str, Any]()
    items = list(arguments)
    while items:
        word = items.pop(0)
        if not word.startswith("-"):
            raise UsageError(f"the arguments of locust after -- must be flags and their values, got {word!r}")
        name, is_joined, value = word.lstrip("-").partition("=")
        if not is_joined:
            value = items.pop(0) if items and not re.match(r"--?[A-Za-z]", items[0]) else True  # type: ignore[assignment]
        if name in ("f", "locustfile"):
            workload = str(value)
        elif name != "headless":
            flags.setdefault(name, []).append(value)
    own = texts_of([Path(workload)])
    for name in flags:
        if fault := flag_fault(name, own):
            raise UsageError(fault)
    return workload, flags
