"""Files included with llama-load: locustfiles, sample data, plans of sweeps, Bokeh's JavaScript."""

from __future__ import annotations

from pathlib import Path, PurePosixPath

_PACKAGE = Path(__file__).resolve().parent
# Its JavaScript alone, which scripts/hatch_build.py copies: its Python package takes 43 MB with
# what it needs.
BOKEH = _PACKAGE / "bokeh_js"
BOKEH_VERSION = "3.9.2"
NOT_COPIED = (
    "this checkout has no copy of Bokeh's scripts "
    "(run 'make install' in it, or 'python -m scripts.build_in_place')"
)
# In pyproject.toml these are put into the wheel.
FOLDERS = ("locustfiles", "datasets", "plans")


def bundled(name: str) -> Path:
    """The path of a file such as `datasets/sharegpt_sample.json`.

    A wheel has it in `llama_load/ground/_bundled`; an editable install has it next to the package.
    """
    packed = _PACKAGE / "_bundled" / name
    return packed if packed.exists() else _PACKAGE.parent.parent / name


def chart_script(name: str) -> bytes:
    """`bokeh.min.js`, which draws charts, or `bokeh-api.min.js`, which makes figures.

    OSError says how to get it into a checkout that was never installed.
    """
    try:
        return (BOKEH / name).read_bytes()
    except FileNotFoundError as error:
        raise FileNotFoundError(error.errno, NOT_COPIED, error.filename) from None


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
