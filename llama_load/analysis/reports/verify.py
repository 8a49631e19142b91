"""Whether what a run printed is what its records give.

Every figure is computed again and compared.
"""

from __future__ import annotations

import html
import json
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec

from llama_load.analysis.comparison.last_run import AGAINST, is_against_last
from llama_load.analysis.reports.block import block
from llama_load.analysis.reports.first_screen import first_screen
from llama_load.analysis.reports.html.page import html_page
from llama_load.analysis.reports.picture import short_markdown
from llama_load.analysis.reports.result_json import result_json
from llama_load.analysis.reports.write import markdown
from llama_load.analysis.results.results import Results, analyze
from llama_load.analysis.results.run_summary import OURS, SUMMARY
from llama_load.ground.errors import UsageError
from llama_load.ground.languages import LANGUAGES
from llama_load.ground.version import __version__
from llama_load.outside.foreign_files import TooLarge, read_foreign, read_foreign_json
from llama_load.outside.foreign_text import printable, redacted
from llama_load.run_folder import MANIFEST, TABLE, load_run, result_schemas
from llama_load.run_folder.foreign_tables import (
    MOST_FILE_BYTES,
    WHOLE_TABLE,
    open_table,
)
from llama_load.run_folder.observed.record import schema
from llama_load.run_folder.reading import DIGESTED
from llama_load.run_folder.records_digest import sha256_of
from llama_load.run_folder.result_schemas import REQUESTS, VERSIONS

BLOCK = "summary.txt"
REPORT = "report.md"
PAGE = "report.html"
# The language of a page, which says how its headings are.
_LANGUAGE = re.compile(rb'<html lang="([a-z]{2,3})"')
# Of a sentence on a page, wrapped.
MOST_WRAPPED = 12
# Files of a folder that are named because nothing looks at them.
MOST_OTHER_FILES = 20
LOOKED_AT = frozenset((MANIFEST, SUMMARY, BLOCK, REPORT, PAGE, TABLE, *DIGESTED))
# What a later report says otherwise, though nothing was changed: how this process read the folder.
OF_THE_READER = ("recovered",)
# JSON has every digit of a float, but sums over rows that were read in other pieces may differ in
# the last digits.
RELATIVE = 1e-9
HOLDS = "✓"
HOLDS_NOT = "✗"
UNKNOWN = "?"
MOST_CHARS = 60
SCHEMA = "schema"
# More than a report or a summary has beyond that of another version.
MOST_LINES = 5000
# Of the name of a figure: all lines are as wide as the longest one.
MOST_NAME_CHARS = 200


@dataclass(frozen=True, slots=True)
class Verified:
    """A figure as it was printed and as the records give it.

    `holds` is None where it cannot be computed again.
    """

    where: str
    name: str
    printed: str
    computed: str
    holds: bool | None

    @property
    def mark(self) -> str:
        """✓, ✗ or ?."""
        if self.holds is None:
            return UNKNOWN
        return HOLDS if self.holds else HOLDS_NOT


@dataclass(frozen=True, slots=True)
class Verification:
    """All figures of a run, those of the records first."""

    rows: list[Verified]

    @property
    def holds(self) -> bool:
        """Whether none of them is another than the records give."""
        return all(row.holds is not False for row in self.rows)


def verify_run(folder: Path) -> Verification:
    """Compute every figure of a run again.

    Raises UsageError and RunError: the folder cannot be read, or has no summary.
    """
    results = analyze(load_run(folder))
    rows = list(_of_schemas(folder))
    rows += _of_records(results)
    rows += _of_summary(folder, results)
    rows += _of_block(folder, results)
    rows += _of_report(folder, results)
    rows += _of_page(folder, results)
    rows += _of_other_files(folder)
    return Verification(rows)


def _of_schemas(folder: Path) -> Iterator[Verified]:
    """Each file against the schema of the version that it names."""
    for file, name in (
        (MANIFEST, result_schemas.RUN),
        (SUMMARY, result_schemas.SUMMARY),
    ):
        try:
            value = read_foreign_json(folder / file, inside=folder)
        except (OSError, ValueError):
            continue  # `_of_summary` says so
        yield _of_schema(file, name, value)

    yield _of_columns(folder / TABLE)


def _of_schema(file: str, name: str, value: Mapping[str, Any]) -> Verified:
    if result_schemas.KEY not in value:
        return Verified(file, SCHEMA, "none", "an older version wrote it", None)
    version = result_schemas.version_in(value, name)
    if version is None:
        printed = _shown(value[result_schemas.KEY])
        return Verified(file, SCHEMA, printed, f"known: {VERSIONS[name]}", None)

    fault = result_schemas.fault_in(value, name, version)
    if fault is None:
        return Verified(file, SCHEMA, f"version {version}", "follows it", True)
    return Verified(file, SCHEMA, f"version {version}", _shown(fault), False)


def _of_columns(file: Path) -> Verified:
    """The columns of the table, without a look at its rows."""
    try:
        with open_table(file, schema(), WHOLE_TABLE) as table:
            columns = table.columns.names
            written = table.metadata.get(result_schemas.PARQUET_KEY)
    except OSError as error:
        return Verified(TABLE, SCHEMA, "none", error.strerror or str(error), None)
    if written is None:
        return Verified(TABLE, SCHEMA, "none", "an older version wrote it", None)

    newest = VERSIONS[REQUESTS]
    known = {str(number).encode(): number for number in range(1, newest + 1)}
    version = known.get(written)
    if version is None:
        printed = _shown(written.decode("utf-8", "replace"))
        return Verified(TABLE, SCHEMA, printed, f"known: {newest}", None)

    wanted = result_schemas.schema_of(REQUESTS, version)["properties"]
    missing = ", ".join(sorted(set(wanted) - set(columns)))
    if missing:
        why = _shown(f"no {missing}")
        return Verified(TABLE, SCHEMA, f"version {version}", why, False)
    return Verified(TABLE, SCHEMA, f"version {version}", "follows it", True)


def _of_records(results: Results) -> Iterator[Verified]:
    """The table against what run.json says of it."""
    run = results.run
    written = run.manifest.records
    rows = len(run.records)
    if written is None:
        yield Verified("run.json", "rows and digest", "none", f"{rows} rows", None)
    else:
        yield Verified(
            "run.json", "rows", str(written.rows), str(rows), rows == written.rows
        )

    changed = run.changed or []
    for sentence in changed:
        yield Verified("requests.parquet", "records", "as written", sentence, False)

    if run.changed is not None and not changed:
        yield Verified("requests.parquet", "records", "as written", "as written", True)

    digests = run.manifest.digests or {}
    for name in DIGESTED:
        if name in digests:
            yield _of_file(run.path, name, digests[name])

    version = run.manifest.version
    if version != __version__:
        yield Verified(
            "run.json", "version", printable(version, MOST_CHARS), __version__, None
        )


def _of_file(folder: Path, name: str, digest: str) -> Verified:
    """A table (telemetry, probes) against its digest in run.json."""
    try:
        holds = sha256_of(folder / name, MOST_FILE_BYTES) == digest
    except (OSError, TooLarge) as error:
        why = _shown_reason(error)
        return Verified(name, "the file", "as written", why, False)

    how = "as written" if holds else "was changed after it was written"
    return Verified(name, "the file", "as written", how, holds)


def _shown_reason(error: Exception) -> str:
    """Why a file cannot be read."""
    if isinstance(error, FileNotFoundError):
        return "none"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return printable(str(error), MOST_CHARS)


def _of_page(folder: Path, results: Results) -> Iterator[Verified]:
    """Every line of report.html, in the language in which it was written.

    Nothing where the run has no page.
    """
    try:
        printed = read_foreign(folder / PAGE, inside=folder)
    except FileNotFoundError:
        return
    except (OSError, TooLarge) as error:
        yield Verified(PAGE, "the file", _shown_reason(error), "a page", None)
        return

    found = _LANGUAGE.search(printed)
    language = found[1].decode() if found else ""
    if language not in LANGUAGES:
        yield Verified(PAGE, "language", printable(language, MOST_CHARS), "n/a", False)
        return

    short = short_markdown(first_screen(results))
    page = html_page(results, block(results), language, short)
    yield from _of_text(folder, PAGE, [page], results.run.manifest.label)


def _of_other_files(folder: Path) -> Iterator[Verified]:
    """Files that nothing here looks at: what they say is not verified."""
    others = sorted(
        path.name
        for path in islice(folder.iterdir(), 1000)
        if path.name not in LOOKED_AT
    )
    for name in others[:MOST_OTHER_FILES]:
        yield Verified(
            printable(name, MOST_NAME_CHARS), "the file", "n/a", "not looked at", None
        )
    if len(others) > MOST_OTHER_FILES:
        more = f"{len(others) - MOST_OTHER_FILES} more files"
        yield Verified(more, "the file", "n/a", "not looked at", None)


def _of_summary(folder: Path, results: Results) -> Iterator[Verified]:
    """Every value of summary.json."""
    try:
        printed = read_foreign_json(folder / SUMMARY, inside=folder)
    except OSError as error:
        raise UsageError(
            f"{folder} has no {SUMMARY} that can be read ({error.strerror}): "
            "'llama-load report' writes it"
        ) from None
    except ValueError as error:
        why = printable(str(error), MOST_CHARS)
        yield Verified(SUMMARY, "the file", why, "a JSON object", False)
        return

    text = msgspec.json.encode(result_json(results)).decode()
    computed = json.loads(redacted(text))
    for summary in (printed, computed):
        summary.pop(result_schemas.KEY, None)  # `_of_schemas` has it
    for ours in (printed.get(OURS), computed[OURS]):
        if isinstance(ours, dict):
            for name in OF_THE_READER:
                ours.pop(name, None)

    printed_count = _leaves(printed)
    computed_count = _leaves(computed)
    # as of the lines of a text
    if printed_count > MOST_LINES + 2 * computed_count:
        printed_text = f"{printed_count:,} values"
        computed_text = f"{computed_count:,} values"
        yield Verified(SUMMARY, "every value", printed_text, computed_text, False)
        return

    yield from _values("", printed, computed)


def _leaves(value: Any) -> int:
    """How many values there are in a JSON value that hold no others."""
    if isinstance(value, dict):
        return sum(map(_leaves, value.values())) or 1
    if isinstance(value, list):
        return sum(map(_leaves, value)) or 1
    return 1


def _values(name: str, printed: Any, computed: Any) -> Iterator[Verified]:
    """The leaves of two JSON values, side by side."""
    if isinstance(printed, dict) and isinstance(computed, dict):
        for key in dict.fromkeys((*printed, *computed)):
            member = f"{name}.{key}" if name else key
            yield from _member(member, key, printed, computed)
    elif (
        isinstance(printed, list)
        and isinstance(computed, list)
        and len(printed) == len(computed)
    ):
        for place, (one, other) in enumerate(zip(printed, computed, strict=True)):
            yield from _values(f"{name}[{place}]", one, other)
    else:
        holds = _are_equal(printed, computed)
        shown_name = printable(name, MOST_NAME_CHARS)
        yield Verified(SUMMARY, shown_name, _shown(printed), _shown(computed), holds)


def _member(
    name: str, key: str, printed: Mapping[str, Any], computed: Mapping[str, Any]
) -> Iterator[Verified]:
    """A key of one or of both.

    One that only the file has was not computed, one that it lacks was not printed (by an older
    version).
    """
    shown_name = printable(name, MOST_NAME_CHARS)
    if key in printed and key in computed:
        yield from _values(name, printed[key], computed[key])
    elif key in printed:
        yield Verified(SUMMARY, shown_name, _shown(printed[key]), "not computed", None)
    else:
        yield Verified(SUMMARY, shown_name, "not printed", _shown(computed[key]), None)


def _are_equal(printed: Any, computed: Any) -> bool:
    if _is_number(printed) and isinstance(computed, int | float):
        return math.isclose(printed, computed, rel_tol=RELATIVE)
    return bool(printed == computed)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _of_block(folder: Path, results: Results) -> Iterator[Verified]:
    """Every line of the block in summary.txt."""
    yield from _of_text(folder, BLOCK, [block(results)])


def _of_report(folder: Path, results: Results) -> Iterator[Verified]:
    """Every line of report.md, in the language in which it was written."""
    text = block(results)
    candidates = [markdown(results, text, language) for language in LANGUAGES]
    yield from _of_text(folder, REPORT, candidates)


def _of_text(
    folder: Path, name: str, candidates: list[str], label: str | None = None
) -> Iterator[Verified]:
    """The lines of a text that should be one of `candidates`.

    Those that differ from the nearest candidate; if none does, one row for all of them. With a
    `label` one sentence about the last run with it may differ: that run may have gone since.
    """
    try:
        data = read_foreign(folder / name, inside=folder)
    except (OSError, TooLarge) as error:
        yield Verified(name, "the file", _shown_reason(error), "a text", None)
        return

    printed = data.decode("utf-8", "replace").splitlines()

    texts = [redacted(candidate).splitlines() for candidate in candidates]
    computed = max(texts, key=lambda lines: len(set(lines) & set(printed)))
    if label is not None:
        printed, of_printed = _without_last_run(printed, label)
        computed, of_computed = _without_last_run(computed, label)
        if of_printed != of_computed:
            yield Verified(
                name,
                "the last run with its label",
                _shown(of_printed),
                _shown(of_computed),
                None,
            )
    if printed == computed:
        yield Verified(
            name, "every line", f"{len(printed)} lines", f"{len(computed)} lines", True
        )
    # comparing them would take minutes
    elif len(printed) > MOST_LINES + 2 * len(computed):
        yield Verified(
            name, "every line", f"{len(printed)} lines", f"{len(computed)} lines", False
        )
    else:
        yield from _differing_lines(name, printed, computed)


def _without_last_run(lines: list[str], label: str) -> tuple[list[str], str | None]:
    """The lines without the first sentence about the last run with this label, and that sentence.
    Lines that hold anything else stay."""
    for at, line in enumerate(lines):
        if not line.startswith(AGAINST):
            continue
        for end in range(min(at + MOST_WRAPPED, len(lines)), at, -1):
            text = " ".join(html.unescape(each).strip() for each in lines[at:end])
            if is_against_last(text, label):
                return [*lines[:at], *lines[end:]], text
    return lines, None


def _differing_lines(
    name: str, printed: list[str], computed: list[str]
) -> Iterator[Verified]:
    from difflib import SequenceMatcher

    steps = SequenceMatcher(None, printed, computed, autojunk=False).get_opcodes()
    for kind, start, end, other_start, other_end in steps:
        if kind == "equal":
            continue

        before = _on_one_line(printed[start:end])
        after = _on_one_line(computed[other_start:other_end])
        yield Verified(name, f"line {start + 1}", _shown(before), _shown(after), False)


def _on_one_line(lines: list[str]) -> str | None:
    """The lines with slashes between them; None if there is none."""
    return " / ".join(map(str.strip, lines)) or None


def _shown(value: Any) -> str:
    if value is None:
        return "n/a"
    return printable(str(value), MOST_CHARS)
