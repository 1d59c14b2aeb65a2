"""Operators on quantized numbers."""

from __future__ import annotations

from typing import Any

from gemel import np
from gemel.onnx.read.table import imports
from gemel.onnx.types import dtype_of


def _lined(node: Any, x: Any, each: Any) -> Any:
    """Reshape one number per element of an axis so that it broadcasts; a single one stays as it
    is."""
    if each is None or each.ndim != 1 or x.ndim < 2 and each.shape[0] == 1:
        return each
    axis = node.get("axis", 1) % x.ndim
    return np.reshape(each, tuple(-1 if i == axis else 1 for i in range(x.ndim)))


@imports("QuantizeLinear")
def _(node: Any, x: Any, scale: Any, zero: Any = None) -> Any:
    _check_blocks(node)
    code = node.get("output_dtype", 0)
    dtype = (
        zero.dtype
        if zero is not None
        else dtype_of(code, node.where)
        if code
        else np.dtype("uint8")
    )
    found = np.rint(x / _lined(node, x, scale).astype(x.dtype))
    if zero is not None:
        found = found + _lined(node, x, zero).astype(found.dtype)
    return _kept(found, dtype)


@imports("DequantizeLinear")
def _(node: Any, x: Any, scale: Any, zero: Any = None) -> Any:
    _check_blocks(node)
    wide = x.astype("int32")
    if zero is not None:
        wide = wide - _lined(node, x, zero).astype("int32")
    return wide.astype(scale.dtype) * _lined(node, x, scale)


def _check_blocks(node: Any) -> None:
    if node.get("block_size", 0):
        raise node.refuse("scales of blocks are not done")


def _kept(x: Any, dtype: Any) -> Any:
    """Clip integers to the range of a dtype."""
    limits = np.iinfo(dtype)
    return np.clip(x, int(limits.min), int(limits.max)).astype(dtype)


@imports("DynamicQuantizeLinear")
def _(node: Any, x: Any) -> Any:
    least, most = np.minimum(x.min(), 0), np.maximum(x.max(), 0)
    scale = (most - least) / 255
    scale = np.where(scale == 0, 1, scale)  # zeros only; ONNX leaves it open
    zero = _kept(np.rint(-least / scale), "uint8")
    return _kept(np.rint(x / scale) + zero.astype("float32"), "uint8"), scale, zero


@imports("MatMulInteger")
def _(node: Any, a: Any, b: Any, zero_a: Any = None, zero_b: Any = None) -> Any:
    a, b = a.astype("int32"), b.astype("int32")
    if zero_a is not None:
        own = zero_a.astype("int32")
        a = a - (np.expand_dims(own, -1) if own.ndim else own)
    b = b if zero_b is None else b - zero_b.astype("int32")
    return np.matmul(a, b).astype("int32")
