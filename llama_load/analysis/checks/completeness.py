"""Checks of completeness: does every request have a record, and did the server answer?"""

from __future__ import annotations

from collections.abc import Iterator

from llama_load.analysis.figures.check import Check, information, limited
from llama_load.analysis.figures.evidence import Evidence
from llama_load.analysis.figures.failure_hints import reason_of_an_end
from llama_load.analysis.figures.failures import failure_classes
from llama_load.ground.units import quantity

# The most requests that a sentence names; the manifest names all.
MOST_NAMED = 12
# The most failure classes that a sentence names.
MOST_CLASSES = 2


def missing_records(evidence: Evidence) -> Check:
    """Planned requests without a record, less those whose records a file lacks (`damaged_records`
    reports them). In a run limited by time: whether it ran to its end."""
    ended = (
        evidence.figures.completed + evidence.figures.failed + evidence.figures.aborted
    )
    if not ended:
        return limited(
            "missing_records",
            max(1, evidence.planned or 1),
            "no request ended: nothing was measured",
        )
    if evidence.planned is None:
        if evidence.interrupted:
            who = "you stopped it" if evidence.stopped_by_hand else "interrupted"
            text = f"{who} after {quantity(ended, 'request')}, before the end of the run's time"
            return limited("missing_records", 1, text)
        return limited(
            "missing_records",
            0,
            f"{quantity(ended, 'request')} ended within the run's time",
        )
    expected = evidence.planned - evidence.dropped
    unread = sum(damaged.records or 0 for damaged in evidence.damaged)
    missing = max(0, expected - ended - unread)
    if not missing:
        return limited(
            "missing_records", 0, f"{ended} of {expected} requests were recorded"
        )
    of_all = f"{missing} of {evidence.planned} planned requests"
    if evidence.stopped_by_hand:
        text = (
            f"you stopped it: {ended} of {evidence.planned} planned requests had ended"
        )
        return limited("missing_records", missing, text, advice="let it run to its end")
    # every run that comes to its end notes how its workers were
    if evidence.interrupted and not evidence.health:
        return limited(
            "missing_records",
            missing,
            f"{of_all} have no record: the run was killed, or its disk was full",
        )
    return limited("missing_records", missing, f"{of_all} did not end")


def server_endings(evidence: Evidence) -> Iterator[Check]:
    """Servers that ended during the run, and why. The end of their log is in the section about the
    server."""
    for words in evidence.server_endings:
        text = reason_of_an_end(words)
        if evidence.after_servers:
            text += f"; {quantity(evidence.after_servers, 'request')} that came later are in no figure"
        yield limited("server_endings", 1, text)


def changed_records(evidence: Evidence) -> Check:
    """Records that are not as the run wrote them. Evidence: the rows and the digest in run.json,
    and the latencies against the timestamps, which they are computed from again. No statistics."""
    name = "changed_records"
    if evidence.changed is None:
        return limited(
            name,
            None,
            "run.json has no digest of the records: that rows are missing or changed would not show",
        )
    if not evidence.changed:
        return limited(name, 0, "the records are as they were written")
    return limited(name, len(evidence.changed), "; ".join(evidence.changed))


def lost_requests(evidence: Evidence) -> Iterator[Check]:
    """Workers that were lost, and requests that they may have sent without a record."""
    for gone in evidence.lost:
        count = len(gone.possibly_sent)
        verb = "had sent and has no record of" if gone.gave_up else "may have sent"
        text = f"worker {gone.worker} was lost"
        if gone.gave_up:
            text = f"worker {gone.worker} ended"
        if count:
            some = ", ".join(map(str, gone.possibly_sent[:MOST_NAMED])) + (
                ", …" if count > MOST_NAMED else ""
            )
            text += (
                f" with {quantity(count, 'request')} that it {verb} (prompts {some})"
            )
        warmups = len(gone.possibly_sent_warmup)
        if warmups:
            text += f"{' and' if count else ' with'} {quantity(warmups, 'request')} of a warm-up"
        if not count and not warmups:
            text += "; it had no request in flight"
        if gone.handed_on:
            text += f"; {gone.handed_on} not sent yet went to other workers"
        yield limited("lost_requests", count, text)


def damaged_records(evidence: Evidence) -> Iterator[Check]:
    """Damaged files of records, and records that the disk did not take."""
    for damaged in evidence.damaged:
        records = damaged.records or 0
        verb = "is" if damaged.records == 1 else "are"
        if damaged.places:
            text = f"{damaged.file} is damaged in {quantity(damaged.places, 'place')}"
            text += f" ({quantity(damaged.bytes, 'byte')} cannot be read)"
            text += (
                f", {quantity(records, 'record')} {verb} missing"
                if damaged.records is not None
                else ""
            )
        else:
            text = f"{quantity(records, 'record')} could not be written to disk and {verb} missing from {damaged.file}"
        advice = None if damaged.places else "make room on the disk, then run again"
        yield limited(
            "damaged_records", max(damaged.places, records), text, advice=advice
        )


def retried(evidence: Evidence) -> Iterator[Check]:
    """Requests that were sent again because the server refused them (--retry)."""
    figures = evidence.figures
    if figures.retries:
        text = f"the server refused {quantity(figures.retried_requests, 'request')} with 429 or 503, which were sent again"
        text += f" ({figures.retries} times in all); their latencies count from the first try"
        yield information("retries", figures.retries, text)


def failures(evidence: Evidence) -> Check:
    """Failed / (successful + failed) requests, with the most frequent failure classes and what to
    change. Evidence: how each exchange ended, on the wire and by the server's word. Counts: no
    error."""
    figures = evidence.figures
    ended = figures.completed + figures.failed
    text = f"{figures.failed} of {quantity(ended, 'request')} failed"
    classes = failure_classes(evidence)[:MOST_CLASSES]
    if classes:
        text += f" ({figures.failed / ended:.0%}): "
        text += "; ".join(
            f"{failure_class.count} × {failure_class.meaning}{': ' if failure_class.hint else ''}{failure_class.hint}"
            for failure_class in classes
        )
    advice = "" if any(failure_class.hint for failure_class in classes) else None
    return limited("failure_ratio", figures.failure_ratio, text, advice=advice)
