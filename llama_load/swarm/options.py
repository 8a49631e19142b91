"""Our command line flags: declared to Locust, and read back as one typed, checked object.

Every flag is declared as text, because that is what environment variables and the web UI deliver, too; `read` is the
one place where texts become values. It collects all faults and reports them at once.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from llama_load.errors import UsageError
from llama_load.metrics.slo import parse_slo
from llama_load.metrics.thresholds import DEFAULT, parse_threshold
from llama_load.reports.block import SECTIONS
from llama_load.reports.result_json import threshold_keys
from llama_load.targets.balance import BALANCES, ROUND_ROBIN
from llama_load.targets.body import CHAT, ENDPOINTS, PATHS
from llama_load.targets.target import BACKENDS
from llama_load.wire.request import Timeouts
from llama_load.wire.tls import TlsOptions

# As `vllm bench serve`: what a headless run without --num-prompts and without -t does.
DEFAULT_NUM_PROMPTS = 1000
CANCEL, WAIT = "cancel", "wait"
# With --at-end wait: what takes longer than the longest answer that anybody waits for is cut all the same.
LONGEST_WAIT_S = 900.0


@dataclass(frozen=True, slots=True)
class Flag:
    """One flag: name on the command line, default as text, help; `choices` limits it, `switch` takes no value."""

    name: str
    default: str
    help: str
    choices: tuple[str, ...] | None = None
    switch: bool = False
    secret: bool = False
    repeated: bool = False

    @property
    def dest(self) -> str:
        """Its name on the parsed options."""
        return self.name.removeprefix("--").replace("-", "_")


FLAGS = (
    Flag("--num-prompts", "", f"measured requests; the run ends after them (headless without -t: {DEFAULT_NUM_PROMPTS})"),
    Flag("--max-concurrency", "", "requests in flight at most; the same as -u"),
    Flag("--warmup", "1", "requests before the measurement, with prompts of their own"),
    Flag("--dataset-path", "", "the workload's data: a ShareGPT JSON file (default: the sample in datasets/)"),
    Flag("--sharegpt-output-len", "", "ask for answers of so many tokens instead of the recorded answer's length"),
    Flag("--tokenizer", "", "a tokenizer.json (or its folder) that counts prompt tokens; default: the server, else an estimate"),
    Flag("--keep-long-prompts", "", "send prompts that do not fit a slot, instead of replacing them by others", switch=True),
    Flag("--seed", "0", "seed of everything random: the same seed samples the same prompts"),
    Flag("--model", "", "model name for the requests (default: the first that the server lists)"),
    Flag("--backend", "", "what the server is, if it is not recognised", choices=("", *BACKENDS)),
    Flag("--balance", ROUND_ROBIN, "who of several servers in --host gets the next request", choices=BALANCES),
    Flag(
        "--connection-reuse",
        "",
        "requests share connections (default: on, but off for llama-server, which closes them)",
        ("", "on", "off"),
    ),
    Flag("--endpoint", CHAT, "chat (/v1/chat/completions) or completions (/v1/completions)"),
    Flag("--max-tokens", "", "length of every answer in tokens (default: as the workload says)"),
    Flag("--temperature", "", "sampling temperature (default: the server's)"),
    Flag("--ignore-eos", "", "answers run to their full length, whatever the model says", switch=True),
    Flag("--cache-prompt", "", "llama-server's prompt cache for our requests (default: as the server does)", ("", "on", "off")),
    Flag(
        "--kv-pool",
        "",
        "tokens of the KV pool that llama-server's slots share (its -c, if started with --kv-unified or without -np)",
    ),
    Flag("--bust-prefix-cache", "", "begin every prompt with random text, so that no cache knows it", switch=True),
    Flag("--extra-body", "", "a JSON object that is merged into every request body"),
    Flag("--header", "", "a header 'Name: value' for every request; may be given several times", repeated=True, secret=True),
    Flag("--api-key", "", "key for 'Authorization: Bearer'; better in the environment as LLAMA_LOAD_API_KEY", secret=True),
    Flag("--ca-file", "", "a PEM file with the authorities to trust for https:// (default: the system's)"),
    Flag("--insecure", "", "trust any certificate for https://", switch=True),
    Flag("--run-dir", "", "folder for this run's results (default: runs/<time>-<label or workload>)"),
    Flag("--label", "", "a name for this run in reports and comparisons"),
    Flag("--goodput", "", "objectives in ms, such as 'ttft:500 tpot:50': counts requests that meet them all", repeated=True),
    Flag("--percentile-metrics", "ttft,tpot,itl", f"sections of the block, out of {','.join(SECTIONS)}"),
    Flag("--metric-percentiles", "99", "percentiles to report, such as 50,90,99.9"),
    Flag(
        "--fail-if",
        "",
        f"exit with 1 if this holds, such as 'p99_ttft_ms>500'; {DEFAULT} always does unless changed",
        repeated=True,
    ),
    Flag(
        "--at-end",
        CANCEL,
        "what is in flight when -t, Ctrl-C or a stop ends the run: cancel it, or wait for it",
        choices=(CANCEL, WAIT),
    ),
    Flag("--connect-timeout", "10", "seconds to wait for a connection"),
    Flag("--first-token-timeout", "600", "seconds to wait for the first token"),
    Flag("--token-timeout", "120", "seconds to wait between tokens"),
    Flag("--save-texts", "", "keep prompts and answers in the results (they are only hashed otherwise)", switch=True),
)

_SECRET_FLAGS = {flag.name for flag in FLAGS if flag.secret}


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadOptions:
    """All flags as values. None means not given."""

    num_prompts: int | None
    max_concurrency: int | None
    warmup: int
    dataset_path: Path | None
    sharegpt_output_len: int | None
    tokenizer: Path | None
    keep_long_prompts: bool
    seed: int
    model: str | None
    backend: str | None
    balance: str
    connection_reuse: bool | None
    endpoint: str
    max_tokens: int | None
    temperature: float | None
    ignore_eos: bool
    cache_prompt: bool | None
    bust_prefix_cache: bool
    kv_pool: int | None
    extra_body: dict[str, Any]
    headers: tuple[tuple[str, str], ...]
    tls: TlsOptions
    run_dir: Path | None
    label: str | None
    goodput: list[str]
    percentile_metrics: list[str]
    percentiles: list[float]
    fail_if: list[str]
    timeouts: Timeouts
    wait_at_end_s: float
    save_texts: bool
    told: dict[str, Any] = field(default_factory=dict)  # every flag as given, without secrets, for the manifest


def declare(parser: Any) -> None:
    """Add our flags to Locust's parser. (Not in an argument group: the web UI does not see into those.)"""
    for flag in FLAGS:
        settings: dict[str, Any] = {"help": flag.help, "env_var": f"LLAMA_LOAD_{flag.dest.upper()}"}
        if flag.switch:
            settings |= {"action": "store_true", "default": False}
        else:
            settings |= {"type": str, "default": flag.default, "metavar": "<text>"}
            if flag.choices:
                settings["choices"] = list(flag.choices)
                del settings["metavar"]
            if flag.repeated:
                settings |= {"action": "append", "default": None}
        parser.add_argument(flag.name, is_secret=flag.secret, **settings)


def read(namespace: Any) -> LoadOptions:
    """Locust's parsed options as values. Raises UsageError with all faults, one a line."""
    faults: list[str] = []
    raw = {flag.dest: getattr(namespace, flag.dest, flag.default) for flag in FLAGS}

    def text(name: str) -> str | None:
        value = raw[name]
        return str(value).strip() or None if value is not None else None

    def lines(name: str, *, words: bool = False) -> list[str]:
        value = raw[name] or []
        parts = value if isinstance(value, list | tuple) else str(value).splitlines()
        return [word for part in parts for word in (part.split() if words else [part.strip()]) if word]

    def switch(name: str) -> bool:
        return raw[name] is True or str(raw[name]).lower() in ("true", "1", "on", "yes")

    def number(name: str, kind: type[int] | type[float], least: float, *, above: bool = False) -> Any:
        given = text(name)
        if given is None:
            return None
        flag = "--" + name.replace("_", "-")
        wanted = "a whole number" if kind is int else "a number"
        try:
            value = kind(given)
            if value > least or (value == least and not above):
                return value
        except ValueError:
            pass
        faults.append(f"{flag} must be {wanted} {'above' if above else 'of at least'} {least:g}, got {given!r}")
        return None

    def checked(name: str, parse: Callable[[str], object], *, words: bool = False) -> list[str]:
        values = lines(name, words=words)
        for value in values:
            try:
                parse(value)
            except ValueError as error:
                faults.append(str(error))
        return values

    def chosen(name: str, choices: tuple[str, ...]) -> str | None:
        given = text(name)
        if given is not None and given not in choices:
            faults.append(f"--{name.replace('_', '-')} must be one of {', '.join(c for c in choices if c)}, got {given!r}")
        return given

    dataset, tokenizer, run_dir = text("dataset_path"), text("tokenizer"), text("run_dir")

    def switched(name: str) -> bool | None:
        given = chosen(name, ("on", "off"))
        return None if given is None else given == "on"

    options = LoadOptions(
        num_prompts=number("num_prompts", int, 1),
        max_concurrency=number("max_concurrency", int, 1),
        warmup=number("warmup", int, 0) or 0,
        dataset_path=Path(dataset) if dataset else None,
        sharegpt_output_len=number("sharegpt_output_len", int, 1),
        tokenizer=Path(tokenizer) if tokenizer else None,
        keep_long_prompts=switch("keep_long_prompts"),
        seed=number("seed", int, -(2**63)) or 0,
        model=text("model"),
        backend=chosen("backend", BACKENDS),
        balance=chosen("balance", BALANCES) or ROUND_ROBIN,
        connection_reuse=switched("connection_reuse"),
        endpoint=_endpoint(text("endpoint"), faults),
        max_tokens=number("max_tokens", int, 1),
        temperature=number("temperature", float, 0),
        ignore_eos=switch("ignore_eos"),
        cache_prompt=switched("cache_prompt"),
        kv_pool=number("kv_pool", int, 1),
        bust_prefix_cache=switch("bust_prefix_cache"),
        extra_body=_extra_body(text("extra_body"), faults),
        headers=_headers(lines("header"), text("api_key"), faults),
        tls=TlsOptions(_readable(text("ca_file"), faults), switch("insecure")),
        run_dir=Path(run_dir) if run_dir else None,
        label=text("label"),
        goodput=checked("goodput", parse_slo, words=True),
        percentile_metrics=_sections(text("percentile_metrics") or "", faults),
        percentiles=_percentiles(text("metric_percentiles") or "", faults),
        fail_if=_thresholds(checked("fail_if", parse_threshold), _percentiles(text("metric_percentiles") or "", []), faults),
        timeouts=Timeouts(
            number("connect_timeout", float, 0, above=True),
            number("first_token_timeout", float, 0, above=True),
            number("token_timeout", float, 0, above=True),
        ),
        wait_at_end_s=LONGEST_WAIT_S if chosen("at_end", (CANCEL, WAIT)) == WAIT else 0,
        save_texts=switch("save_texts"),
        told={flag.dest: raw[flag.dest] for flag in FLAGS if not flag.secret},
    )
    if faults:
        raise UsageError("\n".join(faults))
    return options


def without_secrets(command: list[str]) -> list[str]:
    """A command line whose keys and headers are replaced by asterisks."""
    shown, hide = [], False
    for word in command:
        name, equals, _ = word.partition("=")
        # argparse takes any beginning of a flag for the flag.
        secret = len(name) > len("--") and any(flag.startswith(name) for flag in _SECRET_FLAGS)
        if hide:
            shown.append("***")
            hide = False
        elif secret and equals:
            shown.append(f"{name}=***")
        else:
            hide = secret
            shown.append(word)
    return shown


def _readable(given: str | None, faults: list[str]) -> Path | None:
    """A file of authorities that OpenSSL can use."""
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
        faults.append(f"--extra-body must be a JSON object such as '{{\"top_k\": 1}}', got {given!r} ({error})")
        return {}
    if not isinstance(value, dict):
        faults.append(f"--extra-body must be a JSON object such as '{{\"top_k\": 1}}', got {given!r}")
        return {}
    return value


def _headers(given: list[str], api_key: str | None, faults: list[str]) -> tuple[tuple[str, str], ...]:
    headers = []
    for line in given:
        separator = min((sign for sign in ":=" if sign in line), key=line.index, default=":")  # NAME=VALUE is vLLM's way
        name, found, value = line.partition(separator)
        sendable = line.isascii() and line.isprintable()
        if not found or not name.strip() or " " in name.strip() or not sendable:
            faults.append(f"--header must look like 'Name: value', in ASCII, got {line!r}")
        headers.append((name.strip(), value.strip()))
    if api_key is not None:
        if not (api_key.isascii() and api_key.isprintable()):
            faults.append("--api-key holds characters that cannot be sent in a header")
        headers.append(("Authorization", f"Bearer {api_key}"))
    return tuple(headers)


def _endpoint(given: str | None, faults: list[str]) -> str:
    named = {path: name for name, path in PATHS.items()}
    name = named.get(given or CHAT, given or CHAT)
    if name not in ENDPOINTS:
        faults.append(f"--endpoint must be one of {', '.join(ENDPOINTS)}, got {given!r}")
    return name


def _thresholds(given: list[str], percentiles: list[float], faults: list[str]) -> list[str]:
    """The thresholds with the default one, unless it was given in another form; keys that no result has are faults."""
    keys = []
    for text in given:
        try:
            keys.append(parse_threshold(text).key)
        except ValueError:
            continue  # told already
        if keys[-1] not in threshold_keys(percentiles):
            faults.append(f"--fail-if {text!r}: no result has a key {keys[-1]!r} (percentiles other than 99: --metric-percentiles)")
    default = parse_threshold(DEFAULT)
    return given if default.key in keys else [*given, DEFAULT]


def _sections(given: str, faults: list[str]) -> list[str]:
    names = [name.strip() for name in given.split(",") if name.strip()]
    for name in names:
        if name not in SECTIONS:
            faults.append(f"--percentile-metrics knows {', '.join(SECTIONS)}, got {name!r}")
    return names


def _percentiles(given: str, faults: list[str]) -> list[float]:
    values = []
    for part in given.split(","):
        try:
            value = float(part)
        except ValueError:
            value = -1.0
        if 0 < value < 100:
            values.append(value)
        else:
            faults.append(f"--metric-percentiles takes numbers between 0 and 100, such as 50,99, got {part.strip()!r}")
    return values
