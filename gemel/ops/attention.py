"""Batched matrix products, softmax over a part, and attention, which consists of both."""

from __future__ import annotations

from typing import Any

from gemel.errors import DTypeError, ShapeError
from gemel.ir.declare import composite
from gemel.ir.public import Array, function, spelled
from gemel.ops.attention_blocks import blocked_attention, in_blocks
from gemel.ops.elementwise import (
    add,
    cast,
    divide,
    exp,
    iota,
    log,
    multiply,
    subtract,
    where,
)
from gemel.ops.layouts import array_of
from gemel.ops.linalg import matmul
from gemel.ops.logic import logical_and
from gemel.ops.neural import cooled, of_log_softmax, of_softmax, same, softmax
from gemel.ops.reduction import max, sum
from gemel.ops.shape import operand, operands, reshape, swapaxes, transpose
from gemel.ranges import counted
from gemel.spec import Spec, broadcast, check_axes, normalize_axis, same_shape

INFINITY = float("inf")


@function(public="npx")
@spelled(lhs="a", rhs="b")
def batch_dot(a: Any, b: Any, transpose_a: bool = False, transpose_b: bool = False) -> Array:
    """The matrix products of two batches: (N, n, k) and (N, k, m) give (N, n, m).

    With `transpose_a` a is (N, k, n), with `transpose_b` b is (N, m, k).

    >>> npx.batch_dot(np.ones((2, 1, 3)), np.ones((2, 3, 2)))
    """
    a, b = operands((a, b))
    if len(a.shape) != 3 or len(b.shape) != 3 or not a.shape[0] == b.shape[0]:
        raise ShapeError(
            f"batch_dot: {list(a.shape)} and {list(b.shape)} must have 3 axes, and the same "
            "first axis"
        )
    a = swapaxes(a, 1, 2) if transpose_a else a
    return matmul(a, swapaxes(b, 1, 2) if transpose_b else b)


def shifted(x: Any, mask: Any, axis: int) -> Any:
    """x minus its largest unmasked element; 0 where the mask is false."""
    top = max(where(mask, x, -INFINITY), axis=axis, keepdims=True)
    return where(mask, subtract(x, where(top > -INFINITY, top, 0.0)), 0.0)


@composite(public="npx", mxnet="_npx_masked_softmax")
def masked_softmax(x: Any, mask: Any, *, axis: int = -1) -> Any:
    """`softmax` over the elements whose mask is true; the others are 0, and all are 0 if none is
    true."""
    x, mask = cast(x, dtype=same(x.spec).dtype), cast(mask, dtype="bool")
    raised = where(mask, exp(shifted(x, mask, axis)), 0.0)
    total = sum(raised, axis=axis, keepdims=True)
    return multiply(raised, divide(1, where(total > 0, total, 1.0)))


@masked_softmax.facade
def _(
    data: Any,
    mask: Any,
    axis: int = -1,
    temperature: float | None = None,
    normalize: bool = True,
) -> Array:
    """softmax(data / temperature) of the elements whose mask is true; the others are 0.

    The mask broadcasts to data. Where none of a row counts, all of it is 0. The largest element
    is always subtracted first, whatever `normalize` says.

    >>> npx.masked_softmax(np.array([1.0, 2.0, 3.0]), np.array([True, True, False]))
    """
    return masked_softmax(cooled(data, temperature), mask, axis=axis)


@masked_softmax.gradient
def _(g: Any, y: Any, x: Any, mask: Any, *, axis: int) -> Any:
    return of_softmax(g, y, axis), None


@composite(public="npx", mxnet="_npx_masked_log_softmax")
def masked_log_softmax(x: Any, mask: Any, *, axis: int = -1) -> Any:
    """`log_softmax` over the elements whose mask is true; the others are -inf."""
    x, mask = cast(x, dtype=same(x.spec).dtype), cast(mask, dtype="bool")
    moved = shifted(x, mask, axis)
    total = sum(where(mask, exp(moved), 0.0), axis=axis, keepdims=True)
    return where(mask, subtract(moved, log(total)), -INFINITY)


@masked_log_softmax.facade
def _(data: Any, mask: Any, axis: int = -1, temperature: float | None = None) -> Array:
    """log_softmax(data / temperature) of the elements whose mask is true; the others are -inf.

    >>> npx.masked_log_softmax(np.array([1.0, 2.0, 3.0]), np.array([True, True, False]))
    """
    return masked_log_softmax(cooled(data, temperature), mask, axis=axis)


@masked_log_softmax.gradient
def _(g: Any, y: Any, x: Any, mask: Any, *, axis: int) -> Any:
    mask = cast(mask, dtype="bool")
    g = where(mask, g, 0.0)
    return of_log_softmax(g, y, axis), None


@masked_softmax.spec
@masked_log_softmax.spec
def _(x: Spec, mask: Spec, *, axis: int) -> Spec:
    normalize_axis("masked_softmax", axis, x.ndim)
    if not same_shape(broadcast("masked_softmax", x, mask), x.shape):
        raise ShapeError(f"masked_softmax: mask {mask} does not broadcast to {x}")
    return same(x)


@function(public="npx")
def attention(
    query: Any,
    key: Any,
    value: Any,
    mask: Any = None,
    scale: float | None = None,
    causal: bool = False,
    bias: Any = None,
) -> Array:
    """softmax(query @ key.T * scale + bias) @ value.

    (..., n, d), (..., m, d), (..., m, v) become (..., n, v). `scale` is 1 / sqrt(d) unless given. A
    mask that broadcasts to (..., n, m) is true where a query may see a key. With `causal`, a query
    sees no key after its own position. A query that sees no key gets zeros. Vaswani et al.,
    Attention is all you need, NeurIPS 2017.

    Many scores are computed in blocks of queries, and again for the gradient, so memory grows with
    n and m, not with their product. With a `bias`, which broadcasts to (..., n, m), all are kept.
    Raises `DTypeError` for a mask of floats, which could be meant as either.

    >>> x = np.eye(2)
    >>> npx.attention(x, x, x, causal=True)
    """
    query, key, value = operands((query, key, value))
    check_axes("attention", "query", query, "..., n, d")
    check_axes("attention", "key", key, "..., m, d")
    check_axes("attention", "value", value, "..., m, v")
    mask = None if mask is None else operand(mask)
    if mask is not None and mask.dtype.is_inexact:
        raise DTypeError(
            f"attention: mask {Spec(mask.shape, mask.dtype)}: a mask is true where a query may see "
            "a key, so use mask.astype(bool); what is to be added to the scores is bias="
        )
    query = multiply(query, _inverse_root(query) if scale is None else scale)
    if bias is None and in_blocks(query, key, value, mask):
        given = (query, key, value) if mask is None else (query, key, value, mask)
        return blocked_attention(*given, causal=causal)[0]
    scores = matmul(query, swapaxes(key, -1, -2))
    if bias is not None:
        scores = _biased(scores, operand(bias))
    if causal:
        shape = (query.shape[-2], key.shape[-2])
        places, seen = (iota(shape=shape, axis=axis, dtype="int64") for axis in (0, 1))
        before = seen <= places
        mask = before if mask is None else logical_and(mask, before)
    if key.shape[-2] == 0:
        weights = where(True if mask is None else mask, scores, 0.0)
    else:
        weights = softmax(scores) if mask is None else masked_softmax(scores, mask)
    return matmul(weights, value)


def _biased(scores: Any, bias: Any) -> Any:
    """scores + bias. Raises `ShapeError` if the bias does not broadcast to the scores."""
    given, whole = Spec(bias.shape, bias.dtype), Spec(scores.shape, scores.dtype)
    if not same_shape(broadcast("attention", whole, given), scores.shape):
        raise ShapeError(f"attention: bias {given} does not broadcast to the scores {whole}")
    return add(scores, cast(bias, dtype=scores.dtype))


def _inverse_root(x: Any) -> float:
    """1 / sqrt(size of the heads); 1 for heads of size 0, whose scores are 0."""
    size = int(x.shape[-1])
    return size**-0.5 if size else 1.0


# --- interleaved projections ----------------------------------------------------------------


def _parts(name: str, x: Any, heads: int, count: int) -> list[Any]:
    """Split (time, batch, heads * count * size) into `count` arrays (batch * heads, time, size)."""
    x = array_of(name, "the input", x, "time, batch, width")
    heads = counted(name, "heads", heads)
    time, batch, width = x.shape
    if not width % (heads * count) == 0:
        raise ShapeError(f"{name}: {list(x.shape)} does not divide into {heads} heads of {count}")
    each = reshape(x, shape=(time, batch, heads, count, width // (heads * count)))
    turned = transpose(each, axes=(3, 1, 2, 0, 4))
    joined = reshape(turned, shape=(count, batch * heads, time, width // (heads * count)))
    return [joined[number] for number in range(count)]


def _weighed(name: str, attention: Any, values: Any, heads: int) -> Any:
    """attention @ values, with the heads side by side again: (time, batch, heads * size)."""
    attention = array_of(name, "attention", attention, "batch * heads, time, time", (values,))
    found = matmul(attention, values)
    rows, time, size = found.shape
    apart = reshape(found, shape=(rows // heads, heads, time, size))
    return reshape(transpose(apart, axes=(2, 0, 1, 3)), shape=(time, rows // heads, heads * size))


def _scores(queries: Any, keys: Any) -> Any:
    """queries @ keys.T / sqrt(size)."""
    return matmul(multiply(queries, _inverse_root(queries)), swapaxes(keys, -1, -2))


@function(public="npx")
def interleaved_matmul_selfatt_qk(queries_keys_values: Any, heads: int) -> Array:
    """The scores of self-attention, (batch * heads, time, time): query @ key.T / sqrt(size).

    The input is (time, batch, heads * 3 * size): for each head its query, its key, its value.

    >>> npx.interleaved_matmul_selfatt_qk(np.ones((2, 1, 12)), heads=2)
    """
    name = "interleaved_matmul_selfatt_qk"
    queries, keys, _ = _parts(name, queries_keys_values, heads, 3)
    return _scores(queries, keys)


@function(public="npx")
def interleaved_matmul_selfatt_valatt(
    queries_keys_values: Any, attention: Any, heads: int
) -> Array:
    """attention (batch * heads, time, time) @ values: (time, batch, heads * size).

    >>> npx.interleaved_matmul_selfatt_valatt(np.ones((2, 1, 6)), np.ones((2, 2, 2)), heads=2)
    """
    name = "interleaved_matmul_selfatt_valatt"
    return _weighed(name, attention, _parts(name, queries_keys_values, heads, 3)[2], heads)


@function(public="npx")
def interleaved_matmul_encdec_qk(queries: Any, keys_values: Any, heads: int) -> Array:
    """The scores of attention to another sequence, (batch * heads, time, time of keys).

    queries are (time, batch, heads * size), keys_values (time of keys, batch, heads * 2 * size):
    for each head its key and its value.

    >>> npx.interleaved_matmul_encdec_qk(np.ones((2, 1, 4)), np.ones((3, 1, 8)), heads=2)
    """
    name = "interleaved_matmul_encdec_qk"
    keys, _ = _parts(name, keys_values, heads, 2)
    return _scores(_parts(name, queries, heads, 1)[0], keys)


@function(public="npx")
def interleaved_matmul_encdec_valatt(keys_values: Any, attention: Any, heads: int) -> Array:
    """attention (batch * heads, time, time of keys) @ values: (time, batch, heads * size).

    >>> npx.interleaved_matmul_encdec_valatt(np.ones((3, 1, 4)), np.ones((2, 2, 3)), heads=2)
    """
    name = "interleaved_matmul_encdec_valatt"
    return _weighed(name, attention, _parts(name, keys_values, heads, 2)[1], heads)
