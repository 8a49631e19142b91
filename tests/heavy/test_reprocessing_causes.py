"""Why prompts were processed again, before the llama-server that is built from source.

Each cause is planted so that ten turns of a run have it. The same traffic with the cause's remedy
has none.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from llama_load.analysis.topics.reprocessing.causes import (
    CACHE_OFF,
    EVICTED,
    SHIFT,
    SLEPT,
    TAKEN,
    TEMPLATE,
    TEXT,
    WINDOW,
)
from llama_load.servers.kinds import ServerSpec
from llama_load.servers.serving.launch import serving
from tests.analysis.topics.test_reprocessing import (
    RunLocust,
    causes,
    dated_spans,
    figures,
    sent,
    talks,
)
from tests.conftest import Finished
from tests.swa_model import make_swa_model

TURNS = 10
# The text of an assistant's message after its reasoning; all of it.
REASONED = "message['content'].split('</think>')[-1]"
WHOLE = "message['content']"
# As the templates of Qwen3 and DeepSeek-R1: reasoning stays while tools are called, and is left out
# of the history once the user asks again.
REASONING_TEMPLATE = (
    "{% set place = namespace(last=0) %}"
    "{% for message in messages %}{% if message['role'] == 'user' %}"
    "{% set place.last = loop.index0 %}{% endif %}{% endfor %}"
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\n' }}"
    "{% if message['role'] == 'assistant' and loop.index0 < place.last %}"
    "{{ EARLIER }}"
    "{% else %}{{ message['content'] }}{% endif %}"
    "{% if message['tool_calls'] %}{{ message['tool_calls'] | tojson }}{% endif %}"
    "{{ '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)


def long_talks(folder: Path) -> Path:
    """Ten conversations of two turns, the first of about 900 tokens."""
    lines = []
    for number in range(TURNS):
        story = f"Number {number * 7919} tells a long story of many words. " * 80
        messages = [
            {"role": "user", "content": story},
            {"role": "assistant", "content": "Good."},
            {"role": "user", "content": "And then?"},
            {"role": "assistant", "content": "Good."},
        ]
        lines.append(json.dumps({"id": f"talk{number}", "messages": messages}))
    path = folder / "long.jsonl"
    path.write_text("\n".join(lines))
    return path


def reasoning_talk(folder: Path) -> Path:
    """A conversation of ten calls of a tool, each after some reasoning, and eleven questions."""
    messages: list[dict[str, object]] = []
    for number in range(TURNS):
        thought = f"The user wants item {number}, so I look for item {number}. " * 10
        call = {
            "id": f"call{number}",
            "type": "function",
            "function": {"name": "find", "arguments": "{}"},
        }
        messages += [
            {"role": "user", "content": f"Please find item {number}."},
            {
                "role": "assistant",
                "content": f"<think>{thought}</think>",
                "tool_calls": [call],
            },
            {"role": "tool", "tool_call_id": f"call{number}", "content": "In a box."},
            {"role": "assistant", "content": "It is in a box."},
        ]
    messages += [
        {"role": "user", "content": "Thank you."},
        {"role": "assistant", "content": "You are welcome."},
    ]
    path = folder / "reasoning.jsonl"
    path.write_text(json.dumps({"id": "finder", "messages": messages}))
    return path


@dataclass(frozen=True)
class Planted:
    """A cause. `server`: flags of both servers; `plant` and `remedy`: of the one that has the
    cause, and of the one that has not. `flags`: of both runs; `data`: makes their data set, in
    which so many turns are later ones. `data_of_remedy`: where the client is the cause."""

    server: Sequence[str]
    plant: Sequence[str]
    remedy: Sequence[str]
    flags: Sequence[str]
    data: Callable[[Path], Path]
    later_turns: int = TURNS
    data_of_remedy: Callable[[Path], Path] | None = None


def one_talk(folder: Path) -> Path:
    return talks(folder, 1, TURNS + 1)


def dated(folder: Path) -> Path:
    return dated_spans(folder, TURNS + 1)


ONE_USER = ("-u", "1", "--num-prompts", str(TURNS + 1), "--output-len", "8")
PLANTED = {
    TAKEN: Planted(
        ("-c", "16384", "-cram", "0"),
        ("-np", "1"),
        ("-np", "2"),
        # Long answers: the other user's next request is there before one of them ends.
        ("-u", "2", "--num-prompts", "12", "--output-len", "400", "--ignore-eos"),
        lambda folder: talks(folder, 2, 6),
    ),
    TEXT: Planted(
        ("-np", "1", "-c", "8192"), (), (), ONE_USER, dated, data_of_remedy=one_talk
    ),
    CACHE_OFF: Planted(
        ("-np", "1", "-c", "8192"), ("--no-cache-prompt",), (), ONE_USER, one_talk
    ),
    EVICTED: Planted(
        ("-np", "1", "-c", "4096"),
        ("-cram", "1"),
        ("-cram", "64"),
        ("-u", "10", "--num-prompts", "20", "--output-len", "8"),
        long_talks,
    ),
    # Its window is full of the answer's tokens; no checkpoint was kept.
    WINDOW: Planted(
        ("-np", "1", "-c", "8192", "-b", "64", "-ub", "64", "-fa", "off"),
        ("-ctxcp", "0"),
        ("-ctxcp", "0", "--swa-full"),
        ("-u", "1", "--num-prompts", "11", "--output-len", "400", "--ignore-eos"),
        one_talk,
    ),
    TEMPLATE: Planted(
        ("-np", "1", "-c", "8192", "--jinja"),
        (REASONED,),
        (WHOLE,),
        ("-u", "1", "--num-prompts", "21", "--output-len", "8"),
        reasoning_talk,
        later_turns=2 * TURNS,
    ),
    SLEPT: Planted(
        ("-np", "1", "-c", "8192"),
        ("--sleep-idle-seconds", "1"),
        (),
        (*ONE_USER, "--think-time", "2"),
        one_talk,
    ),
    SHIFT: Planted(
        ("-np", "1", "--context-shift"),
        ("-c", "512"),
        ("-c", "8192"),
        ("-u", "1", "--num-prompts", "20", "--output-len", "500", "--ignore-eos"),
        lambda folder: talks(folder, TURNS, 2),
    ),
}


def run_of(
    cause: str,
    is_planted: bool,
    llama_cpp: Path,
    model: Path,
    folder: Path,
    run_locust: RunLocust,
) -> Finished:
    """The traffic of a cause before a server that has it, or that has its remedy."""
    case = PLANTED[cause]
    own = case.plant if is_planted else case.remedy
    if cause == WINDOW:
        model = make_swa_model(model, folder / "swa.gguf")
    if cause == TEMPLATE:
        template = folder / "template.jinja"
        template.write_text(REASONING_TEMPLATE.replace("EARLIER", own[0]))
        own = ("--chat-template-file", str(template))
    data = case.data
    if not is_planted and case.data_of_remedy is not None:
        data = case.data_of_remedy
    spec = ServerSpec(
        kind="llama-server",
        program=str(llama_cpp / "llama-server"),
        model=str(model),
        args=("-t", "1", *case.server, *own),
    )
    with serving(spec, folder / "server") as server:
        return sent(run_locust, server.url, folder / "run", data(folder), *case.flags)


def cost_by_log_ms(run: Finished) -> float:
    """What was processed again, by the server's log: of each later turn's time the share of its
    processed tokens that could have been cached."""
    log = (run.folder / "server" / "server.log").read_text()
    line = r"prompt eval time = +([0-9.]+) ms / +([0-9]+) tokens"
    of_log = defaultdict(list)
    for ms, tokens in re.findall(line, log):
        of_log[int(tokens)].append(float(ms))

    records = run.records
    columns = (
        records.instants("started_mono_ns").tolist(),
        records.strings("conversation"),
        records.numbers("prompt_tokens").tolist(),
        records.numbers("server_prompt_tokens").tolist(),
    )
    before: dict[str | None, float] = {}
    cost_ms = 0.0
    for _, talk, prompt, processed in sorted(zip(*columns, strict=True)):
        cached = prompt - processed
        again = min(before.get(talk, 0), prompt - 1) - cached
        if again > 16:
            cost_ms += of_log[int(processed)].pop(0) * again / processed
        before[talk] = prompt
    return cost_ms


@pytest.mark.heavy
@pytest.mark.parametrize("cause", PLANTED)
def test_ten_planted_turns_of_ten_are_named_with_the_logs_ms(
    cause: str, llama_cpp: Path, tiny_model: Path, tmp_path: Path, run_locust: RunLocust
) -> None:
    """Catches a cause that llama-server's cache has in another way than the model of it."""
    run = run_of(cause, True, llama_cpp, tiny_model, tmp_path, run_locust)
    (found,) = figures(run)["causes"]
    assert (found["cause"], found["turns"]) == (cause, TURNS)
    assert found["ms"] == pytest.approx(cost_by_log_ms(run), rel=0.15)


@pytest.mark.heavy
@pytest.mark.parametrize("cause", PLANTED)
def test_its_remedy_leaves_none_of_ten_turns_to_name(
    cause: str, llama_cpp: Path, tiny_model: Path, tmp_path: Path, run_locust: RunLocust
) -> None:
    """Catches a remedy that does not help on the real server."""
    run = run_of(cause, False, llama_cpp, tiny_model, tmp_path, run_locust)
    assert causes(run) == []
    assert figures(run)["turns"] == PLANTED[cause].later_turns
