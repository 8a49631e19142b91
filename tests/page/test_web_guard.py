"""The web page answers only itself, holds no key, writes and reads only where it may, and sends
keys only where they belong."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import requests

from llama_load.loadgen.options.flag import PAGE_PATHS, Kind
from llama_load.loadgen.options.flags import FLAGS
from llama_load.servers.local_ports import free_port
from tests import web_client
from tests.conftest import SHAREGPT, environment, start_program
from tests.json_server import JsonServer, json_server
from tests.swarms import wait_until

CANARY = "sk-canary-0123456789abcdef"
BODY_CANARY = "body-canary-0123456789"
FORM = {"user_count": "1", "spawn_rate": "1", "num_prompts": "1", "warmup": "0"}


@dataclass
class Page:
    url: str
    server: str
    folder: Path
    log: Path

    def post(self, **fields: str) -> requests.Response:
        return web_client.post(
            f"{self.url}/swarm", data=FORM | {"host": self.server} | fields, timeout=10
        )

    def refuses(self, sentence: str, **fields: str) -> None:
        """The run of this form is refused, by an answer or in the log."""
        before = self.log.read_text().count(sentence)
        answer = self.post(**fields)
        if answer.status_code == 403:
            assert sentence in answer.text
        else:
            wait_until(lambda: self.log.read_text().count(sentence) > before, 10)
            wait_until(
                lambda: (
                    web_client.get(f"{self.url}/stats/requests", timeout=30).json()[
                        "state"
                    ]
                    in ("stopped", "ready")
                ),
                10,
            )


@pytest.fixture(scope="module")
def server() -> Iterator[JsonServer]:
    with json_server(
        {
            "/health": {"status": "ok"},
            "/v1/models": (401, {"error": f"the key {CANARY} is wrong"}, {}),
        }
    ) as found:
        yield found


@pytest.fixture(scope="module")
def page(
    server: JsonServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Page]:
    folder, port = tmp_path_factory.mktemp("ui"), free_port()
    command = [
        "locust",
        "-f",
        str(SHAREGPT),
        "--web-port",
        str(port),
        "--web-token",
        web_client.TOKEN,
        "--host",
        server.url,
        "--class-picker",
    ]
    command += [
        "--header",
        f"X-Team: {CANARY}",
        "--extra-body",
        f'{{"auth_token": "{BODY_CANARY}"}}',
    ]
    with (folder / "log").open("w") as log:
        process = start_program(
            command, folder, environment() | {"LLAMA_LOAD_API_KEY": CANARY}, log
        )
    found = Page(f"http://127.0.0.1:{port}", server.url, folder, folder / "log")
    try:
        wait_until(lambda: web_client.get(found.url, timeout=10).ok)
        yield found
    finally:
        process.terminate()
        process.wait(20)


def test_no_page_holds_a_key(page: Page) -> None:
    page.refuses("refuses the key")
    for path in (
        "",
        "logs",
        "stats/requests",
        "stats/report",
        "exceptions",
        "tasks",
        "stats/failures/csv",
    ):
        text = web_client.get(f"{page.url}/{path}", timeout=30).text
        assert CANARY not in text and BODY_CANARY not in text, path
    text = page.log.read_text()
    assert CANARY not in text and BODY_CANARY not in text


def test_the_page_does_not_weaken_the_encryption_of_the_command_lines_keys(
    page: Page,
) -> None:
    """Who sits between would get the key of the command line."""
    page.refuses(
        "would send the keys of the command line", host=page.server, insecure="true"
    )
    page.refuses("refuses the key", insecure="false")


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://127.0.0.1:1"},
        {"Host": "evil.example"},
        {"Host": "127.0.0.1.evil.example:8089"},
        {"Sec-Fetch-Site": "cross-site"},
    ],
)
@pytest.mark.parametrize("path", ["swarm", "stop", "stats/reset", "user"])
def test_other_pages_change_nothing(
    page: Page, headers: dict[str, str], path: str
) -> None:
    answer = web_client.post(
        f"{page.url}/{path}", data=FORM, headers=headers, timeout=30
    )
    assert answer.status_code == 403
    assert not any(name.lower().startswith("access-control") for name in answer.headers)


def test_other_pages_read_nothing(page: Page) -> None:
    """Locust answers CORS with the caller's origin."""
    assert (
        web_client.get(
            page.url, headers={"Origin": "http://evil.example"}, timeout=30
        ).status_code
        == 403
    )
    own = web_client.get(page.url, headers={"Origin": page.url}, timeout=30)
    assert own.status_code == 200
    assert not any(name.lower().startswith("access-control") for name in own.headers)


def test_the_form_sets_no_option_that_the_page_does_not_show(page: Page) -> None:
    for field in (
        "html_file",
        "csv_prefix",
        "json_file",
        "logfile",
        "ui_folder",
        "swarm_key",
        "web_host",
        "locustfile",
    ):
        answer = page.post(**{field: str(page.folder / "written")})
        assert (answer.status_code, answer.json()["success"]) == (403, False), field


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *(
            (flag.dest, "/etc/passwd")
            for flag in FLAGS
            if flag.kind in PAGE_PATHS - {Kind.TIMES}
        ),
        *(
            (flag.dest, " file:/etc/passwd")
            for flag in FLAGS
            if flag.kind is Kind.TIMES
        ),
        *((name, "/dev/zero") for name in ("document", "ca_file")),
        ("dataset_path", "hf:/etc/passwd"),
        ("images", "hf:.."),
        ("document", "../../x"),
        ("run_dir", "/tmp/elsewhere"),
        ("junit", "../out.xml"),
        ("junit", "locustfile.py"),
    ],
)
def test_paths_from_the_form_stay_in_the_folder(
    page: Page, field: str, value: str
) -> None:
    page.refuses("typed into the web page must", **{field: value})
    page.post(**{field: ""})  # the form keeps what was typed


def test_a_fifo_in_the_folder_is_not_read(page: Page) -> None:
    os.mkfifo(page.folder / "pipe")
    page.refuses("must be a regular file", document="pipe")
    page.post(document="")


def test_a_link_out_of_the_folder_is_not_followed(page: Page) -> None:
    (page.folder / "link").symlink_to("/etc/passwd")
    page.refuses("must be inside", document="link")
    page.post(document="")


def test_the_key_goes_only_where_it_was_given_for(page: Page) -> None:
    with json_server({}) as other:
        page.refuses("the key was given for", host=other.url)
        # the header is still the old one
        page.refuses(
            "the key was given for", host=other.url, api_key="sk-another-key-typed"
        )
        assert other.headers == []
        page.refuses(
            "no API of an LLM server is found",
            host=other.url,
            api_key="sk-another-key-typed",
            header="X-Other: 1",
            extra_body="{}",
        )
        assert other.headers and CANARY not in str(other.headers)
        page.refuses("the key was given for", host=page.server)


@pytest.mark.parametrize(
    "settings",
    [
        {"workload": "x"},
        {"__init__": 5, "weight": 1},
        {"weight": "x"},
        {"weight": -1},
        {"weight": True},
        {"fixed_count": [1]},
        {"host": 5},
        {"tasks": "ask"},
        {"tasks": ["no_such_task"]},
        {"tasks": [[]]},
        {"user_class_name": "Nobody"},
        {"user_class_name": []},
    ],
)
def test_no_other_attribute_of_a_user_class_is_set(
    page: Page, settings: dict[str, Any]
) -> None:
    """Locust sets whatever is posted: `workload` broke every later start."""
    answer = web_client.post(
        f"{page.url}/user",
        json={"user_class_name": "ShareGPTChat"} | settings,
        timeout=30,
    )
    assert (answer.status_code, answer.json()["success"]) == (403, False), answer.text


def test_what_locusts_page_edits_of_a_user_class_is_set(page: Page) -> None:
    settings = {
        "user_class_name": "ShareGPTChat",
        "host": None,
        "weight": 1,
        "fixed_count": 0,
        "tasks": ["ask"],
    }
    assert (
        web_client.post(f"{page.url}/user", json=settings, timeout=30).status_code
        == 201
    )


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"{",
        b"[" * 100_000,
        b"\xff",
        b'{"user_class_name": "ShareGPTChat", "weight": 1e999}',
    ],
)
def test_malformed_settings_of_a_user_class_are_refused(
    page: Page, body: bytes
) -> None:
    assert web_client.post(f"{page.url}/user", data=body, timeout=30).status_code == 403


@pytest.mark.parametrize(
    ("token", "status"),
    [(f"Authorization: Bearer {web_client.TOKEN}\r\n", 413), ("", 401)],
)
def test_a_large_body_is_refused_before_it_is_read(
    page: Page, token: str, status: int
) -> None:
    """A form of 885 MB filled the memory, a file in it the temporary folder."""
    chunks = (b"a=b&" for _ in range(3))
    assert (
        web_client.post(f"{page.url}/swarm", data=chunks, timeout=30).status_code == 411
    )
    for path in ("swarm", "user", "stop", "llm/api/start", "login", ""):
        with socket.create_connection(
            ("127.0.0.1", int(page.url.rpartition(":")[2])), 5
        ) as connection:
            head = f"POST /{path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 900000000\r\n{token}\r\n"
            connection.sendall(head.encode() + b"x" * 1000)
            assert connection.recv(100).startswith(f"HTTP/1.1 {status} ".encode()), path


def test_a_refused_form_does_not_name_the_server(page: Page) -> None:
    assert page.server not in page.post(html_file="x").text


@pytest.mark.parametrize(
    "field",
    ["trace", "run_dir", "junit", "host", "label", "dataset_path", "num_prompts"],
)
def test_a_nul_in_a_field_is_refused_in_a_sentence(page: Page, field: str) -> None:
    answer = web_client.post(
        f"{page.url}/llm/api/check", json={field: "a\0b"}, timeout=10
    )
    assert answer.status_code == 422
    assert "NUL" in answer.text
    page.refuses("NUL", **{field: "a\0b"})


def test_the_page_listens_on_loopback_alone(page: Page) -> None:
    import psutil

    port = int(page.url.rpartition(":")[2])
    addresses = {each.laddr.ip for each in psutil.net_connections("tcp") if each.laddr and each.laddr.port == port and each.status == "LISTEN"}  # fmt: skip
    assert addresses == {"127.0.0.1"}
