"""A `vllm bench serve` command as a run of llama-load: the same server, prompts and load.

Options as of `vllm bench serve --help=all`. An option without an equal is named, never ignored.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import PurePath

from llama_load.errors import UsageError
from llama_load.foreign_json import decode_foreign

PROGRAM = ("vllm", "bench", "serve")
# Defaults of vLLM where ours differ.
DEFAULT_URL = "http://127.0.0.1:8000"
DEFAULT_REQUESTS = "1000"
DEFAULT_DATA_SET = "random"
DEFAULT_BACKEND = "openai"
INFINITE = "inf"

# Its data sets, and our locustfiles.
DATA_SETS = {
    "random": "synthetic",
    "prefix_repetition": "synthetic",
    "sharegpt": "sharegpt_chat",
    "custom": "custom",
}
BACKENDS = {
    "vllm": "completions",
    "openai": "completions",
    "openai-chat": "chat",
    "openai-responses": "responses",
}
# Options with one value: ours of the same meaning.
NAMES = {
    "--model": "--model",
    "--served-model-name": "--model",
    "--tokenizer": "--tokenizer",
    "--dataset-path": "--dataset-path",
    "--num-prompts": "--num-prompts",
    "--burstiness": "--burstiness",
    "--seed": "--seed",
    "--temperature": "--temperature",
    "--label": "--label",
    "--percentile-metrics": "--percentile-metrics",
    "--metric-percentiles": "--metric-percentiles",
    "--ramp-up-strategy": "--ramp",
    "--ramp-up-start-rps": "--ramp-start-rps",
    "--sharegpt-output-len": "--sharegpt-output-len",
    "--custom-output-len": "--output-len",
    "--input-len": "--input-len",
    "--output-len": "--output-len",
    "--random-input-len": "--input-len",
    "--random-output-len": "--output-len",
    "--random-range-ratio": "--range-ratio",
    "--random-prefix-len": "--prefix-len",
    "--prefix-repetition-prefix-len": "--prefix-len",
    "--prefix-repetition-suffix-len": "--input-len",
    "--prefix-repetition-num-prefixes": "--num-prefixes",
    "--prefix-repetition-output-len": "--output-len",
    "--probe-request-rate": "--probe-rate",
}
SWITCHES = {"--ignore-eos": "--ignore-eos", "--insecure": "--insecure"}
# Options with one value that `_Reader` uses.
USED = (
    "--base-url",
    "--host",
    "--port",
    "--backend",
    "--endpoint-type",
    "--endpoint",
    "--dataset-name",
    "--request-rate",
    "--max-concurrency",
    "--ramp-up-end-rps",
    "--num-warmups",
    "--extra-body",
)
# Fields of the body.
SAMPLING = (
    "--top-p",
    "--top-k",
    "--min-p",
    "--frequency-penalty",
    "--presence-penalty",
    "--repetition-penalty",
)
# They change no request: every run writes its results into a folder. The values that each takes.
WITHOUT_EFFECT = {
    "--save-result": 0,
    "--save-detailed": 0,
    "--append-result": 0,
    "--disable-tqdm": 0,
    "--trust-remote-code": 0,
    "--plot-timeline": 0,
    "--plot-dataset-stats": 0,
    "--result-dir": 1,
    "--result-filename": 1,
    "--ready-check-timeout-sec": 1,
    "--request-id-prefix": 1,
    "--tokenizer-mode": 1,
}


@dataclass(slots=True)
class _Options:
    """What the command says. `values`: by vLLM's name; `lists`: options with several values."""

    values: dict[str, str] = field(default_factory=dict)
    lists: dict[str, list[str]] = field(default_factory=dict)
    switches: list[str] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)


def is_vllm_command(words: Sequence[str]) -> bool:
    """Whether these words begin with `vllm bench serve`, whatever the program's folder."""
    if not words:
        return False
    return (PurePath(words[0]).name, *words[1:3]) == PROGRAM


def run_words(words: Sequence[str]) -> tuple[str | None, str, list[str]]:
    """The server's URL (None: that of vLLM's default), the locustfile's name and the flags of the
    same run.

    UsageError: an option has no equal here, or lacks its value; all of them in one sentence.
    """
    options = _options_of_words(words[len(PROGRAM) :])
    values = options.values
    faults = list(options.unknown)

    data_set = values.get("--dataset-name", DEFAULT_DATA_SET)
    workload = DATA_SETS.get(data_set, "")
    if not workload:
        faults.append(
            f"--dataset-name {data_set} (there are {', '.join(DATA_SETS)}; "
            "'llama-load path' lists the locustfiles)"
        )
    endpoint = _endpoint(values)
    if not endpoint:
        backend = values.get("--backend", DEFAULT_BACKEND)
        faults.append(f"--backend {backend} (there are {', '.join(BACKENDS)})")
    if faults:
        raise UsageError(
            f"vllm bench serve has options without an equal here: {'; '.join(faults)}; "
            "leave them out"
        )

    flags = ["--endpoint", endpoint, *_load_flags(values)]
    for name, value in values.items():
        if name in NAMES:
            flags += [_name_for(name, workload), value]
    if "--num-prompts" not in values:
        flags += ["--num-prompts", DEFAULT_REQUESTS]
    if int(values.get("--num-warmups") or 0):
        flags += ["--warmup", values["--num-warmups"]]
    flags += [SWITCHES[name] for name in options.switches]
    flags += _body(values)
    for header in options.lists.get("--header", []):
        name, _, value = header.partition("=")
        flags += ["--header", f"{name}: {value}"]
    if "--goodput" in options.lists:
        flags += ["--goodput", " ".join(options.lists["--goodput"])]
    return _url(values), workload, flags


def _options_of_words(words: Sequence[str]) -> _Options:
    """The options by name. UsageError: one has no value, or a number is none."""
    options = _Options()
    left = _separated(words)
    while left:
        name = left.pop(0)
        if name in SWITCHES:
            options.switches.append(name)
        elif name in WITHOUT_EFFECT:
            del left[: WITHOUT_EFFECT[name]]
        elif name in ("--header", "--goodput"):
            options.lists[name] = _taken(left)
        elif name == "--metadata":
            _taken(left)
        elif name in NAMES or name in USED or name in SAMPLING:
            if not left:
                raise UsageError(f"{name} of vllm bench serve has no value")
            options.values[name] = left.pop(0)
        else:
            options.unknown.append(name)
            _taken(left)
    _check_numbers(options.values)
    return options


def _check_numbers(values: dict[str, str]) -> None:
    for name in ("--num-prompts", "--max-concurrency", "--num-warmups", "--port"):
        text = values.get(name, "0")
        if not (text.isascii() and text.isdigit()):
            raise UsageError(
                f"{name} of vllm bench serve must be a whole number, got {text!r}"
            )


def _separated(words: Sequence[str]) -> list[str]:
    """`--name=value` as two words; names as vLLM writes them, with dashes."""
    separated = []
    for word in words:
        if not word.startswith("--"):
            separated.append(word)
            continue
        name, equals, value = word.partition("=")
        separated.append(name.replace("_", "-"))
        if equals:
            separated.append(value)
    return separated


def _taken(left: list[str]) -> list[str]:
    """The values of an option that takes several, removed from what is left."""
    taken = []
    while left and not left[0].startswith("--"):
        taken.append(left.pop(0))
    return taken


def _url(values: dict[str, str]) -> str | None:
    if "--base-url" in values:
        return values["--base-url"]
    if "--host" not in values and "--port" not in values:
        return None
    host = values.get("--host", "127.0.0.1")
    return f"http://{host}:{values.get('--port', '8000')}"


def _endpoint(values: dict[str, str]) -> str:
    """Our name of the API; empty where there is none."""
    path = values.get("--endpoint", "")
    if path.endswith("/chat/completions"):
        return "chat"
    backend = values.get("--backend") or values.get("--endpoint-type")
    return BACKENDS.get(backend or DEFAULT_BACKEND, "")


def _load_flags(values: dict[str, str]) -> list[str]:
    """The flags of the load.

    Without a rate vLLM sends all requests at once, or as many as --max-concurrency allows: a closed
    loop with that many users.
    """
    rate = values.get("--ramp-up-end-rps") or values.get("--request-rate", INFINITE)
    most = values.get("--max-concurrency")
    if rate == INFINITE:
        return ["-u", most or values.get("--num-prompts", DEFAULT_REQUESTS)]
    flags = ["--request-rate", rate]
    if most is not None:
        flags += ["--max-concurrency", most]
    return flags


def _name_for(name: str, workload: str) -> str:
    """Our name of an option. --output-len of ShareGPT has a name of its own here."""
    if name == "--output-len" and workload == "sharegpt_chat":
        return "--sharegpt-output-len"
    return NAMES[name]


def _body(values: dict[str, str]) -> list[str]:
    """Sampling and --extra-body as one JSON object. UsageError: it is none."""
    given = values.get("--extra-body")
    try:
        body = decode_foreign(given.encode(), dict) if given else {}
        for name in SAMPLING:
            if name in values:
                body[name.lstrip("-").replace("-", "_")] = float(values[name])
    except (ValueError, TypeError):
        raise UsageError(
            "--extra-body of vllm bench serve must be a JSON object, and sampling options numbers"
        ) from None
    return ["--extra-body", json.dumps(body)] if body else []
