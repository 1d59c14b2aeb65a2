"""Every gradient rule: against central differences, on the tape and compiled, in every dtype."""

from __future__ import annotations

from typing import Any

import numpy
import op_table
import pytest
from op_table import (
    CASES,
    FLOATING,
    OPS,
    Case,
    Draw,
    expected_of,
    inputs_of,
    on_gemel,
)

import gemel
from gemel import autograd, np
from gemel.ir.graph import placeholder
from gemel.ir.interpret import spec_of
from gemel.ir.trace import Trace
from gemel.passes.gradient import gradient

SEED = 3
#: Operations with a gradient rule whose inputs in the table are only numbers or positions.
WITHOUT_ARRAYS = frozenset(("iota", "one_hot", "randint"))


def differentiable(case: Case) -> bool:
    """Whether the case has a floating input to differentiate."""
    if not case.op.differentiable or case.name in WITHOUT_ARRAYS:
        return False
    return any(not fixed(d) for d in case.draws)


def fixed(how: Draw) -> bool:
    """Whether an input is a number, a condition or a position."""
    return how.kind in ("number", "mask", "index", "place")


GRADIENTS = [case for case in CASES if differentiable(case)]


def softened(case: Case) -> Case:
    """The case drawn away from kinks and ties."""
    draws = case.smooth or tuple(
        d._replace(kind="smooth") if d.kind == "any" else d for d in case.draws
    )
    return case._replace(draws=draws)


def variables_of(case: Case, inputs: list[Any]) -> list[int]:
    """The positions of the inputs that are differentiated."""
    updated = case.op.updates
    return [
        position
        for position, (how, value) in enumerate(zip(case.draws, inputs, strict=True))
        if not fixed(how) and value.dtype.kind == "f" and position not in updated
    ]


def parameters_in(case: Case, dtype: str) -> dict[str, Any]:
    """The parameters; a floating result dtype is replaced by `dtype`."""
    wanted = "dtype" in case.parameters and case.parameters["dtype"] in FLOATING
    return {**case.parameters, "dtype": dtype} if wanted else dict(case.parameters)


def heads_for(values: list[Any]) -> list[Any]:
    """A random direction for each floating result."""
    generator = numpy.random.default_rng(7)
    return [generator.standard_normal(v.shape) if v.dtype.kind == "f" else None for v in values]


def objective(case: Case, inputs: list[Any], heads: list[Any]) -> float:
    """The sum of results times directions, computed by the reference."""
    values = expected_of(case, inputs, stream=(SEED, 0))
    pairs = zip(values, heads, strict=False)
    return float(sum((v * h).sum() for v, h in pairs if h is not None))


def differences(case: Case, inputs: list[Any], heads: Any, position: int) -> tuple[Any, float]:
    """A random direction for one input, and the slope of the objective along it."""
    direction = numpy.random.default_rng(position).standard_normal(inputs[position].shape)
    step = 1e-6
    sides = []
    for sign in (1, -1):
        moved = list(inputs)
        moved[position] = inputs[position] + sign * step * direction
        sides.append(objective(case, moved, heads))
    return direction, (sides[0] - sides[1]) / (2 * step)


def backward(function: Any, arrays: list[Any], positions: list[int], heads: Any) -> list[Any]:
    """The gradients of some arrays through one recorded call: without a plan, then as a plan."""
    for position in positions:
        arrays[position].attach_grad()
    ways = []
    for _ in range(2):
        op_table.seeded(SEED)
        with autograd.record():
            found = function(*arrays)
        several = found if isinstance(found, tuple) else (found,)
        pairs = [(y, h) for y, h in zip(several, heads, strict=False) if y.dtype in FLOATING]
        tapes = [(y, h) for y, h in pairs if h is not None and y._is_tracked]
        if tapes:
            given = [np.array(h, dtype=y.dtype) for y, h in tapes]
            autograd.backward([y for y, _ in tapes], given)
        ways.append([arrays[position].grad.asnumpy() for position in positions])
    for a, b in zip(*ways, strict=True):
        tolerance = {2: 2e-2, 4: 1e-4, 8: 1e-9}[a.dtype.itemsize]
        numpy.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance)
    return ways[1]


def used_heads(case: Case, values: list[Any]) -> list[Any]:
    """Directions for those results that a call gives; updates are written to inputs instead."""
    return [
        None if position in case.op.updates else head
        for position, head in enumerate(heads_for(values))
    ]


@pytest.mark.parametrize(
    "case, way",
    [
        (case, way)
        for case in GRADIENTS
        for way in ("imperative", "compiled")
        if case.name != "log_gamma"  # for its gradient see test_distributions
    ],
    ids=str,
)
def test_against_central_differences(case: Case, way: str) -> None:
    """In float64, along a random direction of each input."""
    case = softened(case)._replace(parameters=parameters_in(case, "float64"))
    inputs = inputs_of(case, "float64")
    positions = variables_of(case, inputs)
    op, parameters = case.op, case.parameters
    heads = used_heads(case, expected_of(case, inputs, stream=(SEED, 0)))

    def call(*xs: Any) -> Any:
        return op(*xs, **parameters)

    function = call if way == "imperative" else gemel.compile(call)
    found = backward(function, on_gemel(inputs), positions, heads)
    stopped = case.name == "stop_gradient"
    for position, g in zip(positions, found, strict=True):
        assert g.shape == inputs[position].shape
        assert g.dtype == inputs[position].dtype
        if stopped:
            assert not g.any()
            continue
        direction, slope = differences(case, inputs, heads, position)
        assert float((g * direction).sum()) == pytest.approx(slope, rel=2e-6, abs=2e-7)


@pytest.mark.parametrize("dtype", FLOATING)
@pytest.mark.parametrize("case", GRADIENTS, ids=str)
def test_a_gradient_has_its_input_s_spec(case: Case, dtype: str) -> None:
    """The gradient has the input's shape and dtype; tracing verifies the dtypes in between."""
    case = case._replace(parameters=parameters_in(case, dtype))
    inputs = inputs_of(case, dtype)
    positions = variables_of(case, inputs)
    with Trace():
        entries = [placeholder(spec_of(value)) for value in inputs]
        node = case.op.node(tuple(entries), case.op.complete(case.parameters))
        outputs = [e for e in node.entries if e.dtype.is_floating]
        heads = [placeholder(entry.spec) for entry in outputs]
        found = gradient(outputs, heads, [entries[position] for position in positions])
    for position, g in zip(positions, found, strict=True):
        assert g.spec == entries[position].spec


HALF = (
    "add", "multiply", "divide", "power", "tanh", "sigmoid", "gelu", "softmax", "log_softmax",
    "sum", "mean", "var", "max", "prod", "matmul", "gather", "scatter", "concatenate", "pick",
    "where", "limit", "leaky_relu", "batch_norm", "dropout", "basic_index",
)  # fmt: skip


@pytest.mark.parametrize("dtype", ["float16", "float32"])
@pytest.mark.parametrize("name", HALF)
def test_lower_precision_is_near_float64(name: str, dtype: str) -> None:
    case = softened(next(c for c in GRADIENTS if c.name == name))
    inputs = inputs_of(case, "float64")
    rounded = [v.astype(dtype) if getattr(v, "dtype", None) == "float64" else v for v in inputs]
    positions = variables_of(case, inputs)
    op, parameters = case.op, case.parameters
    heads = used_heads(case, expected_of(case, inputs, stream=(SEED, 0)))

    def call(*xs: Any) -> Any:
        return op(*xs, **parameters)

    wide = [v.astype("float64") if getattr(v, "dtype", None) == dtype else v for v in rounded]
    expected = backward(call, on_gemel(wide), positions, heads)
    found = backward(call, on_gemel(rounded), positions, heads)
    near = 2e-2 if dtype == "float16" else 2e-5
    for a, b in zip(found, expected, strict=True):
        assert a.dtype == dtype
        scale = max(1.0, float(abs(b).max()))
        numpy.testing.assert_allclose(a, b, rtol=near, atol=near * scale)


def test_every_rule_is_tested() -> None:
    rules = {name for name, op in OPS.items() if op.differentiable}
    tested = {case.name for case in GRADIENTS} | WITHOUT_ARRAYS | set(op_table.ELSEWHERE)
    assert not rules - tested
