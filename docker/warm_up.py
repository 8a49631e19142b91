"""Runs a small load test with two processes while the image is built: it fails if one does not work
here, and leaves the bytecode of all that a run imports. Without it every start in a container,
whose user may not write it, takes some seconds longer."""

import subprocess
import tempfile
from pathlib import Path

from llama_load.ground.bundled import bundled
from llama_load.servers.local_ports import free_port
from llama_load.servers.serving.launch import start

with tempfile.TemporaryDirectory() as name:
    folder, port = Path(name), free_port()
    serve = [
        "llama-load",
        "serve",
        "--simulated",
        "--port",
        str(port),
        "--first-token-ms",
        "1",
        "--interval-ms",
        "1",
    ]
    server = start(serve, f"http://127.0.0.1:{port}", folder / "server.log")
    try:
        command = [
            "locust",
            "-f",
            str(bundled("locustfiles/sharegpt_chat.py")),
            "--headless",
            "--processes",
            "2",
        ]
        command += [
            "--host",
            server.url,
            "-u",
            "4",
            "--num-prompts",
            "8",
            "--max-tokens",
            "8",
            "--run-dir",
            str(folder / "run"),
        ]
        subprocess.run(command, check=True, timeout=100)
    finally:
        server.stop()
