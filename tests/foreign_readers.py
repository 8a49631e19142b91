"""What reads bytes of others, each with bytes that it accepts or nearly: for hypothesis
(`tests/test_fuzz_readers.py`), the coverage-guided fuzzer (`tests/heavy/fuzz_readers.py`), and the
test that none is missing (`tests/repository/test_fuzz_coverage.py`).

Each reader gets the path of a file with these bytes, in a folder where it is alone.
"""

from __future__ import annotations

import gzip
import json
import os
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace

import flask
import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
from locust.rpc import Message
from werkzeug.exceptions import HTTPException

from llama_load.analysis.comparison.foreign_results import result_run
from llama_load.analysis.comparison.llama_bench import bench_tests
from llama_load.analysis.comparison.run_folder import _server_flags
from llama_load.analysis.reports.run_list import run_row
from llama_load.analysis.reports.verify import (
    REPORT,
    _of_page,
    _of_report,
    _of_schemas,
    _of_summary,
)
from llama_load.analysis.results.gather_evidence import cache_evidence
from llama_load.analysis.results.results import Results, analyze
from llama_load.analysis.results.run_summary import SUMMARY, read_summary
from llama_load.cli import otlp_push
from llama_load.cli.run_command import _sets_host
from llama_load.ground.errors import LlamaLoadError
from llama_load.lab.bench.bench_block import read_block_file
from llama_load.lab.dataset_tools.catalogue import _splits
from llama_load.lab.dataset_tools.inspection import inspect
from llama_load.lab.sweep.comparison import _memory
from llama_load.lab.sweep.folder import ABOUT, _about
from llama_load.lab.sweep.folder import read_journal as read_sweep
from llama_load.lab.sweep.gguf_facts import gguf_facts
from llama_load.lab.sweep.locustfile_flags import texts_of
from llama_load.lab.sweep.measured_subject import subject_of
from llama_load.lab.sweep.quality import read_text
from llama_load.lab.sweep.read_plan import read_plan
from llama_load.lab.sweep.rows import SEARCH_JSON, Row, _add_search
from llama_load.lab.sweep.running_server import MEMORY
from llama_load.loadgen.options.options import read_options
from llama_load.loadgen.options.program_command import run_of_command
from llama_load.loadgen.options.secret_flags import redact_json, redact_options
from llama_load.loadgen.options.vllm_command import our_run
from llama_load.loadgen.swarm import messages, refusal
from llama_load.loadgen.swarm.sockets import _unpacked
from llama_load.loadgen.users.retry import _retry_after_s
from llama_load.loadgen.users.session_tokens import SessionHeaders
from llama_load.loadgen.workloads.custom import Custom
from llama_load.loadgen.workloads.huggingface import DataSet
from llama_load.loadgen.workloads.images import image_of
from llama_load.loadgen.workloads.prompt_plan import PlanRequest
from llama_load.loadgen.workloads.sharegpt import ShareGPT
from llama_load.loadgen.workloads.talk_files import read_talks
from llama_load.loadgen.workloads.text_files import text_files
from llama_load.loadgen.workloads.think_time import think_time
from llama_load.loadgen.workloads.traces import read_trace_file
from llama_load.outside.bound_headers import NO_HEADERS
from llama_load.outside.command_secrets import secrets_of_words
from llama_load.outside.foreign_files import read_foreign, read_foreign_json
from llama_load.outside.plain_http import NoAnswerError, Session
from llama_load.page.experiments import STATE, Experiments
from llama_load.page.guard import WebGuard
from llama_load.page.page_token import PageToken
from llama_load.page.responses import posted
from llama_load.page.run_files import RunFiles
from llama_load.record.http_framing import BadMessageError, Body, Head, MessageReader
from llama_load.record.passed_exchange import PassedExchange
from llama_load.record.recorded_turns import read_turns
from llama_load.record.recording import Recording
from llama_load.record.relay import Relay
from llama_load.record.request_logs import RequestLog
from llama_load.run_folder import TABLE, RunWriter, load_run
from llama_load.run_folder.journal import Journal, read_journal
from llama_load.run_folder.manifest import (
    JOURNAL,
    MANIFEST,
    last_with_label,
    read_manifest,
)
from llama_load.run_folder.observed.record import to_batch
from llama_load.run_folder.reading import _read_spool
from llama_load.run_folder.server_files import kept_logs
from llama_load.run_folder.telemetry_file import (
    SAMPLES,
    TELEMETRY,
    load_telemetry,
    write_telemetry,
)
from llama_load.servers.address import parse_url
from llama_load.servers.apis import APIS
from llama_load.servers.apis.prompt_content import kept_messages
from llama_load.servers.counters import _date_s, parse_counters
from llama_load.servers.json_schema import check_schema, schema_fault
from llama_load.servers.kinds.llama_cpp_log import read_log
from llama_load.servers.kinds.server_start import refuse_other_than_gguf
from llama_load.servers.kinds.slot_log import read_slot_log
from llama_load.servers.server_errors import (
    context_numbers,
    describe_error,
    http_failure,
)
from llama_load.servers.serving.last_words import last_words
from llama_load.servers.serving.registry import _entry_in as read_registry
from llama_load.servers.token_blocks import EstimatedTokens
from llama_load.telemetry.slots import Slots
from llama_load.telemetry.source import SourceError
from tests.answer_pipeline import record_of
from tests.loadgen.workloads.test_custom import Words
from tests.make_records import manifest, record
from tests.test_foreign_files import REQUEST

# What a reader may raise: a sentence.
SENTENCES = (
    LlamaLoadError,
    ValueError,
    OSError,
    NoAnswerError,
    SourceError,
    HTTPException,
)

PAGE_TOKEN = PageToken("a-token-of-the-page", 8089)
MESSAGES = b'{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}], "output_tokens": 3}\n'
EXPECTED = (
    b'{"prompt": "a", "expect": {"json_schema": {"type": "object"}, "regex": "a"}}\n'
)
TOOLS = b'{"messages": [{"role": "user", "content": "a"}], "tools": "[{\\"type\\": \\"function\\"}]", "output_tokens": 3}\n'
ASKED = '[{"role": "user", "parts": [{"type": "text", "content": "a"}]}]'
SPANS = json.dumps(
    {
        "resourceSpans": [
            {
                "scopeSpans": [
                    {
                        "spans": [
                            {
                                "spanId": "1",
                                "traceId": "2",
                                "startTimeUnixNano": "1",
                                "endTimeUnixNano": "2",
                                "attributes": [
                                    {
                                        "key": "gen_ai.operation.name",
                                        "value": {"stringValue": "chat"},
                                    },
                                    {
                                        "key": "gen_ai.input.messages",
                                        "value": {"stringValue": ASKED},
                                    },
                                    {
                                        "key": "gen_ai.output.messages",
                                        "value": {
                                            "stringValue": ASKED.replace(
                                                "user", "assistant"
                                            )
                                        },
                                    },
                                ],
                            }
                        ]
                    }
                ]
            }
        ]
    }
).encode()
BATCH = b'{"custom_id": "1", "body": "{\\"messages\\": [{\\"role\\": \\"user\\", \\"content\\": \\"a\\"}]}"}\n'
GIF = b"GIF89a\1\0\1\0\x80\0\0\xff\xff\xff\0\0\0,\0\0\0\0\1\0\1\0\0\2\2D\1\0;"
SHARED = b'[{"conversations": [{"from": "human", "value": "one two three four"}, {"from": "gpt", "value": "one two three four"}]}]'
EVENT = b'{"choices": [{"index": 0, "delta": {"content": "a", "tool_calls": [{"index": 0}], "reasoning_details": [{"text": "a"}]}, "finish_reason": "stop"}], "usage": {"prompt_tokens": 2.0}}'
ERROR = b'{"error": {"message": "the request has 9 tokens, the context 4", "n_prompt_tokens": 9, "n_ctx": 4}}'
SAMPLE = b'["series", 1, "a", "b", {}]\n["values", 1, [[1, 2.0]]]\n'
# A request to record, and answers to it. Arguments of a tool are JSON in a text.
CALL = {"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
ASKED_CHAT = json.dumps(
    {
        "model": "m",
        "messages": [
            {"role": "user", "content": "a"},
            {"role": "assistant", "tool_calls": [CALL]},
            {"role": "tool", "tool_call_id": "1", "content": "b"},
        ],
    }
).encode()
ASKED_MESSAGES = b'{"system": "a", "messages": [{"role": "user", "content": [{"type": "text", "text": "a"}]}]}'
ASKED_RESPONSES = b'{"instructions": "a", "input": [{"type": "function_call", "call_id": "1", "name": "f", "arguments": "{}"}, {"role": "user", "content": "a"}]}'
ANSWERED_CHAT = b'{"choices": [{"message": {"role": "assistant", "content": "a"}, "finish_reason": "stop"}], "usage": {"prompt_tokens": 2}}'
ANSWERED_MESSAGES = b'{"content": [{"type": "text", "text": "a"}], "usage": {"input_tokens": 2, "cache_read_input_tokens": 1}}'
ANSWERED_RESPONSES = b'{"output": [{"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "a"}]}], "usage": {"input_tokens": 2, "input_tokens_details": {"cached_tokens": 1}}}'
PASSED = PassedExchange(
    number=1,
    method="POST",
    path="/v1/chat/completions",
    started_ns=1,
    started_wall_ns=1,
    ended_ns=2,
    request=ASKED_CHAT,
    status=200,
    content_type="application/json",
    pieces=[(2, ANSWERED_CHAT)],
)
REQUEST_IN_CHUNKS = b"POST /v1/chat/completions?key=k HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n4;a=b\r\n[12]\r\n0\r\nX: y\r\n\r\n"
ANSWER_IN_CHUNKS = REQUEST_IN_CHUNKS.replace(
    b"POST /v1/chat/completions?key=k HTTP/1.1", b"HTTP/1.1 200 OK", 1
)
PLAN = PlanRequest(num_prompts=2, fill=False, warmup=0, seed=0, counter=Words())


@dataclass(frozen=True)
class Reader:
    """A file that `read` accepts or nearly, by its name, beside others that it needs."""

    good: bytes
    name: str
    read: Callable[[Path], object]
    beside: Callable[[Path], None] = lambda folder: None


def of_bytes(good: bytes, read: Callable[[bytes], object]) -> Reader:
    """What reads bytes that came otherwise than in a file."""
    return Reader(good, "bytes", lambda file: read(file.read_bytes()))


@contextmanager
def answering(data: bytes) -> Iterator[int]:
    """The port of a peer that says this, whatever it hears, and closes."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            with suppress(OSError):
                connection, _ = server.accept()
                with connection:
                    connection.settimeout(2)
                    connection.sendall(data)
                    connection.shutdown(socket.SHUT_WR)
                    while connection.recv(4096):
                        pass

        thread = threading.Thread(target=answer, daemon=True)
        thread.start()
        yield int(server.getsockname()[1])
        with suppress(OSError):  # nobody may have come
            server.shutdown(socket.SHUT_RDWR)
        thread.join(5)


def over_http(data: bytes) -> str:
    return f"HTTP/1.1 200 OK\r\nContent-Length: {len(data)}\r\n\r\n"


def http_answer(data: bytes) -> object:
    with answering(data) as port:
        return Session().get(f"http://127.0.0.1:{port}/", within_s=5).json()


def pushed(data: bytes) -> None:
    with answering(over_http(data).encode() + data) as port:
        otlp_push._send(Session(), f"http://127.0.0.1:{port}/", {}, 0)


def slots(data: bytes) -> None:
    with answering(over_http(data).encode() + data) as port:
        place = SimpleNamespace(
            name="a", url=f"http://127.0.0.1:{port}/slots", headers=NO_HEADERS
        )
        list(Slots(place).sample())  # type: ignore[arg-type]


def greeting(data: bytes) -> bool:
    with answering(data) as port:
        return refusal.Refusal("127.0.0.1", port)._is_master()


def answer_of(api: str, *, streams: bool = True) -> Callable[[bytes], object]:
    """The record of an answer whose events, or whose body, are these bytes."""
    kind = "text/event-stream" if streams else "application/json"

    def read(data: bytes) -> None:
        head = f"HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\n\r\n".encode()
        body = b"data: " + data + b"\n\n" if streams else data
        assert record_of([head, body], APIS[api].reader(1, streams=streams)).status

    return read


def error_of(data: bytes) -> None:
    context_numbers(data)
    describe_error(data)
    http_failure(400, data, {})


def posted_to(url: str, read: Callable[[], object]) -> Callable[[bytes], object]:
    """What a handler of the page makes of a body."""

    def handled(data: bytes) -> object:
        with flask.Flask("a").test_request_context(
            url, method="POST", data=data, content_type="application/json"
        ):
            return read()

    return handled


def user_settings() -> object:
    guard = object.__new__(WebGuard)
    guard._environment = SimpleNamespace(
        available_user_classes={"User": object}, available_user_tasks={"User": []}
    )
    return guard._bad_user_settings()


def page_request(data: bytes) -> None:
    """What the page makes of a request before it knows who sends it: the target, then a line for
    each field. No error of any kind may end it."""
    target, *lines = data.decode("latin-1").split("\n")
    path, _, query = target.partition("?")
    fields = dict(line.partition(": ")[::2] for line in lines)
    environ = {f"HTTP_{name.upper()}": value for name, value in fields.items()}
    environ |= {"REQUEST_METHOD": "GET", "PATH_INFO": path, "QUERY_STRING": query}
    guard = object.__new__(WebGuard)
    guard._names = {"localhost"}
    guard._named = set()
    guard._token = PAGE_TOKEN
    try:
        guard._refusal(environ)
        PAGE_TOKEN.renewal(environ)
    except ValueError as error:
        raise AssertionError("the page has no sentence for this") from error


def answers_fields(data: bytes) -> None:
    """What is read of an answer's fields, a line each."""
    lines = data.decode("latin-1").split("\n")
    fields = dict(line.partition(": ")[::2] for line in lines)
    for name in ("set-cookie", "x-session"):
        sessions = SessionHeaders(token=name, replica="x-replica")
        sessions.to_send(sessions.token_in(fields))
        sessions.replica_in(fields)
        sessions.state("a", fields)
    _retry_after_s(fields.get("retry-after", ""))
    _date_s(fields.get("date", ""))


def state(file: Path) -> object:
    experiments = object.__new__(Experiments)
    experiments.present = SimpleNamespace(folder=file.parent)  # type: ignore[assignment]
    return experiments._state()


def run_files(file: Path) -> None:
    files = RunFiles(file.parent.parent, {})
    opened = files.open(file.parent.name, file.name)
    if opened is not None:
        opened.close()
    files.json(file.parent.name, file.name)


def option(name: str) -> Callable[[bytes], object]:
    """A flag's text, as the page posts it."""

    def read(data: bytes) -> None:
        text = data.decode("utf-8", "replace")
        redact_json(text)
        redact_options({name: text})
        secrets_of_words([f"--{name.replace('_', '-')}", text])
        read_options(SimpleNamespace(**{name: text}))

    return read


def schema(data: bytes) -> None:
    text = data.decode("utf-8", "replace")
    check_schema(text)
    schema_fault(text, text)


def extra_body(data: bytes) -> object:
    text = data.decode("utf-8", "replace")
    return cache_evidence(manifest(options={"extra_body": text}))


def frames(data: bytes) -> object:
    """A batch of records: its header, then the bytes."""
    length = len(messages.pack_header(1, ""))
    return messages.unpack_batch([data[:length], data[length:]])


def memory(file: Path) -> object:
    cell = SimpleNamespace(
        folder="a", server=SimpleNamespace(label="a"), setting_texts=[]
    )
    root = file.parent.parent
    folder = SimpleNamespace(path=root, servers=root)
    return _memory(SimpleNamespace(cells=[cell], folder=folder))  # type: ignore[arg-type]


def data_set(file: Path) -> None:
    """A local one is read by the package of Hugging Face, except for its hash and images."""
    own = object.__new__(DataSet)
    own.spec = own._source = str(file)
    assert own.facts.sha256


def recorded(*exchanges: PassedExchange) -> None:
    """Both kinds of recording of what passed the relay."""
    for tokens in (None, EstimatedTokens()):
        with TemporaryDirectory() as name:
            recording = Recording(Path(name, "talk.jsonl"), lambda _: None, tokens)
            for number, passed in enumerate(exchanges, start=1):
                passed.number = number
                recording.take(passed)
            recording.write_conversations()
            recording.write_turns()
            assert recording.write() == ""
            assert recording.summary(None)
            recording.close()


def recorded_request(path: str, encoding: str = "") -> Callable[[bytes], object]:
    """A request with this body, between two that are understood."""

    def read(data: bytes) -> None:
        asked = msgspec.structs.replace(
            PASSED, path=path, request=data, request_encoding=encoding
        )
        recorded(PASSED, asked, asked, PASSED)

    return read


def recorded_answer(
    path: str, asked: bytes, kind: str = "application/json", encoding: str = ""
) -> Callable[[bytes], object]:
    """An answer with this body, in two pieces."""

    def read(data: bytes) -> None:
        middle = len(data) // 2
        passed = msgspec.structs.replace(
            PASSED,
            path=path,
            request=asked,
            content_type=kind,
            content_encoding=encoding,
            pieces=[(2, data[:middle]), (3, data[middle:])],
        )
        recorded(passed, PASSED)

    return read


def framed(*, reads_answers: bool) -> Callable[[bytes], object]:
    """The same messages, in whatever pieces they come; no byte is lost or put in."""

    def read(data: bytes) -> None:
        whole, is_whole = cut_into_parts(data, len(data) or 1, reads_answers)
        assert not is_whole or data.startswith(whole[0])
        for size in (1, 2, 7):
            assert cut_into_parts(data, size, reads_answers) == (whole, is_whole)

    return read


def without_additions(data: bytes) -> None:
    """Requests without trailers and extensions of chunks are the same requests."""
    plain, is_whole = cut_into_parts(data, len(data) or 1, False, drops=True)
    if not is_whole:
        return
    _, content, ended = plain
    again, is_whole_again = cut_into_parts(plain[0], 5, False)
    assert is_whole_again
    assert again == (plain[0], content, ended)


def cut_into_parts(
    data: bytes, size: int, reads_answers: bool, *, drops: bool = False
) -> tuple[tuple[bytes, bytes, int], bool]:
    """The bytes of all parts, those of the bodies, and the number of messages; whether it could be
    read to its end. Of what is refused no piece counts: it is refused at another place."""
    reader = MessageReader(reads_answers=reads_answers, drops_additions=drops)
    raw = b""
    content = b""
    ended = 0
    try:
        for begin in range(0, len(data), size):
            for part in reader.feed(data[begin : begin + size]):
                if isinstance(part, Head):
                    raw += part.raw
                elif isinstance(part, Body):
                    raw += part.raw
                    content += part.data
                else:
                    ended += 1
    except BadMessageError:
        return (b"", b"", 0), False
    return (raw, content, ended), True


def passed_on(client_says: bytes, server_says: bytes) -> None:
    """A relay between a client and a server that say this, whatever they hear."""
    reads, writes = os.pipe()
    with answering(server_says) as server_port, os.fdopen(reads, "rb") as sink:
        to = parse_url(f"http://127.0.0.1:{server_port}").resolved()
        relay = Relay(to, "127.0.0.1", 0, writes)

        def ask() -> None:
            with (
                suppress(OSError),
                socket.create_connection(("127.0.0.1", relay.port), 2) as client,
            ):
                client.sendall(client_says)
                client.shutdown(socket.SHUT_WR)
                while client.recv(4096):
                    pass
            relay.stop()

        client = threading.Thread(target=ask, daemon=True)
        reader = threading.Thread(target=sink.read, daemon=True)
        reader.start()
        client.start()
        try:
            relay.serve()
        finally:
            os.close(writes)
            client.join(5)
            reader.join(5)


def vllm_body(data: bytes) -> object:
    text = data.decode("utf-8", "replace")
    our_run(["--extra-body.top_k", text])
    return our_run(["--extra-body", text])


def program_body(data: bytes) -> object:
    text = data.decode("utf-8", "replace")
    run_of_command(["aiperf", "profile", "--extra-inputs", f"key:{text}", text])
    run_of_command(["guidellm", "run", "--profile", text, "--data", text])
    return run_of_command(["sglang.bench_serving", "--extra-request-body", text])


def finished_run(folder: Path) -> None:
    """What a run leaves beside the file."""
    writer = RunWriter(folder / "made", manifest())
    writer.append([record(0), record(1)])
    writer.finish()
    writer.release()
    for file in (folder / "made").iterdir():
        if file.is_file() and not (folder / file.name).exists():
            file.rename(folder / file.name)


@cache
def made_results() -> Results:
    with TemporaryDirectory() as name:
        finished_run(Path(name))
        return analyze(load_run(Path(name)))


def table_bytes() -> bytes:
    with TemporaryDirectory() as name:
        finished_run(Path(name))
        return (Path(name) / TABLE).read_bytes()


def telemetry_bytes() -> bytes:
    with TemporaryDirectory() as name:
        folder = Path(name)
        (folder / SAMPLES).write_bytes(SAMPLE)
        write_telemetry(folder)
        return (folder / TELEMETRY).read_bytes()


def journal_bytes() -> bytes:
    with TemporaryDirectory() as name:
        file = Path(name) / JOURNAL
        journal = Journal(file)
        journal.append(to_batch([record(0)]))
        journal.close()
        return file.read_bytes()


def image(file: Path) -> object:
    return image_of(file.read_bytes(), "a")


def prompts(file: Path) -> object:
    return Custom().plan(replace(PLAN, dataset_path=str(file)))


def inspected(file: Path) -> object:
    return inspect(str(file), Words(), tell=lambda _: None)


def parquet_file() -> bytes:
    """A table of one prompt."""
    out = pa.BufferOutputStream()
    pq.write_table(pa.table({"prompt": ["a"], "max_tokens": [8]}), out)
    return bytes(out.getvalue())


ZSTD = bytes(pa.compress(MESSAGES, "zstd"))

BENCH_BLOCK = """<!-- llama-load bench 1 -->
**m**
| test | tok/s |
|---|---:|
| pp2048 | 1408 ± 39 |
""".encode()
READERS: dict[str, Reader] = {
    "block of a bench": Reader(BENCH_BLOCK, "a.md", read_block_file),
    # data sets
    "conversations": Reader(
        MESSAGES, "a.jsonl", lambda file: read_talks(file, REQUEST)
    ),
    "tools": Reader(TOOLS, "a.jsonl", lambda file: read_talks(file, REQUEST)),
    "spans": Reader(SPANS, "a.jsonl", lambda file: read_talks(file, REQUEST)),
    "log of requests": Reader(
        b'{"timestamp": 5, "request": "{\\"messages\\": [{\\"role\\": \\"user\\", \\"content\\": \\"a\\"}]}", '
        b'"response": {"usage": {"prompt_tokens": 3}}}\n',
        "a.jsonl",
        lambda file: list(RequestLog(file)),
    ),
    "log of spans": Reader(SPANS, "a.jsonl", lambda file: list(RequestLog(file))),
    "ShareGPT": Reader(
        SHARED,
        "a.json",
        lambda file: ShareGPT().plan(replace(PLAN, dataset_path=str(file))),
    ),
    "prompts": Reader(MESSAGES, "a.jsonl", prompts),
    "batch file": Reader(BATCH, "a.jsonl", prompts),
    "prompts in CSV": Reader(b'prompt,len\n"a, b",8\n', "a.csv", prompts),
    "prompts in Parquet": Reader(parquet_file(), "a.parquet", prompts),
    "packed prompts": Reader(gzip.compress(MESSAGES), "a.jsonl.gz", prompts),
    "prompts in zstd": Reader(ZSTD, "a.jsonl.zst", prompts),
    "expectations": Reader(EXPECTED, "a.jsonl", prompts),
    "schema": of_bytes(
        b'{"type": "object", "properties": {"a": {"$ref": "#"}}}', schema
    ),
    "prompt that was kept": of_bytes(
        b'[{"role":"user","content":"a"}]',
        lambda data: kept_messages(data.decode("utf-8", "surrogateescape")),
    ),
    "turns of a recording": Reader(
        b'{"conversation": "c1", "turn": 2, "prompt_tokens": 9, "cacheable_tokens": 8, "cached_tokens": 1, "again_tokens": 7}\n',
        "talk.turns.jsonl",
        read_turns,
    ),
    "inspected": Reader(MESSAGES, "a.jsonl", inspected),
    "trace": Reader(
        b'{"timestamp": 1, "input_length": 5, "output_length": 2, "hash_ids": [1]}\n',
        "a.jsonl",
        read_trace_file,
    ),
    "trace as CSV": Reader(
        b"Timestamp,Model,Request tokens,Response tokens\n1,x,5,2\n",
        "a.csv",
        read_trace_file,
    ),
    "document": Reader(
        b"Some words.\n", "a.txt", lambda file: list(text_files(file, 0))
    ),
    "think times": Reader(
        b"1.5\n2\n", "times", lambda file: think_time(f"file:{file}")
    ),
    "image": Reader(GIF, "a.gif", image),
    "data set": Reader(b"a", "a.parquet", data_set),
    "data set's description": Reader(
        b'{"splits": {"train": {"num_examples": 1, "num_bytes": 2}}, "download_checksums": {"hf://a": {}}}',
        "a/b/c/d/dataset_info.json",
        lambda file: list(_splits(file)),
    ),
    # folders of runs
    "manifest": Reader(
        b'{"version": "1"}',
        MANIFEST,
        lambda file: (
            run_row(file.parent),
            last_with_label(file.parent.parent, "a"),
            read_manifest(file.parent),
        ),
    ),
    "summary": Reader(
        b'{"duration": 1}', SUMMARY, lambda file: read_summary(file.parent)
    ),
    "table": Reader(
        table_bytes(), TABLE, lambda file: load_run(file.parent), finished_run
    ),
    "verified summary": Reader(
        b'{"completed": 2}',
        SUMMARY,
        lambda file: list(_of_summary(file.parent, made_results())),
    ),
    "verified report": Reader(
        b"one line\n",
        REPORT,
        lambda file: list(_of_report(file.parent, made_results())),
    ),
    "verified page": Reader(
        b"<html>",
        "report.html",
        lambda file: list(_of_page(file.parent, made_results())),
    ),
    "verified manifest": Reader(
        b'{"schema_version": 1}', MANIFEST, lambda file: list(_of_schemas(file.parent))
    ),
    "verified table": Reader(
        table_bytes(), TABLE, lambda file: list(_of_schemas(file.parent)), finished_run
    ),
    "journal": Reader(journal_bytes(), JOURNAL, read_journal),
    "spool": Reader(
        b'{"worker": "a", "clock_offset_ns": 1}',
        MANIFEST,
        lambda file: _read_spool(file.parent),
    ),
    "samples": Reader(SAMPLE, SAMPLES, lambda file: load_telemetry(file.parent)),
    "telemetry": Reader(
        telemetry_bytes(), TELEMETRY, lambda file: load_telemetry(file.parent)
    ),
    "served files": Reader(b'{"a": 1}', SUMMARY, run_files, finished_run),
    "server's command": Reader(
        b"llama-server -c 4096 --port=1",
        "server/command",
        lambda file: _server_flags(file.parents[1]),
    ),
    "extra body": of_bytes(b'{"tools": []}', extra_body),
    "result": Reader(
        b'{"duration": 1, "completed": 2, "request_throughput": 2}',
        "a.json",
        result_run,
    ),
    "llama-bench": Reader(b'[{"avg_ts": 1, "samples_ts": [1]}]', "a.json", bench_tests),
    # plans and sweeps
    "plan": Reader(b"title: a\nvary:\n  users: [1, 2]\n", "a.yaml", read_plan),
    "sweep": Reader(
        b'{"key": "a"}\n', "cells.jsonl", lambda file: read_sweep(file.parent)
    ),
    "sweep's cells": Reader(
        b'{"cells": ["a"], "version": "1"}', ABOUT, lambda file: _about(file.parent)
    ),
    "subject of a sweep": Reader(
        b'{"targets": [{"url": "http://a", "model": "m", "model_bytes": 5}], "date": "20261122-134330"}',
        f"runs/a/{MANIFEST}",
        lambda file: subject_of(file.parent.parent),
    ),
    "search": Reader(
        b'{"low": 1, "high": 2, "unit": "req/s"}',
        SEARCH_JSON,
        lambda file: _add_search(Row({}, 0, 0), file.parent),
    ),
    "state of a search": Reader(
        b'{"probes": [], "present": {"step": "a"}}', STATE, state
    ),
    "memory": Reader(b"| memory |\n", f"a/{MEMORY}", memory),
    "text of a perplexity": Reader(
        b"Some words.\n", "a.txt", lambda file: read_text(str(file))
    ),
    "locustfile": Reader(b"import locust\n", "a.py", lambda file: texts_of([file])),
    "model": Reader(struct.pack("<4sIQQ", b"GGUF", 3, 0, 0), "a.gguf", gguf_facts),
    "model to serve": Reader(b"GGUF\x03", "a.gguf", refuse_other_than_gguf),
    # servers
    "answer over HTTP": of_bytes(
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\n[12]\r\n0\r\n\r\n",
        http_answer,
    ),
    "receiver of traces": of_bytes(b'{"partialSuccess": {"rejectedSpans": 1}}', pushed),
    "slots": of_bytes(
        b'[{"is_processing": true, "next_token": [{"n_decoded": 2}]}]', slots
    ),
    "greeting of a master": of_bytes(b"\xff", greeting),
    "event of chat": of_bytes(EVENT, answer_of("chat")),
    "body of chat": of_bytes(
        EVENT.replace(b"delta", b"message"), answer_of("chat", streams=False)
    ),
    "event of completion": of_bytes(
        b'{"content": "a", "stop": true}', answer_of("completion")
    ),
    "event of messages": of_bytes(
        b'{"type": "content_block_delta", "delta": {"type": "text_delta", "text": "a"}}',
        answer_of("messages"),
    ),
    "event of responses": of_bytes(
        b'{"type": "response.output_text.delta", "delta": "a"}', answer_of("responses")
    ),
    "embeddings": of_bytes(
        b'{"data": [{"embedding": [1], "index": 0}]}',
        answer_of("embeddings", streams=False),
    ),
    "ranks": of_bytes(
        b'{"results": [{"index": 0, "relevance_score": 1}]}',
        answer_of("rerank", streams=False),
    ),
    "error": of_bytes(ERROR, error_of),
    "page of metrics": of_bytes(
        b'# TYPE a counter\na_total{b="c"} 1\n',
        lambda data: parse_counters(data.decode("utf-8", "replace")),
    ),
    "log": of_bytes(
        b'{"type":"log", "msg": "llama_context: n_ctx = 4096"}\n',
        lambda data: read_log(data.decode("utf-8", "replace").splitlines()),
    ),
    "log of slots": Reader(
        b'slot launch_slot_: id  0 | task 9 | processing task\n{"type":"log", "msg": "slot x: id  0 | task 9 | prompt eval time = 1.00 ms / 2 tokens"}\n',
        "server/server.log",
        lambda file: [
            read_slot_log(text.split("\n"))
            for text in kept_logs(file.parents[1], ["http://a"]).values()
        ],
    ),
    "last words": Reader(b"error: out of memory\n", "server.log", last_words),
    "started server": Reader(
        b'{"port": 1, "pid": 2, "created_s": 1.0, "command": ["a"], "log": "b", "ended": ""}',
        "1.json",
        read_registry,
    ),
    # peers and the page
    "message": of_bytes(Message("stats", {"a": 1}, "w").serialize(), _unpacked),
    "batch": of_bytes(messages.pack_header(1, "0" * 16) + b"batch", frames),
    "post to the page": of_bytes(b'{"a": 1}', posted_to("/", posted)),
    "request to the page": of_bytes(
        b"/llm?token=a\nHost: localhost\nCookie: llama-load-1-a=1.a\n"
        b"Origin: http://localhost\nAuthorization: Bearer a\nSec_Fetch_Site: none",
        page_request,
    ),
    "fields of an answer": of_bytes(
        b"set-cookie: a=b; Path=/\nx-session: c\nx-replica: d\nretry-after: 5\n"
        b"date: Wed, 21 Oct 2026 07:28:00 GMT",
        answers_fields,
    ),
    "settings of a user class": of_bytes(
        b'{"user_class_name": "User", "weight": 1}', posted_to("/user", user_settings)
    ),
    "--extra-body": of_bytes(b'{"key": ["a"]}', option("extra_body")),
    # what `record` passes on
    "recorded request of chat": of_bytes(
        ASKED_CHAT, recorded_request("/v1/chat/completions")
    ),
    "recorded request of messages": of_bytes(
        ASKED_MESSAGES, recorded_request("/v1/messages")
    ),
    "recorded request of responses": of_bytes(
        ASKED_RESPONSES, recorded_request("/v1/responses")
    ),
    "recorded request of completion": of_bytes(
        b'{"prompt": "a"}', recorded_request("/completion")
    ),
    "recorded request, compressed": of_bytes(
        gzip.compress(ASKED_CHAT, mtime=0),
        recorded_request("/v1/chat/completions", "gzip"),
    ),
    "recorded answer of chat": of_bytes(
        ANSWERED_CHAT, recorded_answer("/v1/chat/completions", ASKED_CHAT)
    ),
    "recorded answer of messages": of_bytes(
        ANSWERED_MESSAGES, recorded_answer("/v1/messages", ASKED_MESSAGES)
    ),
    "recorded answer of responses": of_bytes(
        ANSWERED_RESPONSES, recorded_answer("/v1/responses", ASKED_RESPONSES)
    ),
    "recorded answer of completion": of_bytes(
        b'{"content": "a", "tokens_cached": 2}',
        recorded_answer("/completion", b'{"prompt": "a"}'),
    ),
    "recorded answer, compressed": of_bytes(
        gzip.compress(ANSWERED_CHAT, mtime=0),
        recorded_answer("/v1/chat/completions", ASKED_CHAT, encoding="gzip"),
    ),
    "recorded stream": of_bytes(
        b"data: " + EVENT + b"\n\ndata: [DONE]\n\n",
        recorded_answer("/v1/chat/completions", ASKED_CHAT, "text/event-stream"),
    ),
    "framing of requests": of_bytes(REQUEST_IN_CHUNKS, framed(reads_answers=False)),
    "framing without additions": of_bytes(REQUEST_IN_CHUNKS, without_additions),
    "framing of answers": of_bytes(ANSWER_IN_CHUNKS, framed(reads_answers=True)),
    "relay's client": of_bytes(
        REQUEST_IN_CHUNKS, lambda data: passed_on(data, ANSWER_IN_CHUNKS)
    ),
    "relay's server": of_bytes(
        ANSWER_IN_CHUNKS, lambda data: passed_on(REQUEST_IN_CHUNKS, data)
    ),
    # flags
    "Locust's configuration": Reader(b"host = http://x\n", "locust.conf", _sets_host),
    "body of vllm bench": of_bytes(b'{"a": 1}', vllm_body),
    "parts of others' commands": of_bytes(b'{"kind": "synchronous"}', program_body),
    # whatever has no reader of its own
    "any JSON": Reader(json.dumps({"a": [1]}).encode(), "a.json", read_foreign_json),
    "any file": Reader(b"a", "a", read_foreign),
}


def put(reader: Reader, folder: Path) -> Path:
    """The file of a reader with what belongs beside it."""
    file = folder / reader.name
    file.parent.mkdir(parents=True, exist_ok=True)
    reader.beside(folder)
    file.write_bytes(reader.good)
    return file


def attempt(reader: Reader, file: Path, data: bytes) -> None:
    """Any bytes: a value or a sentence; everything else is a find."""
    file.write_bytes(data)
    try:
        reader.read(file)
    except SENTENCES:
        return
