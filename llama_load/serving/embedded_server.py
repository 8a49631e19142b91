"""The process of the embedded llama-server: llama.cpp's HTTP server from the package xllamacpp.

Run as `python -m llama_load.serving.embedded_server '{"model": …}'`; the fields are in `llama_load.serving.process`, the API key
in the environment. It prints one line, the address it listens on, and ends on SIGTERM or SIGINT.
"""

from __future__ import annotations

import json
import os
import signal
import sys

from llama_load.serving.embedded_flags import apply_flags

LOG_LEVEL = 4  # from here on the sizes of buffers and the memory breakdown are in the log


def main() -> None:
    """Start the server with the JSON object in argv, and wait for a signal."""
    signals = {signal.SIGINT, signal.SIGTERM}
    signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    try:
        import xllamacpp
    except ImportError:
        sys.exit("the embedded llama-server needs the extra 'demo': pip install 'llama-load[demo]'")
    wanted = json.loads(sys.argv[1])
    params = xllamacpp.CommonParams()
    params.verbosity = LOG_LEVEL
    params.model.path = wanted["model"]
    params.mmproj.path = wanted["projector"]
    params.model_alias = {wanted["alias"]}
    params.hostnames = [wanted["host"]]
    params.port = wanted["port"]
    params.n_parallel = wanted["slots"]
    params.n_ctx = wanted["slots"] * wanted["ctx_per_slot"]
    params.cpuparams.n_threads = wanted["threads"]
    params.cpuparams_batch.n_threads = wanted["threads"]
    params.endpoint_metrics = True
    params.endpoint_slots = True
    params.endpoint_props = True
    params.kv_unified = wanted["shared_kv"]
    if wanted["speculative"]:
        params.speculative.types = [getattr(xllamacpp.common_speculative_type, _type_name(wanted["speculative"]))]
    own = [flag for name, flag in (("embeddings", "--embeddings"), ("reranking", "--reranking")) if wanted[name]]
    apply_flags(params, own + wanted["flags"], xllamacpp)
    if params.embedding:
        params.n_batch = params.n_ubatch = params.n_ctx // params.n_parallel  # an input must fit one batch
    if key := os.environ.get("LLAMA_LOAD_SERVER_API_KEY"):
        params.api_keys = [key]
    server = xllamacpp.Server(params)
    print(f"listening on {server.listening_address}", flush=True)
    signal.sigwait(signals)


def _type_name(name: str) -> str:
    return f"COMMON_SPECULATIVE_TYPE_{name.upper()}"


if __name__ == "__main__":
    main()
