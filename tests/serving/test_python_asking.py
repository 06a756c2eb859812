"""Python models that ask other models while those, they themselves or the server end."""

from __future__ import annotations

import threading

import pytest

from serving.errors import ModelNotFoundError, UnavailableError
from serving.server import ModelServer
from tests.serving.gated import rows, write_gated
from tests.serving.python_models import CONFIG, write_python

ASKS = """
class TritonPythonModel:
    {kind}(self, requests):
        responses = []
        for request in requests:
            x = pb_utils.get_input_tensor_by_name(request, "x")
            asked = pb_utils.InferenceRequest(model_name="gated", requested_output_names=["y"], inputs=[x])
            answer = {wait}asked.{call}()
            if answer.has_error():
                responses.append(pb_utils.InferenceResponse(error=answer.error()))
            else:
                responses.append(pb_utils.InferenceResponse(answer.output_tensors()))
        return responses
"""


@pytest.fixture(
    params=[("def execute", "", "exec"), ("async def execute", "await ", "async_exec")], ids=["exec", "async"]
)
def server(request, gate, tmp_path):
    """A server whose model `m` asks `gated`."""
    kind, wait, call = request.param
    write_python(tmp_path, ASKS.format(kind=kind, wait=wait, call=call), CONFIG)
    write_gated(tmp_path, "max_batch_size: 8")
    with ModelServer(tmp_path, control="explicit", models=["m", "gated"]) as server:
        yield server


def test_the_asked_model_is_unloaded(server, gate):
    answer = server.submit("m", rows(1))
    gate.wait_inside(1)
    server.unload("gated")
    gate.open()
    assert answer.result(10)["y"].tolist() == [[2]]
    with pytest.raises(ModelNotFoundError, match="no model 'gated' is served"):
        server.infer("m", rows(2))
    server.load("gated")
    assert server.infer("m", rows(2))["y"].tolist() == [[4]]


def test_the_asking_model_is_unloaded(server, gate):
    answer = server.submit("m", rows(1))
    gate.wait_inside(1)
    server.unload("m")
    gate.open()
    assert answer.result(10)["y"].tolist() == [[2]]


def test_the_server_is_closed(server, gate):
    answer = server.submit("m", rows(1))
    gate.wait_inside(1)
    closing = threading.Thread(target=server.close)
    closing.start()
    closing.join(0.05)
    assert closing.is_alive()
    gate.open()
    assert answer.result(10)["y"].tolist() == [[2]]
    closing.join(10)
    assert not closing.is_alive()


def test_the_server_does_not_wait_for_ever(server, gate):
    answer = server.submit("m", rows(1))
    gate.wait_inside(1)
    server.close(limit_s=0.1)
    with pytest.raises(UnavailableError):
        answer.result(10)
