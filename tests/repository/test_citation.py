"""CITATION.cff, the paper and the page on methods: their layout, and that each claim has its
command and its source here."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from llama_load.ground.version import __version__
from tests.conftest import REPOSITORY

PAPER = (REPOSITORY / "docs" / "paper" / "paper.md").read_text(encoding="utf-8")
HEADER, BODY = PAPER.removeprefix("---\n").split("\n---\n", 1)
BIBLIOGRAPHY = (REPOSITORY / "docs" / "paper" / "paper.bib").read_text(encoding="utf-8")


def section(title: str) -> str:
    return re.split(r"^# ", BODY.partition(f"# {title}\n")[2], flags=re.MULTILINE)[0]


def test_the_citation_names_this_version() -> None:
    found = yaml.safe_load((REPOSITORY / "CITATION.cff").read_text(encoding="utf-8"))
    assert {"cff-version", "message", "title", "authors", "version"} <= set(found)
    assert (found["cff-version"], found["version"], found["license"]) == (
        "1.2.0",
        __version__,
        "MIT",
    )


def test_the_paper_has_the_layout_of_its_journal() -> None:
    """Header, sections, 750 to 1750 words. Source: joss.readthedocs.io, paper."""
    header = yaml.safe_load(HEADER)
    assert {"title", "tags", "authors", "affiliations", "date", "bibliography"} == set(
        header
    )
    assert {author["affiliation"] for author in header["authors"]} <= {
        place["index"] for place in header["affiliations"]
    }
    titles = re.findall(r"^# (.+)$", BODY, re.MULTILINE)
    needed = [
        "Summary",
        "Statement of need",
        "State of the field",
        "Software design",
        "Research impact statement",
        "References",
    ]
    assert [title for title in titles if title in needed] == needed
    words = re.sub(r"<!--.*?-->|\|.*\||\[@[^\]]*\]", " ", BODY, flags=re.DOTALL).split()
    assert 750 <= len(words) <= 1750


def test_every_citation_has_its_entry_and_every_entry_is_cited() -> None:
    cited = {
        key
        for group in re.findall(r"\[(@[^\]]+)\]", BODY)
        for key in re.findall(r"@(\w+)", group)
    }
    entries = re.findall(r"^@\w+\{(\w+),", BIBLIOGRAPHY, re.MULTILINE)
    assert cited == set(entries) and len(set(entries)) == len(entries)
    for entry in re.split(r"^(?=@)", BIBLIOGRAPHY, flags=re.MULTILINE)[1:]:
        assert all(
            f" {field} = " in entry for field in ("title", "author", "year")
        ) and re.search(r" (?:doi|url) = ", entry)


@pytest.mark.parametrize(
    "text",
    [BODY, (REPOSITORY / "docs" / "method.md").read_text(encoding="utf-8")],
    ids=["paper", "method"],
)
def test_commands_behind_the_claims_exist(text: str) -> None:
    modules = re.findall(r"python -m benchmarks\.(\w+)", text)
    assert len(modules) > 3
    assert [
        name
        for name in modules
        if not (REPOSITORY / "benchmarks" / f"{name}.py").is_file()
    ] == []
    makefile = (REPOSITORY / "Makefile").read_text(encoding="utf-8")
    assert [
        target
        for target in re.findall(r"`make ([\w-]+)`", text)
        if f"\n{target}:" not in makefile
    ] == []
    assert [
        path
        for path in re.findall(r"`(tests/[\w/.]+)`", text)
        if not (REPOSITORY / path).exists()
    ] == []


def rows(file: Path) -> list[list[str]]:
    return [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in file.read_text("utf-8").splitlines()
        if "|" in line
    ]


def test_the_figures_of_the_paper_are_those_of_the_documentation() -> None:
    """The paper is wrong where a table was measured again: quote the new one."""
    table = [
        line for line in section("Evidence").splitlines() if line.startswith("| 4")
    ]
    assert len(table) == 2
    known = [set(row) for row in rows(REPOSITORY / "benchmarks" / "README.md")]
    for line in table:
        cells = {cell.strip() for cell in line.strip("|").split("|")}
        assert any(cells <= row for row in known), line
    evidence = " ".join(section("Evidence").split())
    searches = {
        tuple(row[:3]) for row in rows(REPOSITORY / "benchmarks" / "searches.md")
    }
    assert (
        "users, 8 slots",
        "10 users",
        "100 %",
    ) in searches and "100 % with 8 slots and a capacity of 10 users" in evidence
    assert (
        "rate, M/M/1, 90 % within 3",
        "load 0.48",
        "86 %",
    ) in searches and "86 % of the searches in the hardest case" in evidence
    orders = {tuple(row) for row in rows(REPOSITORY / "benchmarks" / "comparisons.md")}
    assert (
        "A A A A A B B B B B",
        "Welch's test alone",
        "0.5 %",
        "47 %",
        "100 %",
        "",
        "",
    ) in orders
    assert "in 47 % of the pairs at a drift of 0.5 % a run" in evidence
