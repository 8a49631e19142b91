"""What the import contracts cannot hold: names of modules, and rooms that only some may know."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator

from tests.conftest import REPOSITORY

PACKAGE = REPOSITORY / "llama_load"
# A room may grow so far before the reading list of a newcomer is brought up to date.
TOLERANCE = 0.2


def test_no_two_modules_have_the_same_name() -> None:
    """A name that stands twice is opened twice: once in the wrong room."""
    names = Counter(
        path.name for path in PACKAGE.rglob("*.py") if path.name != "__init__.py"
    )
    assert [name for name, count in names.items() if count > 1] == []


def lines_of(room: str) -> int:
    files = (PACKAGE / room).rglob("*.py")
    return sum(len(file.read_text(encoding="utf-8").splitlines()) for file in files)


def listed_rooms() -> Iterator[tuple[list[str], int, list[str]]]:
    """Rooms, their lines and the files to read first, by docs/architecture.md."""
    page = (REPOSITORY / "docs" / "architecture.md").read_text(encoding="utf-8")
    for rooms, lines, files in re.findall(
        r"^\| (`.*?) \| ([\d,]+) \| (.*?) \|", page, re.MULTILINE
    ):
        names = re.findall(r"`([\w/]+)/`", rooms)
        yield names, int(lines.replace(",", "")), re.findall(r"`(\w+\.py)`", files)
    for name, lines in re.findall(r"`([\w/]+)/` \(([\d,]+)(?: lines)?\)", page):
        yield [name], int(lines.replace(",", "")), []


def test_a_newcomers_reading_list_is_that_of_the_package() -> None:
    """Every room is in it, about as long as it says, and the files to read first exist."""
    listed = list(listed_rooms())
    wrong = {}
    for rooms, lines, files in listed:
        present = sum(map(lines_of, rooms))
        if abs(present - lines) > TOLERANCE * lines:
            wrong[", ".join(rooms)] = present
        found = {file.name for room in rooms for file in (PACKAGE / room).glob("*.py")}
        assert set(files) <= found, rooms
    assert wrong == {}

    named = {room.partition("/")[0] for rooms, _, _ in listed for room in rooms}
    rooms_of_package = {file.parent.name for file in PACKAGE.glob("*/__init__.py")}
    assert rooms_of_package - named == {"cli", "ground", "outside"}
