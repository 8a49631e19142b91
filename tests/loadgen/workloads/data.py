"""Data as tests look at it: whole files of conversations, drawn pictures, the images of a
folder."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from llama_load.loadgen.workloads.images import drawings, files, made
from llama_load.loadgen.workloads.sharegpt import Conversations
from llama_load.servers.prompt import Image


def first_exchanges(path: Path) -> tuple[list[tuple[str, str, str]], str]:
    """Id, first question and its answer of each conversation of a file, in file order, and its
    SHA-256."""
    file = Conversations(path)
    talks = (file.read(number, first_only=True) for number in range(len(file)))
    first = (
        (talk.id, *(message.text for message in talk.turns[0].messages))
        for talk in talks
        if talk is not None
    )
    return [(name, question, answer) for name, question, answer in first], file.sha256


def drawn(
    count: int,
    size: tuple[int, int],
    image_format: str,
    seed: int,
    on_image_ready: Callable[[int], object] | None = None,
) -> list[Image]:
    """This many pictures of the seed."""
    return made(
        drawings(count, size, image_format, seed), on_image_ready=on_image_ready
    )


def images_at(path: Path) -> list[Image]:
    """The image in a file, or those in a folder and the folders in it, in order of their paths."""
    return made(files(path))
