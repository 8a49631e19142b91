"""The words of a verdict, and the statements that make a run valid."""

from __future__ import annotations

# The words of a verdict, the most severe first.
INCOMPLETE, FAILED, NOT_COMPARABLE, CLIENT_BOUND, BLURRED, VALID = WORDS = (
    "INCOMPLETE",  # records are missing
    "FAILED",  # over 1 % of the requests failed
    "NOT COMPARABLE",  # the measured traffic was not the configured traffic
    "CLIENT-BOUND",  # the client was too busy for accurate figures
    "BLURRED",  # some figures, which are marked, are not what they seem; the others are right
    "VALID",  # none of these
)
# Of a valid run in which a main check is unknown.
AS_FAR_AS_SEEN = f"{VALID} as far as seen"

# The statements that make a run valid, in the order of reports. Every check tests one of them.
SAME, ASKED, COUNTED, ALIVE, ALONE, SEEN = "Same", "Asked", "Counted", "Alive", "Alone", "Seen"
STATEMENTS = {
    SAME: "the server was the same all the time",
    ASKED: "every request carried and got what was configured",
    COUNTED: "every count has two sources where possible, and they agree",
    ALIVE: "answers were generated: not refused, empty, equal or cached",
    ALONE: "nothing else used the server, the client's machine or the way between them",
    SEEN: "the client measured everything in time and lost nothing",
}
