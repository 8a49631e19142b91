"""Nonsense for every flag and every subcommand: one sentence and exit code 2, before anything is
done."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from types import SimpleNamespace

import pytest

from llama_load.cli import main as cli
from llama_load.cli.main import command_parser, main
from llama_load.ground.errors import UsageError
from llama_load.loadgen.options.flag import Kind
from llama_load.loadgen.options.flags import FLAGS
from llama_load.loadgen.options.options import read_options

HUGE = "9" * 30
NUMBERS = (
    "nonsense",
    "-1",
    "nan",
    "inf",
    "-inf",
    "1e999",
    HUGE,
    "9" * 5000,
    "0x10",
    "1 2",
    "--",
)
WORDS = ("nonsense", "\udcff", "=", "{", "1:")
# What else a number may be. (inf is no rate: a closed loop.)
FINE = {("request_rate", "inf"), ("stages", "nonsense")}
NUMERIC = [
    flag
    for flag in FLAGS
    if flag.kind in (Kind.NUMBER, Kind.EXPRESSION)
    or flag.dest in ("ca_file", "metrics_port")
]


@pytest.mark.parametrize("flag", NUMERIC, ids=lambda flag: flag.dest)
def test_a_flag_refuses_nonsense_by_its_name(flag: object) -> None:
    for text in NUMBERS + WORDS:
        if (flag.dest, text) in FINE or (flag.dest == "seed" and text == "-1"):
            continue
        with pytest.raises(UsageError) as raised:
            read_options(
                SimpleNamespace(**{flag.dest: [text] if flag.repeated else text})
            )
        assert flag.name in str(raised.value), text
        assert all(len(line) < 400 for line in str(raised.value).splitlines()), text


@pytest.mark.parametrize(
    "flag", [flag for flag in FLAGS if not flag.switch], ids=lambda flag: flag.dest
)
def test_bytes_that_are_no_text_are_refused(flag: object) -> None:
    """They come from the command line as lone surrogates, which no file of the run folder can
    hold."""
    with pytest.raises(UsageError, match=flag.name):
        read_options(
            SimpleNamespace(**{flag.dest: ["\udcff"] if flag.repeated else "\udcff"})
        )


def commands() -> Iterator[list[str]]:
    """Every number of every subcommand with nonsense for it, and what else cannot be meant."""
    yield from (
        ["nonsense"],
        ["report"],
        ["report", "/nowhere"],
        ["report", __file__],
        ["report", "x" * 5000],
    )
    yield from (
        ["report", "--add", "/nowhere", "/nowhere"],
        ["calibrate", "--for", "x"],
        ["calibrate", "--for", f"{HUGE}x{HUGE}"],
    )
    yield from (
        ["flags", "nonsense"],
        ["datasets"],
        ["datasets", "nonsense"],
        ["datasets", "list", "nonsense"],
    )
    yield from (
        ["calibrate", "--for", "nanx1"],
        ["calibrate", "--for", "2xnan"],
        ["calibrate", "--for", "-1x5"],
    )
    yield from (
        ["datasets", "fetch"],
        ["datasets", "fetch", "nonsense"],
        ["datasets", "inspect", "/nowhere"],
    )
    yield from (
        ["datasets", "inspect", "/nowhere", "--host", "ftp://x"],
        ["datasets", "make", "/nowhere/x.json"],
    )
    yield from (
        ["datasets", "make", "x.nonsense"],
        ["datasets", "inspect", "x", "--tokenizer", "/nowhere"],
    )
    yield from (
        ["serve", "--host", "no-such-host.invalid"],
        ["serve", "--host", "x" * 300],
        ["serve", "--model", "/nowhere"],
    )
    yield from (
        ["serve", "--simulated", "--log", "/nowhere/log"],
        ["serve", "--simulated", "--fault", "nonsense"],
    )
    yield from (
        ["serve", "--simulated", "--lengths", "nonsense"],
        ["serve", "--simulated", "--host", "198.51.100.1"],
    )
    subcommands = {
        (
            "serve",
            "--simulated",
        ): "port slots ctx-per-slot threads first-token-ms interval-ms jitter-ms tokens merge fault-every "
        "fault-after status stall-at-s stall-s seed cached-tokens",
        ("datasets", "make", "x.json"): "conversations turns input-len output-len seed",
        ("datasets", "inspect", "x.json"): "ctx-per-slot output-len",
    }
    for begin, names in subcommands.items():
        for name in names.split():
            for text in (
                "nonsense",
                "nan",
                "inf",
                HUGE,
                "9" * 5000,
                "" if name == "seed" else "-5",
            ):
                yield [*begin, f"--{name}={text}"]


def test_no_number_of_a_subcommand_is_without_bounds() -> None:
    """int and float alone would take what no server and no data set can have."""
    waiting = [command_parser()]
    while waiting:
        for action in waiting.pop()._actions:
            waiting += (
                (getattr(action, "choices", None) or {}).values()
                if hasattr(action, "_name_parser_map")
                else []
            )
            assert action.type not in (int, float), action.option_strings


def test_nonsense_for_subcommands_is_one_sentence_and_exit_code_2(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # made once: it takes as long as all the rest
    monkeypatch.setattr(cli, "command_parser", cache(command_parser))
    for command in commands():
        try:
            code = main(command)
        except SystemExit as left:
            code = left.code
        out, err = capsys.readouterr()
        assert code == 2, (command, err)
        assert out == "", command
        assert err.count("\n") == 1, (command, err)
        assert len(err) < 400, command
