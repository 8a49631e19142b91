"""Vision: every request has its own images if it can; and the real llama-server with a
projector."""

from __future__ import annotations

import base64
from collections import Counter
from collections.abc import Iterator, Sequence
from math import comb
from pathlib import Path
from typing import Any

import gguf
import msgspec
import numpy as np
import pytest
import requests
from hypothesis import given
from hypothesis import strategies as st

from llama_load.ground.errors import UsageError
from llama_load.loadgen.wire.exchange import Exchange
from llama_load.loadgen.wire.request import Request, Timeouts
from llama_load.loadgen.wire.transport import Transport
from llama_load.loadgen.workloads import vision
from llama_load.loadgen.workloads.prompt_plan import Plan, PlanRequest, Traffic
from llama_load.loadgen.workloads.vision import Vision, _deal
from llama_load.servers.address import parse_url
from llama_load.servers.answer import AnswerReader
from llama_load.servers.apis import CHAT
from llama_load.servers.apis.prompt_content import with_images
from llama_load.servers.body import BodyOptions
from llama_load.servers.prompt import Image, Prompt
from llama_load.servers.serving.launch import Server
from llama_load.servers.serving.model_maker import ModelSize
from llama_load.servers.serving.projector_maker import cached_projector, make_projector
from llama_load.servers.target import Target
from tests.answer_pipeline import output_of, prompt_of
from tests.conftest import TINY, embedded_server
from tests.loadgen.workloads.data import drawn
from tests.server_kinds import LLAMA_SERVER


class Words:
    """Counts words."""

    source = "words"

    def count(self, texts: Sequence[str]) -> list[int]:
        return [len(text.split()) for text in texts]


def plan(
    num_prompts: int,
    *,
    fill: bool = True,
    warmup: int = 1,
    seed: int = 0,
    output_len: int | None = None,
    **traffic: Any,
) -> Plan:
    wanted = PlanRequest(
        num_prompts=num_prompts,
        fill=fill,
        warmup=warmup,
        seed=seed,
        counter=Words(),
        output_len=output_len,
        traffic=Traffic(**{"image_size": (32, 24)} | traffic),
    )
    return Vision().plan(wanted)


def digests(prompts: Sequence[Prompt]) -> list[str]:
    return [image.sha256 for prompt in prompts for image in prompt.images]


def folder_of(folder: Path, count: int) -> Path:
    for number, image in enumerate(drawn(count, (24, 24), "png", 99)):
        (folder / f"{number:03}.png").write_bytes(
            base64.b64decode(image.data_url.partition(b",")[2])
        )
    return folder


@pytest.mark.parametrize("each", [1, 3])
def test_every_request_has_its_own_drawings(each: int) -> None:
    """Warm-up included."""
    found = plan(20, warmup=4, images_per_request=each)
    assert [len(prompt.images) for prompt in found.measured + found.warmup] == [
        each
    ] * 24
    assert len(set(digests(found.measured + found.warmup))) == 24 * each
    facts = found.facts
    assert (facts.distinct, facts.repeated, facts.replaced, facts.counted_by) == (
        20,
        0,
        0,
        "words",
    )
    assert (facts.dataset.path, facts.dataset.images) == (
        "generated 32x24 jpeg",
        20 * each,
    )


def test_same_seed_same_plan() -> None:
    assert plan(6, seed=3) == plan(6, seed=3)
    assert not set(digests(plan(6, seed=3).measured)) & set(
        digests(plan(6, seed=4).measured)
    )
    assert plan(6, seed=3).facts.dataset.sha256 != plan(6, seed=4).facts.dataset.sha256


def test_the_question_the_answers_length_and_the_texts_tokens() -> None:
    one, several, asked = (
        plan(1).measured[0],
        plan(1, images_per_request=2).measured[0],
        plan(1, question="怎么样 ?", output_len=7),
    )
    assert (one.text, one.prompt_tokens, one.max_tokens) == (
        "Describe what you see in this picture in detail.",
        9,
        128,
    )
    assert "these 2 pictures" in several.text
    assert [
        (p.text, p.prompt_tokens, p.max_tokens) for p in asked.measured + asked.warmup
    ] == [("怎么样 ?", 2, 7)] * 2


def test_mean_bytes_is_the_mean_size_of_the_files(tmp_path: Path) -> None:
    folder_of(tmp_path, 5)
    found = plan(5, images=str(tmp_path))
    sizes = [file.stat().st_size for file in tmp_path.iterdir()]
    assert found.facts.dataset.mean_bytes == round(sum(sizes) / 5)


def test_files_come_in_seeded_random_order(tmp_path: Path) -> None:
    folder = str(folder_of(tmp_path, 12))
    orders = {
        tuple(digests(plan(12, seed=seed, images=folder).measured)) for seed in range(4)
    }
    assert len(orders) == 4
    assert len({frozenset(order) for order in orders}) == 1


def test_files_repeat_when_they_are_too_few_and_it_is_reported(tmp_path: Path) -> None:
    """Each comes as often as the others, give or take one; warm-up images are drawn, since no file
    is to spare."""
    found = plan(11, warmup=2, images=str(folder_of(tmp_path, 4)))
    assert sorted(Counter(digests(found.measured)).values()) == [2, 3, 3, 3]
    assert (found.facts.distinct, found.facts.repeated, found.facts.dataset.images) == (
        4,
        7,
        4,
    )
    assert len(set(digests(found.warmup)) - set(digests(found.measured))) == 2
    assert len(plan(11, fill=False, images=str(tmp_path)).measured) == 4


def test_spare_files_warm_up(tmp_path: Path) -> None:
    found = plan(4, warmup=2, images=str(folder_of(tmp_path, 6)))
    assert {image.width for prompt in found.warmup for image in prompt.images} == {24}
    assert len(set(digests(found.measured + found.warmup))) == 6


def test_copies_of_a_file_are_one_image(tmp_path: Path) -> None:
    """A server's cache knows them by content, and so must the count of repeats and the warm-up."""
    folder_of(tmp_path, 2)
    (tmp_path / "copy.png").write_bytes((tmp_path / "000.png").read_bytes())
    found = plan(2, warmup=1, images=str(tmp_path))
    assert (found.facts.dataset.images, found.facts.distinct, found.facts.repeated) == (
        2,
        2,
        0,
    )
    assert not set(digests(found.warmup)) & set(digests(found.measured))


def test_different_combinations_come_before_the_same_again(tmp_path: Path) -> None:
    """Five images, two a request: ten pairs. The first two have images that nobody has seen."""
    found = plan(10, images=str(folder_of(tmp_path, 5)), images_per_request=2)
    pairs = {
        frozenset(image.sha256 for image in prompt.images) for prompt in found.measured
    }
    assert len(pairs) == 10
    assert (found.facts.distinct, found.facts.repeated) == (2, 8)
    assert (
        len(plan(99, fill=False, images=str(tmp_path), images_per_request=2).measured)
        == 10
    )


@given(st.integers(0, 60), st.integers(1, 7), st.integers(1, 7), st.integers())
def test_hands_hold_different_images_and_repeat_as_late_as_can_be(
    count: int, images: int, each: int, seed: int
) -> None:
    if each > images:
        return
    hands = list(_deal(count, images, each, seed))
    assert [len(set(hand)) for hand in hands] == [each] * count
    combinations = comb(images, each)
    for start in range(0, count, combinations):
        round_of_hands = [
            frozenset(hand) for hand in hands[start : start + combinations]
        ]
        assert len(set(round_of_hands)) == len(round_of_hands)
    assert [place for hand in hands for place in hand][: images // each * each] == list(
        range(images // each * each)
    )[: count * each]


def test_drawings_repeat_beyond_the_bound_of_the_pool(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The same images in front, only fewer."""
    whole = digests(plan(30).measured)
    monkeypatch.setattr(vision, "POOL_BYTES", 10_000)
    found = plan(30, warmup=2)
    kept = found.facts.dataset.images
    assert 2 <= kept < 30
    assert (found.facts.distinct, found.facts.repeated, len(found.measured)) == (
        kept,
        30 - kept,
        30,
    )
    assert digests(found.measured)[:kept] == whole[:kept]
    assert len(set(digests(found.warmup)) - set(digests(found.measured))) == 2


def test_too_few_images_for_a_request_are_refused_in_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="has 2 of the 3 images of a request"):
        plan(4, images=str(folder_of(tmp_path, 2)), images_per_request=3)
    with pytest.raises(UsageError, match="there are no images at"):
        plan(4, images=str(tmp_path / "nothing"))
    (tmp_path / "000.png").write_bytes(b"broken")
    with pytest.raises(UsageError, match=r"000\.png cannot be read"):
        plan(4, images=str(tmp_path))


def test_images_of_a_hugging_face_data_set(tmp_path: Path) -> None:
    """A local one: a folder with a Parquet file whose column holds encoded pictures."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    folder_of(tmp_path, 6)
    files = [file.read_bytes() for file in sorted(tmp_path.glob("*.png"))]
    data = tmp_path / "data"
    data.mkdir()
    pq.write_table(
        pa.table({"image": [{"bytes": file, "path": None} for file in files]}),
        data / "train-00000-of-00001.parquet",
    )
    found = plan(4, warmup=1, images=f"hf:{data}")
    assert len(set(digests(found.measured + found.warmup))) == 5
    assert {
        (image.width, image.height)
        for prompt in found.measured
        for image in prompt.images
    } == {(24, 24)}
    assert found.facts.dataset.path == f"hf:{data}"


@pytest.fixture(scope="module", params=[True, False], ids=["pixtral", "llava"])
def seeing(
    request: pytest.FixtureRequest,
    tiny_model: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[tuple[Server, bool]]:
    """The real llama-server with a projector, and whether its images cost by their size."""
    dynamic = request.param
    projector = cached_projector(TINY.dim, dynamic=dynamic)
    flags = ("-np", "2", "-c", "8192", "--mmproj", str(projector))
    with embedded_server(
        tiny_model, tmp_path_factory.mktemp("seeing"), *flags
    ) as server:
        yield server, dynamic


def ask(
    url: str, images: Sequence[Image], max_tokens: int = 12
) -> tuple[Exchange, AnswerReader]:
    content = CHAT.content(Prompt("What is this?", images=tuple(images)), (), "")
    reader = AnswerReader()
    body = CHAT.build(
        content, Target(parse_url(url), LLAMA_SERVER, None), BodyOptions(), max_tokens
    )
    pieces = with_images(msgspec.json.encode(body), images)
    request = Request(
        "POST", "/v1/chat/completions", (("Content-Type", "application/json"),), pieces
    )
    return Transport.of_this_process().send(
        parse_url(url).resolved(), request, reader, Timeouts()
    ), reader


def prompt_tokens(url: str, images: Sequence[Image]) -> int:
    exchange, reader = ask(url, images)
    assert exchange.status == 200
    assert reader.failure(exchange) is None
    assert output_of(reader) == (12, "usage")
    assert len(reader.token_ns) > 1
    tokens, _ = prompt_of(reader)
    assert tokens is not None
    return tokens


def test_the_real_server_takes_drawings(seeing: tuple[Server, bool]) -> None:
    """Two different ones in a request are answered token by token and cost additional prompt
    tokens."""
    server, dynamic = seeing
    assert (
        requests.get(f"{server.url}/props", timeout=30).json()["modalities"]["vision"]
        is True
    )
    text = prompt_tokens(server.url, [])
    small = drawn(2, (112, 84), "jpeg", 0)
    one, two = (prompt_tokens(server.url, small[:count]) - text for count in (1, 2))
    assert one >= 8
    assert two == pytest.approx(2 * one, abs=2)
    (large,) = drawn(1, (448, 336), "png", 0)
    costs = prompt_tokens(server.url, [large]) - text
    assert costs > 4 * one if dynamic else costs == one


def test_answers_about_images_run_until_max_tokens(seeing: tuple[Server, bool]) -> None:
    """End-of-text is never sampled: dimension 0 stays the constant that bars it."""
    server, _ = seeing
    for image in drawn(2, (112, 112), "jpeg", 7):
        exchange, reader = ask(server.url, [image], 300)
        assert reader.failure(exchange) is None
        assert (reader.finish_reason, output_of(reader)) == ("length", (300, "usage"))


@pytest.mark.parametrize("dynamic", [True, False])
@pytest.mark.parametrize("dim", [TINY.dim, ModelSize().dim])
def test_the_projector_writes_the_constant_and_nothing_else_to_dimension_0(
    tmp_path: Path, dim: int, dynamic: bool
) -> None:
    make_projector(tmp_path / "mmproj.gguf", dim, dynamic=dynamic)
    tensors = {
        tensor.name: np.array(tensor.data)
        for tensor in gguf.GGUFReader(tmp_path / "mmproj.gguf").tensors
    }
    assert not tensors["mm.2.weight"][0].any()
    assert tensors["mm.2.bias"].tolist() == [4.0] + [0.0] * (dim - 1)


def test_projectors_are_made_once_and_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    first = cached_projector(64)
    made_at = first.stat().st_mtime_ns
    assert cached_projector(64).stat().st_mtime_ns == made_at
    assert (
        len(
            {
                cached_projector(64, dynamic=dynamic, seed=seed)
                for dynamic in (True, False)
                for seed in (0, 1)
            }
        )
        == 4
    )
    make_projector(tmp_path / "again.gguf", 64)
    assert (tmp_path / "again.gguf").read_bytes() == first.read_bytes()
