"""The grammar of a plan: every key, its shape and its meaning.

The reader, the JSON schema and docs/sweeps.md come from here.
"""

from __future__ import annotations

import re
from typing import Any

from llama_load.analysis.statistics.carried_share import CARRIED_SHARE
from llama_load.ground.languages import LANGUAGES
from llama_load.lab.sweep.shapes import (
    ANY_SCALAR,
    YES_NO,
    Key,
    ListOf,
    Number,
    Object,
    Text,
    map_of,
)
from llama_load.run_folder.vocabulary.slo import parse_slo
from llama_load.servers.kinds import STARTS, ServerStart

MOST_REPEATS = 1000
SHUFFLED = "shuffled"
INTERLEAVED = "interleaved"
AS_WRITTEN = "as-written"
ORDERS = (SHUFFLED, INTERLEAVED, AS_WRITTEN)
RESTART = "restart"
KEEP = "keep"
AFTER_A_CELL = (RESTART, KEEP)
EMPTY = "empty"
LEAVE = "leave"
CACHES = (EMPTY, LEAVE)
STYLES = ("padded", "spaced", "compact", "llama-bench")
CELLS = "cells"
REQUESTS = "requests"
ROW_KINDS = (CELLS, REQUESTS)
TEST = re.compile(r"(pp|tg)([1-9]\d{0,6})")

_TEXTS = ListOf(Text(), least=0, or_one=True)
_VALUES = ListOf(ANY_SCALAR, or_one=True)
_FLAGS = map_of(_VALUES)
PLAIN_NAME = re.compile(r"(?!\.)[^/\\\0-\x1f]{1,200}")  # of servers and settings

_STARTED = {
    "model": Key(Text(), "the model: a .gguf file, or what `vllm serve` takes"),
    "args": Key(
        _TEXTS,
        "further flags of the server, a text or a list; {name} becomes the setting of that name",
    ),
    "program": Key(
        Text(),
        "path of llama-server, vllm, or the Python that has llama_cpp (default: from PATH)",
    ),
    "env": Key(map_of(ANY_SCALAR), "environment variables of the server"),
    "wrap": Key(
        _TEXTS, "put before the server's command, such as numactl --interleave=all"
    ),
    "alongside": Key(
        ListOf(_TEXTS),
        "a list of commands that run while the server runs, such as a scheduler",
    ),
    "set-up": Key(ListOf(_TEXTS), "commands that run before the server starts"),
    "clean-up": Key(ListOf(_TEXTS), "commands that run after the server has ended"),
    "ready-within-s": Key(Number(1, 86_400), "time limit of the start (default 600)"),
}
_OF_RPC = {
    "rpc": Key(_TEXTS, "running RPC workers, HOST:PORT"),
    "rpc-workers": Key(
        Number(0, 64, is_whole=True), "number of RPC workers to start here"
    ),
    "rpc-worker": Key(
        _TEXTS, "their command (default: ggml-rpc-server beside llama-server)"
    ),
}
URL = "url"
FIT = "fit-params"
_FIT = Key(
    Text(), "a llama-fit-params program, whose flags go to servers/CELL/fit_param.cmd"
)


def _keys_of(start: ServerStart) -> dict[str, Key]:
    keys = dict(_STARTED)
    if not start.program:
        del keys["program"]
    if start.takes_rpc:
        keys |= _OF_RPC
    if start.fits_memory:
        keys[FIT] = _FIT
    return keys


KINDS: dict[str, Key] = {URL: Key(Text(), "base URL of a running server")}
KINDS |= {
    name: Key(Object(_keys_of(start)), start.help) for name, start in STARTS.items()
}
# Settings of a server that are a list of words, and those that are lists of commands.
WORDS = ("args", "wrap", "rpc", "rpc-worker")
COMMANDS = ("alongside", "set-up", "clean-up")

SERVER = Object(
    KINDS
    | {
        "label": Key(Text(), "its name in tables (default: its name in the plan)"),
        "backend": Key(
            Text(), "its text in the column `backend` (default: what the server is)"
        ),
    },
    one_of=tuple(KINDS),
)
WORKLOAD = Object(
    {
        "file": Key(
            Text(),
            "a bundled locustfile by name (sharegpt_chat), or the path of your own",
            required=True,
        ),
        "label": Key(Text(), "its name in tables"),
        "flags": Key(_FLAGS, "flags of `locust` for this workload"),
    },
    or_text="file",
)
COLUMN = Object(
    {
        "value": Key(Text(), "what to show: see the list of values", required=True),
        "name": Key(
            Text(), "its heading (default: the value's own, in the plan's language)"
        ),
        "best": Key(
            Text(("max", "min", "none")),
            "print the best in bold (default: by the value; `none` for no bold)",
        ),
        "decimals": Key(Number(0, 9, is_whole=True), "digits behind the point"),
        "scale": Key(Number(-1e12, 1e12), "factor, such as 0.001 for seconds"),
        "unit": Key(Text(), "text behind the figure, such as s"),
        "spread": Key(
            YES_NO, "add ± standard deviation (default: where there are repeats)"
        ),
        "align": Key(Text(("left", "right", "center", "none")), "alignment"),
        "width": Key(
            Number(1, 200, is_whole=True),
            "least width in characters (styles padded and llama-bench)",
        ),
        "labels": Key(map_of(Text()), "texts to show instead of these values"),
        "where": Key(
            map_of(_TEXTS),
            "take it from the cells with these settings (or repeat): several cells in one row",
        ),
        "loss-against": Key(
            map_of(_TEXTS), "loss in per cent against the cells with these settings"
        ),
        "cost-against": Key(
            map_of(_TEXTS),
            "of tokens/s: ms that a token takes longer than in these cells",
        ),
        "difference-to": Key(
            map_of(_TEXTS),
            "difference to the row with these settings and else the same ones, such as "
            "{quantization: F16}",
        ),
    },
    or_text="value",
)
TABLE = Object(
    {
        "columns": Key(ListOf(COLUMN), "the columns in their order", required=True),
        "title": Key(Text(), "its heading"),
        "rows": Key(
            Text(ROW_KINDS),
            "a row per cell (default: repeats and their spread in one row) or per request",
        ),
        "where": Key(map_of(_TEXTS), "only rows with these values, by column name"),
        "group-by": Key(Text(), "a table for each value of this"),
        "sort-by": Key(_TEXTS, "order of the rows (default: the plan's)"),
        "style": Key(Text(STYLES), "how Markdown is laid out (default padded)"),
        "note": Key(Text(), "a sentence below it"),
    }
)


CONCURRENCY = "concurrency"
RATE = "rate"
VARIED = (CONCURRENCY, RATE)
# Of locust's flags, these are a search's own.
SET_BY_SEARCH = (
    "u",
    "users",
    "num-prompts",
    "request-rate",
    "stages",
    "trace",
    "t",
    "run-time",
    "r",
    "spawn-rate",
    "goodput",
    "hand-over",
    "end-below",
)
SEARCH = Object(
    {
        "goodput": Key(
            _TEXTS,
            "objectives: METRIC:MILLISECONDS, or WORKLOAD=METRIC:MILLISECONDS",
            required=True,
        ),
        "share": Key(
            Number(0.5, 0.999),
            f"share of the requests that must meet all of them (default {CARRIED_SHARE:g})",
        ),
        "vary": Key(
            Text(VARIED),
            "users (concurrency, the default), or requests per second (rate)",
        ),
        "max-users": Key(
            Number(1, 10**5, is_whole=True), "try no more users (default 4096)"
        ),
        "max-time": Key(
            Number(1, 1e7),
            "seconds for the search of a cell (default: cell-time-limit-s)",
        ),
        "max-requests": Key(
            Number(1, 10**8, is_whole=True), "requests for the search of a cell"
        ),
        "probe-requests": Key(
            Number(100, 10**6, is_whole=True),
            "of a rate: requests of a probe (default 1500)",
        ),
    }
)


def _search_fault(load: Any) -> str:
    """What is wrong with a load that is searched; empty if nothing is."""
    for name in load:
        if name in SET_BY_SEARCH:
            return f"{name} is set by the search; leave it out"
    if "tests" in load:
        return "a search and tests are two loads; write them apart"

    for text in load["search"]["goodput"]:
        for objective in text.split():
            try:
                parse_slo(objective.rpartition("=")[2])
            except ValueError as error:
                return f"search.goodput: {str(error).removeprefix('--goodput ')}"
    return ""


def _load_fault(load: Any) -> str:
    """What is wrong with a load; empty if nothing is."""
    if "search" in load:
        fault = _search_fault(load)
        if fault:
            return fault

    for test in load.get("tests") or []:
        if not TEST.fullmatch(test):
            return f"tests are ppN (prompt processing) and tgN (token generation), got {test}"
    if "depth" in load and "tests" not in load:
        return "depth needs tests, such as tests: [pp512, tg128]"
    return ""


# Flags of locust by name, and our own keys beside them.
LOAD = Object(
    {
        "label": Key(Text(), "its name in tables (default: its flags)"),
        "tests": Key(
            _TEXTS,
            "tests of llama-bench: pp512 processes 512 tokens, tg128 generates 128; one request "
            "at a time",
        ),
        "depth": Key(
            ListOf(Number(0, 10**7, is_whole=True), or_one=True),
            "tokens already in the context before each test (default 0)",
        ),
        "search": Key(SEARCH, "search the capacity of each cell"),
        "servers": Key(_TEXTS, "only for these servers (default: all)"),
        "takes-s": Key(Number(0, 1e7), "estimated seconds of a cell, for --dry-run"),
    },
    others=_VALUES,
    fault=_load_fault,
)
PLAN = Object(
    {
        "servers": Key(
            map_of(SERVER, least=1),
            "the servers by name: how to start them, or their URLs",
            required=True,
        ),
        "load": Key(
            ListOf(LOAD, or_one=True),
            "loads: flags of `locust` without dashes: {u: 8, num-prompts: 64}",
            required=True,
        ),
        "workload": Key(
            ListOf(WORKLOAD, or_one=True),
            "locustfiles (default: sharegpt_chat); tests always use synthetic",
        ),
        "vary": Key(
            map_of(map_of(_VALUES, least=1)),
            "settings by name, each with what it changes and its values: SERVER.model (empty: "
            "without this server), SERVER.args+ (adds to args), SERVER.env.NAME, SERVER.url "
            "(empty: start it) or flags.NAME; without SERVER. all that are started. One value "
            "stands for all. `values` alone fill {name} in args, flags and env; `labels` names "
            "the values in tables",
        ),
        "repeats": Key(
            Number(1, MOST_REPEATS, is_whole=True),
            "how often each cell runs (default 1)",
        ),
        "order": Key(
            Text(ORDERS),
            "interleaved (default): all cells, then again backwards; shuffled: in random order; "
            "as-written: repeats in a row",
        ),
        "seed": Key(
            Number(0, 2**31, is_whole=True),
            "seed of the order and of the prompts (default 0)",
        ),
        "flags": Key(_FLAGS, "flags of `locust` for every cell"),
        "after-a-cell": Key(
            Text(AFTER_A_CELL),
            "restart (default): a new server per cell; keep: one for cells of the same settings",
        ),
        "cache": Key(
            Text(CACHES),
            "of a kept server, or a URL: empty its prompt cache between cells, or leave it "
            "(default)",
        ),
        "idle-s": Key(
            Number(0, 3600),
            "longest wait for an idle machine before a cell (default 30; 0: no wait)",
        ),
        "cell-time-limit-s": Key(
            Number(1, 1e7), "a cell that takes longer is ended and NA (default 7200)"
        ),
        "perplexity": Key(
            Object(
                {
                    "text": Key(Text(), "a text file (default: the bundled text)"),
                    "context": Key(
                        Number(8, 10**6, is_whole=True),
                        "tokens of a window (default 512)",
                    ),
                    "stride": Key(
                        Number(1, 10**6, is_whole=True),
                        "tokens scored per window (default: half of it)",
                    ),
                    "binary": Key(
                        Text(),
                        "a `llama-perplexity` program, for .gguf models of servers that report "
                        "no log-probabilities",
                    ),
                    "args": Key(
                        Text(), "further flags of that program, such as -ngl 99 -fa on"
                    ),
                }
            ),
            "measure perplexity and bits per byte of every server setting",
        ),
        "rows-from": Key(
            Object({"llama-bench": Key(_TEXTS, "files of `llama-bench -o json`")}),
            "results of other tools as rows",
        ),
        "tables": Key(
            ListOf(TABLE),
            "the tables (default: one with all settings and the main figures)",
        ),
        "effects": Key(
            _TEXTS,
            "figures in which to look for effects of settings (default: output tokens/s and "
            "TTFT; t/s of tests)",
        ),
        "title": Key(Text(), "heading of the comparison"),
        "language": Key(Text(LANGUAGES), "language of headings: en or zh"),
        "set": Key(
            map_of(ListOf(ANY_SCALAR, least=0, or_one=True)),
            "values for ${name} in this file; `--set name=value` replaces them",
        ),
    }
)


def json_schema() -> dict[str, Any]:
    """JSON Schema (2020-12) of a plan, for editors."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "A sweep plan of llama-load",
        **PLAN.schema(),
    }
