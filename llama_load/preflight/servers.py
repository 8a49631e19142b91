"""The servers of a run, and what they report."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from llama_load.errors import UsageError
from llama_load.foreign_text import secrets_in
from llama_load.options.options import RunOptions
from llama_load.options.server_keys import KEYS_FOR, headers_for, may_have_keys
from llama_load.preflight.checks import Budget, slot_budget
from llama_load.targets.adapters import adapter_fields, check_adapters
from llama_load.targets.apis import APIS, CHAT
from llama_load.targets.body import asked_tokens
from llama_load.targets.probe import Probe, ProbeSettings
from llama_load.targets.side_by_side import side_by_side
from llama_load.targets.target import Target
from llama_load.users.beginning import Beginning, one_for_the_run
from llama_load.wire.address import shown_url, split_hosts
from llama_load.workloads.counting import LocalCounter, TokenCounter


def hosts_of(environment: Any) -> list[str]:
    """The base URLs of the servers: --host, else the host of the locustfile's classes. UsageError: neither is set."""
    given = [environment.host, *(getattr(user, "host", None) for user in environment.user_classes)]
    hosts = split_hosts(next((host for host in given if host), ""))
    if not hosts:
        raise UsageError("no server given; give its base URL with --host, such as --host http://127.0.0.1:8080")
    if twice := [host for host in dict.fromkeys(hosts) if hosts.count(host) > 1]:
        raise UsageError(f"--host names {shown_url(twice[0])} twice")
    return hosts


def probe_targets(hosts: Sequence[str], options: RunOptions) -> tuple[list[Probe], list[Target]]:
    """The servers, each with its probe. UsageError: one cannot be used, or not with these flags."""
    if secrets_in(options.extra_body):
        for host in hosts:
            if not may_have_keys(host):
                raise UsageError(f"--extra-body holds a key, and keys are not for {shown_url(host)} ({KEYS_FOR})")
    settings = (options.backend, options.models.names, options.connection_reuse, options.tls)
    # All at the same time: replicas far away answer in as long as one. The first server's error is reported first.
    probes = side_by_side([partial(Probe, ProbeSettings(host, headers_for(host, options.headers), *settings)) for host in hosts])
    targets = side_by_side([probe.ask for probe in probes])
    if options.adapters.names:
        for probe, target in zip(probes, targets, strict=True):
            check_adapters(target, options.adapters.names, probe.session)
            adapter_fields(target, options.endpoint, options.adapters.names[0])
    api = APIS[options.endpoint]
    if api is CHAT and options.warmup:  # --warmup 0 forbids a generating request
        targets = [
            probe.with_learned_template(target) if target.kind.hides_template else target
            for probe, target in zip(probes, targets, strict=True)
        ]
    is_cached = not options.bust_prefix_cache and not all(target.kind.has_cache_switch for target in targets)
    if options.load.same_prompts and is_cached and not options.same_answer:
        raise UsageError(
            "--stage-prompts same: --cache-prompt off works only for llama-server, other servers would use their cache; add "
            "--bust-prefix-cache"
        )
    return probes, targets


def token_counter(probe: Probe, options: RunOptions) -> TokenCounter:
    """The counter of prompt tokens: --tokenizer, else the server's."""
    return probe.counter() if options.tokenizer is None else LocalCounter(options.tokenizer)


def beginning_of(options: RunOptions, targets: Sequence[Target], counter: TokenCounter, nonce: str) -> Beginning | None:
    """How prompts must begin so that no server has them cached; None: they are sent as they are."""
    if options.bust_prefix_cache:
        return Beginning(nonce)
    is_off = options.cache_prompt is False and all(target.kind.has_cache_switch for target in targets)
    caches = APIS[options.endpoint].is_cached and not is_off
    return one_for_the_run(nonce, counter) if options.renews_prompts and caches else None


def budget_of(targets: list[Target], options: RunOptions, beginning: Beginning | None, *, shifts: bool) -> Budget:
    """The part of a slot that prompts and answers may take. `shifts`: an answer may be longer than the rest of its slot
    (--context-shift), so only the prompt has to fit."""
    return slot_budget(
        targets,
        APIS[options.endpoint],
        max_tokens=1 if shifts else asked_tokens(options.extra_body) or options.max_tokens,
        prefix_tokens=0 if beginning is None else beginning.most_tokens,
    )
