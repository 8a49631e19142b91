"""--reset-prefix-cache before the real llama-server."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from llama_load.servers.kinds import ServerSpec
from llama_load.servers.serving.launch import serving
from tests.conftest import Finished, embedded_server

LOAD = ("-u", "1", "--num-prompts", "4", "--warmup", "0", "--seed", "7")


@pytest.mark.heavy
def test_the_same_prompts_are_not_cached_after_a_reset(
    llama_cpp: Path,
    tiny_model: Path,
    tmp_path: Path,
    run_locust: Callable[..., Finished],
) -> None:
    """The same four prompts three times: the second run finds the last one in the slot, which
    begins like the first; the third, after a reset, finds nothing. Catches a slot that the real
    server does not erase, although it says so."""
    (tmp_path / "slots").mkdir()
    flags = ("--slot-save-path", str(tmp_path / "slots"), "-np", "1", "-cram", "0")
    spec = ServerSpec(
        kind="llama-server",
        program=str(llama_cpp / "llama-server"),
        model=str(tiny_model),
        args=("-t", "1", *flags),
    )
    cached = []
    with serving(spec, tmp_path / "server") as server:
        for number, more in enumerate([(), (), ("--reset-prefix-cache",)]):
            run = run_locust(server.url, *LOAD, *more, folder=tmp_path / str(number))
            assert run.summary["completed"] == 4, run.err
            cached.append(run.records.numbers("cached_tokens")[0])
    assert cached[1] > 0
    assert cached[0] == cached[2] == 0


@pytest.mark.heavy
def test_a_server_that_erases_no_slots_ends_the_run(
    tiny_model: Path, tmp_path: Path, run_locust: Callable[..., Finished]
) -> None:
    """Catches a refusal as llama-server words it."""
    with embedded_server(tiny_model, tmp_path / "server") as server:
        run = run_locust(
            server.url, *LOAD, "--reset-prefix-cache", folder=tmp_path / "run"
        )
    assert run.code == 2
    assert "the prompt cache was not emptied" in run.out + run.err
