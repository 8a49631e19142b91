"""A run folder of ours as a run: its summary.json, and what its manifest and its records add."""

from __future__ import annotations

import hashlib
import json
import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from llama_load.analysis.run_summary import SUMMARY
from llama_load.comparison.foreign_results import read_json, run_of, stages_in, text
from llama_load.comparison.setup import SERVER_PREFIX
from llama_load.comparison.side import MeasuredRun
from llama_load.errors import LlamaLoadError, UsageError
from llama_load.foreign_files import begin_of
from llama_load.foreign_text import printable
from llama_load.options.flag import Role
from llama_load.options.flags import flags_with
from llama_load.run_folder import MANIFEST, TABLE, Manifest
from llama_load.run_folder.foreign_tables import BATCH_ROWS, WHOLE_TABLE, TableLimits, open_table, read_table, record_columns
from llama_load.run_folder.manifest import read_manifest
from llama_load.run_folder.server_files import SERVER_FOLDER
from llama_load.targets.target import TRAITS
from llama_load.workloads.prompt import DIFFERENT

# Prompts are compared by this many hexadecimal digits of their hashes, of at most so many records.
HASH_DIGITS, PROMPTS = 16, TableLimits(cells=3_000_000, decoded_bytes=256 << 20)
# Values per latency and run kept for charts: the middle 95 % of a distribution then has 20 000 points of support.
MOST_SAMPLES = 20_000
_SAMPLED = {"ttft": "ttft_ms", "tpot": "tpot_ms", "e2el": "e2el_ms"}
# Commands of servers: how many are read, and how much of each.
MOST_SERVERS, MOST_COMMAND_BYTES = 16, 16 * 1024
_FLAG = re.compile(r"--?[A-Za-z][\w-]*")  # not -1, which is a value
_CONTAINER = re.compile(r"[0-9a-f]{12}")  # the name that Docker and Podman give a machine
_ADDRESSES = frozenset(("--port", "--host", "--log", "--log-file"))  # of a server, which change nothing
_ROOM = 10  # times MOST_SAMPLES values are read
# Names of flags by their roles. The load is named by itself.
_PROMPT_FLAGS, _SHAPES, _LOAD = ([flag.dest for flag in flags_with(role)] for role in (Role.PROMPTS, Role.SHAPE, Role.REPORTED))


def is_run_folder(path: Path) -> bool:
    """Whether it is a run folder."""
    return (path / MANIFEST).is_file()


def folder_run(folder: Path, part: str = "", *, with_samples: bool = False) -> MeasuredRun:
    """The run in a folder; `part`: a stage of it. `with_samples`: with values for charts. Raises UsageError."""
    summary = folder_summary(folder)
    run = run_of(summary, folder.name, part)
    try:
        manifest = read_manifest(folder)
    except (OSError, LlamaLoadError):
        return run  # the figures are in summary.json
    stage = stages_in(summary).index(part) if part else None
    documents = [data.get("cache") for _, data in _data_sets(manifest.prompts)]
    random_flags = (bool(manifest.options.get("bust_prefix_cache")), manifest.prefix_tokens is not None)
    is_random = any(random_flags) or DIFFERENT in documents
    load = run.load if part else {**run.load, **_load_flags(manifest)}
    return replace(
        run,
        fixed_lengths=manifest.fixed_lengths,
        endpoint=run.endpoint if run.endpoint != "completions" else manifest.endpoint,
        prompts=None if is_random else _prompts(folder / TABLE, stage),
        plan=_plan(manifest),
        load=load,
        samples=_samples(folder / TABLE, stage) if with_samples else {},
        setup={**run.setup, **_setup(manifest), **_server_flags(folder)},
        client=_client(manifest.host),
        replaced=_replaced(manifest.prompts),
        command=printable(shlex.join(manifest.command), MOST_COMMAND_BYTES),
    )


def folder_summary(folder: Path) -> dict[str, Any]:
    """Its summary.json. Raises UsageError."""
    if not (folder / SUMMARY).is_file():
        raise UsageError(f"{folder} has no {SUMMARY}: write it with 'llama-load report {folder}'")
    return read_json(folder / SUMMARY)


def _setup(manifest: Manifest) -> dict[str, str]:
    """What was run: server, data, client and every flag given."""
    settings: dict[str, Any] = {"workload": manifest.workload, "servers": len(manifest.targets)}
    for trait, name in TRAITS.items():
        values = [_plain(target.get(trait)) for target in manifest.targets if target.get(trait) is not None]
        if values:
            settings[name] = ", ".join(dict.fromkeys(values))
    settings |= dict(_data(manifest.prompts))
    settings["time limit"] = None if manifest.run_time_s is None else f"{manifest.run_time_s:g} s"
    host = manifest.host
    settings |= {f"client's {name}": host.get(name) for name in ("name", "cores", "python") if host.get(name) is not None}
    if len(manifest.workers) > 1:
        settings["workers"] = len(manifest.workers)
    for name, value in manifest.options.items():
        if name not in _LOAD and value not in (None, "", False, []):
            settings["--" + name.replace("_", "-")] = _plain(value)
    return {name: text(value) for name, value in settings.items() if value is not None}


def _client(host: Mapping[str, Any]) -> str:
    """The machine that measured, by its name; by its processor where the name is that of a container, which is new in each run."""
    name = str(host.get("name") or "")
    if name and not _CONTAINER.fullmatch(name):
        return text(name)
    return text(f"{host.get('cpu')}, {host.get('cores')} cores") if host.get("cpu") else ""


def _replaced(prompts: Mapping[str, Any]) -> int | None:
    """How many planned prompts did not fit a slot and were replaced by others, over all workloads; None where it is not known."""
    facts = [prompts] if "replaced" in prompts else [each for each in prompts.values() if isinstance(each, dict)]
    counts = [each.get("replaced") for each in facts]
    known = [count for count in counts if isinstance(count, int)]
    return sum(known) if known else None


def _load_flags(manifest: Manifest) -> dict[str, str]:
    """What shapes the load besides concurrency and rate."""
    shape = {"arrivals": manifest.arrival or "closed loop"}
    return shape | {f"--{name.replace('_', '-')}": _plain(value) for name in _SHAPES if (value := manifest.options.get(name))}


def _plan(manifest: Manifest) -> str:
    """Equal for runs that plan the same prompts: data, seed, and the flags that choose and change them. Random beginnings, which
    make prompts new to a cache, are not part of it."""
    flags = {
        name: value for name, value in manifest.options.items() if name in _PROMPT_FLAGS and value not in (None, "", False, [])
    }
    data = [manifest.workload, manifest.seed, manifest.stages and len(manifest.stages), sorted(_data(manifest.prompts)), flags]
    return hashlib.sha256(json.dumps(data, sort_keys=True, default=str).encode()).hexdigest()


def _server_flags(folder: Path) -> dict[str, str]:
    """The flags of servers on the client's machine, from the commands that the run noted: `server --ctx-size` to `4096`."""
    settings: dict[str, str] = {}
    for file in sorted(islice((folder / SERVER_FOLDER).glob("**/command"), MOST_SERVERS)):
        name = SERVER_PREFIX if file.parent.name == SERVER_FOLDER else f"{SERVER_PREFIX}{text(file.parent.name)} "
        try:
            command = begin_of(file, MOST_COMMAND_BYTES).decode("utf-8", "replace")
            words = shlex.split(command)
        except (OSError, ValueError):
            continue
        for word, following in zip(words, [*words[1:], "-"], strict=True):
            flag, sign, value = word.partition("=")
            if _FLAG.fullmatch(flag) and flag not in _ADDRESSES:
                settings[f"{name}{text(flag)}"] = text(
                    value if sign else "on" if _FLAG.fullmatch(following) or following == "-" else following
                )
    return settings


def _data(prompts: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """The data set of each workload: a file's name and hash; for generated data only its name."""
    for workload, data in _data_sets(prompts):
        digest = data.get("sha256")
        name = Path(str(data.get("path"))).name + (f" (sha256 {str(digest)[:12]})" if digest else "")
        yield f"data of {workload}" if workload else "data", name


def _data_sets(prompts: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """What the manifest says of each workload's data set; the name of a single workload is empty."""
    for workload, facts in ({"": prompts} if "dataset" in prompts else prompts).items():
        data = facts.get("dataset") if isinstance(facts, dict) else None
        if isinstance(data, dict):
            yield workload, data


def _plain(value: object) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _prompts(table: Path, stage: int | None) -> frozenset[str] | None:
    """Hashes of the prompts sent, warm-up excepted; None where they are not known."""
    try:
        columns = read_table(table, record_columns("prompt_sha256", "warmup", "stage"), PROMPTS)
    except (OSError, ValueError):
        return None
    if len(columns.column_names) < 3:
        return None
    hashes = [
        str(digest)[:HASH_DIGITS]
        for digest, warmup, number in zip(*(column.to_pylist() for column in columns.columns), strict=True)
        if digest and not warmup and (stage is None or number == stage)
    ]
    return frozenset(hashes) or None


def _samples(table: Path, stage: int | None) -> dict[str, NDArray[np.float64]]:
    """Values of each latency of the successful requests, thinned evenly to `MOST_SAMPLES`; read in batches."""
    import pyarrow.compute as pc

    batches_of: dict[str, list[NDArray[np.float64]]] = {key: [] for key in (*_SAMPLED, "itl")}
    columns = record_columns(*_SAMPLED.values(), "itl_ms", "status", "warmup", "stage")
    try:
        with open_table(table, columns, WHOLE_TABLE) as opened:
            quota = _ROOM * MOST_SAMPLES * BATCH_ROWS // max(BATCH_ROWS, opened.rows)  # values of a latency in a batch
            for batch in opened.batches:
                keep = pc.and_(pc.equal(batch["status"], "ok"), pc.invert(pc.fill_null(batch["warmup"], False)))
                if stage is not None:
                    keep = pc.and_(keep, pc.equal(batch["stage"], stage))
                kept = batch.filter(keep)
                values = {key: kept[column].drop_null() for key, column in _SAMPLED.items()}
                for key, some in (values | {"itl": pc.list_flatten(kept["itl_ms"])}).items():
                    batches_of[key].append(_some(np.asarray(some.to_numpy(zero_copy_only=False), np.float64), quota))
    except (OSError, ValueError, KeyError):  # pyarrow's exceptions are such
        return {}
    samples = {key: np.concatenate(parts) for key, parts in batches_of.items() if parts}
    return {key: _thinned(values) for key, values in samples.items() if len(values)}


def _some(values: NDArray[np.float64], most: int) -> NDArray[np.float64]:
    """About `most` of them, at random: every n-th of the gaps of answers of one length would be the same gap of each."""
    return values if len(values) <= most else values[np.random.default_rng(0).random(len(values)) < most / len(values)]


def _thinned(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """At most `MOST_SAMPLES` of them: every n-th of the sorted values, which keeps their distribution."""
    values = np.sort(values[np.isfinite(values)])
    return values if len(values) <= MOST_SAMPLES else values[np.linspace(0, len(values) - 1, MOST_SAMPLES).round().astype(int)]
