"""Attention some queries at a time: the scores of all of them are never in memory at once.

Decision 0050 has the reasons.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

from gemel.errors import DTypeError, ShapeError
from gemel.extent import hold, minimum, same_for_all, seen
from gemel.ir.declare import composite
from gemel.ops.elementwise import add, cast, divide, exp, full, iota, log, multiply, subtract, where
from gemel.ops.linalg import matmul
from gemel.ops.logic import logical_and
from gemel.ops.reduction import max, sum, widened
from gemel.ops.rounds import repeated
from gemel.ops.shape import concatenate, narrow, reshape, swapaxes
from gemel.spec import Spec, broadcast, product, same_shape

INFINITY = float("inf")

# --- the cost model ---------------------------------------------------------------------------

#: Scores from which on the memory they take costs more than rounds do: 4 MiB in float32.
LEAST = 1 << 20
#: Scores worked on at once: with what is made of them they stay in the second-level cache.
TOGETHER = 1 << 16
#: For fewer queries than this keys and values would be read too often.
FEWEST = 64
#: Parts of causal attention, each of which sees the keys up to its own end.
PARTS = 4
#: Keys whose gradients are added up at a time, which stay in the cache; and the most such ranges.
RANGE, MOST_RANGES = 512, 16


class Cut(NamedTuple):
    """What a round works on: some heads with all of their queries, or some queries of one head."""

    heads: int
    queries: int  # 0: all


def pays(heads: int, queries: int, keys: int) -> bool:
    """Whether attention in rounds is worth it for so many heads, queries and keys.

    Of free sizes this is a guard: there is one program for those below and one for those above.
    """
    return heads * queries * keys >= LEAST


def in_blocks(query: Any, key: Any, value: Any, mask: Any) -> bool:
    """Whether `npx.attention` of these is computed in rounds: many scores, and one floating dtype.

    What MXNet's files have no operation for is written out.
    """
    three = query, key, value
    if any(x.ndim < 2 or x.dtype is not query.dtype for x in three) or not query.dtype.is_floating:
        return False
    if not (mask is None or hasattr(mask, "shape")) or not key.shape[:-2] == value.shape[:-2]:
        return False
    return pays(product(query.shape[:-2]), query.shape[-2], key.shape[-2])


def octave(extent: int) -> int:
    """The power of two an extent is at most, and above half of; a free one is held there."""
    power = 1 << (seen(extent) - 1).bit_length()
    hold(extent, power // 2, power)
    return power


def cut(heads: int, queries: int, keys: int, most: int = 0) -> Cut:
    """How the scores of `heads` heads of the last leading axis are cut; `most` keys at a time.

    Free numbers of keys are held between two powers of two, those of queries on one side of a
    bound; of heads that they divide.
    """
    power = octave(keys)
    power = builtins.min(power, most or power)
    rows = FEWEST if power * FEWEST > TOGETHER else TOGETHER // power
    if queries >= 2 * rows:
        return Cut(1, rows)
    few = (g for g in range(seen(heads), 1, -1) if seen(heads) % g == 0)
    together = next((g for g in few if g * seen(queries) * power <= TOGETHER), 1)
    return Cut(together if heads % together == 0 else 1, 0)


# --- the operation ----------------------------------------------------------------------------


@composite(outputs=2)
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

    (..., n, d), (..., m, d), (..., m, v) make (..., n, v) and (..., n, 1). A plan works on `heads`
    heads, or on `rows` queries of one head, at a time; 0 leaves it to sizes (`cut`). It is computed
    in the dtype of sums, in which the second result is.
    """
    found, sums = _attended(widened(query), widened(key), widened(value), mask, causal)
    return cast(found, dtype=query.dtype), sums


@blocked_attention.spec
def _(
    query: Spec,
    key: Spec,
    value: Spec,
    mask: Spec | None = None,
    *,
    causal: bool,
    heads: int,
    rows: int,
) -> tuple[Spec, Spec]:
    lead = check(query, key, value, mask)
    rest = (*lead, query.shape[-2])
    return Spec((*rest, value.shape[-1]), query.dtype), Spec((*rest, 1), query.dtype.accumulate)


@blocked_attention.planned
def _(
    query: Any,
    key: Any,
    value: Any,
    mask: Any = None,
    *,
    causal: bool,
    heads: int,
    rows: int,
) -> Any:
    chosen = _cut(query, key, heads, rows)
    arrays = [x for x in (query, key, value, mask) if x is not None]
    body = partial(_forward, causal=causal, rows=chosen.queries)
    found: Any = tuple(_over_heads(body, arrays, _lead(query, key), chosen.heads))
    return found


@blocked_attention.gradient
def _(
    g: Any,
    y: Any,
    query: Any,
    key: Any,
    value: Any,
    mask: Any = None,
    *,
    causal: bool,
    heads: int,
    rows: int,
) -> Any:
    (found, sums), (of_found, of_sums) = y, g
    if of_found is None:
        of_found = full(0, shape=found.shape, dtype=found.dtype)
    shift = sum(multiply(widened(of_found), widened(found)), axis=-1, keepdims=True)
    if of_sums is not None:
        shift = subtract(shift, of_sums)
    given = [x for x in (of_found, query, key, value, sums, shift, mask) if x is not None]
    made = blocked_attention_backward(*given, causal=causal, heads=heads, rows=rows)
    return (*made, None)


@composite(outputs=3)
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

    The weights are exp(scores - sums), those of the scores weights * (g @ value.T - shift). Each
    has the leading axes of the scores. Dao et al., FlashAttention, NeurIPS 2022, algorithm 4.
    """
    wide = [widened(x) for x in (g, query, key, value)]
    found = _returned(*wide, sums, shift, mask, causal)
    return tuple(cast(x, dtype=query.dtype) for x in found)


@blocked_attention_backward.spec
def _(
    g: Spec,
    query: Spec,
    key: Spec,
    value: Spec,
    sums: Spec,
    shift: Spec,
    mask: Spec | None = None,
    *,
    causal: bool,
    heads: int,
    rows: int,
) -> tuple[Spec, ...]:
    lead = check(query, key, value, mask)
    rest = (*lead, query.shape[-2])
    wanted = (*rest, value.shape[-1]), (*rest, 1), (*rest, 1)
    given = g, sums, shift
    if not all(same_shape(x.shape, shape) for x, shape in zip(given, wanted, strict=True)):
        shapes = " and ".join(map(str, given))
        raise ShapeError(f"blocked_attention_backward: {shapes} must be {list(wanted)}")
    return tuple(Spec((*lead, *x.shape[-2:]), query.dtype) for x in (query, key, value))


@blocked_attention_backward.planned
def _(
    g: Any,
    query: Any,
    key: Any,
    value: Any,
    sums: Any,
    shift: Any,
    mask: Any = None,
    *,
    causal: bool,
    heads: int,
    rows: int,
) -> Any:
    chosen = _cut(query, key, heads, rows, RANGE)
    arrays = [x for x in (g, query, key, value, sums, shift, mask) if x is not None]
    body = partial(_backward, causal=causal, rows=chosen.queries)
    found: Any = tuple(_over_heads(body, arrays, _lead(query, key), chosen.heads))
    return found


def check(query: Spec, key: Spec, value: Spec, mask: Spec | None) -> tuple[int, ...]:
    """The leading axes of the scores. Raises `ShapeError` or `DTypeError`."""
    three = query, key, value
    if not query.dtype.is_floating or any(x.dtype is not query.dtype for x in three):
        raise DTypeError(f"attention: {', '.join(map(str, three))}: one floating dtype for all")
    scores = matmul.infer(query, Spec((*key.shape[:-2], *key.shape[:-3:-1]), key.dtype))[0]
    matmul.infer(scores, value)
    lead = scores.shape[:-2]
    for what, x in (("value", Spec((*value.shape[:-2], 1, 1), value.dtype)), ("mask", mask)):
        if x is not None and not same_shape(broadcast("attention", scores, x), scores.shape):
            raise ShapeError(f"attention: {what} {x} does not broadcast to the scores {scores}")
    if key.shape[-2] == 0:
        raise ShapeError(f"attention: key {key} has no keys, so there are no weights")
    return lead


def _lead(query: Any, key: Any) -> tuple[int, ...]:
    specs = (Spec(x.shape[:-2], x.dtype) for x in (query, key))
    return tuple(broadcast("attention", *specs))


def _cut(query: Any, key: Any, heads: int, rows: int, most: int = 0) -> Cut:
    """The cut that is asked for, or the one for these sizes."""
    lead = [n for n in _lead(query, key) if not n == 1] or [1]
    if heads or rows:
        return Cut(heads if heads and lead[-1] % heads == 0 and not rows else 1, rows)
    if product(lead) == 0 or query.shape[-2] == 0:
        return Cut(lead[-1], 0)
    return cut(lead[-1], query.shape[-2], key.shape[-2], most)


# --- some queries -----------------------------------------------------------------------------


def _scores(
    query: Any, key: Any, mask: Any, causal: bool, first: Any, by_key: bool = False
) -> Any:
    """query @ key.T, -inf where it does not count; `first` is the place of the first query.

    Transposed, a row for each key, if `by_key`.
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
    """Rows as columns; what is one row for all becomes one column."""
    return swapaxes(x if x.ndim > 1 else reshape(x, shape=(1, *x.shape)), -1, -2)


def _attended(
    query: Any, key: Any, value: Any, mask: Any, causal: bool, first: Any = None
) -> tuple[Any, Any]:
    """The weighted values, and the logarithm of the sum of exp(scores): 0 where none counts."""
    scores = _scores(query, key, mask, causal, first)
    top = max(scores, axis=-1, keepdims=True)
    if mask is not None:
        top = where(top > -INFINITY, top, 0.0)
    raised = exp(subtract(scores, top))
    total = sum(raised, axis=-1, keepdims=True)
    if mask is not None:
        total = where(total > 0, total, 1.0)
    # Dividing the weighted values instead of the weights leaves out a pass over these.
    return multiply(matmul(raised, value), divide(1, total)), add(top, log(total))


def _returned(
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
    """The gradients of query, key and value that come by these queries.

    A row for each key: so all products read rows as they lie, where those of keys are long.
    """
    weights = exp(subtract(_scores(query, key, mask, causal, first, by_key=True), _turned(sums)))
    slopes = multiply(weights, subtract(matmul(value, _turned(g)), _turned(shift)))
    return matmul(_turned(slopes), key), matmul(slopes, query), matmul(weights, g)


# --- all queries of some heads ----------------------------------------------------------------


class Part(NamedTuple):
    """`rounds` times `rows` queries from `start` on, and the keys they see: so many from one on."""

    start: int
    rounds: int
    rows: int
    first: int
    keys: int

    @property
    def length(self) -> int:
        """How many queries they are."""
        return self.rounds * self.rows

    def of_queries(self, x: Any) -> Any:
        """The rows of an array (1, n, columns) for these, (rounds, 1, rows, columns)."""
        own = narrow(x, axis=1, start=self.start, length=self.length)
        return reshape(own, shape=(self.rounds, 1, self.rows, x.shape[-1]))

    def of_keys(self, x: Any, axis: int = 1) -> Any:
        """What lies along the keys, for those seen."""
        if same_for_all(x.shape[axis], self.keys):
            return x
        return narrow(x, axis=axis, start=self.first, length=self.keys)

    def of_mask(self, mask: Any) -> Any:
        """A mask (1, n or 1, m or 1) for these keys."""
        return mask if mask.shape[-1] == 1 else self.of_keys(mask, axis=2)

    def starts(self) -> Any:
        """The place of each round's first query, counted from the first key seen."""
        rounds = iota(shape=(self.rounds,), axis=0, dtype="int32")
        return add(multiply(rounds, self.rows), self.start - self.first)


def _by_queries(queries: int, keys: int, rows: int, causal: bool) -> list[Part]:
    """All queries, what is left over in a part of its own; later ones see more where causal."""
    count = queries // rows
    parts = PARTS if causal and count >= PARTS else 1
    ends = [count * (number + 1) // parts for number in range(parts)]
    found = [
        Part(start * rows, end - start, rows, 0, minimum(end * rows, keys) if causal else keys)
        for start, end in zip([0, *ends], ends, strict=False)
    ]
    left = queries - count * rows
    if not left == 0:
        found.append(Part(count * rows, 1, left, 0, minimum(queries, keys) if causal else keys))
    return found


def _by_keys(queries: int, keys: int, rows: int, causal: bool) -> list[tuple[int, list[Part]]]:
    """Ranges of keys, how many each, and the queries that see them: no earlier ones if causal."""
    count = builtins.max(1, builtins.min(MOST_RANGES, octave(keys) // RANGE))
    if causal and count < PARTS and keys >= PARTS * rows:
        count = PARTS
    rounds = queries // rows
    left = queries - rounds * rows
    found = []
    for number in range(count):
        first = keys * number // count
        length = keys * (number + 1) // count - first
        start = first // rows if causal else 0
        parts = []
        if start < rounds:
            parts.append(Part(start * rows, rounds - start, rows, first, length))
        if not left == 0 and (not causal or first < queries):
            parts.append(Part(rounds * rows, 1, left, first, length))
        found.append((length, parts))
    return found


def _forward(
    query: Any, key: Any, value: Any, mask: Any = None, *, causal: bool, rows: int
) -> list[Any]:
    """The results for arrays (heads, rows, columns), so many rows at a time."""
    dtype = query.dtype
    query, key, value = map(widened, (query, key, value))
    if not rows or not query.shape[1] >= 2 * rows:
        found, sums = _attended(query, key, value, mask, causal)
        return [cast(found, dtype=dtype), sums]
    pieces = []
    for part in _by_queries(query.shape[1], key.shape[1], rows, causal):

        def body(elements: list[Any], _: list[Any]) -> tuple[list[Any], list[Any]]:
            own, first, seen, keys, values = elements
            found, sums = _attended(own, keys, values, seen, causal, first)
            return [cast(found, dtype=dtype), sums], []

        found, _ = _in_rounds(body, part, [query], [key, value], mask, causal, [])
        pieces.append([reshape(x, shape=(1, part.length, x.shape[-1])) for x in found])
    return [_joined(list(each)) for each in zip(*pieces, strict=True)]


def _backward(
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
    """The gradients for arrays (heads, rows, columns), so many rows at a time."""
    dtype = query.dtype
    g, query, key, value = map(widened, (g, query, key, value))
    if not rows or not query.shape[1] >= 2 * rows:
        whole = _returned(g, query, key, value, sums, shift, mask, causal)
        return [cast(x, dtype=dtype) for x in whole]
    total, begin = None, query.shape[1]
    by_key: list[list[Any]] = []
    for length, parts in reversed(_by_keys(query.shape[1], key.shape[1], rows, causal)):
        pieces = []
        states = [_zeros(x, length) for x in (key, value)]
        for part in parts:

            def body(elements: list[Any], totals: list[Any]) -> tuple[list[Any], list[Any]]:
                own, into, sums, shift, first, seen, keys, values = elements
                made = _returned(into, own, keys, values, sums, shift, seen, causal, first)
                return [made[0]], list(map(add, totals, made[1:]))

            by_query = [query, g, sums, shift]
            found, states = _in_rounds(body, part, by_query, [key, value], mask, causal, states)
            pieces.append(reshape(found[0], shape=(1, part.length, query.shape[-1])))
        by_key.insert(0, states)
        if not parts:
            continue
        own = _joined(pieces)
        start = parts[0].start
        total = own if total is None else add(own, _behind_zeros(total, begin - start))
        begin = start
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
    """A part of the queries: `body` gets its rows of `by_query`, the place of the first one (None
    unless causal), its part of the mask (None without) and `by_key`."""
    moves = mask is not None and not mask.shape[1] == 1
    data = [part.of_queries(x) for x in by_query]
    data += [part.starts()] if causal else []
    data += [part.of_queries(part.of_mask(mask))] if moves else []
    alike = [part.of_keys(x) for x in by_key]
    alike += [part.of_mask(mask)] if mask is not None and not moves else []

    def ordered(elements: list[Any], carried: list[Any], others: list[Any]) -> Any:
        own, more = elements[: len(by_query)], iter(elements[len(by_query) :])
        keys, still = others[: len(by_key)], iter(others[len(by_key) :])
        first = next(more) if causal else None
        seen = next(more if moves else still, None)
        return body([*own, first, seen, *keys], carried)

    return repeated(ordered, data, states, alike)


def _zeros(like: Any, length: int) -> Any:
    return full(0, shape=(1, length, like.shape[2]), dtype=like.dtype)


def _behind_zeros(x: Any, length: int) -> Any:
    """x (1, rows, columns) with so many rows of zeros before it."""
    return x if same_for_all(length, 0) else concatenate(_zeros(x, length), x, axis=1)


def _joined(pieces: list[Any]) -> Any:
    """Pieces of all queries, one after another."""
    return pieces[0] if len(pieces) == 1 else concatenate(*pieces, axis=1)


# --- all heads --------------------------------------------------------------------------------


def _over_heads(
    body: Callable[..., list[Any]], arrays: Sequence[Any], lead: tuple[int, ...], together: int
) -> list[Any]:
    """What `body` makes of arrays (heads, rows, columns) for all leading axes, so many heads of the
    last one at a time: a loop for each axis, so that nothing moves to make one of several."""
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
    first, *rest = lead
    if not rest and same_for_all(first, together):
        return body(*arrays)
    moves = [not x.shape[0] == 1 for x in arrays]
    count = first if rest else first // together
    data = [x for x, moving in zip(arrays, moves, strict=True) if moving]
    alike = [x for x, moving in zip(arrays, moves, strict=True) if not moving]
    if rest:
        alike = [reshape(x, shape=x.shape[1:]) for x in alike]
    else:
        data = [reshape(x, shape=(count, together, *x.shape[1:])) for x in data]

    def some(elements: list[Any], _: list[Any], others: list[Any]) -> tuple[list[Any], list[Any]]:
        own, still = iter(elements), iter(others)
        given = [next(own if moving else still) for moving in moves]
        return (_over_axes(body, given, rest, together) if rest else body(*given)), []

    found, _ = repeated(some, data, alike=alike)
    return found if rest else [reshape(x, shape=(first, *x.shape[2:])) for x in found]
