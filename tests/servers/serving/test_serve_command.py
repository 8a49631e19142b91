"""`llama-load serve`: its flags, a cold start, and where it cannot: one sentence, no traceback."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest
import xllamacpp

from llama_load.cli.main import command_parser, main
from llama_load.cli.parser import split_dashes
from llama_load.servers.serving.embedded_flags import apply_flags


def test_what_is_no_gguf_file_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A README given as the model."""
    readme = tmp_path / "README.md"
    readme.write_text("# A model")
    assert main(["serve", "--model", str(readme)]) == 2
    assert f"{readme} is not a GGUF file" in capsys.readouterr().err


def test_a_port_that_is_taken_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Before the process becomes the server."""
    model = tmp_path / "model.gguf"
    model.write_bytes(b"GGUF")
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        assert main(["serve", "--model", str(model), "--port", str(port)]) == 2
    error = capsys.readouterr().err
    assert f"cannot listen on 127.0.0.1:{port}" in error
    assert "choose another --port" in error


def test_what_stands_after_the_dashes_is_the_servers() -> None:
    assert split_dashes(["serve", "vllm", "--", "--x", "--", "1"]) == (
        ["serve", "vllm"],
        ["--x", "--", "1"],
    )
    assert split_dashes(["demo", "--", "-u", "1"]) == (["demo", "--", "-u", "1"], [])


def test_flags_of_the_simulated_server_in_ms_set_seconds() -> None:
    given = command_parser().parse_args(
        ["serve", "--simulated", "--first-token-ms", "200", "--stall-s", "3"]
    )
    assert (given.first_token_s, given.stall_s, "interval_s" in given) == (
        0.2,
        3.0,
        False,
    )


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--env", "X"), "--env takes NAME=VALUE, got 'X'"),
        (("--wrap", '"numactl'), "--wrap: No closing quotation"),
        (("vllm", "--slots", "2"), "flags of llama.cpp; give vllm its own after --"),
        (("llama-server", "--vision"), "--vision is for the embedded server"),
        (("vllm", "--simulated"), "--simulated has no model"),
        (("llama-server", "--rpc", "a:1;b:2"), "several with commas between them"),
        (
            ("llama-server", "--program", "/no/server"),
            "there is no program '/no/server'",
        ),
    ],
)
def test_what_serve_cannot_do_is_one_sentence(
    arguments: tuple[str, ...], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["serve", "--port", "0", *arguments]) == 2
    error = capsys.readouterr().err
    assert says in error
    assert error.count("\n") == 1


def test_a_cold_start_drops_the_model_from_the_page_cache(
    tiny_model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Unless another process maps it, as another test may do here."""
    model = tmp_path / "model.gguf"
    model.write_bytes(tiny_model.read_bytes())
    assert main(["serve", "--model", str(model), "--cold-start", "1"]) == 0
    _, _, cold, warm, *means = capsys.readouterr().out.splitlines()
    assert cold.split()[:2] == ["cold", "0%"] or cold.startswith("as it was")
    assert warm.split()[:2] == ["warm", "100%"]
    ready_s, first_token_s = map(float, warm.split()[2:])
    assert 0 < ready_s < first_token_s
    assert means[-1].startswith("page cache warm: ready after")


def test_flags_of_llama_server_set_the_embedded_ones_parameters() -> None:
    params = xllamacpp.CommonParams()
    apply_flags(
        params,
        ["-tb", "3", "-t", "2", "-fa", "off", "-ctv", "q8_0", "-ub=64", "--no-warmup"],
        xllamacpp,
    )
    assert (
        params.cpuparams.n_threads,
        params.cpuparams_batch.n_threads,
        params.n_ubatch,
        params.warmup,
    ) == (2, 3, 64, False)
    assert (
        params.flash_attn_type
        == xllamacpp.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED
    )
    assert params.cache_type_v == xllamacpp.ggml_type.GGML_TYPE_Q8_0
    for wrong in (["-t"], ["-t", "x"], ["-ctk", "none"], ["--mlock"]):
        with pytest.raises(SystemExit, match=wrong[0]):
            apply_flags(params, wrong, xllamacpp)
