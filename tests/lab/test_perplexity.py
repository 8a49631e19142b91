"""Perplexity and bits per byte: the formula, the windows, what is sent to servers, and what is said
when they cannot."""

from __future__ import annotations

import json
import math
import stat
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some

from llama_load.ground.errors import RunError, UsageError
from llama_load.lab.perplexity.binary import perplexity_of, read_estimate
from llama_load.lab.perplexity.perplexity_servers import NoLogprobs, score_text
from llama_load.lab.perplexity.score import Score, windows
from llama_load.lab.sweep.quality import read_text
from llama_load.servers.probe import ProbeSettings
from llama_load.servers.serving.launch import Server

WORD = "ab "  # a token of the scripted servers, three bytes
BOS = 1


def test_the_formula_by_hand() -> None:
    """p = 1/4 and 1/2 for 3 bytes: the mean is sqrt(1/8), so perplexity sqrt(8); log2 gives 2 + 1
    bits for 3 bytes."""
    score = Score(nats=math.log(4) + math.log(2), tokens=2, bytes=3)
    assert score.perplexity == pytest.approx(math.sqrt(8))
    assert score.bits_per_byte == pytest.approx(1.0)
    assert Score(1.0, 1, None).bits_per_byte is None


def test_windows_by_hand() -> None:
    found = [(window.begin, window.scored, window.end) for window in windows(10, 4, 2)]
    assert found == [(0, 0, 4), (2, 4, 6), (4, 6, 8), (6, 8, 10)]


@given(
    count=some.integers(1, 300),
    context=some.integers(1, 60),
    stride=some.integers(1, 80),
)
def test_every_token_is_scored_once_and_no_window_is_too_long(
    count: int, context: int, stride: int
) -> None:
    scored: list[int] = []
    for window in windows(count, context, min(stride, context)):
        assert window.end - window.begin <= context
        scored += range(window.scored, window.end)
    assert scored == list(range(count))


@contextmanager
def scripted(answer: Callable[[str, dict[str, Any]], Any]) -> Iterator[str]:
    """A server whose answers are made from path and body; None is 404."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._send(answer(self.path, {}))

        def do_POST(self) -> None:
            self._send(
                answer(
                    self.path,
                    json.loads(self.rfile.read(int(self.headers["Content-Length"]))),
                )
            )

        def _send(self, found: Any) -> None:
            body = json.dumps(found or {}).encode()
            self.send_response(404 if found is None else 200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def vllm(
    sent: list[dict[str, Any]], *, has_bos: bool = True
) -> Callable[[str, dict[str, Any]], Any]:
    """A vLLM whose tokens are words of three bytes, numbered from 10; the token numbered n has p =
    1 / n wherever it stands."""

    def answer(path: str, body: dict[str, Any]) -> Any:
        if path == "/version":
            return {"version": "0.32.0"}
        if path == "/v1/models":
            return {"data": [{"id": "m", "owned_by": "vllm", "max_model_len": 4096}]}
        if path == "/tokenize":
            special = [BOS] if has_bos and body.get("add_special_tokens", True) else []
            tokens = [10 + n for n in range(len(body.get("prompt", "")) // len(WORD))]
            return {"tokens": special + tokens, "count": len(special + tokens)}
        if path == "/detokenize":
            return {"prompt": WORD * len(body["tokens"])}
        if path == "/v1/completions" and "prompt_logprobs" in body:
            sent.append(body)
            found = [
                None,
                *(
                    {str(token): {"logprob": -math.log(token)}, "7": {"logprob": -0.1}}
                    for token in body["prompt"][1:]
                ),
            ]
            return {"choices": [{"text": "", "prompt_logprobs": found}]}
        return {} if path == "/health" else None

    return answer


@pytest.mark.parametrize("has_bos", [True, False])
def test_vllm_scores_every_token_once_in_windows_of_ids(has_bos: bool) -> None:
    """10 tokens numbered 10 to 19, each with p = 1 / its number; without BOS nothing stands before
    the first."""
    sent: list[dict[str, Any]] = []
    with scripted(vllm(sent, has_bos=has_bos)) as url:
        score = score_text(ProbeSettings(url), WORD * 10, 5 if has_bos else 4, 2)
    begin = [BOS] if has_bos else []
    assert [body["prompt"] for body in sent] == [
        begin + list(range(start, start + 4)) for start in (10, 12, 14, 16)
    ]
    scored = range(10 if has_bos else 11, 20)
    assert score.nats == pytest.approx(sum(math.log(token) for token in scored))
    assert (score.tokens, score.bytes) == (len(scored), 3 * len(scored))
    assert score.perplexity == pytest.approx(math.exp(score.nats / len(scored)))


def llama_cpp_python(
    *, has_bos: bool = True, has_logprobs: bool = True
) -> Callable[[str, dict[str, Any]], Any]:
    """A llama-cpp-python whose tokens are words; each has p = 1/8 after the first."""

    def answer(path: str, body: dict[str, Any]) -> Any:
        if path == "/v1/models":
            return {
                "object": "list",
                "data": [
                    {"id": "m", "object": "model", "owned_by": "me", "permissions": []}
                ],
            }
        if path == "/extras/tokenize":
            return {"tokens": [BOS] * has_bos + [9] * (len(body["input"]) // len(WORD))}
        if path == "/extras/tokenize/count":
            return {"count": 1 + len(body["input"]) // len(WORD) or 1}
        if path == "/v1/completions" and body.get("echo"):
            count = len(body["prompt"]) // len(WORD) + 1  # and the generated one
            logprobs = {
                "text_offset": [3 * n for n in range(count)],
                "token_logprobs": [None] + [-math.log(8)] * (count - 1),
            }
            return {
                "choices": [
                    {
                        "text": body["prompt"],
                        "logprobs": logprobs if has_logprobs else None,
                    }
                ]
            }
        return None

    return answer


def test_llama_cpp_python_scores_the_echoed_prompt() -> None:
    """All but the first of 40 words are scored, once: perplexity 8; 3 bits for each 3 bytes."""
    with scripted(llama_cpp_python()) as url:
        score = score_text(
            ProbeSettings(url, backend="llama-cpp-python"), WORD * 40, 16, 8
        )
    assert (score.tokens, score.bytes) == (39, 39 * 3)
    assert score.perplexity == pytest.approx(8.0)
    assert score.bits_per_byte == pytest.approx(1.0)


def test_what_cannot_be_scored_is_refused_with_the_reason(llama_server: Server) -> None:
    with pytest.raises(NoLogprobs, match="llama-server reports no log-probabilities"):
        score_text(ProbeSettings(llama_server.url), "a text", 64, 32)
    for server, expected in (
        (llama_cpp_python(has_bos=False), "one place late"),
        (llama_cpp_python(has_logprobs=False), "--logits_all true"),
    ):
        with scripted(server) as url, pytest.raises(NoLogprobs, match=expected):
            score_text(ProbeSettings(url, backend="llama-cpp-python"), WORD * 40, 16, 8)


def test_the_estimate_of_llama_perplexity_is_read(tmp_path: Path) -> None:
    printed = "[1]9.1,[2]9.5,\nFinal estimate: PPL = 9.6754 +/- 0.06790\n\nllama_perf_context_print: total time\n"
    assert read_estimate(printed) == {"perplexity": 9.6754, "perplexity_error": 0.0679}
    assert read_estimate("Final estimate: PPL = 3.5\n") == {"perplexity": 3.5}
    for wrong in (
        "",
        "Final estimate: PPL = nan +/- nan",
        "you need at least 1024 tokens to evaluate perplexity",
    ):
        with pytest.raises(RunError, match="without an estimate"):
            read_estimate(wrong)
    program = tmp_path / "llama-perplexity"
    program.write_text(
        '#!/bin/sh\necho "$@" > "$(dirname "$0")/asked"\nprintf "%s" "Final estimate: PPL = 4.0 +/- 0.1"\n'
    )
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    assert perplexity_of(
        str(program), Path("m.gguf"), Path("t.txt"), 256, ["-ngl", "9"]
    ) == {"perplexity": 4.0, "perplexity_error": 0.1}
    assert (tmp_path / "asked").read_text() == "-m m.gguf -f t.txt -c 256 -ngl 9\n"
    program.write_text("#!/bin/sh\nkill -9 $$\n")
    with pytest.raises(
        RunError,
        match="llama-perplexity was ended by SIGKILL, for example because the memory was used up",
    ):
        perplexity_of(str(program), Path("m.gguf"), Path("t.txt"), 256)
    with pytest.raises(UsageError, match="no program"):
        perplexity_of(str(tmp_path / "none"), Path("m.gguf"), Path("t.txt"), 256)


def test_a_text_that_cannot_be_scored_is_refused(tmp_path: Path) -> None:
    (tmp_path / "latin").write_bytes(b"caf\xe9")
    (tmp_path / "empty").write_text(" \n")
    for name, expected in (
        ("latin", "is not UTF-8"),
        ("empty", "is empty"),
        ("none", "cannot be read"),
    ):
        with pytest.raises(UsageError, match=expected):
            read_text(str(tmp_path / name))
    assert read_text("")[1].isascii()
