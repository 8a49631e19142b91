"""The tables of the engine's own counts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from llama_load.analysis.topics.engine.engine_figures import (
    DEVICE,
    EngineFigures,
    Waiting,
)
from llama_load.ground.languages import Translate
from llama_load.tables import LEFT, Column, Row, Table, figure, whole
from llama_load.tables.numbers import percent_of

# A tier that answered less of the prompt is no news on the first screen.
LEAST_SHARE = 0.01
TIERS = {
    DEVICE: "the device's cache",
    "host": "the host's memory",
    "disk": "the disk",
    "p2p": "another engine",
    "external_unspecified": "an external cache",
}


def engine_tables(found: EngineFigures, t: Translate) -> Iterator[Table]:
    """A table for each kind of count that is not zero."""
    if found.cached_by_tier:
        yield _tiers(found, t)
    waiting = found.waiting_by_reason | {
        f"KV fetch: {stage}": value for stage, value in found.fetching_by_stage.items()
    }
    if waiting:
        yield _waits(waiting, t)
    if found.transfers is not None:
        transfers = found.transfers
        row = [
            whole(transfers.count),
            figure(transfers.mean_ms, 2),
            whole(transfers.failed),
        ]
        heads = [
            Column(t("transfers")),
            Column(t("mean time (ms)")),
            Column(t("failed")),
        ]
        yield Table(t("Transfers between Engines"), heads, [row])
    if found.refused_by_reason:
        rows: list[Row] = []
        for reason, count in found.refused_by_reason.items():
            rows.append([reason, whole(count)])
        heads = [Column(t("reason"), LEFT), Column(t("refused"))]
        yield Table(t("Refused by the Engine"), heads, rows)


def _tiers(found: EngineFigures, t: Translate) -> Table:
    rows: list[Row] = []
    for tier, tokens in found.cached_by_tier.items():
        share = ""
        if found.prompt_tokens:
            share = percent_of(tokens, found.prompt_tokens)
        rows.append([tier, whole(tokens), share])
    heads = [
        Column(t("cache"), LEFT),
        Column(t("prompt tokens")),
        Column(t("share of the prompt")),
    ]
    return Table(t("Prompt Tokens by Cache Tier"), heads, rows)


def _waits(waiting: Mapping[str, Waiting], t: Translate) -> Table:
    rows: list[Row] = []
    for reason, value in waiting.items():
        rows.append([reason, figure(value.mean, 2), figure(value.peak, 0)])
    heads = [Column(t("reason"), LEFT), Column(t("mean")), Column(t("peak"))]
    return Table(t("Waiting Requests by Reason"), heads, rows)


def engine_headline(found: EngineFigures) -> str | None:
    """`the host's memory answered 31 % of the prompt tokens`: of the largest tier beside the
    device; None where there is none."""
    beside = {
        tier: tokens for tier, tokens in found.cached_by_tier.items() if tier != DEVICE
    }
    if not beside or not found.prompt_tokens:
        return None
    tier = max(beside, key=beside.__getitem__)
    if beside[tier] < LEAST_SHARE * found.prompt_tokens:
        return None
    share = percent_of(beside[tier], found.prompt_tokens)
    return f"{TIERS.get(tier, tier)} answered {share} of the prompt tokens"
