"""A conformance suite for load generators of LLM servers.

A server with a known schedule logs what it received and sent; the judge compares what a client
reports with that log. Standard library only.
"""

__version__ = "0.3.0"
