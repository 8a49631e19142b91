"""Reads the file of --json-schema or --grammar, and checks that every server takes it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from llama_load.errors import UsageError
from llama_load.options.options import RunOptions
from llama_load.targets.answer_form import GRAMMAR, JSON_SCHEMA, AnswerForm, form_fields
from llama_load.targets.target import Target
from llama_load.workloads.expect import MOST_SCHEMA_BYTES, check_schema


def read_answer_form(options: RunOptions, targets: Sequence[Target]) -> AnswerForm | None:
    """The form of the answers; None without a flag. UsageError: the file or a server does not allow it."""
    if options.json_schema is not None:
        form = AnswerForm(JSON_SCHEMA, _text(options.json_schema, "--json-schema"), options.structured_output_ratio)
        try:
            check_schema(form.text)
        except UsageError as error:
            raise UsageError(f"--json-schema: the file {options.json_schema} {error}") from None
    elif options.grammar is not None:
        form = AnswerForm(GRAMMAR, _text(options.grammar, "--grammar"), options.structured_output_ratio)
    else:
        return None
    for target in targets:
        form_fields(form, options.endpoint, target)
    return form


def _text(path: Path, flag: str) -> str:
    try:
        if not path.is_file():  # a device has no end
            raise UsageError(f"{flag}: there is no file at {path}")
        with path.open("rb") as file:
            data = file.read(MOST_SCHEMA_BYTES + 1)
        text = data.decode("utf-8-sig")
    except OSError as error:
        raise UsageError(f"{flag}: the file {path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise UsageError(f"{flag}: the file {path} is not text in UTF-8") from None
    if len(data) > MOST_SCHEMA_BYTES:
        raise UsageError(f"{flag}: the file {path} has more than {MOST_SCHEMA_BYTES // 1024} KiB")
    if not text.strip():
        raise UsageError(f"{flag}: the file {path} is empty")
    return text
