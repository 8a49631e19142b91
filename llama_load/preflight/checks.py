"""Checks before the run: do the requests fit the servers and this machine?

Their rows are for the screen, the report and run.json.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from llama_load.bound_headers import AUTHORIZATION
from llama_load.errors import UsageError
from llama_load.options.options import RunOptions
from llama_load.options.sections.results import AUTO
from llama_load.run_folder import Manifest, PreflightRow
from llama_load.targets.apis import Api
from llama_load.targets.target import TRAITS, Target
from llama_load.targets.weighted_choice import WeightedChoice
from llama_load.units import quantity
from llama_load.users.beginning import RUN_DIGITS
from llama_load.wire.limits import Limits
from llama_load.wire.local_ports import is_here
from llama_load.workloads.agent import AgentFacts
from llama_load.workloads.counting import EstimatedCounter
from llama_load.workloads.documents import DocumentFacts
from llama_load.workloads.prompt import Plan, PlanFacts

# Assumed if the server does not report its chat template: current models' templates add 10 to 40
# tokens.
GUESSED_TEMPLATE_TOKENS = 40
NOT_GIVEN = "not given"
# Open files besides connections: logs, the run folder, libraries' sockets.
OTHER_FILES = 64
# A server that has run for less than this may still compile kernels or fill its caches.
JUST_STARTED_S = 60.0
# A way to the server and back that is longer than this is worth a note: within a data centre it
# takes under a millisecond.
FAR_MS = 5.0


@dataclass(frozen=True, slots=True)
class Budget:
    """What a request takes of a slot's context, in tokens. `context` is None if the server does not
    report it.

    `overhead` is chat template and random prefix; `answer` is the answer's length if a flag sets it
    for all prompts.
    """

    context: int | None
    overhead: int
    answer: int | None = None
    template: int = 0  # the chat template's part of the overhead

    def need(self, prompt_tokens: int, output_tokens: int) -> int:
        """prefix + template + prompt + answer."""
        return prompt_tokens + self.overhead + (self.answer or output_tokens)

    def fits(self, prompt_tokens: int, output_tokens: int) -> bool:
        """Whether prompt and answer fit a slot. llama-server divides `-c` by its slots: 4096 over
        16 leaves 256 per request."""
        return (
            self.context is None
            or self.need(prompt_tokens, output_tokens) <= self.context
        )

    def room(self, output_tokens: int) -> int | None:
        """How many prompt tokens fit a slot with such an answer; None if unknown."""
        if self.context is None:
            return None
        return max(0, self.context - self.need(0, output_tokens))


def slot_budget(
    targets: Sequence[Target],
    api: Api,
    *,
    max_tokens: int | None = None,
    prefix_tokens: int = 0,
) -> Budget:
    """The smallest budget of all replicas."""
    template = 0
    if api.has_template:
        template = max(map(_template_tokens, targets))
    return Budget(
        _least_context(targets), prefix_tokens + template, max_tokens, template
    )


def _template_tokens(target: Target) -> int:
    if target.template_tokens is None:
        return GUESSED_TEMPLATE_TOKENS
    return target.template_tokens


def _least_context(targets: Sequence[Target]) -> int | None:
    """The smallest context of a slot; None where no server reports it."""
    contexts = []
    for target in targets:
        if target.ctx_per_slot is not None:
            contexts.append(target.ctx_per_slot)

    return min(contexts, default=None)


def target_rows(targets: Sequence[Target], users: int | None) -> list[PreflightRow]:
    """What the servers reported, and whether they have enough slots for the concurrent requests."""
    first = targets[0]
    rows = []
    for target in targets:
        rows.append(PreflightRow("server", _server(target)))

    for other in targets[1:]:
        differing = differences(first.described(), other.described())
        if differing:
            text = f"they differ: {'; '.join(differing)}"
            rows.append(PreflightRow("replicas", text, "warning"))

    rows += _path_rows(targets)
    for target in targets:
        uptime_s = target.facts.uptime_s
        if uptime_s is not None and uptime_s < JUST_STARTED_S:
            text = (
                f"{uptime_s:.0f} s at {target.address.url}: first requests may be slow (raise "
                "--warmup)"
            )
            rows.append(PreflightRow("uptime", text, "note"))

    key = "none given, none required"
    for name, _ in first.headers.fields:
        if name.lower() == AUTHORIZATION.lower():
            key = "accepted"

    rows.append(PreflightRow("key", key))
    rows += _model_rows(targets)
    rows += _slot_rows(targets, users)
    rows.append(_context_row(targets))

    return rows


def _model_rows(targets: Sequence[Target]) -> list[PreflightRow]:
    """The models that routers loaded, else the first server's."""
    rows = []
    for target in targets:
        if target.load_s:
            rows.append(PreflightRow("model", _loads(target)))

    if not rows:
        model = targets[0].model or "the server lists none"
        rows.append(PreflightRow("model", model))

    return rows


def _path_rows(targets: Sequence[Target]) -> list[PreflightRow]:
    """How long the way to each server and back is."""
    longest_ms = 0.0
    times = []
    for target in targets:
        trip_ms = target.facts.round_trip_ms
        if trip_ms is not None:
            longest_ms = max(longest_ms, trip_ms)
            times.append(f"{trip_ms:.1f}")

    if not times:
        return []

    text = f"{', '.join(times)} ms to the server and back"
    if longest_ms > FAR_MS:
        return [PreflightRow("path", f"{text}, a part of every TTFT", "note")]

    return [PreflightRow("path", text)]


def _slot_rows(targets: Sequence[Target], users: int | None) -> list[PreflightRow]:
    """The slots of each server, and how many of the concurrent requests wait for one."""
    per_target = math.ceil((users or 1) / len(targets))
    waiting = 0
    known = []
    notes: dict[str, PreflightRow] = {}
    for target in targets:
        if target.slots is not None:
            known.append(str(target.slots))
            waiting += max(0, per_target - target.slots)

        note = target.kind.slots_note
        if note:
            notes[note] = PreflightRow("slots", note, "note")

    rows = []
    text = " + ".join(known)
    if known and users is not None and waiting:
        waits = quantity(waiting, "waits", "wait")
        text += f" for {quantity(users, 'concurrent request')}"
        text += f": up to {waits} in the server's queue"
        rows.append(PreflightRow("slots", text, "note"))
    elif known:
        rows.append(PreflightRow("slots", text))

    return [*rows, *notes.values()]


def _context_row(targets: Sequence[Target]) -> PreflightRow:
    context = _least_context(targets)
    if context is not None:
        return PreflightRow("context", f"{context} tokens per request")
    unknown = "not reported by the server; prompts that are too long will fail"
    return PreflightRow("context", unknown, "note")


def choice_rows(targets: Sequence[Target], options: RunOptions) -> list[PreflightRow]:
    """The shares of models and adapters, whether the warm-up reaches all of them, and models that
    count tokens in another way."""
    rows = []
    models = options.models
    adapters = options.adapters
    if len(models.names) > 1:
        rows.append(_choice_row("models", models, options.warmup))
    if adapters.names:
        rows.append(_choice_row("adapters", adapters, options.warmup))

    for target in targets:
        if target.other_counts:
            text = (
                f"{', '.join(target.other_counts)} of {target.address.url} may count tokens "
                f"differently: prompts are counted by {target.model}, so give prompts that are "
                "short enough for all"
            )
            rows.append(PreflightRow("tokens", text, "note"))
    return rows


def _choice_row(name: str, choice: WeightedChoice, warmup: int) -> PreflightRow:
    text = choice.described()
    count = len(choice.names)
    if warmup >= count:
        return PreflightRow(name, text)
    return PreflightRow(
        name, f"{text}; --warmup {count} would warm up all of them", "note"
    )


def _server(target: Target) -> str:
    name = target.backend
    if target.load_s:
        name += " (router)"
    if target.facts.build:
        name += f" {target.facts.build}"

    return f"{name} at {target.address.url}"


def _loads(target: Target) -> str:
    """`small loaded in 1.2 s, tiny was loaded`."""
    texts = []
    for name, seconds in target.load_s.items():
        how = f"loaded in {seconds:.1f} s" if seconds else "was loaded"
        texts.append(f"{name} {how}")
    return ", ".join(texts)


WIDER_RANGE = "sysctl -w net.ipv4.ip_local_port_range='1024 65535'"


def machine_rows(
    targets: Sequence[Target], users: int | None, limits: Limits, workers: int = 1
) -> list[PreflightRow]:
    """Whether this machine can hold this many open connections, where `workers` processes share
    them evenly. UsageError: it cannot.

    Open files are a limit of each process, local ports of all processes of a machine: workers may
    be on several."""
    if users is None:
        return []
    # Reused connections stay open at each replica.
    replicas = 0
    for target in targets:
        replicas += target.reuse

    users_of_worker = math.ceil(users / workers)
    files = users_of_worker * max(1, replicas)
    if limits.open_files is not None and files + OTHER_FILES > limits.open_files:
        raise UsageError(
            f"{users} concurrent requests need {files} open files in a process, the limit is "
            f"{limits.open_files}; "
            f"raise it first: ulimit -n {files + 1000}"
        )
    per_target = -(-users // len(targets))
    if limits.local_ports is not None and per_target > limits.local_ports:
        short = (
            f"{per_target} connections to one server need as many local ports, there are "
            f"{limits.local_ports}; widen the range"
        )
        if -(-per_target // workers) > limits.local_ports or workers == 1:
            raise UsageError(f"{short} first: {WIDER_RANGE}")
        text = f"{short}, or put the workers on several machines: {WIDER_RANGE}"
        return [PreflightRow("ports", text, "warning")]
    if limits.local_ports is not None and per_target > limits.local_ports / 2:
        text = f"{per_target} of {limits.local_ports} local ports needed"
        return [PreflightRow("ports", text, "note")]
    return []


def priority_rows(
    targets: Sequence[Target], priority: str, allowed: bool, *, is_apart: bool
) -> list[PreflightRow]:
    """Whether what receives precedes a server that may use every core of this machine.
    `is_apart`: it is a thread of its own (the compiled receiver)."""
    if priority != AUTO or not any(is_here(target.address) for target in targets):
        return []
    if allowed:
        who = "the client's main thread"
        if is_apart:
            who = "the thread that receives"

        text = f"{who} takes real-time priority: a server on this machine does not delay its reads"
        return [PreflightRow("priority", text)]
    text = "a server on this machine may delay the client: allow it real-time priority, ulimit -r 1"
    return [PreflightRow("priority", text, "note")]


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
    rows += _repeat_rows(facts, open_ended=open_ended, is_generated=not first.inputs)
    rows += _cut_rows(facts)
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

    text = f"prompts are new in this run, {how}: no server has them cached (--seed 0: as they are)"
    return [PreflightRow("cache", text)]


def _repeat_rows(
    facts: PlanFacts, *, open_ended: bool, is_generated: bool
) -> list[PreflightRow]:
    """Whether prompts are sent more than once."""
    distinct = facts.distinct
    repeated = facts.repeated
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
    parts = list(facts.tasks.values()) if facts.tasks else [facts]
    for part in parts:
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


def differences(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """The differences between two descriptions of a server: `slots 4 -> 8`."""
    changes = []
    for trait, name in TRAITS.items():
        if trait in before and trait in now and before[trait] != now[trait]:
            changes.append(_change(name, before[trait], now[trait]))
    return changes


def change_rows(before: Manifest, now: Manifest) -> list[PreflightRow]:
    """The differences from the last run with the same label: servers, flags, data, version,
    machine."""
    changes = []
    if before.version != now.version:
        changes.append(_change("llama-load", before.version, now.version))
    if len(before.targets) != len(now.targets):
        changes.append(_change("replicas", len(before.targets), len(now.targets)))
    for old, new in zip(before.targets, now.targets, strict=False):
        changes += differences(old, new)
    for name in sorted(set(before.options) | set(now.options)):
        old_value = before.options.get(name) or NOT_GIVEN
        new_value = now.options.get(name) or NOT_GIVEN
        if old_value != new_value:
            flag = "--" + name.replace("_", "-")
            changes.append(_change(flag, old_value, new_value))
    if before.users != now.users:
        changes.append(_change("-u", before.users, now.users))
    if before.prompts != now.prompts:
        changes.append("the prompts")
    for name in ("name", "cores", "python"):
        old_value = before.host.get(name)
        new_value = now.host.get(name)
        if old_value != new_value:
            changes.append(_change(f"client's {name}", old_value, new_value))

    since = f"since the run of {before.date} with this label"
    if not changes:
        return [PreflightRow("changed", f"{since}: nothing")]

    return [PreflightRow("changed", f"{since}: {'; '.join(changes)}", "note")]


def _change(name: str, before: object, now: object) -> str:
    """A short change in full, a long one by its name."""
    text = f"{name} {before} -> {now}"
    if len(text) > 80:
        return f"{name} (see run.json)"

    return text
