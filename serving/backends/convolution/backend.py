"""The convolution backend: ``network.json`` and ``model.safetensors`` (see `serving.backends.convolution.network`).

A row is a window of sequence and an edit of it; the answer, the networks' output along the window without the edit and
with it. Nothing is padded: of a window of L places, the answer is about the L - 2 * context in its middle.

    inputs   sequence   UINT8 [-1]   places in the alphabet; any other number is no letter
             position   INT64 [1]    where the window begins on an axis of the sender's
             start      INT32 [1]    place in the window of the first base that the edit replaces
             deleted    INT32 [1]    how many it replaces; 0: it inserts before `start`
             inserted   UINT8 [-1]   what it puts there; numbers of 255 at the end fill up rows of different lengths
    outputs  reference  FP32 [-1, outputs]   L - 2 * context positions
             alternate  FP32 [-1, outputs]   one a position of the edited sequence, then zeros: as many rows as
                                             `reference` has and `inserted` is long

`position` changes no answer. Rows that follow each other with rising positions share one pass over the sequence that
they have in common, where they do have it in common: send neighbours together, in order. Each edit then costs what it
can reach alone. Answers are the same to the last bit however rows are sent.

Parameters of the configuration: those of `serving.backends.precision`, and ``stretch_bytes``, the budget for the values
that are kept of a stretch (256 MiB); memory is bounded by it, and by `max_batch_size`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.torch import load_file

from serving.backends.base import Backend, BackendRequest, Device
from serving.backends.convolution.member import Edits, Member
from serving.backends.convolution.network import NETWORK_FILE, WEIGHTS_FILE, read_network
from serving.backends.convolution.stretches import Stretch, Window, find_stretches
from serving.backends.tf32 import release_tf32, take_tf32
from serving.backends.torch_device import computing, torch_device, torch_numerics, torch_precision
from serving.config import ModelConfig, Signature
from serving.errors import InvalidArgumentError, ModelLoadError, ServingError
from serving.tensors import VARIABLE, Tensors, TensorSpec

STRETCH_BYTES = 256 << 20
NO_BASE = 255
"""Fills up `inserted`."""
_EDITS_AT_ONCE = {"cpu": 8, "gpu": 64}


class ConvolutionBackend(Backend):
    """A mean of fully convolutional networks on a CPU or a GPU."""

    takes_requests = True

    def __init__(self) -> None:
        self._members: list[Member] = []
        self._device = torch.device("cpu")
        self._precision: torch.dtype | None = None
        self._tf32: bool | None = None
        self._label = ""
        self._letters = self._context = self._num_outputs = 0
        self._max_positions = self._edits_at_once = 0

    @classmethod
    def version(cls) -> str:
        """The version of torch."""
        return f"torch {torch.__version__}"

    @classmethod
    def has_gpu(cls) -> bool:
        """Whether torch sees a GPU."""
        return torch.cuda.is_available()

    @classmethod
    def signature(cls, folder: Path, message: object) -> Signature | None:
        """The tensors of a row.

        Raises:
            ModelLoadError: ``network.json`` is missing or wrong.
        """
        width = len(read_network(folder).outputs)
        kinds: tuple[tuple[str, Any, int], ...] = (
            ("sequence", np.uint8, VARIABLE),
            ("position", np.int64, 1),
            ("start", np.int32, 1),
            ("deleted", np.int32, 1),
            ("inserted", np.uint8, VARIABLE),
        )
        return Signature(
            tuple(TensorSpec(name, np.dtype(kind), (VARIABLE, length)) for name, kind, length in kinds),
            tuple(
                TensorSpec(name, np.dtype(np.float32), (VARIABLE, VARIABLE, width))
                for name in ("reference", "alternate")
            ),
        )

    @classmethod
    def numerics(cls, config: ModelConfig, device: Device) -> dict[str, str]:
        """Device kind and precision."""
        return torch_numerics(config, device)

    def load(self, folder: Path, config: ModelConfig, device: Device, threads: int) -> None:
        """Reads the networks and their weights.

        Raises:
            ModelLoadError: A file is missing or refused, the weights do not fit, or there is no such GPU.
        """
        self._label = f"model {config.name!r}"
        if not config.is_batched:
            raise ModelLoadError(f"{self._label}: max_batch_size must be 1 or more", field="max_batch_size")
        network = read_network(folder)
        try:
            weights = load_file(folder / WEIGHTS_FILE)
        except (OSError, SafetensorError) as error:
            raise ModelLoadError(f"{self._label}: {folder / WEIGHTS_FILE}: {error}") from error
        self._device = torch_device(config, device)
        self._precision = torch_precision(config)
        torch.set_num_threads(threads)
        self._letters, self._num_outputs = len(network.alphabet), len(network.outputs)
        self._context = network.context
        self._edits_at_once = _EDITS_AT_ONCE[device.kind]
        try:
            self._members = [
                Member(one, _own(weights, one.name), self._context, self._letters, self._device)
                for one in network.networks
            ]
        except ModelLoadError as error:
            raise ModelLoadError(f"{self._label}: {folder / NETWORK_FILE}: {error}", field=error.field) from error
        budget = _stretch_bytes(config)
        self._max_positions = budget // max(member.kept_bytes for member in self._members)
        # Last: a model that cannot be loaded holds no switch.
        self._tf32 = take_tf32(config, device)

    def execute(self, inputs: Tensors) -> Tensors:
        """Computes rows of one shape."""
        return self._answer([inputs])[0]

    def execute_requests(self, requests: Sequence[BackendRequest]) -> Sequence[Tensors | ServingError]:
        """Computes the rows of all requests together; a request with an edit outside of its window fails alone."""
        errors = [self._fault(request.inputs) for request in requests]
        answers = iter(self._answer([r.inputs for r, error in zip(requests, errors, strict=True) if error is None]))
        return [next(answers) if error is None else error for error in errors]

    def unload(self) -> None:
        """Drops the networks."""
        self._members = []
        release_tf32(self._tf32)
        self._tf32 = None

    def _fault(self, inputs: Tensors) -> InvalidArgumentError | None:
        """Why a request cannot be answered."""
        length = inputs["sequence"].shape[1]
        start, deleted = inputs["start"][:, 0].astype(np.int64), inputs["deleted"][:, 0].astype(np.int64)
        filled = inputs["inserted"] == NO_BASE
        if length <= 2 * self._context:
            return InvalidArgumentError(
                f"{self._label}: windows of {length} positions have no answer: the networks look {self._context} "
                "positions to either side",
                field="sequence",
            )
        outside = (start < 0) | (deleted < 0) | (start + deleted > length)
        outside |= length - deleted + (~filled).sum(axis=1) <= 2 * self._context
        if outside.any():
            row = int(np.flatnonzero(outside)[0])
            return InvalidArgumentError(
                f"{self._label}: row {row}: an edit of {deleted[row]} bases at {start[row]} is not inside its window "
                f"of {length}, or leaves none of its answer",
                field="start",
            )
        if (filled[:, :-1] & ~filled[:, 1:]).any():
            return InvalidArgumentError(f"{self._label}: 255 stands between inserted bases", field="inserted")
        return None

    def _answer(self, requests: Sequence[Tensors]) -> list[Tensors]:
        windows, places = [], []
        answers: list[Tensors] = []
        for number, inputs in enumerate(requests):
            rows, length = inputs["sequence"].shape
            for row in range(rows):
                inserted = inputs["inserted"][row]
                window = Window(
                    inputs["sequence"][row],
                    int(inputs["position"][row, 0]),
                    int(inputs["start"][row, 0]),
                    int(inputs["deleted"][row, 0]),
                    inserted[: np.count_nonzero(inserted != NO_BASE)],
                )
                windows.append(window)
                places.append((number, row))
            width = length - 2 * self._context
            shapes = {"reference": width, "alternate": width + inputs["inserted"].shape[1]}
            answers.append({name: np.zeros((rows, n, self._num_outputs), np.float32) for name, n in shapes.items()})
        with computing(self._device, self._precision):
            for stretch in find_stretches(windows, self._is_worth):
                self._run(stretch, windows, places, answers)
        return answers

    def _is_worth(self, length: int, more: int, window: int) -> bool:
        """Whether a stretch that grows costs less than another one, and stays in the budget."""
        outputs = length - 2 * self._context
        together = sum(member.macs(outputs + more) for member in self._members)
        apart = sum(member.macs(outputs) + member.macs(window - 2 * self._context) for member in self._members)
        return length + more <= self._max_positions and together <= apart

    def _run(
        self, stretch: Stretch, windows: list[Window], places: list[tuple[int, int]], answers: list[Tensors]
    ) -> None:
        """Answers the windows of a stretch: one network after the other, so that the values of one are kept at once."""
        sequence = self._one_hot(stretch.tokens[np.newaxis])
        groups: dict[tuple[int, int, int, int], list[int]] = {}
        for index, row in enumerate(stretch.rows):
            window = windows[row]
            key = (window.deleted, len(window.inserted), window.start, len(window.tokens))
            groups.setdefault(key, []).append(index)
        total = torch.zeros((), device=self._device)
        totals: dict[tuple[tuple[int, int, int, int], int], torch.Tensor] = {}
        for member in self._members:
            kept = member.reference(sequence)
            total = total + member.output(kept)[0].float()
            for key, members in groups.items():
                for begin in range(0, len(members), self._edits_at_once):
                    edits = self._edits(key, members[begin : begin + self._edits_at_once], stretch, windows)
                    alternates = member.alternates(kept, edits).float()
                    totals[key, begin] = totals[key, begin] + alternates if (key, begin) in totals else alternates
        reference = _mean(total, len(self._members))
        for index, row in enumerate(stretch.rows):
            number, place = places[row]
            out = answers[number]["reference"][place]
            out[:] = reference[stretch.offsets[index] : stretch.offsets[index] + len(out)]
        for (key, begin), sums in totals.items():
            rows = _mean(sums, len(self._members))
            for index, values in zip(groups[key][begin : begin + len(rows)], rows, strict=True):
                number, place = places[stretch.rows[index]]
                answers[number]["alternate"][place, : len(values)] = values

    def _edits(
        self, key: tuple[int, int, int, int], members: list[int], stretch: Stretch, windows: list[Window]
    ) -> Edits:
        deleted, inserted, start, length = key
        return Edits(
            starts=[stretch.offsets[index] + start for index in members],
            deleted=deleted,
            inserted=self._one_hot(np.stack([windows[stretch.rows[index]].inserted for index in members])),
            before=start - self._context,
            after=length - deleted + inserted - self._context - start,
        )

    def _one_hot(self, tokens: NDArray[np.uint8]) -> torch.Tensor:
        """float32 [rows, positions, letters] of uint8 [rows, positions]."""
        letters = np.arange(self._letters, dtype=np.uint8)
        return torch.from_numpy((tokens[..., np.newaxis] == letters).astype(np.float32)).to(self._device)


def _own(weights: Mapping[str, torch.Tensor], network: str) -> dict[str, torch.Tensor]:
    prefix = f"{network}."
    return {name.removeprefix(prefix): tensor for name, tensor in weights.items() if name.startswith(prefix)}


def _mean(total: torch.Tensor, count: int) -> NDArray[np.float32]:
    # Divided here: a GPU would multiply by 1 / count.
    mean: NDArray[np.float32] = np.divide(total.cpu().numpy(), np.float32(count), dtype=np.float32)
    return mean


def _stretch_bytes(config: ModelConfig) -> int:
    said: Any = config.parameters.get("stretch_bytes", str(STRETCH_BYTES))
    if not (said.isdigit() and int(said) > 0):
        raise ModelLoadError(
            f"model {config.name!r}: parameter 'stretch_bytes' is {said!r}, not a positive whole number",
            field="parameters.stretch_bytes",
        )
    return int(said)
