"""Prompts for recorded traffic: as long as the trace's, with the same shared prefixes.

A trace has lengths but no texts. Mooncake's and Qwen-Bailian's also have `hash_ids`: one id for
every 512 or 16 tokens of a prompt, the last block may be shorter. Prompts that begin with the same
ids get the same text, so a prefix cache has the same hits. Source:
https://github.com/kvcache-ai/Mooncake, FAST25-release/traces;
alibaba-edu/qwen-bailian-usagetraces-anon.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain, count
from statistics import median_low

from llama_load.ground.errors import UsageError
from llama_load.loadgen.workloads.arrival import Arrival
from llama_load.loadgen.workloads.block_text import BlockText
from llama_load.loadgen.workloads.prompt_plan import (
    DataFacts,
    Plan,
    PlanFacts,
    PlanRequest,
)
from llama_load.servers.prompt import Prompt


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceFacts(DataFacts):
    """A trace: its requests, and how many of the sent ones had no recorded length."""

    requests: int
    without_lengths: int


class Replay:
    """Generated text in the lengths of a recorded trace: request i has arrival i's prompt tokens
    and requests its answer tokens.

    Where the trace has no length, `input_len` and `output_len` apply; a run leaves out the requests
    that then have none.
    Prompts too long for a slot are shortened. The text of a block depends on its id and the seed
    alone; text without an id is unique, warm-up included. Lengths are sums of counted passages:
    exact if the tokenizer splits words independently.
    """

    name = "replay"

    def plan(self, request: PlanRequest) -> Plan:
        """Generate the prompts of a trace's first requests. UsageError: no trace, or a request that
        fits no slot."""
        if not request.trace:
            raise UsageError("replay.py needs a trace: give it with --trace FILE")
        arrivals = request.trace[: request.num_prompts]
        text = BlockText(request.content_seed, request.counter, request.block_tokens)
        measured = []
        shortened = 0
        for place, arrival in enumerate(arrivals):
            prompt, answer = _lengths(arrival, place, request)
            recorded = max(text.least, prompt)
            output = max(1, answer)  # servers refuse a request for 0 tokens
            tokens = _fitting(recorded, output, text.least, request)
            shortened += tokens < recorded
            names = chain(
                (f"id {hash_id}" for hash_id in arrival.hash_ids),
                _own_names(f"request {place}"),
            )
            measured.append(
                Prompt(*text.prompt(names, tokens), output, is_new=request.renews)
            )
        output = median_low(prompt.max_tokens or 0 for prompt in measured)
        tokens = _fitting(
            median_low(prompt.prompt_tokens or 0 for prompt in measured),
            output,
            text.least,
            request,
        )
        warm = (
            text.prompt(_own_names(f"warm-up {place}"), tokens)
            for place in range(request.warmup)
        )
        warmup = [Prompt(*counted, output, is_new=request.renews) for counted in warm]
        first_ids = [arrival.hash_ids[0] for arrival in arrivals if arrival.hash_ids]
        lengths = TraceFacts(
            path="a trace",
            requests=len(request.trace),
            without_lengths=sum(
                None in (arrival.input_tokens, arrival.output_tokens)
                for arrival in arrivals
            ),
        )
        facts = PlanFacts(
            dataset=lengths,
            counted_by=request.counter.source,
            distinct=len({prompt.text for prompt in measured}),
            repeated=0,  # the trace repeated it too
            replaced=0,
            shortened=shortened,
            shared_tokens=None if len(set(first_ids)) < len(first_ids) else 0,
        )
        return Plan(measured, warmup, facts)


def _lengths(arrival: Arrival, place: int, request: PlanRequest) -> tuple[int, int]:
    """The tokens of a request's prompt and answer. UsageError: neither the trace nor a flag has
    them."""
    prompt = arrival.input_tokens
    if prompt is None:
        prompt = request.traffic.input_len
    if prompt is None:
        raise UsageError(
            f"request {place + 1} of the trace has no prompt length: give --input-len"
        )
    answer = arrival.output_tokens
    if answer is None:
        answer = request.output_len or request.answer_len
    if answer is None:
        raise UsageError(
            f"request {place + 1} of the trace has no answer length: give --output-len"
        )
    return prompt, answer


def _fitting(
    input_tokens: int, output_tokens: int, least: int, request: PlanRequest
) -> int:
    """The prompt's tokens that fit a slot. UsageError: not even one word fits."""
    if request.fits is None or request.fits(input_tokens, output_tokens):
        return input_tokens
    room = request.room(output_tokens)
    if room is None or room < least:
        raise UsageError(
            "a slot of the server has no room for a prompt with an answer of "
            f"{request.answer_len or output_tokens} tokens, as a "
            "request of the trace needs; set shorter answers with --max-tokens, or start the "
            "server with a larger context or "
            "fewer slots"
        )
    return min(input_tokens, room)


def _own_names(prompt: str) -> Iterator[str]:
    """Names of blocks that no other prompt has, without end."""
    return (f"{prompt} {number}" for number in count())
