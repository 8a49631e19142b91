"""What the write-ups behind the bundled plans claim, and where a plan's result answers it.

benchmarks/claims.md has a table of them for each write-up, and `tests/heavy/test_references.py` reads
each from the result of its plan.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

# What a result says of a claim.
SUPPORTED = "supported"
REFUTED = "refuted"
NOT_JUDGED = "not judged"
NOT_VARIED = "the setting has one value in this result"
Result = Mapping[str, Any]  # of sweep.json


@dataclass(frozen=True)
class Reading:
    """What a result says of a claim, and the sentence or the cells that say it."""

    outcome: str
    why: str


@dataclass(frozen=True)
class Effect:
    """The effect of a setting on a figure, among the effects of settings.

    `is_more`: the claim is that the later value of the plan has more of it; None: that they differ.
    """

    setting: str
    figure: str
    is_more: bool | None

    @property
    def where(self) -> str:
        return f"effects of settings: `{self.setting}`, {self.figure}"

    def read(self, result: Result) -> Reading:
        """By all effects of this setting on the figure, of which one shown decides."""
        found = []
        for effect in result["effects"]:
            is_figure = effect["figure"].startswith(self.figure)
            if effect["setting"] == self.setting and is_figure:
                found.append(effect)

        texts = "; ".join(effect["text"] for effect in found)
        shown = [effect for effect in found if effect["is_shown"]]
        if not shown:
            return Reading(NOT_JUDGED, texts or NOT_VARIED)
        agrees = self.is_more is None or all(
            (effect["ratio"] > 1) is self.is_more for effect in shown
        )
        return Reading(SUPPORTED if agrees else REFUTED, texts)


@dataclass(frozen=True)
class Best:
    """The row with the best of a column, which begins with this text; NOT_JUDGED without a best."""

    table: str
    column: str
    row: str

    @property
    def where(self) -> str:
        return f"{named(self.table)}: the best of {self.column}"

    def read(self, result: Result) -> Reading:
        """By the bold cell; the notes say why there is none."""
        found = table_of(result, self.table)
        place = found["columns"].index(self.column)
        best = [row for row in found["rows"] if row[place]["best"]]
        if not best:
            return Reading(NOT_JUDGED, "; ".join(found["notes"]) or "no best")
        names = [cell["text"] for row in best for cell in row]
        is_it = self.row in names
        return Reading(SUPPORTED if is_it else REFUTED, ", ".join(names))


@dataclass(frozen=True)
class Cells:
    """Cells of a column that all have this text, or begin with it."""

    table: str
    column: str
    text: str

    @property
    def where(self) -> str:
        return f"{named(self.table)}: {self.column}"

    def read(self, result: Result) -> Reading:
        """NOT_JUDGED where one has no figure."""
        found = table_of(result, self.table)
        place = found["columns"].index(self.column)
        texts = [row[place]["text"] for row in found["rows"]]
        if not texts or any(text in ("", "NA") for text in texts):
            return Reading(NOT_JUDGED, "; ".join(found["notes"]) or "no cells")
        is_it = all(text.startswith(self.text) for text in texts)
        return Reading(SUPPORTED if is_it else REFUTED, ", ".join(texts))


@dataclass(frozen=True)
class Note:
    """A sentence below a table, of what the run found, that is said, or is not."""

    table: str
    part: str
    is_said: bool = True

    @property
    def where(self) -> str:
        return f"{named(self.table)}: the notes"

    def read(self, result: Result) -> Reading:
        notes = table_of(result, self.table)["notes"]
        said = [note for note in notes if self.part in note]
        is_it = bool(said) is self.is_said
        return Reading(SUPPORTED if is_it else REFUTED, "; ".join(said or notes))


@dataclass(frozen=True)
class Unanswered:
    """No result of the plan answers it."""

    why: str

    @property
    def where(self) -> str:
        return f"not judged: {self.why}"

    def read(self, result: Result) -> Reading:
        return Reading(NOT_JUDGED, self.why)


@dataclass(frozen=True)
class Claim:
    """A claim of a write-up; `plan`: whose result is read."""

    text: str
    plan: str
    answer: Effect | Best | Cells | Note | Unanswered


def named(table: str) -> str:
    return f"table *{table}*" if table else "the table"


def table_of(result: Result, title: str) -> Any:
    """The table of this title; for none the first one."""
    for table in result["tables"]:
        if not title or table["title"] == title:
            return table
    raise AssertionError(f"there is no table {title!r}")


MIXED = "mixed-document-vision"
BENCH = "llama-bench"
COLD = "cold-start"
SHAREGPT = "sharegpt-schedulers"
PYTHON = "llama-cpp-python-gpus"
VLLM = "vllm-vs-llama-cpp"
CAUSE = "the plan measures how large a loss is, not its cause"

# By the heading in benchmarks/claims.md.
CLAIMS: Mapping[str, Sequence[Claim]] = {
    "Documents and images on 4 slots": (
        Claim(
            "requests are slow because others' prompts are processed beside them",
            MIXED,
            Note("", "prefill"),
        ),
        Claim(
            "all requests succeed", MIXED, Note("", "requests failed", is_said=False)
        ),
        Claim(
            "a model takes too much memory",
            MIXED,
            Unanswered(
                "the memory breakdown below the tables shows it without a limit"
            ),
        ),
    ),
    "llama-bench, and RPC workers": (
        Claim("a larger batch is faster", BENCH, Effect("n_batch", "t/s of pp", True)),
        Claim("more threads are faster", BENCH, Effect("threads", "t/s", True)),
        Claim("more layers on the GPU are faster", BENCH, Effect("ngl", "t/s", True)),
        Claim(
            "more layers give the first token sooner",
            COLD,
            Effect("ngl", "Cold start (s)", False),
        ),
        Claim("RPC is slower", BENCH, Effect("cluster", "t/s", False)),
        Claim(
            "RPC is slower because of the network, uneven devices and scheduling",
            BENCH,
            Unanswered(CAUSE),
        ),
    ),
    "ShareGPT under several schedulers": (
        Claim(
            "the same requests succeed under every scheduler",
            SHAREGPT,
            Note("", "requests that succeeded in each of"),
        ),
        Claim(
            "requests fail because they exceed the context",
            SHAREGPT,
            Cells("", "Reasons of Failures", "context_exceeded"),
        ),
        Claim(
            "requests fail by timeouts or an overloaded server",
            SHAREGPT,
            Cells("", "Reasons of Failures", "timeout"),
        ),
        Claim(
            "a scheduler has other first tokens",
            SHAREGPT,
            Effect("scheduler", "Mean TTFT (ms)", None),
        ),
        Claim(
            "a scheduler has another throughput",
            SHAREGPT,
            Effect("scheduler", "Output Tok/s", None),
        ),
        Claim(
            "the server's limit is at 10 to 12 requests at once",
            SHAREGPT,
            Unanswered(
                "one concurrency is measured; `llama-load capacity` searches it"
            ),
        ),
    ),
    "llama-cpp-python on 1 to 4 GPUs": (
        Claim(
            "more GPUs generate fewer tokens per second",
            PYTHON,
            Effect("devices", "Output Tok/s", False),
        ),
        Claim(
            "a second copy of a model does not help, as one is in memory at a time",
            PYTHON,
            Unanswered("a run with `--model a,b` shows what switching costs"),
        ),
        Claim(
            "one machine is faster than another",
            PYTHON,
            Unanswered("a plan runs on one machine"),
        ),
    ),
    "vLLM against llama.cpp": (
        Claim(
            "vLLM's throughput is highest at the highest concurrency",
            VLLM,
            Best("vLLM Concurrency", "Output Tok/s", "c=16"),
        ),
        Claim("4 bits are fastest", VLLM, Effect("quantization", "Output Tok/s", True)),
        Claim(
            "llama.cpp is faster at concurrency 1",
            VLLM,
            Best("c=1 Comparison", "Output Tok/s", "llama.cpp"),
        ),
        Claim(
            "vLLM has the higher throughput at the highest concurrency, in 16 bits",
            VLLM,
            Best("c=16 FP16 Comparison", "Output Tok/s", "vLLM"),
        ),
        Claim(
            "a quantization loses little quality",
            VLLM,
            Unanswered("table *Quality* has it, without a limit of what is little"),
        ),
    ),
}


def lines_for(heading: str) -> list[str]:
    """The table of benchmarks/claims.md below this heading."""
    lines = ["| claim of the write-up | answered by |", "|---|---|"]
    for claim in CLAIMS[heading]:
        where = claim.answer.where
        if claim.plan == COLD:
            where += f" (plan `{COLD}`)"
        lines.append(f"| {claim.text} | {where} |")
    return lines
