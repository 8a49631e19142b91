"""Gates: thresholds on the run and on members of its groups, and the JUnit XML that shows them in
CI."""

from __future__ import annotations

import math
import os
import re
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from llama_load.analysis.checks.verdict import Verdict
from llama_load.analysis.figures.check import Check
from llama_load.analysis.reports.block import block
from llama_load.analysis.reports.first_screen import first_screen
from llama_load.analysis.reports.html.page import html_page
from llama_load.analysis.reports.junit import COMPLETE, junit
from llama_load.analysis.reports.result_json import result_json
from llama_load.analysis.reports.write import markdown
from llama_load.analysis.results.results import Results, analyze
from llama_load.outside.foreign_text import printable
from llama_load.run_folder import Run
from llama_load.run_folder.observed.worker_health import WorkerHealth
from llama_load.run_folder.vocabulary.bound import Bound
from llama_load.run_folder.vocabulary.thresholds import (
    GROUPS,
    ThresholdResult,
    evaluate,
    parse_threshold,
)
from tests.make_records import manifest, record, table

ANYTHING = st.text(st.characters(exclude_categories=()))  # lone surrogates, too
# a file system's names
FOLDERS = st.binary(max_size=40).map(
    lambda name: "x" + os.fsdecode(name.translate(None, b"/\0"))
)
KEYS = st.from_regex(r"[a-z][a-z0-9_.]{0,12}", fullmatch=True)
SIGNS = st.sampled_from([">", ">=", "<", "<="])
LIMITS = st.floats(allow_nan=False, allow_infinity=False)
SPACE = st.sampled_from(["", " ", "\t "])


def parts(text: str) -> tuple[str, str, float, str | None, str | None]:
    found = parse_threshold(text)
    return found.key, found.sign, found.limit, found.group, found.member


def quoted(name: str, quote: str) -> str:
    return quote + name.replace(quote, 2 * quote) + quote


# Reading


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("p99_ttft_ms>500", ("p99_ttft_ms", ">", 500.0, None, None)),
        (" p99.9_ttft_ms >= 5e2 ", ("p99.9_ttft_ms", ">=", 500.0, None, None)),
        (
            "p99_ttft_ms{workload=document}>500",
            ("p99_ttft_ms", ">", 500.0, "workload", "document"),
        ),
        ("mean_tpot_ms{stage=16}>80", ("mean_tpot_ms", ">", 80.0, "stage", "16")),
        (
            "failed{host=http://127.0.0.1:8080}>0",
            ("failed", ">", 0.0, "host", "http://127.0.0.1:8080"),
        ),
        ("failed{host=http://h/?a=b}>0", ("failed", ">", 0.0, "host", "http://h/?a=b")),
        (
            "failed { model = two words } <= 3",
            ("failed", "<=", 3.0, "model", "two words"),
        ),
        ('failed{model="a}>1"}>0', ("failed", ">", 0.0, "model", "a}>1")),
        ("failed{model='it''s \"}'}>0", ("failed", ">", 0.0, "model", "it's \"}")),
        ("failed{model='' }>0", ("failed", ">", 0.0, "model", "")),
        ("failed{model='a,stage=1'}>0", ("failed", ">", 0.0, "model", "a,stage=1")),
        ("failed{model=it's}>0", ("failed", ">", 0.0, "model", "it's")),
    ],
)
def test_a_threshold_is_read_into_its_parts(
    text: str, wanted: tuple[str, str, float, str | None, str | None]
) -> None:
    """Spaces are free around every part, and a name may hold whatever hosts and models are
    called."""
    assert parts(text) == wanted
    assert parse_threshold(text).text == text.strip()


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("p99_ttft_ms==500", "KEY>NUMBER"),
        ("p99_ttft_ms>nan", "KEY>NUMBER"),
        ("p99_ttft_ms>-inf", "KEY>NUMBER"),
        ("p99_ttft_ms>1-2", "KEY>NUMBER"),
        ("p99_ttft_ms>1e999", "finite number"),
        ("p99_ttft_ms{workload}>1", "GROUP=NAME"),
        ("p99_ttft_ms{workload=}>1", "GROUP=NAME"),
        ("p99_ttft_ms{workload=a>1", "GROUP=NAME"),
        ("p99_ttft_ms{workload=a}b}>1", "GROUP=NAME"),
        ("p99_ttft_ms{workload='a}>1", "GROUP=NAME"),
        ("p99_ttft_ms{workload=a}{stage=1}>1", "GROUP=NAME"),
        ("p99_ttft_ms{workload=a, stage=1}>1", "takes one GROUP=NAME"),
        (
            "p99_ttft_ms{user=a}>1",
            "groups workload, stage, model, adapter, host, turn, got 'user'",
        ),
    ],
)
def test_what_is_malformed_is_refused_with_a_sentence(text: str, sentence: str) -> None:
    """The sentence shows the text and what would be right."""
    with pytest.raises(ValueError, match=sentence) as caught:
        parse_threshold(text)
    assert repr(text) in str(caught.value)


@given(
    KEYS,
    SPACE,
    SIGNS,
    LIMITS,
    st.none() | st.sampled_from(GROUPS),
    ANYTHING,
    st.sampled_from("'\""),
)
def test_a_threshold_written_from_its_parts_reads_back(
    key: str,
    space: str,
    sign: str,
    limit: float,
    group: str | None,
    member: str,
    quote: str,
) -> None:
    """In quotes, any name can be written."""
    braces = (
        ""
        if group is None
        else f"{{{space}{group}{space}={space}{quoted(member, quote)}{space}}}"
    )
    found = parts(f"{space}{key}{space}{braces}{space}{sign}{space}{limit!r}{space}")
    assert found == (key, sign, limit, group, None if group is None else member)


@given(st.sampled_from(GROUPS), ANYTHING)
def test_most_names_need_no_quotes(group: str, member: str) -> None:
    """Only `}`, a quote at the front, space at an end, a second group and nothing at all do."""
    assume(
        member
        and member == member.strip()
        and "}" not in member
        and not member.startswith(("'", '"'))
        and ",stage=" not in member
    )
    assert parts(f"failed{{{group}={member}}}>0") == ("failed", ">", 0.0, group, member)


@given(
    ANYTHING
    | st.text("fx1 .e-+<>={}'\"", max_size=20)
    | st.from_regex(r"f\{(host|x)=.*\}>.*")
)
@example("f" + "{host=" * 50)
def test_any_text_is_a_threshold_or_one_sentence(text: str) -> None:
    """No other exception, no line break, no limit that nothing could pass."""
    try:
        found = parse_threshold(text)
    except ValueError as error:
        assert str(error).startswith("--fail-if ")
        assert len(str(error).splitlines()) == 1
    else:
        assert math.isfinite(found.limit)
        assert (found.group is None) == (found.member is None)


# Comparing

GROUPED = {
    "workload": {
        "document": {"p99_ttft_ms": 612.3, "failed": 0},
        "chat": {"p99_ttft_ms": None},
    },
    "stage": {"16": {"failed": 2}},
}


@pytest.mark.parametrize(
    ("text", "value", "failed"),
    [
        ("p99_ttft_ms>500", 100.0, False),  # the run's, although a workload is over it
        ("p99_ttft_ms{workload=document}>500", 612.3, True),
        ("p99_ttft_ms{workload=document}>700", 612.3, False),
        ("failed{stage=16}>=2", 2.0, True),
        ("failed{workload=document}>0", 0.0, False),
    ],
)
def test_a_group_is_compared_by_its_own_figures(
    text: str, value: float, failed: bool
) -> None:
    """Never by those of the run."""
    found = evaluate(
        parse_threshold(text), {"p99_ttft_ms": 100.0, "failed": 9}, GROUPED
    )
    assert found == ThresholdResult(parse_threshold(text), value, failed)


@pytest.mark.parametrize(
    "text",
    [
        "p99_ttft_ms{workload=chat}>500",  # not measured
        "failed{workload=chat}>500",  # no such key
        "failed{workload=other}>500",  # no such member
        "failed{turn=1}>500",  # no such group
        "mean_tpot_ms>500",  # NaN
    ],
)
def test_a_gate_that_saw_nothing_does_not_let_through(text: str) -> None:
    """No value, and failed, even where the run has the key."""
    values = {"p99_ttft_ms": 1.0, "failed": 0, "mean_tpot_ms": math.nan}
    assert evaluate(parse_threshold(text), values, GROUPED) == ThresholdResult(
        parse_threshold(text), None, True
    )
    assert evaluate(parse_threshold(text), values).failed


# As people read it


@pytest.mark.parametrize(
    ("text", "value", "line"),
    [
        ("p99_ttft_ms>500", 112.0, "p99_ttft_ms <= 500: 112"),
        (
            "output_throughput{stage=8}<100",
            96.789123,
            "output_throughput{stage=8} >= 100: 96.7891",
        ),
        ("completed<=5", 6.0, "completed > 5: 6"),
        ("failed>=2", 1.0, "failed < 2: 1"),
        ("failure_ratio>0.01", 0.0, "at most 1 % failed: 0 %"),
        (
            "failure_ratio{workload=chat}>=0.5",
            0.25,
            "less than 50 % failed of workload chat: 25 %",
        ),
        ("failure_ratio<0.5", 0.25, "failure_ratio >= 0.5: 25 %"),
        ("p99_ttft_ms>500", None, "p99_ttft_ms <= 500: not measured"),
        ("p99_ttft_ms>500", 500.0000001, "p99_ttft_ms <= 500: 500.0000001"),
        ("p99_ttft_ms>500", 500.001, "p99_ttft_ms <= 500: 500.001"),
        ("p99_ttft_ms>500", 500.0, "p99_ttft_ms <= 500: 500"),
    ],
)
def test_a_threshold_reads_as_what_is_required(
    text: str, value: float | None, line: str
) -> None:
    """Also where the run passes: nobody has to turn a condition round to see that it is well."""
    assert ThresholdResult(parse_threshold(text), value, failed=False).line == line


def test_every_report_shows_the_requirement() -> None:
    """Block, first screen, Markdown, HTML, JSON; a threshold that passes has no word of failure."""
    found = results(
        fail_if=[
            "mean_ttft_ms>50",
            "p99_e2el_ms>500",
            "verdict!=VALID",
            "failure_ratio>0.01",
        ]
    )
    text = block(found)
    assert "✗ mean_ttft_ms <= 50: 100, FAILED\n" in text
    assert "✗ p99_e2el_ms <= 500: n/a (1 value, 100 needed), FAILED\n" in text
    assert "✓ verdict is VALID: VALID\n✓ at most 1 % failed: 0 %\n" in text
    assert any(
        line.text == "  mean_ttft_ms <= 50: 100, FAILED" for line in first_screen(found)
    )
    assert "| ✓ | at most 1 % failed: 0 % |  |  |" in markdown(found, text)
    assert "✓ at most 1 % failed: 0 %" in html_page(found, text, "en")
    thresholds = result_json(found)["llama_load"]["thresholds"]
    assert [each["line"] for each in thresholds][2:] == [
        "verdict is VALID: VALID",
        "at most 1 % failed: 0 %",
    ]


# JUnit


def results(**changed: object) -> Results:
    about = manifest(**{"num_prompts": 1} | changed)
    return analyze(Run(Path("runs/nightly"), about, table(record(0)), recovered=False))


BASE = results()


def read(found: Results) -> ElementTree.Element:
    return ElementTree.fromstring(junit(found).encode())


def cases(root: ElementTree.Element) -> dict[str | None, ElementTree.Element]:
    return {case.get("name"): case for case in root.iter("testcase")}


def message(root: ElementTree.Element, name: str) -> str | None:
    outcome = cases(root)[name][0]
    assert outcome.text == outcome.get("message")
    return outcome.get("message")


def test_junit_has_a_case_a_threshold_and_one_for_completeness() -> None:
    """Record 0 lasts 141 ms: 100 to the first token, two gaps of 20, 1 to the end."""
    root = read(
        results(
            fail_if=["mean_ttft_ms>50", "failed>0", "p99_tpot_ms{stage=16}>80"],
            label="nightly tiny",
        )
    )
    suite = root[0]
    assert root.tag == "testsuites"
    assert [child.tag for child in suite] == [
        "properties",
        "testcase",
        "testcase",
        "testcase",
        "testcase",
    ]
    assert suite.attrib == {
        "name": "llama-load",
        "tests": "4",
        "failures": "2",
        "errors": "0",
        "time": "0.141",
        "timestamp": "2026-11-20T12:00:00",
    }
    properties = {prop.get("name"): prop.get("value") for prop in suite[0]}
    assert (properties["verdict"], properties["run"]) == (
        "VALID as far as seen",
        "nightly",
    )
    assert str(properties["headline"]).startswith("VALID as far as seen: ")
    assert {case.get("classname") for case in root.iter("testcase")} == {
        "llama-load.nightly tiny"
    }
    assert {case.get("time") for case in root.iter("testcase")} == {"0.141"}
    assert len(cases(root)[COMPLETE]) == len(cases(root)["failed <= 0"]) == 0
    assert (
        message(root, "mean_ttft_ms <= 50")
        == "mean_ttft_ms was 100, over the limit of 50"
    )
    sentence = (
        "p99_tpot_ms of stage 16 was not measured, so the limit of 80 cannot be checked"
    )
    assert message(root, "p99_tpot_ms{stage=16} <= 80") == sentence


def test_without_a_label_the_class_is_the_workload() -> None:
    """And a date that is not one leaves the timestamp out."""
    root = read(results(date="some day"))
    assert cases(root)[COMPLETE].get("classname") == "llama-load.sharegpt"
    assert "timestamp" not in root[0].attrib


@pytest.mark.parametrize(
    ("text", "value", "sentence"),
    [
        ("p99_ttft_ms>500", 612.3, "p99_ttft_ms was 612.3, over the limit of 500"),
        (
            "completed>=1234567",
            1234567.0,
            "completed was 1234567, at or over the limit of 1234567",
        ),
        ("completed<5", 4.0, "completed was 4, under the limit of 5"),
        (
            "p50_e2el_ms{turn=2}<=0.5",
            0.25,
            "p50_e2el_ms of turn 2 was 0.25, at or under the limit of 0.5",
        ),
        (
            "failure_ratio>0.3",
            0.1 + 0.2,
            "failure_ratio was 0.30000000000000004, over the limit of 0.3",
        ),
    ],
)
def test_a_failure_says_which_way_the_limit_was_passed(
    text: str, value: float, sentence: str
) -> None:
    """With as many digits as tell the value from the limit."""
    threshold = parse_threshold(text)
    root = read(
        replace(results(), thresholds=[ThresholdResult(threshold, value, True)])
    )
    assert message(root, threshold.requirement) == sentence


def test_an_incomplete_run_is_an_error_that_names_what_is_missing() -> None:
    """Not what else failed."""
    checks = [
        Check("missing_records", 1, 0, False, "one is missing"),
        Check("loop_lag_p99_ms", 9, 5, False, "lag"),
    ]
    assert (
        message(
            read(
                replace(BASE, verdict=Verdict("INCOMPLETE", checks, ["INCOMPLETE"], ""))
            ),
            COMPLETE,
        )
        == "one is missing"
    )
    root = read(results(num_prompts=3, fail_if=["failed>0"]))
    assert (root[0].get("failures"), root[0].get("errors")) == ("0", "1")
    assert message(root, COMPLETE) == "2 of 3 planned requests did not end"
    assert cases(root)[COMPLETE][0].tag == "error"


@given(ANYTHING, ANYTHING, FOLDERS, ANYTHING)
@example("\x00\ud800\uffff]]>&<\"'", "\x1b[31m", "xa\r\nb\x0b\udcff", "\ufffe😀")
def test_characters_that_xml_cannot_hold_do_not_break_junit(
    label: str, member: str, folder: str, text: str
) -> None:
    """Each becomes one U+FFFD, all others read back."""
    odd = f"failed{{model={quoted(member, chr(34))}}}>0"
    root = read(
        replace(
            BASE,
            run=replace(
                BASE.run, manifest=manifest(label=label), path=Path("runs") / folder
            ),
            verdict=Verdict(
                "INCOMPLETE",
                [Check("missing_records", 1, 0, False, text)],
                ["INCOMPLETE"],
                "",
            ),
            thresholds=[evaluate(parse_threshold(odd), {})],
        )
    )
    complete, gate = root.iter("testcase")
    assert complete.get("classname") == "llama-load." + held(label or "sharegpt")
    assert complete[0].get("message") == held(text)
    assert gate.get("name") == held(f"failed{{model={member}}} <= 0")
    assert root[0][0][1].get("value") == held(folder)


def held(text: str) -> str:
    """By the definition of Char in XML 1.0, section 2.2, and without what would control a
    terminal."""
    return "".join(
        char
        if char in "\t\n\r"
        or 0x20 <= ord(char) <= 0xD7FF
        or 0xE000 <= ord(char) <= 0xFFFD
        or ord(char) >= 0x10000
        else "�"
        for char in printable(text, None)
    )


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["failed>0", "failed<0", "p99_ttft_ms>=1", "p1_ttft_ms>1"]),
            st.booleans(),
        )
    )
)
def test_the_counts_of_junit_agree_with_its_cases(
    given_: list[tuple[str, bool]],
) -> None:
    """Of the suite and of the document."""
    gates = [
        ThresholdResult(parse_threshold(text), 1.0, failed) for text, failed in given_
    ]
    root = read(replace(BASE, thresholds=gates))
    for holder in (root, root[0]):
        assert holder.get("tests") == str(len(list(root.iter("testcase"))))
        assert holder.get("failures") == str(len(list(root.iter("failure"))))
        assert holder.get("errors") == str(len(list(root.iter("error"))))


@pytest.mark.parametrize("lasted_s", [0.0, 0.0004, 1.0, 1234567.8915])
def test_times_have_the_form_that_jenkins_reads(lasted_s: float) -> None:
    """SUREFIRE_TIME of junit-10.xsd: digits, and at most three after the point."""
    root = read(replace(BASE, total=replace(BASE.total, duration_s=lasted_s)))
    assert re.fullmatch(r"[0-9]+\.[0-9]{3}", root[0].attrib["time"])


@pytest.mark.parametrize(
    ("text", "key", "value", "bound", "line"),
    [
        (
            "output_throughput<10",
            "output_throughput",
            102.0,
            Bound(ratio=0.03),
            "output_throughput >= 10: 102 (102 to 105.06)",
        ),
        (
            "median_ttft_ms>5000",
            "median_ttft_ms",
            248.0,
            Bound(ms=40.0),
            "median_ttft_ms <= 5000: 248 (208 to 248)",
        ),
        ("median_ttft_ms>220", "median_ttft_ms", 248.0, Bound(ms=40.0), None),
        ("median_ttft_ms>5000", "median_ttft_ms", 248.0, None, None),
    ],
)
def test_what_no_doubt_within_its_bound_can_turn_is_judged(
    text: str, key: str, value: float, bound: Bound | None, line: str | None
) -> None:
    """Rates are too low by 3 % at most, latencies too large by 40 ms."""
    known = {} if bound is None else {key: bound}
    found = evaluate(parse_threshold(text), {key: value}, {}, {key: "a lag"}, known)
    assert found.failed is (line is None)
    assert (found.value is None) is (line is None)
    assert found.line == (line or f"{found.threshold.requirement}: not judged (a lag)")


def test_a_late_loop_turns_no_threshold_that_is_far_from_it() -> None:
    """A client whose arrivals are timed in user space, with a lag of 40 ms."""
    late = WorkerHealth("box_1", 40.0, 40.0, 0.2)
    rows = table(
        *(
            record(index, start_ms=2000 * index, clock_source="user")
            for index in range(12)
        )
    )
    about = manifest(
        fail_if=["median_ttft_ms>5000", "median_ttft_ms>99.9"],
        num_prompts=12,
        workers=[late],
    )
    found = analyze(Run(Path("run"), about, rows, recovered=False))
    assert found.verdict.word == "CLIENT-BOUND"
    assert [result.failed for result in found.thresholds] == [False, True]
