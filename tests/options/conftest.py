"""Secrets that a test makes known are forgotten after it."""

from __future__ import annotations

import pytest

from llama_load import foreign_text


@pytest.fixture(autouse=True)
def forget_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(foreign_text, "_secrets", {})
