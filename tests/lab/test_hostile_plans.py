"""Plans of others: whatever they contain, a sentence with the line, in bounded time, and nothing is
built from tags."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from llama_load.ground.errors import UsageError
from llama_load.lab.sweep.located import MOST_BYTES, Faults, parse_yaml, read_yaml
from llama_load.lab.sweep.read_plan import plan_of

# Far above what any plan below takes (0.1 s), far below what it took (minutes, or no end).
WITHIN_S = 20.0


def faults_of(text: str) -> str:
    faults = Faults("plan")
    with pytest.raises(UsageError) as raised:
        plan_of(parse_yaml(text, "plan", faults), {}, faults)
    return str(raised.value)


def chain(first: str, link: str, count: int, last: str) -> str:
    """`link` with {0} and {1} for the names of the previous and of the next anchor."""
    lines = [
        f"a0: &a0 {first}",
        *(f"a{n + 1}: " + link.format(f"*a{n}", f"&a{n + 1}") for n in range(count)),
    ]
    return "\n".join([*lines, last.format(f"*a{count}")])


@pytest.mark.parametrize(
    ("text", "line"),
    [
        # PyYAML's repr of a key follows aliases
        (chain("[x, x]", "{1} [{0}, {0}, {0}, {0}, {0}, {0}]", 14, "? {}\n: 1"), 1),
        (
            chain(
                "{x: 1}",
                "{1} {{<<: [{0}, {0}, {0}, {0}, {0}, {0}, {0}, {0}, {0}]}}",
                14,
                "b: 1",
            ),
            1,
        ),
        (chain("x" * 60_000, "{1} [{0}, {0}, {0}, {0}, {0}, {0}]", 3, "b: 1"), 1),
        ("servers: &a {<<: *a}", 1),
        ("servers:\n  &a [*a]", 2),
        ("set: {x: " + "y" * 50_000 + "}\nload: ['" + "${x}" * 10_000 + "']", 2),
        ("\n" + "[" * 1000, 2),
    ],
)
def test_a_bomb_is_refused_at_its_line(text: str, line: int) -> None:
    since = time.monotonic()
    found = faults_of(text)
    assert time.monotonic() - since < WITHIN_S
    assert f"line {line}:" in found, found


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("servers: !!timestamp foo", "servers must be names with values"),
        ("\nload: {u: !!int ''}", "line 2: '' cannot be read as int"),
        ("load: {u: !!bool maybe}", "'maybe' cannot be read as bool"),
        ("load: {u: !!float ''}", "'' cannot be read as float"),
        ("load: {u: !!int 0x_}", "'0x_' cannot be read as int"),
        ("load: {u: 0x" + "f" * 5000 + "}", "cannot be read as int"),
        ("load: {u: " + "9" * 5000 + "}", "cannot be read as int"),
        ("load: !!binary 'a'", "the tag !!binary is not allowed"),
        ("load: !!set {a}", "the tag !!set is not allowed"),
        ("load: !mine {a: 1}", "the tag !mine is not allowed"),
        ("load: {<<: 3}", "<< needs a mapping"),
        (
            "set: {x: [3]}\n\nload: ${x}",
            "line 3: load[1] must be names with values, got '3'",
        ),
        ("{? [a, b] : 1}", "a key must be a word"),
        ('load: {u: "a\\0b"}', "has characters that no file name or flag can hold"),
        ('load: {u: "\\ud800"}', "has characters that no file name or flag can hold"),
        ("load: {u: 9" + ":59" * 3000 + "}", "servers"),
    ],
)
def test_what_ended_in_a_traceback_is_a_sentence(text: str, sentence: str) -> None:
    assert sentence in faults_of(text)


def test_merges_and_numbers_are_those_of_yaml() -> None:
    text = "base: &b {u: 1, t: 5s}\nother: &o {u: 2, r: 3}\nload: {<<: [*b, *o], t: 9s}\nn: [0x1F, 0b11, 017, 1_000, -3, 1.5e+3, .5, .inf, ~, yes]"
    found = parse_yaml(text, "plan", Faults("plan")).plain()
    assert found["load"] == {"u": 1, "r": 3, "t": "9s"}
    assert found["n"] == [31, 3, 15, 1000, -3, 1500.0, 0.5, float("inf"), None, True]
    assert parse_yaml(
        "[1:30, 2024-01-02, '5', !!str 5]", "plan", Faults("plan")
    ).plain() == ["1:30", "2024-01-02", "5", "5"]


def test_a_large_plan_is_refused_unread(tmp_path: Path) -> None:
    """PyYAML needs 17 s for a MiB of `- a`."""
    file = tmp_path / "plan.yaml"
    file.write_text("- a\n" * (MOST_BYTES // 4 + 1))
    with pytest.raises(UsageError, match="larger than a plan may be"):
        read_yaml(file, Faults("plan"))


WORDS = st.sampled_from(
    [
        *(
            "&a",
            "*a",
            "&b",
            "*b",
            "<<",
            "!!int",
            "!!str",
            "!!map",
            "!x",
            "? ",
            ": ",
            "- ",
            "[",
            "]",
            "{",
            "}",
            ",",
            "\n",
            "\n  ",
            "#",
        ),
        *(
            "servers",
            "load",
            "set",
            "vary",
            "workload",
            "u",
            "url",
            "x",
            "0x",
            "1:30",
            "''",
            '"',
            "'",
            "|",
            ">",
            "~",
            "${x}",
            "%YAML",
            "---",
        ),
    ]
)


@example("!!timestamp foo")
@example("&a {<<: *a}")
@given(
    st.one_of(
        st.lists(WORDS, max_size=40).map(" ".join),
        st.lists(WORDS, max_size=40).map("".join),
        st.text(max_size=80),
    )
)
def test_any_text_is_a_plan_or_a_sentence(text: str) -> None:
    faults = Faults("plan")
    try:
        plan_of(parse_yaml(text, "plan", faults), {}, faults)
    except UsageError as error:
        assert str(error)
