"""Numbers out of a pickle, read from its opcodes: nothing is imported, built or called.

A pickle is a program. Its opcodes are walked here with a stack of plain Python values, in which every class and call is
an inert `Inert`. Arrays that joblib put into the file behind the opcode that describes them are read where they stand.
Source: Python's pickletools; joblib's numpy_pickle.NumpyArrayWrapper.
"""

from __future__ import annotations

import io
import pickletools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np

from tasks.published.publication import PublishedModelError

_MARK = object()
_ARRAY = "NumpyArrayWrapper"
_SCALAR = "numpy.core.multiarray scalar"
_MAX_NUMBERS = 4096
_DTYPES = ("f8", "i4", "i8", "b1")
_CONSTANTS: dict[str, Callable[[], Any]] = {
    "MARK": lambda: _MARK,
    "NONE": lambda: None,
    "NEWTRUE": lambda: True,
    "NEWFALSE": lambda: False,
    "EMPTY_TUPLE": tuple,
    "EMPTY_LIST": list,
    "EMPTY_DICT": dict,
}
_NUM_ITEMS = {"TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}


@dataclass(slots=True)
class Inert:
    """What a pickle would have made: a class by its name, what it would be called with, and the state it would get."""

    name: str
    arguments: Any = None
    state: dict[str, Any] = field(default_factory=dict)


def read_pickle(content: bytes, file_name: str) -> Any:
    """Reads the plain values of a pickle that holds a few numbers; scalars and arrays of float64 are read as such.

    Raises:
        PublishedModelError: It has an opcode that is not needed for that, or is cut off.
    """
    try:
        return _walk(io.BytesIO(content))
    except (ValueError, IndexError, KeyError, TypeError, AttributeError, EOFError) as error:
        raise PublishedModelError(
            f"{file_name}: not a pickle of a few numbers: {error!r}", reason="BAD_PACKAGE"
        ) from error


def _walk(stream: io.BytesIO) -> Any:
    stack: list[Any] = []
    memo: dict[int, Any] = {}
    while True:
        # One opcode at a time: arrays stand between them, at which pickletools would stop.
        opcode, given, _ = next(pickletools.genops(stream))
        name, argument = opcode.name, cast(Any, given)
        if name == "STOP":
            return stack.pop()
        if name in _CONSTANTS:
            stack.append(_CONSTANTS[name]())
        elif name in ("BINUNICODE", "BININT", "BININT1", "BININT2", "BINFLOAT", "SHORT_BINBYTES", "BINBYTES"):
            stack.append(argument)
        elif name == "GLOBAL":
            stack.append(Inert(argument))
        elif name in ("BINPUT", "LONG_BINPUT"):
            memo[argument] = stack[-1]
        elif name in ("BINGET", "LONG_BINGET"):
            stack.append(memo[argument])
        elif name in _NUM_ITEMS:
            items = [stack.pop() for _ in range(_NUM_ITEMS[name])]
            stack.append(tuple(reversed(items)))
        elif name in ("TUPLE", "SETITEMS", "APPENDS"):
            at = max(place for place, value in enumerate(stack) if value is _MARK)
            items = stack[at + 1 :]
            del stack[at:]
            if name == "TUPLE":
                stack.append(tuple(items))
            elif name == "APPENDS":
                stack[-1].extend(items)
            else:
                stack[-1].update(zip(items[::2], items[1::2], strict=True))
        elif name in ("SETITEM", "APPEND"):
            value = stack.pop()
            if name == "APPEND":
                stack[-1].append(value)
            else:
                key = stack.pop()
                stack[-1][key] = value
        elif name in ("REDUCE", "NEWOBJ"):
            arguments, kind = stack.pop(), stack.pop()
            stack.append(_scalar(arguments) if kind.name == _SCALAR else Inert(kind.name, arguments))
        elif name == "BUILD":
            state = stack.pop()
            if stack[-1].name.endswith(_ARRAY):
                stack[-1] = _array(state, stream)
            elif isinstance(state, dict):
                stack[-1].state.update(state)
        elif name != "PROTO":
            raise ValueError(f"opcode {name}")


def _scalar(arguments: tuple[Inert, bytes]) -> Any:
    return np.frombuffer(arguments[1], _dtype(arguments[0]))[0].item()


def _array(state: dict[str, Any], stream: io.BytesIO) -> np.ndarray[Any, Any]:
    """An array that stands in the file from here on."""
    dtype, shape = _dtype(state["dtype"]), state["shape"]
    count = int(np.prod(shape))
    if not 0 < count <= _MAX_NUMBERS:
        raise ValueError(f"an array of {count} numbers")
    flat: np.ndarray[Any, Any] = np.frombuffer(stream.read(count * dtype.itemsize), dtype)
    return flat.reshape(tuple(shape), order="F" if state["order"] == "F" else "C")


def _dtype(kind: Inert) -> Any:
    name = kind.arguments[0]
    if name not in _DTYPES:
        raise ValueError(f"numbers of type {name!r}")
    return np.dtype(name).newbyteorder("<")
