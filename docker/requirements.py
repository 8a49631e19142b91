"""requirements.py EXTRA…: what pyproject.toml lists, a line each, so that the image has it in a layer of its own."""

import sys
import tomllib
from pathlib import Path

project = tomllib.loads(Path("pyproject.toml").read_text(encoding="utf-8"))["project"]
print("\n".join(project["dependencies"] + [line for extra in sys.argv[1:] for line in project["optional-dependencies"][extra]]))
