"""A search for runs whose verdict is wrong: answers are planned with a known truth, changed as
servers, gateways and clients change them, read by the real parsers in virtual time, and judged by
the real checks. `python -m tests.search --seeds 200`."""
