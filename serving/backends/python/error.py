"""What a Python model says went wrong."""

from __future__ import annotations

from serving.errors import (
    CancelledError,
    DeadlineExceededError,
    ExecutionError,
    InvalidArgumentError,
    ModelAlreadyExistsError,
    ModelCancelledError,
    ModelInvalidArgumentError,
    ModelNotFoundError,
    ModelUnavailableError,
    ModelUnsupportedError,
    NotFoundError,
    ServingError,
    UnavailableError,
)


class TritonModelException(Exception):
    """What the functions of ``pb_utils`` raise."""

    def message(self) -> str:
        """The text."""
        return str(self)


class TritonError:
    """The error of a response, with Triton's code for it.

    Source: Triton's python_backend README, "Error Handling".
    """

    UNKNOWN = 0
    INTERNAL = 1
    NOT_FOUND = 2
    INVALID_ARG = 3
    UNAVAILABLE = 4
    UNSUPPORTED = 5
    ALREADY_EXISTS = 6
    CANCELLED = 7

    def __init__(self, message: str, code: int = INTERNAL) -> None:
        if code not in range(8):
            raise TritonModelException(f"TritonError: there is no code {code!r}")
        self._message = str(message)
        self._code = code

    def message(self) -> str:
        """The text."""
        return self._message

    def code(self) -> int:
        """One of the class's constants."""
        return self._code

    def __str__(self) -> str:
        return self._message


_ERRORS: dict[int, type[ServingError]] = {
    TritonError.NOT_FOUND: ModelNotFoundError,
    TritonError.INVALID_ARG: ModelInvalidArgumentError,
    TritonError.UNAVAILABLE: ModelUnavailableError,
    TritonError.UNSUPPORTED: ModelUnsupportedError,
    TritonError.ALREADY_EXISTS: ModelAlreadyExistsError,
    TritonError.CANCELLED: ModelCancelledError,
}
_CODES: dict[type[ServingError], int] = {
    ModelUnsupportedError: TritonError.UNSUPPORTED,
    ModelAlreadyExistsError: TritonError.ALREADY_EXISTS,
    NotFoundError: TritonError.NOT_FOUND,
    InvalidArgumentError: TritonError.INVALID_ARG,
    UnavailableError: TritonError.UNAVAILABLE,
    DeadlineExceededError: TritonError.UNAVAILABLE,
    CancelledError: TritonError.CANCELLED,
}


def to_serving_error(error: TritonError, label: str) -> ServingError:
    """A model's error as the server's own."""
    return _ERRORS.get(error.code(), ExecutionError)(f"{label}: {error.message()}")


def to_triton_error(error: ServingError) -> TritonError:
    """An error of another model, as a model sees it."""
    codes = [code for kind, code in _CODES.items() if isinstance(error, kind)]
    return TritonError(error.message, codes[0] if codes else TritonError.INTERNAL)
