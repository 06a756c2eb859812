"""Units of work on the Dask cluster, driven from the threads of Prefect tasks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from distributed import Client, Future, KilledWorker, as_completed, default_client
from distributed.scheduler import NoValidWorkerError

from tasks.errors import ParserCrashError, TaskError


class WorkerLostError(ParserCrashError):
    """Workers died while they ran a unit of work."""

    default_reason = "WORKER_LOST"


def run_unit(function: Callable[..., Any], *arguments: Any, what: str) -> Any:
    """Runs one unit of work on a worker and returns its result; see `run_units`."""
    return run_units(function, [arguments], what=what)[0]


def run_units(
    function: Callable[..., Any],
    arguments: Sequence[tuple[Any, ...]],
    *,
    what: str,
    on_done: Callable[[], None] = lambda: None,
) -> list[Any]:
    """Runs a function once for each tuple of arguments and returns the results in their order.

    Units write files and return counts, so one that is run twice (its worker died) does no harm.

    Args:
        function: Importable on the workers.
        arguments: Small values: paths and numbers.
        what: What the units work on, for the message when workers are lost.
        on_done: Called after each unit.

    Raises:
        WorkerLostError: A unit's workers died twice.
        Exception: What the first failing unit raised; the others are cancelled.
    """
    client: Client = default_client()
    futures: list[Future] = [client.submit(function, *each, pure=False) for each in arguments]
    try:
        for future in as_completed(futures):
            error = future.exception()
            if isinstance(error, KilledWorker):
                raise WorkerLostError(
                    f"{what}: two workers died on one unit of work: too little memory, or data that crashes a parser"
                )
            if error is not None:
                raise error
            on_done()
        return [future.result() for future in futures]
    finally:
        client.cancel([future for future in futures if not future.done()])


def as_task_error(error: BaseException) -> TaskError:
    """The error as one of ours: defects of this program keep their type's name in the message."""
    if isinstance(error, TaskError):
        return error
    if isinstance(error, NoValidWorkerError):
        return TaskError(f"no worker is left: {error}", reason="NO_WORKER")
    return TaskError(f"{type(error).__name__}: {error}", reason="INTERNAL_ERROR")
