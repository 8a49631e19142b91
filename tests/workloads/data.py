"""Data as tests look at it: whole files of conversations, drawn pictures, the images of a folder."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from llama_load.workloads.images import drawings, files, made
from llama_load.workloads.prompt import Image
from llama_load.workloads.sharegpt import Conversation, Conversations


def first_exchanges(path: Path) -> tuple[list[Conversation], str]:
    """The first exchanges of a file's conversations, in file order, and its SHA-256."""
    file = Conversations(path)
    found = (file.read(number, first_only=True) for number in range(len(file)))
    return [conversation for conversation in found if conversation is not None], file.sha256


def drawn(
    count: int, size: tuple[int, int], image_format: str, seed: int, on_image_ready: Callable[[int], object] | None = None
) -> list[Image]:
    """This many pictures of the seed."""
    return made(drawings(count, size, image_format, seed), on_image_ready=on_image_ready)


def images_at(path: Path) -> list[Image]:
    """The image in a file, or those in a folder and the folders in it, in order of their paths."""
    return made(files(path))
