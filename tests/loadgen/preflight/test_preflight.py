"""What is reported before the run: budgets, pools, limits of the machine, changes since the last
run."""

from __future__ import annotations

import platform
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from llama_load.ground.errors import UsageError
from llama_load.loadgen.options.options import read_options
from llama_load.loadgen.preflight.change_rows import change_rows
from llama_load.loadgen.preflight.load_fits import sending_users
from llama_load.loadgen.preflight.machine_rows import machine_rows, priority_rows
from llama_load.loadgen.preflight.make_manifest import system_name
from llama_load.loadgen.preflight.plan_rows import plan_rows, pool_rows
from llama_load.loadgen.preflight.prepare import print_table, with_declared_cache
from llama_load.loadgen.preflight.prompts import announce_many
from llama_load.loadgen.preflight.slot_budget import Budget, slot_budget
from llama_load.loadgen.preflight.target_rows import target_rows
from llama_load.loadgen.wire.limits import Limits, raised_limits
from llama_load.loadgen.workloads.documents import DocumentFacts
from llama_load.loadgen.workloads.prompt_plan import Plan, PlanFacts
from llama_load.run_folder import PreflightRow, RunWriter, last_with_label
from llama_load.servers.address import parse_url
from llama_load.servers.apis import CHAT, COMPLETIONS
from llama_load.servers.prompt import Image, Prompt
from llama_load.servers.target import ServerFacts, Target
from tests.conftest import Finished, embedded_server
from tests.make_records import facts, manifest
from tests.server_kinds import LLAMA_SERVER, VLLM

SERVER = Target(
    parse_url("http://h"),
    LLAMA_SERVER,
    "m",
    slots=4,
    ctx_per_slot=4096,
    template_tokens=10,
)
PLAN = Plan([Prompt(f"p{n}", 100 * n, 100) for n in range(1, 11)], [], facts())


def test_a_budget_counts_template_prefix_prompt_and_answer() -> None:
    """10 of template, 24 of prefix, 4000 of prompt: 62 are left for the answer."""
    budget = slot_budget([SERVER], CHAT, prefix_tokens=24)
    assert budget.need(4000, 62) == 4096
    assert (budget.fits(4000, 62), budget.fits(4000, 63)) == (True, False)
    assert slot_budget([SERVER], COMPLETIONS).need(4000, 62) == 4062
    assert not slot_budget([SERVER], CHAT, max_tokens=500).fits(4000, 1)


def test_the_budget_of_replicas_is_the_tightest() -> None:
    other = replace(SERVER, ctx_per_slot=2048, template_tokens=30)
    assert slot_budget([SERVER, other], CHAT) == Budget(2048, 30, template=30)


def test_an_unknown_context_takes_everything() -> None:
    assert Budget(None, 0).fits(10**9, 1)


def test_a_shared_pool_is_held_against_the_longest_prompts_together() -> None:
    """4 slots, 8 users: the prompts of 700 to 1000 with 100 of answer and 10 of template need 3840
    tokens at a time."""
    budget = slot_budget([SERVER], CHAT)
    assert pool_rows(PLAN, budget, [SERVER], 8, None) == []
    assert pool_rows(PLAN, budget, [SERVER], 8, 3840)[0].level == "ok"
    row = pool_rows(PLAN, budget, [SERVER], 8, 3839)[0]
    assert (row.level, "3840 of 3839 tokens needed" in row.value) == ("warning", True)
    assert pool_rows(PLAN, budget, [SERVER], 2, 3839)[0].level == "ok"


def test_a_pool_of_which_nothing_is_known_has_no_row() -> None:
    """Slots of a server that share nothing are the usual case, and llama-server does not report
    whether they share."""
    small = replace(SERVER, ctx_per_slot=2000)
    assert pool_rows(PLAN, slot_budget([small], CHAT), [small], 8, None) == []
    assert (
        pool_rows(
            PLAN, slot_budget([small], CHAT), [replace(small, backend=VLLM)], 8, 3839
        )
        == []
    )


def test_too_many_users_for_the_machine_are_refused() -> None:
    with pytest.raises(UsageError, match="ulimit -n 6000"):
        machine_rows([SERVER], 5000, Limits(1024, 28000))
    with pytest.raises(UsageError, match="ip_local_port_range"):
        machine_rows([SERVER], 30000, Limits(None, 28000))
    assert machine_rows([SERVER], 20000, Limits(None, 28000))[0].level == "note"
    assert machine_rows([SERVER, SERVER], 20000, Limits(None, 28000)) == []
    assert machine_rows([SERVER], 5000, Limits(20000, 28000)) == []


def test_a_process_needs_files_and_a_machine_ports() -> None:
    """20,000 users of two workers were refused with 20,000 open files; 40,000 of four, which may be
    on as many machines, with 28,000 ports. Where a single worker needs more than there are, it is
    refused."""
    assert (
        machine_rows([SERVER, SERVER], 20_000, Limits(20_000, 28_000), workers=2) == []
    )
    row = machine_rows([SERVER], 40_000, Limits(20_000, 28_000), workers=4)[0]
    assert row.level == "warning"
    assert "several machines" in row.value
    with pytest.raises(UsageError, match="open files in a process"):
        machine_rows([SERVER], 20_000, Limits(8000, 28_000), workers=2)
    with pytest.raises(UsageError, match="ip_local_port_range"):
        machine_rows([SERVER], 80_000, Limits(None, 28_000), workers=2)


def test_the_priority_is_shown_where_a_server_runs_on_this_machine() -> None:
    """Allowed, refused with the remedy, and of no interest: another machine's server, or
    --client-priority normal."""
    local = replace(SERVER, address=parse_url("http://127.0.0.1").resolved())
    [compiled] = priority_rows([SERVER, local], "auto", True, is_apart=True)
    [python] = priority_rows([SERVER, local], "auto", True, is_apart=False)
    assert (compiled.level, python.level) == ("ok", "ok")
    assert compiled.value.startswith(
        "the thread that receives takes real-time priority"
    )
    assert python.value.startswith("the client's main thread takes real-time priority")

    [refused] = priority_rows([SERVER, local], "auto", False, is_apart=True)
    assert refused.level == "note"
    assert "ulimit -r 1" in refused.value
    assert priority_rows([SERVER], "auto", False, is_apart=True) == []
    assert priority_rows([local], "normal", False, is_apart=True) == []


def test_limits_of_this_process_are_raised_and_read() -> None:
    import resource

    limits = raised_limits()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    assert soft == hard
    assert limits.open_files == (None if soft == resource.RLIM_INFINITY else soft)
    assert limits.local_ports is None or limits.local_ports > 1000


def test_what_changed_since_the_last_run_with_this_label_is_reported(
    tmp_path: Path,
) -> None:
    about = {"build": "b1", "slots": 4, "ctx_per_slot": 4096, "url": "http://a"}
    before = manifest(
        label="nightly", targets=[about], options={"seed": "0"}, date="20261120-120000"
    )
    older = manifest(label="nightly", targets=[about], date="20261119-120000")
    for name, each in (
        ("a", older),
        ("b", before),
        ("c", manifest(label="other", date="20261121-120000")),
    ):
        RunWriter(tmp_path / name, each).finish()
    (tmp_path / "junk").mkdir()
    (tmp_path / "junk" / "run.json").write_text("{")
    found = last_with_label(tmp_path, "nightly")
    assert found is not None
    assert (found[0].name, found[1].date) == ("b", before.date)
    earlier = last_with_label(tmp_path, "nightly", (tmp_path / "b", before.date))
    assert earlier is not None and earlier[0].name == "a"
    assert last_with_label(tmp_path, "nightly", (tmp_path / "a", older.date)) is None
    now = manifest(
        label="nightly",
        targets=[about | {"build": "b2", "slots": 8}],
        options={"seed": "1"},
        users=8,
    )
    (row,) = change_rows(found[1], now)
    assert row.value == (
        "since the run of 20261120-120000 with this label: build b1 -> b2; slots 4 -> 8; --seed 0 -> 1; -u 4 -> 8"
    )
    assert change_rows(before, before)[0].value.endswith("nothing")
    assert last_with_label(tmp_path, "weekly") is None


def documents(**changed: object) -> PlanFacts:
    """Of 8 documents, cut from 11 000 tokens to 3960."""
    texts = DocumentFacts(
        path="doc.md", files=1, document_tokens=3960, cache="different"
    )
    return facts(
        **{"dataset": texts, "distinct": 3, "repeated": 5, "cut": 8, "cut_from": 11_000}
        | changed
    )


def values(plan: Plan, *, open_ended: bool = False) -> dict[str, str]:
    return {
        row.name: row.value
        for row in plan_rows(plan, Budget(4096, 10), open_ended=open_ended)
    }


def test_cut_documents_are_reported_with_both_lengths() -> None:
    """Alone, in a mixture with images, and with prompts that do not fit."""
    cut = "8 of 8 documents cut from 11,000 to 3,960 tokens to fit a slot (--keep-long-prompts)"
    texts = [Prompt(f"p{n}", 3900, 100) for n in range(8)]
    assert cut in values(Plan(texts, [], documents())).values()
    image = Image(b"", "0", 1, 1)
    mixed = documents(tasks={"document": documents(), "vision": facts(cut=0)})
    rows = plan_rows(
        Plan([*texts, Prompt("what?", 5, 100, images=(image,))], [], mixed),
        Budget(4096, 10),
        open_ended=False,
    )
    assert [row.value for row in rows if row.name in ("too long", "images")] == [
        cut,
        "their number of tokens is not known before the run",
    ]
    rows = plan_rows(
        Plan([*texts, Prompt("x", 9000, 1)], [], documents()),
        Budget(4096, 10),
        open_ended=False,
    )
    assert [row.value for row in rows if row.name == "too long"] == [
        cut,
        "1 prompt does not fit a slot and will fail or be cut (--keep-long-prompts)",
    ]


def test_one_is_one() -> None:
    found = values(Plan([Prompt("x", 10, 10)], [], facts(replaced=1)), open_ended=True)
    assert found["prompts"] == "1 prompt from p, tokens counted by server"
    assert found["repeats"] == "after 1 different prompt it repeats and will be cached"
    assert found["too long"] == "1 prompt did not fit a slot, replaced by others"
    assert (
        "only 1 different one, 1 is repeated and will be cached"
        in values(Plan([Prompt("x")] * 2, [], facts(repeated=1)))["repeats"]
    )
    again = (
        "after 1 different prompt each begins with another number, so that none repeats"
    )
    for plan in (
        Plan([Prompt("x")] * 2, [], facts(varied=1)),
        Plan([Prompt("x")], [], facts(), rounds=1),
    ):
        assert values(plan, open_ended=True)["repeats"] == again
    one = replace(SERVER, slots=1)
    router = replace(one, slots=5, slots_by_model={"a": 4, "b": 1})
    (row,) = [row for row in target_rows([router], 4) if row.name == "slots"]
    assert row.value.startswith(
        "4 of a + 1 of b for 4 concurrent requests: up to 1 wait"
    )
    assert [row.value for row in target_rows([one], 2) if row.name == "slots"] == [
        "1 for 2 concurrent requests: up to 1 waits in the server's queue"
    ]
    (row,) = pool_rows(PLAN, slot_budget([one], CHAT), [one], 1, 500)
    assert row.value.startswith("1110 of 500 tokens needed by the longest prompt")


def test_the_way_to_the_server_is_shown_and_a_long_one_is_a_note() -> None:
    """With several servers each way, in their order."""
    near, far = (
        replace(SERVER, facts=ServerFacts(round_trip_ms=way)) for way in (0.84, 7.25)
    )
    rows = [
        row
        for targets in ([near], [near, far])
        for row in target_rows(targets, 1)
        if row.name == "path"
    ]
    assert [(row.value, row.level) for row in rows] == [
        ("0.8 ms to the server and back", "ok"),
        ("0.8, 7.2 ms to the server and back, a part of every TTFT", "note"),
    ]


def test_a_shared_pool_that_overflows_is_foretold_and_named(
    run_locust: Callable[..., Finished], tiny_model: Path, tmp_path: Path
) -> None:
    """A real llama-server whose slots share 1024 tokens: all streams end in an error when it is
    full."""
    with embedded_server(
        tiny_model, tmp_path / "server", "-c", "1024", "--kv-unified"
    ) as running:
        arguments = (
            "--num-prompts",
            "4",
            "-u",
            "4",
            "--max-tokens",
            "400",
            "--ignore-eos",
            "--kv-pool",
            "1024",
            "--warmup",
            "0",
        )
        done = run_locust(running.url, *arguments)
    assert done.code == 1, done.err
    assert "of 1024 tokens needed" in " ".join(done.err.split())
    failed = done.records.failed()
    assert set(failed.strings("status")) == {"kv_pool_full"}
    assert "shared KV cache" in (done.folder / "report.md").read_text()


def test_what_the_server_is_goes_into_the_manifest(
    run_locust: Callable[..., Finished], llama_server
) -> None:
    done = run_locust(
        llama_server.url,
        "--num-prompts",
        "1",
        "--max-tokens",
        "1",
        "--label",
        "a label",
    )
    (target,) = done.manifest["targets"]
    assert (target["slots"], target["ctx_per_slot"], target["model"]) == (
        4,
        4096,
        "tiny",
    )
    assert target["modalities"]["vision"] is False
    assert len(target["chat_template_sha256"]) == 64
    assert {"temperature", "top_k", "top_p"} <= set(target["sampling"])
    again = run_locust(
        llama_server.url,
        "--num-prompts",
        "1",
        "--max-tokens",
        "2",
        "--label",
        "a label",
        folder=done.folder.parent / "again",
    )
    text = " ".join(again.err.split())
    assert "with this label: --max-tokens 1 -> 2" in text


def test_the_table_breaks_no_path(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """At 80 columns sentences are wrapped below their beginning; a long path is one word, to be
    copied."""
    monkeypatch.setenv("COLUMNS", "80")
    path = f"/data/{'a-long-folder/' * 8}model.gguf"
    print_table(
        [
            PreflightRow(
                "model",
                f"the file {path} of a server, with a sentence after it that is longer than a line",
            ),
            PreflightRow("key", "none", "note"),
        ]
    )
    lines = capsys.readouterr().err.splitlines()
    assert (
        lines[0] == "Before the run"
        and lines[1] == "✓  model  the file"
        and lines[-1] == "·  key    none"
    )
    assert path in " ".join(lines).split() and all(
        line.startswith("          ") for line in lines[2:-1]
    )
    assert max(len(line) for line in lines if path not in line) <= 80


def test_only_our_users_count_as_concurrency_beside_others() -> None:
    """As Locust shares them out: by weight, a fixed count first."""

    def user(name: str, *, ours: bool, **settings: int) -> type:
        fields = (
            {"weight": 1, "fixed_count": 0}
            | settings
            | ({"workload_name": "chat"} if ours else {})
        )
        return type(name, (), fields)

    chat, web = user("Chat", ours=True), user("Web", ours=False)
    assert [sending_users([chat, web], total) for total in (0, 1, 2, 4, 100)] == [
        0,
        1,
        1,
        2,
        50,
    ]
    assert sending_users([user("Chat", ours=True, weight=3), web], 100) == 75
    assert sending_users([chat, user("Web", ours=False, fixed_count=1)], 3) == 2
    assert sending_users([chat], 7) == sending_users([web], 7) == 7


def test_the_system_is_named_as_python_names_it() -> None:
    assert system_name() == platform.platform()


def test_a_user_class_declares_that_caching_is_intended() -> None:
    """A flag about caching says more than the class."""

    class Cached:
        cache_prompt = True

    class Plain:
        cache_prompt = None

    def declared(*classes: type, **flags: object) -> bool | None:
        options = read_options(SimpleNamespace(**flags))
        return with_declared_cache(options, classes).cache_prompt

    assert declared(Plain, Cached) is True
    assert declared(Plain) is None
    assert declared(Cached, cache_prompt="off") is False
    assert declared(Cached, bust_prefix_cache=True) is None


def test_many_prompts_are_announced_before_they_are_read(
    capsys: pytest.CaptureFixture[str],
) -> None:
    announce_many(9_999)
    assert capsys.readouterr().err == ""
    announce_many(100_000)
    assert capsys.readouterr().err == "reading and counting 100,000 prompts …\n"
