"""The available data sets, and downloads.

Available are those included with llama-load and those in Hugging Face's cache, to which downloads
go.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from llama_load.ground.bundled import bundled
from llama_load.ground.errors import UsageError
from llama_load.loadgen.workloads.huggingface import (
    DEFAULT_SPLIT,
    HUB,
    DataSet,
    place_of,
)
from llama_load.loadgen.workloads.sharegpt import Conversations
from llama_load.outside.foreign_files import read_foreign_json

# The package `datasets` stores local files under these names; they are not data sets of the Hub.
_FROM_FILES = frozenset(
    ("arrow", "csv", "json", "parquet", "text", "generator", "imagefolder", "pandas")
)
# The flag that takes a data set included with llama-load (--text is one of llama-load perplexity);
# the others are for --dataset-path.
DATASET_FLAG = "--dataset-path"
_FLAGS = {
    "azure_sample.csv": "--trace",
    "bailian_sample.jsonl": "--trace",
    "burstgpt_sample.csv": "--trace",
    "mooncake_sample.jsonl": "--trace",
    "perplexity_text.txt": "--text",
    "sample_document.md": "--document",
}
_REPOSITORY = re.compile(r"hf://datasets/([^@]{1,200})@")


@dataclass(frozen=True, slots=True)
class Available:
    """A data set that needs no network.

    `name` is what `flag` takes, `holds` its contents in words.
    """

    name: str
    holds: str
    size_bytes: int
    flag: str = DATASET_FLAG


def samples() -> list[Available]:
    """The data sets included with llama-load, by name."""
    included = []

    for file in sorted(bundled("datasets").iterdir()):
        if file.name != "README.md" and file.is_file():
            flag = _FLAGS.get(file.name, DATASET_FLAG)
            size_bytes = file.stat().st_size
            included.append(
                Available(_short_path(file), _contents(file), size_bytes, flag)
            )

    return included


def hf_cache_folder() -> Path:
    """The folder of the package `datasets`.

    Found by that package's rules without importing it, which takes a second.
    """
    folder = os.environ.get("HF_DATASETS_CACHE")
    if folder:
        return Path(folder).expanduser()

    home = os.environ.get("HF_HOME")
    if home:
        return Path(home).expanduser() / "datasets"

    cache = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(cache).expanduser() / "huggingface" / "datasets"


def cached() -> list[Available]:
    """The Hub's data sets in the cache of the package `datasets`, by name, one entry per split."""
    files = list(hf_cache_folder().glob("*/*/*/*/dataset_info.json"))
    files.sort(key=lambda file: file.stat().st_mtime)

    by_name: dict[str, Available] = {}
    for file in files:
        if file.parents[3].name in _FROM_FILES:
            continue
        # Of two copies of a split, the later one counts.
        for split in _splits(file):
            by_name[split.name] = split

    return [by_name[name] for name in sorted(by_name)]


def fetch(spec: str) -> tuple[int, list[str]]:
    """Download a data set of the Hub into the package's cache.

    Returns its number of rows and its columns. UsageError: it is not a Hub spec, cannot be reached,
    or does not exist.
    """
    place = place_of(spec)
    if not spec.startswith(HUB) or Path(place.source).expanduser().exists():
        raise UsageError(
            f"{spec} is not on the Hugging Face Hub; fetch takes hf:OWNER/NAME[:SPLIT], "
            "and local files need no fetching"
        )

    data = DataSet(spec)
    import datasets

    try:
        rows = datasets.load_dataset(
            place.source, place.configuration, split=place.split
        )
    except (
        Exception
    ) as error:  # the Hub's, Arrow's and the disk's errors pass through the package
        message = str(error).strip() or type(error).__name__
        reason = message.splitlines()[0]
        raise UsageError(
            f"the data set {spec} could not be downloaded: {reason}; "
            "fetch it again, finished parts are kept"
        ) from None

    return len(rows), data.columns


def _contents(file: Path) -> str:
    """What a data set included with llama-load holds, in words."""
    if file.suffix in (".jsonl", ".csv"):
        with file.open("rb") as lines:
            return f"{sum(1 for _ in lines)} lines"

    if file.suffix != ".json":
        return "a document"

    try:
        return f"{len(Conversations(file))} conversations"
    except UsageError:  # spans are one object, and have a reader of their own
        return "spans"


def _short_path(file: Path) -> str:
    """The path as typed in this folder."""
    here = Path.cwd()
    if file.is_relative_to(here):
        return str(file.relative_to(here))
    return str(file)


def _splits(file: Path) -> Iterator[Available]:
    """The splits that a `dataset_info.json` of the cache describes."""
    try:
        info: dict[str, Any] = read_foreign_json(file)
        sources = " ".join(info.get("download_checksums") or ())

        # The folder's name is in lower case, its sources keep their case.
        repository = file.parents[3].name.replace("___", "/")
        in_sources = _REPOSITORY.search(sources)
        if in_sources:
            repository = in_sources[1]

        splits = info.get("splits") or {}
        for split, about in splits.items():
            name = f"{HUB}{repository}"
            if split != DEFAULT_SPLIT:
                name += f":{split}"
            yield Available(name, f"{about['num_examples']:,} rows", about["num_bytes"])
    except (
        OSError,
        msgspec.DecodeError,
        KeyError,
        TypeError,
        ValueError,
        AttributeError,
    ):
        return  # an incomplete data set
