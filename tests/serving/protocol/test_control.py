"""Models loaded and unloaded by Triton's clients."""

from __future__ import annotations

import contextlib
import json

import numpy as np
import pytest
from tritonclient.grpc import service_pb2
from tritonclient.utils import InferenceServerException

from serving.protocol.endpoint import Endpoint
from serving.server import ModelServer
from tests.serving.models import affine, affine_answer, write_model
from tests.serving.protocol.conftest import CLIENTS, connect, listening, make_input, post
from tests.serving.protocol.test_clients import code, plain
from tests.serving.python_models import write_python

TOKEN = "a-token-of-the-tests"
HEADERS = {"authorization": f"Bearer {TOKEN}"}
X = np.ones((2, 4), np.float32)
COUNTS = """
class TritonPythonModel:
    def initialize(self, args):
        self.count = 0

    def execute(self, requests):
        self.count += 1
        return [pb_utils.InferenceResponse([pb_utils.Tensor("y", np.full((1, 1), self.count, np.float32))])]
"""
CONFIG = "max_batch_size: 8 version_policy { all { } }"


@pytest.fixture
def folder(tmp_path):
    for version in (1, 2):
        write_model(tmp_path, "affine", affine(bias=version), CONFIG, version)
    write_model(tmp_path, "other", affine(), CONFIG)
    return tmp_path


@pytest.fixture
def served(folder):
    with (
        ModelServer(folder, control="explicit", models=["other"]) as server,
        Endpoint(server, listening(allow_control=True, token=TOKEN)) as endpoint,
    ):
        yield endpoint


@contextlib.contextmanager
def operator(kind, served):
    """A client that sends the token with everything."""

    class Token(CLIENTS[kind].InferenceServerClientPlugin):
        def __call__(self, request):
            request.headers.update(HEADERS)

    with connect(kind, served) as client:
        client.register_plugin(Token())
        yield client


def infer(kind, client, version=""):
    return client.infer("affine", [make_input(kind, X)], model_version=version).as_numpy("y")


def states(kind, client):
    index = plain(kind, client.get_model_repository_index())
    return {
        (one["name"], one.get("version", "")): one.get("state", "")
        for one in (index["models"] if kind == "grpc" else index)
    }


def test_load_reload_and_unload(kind, served, folder):
    with operator(kind, served) as client:
        assert not client.is_model_ready("affine")
        client.load_model("affine")
        assert client.is_model_ready("affine")
        assert states(kind, client)[("affine", "2")] == "READY"
        np.testing.assert_allclose(infer(kind, client), affine_answer(X, 2.0), rtol=1e-6)
        write_model(folder, "affine", affine(bias=9), CONFIG, 2)
        client.load_model("affine")
        np.testing.assert_allclose(infer(kind, client), affine_answer(X, 9.0), rtol=1e-6)
        client.unload_model("affine")
        assert not client.is_model_ready("affine")
        assert states(kind, client)[("affine", "2")] in ("UNLOADING", "UNAVAILABLE")
        with pytest.raises(InferenceServerException, match="'affine'") as caught:
            infer(kind, client)
        assert caught.value.status() == code(kind, "absent")
        assert client.is_model_ready("other")


def test_a_load_of_what_did_not_change_does_nothing(kind, served, folder):
    write_python(folder, COUNTS, name="counts")
    with operator(kind, served) as client:

        def count():
            return client.infer("counts", [make_input(kind, X[:1])]).as_numpy("y").tolist()

        client.load_model("counts")
        assert [count(), count()] == [[[1]], [[2]]]
        # Triton goes by time stamps, and so do we by contents: to begin anew, the model is unloaded first.
        (folder / "counts" / "1" / "model.py").touch()
        client.load_model("counts")
        assert count() == [[3]]
        client.unload_model("counts")
        client.load_model("counts")
        assert count() == [[1]]


def test_a_load_that_fails_keeps_the_old_one(kind, served, folder):
    with operator(kind, served) as client:
        client.load_model("affine")
        (folder / "affine" / "config.pbtxt").write_text("max_batch_size: many")
        with pytest.raises(InferenceServerException, match="affine") as caught:
            client.load_model("affine")
        assert caught.value.status() == code(kind, "failed")
        np.testing.assert_allclose(infer(kind, client), affine_answer(X, 2.0), rtol=1e-6)
        with pytest.raises(InferenceServerException, match="'nothing'"):
            client.load_model("nothing")


def test_a_configuration_and_files_of_the_clients_own(kind, served):
    config = json.dumps({"max_batch_size": 4, "backend": "onnxruntime"})
    with operator(kind, served) as client:
        client.load_model("affine", config=config)
        answered = plain(kind, client.get_model_config("affine"))
        assert (answered["config"] if kind == "grpc" else answered)["max_batch_size"] == 4
        model = affine(bias=7).SerializeToString()
        client.load_model("affine", config=config, files={"file:5/model.onnx": model})
        np.testing.assert_allclose(infer(kind, client, "5"), affine_answer(X, 7.0), rtol=1e-6)
        client.load_model("affine")
        np.testing.assert_allclose(infer(kind, client), affine_answer(X, 2.0), rtol=1e-6)


def test_one_version_is_unloaded(kind, served):
    with operator(kind, served) as client:
        client.load_model("affine")
        if kind == "http":
            assert (
                post(served, "/v2/repository/models/affine/unload", {"parameters": {"version": 2}}, HEADERS)[0] == 200
            )
        else:
            request = service_pb2.RepositoryModelUnloadRequest(model_name="affine")
            request.parameters["version"].int64_param = 2
            client._client_stub.RepositoryModelUnload(request, metadata=tuple(HEADERS.items()))
        assert client.is_model_ready("affine", "1")
        assert not client.is_model_ready("affine", "2")
        np.testing.assert_allclose(infer(kind, client), affine_answer(X, 1.0), rtol=1e-6)


def test_parameters_that_do_not_fit(served):
    for path, parameters, words in [
        ("load", {"confg": "{}"}, "'confg' is none of"),
        ("load", {"config": 7}, "'config' is none of"),
        ("load", {"config": "{}", "file:1/model.onnx": "no base64!"}, "is not base64"),
        ("load", {"config": "no JSON"}, "affine"),
        ("load", {"config": "{}", "file:../../evil": ""}, "<version>/<path>"),
        ("unload", {"unload_dependents": 1}, "'unload_dependents'"),
        ("unload", {"version": 0}, "'version'"),
        ("unload", {"all": True}, "'all' is none of"),
        ("unload", [], "parameters must be a JSON object"),
    ]:
        status, answer = post(served, f"/v2/repository/models/affine/{path}", {"parameters": parameters}, HEADERS)
        assert status in (400, 500), parameters
        assert words in answer["error"]
