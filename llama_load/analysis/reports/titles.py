"""The title of a run's reports."""

from __future__ import annotations

import time

from llama_load.analysis.results.keys import configured_load
from llama_load.analysis.results.results import Results
from llama_load.ground.languages import Translate
from llama_load.run_folder import Manifest


def title_of(results: Results, t: Translate) -> str:
    """Its label, else its workload, requests and load: "sharegpt: 64 requests, 8 at a time"."""
    manifest = results.run.manifest
    if manifest.label:
        return manifest.label

    count = results.total.completed
    requests = (
        t("1 request") if count == 1 else t("{count} requests").format(count=count)
    )

    return f"{manifest.workload}: {requests}, {_load(manifest, t)}"


def _load(manifest: Manifest, t: Translate) -> str:
    if manifest.stages:
        return t("{count} stages").format(count=len(manifest.stages))
    if manifest.request_rate is not None:
        return t("{rate} per second").format(rate=f"{manifest.request_rate:g}")
    if manifest.conversation_rate is not None:
        return t("{rate} conversations per minute").format(
            rate=f"{manifest.conversation_rate:g}"
        )
    if manifest.arrival is None:
        most, _ = configured_load(manifest)
        return t("{count} at a time").format(count=most)

    return t("replayed from a trace")


def when(date: str) -> str:
    """The date of a manifest as people write it: 20261121-203500 is 2026-11-21 20:35:00."""
    try:
        return time.strftime("%Y-%m-%d %H:%M:%S", time.strptime(date, "%Y%m%d-%H%M%S"))
    except ValueError:
        return date
