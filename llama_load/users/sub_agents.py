"""Sub-agents of a conversation: they run beside each other between two of its turns, and its next turn waits for all of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import groupby, takewhile
from typing import Any

import gevent

from llama_load.dispatch.leases import Lease
from llama_load.users.turn import ActiveConversation


def run_agents(conversation: ActiveConversation, exchange: Callable[[ActiveConversation], Any]) -> None:
    """Send the turns of the sub-agents that come before the conversation's next own turn, and wait for the last one.

    Every sub-agent has a history of its own, and its turns follow each other. If the user is stopped, all of them are.
    """
    leases = list(takewhile(_is_of_agent, conversation.ticket.following))
    if not leases:
        return
    ticket = conversation.ticket
    conversation.ticket = replace(ticket, following=ticket.following[len(leases) :])
    agents = [_agent(conversation, list(own)) for _, own in groupby(leases, key=_name)]
    greenlets = [gevent.spawn(_send_all, agent, exchange) for agent in agents]
    try:
        gevent.joinall(greenlets, raise_error=True)
    finally:
        gevent.killall(greenlets)
        for agent in agents:
            agent.broken_off(None)


def _is_of_agent(lease: Lease) -> bool:
    return lease.prompt is not None and lease.prompt.agent is not None


def _name(lease: Lease) -> str | None:
    return None if lease.prompt is None else lease.prompt.agent


def _agent(parent: ActiveConversation, leases: Sequence[Lease]) -> ActiveConversation:
    """A sub-agent before its first turn."""
    prompt = leases[0].prompt
    return replace(
        parent,
        ticket=replace(parent.ticket, following=tuple(leases)),
        history=() if prompt is None else prompt.history,
        renamed={},
    )


def _send_all(agent: ActiveConversation, exchange: Callable[[ActiveConversation], Any]) -> None:
    while agent.ticket.following:
        agent.take_next()
        exchange(agent)
