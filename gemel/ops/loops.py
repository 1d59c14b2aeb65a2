"""Loops whose steps are functions: over the first axis of arrays, or while a condition holds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gemel.errors import ShapeError, TraceError
from gemel.ir.graph import Entry
from gemel.ir.public import function
from gemel.ops.elementwise import full
from gemel.ops.shape import concatenate, stack


def listed(values: Any) -> list[Any]:
    """One value, or several, as a list."""
    return list(values) if isinstance(values, (list, tuple)) else [values]


def like(values: list[Any], given: Any) -> Any:
    """Values as `given` was: a list, or one alone."""
    return values if isinstance(given, (list, tuple)) else values[0]


def stacked(outputs: list[Any]) -> Any:
    """What each step gave, along a new first axis."""
    last = outputs[-1]
    return like([stack(each) for each in zip(*map(listed, outputs), strict=True)], last)


@function(public="npx")
def foreach(body: Callable[..., Any], data: Any, init_states: Any) -> Any:
    """body(element, states) -> (output, states), for each element of the first axis of data.

    data and states are arrays, or lists of them. The result is (outputs stacked along a new first
    axis, last states). In a trace the steps are written out, and the length of the axis is fixed.

    >>> npx.foreach(lambda x, s: (x + s, x + s), np.array([1.0, 2.0, 3.0]), np.array(0.0))
    """
    arrays = listed(data)
    lengths = {int(array.shape[0]) for array in arrays}
    if len(lengths) != 1 or lengths == {0}:
        raise ShapeError(
            f"foreach: first axes of {sorted(lengths)}; all data must have the same, not 0"
        )
    states = init_states
    outputs: list[Any] = []
    for step in range(lengths.pop()):
        output, states = body(like([array[step] for array in arrays], data), states)
        outputs.append(output)
    return stacked(outputs), states


@function(public="npx")
def while_loop(
    cond: Callable[..., Any], func: Callable[..., Any], loop_vars: Any, max_iterations: int
) -> Any:
    """func(*variables) -> (output, variables) while cond(*variables) holds, at most so often.

    The result is (outputs stacked along a new first axis of `max_iterations`, zeros for steps that
    were not made; last variables). The outputs of no steps are []. Waits for each condition, so in
    a trace it must be a number.

    >>> npx.while_loop(lambda i: i < 3, lambda i: (i * 2, [i + 1]), [np.array(1)], 4)
    """
    variables = listed(loop_vars)
    outputs: list[Any] = []
    while len(outputs) < max_iterations:
        condition = cond(*variables)
        if isinstance(condition, Entry):
            raise TraceError(
                "while_loop: how many steps it makes depends on values, which are only known when "
                "the program runs; call it outside the hybridized function, or use npx.foreach "
                "over as many steps as there can be, with np.where keeping what is done"
            )
        if not bool(condition):
            break
        output, found = func(*variables)
        variables = listed(found)
        outputs.append(output)
    if not outputs:
        return [], like(variables, loop_vars)
    missing = max_iterations - len(outputs)
    found = stacked(outputs)
    if missing:
        found = like([padded(each, missing) for each in listed(found)], found)
    return found, like(variables, loop_vars)


def padded(x: Any, missing: int) -> Any:
    """x with so many zeros more along its first axis."""
    return concatenate(x, full(0, shape=(missing, *x.shape[1:]), dtype=x.dtype), axis=0)
