"""Outputs that README and docs quote are what their commands print. (scripts/record_printed.py
records them.)"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from llama_load.cli.main import main
from scripts.record_printed import PRINTED, RECORDINGS
from tests.conftest import REPOSITORY
from tests.printed import COLUMNS, printed
from tests.repository.test_docs import DECISIONS, PAGES

# Blocks that are no output: drawings. Each has a test of its own, or is none of a program.
# Not printed by a command that a page quotes.
DRAWINGS = {"docs/architecture.md", "docs/comparison.md", "docs/web-ui.md"}
STARTS = (
    *(
        "locust ",
        "llama-load ",
        "make ",
        "… ",
        "llama-bench ",
        "vllm ",
        "aiperf ",
        "guidellm ",
        "pip ",
        "python",
        "uvx ",
        "git ",
    ),
    *(
        "docker ",
        "kubectl ",
        "helm ",
        "export ",
        "openssl ",
        "for ",
        "(cd ",
        "cd ",
        ". ",
    ),
)


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block of a page: what is named above it as its origin, and its lines of output."""

    page: str
    line: int
    text_before: str
    origin: str | None
    commands: list[str]
    output: list[str]

    @property
    def where(self) -> str:
        return f"{self.page}:{self.line}"


def blocks() -> Iterator[Block]:
    """Every fenced block without a language that has output."""
    for page in (*PAGES, *DECISIONS):
        text = page.read_text(encoding="utf-8")
        for match in re.finditer(
            r"(?:<!-- printed: (.*?) -->\n)?^```(\w*)\n(.*?)^```",
            text,
            re.DOTALL | re.MULTILINE,
        ):
            origin, language, content = match.groups()
            name = str(page.relative_to(REPOSITORY))
            if language == "text":
                assert name in DRAWINGS, (
                    f"{name}: is this printed by a command? Then leave out 'text'"
                )
            if language:
                continue
            lines = content.splitlines()
            starts_with_command = lines[0].startswith(STARTS)
            until = (
                lines.index("")
                if starts_with_command and "" in lines
                else len(lines)
                if starts_with_command
                else 0
            )
            if output := lines[until:]:
                line = text.count("\n", 0, match.start()) + 1
                yield Block(
                    name,
                    line,
                    text[: match.start()],
                    origin,
                    _commands("\n".join(lines[:until])),
                    output,
                )


def _commands(text: str) -> list[str]:
    """The commands in a text: lines of blocks, and code between backticks, which a paragraph may
    have wrapped."""
    program = r"(?:locust|llama-load|…|make|python)"
    found = re.finditer(
        rf"^({program} (?:[^`\n]*\\\n)*[^`\n]*)$|`({program}\s[^`]*)`",
        text,
        re.MULTILINE,
    )
    return [
        " ".join((match[1] or match[2]).replace("\\\n", " ").split()) for match in found
    ]


BLOCKS = list(blocks())


def _chunks(block: Block) -> Iterator[str]:
    """The lines that must stand together: a … stands for others."""
    for chunk in re.split(
        r"^…\n", "".join(f"{line}\n" for line in block.output), flags=re.MULTILINE
    ):
        if chunk.strip():
            yield chunk.strip("\n")


def _without_trailing_blanks(text: str) -> str:
    return "\n".join(line.rstrip() for line in text.splitlines()) + "\n"


def _is(recorded: str, command: str, page: str) -> bool:
    """Whether a command of a page is the recorded one. "…" is the beginning that the page says it
    continues; `make demo` runs `llama-load demo`."""
    if command.startswith("make "):
        rule = re.search(
            rf"^{command[5:]}:.*\n\t@\$\(BIN\)/(.*)",
            (REPOSITORY / "Makefile").read_text(encoding="utf-8"),
            re.MULTILINE,
        )
        return rule is not None and rule[1] == recorded
    if command.startswith("… "):
        (beginning,) = re.findall(r"All continue\s`([^`]*)`", page)
        command = f"{beginning} {command[2:]}"
    return _as_locust(command) == _as_locust(recorded)


def _as_locust(command: str) -> list[str]:
    """The words of a command; of `llama-load run` those that it is short for."""
    words = shlex.split(command)
    if words[:2] != ["llama-load", "run"]:
        return words
    name = "sharegpt_chat"
    if "-f" in words:
        place = words.index("-f")
        name = words[place + 1]
        del words[place : place + 2]
    long_form = f"locust -f locustfiles/{name}.py --headless --host"
    return [*long_form.split(), *words[2:]]


def test_every_printed_output_names_its_origin() -> None:
    """`<!-- printed: NAME -->` above the block: a recording, a test that holds it, or `this
    command`, which is run."""
    nameless = [block.where for block in BLOCKS if block.origin is None]
    assert nameless == [], (
        "name its origin, see scripts/record_printed.py; a new program of a command goes into STARTS"
    )
    assert len(BLOCKS) > 10
    for block in BLOCKS:
        if block.origin is None:
            continue
        if block.origin.startswith("tests/"):
            file, _, test = block.origin.partition("::")
            assert f"def {test}(" in (REPOSITORY / file).read_text(encoding="utf-8"), (
                block.where
            )
        else:
            assert block.origin in {*RECORDINGS, "this command"}, block.where


RECORDED = [block for block in BLOCKS if block.origin in RECORDINGS]


@pytest.mark.parametrize("name", RECORDINGS)
def test_a_recording_is_of_its_command(name: str) -> None:
    """If this fails, record it again: python -m scripts.record_printed NAME"""
    text, manifest = PRINTED / f"{name}.txt", PRINTED / name / "run.json"
    recorded = (
        shlex.split(text.open(encoding="utf-8").readline())[1:]
        if text.exists()
        else json.loads(manifest.read_bytes())["command"]
    )
    assert recorded == shlex.split(RECORDINGS[name].command)


@pytest.mark.parametrize("name", sorted({block.origin or "" for block in RECORDED}))
def test_a_quoted_output_is_that_of_its_command(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Byte for byte, but for "…". If this fails: python -m tests.printed NAME shows what the code
    of today prints."""
    monkeypatch.setenv("COLUMNS", COLUMNS)
    text = _without_trailing_blanks(printed(name))
    for block in (block for block in RECORDED if block.origin == name):
        before = 0
        for chunk in _chunks(block):
            place = text.find(f"{chunk}\n", before)
            assert place >= 0, (
                f"{block.where}: python -m tests.printed {name} does not print, in this order:\n{chunk}"
            )
            before = place + len(chunk)


@pytest.mark.parametrize("block", RECORDED, ids=lambda block: block.where)
def test_a_recorded_command_is_the_one_on_the_page(block: Block) -> None:
    """In the block itself, else the last one before it; "…" stands for the beginning that the page
    gives."""
    command = (block.commands or _commands(block.text_before))[-1]
    assert _is(RECORDINGS[block.origin or ""].command, command, block.text_before)


@pytest.mark.parametrize(
    "block",
    [block for block in BLOCKS if block.origin == "this command"],
    ids=lambda block: block.where,
)
def test_a_command_prints_what_stands_below_it(
    block: Block, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(REPOSITORY)
    monkeypatch.setenv("COLUMNS", COLUMNS)
    (command,) = block.commands
    main(shlex.split(command)[1:])
    text = _without_trailing_blanks(capsys.readouterr().out)
    for chunk in _chunks(block):
        assert f"{chunk}\n" in text


def test_figures_of_the_page_why_are_those_of_the_benchmarks() -> None:
    """HttpUser's and our TTFT errors at 400 streams, and the speeds of one stream.
    (tests/benchmarks has the comparison.)"""
    docs = REPOSITORY / "docs"
    why = (docs / "why.md").read_text(encoding="utf-8")
    benchmarks = (REPOSITORY / "benchmarks" / "README.md").read_text(encoding="utf-8")
    prose = " ".join(
        why.partition("## Can a Locust tool time tokens?\n")[2]
        .partition("\n## ")[0]
        .split()
    )
    for client in ("HttpUser", "llama-load"):
        (p99,) = re.findall(
            rf"^\| 400 \| {client} \|[^|]*\|[^|]*\| [\d.]+ / ([\d.]+) \|",
            benchmarks,
            re.MULTILINE,
        )
        assert f"{client} {p99} ms" in prose
    for client in ("HttpUser, iter_lines, stream=False", "llama-load"):
        (speed,) = re.findall(rf"^{client}: ([\d.,]+ tok/s)$", benchmarks, re.MULTILINE)
        assert speed in prose
