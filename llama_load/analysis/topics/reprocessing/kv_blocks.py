"""Servers that keep prompts in blocks of a common KV cache: the size of a block, and when blocks
were taken from those that had them, by the servers' metrics."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from llama_load.run_folder import Run
from llama_load.run_folder.observed.telemetry_series import Series
from llama_load.run_folder.observed.window import Window
from llama_load.servers.kinds import kind_named
from llama_load.servers.kinds.server_kind import ServerKind

# The KV cache is sampled once a second: it may have been full in between.
FULL_RATIO = 0.9
MOST_TOKENS = 2**40


@dataclass(frozen=True, slots=True)
class KvBlocks:
    """What is known of one server. `block`: tokens; `capacity`: tokens of all blocks, None if not
    reported; `is_off`: it does not cache prompts. Series: preemptions, and the used share of the
    blocks."""

    block: int = 1
    capacity: int | None = None
    is_off: bool = False
    preemptions: Sequence[Series] = ()
    used: Sequence[Series] = ()

    def preempted_in(self, window: Window) -> bool:
        """Whether a request was preempted in a window, by the samples around it."""
        return any(series.increase(window, around=True) for series in self.preemptions)

    def peak_in(self, window: Window) -> float | None:
        """The largest used share, 0 to 1; None where it was not sampled."""
        peaks = []
        for series in self.used:
            peak = series.peak(window)
            if peak is not None:
                peaks.append(peak)
        return max(peaks, default=None)

    def evicts(self, tokens: int, taken: float, peak: float | None) -> bool:
        """Whether the oldest of so many cached tokens had to go: requests used nearly all blocks,
        or others have taken more tokens since than there was room for beside them."""
        if is_full(peak):
            return True
        if self.capacity is None:
            return False
        whole = -(-tokens // self.block) * self.block
        return taken + whole > self.capacity


def is_full(used: float | None) -> bool:
    """Whether a KV cache was nearly full, by its used share."""
    return used is not None and used >= FULL_RATIO


NO_BLOCKS = KvBlocks()


def kv_blocks(run: Run) -> Mapping[str, KvBlocks]:
    """Of the servers of a run that report blocks, by URL."""
    commands = {server.url: server.command for server in run.manifest.servers}
    found = {}
    for target in run.manifest.targets:
        url = str(target.get("url"))
        kind = kind_named(str(target.get("backend")))
        if kind.metrics is None or not kind.metrics.preemptions:
            continue
        series = run.telemetry.of_server(url)
        found[url] = blocks_of(kind, series, commands.get(url) or "")
    return found


def blocks_of(kind: ServerKind, series: Sequence[Series], command: str) -> KvBlocks:
    """Of a server of this kind, by what was sampled of it and its command line."""
    metrics = kind.metrics
    if metrics is None:
        return NO_BLOCKS
    info: Mapping[str, str] = {}
    preemptions = []
    used = []
    for each in series:
        name = each.metric.removeprefix(metrics.prefix)
        if name == metrics.cache_info and metrics.cache_info:
            info = each.labels
        elif name.removesuffix("_total") == metrics.preemptions:
            preemptions.append(each)
        elif name in metrics.kv_used:
            used.append(each)

    block = _whole(info.get("block_size")) or _block_in(command, kind)
    capacity = _whole(info.get("kv_cache_size_tokens"))
    blocks = _whole(info.get("num_gpu_blocks"))
    if capacity is None and blocks is not None:
        capacity = blocks * block
    return KvBlocks(
        block, capacity, info.get("enable_prefix_caching") == "False", preemptions, used
    )


def _block_in(command: str, kind: ServerKind) -> int:
    """The size of a block by the command line, else the usual one."""
    words = command.replace("=", " ").split()
    flag = kind.cache_block_flag
    if flag and flag in words[:-1]:
        given = _whole(words[words.index(flag) + 1])
        if given is not None:
            return given
    return kind.cache_block


def _whole(text: str | None) -> int | None:
    """A number of 1 or more in a label."""
    if text is None or not re.fullmatch(r"\d{1,12}", text):
        return None
    return min(int(text), MOST_TOKENS) or None
