"""The servers of a run, and what they report."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from llama_load.ground.errors import UsageError
from llama_load.loadgen.options.flag import TEXTS
from llama_load.loadgen.options.options import RunOptions
from llama_load.loadgen.options.server_keys import KEYS_FOR, headers_for, may_have_keys
from llama_load.loadgen.preflight.slot_budget import Budget, slot_budget
from llama_load.loadgen.users.beginning import Beginning, one_for_the_run
from llama_load.loadgen.workloads.prompt_plan import Plan
from llama_load.outside.foreign_text import secrets_in
from llama_load.run_folder import PreflightRow
from llama_load.servers.adapters import adapter_fields, check_adapters
from llama_load.servers.address import shown_url, split_hosts
from llama_load.servers.api_location import Location
from llama_load.servers.apis import APIS, CHAT, EMBEDDINGS, RERANK
from llama_load.servers.apis.api import GeneratingApi
from llama_load.servers.body import BodyOptions, asked_tokens
from llama_load.servers.counting import LocalCounter, TokenCounter
from llama_load.servers.probe import Probe, ProbeSettings
from llama_load.servers.prompt import Prompt
from llama_load.servers.side_by_side import side_by_side
from llama_load.servers.target import Target


def hosts_of(environment: Any) -> list[str]:
    """The base URLs of the servers: --host, else the host of the locustfile's classes. UsageError:
    neither is set."""
    given = [getattr(user, "host", None) for user in environment.user_classes]
    hosts = split_hosts(environment.host or next(filter(None, given), ""))
    if not hosts:
        raise UsageError(
            "no server given; give its base URL with --host, such as --host http://127.0.0.1:8080"
        )
    for host in hosts:
        if hosts.count(host) > 1:
            raise UsageError(f"--host names {shown_url(host)} twice")
    return hosts


def probe_targets(
    hosts: Sequence[str], options: RunOptions, *, generates: bool = True
) -> tuple[list[Probe], list[Target]]:
    """The servers, each with its probe. `generates`: they are to generate texts. UsageError: one
    cannot be used, or not with these flags."""
    if secrets_in(options.extra_body):
        for host in hosts:
            if not may_have_keys(host):
                raise UsageError(
                    f"--extra-body holds a key, and keys are not for {shown_url(host)} ({KEYS_FOR})"
                )
    make_probes = []
    for host in hosts:
        settings = _probe_settings(host, options, generates=generates)
        make_probes.append(partial(Probe, settings))

    # All at the same time: replicas far away answer in as long as one. The first server's error is
    # reported first.
    probes = side_by_side(make_probes)
    for probe in probes:
        _refuse_other_api(probe.location, options.endpoint)
    targets = side_by_side([probe.ask for probe in probes])
    if options.adapters.names:
        for probe, target in zip(probes, targets, strict=True):
            check_adapters(target, options.adapters.names, probe.session)
            adapter_fields(target, options.endpoint, options.adapters.names[0])

    if (
        APIS[options.endpoint] is CHAT and options.warmup
    ):  # --warmup 0 forbids to generate
        for number, (probe, target) in enumerate(zip(probes, targets, strict=True)):
            if target.kind.hides_template:
                targets[number] = probe.with_learned_template(target)

    is_cached = not options.bust_prefix_cache and not have_cache_switch(targets)
    if options.load.same_prompts and is_cached and not options.same_answer:
        raise UsageError(
            "--stage-prompts same: --cache-prompt off works only for llama-server, other servers "
            "would use their cache; add "
            "--bust-prefix-cache"
        )
    return probes, targets


def text_rows(
    probes: Sequence[Probe],
    targets: Sequence[Target],
    plans: Iterable[Plan],
    options: BodyOptions,
) -> list[PreflightRow]:
    """Whether each server takes the longest of the texts that it is to embed or to rank: it must
    fit a micro-batch of llama-server, the context of others. UsageError: a server was started
    without that API."""
    rows = []
    for plan in plans:
        if not plan.measured or not plan.measured[0].inputs:
            continue
        longest = _longest_text(plan)
        api = RERANK if longest.text else EMBEDDINGS
        content = api.content(longest, (), "")
        for probe, target in zip(probes, targets, strict=True):
            body = api.build(content, target, options)
            doubt = probe.doubt_about_texts(api, body)
            if doubt:
                text = f"{target.address.url}: the longest is {doubt}"
                rows.append(PreflightRow("texts", text, "warning"))
    return rows


def _longest_text(plan: Plan) -> Prompt:
    """A request with the longest text of all, and its query where there is one. The text begins
    with its second half, so that no prefix cache has it as it is."""
    longest = plan.measured[0]
    most = 0
    for prompt in plan.measured:
        text = max(prompt.inputs, key=len)
        size = len(prompt.text) + len(text)
        if size > most:
            most = size
            middle = len(text) // 2
            longest = replace(prompt, inputs=(text[middle:] + text[:middle],))
    return longest


def _probe_settings(
    host: str, options: RunOptions, *, generates: bool
) -> ProbeSettings:
    return ProbeSettings(
        host,
        headers_for(host, options.headers),
        options.backend,
        options.models.names,
        options.connection_reuse,
        generates=generates,
        tls=options.tls,
    )


def generates_texts(environment: Any) -> bool:
    """Whether a workload of the locustfile asks for texts; else all embed or rank, or there is
    none."""
    names = []
    for user in environment.user_classes:
        workload = getattr(user, "workload", None)
        if workload is not None:
            names.append(type(workload).__name__)
    return not names or any(name not in TEXTS for name in names)


def _refuse_other_api(location: Location, endpoint: str) -> None:
    """UsageError: the URL is that of another API than the run's."""
    api = location.api
    if isinstance(api, GeneratingApi) and api.name != endpoint:
        raise UsageError(
            f"--host is the URL of {api.path}, and the run's API is {APIS[endpoint].path}: add "
            f"--endpoint {api.name}, or give the server's URL without the path of an API"
        )


def have_cache_switch(targets: Sequence[Target]) -> bool:
    """Whether a request can turn the prompt cache of each of these servers off."""
    return all(target.kind.has_cache_switch for target in targets)


def token_counter(probe: Probe, options: RunOptions) -> TokenCounter:
    """The counter of prompt tokens: --tokenizer, else the server's."""
    if options.tokenizer is None:
        return probe.counter()
    return LocalCounter(options.tokenizer)


def beginning_of(
    options: RunOptions, targets: Sequence[Target], counter: TokenCounter, nonce: str
) -> Beginning | None:
    """How prompts must begin so that no server has them cached; None: they are sent as they are.
    With a seed only those that the run sends again begin in another way, with its own text."""
    if options.bust_prefix_cache:
        return Beginning(nonce)
    is_off = options.cache_prompt is False and have_cache_switch(targets)
    is_cached = APIS[options.endpoint].is_cached and not is_off
    if not is_cached or options.cache_prompt:
        return None
    if options.renews_prompts:
        return one_for_the_run(nonce, counter)
    return one_for_the_run(f"seed {options.seed}", counter, first_round=1)


def budget_of(
    targets: list[Target],
    options: RunOptions,
    beginning: Beginning | None,
    *,
    shifts: bool,
) -> Budget:
    """The part of a slot that prompts and answers may take. `shifts`: an answer may be longer than
    the rest of its slot (--context-shift), so only the prompt has to fit."""
    api = APIS[options.endpoint]
    answer = asked_tokens(options.extra_body) or options.max_tokens
    if shifts:
        answer = 1

    prefix = 0
    if beginning is not None:
        prefix = beginning.most_tokens

    return slot_budget(targets, api, max_tokens=answer, prefix_tokens=prefix)
