"""The model server's speed, in this process and side by side with NVIDIA Triton where that is at hand.

    python infra/bench_serving.py [--seconds 4] [--rounds 3] [--requests 200000]

TRITON_VENV names where Triton is, see triton_server.py; it serves a python model of the same behaviour. Each figure is
the best of the rounds: other programs can only make it worse. Exit code 1 when a figure misses its bound.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import resource
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import tritonclient.grpc as grpc_client
from triton_server import TritonModel, free_ports, triton, triton_venv, wait_ready

from serving.backends.base import Backend
from serving.server import ModelServer

CLIENTS = 32
LENGTHS = (35, 152)
EQUAL_LENGTH = 93
FIXED_S = 0.0005
TOKEN_S = 0.00002

IDENTITY = """
backend: "bench" max_batch_size: 64
input { name: "x" data_type: TYPE_FP32 dims: [ 16 ] } output { name: "y" data_type: TYPE_FP32 dims: [ 16 ] }
parameters { key: "row_multiple" value { string_value: "1" } }
"""
EVERY_FEATURE = """
dynamic_batching {
  preserve_ordering: true priority_levels: 2 default_priority_level: 1
  default_queue_policy {
    default_timeout_microseconds: 10000000 allow_timeout_override: true max_queue_size: 100000
  }
}
response_cache { enable: true }
"""
LENGTHS_MODEL = """
backend: "bench" max_batch_size: 32 dynamic_batching { }
input [ { name: "x" data_type: TYPE_FP32 dims: [ -1 ] }, { name: "lengths" data_type: TYPE_INT32 dims: [ 1 ] } ]
output { name: "y" data_type: TYPE_FP32 dims: [ 1 ] }
parameters { key: "lengths_input" value { string_value: "lengths" } }
parameters { key: "length_multiple" value { string_value: "1" } }
parameters { key: "row_multiple" value { string_value: "1" } }
"""
CHAIN = """
platform: "ensemble" max_batch_size: 64
input { name: "x" data_type: TYPE_FP32 dims: [ 16 ] } output { name: "y" data_type: TYPE_FP32 dims: [ 16 ] }
ensemble_scheduling {
  step { model_name: "first" input_map { key: "x" value: "x" } output_map { key: "y" value: "between" } }
  step { model_name: "second" input_map { key: "x" value: "between" } output_map { key: "y" value: "y" } }
}
"""
TRITON_SLEEP = TritonModel("time.sleep(0.005); return [x[:, :1].copy() for x in inputs]", 32, "dynamic_batching { }")


class BenchBackend(Backend):
    """The models of this bench, by their names; sleeping stands for computing without the interpreter's lock."""

    is_shareable = True

    @classmethod
    def version(cls) -> str:
        """Of nothing."""
        return "bench 1"

    def load(self, folder: Path, config: Any, device: Any, threads: int) -> None:
        """Notes the name."""
        self._name = config.name

    def execute(self, inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Gives x, or x's first column, after the time that the model takes."""
        x = inputs["x"]
        if self._name == "sleep":
            time.sleep(0.005)
        elif self._name == "tokens":
            time.sleep(FIXED_S + TOKEN_S * x.size)
        else:
            return {"y": x}
        return {"y": x[:, :1].copy()}


def write_model(repository: Path, name: str, config: str) -> None:
    """A model without files."""
    (repository / name / "1").mkdir(parents=True)
    (repository / name / "config.pbtxt").write_text(config)


def offer_backend(site: Path) -> None:
    """Makes ``backend: "bench"`` known as an installed package would."""
    info = site / "bench_backend-1.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: bench-backend\nVersion: 1\n")
    (info / "entry_points.txt").write_text("[cohortflow.backends]\nbench = bench_serving:BenchBackend\n")
    sys.path.insert(0, str(site))


def rate(clients: int, seconds: float, ask: Callable[[int, np.random.Generator], object]) -> float:
    """Requests a second of blocking clients, each calling `ask(number of its request, its random numbers)`."""
    counts = [0] * clients
    barrier = threading.Barrier(clients + 1)
    stop_s = [0.0]

    def run(client: int) -> None:
        rng = np.random.default_rng(client)
        barrier.wait()
        barrier.wait()
        while time.monotonic() < stop_s[0]:
            ask(client + clients * counts[client], rng)
            counts[client] += 1

    threads = [threading.Thread(target=run, args=(client,)) for client in range(clients)]
    for thread in threads:
        thread.start()
    barrier.wait()
    begun_s = time.monotonic()
    stop_s[0] = begun_s + seconds
    barrier.wait()
    for thread in threads:
        thread.join()
    return sum(counts) / (time.monotonic() - begun_s)


class Table:
    """Prints figures with their bounds."""

    def __init__(self) -> None:
        self.num_missed = 0

    def add(self, what: str, figure: float, unit: str, bound: str = "", *, holds: bool = True) -> None:
        """Prints a line."""
        self.num_missed += not holds
        print(f"{what:<72} {figure:>10.2f} {unit:<12} {bound}{'' if holds else '  MISSED'}", flush=True)


def bench_identity(folder: Path, table: Table, seconds: float, rounds: int) -> None:
    """Single rows of blocking clients, and one alone."""
    write_model(folder, "identity", IDENTITY + EVERY_FEATURE)
    write_model(folder, "plain", IDENTITY + "dynamic_batching { }")
    with ModelServer(folder, cache_bytes=16 << 20) as server:
        number = iter(range(1 << 62))
        for model, what in (
            ("plain", "no further feature"),
            ("identity", "cache, priorities, order, time-outs, deadline"),
        ):
            deadline_s = 10.0 if model == "identity" else None

            def ask(_: int, __: object, model: str = model, deadline_s: float | None = deadline_s) -> None:
                # Every row is a new one: the cache looks it up, computes it and keeps it.
                server.infer(model, {"x": np.full((1, 16), next(number), np.float64).astype(np.float32)})

            best = max(rate(CLIENTS, seconds, ask) for _ in range(rounds))
            table.add(f"identity, {CLIENTS} clients, {what}", best, "requests/s", ">= 10000", holds=best >= 10_000)
            idle_us = []
            for _ in range(rounds):
                times_s = []
                for _ in range(2000):
                    x = np.full((1, 16), next(number), np.float64).astype(np.float32)
                    begun_s = time.perf_counter()
                    server.submit(model, {"x": x}, deadline_s=deadline_s).result()
                    times_s.append(time.perf_counter() - begun_s)
                idle_us.append(float(np.median(times_s)) * 1e6)
            table.add(f"identity, idle, {what}: p50", min(idle_us), "us", "< 200", holds=min(idle_us) < 200)


def bench_lengths(folder: Path, table: Table, seconds: float, rounds: int) -> tuple[float, float]:
    """Mixed lengths against equal ones, and padding against the fixed cost; gives the first two figures."""
    write_model(folder, "sleep", LENGTHS_MODEL)
    write_model(folder, "tokens", LENGTHS_MODEL)
    rows = {length: np.ones((1, length), np.float32) for length in range(*LENGTHS)}
    with ModelServer(folder) as server:

        def equal(_: int, rng: np.random.Generator) -> None:
            server.infer("sleep", {"x": rows[EQUAL_LENGTH]})

        def mixed(_: int, rng: np.random.Generator) -> None:
            server.infer("sleep", {"x": rows[int(rng.integers(*LENGTHS))]})

        equal_rate = max(rate(CLIENTS, seconds, equal) for _ in range(rounds))
        mixed_rate = max(rate(CLIENTS, seconds, mixed) for _ in range(rounds))
        table.add(f"5 ms an execution, {CLIENTS} clients, equal lengths", equal_rate, "requests/s")
        table.add(
            f"5 ms an execution, {CLIENTS} clients, lengths 35-151",
            mixed_rate,
            "requests/s",
            ">= 80 % of equal",
            holds=mixed_rate >= 0.8 * equal_rate,
        )

        def tokens(_: int, rng: np.random.Generator) -> None:
            server.infer("tokens", {"x": rows[int(rng.integers(*LENGTHS))]})

        best_waste, best_share = 1.0, 0.0
        for _ in range(rounds):
            before, begun_s = server.statistics()["tokens"], time.monotonic()
            rate(CLIENTS, seconds, tokens)
            after, took_s = server.statistics()["tokens"], time.monotonic() - begun_s
            useful = after["tokens"] - before["tokens"]
            padding = after["tokens_padding"] - before["tokens_padding"]
            best_waste = min(best_waste, padding / (useful + padding))
            best_share = max(best_share, useful * TOKEN_S / took_s)
    table.add("0.5 ms + 20 us a padded token: padding", 100 * best_waste, "%", "< 15", holds=best_waste < 0.15)
    table.add(
        "0.5 ms + 20 us a padded token: of what the tokens alone would allow",
        100 * best_share,
        "%",
        ">= 80",
        holds=best_share >= 0.8,
    )
    return equal_rate, mixed_rate


def write_chain(folder: Path) -> None:
    """Two models, and an ensemble of both."""
    write_model(folder, "first", IDENTITY + "dynamic_batching { }")
    write_model(folder, "second", IDENTITY + "dynamic_batching { }")
    write_model(folder, "both", CHAIN)


def bench_ensemble(
    table: Table, seconds: float, rounds: int, where: str, infer: Callable[[str, np.ndarray], np.ndarray], bound: str
) -> None:
    """Two steps as an ensemble, and asked for one after the other."""
    x = np.ones((1, 16), np.float32)

    def ensemble(_: int, __: object) -> None:
        infer("both", x)

    def chain(_: int, __: object) -> None:
        infer("second", infer("first", x))

    for clients in (1, 8):
        rates = {ask: max(rate(clients, seconds / 2, ask) for _ in range(2 * rounds)) for ask in (chain, ensemble)}
        ratio = rates[ensemble] / rates[chain]
        table.add(
            f"two steps, {clients} clients, {where}: ensemble / chain",
            ratio,
            "times",
            bound,
            holds=not bound or ratio > 1,
        )


def bench_grpc(folder: Path, table: Table, seconds: float, rounds: int) -> tuple[float, float] | None:
    """The sleeping model and the ensemble behind our own gRPC; gives requests a second at equal and mixed lengths."""
    if importlib.util.find_spec("flows.serve_models") is None:
        print("gRPC: not measured; there is no command serve-models")
        return None
    write_chain(folder)
    write_model(folder, "sleep", LENGTHS_MODEL)
    local = threading.local()
    with our_server(folder) as address:

        def infer(model: str, x: np.ndarray) -> np.ndarray:
            if not hasattr(local, "client"):
                local.client = grpc_client.InferenceServerClient(address)
            tensor = grpc_client.InferInput("x", x.shape, "FP32")
            tensor.set_data_from_numpy(x)
            y: np.ndarray = local.client.infer(model, [tensor]).as_numpy("y")
            return y

        equal, mixed = grpc_rates(address, seconds, rounds)
        bench_ensemble(table, seconds, rounds, "over gRPC", infer, "> 1")
    table.add(f"ours over gRPC, 5 ms an execution, {CLIENTS} clients, equal lengths", equal, "requests/s")
    table.add(f"ours over gRPC, 5 ms an execution, {CLIENTS} clients, lengths 35-151", mixed, "requests/s")
    return equal, mixed


@contextmanager
def our_server(repository: Path) -> Iterator[str]:
    """Our own server of a repository in a process of its own; gives its gRPC address."""
    ports = free_ports(3)
    command = [sys.executable, "-c", "from flows.cli import main; main()", "serve-models", str(repository)]
    for name, port in zip(("http", "grpc", "metrics"), ports, strict=True):
        command += [f"--{name}-port", str(port)]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([*sys.path[:2], os.environ.get("PYTHONPATH", "")])}
    log = repository.parent / f"{repository.name}.log"
    with open(log, "wb") as handle:
        process = subprocess.Popen(command, env=environment, stdout=handle, stderr=handle)
    address = f"127.0.0.1:{ports[1]}"
    try:
        wait_ready(address, process, log)
        yield address
    finally:
        process.terminate()
        process.wait(60)


def bench_memory(folder: Path, table: Table, num_requests: int) -> None:
    """Resident memory while a cached model answers, and is loaded anew ten times."""
    write_model(folder, "identity", IDENTITY + EVERY_FEATURE)
    resident_mb = []
    for part in range(10):
        with ModelServer(folder, cache_bytes=4 << 20) as server:
            for start in range(0, num_requests // 10, 100):
                base = part * num_requests + start
                answers = [
                    server.submit("identity", {"x": np.full((1, 16), base + i, np.float64).astype(np.float32)})
                    for i in range(100)
                ]
                for answer in answers:
                    answer.result()
        resident_mb.append(_resident_mb())
    growth = resident_mb[-1] - resident_mb[1]
    table.add(
        f"{num_requests} requests, 10 loads: resident memory after the last over that after the second",
        growth,
        "MB",
        f"< 10, of {resident_mb[-1]:.0f}",
        holds=growth < 10,
    )


def _resident_mb() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 1e6


def grpc_rates(address: str, seconds: float, rounds: int) -> tuple[float, float]:
    """Requests a second of the sleeping model behind an address, at equal and at mixed lengths."""
    local = threading.local()

    def ask(length: int) -> None:
        if not hasattr(local, "client"):
            local.client = grpc_client.InferenceServerClient(address)
        x = np.ones((1, length), np.float32)
        tensor = grpc_client.InferInput("x", x.shape, "FP32")
        tensor.set_data_from_numpy(x)
        local.client.infer("sleep", [tensor])

    equal = max(rate(CLIENTS, seconds, lambda _, rng: ask(EQUAL_LENGTH)) for _ in range(rounds))
    mixed = max(rate(CLIENTS, seconds, lambda _, rng: ask(int(rng.integers(*LENGTHS)))) for _ in range(rounds))
    return equal, mixed


def bench_triton(
    folder: Path,
    table: Table,
    seconds: float,
    rounds: int,
    in_process: tuple[float, float],
    over_grpc: tuple[float, float] | None,
) -> None:
    """The sleeping model behind Triton, over gRPC, beside our own figures."""
    venv = triton_venv()
    if venv is None:
        return
    with triton(venv, folder, {"sleep": TRITON_SLEEP}) as server:
        equal, mixed = grpc_rates(f"127.0.0.1:{server.grpc_port}", seconds, rounds)
    table.add(f"Triton over gRPC, 5 ms an execution, {CLIENTS} clients, equal lengths", equal, "requests/s")
    table.add(f"Triton over gRPC, 5 ms an execution, {CLIENTS} clients, lengths 35-151", mixed, "requests/s")
    ratios = [
        ("ours in this process, equal lengths / Triton, equal lengths", in_process[0] / equal, 1),
        ("ours in this process, lengths 35-151 / Triton, equal lengths", in_process[1] / equal, 1),
    ]
    if over_grpc is not None:
        ratios.append(("ours over gRPC, equal lengths / Triton, equal lengths", over_grpc[0] / equal, 1))
        ratios.append(("ours over gRPC, lengths 35-151 / Triton, lengths 35-151", over_grpc[1] / mixed, 8))
    for what, ratio, bound in ratios:
        table.add(what, ratio, "times", f">= {bound}", holds=ratio >= bound)


def main() -> int:
    """Runs everything; gives the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--requests", type=int, default=200_000)
    options = parser.parse_args()
    table = Table()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        offer_backend(folder / "site")
        print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}; best of {options.rounds} rounds")
        bench_identity(folder / "identity", table, options.seconds, options.rounds)
        ours = bench_lengths(folder / "lengths", table, options.seconds, options.rounds)
        write_chain(folder / "chain")
        with ModelServer(folder / "chain") as server:

            def infer(model: str, x: np.ndarray) -> np.ndarray:
                return server.infer(model, {"x": x})["y"]

            # No round trip is saved here: a step costs a caller in this process what it costs the ensemble.
            bench_ensemble(table, options.seconds, options.rounds, "in this process", infer, "")
        over_grpc = bench_grpc(folder / "grpc", table, options.seconds, options.rounds)
        bench_triton(folder / "triton", table, options.seconds, options.rounds, ours, over_grpc)
        bench_memory(folder / "memory", table, options.requests)
    return int(table.num_missed > 0)


if __name__ == "__main__":
    raise SystemExit(main())
