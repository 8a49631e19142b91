"""Every regular expression of the package takes linear time, on whatever text: a line of a log of 1
MiB took a minute."""

from __future__ import annotations

import ast
import importlib
import pkgutil
import re
from collections.abc import Iterator
from typing import Any

import pytest

import llama_load
from llama_load.outside.foreign_text import quotes_text
from llama_load.outside.secret_forms import pattern_of
from tests.pattern_growth import MOST_EXPONENT, growth
from tests.repository.source import nodes_of, package_files, written

LINE = "a line of a log, which is cut after 500 or 1000 characters"
ONE_START = "used with match or fullmatch: it begins at one place, and one start takes linear time"
# The beginnings of patterns that are quadratic where a search begins at each character of a long
# text, and why none does.
SHORT_TEXTS = {
    r"llama_\w+: n_ctx": LINE,
    r"llama_\w+: n_batch": LINE,
    r"llama_\w+: n_ubatch": LINE,
    r"llama_\w+: flash_attn": LINE,
    r"K \((\w+)\): .*V": LINE,
    r"using device RPC": LINE,
    r"GGML_ASSERT\(|Assertion .*failed": LINE,
    r"(?:params_fit|fit_params)": LINE,
    r"(?P<word>mean|median|std|p(": ONE_START,
    r"\s*(?P<key>\w[\w.]*)": ONE_START,
    r"(?:(\d+(?:\.\d+)?)h)?": ONE_START,
    r"(\w[\w.-]*)=(.+)": ONE_START,
    r"[A-Za-z_]\w*=.*": ONE_START,
    r"([A-Za-z_]\w*)=(.*)": ONE_START,
    r"--?(?:[\w-]*(?:api-?keys?": ONE_START,
    r"(\[[0-9A-Fa-f:.]+\]|": ONE_START,
    r"(?=.*[A-Za-z])(?=.*[0-9])[\w.~+=-]{20,}": ONE_START,
    r"(?:.*[_-])?(?:api[_-]?keys?|access": ONE_START,
    r"\s* (?P<key>[A-Za-z]": "a threshold of a person; one in the form of the page has its length limited",
    r"\s*verdict\s*": "a threshold of a person; one in the form of the page has its length limited",
    r"(CPU|AMX|BLAS)|.*_Host$": "a label of telemetry, of 300 characters at most",
    r"\s*\S{1,200}\s*": "a text that begins with no blanks, and each match takes those that follow",
}
FUNCTIONS = {
    "re.compile",
    "re.search",
    "re.match",
    "re.fullmatch",
    "re.findall",
    "re.finditer",
    "re.sub",
    "re.split",
}


def literal_patterns() -> Iterator[tuple[str, str | bytes, str]]:
    """Module, pattern and flags of every pattern that is written where it is used."""
    for path in package_files():
        for node in nodes_of(path):
            if (
                isinstance(node, ast.Call)
                and written(node.func) in FUNCTIONS
                and isinstance(node.args[0], ast.Constant)
            ):
                flags = [
                    ast.unparse(word)
                    for word in (*node.args[1:], *(key.value for key in node.keywords))
                ]
                yield (
                    path.stem,
                    node.args[0].value,
                    "|".join(word for word in flags if word.startswith("re.")),
                )


def patterns_in(value: Any, depth: int = 3) -> Iterator[re.Pattern[Any]]:
    """The compiled patterns in a value of a module: alone, in containers, in classes and
    objects."""
    if isinstance(value, re.Pattern):
        yield value
    elif isinstance(value, dict) and depth:
        for part in (*value.keys(), *value.values()):
            yield from patterns_in(part, depth - 1)
    elif isinstance(value, tuple | list | set | frozenset) and depth:
        for part in value:
            yield from patterns_in(part, depth - 1)
    elif depth and is_ours(value):
        yield from patterns_in(dict(getattr(value, "__dict__", {})), depth - 1)


def is_ours(value: Any) -> bool:
    """A class or object of the package."""
    kind = value if isinstance(value, type) else type(value)
    return kind.__module__.startswith("llama_load")


def all_patterns() -> dict[tuple[str | bytes, int], re.Pattern[Any]]:
    found = {}
    for module in pkgutil.walk_packages(llama_load.__path__, "llama_load."):
        if module.name.endswith(("__main__", "pytest_plugin")):
            continue
        for pattern in patterns_in(dict(vars(importlib.import_module(module.name)))):
            found[pattern.pattern, pattern.flags] = pattern
    for _, text, flags in literal_patterns():
        pattern = re.compile(text, eval(flags or "0", {"re": re}))
        found[pattern.pattern, pattern.flags] = pattern
    return found


@pytest.mark.heavy
@pytest.mark.search
def test_every_pattern_takes_linear_time() -> None:
    """Catches any pattern of the package that backtracks on a text of a stranger."""
    slow = {}
    used: set[str] = set()
    patterns = all_patterns()
    for pattern in patterns.values():
        listed = [
            beginning
            for beginning in SHORT_TEXTS
            if str(pattern.pattern).startswith(beginning)
        ]
        used.update(listed)
        exponent, text = (0.0, "") if listed else growth(pattern)
        if exponent > MOST_EXPONENT:
            slow[pattern.pattern] = f"{exponent:.1f} on {text}"
    assert len(patterns) > 100
    assert slow == {}
    assert used == SHORT_TEXTS.keys()


@pytest.mark.parametrize(
    ("pattern", "is_slow"),
    [
        (r"(a+)+$", True),
        (r"\s+$", True),
        (r"^\s+\d", False),
        (r"key|token", False),
        (r"\bn_ctx = (\d{1,15})", False),
        (r"\$\{([^}]{0,200})\}", False),
        (r"a{0,400}b", False),
    ],
)
def test_the_growth_of_a_pattern_is_seen(pattern: str, is_slow: bool) -> None:
    assert (growth(re.compile(pattern))[0] > MOST_EXPONENT) == is_slow


def test_the_pattern_of_a_secret_takes_linear_time() -> None:
    assert growth(re.compile(pattern_of("sk-01ab")))[0] <= MOST_EXPONENT


def test_a_line_that_quotes_a_prompt_is_found_in_linear_time() -> None:
    """A line of 1.4 MB took a minute."""
    assert quotes_text("slot 1 | Prompt: x")
    assert not quotes_text("Prompt " * 200_000)
    assert not quotes_text("Prompt without a colon")
