"""What reads bytes of others takes any: a value, or a sentence; `make fuzz` tries thousands.

The examples are bytes that a reader accepts, with pieces changed, left out and repeated, and bytes
without a sense.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.foreign_readers import READERS, attempt, put

pytestmark = pytest.mark.hypothesis


@st.composite
def changed(draw: st.DrawFn, good: bytes) -> bytes:
    """The good bytes with pieces left out, repeated, or others in their place."""
    data = good
    for _ in range(draw(st.integers(0, 4))):
        begin = draw(st.integers(0, len(data)))
        end = draw(st.integers(begin, min(len(data), begin + 12)))
        piece = draw(st.binary(max_size=6) | st.just(data[begin:end] * 3))
        data = data[:begin] + piece + data[end:]
    return data


@pytest.mark.parametrize("name", READERS)
def test_any_bytes_are_a_value_or_a_sentence(name: str, tmp_path: Path) -> None:
    reader = READERS[name]
    file = put(reader, tmp_path / "folder")

    @settings(
        suppress_health_check=list(HealthCheck),
        max_examples=max(8, settings().max_examples // 8),
    )
    @given(data=changed(reader.good) | st.binary(max_size=80))
    def attempts(data: bytes) -> None:
        attempt(reader, file, data)

    attempts()
