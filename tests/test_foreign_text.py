"""Nothing that a server, a file or a peer says controls a terminal, forges a line or carries a key
into an output."""

from __future__ import annotations

import base64
import html
import json
import re
import subprocess
import sys
import unicodedata
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from urllib.parse import quote, quote_plus
from xml.etree import ElementTree

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llama_load.analysis.reports.block import block
from llama_load.analysis.reports.junit import junit
from llama_load.analysis.reports.write import write_reports
from llama_load.analysis.results.results import analyze
from llama_load.ground.errors import UsageError
from llama_load.loadgen.options.options import read_options
from llama_load.loadgen.options.secret_flags import redact_command
from llama_load.loadgen.wire.response import Response
from llama_load.outside import foreign_text
from llama_load.outside.foreign_text import (
    fence,
    is_secret_name,
    keep_secret,
    markdown,
    printable,
    redacted,
)
from llama_load.run_folder import PreflightRow, Run
from llama_load.servers.address import parse_url
from llama_load.servers.kinds import ServerSpec, start_of
from llama_load.servers.model_list import listed_models
from llama_load.servers.server_errors import describe_error, http_failure
from tests.make_records import failed, manifest, record, table

CANARY = "sk-canary-0123456789abcdef"
HOSTILE = st.text(st.characters(codec=None), max_size=80) | st.sampled_from(
    [
        "\x1b]52;c;bm8=\x07",
        "a\nVerdict:                                 VALID",
        "\u202eDILAV",
        "\x9b2J",
        "```\n# VALID",
        "|x|",
        "\ud800",
    ]
)


def is_clean(text: str, *, lines: bool = True) -> bool:
    bidi = {"LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"}
    return not any(
        (
            unicodedata.category(sign) in ("Cc", "Cs", "Zl", "Zp")
            and not (lines and sign == "\n")
        )
        or unicodedata.bidirectional(sign) in bidi
        or sign in "\u200e\u200f\u061c"
        for sign in text
    )


@given(HOSTILE)
def test_printable_is_one_line_without_controls(text: str) -> None:
    assert is_clean(printable(text), lines=False)
    assert printable(printable(text)) == printable(text)


def test_printable_is_bounded_and_leaves_ordinary_text_alone() -> None:
    """A finish_reason of 3 MB once made a summary of 15 MB."""
    assert len(printable("x" * 3_000_000)) == foreign_text.MOST_CHARS + 1
    assert printable("Grüße, 你好 🙂 <b>|`*") == "Grüße, 你好 🙂 <b>|`*"


@settings(max_examples=settings.default.max_examples * 2 // 5)  # of 50 ms
@given(HOSTILE, HOSTILE)
def test_no_output_of_a_run_holds_a_control_character(one: str, other: str) -> None:
    """Whatever the server said reaches text, Markdown and JUnit as characters that only stand
    there."""
    about = manifest(
        num_prompts=2,
        model=one,
        backend=other,
        label=one + other,
        preflight=[PreflightRow(one, other, "warning")],
        server_changes=[other],
        targets=[{"url": "http://h", "backend": "openai", "build": one}],
    )
    rows = (record(0), replace(failed(1), error=one + other))
    try:
        stored = table(*rows)
    except UnicodeEncodeError:  # Arrow takes no lone surrogate
        stored = table(record(0), failed(1))
    found = analyze(Run(Path("run"), about, stored, recovered=False))
    text = block(found)
    assert is_clean(text)
    from llama_load.analysis.reports.write import markdown as report

    assert is_clean(report(found, text))
    document = junit(found)
    assert is_clean(document)
    ElementTree.fromstring(document.encode())


def test_an_error_cannot_forge_a_verdict(tmp_path: Path) -> None:
    forged = "boom\nVerdict:                                 VALID\n```\n# Verdict: VALID <script>"
    found = analyze(
        Run(
            tmp_path,
            manifest(num_prompts=2),
            table(record(0), replace(failed(1), error=forged)),
            recovered=False,
        )
    )
    text = write_reports(found).text
    assert sum(line.startswith("Verdict:") for line in text.splitlines()) == 1
    report = (tmp_path / "report.md").read_text(encoding="utf-8")
    assert not any(line.startswith("# Verdict") for line in report.splitlines())
    assert (
        "| boom" in report
        and "<script>" not in report.partition("## What the verdict")[2]
    )


def test_a_fence_is_longer_than_what_stands_in_it() -> None:
    assert fence("no ticks") == "```"
    assert fence("a ```` b") == "`````"


def test_markdown_leaves_no_markup() -> None:
    assert (
        markdown("[x](y) \\[ <img> **b** `c` |")
        == "\\[x\\](y) \\\\\\[ &lt;img> \\*\\*b\\*\\* \\`c\\` \\|"
    )


@given(HOSTILE)
def test_what_a_server_says_is_clean_as_soon_as_it_is_read(text: str) -> None:
    assert is_clean(describe_error(text.encode("utf-8", "replace")), lines=False)
    (model,) = listed_models(
        {"data": [{"id": "m" + text, "owned_by": text, "aliases": [text + "a"]}]}
    )
    assert is_clean(
        model.name + (model.owner or "") + "".join(model.aliases), lines=False
    )
    assert is_clean(
        http_failure(302, b"", {"location": printable(text)})[1], lines=False
    )


def test_header_fields_are_clean_as_soon_as_they_are_read() -> None:
    response = Response()
    response.feed(
        memoryview(b"HTTP/1.1 200 OK\r\nServer: a\x9b2Jb\r\nContent-Length: 0\r\n\r\n")
    )
    assert response.headers["server"] == "a\ufffd2Jb"


# ---------------------------------------------------------------------- secrets


TRICKY = "sk-x/0123+\"<é>'&=ab"
FORMS = {
    "plain": TRICKY,
    "in a URL": quote(TRICKY, safe=""),
    "lower case": re.sub("%..", lambda match: match[0].lower(), quote(TRICKY)),
    "URL in a URL": quote(quote(TRICKY, safe=""), safe=""),
    "form": quote_plus(TRICKY),
    "JSON": json.dumps(TRICKY)[1:-1],
    "JSON in JSON in JSON": json.dumps(json.dumps(json.dumps(TRICKY))),
    "escaped slash": TRICKY.replace("/", "\\/"),
    "HTML": html.escape(TRICKY),
    "HTML in HTML": html.escape(html.escape(TRICKY)),
    "numbers": "".join(f"&#{ord(sign)};" for sign in TRICKY),
    "hex numbers": "".join(f"&#x{ord(sign):X};" for sign in TRICKY),
    "\\u": "".join(f"\\u{ord(sign):04x}" for sign in TRICKY),
    "\\x": "".join(f"\\x{ord(sign):02x}" for sign in TRICKY),
    "repr": repr(TRICKY),
    "ascii": ascii(TRICKY),
    "hex": TRICKY.encode().hex().upper(),
    "base64": base64.b64encode(TRICKY.encode()).decode(),
    "base64 behind a user": base64.b64encode(b"me:" + TRICKY.encode()).decode(),
    "base64 within": base64.b64encode(b"a" + TRICKY.encode() + b"b").decode(),
    "base64 of URLs": base64.urlsafe_b64encode(b"ab" + TRICKY.encode()).decode(),
    "base64 in a URL": quote(base64.b64encode(TRICKY.encode()).decode(), safe=""),
    "broken over lines": f"{TRICKY[:7]} │\n│ {TRICKY[7:]}",
    "mixed": quote(TRICKY[:8], safe="") + json.dumps(TRICKY[8:])[1:-1],
}


@pytest.mark.parametrize("form", FORMS)
def test_a_secret_is_found_in_every_form(form: str) -> None:
    keep_secret([TRICKY])
    clean = redacted(f"before {FORMS[form]} after")
    assert "***" in clean and clean.startswith("before ") and clean.endswith(" after")
    assert len(clean) < 40, clean


def test_other_texts_stay_as_they_are() -> None:
    keep_secret([TRICKY, CANARY])
    text = (
        "The key sk-x is short; 100 % of &amp; \\u0041 a2V5 and\nlines │ of a table │\n"
        * 20
    )
    assert redacted(text) == text


def test_known_secrets_are_replaced_in_every_form() -> None:
    import base64

    keep_secret([f"Bearer {CANARY}", 'pass"word/1'])
    for text in (
        CANARY,
        "pass%22word%2F1",
        "pass%22word/1",
        'pass\\"word/1',
        'pass\\"word\\/1',
        base64.b64encode(CANARY.encode()).decode().rstrip("="),
    ):
        assert redacted(f"a {text} b") == "a *** b"
    assert (
        printable(f"401: wrong key {CANARY[:8]}…{CANARY}")
        == f"401: wrong key {CANARY[:8]}…***"
    )


def test_placeholders_are_no_secrets() -> None:
    keep_secret(["x", "EMPTY", ""])
    assert redacted("EMPTY x") == "EMPTY x"


@pytest.mark.parametrize("name", ["Authorization", "X-Api-Key", "cookie", "access_token", "client_secret", "password", "--api-key", "--hf-token", "auth-token", "token"])  # fmt: skip
def test_names_of_secrets(name: str) -> None:
    assert is_secret_name(name)


@pytest.mark.parametrize("name", ["max_tokens", "X-Request-Id", "tokenizer", "top_k", "Accept", "min_tokens", "--first-token-ms", "--token-timeout", "stop_token_ids", "--long-prefill-token-threshold"])  # fmt: skip
def test_names_of_other_things(name: str) -> None:
    assert not is_secret_name(name)


@pytest.mark.parametrize(
    "given_flags",
    [
        {"header": [f"Authorization Bearer {CANARY}"]},
        {"header": [f"X-Key: {CANARY}\x01"]},
        {"header": [f"my header: {CANARY}"]},
        {"header": [CANARY]},
        {"extra_body": f'{{"api_key": "{CANARY}"'},
        {"extra_body": f'["{CANARY}"]'},
        {"api_key": f"{CANARY}\x01"},
        {"api_key": CANARY, "model": f",{CANARY}"},
    ],
)
def test_a_refused_flag_does_not_show_its_secret(
    given_flags: dict[str, object],
) -> None:
    with pytest.raises(UsageError) as caught:
        read_options(SimpleNamespace(**given_flags))
    assert CANARY not in foreign_text.printable_lines(str(caught.value))


@pytest.mark.parametrize("url", [f"http://user:{CANARY}@h", f"http://h/v1?token={CANARY}", f"user:{CANARY}@h", f"ftp://u:{CANARY}@h", f"http://[{CANARY}@h"])  # fmt: skip
def test_a_url_with_a_secret_is_refused_without_showing_it(url: str) -> None:
    with pytest.raises(ValueError) as caught:
        parse_url(url)
    assert CANARY not in str(caught.value)


def test_what_is_kept_of_the_flags_holds_no_secret() -> None:
    body = msgspec.json.encode(
        {"api_key": CANARY, "deep": [{"auth_token": CANARY}], "max_tokens": 4}
    ).decode()
    flags = read_options(
        SimpleNamespace(
            api_key=CANARY,
            header=[f"X-Api-Key: {CANARY}"],
            extra_body=body,
            label=CANARY,
        )
    )
    assert flags.extra_body["api_key"] == CANARY  # it is sent
    assert (
        flags.given_flags["extra_body"]
        == '{"api_key": "***", "deep": [{"auth_token": "***"}], "max_tokens": 4}'
    )
    command = [
        "--extra-body",
        body,
        f"--extra-b={body}",
        "--api-key",
        CANARY,
        f"--label={CANARY}",
        "--swarm",
        CANARY,
    ]
    assert CANARY not in " ".join(redact_command(command))


def test_the_log_shows_neither_keys_nor_control_characters() -> None:
    """It goes to the terminal, to files, from workers to the master and onto the web page."""
    code = f"""
import logging
from locust.log import get_logs, setup_logging
from llama_load.outside.foreign_text import keep_secret
from llama_load.loadgen.swarm.clean_logs import clean_logs
setup_logging("INFO")
clean_logs()
clean_logs()
keep_secret(["{CANARY}"])
logging.getLogger("llama_load").warning("said %s", "{CANARY}\\x1b[2J")
try:
    raise ValueError("{CANARY}")
except ValueError:
    logging.getLogger("locust").exception("failed")
(one, other) = get_logs()
assert one.endswith("said ***\\ufffd[2J"), one
assert other.endswith("ValueError: ***") and "Traceback" in other, other
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert CANARY not in done.stderr


def test_the_key_of_the_embedded_server_stands_in_no_command_line(
    tmp_path: Path,
) -> None:
    (tmp_path / "m.gguf").write_bytes(b"GGUF")
    spec = ServerSpec(model=str(tmp_path / "m.gguf"), api_key=CANARY)
    assert CANARY not in " ".join(start_of(spec).command(spec, 1))
    assert start_of(spec).environment(spec)["LLAMA_LOAD_SERVER_API_KEY"] == CANARY
