"""The command line of a server: with the model that it serves, and as it is shown."""

from __future__ import annotations

from dataclasses import replace

from llama_load.ground.bundled import bundled
from llama_load.servers.kinds import ServerSpec, start_of
from llama_load.servers.serving.model_maker import ModelSize, cached_model


def with_model(spec: ServerSpec) -> ServerSpec:
    """With a small random model if it names none and its kind serves one.

    UsageError: it is of no kind that we start.
    """
    if spec.model or not start_of(spec).makes_model:
        return spec
    corpus = bundled("datasets/sharegpt_sample.json")
    model = cached_model(ModelSize(), corpus)
    return replace(spec, model=str(model))
