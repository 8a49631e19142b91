"""Requests to the web page with its token."""

from __future__ import annotations

from typing import Any

import requests

TOKEN = "token-of-the-tests-0123456789"
TOKEN_QUERY = f"?token={TOKEN}"
BEARER = {"Authorization": f"Bearer {TOKEN}"}


def get(
    url: str, *, headers: dict[str, str] | None = None, **how: Any
) -> requests.Response:
    return requests.get(url, headers=BEARER | (headers or {}), **how)


def post(
    url: str, *, headers: dict[str, str] | None = None, **how: Any
) -> requests.Response:
    return requests.post(url, headers=BEARER | (headers or {}), **how)
