"""Safetensors files: written, read, compared with their own library's, and damaged."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import numpy
import pytest

from gemel import gluon, np, npx
from gemel.dtype import DTYPES
from gemel.errors import ArgumentError, DTypeError, ParameterFileError

WRITTEN = [dtype.name for dtype in DTYPES if dtype.name != "complex128"]


def arrays() -> dict[str, Any]:
    shapes: list[tuple[int, ...]] = [(3,), (), (2, 0), (2, 3)]
    return {
        f"{dtype} ä {shape}": (np.arange(int(numpy.prod(shape))) % 2).reshape(shape).astype(dtype)
        for shape in shapes
        for dtype in WRITTEN
    }


def file(head: Any, elements: bytes = b"") -> bytes:
    text = head if isinstance(head, bytes) else json.dumps(head).encode()
    return struct.pack("<Q", len(text)) + text + elements


def entry(dtype: str = "F32", shape: Any = (2,), places: Any = (0, 8)) -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": places}


def test_all_that_is_written_comes_back(tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    given = arrays()
    npx.save(path, given)
    assert path.read_bytes()[8:9] == b"{"
    found = npx.load(path)
    assert list(found) == list(given)
    for name, array in given.items():
        assert (found[name].dtype, found[name].shape) == (array.dtype, array.shape)
        assert found[name].tolist() == array.tolist()
    with open(path, "rb") as opened:
        assert list(np.load(opened)) == list(given)
    npx.save(path, {})
    assert npx.load(path) == {}


def test_elements_are_aligned(tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    npx.save(path, {"flag": np.array([True]), "weight": np.ones(2, dtype="float64")})
    content = path.read_bytes()
    (length,) = struct.unpack_from("<Q", content)
    head = json.loads(content[8 : 8 + length])
    assert length % 8 == 0
    assert [head[name]["data_offsets"] for name in ("flag", "weight")] == [[16, 17], [0, 16]]


def test_what_others_write() -> None:
    """A head with metadata and without padding, in any order, also as long as MXNet's number."""
    head = {
        "__metadata__": {"format": "pt"},
        "b": entry("I8", [2], [8, 10]),
        "a": entry("F32", [1, 2], [0, 8]),
    }
    text = json.dumps(head).encode()
    elements = numpy.array([1.5, -2], "<f4").tobytes() + b"\x05\xff"
    for padding in (0, 0x112 - len(text)):
        found = load(file(text + b" " * padding, elements))
        assert (list(found), found["a"].tolist(), found["b"].tolist()) == (
            ["b", "a"], [[1.5, -2]], [5, -1],
        )  # fmt: skip


def load(content: bytes) -> Any:
    from gemel.npx import serialize

    return serialize.read("bytes", content)


def test_its_own_library_agrees(tmp_path: Path) -> None:
    library = pytest.importorskip("safetensors.numpy")
    path = str(tmp_path / "a.safetensors")
    given = {name: a for name, a in arrays().items() if "bfloat" not in name}
    npx.save(path, given)
    theirs = library.load_file(path)
    assert {name: a.tolist() for name, a in theirs.items()} == {
        name: a.tolist() for name, a in given.items()
    }
    assert {name: str(a.dtype) for name, a in theirs.items()} == {
        name: a.dtype.name for name, a in given.items()
    }
    library.save_file(theirs, path, metadata={"format": "np"})
    found = npx.load(path)
    assert all(found[name].tolist() == a.tolist() for name, a in given.items())


def test_networks(tmp_path: Path) -> None:
    """Parameters are written and read by their places, as in other files."""
    path = str(tmp_path / "net.safetensors")
    nets = [gluon.nn.HybridSequential(), gluon.nn.HybridSequential()]
    for net in nets:
        net.add(gluon.nn.Dense(3, in_units=2), gluon.nn.BatchNorm(in_channels=3))
        net.initialize()
    nets[0].save_parameters(path)
    assert {"0.weight", "1.running_var"} < set(npx.load(path))
    nets[1].load_parameters(path)
    x = np.ones((4, 2))
    assert nets[0](x).tolist() == nets[1](x).tolist()


def test_what_such_files_do_not_hold(tmp_path: Path) -> None:
    path = str(tmp_path / "a.safetensors")
    for value in (np.ones(2), [np.ones(2)], {"__metadata__": np.ones(2)}):
        with pytest.raises(ArgumentError, match="dictionary of arrays, none of them named"):
            npx.save(path, value)
    with pytest.raises(ArgumentError, match="must be text"):
        npx.save(path, {1: np.ones(2)})
    with pytest.raises(DTypeError, match="'w' is complex128"):
        npx.save(path, {"w": np.ones(2, dtype="complex128")})
    assert not Path(path).exists()


DAMAGED = {
    "more than the file": struct.pack("<Q", 1 << 62) + b"{}",
    "is not JSON": file(b"{" * 100_000),
    "'utf-8' codec": file(b'{"\xff"'),
    "given twice": file(b'{"a": 1, "a": 2}'),
    "needs exactly": file({"a": {"dtype": "F32"}}),
    "dtype 'F8_E5M2'": file({"a": entry("F8_E5M2")}),
    "of dtype None": file({"a": entry(None)}),  # type: ignore[arg-type]
    "the shape of 'a'": file({"a": entry(shape=[True])}),
    r"the shape of 'a' is \[-1\]": file({"a": entry(shape=[-1])}),
    "the data_offsets of 'a'": file({"a": entry(places="08")}),
    "33 dimensions": file({"a": entry(shape=[1] * 33, places=[0, 4])}, bytes(4)),
    "has 4 bytes": file({"a": entry(places=[0, 4])}, bytes(4)),
    "has -8 bytes": file({"a": entry(places=[8, 0])}, bytes(8)),
    "begins at byte 4": file({"a": entry(places=[4, 12])}, bytes(12)),
    "'b' begins at byte 0": file({"a": entry(), "b": entry()}, bytes(8)),
    "there are 4": file({"a": entry()}, bytes(4)),
    "there are 9": file({"a": entry()}, bytes(9)),
    r"take \d+ bytes and there are 0": file({"a": entry(shape=[1 << 60], places=[0, 1 << 62])}),
}


@pytest.mark.parametrize("problem", DAMAGED)
def test_damaged_files_are_refused(problem: str) -> None:
    with pytest.raises(ParameterFileError, match=problem):
        load(DAMAGED[problem])


def test_every_cut_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    npx.save(path, {"w": np.ones((2, 2))})
    content = path.read_bytes()
    for length in range(len(content)):
        with pytest.raises(ParameterFileError):
            load(content[:length])


def test_empty_arrays_of_any_length() -> None:
    found = load(file({"a": entry(shape=[1 << 40, 0], places=[0, 0])}))
    assert found["a"].shape == (1 << 40, 0)
