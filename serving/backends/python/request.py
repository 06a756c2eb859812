"""Requests: those that a Python model is given, and those that it sends to other models of the server."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from serving.answer import Answer
from serving.backends.base import BackendRequest, Models
from serving.backends.python.error import TritonError, TritonModelException, to_triton_error
from serving.backends.python.response import InferenceResponse, ResponseSender
from serving.backends.python.tensor import Tensor
from serving.errors import ServingError
from serving.tensors import Tensor as Array


class InferenceRequest:
    """A request, Triton's ``pb_utils.InferenceRequest``.

    A model makes one to ask another model of the server ("business logic scripting"): its `exec` waits for the answer,
    its `async_exec` is awaited. Those that the model is given are asked nothing.
    """

    # Each instance of a model has a subclass of its own that knows them.
    models: ClassVar[Models | None] = None
    model: ClassVar[str] = ""

    def __init__(
        self,
        inputs: Sequence[Tensor] = (),
        request_id: str = "",
        correlation_id: int = 0,
        requested_output_names: Sequence[str] = (),
        model_name: str = "",
        model_version: int = -1,
        flags: int = 0,
        timeout: int = 0,
        parameters: Mapping[str, Any] | str | None = None,
    ) -> None:
        for tensor in inputs:
            if not isinstance(tensor, Tensor):
                raise TritonModelException(f"InferenceRequest: {type(tensor).__name__} is no Tensor")
        if flags or correlation_id:
            raise TritonModelException("InferenceRequest: flags and correlation_id are not supported by this server")
        self._inputs = list(inputs)
        self._request_id = request_id
        self._names = list(requested_output_names)
        self._model_name = model_name
        self._model_version = model_version
        self._timeout_us = timeout
        self._priority = 0
        given = json.loads(parameters) if isinstance(parameters, str) else dict(parameters or {})
        self._parameters: dict[str, Any] = given
        self._sender: ResponseSender | None = None
        self._given: BackendRequest | None = None
        self._is_batched = True

    @classmethod
    def of(cls, given: BackendRequest) -> InferenceRequest:
        """The request that a model is given."""
        request = cls([Tensor(name, _read_only(array)) for name, array in given.inputs.items()])
        request._request_id = given.call.request_id
        request._names = list(given.outputs)
        request._timeout_us = given.call.timeout_us
        request._priority = given.call.priority
        request._parameters = dict(given.call.parameters)
        request._model_name = cls.model
        request._given = given
        return request

    def inputs(self) -> list[Tensor]:
        """Its input tensors; one that is optional and was left out is not among them."""
        return self._inputs

    def request_id(self) -> str:
        """The sender's name for it; empty if it has none."""
        return self._request_id

    def correlation_id(self) -> int:
        """0: sequences by correlation id are not supported."""
        return 0

    def requested_output_names(self) -> list[str]:
        """The outputs wanted."""
        return self._names

    def model_name(self) -> str:
        """The model asked."""
        return self._model_name

    def flags(self) -> int:
        """0: sequences by flags are not supported."""
        return 0

    def timeout(self) -> int:
        """Microseconds; 0: none."""
        return self._timeout_us

    def priority(self) -> int:
        """Its level; 0: the model's default."""
        return self._priority

    def parameters(self) -> str:
        """Its parameters, as JSON."""
        return json.dumps(self._parameters)

    def is_cancelled(self) -> bool:
        """Whether nobody waits for the answer any more."""
        return self._given is not None and self._given.is_given_up()

    def get_response_sender(self) -> ResponseSender:
        """Another way to answer it."""
        if self._sender is None:
            self._sender = ResponseSender(self.is_cancelled)
        return self._sender

    @property
    def sent(self) -> InferenceResponse | None:
        """What its response sender was given."""
        return None if self._sender is None else self._sender.response

    def exec(self, decoupled: bool = False) -> InferenceResponse:
        """Asks the model and waits; an error is in the response.

        Raises:
            TritonModelException: The request cannot be sent at all.
        """
        answer = self._submit(decoupled)
        if isinstance(answer, InferenceResponse):
            return answer
        try:
            answer.result()
        except ServingError as error:
            return InferenceResponse(error=to_triton_error(error))
        return self._response(answer)

    async def async_exec(self, decoupled: bool = False) -> InferenceResponse:
        """As `exec`, awaited."""
        answer = self._submit(decoupled)
        if isinstance(answer, InferenceResponse):
            return answer
        loop = asyncio.get_running_loop()
        future: asyncio.Future[InferenceResponse] = loop.create_future()

        def settle(done: Answer) -> None:
            response = self._response(done)
            loop.call_soon_threadsafe(lambda: None if future.done() else future.set_result(response))

        answer.add_done_callback(settle)
        try:
            return await future
        finally:
            answer.cancel()

    def _submit(self, decoupled: bool) -> Answer | InferenceResponse:
        """Sends the request off; an error that comes at once is a response."""
        if decoupled:
            raise TritonModelException("exec: decoupled models are not supported by this server")
        if self.models is None or not self._model_name:
            raise TritonModelException("exec: the request names no model")
        if self._model_name == self.model:
            raise TritonModelException(f"exec: model {self.model!r} would wait for itself")
        version = self._model_version if self._model_version > 0 else None
        try:
            # Asked before: the model may be gone by the time that it has answered.
            self._is_batched = self.models.metadata(self._model_name, version).max_batch_size > 0
            return self.models.submit(
                self._model_name,
                {tensor.name(): tensor.on_host() for tensor in self._inputs},
                version,
                outputs=self._names or None,
                deadline_s=self._timeout_us / 1e6 if self._timeout_us else None,
                parameters=self._parameters,
            )
        except ServingError as error:
            return InferenceResponse(error=to_triton_error(error))

    def _response(self, answer: Answer) -> InferenceResponse:
        if answer.error is not None:
            return InferenceResponse(error=to_triton_error(answer.error))
        outputs = answer.outputs.items()
        return InferenceResponse(
            [Tensor(name, array if self._is_batched else np.asarray(array[0])) for name, array in outputs]
        )


def _read_only(array: Array) -> Array:
    """A view that cannot be written to: the sender, the cache and a second try look at the same memory."""
    view = array.view()
    view.flags.writeable = False
    return view


def get_input_tensor_by_name(request: InferenceRequest, name: str) -> Tensor | None:
    """An input of a request; None when it has none of that name."""
    return next((tensor for tensor in request.inputs() if tensor.name() == name), None)


def get_output_tensor_by_name(response: InferenceResponse, name: str) -> Tensor | None:
    """An output of a response; None when it has none of that name.

    Raises:
        TritonModelException: The response is an error.
    """
    if response.has_error():
        error = response.error()
        assert isinstance(error, TritonError)
        raise TritonModelException(f"the response is an error: {error.message()}")
    return next((tensor for tensor in response.output_tensors() if tensor.name() == name), None)
