"""Tiara: two networks that read weighted counts of k-mers, from torch files that hold tensors alone."""

from __future__ import annotations

import io
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from serving.server import ModelServer
from tasks.origins.classifying import CLASSES, FIRST, FIRST_K, SECOND, SECOND_K, Classified, Floats, classify
from tasks.origins.fragments import FRAGMENT_BP
from tasks.origins.sequences import SequenceBlock, read_blocks
from tasks.published.made import MadeModel
from tasks.published.publication import PublishedModelError
from tasks.published.torch_file import read_tensors
from tasks.published.wheel import Wheel
from tasks.training.graphs import build_model

_WEIGHTS = "tiara/models/nnet-models"
_IDF = "tiara/models/tfidf-models"
_TEST = "tiara/test/test_data"
# Hidden sizes are those of main.py; the other networks of the package are of shorter k-mers and no default.
_NETWORKS = {
    FIRST: ("first_nnet_kmer_6.pkl", "k6-first-stage", FIRST_K, (2048, 1024, 5)),
    SECOND: ("second_nnet_kmer_7.pkl", "k7-second-stage", SECOND_K, (128, 64, 3)),
}
_TEST_SETS = ("archaea", "bacteria", "eukarya", "mitochondria", "plast")
_GRAPH = """\
tiara (float[n, {num_kmers}] counts) => (float[n, {num_classes}] probability) {{
  weighted = Mul (counts, idf)
  length = ReduceL2 <keepdims = 1> (weighted, axes)
  positive = Max (length, tiny)
  unit = Div (weighted, positive)
  a = Gemm <transB = 1> (unit, weight_0, bias_0)
  b = Relu (a)
  c = Gemm <transB = 1> (b, weight_1, bias_1)
  d = Relu (c)
  e = Gemm <transB = 1> (d, weight_2, bias_2)
  probability = Softmax <axis = 1> (e)
}}
"""
_CONFIG = """\
name: "{name}"
backend: "onnxruntime"
max_batch_size: 512
input [ {{ name: "counts" data_type: TYPE_FP32 dims: [ {num_kmers} ] }} ]
output [ {{ name: "probability" data_type: TYPE_FP32 dims: [ {num_classes} ] }} ]
dynamic_batching {{ preferred_batch_size: [ 512 ] }}
"""
_DESCRIPTION = """\
Counts of the {k}-mers of a fragment of {fragment_bp:,} bases (float32 [{num_kmers}], A C G T in that order, each on the
strand it is read from) become the probabilities of {classes}. Weights of the k-mers (tf-idf) are part of the model. A
sequence's class is that of the mean over its fragments: `tasks/origins/classifying.py`.

Sequences under 3,000 bases are too short to tell: of reads of 101 bases its classes are noise."""


def read_models(wheel: Wheel) -> list[MadeModel]:
    """Makes the networks of both stages.

    Raises:
        PublishedModelError: An entry is missing, damaged, or of another shape.
    """
    models = []
    for name, (weights, idf, k, sizes) in _NETWORKS.items():
        num_kmers = 4**k
        tensors = read_tensors(wheel.read(f"{_WEIGHTS}/{weights}"), weights)
        arrays: dict[str, npt.NDArray[Any]] = {
            "idf": _read_idf(wheel.read(f"{_IDF}/{idf}/model.npy"), num_kmers),
            "tiny": np.array(1e-30, dtype=np.float32),
            "axes": np.array([1], dtype=np.int64),
        }
        num_inputs = num_kmers
        for place, (layer, num_outputs) in enumerate(zip(("0", "3", "6"), sizes, strict=True)):
            for what, shape in (("weight", (num_outputs, num_inputs)), ("bias", (num_outputs,))):
                found = tensors.get(f"{layer}.{what}")
                if found is None or found.shape != shape or found.dtype != np.float32:
                    raise PublishedModelError(f"{weights}: {layer}.{what} is no float32 {shape}", reason="BAD_PACKAGE")
                arrays[f"{what}_{place}"] = found
            num_inputs = num_outputs
        classes = (
            "organelle, bacteria, unknown, archaea, eukarya" if name == FIRST else "plastid, unknown, mitochondrion"
        )
        shape_of = {"num_kmers": num_kmers, "num_classes": sizes[-1]}
        models.append(
            MadeModel(
                name,
                _CONFIG.format(name=name, **shape_of),
                {"model.onnx": build_model(_GRAPH.format(**shape_of), arrays)},
                _DESCRIPTION.format(k=k, fragment_bp=FRAGMENT_BP, classes=classes, **shape_of),
                {},
            )
        )
    return models


def check_models(wheel: Wheel, server: ModelServer) -> str:
    """Classifies every sequence that the package ships for its own test; each must get the shipped class.

    Raises:
        PublishedModelError: One does not; the message names it.
    """

    def ask(model: str, counts: Floats) -> Floats:
        return server.infer(model, {"counts": counts})["probability"].astype(np.float32)

    num_checked = 0
    with tempfile.TemporaryDirectory(prefix="cohortflow-") as folder:
        for name in _TEST_SETS:
            path = Path(folder) / f"{name}.fasta"
            path.write_bytes(wheel.read(f"{_TEST}/{name}_fr.fasta"))
            expected = _shipped_classes(wheel.read(f"{_TEST}/{name}_out.txt"))
            num_told = 0
            for block in read_blocks(path):
                num_told += _compare(block, classify(block, ask), expected)
            if num_told != len(expected):
                raise PublishedModelError(
                    f"tiara: {name}: {num_told} sequences, the package says {len(expected)}", reason="CHECK_FAILED"
                )
            num_checked += num_told
    return (
        f"All {num_checked:,} sequences that the package ships for its own test get the class that it ships for them."
    )


def _compare(block: SequenceBlock, found: Classified, expected: dict[str, str]) -> int:
    for name, code in zip(block.names, found.code, strict=True):
        if expected.get(name) != CLASSES[code]:
            raise PublishedModelError(
                f"tiara: {name} is {CLASSES[code]}, the package says {expected.get(name)}; nothing was added",
                reason="CHECK_FAILED",
            )
    return len(block.names)


def _shipped_classes(text: bytes) -> dict[str, str]:
    """The package's table: name (up to its first blank) to class, the second stage's where there is one."""
    classes = {}
    for line in text.decode().splitlines()[1:]:
        description, first, second = line.split("\t")
        told = first if second == "n/a" else "organelle" if second == "unknown" else second
        classes[description.split()[0]] = told
    return classes


def _read_idf(content: bytes, num_kmers: int) -> npt.NDArray[np.float32]:
    try:
        idf = np.load(io.BytesIO(content), allow_pickle=False)
    except ValueError as error:
        raise PublishedModelError(f"tiara: weights of k-mers: {error}", reason="BAD_PACKAGE") from error
    if idf.shape != (num_kmers,) or idf.dtype != np.float32:
        raise PublishedModelError(f"tiara: weights of k-mers: no float32 ({num_kmers},)", reason="BAD_PACKAGE")
    return np.asarray(idf)
