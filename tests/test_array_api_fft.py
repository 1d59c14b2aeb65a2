"""The standard's Fourier transforms, compared with NumPy's."""

from __future__ import annotations

from typing import Any

import numpy
import pytest
from array_api_draws import FLOATING, KINDS, arrays, check, same
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as drawn
from numpy_cases import examples

from gemel import np

SHAPES = drawn.array_shapes(min_dims=1, max_dims=3, max_side=4)
#: The dtypes that each transform takes.
ALONG = {
    "fft": "any floating",
    "ifft": "any floating",
    "rfft": "floating",
    "irfft": "any floating",
    "hfft": "any floating",
    "ihfft": "floating",
}
SEVERAL = {
    "fftn": "any floating",
    "ifftn": "any floating",
    "rfftn": "floating",
    "irfftn": "any floating",
}
NORMS = st.sampled_from(["backward", "ortho", "forward"])


@pytest.mark.parametrize("name", ALONG)
@examples(12)
@given(data=st.data())
def test_along_an_axis(name: str, data: Any) -> None:
    x = data.draw(arrays(KINDS[ALONG[name]], SHAPES, small=True))
    axis = data.draw(st.integers(-x.ndim, x.ndim - 1))
    halved = name in ("irfft", "hfft")
    n = data.draw(
        st.integers(1, 6) if halved and x.shape[axis] == 1 else st.none() | st.integers(1, 6)
    )
    same(f"fft.{name}", x, n=n, axis=axis, norm=data.draw(NORMS), tolerance=1e-3, slack=1e-4)


@pytest.mark.parametrize("name", SEVERAL)
@examples(12)
@given(data=st.data())
def test_along_several_axes(name: str, data: Any) -> None:
    x = data.draw(arrays(KINDS[SEVERAL[name]], SHAPES, small=True))
    axes = data.draw(st.permutations(range(-x.ndim, 0)))[: data.draw(st.integers(1, x.ndim))]
    sizes = st.lists(st.integers(1, 5), min_size=len(axes), max_size=len(axes))
    s = data.draw(sizes if name == "irfftn" else st.none() | sizes)
    norm = data.draw(NORMS)
    same(
        f"fft.{name}", x, s=s and tuple(s), axes=tuple(axes), norm=norm, tolerance=1e-3, slack=1e-4
    )


@examples(20)
@given(st.integers(1, 12), st.floats(0.25, 4), st.sampled_from([None, *FLOATING]))
def test_frequencies(n: int, d: float, dtype: Any) -> None:
    wanted = dtype or np.__array_namespace_info__().default_dtypes()["real floating"].name
    for name in ("fftfreq", "rfftfreq"):
        ours, theirs = getattr(np.fft, name), getattr(numpy.fft, name)
        own = ours(n, d=d, dtype=dtype and getattr(np, dtype), device=np.zeros(1).device)
        check(own, theirs(n, d=d).astype(wanted), (name, n, d))


@examples(20)
@given(arrays(KINDS["any floating"], SHAPES), st.data())
def test_shifts(x: Any, data: Any) -> None:
    one = st.integers(-x.ndim, x.ndim - 1)
    several = st.lists(one, min_size=1, unique_by=lambda axis: axis % x.ndim).map(tuple)
    axes = data.draw(st.one_of(st.none(), one, several))
    same("fft.fftshift", x, axes=axes)
    same("fft.ifftshift", x, axes=axes)
