"""Compressed answers of HTTP.

Source: RFC 9110, "Accept-Encoding"; its ``deflate`` is the zlib format.
"""

from __future__ import annotations

from collections.abc import Iterable

from isal import isal_zlib

from serving.protocol.wire import Buffer

_WINDOW_BITS = {"gzip": 31, "deflate": 15}
ENCODINGS = tuple(_WINDOW_BITS)
_LEVEL = 1


def choose_encoding(accepted: str) -> str | None:
    """The encoding to answer in: the client's first choice of those known, None for none."""
    ranked: list[tuple[float, int, str]] = []
    for place, entry in enumerate(accepted.lower().split(",")):
        name, *options = (part.strip() for part in entry.split(";"))
        quality = 1.0
        for option in options:
            if option.startswith("q="):
                try:
                    quality = float(option[2:])
                except ValueError:
                    quality = 0.0
        if name in _WINDOW_BITS and quality > 0:
            ranked.append((-quality, place, name))
    return min(ranked)[2] if ranked else None


def compress(parts: Iterable[Buffer], encoding: str) -> bytes:
    """Compresses the parts of a body as one."""
    stream = isal_zlib.compressobj(_LEVEL, wbits=_WINDOW_BITS[encoding])
    return b"".join([*map(stream.compress, parts), stream.flush()])
