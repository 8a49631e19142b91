"""Files of recorded conversations: the layout is recognized by the content, and what is not understood is refused by its line."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from llama_load.errors import UsageError
from llama_load.workloads.data_files import ASSISTANT, SYSTEM, USER, DataFile
from llama_load.workloads.openai_messages import talk_of
from llama_load.workloads.otel_spans import talks_of_spans
from llama_load.workloads.prompt import PlanRequest
from llama_load.workloads.talks import Talk
from llama_load.workloads.text_files import files_digest
from llama_load.workloads.weka_traces import talk_of_trace, trace_text

OPENAI, SHAREGPT, OTEL, WEKA = "OpenAI messages", "ShareGPT", "OpenTelemetry spans", "kv-cache-tester trace"
LAYOUT = (
    'a conversation: {"messages": [{"role", "content"}, …]} of OpenAI, {"conversations": [{"from", "value"}, …]} of ShareGPT, '
    '{"resourceSpans": […]} of OpenTelemetry, or {"requests": [{"t", "in", "out", "hash_ids"}, …]} of kv-cache-tester'
)
MOST_OBJECT_BYTES = 1024 * 2**20
_SPEAKERS = {"human": USER, "user": USER, "gpt": ASSISTANT, "chatgpt": ASSISTANT, "assistant": ASSISTANT, "system": SYSTEM}
_ANYTHING = msgspec.json.Decoder(dict[str, Any])


class TalkFile:
    """A file of conversations, or a folder of one JSON object per file. UsageError: it cannot be read, or has another layout."""

    def __init__(self, path: Path, request: PlanRequest) -> None:
        self.path = path
        files = sorted(path.glob("*.json")) if path.is_dir() else [path]
        if not files:
            raise UsageError(f"the folder {path} contains no .json file; give a file or a folder of conversations")
        self._sources = [_Source(file) for file in files]
        self.sha256 = self._sources[0].sha256 if len(files) == 1 else files_digest([source.sha256 for source in self._sources])
        self._request = request
        self.layout, self._read = self._reader(self._sources[0])
        self._made: list[Talk] | None = None

    def talks(self) -> Iterator[Talk]:
        """All conversations, in the file's order."""
        if self._made is None:
            self._made = list(self._all())
            if not self._made:
                raise UsageError(f"the data set {self.path} contains no conversation")
        return iter(self._made)

    def shared_tokens(self) -> int | None:
        """Tokens that all prompts share at their start by design; None: they share what the recording shares."""
        if self.layout != OPENAI:
            return None
        openings = {(talk.opening, json.dumps(talk.fields.get("tools"))) for talk in self.talks()}
        return None if len(openings) < len(self._made or ()) else 0

    def _all(self) -> Iterator[Talk]:
        number = 0
        for source in self._sources:
            for entry, where in source.entries():
                for talk in self._read(entry, str(number + 1), where):
                    number += 1
                    yield talk

    def _reader(self, source: _Source) -> tuple[str, Callable[[dict[str, Any], str, str], list[Talk]]]:
        first, where = next(source.entries(), ({}, str(self.path)))
        if "messages" in first:
            return OPENAI, lambda entry, name, where: [talk_of(entry, name, where)]
        if "conversations" in first:
            return SHAREGPT, lambda entry, name, where: [talk_of(_as_messages(entry, where), name, where)]
        if "resourceSpans" in first or "resource_spans" in first:
            return OTEL, lambda entry, name, where: talks_of_spans(entry, where)
        if isinstance(first.get("requests"), list):
            text = trace_text(first, self._request, where)
            return WEKA, lambda entry, name, where: [talk_of_trace(entry, name, text, where)]
        raise UsageError(f"{where} is JSON, but not {LAYOUT}")


class _Source:
    """A file with one JSON object, a list of them, or one per line."""

    def __init__(self, path: Path) -> None:
        self._object = _single_object(path)
        self._path = path
        self._file = None if self._object is not None else DataFile(path, LAYOUT)
        self.sha256 = self._object[1] if self._object is not None else DataFile(path, LAYOUT).sha256

    def entries(self) -> Iterator[tuple[dict[str, Any], str]]:
        """Each object, and its name in messages."""
        if self._object is not None:
            yield self._object[0], str(self._path)
        if self._file is not None:
            for place in range(len(self._file)):
                yield self._file.decode(place, _ANYTHING), self._file.where(place)


def _single_object(path: Path) -> tuple[dict[str, Any], str] | None:
    """The object of a file that is one JSON object over several lines, and the file's SHA-256; else None."""
    try:
        if not path.is_file() or path.stat().st_size > MOST_OBJECT_BYTES:
            return None
        data = path.read_bytes()
    except OSError:
        return None  # DataFile says why
    if data.lstrip()[:1] != b"{" or b"\n" not in data.strip():
        return None  # a line alone is a line
    try:
        found = _ANYTHING.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return found, hashlib.sha256(data).hexdigest()


def _as_messages(entry: Mapping[str, Any], where: str) -> dict[str, Any]:
    """A ShareGPT entry as messages. Its roles for tools have no ids, so that results cannot be assigned to calls."""
    turns = entry.get("conversations")
    if not isinstance(turns, list):
        raise UsageError(f'{where} needs a list of conversations, {{"from", "value"}} each')
    messages = []
    for number, turn in enumerate(turns, start=1):
        speaker = str(turn.get("from", turn.get("role", ""))).lower() if isinstance(turn, Mapping) else ""
        if speaker not in _SPEAKERS:
            raise UsageError(
                f"{where}, turn {number} is from {speaker[:40]!r}; known are {', '.join(_SPEAKERS)}. Convert tool calls and "
                "results to OpenAI messages with tool_calls and tool_call_id"
            )
        messages.append({"role": _SPEAKERS[speaker], "content": turn.get("value", turn.get("content"))})
    return {**entry, "messages": messages}
