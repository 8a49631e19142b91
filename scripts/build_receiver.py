"""Compiles the receiver in place, for a checkout: `python -m scripts.build_receiver`."""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent

if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    from hatch_build import compiled

    print(
        compiled(ROOT) or "no compiled receiver: there is no C compiler, or it failed"
    )
