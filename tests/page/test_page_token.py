"""The page is for who has its token: no other user of the machine reads, starts or deletes
anything."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import flask
import flask_login
import pytest
import requests

from llama_load.ground.errors import UsageError
from llama_load.outside.bound_headers import COOKIE_OF_PAGES
from llama_load.page import page_token
from llama_load.page.guard import _name_cookies, _own_cookies
from llama_load.page.page_token import COOKIE_S, RENEWED_S, PageToken
from llama_load.servers.local_ports import free_port
from tests import web_client
from tests.conftest import SHAREGPT, environment, start_program
from tests.page.web_pages import LlmPage, llm_page
from tests.swarms import wait_until

TOKEN = web_client.TOKEN


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LlmPage]:
    with llm_page(
        tmp_path_factory.mktemp("page"), "--host", "http://127.0.0.1:9"
    ) as found:
        yield found


# Our pages, Locust's own, what they post, files of the page.
READS = ("", "/", "/api/live", "/api/form", "/runs", "/runs/x/summary.json", "/compare?run=a&run=b", "/../stats/report", "/../stats/requests", "/../metrics", "/../", "/../logs", "/../exceptions", "/../tasks", "/../assets/x.js", "/../no-such-page", "/../static/x", "/../%2e%2e/", "/assets/llm.js")  # fmt: skip
WRITES = ("/api/start", "/api/delete", "/api/check", "/api/stop", "/api/experiment/start", "/../swarm", "/../stop", "/../user", "/../stats/reset", "/../login")  # fmt: skip
WRONG: tuple[dict[str, str], ...] = (
    {},
    {"Authorization": "Bearer "},
    {"Authorization": f"Bearer {TOKEN}x"},
    {"Authorization": f"Basic {TOKEN}"},
    {"Authorization": TOKEN},
    {"Cookie": f"llama-load={TOKEN}"},
    {"Cookie": f"token={TOKEN}"},
    {"Cookie": "llama-load-1=" + "0" * 64},
    {"X-Token": TOKEN},
    {"Referer": f"http://127.0.0.1/?token={TOKEN}"},
    {"Cookie": "=;;\x80=[]"},
    {"X-Forwarded-For": "127.0.0.1", "X-Real-Ip": "127.0.0.1"},
)


def raw(
    page: LlmPage, method: str, path: str, headers: dict[str, str]
) -> requests.Response:
    """As it is written: `requests` would tidy the path."""
    prepared = requests.Request(method, "http://x/", headers=headers).prepare()
    prepared.url = (
        page.url + path
        if not path.startswith("/..")
        else page.url.removesuffix("/llm") + path[3:]
    )
    with requests.Session() as session:
        return session.send(prepared, timeout=10, allow_redirects=False)


def test_nobody_gets_anything_without_the_token(page: LlmPage) -> None:
    for path in READS:
        assert raw(page, "GET", path, {}).status_code == 401, path
        assert raw(page, "HEAD", path, {}).status_code == 401, path
    for path in WRITES:
        assert raw(page, "POST", path, {}).status_code == 401, path
    for method in ("PUT", "DELETE", "OPTIONS", "PATCH", "GETX"):
        assert raw(page, method, "/api/live", {}).status_code == 401, method
    for headers in WRONG:
        assert raw(page, "GET", "/api/live", headers).status_code == 401, headers
    for query in (
        "token=",
        "token=x",
        f"Token={TOKEN}",
        f"token%3D{TOKEN}",
        f"token={TOKEN}x",
        "token=%FF",
        "&" * 200,
        f"a=1;token={TOKEN}",
    ):
        assert raw(page, "GET", f"/api/live?{query}", {}).status_code == 401, query
    # it opens pages, it starts nothing
    assert raw(page, "POST", f"/api/start?token={TOKEN}", {}).status_code == 401
    assert not (page.folder / "runs").exists()


def test_the_refusal_says_nothing_and_asks_a_person_for_the_token(
    page: LlmPage,
) -> None:
    answer = raw(page, "GET", "/", {"Accept": "text/html"})
    assert answer.status_code == 401
    assert "type the token" in answer.text and "127.0.0.1:9" not in answer.text
    assert "script" not in answer.text.lower()
    assert "Authorization: Bearer" in raw(page, "GET", "/", {}).text
    assert (
        raw(page, "GET", "/../health", {}).content == b"ok\n"
    )  # for the container's health check


def test_the_url_opens_the_page_and_leaves_a_cookie(page: LlmPage) -> None:
    opened = raw(page, "GET", f"/?token={TOKEN}&x=1", {})
    assert opened.status_code == 303
    assert opened.headers["Location"] == "/llm/?x=1"
    cookie = opened.headers["Set-Cookie"]
    assert {"HttpOnly", "SameSite=Strict", "Path=/", "Max-Age=43200"} <= set(
        cookie.split("; ")
    )
    assert TOKEN not in cookie
    name_and_value = cookie.partition(";")[0]
    assert (
        raw(page, "GET", "/", {"Cookie": f"other=1; {name_and_value}"}).status_code
        == 200
    )
    assert (
        raw(page, "GET", "/../stats/requests", {"Cookie": name_and_value}).status_code
        == 200
    )
    # The cookie of another port does not open this one.
    moved = re.sub(r"llama-load-\d+", "llama-load-1", name_and_value)
    assert moved != name_and_value
    assert raw(page, "GET", "/", {"Cookie": moved}).status_code == 401
    # It has no power from another page.
    stranger = {"Cookie": name_and_value, "Origin": "http://evil.example"}
    assert raw(page, "POST", "/api/stop", stranger).status_code == 403
    for path in (
        "//evil.example/",
        "/\\evil.example",
        "//evil.example/%0d%0aSet-Cookie:x=1",
    ):
        prepared = raw(page, "GET", f"/..{path}?token={TOKEN}", {})
        assert re.match(r"/[^/\\]", prepared.headers["Location"]), prepared.headers[
            "Location"
        ]
        assert "\n" not in prepared.headers["Location"]


def test_a_link_on_another_page_opens_it_by_a_page_of_ours(page: LlmPage) -> None:
    """A redirect of a stranger's link would not get a SameSite=Strict cookie."""
    link = {
        "Sec-Fetch-Site": "cross-site",
        "Sec-Fetch-Mode": "navigate",
        "Sec-Fetch-Dest": "document",
    }
    opened = raw(page, "GET", f"/?x=%22%3E%3Cscript&token={TOKEN}", link)
    assert opened.status_code == 200 and "Set-Cookie" in opened.headers
    assert 'content="0; url=/llm/?x=' in opened.text
    assert "<script" not in opened.text and TOKEN not in opened.text


def asked(cookie: str) -> dict[str, str]:
    return {"REQUEST_METHOD": "GET", "PATH_INFO": "/", "HTTP_COOKIE": cookie}


def cookie_of(token: PageToken, given: str = "") -> str:
    """NAME=VALUE of the cookie that opening the page gives."""
    opened = token.refusal(asked(given) | {"QUERY_STRING": f"token={TOKEN}"})
    assert opened is not None and opened.status.startswith("303")
    return next(
        value for name, value in opened.headers if name == "Set-Cookie"
    ).partition(";")[0]


def test_a_cookie_is_of_one_run() -> None:
    """Also with the same token at the same port: who has it from an earlier run gets nothing."""
    one, other = PageToken(TOKEN, 8089), PageToken(TOKEN, 8089)
    cookie = cookie_of(one)
    assert cookie.startswith("llama-load-8089-")
    name, _, value = cookie.partition("=")
    name_of_other = cookie_of(other).partition("=")[0]
    assert one.refusal(asked(cookie)) is None
    assert name_of_other != name
    assert other.refusal(asked(cookie)) is not None
    assert other.refusal(asked(f"{name_of_other}={value}")) is not None
    end, _, mark = value.partition(".")
    for forged in (
        f"{int(end) + 1}.{mark}",
        f"{end}.",
        ".",
        "9" * 5000,
        f"x.{mark}",
        f"-1.{mark}",
    ):
        assert one.refusal(asked(f"{name}={forged}")) is not None, forged


def test_a_cookie_ends_when_the_page_is_not_used(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now_s = 1000.0
    monkeypatch.setattr(page_token.time, "monotonic", lambda: now_s)
    token = PageToken(TOKEN, 8089)
    cookie = cookie_of(token)
    now_s += RENEWED_S / 2
    assert token.renewal(asked(cookie)) == ()
    now_s += RENEWED_S
    ((_, renewed),) = token.renewal(asked(cookie))
    now_s = 1000.0 + COOKIE_S
    assert token.refusal(asked(cookie)) is not None
    assert token.renewal(asked(cookie)) == ()
    assert token.refusal(asked(renewed.partition(";")[0])) is None


def test_cookies_of_earlier_runs_are_removed() -> None:
    token = PageToken(TOKEN, 8089)
    given = "llama-load-8089-old=1; llama-load-9999-other=2; theirs=3"
    opened = token.refusal(asked(given) | {"QUERY_STRING": f"token={TOKEN}"})
    assert opened is not None
    removed = [value for _, value in opened.headers if "Max-Age=0" in value]
    assert len(removed) == 1 and removed[0].startswith("llama-load-8089-old=;")


def test_a_cookie_of_an_encrypted_page_is_sent_encrypted_alone() -> None:
    token = PageToken(TOKEN, 8089, is_https=True)
    opened = token.refusal(asked("") | {"QUERY_STRING": f"token={TOKEN}"})
    assert opened is not None
    assert all(
        "; Secure" in value for name, value in opened.headers if name == "Set-Cookie"
    )


def test_the_cookies_of_a_login_have_our_name_and_stay_on_our_site() -> None:
    """Browsers send them to every port of a host, where the recorder knows them by their names."""
    app = flask.Flask("page")
    app.secret_key = TOKEN
    logins = flask_login.LoginManager()
    logins.init_app(app)
    logins.user_loader(lambda _: None)
    _name_cookies(app, 8089)

    @app.route("/login")
    def login() -> str:
        user = flask_login.UserMixin()
        user.id = "a"
        flask_login.login_user(user, remember=True)
        return ""

    cookies = app.test_client().get("/login").headers.getlist("Set-Cookie")
    assert len(cookies) == 2
    for cookie in cookies:
        assert cookie.startswith(f"{COOKIE_OF_PAGES}8089-"), cookie
        assert "SameSite=Strict" in cookie and "HttpOnly" in cookie
        assert _own_cookies(f"a=b; {cookie.partition(';')[0]}; c") in cookie


def test_a_program_sends_it_as_a_bearer_token(page: LlmPage) -> None:
    assert web_client.get(page.url + "/api/live", timeout=10).ok
    assert web_client.get(page.url.replace("/llm", "/metrics"), timeout=10).ok
    assert TOKEN not in page.log  # it was given, so it is not printed


def test_without_one_it_is_made_up_and_printed_once(tmp_path: Path) -> None:
    port = free_port()
    command = [
        "locust",
        "-f",
        str(SHAREGPT),
        "--web-port",
        str(port),
        "--host",
        "http://127.0.0.1:9",
        "--logfile",
        "locust.log",
    ]
    with (tmp_path / "out").open("w") as out:
        process = start_program(command, tmp_path, environment(), out)
    try:
        wait_until(
            lambda: requests.get(f"http://127.0.0.1:{port}/health", timeout=30).ok
        )
        printed = re.search(
            r"http://127\.0\.0\.1:\d+/llm\?token=([\w-]{32})",
            (tmp_path / "out").read_text(),
        )
        assert printed is not None
        with requests.Session() as browser:
            assert browser.get(printed[0], timeout=10).ok
            assert (
                "token"
                not in browser.get(f"http://127.0.0.1:{port}/llm/", timeout=10).url
            )
            said = [
                browser.get(f"http://127.0.0.1:{port}/{path}", timeout=10).text
                for path in ("", "logs", "llm/api/form")
            ]
        assert not any(
            printed[1] in text
            for text in [*said, (tmp_path / "locust.log").read_text()]
        )
    finally:
        process.terminate()
        process.wait(20)


@pytest.mark.parametrize(
    "given",
    [
        "short",
        "with a blank in the middle",
        "ünicode-token-0123456789",
        "line\nbreak-token-0123456789",
    ],
)
def test_a_token_that_can_be_guessed_or_not_sent_is_refused(given: str) -> None:
    with pytest.raises(UsageError, match="--web-token"):
        PageToken(given, 1)


def test_tokens_differ() -> None:
    tokens: set[Any] = {PageToken(None, 1).url("") for _ in range(20)}
    assert len(tokens) == 20
