"""What a topic is: something measured beside the figures, with all that reports show of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Generic, TypeVar

from llama_load.analysis.checks.verdict import Verdict
from llama_load.analysis.figures.evidence import Evidence
from llama_load.analysis.figures.probe_figures import ProbeFigures
from llama_load.analysis.figures.stage_figures import StageFigures
from llama_load.analysis.figures.summary import Summary
from llama_load.ground.languages import Translate, Translator
from llama_load.run_folder import Run
from llama_load.run_folder.observed.records import Records
from llama_load.run_folder.vocabulary.slo import Slo
from llama_load.tables import Table

F = TypeVar("F")


@dataclass(frozen=True, slots=True)
class TopicInput:
    """What the figures of a topic are computed from.

    `measured`: the records of the measured requests; `constant`: the evidence of the run, steady
    only if all of its stages have the same load; `cut_ns`: when those in flight were cut.
    """

    run: Run
    measured: Records
    total: Summary
    by_turn: Mapping[int, Summary]
    by_agent_turn: Mapping[int, Summary]
    stages: Sequence[StageFigures]
    constant: Evidence
    slos: tuple[Slo, ...]
    hosts: Sequence[str]
    probes: ProbeFigures | None
    verdict: Verdict
    cut_ns: int | None


@dataclass(frozen=True, slots=True)
class RequestChart:
    """A chart of report.html: the TTFT of these requests over the time of the run."""

    heading: str
    requests: Records


def draws_nothing(_figures: Any, _run: Run) -> Sequence[RequestChart]:
    """Most topics have no chart."""
    return ()


def says_nothing(_: Any) -> str | None:
    """Of most topics the first screen has no line."""
    return None


def as_it_is(figures: Any) -> Any:
    """Figures whose fields are the keys of summary.json."""
    return figures


@dataclass(frozen=True, slots=True)
class Topic(Generic[F]):
    """One topic of the reports.

    `key`: its name in summary.json; `figures`: computes them, None where the run has nothing of
    it; `tables`: draws them, with a translator for headings, for the block, report.md and
    report.html; `plain`: the figures as summary.json has them; `empty`: what it has where the run
    has nothing; `charts`: what report.html draws over the time of the run; `headline`: a sentence
    for the first screen, None where there is nothing to do; `chinese`: its headings, where the
    reports have none (analysis/reports/chinese.json) or others.
    """

    key: str
    figures: Callable[[TopicInput], F | None]
    tables: Callable[[F, Translate], Iterable[Table]]
    plain: Callable[[F], Any] = as_it_is
    empty: Any = None
    charts: Callable[[F, Run], Sequence[RequestChart]] = draws_nothing
    headline: Callable[[F], str | None] = says_nothing
    chinese: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Found(Generic[F]):
    """The figures of a topic in a run that has some."""

    topic: Topic[F]
    figures: F

    def tables(self, t: Translator) -> list[Table]:
        """Its tables, with headings in the language of `t`."""
        own = t.with_words(self.topic.chinese)
        return list(self.topic.tables(self.figures, own))

    def charts(self, run: Run, t: Translator) -> list[RequestChart]:
        """Its charts over the time of the run, with headings in the language of `t`."""
        own = t.with_words(self.topic.chinese)
        charts = self.topic.charts(self.figures, run)
        return [replace(chart, heading=own(chart.heading)) for chart in charts]

    def headline(self) -> str | None:
        """Its sentence on the first screen, if it has one."""
        return self.topic.headline(self.figures)

    def plain(self) -> Any:
        """What summary.json has below the topic's key."""
        return self.topic.plain(self.figures)
