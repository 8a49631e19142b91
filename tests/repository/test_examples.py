"""The examples: listeners that send results to other programs."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from llama_load.ground.bundled import bundled
from tests.conftest import Finished, Simulated

EXAMPLES = Path(__file__).parents[2] / "examples"
# MLflow and Weights & Biases are no dependencies: modules of these names note what they are given.
STAND_IN = """
import atexit, contextlib, json, pathlib
notes = []
atexit.register(lambda: notes and pathlib.Path("notes-" + __name__).write_text(json.dumps(notes)))

class Run:
    summary = {}
    def log(self, figures):
        notes.append(figures)
    def log_artifact(self, path, type):
        notes.append(path)

@contextlib.contextmanager
def start_run(run_name):
    yield
init = lambda project, name: contextlib.nullcontext(Run())
set_tag = lambda name, value: notes.append(value)
log_metrics, log_artifacts = Run().log, notes.append
"""


def test_results_reach_other_programs(
    simulate: Callable[..., Simulated],
    run_locust: Callable[..., Finished],
    tmp_path: Path,
) -> None:
    for name in ("mlflow", "wandb"):
        (tmp_path / f"{name}.py").write_text(STAND_IN)
    files = ",".join(
        map(
            str,
            [
                bundled("locustfiles/sharegpt_chat.py"),
                EXAMPLES / "to_mlflow.py",
                EXAMPLES / "to_wandb.py",
            ],
        )
    )
    server = simulate("--first-token-ms", "20", "--interval-ms", "5")
    done = run_locust(
        *(server.url, "--num-prompts", "3", "--max-tokens", "4"), locustfile=Path(files)
    )
    assert done.code == 0, done.err
    verdict, figures, folder = json.loads((tmp_path / "notes-mlflow").read_text())
    assert (verdict, folder) == (
        done.summary["llama_load"]["verdict"]["word"],
        str(done.folder),
    )
    assert figures["completed"] == 3
    assert figures["mean_ttft_ms"] == done.summary["mean_ttft_ms"]
    assert json.loads((tmp_path / "notes-wandb").read_text()) == [
        figures,
        str(done.folder / "requests.parquet"),
    ]
