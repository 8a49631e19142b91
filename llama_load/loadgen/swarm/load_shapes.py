"""Locust load shapes for locustfiles: a class in the locustfile sets how the load changes.

    from llama_load import LlamaUser, ShareGPT, Spike

    class Load(Spike):
        level, peak, time = "4", "32", "30s"

`--stages` on the command line overrides it. All users start at once, and the dispatcher limits how
many requests are in flight, exactly and across workers. With Locust's own shapes users would be
started and killed, with their requests in flight.
"""

from __future__ import annotations

from typing import ClassVar

from locust import LoadTestShape


class Stages(LoadTestShape):
    """Stages as in `--stages` (see `llama_load.loadgen.schedule.stages`); `{cls.…}` in the text is replaced by
    attributes of the class."""

    abstract: ClassVar[bool] = True
    use_common_options: ClassVar[bool] = True  # -t applies
    stages: ClassVar[str] = ""
    users = 1  # set when a run is prepared

    @classmethod
    def text(cls) -> str:
        """The equivalent value of `--stages`."""
        return cls.stages.format(cls=cls)

    def tick(self) -> tuple[int, float]:
        """Locust's target number of users and spawn rate. Never None: the controller ends the
        run."""
        return self.users, self.users


class Ramp(Stages):
    """A linear ramp over `time`: from "1" to "16" in flight, or from "1/s" to "10/s" arrivals."""

    abstract: ClassVar[bool] = True
    start: ClassVar[str] = "1"
    end: ClassVar[str] = "16"
    time: ClassVar[str] = "60s"
    stages: ClassVar[str] = "{cls.start}-{cls.end}:{cls.time}"


class Spike(Stages):
    """Base load, peak load, base load again: each for `time`, without a pause in between."""

    abstract: ClassVar[bool] = True
    level: ClassVar[str] = "4"
    peak: ClassVar[str] = "32"
    time: ClassVar[str] = "30s"
    stages: ClassVar[str] = "spike:{cls.level}-{cls.peak}:{cls.time}"


class Soak(Stages):
    """A constant load for a long time, reported in windows to show a drift."""

    abstract: ClassVar[bool] = True
    level: ClassVar[str] = "8"
    time: ClassVar[str] = "1h"
    stages: ClassVar[str] = "soak:{cls.level}:{cls.time}"
