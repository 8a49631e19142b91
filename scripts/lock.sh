#!/bin/sh
# lock.sh BIN    writes docker/requirements*.txt: every package of the image with its version and hashes, from the index of PyPI.
set -eu
cd "$(dirname "$0")/.."
lock() {
    "$1/uv" pip compile --no-config --generate-hashes --universal --python-version 3.11 --no-header --no-annotate --quiet \
        --upgrade --output-file "docker/requirements$2.txt" pyproject.toml --extra hf --extra images ${3:+--extra "$3"}
}
lock "$1" "" ""
lock "$1" -demo demo
"$1/python" -c 'import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["build-system"]["requires"], sep="\n")' | "$1/uv" pip compile --no-config --generate-hashes --universal --python-version 3.11 --no-header \
    --no-annotate --quiet --upgrade --output-file docker/requirements-build.txt -
