"""llama-cpp-python's RPC parts, which it ships but does not wire up. Run by the Python that it is
installed in.

    llama_cpp_python_rpc.py worker HOST:PORT                      a worker, as ggml-rpc-server is
    llama_cpp_python_rpc.py head HOST:PORT,HOST:PORT ARGUMENTS…   llama_cpp.server, which computes
                                                                  on these workers

llama_cpp.server 0.3.36 takes --rpc_servers and does nothing with it, so `head` registers the
workers itself.
"""

from __future__ import annotations

import ctypes
import importlib.util
import signal
import sys
from pathlib import Path

CPU = 0  # GGML_BACKEND_DEVICE_TYPE_CPU
LIBRARIES = ("libggml-base.so.0", "libggml.so.0", "libggml-rpc.so.0")


def libraries() -> dict[str, ctypes.CDLL]:
    """ggml's libraries under the names by which they know each other; others would register every
    device twice."""
    spec = importlib.util.find_spec("llama_cpp")
    if spec is None or not spec.submodule_search_locations:
        sys.exit(
            f"{sys.executable} has no llama_cpp: --program takes the Python that has "
            "llama-cpp-python"
        )
    folder = Path(spec.submodule_search_locations[0]) / "lib"
    return {
        name: ctypes.CDLL(str(folder / name), mode=ctypes.RTLD_GLOBAL)
        for name in LIBRARIES
    }


def worker(endpoint: str) -> None:
    """Compute for a head, on the CPU, until killed."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    loaded = libraries()
    device_of = loaded["libggml.so.0"].ggml_backend_dev_by_type
    device_of.argtypes = [ctypes.c_int]
    device_of.restype = ctypes.c_void_p
    devices = (ctypes.c_void_p * 1)(device_of(CPU))
    serve = loaded["libggml-rpc.so.0"].ggml_backend_rpc_start_server
    size = ctypes.c_size_t
    pointer = ctypes.POINTER(ctypes.c_void_p)
    serve.argtypes = [ctypes.c_char_p, ctypes.c_char_p, size, size, pointer]
    serve.restype = None
    serve(endpoint.encode(), None, 1, 1, devices)


def head(endpoints: str, arguments: list[str]) -> None:
    """llama_cpp.server with these arguments, computing on the workers at `endpoints`."""
    import llama_cpp  # noqa: F401 - loads its own libraries first

    loaded = libraries()
    add = loaded["libggml-rpc.so.0"].ggml_backend_rpc_add_server
    add.argtypes = [ctypes.c_char_p]
    add.restype = ctypes.c_void_p
    register = loaded["libggml.so.0"].ggml_backend_register
    register.argtypes = [ctypes.c_void_p]
    register.restype = None

    for endpoint in endpoints.split(","):
        registry = add(endpoint.encode())
        if not registry:
            sys.exit(f"no RPC worker at {endpoint}")
        register(registry)
    from llama_cpp.server.__main__ import main

    sys.argv = ["llama_cpp.server", *arguments]
    main()


if __name__ == "__main__":
    if sys.argv[1] == "worker":
        worker(sys.argv[2])
    else:
        head(sys.argv[2], sys.argv[3:])
