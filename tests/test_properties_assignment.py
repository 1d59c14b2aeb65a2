"""x[key] = value and in-place operators against NumPy: views, overlaps, masks, other dtypes."""

from __future__ import annotations

import operator
from typing import Any

import numpy
from hypothesis import assume, given
from hypothesis import strategies as st
from numpy_cases import (
    NAMES,
    SHAPES,
    Refused,
    agree,
    basic_keys,
    compiled,
    examples,
    is_given,
    keys,
    numbered,
    on_gemel,
    outcome,
    promoted_as_ours,
    view,
    views,
)

DTYPES = st.sampled_from(["float32", "int64", "uint8", "bool", "float16", "float64"])


@st.composite
def values(draw: Any, shape: tuple[int, ...]) -> Any:
    """A number, a list or an array of any dtype, which mostly broadcasts to the shape."""
    kind = draw(st.integers(0, 5))
    if kind == 0:
        return draw(st.sampled_from([7, True, 2.5, numpy.float32(1.5), numpy.int8(3), 0]))
    kept = [n if draw(st.integers(0, 3)) else 1 for n in shape[draw(st.integers(0, len(shape))) :]]
    # Not for single elements and empty targets, where gemel and NumPy differ about extra axes.
    if shape and 0 not in shape and not draw(st.integers(0, 14)):
        kept.insert(0, draw(st.sampled_from([1, 2, 3])))
    found = numbered(tuple(kept), draw(DTYPES), 50)
    return found.tolist() if kind == 1 and found.size and len(kept) <= len(shape) else found


def put(x: Any, key: Any, value: Any) -> Any:
    x[key] = value
    return x


@examples(150)
@given(st.data())
def test_what_is_written_anywhere(data: Any) -> None:
    """Through views of views; values of any dtype are broadcast, or refused."""
    base = numbered(data.draw(SHAPES), data.draw(DTYPES))
    steps = data.draw(views(base))
    twin = view(base, steps)
    key = data.draw(keys(twin.shape))
    selected = outcome(lambda: twin[key])
    shape = () if isinstance(selected, Refused) else numpy.shape(selected)
    value = data.draw(values(shape))
    about = (base.shape, str(base.dtype), steps, key, value)
    x = on_gemel(base)
    given = on_gemel(value) if data.draw(st.booleans()) else value
    wanted = outcome(lambda: put(twin, key, value))
    mine = view(x, steps)
    agree(outcome(lambda: put(mine, key, given)), wanted, about)
    if not isinstance(wanted, Refused):
        agree(x.asnumpy(), base, about)


@examples(60)
@given(st.data())
def test_compiled_functions_write_the_same(data: Any) -> None:
    shape = data.draw(SHAPES)
    dtype = data.draw(DTYPES)
    key = data.draw(keys(shape))
    passed = data.draw(st.booleans())
    places = [i for i, item in enumerate(key) if passed and is_given(item)]
    selected = outcome(lambda: numbered(shape, dtype)[key])
    assume(not isinstance(selected, Refused))
    value = data.draw(values(numpy.shape(selected)))

    def write(x: Any, value: Any, *arrays: Any) -> Any:
        items = list(key)
        for place, array in zip(places, arrays, strict=True):
            items[place] = array
        y = x.copy()
        y[tuple(items)] = value
        return y

    arrays = [key[place] for place in places]
    function = compiled(write)
    for rows in (0, 2):
        other = (shape[0] + rows, *shape[1:]) if shape else shape
        base = numbered(other, dtype)
        expected = outcome(lambda base=base: write(base, value, *arrays))
        given = on_gemel((base, value, *arrays))
        agree(outcome(lambda given=given: function(*given)), expected, (other, dtype, key, value))


@examples(80)
@given(st.data())
def test_source_and_target_that_overlap(data: Any) -> None:
    """x[a] = x[b] and x[a] += x[b] read what was there before the write."""
    shape = data.draw(SHAPES.filter(len))
    base = numbered(shape, data.draw(st.sampled_from(["float32", "int32"])))
    half = max(shape[0] - 1, 0)
    ends = [slice(None, half), slice(shape[0] - half, None)]
    first, second = data.draw(st.sampled_from([ends, ends[::-1]]))
    if data.draw(st.booleans()):
        second = numpy.arange(shape[0])[second][::-1]
    if data.draw(st.booleans()):
        first = numpy.arange(shape[0])[first]
    way = data.draw(st.sampled_from(["write", "add", "mask", "flip"]))

    def change(x: Any) -> Any:
        if way == "write":
            x[on(first)] = x[on(second)]
        elif way == "add":
            x[on(first)] += x[on(second)]
        elif way == "flip":
            x[::-1] += x
        else:
            x[x > 3] = 1
            x[x == 1] += 2
        return x

    def on(key: Any) -> Any:
        return key

    about = (shape, first, second, way)
    x, y = on_gemel(base), on_gemel(base)
    wanted = outcome(lambda: change(base.copy()))
    agree(outcome(lambda: change(x)), wanted, about)
    if way != "mask":
        function = compiled(lambda x: change(x.copy()))
        agree(outcome(lambda: function(y)), wanted, about)


IN_PLACE = {
    name: getattr(operator, name)
    for name in (
        *("iadd", "isub", "imul", "itruediv", "ifloordiv", "imod", "ipow"),
        *("ilshift", "irshift", "iand", "ior", "ixor", "imatmul"),
    )
}


@examples(300)
@given(st.data())
def test_operators_in_place(data: Any) -> None:
    """On views, for pairs of dtypes and Python numbers; refused where NumPy refuses the cast."""
    name = data.draw(st.sampled_from(sorted(IN_PLACE)))
    function = IN_PLACE[name]
    base = numbered(data.draw(SHAPES), data.draw(st.sampled_from(NAMES)), 1)
    key = data.draw(basic_keys(base.shape))
    part = outcome(lambda: base[key])
    assume(isinstance(part, numpy.ndarray))
    shape = part.shape
    kept = [n if data.draw(st.integers(0, 3)) else 1 for n in shape]
    lead = data.draw(st.integers(0, len(kept)))
    other: Any = numbered(tuple(kept[lead:]), data.draw(st.sampled_from(NAMES)), 1)
    if data.draw(st.integers(0, 3)) == 0:
        other = data.draw(st.sampled_from([True, 1, 2, 3, 0, -1, 300, 2.0, 0.5]))
    x = on_gemel(base)
    given = on_gemel(other)
    twin = base[key]
    before = base.copy()
    exact = promoted_as_ours(twin, other) and not (
        name in ("itruediv", "ipow", "imatmul") or base.dtype == "float16"
    )
    wanted = outcome(lambda: function(twin, other))
    found = outcome(lambda: function(x[key], given))
    about = (name, shape, str(base.dtype), getattr(other, "dtype", other), other)
    if not promoted_as_ours(twin, other):
        return
    agree(found, wanted, about, 0 if exact else 1e-2 if base.dtype == "float16" else 1e-5)
    kept_back = before if isinstance(wanted, Refused) else base
    agree(x.asnumpy(), kept_back, about, 0 if exact else 1e-2)
