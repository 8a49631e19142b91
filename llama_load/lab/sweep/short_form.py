"""A sweep without a plan's file.

--serve 'llama-server -m m.gguf -t {t}' --vary t=1,2,4 -- arguments of locust.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from llama_load.ground.errors import UsageError
from llama_load.lab.sweep.locustfile_flags import flag_fault, texts_of
from llama_load.lab.sweep.server_spec import words
from llama_load.servers.kinds import STARTS
from llama_load.servers.kinds.server_start import DEFAULT_START

SERVERS = ", ".join(start.typed for start in STARTS.values()) + ", or a URL"
# The name of a flag that has a short one.
SHORT_NAMES = {"n": "num-prompts"}
# Options of `llama-load serve` for which servers have flags of their own.
SIZES = ("--slots", "--ctx-per-slot")
_SETTING = re.compile(r"(\w[\w.-]*)=(.+)", re.DOTALL)


def plan_document(
    serve: Sequence[str], vary: Sequence[str], locust_args: Sequence[str], repeats: int
) -> dict[str, Any]:
    """The plan as the values of its YAML. UsageError: a flag or a command cannot be read."""
    servers: dict[str, Any] = {}
    for number, text in enumerate(serve, 1):
        name, server = _server_of_text(text, number)
        if name in servers:
            name = f"{name}-{number}"
        servers[name] = server

    settings: dict[str, Any] = {}
    for text in vary:
        name, values = _setting(text, [*serve, *locust_args])
        if name in settings:
            raise UsageError(
                f"--vary {name} is given twice; give all its values at once: --vary {name}=A,B,C"
            )
        settings[name] = {"values": values}

    workload, load = _locust(locust_args)
    document = {
        "servers": servers,
        "repeats": repeats,
        "workload": workload,
        "load": [load],
    }
    if settings:
        document["vary"] = settings
    return document


def _setting(text: str, used_in: Sequence[str]) -> tuple[str, list[str]]:
    """The name and the values of a --vary, whose {name} must be in one of these texts."""
    match = _SETTING.fullmatch(text)
    if match is None:
        raise UsageError(
            f"--vary must be NAME=VALUE,VALUE, such as t=1,2,4, got {text!r}"
        )

    name = match[1]
    if not any(f"{{{name}}}" in word for word in used_in):
        raise UsageError(
            f"--vary {name}: neither --serve nor the arguments of locust have {{{name}}}"
        )
    values = []
    for value in match[2].split(","):
        values.append(value.strip())

    return name, [value for value in values if value]


def _server_of_text(text: str, number: int) -> tuple[str, dict[str, Any]]:
    """A name for a server, and its part of the plan."""
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
    if Path(command[0]).name == "llama-load" and command[1:2] == ["serve"]:
        kind, of_serve = _of_serve(command[2:])
        return kind, {kind: settings | of_serve}
    for name, start in STARTS.items():
        of_command = start.settings_of(command[0], command[1:])
        if of_command is not None:
            return name, {name: settings | of_command}
    raise UsageError(
        f"--serve cannot start {Path(command[0]).name}; it can be {SERVERS}"
    )


def _of_serve(arguments: Sequence[str]) -> tuple[str, dict[str, Any]]:
    """The kind of server and its settings, from what stands after `llama-load serve`.

    Host and port are left out: the sweep chooses them. UsageError: an option that is not the
    server's own.
    """
    left = list(arguments)
    kind = DEFAULT_START
    if left and left[0] in STARTS:
        kind = left.pop(0)
    if "--" in left:
        left.remove("--")

    settings: dict[str, Any] = {}
    flags: list[str] = []
    while left:
        word = left.pop(0)
        if word in SIZES:
            raise UsageError(
                f"--serve: in a sweep give the server's own flags after -- instead of {word}, "
                "such as -np 4 -c 16384 -t 8"
            )
        if word in ("--host", "--port"):
            del left[:1]
        elif word in ("--model", "--program") or word in STARTS[kind].model_flags:
            name = "program" if word == "--program" else "model"
            settings[name] = left.pop(0) if left else ""
        else:
            flags.append(word)
    settings["args"] = [shlex.join(flags)] if flags else []
    return kind, settings


def _locust(arguments: Sequence[str]) -> tuple[str, dict[str, Any]]:
    """The locustfile, and the flags by name."""
    workload = "sharegpt_chat"
    flags: dict[str, Any] = {}
    left = list(arguments)
    while left:
        word = left.pop(0)
        if not word.startswith("-"):
            raise UsageError(
                f"the arguments of locust after -- must be flags and their values, got {word!r}"
            )

        name, is_joined, joined = word.lstrip("-").partition("=")
        name = SHORT_NAMES.get(name, name)
        value: str | bool = True
        if is_joined:
            value = joined
        elif left and not re.match(r"--?[A-Za-z]", left[0]):
            value = left.pop(0)

        if name in ("f", "locustfile"):
            workload = str(value)
        elif name != "headless":
            flags.setdefault(name, []).append(value)

    of_locustfile = texts_of([Path(workload)])
    for name in flags:
        fault = flag_fault(name, of_locustfile)
        if fault:
            raise UsageError(fault)
    return workload, flags
