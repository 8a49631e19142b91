"""How far a result can be trusted: all checks, and the words of those that are not ok, the most
severe first."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from llama_load.analysis.checks import (
    alive,
    answer_sources,
    answers,
    choices,
    client,
    completeness,
    conversations,
    counted,
    counter_sums,
    hang_ups_felt,
    interruptions,
    lengths,
    load_kept,
    machine,
    probes_felt,
    same,
    server_side,
    streams,
)
from llama_load.analysis.checks.one_cause import causes_first, with_one_remedy
from llama_load.analysis.checks.small_print import small_print
from llama_load.analysis.figures.check import Check
from llama_load.analysis.figures.check_limits import CHANGED, LIMITS
from llama_load.analysis.figures.evidence import Evidence
from llama_load.analysis.figures.stage_figures import StageFigures
from llama_load.run_folder.vocabulary.verdict_words import AS_FAR_AS_SEEN, VALID, WORDS

# Checks of the whole run and of each stage.
_OF_EACH: Sequence[Callable[[Evidence], Check | Iterable[Check]]] = (
    completeness.failures,
    load_kept.unanswered,
    load_kept.cut,
    load_kept.excess_in_flight,
    same.changes,
    same.falling_behind,
    load_kept.failed_late,
    hang_ups_felt.censored,
    lengths.short_answers,
    lengths.long_answers,
    lengths.prompts_shortened,
    lengths.prompts_overcounted,
    lengths.cut_by_context,
    lengths.clipped,
    alive.equal_answers,
    alive.refusals,
    alive.abrupt_answers,
    alive.early_first_tokens,
    answer_sources.at_equal_work,
    interruptions.stood_still,
    interruptions.connected_late,
    answers.merged,
    answers.first_merged,
    answers.tokens_per_event,
    answers.prompt_cache,
    server_side.other_clients,
    server_side.preemptions,
    server_side.unexplained,
    streams.held_back,
    streams.stretched,
    client.late,
    client.own_delay,
    client.event_loop,
)


@dataclass(frozen=True, slots=True)
class Verdict:
    """The most severe word, the checks, all words that apply, and one line with the cause and the
    remedy."""

    word: str
    checks: list[Check]
    words: list[str]
    headline: str

    @property
    def shown(self) -> list[str]:
        """The words as people read them: "VALID as far as seen" where the run itself gave no
        evidence of a main check."""
        return (
            [AS_FAR_AS_SEEN] if self.headline.startswith(AS_FAR_AS_SEEN) else self.words
        )


def judge(evidence: Evidence, stages: Sequence[StageFigures] = ()) -> Verdict:
    """The verdict on a run. `stages` have their checks that are not ok (see `stage_checks`)."""
    checks = [
        *completeness.server_endings(evidence),
        completeness.missing_records(evidence),
        *load_kept.stages(list(stages)),
        *completeness.lost_requests(evidence),
        *completeness.damaged_records(evidence),
        completeness.changed_records(evidence),
        *hang_ups_felt.slots_freed(evidence),
        *probes_felt.probes(evidence),
        *load_kept.dropped(evidence),
        *load_kept.users(evidence),
        *conversations.missed_turns(evidence),
        *conversations.late_turns(evidence),
        *conversations.missing_conversations(evidence),
        *conversations.conversations_cut(evidence),
        *load_kept.censored_parts(evidence),
        *load_kept.imbalance(evidence),
        *server_side.replicas(evidence),
        *server_side.models(evidence),
        *choices.mixed_up_models(evidence),
        *choices.sessions(evidence),
        *server_side.unused_draft_model(evidence),
        *load_kept.task_exceptions(evidence),
        *load_kept.server_changes(evidence),
        *server_side.just_started(evidence),
        *server_side.sleeps(evidence),
        *server_side.prompt_saves(evidence),
        *load_kept.unused_rpc_workers(evidence),
        *_of_run(evidence, stages),
        *completeness.retried(evidence),
        *machine.other_programs(evidence),
        *machine.server_waits(evidence),
        *machine.others_on_gpus(evidence),
        client.core_wait(evidence),
        *client.cpu(evidence),
        *client.master_lag(evidence),
        *(check for stage in stages for check in stage.bad),
        client.clock(evidence),
        *client.swarm_clock(evidence),
        client.connections(evidence),
        counted.count_gap(evidence),
        *counted.tool_calls(evidence),
        *counted.tpot_known(evidence),
        *counted.uncounted_output(evidence),
        *counted.uncounted_prompts(evidence),
        *counter_sums.compared(evidence),
        *counted.counts(evidence),
        *alive.answer_ends(evidence),
        *answers.blanks(evidence),
        *answers.intervals(evidence),
    ]
    bad = [check for check in checks if not check.ok]
    spoken = {check.word for check in bad}
    words = [word for word in WORDS if word in spoken] or [VALID]
    bad.sort(key=lambda check: words.index(check.word))
    bad = with_one_remedy(causes_first(bad), evidence)
    checks = [*bad, *(check for check in checks if check.ok)]
    headline = (
        _headline(words, bad)
        if bad
        else _headline_of_valid(checks, evidence.figures.completed)
    )
    return Verdict(words[0], checks, words, _with_shared_machine(headline, checks))


def stage_checks(evidence: Evidence) -> list[Check]:
    """The checks of one stage that are not ok."""
    return [check for check in judge_stage(evidence) if not check.ok]


def judge_stage(evidence: Evidence) -> list[Check]:
    """All checks of one stage."""
    return [replace(check, stage=evidence.stage) for check in _of_each(evidence)]


def _of_run(evidence: Evidence, stages: Sequence[StageFigures]) -> list[Check]:
    """The checks of each for the whole run. Of a run in stages, those that need one load are left
    to the stages."""
    if not stages:
        return _of_each(evidence)
    checks = _of_each(replace(evidence, is_steady=False, cut_ns=None, users=None))
    kept = [check for check in checks if check.name != CHANGED]
    return [*kept, *same.over_stages([stage.main for stage in stages])]


def _of_each(evidence: Evidence) -> list[Check]:
    results = (check(evidence) for check in _OF_EACH)
    return [
        check
        for result in results
        for check in ([result] if isinstance(result, Check) else result)
    ]


def _headline(words: Sequence[str], bad: Sequence[Check]) -> str:
    """`FAILED: 12 of 20 requests failed (60%): 12 × no first token in time …; also
    CLIENT-BOUND`."""
    also = f"; also {', '.join(words[1:])}" if words[1:] else ""
    where = f"stage {bad[0].stage}: " if bad[0].stage is not None else ""
    return f"{words[0]}: {where}{bad[0].sentence}{also}"


def _headline_of_valid(checks: Sequence[Check], requests: int) -> str:
    """`VALID`, with what it could not have seen: `VALID: with 99 requests a slowdown below 1.5 x
    would not show; this server does not show other clients, cached prompts`."""
    word, unseen = small_print(checks, requests)
    return f"{word}: {'; '.join(unseen)}" if unseen else word


def _with_shared_machine(headline: str, checks: Sequence[Check]) -> str:
    """The head line, which says so where other programs belong to the measurement: `VALID on a
    shared machine`."""
    shared = [
        check for check in checks if check.name == machine.NAME and check.limit is None
    ]
    if not shared or (shared[0].value or 0.0) <= LIMITS[machine.NAME].limit:
        return headline
    word, separator, rest = headline.partition(": ")
    return f"{word} on a shared machine (others used {shared[0].value:.0%} of it){separator}{rest}"
