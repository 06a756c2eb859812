"""Who may speak to the server: a token, compared without telling how much of it was right."""

from __future__ import annotations

import hmac

from serving.protocol.status import UnauthenticatedError

HEADER = "authorization"
_SCHEME = "Bearer "


class Access:
    """Lets in whoever sends ``authorization: Bearer TOKEN``; everybody when there is no token."""

    def __init__(self, token: str | None) -> None:
        self._expected = None if token is None else f"{_SCHEME}{token}".encode()

    @property
    def is_open(self) -> bool:
        """Whether everybody is let in."""
        return self._expected is None

    def allows(self, header: str | bytes | None) -> bool:
        """Whether this value of the header is the right one."""
        if self._expected is None:
            return True
        given = header.encode("utf-8", "surrogateescape") if isinstance(header, str) else header or b""
        return hmac.compare_digest(given, self._expected)

    def check_origin(self, origin: str | None) -> None:
        """Refuses what a web page sends: any page in this machine's browser reaches its loopback.

        Args:
            origin: The header that a browser adds to what a page sends, and no other client does.

        Raises:
            UnauthenticatedError: A page sends it, and no token shows who it is.
        """
        if origin is not None and self.is_open:
            raise UnauthenticatedError("requests of web pages are refused by a server without a token", field="Origin")

    def check(self, header: str | bytes | None) -> None:
        """Raises unless the header is the right one.

        Raises:
            UnauthenticatedError: It is not.
        """
        if not self.allows(header):
            raise UnauthenticatedError(f"send the server's token as '{HEADER}: {_SCHEME}TOKEN'", field=HEADER)
