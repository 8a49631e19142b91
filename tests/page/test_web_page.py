"""The page /llm: faults at their fields before anything starts, live figures, any order of clicks;
it answers only itself."""

from __future__ import annotations

import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec
import pytest
import requests

from llama_load.loadgen.options.flag import BASICS
from llama_load.loadgen.options.form import fields as form_fields
from llama_load.page.experiments import found, found_result
from llama_load.page.run_list_page import BARS
from tests import web_client
from tests.conftest import Simulated, simulated_server
from tests.page.web_pages import LlmPage, llm_page
from tests.swarms import wait_until

CANARY = "sk-canary-0123456789abcdef"
SHORT = {"num_users": "3", "num_prompts": "9", "max_tokens": "5", "warmup": "1"}
LONG = {"num_users": "3", "num_prompts": "", "max_tokens": "40", "warmup": "0"}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Simulated]:
    with simulated_server(
        tmp_path_factory.mktemp("server"), "--interval-ms", "5"
    ) as found:
        yield found


@pytest.fixture(scope="module")
def page(
    server: Simulated, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[LlmPage]:
    flags = ("--host", server.url)
    with llm_page(
        tmp_path_factory.mktemp("page"), *flags, LLAMA_LOAD_API_KEY=CANARY
    ) as found:
        yield found
        assert "Traceback" not in found.log


def faults(answer: dict[str, Any]) -> dict[str, str]:
    """The first field of each fault, and its text."""
    return {(fault["fields"] or [""])[0]: fault["text"] for fault in answer["faults"]}


def test_each_mistake_is_shown_at_its_field_and_nothing_starts(page: LlmPage) -> None:
    before = page.runs
    answer = page.post(
        "/api/start",
        num_users="x",
        num_prompts="-3",
        run_time="soon",
        fail_if=["p99_ttft_ms>500", "nonsense"],
        goodput=["ttft:fast"],
        extra_body="[1]",
    )
    found = faults(answer)
    assert set(found) == {
        "num_users",
        "num_prompts",
        "run_time",
        "fail_if",
        "goodput",
        "extra_body",
    }
    assert (
        "-u must be a whole number" in found["num_users"]
        and "'nonsense'" in found["fail_if"]
    )
    assert (
        answer["run"] is None and page.live()["state"] == "idle" and page.runs == before
    )
    values = page.get("/api/form").json()["values"]
    assert (values["num_users"], values["run_time"]) == ("x", "soon"), (
        "a reload wipes nothing"
    )
    assert values["fail_if"] == ["p99_ttft_ms>500", "nonsense"]


@pytest.mark.parametrize(
    ("fields", "field", "sentence"),
    [
        ({"num_users": "4", "stages": "1,2"}, "num_users", "both set concurrency"),
        ({"request_rate": "2", "spawn_rate": "1"}, "spawn_rate", "-r has no effect"),
        ({"host": "ftp://x"}, "host", "--host"),
        ({"host": "http://127.0.0.1:9"}, "host", "127.0.0.1:9"),
        ({"num_users": "0"}, "num_users", "at least 1"),
        ({"run_time": "9" * 20 + "h"}, "run_time", "-t must be a time"),
        ({"dataset_path": "/etc/passwd"}, "dataset_path", "must be inside"),
        ({"run_dir": "/tmp/elsewhere"}, "run_dir", "must be inside"),
        ({"swarm_key": "x"}, "", "is no field of this form"),
        ({"html_file": "x"}, "", "is no field of this form"),
        ({"power_command": "touch x"}, "", "is no field of this form"),
        ({"label": "x" * 200_000}, "label", "longer than"),
    ],
)
def test_a_start_that_cannot_work_is_refused(
    page: LlmPage, fields: dict[str, str], field: str, sentence: str
) -> None:
    answer = page.post("/api/start", **fields)
    assert answer["run"] is None and page.live()["state"] == "idle"
    assert any(sentence in fault["text"] for fault in answer["faults"]), answer
    assert field in faults(answer) or field in str(answer["faults"][0]["fields"]), (
        answer
    )


def test_check_shows_the_preflight_and_writes_nothing(page: LlmPage) -> None:
    before = page.runs
    answer = page.post("/api/check", **SHORT)
    assert answer["faults"] == [] and answer["run"] is None
    assert {"server", "model", "prompts"} <= {row["name"] for row in answer["rows"]}
    assert page.runs == before and page.live()["state"] == "idle"


def test_start_watch_results_and_start_again(page: LlmPage, server: Simulated) -> None:
    """Each start has a folder of its own; live figures are those of the reports; a late visitor
    gets the whole history."""
    first = page.start(
        **SHORT,
        label="one",
        fail_if=["p50_ttft_ms>5000", "mean_e2el_ms>9000"],
        metric_percentiles="50,99",
    )
    page.wait_for("idle")
    status = page.live()
    assert status["outcome"]["run"] == first and status["outcome"]["error"] is None
    all_ = status["live"]["rows"][0]
    summary = msgspec.json.decode(
        (page.folder / "runs" / first / "summary.json").read_bytes()
    )
    assert all_["completed"] == summary["completed"] == 9
    assert all_["output_tokens"] == summary["total_output_tokens"]
    # vLLM's key has the client's own delay in it, the page's figure has not
    own = summary["llama_load"]["median_ttft_ms"]
    assert all_["ttft"]["p50"] == pytest.approx(own, rel=0.0101)
    assert len(summary["llama_load"]["thresholds"]) == 3
    assert sum(status["live"]["series"]["requests_per_s"]) > 0
    figures = status["outcome"]["figures"]  # without those that a busy client spoils
    assert status["before"] is None and figures.get("median_ttft_ms") in (
        None,
        summary["llama_load"]["median_ttft_ms"],
    )
    second = page.start(**{**SHORT, "max_tokens": 9}, label="one")
    assert second != first
    page.wait_for("idle")
    status = page.live()
    assert (
        status["before"]["run"] == first
        and status["before"]["figures"]["completed"] == 9
    )
    about = dict(status["about"])
    assert server.url in about["server"] and (about["load"], about["label"]) == (
        "3 users",
        "one",
    )
    assert "sharegpt" in about["plan"] and "9 requests" in about["plan"]
    values = page.get("/api/form").json()["values"]
    assert values["num_prompts"] == "9" and values["label"] == "one", "values are kept"
    assert values["fail_if"] == ["p50_ttft_ms>5000", "mean_e2el_ms>9000"]
    text = page.get("/runs").text
    assert f"/llm/runs/{first}" in text and f"/llm/runs/{second}" in text
    report = page.get(f"/runs/{second}").text
    assert "Serving Benchmark Result" in report and "summary.json" in report
    assert f"/?like={second}" in report and f'data-run="{second}"' in report
    assert page.get(f"/runs/{second}/spark.svg").text.count("<rect") == BARS
    like = page.get(f"/api/form?like={first}").json()["values"]
    assert (
        like["num_users"],
        like["num_prompts"],
        like["max_tokens"],
        like["label"],
    ) == ("3", "9", "5", "one")
    assert (like["host"], like["api_key"], like["workload"]) == (server.url, "", "")
    framed = page.get(f"/compare?run={first}&run={second}")
    assert (
        "<iframe" in framed.text
        and "frame-src 'self'" in framed.headers["Content-Security-Policy"]
    )
    compared = page.get(f"/compare.html?run={first}&run={second}&framed")
    assert (
        compared.headers["Content-Security-Policy"].startswith("sandbox ")
        and "Not ranked" in compared.text
    )
    assert page.get(f"/compare.html?run={first}&run={second}").url.endswith(
        f"/compare?run={first}&run={second}"
    )
    assert page.get(f"/runs/{second}/requests.csv").text.count("\n") >= 10
    assert (
        "llama_load_requests_completed_total"
        in web_client.get(page.url.replace("/llm", "/metrics"), timeout=30).text
    )


def test_only_a_confirmed_run_is_deleted_and_nothing_else(page: LlmPage) -> None:
    """No name that climbs, no link, no folder with other files, no run that goes on, none whose
    name was not sent twice."""
    runs = page.folder / "runs"

    def planted(name: str, *files: str, end: str = "complete") -> Path:
        folder = runs / name
        (folder / "server").mkdir(parents=True)
        for file in ("run.json", "summary.json", "server/server.log", *files):
            (folder / file).write_text(f'{{"end": "{end}"}}')
        return folder

    def deleted(run: Any, confirm: Any = None) -> bool:
        answer = web_client.post(
            f"{page.url}/api/delete",
            json={"run": run, "confirm": confirm or run},
            timeout=30,
        )
        return answer.status_code == 200 and answer.json() == {"fault": None}

    good, odd, goes_on = (
        planted("good"),
        planted("odd", "thesis.tex"),
        planted("going-on", end="running"),
    )
    of_server = planted("of-server", "server/own.txt")
    (runs / "link").symlink_to(good)
    (planted("with-link") / "report.md").symlink_to("/etc/passwd")
    outside = page.folder / "outside"
    outside.mkdir()
    (outside / "run.json").write_text("{}")
    for name in (
        "..",
        ".",
        "",
        "../outside",
        "link",
        "odd",
        "of-server",
        "going-on",
        "with-link",
        "no-such",
        3,
        None,
        ["good"],
    ):
        assert not deleted(name), name
    assert not deleted("good", "other")
    assert (
        web_client.post(f"{page.url}/api/delete", data="{}", timeout=30).status_code
        == 415
    )
    assert (
        all(folder.is_dir() for folder in (good, odd, goes_on, of_server, outside))
        and (odd / "thesis.tex").exists()
    )
    assert deleted("good") and not good.exists()


def test_any_order_of_clicks(page: LlmPage) -> None:
    """Start while running, stop, start while stopping, stop twice, at once: no stuck state, every
    record is in a report."""
    run = page.start(**LONG)
    assert "a run is under way" in page.post("/api/start", **SHORT)["faults"][0]["text"]
    assert "a run is under way" in page.post("/api/check", **SHORT)["faults"][0]["text"]
    wait = page.wait_for("running")
    assert wait["run"] == run
    while page.completed() < 3:
        pass
    with ThreadPoolExecutor() as pool:
        answers = list(
            pool.map(page.post, ["/api/stop", "/api/stop", "/api/start", "/api/stop"])
        )
    assert all(
        "state" in answer or answer["faults"] or answer["run"] for answer in answers
    )
    page.post("/api/stop")
    page.wait_for("idle")
    manifest = msgspec.json.decode(
        (page.folder / "runs" / run / "run.json").read_bytes()
    )
    assert manifest["end"] == "stopped"
    summary = msgspec.json.decode(
        (page.folder / "runs" / run / "summary.json").read_bytes()
    )
    assert (
        summary["completed"] >= 3
        and summary["llama_load"]["verdict"]["word"] != "INCOMPLETE"
    )
    page.post("/api/stop")
    again = page.start(**SHORT)
    page.wait_for("idle")
    assert page.live()["outcome"]["run"] == again


def test_two_starts_at_once_are_one_run(page: LlmPage) -> None:
    before = len(page.runs)
    with ThreadPoolExecutor() as pool:
        answers = list(pool.map(lambda _: page.post("/api/start", **SHORT), range(4)))
    assert sum(answer["run"] is not None for answer in answers) == 1
    page.wait_for("idle")
    assert len(page.runs) == before + 1


def test_no_page_holds_a_key(page: LlmPage, server: Simulated) -> None:
    typed = "sk-typed-0123456789abcdef"
    answer = page.post(
        "/api/check",
        **SHORT,
        api_key=typed,
        header=[f"X-Key: {typed}"],
        extra_body=f'{{"auth_token": "{typed}"}}',
    )
    assert answer["faults"] == []
    values = page.get("/api/form").json()["values"]
    assert values["api_key"] == "" and not values["header"] and typed not in str(values)
    for path in ("/", "/api/form", "/api/live", "/runs"):
        assert CANARY not in page.get(path).text and typed not in page.get(path).text, (
            path
        )
    assert CANARY not in page.log and typed not in page.log
    for run in page.runs:
        for file in filter(Path.is_file, run.rglob("*")):
            assert CANARY.encode() not in file.read_bytes(), file


def test_only_fields_that_matter_are_shown(page: LlmPage) -> None:
    """No images, documents, embeddings with ShareGPT; those of another workload only while it is
    chosen."""
    names = page.get("/api/form").json()["values"].keys()
    assert {
        "host",
        "num_users",
        "run_time",
        "dataset_path",
        "turns",
        "fail_if",
        "api_key",
        "workload",
    } <= names
    assert (
        not {
            "batch_size",
            "weights",
            "prefix_len",
            "swarm_key",
            "ui_folder",
            "metrics_port",
        }
        & names
    )
    shown = dict(
        re.findall(r'data-name="(\w+)"\s+data-for="([^"]*)"', page.get("/").text)
    )
    assert (
        "&#34;bundled vision&#34;" in shown["images"]
        and "&#34;&#34;" not in shown["images"]
    )
    assert (
        "bundled" not in shown["turns"]
        and "dataset_path" in shown
        and "max_tokens" not in shown
    )


def test_the_first_fields_are_those_that_every_run_needs(page: LlmPage) -> None:
    """In words, with the flag small beside them; each input has its label, help and place for a
    fault."""
    text = page.get("/").text
    fields = re.findall(r'<label for="f-(\w+)">([^<]*)', text)
    words = [
        "Server",
        "Workload",
        "Users",
        "Requests per second",
        "Stages",
        "Requests",
        "Time limit",
    ]
    assert [title.strip() for _, title in fields[:7]] == words
    assert [name for name, _ in fields[:7]] == [
        "host",
        "workload",
        *(field.name for field in form_fields([], [], keys=True)[BASICS][1:]),
    ]
    inputs = re.findall(
        r'<(?:input|select|textarea)\b[^>]*? name="(\w+)"[^>]*?aria-describedby="([^"]*)"',
        text,
    )
    assert len(inputs) > 50 and all(
        f'id="{place}"' in text for _, places in inputs for place in places.split()
    )
    assert [name for name, _ in inputs] == re.findall(
        r'<(?:input|select|textarea)\b[^>]*? name="(\w+)"', text
    )


def test_the_page_suggests_a_run_that_ends(server: Simulated, tmp_path: Path) -> None:
    """100 requests, unless the command line has an amount; a start that leaves a field empty means
    it."""
    with llm_page(tmp_path, "--host", server.url, "-t", "9m") as page:
        values = page.get("/api/form").json()["values"]
        assert (values["num_users"], values["num_prompts"], values["run_time"]) == (
            "1",
            "",
            "540",
        )
        typed = {
            "host": "http://127.0.0.1:9",
            "num_users": "0",
            "fail_if": ["nonsense"],
        }
        found = faults(page.post("/api/check", **typed))
        assert (
            set(found) == {"host", "num_users", "fail_if"}
            and "cannot reach" in found["host"]
        )


def test_all_faults_come_at_once_those_of_the_server_too(page: LlmPage) -> None:
    assert (
        "does not serve a model"
        in faults(page.post("/api/check", model="gpt-4", num_users="0"))["model"]
    )
    assert (
        "one of those"
        in page.post("/api/start", workload="/etc/passwd")["faults"][0]["text"]
    )


def test_another_workload_can_be_chosen(page: LlmPage) -> None:
    """Its own fields apply, those of the others are as on the command line."""
    run = page.start(**SHORT, workload="bundled long_document", document_tokens="60")
    page.wait_for("idle")
    manifest = msgspec.json.decode(
        (page.folder / "runs" / run / "run.json").read_bytes()
    )
    assert (
        "document" in manifest["workload"]
        and page.live()["live"]["rows"][0]["completed"] == 9
    )
    assert (
        manifest["prompts"]
        and page.get("/api/form").json()["values"]["workload"]
        == "bundled long_document"
    )
    run = page.start(**SHORT, workload="", document_tokens="70")
    page.wait_for("idle")
    manifest = msgspec.json.decode(
        (page.folder / "runs" / run / "run.json").read_bytes()
    )
    assert (
        "document" not in manifest["workload"]
        and manifest["options"]["document_tokens"] != "70"
    )


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Host": "evil.example"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
    ],
)
@pytest.mark.parametrize("path", ["/api/start", "/api/check", "/api/stop"])
def test_other_pages_start_and_stop_nothing(
    page: LlmPage, headers: dict[str, str], path: str
) -> None:
    assert (
        web_client.post(
            page.url + path, json=SHORT, headers=headers, timeout=30
        ).status_code
        == 403
    )


def test_a_form_of_another_page_cannot_be_a_start(page: LlmPage) -> None:
    """A form sends no JSON, whatever else a browser forgets to say."""
    for kind in (
        "text/plain",
        "application/x-www-form-urlencoded",
        "multipart/form-data",
    ):
        answer = web_client.post(
            f"{page.url}/api/start",
            data='{"num_users": "1"}',
            headers={"Content-Type": kind},
            timeout=30,
        )
        assert answer.status_code == 415
    for body in (b"[]", b"{", b"[" * 100_000):
        answer = web_client.post(
            f"{page.url}/api/start",
            data=body,
            headers={"Content-Type": "application/json"},
            timeout=30,
        )
        assert answer.status_code == 400


def test_other_pages_read_nothing(page: LlmPage) -> None:
    for path in ("/", "/api/live", "/api/form", "/runs"):
        assert (
            page.get(path, headers={"Origin": "http://evil.example"}).status_code == 403
        )
        assert page.get(path, headers={"Host": "evil.example"}).status_code == 403
        assert not any(
            name.lower().startswith("access-control") for name in page.get(path).headers
        )


@pytest.mark.parametrize(
    "path",
    [
        "/runs/..",
        "/runs/%2e%2e/run.json",
        "/runs/../../etc/passwd",
        "/runs/..%2f..%2fetc%2fpasswd",
        "/runs/%2fetc%2fpasswd/run.json",
        "/runs/RUN/..%2f..%2flog",
        "/runs/RUN/requests.arrows",
        "/runs/RUN/link.html",
        "/runs/RUN/%00",
        "/runs/linked/run.json",
        "/runs/linked",
        "/runs/RUN/summary.txt",
        "/runs/RUN/server.log",
        "/assets/..%2fcontrol.py",
        "/assets/control.py",
        "/assets/%2fetc%2fpasswd",
    ],
)
def test_nothing_outside_run_folders_is_read(page: LlmPage, path: str) -> None:
    """Neither by climbing, nor by links, nor by names that are no results."""
    runs = page.folder / "runs"
    planted = runs / "planted"
    if not planted.exists():
        planted.mkdir(parents=True)
        (planted / "run.json").write_text("{}")
        (planted / "link.html").write_text("secret")
        (planted / "summary.txt").symlink_to("/etc/passwd")
        (planted / "server").symlink_to("/var/log")
        (runs / "linked").symlink_to("/etc")
    url = page.url + path.replace("RUN", "planted")
    prepared = requests.Request("GET", url, headers=web_client.BEARER).prepare()
    prepared.url = url  # requests would tidy it up
    with requests.Session() as session:
        answer = session.send(prepared, timeout=30, allow_redirects=False)
    assert answer.status_code in (404, 308, 400), answer.status_code
    assert "root:" not in answer.text


def test_names_and_texts_of_runs_are_escaped(page: LlmPage) -> None:
    evil = "<script>alert(1)</script>"
    folder = page.folder / "runs" / "evil'\"<img src=x>"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "run.json").write_bytes(
        msgspec.json.encode(
            {
                "label": evil,
                "date": evil,
                "targets": [{"url": evil}],
                "preflight": [{"name": evil, "value": evil, "level": evil}],
                "command": [evil],
            }
        )
    )
    verdict = {
        "words": [evil],
        "headline": evil,
        "checks": [{"ok": False, "text": evil, "stage": evil}, 3, {"ok": False}],
    }
    ours = {
        "verdict": verdict,
        "thresholds": [{"line": evil}],
        "by_stage": {evil: {"completed": 1}},
        "failures": [{"kind": evil}],
    }
    (folder / "summary.json").write_bytes(
        msgspec.json.encode({"completed": 1, "llama_load": ours})
    )
    (folder / "summary.txt").write_text(evil)
    for path in ("/runs", "/runs/" + requests.utils.quote(folder.name, safe="")):
        answer = page.get(path)
        assert answer.status_code == 200
        assert evil not in answer.text and "<img src=x" not in answer.text
        assert "script-src 'self'" in answer.headers["Content-Security-Policy"]


def test_a_report_runs_in_an_origin_of_its_own(page: LlmPage) -> None:
    folder = page.folder / "runs" / "reported"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "run.json").write_text("{}")
    (folder / "report.html").write_text("<script>1</script>")
    policy = page.get("/runs/reported/report.html?framed").headers[
        "Content-Security-Policy"
    ]
    assert (
        policy.startswith("sandbox ")
        and "allow-same-origin" not in policy
        and "connect-src" not in policy
    )


@pytest.mark.parametrize(
    "how", [{}, {"query": "?framed", "headers": {"Sec-Fetch-Dest": "document"}}]
)
def test_a_report_is_shown_in_a_frame_that_loads_nothing_else(
    page: LlmPage, how: dict[str, Any]
) -> None:
    """`location = …` in a tab goes anywhere, whatever the report's own policy says; the policy
    around a frame forbids it."""
    folder = page.folder / "runs" / "framed"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "run.json").write_text("{}")
    (folder / "report.html").write_text(
        "<script>location = 'http://127.0.0.1:1/'</script>"
    )
    answer = page.get(
        f"/runs/framed/report.html{how.get('query', '')}", headers=how.get("headers")
    )
    assert "location =" not in answer.text and answer.url.endswith(
        "/runs/framed/report"
    )
    assert (
        "frame-src 'self'" in answer.headers["Content-Security-Policy"]
        and "<iframe" in answer.text
    )
    assert 'sandbox="allow-scripts allow-downloads"' in answer.text


@pytest.mark.parametrize(
    "path",
    [
        "/runs",
        "/compare?run=a&run=b",
        "/api/live",
        "/runs/x/requests.csv",
        "/../stats/report",
    ],
)
def test_pages_of_others_make_no_work(page: LlmPage, path: str) -> None:
    """Images, frames, scripts and prefetches of another page are refused; a link that somebody
    follows is not."""
    for mode, kind in (
        ("no-cors", "image"),
        ("navigate", "iframe"),
        ("cors", "empty"),
        ("no-cors", "script"),
    ):
        headers = {
            "Sec-Fetch-Site": "cross-site",
            "Sec-Fetch-Mode": mode,
            "Sec-Fetch-Dest": kind,
        }
        assert page.get(path, headers=headers).status_code == 403
    link = {
        "Sec-Fetch-Site": "cross-site",
        "Sec-Fetch-Mode": "navigate",
        "Sec-Fetch-Dest": "document",
    }
    assert page.get("/", headers=link).status_code == 200


HUGE = (
    b'{"llama_load": {"verdict": {"words": ["X"], "checks": [{"ok": false, "text": "t", "limit": %s}]}}}'
    % (b"9" * 400)
)


@pytest.mark.parametrize(
    "damaged",
    [
        b"",
        b"[]",
        b"{",
        b'{"llama_load": 3}',
        b'{"llama_load": {"verdict": [], "by_stage": [1]}}',
        HUGE,
    ],
)
def test_a_damaged_run_is_a_page_and_no_error(page: LlmPage, damaged: bytes) -> None:
    folder = page.folder / "runs" / "damaged"
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("run.json", "summary.json", "requests.parquet"):
        (folder / name).write_bytes(damaged)
    assert page.get("/runs").status_code == page.get("/runs/damaged").status_code == 200
    assert page.get("/runs/damaged/requests.csv").status_code == 404


def test_scripts_come_from_here_and_are_cached(page: LlmPage) -> None:
    text = page.get("/").text
    places = re.findall(r"""(?:src|href|action)=["']([^"']*)""", text)
    assert len(places) > 8 and all(
        place.startswith("/") or place == "#main" for place in places
    ), "no CDN"
    for name in ("bokeh.min.js", "bokeh-api.min.js", "llm.js", "charts.js", "llm.css"):
        answer = page.get(f"/assets/{name}")
        assert (
            answer.status_code == 200 and "immutable" in answer.headers["Cache-Control"]
        )
        assert answer.headers["Content-Encoding"] == "gzip"
        assert f"/llm/assets/{name}?" in text


def test_locusts_own_page_leads_here(page: LlmPage) -> None:
    assert (
        'href="./llm/"'
        in web_client.get(page.url.replace("/llm", "/"), timeout=30).text
    )


def test_the_login_covers_every_route(server: Simulated, tmp_path: Path) -> None:
    """Also those of Locust: the form is read behind it, and no answer names the server under
    test."""
    locustfile = tmp_path / "guarded.py"
    locustfile.write_text(
        "from locust import events, task\nfrom llama_load import LlamaUser, ShareGPT\n"
        "@events.init.add_listener\ndef init(environment, **_):\n"
        "    environment.web_ui.app.secret_key = 'x'\n"
        "    environment.web_ui.login_manager.user_loader(lambda _: None)\n"
        "class U(LlamaUser):\n    workload = ShareGPT()\n    @task\n    def ask(self):\n        self.chat()\n"
    )
    with llm_page(
        tmp_path, "--host", server.url, "--web-login", locustfile=locustfile
    ) as page:
        for path in (
            "/",
            "/api/form",
            "/api/live",
            "/runs",
            "/runs/x",
            "/runs/x/run.json",
            "/assets/llm.js",
        ):
            answer = page.get(path, allow_redirects=False)
            assert (
                answer.status_code == 302 and "login" in answer.headers["Location"]
            ), path
        for path in ("/api/start", "/api/check", "/api/stop"):
            assert (
                web_client.post(
                    page.url + path, json={}, allow_redirects=False, timeout=30
                ).status_code
                == 302
            )
        locusts = page.url.removesuffix("/llm")
        forms = ({"html_file": "x"}, {"user_count": "1", "spawn_rate": "1"})
        changed = [("swarm", form) for form in forms]
        changed += [("user", {"workload": "x"}), ("user", "{")]
        for path, form in changed:
            answer = web_client.post(
                f"{locusts}/{path}", data=form, allow_redirects=False, timeout=30
            )
            assert answer.status_code == 302, path
            assert server.url not in f"{answer.text}{answer.headers}", path
        assert (
            web_client.get(
                page.url.replace("/llm", "/metrics"), allow_redirects=False, timeout=30
            ).status_code
            == 302
        )


def experiment(page: LlmPage, **typed: Any) -> str | None:
    answer = web_client.post(f"{page.url}/api/experiment/start", json=typed, timeout=10)
    assert answer.status_code in (200, 422), answer.text
    return answer.json()["fault"]


def test_nothing_typed_becomes_a_command_or_a_path(
    page: LlmPage, server: Simulated
) -> None:
    """The server must be a URL that the key was given for, the plan one of those in the folder of
    plans."""
    marker = page.folder / "marker"
    (page.folder / "ok.yaml").write_text("title: x\nload: []\n")
    (page.folder / "compose.yaml").write_text("services: {}\n")
    (page.folder / "linked.yaml").symlink_to("/etc/passwd")
    # anybody can put a program into it, and the page cannot ask
    (page.folder / "shared.yaml").write_text("title: x\nload: []\n")
    (page.folder / "shared.yaml").chmod(0o666)
    sound = {
        "kind": "search",
        "host": server.url,
        "vary": "concurrency",
        "goodput": "ttft:500",
        "max_time": "60",
    }
    for wrong in (
        {"kind": "calibrate"},
        {"host": f"touch {marker}"},
        {"host": f"http://127.0.0.1:9/; touch {marker}"},
        {"host": "http://127.0.0.1:9"},  # not the server of the key
        {"host": ""},
        {"vary": "--out"},
        {"goodput": "nonsense"},
        {"goodput": ""},
        {"max_time": "x"},
        {"max_time": "1e9"},
        {"kind": "sweep", "plan": "../ok.yaml"},
        {"kind": "sweep", "plan": "/etc/passwd"},
        {"kind": "sweep", "plan": "linked.yaml"},
        {"kind": "sweep", "plan": ["ok.yaml"]},
        {"kind": "sweep", "plan": "shared.yaml"},
        {"kind": "sweep"},
    ):
        assert experiment(page, **sound | wrong), wrong
    assert page.get("/api/experiment").json() is None and not marker.exists()
    assert (
        web_client.post(
            f"{page.url}/api/experiment/start", data="{}", timeout=30
        ).status_code
        == 415
    )
    text = page.get("/searches").text
    assert '<option value="ok.yaml">' in text
    assert "linked.yaml" not in text and "compose.yaml" not in text


def test_what_the_command_line_has_made_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The newest first, a result that is a link not at all."""
    monkeypatch.chdir(tmp_path)
    for name, file in (
        ("searches/20261128-101010", "search.html"),
        ("sweeps/20261129-101010", "sweep.html"),
        ("searches/20261127-101010", "search.json"),
    ):
        Path(name).mkdir(parents=True)
        (Path(name) / file).write_text("a page")
    linked = Path("searches/20261126-101010")
    linked.mkdir()
    (linked / "search.html").symlink_to("/etc/passwd")
    assert [(each.kind, each.name) for each in found()] == [
        ("sweep", "20261129-101010"),
        ("search", "20261128-101010"),
    ]
    assert found_result("search", "20261128-101010") is not None
    assert found_result("search", "../sweeps/20261129-101010") is None


@pytest.mark.heavy
def test_a_search_is_started_watched_and_stopped(
    page: LlmPage, server: Simulated
) -> None:
    """It has its folder, no run starts beside it, and it ends as by Ctrl-C. Catches a search of the
    page that does not end with its button."""
    fault = experiment(
        page,
        kind="search",
        host=server.url,
        vary="concurrency",
        goodput="ttft:500",
        max_time="300",
    )
    assert fault is None
    assert "stop it first" in experiment(page, kind="sweep", plan="x.yaml")
    assert (
        "search or sweep is running"
        in page.post("/api/start", **SHORT)["faults"][0]["text"]
    )
    wait_until(
        lambda: (page.get("/api/experiment").json()["state"] or {}).get("sentence"), 40
    )
    page.post("/api/experiment/stop")
    wait_until(lambda: not page.get("/api/experiment").json()["running"], 40)
    status = page.get("/api/experiment").json()
    assert status["state"]["unit"] == "users" and CANARY not in str(status)
    assert (page.folder / status["folder"] / "state.json").exists()
    run = page.start(**SHORT)
    page.wait_for("idle")
    assert (page.folder / "runs" / run).is_dir()
