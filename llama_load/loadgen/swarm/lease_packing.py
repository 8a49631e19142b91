"""Leases in messages. The turns of a conversation share what came before: it travels once.

With the whole history in every lease, an agent of 200 rounds with 0.8 MB of text would take 90 MB.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import msgspec

from llama_load.loadgen.dispatch.leases import Lease
from llama_load.servers.prompt import Image, Message, Prompt

# Packing 5 MB blocks the event loop for 10 ms.
MOST_BYTES = 4 << 20


@dataclass(frozen=True, slots=True)
class PackedLease:
    """A lease as it travels. `goes_on`: its prompt lacks the history of the turn before of the same
    (sub-)agent and what that turn added to it, images, which are those of its messages, and fields,
    which are those of the turn before."""

    lease: Lease
    goes_on: bool = False


def pack_leases(leases: Sequence[Lease]) -> Iterator[bytes]:
    """The leases in messages of about `MOST_BYTES`. The turns of a conversation stay together."""
    part: list[PackedLease] = []
    before: dict[
        str | None, Prompt
    ] = {}  # the last prompt of this conversation, by sub-agent
    size = 0
    for lease in leases:
        if not lease.follows:
            before.clear()
            if size > MOST_BYTES:
                yield msgspec.msgpack.encode(part)
                part = []
                size = 0
        prompt = lease.prompt
        if prompt is None:
            part.append(PackedLease(lease))
            continue
        packed = _without_history(prompt, before.get(prompt.agent))
        before[prompt.agent] = prompt
        part.append(
            PackedLease(lease)
            if packed is None
            else PackedLease(replace(lease, prompt=packed), goes_on=True)
        )
        size += _size(packed or prompt)
    yield msgspec.msgpack.encode(part)


def unpack_leases(data: bytes) -> list[Lease]:
    """The leases of one message."""
    leases: list[Lease] = []
    before: dict[str | None, Prompt] = {}
    for packed in msgspec.msgpack.decode(data, type=list[PackedLease]):
        lease = packed.lease
        if not lease.follows:
            before.clear()
        if (prompt := lease.prompt) is not None:
            if packed.goes_on:
                earlier = before[prompt.agent]
                history = (*earlier.history, *earlier.added, *prompt.history)
                images = (*earlier.images, *_new_images(prompt.history, prompt))
                prompt = replace(
                    prompt, history=history, images=images, fields=earlier.fields
                )
                lease = replace(lease, prompt=prompt)
            before[prompt.agent] = prompt
        leases.append(lease)
    return leases


def _without_history(prompt: Prompt, before: Prompt | None) -> Prompt | None:
    """The prompt without what the turn before has; None if it does not go on from it."""
    if before is None:
        return None
    shared = (*before.history, *before.added)
    if prompt.history[: len(shared)] != shared or prompt.fields != before.fields:
        return None
    new = prompt.history[len(shared) :]
    if prompt.images != (*before.images, *_new_images(new, prompt)):
        return None
    return replace(prompt, history=new, images=(), fields={})


def _new_images(history: Sequence[Message], prompt: Prompt) -> tuple[Image, ...]:
    return tuple(
        image for message in (*history, *prompt.messages) for image in message.images
    )


def _size(prompt: Prompt) -> int:
    """About the bytes of a prompt in a message."""
    texts = sum(len(message.text) for message in (*prompt.history, *prompt.messages))
    images = (*prompt.images, *_new_images(prompt.history, prompt))
    return len(prompt.text) + texts + sum(len(image.data_url) for image in images)
