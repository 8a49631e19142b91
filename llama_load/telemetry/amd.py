"""AMD GPUs, by the files of the kernel's amdgpu driver."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from llama_load.telemetry.source import Source, SourceError, Value

DRM = Path("/sys/class/drm")
VENDOR = "0x1002"
MOST_GPUS = 64
MOST_CHARS = 200
# File below the card's folder, metric, and the factor to its unit. Of several files for one metric the first that exists counts.
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


class AmdGpus(Source):
    """All AMD GPUs of this machine, named like their cards: card0, card1."""

    name = "amd"

    def __init__(self, root: Path = DRM) -> None:
        cards = [card for card in sorted(root.glob("card[0-9]*")) if "-" not in card.name]
        self.cards = [card for card in cards if _text(card / "device/vendor") == VENDOR][:MOST_GPUS]
        self._files = {card.name: list(_files(card)) for card in self.cards}

    def sample(self) -> Iterator[Value]:
        """Memory, utilisation, power, temperature and clocks, as far as the driver has them."""
        for card in self.cards:
            name = _text(card / "device/product_name") or f"AMD {_text(card / 'device/device') or 'GPU'}"
            uuid = _text(card / "device/unique_id")  # of Vega and newer
            yield Value("gpu_info", 1.0, (("gpu", card.name), ("name", name), *([("uuid", uuid)] if uuid else [])))
            answered = False
            for file, metric, factor in self._files[card.name]:
                try:
                    value = float(_text(file))
                except ValueError:  # not supported in this state, such as asleep
                    continue
                answered = True
                yield Value(metric, value * factor, (("gpu", card.name),))
            if not answered:
                raise SourceError(f"{card.name} does not answer any more")


def _files(card: Path) -> Iterator[tuple[Path, str, float]]:
    seen = set()
    for pattern, metric, factor in FILES:
        for file in sorted(card.glob(pattern))[:1]:
            if metric not in seen:
                seen.add(metric)
                yield file, metric, factor


def _text(file: Path) -> str:
    """A short file; empty where it cannot be read."""
    try:
        with file.open("rb") as opened:
            return opened.read(MOST_CHARS).decode("utf-8", "replace").strip()
    except OSError:
        return ""
