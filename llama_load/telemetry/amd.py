"""AMD GPUs, by the files of the kernel's amdgpu driver."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from llama_load.telemetry.source import Source, SourceError, Value

DRM = Path("/sys/class/drm")
VENDOR = "0x1002"
MOST_GPUS = 64
MOST_CHARS = 200
# File below the card's folder, metric, and the factor to its unit. The first of a metric's files
# that exists counts.
# fmt: off
FILES = (
    ("device/mem_info_vram_used", "gpu_memory_used_bytes", 1.0),
    ("device/mem_info_vram_total", "gpu_memory_total_bytes", 1.0),
    ("device/gpu_busy_percent", "gpu_utilization_ratio", 1e-2),
    ("device/mem_busy_percent", "gpu_memory_utilization_ratio", 1e-2),
    ("device/hwmon/hwmon*/power1_average", "gpu_power_watts", 1e-6),
    ("device/hwmon/hwmon*/power1_input", "gpu_power_watts", 1e-6),
    ("device/hwmon/hwmon*/power1_cap", "gpu_power_limit_watts", 1e-6),
    ("device/hwmon/hwmon*/energy1_input", "gpu_energy_joules_total", 1e-6),
    ("device/hwmon/hwmon*/temp1_input", "gpu_temperature_celsius", 1e-3),
    ("device/hwmon/hwmon*/freq1_input", "gpu_sm_clock_hertz", 1.0),
    ("device/hwmon/hwmon*/freq2_input", "gpu_memory_clock_hertz", 1.0),
)
# fmt: on


class AmdGpus(Source):
    """All AMD GPUs of this machine, named like their cards: card0, card1."""

    name = "amd"

    def __init__(self, root: Path = DRM) -> None:
        cards = []
        for card in sorted(root.glob("card[0-9]*")):
            is_output = "-" in card.name  # card0-DP-1
            if not is_output and _short_file(card / "device/vendor") == VENDOR:
                cards.append(card)
        self.cards = cards[:MOST_GPUS]
        self._files = {card.name: list(_files(card)) for card in self.cards}

    def sample(self) -> Iterator[Value]:
        """Memory, utilisation, power, temperature and clocks, as far as the driver has them."""
        for card in self.cards:
            gpu = (("gpu", card.name),)
            yield Value("gpu_info", 1.0, (*gpu, *_described(card)))

            has_answered = False
            for file, metric, factor in self._files[card.name]:
                try:
                    value = float(_short_file(file))
                except ValueError:  # not supported in this state, such as asleep
                    continue
                has_answered = True
                yield Value(metric, value * factor, gpu)
            if not has_answered:
                raise SourceError(f"{card.name} does not answer any more")


def _described(card: Path) -> Iterator[tuple[str, str]]:
    """The labels of `gpu_info` but its name here."""
    name = _short_file(card / "device/product_name")
    if not name:
        device = _short_file(card / "device/device") or "GPU"
        name = f"AMD {device}"
    yield "name", name

    uuid = _short_file(card / "device/unique_id")  # of Vega and newer
    if uuid:
        yield "uuid", uuid


def _files(card: Path) -> Iterator[tuple[Path, str, float]]:
    seen = set()
    for pattern, metric, factor in FILES:
        for file in sorted(card.glob(pattern))[:1]:
            if metric not in seen:
                seen.add(metric)
                yield file, metric, factor


def _short_file(file: Path) -> str:
    """What is in a short file; empty where it cannot be read."""
    try:
        with file.open("rb") as opened:
            return opened.read(MOST_CHARS).decode("utf-8", "replace").strip()
    except OSError:
        return ""
