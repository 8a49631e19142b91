"""Why prompts were processed again: each cause is planted before the real llama-server, and is the
only one that is named."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from llama_load.analysis.topics import topics
from llama_load.servers.serving.launch import Server
from tests.conftest import (
    REPOSITORY,
    Finished,
    embedded_server,
    environment,
    run_program,
)

CONVERSATIONS = REPOSITORY / "locustfiles" / "conversations.py"
RunLocust = Callable[..., Finished]


def talks(folder: Path, count: int = 3, turns: int = 4) -> Path:
    """Conversations that have nothing in common, of about 180 tokens a turn."""
    path = folder / "talks.jsonl"
    lines = []
    for number in range(count):
        messages = []
        for turn in range(turns):
            question = f"Number {number * 7919} asks about item {turn}, please. " * 10
            messages.append({"role": "user", "content": question})
            messages.append({"role": "assistant", "content": "Item it is, thank you."})
        lines.append(json.dumps({"id": f"talk{number}", "messages": messages}))
    path.write_text("\n".join(lines))
    return path


def sent(
    run_locust: RunLocust, url: str, folder: Path, data: Path, *flags: str
) -> Finished:
    run = run_locust(
        url,
        *("--warmup", "0", "--history", "recorded"),
        *("--dataset-path", str(data)),
        *flags,
        folder=folder,
        locustfile=CONVERSATIONS,
    )
    assert run.code == 0, run.err
    return run


def figures(run: Finished) -> dict[str, Any]:
    return run.summary["llama_load"]["reprocessing"]


def prompts_of(run: Finished, *flags: str) -> str:
    """What `llama-load prompts` says of it."""
    program = ["llama_load.cli.main", "prompts", str(run.folder), *flags]
    done = run_program(program, run.folder.parent, environment())
    assert done.returncode == 0, done.stderr
    return done.stdout


def causes(run: Finished) -> list[str]:
    return [cause["cause"] for cause in figures(run)["causes"]]


def planted(
    run_locust: RunLocust,
    model: Path,
    folder: Path,
    server_flags: Sequence[str],
    *flags: str,
    data: Path | None = None,
) -> Finished:
    """A run before a server with these flags."""
    folder.mkdir(exist_ok=True)
    with embedded_server(model, folder, "-a", "tiny", *server_flags) as server:
        given = data or talks(folder)
        flags = ("--output-len", "8", *flags)
        return sent(run_locust, server.url, folder / "run", given, *flags)


# What a run of conversations always has, and the part of a run that is steady, or why there is none.
ALWAYS = {"steady", "conversations", "reprocessing"}


def test_a_clean_run_names_no_cause(
    tiny_model: Path, tmp_path: Path, run_locust: RunLocust
) -> None:
    """A warm-up and the run are no conversation, in no topic."""
    flags = ("-u", "3", "--num-prompts", "12", "--warmup", "3")
    data = talks(tmp_path, count=6)
    run = planted(run_locust, tiny_model, tmp_path, ("-np", "3"), *flags, data=data)
    records = run.records
    cached = records.numbers("cached_tokens")
    # Nobody had sent a first prompt before; all of one is lost where it is taken for a later turn.
    assert (cached[records.numbers("turn") == 1] < 50).all()
    assert records.equals("warmup", True).any()
    summary = run.summary["llama_load"]
    assert {topic.key for topic in topics() if summary[topic.key]} == ALWAYS
    assert summary["conversations"]["count"] == 3
    found = figures(run)
    assert found["causes"] == []
    assert found["turns"] == 9
    assert found["ratio"] == found["lost_tokens"] == 0
    # All of a prompt was cached once its conversation went on, up to the template's end.
    assert found["cached_tokens"] >= 0.97 * found["could_tokens"]
    assert "Prompts Processed Again" not in run.out


@pytest.mark.heavy
@pytest.mark.parametrize(
    "name",
    ["sharegpt_chat", "completions", "synthetic", "long_document", "speculation"],
)
def test_of_single_requests_no_topic_has_anything(
    name: str, llama_server: Server, run_locust: RunLocust
) -> None:
    """Catches a topic that blames a real server for what nobody sent."""
    flags = ("-u", "4", "--num-prompts", "16", "--output-len", "12")
    locustfile = CONVERSATIONS.with_name(f"{name}.py")
    run = run_locust(llama_server.url, *flags, locustfile=locustfile)
    summary = run.summary["llama_load"]
    assert {topic.key for topic in topics() if summary[topic.key]} == {"steady"}


def taken_turns(run: Finished) -> list[str]:
    """The conversations of the later turns before which the lone slot had another conversation."""
    ended = run.records.instants("ended_mono_ns").argsort()
    talks_in_order = [run.records.strings("conversation")[row] for row in ended]
    turns = run.records.numbers("turn")[ended]
    taken = []
    for place in range(1, len(ended)):
        is_other = talks_in_order[place] != talks_in_order[place - 1]
        if turns[place] > 1 and is_other:
            taken.append(talks_in_order[place])
    return taken


@pytest.mark.heavy
def test_two_conversations_on_one_slot(
    tiny_model: Path, tmp_path: Path, run_locust: RunLocust
) -> None:
    """Each turn finds the other conversation in the slot, and there is no other cache. Catches a
    log of llama-server's that says the cause in other words."""
    flags = ("-u", "2", "--num-prompts", "8")
    server = ("-np", "1", "-cram", "0", "-c", "8192")
    run = planted(run_locust, tiny_model, tmp_path, server, *flags)
    assert causes(run) == ["another conversation took the slot"]
    (cause,) = figures(run)["causes"]
    # Six, but for a user who begins so late that the other one has the slot twice.
    taken = taken_turns(run)
    assert cause["turns"] == len(taken) >= 4
    assert cause["example"] in ("talk0 turn 2, by talk1", "talk1 turn 2, by talk0")
    # Two thirds of a later turn's prefill are those of the turns before: 1 + 2 + 3 of 2 + 3 + 4. A
    # busy machine takes its time for some of them.
    records = run.records
    later = records.numbers("turn") > 1
    later_ms = records.numbers("server_prompt_ms")[later].sum()
    assert 0.25 * later_ms < cause["ms"] < later_ms
    assert cause["ms"] / cause["ratio"] == pytest.approx(
        records.numbers("server_prompt_ms").sum()
    )
    assert "of prefill was avoidable" in run.out
    assert "Prompts Processed Again" in run.out
    assert "another conversation took the slot: a larger -np, or --cache-ram" in run.out
    said = prompts_of(run, "--conversation", "talk1")
    assert said.startswith("Conversation talk1: 3 turns after the first")
    count = said.count("another conversation took the slot (talk0)")
    assert count == taken.count("talk1")
    program = ["llama_load.cli.main", "prompts", str(run.folder)]
    done = run_program([*program, "--conversation", "none"], tmp_path, environment())
    assert done.returncode == 2
    assert "known are talk0, talk1" in done.stderr


CUSTOM = REPOSITORY / "locustfiles" / "custom.py"


def clerks(folder: Path, count: int = 12) -> Path:
    """Questions to two clerks in turn, whose system prompts have about 480 tokens."""
    lines = []
    for number in range(count):
        clerk = ("Anna", "Bert")[number % 2]
        system = f"{clerk} knows where each box of the warehouse is. " * 48
        messages = [
            {"role": "system", "content": system},
            {"role": "user", "content": f"Where is box {number * 7919}?"},
        ]
        lines.append(json.dumps({"messages": messages}))
    path = folder / "clerks.jsonl"
    path.write_text("\n".join(lines))
    return path


@pytest.mark.parametrize("slots", ["1", pytest.param("2", marks=pytest.mark.heavy)])
def test_system_prompts_that_many_questions_share(
    slots: str, tiny_model: Path, tmp_path: Path, run_locust: RunLocust
) -> None:
    """One slot has the other clerk's prompt each time; of two, each has one clerk's."""
    flags = ("-np", slots, "-c", "8192", "-cram", "0")
    with embedded_server(tiny_model, tmp_path, "-a", "tiny", *flags) as server:
        run = run_locust(
            server.url,
            *("--warmup", "0", "-u", "1", "--num-prompts", "12", "--output-len", "4"),
            *("--dataset-path", str(clerks(tmp_path))),
            locustfile=CUSTOM,
        )
    assert run.code == 0, run.err
    found = figures(run)
    assert found["turns"] == 10  # all but the first to each clerk
    records = run.records
    prompt = records.numbers("prompt_tokens")
    if slots == "2":
        assert found["causes"] == []
        # Their tokens are those that the server had cached.
        assert found["could_tokens"] == pytest.approx(found["cached_tokens"], rel=0.01)
        return
    (cause,) = found["causes"]
    assert (cause["cause"], cause["turns"]) == (
        "another conversation took the slot",
        10,
    )
    # Without any that was cached, by the share of the text.
    assert cause["tokens"] == pytest.approx(prompt[2:].sum() - 10 * 20, rel=0.05)
    assert 0.8 * records.numbers("server_prompt_ms")[2:].sum() < cause["ms"]
    assert "of prefill was avoidable" in run.out


def dated_spans(folder: Path, turns: int = 4) -> Path:
    """A conversation as OpenTelemetry spans, whose system prompt begins with the time."""
    path = folder / "spans.json"
    spans = []
    history: list[dict[str, Any]] = []
    for turn in range(turns):
        text = f"Please look at item {turn} with care. " * 15
        history.append({"role": "user", "parts": [{"type": "text", "content": text}]})
        system = [
            {"type": "text", "content": f"It is {turn}:0{turn}:1{turn}. Be brief."}
        ]
        answer = {"role": "assistant", "parts": [{"type": "text", "content": "I see."}]}
        facts = {
            "gen_ai.operation.name": "chat",
            "gen_ai.conversation.id": "dated",
            "gen_ai.system_instructions": json.dumps(system),
            "gen_ai.input.messages": json.dumps(history),
            "gen_ai.output.messages": json.dumps([answer]),
        }
        attributes = [
            {"key": key, "value": {"stringValue": value}}
            for key, value in facts.items()
        ]
        span = {
            "spanId": str(turn),
            "traceId": "t",
            "startTimeUnixNano": str(turn * 10**9),
            "endTimeUnixNano": str(turn * 10**9 + 10**8),
            "attributes": attributes,
        }
        spans.append(span)
        history.append(answer)
    export = {"resourceSpans": [{"scopeSpans": [{"spans": spans}]}]}
    path.write_text(json.dumps(export))
    return path


@pytest.mark.heavy
def test_a_date_in_the_system_prompt(
    tiny_model: Path, tmp_path: Path, run_locust: RunLocust
) -> None:
    """Catches a date whose place is not found in prompts as a real template renders them."""
    data = dated_spans(tmp_path)
    flags = ("-u", "1", "--num-prompts", "4")
    run = planted(run_locust, tiny_model, tmp_path, ("-np", "2"), *flags, data=data)
    assert causes(run) == ["the text changed"]
    assert figures(run)["causes"][0]["turns"] == 3
    said = prompts_of(run)
    assert "turn 2 begins as the prompt before for" in said
    assert "run with --save-texts" in said
    folder = tmp_path / "kept"
    folder.mkdir()
    with embedded_server(tiny_model, folder, "-a", "tiny", "-np", "1") as server:
        url = server.url
        more = ("--output-len", "8", "--save-texts")
        kept = sent(run_locust, url, folder / "run", data, *flags, *more)
        said = prompts_of(kept)
        with_tokens = prompts_of(kept, "--host", url)
    before, now = re.findall(r"(?:before|now): +(…It is .*|….*)", said)[:2]
    assert "It is 0:00:10" in before
    assert "It is 1:01:11" in now
    # The lone slot had the prompt before: what was cached is what both begin with.
    cached = kept.records.numbers("cached_tokens")
    turns = kept.records.numbers("turn")
    expected = [str(int(count)) for count in cached[turns > 1]]
    found = re.findall(r"of its text and (\d+) tokens, up to", with_tokens)
    assert sorted(found) == sorted(expected)


@pytest.mark.heavy
def test_a_cache_that_is_off(
    tiny_model: Path, tmp_path: Path, run_locust: RunLocust
) -> None:
    """Catches a server without a cache that is blamed for the prompts."""
    flags = ("-u", "1", "--num-prompts", "4")
    server = ("-np", "2", "--no-cache-prompt")
    run = planted(run_locust, tiny_model, tmp_path, server, *flags)
    assert causes(run) == ["the cache is off"]
    off = planted(
        *(run_locust, tiny_model, tmp_path / "off", ("-np", "2"), *flags),
        *("--cache-prompt", "off"),
        data=talks(tmp_path),
    )
    assert causes(off) == ["the cache is off"]


@pytest.mark.heavy
def test_a_small_cache_ram(
    tiny_model: Path, tmp_path: Path, run_locust: RunLocust
) -> None:
    """Four conversations on one slot: of three that wait, 1 MiB has room for one or two. Catches
    evictions that only llama-server's log tells."""
    lines = []
    for number in range(8):
        text = f"Number {number * 7919} tells a long story of many words. " * 80
        lines.append(json.dumps({"id": f"talk{number}", "messages": [
            {"role": "user", "content": text},
            {"role": "assistant", "content": "Good."},
            {"role": "user", "content": "And then?"},
            {"role": "assistant", "content": "Good."},
        ]}))  # fmt: skip
    data = tmp_path / "long.jsonl"
    data.write_text("\n".join(lines))
    flags = ("-u", "8", "--num-prompts", "16")
    server = ("-np", "1", "-cram", "1", "-c", "8192")
    run = planted(run_locust, tiny_model, tmp_path, server, *flags, data=data)
    assert causes(run) == ["evicted from --cache-ram"]
