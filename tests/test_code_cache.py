"""Code of dataclasses that is kept: the classes are the same with it, without it, and with a file
that is damaged or of another version."""

from __future__ import annotations

import dataclasses
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_type_hints

import jinja2
import pytest

from llama_load.analysis.reports.template_cache import template_cache
from llama_load.ground.code_cache import (
    dataclasses_compiled_once,
    read_bytecode,
    write_bytecode,
)


def made() -> type:
    """A class that needs all kinds of generated methods."""

    @dataclass(frozen=True, order=True)
    class Point:
        x: int
        y: int = 2

    return Point


def compiled_in(file: Path) -> bool:
    """Make the class with this file; whether something had to be compiled."""
    before = file.read_bytes() if file.exists() else b""
    with dataclasses_compiled_once(file):
        point = made()
    assert "exec" not in vars(dataclasses)
    assert repr(point(1)).endswith("Point(x=1, y=2)")
    assert point(1) == point(1, 2)
    assert point(1) < point(2)
    assert hash(point(1)) == hash(point(1))
    with pytest.raises(dataclasses.FrozenInstanceError):
        point(1).x = 3
    return file.read_bytes() != before


def test_a_class_is_compiled_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second time from the file; a damaged one is replaced."""
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    file = tmp_path / "__pycache__" / "codes.bin"
    assert compiled_in(file)
    assert not compiled_in(file)

    whole = file.read_bytes()
    for damaged in (b"", whole[:-20], b"abcd" + whole[4:], whole[:4] + b"i\0\0\0\0"):
        file.write_bytes(damaged)
        assert compiled_in(file)
        assert file.read_bytes() == whole


def test_annotations_of_methods_are_those_of_the_class(tmp_path: Path) -> None:
    """Of a module without `from __future__ import annotations`, as this one has."""
    text = "from dataclasses import dataclass\n@dataclass\nclass Point:\n    x: int\n"
    names: dict[str, Any] = {}
    with dataclasses_compiled_once(tmp_path / "codes.bin"):
        exec(compile(text, "<module>", "exec", dont_inherit=True), names)
    assert get_type_hints(names["Point"].__init__) == {"x": int, "return": type(None)}


def test_where_no_bytecode_is_written_no_file_is_either(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PYTHONDONTWRITEBYTECODE, or a folder that cannot be written."""
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    with dataclasses_compiled_once(tmp_path / "codes.bin"):
        made()
    assert list(tmp_path.iterdir()) == []

    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    in_the_way = tmp_path / "file"
    in_the_way.touch()
    with (
        dataclasses_compiled_once(in_the_way / "codes.bin"),
        dataclasses_compiled_once(),
    ):
        made()


def test_a_template_is_compiled_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second environment takes it from the file; a changed text is another template."""
    monkeypatch.setattr(sys, "dont_write_bytecode", False)

    def rendered(text: str) -> str:
        environment = jinja2.Environment(
            loader=jinja2.DictLoader({"page": text}),
            bytecode_cache=template_cache(tmp_path),
            autoescape=True,
        )
        return environment.get_template("page").render(value="<1>")

    assert rendered("a {{ value }}") == "a &lt;1&gt;"
    [file] = tmp_path.iterdir()
    written_ns = file.stat().st_mtime_ns
    assert rendered("a {{ value }}") == "a &lt;1&gt;"
    assert file.stat().st_mtime_ns == written_ns
    assert rendered("b {{ value }}") == "b &lt;1&gt;"


def test_code_that_others_can_change_is_not_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor a link, nor another user's; what is written has the rights of the source."""
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    file = tmp_path / "__pycache__" / "a.bin"
    write_bytecode(file, b"code")
    assert read_bytecode(file) == b"code"
    assert file.stat().st_mode & 0o133 == 0
    assert [each.name for each in file.parent.iterdir()] == ["a.bin"]
    for mode in (0o664, 0o646, 0o666):
        file.chmod(mode)
        assert read_bytecode(file) == b""
    file.chmod(0o644)
    link = tmp_path / "link.bin"
    link.symlink_to(file)
    assert read_bytecode(link) == b""
    assert read_bytecode(tmp_path) == b""
    if os.getuid() == 0:
        os.chown(file, 65534, -1)
        assert read_bytecode(file) == b""


def test_code_is_written_through_no_link(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody has put one where the first half is written."""
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    theirs = tmp_path / "theirs"
    theirs.write_bytes(b"kept")
    (tmp_path / f"a.bin.{os.getpid()}").symlink_to(theirs)
    write_bytecode(tmp_path / "a.bin", b"code")
    assert theirs.read_bytes() == b"kept"
    assert not (tmp_path / "a.bin").exists()
