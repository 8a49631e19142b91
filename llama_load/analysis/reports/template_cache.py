"""Compiled templates, kept beside the bytecode of modules: compiling them takes 50 ms."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import jinja2

FOLDER = Path(__file__).parent / "__pycache__"


def template_cache(folder: Path = FOLDER) -> jinja2.BytecodeCache:
    """The cache of an environment. A file is used for the same text and the same versions of Python
    and jinja alone, and written where and when Python writes bytecode."""
    from jinja2 import BytecodeCache
    from jinja2.bccache import Bucket

    from llama_load.ground.code_cache import read_bytecode, write_bytecode

    class TemplateCache(BytecodeCache):
        def load_bytecode(self, bucket: Bucket) -> None:
            content = read_bytecode(self._file(bucket))
            if content:
                bucket.bytecode_from_string(content)

        def dump_bytecode(self, bucket: Bucket) -> None:
            write_bytecode(self._file(bucket), bucket.bytecode_to_string())

        def _file(self, bucket: Bucket) -> Path:
            return folder / f"template.{bucket.key}.{sys.implementation.cache_tag}.bin"

    return TemplateCache()
