"""An OpenAI server with one planted flaw: it answers on a schedule, and lies, drops, repeats or
slows down as its `Flaw` says."""

from __future__ import annotations

import hashlib
import itertools
import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

FIRST_S, GAP_S = 0.1, 0.02
CACHED = 0.05  # times of an answer out of a cache / of a generated one
CHARS_PER_TOKEN = 4.2
WORDS = ("amber", "birch", "cedar", "delta", "ember", "fjord", "grove", "heath")


@dataclass(frozen=True, kw_only=True)
class Flaw:
    """What one server does wrong; the defaults are a clean server. Times in s, shares from 0 to
    1."""

    usage: float = 1.0  # reported / generated output tokens
    usage_more: int = 0  # added to the reported output tokens
    usage_every: int = 1  # every n-th answer alone has usage
    lost_every: int = 0  # every n-th event is lost
    tokens: int | None = None  # of every answer, whatever max_tokens says
    short_every: int = 0  # every n-th answer has four tokens
    filtered_every: int = 0  # every n-th answer ends by content_filter
    most_prompt_tokens: int | None = None  # prompts are cut there
    answers: str = "all"  # different for "all" prompts, for each "user", for "none"
    blank_s: float | None = None  # an event of one blank after this time
    burst: int = 1  # tokens written at once
    # factor of all times at a time since the first request
    slow: Callable[[float], float] = lambda at_s: 1.0
    model_changes_s: float | None = None  # from then on it names another model
    metrics: bool = False  # has llama-server's /metrics
    # tokens in the counters before the run; six digits are printed
    counted_before: int = 0
    others: int = 0  # tokens of another client for each of our answers
    preempted_every: int = 0
    text: Callable[[str], str] = lambda word: word  # of each token
    twice: bool = False  # every event is sent twice, 5 ms apart
    cached_every: int = 0  # every n-th answer comes from a gateway's cache, at once
    early_every: int = 1  # every n-th answer has the early first token
    # seconds for each token of the prompt, beside those that any prompt takes
    prompt_token_s: float = 0.0
    # the first token comes after this time, before anything is generated
    early_s: float | None = None
    tool_calls: bool = False  # answers are tool calls without text
    markup: int = 0  # tokens before a tool call that have no event
    # answers have up to so many lengths, from half of max_tokens to all
    lengths: int = 1
    hidden: float = 0.0  # share of the tokens that are reasoning before the first event
    # `hidden` tokens are reported as reasoning; they are in the text if they are not hidden
    thoughts: bool = False
    shows: bool = False  # the reasoning is in the text
    chunk: int = 1  # tokens in an event
    counts_chunks: bool = False  # usage counts events
    prompts: float = 1.0  # reported / sent prompt tokens
    vllm: bool = False  # has vLLM's /metrics
    most_tokens: int | None = None  # max_tokens is lowered to this


class FlawedServer(ThreadingHTTPServer):
    """Serves with a thread per connection; `url` is its address."""

    daemon_threads = True
    request_queue_size = 256

    def __init__(self, flaw: Flaw) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.flaw = flaw
        self.numbers = itertools.count(1)
        self.began_s: float | None = None
        self.lock = threading.Lock()
        self.output_tokens = self.prompt_tokens = flaw.counted_before
        self.answered = self.preemptions = 0

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self.server_address[1]}"

    def metrics(self) -> str:
        """Counters as llama-server prints them, and vLLM's preemptions where the flaw has them."""
        if self.flaw.preempted_every or self.flaw.vllm:
            return (
                f"vllm:prompt_tokens_total{{}} {self.prompt_tokens}\n"
                f"vllm:request_success_total{{}} {self.answered}\nvllm:num_preemptions_total{{}} {self.preemptions}\n"
                f"vllm:generation_tokens_total{{}} {self.output_tokens}\n"
            )
        return (
            f"llamacpp:tokens_predicted_total {self.output_tokens:g}\nllamacpp:prompt_tokens_total {self.prompt_tokens:g}\n"
            "llamacpp:prompt_tokens_cached_total 0\n"
        )


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: FlawedServer

    def log_message(self, format: str, *args: object) -> None:
        """Silent."""

    def do_GET(self) -> None:
        """The control plane."""
        flaw = self.server.flaw
        if self.path == "/metrics" and (
            flaw.metrics or flaw.preempted_every or flaw.vllm
        ):
            self._whole(200, self.server.metrics().encode(), "text/plain")
        elif self.path == "/health":
            self._whole(200, b"{}", "application/json")
        elif self.path == "/v1/models":
            self._whole(
                200,
                json.dumps({"object": "list", "data": [{"id": "flawed"}]}).encode(),
                "application/json",
            )
        elif self.path == "/version" and (flaw.preempted_every or flaw.vllm):
            self._whole(200, b'{"version": "0.11.0"}', "application/json")
        else:
            self._whole(404, b"{}", "application/json")

    def _whole(self, status: int, body: bytes, kind: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self) -> None:
        """An answer."""
        flaw, server = self.server.flaw, self.server
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.path != "/v1/chat/completions":
            self._whole(404, b"{}", "application/json")
            return
        with server.lock:
            number = next(server.numbers)
            server.began_s = server.began_s or time.monotonic()
        try:
            self._answer(flaw, number, body)
        except OSError:
            return

    def _answer(self, flaw: Flaw, number: int, body: dict[str, Any]) -> None:
        server, begun_s = self.server, time.monotonic()
        prompt = " ".join(str(message["content"]) for message in body["messages"])
        prompt_tokens = round(len(prompt) / CHARS_PER_TOKEN) + 10
        if flaw.most_prompt_tokens is not None:
            prompt_tokens = min(prompt_tokens, flaw.most_prompt_tokens)
        tokens = flaw.tokens or int(body.get("max_tokens") or 64)
        tokens = min(tokens, flaw.most_tokens or tokens)
        tokens -= tokens // 2 * (number % flaw.lengths) // flaw.lengths
        finish = "length" if flaw.tokens is None else "stop"
        if flaw.short_every and number % flaw.short_every == 0:
            tokens, finish = 4, "stop"
        if flaw.filtered_every and number % flaw.filtered_every == 0:
            finish = "content_filter"
        chosen = {"user": str(number % 4), "none": ""}.get(flaw.answers, prompt)
        digest = hashlib.sha256(chosen.encode()).digest()
        if not body.get("stream"):
            self._body(digest, tokens, prompt_tokens, finish)
            return
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        at_s = begun_s - (server.began_s or begun_s)
        slow = flaw.slow(at_s)
        if flaw.cached_every and number % flaw.cached_every == 0:
            slow = CACHED
        unseen = flaw.markup + (0 if flaw.shows else round(flaw.hidden * tokens))
        events = 0
        if flaw.blank_s is not None:
            self._wait_until(begun_s + flaw.blank_s)
            self._delta(" ", number)
        first_s = FIRST_S + flaw.prompt_token_s * prompt_tokens
        due_s, pieces = begun_s + first_s * slow, []
        for index in range(tokens):
            is_lost = index < unseen or (
                bool(flaw.lost_every) and index % flaw.lost_every == flaw.lost_every - 1
            )
            word = self._word(digest, index)
            if (
                flaw.early_s is not None
                and not index
                and number % flaw.early_every == 0
            ):
                self._wait_until(begun_s + flaw.early_s)
                self._delta(word, number)
                is_lost = True
            pieces.append("" if is_lost else word)
            if len(pieces) == flaw.burst * flaw.chunk or index == tokens - 1:
                self._wait_until(due_s)
                for piece in self._events(pieces):
                    self._delta(piece, number, is_first=not events)
                    events += 1
                    if flaw.twice:
                        time.sleep(0.005)
                        self._delta(piece, number)
                pieces = []
            due_s += GAP_S * slow
        finish = "tool_calls" if flaw.tool_calls else finish
        self._send(
            {
                "choices": [{"index": 0, "delta": {}, "finish_reason": finish}],
                "model": self._model(at_s),
            }
        )
        if number % flaw.usage_every == 0:
            reported = (
                round((events if flaw.counts_chunks else tokens) * flaw.usage)
                + flaw.usage_more
            )
            usage: dict[str, Any] = {
                "prompt_tokens": round(prompt_tokens * flaw.prompts),
                "completion_tokens": reported,
            }
            if flaw.thoughts:
                usage["completion_tokens_details"] = {
                    "reasoning_tokens": round(flaw.hidden * tokens)
                }
            self._send({"choices": [], "usage": usage})
        with server.lock:
            server.output_tokens += tokens + flaw.others
            server.prompt_tokens += prompt_tokens
            server.answered += 1
            server.preemptions += bool(
                flaw.preempted_every and number % flaw.preempted_every == 0
            )
        self.wfile.write(b"data: [DONE]\n\n")
        self.wfile.flush()
        self.close_connection = True

    def _events(self, pieces: list[str]) -> list[str]:
        """The texts of the events that these pieces are sent in."""
        size = self.server.flaw.chunk
        joined = ["".join(pieces[at : at + size]) for at in range(0, len(pieces), size)]
        return [text for text in joined if text]

    def _body(
        self, digest: bytes, tokens: int, prompt_tokens: int, finish: str
    ) -> None:
        """A whole answer."""
        time.sleep(FIRST_S + GAP_S * tokens)
        text = "".join(self._word(digest, index) for index in range(tokens))
        usage = {
            "prompt_tokens": prompt_tokens,
            "completion_tokens": round(tokens * self.server.flaw.usage),
        }
        choice = {"index": 0, "message": {"content": text}, "finish_reason": finish}
        self._whole(
            200,
            json.dumps({"choices": [choice], "usage": usage}).encode(),
            "application/json",
        )

    def _word(self, digest: bytes, index: int) -> str:
        return self.server.flaw.text(
            " " + WORDS[digest[index % len(digest)] % len(WORDS)]
        )

    def _model(self, at_s: float) -> str:
        change_s = self.server.flaw.model_changes_s
        return "flawed" if change_s is None or at_s < change_s else "another"

    def _delta(self, text: str, number: int, *, is_first: bool = False) -> None:
        delta: dict[str, Any] = {"content": text}
        if self.server.flaw.tool_calls:
            call = {"name": "f"} if is_first else {}
            call["arguments"] = text
            delta = {"tool_calls": [{"index": 0, "function": call}]}
        at_s = time.monotonic() - (self.server.began_s or 0.0)
        self._send(
            {
                "id": f"a{number}",
                "model": self._model(at_s),
                "choices": [{"index": 0, "delta": delta}],
            }
        )

    def _send(self, event: dict[str, Any]) -> None:
        self.wfile.write(b"data: " + json.dumps(event).encode() + b"\n\n")
        self.wfile.flush()

    @staticmethod
    def _wait_until(at_s: float) -> None:
        if (left_s := at_s - time.monotonic()) > 0:
            time.sleep(left_s)


@contextmanager
def flawed(flaw: Flaw) -> Iterator[FlawedServer]:
    """The server while it serves."""
    server = FlawedServer(flaw)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
