"""The model server: a repository's models, answered in this process."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from monitoring import metrics
from serving.answer import Answer
from serving.cache.rows import RowCache
from serving.cache.seal import Seal
from serving.control import ControlMode, ModelControl
from serving.deadlines import DeadlineWatch
from serving.errors import RetiredError, ServingError, UnavailableError
from serving.model import Served, Services
from serving.polling import DEFAULT_POLL_S, Polling
from serving.request import Call, Parameters
from serving.roster import IndexEntry, Offer, find_offer
from serving.routing import Router, RoutingState
from serving.shadowing import Shadowing
from serving.statistics import VersionStatistics
from serving.tensors import VARIABLE, Tensors, TensorSpec, check_inputs, select_outputs

if TYPE_CHECKING:
    from serving.cache.redis import RedisTier

DEFAULT_CACHE_BYTES = 64 << 20
DEFAULT_CACHE_BUDGET_MS = 50.0
DEFAULT_NAMESPACE = "cohortflow"
FLUSH_S = 10.0
CLOSE_LIMIT_S = 30.0
"""Source: tritonserver's --exit-timeout-secs."""
NO_PARAMETERS: Parameters = MappingProxyType({})
HMAC_KEY_VARIABLE = "COHORTFLOW_REDIS_HMAC_KEY"


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
        control: What may change after the start. "none": nothing. "explicit": what `load` and `unload` say; `models`
            None then loads none to begin with. "poll": what changes in the repository.
        poll_s: With "poll": seconds between two looks at the repository.
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
        control: ControlMode = "none",
        poll_s: float = DEFAULT_POLL_S,
        clock_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self._control = ModelControl(Path(repository), control, models, threads)
        self._polling = Polling(self._control.poll, poll_s) if control == "poll" else None
        self._cache_bytes = cache_bytes
        self._cache_budget_s = cache_budget_ms / 1000
        self._redis_url = redis_url
        self._redis_namespace = redis_namespace
        self._clock_ns = clock_ns
        self._watch = DeadlineWatch(clock_ns)
        self._shadowing = Shadowing()
        self._redis: RedisTier | None = None
        self._cache = RowCache(cache_bytes, None)
        self._is_running = False
        self._is_live = False
        self._is_draining = False

    def start(self) -> None:
        """Loads every wanted model and starts serving.

        Raises:
            ModelLoadError: A model cannot be served; nothing stays loaded. (Not with control "poll": see `index`.)
            NotFoundError: A wanted model is not in the repository.
        """
        metrics.register()
        self._redis = self._make_redis()
        self._cache = RowCache(self._cache_bytes, self._redis)
        self._watch.start()
        self._shadowing.start()
        self._is_live = True
        try:
            if self._redis is not None:
                self._redis.start()
            self._control.start(Services(self._watch, self._cache, self._clock_ns, self, self._shadowing))
        except BaseException:
            self.close()
            raise
        metrics.SERVING.set_gauge(metrics.CACHE_GAUGE, "", "", self._read_cache_bytes)
        self._is_draining = False
        self._is_running = True
        if self._polling is not None:
            self._polling.start()

    def drain(self) -> None:
        """Says from now on that it is not ready, so that requests go elsewhere; those that come are still answered."""
        self._is_draining = True

    def close(self, limit_s: float = CLOSE_LIMIT_S) -> None:
        """Takes no more requests, finishes those in flight, and stops; a second call does nothing.

        Rows still to be written to Redis are written, for at most `FLUSH_S` seconds and while Redis takes them.

        Args:
            limit_s: Seconds after which requests in flight are failed; an execution that does not end is left behind.
        """
        self._is_running = False
        metrics.SERVING.remove_gauge(metrics.CACHE_GAUGE, "", "", self._read_cache_bytes)
        if self._polling is not None:
            self._polling.close(limit_s)
        self._control.close(limit_s)
        if self._redis is not None:
            self._redis.close(FLUSH_S)
        self._shadowing.close()
        self._watch.close()
        self._is_live = False

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
        parameters: Parameters = NO_PARAMETERS,
        key: str | None = None,
        request_id: str = "",
    ) -> Tensors:
        """Computes a model's outputs for any number of rows, and waits for them.

        Args:
            model: Its name.
            inputs: Every input by name, [rows, *dims] ([*dims] for a model with max_batch_size 0), with exactly the
                model's types. They must not change while this call waits.
            version: A version; None: the one that the model's routing chooses (see `serving.routing`), else the highest
                that is served.
            outputs: Names of the outputs wanted; None: all.
            priority: Priority level from 1 (highest); 0: the model's default.
            timeout_us: Longest time in the queue, where the model's queue policy allows an override; 0: the policy's.
            deadline_s: Seconds after which the request is given up; None: never.
            parameters: The request's own parameters; answers are cached by them.
            key: Requests with the same key get the same version, where a model's traffic is split; None: any.
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
        while True:
            served, router = self._choose(model, version, key)
            call = self._call(served, inputs, outputs, priority, timeout_us, deadline_s, parameters, request_id)
            if not call.rows:
                return _no_rows(served, call.outputs)
            try:
                answer = served.run(call) if router is None else router.follow(served, call, served.run)
                result = answer.result()
            except RetiredError:
                # It was replaced between the two lines: its successor is there.
                continue
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
        parameters: Parameters = NO_PARAMETERS,
        key: str | None = None,
        request_id: str = "",
    ) -> Answer:
        """As `infer`, without waiting: the answer's `result` waits, its `cancel` gives the request up.

        The answer's arrays are always [rows, *dims]; rows must not be 0. Its `version` is the one that answers.
        """
        while True:
            served, router = self._choose(model, version, key)
            call = self._call(served, inputs, outputs, priority, timeout_us, deadline_s, parameters, request_id)
            try:
                return served.submit(call) if router is None else router.follow(served, call, served.submit)
            except RetiredError:
                continue

    def load(self, name: str, *, config: bytes | None = None, files: Mapping[str, bytes] | None = None) -> None:
        """Loads or reloads a model as it now lies in the repository, and with an ensemble the steps not yet loaded.

        Versions that did not change stay as they are. Requests go on: the new versions, and ensembles made of them,
        take the place of the old ones all at once, and those finish what they have begun.

        Args:
            name: The model.
            config: JSON of a ModelConfig in place of its config.pbtxt, until the next load.
            files: ``<version>/<path>`` to contents, in place of its version folders; they need a `config`.

        Raises:
            ModelLoadError: It cannot be served; what was served still is.
            NotFoundError: The repository has no such model.
            InvalidArgumentError: The parameters are wrong.
            UnavailableError: The server is not running, or its control mode is not "explicit".
        """
        self._control.load(name, config, files)

    def unload(self, name: str, *, version: int | None = None, with_dependents: bool = False) -> None:
        """Takes a model or one version of it out: new requests for it are NOT_FOUND, those in flight are finished.

        Returns at once; the index tells when nothing is in flight any more.

        Args:
            name: The model.
            version: Only this version; None: all.
            with_dependents: Whether the models that were loaded only as its steps go as well.

        Raises:
            NotFoundError: It is not served.
            InvalidArgumentError: An ensemble that is served needs it.
            UnavailableError: The server is not running, or its control mode is not "explicit".
        """
        self._control.unload(name, version, with_dependents=with_dependents)

    def index(self, *, only_ready: bool = False) -> list[IndexEntry]:
        """Every version that is known and every model of the repository, sorted, with states and the reasons."""
        return [entry for entry in self._control.index() if entry.state == "READY" or not only_ready]

    def config(self, model: str, version: int | None = None) -> Any:
        """The completed configuration: a ModelConfig message, not to be changed.

        Raises:
            NotFoundError: No such model or version.
        """
        return self._find(model, version).config.message

    def model_statistics(self, model: str | None = None, version: int | None = None) -> list[VersionStatistics]:
        """What each version did since it was loaded, under Triton's names; of one model, one version, or all.

        Raises:
            NotFoundError: No such model or version.
        """
        if model is not None and version is not None:
            return [self._find(model, version).statistics.version_statistics()]
        offers = self._control.offers
        names = sorted(offers) if model is None else [model]
        return [
            served.statistics.version_statistics()
            for name in names
            for _, served in sorted(find_offer(offers, name).versions.items())
        ]

    def routing(self, model: str) -> RoutingState | None:
        """How the traffic of a model is split now; None where it is not.

        Raises:
            NotFoundError: No such model.
        """
        router = self._offer(model).router
        return None if router is None else router.state

    def digest(self, model: str, version: int | None = None) -> str:
        """The execution digest of a model: SHA-256 (hex) of everything its numbers depend on besides their inputs.

        Raises:
            NotFoundError: No such model or version.
        """
        return self._find(model, version).digest

    def version(self, model: str) -> int:
        """The version that answers a request which names none; where traffic is split, the one with most of it.

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
            tuple(sorted(find_offer(self._control.offers, model).versions)),
            config.backend,
            config.max_batch_size,
            served.row_multiple,
            config.inputs,
            config.outputs,
        )

    def is_batched(self, model: str, version: int | None = None) -> bool:
        """Whether a model's tensors carry a batch dimension.

        Raises:
            NotFoundError: No such model or version.
        """
        return self._find(model, version).config.is_batched

    def ready(self, model: str | None = None, version: int | None = None) -> bool:
        """Whether the server, or one model of it, answers requests; the server is not ready any more when it drains."""
        if model is None:
            return self._is_running and not self._is_draining
        try:
            self._find(model, version)
        except ServingError:
            return False
        return True

    @property
    def live(self) -> bool:
        """Whether it was started and is not closed; it may still be loading, or finishing what is in flight."""
        return self._is_live

    @property
    def submit_may_wait(self) -> bool:
        """Whether `submit` may wait for Redis, for as long as the cache's budget."""
        return self._redis is not None

    def statistics(self) -> dict[str, dict[str, Any]]:
        """What each model did since it was loaded, over its versions: see `ModelStatistics.snapshot` for the names."""
        totals: dict[str, dict[str, Any]] = {}
        for name, offer in self._control.offers.items():
            total: dict[str, Any] = {}
            for model in offer.versions.values():
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

    def _find(self, name: str, version: int | None) -> Served:
        return self._offer(name).find(version)

    def _offer(self, name: str) -> Offer:
        if not self._is_running:
            raise UnavailableError("the model server is not running: start() it, or use it as a context manager")
        return find_offer(self._control.offers, name)

    def _choose(self, name: str, version: int | None, key: str | None) -> tuple[Served, Router | None]:
        """The version for a request, and what split the traffic if something did."""
        offer = self._offer(name)
        if version is not None or offer.router is None:
            return offer.find(version), None
        return offer.versions[offer.router.choose(key)], offer.router

    def _call(
        self,
        served: Served,
        inputs: Mapping[str, Any],
        outputs: Sequence[str] | None,
        priority: int,
        timeout_us: int,
        deadline_s: float | None,
        parameters: Parameters,
        request_id: str,
    ) -> Call:
        names = select_outputs(served.label, served.config.outputs, outputs)
        arrays, rows = check_inputs(served.label, served.config.inputs, inputs, batched=served.config.is_batched)
        deadline_ns = None if deadline_s is None else self._clock_ns() + int(deadline_s * 1e9)
        return Call(arrays, rows, names, priority, timeout_us, deadline_ns, parameters, request_id)


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
