"""ShareGPT: vLLM's sampling to the prompt, the sample that comes with llama-load, and broken
files."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Sequence
from pathlib import Path

import pytest

from llama_load.ground.bundled import bundled
from llama_load.ground.errors import UsageError
from llama_load.loadgen.workloads.prompt_plan import Plan, PlanRequest
from llama_load.loadgen.workloads.sharegpt import ShareGPT
from llama_load.servers.counting import EstimatedCounter, LocalCounter
from tests.loadgen.workloads.data import first_exchanges


class Words:
    """Counts words: a tokenizer simple enough to work cases by hand."""

    source = "words"

    def count(self, texts: Sequence[str]) -> list[int]:
        return [len(text.split()) for text in texts]


def conversation(
    number: int, prompt_words: int, answer_words: int, turns: int = 2
) -> dict:
    texts = [
        f"q{number} " + "w " * (prompt_words - 1),
        "a " * answer_words,
        "more",
        "and more",
    ]
    return {
        "id": f"c{number}",
        "conversations": [{"from": "human", "value": text} for text in texts[:turns]],
    }


def write(folder: Path, entries: list) -> Path:
    path = folder / "data.json"
    path.write_text(json.dumps(entries, ensure_ascii=False), encoding="utf-8")
    return path


def plan(path: Path | None, num_prompts: int, **changed: object) -> Plan:
    wanted = {
        "num_prompts": num_prompts,
        "fill": True,
        "warmup": 1,
        "seed": 0,
        "counter": Words(),
    }
    wanted["dataset_path"] = None if path is None else str(path)
    return ShareGPT().plan(PlanRequest(**wanted | changed))


def vllms_sampling(
    entries: list, count: int, seed: int, output_len: int | None
) -> list[tuple[str, int]]:
    """The rules of vllm bench serve, written down from facts: what our sampling must agree with."""
    data = [entry for entry in entries if len(entry["conversations"]) >= 2]
    random.seed(seed)
    random.shuffle(data)
    samples: list[tuple[str, int]] = []
    for entry in data:
        if len(samples) == count:
            break
        prompt, answer = (entry["conversations"][i]["value"] for i in (0, 1))
        prompt_len = len(prompt.split())
        output = len(answer.split()) if output_len is None else output_len
        if (
            prompt_len < 4
            or (output_len is None and output < 4)
            or prompt_len > 1024
            or prompt_len + output > 2048
        ):
            continue
        samples.append((prompt, output))
    if len(samples) < count:
        random.seed(seed)
        samples += random.choices(samples, k=count - len(samples))
    return samples


@pytest.mark.parametrize("seed", [0, 1, 42])
@pytest.mark.parametrize("output_len", [None, 16])
@pytest.mark.parametrize("count", [5, 40, 200])
def test_the_prompts_are_those_of_vllm_bench_serve(
    tmp_path: Path, seed: int, output_len: int | None, count: int
) -> None:
    """Lengths on both sides of every limit; 200 prompts out of some 60 that qualify."""
    draw = random.Random(7)
    entries = [
        conversation(
            n,
            draw.choice([2, 3, 4, 30, 1024, 1025]),
            draw.choice([1, 3, 4, 100, 1024, 1030]),
            draw.choice([1, 2, 2, 4]),
        )
        for n in range(200)
    ]
    found = plan(write(tmp_path, entries), count, seed=seed, output_len=output_len)
    assert [
        (prompt.text, prompt.max_tokens) for prompt in found.measured
    ] == vllms_sampling(entries, count, seed, output_len)


def test_warmup_prompts_are_none_of_the_measured(tmp_path: Path) -> None:
    """Also when the file has none to spare."""
    path = write(tmp_path, [conversation(n, 10, 10) for n in range(6)])
    for count in (3, 6, 9):
        found = plan(path, count, warmup=4)
        assert len(found.warmup) == 4
        assert not {prompt.text for prompt in found.warmup} & {
            prompt.text for prompt in found.measured
        }


def test_prompts_that_do_not_fit_are_replaced_and_counted(tmp_path: Path) -> None:
    path = write(
        tmp_path, [conversation(n, 100 if n % 3 == 0 else 10, 10) for n in range(30)]
    )
    found = plan(path, 10, fits=lambda prompt, output: prompt + output <= 50)
    assert len(found.measured) == 10
    assert all(prompt.prompt_tokens == 10 for prompt in found.measured)
    assert found.facts.replaced > 0
    with pytest.raises(
        UsageError, match=r"longer than a slot.* shorter answers with --output-len"
    ):
        plan(path, 10, fits=lambda prompt, output: False)
    with pytest.raises(UsageError, match="shorter answers with --max-tokens"):
        plan(path, 10, fits=lambda prompt, output: False, answer_len=9999)


def test_repeats_are_reported(tmp_path: Path) -> None:
    found = plan(write(tmp_path, [conversation(n, 10, 10) for n in range(4)]), 10)
    assert (found.facts.distinct, found.facts.repeated, len(found.measured)) == (
        4,
        6,
        10,
    )
    assert (
        len(plan(write(tmp_path, [conversation(0, 10, 10)]), 10, fill=False).measured)
        == 1
    )


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"", "is empty"),
        (b"  \n", "is empty"),
        (b'[{"id": 1, "conversations": [', "not valid JSON"),
        (b'[{"id": "\xe4\xbd"}]', "not valid JSON"),
        (b'{"a": 1}', "ShareGPT's layout"),
        (b'[{"prompt": "hello", "answer": "there"}]', "no conversation of two turns"),
        (b'[{"conversations": [{"from": "human", "value": 5}]}]', "ShareGPT's layout"),
        (b"[]", "no conversation of two turns"),
        (
            b'[{"conversations": [{"value": "a"}, {"value": "b"}]}]',
            "none of the 1 conversations",
        ),
    ],
)
def test_broken_files_are_refused_in_a_sentence(
    tmp_path: Path, content: bytes, sentence: str
) -> None:
    (tmp_path / "data.json").write_bytes(content)
    with pytest.raises(UsageError, match=sentence):
        plan(tmp_path / "data.json", 3)


def test_half_an_emoji_and_missing_values_cost_one_conversation_at_most(
    tmp_path: Path,
) -> None:
    """As scraped dumps have them: a lone surrogate, escaped, and a value that is null."""
    good = [conversation(n, 10, 10) for n in range(3)]
    text = json.dumps(
        [*good, {"conversations": [{"value": None}, {"value": "a b c d"}]}]
    )
    (tmp_path / "data.json").write_text(text.replace("q1", "q1 \\ud83d"))
    found = plan(tmp_path / "data.json", 3)
    assert len({prompt.text for prompt in found.measured}) == 3
    assert any("?" in prompt.text for prompt in found.measured)


def test_missing_files_and_folders_are_refused_in_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="there is no data set"):
        plan(tmp_path / "nothing.json", 3)
    with pytest.raises(UsageError, match="is not a regular file"):
        plan(tmp_path, 3)


def test_the_sample_that_comes_with_llama_load() -> None:
    """At least 200 conversations, English and Chinese, prompts and answers spread like ShareGPT's,
    a licence line."""
    path = bundled("datasets/sharegpt_sample.json")
    conversations, _ = first_exchanges(path)
    assert len(conversations) >= 200
    assert len({question for _, question, _ in conversations}) == len(conversations)
    assert "licence" in json.loads(path.read_text(encoding="utf-8"))[0]
    chinese = sum(
        bool(re.search(r"[\u4e00-\u9fff]", question))
        for _, question, _ in conversations
    )
    assert chinese >= 60
    counts = EstimatedCounter()
    prompts = sorted(counts.count([question for _, question, _ in conversations]))
    answers = sorted(counts.count([answer for _, _, answer in conversations]))
    assert prompts[0] <= 10
    assert 600 <= prompts[-1] <= 1024
    assert answers[0] <= 20
    assert 600 <= answers[-1] <= 1024
    assert 20 <= prompts[len(prompts) // 2] <= 200
    assert len(plan(None, 150, counter=EstimatedCounter()).measured) == 150


def test_a_local_tokenizer_counts_as_the_server_does(tiny_model: Path) -> None:
    """The model's own tokenizer.json is next to it; the folder may be given as well."""
    texts = ["Hello there", "你好，世界 😀", ""]
    local = LocalCounter(tiny_model.parent).count(texts)
    assert local == LocalCounter(tiny_model.parent / "tokenizer.json").count(texts)
    assert local[2] == 0
    assert 1 <= local[0] <= 4
    with pytest.raises(UsageError, match=r"no tokenizer\.json"):
        LocalCounter(tiny_model.parent / "nothing")
    with pytest.raises(UsageError, match=r"is not a tokenizer\.json"):
        LocalCounter(Path(__file__))
