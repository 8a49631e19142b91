"""The simulated server's settings: its times, the lengths of its answers, its faults."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass

from llama_load.ground.errors import UsageError
from llama_load.ground.units import s_to_ns

FAULTS = {
    "cut": "closes the connection after `fault_after` tokens, without an end of the stream",
    "reset": "resets the connection after `fault_after` tokens",
    "stall": "sends nothing more after `fault_after` tokens and keeps the connection open",
    "error": "sends an error event after `fault_after` tokens and ends the stream",
    "garbage": "sends an event that is not JSON after `fault_after` tokens, then goes on",
    "no-finish": "ends with [DONE] but without a finish_reason",
    "no-done": "ends without [DONE], but with a finish_reason",
    "empty": "ends well-formed, but without any token",
    "status": "answers with the HTTP status `status` and an error object",
}
LENGTHS = {
    "asked": "max_tokens of the request, or `tokens` without one",
    "geometric": "drawn from the geometric distribution of mean `tokens`, regardless of the "
    "request",
}


@dataclass(frozen=True, slots=True)
class Schedule:
    """The settings of every request unless its body overrides them. Times in seconds.

    `slots` and the stall belong to the server: a body cannot override them. UsageError: invalid
    settings.
    """

    first_token_s: float = 0.1  # from getting a slot to the first token
    interval_s: float = 0.02  # between tokens
    # each token is moved by a uniform draw from [-jitter_s, +jitter_s]
    jitter_s: float = 0.0
    lengths: str = "asked"  # one of LENGTHS
    tokens: int = 64  # asked: for requests without max_tokens; geometric: the mean
    merge: int = 1  # tokens sent in one piece
    slots: int = 0  # requests served at a time, others queue; 0 is no limit
    fault: str = ""  # one of FAULTS
    fault_every: int = 1  # 1: every request has the fault; n: every n-th
    fault_after: int = 0
    status: int = 500  # for the fault "status"
    seed: int = 0
    # of a prompt, as usage reports them; negative: it reports none
    cached_tokens: int = 0
    stall_at_s: float = 0.0  # from the receipt of the first request to the stall
    stall_s: float = 0.0  # duration of the stall, when nothing is sent; 0: no stall

    def __post_init__(self) -> None:
        if self.fault and self.fault not in FAULTS:
            raise UsageError(
                f"fault must be one of {', '.join(FAULTS)}, got {self.fault!r}"
            )
        if self.lengths not in LENGTHS:
            raise UsageError(
                f"lengths must be one of {', '.join(LENGTHS)}, got {self.lengths!r}"
            )
        if self.lengths == "geometric" and self.tokens < 1:
            raise UsageError(
                f"tokens, the mean of geometric lengths, must be 1 or more, got {self.tokens}"
            )
        if self.stall_at_s < 0 or self.stall_s < 0:
            raise UsageError(
                f"a stall's beginning and duration must be 0 s or more, got {self.stall_at_s} "
                f"and {self.stall_s}"
            )

    def answer_tokens(self, number: int, max_tokens: int = 0) -> int:
        """Tokens of the answer to request `number`; 1 is the first.

        `max_tokens`: of the request, 0 if not given.

        "geometric": 1 + floor(ln(1 - u) / ln(1 - 1/mean)), u uniform on [0, 1): P(n) = (1 -
        1/mean)^(n - 1) / mean, with standard deviation sqrt(mean (mean - 1)). It is the memoryless
        distribution of whole numbers, near the exponential for means of some tens. u is the first
        number of a random stream seeded with `seed` and `number`, so a run's lengths are known
        beforehand. max_tokens does not cap them, which would not be memoryless; the longest
        possible is 37 x mean. Source: inversion, Devroye, Non-Uniform Random Variate Generation,
        chapter X.2.
        """
        if self.lengths == "asked":
            return max_tokens or self.tokens
        if self.tokens == 1:
            return 1
        uniform = random.Random(f"length {self.seed} {number}").random()
        return 1 + math.floor(math.log1p(-uniform) / math.log1p(-1 / self.tokens))

    def stall_ns(self, first_received_ns: int) -> tuple[int, int]:
        """The stall's start and end (monotonic ns), equal if there is none.

        `first_received_ns`: the receipt of the first request.
        """
        begin = first_received_ns + s_to_ns(self.stall_at_s)
        return begin, begin + s_to_ns(self.stall_s)

    def finish_reason(self, total: int, max_tokens: int = 0) -> str:
        """Why an answer of `total` tokens ended.

        "stop" if its length was drawn and is below max_tokens (0: not given).
        """
        is_below = not max_tokens or total < max_tokens
        return "stop" if self.lengths == "geometric" and is_below else "length"
