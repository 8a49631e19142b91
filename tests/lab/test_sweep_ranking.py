"""What a sweep does not rank: what `compare` would refuse."""

from __future__ import annotations

import re
from typing import Any

import pytest

from llama_load.analysis.comparison.side import MeasuredRun
from llama_load.lab.sweep import sweep_words as sweep_words_module
from llama_load.lab.sweep.effects import effects
from llama_load.lab.sweep.plan import Plan
from llama_load.lab.sweep.ranking import same_files
from llama_load.lab.sweep.rows import Row
from llama_load.lab.sweep.sweep_tables import make_tables
from tests.analysis.comparison.sides import run
from tests.lab.test_sweep_tables import plan

TEXT = """
servers: {{a: {{llama-server: {{model: m.gguf, args: "-t {{threads}}"}}}}}}
vary: {{threads: {}}}
load: {}
tables: [{{columns: [{}]}}]
"""
# Places of runs in the order A B B A A B.
ORDER = {"4": (0, 3, 4), "8": (1, 2, 5)}


def plan_with(
    columns: str = "threads, output_throughput",
    vary: str = "{values: [4, 8]}",
    load: str = "{u: 1}",
) -> Plan:
    return plan(TEXT.format(vary, load, columns))


def row(
    threads: str, speed: float, measured: MeasuredRun | None = None, **facts: str
) -> Row:
    figures = {
        "output_throughput": speed,
        "mean_ttft_ms": 1000 / speed,
        "completed": 64,
    }
    return Row(
        facts={"server": "a", "load": "u=1", "concurrency": "c=1", "threads": threads}
        | facts,
        repeat=1,
        place=int(threads),
        figures=figures,
        run=run() if measured is None else measured,
    )


def shown(plan: Plan, rows: list[Row]) -> tuple[list[bool], list[str]]:
    """Whether the last cell of each row is marked as the best, and the notes."""
    (table,) = make_tables(plan, rows)
    return [cells[-1].is_best for cells in table.cells], list(table.notes)


SHORTER = run(values={"total_input_tokens": 2000}, prompts=frozenset("abc"))


@pytest.mark.parametrize(
    ("other", "why"),
    [
        (
            {"prompts": frozenset("xyz")},
            "not ranked against each other: threads=4 and threads=8 were sent different prompts",
        ),
        (
            {"prompts": frozenset("abc"), "values": {"total_input_tokens": 2000}},
            "prompts of 100 and 31 tokens in the mean",
        ),
        (
            {"prompts": frozenset("abc"), "values": {"total_output_tokens": 9000}},
            "answers of 200 and 141 tokens in the mean",
        ),
        (
            {"prompts": frozenset("abc"), "cached_tokens": 6400},
            "of the prompt tokens came from a cache",
        ),
        (
            {"prompts": frozenset("abc"), "words": ("CLIENT-BOUND",), "why": "late"},
            "† threads=8: late",
        ),
    ],
)
def test_rows_that_compare_would_refuse_are_not_ranked(
    other: dict[str, Any], why: str
) -> None:
    """Nor is an effect of the setting judged from them."""
    base = run(prompts=frozenset("abc"), cached_tokens=0)
    rows = [row("4", 10.0, base), row("8", 20.0, run(**({"cached_tokens": 0} | other)))]
    assert shown(plan_with(), [rows[0], row("8", 20.0, base)]) == ([False, True], [])
    best, notes = shown(plan_with(), rows)
    assert best == [False, False] and any(why in note for note in notes)
    for effect in effects(plan_with(), rows):
        assert (
            effect.ratio is None
            and "no two of its values have comparable results" in effect.text
            and "left out: " in effect.text
        )


def test_another_machine_of_the_client_spoils_ttft_alone() -> None:
    rows = [row("4", 10.0, run(client="a")), row("8", 20.0, run(client="b"))]
    assert shown(plan_with(), rows) == ([False, True], [])
    best, (note,) = shown(plan_with("threads, mean_ttft_ms"), rows)
    assert best == [False, False] and "the client ran on different machines" in note


def test_a_mark_has_its_note_in_a_column_without_a_best_too() -> None:
    columns = "threads, {value: output_throughput, best: none}"
    slow = run(words=("CLIENT-BOUND",), why="the client was late")
    (table,) = make_tables(plan_with(columns), [row("4", 10.0), row("8", 20.0, slow)])
    assert [cells[-1].text for cells in table.cells] == ["10.00", "20.00 †"]
    assert table.notes == ("† threads=8: the client was late",)


def test_replaced_prompts_reach_the_row() -> None:
    notes = shown(plan_with(), [row("4", 10.0), row("8", 20.0, run(replaced=159))])[1]
    assert notes == [
        "threads=8: 159 planned prompts did not fit a slot and were replaced by others"
    ]


def test_each_load_has_its_own_best_and_one_set_up_shows_its_best_load() -> None:
    users = [run(load={"concurrency": number}) for number in "18"]
    rows = []
    for threads, speeds in (("4", (10.0, 30.0)), ("8", (20.0, 25.0))):
        for number, (measured, speed) in enumerate(zip(users, speeds, strict=True)):
            rows.append(row(threads, speed, measured, concurrency=f"c={'18'[number]}"))
    assert shown(plan_with("threads, concurrency, output_throughput"), rows) == (
        [False, True, True, False],
        [],
    )
    assert shown(plan_with("concurrency, output_throughput"), rows[:2]) == (
        [False, True],
        [],
    )


def test_a_loss_against_rows_that_are_not_comparable_is_marked() -> None:
    column = "{value: output_throughput, name: loss %, where: {threads: 8}, loss-against: {threads: 4}}"
    good, bad = (
        [row("4", 10.0), row("8", 9.0)],
        [row("4", 10.0), row("8", 9.0, run(values={"total_input_tokens": 9000}))],
    )
    (table,) = make_tables(plan_with(column), good)
    assert [cells[0].text for cells in table.cells] == ["10.00"] and not table.notes
    (table,) = make_tables(plan_with(column), bad)
    assert any("prompts of" in note for note in table.notes)


def test_tests_are_ranked_by_their_definition() -> None:
    """Tokens of pp64 are counted by each model's own vocabulary, and their texts differ: neither is
    a reason."""
    measured = [
        run(prompts=frozenset(name), values={"total_input_tokens": tokens})
        for name, tokens in (("x", 64), ("y", 80))
    ]
    rows = [
        row(threads, speed, own, test="pp64")
        for threads, speed, own in zip("48", (10.0, 20.0), measured, strict=True)
    ]
    for each in rows:
        each.samples["ts"] = [each.number("output_throughput") or 0.0]
    assert shown(plan_with("threads, ts", load="{tests: [pp64]}"), rows) == (
        [False, True],
        [],
    )


def test_processing_and_generation_have_a_best_each() -> None:
    """pp64 is always faster than tg16: the best of a column would be the best test."""
    rows = []
    for test, speeds in (("pp64", (900.0, 1000.0)), ("tg16", (60.0, 50.0))):
        for threads, speed in zip("48", speeds, strict=True):
            rows.append(row(threads, speed, test=test, load=test))
            rows[-1].samples["ts"] = [speed]
    tests = plan_with("test, threads, ts", load="{tests: [pp64, tg16]}")
    (table,) = make_tables(tests, rows)
    best = {
        (cells[0].text, cells[-1].text) for cells in table.cells if cells[-1].is_best
    }
    assert best == {("pp64", "1000.00"), ("tg16", "60.00")}


def ordered(order: dict[str, tuple[int, ...]]) -> list[Row]:
    """Three runs each, 20 % apart, at these places in time."""
    rows = []
    for threads, places in order.items():
        for number, place in enumerate(places):
            speed = (10.0 if threads == "4" else 12.0) + number / 100
            measured = run(
                f"{threads}-{place}", date=f"{place:04}", values={"mean_ttft_ms": speed}
            )
            rows.append(row(threads, speed, measured))
    return rows


def test_an_order_in_which_the_machine_looks_like_an_effect_proves_none() -> None:
    good = effects(plan_with(), ordered(ORDER))[0]
    assert good.is_shown and good.text.startswith(
        "threads: +20.0 % Output Tok/s from 4 to 8 (95 %"
    )
    for order in ({"4": (0, 1, 2), "8": (3, 4, 5)}, {"4": (0, 2, 4), "8": (1, 3, 5)}):
        effect = effects(plan_with(), ordered(order))[0]
        assert (
            not effect.is_shown
            and effect.p is None
            and "not proven: the runs of 4 and 8" in effect.text
        )


def test_effects_of_a_chinese_plan_are_chinese_sentences() -> None:
    """With the same numbers in each, and nothing English but the labels."""
    chinese = plan(
        TEXT.format("{values: [4, 8]}", "{u: 1}", "threads") + "language: zh"
    )
    for order in ({"4": (0, 1, 2), "8": (3, 4, 5)}, ORDER):
        text = effects(chinese, ordered(order))[0].text
        assert text.startswith("threads: 每秒生成 Tokens 从 4 到 8：")
    one_each = [row("4", 10.0), row("8", 12.0)]
    assert "未证实；请设置 repeats: 3" in effects(chinese, one_each)[0].text
    for english, other in sweep_words_module._CHINESE.items():
        places = re.compile(r"{\w+}")
        assert sorted(places.findall(english)) == sorted(places.findall(other))


def test_a_flag_of_the_load_is_varied_to_change_it() -> None:
    """Its effect is judged, although the loads differ; its rows are not ranked against each
    other."""
    varied = plan_with(vary="{flags.u: [4, 8]}")
    rows = [
        row("4", 10.0, run(load={"concurrency": "4"})),
        row("8", 20.0, run(load={"concurrency": "8"})),
    ]
    assert effects(varied, rows)[0].text.startswith(
        "threads: +100.0 % Output Tok/s from 4 to 8"
    )
    assert "different loads" in shown(plan_with(), rows)[1][0]


def test_two_labels_of_one_model_file_are_named() -> None:
    """By the servers' own report."""
    varied = plan_with(vary="{a.model: [f16.gguf, q4.gguf], labels: ['4', '8']}")
    both = [
        row(label, 10.0, run(setup={"model file": "/models/q4.gguf"})) for label in "48"
    ]
    assert same_files(varied, both) == [
        "a: threads 4 and 8 are the same model file by the server's own report: /models/q4.gguf"
    ]
    other = row("8", 10.0, run(setup={"model file": "/models/f16.gguf"}))
    assert (
        same_files(varied, [both[0], other]) == []
        and same_files(plan_with(), both) == []
    )


def test_what_is_of_the_server_alone_is_missing_once() -> None:
    """Not once for each stage; and a table of nothing else has no notes on loads."""
    rows = [
        row("4", 10.0, run(replaced=2), concurrency=f"c={users}") for users in (1, 8)
    ]
    for number, each in enumerate(rows):
        each.is_stage, each.stage = True, number
    assert shown(plan_with("threads, perplexity"), rows)[1] == [
        "NA: PPL: the run has no perplexity"
    ]
    assert any("replaced" in note for note in shown(plan_with(), rows)[1])


def test_perplexities_of_different_vocabularies_are_not_ranked() -> None:
    """8 tokens of 3 bits for 6 bytes and 16 of 2: 4 bits a byte, and 5.3."""

    def scored(label: str, model: str, perplexity: float, bits: float | None) -> Row:
        made = row(label, 10.0, model=model)
        made.figures = {"perplexity": perplexity, "bits_per_byte": bits}
        return made

    table = plan_with("threads, perplexity")
    alike = [scored("4", "a", 8.0, 3.0), scored("8", "b", 9.0, 3.1699)]
    assert shown(table, alike) == ([True, False], [])
    best, notes = shown(table, [alike[0], scored("8", "b", 4.0, 5.33)])
    assert best == [False, False] and "the vocabularies differ" in notes[0]
    assert "is not known" in shown(table, [alike[0], scored("8", "b", 4.0, None)])[1][0]
    assert shown(table, [alike[0], scored("8", "a", 9.0, None)])[0] == [True, False]
