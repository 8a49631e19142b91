"""What a .gguf file is, as llama-bench prints it: model type, size of the tensors, parameters. Only its header is read."""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import IO, Any

from llama_load.foreign_files import open_foreign

# Bounds of a header: 256 MB of metadata (vocabularies take 10), as many entries as the largest models have, ten times over.
MOST_BYTES, MOST_ENTRIES, MOST_TENSORS, MOST_ARRAY, MOST_TEXT = 256 << 20, 100_000, 1_000_000, 4_000_000, 16 << 20
_SCALARS = {0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q", 11: "<q", 12: "<d"}
_STRING, _ARRAY = 8, 9
# general.file_type, as llama.cpp names it (llama_model_ftype_name).
_FILE_TYPES = {
    **{0: "all F32", 1: "F16", 2: "Q4_0", 3: "Q4_1", 7: "Q8_0", 8: "Q5_0", 9: "Q5_1", 10: "Q2_K - Medium", 11: "Q3_K - Small"},
    **{12: "Q3_K - Medium", 13: "Q3_K - Large", 14: "Q4_K - Small", 15: "Q4_K - Medium", 16: "Q5_K - Small", 17: "Q5_K - Medium"},
    **{18: "Q6_K", 19: "IQ2_XXS - 2.0625 bpw", 20: "IQ2_XS - 2.3125 bpw", 21: "Q2_K - Small", 22: "IQ3_XS - 3.3 bpw"},
    **{23: "IQ3_XXS - 3.0625 bpw", 24: "IQ1_S - 1.5625 bpw", 25: "IQ4_NL - 4.5 bpw", 26: "IQ3_S - 3.4375 bpw"},
    **{27: "IQ3_S mix - 3.66 bpw", 28: "IQ2_S - 2.5 bpw", 29: "IQ2_M - 2.7 bpw", 30: "IQ4_XS - 4.25 bpw", 31: "IQ1_M - 1.75 bpw"},
    **{32: "BF16", 36: "TQ1_0 - 1.69 bpw ternary", 37: "TQ2_0 - 2.06 bpw ternary", 38: "MXFP4 MoE"},
    **{39: "NVFP4", 40: "Q1_0", 41: "Q2_0"},
}


@dataclass(frozen=True, slots=True)
class GgufFacts:
    """A model: architecture, quantization, parameters, bytes of its tensors and of the file."""

    architecture: str
    size_label: str
    quantization: str
    params: int
    tensor_bytes: int
    file_bytes: int

    @property
    def model_type(self) -> str:
        """`llama 3B Q6_K`."""
        return " ".join(filter(None, (self.architecture, self.size_label, self.quantization)))


def gguf_facts(path: Path) -> GgufFacts | None:
    """The facts of a file; None if it cannot be read or is not GGUF."""
    try:
        stat = path.stat()
        return _facts(path, stat.st_size, stat.st_mtime_ns)
    except (OSError, struct.error, ValueError, OverflowError):
        return None


@cache
def _facts(path: Path, file_bytes: int, _: int) -> GgufFacts:
    with open_foreign(path, math.inf) as file:
        reader = _Header(file)
        if file.read(4) != b"GGUF":
            raise ValueError("no GGUF")
        version, tensors, entries = reader.number("<I"), reader.number("<Q"), reader.number("<Q")
        if version not in (2, 3) or tensors > MOST_TENSORS or entries > MOST_ENTRIES:
            raise ValueError("damaged")
        metadata = {}
        for _ in range(entries):
            name = reader.text()
            metadata[name] = reader.value(reader.number("<I"))
        params = 0
        for _ in range(tensors):
            reader.text()
            elements = 1
            for _ in range(_within(reader.number("<I"), 8)):
                elements *= reader.number("<Q")
            params += elements
            reader.number("<I")
            reader.number("<Q")
        alignment = int(metadata.get("general.alignment") or 32)
        data_begins = -(-file.tell() // max(1, alignment)) * alignment
    architecture = str(metadata.get("general.architecture") or "unknown")[:60]
    quantization = _FILE_TYPES.get(int(metadata.get("general.file_type") or 0), "unknown quantization")
    label = str(metadata.get("general.size_label") or _rounded(params))[:20]
    return GgufFacts(architecture, label, quantization, params, max(0, file_bytes - data_begins), file_bytes)


def _rounded(params: int) -> str:
    """3_212_749_888 -> 3B, as llama.cpp names sizes."""
    return f"{params / 1e9:.0f}B" if params >= 1e9 else f"{params / 1e6:.0f}M" if params >= 1e6 else f"{params / 1e3:.0f}K"


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
        return int(struct.unpack(format_, self._file.read(struct.calcsize(format_)))[0])

    def text(self) -> str:
        """A string."""
        return self._file.read(_within(self.number("<Q"), MOST_TEXT)).decode("utf-8", "replace")

    def value(self, kind: int) -> Any:
        """A scalar or a string; None for an array."""
        if kind == _STRING:
            return self.text()
        if kind == _ARRAY:
            self._skip_array()
            return None
        if kind not in _SCALARS:
            raise ValueError("damaged")
        return struct.unpack(_SCALARS[kind], self._file.read(struct.calcsize(_SCALARS[kind])))[0]

    def _skip_array(self) -> None:
        item, count = self.number("<I"), _within(self.number("<Q"), MOST_ARRAY)
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
