"""Inputs of embeddings requests: passages, questions, batches, slots."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llama_load.ground.bundled import bundled
from llama_load.ground.errors import UsageError
from llama_load.loadgen.workloads.embeddings import Queries, TextBatches, passages
from llama_load.loadgen.workloads.prompt_plan import Plan, PlanRequest, Traffic


class Pieces:
    """Counts words and Chinese characters."""

    source = "pieces"

    def count(self, texts: Sequence[str]) -> list[int]:
        return [len(re.findall(r"[\u4e00-\u9fff]|\w+", text)) for text in texts]


def plan(
    *,
    num_prompts: int = 5,
    warmup: int = 1,
    seed: int = 0,
    workload: TextBatches | None = None,
    **flags: object,
) -> Plan:
    known = {
        name: flags.pop(name)
        for name in ("fill", "fits", "dataset_path")
        if name in flags
    }
    wanted = {
        "num_prompts": num_prompts,
        "fill": True,
        "warmup": warmup,
        "seed": seed,
        "counter": Pieces(),
    }
    return (workload or TextBatches()).plan(
        PlanRequest(**wanted | known, traffic=Traffic(**flags))
    )


def questions(folder: Path, count: int, words: int = 6) -> str:
    entries = [
        {
            "id": str(n),
            "conversations": [
                {"from": "human", "value": f"q{n} " + "w " * (words - 1)},
                {"from": "gpt", "value": "a"},
            ],
        }
        for n in range(count)
    ]
    (folder / "data.json").write_text(json.dumps(entries))
    return str(folder / "data.json")


def test_the_questions_of_the_sample_conversations_are_the_default() -> None:
    found = plan(batch_size=4)
    known = {
        entry["conversations"][0]["value"]
        for entry in json.loads(bundled("datasets/sharegpt_sample.json").read_bytes())
        if entry["conversations"]
    }
    assert all(text in known for prompt in found.measured for text in prompt.inputs)
    assert found.facts.dataset.path.endswith("sharegpt_sample.json")


def test_a_batch_has_this_many_texts_and_the_sum_of_their_tokens(
    tmp_path: Path,
) -> None:
    found = plan(batch_size=3, dataset_path=questions(tmp_path, 30))
    assert [
        (len(prompt.inputs), prompt.prompt_tokens, prompt.text, prompt.max_tokens)
        for prompt in found.measured
    ] == [(3, 18, "", None)] * 5


def test_a_query_comes_with_documents_and_is_computed_with_each(tmp_path: Path) -> None:
    """Nine texts in requests of a query and two documents: two measured and one to warm up, then
    one that is made up."""
    found = plan(
        workload=Queries(),
        num_prompts=2,
        batch_size=2,
        dataset_path=questions(tmp_path, 9),
    )
    texts = [
        text
        for prompt in found.measured + found.warmup
        for text in (prompt.text, *prompt.inputs)
    ]
    assert (len(set(texts)), len(found.warmup)) == (9, 1)
    assert [
        (len(prompt.inputs), prompt.prompt_tokens) for prompt in found.measured
    ] == [(2, 6 + 6 + 2 * 6)] * 2
    assert found.facts.dataset.batch_size == 2
    (made_up,) = plan(
        workload=Queries(),
        num_prompts=3,
        batch_size=2,
        dataset_path=questions(tmp_path, 9),
    ).warmup
    assert made_up.text
    assert len(made_up.inputs) == 2


def test_a_query_and_a_document_fit_a_slot_together(tmp_path: Path) -> None:
    path = questions(tmp_path, 9)
    assert (
        plan(
            workload=Queries(), dataset_path=path, fits=lambda tokens, _: tokens <= 12
        ).facts.replaced
        == 0
    )
    with pytest.raises(
        UsageError, match=r"all 9 texts of .* are longer than half a slot"
    ):
        plan(workload=Queries(), dataset_path=path, fits=lambda tokens, _: tokens <= 11)
    with pytest.raises(UsageError, match="too few for a batch of 9 and a query"):
        plan(workload=Queries(), batch_size=9, dataset_path=path)


def test_no_text_is_asked_for_twice_before_all_have_been(tmp_path: Path) -> None:
    """31 texts in batches of 5: five measured, one to warm up, one text left over."""
    found = plan(batch_size=5, dataset_path=questions(tmp_path, 31))
    inputs = [
        text for prompt in found.measured + found.warmup for text in prompt.inputs
    ]
    assert (len(inputs), len(set(inputs))) == (30, 30)


def test_batches_that_run_out_are_repeated_and_reported(tmp_path: Path) -> None:
    path = questions(tmp_path, 8)
    found = plan(num_prompts=10, batch_size=2, dataset_path=path)
    assert (len(found.measured), found.facts.distinct, found.facts.repeated) == (
        10,
        4,
        6,
    )
    assert len(found.warmup) == 1
    assert len(found.warmup[0].inputs) == 2
    assert found.warmup[0] not in found.measured
    assert (
        len(plan(num_prompts=10, batch_size=2, dataset_path=path, fill=False).measured)
        == 4
    )


def test_texts_that_do_not_fit_are_left_out_one_by_one(tmp_path: Path) -> None:
    """What has to fit a slot is a text, not the batch."""
    document = tmp_path / "a.txt"
    document.write_text(
        "long " * 40 + "\n" + "\n".join(f"s{n} words" for n in range(80))
    )
    found = plan(
        batch_size=2,
        document=document,
        input_len=30,
        fits=lambda tokens, answer: tokens + answer <= 31,
    )
    assert all(
        count <= 31
        for prompt in found.measured
        for count in Pieces().count(prompt.inputs)
    )
    path = questions(tmp_path, 8)
    with pytest.raises(UsageError, match=r"all 8 texts of .* are longer than a slot"):
        plan(dataset_path=path, fits=lambda *_: False)
    found = plan(dataset_path=path, num_prompts=3, fits=lambda tokens, _: tokens <= 6)
    assert found.facts.replaced == 0


@pytest.mark.parametrize("tokens", [None, 40, 400])
def test_passages_have_about_the_wanted_tokens(tokens: int | None) -> None:
    """128 if nobody says; never much more, and a third less where a sentence ends there."""
    path = bundled("datasets/sample_document.md")
    found = plan(num_prompts=50, document=path, input_len=tokens)
    counts = sorted(
        count for prompt in found.measured for count in Pieces().count(prompt.inputs)
    )
    assert 0.5 * (tokens or 128) <= counts[len(counts) // 2] <= 1.1 * (tokens or 128)
    assert all(
        text in path.read_text(encoding="utf-8")
        for prompt in found.measured
        for text in prompt.inputs
    )


def test_passages_come_from_all_files_of_a_folder(tmp_path: Path) -> None:
    for name in "abc":
        (tmp_path / f"{name}.txt").write_text(
            " ".join(f"{name}{n}" for n in range(100))
        )
    found = plan(num_prompts=15, document=tmp_path, input_len=20)
    assert {prompt.inputs[0][0] for prompt in found.measured} == {"a", "b", "c"}


def test_passages_end_with_sentences_and_words() -> None:
    text = "One short sentence. Another one follows here. 这是第一句话。这是第二句话。The end"
    assert list(passages(text, 24)) == [
        "One short sentence.",
        "Another one follows",
        "here. 这是第一句话。这是第二句话。",
        "The end",
    ]


@given(st.text(), st.integers(1, 50))
def test_passages_together_are_the_text(text: str, chars: int) -> None:
    pieces = list(passages(text, chars))
    assert "".join("".join(pieces).split()) == "".join(text.split())
    assert all(0 < len(piece) <= chars for piece in pieces)


def test_too_few_texts_for_a_batch_are_reported_in_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(
        UsageError, match=r"has 3 different usable texts, too few for a batch of 8"
    ):
        plan(batch_size=8, dataset_path=questions(tmp_path, 3))
    with pytest.raises(UsageError, match="there is no document"):
        plan(document=tmp_path / "nothing")


def test_the_same_seed_gives_the_same_plan_and_another_another() -> None:
    for flags in (
        {},
        {"document": bundled("datasets/sample_document.md"), "input_len": 30},
    ):
        assert plan(seed=2, **flags) == plan(seed=2, **flags)
        assert plan(seed=2, **flags) != plan(seed=3, **flags)
