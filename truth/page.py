"""A page of the verdicts of several clients: one file of HTML, with filters, without a network."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from typing import Any

from truth.foreign import printable

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
WORDS = ("true", "knows", "reports", "silent", "failed", "void")
LEVELS = ("true", "knows", "reports", "failed")  # from the best; others are no levels
Verdicts = Mapping[str, Any]


def _escaped(value: object) -> str:
    """Whatever a file has in this place, as text of a page."""
    return html.escape(printable(str(value)))


def page(results: Sequence[Verdicts]) -> str:
    """`results`: objects of `truth.report.as_object`, a column each."""
    columns = [_by_id(result) for result in results]
    cases: dict[str, Mapping[str, Any]] = {}
    for column in columns:
        for number, case in column.items():
            cases.setdefault(number, case)

    heads = "".join(_head(result) for result in results)
    body = "".join(_row(case, columns) for case in cases.values())
    suites = sorted({case["suite"] for case in cases.values()})
    return (
        "<!doctype html><html lang='en'><meta charset='utf-8'><title>truth</title>"
        f"<style>{STYLE}</style><h1>What load generators report, against a server's log</h1>"
        f"{_passed(results)}<p>{better_than_first(results)}</p>"
        f"<p>{_choice('suite', suites)}{_choice('word', WORDS)}"
        "<label>contains <input id='text'></label></p>"
        "<p>true: right within the limits. knows: not, but the client says so. reports: wrong, and"
        " nothing says so. silent: not reported. void: nothing can be concluded.</p>"
        f"<table><thead><tr><th>case</th>{heads}</tr></thead><tbody>{body}</tbody></table>"
        f"<script>{SCRIPT}</script></html>\n"
    )


def _passed(results: Sequence[Verdicts]) -> str:
    """A line per client: how many of its judged cases passed, and its verdicts by kind."""
    items: list[str] = []
    for result in results:
        words = [case["verdict"] for case in result["cases"]]
        passed = sum(case["passed"] for case in result["cases"])
        judged = len(words) - words.count("void")
        kinds = [f"{words.count(word)} {word}" for word in WORDS if word in words]
        text = f"{_title(result)}: {passed} of {judged} passed ({', '.join(kinds)})"
        items.append(f"<li>{_escaped(text)}</li>")
    return f"<ul>{''.join(items)}</ul>"


def better_than_first(results: Sequence[Verdicts]) -> str:
    """The cases in which another client has a higher level than that of the first column."""
    first = results[0]
    rest = [(_title(result), _by_id(result)) for result in results[1:]]
    parts: list[str] = []
    for case in first["cases"]:
        others = [title for title, its in rest if _is_better(its.get(case["id"]), case)]
        if others:
            parts.append(f"{case['id']} {case['title']} ({', '.join(others)})")
    where = "; ".join(parts) or "in no case"
    return _escaped(f"Better than {_title(first)}: {where}.")


def _is_better(other: Verdicts | None, case: Verdicts) -> bool:
    words = list(reversed(LEVELS))
    if other is None or other["verdict"] not in words or case["verdict"] not in words:
        return False
    return words.index(other["verdict"]) > words.index(case["verdict"])


def _title(result: Verdicts) -> str:
    return f"{result['client']} {result['client_version']}".strip()


def _choice(name: str, values: Sequence[str]) -> str:
    options = "".join(f"<option>{_escaped(value)}</option>" for value in values)
    return (
        f"<label>{name} <select id='{name}'><option></option>{options}</select></label>"
    )


def _head(result: Verdicts) -> str:
    title = _title(result)
    where = f"{result['date']}, {result['system']}, {result['cores']} cores"
    return f"<th>{_escaped(title)}<br><small>{_escaped(where)}</small></th>"


def _row(
    case: Mapping[str, Any], columns: Sequence[Mapping[str, Mapping[str, Any]]]
) -> str:
    found = [column.get(case["id"]) for column in columns]
    words = " ".join(str(each["verdict"]) for each in found if each)
    cells = "".join(_cell(each) for each in found)
    number = _escaped(case["id"])
    title = _escaped(case["title"])
    about = f"{_escaped(case['norm'])}<br>{_escaped(case['reason'])}"
    return (
        f"<tr data-suite='{_escaped(case['suite'])}' data-words='{_escaped(words)}'>"
        f"<th>{number} {title}<details><summary>norm</summary>{about}</details></th>{cells}</tr>"
    )


def _by_id(result: Verdicts) -> dict[str, Mapping[str, Any]]:
    """Its cases; of two with the same id the first."""
    cases: dict[str, Mapping[str, Any]] = {}
    for case in result["cases"]:
        cases.setdefault(case["id"], case)
    return cases


def _cell(case: Mapping[str, Any] | None) -> str:
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
    word = _escaped(case["verdict"])
    details = "<br>".join(lines)
    return f"<td class='{word}'>{word}<details><summary>figures</summary>{details}</details></td>"


def _figure(finding: Mapping[str, str]) -> str:
    text = f"{finding['figure']}: {finding['seen']} (right: {finding['right']}"
    text += f", limit {finding['limit']})" if finding["limit"] else ")"
    return _escaped(text)
