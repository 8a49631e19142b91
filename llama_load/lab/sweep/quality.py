"""Perplexity of the servers of a sweep, once for every server setting."""

from __future__ import annotations

import math
import shlex
from dataclasses import asdict
from pathlib import Path

from llama_load.ground.bundled import bundled
from llama_load.ground.errors import LlamaLoadError, RunError, UsageError
from llama_load.lab.perplexity.binary import perplexity_of, tokens_of
from llama_load.lab.perplexity.perplexity_servers import score_text
from llama_load.lab.sweep.cells import Cell
from llama_load.lab.sweep.folder import PERPLEXITY, Ended, SweepFolder
from llama_load.lab.sweep.plan import PerplexityPlan
from llama_load.lab.sweep.running_server import digest
from llama_load.lab.sweep.server_spec import model_path
from llama_load.loadgen.options.server_keys import environment_key_for
from llama_load.outside.foreign_files import TooLarge, read_foreign
from llama_load.outside.foreign_text import printable
from llama_load.outside.plain_http import Session
from llama_load.servers.probe import ProbeSettings
from llama_load.servers.tokenize import NotCounted, tokenization

TEXT = "datasets/perplexity_text.txt"
MOST_TEXT_BYTES = 64 << 20
NAMES = ("perplexity", "bits_per_byte")
Found = tuple[dict[str, float], dict[str, str]]


class QualityOf:
    """Measures what a plan asks for, and remembers it in the sweep's journal."""

    def __init__(self, plan: PerplexityPlan, folder: SweepFolder) -> None:
        self._plan = plan
        self._folder = folder

    def is_missing(self, cell: Cell) -> bool:
        """Whether the server of this cell has not been scored yet."""
        return self._key(cell) not in self._folder.ended

    def of(self, cell: Cell, url: str) -> Found:
        """Figures and reasons of the server of a cell, which runs at `url`."""
        key = self._key(cell)
        if key not in self._folder.ended:
            figures, reasons = _measured(self._plan, cell, url)
            title = cell.server.label
            self._folder.note(
                Ended(key, PERPLEXITY, title, extra=figures, extra_reasons=reasons)
            )
        entry = self._folder.ended[key]
        return entry.extra, entry.extra_reasons

    def _key(self, cell: Cell) -> str:
        return f"perplexity {asdict(self._plan)} {digest(cell.server)}"


def read_text(path: str) -> tuple[Path, str]:
    """The text to score: a file, or the bundled one.

    UsageError: it cannot be read, is no UTF-8, is empty or too large.
    """
    file = Path(path) if path else bundled(TEXT)
    try:
        text = read_foreign(file, MOST_TEXT_BYTES).decode()
    except TooLarge:
        raise UsageError(
            f"{file} is larger than {MOST_TEXT_BYTES >> 20} MiB; score a part of it"
        ) from None
    except OSError as error:
        raise UsageError(f"the text {file} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise UsageError(f"the text {file} is not UTF-8") from None
    if not text.strip():
        raise UsageError(f"the text {file} is empty")
    return file, text


def _measured(plan: PerplexityPlan, cell: Cell, url: str) -> Found:
    model = model_path(cell.server)
    stride = plan.stride or plan.context // 2
    try:
        if plan.binary and model is not None and model.suffix == ".gguf":
            return by_binary(plan, model, url)
        _, text = read_text(plan.text)
        server = ProbeSettings(url, environment_key_for(url))
        score = score_text(server, text, plan.context, stride)
    except LlamaLoadError as error:
        return {}, dict.fromkeys(NAMES, printable(str(error), 300))

    figures = {"perplexity": score.perplexity}
    if score.bits_per_byte is not None:
        figures["bits_per_byte"] = score.bits_per_byte
    return figures, {}


def by_binary(plan: PerplexityPlan, model: Path, url: str) -> Found:
    """Perplexity by llama-perplexity.

    Bits per byte where llama-tokenize or the server at `url` ("": none) counts tokens.
    """
    file, text = read_text(plan.text)
    figures = perplexity_of(
        plan.binary, model, file, plan.context, shlex.split(plan.args)
    )
    try:
        tokens = tokens_of(plan.binary, model, file) or _counted_by_server(url, text)
    except (NotCounted, RunError) as error:
        return figures, {"bits_per_byte": printable(str(error), 300)}

    bits = math.log2(figures["perplexity"]) * tokens
    return figures | {"bits_per_byte": bits / len(text.encode())}, {}


def _counted_by_server(url: str, text: str) -> int:
    """NotCounted: there is no server, or it counts none."""
    if not url:
        raise NotCounted(
            "no llama-tokenize beside the program, "
            "and no server (--host) that counts the tokens of the text"
        )
    counter = tokenization(Session(environment_key_for(url)), url.rstrip("/"), None)
    if counter is None:
        raise NotCounted("the server counts no tokens")
    return counter.count([text])[0]
