"""The parameters of a request: which of them this server acts on, and which it hands to the model.

Source: KServe v2, "Parameters"; Triton, "Parameters Extension", "Sequence Extension", "Schedule Policy Extension".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from serving.errors import InvalidArgumentError
from serving.protocol.status import UnsupportedError

Parameter = str | int | bool | float

_SEQUENCE = ("sequence_id", "sequence_start", "sequence_end")
_FINAL_RESPONSE = "triton_enable_empty_final_response"
_RESERVED = "triton_"
_MAX_UINT64 = (1 << 64) - 1


@dataclass(frozen=True, slots=True)
class RequestParameters:
    """A request's parameters.

    Attributes:
        priority: Level from 1 (highest); 0 takes the model's default.
        timeout_us: Longest time in the queue; 0 takes the default.
        routing_key: Requests of one key meet one version, where the model's traffic is split.
        wants_final_mark: Whether the last answer to it on a stream says that it is the last.
        others: What the model itself is given.
    """

    priority: int = 0
    timeout_us: int = 0
    routing_key: str | None = None
    wants_final_mark: bool = False
    others: Mapping[str, Parameter] = field(default_factory=dict)


NO_PARAMETERS = RequestParameters()


def read_parameters(values: Mapping[str, Parameter]) -> RequestParameters:
    """Sorts a request's parameters.

    Raises:
        InvalidArgumentError: A value of the wrong type, or a name that Triton keeps for itself.
        UnsupportedError: A parameter of sequences of requests.
    """
    if not values:
        return NO_PARAMETERS
    others = dict(values)
    for name in _SEQUENCE:
        if others.pop(name, None):
            raise UnsupportedError(f"parameter {name!r}: sequences of requests are not supported", field=name)
    key = others.pop("routing_key", None)
    final = others.pop(_FINAL_RESPONSE, False)
    if not isinstance(final, bool):
        raise InvalidArgumentError(f"parameter {_FINAL_RESPONSE!r} must be true or false", field=_FINAL_RESPONSE)
    options = RequestParameters(
        priority=_whole(others, "priority"),
        timeout_us=_whole(others, "timeout"),
        routing_key=None if key is None else str(key),
        wants_final_mark=final,
        others=others,
    )
    for name in others:
        if name.startswith(_RESERVED):
            raise InvalidArgumentError(f"parameter {name!r}: names with {_RESERVED!r} are reserved", field=name)
    return options


def _whole(values: dict[str, Parameter], name: str) -> int:
    value = values.pop(name, 0)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= _MAX_UINT64:
        raise InvalidArgumentError(f"parameter {name!r} must be a whole number from 0, not {value!r}", field=name)
    return value
