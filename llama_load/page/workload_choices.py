"""The workloads that the page can start: the locustfile's user classes, and in one process those of
bundled locustfiles."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from locust.runners import LocalRunner
from locust.util.load_locustfile import is_user_class

from llama_load.ground.bundled import bundled
from llama_load.loadgen.options.form import workload_names


@dataclass(frozen=True, slots=True)
class Choice:
    """User classes that are run together.

    `workloads` are the names of their workloads' classes, none for tasks with their own prompts.
    """

    title: str
    classes: tuple[Any, ...]
    workloads: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Preset:
    """Values for the form, by the names of its fields; `workload` is the name of a choice."""

    title: str
    workload: str
    values: Mapping[str, str] = field(default_factory=dict)


# What the locustfile has, all of its classes.
GIVEN = ""
# Bundled locustfiles: name of the file, title, values of its preset. Documents and images take a
# server seconds each.
BUNDLED = (
    ("sharegpt_chat", "ShareGPT chat", {"num_users": "4", "num_prompts": "100"}),
    ("long_document", "Long documents", {"num_users": "2", "num_prompts": "20"}),
    ("vision", "Images", {"num_users": "2", "num_prompts": "20"}),
    ("agent", "Agent", {"num_users": "2", "num_prompts": "20"}),
)


def workload_choices(environment: Any) -> dict[str, Choice]:
    """All choices by name, the locustfile's classes first.

    Workers run their own locustfile, so on a master there are no others.
    """
    given = tuple(environment.user_classes)
    choices = {GIVEN: _choice(_title_of(given), given)}
    available = environment.available_user_classes or {
        user.__name__: user for user in given
    }
    if len(available) > 1:
        for name, user in available.items():
            if hasattr(user, "workload_name"):
                choices[f"class {name}"] = _choice(name, (user,))

    if isinstance(environment.runner, LocalRunner):
        for name, title, _ in BUNDLED:
            classes = _bundled_classes(name)
            if classes and not _names_of(classes) <= available.keys():
                choices[f"bundled {name}"] = _choice(title, classes)

    return choices


def _title_of(classes: tuple[Any, ...]) -> str:
    if not classes:
        return "none"
    if len(classes) > 1:
        return "all of the locustfile"
    name: str = classes[0].__name__
    return name


def _names_of(classes: tuple[Any, ...]) -> set[str]:
    return {user.__name__ for user in classes}


def presets(choices: Mapping[str, Choice]) -> list[Preset]:
    """The presets whose workload can be chosen."""
    presets = []
    for name, title, values in BUNDLED:
        names = _names_of(_bundled_classes(name))
        for key, choice in choices.items():
            if names and names == _names_of(choice.classes):
                presets.append(Preset(title, key, values))
                break

    return presets


def _choice(title: str, classes: tuple[Any, ...]) -> Choice:
    workloads = []
    for user in classes:
        if not hasattr(user, "workload_name"):
            continue

        workload = getattr(user, "workload", None)
        if workload is None:  # its prompts are its own
            return Choice(title, classes, ())

        workloads.append(workload)

    return Choice(title, classes, tuple(workload_names(workloads)))


@cache
def _bundled_classes(name: str) -> tuple[Any, ...]:
    """The user classes of a bundled locustfile; none if there is no such file."""
    path = bundled(f"locustfiles/{name}.py")
    if not path.is_file():
        return ()

    spec = importlib.util.spec_from_file_location(f"llama_load_bundled_{name}", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)

    return tuple(value for value in vars(module).values() if is_user_class(value))
