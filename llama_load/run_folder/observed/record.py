"""The record of one request, shared by all rooms of the package.

Instants are integer ns of the worker machine's monotonic clock (`…_mono_ns`; in a swarm, shifted to
the master's), except `started_wall_ns`. Latencies are float ms, computed once when the request
ends, by the functions in `run_folder.arithmetic.latencies`. What was not measured is None, never 0.
"""

from __future__ import annotations

import types
import typing
from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import cache, lru_cache
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from llama_load.ground.arrow import load_arrow

if TYPE_CHECKING:
    import pyarrow as pa

OK = "ok"
CANCELLED = "cancelled"
ABORTED = "aborted"  # its user hung up (--abort-rate)
# What became of a conversation's session (--session-header): the first token came, the server kept
# the one that was sent, it gave another one, or there is none.
NEW_SESSION = "new"
KEPT_SESSION = "kept"
OTHER_SESSION = "other"
NO_SESSION = "none"
UNFINISHED = frozenset((CANCELLED, ABORTED))  # neither success nor failure


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestRecord:
    """One request, from its scheduled time to its end. Field names are the columns of
    requests.parquet."""

    # who and what
    request_id: str  # sent as X-Request-Id
    worker: str  # the process that sent it; "local" without workers
    user: str  # name of the user class
    workload: str  # in a mixture: the task
    name: str  # the request's name in Locust's statistics
    stage: int = 0  # 0 where the run has none
    host: str  # URL of the server
    endpoint: str  # as in --endpoint
    model: str | None = None  # as requested
    adapter: str | None = None  # LoRA adapter as requested (--adapter)
    warmup: bool = False  # warm-up requests are in no figure
    prompt_index: int | None = None  # position in the plan, 0…N-1
    conversation: str | None = None  # its id in the data set
    turn: int | None = None  # 1, 2, …; None outside of conversations
    # requests of the conversation in the plan, sub-agents included
    turns: int | None = None
    # prompt_index of the conversation's first request: one conversation may be sent twice
    conversation_start: int | None = None
    agent: str | None = None  # the sub-agent that sent it
    # planned wait after the turn before: think time, or a tool's run time
    delay_ms: float | None = None
    waited_ms: float | None = None  # the wait as it was, sub-agents included
    tool_calls: int | None = None  # in the answer, where the request has tools
    recorded_calls: int | None = None  # in the recorded answer
    max_tokens: int | None = None  # requested length of the answer
    choices: int | None = None  # requested answers (`n`), where more than one
    # "json_schema", "grammar" or "free"; None where neither the run nor the body forces answers
    answer_form: str | None = None

    # how it ended
    status: str  # "ok", "cancelled", "aborted" or a failure class
    http_status: int | None = None  # of the last answer
    error: str | None = None  # message of a failed request
    finish_reason: str | None = None  # in OpenAI's words where it is known
    # what was odd about the end of a complete answer, such as "no finish_reason"
    end_note: str | None = None
    # with --json-schema: whether the answer follows the schema
    valid_answer: bool | None = None

    # when
    scheduled_mono_ns: int | None = None  # its time in the schedule; open loop only
    # the client began to send it, where its own delay is known, which is then in no latency
    asked_mono_ns: int | None = None
    # it began to connect, or to be sent on an open connection: the client's own delay after it was
    # asked for (`own_delay_ms`)
    started_mono_ns: int
    connected_mono_ns: int | None = None  # the TCP connection was open
    secured_mono_ns: int | None = None  # TLS done
    # the last byte of the request was passed to the kernel
    sent_mono_ns: int | None = None
    headers_mono_ns: int | None = None  # the headers of the answer arrived
    # the first event with generated content arrived
    first_token_mono_ns: int | None = None
    # first event of blanks alone, where one came before the first token
    first_blank_mono_ns: int | None = None
    first_answer_mono_ns: int | None = None  # first token that is not reasoning
    last_token_mono_ns: int | None = None  # the last one arrived
    ended_mono_ns: int  # the answer was complete, or the request had failed
    # the same instant as started_mono_ns, by the wall clock since 1970 (in a swarm the master's)
    started_wall_ns: int

    # how long
    # wait after its scheduled instant; open loop only
    client_queue_ms: float | None = None
    late_ms: float | None = None  # the client's own share of that
    tries: int | None = None  # how often it was sent: more than once with --retry alone
    retry_ms: float | None = None  # earlier tries and the pauses after them
    queue_ms: float | None = None
    connect_ms: float | None = None
    tls_ms: float | None = None
    tls_resumed: bool | None = None  # a TLS session was resumed
    own_delay_ms: float | None = None  # from asked_mono_ns to started_mono_ns
    ttft_ms: float | None = None
    answer_ttft_ms: float | None = None
    tpot_ms: float | None = None
    e2el_ms: float | None = None
    e2el_per_token_ms: float | None = None
    itl_ms: Sequence[float] = ()

    # how much
    prompt_tokens: int | None = None  # chat template and cached tokens included
    # "usage", "timings" or "refusal": from the server. "plan": counted before the run;
    # "plan+template": plus the chat template tokens
    prompt_token_source: str | None = None
    # counted before the run, where the whole prompt was; plus the chat template if known
    planned_prompt_tokens: int | None = None
    # part of the prompt tokens, as the server reports it
    cached_tokens: int | None = None
    output_tokens: int | None = None  # see token_source
    # part of the output tokens, if usage reports it
    reasoning_tokens: int | None = None
    token_events: int = 0  # events of the stream that carried generated content
    blank_events: int = 0  # events of blanks alone before the first token
    # output tokens of each token event; empty if unknown, or if each has one
    event_tokens: Sequence[int] = ()
    # output tokens up to the first token event, hidden reasoning included
    first_event_tokens: int | None = None
    output_chars: int = 0  # characters of the generated text
    output_bytes: int | None = None  # of the same text, in UTF-8
    # characters of the first token event; None: it is no text
    first_event_chars: int | None = None
    first_event_bytes: int | None = None  # of the same text, in UTF-8
    # characters of the longest event, where the answer has more tokens than events
    longest_event_chars: int | None = None
    call_chars: int | None = None  # characters of the names and arguments of tool calls
    stop_bytes: int | None = None  # of the longest `stop` that was sent, in UTF-8
    prompt_chars: int = 0  # characters of the prompt
    prompt_bytes: int | None = None  # of the same text, in UTF-8
    # characters of the earlier prompt, its messages as JSON: of a later turn the one before, else
    # the one sent to this server that begins most like it
    earlier_chars: int | None = None
    common_chars: int | None = None  # of these, how many this prompt begins with
    changed_in: str | None = None  # the first message in which it is another one
    # the request before with that prompt, by its request_id; None of a later turn
    earlier_request: str | None = None
    images: int | None = None  # number of images
    image_tokens: int | None = None  # part of prompt_tokens: all images together
    # texts of an embeddings request, documents of a rerank request
    inputs: int | None = None
    prompt_sha256: str | None = None  # of the prompt's text
    output_sha256: str | None = None  # of the answer's text
    # with --save-texts only: a user's message alone as it is, else the messages as JSON. The first
    # text begins with what the run puts there: 8 digits and a line break, with --bust-prefix-cache
    # 24 hexadecimal ones and a blank, or nothing
    prompt_text: str | None = None
    output_text: str | None = None  # with --save-texts only: reasoning, then the answer

    # how well it was measured
    token_source: str | None = None  # "usage", "timings" or "events"
    # impossible counts of the server
    count_doubt: str | None = None
    # of the arrival times: "kernel", "user" (no kernel stamps) or "mixed"
    clock_source: str = "kernel"
    merged_events: int = 0  # token events read together with a later one
    first_merged: bool = False  # the first token arrived together with a later one
    # it was already open: connect_ms and tls_ms are None
    connection_reused: bool = False
    # the open one was dead; connect_ms is that of the new one
    connection_reopened: bool = False
    answered_by: str | None = None  # the answer's Server and Via headers
    # behind the URL, as the header of --replica-header names it
    replica: str | None = None
    # with --session-header: "new", "kept", "other" or "none"
    session: str | None = None
    # the model that a streamed answer names, with its fingerprint
    answered_model: str | None = None

    # reported by the server
    server_prompt_tokens: int | None = None  # processed, without the cached ones
    # time in its queue, where it reports that of each request (vLLM)
    server_queue_ms: float | None = None
    # time of the server for them; vLLM's is from its queue to the first token
    server_prompt_ms: float | None = None
    server_predict_ms: float | None = None  # time of the server for the output tokens
    draft_tokens: int | None = None  # proposed by speculative decoding
    draft_accepted: int | None = None  # of these accepted


FIELDS = tuple(item.name for item in fields(RequestRecord))
INSTANTS = frozenset(name for name in FIELDS if name.endswith("_mono_ns"))


@cache
def schema() -> pa.Schema:
    """The Arrow schema of records: one column per field, in the dataclass's order."""
    load_arrow()
    import pyarrow as pa

    hints = typing.get_type_hints(RequestRecord)
    return pa.schema(
        [(item.name, _arrow_type(hints[item.name])) for item in fields(RequestRecord)]
    )


def _arrow_type(hint: Any) -> Any:
    """The type of a column, by the field's annotation: `Sequence[int]` is a list of integers."""
    import pyarrow as pa

    if typing.get_origin(hint) is types.UnionType:
        (hint,) = set(typing.get_args(hint)) - {types.NoneType}
    if hint is str:
        return pa.string()
    if hint is int:
        return pa.int64()
    if hint is float:
        return pa.float64()
    if hint is bool:
        return pa.bool_()
    if typing.get_args(hint) == (int,):
        return pa.list_(pa.int64())
    # Gaps as float32 take half the bytes and are exact to a hundred ns at 1 s.
    return pa.list_(pa.float32())


def aligned(table: pa.Table) -> pa.Table:
    """The table with exactly the columns of `schema`; missing ones (older files) are null.
    pa.ArrowInvalid: a column has another type.

    Columns without any value share their memory: of a million records they would take 300 MB.
    """
    import pyarrow as pa

    columns = []
    for item in schema():
        if item.name not in table.column_names or (
            table.num_rows and table[item.name].null_count == table.num_rows
        ):
            columns.append(_missing(table.num_rows, item.type))
        else:
            columns.append(table[item.name].cast(item.type))
    return pa.Table.from_arrays(columns, schema=schema())


@lru_cache(maxsize=64)
def _missing(rows: int, kind: pa.DataType) -> pa.Array:
    import pyarrow as pa

    if pa.types.is_list(kind):
        return pa.array([[]] * rows, kind)
    return pa.nulls(rows, kind)


@cache
def _row_type() -> pa.DataType:
    import pyarrow as pa

    return pa.struct(list(schema()))


def to_batch(records: Sequence[RequestRecord]) -> pa.RecordBatch:
    """Records as packed columns."""
    import pyarrow as pa

    values_of = attrgetter(*FIELDS)
    rows = []
    for record in records:
        values = values_of(record)
        rows.append(dict(zip(FIELDS, values, strict=True)))
    # All columns at once: an array for each would take two to three times as long.
    return pa.RecordBatch.from_struct_array(pa.array(rows, _row_type()))
