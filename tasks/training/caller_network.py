"""The caller: a small network that tells how many copies of a candidate allele a sample carries.

A row's answer does not depend on its batch: only convolutions within a row and products with weights act on rows, and
the graph adds one empty row to every batch, because onnxruntime multiplies a lone row in another order.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from tasks.calling.evidence import NAMES
from tasks.calling.pileup import CHANNELS, WIDTH_BP
from tasks.training.graphs import build_model

EMBEDDING_CHANNELS = 8
_CLIP = 6.0
_IS_SNV = NAMES.index("is_snv")
_FIRST_LIKELIHOOD = NAMES.index("likelihood_reference")
_LIKELIHOOD_UNIT = 10.0 * math.log(10.0)
_LEAST_LIKELIHOOD = -6.0
"""The scores begin at the likelihoods of the reads (natural logarithms, down to this one) and the layers correct them:
where a few reads decide, small differences between the likelihoods are all there is."""
_NUM_CHANNELS = len(CHANNELS)
_LINEAR = ("pileup", "evidence", "embedding", "hidden", "deeper", "score")
_CONVOLUTIONS = ("first", "second", "third")


def _graph(embedding_size: int) -> str:
    return f"""
caller (float[N, {embedding_size}] embedding, uint8[N, {WIDTH_BP}, {_NUM_CHANNELS}] pileup,
        float[N, {len(NAMES)}] evidence) => (float[N, 3] genotype, float[N, 3] log_likelihood) {{
  zero = Constant <value = int64[1] {{0}}> ()
  one = Constant <value = int64[1] {{1}}> ()
  last = Constant <value = int64[1] {{-1}}> ()
  column_pads = Constant <value = int64[4] {{0, 0, 1, 0}}> ()
  full = Constant <value = float {{255.0}}> ()
  counted = Cast <to = 1> (pileup)
  shares = Div (counted, full)
  channels = Transpose <perm = [0, 2, 1]> (shares)
  first_sum = Conv <pads = [2, 2]> (channels, first_weight, first_bias)
  first = Relu (first_sum)
  second_sum = Conv <strides = [2]> (first, second_weight, second_bias)
  second = Relu (second_sum)
  third_sum = Conv <strides = [2]> (second, third_weight, third_bias)
  third = Relu (third_sum)
  seen = Flatten <axis = 1> (third)
  seen_rows = Pad (seen, column_pads)
  pileup_product = MatMul (seen_rows, pileup_weight)
  pileup_sum = Add (pileup_product, pileup_bias)
  pileup_part = Relu (pileup_sum)

  evidence_rows = Pad (evidence, column_pads)
  centred = Sub (evidence_rows, mean)
  scaled = Div (centred, scale)
  lowest = Constant <value = float {{-{_CLIP}}}> ()
  highest = Constant <value = float {{{_CLIP}}}> ()
  coarse = Clip (scaled, lowest, highest)
  likelihood_column = Constant <value = int64[1] {{{_FIRST_LIKELIHOOD}}}> ()
  likelihood_end = Constant <value = int64[1] {{{_FIRST_LIKELIHOOD + 3}}}> ()
  likelihoods = Slice (evidence_rows, likelihood_column, likelihood_end, one)
  likelihood_unit = Constant <value = float {{{_LIKELIHOOD_UNIT}}}> ()
  least_likelihood = Constant <value = float {{{_LEAST_LIKELIHOOD}}}> ()
  natural = Mul (likelihoods, likelihood_unit)
  read_score = Max (natural, least_likelihood)
  weighed = Concat <axis = 1> (coarse, read_score)
  evidence_product = MatMul (weighed, evidence_weight)
  evidence_sum = Add (evidence_product, evidence_bias)
  evidence_part = Relu (evidence_sum)

  embedding_rows = Pad (embedding, column_pads)
  embedding_product = MatMul (embedding_rows, embedding_weight)
  embedding_sum = Add (embedding_product, embedding_bias)
  embedding_part = Relu (embedding_sum)

  joined = Concat <axis = 1> (pileup_part, evidence_part, embedding_part)
  hidden_product = MatMul (joined, hidden_weight)
  hidden_sum = Add (hidden_product, hidden_bias)
  hidden = Relu (hidden_sum)
  deeper_product = MatMul (hidden, deeper_weight)
  deeper_sum = Add (deeper_product, deeper_bias)
  deeper = Relu (deeper_sum)
  score_product = MatMul (deeper, score_weight)
  correction = Add (score_product, score_bias)
  score = Add (read_score, correction)

  snv_column = Constant <value = int64[1] {{{_IS_SNV}}}> ()
  snv_end = Constant <value = int64[1] {{{_IS_SNV + 1}}}> ()
  is_snv = Slice (evidence_rows, snv_column, snv_end, one)
  unit = Constant <value = float {{1.0}}> ()
  is_indel = Sub (unit, is_snv)
  snv_kind = Mul (is_snv, snv_calibration)
  indel_kind = Mul (is_indel, indel_calibration)
  kind = Add (snv_kind, indel_kind)
  kind_parts = Constant <value = int64[3] {{1, 3, 3}}> ()
  temperature, shift, log_prior = Split <axis = 1> (kind, kind_parts)
  cooled = Div (score, temperature)
  shifted = Add (cooled, shift)
  all_genotype = Softmax <axis = 1> (shifted)
  genotype = Slice (all_genotype, zero, last, zero)
  without_prior = Sub (shifted, log_prior)
  all_log_likelihood = LogSoftmax <axis = 1> (without_prior)
  log_likelihood = Slice (all_log_likelihood, zero, last, zero)
}}
"""


class Caller(nn.Module):
    """Embedding, pileup and evidence of an allele to the probabilities of 0, 1 and 2 copies.

    Args:
        embedding_size: E, length of the embedder's vector.
        mean: float32 [columns], the training set's mean evidence.
        scale: float32 [columns], its standard deviation.
    """

    mean: Tensor
    scale: Tensor
    calibration: Tensor

    def __init__(self, embedding_size: int, mean: np.ndarray, scale: np.ndarray) -> None:
        super().__init__()
        self.register_buffer("mean", torch.from_numpy(mean))
        self.register_buffer("scale", torch.from_numpy(scale))
        # Per kind (SNV, insertion or deletion): temperature; what is added to the scores of 0, 1 and 2 copies; and the
        # logarithm of how common these were where both were set.
        self.register_buffer("calibration", torch.tensor([[1.0, *[0.0] * 3, *[-math.log(3)] * 3]] * 2))
        self.first = nn.Conv1d(len(CHANNELS), 24, 5, padding=2)
        self.second = nn.Conv1d(24, 24, 5, stride=2)
        self.third = nn.Conv1d(24, 16, 5, stride=2)
        width = ((WIDTH_BP - 5) // 2 + 1 - 5) // 2 + 1
        self.pileup = nn.Linear(16 * width, 32)
        self.evidence = nn.Linear(len(NAMES) + 3, 64)
        self.embedding = nn.Linear(embedding_size, EMBEDDING_CHANNELS)
        self.hidden = nn.Linear(32 + 64 + EMBEDDING_CHANNELS, 64)
        self.deeper = nn.Linear(64, 64)
        self.score = nn.Linear(64, 3)
        self.dropout = nn.Dropout(0.1)

    def scores(self, embedding: Tensor, pileup: Tensor, evidence: Tensor) -> Tensor:
        """Unnormalised log-probabilities, float32 [n, 3].

        Args:
            embedding: float32 [n, E].
            pileup: uint8 [n, WIDTH_BP, channels].
            evidence: float32 [n, columns].
        """
        seen = (pileup.to(torch.float32) / 255.0).transpose(1, 2)
        for layer in (self.first, self.second, self.third):
            seen = functional.relu(layer(seen))
        coarse = ((evidence - self.mean) / self.scale).clamp(-_CLIP, _CLIP)
        likelihoods = evidence[:, _FIRST_LIKELIHOOD : _FIRST_LIKELIHOOD + 3]
        read_score = (likelihoods * _LIKELIHOOD_UNIT).clamp(min=_LEAST_LIKELIHOOD)
        weighed = torch.cat((coarse, read_score), dim=1)
        joined = torch.cat(
            (
                self.dropout(functional.relu(self.pileup(seen.flatten(1)))),
                functional.relu(self.evidence(weighed)),
                self.dropout(functional.relu(self.embedding(embedding))),
            ),
            dim=1,
        )
        hidden = self.dropout(functional.relu(self.hidden(joined)))
        score: Tensor = read_score + self.score(functional.relu(self.deeper(hidden)))
        return score

    def forward(self, embedding: Tensor, pileup: Tensor, evidence: Tensor) -> tuple[Tensor, Tensor]:
        """Calibrated by kind of allele, for 0, 1 and 2 copies.

        Returns:
            Probabilities, float32 [n, 3], and natural logarithms of the likelihoods, float32 [n, 3]: the probabilities
            as they would be were all three equally common.
        """
        is_snv = evidence[:, NAMES.index("is_snv")].unsqueeze(1)
        kind = is_snv * self.calibration[0] + (1.0 - is_snv) * self.calibration[1]
        shifted = self.scores(embedding, pileup, evidence) / kind[:, :1] + kind[:, 1:4]
        return torch.softmax(shifted, dim=1), torch.log_softmax(shifted - kind[:, 4:], dim=1)


@torch.no_grad()
def caller_onnx(model: Caller) -> bytes:
    """The ONNX file of a trained caller: embedding, pileup, evidence -> genotype, log_likelihood."""
    rows = model.calibration.numpy()
    weights = {
        "mean": model.mean.numpy(),
        "scale": model.scale.numpy(),
        "snv_calibration": rows[0],
        "indel_calibration": rows[1],
    }
    for name in _CONVOLUTIONS:
        layer = getattr(model, name)
        weights |= {f"{name}_weight": layer.weight.numpy(), f"{name}_bias": layer.bias.numpy()}
    for name in _LINEAR:
        layer = getattr(model, name)
        weights |= {f"{name}_weight": layer.weight.numpy().T, f"{name}_bias": layer.bias.numpy()}
    return build_model(_graph(model.embedding.in_features), weights)
