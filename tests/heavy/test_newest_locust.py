"""Whether the newest Locust still has the internals that we replace: says when the upper bound in
pyproject.toml can move."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.heavy

CHECK = """
import inspect
from locust import argument_parser, env, runners, web
from locust.rpc import Message, zmqrpc
assert "rpc.Server(" in inspect.getsource(runners.MasterRunner) and "rpc.Client(" in inspect.getsource(runners.WorkerRunner)
assert "parsed_options" in inspect.getsource(runners.MasterRunner.start)
assert {"send_to_client", "recv_from_client"} <= set(dir(zmqrpc.Server)) and {"send", "recv"} <= set(dir(zmqrpc.Client))
assert callable(argument_parser.default_args_dict) and callable(argument_parser.parse_options)
assert "args_included_in_web_ui" in dir(argument_parser.LocustArgumentParser)
assert "_run_time_greenlet" in inspect.getsource(web.WebUI) and "def swarm()" in inspect.getsource(web.WebUI)
assert {"_cancel_run_time_timer", "auth_required_if_enabled"} <= set(dir(web.WebUI)) and "_swarm_greenlet" in inspect.getsource(web.WebUI)
assert "secret_args_included_in_web_ui" in dir(argument_parser.LocustArgumentParser)
assert Message.unserialize(Message("a", None, "b").serialize()).type == "a"
assert runners.HEARTBEAT_LIVENESS and runners.HEARTBEAT_INTERVAL
"""


def test_the_newest_locust_has_what_we_replace(tmp_path: Path) -> None:
    """Catches a name inside Locust that a newer version no longer has."""
    install = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--no-deps",
        "--target",
        str(tmp_path),
        "--upgrade",
        "locust",
    ]
    done = subprocess.run(
        install, capture_output=True, text=True, timeout=110, check=False
    )
    if done.returncode:
        pytest.skip(f"no index gives the newest Locust: {done.stderr[-200:]}")
    code = f"import sys; sys.path.insert(0, {str(tmp_path)!r})" + CHECK
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
