"""What a Python model answers to a request."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from serving.backends.python.error import TritonError, TritonModelException
from serving.backends.python.tensor import Tensor

RESPONSE_COMPLETE_FINAL = 1
"""Triton's TRITONSERVER_RESPONSE_COMPLETE_FINAL: no more responses follow."""


class InferenceResponse:
    """Output tensors, or an error, in which case the tensors count for nothing."""

    def __init__(self, output_tensors: Sequence[Tensor] = (), error: TritonError | None = None) -> None:
        if error is not None and not isinstance(error, TritonError):
            raise TritonModelException(f"InferenceResponse: error is a {type(error).__name__}, not a TritonError")
        for tensor in output_tensors:
            if not isinstance(tensor, Tensor):
                raise TritonModelException(f"InferenceResponse: {type(tensor).__name__} is no Tensor")
        self._tensors = list(output_tensors)
        self._error = error

    def output_tensors(self) -> list[Tensor]:
        """Its tensors."""
        return self._tensors

    def has_error(self) -> bool:
        """Whether it is an error."""
        return self._error is not None

    def error(self) -> TritonError | None:
        """The error, if it is one."""
        return self._error


class ResponseSender:
    """Another way to answer: by `send`, once, before `execute` returns."""

    def __init__(self, is_given_up: Callable[[], bool]) -> None:
        self._is_given_up = is_given_up
        self.response: InferenceResponse | None = None
        self._is_closed = False

    def send(self, response: InferenceResponse | None = None, flags: int = 0) -> None:
        """Takes the response.

        Raises:
            TritonModelException: A second response, or one after the final flag.
        """
        if self._is_closed or (response is not None and self.response is not None):
            raise TritonModelException(
                "ResponseSender.send: a model that is not decoupled sends one response for each request"
            )
        if response is not None and not isinstance(response, InferenceResponse):
            raise TritonModelException(f"ResponseSender.send: {type(response).__name__} is no InferenceResponse")
        if response is not None:
            self.response = response
        self._is_closed = bool(flags & RESPONSE_COMPLETE_FINAL)

    def is_cancelled(self) -> bool:
        """Whether nobody waits for the answer any more."""
        return self._is_given_up()
