"""Which request had which slot, by /slots as it was sampled."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from llama_load.analysis.topics.reprocessing.causes import OTHER_SLOT, TAKEN, UNKNOWN
from llama_load.analysis.topics.reprocessing.reprocessed_turns import (
    ReprocessedTurn,
    RunFacts,
    TurnTable,
)
from llama_load.analysis.topics.reprocessing.reprocessing_figures import turn_table
from llama_load.run_folder import load_run
from llama_load.run_folder.observed.telemetry_series import Series
from tests.analysis.topics.test_reprocessing import RunLocust, sent
from tests.conftest import embedded_server
from tests.make_records import record, table

URL = "http://h"
S = 10**9


def slot(number: int, *tokens: float, is_idle: bool = False) -> list[Series]:
    """What it showed, once a second: tasks by the tokens of their prompts. Only seen idle, it has
    those of an answer of three tokens, too."""
    instants = np.arange(len(tokens), dtype=np.int64) * S
    prompt = np.array(tokens)
    held = np.where(prompt > 0, prompt + 2, 0)
    if is_idle:
        prompt = np.zeros(len(tokens))
    shown = {"task": np.array(tokens), "prompt_tokens": prompt, "held_tokens": held}
    found = []
    for name, values in shown.items():
        labels = {"slot": str(number)}
        found.append(Series(f"{URL}/slots", f"slot_{name}", labels, instants, values))
    return found


def second_turn(*slots: list[Series], other_tokens: int = 700) -> ReprocessedTurn:
    """Of a conversation whose turns are sent at 0.5 s and 4.5 s; another one's at 2.5 s."""
    mend = {"conversation": "mend", "conversation_start": 0, "cached_tokens": 0}
    read = {"conversation": "read", "conversation_start": 1}
    rows = [
        record(0, start_ms=500, turn=1, prompt_tokens=500, **mend),
        record(1, start_ms=2500, turn=1, prompt_tokens=other_tokens, **read),
        record(2, start_ms=4500, turn=2, prompt_tokens=600, **mend),
    ]
    series = [each for one in slots for each in one]
    facts = RunFacts(False, {}, {}, slot_series={URL: series})
    (found,) = TurnTable(table(*rows), facts).later_turns()
    return found


@pytest.mark.parametrize("is_idle", [False, True])
def test_another_conversation_was_seen_in_the_slot(is_idle: bool) -> None:
    shown = slot(0, 0, 500, 500, 700, 700, 600, is_idle=is_idle)
    found = second_turn(shown, slot(1, 0, 0, 0, 0, 0, 0))
    assert (found.cause, found.taker) == (TAKEN, "read")


def test_the_slot_still_had_the_turn_before() -> None:
    found = second_turn(
        slot(0, 0, 500, 500, 500, 500, 500), slot(1, 0, 0, 0, 700, 700, 600)
    )
    assert (found.cause, found.taker) == (OTHER_SLOT, None)


@pytest.mark.parametrize(
    "slots",
    [
        (),
        # The other request is in the other slot.
        (slot(0, 0, 500, 500, 500, 500, 600), slot(1, 0, 0, 0, 700, 700, 700)),
        # What the slot had from the beginning is not known.
        (slot(0, 500, 500, 500, 700, 700, 600),),
        # It was seen with something that no request of the run had.
        (slot(0, 0, 500, 500, 333, 333, 600),),
    ],
)
def test_what_was_not_seen_is_not_known(slots: tuple[list[Series], ...]) -> None:
    assert second_turn(*slots).cause == UNKNOWN


def test_a_number_of_tokens_that_two_requests_had_tells_of_neither() -> None:
    """Both could be what slot 0 shows from 1 s on."""
    shown = slot(0, 0, 0, 0, 500, 500, 600)
    assert second_turn(shown, other_tokens=500).cause == UNKNOWN


@pytest.mark.heavy
def test_without_its_log_the_slots_of_the_real_server_tell_the_same(
    tiny_model: Path, tmp_path: Path, run_locust: RunLocust
) -> None:
    """Three conversations on two slots. What the samples name, the log names, too. Catches samples
    of the slots that name another cause than the log."""
    lines = []
    for number in range(3):
        messages = []
        for turn in range(4):
            text = f"Number {number * 7919} asks about item {turn}, please. " * (
                8 + number
            )
            messages.append({"role": "user", "content": text})
            messages.append({"role": "assistant", "content": "Item it is."})
        lines.append(json.dumps({"id": f"talk{number}", "messages": messages}))
    data = tmp_path / "talks.jsonl"
    data.write_text("\n".join(lines))
    server = ("-a", "tiny", "-np", "2", "-c", "8192", "-cram", "0")
    with embedded_server(tiny_model, tmp_path, *server) as running:
        flags = ("-u", "3", "--num-prompts", "12", "--output-len", "200")
        more = ("--telemetry-interval", "0.1")
        run = sent(run_locust, running.url, tmp_path / "run", data, *flags, *more)
    by_log = list(turn_table(load_run(run.folder)).later_turns())
    (run.folder / "server" / "server.log").unlink()
    seen = list(turn_table(load_run(run.folder)).later_turns())
    named = 0
    for with_log, without in zip(by_log, seen, strict=True):
        if without.cause not in (None, UNKNOWN):
            named += 1
            assert (without.cause, without.taker) == (with_log.cause, with_log.taker)
    assert any(turn.cause == TAKEN for turn in by_log)
    assert named >= sum(turn.cause is not None for turn in by_log) / 2
