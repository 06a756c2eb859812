"""The model server's speed over HTTP and gRPC, on a server in a process of its own.

    python infra/bench_protocol.py [--seconds 3] [--rounds 3]

Each figure is the best of the rounds: other programs can only make it worse. Beside each rate stands the processor time
that the server took for a request, which they disturb less. Exit code 1 when a figure misses its bound.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import grpc
import numpy as np
import onnx
import psutil
import tritonclient.grpc
import tritonclient.http
from onnx import TensorProto, helper
from tritonclient.grpc import service_pb2

CLIENTS = 32
BIG = 2_000_000
# A hit of 8 MB on Triton takes 38 ms over HTTP (version 2.51, two cores); half of it is the bound.
HIT_MS = 19.0


def write_models(repository: Path) -> None:
    """`identity` of four numbers; `mean` of 8 MB, with and without a cache."""
    for name, width, node, config in (
        ("identity", 4, helper.make_node("Identity", ["x"], ["y"]), "max_batch_size: 64 dynamic_batching { }"),
        ("mean", BIG, _mean(), "max_batch_size: 1 response_cache { enable: true }"),
        ("mean_off", BIG, _mean(), "max_batch_size: 1"),
    ):
        (repository / name / "1").mkdir(parents=True)
        (repository / name / "config.pbtxt").write_text(config)
        graph = helper.make_graph(
            [node],
            name,
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", width])],
            [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", width if name == "identity" else 1])],
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
        onnx.save(model, str(repository / name / "1" / "model.onnx"))


def _mean() -> onnx.NodeProto:
    return helper.make_node("ReduceMean", ["x"], ["y"], axes=[1], keepdims=1)


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


@contextmanager
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


def bench_hit(served: Served, rounds: int) -> int:
    """An 8 MB input that hits the cache, beside the same without a cache; gives how many bounds were missed."""
    num_missed = 0
    x = np.random.default_rng(1).random((1, BIG), dtype=np.float32)
    for kind, module, port in (
        ("HTTP", tritonclient.http, served.http_port),
        ("gRPC", tritonclient.grpc, served.grpc_port),
    ):
        client = module.InferenceServerClient(f"127.0.0.1:{port}")
        tensor = module.InferInput("x", [1, BIG], "FP32")
        tensor.set_data_from_numpy(x)

        def ask(model: str, client: object = client, tensor: object = tensor) -> Callable[[], object]:
            return lambda: client.infer(model, [tensor])  # type: ignore[attr-defined]

        (hit_ms, hit_cpu_ms), (off_ms, off_cpu_ms) = (
            _times_ms(served, ask(model), rounds) for model in ("mean", "mean_off")
        )
        missed = kind == "HTTP" and hit_ms > HIT_MS
        num_missed += missed
        bound = f", at most {HIT_MS:.0f}{': MISSED' if missed else ''}" if kind == "HTTP" else ""
        print(
            f"8 MB over {kind}: hit {hit_ms:.1f} ms ({hit_cpu_ms:.1f} of the server{bound}), "
            f"cache off {off_ms:.1f} ms ({off_cpu_ms:.1f} of the server)"
        )
        client.close()
    return num_missed


def _times_ms(served: Served, ask: Callable[[], object], rounds: int) -> tuple[float, float]:
    """Median of twenty and the server's processor time for each, the best of the rounds."""
    ask()
    medians_s, cpu_s = [], []
    for _ in range(rounds):
        times_s = []
        begun_cpu_s = served.cpu_s()
        for _ in range(20):
            begun_s = time.perf_counter()
            ask()
            times_s.append(time.perf_counter() - begun_s)
        cpu_s.append((served.cpu_s() - begun_cpu_s) / 20)
        medians_s.append(float(np.median(times_s)))
    return min(medians_s) * 1e3, min(cpu_s) * 1e3


def main() -> int:
    """Runs everything; gives the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}; best of {options.rounds} rounds")
    with tempfile.TemporaryDirectory() as name:
        write_models(Path(name))
        with serve(Path(name)) as served:
            bench_rows(served, options.seconds, options.rounds)
            return int(bench_hit(served, options.rounds) > 0)


if __name__ == "__main__":
    raise SystemExit(main())
