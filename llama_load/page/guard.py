"""Protects Locust's web page.

That has no CSRF token, allows CORS from every origin, and accepts every option. Requests must have
the page's token (or a login), and come from the page itself (Host and Origin). The form may set
only options that the page shows. Paths typed into it must be inside --ui-folder. Keys go only to
the servers they were given for. No response contains a known key.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from locust import argument_parser
from locust.runners import MasterRunner

from llama_load.ground.errors import UsageError
from llama_load.loadgen.options.flag import PAGE_PATHS, Flag, Kind
from llama_load.loadgen.options.flag_limits import MOST_USERS
from llama_load.loadgen.options.flag_reader import FlagReader
from llama_load.loadgen.options.flags import FLAGS
from llama_load.loadgen.options.secret_flags import secret_values
from llama_load.loadgen.options.sections.locust_section import OF_LOCUST
from llama_load.loadgen.wire.local_names import is_of_strangers, name_of
from llama_load.loadgen.wire.request_heads import cookies_of
from llama_load.loadgen.workloads.think_time import OF_FILE
from llama_load.outside.bound_headers import COOKIE_OF_PAGES
from llama_load.outside.foreign_json import decode_foreign
from llama_load.outside.foreign_text import printable, redacted
from llama_load.outside.terminal import print_token
from llama_load.page.open_page import open_by_file
from llama_load.page.page_token import PageToken, Reply
from llama_load.run_folder import MANIFEST
from llama_load.servers.address import parse_url, split_hosts
from llama_load.servers.local_ports import is_loopback

READS_STATE = frozenset(("GET", "HEAD", "OPTIONS"))
# The largest body of a request: no form of Locust's or ours needs more. Checked before anything
# reads it.
MOST_BODY_BYTES = 1 << 20
# Of one field: what is written in some of them is looked for in quadratic time.
MOST_VALUE_CHARS = 8192
# What Locust's page edits of a user class. (Locust itself sets any attribute that is posted.)
USER_SETTINGS = frozenset(("user_class_name", "host", "weight", "fixed_count", "tasks"))
# Fields that Locust's form sends in addition to the flags that it shows.
LOCUSTS_FIELDS = frozenset(
    ("user_classes", "shape_class", "profile", *(flag.dest for flag in OF_LOCUST))
)
# Keys are not on Locust's page, but allowed in a POST.
KEYS = frozenset(flag.dest for flag in FLAGS if flag.on_page and flag.secret)
# Flags that decide whose certificate is trusted.
WEAKER_TLS = ("insecure", "ca_file")
PATHS = {flag.dest: flag for flag in FLAGS if flag.kind in PAGE_PATHS}
_PLAIN = (("Content-Type", "text/plain; charset=utf-8"),)
_HUB = re.compile(r"hf:[\w.-]+/[\w.-]+(:[\w.-]+)?")

logger = logging.getLogger(__name__)

Wsgi = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]


class WebGuard:
    """A WSGI filter for the web page of one environment."""

    def __init__(self, environment: Any) -> None:
        self._environment = environment
        self._options = environment.parsed_options
        self._at_start = dict(vars(self._options))
        self._folder = Path(self._options.ui_folder or ".").resolve()
        hosts = self._hosts(environment.host)
        self._secrets_at_start = secret_values(
            FlagReader(self._options), for_servers=True
        )
        self._hosts_of_secret = dict.fromkeys(self._secrets_at_start, hosts)
        displayed = name_of(self._options.web_host_display_name or "")
        self._named = {displayed} if displayed else set()
        bound = name_of(f"//{self._options.web_host}")
        self._names = self._named | ({bound} if bound else set())
        web_ui = environment.web_ui
        _name_cookies(web_ui.app, self._options.web_port)
        self._token = None if self._options.web_login else _token_of(self._options)
        self._inner: Wsgi = web_ui.app.wsgi_app
        web_ui.app.wsgi_app = self._answer
        web_ui.app.before_request(self._refuse_hidden_settings)
        web_ui.app.after_request(_redact_response)
        if (
            not is_loopback(web_ui.host)
            and self._token is not None
            and not self._options.tls_cert
        ):
            logger.warning(
                "the web page is open to other machines, and its token crosses the network "
                "unencrypted: anyone who reads it can start runs and read results; "
                "leave out --web-host, or add --tls-cert and --tls-key"
            )

        if self._token is not None:
            _print_address(self._options, self._token)

    # ------------------------------------------------------------------ before a run

    def check(self, options: Any, host: str | None) -> None:
        """Raises UsageError for paths and servers that the form may not set. Keys that the page
        shows as *** are restored."""
        given: list[tuple[str, object]] = [("host", host)]
        for flag in self._at_start:
            given.append((flag, getattr(options, flag, None)))
        self._check_texts(given)

        for flag, value in self._at_start.items():
            if (
                isinstance(value, str)
                and value
                and getattr(options, flag) == redacted(value)
            ):
                setattr(options, flag, value)

        for name, row in PATHS.items():
            value = getattr(options, name)
            if value and value != self._at_start[name]:
                self._check_path(row, str(value))

        hosts = self._hosts(host)
        self._check_encryption(options)
        for secret in secret_values(FlagReader(options), for_servers=True):
            is_new = secret not in self._hosts_of_secret
            if is_new and isinstance(self._environment.runner, MasterRunner):
                raise UsageError(
                    "keys do not travel to workers: "
                    "start the master and every worker with LLAMA_LOAD_API_KEY"
                )

            known = self._hosts_of_secret.setdefault(secret, hosts)
            if not hosts <= known:
                owners = ", ".join(sorted(known)) or "no server"
                raise UsageError(
                    f"the key was given for {owners}; start llama-load again with --host "
                    f"{' '.join(sorted(hosts))} to send it there"
                )

    def _check_texts(self, given: list[tuple[str, object]]) -> None:
        """Raises UsageError for values that no program can take."""
        with_nul = [_typed(flag) for flag, value in given if "\0" in str(value)]
        if with_nul:
            raise UsageError(f"{', '.join(with_nul)} must not contain a NUL character")

        for flag, value in given:
            is_new = value != self._at_start.get(flag)
            if is_new and len(str(value)) > MOST_VALUE_CHARS:
                raise UsageError(
                    f"{_typed(flag)} from the web page may have {MOST_VALUE_CHARS:,} characters"
                )

    def _check_encryption(self, options: Any) -> None:
        """Keys of the command line are not sent to who only claims to be their server."""
        if not self._secrets_at_start:
            return

        for flag in WEAKER_TLS:
            value = getattr(options, flag)
            if value and value != self._at_start[flag]:
                raise UsageError(
                    f"{_typed(flag)} would send the keys of the command line to a server whose "
                    "certificate nobody has checked; give it there"
                )

    def _check_path(self, flag: Flag, value: str) -> None:
        name = flag.name
        kind = flag.kind
        if kind is Kind.DATA_SET and value.startswith("hf:"):
            if (
                not _HUB.fullmatch(value)
                or Path(value.removeprefix("hf:").partition(":")[0]).exists()
            ):
                raise UsageError(
                    f"{name} typed into the web page must be hf:OWNER/NAME[:split]"
                )

            return

        if kind is Kind.TIMES:
            if not value.strip().startswith(OF_FILE):
                return

            value = value.strip().removeprefix(OF_FILE)

        path = Path(value).resolve()
        if not path.is_relative_to(self._folder):
            raise UsageError(
                f"{name} typed into the web page must be inside {self._folder}; "
                "give it on the command line, or another --ui-folder"
            )

        if path.exists() and not (path.is_file() or path.is_dir()):
            raise UsageError(
                f"{name} typed into the web page must be a regular file or a folder"
            )
        if kind is Kind.XML_FILE and path.suffix != ".xml":
            raise UsageError(f"{name} typed into the web page must end in .xml")
        if kind is Kind.RUN_FOLDER and path.exists() and not (path / MANIFEST).exists():
            raise UsageError(f"{name} typed into the web page must be a new folder")

    def _hosts(self, host: str | None) -> set[str]:
        """The servers that a run with this host would use."""
        hosts = host or ""
        for user in self._environment.user_classes:
            hosts = hosts or getattr(user, "host", None) or ""

        urls = set()
        for url in split_hosts(hosts):
            try:
                urls.add(parse_url(url).url)
            except ValueError as error:
                raise UsageError(f"--host: {error}") from None

        return urls

    # ------------------------------------------------------------------ requests

    def _answer(
        self, environ: dict[str, Any], start_response: Callable[..., Any]
    ) -> Iterable[bytes]:
        """The WSGI application around Locust's."""
        reply = self._refusal(environ)
        if reply is not None:
            start_response(reply.status, [*reply.headers, ("Connection", "close")])
            return [reply.body]

        environ["HTTP_COOKIE"] = _own_cookies(environ.get("HTTP_COOKIE", ""))

        def start(status: str, headers: list[tuple[str, str]], *more: Any) -> Any:
            kept = [
                (name, value)
                for name, value in headers
                if not name.lower().startswith("access-control-")
            ]
            own = [
                ("X-Frame-Options", "SAMEORIGIN"),
                ("X-Content-Type-Options", "nosniff"),
            ]
            if self._token is not None:
                own += self._token.renewal(environ)
            return start_response(status, kept + own, *more)

        return self._inner(environ, start)

    def _refusal(self, environ: dict[str, Any]) -> Reply | None:
        """The answer to a request that the page does not get; None: it gets it. Nothing of its body
        has been read."""
        foreign = self._foreign(environ)
        if foreign is not None:
            return Reply("403 Forbidden", _PLAIN, foreign.encode())

        without_token = None if self._token is None else self._token.refusal(environ)
        if without_token is not None:
            return without_token

        too_large = _too_large(environ)
        if too_large is not None:
            status, sentence = too_large
            return Reply(status, _PLAIN, sentence.encode())

        return None

    def _foreign(self, environ: dict[str, Any]) -> str | None:
        """Why a request is refused; None if it comes from this page. (Programs other than browsers
        send no Origin.)"""
        host = environ.get("HTTP_HOST", "")
        if is_of_strangers(host, self._names):
            return (
                f"{printable(host)} is not a name of this page; "
                "start with --web-host-display-name http://NAME to use another"
            )

        origin = environ.get("HTTP_ORIGIN")
        if (
            origin is not None
            and origin.partition("://")[2].lower() != host.lower()
            and name_of(origin) not in self._named
        ):
            return f"requests from {printable(origin)} are refused"

        if environ.get("HTTP_SEC_FETCH_SITE", "same-origin") not in (
            "same-origin",
            "none",
        ):
            # A link of another page may lead here; its images, frames and scripts may not make this
            # process work.
            follows_link = (
                environ.get("HTTP_SEC_FETCH_MODE"),
                environ.get("HTTP_SEC_FETCH_DEST"),
            ) == ("navigate", "document")
            if environ["REQUEST_METHOD"] not in READS_STATE or not follows_link:
                return "requests from other pages are refused"

        return None

    def _refuse_hidden_settings(self) -> Any:
        """Refuse settings that the page does not show: Locust's handlers set any option and any
        attribute that is posted."""
        from flask import request

        checks = {
            "locust.swarm": self._hidden_fields,
            "locust.update_user": self._bad_user_settings,
        }
        check = checks.get(request.endpoint or "")
        if check is None or not self._is_logged_in() or (message := check()) is None:
            return None  # without a login Locust's own check answers, and nothing reads the body

        logger.error("%s", message)

        return {"success": False, "message": message}, 403

    def _is_logged_in(self) -> bool:
        from flask_login import current_user

        return not self._environment.web_ui.web_login or bool(
            current_user.is_authenticated
        )

    def _hidden_fields(self) -> str | None:
        from flask import request

        allowed = (
            LOCUSTS_FIELDS
            | KEYS
            | argument_parser.get_parser().args_included_in_web_ui.keys()
        )
        allowed -= argument_parser.default_args_dict().keys() - LOCUSTS_FIELDS
        hidden = sorted((vars(self._options).keys() & request.form.keys()) - allowed)

        return (
            f"{', '.join(hidden)} cannot be set from the web page" if hidden else None
        )

    def _bad_user_settings(self) -> str | None:
        """What is wrong with the settings of a user class that were posted."""
        from flask import request

        try:
            settings = decode_foreign(request.get_data())
        except ValueError:
            settings = None

        if not isinstance(settings, dict):
            return "the settings of a user class must be a JSON object"
        if hidden := sorted(settings.keys() - USER_SETTINGS):
            return f"{printable(', '.join(hidden))} of a user class cannot be set from the web page"

        name = settings.get("user_class_name")
        classes = self._environment.available_user_classes or {}
        tasks = self._environment.available_user_tasks or {}
        if not isinstance(name, str) or name not in classes:
            return "user_class_name must be the name of a user class"
        if "tasks" in settings and not _are_tasks(
            settings["tasks"], tasks.get(name, ())
        ):
            return f"tasks must be a list of the tasks of {name}"

        host = settings.get("host")
        if host is not None and not isinstance(host, str):
            return "host must be a URL"

        for field in ("weight", "fixed_count"):
            if field in settings and not _is_count(settings[field]):
                return f"{field} must be a number from 0 to {MOST_USERS:,}"

        return None


def _name_cookies(app: Any, port: int) -> None:
    """The cookies of a login (Flask's session, flask-login's memory), as that of the token is:
    browsers send them to every port of a host, and the recorder knows ours by their names."""
    for cookie in ("SESSION", "REMEMBER"):
        name = f"{COOKIE_OF_PAGES}{port}-{cookie.lower()}"
        app.config[f"{cookie}_COOKIE_NAME"] = name
        app.config[f"{cookie}_COOKIE_SAMESITE"] = "Strict"
        app.config[f"{cookie}_COOKIE_HTTPONLY"] = True


def _typed(dest: str) -> str:
    """The flag as one types it."""
    return f"--{dest.replace('_', '-')}"


def _are_tasks(chosen: object, tasks: Iterable[Any]) -> bool:
    """Whether these are names of these tasks."""
    if not isinstance(chosen, list):
        return False
    names = {task.__name__ for task in tasks}
    return all(isinstance(name, str) and name in names for name in chosen)


def _is_count(number: object) -> bool:
    if not isinstance(number, int | float) or isinstance(number, bool):
        return False
    return 0 <= number <= MOST_USERS


def _own_cookies(field: str) -> str:
    """A field Cookie with those of our pages alone: nothing behind here has to read the others."""
    pairs = []
    for name, value in cookies_of(field):
        if name.startswith(COOKIE_OF_PAGES):
            pairs.append(f"{name}={value}")
    return "; ".join(pairs)


def _too_large(environ: dict[str, Any]) -> tuple[str, str] | None:
    """The status and sentence for a request whose body is too large, or of a length that it does
    not give."""
    if environ.get("HTTP_TRANSFER_ENCODING"):
        return "411 Length Required", "send the body with a Content-Length"

    try:
        length = int(environ.get("CONTENT_LENGTH") or 0)
    except ValueError:
        return "400 Bad Request", "Content-Length must be a number"

    if length > MOST_BODY_BYTES:
        return (
            "413 Content Too Large",
            f"a body may have at most {MOST_BODY_BYTES:,} bytes",
        )

    return None


def _redact_response(response: Any) -> Any:
    if (
        response.is_streamed or response.direct_passthrough
    ):  # files of Locust's own page
        return response

    text = response.get_data()
    clean = redacted(text.decode("utf-8", "surrogateescape")).encode(
        "utf-8", "surrogateescape"
    )
    if clean != text:
        response.set_data(clean)

    return response


def _token_of(options: Any) -> PageToken:
    return PageToken(
        options.web_token,
        options.web_port,
        options.web_base_path or "",
        is_https=bool(options.tls_cert and options.tls_key),
    )


def _print_address(options: Any, token: PageToken) -> None:
    """Our page's URL, with its token if that was made up here. Not in the log, which goes to files
    and to the page."""
    name = options.web_host
    if name in ("", "*", "0.0.0.0", "::"):  # noqa: S104 - it is not bound here
        name = "localhost"
    elif ":" in name:
        name = f"[{name}]"

    scheme = "https" if options.tls_cert and options.tls_key else "http"
    base = (options.web_base_path or "").rstrip("/")
    page = f"{scheme}://{name}:{options.web_port}{base}/llm"
    if token.is_given:
        print_token(f"the page (its token is that of --web-token): {page}")
        return

    # on a line of its own, which fits into 80 columns
    print_token("the page opens with this URL, which has its token, or with Enter:")
    print_token(token.url(page))
    open_by_file(token.url(page))
