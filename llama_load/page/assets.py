"""Our page's scripts and styles, and Bokeh's: compressed once, cached by browsers."""

from __future__ import annotations

import gzip
import hashlib
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from llama_load.ground.bundled import chart_script

HERE = Path(__file__).parent / "assets"
TYPES = {
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
}
# Bokeh's library and the part that makes figures from JavaScript.
CHART_SCRIPTS = ("bokeh.min.js", "bokeh-api.min.js")
OURS = (
    "llm.css",
    "llm.js",
    "charts.js",
    "form.js",
    "frame.js",
    "runs.js",
    "searches.js",
    "icon.svg",
)


@dataclass(frozen=True, slots=True)
class Asset:
    """A file as it is sent. `version` changes with its contents."""

    content: bytes
    compressed: bytes
    content_type: str
    version: str


@cache
def asset(name: str) -> Asset | None:
    """An asset by its name; None if there is no such one."""
    if name in OURS:
        content = (HERE / name).read_bytes()
    elif name in CHART_SCRIPTS:
        content = chart_script(name)
    else:
        return None

    version = hashlib.sha256(content).hexdigest()[:12]
    content_type = TYPES[Path(name).suffix]

    return Asset(content, gzip.compress(content, 6), content_type, version)
