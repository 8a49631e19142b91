"""What a .gguf file is, as llama-bench prints it: model type, size of the tensors, parameters.

Only its header is read, and samples of its weights.
"""

from __future__ import annotations

import hashlib
import math
import struct
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import IO, Any

from llama_load.outside.foreign_files import open_foreign

# Bounds of a header: 256 MB of metadata (vocabularies take 10), as many entries as the largest
# models have, ten times over.
MOST_BYTES = 256 << 20
MOST_ENTRIES = 100_000
MOST_TENSORS = 1_000_000
MOST_ARRAY = 4_000_000
MOST_TEXT = 16 << 20
# Of the weights: two models that differ do so everywhere.
SAMPLES = 16
SAMPLE_BYTES = 4 << 10
_SCALARS = {
    0: "<B",
    1: "<b",
    2: "<H",
    3: "<h",
    4: "<I",
    5: "<i",
    6: "<f",
    7: "<?",
    10: "<Q",
    11: "<q",
    12: "<d",
}
_STRING = 8
_ARRAY = 9
# general.file_type, as llama.cpp names it (llama_model_ftype_name).
# fmt: off
_FILE_TYPES = {
    0: "all F32", 1: "F16", 2: "Q4_0", 3: "Q4_1", 7: "Q8_0", 8: "Q5_0", 9: "Q5_1",
    10: "Q2_K - Medium", 11: "Q3_K - Small", 12: "Q3_K - Medium", 13: "Q3_K - Large",
    14: "Q4_K - Small", 15: "Q4_K - Medium", 16: "Q5_K - Small", 17: "Q5_K - Medium",
    18: "Q6_K", 19: "IQ2_XXS - 2.0625 bpw", 20: "IQ2_XS - 2.3125 bpw", 21: "Q2_K - Small",
    22: "IQ3_XS - 3.3 bpw", 23: "IQ3_XXS - 3.0625 bpw", 24: "IQ1_S - 1.5625 bpw",
    25: "IQ4_NL - 4.5 bpw", 26: "IQ3_S - 3.4375 bpw", 27: "IQ3_S mix - 3.66 bpw",
    28: "IQ2_S - 2.5 bpw", 29: "IQ2_M - 2.7 bpw", 30: "IQ4_XS - 4.25 bpw",
    31: "IQ1_M - 1.75 bpw", 32: "BF16", 36: "TQ1_0 - 1.69 bpw ternary",
    37: "TQ2_0 - 2.06 bpw ternary", 38: "MXFP4 MoE", 39: "NVFP4", 40: "Q1_0", 41: "Q2_0",
}
# fmt: on


@dataclass(frozen=True, slots=True)
class GgufFacts:
    """A model: architecture, quantization, parameters, bytes of its tensors and of the file.

    `weights`: a digest of samples of the tensors, equal for files of equal weights."""

    architecture: str
    size_label: str
    quantization: str
    params: int
    tensor_bytes: int
    file_bytes: int
    weights: str

    @property
    def model_type(self) -> str:
        """`llama 3B Q6_K`."""
        parts = (self.architecture, self.size_label, self.quantization)
        return " ".join(part for part in parts if part)


def gguf_facts(path: Path) -> GgufFacts | None:
    """The facts of a file; None if it cannot be read or is not GGUF."""
    try:
        stat = path.stat()
        return _facts_of_header(path, stat.st_size, stat.st_mtime_ns)
    except (OSError, struct.error, ValueError, OverflowError):
        return None


@cache
def _facts_of_header(path: Path, file_bytes: int, _: int) -> GgufFacts:
    with open_foreign(path, math.inf) as file:
        if file.read(4) != b"GGUF":
            raise ValueError("no GGUF")
        header = _Header(file)
        version = header.number("<I")
        tensors = header.number("<Q")
        entries = header.number("<Q")
        if version not in (2, 3) or tensors > MOST_TENSORS or entries > MOST_ENTRIES:
            raise ValueError("damaged")

        metadata = {}
        for _ in range(entries):
            name = header.text()
            metadata[name] = header.value(header.number("<I"))

        params = 0
        for _ in range(tensors):
            params += header.elements_of_tensor()

        alignment = max(1, int(metadata.get("general.alignment") or 32))
        blocks = math.ceil(file.tell() / alignment)
        data_begins = blocks * alignment
        weights = _digest_of_samples(file, data_begins, file_bytes)

    architecture = str(metadata.get("general.architecture") or "unknown")
    file_type = int(metadata.get("general.file_type") or 0)
    label = str(metadata.get("general.size_label") or _rounded(params))
    return GgufFacts(
        architecture[:60],
        label[:20],
        _FILE_TYPES.get(file_type, "unknown quantization"),
        params,
        max(0, file_bytes - data_begins),
        file_bytes,
        weights,
    )


def _digest_of_samples(file: IO[bytes], begin: int, end: int) -> str:
    """Of so many samples from the first to the last byte of the tensors, and of their size."""
    digest = hashlib.sha256(str(end - begin).encode())
    step = max(1, (end - begin) // SAMPLES)
    for at in range(begin, end, step):
        file.seek(at)
        digest.update(file.read(SAMPLE_BYTES))
    return digest.hexdigest()


def _rounded(params: int) -> str:
    """3_212_749_888 -> 3B, as llama.cpp names sizes."""
    if params >= 1e9:
        return f"{params / 1e9:.0f}B"
    if params >= 1e6:
        return f"{params / 1e6:.0f}M"
    return f"{params / 1e3:.0f}K"


def _within(count: int, most: int) -> int:
    if count > most:
        raise ValueError("damaged")
    return count


class _Header:
    """Reads a header's values in order; arrays are skipped."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file

    def number(self, format_: str) -> int:
        """An integer."""
        return int(self._scalar(format_))

    def _scalar(self, format_: str) -> Any:
        (scalar,) = struct.unpack(format_, self._file.read(struct.calcsize(format_)))
        return scalar

    def text(self) -> str:
        """A string."""
        length = _within(self.number("<Q"), MOST_TEXT)
        return self._file.read(length).decode("utf-8", "replace")

    def value(self, kind: int) -> Any:
        """A scalar or a string; None for an array."""
        if kind == _STRING:
            return self.text()
        if kind == _ARRAY:
            self._skip_array()
            return None
        if kind not in _SCALARS:
            raise ValueError("damaged")
        return self._scalar(_SCALARS[kind])

    def elements_of_tensor(self) -> int:
        """Read the description of a tensor: its name, its dimensions, its type and its place."""
        self.text()
        elements = 1
        dimensions = _within(self.number("<I"), 8)
        for _ in range(dimensions):
            elements *= self.number("<Q")
        self.number("<I")
        self.number("<Q")
        return elements

    def _skip_array(self) -> None:
        item = self.number("<I")
        count = _within(self.number("<Q"), MOST_ARRAY)
        if item == _STRING:
            for _ in range(count):
                self._skip(_within(self.number("<Q"), MOST_TEXT))
        elif item in _SCALARS:
            self._skip(count * struct.calcsize(_SCALARS[item]))
        else:
            raise ValueError("damaged")

    def _skip(self, count: int) -> None:
        self._file.seek(count, 1)
        _within(self._file.tell(), MOST_BYTES)
