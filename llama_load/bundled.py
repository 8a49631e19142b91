"""Files included with llama-load: locustfiles, sample data, plans of sweeps, Bokeh's JavaScript."""

from __future__ import annotations

from pathlib import Path, PurePosixPath

_PACKAGE = Path(__file__).resolve().parent
# Its JavaScript alone, which the build copies (hatch_build.py): its Python package takes 43 MB with
# what it needs.
BOKEH = _PACKAGE / "bokeh_js"
BOKEH_VERSION = "3.9.2"
# In pyproject.toml these are put into the wheel.
FOLDERS = ("locustfiles", "datasets", "plans")


def bundled(name: str) -> Path:
    """The path of a file such as `datasets/sharegpt_sample.json`.

    A wheel has it in `llama_load/_bundled`; an editable install has it next to the package.
    """
    packed = _PACKAGE / "_bundled" / name
    return packed if packed.exists() else _PACKAGE.parent / name


def bundled_files() -> list[str]:
    """All of them, such as `locustfiles/sharegpt_chat.py`."""
    folders = [(name, bundled(name)) for name in FOLDERS]
    return [
        f"{name}/{path.name}"
        for name, folder in folders
        for path in sorted(folder.iterdir())
        if path.is_file()
    ]


def find_bundled(name: str) -> list[str]:
    """The bundled files that `name` fits: `sharegpt_chat`, `sharegpt_chat.py` or
    `locustfiles/sharegpt_chat.py`."""
    paths = [PurePosixPath(path) for path in bundled_files()]
    return [str(path) for path in paths if name in (str(path), path.name, path.stem)]
