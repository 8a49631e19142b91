"""docker/: what compose files, manifests and Dockerfiles say, and what their linters say of
them."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from locust.argument_parser import get_parser
from packaging.requirements import Requirement
from packaging.version import Version

from llama_load.ground.bundled import FOLDERS, bundled
from llama_load.ground.version import __version__
from llama_load.loadgen.options.flags import FLAGS
from llama_load.loadgen.swarm import alive_file
from tests.conftest import REPOSITORY

DOCKER = REPOSITORY / "docker"
BIN = Path(sys.executable).parent
# One adds a limit to the service of another file, which is given before it.
COMPOSE = sorted(
    path
    for path in DOCKER.glob("compose-*.yaml")
    if path.name != "compose-real-time.yaml"
)
MANIFESTS = sorted(
    path
    for path in (DOCKER / "kubernetes").glob("*.yaml")
    if path.name != "kustomization.yaml"
)
OBJECTS = [
    document
    for path in MANIFESTS
    for document in yaml.load_all(path.read_text(encoding="utf-8"), yaml.CSafeLoader)
]
ENV = {
    "MODEL": "model.gguf",
    "TARGET": "http://127.0.0.1:8080",
    "PATH": "/usr/bin:/bin",
}


def kinds(kind: str) -> dict[str, Any]:
    return {
        found["metadata"]["name"]: found for found in OBJECTS if found["kind"] == kind
    }


def templates() -> dict[str, Any]:
    """The pod templates of Jobs."""
    return {name: found["spec"]["template"] for name, found in kinds("Job").items()}


def services() -> Iterator[tuple[str, str, dict[str, Any]]]:
    """File, name and definition of every service of the compose files."""
    for path in COMPOSE:
        for name, service in yaml.safe_load(path.read_text(encoding="utf-8"))[
            "services"
        ].items():
            yield path.name, name, service


def commands() -> Iterator[tuple[str, str]]:
    """Where a command of Locust or llama-load stands, and the command."""
    for file, name, service in services():
        command = service.get("command", [])
        text = command if isinstance(command, str) else " ".join(command)
        if "locust " in text or "llama-load " in text:
            flags = service.get("environment", {}).get("FLAGS", "")
            yield (
                f"{file}: {name}",
                re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", f"{text} {flags}"),
            )
    for name, template in templates().items():
        yield name, " ".join(template["spec"]["containers"][0]["args"])


def unknown_flags(command: str) -> list[str]:
    """The flags in it that neither Locust nor llama-load has."""
    known = {flag.name for flag in FLAGS} | {
        option for action in get_parser()._actions for option in action.option_strings
    }
    if command.startswith("llama-load"):
        known |= {"--port", "--slots"}
    return [
        flag
        for flag in re.findall(r"(?<![\w-])--?[a-z][a-z-]*(?![\w.])", command)
        if flag not in known | {"-c"}
    ]


@pytest.mark.parametrize(("where", "command"), [*commands()])
def test_commands_have_flags_and_locustfiles_that_exist(
    where: str, command: str
) -> None:
    assert not unknown_flags(command)
    for name in re.findall(r"locustfiles/(\S+)\.py", command):
        assert bundled(f"locustfiles/{name}.py").exists(), where


def test_every_service_of_ours_has_an_init_and_keeps_its_results() -> None:
    """Without an init a container's first process ignores SIGTERM, and processes that it left
    behind stay."""
    for file, name, service in services():
        if "llama" in service.get("image", "") or "vllm" in service.get("image", ""):
            assert service.get("init") is True, f"{file}: {name}"
        if "llama-load}" in service.get("image", ""):
            assert "${RUNS:-../runs}:/load/runs" in service["volumes"], (
                f"{file}: {name}"
            )


# Services that write outside of /tmp and their volumes: vLLM and Grafana keep caches and a database
# beside their programs.
MAY_WRITE = {
    ("compose-vllm.yaml", "server"),
    ("compose-monitoring.yaml", "grafana"),
    ("compose-monitoring.yaml", "dcgm-exporter"),
}


def test_containers_have_no_rights_that_they_do_not_need() -> None:
    for file, name, service in services():
        assert service["cap_drop"] == ["ALL"], f"{file}: {name}"
        assert service["security_opt"] == ["no-new-privileges:true"], f"{file}: {name}"
        assert (service.get("read_only"), service.get("tmpfs")) == (True, ["/tmp"]) or (
            file,
            name,
        ) in MAY_WRITE, f"{file}: {name}"


def images() -> Iterator[tuple[str, str]]:
    """Where an image that is not built here is named, and its name."""
    for path in sorted(DOCKER.glob("*Dockerfile")):
        for name in re.findall(
            r"^ARG BASE=(\S+)", path.read_text(encoding="utf-8"), re.MULTILINE
        ):
            yield path.name, name
    for file, name, service in services():
        image = re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", service["image"])
        if not image.startswith(("llama-load", "llama-rpc")):
            yield f"{file}: {name}", image


def test_images_have_versions_and_bases_digests() -> None:
    """What `latest` was yesterday nobody can say. Of these two no digest was known when they were
    chosen."""
    without_digest = {
        "ghcr.io/ggml-org/llama.cpp:server-b11434",
        "vllm/vllm-openai:v0.32.0",
    }
    found = dict(images())
    assert len(found) >= 6
    for where, image in found.items():
        if image not in without_digest | {
            "nvcr.io/nvidia/k8s/dcgm-exporter:4.6.0-4.8.3-distroless"
        }:
            assert re.fullmatch(
                r"[\w./-]+:[\w.-]*\d[\w.-]*@sha256:[0-9a-f]{64}", image
            ), where
        assert "latest" not in image and "master" not in image, where
    assert not re.search(
        r"latest|master\b(?!-)",
        (DOCKER / "llama-rpc.Dockerfile").read_text(encoding="utf-8"),
    )
    kustomization = yaml.safe_load(
        (DOCKER / "kubernetes" / "kustomization.yaml").read_text(encoding="utf-8")
    )
    assert [image["newTag"] for image in kustomization["images"]] == [__version__]


def locked(name: str) -> dict[str, Version]:
    """The packages of a lock; each has hashes."""
    text = (DOCKER / name).read_text(encoding="utf-8")
    entries = re.split(r"\n(?=\S)", text.strip())
    assert all(re.search(r"--hash=sha256:[0-9a-f]{64}", entry) for entry in entries)
    parsed = [Requirement(entry.partition(" \\")[0]) for entry in entries]
    return {
        each.name.lower(): Version(str(each.specifier).removeprefix("=="))
        for each in parsed
    }


@pytest.mark.parametrize(
    ("name", "extra"), [("requirements.txt", None), ("requirements-demo.txt", "demo")]
)
def test_the_lock_has_what_the_project_needs(name: str, extra: str | None) -> None:
    """After a change of pyproject.toml: `make lock`."""
    project = tomllib.loads(
        (REPOSITORY / "pyproject.toml").read_text(encoding="utf-8")
    )["project"]
    packages = locked(name)
    for line in project["dependencies"] + (
        project["optional-dependencies"][extra] if extra else []
    ):
        needed = Requirement(line)
        assert needed.specifier.contains(
            packages[needed.name.lower()], prereleases=True
        ), line


def test_nothing_is_installed_in_the_image_without_a_hash() -> None:
    text = (DOCKER / "Dockerfile").read_text(encoding="utf-8").replace("\\\n", " ")
    for command in re.findall(r"pip (?:install|wheel)[^&\n]*", text):
        assert "--require-hashes" in command or "--no-deps" in command, command
    assert (
        "--no-build-isolation" in text and locked("requirements-build.txt")["hatchling"]
    )


def test_nothing_leaves_a_pod_but_to_servers_the_master_and_names() -> None:
    spec = kinds("NetworkPolicy")["llama-load"]["spec"]
    assert spec["policyTypes"] == ["Ingress", "Egress"]
    ends = [
        rule["to"][0].get("podSelector", {}).get("matchLabels")
        for rule in spec["egress"]
    ]
    assert (
        {"llama-load/role": "server"} in ends
        and {"k8s-app": "kube-dns"} in ends
        and len(ends) == 3
    )
    assert all(rule.get("to") for rule in spec["egress"]), (
        "a rule without `to` allows everything"
    )
    # NodeLocal DNSCache answers at an address of the node, which is no pod: without the second rule
    # no name was found.
    of_names = spec["egress"][-1]
    assert of_names["to"][1] == {"ipBlock": {"cidr": "169.254.20.10/32"}}
    assert [(port["port"], port["protocol"]) for port in of_names["ports"]] == [
        (53, "UDP"),
        (53, "TCP"),
    ]


def test_keys_are_never_arguments() -> None:
    for where, command in commands():
        assert not re.search(r"--(swarm|api)-key|KEY", command), where


def test_the_network_of_rpc_is_internal_and_the_load_is_not_in_it() -> None:
    """Its protocol has no authentication."""
    file = yaml.safe_load((DOCKER / "compose-rpc.yaml").read_text(encoding="utf-8"))
    assert file["networks"]["rpc"] == {"internal": True}
    assert {
        name: service["networks"] for name, service in file["services"].items()
    } == {
        "rpc1": ["rpc"],
        "rpc2": ["rpc"],
        "server": ["rpc", "default"],
        "load": ["default"],
    }
    assert not [
        name for name, service in file["services"].items() if "ports" in service
    ]


def test_published_ports_are_those_of_loopback() -> None:
    for file, name, service in services():
        for port in service.get("ports", []):
            assert port.startswith("127.0.0.1:"), f"{file}: {name}"


def test_the_image_gets_every_folder_of_the_wheel() -> None:
    """Else its build fails."""
    kept = (REPOSITORY / ".dockerignore").read_text(encoding="utf-8").splitlines()
    assert {f"!{folder}" for folder in FOLDERS} <= set(kept)


def test_a_readme_line_starts_every_compose_file() -> None:
    readme = (DOCKER / "README.md").read_text(encoding="utf-8")
    for path in COMPOSE:
        assert f"-f docker/{path.name}" in readme or path.name == "compose-test.yaml"


def test_kustomize_has_every_manifest_and_its_namespace() -> None:
    kustomization = yaml.safe_load(
        (DOCKER / "kubernetes" / "kustomization.yaml").read_text(encoding="utf-8")
    )
    assert sorted(kustomization["resources"]) == [path.name for path in MANIFESTS]
    for found in OBJECTS:
        assert (
            found["metadata"].get("namespace", found["metadata"]["name"])
            == kustomization["namespace"]
        )
    images = {
        template["spec"]["containers"][0]["image"] for template in templates().values()
    }
    assert images == {image["name"] for image in kustomization["images"]}


def test_selectors_match_the_labels_of_pods() -> None:
    """kubernetes-validate does not look at that. Services, network policies, disruption budgets and
    affinities."""
    labels = {
        name: template["metadata"]["labels"] for name, template in templates().items()
    }

    def selected(selector: dict[str, str]) -> set[str]:
        return {
            name for name, found in labels.items() if selector.items() <= found.items()
        }

    master, worker = {"llama-load-master"}, {"llama-load-worker"}
    assert selected(kinds("Service")["llama-load-master"]["spec"]["selector"]) == master
    assert (
        selected(
            kinds("PodDisruptionBudget")["llama-load"]["spec"]["selector"][
                "matchLabels"
            ]
        )
        == master | worker
    )
    everybody, of_master = (
        kinds("NetworkPolicy")[name]["spec"]
        for name in ("llama-load", "llama-load-master")
    )
    assert selected(everybody["podSelector"]["matchLabels"]) == master | worker
    assert selected(of_master["podSelector"]["matchLabels"]) == master
    assert (
        selected(of_master["ingress"][0]["from"][0]["podSelector"]["matchLabels"])
        == worker
    )
    apart = templates()["llama-load-worker"]["spec"]["affinity"]["podAntiAffinity"][
        "preferredDuringSchedulingIgnoredDuringExecution"
    ]
    assert (
        selected(apart[0]["podAffinityTerm"]["labelSelector"]["matchLabels"])
        == master | worker
    )


def test_the_parts_of_the_swarm_fit_together() -> None:
    """Workers connect to the Service's name and port; the master waits for as many as there are,
    and not for ever."""
    master, worker = (
        templates()[f"llama-load-{part}"]["spec"]["containers"][0]
        for part in ("master", "worker")
    )
    service = kinds("Service")["llama-load-master"]
    assert f"--master-host={service['metadata']['name']}" in worker["args"]
    (port,) = service["spec"]["ports"]
    assert (port["port"], port["targetPort"]) == (5557, master["ports"][0]["name"])
    assert master["ports"][0]["containerPort"] == 5557
    workers = kinds("Job")["llama-load-worker"]["spec"]
    assert {
        "name": "LOCUST_EXPECT_WORKERS",
        "value": str(workers["parallelism"]),
    } in master["env"]
    assert workers["parallelism"] == workers["completions"]
    assert any(
        argument.startswith("--expect-workers-max-wait=") for argument in master["args"]
    )
    job = kinds("Job")["llama-load-master"]["spec"]
    assert min(job["activeDeadlineSeconds"], workers["activeDeadlineSeconds"]) > 0
    assert (job["backoffLimit"], job["template"]["spec"]["restartPolicy"]) == (
        0,
        "Never",
    )
    claim = job["template"]["spec"]["volumes"][0]["persistentVolumeClaim"]["claimName"]
    assert claim in kinds("PersistentVolumeClaim")


@pytest.mark.parametrize("name", ["llama-load-master", "llama-load-worker"])
def test_pods_have_no_rights_that_they_do_not_need(name: str) -> None:
    spec = templates()[name]["spec"]
    (container,) = spec["containers"]
    assert spec["automountServiceAccountToken"] is False
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert container["securityContext"]["readOnlyRootFilesystem"] is True
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert "memory" in container["resources"]["limits"]
    mounted = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
    assert mounted == {"runs": "/load/runs", "tmp": "/tmp"}
    assert {volume["name"] for volume in spec["volumes"]} == set(mounted)


@pytest.mark.parametrize("name", ["llama-load-master", "llama-load-worker"])
def test_probes_look_at_the_file_that_the_event_loop_renews(name: str) -> None:
    (container,) = templates()[name]["spec"]["containers"]
    env = {variable["name"]: variable.get("value") for variable in container["env"]}
    for probe in ("startupProbe", "livenessProbe"):
        assert env[alive_file.VARIABLE] in " ".join(container[probe]["exec"]["command"])


def test_a_liveness_probe_fails_when_the_file_is_not_renewed(tmp_path: Path) -> None:
    """The very command of the manifest, on a file of now, one of two minutes ago, and none."""
    (container,) = templates()["llama-load-worker"]["spec"]["containers"]
    shell, flag, text = container["livenessProbe"]["exec"]["command"]
    file = tmp_path / "alive"
    command = [shell, flag, text.replace("/tmp/alive", str(file))]
    file.touch()
    assert subprocess.run(command, check=False).returncode == 0
    os.utime(file, (time.time() - 120,) * 2)
    assert subprocess.run(command, check=False).returncode != 0
    file.unlink()
    assert (
        subprocess.run(command, check=False, stderr=subprocess.DEVNULL).returncode != 0
    )


@pytest.fixture
def kustomize(tmp_path: Path) -> Callable[[str, str, str], list[dict[str, Any]]]:
    """What kubectl's kustomize makes when a text of a file is replaced: kustomize("workers.yaml",
    "parallelism: 4", …)."""
    kubectl = shutil.which("kubectl")
    if kubectl is None:
        pytest.skip(
            "NOT TESTED: kustomize's replacements, because there is no kubectl here"
        )

    def make(name: str, old: str, new: str) -> list[dict[str, Any]]:
        file = shutil.copytree(DOCKER / "kubernetes", tmp_path / "k") / name
        text = file.read_text(encoding="utf-8")
        assert old in text
        file.write_text(text.replace(old, new), encoding="utf-8")
        made = subprocess.run(
            [kubectl, "kustomize", file.parent],
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        ).stdout
        return [*yaml.safe_load_all(made)]

    return make


def test_the_number_of_workers_stands_in_one_place(
    kustomize: Callable[[str, str, str], list[dict[str, Any]]],
) -> None:
    made = kustomize("workers.yaml", "parallelism: 4", "parallelism: 7")
    jobs = {
        each["metadata"]["name"]: each["spec"] for each in made if each["kind"] == "Job"
    }
    assert (
        jobs["llama-load-worker"]["parallelism"],
        jobs["llama-load-worker"]["completions"],
    ) == (7, 7)
    env = jobs["llama-load-master"]["template"]["spec"]["containers"][0]["env"]
    assert {"name": "LOCUST_EXPECT_WORKERS", "value": "7"} in env


def test_spools_outlive_their_pods_where_nodes_share_a_volume(
    kustomize: Callable[[str, str, str], list[dict[str, Any]]],
) -> None:
    """The component gives the workers a claim that several nodes can mount, in the place of the
    pod's own folder."""
    made = kustomize(
        "kustomization.yaml", "resources:\n", "components: [spools]\nresources:\n"
    )
    found = {
        (each["kind"], each["metadata"]["name"]): each.get("spec") for each in made
    }
    claim = {
        "name": "runs",
        "persistentVolumeClaim": {"claimName": "llama-load-spools"},
    }
    assert claim in found["Job", "llama-load-worker"]["template"]["spec"]["volumes"]
    assert found["PersistentVolumeClaim", "llama-load-spools"]["accessModes"] == [
        "ReadWriteMany"
    ]
    assert (
        found["Job", "llama-load-master"]["template"]["spec"]["volumes"][0][
            "persistentVolumeClaim"
        ]["claimName"]
        == "llama-load-results"
    )


def test_the_chart_is_of_this_version_and_has_its_schemas_values() -> None:
    chart = yaml.safe_load((DOCKER / "helm" / "Chart.yaml").read_text(encoding="utf-8"))
    assert (chart["version"], chart["appVersion"]) == (__version__, __version__)
    schema = json.loads(
        (DOCKER / "helm" / "values.schema.json").read_text(encoding="utf-8")
    )
    values = yaml.safe_load(
        (DOCKER / "helm" / "values.yaml").read_text(encoding="utf-8")
    )
    jsonschema.validate(values, schema)
    assert values.keys() == schema["properties"].keys() - {"global"}


def test_a_swarm_of_compose_outlives_a_worker_and_needs_no_target_to_end() -> None:
    """Nothing stops the others when a container ends; a worker that fails comes back; `down` needs
    no variable, and `up` without one says what is missing."""
    text = (DOCKER / "compose-swarm.yaml").read_text(encoding="utf-8")
    file = yaml.safe_load(text)
    assert not re.search(r"(?<!\$)\$\{\w+:\?", text)
    assert file["services"]["worker"]["restart"].startswith("on-failure")
    readme = (DOCKER / "README.md").read_text(encoding="utf-8")
    (line,) = (line for line in readme.splitlines() if "compose-swarm.yaml up" in line)
    assert "up -d" in line
    assert "exit-code-from" not in line
    command = (
        file["services"]["master"]["command"][2]
        .replace("$$", "$")
        .replace("exec locust", "echo")
    )
    for url, code in (("", 2), ("http://10.0.0.5:8080", 0)):
        done = subprocess.run(
            ["sh", "-c", command],
            env={"URL": url, "FLAGS": "-u 2"},
            capture_output=True,
            text=True,
            check=False,
        )
        assert (done.returncode == 0) == (code == 0)
        assert url in done.stdout or "TARGET" in done.stderr


@pytest.mark.heavy
@pytest.mark.parametrize(
    "file", sorted(DOCKER.glob("*Dockerfile")), ids=lambda path: path.name
)
def test_hadolint_finds_nothing(file: Path) -> None:
    """Catches what hadolint finds in the Dockerfiles."""
    done = subprocess.run(
        [BIN / "hadolint", file],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "")


@pytest.mark.heavy
@pytest.mark.parametrize("file", COMPOSE, ids=lambda path: path.stem)
def test_compose_takes_the_file(file: Path) -> None:
    """podman-compose, and docker's where it is installed. Catches a compose file that YAML allows
    and podman-compose refuses."""
    tools = [[str(BIN / "podman-compose")]]
    if (
        shutil.which("docker")
        and subprocess.run(
            ["docker", "compose", "version"], capture_output=True, check=False
        ).returncode
        == 0
    ):
        tools.append(["docker", "compose"])
    for tool in tools:
        done = subprocess.run(
            [*tool, "-f", file, "config"],
            capture_output=True,
            text=True,
            timeout=60,
            env=ENV,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        # What is left is of the shell in the container.
        assert not [
            line
            for line in done.stdout.splitlines()
            if "${" in line and "${URL:?" not in line
        ]


@pytest.mark.heavy
def test_a_variable_that_is_missing_is_named() -> None:
    """Catches a variable without which compose starts an open master."""
    files = {"box": "MODEL", "rpc": "MODEL", "vllm": "MODEL"}
    for name, variable in files.items():
        command = [
            BIN / "podman-compose",
            "-f",
            DOCKER / f"compose-{name}.yaml",
            "config",
        ]
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=60,
            env={"PATH": ENV["PATH"]},
            check=False,
        )
        assert done.returncode != 0
        assert variable in done.stderr


@pytest.mark.heavy
def test_kubernetes_takes_the_manifests() -> None:
    """Catches a field that the schemas of Kubernetes do not know."""
    command = [
        BIN / "kubernetes-validate",
        "--strict",
        *MANIFESTS,
        DOCKER / "kubernetes" / "spools" / "claim.yaml",
    ]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert (done.stdout + done.stderr).count("passed for resource") == len(OBJECTS) + 1


@pytest.mark.heavy
def test_prometheus_takes_its_configuration_and_grafana_finds_its_files() -> None:
    """What compose-monitoring.yaml mounts is there. Catches a configuration that Prometheus
    refuses."""
    file = yaml.safe_load(
        (DOCKER / "compose-monitoring.yaml").read_text(encoding="utf-8")
    )
    mounts = [
        mount.split(":")
        for name in ("prometheus", "grafana")
        for mount in file["services"][name]["volumes"]
    ]
    assert all(
        (DOCKER / source).exists() for source, *_ in mounts if source.startswith("./")
    )
    provider = yaml.safe_load(
        (DOCKER / "grafana/provisioning/dashboards/llama-load.yml").read_text(
            encoding="utf-8"
        )
    )
    assert provider["providers"][0]["options"]["path"] in [
        target for _, target, *_ in mounts
    ]
    subprocess.run(
        ["promtool", "check", "config", DOCKER / "prometheus.yaml"],
        check=True,
        capture_output=True,
        timeout=60,
    )
