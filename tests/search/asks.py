"""The requests of a case: their prompts, and the answers that the model would give."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import product

import numpy as np
from numpy.typing import NDArray

from llama_load.servers.counting import EstimatedCounter
from tests.search.case import Case

# One token each, 3 to 7 characters with the blank before it.
_BEGINS = ("ba", "co", "di", "fu", "le", "ma", "ne", "po", "ri", "su", "to", "wa")
_ENDS = ("", "n", "st", "rd", "lly")
WORDS = tuple(f" {begin}{end}" for begin, end in product(_BEGINS, _ENDS))
SIGNS = tuple(
    "你好天地人水火木山石田土日月星云风雨雪春夏秋冬东南西北上下左右大小多少来去开关门车马牛羊鱼鸟花草树林森"
)
VOCABULARIES = {"english": WORDS, "chinese": SIGNS}
TEMPLATE_TOKENS = 12
DRAWS = 32
LEAST_PROMPT, LEAST_ANSWER = 8, 4
ESTIMATE = EstimatedCounter()


@dataclass(slots=True)
class Ask:
    """A request as the client plans it. `prompt_tokens` by the server's tokenizer, the chat
    template included; `planned_tokens` as counted before the run, without it. `draws` are numbers
    from 0 to 1, the same whatever changes are made."""

    index: int
    text: str
    prompt_tokens: int
    planned_tokens: int
    words: list[str]  # of the model's answer, a token each
    max_tokens: int
    finish: str
    workload: str
    stage: int
    conversation: str | None
    turn: int | None
    prefill_factor: float
    gap_factors: NDArray[np.float64]
    draws: NDArray[np.float64]
    place: float  # in the order of the plan (of its stage), from 0 to 1


def asks_of(case: Case) -> list[Ask]:
    """The requests of a case, in the order of the plan: turns of one conversation follow each
    other."""
    return _asks(replace(case, changes=()))


@lru_cache(maxsize=2)
def _asks(case: Case) -> list[Ask]:
    return [_ask(case, index) for index in range(case.requests)]


def _ask(case: Case, index: int) -> Ask:
    rng = np.random.default_rng((case.seed, index))
    vocabulary = VOCABULARIES[case.language]
    is_second = case.workloads > 1 and index // case.turns % 2 == 1
    factor = 2 if is_second else 1
    turn = index % case.turns + 1
    stages = max(1, len(case.stages))
    place = index * stages / case.requests % 1
    drawn = {"prompt": _prompt_rng(case, index).random(3), "answer": rng.random(3)}
    prompt_length = max(
        LEAST_PROMPT,
        round(
            factor
            * turn
            * _length(case.prompt_law, case.prompt_tokens, drawn["prompt"], place)
        ),
    )
    answer_length = max(
        LEAST_ANSWER,
        round(
            factor
            * _length(case.output_law, case.output_tokens, drawn["answer"], place)
        ),
    )
    prompt = _prompt(case, index, prompt_length, vocabulary)
    words = [
        vocabulary[place] for place in rng.integers(0, len(vocabulary), answer_length)
    ]
    text = "".join(prompt).strip()
    is_fixed = case.output_law == "fixed"
    planned = (
        prompt_length if case.counted_by == "tokenizer" else ESTIMATE.count([text])[0]
    )
    return Ask(
        index=index,
        text=text,
        prompt_tokens=prompt_length + TEMPLATE_TOKENS,
        planned_tokens=planned,
        words=words,
        max_tokens=answer_length if is_fixed else 16 * case.output_tokens,
        finish="length" if is_fixed else "stop",
        workload="second" if is_second else "first",
        stage=index * stages // case.requests if case.stages else 0,
        conversation=f"c{index // case.turns}" if case.turns > 1 else None,
        turn=turn if case.turns > 1 else None,
        prefill_factor=float(np.exp(0.1 * rng.standard_normal())),
        gap_factors=np.exp(
            case.jitter * rng.standard_normal(answer_length - 1) - case.jitter**2 / 2
        ),
        draws=rng.random(DRAWS),
        place=place,
    )


def _prompt_rng(case: Case, index: int) -> np.random.Generator:
    """Random numbers that are the same for the same prompt."""
    return np.random.default_rng(
        (case.seed, index % case.distinct if case.distinct else index, 1)
    )


def _prompt(
    case: Case, index: int, length: int, vocabulary: Sequence[str]
) -> list[str]:
    """The words of a prompt: the beginning that all have in common, and its own."""
    common = min(round(case.common * case.prompt_tokens), length - LEAST_PROMPT // 2)
    begin = np.random.default_rng((case.seed, 2**30)).integers(
        0, len(vocabulary), 4096
    )[:common]
    own = _prompt_rng(case, index).integers(0, len(vocabulary), length - max(0, common))
    return [vocabulary[place] for place in (*begin, *own)]


def _length(law: str, mean: int, drawn: NDArray[np.float64], place: float) -> float:
    """A length of this law, from numbers from 0 to 1 and the place in the plan."""
    if law == "fixed":
        return mean
    if law == "growing":
        return mean * (0.5 + 1.5 * place)
    if law == "long tail":
        return mean * (10.0 if drawn[0] < 0.02 else float(0.9 + 0.2 * drawn[1]))
    if law == "uniform":
        return float(mean * (0.5 + drawn[0]))
    if law == "bimodal":
        return mean * (0.25 if drawn[0] < 0.8 else 4.0) * float(0.9 + 0.2 * drawn[1])
    normal = np.sqrt(-2 * np.log(max(drawn[0], 1e-9))) * np.cos(2 * np.pi * drawn[1])
    return min(float(mean * np.exp(0.5 * normal - 0.125)), 7.0 * mean)
