"""The package onnx, imported when it is needed, and its names for dtypes."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from gemel.dtype import BY_NAME, DType
from gemel.errors import DTypeError, MissingPackageError

#: ONNX's names of the dtypes, by gemel's names.
NAMES = {
    "bool": "BOOL",
    "uint8": "UINT8",
    "uint16": "UINT16",
    "uint32": "UINT32",
    "uint64": "UINT64",
    "int8": "INT8",
    "int16": "INT16",
    "int32": "INT32",
    "int64": "INT64",
    "float16": "FLOAT16",
    "bfloat16": "BFLOAT16",
    "float32": "FLOAT",
    "float64": "DOUBLE",
    "complex64": "COMPLEX64",
    "complex128": "COMPLEX128",
}


def onnx(part: str = "") -> Any:
    """The package onnx, or a part of it. Raises `MissingPackageError`."""
    try:
        return import_module(f"onnx.{part}" if part else "onnx")
    except ModuleNotFoundError as error:
        if error.name != "onnx":
            raise
        raise MissingPackageError(
            "gemel.onnx needs the package onnx: pip install gemel[onnx]"
        ) from None


def code_of(dtype: Any) -> int:
    """ONNX's code for a dtype."""
    name: str = DType(dtype).name
    found: int = onnx().TensorProto.DataType.Value(NAMES[name])
    return found


def dtype_of(code: int, whose: str) -> DType:
    """The dtype for ONNX's code. Raises `DTypeError`, which names `whose`."""
    kinds = onnx().TensorProto.DataType
    known = {kinds.Value(name): mine for mine, name in NAMES.items()}
    if code not in known:
        name = kinds.Name(code) if code in kinds.values() else code
        raise DTypeError(f"onnx: {whose}: gemel has no arrays of {name}; it has {', '.join(NAMES)}")
    return BY_NAME[known[code]]


def twin(dtype: Any) -> Any:
    """The NumPy dtype in which the package onnx stores elements of this dtype."""
    return onnx("helper").tensor_dtype_to_np_dtype(code_of(dtype))


__all__ = ["NAMES", "code_of", "dtype_of", "onnx", "twin"]
