"""Programs written once and called with NumPy and with gemel's `np`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy
import pytest

import gemel
from gemel import autograd, np

#: Called with a namespace and arrays of that namespace.
Program = Callable[..., Any]
Cases = dict[str, tuple[Program, tuple[Any, ...]]]


def listed(found: Any) -> list[Any]:
    values = found if isinstance(found, (tuple, list)) else (found,)
    return [value.asnumpy() if hasattr(value, "asnumpy") else value for value in values]


def same(found: Any, wanted: Any, exact: bool = True) -> None:
    found, wanted = listed(found), listed(wanted)
    assert len(found) == len(wanted)
    for a, b in zip(found, wanted, strict=True):
        b = numpy.asarray(b)
        assert (a.shape, a.dtype) == (b.shape, b.dtype)
        numpy.testing.assert_allclose(a, b, rtol=0 if exact else 1e-12)


def alike(program: Program, arrays: Sequence[Any], exact: bool = True) -> None:
    """Check that the program gives NumPy's results imperatively and compiled."""
    wanted = program(numpy, *arrays)
    same(program(np, *map(np.array, arrays)), wanted, exact)

    def traced(*entries: Any) -> Any:
        found = program(np, *entries)
        return tuple(found) if isinstance(found, (tuple, list)) else found

    same(gemel.compile(traced)(*map(np.array, arrays)), wanted, exact)


def direction_like(generator: Any, array: Any) -> Any:
    """Random numbers in an array's shape; complex if the array is complex."""
    found = generator.standard_normal(numpy.shape(array))
    if numpy.iscomplexobj(array):
        return found + 1j * generator.standard_normal(numpy.shape(array))
    return found


def check_gradients(program: Program, arrays: Sequence[Any]) -> None:
    """Compare slopes along random directions with central differences of NumPy's function.

    For complex numbers the gradient is dL/dRe + i dL/dIm.
    """
    generator = numpy.random.default_rng(3)
    heads = [direction_like(generator, y).conj() for y in listed(program(numpy, *arrays))]

    def objective(values: Any) -> float:
        found = listed(program(numpy, *values))
        return float(sum((y * h).sum().real for y, h in zip(found, heads, strict=True)))

    variables = [np.array(array) for array in arrays]
    for variable in variables:
        variable.attach_grad()
    with autograd.record():
        found = program(np, *variables)
        several = found if isinstance(found, (tuple, list)) else (found,)
        total = sum((y * np.array(h)).sum().real for y, h in zip(several, heads, strict=True))
    total.backward()
    for at, variable in enumerate(variables):
        direction = direction_like(generator, arrays[at])
        sides = []
        for step in (1e-6, -1e-6):
            moved = [a + step * direction if i == at else a for i, a in enumerate(arrays)]
            sides.append(objective(moved))
        slope = (sides[0] - sides[1]) / 2e-6
        gradient = variable.grad.asnumpy()
        assert gradient.dtype == arrays[at].dtype
        assert numpy.vdot(gradient, direction).real == pytest.approx(slope, rel=1e-5, abs=1e-8)
