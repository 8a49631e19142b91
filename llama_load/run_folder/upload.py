"""Copies a run folder to the place that a URL names (--upload), with fsspec: S3, Google Storage, a
mounted folder.

A process of its own does it (`python -m llama_load.run_folder.upload FOLDER`): clients of object
stores run an event loop in a thread, which does not work where Locust has replaced threads by
greenlets. It reads the URL from its standard input: one with a password must not be in the list of
processes.
"""

from __future__ import annotations

import sys
from pathlib import Path

from llama_load.ground.errors import UsageError
from llama_load.ground.exit_codes import INCOMPLETE
from llama_load.outside.command_secrets import secrets_in_urls
from llama_load.outside.foreign_text import keep_secret, printable, redacted

# The packages of the best-known places; fsspec names the others.
PACKAGES = {
    "s3": "s3fs",
    "s3a": "s3fs",
    "gs": "gcsfs",
    "gcs": "gcsfs",
    "az": "adlfs",
    "abfs": "adlfs",
    "hf": "huggingface_hub",
}
MOST_CHARS = 300


def check_place(url: str) -> None:
    """Raises UsageError if fsspec does not know the place, or a package for it is missing. It
    connects to nothing."""
    import fsspec

    protocol = url.partition("://")[0]
    scheme = printable(protocol, 20)
    try:
        if "://" not in url:
            raise ValueError
        fsspec.get_filesystem_class(protocol)
    except ImportError as error:
        package = PACKAGES.get(scheme)
        how = f"pip install {package}" if package else printable(str(error), MOST_CHARS)
        raise UsageError(
            f"--upload to {scheme}:// needs another package: {how}"
        ) from None
    except ValueError:
        raise UsageError(
            "--upload must be the URL of a folder: s3://BUCKET/PATH, gs://BUCKET/PATH, file:///PATH"
        ) from None


def upload(folder: Path, url: str) -> str:
    """Copy every file of the folder to a folder of its name there; where that is. Raises
    UsageError, and what the place raises."""
    import fsspec

    check_place(url)
    place, path = fsspec.core.url_to_fs(url)
    target = f"{path.rstrip('/')}/{folder.resolve().name}"
    for file in sorted(folder.rglob("*")):
        if file.is_file() and not file.is_symlink():
            there = f"{target}/{file.relative_to(folder).as_posix()}"
            place.makedirs(there.rpartition("/")[0], exist_ok=True)
            place.put_file(str(file), there)
    return str(place.unstrip_protocol(target))


def main(arguments: list[str]) -> int:
    """Upload and print where to, or why not."""
    (folder,) = arguments
    url = sys.stdin.read()
    keep_secret(secrets_in_urls(url))
    try:
        print(redacted(upload(Path(folder), url)))
    except Exception as error:  # any place has exceptions of its own
        print(
            printable(redacted(str(error) or repr(error)), MOST_CHARS), file=sys.stderr
        )
        return INCOMPLETE
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
