"""The Dask cluster that a run works on: one on this machine, on its GPUs, or somebody's by address."""

from __future__ import annotations

import importlib.util
import ipaddress
import os
import shutil
import signal
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from multiprocessing import resource_tracker
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import dask
import psutil
from distributed import Client

from tasks.errors import InputError, TaskError
from tasks.model_host import REDIS_VARIABLE, HostSettings, ModelHost, has_redis_url

_CONFIG = {
    # A unit that kills its worker twice is the unit's fault: it must not take more workers with it.
    "distributed.scheduler.allowed-failures": 1,
    "distributed.worker.memory.target": False,
    "distributed.worker.memory.spill": False,
    "distributed.worker.memory.pause": 0.85,
    "distributed.worker.memory.terminate": 0.95,
    "distributed.comm.timeouts.connect": "30s",
    "distributed.admin.tick.limit": "30s",
    "distributed.nanny.pre-spawn-environ.MALLOC_TRIM_THRESHOLD_": 65536,
    "distributed.nanny.pre-spawn-environ.OMP_NUM_THREADS": 1,
}
_SHARE_OF_MEMORY = 0.8


class ClusterError(TaskError):
    """No cluster could be reached or started."""

    retryable = True
    default_reason = "NO_CLUSTER"


class SchedulerAddressError(InputError):
    """The address of a scheduler is wrong."""

    default_reason = "BAD_SCHEDULER"


class RedisAddressError(InputError):
    """The URL of Redis is wrong."""

    default_reason = "BAD_REDIS"


def num_gpus() -> int:
    """How many NVIDIA GPUs this machine shows; 0 without a driver."""
    if shutil.which("nvidia-smi") is None or importlib.util.find_spec("pynvml") is None:
        return 0
    import pynvml

    try:
        pynvml.nvmlInit()
        return int(pynvml.nvmlDeviceGetCount())
    except pynvml.NVMLError:
        return 0


def check_address(address: str) -> str:
    """Checks a scheduler's address; returns a caution to show, or an empty string.

    Raises:
        SchedulerAddressError: Not ``tcp://host:port`` or ``tls://host:port``.
    """
    parts = urlsplit(address)
    try:
        port = parts.port
    except ValueError:
        port = None
    if parts.scheme not in ("tcp", "tls") or not parts.hostname or port is None:
        raise SchedulerAddressError(
            f"--scheduler {address!r}: must be tcp://host:port, or tls://host:port with certificates", field="scheduler"
        )
    if parts.scheme == "tcp" and not _is_loopback(parts.hostname):
        return f"{address}: whoever reaches this port can run code on its workers; use tls:// beyond one machine"
    return ""


def check_redis(url: str) -> str:
    """Checks that redis-py understands a URL and that Redis answers; returns a caution to show, or an empty string.

    No message shows the URL, for it may hold a password.

    Raises:
        RedisAddressError: It is not a URL of Redis.
    """
    import redis

    try:
        redis.Redis.from_url(url, socket_timeout=1, socket_connect_timeout=1).ping()
    except redis.RedisError as error:
        return f"Redis does not answer ({type(error).__name__}); the run goes on without it"
    except ValueError as error:
        raise RedisAddressError(
            "--redis: not a Redis URL; give redis://host:port/0, rediss:// for TLS, or unix:///path", field="redis"
        ) from error
    return ""


def caution_workers_without_redis(client: Client) -> str:
    """Says which workers of a cluster have no URL of Redis though this process has one; an empty string if none.

    The URL may hold a password, so it is not sent: every worker reads it from its own environment.
    """
    if not os.environ.get(REDIS_VARIABLE):
        return ""
    without = sorted(address for address, has_redis in client.run(has_redis_url).items() if not has_redis)
    if not without:
        return ""
    return (
        f"{REDIS_VARIABLE} is set here, but not for {len(without)} of the cluster's workers ({', '.join(without[:3])}"
        f"{', ...' if len(without) > 3 else ''}): they go on without Redis; set it in their own environment"
    )


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


@contextmanager
def open_cluster(
    repository: Path, *, workers: int | None = None, scheduler: str | None = None, cache_budget_ms: float = 50.0
) -> Iterator[Client]:
    """Opens a cluster whose workers host the models of `repository`; yields its client, the default of this process.

    Args:
        repository: The model repository, readable by every worker at this path.
        workers: Number of worker processes; default one a core, one a GPU where there are GPUs.
        scheduler: Address of a cluster to use instead of one on this machine.
        cache_budget_ms: Longest wait of one look-up in Redis.

    Raises:
        ClusterError: It cannot be reached, or has no worker.
    """
    with ExitStack() as stack:
        stack.enter_context(dask.config.set(_CONFIG))
        if scheduler:
            check_address(scheduler)
            try:
                client = stack.enter_context(Client(scheduler, timeout="30s"))
                client.wait_for_workers(1, timeout=60)
            except (OSError, TimeoutError) as error:
                raise ClusterError(f"{scheduler}: {error}; is the scheduler up, and has it workers?") from error
            num_threads = 1
        else:
            cluster, num_threads = _local_cluster(workers)
            stack.enter_context(cluster)
            client = stack.enter_context(Client(cluster))
        client.register_plugin(
            ModelHost(HostSettings(str(repository), threads=num_threads, cache_budget_ms=cache_budget_ms))
        )
        yield client


@contextmanager
def _workers_ignore_interrupts() -> Iterator[None]:
    """Keeps a terminal's Ctrl-C, which goes to every process in front, from the workers: their run stops them in order.

    The thread that the cluster starts here, and every process it starts then or later, inherit the blocked signal.
    """
    # Starting this helper of multiprocessing lifts the block from its thread (CPython, resource_tracker.py): so, first.
    resource_tracker.ensure_running()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _local_cluster(workers: int | None) -> tuple[Any, int]:
    """A cluster on this machine and the number of threads that one execution of a model may use."""
    gpus = num_gpus()
    if gpus:
        try:
            from dask_cuda import LocalCUDACluster
        except ImportError as error:
            raise ClusterError(
                f"{gpus} GPUs are here but dask-cuda is not installed: pip install 'cohortflow[gpu]'"
            ) from error
        return LocalCUDACluster(n_workers=workers or gpus, dashboard_address="127.0.0.1:0"), 1
    from distributed import LocalCluster

    num_cores = len(os.sched_getaffinity(0))
    num_workers = workers or num_cores
    memory = int(psutil.virtual_memory().total * _SHARE_OF_MEMORY / num_workers)
    with _workers_ignore_interrupts():
        cluster = LocalCluster(
            n_workers=num_workers,
            threads_per_worker=2,
            processes=True,
            memory_limit=memory,
            host="127.0.0.1",
            dashboard_address="127.0.0.1:0",
            silence_logs=50,
        )
    return cluster, max(1, num_cores // num_workers)
