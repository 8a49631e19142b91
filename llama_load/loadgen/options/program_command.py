"""The command of another load generator as a run of llama-load: the same server, prompts and load.

What has no equal is named with what to write, all of it in one sentence; nothing is ignored that
changes a request.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Any

from llama_load.ground.errors import UsageError, did_you_mean
from llama_load.loadgen.options.load_programs import OTHERS, PROGRAMS, Means, Program
from llama_load.loadgen.options.vllm_command import (
    DEFAULT_HOST,
    PROGRAM,
    OurRun,
    options_of,
    our_run,
)
from llama_load.outside.foreign_json import decode_foreign
from llama_load.outside.foreign_text import printable

# The kind of service whose API is spoken here, as genai-perf calls it.
SPOKEN = "openai"
EVERY_ADDRESS = "0.0.0.0"  # noqa: S104 - a server listens there, a client connects to its own
# Flags behind which a program stands: `python -m`, `docker run --rm`.
_STARTS = ("-m", "--", "--rm", "-it")
REQUESTS = "--num-prompts"
RATE = "--request-rate"
USERS = "-u"
IN_FLIGHT = "--max-concurrency"
INPUT = "--input-len"
OUTPUT = "--output-len"
# One run has one of these; other programs take several, and run one after the other.
_LOADS = (USERS, REQUESTS, RATE, IN_FLIGHT, "-t")
_ARRIVALS = ("constant", "poisson", "gamma")
# No rate: all at once.
_NO_RATES = ("inf", "-1")
# guidellm's profiles: what its rate is here, and the arrivals.
_PROFILES = {
    "synchronous": ("", ""),
    "concurrent": (USERS, ""),
    "throughput": (USERS, ""),
    "constant": (RATE, "constant"),
    "async": (RATE, "constant"),
    "poisson": (RATE, ""),
}
# Locustfiles whose answers are no texts, and those whose prompts are random words.
NOT_GENERATED = ("embeddings", "rerank")
RANDOM = ("synthetic", *NOT_GENERATED)
TRACES = "replay"
# What a file of prompts says itself.
OF_FILES = (REQUESTS, INPUT)
# Below 1: lengths of 0 are none.
_WIDEST = 0.99
_DEFAULT_LENGTH = "1024"
_PLACES = (".", "/", "~")
# Fields of the body that the length of answers sets here.
_OWN_FIELDS = ("max_tokens", "max_completion_tokens")


def run_of_command(words: Sequence[str]) -> OurRun | None:
    """The run of a command line, with whatever starts it; None: it is of no known load generator.
    UsageError: it has no equal here."""
    options = options_of(words)
    if options is not None:
        return our_run(options)
    for program in PROGRAMS:
        for begin in program.begins:
            place = _after(words, begin)
            if place is not None:
                return _run_of(program, begin, words[place:])
    for begin, instead in OTHERS.items():
        if _after(words, begin) is not None:
            raise UsageError(f"{begin} has no equal: write {instead}")
    return None


def known_programs() -> str:
    """Their names, for a message."""
    names = [" ".join(PROGRAM)]
    for program in PROGRAMS:
        names.append(program.name)
    return ", ".join(names)


def _after(words: Sequence[str], begin: str) -> int | None:
    """The place behind these words, unless they are a flag's value."""
    wanted = begin.split()
    before = ""
    for place, word in enumerate(words):
        end = place + len(wanted)
        given = [PurePath(word).name]
        given += words[place + 1 : end]
        is_value = _is_flag(before) and before not in _STARTS
        if given == wanted and not is_value:
            return end
        before = word
    return None


def _run_of(program: Program, begin: str, words: Sequence[str]) -> OurRun:
    reading = _Reading(program)
    given = _flags_of(words)
    for each in given.values():
        reading.take(each)
    names_server = reading.names_server
    for name, value in program.defaults.items():
        if not reading.has(name, given):
            reading.take(_Given(name, [value]))

    reading.settle()
    workload = reading.workload()
    if reading.faults:
        faults = "; ".join(reading.faults)
        raise UsageError(f"{begin}: {faults}")
    flags = reading.words(workload)
    return OurRun(reading.url(), names_server, workload, flags, reading.notes)


# ---------------------------------------------------------------------- words


@dataclass(slots=True)
class _Given:
    """A flag, and what stands behind it."""

    name: str
    values: list[str] = field(default_factory=list)

    @property
    def value(self) -> str:
        """Its value; several are joined by commas."""
        return ",".join(self.values)

    @property
    def items(self) -> list[str]:
        """The values of a list, with brackets or without."""
        return _items_of(self.value)

    def __str__(self) -> str:
        return f"{self.name} {self.value}"


def _flags_of(words: Sequence[str]) -> dict[str, _Given]:
    """The flags by name; a repeated one has the values of all. What stands before the first flag
    has its own name."""
    given: dict[str, _Given] = {}
    last: _Given | None = None
    for word in words:
        if word == "--":
            continue
        if not _is_flag(word):
            if last is None:
                given[word] = _Given(word)
            else:
                last.values.append(word)
            continue
        name, equals, value = word.partition("=")
        if name.startswith("--"):
            name = name.replace("_", "-")
        last = given.setdefault(name, _Given(name))
        if equals:
            last.values.append(value)
    return given


def _is_flag(word: str) -> bool:
    """A negative number is none."""
    if len(word) < 2 or word[1].isdigit():
        return False
    return word.startswith("-")


def _items_of(text: str) -> list[str]:
    bare = text.strip("[] ")
    spaced = bare.replace(",", " ")
    return spaced.split()


def _keys_of(value: str) -> dict[str, Any] | None:
    """The parts of `key=value,…` or a JSON object; None if it is neither."""
    if value.startswith("{"):
        return _object_or_none(value)
    keys: dict[str, Any] = {}
    for part in value.split(","):
        key, equals, text = part.partition("=")
        if not equals:
            return None
        keys[key.strip()] = text.strip()
    return keys


def _object_or_none(text: str) -> dict[str, Any] | None:
    try:
        return dict(decode_foreign(text.encode(), dict))
    except (ValueError, TypeError):
        return None


def _json_or_text(text: str) -> Any:
    try:
        return decode_foreign(text.encode())
    except ValueError:
        return text


# ---------------------------------------------------------------------- flag by flag


@dataclass(slots=True)
class _Reading:
    """What is understood of a command so far. `flags`: ours with their values."""

    program: Program
    flags: dict[str, str] = field(default_factory=dict)
    switches: list[str] = field(default_factory=list)
    body: dict[str, Any] = field(default_factory=dict)
    headers: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    urls: list[str] = field(default_factory=list)
    host: str = ""
    port: str = ""
    path: str = ""
    data_set: str = ""
    file: str = ""
    split: str = ""
    profile: str = ""
    rate: str = ""
    ratio: str = ""
    least: str = ""
    own_length: str = ""  # of answers, by a field of the body
    streams: bool = False
    stops_early: bool = False

    def take(self, given: _Given) -> None:
        """Understand a flag, or keep what is to be written in its place."""
        program = self.program
        name = given.name
        if name in program.equal:
            self._take_equal(given, program.equal[name])
        elif name in program.switches:
            self._take_switch(given, program.switches[name])
        elif name in program.read:
            read = _READERS[program.read[name]]
            read(self, given)
        elif name in program.instead:
            self.fault(f"{name} has no equal: write {program.instead[name]}")
        else:
            self._take_family(name)

    def _take_family(self, name: str) -> None:
        """A flag that is known by the beginning of its name, or not at all."""
        for begin, instead in self.program.families.items():
            if name.startswith(begin):
                if instead is not None:
                    self.fault(f"{name} has no equal: write {instead}")
                return
        self.fault(self._unknown(name))

    def fault(self, text: str) -> None:
        """It cannot be run as it is."""
        self.faults.append(text)

    def has(self, name: str, given: dict[str, _Given]) -> bool:
        """Whether the command, or its file, says what this default is for."""
        ours = self.program.equal.get(name)
        if ours == REQUESTS and "-t" in self.flags:
            return True
        if ours is not None:
            return ours in self.flags or (bool(self.file) and ours in OF_FILES)
        means = self.program.read[name]
        if means in (Means.PORT, Means.URL):
            return bool(self.urls or self.port)
        if means is Means.PROFILE:
            return bool(self.profile or self.data_set)
        return means in map(self.program.read.get, given)

    @property
    def names_server(self) -> bool:
        """Whether the command says at which URL it is."""
        return bool(self.urls or self.host or self.port)

    def _take_equal(self, given: _Given, ours: str) -> None:
        value = given.value
        if not value:
            self.fault(f"{given.name} has no value")
        elif ours in _LOADS and len(given.items) > 1:
            self._refuse_several(given)
        elif ours == "--arrival" and value not in _ARRIVALS:
            self.fault(f"{given} has no equal: write -u alone")
        elif ours != RATE or value not in _NO_RATES:
            self.flags[ours] = value

    def _refuse_several(self, given: _Given) -> None:
        self.fault(
            f"{given}: write one value a run; llama-load sweep runs one after the other"
        )

    def _take_switch(self, given: _Given, ours: str) -> None:
        self.switches.append(ours)
        if given.values:
            self.fault(f"{given.name} takes no value: leave out {given.value}")

    def _unknown(self, name: str) -> str:
        if not name.startswith("-"):
            shown = printable(repr(name), 60)
            return f"{shown} stands where a flag is expected"
        known = self.program.names
        if f"-{name}" in known:
            return f"{name} has one dash: write -{name}"
        if name.startswith("--"):
            whole = [each for each in known if each.startswith(name)]
            if whole:
                instead = " or ".join(whole)
                return f"write {instead} for {name}: names are not completed"
        near = did_you_mean(name, known)
        if not near:
            near = ": write the flag of the run with its effect (llama-load flags)"
        return f"{name} is not known{near}"

    def take_profile(self, given: _Given) -> None:
        """guidellm's name of a load, or its parts."""
        if _keys_of(given.value) is not None:
            self.take_keys(given)
        elif given.value == TRACES:
            self.data_set = TRACES
        else:
            self.profile = given.value

    def take_keys(self, given: _Given) -> None:
        """`kind=x,key=value` or a JSON object; else a file, or a kind alone."""
        for value in given.values:
            parts = _keys_of(value)
            if parts is not None:
                self._take_parts(given.name, parts)
            elif given.name == "--data":
                self.file = value

    def _take_parts(self, name: str, parts: dict[str, Any]) -> None:
        """A limit is known by its kind, other flags by their names."""
        if name == "--constraint":
            name = str(parts.pop("kind", ""))
        for key, part in parts.items():
            known = f"{name}.{key}"
            self.take(_Given(known, _texts_of(part)))

    def take_body(self, given: _Given) -> None:
        """Fields of the body, in guidellm beside others."""
        fields = _object_or_none(given.value)
        if fields is None:
            self.fault(f"{given.name} is no JSON object")
            return
        if given.name.endswith("extras"):
            fields = fields.get("body", fields)
        self.body.update(fields)

    def take_fields(self, given: _Given) -> None:
        """`name:value`, `name=value`, or a JSON object."""
        for value in given.values:
            if value.startswith("{"):
                self.take_body(_Given(given.name, [value]))
                continue
            pair = value.replace("=", ":", 1)
            key, _, text = pair.partition(":")
            if key in _OWN_FIELDS:
                self.own_length = text
            elif key != "stream":
                self.body[key] = _json_or_text(text)

    def take_field(self, given: _Given) -> None:
        """A field of the body that has the flag's name."""
        bare = given.name.removeprefix("--")
        key = bare.replace("-", "_")
        if key == "n_choices":
            key = "n"
        values = list(map(_json_or_text, given.values))
        if key.startswith("stop"):
            self.body[key] = values
        elif values:
            self.body[key] = values[0]

    def take_headers(self, given: _Given) -> None:
        """`name:value` or `name=value`."""
        for value in given.values:
            name, colon, text = value.partition(":")
            if not colon or "=" in name:
                name, _, text = value.partition("=")
            text = text.strip()
            self.headers.append(f"{name}: {text}")

    def take_tokenizer(self, given: _Given) -> None:
        """A file; of one on the Hub the server's counts take the place."""
        keys = _keys_of(given.value) or {"model": given.value}
        name = str(keys.get("model"))
        if name.startswith(_PLACES):
            self.flags["--tokenizer"] = name
        else:
            self.notes.append(f"{given}: the server counts the tokens")

    def take_spread(self, given: _Given) -> None:
        """A deviation of lengths, which may be 0."""
        if given.value.strip("0."):
            self.fault(
                f"{given}: lengths vary evenly here: write --range-ratio, the share by which "
                "they do"
            )

    def take_api(self, given: _Given) -> None:
        """The name of an API, or of a server that has its own."""
        value = given.value
        ours = self.program.apis.get(value)
        if ours is None:
            known = ", ".join(self.program.apis)
            self.fault(f"{given} has no equal (there are {known})")
        elif ours in NOT_GENERATED:
            self.data_set = ours
        elif ours:
            self.flags["--endpoint"] = ours
        if value in ("sglang", "sglang-native"):
            self.notes.append(
                "SGLang's own /generate is not sent: /v1/completions gets the same prompts"
            )

    def take_split(self, given: _Given) -> None:
        """Which part of a data set: a file has one."""
        keys = _keys_of(given.value) or {}
        self.split = str(keys.pop("split", ""))
        for key in keys:
            self.fault(
                f"{given.name}: {key} has no equal: write --columns, or another file"
            )

    def take_service(self, given: _Given) -> None:
        """Triton and TorchServe have APIs of their own."""
        if given.value != SPOKEN:
            self.fault(f"{given} has no equal: write the URL of its OpenAI frontend")

    def take_times(self, given: _Given) -> None:
        """The times of the file, whose layout may be named as well."""
        self.data_set = self.data_set or "mooncake_trace"

    def take_url(self, given: _Given) -> None:
        """One or several servers."""
        for item in given.items:
            url = item if "://" in item else f"http://{item}"
            self.urls.append(url)

    def take_models(self, given: _Given) -> None:
        """One or several; adapters go before them."""
        names = ",".join(given.items)
        self.flags.setdefault("--model", names)

    def take_stream(self, given: _Given) -> None:
        """Answers are streamed."""
        self.streams = True

    def take_early_stop(self, given: _Given) -> None:
        """Answers may end before their length."""
        self.stops_early = True

    def take_nothing(self, given: _Given) -> None:
        """It changes no request."""

    # ------------------------------------------------------------------ the whole

    def settle(self) -> None:
        """What several flags say together."""
        if self.profile:
            self._settle_profile()
        if self.own_length:
            self.flags[OUTPUT] = self.own_length
        if self._draws_lengths:
            self._settle_ratio()
        if self.least and self.least != self.flags.get(INPUT):
            self.fault(
                "--min-prompt-length is not --max-prompt-length: write --input-len with "
                "--range-ratio, the share by which lengths vary"
            )
        self._settle_load()
        has_streams = Means.STREAM in self.program.read.values()
        generates = self.data_set not in NOT_GENERATED
        if has_streams and generates and not self.streams:
            self.switches.append("--no-stream")

    def _settle_load(self) -> None:
        """With a rate, or with the times of a file, a concurrency is the most in flight."""
        flags = self.flags
        kind = self.program.data_sets.get(self.data_set)
        if kind == TRACES:
            flags.pop(INPUT, None)
        if kind == TRACES or RATE in flags:
            most = flags.pop(USERS, "1")
            if most != "1":
                flags[IN_FLIGHT] = most
        elif USERS not in flags:
            # SGLang sends all at once, others one after the other.
            at_once = "--ignore-eos" in self.program.adds
            flags[USERS] = flags.get(REQUESTS, "1") if at_once else "1"

    def _settle_profile(self) -> None:
        profile = self.profile
        if profile not in _PROFILES:
            self.fault(
                f"the profile {profile} runs several loads: write llama-load capacity URL, "
                "which looks for the highest rate, or llama-load sweep"
            )
            return
        flag, arrival = _PROFILES[profile]
        rate = _Given("--rate", _items_of(self.rate))
        if flag and not rate.values:
            self.fault(f"the profile {profile} has no rate here: write --rate")
        elif flag:
            self._take_equal(rate, flag)
        if arrival:
            self.flags["--arrival"] = arrival

    @property
    def _draws_lengths(self) -> bool:
        """Whether SGLang draws random lengths, from 1 on where no ratio is given."""
        has_ratio = Means.RATIO in self.program.read.values()
        return has_ratio and self.data_set.startswith("random")

    def _settle_ratio(self) -> None:
        """SGLang draws lengths from the ratio times the given length up to that."""
        try:
            ratio = float(self.ratio or 0)
        except ValueError:
            ratio = -1.0
        if not 0 <= ratio <= 1:
            self.fault("--random-range-ratio must be a number from 0 to 1")
        elif ratio < 1:
            spread = (1 - ratio) / (1 + ratio)
            spread = min(_WIDEST, spread)
            self.flags["--range-ratio"] = f"{spread:.4g}"
            for flag in (INPUT, OUTPUT):
                self._take_mean(flag, ratio)

    def _take_mean(self, flag: str, ratio: float) -> None:
        given = self.flags.get(flag, _DEFAULT_LENGTH)
        if given.isdecimal():
            mean = int(given) * (1 + ratio) / 2
            rounded = max(1, round(mean))
            self.flags[flag] = str(rounded)

    def workload(self) -> str:
        """The locustfile; "" where the data set has no equal."""
        program = self.program
        name = self.data_set
        if name in NOT_GENERATED:
            return name
        if self.file and not name:
            return "custom"
        if name in program.data_sets:
            return program.data_sets[name]
        known = ", ".join(filter(None, program.data_sets))
        unknown = f"-f custom --dataset-path FILE (there are {known})"
        instead = program.other_data_sets.get(name, unknown)
        self.fault(f"the data set {name} has no equal: write {instead}")
        return ""

    def words(self, workload: str) -> list[str]:
        """Our flags."""
        words = []
        for name, value in self.flags.items():
            if name != INPUT or workload in RANDOM:
                words += [name, value]
        if self.file:
            words += self._file_words(workload)
        words += self._added(workload)
        words += self.switches
        if self.body:
            words += ["--extra-body", json.dumps(self.body)]
        for header in self.headers:
            words += ["--header", header]
        return words

    def _added(self, workload: str) -> Iterator[str]:
        """What the program does always, unless the command says otherwise."""
        if workload in NOT_GENERATED:
            return
        for word in self.program.adds:
            is_refused = word == "--ignore-eos" and self.stops_early
            is_given = word.startswith("--temperature") and "temperature" in self.body
            if not is_refused and not is_given:
                yield word

    def _file_words(self, workload: str) -> Iterator[str]:
        file = self.file
        if workload in RANDOM:
            self.notes.append(
                f"{file} is not read: the prompts are random words of these lengths"
            )
            return
        bare = file.removeprefix("hf://")
        is_name = not bare.startswith(_PLACES) and bare.count("/") == 1
        if is_name and (bare != file or not PurePath(bare).suffix):
            file = f"hf:{bare}"
            if self.split:
                file += f":{self.split}"
        yield "--trace" if workload == TRACES else "--dataset-path"
        yield file

    def url(self) -> str:
        """The server's URL, with the path of the API where the command has one."""
        host = self.host or DEFAULT_HOST
        if host == EVERY_ADDRESS:
            host = DEFAULT_HOST
        base = host if "://" in host else f"http://{host}:{self.port}"
        if self.urls:
            base = ",".join(self.urls)
        if not self.path:
            return base
        base = base.rstrip("/")
        path = self.path.lstrip("/")
        return f"{base}/{path}"


def _texts_of(part: Any) -> list[str]:
    """A part of a flag's value as words of a command."""
    if isinstance(part, list):
        return list(map(str, part))
    if isinstance(part, dict):
        return [json.dumps(part)]
    return [str(part)]


def _keeper(attribute: str) -> Callable[[_Reading, _Given], None]:
    """A reader that keeps the value."""

    def keep(reading: _Reading, given: _Given) -> None:
        setattr(reading, attribute, given.value)

    return keep


_Reader = Callable[[_Reading, _Given], None]
_READERS: dict[Means, _Reader] = {
    Means.URL: _Reading.take_url,
    Means.HOST: _keeper("host"),
    Means.PORT: _keeper("port"),
    Means.PATH: _keeper("path"),
    Means.API: _Reading.take_api,
    Means.SERVICE: _Reading.take_service,
    Means.STREAM: _Reading.take_stream,
    Means.NO_IGNORE_EOS: _Reading.take_early_stop,
    Means.DATA_SET: _keeper("data_set"),
    Means.FILE: _keeper("file"),
    Means.KEYS: _Reading.take_keys,
    Means.SPLIT: _Reading.take_split,
    Means.PROFILE: _Reading.take_profile,
    Means.RATE: _keeper("rate"),
    Means.SPREAD: _Reading.take_spread,
    Means.RATIO: _keeper("ratio"),
    Means.LEAST: _keeper("least"),
    Means.BODY: _Reading.take_body,
    Means.FIELDS: _Reading.take_fields,
    Means.FIELD: _Reading.take_field,
    Means.HEADERS: _Reading.take_headers,
    Means.MODELS: _Reading.take_models,
    Means.TOKENIZER: _Reading.take_tokenizer,
    Means.TIMES: _Reading.take_times,
    Means.NOTHING: _Reading.take_nothing,
}
