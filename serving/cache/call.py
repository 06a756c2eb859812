"""A call to a model with a row cache: only the rows that nobody knows or computes are executed."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from serving.answer import Answer
from serving.cache.identity import call_prefix, row_identities
from serving.cache.layout import RowLayout, row_layout
from serving.cache.rows import Flight, RowCache
from serving.cache.text_layout import TextLayout
from serving.config import ModelConfig
from serving.errors import ExecutionError, ServingError
from serving.request import Call
from serving.statistics import ModelStatistics
from serving.tensors import Tensors

_MAX_KINDS = 1024


class CachedModel:
    """A model whose rows are cached.

    Args:
        label: Name and version, for messages.
        digest: Its execution digest.
        config: Its configuration, as requests see it.
        statistics: Where its rows are counted.
        cache: The server's rows.
        begin: Executes a call, without any cache.
    """

    def __init__(
        self,
        label: str,
        digest: str,
        config: ModelConfig,
        statistics: ModelStatistics,
        cache: RowCache,
        begin: Callable[[Call], Answer],
    ) -> None:
        self.label = label
        self.statistics = statistics
        self.cache = cache
        self.begin = begin
        self._digest = digest
        self._outputs = config.outputs
        self._kinds: dict[Hashable, CallKind] = {}

    def submit(self, call: Call, execute: Callable[[Call], Answer]) -> Answer:
        """Answers a call from the cache, from rows in flight, and by executing the others.

        Args:
            call: The call.
            execute: Executes a call of a single row, without any cache; others go the way of `begin`.

        Raises:
            ServingError: The rows to execute were not taken.
        """
        kind = self._kind(call)
        identities = row_identities(kind.prefix, call)
        is_simple = call.rows == 1 and not self.cache.has_second
        answer = self._submit_row(call, identities[0], kind.layout, execute) if is_simple else None
        if answer is None:
            answer = CachedAnswer(self, call, identities, kind.layout)
            answer.begin(is_first=True)
        return answer

    def _submit_row(
        self, call: Call, identity: bytes, layout: RowLayout | TextLayout, execute: Callable[[Call], Answer]
    ) -> Answer | None:
        """The common cases of a single row, quickly: it is known here, or nobody has it. None: it is neither.

        Raises:
            ServingError: The row was not taken.
        """
        begun_ns = time.monotonic_ns()
        claimed = self.cache.claim_row(identity, self.label)
        if isinstance(claimed, bytes):
            outputs = layout.unpack([claimed])
            self.statistics.add(cache_hits=1, cache_hit_duration_ns=time.monotonic_ns() - begun_ns)
            answer = Answer(self.label)
            answer.settle(outputs)
            return answer
        if claimed is None:
            return None
        flight = claimed
        self.statistics.add(cache_misses=1, cache_hit_duration_ns=time.monotonic_ns() - begun_ns)
        try:
            request = execute(call)
        except BaseException as error:
            self.abandon(flight, [identity], error)
            raise
        request.add_done_callback(lambda done: self._land_row(flight, identity, layout, done))
        return request

    def _land_row(self, flight: Flight, identity: bytes, layout: RowLayout | TextLayout, request: Answer) -> None:
        """Keeps the row that was executed, and gives it to those who follow."""
        error: BaseException | None = request.error
        if error is None:
            try:
                self.keep(flight, layout, [identity], request.outputs)
                flight.settle()
            except Exception as unexpected:
                error = unexpected
        if error is not None:
            self.abandon(flight, [identity], error)

    def keep(
        self, flight: Flight, layout: RowLayout | TextLayout, identities: Sequence[bytes], outputs: Tensors
    ) -> dict[bytes, bytes]:
        """Packs rows that were executed and keeps them in memory; they are in flight no more, and the flight has them.

        Args:
            flight: What led them.
            layout: Of the packed rows.
            identities: The rows'.
            outputs: Arrays [rows, *dims].

        Returns:
            The packed rows by identity.
        """
        begun_ns = time.monotonic_ns()
        packed = dict(zip(identities, layout.pack(outputs, len(identities)), strict=True))
        flight.rows.update(packed)
        self.cache.land(flight, packed)
        self.statistics.add(cache_miss_duration_ns=time.monotonic_ns() - begun_ns)
        return packed

    def abandon(self, flight: Flight, identities: Sequence[bytes], error: BaseException) -> None:
        """Rows that a flight led will not be computed, by this flight."""
        self.cache.abandon(flight, identities)
        flight.settle(error=error if isinstance(error, ServingError) else _unexpected(self.label, error))

    def _kind(self, call: Call) -> CallKind:
        key = (
            tuple([(name, array.shape[1:]) for name, array in call.inputs.items()]),
            call.outputs,
            # 1, 1.0 and True are equal, but not the same parameter.
            tuple([(name, type(value), value) for name, value in sorted(call.parameters.items())])
            if call.parameters
            else (),
        )
        kind = self._kinds.get(key)
        if kind is None:
            layout = row_layout([spec for spec in self._outputs if spec.name in call.outputs])
            kind = CallKind(call_prefix(self._digest, call), layout)
            if len(self._kinds) >= _MAX_KINDS:
                self._kinds.clear()
            self._kinds[key] = kind
        return kind


@dataclass(frozen=True, slots=True)
class CallKind:
    """What calls of the same shapes, outputs and parameters have in common."""

    prefix: Any
    layout: RowLayout | TextLayout


class CachedAnswer(Answer):
    """The outputs of a call, gathered from what is known, what others compute and what is executed for it.

    Everything but the look-up happens in callbacks of the executing threads.
    """

    def __init__(
        self, model: CachedModel, call: Call, identities: Sequence[bytes], layout: RowLayout | TextLayout
    ) -> None:
        super().__init__(model.label)
        self._model = model
        self._call = call
        self._identities = identities
        self._layout = layout
        self._flight = Flight(model.label)
        # Where each row's outputs come from: packed rows, rows of this flight, rows of other flights.
        self._packed: dict[int, bytes] = {}
        self._led: dict[bytes, int] = {}
        self._repeated: list[int] = []
        self._followed: dict[Flight, list[int]] = {}
        self._executed: list[int] = []
        self._parts: list[tuple[list[int], Tensors]] = []
        self._num_pending = 0

    def begin(self, *, is_first: bool) -> None:
        """Looks the rows up and starts what is missing; only the first look-up of a call counts and asks Redis.

        Raises:
            ServingError: The rows to execute were not taken.
        """
        try:
            self._begin(is_first)
        except BaseException as error:
            self._model.abandon(self._flight, list(self._led), error)
            raise

    def _begin(self, is_first: bool) -> None:
        begun_ns = time.monotonic_ns()
        found = self._model.cache.claim(self._identities, self._flight)
        self._sort(found)
        known = self._look_up() if is_first and self._led and self._model.cache.has_second else {}
        if is_first:
            self._model.statistics.add(
                cache_hits=len(self._packed) + len(known),
                cache_hits_redis=len(known),
                cache_misses=len(self._led) - len(known),
                cache_coalesced=self._call.rows - len(self._packed) - len(self._led),
                cache_hit_duration_ns=time.monotonic_ns() - begun_ns,
            )
        if known:
            self._packed.update((self._led[identity], row) for identity, row in known.items())
            self._flight.rows.update(known)
            self._model.cache.land(self._flight, known)
        self._executed = [row for identity, row in self._led.items() if identity not in known]
        self._num_pending = len(self._followed) + bool(self._executed) + 1
        if self._executed:
            self._execute()
        else:
            self._flight.settle()
        for flight in self._followed:
            flight.add_done_callback(lambda _: self._count_down())
        self._count_down()

    def _look_up(self) -> dict[bytes, bytes]:
        """What the tier beyond this process knows of the rows that this call leads."""
        led = list(self._led)
        return {
            identity: row
            for identity, row in zip(led, self._model.cache.look_up(led), strict=True)
            if row is not None and self._layout.accepts(row)
        }

    def _sort(self, found: Sequence[bytes | Flight]) -> None:
        for row, one in enumerate(found):
            if isinstance(one, bytes):
                self._packed[row] = one
            elif one is not self._flight:
                self._followed.setdefault(one, []).append(row)
            elif self._led.setdefault(self._identities[row], row) != row:
                self._repeated.append(row)

    def _execute(self) -> None:
        call = self._call
        if len(self._executed) != call.rows:
            inputs = {name: array[self._executed] for name, array in call.inputs.items()}
            call = replace(call, inputs=inputs, rows=len(self._executed))
        request = self._model.begin(call)
        request.add_done_callback(self._land)
        # Whoever gives this answer up gives up its execution.
        self.add_done_callback(lambda _: request.cancel())

    def _land(self, request: Answer) -> None:
        """Takes what was executed, gives it to those who follow, keeps it."""
        error = request.error
        if error is None:
            try:
                self._keep(request.outputs)
            except Exception as unexpected:
                error = _unexpected(self.model, unexpected)
        if error is not None:
            self._model.abandon(self._flight, list(self._led), error)
            self.settle(error=error)

    def _keep(self, outputs: Tensors) -> None:
        fresh = self._model.keep(self._flight, self._layout, [self._identities[row] for row in self._executed], outputs)
        self._parts.append((self._executed, outputs))
        self._flight.settle()
        self._count_down()
        if self._model.cache.has_second:
            self._model.cache.write_back(list(fresh), list(fresh.values()))

    def _count_down(self) -> None:
        with self._lock:
            self._num_pending -= 1
            if self._num_pending:
                return
        failed: list[int] = []
        for flight, rows in self._followed.items():
            if flight.error is not None:
                failed += rows
            else:
                self._packed.update((row, flight.rows[self._identities[row]]) for row in rows)
        self._followed = {}
        if failed:
            self._take_over(sorted(failed))
        else:
            self._finish()

    def _take_over(self, rows: list[int]) -> None:
        """Computes rows whose flight failed or was cancelled, unless another call does so by now."""
        if self.is_settled:
            return
        inputs = {name: array[rows] for name, array in self._call.inputs.items()}
        again = CachedAnswer(
            self._model,
            replace(self._call, inputs=inputs, rows=len(rows)),
            [self._identities[row] for row in rows],
            self._layout,
        )

        def finish(done: Answer) -> None:
            if done.error is not None:
                self.settle(error=done.error)
            else:
                self._parts.append((rows, done.outputs))
                self._finish()

        self.add_done_callback(lambda _: again.cancel())
        try:
            again.begin(is_first=False)
        except ServingError as error:
            self.settle(error=error)
        else:
            again.add_done_callback(finish)

    def _finish(self) -> None:
        try:
            outputs = self._assemble()
        except ExecutionError as error:
            self.settle(error=error)
        else:
            self.settle(outputs=outputs)

    def _assemble(self) -> Tensors:
        """Puts the rows of all sources into their places.

        Raises:
            ExecutionError: Rows of one call have outputs of different shapes.
        """
        parts = self._parts
        if self._packed:
            places = sorted(self._packed)
            unpacked = self._layout.unpack([self._packed[row] for row in places])
            if unpacked is None:
                raise self._shape_error()
            parts = [*parts, (places, unpacked)]
        rows, first = parts[0]
        if len(rows) == self._call.rows:
            # The rows of a part are rising: these are all of them in their order.
            return first
        outputs: Tensors = {}
        for name, array in first.items():
            outputs[name] = np.empty((self._call.rows, *array.shape[1:]), array.dtype)
            for part_rows, part in parts:
                if part[name].shape[1:] != array.shape[1:]:
                    raise self._shape_error()
                outputs[name][part_rows] = part[name]
            if self._repeated:
                leaders = [self._led[self._identities[row]] for row in self._repeated]
                outputs[name][self._repeated] = outputs[name][leaders]
        return outputs

    def _shape_error(self) -> ExecutionError:
        return ExecutionError(f"{self.model}: rows of one request have outputs of different shapes; send them apart")


def _unexpected(model: str, error: BaseException) -> ExecutionError:
    return ExecutionError(f"{model}: {type(error).__name__}: {error}")
