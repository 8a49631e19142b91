"""One flag with all that is known of it: the page, its guard, the help and the redaction of secrets read the same row."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto

# The groups of the form, in their order on the page.
GROUPS = SERVER, LOAD, TRAFFIC, LIMITS, ADVANCED = "Server", "Load", "Traffic", "Limits and objectives", "Advanced"


class Kind(Enum):
    """What the value of a flag is, and so what the page may do with it."""

    TEXT = auto()  # any text
    NUMBER = auto()
    EXPRESSION = auto()  # a text that its reader checks: a rate, a list, a JSON object
    CHOICE = auto()
    SWITCH = auto()
    INPUT = auto()  # a file or folder to read
    DATA_SET = auto()  # the same, or hf:OWNER/NAME
    RUN_FOLDER = auto()  # a new folder for results
    XML_FILE = auto()  # a file to write
    FOLDER = auto()  # any other folder
    SERVER_KEY = auto()  # a secret for the servers under test
    SECRET = auto()  # a secret for others
    ADDRESS = auto()  # where to listen, or which pages to fetch
    COMMAND = auto()  # a program to run


SECRETS = frozenset((Kind.SERVER_KEY, Kind.SECRET))
# Kinds of paths that may be typed into the page; `WebGuard` has a check for each.
PAGE_PATHS = frozenset((Kind.INPUT, Kind.DATA_SET, Kind.RUN_FOLDER, Kind.XML_FILE))
# All other kinds are never on the page: a flag of a new kind is not shown until it is listed here.
_ON_PAGE = PAGE_PATHS | {Kind.TEXT, Kind.NUMBER, Kind.EXPRESSION, Kind.CHOICE, Kind.SWITCH, Kind.SERVER_KEY}


@dataclass(frozen=True, slots=True)
class Flag:
    """One flag: name on the command line, kind, group on the page (None: not there), default as text, help; `choices` limits it.

    `reports_only`: it names the run or chooses what is reported; two runs that differ in it alone measured the same.
    """

    name: str
    kind: Kind
    group: str | None
    default: str
    help: str
    choices: tuple[str, ...] | None = None
    repeated: bool = False
    reports_only: bool = False

    @property
    def dest(self) -> str:
        """Its attribute name on the parsed options."""
        return self.name.removeprefix("--").replace("-", "_")

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
        return self.help + (f"; one of {', '.join(filter(None, self.choices))}" if self.choices else "")
