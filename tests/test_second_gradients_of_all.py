"""The second gradient of every operation: against central differences of the first, and in traces.

In float64, so that a coefficient that is rounded to float32 on the way is noticed.
"""

from __future__ import annotations

from typing import Any

import numpy
import op_table
import pytest
from op_table import Case, inputs_of, on_gemel
from test_gradients import GRADIENTS, SEED, parameters_in, softened, used_heads, variables_of

import gemel
from gemel import autograd, np
from gemel.errors import GradientError


def directions_for(inputs: list[Any], positions: list[int]) -> list[Any]:
    return [numpy.random.default_rng(p).standard_normal(inputs[p].shape) for p in positions]


def objective(several: Any, heads: list[Any]) -> Any:
    """The sum of the results' squares along directions; None if no variable leads to them."""
    terms = [
        (y * y * np.array(head, dtype="float64")).sum()
        for y, head in zip(several, heads, strict=False)
        if head is not None and getattr(y, "_is_tracked", True)
    ]
    return sum(terms[1:], start=terms[0]) if terms else None


def along(gradients: Any, directions: list[Any]) -> Any:
    """The sum of gradients along directions."""
    pairs = zip(gradients, directions, strict=True)
    return sum(((g * np.array(d)).sum() for g, d in pairs), start=np.zeros((), dtype="float64"))


def slope(case: Case, inputs: list[Any], positions: list[int], again: bool) -> Any:
    """The gradient of `objective` along directions; with `again`, its own gradients."""
    arrays = on_gemel(inputs)
    variables = [arrays[position] for position in positions]
    for variable in variables:
        variable.attach_grad()
    op_table.seeded(SEED)
    with autograd.record():
        found = case.op(*arrays, **case.parameters)
        several = found if isinstance(found, tuple) else (found,)
        total = objective(several, used_heads(case, [y.asnumpy() for y in several]))
        if total is None:
            return None
        first = autograd.grad(total, variables, create_graph=True)
        result = along(first, directions_for(inputs, positions))
    if not again:
        return float(result.asnumpy())
    if not result._is_tracked:
        return [numpy.zeros(v.shape) for v in variables]
    return [g.asnumpy() for g in autograd.grad(result, variables)]


def slope_in_trace(case: Case, inputs: list[Any], positions: list[int]) -> list[Any]:
    """The second gradients that `slope` gives, all of it in one compiled function."""
    op_table.seeded(SEED)
    found = case.op(*on_gemel(inputs), **case.parameters)
    heads = used_heads(
        case, [y.asnumpy() for y in (found if isinstance(found, tuple) else (found,))]
    )

    @gemel.compile
    def function(*arrays: Any) -> Any:
        variables = [arrays[position] for position in positions]
        with autograd.record():
            found = case.op(*arrays, **case.parameters)
            total = objective(found if isinstance(found, tuple) else (found,), heads)
            first = autograd.grad(total, variables, create_graph=True)
            result = along(first, directions_for(inputs, positions))
        return autograd.grad(result, variables)

    op_table.seeded(SEED)
    return [g.asnumpy() for g in function(*on_gemel(inputs))]


#: Operations whose gradient has none: it would need a further function of the family.
ONCE = {"log_gamma": "gamma_slope"}


@pytest.mark.parametrize("case", [c for c in GRADIENTS if c.name in ONCE], ids=str)
def test_operations_without_a_second_gradient_say_so(case: Case) -> None:
    """When it is asked for, and not when the first one is taken with `create_graph`."""
    inputs = inputs_of(case, "float64")
    assert numpy.isfinite(slope(case, inputs, variables_of(case, inputs), False))
    with pytest.raises(GradientError, match=f"{ONCE[case.name]} has no gradient"):
        slope(case, inputs, variables_of(case, inputs), True)


TWICE = [c for c in GRADIENTS if c.name not in ONCE]


@pytest.mark.parametrize("case", TWICE, ids=str)
def test_against_differences_of_the_first(case: Case) -> None:
    """In float64, along a random direction of each input."""
    case = softened(case)._replace(parameters=parameters_in(case, "float64"))
    inputs = inputs_of(case, "float64")
    positions = variables_of(case, inputs)
    if not positions:
        pytest.skip("no floating input")
    found = slope(case, inputs, positions, True)
    if found is None:
        pytest.skip("no floating result")
    for position, gradient in zip(positions, found, strict=True):
        direction = numpy.random.default_rng(50 + position).standard_normal(gradient.shape)
        ends = []
        for step in (1e-5, -1e-5):
            moved = list(inputs)
            moved[position] = numpy.asarray(inputs[position] + step * direction)
            ends.append(slope(case, moved, positions, False))
        expected = (ends[0] - ends[1]) / 2e-5
        numpy.testing.assert_allclose((gradient * direction).sum(), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("case", TWICE, ids=str)
def test_the_same_in_a_trace(case: Case) -> None:
    case = softened(case)._replace(parameters=parameters_in(case, "float64"))
    inputs = inputs_of(case, "float64")
    positions = variables_of(case, inputs)
    expected = slope(case, inputs, positions, True) if positions else None
    if expected is None:
        pytest.skip("no floating input, or no floating result")
    found = slope_in_trace(case, inputs, positions)
    for a, b in zip(found, expected, strict=True):
        numpy.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-10 * max(abs(b).max(initial=0), 1))
