"""examples/ci: jobs that run a load test with thresholds, keep its run folder and comment its report."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from llama_load.options.flags import FLAGS
from llama_load.version import __version__
from tests.conftest import REPOSITORY, Simulated, environment

CI = REPOSITORY / "examples" / "ci"


def github() -> tuple[str, str, list[str]]:
    """The job's command, the command that comments, and the paths of the artefact."""
    workflow = yaml.safe_load((CI / "github.yaml").read_text(encoding="utf-8"))
    assert workflow[True] == "pull_request"  # the key `on`, which YAML 1.1 reads as a boolean
    jobs = workflow["jobs"]
    runs = {step["name"]: step for job in jobs.values() for step in job["steps"] if "name" in step}
    upload = jobs["load-test"]["steps"][-1]
    assert upload["if"] == "always()" and jobs["comment"]["if"].startswith("always()")  # also where a threshold failed
    return runs["load test"]["run"], runs["comment"]["run"], upload["with"]["path"].split()


def gitlab() -> tuple[str, str, list[str]]:
    """The same."""
    job = yaml.safe_load((CI / "gitlab.yaml").read_text(encoding="utf-8"))["load-test"]
    assert job["artifacts"]["when"] == "always"
    (script,), (report, *paths) = job["script"], job["artifacts"]["paths"]
    return script, report, [*paths, job["artifacts"]["reports"]["junit"]]


Job = Callable[[], tuple[str, str, list[str]]]


@pytest.mark.parametrize("job", [github, gitlab])
def test_flags_of_the_job_exist(job: Job) -> None:
    """And keys are in no command, which logs show."""
    command, comment, _ = job()
    known = {flag.name for flag in FLAGS} | {"--headless", "--host"}
    assert set(re.findall(r"(?<!\S)--[a-z-]+", command)) <= known
    assert "API_KEY" not in command + comment


def test_actions_are_named_by_commit_and_llama_load_by_version() -> None:
    texts = [(CI / name).read_text(encoding="utf-8") for name in ("github.yaml", "gitlab.yaml")]
    for text in texts:
        assert set(re.findall(r"pip install (\S+)", text)) == {f"llama-load=={__version__}"}
        assert "latest" not in text
    used = re.findall(r"uses: (\S+)", texts[0])
    assert used and all(re.fullmatch(r"actions/[a-z-]+@[0-9a-f]{40}", action) for action in used)


def test_the_job_that_runs_strangers_code_has_no_rights_and_starts_for_no_stranger() -> None:
    workflow = yaml.safe_load((CI / "github.yaml").read_text(encoding="utf-8"))
    measure, comment = workflow["jobs"]["load-test"], workflow["jobs"]["comment"]
    assert workflow["permissions"] == {} and "permissions" not in measure
    assert comment["permissions"] == {"pull-requests": "write"} and "secrets." not in str(comment)
    assert "github.token" not in str(measure)
    assert measure["if"] == "github.event.pull_request.head.repo.full_name == github.repository"
    assert not [step for step in comment["steps"] if "checkout" in str(step) or "pip" in str(step) or "llama-load " in str(step)]
    gitlab_job = yaml.safe_load((CI / "gitlab.yaml").read_text(encoding="utf-8"))["load-test"]
    assert "$CI_MERGE_REQUEST_SOURCE_PROJECT_ID == $CI_PROJECT_ID" in gitlab_job["rules"][0]["if"]
    assert "TOKEN" not in str(gitlab_job)


@pytest.mark.heavy
@pytest.mark.parametrize("job", [github, gitlab])
def test_the_job_leaves_what_its_later_steps_take(job: Job, simulate: Callable[..., Simulated], tmp_path: Path) -> None:
    """The report that is commented, and the paths of the artefact; also where a threshold failed, as on a slow machine."""
    command, comment, paths = job()
    server = simulate("--first-token-ms", "5", "--interval-ms", "1")
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    env = environment() | {"PATH": path, "SERVER": server.url, "LLAMA_LOAD_API_KEY": ""}
    done = subprocess.run(["bash", "-ec", command], cwd=tmp_path, env=env, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode in (0, 1), done.stderr
    assert "p99_ttft_ms <= 500" in done.stdout
    (report,) = set(re.findall(r"\S+/report\.md", comment.replace("body@", "")))
    assert (tmp_path / report).read_text(encoding="utf-8").startswith("# ")
    assert [path for path in paths if not (tmp_path / path).exists()] == []
