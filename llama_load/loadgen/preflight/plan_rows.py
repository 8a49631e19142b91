"""Rows of the preflight about the prompts: do they fit the servers?"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable, Sequence

from llama_load.ground.errors import UsageError
from llama_load.ground.units import quantity
from llama_load.loadgen.options.options import RunOptions
from llama_load.loadgen.preflight.slot_budget import Budget
from llama_load.loadgen.users.beginning import RUN_DIGITS
from llama_load.loadgen.workloads.agent import AgentFacts
from llama_load.loadgen.workloads.documents import DocumentFacts
from llama_load.loadgen.workloads.prompt_plan import (
    ANSWER_TOKENS,
    DataReading,
    Plan,
    PlanFacts,
)
from llama_load.run_folder import PreflightRow
from llama_load.servers.counting import EstimatedCounter
from llama_load.servers.target import Target


def plan_rows(plan: Plan, budget: Budget, *, open_ended: bool) -> list[PreflightRow]:
    """The prompts' number and source, and whether they fit a slot."""
    if not plan.measured:
        return [PreflightRow("prompts", "written in the locustfile")]
    facts = plan.facts
    first = plan.measured[0]
    what = _kind_of_prompts(plan)
    source = f"from {facts.dataset.path}, tokens counted by {facts.counted_by}"
    rows = [PreflightRow("prompts", f"{quantity(len(plan.measured), what)} {source}")]
    if facts.counted_by == EstimatedCounter.source:
        rows[0].value += " (off by 20 % and more: give --tokenizer)"
        rows[0].level = "note"
    rows += _repeat_rows(plan, open_ended=open_ended, is_generated=not first.inputs)
    rows += _cut_rows(facts)
    for part in _facts_of_tasks(facts):
        if part.reading:
            rows += reading_rows(part.reading)
    if isinstance(facts.dataset, AgentFacts) and facts.dataset.smaller:
        text = (
            f"{facts.dataset.smaller}, so that a conversation fits a slot; other sizes: start "
            "the server with a larger context"
        )
        rows.append(PreflightRow("agents", text, "note"))
    if facts.shortened:
        shortened = "prompts shortened to fit a slot"
        if what == TURN:
            shortened = "conversations without the turns that do not fit a slot"
        text = f"{shortened}: {facts.shortened} (--keep-long-prompts)"
        rows.append(PreflightRow("too long", text, "note"))
    if _sees(plan):
        text = "their number of tokens is not known before the run"
        rows.append(PreflightRow("images", text, "note"))
    if budget.context is not None and not first.inputs:
        rows += _fitting_rows(plan, budget)
    return rows


TURN = "turn"


def _kind_of_prompts(plan: Plan) -> str:
    first = plan.measured[0]
    if first.inputs and first.text:
        return "rerank request"
    if first.inputs:
        return "embeddings request"
    if any(prompt.more for prompt in plan.measured):
        return TURN

    return "prompt"


def cache_rows(plans: Iterable[Plan]) -> list[PreflightRow]:
    """That prompts are changed for this run."""
    generates_text = False
    how = "generated"
    for plan in plans:
        if not plan.measured:
            continue
        if not plan.measured[0].inputs:
            generates_text = True
        if not plan.measured[0].is_new:
            how = f"beginning with {RUN_DIGITS} random digits"

    if not generates_text:
        return []

    text = (
        f"prompts are new in this run, {how}: no earlier run has cached them (--seed 0: as they "
        "are)"
    )
    return [PreflightRow("cache", text)]


def _repeat_rows(
    plan: Plan, *, open_ended: bool, is_generated: bool
) -> list[PreflightRow]:
    """Whether prompts are sent more than once."""
    distinct = plan.facts.distinct
    repeated = plan.facts.repeated
    if plan.facts.varied or (plan.rounds and open_ended):
        text = (
            f"after {quantity(distinct, 'different prompt')} each begins with another number, so "
            "that none repeats"
        )
        return [PreflightRow("repeats", text)]
    few = f"only {quantity(distinct, 'different one')}, {quantity(repeated, 'is', 'are')} repeated"
    if repeated and not is_generated:
        return [PreflightRow("repeats", few, "note")]
    if repeated:
        text = f"{few} and will be cached (--bust-prefix-cache)"
        return [PreflightRow("repeats", text, "warning")]
    if open_ended:
        come = "they repeat"
        if distinct == 1:
            come = "it repeats"

        prompts = quantity(distinct, "different prompt")
        text = f"after {prompts} {come} and will be cached"
        return [PreflightRow("repeats", text, "note")]
    return []


def _cut_rows(facts: PlanFacts) -> list[PreflightRow]:
    """Documents cut to fit a slot, with both lengths; for each task of a mixture."""
    rows = []
    for part in _facts_of_tasks(facts):
        if part.cut and isinstance(part.dataset, DocumentFacts):
            documents = (
                f"{part.cut} of {quantity(part.distinct + part.repeated, 'document')}"
            )
            lengths = (
                f"from {part.cut_from:,} to {part.dataset.document_tokens:,} tokens"
            )
            text = f"{documents} cut {lengths} to fit a slot (--keep-long-prompts)"
            rows.append(PreflightRow("too long", text, "note"))
    return rows


def _facts_of_tasks(facts: PlanFacts) -> list[PlanFacts]:
    """The facts of each task of a mixture."""
    return list(facts.tasks.values()) if facts.tasks else [facts]


def reading_rows(reading: DataReading) -> list[PreflightRow]:
    """What of a data set is not sent as it is there: rows left out, by reason; lengths that are no
    row's; fields that are not read."""
    rows = []
    reasons = {reason: count for reason, count in reading.left_out.items() if count}
    if reasons:
        texts = [f"{count:,} {reason}" for reason, count in reasons.items()]
        text = "; ".join(texts)
        if reading.rows is not None:
            text = f"{sum(reasons.values()):,} of {reading.rows:,} rows: {text}"
        rows.append(PreflightRow("left out", text, "note"))
    if reading.default_lengths:
        prompts = quantity(reading.default_lengths, "prompt has", "prompts have")
        text = f"{prompts} no answer length: {ANSWER_TOKENS} tokens are asked for (--max-tokens)"
        rows.append(PreflightRow("lengths", text, "note"))
    if reading.ignored:
        text = f"fields that change no request: {', '.join(reading.ignored)}"
        rows.append(PreflightRow("not read", text))
    if reading.unread:
        text = f"left out by --columns: {', '.join(reading.unread)}"
        rows.append(PreflightRow("not read", text, "note"))
    return rows


def _fitting_rows(plan: Plan, budget: Budget) -> list[PreflightRow]:
    """Whether the prompts fit a slot with their answers; unknown for prompts with images."""
    facts = plan.facts
    texts = 0
    long = 0
    for prompt in plan.measured:
        if not prompt.images:
            texts += 1
            long += not budget.fits(prompt.prompt_tokens or 0, prompt.max_tokens or 0)

    if long:
        text = (
            f"{quantity(long, 'prompt does', 'prompts do')} not fit a slot and will fail or "
            "be cut (--keep-long-prompts)"
        )
        return [PreflightRow("too long", text, "warning")]
    if facts.replaced:
        text = f"{quantity(facts.replaced, 'prompt')} did not fit a slot, replaced by others"
        return [PreflightRow("too long", text, "note")]
    if facts.shortened or facts.cut or not texts:
        return []
    return [PreflightRow("too long", "no prompt: all fit a slot with their answers")]


def refuse_probes(options: RunOptions, plans: Iterable[Plan]) -> None:
    """UsageError if --probe-rate is given and the run's requests generate no text: then its servers
    may generate none."""
    if options.probe_rate_rps is None:
        return

    sends_requests = False
    for plan in plans:
        if plan.measured:
            sends_requests = True
            if not plan.measured[0].inputs:
                return

    if sends_requests:
        raise UsageError(
            "--probe-rate sends requests that generate a text, which embeddings and reranking do "
            "not: leave it out"
        )


def refuse_unseen(plan: Plan, targets: Sequence[Target]) -> None:
    """UsageError: images would go to a server that reports no vision."""
    if not _sees(plan):
        return

    for target in targets:
        if target.is_blind:
            raise UsageError(
                f"{target.address.url} cannot see images; start llama-server with the model's "
                "--mmproj file"
            )


def tool_rows(plan: Plan, targets: Sequence[Target]) -> list[PreflightRow]:
    """Whether the servers' chat templates take the tools of the prompts."""
    if not any(prompt.fields.get("tools") for prompt in plan.measured):
        return []

    urls = []
    for target in targets:
        if target.takes_tools is False:
            urls.append(target.address.url)

    if not urls:
        return []

    text = (
        f"the chat template of {', '.join(urls)} takes no tools: the server drops them; use "
        "another model or template"
    )
    return [PreflightRow("tools", text, "warning")]


def pool_rows(
    plan: Plan,
    budget: Budget,
    targets: Sequence[Target],
    users: int | None,
    kv_pool: int | None,
) -> list[PreflightRow]:
    """Whether the longest prompts that may be in flight together fit the KV pool that the slots of
    a llama-server share.

    llama-server without `-np` (or with --kv-unified) gives every slot the whole context, and all
    slots share one pool of that size; when the pool is full, every stream ends in an error. Its API
    reports the slots but not the sharing, so `kv_pool` is the user's value or that of the log;
    None: no known pool.
    """
    if kv_pool is None or not plan.measured:
        return []
    is_counted = all(prompt.prompt_tokens is not None for prompt in plan.measured)
    if not is_counted or plan.measured[0].inputs or _sees(plan):
        return []

    slots = 0
    for target in targets:
        if target.kind.divides_context:
            slots = max(slots, target.slots or 1)

    if not slots:
        return []

    per_target = math.ceil((users or 1) / len(targets))
    at_a_time = min(per_target, slots)
    needs = []
    for prompt in plan.measured:
        needs.append(budget.need(prompt.prompt_tokens or 0, prompt.max_tokens or 0))
    most = sum(heapq.nlargest(at_a_time, needs))
    if most <= kv_pool:
        return [PreflightRow("KV pool", f"{most} of {kv_pool} tokens at most")]

    which = f"the {at_a_time} longest prompts with answers"
    if at_a_time == 1:
        which = "the longest prompt with its answer"
    text = (
        f"{most} of {kv_pool} tokens needed by {which}: a full pool fails all streams (fewer -u, "
        "larger -c)"
    )
    return [PreflightRow("KV pool", text, "warning")]


def _sees(plan: Plan) -> bool:
    return any(prompt.images for prompt in plan.measured)
