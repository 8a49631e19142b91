"""`llama-load path`, `init` and `completion`: the files that come with llama-load, and completion
in the shell."""

from __future__ import annotations

import argparse
import shlex
from pathlib import Path

from llama_load.cli.parser import Parser
from llama_load.ground.bundled import bundled, bundled_files, find_bundled
from llama_load.ground.errors import UsageError
from llama_load.ground.plugins import added_locustfiles

STARTING_LOCUSTFILE = "sharegpt_chat"
STARTING_PLAN = "starter.yaml"
SHELLS = ("bash", "zsh", "fish")


def add_files(commands: argparse._SubParsersAction[Parser]) -> None:
    """Add the subcommands."""
    path = commands.add_parser(
        "path",
        help="print the path of a locustfile, plan or data file that comes with llama-load",
        description="Print the path of a file that comes with llama-load; without a name, list "
        "them.",
        examples={
            "Run a locustfile of the installed package": "locust -f $(llama-load path "
            "sharegpt_chat) --headless "
            "--host http://127.0.0.1:8080 -u 8 --num-prompts 64",
            "List the files": "llama-load path",
        },
    )
    path.add_argument(
        "name",
        nargs="?",
        metavar="NAME",
        help="such as sharegpt_chat or datasets/sharegpt_sample.json",
    )
    path.set_defaults(run=_path)

    init = commands.add_parser(
        "init",
        help="copy a locustfile and a plan of a sweep, to start your own from",
        description="Copy a locustfile and a plan of a sweep into a folder, to start your own "
        "from. No file is overwritten.",
        examples={
            "Into a new folder": "llama-load init load-test",
            "Start from the locustfile for long documents": "llama-load init load-test "
            "--locustfile long_document",
        },
    )
    init.add_argument(
        "folder",
        nargs="?",
        type=Path,
        default=Path(),
        metavar="DIR",
        help="where to (default: this folder)",
    )
    init.add_argument(
        "--locustfile",
        default=STARTING_LOCUSTFILE,
        metavar="NAME",
        help=f"the locustfile to copy; llama-load path lists them (default {STARTING_LOCUSTFILE})",
    )
    init.set_defaults(run=_init)

    completion = commands.add_parser(
        "completion",
        help="print a script that completes llama-load's commands and flags in the shell",
        description="Print a script for the shell's start-up file. It asks llama-load for the "
        "completions, so it stays valid "
        "after an update.",
        examples={
            "bash, now and in new shells": "llama-load completion bash >> ~/.bashrc && . ~/.bashrc",
            "zsh": "llama-load completion zsh >> ~/.zshrc",
            "fish": "llama-load completion fish > ~/.config/fish/completions/llama-load.fish",
        },
    )
    completion.add_argument("shell", choices=SHELLS, help="the shell")
    completion.set_defaults(run=_completion)


def _path(arguments: argparse.Namespace) -> int:
    if arguments.name is None:
        for name in bundled_files():
            print(name)
        return 0
    print(_found(arguments.name))
    return 0


def _init(arguments: argparse.Namespace) -> int:
    source = _found(arguments.locustfile)
    if source.suffix != ".py":
        raise UsageError(
            f"--locustfile must name a locustfile, got {arguments.locustfile!r}; see llama-load "
            "path"
        )
    plan = _found(STARTING_PLAN)
    copies = {arguments.folder / path.name: path for path in (source, plan)}
    if there := [
        str(target) for target in copies if target.exists() or target.is_symlink()
    ]:
        raise UsageError(
            f"{' and '.join(there)} would be overwritten; name another folder: llama-load init DIR"
        )
    arguments.folder.mkdir(parents=True, exist_ok=True)
    for target, path in copies.items():
        # Usage lines in it name the file by its path in the repository, or as a bundled one.
        text = path.read_text(encoding="utf-8")
        text = text.replace(f"{path.parent.name}/{path.name}", path.name)
        text = text.replace(f"-f {path.stem} ", f"-f {path.name} ")
        with target.open("x", encoding="utf-8") as file:
            file.write(text)
        print(f"Wrote {target}")
    locustfile, sweep = (shlex.quote(str(target)) for target in copies)
    print(f"A run:   llama-load run http://127.0.0.1:8080 -f {locustfile} -u 8 -n 64")
    print(f"A sweep: llama-load sweep {sweep}")
    return 0


def _completion(arguments: argparse.Namespace) -> int:
    import argcomplete

    print(argcomplete.shellcode(["llama-load"], shell=arguments.shell))  # type: ignore[attr-defined]
    return 0


def _found(name: str) -> Path:
    """The file of this name that comes with llama-load, or with a package that adds locustfiles.

    UsageError: there is none, or several.
    """
    theirs = added_locustfiles()
    if name in theirs:
        return theirs[name]

    names = find_bundled(name)
    if not names:
        raise UsageError(
            f"llama-load comes with no file {name!r}; llama-load path lists them"
        )
    if len(names) > 1:
        raise UsageError(
            f"{name!r} is the name of several files; give one of: {', '.join(names)}"
        )
    return bundled(names[0])
