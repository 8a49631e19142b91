"""The wheel's files; `llama-load path`, `init` and `completion`."""

from __future__ import annotations

import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from llama_load.cli.main import main
from llama_load.ground.bundled import FOLDERS, bundled, bundled_files, find_bundled
from llama_load.run_folder import RunWriter
from scripts.hatch_build import CHART_FILES
from tests.conftest import REPOSITORY, environment
from tests.make_records import manifest, record

CLI = [sys.executable, "-m", "llama_load.cli.main"]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    folder = tmp_path_factory.mktemp("wheel")
    build = [
        sys.executable,
        "-m",
        "hatchling",
        "build",
        "-t",
        "wheel",
        "-d",
        str(folder),
    ]
    subprocess.run(build, check=True, capture_output=True, cwd=REPOSITORY, timeout=60)
    (built,) = folder.glob("*.whl")
    return zipfile.ZipFile(built)


def test_a_wheel_has_every_file_that_git_has(wheel: zipfile.ZipFile) -> None:
    """Of the package and of the bundled folders."""
    listed = subprocess.run(
        ["git", "ls-files", "llama_load", *FOLDERS],
        capture_output=True,
        text=True,
        cwd=REPOSITORY,
        check=True,
    )
    files = listed.stdout.splitlines()
    wanted = {
        name if name.startswith("llama_load/") else f"llama_load/ground/_bundled/{name}"
        for name in files
    }
    assert wanted - set(wheel.namelist()) == set()


@pytest.mark.heavy
def test_a_wheel_draws_charts_without_bokehs_package(
    wheel: zipfile.ZipFile, tmp_path: Path
) -> None:
    """Catches a file of bokeh's that the wheel lacks."""
    wheel.extractall(tmp_path / "site")
    copied = tmp_path / "site" / "llama_load" / "bokeh_js"
    assert {file.name for file in copied.iterdir()} == {
        Path(name).name for name in CHART_FILES
    }
    assert "Redistribution" in (copied / "LICENSE.txt").read_text()

    writer = RunWriter(tmp_path / "run", manifest(num_prompts=1))
    writer.append([record(0)])
    writer.finish()
    writer.release()
    report = (
        "import sys; sys.modules['bokeh'] = None\n"
        "from llama_load.cli import main; print(main.__file__, file=sys.stderr)\n"
        "sys.exit(main.main(['report', 'run']))"
    )
    done = subprocess.run(
        [sys.executable, "-c", report],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env=environment() | {"PYTHONPATH": str(tmp_path / "site")},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr.startswith(str(tmp_path / "site"))
    page = (tmp_path / "run" / "report.html").read_text(encoding="utf-8")
    assert (copied / "bokeh.min.js").read_text(encoding="utf-8")[:500] in page


def test_a_bundled_file_is_found_with_and_without_ending_and_folder() -> None:
    name = "locustfiles/sharegpt_chat.py"
    assert (
        find_bundled("sharegpt_chat")
        == find_bundled("sharegpt_chat.py")
        == find_bundled(name)
        == [name]
    )
    assert find_bundled("../pyproject.toml") == find_bundled("") == []
    assert all(bundled(name).is_file() for name in bundled_files())


def test_path_prints_a_path_and_lists_the_names(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["path", "vision"]) == 0
    assert capsys.readouterr().out == f"{bundled('locustfiles/vision.py')}\n"
    assert main(["path"]) == 0
    assert capsys.readouterr().out.splitlines() == bundled_files()


def test_path_of_an_unknown_name_is_wrong_usage(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["path", "sharegpt_chatt"]) == 2
    assert "llama-load path lists them" in capsys.readouterr().err


def test_init_copies_and_never_overwrites(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The copy names itself as it lies there, and loads."""
    folder = tmp_path / "负载 test"
    assert main(["init", str(folder)]) == 0
    copy = folder / "sharegpt_chat.py"
    assert "-f sharegpt_chat.py" in copy.read_text()
    assert f" -f '{copy}'" in capsys.readouterr().out  # as a shell takes it
    compile(copy.read_text(), copy, "exec")
    assert "llama-load sweep starter.yaml" in (folder / "starter.yaml").read_text()
    copy.write_text("mine")
    (folder / "starter.yaml").unlink()
    assert main(["init", str(folder)]) == 2
    assert f"{copy} would be overwritten" in capsys.readouterr().err
    assert copy.read_text() == "mine"
    assert not (folder / "starter.yaml").exists()


def test_init_writes_through_no_link(tmp_path: Path) -> None:
    (tmp_path / "sharegpt_chat.py").symlink_to(tmp_path / "elsewhere")
    assert main(["init", str(tmp_path)]) == 2
    assert not (tmp_path / "elsewhere").exists()


def test_init_copies_the_locustfile_that_is_named(tmp_path: Path) -> None:
    assert main(["init", str(tmp_path), "--locustfile", "long_document"]) == 0
    assert {path.name for path in tmp_path.iterdir()} == {
        "long_document.py",
        "starter.yaml",
    }
    assert (
        main(["init", str(tmp_path / "other"), "--locustfile", "sample_document"]) == 2
    )
    assert not (tmp_path / "other").exists()


@pytest.mark.parametrize(
    ("line", "completions"),
    [
        ("llama-load cali", {"calibrate"}),
        ("llama-load datasets ", {"fetch", "inspect"}),
        ("llama-load serve --simu", {"--simulated"}),
    ],
)
def test_the_shell_gets_completions(
    line: str, completions: set[str], tmp_path: Path
) -> None:
    """As argcomplete's scripts ask for them."""
    answer = tmp_path / "completions"
    asked = {
        "_ARGCOMPLETE": "1",
        "_ARGCOMPLETE_STDOUT_FILENAME": str(answer),
        "COMP_LINE": line,
        "COMP_POINT": str(len(line)),
    }
    subprocess.run(
        CLI,
        env=environment() | asked | {"_ARGCOMPLETE_IFS": "\n"},
        check=True,
        timeout=60,
    )
    assert completions <= {word.strip() for word in answer.read_text().splitlines()}


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_of_a_shell_is_one_that_it_can_read(
    shell: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["completion", shell]) == 0
    script = capsys.readouterr().out
    assert "llama-load" in script
    if shutil.which(shell):
        subprocess.run([shell, "-n"], input=script, text=True, check=True, timeout=60)
