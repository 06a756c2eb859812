"""What an error is called on the wire, as Triton maps it.

Source: Triton, ``GrpcStatusUtil::CodeToStatus`` and ``HttpCodeFromError``. A client's own deadline and a wrong token,
which have no such error there, are what gRPC and HTTP call them.
"""

from __future__ import annotations

import grpc

from serving.errors import (
    CancelledError,
    DeadlineExceededError,
    InvalidArgumentError,
    ModelAlreadyExistsError,
    ModelUnsupportedError,
    NotFoundError,
    ServingError,
    UnavailableError,
)

# Longer texts do not fit into the trailers of a gRPC answer; a hostile name would fill them.
_MAX_TEXT = 2000


class UnsupportedError(ServingError):
    """A part of the protocol that this server does not have."""

    blame = "input"


class UnauthenticatedError(ServingError):
    """The request carries no token, or a wrong one."""

    blame = "input"


class TooLargeError(InvalidArgumentError):
    """The request is larger than this server takes."""


class TooSlowError(InvalidArgumentError):
    """The request stopped arriving."""


_GRPC: dict[type[ServingError], grpc.StatusCode] = {
    NotFoundError: grpc.StatusCode.NOT_FOUND,
    InvalidArgumentError: grpc.StatusCode.INVALID_ARGUMENT,
    UnavailableError: grpc.StatusCode.UNAVAILABLE,
    DeadlineExceededError: grpc.StatusCode.DEADLINE_EXCEEDED,
    CancelledError: grpc.StatusCode.CANCELLED,
    UnsupportedError: grpc.StatusCode.UNIMPLEMENTED,
    UnauthenticatedError: grpc.StatusCode.UNAUTHENTICATED,
    ModelUnsupportedError: grpc.StatusCode.UNIMPLEMENTED,
    ModelAlreadyExistsError: grpc.StatusCode.ALREADY_EXISTS,
}
_HTTP: dict[type[ServingError], int] = {
    NotFoundError: 404,
    TooLargeError: 413,
    TooSlowError: 408,
    InvalidArgumentError: 400,
    UnavailableError: 503,
    DeadlineExceededError: 504,
    CancelledError: 400,
    UnsupportedError: 501,
    UnauthenticatedError: 401,
    ModelUnsupportedError: 501,
    ModelAlreadyExistsError: 400,
}


def grpc_status(error: ServingError) -> grpc.StatusCode:
    """The status of a call that ended with this error."""
    return next((code for kind, code in _GRPC.items() if isinstance(error, kind)), grpc.StatusCode.INTERNAL)


def http_status(error: ServingError) -> int:
    """The status of an HTTP answer that ended with this error."""
    return next((code for kind, code in _HTTP.items() if isinstance(error, kind)), 500)


def error_text(error: ServingError) -> str:
    """The error's message, cut to what an answer can carry."""
    # A model's own words need not be text.
    text = error.message.encode(errors="replace").decode()
    return text if len(text) <= _MAX_TEXT else f"{text[:_MAX_TEXT]}..."
