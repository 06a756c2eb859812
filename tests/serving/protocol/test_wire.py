"""Tensors on the wire."""

from __future__ import annotations

import contextlib
import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tritonclient.utils import deserialize_bytes_tensor, serialize_byte_tensor

from serving.errors import InvalidArgumentError
from serving.protocol.classification import classify
from serving.protocol.compression import choose_encoding
from serving.protocol.wire import WIRE_NAMES, WIRE_TYPES, from_bytes, from_values, to_bytes, to_values
from serving.tensors import BF16, BYTES

NUMBERS = [name for name, dtype in WIRE_TYPES.items() if dtype != BYTES]


@pytest.mark.parametrize("name", NUMBERS)
def test_numbers_go_through_bytes_unchanged_and_uncopied(name):
    array = np.arange(2).astype(WIRE_TYPES[name]).reshape(1, 2)
    content = bytes(to_bytes(array))
    back = from_bytes("x", name, [1, 2], content)
    assert WIRE_NAMES[back.dtype] == name
    assert bytes(to_bytes(back)) == content
    assert np.shares_memory(back, np.frombuffer(content, np.uint8))
    unaligned = from_bytes("x", name, [1, 2], memoryview(b"\0" + content)[1:])
    assert unaligned.flags.aligned
    assert bytes(to_bytes(unaligned)) == content


@pytest.mark.parametrize("name", [name for name in NUMBERS if name not in ("FP16", "BF16")])
def test_numbers_go_through_json_values_unchanged(name):
    dtype = WIRE_TYPES[name]
    if dtype.kind == "b":
        values = [True, False]
    elif dtype.kind == "f":
        values = [float(np.finfo(dtype).max), float(np.finfo(dtype).tiny)]
    else:
        values = [int(np.iinfo(dtype).max), int(np.iinfo(dtype).min)]
    array = from_values("x", name, [2, 1], [[values[0]], [values[1]]])
    assert array.shape == (2, 1)
    assert to_values("x", array) == values


@given(st.lists(st.binary(max_size=20), max_size=5))
def test_strings_are_those_of_tritons_client(strings):
    array = np.array(strings, dtype=object)
    theirs = serialize_byte_tensor(array).item() if strings else b""
    assert to_bytes(array) == theirs
    back = from_bytes("x", "BYTES", [len(strings)], theirs)
    assert back.tolist() == strings
    assert deserialize_bytes_tensor(theirs).tolist() == strings


def test_strings_in_json():
    array = from_values("x", "BYTES", [1, 2], ["a", "\u00e4"])
    assert array.tolist() == [[b"a", b"\xc3\xa4"]]
    assert to_values("x", array) == ["a", "\u00e4"]
    with pytest.raises(InvalidArgumentError, match="not UTF-8"):
        to_values("x", np.array([b"\xff"], dtype=object))


@given(st.binary(max_size=40), st.integers(0, 5))
def test_any_bytes_are_strings_or_an_error(content, count):
    with contextlib.suppress(InvalidArgumentError):
        array = from_bytes("x", "BYTES", [count], content)
        assert len(array) == count
        assert bytes(to_bytes(array)) == content


def test_a_bool_is_0_or_1():
    assert from_bytes("x", "BOOL", [2], b"\0\1").tolist() == [False, True]
    with pytest.raises(InvalidArgumentError, match="0 or 1"):
        from_bytes("x", "BOOL", [2], b"\0\2")


def test_a_string_of_four_gigabytes_claimed():
    with pytest.raises(InvalidArgumentError, match="string 0 goes past the end"):
        from_bytes("x", "BYTES", [1], struct.pack("<I", 0xFFFFFFFF) + b"a")
    with pytest.raises(InvalidArgumentError, match="takes 1152921504606846976 strings"):
        from_bytes("x", "BYTES", [1 << 60], b"")


def test_classification():
    array = np.array([[[0.5, 2], [2, -1]], [[3, 1], [0, 9]]], np.float32)
    assert classify("y", array, 3, is_batched=True).tolist() == [
        [b"2.000000:1", b"2.000000:2", b"0.500000:0"],
        [b"9.000000:3", b"3.000000:0", b"1.000000:1"],
    ]
    assert classify("y", np.array([1, 200], np.uint8), 5, is_batched=False).tolist() == [b"200:1", b"1:0"]
    assert classify("y", array.astype(BF16), 1, is_batched=True).tolist() == [[b"2.000000:1"], [b"9.000000:3"]]
    with pytest.raises(InvalidArgumentError, match="output 'y': classification needs numbers"):
        classify("y", np.array([b"a"], dtype=object), 1, is_batched=False)


def test_the_encoding_of_an_answer():
    for accepted, chosen in [
        ("", None),
        ("gzip", "gzip"),
        ("br, deflate, gzip", "deflate"),
        ("deflate;q=0.5, GZIP;q=0.8", "gzip"),
        ("gzip;q=0, identity", None),
        ("gzip;q=x", None),
        ("*", None),
    ]:
        assert choose_encoding(accepted) == chosen
