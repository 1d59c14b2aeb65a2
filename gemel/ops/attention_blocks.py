"""Attention a few queries at a time, so that the scores of all are never in memory at once.

Decision 0050 has the reasons.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from gemel.errors import DTypeError, ShapeError
from gemel.ir.declare import composite
from gemel.ops.attention_rounds import attended, backward, forward, over_heads, returned
from gemel.ops.attention_sizes import HELD, RANGE, Cut, cut, pays
from gemel.ops.elementwise import cast, full, multiply, subtract
from gemel.ops.linalg import matmul
from gemel.ops.reduction import sum, widened
from gemel.spec import Spec, broadcast, product, same_shape


def in_blocks(query: Any, key: Any, value: Any, mask: Any) -> bool:
    """Whether this attention is computed in rounds: it has many scores and one floating dtype."""
    three = query, key, value
    if any(x.ndim < 2 or x.dtype is not query.dtype for x in three) or not query.dtype.is_floating:
        return False
    if not (mask is None or hasattr(mask, "shape")) or not key.shape[:-2] == value.shape[:-2]:
        return False
    width = query.shape[-1] + value.shape[-1]
    return pays(product(query.shape[:-2]), query.shape[-2], key.shape[-2], width)


# --- the operation ----------------------------------------------------------------------------


@composite(outputs=2, precision="wide")
def blocked_attention(
    query: Any,
    key: Any,
    value: Any,
    mask: Any = None,
    *,
    causal: bool = False,
    heads: int = 0,
    rows: int = 0,
) -> Any:
    """(softmax(query @ key.T) @ value, the logarithm of the sum of exp(scores) of each query).

    From (..., n, d), (..., m, d) and (..., m, v) to (..., n, v) and (..., n, 1). A plan works on
    `heads` heads or on `rows` queries of one head at a time; if both are 0, `cut` decides by the
    sizes. The computation, and the second result, have the dtype in which sums are accumulated.
    """
    found, sums = attended(widened(query), widened(key), widened(value), mask, causal)
    return cast(found, dtype=query.dtype), sums


@blocked_attention.spec
def _(
    query: Spec, key: Spec, value: Spec, mask: Spec | None = None, **ways: int
) -> tuple[Spec, Spec]:
    lead = check("blocked_attention", query, key, value, mask)
    rest = (*lead, query.shape[-2])
    return Spec((*rest, value.shape[-1]), query.dtype), Spec((*rest, 1), query.dtype.accumulate)


@blocked_attention.planned
def _(*arrays: Any, causal: bool, heads: int, rows: int) -> Any:
    query, key, *_ = arrays
    chosen = _cut(query, key, heads, rows, causal)
    return _in_parts(forward, arrays, chosen, _lead(query, key), causal)


@blocked_attention.whole
def _(query: Spec, key: Spec, *others: Spec, heads: int, rows: int, **ways: int) -> bool:
    return not (heads or rows) and are_held(query, key)


@blocked_attention.gradient
def _(g: Any, y: Any, query: Any, key: Any, value: Any, mask: Any = None, **ways: int) -> Any:
    (found, sums), (of_found, of_sums) = y, g
    if of_found is None:
        of_found = full(0, shape=found.shape, dtype=found.dtype)
    shift = sum(multiply(widened(of_found), widened(found)), axis=-1, keepdims=True)
    if of_sums is not None:
        shift = subtract(shift, of_sums)
    if any(not same_shape(x.shape[:-2], found.shape[:-2]) for x in (query, key, value)):
        # The gradient of what is the same for several heads is summed over them, and rounded then.
        query, key, value = map(widened, (query, key, value))
    given = [x for x in (of_found, query, key, value, sums, shift, mask) if x is not None]
    made = blocked_attention_backward(*given, **ways)
    return (*made, None)


@composite(outputs=3, precision="wide")
def blocked_attention_backward(
    g: Any,
    query: Any,
    key: Any,
    value: Any,
    sums: Any,
    shift: Any,
    mask: Any = None,
    *,
    causal: bool = False,
    heads: int = 0,
    rows: int = 0,
) -> Any:
    """The gradients of `blocked_attention`'s query, key and value.

    The weights are exp(scores - sums), and the gradients of the scores are
    weights * (g @ value.T - shift). Each gradient has the leading axes of the scores. Dao et al.,
    FlashAttention, NeurIPS 2022, algorithm 4.
    """
    dtype = query.dtype
    g, query, key, value = map(widened, (g, query, key, value))
    found = returned(g, query, key, value, sums, shift, mask, causal)
    return tuple(cast(x, dtype=dtype) for x in found)


@blocked_attention_backward.spec
def _(
    g: Spec,
    query: Spec,
    key: Spec,
    value: Spec,
    sums: Spec,
    shift: Spec,
    mask: Spec | None = None,
    **ways: int,
) -> tuple[Spec, ...]:
    lead = check("blocked_attention_backward", query, key, value, mask)
    rest = (*lead, query.shape[-2])
    wanted = (*rest, value.shape[-1]), (*rest, 1), (*rest, 1)
    given = g, sums, shift
    if not all(same_shape(x.shape, shape) for x, shape in zip(given, wanted, strict=True)):
        shapes = " and ".join(map(str, given))
        raise ShapeError(f"blocked_attention_backward: {shapes} must be {list(wanted)}")
    return tuple(Spec((*lead, *x.shape[-2:]), query.dtype) for x in (query, key, value))


@blocked_attention_backward.whole
def _(g: Spec, query: Spec, key: Spec, *others: Spec, heads: int, rows: int, **ways: int) -> bool:
    return not (heads or rows) and are_held(query, key)


def are_held(query: Spec, key: Spec) -> bool:
    """Whether a GPU has memory for all scores at once; for free sizes this sets a guard."""
    return bool(product(query.shape[:-1]) * key.shape[-2] <= HELD)


@blocked_attention_backward.planned
def _(*arrays: Any, causal: bool, heads: int, rows: int) -> Any:
    _, query, key, *_ = arrays
    # For each range of keys, two arrays of scores are in use.
    chosen = _cut(query, key, heads, rows, causal, 2 * RANGE)
    return _in_parts(backward, arrays, chosen, _lead(query, key), causal)


def _in_parts(
    body: Callable[..., list[Any]],
    arrays: Sequence[Any],
    chosen: Cut,
    lead: tuple[int, ...],
    causal: bool,
) -> tuple[Any, ...]:
    """The results of `body` on the arrays, cut as `chosen`. A missing mask is None among them."""
    given = [x for x in arrays if x is not None]
    some = partial(body, causal=causal, rows=chosen.queries)
    return tuple(over_heads(some, given, lead, chosen.heads))


def check(name: str, query: Spec, key: Spec, value: Spec, mask: Spec | None) -> tuple[int, ...]:
    """The leading axes of the scores. Raises `ShapeError` or `DTypeError`."""
    three = query, key, value
    if not query.dtype.is_floating or any(x.dtype is not query.dtype for x in three):
        raise DTypeError(
            f"{name}: {', '.join(map(str, three))}: all must have the same floating dtype"
        )
    scores = matmul.infer(query, Spec((*key.shape[:-2], *key.shape[:-3:-1]), key.dtype))[0]
    matmul.infer(scores, value)
    lead = scores.shape[:-2]
    for what, x in (("value", Spec((*value.shape[:-2], 1, 1), value.dtype)), ("mask", mask)):
        if x is not None and not same_shape(broadcast(name, scores, x), scores.shape):
            raise ShapeError(f"{name}: {what} {x} does not broadcast to the scores {scores}")
    if key.shape[-2] == 0:
        raise ShapeError(f"{name}: key {key} has no keys, so the weights are undefined")
    return lead


def _lead(query: Any, key: Any) -> tuple[int, ...]:
    specs = (Spec(x.shape[:-2], x.dtype) for x in (query, key))
    return tuple(broadcast("attention", *specs))


def _cut(query: Any, key: Any, heads: int, rows: int, causal: bool, most: int = 0) -> Cut:
    """The requested cut, or else the one chosen for these sizes."""
    lead = [n for n in _lead(query, key) if not n == 1] or [1]
    if heads or rows:
        return Cut(heads if heads and lead[-1] % heads == 0 and not rows else 1, rows)
    if product(lead) == 0 or query.shape[-2] == 0:
        return Cut(lead[-1], 0)
    return cut(lead[-1], query.shape[-2], key.shape[-2], most, causal)
