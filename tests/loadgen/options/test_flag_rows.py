"""Each flag's row: a path or a secret cannot slip onto the page, into a manifest or past the
guard."""

from __future__ import annotations

import dataclasses
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from locust.argument_parser import get_empty_argument_parser

from llama_load.ground.errors import UsageError
from llama_load.loadgen.options.flag import GROUPS, LOAD, PAGE_PATHS, Flag, Kind
from llama_load.loadgen.options.flag_reader import FlagReader
from llama_load.loadgen.options.flags import FLAGS, declare
from llama_load.loadgen.options.form import fields
from llama_load.loadgen.options.options import read_options
from llama_load.loadgen.options.secret_flags import (
    redact_command,
    redact_options,
    secret_values,
)
from llama_load.loadgen.options.sections.locust_section import OF_LOCUST
from llama_load.outside.command_secrets import is_secret_header
from llama_load.outside.foreign_text import MASK, is_secret_name, redacted

PATHS = {*PAGE_PATHS, Kind.FOLDER}
# Flags that take no file although their help names one.
SPEAK_OF_FILES = {"--fail-if", "--upload"}
SENTINEL = "sentinel-0123456789"
PLANTED = """
from gevent import monkey
monkey.patch_all()
from types import SimpleNamespace
from llama_load.loadgen.options import flags
from llama_load.loadgen.options.flag import LOAD, Flag, Kind
names = {kind: f"--planted-{kind.name.lower().replace('_', '-')}" for kind in Kind}
flags.FLAGS += tuple(Flag(name, kind, LOAD, "", "a flag", repeated=kind is Kind.HEADER) for kind, name in names.items())
from llama_load.ground.errors import UsageError
from llama_load.loadgen.options.flag_reader import FlagReader
from llama_load.loadgen.options.form import fields
from llama_load.loadgen.options.options import read_options
from llama_load.loadgen.options.secret_flags import secret_values, redact_options, redact_command
from llama_load.page.guard import KEYS, PATHS, WebGuard
shown = {field.label for group in fields([], [], keys=True).values() for field in group}
def is_refused(flag):
    guard = WebGuard.__new__(WebGuard)
    from pathlib import Path
    guard._folder = Path("/nowhere-at-all")
    try:
        guard._check_path(flag, "/etc/passwd")
    except UsageError:
        return True
    return False
for kind, name in names.items():
    flag = next(flag for flag in flags.FLAGS if flag.name == name)
    SECRET = "canary-" + kind.name + "-0123456789"
    text = {Kind.HEADER: "X-A: " + SECRET, Kind.JSON: '{"api_key": "' + SECRET + '"}', Kind.DESTINATION: "s3://me:" + SECRET + "@b/c"}
    value = text.get(kind, SECRET)
    given = SimpleNamespace(**{flag.dest: [value] if flag.repeated else value})
    is_masked = SECRET not in str(redact_command(["locust", name, value, f"{name}={value}"]))  # before it is known
    known, to_servers = (SECRET in secret_values(FlagReader(given), for_servers=servers) for servers in (False, True))
    kept = read_options(given).given_flags
    words = {
        "on-page": name in shown,
        "guarded": flag.dest in PATHS and is_refused(flag),
        "known": known,
        "for-servers": to_servers,
        "masked": is_masked,
        "not-sent": SECRET not in str(redact_options(vars(given))),
        "not-in-manifest": flag.dest not in kept,
        "masked-in-manifest": flag.dest in kept and SECRET not in str(kept),
    }
    assert (flag.dest in KEYS) is (flag.on_page and flag.secret)
    print(kind.name, *(word for word, holds in words.items() if holds))
"""


def paths_in(value: Any) -> Iterator[Path]:
    if isinstance(value, Path):
        yield value
    elif dataclasses.is_dataclass(value):
        for field in dataclasses.fields(value):
            yield from paths_in(getattr(value, field.name))
    elif isinstance(value, list | tuple | set | frozenset):
        for each in value:
            yield from paths_in(each)
    elif isinstance(value, dict):
        yield from paths_in(list(value.values()))


@pytest.mark.parametrize("flag", FLAGS, ids=lambda flag: flag.dest)
def test_what_becomes_a_path_has_the_kind_of_a_path(flag: Flag) -> None:
    try:
        options = read_options(
            SimpleNamespace(**{flag.dest: [SENTINEL] if flag.repeated else SENTINEL})
        )
    except UsageError:
        return  # a flag that refuses a file name takes none, or is --ca-file
    if any(SENTINEL in str(path) for path in paths_in(options)):
        assert flag.kind in PATHS


@pytest.mark.parametrize("flag", FLAGS, ids=lambda flag: flag.dest)
def test_a_flag_with_the_name_or_help_of_a_path_or_secret_has_its_kind(
    flag: Flag,
) -> None:
    assert flag.secret or not is_secret_name(flag.dest)
    names_file = (
        re.search(
            r"\b(file|folder|path|[Cc]ertificates)\b|\.(json|xml|pem)\b", flag.help
        )
        and flag.name not in SPEAK_OF_FILES
    )
    assert (
        flag.kind in PATHS
        or not (names_file or re.search(r"_(dir|path|file|folder)$", flag.dest))
        or flag.switch
    )


@pytest.mark.parametrize(
    "kind", [*(kind for kind in Kind if kind not in PAGE_PATHS), None], ids=str
)
def test_a_kind_without_a_check_is_not_on_the_page(kind: Any) -> None:
    """Fail closed: also a kind that nobody knows."""
    may = {
        *(Kind.TEXT, Kind.NAME, Kind.NUMBER, Kind.EXPRESSION, Kind.JSON),
        *(Kind.CHOICE, Kind.SWITCH),
    }
    may |= {Kind.SERVERS, Kind.SERVER_KEY, Kind.HEADER}
    assert Flag("--new", kind, LOAD, "", "x").on_page is (kind in may)
    assert Flag("--new", kind, None, "", "x").on_page is False


def test_the_page_shows_what_the_rows_allow_and_no_key() -> None:
    parser = get_empty_argument_parser()
    declare(parser)
    ours = {flag.dest for flag in FLAGS}
    assert parser.args_included_in_web_ui.keys() & ours == {
        flag.dest for flag in FLAGS if flag.on_page and not flag.secret
    }
    for keys in (False, True):
        shown = {
            field.name
            for group in fields([], [], keys=keys).values()
            for field in group
        } - {flag.dest for flag in OF_LOCUST}
        assert shown == {
            flag.dest for flag in FLAGS if flag.on_page and (keys or not flag.secret)
        }
    assert all(flag.group in GROUPS for flag in FLAGS if flag.on_page)


def test_a_planted_flag_of_every_kind_is_treated_by_its_kind() -> None:
    """Rows added to the table alone: whatever a new flag is called, page, guard and redaction go by
    its kind. In a process of its own, which reads the table with these rows."""
    shown = subprocess.run(
        [sys.executable, "-c", PLANTED], capture_output=True, text=True, check=True
    ).stdout
    answers = {name: set(words) for name, *words in map(str.split, shown.splitlines())}
    paths, secrets = (
        {"INPUT", "DATA_SET", "RUN_FOLDER", "XML_FILE"},
        {"SERVER_KEY", "HEADER", "SECRET"},
    )
    hidden = {"FOLDER", "SECRET", "ADDRESS", "DESTINATION", "COMMAND"}
    for kind in Kind:
        expected = {"on-page"} - ({"on-page"} if kind.name in hidden else set())
        expected |= {"guarded"} if kind.name in paths else set()
        expected |= (
            {"masked", "not-sent", "known", "not-in-manifest"}
            if kind.name in secrets
            else set()
        )
        expected |= (
            {"masked", "not-sent", "known", "masked-in-manifest"}
            if kind.name in ("JSON", "DESTINATION")
            else set()
        )
        expected |= (
            {"for-servers"} if kind.name in ("SERVER_KEY", "HEADER", "JSON") else set()
        )
        if kind is Kind.DESTINATION:
            expected -= {"masked-in-manifest"}
        assert answers[kind.name] == expected, kind


@pytest.mark.parametrize(
    "flag", [flag for flag in FLAGS if flag.secret], ids=lambda flag: flag.dest
)
def test_a_secret_is_masked_everywhere(flag: Flag) -> None:
    secret = f"canary-{flag.dest}-0123456789"
    text = f"X-Anything: {secret}" if flag.repeated else secret
    given = SimpleNamespace(**{flag.dest: [text] if flag.repeated else text})
    options = read_options(given)
    assert secret in secret_values(FlagReader(given))
    assert (secret in secret_values(FlagReader(given), for_servers=True)) is (
        flag.kind in (Kind.SERVER_KEY, Kind.HEADER)
    )
    assert secret not in str(options.given_flags) and secret not in str(
        redact_options(vars(given))
    )
    assert secret not in str(
        redact_command(["locust", flag.name, text, f"{flag.name}={text}"])
    )
    assert redacted(f"the server answers: {secret}!") == f"the server answers: {MASK}!"


@pytest.mark.parametrize(
    "name",
    [
        "X-Jwt",
        "X-Team",
        "Ocp-Apim-Subscription",
        "Ocp-Apim-Subscription-Id",
        "X-Api-Key",
        "Host",
        "New",
    ],
)
def test_the_value_of_a_header_is_a_key_whatever_its_name(name: str) -> None:
    """Only some names were keys: X-Jwt went to a host typed into the page, to workers, and into
    reports."""
    assert is_secret_header(name, "abcdef0123")
    given = SimpleNamespace(header=[f"{name}: canary-{name}-0123"])
    assert secret_values(FlagReader(given), for_servers=True) == [f"canary-{name}-0123"]
    read_options(given)
    assert redacted(f"canary-{name}-0123") == MASK


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(
            ("Content-Type", "application/json"),
            ("user-agent", "curl/8"),
            ("ACCEPT", "text/event-stream"),
        ),
        *(
            ("X-Session", "{conversation}"),
            ("X-User", "{worker}/{user}-{prompt}"),
            ("X-Empty", ""),
        ),
    ],
)
def test_harmless_headers_are_no_keys(name: str, value: str) -> None:
    """Those of a short list, and values made of fields alone."""
    assert not is_secret_header(name, value)


def test_what_is_only_reported_is_not_among_the_settings_of_a_run() -> None:
    options = read_options(
        SimpleNamespace(label="a", lang="zh", fail_if=["failed>3"], seed="3")
    ).given_flags
    assert (
        options["seed"] == "3"
        and not {"label", "lang", "fail_if", "run_dir"} & options.keys()
    )


def test_too_many_percentiles_are_refused_before_the_run() -> None:
    """Its run.json could not be read."""
    with pytest.raises(UsageError, match="at most 100 numbers, got 101"):
        read_options(SimpleNamespace(metric_percentiles=",".join(["50"] * 101)))
