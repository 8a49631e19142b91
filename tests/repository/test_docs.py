"""Documentation that quotes the code says what the code says."""

from __future__ import annotations

import argparse
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

import llama_load
from llama_load.analysis.figures.check_limits import LIMITS
from llama_load.cli.main import command_parser, main
from llama_load.cli.parser import Parser, split_dashes
from llama_load.cli.run_command import split_run_words
from llama_load.ground.failure_kind import FailureKind
from llama_load.loadgen.options.flags import FLAGS, grouped
from llama_load.run_folder.vocabulary.verdict_words import WORDS
from scripts.api_page import api_page
from scripts.make_docs import flags_page, limits_page, metrics_page, plan_page
from tests.conftest import REPOSITORY, environment, run_program
from tests.recipes import RECIPES, files_of_recipe, follow, recipe
from tests.search.page import tables


def test_the_page_of_flags_is_up_to_date() -> None:
    """After a change of flags: python -m scripts.make_docs"""
    assert (REPOSITORY / "docs" / "flags.md").read_text(
        encoding="utf-8"
    ) == flags_page()


def test_the_pages_of_metrics_and_limits_are_up_to_date() -> None:
    """After a change of definitions or limits: python -m scripts.make_docs"""
    metrics = REPOSITORY / "docs" / "metrics.md"
    assert metrics.read_text(encoding="utf-8") == metrics_page()
    limits = REPOSITORY / "benchmarks" / "limits.md"
    assert limits.read_text(encoding="utf-8") == limits_page()


def test_the_search_for_wrong_verdicts_is_the_recorded_one() -> None:
    """After a search: python -m tests.search --seeds 800 --from 100000 --quiet
    --record"""
    page = REPOSITORY / "benchmarks" / "verdict_rates.md"
    assert tables() in page.read_text(encoding="utf-8")


def test_the_page_of_plans_is_up_to_date() -> None:
    """After a change of the grammar of sweeps: python -m scripts.make_docs"""
    assert (REPOSITORY / "docs" / "sweep-plans.md").read_text(
        encoding="utf-8"
    ) == plan_page()


def test_the_page_of_the_api_is_up_to_date() -> None:
    """After a change of docstrings: python -m scripts.make_docs"""
    page = api_page()
    assert (REPOSITORY / "docs" / "api.md").read_text(encoding="utf-8") == page
    assert not re.findall(r"^\| `\w+` \|.*\|  \|$", page, re.MULTILINE), (
        "columns of the record without a meaning"
    )
    assert {
        name
        for name in llama_load.__all__
        if f"`{name}" not in page and f"## {name}" not in page
    } <= {"events", "__version__"}


PAGES = [
    *(
        REPOSITORY / name
        for name in (
            "README.md",
            "CONTRIBUTING.md",
            "docker/README.md",
            "docker/kubernetes/README.md",
            "benchmarks/README.md",
        )
    ),
    *sorted((REPOSITORY / "docs").glob("*.md")),
]
DECISIONS = sorted((REPOSITORY / "docs" / "decisions").glob("*.md"))


def text_of(page: Path) -> str:
    return page.read_text(encoding="utf-8")


def without_code(page: Path) -> str:
    return re.sub(r"```.*?```", "", text_of(page), flags=re.DOTALL)


def anchors(page: Path) -> set[str]:
    """The headings of a page as they stand in links to it."""
    headings = re.findall(r"^#+ (.*)", without_code(page), re.MULTILINE)
    return {
        re.sub(r"[^\w\- ]", "", heading).strip().lower().replace(" ", "-")
        for heading in headings
    }


def test_links_in_the_documentation_lead_somewhere() -> None:
    """To files that exist, and to headings that they have."""
    for page in (*PAGES, *DECISIONS):
        for link, anchor in re.findall(
            r"\]\((?!https?:)([^)#]*)#?([^)]*)\)", without_code(page)
        ):
            target = page.parent / link if link else page
            assert target.exists(), f"{page}: {link}"
            assert not anchor or anchor in anchors(target), f"{page}: {link}#{anchor}"


OF_RECIPES = (
    "greetings",
    "longest_answers",
    "parrot_kind",
    "transcriptions_api",
    "exports/slack",
    "checks/connecting",
    "worker_table",
    "words_command",
)


def test_every_class_of_failures_is_in_the_documentation() -> None:
    rows = (
        text_of(REPOSITORY / "docs" / "targets.md")
        .partition("## Failure classes")[2]
        .partition("\n## ")[0]
    )
    missing = [
        kind.value
        for kind in FailureKind
        if f"`{kind}`" not in rows and not kind.startswith("http_")
    ]
    assert missing == []


def test_modules_that_the_documentation_names_exist() -> None:
    """A path such as `analysis/figures/check_limits.py`, from the repository or from the package."""
    for page in (*PAGES, *DECISIONS):
        for path in re.findall(r"`((?:\w+/)+\w+\.py)`", without_code(page)):
            formerly = any(
                name in path for name in OF_RECIPES
            ) or f"(was `{path}`)" in re.sub(r"\s+", " ", text_of(page))
            assert (
                formerly
                or (REPOSITORY / path).exists()
                or (REPOSITORY / "llama_load" / path).exists()
            ), f"{page}: {path}"


def test_commands_in_the_documentation_have_flags_that_exist() -> None:
    """Of ours, and the few of Locust's that are used."""
    locust = {
        "--help",
        "--headless",
        "--host",
        "--processes",
        "--master",
        "--worker",
        "--master-host",
        "--expect-workers",
    }
    known = {flag.name for flag in FLAGS} | locust
    for page in (*PAGES, *(REPOSITORY / "locustfiles").glob("*.py")):
        for command in re.findall(
            r"(?:^locust |^… |`locust ).*(?:\\\n.*)*", text_of(page), re.MULTILINE
        ):
            given = re.findall(r"(?<!\S)--[a-z-]+", command)
            assert not (unknown := [flag for flag in given if flag not in known]), (
                f"{page}: {unknown} in {command}"
            )


@pytest.mark.parametrize("title", RECIPES)
def test_a_recipe_fits_the_code(title: str, tmp_path: Path) -> None:
    """Every line that it changes is there. If this fails, the line has moved: correct
    docs/architecture.md."""
    text = recipe(title)
    assert follow(text, files_of_recipe(text, tmp_path))


def test_the_drawing_of_the_rooms_has_all_of_them() -> None:
    """Every folder and module of the package, and no other."""
    drawing = (
        text_of(REPOSITORY / "docs" / "architecture.md")
        .partition("```text\n")[2]
        .partition("```")[0]
    )
    drawn = set(re.findall(r"(?<!\S)(\w+(?:\.py|/))", drawing))
    package = [
        path
        for path in (REPOSITORY / "llama_load").iterdir()
        if path.is_dir() or path.suffix == ".py"
    ]
    package = [path for path in package if not path.name.startswith("_")]
    assert drawn == {
        path.name + "/" if path.is_dir() else path.name for path in package
    }


def test_lines_of_markdown_are_at_most_120_characters() -> None:
    """Tables and pictures excepted, which cannot be wrapped, and code."""
    for page in (*PAGES, REPOSITORY / "CHANGELOG.md"):
        for line in without_code(page).splitlines():
            assert len(line) <= 120 or line.startswith(("|", "![", "<!--")), (
                f"{page}: {line}"
            )


def test_prose_and_help_have_none_of_our_private_words() -> None:
    """STYLE: the words of Locust and vLLM."""
    private = re.compile(
        r"\b(told|tells?|so many|by itself|whoever|nobody|anew|so-manieth|of (its|their) own)\b",
        re.IGNORECASE,
    )
    texts = {page.name: without_code(page) for page in PAGES} | {
        flag.name: flag.help for flag in FLAGS
    }
    for name, text in texts.items():
        assert not (found := private.search(text)), (
            f"{name}: {found and text[max(0, found.start() - 40) : found.end() + 20]!r}"
        )


def test_every_check_of_the_verdict_is_explained() -> None:
    """docs/verdict.md has a row for each, with its limit and its word, under its statement."""
    sections = re.split(
        r"^## ", text_of(REPOSITORY / "docs" / "verdict.md"), flags=re.MULTILINE
    )
    rows = {
        name: (section.partition(":")[0], float(limit), word)
        for section in sections
        for name, limit, word in re.findall(
            r"^\| `(\w+)` \| ([\d.]+) \| ([A-Z -]+) \|", section, re.MULTILINE
        )
    }
    assert rows == {
        name: (row.statement, row.limit, row.word) for name, row in LIMITS.items()
    }


@pytest.mark.parametrize("page", ["README.md", "docs/verdict.md"])
def test_the_words_of_the_verdict_are_those_of_the_code(page: str) -> None:
    """In their order, the gravest first."""
    table = (
        text_of(REPOSITORY / page)
        .partition("| verdict | meaning |\n|---|---|\n")[2]
        .partition("\n\n")[0]
    )
    assert [row.split("|")[1].strip() for row in table.splitlines()] == list(WORDS)


def shape(line: str) -> str:
    """A line of the report without its figures: the label up to the colon, the name of a row, the
    words of a check."""
    if line.startswith(("✓", "·", "!", "?", "+", " ")):
        row = re.match(r"[✓·] {2}([\w ]+?) {2,}", line)
        return row[1] if row else re.sub(r"[\d.]+|^[!?+ ] ", "", line)
    return (
        line.partition(": ")[0]
        if ": " in line
        else " ".join(re.sub(r"[\d.!]+", "", line).split())
    )


def test_the_output_in_the_guide_is_that_of_the_demo(tmp_path: Path) -> None:
    """Every line that the guide quotes is in a real report, with other figures. If this fails: quote a
    new run of `make demo`."""
    (quoted,) = re.findall(
        r"```\n(Before the run.*?)```",
        text_of(REPOSITORY / "docs" / "guide.md"),
        re.DOTALL,
    )
    command = [
        "llama_load.cli.main",
        "demo",
        "-u",
        "4",
        "--num-prompts",
        "4",
        "--run-dir",
        str(tmp_path / "run"),
    ]
    with_page = environment() | {"LLAMA_LOAD_NO_REPORT_HTML": "false"}
    done = run_program(command, REPOSITORY, with_page)
    printed = {
        shape(line) for line in done.stdout.splitlines() + done.stderr.splitlines()
    }
    # The verdict, the next question and the parts of the time depend on how busy the machine is,
    # the next command on this one.
    varying = (
        "…",
        "VALID",
        "  with ",
        "Time went",
        "           ",
        "p99 is n/a",
        "To see how it scales",
        "TTFT (ms) ",
        "TPOT (ms) ",
        "  llama-load demo ",
    )
    lines = [
        line for line in quoted.splitlines() if line and not line.startswith(varying)
    ]
    assert len(lines) > 15
    assert [line for line in lines if shape(line) not in printed] == []


def test_the_flags_are_listed_at_80_columns(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert main(["flags", "--all"]) == 0
    out = capsys.readouterr().out
    words = " ".join(out.split())
    for flag in FLAGS:
        assert " ".join(flag.help_with_choices.split()) in words
        assert not flag.default or f"[{flag.default}]" in words
    lines = out.splitlines()
    assert max(map(len, lines)) <= 80
    titles = [title for title in grouped() if title in lines]
    assert titles == list(grouped()) and [
        flag for flags in grouped().values() for flag in flags
    ] == list(FLAGS)
    assert all(title and len(flags) > 1 for title, flags in grouped().items())


def test_help_names_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ends:
        main(["--help"])
    assert ends.value.code == 0
    out = capsys.readouterr().out
    for command in ("demo", "serve", "flags", "report"):
        assert command in out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ["comapre", "a", "b"],
            "llama-load: there is no command 'comapre'; did you mean compare? See llama-load --help\n",
        ),
        (
            ["zzz"],
            "llama-load: there is no command 'zzz'; choose one of demo, run, serve, ",
        ),
        (
            ["report", "x", "--format", "jsn"],
            "argument --format: there is no value 'jsn'; did you mean json or jsonl? See",
        ),
    ],
)
def test_a_misspelt_command_or_value_is_answered_with_those_like_it(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        command_parser().parse_args(words)
    assert ended.value.code == 2
    said = capsys.readouterr().err
    assert message in said and said.count("\n") == 1


def subcommands(parser: argparse.ArgumentParser) -> Iterator[Parser]:
    """The parsers of all subcommands that do something."""
    groups = [
        action
        for action in parser._actions
        if isinstance(action, argparse._SubParsersAction)
    ]
    for group in groups:
        for below in group.choices.values():
            yield from subcommands(below)
    if not groups:
        assert isinstance(parser, Parser)
        yield parser


@pytest.mark.parametrize(
    "parser", [*subcommands(command_parser())], ids=lambda parser: parser.prog
)
def test_every_subcommand_has_examples_that_parse(
    parser: Parser, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Give add_parser examples={what it does: "llama-load …"}. The command, up to a pipe or
    redirection, is this subcommand's."""
    monkeypatch.setenv("COLUMNS", "80")
    assert parser.examples, f"{parser.prog} has no examples"
    text = parser.format_help()
    assert not re.search(r"[a-z]-$", text, re.MULTILINE), "a name was broken"
    for does, command in parser.examples.items():
        heading = does if does.endswith("?") else f"{does}:"
        assert f"  {heading}\n    {command}\n" in text
        lexer = shlex.shlex(command, posix=True, punctuation_chars=True)
        lexer.whitespace_split = True
        words = list(lexer)
        words = words[
            : next(
                (
                    place
                    for place, word in enumerate(words)
                    if word in ("|", ">", ">>", "&&")
                ),
                len(words),
            )
        ]
        if words[0] == "locust":  # for which the subcommand prints an argument
            assert parser.prog in command
            continue
        assert " ".join(words).startswith(parser.prog)
        own, _ = split_run_words(split_dashes(words[1:])[0])
        arguments, further = command_parser().parse_known_args(own)
        assert arguments.run is parser.get_default("run")
        assert not further or parser.prog == "llama-load demo"


def test_each_decision_has_its_own_number() -> None:
    numbers = [page.name.partition("-")[0] for page in DECISIONS]
    assert len({*numbers}) == len(numbers) and all(
        re.fullmatch(r"\d{3}", number) for number in numbers
    )
