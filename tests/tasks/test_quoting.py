"""Text of untrusted files in messages: readable, on one line, not long."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.quoting import quoted


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (b"", "''"),
        (b"two words", "'two words'"),
        ("Zoë 测试".encode(), "'Zoë 测试'"),
        (b"a\tb\r\n\x1b[31m\0", "'a\\tb\\r\\n\\x1b[31m\\x00'"),
        (b"\xff\xfe", "'\\xff\\xfe'"),
        ("\udcff\u2028", "'\\udcff\\u2028'"),
        (b"x" * 61, f"'{'x' * 60}…'"),
    ],
)
def test_what_is_shown(text: bytes | str, shown: str) -> None:
    assert quoted(text) == shown


@given(st.binary() | st.text(), st.integers(1, 80))
def test_always_one_printable_line(text: bytes | str, max_characters: int) -> None:
    shown = quoted(text, max_characters)
    assert shown.isprintable()
    assert len(shown) <= 3 + len("\\U0001f600") * max_characters
