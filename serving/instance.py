"""One instance of a model: it gathers a batch, executes it and checks what came out."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np

from serving.backends.base import Backend, BackendRequest
from serving.config import ModelConfig
from serving.errors import ExecutionError, ServingError
from serving.execution_cost import ExecutionCost
from serving.padding import LengthSteps, cut_rows, pad_rows
from serving.request import Call
from serving.statistics import ModelStatistics
from serving.tensors import BF16, VARIABLE, Tensors, fits, from_model_shape, is_float, to_model_shape, type_word


class Part(Protocol):
    """Rows that are executed together with others.

    Attributes:
        rows: How many.
        start: The first one's number in its request.
        length: Their length, where the model takes rows of several lengths in one batch.
        inputs: [rows, *dims].
        waits_since_ns: When their request came; None when that was counted with an earlier part of it.
        call: What was asked.
        is_given_up: Whether nobody waits for them any more.
    """

    @property
    def rows(self) -> int: ...  # noqa: D102
    @property
    def start(self) -> int: ...  # noqa: D102
    @property
    def length(self) -> int: ...  # noqa: D102
    @property
    def inputs(self) -> Tensors: ...  # noqa: D102
    @property
    def waits_since_ns(self) -> int | None: ...  # noqa: D102
    @property
    def call(self) -> Call: ...  # noqa: D102
    @property
    def is_given_up(self) -> bool: ...  # noqa: D102


class Instance:
    """A loaded backend that one thread executes batches with.

    Attributes:
        row_multiple: Batches are padded to a multiple of this many rows, where equal rows get equal bytes.
        length_steps: Rows are padded to these lengths, likewise; for models that take padded rows.
        cost: What executions cost; shared by the instances of a model.
    """

    def __init__(
        self,
        label: str,
        config: ModelConfig,
        backend: Backend,
        statistics: ModelStatistics,
        clock_ns: Callable[[], int] = time.monotonic_ns,
        row_multiple: int = 1,
    ) -> None:
        self._label = label
        self._config = config
        self._backend = backend
        self._statistics = statistics
        self._reshaped = [spec for spec in config.inputs if spec.model_dims is not None]
        self.row_multiple = row_multiple
        self.length_steps = LengthSteps()
        self.cost = ExecutionCost()
        self._clock_ns = clock_ns

    @property
    def is_shareable(self) -> bool:
        """Whether any thread may execute with it."""
        return self._backend.is_shareable

    def run(self, parts: Sequence[Part]) -> list[Tensors | ServingError]:
        """Executes parts as one batch; gives the outputs of each, or its error.

        When the batch fails, each part is executed by itself, so that the one at fault fails alone.
        """
        try:
            if self._backend.takes_requests:
                return self._run_requests(parts)
            outputs = self._execute(parts, is_counted=True)
        except ServingError as error:
            if len(parts) == 1:
                return [error]
            return [answer for part in parts for answer in self.run([part])]
        return self._share_out(parts, outputs)

    def padded_tokens(self, parts: Sequence[Part]) -> int:
        """Rows times length of the batch that parts are executed in, padding included."""
        rows = sum([part.rows for part in parts])
        return (rows + -rows % self.row_multiple) * self.length_steps.up(max([part.length for part in parts]))

    def _run_requests(self, parts: Sequence[Part]) -> list[Tensors | ServingError]:
        """Executes parts as one batch of requests; gives the outputs of each, or its error.

        Raises:
            ServingError: The batch failed.
        """
        begun_ns = self._clock_ns()
        rows = sum([part.rows for part in parts])
        tokens: dict[str, int] = {}
        length = 0
        all_inputs = [part.inputs for part in parts]
        if self._config.padding is not None:
            length = self.length_steps.up(max(part.length for part in parts))
            padded = self._gather_padded(parts, rows, length)
            ends = np.cumsum([part.rows for part in parts]).tolist()
            all_inputs = [
                {name: array[end - part.rows : end] for name, array in padded.items()}
                for part, end in zip(parts, ends, strict=True)
            ]
            num_tokens = sum(part.rows * part.length for part in parts)
            tokens = {"tokens": num_tokens, "padding_tokens": rows * length - num_tokens}
        requests = [self._request(part, inputs) for part, inputs in zip(parts, all_inputs, strict=True)]
        gathered_ns = self._clock_ns()
        try:
            outcomes = self._backend.execute_requests(requests)
        except Exception as error:
            raise ExecutionError(f"{self._label}: the backend failed: {error}") from error
        executed_ns = self._clock_ns()
        if len(outcomes) != len(parts):
            raise ExecutionError(f"{self._label}: the backend gave {len(outcomes)} answers for {len(parts)} requests")
        answers = [
            outcome if isinstance(outcome, ServingError) else self._take(part, request, outcome, length)
            for part, request, outcome in zip(parts, requests, outcomes, strict=True)
        ]
        self._count(parts, rows, begun_ns, gathered_ns, executed_ns, **tokens)
        return answers

    def _count(
        self, parts: Sequence[Part], rows: int, begun_ns: int, gathered_ns: int, executed_ns: int, **amounts: int
    ) -> None:
        """Counts an execution that ends now."""
        self._statistics.add_batch(
            rows,
            len(parts),
            queue_ns=sum([begun_ns - since for part in parts if (since := part.waits_since_ns) is not None]),
            input_ns=gathered_ns - begun_ns,
            infer_ns=executed_ns - gathered_ns,
            output_ns=self._clock_ns() - executed_ns,
            **amounts,
        )

    def _request(self, part: Part, inputs: Tensors) -> BackendRequest:
        inputs = self._to_model(inputs)
        # Of a sequence, the server itself reads outputs that nobody asks for.
        outputs = part.call.outputs if self._config.sequence is None else [spec.name for spec in self._config.outputs]
        return BackendRequest(
            inputs if self._config.is_batched else {name: array[0] for name, array in inputs.items()},
            tuple(outputs),
            part.call,
            lambda: part.is_given_up,
        )

    def _take(self, part: Part, request: BackendRequest, outputs: Tensors, length: int) -> Tensors | ServingError:
        """Checks what a backend gave for one request, and cuts it back to the request's own length."""
        try:
            outputs = self._check(outputs, part.rows, request.outputs)
            if length:
                self._check_lengths(outputs, length)
                specs = [spec for spec in self._config.outputs if spec.name in outputs]
                outputs = {
                    spec.name: cut_rows(outputs[spec.name], spec.dims, 0, part.rows, part.length) for spec in specs
                }
        except ServingError as error:
            return error
        has_nan = [name for name, array in outputs.items() if is_float(array.dtype) and _has_nan(array)]
        return (self._nan_error(part, outputs, has_nan) if has_nan else None) or outputs

    def measure(self, parts: Sequence[Part]) -> list[Tensors | ServingError]:
        """Executes parts as one batch, counted nowhere; gives the outputs of each, or its error.

        Raises:
            ServingError: The batch failed.
        """
        return self._share_out(parts, self._execute(parts, is_counted=False))

    def probe(self, inputs: Tensors, rows: int) -> Tensors:
        """As `execute`, for [rows, *dims] arrays of the inputs that requests send, all of one length.

        Raises:
            ExecutionError: The backend failed, or gave something else than the configuration says.
        """
        padding = self._config.padding
        if padding is not None:
            name, axis = padding.free[0]
            length = inputs[name].shape[axis]
            inputs = inputs | {padding.input.name: padding.fill(np.full(rows, length), length)}
        return self.execute(inputs, rows)

    def _share_out(self, parts: Sequence[Part], outputs: Tensors) -> list[Tensors | ServingError]:
        """Gives each part its rows of the batch's outputs, or its error."""
        has_nan = [name for name, array in outputs.items() if is_float(array.dtype) and _has_nan(array)]
        answers: list[Tensors | ServingError] = []
        start = 0
        for part in parts:
            stop = start + part.rows
            if self._config.padding is not None:
                own = {
                    spec.name: cut_rows(outputs[spec.name], spec.dims, start, stop, part.length)
                    for spec in self._config.outputs
                }
            elif len(parts) == 1:
                own = outputs
            else:
                own = {name: array[start:stop] for name, array in outputs.items()}
            answers.append((self._nan_error(part, own, has_nan) if has_nan else None) or own)
            start = stop
        return answers

    def _execute(self, parts: Sequence[Part], *, is_counted: bool) -> Tensors:
        """Outputs of all the parts' rows, lengths not cut back."""
        begun_ns = self._clock_ns()
        rows = sum([part.rows for part in parts])
        padding = -rows % self.row_multiple
        length = 0
        tokens: dict[str, int] = {}
        if self._config.padding is None:
            inputs = _gather(parts, padding)
        else:
            length = self.length_steps.up(max([part.length for part in parts]))
            inputs = self._gather_padded(parts, rows + padding, length)
            num_tokens = sum([part.rows * part.length for part in parts])
            tokens = {"tokens": num_tokens, "padding_tokens": (rows + padding) * length - num_tokens}
        gathered_ns = self._clock_ns()
        outputs = self.execute(inputs, rows + padding)
        executed_ns = self._clock_ns()
        if tokens:
            self._check_lengths(outputs, length)
        if padding:
            outputs = {name: array[:rows] for name, array in outputs.items()}
        if is_counted:
            self._count(parts, rows, begun_ns, gathered_ns, executed_ns, padding_rows=padding, **tokens)
        return outputs

    def _gather_padded(self, parts: Sequence[Part], rows: int, length: int) -> Tensors:
        """One array per input for rows of several lengths, and the input that says how long each is."""
        assert self._config.padding is not None
        all_inputs = [part.inputs for part in parts]
        inputs = {}
        for spec in self._config.inputs:
            if spec is self._config.padding.input:
                lengths = np.repeat([part.length for part in parts], [part.rows for part in parts])
                lengths = np.concatenate([lengths, np.repeat(lengths[-1:], rows - len(lengths))])
                inputs[spec.name] = self._config.padding.fill(lengths, length)
            else:
                inputs[spec.name] = pad_rows([one[spec.name] for one in all_inputs], spec.dims, rows, length)
        return inputs

    def _check_lengths(self, outputs: Tensors, length: int) -> None:
        for spec in self._config.outputs:
            shape = outputs[spec.name].shape[1:]
            if any(want == VARIABLE and have != length for want, have in zip(spec.dims, shape, strict=True)):
                raise ExecutionError(
                    f"{self._label}: output {spec.name!r} has rows of the shape {list(shape)} for inputs of the length "
                    f"{length}: with the parameter 'lengths_input' its free dimensions must have that length",
                    field=spec.name,
                )

    def execute(self, inputs: Tensors, rows: int) -> Tensors:
        """Executes [rows, *dims] arrays and checks the outputs' names, types and shapes.

        Raises:
            ExecutionError: The backend failed, or gave something else than the configuration says.
        """
        inputs = self._to_model(inputs)
        try:
            if self._config.is_batched:
                outputs = self._backend.execute(inputs)
            else:
                outputs = self._backend.execute({name: array[0] for name, array in inputs.items()})
        except Exception as error:
            raise ExecutionError(f"{self._label}: the backend failed: {error}") from error
        return self._check(outputs, rows, None)

    def _to_model(self, inputs: Tensors) -> Tensors:
        """The inputs in the shapes that the model file has."""
        for spec in self._reshaped:
            if spec.name in inputs:
                inputs = inputs | {spec.name: to_model_shape(inputs[spec.name], spec)}
        return inputs

    def _check(self, outputs: Tensors, rows: int, names: Sequence[str] | None) -> Tensors:
        """The outputs of these names (None: all), [rows, *dims].

        Raises:
            ExecutionError: One is missing, or something else than the configuration says.
        """
        checked: Tensors = {}
        for spec in self._config.outputs:
            array = outputs.get(spec.name)
            if array is None and names is not None and spec.name not in names:
                continue
            if not isinstance(array, np.ndarray):
                raise ExecutionError(f"{self._label}: the backend gave no output {spec.name!r}", field=spec.name)
            if not self._config.is_batched:
                array = array[np.newaxis]
            if array.ndim == 0 or array.shape[0] != rows:
                raise ExecutionError(
                    f"{self._label}: output {spec.name!r} has the shape {list(array.shape)} for a batch of {rows} rows",
                    field=spec.name,
                )
            dims = spec.dims if spec.model_dims is None else spec.model_dims
            if array.dtype != spec.dtype or not fits(dims, array.shape[1:]):
                raise ExecutionError(
                    f"{self._label}: output {spec.name!r} has rows of {type_word(array.dtype)}{list(array.shape[1:])}, "
                    f"its configuration says {type_word(spec.dtype)}{list(dims)}",
                    field=spec.name,
                )
            checked[spec.name] = from_model_shape(array, spec)
        return checked

    def _nan_error(self, part: Part, outputs: Tensors, names: Sequence[str]) -> ExecutionError | None:
        for name in names:
            nan = np.isnan(outputs[name]).reshape(part.rows, -1).any(axis=1)
            bad = np.flatnonzero(nan) + part.start
            if len(bad):
                shown = ", ".join(map(str, bad[:5])) + (", ..." if len(bad) > 5 else "")
                return ExecutionError(
                    f"{self._label}: output {name!r} is not a number (NaN) in {len(bad)} of "
                    f"{part.rows} rows: row {shown}",
                    field=name,
                )
        return None


def _has_nan(array: np.ndarray) -> bool:
    """Whether a NaN is anywhere: the least of the numbers is one then."""
    if not array.size:
        return False
    if array.dtype == BF16:
        # Its minimum warns of each NaN.
        return bool(np.isnan(array).any())
    least = np.minimum.reduce(array, axis=None)
    return bool(least != least)


def _gather(parts: Sequence[Part], padding: int) -> Tensors:
    """One array per input for all parts, filled up with copies of the last row."""
    arrays = [part.inputs for part in parts]
    if len(arrays) == 1 and not padding:
        return arrays[0]
    last = arrays[-1]
    fill = [{name: np.repeat(array[-1:], padding, axis=0) for name, array in last.items()}] if padding else []
    return {name: np.concatenate([part[name] for part in (*arrays, *fill)]) for name in last}
