# llama.cpp with its RPC backend, which the public images do not have. For GPUs: another BASE and --build-arg CMAKE_ARGS=-DGGML_CUDA=ON
ARG BASE=debian:12.12-slim@sha256:d5d3f9c23164ea16f31852f95bd5959aad1c5e854332fe00f7b3a20fcc9f635c

FROM ${BASE} AS build
# hadolint ignore=DL3008
RUN apt-get update && \
    apt-get install --yes --no-install-recommends build-essential ca-certificates cmake git libssl-dev && \
    rm -rf /var/lib/apt/lists/*
ARG LLAMA_CPP_REF=b11434 CMAKE_ARGS=""
RUN git clone --depth 1 --branch ${LLAMA_CPP_REF} https://github.com/ggml-org/llama.cpp /src
WORKDIR /src
# hadolint ignore=SC2086
RUN cmake -B build -DCMAKE_BUILD_TYPE=Release -DBUILD_SHARED_LIBS=OFF -DGGML_NATIVE=OFF -DGGML_RPC=ON ${CMAKE_ARGS} && \
    cmake --build build --parallel --target llama-server ggml-rpc-server

FROM ${BASE}
# hadolint ignore=DL3008
RUN apt-get update && \
    apt-get install --yes --no-install-recommends curl libgomp1 libssl3 && \
    rm -rf /var/lib/apt/lists/*
COPY --from=build /src/build/bin/llama-server /src/build/bin/ggml-rpc-server /usr/local/bin/
USER 1000:1000
