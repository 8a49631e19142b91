"""llama-server's flags that the embedded server takes.

It has llama.cpp's parameters, but not its reader of command lines.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

_BATCH_THREADS = ("-tb", "--threads-batch")
LOG_LEVEL_FLAGS = ("-lv", "--verbosity", "--log-verbosity")
# The names of each flag with a value, and how the value is set.
_WITH_VALUE: tuple[tuple[tuple[str, ...], Callable[[Any, str, Any], None]], ...] = (
    (
        ("-c", "--ctx-size"),
        lambda params, value, _: setattr(params, "n_ctx", int(value)),
    ),
    (
        ("-np", "--parallel"),
        lambda params, value, _: setattr(params, "n_parallel", int(value)),
    ),
    (
        ("-b", "--batch-size"),
        lambda params, value, _: setattr(params, "n_batch", int(value)),
    ),
    (
        ("-ub", "--ubatch-size"),
        lambda params, value, _: setattr(params, "n_ubatch", int(value)),
    ),
    (
        ("-ngl", "--gpu-layers", "--n-gpu-layers"),
        lambda params, value, _: setattr(params, "n_gpu_layers", int(value)),
    ),
    (("-t", "--threads"), lambda params, value, _: _set_threads(params, int(value))),
    (
        _BATCH_THREADS,
        lambda params, value, _: setattr(
            params.cpuparams_batch, "n_threads", int(value)
        ),
    ),
    (
        ("-ctk", "--cache-type-k"),
        lambda params, value, library: setattr(
            params, "cache_type_k", _ggml_type(library, value)
        ),
    ),
    (
        ("-ctv", "--cache-type-v"),
        lambda params, value, library: setattr(
            params, "cache_type_v", _ggml_type(library, value)
        ),
    ),
    (
        ("-fa", "--flash-attn"),
        lambda params, value, library: setattr(
            params, "flash_attn_type", _flash_attention(library, value)
        ),
    ),
    (
        ("-a", "--alias"),
        lambda params, value, _: setattr(params, "model_alias", {value}),
    ),
    (
        ("-mm", "--mmproj"),
        lambda params, value, _: setattr(params.mmproj, "path", value),
    ),
    (
        ("-cram", "--cache-ram"),
        lambda params, value, _: setattr(params, "cache_ram_mib", int(value)),
    ),
    (
        ("--spec-type",),
        lambda params, value, library: setattr(
            params.speculative, "types", [_draft_type(library, value)]
        ),
    ),
    (
        LOG_LEVEL_FLAGS,
        lambda params, value, _: setattr(params, "verbosity", int(value)),
    ),
    (("-m", "--model"), lambda params, value, _: setattr(params.model, "path", value)),
    (("--host",), lambda params, value, _: setattr(params, "hostnames", [value])),
    (("--port",), lambda params, value, _: setattr(params, "port", int(value))),
)
_WITHOUT_VALUE: tuple[tuple[tuple[str, ...], Callable[[Any, Any], None]], ...] = (
    (("-kvu", "--kv-unified"), lambda params, _: setattr(params, "kv_unified", True)),
    (("--no-kv-unified",), lambda params, _: setattr(params, "kv_unified", False)),
    (("--no-warmup",), lambda params, _: setattr(params, "warmup", False)),
    (("--no-cache-prompt",), lambda params, _: setattr(params, "cache_prompt", False)),
    (
        ("--embedding", "--embeddings"),
        lambda params, library: _embed(params, library, "MEAN"),
    ),
    # Without a classifier head, as in the demo's model, the score is the first element of the last
    # hidden state.
    (
        ("--rerank", "--reranking"),
        lambda params, library: _embed(params, library, "RANK"),
    ),
    (("--metrics", "--slots"), lambda *_: None),  # always on
)
_TAKES = {name: put for names, put in _WITH_VALUE for name in names}
_SWITCHES = {name: put for names, put in _WITHOUT_VALUE for name in names}


def apply_flags(params: Any, flags: Sequence[str], library: Any) -> None:
    """Set `params` (xllamacpp's CommonParams) as the flags say; -t sets the threads of batches too,
    unless -tb does.

    Exits with one sentence at a flag or value that it does not know.
    """
    left = list(flags)
    # -t sets the threads of batches, too: -tb counts after it, wherever it stands.
    for number, word in enumerate(flags):
        if word in _BATCH_THREADS:
            left += flags[number : number + 2]
            break

    while left:
        flag, is_joined, value = left.pop(0).partition("=")
        if flag in _SWITCHES and not is_joined:
            _SWITCHES[flag](params, library)
            continue
        if flag not in _TAKES:
            sys.exit(_unknown(flag))
        if not is_joined:
            value = left.pop(0) if left else ""
        try:
            _TAKES[flag](params, value, library)
        except (ValueError, AttributeError):
            sys.exit(f"{flag} does not take {value!r}")


def _unknown(flag: str) -> str:
    known = [names[0] for names, _ in _WITH_VALUE]
    known += [names[0] for names, _ in _WITHOUT_VALUE]
    return (
        f"the embedded llama-server has no flag {flag}; it takes {', '.join(known)}. A "
        "llama-server binary takes all of its flags"
    )


def _set_threads(params: Any, threads: int) -> None:
    params.cpuparams.n_threads = threads
    params.cpuparams_batch.n_threads = threads


def _embed(params: Any, library: Any, pooling: str) -> None:
    params.embedding = True
    params.pooling_type = getattr(
        library.llama_pooling_type, f"LLAMA_POOLING_TYPE_{pooling}"
    )


def _draft_type(library: Any, name: str) -> Any:
    return getattr(
        library.common_speculative_type, f"COMMON_SPECULATIVE_TYPE_{name.upper()}"
    )


def _ggml_type(library: Any, name: str) -> Any:
    return getattr(library.ggml_type, f"GGML_TYPE_{name.upper()}")


def _flash_attention(library: Any, name: str) -> Any:
    values = {"on": "ENABLED", "off": "DISABLED", "auto": "AUTO"}
    value = values.get(name, name.upper())
    return getattr(library.llama_flash_attn_type, f"LLAMA_FLASH_ATTN_TYPE_{value}")
