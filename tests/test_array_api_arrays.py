"""The standard's functions of shapes, positions, order, sets and statistics."""

from __future__ import annotations

import warnings
from typing import Any

import numpy
import pytest
from array_api_draws import KINDS, SHAPES, arrays, axes, check, promotable, same
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as drawn
from numpy_cases import examples

from gemel import np
from gemel.errors import ShapeError

ALL = arrays(KINDS["all"])
FILLED = SHAPES.filter(lambda shape: 0 not in shape)
LINED = SHAPES.filter(bool)


# --- shapes ---------------------------------------------------------------------------------


@examples(25)
@given(st.data())
def test_broadcasting(data: Any) -> None:
    count = data.draw(st.integers(1, 4))
    shapes = data.draw(
        drawn.mutually_broadcastable_shapes(num_shapes=count, max_dims=3, max_side=3)
    )
    given_ = [data.draw(arrays(KINDS["all"], shape)) for shape in shapes.input_shapes]
    same("broadcast_arrays", *given_)
    same("broadcast_to", given_[0], shapes.result_shape)


def joined(data: Any, count: int, free: int | None) -> tuple[list[Any], Any]:
    """Arrays of promotable dtypes, with shapes that are equal except along one axis."""
    shape = data.draw(SHAPES if free is None else LINED)
    axis = data.draw(st.integers(-len(shape), len(shape) - 1)) if free is not None else None
    pair = data.draw(st.sampled_from(promotable(KINDS["all"])))
    found = []
    for place in range(count):
        extents = list(shape)
        if axis is not None:
            extents[axis] = data.draw(st.integers(0, 3))
        found.append(data.draw(arrays(pair[place % 2], tuple(extents))))
    return found, axis


@examples(25)
@given(st.integers(1, 4), st.data())
def test_concat(count: int, data: Any) -> None:
    parts, axis = joined(data, count, 0)
    same("concat", parts, axis=axis)
    same("concat", tuple(parts), axis=None)


@examples(25)
@given(st.integers(1, 4), st.data())
def test_stack_and_unstack(count: int, data: Any) -> None:
    parts, _ = joined(data, count, None)
    axis = data.draw(st.integers(-parts[0].ndim - 1, parts[0].ndim))
    same("stack", parts, axis=axis)
    own = np.stack([np.asarray(part) for part in parts], axis=axis)
    found = np.unstack(own, axis=axis)
    assert isinstance(found, tuple)
    for a, b in zip(found, numpy.unstack(numpy.stack(parts, axis), axis=axis), strict=True):
        check(a, b)


@examples(25)
@given(ALL, st.data())
def test_new_and_old_axes(x: Any, data: Any) -> None:
    axis = data.draw(st.integers(-x.ndim - 1, x.ndim))
    same("expand_dims", x, axis=axis)
    wide = numpy.expand_dims(x, axis)
    same("squeeze", wide, axis)
    ones = [i for i, n in enumerate(wide.shape) if n == 1]
    same("squeeze", wide, tuple(data.draw(st.lists(st.sampled_from(ones), unique=True))))
    with pytest.raises(IndexError):
        np.expand_dims(np.asarray(x), axis=x.ndim + 1)
    long = [i for i, n in enumerate(x.shape) if n != 1]
    if long:
        with pytest.raises(ValueError, match="not 1"):
            np.squeeze(np.asarray(x), long[0])


@examples(25)
@given(ALL, st.data())
def test_flip_roll_and_permute(x: Any, data: Any) -> None:
    same("flip", x, axis=data.draw(axes(x.ndim)))
    order = tuple(data.draw(st.permutations(range(x.ndim))))
    same("permute_dims", x, order)
    to = tuple(data.draw(st.permutations(order)))
    count = data.draw(st.integers(0, x.ndim))
    same("moveaxis", x, order[:count], to[:count])
    if x.ndim:
        same("moveaxis", x, data.draw(st.integers(-x.ndim, x.ndim - 1)), 0)
    along = data.draw(axes(x.ndim))
    shift = st.integers(-9, 9)
    if isinstance(along, tuple):
        shifts = tuple(data.draw(shift) for _ in along)
        if along:
            same("roll", x, shifts, axis=along)
    else:
        same("roll", x, data.draw(shift), axis=along)


@examples(25)
@given(ALL, st.data())
def test_reshape(x: Any, data: Any) -> None:
    shape = list(data.draw(st.permutations(x.shape)))
    if shape and x.size and data.draw(st.booleans()):
        shape[data.draw(st.integers(0, len(shape) - 1))] = -1
    same("reshape", x, tuple(shape))
    same("reshape", x, (-1,) if x.size else (0,))
    own = np.asarray(x)
    copied = np.reshape(own, tuple(shape), copy=True)
    assert not np.shares_memory(copied, own)
    shared = np.reshape(own, tuple(shape), copy=False)
    assert not x.size or np.shares_memory(shared, own)


@examples(25)
@given(ALL, st.data())
def test_repetition(x: Any, data: Any) -> None:
    same("tile", x, tuple(data.draw(st.lists(st.integers(0, 3), max_size=4))))
    axis = (
        data.draw(st.integers(-x.ndim, x.ndim - 1)) if x.ndim and data.draw(st.booleans()) else None
    )
    same("repeat", x, data.draw(st.integers(0, 3)), axis=axis)
    count = x.size if axis is None else x.shape[axis]
    each = numpy.array([data.draw(st.integers(0, 2)) for _ in range(count)], "int64")
    same("repeat", x, each, axis=axis)


# --- positions ------------------------------------------------------------------------------


@examples(25)
@given(arrays(KINDS["all"], LINED), st.data())
def test_take(x: Any, data: Any) -> None:
    axis = data.draw(st.integers(-x.ndim, x.ndim - 1))
    extent = x.shape[axis]
    rows = st.lists(st.integers(-extent, extent - 1), max_size=5) if extent else st.just([])
    dtype = data.draw(st.sampled_from(["int8", "int32", "int64"]))
    at = numpy.array(data.draw(rows), dtype)
    same("take", x, at, axis=axis)
    if x.ndim == 1:
        same("take", x, at)


@examples(25)
@given(arrays(KINDS["all"], LINED), st.data())
def test_take_along_axis(x: Any, data: Any) -> None:
    axis = data.draw(st.integers(-x.ndim, x.ndim - 1))
    shape = list(x.shape)
    shape[axis] = data.draw(st.integers(0, 3)) if x.shape[axis] else 0
    most = max(x.shape[axis] - 1, 0)
    at = data.draw(drawn.arrays("int64", tuple(shape), elements=st.integers(-most, most)))
    same("take_along_axis", x, at, axis=axis)


@examples(25)
@given(ALL, st.data())
def test_mask(x: Any, data: Any) -> None:
    mask = data.draw(arrays("bool", x.shape[: data.draw(st.integers(0, x.ndim))]))
    own = np.asarray(x)
    check(own[np.asarray(mask)], x[mask], (x, mask))
    value = data.draw(arrays(x.dtype.name, ()))
    expected = x.copy()
    expected[mask] = value
    own[np.asarray(mask)] = np.asarray(value)
    check(own, expected, (x, mask, value))


@examples(25)
@given(arrays(KINDS["all"], FILLED.filter(bool)), st.data())
def test_integer_arrays_beside_integers(x: Any, data: Any) -> None:
    together = data.draw(drawn.array_shapes(min_dims=1, max_dims=2, max_side=3))
    key, own = [], []
    for extent in x.shape[: data.draw(st.integers(1, x.ndim))]:
        one = st.integers(-extent, extent - 1)
        if data.draw(st.booleans()):
            key.append(data.draw(one))
            own.append(key[-1])
        else:
            wide = data.draw(st.sampled_from(["int64", "int32", "int8"]))
            key.append(data.draw(drawn.arrays(wide, together, elements=one)))
            own.append(np.asarray(key[-1]))
    expected = x[tuple(key)]
    check(np.asarray(x)[tuple(own)], expected, (x, key))


# --- searching ------------------------------------------------------------------------------


@examples(30)
@given(
    arrays(KINDS["real"], FILLED), st.sampled_from(["argmax", "argmin"]), st.booleans(), st.data()
)
def test_extremes(x: Any, name: str, keep: bool, data: Any) -> None:
    axis = data.draw(st.sampled_from([None, *range(-x.ndim, x.ndim)]))
    same(name, x, axis=axis, keepdims=keep)


@examples(25)
@given(ALL, st.booleans(), st.data())
def test_counting(x: Any, keep: bool, data: Any) -> None:
    found = np.count_nonzero(np.asarray(x), axis=(axis := data.draw(axes(x.ndim))), keepdims=keep)
    check(found, numpy.asarray(numpy.count_nonzero(x, axis=axis, keepdims=keep)), (x, axis))
    if x.ndim:
        same("nonzero", x)
    same("all", x, axis=axis, keepdims=keep)
    same("any", x, axis=axis, keepdims=keep)


@examples(25)
@given(st.data())
def test_where(data: Any) -> None:
    shapes = data.draw(
        drawn.mutually_broadcastable_shapes(num_shapes=3, max_dims=3, max_side=3, min_side=0)
    )
    condition = data.draw(arrays("bool", shapes.input_shapes[0]))
    pair = data.draw(st.sampled_from(promotable(KINDS["all"])))
    a, b = (
        data.draw(arrays(name, s)) for name, s in zip(pair, shapes.input_shapes[1:], strict=True)
    )
    same("where", condition, a, b)
    number = a.flat[0].item() if a.size else a.dtype.type(1).item()
    same("where", condition, a, number)
    same("where", condition, number, a)


@examples(25)
@given(st.sampled_from(KINDS["real"]), st.sampled_from(["left", "right"]), st.data())
def test_searchsorted(dtype: str, side: Any, data: Any) -> None:
    row = data.draw(arrays(dtype, (data.draw(st.integers(0, 8)),), finite=True))
    other = [b for a, b in promotable(KINDS["real"]) if a == dtype]
    sought = data.draw(arrays(data.draw(st.sampled_from(other)), finite=True))
    same("searchsorted", numpy.sort(row), sought, side=side)
    same("searchsorted", row, sought, side=side, sorter=numpy.argsort(row))


# --- order ----------------------------------------------------------------------------------


@examples(30)
@given(arrays(KINDS["real"], LINED), st.booleans(), st.booleans(), st.data())
def test_sorting(x: Any, descending: bool, stable: bool, data: Any) -> None:
    axis = data.draw(st.integers(-x.ndim, x.ndim - 1))
    order = numpy.argsort(x, axis=axis, kind="stable")
    if descending:
        back = numpy.argsort(numpy.flip(x, axis), axis=axis, kind="stable")
        order = numpy.flip(x.shape[axis] - 1 - back, axis)
    expected = numpy.take_along_axis(x, order, axis)
    own = np.asarray(x)
    # Zeros of both signs compare equal, so an unstable sort may exchange them.
    found = np.sort(own, axis=axis, descending=descending, stable=stable) + np.asarray(
        0, dtype=own.dtype
    )
    check(found, expected + expected.dtype.type(0), (x, axis))
    places = np.argsort(own, axis=axis, descending=descending, stable=stable)
    check(places, order, (x, axis, descending))


# --- sets -----------------------------------------------------------------------------------


@examples(40)
@given(arrays(KINDS["all"]))
def test_sets(x: Any) -> None:
    own = np.asarray(x)
    found = np.unique_all(own)
    assert found._fields == ("values", "indices", "inverse_indices", "counts")
    assert np.unique_counts(own)._fields == ("values", "counts")
    assert np.unique_inverse(own)._fields == ("values", "inverse_indices")
    for name in ("unique_all", "unique_counts", "unique_inverse"):
        same(name, x)
    check(np.unique_values(own), numpy.unique(x, equal_nan=False))
    assert found.inverse_indices.shape == x.shape
    plain = x.reshape(-1)
    check(found.values, plain[found.indices.asnumpy()])
    if x.size and x.dtype.kind in "fc":
        assert int(np.isnan(found.values).sum()) == numpy.isnan(x).sum()


# --- statistics -----------------------------------------------------------------------------


@examples(30)
@given(arrays(KINDS["real"], FILLED), st.sampled_from(["max", "min"]), st.booleans(), st.data())
def test_largest_and_smallest(x: Any, name: str, keep: bool, data: Any) -> None:
    axis = data.draw(axes(x.ndim))
    check(
        getattr(np, name)(np.asarray(x), axis=axis, keepdims=keep)
        + np.asarray(0, dtype=x.dtype.name),
        numpy.asarray(getattr(numpy, name)(x, axis=axis, keepdims=keep) + x.dtype.type(0)),
        (name, x, axis),
    )


@examples(40)
@given(
    arrays(KINDS["numeric"], small=True), st.sampled_from(["sum", "prod"]), st.booleans(), st.data()
)
def test_sums_and_products(x: Any, name: str, keep: bool, data: Any) -> None:
    axis = data.draw(axes(x.ndim))
    expected = numpy.asarray(getattr(numpy, name)(x, axis=axis, keepdims=keep))
    own = getattr(np, name)(np.asarray(x), axis=axis, keepdims=keep)
    check(own, expected, (name, x, axis), 1e-3)
    dtype = data.draw(st.sampled_from([b for a, b in promotable(KINDS["all"]) if a == x.dtype]))
    if numpy.can_cast(x.dtype, dtype):
        same(
            name, x, axis=axis, keepdims=keep, dtype=numpy.dtype(dtype), tolerance=1e-3, slack=1e-4
        )


@examples(40)
@given(arrays(KINDS["floating"], FILLED, small=True), st.booleans(), st.data())
def test_means_and_variances(x: Any, keep: bool, data: Any) -> None:
    axis = data.draw(axes(x.ndim))
    found = np.mean(np.asarray(x), axis=axis, keepdims=keep)
    check(found + 0.0, numpy.asarray(numpy.mean(x, axis=axis, keepdims=keep) + 0), x, 1e-3)
    keywords = {"axis": axis, "keepdims": keep}
    keywords["correction"] = data.draw(st.sampled_from([0.0, 0, 1, 0.5, 5]))
    x = numpy.asarray(numpy.round(x))  # whole numbers: a division by zero would show any rounding
    for name in ("var", "std"):
        with numpy.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            exact = getattr(numpy, name)(x.astype("float64"), **keywords)
        found = getattr(np, name)(np.asarray(x), **keywords)
        assert found.dtype == x.dtype
        freedom = x.size / max(exact.size, 1) - keywords["correction"]
        if freedom > 0:
            numpy.testing.assert_allclose(found.asnumpy(), exact, 1e-3, 1e-5)
        else:
            assert not numpy.isfinite(found.asnumpy()).any(), (name, x, keywords)


@examples(40)
@given(arrays(KINDS["numeric"], LINED, small=True), st.booleans(), st.data())
def test_running_sums_and_products(x: Any, initial: bool, data: Any) -> None:
    axis = data.draw(st.integers(-x.ndim, x.ndim - 1))
    if x.ndim == 1 and data.draw(st.booleans()):
        axis = None
    for name in ("cumulative_sum", "cumulative_prod"):
        same(name, x, axis=axis, include_initial=initial, tolerance=1e-3, slack=1e-4)
        for dtype in (b for a, b in promotable(KINDS["all"]) if a == x.dtype and b[-2:] == "64"):
            given_ = {"axis": axis, "include_initial": initial, "dtype": numpy.dtype(dtype)}
            if numpy.can_cast(x.dtype, dtype):
                same(name, x, **given_, tolerance=1e-3, slack=1e-4)
    if x.ndim > 1:
        with pytest.raises(ShapeError, match="axis"):
            np.cumulative_sum(np.asarray(x))


@examples(30)
@given(arrays(KINDS["numeric"], LINED, finite=True), st.data())
def test_differences(x: Any, data: Any) -> None:
    axis = data.draw(st.integers(-x.ndim, x.ndim - 1))
    ends = {}
    for name in ("prepend", "append"):
        if data.draw(st.booleans()):
            shape = list(x.shape)
            shape[axis] = data.draw(st.integers(0, 2))
            ends[name] = data.draw(arrays(x.dtype.name, tuple(shape), finite=True))
    length = x.shape[axis] + sum(end.shape[axis] for end in ends.values())
    if length:
        same("diff", x, axis=axis, n=data.draw(st.integers(0, min(3, length))), **ends)
