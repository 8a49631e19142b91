"""What run.json says of a run and its servers, as the evidence for the verdict needs it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from llama_load.analysis.figures.failure_hints import FailureContext
from llama_load.ground.failure_kind import LIMIT, FailureKind
from llama_load.outside.foreign_json import decode_foreign
from llama_load.run_folder import Manifest
from llama_load.run_folder.observed.slot_context import slot_context_of
from llama_load.servers.apis import WITH_TEMPLATE
from llama_load.servers.kinds import kind_named

# Fields of a body that chat templates render, besides the messages.
TEMPLATE_FIELDS = frozenset(
    (
        "tools",
        "functions",
        "documents",
        "chat_template",
        "chat_template_kwargs",
        "response_format",
    )
)


def planned(manifest: Manifest) -> int | None:
    """How many requests were to be sent; None where the time decided."""
    if manifest.end == "time" or manifest.num_prompts is None:
        return None
    return manifest.num_prompts - manifest.cut


def aborts_by_tokens(manifest: Manifest) -> bool:
    """Whether --abort-after is a number of tokens: `first-token` (the default), `20 tokens`."""
    after = manifest.options.get("abort_after") or "first-token"
    return str(after).endswith(("token", "tokens"))


def length_means_full(manifest: Manifest) -> bool:
    """Whether all servers generate to the end of their context where max_tokens is not set."""
    for target in manifest.targets:
        if not kind_named(str(target.get("backend"))).fills_context:
            return False

    return bool(manifest.targets)


def shortened_conversations(manifest: Manifest) -> int:
    """Whole conversations whose last turns were left out.

    (Of chats, --turns asks for as many turns as fit.)
    """
    dataset = manifest.prompts.get("dataset")
    shortened = manifest.prompts.get("shortened")
    if not isinstance(dataset, dict) or not isinstance(shortened, int):
        return 0

    are_whole = "layout" in dataset or "rounds" in dataset
    if not are_whole:
        return 0

    return shortened


def slots_of_all(manifest: Manifest) -> int | None:
    """The slots of all replicas; None where one does not report them."""
    slots = _whole_numbers(manifest, "slots")
    if not slots or len(slots) != len(manifest.targets):
        return None
    return sum(slots)


def failure_context(manifest: Manifest) -> FailureContext:
    """What hints on failures need to know besides the load."""
    backends = {str(target.get("backend")) for target in manifest.targets}
    backend = None
    if len(backends) == 1:
        backend = backends.pop()

    last_words = None
    for server in manifest.servers:
        if server.ended and last_words is None:
            last_words = server.ended

    return FailureContext(
        slots_each=max(_whole_numbers(manifest, "slots"), default=None),
        ctx_per_slot=min(_whole_numbers(manifest, "ctx_per_slot"), default=None),
        is_shared=_is_shared(manifest),
        backend=backend,
        limits_s=_limits_s(manifest.options),
        last_words=last_words,
    )


def _is_shared(manifest: Manifest) -> bool | None:
    """Whether slots share one KV cache, by the servers' logs or --kv-pool.

    None where neither says it.
    """
    if manifest.options.get("kv_pool"):
        return True

    known = []
    for server in manifest.servers:
        shared = slot_context_of(server).is_shared
        if shared is not None:
            known.append(shared)

    if not known:
        return None

    return any(known)


def _limits_s(options: Mapping[str, Any]) -> dict[str, float]:
    """The time limits of the run by failure class, s."""
    limits = {}
    for kind in FailureKind:
        if kind.trait != LIMIT:
            continue

        name = kind.value
        try:
            limits[name] = float(options.get(name) or "")
        except (TypeError, ValueError):
            continue

    return limits


def unused_rpc_workers(manifest: Manifest) -> list[str]:
    """The addresses of those that hold no part of a model."""
    addresses: list[str] = []
    for server in manifest.servers:
        addresses += server.rpc_unused
    return addresses


def servers_with_draft_model(manifest: Manifest) -> list[str]:
    """The URLs of those whose command names a draft model."""
    urls = []
    for server in manifest.servers:
        if kind_named(server.backend).draft_flags & _flags_of_command(server.command):
            urls.append(server.url)
    return urls


def _flags_of_command(command: str | None) -> set[str]:
    """The words of a server's command, without values that `=` joins to them."""
    flags = set()
    for word in (command or "").split():
        flag, _, _ = word.partition("=")
        flags.add(flag)

    return flags


def is_template_known(manifest: Manifest) -> bool:
    """Whether planned prompt tokens include all that is put around the prompts.

    That is the chat template, if any. A text that makes each request's prompt new
    (--bust-prefix-cache) is not counted.
    """
    if manifest.options.get("bust_prefix_cache"):
        return False
    if _adds_to_prompts(manifest.options.get("extra_body")):
        return False
    if manifest.endpoint not in WITH_TEMPLATE:
        return True

    templates = [target.get("template_tokens") for target in manifest.targets]

    return bool(templates) and None not in templates


def _adds_to_prompts(extra_body: object) -> bool:
    """Whether --extra-body has a field that a chat template puts into every prompt, as tools."""
    try:
        fields = decode_foreign(str(extra_body or "{}").encode())
    except ValueError:
        return True
    return isinstance(fields, dict) and not TEMPLATE_FIELDS.isdisjoint(fields)


def numbers_of_targets(manifest: Manifest, name: str) -> list[float]:
    """A fact of the targets that report it as a number."""
    numbers = []
    for target in manifest.targets:
        value = target.get(name)
        if isinstance(value, int | float):
            numbers.append(value)

    return numbers


def _whole_numbers(manifest: Manifest, name: str) -> list[int]:
    """A fact of the targets that report it as a positive whole number."""
    numbers = numbers_of_targets(manifest, name)
    return [number for number in numbers if isinstance(number, int) and number > 0]
