"""The second gradient of every operation, against central differences of the first."""

from __future__ import annotations

from typing import Any

import numpy
import op_table
import pytest
from op_table import Case, inputs_of, on_gemel
from test_gradients import GRADIENTS, SEED, parameters_in, softened, used_heads, variables_of

from gemel import autograd, np
from gemel.errors import GradientError


def slope(case: Case, inputs: list[Any], positions: list[int], again: bool) -> Any:
    """The gradient of the results' squares along directions; with `again`, its own gradients."""
    arrays = on_gemel(inputs)
    variables = [arrays[position] for position in positions]
    for variable in variables:
        variable.attach_grad()
    op_table.seeded(SEED)
    with autograd.record():
        found = case.op(*arrays, **case.parameters)
        several = found if isinstance(found, tuple) else (found,)
        heads = used_heads(case, [y.asnumpy() for y in several])
        total: Any = 0.0
        for y, head in zip(several, heads, strict=False):
            if head is not None and y._is_tracked:
                total = total + (y * y * np.array(head, dtype="float64")).sum()
        if isinstance(total, float):
            return None
        first = autograd.grad(total, variables, create_graph=True)
        directions = [
            numpy.random.default_rng(p).standard_normal(inputs[p].shape) for p in positions
        ]
        pairs = zip(first, directions, strict=True)
        result = sum(
            ((g * np.array(d)).sum() for g, d in pairs), start=np.zeros((), dtype="float64")
        )
    if not again:
        return float(result.asnumpy())
    if not result._is_tracked:
        return [numpy.zeros(v.shape) for v in variables]
    return [g.asnumpy() for g in autograd.grad(result, variables)]


#: Operations whose gradient has none: it would need a further function of the family.
ONCE = {"digamma": "trigamma", "log_gamma": "gamma_slope"}


@pytest.mark.parametrize("case", [c for c in GRADIENTS if c.name in ONCE], ids=str)
def test_operations_without_a_second_gradient_say_so(case: Case) -> None:
    inputs = inputs_of(case, "float64")
    with pytest.raises(GradientError, match=f"{ONCE[case.name]} has no gradient"):
        slope(case, inputs, variables_of(case, inputs), True)


TWICE = [c for c in GRADIENTS if not c.op.updates and c.name not in ONCE]


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
