"""Vision: a question about images, drawn for the run or taken from files; different ones in every
request if possible."""

from __future__ import annotations

import hashlib
import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from msgspec import UNSET

from llama_load.ground.errors import UsageError
from llama_load.loadgen.workloads.huggingface import HUB, DataSet
from llama_load.loadgen.workloads.images import (
    POOL_BYTES,
    Maker,
    drawings,
    files,
    image_of,
    made,
)
from llama_load.loadgen.workloads.prompt_plan import (
    ANSWER_TOKENS,
    DataFacts,
    Plan,
    PlanRequest,
)
from llama_load.servers.prompt import Image, Prompt

QUESTION = "Describe what you see in this picture in detail."
QUESTION_OF_SEVERAL = (
    "Describe what you see in each of these {} pictures in detail, and how they differ."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageFacts(DataFacts):
    """Images: the number of different ones, and the mean size of their files."""

    images: int
    mean_bytes: int


class Vision:
    """Questions about images: by default new 512x512 drawings in every request; else those of
    --images.

    Images of up to POOL_BYTES (512 MiB, encoded) are kept; when a run needs more, or has fewer,
    they repeat, in other combinations first. `prompt_tokens` counts the question alone: only the
    server knows the tokens of an image.
    """

    name = "vision"

    def plan(self, request: PlanRequest) -> Plan:
        """Choose the images of every request.

        In its facts, `distinct` counts the prompts whose images are all new, `repeated` the others:
        servers cache single images. UsageError: images cannot be read, or are too few for one
        request.
        """
        traffic = request.traffic
        per_request = traffic.images_per_request
        needed = request.num_prompts * per_request
        spare = request.warmup * per_request
        path, makers = _source(request, needed + spare)
        unlike = {
            image.sha256: image
            for image in made(
                makers[: needed + spare],
                most_bytes=POOL_BYTES,
                threads=request.threads,
                on_image_ready=request.on_image_ready,
            )
        }
        images = list(unlike.values())[:needed]
        warm = list(unlike.values())[needed:]
        if len(images) < per_request:
            raise UsageError(
                f"{path} has {len(images)} of the {per_request} images of a request; lower "
                "--images-per-request"
            )
        # If files are too few for the warm-up, use drawings: the warm-up must never cache a
        # measured image.
        others = drawings(
            spare - len(warm),
            traffic.image_size,
            traffic.image_format,
            request.content_seed,
            first=needed + spare,
        )
        warm += made(others, threads=request.threads)
        text = traffic.question or (
            QUESTION if per_request == 1 else QUESTION_OF_SEVERAL.format(per_request)
        )
        are_new = request.renews and traffic.images is None
        tokens = request.counter.count([text])[0]
        prompt = partial(
            Prompt, text, tokens, request.output_len or ANSWER_TOKENS, is_new=are_new
        )
        count = (
            request.num_prompts
            if request.fill
            else min(request.num_prompts, math.comb(len(images), per_request))
        )
        hands = _deal(count, len(images), per_request, request.seed)
        measured = []
        for hand in hands:
            chosen = tuple(images[place] for place in hand)
            measured.append(prompt(images=chosen))
        pictures = ImageFacts(
            path=path,
            sha256=UNSET
            if are_new
            else hashlib.sha256(
                "".join(image.sha256 for image in images).encode()
            ).hexdigest(),
            images=len(images),
            mean_bytes=round(sum(map(_file_bytes, images)) / len(images)),
        )
        warmup = [
            prompt(images=tuple(warm[at : at + per_request]))
            for at in range(0, spare, per_request)
        ]
        return request.plan(
            measured, warmup, pictures, distinct=min(count, len(images) // per_request)
        )


def _source(request: PlanRequest, count: int) -> tuple[str, list[Maker]]:
    """The images' name, and makers of up to `count` of them."""
    traffic = request.traffic
    if traffic.images is None:
        width, height = traffic.image_size
        makers = drawings(
            count, traffic.image_size, traffic.image_format, request.content_seed
        )
        return f"generated {width}x{height} {traffic.image_format}", makers
    if traffic.images.startswith(HUB):
        drawn = DataSet(traffic.images).images(count, request.seed)
        makers = [
            partial(image_of, data, f"{number} of {traffic.images}")
            for number, data in enumerate(drawn, 1)
        ]
        return traffic.images, makers
    makers = files(Path(traffic.images))
    random.Random(request.seed).shuffle(makers)
    return traffic.images, makers


def _deal(count: int, images: int, per_hand: int, seed: int) -> Iterator[Sequence[int]]:
    """`count` hands of `per_hand` of `images` images, dealt like cards: first in order, then from
    decks shuffled with the seed.

    No image repeats before all others were dealt (except at a deck's end), no combination before
    all others were.
    """
    shuffle = random.Random(seed).shuffle
    combinations = math.comb(images, per_hand)
    seen: set[frozenset[int]] = set()
    deck = list(range(images))
    for _ in range(count):
        if len(seen) == combinations:
            seen.clear()
        while True:
            if len(deck) < per_hand:
                deck = list(range(images))
                shuffle(deck)
            hand = deck[:per_hand]
            deck = deck[per_hand:]
            if frozenset(hand) not in seen:
                break
        seen.add(frozenset(hand))
        yield hand


def _file_bytes(image: Image) -> int:
    """The size of the file in a data URL: base64 has four characters per three bytes."""
    encoded = len(image.data_url) - image.data_url.index(b",") - 1
    return encoded // 4 * 3 - image.data_url.count(b"=", -2)
