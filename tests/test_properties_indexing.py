"""x[key] against NumPy for any key, on views of views: imperative, compiled, at two sizes."""

from __future__ import annotations

from typing import Any

import numpy
from hypothesis import given
from hypothesis import strategies as st
from numpy_cases import (
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
    view,
    views,
)

DTYPES = st.sampled_from(["float32", "int64", "uint8", "bool", "float16"])


@examples(150)
@given(st.data())
def test_any_key_selects_what_numpy_selects(data: Any) -> None:
    base = numbered(data.draw(SHAPES), data.draw(DTYPES))
    steps = data.draw(views(base))
    twin = view(base, steps)
    key = data.draw(keys(twin.shape))
    x = view(on_gemel(base), steps)
    expected = outcome(lambda: twin[key])
    about = (base.shape, str(base.dtype), steps, key)
    agree(outcome(lambda: x[key]), expected, about)
    agree(outcome(lambda: x[on_gemel(key)]), expected, about)


@examples(60)
@given(st.data())
def test_compiled_functions_select_the_same(data: Any) -> None:
    """Arrays of positions are arguments or constants of the function; masks are constants."""
    shape = data.draw(SHAPES)
    key = data.draw(keys(shape))
    passed = data.draw(st.booleans())
    places = [i for i, item in enumerate(key) if passed and is_given(item) and item.dtype != bool]

    def select(x: Any, *arrays: Any) -> Any:
        items = list(key)
        for place, array in zip(places, arrays, strict=True):
            items[place] = array
        return x[tuple(items)]

    arrays = [key[place] for place in places]
    function = compiled(select)
    for rows in (0, 2):
        other = (shape[0] + rows, *shape[1:]) if shape else shape
        base = numbered(other, "float32")
        expected = outcome(lambda base=base: select(base, *arrays))
        given = on_gemel((base, *arrays))
        agree(outcome(lambda given=given: function(*given)), expected, (other, key))


@examples(60)
@given(st.data())
def test_basic_keys_are_views(data: Any) -> None:
    """A write into a view of a view is seen in the array, and the other way round."""
    base = numbered(data.draw(SHAPES), "int64")
    x = on_gemel(base)
    steps = [*data.draw(views(base))]
    key = data.draw(basic_keys(view(base, steps).shape))
    part = outcome(lambda: view(base, [*steps, key]))
    if isinstance(part, Refused) or not isinstance(part, numpy.ndarray):
        return
    mine = view(x, [*steps, key])
    view(base, [*steps, key])[...] = -1
    mine[...] = -1
    agree(x.asnumpy(), base, (steps, key))
    x[...] = 5
    agree(mine.asnumpy(), numpy.full(mine.shape, 5), (steps, key))
