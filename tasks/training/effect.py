"""The effect model: the embeddings of a window without and with an allele become one number from 0 to 1."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from tasks.training.embedder import EMBEDDING
from tasks.training.graphs import build_model

_HIDDEN, _NARROW = 96, 32

_GRAPH = f"""
effect (float[N, {EMBEDDING}] reference_embedding, float[N, {EMBEDDING}] alternate_embedding)
    => (float[N, 1] effect) {{
  change = Sub (alternate_embedding, reference_embedding)
  both = Concat <axis = 1> (reference_embedding, change)
  wide_product = MatMul (both, wide_weight)
  wide_sum = Add (wide_product, wide_bias)
  wide = Relu (wide_sum)
  narrow_product = MatMul (wide, narrow_weight)
  narrow_sum = Add (narrow_product, narrow_bias)
  narrow = Relu (narrow_sum)
  logit_product = MatMul (narrow, logit_weight)
  logit = Add (logit_product, logit_bias)
  effect = Sigmoid (logit)
}}
"""


class Effect(nn.Module):
    """The effect model in torch."""

    def __init__(self) -> None:
        super().__init__()
        self.wide = nn.Linear(2 * EMBEDDING, _HIDDEN)
        self.narrow = nn.Linear(_HIDDEN, _NARROW)
        self.logit = nn.Linear(_NARROW, 1)

    def forward(self, reference: Tensor, alternate: Tensor) -> Tensor:
        """Logits, float32 [n], from embeddings, both float32 [n, EMBEDDING]."""
        both = torch.cat([reference, alternate - reference], dim=1)
        logit: Tensor = self.logit(torch.relu(self.narrow(torch.relu(self.wide(both)))))
        return logit[:, 0]


@torch.no_grad()
def effect_onnx(module: Effect) -> bytes:
    """The ONNX file of a trained effect model."""
    weights: dict[str, npt.NDArray[np.float32]] = {}
    for name in ("wide", "narrow", "logit"):
        layer = getattr(module, name)
        weights |= {f"{name}_weight": layer.weight.numpy().T, f"{name}_bias": layer.bias.numpy()}
    return build_model(_GRAPH, weights)
