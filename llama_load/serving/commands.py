"""The command line of a server: with the model that it serves, and as it is shown."""

from __future__ import annotations

from dataclasses import replace

from llama_load.bundled import bundled
from llama_load.foreign_text import MASK, is_secret_name
from llama_load.serving.model_maker import ModelSize, cached_model
from llama_load.targets.servers import ServerSpec, start_of


def with_model(spec: ServerSpec) -> ServerSpec:
    """With a small random model if it names none and its kind serves one. UsageError: it is of no kind that we start."""
    if spec.model or not start_of(spec).makes_model:
        return spec
    return replace(spec, model=str(cached_model(ModelSize(), bundled("datasets/sharegpt_sample.json"))))


def redact_server_command(command: tuple[str, ...]) -> tuple[str, ...]:
    """The command with the values of flags and variables that are named like secrets masked: --api-key ***, HF_TOKEN=***."""
    shown: list[str] = []
    is_secret = False
    for word in command:
        name, is_joined, _ = word.partition("=")
        if is_secret and not word.startswith("--"):
            word = MASK
        elif is_joined and (word.startswith("-") or name.isupper()) and is_secret_name(name):
            word = f"{name}={MASK}"
        is_secret = word.startswith("--") and not is_joined and is_secret_name(name)
        shown.append(word)
    return tuple(shown)
