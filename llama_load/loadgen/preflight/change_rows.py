"""Rows of the preflight about what has changed since the last run with the same label."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from llama_load.run_folder import Manifest, PreflightRow
from llama_load.servers.target import TRAITS

NOT_GIVEN = "not given"


def differences(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """The differences between two descriptions of a server: `slots 4 -> 8`."""
    changes = []
    for trait, name in TRAITS.items():
        if trait in before and trait in now and before[trait] != now[trait]:
            changes.append(_change(name, before[trait], now[trait]))
    return changes


def change_rows(before: Manifest, now: Manifest) -> list[PreflightRow]:
    """The differences from the last run with the same label: servers, flags, data, version,
    machine."""
    changes = []
    if before.version != now.version:
        changes.append(_change("llama-load", before.version, now.version))
    if len(before.targets) != len(now.targets):
        changes.append(_change("replicas", len(before.targets), len(now.targets)))
    for old, new in zip(before.targets, now.targets, strict=False):
        changes += differences(old, new)
    for name in sorted(set(before.options) | set(now.options)):
        old_value = before.options.get(name) or NOT_GIVEN
        new_value = now.options.get(name) or NOT_GIVEN
        if old_value != new_value:
            flag = "--" + name.replace("_", "-")
            changes.append(_change(flag, old_value, new_value))
    if before.users != now.users:
        changes.append(_change("-u", before.users, now.users))
    if before.prompts != now.prompts:
        changes.append("the prompts")
    for name in ("name", "cores", "python"):
        old_value = before.host.get(name)
        new_value = now.host.get(name)
        if old_value != new_value:
            changes.append(_change(f"client's {name}", old_value, new_value))

    since = f"since the run of {before.date} with this label"
    if not changes:
        return [PreflightRow("changed", f"{since}: nothing")]

    return [PreflightRow("changed", f"{since}: {'; '.join(changes)}", "note")]


def _change(name: str, before: object, now: object) -> str:
    """A short change in full, a long one by its name."""
    text = f"{name} {before} -> {now}"
    if len(text) > 80:
        return f"{name} (see run.json)"

    return text
