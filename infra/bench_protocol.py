"""The model server's speed over HTTP and gRPC, on a server in a process of its own.

    python infra/bench_protocol.py [--seconds 3] [--rounds 3]

Each figure is the best of the rounds: other programs can only make it worse. Beside each rate stands the processor time
that the server took for a request, which they disturb less. Inputs of 8 MB that hit the cache are measured beside
Triton's where TRITON_VENV names it, see triton_server.py. Exit code 1 when a figure misses its bound.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import re
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import grpc
import numpy as np
import onnx
import psutil
import tritonclient.grpc
import tritonclient.http
from onnx import TensorProto, helper, numpy_helper
from triton_server import TritonModel, triton, triton_venv
from tritonclient.grpc import service_pb2

CLIENTS = 32
BIG = 2_000_000
# A hit of 8 MB on Triton takes 38 ms over HTTP (version 2.51, two cores): what is measured where it is not at hand.
TRITON_HIT_MS = 38.0
HIT_SHARE = 0.5
TRITON_MEAN = TritonModel(
    "return [x.mean(axis=1, keepdims=True) for x in inputs]", 1, "response_cache { enable: true }"
)


def write_models(repository: Path) -> None:
    """`identity` of four numbers; of 8 MB their `mean` and a small convolution, each with and without a cache."""
    cached = "max_batch_size: 1 response_cache { enable: true }"
    mean = [helper.make_node("ReduceMean", ["x"], ["y"], axes=[1], keepdims=1)]
    convolution = [
        helper.make_node("Unsqueeze", ["x", "one"], ["row"]),
        helper.make_node("Conv", ["row", "weights"], ["features"]),
        helper.make_node("Relu", ["features"], ["positive"]),
        helper.make_node("ReduceMean", ["positive"], ["y"], axes=[1, 2], keepdims=0),
    ]
    weights = [
        numpy_helper.from_array(np.array([1], np.int64), "one"),
        numpy_helper.from_array(np.linspace(-1, 1, 32, dtype=np.float32).reshape(4, 1, 8), "weights"),
    ]
    for name, width, nodes, config in (
        ("identity", 4, [helper.make_node("Identity", ["x"], ["y"])], "max_batch_size: 64 dynamic_batching { }"),
        ("mean", BIG, mean, cached),
        ("mean_off", BIG, mean, "max_batch_size: 1"),
        ("convolution", BIG, convolution, cached),
        ("convolution_off", BIG, convolution, "max_batch_size: 1"),
    ):
        (repository / name / "1").mkdir(parents=True)
        (repository / name / "config.pbtxt").write_text(config)
        answer = {"identity": ["batch", 4], "mean": ["batch", 1], "convolution": ["batch"]}[name.removesuffix("_off")]
        graph = helper.make_graph(
            nodes,
            name,
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", width])],
            [helper.make_tensor_value_info("y", TensorProto.FLOAT, answer)],
            weights if nodes is convolution else [],
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
        onnx.save(model, str(repository / name / "1" / "model.onnx"))


class Served:
    """A server in a process of its own."""

    def __init__(self, process: subprocess.Popen[str], http_port: int, grpc_port: int) -> None:
        self.http_port = http_port
        self.grpc_port = grpc_port
        self._process = psutil.Process(process.pid)

    def cpu_s(self) -> float:
        """Processor time so far."""
        times = self._process.cpu_times()
        return float(times.user + times.system)


@contextlib.contextmanager
def serve(repository: Path) -> Iterator[Served]:
    """Starts the command and stops it."""
    command = [sys.executable, "-m", "flows.cli", "serve-models", str(repository)]
    command += ["--http-port", "0", "--grpc-port", "0", "--metrics-port", "0"]
    path = os.pathsep.join([str(Path(__file__).parent.parent), os.environ.get("PYTHONPATH", "")])
    with subprocess.Popen(
        command, env={**os.environ, "PYTHONPATH": path}, stdout=subprocess.PIPE, text=True
    ) as process:
        ports = {}
        for line in process.stdout or ():
            if found := re.match(r"(HTTP|gRPC|metrics) \S+:(\d+)", line):
                ports[found[1]] = int(found[2])
            if len(ports) == 3:
                break
        try:
            yield Served(process, ports["HTTP"], ports["gRPC"])
        finally:
            process.terminate()


async def load_http(port: int, num_clients: int, seconds: float) -> int:
    """Single rows over connections that are kept; gives the number of answers."""
    tensor = {"name": "x", "shape": [1, 4], "datatype": "FP32", "parameters": {"binary_data_size": 16}}
    head = json.dumps({"inputs": [tensor], "parameters": {"binary_data_output": True}}).encode()
    lengths = f"Inference-Header-Content-Length: {len(head)}\r\nContent-Length: {len(head) + 16}"
    request = f"POST /v2/models/identity/infer HTTP/1.1\r\nHost: a\r\n{lengths}\r\n\r\n".encode() + head + bytes(16)
    stop_s = time.monotonic() + seconds

    async def client() -> int:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        num = 0
        while time.monotonic() < stop_s:
            writer.write(request)
            answer = await reader.readuntil(b"\r\n\r\n")
            length = re.search(rb"\r\nContent-Length: (\d+)", answer)
            assert answer.startswith(b"HTTP/1.1 200")
            assert length
            await reader.readexactly(int(length[1]))
            num += 1
        writer.close()
        return num

    return sum(await asyncio.gather(*(client() for _ in range(num_clients))))


async def load_grpc(port: int, num_clients: int, seconds: float) -> int:
    """Single rows over eight channels; gives the number of answers."""
    message = service_pb2.ModelInferRequest(model_name="identity")
    message.inputs.add(name="x", datatype="FP32", shape=[1, 4])
    message.raw_input_contents.append(bytes(16))
    request = message.SerializeToString()
    options = [("grpc.use_local_subchannel_pool", 1)]
    channels = [grpc.aio.insecure_channel(f"127.0.0.1:{port}", options=options) for _ in range(min(num_clients, 8))]
    stop_s = time.monotonic() + seconds

    async def client(number: int) -> int:
        call = channels[number % len(channels)].unary_unary("/inference.GRPCInferenceService/ModelInfer")
        num = 0
        while time.monotonic() < stop_s:
            await call(request)
            num += 1
        return num

    total = sum(await asyncio.gather(*(client(number) for number in range(num_clients))))
    for channel in channels:
        await channel.close()
    return total


def bench_rows(served: Served, seconds: float, rounds: int) -> None:
    """Single-row requests of one and of many clients."""
    for kind, load, port in (("HTTP", load_http, served.http_port), ("gRPC", load_grpc, served.grpc_port)):
        for num_clients in (CLIENTS, 1):
            best, cpu_us = 0.0, float("inf")
            for _ in range(rounds):
                begun_cpu_s, begun_s = served.cpu_s(), time.monotonic()
                num = asyncio.run(load(port, num_clients, seconds))
                best = max(best, num / (time.monotonic() - begun_s))
                cpu_us = min(cpu_us, (served.cpu_s() - begun_cpu_s) / num * 1e6)
            rate = f"{best:.0f} requests/s, {cpu_us:.0f} us of the server each"
            print(f"identity over {kind}, {num_clients} clients: {rate}", flush=True)


class Large:
    """Asks one model of one server, over one protocol, for 8 MB; `times_ms` are the medians of its rounds."""

    def __init__(self, label: str, kind: str, port: int, model: str) -> None:
        module = {"HTTP": tritonclient.http, "gRPC": tritonclient.grpc}[kind]
        self.label = f"{label} over {kind}"
        self.times_ms: list[float] = []
        self._model = model
        self._client = module.InferenceServerClient(f"127.0.0.1:{port}")
        self._tensor = module.InferInput("x", [1, BIG], "FP32")
        self._tensor.set_data_from_numpy(np.random.default_rng(1).random((1, BIG), dtype=np.float32))

    def ask(self, number: int) -> None:
        """Asks so many times, after one that warms up."""
        times_s = []
        for _ in range(1 + number):
            begun_s = time.perf_counter()
            self._client.infer(self._model, [self._tensor])
            times_s.append(time.perf_counter() - begun_s)
        self.times_ms.append(float(np.median(times_s[1:])) * 1e3)

    @property
    def best_ms(self) -> float:
        """The best round's median."""
        return min(self.times_ms)


def bench_hit(served: Served, folder: Path, rounds: int) -> int:
    """An input of 8 MB that hits the cache, beside Triton's hit and our own time without a cache.

    Returns:
        How many bounds were missed.
    """
    venv = triton_venv()
    ports = {"HTTP": served.http_port, "gRPC": served.grpc_port}
    ours = {
        (kind, model): Large(model, kind, port, model)
        for kind, port in ports.items()
        for model in ("mean", "mean_off", "convolution", "convolution_off")
    }
    with contextlib.ExitStack() as stack:
        theirs = {}
        if venv is not None:
            cache = [f"--cache-config=local,size={256 << 20}"]
            server = stack.enter_context(triton(venv, folder, {"mean": TRITON_MEAN}, cache))
            theirs = {
                kind: Large("Triton's hit", kind, port, "mean")
                for kind, port in (("HTTP", server.http_port), ("gRPC", server.grpc_port))
            }
        for _ in range(rounds):
            for one in (*ours.values(), *theirs.values()):
                one.ask(10)
    for one in (*ours.values(), *theirs.values()):
        print(f"8 MB: {one.label}: {one.best_ms:.1f} ms")
    triton_ms = theirs["HTTP"].best_ms if theirs else TRITON_HIT_MS
    ratios = [("hit over HTTP / Triton's hit over HTTP", ours["HTTP", "mean"].best_ms / triton_ms, HIT_SHARE)]
    if theirs:
        ratio = ours["gRPC", "mean"].best_ms / theirs["gRPC"].best_ms
        ratios.append(("hit over gRPC / Triton's hit over gRPC", ratio, 1))
    for kind in ports:
        for model, bound in (("convolution", 1.0), ("mean", None)):
            ratio = ours[kind, model].best_ms / ours[kind, f"{model}_off"].best_ms
            ratios.append((f"hit over {kind} / {model} without a cache", ratio, bound))
    num_missed = 0
    for what, ratio, bound in ratios:
        missed = bound is not None and ratio > bound
        num_missed += missed
        wanted = "" if bound is None else f", at most {bound}{': MISSED' if missed else ''}"
        print(f"8 MB: {what}: {ratio:.2f}{wanted}")
    return num_missed


def main() -> int:
    """Runs everything; gives the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}; best of {options.rounds} rounds")
    with tempfile.TemporaryDirectory() as name:
        write_models(Path(name) / "models")
        (Path(name) / "triton").mkdir()
        with serve(Path(name) / "models") as served:
            bench_rows(served, options.seconds, options.rounds)
            return int(bench_hit(served, Path(name) / "triton", options.rounds) > 0)


if __name__ == "__main__":
    raise SystemExit(main())
