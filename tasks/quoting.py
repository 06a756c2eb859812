"""Text of untrusted files as messages show it."""

from __future__ import annotations


def quoted(text: bytes | str, max_characters: int = 60) -> str:
    r"""Puts text in quotes, cut to a length, with everything that is not printable escaped (``\t``, ``\x00``).

    Args:
        text: As found; bytes that are not UTF-8 are shown as escapes.
        max_characters: Longer text is cut, and ends with ``…``.
    """
    whole = text.decode(errors="backslashreplace") if isinstance(text, bytes) else text
    shown = "".join(
        letter if letter.isprintable() else letter.encode("unicode_escape").decode()
        for letter in whole[:max_characters]
    )
    return f"'{shown}{'…' if len(whole) > max_characters else ''}'"
