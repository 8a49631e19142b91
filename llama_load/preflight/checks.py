"""Checks before the run: do the requests fit the servers and this machine? Rows for the screen, the report and run.json."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from llama_load.bound_headers import AUTHORIZATION
from llama_load.errors import UsageError
from llama_load.options.options import RunOptions
from llama_load.options.result_flags import AUTO
from llama_load.run_folder import Manifest, PreflightRow
from llama_load.targets.apis import Api
from llama_load.targets.target import TRAITS, Target
from llama_load.units import quantity
from llama_load.users.beginning import RUN_DIGITS
from llama_load.wire.limits import Limits
from llama_load.wire.local_ports import is_here
from llama_load.workloads.agent import AgentFacts
from llama_load.workloads.counting import EstimatedCounter
from llama_load.workloads.documents import DocumentFacts
from llama_load.workloads.prompt import Plan, PlanFacts

# Assumed if the server does not report its chat template: current models' templates add 10 to 40 tokens.
GUESSED_TEMPLATE_TOKENS = 40
# Open files besides connections: logs, the run folder, libraries' sockets.
OTHER_FILES = 64
# A server that has run for less than this may still compile kernels or fill its caches.
JUST_STARTED_S = 60.0
# A way to the server and back that is longer than this is worth a note: within a data centre it takes under a millisecond.
FAR_MS = 5.0


@dataclass(frozen=True, slots=True)
class Budget:
    """What a request takes of a slot's context, in tokens. `context` is None if the server does not report it.

    `overhead` is chat template and random prefix; `answer` is the answer's length if a flag sets it for all prompts.
    """

    context: int | None
    overhead: int
    answer: int | None = None
    template: int = 0  # the chat template's part of the overhead

    def need(self, prompt_tokens: int, output_tokens: int) -> int:
        """prefix + template + prompt + answer."""
        return prompt_tokens + self.overhead + (self.answer or output_tokens)

    def fits(self, prompt_tokens: int, output_tokens: int) -> bool:
        """Whether prompt and answer fit a slot. llama-server divides `-c` by its slots: 4096 over 16 leaves 256 per request."""
        return self.context is None or self.need(prompt_tokens, output_tokens) <= self.context

    def room(self, output_tokens: int) -> int | None:
        """How many prompt tokens fit a slot with such an answer; None if unknown."""
        return None if self.context is None else max(0, self.context - self.need(0, output_tokens))


def slot_budget(targets: Sequence[Target], api: Api, *, max_tokens: int | None = None, prefix_tokens: int = 0) -> Budget:
    """The smallest budget of all replicas."""
    contexts = [target.ctx_per_slot for target in targets if target.ctx_per_slot is not None]
    template = 0
    if api.has_template:
        known = [target.template_tokens for target in targets]
        template = max(GUESSED_TEMPLATE_TOKENS if tokens is None else tokens for tokens in known)
    return Budget(min(contexts, default=None), prefix_tokens + template, max_tokens, template)


def target_rows(targets: Sequence[Target], users: int | None) -> list[PreflightRow]:
    """What the servers reported, and whether they have enough slots for the concurrent requests."""
    first = targets[0]
    rows = [PreflightRow("server", _server(target)) for target in targets]
    for other in targets[1:]:
        if differing := differences(first.described(), other.described()):
            rows.append(PreflightRow("replicas", f"they differ: {'; '.join(differing)}", "warning"))
    if ways := [target.facts.round_trip_ms for target in targets if target.facts.round_trip_ms is not None]:
        text = f"{', '.join(f'{way:.1f}' for way in ways)} ms to the server and back"
        is_far = max(ways) > FAR_MS
        rows.append(PreflightRow("path", f"{text}, a part of every TTFT" if is_far else text, "note" if is_far else "ok"))
    for target in targets:
        uptime_s = target.facts.uptime_s
        if uptime_s is not None and uptime_s < JUST_STARTED_S:
            text = f"{uptime_s:.0f} s at {target.address.url}: first requests may be slow (raise --warmup)"
            rows.append(PreflightRow("uptime", text, "note"))
    key = any(name.lower() == AUTHORIZATION.lower() for name, _ in first.headers.fields)
    rows.append(PreflightRow("key", "accepted" if key else "none given, none required"))
    models = [_loads(target) for target in targets if target.load_s] or [first.model or "the server lists none"]
    rows += [PreflightRow("model", text) for text in models]
    if known := [target.slots for target in targets if target.slots is not None]:
        per_target = -(-(users or 1) // len(targets))
        waiting = sum(max(0, per_target - slots) for slots in known)
        row = PreflightRow("slots", " + ".join(map(str, known)))
        if users is not None and waiting:
            waits = quantity(waiting, "waits", "wait")
            queue = f"{quantity(users, 'concurrent request')}: up to {waits} in the server's queue"
            row = PreflightRow("slots", f"{row.value} for {queue}", "note")
        rows.append(row)
    notes = dict.fromkeys(target.kind.slots_note for target in targets if target.kind.slots_note)
    rows += [PreflightRow("slots", note, "note") for note in notes]
    context = min((target.ctx_per_slot for target in targets if target.ctx_per_slot is not None), default=None)
    if context is not None:
        rows.append(PreflightRow("context", f"{context} tokens per request"))
    else:
        rows.append(PreflightRow("context", "not reported by the server; prompts that are too long will fail", "note"))
    return rows


def choice_rows(targets: Sequence[Target], options: RunOptions) -> list[PreflightRow]:
    """The shares of models and adapters, whether the warm-up reaches all of them, and models that count tokens in another way."""
    rows = []
    for name, choice in (("models", options.models), ("adapters", options.adapters)):
        if len(choice.names) > 1 or (choice.names and name == "adapters"):
            text, level = choice.described(), "ok"
            if options.warmup < len(choice.names):
                text += f"; --warmup {len(choice.names)} would warm up all of them"
                level = "note"
            rows.append(PreflightRow(name, text, level))
    for target in targets:
        if target.other_counts:
            text = f"{', '.join(target.other_counts)} of {target.address.url} may count tokens differently: prompts are counted by "
            rows.append(PreflightRow("tokens", f"{text}{target.model}, so give prompts that are short enough for all", "note"))
    return rows


def _server(target: Target) -> str:
    build, router = target.facts.build, " (router)" if target.load_s else ""
    return f"{target.backend}{router}{f' {build}' if build else ''} at {target.address.url}"


def _loads(target: Target) -> str:
    """`small loaded in 1.2 s, tiny was loaded`."""
    return ", ".join(f"{name} {f'loaded in {s:.1f} s' if s else 'was loaded'}" for name, s in target.load_s.items())


WIDER_RANGE = "sysctl -w net.ipv4.ip_local_port_range='1024 65535'"


def machine_rows(targets: Sequence[Target], users: int | None, limits: Limits, workers: int = 1) -> list[PreflightRow]:
    """Whether this machine can hold this many open connections, where `workers` processes share them evenly. UsageError: it cannot.

    Open files are a limit of each process, local ports of all processes of a machine: workers may be on several."""
    if users is None:
        return []
    # Reused connections stay open at each replica.
    files = -(-users // workers) * max(1, sum(target.reuse for target in targets))
    if limits.open_files is not None and files + OTHER_FILES > limits.open_files:
        raise UsageError(
            f"{users} concurrent requests need {files} open files in a process, the limit is {limits.open_files}; "
            f"raise it first: ulimit -n {files + 1000}"
        )
    per_target = -(-users // len(targets))
    if limits.local_ports is not None and per_target > limits.local_ports:
        short = f"{per_target} connections to one server need as many local ports, there are {limits.local_ports}; widen the range"
        if -(-per_target // workers) > limits.local_ports or workers == 1:
            raise UsageError(f"{short} first: {WIDER_RANGE}")
        return [PreflightRow("ports", f"{short}, or put the workers on several machines: {WIDER_RANGE}", "warning")]
    if limits.local_ports is not None and per_target > limits.local_ports / 2:
        return [PreflightRow("ports", f"{per_target} of {limits.local_ports} local ports needed", "note")]
    return []


def priority_rows(targets: Sequence[Target], priority: str, allowed: bool) -> list[PreflightRow]:
    """Whether the client precedes a server that may use every core of this machine."""
    if priority != AUTO or not any(is_here(target.address) for target in targets):
        return []
    if allowed:
        return [PreflightRow("priority", "the client has real-time priority, so a server on this machine does not delay it")]
    text = "a server on this machine may delay the client: allow it real-time priority, ulimit -r 1"
    return [PreflightRow("priority", text, "note")]


def plan_rows(plan: Plan, budget: Budget, *, open_ended: bool) -> list[PreflightRow]:
    """The prompts' number and source, and whether they fit a slot."""
    if not plan.measured:
        return [PreflightRow("prompts", "written in the locustfile")]
    facts = plan.facts
    first = plan.measured[0]
    batch = "rerank request" if first.text else "embeddings request"
    what = batch if first.inputs else "turn" if any(prompt.more for prompt in plan.measured) else "prompt"
    source = f"from {facts.dataset.path}, tokens counted by {facts.counted_by}"
    rows = [PreflightRow("prompts", f"{quantity(len(plan.measured), what)} {source}")]
    if facts.counted_by == EstimatedCounter.source:
        rows[0].value += " (off by 20 % and more: give --tokenizer)"
        rows[0].level = "note"
    rows += _repeat_rows(facts, open_ended=open_ended, is_generated=not first.inputs)
    rows += _cut_rows(facts)
    if isinstance(facts.dataset, AgentFacts) and facts.dataset.smaller:
        text = f"{facts.dataset.smaller}, so that a conversation fits a slot; other sizes: start the server with a larger context"
        rows.append(PreflightRow("agents", text, "note"))
    if facts.shortened:
        what = "conversations without the turns that do not fit a slot" if what == "turn" else "prompts shortened to fit a slot"
        rows.append(PreflightRow("too long", f"{what}: {facts.shortened} (--keep-long-prompts)", "note"))
    if _sees(plan):
        rows.append(PreflightRow("images", "their number of tokens is not known before the run", "note"))
    if budget.context is not None and not first.inputs:
        rows += _fitting_rows(plan, budget)
    return rows


def cache_rows(plans: Iterable[Plan]) -> list[PreflightRow]:
    """That prompts are changed for this run."""
    planned = [prompt for plan in plans for prompt in plan.measured[:1]]
    if not planned or all(prompt.inputs for prompt in planned):
        return []
    how = "generated" if all(prompt.is_new for prompt in planned) else f"beginning with {RUN_DIGITS} random digits"
    return [PreflightRow("cache", f"prompts are new in this run, {how}: no server has them cached (--seed 0: as they are)")]


def _repeat_rows(facts: PlanFacts, *, open_ended: bool, is_generated: bool) -> list[PreflightRow]:
    """Whether prompts are sent more than once."""
    distinct, repeated = facts.distinct, facts.repeated
    few = f"only {quantity(distinct, 'different one')}, {quantity(repeated, 'is', 'are')} repeated"
    if repeated and not is_generated:
        return [PreflightRow("repeats", few, "note")]
    if repeated:
        return [PreflightRow("repeats", f"{few} and will be cached (--bust-prefix-cache)", "warning")]
    if open_ended:
        come = "it repeats" if distinct == 1 else "they repeat"
        text = f"after {quantity(distinct, 'different prompt')} {come} and will be cached"
        return [PreflightRow("repeats", text, "note")]
    return []


def _cut_rows(facts: PlanFacts) -> list[PreflightRow]:
    """Documents cut to fit a slot, with both lengths; for each task of a mixture."""
    rows = []
    for part in facts.tasks.values() if facts.tasks else [facts]:
        if part.cut and isinstance(part.dataset, DocumentFacts):
            documents = f"{part.cut} of {quantity(part.distinct + part.repeated, 'document')}"
            lengths = f"from {part.cut_from:,} to {part.dataset.document_tokens:,} tokens"
            rows.append(PreflightRow("too long", f"{documents} cut {lengths} to fit a slot (--keep-long-prompts)", "note"))
    return rows


def _fitting_rows(plan: Plan, budget: Budget) -> list[PreflightRow]:
    """Whether the prompts fit a slot with their answers; unknown for prompts with images."""
    facts = plan.facts
    texts = [prompt for prompt in plan.measured if not prompt.images]
    long = sum(not budget.fits(prompt.prompt_tokens or 0, prompt.max_tokens or 0) for prompt in texts)
    if long:
        text = f"{quantity(long, 'prompt does', 'prompts do')} not fit a slot and will fail or be cut (--keep-long-prompts)"
        return [PreflightRow("too long", text, "warning")]
    if facts.replaced:
        text = f"{quantity(facts.replaced, 'prompt')} did not fit a slot, replaced by others"
        return [PreflightRow("too long", text, "note")]
    if facts.shortened or facts.cut or not texts:
        return []
    return [PreflightRow("too long", "no prompt: all fit a slot with their answers")]


def refuse_probes(options: RunOptions, plans: Iterable[Plan]) -> None:
    """UsageError if --probe-rate is given and the run's requests generate no text: then its servers may generate none."""
    plans = [plan for plan in plans if len(plan.measured)]
    if options.probe_rate_rps is not None and plans and all(plan.measured[0].inputs for plan in plans):
        raise UsageError("--probe-rate sends requests that generate a text, which embeddings and reranking do not: leave it out")


def refuse_unseen(plan: Plan, targets: Sequence[Target]) -> None:
    """UsageError: images would go to a server that reports no vision."""
    blind = [target for target in targets if target.is_blind]
    if blind and _sees(plan):
        raise UsageError(f"{blind[0].address.url} cannot see images; start llama-server with the model's --mmproj file")


def tool_rows(plan: Plan, targets: Sequence[Target]) -> list[PreflightRow]:
    """Whether the servers' chat templates take the tools of the prompts."""
    if not any(prompt.fields.get("tools") for prompt in plan.measured):
        return []
    urls = [target.address.url for target in targets if target.takes_tools is False]
    text = f"the chat template of {', '.join(urls)} takes no tools: the server drops them; use another model or template"
    return [PreflightRow("tools", text, "warning")] if urls else []


def pool_rows(plan: Plan, budget: Budget, targets: Sequence[Target], users: int | None, kv_pool: int | None) -> list[PreflightRow]:
    """Whether the longest prompts that may be in flight together fit the KV pool that the slots of a llama-server share.

    llama-server without `-np` (or with --kv-unified) gives every slot the whole context, and all slots share one pool of that
    size; when the pool is full, every stream ends in an error. Its API reports the slots but not the sharing, so `kv_pool`
    is the user's value or that of the log; None: no known pool.
    """
    counted = all(prompt.prompt_tokens is not None for prompt in plan.measured)
    slots = max((target.slots or 1 for target in targets if target.kind.divides_context), default=0)
    if kv_pool is None or not plan.measured or not counted or not slots or plan.measured[0].inputs or _sees(plan):
        return []
    at_a_time = min(-(-(users or 1) // len(targets)), slots)
    needs = (budget.need(prompt.prompt_tokens or 0, prompt.max_tokens or 0) for prompt in plan.measured)
    most = sum(heapq.nlargest(at_a_time, needs))
    if most <= kv_pool:
        return [PreflightRow("KV pool", f"{most} of {kv_pool} tokens at most")]
    longest = f"by the {at_a_time} longest prompts with answers"
    needed = f"{most} of {kv_pool} tokens needed {'by the longest prompt with its answer' if at_a_time == 1 else longest}"
    text = f"{needed}: a full pool fails all streams (fewer -u, larger -c)"
    return [PreflightRow("KV pool", text, "warning")]


def _sees(plan: Plan) -> bool:
    return any(prompt.images for prompt in plan.measured)


def differences(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """The differences between two descriptions of a server: `slots 4 -> 8`."""
    return [
        _change(name, before[trait], now[trait])
        for trait, name in TRAITS.items()
        if trait in before and trait in now and before[trait] != now[trait]
    ]


def change_rows(before: Manifest, now: Manifest) -> list[PreflightRow]:
    """The differences from the last run with the same label: servers, flags, data, version, machine."""
    changes = [] if before.version == now.version else [_change("llama-load", before.version, now.version)]
    if len(before.targets) != len(now.targets):
        changes.append(_change("replicas", len(before.targets), len(now.targets)))
    for old, new in zip(before.targets, now.targets, strict=False):
        changes += differences(old, new)
    for name in sorted(set(before.options) | set(now.options)):
        old_value, new_value = before.options.get(name), now.options.get(name)
        if (old_value or None) != (new_value or None):
            changes.append(_change("--" + name.replace("_", "-"), old_value or "not given", new_value or "not given"))
    if before.users != now.users:
        changes.append(_change("-u", before.users, now.users))
    if before.prompts != now.prompts:
        changes.append("the prompts")
    for name in ("name", "cores", "python"):
        if before.host.get(name) != now.host.get(name):
            changes.append(_change(f"client's {name}", before.host.get(name), now.host.get(name)))
    text = "; ".join(changes) if changes else "nothing"
    return [PreflightRow("changed", f"since the run of {before.date} with this label: {text}", "note" if changes else "ok")]


def _change(name: str, before: object, now: object) -> str:
    """A short change in full, a long one by its name."""
    text = f"{name} {before} -> {now}"
    return text if len(text) <= 80 else f"{name} (see run.json)"
