"""Compiles the receiver and copies Bokeh's scripts in place, for a checkout:
`python -m scripts.build_in_place`."""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent

if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    from scripts.hatch_build import compiled, copied_charts

    print(*copied_charts(ROOT), sep="\n")
    print(
        compiled(ROOT) or "no compiled receiver: there is no C compiler, or it failed"
    )
