"""Sessions as rows: of lengths, as kv-cache-tester has them, or of texts, as aiperf's turns.

    trie, a row a session   {"num_turns": 2, "input_prompt_length": 32, "assistant_response_length":
                            [16, 20], "tool_call_output_length": [8, 12], "tool_call_latency": [0.0,
                            1.5], "final_assistant_response_length": 64}, s
    aiperf, a row a turn    {"session_id": "a", "input_length": 300, "output_length": 40}, then
                            {"session_id": "a", "delay": 500, …}, ms; or "text_input" for the length

A turn's lengths are those of what it adds to the history. Sources: trie (Applied Compute), *Custom
workload format*; aiperf, *Trace Replay with Mooncake Traces*.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from llama_load.ground.errors import UsageError
from llama_load.loadgen.workloads.line_fields import (
    INPUT_TOKENS,
    OUTPUT_TOKENS,
    Fields,
    count_of,
)
from llama_load.loadgen.workloads.talks import recorded_wait_s
from llama_load.outside.foreign_text import printable

TRIE_KEY = "input_prompt_length"
SESSION_KEY = "session_id"
MOONCAKE_BLOCK = 512  # tokens
STARTS = "times at which sessions begin, which -u or --conversation-rate sets"
# Of all texts that are made for a run: 200 MB.
MOST_TOKENS = 50_000_000
_LISTS = ("assistant_response_length", "tool_call_output_length", "tool_call_latency")
Rows = Iterable[tuple[dict[str, Any], str]]
Sessions = Iterator[tuple[dict[str, Any], str]]


def trie_sessions(rows: Rows) -> Sessions:
    """The sessions of trie's rows. UsageError names a row that is not understood, or says that they
    are too many."""
    tokens = 0
    for row, where in rows:
        requests = list(_trie_requests(row, where))
        last = requests[-1]
        tokens += last["in"] + last["out"]
        _check_tokens(tokens, where)
        yield {"requests": requests}, where


def _trie_requests(row: Mapping[str, Any], where: str) -> Iterator[dict[str, Any]]:
    answers, results, waits = (_list_of(row, name, where) for name in _LISTS)
    total = _length_in(row.get(TRIE_KEY), TRIE_KEY, where)
    wait_s = 0.0
    for answer, result, wait in zip(answers, results, waits, strict=True):
        output = max(1, _length_in(answer, _LISTS[0], where))
        yield {"type": "s", "in": max(1, total), "out": output, "think_time": wait_s}
        total += output + max(1, _length_in(result, _LISTS[1], where))
        wait_s = _wait_s(wait, _LISTS[2], where)
    name = "final_assistant_response_length"
    output = max(1, _length_in(row.get(name), name, where))
    yield {"type": "s", "in": max(1, total), "out": output, "think_time": wait_s}


def _list_of(row: Mapping[str, Any], name: str, where: str) -> list[Any]:
    given = row.get(name)
    if not isinstance(given, list) or len(given) != row.get("num_turns"):
        raise UsageError(f"{where} needs a list {name} of num_turns numbers")
    return given


def turn_sessions(rows: Rows, fields: Fields, left_out: Counter[str]) -> Sessions:
    """The sessions of rows that are turns, in the order of their first ones: lengths in the layout
    of kv-cache-tester, or texts as aiperf's turns. UsageError names a row that is not
    understood."""
    turns: dict[str, list[dict[str, Any]]] = defaultdict(list)
    places: dict[str, str] = {}
    for row, where in rows:
        turn = fields.read(row, where)
        name = str(turn.pop("id", ""))
        places.setdefault(name, where)
        if "at" in turn:
            if turns[name]:
                raise UsageError(
                    f"{where} is a later turn with a time: turns follow each other, each after "
                    "its delay; remove it"
                )
            left_out[STARTS] += 1
        turns[name].append(turn)
    tokens = 0
    for name, of_session in turns.items():
        where = places[name]
        if "prompt" in of_session[0]:
            yield {"id": name, "turns": list(map(_text_turn, of_session))}, where
            continue
        requests = list(_turn_requests(of_session, where))
        tokens += requests[-1]["in"] + requests[-1]["out"]
        _check_tokens(tokens, where)
        yield {"id": name, "requests": requests, "block_size": MOONCAKE_BLOCK}, where


def _text_turn(turn: Mapping[str, Any]) -> dict[str, Any]:
    kept = {"text": turn.get("prompt"), OUTPUT_TOKENS: turn.get(OUTPUT_TOKENS)}
    return kept | {"delay": turn.get("delay")}


def _turn_requests(
    turns: Iterable[Mapping[str, Any]], where: str
) -> Iterator[dict[str, Any]]:
    total = 0
    ids: list[Any] = []
    for turn in turns:
        total += count_of(turn.get(INPUT_TOKENS), INPUT_TOKENS, where)
        output = count_of(turn.get(OUTPUT_TOKENS), OUTPUT_TOKENS, where)
        ids = [*ids, *turn.get("hash_ids", ())]
        wait_s = _wait_s(turn.get("delay", 0), "delay", where) / 1000
        yield {
            "type": "s",
            "in": total,
            "out": output,
            "hash_ids": ids,
            "think_time": wait_s,
        }
        total += output


def is_turn(row: Mapping[str, Any]) -> bool:
    """Whether a row is a turn of a session, by lengths or a text."""
    return SESSION_KEY in row and ("input_length" in row or "text_input" in row)


def _check_tokens(tokens: int, where: str) -> None:
    if tokens > MOST_TOKENS:
        raise UsageError(
            f"the sessions up to {where} have more than {MOST_TOKENS:,} tokens: send a part of "
            "the file, such as its first hundred lines"
        )


def _length_in(value: Any, name: str, where: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        shown = printable(repr(value), 60)
        raise UsageError(f"{where} has {name} {shown}; it must be 0 or more tokens")
    return value


def _wait_s(value: Any, name: str, where: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not value >= 0:
        shown = printable(repr(value), 60)
        raise UsageError(f"{where} has {name} {shown}; it must be 0 or more")
    return recorded_wait_s(value, where)
