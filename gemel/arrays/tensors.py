"""Safetensors files: arrays by name, as Hugging Face's tools write and read them.

Little-endian: ``u64 n``, then n bytes of JSON, ``{name: {"dtype": "F32", "shape": [2, 3],
"data_offsets": [begin, end]}, ...}``, then the elements. The arrays cover these without gaps.
"""

from __future__ import annotations

from math import prod
from struct import pack, unpack_from
from typing import Any, NoReturn

from gemel import _core
from gemel.arrays.making import array_like, from_buffer
from gemel.device import Device
from gemel.dtype import DType, as_dtype
from gemel.errors import ArgumentError, DTypeError, ParameterFileError

ENDING = ".safetensors"
_METADATA = "__metadata__"
_DTYPES = {
    "BOOL": "bool",
    "U8": "uint8",
    "I8": "int8",
    "U16": "uint16",
    "I16": "int16",
    "U32": "uint32",
    "I32": "int32",
    "U64": "uint64",
    "I64": "int64",
    "F16": "float16",
    "BF16": "bfloat16",
    "F32": "float32",
    "F64": "float64",
    "C64": "complex64",
}
_NAMES = {dtype: name for name, dtype in _DTYPES.items()}
_FIELDS = {"dtype", "shape", "data_offsets"}
_MAX_DIMENSIONS = 32


def written(arrays: Any) -> list[bytes]:
    """The bytes of a file, in pieces. Raises `ArgumentError` and `DTypeError`."""
    import json  # few programs need it

    if not isinstance(arrays, dict) or _METADATA in arrays:
        raise ArgumentError(
            f"save: a {ENDING} file has a dictionary of arrays, none of them named {_METADATA}"
        )
    found = {name: array_like(value) for name, value in arrays.items()}
    for name, array in found.items():
        if array.dtype.name not in _NAMES:
            raise DTypeError(
                f"save: {name!r} is {array.dtype}, which {ENDING} files do not have; convert it, "
                "or write a .params file"
            )
    places, position = {}, 0
    # Larger elements first, so that all of them are aligned in a file that is mapped into memory.
    order = sorted(found, key=lambda name: -found[name].dtype.itemsize)
    for name in order:
        begin, position = position, position + found[name].size * found[name].dtype.itemsize
        places[name] = [begin, position]
    head = {
        name: {
            "dtype": _NAMES[array.dtype.name],
            "shape": list(array.shape),
            "data_offsets": places[name],
        }
        for name, array in found.items()
    }
    text = json.dumps(head, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)
    return [pack("<Q", len(text)), text, *(_core.to_bytes(found[name]) for name in order)]


def is_safetensors(content: bytes) -> bool:
    """Whether a file begins like a safetensors file, and not like gemel's own: that has a checksum
    from byte 8 on, which may be anything, and then the mark of such files."""
    return content[8:9] == b"{" and content[12:16] not in (b"emeg", b"1meg")


def read(path: str, content: bytes, device: Device) -> dict[str, Any]:
    """The arrays of a file, in the order of its head. Raises `ParameterFileError`."""
    (length,) = unpack_from("<Q", content)
    if length > len(content) - 8:
        _fail(path, f"is truncated or damaged: its head takes {length} bytes, more than the file")
    elements = memoryview(content)[8 + length :]
    head = _head(path, content[8 : 8 + length])
    head.pop(_METADATA, None)
    found = {name: _entry(path, name, entry) for name, entry in head.items()}
    position = 0
    for begin, end, name in sorted((*places, name) for name, (_, _, places) in found.items()):
        if begin != position:
            _fail(path, f"is damaged: {name!r} begins at byte {begin} of the elements, which is "
                  f"not where the array before it ends, {position}")  # fmt: skip
        position = end
    if position != len(elements):
        _fail(path, f"is truncated or damaged: its arrays take {position} bytes and there are "
              f"{len(elements)}")  # fmt: skip
    return {
        name: from_buffer(elements[begin:end], dtype, shape, device)
        for name, (dtype, shape, (begin, end)) in found.items()
    }


def _head(path: str, text: bytes) -> dict[str, Any]:
    """The JSON object at the beginning of a file."""
    import json

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) != len(pairs):
            raise ValueError("a name is given twice")
        return found

    try:
        head = json.loads(text.decode(), object_pairs_hook=once)
    except (ValueError, RecursionError) as reason:
        _fail(path, f"is damaged: its head is not JSON: {reason}")
    if not isinstance(head, dict):
        _fail(path, "is damaged: its head is not an object")
    return head


def _entry(path: str, name: str, entry: Any) -> tuple[DType, tuple[int, ...], tuple[int, int]]:
    """The dtype, the shape and the place of an array's elements."""
    if not isinstance(entry, dict) or set(entry) != _FIELDS:
        _fail(path, f"is damaged: {name!r} needs exactly {', '.join(sorted(_FIELDS))}")
    if not isinstance(entry["dtype"], str) or entry["dtype"] not in _DTYPES:
        _fail(path, f"has {name!r} of dtype {entry['dtype']!r}, which gemel does not have "
              f"(it has {', '.join(_DTYPES)})")  # fmt: skip
    shape, places = entry["shape"], entry["data_offsets"]
    for what, numbers in (("shape", shape), ("data_offsets", places)):
        whole = isinstance(numbers, list) and all(type(n) is int for n in numbers)
        if not whole or not all(0 <= n < 1 << 63 for n in numbers):
            _fail(path, f"is damaged: the {what} of {name!r} is {numbers!r}")
    if len(shape) > _MAX_DIMENSIONS or len(places) != 2:
        _fail(path, f"is damaged: {name!r} has {len(shape)} dimensions and the offsets {places}")
    dtype = as_dtype(_DTYPES[entry["dtype"]])
    if places[1] - places[0] != prod(shape) * dtype.itemsize:
        _fail(path, f"is damaged: {name!r} is {dtype}{shape}, but has {places[1] - places[0]} "
              "bytes")  # fmt: skip
    return dtype, tuple(shape), (places[0], places[1])


def _fail(path: str, problem: str) -> NoReturn:
    raise ParameterFileError(f"parameter file {path} {problem}")
