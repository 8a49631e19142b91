"""The live figures of the run that goes on, with what was run."""

from __future__ import annotations

from pathlib import Path

from llama_load.loadgen.live import LiveFigures
from llama_load.loadgen.live.exposition import exposition
from llama_load.run_folder import Manifest, RunWriter


class RunMetrics:
    """The live figures of the present run, or of the last one until the next begins."""

    def __init__(self) -> None:
        self.live: LiveFigures | None = None
        self._writer: RunWriter | None = None

    def follow(self, live: LiveFigures, writer: RunWriter) -> None:
        """A run begins."""
        self.live = live
        self._writer = writer

    @property
    def name(self) -> str | None:
        """The name of the run's folder."""
        if self._writer is None:
            return None
        return self._writer.path.name

    @property
    def folder(self) -> Path | None:
        """The run's folder."""
        if self._writer is None:
            return None
        return self._writer.path

    @property
    def stages(self) -> list[str]:
        """The names of the run's stages."""
        if self._writer is None:
            return []
        return [stage.name for stage in self._writer.manifest.stages]

    @property
    def manifest(self) -> Manifest | None:
        """What was run, as far as it is known."""
        if self._writer is None:
            return None
        return self._writer.manifest

    def text(self) -> bytes:
        """The text of /metrics."""
        info = {}
        if self._writer is not None:
            manifest = self._writer.manifest
            info = {
                "run": self._writer.path.name,
                "label": manifest.label or "",
                "workload": manifest.workload,
                "model": manifest.model or "",
                "server": manifest.backend or "",
            }

        return exposition(self.live, self.stages, info)
