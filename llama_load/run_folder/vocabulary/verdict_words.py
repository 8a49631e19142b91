"""The words of a verdict, and the statements that make a run valid."""

from __future__ import annotations

# The words of a verdict, the most severe first.
INCOMPLETE = "INCOMPLETE"  # records are missing
FAILED = "FAILED"  # over 1 % of the requests failed
NOT_COMPARABLE = "NOT COMPARABLE"  # measured traffic was not the configured traffic
CLIENT_BOUND = "CLIENT-BOUND"  # the client was too busy for accurate figures
BLURRED = "BLURRED"  # some figures, which are marked, are not what they seem
VALID = "VALID"  # none of these
WORDS = (INCOMPLETE, FAILED, NOT_COMPARABLE, CLIENT_BOUND, BLURRED, VALID)
# Of a valid run that itself gave no evidence of a main check: too few requests, a client that was
# not watched.
AS_FAR_AS_SEEN = f"{VALID} as far as seen"

# The statements that make a run valid, in the order of reports. Every check tests one of them.
SAME = "Same"
ASKED = "Asked"
COUNTED = "Counted"
ALIVE = "Alive"
ALONE = "Alone"
SEEN = "Seen"
STATEMENTS = {
    SAME: "the server was the same all the time",
    ASKED: "every request carried and got what was configured",
    COUNTED: "every count has two sources where possible, and they agree",
    ALIVE: "answers were generated: not refused, empty, equal or cached",
    ALONE: "nothing else used the server, the client's machine or the way between them",
    SEEN: "the client measured everything in time and lost nothing",
}
