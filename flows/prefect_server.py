"""The Prefect API a run reports to: the user's server when PREFECT_API_URL names one, else a private one for the run.

The private server is a child process on loopback with its own SQLite file under ``~/.cohortflow/prefect``. It is
started here, and not by Prefect's own ephemeral mode, because that one imports the whole server into this process, and
because two first starts at once break the migration of the database: here a file lock is held until the server is
healthy.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tasks.errors import TaskError
from tasks.files import make_folder

_PRIVATE = {
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "PREFECT_SERVER_UI_ENABLED": "false",
    "PREFECT_SERVER_UI_V2_ENABLED": "false",
    "PREFECT_SERVER_SERVICES_SCHEDULER_ENABLED": "false",
    "PREFECT_SERVER_SERVICES_LATE_RUNS_ENABLED": "false",
    "PREFECT_SERVER_SERVICES_CANCELLATION_CLEANUP_ENABLED": "false",
    "PREFECT_SERVER_SERVICES_PAUSE_EXPIRATIONS_ENABLED": "false",
    "PREFECT_SERVER_SERVICES_FOREMAN_ENABLED": "false",
    "PREFECT_SERVER_SERVICES_TRIGGERS_ENABLED": "false",
    "PREFECT_SERVER_SERVICES_REPOSSESSOR_ENABLED": "false",
    "PREFECT_SERVER_LOGGING_LEVEL": "ERROR",
}
_CLIENT = {"PREFECT_SERVER_ANALYTICS_ENABLED": "false", "DO_NOT_TRACK": "1"}
_START_DEADLINE_S = 120.0
_STOP_DEADLINE_S = 10.0
_PR_SET_PDEATHSIG = 1


class ServerError(TaskError):
    """The private Prefect server did not start."""

    retryable = True
    default_reason = "PREFECT_SERVER"


def home() -> Path:
    """Where this program keeps its own state: ``COHORTFLOW_HOME``, else ``~/.cohortflow``."""
    return Path(os.environ.get("COHORTFLOW_HOME") or Path.home() / ".cohortflow")


@contextmanager
def prefect_api() -> Iterator[str]:
    """Makes an API available to flows of this process, before ``prefect`` is imported; yields its URL.

    Starting the server takes seconds of another core: enter early, and call `wait_until_healthy` when it is needed.

    Raises:
        ServerError: The private server ended or was not healthy in time.
    """
    os.environ.update(_CLIENT)
    # What goes wrong is told by the command line, once, in its own words.
    os.environ.setdefault("PREFECT_LOGGING_LEVEL", "CRITICAL")
    os.environ.setdefault("PREFECT_INTERNAL_LOGGING_LEVEL", "CRITICAL")
    given = os.environ.get("PREFECT_API_URL")
    if given:
        yield given
        return
    folder = make_folder(home() / "prefect")
    os.environ.update({"PREFECT_HOME": str(folder), "PREFECT_LOGGING_TO_API_ENABLED": "false"})
    lock = os.open(folder / ".lock", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    fcntl.flock(lock, fcntl.LOCK_EX)
    url, process = _start(folder)
    os.environ["PREFECT_API_URL"] = url
    _PENDING[url] = (process, lock)
    try:
        yield url
    finally:
        del os.environ["PREFECT_API_URL"]
        _release(url)
        process.terminate()
        try:
            process.wait(_STOP_DEADLINE_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


_PENDING: dict[str, tuple[subprocess.Popen[bytes], int]] = {}


def wait_until_healthy(url: str) -> None:
    """Waits until the API answers.

    Raises:
        ServerError: The server process ended, or the deadline passed.
    """
    pending = _PENDING.get(url)
    deadline = time.monotonic() + _START_DEADLINE_S
    while True:
        try:
            with urllib.request.urlopen(f"{url}/health", timeout=5):  # noqa: S310 - the operator's URL
                break
        except (urllib.error.URLError, OSError) as error:
            ended = pending and pending[0].poll() is not None
            if ended or time.monotonic() > deadline:
                raise ServerError(f"the Prefect API at {url} does not answer: {error}") from error
            # A socket that nobody listens on yet cannot be waited for; the child has no channel of its own to us.
            time.sleep(0.05)
    _release(url)


def _release(url: str) -> None:
    """Lets the next private server start: the migration is over, or the server has gone."""
    pending = _PENDING.pop(url, None)
    if pending:
        os.close(pending[1])


def _start(folder: Path) -> tuple[str, subprocess.Popen[bytes]]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "uvicorn", "--factory", "prefect.server.api.server:create_app"]
    command += ["--host", "127.0.0.1", "--port", str(port), "--log-level", "error", "--lifespan", "on"]
    environment = {**os.environ, **_PRIVATE, "PREFECT_HOME": str(folder)}
    # The Ctrl-C of the terminal is for the run, which then tells the server how it ended: so, a session of its own.
    process = subprocess.Popen(
        command,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=open(folder / "server.log", "wb"),  # noqa: SIM115 - the child's, for its lifetime
        start_new_session=True,
        preexec_fn=_die_with_parent,  # started from the main thread, so its end is the process's end
    )
    return f"http://127.0.0.1:{port}/api", process


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def claim_folder(tag: str, flow_run_id: Any) -> int:
    """Tags a flow run as the one of its folder, and ends what killed processes left there; returns how many runs.

    The caller holds the folder's lock, so every other run with `tag` that the API shows as unfinished is dead: it and
    its tasks are marked as crashed.
    """
    from prefect.client.orchestration import get_client
    from prefect.client.schemas.filters import FlowRunFilter, FlowRunFilterTags
    from prefect.states import Crashed

    state: Any = Crashed(message="The process ended without a word; the next run of the folder found it.")
    with get_client(sync_client=True) as client:
        runs = client.read_flow_runs(flow_run_filter=FlowRunFilter(tags=FlowRunFilterTags(all_=[tag])))
        stale = [run for run in runs if run.id != flow_run_id and not (run.state and run.state.is_final())]
        for run in stale:
            for task_run in unfinished_tasks(client, run.id):
                client.set_task_run_state(task_run.id, state, force=True)
            client.set_flow_run_state(run.id, state, force=True)
        client.update_flow_run(flow_run_id, tags=[tag])
    return len(stale)


def unfinished_tasks(client: Any, flow_run_id: Any) -> list[Any]:
    """The task runs of a flow run that the API does not show as ended."""
    from prefect.client.schemas.filters import FlowRunFilter, FlowRunFilterId

    runs = client.read_task_runs(flow_run_filter=FlowRunFilter(id=FlowRunFilterId(any_=[flow_run_id])))
    return [run for run in runs if run.state is None or not run.state.is_final()]


def wait_until_recorded(flow_run_id: Any, deadline_s: float = 30.0) -> None:
    """Waits until the API shows every task of a flow run as ended: states travel as events, after the task itself."""
    from prefect.client.orchestration import get_client
    from prefect.states import Crashed

    deadline = time.monotonic() + deadline_s
    with get_client(sync_client=True) as client:
        while unfinished := unfinished_tasks(client, flow_run_id):
            if time.monotonic() > deadline:
                state: Any = Crashed(message="The end of this task was not recorded in time.")
                for run in unfinished:
                    client.set_task_run_state(run.id, state, force=True)
                return
            time.sleep(0.1)
