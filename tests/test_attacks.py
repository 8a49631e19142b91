"""Attempts to get past each door, by somebody who has the source: ten variations of each cause that
an earlier attack found.

They are cheap ones, at the functions that the doors are made of; what needs whole programs is in the
tests that SECURITY.md names.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import subprocess
import time
import urllib.parse
from collections.abc import Callable
from html import escape
from pathlib import Path
from typing import Any

import pytest

from llama_load.analysis.reports import conversation_prompts
from llama_load.analysis.results import results
from llama_load.analysis.results.results import analyze
from llama_load.ground.errors import RunError, UsageError
from llama_load.ground.own_modules import module_command
from llama_load.lab.flag_words import words_of
from llama_load.loadgen.dispatch.ledger import Ledger
from llama_load.loadgen.options.known_secrets import secrets_of_environment
from llama_load.loadgen.workloads.images import files as images_of
from llama_load.loadgen.workloads.text_files import text_files
from llama_load.loadgen.workloads.think_time import think_time
from llama_load.outside.bound_headers import OtherServerError, bearer, bound, origin_of
from llama_load.outside.budget import Budget, TooMuchWork
from llama_load.outside.foreign_files import read_foreign, read_foreign_json
from llama_load.outside.foreign_text import keep_secret, printable, redacted
from llama_load.outside.plain_http import Answer, LateError
from llama_load.page.page_token import PageToken
from llama_load.page.run_files import RunFiles
from llama_load.record import recorded_turns
from llama_load.record.recorded_turns import read_turns
from llama_load.run_folder import Run, RunWriter, StageRecord, load_run
from llama_load.run_folder.manifest import TargetFacts, read_manifest
from llama_load.run_folder.observed.record import RequestRecord
from llama_load.servers.address import parse_url
from llama_load.servers.json_schema import check_schema, schema_fault
from llama_load.servers.kinds import kind_named, server_controls
from llama_load.servers.token_blocks import MOST_UNANSWERED, ServerTokens
from tests.conftest import REPOSITORY
from tests.make_records import manifest, record

KEY = "sk-canary-0123456789"
OURS = "http://a:8080"

# ---------------------------------------------------------------------- 1: keys


@pytest.mark.parametrize(
    "asked",
    [
        "http://a:8080@evil",
        "http://a:8080@evil:8080/v1",
        "http://evil\\@a:8080",
        "http://a:8080\\@evil:8080",
        "http://a%2eevil:8080",
        "http://a\t.evil:8080",
        "http://a\uff0eevil:8080",
        "http://a:8080:8081",
        "http://a.:8080",
        "http://[a]:8080",
        "HTTPS://a:8080",
        "http://a\x00:8080",
    ],
)
def test_a_url_that_is_read_in_two_ways_gets_no_key(asked: str) -> None:
    """What looks like our server in one reading and is another in the next."""
    try:
        connects_to = parse_url(asked).host
    except ValueError:
        connects_to = ""
    try:
        fields = bound(OURS, bearer(KEY)).for_origin(origin_of(asked))
    except OtherServerError as told:
        assert KEY not in str(told)
        return
    assert not fields or connects_to in {"a", ""}


# ---------------------------------------------------------------------- 2: the page's token

TOKEN = "a-token-of-the-page-1"


def request(**environ: str) -> dict[str, Any]:
    return {"REQUEST_METHOD": "GET", "PATH_INFO": "/"} | environ


@pytest.mark.parametrize(
    "environ",
    [
        request(QUERY_STRING="token="),
        request(QUERY_STRING="token=%00"),
        request(QUERY_STRING=f"token={TOKEN}&token=x"),
        request(QUERY_STRING=f"TOKEN={TOKEN}"),
        request(QUERY_STRING="&".join(["token=a"] * 5000)),
        request(QUERY_STRING=f"token={TOKEN}", REQUEST_METHOD="POST"),
        request(HTTP_AUTHORIZATION=f"bearer {TOKEN}"),
        request(HTTP_AUTHORIZATION=f"Bearer {TOKEN}\udcff"),
        request(HTTP_AUTHORIZATION="Bearer " + "\u00e4" * 20),
        request(PATH_INFO="/health", REQUEST_METHOD="POST"),
        request(PATH_INFO="/health/../api/live"),
        request(PATH_INFO="//health"),
        request(PATH_INFO="/health;x"),
        request(HTTP_COOKIE="{name}=99999999999."),
        request(HTTP_COOKIE="{name}=nan." + "0" * 64),
        request(HTTP_COOKIE="{name}=" + "9" * 6000 + "." + "0" * 64),
        request(HTTP_COOKIE='{name}="\\377\\000"; {name}=1.1'),
        request(HTTP_COOKIE="{name}=\u0661." + "\u00e4" * 64),
    ],
)
def test_what_is_not_quite_the_token_opens_nothing(environ: dict[str, Any]) -> None:
    """The cookie's name is no secret: it may have been seen."""
    page = PageToken(TOKEN, 8089)
    if "HTTP_COOKIE" in environ:
        environ["HTTP_COOKIE"] = environ["HTTP_COOKIE"].replace("{name}", page._cookie)
    refusal = page.refusal(environ)
    assert refusal is not None
    assert refusal.status.startswith("401")
    assert page.renewal(environ) == ()


@pytest.mark.parametrize("way", ["later end", "other page", "other port", "no mark"])
def test_a_changed_cookie_opens_nothing(way: str) -> None:
    """One that was right: with a later end, of another page or port, or without its mark."""
    page = PageToken(TOKEN, 8089)
    other = PageToken(TOKEN, 8089 if way == "other page" else 8090)
    name, _, value = page._new_cookie()[1].partition(";")[0].partition("=")
    end, _, mark = value.partition(".")
    if way == "later end":
        value = f"{int(end) + 1}.{mark}"
    elif way == "no mark":
        value = f"{end}."
    else:
        value = other._new_cookie()[1].partition(";")[0].partition("=")[2]
    refusal = page.refusal(request(HTTP_COOKIE=f"{name}={value}"))
    assert refusal is not None
    assert refusal.status.startswith("401")


# ---------------------------------------------------------------------- 3: checked work

MANY = 20_000
NUMBERS = json.dumps(list(range(MANY)))
SCHEMAS: dict[str, tuple[dict[str, Any], str]] = {
    "dynamicRef to itself": (
        {"$dynamicAnchor": "x", "allOf": [{"$dynamicRef": "#x"}] * 4},
        "1",
    ),
    "oneOf of itself": ({"oneOf": [{"items": {"$ref": "#"}}] * 6}, "[" * 60 + "]" * 60),
    "not of not": ({"items": {"not": {"allOf": [{"$ref": "#"}] * 3}}}, "[" * 60 + "]" * 60),
    "dependentSchemas": (
        {"dependentSchemas": {str(name): {"$ref": "#/x"} for name in range(2000)}}
        | {"x": {"enum": [NUMBERS]}},
        json.dumps({str(name): "x" * 1000 for name in range(500)}),
    ),
    "prefixItems": ({"prefixItems": [{"enum": list(range(200))}] * 1000}, NUMBERS),
    "propertyNames": (
        {"propertyNames": {"enum": ["x" * 50] * 2000}},
        json.dumps({str(name): 0 for name in range(MANY)}),
    ),
    "minContains": (
        {"contains": {"contains": {"type": "null"}}, "minContains": 10**9},
        json.dumps([[1] * 200] * 200),
    ),
    "multipleOf": (
        {"items": {"allOf": [{"multipleOf": 1e-300}] * 50}},
        json.dumps([1.7e308] * 5000),
    ),
    "many identifiers": (
        {
            "$defs": {str(name): {"$id": f"http://x/{name}"} for name in range(1000)},
            "items": {"allOf": [{"$ref": f"http://x/{name}"} for name in range(50)]},
        },
        NUMBERS,
    ),
    "a long pointer": ({"items": {"$ref": "#" + "/items" * 5000}}, "[[[1]]]"),
    "escaped pointers": ({"items": {"$ref": "#/" + "~1" * 50_000}}, NUMBERS),
    "required of many": (
        {"items": {"required": [str(name) for name in range(5000)]}},
        json.dumps([{}] * 5000),
    ),
    "dependentRequired": (
        {"items": {"dependentRequired": {"a": [str(name) for name in range(5000)]}}},
        json.dumps([{"a": 1}] * 5000),
    ),
    "if of if": (
        {"if": {"items": {"$ref": "#"}}, "then": {"items": {"$ref": "#"}}, "else": {"items": {"$ref": "#"}}},
        "[" * 60 + "]" * 60,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", SCHEMAS)
def test_no_schema_takes_long(name: str) -> None:
    """Whether it is refused or checked: in seconds, on a busy machine."""
    schema, answer = SCHEMAS[name]
    text = json.dumps(schema)
    began = time.process_time()
    try:
        check_schema(text)
        schema_fault(text, answer)
    except (UsageError, TooMuchWork):
        pass
    assert time.process_time() - began < 15


def test_looking_for_an_identifier_costs_a_step_a_part_of_the_schema() -> None:
    """Each of 50 references walks over the 1000 parts: a step was counted for each reference."""
    schema, _ = SCHEMAS["many identifiers"]
    with pytest.raises(TooMuchWork):
        schema_fault(json.dumps(schema), "[1]", Budget(50 * 1000))


# ---------------------------------------------------------------------- 6: files


def hole(size: int) -> Callable[[Path], None]:
    return lambda file: os.truncate(file, size)


def content(data: bytes) -> Callable[[Path], None]:
    def write(file: Path) -> None:
        file.write_bytes(data)

    return write


FILES: dict[str, Callable[[Path], None]] = {
    "sparse": hole(1 << 40),
    "as large as can be": hole((1 << 43) - 1),
    "levels of lists": content(b"[" * 100_000),
    "levels of objects": content(b'{"a":' * 100_000),
    "levels behind a text": content(b'{"a": "\\\\", "b": ' + b"[" * 5000),
    "levels behind a half text": content(b'{"a": "\\"[", "b": ' + b"[" * 5000),
    "a number of a million digits": content(b'{"a": ' + b"9" * 1_000_000 + b"}"),
    "a million keys": content(b'{"a": [' + b"{}," * 10_000_000 + b"{}]}"),
    "lone surrogates": content(b'{"a": "\\ud800"}' + b"\xff\xfe"),
    "UTF-32": content('{"a": 1}'.encode("utf-32")),
    "NaN": content(b'{"a": NaN, "b": 1e999}'),
    "nothing": content(b""),
}


@pytest.mark.parametrize("name", FILES)
def test_no_file_of_json_is_more_than_a_sentence(name: str, tmp_path: Path) -> None:
    file = tmp_path / "summary.json"
    file.touch()
    FILES[name](file)
    began = time.process_time()
    with pytest.raises(ValueError, match=r"\w"):
        read_foreign_json(file)
    assert time.process_time() - began < 5


@pytest.mark.parametrize(
    "path", ["/dev/zero", "/proc/self/mem", "/dev/urandom", "/dev/full", "/"]
)
def test_what_is_no_file_is_not_read(path: str) -> None:
    """A device, memory, a folder."""
    with pytest.raises(OSError, match=r"\w"):
        read_foreign(Path(path))


def test_a_pipe_is_not_read() -> None:
    """As /dev/stdin is one, behind another program."""
    ends = os.pipe()
    try:
        with pytest.raises(OSError, match=r"\w"):
            read_foreign(Path(f"/dev/fd/{ends[0]}"))
    finally:
        for end in ends:
            os.close(end)


@pytest.mark.parametrize(
    "text",
    ["1e300", "inf", "nan", "-1", "uniform:1,1e308", "uniform:nan,1", "lognormal:1e308,1e308", "lognormal:0,1", "constant:1_000_000_000", "1e6, 2", "uniform:5,1", "file:/dev/zero"],
)  # fmt: skip
def test_no_think_time_is_longer_than_a_run(text: str) -> None:
    with pytest.raises(UsageError):
        think_time(text)


# ---------------------------------------------------------------------- 7: links


def outside(tmp_path: Path) -> Path:
    folder = tmp_path / "secrets"
    folder.mkdir()
    (folder / "a.txt").write_text("-----BEGIN PRIVATE KEY-----")
    return folder


LINKS: dict[str, Callable[[Path, Path], None]] = {
    "up and down": lambda folder, out: (folder / "a.txt").symlink_to(
        f"../{folder.name}/../{out.name}/a.txt"
    ),
    "through /proc": lambda folder, out: (folder / "a.txt").symlink_to(
        f"/proc/self/root{out}/a.txt"
    ),
    "of the working directory": lambda folder, out: (folder / "a.txt").symlink_to(
        f"/proc/self/cwd/../../../../../..{out}/a.txt"
    ),
    "a folder": lambda folder, out: (folder / "b").symlink_to(out),
    "a folder below": lambda folder, out: (folder / "b/../c.txt").symlink_to(
        out / "a.txt"
    ),
    "a sibling that begins alike": lambda folder, out: (folder / "a.txt").symlink_to(
        out.rename(folder.with_name(folder.name + "-2")) / "a.txt"
    ),
    "ten links": lambda folder, out: _chain(folder, out / "a.txt"),
    "with blanks": lambda folder, out: (folder / " a.txt").symlink_to(out / "a.txt"),
    "with a line end": lambda folder, out: (folder / "a\n.txt").symlink_to(
        out / "a.txt"
    ),
    "among files": lambda folder, out: (folder / "z.txt").symlink_to(out / "a.txt"),
}


def _chain(folder: Path, target: Path) -> None:
    for number in range(10):
        link = folder / f"link{number}.txt"
        link.symlink_to(target)
        target = link


@pytest.mark.parametrize("name", LINKS)
def test_no_link_leads_out_of_a_folder_of_documents(name: str, tmp_path: Path) -> None:
    folder = tmp_path / "documents"
    (folder / "b").mkdir(parents=True) if "below" in name else folder.mkdir()
    (folder / "first.txt").write_text("harmless")
    LINKS[name](folder, outside(tmp_path))
    try:
        texts = [file.text for file in text_files(folder, 0)]
    except UsageError as told:
        assert "leads out of" in str(told)
        return
    # a folder that is a link is not entered
    assert texts == ["harmless"]


# ---------------------------------------------------------------------- 8: secrets


@pytest.fixture
def secret() -> str:
    keep_secret([KEY])
    return KEY


FORMS: dict[str, Callable[[str], str]] = {
    "as it is": str,
    "in a URL": lambda key: urllib.parse.quote(key, safe=""),
    "each octet in a URL": lambda key: "".join(f"%{octet:02X}" for octet in key.encode()),
    "twice in a URL": lambda key: "".join(f"%25{octet:02x}" for octet in key.encode()),
    "JSON's numbers": lambda key: "".join(f"\\u{ord(each):04X}" for each in key),
    "JSON in JSON": lambda key: json.dumps(json.dumps("".join(f"\\u{ord(each):04x}" for each in key))),
    "Python's numbers": lambda key: "".join(f"\\x{ord(each):02x}" for each in key),
    "HTML's numbers": lambda key: "".join(f"&#x{ord(each):X};" for each in key),
    "HTML of HTML": lambda key: escape("".join(f"&#{ord(each)};" for each in key)),
    "hex": lambda key: key.encode().hex().upper(),
    "base64": lambda key: base64.b64encode(key.encode()).decode(),
    "base64 behind a user": lambda key: base64.b64encode(f"me:{key}".encode()).decode(),
    "base64 of a line": lambda key: base64.urlsafe_b64encode(f"{key}\n".encode()).decode(),
    "a table's cell": lambda key: f"{key[:7]} │\n│ {key[7:]}",
    "in two colours": lambda key: f"{key[:10]}\x1b[36m{key[10:15]}\x1b[0m{key[15:]}",
    "with marks for breaks": "\u00ad".join,
    "with breaks of no width": "\u200b".join,
    "a half of it escaped": lambda key: urllib.parse.quote(key[:5]) + "".join(f"\\u{ord(each):04x}" for each in key[5:]),
    "very long text around it": lambda key: "x" * 11_990 + key + "y" * 9000,
    "repeated": lambda key: key * 3,
}  # fmt: skip


@pytest.mark.parametrize("name", FORMS)
def test_no_form_of_a_key_is_printed(name: str, secret: str) -> None:
    """Whatever a server, a file or a peer makes of it."""
    form = FORMS[name](secret)
    for shown in (redacted(form), redacted(f"x{form}x"), printable(form)):
        assert secret[4:] not in shown
        assert form[2:] not in shown


# ---------------------------------------------------------------------- 9: inputs of the action

INPUTS = ("URL", "BASE_URL", "USERS", "REQUESTS", "REPEATS", "PROGRAM", "MODEL")
EXPRESSIONS = (
    "BASH_VERSINFO[$(touch pwned)]",
    "$(touch pwned)",
    "`touch pwned`",
    "1;touch pwned",
    "1\ntouch pwned",
    "a[$(touch pwned)]",
    "-e$(touch pwned)",
    "$((a[$(touch pwned)]))",
    "%n\x1b[2J",
    "1 || touch pwned",
    "0x10",
    "\u0661",
    "9" * 5000,
)


@pytest.mark.parametrize("value", EXPRESSIONS)
def test_no_input_of_the_action_runs_a_command(value: str, tmp_path: Path) -> None:
    """Each input with each value; numbers are refused, what may be any text is only text."""
    good = {"USERS": "1", "REQUESTS": "1", "REPEATS": "1"}
    for name in INPUTS:
        script = f'source "{REPOSITORY}/action/inputs.sh" && echo $((REPEATS + USERS + REQUESTS))'
        done = subprocess.run(
            ["bash", "-c", script],
            cwd=tmp_path,
            env={"PATH": os.environ["PATH"]} | good | {name: value},
            capture_output=True,
            text=True,
            check=False,
            timeout=30,
        )
        assert not (tmp_path / "pwned").exists()
        if name in good:
            assert done.returncode == 2, (name, done.stdout)
        assert "\x1b" not in done.stderr


@pytest.mark.parametrize("count", [200])
def test_an_image_folder_of_links_is_refused(count: int, tmp_path: Path) -> None:
    folder = tmp_path / "images"
    folder.mkdir()
    for number in range(count):
        (folder / f"{number}.png").symlink_to("/etc/passwd")
    with pytest.raises(UsageError, match="leads out of"):
        images_of(folder)


# ---------------------------------------------------------------------- 11: the working directory


def test_no_module_of_ours_is_imported_from_the_working_directory(
    tmp_path: Path,
) -> None:
    for name in ("json", "msgspec", "locust", "llama_load"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit(99)\n")

    environment = os.environ | {"PYTHONPATH": str(REPOSITORY)}
    command = module_command("llama_load.cli.main", "--version")
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, check=False
    )
    assert done.returncode == 0


def test_modules_are_started_through_one_door() -> None:
    """`module_command`: what names this Python and `-m` elsewhere imports from where it stands."""
    package = REPOSITORY / "llama_load"
    others = set()
    for path in package.rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        if "sys.executable," in text:
            others.add(str(path.relative_to(package)))
    assert others == {"ground/own_modules.py"}


@pytest.mark.parametrize(
    "given",
    [
        {"header": f"Authorization: Bearer {KEY}"},
        {"header": [f"X-Team: {KEY}", f"X-Other: {KEY}, and more"]},
        {"api_key": KEY},
        {"api_k": KEY},  # the command line takes the beginning of a name
        {"swarm_key": KEY},
        {"web_token": KEY},
        {"scrape_token": KEY},
        {"extra_body": json.dumps({"api_key": KEY})},
        {"upload": f"s3://me:{KEY}@place/path"},
    ],
    ids=str,
)
def test_no_secret_of_a_python_program_is_in_a_list_of_processes(
    given: dict[str, object],
) -> None:
    """As a word of the command that `llama_load.run` starts, every user could read it."""
    words, variables = words_of({"users": 2, **given})
    assert words == ["--users", "2"]
    assert KEY in " ".join(variables.values())
    assert KEY not in printable(f"an answer that quotes {KEY}")
    for name, value in given.items():
        if isinstance(value, list):
            assert json.loads(variables[f"LLAMA_LOAD_{name.upper()}"]) == value
            found = secrets_of_environment(variables)
            assert f"{KEY}, and more" in [each.strip() for each in found]


# ---------------------------------------------------------------------- 12: other types than ours


@pytest.mark.parametrize("name", sorted(TargetFacts.__annotations__))
@pytest.mark.parametrize("odd", [[1], {"a": 1}, -1.5, 10**400], ids=str)
def test_a_server_of_a_run_of_others_has_the_types_of_ours(
    name: str, odd: object, tmp_path: Path
) -> None:
    RunWriter(tmp_path / "run", manifest(targets=[{"url": "http://h"}])).release()
    file = tmp_path / "run" / "run.json"
    about = json.loads(file.read_text())
    about["targets"][0][name] = odd
    file.write_text(json.dumps(about))
    with pytest.raises(RunError, match=r"run\.json cannot be read"):
        read_manifest(tmp_path / "run")


def turn(**fields: object) -> str:
    tokens = ("prompt_tokens", "cacheable_tokens", "cached_tokens", "again_tokens")
    return json.dumps(
        {"conversation": "c", "turn": 2} | dict.fromkeys(tokens, 1) | fields
    )


def test_turns_of_others_are_shown_within_limits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cause that is none of ours, and more turns than anybody reads or records."""
    file = tmp_path / "a.turns.jsonl"
    file.write_text(turn(cause="\x1b[2J") + "\n" + turn() + "\n")
    turns = [each.turn for each in read_turns(file)]
    monkeypatch.setattr(conversation_prompts, "MOST_TURNS", 1)
    lines = list(conversation_prompts.turns_lines(turns, None, no_texts, ""))
    assert "\x1b" not in "".join(map(printable, lines)) and len(lines) == 4

    monkeypatch.setattr(recorded_turns, "MOST_REQUESTS", 1)
    with pytest.raises(UsageError, match="more than 1 turns"):
        read_turns(file)


def no_texts(_: object) -> conversation_prompts.TurnTexts:
    return conversation_prompts.TurnTexts()


# ---------------------------------------------------------------------- 13: servers that keep waiting


class Silent:
    """A session with a server that takes each question and answers none."""

    def __init__(self) -> None:
        self.asked = 0

    def post(self, url: str, value: object, *, within_s: float) -> Answer:
        self.asked += 1
        raise LateError(f"no complete answer within {within_s:g} s")


def test_a_server_that_answers_nothing_is_not_asked_for_every_prompt() -> None:
    """Each question waits a minute: those of a log would take months."""
    session = Silent()
    tokens = ServerTokens(session, "http://h")  # type: ignore[arg-type]
    for _ in range(100):
        assert tokens.prompt({"messages": [{"role": "user", "content": "a"}]}) is None
    assert session.asked == MOST_UNANSWERED


class Slow:
    """A session with a server of many slots, which answers just before each deadline."""

    def __init__(self) -> None:
        self.waited_s = 0.0

    def get(self, url: str, *, within_s: float) -> Answer:
        slots = [{"id": number} for number in range(1000)]
        return Answer(200, content=json.dumps(slots).encode())

    def post(self, url: str, value: object, *, within_s: float) -> Answer:
        self.waited_s += within_s / 2
        return Answer(200)


def test_all_slots_of_a_server_have_one_time(monkeypatch: pytest.MonkeyPatch) -> None:
    session = Slow()
    monkeypatch.setattr(server_controls.time, "monotonic", lambda: session.waited_s)
    kind = kind_named("llama-server")
    assert not kind.reset_cache(session, "http://h")  # type: ignore[arg-type]
    assert session.waited_s <= server_controls.TIMEOUT_S + 1000 * 0.01


# ---------------------------------------------------------------------- 14: names of folders


@pytest.mark.parametrize(
    "name", ["a\u202eb", "a\nb", "a\x1b[2Jb", "a\u200fb", "a\x00", ""]
)
def test_no_folder_with_the_looks_of_another_is_listed(
    name: str, tmp_path: Path
) -> None:
    with contextlib.suppress(ValueError):
        RunWriter(tmp_path / f"{name}", manifest()).release()
    RunWriter(tmp_path / "good & <b>", manifest()).release()
    files = RunFiles(tmp_path, {})
    assert files.names() == ["good & <b>"]
    assert files.folder(name) is None


# ---------------------------------------------------------------------- 15: what workers name


def test_no_worker_names_so_many_requests_that_the_master_stands_still() -> None:
    """All at its end, and then again as those that it holds: as many steps, not their square."""
    named = [(False, number) for number in range(50_000)]
    ledger = Ledger()
    ledger.join("stranger")
    begun_s = time.process_time()
    ledger.give_up("stranger", named)
    ledger.reconcile("stranger", 0, named, {}, [])
    assert ledger.in_flight == len(named)
    assert ledger.record_stored("stranger", (False, 7)) is False
    assert not ledger.accepts_record("stranger", (False, 7))
    assert time.process_time() - begun_s < 60


# ---------------------------------------------------------------------- 16: secrets of a container


@pytest.mark.parametrize("kind", ["a folder", "empty", "no secret", "a secret"])
def test_no_container_runs_without_a_key_that_was_meant(
    kind: str, tmp_path: Path
) -> None:
    """Docker makes a folder in place of a file that is not there: the master was open to anybody."""
    script = (REPOSITORY / "docker" / "entrypoint.sh").read_text(encoding="utf-8")
    (tmp_path / "run.sh").write_text(script.replace("/run/secrets", str(tmp_path)))
    secret = tmp_path / "swarm_key"
    if kind == "a folder":
        secret.mkdir()
    elif kind == "empty":
        secret.touch()
    elif kind == "a secret":
        secret.write_text("$(id) `id`\n")
    (tmp_path / "api_key").symlink_to("/dev/null")
    words = [
        "sh",
        str(tmp_path / "run.sh"),
        "sh",
        "-c",
        'echo "[$LLAMA_LOAD_SWARM_KEY]"',
    ]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    said = {"no secret": (0, "[]"), "a secret": (0, "[$(id) `id`]")}
    assert (done.returncode, done.stdout.strip()) == said.get(kind, (2, ""))


# ---------------------------------------------------------------------- 17: numbers in run folders


def run_of_others(folder: Path, records: list[RequestRecord], **about: Any) -> Run:
    writer = RunWriter(folder / "run", manifest(num_prompts=len(records), **about))
    writer.append(records)
    writer.finish()
    writer.release()
    return load_run(folder / "run")


YEARS_MS = 4e12  # 126 years


@pytest.mark.parametrize(
    "far",
    [
        {"start_ms": YEARS_MS},
        {"start_ms": -YEARS_MS},
        {"first_ms": YEARS_MS},
        {"gaps_ms": (YEARS_MS, 20)},
    ],
)
def test_instants_a_century_apart_take_no_memory(
    far: dict[str, Any], tmp_path: Path
) -> None:
    """Tokens were counted in steps of 10 ms of the whole time: 3 TB."""
    records = [record(index, start_ms=30 * index) for index in range(20)]
    found = analyze(run_of_others(tmp_path, [*records, record(99, **far)]))
    assert found.total.completed == 21


STAGES = [StageRecord(f"s{number}", users=1) for number in range(2000)]
TARGETS = [{"url": f"http://h{number}"} for number in range(2000)]
CHANGES = [f"change {number}" for number in range(2000)]


@pytest.mark.parametrize(
    "about", [{"stages": STAGES}, {"targets": TARGETS}, {"server_changes": CHANGES}]
)
def test_a_run_of_too_many_parts_is_refused(
    about: dict[str, Any], tmp_path: Path
) -> None:
    run = run_of_others(tmp_path, [record(0), record(1)], **about)
    with pytest.raises(RunError, match="over the limit of 1000"):
        analyze(run)


@pytest.mark.parametrize("column", ["host", "workload"])
def test_records_of_too_many_parts_are_refused(column: str, tmp_path: Path) -> None:
    records = [record(index, **{column: f"http://h{index}"}) for index in range(1001)]
    with pytest.raises(RunError, match="over the limit of 1000"):
        analyze(run_of_others(tmp_path, records))


def test_figures_by_turn_are_of_the_first_turns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(results, "MOST_TURNS", 3)
    records = [record(index, conversation="c", turn=index + 1) for index in range(9)]
    found = analyze(run_of_others(tmp_path, records))
    assert list(found.by_turn) == [1, 2, 3]
    assert found.total.completed == 9
