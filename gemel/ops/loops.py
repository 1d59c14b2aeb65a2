"""Loops over Python functions: along the first axis of arrays, or while a condition holds."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from gemel import _core
from gemel.dtype import bool_
from gemel.errors import ArgumentError, OperandError, ShapeError, TraceError
from gemel.ir.current import current_trace
from gemel.ir.graph import Entry, Graph, inline, placeholder
from gemel.ir.loops import LoopSpec
from gemel.ir.public import function
from gemel.ir.trace import Trace, kept_whole
from gemel.lists import as_list
from gemel.ops.control import cond as choose
from gemel.ops.elementwise import full
from gemel.ops.logic import logical_and, not_equal
from gemel.ops.rounds import Conditional, Round, TracedLoop, is_whole
from gemel.ops.shape import concatenate, operand, reshape, stack
from gemel.spec import Spec, plain


def leaves(value: Any) -> list[Any]:
    """The arrays in nested lists, in order."""
    if not isinstance(value, (list, tuple)):
        return [value]
    return [leaf for item in value for leaf in leaves(item)]


def nested(values: Iterator[Any], given: Any) -> Any:
    """The next values in lists nested as `given`, each with the interface (nd or np) used there."""
    if not isinstance(given, (list, tuple)):
        value = next(values)
        return value.as_nd_ndarray() if getattr(given, "_is_nd", False) else value
    return [nested(values, item) for item in given]


def mapped(change: Callable[..., Any], *given: Any) -> Any:
    """`change` applied to the corresponding arrays of nested lists, nested as the first of them."""
    columns = zip(*map(leaves, given), strict=True)
    return nested(iter([change(*column) for column in columns]), given[0])


def pair(rule: str, returned: Any) -> tuple[Any, Any]:
    """What a loop's function returned, its output and what it carries on.

    Raises `OperandError` if these are not two, or not arrays; `rule` says what they should be.
    """
    if not isinstance(returned, (tuple, list)) or len(returned) != 2:
        raise OperandError(f"{rule}, not {returned!r}")
    if any(leaf is None for leaf in leaves(returned)):
        raise OperandError(f"{rule}, of arrays or lists of them, not {returned!r}")
    return returned[0], returned[1]


#: What the functions of loops must return.
EACH = "foreach: body must return (output, states)"
WHILE = "while_loop: func must return (output, variables)"


@function(public="npx")
def foreach(body: Callable[..., Any], data: Any, init_states: Any) -> Any:
    """Run body(element, states) -> (output, states) for each element of the first axis of data.

    data and states are arrays, or lists of them, which may be nested. The result is (outputs
    stacked along a new first axis, last states). In a trace it is one step of the program, for any
    length of the axis (for this one if body draws random numbers), and body is called twice. The
    loop is unrolled, for a fixed length, if it has less than four rounds, or if body does something
    different the second time or writes to arrays from outside. If the axis is empty, body is traced
    for the shapes of its outputs, which are empty, too.

    >>> npx.foreach(lambda x, s: (x + s, x + s), np.array([1.0, 2.0, 3.0]), np.array(0.0))
    """
    whole = kept_whole("foreach")
    if whole is not None:
        return whole(body, data, init_states)
    return each_of(body, mapped(operand, data), init_states)


def _lengths(data: Any) -> list[Any]:
    """The lengths of the first axes of all data, which must be equal."""
    shapes = [array.shape for array in leaves(data)]
    if not all(shapes):
        raise ShapeError("foreach: the data has no axes, but foreach iterates over its first axis")
    lengths = [shape[0] for shape in shapes]
    if not lengths or not all(n == lengths[0] for n in lengths):
        found = sorted({int(n) for n in lengths})
        raise ShapeError(
            f"foreach: the first axes have lengths {found}; all data must have the same length"
        )
    return lengths


def each_of(body: Callable[..., Any], data: Any, states: Any, reverse: bool = False) -> Any:
    """`foreach`, from the last element to the first if `reverse`; outputs in the data's order."""
    lengths = _lengths(data)
    if lengths[0] == 0:
        return _of_none(body, data, states)
    trace = current_trace()
    done: list[Any] = []  # rounds that have been traced already
    whole = None if trace is None else _whole(trace, body, data, states, reverse, done)
    if whole is not None:
        return whole
    outputs = [output for output, _ in done]
    states = done[-1][1] if done else states
    places = range(int(lengths[0]))
    for place in (places[::-1] if reverse else places)[len(done) :]:
        element = mapped(lambda array, place=place: array[place], data)
        output, states = pair(EACH, body(element, states))
        outputs.append(output)
    if reverse:
        outputs.reverse()
    return mapped(lambda *each: stack(each), *outputs), states


def _of_none(body: Callable[..., Any], data: Any, states: Any) -> tuple[Any, Any]:
    """`foreach` over an empty axis: body is traced, for the shapes of its outputs."""
    with Trace():
        element = mapped(lambda x: placeholder(Spec(x.shape[1:], x.dtype)), data)
        carried = mapped(lambda x: placeholder(Spec(x.shape, x.dtype)), mapped(operand, states))
        try:
            output, _ = pair(EACH, body(element, carried))
        except TraceError as error:
            raise ShapeError(
                "foreach: the first axis of the data is empty, so the outputs of the body are "
                "unknown; there must be at least one element if body needs values"
            ) from error
    empty = [full(0, shape=(0, *leaf.shape), dtype=leaf.dtype) for leaf in leaves(output)]
    return nested(iter(empty), output), states


def _whole(
    trace: Trace,
    body: Callable[..., Any],
    data: Any,
    states: Any,
    reverse: bool,
    done: list[Any],
) -> tuple[Any, Any] | None:
    """All rounds as one operation of a trace; None if the loop must be unrolled after `done`.

    The (output, states) of each round traced so far are appended to `done`.
    """
    first = leaves(states)
    if not all(isinstance(state, (Entry, _core.Array)) for state in first):
        return None

    def listed(elements: list[Any], carried: list[Any]) -> tuple[list[Any], list[Any]]:
        returned = body(nested(iter(elements), data), nested(iter(carried), states))
        output, after = pair(EACH, returned)
        done.append((output, after))
        return leaves(mapped(operand, output)), leaves(mapped(operand, after))

    arrays = leaves(data)
    traced = TracedLoop(trace, listed, arrays, first, arrays[0].shape[0], reverse)
    made = traced.run()
    if made is None:
        del done[traced.begun :]
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
    """Run func(*variables) -> (output, variables) while cond(*variables) holds, at most
    `max_iterations` times.

    The variables and the output are arrays, or lists of them, which may be nested. The result is
    (outputs stacked along a new first axis of `max_iterations`, zeros for steps that were not made;
    last variables). As in MXNet, a missing `max_iterations` is a `ValueError`. Waits for each
    condition; without any step the outputs are [].

    In a trace it is one step of the program, which ends when the condition fails; func is called
    twice, and without any step the outputs are zeros. The loop is unrolled, each step with its
    condition, for at most three steps, or if func does something different the second time, draws
    random numbers or needs NumPy.

    >>> npx.while_loop(lambda i: i < 3, lambda i: (i * 2, [i + 1]), [np.array(1)], 4)
    """
    if max_iterations is None:
        raise ArgumentError("while_loop: give max_iterations; it is the length of the outputs")
    max_iterations = plain(max_iterations)
    if isinstance(max_iterations, bool) or not isinstance(max_iterations, int):
        raise OperandError(
            f"while_loop: max_iterations must be a whole number, not {max_iterations}"
        )
    whole = kept_whole("while_loop")
    if whole is not None:
        return whole(cond, func, loop_vars, max_iterations)
    single = not isinstance(loop_vars, (list, tuple))
    variables = [loop_vars] if single else list(loop_vars)
    trace, made, asks = current_trace(), list[Callable[..., Any]](), False
    if trace is not None:
        try:
            found = _ended(trace, cond, func, variables, max_iterations, made)
        except _Asks:
            found, asks = None, True
        if found is not None:
            return found[0], found[1][0] if single else found[1]
    outputs: list[Any] = []
    before: Any = True
    while len(outputs) < max_iterations:
        condition = cond(*variables)
        if isinstance(condition, Entry):
            condition = _held(condition)
        if asks and trace is not None and isinstance(condition, Entry):
            known = trace.inputs.known(condition)
            condition = condition if known is None else known.item()
        step = made[len(outputs)] if len(outputs) < len(made) else func
        if isinstance(condition, Entry):
            before = condition if before is True else logical_and(before, condition)
            output, variables = _guarded(before, step, variables)
        elif not bool(condition):
            break
        else:
            output, variables = stepped(step, variables)
        outputs.append(output)
    last = variables[0] if single else variables
    if not outputs:
        return [], last
    missing = max_iterations - len(outputs)
    found = mapped(lambda *each: stack(each), *outputs)
    return (mapped(lambda x: padded(x, missing), found) if missing else found), last


class _Asks(Exception):
    """A step asks for values of its variables while it is traced, and they are known."""


def stepped(func: Callable[..., Any], variables: list[Any]) -> tuple[Any, list[Any]]:
    """The output and the variables after a step; None stands for no output, as in MXNet.

    Raises `TypeError` if a step returns anything else, and `ShapeError` for too many or too few
    variables.
    """
    returned = func(*variables)
    if isinstance(returned, (tuple, list)) and len(returned) == 2 and returned[0] is None:
        returned = [], returned[1]
    output, after = pair(WHILE, returned)
    after = as_list(after)
    if len(leaves(after)) != len(leaves(variables)):
        raise ShapeError(
            f"while_loop: a step returned {len(leaves(after))} variables, but it was given "
            f"{len(leaves(variables))}"
        )
    return output, after


def _ended(
    trace: Trace,
    cond: Callable[..., Any],
    func: Callable[..., Any],
    variables: list[Any],
    length: int,
    made: list[Callable[..., Any]],
) -> tuple[Any, list[Any]] | None:
    """All steps as one operation of a trace, which ends when the condition fails.

    None if the loop must be unrolled. Functions that repeat the steps traced so far are then
    appended to `made`.
    """
    given = leaves(variables)
    arrays = all(isinstance(x, (Entry, _core.Array)) for x in given)
    if not arrays or not is_whole(trace, length):
        return None
    start = cond(*variables)
    if not isinstance(start, Entry) and not bool(start):
        return None
    outputs: list[Any] = []

    def body(_: list[Any], carried: list[Any]) -> tuple[list[Any], list[Any]]:
        output, after = _checked(func, carried[:-1], variables)
        outputs.append(output)
        return leaves(output), [*leaves(after), _held(cond(*after))]

    traced = Conditional(trace, body, [*map(operand, given), _held(start)], length)
    before = trace.state.save()
    try:
        entries = traced.run()
    except TraceError:
        if isinstance(start, Entry) and trace.inputs.known(start) is None:
            raise
        # The variables' values are known while this is traced, so func may ask for them.
        trace.state.restore(before)
        raise _Asks from None
    if entries is None:
        made += map(partial(_again, variables), traced.written, outputs)
        return None
    found = iter(_with_last(entries) if traced.leaves_last else entries)
    return nested(found, outputs[0]), nested(found, variables)


def _with_last(made: tuple[Entry, ...]) -> tuple[Entry, ...]:
    """The outputs and variables of a loop after one more round, if its condition still holds."""
    node = made[0].node
    spec = LoopSpec.of(node)
    step, states, count = spec.step, spec.states, len(spec.outputs)
    condition, shared = made[-1], node.inputs[states:]

    def again(*values: Any) -> list[Any]:
        given = [*values[: states - 1], condition, *values[states - 1 :]]
        return list(inline(step, given)[:-1])

    def kept(*values: Any) -> list[Any]:
        zeros = [full(0, shape=x.shape, dtype=x.dtype) for x in step.outputs[:count]]
        return [*zeros, *values[: states - 1]]

    found = choose(condition, again, kept, [*made[count:-1], *shared])
    pairs = zip(made[:count], found[:count], strict=True)
    stacked = [concatenate(x, reshape(y, shape=(1, *y.shape)), axis=0) for x, y in pairs]
    return (*stacked, *found[count:])


def _held(condition: Any) -> Any:
    """A condition as a single bool. Raises `ShapeError`."""
    x = operand(condition)
    if not x.size == 1:
        raise ShapeError(f"while_loop: the condition {x.spec} must have one element")
    return reshape(x if x.dtype is bool_ else not_equal(x, 0), shape=())


def _again(variables: list[Any], found: Round, output: Any) -> Callable[..., Any]:
    """A function that repeats a traced step on other variables."""

    def step(*values: Any) -> tuple[Any, list[Any]]:
        given = [*leaves(values), found.stands[-1]]
        results = iter(inline(Graph(found.stands, found.results), given))
        return nested(results, output), nested(results, variables)

    return step


def _checked(
    func: Callable[..., Any], values: list[Any], variables: list[Any]
) -> tuple[Any, list[Any]]:
    """`stepped` on a flat list of values."""
    output, after = stepped(func, nested(iter(values), variables))
    return mapped(operand, output), mapped(operand, after)


def _guarded(condition: Any, func: Callable[..., Any], variables: list[Any]) -> tuple[Any, Any]:
    """The output and variables after a step if the condition holds; else zeros and the old ones.

    The step only runs if the condition holds.
    """
    given: list[Any] = []

    def made(*values: Any) -> list[Any]:
        output, after = _checked(func, list(values), variables)
        before, now = ([x.spec for x in each] for each in (values, leaves(after)))
        if before != now:
            raise ShapeError(
                "while_loop: in a trace, a step must keep the shapes and dtypes of the variables, "
                f"not return {now} for {before}"
            )
        given.append(output)
        return [*leaves(output), *leaves(after)]

    def kept(*values: Any) -> list[Any]:
        zeros = [full(0, shape=tuple(x.shape), dtype=x.dtype) for x in leaves(given[0])]
        return [*zeros, *values]

    found = iter(choose(condition, made, kept, [operand(x) for x in leaves(variables)]))
    return nested(found, given[0]), nested(found, variables)


def padded(x: Any, missing: int) -> Any:
    """x with `missing` zeros appended along its first axis."""
    return concatenate(x, full(0, shape=(missing, *x.shape[1:]), dtype=x.dtype), axis=0)
