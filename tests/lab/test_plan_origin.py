"""A plan from elsewhere starts nothing before the person has seen what it would start."""

from __future__ import annotations

import grp
import os
import pwd
from pathlib import Path

import pytest

from llama_load.cli import plan_question
from llama_load.cli.main import main
from llama_load.ground.bundled import bundled
from llama_load.ground.errors import UsageError
from llama_load.lab.sweep.cells import conditions
from llama_load.lab.sweep.grammar import COMMANDS, FIT, KINDS, URL
from llama_load.lab.sweep.plan_origin import HARMLESS, SHOWN, is_own, what_it_starts
from llama_load.lab.sweep.read_plan import read_plan
from llama_load.loadgen.options.flag import Kind
from llama_load.outside import foreign_files

PLAN = """
servers:
  evil:
    llama-server:
      program: touch
      args: [pwned-by-args, "\\e[2J"]
      env: {LD_PRELOAD: /x/evil.so}
      set-up: [touch pwned-by-set-up]
      wrap: [env, EVIL=1]
  there: {url: "http://collects-keys.example"}
vary:
  p: {program: [touch, other-program]}
workload: [{file: FOLDER/own.py}]
flags:
  power-command: touch pwned-by-meter
  dataset-path: [/etc/passwd]
  junit: /home/me/x.xml
  upload: "s3://theirs/x"
  scrape: "http://10.0.0.1/metrics"
  think-time: "file:/etc/shadow"
  ca-file: /x/theirs.pem
  config: theirs.conf
  label: harmless-label
load: [{u: 1, num-prompts: 1}]
perplexity: {binary: touch}
"""


@pytest.fixture
def plan(tmp_path: Path) -> Path:
    (tmp_path / "own.py").write_text(
        "from locust import User, task\nclass U(User):\n    @task\n    def t(self): pass\n"
    )
    file = tmp_path / "elsewhere" / "plan.yaml"
    file.parent.mkdir()
    file.write_text(PLAN.replace("FOLDER", str(tmp_path)))
    return file


@pytest.mark.parametrize("command", [["sweep"], ["tune", "--goodput", "ttft:1"]])
@pytest.mark.parametrize("answer", ["", "no"])
def test_nothing_starts_without_a_yes(plan: Path, command: list[str], answer: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:  # fmt: skip
    """`answer`: "" where nobody can be asked."""
    monkeypatch.delenv("LLAMA_LOAD_YES")
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setattr(plan_question, "is_there", lambda: bool(answer))
    monkeypatch.setattr(plan_question, "agrees", lambda _: False)
    assert main([*command, str(plan)]) == 2
    said = capsys.readouterr().err
    assert "nothing was started" in said
    wanted = ("pwned-by-args", "LD_PRELOAD=/x/evil.so", "touch pwned-by-set-up", "EVIL=1", "other-program", "http://collects-keys.example", "own.py", "runs touch pwned-by-meter", "reads /etc/passwd", "writes /home/me/x.xml", "writes to s3://theirs/x", "http://10.0.0.1/metrics (--scrape)", "reads file:/etc/shadow", "reads /x/theirs.pem", "--config theirs.conf")  # fmt: skip
    assert [each for each in wanted if each not in said] == []
    assert "\x1b" not in said
    assert "harmless-label" not in said
    assert not list((tmp_path / "here").iterdir())


def is_private(group: int) -> bool:
    found = grp.getgrgid(group)
    name = pwd.getpwuid(os.getuid()).pw_name
    return found.gr_name == name and set(found.gr_mem) <= {name}


def test_plans_of_the_package_and_of_this_folder_are_ones_own(
    plan: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert is_own(bundled("plans/starter.yaml"))
    monkeypatch.chdir(tmp_path)
    assert is_own(plan)
    # Not: a link to elsewhere, what others can write, what another user owns, what is not there.
    monkeypatch.chdir(plan.parent)
    link = Path("link.yaml")
    link.symlink_to(tmp_path / "outside.yaml")
    (tmp_path / "outside.yaml").write_text(PLAN)
    assert not is_own(link)
    plan.chmod(0o666)
    assert not is_own(plan)
    # Others of its group can change it, unless there are none.
    plan.chmod(0o664)
    assert is_own(plan) == is_private(plan.stat().st_gid)
    monkeypatch.setattr(foreign_files, "_is_private_group", lambda _: False)
    assert not is_own(plan)
    plan.chmod(0o644)
    plan.parent.chmod(0o777)
    assert not is_own(plan)
    plan.parent.chmod(0o755)
    assert is_own(plan)
    assert not is_own(Path("missing.yaml"))
    if os.getuid() == 0:
        os.chown(plan, 65534, -1)
        assert not is_own(plan)
    monkeypatch.chdir("/")
    assert (
        not is_own(tmp_path / "outside.yaml")
        or tmp_path.stat().st_uid == Path("/").stat().st_uid
    )


def test_all_that_it_starts_is_shown(plan: Path) -> None:
    """Whatever was cut off could be the program that matters."""
    names = ", ".join(f"program-{number}-{'x' * 500}" for number in range(100))
    plan.write_text(plan.read_text().replace("other-program", names))
    lines = what_it_starts(read_plan(plan))
    for number in range(100):
        wanted = f"program-{number}-{'x' * 500} pwned-by-args"
        assert any(wanted in line for line in lines)


@pytest.mark.parametrize("args", ["x" * 1000, " ".join(f"a{n}" for n in range(300))])
def test_what_nobody_would_read_is_not_asked_about(plan: Path, args: str) -> None:
    plan.write_text(plan.read_text().replace("pwned-by-args,", f"{args}, pwned,"))
    with pytest.raises(UsageError, match="too much to be asked about"):
        what_it_starts(read_plan(plan))


def test_combinations_that_make_no_cell_are_counted_before_they_are_tried(
    tmp_path: Path,
) -> None:
    """60^6 combinations, each left out because its model is empty: it never ended."""
    file = tmp_path / "plan.yaml"
    values = list(range(60))
    varied = "".join(f"  s{n}: {{args+: {values}}}\n" for n in range(6))
    file.write_text(
        f"servers: {{a: {{vllm: {{model: ''}}}}}}\nvary:\n{varied}load: [{{u: 1, num-prompts: 1}}]\n"
    )
    with pytest.raises(UsageError, match="in over 100000 combinations"):
        list(conditions(read_plan(file)))


def test_every_kind_of_flag_is_shown_or_known_to_be_harmless() -> None:
    """A new kind comes into one of the two lists."""
    assert SHOWN.keys() | HARMLESS == set(Kind)
    assert not SHOWN.keys() & HARMLESS


def test_every_setting_of_a_server_is_shown_or_known_to_be_harmless() -> None:
    shown = {"program", "args", "env", "wrap", *COMMANDS, "model", "rpc", "rpc-worker"}
    harmless = {"ready-within-s", "rpc-workers"}
    for kind, key in KINDS.items():
        settings = {URL} if kind == URL else set(key.shape.keys)
        assert settings <= shown | harmless | {URL, FIT}, kind
