"""Models with an iteration step: a request is a whole sequence, which the server takes through the model step by step.

Triton's field for it is ``sequence_batching { iterative_sequence: true }``: a sequence is begun by one request and goes
on until it is done, sequences in flight are batched together at every step and end independently.

    sequence_batching {
      iterative_sequence: true
      oldest { max_candidate_sequences: 4 }
      state { input_name: "state" output_name: "next_state" data_type: TYPE_FP32 dims: [ 128 ] }
    }
    parameters { key: "step_length" value { string_value: "256" } }

- Each row of a request is a sequence. An instance has `max_candidate_sequences` slots (default: max_batch_size); a
  sequence that waits is admitted into a free slot at the next step, one that is done or given up leaves at once.
- `state`: what the model gives as `output_name` it takes as `input_name` at the next step; at first it is zeros.
- Inputs whose first dimension is free (-1) are consumed along it, `step_length` (default 1) positions a step; other
  inputs are the same at every step. A sequence is done when its inputs are consumed, or when the output that the
  parameter ``done_output`` names (TYPE_BOOL, dims [1]) says so.
- Outputs whose first dimension is free are joined along it; of the others the last step's is the answer.

What else Triton's sequence_batching can do (correlation ids, control inputs, the direct strategy) is a load error.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from tritonclient.grpc import model_config_pb2

from serving.errors import InvalidArgumentError, ModelLoadError
from serving.tensors import TYPE_NAMES, VARIABLE, Tensors, TensorSpec

STEP_LENGTH = "step_length"
DONE_OUTPUT = "done_output"
_FIELD = "sequence_batching"


@dataclass(frozen=True, slots=True)
class State:
    """A tensor that the model hands on to its next step."""

    input: str
    output: str
    spec: TensorSpec

    def initial(self) -> np.ndarray:
        """The state before the first step: zeros, [1, *dims]."""
        return np.zeros((1, *self.spec.dims), self.spec.dtype)


@dataclass(frozen=True, slots=True)
class IterativeSequence:
    """How a model iterates.

    Attributes:
        num_slots: Sequences in flight in one instance.
        states: What is carried from step to step.
        consumed: Request inputs that are consumed along their first dimension.
        joined: Outputs that are joined along their first dimension.
        step_length: Positions consumed in a step.
        done_output: The output that says a sequence is done; None: there is none.
    """

    num_slots: int
    states: tuple[State, ...]
    consumed: tuple[str, ...]
    joined: frozenset[str]
    step_length: int
    done_output: str | None

    @property
    def own_outputs(self) -> frozenset[str]:
        """Outputs that requests do not get."""
        own = {state.output for state in self.states}
        return frozenset(own | {self.done_output} if self.done_output is not None else own)

    def num_steps(self, label: str, inputs: Tensors) -> int | None:
        """Steps until a request's inputs are consumed; None when nothing is.

        Raises:
            InvalidArgumentError: The inputs differ in length, or are empty.
        """
        lengths: set[int] = {inputs[name].shape[1] for name in self.consumed}
        if not lengths:
            return None
        if len(lengths) > 1 or 0 in lengths:
            raise InvalidArgumentError(
                f"{label}: {', '.join(map(repr, self.consumed))} have the lengths {', '.join(map(str, lengths))}; "
                "a sequence is consumed along one length of at least 1",
                field=self.consumed[0],
            )
        return -(-lengths.pop() // self.step_length)


def read_sequence(
    where: str,
    message: Any,
    inputs: Sequence[TensorSpec],
    outputs: Sequence[TensorSpec],
    parameters: Mapping[str, str],
) -> IterativeSequence | None:
    """How a configuration says that the model iterates; None: it does not.

    Raises:
        ModelLoadError: It asks for sequences of another kind, or its states and parameters do not fit the tensors.
    """
    if not message.HasField(_FIELD):
        return None
    field = message.sequence_batching
    if message.max_batch_size == 0 or message.HasField("dynamic_batching"):
        raise ModelLoadError(f"{where}: {_FIELD} needs a max_batch_size, and no dynamic_batching", field=_FIELD)
    slots = field.oldest.max_candidate_sequences or message.max_batch_size
    if slots > message.max_batch_size:
        raise ModelLoadError(
            f"{where}: {_FIELD}.oldest.max_candidate_sequences is {slots}, max_batch_size is {message.max_batch_size}",
            field=f"{_FIELD}.oldest.max_candidate_sequences",
        )
    states = tuple(_state(where, state, inputs, outputs) for state in field.state)
    carried = {state.input for state in states}
    consumed = tuple(spec.name for spec in inputs if spec.name not in carried and spec.dims[:1] == (VARIABLE,))
    if "lengths_input" in parameters:
        consumed = tuple(name for name in consumed if name != parameters["lengths_input"])
    done = parameters.get(DONE_OUTPUT)
    if done is not None and not any(
        spec.name == done and spec.dtype == np.bool_ and spec.dims == (1,) for spec in outputs
    ):
        raise ModelLoadError(
            f"{where}: parameter {DONE_OUTPUT!r} is {done!r}, which is no output of TYPE_BOOL with dims [1]",
            field=f"parameters.{DONE_OUTPUT}",
        )
    if not consumed and done is None:
        raise ModelLoadError(
            f"{where}: no sequence would end: no input has a free first dimension, and there is no parameter "
            f"{DONE_OUTPUT!r}",
            field=_FIELD,
        )
    length = parameters.get(STEP_LENGTH, "1")
    if not length.isdecimal() or int(length) < 1:
        raise ModelLoadError(
            f"{where}: parameter {STEP_LENGTH!r} is {length!r}, not a positive number",
            field=f"parameters.{STEP_LENGTH}",
        )
    joined = frozenset(spec.name for spec in outputs if spec.dims[:1] == (VARIABLE,))
    return IterativeSequence(slots, states, consumed, joined, int(length), done)


def _state(where: str, state: Any, inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec]) -> State:
    given = next((spec for spec in inputs if spec.name == state.input_name), None)
    got = next((spec for spec in outputs if spec.name == state.output_name), None)
    field = f"{_FIELD}.state"
    if given is None or got is None:
        raise ModelLoadError(
            f"{where}: {field} carries output {state.output_name!r} to input {state.input_name!r}; the model's outputs "
            f"are {', '.join(spec.name for spec in outputs)}, its inputs {', '.join(spec.name for spec in inputs)}",
            field=field,
        )
    if not given.is_fixed or (given.dtype, given.dims) != (got.dtype, got.dims):
        raise ModelLoadError(
            f"{where}: {field} carries {got} to {given}: they must be alike, with fixed dims", field=field
        )
    said = model_config_pb2.DataType.Name(state.data_type)
    if tuple(state.dims) not in ((), given.dims) or said not in ("TYPE_INVALID", TYPE_NAMES.get(given.dtype)):
        raise ModelLoadError(f"{where}: {field} is {said} {list(state.dims)}, but carries {given}", field=field)
    return State(given.name, got.name, given)
