"""What the keys of a data file mean, whichever program wrote it: one table for all readers.

Each thing has one name here, and the names that other programs give it. What changes no request is
listed, too. Any other key is refused by name: a request that is sent without a part of its line
would be another load. Capitals, blanks, `_`, `-` and `.` do not count: `Request tokens` and
`request_tokens` are one name.

Names of: vLLM, SGLang, aiperf, genai-perf, guidellm, inference-perf, llmperf, OpenAI's and
Anthropic's APIs and batch files; Mooncake, Qwen-Bailian, BurstGPT, Azure; ShareGPT, LMSYS-Chat-1M,
WildChat, OpenOrca, Alpaca, Dolly, UltraChat, MT-Bench, SPEED-Bench.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from llama_load.ground.errors import UsageError
from llama_load.outside.foreign_text import printable

_BLANKS = re.compile(r"[\s_.-]+")

OUTPUT_TOKENS = "output_tokens"
INPUT_TOKENS = "input_tokens"
_OUTPUT_NAMES = (
    *("output_tokens", "output_length", "output_len", "expected_output_len"),
    *("output_tokens_count", "num_output_tokens", "output_token_count", "osl"),
    *("max_tokens", "max_completion_tokens", "max_output_tokens", "max_new_tokens"),
    *("completion_tokens", "completion_tokens_count", "completion_length"),
    *("response_tokens", "response_length", "response_len", "n_predict"),
    *("generated_tokens", "decode_tokens", "num_decode_tokens", "output_size"),
)
_INPUT_NAMES = (
    *("input_tokens", "input_length", "input_len", "input_tokens_count", "isl"),
    *("num_input_tokens", "input_token_count", "input_size", "num_prefill_tokens"),
    *("prompt_tokens", "prompt_tokens_count", "prompt_len", "prompt_length"),
    *("num_prompt_tokens", "request_tokens", "request_length", "context_tokens"),
    *("prefill_tokens", "query_length"),
)
# Names of an answer that a file has beside its question. It is not sent.
_REPLY_NAMES = (
    *("reply", "response", "answer", "output", "completion", "output_text"),
    *("assistant", "target", "reference_answer", "ground_truth", "expected_output"),
)
# Of a conversation or request, whatever holds it.
_IDS = (
    *("id", "session_id", "conversation_id", "conversation_hash", "chat_id"),
    *("custom_id", "request_id", "question_id", "prompt_id", "task_id", "uid", "uuid"),
    *("sample_id", "thread_id", "dialog_id", "dialogue_id", "conv_id"),
)
_ABOUT = (
    *("model", "model_name", "provider", "language", "lang", "turn", "redacted"),
    *("toxic", "openai_moderation", "detoxify_moderation", "state", "country"),
    *("hashed_ip", "header", "source", "dataset", "dataset_name", "subset", "split"),
    *("metadata", "meta", "tags", "created", "created_at", "tstamp", "quality"),
    *("score", "rating", "license", "url", "method", "user", "store", "stream"),
    *("stream_options", "service_tier", "safety_identifier", "turn_identifier"),
    *("parent_id", "parent_chat_id", "index", "idx", "number", "name", "title"),
    *("", "unnamed: 0"),  # the index of a table of pandas
)
# What a file of another kind has, and the locustfile that reads it.
_OTHER_READERS = {
    **dict.fromkeys(
        ("resourceSpans", "resource_spans", "requests"), "conversations.py"
    ),
    **dict.fromkeys(("hash_ids", "input_length"), "replay.py (--trace FILE)"),
    **dict.fromkeys(("num_turns", "input_prompt_length"), "conversations.py"),
}
# Token ids of a file, which are not sent: only texts are.
TOKEN_IDS = (
    *("prompt_token_ids", "prompt_tokens_ids", "token_ids", "input_ids", "prompt_ids"),
    *("input_token_ids", "tokens", "tokenized_prompt"),
)

# What changes how an answer is sampled: fields of a body that a line may have, alone or in
# `sampling`.
SAMPLING = (
    *("temperature", "top_p", "top_k", "min_p", "typical_p", "seed", "stop"),
    *("presence_penalty", "frequency_penalty", "repeat_penalty", "logit_bias"),
    *("response_format", "reasoning_effort", "chat_template_kwargs"),
)

LINE: Mapping[str, Sequence[str]] = {
    "id": _IDS,
    "prompt": (
        *("prompt", "text", "text_input", "input_text", "question", "query"),
        *("instruction", "user_prompt", "prompt_text"),
    ),
    "context": ("context", "input"),  # it follows the prompt, or is it
    "system": ("system", "system_prompt", "system_message", "instructions"),
    "reply": _REPLY_NAMES,
    "messages": (
        *("messages", "conversations", "conversation", "dialog", "dialogue"),
        *("chat", "chat_history"),
    ),
    "turns": ("turns",),
    "exchange": ("data",),  # UltraChat's: question, answer, question, …
    "body": ("body", "params", "request", "payload"),
    OUTPUT_TOKENS: _OUTPUT_NAMES,
    "images": ("images", "image", "image_url", "image_urls"),
    "category": ("category", "task"),
    "expect": ("expect",),
    "tools": ("tools",),
    "tool_choice": ("tool_choice",),
    "parallel_tool_calls": ("parallel_tool_calls",),
    "functions": ("functions", "function_call"),
    "sampling": ("sampling", "extra"),
    "history": ("history",),
    "delay": ("delay",),
    "time": ("timestamp", "arrival_time"),
    **{name: (name,) for name in SAMPLING},
}
# A recording has `started_s` and what follows it.
_HARMLESS_IN_LINES = (
    *_ABOUT,
    *_INPUT_NAMES,
    *("started_s", "branch_of", "shared_messages", "endpoint"),
    *("reference", "chosen", "rejected", "completions"),
    *("preferred_output", "non_preferred_output"),
)

MESSAGE: Mapping[str, Sequence[str]] = {
    "role": ("role", "from", "speaker", "author", "sender"),
    "content": ("content", "value", "text", "utterance"),
    "name": ("name",),
    "tool_calls": ("tool_calls",),
    "tool_call_id": ("tool_call_id",),
    "delay_s": ("delay_s",),
    "delay": ("delay",),
    "agents": ("agents",),
    "images": ("images", "image", "image_url", "image_urls"),
    OUTPUT_TOKENS: _OUTPUT_NAMES,
}
# Clients do not send these back: reasoning is left out of a history, the others describe a message.
_HARMLESS_IN_MESSAGES = (
    *("reasoning", "reasoning_content", "thinking", "annotations", "refusal"),
    *("logprobs", "weight", "finish_reason", "timestamp", "markdown"),
    *(name for name in (*_IDS, *_ABOUT) if name != "name"),
)

TRACE: Mapping[str, Sequence[str]] = {
    "at": (
        *("timestamp", "arrival_time", "arrival", "arrived_at", "arrival_timestamp"),
        *("request_time", "start_time", "started_at", "start_timestamp", "time"),
        "timestamp_start_unix",
    ),
    INPUT_TOKENS: _INPUT_NAMES,
    OUTPUT_TOKENS: _OUTPUT_NAMES,
    "hash_ids": ("hash_ids", "block_hashes", "total_hashes"),
    "block_size": ("block_size",),
}
_HARMLESS_IN_TRACES = (
    *_IDS,
    *_ABOUT,
    *("log_type", "total_tokens", "elapsed_time", "type", "wait_s", "roles"),
    *("cached_tokens", "num_cached_tokens", "request_canceled", "duration_e2e_ms"),
    *("duration_ttft_ms", "priority", "user_id", "provided_session_id"),
    *("poor_man_session_id", "workload", "application", "end_time", "finish_time"),
    *("duration", "latency", "ttft", "e2e_latency", "status"),
)
# A turn of a session, of lengths or with its text.
TURN: Mapping[str, Sequence[str]] = {
    "id": ("session_id",),
    "prompt": ("text_input", "text", "prompt"),
    "delay": ("delay",),
    **{name: TRACE[name] for name in ("at", INPUT_TOKENS, OUTPUT_TOKENS, "hash_ids")},
}
# What a key ends in where it names its unit.
UNITS = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}
_UNIT_IN_NAME = re.compile(
    r"(?:[\s_.-]{1,8}\(?|\s{0,8}\()(s|sec|secs|seconds|ms|us|ns)\)?$", re.IGNORECASE
)


def folded(name: str) -> str:
    """A key as it is compared."""
    return _BLANKS.sub("", name).lower()


def without_unit(name: str) -> tuple[str, str | None]:
    """A key and the unit in it: `arrival_time_ms` -> `arrival_time`, `ms`."""
    found = _UNIT_IN_NAME.search(name)
    if found is None:
        return name, None
    unit = found[1].lower()
    if unit.startswith("s"):
        unit = "s"
    return name[: found.start()], unit


_FOLDED_IDS = frozenset(map(folded, TOKEN_IDS))


class Fields:
    """Translates objects of one kind: lines, messages, rows of a trace.

    `columns` (our name: theirs) are those of --columns: then nothing else is read.
    """

    def __init__(
        self,
        names: Mapping[str, Sequence[str]],
        harmless: Collection[str],
        columns: Mapping[str, str] | None = None,
        layout: str = "",
    ) -> None:
        self._ours = {folded(other): our for our in names for other in names[our]}
        self._harmless = set(map(folded, harmless)) - set(self._ours)
        self._layout = layout
        self._columns: dict[str, str] = {}
        for name, theirs in (columns or {}).items():
            our = self._ours.get(folded(name))
            if our is None:
                raise UsageError(
                    f"--columns: {name!r} is nothing that is read; known are {', '.join(names)}"
                )
            self._columns[our] = theirs
        self.ignored: dict[str, None] = {}  # names that change no request
        self.unread: dict[str, None] = {}  # those that --columns leaves out

    def column(self, our: str) -> str | None:
        """What --columns says of it; None if it says nothing."""
        return self._columns.get(our)

    def read(
        self, given: Mapping[str, Any], where: str, without: str = ""
    ) -> dict[str, Any]:
        """The values under our names; those that are empty are left out, and what is read
        otherwise (`without`). UsageError: a key is not known, or two keys that mean the same have
        different values."""
        if self._columns:
            return self._chosen(given, where, without)
        found: dict[str, Any] = {}
        keys: dict[str, str] = {}
        for key, value in given.items():
            our = self._ours.get(folded(key))
            if is_empty(value) and our != "expect":  # which must expect something
                continue
            if our is None:
                if folded(key) not in self._harmless:
                    raise UsageError(self._unknown(key, where))
                self.ignored.setdefault(printable(key, 60))
                continue
            if our in found and found[our] != value:
                key, value = self._one_of(given, our, keys[our], key, where)
            found[our] = value
            keys[our] = key
        return found

    def _chosen(
        self, given: Mapping[str, Any], where: str, without: str
    ) -> dict[str, Any]:
        found = {}
        for our, theirs in self._columns.items():
            if our == without:
                continue
            if theirs not in given:
                has = ", ".join(printable(key, 60) for key in given)
                raise UsageError(f"{where} has no {theirs!r} (--columns); it has {has}")
            if not is_empty(given[theirs]):
                found[our] = given[theirs]
        for key, value in given.items():
            if key not in self._columns.values() and not is_empty(value):
                self._leave(key)
        return found

    def _leave(self, key: str) -> None:
        is_harmless = folded(key) in self._harmless
        names = self.ignored if is_harmless else self.unread
        names.setdefault(printable(key, 60))

    def _one_of(
        self, given: Mapping[str, Any], our: str, one: str, other: str, where: str
    ) -> tuple[str, Any]:
        """Of two keys for the same, the one that counts. Alpaca's `text` is what a model was
        trained on, made of the instruction, the input and the output."""
        names = {folded(one): one, folded(other): other}
        if set(names) == {"text", "instruction"}:
            return names["instruction"], given[names["instruction"]]
        raise UsageError(
            f"{where} has {one!r} and {other!r}, which both mean {our}, with different values; "
            f"say which with --columns {our}={one}"
        )

    def _unknown(self, key: str, where: str) -> str:
        what = f"{where} has {printable(repr(key), 60)}, which is not understood"
        if key in _OTHER_READERS:
            return f"{where} has {key!r}: send the file with {_OTHER_READERS[key]}"
        if folded(key) in _FOLDED_IDS:
            return (
                f"{where} has {key!r}: token ids of a file are not sent: decode them to a text, "
                "or name the text beside them with --columns prompt=NAME"
            )
        if not self._layout:
            return f"{what}; remove it or convert it to tool_calls"
        return (
            f"{what}: remove it, or name what is to be sent with --columns, such as "
            f"{self._layout}"
        )


def line_fields(columns: Mapping[str, str] | None = None) -> Fields:
    """Of a line that is a request or a conversation."""
    return Fields(LINE, _HARMLESS_IN_LINES, columns, "prompt=text,output_tokens=length")


def trace_fields(columns: Mapping[str, str] | None = None) -> Fields:
    """Of a row of a trace."""
    layout = "at=time,input_tokens=in,output_tokens=out"
    return Fields(TRACE, _HARMLESS_IN_TRACES, columns, layout)


def session_fields(columns: Mapping[str, str] | None = None) -> Fields:
    """Of a row that is a turn of a session."""
    layout = "id=session_id,input_tokens=in,output_tokens=out"
    return Fields(TURN, _ABOUT, columns, layout)


def message_fields() -> Fields:
    """Of a message of a conversation."""
    return Fields(MESSAGE, _HARMLESS_IN_MESSAGES)


def is_empty(value: Any) -> bool:
    """Whether a file has nothing here; 0 and False are something."""
    is_nan = isinstance(value, float) and value != value  # noqa: PLR0124 - NaN alone
    return (
        is_nan or value is None or (isinstance(value, str | list | dict) and not value)
    )


def count_of(value: Any, key: str, where: str) -> int:
    """A number of tokens: 8, 8.0 or "8". UsageError: it is none, or not 1 or more."""
    if isinstance(value, str) and value.strip().removesuffix(".0").isdecimal():
        value = int(value.strip().removesuffix(".0"))
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise UsageError(
            f"{where} has {key} {printable(repr(value), 60)}; it must be 1 or more"
        )
    return value
