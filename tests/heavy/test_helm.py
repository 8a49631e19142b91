"""The Helm chart, rendered by helm: the same objects as those of kustomize, and what its values
change."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.repository.test_docker_files import BIN, DOCKER, unknown_flags

pytestmark = pytest.mark.heavy

TARGET = "http://llama-server.default.svc:8080"  # that of docker/kubernetes/master.yaml
Objects = dict[tuple[str, str], dict[str, Any]]
Render = Callable[..., Objects]


@pytest.fixture(scope="module")
def helm() -> str:
    found = shutil.which("helm")
    if found is None:
        pytest.skip("NOT TESTED: docker/helm, because there is no helm here")
    return found


@pytest.fixture
def render(helm: str, tmp_path: Path) -> Render:
    """render(workers=7, release="other"): what kubectl would get, which kubernetes-validate
    takes."""

    def objects(release: str = "llama-load", **values: Any) -> Objects:
        file = tmp_path / "values.yaml"
        file.write_text(yaml.safe_dump({"target": TARGET} | values), encoding="utf-8")
        command = [
            helm,
            "template",
            release,
            DOCKER / "helm",
            "--namespace",
            "llama-load",
            "--values",
            file,
        ]
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=60, check=False
        )
        assert done.returncode == 0, done.stderr
        rendered = tmp_path / "rendered.yaml"
        rendered.write_text(done.stdout, encoding="utf-8")
        command = [BIN / "kubernetes-validate", "--strict", rendered]
        checked = subprocess.run(
            command, capture_output=True, text=True, timeout=60, check=False
        )
        found = [each for each in yaml.safe_load_all(done.stdout) if each]
        assert checked.returncode == 0, checked.stdout + checked.stderr
        assert (checked.stdout + checked.stderr).count("passed for resource") == len(
            found
        )
        return by_name(found)

    return objects


def by_name(found: list[dict[str, Any]]) -> Objects:
    return {(each["kind"], each["metadata"]["name"]): each for each in found}


def container(objects: Objects, part: str) -> dict[str, Any]:
    (found,) = objects["Job", f"llama-load-{part}"]["spec"]["template"]["spec"][
        "containers"
    ]
    return found


def without_instance(value: Any) -> Any:
    """Without the label that keeps releases apart, of which kustomize has one."""
    if isinstance(value, dict):
        return {
            key: without_instance(each)
            for key, each in value.items()
            if key != "app.kubernetes.io/instance"
        }
    return (
        [without_instance(each) for each in value] if isinstance(value, list) else value
    )


@pytest.mark.real
def test_it_makes_what_kustomize_makes(render: Render) -> None:
    """Whoever changes one must change the other. Catches a chart that renders to other objects than
    the manifests; only helm renders it."""
    kubectl = shutil.which("kubectl")
    if kubectl is None:
        pytest.skip(
            "NOT TESTED: the chart beside kustomize, because there is no kubectl here"
        )
    made = subprocess.run(
        [kubectl, "kustomize", DOCKER / "kubernetes"],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    ).stdout
    theirs, ours = by_name(list(yaml.safe_load_all(made))), without_instance(render())
    del theirs["Namespace", "llama-load"]  # helm install --create-namespace
    assert ours["PersistentVolumeClaim", "llama-load-results"]["metadata"].pop(
        "annotations"
    ) == {"helm.sh/resource-policy": "keep"}
    for budgets in (theirs, ours):
        assert (
            budgets["PodDisruptionBudget", "llama-load"]["spec"].pop("minAvailable")
            >= 4 + 1
        )
    assert ours.keys() == theirs.keys()
    for name, found in ours.items():
        assert found == theirs[name], name


def test_values_go_where_they_belong(render: Render) -> None:
    """Catches a value that the chart puts elsewhere or nowhere."""
    resources = {"limits": {"memory": "9Gi"}}
    made = render(
        image={
            "repository": "registry.example/ll",
            "digest": "sha256:" + "a" * 64,
            "pullSecrets": ["mine"],
        },
        target="https://a.example http://b:8080",
        locustfile="locustfiles/mixed.py",
        flags=["--users=7", "--goodput=ttft:500 tpot:50"],
        workers=7,
        secret="other",
        upload="s3://bucket/path",
        uploadSecret="credentials",
        resources={"master": resources},
        spools={"claim": True, "storageClassName": "nfs"},
        networkPolicy={"egress": [{"to": [{"ipBlock": {"cidr": "203.0.113.7/32"}}]}]},
    )
    master, worker = container(made, "master"), container(made, "worker")
    assert (
        master["image"] == worker["image"] == "registry.example/ll@sha256:" + "a" * 64
    )
    for each in (master, worker):
        assert "--locustfile=locustfiles/mixed.py" in each["args"]
        assert not unknown_flags(" ".join(each["args"]))
        assert {
            variable["valueFrom"]["secretKeyRef"]["name"]
            for variable in each["env"]
            if "valueFrom" in variable
        } == {"other"}
    assert {
        "--host=https://a.example http://b:8080",
        "--upload=s3://bucket/path",
    } < set(master["args"])
    assert master["args"][-3:-1] == ["--users=7", "--goodput=ttft:500 tpot:50"]
    assert {"name": "LOCUST_EXPECT_WORKERS", "value": "7"} in master["env"]
    assert master["envFrom"] == [{"secretRef": {"name": "credentials"}}]
    assert (
        "envFrom" not in worker
    )  # the credentials of the upload are the master's alone
    assert (
        master["resources"]["limits"]["memory"],
        worker["resources"]["limits"]["memory"],
    ) == ("9Gi", "1Gi")
    spec = made["Job", "llama-load-worker"]["spec"]
    assert (spec["parallelism"], spec["completions"]) == (7, 7)
    assert made["PodDisruptionBudget", "llama-load"]["spec"]["minAvailable"] == 8
    pod = spec["template"]["spec"]
    assert pod["imagePullSecrets"] == [{"name": "mine"}]
    assert pod["volumes"][0] == {
        "name": "runs",
        "persistentVolumeClaim": {"claimName": "llama-load-spools"},
    }
    claim = made["PersistentVolumeClaim", "llama-load-spools"]
    assert (claim["spec"]["accessModes"], claim["spec"]["storageClassName"]) == (
        ["ReadWriteMany"],
        "nfs",
    )
    assert claim["metadata"]["annotations"] == {"helm.sh/resource-policy": "keep"}
    assert {"ipBlock": {"cidr": "203.0.113.7/32"}} in made[
        "NetworkPolicy", "llama-load"
    ]["spec"]["egress"][-1]["to"]
    assert ("NetworkPolicy", "llama-load") not in render(
        networkPolicy={"enabled": False}
    )


def test_two_releases_in_a_namespace_have_nothing_in_common(render: Render) -> None:
    """Neither a name nor a selector that takes the other's pods; each worker connects to the master
    of its release. Catches names and selectors that two releases share."""
    one, two = render("one"), render("two")
    assert not one.keys() & two.keys()
    for name, made in (("one", one), ("two", two)):
        labels = made["Job", f"{name}-master"]["spec"]["template"]["metadata"]["labels"]
        for selector in (
            made["Service", f"{name}-master"]["spec"]["selector"],
            made["NetworkPolicy", f"{name}-master"]["spec"]["podSelector"][
                "matchLabels"
            ],
            made["NetworkPolicy", name]["spec"]["podSelector"]["matchLabels"],
            made["PodDisruptionBudget", name]["spec"]["selector"]["matchLabels"],
        ):
            assert selector["app.kubernetes.io/instance"] == name
            assert selector.items() <= labels.items()
        (worker,) = made["Job", f"{name}-worker"]["spec"]["template"]["spec"][
            "containers"
        ]
        assert f"--master-host={name}-master" in worker["args"]


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ("target=", "name the server under test: --set target=http://HOST:PORT"),
        ("target=llama-server:8080", "target"),
        ("workers=0", "workers"),
        ("image.digest=latest", "digest"),
        ("user=64", "user"),  # no such value: it would be ignored in silence
    ],
)
def test_a_wrong_value_is_named(helm: str, wrong: str, sentence: str) -> None:
    """Catches a schema of values that helm does not enforce."""
    command = [
        helm,
        "template",
        "llama-load",
        DOCKER / "helm",
        "--set",
        f"target={TARGET}",
        "--set",
        wrong,
    ]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode != 0
    assert sentence in done.stderr


def test_helm_lint_finds_nothing(helm: str) -> None:
    """Catches what helm's own rules refuse."""
    command = [helm, "lint", "--strict", DOCKER / "helm", "--set", f"target={TARGET}"]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
