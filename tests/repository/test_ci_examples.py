"""The GitHub action, the GitLab component and examples/ci: the shell of each step is run for real,
against a simulated server."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from llama_load.loadgen.options.flags import FLAGS
from tests.conftest import REPOSITORY, Simulated, environment
from tests.heavy.conftest import folder_of

ACTION, TEMPLATE, EXAMPLES = (
    REPOSITORY / "action",
    REPOSITORY / "action" / "gitlab" / "load-test.yml",
    REPOSITORY / "examples" / "ci",
)


def loaded(file: Path) -> dict[str, Any]:
    return yaml.safe_load(file.read_text(encoding="utf-8"))


def action() -> dict[str, Any]:
    return loaded(ACTION / "action.yml")


def step(name: str, of: Mapping[str, Any] | None = None) -> dict[str, Any]:
    (found,) = [
        each for each in (of or action())["runs"]["steps"] if each.get("name") == name
    ]
    return found


def shell(
    script: str, folder: Path, env: Mapping[str, str], *flags: str
) -> subprocess.CompletedProcess[str]:
    """As the runner of a job: bash that ends at an error."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    whole = environment() | {"PATH": path, "GITHUB_ACTION_PATH": str(ACTION)} | env
    command = ["bash", "--noprofile", "--norc", "-eo", "pipefail", *flags, "-c", script]
    return subprocess.run(
        command,
        cwd=folder,
        env=whole,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )


def run_step(
    name: str, folder: Path, **inputs: str
) -> subprocess.CompletedProcess[str]:
    """A step of the action with these inputs; the others have their defaults."""
    whole = action()
    values = {
        key: str(about.get("default", "")) for key, about in whole["inputs"].items()
    }
    values |= {key.replace("_", "-"): value for key, value in inputs.items()}
    assert set(values) == set(whole["inputs"])
    env = {
        key: re.sub(
            r"\$\{\{ inputs\.([a-z-]+) \}\}", lambda match: values[match[1]], value
        )
        for key, value in step(name, whole)["env"].items()
    }
    return shell(step(name, whole)["run"], folder, env)


# ---------------------------------------------------------------------- what the files say


def every_step() -> list[dict[str, Any]]:
    workflow = loaded(EXAMPLES / "github.yaml")
    of_jobs = [each for job in workflow["jobs"].values() for each in job["steps"]]
    return [
        *action()["runs"]["steps"],
        *loaded(ACTION / "comment" / "action.yml")["runs"]["steps"],
        *of_jobs,
    ]


def test_actions_are_named_by_commit() -> None:
    """Ours has no commit in an example: its owner is not known."""
    used = [each["uses"] for each in every_step() if "uses" in each]
    assert len(used) == 5
    for name in used:
        assert re.fullmatch(
            r"actions/[a-z-]+@[0-9a-f]{40}|OWNER/llama-load/action(/comment)?@COMMIT",
            name,
        )


def test_no_input_is_put_into_a_command() -> None:
    """What a stranger can choose reaches a shell through the environment, quoted."""
    for each in every_step():
        assert "${{" not in each.get("run", "")
    (job,) = list(yaml.safe_load_all(TEMPLATE.read_text(encoding="utf-8")))[1].values()
    assert "$[[" not in str(job["script"]) + str(job["before_script"])


def test_every_input_is_used_and_described() -> None:
    text = (ACTION / "action.yml").read_text(encoding="utf-8")
    for name, about in action()["inputs"].items():
        assert f"inputs.{name} }}" in text and about["description"]
    spec, job = yaml.safe_load_all(TEMPLATE.read_text(encoding="utf-8"))
    assert set(re.findall(r"inputs\.(\w+)", str(job))) == set(spec["spec"]["inputs"])


def test_examples_give_inputs_that_exist() -> None:
    jobs = loaded(EXAMPLES / "github.yaml")["jobs"]
    measure, comment = jobs["load-test"]["steps"][0], jobs["comment"]["steps"][0]
    assert set(measure["with"]) <= set(action()["inputs"])
    assert set(comment["with"]) <= set(
        loaded(ACTION / "comment" / "action.yml")["inputs"]
    )
    (component,) = loaded(EXAMPLES / "gitlab.yaml")["include"]
    spec = next(yaml.safe_load_all(TEMPLATE.read_text(encoding="utf-8")))["spec"][
        "inputs"
    ]
    needed = {name for name, about in spec.items() if "default" not in about}
    assert needed <= set(component["inputs"]) <= set(spec)


def test_flags_exist_and_keys_are_in_no_command() -> None:
    texts = [
        (ACTION / name).read_text(encoding="utf-8")
        for name in ("measure.sh", "compare.sh")
    ] + [TEMPLATE.read_text("utf-8")]
    known = {flag.name for flag in FLAGS} | {
        "--headless",
        "--host",
        "--format",
        "--gate",
        "--program",
        "--model",
        "--port",
        "--quiet",
    }
    for text in texts:
        assert set(re.findall(r"(?<!\S)--[a-z-]{2,}", text)) <= known | {"--"}
        assert "API_KEY" not in text


def test_the_job_that_runs_strangers_code_has_no_rights() -> None:
    workflow = loaded(EXAMPLES / "github.yaml")
    assert (
        workflow[True] == "pull_request"
    )  # the key `on`, which YAML 1.1 reads as a boolean
    measure, comment = workflow["jobs"]["load-test"], workflow["jobs"]["comment"]
    assert workflow["permissions"] == {} and "permissions" not in measure
    assert comment["permissions"] == {
        "pull-requests": "write"
    } and "secrets." not in str(comment)
    assert "github.token" not in str(measure) and comment["if"].startswith("always()")
    assert (
        measure["if"]
        == "github.event.pull_request.head.repo.full_name == github.repository"
    )
    commenting = loaded(ACTION / "comment" / "action.yml")["runs"]["steps"]
    assert not [
        each
        for each in commenting
        if re.search("checkout|pip|llama-load |python", str(each))
    ]
    (job,) = list(yaml.safe_load_all(TEMPLATE.read_text(encoding="utf-8")))[1].values()
    assert (
        "$CI_MERGE_REQUEST_SOURCE_PROJECT_ID == $CI_PROJECT_ID" in job["rules"][0]["if"]
    )
    assert "TOKEN" not in str(job) and job["artifacts"]["when"] == "always"


# ---------------------------------------------------------------------- the shell of the steps


def test_a_measurement_without_a_server_is_wrong_use(tmp_path: Path) -> None:
    done = run_step("measure", tmp_path)
    assert done.returncode == 2 and "give the action a url, or a model" in done.stderr


RUNS_IT = "BASH_VERSINFO[$(touch pwned)]"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("repeats", RUNS_IT),
        ("repeats", "a[$(touch pwned)]"),
        ("repeats", "3\n$(touch pwned)"),
        ("repeats", "$(touch pwned)"),
        ("repeats", "`touch pwned`"),
        ("repeats", "0x10"),
        ("repeats", "-1"),
        ("repeats", "PATH"),
        ("repeats", "1,x[$(touch pwned)]"),
        ("users", RUNS_IT),
        ("requests", "8 --power-command=x"),
        ("url", "--host"),
        ("url", "http://x y"),
        ("url", "file:///etc/passwd"),
        ("base_url", "http://a\nb"),
        ("workload", "-f/etc/passwd"),
        ("program", "--version"),
        ("model", "-m"),
    ],
)
def test_inputs_are_checked_before_they_are_used(
    name: str, value: str, tmp_path: Path
) -> None:
    """Bash evaluated `repeats`, and what it evaluates it runs."""
    done = run_step(
        "measure",
        tmp_path,
        **({"url": "http://127.0.0.1:9", "users": "1"} | {name: value}),
    )
    assert done.returncode == 2, done.stderr
    assert f"the input {name} must match" in done.stderr
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "value", [RUNS_IT, "7;touch pwned", "", "-1", "7\n8", "$(touch pwned)"]
)
def test_the_number_of_the_pull_request_is_one(value: str, tmp_path: Path) -> None:
    script = step("comment", loaded(ACTION / "comment" / "action.yml"))["run"]
    environment = {
        "NUMBER": value,
        "REPOSITORY": "a/b",
        "GH_TOKEN": "t",
        "GITHUB_ACTION_PATH": str(ACTION / "comment"),
    }
    done = shell(script, tmp_path, environment)
    assert done.returncode == 2 and "must be a number" in done.stderr
    assert not list(tmp_path.iterdir())


def test_numbers_of_the_gitlab_component_are_checked(tmp_path: Path) -> None:
    (job,) = list(yaml.safe_load_all(TEMPLATE.read_text(encoding="utf-8")))[1].values()
    for value in (RUNS_IT, "$(touch pwned)", "3 -x", "", "03", "-1"):
        env = {
            "USERS": "1",
            "REQUESTS": "1",
            "REPEATS": value,
            "BASE": "",
            "SERVER": "http://127.0.0.1:9",
        }
        done = shell(job["script"][0], tmp_path, env)
        assert done.returncode == 2 and "must be numbers" in done.stderr
    assert not list(tmp_path.iterdir())


def test_a_comparison_after_a_failed_measurement_adds_nothing(tmp_path: Path) -> None:
    assert run_step("compare", tmp_path).returncode == 0 and not list(
        tmp_path.iterdir()
    )


def commented(folder: Path, found: str = "") -> tuple[list[str], str]:
    """What the step of the comment asks GitHub for, and the comment. `found`: the ids of comments
    with its mark. (With a program in place of gh that keeps its arguments.)"""
    gh = folder / "bin" / "gh"
    gh.parent.mkdir(exist_ok=True)
    gh.write_text(
        f'#!/bin/sh\necho "$@" >> arguments\ncase "$*" in *--jq*) printf "%s" "{found}";; esac\n'
    )
    gh.chmod(0o755)
    environment = {
        "PATH": os.pathsep.join([str(gh.parent), os.environ["PATH"]]),
        "NUMBER": "7",
        "REPOSITORY": "a/b",
        "GH_TOKEN": "t",
        "ARTIFACT": "load-test",
        "GITHUB_ACTION_PATH": str(ACTION / "comment"),
    }
    comment = step("comment", loaded(ACTION / "comment" / "action.yml"))
    done = shell(comment["run"], folder, environment)
    assert done.returncode == 0, done.stderr
    return (
        (folder / "arguments").read_text().splitlines(),
        (folder / "comment.md").read_text(),
    )


@pytest.mark.parametrize(
    "report",
    [
        "@everybody <img src=http://x/y> [a](http://x)\n```\nout of it\n````\n",
        "x" * 70_000,
        "`" * 70_000,
    ],
)
def test_the_comment_is_a_text_in_a_fence(report: str, tmp_path: Path) -> None:
    """What the measured code writes mentions nobody, and shows no picture of others."""
    (tmp_path / "load-test").mkdir()
    (tmp_path / "load-test" / "report.md").write_text(report)
    asked, comment = commented(tmp_path)
    assert "--method POST repos/a/b/issues/7/comments" in asked[-1]
    marker, fence, *text, end = comment.removesuffix("\n").split("\n")
    assert marker == "<!-- llama-load: load-test -->"
    assert fence == end == "`" * len(fence)
    assert fence not in "\n".join(text)
    assert len(comment) < 65_536


def test_the_comment_of_the_artefact_is_written_again(tmp_path: Path) -> None:
    """Not the last one of the same account, which may be another program's."""
    (tmp_path / "load-test").mkdir()
    (tmp_path / "load-test" / "report.md").write_text("good")
    (looks, writes), _ = commented(tmp_path, "11\n12\n")
    assert 'startswith("<!-- llama-load: load-test -->")' in looks
    assert "--method PATCH repos/a/b/issues/comments/12" in writes


def test_the_comment_follows_no_link_of_the_artefact(tmp_path: Path) -> None:
    (tmp_path / "load-test").mkdir()
    (tmp_path / "secret").write_text("a key")
    (tmp_path / "load-test" / "report.md").symlink_to(tmp_path / "secret")
    with pytest.raises(AssertionError, match=r"no file report\.md"):
        commented(tmp_path)
    assert not (tmp_path / "comment.md").exists()


def code_of_a_failed_gate(folder: Path) -> int:
    """1; or 3, not judged, where the machine was too busy for the client in one of the runs."""
    words = {
        word
        for run in folder.glob("*/*/summary.json")
        for word in loaded(run)["llama_load"]["verdict"]["words"]
    }
    assert words <= {"VALID", "CLIENT-BOUND", "BLURRED"}
    return 3 if "CLIENT-BOUND" in words else 1


@pytest.mark.heavy
def test_two_servers_are_measured_in_turns_compared_and_gated(
    simulate: Callable[..., Simulated], tmp_path: Path
) -> None:
    """The head's first tokens come at 60 ms instead of 20: its runs are fine, the gate is not.
    Catches a script of the CI example that parses and does not work."""
    base = simulate("--first-token-ms", "20", "--interval-ms", "1")
    head = simulate("--first-token-ms", "60", "--interval-ms", "1")
    fail_if = "mean_ttft_ms>5000\n\nfailure_ratio>0\n"
    urls = {"url": head.url, "base_url": base.url}
    measured = run_step(
        "measure",
        tmp_path,
        **urls,
        users="2",
        requests="20",
        repeats="3",
        fail_if=fail_if,
    )
    assert measured.returncode == 0, measured.stdout + measured.stderr
    runs = sorted(path.parent for path in (tmp_path / "load-test").glob("*/*/run.json"))
    order = sorted(runs, key=lambda run: (run / "run.json").stat().st_ctime_ns)
    assert [run.parent.name for run in order] == [
        "base",
        "head",
        "head",
        "base",
        "base",
        "head",
    ]
    assert len(list((tmp_path / "load-test").glob("junit-*.xml"))) == 3

    summary = tmp_path / "summary"
    compared = shell(
        step("compare")["run"],
        tmp_path,
        {"GATE": "median_ttft_ms:+10%\n", "GITHUB_STEP_SUMMARY": str(summary)},
    )
    assert compared.returncode == code_of_a_failed_gate(tmp_path / "load-test"), (
        compared.stdout + compared.stderr
    )
    report = (tmp_path / "load-test" / "report.md").read_text(encoding="utf-8")
    assert (
        "median_ttft_ms" in report
        and "# " in report
        and summary.read_text(encoding="utf-8") == report
    )


@pytest.mark.heavy
def test_a_threshold_that_fails_ends_the_step_after_all_runs(
    simulate: Callable[..., Simulated], tmp_path: Path
) -> None:
    """Catches a step of CI that ends at the first failed run."""
    server = simulate("--first-token-ms", "20", "--interval-ms", "1")
    done = run_step(
        "measure",
        tmp_path,
        url=server.url,
        users="2",
        requests="8",
        repeats="2",
        fail_if="mean_ttft_ms>1",
    )
    assert done.returncode == 1, done.stdout + done.stderr
    assert len(list((tmp_path / "load-test" / "head").glob("*/summary.json"))) == 2
    assert run_step("compare", tmp_path).returncode == 0
    assert (
        (tmp_path / "load-test" / "report.md")
        .read_text(encoding="utf-8")
        .startswith("# ")
    )


@pytest.mark.heavy
def test_a_server_is_started_with_a_model_and_stopped(
    tmp_path: Path, tiny_model: Path
) -> None:
    """llama.cpp's own llama-server, where `make test-heavy` has it. Catches a script that leaves
    llama-server running, or does not wait for it."""
    program = folder_of("HEAVY_LLAMA_CPP") / "build" / "bin" / "llama-server"
    inputs = {
        "model": str(tiny_model),
        "program": str(program),
        "server_flags": "-np\n2\n-c\n2048\n",
    }
    done = run_step(
        "measure",
        tmp_path,
        **inputs,
        users="2",
        requests="6",
        repeats="1",
        flags="--max-tokens\n8\n",
        fail_if="",
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert (tmp_path / "load-test" / "head" / "1" / "report.md").exists()
    left = subprocess.run(
        ["pgrep", "-f", f"llama-server.*{tiny_model}"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert not left.stdout


@pytest.mark.heavy
def test_the_component_measures_both_servers_and_leaves_its_artefacts(
    simulate: Callable[..., Simulated], tmp_path: Path
) -> None:
    """Catches artefacts of the CI component that are named and not written."""
    spec, jobs = yaml.safe_load_all(TEMPLATE.read_text(encoding="utf-8"))
    job = jobs["load-test"]
    base, head = (
        simulate("--first-token-ms", ms, "--interval-ms", "1") for ms in ("20", "60")
    )
    values = {
        name: str(about.get("default", ""))
        for name, about in spec["spec"]["inputs"].items()
    }
    values |= {
        "server": head.url,
        "base": base.url,
        "users": "2",
        "requests": "20",
        "fail_if": "failure_ratio>0",
    }
    values["gate"] = "median_ttft_ms:+10%"
    env = {
        name: re.sub(r"\$\[\[ inputs\.(\w+) \]\]", lambda match: values[match[1]], text)
        for name, text in job["variables"].items()
    }
    (script,) = job["script"]
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    whole = environment() | {"PATH": path} | env
    sh = shutil.which("dash") or "sh"
    done = subprocess.run(
        [sh, "-e", "-c", script],
        cwd=tmp_path,
        env=whole,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == code_of_a_failed_gate(tmp_path / "load-test"), (
        done.stdout + done.stderr
    )
    junit = job["artifacts"]["reports"]["junit"]
    assert [
        path
        for path in (*job["artifacts"]["paths"], junit)
        if not list(tmp_path.glob(path.rstrip("/")))
    ] == []
    assert "median_ttft_ms" in (tmp_path / "load-test" / "report.md").read_text(
        encoding="utf-8"
    )


@pytest.mark.heavy
def test_the_install_step_installs_the_checkout(tmp_path: Path) -> None:
    """Without dependencies, into an empty environment: the package of this checkout, with the
    command. Catches an install step that pip refuses."""
    subprocess.run([sys.executable, "-m", "venv", str(tmp_path / "empty")], check=True)
    path = os.pathsep.join([str(tmp_path / "empty" / "bin"), os.environ["PATH"]])
    # pip's variable is 0 for a build without isolation: hatchling is ours.
    build = {
        "PIP_NO_DEPS": "1",
        "PIP_NO_BUILD_ISOLATION": "0",
        "PYTHONPATH": sysconfig.get_path("purelib"),
    }
    done = shell(
        step("install")["run"],
        tmp_path,
        {"PATH": path, "INSTALL": "", "PIP_IGNORE_INSTALLED": "1"} | build,
    )
    assert done.returncode == 0, done.stderr
    assert list(
        tmp_path.glob(
            "empty/lib/python*/site-packages/llama_load/_bundled/locustfiles/sharegpt_chat.py"
        )
    )
    assert (tmp_path / "empty" / "bin" / "llama-load").exists()
