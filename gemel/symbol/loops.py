"""Loops and conditionals of `npx` in exported programs: MXNet's operations with programs inside.

Each program is traced once, on placeholders for one element and the states.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from gemel.errors import ShapeError, TraceError
from gemel.extent import seen
from gemel.ir.graph import Entry, constant, placeholder
from gemel.ir.methods import call
from gemel.legacy.declare import Inside, Written
from gemel.ops.loops import leaves, nested, stepped
from gemel.runtime.prepare import as_entry
from gemel.spec import Spec
from gemel.symbol.noting import Note, Noting


def foreach(trace: Noting, body: Callable[..., Any], data: Any, states: Any) -> Any:
    """`npx.foreach` as one call."""
    arrays, first = _entries(data), _entries(states)
    lengths = {seen(x.shape[0]) if x.shape else 0 for x in arrays}
    if len(lengths) != 1 or lengths == {0}:
        raise ShapeError(
            f"foreach: the first axes have lengths {sorted(lengths)}; all data must have the "
            "same length"
        )
    elements = [placeholder(Spec(x.shape[1:], x.dtype)) for x in arrays]
    carried = [placeholder(Spec(x.shape, x.dtype)) for x in first]
    begin, (output, after) = _traced(
        trace,
        "foreach",
        lambda: body(nested(iter(elements), data), nested(iter(carried), states)),
    )
    outputs, last = _current(trace, output), _current(trace, after)
    _check("foreach", last, first)
    inside = Inside((*elements, *carried), (*outputs, *last), begin, reads_all=True)

    placed = partial(foreach_places, data=len(arrays), states=len(first))
    settings = {"num_out_data": len(outputs), "num_outputs": len(outputs) + len(last)}
    stacked = [Spec((arrays[0].shape[0], *x.shape), x.dtype) for x in outputs]
    found = _noted(
        trace,
        Written(
            "_foreach", (*arrays, *first), settings, len(outputs) + len(last), (inside,), placed
        ),
        [*stacked, *(x.spec for x in last)],
    )
    return nested(found, output), nested(found, after)


def while_loop(
    trace: Noting,
    test: Callable[..., Any],
    step: Callable[..., Any],
    variables: Any,
    max_iterations: int,
) -> Any:
    """`npx.while_loop` as one call."""
    given = variables if isinstance(variables, (list, tuple)) else [variables]
    first = _entries(given)
    stand_ins = [[placeholder(Spec(x.shape, x.dtype)) for x in first] for _ in range(2)]
    begin, condition = _traced(
        trace, "while_loop", lambda: test(*nested(iter(stand_ins[0]), given))
    )
    (held,) = _current(trace, condition)
    tested = Inside(tuple(stand_ins[0]), (call("cast", held, dtype="float32"),), begin)
    begin, (output, after) = _traced(
        trace, "while_loop", lambda: stepped(step, nested(iter(stand_ins[1]), given))
    )
    outputs, last = _current(trace, output), _current(trace, after)
    _check("while_loop", last, first)
    inside = tested, Inside(tuple(stand_ins[1]), (*outputs, *last), begin, reads_all=True)

    placed = partial(while_places, count=len(first))
    settings = {
        "max_iterations": max_iterations,
        "num_out_data": len(outputs),
        "num_outputs": len(outputs) + len(last),
    }
    stacked = [Spec((max_iterations, *x.shape), x.dtype) for x in outputs]
    found = _noted(
        trace,
        Written("_while_loop", tuple(first), settings, len(outputs) + len(last), inside, placed),
        [*stacked, *(x.spec for x in last)],
    )
    results = nested(found, output), nested(found, after)
    return results if isinstance(variables, (list, tuple)) else (results[0], results[1][0])


def cond(
    trace: Noting,
    condition: Entry,
    then: Callable[..., Any],
    otherwise: Callable[..., Any],
    arguments: tuple[Any, ...],
) -> Any:
    """`npx.cond` as one call; what the branches read from outside are inputs, too."""
    test = call("cast", condition, dtype="float32")
    entries = _entries(arguments)
    stand_in = placeholder(test.spec)
    inside = [Inside((stand_in,), (call("copy", stand_in),), stand_in.node.serial)]
    given: Any = ()
    for function in (then, otherwise):
        held = [placeholder(Spec(x.shape, x.dtype)) for x in entries]
        program = partial(function, *nested(iter(held), arguments))
        begin, given = _traced(trace, "cond", program)
        inside.append(Inside((stand_in, *held), tuple(_current(trace, given)), begin))
    specs = [[x.spec for x in each.results] for each in inside[1:]]
    if specs[0] != specs[1]:
        raise ShapeError(
            f"cond: both branches must return the same shapes and dtypes, not {specs[0]}, "
            f"{specs[1]}"
        )

    count = len(specs[0])
    written = Written(
        "_cond", (test, *entries), {"num_outputs": count}, count, tuple(inside), choice_places
    )
    return nested(_noted(trace, written, specs[0]), given)


def foreach_places(orders: list[list[int]], data: int, states: int) -> dict[str, Any]:
    """The settings that say which variable of the program stands for each input."""
    (order,) = orders
    turned = [order.index(place) for place in range(len(order))]
    ends = data, data + states
    return {
        "in_data_locs": turned[: ends[0]],
        "in_state_locs": turned[ends[0] : ends[1]],
        "remain_locs": turned[ends[1] :],
    }


def while_places(orders: list[list[int]], count: int) -> dict[str, Any]:
    """The settings that say which input each variable of both programs stands for."""
    return {
        "cond_input_locs": orders[0],
        "func_input_locs": orders[1],
        "func_var_locs": [orders[1].index(place) for place in range(count)],
    }


def choice_places(orders: list[list[int]]) -> dict[str, Any]:
    """The settings that say which input each variable of the three programs stands for."""
    return dict(zip(("cond_input_locs", "then_input_locs", "else_input_locs"), orders, strict=True))


def _entries(values: Any) -> list[Entry]:
    return [as_entry(value) for value in leaves(values)]


def _current(trace: Noting, values: Any) -> list[Entry]:
    return [trace.state.current(as_entry(value)) for value in leaves(values)]


def _traced(trace: Noting, name: str, program: Callable[[], Any]) -> tuple[int, Any]:
    """The serial number of a program's start, and its results.

    The program may only write to arrays that it has created. Raises `TraceError`.
    """
    began, before = constant(0).node.serial, trace.state.save()
    results = program()
    if not trace.state.writes_inside(before, began):
        raise TraceError(
            f"{name}: a step must not update a parameter, nor write to an array from outside"
        )
    return began, results


def _check(name: str, after: list[Entry], before: list[Entry]) -> None:
    specs = [[(tuple(x.shape), x.dtype) for x in each] for each in (after, before)]
    if specs[0] != specs[1]:
        raise ShapeError(
            f"{name}: a step makes {[x.spec for x in after]} of "
            f"{[x.spec for x in before]}; the specs must be the same"
        )


def _noted(trace: Noting, written: Written, specs: Iterable[Spec]) -> Any:
    """Placeholders for the results of a call."""
    note = Note(written, trace.notes.note_name(written.name))
    for index, spec in enumerate(specs):
        found = placeholder(Spec(spec.shape, spec.dtype))
        trace.notes.made[found] = note, index
        yield found
