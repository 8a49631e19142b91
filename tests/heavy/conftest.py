"""Real servers that take minutes to install: `make test-heavy` does that and says where they
are."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from llama_load.ground.bundled import bundled
from llama_load.servers.kinds.llama_cpp_python_kind import RPC_SCRIPT
from llama_load.servers.local_ports import free_port
from llama_load.servers.serving.launch import Server, start
from llama_load.servers.serving.model_maker import cache_folder

HERE = Path(__file__).parent


def folder_of(name: str) -> Path:
    folder = os.environ.get(name)
    if not folder:
        pytest.skip(f"{name} is not set: run 'make test-heavy'")
    return Path(folder)


def python_of(name: str) -> Path:
    return folder_of(name) / "bin" / "python"


@pytest.fixture(scope="session")
def vllm_python() -> Path:
    return python_of("HEAVY_VLLM")


@pytest.fixture(scope="session")
def aider() -> Path:
    """The program, a client of `llama-load record`."""
    return folder_of("HEAVY_AIDER") / "bin" / "aider"


@pytest.fixture(scope="session")
def llama_cpp() -> Path:
    """The folder of llama-server, llama-bench, llama-quantize, ggml-rpc-server and the other
    programs of llama.cpp."""
    return folder_of("HEAVY_LLAMA_CPP") / "build" / "bin"


@pytest.fixture(scope="session")
def hf_model(vllm_python: Path) -> Path:
    """A model of 0.4 million parameters for vLLM, kept with the other made models."""
    folder = cache_folder() / f"hf-{(HERE / 'make_hf_model.py').stat().st_size}"
    if not (folder / "config.json").exists():
        corpus = bundled("datasets/sharegpt_sample.json")
        subprocess.run(
            [
                str(vllm_python),
                str(HERE / "make_hf_model.py"),
                str(folder),
                str(corpus),
            ],
            check=True,
        )
    return folder


@pytest.fixture(scope="session")
def vllm_env() -> dict[str, str]:
    """For vLLM on one core."""
    return {
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "OMP_NUM_THREADS": "1",
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "HF_HUB_OFFLINE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "DO_NOT_TRACK": "1",
    }


@pytest.fixture(scope="session")
def start_vllm(
    vllm_python: Path,
    hf_model: Path,
    vllm_env: dict[str, str],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Callable[..., Server]]:
    """Start vLLM on one core: start_vllm("--stream-interval", "5", VLLM_SERVER_DEV_MODE="1")."""
    with ExitStack() as stack:

        def begin(*arguments: str, **env: str) -> Server:
            port = free_port()
            command = [
                str(vllm_python.parent / "vllm"),
                "serve",
                str(hf_model),
                "--host",
                "127.0.0.1",
                "--port",
                str(port),
            ]
            command += [
                "--served-model-name",
                "tiny",
                "--dtype",
                "float32",
                "--enforce-eager",
            ]
            command += ["--max-model-len", "4096", "--max-num-seqs", "16", *arguments]
            log = tmp_path_factory.mktemp("vllm") / "server.log"
            server = start(command, f"http://127.0.0.1:{port}", log, env=vllm_env | env)
            stack.callback(server.stop)
            return server

        yield begin


@pytest.fixture(scope="session")
def vllm(start_vllm: Callable[..., Server]) -> Server:
    return start_vllm()


@pytest.fixture(scope="module")
def embedding_vllm(start_vllm: Callable[..., Server]) -> Iterator[Server]:
    """It ranks, too: by how alike the embeddings of query and document are."""
    server = start_vllm("--runner", "pooling", "--convert", "embed")
    yield server
    server.stop()


@pytest.fixture(scope="session")
def llama_cpp_python() -> Path:
    return python_of("HEAVY_LLAMA_CPP_PYTHON")


@pytest.fixture
def start_llama_cpp_python(
    llama_cpp_python: Path, tiny_model: Path, tmp_path: Path
) -> Iterator[Callable[..., Server]]:
    """Start llama-cpp-python's server: start_llama_cpp_python("--interrupt_requests", "false",
    rpc="HOST:PORT")."""
    with ExitStack() as stack:

        def begin(*arguments: str, rpc: str = "", model: Path = tiny_model) -> Server:
            port = free_port()
            script = (
                [str(RPC_SCRIPT), "head", rpc] if rpc else ["-m", "llama_cpp.server"]
            )
            command = [
                str(llama_cpp_python),
                *script,
                "--host",
                "127.0.0.1",
                "--port",
                str(port),
            ]
            command += [
                "--model",
                str(model),
                "--model_alias",
                "tiny",
                "--n_threads",
                "1",
                *arguments,
            ]
            if rpc:  # layers go to devices other than the CPU, which the workers are, only if asked
                command += ["--n_gpu_layers", "-1"]
            server = start(
                command,
                f"http://127.0.0.1:{port}",
                tmp_path / f"server-{port}.log",
                ready="/v1/models",
            )
            stack.callback(server.stop)
            return server

        yield begin


@pytest.fixture
def workers(
    llama_cpp_python: Path, tmp_path: Path
) -> Iterator[tuple[str, list[subprocess.Popen[bytes]]]]:
    """Two RPC workers: (addresses, processes)."""
    addresses = [f"127.0.0.1:{free_port()}" for _ in range(2)]
    processes = []
    for number, address in enumerate(addresses):
        with (tmp_path / f"worker-{number}.log").open("wb") as log:
            command = [str(llama_cpp_python), str(RPC_SCRIPT), "worker", address]
            processes.append(subprocess.Popen(command, stdout=log, stderr=log))
    # A connection that asks whether it listens would be taken for the head's.
    time.sleep(1)  # they begin to listen
    yield ",".join(addresses), processes
    for process in processes:
        process.kill()
        process.wait()
