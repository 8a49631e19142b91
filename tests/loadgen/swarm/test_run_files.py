"""What the page reads of run folders of others."""

from __future__ import annotations

from pathlib import Path

from llama_load.outside.foreign_files import MOST_JSON_BYTES
from llama_load.page.run_files import RunFiles


def test_a_large_json_file_of_others_is_not_decoded(tmp_path: Path) -> None:
    """As everywhere else: decoded it takes up to twenty times its size, and the list of runs reads
    one of each."""
    run = tmp_path / "run"
    run.mkdir()
    (run / "run.json").write_text('{"label": "x"}')
    files = RunFiles(tmp_path, {})
    assert files.json("run", "run.json") == {"label": "x"}
    with (run / "run.json").open("a") as file:
        file.write(" " * MOST_JSON_BYTES)
    assert files.json("run", "run.json") is None
