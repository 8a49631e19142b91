"""The log level of the embedded llama-server: facts at the start, no line per cached prompt while
it serves."""

from __future__ import annotations

import requests

from llama_load.servers.serving.launch import Server


def test_the_log_has_the_buffers_and_does_not_grow_with_the_prompt_cache(
    llama_server: Server,
) -> None:
    """At the level of the buffers every request writes a line per prompt in the cache: 10 GB in
    14,000 requests."""
    for number in range(12):
        body = {
            "messages": [{"role": "user", "content": f"{number} {number * number}"}],
            "max_tokens": 1,
        }
        requests.post(
            f"{llama_server.url}/v1/chat/completions", json=body, timeout=30
        ).raise_for_status()
    log = llama_server.log.read_text(errors="replace")
    assert "buffer size" in log
    assert "prompt with length" not in log
