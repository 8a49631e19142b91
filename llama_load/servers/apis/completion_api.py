"""llama-server's own /completion: `content` in events, a last event with stop_type and timings.

Source: llama.cpp's tools/server/README.md.
"""

from __future__ import annotations

import msgspec

from llama_load.servers.answer import PartReader
from llama_load.servers.apis.api import GeneratingApi
from llama_load.servers.choice_text import NULL
from llama_load.servers.server_errors import Count
from llama_load.servers.usage import Timings, usage_of


class _NativeEvent(msgspec.Struct, gc=False):
    content: str = ""
    stop: bool = False
    stop_type: str | None = None
    tokens_predicted: Count | None = None
    tokens_evaluated: Count | None = None
    timings: Timings | None = None
    error: msgspec.Raw = NULL


class NativeReader(PartReader):
    """Reads a stream of /completion or /infill."""

    _decode = staticmethod(msgspec.json.Decoder(_NativeEvent).decode)

    def event(self, data: bytes, at_ns: int) -> bool:
        """See `AnswerReader.event`."""
        event = self.decoded(self._decode, data)
        if event is None:
            return False
        self.appeared = True
        self.fail(event.error)
        if event.timings is not None:
            self.keep_timings(event.timings)
        is_token = self.token(at_ns, text=event.content)
        if event.stop:
            self.end()
            self.finish(event.stop_type or "stop")
            self.keep_usage(usage_of(event.tokens_evaluated, event.tokens_predicted))
        return is_token


class CompletionApi(GeneratingApi):
    """/completion."""

    name = "completion"
    path = "/completion"
    takes_messages = False
    length_field = "n_predict"
    stream_reader = NativeReader
    streams_only = True


COMPLETION = CompletionApi()
