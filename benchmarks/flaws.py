"""Whether the verdict names planted flaws, and nothing in a clean run: one real run against a
server for each flaw.

.venv/bin/python -m benchmarks.flaws [NAME…]
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import msgspec

from benchmarks.flawed_server import WORDS, Flaw, flawed
from benchmarks.harness import heading, headless_chat

USERS, REQUESTS, TOKENS = 6, 60, 40
ENDS_WITHIN_S = 120
# Checks of the client and its machine, whose words on a busy machine are no error of the flaw's row.
OF_THE_CLIENT = (
    "own_delay_p99_ms",
    "late_p99_ms",
    "loop_lag_p99_ms",
    "core_busy",
    "core_wait_ratio",
    "merged_ratio",
    "client_pause_ms",
    "stolen_ratio",
    "other_programs_ratio",
    "server_wait_ratio",
)


CLEAN = Flaw()


@dataclass(frozen=True, kw_only=True)
class Case:
    """A flaw and the check that has to name it ("" in a clean run). Without `second` one server;
    else two replicas with `flaw`, one with `second`."""

    name: str
    check: str
    flaw: Flaw = CLEAN
    second: Flaw | None = None
    flags: Sequence[str] = ()


CASES = (
    Case(name="clean", check=""),
    Case(name="clean, three replicas", check="", second=Flaw()),
    Case(name="clean, counters", check="", flaw=Flaw(metrics=True)),
    Case(
        name="clean, rounded counters",
        check="",
        flaw=Flaw(metrics=True, counted_before=3_456_789),
    ),
    Case(
        name="usage x 0.5",
        check="count_gap_ratio|unbelievable_counts",
        flaw=Flaw(usage=0.5),
    ),
    Case(
        name="usage x 1.07",
        check="count_gap_ratio|unbelievable_counts",
        flaw=Flaw(usage=1.07, tokens=50),
        flags=("--max-tokens", "60"),
    ),
    Case(
        name="8 % of the events lost", check="count_gap_ratio", flaw=Flaw(lost_every=12)
    ),
    Case(name="max_tokens ignored", check="long_answer_ratio", flaw=Flaw(tokens=80)),
    Case(
        name="max_tokens ignored, --ignore-eos",
        check="long_answer_ratio",
        flaw=Flaw(tokens=80),
        flags=("--ignore-eos",),
    ),
    Case(
        name="prompts cut to 6 tokens",
        check="shortened_prompt_ratio",
        flaw=Flaw(most_prompt_tokens=6),
    ),
    Case(
        name="prompts cut to 64 tokens",
        check="shortened_prompt_ratio",
        flaw=Flaw(most_prompt_tokens=64),
    ),
    Case(
        name="one answer for all", check="equal_answer_ratio", flaw=Flaw(answers="none")
    ),
    Case(
        name="one answer for each user",
        check="equal_answer_ratio",
        flaw=Flaw(answers="user"),
    ),
    Case(
        name="10 % of four tokens",
        check="abrupt_answer_ratio",
        flaw=Flaw(short_every=10),
    ),
    Case(
        name="33 % content_filter", check="refused_ratio", flaw=Flaw(filtered_every=3)
    ),
    Case(name="all of three tokens", check="abrupt_answer_ratio", flaw=Flaw(tokens=3)),
    Case(
        name="a blank after 4 ms", check="blank_first_events", flaw=Flaw(blank_s=0.004)
    ),
    Case(
        name="15 preemptions in 60 requests",
        check="preemption_ratio",
        flaw=Flaw(preempted_every=4),
    ),
    Case(
        name="one slow replica of three",
        check="replica_difference",
        second=Flaw(slow=lambda _: 2.5),
        flags=("--num-prompts", "120"),
    ),
    Case(
        name="another client",
        check="other_client_ratio",
        flaw=Flaw(metrics=True, others=4),
    ),
    Case(name="bursts of 20 tokens", check="buffered_ratio", flaw=Flaw(burst=20)),
    Case(
        name="ten times slower from half time on",
        check="changed_ratio",
        flaw=Flaw(slow=lambda at_s: 1 if at_s < 5 else 10),
    ),
    Case(
        name="another model from 3 s on",
        check="answer_models",
        flaw=Flaw(model_changes_s=3.0),
    ),
    Case(
        name="usage one too low",
        check="count_gap_ratio|unbelievable_counts",
        flaw=Flaw(usage_more=-1),
    ),
    Case(
        name="every third answer has usage, x 1.07",
        check="count_gap_ratio",
        flaw=Flaw(usage_every=3, usage=1.07, tokens=36),
    ),
    Case(
        name="every event twice",
        check="count_gap_ratio|unbelievable_counts",
        flaw=Flaw(text=lambda word: word, twice=True),
    ),
    Case(
        name="an early first token",
        check="early_first_ratio",
        flaw=Flaw(early_s=0.004, prompt_token_s=0.001),
    ),
    Case(
        name="a quarter out of a gateway's cache",
        check="second_group_ratio",
        flaw=Flaw(cached_every=4),
        flags=("--num-prompts", "120"),
    ),
    Case(
        name="an early first token in a third, at two fifths",
        check="early_first_ratio|second_group_ratio",
        flaw=Flaw(early_s=0.04, early_every=3),
        flags=("--num-prompts", "120"),
    ),
    Case(
        name="one replica of three out of a cache",
        check="replica_difference|buffered_ratio",
        second=Flaw(slow=lambda _: 0.01),
        flags=("--num-prompts", "120"),
    ),
    Case(
        name="clean, Chinese",
        check="",
        flaw=Flaw(text=lambda word: "你好天地人水火木"[WORDS.index(word.strip())]),
    ),
    Case(name="clean, tool calls", check="", flaw=Flaw(tool_calls=True)),
    Case(
        name="slow at first",
        check="changed_ratio|cold_start_ratio",
        # The preflight and the warm-up take the first five seconds and more of this.
        flaw=Flaw(slow=lambda at_s: 6 if at_s < 12 else 1),
    ),
    Case(
        name="30 % hidden reasoning",
        check="vllm_mean_tpot_ms",
        flaw=Flaw(hidden=0.3, thoughts=True),
    ),
    Case(
        name="clean, reasoning in the text",
        check="",
        flaw=Flaw(hidden=0.6, thoughts=True, shows=True),
    ),
    Case(
        name="tool calls with 6 tokens of markup",
        check="vllm_mean_tpot_ms",
        flaw=Flaw(tool_calls=True, markup=6, lengths=6),
    ),
    Case(
        name="tool calls, usage x 1.4",
        check="tpot_bounds_ratio|unbelievable_counts",
        flaw=Flaw(tool_calls=True, usage=1.4, tokens=40),
        flags=("--max-tokens", "60"),
    ),
    Case(
        name="chunks of five tokens counted as tokens",
        check="uncounted_ratio",
        flaw=Flaw(chunk=5, counts_chunks=True),
    ),
    Case(
        name="half of the tokens without a stream",
        check="uncounted_ratio",
        flaw=Flaw(usage=0.5),
        flags=("--no-stream",),
    ),
    Case(
        name="prompt tokens without the cached ones",
        check="uncounted_prompt_ratio",
        flaw=Flaw(prompts=0.4),
    ),
    Case(
        name="prompt tokens x 1.5 beside vLLM's counter",
        check="counter_gap_ratio",
        flaw=Flaw(vllm=True, prompts=1.5),
    ),
    Case(name="clean, vLLM's counters", check="", flaw=Flaw(vllm=True)),
    Case(
        name="max_tokens lowered to 24",
        check="clipped_answer_ratio",
        flaw=Flaw(most_tokens=24),
    ),
    Case(
        name="slow in the middle",
        check="changed_ratio",
        flaw=Flaw(slow=lambda at_s: 5 if 3 < at_s < 9 else 1),
    ),
)


def run(case: Case) -> tuple[str, list[str]]:
    """The verdict's words and the names of the checks that failed, or were noted by the case's
    name."""
    with ExitStack() as stack, tempfile.TemporaryDirectory() as name:
        servers = [stack.enter_context(flawed(case.flaw))]
        if case.second is not None:
            servers += [
                stack.enter_context(flawed(each)) for each in (case.flaw, case.second)
            ]
        folder = Path(name) / "run"
        command = headless_chat()
        command += [
            "--host",
            ",".join(server.url for server in servers),
            "-u",
            str(USERS),
            "--num-prompts",
            str(REQUESTS),
        ]
        command += [
            "--max-tokens",
            str(TOKENS),
            "--run-dir",
            str(folder),
            "--loglevel",
            "ERROR",
            *case.flags,
        ]
        subprocess.run(
            command, capture_output=True, timeout=ENDS_WITHIN_S, cwd=name, check=False
        )
        verdict = msgspec.json.decode((folder / "summary.json").read_bytes())[
            "llama_load"
        ]["verdict"]
    noted = case.check.split("|")
    named = [
        each["name"]
        for each in verdict["checks"]
        if not each["ok"] or (each["limit"] is None and each["name"] in noted)
    ]
    return ", ".join(verdict["words"]), named


def row(case: Case) -> str:
    """`| usage x 0.5 | NOT COMPARABLE | count_gap_ratio | yes |`."""
    words, named = run(case)
    others = [name for name in named if name not in OF_THE_CLIENT]
    right = (
        any(name in named for name in case.check.split("|"))
        if case.check
        else not others
    )
    return f"| {case.name} | {words} | {', '.join(named)} | {'yes' if right else '**no**'} |"


def main(names: Sequence[str]) -> None:
    """Print the table."""
    print(heading())
    print("| flaw | verdict | failed checks | as it should be |")
    print("|---|---|---|---|")
    for case in CASES:
        if not names or case.name in names:
            print(row(case), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
