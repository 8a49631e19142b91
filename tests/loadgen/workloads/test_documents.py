"""Long documents: sizes, prefix-cache modes, slots, folders, encodings."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from llama_load.ground.errors import UsageError
from llama_load.loadgen.workloads import documents
from llama_load.loadgen.workloads.documents import (
    CHINESE_QUESTIONS,
    QUESTIONS,
    Documents,
)
from llama_load.loadgen.workloads.prompt_plan import Plan, PlanRequest, Traffic
from llama_load.loadgen.workloads.text_files import decoded, text_files
from llama_load.servers.counting import (
    CHARS_PER_TOKEN,
    EstimatedCounter,
    LocalCounter,
    TokenCounter,
)

CHINESE = (
    "缓存是最容易让人上当的地方，提示词的开头完全一样时，服务器可以跳过已经算过的部分。🙂\n"
    * 4
)


class Pieces:
    """Counts words, signs and Chinese characters, and one token for the beginning; remembers how
    often it was asked."""

    source = "pieces"

    def __init__(self) -> None:
        self.calls = 0
        self.chars = 0

    def count(self, texts: Sequence[str]) -> list[int]:
        self.calls += 1
        self.chars += sum(map(len, texts))
        return [
            1 + len(re.findall(r"[\u4e00-\u9fff]|\w+|[^\w\s]", text)) for text in texts
        ]


def plan(
    counter: TokenCounter | None = None,
    *,
    num_prompts: int = 6,
    warmup: int = 2,
    seed: int = 0,
    **flags: object,
) -> Plan:
    known = {
        name: flags.pop(name)
        for name in ("fill", "output_len", "room", "fits")
        if name in flags
    }
    wanted = {
        "num_prompts": num_prompts,
        "fill": True,
        "warmup": warmup,
        "seed": seed,
        "counter": counter or Pieces(),
    }
    return Documents().plan(PlanRequest(**wanted | known, traffic=Traffic(**flags)))


def file(folder: Path, name: str, content: str | bytes) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def document_of(text: str) -> str:
    """A prompt without its question."""
    return text.rpartition("\n\n")[0]


@pytest.mark.parametrize("cache", ["different", "shared", "as-is"])
def test_prompt_tokens_are_those_of_the_whole_prompt(cache: str) -> None:
    """Within two tokens, where the parts were counted for themselves."""
    found = plan(num_prompts=12, document_tokens=3000, document_cache=cache)
    prompts = found.measured + found.warmup
    counts = Pieces().count([prompt.text for prompt in prompts])
    assert all(
        abs(count - prompt.prompt_tokens) <= 2
        for count, prompt in zip(counts, prompts, strict=True)
    )


@pytest.mark.parametrize(
    "counter", [Pieces(), EstimatedCounter()], ids=["pieces", "estimate"]
)
@pytest.mark.parametrize(
    "text",
    ["short. ", CHINESE, "def f(x):\n    return x  # 注释 🙂\n" * 900],
    ids=["tiny", "chinese", "code"],
)
@pytest.mark.parametrize("tokens", [200, 11_000])
def test_documents_are_cut_or_repeated_to_the_wanted_tokens(
    tmp_path: Path, counter: TokenCounter, text: str, tokens: int
) -> None:
    """Within one percent."""
    found = plan(
        counter,
        num_prompts=1,
        document=file(tmp_path, "a.txt", text),
        document_tokens=tokens,
        document_cache="as-is",
    )
    assert counter.count([document_of(found.measured[0].text)])[0] == pytest.approx(
        tokens, rel=0.011
    )


def test_by_default_the_document_has_11000_tokens_and_the_answer_128(
    tiny_model: Path,
) -> None:
    """As the mixed reference measurement; counted by a real tokenizer."""
    counter = LocalCounter(tiny_model.parent)
    found = plan(counter, num_prompts=2)
    for prompt in found.measured:
        assert prompt.prompt_tokens == pytest.approx(11_000, rel=0.01)
        assert prompt.max_tokens == 128
        assert counter.count([prompt.text])[0] == pytest.approx(
            prompt.prompt_tokens, abs=3
        )
    assert plan(output_len=40).measured[0].max_tokens == 40


def test_the_counter_sees_a_long_document_only_a_few_times() -> None:
    counter = Pieces()
    found = plan(counter, num_prompts=200)
    assert len({prompt.text for prompt in found.measured}) == 200
    assert counter.chars < 8 * len(found.measured[0].text)


def test_different_prompts_share_no_beginning() -> None:
    """Random text comes first, from the first character on, in warm-up prompts too."""
    found = plan(num_prompts=50, document_tokens=100)
    beginnings = [prompt.text[:32] for prompt in found.measured + found.warmup]
    assert all(re.fullmatch(r"[0-9a-f]{32}", beginning) for beginning in beginnings)
    assert len({beginning[:16] for beginning in beginnings}) == 52
    assert len({prompt.text.rpartition("\n\n")[2] for prompt in found.measured}) == len(
        QUESTIONS
    )


def test_shared_prompts_have_the_same_bytes_before_different_questions(
    tmp_path: Path,
) -> None:
    """Questions that run out are numbered; of a folder one document is taken."""
    file(tmp_path, "b.txt", "other words " * 50)
    file(tmp_path, "a.txt", "words " * 50)
    for flags in ({"question": "Why? 为什么"}, {}, {"document": tmp_path}):
        found = plan(
            num_prompts=30, document_tokens=100, document_cache="shared", **flags
        )
        texts = [prompt.text for prompt in found.measured + found.warmup]
        assert len(set(texts)) == 32
        assert len({document_of(text) for text in texts}) == 1
        assert (found.facts.distinct, found.facts.repeated) == (30, 0)


def test_as_is_prompts_are_documents_in_turn_and_nothing_else(tmp_path: Path) -> None:
    """Two files, each with every question, then they come again; warm-up prompts begin
    otherwise."""
    for name in ("a", "b"):
        file(tmp_path, f"{name}.txt", f"{name} text. " * 50)
    found = plan(
        num_prompts=20, document=tmp_path, document_tokens=100, document_cache="as-is"
    )
    texts = [prompt.text for prompt in found.measured]
    assert {text[0] for text in texts[::2]} != {text[0] for text in texts[1::2]}
    assert (len(set(texts)), found.facts.distinct, found.facts.repeated) == (16, 16, 4)
    assert texts[16:] == texts[:4]
    assert not {prompt.text[:5] for prompt in found.warmup} & {
        text[:5] for text in texts
    }
    assert (
        len(
            plan(
                num_prompts=20,
                fill=False,
                document=tmp_path,
                document_cache="as-is",
                question="Why?",
            ).measured
        )
        == 2
    )


def test_documents_are_cut_to_the_room_of_a_slot_and_counted() -> None:
    asked = []
    found = plan(num_prompts=20, room=lambda answer: asked.append(answer) or 1000)
    assert set(asked) == {128}
    assert found.facts.cut == 20
    counts = Pieces().count([prompt.text for prompt in found.measured + found.warmup])
    assert 950 <= max(counts) <= 1000
    assert all(900 <= prompt.prompt_tokens <= 1000 for prompt in found.measured)
    assert plan(room=lambda _: 20_000).facts.cut == 0
    assert plan(room=lambda _: None, fits=lambda *_: False).facts.cut == 0


@given(
    room=st.integers(60, 4000),
    tokens=st.integers(1, 5000),
    cache=st.sampled_from(["different", "shared", "as-is"]),
)
def test_no_prompt_is_longer_than_the_room(room: int, tokens: int, cache: str) -> None:
    found = plan(
        num_prompts=3, document_tokens=tokens, document_cache=cache, room=lambda _: room
    )
    assert all(prompt.prompt_tokens <= room for prompt in found.measured + found.warmup)
    assert all(
        count <= room
        for count in Pieces().count([prompt.text for prompt in found.measured])
    )


def test_no_room_for_a_document_is_said_in_a_sentence() -> None:
    with pytest.raises(
        UsageError,
        match=r"room for 12 prompt tokens with an answer of 128, too few for a document",
    ):
        plan(room=lambda _: 12)


def test_questions_are_in_the_language_of_the_document(tmp_path: Path) -> None:
    code = "# 这个函数计算两个数的和，然后返回结果\ndef add(a, b): return a + b\n"
    for text, questions in (
        (CHINESE, CHINESE_QUESTIONS),
        (code, CHINESE_QUESTIONS),
        ("Some plain words. 你好", QUESTIONS),
    ):
        found = plan(
            num_prompts=8, document=file(tmp_path, "a.txt", text), document_tokens=100
        )
        assert {prompt.text.rpartition("\n\n")[2] for prompt in found.measured} == set(
            questions
        )


def test_the_same_seed_gives_the_same_plan_and_another_another() -> None:
    assert plan(seed=3) == plan(seed=3)
    assert plan(seed=3).measured[0].text != plan(seed=4).measured[0].text


def test_more_prompts_do_not_change_the_first_ones() -> None:
    few, many = plan(num_prompts=5), plan(num_prompts=20)
    assert [prompt.text[:32] for prompt in few.measured] == [
        prompt.text[:32] for prompt in many.measured[:5]
    ]


def test_a_plan_beyond_the_memory_bound_repeats_prompts_in_turn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(documents, "MOST_TOKENS", 1000)
    found = plan(num_prompts=25, document_tokens=100)
    assert (found.facts.distinct, found.facts.repeated, len(found.measured)) == (
        10,
        15,
        25,
    )
    assert found.measured[10] is found.measured[0]
    assert (
        len(
            {prompt.text for prompt in found.warmup}
            - {prompt.text for prompt in found.measured}
        )
        == 2
    )


def test_what_the_manifest_receives(tmp_path: Path) -> None:
    path = file(tmp_path, "a.txt", "words " * 100)
    facts = plan(document=path, document_tokens=64).facts
    assert (facts.dataset.path, facts.dataset.files, facts.dataset.cache) == (
        str(path),
        1,
        "different",
    )
    assert (
        facts.counted_by,
        facts.distinct,
        facts.repeated,
        facts.replaced,
        facts.cut,
    ) == ("pieces", 6, 0, 0, 0)


@pytest.mark.parametrize(
    "encoding",
    ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "utf-32", "gb18030"],
    ids=lambda name: name,
)
def test_chinese_text_in_any_usual_encoding_is_read(encoding: str) -> None:
    """UTF-16 without its mark needs some ASCII, here the line ends."""
    assert decoded(CHINESE.encode(encoding)) == CHINESE


def test_western_text_in_its_old_encoding_is_read() -> None:
    text = "Le café était fermé; “naïve” users waited — the résumé says so. " * 3
    assert decoded(text.encode("cp1252")) == text


def test_a_few_broken_characters_do_not_make_a_text_binary() -> None:
    broken = (
        CHINESE.encode()[:100] + b"\xff" + CHINESE.encode()[100:] + "尾".encode()[:2]
    )
    assert "缓存是最容易" in (decoded(broken) or "")


@given(st.text(st.characters(exclude_categories=("Cs", "Cc")), min_size=1))
@example("what was lost: \ufffd")
def test_every_text_in_utf8_is_read_as_it_is(text: str) -> None:
    assert decoded(text.encode()) == text.removeprefix("\ufeff")


@pytest.mark.parametrize(
    "data",
    [
        b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\1\0" + bytes(range(256)),
        b"\x7fELF\2\1\1" + bytes(64),
        bytes(range(1, 256)) * 20,
        b"\0",
    ],
    ids=["png", "elf", "bytes", "zero"],
)
def test_binary_files_are_refused_alone_and_passed_over_in_a_folder(
    tmp_path: Path, data: bytes
) -> None:
    binary = file(tmp_path, "data.bin", data)
    with pytest.raises(UsageError, match=r"data\.bin is not text"):
        plan(document=binary)
    with pytest.raises(UsageError, match="contains no text file"):
        plan(document=tmp_path)
    file(tmp_path, "a.txt", "words")
    assert [found.path.name for found in text_files(tmp_path, 0)] == ["a.txt"]


def test_a_folder_is_read_to_its_depth_without_hidden_and_empty_files(
    tmp_path: Path,
) -> None:
    """In an order that the seed decides."""
    names = ["a.md", "b/c.py", "b/d/e.txt", "f.c", "g.h"]
    for name in names:
        file(tmp_path, name, f"text of {name}")
    for name in (".git/config", "b/.hidden", "b/empty.txt"):
        file(tmp_path, name, "" if "empty" in name else "hidden")
    orders = [
        [
            found.path.relative_to(tmp_path).as_posix()
            for found in text_files(tmp_path, seed)
        ]
        for seed in range(6)
    ]
    assert all(sorted(order) == names for order in orders)
    assert len(set(map(tuple, orders))) > 1


def test_missing_and_empty_documents_are_refused_in_a_sentence(tmp_path: Path) -> None:
    for path, sentence in (
        (tmp_path / "nothing.txt", "there is no document at"),
        (file(tmp_path, "empty.txt", " \n"), r"empty\.txt is empty"),
        (tmp_path, "contains no text file"),
    ):
        with pytest.raises(UsageError, match=sentence):
            plan(document=path)


def test_a_huge_file_costs_no_more_counting_than_what_is_sent_of_it(
    tmp_path: Path,
) -> None:
    counter = Pieces()
    plan(
        counter,
        document=file(tmp_path, "log.txt", "one line of a log\n" * 200_000),
        document_tokens=500,
    )
    assert counter.chars < 10 * 500 * CHARS_PER_TOKEN + 2000
