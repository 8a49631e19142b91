"""Data sets from the Hugging Face Hub or in its formats (Parquet, JSON, folders), read with the
package `datasets`.

A spec is `hf:REPO`, `hf:REPO:split` (default: train) or `hf:REPO:configuration:split`. REPO may
also be a local file or folder, read without network. `datasets` is imported when a data set is
opened, because that takes a second. It keeps its cache in `HF_HOME`.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from llama_load.ground.errors import UsageError
from llama_load.loadgen.workloads.data_files import (
    MOST_DATA_BYTES,
    PIECE_BYTES,
    DataFile,
)
from llama_load.loadgen.workloads.prompt_plan import DataFacts
from llama_load.outside.foreign_files import open_foreign
from llama_load.outside.foreign_text import printable

HUB = "hf:"
DEFAULT_SPLIT = "train"
# Images are chosen among this many: enough variety for a small download.
IMAGE_POOL = 256
# Of prompts and conversations that are sent in their order.
MOST_HUB_ROWS = 20_000
_FORMATS = {".parquet": "parquet", ".json": "json", ".jsonl": "json"}
# Of one image.
MOST_IMAGE_BYTES = 256 * 2**20
_IMAGE_COLUMNS = ("image", "images", "picture")


class DataSet:
    """A split of a data set, streamed: only what is read is downloaded.

    UsageError: it cannot be reached, does not exist, has no such split, or is in no known format.
    """

    def __init__(self, spec: str) -> None:
        self.spec = spec
        place = place_of(spec)
        self._source = place.source
        self._rows: Any = self._loaded(place)
        names = self._rows.column_names
        self.columns = list(
            next(self._read(self._rows), {}) if names is None else names
        )

    @property
    def facts(self) -> DataFacts:
        """For the manifest: the spec and, for a local file, its hash."""
        file = Path(self._source)
        if not file.is_file():
            return DataFacts(path=self.spec)
        with open_foreign(file, MOST_DATA_BYTES) as opened:
            digest = hashlib.sha256()
            while piece := opened.read(PIECE_BYTES):
                digest.update(piece)
        return DataFacts(path=self.spec, sha256=digest.hexdigest())

    def first_of(self, names: Sequence[str]) -> str:
        """The first of these columns that exists. UsageError lists the existing columns."""
        for name in names:
            if name in self.columns:
                return name
        raise UsageError(
            f"the data set {self.spec} has no column {' or '.join(names)}; it has "
            f"{', '.join(self.columns) or 'none'}"
        )

    def rows(self, columns: Sequence[str] | None = None) -> Iterator[dict[str, Any]]:
        """The rows in order, with all columns or only these."""
        for column in columns or ():
            self.first_of([column])
        return self._read(
            self._rows if columns is None else self._rows.select_columns(list(columns))
        )

    def images(self, count: int, seed: int) -> list[bytes]:
        """`count` images drawn with the seed, as encoded files (JPEG, PNG, …); fewer if the data
        set has fewer.

        Read from the first image column, or one named image, images or picture. UsageError: there
        is none.
        """
        column = self._image_column()
        pictures = (
            image for row in self.rows([column]) for image in _pictures(row[column])
        )
        pool = list(islice(pictures, max(count, IMAGE_POOL)))
        if not pool:
            raise UsageError(
                f"the column {column} of the data set {self.spec} contains no images"
            )
        random.Random(seed).shuffle(pool)
        return [self._file(image) for image in pool[:count]]

    def _loaded(self, place: Place) -> Any:
        local = Path(self._source)
        if not local.exists() and (
            not self.spec.startswith(HUB) or self._source.startswith(("/", "."))
        ):
            raise UsageError(
                f"there is no data set at {local}; give the path of a file with --dataset-path"
            )
        try:
            import datasets
        except ImportError:
            raise UsageError(
                f"the data set {self.spec} needs the package datasets: pip install datasets"
            ) from None
        try:
            if local.is_file():
                kind = _FORMATS.get(local.suffix.lower())
                if kind is None:
                    raise UsageError(
                        f"the data set {local} is not a Parquet, JSON or JSONL file (.parquet, "
                        ".json, .jsonl)"
                    )
                builder = datasets.load_dataset_builder(kind, data_files=str(local))
            else:
                builder = datasets.load_dataset_builder(
                    self._source, place.configuration
                )
            # What is checked is what is opened: the README of a folder or repository may name any
            # file or URL. What the package has prepared in its cache has none.
            for files in (builder.config.data_files or {}).values():
                for file in files:
                    self._check_place(str(file), "file")
            rows = builder.as_streaming_dataset(split=place.split)
            # Keep images encoded; only data sets with declared columns can have any.
            return rows.decode(False) if rows.features else rows
        except UsageError:
            raise
        # the Hub's, Arrow's and the disk's errors pass through the package
        except Exception as error:
            raise self._refused(error) from None

    def _read(self, rows: Any) -> Iterator[dict[str, Any]]:
        try:
            yield from rows
        except Exception as error:  # see `_loaded`
            raise self._refused(error) from None

    def _image_column(self) -> str:
        import datasets

        features: dict[str, Any] = self._rows.features or {}
        for name, feature in features.items():
            if isinstance(getattr(feature, "feature", feature), datasets.Image):
                return name
        return self.first_of(_IMAGE_COLUMNS)

    def _file(self, image: bytes | str) -> bytes:
        if isinstance(image, bytes):
            return image
        self._check_place(image, "image")
        import fsspec

        try:
            with fsspec.open(image, "rb") as file:
                data = bytes(file.read(MOST_IMAGE_BYTES + 1))
        except Exception as error:  # see `_loaded`
            raise self._refused(error) from None
        if len(data) > MOST_IMAGE_BYTES:
            raise UsageError(
                f"an image of the data set {self.spec} is larger than "
                f"{MOST_IMAGE_BYTES // 2**20} MiB"
            )
        return data

    def _check_place(self, path: str, what: str) -> None:
        """A README or cell may name a file: one of the data set's own, on this machine or in its
        repository on the Hub, and no other. A link is where it leads to."""
        own = Path(self._source)
        if own.exists():
            folder = own.resolve() if own.is_dir() else own.resolve().parent
            file = Path(folder, path.removeprefix("file://"))
            is_own = file.resolve().is_relative_to(folder) or (
                own.is_file() and file.samefile(own)
            )
            good = "::" not in path and file.is_file() and is_own
        else:
            good = path.startswith(f"hf://datasets/{self._source}@") or path.startswith(
                f"hf://datasets/{self._source}/"
            )
            good = good and "::" not in path and ".." not in path
        if not good:
            raise UsageError(
                f"the data set {self.spec} names the {what} {printable(path, 200)}, which is not "
                "a file of its own"
            )

    def _refused(self, error: Exception) -> UsageError:
        reason = (
            (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(".")
        )
        if Path(self._source).exists():
            return UsageError(f"the data set {self.spec} cannot be read: {reason}")
        if isinstance(error, ValueError):  # a missing split or configuration
            return UsageError(f"the data set {self.spec} cannot be used: {reason}")
        return UsageError(
            f"the data set {self.spec} cannot be reached: {reason}; give a local file with "
            "--dataset-path FILE, "
            "or fill the cache on a machine with network: llama-load datasets fetch"
        )


@dataclass(frozen=True, slots=True)
class Place:
    """A repository or path, a configuration (subset) of it, and a split."""

    source: str
    configuration: str | None = None
    split: str = DEFAULT_SPLIT


def place_of(spec: str) -> Place:
    """hf:lmms-lab/chat:test is the split test, hf:lmms-lab/chat:small:test that of the
    configuration small. A file name may contain a colon."""
    source = spec.removeprefix(HUB)
    if not source:
        raise UsageError(
            "hf: must be followed by a repository of the Hub, such as hf:OWNER/NAME or "
            "hf:OWNER/NAME:split"
        )
    name, colon, split = source.rpartition(":")
    if not colon or Path(source).exists():
        return Place(source)
    repository, colon, configuration = name.rpartition(":")
    if not colon or Path(name).exists():
        return Place(name, None, split or DEFAULT_SPLIT)
    return Place(repository, configuration or None, split or DEFAULT_SPLIT)


def data_file(spec: str, layout: str) -> DataFile:
    """A file, or the first rows of a data set of the Hub. UsageError: it cannot be read."""
    if not spec.startswith(HUB):
        return DataFile(Path(spec), layout)
    rows = islice(DataSet(spec).rows(), MOST_HUB_ROWS)
    return DataFile.of_rows(rows, spec, layout)


def _pictures(value: Any) -> list[bytes | str]:
    """The images in a cell, each as its bytes, path or URL."""
    if isinstance(value, (list, tuple)):
        return [image for item in value for image in _pictures(item)]
    if isinstance(value, dict):
        value = value.get("bytes") or value.get("path")
    return [value] if value and isinstance(value, (bytes, str)) else []
