"""A page of the verdicts of several clients: one file of HTML, with filters, without a network."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence

from truth.columns import (
    WORDS,
    WORDS_MEAN,
    CaseResult,
    Column,
    all_cases,
    better_than_first,
)
from truth.foreign import printable
from truth.repeats import interval

STYLE = """
body { font: 15px system-ui, sans-serif; margin: 1.5rem; color: #1c2127; }
table { border-collapse: collapse; }
th, td { border: 1px solid #ddd; padding: .3rem .6rem; text-align: left; vertical-align: top; }
td.true { background: #d9f2e3; } td.knows { background: #fdf3d0; }
td.reports, td.failed { background: #f9d9db; }
td.silent, td.void, td.none { color: #59636e; }
details { font-size: 13px; } label { margin-right: 1rem; }
"""
SCRIPT = """
const suite = document.getElementById("suite"), word = document.getElementById("word");
const text = document.getElementById("text");
function show() {
  for (const row of document.querySelectorAll("tbody tr")) {
    const fits = !suite.value || row.dataset.suite === suite.value;
    const said = !word.value || row.dataset.words.split(" ").includes(word.value);
    const found = row.textContent.toLowerCase().includes(text.value.toLowerCase());
    row.hidden = !(fits && said && found);
  }
}
for (const each of [suite, word, text]) each.addEventListener("input", show);
"""


def _escaped(value: object) -> str:
    """Whatever a file has in this place, as text of a page."""
    return html.escape(printable(str(value)))


def page(columns: Sequence[Column]) -> str:
    """A table with a row per case, and above it what passed and who is better where."""
    cases = all_cases(columns)
    heads = "".join(_head(column) for column in columns)
    body = "".join(_row(case, columns) for case in cases)
    suites = sorted({case["suite"] for case in cases})
    return (
        "<!doctype html><html lang='en'><meta charset='utf-8'><title>truth</title>"
        f"<style>{STYLE}</style><h1>What load generators report, against a server's log</h1>"
        f"{_summaries(columns)}<p>{_escaped(better_than_first(columns))}</p>"
        f"<p>{_choice('suite', suites)}{_choice('word', WORDS)}"
        "<label>contains <input id='text'></label></p>"
        f"<p>{WORDS_MEAN}</p>"
        f"<table><thead><tr><th>case</th>{heads}</tr></thead><tbody>{body}</tbody></table>"
        f"<script>{SCRIPT}</script></html>\n"
    )


def _summaries(columns: Sequence[Column]) -> str:
    items = [f"<li>{_escaped(column.summary)}</li>" for column in columns]
    return f"<ul>{''.join(items)}</ul>"


def _choice(name: str, values: Sequence[str]) -> str:
    options = "".join(f"<option>{_escaped(value)}</option>" for value in values)
    return (
        f"<label>{name} <select id='{name}'><option></option>{options}</select></label>"
    )


def _head(column: Column) -> str:
    where = "<br>".join(map(_escaped, column.runs_on))
    return f"<th>{_escaped(column.title)}<br><small>{where}</small></th>"


def _row(case: CaseResult, columns: Sequence[Column]) -> str:
    found = [column.cases.get(case["id"]) for column in columns]
    words = " ".join(str(each["verdict"]) for each in found if each)
    cells = "".join(_cell(each) for each in found)
    number = _escaped(case["id"])
    title = _escaped(case["title"])
    about = f"{_escaped(case['norm'])}<br>{_escaped(case['reason'])}"
    return (
        f"<tr data-suite='{_escaped(case['suite'])}' data-words='{_escaped(words)}'>"
        f"<th>{number} {title}<details><summary>norm</summary>{about}</details></th>{cells}</tr>"
    )


def _cell(case: CaseResult | None) -> str:
    if case is None:
        return "<td class='none'>not run</td>"
    lines = [_figure(each) for each in case["findings"]]
    lines += [_escaped(case[name]) for name in ("void", "failed") if case[name]]
    if case.get("runs", 1) > 1:
        lines.append(f"{int(case['runs'])} runs: median (lowest to highest)")
    if case["not_reported"]:
        lines.append(f"not reported: {_escaped(', '.join(case['not_reported']))}")
    if case["bound_ms"] is not None:
        lines.append(f"bound of the server's instants: {case['bound_ms']:.3f} ms")
    lines += _costs(case)
    word = _escaped(case["verdict"])
    details = "<br>".join(lines)
    return f"<td class='{word}'>{word}<details><summary>figures</summary>{details}</details></td>"


def _costs(case: CaseResult) -> list[str]:
    """What the runs cost; nothing in a file without costs."""
    costs = case.get("costs", ())
    if not costs:
        return []
    per_token = interval([float(cost["cpu_us_per_token"]) for cost in costs])
    in_all = interval([float(cost["cpu_s"]) for cost in costs])
    memory = interval([float(cost["memory_mib"]) for cost in costs])
    text = f"CPU: {per_token} us per token, {in_all} s in all; memory: {memory} MiB"
    return [_escaped(text)]


def _figure(finding: Mapping[str, str]) -> str:
    text = f"{finding['figure']}: {finding['seen']} (right: {finding['right']}"
    text += f", limit {finding['limit']})" if finding["limit"] else ")"
    return _escaped(text)
