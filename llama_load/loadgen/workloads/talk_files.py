"""Files of recorded conversations: the layout is recognized by the content, and what is not
understood is refused by its line."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from llama_load.ground.errors import UsageError
from llama_load.loadgen.workloads.huggingface import data_file
from llama_load.loadgen.workloads.line_fields import Fields, line_fields, session_fields
from llama_load.loadgen.workloads.openai_messages import talk_of
from llama_load.loadgen.workloads.otel_spans import talks_of_spans
from llama_load.loadgen.workloads.prompt_plan import PlanRequest
from llama_load.loadgen.workloads.session_rows import (
    MOONCAKE_BLOCK,
    TRIE_KEY,
    Rows,
    is_turn,
    trie_sessions,
    turn_sessions,
)
from llama_load.loadgen.workloads.talks import Talk
from llama_load.loadgen.workloads.text_files import files_digest, folder_files
from llama_load.loadgen.workloads.tracelab import KEY as TRACELAB_KEY
from llama_load.loadgen.workloads.tracelab import sessions
from llama_load.loadgen.workloads.weka_traces import talk_of_trace, trace_text

OPENAI = "OpenAI messages"
SHAREGPT = "ShareGPT"
OTEL = "OpenTelemetry spans"
WEKA = "kv-cache-tester trace"
TRACELAB = "TraceLab"
TRIE = "trie"
MOONCAKE = "Mooncake sessions"
LAYOUT = (
    'a conversation: {"messages": [{"role", "content"}, …]} of OpenAI, {"conversations": '
    '[{"from", "value"}, …]} of ShareGPT, '
    '{"resourceSpans": […]} of OpenTelemetry, or {"requests": [{"t", "in", "out", "hash_ids"}, '
    "…]} of kv-cache-tester"
)
_ANYTHING = msgspec.json.Decoder(dict[str, Any])


@dataclass(frozen=True, slots=True)
class TalkFile:
    """The conversations of a file or folder, in their order, and their layout."""

    path: str
    sha256: str | UnsetType
    layout: str
    talks: list[Talk]
    ignored: tuple[str, ...] = ()  # names of fields that change no request
    unread: tuple[str, ...] = ()  # those that --columns leaves out
    left_out: Counter[str] = field(default_factory=Counter)  # by reason

    @property
    def shared_tokens(self) -> int | None:
        """Tokens that all prompts share at their start by design; None: they share what the
        recording shares."""
        if self.layout != OPENAI:
            return None
        openings = {
            (talk.opening, json.dumps(talk.fields.get("tools"))) for talk in self.talks
        }
        return None if len(openings) < len(self.talks) else 0


def read_talks(source: Path | str, request: PlanRequest) -> TalkFile:
    """Reads a file, a folder of one JSON object per file, or a data set of the Hub. UsageError: it
    cannot be read, or has another layout."""
    path = Path(source)
    paths = (
        folder_files(path, lambda file: file.parent == path and file.suffix == ".json")
        if path.is_dir()
        else [source]
    )
    if not paths:
        raise UsageError(
            f"the folder {path} contains no .json file; give a file or a folder of conversations"
        )
    files = [data_file(str(file), LAYOUT) for file in paths]
    entries: Rows = chain.from_iterable(file.decoded(_ANYTHING) for file in files)
    first, where = next(files[0].decoded(_ANYTHING), ({}, str(path)))
    left_out: Counter[str] = Counter()
    columns = request.traffic.columns
    fields = session_fields(columns) if is_turn(first) else line_fields(columns)
    entries = _sessions(first, entries, fields, left_out)
    layout, read = _reader(first, request, where, fields)
    talks: list[Talk] = []
    for entry, place in entries:
        talks += read(entry, str(len(talks) + 1), place)
    if not talks:
        raise UsageError(f"the data set {path} contains no conversation")
    digests = [str(file.sha256) for file in files if file.sha256]
    return TalkFile(
        str(source),
        files_digest(digests) if digests else UNSET,
        layout,
        talks,
        tuple(fields.ignored),
        tuple(fields.unread),
        left_out,
    )


def _sessions(
    first: Mapping[str, Any], entries: Rows, fields: Fields, left_out: Counter[str]
) -> Rows:
    """The entries, or the sessions that they are rows of."""
    if TRACELAB_KEY in first:
        return sessions(entries, left_out)
    if TRIE_KEY in first:
        return trie_sessions(entries)
    if is_turn(first):
        return turn_sessions(entries, fields, left_out)
    return entries


def _reader(
    first: Mapping[str, Any], request: PlanRequest, where: str, fields: Fields
) -> tuple[str, Callable[[dict[str, Any], str, str], list[Talk]]]:
    """The layout of the first entry, and a function from an entry, its name and its place to its
    conversations."""
    if "resourceSpans" in first or "resource_spans" in first:
        return OTEL, lambda entry, name, where: talks_of_spans(entry, where)
    layout = _layout_of_lengths(first)
    if layout is not None:
        blocks = {"block_size": MOONCAKE_BLOCK} if layout == MOONCAKE else first
        text = trace_text(blocks, request, where)
        return layout, lambda entry, name, where: [
            talk_of_trace(entry, name, text, where)
        ]
    layout = SHAREGPT if "conversations" in first else OPENAI
    of_lines = None if is_turn(first) else fields
    return layout, lambda entry, name, where: [talk_of(entry, name, where, of_lines)]


def _layout_of_lengths(first: Mapping[str, Any]) -> str | None:
    """The layout of sessions whose texts are made; None: the file has texts."""
    if TRACELAB_KEY in first:
        return TRACELAB
    if TRIE_KEY in first:
        return TRIE
    if is_turn(first) and "text_input" not in first:
        return MOONCAKE
    return WEKA if isinstance(first.get("requests"), list) else None
