"""JUnit XML of a run's thresholds, for CI.

A test case per threshold and one for the run's completeness.

    testsuites
    └── testsuite   "llama-load", with the verdict and the name of the run folder as properties
        ├── testcase    "run is complete": an error when the verdict is INCOMPLETE
        └── testcase    one per threshold: a failure when it was exceeded or had no value

Times are the run's duration in s, with three decimals. Source: junit-10.xsd of Jenkins' xUnit
plugin, which GitHub's and GitLab's parsers accept.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING
from xml.etree import ElementTree

from llama_load.analysis.figures.check import Check
from llama_load.outside.foreign_text import printable
from llama_load.run_folder.vocabulary.thresholds import Threshold, ThresholdResult
from llama_load.run_folder.vocabulary.verdict_words import INCOMPLETE

if TYPE_CHECKING:
    from llama_load.analysis.results.results import Results

SUITE = "llama-load"
COMPLETE = "run is complete"

# What XML 1.0 cannot hold, not even escaped: most control characters, lone surrogates, and the two
# that are no characters (U+FFFE, U+FFFF).
_UNWRITABLE = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_PASSED_BY = {">": "over", ">=": "at or over", "<": "under", "<=": "at or under"}


def junit(results: Results) -> str:
    """The document as text, with an XML declaration for UTF-8.

    What XML cannot hold becomes U+FFFD.
    """
    manifest = results.run.manifest
    thresholds = results.thresholds
    incomplete = results.verdict.word == INCOMPLETE
    time = f"{results.total.duration_s:.3f}"
    counts = {
        "name": SUITE,
        "tests": str(1 + len(thresholds)),
        "failures": str(sum(threshold.failed for threshold in thresholds)),
        "errors": str(int(incomplete)),
        "time": time,
    }
    root = ElementTree.Element("testsuites", counts)
    suite = ElementTree.SubElement(
        root, "testsuite", counts | _timestamp(manifest.date)
    )
    properties = ElementTree.SubElement(suite, "properties")
    _add_property(properties, "verdict", ", ".join(results.verdict.shown))
    _add_property(properties, "run", results.run.path.resolve().name)
    _add_property(properties, "headline", results.verdict.headline)

    def case(name: str) -> ElementTree.Element:
        classname = _writable(f"{SUITE}.{manifest.label or manifest.workload}")
        return ElementTree.SubElement(
            suite, "testcase", classname=classname, name=_writable(name), time=time
        )

    complete = case(COMPLETE)
    if incomplete:
        _add_outcome(complete, "error", INCOMPLETE, _missing(results.verdict.checks))

    for threshold in thresholds:
        case_of_threshold = case(threshold.threshold.requirement)
        if threshold.failed:
            _add_outcome(case_of_threshold, "failure", "threshold", _why(threshold))

    ElementTree.indent(root)
    document: bytes = ElementTree.tostring(root, encoding="utf-8", xml_declaration=True)

    return document.decode() + "\n"


def _add_property(properties: ElementTree.Element, name: str, value: str) -> None:
    ElementTree.SubElement(properties, "property", name=name, value=_writable(value))


def _missing(checks: Sequence[Check]) -> str:
    """The checks that make the run incomplete."""
    texts = []
    for check in checks:
        if not check.ok and check.word == INCOMPLETE:
            texts.append(check.text)
    return "; ".join(texts)


def _timestamp(date: str) -> dict[str, str]:
    """When the run began, as ISO 8601 in the local time of the manifest.

    Empty where the manifest's date cannot be parsed.
    """
    try:
        return {"timestamp": datetime.strptime(date, "%Y%m%d-%H%M%S").isoformat()}
    except ValueError:
        return {}


def _add_outcome(
    case: ElementTree.Element, kind: str, type_: str, message: str
) -> None:
    """Jenkins and GitHub's readers show the message, GitLab the text, so the sentence is both."""
    message = _writable(message)
    ElementTree.SubElement(case, kind, message=message, type=type_).text = message


def _why(result: ThresholdResult) -> str:
    """One sentence: `p99_ttft_ms was 612.3, over the limit of 500`."""
    threshold = result.threshold
    if threshold.word is not None:
        return f"the verdict was {result.why}"

    what = threshold.key
    if threshold.group is not None:
        what += f" of {threshold.group} {threshold.member}"

    limit = f"the limit of {threshold.limit:.9g}"
    if result.value is None and result.why is not None:
        return f"{what} is {result.why}, so {limit} cannot be checked"
    if result.value is None:
        return f"{what} was not measured, so {limit} cannot be checked"

    value = _value_text(result.value, threshold)

    return f"{what} was {value}, {_PASSED_BY[threshold.sign]} {limit}"


def _value_text(value: float, threshold: Threshold) -> str:
    """Nine digits (a ns in a second); all where nine look like the limit."""
    short = f"{value:.9g}"
    if value != threshold.limit and short == f"{threshold.limit:.9g}":
        return repr(value)
    return short


def _writable(text: str) -> str:
    return _UNWRITABLE.sub("\ufffd", printable(text, None))
