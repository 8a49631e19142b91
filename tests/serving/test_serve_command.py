"""`llama-load serve` where it cannot: one sentence, no traceback."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from llama_load.cli import main


def test_what_is_no_gguf_file_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A README given as the model."""
    readme = tmp_path / "README.md"
    readme.write_text("# A model")
    assert main(["serve", "--model", str(readme)]) == 2
    assert f"{readme} is not a GGUF file" in capsys.readouterr().err


def test_a_port_that_is_taken_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Before the process becomes the server."""
    model = tmp_path / "model.gguf"
    model.write_bytes(b"GGUF")
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        assert main(["serve", "--model", str(model), "--port", str(port)]) == 2
    error = capsys.readouterr().err
    assert f"cannot listen on 127.0.0.1:{port}" in error
    assert "choose another --port" in error
