"""The title of a run's reports."""

from __future__ import annotations

from llama_load.analysis.results import Results
from llama_load.reports.translations import Translate
from llama_load.runs import Manifest


def title_of(results: Results, t: Translate) -> str:
    """Its label, else its workload, requests and load: "sharegpt: 64 requests, 8 at a time"."""
    manifest = results.run.manifest
    requests = t("{count} requests").format(count=results.total.completed)
    return manifest.label or f"{manifest.workload}: {requests}, {_load(manifest, t)}"


def _load(manifest: Manifest, t: Translate) -> str:
    if manifest.stages:
        return t("{count} stages").format(count=len(manifest.stages))
    if manifest.request_rate is not None:
        return t("{rate} per second").format(rate=f"{manifest.request_rate:g}")
    return t("{count} at a time").format(count=manifest.users) if manifest.arrival is None else t("replayed from a trace")
