"""Our flags as one typed, checked object: texts become values only here. All faults are reported at once."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from llama_load.errors import UsageError
from llama_load.foreign_text import keep_secret
from llama_load.languages import ENGLISH, LANGUAGES
from llama_load.load.segments import LONGEST_S, LoadModel
from llama_load.options.flag import Kind, Role
from llama_load.options.flag_reader import FlagReader
from llama_load.options.flags import (
    FLAGS,
    LONGEST_PROBE_GAP_S,
    LONGEST_WAIT_S,
    LOOPBACK,
    MOST_PROBES_RPS,
    MOST_REQUESTS,
    MOST_TOKENS,
    MOST_USERS,
)
from llama_load.options.goals import Goals, read_goals
from llama_load.options.load_flags import read_load
from llama_load.options.result_flags import AUTO, CANCEL, CLIENT_PRIORITIES, WAIT
from llama_load.options.secret_flags import is_header_name, read_headers, redact_json, secret_values
from llama_load.options.telemetry_flags import TelemetryOptions, read_telemetry
from llama_load.options.traffic_flags import read_traffic
from llama_load.targets.adapters import adapter_name
from llama_load.targets.apis import APIS, CHAT, OFFERED
from llama_load.targets.apis.api import GeneratingApi
from llama_load.targets.balance import BALANCES, ROUND_ROBIN
from llama_load.targets.body import BodyOptions
from llama_load.targets.servers import KINDS
from llama_load.targets.weighted_choice import ONE_FOR_ALL, WeightedChoice, parse_choice
from llama_load.users.hang_ups import FIRST_TOKEN, HangUps, parse_hang_ups
from llama_load.users.request_headers import Headers
from llama_load.users.session_tokens import TAKEN, SessionHeaders
from llama_load.wire.request import Timeouts
from llama_load.wire.tls import TlsOptions
from llama_load.workloads.prompt import Traffic

LONGEST_FAULT = 300  # characters
MOST_RETRIES = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """All flags as values. None means not given."""

    num_prompts: int | None
    max_concurrency: int | None
    conversations: int | None
    warmup: int
    dataset_path: str | None
    traffic: Traffic
    stream: bool
    sharegpt_output_len: int | None
    tokenizer: Path | None
    keep_long_prompts: bool
    seed: int
    renews_prompts: bool  # prompts are to be new to the servers' caches: neither --seed nor a flag of the cache was given
    load: LoadModel
    trace: Path | None
    speed: float
    models: WeightedChoice
    adapters: WeightedChoice
    session_headers: SessionHeaders
    backend: str | None
    balance: str
    connection_reuse: bool | None
    endpoint: str
    max_tokens: int | None
    temperature: float | None
    same_answer: bool  # prompts are sent alone and under load, to compare the answers
    json_schema: Path | None
    grammar: Path | None
    structured_output_ratio: float  # share of the requests with either
    ignore_eos: bool
    cache_prompt: bool | None
    bust_prefix_cache: bool
    kv_pool: int | None
    extra_body: dict[str, Any]
    headers: Headers
    tls: TlsOptions
    run_dir: Path | None
    label: str | None
    goals: Goals
    timeouts: Timeouts
    hang_ups: HangUps | None
    probe_rate_rps: float | None  # probes beside the load
    retries: int  # how often a request that was refused as overloaded is sent again
    wait_at_end_s: float
    client_priority: str  # one of CLIENT_PRIORITIES
    server_grace_s: float
    save_texts: bool
    telemetry: TelemetryOptions
    price_per_hour: float | None
    junit: Path | None
    upload: str | None
    lang: str
    no_report_html: bool
    metrics_address: tuple[str, int] | None  # where to serve /metrics
    given_flags: dict[str, Any] = field(default_factory=dict)  # see `_given`; for the manifest

    @property
    def output_len(self) -> int | None:
        """The requested answer length, from either of its two flags."""
        return self.traffic.output_len or self.sharegpt_output_len

    def body_options(self) -> BodyOptions:
        """The flags that apply to every request's body."""
        return BodyOptions(
            endpoint=self.endpoint,
            max_tokens=self.max_tokens,
            temperature=self.temperature,
            ignore_eos=self.ignore_eos,
            cache_prompt=self.cache_prompt,
            stream=self.stream,
            extra=self.extra_body,
        )


def read_options(namespace: Any) -> RunOptions:
    """Locust's parsed options as values. UsageError has all faults, one per line."""
    flags = FlagReader(namespace)
    faults = flags.faults
    keep_secret(secret_values(flags))
    text, lines, switch, number = flags.text, flags.lines, flags.switch, flags.number
    chosen, switched = flags.chosen, flags.switched
    tokenizer, run_dir, trace, junit = (text(name) for name in ("tokenizer", "run_dir", "trace", "junit"))
    schema, grammar = text("json_schema"), text("grammar")
    faults += _form_conflicts(flags, schema, grammar)
    faults += _body_conflicts(flags)
    given_seed = number("seed", int, -(2**63), most=2**63 - 1)
    seed = given_seed or 0
    load = read_load(flags, seed)
    options = RunOptions(
        num_prompts=number("num_prompts", int, 1, most=MOST_REQUESTS),
        max_concurrency=number("max_concurrency", int, 1, most=MOST_USERS),
        conversations=number("conversations", int, 1, most=MOST_USERS),
        warmup=number("warmup", int, 0, most=MOST_REQUESTS) or 0,
        dataset_path=text("dataset_path"),
        traffic=read_traffic(flags),
        stream=not switch("no_stream"),
        sharegpt_output_len=number("sharegpt_output_len", int, 1, most=MOST_TOKENS),
        tokenizer=Path(tokenizer) if tokenizer else None,
        keep_long_prompts=switch("keep_long_prompts"),
        seed=seed,
        renews_prompts=given_seed is None and switched("cache_prompt") is not True and not switch("bust_prefix_cache"),
        load=load,
        trace=Path(trace) if trace else None,
        speed=number("speed", float, 0, above=True) or 1.0,
        models=_choice(text("model"), "--model", seed, faults),
        adapters=_choice(text("adapter"), "--adapter", seed, faults, check=adapter_name),
        session_headers=_session_headers(flags),
        backend=chosen("backend", tuple(KINDS)),
        balance=chosen("balance", BALANCES) or ROUND_ROBIN,
        connection_reuse=switched("connection_reuse"),
        endpoint=_endpoint(text("endpoint"), faults),
        max_tokens=number("max_tokens", int, 1, most=MOST_TOKENS),
        temperature=0.0 if switch("same_answer") else number("temperature", float, 0),
        same_answer=switch("same_answer"),
        json_schema=Path(schema) if schema else None,
        grammar=Path(grammar) if grammar else None,
        structured_output_ratio=1.0 if (ratio := number("structured_output_ratio", float, 0, most=1)) is None else ratio,
        ignore_eos=switch("ignore_eos"),
        cache_prompt=False if switch("same_answer") else switched("cache_prompt"),
        kv_pool=number("kv_pool", int, 1),
        bust_prefix_cache=switch("bust_prefix_cache"),
        extra_body=_extra_body(text("extra_body"), faults),
        headers=read_headers(lines("header"), faults) + _authorization(text("api_key"), faults),
        tls=TlsOptions(_readable(text("ca_file"), faults), switch("insecure")),
        run_dir=Path(run_dir) if run_dir else None,
        label=text("label"),
        goals=read_goals(flags, load),
        timeouts=Timeouts(
            number("connect_timeout", float, 0, above=True, most=LONGEST_S),
            number("first_token_timeout", float, 0, above=True, most=LONGEST_S),
            number("token_timeout", float, 0, above=True, most=LONGEST_S),
            number("request_timeout", float, 0, above=True, most=LONGEST_S),
        ),
        hang_ups=_hang_ups(flags, seed),
        probe_rate_rps=_probe_rate(flags),
        retries=number("retry", int, 0, most=MOST_RETRIES),
        server_grace_s=number("server_grace", float, 0, most=LONGEST_S),
        wait_at_end_s=LONGEST_WAIT_S if chosen("at_end", (CANCEL, WAIT)) == WAIT else 0,
        client_priority=chosen("client_priority", CLIENT_PRIORITIES) or AUTO,
        save_texts=switch("save_texts"),
        telemetry=read_telemetry(flags),
        price_per_hour=number("price_per_hour", float, 0),
        junit=Path(junit) if junit else None,
        upload=text("upload"),
        lang=chosen("lang", LANGUAGES) or ENGLISH,
        no_report_html=switch("no_report_html"),
        metrics_address=_address(text("metrics_port"), faults),
        given_flags=_given(flags),
    )
    if faults:
        raise UsageError("\n".join(map(_short, dict.fromkeys(faults))))
    return options


def _form_conflicts(flags: FlagReader, schema: str | None, grammar: str | None) -> Iterator[str]:
    if schema and grammar:
        yield "--json-schema and --grammar conflict: an answer can follow only one"
    if not (schema or grammar) and flags.number("structured_output_ratio", float, 0, most=1) not in (None, 1.0):
        yield "--structured-output-ratio needs --json-schema or --grammar"
    if (schema or grammar) and flags.switch("ignore_eos"):
        yield "--ignore-eos conflicts with --json-schema and --grammar: an answer that follows one must be able to end"


def _hang_ups(flags: FlagReader, seed: int) -> HangUps | None:
    rate, after = flags.number("abort_rate", float, 0, most=1), flags.text("abort_after") or FIRST_TOKEN
    try:
        hang_ups = parse_hang_ups(rate or 0.0, after, seed)
    except ValueError as error:
        flags.faults.append(str(error))
        return None
    if not rate and after != FIRST_TOKEN:
        flags.faults.append("--abort-after needs --abort-rate, the share of requests that are given up")
    if rate and flags.switch("no_stream") and hang_ups.seconds is None:
        flags.faults.append("--abort-after counts tokens, which --no-stream does not show: give a time, such as '2 s'")
    return hang_ups if rate else None


def _probe_rate(flags: FlagReader) -> float | None:
    rate: float | None = flags.number("probe_rate", float, 0, most=MOST_PROBES_RPS)
    if not rate:
        return None
    if 1 / rate > LONGEST_PROBE_GAP_S:
        flags.faults.append(f"--probe-rate must be 0 or at least one an hour ({1 / LONGEST_PROBE_GAP_S:.4f}), got {rate:g}")
    if flags.switch("no_stream"):
        flags.faults.append("--probe-rate measures the time to the first token, which --no-stream does not show: leave one out")
    api = APIS.get(flags.text("endpoint") or CHAT.name)
    if api is not None and not isinstance(api, GeneratingApi):
        flags.faults.append(
            f"--probe-rate sends requests that generate a text, which --endpoint {api.name} does not: leave one out"
        )
    return rate


def _short(fault: str) -> str:
    """The message, with the middle of a long value left out."""
    return fault if len(fault) <= LONGEST_FAULT else f"{fault[: LONGEST_FAULT // 2]} … {fault[-LONGEST_FAULT // 2 :]}"


def _given(flags: FlagReader) -> dict[str, Any]:
    """Every flag that changes what is measured, as given, without secrets."""
    given: dict[str, Any] = {}
    for flag in FLAGS:
        if not flag.secret and not flag.role & (Role.NAME | Role.REPORT):
            text = flags.text(flag.dest) if flag.kind is Kind.JSON else None
            given[flag.dest] = flags.raw[flag.dest] if text is None else redact_json(text)
    return given


def _address(given: str | None, faults: list[str]) -> tuple[str, int] | None:
    """PORT or ADDRESS:PORT (an IPv6 address in brackets); without an address loopback."""
    if given is None:
        return None
    host, _, port = given.rpartition(":")
    if not (port.isdecimal() and port.isascii() and len(port) <= 5 and 0 < int(port) < 2**16):
        faults.append(f"--metrics-port must be a port or ADDRESS:PORT, such as 9646 or 0.0.0.0:9646, got {given!r}")
        return None
    return host.strip("[]") or LOOPBACK, int(port)


def _body_conflicts(flags: FlagReader) -> Iterator[str]:
    body = _extra_body(flags.text("extra_body"), [])
    for flag, name in (("model", "model"), ("adapter", "lora")):
        if flags.text(flag) is not None and name in body:
            yield f"--{flag} conflicts with {name!r} in --extra-body: give only one of them"


def _session_headers(flags: FlagReader) -> SessionHeaders:
    names = {flag: flags.text(flag) for flag in ("session_header", "replica_header")}
    given = {name.lower() for name, _ in read_headers(flags.lines("header"), [])}
    for flag, name in names.items():
        word = f"--{flag.replace('_', '-')}"
        if name is not None and not is_header_name(name):
            flags.faults.append(f"{word} must be the name of one header of the answers, such as X-Session-Id, got {name!r}")
        elif name is not None and flag == "session_header" and name.lower() in TAKEN | given:
            flags.faults.append(f"{word} cannot be {name}: requests have this header already")
    return SessionHeaders(names["session_header"], names["replica_header"])


def _choice(given: str | None, flag: str, seed: int, faults: list[str], *, check: Callable[[str], str] = str) -> WeightedChoice:
    try:
        return ONE_FOR_ALL if given is None else parse_choice(given, flag, seed, check=check)
    except ValueError as error:
        faults.append(str(error))
        return ONE_FOR_ALL


def _readable(given: str | None, faults: list[str]) -> Path | None:
    """A CA file that OpenSSL can use."""
    if given is None:
        return None
    path = Path(given)
    try:
        TlsOptions(path).context()
    except OSError as error:  # ssl.SSLError is one
        faults.append(f"--ca-file must be a readable PEM file of certificates, got {given!r} ({error.strerror or error})")
    return path


def _extra_body(given: str | None, faults: list[str]) -> dict[str, Any]:
    if given is None:
        return {}
    try:
        value = json.loads(given)
    except ValueError as error:
        faults.append(f"--extra-body must be a JSON object such as '{{\"top_k\": 1}}': {error}")
        return {}
    if not isinstance(value, dict):
        faults.append("--extra-body must be a JSON object such as '{\"top_k\": 1}', got another JSON value")
        return {}
    return value


def _authorization(api_key: str | None, faults: list[str]) -> Headers:
    if api_key is None:
        return ()
    if not (api_key.isascii() and api_key.isprintable()):
        faults.append("--api-key contains characters that cannot be sent in a header")
    return (("Authorization", f"Bearer {api_key}"),)


def _endpoint(given: str | None, faults: list[str]) -> str:
    named = {api.path: name for name, api in APIS.items()}
    name = named.get(given or CHAT.name, given or CHAT.name)
    if name not in OFFERED:
        faults.append(f"--endpoint must be one of {', '.join(OFFERED)}, got {given!r}")
    return name
