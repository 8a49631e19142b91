"""Whether what a run printed is what its records give: every figure is computed again and compared."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from llama_load.analysis.results import Results, analyze
from llama_load.analysis.run_summary import OURS, SUMMARY
from llama_load.errors import UsageError
from llama_load.foreign_files import read_foreign, read_foreign_json
from llama_load.foreign_text import printable, redacted
from llama_load.languages import LANGUAGES
from llama_load.reports.block import block
from llama_load.reports.result_json import result_json
from llama_load.reports.write import markdown
from llama_load.run_folder import load_run
from llama_load.version import __version__

BLOCK, REPORT = "summary.txt", "report.md"
# What a later report says otherwise, though nothing was changed: how this process read the folder.
OF_THE_READER = ("recovered",)
# JSON has every digit of a float; sums over rows that were read in other pieces may differ in the last ones.
RELATIVE = 1e-9
HOLDS, HOLDS_NOT, UNKNOWN = "✓", "✗", "?"
MOST_CHARS = 60


@dataclass(frozen=True, slots=True)
class Verified:
    """A figure as it was printed and as the records give it; `holds` is None where it cannot be computed again."""

    where: str
    name: str
    printed: str
    computed: str
    holds: bool | None

    @property
    def mark(self) -> str:
        """✓, ✗ or ?."""
        return {True: HOLDS, False: HOLDS_NOT, None: UNKNOWN}[self.holds]


@dataclass(frozen=True, slots=True)
class Verification:
    """All figures of a run, those of the records first."""

    rows: list[Verified]

    @property
    def holds(self) -> bool:
        """Whether none of them is another than the records give."""
        return all(row.holds is not False for row in self.rows)


def verify_run(folder: Path) -> Verification:
    """Compute every figure of a run again. Raises UsageError and RunError: the folder cannot be read, or has no summary."""
    results = analyze(load_run(folder))
    return Verification([*_records(results), *_summary(folder, results), *_block(folder, results), *_report(folder, results)])


def _records(results: Results) -> Iterator[Verified]:
    """The table against what run.json says of it."""
    run = results.run
    written = run.manifest.records
    rows = len(run.records)
    if written is None:
        yield Verified("run.json", "rows and digest", "none", f"{rows} rows", None)
    else:
        yield Verified("run.json", "rows", str(written.rows), str(rows), rows == written.rows)
    changed = run.changed or []
    for sentence in changed:
        yield Verified("requests.parquet", "records", "as written", sentence, False)
    if run.changed is not None and not changed:
        yield Verified("requests.parquet", "records", "as written", "as written", True)
    if run.manifest.version != __version__:
        yield Verified("run.json", "version", printable(run.manifest.version, MOST_CHARS), __version__, None)


def _summary(folder: Path, results: Results) -> Iterator[Verified]:
    """Every value of summary.json."""
    try:
        printed = read_foreign_json(folder / SUMMARY)
    except OSError as error:
        raise UsageError(f"{folder} has no {SUMMARY} that can be read ({error.strerror}): 'llama-load report' writes it") from None
    except ValueError as error:
        yield Verified(SUMMARY, "the file", printable(str(error), MOST_CHARS), "a JSON object", False)
        return
    computed = json.loads(redacted(msgspec.json.encode(result_json(results)).decode()))
    for ours in (printed.get(OURS), computed[OURS]):
        if isinstance(ours, dict):
            for name in OF_THE_READER:
                ours.pop(name, None)
    yield from _values("", printed, computed)


def _values(name: str, printed: Any, computed: Any) -> Iterator[Verified]:
    """The leaves of two JSON values, side by side."""
    if isinstance(printed, dict) and isinstance(computed, dict):
        for key in dict.fromkeys((*printed, *computed)):
            yield from _member(f"{name}.{key}" if name else key, key, printed, computed)
    elif isinstance(printed, list) and isinstance(computed, list) and len(printed) == len(computed):
        for place, (one, other) in enumerate(zip(printed, computed, strict=True)):
            yield from _values(f"{name}[{place}]", one, other)
    else:
        yield Verified(SUMMARY, printable(name, None), _shown(printed), _shown(computed), _are_equal(printed, computed))


def _member(name: str, key: str, printed: Mapping[str, Any], computed: Mapping[str, Any]) -> Iterator[Verified]:
    """A key that both have; one that only the file has was not computed, one that it lacks was not printed (older version)."""
    if key in printed and key in computed:
        yield from _values(name, printed[key], computed[key])
    elif key in printed:
        yield Verified(SUMMARY, printable(name, None), _shown(printed[key]), "not computed", None)
    else:
        yield Verified(SUMMARY, printable(name, None), "not printed", _shown(computed[key]), None)


def _are_equal(printed: Any, computed: Any) -> bool:
    if isinstance(printed, int | float) and isinstance(computed, int | float) and not isinstance(printed, bool):
        return math.isclose(printed, computed, rel_tol=RELATIVE)
    return bool(printed == computed)


def _shown(value: Any) -> str:
    return "n/a" if value is None else printable(str(value), MOST_CHARS)


def _block(folder: Path, results: Results) -> Iterator[Verified]:
    """Every line of the block in summary.txt."""
    yield from _lines(folder, BLOCK, [block(results)])


def _report(folder: Path, results: Results) -> Iterator[Verified]:
    """Every line of report.md, in the language in which it was written."""
    text = block(results)
    yield from _lines(folder, REPORT, [markdown(results, text, language) for language in LANGUAGES])


def _lines(folder: Path, name: str, candidates: list[str]) -> Iterator[Verified]:
    """The lines of a text that should be one of `candidates`: those that differ from the nearest one, else one row for all."""
    from difflib import SequenceMatcher

    try:
        printed = read_foreign(folder / name).decode("utf-8", "replace").splitlines()
    except OSError:
        yield Verified(name, "the file", "none", "a text", None)
        return
    texts = [redacted(candidate).splitlines() for candidate in candidates]
    computed = max(texts, key=lambda lines: len(set(lines) & set(printed)))
    if printed == computed:
        yield Verified(name, "every line", f"{len(printed)} lines", f"{len(computed)} lines", True)
        return
    steps = SequenceMatcher(None, printed, computed, autojunk=False).get_opcodes()
    for kind, start, end, other_start, other_end in steps:
        if kind != "equal":
            before = " / ".join(line.strip() for line in printed[start:end])
            after = " / ".join(line.strip() for line in computed[other_start:other_end])
            yield Verified(name, f"line {start + 1}", _shown(before or None), _shown(after or None), False)
