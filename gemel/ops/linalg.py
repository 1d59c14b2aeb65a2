"""Matrix products."""

from __future__ import annotations

from typing import Any

from gemel.dtype import DType, as_dtype, int8, int16, int32, promote, uint8, uint16, uint32
from gemel.errors import DTypeError, ShapeError
from gemel.ir.above import above
from gemel.ir.declare import contraction
from gemel.ir.keywords import ROWS, into
from gemel.ir.public import Array, function
from gemel.ir.reference import numpy
from gemel.ops.elementwise import cast, multiply
from gemel.ops.reduction import in_dtype, sum
from gemel.ops.shape import broadcast_to, expand_dims, reshape, swapaxes, transpose
from gemel.spec import Spec, broadcast, product, promote_specs, same_shape


@contraction(public="np", common=ROWS, operator="matmul", onnx="MatMul", mxnet="_npi_matmul")
def matmul(a: Any, b: Any) -> Any:
    """Matrix product of the last two axes; the axes before them broadcast.

    A 1-d `a` is one row and a 1-d `b` one column, left out of the result. It is multiplied and
    added in the dtype that sums of the result's are: float16 in float32.
    """
    dtype = promote(as_dtype(a.dtype), as_dtype(b.dtype))
    wide = dtype.accumulate.name
    return numpy().matmul(a.astype(wide), b.astype(wide)).astype(dtype.name)


@matmul.spec
def _(a: Spec, b: Spec) -> Spec:
    if not a.ndim or not b.ndim:
        raise ShapeError(f"matmul: {a} @ {b}: a 0-d array has no axis to multiply; use *")
    rows = b.shape[-2] if b.ndim > 1 else b.shape[0]
    if not a.shape[-1] == rows:
        raise ShapeError(
            f"matmul: {a} @ {b}: the last axis of a ({a.shape[-1]}) must equal the "
            f"{'second last' if b.ndim > 1 else 'only'} axis of b ({rows})"
        )
    lead: tuple[int, ...] = ()
    if a.ndim > 2 or b.ndim > 2:
        lead = broadcast("matmul", Spec(a.shape[:-2], a.dtype), Spec(b.shape[:-2], b.dtype))
    tail = (a.shape[-2:-1] if a.ndim > 1 else ()) + (b.shape[-1:] if b.ndim > 1 else ())
    return Spec(lead + tail, promote_specs(a, b))


@matmul.holomorphic
def _(g: Any, y: Any, a: Any, b: Any) -> Any:
    rows = a if a.ndim > 1 else reshape(a, shape=(1, *a.shape))
    columns = b if b.ndim > 1 else reshape(b, shape=(*b.shape, 1))
    shape = (*g.shape[: g.ndim - (a.ndim > 1) - (b.ndim > 1)], rows.shape[-2], columns.shape[-1])
    g = reshape(g, shape=shape)
    if b.ndim <= 2 < len(shape):
        # One product sums over the leading axes, too, instead of one for each and then a sum.
        every = product(shape[:-1])
        flat = reshape(rows, shape=(every, rows.shape[-1]))
        db = matmul(swapaxes(flat, -1, -2), reshape(g, shape=(every, shape[-1])))
    else:
        db = _to_be_summed(columns, shape)(swapaxes(rows, -1, -2), g)
    da = _to_be_summed(rows, shape)(g, swapaxes(columns, -1, -2))
    return _like(da, a, -2), _like(db, b, -1)


def _to_be_summed(factor: Any, shape: tuple[Any, ...]) -> Any:
    """The product that gives the gradient of a factor. If the factor was broadcast to the leading
    axes of `shape`, the gradient is summed over them, so it is not rounded before."""
    summed = not same_shape(factor.shape[:-2], shape[:-2])
    return wide_matmul if summed and is_rounded(factor.dtype) else matmul


def is_rounded(dtype: DType) -> bool:
    """Whether products of this dtype are summed in another one, and then rounded."""
    return bool(dtype.is_floating and dtype.accumulate is not dtype)


@matmul.unrounded
@contraction()
def wide_matmul(a: Any, b: Any) -> Any:
    """`matmul` without rounding the result: it stays in the dtype of sums, to add something."""
    wide = promote(as_dtype(a.dtype), as_dtype(b.dtype)).accumulate.name
    return numpy().matmul(a.astype(wide), b.astype(wide))


@wide_matmul.spec
def _(a: Spec, b: Spec) -> Spec:
    found = matmul.infer(a, b)[0]
    return Spec(found.shape, found.dtype.accumulate)


@wide_matmul.gradient
def _(g: Any, y: Any, a: Any, b: Any) -> Any:
    # The forward result was rounded afterwards, so the gradient has that dtype, too.
    dtype = promote_specs(a.spec, b.spec)
    assert matmul.rules.gradient is not None
    return matmul.rules.gradient(cast(g, dtype=dtype), None, a, b)


#: The dtypes of two and four bytes that hold all values of a dtype of one byte.
WIDER = {int8: (int16, int32), uint8: (int16, int32, uint16, uint32)}


@contraction()
def matmul_of_bytes(a: Any, b: Any) -> Any:
    """`matmul` of int8 and uint8, in any combination, summed in int32: sums past it begin again."""
    return numpy().matmul(a.astype("int32"), b.astype("int32"))


@matmul_of_bytes.spec
def _(a: Spec, b: Spec) -> Spec:
    if not {a.dtype, b.dtype} <= WIDER.keys():
        raise DTypeError(f"matmul_of_bytes: {a} @ {b}: both must be int8 or uint8")
    return Spec(matmul.infer(a, b)[0].shape, int32)


def _bytes_of(factor: Any) -> Any:
    """The bytes that a factor has or was cast from without changing a value; else None."""
    if factor.dtype in (int8, uint8):
        return factor
    source = factor.node.inputs[0] if factor.node.op is cast else factor
    return source if factor.dtype in WIDER.get(source.dtype, ()) else None


def with_bias(a: Any, b: Any, bias: Any) -> Any:
    """a @ b + bias, rounded once, to their dtype."""
    dtype = promote(a.dtype, b.dtype)
    if not is_rounded(dtype):
        return matmul(a, b) + bias
    found = wide_matmul(a, b) + bias
    return cast(found, dtype=dtype) if bias.dtype is dtype else found


def _like(gradient: Any, operand: Any, axis: int) -> Any:
    """A gradient without the axis that `matmul` added to a 1-d operand."""
    if operand.ndim > 1:
        return gradient
    lead = tuple(range(gradient.ndim - 2))
    return reshape(sum(gradient, axis=lead) if lead else gradient, shape=operand.shape)


def decompose(a: Any, b: Any) -> Any:
    """A product that has no contraction kernel of its own, composed of others; else None.

    The product of two vectors is one sum, which runs at memory speed on all cores.
    """
    dtype = promote_specs(a.spec, b.spec)
    wide = dtype.accumulate
    if dtype.is_complex:
        return None
    rows, columns = _bytes_of(a), _bytes_of(b)
    if rows is not None and columns is not None and a.ndim + b.ndim > 2:
        # Integers of four bytes and less wrap, so bits above the lowest 32 change nothing.
        return cast(matmul_of_bytes(rows, columns), dtype=dtype)
    if not dtype.is_floating or a.ndim == b.ndim == 1:
        return _by_sum(a, b, dtype)
    if a.dtype.compute is wide and b.dtype.compute is wide:
        return None  # the kernel converts two-byte numbers when it reads them
    return in_dtype(matmul(cast(a, dtype=wide), cast(b, dtype=wide)), dtype)


def decompose_wide(a: Any, b: Any) -> Any:
    """The same for `wide_matmul`."""
    wide = promote_specs(a.spec, b.spec).accumulate
    if all(x.dtype.compute is wide and x.dtype.is_floating for x in (a, b)) and a.ndim + b.ndim > 2:
        return None
    rows, columns = cast(a, dtype=wide), cast(b, dtype=wide)
    found = decompose(rows, columns)
    return matmul(rows, columns) if found is None else found


def _by_sum(a: Any, b: Any, dtype: Any) -> Any:
    """A matrix product as a sum of elementwise products."""
    rows = a if a.ndim > 1 else reshape(a, shape=(1, *a.shape))
    columns = b if b.ndim > 1 else reshape(b, shape=(*b.shape, 1))
    result = matmul.infer(a.spec, b.spec)[0]
    left = expand_dims(rows, -1)
    right = expand_dims(columns, -3)
    left, right = (cast(x, dtype=dtype.accumulate) for x in (left, right))
    shape = broadcast("matmul", left.spec, right.spec)
    total = sum(multiply(broadcast_to(left, shape=shape), right), axis=-2)
    return cast(reshape(total, shape=result.shape), dtype=dtype)


@function(public="np", method=True)
def dot(a: Any, b: Any, out: Any = None) -> Array:
    """`np.dot`: the product of a's last axis with b's second last (or only) one.

    Numbers and 0-d arrays multiply; for two arrays of more than two dimensions all pairs of
    leading positions are combined, unlike `matmul`.
    """
    return _dot(a, b) if out is None else into("dot", out, _dot(a, b))


def _dot(a: Any, b: Any) -> Any:
    if not getattr(a, "ndim", 0) or not getattr(b, "ndim", 0):
        if isinstance(a, (list, tuple)) or isinstance(b, (list, tuple)):
            return _dot(above.as_array(a, (b,)), above.as_array(b, (a,)))
        return multiply(a, b)
    if b.ndim <= 2:
        return matmul(a, b) if a.ndim <= 2 or b.ndim == 1 else _many_by_one(a, b)
    found = matmul(_rows(a), b)  # (..., rows, n)
    order = (found.ndim - 2, *range(found.ndim - 2), found.ndim - 1)
    found = transpose(found, axes=order)
    return reshape(found, shape=(*a.shape[:-1], *b.shape[:-2], b.shape[-1]))


def _many_by_one(a: Any, b: Any) -> Any:
    """(..., k) times (k, n) as one product with all leading axes as rows."""
    return reshape(matmul(_rows(a), b), shape=(*a.shape[:-1], b.shape[-1]))


def _rows(a: Any) -> Any:
    """All leading axes as one. Its length is computed, because -1 fails for an empty array."""
    return reshape(a, shape=(product(a.shape[:-1]), a.shape[-1]))
