"""What the programs of this folder have in common that run a client and write rows for truth."""

from __future__ import annotations

import argparse
import csv
from collections.abc import Mapping, Sequence
from pathlib import Path

Row = Mapping[str, object]


def arguments_of(description: str) -> argparse.Namespace:
    """What truth fills in: `url`, `requests`, `tokens`, `streams`, `csv`, `programs`."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--url", required=True)
    parser.add_argument("--requests", type=int, required=True)
    parser.add_argument("--tokens", type=int, required=True)
    parser.add_argument("--streams", type=int, required=True)
    parser.add_argument("--csv", type=Path, required=True)
    parser.add_argument("--programs", type=Path, required=True)
    return parser.parse_args()


def write_rows(path: Path, columns: Sequence[str], rows: Sequence[Row]) -> None:
    """As truth/tools/csv_rows.py reads them."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, columns)
        writer.writeheader()
        writer.writerows(rows)
