"""SemiBin: networks that turn a contig's 4-mers into 100 numbers, one for each environment, from torch files."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import numpy.typing as npt

from serving.server import ModelServer
from tasks.origins.fragments import count_kmers
from tasks.published.made import MadeModel
from tasks.published.planted import drawn
from tasks.published.publication import PublishedModelError
from tasks.published.torch_file import read_tensors
from tasks.published.wheel import Wheel
from tasks.training.graphs import build_model

K = 4
TOLERANCE = 1e-6
_NUM_FEATURES, _NUM_HIDDEN, _NUM_OUTPUTS = 136, 512, 100
_FOLDER, _SUFFIX = "SemiBin/models", "_model.pt"
_STATE = "model_state_dict"
_BATCH_NORM = ("weight", "bias", "running_mean", "running_var")
# Of SemiBin 2.6.0 itself (torch 2.13.0 on a CPU): the first numbers of the embedding of 5,000 bases, those of
# SHAKE-256("semibin"), two bits a byte: generate_kmer_features_from_fasta, then Semi_encoding_single.embedding.
_PUBLISHED = {
    "built_environment": (-0.0444288, 0.0234037, -0.0341715, 0.0475445),
    "cat_gut": (-0.0143990, -0.0296709, 0.0086265, 0.0026024),
    "chicken_caecum": (0.0861540, 0.0645224, -0.0647466, -0.0151023),
    "dog_gut": (-0.0224306, -0.0353225, -0.0480330, -0.0578865),
    "global": (0.0132440, 0.0757234, 0.0056055, 0.1894666),
    "human_gut": (-0.0124307, 0.0027982, -0.0116724, -0.0038308),
    "human_oral": (0.0498260, -0.0147073, -0.1010150, -0.2767335),
    "mouse_gut": (0.0010650, 0.0257005, 0.0539858, 0.0425942),
    "ocean": (0.0612555, 0.0430511, -0.0032096, -0.1232406),
    "pig_gut": (0.0310250, -0.0476971, 0.0434697, -0.0333689),
    "soil": (0.0090565, 0.0751114, 0.0087910, 0.2333104),
    "wastewater": (-0.0182714, -0.0191467, 0.0236153, -0.0245386),
}
# In double precision: the published network's answers in single precision differ among themselves by 2e-6, by the size
# of the batch. Features are rounded to single precision first, as the publication does.
_GRAPH = """\
semibin (float[n, 256] counts) => (float[n, 100] embedding) {{
  exact = Cast <to = 11> (counts)
  folded = MatMul (exact, fold)
  padded = Add (folded, pseudocount)
  total = ReduceSum <keepdims = 1> (padded, axes)
  share = Div (padded, total)
  rounded = Cast <to = 1> (share)
  features = Cast <to = 11> (rounded)
  {casts}
  a = Gemm <transB = 1> (features, double_weight_0, double_bias_0)
  b = BatchNormalization (a, double_weight_1, double_bias_1, double_running_mean_1, double_running_var_1)
  below_b = Mul (b, slope)
  c = Max (b, below_b)
  d = Gemm <transB = 1> (c, double_weight_4, double_bias_4)
  e = BatchNormalization (d, double_weight_5, double_bias_5, double_running_mean_5, double_running_var_5)
  below_e = Mul (e, slope)
  f = Max (e, below_e)
  g = Gemm <transB = 1> (f, double_weight_8, double_bias_8)
  embedding = Cast <to = 1> (g)
}}
"""
_CONFIG = """\
name: "{name}"
backend: "onnxruntime"
max_batch_size: 1024
input [ {{ name: "counts" data_type: TYPE_FP32 dims: [ 256 ] }} ]
output [ {{ name: "embedding" data_type: TYPE_FP32 dims: [ 100 ] }} ]
dynamic_batching {{ preferred_batch_size: [ 1024 ] }}
"""
_DESCRIPTION = """\
Counts of the 4-mers of a contig (float32 [256], A C G T in that order, each on the strand it is read from) become 100
numbers, by the network that was trained on metagenomes of the environment `{environment}`. Contigs of one genome lie
near each other by Euclidean distance. Folding onto 136 canonical 4-mers, pseudocount and division are part of it.

It is SemiBin's part without coverage: it embeds composition alone, and bins nothing by itself."""


def read_models(wheel: Wheel) -> list[MadeModel]:
    """Makes the encoder of every environment; decoders, which only training needs, are left out.

    Raises:
        PublishedModelError: An entry is missing, damaged, or of another shape.
    """
    models = []
    for entry in wheel.names(_FOLDER, _SUFFIX):
        environment = entry.removeprefix(f"{_FOLDER}/").removesuffix(_SUFFIX)
        name = _model_name(environment)
        arrays = _encoder(read_tensors(wheel.read(entry), entry, _STATE), entry)
        casts = "\n  ".join(f"double_{each} = Cast <to = 11> ({each})" for each in arrays)
        arrays |= {"fold": fold_matrix(), "axes": np.array([1], dtype=np.int64)}
        arrays |= {"pseudocount": np.array(1e-5), "slope": np.array(0.01)}
        models.append(
            MadeModel(
                name,
                _CONFIG.format(name=name),
                {"model.onnx": build_model(_GRAPH.format(casts=casts), arrays)},
                _DESCRIPTION.format(environment=environment),
                {},
            )
        )
    if len(models) != len(_PUBLISHED):
        raise PublishedModelError(
            f"{wheel.path}: has {len(models)} models, not {len(_PUBLISHED)}", reason="BAD_PACKAGE"
        )
    return models


def check_models(wheel: Wheel, server: ModelServer) -> str:
    """Compares embeddings of one sequence with those of SemiBin itself.

    Raises:
        PublishedModelError: One differs by more than 1e-6.
    """
    tokens = drawn(b"semibin", 5000)
    counts = count_kmers(tokens, np.array([0]), np.array([len(tokens)]), K)
    for environment, expected in _PUBLISHED.items():
        found = server.infer(_model_name(environment), {"counts": counts})["embedding"][0]
        difference = float(np.abs(found[: len(expected)] - np.array(expected)).max())
        if not difference <= TOLERANCE:
            raise PublishedModelError(
                f"semibin: the embedding for {environment} differs from the published network's by {difference:.2g}",
                reason="CHECK_FAILED",
            )
    return (
        f"The embedding of a sequence of 5,000 bases by each of the {len(_PUBLISHED)} networks is within "
        f"{TOLERANCE:g} of what SemiBin 2.6.0 computes for it."
    )


def fold_matrix() -> npt.NDArray[np.float64]:
    """Folds stranded 4-mers (A C G T) onto canonical ones, float64 [256, 136].

    Source: SemiBin 2.6.0, generate_kmer.generate_feature_mapping: features are numbered as they are met in the order
    A T G C.
    """
    matrix = np.zeros((4**K, _NUM_FEATURES))
    feature_of: dict[str, int] = {}
    for letters in product("ATGC", repeat=K):
        kmer = "".join(letters)
        complement = kmer[::-1].translate(str.maketrans("ACGT", "TGCA"))
        feature = feature_of.setdefault(kmer, feature_of.get(complement, len(set(feature_of.values()))))
        code = 0
        for letter in kmer:
            code = 4 * code + "ACGT".index(letter)
        matrix[code, feature] = 1.0
    return matrix


def _model_name(environment: str) -> str:
    return f"semibin-{environment.replace('_', '-')}"


def _encoder(tensors: dict[str, npt.NDArray[Any]], entry: str) -> dict[str, npt.NDArray[Any]]:
    shapes: dict[str, tuple[int, ...]] = {}
    for layer, num_inputs, num_outputs in (
        ("0", _NUM_FEATURES, _NUM_HIDDEN),
        ("4", _NUM_HIDDEN, _NUM_HIDDEN),
        ("8", _NUM_HIDDEN, _NUM_OUTPUTS),
    ):
        shapes |= {f"{layer}.weight": (num_outputs, num_inputs), f"{layer}.bias": (num_outputs,)}
    shapes |= {f"{layer}.{what}": (_NUM_HIDDEN,) for layer in ("1", "5") for what in _BATCH_NORM}
    arrays = {}
    for name, shape in shapes.items():
        found = tensors.get(f"encoder1.{name}")
        if found is None or found.shape != shape or found.dtype != np.float32:
            raise PublishedModelError(f"{entry}: encoder1.{name} is no float32 {shape}", reason="BAD_PACKAGE")
        layer, what = name.split(".")
        arrays[f"{what}_{layer}"] = found
    return arrays
