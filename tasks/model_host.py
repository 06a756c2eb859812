"""The model server of a Dask worker, and how a unit of work reaches it."""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from distributed import Worker, WorkerPlugin, get_worker

from tasks.errors import TaskError

if TYPE_CHECKING:
    from serving.server import ModelServer

PLUGIN_NAME = "model-host"
REDIS_VARIABLE = "COHORTFLOW_REDIS_URL"


class ModelMismatchError(TaskError):
    """A worker's models are not those of the run's plan."""

    default_reason = "OTHER_MODELS"


@dataclass(frozen=True, slots=True)
class HostSettings:
    """How each worker's model server is built.

    Attributes:
        repository: The model repository, at this path on every worker.
        threads: Threads of one execution.
        cache_bytes: Budget of the row cache in memory.
        cache_budget_ms: Longest wait for Redis in one look-up.
    """

    repository: str
    threads: int
    cache_bytes: int = 64 << 20
    cache_budget_ms: float = 50.0


class ModelHost(WorkerPlugin):
    """Hosts one model server for the life of a worker; a restarted worker builds its own.

    The server is built by the first unit of work that asks, in that unit's thread: workers that only read files pay
    nothing, and the worker's event loop is never held up. The address of Redis, which may hold a password, comes from
    the worker's environment (COHORTFLOW_REDIS_URL), not over the wire.
    """

    name = PLUGIN_NAME

    def __init__(self, settings: HostSettings) -> None:
        self.settings = settings

    def setup(self, worker: Worker) -> None:
        """Dask: called when the plugin reaches a worker."""
        self._lock = threading.Lock()
        self._server: ModelServer | None = None

    def teardown(self, worker: Worker) -> None:
        """Dask: called when the worker closes in order."""
        with self._lock:
            if self._server is not None:
                self._server.close()
                self._server = None

    @property
    def server(self) -> ModelServer:
        """The worker's server, built on first use."""
        with self._lock:
            if self._server is None:
                from serving.server import ModelServer

                server = ModelServer(
                    Path(self.settings.repository),
                    threads=self.settings.threads,
                    redis_url=os.environ.get(REDIS_VARIABLE) or None,
                    cache_bytes=self.settings.cache_bytes,
                    cache_budget_ms=self.settings.cache_budget_ms,
                )
                server.start()
                self._server = server
            return self._server

    def statistics(self) -> dict[str, Any]:
        """The server's counters; empty when nothing was asked of it."""
        with self._lock:
            return self._server.statistics() if self._server is not None else {}

    def __getstate__(self) -> dict[str, Any]:
        # The server and its lock stay behind: a plugin travels as its settings.
        return {"settings": self.settings}


def model_host() -> ModelHost:
    """The host of the worker that runs the calling unit of work."""
    host = get_worker().plugins[PLUGIN_NAME]
    assert isinstance(host, ModelHost)
    return host


def model_server(expected_digests: dict[str, str]) -> ModelServer:
    """The worker's server, after a check that it holds the models of the plan.

    Args:
        expected_digests: For each ensemble that will be asked the execution digest of the plan.

    Raises:
        ModelMismatchError: The worker's files, backend or settings differ from the plan's.
    """
    server = model_host().server
    for name, expected in expected_digests.items():
        found = server.digest(name)
        if found != expected:
            raise ModelMismatchError(
                f"model {name}: this worker's digest is {found[:12]}, the plan's is {expected[:12]}; "
                "every worker needs the same model repository and the same installed versions"
            )
    return server


def host_statistics(dask_worker: Worker) -> dict[str, Any]:
    """Counters of a worker's server (for ``Client.run``, which names the worker)."""
    host = dask_worker.plugins[PLUGIN_NAME]
    assert isinstance(host, ModelHost)
    return host.statistics()


def has_redis_url() -> bool:
    """Whether the calling worker's environment names a Redis."""
    return bool(os.environ.get(REDIS_VARIABLE))


def host_digests(names: list[str]) -> dict[str, Any]:
    """Execution digests and input shapes of the named models, as the calling worker would run them."""
    server = model_host().server
    return {name: {"digest": server.digest(name), "version": server.version(name)} for name in names}
