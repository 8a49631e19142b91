#!/bin/sh
# slim.sh FOLDER    takes out of an installed environment what llama-load never loads; a third of it.
set -eu
cd "$1"
# Tests and headers of dependencies.
find . -type d \( -name tests -o -path '*/pyarrow/include' -o -path '*/numpy/f2py' \) -prune -exec rm -r {} +
# pyarrow's network protocol Flight and its client for S3: 50 MB.
find . -path '*/pyarrow/*' \( -name '*flight*' -o -name '*s3*' -o -name '*.pxi' -o -name '*.pyx' \) -delete
# Two further copies of libraries, which a source tree has as links: what is loaded is NAME.so.N.
find . -path '*/pyarrow/*' \( -name 'libarrow*.so' -o -name 'libarrow*.so.*.*.*' \) -delete
# Symbols. (The folders *.libs hold libraries whose names were patched, which strip may break.)
find . -name '*.so*' -type f ! -path '*.libs/*' -exec strip --strip-unneeded {} +
