"""Our flags as one typed, checked object: texts become values only here. All faults are reported at
once."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from llama_load.ground.errors import UsageError
from llama_load.ground.languages import ENGLISH
from llama_load.loadgen.options.flag import Kind, Role
from llama_load.loadgen.options.flag_limits import (
    LONGEST_PROBE_GAP_S,
    LONGEST_WAIT_S,
    LOOPBACK,
    MOST_PROBES_RPS,
    MOST_REQUESTS,
    MOST_TOKENS,
    MOST_USERS,
)
from llama_load.loadgen.options.flag_reader import FlagReader
from llama_load.loadgen.options.flags import FLAGS
from llama_load.loadgen.options.goals import Goals, read_goals
from llama_load.loadgen.options.load_flags import read_load
from llama_load.loadgen.options.secret_flags import (
    is_header_name,
    read_headers,
    redact_json,
    secret_values,
)
from llama_load.loadgen.options.sections.result_section import AUTO, WAIT
from llama_load.loadgen.options.telemetry_flags import TelemetryOptions, read_telemetry
from llama_load.loadgen.options.traffic_flags import read_traffic
from llama_load.loadgen.schedule.segments import LONGEST_S, LoadModel
from llama_load.loadgen.users.hang_ups import FIRST_TOKEN, HangUps, parse_hang_ups
from llama_load.loadgen.users.session_tokens import TAKEN, SessionHeaders
from llama_load.loadgen.wire.request import Timeouts
from llama_load.loadgen.workloads.prompt_plan import Traffic
from llama_load.outside.bound_headers import Headers, bearer
from llama_load.outside.foreign_json import check_json
from llama_load.outside.foreign_text import keep_secret
from llama_load.servers.adapters import adapter_name
from llama_load.servers.apis import APIS, CHAT, OFFERED
from llama_load.servers.apis.api import GeneratingApi
from llama_load.servers.balance import ROUND_ROBIN
from llama_load.servers.body import BodyOptions
from llama_load.servers.tls import TlsOptions
from llama_load.servers.weighted_choice import ONE_FOR_ALL, WeightedChoice, parse_choice

LONGEST_FAULT = 300  # characters
MOST_RETRIES = 1000
MOST_GPUS = 100_000


def _seed(flags: FlagReader) -> int:
    return flags.number("seed", int, -(2**63), most=2**63 - 1) or 0


# APIs whose prompt may be a list of token ids.
TAKE_TOKEN_IDS = ("completions", "completion")


def _conflicts(flags: FlagReader) -> Iterator[str]:
    """A message for each pair of flags of bodies and answers that conflict."""
    schema = flags.text("json_schema")
    grammar = flags.text("grammar")
    is_structured = bool(schema or grammar)
    if schema and grammar:
        yield "--json-schema and --grammar conflict: an answer can follow only one"
    if not is_structured and _structured_ratio(flags) != 1:
        yield "--structured-output-ratio needs --json-schema or --grammar"
    if is_structured and flags.switch("ignore_eos"):
        yield (
            "--ignore-eos conflicts with --json-schema and --grammar: an answer that follows "
            "one must be able to end"
        )
    if flags.switch("prompt_token_ids"):
        if not flags.text("tokenizer"):
            yield "--prompt-token-ids needs --tokenizer, the tokenizer.json of the served model"
        if flags.text("endpoint") not in TAKE_TOKEN_IDS:
            yield (
                "--prompt-token-ids needs --endpoint completions or completion: other APIs take "
                "texts"
            )
    body = _extra_body(flags.text("extra_body"), [])
    for flag, name in (("model", "model"), ("adapter", "lora")):
        if flags.text(flag) is not None and name in body:
            yield f"--{flag} conflicts with {name!r} in --extra-body: give only one of them"


def _hang_ups(flags: FlagReader) -> HangUps | None:
    rate = flags.number("abort_rate", float, 0, most=1)
    after = flags.text("abort_after") or FIRST_TOKEN
    try:
        hang_ups = parse_hang_ups(rate or 0.0, after, _seed(flags))
    except ValueError as error:
        flags.faults.append(str(error))
        return None
    if not rate and after != FIRST_TOKEN:
        flags.faults.append(
            "--abort-after needs --abort-rate, the share of requests that are given up"
        )
    if rate and flags.switch("no_stream") and hang_ups.seconds is None:
        flags.faults.append(
            "--abort-after counts tokens, which --no-stream does not show: give a time, such as "
            "'2 s'"
        )
    return hang_ups if rate else None


def _probe_rate(flags: FlagReader) -> float | None:
    rate: float | None = flags.number("probe_rate", float, 0, most=MOST_PROBES_RPS)
    if not rate:
        return None
    if 1 / rate > LONGEST_PROBE_GAP_S:
        flags.faults.append(
            f"--probe-rate must be 0 or at least one an hour ({1 / LONGEST_PROBE_GAP_S:.4f}), "
            f"got {rate:g}"
        )
    if flags.switch("no_stream"):
        flags.faults.append(
            "--probe-rate measures the time to the first token, which --no-stream does not show: "
            "leave one out"
        )
    api = APIS.get(flags.text("endpoint") or CHAT.name)
    if api is not None and not isinstance(api, GeneratingApi):
        flags.faults.append(
            f"--probe-rate sends requests that generate a text, which --endpoint {api.name} does "
            "not: leave one out"
        )
    return rate


def _short_fault(fault: str) -> str:
    """The message, with the middle of a long value left out."""
    if len(fault) <= LONGEST_FAULT:
        return fault
    half = LONGEST_FAULT // 2
    return f"{fault[:half]} … {fault[-half:]}"


def _given(flags: FlagReader) -> dict[str, Any]:
    """Every flag that changes what is measured, as given, without secrets."""
    given: dict[str, Any] = {}
    for flag in FLAGS:
        if flag.secret or flag.role & (Role.NAME | Role.REPORT):
            continue
        text = flags.text(flag.dest) if flag.kind is Kind.JSON else None
        given[flag.dest] = flags.raw[flag.dest] if text is None else redact_json(text)
    return given


def _address(given: str | None, faults: list[str]) -> tuple[str, int] | None:
    """PORT or ADDRESS:PORT (an IPv6 address in brackets); without an address loopback."""
    if given is None:
        return None
    host, _, port = given.rpartition(":")
    is_number = port.isdecimal() and port.isascii() and len(port) <= 5
    if not is_number or not 0 < int(port) < 2**16:
        faults.append(
            "--metrics-port must be a port or ADDRESS:PORT, such as 9646 or 0.0.0.0:9646, got "
            f"{given!r}"
        )
        return None
    return host.strip("[]") or LOOPBACK, int(port)


def _session_headers(flags: FlagReader) -> SessionHeaders:
    names = {flag: flags.text(flag) for flag in ("session_header", "replica_header")}
    given = {name.lower() for name, _ in read_headers(flags.lines("header"), [])}
    for flag, name in names.items():
        word = f"--{flag.replace('_', '-')}"
        if name is not None and not is_header_name(name):
            flags.faults.append(
                f"{word} must be the name of one header of the answers, such as X-Session-Id, "
                f"got {name!r}"
            )
        elif (
            name is not None
            and flag == "session_header"
            and name.lower() in TAKEN | given
        ):
            flags.faults.append(
                f"{word} cannot be {name}: requests have this header already"
            )
    return SessionHeaders(names["session_header"], names["replica_header"])


def _choice(
    flags: FlagReader, name: str, *, check: Callable[[str], str] = str
) -> WeightedChoice:
    given = flags.text(name)
    if given is None:
        return ONE_FOR_ALL
    try:
        return parse_choice(given, f"--{name}", _seed(flags), check=check)
    except ValueError as error:
        flags.faults.append(str(error))
        return ONE_FOR_ALL


def _readable(given: str | None, faults: list[str]) -> Path | None:
    """A CA file that OpenSSL can use."""
    if given is None:
        return None
    path = Path(given)
    try:
        TlsOptions(path).context()
    except OSError as error:  # ssl.SSLError is one
        faults.append(
            f"--ca-file must be a readable PEM file of certificates, got {given!r} "
            f"({error.strerror or error})"
        )
    return path


def _extra_body(given: str | None, faults: list[str]) -> dict[str, Any]:
    if given is None:
        return {}
    try:
        check_json(given.encode())
        value = json.loads(given)
    except ValueError as error:
        faults.append(
            f"--extra-body must be a JSON object such as '{{\"top_k\": 1}}': {error}"
        )
        return {}
    if not isinstance(value, dict):
        faults.append(
            "--extra-body must be a JSON object such as '{\"top_k\": 1}', got another JSON value"
        )
        return {}
    return value


def _authorization(flags: FlagReader) -> Headers:
    api_key = flags.text("api_key")
    if api_key is None:
        return ()
    if not (api_key.isascii() and api_key.isprintable()):
        flags.faults.append(
            "--api-key contains characters that cannot be sent in a header"
        )
    return bearer(api_key)


def _endpoint(given: str | None, faults: list[str]) -> str:
    name = given or CHAT.name
    for api in APIS.values():
        if api.path == given:
            name = api.name
    if name not in OFFERED:
        faults.append(f"--endpoint must be one of {', '.join(OFFERED)}, got {given!r}")
    return name


def _output_len(flags: FlagReader) -> int | None:
    tokens: int | None = flags.number("output_len", int, 1, most=MOST_TOKENS)
    vllms_tokens: int | None = flags.number(
        "sharegpt_output_len", int, 1, most=MOST_TOKENS
    )
    return tokens or vllms_tokens


def _structured_ratio(flags: FlagReader) -> float:
    ratio = flags.number("structured_output_ratio", float, 0, most=1)
    return 1.0 if ratio is None else ratio


def _renews_prompts(flags: FlagReader) -> bool:
    repeats = flags.text("seed") or flags.switched("cache_prompt")
    return not repeats and not flags.switch("bust_prefix_cache")


def _timeouts(flags: FlagReader) -> Timeouts:
    def seconds(name: str) -> float | None:
        given: float | None = flags.number(name, float, 0, above=True, most=LONGEST_S)
        return given

    return Timeouts(
        seconds("connect_timeout"),
        seconds("first_token_timeout"),
        seconds("token_timeout"),
        seconds("request_timeout"),
    )


def _read(read: Callable[[FlagReader], Any]) -> Any:
    """A field of `RunOptions`, and what reads its value."""
    return field(metadata={"read": lambda flags, _: read(flags)})


def _of_flag(read: Callable[[FlagReader, str], Any]) -> Any:
    """A field that has the name of its flag."""
    return field(metadata={"read": read})


def _number(kind: type[int] | type[float], least: float, **bounds: Any) -> Any:
    """The same for a number."""
    return _of_flag(lambda flags, name: flags.number(name, kind, least, **bounds))


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """All flags as values, each with what reads it. None means not given."""

    seed: int
    load: LoadModel
    goals: Goals
    num_prompts: int | None = _number(int, 1, most=MOST_REQUESTS)
    max_concurrency: int | None = _number(int, 1, most=MOST_USERS)
    conversations: int | None = _number(int, 1, most=MOST_USERS)
    warmup: int = _read(
        lambda flags: flags.number("warmup", int, 0, most=MOST_REQUESTS) or 0
    )
    dataset_path: str | None = _of_flag(FlagReader.text)
    traffic: Traffic = _read(read_traffic)
    stream: bool = _read(lambda flags: not flags.switch("no_stream"))
    # The answer length to ask for, from either of its two flags.
    output_len: int | None = _read(_output_len)
    tokenizer: Path | None = _of_flag(FlagReader.path)
    prompt_token_ids: bool = _of_flag(FlagReader.switch)
    keep_long_prompts: bool = _of_flag(FlagReader.switch)
    # Prompts are to be new to the servers' caches: neither --seed nor a flag of the cache was
    # given.
    renews_prompts: bool = _read(_renews_prompts)
    trace: Path | None = _of_flag(FlagReader.path)
    trace_unit: str | None = _of_flag(FlagReader.chosen)
    models: WeightedChoice = _read(lambda flags: _choice(flags, "model"))
    adapters: WeightedChoice = _read(
        lambda flags: _choice(flags, "adapter", check=adapter_name)
    )
    session_headers: SessionHeaders = _read(_session_headers)
    backend: str | None = _of_flag(FlagReader.chosen)
    balance: str = _read(lambda flags: flags.chosen("balance") or ROUND_ROBIN)
    connection_reuse: bool | None = _of_flag(FlagReader.switched)
    endpoint: str = _read(lambda flags: _endpoint(flags.text("endpoint"), flags.faults))
    max_tokens: int | None = _number(int, 1, most=MOST_TOKENS)
    temperature: float | None = _read(
        lambda flags: (
            0.0
            if flags.switch("same_answer")
            else flags.number("temperature", float, 0)
        )
    )
    # prompts are sent alone and under load, to compare the answers
    same_answer: bool = _of_flag(FlagReader.switch)
    json_schema: Path | None = _of_flag(FlagReader.path)
    grammar: Path | None = _of_flag(FlagReader.path)
    structured_output_ratio: float = _read(
        _structured_ratio
    )  # share of the requests with either
    ignore_eos: bool = _of_flag(FlagReader.switch)
    cache_prompt: bool | None = _read(
        lambda flags: (
            False if flags.switch("same_answer") else flags.switched("cache_prompt")
        )
    )
    bust_prefix_cache: bool = _of_flag(FlagReader.switch)
    reset_prefix_cache: bool = _of_flag(FlagReader.switch)
    profile_server: bool = _of_flag(FlagReader.switch)
    kv_pool: int | None = _number(int, 1)
    extra_body: dict[str, Any] = _read(
        lambda flags: _extra_body(flags.text("extra_body"), flags.faults)
    )
    headers: Headers = _read(
        lambda flags: (
            read_headers(flags.lines("header"), flags.faults) + _authorization(flags)
        )
    )
    tls: TlsOptions = _read(
        lambda flags: TlsOptions(
            _readable(flags.text("ca_file"), flags.faults), flags.switch("insecure")
        )
    )
    run_dir: Path | None = _of_flag(FlagReader.path)
    label: str | None = _of_flag(FlagReader.text)
    timeouts: Timeouts = _read(_timeouts)
    hang_ups: HangUps | None = _read(_hang_ups)
    probe_rate_rps: float | None = _read(_probe_rate)  # probes beside the load
    # How often a request that was refused as overloaded is sent again.
    retries: int = _read(lambda flags: flags.number("retry", int, 0, most=MOST_RETRIES))
    wait_at_end_s: float = _read(
        lambda flags: LONGEST_WAIT_S if flags.chosen("at_end") == WAIT else 0
    )
    # one of CLIENT_PRIORITIES
    client_priority: str = _read(lambda flags: flags.chosen("client_priority") or AUTO)
    shared_machine: bool = _of_flag(FlagReader.switch)
    server_grace_s: float = _read(
        lambda flags: flags.number("server_grace", float, 0, most=LONGEST_S)
    )
    save_texts: bool = _of_flag(FlagReader.switch)
    telemetry: TelemetryOptions = _read(read_telemetry)
    gpus: int | None = _number(int, 1, most=MOST_GPUS)
    price_per_hour: float | None = _number(float, 0)
    junit: Path | None = _of_flag(FlagReader.path)
    upload: str | None = _of_flag(FlagReader.text)
    lang: str = _read(lambda flags: flags.chosen("lang") or ENGLISH)
    no_report_html: bool = _of_flag(FlagReader.switch)
    block: bool = _of_flag(FlagReader.switch)
    # Where to serve /metrics.
    metrics_address: tuple[str, int] | None = _read(
        lambda flags: _address(flags.text("metrics_port"), flags.faults)
    )
    web_token: str | None = _of_flag(FlagReader.text)
    given_flags: dict[str, Any] = _read(_given)  # for the manifest

    @property
    def has_own_data(self) -> bool:
        """Whether prompts are made of the user's data, and not of llama-load's."""
        traffic = self.traffic
        return bool(self.dataset_path or traffic.document or traffic.images)

    def body_options(self) -> BodyOptions:
        """The flags that apply to every request's body."""
        ids_of = str(self.tokenizer) if self.prompt_token_ids else None
        return BodyOptions(
            token_ids_of=ids_of,
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
    keep_secret(secret_values(flags))
    flags.faults += _conflicts(flags)
    seed = _seed(flags)
    load = read_load(flags, seed)
    with_reader = [one for one in fields(RunOptions) if one.metadata]
    values = {one.name: one.metadata["read"](flags, one.name) for one in with_reader}
    options = RunOptions(seed=seed, load=load, goals=read_goals(flags, load), **values)
    if flags.faults:
        raise UsageError("\n".join(map(_short_fault, dict.fromkeys(flags.faults))))
    return options
