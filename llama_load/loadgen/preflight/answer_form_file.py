"""Reads the file of --json-schema or --grammar, and checks that every server takes it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from llama_load.ground.errors import UsageError
from llama_load.loadgen.options.options import RunOptions
from llama_load.loadgen.workloads.text_files import read_whole
from llama_load.servers.answer_form import GRAMMAR, JSON_SCHEMA, AnswerForm, form_fields
from llama_load.servers.json_schema import MOST_SCHEMA_BYTES, check_schema
from llama_load.servers.target import Target


def read_answer_form(
    options: RunOptions, targets: Sequence[Target]
) -> AnswerForm | None:
    """The form of the answers; None without a flag. UsageError: the file or a server does not allow
    it."""
    for kind, path in ((JSON_SCHEMA, options.json_schema), (GRAMMAR, options.grammar)):
        if path is not None:
            form = AnswerForm(
                kind, _text_of_file(kind, path), options.structured_output_ratio
            )
            for target in targets:
                form_fields(form, options.endpoint, target)
            return form
    return None


def _text_of_file(kind: str, path: Path) -> str:
    name = f"file of --{kind.replace('_', '-')}"
    try:
        text = read_whole(path, name, MOST_SCHEMA_BYTES).decode("utf-8-sig")
    except UnicodeDecodeError:
        raise UsageError(f"the {name} {path} is not text in UTF-8") from None
    if not text.strip():
        raise UsageError(f"the {name} {path} is empty")
    if kind == JSON_SCHEMA:
        try:
            check_schema(text)
        except UsageError as error:
            raise UsageError(f"the {name} {path} {error}") from None
    return text
