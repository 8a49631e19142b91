"""An answer on its way: what the server does for a request, then what it sends, then what the
client reads."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from tests.search.asks import Ask

CONTENT, REASONING, TOOL_CALL = "content", "reasoning_content", "tool_calls"
# The beginning of a tool call, with its id and the function's name.
CALL_BEGIN = "call_begin"
Instants = NDArray[np.int64]


@dataclass(slots=True)
class Piece:
    """An event of the stream with generated content: when it is sent (virtual ns), its text and how
    many tokens it holds. A tool call's text is a part of its arguments."""

    at_ns: int
    text: str
    field: str = CONTENT
    tokens: int = 1
    choice: int = 0


@dataclass(slots=True)
class Reported:
    """The counts that the server or a gateway puts into the answer; None: left out."""

    prompt: int | None
    output: int | None
    cached: int | None = None
    reasoning: int | None = None
    total: int | None = None


@dataclass(slots=True)
class Answer:
    """The answer to one request. The server's work comes first: `prefill_ns`, `gaps_ns`, `words`.
    Then its instants, then what is sent of it."""

    ask: Ask
    start_ns: int
    begin_ns: int  # when a slot was free
    prefill_ns: int
    gaps_ns: NDArray[np.float64]
    words: list[str]
    finish: str
    prompt_tokens: int
    cached: int = 0
    instants: Instants = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    pieces: list[Piece] = field(default_factory=list)
    reported: Reported | None = None
    usage_each: bool = False  # usage with every event
    headers_ns: int = 0
    tail_ns: int = 0  # when finish_reason, usage and [DONE] are sent
    model: str = "planned"
    server_prompt_ms: float = 0.0
    server_predict_ms: float = 0.0
    drafted: int | None = None
    accepted: int | None = None
    end_ns: int = 0  # at the client
    host: int = 0
    # of the time from the start until a slot was free, what the server did not see
    unseen_ns: int = 0
    status: int = 200
    # raw events besides the pieces
    extra_events: list[tuple[int, bytes]] = field(default_factory=list)
    is_cut_off: bool = False  # the connection is closed after the pieces
    shown: list[int] | None = None  # places of the tokens that the API shows; None: all
    own_delay_ns: int = 0  # of the client, before it sends
    connect_ns: int = 0  # more than usual, for the handshake of the connection
    reads: list[tuple[int, bytes]] = field(default_factory=list)

    def time(self) -> None:
        """The server's instants, from its work."""
        self.words = self.words[: len(self.gaps_ns) + 1]
        text_tokens = len(self.words)
        # the token that ends the answer is generated and counted, and has no event
        if self.finish == "stop":
            self.words = [*self.words, ""]
            usual_ns = float(np.mean(self.gaps_ns)) if len(self.gaps_ns) else 0.0
            self.gaps_ns = np.append(self.gaps_ns[: text_tokens - 1], usual_ns)
            self.shown = list(range(text_tokens))
        first = self.begin_ns + self.prefill_ns
        steps = np.concatenate(([0.0], np.cumsum(self.gaps_ns[: len(self.words) - 1])))
        self.instants = first + np.rint(steps).astype(np.int64)
        self.pieces = [
            Piece(int(at), word)
            for at, word in zip(self.instants[:text_tokens], self.words, strict=False)
        ]
        self.reported = Reported(self.prompt_tokens, len(self.words))
        self.server_prompt_ms = self.prefill_ns / 1e6
        self.server_predict_ms = float(self.instants[-1] - self.instants[0]) / 1e6
        self.tail_ns = int(self.instants[-1]) + 100_000

    def show(self, places: list[int]) -> None:
        """The API shows these tokens alone: the others have no event."""
        places = [place for place in places if 0 <= place < len(self.pieces)] or [0]
        self.shown = places
        self.pieces = [self.pieces[place] for place in places]
