"""llama-server's command line for the servers of the tests, which have no llama-server of their own.

    like_llama_server.py -m MODEL --host HOST --port PORT …           the embedded llama-server
    like_llama_server.py … --rpc HOST:PORT,HOST:PORT                   llama-cpp-python's server on these workers, with /health
    like_llama_server.py -H HOST -p PORT                               an RPC worker, as ggml-rpc-server is

For the last two HEAVY_LLAMA_CPP_PYTHON is the virtual environment that has llama-cpp-python with RPC.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from llama_load.serving.commands import RPC_SCRIPT
from llama_load.serving.process import EmbeddedServer

# llama-cpp-python has no /health, which llama-server is asked for.
HEAD = """
import runpy, sys
import llama_cpp.server.app as app
create = app.create_app
def with_health(*arguments, **settings):
    made = create(*arguments, **settings)
    made.get("/health")(lambda: {})
    return made
app.create_app = with_health
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""
LIKE_LLAMA_CPP_PYTHON = {"-c": "--n_ctx", "-b": "--n_batch", "-t": "--n_threads"}


def main(words: list[str]) -> None:
    value = dict(zip(words, words[1:], strict=False))
    if "-H" in words:
        run([python(), str(RPC_SCRIPT), "worker", f"{value['-H']}:{value['-p']}"])
    if "--rpc" in words:
        command = [
            python(),
            "-c",
            HEAD,
            str(RPC_SCRIPT),
            "head",
            value["--rpc"],
            "--host",
            value["--host"],
            "--port",
            value["--port"],
        ]
        command += ["--model", value["-m"], "--n_gpu_layers", "-1", "--interrupt_requests", "false"]
        run(command + [word for flag, other in LIKE_LLAMA_CPP_PYTHON.items() if flag in value for word in (other, value[flag])])
    ours = ("-m", "--host", "--port", "--metrics")
    flags = [word for place, word in enumerate(words) if word not in ours and (not place or words[place - 1] not in ours[:3])]
    run(EmbeddedServer(Path(value["-m"]), value["--host"], flags=tuple(flags)).command(int(value["--port"])))


def python() -> str:
    return str(Path(os.environ["HEAVY_LLAMA_CPP_PYTHON"]) / "bin" / "python")


def run(command: list[str]) -> None:
    os.execv(command[0], command)


if __name__ == "__main__":
    main(sys.argv[1:])
