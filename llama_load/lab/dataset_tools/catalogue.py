"""The available data sets: those included with llama-load and those in Hugging Face's cache; and downloads to the cache."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from llama_load.bundled import bundled
from llama_load.errors import UsageError
from llama_load.foreign_files import read_foreign_json
from llama_load.workloads.huggingface import DEFAULT_SPLIT, HUB, DataSet
from llama_load.workloads.sharegpt import Conversations

# The package `datasets` stores local files under these names; they are not data sets of the Hub.
_FROM_FILES = frozenset(("arrow", "csv", "json", "parquet", "text", "generator", "imagefolder", "pandas"))
_REPOSITORY = re.compile(r"hf://datasets/([^@]{1,200})@")


@dataclass(frozen=True, slots=True)
class Available:
    """A data set that needs no network: its --dataset-path, its contents in words, its size on disk in bytes."""

    name: str
    holds: str
    size_bytes: int


def samples() -> list[Available]:
    """The data sets included with llama-load, by name."""
    files = [file for file in sorted(bundled("datasets").iterdir()) if file.name != "README.md" and file.is_file()]
    return [Available(_short(file), _contents(file), file.stat().st_size) for file in files]


def hf_cache_folder() -> Path:
    """The folder of the package `datasets`, found by its rules without importing it, which takes a second."""
    if folder := os.environ.get("HF_DATASETS_CACHE"):
        return Path(folder).expanduser()
    home = os.environ.get("HF_HOME") or Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache") / "huggingface"
    return Path(home).expanduser() / "datasets"


def cached() -> list[Available]:
    """The Hub's data sets in the cache of the package `datasets`, by name, one entry per split."""
    available: dict[str, Available] = {}
    for file in sorted(hf_cache_folder().glob("*/*/*/*/dataset_info.json"), key=lambda file: file.stat().st_mtime):
        if file.parents[3].name not in _FROM_FILES:
            available |= {split.name: split for split in _splits(file)}
    return [available[name] for name in sorted(available)]


def fetch(spec: str) -> tuple[int, list[str]]:
    """Download a data set of the Hub into the package's cache; returns its number of rows and its columns.

    UsageError: it is not a Hub spec, cannot be reached, or does not exist.
    """
    source, _, split = spec.removeprefix(HUB).partition(":")
    if not spec.startswith(HUB) or Path(source).expanduser().exists():
        raise UsageError(f"{spec} is not on the Hugging Face Hub; fetch takes hf:OWNER/NAME, and local files need no fetching")
    data = DataSet(spec)
    import datasets

    try:
        rows = datasets.load_dataset(source, split=split or DEFAULT_SPLIT)
    except Exception as error:  # the Hub's, Arrow's and the disk's errors pass through the package
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise UsageError(
            f"the data set {spec} could not be downloaded: {reason}; fetch it again, finished parts are kept"
        ) from None
    return len(rows), data.columns


def _contents(file: Path) -> str:
    if file.suffix in (".jsonl", ".csv"):
        return f"{sum(1 for _ in file.open('rb'))} lines"
    try:
        return f"{len(Conversations(file))} conversations" if file.suffix == ".json" else "a document"
    except UsageError:  # spans are one object, and have a reader of their own
        return "spans"


def _short(file: Path) -> str:
    here = Path.cwd()
    return str(file.relative_to(here) if file.is_relative_to(here) else file)


def _splits(file: Path) -> Iterator[Available]:
    try:
        info: dict[str, Any] = read_foreign_json(file)
        sources = " ".join(info.get("download_checksums") or ())
        folder = file.parents[3].name
        # The folder's name is in lower case, its sources keep their case.
        repository = match[1] if (match := _REPOSITORY.search(sources)) else folder.replace("___", "/")
        for split, about in (info.get("splits") or {}).items():
            name = f"{HUB}{repository}" + ("" if split == DEFAULT_SPLIT else f":{split}")
            yield Available(name, f"{about['num_examples']:,} rows", about["num_bytes"])
    except (OSError, msgspec.DecodeError, KeyError, TypeError, ValueError, AttributeError):
        return  # an incomplete data set
