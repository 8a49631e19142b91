"""Files included with llama-load: locustfiles and sample data, from the checkout or the installed package."""

from __future__ import annotations

from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent


def bundled(name: str) -> Path:
    """The path of a file such as `datasets/sharegpt_sample.json`.

    A wheel has it in `llama_load/_bundled`; an editable install has it next to the package.
    """
    packed = _PACKAGE / "_bundled" / name
    return packed if packed.exists() else _PACKAGE.parent / name
