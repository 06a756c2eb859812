"""`cohortflow serve-models` as its users start it."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import tritonclient.grpc
import tritonclient.http
from click.testing import CliRunner, Result

from flows.cli import main
from tests.serving.models import affine, affine_answer, write_model
from tests.serving.protocol.conftest import make_input

COMMAND = [sys.executable, "-m", "flows.cli", "serve-models"]
ANY_PORT = ["--http-port", "0", "--grpc-port", "0", "--metrics-port", "0"]
X = np.ones((2, 4), np.float32)
# Says that it is inside by a named pipe, and goes on once it is told by another.
PIPED_BACKEND = """
from pathlib import Path
from serving.backends.base import Backend

class PipedBackend(Backend):
    @classmethod
    def version(cls):
        return "piped 1"

    def load(self, folder, config, device, threads):
        self.folder = Path(folder)

    def execute(self, inputs):
        (self.folder / "inside").write_text("inside")
        (self.folder / "go").read_text()
        return {"y": 2 * inputs["x"]}
"""
PIPED_CONFIG = """
backend: "piped"
max_batch_size: 8
input { name: "x" data_type: TYPE_FP32 dims: [ 4 ] }
output { name: "y" data_type: TYPE_FP32 dims: [ 4 ] }
parameters { key: "row_multiple" value { string_value: "1" } }
"""


@pytest.fixture
def repository(tmp_path) -> Path:
    write_model(tmp_path / "models", "affine", affine(), "max_batch_size: 8")
    return tmp_path / "models"


def end_with(*arguments: str, **environment: str) -> Result:
    """Runs a command that ends by itself."""
    return CliRunner().invoke(main, ["serve-models", *arguments], env=environment)


class Served:
    """The command, running; `lines` is what it said until it listened."""

    def __init__(self, *arguments: str, **environment: str) -> None:
        self.process = subprocess.Popen(
            [*COMMAND, *arguments, *ANY_PORT], env={**os.environ, **environment}, stdout=subprocess.PIPE, text=True
        )
        self.lines = []
        self.ports = {}
        while len(self.ports) < 3:
            line = self.process.stdout.readline()
            assert line, "it ended"
            self.lines.append(line.strip())
            if found := re.fullmatch(r"(HTTP|gRPC|metrics) 127\.0\.0\.1:(\d+)(/metrics)?", line.strip()):
                self.ports[found[1]] = int(found[2])

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()


def test_it_says_what_it_serves_and_stops_when_told(repository):
    with Served(str(repository)) as served:
        assert "model affine 1 READY" in served.lines
        with tritonclient.http.InferenceServerClient(f"127.0.0.1:{served.ports['HTTP']}") as http:
            np.testing.assert_allclose(
                http.infer("affine", [make_input("http", X)]).as_numpy("y"), affine_answer(X), rtol=1e-5
            )
        with tritonclient.grpc.InferenceServerClient(f"127.0.0.1:{served.ports['gRPC']}") as rpc:
            assert rpc.is_server_ready()
        served.process.send_signal(signal.SIGTERM)
        assert served.process.wait(30) == 0


@pytest.fixture
def piped(tmp_path):
    """A served model that says when it computes, and waits until it may go on: the server, the model's folder."""
    folder = write_model(tmp_path / "models", "piped", None, PIPED_CONFIG)
    for name in ("inside", "go"):
        os.mkfifo(folder / name)
    site = tmp_path / "site"
    info = site / "piped_backend-1.dist-info"
    info.mkdir(parents=True)
    (site / "piped_backend.py").write_text(PIPED_BACKEND)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: piped-backend\nVersion: 1\n")
    (info / "entry_points.txt").write_text("[cohortflow.backends]\npiped = piped_backend:PipedBackend\n")
    path = os.pathsep.join([str(site), os.environ.get("PYTHONPATH", "")])
    with Served(str(tmp_path / "models"), PYTHONPATH=path) as served:
        yield served, folder


def test_what_is_in_flight_is_finished(piped):
    served, folder = piped
    with ThreadPoolExecutor(1) as pool:
        rpc = tritonclient.grpc.InferenceServerClient(f"127.0.0.1:{served.ports['gRPC']}")
        answer = pool.submit(rpc.infer, "piped", [make_input("grpc", X)])
        assert (folder / "inside").read_text() == "inside"
        served.process.send_signal(signal.SIGTERM)
        assert "stopping" in served.process.stdout.readline()
        with tritonclient.http.InferenceServerClient(f"127.0.0.1:{served.ports['HTTP']}") as http:
            assert http.is_server_live()
            assert not http.is_server_ready()
        (folder / "go").write_text("go")
        assert answer.result(30).as_numpy("y").tolist() == (2 * X).tolist()
        assert served.process.wait(30) == 0


def test_a_second_signal_stops_at_once(piped):
    served, folder = piped
    with ThreadPoolExecutor(1) as pool:
        rpc = tritonclient.grpc.InferenceServerClient(f"127.0.0.1:{served.ports['gRPC']}")
        answer = pool.submit(rpc.infer, "piped", [make_input("grpc", X)])
        assert (folder / "inside").read_text() == "inside"
        served.process.send_signal(signal.SIGINT)
        assert "stopping" in served.process.stdout.readline()
        served.process.send_signal(signal.SIGINT)
        assert served.process.wait(10) == 130
        assert answer.exception(10) is not None


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--host", "0.0.0.0"], "host '0.0.0.0' is beyond loopback: a token and a TLS certificate are needed"),
        (["--allow-control"], "--allow-control and --load-model need --control explicit"),
        (["--control", "explicit"], "needs --load-model, --allow-control or both"),
        (["--control", "explicit", "--allow-control"], "--allow-control needs COHORTFLOW_SERVING_TOKEN"),
        (["--tls-certificate", __file__], "--tls-certificate and --tls-key belong together"),
        (["--tls-certificate", __file__, "--tls-key", __file__], "certificate"),
        (["--http-port", "70000"], "70000"),
    ],
)
def test_flags_that_do_not_fit(repository, arguments, words):
    ended = end_with(str(repository), *ANY_PORT, *arguments)
    assert ended.exit_code == 2
    assert words in ended.output


def test_a_token_is_needed_and_never_said(repository):
    ended = end_with(str(repository), "--host", "0.0.0.0", COHORTFLOW_SERVING_TOKEN="the-secret-of-the-tests")
    assert ended.exit_code == 2
    assert "secret" not in ended.output
    ended = end_with(str(repository), COHORTFLOW_SERVING_TOKEN="secret")
    assert ended.exit_code == 2
    assert "16 or more" in ended.output
    assert "secret" not in ended.output


def test_what_cannot_be_served(repository):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        ended = end_with(str(repository), *ANY_PORT, "--http-port", str(port))
    assert ended.exit_code == 1
    assert f"cannot listen on 127.0.0.1, port {port}" in ended.output
    (repository / "affine" / "config.pbtxt").write_text("max_batch_size: many")
    ended = end_with(str(repository), *ANY_PORT)
    assert ended.exit_code == 1
    assert "affine" in ended.output


def test_an_empty_folder_serves_nothing(tmp_path):
    ended = end_with(str(tmp_path), *ANY_PORT)
    assert ended.exit_code == 1
    assert f"{tmp_path} has no model: it must hold a folder for each" in ended.output


def test_help_names_every_flag():
    ended = end_with("--help")
    assert ended.exit_code == 0
    for word in (
        "--control",
        "--allow-control",
        "--grpc-port",
        "--redis",
        "--threads",
        "COHORTFLOW_SERVING_TOKEN",
        "Exit",
    ):
        assert word in ended.output
