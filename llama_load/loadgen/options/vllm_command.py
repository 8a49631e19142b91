"""A `vllm bench serve` command as a run of llama-load: the same server, prompts and load.

An option without an equal is named with what to do, never ignored where it changes the load, and
never completed from its beginning.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePath
from typing import Any

from llama_load.ground.errors import UsageError, did_you_mean
from llama_load.loadgen.options.flags import FLAGS
from llama_load.loadgen.options.vllm_options import (
    BACKENDS,
    DATA_SETS,
    EARLIER,
    EQUAL,
    NO_VALUE,
    ONE_VALUE,
    OPTIONS,
    OTHER_DATA_SETS,
    REFUSED,
    SAMPLING,
    SWITCHES,
    VERSION,
)
from llama_load.outside.foreign_json import decode_foreign
from llama_load.run_folder.vocabulary.definitions import SECTION_KEYS
from llama_load.servers.apis import APIS

PROGRAM = ("vllm", "bench", "serve")
# Its name before 0.10, a script that people keep.
SCRIPT = "benchmark_serving.py"
# Parts of the names of programs whose `bench serve` it is: FastDeploy has taken vLLM's over.
BENCHED = ("vllm", "fastdeploy")
# Defaults of vLLM where ours differ.
DEFAULT_HOST = "127.0.0.1"
DEFAULT_PORT = "8000"
DEFAULT_REQUESTS = "1000"
DEFAULT_DATA_SET = "random"
DEFAULT_BACKEND = "openai"
INFINITE = "inf"
# Of data sets, where they are not ours; --custom-output-len -1: those of the file.
DEFAULTS: dict[str, dict[str, str]] = {
    "random": {},
    "sharegpt": {},
    "prefix_repetition": {
        "--prefix-repetition-prefix-len": "256",
        "--prefix-repetition-suffix-len": "256",
        "--prefix-repetition-num-prefixes": "10",
    },
    "custom": {"--custom-output-len": "256"},
    "spec_bench": {"--spec-bench-output-len": "256"},
    "random-rerank": {"--random-input-len": "1024"},
}
LENGTHS_OF_THE_FILE = "-1"
# --input-len and --output-len of all data sets: the options that they stand for.
INPUT_LENGTHS = {"random": "--random-input-len", "random-rerank": "--random-input-len"}
OUTPUT_LENGTHS = {
    "random": "--random-output-len",
    "prefix_repetition": "--prefix-repetition-output-len",
    "sharegpt": "--sharegpt-output-len",
    "custom": "--custom-output-len",
    "spec_bench": "--spec-bench-output-len",
}
# Options that have no effect, by data set and whether it is embedded.
_LENGTHS = ("--random-output-len", "--random-prefix-len")
NOT_USED: defaultdict[tuple[str, bool], tuple[str, ...]] = defaultdict(
    tuple,
    {
        ("random", False): ("--random-batch-size",),
        ("random", True): _LENGTHS,
        ("random-rerank", False): _LENGTHS,
    },
)
# Answers to random words have the length that was asked for.
ENDLESS = ("random",)
WITHOUT_FILE = ("random", "prefix_repetition", "random-rerank")
WHOLE_NUMBERS = ("--num-prompts", "--max-concurrency", "--num-warmups", "--port")


@dataclass(frozen=True, slots=True)
class OurRun:
    """The same run here. `names_server`: the command says at which URL it is, else that is vLLM's
    default; `notes`: what differs without changing the load."""

    url: str
    names_server: bool
    workload: str
    flags: list[str]
    notes: list[str]


@dataclass(slots=True)
class _Given:
    """What the command says. `values`: by vLLM's name; `lists`: options with several values."""

    values: dict[str, str] = field(default_factory=dict)
    lists: dict[str, list[str]] = field(default_factory=dict)
    switches: list[str] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)

    @property
    def data_set(self) -> str:
        return self.values.get("--dataset-name", DEFAULT_DATA_SET)


def options_of(words: Sequence[str]) -> list[str] | None:
    """What follows `vllm bench serve`, or the script of that name, in a command line; None: it is
    not such a command."""
    command = list(PROGRAM[1:])
    for place, word in enumerate(words):
        name = PurePath(word).name
        if name == SCRIPT:
            return _of_script(words[place + 1 :])
        end = place + 1 + len(command)
        following = list(words[place + 1 : end])
        if following == command and any(each in name for each in BENCHED):
            return list(words[end:])
    return None


def _of_script(words: Sequence[str]) -> list[str]:
    """The options of the script, which sends conversations where no data set is named."""
    options = list(words)
    if not any(word.startswith("--dataset-name") for word in options):
        options += ["--dataset-name", "sharegpt"]
    return options


def our_run(words: Sequence[str]) -> OurRun:
    """The run of these options. UsageError: one has no equal here, or lacks its value; all of them
    in one sentence, each with what to do."""
    given = _given(_separated(words))
    _use_general_lengths(given)
    faults = [*given.faults, *_refusals(given)]
    endpoint = _endpoint(given.values)
    if endpoint is None:
        backend = given.values.get("--backend", DEFAULT_BACKEND)
        faults.append(
            f"--backend {backend} has no equal (there are {', '.join(BACKENDS)})"
        )
    workload = _workload(given, faults)
    if faults:
        raise UsageError(f"vllm bench serve: {'; '.join(faults)}")

    flags = ["--endpoint", endpoint] if endpoint else []
    flags += _load_flags(given.values)
    flags += _value_flags(given)
    if int(given.values.get("--num-warmups") or 0):
        flags += ["--warmup", given.values["--num-warmups"]]
    flags += [SWITCHES[name] for name in given.switches]
    is_endless = given.data_set in ENDLESS and endpoint
    if is_endless and "--ignore-eos" not in given.switches:
        flags.append("--ignore-eos")
    flags += _body(given)
    for header in given.lists.get("--header", []):
        name, _, value = header.partition("=")
        flags += ["--header", f"{name}: {value}"]
    if "--goodput" in given.lists:
        flags += ["--goodput", " ".join(given.lists["--goodput"])]
    notes: list[str] = []
    flags += _tokenizer(given.values, notes)
    flags += _percentile_metrics(given.values, notes)
    if given.data_set == "custom" and "--skip-chat-template" not in given.values:
        notes.append(
            "vllm bench serve puts the prompts of a file into the chat template itself; here "
            "the server does (--endpoint chat), or nobody (completions)"
        )
    return OurRun(
        _url(given.values), _names_server(given.values), workload, flags, notes
    )


# ---------------------------------------------------------------------- reading its words


def _given(left: list[str]) -> _Given:
    """The options by name."""
    given = _Given()
    while left:
        name = left.pop(0)
        if not name.startswith("--"):
            given.faults.append(_stray(name))
            if f"-{name}" in OPTIONS:
                _taken(left)
            continue
        name = EARLIER.get(name, name)
        option = OPTIONS.get(name)
        if option is None:
            given.faults.append(_of_unknown(name))
            _taken(left)
        elif option.takes == NO_VALUE:
            stray = _taken(left)
            if stray:
                given.faults.append(
                    f"{name} takes no value: leave out {' '.join(stray)!r}"
                )
            _switch(given, name)
        elif option.takes == ONE_VALUE:
            _take_one(given, name, left)
        else:
            given.lists[name] = _taken(left)
    for name in WHOLE_NUMBERS:
        text = given.values.get(name, "0")
        if not (text.isascii() and text.isdigit()):
            given.faults.append(f"{name} must be a whole number, got {text!r}")
    return given


def _stray(word: str) -> str:
    if f"-{word}" in OPTIONS:
        return f"{word} has one dash: write -{word}"
    return f"{word!r} stands where an option is expected"


def _switch(given: _Given, name: str) -> None:
    if name in SWITCHES:
        given.switches.append(name)
    else:
        given.values[name] = ""


def _take_one(given: _Given, name: str, left: list[str]) -> None:
    if not left or left[0] in OPTIONS:
        given.faults.append(f"{name} has no value")
        return
    given.values[name] = left.pop(0)


def _separated(words: Sequence[str]) -> list[str]:
    """`--name=value` as two words; names as vLLM writes them, with dashes. Parts of a JSON object
    (`--extra-body.top_k 5`) as the whole object."""
    separated: list[str] = []
    parts: dict[str, Any] = {}
    left = list(words)
    while left:
        word = left.pop(0)
        if not word.startswith("--"):
            separated.append(word)
            continue
        name, equals, value = word.partition("=")
        name, dot, path = name.partition(".")
        name = name.replace("_", "-")
        if dot:
            text = value if equals else left.pop(0) if left else ""
            _put_nested(parts.setdefault(name, {}), path.split("."), text)
            continue
        separated.append(name)
        if equals:
            separated.append(value)
    for name, value in parts.items():
        separated += [name, json.dumps(value)]
    return separated


def _put_nested(into: dict[str, Any], path: list[str], text: str) -> None:
    """Put a value, which may be JSON, into nested objects."""
    for name in path[:-1]:
        inner = into.setdefault(name, {})
        into = inner if isinstance(inner, dict) else {}
    try:
        into[path[-1]] = decode_foreign(text.encode())
    except ValueError:
        into[path[-1]] = text


def _taken(left: list[str]) -> list[str]:
    """The values of an option that takes several, removed from what is left."""
    taken = []
    while left and not left[0].startswith("--"):
        taken.append(left.pop(0))
    return taken


# ---------------------------------------------------------------------- what has no equal


def _of_unknown(name: str) -> str:
    """What to say of a name that its parser does not have, or would complete."""
    whole = [known for known in (*OPTIONS, *EARLIER) if known.startswith(name)]
    if whole:
        return f"write {' or '.join(whole)} for {name}: names are not completed"
    text = f"{name} is no option of version {VERSION}"
    if any(flag.name == name for flag in FLAGS):
        return f"{text}, but a flag of the run here: put it before the --"
    near = did_you_mean(name, list(OPTIONS))
    return text + (near or ": leave it out if it changes no request")


def _refusals(given: _Given) -> Iterator[str]:
    """The options that the data set uses and that have no equal."""
    for name in (*given.values, *given.lists):
        if name in REFUSED and _matters(given, name):
            yield f"{name} has no equal: write {REFUSED[name][1]}"
    if "--dataset-path" in given.values and given.data_set in WITHOUT_FILE:
        yield (
            f"--dataset-path is not for {given.data_set}: write --dataset-name sharegpt or custom"
        )


def _matters(given: _Given, name: str) -> bool:
    """Whether an option without an equal would change this load."""
    if name == "--lora-assignment":
        return given.values[name] != "random" and len(_adapters(given)) > 1
    if name == "--chat-template-kwargs":
        return "--skip-chat-template" not in given.values and given.data_set == "custom"
    return OPTIONS[name].is_used_by(given.data_set)


def _workload(given: _Given, faults: list[str]) -> str:
    name = given.data_set
    if given.values.get("--backend") == "openai-embeddings" and name == "random":
        return "embeddings"
    if name in DATA_SETS:
        return DATA_SETS[name]
    instead = OTHER_DATA_SETS.get(name, f"there are {', '.join(DATA_SETS)}")
    faults.append(f"--dataset-name {name} has no equal: {instead}")
    return ""


# ---------------------------------------------------------------------- what it says here


def _use_general_lengths(given: _Given) -> None:
    """--input-len and --output-len are those of the data set, and win over them."""
    for name, names in (
        ("--input-len", INPUT_LENGTHS),
        ("--output-len", OUTPUT_LENGTHS),
    ):
        value = given.values.pop(name, None)
        own = names.get(given.data_set)
        if value is not None and own is not None:
            given.values[own] = value


def _value_flags(given: _Given) -> Iterator[str]:
    """The flags of the options with one value that have an equal, and of the model."""
    is_of_embeddings = given.values.get("--backend") == "openai-embeddings"
    defaults = DEFAULTS["random-rerank" if is_of_embeddings else given.data_set]
    values = defaults | given.values
    values.setdefault("--num-prompts", DEFAULT_REQUESTS)
    model = values.get("--served-model-name") or values.get("--model")
    models = _adapters(given) or ([model] if model else [])
    if models:
        yield from ("--model", ",".join(models))
    if "--dataset-path" in values:
        yield from ("--dataset-path", values["--dataset-path"])
    for name, value in values.items():
        if name not in EQUAL or not OPTIONS[name].is_used_by(given.data_set):
            continue
        if name == "--custom-output-len" and value == LENGTHS_OF_THE_FILE:
            continue
        if name in NOT_USED[given.data_set, is_of_embeddings]:
            continue
        yield from (EQUAL[name], value)


def _adapters(given: _Given) -> list[str]:
    return given.lists.get("--lora-modules", [])


def _names_server(values: dict[str, str]) -> bool:
    return any(name in values for name in ("--base-url", "--host", "--port"))


def _url(values: dict[str, str]) -> str:
    """The server's URL, with the path of the API where that is not the usual one."""
    base = values.get("--base-url")
    if base is None:
        host = values.get("--host", DEFAULT_HOST)
        if ":" in host and not host.startswith("["):
            host = f"[{host}]"
        port = values.get("--port", DEFAULT_PORT)
        base = f"http://{host}:{port}"
    path = values.get("--endpoint", "")
    if path.startswith("/v1/") or not path:
        return base
    return base.rstrip("/") + "/" + path.lstrip("/")


def _endpoint(values: dict[str, str]) -> str | None:
    """Our name of the API; "" where the locustfile says it, None where there is none."""
    path = values.get("--endpoint", "")
    backend = BACKENDS.get(values.get("--backend", DEFAULT_BACKEND))
    named = []
    for api in APIS.values():
        if path.endswith(api.path.removeprefix("/v1")):
            named.append(api)
    if not path or not backend:
        return backend
    if not named:
        return None
    return max(named, key=lambda api: len(api.path)).name


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


def _tokenizer(values: dict[str, str], notes: list[str]) -> list[str]:
    """A tokenizer's file. Of one on the Hub the server's counts take the place."""
    given = values.get("--tokenizer")
    if given is None:
        return []
    is_path = given.startswith((".", "/", "~")) or Path(given).exists()
    if is_path:
        return ["--tokenizer", given]
    notes.append(f"--tokenizer {given} is on the Hub: the server counts the tokens")
    return []


def _percentile_metrics(values: dict[str, str], notes: list[str]) -> list[str]:
    """The latencies to report. Those that are not measured are named, and change no request."""
    known = []
    others = []
    for name in values.get("--percentile-metrics", "").split(","):
        bare = name.strip()
        if bare in SECTION_KEYS:
            known.append(bare)
        elif bare:
            others.append(bare)
    if others:
        notes.append(f"--percentile-metrics: {', '.join(others)} are not reported")
    return ["--percentile-metrics", ",".join(known)] if known else []


def _body(given: _Given) -> list[str]:
    """Sampling, with --extra-body over it, as one JSON object. UsageError: it is none."""
    text = given.values.get("--extra-body")
    body: dict[str, Any] = {}
    try:
        for name, kind in SAMPLING.items():
            if name in given.values:
                field_name = name.removeprefix("--").replace("-", "_")
                body[field_name] = kind(given.values[name])
        if text:
            body |= decode_foreign(text.encode(), dict)
    except (ValueError, TypeError):
        raise UsageError(
            "--extra-body of vllm bench serve must be a JSON object, and sampling options numbers"
        ) from None
    return ["--extra-body", json.dumps(body)] if body else []
