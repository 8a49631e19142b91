"""Pages that quote the code: messages of docs/troubleshooting.md, commands of all pages, the index
llms.txt, AGENTS.md."""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import SimpleNamespace

import pytest
from locust.argument_parser import get_parser

from llama_load import LlamaUser
from llama_load.cli.main import command_parser
from llama_load.cli.parser import split_dashes
from llama_load.cli.run_command import _parts_of_words, split_run_words
from llama_load.loadgen.options.options import read_options
from tests.conftest import REPOSITORY
from tests.repository.source import nodes_of, package_files
from tests.repository.test_docs import PAGES, text_of

# What stands for a name or a number in a text of the code.
HOLE = "\0"


@cache
def sources() -> dict[Path, str]:
    return {file: text_of(file) for file in package_files()}


@cache
def texts_of(file: Path) -> list[str]:
    """Every text constant of a module, neighbours joined, with a hole for each expression in it."""
    found = []
    for node in nodes_of(file):
        if isinstance(node, ast.JoinedStr):
            found.append(
                "".join(
                    str(part.value) if isinstance(part, ast.Constant) else HOLE
                    for part in node.values
                )
            )
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            found.append(node.value)
    return found


def is_in_the_code(message: str) -> bool:
    """Whether one text of the code has the message's words between "…", in their order."""
    pieces = message.split("…")
    pattern = re.compile(".*".join(map(re.escape, pieces)), re.DOTALL)
    word = max(
        re.findall(r"\w+", " ".join(pieces)), key=len
    )  # parsing all modules takes seconds
    return any(
        pattern.search(text)
        for file, source in sources().items()
        if word in source
        for text in texts_of(file)
    )


def quoted_messages() -> list[str]:
    page = text_of(REPOSITORY / "docs" / "troubleshooting.md")
    return re.findall(r"^\| `([^`]+)` \|", page, re.MULTILINE)


def test_every_message_of_troubleshooting_is_in_the_code() -> None:
    """If this fails, a message has changed: correct docs/troubleshooting.md."""
    messages = quoted_messages()
    assert len(messages) > 30 and len(set(messages)) == len(messages)
    assert [message for message in messages if not is_in_the_code(message)] == []
    assert not is_in_the_code("cannot reach …: …; is the server sleeping there?")


def test_every_row_of_troubleshooting_quotes_a_message() -> None:
    rows = [
        line
        for line in text_of(REPOSITORY / "docs" / "troubleshooting.md").splitlines()
        if line.startswith("| ")
    ]
    assert len([row for row in rows if row.startswith("| `")]) == len(rows) - len(
        [row for row in rows if row.endswith("| what to do |")]
    )


# ---------------------------------------------------------------------- commands


def locust_words(words: list[str]) -> None:
    """Parse the arguments of locust with its own parser and ours, and read our flags' values."""
    # importing LlamaUser added our flags
    given, unknown = get_parser(default_config_files=[]).parse_known_args(words)
    assert not unknown, f"locust has no {unknown}"
    exists = (
        {"trace": __file__} if given.trace else {}
    )  # the page has it from somewhere
    read_options(SimpleNamespace(**(vars(given) | exists)))


def commands_of(page: Path) -> Iterator[str]:
    """The commands of a page's blocks that are whole, or continue its `llama-load run …`: one of ours, up
    to a comment or a pipe."""
    text = text_of(page)
    general = next(
        iter(
            re.findall(
                r"(?:`llama-load run … ` continues|All continue)\s`([^`]+)`", text
            )
        ),
        None,
    )
    for block in re.findall(r"^```\n(.*?)^```", text, re.DOTALL | re.MULTILINE):
        for line in block.replace("\\\n", " ").splitlines():
            # S streams of comparison.md
            line = re.sub(
                r"\b2?S\b", "8", re.split(r" {3,}\S| +# | \| | > | && ", line)[0]
            )
            if general:
                line = re.sub(
                    r"^(?:llama-load run )?… (?=-)", lambda _: f"{general} ", line
                )
            if line.startswith(("locust ", "llama-load ")) and "…" not in line:
                yield line


COMMANDS = sorted(
    {
        (command, str(page.relative_to(REPOSITORY)))
        for page in PAGES
        for command in commands_of(page)
    }
)


@pytest.mark.parametrize(("command", "page"), COMMANDS)
def test_a_command_of_a_page_parses(command: str, page: str) -> None:
    """Flags exist, values are read, subcommands have these arguments."""
    words = shlex.split(command)
    if words[0] == "locust":
        locust_words(words[1:])
        return
    own, after = split_dashes(words[1:])
    own, of_run = split_run_words(own)
    if of_run:
        url, workload, flags = _parts_of_words(of_run)
        host = [] if url is None else ["--host", url]
        locust_words(["-f", workload, *host, *flags])
        return
    arguments, further = command_parser().parse_known_args(own)
    if arguments.run.__name__ == "_demo":
        locust_words(further)
    else:
        assert not further, f"{page}: {further}"
    if words[1] in ("search", "capacity", "sweep"):
        locust_words(after)


# ---------------------------------------------------------------------- locustfiles


@pytest.mark.parametrize(
    "page",
    [page for page in PAGES if "from llama_load import " in text_of(page)],
    ids=lambda page: page.name,
)
def test_locustfiles_of_a_page_are_whole(page: Path) -> None:
    """Every block that imports from llama_load can be imported by locust.
    (tests/loadgen/swarm/test_locust.py runs that of the guide.)"""
    blocks = re.findall(
        r"^```python\n(.*?)^```", text_of(page), re.DOTALL | re.MULTILINE
    )
    locustfiles = [
        block
        for block in blocks
        if "from llama_load import " in block and "Greetings" not in block
    ]
    for block in locustfiles:
        names: dict[str, object] = {"__name__": "locustfile"}
        exec(compile(block, str(page), "exec"), names)
        assert any(
            isinstance(value, type)
            and issubclass(value, LlamaUser)
            and value is not LlamaUser
            for value in names.values()
        )


# ---------------------------------------------------------------------- the index


def test_the_index_for_language_models_lists_every_page() -> None:
    """llms.txt: each page once, with one sentence, and nothing that does not exist."""
    index = REPOSITORY / "docs" / "llms.txt"
    text = text_of(index)
    entries = re.findall(r"^- \[[^\]]+\]\(([^)]+)\): (\S.*\.)$", text, re.MULTILINE)
    links = [link for link, _ in entries]
    assert len(re.findall(r"^- ", text, re.MULTILINE)) == len(entries), (
        "an entry is - [TITLE](PATH): One sentence."
    )
    assert len(set(links)) == len(links)
    assert [link for link in links if not (index.parent / link).exists()] == []
    linked = {(index.parent / link).resolve() for link in links}
    assert {*PAGES} - linked == set()


def test_the_index_lists_every_page_of_the_documentation() -> None:
    """docs/index.md, to which README leads."""
    index = REPOSITORY / "docs" / "index.md"
    links = re.findall(r"\]\(([^)#]+)\)", text_of(index))
    linked = {(index.parent / link).resolve() for link in links}
    assert {*PAGES} - linked == {index, REPOSITORY / "README.md"}
    assert "](docs/index.md)" in text_of(REPOSITORY / "README.md")


def test_agents_md_names_commands_that_exist() -> None:
    """Targets of make, paths, and our own commands."""
    text = text_of(REPOSITORY / "AGENTS.md")
    makefile = text_of(REPOSITORY / "Makefile")
    targets = re.findall(r"`make ([\w-]+)`", text)
    assert {"install", "lint", "test"} <= {*targets}
    assert [target for target in targets if f"\n{target}:" not in makefile] == []
    paths = re.findall(r"`((?:[\w.-]+/)+[\w.-]*|[A-Z]+\.md)`", text)
    assert len(paths) > 10
    assert [
        path
        for path in paths
        if not (
            (REPOSITORY / path).exists() or (REPOSITORY / "llama_load" / path).exists()
        )
    ] == []
    assert max(map(len, text.splitlines())) <= 120
