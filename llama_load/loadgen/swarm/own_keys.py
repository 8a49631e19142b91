"""A worker's own keys: the master sends none."""

from __future__ import annotations

from dataclasses import replace

from llama_load.ground.errors import UsageError
from llama_load.loadgen.options.options import RunOptions
from llama_load.loadgen.options.server_keys import headers_for
from llama_load.loadgen.run.sender import SenderConfig
from llama_load.loadgen.swarm import messages
from llama_load.outside.bound_headers import AUTHORIZATION
from llama_load.outside.foreign_text import masked, secrets_in


def with_own_keys(config: messages.RunConfig, own: RunOptions) -> SenderConfig:
    """The master's configuration with this worker's own keys and resolution of the servers' names.
    Raises UsageError."""
    headers = tuple(
        (name, value)
        for name, value in own.headers
        if name.lower() in config.key_headers
    )
    if missing := set(config.key_headers) - {name.lower() for name, _ in headers}:
        how = (
            "LLAMA_LOAD_API_KEY"
            if AUTHORIZATION.lower() in missing
            else "LLAMA_LOAD_HEADER"
        )
        raise UsageError(
            f"has no {min(missing)} for the server, and the master sends no keys: start every worker with {how} set"
        )
    sender = config.sender
    body = sender.settings.body_options
    if secrets_in(body.extra):
        if masked(own.extra_body) != masked(body.extra):
            raise UsageError(
                "has no --extra-body like the master's, and the master sends no keys: "
                "start every worker with LLAMA_LOAD_EXTRA_BODY set"
            )
        body = replace(body, extra=own.extra_body)
    targets = []
    for target in sender.targets:
        fields = (*target.headers.fields, *headers)
        targets.append(
            replace(
                target.resolved_here(), headers=headers_for(target.address.url, fields)
            )
        )
    return replace(
        sender, targets=targets, settings=replace(sender.settings, body_options=body)
    )
