"""Rules of what was sent: arrivals, concurrency, prompts."""

from __future__ import annotations

from truth.arrivals import arrivals, in_flight, lateness_ms, off_schedule_ms
from truth.cases import CONSTANT, Case
from truth.finding import Finding, Level, judged, number, silent
from truth.log import Log
from truth.matching import matched, own_entries
from truth.prompts import digest, prompts_of
from truth.result import LOAD, Result
from truth.server.http import TEMPLATE_TOKENS
from truth.units import NS_PER_MS, percentile

WINDOW_S = 0.25  # of the counts of arrivals
DISTANCE = 1.7
OF_TIMERS = 0.1


def arrival_process(case: Case, log: Log, result: Result) -> list[Finding]:
    """Rate, spread and dependence of the arrivals. For Poisson arrivals the limits are `errors`
    standard errors of each figure; for even ones `rate`, `cv` and `dispersion`."""
    found = arrivals(result.requests, log.entries, case.load.rate_rps, WINDOW_S)
    if not found:
        return [silent("arrivals", "")]
    if case.load.arrival == CONSTANT:
        limits = {
            "rate_error": (0.0, case.limits["rate"]),
            "gap_cv": (0.0, case.limits["cv"]),
            "count_dispersion": (0.0, case.limits["dispersion"]),
        }
    else:
        limits = _poisson_limits(
            found["count"], found["windows"], case.limits["errors"]
        )

    findings: list[Finding] = []
    for name, (norm, limit) in limits.items():
        value = found[name]
        level = judged(abs(value - norm) <= limit, result.doubts_about(LOAD))
        title = name.replace("_", " ")
        findings.append(
            Finding(
                title,
                number(norm),
                f"{value:+.3f}",
                f"{limit:.3f}",
                level,
                values=(value,),
            )
        )
    return findings


def _poisson_limits(
    count: float, windows: float, errors: float
) -> dict[str, tuple[float, float]]:
    """Norm and limit of each figure. Standard errors of n exponential gaps: 1/sqrt(n) of rate,
    coefficient of variation and autocorrelation; of k Poisson counts the cube root of variance/mean
    is normal with 1 - 2/(9 k) and sqrt(2/(9 k)) (Wilson and Hilferty, 1931); of
    the mean of n instants between the first and the last, 1/sqrt(12 n). The largest distance
    between the distribution of the gaps and an exponential one with their mean is below
    1.7/sqrt(n) but for one run in 10,000; timers of a millisecond add to it."""
    of_gaps = errors * count**-0.5
    of_root = 2 / (9 * windows)
    of_counts = (1 - of_root + errors * of_root**0.5) ** 3 - 1
    return {
        "rate_error": (0.0, of_gaps),
        "gap_cv": (1.0, of_gaps),
        "gap_autocorrelation": (0.0, of_gaps),
        "count_dispersion": (1.0, of_counts),
        "mean_instant": (0.5, errors * (12 * count) ** -0.5),
        "gap_distance": (0.0, DISTANCE * count**-0.5 + OF_TIMERS),
    }


def lateness(case: Case, log: Log, result: Result) -> list[Finding]:
    """How far the arrivals of an even schedule fell behind it, p99: the client reports as much for
    its requests, or says that its load is not the one asked for. Without its lateness each request
    has its place in the schedule; where requests have no names, the lateness is that of the
    arrivals in their order. Limits: `ms` and `share` of the lateness by the log."""
    own = own_entries(result.requests, log.entries)
    received = sorted(entry.received_ns for entry in own)
    behind = lateness_ms(received, case.load.rate_rps)
    if not behind:
        return [silent("lateness", "")]

    truth = percentile(behind, 99)
    limit = case.limits["ms"] + case.limits["share"] * truth
    told = [seen for seen in result.requests if seen.late_ms is not None]
    doubts = result.doubts_about(LOAD)
    if not told:
        level = judged(truth <= limit, doubts)
        return [_lateness(truth, "not reported", limit, level)]

    late = _lateness_and_due(result, log)
    reported = percentile([seen.late_ms or 0.0 for seen in told], 99)
    right = abs(reported - truth) <= limit
    if len(late) == len(result.requests):
        off = off_schedule_ms([due for due, _ in late], case.load.rate_rps)
        truth = percentile(
            [ms + more for (_, ms), more in zip(late, off, strict=True)], 99
        )
        right = percentile([abs(each) for each in off], 99) <= limit
    if len(told) < len(result.requests):
        right = False
    level = judged(right, doubts)
    return [_lateness(truth, number(reported), limit, level, (reported,))]


def _lateness(
    truth: float, shown: str, limit: float, level: Level, values: tuple[float, ...] = ()
) -> Finding:
    figure = "lateness of the arrivals, p99, ms"
    return Finding(figure, number(truth), shown, number(limit), level, values)


def _lateness_and_due(result: Result, log: Log) -> list[tuple[int, float]]:
    """Of the requests with a name and a lateness when they were to be sent (ns, by both), and the
    lateness (ms), in the order of the schedule."""
    late: list[tuple[int, float]] = []
    for seen, entry in matched(result.requests, log.entries):
        if seen.late_ms is not None:
            due_ns = entry.received_ns - round(seen.late_ms * NS_PER_MS)
            late.append((due_ns, seen.late_ms))
    return sorted(late)


def order(case: Case, log: Log, result: Result) -> list[Finding]:
    """The prompts of a file arrive unchanged, each once, in the order of the file; with one stream
    that is the order of the requests."""
    own = own_entries(result.requests, log.entries)
    entries = sorted(own, key=lambda entry: entry.received_ns)
    wanted = [digest([text]) for text in prompts_of(case.load)]
    sent = [entry.prompt_sha256 for entry in entries]
    if not sent:
        return [silent("prompts of the file", str(len(wanted)))]

    doubts = result.doubts_about(LOAD)
    whole = len(set(wanted) & set(sent))
    is_once = len(sent) == len(wanted)
    in_place = sum(a == b for a, b in zip(wanted, sent, strict=False))
    asked = str(len(wanted))
    return [
        Finding(
            "prompts of the file, unchanged",
            asked,
            str(whole),
            "0",
            judged(whole == len(wanted) and is_once, doubts),
        ),
        Finding(
            "in the order of the file",
            asked,
            str(in_place),
            "0",
            judged(in_place == len(wanted), doubts),
        ),
    ]


def concurrency(case: Case, log: Log, result: Result) -> list[Finding]:
    """Requests in flight at the server, also those that the client does not report: never more than
    asked for, and on average at least that less `short` until the last request was received. What
    came before the first that it reports are probes and warm-up."""
    own = own_entries(result.requests, log.entries)
    begin = min((entry.received_ns for entry in own), default=0)
    found = in_flight([each for each in log.entries if each.received_ns >= begin])
    asked = case.load.streams
    least = asked * (1 - case.limits["short"])
    most = Finding(
        figure="most in flight",
        truth=str(asked),
        seen=str(found.most),
        limit="0",
        level=judged(found.most == asked, result.doubts_about(LOAD)),
    )
    middle = Finding(
        figure="mean in flight",
        truth=str(asked),
        seen=number(found.mean),
        limit=f"at least {number(least)}",
        level=judged(least <= found.mean <= asked, result.doubts_about(LOAD)),
        values=(found.mean,),
    )
    return [most, middle]


def workload(case: Case, log: Log, result: Result) -> list[Finding]:
    """What the wire saw: lengths of prompts and answers as asked, each prompt different. Limit:
    `prompt_tokens`, the allowed difference of every prompt."""
    own = own_entries(result.requests, log.entries)
    chat = any(entry.path.endswith("chat/completions") for entry in own)
    template = TEMPLATE_TOKENS if chat else 0
    prompts = [entry.prompt_tokens - template for entry in own]
    answers = sorted({entry.tokens for entry in own})
    digests = {entry.prompt_sha256 or entry.body_sha256 for entry in own}
    if not own:
        return [silent("requests", str(case.load.requests))]

    asked = case.load.prompt_tokens
    limit = case.limits["prompt_tokens"]
    farthest = max(abs(prompt - asked) for prompt in prompts)
    spread = f"{min(prompts)} to {max(prompts)}"
    lengths = ", ".join(map(str, answers))
    return [
        Finding(
            "prompt tokens",
            str(asked),
            spread,
            number(limit),
            judged(farthest <= limit, result.doubts_about(LOAD)),
        ),
        Finding(
            "max_tokens",
            str(case.load.tokens),
            lengths,
            "0",
            judged(answers == [case.load.tokens], result.doubts_about(LOAD)),
        ),
        Finding(
            "different prompts",
            str(len(own)),
            str(len(digests)),
            "0",
            judged(len(digests) == len(own), result.doubts_about(LOAD)),
        ),
    ]
