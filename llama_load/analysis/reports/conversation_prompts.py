"""One conversation of a run, turn by turn: what was cached of its prompts, and why the rest was
not."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from llama_load.analysis.topics.reprocessing.causes import REMEDIES
from llama_load.analysis.topics.reprocessing.reprocessed_turns import ReprocessedTurn
from llama_load.analysis.topics.reprocessing.reprocessing_figures import turn_table
from llama_load.ground.errors import UsageError
from llama_load.ground.units import quantity
from llama_load.outside.foreign_text import printable
from llama_load.run_folder import Run
from llama_load.run_folder.observed.records import Records
from llama_load.servers.apis import APIS
from llama_load.servers.apis.changed_prompts import common_length, excerpt
from llama_load.servers.apis.prompt_content import kept_as_messages, kept_messages
from llama_load.servers.differing_token import TokenPlace, differing_token
from llama_load.servers.token_blocks import ServerTokens
from llama_load.tables import LEFT, Column, Row, Table, figure, text_lines, whole

# Of the texts that differ.
SHOWN_CHARS = 60
MOST_NAMED = 8
# Of a conversation: people read fewer, and each takes 0.2 ms.
MOST_TURNS = 5000


@dataclass(frozen=True, slots=True)
class TurnTexts:
    """How a turn's prompt differs from the one before. `texts`: both around that place, None: not
    kept; `token`: where the tokens differ, None: not known. `without`: tokens that the run's prompt
    had besides those that the server was asked for."""

    texts: tuple[str, str] | None = None
    token: TokenPlace | None = None
    without: int = 0


Differing = Callable[[ReprocessedTurn], TurnTexts]


def conversation_prompts(
    run: Run, conversation: str | None, server: ServerTokens | None = None
) -> Iterator[str]:
    """The lines for a conversation; None: the one of which most was processed again. `server`:
    is asked for tokens. UsageError: there is no such conversation, or it has no later turns whose
    cached tokens are known."""
    turns = list(turn_table(run).later_turns())
    texts = partial(_texts_of, run.records, server)
    return turns_lines(turns, conversation, texts, "run with --save-texts")


def turns_lines(
    all_turns: Sequence[ReprocessedTurn],
    conversation: str | None,
    texts: Differing,
    how_to_keep: str,
) -> Iterator[str]:
    """See `conversation_prompts`; `how_to_keep`: how texts are kept."""
    turns = _chosen(all_turns, conversation)
    name = printable(turns[0].conversation, SHOWN_CHARS)
    yield f"Conversation {name}: {quantity(len(turns), 'turn')} after the first"
    if len(turns) > MOST_TURNS:
        yield f"The first {MOST_TURNS:,} of them:"
        turns = turns[:MOST_TURNS]
    yield from text_lines(_table(turns))
    shown = set()
    for turn in turns:
        # A recording's file may have been changed.
        if turn.cause in REMEDIES and turn.cause not in shown:
            shown.add(turn.cause)
            yield f"{turn.cause}: {REMEDIES[turn.cause]}"
    for turn in turns:
        yield from _difference(turn, texts, how_to_keep)


def _chosen(
    turns: Sequence[ReprocessedTurn], conversation: str | None
) -> list[ReprocessedTurn]:
    by_thread: dict[object, list[ReprocessedTurn]] = defaultdict(list)
    for turn in turns:
        if conversation is None or turn.conversation == conversation:
            by_thread[turn.thread].append(turn)
    if by_thread:
        return max(by_thread.values(), key=_lost_tokens)
    if conversation is None:
        raise UsageError(
            "it has no later turns of conversations whose cached prompt tokens are known"
        )
    names = sorted({printable(turn.conversation, SHOWN_CHARS) for turn in turns})
    known = ", ".join(names[:MOST_NAMED])
    more = ", …" if len(names) > MOST_NAMED else ""
    raise UsageError(
        f"it has no later turns of a conversation {printable(conversation, SHOWN_CHARS)!r}; "
        f"known are {known or 'none'}{more}"
    )


def _lost_tokens(turns: Sequence[ReprocessedTurn]) -> int:
    lost = 0
    for turn in turns:
        lost += turn.lost
    return lost


def _table(turns: Sequence[ReprocessedTurn]) -> Table:
    heads = [
        Column("turn"),
        Column("prompt tokens", lines=("prompt",)),
        Column("cacheable"),
        Column("cached"),
        Column("again"),
        Column("ms"),
        Column("cause", LEFT),
    ]
    rows: list[Row] = []
    for turn in turns:
        cause = turn.cause or ""
        if turn.taker is not None:
            cause += f" ({printable(turn.taker, SHOWN_CHARS)})"
        row: Row = [
            str(turn.turn),
            whole(turn.prompt),
            whole(turn.could),
            whole(turn.cached),
            whole(turn.lost),
            figure(turn.ms if turn.lost else None),
            cause,
        ]
        rows.append(row)
    return Table("Prompts", heads, rows)


def _difference(
    turn: ReprocessedTurn, texts: Differing, how_to_keep: str
) -> Iterator[str]:
    """Where a prompt is no longer the one before."""
    is_changed = turn.same_text is not None and turn.same_text < 1
    if not is_changed and not turn.lost:
        return
    found = texts(turn)
    tokens = _tokens_of(found)
    if is_changed:
        text = _of_text(turn, tokens)
    elif tokens:
        text = f"turn {turn.turn}: as the chat template has it, it begins as the prompt before "
        text += f"for {tokens}"
    else:
        return

    if found.texts is None:
        yield f"{text}; {how_to_keep} to see where they differ"
        return
    before, now = found.texts
    yield f"{text}, then:"
    yield f"  before: {_shown(before)}"
    yield f"  now:    {_shown(now)}"


def _of_text(turn: ReprocessedTurn, tokens: str) -> str:
    text = f"turn {turn.turn} begins as the prompt before for {turn.same_text:.1%} of its text"
    if tokens:
        text += f" and {tokens}"
    if turn.changed_in is not None:
        text += f", up to {printable(turn.changed_in, SHOWN_CHARS)}"
    return text


def _tokens_of(found: TurnTexts) -> str:
    """How many tokens are the same, "" if that is not known."""
    if found.token is None:
        return ""
    text = found.token.same
    if found.without:
        text += f" (without the {found.without} of tools and the like)"
    return text


def _texts_of(
    records: Records, server: ServerTokens | None, turn: ReprocessedTurn
) -> TurnTexts:
    """Those of a run that kept them."""
    rows = records.take(np.array([turn.before, turn.row]))
    texts = rows.strings("prompt_text")
    if None in texts:
        return TurnTexts()
    before = kept_as_messages(texts[0])
    now = kept_as_messages(texts[1])
    common = common_length(before, now)
    differing = (excerpt(before, common), excerpt(now, common))
    if server is None:
        return TurnTexts(differing)
    return _with_token(rows, differing, server, is_changed=common < len(before))


def _with_token(
    rows: Records, texts: tuple[str, str], server: ServerTokens, *, is_changed: bool
) -> TurnTexts:
    """The same with the first token that differs."""
    before = _body(rows, 0)
    now = _body(rows, 1)
    if before is None or now is None:
        return TurnTexts(texts)
    found = differing_token(server, before, now)
    if found is None or found.place is None:
        return TurnTexts(texts)
    if not is_changed and found.before is not None and found.now is not None:
        texts = (found.before, found.now)
    without = 0
    if found.count is not None:
        prompt_tokens = rows.numbers("prompt_tokens")
        without = max(0, int(prompt_tokens[1]) - found.count)
    return TurnTexts(texts, found.place, without)


def _body(rows: Records, row: int) -> dict[str, Any] | None:
    """The prompt of a record, as far as its text has it; None: it is no such text."""
    text = str(rows.strings("prompt_text")[row])
    api = APIS.get(str(rows.strings("endpoint")[row]))
    if api is not None and not api.takes_messages:
        return {"prompt": text}

    messages = kept_messages(text)
    if messages is None:
        return None
    return {"model": rows.strings("model")[row], "messages": messages}


def _shown(text: str) -> str:
    return "…" + printable(text, SHOWN_CHARS) + "…"
