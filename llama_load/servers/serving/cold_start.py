"""Cold start: from the start of a server's process until it is ready, and until its first token.

Repeated, with a cold and a warm page cache where the model is a file that we may drop from it.
"""

from __future__ import annotations

import ctypes
import math
import mmap
import os
import re
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from llama_load.ground.errors import RunError
from llama_load.outside.bound_headers import bearer, bound
from llama_load.outside.plain_http import NoAnswerError, Session, tls_context
from llama_load.servers.kinds import ServerSpec
from llama_load.servers.serving.commands import with_model
from llama_load.servers.serving.launch import Server, serving

FIRST_TOKEN_WITHIN_S = 120.0
COLD = "cold"
WARM = "warm"
AS_IT_WAS = "as it was"
# The share of a model that may still be in the page cache after it was dropped. If there is more,
# another process maps the file, and the start is not a cold one.
MOST_LEFT = 0.05
_PART = re.compile(r"-\d{5}-of-\d{5}\.gguf$")


@dataclass(frozen=True, slots=True)
class ColdStart:
    """One start. Times are in seconds from the start of the process.

    `cached`: share of the model's files in the page cache before it, 0 to 1, None if they are not
    files of this machine.
    """

    page_cache: str  # COLD, WARM or AS_IT_WAS
    ready_s: float
    first_token_s: float
    cached: float | None


def measure(
    spec: ServerSpec, repeats: int, folder: Path, on_start: Callable[[ColdStart], None]
) -> list[ColdStart]:
    """`repeats` starts with the model dropped from the page cache, then as many with it cached.

    Only `repeats` starts with the cache as it was if the model is not a file. `on_start` gets each.
    RunError: one fails.
    """
    files = model_files(with_model(spec).model)
    page_caches = (COLD, WARM) if files else (AS_IT_WAS,)

    starts = []
    for page_cache in page_caches:
        for _ in range(repeats):
            start = _measure_one(spec, folder, page_cache, files)
            starts.append(start)
            on_start(start)
    return starts


def _measure_one(
    spec: ServerSpec, folder: Path, page_cache: str, files: list[Path]
) -> ColdStart:
    """One start with the page cache as asked, or AS_IT_WAS if another process holds the model."""
    if page_cache == COLD:
        drop(files)
    elif page_cache == WARM:
        read(files)

    cached = share_cached(files) if files else None
    if page_cache == COLD and cached is not None and cached > MOST_LEFT:
        page_cache = AS_IT_WAS

    with serving(replace(spec, port=0), folder) as server:
        ready_s = server.start_s
        token_s = ready_s + first_token_s(server, spec.api_key)
    return ColdStart(page_cache, ready_s, token_s, cached)


def first_token_s(server: Server, api_key: str) -> float:
    """Seconds until the whole answer of one token to the first request. RunError: it gets none."""
    # The server is the one that we have just started, whoever signed its certificate.
    session = Session(
        bound(server.url, bearer(api_key)), partial(tls_context, insecure=True)
    )
    try:
        models = session.get(
            server.url + "/v1/models", within_s=FIRST_TOKEN_WITHIN_S
        ).json()
        body = {
            "model": models["data"][0]["id"],
            "prompt": "Hello",
            "max_tokens": 1,
            "stream": True,
        }
        began_s = time.monotonic()
        answer = session.post(
            server.url + "/v1/completions", body, within_s=FIRST_TOKEN_WITHIN_S
        )
        took_s = time.monotonic() - began_s
    except (NoAnswerError, ValueError, KeyError, IndexError, TypeError) as error:
        text = f"the server started but did not answer its first request ({error})"
        raise RunError(f"{text}; {server.log} has more") from None

    if b"data:" not in answer.content:
        text = (
            f"the server started but answered its first request with HTTP {answer.status} and "
            "no token"
        )
        raise RunError(f"{text}; {server.log} has more")
    return took_s


def model_files(model: str) -> list[Path]:
    """The files of a model on this machine; none if it is not here.

    One file, all parts of a split .gguf, or the weights in a folder of Hugging Face.
    """
    path = Path(model)
    if path.is_file():
        name_of_all = _PART.sub("", path.name)
        if name_of_all == path.name:
            return [path]
        return sorted(path.parent.glob(f"{name_of_all}-*-of-*.gguf"))

    if model and path.is_dir():
        return sorted(path.glob("*.safetensors"))
    return []


def drop(files: list[Path]) -> None:
    """Ask the kernel to drop the files from the page cache; leave to read them is enough.

    It keeps what a process maps.
    """
    for file in files:
        # macOS has no posix_fadvise.
        with suppress(OSError, AttributeError), file.open("rb") as opened:
            os.fsync(opened.fileno())  # what is not on disk yet cannot be dropped
            os.posix_fadvise(opened.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def read(files: list[Path]) -> None:
    """Read the files, so that they are in the page cache, if they fit."""
    for file in files:
        with suppress(OSError), file.open("rb", buffering=0) as opened:
            while opened.read(2**24):
                pass


def share_cached(files: list[Path]) -> float | None:
    """The share of the files' pages in the page cache, 0 to 1; None where that is not known."""
    pages = 0
    resident = 0
    for file in files:
        try:
            of_file, resident_of_file = _count_pages(file)
        except (OSError, ValueError, AttributeError, BufferError):
            return None
        pages += of_file
        resident += resident_of_file
    return resident / pages if pages else None


def _count_pages(file: Path) -> tuple[int, int]:
    """The pages of a file, and those in the page cache (mincore). OSError: not known."""
    with (
        file.open("rb") as opened,
        mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_COPY) as mapped,
    ):
        pages = math.ceil(len(mapped) / mmap.PAGESIZE)
        flags = (ctypes.c_ubyte * pages)()
        start = ctypes.c_void_p(ctypes.addressof(ctypes.c_char.from_buffer(mapped)))
        length = ctypes.c_size_t(len(mapped))
        if ctypes.CDLL(None).mincore(start, length, flags):
            raise OSError("mincore failed")
        # The other bits of a page's flag are not defined.
        return pages, sum(flag & 1 for flag in flags)
