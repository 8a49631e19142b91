"""A run folder of ours as a run: its summary.json, and what its manifest and its records add."""

from __future__ import annotations

import hashlib
import json
import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import chain, islice
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from llama_load.analysis.comparison.foreign_results import read_json, run_of, text
from llama_load.analysis.comparison.kept_memory import counted
from llama_load.analysis.comparison.request_answers import (
    COLUMNS,
    MOST_REQUESTS,
    Answers,
    answers_in,
)
from llama_load.analysis.comparison.setup import LOGGED, REPORTED, SERVER_PREFIX
from llama_load.analysis.comparison.side import MeasuredRun
from llama_load.analysis.results.run_summary import SUMMARY, stage_names
from llama_load.ground.errors import LlamaLoadError, UsageError
from llama_load.outside.foreign_files import begin_of
from llama_load.outside.foreign_text import printable
from llama_load.run_folder import MANIFEST, TABLE, Manifest
from llama_load.run_folder.foreign_tables import (
    WHOLE_TABLE,
    TableLimits,
    open_table,
    read_table,
    record_columns,
)
from llama_load.run_folder.manifest import read_manifest
from llama_load.run_folder.server_files import SERVER_FOLDER
from llama_load.run_folder.vocabulary.document_caches import DIFFERENT
from llama_load.run_folder.vocabulary.flag_roles import FlagRoles
from llama_load.servers.target import TRAITS

# Prompts are compared by this many hexadecimal digits of their hashes, of at most so many records.
HASH_DIGITS = 16
PROMPTS = TableLimits(cells=3_000_000, decoded_bytes=256 << 20)
ANSWERS = TableLimits(cells=20 * MOST_REQUESTS, decoded_bytes=16 << 20)
# Values per latency and run kept for charts: the middle 95 % of a distribution then has 20 000
# points of support.
MOST_SAMPLES = 20_000
_SAMPLED = {"ttft": "ttft_ms", "tpot": "tpot_ms", "e2el": "e2el_ms"}
# Commands of servers: how many are read, and how much of each.
MOST_SERVERS = 16
MOST_COMMAND_BYTES = 16 * 1024
# Of a run; there are about 200 flags.
MOST_OPTIONS = 1000
_FLAG = re.compile(r"--?[A-Za-z][\w-]*")  # not -1, which is a value
_CONTAINER = re.compile(
    r"[0-9a-f]{12}"
)  # the name that Docker and Podman give a machine
# of a server, which change nothing
_ADDRESSES = frozenset(("--port", "--host", "--log", "--log-file"))
_ROOM = 10  # times MOST_SAMPLES values are read
_NOT_GIVEN: tuple[object, ...] = (None, "", False, [])  # values of flags


def is_run_folder(path: Path) -> bool:
    """Whether it is a run folder."""
    return (path / MANIFEST).is_file()


def folder_run(
    folder: Path, part: str = "", *, with_samples: bool = False
) -> MeasuredRun:
    """The run in a folder; `part`: a stage of it.

    `with_samples`: with values for charts. Raises UsageError.
    """
    summary = folder_summary(folder)
    run = run_of(summary, folder.name, part)
    try:
        manifest = read_manifest(folder)
    except (OSError, LlamaLoadError):
        return run  # the figures are in summary.json

    stage = None
    roles = _roles(manifest)
    load = {**run.load, **_load_flags(manifest, roles)}
    if part:
        stage = stage_names(summary).index(part)
        load = dict(run.load)

    endpoint = run.endpoint
    if endpoint == "completions":
        endpoint = manifest.endpoint

    prompts = None
    if not _has_random_prompts(manifest):
        prompts = _prompt_hashes(folder / TABLE, stage)

    samples: dict[str, NDArray[np.float64]] = {}
    if with_samples:
        samples = _samples(folder / TABLE, stage)

    whole = replace(
        run,
        fixed_lengths=manifest.fixed_lengths,
        endpoint=endpoint,
        prompts=prompts,
        plan=_plan(manifest, roles),
        load=load,
        samples=samples,
        setup={**run.setup, **_setup(manifest, roles), **_server_flags(folder)},
        client=_client(manifest.host),
        replaced=_replaced(manifest.prompts),
        answers=_answers(folder / TABLE, stage),
        command=printable(shlex.join(manifest.command), MOST_COMMAND_BYTES),
        flag_roles=roles,
    )
    return counted(whole)


def _roles(manifest: Manifest) -> FlagRoles:
    """The roles of the flags; where they are not known, any flag may choose the prompts."""
    return manifest.flag_roles or FlagRoles(prompts=list(manifest.options))


def _has_random_prompts(manifest: Manifest) -> bool:
    """Whether the beginnings of its prompts are those of no other run."""
    if manifest.options.get("bust_prefix_cache") or manifest.prefix_tokens is not None:
        return True

    caches = [data.get("cache") for _, data in _data_sets(manifest.prompts)]

    return DIFFERENT in caches


def folder_summary(folder: Path) -> dict[str, Any]:
    """Its summary.json. Raises UsageError."""
    if not (folder / SUMMARY).is_file():
        raise UsageError(
            f"{folder} has no {SUMMARY}: write it with 'llama-load report {folder}'"
        )
    return read_json(folder / SUMMARY, inside=folder)


def _setup(manifest: Manifest, roles: FlagRoles) -> dict[str, str]:
    """What was run: server, data, client and every flag given but those of the load, which is named
    by itself."""
    settings: dict[str, Any] = {
        "workload": manifest.workload,
        "servers": len(manifest.targets),
    }
    for trait, name in TRAITS.items():
        values: dict[str, None] = {}
        for target in manifest.targets:
            value = target.get(trait)
            if value is not None:
                values[_shown_value(value)] = None

        if values:
            settings[name] = ", ".join(values)

    for fact in LOGGED:
        of_servers: dict[str, None] = {}
        for server in manifest.servers:
            value = getattr(server, fact)
            if value is not None:
                of_servers[_shown_value(value)] = None

        if of_servers:
            settings[REPORTED[fact]] = ", ".join(of_servers)

    settings |= dict(_data(manifest.prompts))
    if manifest.run_time_s is not None:
        settings["time limit"] = f"{manifest.run_time_s:g} s"
    for name in ("name", "cores", "python"):
        settings[f"client's {name}"] = manifest.host.get(name)
    if len(manifest.workers) > 1:
        settings["workers"] = len(manifest.workers)
    for name, value in islice(manifest.options.items(), MOST_OPTIONS):
        if name not in roles.stated and value not in _NOT_GIVEN:
            settings[_option(name)] = _shown_value(value)

    setup = {}
    for name, value in settings.items():
        if value is not None:
            setup[name] = text(value)

    return setup


def _option(name: str) -> str:
    """num_prompts -> --num-prompts."""
    return f"--{name.replace('_', '-')}"


def _client(host: Mapping[str, Any]) -> str:
    """The machine that measured, by its name.

    By its processor where the name is that of a container, which is new in each run.
    """
    name = str(host.get("name") or "")
    if name and not _CONTAINER.fullmatch(name):
        return text(name)
    if not host.get("cpu"):
        return ""
    return text(f"{host['cpu']}, {host.get('cores')} cores")


def _replaced(prompts: Mapping[str, Any]) -> int | None:
    """How many planned prompts did not fit a slot and were replaced by others.

    Over all workloads; None where it is not known.
    """
    of_workloads: list[Any] = [prompts]
    if "replaced" not in prompts:
        of_workloads = list(prompts.values())

    counts = []
    for facts in of_workloads:
        if not isinstance(facts, Mapping):
            continue

        count = facts.get("replaced")
        if isinstance(count, int):
            counts.append(count)

    if not counts:
        return None

    return sum(counts)


def _load_flags(manifest: Manifest, roles: FlagRoles) -> dict[str, str]:
    """What shapes the load besides concurrency and rate."""
    shape = {"arrivals": manifest.arrival or "closed loop"}
    for name in roles.shapes:
        value = manifest.options.get(name)
        if value:
            shape[_option(name)] = _shown_value(value)
    return shape


def _plan(manifest: Manifest, roles: FlagRoles) -> str:
    """Equal for runs that plan the same prompts: data, seed, and the flags that choose them.

    Random beginnings, which make prompts new to a cache, are not part of it.
    """
    flags = {}
    for name, value in manifest.options.items():
        if name in roles.prompts and value not in _NOT_GIVEN:
            flags[name] = value
    plan = [
        manifest.workload,
        manifest.seed,
        manifest.stages and len(manifest.stages),
        sorted(_data(manifest.prompts)),
        flags,
    ]
    plan_json = json.dumps(plan, sort_keys=True, default=str)
    return hashlib.sha256(plan_json.encode()).hexdigest()


def _server_flags(folder: Path) -> dict[str, str]:
    """The flags of servers on the client's machine: `server --ctx-size` to `4096`.

    From the commands that the run noted.
    """
    settings: dict[str, str] = {}
    for file in _command_files(folder):
        server = SERVER_PREFIX
        if file.parent.name != SERVER_FOLDER:
            server += f"{text(file.parent.name)} "
        try:
            command = begin_of(file, MOST_COMMAND_BYTES, inside=folder).decode(
                "utf-8", "replace"
            )
            words = shlex.split(command)
        except (OSError, ValueError):
            continue
        for flag, value in _flags_among(words):
            settings[f"{server}{text(flag)}"] = text(value)
    return settings


def _command_files(folder: Path) -> list[Path]:
    """server/command, server/1/command and so on."""
    place = folder / SERVER_FOLDER
    if place.is_symlink():  # it may lead to a folder that takes hours to search
        return []
    found = chain(place.glob("command"), place.glob("*/command"))
    return sorted(islice(found, MOST_SERVERS))


def _flags_among(words: list[str]) -> Iterator[tuple[str, str]]:
    """The flags of a command, but for addresses, each with its value; `on` for a switch."""
    following = [*words[1:], "-"]
    for word, next_word in zip(words, following, strict=True):
        flag, sign, joined = word.partition("=")
        if flag in _ADDRESSES or not _FLAG.fullmatch(flag):
            continue
        if sign:
            yield flag, joined
        elif next_word == "-" or _FLAG.fullmatch(next_word):
            yield flag, "on"
        else:
            yield flag, next_word


def _data(prompts: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """The data set of each workload: a file's name and hash; for generated data only its name."""
    for workload, data in _data_sets(prompts):
        file = Path(str(data.get("path"))).name
        digest = data.get("sha256")
        if digest:
            file += f" (sha256 {str(digest)[:12]})"

        name = "data"
        if workload:
            name = f"data of {workload}"

        yield name, file


def _data_sets(prompts: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """What the manifest says of each workload's data set.

    The name of a single workload is empty.
    """
    of_workloads = prompts
    if "dataset" in prompts:
        of_workloads = {"": prompts}

    for workload, facts in of_workloads.items():
        if not isinstance(facts, dict):
            continue

        data = facts.get("dataset")
        if isinstance(data, dict):
            yield workload, data


def _shown_value(value: object) -> str:
    if isinstance(value, str):
        return value
    return msgspec.json.encode(value).decode()


def _prompt_hashes(table: Path, stage: int | None) -> frozenset[str] | None:
    """Hashes of the prompts sent, warm-up excepted; None where they are not known."""
    try:
        columns = read_table(
            table, record_columns("prompt_sha256", "warmup", "stage"), PROMPTS
        )
    except (OSError, ValueError):
        return None
    if len(columns.column_names) < 3:
        return None

    digests = columns["prompt_sha256"].to_pylist()
    warmups = columns["warmup"].to_pylist()
    stages = columns["stage"].to_pylist()
    hashes = set()
    for digest, is_warmup, number in zip(digests, warmups, stages, strict=True):
        if digest and not is_warmup and stage in (None, number):
            hashes.add(str(digest)[:HASH_DIGITS])

    return frozenset(hashes) or None


def _answers(table: Path, stage: int | None) -> Answers | None:
    """Which requests were answered, warm-up excepted; None where that is not known."""
    import pyarrow.compute as pc

    try:
        columns = read_table(
            table, record_columns(*COLUMNS, "warmup", "stage"), ANSWERS
        )
    except (OSError, ValueError):
        return None
    if not {*COLUMNS, "warmup", "stage"} <= set(columns.column_names):
        return None

    keep = pc.invert(pc.fill_null(columns["warmup"], False))
    if stage is not None:
        keep = pc.and_(keep, pc.equal(columns["stage"], stage))
    measured = columns.filter(keep)

    numbers = {}
    for name in COLUMNS:
        if name != "status":
            values = measured[name].to_numpy()
            numbers[name] = np.asarray(values, np.float64)
    is_ok = np.asarray(measured["status"].to_pylist()) == "ok"
    return answers_in(numbers, is_ok)


def _samples(table: Path, stage: int | None) -> dict[str, NDArray[np.float64]]:
    """Values of each latency of the successful requests, thinned evenly to `MOST_SAMPLES`.

    Read in batches.
    """
    import pyarrow.compute as pc

    batches_of: dict[str, list[NDArray[np.float64]]] = {}
    for key in (*_SAMPLED, "itl"):
        batches_of[key] = []

    columns = record_columns(*_SAMPLED.values(), "itl_ms", "status", "warmup", "stage")
    try:
        with open_table(table, columns, WHOLE_TABLE) as opened:
            for batch in opened.batches:
                # values of a latency in a batch
                quota = _ROOM * MOST_SAMPLES * batch.num_rows // opened.rows
                kept = batch.filter(_measured(batch, stage))
                for key, column in _SAMPLED.items():
                    known = kept[column].drop_null()
                    batches_of[key].append(_some(known, quota))

                gaps = pc.list_flatten(kept["itl_ms"])
                batches_of["itl"].append(_some(gaps, quota))
    except (OSError, ValueError, KeyError):  # pyarrow's exceptions are such
        return {}

    samples = {}
    for key, parts in batches_of.items():
        if any(map(len, parts)):
            values = np.concatenate(parts)
            samples[key] = _thinned(values)

    return samples


def _measured(batch: Any, stage: int | None) -> Any:
    """Which rows are successful requests, of a stage or of all, but not of the warm-up."""
    import pyarrow.compute as pc

    is_ok = pc.equal(batch["status"], "ok")
    is_warmup = pc.fill_null(batch["warmup"], False)
    keep = pc.and_(is_ok, pc.invert(is_warmup))
    if stage is not None:
        keep = pc.and_(keep, pc.equal(batch["stage"], stage))
    return keep


def _some(column: Any, most: int) -> NDArray[np.float64]:
    """At most this many of the values of a column, at random.

    Every n-th of the gaps of answers of one length would be the same gap of each.
    """
    values: NDArray[Any] = column.to_numpy(zero_copy_only=False)
    if len(values) > most:
        places = np.random.default_rng(0).integers(0, len(values), most)
        values = values[np.unique(places)]
    return np.asarray(values, np.float64)


def _thinned(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """At most `MOST_SAMPLES` of them.

    Every n-th of the sorted values, which keeps their distribution.
    """
    values = np.sort(values[np.isfinite(values)])
    if len(values) <= MOST_SAMPLES:
        return values
    places = np.linspace(0, len(values) - 1, MOST_SAMPLES).round()
    thinned: NDArray[np.float64] = values[places.astype(int)]
    return thinned
