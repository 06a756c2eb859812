"""A request for a model's outputs, and the pieces of it that are executed."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field

import numpy as np

from serving.answer import Answer
from serving.errors import ExecutionError
from serving.tensors import Tensors

Parameters = Mapping[str, str | int | bool | float]
"""A request's own parameters."""


@dataclass(frozen=True, slots=True)
class Call:
    """What is asked of a model: checked inputs, and how long and how urgently.

    Attributes:
        inputs: C-contiguous arrays [rows, *dims], in the model's order.
        rows: Their common first dimension, at least 1.
        outputs: Names of the outputs wanted, in the model's order.
        priority: Level from 1 (highest); 0 takes the model's default.
        timeout_us: Longest time in the queue, where the model's policy lets a request choose; 0 takes the default.
        deadline_ns: When the whole request is given up (the server's clock); None: never.
        parameters: The request's own parameters; part of its identity in the cache.
        request_id: The sender's name for it; nothing depends on it.
    """

    inputs: Tensors
    rows: int
    outputs: tuple[str, ...]
    priority: int = 0
    timeout_us: int = 0
    deadline_ns: int | None = None
    parameters: Parameters = field(default_factory=dict)
    request_id: str = ""


@dataclass(frozen=True, slots=True)
class Piece:
    """Rows ``[start, stop)`` of a request: what is executed together, at most one batch."""

    request: Request
    start: int
    stop: int

    @property
    def rows(self) -> int:
        """Number of rows."""
        return self.stop - self.start

    @property
    def length(self) -> int:
        """Length of its rows, where the model takes rows of several lengths in one batch."""
        return self.request.length

    @property
    def waits_since_ns(self) -> int | None:
        """When its request came; None when an earlier piece of it has been executed."""
        return None if self.start else self.request.enqueued_ns

    @property
    def call(self) -> Call:
        """What was asked."""
        return self.request.call

    @property
    def is_given_up(self) -> bool:
        """Whether its request is settled already: cancelled, expired, or failed with another piece."""
        return self.request.is_settled

    @property
    def inputs(self) -> Tensors:
        """The piece's inputs: views, [rows, *dims]."""
        if self.start == 0 and self.stop == self.request.call.rows:
            return self.request.call.inputs
        return {name: array[self.start : self.stop] for name, array in self.request.call.inputs.items()}


class Request(Answer):
    """A call that waits in a model's queue or is being executed; settled when all its rows are."""

    def __init__(
        self,
        model: str,
        call: Call,
        max_batch_size: int,
        enqueued_ns: int,
        length: int = 0,
        shape_key: Hashable | None = None,
    ) -> None:
        """Makes the request of a call.

        Args:
            model: Name and version, for messages.
            call: What is asked.
            max_batch_size: Rows of the largest piece.
            enqueued_ns: When it came.
            length: Length of its rows, where the model takes rows of several lengths in one batch.
            shape_key: Only requests of one key can lie in one batch; None: those whose rows have the same shapes.
        """
        super().__init__(model)
        self.call = call
        self.enqueued_ns = enqueued_ns
        self.expires_ns = 0
        self.length = length
        self.shape_key: Hashable = (
            tuple([array.shape[1:] for array in call.inputs.values()]) if shape_key is None else shape_key
        )
        self._max_batch_size = max_batch_size
        self._rows_taken = 0
        self._rows_done = 0
        self._gathered: Tensors = {}

    @property
    def has_started(self) -> bool:
        """Whether any of it has left the queue."""
        return self._rows_taken > 0

    @property
    def next_rows(self) -> int:
        """Rows of the next piece; 0 when all have left the queue."""
        return min(self._max_batch_size, self.call.rows - self._rows_taken)

    def take_piece(self) -> Piece:
        """The next piece, taken out of the queue."""
        start = self._rows_taken
        self._rows_taken += self.next_rows
        return Piece(self, start, self._rows_taken)

    def accept(self, piece: Piece, outputs: Tensors) -> Tensors | None:
        """Takes the outputs of a piece, [piece.rows, *dims]; they may be views of a batch.

        Returns:
            The wanted outputs of the whole request when this was its last piece, else None.

        Raises:
            ExecutionError: Pieces of one request gave outputs of different shapes.
        """
        wanted = {name: outputs[name] for name in self.call.outputs}
        if piece.rows == self.call.rows:
            # A view would keep the whole batch alive.
            return {name: array if array.base is None else array.copy() for name, array in wanted.items()}
        with self._lock:
            for name, array in wanted.items():
                whole = self._gathered.setdefault(name, np.empty((self.call.rows, *array.shape[1:]), array.dtype))
                if whole.shape[1:] != array.shape[1:]:
                    raise ExecutionError(
                        f"{self.model}: output {name!r} has rows of the shapes {list(whole.shape[1:])} and "
                        f"{list(array.shape[1:])}, which cannot lie in one answer",
                        field=name,
                    )
                whole[piece.start : piece.stop] = array
            self._rows_done += piece.rows
            return self._gathered if self._rows_done == self.call.rows else None
