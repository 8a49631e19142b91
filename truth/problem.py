"""The error that ends a command with one sentence."""

from __future__ import annotations


class Problem(Exception):
    """Wrong usage, or a file that cannot be read: the message is for the user."""
