"""What can go wrong between a request and its answer.

    ServingError
    ├── NotFoundError           no such model or version
    ├── InvalidArgumentError    the request does not fit the model: name, type, shape, priority
    ├── UnavailableError        the queue is full, or the server is not running: try again
    │   ├── QueueTimeoutError   the time that the queue policy gives to a waiting request is over
    │   └── RetiredError        the version was replaced or unloaded just now: ask for the model again
    ├── DeadlineExceededError   the time given to the request is over
    ├── CancelledError          the request was cancelled by its sender
    ├── ModelLoadError          a repository, a config.pbtxt or a model file cannot be served
    └── ExecutionError          a backend failed, or answered something its configuration does not say

    A Python model can answer with an error of its own: Model...Error of each kind, counted as the backend's.

A message names the model, its version, and the tensor, field or file at fault. `reason` is the word under which a
failed request is counted (Triton's label of ``nv_inference_request_failure``, with TIMEOUT told apart).
"""

from __future__ import annotations

from typing import ClassVar, Literal


class ServingError(Exception):
    """Root of every error this package raises.

    Attributes:
        retryable: Whether the same request may succeed if it is sent again unchanged.
        blame: Whose fault it is: ``input`` (the request or the model) or ``system`` (the server or the machine).
        reason: The word under which the failure is counted.
        field: The tensor, option or configuration field at fault, if one is.
    """

    retryable: ClassVar[bool] = False
    blame: ClassVar[Literal["input", "system"]] = "system"
    reason: ClassVar[str] = "OTHER"

    def __init__(self, message: str, *, field: str | None = None) -> None:
        super().__init__(message)
        self.field = field

    @property
    def message(self) -> str:
        """The text for people."""
        return str(self.args[0])

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild, (type(self), self.args[0], self.field)


def _rebuild(cls: type[ServingError], message: str, field: str | None) -> ServingError:
    return cls(message, field=field)


class NotFoundError(ServingError):
    """No such model or version; the message says what there is."""

    blame = "input"


class InvalidArgumentError(ServingError):
    """The request does not fit the model."""

    blame = "input"


class UnavailableError(ServingError):
    """The request was not taken: a queue is full, or the server is not running."""

    retryable = True
    reason = "REJECTED"


class QueueTimeoutError(UnavailableError):
    """A waiting request's time in the queue was over (Triton's code for it is UNAVAILABLE)."""

    reason = "TIMEOUT"


class RetiredError(UnavailableError):
    """The version that a request was meant for takes none any more; another one may."""


class DeadlineExceededError(ServingError):
    """The time given to the request was over before its answer was there."""

    retryable = True
    reason = "TIMEOUT"


class CancelledError(ServingError):
    """The request was cancelled by its sender."""

    reason = "CANCELED"


class ModelLoadError(ServingError):
    """A model cannot be served as it lies in the repository."""

    blame = "input"


class ExecutionError(ServingError):
    """A backend failed, or its answer is not what the model's configuration says."""

    reason = "BACKEND"


class ModelNotFoundError(NotFoundError):
    """A Python model answered NOT_FOUND."""

    reason = "BACKEND"


class ModelInvalidArgumentError(InvalidArgumentError):
    """A Python model answered INVALID_ARG."""

    reason = "BACKEND"


class ModelUnavailableError(UnavailableError):
    """A Python model answered UNAVAILABLE."""

    reason = "BACKEND"


class ModelCancelledError(CancelledError):
    """A Python model answered CANCELLED."""

    reason = "BACKEND"


class ModelUnsupportedError(ExecutionError):
    """A Python model answered UNSUPPORTED."""


class ModelAlreadyExistsError(ExecutionError):
    """A Python model answered ALREADY_EXISTS."""
