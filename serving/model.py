"""One version of a model, loaded: its instances, its batcher, what it did."""

from __future__ import annotations

import logging
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from monitoring.metrics import DEPTH_GAUGE, SERVING, WAITING_GAUGE
from serving.answer import Answer
from serving.backends import find_backend
from serving.backends.base import Backend, Device, Models
from serving.batcher import Batcher, Scheduler
from serving.cache.call import CachedModel
from serving.cache.rows import RowCache
from serving.completion import complete
from serving.config import ENSEMBLE, InstanceGroup, ModelConfig
from serving.deadlines import DeadlineWatch
from serving.digest import execution_digest
from serving.errors import ModelLoadError, RetiredError, ServingError, UnavailableError
from serving.instance import Instance
from serving.invariance import PROBE_LENGTH, measure_row_multiple
from serving.length_invariance import measure_length_steps
from serving.ordering import ArrivalOrder
from serving.padding import LengthSteps
from serving.repository import ModelFolder, files_sha256
from serving.request import Call
from serving.sequences import SequenceBatcher
from serving.shadowing import Shadowing
from serving.statistics import ModelStatistics
from serving.warm_up import warm_up

log = logging.getLogger(__name__)

STOP_S = 1.0
"""Given to threads to end when the limit for what is in flight is over."""


@dataclass(frozen=True, slots=True)
class Services:
    """What the models of a server share."""

    watch: DeadlineWatch
    cache: RowCache
    clock_ns: Callable[[], int]
    models: Models
    shadowing: Shadowing


class Served(ABC):
    """What a server answers from: one version of a model or of an ensemble.

    Attributes:
        folder: Where it was loaded from.
        files: SHA-256 of the version's files, as they were then.
        label: Its name and version, for messages.
        row_multiple: Its batches are padded to a multiple of so many rows.
        digest: Everything its numbers depend on besides their inputs.
    """

    def __init__(
        self,
        folder: ModelFolder,
        version: int,
        config: ModelConfig,
        files: Mapping[str, str],
        digest: str,
        services: Services,
    ) -> None:
        self.folder = folder
        self.name = name = folder.name
        self.version = version
        self.config = config
        self.files = files
        self.digest = digest
        self.label = f"{'ensemble' if config.backend == ENSEMBLE else 'model'} {name!r} version {version}"
        self.statistics = ModelStatistics(name, str(version))
        self.row_multiple = 1
        self._clock_ns = services.clock_ns
        self._watch = services.watch
        self._cached: CachedModel | None = None
        if config.has_cache:
            self._cached = CachedModel(self.label, digest, config, self.statistics, services.cache, self._begin)
        is_ordered = config.dynamic_batching is not None and config.dynamic_batching.preserve_ordering
        self._order = ArrivalOrder(self.label) if is_ordered else None
        # By the identity of their calls; None while one is being begun. Many threads add and remove all the time: what
        # they do is a single instruction of the interpreter each, without a lock that they would queue up at.
        self._in_flight: dict[int, Answer | None] = {}
        self._all_left = threading.Condition()
        self._is_retired = False

    def submit(self, call: Call) -> Answer:
        """Takes a call in; its request is counted once, whatever becomes of it.

        Raises:
            RetiredError: This version takes no more calls; the request is not counted.
            ServingError: The call was not taken.
        """
        return self._counted(call, self._begin)

    def run(self, call: Call) -> Answer:
        """As `submit`, but this thread may do the work and may come back with the answer settled."""
        return self._counted(call, self._begin_here)

    @property
    def parts(self) -> tuple[Served, ...]:
        """For an ensemble its steps' models, in the order of the configuration."""
        return ()

    @property
    def num_waiting(self) -> int:
        """Requests that wait for an instance."""
        return sum(self.depths)

    @property
    def depths(self) -> list[int]:
        """Requests that wait for an instance, by priority level."""
        return []

    @abstractmethod
    def start(self) -> None:
        """Starts its threads."""

    @abstractmethod
    def warm_up(self) -> None:
        """Executes the configuration's ``model_warmup``, counted nowhere.

        Raises:
            ModelLoadError: A sample does not fit the model, or the model fails on it.
        """

    def retire(self) -> None:
        """Takes no more calls; those in flight go on."""
        self._is_retired = True

    def drain(self, limit_s: float | None = None) -> bool:
        """Waits until nothing is in flight; False when something still is after `limit_s` seconds (None: no limit)."""
        with self._all_left:
            return self._all_left.wait_for(lambda: not self._in_flight, limit_s)

    def give_up(self) -> None:
        """Fails whatever is in flight."""
        for answer in list(self._in_flight.values()):
            if answer is not None:
                answer.settle(error=UnavailableError(f"{self.label}: stopped before the answer was there"))

    def close(self, limit_s: float | None = None) -> None:
        """Takes no more calls, finishes those in flight, and stops.

        Args:
            limit_s: Seconds after which calls in flight are failed, and an execution that does not end is left behind;
                None: never.
        """
        self.retire()
        if limit_s is None:
            self.drain()
            self._stop()
            return
        ends_s = time.monotonic() + limit_s
        if not self.drain(limit_s):
            self.give_up()
        stopping = threading.Thread(target=self._stop, name=f"serving-stop-{self.label}", daemon=True)
        stopping.start()
        stopping.join(max(ends_s - time.monotonic(), STOP_S))

    @abstractmethod
    def _stop(self) -> None:
        """Ends its threads and lets go of what it holds; nothing is in flight, or was given up."""

    @abstractmethod
    def _begin(self, call: Call) -> Answer:
        """Takes a call in."""

    def _begin_here(self, call: Call) -> Answer:
        return self._begin(call)

    def _counted(self, call: Call, begin: Callable[[Call], Answer]) -> Answer:
        begun_ns = self._clock_ns()
        cached = self._cached
        if cached is not None:
            execute, begin = begin, lambda call: cached.submit(call, execute)
        key = id(call)
        self._in_flight[key] = None
        if self._is_retired:
            self._leave(key)
            raise RetiredError(f"{self.label}: was replaced or unloaded")
        try:
            answer = begin(call) if self._order is None else self._order.submit(call, begin)
        except BaseException as error:
            self._leave(key)
            if isinstance(error, ServingError):
                self.statistics.add_request(call.rows, self._clock_ns() - begun_ns, error.reason)
            raise
        answer.version = self.version
        self._in_flight[key] = answer

        def finish(done: Answer) -> None:
            self.statistics.add_request(
                call.rows, self._clock_ns() - begun_ns, done.error.reason if done.error else None
            )
            self._leave(key)

        answer.add_done_callback(finish)
        if call.deadline_ns is not None:
            self._watch.watch(answer, call.deadline_ns, Answer.expire)
        return answer

    def _leave(self, key: int) -> None:
        del self._in_flight[key]
        if self._is_retired and not self._in_flight:
            with self._all_left:
                self._all_left.notify_all()


class Model(Served):
    """A model that a backend executes."""

    def __init__(
        self,
        folder: ModelFolder,
        version: int,
        threads: int,
        services: Services,
    ) -> None:
        """Loads the version, to compute with `threads` CPU threads; nothing runs before `start`.

        Raises:
            ModelLoadError: Configuration, files or devices are wrong or missing.
        """
        kind = find_backend(folder.backend, folder.name)
        path = folder.version_path(version)
        message = kind.fill_in(path, folder.message)
        config = complete(message, folder.backend, kind.signature(path, message))
        _check_inputs(config, kind)
        devices = [_devices(group, kind) for group in config.instance_groups]
        numerics = [kind.numerics(config, device) for group in devices for device in group]
        files = files_sha256(path)
        digest = execution_digest(config, files, kind.version(), numerics)
        super().__init__(folder, version, config.for_requests, files, digest, services)
        self._whole_config = config
        self._takes_requests = kind.takes_requests
        self._backends: list[Backend] = []
        self._models = services.models
        try:
            instances = self._load_instances(kind, path, devices, threads, services)
            self._scheduler = self._make_scheduler(instances, services)
        except BaseException:
            self._unload()
            raise
        self._instances = instances

    def _load_instances(
        self, kind: type[Backend], path: Path, devices: Sequence[list[Device]], threads: int, services: Services
    ) -> list[Instance]:
        instances = []
        for group, group_devices in zip(self._whole_config.instance_groups, devices, strict=True):
            for device in group_devices:
                instances += [
                    Instance(self.label, self._whole_config, backend, self.statistics, services.clock_ns)
                    for backend in self._load(kind, path, device, group.count, threads)
                ]
        return instances

    def _load(self, kind: type[Backend], path: Path, device: Device, count: int, threads: int) -> list[Backend]:
        backends = []
        for _ in range(1 if kind.is_shareable else count):
            backend = kind()
            backend.connect(self._models)
            backend.load(path, self._whole_config, device, threads)
            self._backends.append(backend)
            backends.append(backend)
        return backends * count if kind.is_shareable else backends

    def _make_scheduler(self, instances: list[Instance], services: Services) -> Scheduler:
        config = self._whole_config
        max_batch_size = self._settle_batches(instances)
        if config.padding is not None:
            self._settle_lengths(instances)
        if config.sequence is not None:
            return SequenceBatcher(self.label, config, instances, max_batch_size, self.statistics, services.clock_ns)
        choice = None
        if config.padding is not None:
            # Imported where it is used: its kernel brings a compiler, which most processes do not need.
            from serving.length_choice import LengthChoice

            # All instances learn together what an execution costs.
            cost = instances[0].cost
            for instance in instances:
                instance.cost = cost
            choice = LengthChoice(config.padding, instances[0].length_steps, self.row_multiple, cost)
        return Batcher(self.label, config, instances, max_batch_size, services.watch, choice, services.clock_ns)

    def _settle_lengths(self, instances: list[Instance]) -> None:
        """Decides to what lengths rows are padded, that equal rows get equal bytes.

        The parameter ``length_multiple`` says it without measuring; else the first instance is measured.
        """
        config = self._whole_config
        said = config.parameters.get("length_multiple")
        if said is not None and not (said.isdecimal() and int(said) >= 1):
            raise ModelLoadError(
                f"{self.label}: parameter 'length_multiple' is {said!r}, not a positive number",
                field="parameters.length_multiple",
            )
        steps = LengthSteps(int(said)) if said else LengthSteps()
        if not said and not self._takes_requests:
            steps = measure_length_steps(self.label, instances[0], config)
        for instance in instances:
            instance.length_steps = steps

    def _settle_batches(self, instances: list[Instance]) -> int:
        """Decides where equal rows get equal bytes: the row multiple of the instances, and the largest batch.

        The parameter ``row_multiple`` says it without measuring; else the first instance is measured.
        """
        config = self._whole_config
        limit = max(config.max_batch_size, 1)
        said = config.parameters.get("row_multiple")
        if said is not None and not (said.isdecimal() and 1 <= int(said) <= limit):
            raise ModelLoadError(
                f"{self.label}: parameter 'row_multiple' is {said!r}, not a number within 1-{limit}",
                field="parameters.row_multiple",
            )
        multiple: int | None = int(said) if said else 1
        if not said and not self._takes_requests:
            inputs = config.inputs if config.padding is None else config.request_inputs
            length = PROBE_LENGTH if config.sequence is None else config.sequence.step_length
            multiple = measure_row_multiple(self.label, instances[0].probe, inputs, limit, length)
        if multiple is None:
            multiple = limit = 1
        for instance in instances:
            instance.row_multiple = multiple
        self.row_multiple = multiple
        return limit - limit % multiple

    @property
    def depths(self) -> list[int]:
        """Requests that wait for an instance, by priority level."""
        return self._scheduler.depths

    def start(self) -> None:
        """Starts a thread per instance."""
        self._scheduler.start()
        SERVING.set_gauge(WAITING_GAUGE, self.name, str(self.version), self._read_waiting)
        SERVING.set_gauge(DEPTH_GAUGE, self.name, str(self.version), self._read_depths)

    def warm_up(self) -> None:
        """Executes the configuration's ``model_warmup``, counted nowhere.

        Raises:
            ModelLoadError: A sample does not fit the model, or the model fails on it.
        """
        warm_up(self.label, self.folder.path, self._whole_config, self._instances)

    def _stop(self) -> None:
        SERVING.remove_gauge(WAITING_GAUGE, self.name, str(self.version), self._read_waiting)
        SERVING.remove_gauge(DEPTH_GAUGE, self.name, str(self.version), self._read_depths)
        self._scheduler.close()
        self._unload()

    def _unload(self) -> None:
        for backend in self._backends:
            try:
                backend.unload()
            except Exception:
                # The others must be let go of all the same.
                log.exception("%s: unload failed", self.label)

    def _read_waiting(self) -> float:
        return self.num_waiting

    def _read_depths(self) -> dict[str, float]:
        depths = self.depths
        return {str(level if len(depths) > 1 else 0): depth for level, depth in enumerate(depths, start=1)}

    def _begin(self, call: Call) -> Answer:
        return self._scheduler.submit(call)

    def _begin_here(self, call: Call) -> Answer:
        return self._scheduler.run(call)


def _check_inputs(config: ModelConfig, kind: type[Backend]) -> None:
    """Raises ModelLoadError for inputs of a kind that the backend, or the rest of the configuration, cannot take."""
    for spec in config.inputs:
        fields = {"input.optional": spec.is_optional, "input.allow_ragged_batch": spec.is_ragged}
        for field in [field for field, is_set in fields.items() if is_set]:
            if not kind.takes_requests or config.padding is not None or config.sequence is not None:
                raise ModelLoadError(
                    f"model {config.name!r}: {field} of {spec.name!r} is not supported by this server for the backend "
                    f"{config.backend!r}{' with lengths_input or sequences' if kind.takes_requests else ''}; "
                    "rows of different lengths are batched with the parameter 'lengths_input'",
                    field=field,
                )


def _devices(group: InstanceGroup, kind: type[Backend]) -> list[Device]:
    """Where the instances of a group run (Source: Triton, "Instance Groups": `count` instances on each device)."""
    if group.kind == "gpu" or (group.kind == "auto" and (group.gpus or kind.has_gpu())):
        return [Device("gpu", index) for index in group.gpus or (0,)]
    return [Device("cpu")]
