"""How arrays are printed: as NumPy would print them if float32 were its default."""

from __future__ import annotations

from typing import Any

import numpy
import numpy._core.arrayprint as arrayprint
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from numpy_cases import examples

import gemel
from gemel import autograd, cpu, np
from gemel.dtype import DTYPES
from gemel.errors import TraceError

NAMES = tuple(dtype.name for dtype in DTYPES if dtype.twin is dtype and dtype.kind in "buifc")
#: The dtypes that NumPy would not print then.
IMPLIED = [numpy.int64, numpy.float32, numpy.bool_, numpy.complex64]


def expected(theirs: Any) -> str:
    """NumPy's own text, with other default dtypes."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(arrayprint, "_typelessdata", IMPLIED)
        return repr(theirs)


def check(theirs: Any) -> None:
    ours = np.array(theirs, dtype=theirs.dtype.name)
    assert repr(ours) == expected(theirs) == np.array_repr(ours)
    assert str(ours) == str(theirs) == np.array_str(ours)
    assert np.array2string(ours, separator=";") == numpy.array2string(theirs, separator=";")


SHAPES = ((), (1,), (3,), (0,), (0, 3), (2, 0, 2), (2, 3), (1, 1, 1), (2, 1, 3), (40,), (3, 30))


@pytest.mark.parametrize("name", NAMES)
def test_as_numpy_prints(name: str) -> None:
    draw = numpy.random.default_rng(5)
    for shape in (*SHAPES, (1001,), (40, 30), (11, 10, 10), (2, 1000)):
        for scale in (1, 120, 1e-5):
            values = numpy.asarray(draw.standard_normal(shape) * scale)
            check(numpy.asarray(abs(values) if name.startswith("u") else values).astype(name))
            check(numpy.asarray(abs(values).round(1)).astype(name))


@pytest.mark.parametrize("name", ["float16", "float32", "float64", "complex64"])
def test_repr_of_numbers_that_are_not_finite(name: str) -> None:
    odd = [numpy.nan, numpy.inf, -numpy.inf, -0.0, 1e-7, 1e7, 0.1, 1.0]
    with numpy.errstate(over="ignore"):
        check(numpy.array(odd).astype(name))
        check(numpy.array(odd[:3] * 6).astype(name))
        for value in odd:
            check(numpy.array(value).astype(name))


@examples(300)
@given(st.data())
def test_any_array(data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(NAMES))
    shape = data.draw(arrays.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=12))
    theirs = data.draw(arrays.arrays(name, shape))
    line = data.draw(st.sampled_from([40, 75, 120]))
    options: dict[str, Any] = {
        "precision": data.draw(st.integers(1, 9)),
        "threshold": data.draw(st.sampled_from([5, 100, 1000])),
        "edgeitems": data.draw(st.integers(1, 4)),
        "suppress": data.draw(st.booleans()),
    }
    with numpy.errstate(all="ignore"), np.printoptions(linewidth=line, **options):
        check(theirs)


def test_views_and_places() -> None:
    x = np.arange(6.0).reshape(2, 3)
    for view in (x.T, x[::-1], x[:, 1], x[1:, ::2]):
        assert repr(view) == expected(view.asnumpy())
    assert repr(np.ones((1, 2), device=cpu(1))) == "array([[1., 1.]], device=cpu(1))"
    assert repr(np.zeros(2, dtype="int8", device=cpu(2))) == (
        "array([0, 0], dtype=int8, device=cpu(2))"
    )
    wide = repr(np.ones(14, device=cpu(1)))
    assert wide.endswith("1., 1.],\n      device=cpu(1))") and len(wide.split("\n")[0]) == 63


def test_functions_numpy_lacks() -> None:
    x = np.array([1.0, 3.140625], dtype="bfloat16")
    assert repr(x) == "array([1.      , 3.140625], dtype=bfloat16)"
    assert str(x) == "[1.       3.140625]"


def test_one_setting_serves_both() -> None:
    x, before = np.array([1.23456789, 1e-9]), np.get_printoptions()
    try:
        np.set_printoptions(3, 100, 2, 60, True)
        assert repr(x) == "array([1.235, 0.   ])" and numpy.get_printoptions()["precision"] == 3
        numpy.set_printoptions(precision=2)
        assert str(x) == "[1.23 0.  ]" and np.get_printoptions()["suppress"]
        assert repr(np.arange(101)) == "array([  0,   1, ...,  99, 100], shape=(101,))"
        with np.printoptions(precision=1):
            assert repr(x) == "array([1.2, 0. ])"
        assert repr(x) == "array([1.23, 0.  ])"
    finally:
        np.set_printoptions(**before)
    with np.printoptions(override_repr=lambda found: f"<{found.shape}>"):
        assert repr(x) == "<(2,)>"
    assert np.array_repr(x, precision=2) == "array([1.23e+00, 1.00e-09])"
    assert np.array_repr(x, suppress_small=True) == "array([1.2345679, 0.       ])"
    assert np.array_repr(np.ones(8), max_line_width=20).count("\n") == 2
    assert np.array_str([0.25, 2.0], precision=1) == "[0.2 2. ]"
    assert numpy.array_repr(x) == repr(x), "NumPy's function, of a gemel array"


@pytest.mark.parametrize(
    ("value", "dtype", "form"),
    [
        (2.5, "float32", ".3f"),
        (0.1, "float32", ""),
        (1 / 3, "float64", "10.4e"),
        (3, "int64", "d"),
        (3, "uint8", "05d"),
        (-7, "int8", "+"),
        (0.25, "float16", "%"),
        (True, "bool", ""),
        (float("nan"), "float32", ".2f"),
    ],
)
def test_formats_of_one_number(value: Any, dtype: str, form: str) -> None:
    assert format(np.array(value, dtype=dtype), form) == format(numpy.array(value, dtype), form)


def test_formats_of_more() -> None:
    x = np.array([[1.5, 2.0]])
    assert f"{x}" == str(x) == "[[1.5 2. ]]" and f"{x!r}" == repr(x)
    assert f"{np.array(2.0, dtype='bfloat16'):.1f}" == "2.0"
    for array in (x, x[0, :1], np.zeros(0)):
        with pytest.raises(TypeError, match="formats one number"):
            format(array, ".2f")
    assert f"{np.array(2.5):.2f} {np.array([2.5])[0]:g}" == "2.50 2.5"
    assert f"{np.array(2.5):.2f} {np.array(3):d}" == "2.50 3"


def test_recorded_arrays_and_traces() -> None:
    x = np.array([1.0, 2.0])
    x.attach_grad()
    with autograd.record():
        y = x * 2
        assert repr(y) == "array([2., 4.])" and f"{y[0]:.1f}" == "2.0"
    y.backward()
    assert repr(x.grad) == "array([2., 2.])"

    def shows(a: Any) -> Any:
        return np.array_repr(a)

    with pytest.raises(TraceError, match="needs the value"):
        gemel.compile(shows)(x)


def test_notebooks() -> None:
    shown = np.zeros((2, 3), dtype="int8", device=cpu(1))._repr_html_()
    assert "2 x 3, int8, cpu(1)" in shown and "[[0 0 0]" in shown
    assert np.ones(5000)._repr_html_().count("1.") < 10
