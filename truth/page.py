"""A page of the verdicts of several clients: a matrix of clients and cases, one file of HTML
without a network. A click on a cell shows its figures below."""

from __future__ import annotations

import html
import json
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

from truth.columns import (
    MEANINGS,
    SIGNS,
    CaseResult,
    Column,
    all_cases,
    better_than_first,
    parts_of,
)
from truth.foreign import printable
from truth.repeats import interval

# 1280 pixels hold 80 cases beside the names of the clients.
STYLE = """
body { font: 14px system-ui, sans-serif; margin: 12px; color: #1c2127; }
h1 { font-size: 20px; margin: 0 0 4px; } p { margin: 4px 0; }
#matrix { border-collapse: collapse; table-layout: fixed; width: 100%; }
#matrix th { font-weight: normal; text-align: center; padding: 0; font-size: 10px; }
#matrix thead th:first-child { width: 178px; }
#matrix tbody th { text-align: left; font-size: 12px; white-space: nowrap; overflow: hidden; }
#matrix td { border: 1px solid #fff; text-align: center; padding: 0; height: 20px; font-size: 10px;
  cursor: pointer; overflow: hidden; }
#matrix .begin { border-left: 3px solid #fff; } th[data-case] { cursor: pointer; }
.right { background: #58b383; } .admitted { background: #f2c94c; }
.wrong, .failed { background: #e0595f; color: #fff; }
.silent, .void, .not-asked { background: #e9ecef; color: #59636e; }
td.chosen { outline: 2px solid #1c2127; }
i { display: inline-block; width: 14px; text-align: center; font: 10px/14px system-ui; }
#shown { border-top: 2px solid #1c2127; margin: 10px 0; padding-top: 6px; min-height: 150px; }
#shown table { border-collapse: collapse; } #shown th { text-align: left; }
#shown th, #shown td { padding: 1px 16px 1px 0; }
footer { font-size: 12px; color: #59636e; }
"""
SCRIPT = """
const data = JSON.parse(document.getElementById("data").textContent);
const shown = document.getElementById("shown");
function add(parent, kind, text) {
  const element = document.createElement(kind);
  element.textContent = text;
  parent.append(element);
  return element;
}
function show(number, client) {
  const its = data.cases[number];
  shown.replaceChildren();
  const found = client === undefined ? undefined : data.clients[client][number];
  const who = found ? ": " + data.names[client] + " is " + found.word : "";
  add(add(shown, "p", ""), "b", number + " " + its.title + who);
  add(shown, "p", its.norm);
  if (!found) { add(shown, "p", its.reason); return; }
  if (found.figures.length) {
    const table = add(shown, "table", "");
    for (const row of [["figure", "right", "seen", "limit", "verdict"], ...found.figures]) {
      const line = add(table, "tr", "");
      for (const cell of row) add(line, row[0] === "figure" ? "th" : "td", cell);
    }
  }
  for (const note of found.notes) add(shown, "p", note);
}
document.getElementById("matrix").addEventListener("click", (event) => {
  const cell = event.target.closest("[data-case]");
  if (!cell) return;
  for (const each of document.querySelectorAll(".chosen")) each.classList.remove("chosen");
  cell.classList.add("chosen");
  show(cell.dataset.case, cell.dataset.client);
});
"""


def _escaped(value: object) -> str:
    """Whatever a file has in this place, as text of a page."""
    return html.escape(printable(str(value)))


def page(columns: Sequence[Column]) -> str:
    """A row per client and a column per case; below it who is better where, and when it was
    measured."""
    cases = all_cases(columns)
    body = "".join(_row(place, each, cases) for place, each in enumerate(columns))
    return (
        "<!doctype html><html lang='en'><meta charset='utf-8'><title>truth</title>"
        f"<style>{STYLE}</style><h1>What load generators report, against a server's log</h1>"
        f"<p>{_legend()}</p>"
        f"<table id='matrix'><thead>{_heads(cases)}</thead><tbody>{body}</tbody></table>"
        "<div id='shown'><p>A click on a cell shows what is right, what the client has, and the"
        " limit; a click on a number shows what the case asks and why.</p></div>"
        f"<p>{_escaped(better_than_first(columns))}</p>{_summaries(columns)}"
        f"<footer>{_measured(columns)}</footer>"
        f"<script type='application/json' id='data'>{_data(columns, cases)}</script>"
        f"<script>{SCRIPT}</script></html>\n"
    )


def _legend() -> str:
    items = [
        f"<i class='{_kind(word)}'>{SIGNS[word]}</i> <b>{word}</b> {text}"
        for word, text in MEANINGS.items()
    ]
    return " &ensp; ".join(items)


def _heads(cases: Sequence[CaseResult]) -> str:
    """The letters of the suites above the numbers of their cases."""
    letters = "<th></th>"
    numbers = "<th></th>"
    for letter, group in groupby(cases, lambda case: parts_of(case["id"])[0]):
        of_suite = list(group)
        suite = _escaped(of_suite[0]["suite"])
        count = len(of_suite)
        letters += f"<th colspan='{count}' title='{suite}'>{_escaped(letter)}</th>"
        for case in of_suite:
            number = _escaped(case["id"])
            title = f"{number} {_escaped(case['title'])}"
            shown = _escaped(parts_of(case["id"])[1])
            numbers += f"<th data-case='{number}' title='{title}'>{shown}</th>"
    return f"<tr>{letters}</tr><tr>{numbers}</tr>"


def _row(place: int, column: Column, cases: Sequence[CaseResult]) -> str:
    cells = ""
    before = ""
    for case in cases:
        letter, _ = parts_of(case["id"])
        cells += _cell(place, column.cases.get(case["id"]), letter != before)
        before = letter
    return f"<tr><th>{_escaped(column.title)}</th>{cells}</tr>"


def _cell(place: int, case: CaseResult | None, is_first: bool) -> str:
    begin = " begin" if is_first else ""
    if case is None:
        return f"<td class='none{begin}'></td>"
    word = str(case["verdict"])
    number = _escaped(case["id"])
    kind = _escaped(_kind(word))
    title = f"{number} {_escaped(case['title'])}: {_escaped(word)}"
    sign = _escaped(SIGNS.get(word, ""))
    return (
        f"<td class='{kind}{begin}' data-client='{place}' data-case='{number}'"
        f" title='{title}'>{sign}</td>"
    )


def _kind(word: str) -> str:
    """The class of a verdict."""
    return word.replace(" ", "-")


def _summaries(columns: Sequence[Column]) -> str:
    items = [f"<li>{_escaped(column.summary)}</li>" for column in columns]
    return f"<ul>{''.join(items)}</ul>"


def _measured(columns: Sequence[Column]) -> str:
    lines = [f"{column.title}: {'; '.join(column.runs_on)}" for column in columns]
    return "<br>".join(map(_escaped, lines))


def _data(columns: Sequence[Column], cases: Sequence[CaseResult]) -> str:
    """What a click shows, as JSON in which no text can end the element."""
    value = {
        "names": [column.title for column in columns],
        "cases": {
            str(case["id"]): {
                key: str(case[key]) for key in ("title", "norm", "reason")
            }
            for case in cases
        },
        "clients": [_cells_of(column) for column in columns],
    }
    return json.dumps(value).replace("<", "\\u003c")


def _cells_of(column: Column) -> dict[str, Any]:
    return {
        str(number): {
            "word": case["verdict"],
            "figures": [_figure(each) for each in case["findings"]],
            "notes": _notes(case),
        }
        for number, case in column.cases.items()
    }


def _figure(finding: Mapping[str, Any]) -> list[str]:
    names = ("figure", "right", "seen", "limit", "level")
    return [printable(str(finding.get(name, ""))) for name in names]


def _notes(case: CaseResult) -> list[str]:
    reasons = ("void", "not_asked", "failed")
    notes = [
        f"{name.replace('_', ' ')}: {case[name]}" for name in reasons if case[name]
    ]
    if case.get("runs", 1) > 1:
        notes.append(f"{int(case['runs'])} runs: median (lowest to highest)")
    if case["not_reported"]:
        notes.append(f"not reported: {', '.join(case['not_reported'])}")
    if case["bound_ms"] is not None:
        notes.append(f"bound of the server's instants: {case['bound_ms']:.3f} ms")
    notes += _costs(case)
    return [printable(note) for note in notes]


def _costs(case: CaseResult) -> list[str]:
    """What the runs cost; nothing in a file without costs."""
    costs = case.get("costs", ())
    if not costs:
        return []
    per_token = interval([float(cost["cpu_us_per_token"]) for cost in costs])
    in_all = interval([float(cost["cpu_s"]) for cost in costs])
    memory = interval([float(cost["memory_mib"]) for cost in costs])
    others = max(
        float(cost.get("other_cores", 0)) + float(cost.get("stolen_cores", 0))
        for cost in costs
    )
    return [
        f"CPU: {per_token} us per token, {in_all} s in all; memory: {memory} MiB",
        f"others took at most {others:.2f} cores",
    ]
