"""The model server: a repository's models, answered in this process."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np

from monitoring import metrics
from serving.answer import Answer
from serving.cache.rows import RowCache
from serving.cache.seal import Seal
from serving.config import ENSEMBLE
from serving.deadlines import DeadlineWatch
from serving.ensemble import Ensemble
from serving.errors import ModelLoadError, NotFoundError, ServingError, UnavailableError
from serving.model import Model, Served, Services
from serving.repository import ModelFolder, list_models, read_model
from serving.request import Call
from serving.statistics import VersionStatistics
from serving.tensors import VARIABLE, Tensors, TensorSpec, check_inputs, select_outputs

if TYPE_CHECKING:
    from serving.cache.redis import RedisTier

DEFAULT_CACHE_BYTES = 64 << 20
DEFAULT_CACHE_BUDGET_MS = 50.0
DEFAULT_NAMESPACE = "cohortflow"
FLUSH_S = 10.0
HMAC_KEY_VARIABLE = "COHORTFLOW_REDIS_HMAC_KEY"


@dataclass(frozen=True, slots=True)
class IndexEntry:
    """A version of a model in the repository: READY, UNAVAILABLE, LOADING or UNLOADING, and why."""

    name: str
    version: str
    state: str
    reason: str


@dataclass(frozen=True, slots=True)
class ModelMetadata:
    """What a client needs to know of a model; `dims` of its tensors are without the batch dimension.

    Batches are padded to multiples of `row_multiple` rows, where equal rows were measured to get equal bytes.
    """

    name: str
    versions: tuple[int, ...]
    backend: str
    max_batch_size: int
    row_multiple: int
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]


class ModelServer:
    """Serves the models of a repository to the threads of this process.

    Use it as a context manager, or call `start` and `close`. Every method may be called from any thread.

    Args:
        repository: Folder of models in Triton's layout.
        threads: CPU threads each execution may use.
        models: Names of the models to load, with the steps of those that are ensembles; None loads all.
        cache_bytes: Budget of memory for rows of models with a response cache.
        cache_budget_ms: The longest time that looking rows up in Redis may cost a request.
        redis_url: A Redis that keeps rows of models with a response cache for other processes and later runs: ``redis://``
            or ``rediss://`` (TLS), with user and password. None: none.
        redis_namespace: Before every key.
        clock_ns: A clock in nanoseconds that never goes back.

    When the environment has COHORTFLOW_REDIS_HMAC_KEY, values in Redis are sealed with that key, and values sealed with
    another are not believed.
    """

    def __init__(
        self,
        repository: Path,
        *,
        threads: int = 1,
        models: Sequence[str] | None = None,
        cache_bytes: int = DEFAULT_CACHE_BYTES,
        cache_budget_ms: float = DEFAULT_CACHE_BUDGET_MS,
        redis_url: str | None = None,
        redis_namespace: str = DEFAULT_NAMESPACE,
        control: Literal["none", "explicit", "poll"] = "none",
        clock_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self._repository = Path(repository)
        self._cache_bytes = cache_bytes
        self._cache_budget_s = cache_budget_ms / 1000
        self._redis_url = redis_url
        self._redis_namespace = redis_namespace
        self._threads = threads
        self._wanted = models
        self._clock_ns = clock_ns
        self._watch = DeadlineWatch(clock_ns)
        self._redis: RedisTier | None = None
        self._cache = RowCache(cache_bytes, None)
        self._models: dict[str, dict[int, Served]] = {}
        self._is_running = False

    def start(self) -> None:
        """Loads every wanted model and starts serving.

        Raises:
            ModelLoadError: A model cannot be served; nothing stays loaded.
            NotFoundError: A wanted model is not in the repository.
        """
        metrics.register()
        self._redis = self._make_redis()
        self._cache = RowCache(self._cache_bytes, self._redis)
        self._watch.start()
        try:
            if self._redis is not None:
                self._redis.start()
            for name in list_models(self._repository) if self._wanted is None else self._wanted:
                self._load(name, ())
        except BaseException:
            self.close()
            raise
        metrics.SERVING.set_gauge(metrics.CACHE_GAUGE, "", "", self._read_cache_bytes)
        self._is_running = True

    def close(self) -> None:
        """Takes no more requests, finishes those in flight, and stops; a second call does nothing.

        Rows still to be written to Redis are written, for at most `FLUSH_S` seconds and while Redis takes them.
        """
        self._is_running = False
        metrics.SERVING.remove_gauge(metrics.CACHE_GAUGE, "", "", self._read_cache_bytes)
        # An ensemble was loaded after its steps, and is closed before them.
        for versions in reversed(self._models.values()):
            for model in versions.values():
                model.close()
        self._models = {}
        if self._redis is not None:
            self._redis.close(FLUSH_S)
        self._watch.close()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def infer(
        self,
        model: str,
        inputs: Mapping[str, Any],
        version: int | None = None,
        *,
        outputs: Sequence[str] | None = None,
        priority: int = 0,
        timeout_us: int = 0,
        deadline_s: float | None = None,
        parameters: Mapping[str, Any] | None = None,
        request_id: str = "",
    ) -> Tensors:
        """Computes a model's outputs for any number of rows, and waits for them.

        Args:
            model: Its name.
            inputs: Every input by name, [rows, *dims] ([*dims] for a model with max_batch_size 0), with exactly the
                model's types. They must not change while this call waits.
            version: A version; None: the highest that is served.
            outputs: Names of the outputs wanted; None: all.
            priority: Priority level from 1 (highest); 0: the model's default.
            timeout_us: Longest time in the queue, where the model's queue policy allows an override; 0: the policy's.
            deadline_s: Seconds after which the request is given up; None: never.
            parameters: The request's own parameters, for models that read them; part of its identity in the cache.
            request_id: The sender's name for the request, for models that read it.

        Returns:
            Arrays [rows, *dims] by name, in the rows' order.

        Raises:
            NotFoundError: No such model or version.
            InvalidArgumentError: Inputs, outputs or priority do not fit the model.
            UnavailableError: A queue is full, or the server is not running.
            DeadlineExceededError: The deadline, or the queue policy's timeout, passed.
            ExecutionError: The backend failed, or gave NaN or something else than its configuration says.
        """
        served = self._find(model, version)
        names = select_outputs(served.label, served.config.outputs, outputs)
        call = self._call(served, inputs, names, priority, timeout_us, deadline_s, parameters, request_id)
        if not call.rows:
            return _no_rows(served, names)
        result = served.run(call).result()
        return result if served.config.is_batched else {name: array[0] for name, array in result.items()}

    def submit(
        self,
        model: str,
        inputs: Mapping[str, Any],
        version: int | None = None,
        *,
        outputs: Sequence[str] | None = None,
        priority: int = 0,
        timeout_us: int = 0,
        deadline_s: float | None = None,
        parameters: Mapping[str, Any] | None = None,
        key: str | None = None,
        request_id: str = "",
    ) -> Answer:
        """As `infer`, without waiting: the answer's `result` waits, its `cancel` gives the request up.

        The answer's arrays are always [rows, *dims]; rows must not be 0.
        """
        served = self._find(model, version)
        names = select_outputs(served.label, served.config.outputs, outputs)
        call = self._call(served, inputs, names, priority, timeout_us, deadline_s, parameters, request_id)
        answer = served.submit(call)
        answer.version = served.version
        return answer

    @property
    def submit_may_wait(self) -> bool:
        """Whether `submit` may wait for Redis, for as long as the cache's budget."""
        return self._redis is not None

    @property
    def live(self) -> bool:
        """Whether this process answers at all."""
        return True

    def config(self, model: str, version: int | None = None) -> Any:
        """The completed configuration: a ModelConfig message.

        Raises:
            NotFoundError: No such model or version.
        """
        return self._find(model, version).config.message

    def index(self, *, only_ready: bool = False) -> list[IndexEntry]:
        """Every model's versions."""
        return [
            IndexEntry(name, str(version), "READY", "")
            for name in sorted(self._models)
            for version in self._models[name]
        ]

    def model_statistics(self, name: str | None = None, version: int | None = None) -> list[VersionStatistics]:
        """What each version of a model, or of all, did since it was loaded.

        Raises:
            NotFoundError: No such model or version.
        """
        if name is not None:
            self._find(name, version)
        return [
            served.statistics.version_statistics()
            for versions in self._models.values()
            for served in versions.values()
            if name in (None, served.name) and version in (None, served.version)
        ]

    def load(self, name: str, *, config: bytes | None = None, files: Mapping[str, bytes] | None = None) -> None:
        """Not there yet."""
        raise UnavailableError(f"load of model {name!r}: this server has no control mode")

    def unload(self, name: str, *, version: int | None = None, with_dependents: bool = False) -> None:
        """Not there yet."""
        raise UnavailableError(f"unload of model {name!r}: this server has no control mode")

    def digest(self, model: str, version: int | None = None) -> str:
        """The execution digest of a model: SHA-256 (hex) of everything its numbers depend on besides their inputs.

        Raises:
            NotFoundError: No such model or version.
        """
        return self._find(model, version).digest

    def version(self, model: str) -> int:
        """The version that answers a request which names none.

        Raises:
            NotFoundError: No such model.
        """
        return self._find(model, None).version

    def metadata(self, model: str, version: int | None = None) -> ModelMetadata:
        """Versions, tensors and limits of a model.

        Raises:
            NotFoundError: No such model or version.
        """
        served = self._find(model, version)
        config = served.config
        return ModelMetadata(
            model,
            tuple(sorted(self._models[model])),
            config.backend,
            config.max_batch_size,
            served.row_multiple,
            config.inputs,
            config.outputs,
        )

    def ready(self, model: str | None = None, version: int | None = None) -> bool:
        """Whether the server, or one model of it, answers requests."""
        if model is None:
            return self._is_running
        try:
            self._find(model, version)
        except ServingError:
            return False
        return True

    def statistics(self) -> dict[str, dict[str, Any]]:
        """What each model did since `start`, over its versions: see `ModelStatistics.snapshot` for the names."""
        totals: dict[str, dict[str, Any]] = {}
        for name, versions in self._models.items():
            total: dict[str, Any] = {}
            for model in versions.values():
                _add(total, {**model.statistics.snapshot(), "requests_waiting": model.num_waiting})
            totals[name] = total
        return totals

    def cache_statistics(self) -> dict[str, int]:
        """Rows and bytes of the cache in memory, and what happened with Redis: see `RedisTier.counts` for the names."""
        redis = {} if self._redis is None else {f"redis_{name}": count for name, count in self._redis.counts.items()}
        return {"memory_rows": self._cache.num_rows, "memory_bytes": self._cache.num_bytes, **redis}

    def _read_cache_bytes(self) -> float:
        return self._cache.num_bytes

    def _make_redis(self) -> RedisTier | None:
        if self._redis_url is None:
            return None
        # Imported where it is used: most worker processes have no Redis, and need not carry its client.
        from serving.cache.redis import RedisTier

        key = os.environ.get(HMAC_KEY_VARIABLE)
        return RedisTier(
            self._redis_url, self._cache_budget_s, Seal(key.encode() if key else None), self._redis_namespace
        )

    def _load(self, name: str, path: tuple[str, ...]) -> None:
        """Loads a model and before it the steps it is made of; `path` are the ensembles that asked for it."""
        if name in self._models:
            return
        if name in path:
            raise ModelLoadError(
                f"ensemble {name!r} contains itself: {' -> '.join([*path, name])}", field="ensemble_scheduling"
            )
        folder = read_model(self._repository, name)
        if folder.backend == ENSEMBLE:
            for step in folder.message.ensemble_scheduling.step:
                try:
                    self._load(step.model_name, (*path, name))
                except NotFoundError as error:
                    raise ModelLoadError(f"ensemble {name!r}: {error.message}", field="ensemble_scheduling") from error
        loaded: dict[int, Served] = {}
        for version in folder.versions:
            loaded[version] = self._make(folder, version)
            loaded[version].start()
        self._models[name] = loaded

    def _make(self, folder: ModelFolder, version: int) -> Served:
        services = Services(self._watch, self._cache, self._clock_ns, self)
        if folder.backend == ENSEMBLE:
            return Ensemble(folder, version, self._find_loaded, services)
        return Model(folder, version, self._threads, services)

    def _find(self, name: str, version: int | None) -> Served:
        if not self._is_running:
            raise UnavailableError("the model server is not running: start() it, or use it as a context manager")
        return self._find_loaded(name, version)

    def _find_loaded(self, name: str, version: int | None) -> Served:
        versions = self._models.get(name)
        if versions is None:
            raise NotFoundError(f"no model {name!r} is served; there are {', '.join(sorted(self._models)) or 'none'}")
        if version is None:
            version = max(versions)
        if version not in versions:
            raise NotFoundError(
                f"model {name!r} has no version {version} served; there are {', '.join(map(str, sorted(versions)))}"
            )
        return versions[version]

    def _call(
        self,
        served: Served,
        inputs: Mapping[str, Any],
        outputs: tuple[str, ...],
        priority: int,
        timeout_us: int,
        deadline_s: float | None,
        parameters: Mapping[str, Any] | None,
        request_id: str,
    ) -> Call:
        arrays, rows = check_inputs(served.label, served.config.inputs, inputs, batched=served.config.is_batched)
        deadline_ns = None if deadline_s is None else self._clock_ns() + int(deadline_s * 1e9)
        return Call(arrays, rows, outputs, priority, timeout_us, deadline_ns, parameters or {}, request_id)


def _no_rows(served: Served, names: tuple[str, ...]) -> Tensors:
    return {
        spec.name: np.empty((0, *(0 if dim == VARIABLE else dim for dim in spec.dims)), spec.dtype)
        for spec in served.config.outputs
        if spec.name in names
    }


def _add(total: dict[str, Any], more: Mapping[str, Any]) -> None:
    for key, value in more.items():
        if isinstance(value, dict):
            _add(total.setdefault(key, {}), value)
        else:
            total[key] = total.get(key, 0) + value
