"""Our command line flags, as Locust gets to know them.

All are text: that is what environment variables and the web UI deliver.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from llama_load.loadgen.options.flag import Flag, Role
from llama_load.loadgen.options.flag_limits import LOOPBACK
from llama_load.loadgen.options.sections.access_section import ACCESS_FLAGS
from llama_load.loadgen.options.sections.load_section import LOAD_FLAGS
from llama_load.loadgen.options.sections.locust_section import OF_LOCUST
from llama_load.loadgen.options.sections.prompt_section import PROMPT_FLAGS
from llama_load.loadgen.options.sections.result_section import RESULT_FLAGS
from llama_load.loadgen.options.sections.servers_section import SERVER_FLAGS
from llama_load.run_folder.vocabulary.flag_roles import FlagRoles

FLAGS = (*LOAD_FLAGS, *PROMPT_FLAGS, *SERVER_FLAGS, *ACCESS_FLAGS, *RESULT_FLAGS)
# The flags that are used most: `llama-load flags` lists these.
USUAL = (
    "--num-prompts",
    "--stages",
    "--max-concurrency",
    "--request-rate",
    "--warmup",
    "--max-tokens",
    "--dataset-path",
    "--turns",
    "--input-len",
    "--output-len",
    "--seed",
    "--model",
    "--endpoint",
    "--ignore-eos",
    "--cache-prompt",
    "--extra-body",
    "--api-key",
    "--run-dir",
    "--label",
    "--goodput",
    "--fail-if",
)


def flags_with(role: Role) -> list[Flag]:
    """The flags with this role, Locust's own among them."""
    return [flag for flag in (*OF_LOCUST, *FLAGS) if role in flag.role]


def flag_roles() -> FlagRoles:
    """What comparisons of runs ask for."""
    return FlagRoles(
        renewed=[flag.name for flag in flags_with(Role.NAME)],
        caches=[flag.name for flag in flags_with(Role.CACHE)],
        prompts=[flag.dest for flag in flags_with(Role.PROMPTS)],
        shapes=[flag.dest for flag in flags_with(Role.SHAPE)],
        stated=[flag.dest for flag in flags_with(Role.REPORTED)],
    )


def grouped() -> Mapping[str, list[Flag]]:
    """The flags in sections by their titles: `llama-load flags` and docs/flags.md."""
    sections: dict[str, list[Flag]] = {}
    title = ""
    for flag in FLAGS:
        title = flag.begins or title
        sections.setdefault(title, []).append(flag)
    return sections


def declare(parser: Any) -> None:
    """Add our flags to Locust's parser. (Not in an argument group, because the web UI shows no
    groups.)"""
    for flag in FLAGS:
        settings: dict[str, Any] = {"help": flag.help, "env_var": flag.environment}
        if flag.switch:
            settings |= {"action": "store_true", "default": False}
        else:
            settings |= {"type": str, "default": flag.default, "metavar": "<text>"}
            if flag.choices:
                settings["choices"] = list(flag.choices)
                del settings["metavar"]
            if flag.repeated:
                settings |= {"action": "append", "default": None}
        in_web_ui = (
            flag.on_page and not flag.secret
        )  # Locust writes defaults into the page
        parser.add_argument(
            flag.name, *flag.also, include_in_web_ui=in_web_ui, **settings
        )
    parser.set_defaults(web_host=LOOPBACK)  # Locust's own default is every interface
