"""Lists of models, in any of the shapes in which servers and gateways give them, and which of the
models generates texts."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from llama_load.servers.json_fields import count, fields, text

# Where an object has its list: OpenAI; Ollama, Cohere and Gemini; text-generation-webui; Cloudflare
# and other envelopes.
_LISTS = ("data", "models", "model_names", "model_list", "result", "results", "items")
# What names a model: OpenAI, Ollama and Gemini, LM Studio, and gateways.
_NAMES = ("id", "name", "key", "model", "model_name", "model_id", "identifier")
# What says what a model is for: LM Studio and Together (`type`), LiteLLM (`mode`), Hugging Face
# (`pipeline_tag`), Cohere (`endpoints`), Gemini (`supportedGenerationMethods`), OpenRouter
# (`architecture`), Mistral (`capabilities`).
_PURPOSES = (
    "type",
    "mode",
    "task",
    "tasks",
    "model_type",
    "kind",
    "pipeline_tag",
    "endpoints",
    "supported_endpoints",
    "supported_endpoint_types",
    "supportedGenerationMethods",
    "capabilities",
    "architecture",
    "modality",
    "output_modalities",
    "model_info",
)
_GENERATES = re.compile(
    r"chat|complet|text[-_ ]generation|generate_?content|language|responses"
    r"|(?:image|video|any)(?:-text)?-to-text"
    r"|^(?:llm|vlm|text|code|generate|openai|anthropic|gemini)\b(?!-)",
    re.IGNORECASE,
)
_OTHERS = re.compile(
    r"embed|rerank|classif|moderat|image|audio|speech|voice|tts|transcri|whisper|video|score",
    re.IGNORECASE,
)
# Of names alone, where nothing says what the model is for.
_NAMES_OF_OTHERS = re.compile(
    r"embed|rerank|moderation|whisper|transcri|speech|dall-e|stable-diffusion|sdxl|minilm|colbert"
    r"|\b(?:bge|e5|gte|tts|flux|sora|veo|imagen|kokoro|parakeet)\b|gpt-image|[-_]image\b",
    re.IGNORECASE,
)
# An envelope in an envelope in an envelope.
_DEEPEST = 3


@dataclass(frozen=True, slots=True)
class ListedModel:
    """An entry of a list of models.

    `context` is vLLM's `max_model_len`; what follows it is in llama-server's `meta`. `generates`:
    whether it generates texts, as its entry or its name says; `is_adapter`: a LoRA adapter of
    another entry.
    """

    name: str
    aliases: tuple[str, ...]
    owner: str | None
    context: int | None
    trained_context: int | None = None
    n_params: int | None = None
    bytes: int | None = None
    quantization: str | None = None
    generates: bool = True
    is_adapter: bool = False


def lists_models(document: object) -> bool:
    """Whether this is a list of models, if only an empty one."""
    return _entries(document) is not None


def is_of_another_api(document: object) -> bool:
    """Whether no entry is as OpenAI has it: a list that KServe (names alone) or Llama Stack
    (`identifier`) has beside OpenAI's, of models that may have their API elsewhere."""
    entries = _entries(document)
    if not entries:
        return False
    return not any("id" in fields(entry) for entry in entries)


def listed_models(document: object) -> list[ListedModel]:
    """The models of a document; entries without a name are left out, of several with one name the
    first is taken."""
    found: dict[str, ListedModel] = {}
    for entry in _entries(document) or []:
        listed = _model_of(entry)
        if listed is not None:
            found.setdefault(listed.name, listed)
    return list(found.values())


def candidates(
    listed: Sequence[ListedModel], *, generates: bool
) -> Sequence[ListedModel]:
    """The models that may be meant where none is named: those that generate texts, or those that
    embed and rank; all, where none is known to be one of them. A model comes without its adapters.
    """
    bases = [model for model in listed if not model.is_adapter]
    fitting = [model for model in bases if model.generates is generates]
    return fitting or bases or listed


def _entries(document: object, depth: int = 0) -> list[Any] | None:
    """The entries of a list: values, or the names of an object; None: there is no list."""
    if isinstance(document, list):
        return document
    if depth > _DEEPEST or not isinstance(document, dict):
        return None
    for name in _LISTS:
        if name not in document:
            continue
        value = document[name]
        if value is None and document.get("object") == "list":  # Ollama without a model
            return []
        found = _entries(value, depth + 1)
        if found is None and isinstance(value, dict):
            found = _by_name(value)
        if found is not None:
            return found
    return None


def _by_name(models: dict[str, Any]) -> list[Any] | None:
    """The entries of an object that has them by their names."""
    if not all(isinstance(entry, dict) for entry in models.values()):
        return None
    return [{"id": name} | entry for name, entry in models.items()]


def _model_of(entry: object) -> ListedModel | None:
    model = fields(entry)
    names = [entry, *(model.get(name) for name in _NAMES)]
    name = next(filter(None, map(text, names)), None)
    if name is None:
        return None

    # Gemini has "models/" before each name, and takes it or leaves it.
    short = name.removeprefix("models/")
    aliases = model.get("aliases")
    others = [name] if short != name else []
    if isinstance(aliases, list):
        others += filter(None, map(text, aliases))
    meta = fields(model.get("meta"))
    return ListedModel(
        short,
        tuple(others),
        owner=text(model.get("owned_by")),
        context=count(model.get("max_model_len")),
        trained_context=count(meta.get("n_ctx_train")),
        n_params=count(meta.get("n_params")),
        bytes=count(meta.get("size")),
        quantization=text(meta.get("ftype")),
        generates=_generates(name, model),
        is_adapter=bool(text(model.get("parent"))),
    )


def _generates(name: str, model: dict[str, Any]) -> bool:
    """Whether a model generates texts: its entry decides, without a word of it its name."""
    said = [word for field in _PURPOSES for word in _texts_in(model.get(field))]
    if any(map(_GENERATES.search, said)):
        return True
    if any(map(_OTHERS.search, said)):
        return False
    return not _NAMES_OF_OTHERS.search(name)


def _texts_in(value: object, depth: int = 0) -> Iterator[str]:
    """The texts in a value, and the names of what is true in an object: {"chat": true}.

    What goes into a model says nothing: a chat model takes images, an embedding model takes texts.
    """
    if isinstance(value, str):
        yield value.rpartition("->")[2]
    elif depth > _DEEPEST:
        return
    elif isinstance(value, list):
        for each in value:
            yield from _texts_in(each, depth + 1)
    elif isinstance(value, dict):
        for name, each in value.items():
            if each is True:
                yield str(name)
            elif "input" not in name and "description" not in name:
                yield from _texts_in(each, depth + 1)
