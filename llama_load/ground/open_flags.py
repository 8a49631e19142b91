"""Flags of os.open that Windows lacks; there they are 0, which asks for nothing."""

from __future__ import annotations

import os

NO_FOLLOW: int = getattr(os, "O_NOFOLLOW", 0)
NO_WAIT: int = getattr(os, "O_NONBLOCK", 0)
NOT_INHERITED: int = getattr(os, "O_CLOEXEC", 0)
# Windows ends lines with two bytes else.
BINARY: int = getattr(os, "O_BINARY", 0)
