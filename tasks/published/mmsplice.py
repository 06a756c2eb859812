"""MMSplice: five small networks of the regions around an exon, and what their answers for two alleles come to."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from serving.server import ModelServer
from tasks.published.convolutions import Array
from tasks.published.keras_file import KerasLayer, read_layers, scale_and_shift
from tasks.published.made import MadeModel
from tasks.published.pickled_numbers import Inert, read_pickle
from tasks.published.publication import PublishedModelError
from tasks.published.wheel import Wheel
from tasks.training.graphs import build_model

REGIONS = ("acceptor_intron", "acceptor", "exon", "donor", "donor_intron")
"""In the order in which the published tool has them."""
TOLERANCE = 1e-5
_FILES = dict(zip(REGIONS, ("Intron3", "Acceptor", "Exon", "Donor", "Intron5"), strict=True))
_MAX_LOGIT = math.log((1 - 1e-5) / 1e-5)
_LENGTHS = {"acceptor": 53, "donor": 18}
_HEAD = """\
  index = Cast <to = 6> (sequence)
  onehot = Gather <axis = 0> (letters, index)
"""
# The logit of a sigmoid is its argument; probabilities are clipped to [1e-5, 1 - 1e-5], so their logits are. The
# published tool goes by way of the probability in single precision, which loses up to 1e-4 of a logit of 8.
# Source: mmsplice 2.4.0, utils.logit.
_LOGIT = """\
  score = Clip (dense, low, high)
"""
_POOLED = """\
  planes = Transpose <perm = [0, 2, 1]> (onehot)
  conv = Conv <pads = [{reach}, {reach}]> (planes, kernel, bias)
"""
_BODIES = {
    "acceptor_intron": _POOLED
    + """\
  active = Relu (conv)
  pooled = ReduceMean <keepdims = 0> (active, axis_2)
  score = Gemm (pooled, weight, shift)
""",
    "exon": _POOLED
    + """\
  scaled_0 = Mul (conv, scale)
  scaled = Add (scaled_0, offset)
  active = Relu (scaled)
  is_base = ReduceMax <keepdims = 1> (planes, axis_1)
  masked = Mul (active, is_base)
  total = ReduceSum <keepdims = 0> (masked, axis_2)
  count = ReduceSum <keepdims = 0> (is_base, axis_2)
  positive = Max (count, epsilon)
  pooled = Div (total, positive)
  score = Gemm (pooled, weight, shift)
""",
    "acceptor": _POOLED
    + """\
  active_0 = Relu (conv)
  scaled_0 = Mul (active_0, scale_0)
  scaled_1 = Add (scaled_0, offset_0)
  conv_1 = Conv (scaled_1, kernel_1, bias_1)
  active_1 = Relu (conv_1)
  scaled_2 = Mul (active_1, scale_1)
  scaled_3 = Add (scaled_2, offset_1)
  back = Transpose <perm = [0, 2, 1]> (scaled_3)
  flat = Flatten <axis = 1> (back)
  dense = Gemm (flat, weight, shift)
"""
    + _LOGIT,
    "donor": """\
  flat = Flatten <axis = 1> (onehot)
  dense_0 = Gemm (flat, weight_0, shift_0)
  scaled_0 = Mul (dense_0, scale_0)
  scaled_1 = Add (scaled_0, offset_0)
  active_0 = Relu (scaled_1)
  dense_1 = Gemm (active_0, weight_1, shift_1)
  scaled_2 = Mul (dense_1, scale_1)
  scaled_3 = Add (scaled_2, offset_1)
  active_1 = Relu (scaled_3)
  dense = Gemm (active_1, weight, shift)
"""
    + _LOGIT,
}
_BODIES["donor_intron"] = _BODIES["acceptor_intron"]
# Source: mmsplice 2.4.0, utils.transform, predict_deltaLogitPsi, predict_pathogenicity.
_EFFECT = """\
effect ({inputs}) => (float[n, 1] delta_logit_psi, float[n, 1] pathogenicity) {{
  reference_32 = Concat <axis = 1> ({references})
  alternate_32 = Concat <axis = 1> ({alternates})
  reference = Cast <to = 11> (reference_32)
  alternate = Cast <to = 11> (alternate_32)
  single = Sub (alternate_32, reference_32)
  delta = Cast <to = 11> (single)
  size = Abs (delta)
  changed = Greater (size, close)
  changes = Cast <to = 11> (changed)
  left = Gather <axis = 1> (changes, left_regions)
  right = Gather <axis = 1> (changes, right_regions)
  pairs = Mul (left, right)
  spread = MatMul (pairs, of_pairs)
  overlaps = Min (spread, one)
  amounts = Gather <axis = 1> (delta, overlap_regions)
  interactions = Mul (amounts, overlaps)
  features = Concat <axis = 1> (delta, interactions)
  delta_64 = Gemm (features, linear_weight, linear_shift)
  delta_logit_psi = Cast <to = 1> (delta_64)
  all = Concat <axis = 1> (reference, alternate, overlaps)
  centred = Sub (all, mean)
  scaled = Div (centred, scale)
  logit = Gemm (scaled, logistic_weight, logistic_shift)
  chance = Sigmoid (logit)
  pathogenicity = Cast <to = 1> (chance)
}}
"""
_REGION_CONFIG = """\
name: "{name}"
backend: "onnxruntime"
max_batch_size: 256
input [ {{ name: "sequence" data_type: TYPE_UINT8 dims: [ {length} ] }} ]
output [ {{ name: "score" data_type: TYPE_FP32 dims: [ 1 ] }} ]
dynamic_batching {{ }}
"""
_REGION_DESCRIPTION = """\
The {region} of an exon, one uint8 token a base (A0 C1 G2 T3, 4 for anything else){length}, becomes one score. Scores of
sites are logits of probabilities."""
_EFFECT_DESCRIPTION = """\
The scores of the five regions for the reference and for an allele become the change of the logit of exon inclusion, and
the probability that the allele is pathogenic. Scores of neighbouring regions that both change have further terms."""
_ENSEMBLE_DESCRIPTION = """\
The five regions of an exon, for the reference and for an allele, each through its own model, then `mmsplice-effect`:
`delta_logit_psi` and `pathogenicity`."""


def read_models(wheel: Wheel) -> list[MadeModel]:
    """Makes a model for each region, one that compares two alleles, and the ensemble of them.

    Raises:
        PublishedModelError: An entry is missing, damaged, or of another shape.
    """
    return [*(_region_model(wheel, region) for region in REGIONS), _effect_model(wheel), _ensemble()]


def check_models(wheel: Wheel, server: ModelServer) -> str:
    """Compares the ensemble's answers for one exon and two alleles with those of the published tool.

    Raises:
        PublishedModelError: One differs by more than 1e-5.
    """
    from tasks.published.mmsplice_check import check_exon

    return check_exon(server, TOLERANCE)


def _model_name(region: str) -> str:
    return f"mmsplice-{region.replace('_', '-')}"


def _region_model(wheel: Wheel, region: str) -> MadeModel:
    entry = f"mmsplice/models/{_FILES[region]}.h5"
    layers = [layer for layer in read_layers(wheel.read(entry), entry) if layer.weights]
    length = _LENGTHS.get(region, -1)
    try:
        arrays, reach = _region_arrays(region, layers)
    except (KeyError, IndexError, ValueError) as error:
        raise PublishedModelError(
            f"{entry}: not the network of the publication: {error!r}", reason="BAD_PACKAGE"
        ) from error
    places = length if length > 0 else "l"
    graph = f"{region} (uint8[n, {places}] sequence) => (float[n, 1] score) {{\n{_HEAD}"
    graph += _BODIES[region].replace("{reach}", str(reach)) + "}\n"
    name = _model_name(region)
    return MadeModel(
        name,
        _REGION_CONFIG.format(name=name, length=length),
        {"model.onnx": build_model(graph, arrays)},
        _REGION_DESCRIPTION.format(
            region=region.replace("_", " "), length=f", {length} of them" if length > 0 else " and as many as there are"
        ),
        {},
    )


def _region_arrays(region: str, layers: list[KerasLayer]) -> tuple[dict[str, Array], int]:
    """The arrays that a region's graph names, and how far its first convolution reaches to either side."""
    letters = np.concatenate([np.eye(4, dtype=np.float32), np.zeros((1, 4), np.float32)])
    arrays: dict[str, Any] = {"letters": letters, "weight": layers[-1].weights["kernel"]}
    arrays["shift"] = layers[-1].weights["bias"]
    if region == "donor":
        for place in (0, 1):
            arrays |= {f"weight_{place}": layers[2 * place].weights["kernel"]}
            arrays |= {f"shift_{place}": layers[2 * place].weights["bias"]}
            arrays |= _scaling(layers[2 * place + 1], f"_{place}", is_planes=False)
    else:
        kernel = layers[0].weights["kernel"]
        arrays |= {"kernel": kernel.transpose(2, 1, 0), "bias": layers[0].weights["bias"]}
    if region == "acceptor":
        arrays |= _scaling(layers[1], "_0", is_planes=True) | _scaling(layers[3], "_1", is_planes=True)
        arrays |= {"kernel_1": layers[2].weights["kernel"].transpose(2, 1, 0), "bias_1": layers[2].weights["bias"]}
    if region == "exon":
        arrays |= _scaling(layers[1], "", is_planes=True)
        arrays |= {"axis_1": np.array([1]), "epsilon": np.float32(1e-7)}
    if region in _LENGTHS:
        arrays |= {"low": np.float32(-_MAX_LOGIT), "high": np.float32(_MAX_LOGIT)}
    else:
        arrays["axis_2"] = np.array([2])
    return arrays, 0 if region == "donor" else len(layers[0].weights["kernel"]) // 2


def _scaling(layer: KerasLayer, suffix: str, *, is_planes: bool) -> dict[str, Array]:
    scale, shift = (array.astype(np.float32) for array in scale_and_shift(layer))
    shape = (-1, 1) if is_planes else (-1,)
    return {f"scale{suffix}": scale.reshape(shape), f"offset{suffix}": shift.reshape(shape)}


def _effect_model(wheel: Wheel) -> MadeModel:
    linear = _state(wheel, "linear_model.pkl")
    steps = dict(_state(wheel, "Pathogenicity.pkl")["steps"])
    scaler, logistic = steps["preproc"].state, steps["model"].state
    # Pairs: acceptor and exon, exon and donor, donor and its intron, acceptor and its intron.
    arrays: dict[str, Any] = {
        "close": np.float64(1e-8),  # numpy.isclose
        "one": np.float64(1),
        "left_regions": np.array([1, 2, 3, 0]),
        "right_regions": np.array([2, 3, 4, 1]),
        "of_pairs": np.array([[1, 0, 0], [1, 0, 0], [0, 1, 0], [0, 0, 1]], dtype=np.float64),
        "overlap_regions": np.array([2, 4, 0]),
        "linear_weight": linear["coef_"].reshape(8, 1),
        "linear_shift": np.array([linear["intercept_"]]),
        "mean": scaler["mean_"].reshape(13),
        "scale": scaler["scale_"].reshape(13),
        "logistic_weight": logistic["coef_"].reshape(13, 1),
        "logistic_shift": logistic["intercept_"].reshape(1),
    }
    sides = {side: [f"{side}_{region}" for region in REGIONS] for side in ("reference", "alternate")}
    names = [name for side in sides.values() for name in side]
    graph = _EFFECT.format(
        inputs=", ".join(f"float[n, 1] {name}" for name in names),
        references=", ".join(sides["reference"]),
        alternates=", ".join(sides["alternate"]),
    )
    inputs = ",\n  ".join(f'{{ name: "{name}" data_type: TYPE_FP32 dims: [ 1 ] }}' for name in names)
    config = f'name: "mmsplice-effect"\nbackend: "onnxruntime"\nmax_batch_size: 256\ninput [\n  {inputs}\n]\n'
    config += f"output [\n{_outputs()}]\ndynamic_batching {{ }}\n"
    return MadeModel("mmsplice-effect", config, {"model.onnx": build_model(graph, arrays)}, _EFFECT_DESCRIPTION, {})


def _state(wheel: Wheel, name: str) -> dict[str, Any]:
    found = read_pickle(wheel.read(f"mmsplice/models/{name}"), name)
    if not isinstance(found, Inert):
        raise PublishedModelError(f"{name}: holds no model", reason="BAD_PACKAGE")
    return found.state


def _outputs() -> str:
    names = ("delta_logit_psi", "pathogenicity")
    return ",\n".join(f'  {{ name: "{name}" data_type: TYPE_FP32 dims: [ 1 ] }}' for name in names) + "\n"


def _ensemble() -> MadeModel:
    names = [f"{side}_{region}" for side in ("reference", "alternate") for region in REGIONS]
    lengths = {name: _LENGTHS.get(name.partition("_")[2], -1) for name in names}
    inputs = ",\n".join(f'  {{ name: "{name}" data_type: TYPE_UINT8 dims: [ {lengths[name]} ] }}' for name in names)
    steps = [
        f'  {{ model_name: "{_model_name(name.partition("_")[2])}" model_version: -1\n'
        f'    input_map {{ key: "sequence" value: "{name}" }}\n'
        f'    output_map {{ key: "score" value: "{name}_score" }} }}'
        for name in names
    ]
    last = "".join(f'    input_map {{ key: "{name}" value: "{name}_score" }}\n' for name in names)
    last += "".join(
        f'    output_map {{ key: "{name}" value: "{name}" }}\n' for name in ("delta_logit_psi", "pathogenicity")
    )
    steps.append(f'  {{ model_name: "mmsplice-effect" model_version: -1\n{last}  }}')
    config = (
        f'name: "mmsplice"\nplatform: "ensemble"\nmax_batch_size: 256\ninput [\n{inputs}\n]\noutput [\n{_outputs()}]\n'
    )
    config += "ensemble_scheduling { step [\n" + ",\n".join(steps) + "\n] }\n"
    return MadeModel("mmsplice", config, {}, _ENSEMBLE_DESCRIPTION, {})
