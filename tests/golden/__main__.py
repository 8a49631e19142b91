"""python -m tests.golden: which outputs of which runs have changed, with a diff of their texts, and
golden.json anew. `--check` keeps nothing, and fails where something has changed."""

from __future__ import annotations

import difflib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path

os.environ["LOCUST_SKIP_MONKEY_PATCH"] = "1"

from tests.golden.kept import GOLDEN, read_golden, write_golden
from tests.golden.runs import RUNS
from tests.golden.texts import digest, texts_of

REPOSITORY = Path(__file__).resolve().parents[2]
MOST_LINES = 60  # of the diff of an output
Texts = Mapping[str, Mapping[str, str]]


def main(arguments: Sequence[str]) -> int:
    """See above. `--texts FILE NAME…` writes the texts of these runs as JSON."""
    if arguments[:1] == ["--texts"]:
        texts = {name: texts_of(RUNS[name]()) for name in arguments[2:] if name in RUNS}
        Path(arguments[1]).write_text(json.dumps(texts), encoding="utf-8")
        return 0

    texts = {name: texts_of(make()) for name, make in RUNS.items()}
    digests = {name: _digests(own) for name, own in texts.items()}
    kept = read_golden()
    changed = [name for name in texts if digests[name] != kept.get(name)]
    before = _texts_before([name for name in changed if name in kept])
    for name in changed:
        print(f"{name}: {'changed' if name in kept else 'new'}")
        for line in _differences(before.get(name, {}), texts[name]):
            print(f"  {line}")
    gone = [name for name in kept if name not in texts]
    for name in gone:
        print(f"{name}: gone")
    print(f"{len(texts)} runs, {len(changed) + len(gone)} changed")

    if "--check" in arguments:
        return 1 if changed or gone else 0
    write_golden(digests)
    return 0


def _digests(texts: Mapping[str, str]) -> dict[str, str]:
    return {output: digest(text) for output, text in texts.items()}


def _texts_before(names: Sequence[str]) -> Texts:
    """The texts of these runs by the code of the commit that last wrote golden.json."""
    if not names:
        return {}
    log = ["git", "log", "-1", "--format=%H", "--", str(GOLDEN)]
    commit = subprocess.check_output(log, cwd=REPOSITORY, text=True).strip()
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        archive = place / "code.tar"
        command = ["git", "archive", "-o", str(archive), commit]
        subprocess.run(command, cwd=REPOSITORY, check=True)
        subprocess.run(["tar", "xf", str(archive)], cwd=place, check=True)
        _link_scripts(place)
        texts = place / "texts.json"
        command = [sys.executable, "-m", "tests.golden", "--texts", str(texts), *names]
        subprocess.run(command, cwd=place, check=True)
        before: Texts = json.loads(texts.read_text(encoding="utf-8"))
    return before


def _link_scripts(place: Path) -> None:
    """Bokeh's scripts, which the build copies: git has none of them."""
    for script in REPOSITORY.glob("llama_load/**/bokeh_js/*.js"):
        there = place / script.relative_to(REPOSITORY)
        there.parent.mkdir(parents=True, exist_ok=True)
        there.symlink_to(script)


def _differences(before: Mapping[str, str], now: Mapping[str, str]) -> Iterator[str]:
    for output, text in now.items():
        lines = difflib.unified_diff(
            before.get(output, "").splitlines(),
            text.splitlines(),
            f"{output}, before",
            f"{output}, now",
            lineterm="",
            n=0,
        )
        if output in before:
            yield from islice(lines, MOST_LINES)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
