"""Every command is started with keys planted in every place, against a server that quotes them in
every form; then all that was written, printed or named is searched for them."""

from __future__ import annotations

import base64
import html
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.conftest import SHAREGPT, environment
from tests.json_server import JsonServer, json_server

pytestmark = [pytest.mark.heavy, pytest.mark.timeout(900)]

# Each place has a key of its own, so that a find says where it came from. Signs that URLs, JSON,
# HTML and base64 change.
PLACES = (
    "env",
    "header",
    "body",
    "scrape",
    "swarm",
    "web",
    "otel",
    "hf",
    "aws",
    "upload",
    "arg",
    "second",
    "short",
    "planenv",
    "planarg",
)
KEYS = {place: f'key-{place}/0123+abc&DEF"{place}' for place in PLACES}
# where a header or URL must take them
PLAIN = {place: key.replace('"', "-").replace("&", "-") for place, key in KEYS.items()}


def forms(key: str) -> Iterator[bytes]:
    """Not by our own search."""
    data = key.encode()
    yield from (
        data,
        data.hex().encode(),
        quote(key, safe="").encode(),
        quote(key).encode(),
        html.escape(key).encode(),
    )
    yield from (
        json.dumps(key)[1:-1].encode(),
        json.dumps(json.dumps(key))[3:-3].encode(),
        key.replace("/", "\\/").encode(),
    )
    yield re.sub("%..", lambda match: match[0].lower(), quote(key, safe="")).encode()
    yield "".join(f"\\u{ord(sign):04x}" for sign in key).encode()
    yield "".join(f"&#{ord(sign)};" for sign in key).encode()
    for before in range(3):
        whole = base64.b64encode(b"\0" * before + data)
        sure = whole[-(-before * 8 // 6) : (before + len(data)) * 8 // 6]
        yield from (sure, sure.replace(b"+", b"-").replace(b"/", b"_"))


PLANTED = PLAIN | {"body": KEYS["body"]}
OF_THE_ENVIRONMENT = (
    "env",
    "header",
    "body",
    "scrape",
    "swarm",
    "web",
    "otel",
    "hf",
    "aws",
)
NEEDLES = {form: place for place, key in PLANTED.items() for form in forms(key)}


def found(data: bytes) -> set[str]:
    return {place for form, place in NEEDLES.items() if form in data}


def quoting() -> str:
    """Every key of the environment in every form, in one text: a server could have been given
    them."""
    return " ".join(
        form.decode() for form, place in NEEDLES.items() if place in OF_THE_ENVIRONMENT
    )


def answers() -> dict[str, Any]:
    said = quoting()
    piece = json.dumps(
        {
            "id": "1",
            "model": said,
            "choices": [
                {"index": 0, "delta": {"content": said}, "finish_reason": None}
            ],
        }
    )
    end = json.dumps(
        {
            "model": "m",
            "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}],
            "usage": {"prompt_tokens": 5, "completion_tokens": 1},
        }
    )
    stream = f"data: {piece}\n\ndata: {end}\n\ndata: [DONE]\n\n".encode()
    count = iter(range(10**6))

    def chat(_: object) -> Any:
        if next(count) % 2:
            return (500, {"error": {"message": said}}, {"Server": PLAIN["env"]})
        return (200, stream, {"Content-Type": "text/event-stream"})

    page = f'# TYPE llamacpp:prompt_tokens_total counter\nllamacpp:prompt_tokens_total 1\nx{{key="{PLAIN["env"]}"}} 1\n'
    models = (
        200,
        {"data": [{"id": "m", "owned_by": PLAIN["env"], "aliases": [PLAIN["header"]]}]},
        {"Content-Type": "application/json"},
    )
    return {
        "/health": {"status": said},
        "/v1/models": models,
        "/props": {"build_info": PLAIN["env"], "total_slots": 4, "chat_template": said},
        "/metrics": (200, page.encode(), {"Content-Type": "text/plain"}),
        "/v1/chat/completions": chat,
        "/v1/traces": (400, {"message": said}, {}),
        "/v1/metrics": (400, {"message": said}, {}),
    }


LOCUSTFILE = """
import os
from locust import task
from llama_load import LlamaUser, ShareGPT

class U(LlamaUser):
    workload = ShareGPT()

    @task
    def ask(self):
        self.chat()
        raise RuntimeError("the locustfile quotes " + os.environ["QUOTED"])
"""
PLAN = f"""
servers:
  a:
    llama-server:
      program: /bin/false
      model: m.gguf
      args: [--api-key, {json.dumps(PLAIN["planarg"])}, -hft, {PLAIN["short"]}]
      env: {{HF_TOKEN: {json.dumps(PLAIN["planenv"])}}}
      set-up: ["echo {PLAIN["planenv"]}"]
load: [{{u: 1, num-prompts: 1}}]
"""


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    home = tmp_path_factory.mktemp("home")
    places = {
        name: str(home / name.lower())
        for name in (
            "XDG_CACHE_HOME",
            "XDG_STATE_HOME",
            "XDG_DATA_HOME",
            "XDG_RUNTIME_DIR",
        )
    }
    for folder in places.values():
        Path(folder).mkdir(mode=0o700)
    keys = {
        "LLAMA_LOAD_API_KEY": PLAIN["env"],
        "LLAMA_LOAD_HEADER": f"X-Team: {PLAIN['header']}",
        "LLAMA_LOAD_EXTRA_BODY": json.dumps({"auth": {"values": [KEYS["body"]]}}),
        "LLAMA_LOAD_SCRAPE_TOKEN": PLAIN["scrape"],
        "LLAMA_LOAD_SWARM_KEY": PLAIN["swarm"],
        "LLAMA_LOAD_WEB_TOKEN": PLAIN["web"],
        "OTEL_EXPORTER_OTLP_HEADERS": f"X-Key={quote(PLAIN['otel'], safe='')}",
        "HF_TOKEN": PLAIN["hf"],
        "AWS_SECRET_ACCESS_KEY": PLAIN["aws"],
        "QUOTED": quoting(),
    }
    return (
        environment()
        | {
            "HOME": str(home),
            "TMPDIR": str(home),
            "LLAMA_LOAD_NO_REPORT_HTML": "false",
            "LLAMA_LOAD_TELEMETRY_INTERVAL": "0.5",
        }
        | places
        | keys
    )


ENDS_WITHIN_S = 150
LONG_S = 15


def start(words: list[str], folder: Path, env: dict[str, str]) -> bytes:
    folder.mkdir(parents=True, exist_ok=True)
    within_s = LONG_S if words[1:] in LONG.values() else ENDS_WITHIN_S
    # Ctrl-C for those that do not end by themselves
    words = [
        "timeout",
        "--foreground",
        "--signal=INT",
        str(within_s),
        sys.executable,
        "-m",
        *words,
    ]
    done = subprocess.run(
        words,
        cwd=folder,
        env=env,
        capture_output=True,
        timeout=ENDS_WITHIN_S + 30,
        stdin=subprocess.DEVNULL,
        check=False,
    )
    assert done.returncode != 124 or within_s == LONG_S, words
    assert b"Traceback" not in done.stderr or b"the locustfile quotes" in done.stderr, (
        done.stderr.decode()[-2000:]
    )
    return done.stdout + done.stderr


def left_in(folder: Path, but: tuple[str, ...] = ()) -> dict[str, set[str]]:
    """The keys in names and contents of files; tables are unpacked."""
    finds: dict[str, set[str]] = {}
    for file in folder.rglob("*"):
        if file.name in but:
            continue
        # the person's own place
        named = [
            part
            for part in file.relative_to(folder).parts
            if not part.startswith("up?token=")
        ]
        data = str(Path(*named)).encode()
        if file.is_file() and file.suffix == ".parquet":
            data += str(pq.read_table(file).to_pylist()).encode()
        elif file.is_file() and file.suffix == ".arrows":
            with pa.OSFile(str(file)) as source:
                data += source.read()
        elif file.is_file():
            data += file.read_bytes()
        if places := found(data):
            finds[str(file)] = places
    return finds


@pytest.fixture(scope="module")
def server() -> Iterator[JsonServer]:
    with json_server(answers()) as running:
        yield running


@pytest.fixture(scope="module")
def run(
    server: JsonServer,
    planted: dict[str, str],
    tmp_path_factory: pytest.TempPathFactory,
) -> tuple[Path, bytes]:
    """A run that writes all that a run can write."""
    folder = tmp_path_factory.mktemp("run")
    (folder / "quoting.py").write_text(LOCUSTFILE)
    words = [
        "locust",
        "-f",
        "quoting.py",
        "--headless",
        "--host",
        server.url,
        "-u",
        "1",
        "--num-prompts",
        "6",
        "--warmup",
        "0",
        "--save-texts",
    ]
    words += [
        "--html",
        "out.html",
        "--csv",
        "out",
        "--csv-full-history",
        "--json-file",
        "out",
        "--logfile",
        "log.txt",
        "--junit",
        "out.xml",
    ]
    words += [
        "--label",
        PLAIN["env"],
        "--api-key",
        PLAIN["arg"],
        "--upload",
        f"file://{folder}/up?token={PLAIN['upload']}",
    ]
    words += ["--scrape", f"{server.url}/metrics", "--fail-if", "failure_ratio>0.9"]
    return folder, start(words, folder, planted)


def test_a_run_leaves_no_key_anywhere(
    run: tuple[Path, bytes], planted: dict[str, str]
) -> None:
    """Catches a key in a file, a process list or a page of a whole run, in an encoding that no test
    of one writer tries."""
    folder, said = run
    assert (folder / "out.html").exists(), said.decode()
    assert (folder / "out_exceptions.csv").exists() and (folder / "log.txt").exists()
    summaries = list(folder.glob("runs/*/summary.json"))
    assert len(summaries) == 1, said.decode()
    assert found(said) == set()
    assert left_in(folder) == {}
    assert left_in(Path(planted["HOME"])) == {}


def commands_of(of_run: str, plan: str, url: str) -> dict[str, list[str]]:
    """What is started by `llama-load`, by a name: every subcommand at least once
    (`tests/test_canary.py`). `of_run`: a run folder; `url`: the server that quotes."""
    serve = f"llama-server --api-key {PLAIN['arg']} {PLAIN['second']} -hft {PLAIN['short']} -m m.gguf"
    sample = str(SHAREGPT.parent.parent / "datasets" / "sharegpt_sample.json")
    load = ["--host", url, "--header", f"X-Team: {PLAIN['arg']}"]
    program = [
        "--program",
        "/bin/false",
        "--model",
        "m.gguf",
        "--api-key",
        PLAIN["arg"],
    ]
    beside = [f"{PLAIN['env']}={of_run}", of_run]
    return {
        "formats": ["report", of_run, "--format", "json"],
        "csv": ["report", of_run, "--format", "csv"],
        "jsonl": ["report", of_run, "--format", "jsonl"],
        "html": ["report", of_run, "--format", "html", "--output", "out.html"],
        "traces": ["report", of_run, "--format", "otlp-traces", "--output", "out.json"],
        "push": ["report", of_run, "--push", url],
        "runs": ["runs", str(Path(of_run).parent)],
        "verify": ["verify", of_run],
        "prompts": ["prompts", of_run],
        "compare": ["compare", *beside, "--format", "html", "--output", "c.html"],
        "share": ["share", of_run, "--yes"],
        "search": [
            "search",
            "--serve",
            serve,
            "--goodput",
            "ttft:100",
            "--max-time",
            "5",
        ],
        "capacity": ["capacity", url, "--max-time", "5"],
        "sweep": ["sweep", plan],
        "dry": ["sweep", plan, "--dry-run"],
        "tune": ["tune", plan, "--goodput", "ttft:100"],
        "sweep-serve": [
            "sweep",
            "--serve",
            serve,
            "--",
            "-u",
            "1",
            "--num-prompts",
            "1",
        ],
        "serve": ["serve", "llama-server", *program, "--", "-hft", PLAIN["short"]],
        "perplexity": ["perplexity", "--host", url],
        "bench": ["bench", url, "--max-time", "60", "--out", PLAIN["env"]],
        "inspect": ["datasets", "inspect", sample, "--host", url],
        "anonymize": ["datasets", "anonymize", sample, "--host", url],
        "data-sets": ["datasets", "list"],
        "fetch": ["datasets", "fetch", PLAIN["env"]],
        "make": ["datasets", "make", "--conversations", "2", "made.jsonl"],
        "path": ["path", "sharegpt_chat"],
        "init": ["init", "."],
        "completion": ["completion", "bash"],
        "flags": ["flags", "--all"],
        "more": ["more"],
        "demo": ["demo", "-u", "1", "--num-prompts", "1", *load[2:]],
        "run": ["run", *load[1:], "-u", "1", "-n", "2", "--warmup", "0"],
        "wrong": [
            "search",
            "--serve",
            "x",
            "--goodput",
            "ttft:1",
            f"--token={PLAIN['arg']}",
        ],
        "wrong-key": ["report", f"/no/such/{PLAIN['env']}"],
    }


# Those that end only when they are told to, or measure the machine for minutes.
LONG = {
    "telemetry": ["telemetry", "--listen", "127.0.0.1:0"],
    "calibrate": ["calibrate", "--for", "10x5"],
    "record": ["record", "--to", "http://127.0.0.1:9", "--port", "0"],
}


def test_no_command_leaves_a_key(
    run: tuple[Path, bytes], server: JsonServer, planted: dict[str, str], tmp_path: Path
) -> None:
    """Catches the same in the files of every other command."""
    of_run = str(next(run[0].glob("runs/*")))
    plan = tmp_path / "plan.yaml"
    plan.write_text(PLAN)
    finds = {}
    for name, words in (commands_of(of_run, str(plan), server.url) | LONG).items():
        folder = tmp_path / name
        said = start(["llama_load.cli.main", *words], folder, planted)
        left = left_in(folder)
        if found(said) or left:
            finds[name] = (found(said), left, said.decode("utf-8", "replace")[-1500:])
    assert finds == {}
    assert left_in(Path(planted["HOME"])) == {}
    assert os.path.exists(plan)
