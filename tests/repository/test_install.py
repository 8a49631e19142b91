"""Ways to install: nothing printed needs what is not published, the conda recipe and the release
workflow fit pyproject.toml."""

from __future__ import annotations

import re
import subprocess
import tomllib
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

import pytest
import yaml

from llama_load.ground.bundled import BOKEH, BOKEH_VERSION
from llama_load.ground.version import __version__
from scripts import hatch_build
from scripts.hatch_build import CHART_FILES, copied_charts
from tests.conftest import REPOSITORY

PYPROJECT = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))
PROJECT = PYPROJECT["project"]
FOLDERS = (
    "llama_load",
    "docs",
    "docker",
    "examples",
    "action",
    "locustfiles",
    "plans",
    "scripts/conda",
)
SUFFIXES = (".py", ".md", ".yml", ".yaml", ".sh", ".html", ".js", ".txt", ".cff")
# What a command installs: the words after it, up to a quotation mark that ends the text or a
# shell's operator.
INSTALLS = re.compile(
    r"(?:pip3? install|pipx (?:install|run)|uv (?:pip|tool) install|uvx|conda install)((?:[ \t]+[^\s|&;`]+)+)"
)
OURS = re.compile(r"^['\"(]*llama[-_]load(?:\[[\w,]*\])?(?:[=<>~!].*)?['\").,:]*$")


def texts() -> list[tuple[Path, str]]:
    files = [
        file
        for name in FOLDERS
        for file in sorted((REPOSITORY / name).rglob("*"))
        if file.suffix in SUFFIXES
    ]
    files += [
        REPOSITORY / name
        for name in (
            "README.md",
            "AGENTS.md",
            "CONTRIBUTING.md",
            "CHANGELOG.md",
            "docs/llms.txt",
            "Makefile",
        )
    ]
    return [
        (file, file.read_text(encoding="utf-8", errors="replace")) for file in files
    ]


def unpublished(text: str) -> list[str]:
    """Commands that would look for our name on a package index."""
    found = []
    for match in INSTALLS.finditer(text):
        words = match[1].split()
        # `uvx --from WHEEL llama-load` and `conda install --use-local llama-load` take it from
        # elsewhere.
        is_elsewhere = any(
            word == "--use-local"
            or word.startswith(("dist/", "./", "git+"))
            or "@" in word
            for word in words
        )
        if not is_elsewhere and any(OURS.match(word) for word in words):
            found.append(" ".join(match[0].split())[:80])
    return found


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("pip install llama-load", 1),
        ("run `pip install 'llama-load[demo]'`, then", 1),
        ("uvx --from 'llama-load[demo]' llama-load demo", 1),
        ("- run: pip install llama-load==0.1.0", 1),
        ("uvx llama-load demo", 1),
        ("conda install -c conda-forge llama-load", 1),
        ("pip install dist/llama_load-0.1.0-*.whl", 0),
        ("uvx --from dist/llama_load-0.1.0-*.whl llama-load demo", 0),
        ("pip install datasets", 0),
        ("conda install --use-local llama-load", 0),
        ("install: llama-load @ git+https://host/OWNER/llama-load@COMMIT", 0),
    ],
)
def test_commands_that_need_the_index_are_recognized(text: str, count: int) -> None:
    assert len(unpublished(text)) == count


def test_no_printed_command_needs_what_is_not_published() -> None:
    """The name is on no index yet. When it is, this test goes."""
    assert {
        str(file.relative_to(REPOSITORY)): found
        for file, text in texts()
        if (found := unpublished(text))
    } == {}


def test_images_are_built_before_they_are_run() -> None:
    """No page pulls an image of ours from a registry."""
    for file, text in texts():
        assert not re.findall(
            r"docker (?:run|pull)[^`\n]*\s(?:ghcr\.io|docker\.io|quay\.io)/\S*llama-load",
            text,
        ), file


def test_the_pages_name_the_wheel_that_is_built() -> None:
    wheels = {
        name
        for _, text in texts()
        for name in re.findall(r"llama_load-[\d.]+-[^`\s/)\"]*\.whl", text)
    }
    assert wheels == {f"llama_load-{__version__}-*.whl"}


def recipe() -> dict[str, Any]:
    text = (REPOSITORY / "scripts" / "conda" / "meta.yaml").read_text(encoding="utf-8")
    plain = re.sub(r"\{%.*?%\}", "", text).replace(
        "{{ version }}", re.findall(r'set version = "([^"]+)"', text)[0]
    )
    return yaml.safe_load(
        plain.replace("{{ PYTHON }}", "python").replace(
            "{{ compiler('c') }}", "compiler"
        )
    )


def test_the_conda_recipe_has_the_dependencies_of_the_package() -> None:
    """Names as on conda-forge, where an underscore may stand for the hyphen."""
    found = recipe()
    assert found["package"]["version"] == __version__
    ours = {
        re.sub(r"\s", "", line).replace("-", "_") for line in PROJECT["dependencies"]
    }
    theirs = {
        re.sub(r"\s", "", line).replace("-", "_")
        for line in found["requirements"]["run"]
        if not line.startswith("python ")
    }
    assert theirs == ours
    assert f"python {PROJECT['requires-python']}" in found["requirements"]["run"]
    assert [f"llama-load = {PROJECT['scripts']['llama-load']}"] == found["build"][
        "entry_points"
    ]


def test_bokehs_scripts_are_those_of_its_package() -> None:
    """After a change of the version: `make lock`, and install the checkout again."""
    installed = distribution("bokeh")
    pinned = f"bokeh=={installed.version}"
    assert installed.version == BOKEH_VERSION
    assert pinned in PYPROJECT["build-system"]["requires"]
    assert pinned in PROJECT["optional-dependencies"]["dev"]
    assert pinned.replace("==", " ==") in recipe()["requirements"]["host"]
    assert pinned in (REPOSITORY / "docker" / "requirements-build.txt").read_text()
    for name in CHART_FILES:
        copied = BOKEH / Path(name).name
        original = Path(str(installed.locate_file(name)))
        assert copied.read_bytes() == original.read_bytes()


def test_another_bokeh_than_the_pinned_one_is_not_copied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a build without isolation."""
    (tmp_path / "pyproject.toml").write_text(
        '[build-system]\nrequires = ["hatchling", "bokeh==3.0.1"]\n'
    )
    installed = distribution("bokeh").version
    with pytest.raises(
        RuntimeError, match=f"needs bokeh==3.0.1 beside it and found bokeh=={installed}"
    ):
        copied_charts(tmp_path)

    def missing(name: str) -> None:
        raise PackageNotFoundError(name)

    monkeypatch.setattr(hatch_build, "distribution", missing)
    with pytest.raises(RuntimeError, match="found none"):
        copied_charts(tmp_path)
    assert len(list(tmp_path.iterdir())) == 1


def test_pandas_comes_only_with_the_extra() -> None:
    """What needs it, of all packages that are installed here."""
    from importlib.metadata import distributions

    needing = {
        each.metadata["Name"].lower()
        for each in distributions()
        if any(
            re.match(r"pandas\b(?!.*extra ==)", line) for line in each.requires or []
        )
    }
    names = {re.split(r"[^\w.-]", line)[0].lower() for line in PROJECT["dependencies"]}
    assert (
        not needing & names and "datasets" in PROJECT["optional-dependencies"]["hf"][0]
    )


# ---------------------------------------------------------------------- the release workflow


def release() -> dict[str, Any]:
    return yaml.safe_load(
        (REPOSITORY / ".github" / "workflows" / "release.yaml").read_text(
            encoding="utf-8"
        )
    )


def test_the_release_is_started_by_tags_and_keeps_no_key() -> None:
    workflow = release()
    assert (
        workflow[True] == {"push": {"tags": ["v*"]}} and workflow["permissions"] == {}
    )
    text = str(workflow)
    assert "secrets." not in text and "password:" not in text
    used = [
        step["uses"]
        for job in workflow["jobs"].values()
        for step in job["steps"]
        if "uses" in step
    ]
    assert all(
        re.fullmatch(r"(?:actions|pypa)/[a-z-]+@[0-9a-f]{40}", name) for name in used
    )
    # Only the job that publishes gets an identity, and it builds nothing.
    assert [
        name
        for name, job in workflow["jobs"].items()
        if "id-token" in job["permissions"]
    ] == ["index"]
    assert not [step for step in workflow["jobs"]["index"]["steps"] if "run" in step]


@pytest.mark.parametrize(
    ("tag", "code"), [(f"v{__version__}", 0), ("v9.9.9", 1), ("", 1)]
)
def test_a_tag_of_another_version_releases_nothing(tag: str, code: int) -> None:
    (step,) = [
        step
        for step in release()["jobs"]["build"]["steps"]
        if step.get("name") == "version"
    ]
    done = subprocess.run(
        ["bash", "-ec", step["run"]],
        cwd=REPOSITORY,
        env={"GITHUB_REF_NAME": tag, "PATH": "/usr/bin:/bin"},
        check=False,
    )
    assert done.returncode == code
