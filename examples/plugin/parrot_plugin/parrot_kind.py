"""Parrot, a server that does not exist."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import ClassVar

from llama_load.servers.kinds.server_kind import Form, Metrics, ServerKind, Signs
from llama_load.servers.kinds.server_start import Command, ServerSpec, ServerStart


class ParrotStart(ServerStart):
    """The program `parrot`."""

    name = "parrot"
    help = "start parrot"
    typed = "parrot …"
    program = "parrot"

    def command(self, spec: ServerSpec, port: int, workers: Command = ()) -> Command:
        """See `ServerStart.command`."""
        return (
            self.program_of(spec),
            "--model",
            spec.model,
            "--port",
            str(port),
            *spec.args,
        )

    def is_started_by(self, program: str, arguments: Sequence[str]) -> int | None:
        """See `ServerStart.is_started_by`."""
        return 0 if program == "parrot" else None


class ParrotKind(ServerKind):
    """See `ServerKind`."""

    name = "parrot"
    title = "Parrot"
    context_flag = "--memory"
    slots_note = "as many as it has heads"
    form = Form("/count", lambda _, text: {"text": text})
    starts = (ParrotStart(),)
    flags: ClassVar = {"slots": ("--heads",)}
    log_facts = ((re.compile(r"parrot version (\S+)"), lambda m: {"build": m[1]}),)
    metrics = Metrics(
        prefix="parrot_",
        prompt_tokens="heard",
        output_tokens="spoken",
        running="talking",
    )

    def is_shown_by(self, signs: Signs) -> bool:
        """See `ServerKind.is_shown_by`."""
        return signs.is_owned_by("parrot") and signs.form is self.form


PARROT = ParrotKind()
