"""Loads and unloads that a client asks for, where the operator allows it."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from functools import partial
from typing import Any

from serving.errors import InvalidArgumentError, UnavailableError
from serving.protocol.bridge import Bridge
from serving.server import ModelServer

_FILE = "file:"


class RemoteControl:
    """Loads and unloads models for clients.

    Args:
        server: Whose models.
        bridge: Its loop and threads.
        is_allowed: Whether clients may; else every such request is refused.
    """

    def __init__(self, server: ModelServer, bridge: Bridge, *, is_allowed: bool) -> None:
        self._server = server
        self._bridge = bridge
        self._is_allowed = is_allowed

    async def load(self, name: str, parameters: Mapping[str, Any]) -> None:
        """Loads or reloads a model; parameters are ``config`` (JSON) and ``file:<version>/<name>`` (bytes).

        Raises:
            ServingError: Loads are not allowed, a parameter is unknown or wrong, or the model cannot be served.
        """
        self._check(f"load of model {name!r}")
        config: bytes | None = None
        files: dict[str, bytes] = {}
        for key, value in parameters.items():
            if key == "config" and isinstance(value, str | bytes):
                config = value.encode() if isinstance(value, str) else value
            elif key.startswith(_FILE) and isinstance(value, str | bytes):
                files[key.removeprefix(_FILE)] = value if isinstance(value, bytes) else _decode(key, value)
            else:
                raise InvalidArgumentError(
                    f"load of model {name!r}: parameter {key[:200]!r} is none of 'config', 'file:<version>/<name>'",
                    field=key,
                )
        await self._bridge.load_aside(partial(self._server.load, name, config=config, files=files or None))

    async def unload(self, name: str, parameters: Mapping[str, Any]) -> None:
        """Unloads a model; parameters are ``unload_dependents`` and, beyond Triton's, ``version``.

        Raises:
            ServingError: Unloads are not allowed, a parameter is unknown or wrong, or there is no such model.
        """
        self._check(f"unload of model {name!r}")
        others = dict(parameters)
        with_dependents = others.pop("unload_dependents", False)
        version = others.pop("version", None)
        if not isinstance(with_dependents, bool):
            raise InvalidArgumentError(f"unload of model {name!r}: 'unload_dependents' must be true or false")
        if version is not None and (isinstance(version, bool) or not isinstance(version, int) or version < 1):
            raise InvalidArgumentError(f"unload of model {name!r}: 'version' must be a whole number from 1")
        for key in others:
            raise InvalidArgumentError(
                f"unload of model {name!r}: parameter {key[:200]!r} is none of 'unload_dependents', 'version'",
                field=key,
            )
        await self._bridge.load_aside(
            partial(self._server.unload, name, version=version, with_dependents=with_dependents)
        )

    def _check(self, what: str) -> None:
        if not self._is_allowed:
            raise UnavailableError(
                f"{what} is not allowed: the server was not started with --control explicit and --allow-control"
            )


def _decode(key: str, value: str) -> bytes:
    try:
        return base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError) as error:
        raise InvalidArgumentError(f"parameter {key[:200]!r} is not base64: {error}", field=key) from error
