"""How much of a document a server's prefix cache may reuse: see `Documents`."""

from __future__ import annotations

DIFFERENT = "different"
SHARED = "shared"
AS_IS = "as-is"
CACHES = (DIFFERENT, SHARED, AS_IS)
