"""MXNet's sparse arrays in parameter files: they become dense, and damaged ones are refused."""

from __future__ import annotations

from struct import pack
from typing import Any

import numpy
import pytest

from gemel import nd, npx
from gemel.errors import ParameterFileError
from gemel.npx import serialize

ROWS, CSR = 1, 2


def shape(*extents: int) -> bytes:
    return pack(f"<i{len(extents)}q", len(extents), *extents)


def sparse(
    kind: int, extents: Any, elements: Any, *indices: Any, flag: int = 0, index_flag: int = 6,
    magic: int = 0xF993FAC9,
) -> bytes:  # fmt: skip
    parts = [pack("<Ii", magic, kind), shape(*elements.shape), shape(*extents)]
    parts.append(pack("<iii", 1, 0, flag))
    places = [numpy.array(each, "int64" if index_flag == 6 else "int32") for each in indices]
    parts += [pack("<i", index_flag) + shape(*each.shape) for each in places]
    parts += [elements.tobytes(), *(each.tobytes() for each in places)]
    return b"".join(parts)


def file(*arrays: bytes) -> bytes:
    names = [f"w{i}".encode() for i in range(len(arrays))]
    named = b"".join(pack("<Q", len(name)) + name for name in names)
    head = pack("<QQQ", 0x112, 0, len(arrays))
    return head + b"".join(arrays) + pack("<Q", len(names)) + named


def numbers(*extents: int, dtype: str = "float32") -> Any:
    return (numpy.arange(int(numpy.prod(extents))) + 1).reshape(extents).astype(dtype)


def read(*arrays: bytes) -> list[Any]:
    return list(serialize.read("bytes", file(*arrays)).values())


@pytest.mark.parametrize("index_flag", [4, 6])
@pytest.mark.parametrize("magic", [0xF993FAC9, 0xF993FACA])
def test_they_become_dense(index_flag: int, magic: int) -> None:
    form: dict[str, Any] = {"index_flag": index_flag, "magic": magic}
    rows, csr, dense = read(
        sparse(ROWS, (4, 3), numbers(2, 3), [1, 3], **form),
        sparse(CSR, (3, 4), numbers(4), [0, 2, 2, 4], [0, 3, 1, 2], **form),
        pack("<IiIqiii", 0xF993FAC9, 0, 1, 2, 1, 0, 0) + numbers(2).tobytes(),
    )
    assert rows.tolist() == [[0] * 3, [1, 2, 3], [0] * 3, [4, 5, 6]]
    assert csr.tolist() == [[1, 0, 0, 2], [0] * 4, [0, 3, 4, 0]]
    assert dense.tolist() == [1, 2]


@pytest.mark.parametrize(
    ("flag", "dtype"), [(1, "float64"), (2, "float16"), (3, "uint8"), (6, "int64"), (7, "bool")]
)
def test_their_dtypes(flag: int, dtype: str) -> None:
    rows, csr = read(
        sparse(ROWS, (3,), numbers(1, dtype=dtype), [1], flag=flag),
        sparse(CSR, (1, 2), numbers(1, dtype=dtype), [0, 1], [1], flag=flag),
    )
    assert (rows.dtype, csr.dtype) == (dtype, dtype)
    assert (rows.tolist(), csr.tolist()) == ([0, 1, 0], [[0, 1]])


def test_bfloat16() -> None:
    bits = (numbers(2).view("u4") >> 16).astype("u2")
    (found,) = read(sparse(CSR, (1, 3), bits, [0, 2], [0, 2], flag=12))
    assert (found.dtype, found.astype("float32").tolist()) == ("bfloat16", [[1, 0, 2]])


def test_nothing_stored() -> None:
    found = read(
        sparse(ROWS, (2, 3), numbers(0, 3), []),
        sparse(CSR, (2, 3), numbers(0), [0, 0, 0], []),
        sparse(ROWS, (2, 0), numbers(1, 0), [1]),
        sparse(CSR, (0, 2), numbers(0), [0], []),
    )
    assert [each.shape for each in found] == [(2, 3), (2, 3), (2, 0), (0, 2)]
    assert not any(each.asnumpy().any() for each in found)


def test_files(tmp_path: Any) -> None:
    """`npx.load` and MXNet 1's `nd.load` read them."""
    path = tmp_path / "w.params"
    path.write_bytes(file(sparse(ROWS, (2, 1), numbers(1, 1), [1])))
    assert (
        npx.load(path)["w0"].tolist() == nd.load(str(path))["w0"].asnumpy().tolist() == [[0], [1]]
    )


DAMAGED = {
    "storage type 3": pack("<Ii", 0xF993FAC9, 3) + bytes(40),
    "not below 4": sparse(ROWS, (4, 3), numbers(1, 3), [4]),
    "index that is not below 3": sparse(CSR, (1, 3), numbers(1), [0, 1], [-1]),
    r"stores \[1, 3\] of \[4, 3\]": sparse(ROWS, (4, 3), numbers(1, 3), [1, 2]),
    r"stores \[1, 2\] of \[4, 3\]": sparse(ROWS, (4, 3), numbers(1, 2), [1]),
    r"stores \[2\] of \[1, 3\]": sparse(CSR, (1, 3), numbers(2), [0, 2], [1]),
    "of \\[3\\]": sparse(CSR, (3,), numbers(1), [0, 1], [1]),
    "rows do not follow": sparse(CSR, (2, 3), numbers(2), [0, 3, 2], [0, 1]),
    "do not follow each other": sparse(CSR, (3, 3), numbers(1), [0, 1], [1]),
    r"indices are float32\[1\]": sparse(ROWS, (4, 3), numbers(1, 3), [1], index_flag=0),
    "too big|negative|maximum|exceeded": sparse(ROWS, (1 << 62, 3), numbers(1, 3), [1]),
    "damaged sparse array": sparse(ROWS, (-1, 3), numbers(0, 3), []),
}


@pytest.mark.parametrize("problem", DAMAGED)
def test_damaged_ones_are_refused(problem: str) -> None:
    with pytest.raises(ParameterFileError, match=problem):
        read(DAMAGED[problem])


def test_every_cut_is_refused() -> None:
    content = file(sparse(CSR, (2, 3), numbers(2), [0, 1, 2], [0, 1]))
    for length in range(len(content)):
        with pytest.raises(ParameterFileError):
            serialize.read("bytes", content[:length])
