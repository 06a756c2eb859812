"""Child processes that read untrusted files: a crash in a C parser is a sample's reason, not a worker's death.

`run_isolated` starts ``python -m tasks.isolation``, hands it the name of a function and its arguments as JSON on
standard input and reads JSON lines back from a pipe of their own: whatever htslib prints cannot disturb the answer.
"""

from __future__ import annotations

import ctypes
import importlib
import json
import logging
import os
import resource
import selectors
import signal
import subprocess
import sys
import traceback
from collections.abc import Callable
from typing import IO, Any

from tasks import errors
from tasks.errors import ParserCrashError, TaskError

_LOG = logging.getLogger(__name__)
_TAIL_BYTES = 4096
_READ_BYTES = 1 << 16
_PR_SET_PDEATHSIG = 1  # linux/prctl.h

_answers: IO[bytes] | None = None
"""In a child: the pipe to the parent. None in every other process."""


def run_isolated(
    function: str,
    payload: dict[str, Any],
    *,
    what: str,
    memory_bytes: int | None = None,
    progress: Callable[[Any], None] | None = None,
) -> Any:
    """Runs a function in a child process and returns its result.

    The child dies with this process (and with the thread that called), so nothing outlives a killed worker.

    Args:
        function: ``package.module:function``; it is called with `payload` as keyword arguments.
        payload: JSON values.
        what: What is being read, for messages: a path, mostly.
        memory_bytes: Limit of the child's address space; None for no limit.
        progress: Called with each value the function gives to `report_progress`.

    Returns:
        What the function returned, as JSON gives it back.

    Raises:
        TaskError: The function raised one: the same class, message, field and reason. Any other exception comes as
            TaskError itself, and its traceback goes to the debug log.
        ParserCrashError: The child was ended by a signal, ran out of memory, or ended without an answer.
    """
    read_end, write_end = os.pipe()
    try:
        child = subprocess.Popen(
            [sys.executable, "-P", "-m", "tasks.isolation", str(write_end), str(os.getpid())],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            pass_fds=(write_end,),
        )
    except BaseException:
        os.close(read_end)
        raise
    finally:
        os.close(write_end)
    request = json.dumps({"function": function, "payload": payload, "memory_bytes": memory_bytes}).encode()
    try:
        with os.fdopen(read_end, "rb", buffering=0) as answers:
            answer, tail = _converse(child, answers, request, progress)
        status = child.wait()
    finally:
        if child.poll() is None:
            child.kill()
            child.wait()
        for stream in (child.stdin, child.stdout):
            if stream is not None and not stream.closed:
                stream.close()
    if answer is None:
        raise _crash(what, status, tail)
    if "error" in answer:
        raise _rebuild_error(what, answer["error"], tail)
    return answer["result"]


def report_progress(value: Any) -> None:
    """Sends a JSON value to the parent's `progress`; does nothing outside of a child."""
    if _answers is not None:
        _send({"progress": value})


def _converse(
    child: subprocess.Popen[bytes], answers: Any, request: bytes, progress: Callable[[Any], None] | None
) -> tuple[dict[str, Any] | None, str]:
    """Sends the request and reads both pipes to their ends; returns the answer, if any, and what was printed last."""
    if child.stdin is None or child.stdout is None:
        raise RuntimeError("the child has no pipes")
    try:
        child.stdin.write(request)
        child.stdin.close()
    except BrokenPipeError:
        pass  # the child died before it read: its status says why
    answer: dict[str, Any] | None = None
    tail = b""
    pending = b""
    with selectors.DefaultSelector() as selector:
        selector.register(answers, selectors.EVENT_READ)
        selector.register(child.stdout, selectors.EVENT_READ)
        while selector.get_map():
            for key, _ in selector.select():
                block = os.read(key.fd, _READ_BYTES)
                if not block:
                    selector.unregister(key.fileobj)
                elif key.fileobj is child.stdout:
                    tail = (tail + block)[-_TAIL_BYTES:]
                else:
                    *lines, pending = (pending + block).split(b"\n")
                    for line in lines:
                        message = json.loads(line)
                        if "progress" not in message:
                            answer = message
                        elif progress is not None:
                            progress(message["progress"])
    return answer, tail.decode(errors="replace")


def _crash(what: str, status: int, tail: str) -> ParserCrashError:
    said = _last_words(tail)
    if status >= 0:
        return ParserCrashError(f"{what}: the parser ended with status {status} and no answer{said}")
    name = signal.Signals(-status).name
    cause = "most likely for want of memory" if -status == signal.SIGKILL else "the file is most likely damaged"
    return ParserCrashError(f"{what}: the parser died on {name}; {cause}{said}")


def _rebuild_error(what: str, fault: dict[str, Any], tail: str) -> TaskError:
    if fault["traceback"]:
        _LOG.debug("%s\n%s", fault["traceback"], tail)
    kind = getattr(errors, fault["class"], None)
    if isinstance(kind, type) and issubclass(kind, TaskError):
        said = _last_words(tail) if kind.blame == "input" else ""
        return kind(fault["message"] + said, field=fault["field"], reason=fault["reason"])
    if fault["class"] == "MemoryError":
        return ParserCrashError(f"{what}: reading it needs more memory than allowed", reason="OUT_OF_MEMORY")
    return TaskError(f"{what}: {fault['class']}: {fault['message']}{_last_words(tail)}")


def _last_words(tail: str) -> str:
    """The last error htslib printed (``[E::function] text``), as the end of a message; empty when there is none."""
    # An index that is not there is looked for, and complained about, each time a file is opened.
    faults = [line for line in tail.splitlines() if line.startswith("[E::") and "index" not in line.partition("]")[0]]
    return f" (htslib: {faults[-1].partition('] ')[2]})" if faults else ""


def _send(message: dict[str, Any]) -> None:
    if _answers is None:
        raise RuntimeError("not in a child of run_isolated")
    _answers.write(json.dumps(message).encode() + b"\n")
    _answers.flush()


def die_with_parent(parent: int) -> None:
    """Has the kernel kill this process when its parent dies; ends at once when it already has."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def _main(answers_fd: int, parent: int) -> None:
    global _answers
    die_with_parent(parent)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the parent ends this child itself
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.set_inheritable(answers_fd, False)
    _answers = os.fdopen(answers_fd, "wb")
    request = json.loads(sys.stdin.buffer.read())
    if request["memory_bytes"] is not None:
        resource.setrlimit(resource.RLIMIT_AS, (request["memory_bytes"], request["memory_bytes"]))
    try:
        module, _, name = request["function"].partition(":")
        result = getattr(importlib.import_module(module), name)(**request["payload"])
        message = {"result": result}
    except Exception as error:
        known = isinstance(error, TaskError)
        message = {
            "error": {
                "class": type(error).__name__,
                "message": error.message if isinstance(error, TaskError) else str(error),
                "field": getattr(error, "field", None) if known else None,
                "reason": getattr(error, "reason", None) if known else None,
                "traceback": "" if known else traceback.format_exc(),
            }
        }
    _send(message)
    _answers.close()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)  # destructors of a C parser that has already failed are not worth another crash


if __name__ == "__main__":
    # The module that functions import is `tasks.isolation`, not `__main__`: both must see the same pipe.
    from tasks.isolation import _main as main

    main(int(sys.argv[1]), int(sys.argv[2]))
