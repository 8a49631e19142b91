"""Scores a text with a server that reports the log-probabilities of prompt tokens.

| server | how |
|---|---|
| vLLM | /tokenize once, then windows of token ids to /v1/completions with `prompt_logprobs: 0` |
| llama-cpp-python | windows of text to /v1/completions with `echo` and `logprobs` (logits_all) |

llama-server reports none; see `llama_load.lab.perplexity.binary`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

from llama_load.ground.errors import RunError
from llama_load.lab.perplexity.score import Score, total, windows
from llama_load.outside.foreign_text import printable
from llama_load.outside.plain_http import NoAnswerError, Session
from llama_load.servers.probe import Probe, ProbeSettings

ANSWER_WITHIN_S = 600.0  # llama-cpp-python sorts the whole vocabulary for every token
MOST_WORD = re.compile(r"\s*\S{1,200}\s*")


class NoLogprobs(RunError):
    """The server cannot score a text; the message is the reason."""


def score_text(settings: ProbeSettings, text: str, context: int, stride: int) -> Score:
    """Score a text. NoLogprobs: the server cannot. RunError: it failed."""
    probe = Probe(settings)
    target = probe.ask()
    server = _Server(probe.session, probe.address.url.rstrip("/"), target.model)
    if target.kind.scores_by == "ids":
        return score_by_ids(server, text, context, stride)
    if target.kind.scores_by == "echo":
        return score_by_echo(server, text, context, stride)

    raise NoLogprobs(
        f"{target.backend} reports no log-probabilities of prompt tokens; "
        "give the model to a llama-perplexity program (--binary)"
    )


class _Server:
    """Control requests to one server. RunError: it refuses, or does not answer in JSON."""

    def __init__(self, session: Session, url: str, model: str | None) -> None:
        self._session = session
        self._url = url
        self._model = model

    def post(self, path: str, **fields: Any) -> dict[str, Any]:
        body = {"model": self._model} | fields
        try:
            answer = self._session.post(
                self._url + path, body, within_s=ANSWER_WITHIN_S
            )
            document = answer.json()
        except NoAnswerError as error:
            reason = printable(str(error), 200)
            raise RunError(f"the server did not answer {path}: {reason}") from None
        except ValueError:
            raise RunError(f"the server did not answer {path} in JSON") from None

        if answer.status != 200 or not isinstance(document, dict):
            refusal = printable(str(document), 300)
            raise RunError(
                f"the server answered {path} with HTTP {answer.status}: {refusal}"
            )
        return document

    def choice(self, **fields: Any) -> dict[str, Any]:
        """The first choice of a completion."""
        completion = self.post("/v1/completions", max_tokens=1, temperature=0, **fields)
        choices = completion.get("choices")
        if (
            not isinstance(choices, list)
            or not choices
            or not isinstance(choices[0], dict)
        ):
            raise RunError("the server's completion has no choices")
        return choices[0]


def score_by_ids(server: _Server, text: str, context: int, stride: int) -> Score:
    """vLLM: the chosen token's log-probability of every prompt token but the first."""
    ids = _ids(server.post("/tokenize", prompt=text, add_special_tokens=False))
    bos = _ids(server.post("/tokenize", prompt="", add_special_tokens=True))[:1]

    logprobs: list[float] = []
    for window in windows(len(ids), context - len(bos), stride):
        prompt = bos + ids[window.begin : window.end]
        reported = server.choice(prompt=prompt, prompt_logprobs=0).get(
            "prompt_logprobs"
        )
        if not isinstance(reported, list) or len(reported) != len(prompt):
            raise NoLogprobs(
                "the server returned no prompt_logprobs; start vLLM without --max-logprobs 0"
            )

        # Nothing stands before the first token of a prompt.
        first = max(1, len(bos) + window.scored - window.begin)
        for entry, token in zip(reported[first:], prompt[first:], strict=True):
            logprobs.append(_logprob(entry, token))

    unscored_bytes = 0
    if not bos:
        first_token = server.post("/detokenize", tokens=ids[:1]).get("prompt", "")
        unscored_bytes = len(str(first_token).encode())
    scored_bytes = len(text.encode()) - unscored_bytes
    return Score(-math.fsum(logprobs), len(logprobs), scored_bytes)


def score_by_echo(server: _Server, text: str, context: int, stride: int) -> Score:
    """llama-cpp-python: the echoed prompt's token_logprobs.

    Windows are cut between words, by the mean tokens per word.
    """
    if not _ids(server.post("/extras/tokenize", input="")):
        raise NoLogprobs(
            "llama-cpp-python reports the log-probabilities of prompt tokens one place late for "
            "models without a BOS token (seen in 0.3.36); use llama-perplexity (--binary)"
        )

    tokens = len(_ids(server.post("/extras/tokenize", input=text))) - 1
    words = MOST_WORD.findall(text)
    per_word = max(1.0, tokens / max(1, len(words)))
    # A tenth is left for windows whose words are longer than the mean.
    context_words = max(1, int((context - 2) * 0.9 / per_word))
    stride_words = max(1, int(stride * 0.9 / per_word))

    parts = []
    for window in windows(len(words), context_words, stride_words):
        before = "".join(words[window.begin : window.scored])
        scored = "".join(words[window.scored : window.end])
        prompt = before + scored
        reported = server.choice(prompt=prompt, echo=True, logprobs=1).get("logprobs")
        parts.append(_echoed(reported, len(before), len(prompt), scored))
    return total(parts)


def _echoed(reported: Any, begin: int, end: int, scored: str) -> Score:
    """The score of the tokens that begin between two characters of the prompt.

    Of the first token of all there is none.
    """
    if not isinstance(reported, Mapping):
        raise NoLogprobs(
            "the server returned no logprobs; start llama-cpp-python with --logits_all true"
        )

    offsets = reported.get("text_offset")
    logprobs = reported.get("token_logprobs")
    if not isinstance(offsets, list) or not isinstance(logprobs, list):
        raise RunError("the server's logprobs have no text_offset for each token")
    if len(offsets) != len(logprobs):
        raise RunError("the server's logprobs have no text_offset for each token")

    scored_offsets = []
    scored_logprobs = []
    for offset, logprob in zip(offsets, logprobs, strict=True):
        # The detokenized text may begin with a space that the prompt has not.
        if begin <= offset < end and isinstance(logprob, int | float):
            scored_offsets.append(offset)
            scored_logprobs.append(logprob)
    if not scored_logprobs:
        raise RunError("the server returned no log-probability for a part of the text")

    unscored = scored[: scored_offsets[0] - begin]
    scored_bytes = len(scored.encode()) - len(unscored.encode())
    return Score(-math.fsum(scored_logprobs), len(scored_logprobs), scored_bytes)


def _ids(answer: Mapping[str, Any]) -> list[int]:
    tokens = answer.get("tokens")
    if not isinstance(tokens, list) or not all(
        isinstance(token, int) for token in tokens
    ):
        raise RunError("the server returned no tokens")
    return tokens


def _logprob(reported: Any, token: int) -> float:
    """The log-probability of the token itself; the most likely one may stand beside it."""
    entry = reported.get(str(token)) if isinstance(reported, Mapping) else None
    logprob = entry.get("logprob") if isinstance(entry, Mapping) else None
    if not isinstance(logprob, int | float):
        raise RunError("the server returned no log-probability for a token of the text")
    return float(logprob)
