"""NVIDIA Triton on this machine's CPU, to measure beside.

TRITON_VENV names a virtual environment of Python 3.11 with nvidia-pytriton and numpy<2 (its wheel carries a
tritonserver).
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import tritonclient.grpc

_CONFIG = """
backend: "python" max_batch_size: {max_batch_size} {config}
input {{ name: "x" data_type: TYPE_FP32 dims: [ -1 ] }} output {{ name: "y" data_type: TYPE_FP32 dims: [ 1 ] }}
instance_group {{ kind: KIND_CPU count: 1 }}
"""
_MODEL = """
import time
import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        inputs = [pb_utils.get_input_tensor_by_name(request, "x").as_numpy() for request in requests]
        return [pb_utils.InferenceResponse([pb_utils.Tensor("y", y)]) for y in self.answer(inputs)]

    def answer(self, inputs):
        {answer}
"""


@dataclass(frozen=True, slots=True)
class TritonModel:
    """A python model of Triton's: y [rows, 1] from x [rows, -1].

    Attributes:
        answer: Statements that return the list of y for the list `inputs` of x.
        config: More of its configuration.
    """

    answer: str
    max_batch_size: int
    config: str = ""


@dataclass(frozen=True, slots=True)
class Triton:
    """Where it listens, on loopback."""

    http_port: int
    grpc_port: int
    pid: int


def triton_venv() -> Path | None:
    """The virtual environment that TRITON_VENV names; None, and a line that says so, without it."""
    venv = os.environ.get("TRITON_VENV")
    if venv is None:
        print("Triton: not compared; TRITON_VENV names no virtual environment with nvidia-pytriton")
        return None
    return Path(venv)


@contextmanager
def triton(
    venv: Path, folder: Path, models: Mapping[str, TritonModel], arguments: Sequence[str] = ()
) -> Iterator[Triton]:
    """A tritonserver with these models, ready.

    The wheel keeps the stub that runs python models apart from the backend: they are put together here, in `folder`.
    """
    site = next((venv / "lib").glob("python3.*")) / "site-packages"
    server = site / "pytriton" / "tritonserver"
    backends = folder / "backends"
    shutil.copytree(server / "backends", backends)
    stub = server / "python_backend_stubs" / site.parent.name.removeprefix("python") / "triton_python_backend_stub"
    shutil.copy(stub, backends / "python")
    for name, model in models.items():
        version = folder / "repository" / name / "1"
        version.mkdir(parents=True)
        config = _CONFIG.format(max_batch_size=model.max_batch_size, config=model.config)
        (version.parent / "config.pbtxt").write_text(config)
        (version / "model.py").write_text(_MODEL.format(answer=model.answer))
    ports = free_ports(3)
    command = [str(server / "bin" / "tritonserver"), f"--model-repository={folder / 'repository'}"]
    command += [f"--backend-directory={backends}", f"--cache-directory={server / 'caches'}", *arguments]
    for kind, port in zip(("http", "grpc", "metrics"), ports, strict=True):
        command += [f"--{kind}-port={port}", f"--{kind}-address=127.0.0.1"]
    environment = os.environ | {
        "PATH": f"{venv / 'bin'}:{os.environ['PATH']}",
        "PYTHONPATH": str(site),
        "LD_LIBRARY_PATH": str(site / "nvidia_pytriton.libs"),
    }
    with open(folder / "log", "wb") as log:
        process = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
    try:
        wait_ready(f"127.0.0.1:{ports[1]}", process, folder / "log")
        yield Triton(ports[0], ports[1], process.pid)
    finally:
        process.terminate()
        process.wait(60)


def free_ports(number: int) -> list[int]:
    """Ports of loopback that nobody listens on."""
    probes = [socket.create_server(("127.0.0.1", 0)) for _ in range(number)]
    ports = [probe.getsockname()[1] for probe in probes]
    for probe in probes:
        probe.close()
    return ports


def wait_ready(address: str, process: subprocess.Popen[bytes], log: Path) -> None:
    """Waits until a server's gRPC answers.

    Raises:
        RuntimeError: It ended, or is not ready within a minute.
    """
    give_up_s = time.monotonic() + 60
    with tritonclient.grpc.InferenceServerClient(address) as client:
        while time.monotonic() < give_up_s:
            if process.poll() is not None:
                raise RuntimeError(f"the server ended:\n{log.read_text()[-2000:]}")
            try:
                if client.is_server_ready():
                    return
            except tritonclient.grpc.InferenceServerException:
                time.sleep(0.2)
    raise RuntimeError(f"the server is not ready:\n{log.read_text()[-2000:]}")
