"""The share of its requests that must meet the objectives for a server to carry a load. (A module
of its own: help texts need it without numpy.)"""

from __future__ import annotations

CARRIED_SHARE = 0.9
