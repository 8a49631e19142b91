"""Pages of metrics in Prometheus' text format.

Of llama-server, vLLM, other exporters, and our own on other machines.
"""

from __future__ import annotations

import io
import ssl
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TextIO, cast

from llama_load.outside.foreign_text import printable
from llama_load.run_folder.observed.telemetry_names import GPU, MIG, UUID
from llama_load.run_folder.sampler_config import Endpoint
from llama_load.servers.kinds import METRICS
from llama_load.telemetry.page_source import PageSource
from llama_load.telemetry.source import SourceError, Value

# Our own exporter's names; without it they are those of the sources here.
PREFIX = "llama_load_"
MOST_CHARS = 200
MOST_LABELS = 64  # vLLM 0.32 describes its cache with 37
# The parser takes the square of a line's length, and 30 µs a line: 300 kB in one line take 6 s, 8
# MiB of short lines 40 s.
MOST_LINE_CHARS = 16_000
PARSED_WITHIN_S = 5.0
# NVIDIA's DCGM exporter: its names, ours, and the factor to our unit.
# fmt: off
DCGM = {
    "DCGM_FI_DEV_FB_USED": ("gpu_memory_used_bytes", float(1 << 20)),
    "DCGM_FI_DEV_GPU_UTIL": ("gpu_utilization_ratio", 1e-2),
    "DCGM_FI_DEV_POWER_USAGE": ("gpu_power_watts", 1.0),
    "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION": ("gpu_energy_joules_total", 1e-3),
    "DCGM_FI_DEV_GPU_TEMP": ("gpu_temperature_celsius", 1.0),
    "DCGM_FI_DEV_SM_CLOCK": ("gpu_sm_clock_hertz", 1e6),
    "DCGM_FI_DEV_MEM_CLOCK": ("gpu_memory_clock_hertz", 1e6),
}
# fmt: on


def _prefixes_of_servers() -> tuple[str, ...]:
    prefixes = []
    for names in METRICS:
        prefixes += [names.prefix, *names.also]
    return (*prefixes, "process_")


# Of servers under test only these are kept: vLLM has hundreds of others, of its web framework and
# of Python.
OF_SERVERS = _prefixes_of_servers()


class Scrape(PageSource):
    """One page of metrics. `only`: beginnings of the names to keep; empty: all."""

    def __init__(
        self,
        endpoint: Endpoint,
        tls: Callable[[], ssl.SSLContext] | None = None,
        *,
        only: tuple[str, ...] = (),
    ) -> None:
        super().__init__(endpoint, tls)
        self._only = only

    def sample(self) -> Iterator[Value]:
        """Its values. Raises SourceError, also for half a page."""
        text = self.page().decode("utf-8", "replace")
        if not text.endswith(
            "\n"
        ):  # as Prometheus demands: 12 could be the beginning of 1234
            raise SourceError("sent half a page of metrics")
        return parse(text, self._only)


def _lines_in_time(text: str) -> Iterator[str]:
    """The lines of a page, one after the other as long as there is time."""
    until_s = time.monotonic() + PARSED_WITHIN_S
    for line in io.StringIO(text):
        if len(line) > MOST_LINE_CHARS:
            raise SourceError(
                f"sends a line of more than {MOST_LINE_CHARS:,} characters"
            )
        if time.monotonic() > until_s:
            raise SourceError(
                f"sends metrics that take more than {PARSED_WITHIN_S:g} s to read"
            )
        yield line


def parse(text: str, only: tuple[str, ...] = ()) -> Iterator[Value]:
    """The values in a page. Raises SourceError for what is no such page, or takes too long."""
    samples = _samples_of_page(text)
    # A page that holds several machines' GPUs, as a federating Prometheus does, has a GPU 0 of
    # each.
    hosts = {sample.labels.get("Hostname") for sample in samples if sample.name in DCGM}
    has_hosts = len(hosts - {None, ""}) > 1

    described: set[tuple[tuple[str, str], ...]] = set()
    for sample in samples:
        if sample.name.endswith("_created"):
            continue
        if only and not sample.name.startswith(only):
            continue

        name = printable(sample.name, MOST_CHARS).removeprefix(PREFIX)
        cleaned = {}
        for key, value in sample.labels.items():
            cleaned[printable(key, MOST_CHARS)] = printable(value, MOST_CHARS)
        labels = dict(sorted(cleaned.items())[:MOST_LABELS])
        if name.startswith("gpu_") and GPU in labels:
            labels[GPU] = _gpu_name(labels)
        yield Value(name, float(sample.value), tuple(sorted(labels.items())))

        if name in DCGM and GPU in cleaned:
            metric, factor = DCGM[name]
            gpu = ((GPU, _gpu_name(cleaned, has_hosts=has_hosts)),)
            if gpu not in described:
                described.add(gpu)
                yield Value("gpu_info", 1.0, _described(gpu, cleaned))
            yield Value(metric, sample.value * factor, gpu)


def _samples_of_page(text: str) -> list[Any]:
    from prometheus_client.parser import text_fd_to_metric_families

    lines = cast("TextIO", _lines_in_time(text))
    samples: list[Any] = []
    try:
        for family in text_fd_to_metric_families(lines):
            samples += family.samples
    except (ValueError, KeyError, IndexError) as error:
        why = printable(str(error), MOST_CHARS)
        raise SourceError(
            f"sends no metrics in Prometheus' text format: {why}"
        ) from None
    return samples


def _gpu_name(labels: Mapping[str, str], *, has_hosts: bool = False) -> str:
    """A name for a GPU that no other on the page has.

    Its machine where there are several, its number, its MIG instance.
    """
    host = labels.get("instance") or labels.get("exported_instance")
    if not host and has_hosts:
        host = labels.get("Hostname")
    parts = [host, labels[GPU]]
    instance = labels.get("GPU_I_ID")
    if instance:
        parts.append(f"MIG {instance}")
    return " ".join(part for part in parts if part)


def _described(
    gpu: tuple[tuple[str, str], ...], labels: Mapping[str, str]
) -> tuple[tuple[str, str], ...]:
    """The labels of `gpu_info` from those of the DCGM exporter."""
    described = list(gpu)
    name = labels.get("modelName", "GPU")
    if name:
        described.append(("name", name))
    uuid = labels.get("UUID")
    if uuid:
        described.append((UUID, uuid))
    instance = labels.get("GPU_I_ID")
    if instance:
        described.append((MIG, instance))
    return tuple(described)
