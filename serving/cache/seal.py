"""A seal on values that leave the process: what does not carry it is not believed."""

from __future__ import annotations

import hashlib
import hmac

SEAL_BYTES = 16


class Seal:
    """Binds a row to its identity: SHA-256 against accidents, HMAC-SHA-256 against people when there is a key."""

    def __init__(self, key: bytes | None = None) -> None:
        self._key = key

    def close(self, identity: bytes, row: bytes) -> bytes:
        """The row with its seal before it."""
        return self._mark(identity, row) + row

    def open(self, identity: bytes, sealed: object) -> bytes | None:
        """The row, or None when the value is not one that this seal closed for this identity."""
        if not isinstance(sealed, bytes) or len(sealed) < SEAL_BYTES:
            return None
        row = sealed[SEAL_BYTES:]
        return row if hmac.compare_digest(sealed[:SEAL_BYTES], self._mark(identity, row)) else None

    def _mark(self, identity: bytes, row: bytes) -> bytes:
        if self._key is None:
            return hashlib.sha256(identity + row).digest()[:SEAL_BYTES]
        return hmac.digest(self._key, identity + row, "sha256")[:SEAL_BYTES]
