"""The forms in which a text can stand in another one: as it is, escaped for URLs, JSON, HTML or a
terminal, in base64 or hex, or broken over lines.

Patterns are made of secrets of this process alone: one of a secret takes 1 ms for each character,
so whoever may send some could stop everything.
"""

from __future__ import annotations

import base64
import json
import re
from contextlib import suppress
from html import escape
from urllib.parse import quote, quote_plus

# In HTML.
_NAMED = {"&": "amp", "<": "lt", ">": "gt", '"': "quot", "'": "apos"}
# A break within a cell of a table, or of a wrapped line; an invisible mark between letters; a
# colour of a terminal, as programs give to numbers.
_BREAK = "(?:[ \\t│|]*\\r?\\n[ \\t│|]*|[\u00ad\u200b\u2060]|\x1b\\[[0-9;]{0,20}m)?"
# Four levels of escaping. Without a bound each of n backslashes would be the begin of a search over
# all that follow.
MOST_BACKSLASHES = 15
_IN_URLS = str.maketrans("+/", "-_")
_HEX_DIGITS = re.compile(r"[a-fA-F]")


def pattern_of(secret: str) -> str:
    """A regular expression that finds every form of a secret of our own."""
    forms = [_BREAK.join(map(_character, secret)), *_encoded_whole(secret)]
    return "|".join(forms)


def literal_forms(secret: str) -> list[str]:
    """The usual forms as texts to look for: as it is, in a URL, in JSON or HTML, in base64 or hex;
    the longest first. For secrets of strangers: no pattern is made of them."""
    data = secret.encode("utf-8", "surrogatepass")
    in_json = json.dumps(secret)[1:-1]
    forms = [
        secret,
        quote(data, safe=""),
        quote_plus(data),
        in_json,
        json.dumps(secret, ensure_ascii=False)[1:-1],
        in_json.replace("/", "\\/"),
        escape(secret),
        data.hex(),
        data.hex().upper(),
    ]
    for sure, end in _base64_forms(secret):
        for text in (sure + end, sure):
            forms += [text, text.translate(_IN_URLS)]
    long = [form for form in set(forms) if len(form) >= len(secret)]
    return sorted(long, key=lambda form: (-len(form), form))


def _encoded_whole(secret: str) -> list[str]:
    in_base64 = list(map(_in_base64, _base64_forms(secret)))
    return [*in_base64, _any_case(secret.encode("utf-8", "surrogatepass").hex())]


def _character(character: str) -> str:
    """One character: as it is, percent-encoded (also twice), \\u0041, \\x41, behind backslashes,
    &#65; &#x41; or by its name.

    Every form begins with a plain character, by which the search skips what cannot match."""
    point = ord(character)
    octets = "".join(
        "%(?:25)*" + _any_case(f"{octet:02x}")
        for octet in character.encode("utf-8", "surrogatepass")
    )
    forms = [re.escape(character), octets]
    forms.append(
        rf"\\{{1,{MOST_BACKSLASHES}}}(?:"
        + "|".join(
            (
                _any_case(f"u{point:04x}"),
                _any_case(f"x{point:02x}"),
                re.escape(character),
            )
        )
        + ")"
    )
    numbers = [f"#0*{point}", "#[xX]0*" + _any_case(f"{point:x}")]
    if character in _NAMED:
        numbers.append(_NAMED[character])
    forms.append("&(?:amp;)*(?:" + "|".join(numbers) + ");")
    return "(?:" + "|".join(forms) + ")"


def _any_case(text: str) -> str:
    return _HEX_DIGITS.sub(
        lambda match: f"[{match[0].lower()}{match[0].upper()}]", text
    )


def _base64_forms(secret: str) -> list[tuple[str, str]]:
    """What base64 makes of it behind 0, 1 or 2 other bytes: the characters that depend on the
    secret alone, and the end where nothing follows."""
    data = secret.encode("utf-8", "surrogatepass")
    found: list[tuple[str, str]] = []
    for before in range(3):
        whole = base64.b64encode(b"\0" * before + data).decode()
        first = -(-before * 8 // 6)
        last = (before + len(data)) * 8 // 6
        end = whole[last:].rstrip("=")
        found.append((whole[first:last], end))
    return found


def _base64_sign(character: str) -> str:
    """A pattern of the forms that this character has."""
    signs = {"+": "(?:[+-]|%2[bB])", "/": r"(?:\\?/|_|%2[fF])"}
    return signs.get(character, character)


def _in_base64(form: tuple[str, str]) -> str:
    """In the plain alphabet or that of URLs, the signs perhaps escaped."""
    sure, end = ["".join(map(_base64_sign, part)) for part in form]
    return f"{sure}(?:{end})?" if end else sure


def parts_of_credentials(value: str) -> list[str]:
    """What is secret in the value of a header: all of it, what stands behind `Bearer`, and the
    password in `Basic` (the name, where there is none)."""
    whole = value.strip()
    scheme, _, given = whole.rpartition(" ")
    parts = [whole, given]
    if scheme.strip().lower() == "basic":
        with suppress(ValueError):
            pair = base64.b64decode(given + "=" * (-len(given) % 4)).decode()
            name, _, password = pair.partition(":")
            parts.append(password or name)
    return parts
