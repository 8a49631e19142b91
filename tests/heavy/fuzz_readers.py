"""A coverage-guided fuzzer on everything that reads bytes of others (`tests.foreign_readers`):
fuzz_readers.py -max_total_time=60 CORPUS

The input's first byte chooses the reader. `fuzz_readers.py --seeds CORPUS` writes what the readers
accept to begin from.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import atheris

# Readers of the relay need threads, not greenlets.
os.environ["LOCUST_SKIP_MONKEY_PATCH"] = "1"
with atheris.instrument_imports(include=["llama_load"]):
    from tests.foreign_readers import READERS, attempt, put

NAMES = tuple(READERS)


def write_seeds(corpus: Path) -> None:
    for number, reader in enumerate(READERS.values()):
        (corpus / str(number)).write_bytes(bytes([number]) + reader.good)


def main() -> None:
    if sys.argv[1] == "--seeds":
        write_seeds(Path(sys.argv[2]))
        return
    with TemporaryDirectory() as folder:
        files = {
            name: put(reader, Path(folder, name)) for name, reader in READERS.items()
        }

        def one(data: bytes) -> None:
            name = NAMES[(data[0] if data else 0) % len(NAMES)]
            attempt(READERS[name], files[name], data[1:])

        atheris.Setup(sys.argv, one)
        atheris.Fuzz()


if __name__ == "__main__":
    main()
