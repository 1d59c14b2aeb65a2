"""Loops whose steps are functions: over the first axis of arrays, or while a condition holds."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from gemel import _core
from gemel.errors import ShapeError
from gemel.ir.graph import Entry
from gemel.ir.public import function
from gemel.ir.trace import Trace, current_trace, kept_whole
from gemel.ops.control import cond as choose
from gemel.ops.elementwise import full
from gemel.ops.logic import logical_and
from gemel.ops.rounds import Recording
from gemel.ops.shape import concatenate, operand, stack


def leaves(value: Any) -> list[Any]:
    """The arrays in nested lists, in order."""
    if not isinstance(value, (list, tuple)):
        return [value]
    return [leaf for item in value for leaf in leaves(item)]


def nested(values: Iterator[Any], given: Any) -> Any:
    """Values in lists, nested as those given."""
    if not isinstance(given, (list, tuple)):
        return next(values)
    return [nested(values, item) for item in given]


def mapped(change: Callable[..., Any], *given: Any) -> Any:
    """Nested lists with the arrays in each place of those given changed to one."""
    columns = zip(*map(leaves, given), strict=True)
    return nested(iter([change(*column) for column in columns]), given[0])


@function(public="npx")
def foreach(body: Callable[..., Any], data: Any, init_states: Any) -> Any:
    """body(element, states) -> (output, states), for each element of the first axis of data.

    data and states are arrays, or lists of them, which may be nested. The result is (outputs
    stacked along a new first axis, last states). In a trace it is one step of the program, for any
    length of the axis, and body is called twice. Written out, with the length of the axis fixed,
    are less than four rounds, and a body that does something else the second time, draws random
    numbers or writes to arrays from outside.

    >>> npx.foreach(lambda x, s: (x + s, x + s), np.array([1.0, 2.0, 3.0]), np.array(0.0))
    """
    whole = kept_whole("foreach")
    if whole is not None:
        return whole(body, data, init_states)
    return each_of(body, mapped(operand, data), init_states)


def each_of(body: Callable[..., Any], data: Any, states: Any, reverse: bool = False) -> Any:
    """`foreach`, from the last element to the first if `reverse`; outputs lie as the data do."""
    lengths = [array.shape[0] if array.shape else 0 for array in leaves(data)]
    if not lengths or not all(n == lengths[0] for n in lengths) or lengths[0] == 0:
        found = sorted({int(n) for n in lengths})
        raise ShapeError(f"foreach: first axes of {found}; all data must have the same, not 0")
    trace = current_trace()
    done: list[Any] = []  # rounds there are already
    whole = None if trace is None else _whole(trace, body, data, states, reverse, done)
    if whole is not None:
        return whole
    outputs = [output for output, _ in done]
    states = done[-1][1] if done else states
    places = range(int(lengths[0]))
    for place in (places[::-1] if reverse else places)[len(done) :]:
        output, states = body(mapped(lambda array, place=place: array[place], data), states)
        outputs.append(output)
    if reverse:
        outputs.reverse()
    return mapped(lambda *each: stack(each), *outputs), states


def _whole(
    trace: Trace,
    body: Callable[..., Any],
    data: Any,
    states: Any,
    reverse: bool,
    done: list[Any],
) -> tuple[Any, Any] | None:
    """All rounds as one operation of a trace; None where they are written out, behind those done.

    `done` gets the (output, states) of each.
    """
    first = leaves(states)
    if not all(isinstance(state, (Entry, _core.Array)) for state in first):
        return None

    def listed(elements: list[Any], carried: list[Any]) -> tuple[list[Any], list[Any]]:
        output, after = body(nested(iter(elements), data), nested(iter(carried), states))
        done.append((output, after))
        return leaves(mapped(operand, output)), leaves(mapped(operand, after))

    recording = Recording(trace, listed, leaves(data), first, reverse)
    made = recording.run()
    if made is None:
        del done[recording.begun :]
        return None
    found, (output, after) = iter(made), done[0]
    return nested(found, output), nested(found, after)


@function(public="npx")
def while_loop(
    cond: Callable[..., Any],
    func: Callable[..., Any],
    loop_vars: Any,
    max_iterations: int | None = None,
) -> Any:
    """func(*variables) -> (output, variables) while cond(*variables) holds, at most so often.

    The variables and the output are arrays, or lists of them, which may be nested. The result is
    (outputs stacked along a new first axis of `max_iterations`, zeros for steps that were not made;
    last variables). `max_iterations` has to be given: without it, as MXNet, `ValueError`. Waits for
    each condition, and the outputs of no steps are []. In a trace the steps are written out, each
    behind its condition, and the outputs of no steps are zeros, too.

    >>> npx.while_loop(lambda i: i < 3, lambda i: (i * 2, [i + 1]), [np.array(1)], 4)
    """
    if max_iterations is None:
        raise ValueError("while_loop: max_iterations must be given: outputs are as long as that")
    if isinstance(max_iterations, bool) or not isinstance(max_iterations, int):
        raise TypeError(f"while_loop: max_iterations must be a whole number, not {max_iterations}")
    whole = kept_whole("while_loop")
    if whole is not None:
        return whole(cond, func, loop_vars, max_iterations)
    single = not isinstance(loop_vars, (list, tuple))
    variables = [loop_vars] if single else list(loop_vars)
    outputs: list[Any] = []
    before: Any = True
    while len(outputs) < max_iterations:
        condition = cond(*variables)
        if isinstance(condition, Entry):
            before = condition if before is True else logical_and(before, condition)
            output, variables = _guarded(before, func, variables)
        elif not bool(condition):
            break
        else:
            output, found = func(*variables)
            variables = list(found) if isinstance(found, (list, tuple)) else [found]
        outputs.append(output)
    last = variables[0] if single else variables
    if not outputs:
        return [], last
    missing = max_iterations - len(outputs)
    found = mapped(lambda *each: stack(each), *outputs)
    return (mapped(lambda x: padded(x, missing), found) if missing else found), last


def _guarded(condition: Any, func: Callable[..., Any], variables: list[Any]) -> tuple[Any, Any]:
    """The output and the variables after a step, if the condition holds; else zeros, and as before.

    Only where it holds is the step made.
    """
    given: list[Any] = []

    def made(*values: Any) -> list[Any]:
        output, after = func(*nested(iter(values), variables))
        after = after if isinstance(after, (list, tuple)) else [after]
        given.append(mapped(operand, output))
        if len(leaves(after)) != len(values):
            raise ShapeError(
                f"while_loop: a step gives {len(leaves(after))} variables, it got {len(values)}"
            )
        return [*leaves(given[0]), *leaves(after)]

    def kept(*values: Any) -> list[Any]:
        zeros = [full(0, shape=tuple(x.shape), dtype=x.dtype) for x in leaves(given[0])]
        return [*zeros, *values]

    found = iter(choose(condition, made, kept, [operand(x) for x in leaves(variables)]))
    return nested(found, given[0]), nested(found, variables)


def padded(x: Any, missing: int) -> Any:
    """x with so many zeros more along its first axis."""
    return concatenate(x, full(0, shape=(missing, *x.shape[1:]), dtype=x.dtype), axis=0)
