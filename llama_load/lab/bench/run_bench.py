"""A whole bench: a short run that shows the speed, the tests of one user, then several users."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from llama_load.ground.errors import LlamaLoadError, RunError
from llama_load.ground.units import quantity
from llama_load.ground.version import __version__
from llama_load.lab.bench.bench_block import BenchResult, text_of_estimate
from llama_load.lab.bench.bench_figures import (
    AloneFigure,
    UsersFigure,
    alone_figure,
    users_figure,
)
from llama_load.lab.bench.bench_runs import (
    ALONE_SHARE,
    LEVELS,
    MOST_ROUNDS,
    MOST_USERS,
    USERS_ANSWER,
    BenchRun,
    Cells,
    Speed,
    alone_runs,
    cells_s,
    chosen_lengths,
    next_users_run,
    users_run,
)
from llama_load.lab.bench.bench_session import (
    MARGIN,
    BenchSession,
    BenchSettings,
    Say,
    bench_plan,
    requests_s,
)
from llama_load.lab.bench.beside import (
    bench_command,
    decode_sentence,
    run_llama_bench,
    speeds,
)
from llama_load.lab.bench.served import served, share_met
from llama_load.lab.sweep.cells import expand
from llama_load.lab.sweep.folder import open_folder
from llama_load.lab.sweep.mean_interval import mean_with_interval
from llama_load.lab.sweep.runner import CellRunner
from llama_load.lab.sweep.tests_load import GENERATE, PROCESS
from llama_load.run_folder import Run
from llama_load.run_folder.vocabulary.verdict_words import VALID, WORDS
from llama_load.tables.numbers import duration

NOT_BESIDE_S = 30.0  # llama-bench gets no less


def run_bench(settings: BenchSettings, out: Path, say: Say) -> BenchResult:
    """Run a bench within its time. UsageError, RunError: nothing could be measured."""
    plan, text = bench_plan(settings)
    with (
        closing(open_folder(out, expand(plan), text, __version__)) as folder,
        closing(CellRunner(plan, folder)) as cells,
    ):
        bench = BenchSession(settings, plan, folder, cells, say)
        say("a short run, which shows how long the others take")
        speed = bench.pilot()
        alone, decode = _one_user(bench, speed)
        alone_s = settings.time_s - bench.left_s
        users = _several_users(bench, speed)
        if decode is not None:
            _run_llama_bench_beside(bench, decode, alone_s)

    if not alone and not users:
        raise RunError("no run of the bench could be used; " + "; ".join(bench.notes))
    assert bench.head is not None
    return BenchResult(
        head=bench.head,
        alone=alone,
        users=users,
        served=served(users, settings.objective),
        objective=settings.objective,
        notes=_notes_of_bench(bench),
        verdict=_gravest_words(bench.words),
        date=time.strftime("%Y-%m-%d"),
        version=__version__,
        command=settings.command,
        beside=bench.beside,
    )


def _one_user(
    bench: BenchSession, speed: Speed
) -> tuple[list[AloneFigure], Run | None]:
    """The tests of one user, and the run of the first test of tg."""
    total_s = bench.settings.time_s
    lengths = chosen_lengths(speed, total_s)
    depths = bench.depths(sum(lengths) + MARGIN)
    limit_s = min(ALONE_SHARE * total_s, bench.left_s)
    runs, left_out = alone_runs(depths, lengths, speed, limit_s)
    planned_s = sum(map(speed.seconds, runs))
    bench.say(f"one user: {quantity(len(runs), 'run')}, about {duration(planned_s)}")
    if left_out:
        bench.left_out.append(f"one user at {_first_few(left_out)}")

    figures = []
    decode: Run | None = None
    for run in runs:
        try:
            ended, took_s = bench.ended(run)
        except RunError as error:
            bench.notes.append(str(error))
            continue
        if run.kind == PROCESS and not run.depth:
            speed.prefill_tok_per_s = _measured_rate(ended, speed.prefill_tok_per_s)
        speed.correct(run, took_s, requests_s(ended))
        bench.tests.append(run)
        if run.kind == GENERATE and decode is None:
            decode = ended

        figure = alone_figure(ended.records.measured(), run)
        if figure is None:
            bench.notes.append(f"{run.name}: no answer shows it")
            continue
        figures.append(figure)
        bench.say(f"{figure.name}: {text_of_estimate(figure.rate)} tok/s")
    return figures, decode


def _measured_rate(ended: Run, before: float) -> float:
    """Prompt tokens per second of a run of one user; `before`, where it shows none."""
    ok = ended.records.measured().ok()
    seconds = ok.numbers("ttft_ms").sum() / 1e3
    tokens = ok.numbers("prompt_tokens").sum()
    rate = float(tokens / seconds) if seconds > 0 else 0.0
    return rate if rate > 0 else before


def _several_users(bench: BenchSession, speed: Speed) -> list[UsersFigure]:
    """What several users get: the cheapest runs first; more users while the objective is met."""
    depths = bench.depths(USERS_ANSWER + MARGIN)
    cells = [(depth, users) for users in LEVELS for depth in depths]
    wanted_s = cells_s(cells, USERS_ANSWER, MOST_ROUNDS, speed)
    bench.say(
        f"several users at {_first_few(depths)} tokens: about "
        f"{duration(min(wanted_s, bench.left_s))}"
    )
    found: list[UsersFigure] = []
    while cells:
        run = next_users_run(cells, USERS_ANSWER, speed, bench.left_s)
        if run is None:
            break
        cells.remove((run.depth, run.users))
        figure = _users_at(bench, speed, run)
        if figure is None:
            continue
        found.append(figure)
        _say_figure(bench, figure)

        is_last = run.users >= LEVELS[-1]
        is_met = share_met(figure, bench.settings.objective) > 0
        if is_last and is_met and run.users < MOST_USERS:
            cells.append((run.depth, 2 * run.users))

    bench.left_out += _levels_left_out(cells)
    return sorted(found, key=lambda figure: (figure.context, figure.users))


def _levels_left_out(cells: Cells) -> list[str]:
    """`4 users and more at 256, 4096`."""
    fewest: dict[int, int] = {}  # users by context
    for cell in sorted(cells):
        run = users_run(cell, USERS_ANSWER, 1)
        fewest.setdefault(run.context, run.users)

    contexts: dict[int, list[int]] = {}
    for context, users in fewest.items():
        contexts.setdefault(users, []).append(context)
    texts = []
    for users, found in sorted(contexts.items()):
        texts.append(f"{quantity(users, 'user')} and more at {_first_few(found)}")
    return texts


def _users_at(bench: BenchSession, speed: Speed, run: BenchRun) -> UsersFigure | None:
    """Run it; None: it failed, or shows nothing, which is noted."""
    try:
        ended, took_s = bench.ended(run)
    except RunError as error:
        bench.notes.append(str(error))
        return None
    speed.correct(run, took_s, requests_s(ended))

    figure = users_figure(ended.records.measured(), run)
    if figure is None:
        bench.notes.append(f"{run.name}: no round was answered whole")
    return figure


def _say_figure(bench: BenchSession, figure: UsersFigure) -> None:
    ttft = text_of_estimate(figure.ttft_ms)
    each = text_of_estimate(figure.one)
    together = text_of_estimate(figure.together)
    bench.say(
        f"{quantity(figure.users, 'user')} at {figure.context}: TTFT {ttft} ms, "
        f"{each} tok/s each, {together} tok/s all"
    )


def _run_llama_bench_beside(bench: BenchSession, decode: Run, alone_s: float) -> None:
    """What llama-bench measures, where it can be run; at all depths if there is time.

    `alone_s`: how long the tests of one user took.
    """
    manifest = decode.manifest
    tests = [run for run in bench.tests if not run.depth]
    depths = sorted({run.depth for run in bench.tests})
    if not manifest.servers or not manifest.targets:
        return
    if bench.left_s < alone_s:
        depths = [0]
    model = manifest.targets[0].get("model_path")
    command = bench_command(
        manifest.servers[0], model if isinstance(model, str) else None, tests, depths
    )
    if command is None:
        return

    limit_s = max(bench.left_s, NOT_BESIDE_S)
    bench.say(f"llama-bench beside it, {duration(limit_s)} at most")
    try:
        theirs = run_llama_bench(command, limit_s)
    except LlamaLoadError as error:
        bench.notes.append(f"not compared with llama-bench: {error}")
        return

    ok = decode.records.measured().ok()
    tpot_ms = ok.numbers("tpot_ms")
    steps = ok.numbers("output_tokens") - 1
    server_ms = ok.numbers("server_predict_ms") / steps
    bench.beside = speeds(theirs)
    client = mean_with_interval(tpot_ms)
    server = mean_with_interval(server_ms)
    client_ms = None if client is None else client.mean
    server_own_ms = None if server is None else server.mean
    sentence = decode_sentence(theirs, client_ms, server_own_ms)
    if sentence is not None:
        bench.notes.append(sentence)


def _notes_of_bench(bench: BenchSession) -> list[str]:
    """What was left out, and why; then what else was noted."""
    notes = []
    wanted = bench.settings.depths
    if bench.context is not None and wanted[-1] > bench.context:
        too_deep = [depth for depth in wanted if depth > bench.context]
        notes.append(
            f"no depth of {_first_few(too_deep)}: a slot has {bench.context} tokens of context"
        )
    if bench.left_out:
        notes.append(
            f"left out for the time, --max-time has them: {'; '.join(bench.left_out)}"
        )
    return notes + bench.notes


def _gravest_words(words: dict[str, list[str]]) -> str:
    """`VALID: all 20 runs`, or the gravest words with the runs that have them."""
    total = sum(map(len, words.values()))
    parts = []
    for word in WORDS:
        names = words.get(word, [])
        if not names or word == VALID:
            continue
        parts.append(f"{word}: {_first_few(names)}")
    if not parts:
        return f"{VALID}: all {quantity(total, 'run')}"
    valid = len(words.get(VALID, []))
    return f"{'; '.join(parts)}; {VALID}: the other {valid} of {total}"


def _first_few(items: Sequence[object], most: int = 4) -> str:
    texts = [str(item) for item in items[:most]]
    if len(items) > most:
        texts.append(f"{len(items) - most} more")
    return ", ".join(texts)
