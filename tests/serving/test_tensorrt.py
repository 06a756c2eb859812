"""The tensorrt backend up to the GPU: what it reads of an engine, and what it says where one cannot run."""

from __future__ import annotations

import sys

import numpy as np
import pytest
import torch

from serving.errors import ModelLoadError
from serving.server import ModelServer
from serving.tensors import BF16

# As much of the package as describes an engine; on a machine with a GPU the real one runs it.
FAKE = """
import enum
import numpy
__version__ = "10.0"
class DataType(enum.Enum):
    FLOAT = 0
    BF16 = 1
class TensorIOMode(enum.Enum):
    INPUT = 0
    OUTPUT = 1
def nptype(kind):
    return numpy.float32
"""


@pytest.fixture
def backend(tmp_path, monkeypatch):
    """The backend's module, imported beside the described package."""
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "tensorrt.py").write_text(FAKE)
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    for name in ("tensorrt", "serving.backends.tensorrt"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    import serving.backends.tensorrt as module

    yield module
    for name in ("tensorrt", "serving.backends.tensorrt"):
        sys.modules.pop(name, None)


class Engine:
    """Describes itself as `tensorrt.ICudaEngine` does."""

    num_optimization_profiles = 1

    def __init__(self, trt, tensors, shape_tensor=""):
        self.trt, self.tensors, self.shape_tensor = trt, tensors, shape_tensor
        self.num_io_tensors = len(tensors)

    def get_tensor_name(self, i):
        return list(self.tensors)[i]

    def is_shape_inference_io(self, name):
        return name == self.shape_tensor

    def get_tensor_dtype(self, name):
        return self.trt.DataType.BF16 if name == "rough" else self.trt.DataType.FLOAT

    def get_tensor_mode(self, name):
        return self.trt.TensorIOMode.INPUT if name == "x" else self.trt.TensorIOMode.OUTPUT

    def get_tensor_shape(self, name):
        return self.tensors[name]


def test_the_tensors_of_an_engine(backend):
    engine = Engine(backend.tensorrt, {"x": (-1, 4), "y": (-1, 3), "rough": (-1, 2)})
    signature = backend.engine_signature("m", engine)
    assert [str(spec) for spec in signature.inputs] == ["x float32[-1, 4]"]
    assert [(spec.name, spec.dtype, spec.dims) for spec in signature.outputs] == [
        ("y", np.dtype(np.float32), (-1, 3)),
        ("rough", BF16, (-1, 2)),
    ]
    engine.num_optimization_profiles = 2
    with pytest.raises(ModelLoadError, match="the engine has 2 optimization profiles"):
        backend.engine_signature("m", engine)
    with pytest.raises(ModelLoadError, match="'x' is a shape tensor"):
        backend.engine_signature("m", Engine(backend.tensorrt, {"x": (2,)}, shape_tensor="x"))


@pytest.mark.skipif(torch.cuda.is_available(), reason="has a GPU")
def test_without_a_gpu_it_says_what_it_needs(tmp_path, backend):
    folder = tmp_path / "repository" / "m" / "1"
    folder.mkdir(parents=True)
    (folder / "model.plan").write_bytes(b"engine")
    with pytest.raises(ModelLoadError, match=r"model 'm': a TensorRT engine needs a GPU .* sees 0 GPUs"):
        ModelServer(tmp_path / "repository").start()
