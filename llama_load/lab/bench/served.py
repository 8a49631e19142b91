"""How many users are served within a time to the first token and at a speed, at each depth."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from llama_load.lab.bench.bench_figures import UsersFigure


@dataclass(frozen=True, slots=True)
class Objective:
    """What a user shall get: the first token within `ttft_s`, then this many tokens per second."""

    ttft_s: float
    tok_per_s: float

    @property
    def text(self) -> str:
        """`within 2 s and 15 tok/s`."""
        return f"within {self.ttft_s:g} s and {self.tok_per_s:g} tok/s"


@dataclass(frozen=True, slots=True)
class Served:
    """So many users are served at this depth.

    `users`: the highest level whose rounds met the objective for the most part, as all below did;
    `least`: that every round met; `most`: below the lowest level that no round met. None: no level
    was high enough to tell.
    """

    context: int
    users: int
    least: int
    most: int | None

    @property
    def text(self) -> str:
        """`4 at 4096 (4 to 7)`."""
        if self.most is None:
            reach = f"{self.least} or more"
        elif self.least == self.most:
            reach = ""
        else:
            reach = f"{self.least} to {self.most}"
        return f"{self.users} at {self.context}" + (f" ({reach})" if reach else "")


def served(figures: Sequence[UsersFigure], objective: Objective) -> list[Served]:
    """The users that are served, at each depth that was measured.

    A level is *met* if every round met the objective and *missed* if none did: chance that moves a
    whole round makes neither of it. Between the two the number is not known.
    """
    by_context: dict[int, list[UsersFigure]] = {}
    for figure in figures:
        by_context.setdefault(figure.context, []).append(figure)

    found = []
    for context, levels in by_context.items():
        levels.sort(key=lambda figure: figure.users)
        found.append(_served_at(context, levels, objective))
    return found


def _served_at(
    context: int, levels: Sequence[UsersFigure], objective: Objective
) -> Served:
    users = 0
    least = 0
    most = None
    goes_on = True
    is_met = True
    for figure in levels:
        share = share_met(figure, objective)
        is_met = is_met and share == 1
        if is_met:
            least = figure.users
        goes_on = goes_on and share > 0.5
        if goes_on:
            users = figure.users
        if share == 0:
            most = figure.users - 1
            break
    return Served(context, users, least, most)


def share_met(figure: UsersFigure, objective: Objective) -> float:
    """The share of the rounds that met both."""
    met = 0
    for ttft_ms, tok_per_s in figure.rounds:
        if ttft_ms <= 1e3 * objective.ttft_s and tok_per_s >= objective.tok_per_s:
            met += 1
    return met / len(figure.rounds)
