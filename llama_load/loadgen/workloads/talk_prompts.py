"""From recorded conversations to the prompts of a plan: turn by turn, with token counts, as far as
they fit a slot."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

from llama_load.loadgen.workloads.data_files import SYSTEM, USER, joined
from llama_load.loadgen.workloads.prompt_plan import ANSWER_TOKENS, PlanRequest, chained
from llama_load.loadgen.workloads.talks import RecordedTurn, Talk, texts_of
from llama_load.servers.counting import BATCH, TokenCounter, batches
from llama_load.servers.prompt import Message, Prompt

# What a chat template and a model write around a tool call, in tokens: the answer's limit leaves
# room for it.
CALL_TOKENS = 32


class TextCounts:
    """Token counts by text. Each text is counted once; "" has none."""

    def __init__(self, counter: TokenCounter) -> None:
        self._counter = counter
        self._known: dict[str, int] = {"": 0}

    def __getitem__(self, text: str) -> int:
        return self._known[text]

    def ask(self, texts: Iterable[str]) -> None:
        """Count the new texts, in batches."""
        for batch in batches(
            text for text in dict.fromkeys(texts) if text not in self._known
        ):
            self._known.update(zip(batch, self._counter.count(batch), strict=True))


@dataclass(frozen=True, slots=True)
class Chat:
    """The requests of a conversation that fit a slot, those of its sub-agents among them; `missing`
    do not fit."""

    prompts: tuple[Prompt, ...]
    missing: int


class TalkWriter:
    """Makes prompts from recorded conversations; counts every text once."""

    def __init__(self, request: PlanRequest) -> None:
        self._request = request
        self._counts = TextCounts(request.counter)

    @property
    def shared_tokens(self) -> int:
        """The tokens of --system-prompt, with which every prompt begins."""
        text = self._request.traffic.system_prompt or ""
        self._counts.ask([text])
        return self._counts[text]

    def counted(
        self, talks: Iterable[Talk], turns: int | None = None
    ) -> Iterator[Talk]:
        """The conversations; the texts of their first `turns` turns are counted, in batches."""
        # A short run does not wait for the tokens of conversations that it does not send.
        needed = max(1, self._request.num_prompts) + self._request.warmup
        for batch in batches(map(self._with_system, talks), min(needed, BATCH)):
            self._counts.ask(text for talk in batch for text in _texts(talk, turns))
            yield from batch

    def chat(self, talk: Talk, most_turns: int | None = None) -> Chat:
        """All requests of a conversation, its sub-agents' after the turn that starts them."""
        self._counts.ask(_texts(talk, most_turns))
        prompts = chained(list(self._prompts(talk, talk, most_turns)))
        whole = replace(talk, turns=talk.turns[:most_turns]).requests
        return Chat(tuple(prompts), whole - len(prompts))

    def last(self, talk: Talk) -> Prompt:
        """The conversation's last request alone, with all that precedes it as recorded."""
        *earlier, turn = talk.turns
        history = [
            *talk.opening,
            *(message for before in earlier for message in before.messages),
        ]
        tokens = self._fixed_tokens(talk) + sum(
            map(self.tokens, (*history, *turn.added))
        )
        prompt = self._prompt(talk, talk, turn, tuple(history), tokens)
        return replace(prompt, conversation=None, turn=None, delay_s=None)

    def _prompts(
        self, root: Talk, talk: Talk, most_turns: int | None
    ) -> Iterator[Prompt]:
        """The requests that fit, up to the first one that does not; sub-agents end alone."""
        history = talk.opening
        tokens = self._fixed_tokens(talk) + sum(map(self.tokens, talk.opening))
        for number, turn in enumerate(talk.turns[:most_turns], start=1):
            if turn.resets:
                history = ()
                tokens = self._fixed_tokens(talk)
            tokens += (
                sum(map(self.tokens, turn.added))
                if turn.tokens is None
                else turn.tokens
            )
            prompt = replace(
                self._prompt(root, talk, turn, history, tokens), turn=number
            )
            fits = self._request.fits
            if fits is not None and not fits(tokens, prompt.max_tokens or 0):
                return
            yield prompt
            for agent in turn.agents:
                yield from self._prompts(root, agent, None)
            reply = prompt.recorded if turn.reply is None else turn.reply
            history += (*turn.added, reply)
            generated = self._request.traffic.generated_history
            answer = self._request.answer_len or prompt.max_tokens or 0
            tokens += answer if generated else turn.output_tokens or self.tokens(reply)
            tokens += (
                self._call_tokens(reply)
                if generated
                else CALL_TOKENS * len(reply.calls)
            )
            tokens += self._request.exchange_tokens

    def _prompt(
        self,
        root: Talk,
        talk: Talk,
        turn: RecordedTurn,
        history: tuple[Message, ...],
        tokens: int,
    ) -> Prompt:
        images = tuple(
            image for message in (*history, *turn.added) for image in message.images
        )
        text = "\n\n".join(message.text for message in turn.added)
        return Prompt(
            text,
            tokens,
            self._request.output_len
            or turn.output_tokens
            or talk.output_tokens
            or self._answer_tokens(turn.reply),
            root.id,
            history=history,
            answer=None if turn.reply is None else turn.reply.text,
            images=images,
            messages=()
            if turn.added == (Message(USER, text),) and not images
            else turn.added,
            calls=() if turn.reply is None else turn.reply.calls,
            fields=talk.fields,
            delay_s=turn.delay_s,
            agent=talk.name,
            resets=turn.resets,
        )

    def _answer_tokens(self, reply: Message | None) -> int:
        """The length to ask for: the recorded answer's, with room for the marks of its tool
        calls."""
        return (
            ANSWER_TOKENS
            if reply is None
            else max(1, self.tokens(reply) + CALL_TOKENS * len(reply.calls))
        )

    def tokens(self, message: Message) -> int:
        """The tokens of a message that was counted."""
        return sum(self._counts[text] for text in texts_of(message))

    def _call_tokens(self, reply: Message) -> int:
        """The recorded tool calls, which the model's own answer gets in addition where it called no
        tool."""
        return self.tokens(replace(reply, text="")) + CALL_TOKENS * len(reply.calls)

    def _fixed_tokens(self, talk: Talk) -> int:
        """Tokens of the tools, which every request of the conversation has."""
        return self._counts[tools_text(talk.fields)]

    def _with_system(self, talk: Talk) -> Talk:
        """The conversation with --system-prompt before its own."""
        given = self._request.traffic.system_prompt
        if not given:
            return talk
        own = (
            talk.opening[0] if talk.opening and talk.opening[0].role == SYSTEM else None
        )
        rest = talk.opening if own is None else talk.opening[1:]
        return replace(
            talk,
            opening=(
                Message(SYSTEM, joined(given, None if own is None else own.text) or ""),
                *rest,
            ),
        )


def tools_text(fields: Mapping[str, Any]) -> str:
    """The tools of a request as JSON; "" without any."""
    tools = fields.get("tools")
    return json.dumps(tools, ensure_ascii=False) if tools else ""


def _texts(talk: Talk, turns: int | None) -> Iterator[str]:
    """The texts of a conversation's first turns that are counted."""
    yield tools_text(talk.fields)
    yield from chain.from_iterable(map(texts_of, talk.opening))
    for turn in talk.turns[:turns]:
        if turn.tokens is None:
            yield from chain.from_iterable(map(texts_of, turn.messages))
        for agent in turn.agents:
            yield from _texts(agent, None)
