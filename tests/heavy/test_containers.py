"""The image and the compose files, built and run by docker or podman: `make test-containers` runs
these tests alone."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from llama_load.ground.version import __version__
from llama_load.run_folder.run_journal import read_run_journal
from tests.conftest import REPOSITORY, environment
from tests.swarms import wait_until

pytestmark = [pytest.mark.heavy, pytest.mark.timeout(600)]

DOCKER = REPOSITORY / "docker"
BASE = "python:3.11-slim"
MOST_BYTES = 410e6  # of the image without the extra 'demo'
PROJECT = f"llama-load-test-{os.getpid()}"


@dataclass(frozen=True)
class Engine:
    """docker with its compose plugin, or podman with podman-compose."""

    command: str
    compose: list[str]

    def run(
        self, *arguments: str, timeout_s: float = 100, check: bool = True, **env: str
    ) -> subprocess.CompletedProcess[str]:
        return execute([self.command, *arguments], timeout_s, check, env)

    def start(self, *arguments: str) -> str:
        """Start a container in the background; its name."""
        return (
            self.run("run", "--detach", "--init", *arguments)
            .stdout.strip()
            .splitlines()[-1]
        )

    def is_healthy(self, container: str) -> bool:
        """By the health check of the image, now. (podman runs none by itself where there is no
        systemd.)"""
        return (
            self.run("exec", container, "healthcheck.sh", check=False).returncode == 0
        )


def execute(
    command: list[str], timeout_s: float, check: bool, env: dict[str, str]
) -> subprocess.CompletedProcess[str]:
    all_of_it = environment() | settings() | env
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=timeout_s,
        cwd=REPOSITORY,
        env=all_of_it,
        check=False,
    )
    assert not check or done.returncode == 0, (
        f"{command}: {done.returncode}\n{done.stdout[-3000:]}{done.stderr[-3000:]}"
    )
    return done


def settings() -> dict[str, str]:
    """podman's defaults need systemd."""
    if Path("/run/systemd/system").exists():
        return {}
    return {
        "CONTAINERS_CONF": str(DOCKER / "podman.conf"),
        "CONTAINERS_STORAGE_CONF": str(DOCKER / "podman-storage.conf"),
    }


@pytest.fixture(scope="module")
def engine() -> Engine:
    if (
        shutil.which("docker")
        and subprocess.run(
            ["docker", "info"], capture_output=True, check=False
        ).returncode
        == 0
    ):
        return Engine("docker", ["docker", "compose"])
    assert shutil.which("podman"), "install docker, or podman: scripts/debian.sh"
    return Engine("podman", [str(Path(sys.executable).parent / "podman-compose")])


@pytest.fixture(scope="module")
def build(engine: Engine) -> Callable[[str, str], str]:
    def make(tag: str, extras: str) -> str:
        """Build docker/Dockerfile, on the network of this machine, where the package index is
        reached."""
        arguments = [
            "--build-arg",
            f"BASE={BASE}",
            "--build-arg",
            f"EXTRAS={extras}",
            "--build-arg",
            f"VERSION={__version__}",
            "--tag",
            tag,
        ]
        if engine.command == "podman":  # its own format has no health checks
            arguments += ["--format", "docker"]
        command = [
            engine.command,
            "build",
            "--network",
            "host",
            "--file",
            str(DOCKER / "Dockerfile"),
            *arguments,
            ".",
        ]
        execute(command, 500, True, {})
        return tag

    # Machines differ in what they let containers do: where not even an empty one runs, these tests
    # say nothing of ours.
    base = str(REPOSITORY / "scripts" / "base_image.sh")
    for attempt in (
        [base, engine.command, BASE],
        [engine.command, "run", "--rm", "--network", "none", BASE, "true"],
    ):
        try:
            done = execute(attempt, 500, False, {})
        except subprocess.TimeoutExpired:
            pytest.skip(
                f"NOT TESTED: containers, because {' '.join(attempt)} takes over 500 s here"
            )
        if done.returncode:
            pytest.skip(
                f"NOT TESTED: containers, because {' '.join(attempt)} fails here: {done.stderr[-500:]}"
            )
    return make


@pytest.fixture(scope="module")
def image(engine: Engine, build: Callable[[str, str], str]) -> Iterator[str]:
    """Under a name of this run: the images of another checkout, whose tests run beside it, are
    others."""
    yield build(PROJECT, "")
    # what it was made of is the cache of the next build
    engine.run("rmi", "--force", "--no-prune", PROJECT, check=False)


@pytest.fixture(scope="module")
def demo_image(
    engine: Engine, build: Callable[[str, str], str], image: str
) -> Iterator[str]:
    yield build(f"{PROJECT}:demo", "demo")
    engine.run("rmi", "--force", "--no-prune", f"{PROJECT}:demo", check=False)


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """The mounted folder, in which the container's user may write."""
    folder = tmp_path / "runs"
    folder.mkdir()
    folder.chmod(0o777)
    return folder


def the_run(runs: Path) -> tuple[dict, dict]:
    """summary.json and run.json of the only run of the folder."""
    (folder,) = [path for path in runs.iterdir() if (path / "run.json").exists()]
    return json.loads((folder / "summary.json").read_text()), json.loads(
        (folder / "run.json").read_text()
    )


@pytest.mark.real
def test_the_image_is_small_and_runs_as_nobody_in_particular(
    engine: Engine, image: str
) -> None:
    """Labels, user, size; what only some commands import is not taken out with what is never
    loaded. Catches an image that does not build, lacks a module, or needs its own user."""
    (found,) = json.loads(engine.run("image", "inspect", image).stdout)
    print(f"\nimage: {found['Size'] / 1e6:.0f} MB")
    assert found["Size"] < MOST_BYTES
    assert found["Config"]["Labels"]["org.opencontainers.image.version"] == __version__
    assert "healthcheck.sh" in str(
        found.get(
            "HealthCheck", found.get("Healthcheck", found["Config"].get("Healthcheck"))
        )
    )
    script = "id -u; llama-load --version; ls locustfiles datasets; python -c 'import datasets, hf_xet, llama_load.loadgen.swarm.master, PIL.Image'"
    # Any user: not the image's either.
    out = engine.run(
        "run",
        "--rm",
        "--network",
        "none",
        "--user",
        "12345",
        "--read-only",
        "--tmpfs",
        "/tmp",
        image,
        "sh",
        "-c",
        script,
    ).stdout
    assert out.splitlines()[:2] == ["12345", f"llama-load {__version__}"]
    assert "sharegpt_chat.py" in out
    assert (
        engine.run("run", "--rm", "--network", "none", image, "id", "-u").stdout.strip()
        == "1000"
    )


def test_flags_alone_are_locusts(engine: Engine, image: str) -> None:
    """As with Locust's own image, which operators start so. Catches an entry point that does not
    hand its flags on."""
    assert (
        "locust"
        in engine.run("run", "--rm", "--network", "none", image, "--version").stdout
    )


def test_the_health_check_sees_the_web_ui(engine: Engine, image: str) -> None:
    """Catches a health check that calls a dead page healthy in a container."""
    ui = engine.start("--network", "none", image, "-f", "locustfiles/sharegpt_chat.py")
    stopped = engine.start(
        "--network", "none", image, "sh", "-c", "sleep 100 # a web UI that is gone"
    )
    headless = engine.start(
        "--network", "none", image, "sh", "-c", "sleep 100 # --headless"
    )
    try:
        deadline = time.monotonic() + 60
        while not engine.is_healthy(ui):
            assert time.monotonic() < deadline, engine.run("logs", ui).stderr
            time.sleep(0.5)  # between two looks
        assert not engine.is_healthy(stopped)
        assert engine.is_healthy(headless)
    finally:
        engine.run("rm", "--force", ui, stopped, headless)


def test_keys_come_from_mounted_secrets(
    engine: Engine, image: str, tmp_path: Path
) -> None:
    """One that the user cannot read ends the container, which would otherwise run without a key.
    Catches a secret file that the image's user or entry point does not read."""
    secret = tmp_path / "swarm_key"
    secret.write_text("a-key-of-the-swarm\n")
    run = [
        "run",
        "--rm",
        "--network",
        "none",
        "--volume",
        f"{secret}:/run/secrets/swarm_key:ro",
    ]
    assert (
        engine.run(*run, image, "sh", "-c", "echo $LLAMA_LOAD_SWARM_KEY").stdout.strip()
        == "a-key-of-the-swarm"
    )
    secret.chmod(0)
    refused = engine.run(*run, image, "llama-load", "--version", check=False)
    assert refused.returncode == 2
    assert "cannot be read by user 1000" in refused.stderr


@pytest.fixture
def compose(
    engine: Engine, runs: Path, tmp_path: Path
) -> Iterator[Callable[..., subprocess.CompletedProcess[str]]]:
    """compose("box", "up", …) with compose-test.yaml, which puts the embedded server in the place
    of the public image."""
    key = tmp_path / "swarm.key"
    key.write_text(secrets.token_hex(16))
    key.chmod(0o644)
    env = {
        "MODEL": "none",
        "MODELS": str(tmp_path),
        "RUNS": str(runs),
        "SWARM_KEY_FILE": str(key),
        "TARGET": "http://server:8080",
    }
    env |= {"LLAMA_LOAD_IMAGE": PROJECT, "DEMO_IMAGE": f"{PROJECT}:demo"}
    used = set()

    def run(
        name: str, *arguments: str, check: bool = True, **more: str
    ) -> subprocess.CompletedProcess[str]:
        used.add(name)
        files = [
            "--file",
            str(DOCKER / f"compose-{name}.yaml"),
            "--file",
            str(DOCKER / "compose-test.yaml"),
        ]
        variables = (
            {} if arguments[0] == "down" else env | more
        )  # as documented: it needs none
        return execute(
            [*engine.compose, "--project-name", PROJECT, *files, *arguments],
            200,
            check,
            variables,
        )

    yield run
    for name in used:
        run(name, "down", "--timeout", "2", check=False)


def wait_for_server(engine: Engine) -> None:
    """As `depends_on: service_healthy` does, which podman of Debian 12 lacks."""
    deadline = time.monotonic() + 100
    look = "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8080/health', timeout=4)"
    while engine.run(
        "exec", container(engine, "server"), "python", "-c", look, check=False
    ).returncode:
        assert time.monotonic() < deadline, engine.run(
            "logs", container(engine, "server"), check=False
        )
        time.sleep(0.5)  # between two looks


def containers(engine: Engine, service: str) -> list[str]:
    names = engine.run("ps", "--all", "--format", "{{.Names}}").stdout.split()
    return sorted(
        name for name in names if name.startswith(PROJECT) and service in name
    )


def container(engine: Engine, service: str) -> str:
    (name,) = containers(engine, service)
    return name


@pytest.mark.real
def test_the_box_runs_and_its_exit_code_is_the_runs(
    engine: Engine,
    demo_image: str,
    compose: Callable[..., subprocess.CompletedProcess[str]],
    runs: Path,
) -> None:
    """Catches a compose file whose services do not find each other, or whose exit code is lost."""
    compose("box", "up", "--detach", "server")
    wait_for_server(engine)
    up = ["up", "--abort-on-container-exit", "--exit-code-from", "load", "load"]
    done = compose(
        "box",
        *up,
        LOAD="-u 4 --num-prompts 16 --max-tokens 32 --fail-if output_throughput<1e9",
        check=False,
    )
    summary, manifest = the_run(runs)
    print(done.stdout[done.stdout.find("Before the run") :])
    assert summary["completed"] == 16
    assert [target["url"] for target in manifest["targets"]] == ["http://server:8080"]
    assert done.returncode == 1  # of the threshold, which no server meets


def test_the_swarm_runs_with_a_key_and_two_workers(
    engine: Engine,
    demo_image: str,
    compose: Callable[..., subprocess.CompletedProcess[str]],
    runs: Path,
) -> None:
    """Catches workers in containers that do not reach their master with its key."""
    compose("swarm", "up", "--detach", "server")
    wait_for_server(engine)
    load = {"LOAD": "-u 4 --num-prompts 32 --max-tokens 32", "WORKERS": "2"}
    compose("swarm", "up", "--detach", "master", "worker", **load)
    # `compose wait master`, which podman-compose lacks
    engine.run("wait", container(engine, "master"))
    done = compose("swarm", "logs", "master", **load)
    summary, manifest = the_run(runs)
    print(done.stdout[done.stdout.find("Before the run") :])
    assert summary["completed"] == 32
    assert len(manifest["workers"]) == 2
    assert "without a key" not in done.stdout + done.stderr


KILL_LOCUST = "import psutil; [each.kill() for each in psutil.process_iter() if each.pid != 1 and '--master-host' in each.cmdline()]"


def test_the_swarm_goes_on_without_a_worker_and_takes_more(
    engine: Engine,
    demo_image: str,
    compose: Callable[..., subprocess.CompletedProcess[str]],
    runs: Path,
) -> None:
    """Of three workers one is stopped, which loses nothing, and one is killed, which comes back;
    three more are started. The run goes on until the master is stopped, and `down` needs no
    variable. Catches what a stop, a kill and a scale by the container engine do to a swarm."""

    def on_record() -> set[str]:
        return {
            name
            for folder in runs.glob("*/")
            for name in read_run_journal(folder).table()["worker"].to_pylist()
        }

    compose("swarm", "up", "--detach", "server")
    wait_for_server(engine)
    load = {"LOAD": "-u 6 --num-prompts 100000 --max-tokens 32", "WORKERS": "3"}
    compose("swarm", "up", "--detach", "master", "worker", **load)
    wait_until(lambda: len(on_record()) == 3, 100)
    stopped, killed, _ = containers(engine, "worker")
    engine.run("stop", stopped)
    # its container may end before it
    engine.run("exec", killed, "python", "-c", KILL_LOCUST, check=False)
    wait_until(lambda: len(on_record()) == 4, 100)  # the killed one, under a new name
    compose(
        "swarm",
        "up",
        "--detach",
        "--no-recreate",
        "--scale",
        "worker=6",
        "worker",
        **load,
    )
    wait_until(lambda: len(on_record()) >= 7, 100)
    master = container(engine, "master")
    engine.run("kill", "--signal", "TERM", master)
    code = engine.run("wait", master).stdout.split()[-1]
    log = engine.run("logs", master, check=False)
    _, manifest = the_run(runs)
    assert (code, manifest["end"]) == ("3", "interrupted"), log.stdout + log.stderr
    assert len(manifest["workers"]) >= 7
    assert len(manifest["lost"]) == 1, manifest["lost"]
    done = compose("swarm", "down", "--timeout", "2")
    assert "TARGET" not in done.stderr
    assert not containers(engine, "")
