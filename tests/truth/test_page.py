"""The results of several clients side by side: a page, a table of Markdown, and those that are kept."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.referee.pages import pages_of_truth
from tests.conftest import REPOSITORY
from tests.truth.test_run import truth
from truth.columns import Column, better_than_first, columns_of
from truth.repeats import interval
from truth.table import TTFT, matrix, table

RESULTS = REPOSITORY / "truth" / "results"
CLIENTS = (
    "llama-load",
    "vllm",
    "aiperf",
    "guidellm",
    "inference-perf",
    "endpoints",
    "genai-bench",
    "llama-benchy",
    "evalscope",
    "http-user",
    "k6",
    "earlier",
)


def case(number: str, verdict: str = "right", **further: object) -> dict[str, Any]:
    """A case of a file of --save."""
    values = {
        "id": number,
        "suite": "timing",
        "title": "a < b",
        "norm": "n",
        "reason": "r",
        "verdict": verdict,
        "passed": verdict == "right",
        "void": "",
        "not_asked": "",
        "failed": "",
        "bound_ms": 0.1,
        "not_reported": ["ITL"],
        "findings": [],
    }
    return values | further


def result(client: str, *cases: dict[str, Any], date: str = "d") -> dict[str, Any]:
    return {
        "client": client,
        "client_version": "1",
        "date": date,
        "system": "s",
        "cores": 2,
        "truth_version": "0.2.0",
        "cases": list(cases),
    }


def of_ttft(*p99_ms: float, star: str = "") -> dict[str, Any]:
    """The figure of TTFT, a run each."""
    values = [[0.0, value] for value in p99_ms]
    return {
        "figure": TTFT,
        "right": "1",
        "seen": f"2{star}",
        "limit": "2",
        "level": "right",
        "values": values,
    }


def written(folder: Path, *results: dict[str, Any]) -> list[str]:
    """The files of these results."""
    files = [folder / f"{place}.json" for place in range(len(results))]
    for file, value in zip(files, results, strict=True):
        file.write_text(json.dumps(value))
    return [str(file) for file in files]


def test_a_page_of_two_clients(tmp_path: Path) -> None:
    """One file without a network; text of a client is escaped."""
    finding = {"figure": "TTFT", "right": "1", "seen": "<script>alert", "limit": "2"}
    costs = [
        {"cpu_us_per_token": used, "cpu_s": 2.5, "memory_mib": 90.0}
        for used in (3.0, 1.0, 2.0)
    ]
    wrong = case("T1", "wrong", findings=[finding], costs=costs)
    target = tmp_path / "page.html"
    files = written(tmp_path, result("x", wrong), result("y", wrong))
    done = truth("page", *files, "--to", str(target))
    text = target.read_text()
    assert done.returncode == 0
    for client in ("x", "y"):
        assert text.count(f"<th>{client} 1</th>") == 1
        assert text.count(f"<li>{client} 1: 0 of 1 passed (1 wrong)</li>") == 1
    assert "Better than x 1: in no case." in text
    assert "CPU: 2.0 (1.0 to 3.0) us per token, 2.5 (2.5 to 2.5) s in all" in text
    assert "\\u003cscript>" in text and "<script>alert" not in text
    assert "a &lt; b" in text and "http" not in text


def test_files_of_a_client_are_one_column_and_the_newest_of_a_case_counts() -> None:
    columns = columns_of(
        [
            result("x", case("T10"), case("T2"), date="monday"),
            result("y", case("T2")),
            result("x", case("T2", "wrong"), case("A1"), date="tuesday"),
        ]
    )
    assert [column.title for column in columns] == ["x 1", "y 1"]
    assert columns[0].summary == "x 1: 2 of 3 passed (2 right, 1 wrong)"
    assert columns[0].runs_on == ["monday to tuesday, s, 2 cores, truth 0.2.0"]
    text = table(columns)
    assert text.index("| A1 ") < text.index("| T2 ") < text.index("| T10 ")


def test_the_table_has_errors_of_ttft_with_their_intervals(tmp_path: Path) -> None:
    """Median 2 of 1, 2 and 9; a star where only distributions are compared; a void run says
    nothing."""
    late = case("T1", "void", void="the server | was late", findings=[of_ttft(7)])
    matched = case("T1", findings=[of_ttft(9, 1, 2)])
    whole = case("T1", findings=[of_ttft(3, star=" (distributions)")])
    target = tmp_path / "table.md"
    files = written(
        tmp_path, result("x", matched), result("y", late), result("z", whole)
    )
    assert truth("page", *files, "--to", str(target)).returncode == 0
    text = target.read_text()
    assert "| 2.0 (1.0 to 9.0) |  | 3.0\\* |" in text
    assert "| right | void | right |" in text
    assert "- y 1, T1: the server \\| was late" in text


def test_the_matrix_has_a_sign_for_each_case_of_a_client() -> None:
    """A case that is not in a file is blank; the numbers stand below the letters of their suites."""
    words = {"A2": "right", "T1": "wrong", "T2": "admitted", "T10": "not asked"}
    first = result("x", *(case(number, word) for number, word in words.items()))
    lines = matrix(columns_of([first, result("y", case("T2", "failed"))]))
    assert lines[1:5] == ["     A T", "     2 120", "x 1  + x~.", "y 1     !"]


def test_files_of_earlier_versions_are_read_in_the_words_of_today() -> None:
    """What the client could not be given was void; what the server spoilt still is."""
    figure = {
        "figure": "f",
        "right": "1",
        "seen": "2",
        "limit": "0",
        "level": "reports",
    }
    unable = case("T2", "void", void="x has no open loop")
    late = case("T3", "void", void="the server was late")
    cases = [
        case("T1", "reports", findings=[figure]),
        case("P1", "knows"),
        unable,
        late,
    ]
    former = result("x", *cases) | {"schema": "truth-verdicts/1"}
    for each in former["cases"]:
        del each["not_asked"]
    (column,) = columns_of([former])
    found = {number: each["verdict"] for number, each in column.cases.items()}
    assert found == {"T1": "wrong", "P1": "admitted", "T2": "not asked", "T3": "void"}
    assert column.cases["T1"]["findings"][0]["level"] == "wrong"
    assert column.cases["T2"]["not_asked"] == "x has no open loop"


def test_where_another_is_better_is_said_first() -> None:
    """T1 is true with the second client, T2 with the first, and what is void proves nothing."""
    words = {"a": ("admitted", "right", "void"), "b": ("right", "wrong", "right")}
    results = [
        result(name, *(case(f"T{n}", word) for n, word in enumerate(verdicts, 1)))
        for name, verdicts in words.items()
    ]
    said = better_than_first(columns_of(results))
    assert said == "Better than a 1: T1 a < b (b 1)."


@pytest.mark.parametrize("name", ["page.html", "README.md"])
def test_what_is_kept_is_made_of_the_kept_results(name: str, tmp_path: Path) -> None:
    files = [str(file) for client in CLIENTS for file in files_of(client)]
    assert len(files) >= 2 * len(CLIENTS)
    assert truth("page", *files, "--to", str(tmp_path / name)).returncode == 0
    assert (tmp_path / name).read_text() == (RESULTS / name).read_text()
    assert pages_of_truth()[name] == (RESULTS / name).read_text()


def files_of(client: str) -> list[Path]:
    return sorted(RESULTS.glob(f"{client}-*.json"))


def kept(*clients: str) -> list[Column]:
    files = [file for client in clients for file in files_of(client)]
    return columns_of([json.loads(file.read_text()) for file in files])


def test_the_readme_says_where_another_is_better() -> None:
    text = (REPOSITORY / "truth" / "README.md").read_text(encoding="utf-8")
    assert better_than_first(kept(*CLIENTS)) in " ".join(text.split())


@pytest.mark.parametrize("client", CLIENTS[1:6])
def test_what_is_to_be_sent_has_the_kept_figures(client: str) -> None:
    file = REPOSITORY / "truth" / "outreach" / f"{client}.md"
    text = " ".join(file.read_text(encoding="utf-8").split())
    (column,) = kept(client)
    runs = [column.cases[number]["findings"][0]["values"] for number in ("T2", "T3")]
    first, second = (interval([p99 for _, p99 in values]) for values in runs)
    assert f"five runs on two quiet cores: {first} and {second} ms." in text
