"""The client's side of a played run: the reads go through the real parsers, and the records into a
run."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa

from llama_load.ground.failure_kind import FailureKind
from llama_load.ground.units import NS_PER_MS
from llama_load.loadgen.dispatch.leases import Lease
from llama_load.loadgen.preflight.plan_beginnings import common_beginnings
from llama_load.loadgen.users.long_texts import text_digest
from llama_load.loadgen.users.measure import SentRequest, make_record
from llama_load.loadgen.users.session import Ticket
from llama_load.loadgen.users.session_tokens import NO_SESSIONS
from llama_load.loadgen.wire.answer_body import AnswerBody
from llama_load.loadgen.wire.exchange import Exchange
from llama_load.loadgen.wire.phase_clock import DONE, PhaseClock
from llama_load.loadgen.wire.request import Request, Timeouts
from llama_load.loadgen.wire.slab import LEAST_READ_BYTES, WHOLE_EVENTS_END, Slab
from llama_load.loadgen.wire.stamps import Opening
from llama_load.run_folder import Manifest, Run, StageRecord
from llama_load.run_folder.observed.common_beginnings import CommonBeginnings
from llama_load.run_folder.observed.record import RequestRecord, to_batch
from llama_load.run_folder.observed.records import Records
from llama_load.run_folder.observed.server_counters import ServerCounters, ServerTimes
from llama_load.run_folder.observed.worker_health import WorkerHealth
from llama_load.servers.address import parse_url
from llama_load.servers.answer import AnswerReader
from llama_load.servers.prompt import Prompt
from llama_load.servers.target import Target
from tests.search.answers import Answer
from tests.search.asks import TEMPLATE_TOKENS
from tests.search.case import ESTIMATE, LLAMA_SERVER, OPENAI, VLLM, Case
from tests.search.effect import Effect
from tests.search.loop import WAY_NS, Played

ADDRESSES = tuple(parse_url(f"http://127.0.0.{number}:9") for number in range(1, 4))
NO_TIMEOUTS = Timeouts(None, None, None)
REQUEST = Request("POST", "/v1/chat/completions")
SETTINGS: Any = SimpleNamespace(
    worker="local", save_texts=False, session_headers=NO_SESSIONS
)
OK = 200
# The stop string of two tokens that such answers end at.
STOP_BYTES = 8
CONNECTED_NS, HANDSHAKE_NS, SENT_NS = 300_000, 250_000, 350_000
# Of every request; it is in no latency.
USUAL_DELAY_NS = CONNECTED_NS - HANDSHAKE_NS


class NoPool:
    """Stands where the connections are: no exchange gets one."""

    def __getattr__(self, name: str) -> object:
        return lambda *_, **__: None


class Line:
    """Stands for the connection of one exchange: it was opened, and keeps the reads of whole events
    as `ReadLoop` does."""

    def __init__(self, start_ns: int, own_delay_ns: int, connect_ns: int) -> None:
        connected_ns = start_ns + own_delay_ns + connect_ns + CONNECTED_NS
        self.opening = Opening(connected_ns, None, HANDSHAKE_NS + connect_ns)
        self.state = "open"
        self.slab: Slab | None = None

    def keep_reads(self, slab: Slab) -> None:
        """See `Connection.keep_reads`."""
        self.slab = slab

    def keeps(self, data: bytes, at_ns: int) -> bool:
        """Keep a read, if it is one that waits."""
        if (
            self.slab is None
            or len(data) < LEAST_READ_BYTES
            or not data.endswith(WHOLE_EVENTS_END)
        ):
            return False
        self.slab.keep(data, at_ns)
        return True

    def close(self) -> None:
        """See `Connection.close`."""


POOL: Any = NoPool()
NOBODY: Any = None


def record_of(case: Case, answer: Answer, scheduled_ns: int | None) -> RequestRecord:
    """The record that the client makes of an answer."""
    ask, start_ns = answer.ask, answer.start_ns
    reader = AnswerReader()
    clock = PhaseClock(NO_TIMEOUTS, since_ns=start_ns)
    exchange = Exchange(
        POOL,
        ADDRESSES[answer.host],
        REQUEST,
        clock,
        AnswerBody(reader),
        NOBODY,
        lambda _: None,
    )
    stamps = exchange.stamps
    stamps.started_ns = stamps.attempt_ns = start_ns
    stamps.sent_ns = start_ns + answer.own_delay_ns + answer.connect_ns + SENT_NS
    line: Any = Line(start_ns, answer.own_delay_ns, answer.connect_ns)
    exchange.connection = line
    for at_ns, data in answer.reads:
        if clock.phase == DONE:  # its connection is another request's, or closed
            break
        if not line.keeps(data, at_ns):
            exchange.take(data, at_ns)
    exchange.understand()
    if answer.is_cut_off:
        exchange.connection_lost(
            FailureKind.CUT_OFF, "the server closed the connection", answer.end_ns
        )
    reader.settle(exchange)
    prompt = Prompt(
        ask.text,
        ask.planned_tokens,
        ask.max_tokens,
        conversation=ask.conversation,
        turn=ask.turn,
    )
    lease = Lease(
        ask.index,
        False,
        ask.workload,
        prompt,
        stage=ask.stage,
        scheduled_ns=scheduled_ns,
    )
    sent = SentRequest(
        f"r{ask.index}",
        "User",
        ask.workload,
        ask.workload,
        "chat",
        "planned",
        ask.text,
        text_digest(ask.text),
        ask.max_tokens,
        prompt,
        choices=case.choices,
        stop_bytes=STOP_BYTES
        if any(change.name == "stop strings" for change in case.changes)
        else None,
        sent_bytes=200 + len(ask.text.encode()),
    )
    return make_record(
        SETTINGS, Ticket(lease, _target(case, answer.host)), sent, exchange, reader
    )


def _target(case: Case, host: int) -> Target:
    template = TEMPLATE_TOKENS if case.template_known else None
    return Target(
        ADDRESSES[host],
        case.server,
        "planned",
        slots=case.slots,
        template_tokens=template,
    )


def run_of(case: Case, effects: Sequence[Effect], played: Played) -> Run:
    """The run as its folder would have it."""
    answers = [
        answer
        for answer in played.answers
        if all(effect.keeps(answer) for effect in effects)
    ]
    answers.sort(key=lambda answer: answer.end_ns)
    records = [
        record_of(case, answer, played.scheduled_ns.get(answer.ask.index))
        for answer in answers
    ]
    table = pa.Table.from_batches([to_batch(records)])
    manifest = _manifest(case, played)
    if manifest.counters is not None:
        for effect in effects:
            manifest.counters = effect.count(manifest.counters)
    for effect in effects:
        effect.note(manifest)
    return Run(Path("search"), manifest, Records(table), recovered=False)


def _manifest(case: Case, played: Played) -> Manifest:
    hosts = sorted({answer.host for answer in played.answers})
    users = max(case.stages) if case.stages else case.users
    rate_rps = None
    if played.scheduled_ns:
        scheduled = played.scheduled_ns.values()
        rate_rps = len(scheduled) / ((max(scheduled) - min(scheduled)) / 1e9)
    stages = [
        StageRecord(
            f"{users} users",
            users,
            begun_mono_ns=times.begun_ns,
            ended_mono_ns=times.ended_ns,
        )
        for users, times in zip(case.stages, played.stages, strict=True)
    ]
    for number, stage in enumerate(stages):
        stage.name = f"{number + 1}: {stage.name}"
    return Manifest(
        version="0",
        date="20260101-000000",
        workload="planned",
        command=["locust"],
        options={},
        endpoint="chat",
        backend=case.server,
        model="planned",
        tokenizer="estimate" if case.counted_by == ESTIMATE else "server",
        users=users,
        request_rate=rate_rps,
        arrival="poisson" if played.scheduled_ns else None,
        stages=stages,
        num_prompts=len(played.answers),
        goodput=["ttft:400", "tpot:30"] if case.goodput else [],
        targets=[_target(case, host).described() for host in hosts],
        workers=[_health()],
        counters=_counters(case, played.answers),
        end="complete",
        common_beginnings=_common_beginnings(played.answers),
    )


def _common_beginnings(answers: Sequence[Answer]) -> CommonBeginnings:
    """What the prompts have in common, as the client sees it before the run."""
    planned: dict[str, list[Prompt]] = {}
    for answer in answers:
        prompt = Prompt(answer.ask.text, turn=answer.ask.turn)
        planned.setdefault(answer.ask.workload, []).append(prompt)
    return common_beginnings(planned, {})


def _health() -> WorkerHealth:
    """A client on a quiet machine."""
    return WorkerHealth(
        "local",
        loop_lag_p99_ms=0.3,
        loop_lag_max_ms=1.0,
        core_busy=0.1,
        stolen_ratio=0.0,
        longest_pause_ms=1.0,
        machine_busy=0.1,
        own_share=0.05,
        core_wait_ms=1.0,
        core_wait_longest_ms=0.1,
        core_wait_ratio=0.0005,
    )


def _counters(case: Case, answers: Sequence[Answer]) -> ServerCounters | None:
    """What the server counted: its own work, whatever it reported."""
    prompts = sum(answer.prompt_tokens for answer in answers)
    tokens = sum(len(answer.words) for answer in answers) * case.choices
    if case.server == OPENAI:
        return None
    if case.server == LLAMA_SERVER:
        return ServerCounters(prompt_tokens=prompts, output_tokens=tokens)
    assert case.server == VLLM
    cached = sum(answer.cached for answer in answers)
    return ServerCounters(
        prompt_tokens=prompts,
        cache_queries=prompts,
        cache_hits=cached,
        requests=len(answers),
        preemptions=0,
        output_tokens=tokens,
        times=_times(answers),
    )


def _times(answers: Sequence[Answer]) -> ServerTimes:
    """vLLM's histograms: the sums of what it saw, from a request's arrival to its last token."""
    worked_on = [answer for answer in answers if answer.status == OK]
    arrived_ns = [answer.start_ns + WAY_NS + answer.unseen_ns for answer in worked_on]
    begun_ns = [answer.begin_ns for answer in worked_on]
    first_ns = [int(answer.instants[0]) for answer in worked_on]
    last_ns = [int(answer.instants[-1]) for answer in worked_on]
    return ServerTimes(
        requests=len(worked_on),
        ttft_ms=(sum(first_ns) - sum(arrived_ns)) / NS_PER_MS,
        e2el_ms=(sum(last_ns) - sum(arrived_ns)) / NS_PER_MS,
        queue_ms=(sum(begun_ns) - sum(arrived_ns)) / NS_PER_MS,
        prefill_ms=sum(answer.prefill_ns for answer in worked_on) / NS_PER_MS,
        decode_ms=(sum(last_ns) - sum(first_ns)) / NS_PER_MS,
    )
