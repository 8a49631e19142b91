"""Writes truth as one file, which needs nothing but Python:
`python -m scripts.truth_file truth.pyz`."""

from __future__ import annotations

import shutil
import sys
import tempfile
import tomllib
import zipapp
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent.parent / "truth"
MAIN = "import sys\n\nfrom truth.cli import main\n\nsys.exit(main())\n"


def write(target: Path) -> None:
    """What the wheel has, with a program that starts it."""
    settings = tomllib.loads((PACKAGE / "pyproject.toml").read_text(encoding="utf-8"))
    wheel = settings["tool"]["hatch"]["build"]["targets"]["wheel"]
    with tempfile.TemporaryDirectory() as scratch:
        root = Path(scratch)
        for pattern in wheel["include"]:
            for path in PACKAGE.glob(pattern.removeprefix("/")):
                copy = root / "truth" / path.relative_to(PACKAGE)
                if path.is_dir():
                    ignored = shutil.ignore_patterns("__pycache__")
                    shutil.copytree(path, copy, ignore=ignored)
                else:
                    copy.parent.mkdir(exist_ok=True)
                    shutil.copyfile(path, copy)
        (root / "__main__.py").write_text(MAIN, encoding="utf-8")
        zipapp.create_archive(
            root, target, interpreter="/usr/bin/env python3", compressed=True
        )


if __name__ == "__main__":
    write(Path(sys.argv[1]))
