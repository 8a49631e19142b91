"""Inspects a data set.

Its turns and lengths, how much of it a run would use, and how much fits a server's slots.
"""

from __future__ import annotations

import random
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec

from llama_load.ground.errors import UsageError
from llama_load.lab.dataset_tools.histogram import histogram
from llama_load.loadgen.workloads.custom import Custom
from llama_load.loadgen.workloads.data_files import ASSISTANT, DataFile
from llama_load.loadgen.workloads.huggingface import HUB, DataSet
from llama_load.loadgen.workloads.line_fields import OUTPUT_TOKENS, line_fields
from llama_load.loadgen.workloads.line_messages import read_line
from llama_load.loadgen.workloads.prompt_plan import PlanRequest
from llama_load.loadgen.workloads.sharegpt import (
    COLUMNS,
    MAX_PROMPT_TOKENS,
    MAX_TOTAL_TOKENS,
    MIN_TOKENS,
    Conversations,
    valid,
)
from llama_load.loadgen.workloads.talks import RecordedTurn
from llama_load.servers.counting import EstimatedCounter, TokenCounter, batches

# Entries counted of a large data set: this puts p99 within a tenth of a percent of the ranks.
SAMPLE = 20_000
CONTEXTS = (2048, 4096, 8192, 16384)
LAYOUT = "a conversation or a prompt"


@dataclass(frozen=True, slots=True)
class Inspection:
    """The lengths in a data set, in tokens.

    `prompts[i]`, and `answers[i]`, the length that request i would ask for. `facts` are lines that
    describe the data set. `by_rule`: vLLM's rule selects the prompts, as it does for conversations.
    `output_given`: the user set the answers' length. `counted_by` is the counter's name.
    """

    facts: list[tuple[str, str]]
    prompts: list[int]
    answers: list[int]
    by_rule: bool
    output_given: bool
    counted_by: str

    @property
    def usable(self) -> list[bool]:
        """The prompts that a run would use if the server's context were unlimited."""
        if not self.by_rule:
            return [True] * len(self.prompts)

        judged = []
        for prompt, answer in zip(self.prompts, self.answers, strict=True):
            judged.append(valid(prompt, answer, output_given=self.output_given))

        return judged

    def fitting(self, context: int, overhead: int) -> tuple[int, int]:
        """Prompts that fit a slot of `context` tokens: of all, and of the usable ones.

        Answers and `overhead` tokens of template must fit, too.
        """
        fits = 0
        usable_fits = 0
        for prompt, answer, usable in zip(
            self.prompts, self.answers, self.usable, strict=True
        ):
            if prompt + answer + overhead <= context:
                fits += 1
                usable_fits += usable
        return fits, usable_fits


def inspect(
    source: str,
    counter: TokenCounter,
    *,
    output_len: int | None = None,
    tell: Callable[[str], None],
) -> Inspection:
    """Read and count a data set: a file, or hf:REPO[:split].

    `tell` is called with progress messages. Conversations (ShareGPT's or messages) are counted by
    their first question and answer, custom prompts unchanged. Of more than 20 000, only 20 000 are
    counted. UsageError: the data set cannot be read.
    """
    watched = _Watched(counter, tell)
    tell(f"Reading {source}")

    if source.startswith(HUB) or source.endswith(".parquet"):
        with tempfile.TemporaryDirectory(prefix="llama-load-") as folder:
            file = Path(folder) / "rows.jsonl"
            rows = _written(DataSet(source), file, tell)
            rows_read = f"the first {SAMPLE:,}"
            if rows < SAMPLE:
                rows_read = f"{rows:,}, all of them"
            return _conversations(file, source, rows_read, watched, output_len)

    data = DataFile(Path(source), LAYOUT)
    if _custom(data):
        return _inspected_prompts(source, len(data), watched, output_len)
    return _conversations(Path(source), source, "", watched, output_len)


def report(inspection: Inspection, contexts: Sequence[int], overhead: int) -> str:
    """The inspection as text, 80 columns wide.

    Facts, histograms, and what fits slots of these contexts.
    """
    lines = []
    for name, value in _facts_of(inspection):
        title = f"{name}:" if name else ""
        lines.append(f"{title:<19}{value}")

    lines += ["", "Prompts by their tokens", *histogram(inspection.prompts), ""]
    if inspection.output_given:
        lines.append(
            f"Answers: {inspection.answers[0]:,} tokens each, set by --output-len"
        )
    else:
        lines += ["Answers by their tokens", *histogram(inspection.answers)]

    lines.append("")
    lines += _fitting_lines(inspection, contexts, overhead)
    return "\n".join(lines) + "\n"


def _facts_of(inspection: Inspection) -> list[tuple[str, str]]:
    """Names and values; a line that continues the one above has no name."""
    counted_by = inspection.counted_by
    if counted_by == EstimatedCounter.source:
        counted_by = "estimate, off by 20 % and more (exact: --tokenizer or --host)"
    facts = [*inspection.facts, ("Tokens counted by", counted_by)]
    if not inspection.by_rule:
        return facts

    count = len(inspection.prompts)
    usable = sum(inspection.usable)
    share = _share_text(usable, count)
    facts.append(
        (
            "Usable",
            f"{usable:,} of {count:,} ({share}), by the rule of vllm bench serve:",
        )
    )

    rule = f"prompt {MIN_TOKENS} to {MAX_PROMPT_TOKENS} tokens"
    if not inspection.output_given:
        rule += f", answer {MIN_TOKENS} or more"
    facts.append(("", f"{rule}, both {MAX_TOTAL_TOKENS} at most"))
    return facts


def _fitting_lines(
    inspection: Inspection, contexts: Sequence[int], overhead: int
) -> list[str]:
    """A table: how many prompts fit slots of each context."""
    heads = f"  {'context':>9} {'all':>22}"
    if inspection.by_rule:
        heads += f" {'of the usable':>22}"
    title = f"Prompts that fit a slot with their answers and {overhead} tokens of chat template"
    lines = [title, heads]

    count = len(inspection.prompts)
    usable = sum(inspection.usable)
    for context in contexts:
        fits, usable_fits = inspection.fitting(context, overhead)
        share = _share_text(fits, count)
        line = f"  {context:>9,} {fits:>13,} {share:>8}"
        if inspection.by_rule:
            line += f" {usable_fits:>13,} {_share_text(usable_fits, usable):>8}"
        lines.append(line)
    return lines


def _share_text(part: int, whole: int) -> str:
    return f"{part / whole:.1%}" if whole else "–"


def _custom(file: DataFile) -> bool:
    """Whether these are custom prompts.

    Messages are if they end with a question, or set the answer's length. What is not understood is
    refused by the reader of conversations.
    """
    if not len(file):
        return False

    first = file.decode(0, msgspec.json.Decoder(dict[str, Any]))
    try:
        line = read_line(first, file.where(0), line_fields())
    except UsageError:
        return False
    if "conversations" in first:
        return False
    has_list = "messages" in first or "conversation" in first
    ends_with_answer = line["messages"][-1]["role"] == ASSISTANT
    return not has_list or OUTPUT_TOKENS in line or not ends_with_answer


def _inspected_prompts(
    source: str, total: int, counter: TokenCounter, output_len: int | None
) -> Inspection:
    """The inspection of custom prompts, of which there are `total`."""
    request = PlanRequest(
        num_prompts=SAMPLE,
        fill=False,
        warmup=0,
        seed=0,
        counter=counter,
        dataset_path=source,
        output_len=output_len,
    )
    plan = Custom().plan(request)
    facts = [
        ("Data set", source),
        ("Layout", "custom prompts, for locustfiles/custom.py"),
        ("Prompts", _sampled(total, "the first ones")),
    ]

    return Inspection(
        facts,
        prompts=[prompt.prompt_tokens or 0 for prompt in plan.measured],
        answers=[prompt.max_tokens or 0 for prompt in plan.measured],
        by_rule=False,
        output_given=output_len is not None,
        counted_by=counter.source,
    )


def _conversations(
    file: Path,
    source: str,
    rows_read: str,
    counter: TokenCounter,
    output_len: int | None,
) -> Inspection:
    """The inspection of conversations.

    `rows_read` says how many rows of a large source the file holds; empty for a file of the user.
    """
    data = Conversations(file)
    drawn: Sequence[int] = range(len(data))
    if len(data) > SAMPLE:
        drawn = sorted(random.Random(0).sample(drawn, SAMPLE))

    turns: list[int] = []
    prompts: list[int] = []
    answers: list[int] = []
    for batch in batches(_exchanges(data, drawn)):
        texts = []
        for first, exchanges in batch:
            texts += [message.text for message in first.messages]
            turns.append(exchanges)
        counts = counter.count(texts)
        prompts += counts[::2]
        answers += counts[1::2]
    if not prompts:
        raise UsageError(
            f"no conversation of {source} has an answer; "
            "llama-load datasets make FILE generates a valid data set"
        )

    facts = [
        ("Data set", source),
        ("Layout", "conversations, for locustfiles/sharegpt_chat.py"),
    ]
    if rows_read:
        facts.append(("Rows read", rows_read))
    facts.append(("Conversations", _sampled(len(data), "drawn at random")))
    facts.append(("Turns", _turns_of(turns)))

    if output_len is not None:
        answers = [output_len] * len(prompts)
    return Inspection(
        facts,
        prompts,
        answers,
        by_rule=True,
        output_given=output_len is not None,
        counted_by=counter.source,
    )


def _turns_of(turns: Sequence[int]) -> str:
    """The turns of all conversations in words."""
    total = sum(turns)
    mean = total / len(turns)
    return f"{total:,} questions with answers, {mean:.1f} per conversation (max {max(turns)})"


def _exchanges(
    data: Conversations, numbers: Iterable[int]
) -> Iterator[tuple[RecordedTurn, int]]:
    """Each conversation's turn in a run without --turns, and its number of turns."""
    for number in numbers:
        first = data.read(number, first_only=True)
        whole = data.read(number, first_only=False)
        if first is not None:
            turns = 0 if whole is None else len(whole.turns)
            yield first.turns[0], turns


def _written(data: DataSet, file: Path, tell: Callable[[str], None]) -> int:
    """Write up to 20 000 rows of a data set to a file and return their number.

    They go through a file because two passes over it take no memory.
    """
    column = data.first_of(COLUMNS)
    rows = islice(data.rows([column]), SAMPLE)

    count = 0
    with file.open("wb") as out:
        for row in rows:
            out.write(msgspec.json.encode(row) + b"\n")
            count += 1
            if count % 500 == 0:
                tell(f"Reading {data.spec}: {count:,} rows")
    return count


def _sampled(total: int, which: str) -> str:
    if total <= SAMPLE:
        return f"{total:,}, all of them counted"
    return f"{total:,}, of which {SAMPLE:,} were counted, {which}"


class _Watched:
    """A counter that reports its progress."""

    def __init__(self, counter: TokenCounter, tell: Callable[[str], None]) -> None:
        self._counter = counter
        self._tell = tell
        self._texts = 0

    @property
    def source(self) -> str:
        """See `TokenCounter.source`."""
        return self._counter.source

    def count(self, texts: Sequence[str]) -> list[int]:
        counts = self._counter.count(texts)
        self._texts += len(texts)
        self._tell(f"Counting tokens: {self._texts:,} texts")
        return counts
