"""The process of the embedded llama-server: llama.cpp's HTTP server from the package xllamacpp.

Run as `python -m llama_load.servers.serving.embedded_server` with flags of llama-server (those of
`embedded_flags`), the API key in the environment. It prints one line, the address it listens on,
and ends on SIGTERM or SIGINT.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from contextlib import suppress
from typing import Any

from llama_load.servers.kinds.llama_server_kind import CTX_PER_SLOT, SLOTS, THREADS
from llama_load.servers.kinds.server_start import SERVER_KEY
from llama_load.servers.serving.embedded_flags import LOG_LEVEL_FLAGS, apply_flags

# At the start and at the end: the log then has the sizes of buffers and the memory breakdown.
LOG_LEVEL = 4
# While it serves. At level 4 each request would log a line per prompt in the cache: thousands after
# some minutes, which take longer to write than a tiny model takes to answer.
SERVING_LOG_LEVEL = 3


def main() -> None:
    """Start the server with the flags in argv, and wait for a signal."""
    signals = {signal.SIGINT, signal.SIGTERM}
    signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    try:
        import xllamacpp
    except ImportError:
        sys.exit(
            "the embedded llama-server needs the extra 'demo': pip install xllamacpp gguf "
            "tokenizers"
        )

    params = xllamacpp.CommonParams()
    params.verbosity = LOG_LEVEL
    params.model_alias = {"demo"}
    params.n_parallel = SLOTS
    params.n_ctx = SLOTS * CTX_PER_SLOT
    params.cpuparams.n_threads = THREADS
    params.cpuparams_batch.n_threads = THREADS
    params.endpoint_metrics = True
    params.endpoint_slots = True
    params.endpoint_props = True
    params.kv_unified = False
    apply_flags(params, sys.argv[1:], xllamacpp)
    if params.embedding:
        # an input must fit one batch
        context_per_slot = params.n_ctx // params.n_parallel
        params.n_batch = context_per_slot
        params.n_ubatch = context_per_slot
    key = os.environ.get(SERVER_KEY)
    if key:
        params.api_keys = [key]

    is_own_level = not set(LOG_LEVEL_FLAGS) & set(sys.argv)
    server = xllamacpp.Server(params)
    if is_own_level:
        _set_log_level(xllamacpp, SERVING_LOG_LEVEL)
    print(f"listening on {server.listening_address}", flush=True)
    signal.sigwait(signals)
    if is_own_level:
        _set_log_level(xllamacpp, LOG_LEVEL)


def _set_log_level(xllamacpp: Any, level: int) -> None:
    """llama.cpp's log level, a variable of its library that nothing else sets after the start."""
    with suppress(ValueError):  # a build without the symbol
        library = ctypes.CDLL(xllamacpp.xllamacpp.__file__)
        ctypes.c_int.in_dll(library, "common_log_verbosity_thold").value = level


if __name__ == "__main__":
    main()
