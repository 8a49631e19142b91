"""Prompts that no server has in its cache: other content in each run, with the same lengths; or a
line of text before them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from msgspec import UNSET

from llama_load.loadgen.dispatch.leases import Lease
from llama_load.loadgen.users.beginning import Beginning, one_for_the_run
from llama_load.loadgen.users.session import NO_PREFIX, Ticket
from llama_load.loadgen.workloads.arrival import Arrival
from llama_load.loadgen.workloads.prompt_plan import PlanRequest, Traffic
from llama_load.loadgen.workloads.replay import Replay
from llama_load.loadgen.workloads.sharegpt import ShareGPT
from llama_load.loadgen.workloads.synthetic import Synthetic
from llama_load.loadgen.workloads.vision import Vision
from llama_load.servers.address import parse_url
from llama_load.servers.apis import CHAT, COMPLETIONS
from llama_load.servers.counting import EstimatedCounter
from llama_load.servers.prompt import Image, Message, Prompt
from llama_load.servers.target import Target
from tests.loadgen.workloads.test_synthetic import Pieces

TARGET = Target(parse_url("http://127.0.0.1:1"), "openai", None)


def ticket(index: int, prompt: Prompt | None, *, warmup: bool = False) -> Ticket:
    return Ticket(Lease(index, warmup, "chat", prompt), TARGET)


TRACE = [Arrival(0.0, 40 + 90 * number, 7, (1, 10 + number)) for number in range(6)]


@pytest.mark.parametrize("workload", [Synthetic, Replay, Vision])
def test_content_is_new_in_each_run_and_sizes_are_the_same(
    workload: Callable[[], Any],
) -> None:
    traffic = Traffic(
        input_len=120, prefix_len=30, range_ratio=0.4, image_size=(64, 48)
    )
    wanted = {
        "num_prompts": 6,
        "fill": True,
        "warmup": 2,
        "seed": 4,
        "counter": Pieces(),
        "trace": TRACE,
        "traffic": traffic,
    }

    def prompts(nonce: str, *, renews: bool) -> list[Prompt]:
        plan = workload().plan(PlanRequest(**wanted, nonce=nonce, renews=renews))
        return plan.measured + plan.warmup

    one, other, same = (
        prompts("a", renews=True),
        prompts("b", renews=True),
        prompts("a", renews=False),
    )
    assert same == prompts("b", renews=False)
    for with_one, with_other, without in zip(one, other, same, strict=True):
        assert (with_one.prompt_tokens, with_one.max_tokens) == (
            without.prompt_tokens,
            without.max_tokens,
        )
        assert [prompt.is_new for prompt in (with_one, with_other, without)] == [
            True,
            True,
            False,
        ]
        contents = [
            [image.sha256 for image in prompt.images] or prompt.text
            for prompt in (with_one, with_other, without)
        ]
        assert contents[0] != contents[1] != contents[2] != contents[0]
    assert prompts("a", renews=True) == one


def test_what_a_runs_prompts_share_they_still_share() -> None:
    """The same text for all, so that a prefix or a repeated prompt stays one in the server's cache;
    another text in the next run."""
    one, next_one = (
        one_for_the_run(nonce, Pieces())
        for nonce in ("0123456789abcdef", "fedcba9876543210")
    )
    planned = ticket(3, Prompt("What?"))
    prefix = one.prefix(planned)
    assert prefix == one.prefix(ticket(4, Prompt("Who?"), warmup=True))
    assert (
        len(prefix.text) == 9
        and prefix.text.strip().isdecimal()
        and prefix.tokens == Pieces().count([prefix.text])[0] - 1
    )
    assert next_one.prefix(planned) != prefix
    for prompt in (None, Prompt("What?", is_new=True), Prompt("", inputs=("a", "b"))):
        assert one.prefix(ticket(3, prompt)) == NO_PREFIX
    each = Beginning("0123456789abcdef")
    assert each.prefix(planned) != each.prefix(ticket(4, Prompt("What?")))
    assert (
        each.prefix(ticket(3, None)) == each.prefix(planned)
        and each.prefix(planned).tokens is None
    )
    assert one_for_the_run("0123456789abcdef", EstimatedCounter()).tokens in (2, 3)


def test_the_bundled_sample_is_never_sent_twice() -> None:
    """It has 212 prompts of that length; the others of 500 requests, and those of a longer run, begin with another
    number each time. A file of the user's repeats as it is."""
    wanted = {"num_prompts": 500, "fill": True, "warmup": 1, "seed": 0}
    request = PlanRequest(**wanted, counter=Pieces(), varies=True)
    plan = ShareGPT().plan(request)
    assert (plan.facts.distinct, plan.facts.repeated, plan.facts.varied) == (
        212,
        0,
        288,
    )
    for first_round in (0, 1):  # without and with --seed
        begin = one_for_the_run("a", Pieces(), first_round=first_round)
        sent = set()
        for place in range(9000):
            prompt = plan.prompt(place, warmup=False)
            assert prompt is not None
            sent.add(begin.prefix(ticket(place, prompt)).text + prompt.text)
        assert len(sent) == 9000
        as_it_is = begin.prefix(ticket(0, plan.measured[0])).text == ""
        assert as_it_is is (first_round == 1)

    own = ShareGPT().plan(replace(request, varies=False))
    assert (own.facts.repeated, own.facts.varied) == (288, UNSET)
    assert {prompt.round for prompt in own.measured} == {0}


def test_the_text_goes_before_images_and_before_a_system_prompt() -> None:
    image = Image(b"data:image/png;base64,AA==", "5" * 64, 8, 8)
    (message,) = CHAT.content(Prompt("What?", images=(image,)), (), "new\n")
    assert [part["type"] for part in message["content"]] == [
        "text",
        "image_url",
        "text",
    ]
    assert (
        message["content"][0]["text"] == "new\n"
        and message["content"][2]["text"] == "What?"
    )
    system, user = CHAT.content(
        Prompt("What?"), (Message("system", "Be brief."),), "new\n"
    )
    assert (system["content"], user["content"]) == ("new\nBe brief.", "What?")
    assert (
        COMPLETIONS.content(Prompt("What?"), (Message("user", "Hi"),), "new\n")
        == "new\nHi\n\nWhat?"
    )
