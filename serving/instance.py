"""One instance of a model: it gathers a batch, executes it and checks what came out."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import numpy as np

from serving.backends.base import Backend
from serving.config import ModelConfig
from serving.errors import ExecutionError, ServingError
from serving.request import Piece
from serving.statistics import ModelStatistics
from serving.tensors import Tensors


class Instance:
    """A loaded backend that one thread executes batches with.

    Attributes:
        row_multiple: Batches are padded to a multiple of this many rows, where equal rows get equal bytes.
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
        self.row_multiple = row_multiple
        self._clock_ns = clock_ns

    def run(self, pieces: Sequence[Piece]) -> list[Tensors | ServingError]:
        """Executes pieces as one batch; gives the outputs of each, or its error.

        When the batch fails, each piece is executed by itself, so that the one at fault fails alone.
        """
        try:
            outputs, rows_nan = self._execute(pieces)
        except ServingError as error:
            if len(pieces) == 1:
                return [error]
            return [answer for piece in pieces for answer in self.run([piece])]
        answers: list[Tensors | ServingError] = []
        start = 0
        for piece in pieces:
            stop = start + piece.rows
            answers.append(
                self._nan_error(piece, start, stop, rows_nan)
                or (outputs if len(pieces) == 1 else {name: array[start:stop] for name, array in outputs.items()})
            )
            start = stop
        return answers

    def _execute(self, pieces: Sequence[Piece]) -> tuple[Tensors, dict[str, np.ndarray]]:
        """Outputs of all the pieces' rows, and which rows of which output hold a NaN."""
        begun_ns = self._clock_ns()
        rows = sum(piece.rows for piece in pieces)
        padding = -rows % self.row_multiple
        inputs = _gather(pieces, padding)
        gathered_ns = self._clock_ns()
        outputs = self.execute(inputs, rows + padding)
        executed_ns = self._clock_ns()
        if padding:
            outputs = {name: array[:rows] for name, array in outputs.items()}
        rows_nan = {name: nan for name, array in outputs.items() if (nan := _rows_with_nan(array)) is not None}
        count = len(pieces)
        self._statistics.add_batch(
            rows,
            padding_rows=padding,
            queue_duration_ns=sum(begun_ns - piece.request.enqueued_ns for piece in pieces if piece.start == 0),
            compute_input_duration_ns=count * (gathered_ns - begun_ns),
            compute_infer_duration_ns=count * (executed_ns - gathered_ns),
            compute_output_duration_ns=count * (self._clock_ns() - executed_ns),
        )
        return outputs, rows_nan

    def execute(self, inputs: Tensors, rows: int) -> Tensors:
        """Executes [rows, *dims] arrays and checks the outputs' names, types and shapes.

        Raises:
            ExecutionError: The backend failed, or gave something else than the configuration says.
        """
        try:
            if self._config.is_batched:
                outputs = self._backend.execute(inputs)
            else:
                outputs = self._backend.execute({name: array[0] for name, array in inputs.items()})
                outputs = {name: np.asarray(array)[np.newaxis] for name, array in outputs.items()}
        except Exception as error:
            raise ExecutionError(f"{self._label}: the backend failed: {error}") from error
        checked: Tensors = {}
        for spec in self._config.outputs:
            array = outputs.get(spec.name)
            if not isinstance(array, np.ndarray):
                raise ExecutionError(f"{self._label}: the backend gave no output {spec.name!r}", field=spec.name)
            if array.ndim == 0 or array.shape[0] != rows:
                raise ExecutionError(
                    f"{self._label}: output {spec.name!r} has the shape {list(array.shape)} for a batch of {rows} rows",
                    field=spec.name,
                )
            if array.dtype != spec.dtype or not spec.fits(array.shape[1:]):
                raise ExecutionError(
                    f"{self._label}: output {spec.name!r} has rows of {array.dtype.name}{list(array.shape[1:])}, "
                    f"its configuration says {spec.dtype.name}{list(spec.dims)}",
                    field=spec.name,
                )
            checked[spec.name] = array
        return checked

    def _nan_error(self, piece: Piece, start: int, stop: int, rows_nan: dict[str, np.ndarray]) -> ExecutionError | None:
        for name, nan in rows_nan.items():
            bad = np.flatnonzero(nan[start:stop]) + piece.start
            if len(bad):
                shown = ", ".join(map(str, bad[:5])) + (", ..." if len(bad) > 5 else "")
                return ExecutionError(
                    f"{self._label}: output {name!r} is not a number (NaN) in {len(bad)} of "
                    f"{piece.request.call.rows} rows: row {shown}",
                    field=name,
                )
        return None


def _gather(pieces: Sequence[Piece], padding: int) -> Tensors:
    """One array per input for all pieces, filled up with copies of the last row."""
    parts = [piece.inputs for piece in pieces]
    if len(parts) == 1 and not padding:
        return parts[0]
    last = parts[-1]
    fill = {name: np.repeat(array[-1:], padding, axis=0) for name, array in last.items()}
    return {name: np.concatenate([*(part[name] for part in parts), fill[name]]) for name in last}


def _rows_with_nan(array: np.ndarray) -> np.ndarray | None:
    """Bool [rows]: where a row holds a NaN; None when none does."""
    if array.dtype.kind != "f":
        return None
    nan = np.isnan(array)
    return nan.reshape(len(array), -1).any(axis=1) if nan.any() else None
