"""Why prompts of a recording were processed again: its requests as a table of turns, and the file
that `llama-load prompts` reads."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from llama_load.analysis.topics.reprocessing import (
    ReprocessedTurn,
    RunFacts,
    TurnTable,
    reprocessing_figures,
    reprocessing_headline,
    reprocessing_tables,
)
from llama_load.ground.errors import UsageError
from llama_load.outside.foreign_files import TooLarge, read_foreign
from llama_load.record.earlier_prompts import PlacedPrompt
from llama_load.record.read_exchange import SeenRequest
from llama_load.record.recorded_server import RecordedServer
from llama_load.run_folder.observed.record import schema
from llama_load.run_folder.observed.records import Records
from llama_load.servers.differing_token import TokenPlace
from llama_load.tables import text_lines

# Requests whose turns are compared; each is a row of about 300 bytes in memory.
MOST_REQUESTS = 500_000
MOST_FILE_BYTES = 256 << 20
MOST_ADAPTER_CHARS = 200
TURNS = ".turns"
_WORKLOAD = "recording"
_HOST = "server"  # a recording has one
_COLUMNS = (
    *("host", "workload", "conversation", "conversation_start", "agent", "turn"),
    *("status", "warmup", "adapter", "replica", "prompt_tokens", "cached_tokens"),
    *("output_tokens", "ttft_ms"),
    *("prompt_index", "earlier_chars", "common_chars", "changed_in"),
    *("server_prompt_tokens", "server_prompt_ms", "server_predict_ms"),
    *("started_mono_ns", "ended_mono_ns"),
)


class TurnLine(msgspec.Struct):
    """A line of the file: a turn after the first of its conversation. Tokens: of the prompt,
    those that could have been cached, those that were, and those that were processed again, with
    their time and cause. `taker`: the conversation that had the slot in between. `same_text`: the
    share of the prompt before that this one begins with; `changed_in`, `before` and `now`: where
    and how it is another one; `token`, from 0: the first token that differs, or one from there to
    `last_token` is; `images`: stand before it, without their tokens."""

    conversation: str
    turn: int
    prompt_tokens: int
    cacheable_tokens: int
    cached_tokens: int
    again_tokens: int
    again_ms: float | None = None
    cause: str | None = None
    taker: str | None = None
    same_text: float | None = None
    changed_in: str | None = None
    before: str | None = None
    now: str | None = None
    token: int | None = None
    last_token: int | None = None
    images: int = 0


@dataclass(slots=True)
class _Seen:
    row: dict[str, Any]
    place: PlacedPrompt | None
    is_without_cache: bool


class RecordedTurns:
    """The requests of a recording, without their texts."""

    def __init__(self) -> None:
        self._seen: list[_Seen] = []
        self.left_out = 0

    def add(self, seen: SeenRequest, place: PlacedPrompt | None) -> None:
        """Keep a request; `place`: of one that has messages and a complete answer."""
        if len(self._seen) >= MOST_REQUESTS:
            self.left_out += 1
            return
        row: dict[str, Any] = {
            "host": _HOST,
            "workload": _WORKLOAD,
            "status": "failed" if seen.failure else "ok",
            "warmup": False,
            "prompt_tokens": seen.prompt_tokens,
            "cached_tokens": seen.cached_tokens,
            "output_tokens": seen.output_tokens,
            "ttft_ms": seen.ttft_ms,
            "server_prompt_tokens": seen.processed_tokens,
            "server_prompt_ms": seen.processed_ms,
            "server_predict_ms": seen.predict_ms,
            "started_mono_ns": seen.started_ns,
            "ended_mono_ns": seen.ended_ns,
        }
        if seen.body.get("lora") is not None:
            row["adapter"] = _adapter(seen.body["lora"])
        if place is not None:
            row["conversation"] = f"c{place.conversation}"
            row["conversation_start"] = place.conversation
            row["turn"] = place.turn
            row["earlier_chars"] = place.earlier_chars
            row["common_chars"] = place.common_chars
            row["changed_in"] = place.changed_in
        has_no_cache = seen.body.get("cache_prompt") is False
        self._seen.append(_Seen(row, place, has_no_cache))

    def found(self, server: RecordedServer | None) -> FoundTurns:
        """The turns with their causes, as far as the server's side is known."""
        without_cache = set()
        for number, seen in enumerate(self._seen):
            if seen.is_without_cache:
                without_cache.add(number)
        facts = RunFacts(False, {}, {}, frozenset(without_cache))
        if server is not None:
            facts = _facts(server, facts.rows_without_cache)
        records = self._records()
        turns = list(TurnTable(records, facts).later_turns())
        places = [seen.place for seen in self._seen]
        return FoundTurns(records, turns, places)

    def _records(self) -> Records:
        whole = schema()

        import pyarrow as pa

        columns = pa.schema([whole.field(name) for name in _COLUMNS])
        rows = [seen.row for seen in self._seen]
        return Records(pa.Table.from_pylist(rows, schema=columns))


def _adapter(value: Any) -> str:
    """What tells one choice of adapters from another; of a long one its digest."""
    text = json.dumps(value)
    if len(text) <= MOST_ADAPTER_CHARS:
        return text
    return hashlib.sha256(text.encode()).hexdigest()


def _facts(server: RecordedServer, rows_without_cache: frozenset[int]) -> RunFacts:
    server.look()
    server.look_at_cache()
    log = server.log()
    return RunFacts(
        cache_off=server.is_without_cache,
        slots={_HOST: server.slots},
        logs={} if log is None else {_HOST: log},
        rows_without_cache=rows_without_cache,
        blocks={_HOST: server.blocks},
    )


@dataclass(frozen=True, slots=True)
class FoundTurns:
    """The turns of a recording, with the records and places that they are rows of."""

    records: Records
    turns: Sequence[ReprocessedTurn]
    places: Sequence[PlacedPrompt | None]

    def lines(self) -> Iterator[dict[str, Any]]:
        """Those of the file."""
        for turn in self.turns:
            place = self.places[turn.row]
            line = TurnLine(
                turn.conversation,
                turn.turn,
                turn.prompt,
                turn.could,
                turn.cached,
                turn.lost,
                turn.ms if turn.lost else None,
                turn.cause,
                turn.taker,
                turn.same_text,
                turn.changed_in,
            )
            if place is not None:
                line.before = place.before
                line.now = place.now
            if place is not None and place.token is not None:
                line.token = place.token.token
                line.last_token = place.token.last
                line.images = place.token.images
            yield msgspec.to_builtins(line)

    def summary(self) -> list[str]:
        """The table of causes, and what it comes to; nothing where no prompt was processed
        again."""
        if not self.turns:
            return []
        figures = reprocessing_figures(self.turns, self.records)
        if not figures.causes:
            return [f"No prompt of {figures.turns:,} later turns was processed again"]
        lines = []
        headline = reprocessing_headline(figures)
        if headline is not None:
            lines.append(headline)
        for table in reprocessing_tables(figures, str):
            lines += text_lines(table)
            lines += table.notes
        return lines


def turns_file(given: Path) -> Path:
    """The file with the turns of a recording, talk.turns.jsonl for talk.jsonl."""
    if given.stem.endswith(TURNS):
        return given
    return given.with_name(f"{given.stem}{TURNS}{given.suffix}")


@dataclass(frozen=True, slots=True)
class RecordedTurn:
    """A turn as the file has it, with the texts that differ and the place of the first token that
    does, if they are there."""

    turn: ReprocessedTurn
    texts: tuple[str, str] | None
    token: TokenPlace | None = None


def read_turns(given: Path) -> list[RecordedTurn]:
    """The turns of a recording, by its file or that of its turns. UsageError: it has none."""
    path = turns_file(given)
    try:
        data = read_foreign(path, MOST_FILE_BYTES)
    except FileNotFoundError:
        raise UsageError(
            f"{path} does not exist: the recorder writes it at its end, beside {given.name}"
        ) from None
    except TooLarge as error:
        raise UsageError(f"{path}: {error}") from None
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from None
    found = []
    decoder = msgspec.json.Decoder(TurnLine)
    for number, line in enumerate(data.splitlines(), start=1):
        if number > MOST_REQUESTS:
            raise UsageError(f"{path} has more than {MOST_REQUESTS:,} turns")
        try:
            read = decoder.decode(line)
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            raise UsageError(f"{path}, line {number}: {error}") from None
        found.append(_recorded_turn(read))
    return found


def _recorded_turn(line: TurnLine) -> RecordedTurn:
    turn = ReprocessedTurn(
        row=0,
        before=0,
        thread=(line.conversation, None),
        conversation=line.conversation,
        turn=line.turn,
        prompt=line.prompt_tokens,
        could=line.cacheable_tokens,
        cached=line.cached_tokens,
        lost=line.again_tokens,
        ms=line.again_ms,
        cause=line.cause,
        taker=line.taker,
        same_text=line.same_text,
        changed_in=line.changed_in,
    )
    texts = None
    if line.before is not None and line.now is not None:
        texts = (line.before, line.now)
    token = None
    if line.token is not None:
        token = TokenPlace(line.token, line.last_token, line.images)
    return RecordedTurn(turn, texts, token)
