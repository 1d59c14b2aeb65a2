"""Attention in rounds: loops over heads, over queries, and over ranges of keys."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from gemel.extent import same_for_all
from gemel.ops.attention_sizes import Part, by_keys, by_queries
from gemel.ops.elementwise import add, cast, divide, exp, full, iota, log, multiply, subtract, where
from gemel.ops.linalg import matmul
from gemel.ops.logic import logical_and
from gemel.ops.reduction import max, sum, widened
from gemel.ops.rounds import repeated
from gemel.ops.shape import concatenate, narrow, reshape, swapaxes

INFINITY = float("inf")

# --- some queries -----------------------------------------------------------------------------


def _scores(query: Any, key: Any, mask: Any, causal: bool, first: Any, by_key: bool = False) -> Any:
    """query @ key.T, with -inf where masked; `first` is the position of the first query.

    With `by_key` transposed: one row for each key.
    """
    rows, columns = (key, query) if by_key else (query, key)
    scores = matmul(rows, swapaxes(columns, -1, -2))
    seen = mask if mask is None or not by_key or not mask.ndim else _turned(mask)
    if causal:
        shape = scores.shape[-2:]
        axes = (1, 0) if by_key else (0, 1)
        places, keys = (iota(shape=shape, axis=axis, dtype="int32") for axis in axes)
        before = keys <= (places if first is None else add(places, first))
        seen = before if seen is None else logical_and(seen, before)
    return scores if seen is None else where(cast(seen, dtype="bool"), scores, -INFINITY)


def _turned(x: Any) -> Any:
    """The last two axes exchanged; a 1-d array is one row and becomes one column."""
    return swapaxes(x if x.ndim > 1 else reshape(x, shape=(1, *x.shape)), -1, -2)


def attended(
    query: Any, key: Any, value: Any, mask: Any, causal: bool, first: Any = None
) -> tuple[Any, Any]:
    """The weighted values, and the logarithm of the sum of exp(scores), 0 if all are masked."""
    scores = _scores(query, key, mask, causal, first)
    top = max(scores, axis=-1, keepdims=True)
    # As in `masked_softmax`, which also decides what a NaN score affects.
    some = causal or mask is not None
    if some:
        top = where(top > -INFINITY, top, 0.0)
    raised = exp(subtract(scores, top))
    total = sum(raised, axis=-1, keepdims=True)
    if some:
        total = where(total > 0, total, 1.0)
    # Dividing the weighted values instead of the weights saves a pass over the weights.
    return multiply(matmul(raised, value), divide(1, total)), add(top, log(total))


def returned(
    g: Any,
    query: Any,
    key: Any,
    value: Any,
    sums: Any,
    shift: Any,
    mask: Any,
    causal: bool,
    first: Any = None,
) -> tuple[Any, Any, Any]:
    """The gradients of query, key and value that come from these queries.

    The scores have one row for each key, unless the mask has one row for each query. The products
    then read short contiguous rows; rows over all keys would often be a power of two apart.
    """
    by_key = mask is None or mask.ndim < 2 or mask.shape[-2] == 1
    scores = _scores(query, key, mask, causal, first, by_key)
    if by_key:
        of_weights, sums, shift = matmul(value, _turned(g)), _turned(sums), _turned(shift)
    else:
        of_weights = matmul(g, _turned(value))
    weights = exp(subtract(scores, sums))
    slopes = multiply(weights, subtract(of_weights, shift))
    turned = _turned(slopes)
    if by_key:
        return matmul(turned, key), matmul(slopes, query), matmul(weights, g)
    return matmul(slopes, key), matmul(turned, query), matmul(_turned(weights), g)


# --- all queries of some heads ----------------------------------------------------------------


def forward(
    query: Any, key: Any, value: Any, mask: Any = None, *, causal: bool, rows: int
) -> list[Any]:
    """The results for arrays (heads, n, columns), `rows` queries at a time."""
    dtype = query.dtype
    query, key, value = map(widened, (query, key, value))
    if not rows or not query.shape[1] >= 2 * rows:
        found, sums = attended(query, key, value, mask, causal)
        return [cast(found, dtype=dtype), sums]
    pieces = []
    for part in by_queries(query.shape[1], key.shape[1], rows, causal):

        def body(elements: list[Any], _: list[Any]) -> tuple[list[Any], list[Any]]:
            own, first, seen, keys, values = elements
            found, sums = attended(own, keys, values, seen, causal, first)
            return [cast(found, dtype=dtype), sums], []

        found, _ = _in_rounds(body, part, [query], [key, value], mask, causal, [])
        whole, sums = (reshape(x, shape=(1, part.length, x.shape[-1])) for x in found)
        unseen = _nothing_of(value, part.keys, value.shape[1])
        pieces.append([whole if unseen is None else add(whole, cast(unseen, dtype=dtype)), sums])
    return [_joined(list(each)) for each in zip(*pieces, strict=True)]


def backward(
    g: Any,
    query: Any,
    key: Any,
    value: Any,
    sums: Any,
    shift: Any,
    mask: Any = None,
    *,
    causal: bool,
    rows: int,
) -> list[Any]:
    """The gradients for arrays (heads, n, columns), `rows` queries at a time."""
    dtype = query.dtype
    g, query, key, value = map(widened, (g, query, key, value))
    if not rows or not query.shape[1] >= 2 * rows:
        whole = returned(g, query, key, value, sums, shift, mask, causal)
        return [cast(x, dtype=dtype) for x in whole]
    total, later, begin, end = None, None, query.shape[1], key.shape[1]
    by_key: list[list[Any]] = []
    for length, parts in reversed(by_keys(query.shape[1], key.shape[1], rows, causal)):
        pieces = []
        states = [_zeros(x, length) for x in (key, value)]
        for part in parts:

            def body(elements: list[Any], totals: list[Any]) -> tuple[list[Any], list[Any]]:
                own, into, sums, shift, first, seen, keys, values = elements
                made = returned(into, own, keys, values, sums, shift, seen, causal, first)
                return [made[0]], list(map(add, totals, made[1:]))

            by_query = [query, g, sums, shift]
            found, states = _in_rounds(body, part, by_query, [key, value], mask, causal, states)
            pieces.append(reshape(found[0], shape=(1, part.length, query.shape[-1])))
        start = parts[0].start if parts else query.shape[1]
        by_key.insert(0, _unseen(states, start, g, query, shift))
        if parts:
            own = _joined(pieces)
            total = _behind(total, later, begin - start, own)
            begin = start
        later, end = _nothing_of(key, end - length, key.shape[1]), end - length
    columns = [_joined(list(each)) for each in zip(*by_key, strict=True)]
    return [cast(x, dtype=dtype) for x in (total, *columns)]


def _in_rounds(
    body: Callable[[list[Any], list[Any]], tuple[list[Any], list[Any]]],
    part: Part,
    by_query: list[Any],
    by_key: list[Any],
    mask: Any,
    causal: bool,
    states: list[Any],
) -> tuple[list[Any], list[Any]]:
    """Run `body` over the rounds of a part of the queries. It gets its rows of `by_query`, the
    position of the first one (None unless causal), its part of the mask (or None) and `by_key`."""
    moves = mask is not None and not mask.shape[1] == 1
    data = [part.of_queries(x) for x in by_query]
    data += [part.starts()] if causal else []
    data += [part.of_queries(part.of_mask(mask))] if moves else []
    shared = [part.of_keys(x) for x in by_key]
    shared += [part.of_mask(mask)] if mask is not None and not moves else []

    def ordered(elements: list[Any], carried: list[Any], shared: list[Any]) -> Any:
        own, more = elements[: len(by_query)], iter(elements[len(by_query) :])
        keys, still = shared[: len(by_key)], iter(shared[len(by_key) :])
        first = next(more) if causal else None
        seen = next(more if moves else still, None)
        return body([*own, first, seen, *keys], carried)

    return repeated(ordered, data, states, shared)


def _zeros(like: Any, length: int) -> Any:
    return full(0, shape=(1, length, like.shape[2]), dtype=like.dtype)


def _behind(total: Any, later: Any, length: int, own: Any) -> Any:
    """The sum of `own` (1, rows, columns) and `total`, which begins `length` rows later. The rows
    before get `later`: what the later keys, which they do not see, contribute to them."""
    if total is None:
        return own if later is None else add(own, later)
    if same_for_all(length, 0):
        return add(own, total)
    rows = _zeros(own, length)
    return add(own, concatenate(rows if later is None else add(rows, later), total, axis=1))


def _nothing_of(x: Any, first: Any, end: Any) -> Any:
    """What the skipped rows of x (1, n, columns) add to a sum in which each has the weight 0.

    Zeros, but NaN in columns where one of the rows is not finite. A product with all rows would
    give these NaN, and skipping rows must not change the result. None if nothing is skipped.
    """
    if same_for_all(first, end):
        return None
    part = narrow(x, axis=1, start=first, length=end - first)
    return sum(multiply(part, 0.0), axis=1, keepdims=True)


def _unseen(states: list[Any], count: Any, g: Any, query: Any, shift: Any) -> list[Any]:
    """The gradients of keys and values plus what the first `count` queries, which do not see these
    keys, add to them: zeros, or NaN."""
    if same_for_all(count, 0):
        return states
    of_key, of_value, of_shift = (_nothing_of(x, 0, count) for x in (query, g, shift))
    slopes = add(sum(of_value, axis=-1, keepdims=True), of_shift)
    return [add(states[0], add(of_key, slopes)), add(states[1], of_value)]


def _joined(pieces: list[Any]) -> Any:
    """The pieces joined along the axis of the queries."""
    return pieces[0] if len(pieces) == 1 else concatenate(*pieces, axis=1)


# --- all heads --------------------------------------------------------------------------------


def over_heads(
    body: Callable[..., list[Any]], arrays: Sequence[Any], lead: tuple[int, ...], together: int
) -> list[Any]:
    """The results of `body`, which takes arrays (heads, rows, columns), for all leading axes. It
    gets `together` heads of the last leading axis at a time. Each leading axis has its own loop,
    because merging axes could require copies."""
    long = [axis for axis, n in enumerate(lead) if not n == 1]
    given = []
    for x in arrays:
        shape = (*(1,) * (len(lead) + 2 - x.ndim), *x.shape)
        axes = [shape[axis] for axis in long] or [1]
        given.append(reshape(x, shape=(*axes, *shape[-2:])))
    found = _over_axes(body, given, [lead[axis] for axis in long] or [1], together)
    return [reshape(x, shape=(*lead, *x.shape[-2:])) for x in found]


def _over_axes(
    body: Callable[..., list[Any]], arrays: Sequence[Any], lead: list[int], together: int
) -> list[Any]:
    """The body on parts of the leading axes, one after the other, or `together` at a time."""
    first, *rest = lead
    if not rest and same_for_all(first, together):
        return body(*arrays)
    moves = [not x.shape[0] == 1 for x in arrays]
    count = first if rest else first // together
    data = [x for x, moving in zip(arrays, moves, strict=True) if moving]
    shared = [x for x, moving in zip(arrays, moves, strict=True) if not moving]
    if rest:
        shared = [reshape(x, shape=x.shape[1:]) for x in shared]
    else:
        data = [reshape(x, shape=(count, together, *x.shape[1:])) for x in data]

    def some(elements: list[Any], _: list[Any], shared: list[Any]) -> tuple[list[Any], list[Any]]:
        own, still = iter(elements), iter(shared)
        given = [next(own if moving else still) for moving in moves]
        return (_over_axes(body, given, rest, together) if rest else body(*given)), []

    found, _ = repeated(some, data, shared=shared)
    return found if rest else [reshape(x, shape=(first, *x.shape[2:])) for x in found]
