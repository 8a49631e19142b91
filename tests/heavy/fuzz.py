"""A coverage-guided fuzzer on everything that reads what a server sends: fuzz.py -max_total_time=60

The input's first byte says what it is: a whole answer, the body of a good one, the data of an
event, an error body, a page of metrics; the second where reads end. Nothing may raise; every answer
must end in a record that can be kept.
"""

from __future__ import annotations

import sys

import atheris

with atheris.instrument_imports(include=["llama_load"]):
    from llama_load.servers.counters import parse_counters
    from llama_load.servers.server_errors import context_numbers, http_failure
    from tests.answer_pipeline import record_of

from tests.scripted_server import STREAM, chunk

HEADS = (
    b"",
    STREAM,
    STREAM.replace(b"Transfer-Encoding: chunked\r\n", b""),
    b"HTTP/1.1 400 Bad Request\r\n\r\n",
)


def one(data: bytes) -> None:
    kind, cut, rest = data[0] if data else 0, data[1] if len(data) > 1 else 0, data[2:]
    if kind % 8 < 4:
        whole = HEADS[kind % 8] + rest
    elif kind % 8 < 6:
        whole = STREAM + chunk(b"data: " + rest + b"\n\n")
    elif kind % 8 == 6:
        context_numbers(rest)
        http_failure(400, rest, {"content-encoding": "gzip" if cut % 2 else "identity"})
        return
    else:
        parse_counters(rest.decode("latin-1"))
        return
    step = max(1, cut)
    record = record_of([whole[at : at + step] for at in range(0, len(whole), step)])
    assert record.status


def main() -> None:
    atheris.Setup(sys.argv, one)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
