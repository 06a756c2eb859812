"""Models that are wrong: each is refused with a message that names the thing, and the process serves on."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest
import safetensors.torch

from serving.errors import ExecutionError, ModelLoadError
from serving.server import ModelServer
from tests.serving.models import affine, affine_answer, logarithm, write_model
from tests.serving.modules import seeded
from tests.serving.python_models import CONFIG, TWICE, write_python

X = np.ones((3, 4), np.float32)
TORCH = """
backend: "torch" max_batch_size: 4
input { name: "x" data_type: TYPE_FP32 dims: [ DIMS ] }
output { name: "embedding" data_type: TYPE_FP32 dims: [ 3 ] }
output { name: "mean" data_type: TYPE_FP32 dims: [ 1 ] }
parameters { key: "module" value { string_value: "tests.serving.modules:Embedder" } }
"""
OPENVINO = 'optimization { execution_accelerators { cpu_execution_accelerator { name: "openvino" } } }'
TENSORRT = 'optimization { execution_accelerators { gpu_execution_accelerator { name: "tensorrt" } } }'


@pytest.fixture
def serves_on(tmp_path):
    """After the test, a good model is served in the same process."""
    yield
    write_model(tmp_path / "good", "affine", affine(), "max_batch_size: 4")
    with ModelServer(tmp_path / "good") as server:
        np.testing.assert_allclose(server.infer("affine", {"x": X})["y"], affine_answer(X))


@pytest.mark.usefixtures("serves_on")
@pytest.mark.parametrize(
    ("config", "words"),
    [
        ('backend: "onnxruntime"', r"model\.onnx is missing"),
        ('backend: "torch"', r"has no model\.pt2 or model\.safetensors"),
        ('backend: "python"', r"model\.py is missing"),
        ('backend: "tensorrt"', "tensorrt"),
        ('backend: "tensorflow"', r"(saved_model\.pb is missing|tensorflow)"),
        ("", "no backend in its config.pbtxt, and none of its files"),
    ],
)
def test_a_missing_file_is_named(tmp_path, config, words):
    write_model(tmp_path / "bad", "m", None, config)
    with pytest.raises(ModelLoadError, match=f"model 'm': .*{words}"):
        ModelServer(tmp_path / "bad").start()


@pytest.mark.usefixtures("serves_on")
@pytest.mark.parametrize(
    ("config", "words"),
    [
        (
            'max_batch_size: 4 input { name: "x" data_type: TYPE_FP32 dims: [ 5 ] }',
            r"input 'x' is TYPE_FP32 \[5\], but the model file has TYPE_FP32 \[4\]",
        ),
        (
            'max_batch_size: 4 output { name: "y" data_type: TYPE_FP16 dims: [ 3 ] }',
            r"output 'y' is TYPE_FP16 \[3\], but the model file has TYPE_FP32 \[3\]",
        ),
        (f"max_batch_size: 4 {OPENVINO}", "OpenVINOExecutionProvider.*install the package onnxruntime-openvino"),
        (
            f"max_batch_size: 4 instance_group {{ kind: KIND_GPU }} {TENSORRT}",
            "TensorrtExecutionProvider.*install the packages onnxruntime-gpu .* and tensorrt",
        ),
        (
            'max_batch_size: 4 parameters { key: "precision" value { string_value: "bf16" } }',
            "'precision' is 'bf16', which onnxruntime has with the execution accelerators tensorrt and openvino only",
        ),
        (
            'max_batch_size: 4 parameters { key: "allow_tf32" value { string_value: "perhaps" } } '
            "instance_group { kind: KIND_GPU }",
            "'allow_tf32' is 'perhaps', not true or false",
        ),
    ],
)
def test_a_configuration_that_does_not_fit_is_named(tmp_path, config, words):
    missing = {"OpenVINO": OPENVINO, "Tensorrt": TENSORRT}
    for name, part in missing.items():
        if part in config and f"{name}ExecutionProvider" in onnxruntime.get_available_providers():
            pytest.skip(f"has {name}")
    write_model(tmp_path / "bad", "m", affine(), config)
    with pytest.raises(ModelLoadError, match=f"model 'm': .*{words}"):
        ModelServer(tmp_path / "bad").start()


@pytest.mark.usefixtures("serves_on")
def test_a_module_that_does_not_fit_its_configuration_fails_its_requests(tmp_path):
    folder = write_model(tmp_path / "bad", "m", None, TORCH.replace("DIMS", "5"))
    (folder / "model.safetensors").write_bytes(safetensors.torch.save(seeded().state_dict()))
    with ModelServer(tmp_path / "bad") as server, pytest.raises(ExecutionError, match=r"model 'm' .*shapes"):
        server.infer("m", {"x": np.ones((1, 5), np.float32)})


@pytest.mark.usefixtures("serves_on")
def test_a_crash_in_initialize_leaves_nothing_behind(tmp_path):
    write_model(tmp_path / "bad", "a", affine(), "max_batch_size: 4")
    write_python(tmp_path / "bad", TWICE + "    def initialize(self, args):\n        1 / 0", CONFIG)
    server = ModelServer(tmp_path / "bad")
    with pytest.raises(ModelLoadError, match=r"model 'm': initialize failed: ZeroDivisionError.*model.py, line \d+"):
        server.start()
    assert not server.ready()
    assert not server.ready("a")


@pytest.mark.usefixtures("serves_on")
def test_answers_of_another_length_and_nan_fail_their_requests_alone(tmp_path):
    code = """
class TritonPythonModel:
    def execute(self, requests):
        responses = []
        for request in requests:
            x = request.inputs()[0].as_numpy()
            responses.append(pb_utils.InferenceResponse([pb_utils.Tensor("y", x[:-1] if x[0, 0] < 0 else x)]))
        return responses
"""
    write_python(tmp_path / "bad", code)
    write_model(tmp_path / "bad", "log", logarithm(), "max_batch_size: 8 dynamic_batching { }")
    with ModelServer(tmp_path / "bad") as server:
        for model, words in (("m", r"output 'y' has the shape \[1, 1\] for a batch of 2 rows"), ("log", "NaN")):
            values = (1, -1, 2)
            answers = [server.submit(model, {"x": np.full((2, 1), value, np.float32)}) for value in values]
            with pytest.raises(ExecutionError, match=words):
                answers[1].result()
            for answer in (answers[0], answers[2]):
                assert answer.result()["y"].shape == (2, 1)
