"""The counters of a server's /metrics that help to explain client figures."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from email.utils import parsedate_to_datetime

from llama_load.outside.plain_http import NoAnswerError, Session
from llama_load.run_folder.observed.server_counters import ServerCounters, ServerTimes
from llama_load.run_folder.observed.speculation import Speculation
from llama_load.servers.kinds import METRICS
from llama_load.servers.kinds.server_kind import Metrics
from llama_load.servers.target import Target
from llama_load.servers.tls import TlsOptions

TIMEOUT_S = 5
_STARTED = "process_start_time_seconds"
# A value printed with an exponent: name, digits, exponent. llama-server prints six significant
# digits (1.23457e+06).
_ROUNDED = re.compile(
    r"^([a-z:_][\w:]*+)(?:\{[^\n]*\})?[ \t]+(\d(?:\.\d+)?)e\+?(\d{1,2})\b", re.MULTILINE
)
_DIGITS = 6
# Larger counts and longer drafts are invalid.
MOST = 2**53
LONGEST_DRAFT = 255


def read_counters(target: Target, tls: TlsOptions) -> ServerCounters | None:
    """The counters since the server's start; None where it has no /metrics, or does not answer."""
    session = Session(target.headers, tls.context)
    pages = []
    date = ""
    try:
        for url in target.control_urls("/metrics"):
            answer = session.get(url, within_s=TIMEOUT_S)
            if not answer.ok:
                return None
            pages.append(answer.text)
            date = answer.headers.get("date", "")
    except NoAnswerError:
        return None

    counters = parse_counters("\n".join(pages))
    if counters is None:
        return None
    return replace(counters, read_s=_date_s(date))


def _date_s(date: str) -> float:
    """The server's clock, in s, to compare with its start time.

    The answer's Date; without one, this machine's clock.
    """
    with suppress(ValueError, OverflowError):
        return parsedate_to_datetime(date).timestamp()
    return time.time()


def parse_counters(text: str) -> ServerCounters | None:
    """The counters in a /metrics text, summed over engines.

    None if it has none of an LLM server.
    """
    from prometheus_client.parser import text_string_to_metric_families

    pages = [_Page(names) for names in METRICS]
    started_s = None
    try:
        for family in text_string_to_metric_families(text):
            if not family.samples:
                for page in pages:
                    page.declare(family.name)
            for sample in family.samples:
                if sample.name == _STARTED and 0 < sample.value < MOST:
                    started_s = float(sample.value)
                for page in pages:
                    page.add(sample.name, sample.value, sample.labels)
    except ValueError:
        return None

    for page in pages:
        if page.sums:
            errors = _rounding_errors(text, page.names.prefix)
            return page.counted(started_s, errors)
    return None


class _Page:
    """The values of one kind of server on a page of metrics, summed over engines."""

    def __init__(self, names: Metrics) -> None:
        self.names = names
        self.sums: dict[str, int] = {}
        self._declared: set[str] = set()
        self._counters = names.counters
        self._histograms = set()
        for name in names.times.values():
            self._histograms |= {f"{name}_sum", f"{name}_count"}
        self._positions: dict[int, int] = {}
        self._seconds: dict[str, float] = {}

    def declare(self, name: str) -> None:
        """A counter with labels has no value before its first increase: it is 0, not unknown."""
        name = name.removeprefix(self.names.prefix)
        if name in self._counters:
            self._declared.add(name)

    def add(self, name: str, value: float, labels: Mapping[str, str]) -> None:
        """Take a value, if it is one of this kind's."""
        if not name.startswith(self.names.prefix) or not 0 <= value < MOST:
            return
        name = name.removeprefix(self.names.prefix).removesuffix("_total")
        if name in self._histograms:
            self._seconds[name] = self._seconds.get(name, 0.0) + float(value)
        if name not in self._counters:
            return
        if name == self.names.accepted_per_position:
            place = min(int(labels.get("position", 0)), LONGEST_DRAFT)
            self._positions[place] = self._positions.get(place, 0) + int(value)
        else:
            self.sums[name] = self.sums.get(name, 0) + int(value)

    def counted(
        self, started_s: float | None, errors: Mapping[str, float]
    ) -> ServerCounters:
        """The counters, with the errors of printed names."""
        names = self.names
        prompt = self._sum(names.prompt_tokens)
        external = self._sum(names.external_hits)
        hits = self._sum(names.hits)
        if hits is not None:
            hits += external or 0

        prompt_error = errors.get(names.prompt_tokens, 0.0)
        hits_error = errors.get(names.hits, 0.0)
        if names.excludes_cached:
            prompt = None if prompt is None or hits is None else prompt + hits
            prompt_error += hits_error

        if names.queries:
            queries = self._sum(names.queries)
            queries_error = errors.get(names.queries, 0.0)
        else:
            queries = None if hits is None else prompt
            queries_error = prompt_error

        named = {
            "prompt_tokens": prompt_error,
            "output_tokens": errors.get(names.output_tokens, 0.0),
            "cache_queries": queries_error,
            "cache_hits": hits_error + errors.get(names.external_hits, 0.0),
            "requests": errors.get(names.requests, 0.0),
        }
        return ServerCounters(
            speculation=self._speculation(),
            prompt_tokens=prompt,
            cache_queries=queries,
            cache_hits=hits,
            external_hits=external,
            requests=self._sum(names.requests),
            preemptions=self._sum(names.preemptions),
            started_s=started_s,
            output_tokens=self._sum(names.output_tokens),
            times=self._times(),
            errors={name: error for name, error in named.items() if error},
        )

    def _sum(self, name: str) -> int | None:
        """The counter of this name, or of the name that it had before; None if there is neither."""
        for each in (name, self.names.renamed.get(name, "")):
            if each in self.sums:
                return self.sums[each]
        return 0 if name in self._declared else None

    def _times(self) -> ServerTimes | None:
        if not self.names.times or len(self._seconds) < len(self._histograms):
            return None

        sums_ms = {}
        for name, histogram in self.names.times.items():
            sums_ms[name] = 1e3 * self._seconds[f"{histogram}_sum"]
        of_requests = self.names.times["e2el_ms"]
        requests = int(self._seconds[f"{of_requests}_count"])
        return ServerTimes(requests=requests, **sums_ms)

    def _speculation(self) -> Speculation | None:
        drafted = self._sum(self.names.draft_tokens)
        if drafted is None:
            return None

        places = range(max(self._positions, default=-1) + 1)
        per_position = [self._positions.get(place, 0) for place in places]
        return Speculation(
            drafted,
            self._sum(self.names.accepted_tokens) or 0,
            self._sum(self.names.drafts),
            per_position,
        )


def _rounding_errors(text: str, prefix: str) -> dict[str, float]:
    """By how much the printed counts may differ from the counted ones, summed over engines.

    1.23457e+06 stands for 1,234,565 to 1,234,575: 5. More digits than six are those of a client
    that prints all: exact.
    """
    errors: dict[str, float] = {}
    for name, digits, exponent in _ROUNDED.findall(text):
        if (
            len(digits) - 1 <= _DIGITS
            and int(exponent) >= _DIGITS
            and name.startswith(prefix)
        ):
            name = name.removeprefix(prefix).removesuffix("_total")
            last_digit = 10.0 ** (int(exponent) - _DIGITS + 1)
            errors[name] = errors.get(name, 0.0) + last_digit / 2
    return errors
