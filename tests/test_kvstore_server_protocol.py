"""Messages of parameter servers: they survive a round trip, and bad bytes do no harm."""

from __future__ import annotations

import random
import tracemalloc
from typing import Any

import numpy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gemel.errors import ArgumentError, DTypeError, KVStoreError, ProtocolError, ShapeError
from gemel.kvstore.server import protocol
from gemel.kvstore.server.entries import declared
from gemel.kvstore.server.protocol import (
    Decoder,
    Kind,
    Message,
    array_message,
    check_sendable,
    encode,
)
from gemel.kvstore.server.split import key_name, key_number, pieces_of
from gemel.kvstore.server.state import State
from gemel.kvstore.server.updates import build


def sent(message: Message) -> bytes:
    header, body = encode(message)
    return header + bytes(body)


def pushed(array: Any) -> Message:
    return array_message(Kind.PUSH, array, key=7, sequence=3, numbers=(0.1, 0.5, 0.0))


@pytest.mark.parametrize("name", protocol.DTYPES)
@pytest.mark.parametrize("shape", [(), (0,), (5,), (2, 0, 3), (2, 3, 4), (1,) * 8])
@pytest.mark.parametrize("step", [1, 7, 10_000])
def test_arrays_travel(name: str, shape: tuple[int, ...], step: int) -> None:
    array = numpy.arange(numpy.prod(shape), dtype="int64").reshape(shape).astype(name)
    data = sent(pushed(array))
    decoder, found = Decoder(), []
    for start in range(0, len(data), step):
        found += decoder.feed(data[start : start + step])
    (message,) = found
    assert decoder.idle
    assert message.array().dtype == name and message.array().shape == shape
    assert (message.array() == array).all()
    assert (message.kind, message.key, message.sequence) == (Kind.PUSH, 7, 3)
    assert message.numbers == (0.1, 0.5, 0.0)


def test_arrays_that_do_not_lie_in_order_travel() -> None:
    array = numpy.arange(24.0).reshape(4, 6)[::2, ::-3].T
    (message,) = Decoder().feed(sent(pushed(array)))
    assert (message.array() == array).all()


def test_several_messages_in_one_piece() -> None:
    messages = [Message(Kind.PULL, tag=number) for number in range(5)]
    found = Decoder().feed(b"".join(map(sent, messages)))
    assert [message.tag for message in found] == [0, 1, 2, 3, 4]


def header(**changes: Any) -> bytes:
    """The header of a push of 3 float32, with changed fields."""
    fields = {
        "magic": protocol.MAGIC, "version": 1, "kind": Kind.PUSH, "dtype": 0, "ndim": 1, "tag": 1,
        "key": 7, "sequence": 1, "length": 12, "rate": 0.0, "scale": 1.0, "decay": 0.0,
    }  # fmt: skip
    return protocol.HEADER.pack(*{**fields, **changes}.values())


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"magic": b"HTTP"}, "begins with"),
        ({"version": 2}, "version 2"),
        ({"kind": 99}, "no message of kind 99"),
        ({"kind": 0}, "no message of kind 0"),
        ({"ndim": 9}, "9 dimensions"),
        ({"dtype": 200}, "dtype code 200"),
        ({"dtype": 255}, "dtype code 255"),
        ({"kind": Kind.PULL}, "dtype code 0"),
        ({"kind": Kind.PULL, "dtype": 255}, "1 extents"),
        ({"kind": Kind.PULL, "dtype": 255, "ndim": 0}, "12 bytes"),
        ({"kind": Kind.HELLO, "dtype": 255, "ndim": 0, "length": 1 << 21}, "at most 1048576"),
        ({"length": 1 << 62}, "at most 1073741824"),
        ({"length": (1 << 30) + 1}, "at most 1073741824"),
        ({"rate": float("nan")}, "not finite"),
        ({"scale": float("inf")}, "not finite"),
    ],
)
def test_headers_are_checked(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(ProtocolError, match=said):
        Decoder().feed(header(**changes))


@pytest.mark.parametrize("extents", [(4,), ((1 << 63),), (0,)])
def test_the_length_is_that_of_the_shape(extents: tuple[int, ...]) -> None:
    data = header() + b"".join(map(protocol.EXTENT.pack, extents))
    with pytest.raises(ProtocolError, match="12 bytes are announced for an array"):
        Decoder().feed(data)


def test_extents_whose_product_overflows_64_bits() -> None:
    data = header(ndim=3, length=0) + protocol.EXTENT.pack(1 << 32) * 3
    with pytest.raises(ProtocolError, match="0 bytes are announced"):
        Decoder().feed(data)


def test_no_memory_is_taken_before_the_check() -> None:
    def refuse(message: Message) -> None:
        raise ProtocolError("not this one")

    length = 1 << 29
    data = header(length=length) + protocol.EXTENT.pack(length // 4)
    tracemalloc.start()
    with pytest.raises(ProtocolError, match="not this one"):
        Decoder(check=refuse).feed(data)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 1 << 20


def test_strangers_get_little_memory() -> None:
    with pytest.raises(ProtocolError, match="at most 1024"):
        Decoder(protocol.MOST_UNKNOWN).feed(header(kind=Kind.HELLO, dtype=255, ndim=0, length=1025))


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=300), st.integers(1, 300))
def test_random_bytes(data: bytes, step: int) -> None:
    decoder = Decoder(1 << 16)
    try:
        for start in range(0, len(data), step):
            decoder.feed(data[start : start + step])
    except ProtocolError:
        return
    assert len(decoder.buffer()) <= 1 << 16


@settings(max_examples=300, deadline=None)
@given(st.integers(0, 103), st.integers(0, 255), st.integers(0, 104))
def test_changed_and_truncated_messages(place: int, value: int, length: int) -> None:
    """The state accepts a message that a decoder lets through, or raises a typed error."""
    data = bytearray(sent(pushed(numpy.arange(8, dtype="float32"))))
    assert len(data) == 104
    data[place] = value
    decoder, state = Decoder(1 << 16), State(2)
    try:
        for message in decoder.feed(bytes(data[:length])):
            state.apply(0, message)
    except KVStoreError:
        return
    assert length < 104 or len(decoder.buffer()) > 0


def test_random_texts_are_refused() -> None:
    draw = random.Random(3)
    pieces = ["name", "piece", 0, -1, 1 << 70, None, [], {}, "float32", True, 1.5, "é", [[]], 1e400]
    for _ in range(2000):
        values = {
            key: draw.choice(pieces)
            for key in ("name", "piece", "shape", "dtype", "rounds", "staleness", "barrier")
            if draw.random() < 0.9
        }
        with pytest.raises(ProtocolError):
            declared(draw.getrandbits(64), values)
        with pytest.raises(ProtocolError):
            build({"name": draw.choice(pieces), "settings": draw.choice(pieces)})


@pytest.mark.parametrize("text", [b"", b"[]", b"{", b"\xff", b"[" * 100_000, b"1", b'{"a":NaN',
                                  b'{"proof": "\\ud800"}', b'{"a": [{"\\udfff": 1}]}'])  # fmt: skip
def test_texts_that_are_no_objects(text: bytes) -> None:
    with pytest.raises(ProtocolError, match=r"not (a )?JSON"):
        Message(Kind.HELLO, body=text).values()


@pytest.mark.parametrize(
    "given",
    [
        {"name": "__init__", "settings": {}},
        {"name": "sgd", "settings": {"__class__": 1}},
        {"name": "sgd", "settings": {"momentum": [1]}},
        {"name": "sgd", "settings": {"step": 1.0}},
        {"name": "sgd", "settings": {"_fused": None}},
        {"name": "sgd", "settings": {"lr_scheduler": None}},
    ],
)
def test_optimizers_are_names_and_numbers(given: dict[str, Any]) -> None:
    with pytest.raises(ProtocolError, match="OPTIMIZER"):
        build(given)


# ---- which server keeps what


@pytest.mark.parametrize("size", [0, 1, 5, 99, 100, 101, 1000, 12345])
@pytest.mark.parametrize("servers", [1, 2, 3, 8])
def test_pieces_cover_the_array(size: int, servers: int) -> None:
    pieces = pieces_of("int:3", size, servers, 100)
    assert [piece.begin for piece in pieces] == [0, *(piece.end for piece in pieces[:-1])]
    assert pieces[-1].end == size
    assert len({piece.server for piece in pieces}) == len(pieces) <= servers
    sizes = [piece.end - piece.begin for piece in pieces]
    assert max(sizes) - min(sizes) <= 1
    assert len(pieces) == max(1, min(servers, -(-size // 100)))


def test_small_keys_are_spread() -> None:
    homes = [pieces_of(key_name(key), 10, 4, 100)[0].server for key in range(400)]
    assert min(homes.count(server) for server in range(4)) > 60


def test_keys_that_cannot_be_sent() -> None:
    for key in ("\ud800", "k" * 1001, 10**1000, 10**5000):
        with pytest.raises(ArgumentError, match="at most 1000 characters"):
            key_name(key)


@pytest.mark.parametrize(
    ("shape", "dtype", "said"),
    [((3,), "bool", r"'w' is bool\[3\]"), ((), "complex64", "keep no complex64"),
     ((1,) * 9, "float32", "at most 8 dimensions")],
)  # fmt: skip
def test_arrays_that_cannot_be_sent(shape: tuple[int, ...], dtype: str, said: str) -> None:
    with pytest.raises((DTypeError, ShapeError), match=said):
        check_sendable("w", shape, dtype)


def test_keys_of_other_types_are_other_keys() -> None:
    assert key_number(key_name(3), 0) != key_number(key_name("3"), 0)
    assert key_number(key_name("a"), 1) != key_number(key_name("a"), 0)
