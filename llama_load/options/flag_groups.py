"""The flags in groups, for people who look for one: `llama-load flags` and docs/flags.md."""

from __future__ import annotations

from collections.abc import Mapping

from llama_load.options.flag import Flag
from llama_load.options.flags import FLAGS

# The first flag of each group, in the order of FLAGS.
_BEGINS = {
    "--num-prompts": "Load: how many requests, and when",
    "--dataset-path": "Prompts and data",
    "--model": "Server and requests",
    "--swarm-key": "Keys and access",
    "--run-dir": "Results, objectives, thresholds",
    "--at-end": "End of the run, timeouts, retries",
    "--telemetry-interval": "Telemetry, energy, cost",
}


def grouped() -> Mapping[str, list[Flag]]:
    """The flags of each group, by its title."""
    found: dict[str, list[Flag]] = {}
    title = ""
    for flag in FLAGS:
        title = _BEGINS.get(flag.name, title)
        found.setdefault(title, []).append(flag)
    return found
