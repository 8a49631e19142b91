"""Warnings about sides that may not be what their labels say."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations, product

from llama_load.analysis.comparison.llama_bench import (
    BenchTest,
    decode_speeds,
    quantization,
)
from llama_load.analysis.comparison.order import against_order
from llama_load.analysis.comparison.side import MeasuredRun, Side
from llama_load.ground.units import quantity

# A server decodes one stream a little slower than llama-bench (its context is longer, and it
# samples): 1 to 6 % in the runs that docs/compare.md shows. Beyond this it runs something else.
MOST_SLOWER = 0.15
# Two files of different quantization never decode this alike while also generating the same number
# of tokens.
SAME_SPEED = 0.01
_FILE = "model file"
# What names llama.cpp in a label, or in what a server says of itself.
_LLAMA_NAMES = ("llama.cpp", "llama-server", "llama-cpp", ".gguf")


def warnings_about(sides: Sequence[Side], bench: Sequence[BenchTest] = ()) -> list[str]:
    """A sentence for each. `bench`: tests of llama-bench."""
    return [
        *_other_file(sides),
        *_same_file(sides),
        *replaced_in(sides),
        *_against_bench(sides, bench),
        *_in_blocks(sides),
    ]


def replaced_in(sides: Sequence[Side]) -> list[str]:
    """A sentence for each side whose server could not take all planned prompts."""
    sentences = []
    for side in sides:
        replaced = 0
        for run in side.runs:
            replaced += run.replaced or 0

        if replaced:
            prompts = quantity(replaced, "planned prompt")
            were = "was" if replaced == 1 else "were"
            sentences.append(
                f"{side.label}: {prompts} did not fit a slot and {were} replaced by others"
            )
    return sentences


def copies_in(sides: Sequence[Side]) -> list[str]:
    """A sentence for each side that has a run more than once."""
    sentences = []
    for side in sides:
        count = len(side.runs) - len(side.without_copies().runs)
        if count:
            copies = quantity(count, "copy", "copies")
            sentences.append(
                f"{side.label} has {copies} of its runs: each run counts once"
            )
    return sentences


def _other_file(sides: Sequence[Side]) -> Iterator[str]:
    """One label, but different models."""
    for side in sides:
        yield from _files_under_one_name(side.label, side.runs)

    runs_of: dict[str, list[MeasuredRun]] = {}
    sides_of: dict[str, set[int]] = {}
    for number, side in enumerate(sides):
        for run in side.runs:
            if run.label:
                runs_of.setdefault(run.label, []).append(run)
                sides_of.setdefault(run.label, set()).add(number)

    for label, runs in runs_of.items():
        if len(sides_of[label]) > 1:
            yield from _files_under_one_name(label, runs)


def _files_under_one_name(label: str, runs: Sequence[MeasuredRun]) -> Iterator[str]:
    for what in (_FILE, "model"):
        files: dict[str, None] = {}
        for run in runs:
            file = run.setup.get(what)
            if file:
                files[file] = None

        if len(files) > 1:
            listed = ", ".join(files)
            yield f"runs under one label, {label}, have different {what}s: {listed}"
            return


def _same_file(sides: Sequence[Side]) -> Iterator[str]:
    """Labels that name different quantizations, but one served file.

    By what the servers report, or by the figures.
    """
    for a, b in combinations(sides, 2):
        named_a = _named(a)
        named_b = _named(b)
        if named_a is None or named_b is None or named_a == named_b:
            continue

        labels = f"{a.label} and {b.label} name different quantizations"
        files = _files_of(a)
        tokens = _same_tokens(a.runs, b.runs)
        if files and files == _files_of(b):
            yield f"{labels}, but both servers report the model file {', '.join(sorted(files))}"
        elif tokens is not None:
            tpot_a = a.mean("mean_tpot_ms") or 0
            tpot_b = b.mean("mean_tpot_ms") or 0
            yield (
                f"{labels}, but both generated {tokens} tokens at one speed "
                f"(mean TPOT {tpot_a:.2f} and {tpot_b:.2f} ms): one file may have been served twice"
            )


def _files_of(side: Side) -> set[str]:
    """The model files that the servers of a side report."""
    files = set()
    for run in side.runs:
        file = run.setup.get(_FILE)
        if file:
            files.add(file)

    return files


def _named(side: Side) -> str | None:
    """The quantization that its label names, else its model."""
    texts = [side.label]
    for run in side.runs:
        texts.append(run.setup.get("model", ""))

    for text in texts:
        named = quantization(text)
        if named:
            return named
    return None


def _same_tokens(a: Sequence[MeasuredRun], b: Sequence[MeasuredRun]) -> int | None:
    """The output tokens of two runs of the same load, if they and the speeds are equal.

    To the token, although answers end by themselves; else None.
    """
    for one, other in product(a, b):
        tokens = one.count("total_output_tokens")
        completed = one.count("completed")
        if not completed or completed != other.count("completed"):
            continue
        if (
            tokens != other.count("total_output_tokens")
            or one.concurrency != other.concurrency
        ):
            continue
        # Answers of one length each have equal totals whatever the model.
        if one.fixed_lengths or other.fixed_lengths or tokens % completed == 0:
            continue

        tpot_one = one.value("mean_tpot_ms")
        tpot_other = other.value("mean_tpot_ms")
        if tpot_one and tpot_other and abs(tpot_one / tpot_other - 1) <= SAME_SPEED:
            return tokens
    return None


def _against_bench(sides: Sequence[Side], bench: Sequence[BenchTest]) -> Iterator[str]:
    """A llama.cpp server that decodes slower or faster than llama-bench.

    A single stream, with the same quantization.
    """
    speeds = decode_speeds(bench)
    for side in sides:
        name = _named(side)
        tpot_ms = side.mean("mean_tpot_ms")
        if (
            name is None
            or name not in speeds
            or not tpot_ms
            or not _is_single_llama(side)
        ):
            continue
        served = 1000 / tpot_ms
        test = speeds[name]
        if _apart(served, test) <= MOST_SLOWER:
            continue

        text = (
            f"{side.label} decodes {served:.1f} tok/s for one user, "
            f"llama-bench {test.avg_ts:.1f} ({test.name}) with {test.model_type}"
        )
        others = dict(speeds)
        del others[name]
        closest = min(
            others.values(), key=lambda other: _apart(served, other), default=None
        )
        if closest is not None and _apart(served, closest) <= MOST_SLOWER / 2:
            text += f"; it has {closest.avg_ts:.1f} for {closest.model_type}: was that file served?"
        yield text


def _apart(served: float, test: BenchTest) -> float:
    """How much faster or slower than a test a server decodes, relative to the test."""
    return abs(served / test.avg_ts - 1)


def _is_single_llama(side: Side) -> bool:
    """Whether it is llama.cpp with one request at a time."""
    for run in side.runs:
        texts = [side.label]
        for what in ("server", "model", _FILE):
            texts.append(run.setup.get(what, ""))

        names = " ".join(texts).lower()
        if run.concurrency != 1 or not any(name in names for name in _LLAMA_NAMES):
            return False
    return True


def _in_blocks(sides: Sequence[Side]) -> Iterator[str]:
    """Repeats that did not take turns with those of the first side."""
    for side in sides[1:]:
        text = against_order(sides[0], side)
        if text is not None:
            yield text
