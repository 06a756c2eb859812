"""The python backend: what a TritonPythonModel is given, what it may answer, and how it fails."""

from __future__ import annotations

import json
import logging
import re
import sys
import threading

import numpy as np
import pytest
from prometheus_client import CollectorRegistry, generate_latest

from monitoring import metrics
from serving.errors import (
    ExecutionError,
    ModelAlreadyExistsError,
    ModelCancelledError,
    ModelInvalidArgumentError,
    ModelLoadError,
    ModelNotFoundError,
    ModelUnavailableError,
    ModelUnsupportedError,
)
from serving.server import ModelServer
from tests.serving.python_models import CONFIG, TWICE, write_python

WIDE = np.ones((3, 2), np.float32)

# Answers a batch only when every request of it is there, and says how many rows each had.
SIZES = """
class TritonPythonModel:
    batches = []
    def execute(self, requests):
        if not TritonPythonModel.batches:
            open(pb_utils.get_model_dir() + "/.started", "w").close()
            import time
            while not os.path.exists(pb_utils.get_model_dir() + "/.go"):
                time.sleep(0.001)
        sizes = [pb_utils.get_input_tensor_by_name(r, "x").shape() for r in requests]
        TritonPythonModel.batches.append(sizes)
        text = np.array([json.dumps(TritonPythonModel.batches)], object)
        return [
            pb_utils.InferenceResponse([pb_utils.Tensor("y", np.repeat(text[None], s[0], axis=0))]) for s in sizes
        ]
"""


def model(body):
    """A model whose execute answers each request with what `body` makes of it."""
    lines = "\n".join(f"            {line}" for line in body.strip().splitlines())
    return f"""
class TritonPythonModel:
    def execute(self, requests):
        responses = []
        for request in requests:
{lines}
            responses.append(response)
        return responses
"""


def test_a_model_is_served_and_one_request_fails_alone(tmp_path):
    write_python(tmp_path, TWICE)
    with ModelServer(tmp_path) as server:
        assert server.metadata("m").backend == "python"
        answers = [server.submit("m", {"x": np.full((1, 2), value, np.float32)}) for value in (1, -1, 2)]
        assert [answers[0].result()["y"].tolist(), answers[2].result()["y"].tolist()] == [[[2, 2]], [[4, 4]]]
        with pytest.raises(ModelInvalidArgumentError, match="model 'm' version 1: x is below 0"):
            answers[1].result()
        assert server.statistics()["m"]["failures"] == {"BACKEND": 1}


def run_together(tmp_path, config, requests):
    """What SIZES says its batches were: the first request holds the instance until all others wait."""
    folder = write_python(tmp_path, "import os\n" + SIZES, config)
    with ModelServer(tmp_path) as server:
        first = server.submit("m", requests[0])
        while not (folder / ".started").exists():
            threading.Event().wait(0.001)
        others = [server.submit("m", one) for one in requests[1:]]
        (folder / ".go").touch()
        return max([json.loads(one.result()["y"][0, 0]) for one in (first, *others)], key=len)


TEXT_OUT = CONFIG.replace('name: "y" data_type: TYPE_FP32 dims: [ -1 ]', 'name: "y" data_type: TYPE_STRING dims: [ 1 ]')


def test_requests_of_a_batch_come_one_by_one(tmp_path):
    batches = run_together(tmp_path, TEXT_OUT, [{"x": np.ones((n, 2), np.float32)} for n in (1, 1, 8)])
    assert batches == [[[1, 2]], [[1, 2], [8, 2]]]


def test_lengths_meet_only_where_a_batch_may_be_ragged(tmp_path):
    requests = [{"x": np.ones((1, n), np.float32)} for n in (2, 3, 5, 3)]
    batches = run_together(tmp_path / "plain", TEXT_OUT, requests)
    assert sorted(map(len, batches)) == [1, 1, 2]
    ragged = TEXT_OUT.replace("dims: [ -1 ]", "dims: [ -1 ] allow_ragged_batch: true", 1)
    batches = run_together(tmp_path / "ragged", ragged, requests)
    assert batches == [[[1, 2]], [[1, 3], [1, 5], [1, 3]]]


def test_an_optional_input_may_be_left_out(tmp_path):
    code = model("""
bias = pb_utils.get_input_tensor_by_name(request, "bias")
x = pb_utils.get_input_tensor_by_name(request, "x").as_numpy()
response = pb_utils.InferenceResponse([pb_utils.Tensor("y", x if bias is None else x + bias.as_numpy())])
""")
    write_python(tmp_path, code, CONFIG + 'input { name: "bias" data_type: TYPE_FP32 dims: [ 1 ] optional: true }')
    with ModelServer(tmp_path) as server:
        assert server.infer("m", {"x": WIDE})["y"].tolist() == WIDE.tolist()
        assert server.infer("m", {"x": WIDE, "bias": np.full((3, 1), 4, np.float32)})["y"][0, 0] == 5


def test_what_a_request_says(tmp_path):
    code = model("""
said = [request.request_id(), request.requested_output_names(), json.loads(request.parameters()), request.timeout(),
        request.priority(), request.is_cancelled(), request.correlation_id(), request.flags()]
out = pb_utils.Tensor("y", np.array([[json.dumps(said)]], dtype=object))
response = pb_utils.InferenceResponse([out, pb_utils.Tensor("z", np.zeros((1, 1), np.float32))])
""")
    write_python(tmp_path, code, TEXT_OUT + 'output { name: "z" data_type: TYPE_FP32 dims: [ 1 ] }')
    with ModelServer(tmp_path) as server:
        asked = {"outputs": ["y"], "parameters": {"shift": 3}, "request_id": "one"}
        answer = server.infer("m", {"x": WIDE[:1]}, **asked)
        assert set(answer) == {"y"}
        assert json.loads(answer["y"][0, 0]) == ["one", ["y"], {"shift": 3}, 0, 0, False, 0, 0]


def test_auto_complete_config(tmp_path):
    code = (
        TWICE
        + """
    @staticmethod
    def auto_complete_config(auto):
        assert auto.as_dict()["name"] == "m"
        auto.set_max_batch_size(4)
        auto.set_dynamic_batching()
        auto.add_input({"name": "x", "data_type": "TYPE_FP32", "dims": [2]})
        auto.add_output({"name": "y", "data_type": "TYPE_FP32", "dims": [2]})
        return auto
"""
    )
    write_python(tmp_path, code, "")
    with ModelServer(tmp_path) as server:
        metadata = server.metadata("m")
        assert (metadata.max_batch_size, str(metadata.inputs[0])) == (4, "x float32[2]")
        assert server.infer("m", {"x": WIDE})["y"].tolist() == (2 * WIDE).tolist()
    write_python(tmp_path, code, 'input { name: "x" data_type: TYPE_FP32 dims: [ 3 ] }')
    with pytest.raises(ModelLoadError, match=r"auto_complete_config failed: .*input 'x' is TYPE_FP32 \[2\], the"):
        ModelServer(tmp_path).start()


def test_initialize_is_told_and_finalize_is_called(tmp_path):
    code = (
        TWICE
        + """
    def initialize(self, args):
        config = json.loads(args.pop("model_config"))
        assert pb_utils.get_input_config_by_name(config, "x")["dims"] == [-1]
        output = pb_utils.get_output_config_by_name(config, "y")
        assert pb_utils.triton_string_to_numpy(output["data_type"]) is np.float32
        assert not pb_utils.using_decoupled_model_transaction_policy(config)
        assert args.pop("model_instance_name").startswith("m_")
        self.path = pb_utils.get_model_dir() + "/.said"
        with open(self.path, "w") as file:
            json.dump(args, file)
    def finalize(self):
        with open(self.path, "a") as file:
            file.write("finalized")
"""
    )
    folder = write_python(tmp_path, code)
    with ModelServer(tmp_path):
        said = json.loads((folder / ".said").read_text())
        assert said == {
            "model_instance_kind": "CPU",
            "model_instance_device_id": "0",
            "model_repository": str(tmp_path / "m"),
            "model_version": "1",
            "model_name": "m",
        }
    assert (folder / ".said").read_text().endswith("finalized")


def test_instances_that_were_loaded_before_one_that_fails_are_unloaded(tmp_path):
    code = (
        TWICE
        + """
    def initialize(self, args):
        self.path = pb_utils.get_model_dir() + "/.said"
        with open(self.path, "a") as file:
            file.write("i")
        if len(open(self.path).read()) == 2:
            raise RuntimeError("only one fits")
    def finalize(self):
        with open(self.path, "a") as file:
            file.write("f")
"""
    )
    folder = write_python(tmp_path, code, CONFIG + "instance_group { count: 2 }")
    with pytest.raises(ModelLoadError, match="initialize failed: RuntimeError: only one fits"):
        ModelServer(tmp_path).start()
    assert (folder / ".said").read_text() == "iif"


def test_instances_and_models_share_no_modules(tmp_path):
    code = """
import helper, tools.deep
from tools.deep import WORD as word
class TritonPythonModel:
    def execute(self, requests):
        helper.count += 1
        import helper as again
        from tools import deep
        assert again is helper and deep is tools.deep and deep.near.NAME == "near"
        text = np.array([[f"{word} {helper.count}"]], object)
        return [pb_utils.InferenceResponse([pb_utils.Tensor("y", text)]) for _ in requests]
"""
    before = set(sys.modules)
    for name in ("a", "b"):
        folder = write_python(tmp_path, code, TEXT_OUT, name, helper_py="count = 0\n")
        (folder / "tools").mkdir()
        (folder / "tools" / "__init__.py").write_text("")
        (folder / "tools" / "near.py").write_text("NAME = 'near'\n")
        (folder / "tools" / "deep.py").write_text(f"from . import near\nWORD = {name!r}\n")
    with ModelServer(tmp_path) as server:
        said = [server.infer(name, {"x": WIDE[:1]})["y"][0, 0] for name in ("a", "b", "a")]
        assert said == [b"a 1", b"b 1", b"a 2"]
        assert "helper" not in sys.modules
    assert not {name for name in set(sys.modules) - before if "cohortflow_python_model" in name}
    assert not list(tmp_path.rglob("__pycache__"))


@pytest.mark.parametrize("kind", ["def execute", "async def execute"])
def test_a_model_asks_other_models(tmp_path, kind):
    wait, call = ("await ", "async_exec") if "async" in kind else ("", "exec")
    code = f"""
class TritonPythonModel:
    {kind}(self, requests):
        responses = []
        for request in requests:
            x = pb_utils.get_input_tensor_by_name(request, "x")
            asked = pb_utils.InferenceRequest(
                model_name="twice", requested_output_names=["y"], inputs=[pb_utils.Tensor("x", x.as_numpy() + 1)]
            )
            answer = {wait}asked.{call}()
            if answer.has_error():
                responses.append(pb_utils.InferenceResponse(error=answer.error()))
            else:
                assert pb_utils.is_model_ready("twice") and not pb_utils.is_model_ready("twice", "7")
                y = pb_utils.get_output_tensor_by_name(answer, "y")
                responses.append(pb_utils.InferenceResponse([y]))
        return responses
"""
    write_python(tmp_path, TWICE, name="twice")
    write_python(tmp_path, code)
    with ModelServer(tmp_path) as server:
        assert server.infer("m", {"x": WIDE})["y"].tolist() == (2 * (WIDE + 1)).tolist()
        with pytest.raises(ModelInvalidArgumentError, match="x is below 0"):
            server.infer("m", {"x": -3 * WIDE})


def test_a_model_that_asks_itself_is_told_so(tmp_path):
    code = model("""
pb_utils.InferenceRequest(model_name="m", inputs=request.inputs()).exec()
""")
    write_python(tmp_path, code)
    with ModelServer(tmp_path) as server, pytest.raises(ExecutionError, match="model 'm' would wait for itself"):
        server.infer("m", {"x": WIDE})


def test_a_response_sender_answers_once(tmp_path):
    code = """
class TritonPythonModel:
    def execute(self, requests):
        for request in requests:
            sender = request.get_response_sender()
            x = pb_utils.get_input_tensor_by_name(request, "x").as_numpy()
            sender.send(pb_utils.InferenceResponse([pb_utils.Tensor("y", x)]))
            if x[0, 0] > 1:
                sender.send(pb_utils.InferenceResponse([pb_utils.Tensor("y", x)]))
            sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
"""
    write_python(tmp_path, code)
    with ModelServer(tmp_path) as server:
        assert server.infer("m", {"x": WIDE})["y"].tolist() == WIDE.tolist()
        with pytest.raises(ExecutionError, match="a model that is not decoupled sends one response"):
            server.infer("m", {"x": 2 * WIDE})


def test_dlpack_brings_tensors_of_other_libraries(tmp_path):
    code = model("""
import torch
x = pb_utils.get_input_tensor_by_name(request, "x")
assert x.is_cpu() and x.triton_dtype() == "TYPE_FP32" and x.__dlpack_device__() == (1, 0)
twice = 2 * torch.utils.dlpack.from_dlpack(x.to_dlpack())
y = pb_utils.Tensor.from_dlpack("y", twice.requires_grad_())
rough = pb_utils.Tensor.from_dlpack("rough", twice.detach().to(torch.bfloat16))
assert torch.utils.dlpack.from_dlpack(rough.to_dlpack()).dtype == torch.bfloat16
capsule = pb_utils.Tensor.from_dlpack("z", torch.utils.dlpack.to_dlpack(twice.detach()))
response = pb_utils.InferenceResponse([y, rough, capsule])
""")
    more = 'output { name: "rough" data_type: TYPE_BF16 dims: -1 } output { name: "z" data_type: TYPE_FP32 dims: -1 }'
    write_python(tmp_path, code, CONFIG + more)
    with ModelServer(tmp_path) as server:
        outputs = server.infer("m", {"x": WIDE})
    assert [array.dtype.name for array in outputs.values()] == ["float32", "bfloat16", "float32"]
    assert all(array.astype(np.float32).tolist() == (2 * WIDE).tolist() for array in outputs.values())


def test_text_helpers_and_types(tmp_path):
    code = (
        TWICE
        + """
    def initialize(self, args):
        text = np.array([["a", "é"], ["", "b" * 300]], object)
        packed = pb_utils.serialize_byte_tensor(text)
        assert pb_utils.deserialize_bytes_tensor(packed).tolist() == [b"a", "é".encode(), b"", b"b" * 300]
        assert pb_utils.triton_to_numpy_type(pb_utils.numpy_to_triton_type(np.float16)) is np.float16
        assert pb_utils.numpy_to_triton_type(np.object_) == 13
        try:
            pb_utils.deserialize_bytes_tensor(bytes(packed)[:-1])
        except pb_utils.TritonModelException as error:
            assert "past the end" in error.message()
        else:
            raise AssertionError
"""
    )
    write_python(tmp_path, code)
    with ModelServer(tmp_path):
        pass


def test_logger_and_metrics(tmp_path, caplog):
    code = (
        TWICE
        + """
    def initialize(self, args):
        pb_utils.Logger.log_warn("ready")
        Family = pb_utils.MetricFamily
        self.families = [
            Family(name="reads_seen", description="Reads", kind=Family.COUNTER),
            Family(name="reads_open", description="Open", kind=Family.GAUGE),
            Family(name="read_length", description="Length", kind=Family.HISTOGRAM),
        ]
        self.seen = self.families[0].Metric(labels={"lane": "1"})
        self.open = self.families[1].Metric()
        self.length = self.families[2].Metric(labels={}, buckets=[10, 100])
        self.seen.increment(3)
        self.open.set(5)
        self.open.increment(-1)
        self.length.observe(50)
        assert self.seen.value() % 3 == 0 and self.open.value() == 4
        for bad in (lambda: self.seen.increment(-1), lambda: self.seen.set(1), lambda: self.open.observe(1)):
            try:
                bad()
            except pb_utils.TritonModelException:
                continue
            raise AssertionError
"""
    )
    write_python(tmp_path, code, CONFIG + "instance_group { count: 2 }")
    registry = CollectorRegistry()
    metrics.register(registry)
    with caplog.at_level(logging.WARNING), ModelServer(tmp_path):
        page = generate_latest(registry).decode()
    assert ("serving.models.m", logging.WARNING, "ready") in caplog.record_tuples
    # Both instances count into one series.
    assert 'reads_seen{lane="1"} 6.0' in page
    assert "reads_open 4.0" in page
    assert 'read_length_bucket{le="100"} 2.0' in page
    assert "reads_seen" not in generate_latest(registry).decode()


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("NOT_FOUND", ModelNotFoundError),
        ("UNAVAILABLE", ModelUnavailableError),
        ("UNSUPPORTED", ModelUnsupportedError),
        ("ALREADY_EXISTS", ModelAlreadyExistsError),
        ("CANCELLED", ModelCancelledError),
        ("INTERNAL", ExecutionError),
        ("UNKNOWN", ExecutionError),
    ],
)
def test_each_code_is_an_error_of_its_own(tmp_path, code, kind):
    body = f'response = pb_utils.InferenceResponse(error=pb_utils.TritonError("no", pb_utils.TritonError.{code}))'
    write_python(tmp_path, model(body))
    with ModelServer(tmp_path) as server, pytest.raises(kind, match="no") as caught:
        server.infer("m", {"x": WIDE})
    assert (type(caught.value), caught.value.reason) == (kind, "BACKEND")


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("response = 1", "execute gave a int for a request, not an InferenceResponse"),
        ("response = None", "execute gave no response for a request"),
        ("return []", "execute returned 0 responses for 1 requests"),
        ("return 3", "execute returned int for 1 requests"),
        ("raise KeyError('lost')", r"KeyError: 'lost' \(model.py, line \d+\)"),
        ("raise SystemExit(3)", r"execute called exit\(3\)"),
        ("raise KeyboardInterrupt", r"KeyboardInterrupt: +\(model.py, line \d+\)"),
        ("raise GeneratorExit('gone')", r"GeneratorExit: gone \(model.py, line \d+\)"),
        ("request.inputs()[0].as_numpy()[:] = 0", r"read-only \(model.py, line \d+\)"),
        ("response = pb_utils.InferenceResponse()", "gave no output 'y'"),
        ("response = pb_utils.InferenceResponse([pb_utils.Tensor('y', np.zeros((2, 2), 'f4'))])", "batch of 3 rows"),
        ("response = pb_utils.InferenceResponse([pb_utils.Tensor('y', np.zeros((3, 2)))])", r"float64\[2\]"),
        ("response = pb_utils.InferenceResponse([pb_utils.Tensor('y', np.full((3, 2), np.nan, 'f4'))])", "NaN"),
    ],
)
def test_a_model_that_fails_says_why_and_goes_on(tmp_path, body, words):
    first = f"""
if request.inputs()[0].as_numpy()[0, 0] == 1:
    {body}
else:
    response = pb_utils.InferenceResponse([pb_utils.Tensor("y", request.inputs()[0].as_numpy())])
"""
    write_python(tmp_path, model(first))
    with ModelServer(tmp_path) as server:
        with pytest.raises(ExecutionError, match="model 'm' version 1: ") as caught:
            server.infer("m", {"x": WIDE})
        assert re.search(words, caught.value.message), caught.value.message
        assert server.infer("m", {"x": 5 * WIDE})["y"].tolist() == (5 * WIDE).tolist()


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("raise OSError('no disk')", r"model.py failed: OSError: no disk \(model.py, line \d+\)"),
        ("class TritonPythonModel:\n    pass", "has no class TritonPythonModel with a method execute"),
        (TWICE + "    def initialize(self, args):\n        1 / 0", "initialize failed: ZeroDivisionError"),
        (TWICE + "    def initialize(self, args):\n        raise SystemExit(1)", "initialize failed: SystemExit: 1"),
        (TWICE + "    def initialize(self, args):\n        import absent_module", "No module named 'absent_module'"),
        ("def broken(:", "SyntaxError"),
        (TWICE + "    x = lambda: pb_utils.load_model('n')", "utils.load_model is not supported by this server"),
        ("from triton_python_backend_utils import PreferredMemory", "utils.PreferredMemory is not supported"),
    ],
)
def test_a_model_that_cannot_be_loaded_says_why(tmp_path, code, words):
    write_python(tmp_path, code)
    with pytest.raises(ModelLoadError, match=words) as caught:
        ModelServer(tmp_path).start()
    assert "model 'm': " in str(caught.value)


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ('parameters { key: "EXECUTION_ENV_PATH" value { string_value: "x" } }', "'EXECUTION_ENV_PATH' is not supp"),
        ("model_transaction_policy { decoupled: true }", "model_transaction_policy.decoupled is not supported"),
        ('default_model_filename: "absent.py"', "absent.py is missing"),
    ],
)
def test_a_configuration_that_cannot_be_served_says_why(tmp_path, config, words):
    write_python(tmp_path, TWICE, CONFIG + config)
    with pytest.raises(ModelLoadError, match=words):
        ModelServer(tmp_path).start()
