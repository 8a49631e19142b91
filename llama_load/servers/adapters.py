"""llama-server's LoRA adapters: --adapter chooses one for each request, which names it in its body.

The server ignores ids that it does not have, so they are refused before the run.
"""

from __future__ import annotations

from typing import Any

from llama_load.ground.errors import UsageError
from llama_load.outside.foreign_text import printable
from llama_load.outside.plain_http import NoAnswerError, Session
from llama_load.servers.json_fields import objects, text
from llama_load.servers.kinds.server_kind import NO_ADAPTER
from llama_load.servers.target import Target

TIMEOUT_S = 10
MOST_ID_DIGITS = 6
# More adapters than a message should list.
MOST_SHOWN = 10


def adapter_name(given: str) -> str:
    """An adapter as --adapter names it: its id, or `none`. ValueError says what it must be."""
    if given == NO_ADAPTER:
        return given
    if not (given.isascii() and given.isdecimal() and len(given) <= MOST_ID_DIGITS):
        raise ValueError(
            "an adapter is named by its id in llama-server's /lora-adapters, such as 0, or is "
            f"{NO_ADAPTER}, not {given!r}"
        )
    return str(int(given))


def check_adapters(
    target: Target, names: tuple[str, ...], session: Session
) -> dict[str, str]:
    """The file of each of these adapters, by its name.

    UsageError: the server does not list one of them.
    """
    url = target.address.url
    if not target.kind.adapters_path:
        raise UsageError(
            f"--adapter is for llama-server, and {url} is {target.backend}: name its LoRA "
            "adapters as models, --model a=3,b=1"
        )
    files: dict[str, str] = {}
    for page in target.control_urls(target.kind.adapters_path):
        listed = _listed_files(page, session)
        for name in names:
            if name in listed:
                files[name] = listed[name]
            elif name != NO_ADAPTER:
                raise UsageError(
                    f"{url} has no LoRA adapter {name}: {_said_of(listed)}"
                )
        if not listed:
            raise UsageError(f"{url} has no LoRA adapters, start it with --lora FILE")
    return files


def _said_of(listed: dict[str, str]) -> str:
    """Which adapters a server has instead of a missing one."""
    if not listed:
        return "it has none, start it with --lora FILE"
    shown = []
    for name, file in list(listed.items())[:MOST_SHOWN]:
        shown.append(f"{name} ({file})")
    return "it has " + ", ".join(shown)


def adapter_fields(target: Target, api: str, adapter: str) -> dict[str, Any]:
    """The fields of a body that give a request this adapter. UsageError: this API takes none."""
    fields = target.kind.adapter_fields(api, adapter)
    if fields is None:
        raise UsageError(
            f"--adapter is not supported for {target.backend} with --endpoint {api}"
        )
    return fields


def _listed_files(page: str, session: Session) -> dict[str, str]:
    """The names of files by id. UsageError: there is no such list."""
    try:
        answer = session.get(page, within_s=TIMEOUT_S)
        entries = answer.json() if answer.ok else None
    except (NoAnswerError, ValueError) as error:
        raise UsageError(
            f"{page} does not list LoRA adapters: {printable(str(error))}"
        ) from None
    if not isinstance(entries, list):
        raise UsageError(
            f"{page} does not list LoRA adapters: it answers HTTP {answer.status}"
        )
    listed = {}
    for entry in objects(entries):
        number = entry.get("id")
        if isinstance(number, int) and not isinstance(number, bool) and number >= 0:
            path = text(entry.get("path")) or "?"
            file = path.rpartition("/")[2]
            listed[str(number)] = printable(file, 60)
    return listed
