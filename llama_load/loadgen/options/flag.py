"""One flag with all that is known of it.

Page, guard, help, docs, comparison and the redaction of secrets read the same row.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

# The groups of the form; the first has the rows with a place in `first`.
BASICS = "The run"
SERVER = "Server"
LOAD = "Load"
TRAFFIC = "Traffic"
LIMITS = "Limits and objectives"
ADVANCED = "Advanced"
GROUPS = (BASICS, SERVER, LOAD, TRAFFIC, LIMITS, ADVANCED)  # in their order on the page
# Class names of workloads.
SHAREGPT = "ShareGPT"
CUSTOM = "Custom"
DOCUMENTS = "Documents"
VISION = "Vision"
SYNTHETIC = "Synthetic"
REPLAY = "Replay"
MIXED = "Mixed"
CONVERSATIONS = "Conversations"
AGENT = "Agent"
TEXTS = "TextBatches", "Queries"  # embeddings and reranking, which generate no tokens


class Kind(enum.Enum):
    """What the value of a flag is, and so what the page may do with it."""

    TEXT = enum.auto()  # any text, to be sent
    NAME = enum.auto()  # of a model, a category, a run
    NUMBER = enum.auto()
    EXPRESSION = enum.auto()  # a text that its reader checks: a rate, a list
    JSON = enum.auto()  # a JSON object; values under names of secrets are secret
    CHOICE = enum.auto()
    SWITCH = enum.auto()
    INPUT = enum.auto()  # a file or folder to read
    DATA_SET = enum.auto()  # the same, or hf:OWNER/NAME
    TIMES = enum.auto()  # a distribution of times, or file:PATH with times to read
    RUN_FOLDER = enum.auto()  # a new folder for results
    XML_FILE = enum.auto()  # a file to write
    FOLDER = enum.auto()  # any other folder
    SERVER_KEY = enum.auto()  # a secret for the servers under test
    # 'Name: value' for the servers under test; the value is secret unless its name is harmless
    HEADER = enum.auto()
    SECRET = enum.auto()  # a secret for others
    SERVERS = enum.auto()  # the URLs of the servers under test
    ADDRESS = enum.auto()  # where to listen, or which pages to fetch
    DESTINATION = enum.auto()  # a URL to write to, which may hold a password
    COMMAND = enum.auto()  # a program to run


SECRETS = frozenset((Kind.SERVER_KEY, Kind.HEADER, Kind.SECRET))
# Kinds of paths that may be typed into the page; `WebGuard` has a check for each.
PAGE_PATHS = frozenset(
    (Kind.INPUT, Kind.DATA_SET, Kind.TIMES, Kind.RUN_FOLDER, Kind.XML_FILE)
)
# All other kinds are never on the page: a flag of a new kind is not shown until it is listed here.
_ON_PAGE = PAGE_PATHS | {
    *(
        Kind.TEXT,
        Kind.NAME,
        Kind.NUMBER,
        Kind.EXPRESSION,
        Kind.JSON,
        Kind.CHOICE,
        Kind.SWITCH,
    ),
    *(Kind.SERVERS, Kind.SERVER_KEY, Kind.HEADER),
}


class Role(enum.Flag):
    """What a flag does to a run. Two runs that differ only in flags of NAME and REPORT measured the
    same."""

    NAME = enum.auto()  # names the run and its folder: a repeat has its own
    REPORT = enum.auto()  # chooses what is reported, and where
    LOAD = enum.auto()  # sets the load
    SHAPE = enum.auto()  # shapes a load beside its users and its rate
    AMOUNT = enum.auto()  # ends the run
    REPORTED = enum.auto()  # load or data that summary.json itself states
    PROMPTS = enum.auto()  # chooses the prompts or changes them
    CACHE = enum.auto()  # decides what the servers' prompt caches hold
    ANSWERS = (
        enum.auto()
    )  # for generated answers only: embeddings and reranking have none
    CONNECTION = enum.auto()  # which server is queried before the run, and how


_NONE = Role(0)


@dataclass(frozen=True, slots=True)
class Flag:
    """One flag: name on the command line, kind, group on the page (None: not there), default as
    text, help; `choices` limits it.

    `workloads`: the classes that use it; empty for all. `begins`: the section of `llama-load flags`
    that starts with it. `title`, `page_help`: its texts on the page, where its name and help do not
    fit. `first`: its place in the page's first group. `also`: further names. `attribute`: the
    name on the parsed options, of Locust's own flags.
    """

    name: str
    kind: Kind
    group: str | None
    default: str
    help: str
    choices: tuple[str, ...] | None = None
    repeated: bool = False
    role: Role = _NONE
    workloads: tuple[str, ...] = ()
    begins: str = ""
    title: str = ""
    page_help: str = ""
    first: int = 0
    also: tuple[str, ...] = ()
    attribute: str = ""

    @property
    def dest(self) -> str:
        """Its attribute name on the parsed options."""
        return self.attribute or self.plain.replace("-", "_")

    @property
    def plain(self) -> str:
        """Its name without dashes, as plans write it."""
        return self.name.lstrip("-")

    @property
    def environment(self) -> str:
        """The environment variable that sets it."""
        return f"LLAMA_LOAD_{self.dest.upper()}"

    @property
    def switch(self) -> bool:
        """Whether it takes no value."""
        return self.kind is Kind.SWITCH

    @property
    def secret(self) -> bool:
        """Whether its value is a secret."""
        return self.kind in SECRETS

    @property
    def on_page(self) -> bool:
        """Whether it can be set in the web UI."""
        return self.group is not None and self.kind in _ON_PAGE

    @property
    def help_with_choices(self) -> str:
        """Its help with the allowed values, if limited."""
        return self.help + (
            f"; one of {', '.join(filter(None, self.choices))}" if self.choices else ""
        )
