"""Continuous batching: sequences enter and leave the batch of an iterating model at every step."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Hashable, Sequence

import numpy as np

from serving.answer import Answer
from serving.batcher import Scheduler, finish_piece
from serving.config import DynamicBatching, ModelConfig
from serving.errors import ExecutionError, ServingError, UnavailableError
from serving.instance import Instance
from serving.queue import RequestQueue
from serving.request import Call, Piece, Request
from serving.statistics import ModelStatistics
from serving.tensors import Tensors


class SequenceBatcher(Scheduler):
    """Gives each instance's slots to the sequences that wait, and takes all sequences in flight a step further at once.

    Args:
        label: Name and version of the model.
        config: Its configuration, with `sequence`.
        instances: What executes; a thread each.
        max_batch_size: Rows of the largest batch.
        statistics: Where steps and slots are counted.
        clock_ns: A clock in nanoseconds that never goes back.
    """

    def __init__(
        self,
        label: str,
        config: ModelConfig,
        instances: Sequence[Instance],
        max_batch_size: int,
        statistics: ModelStatistics,
        clock_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        assert config.sequence is not None
        self._label = label
        self._config = config
        self._sequence = config.sequence
        self._num_slots = min(config.sequence.num_slots, max_batch_size)
        self._instances = instances
        self._statistics = statistics
        self._clock_ns = clock_ns
        self._changed = threading.Condition()
        # A piece is one row: one sequence.
        self._queue = RequestQueue(label, DynamicBatching(()), max_batch_size=1)
        self._threads: list[threading.Thread] = []
        self._is_open = False

    def start(self) -> None:
        """Starts a thread per instance."""
        self._is_open = True
        for number, instance in enumerate(self._instances):
            thread = threading.Thread(
                target=self._run, args=(instance,), name=f"serving-{self._label}-{number}", daemon=True
            )
            self._threads.append(thread)
            thread.start()

    def close(self) -> None:
        """Takes no more requests, finishes those that wait and are in flight, and joins the threads."""
        with self._changed:
            self._is_open = False
            self._changed.notify_all()
        for thread in self._threads:
            thread.join()
        self._threads.clear()

    @property
    def depths(self) -> list[int]:
        """Requests with sequences that wait for a slot."""
        with self._changed:
            return self._queue.depths

    def submit(self, call: Call) -> Answer:
        """Puts the sequences of a call, one a row, into the queue.

        Raises:
            UnavailableError: The batcher is not running.
            InvalidArgumentError: The lengths do not fit, or it has a priority.
        """
        num_steps = self._sequence.num_steps(self._label, call.inputs)
        request = SequenceRequest(self._label, call, self._clock_ns(), num_steps)
        with self._changed:
            if not self._is_open:
                raise UnavailableError(f"{self._label}: is not running")
            self._queue.put(request)
            self._changed.notify()
        return request

    def _run(self, instance: Instance) -> None:
        running: list[_Running] = []
        while self._admit(running):
            for group in self._groups(running):
                self._step(instance, group)
            running = [one for one in running if not one.is_over]

    def _admit(self, running: list[_Running]) -> bool:
        """Fills free slots with sequences that wait; waits for one when none runs. False: there will be none."""
        with self._changed:
            while True:
                while len(running) < self._num_slots:
                    pieces = self._queue.take(self._clock_ns())
                    if not isinstance(pieces, list):
                        break
                    running += [_Running(piece, self._config) for piece in pieces]
                if running:
                    if not self._queue.is_empty:
                        self._statistics.add(slot_steps=self._num_slots, slot_steps_used=len(running))
                    return True
                if not self._is_open:
                    return False
                self._changed.wait()

    def _groups(self, running: list[_Running]) -> list[list[_Running]]:
        """The sequences in flight, by what can lie in one batch: all, but for a last chunk that is shorter."""
        groups: dict[Hashable, list[_Running]] = {}
        for one in running:
            one.prepare()
            if not one.is_over:
                groups.setdefault(one.shape_key, []).append(one)
        return list(groups.values())

    def _step(self, instance: Instance, group: list[_Running]) -> None:
        outcomes: Sequence[Tensors | ServingError]
        try:
            outcomes = instance.run(group)
        except BaseException as error:  # this thread is the instance's, nobody interrupts it
            outcomes = [ExecutionError(f"{self._label}: {type(error).__name__}: {error}") for _ in group]
        for one, outcome in zip(group, outcomes, strict=True):
            one.take(outcome)


class SequenceRequest(Request):
    """A call whose rows are sequences.

    Attributes:
        num_steps: Steps until its inputs are consumed; None: the model says when it is done.
    """

    def __init__(self, model: str, call: Call, enqueued_ns: int, num_steps: int | None) -> None:
        super().__init__(model, call, 1, enqueued_ns, shape_key=())
        self.num_steps = num_steps


class _Running:
    """A sequence in a slot: what it carries, where it is, what came out of it; as a part of a batch, its next step."""

    rows = 1

    def __init__(self, piece: Piece, config: ModelConfig) -> None:
        assert config.sequence is not None
        assert isinstance(piece.request, SequenceRequest)
        self._piece = piece
        self._sequence = config.sequence
        self._does_pad = config.padding is not None
        self._num_steps = piece.request.num_steps
        self._given = piece.inputs
        self._carried = {state.input: state.initial() for state in config.sequence.states}
        self._wanted = piece.request.call.outputs
        self._joined: dict[str, list[np.ndarray]] = {name: [] for name in self._wanted if name in self._sequence.joined}
        self._step = 0
        self.start = piece.start
        self.is_over = False
        self.waits_since_ns: int | None = piece.waits_since_ns
        self.inputs: Tensors = {}
        self.length = 0
        self.shape_key: Hashable = ()

    @property
    def call(self) -> Call:
        """What was asked."""
        return self._piece.request.call

    @property
    def is_given_up(self) -> bool:
        """Whether its request is settled already."""
        return self._piece.request.is_settled

    def prepare(self) -> None:
        """Makes the inputs of the next step; nothing more is done for a request that is settled."""
        if self._piece.request.is_settled:
            self.is_over = True
            return
        first = self._step * self._sequence.step_length
        chunk = slice(first, first + self._sequence.step_length)
        self.inputs = {
            name: array[:, chunk] if name in self._sequence.consumed else array for name, array in self._given.items()
        } | self._carried
        if self._sequence.consumed:
            self.length = self.inputs[self._sequence.consumed[0]].shape[1]
        self.shape_key = () if self._does_pad else tuple([array.shape for array in self.inputs.values()])

    def take(self, outcome: Tensors | ServingError) -> None:
        """Takes what came of a step, and settles its part of the request after the last one."""
        self.waits_since_ns = None
        self._step += 1
        if not isinstance(outcome, dict):
            self._finish(outcome)
            return
        # A view would keep the whole batch alive from step to step.
        self._carried = {state.input: outcome[state.output].copy() for state in self._sequence.states}
        for name, parts in self._joined.items():
            parts.append(outcome[name].copy())
        is_done = self._step == self._num_steps
        if self._sequence.done_output is not None:
            is_done = is_done or bool(outcome[self._sequence.done_output][0, 0])
        if is_done:
            joined = {name: np.concatenate(parts, axis=1) for name, parts in self._joined.items()}
            self._finish({name: joined[name] if name in joined else outcome[name] for name in self._wanted})

    def _finish(self, outcome: Tensors | ServingError) -> None:
        self.is_over = True
        finish_piece(self._piece, outcome)
