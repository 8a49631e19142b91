"""Lines of load generators as people write them in public: each becomes the same load, or is refused
before any request with what to write. A file of commands/ is one of them: `run` is what is written
after `llama-load run`, `refused` the words of the sentence."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest

from llama_load.ground.bundled import find_bundled
from llama_load.ground.errors import UsageError
from llama_load.loadgen.options.flags import FLAGS
from llama_load.loadgen.options.load_programs import OTHERS, PROGRAMS
from llama_load.loadgen.options.program_command import run_of_command
from llama_load.loadgen.options.vllm_command import our_run
from llama_load.loadgen.options.vllm_options import DATA_SETS, OPTIONS, OTHER_DATA_SETS
from llama_load.servers.apis import APIS

HERE = Path(__file__).parent
CASES = sorted((HERE / "commands").glob("*.json"))
# Of the released package: names of its options, and how many values they take.
RELEASED = json.loads((HERE / "vllm-bench-serve.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("file", CASES, ids=[file.stem for file in CASES])
def test_a_line_is_the_same_load_or_is_refused_with_what_to_write(file: Path) -> None:
    case = json.loads(file.read_text(encoding="utf-8"))
    right = case["right"]
    line = shlex.split(case["line"])
    if "refused" in right:
        with pytest.raises(UsageError) as raised:
            run_of_command(line)
        said = str(raised.value)
        assert [word for word in right["refused"] if word not in said] == [], said
        return
    ours = run_of_command(line)
    assert ours is not None
    words = [ours.url, "-f", ours.workload, *ours.flags]
    assert shlex.join(words) == shlex.join(shlex.split(right["run"]))
    for note in right.get("notes", []):
        assert note in "\n".join(ours.notes)


def test_every_option_of_the_released_parser_has_a_row() -> None:
    rows = {option.name: option.takes for option in OPTIONS.values()}
    assert rows == RELEASED["options"]


def test_what_is_written_instead_exists() -> None:
    """A flag that a row names is one of ours, or Locust's."""
    ours = {flag.name for flag in FLAGS} | {"--host", "-f", "-u", "-n", "-t"}
    # what the advice says of vLLM's own line
    ours |= {"--backend", "--dataset-name", "--rate"}
    texts = [option.ours for option in OPTIONS.values()] + [*OTHER_DATA_SETS.values()]
    for program in PROGRAMS:
        texts += [*program.equal.values(), *program.switches.values(), *program.adds]
        texts += [*program.instead.values(), *program.other_data_sets.values()]
    texts += OTHERS.values()
    named = {
        word.strip(",:'").partition("=")[0]
        for text in texts
        for word in text.split()
        if word.startswith("-")
    }
    assert named - ours == set()


def test_data_sets_of_all_programs_have_a_locustfile() -> None:
    for program in PROGRAMS:
        for workload in program.data_sets.values():
            assert find_bundled(f"locustfiles/{workload}.py"), workload
        assert set(program.apis.values()) <= {*APIS, ""}


@pytest.mark.parametrize("name", sorted(OPTIONS))
def test_an_option_without_its_value_or_with_too_many_is_named(name: str) -> None:
    option = OPTIONS[name]
    if option.takes == "1":
        with pytest.raises(UsageError, match=f"{name} has no value"):
            our_run([name])
    elif option.takes == "":
        with pytest.raises(UsageError, match=f"{name} takes no value"):
            our_run([name, "True"])


@pytest.mark.parametrize("data_set", [*DATA_SETS, *OTHER_DATA_SETS])
def test_every_data_set_is_one_of_ours_or_says_what_to_do(data_set: str) -> None:
    words = ["--model", "m", "--dataset-name", data_set]
    if data_set in DATA_SETS:
        assert our_run(words).workload == DATA_SETS[data_set]
        return
    with pytest.raises(UsageError, match=f"--dataset-name {data_set} has no equal"):
        our_run(words)
