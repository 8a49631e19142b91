"""Warnings about sides that may not be what their labels say."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations

from llama_load.comparison.llama_bench import BenchTest, decode_speeds, quantization
from llama_load.comparison.order import against_order
from llama_load.comparison.side import MeasuredRun, Side
from llama_load.units import quantity

# A server decodes one stream a little slower than llama-bench (its context is longer, and it samples): 1 to 6 % in the runs that
# docs/compare.md shows. Beyond this it runs something else.
MOST_SLOWER = 0.15
# Two files of different quantization never decode this alike while also generating the same number of tokens.
SAME_SPEED = 0.01
_FILE = "model file"


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
        replaced = sum(run.replaced or 0 for run in side.runs)
        if replaced:
            text = (
                f"{side.label}: {quantity(replaced, 'planned prompt')} did not fit a slot and {_was(replaced)} replaced by others"
            )
            sentences.append(text)
    return sentences


def _was(count: int) -> str:
    return "was" if count == 1 else "were"


def copies_in(sides: Sequence[Side]) -> list[str]:
    """A sentence for each side that has a run more than once."""
    copies = [(side, len(side.runs) - len(side.without_copies().runs)) for side in sides]
    return [
        f"{side.label} has {quantity(count, 'copy', 'copies')} of its runs: each run counts once" for side, count in copies if count
    ]


def _other_file(sides: Sequence[Side]) -> Iterator[str]:
    """One label, but different models."""
    for side in sides:
        yield from _files_under_one_name(side.label, side.runs)
    labels = dict.fromkeys(run.label for side in sides for run in side.runs if run.label)
    for label in labels:
        named = [side for side in sides if any(run.label == label for run in side.runs)]
        if len(named) > 1:
            yield from _files_under_one_name(label, [run for side in named for run in side.runs if run.label == label])


def _files_under_one_name(label: str, runs: Sequence[MeasuredRun]) -> Iterator[str]:
    for what in (_FILE, "model"):
        files = list(dict.fromkeys(run.setup[what] for run in runs if run.setup.get(what)))
        if len(files) > 1:
            yield f"runs under one label, {label}, have different {what}s: {', '.join(files)}"
            return


def _same_file(sides: Sequence[Side]) -> Iterator[str]:
    """Labels that name different quantizations, but one served file: by what the servers report, or by the figures."""
    for a, b in combinations(sides, 2):
        names = _named(a), _named(b)
        if None in names or names[0] == names[1]:
            continue
        files = [{run.setup[_FILE] for run in side.runs if run.setup.get(_FILE)} for side in (a, b)]
        labels = f"{a.label} and {b.label} name different quantizations"
        if files[0] and files[0] == files[1]:
            yield f"{labels}, but both servers report the model file {', '.join(sorted(files[0]))}"
        elif (tokens := _same_tokens(a.runs, b.runs)) is not None:
            speeds = " and ".join(f"{side.mean('mean_tpot_ms') or 0:.2f}" for side in (a, b))
            text = f"{labels}, but both generated {tokens} tokens at one speed (mean TPOT {speeds} ms)"
            yield f"{text}: one file may have been served twice"


def _named(side: Side) -> str | None:
    """The quantization that its label names, else its model."""
    return quantization(side.label) or next(
        (name_part for run in side.runs if (name_part := quantization(run.setup.get("model", "")))), None
    )


def _same_tokens(a: Sequence[MeasuredRun], b: Sequence[MeasuredRun]) -> int | None:
    """The output tokens of two runs of the same load, if they are equal to the token although answers end by themselves, and the
    speeds are equal too; else None."""
    for one in a:
        for other in b:
            tokens, completed = one.count("total_output_tokens"), one.count("completed")
            counts = tokens, completed, one.concurrency
            if counts != (other.count("total_output_tokens"), other.count("completed"), other.concurrency) or not completed:
                continue
            # Answers of one length each have equal totals whatever the model.
            is_fixed = one.fixed_lengths or other.fixed_lengths or tokens % completed == 0
            speeds = one.value("mean_tpot_ms"), other.value("mean_tpot_ms")
            if not is_fixed and all(speeds) and abs((speeds[0] or 0) / (speeds[1] or 1) - 1) <= SAME_SPEED:
                return tokens
    return None


def _against_bench(sides: Sequence[Side], bench: Sequence[BenchTest]) -> Iterator[str]:
    """A llama.cpp server that decodes a single stream slower or faster than llama-bench does with the same quantization."""
    speeds = decode_speeds(bench)
    for side in sides:
        name = _named(side)
        tpot_ms = side.mean("mean_tpot_ms")
        if name is None or name not in speeds or not tpot_ms or not _is_single_llama(side):
            continue
        served, test = 1000 / tpot_ms, speeds[name]
        if abs(served / test.avg_ts - 1) <= MOST_SLOWER:
            continue
        bench_speed = f"llama-bench {test.avg_ts:.1f} ({test.name}) with {test.model_type}"
        text = f"{side.label} decodes {served:.1f} tok/s for one user, {bench_speed}"
        alike = [other for key, other in speeds.items() if key != name and abs(served / other.avg_ts - 1) <= MOST_SLOWER / 2]
        closest = min(alike, key=lambda other: abs(served / other.avg_ts - 1), default=None)
        likely = "" if closest is None else f"; it has {closest.avg_ts:.1f} for {closest.model_type}: was that file served?"
        yield text + likely


def _is_single_llama(side: Side) -> bool:
    """Whether it is llama.cpp with one request at a time."""
    for run in side.runs:
        names = " ".join((side.label, run.setup.get("server", ""), run.setup.get("model", ""), run.setup.get(_FILE, ""))).lower()
        if run.concurrency != 1 or not any(name in names for name in ("llama.cpp", "llama-server", "llama-cpp", ".gguf")):
            return False
    return True


def _in_blocks(sides: Sequence[Side]) -> Iterator[str]:
    """Repeats that did not take turns with those of the first side."""
    for side in sides[1:]:
        if (text := against_order(sides[0], side)) is not None:
            yield text
