"""The embedder: a sequence of any length, read in chunks, becomes a state; the state becomes an embedding.

Tokens are cut into patches of eight. Each patch, seen with the one before it, drives damped rotations
``h <- decay * exp(i * angle) * h + drive``, whose sum over a chunk is taken in closed form. The state is the last
patch's features and the real and imaginary parts of ``h``; it starts as zeros, and a sequence fed in chunks (of a
multiple of eight tokens, the last one of any length) gives what it gives in one piece.

A row's answer does not depend on its batch: only sums, products and max(0, x) act on rows, and the graph adds one empty
row to every batch, because onnxruntime sums a lone row's patches in another order.

Source: linear recurrent units, Orvieto et al. 2023, arXiv:2303.06349.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from tasks.training.graphs import build_model

PATCH_BP = 8
PATCH_FEATURES = 32
ROTATIONS = 48
STATE = PATCH_FEATURES + 2 * ROTATIONS
EMBEDDING = 64
_MIXED, _HIDDEN = 128, 192
_ROWS_AT_ONCE = 4096
_LONGEST_MEMORY = 64.0
"""Patches until the slowest rotation has faded to 1/e, at the start of training."""

_GRAPH = f"""
embedder (uint8[N, L] tokens, float[N, {STATE}] state)
      => (float[N, {EMBEDDING}] embedding, float[N, {STATE}] next_state) {{
  zero = Constant <value = int64[1] {{0}}> ()
  one = Constant <value = int64[1] {{1}}> ()
  last = Constant <value = int64[1] {{-1}}> ()
  most = Constant <value = int64[1] {{9223372036854775807}}> ()
  patch_bp = Constant <value = int64[1] {{{PATCH_BP}}}> ()
  unknown = Constant <value = uint8 {{4}}> ()
  length = Shape <start = 1, end = 2> (tokens)
  short = Neg (length)
  missing = Mod (short, patch_bp)
  pads = Concat <axis = 0> (zero, zero, one, missing)
  whole = Pad (tokens, pads, unknown)
  patch_shape = Constant <value = int64[3] {{0, -1, {PATCH_BP}}}> ()
  patches = Reshape (whole, patch_shape)
  places = Cast <to = 6> (patches)
  one_hot = Gather <axis = 0> (letters, places)
  flat_shape = Constant <value = int64[3] {{0, 0, {4 * PATCH_BP}}}> ()
  flat = Reshape (one_hot, flat_shape)
  patch_product = MatMul (flat, patch_weight)
  patch_sum = Add (patch_product, patch_bias)
  features = Relu (patch_sum)

  parts = Constant <value = int64[3] {{{PATCH_FEATURES}, {ROTATIONS}, {ROTATIONS}}}> ()
  state_pads = Constant <value = int64[4] {{0, 0, 1, 0}}> ()
  states = Pad (state, state_pads)
  before, real, imaginary = Split <axis = 1> (states, parts)
  before_patch = Unsqueeze (before, one)
  row = Concat <axis = 1> (before_patch, features)
  previous = Slice (row, zero, last, one)
  after_patch = Slice (row, last, most, one)
  after = Squeeze (after_patch, one)
  pairs = Concat <axis = 2> (previous, features)
  mixed_product = MatMul (pairs, mix_weight)
  mixed_sum = Add (mixed_product, mix_bias)
  mixed = Relu (mixed_sum)
  drive_product = MatMul (mixed, drive_weight)
  drive = Add (drive_product, drive_bias)

  num_patches = Shape <start = 1, end = 2> (patches)
  first = Constant <value = int64 {{0}}> ()
  step = Constant <value = int64 {{1}}> ()
  count = Squeeze (num_patches, zero)
  numbers = Range (first, count, step)
  backwards = Sub (count, numbers)
  ages = Sub (backwards, step)
  age = Cast <to = 1> (ages)
  age_column = Unsqueeze (age, one)
  fade_exponent = Mul (age_column, log_decay)
  fade = Exp (fade_exponent)
  turn = Mul (age_column, angle)
  turn_cos = Cos (turn)
  turn_sin = Sin (turn)
  fade_cos = Mul (fade, turn_cos)
  fade_sin = Mul (fade, turn_sin)
  drive_cos = Mul (drive, fade_cos)
  drive_sin = Mul (drive, fade_sin)
  new_real = ReduceSum <keepdims = 0> (drive_cos, one)
  new_imaginary = ReduceSum <keepdims = 0> (drive_sin, one)

  span = Cast <to = 1> (num_patches)
  old_exponent = Mul (span, log_decay)
  old_fade = Exp (old_exponent)
  old_turn = Mul (span, angle)
  old_turn_cos = Cos (old_turn)
  old_turn_sin = Sin (old_turn)
  old_cos = Mul (old_fade, old_turn_cos)
  old_sin = Mul (old_fade, old_turn_sin)
  real_cos = Mul (real, old_cos)
  real_sin = Mul (real, old_sin)
  imaginary_cos = Mul (imaginary, old_cos)
  imaginary_sin = Mul (imaginary, old_sin)
  old_real = Sub (real_cos, imaginary_sin)
  old_imaginary = Add (real_sin, imaginary_cos)
  next_real = Add (old_real, new_real)
  next_imaginary = Add (old_imaginary, new_imaginary)
  all_next = Concat <axis = 1> (after, next_real, next_imaginary)
  next_state = Slice (all_next, zero, last, zero)

  hidden_product = MatMul (next_state, hidden_weight)
  hidden_sum = Add (hidden_product, hidden_bias)
  hidden = Relu (hidden_sum)
  embedding_product = MatMul (hidden, embedding_weight)
  embedding = Add (embedding_product, embedding_bias)
}}
"""


class Embedder(nn.Module):
    """The embedder in torch, for training and as the plain statement of what the ONNX file computes."""

    def __init__(self) -> None:
        super().__init__()
        self.patch = nn.Linear(4 * PATCH_BP, PATCH_FEATURES)
        self.mix = nn.Linear(2 * PATCH_FEATURES, _MIXED)
        self.drive = nn.Linear(_MIXED, ROTATIONS)
        self.hidden = nn.Linear(STATE, _HIDDEN)
        self.embedding = nn.Linear(_HIDDEN, EMBEDDING)
        memory = torch.logspace(0, math.log10(_LONGEST_MEMORY), ROTATIONS)
        self.raw_decay = nn.Parameter(torch.log(torch.expm1(1 / memory)))
        # Angles go through all distances between eighths of a turn and none, in an order unlike the memories'.
        self.angle = nn.Parameter(math.pi * (torch.arange(ROTATIONS) * 29 % ROTATIONS) / ROTATIONS)

    @property
    def log_decay(self) -> Tensor:
        """Logarithm of each rotation's decay a patch, always below 0: float32 [ROTATIONS]."""
        return -nn.functional.softplus(self.raw_decay)

    @property
    def longest_memory_bp(self) -> float:
        """Bases until the slowest rotation has faded to 1/e."""
        return float((-PATCH_BP / self.log_decay).max())

    def forward(self, tokens: Tensor, state: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Reads a chunk.

        Args:
            tokens: uint8 [n, length], a multiple of `PATCH_BP` unless it is the last chunk.
            state: float32 [n, STATE], None for the start of sequences.

        Returns:
            Embedding float32 [n, EMBEDDING] and next state float32 [n, STATE].
        """
        state = torch.zeros(len(tokens), STATE) if state is None else state
        missing = -tokens.shape[1] % PATCH_BP
        patches = nn.functional.pad(tokens, (0, missing), value=4).reshape(len(tokens), -1, PATCH_BP)
        one_hot = torch.eye(5)[:, :4][patches.int()].flatten(2)
        features = torch.relu(self.patch(one_hot))
        before, real, imaginary = torch.split(state, [PATCH_FEATURES, ROTATIONS, ROTATIONS], dim=1)
        row = torch.cat([before[:, None], features], dim=1)
        drive = self.drive(torch.relu(self.mix(torch.cat([row[:, :-1], features], dim=2))))
        num_patches = patches.shape[1]
        age = torch.arange(num_patches - 1, -1, -1, dtype=torch.float32)[:, None]
        fade, turn = torch.exp(age * self.log_decay), age * self.angle
        new_real, new_imaginary = (drive * fade * turn.cos()).sum(1), (drive * fade * turn.sin()).sum(1)
        old_fade, old_turn = torch.exp(num_patches * self.log_decay), num_patches * self.angle
        old_cos, old_sin = old_fade * old_turn.cos(), old_fade * old_turn.sin()
        next_real = real * old_cos - imaginary * old_sin + new_real
        next_imaginary = real * old_sin + imaginary * old_cos + new_imaginary
        next_state = torch.cat([row[:, -1], next_real, next_imaginary], dim=1)
        return self.embedding(torch.relu(self.hidden(next_state))), next_state


@torch.no_grad()
def embed_windows(module: Embedder, windows: npt.NDArray[np.uint8]) -> npt.NDArray[np.float32]:
    """Embeds whole sequences, uint8 [n, length]: float32 [n, EMBEDDING]."""
    parts = [
        module(torch.from_numpy(windows[at : at + _ROWS_AT_ONCE]))[0] for at in range(0, len(windows), _ROWS_AT_ONCE)
    ]
    embedding: npt.NDArray[np.float32] = torch.cat(parts).numpy() if parts else np.empty((0, EMBEDDING), np.float32)
    return embedding


@torch.no_grad()
def embedder_onnx(module: Embedder) -> bytes:
    """The ONNX file of a trained embedder: tokens, state -> embedding, next_state."""
    weights = {"letters": np.eye(5, 4, dtype=np.float32), "angle": module.angle.numpy()}
    weights["log_decay"] = module.log_decay.numpy()
    for name in ("patch", "mix", "drive", "hidden", "embedding"):
        layer = getattr(module, name)
        weights |= {f"{name}_weight": layer.weight.numpy().T, f"{name}_bias": layer.bias.numpy()}
    return build_model(_GRAPH, weights)
