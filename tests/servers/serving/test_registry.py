"""The registry of started servers where there is no place for it: containers, users without a home
folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from llama_load.servers.serving import registry


@pytest.fixture(params=["no home", "a home that cannot be written"])
def homeless(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    if request.param == "no home":

        def home() -> Path:
            raise RuntimeError("Could not determine home directory.")

        monkeypatch.setattr(Path, "home", home)
    else:
        (tmp_path / "file").write_text("")
        monkeypatch.setenv("HOME", str(tmp_path / "file"))


@pytest.mark.usefixtures("homeless")
def test_without_a_place_no_server_is_known_and_nothing_fails() -> None:
    """A load test looks for its server's entry, a supervisor removes its own; an entry that cannot
    be written is an OSError, which the supervisor reports; logs go to the temporary folder."""
    entry = registry.Entry(1, 1, 0.0, ("llama-server",), "")
    assert registry.find(1) is None
    assert registry.ending_of(entry) == ""
    registry.mark_ended(1, "gone")
    registry.remove(1)
    with pytest.raises(OSError, match=r"home|Not a directory"):
        registry.write(entry)
    assert registry.log_folder(1).parent.is_dir()
