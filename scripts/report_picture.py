"""Draw docs/pictures/report.png: the top of report.html of a run, as README shows it.

    llama-load demo
    .venv/bin/python -m scripts.report_picture runs/…

Needs the extra 'heavy' and scripts/debian.sh.
"""

from __future__ import annotations

import sys
from pathlib import Path

from tests.heavy.browser import chromium, opened

PICTURE = Path(__file__).resolve().parent.parent / "docs" / "pictures" / "report.png"
WIDTH, HEIGHT = 1280, 895


def main() -> None:
    """Take the picture of the run folder in argv."""
    address = (Path(sys.argv[1]) / "report.html").resolve().as_uri()
    with chromium() as browser, opened(browser, address, width=WIDTH) as (page, _):
        page.wait_for_timeout(2000)
        page.screenshot(
            path=PICTURE, clip={"x": 0, "y": 0, "width": WIDTH, "height": HEIGHT}
        )


if __name__ == "__main__":
    main()
