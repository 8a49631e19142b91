"""Locust load shapes for locustfiles: a class beside the user class says how the load changes.

    from llama_load import LlamaUser, ShareGPT, Spike

    class Load(Spike):
        level, peak, time = "4", "32", "30s"

What `--stages` says on the command line goes before it. The users are there from the start, and how many of them send at a time is
exact at every moment, in a swarm of any size; Locust alone would start and kill users for that, with what they have in flight.
"""

from __future__ import annotations

from typing import ClassVar

from locust import LoadTestShape


class Stages(LoadTestShape):
    """A row of stages, as `--stages` takes them (see `llama_load.load.stages`); `{cls.…}` in it are attributes of the class."""

    abstract: ClassVar[bool] = True
    use_common_options: ClassVar[bool] = True  # -t holds
    stages: ClassVar[str] = ""
    users = 1  # set when a run is prepared

    @classmethod
    def text(cls) -> str:
        """What `--stages` would say."""
        return cls.stages.format(cls=cls)

    def tick(self) -> tuple[int, float]:
        """How many users Locust should have, and how many a second it may start. The run ends by itself."""
        return self.users, self.users


class Ramp(Stages):
    """From one load to another, evenly, within a time: "1" to "16" in flight, or "1/s" to "10/s" arrivals."""

    abstract: ClassVar[bool] = True
    start: ClassVar[str] = "1"
    end: ClassVar[str] = "16"
    time: ClassVar[str] = "60s"
    stages: ClassVar[str] = "{cls.start}-{cls.end}:{cls.time}"


class Spike(Stages):
    """A load, a much higher one, and the first again, each for a time, without a pause between them."""

    abstract: ClassVar[bool] = True
    level: ClassVar[str] = "4"
    peak: ClassVar[str] = "32"
    time: ClassVar[str] = "30s"
    stages: ClassVar[str] = "spike:{cls.level}-{cls.peak}:{cls.time}"


class Soak(Stages):
    """One load for a long time, told in windows, so that a drift can be seen."""

    abstract: ClassVar[bool] = True
    level: ClassVar[str] = "8"
    time: ClassVar[str] = "1h"
    stages: ClassVar[str] = "soak:{cls.level}:{cls.time}"
