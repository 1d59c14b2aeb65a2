"""Operators with inner graphs: conditions and loops."""

from __future__ import annotations

from typing import Any

from gemel import np
from gemel.onnx.read.known import Known
from gemel.onnx.read.table import imports_inside


def _truth(node: Any, x: Any) -> bool:
    """The value of a condition. Waits for a computed one; in a trace, `ValuesNeededError`."""
    return bool(node.number(x))


@imports_inside("If")
def _(node: Any, run: Any, condition: Any) -> Any:
    branch = "then_branch" if _truth(node, condition) else "else_branch"
    return tuple(run(node.get(branch), {}))


@imports_inside("Loop")
def _(node: Any, run: Any, most: Any, condition: Any, *states: Any) -> Any:
    """Unroll the loop; the number of its rounds must be known."""
    graph, count = node.get("body"), None if most is None else int(node.number(most))
    names = [each.name for each in graph.inputs]
    goes_on = True if condition is None else _truth(node, condition)
    carried, rows, place = list(states), [], 0
    while goes_on and (count is None or place < count):
        begin = Known([place], (), "int64"), Known([True], (), "bool")
        given = dict(zip(names, (*begin, *carried), strict=True))
        more, *found = run(graph, given)
        carried = found[: len(states)]
        rows.append(found[len(states) :])
        goes_on, place = _truth(node, more), place + 1
    if rows:
        stacked = [np.stack([_array(row[i]) for row in rows]) for i in range(len(rows[0]))]
    elif len(graph.outputs) > 1 + len(states):
        raise node.refuse("it does no round, so that the shapes of its results are not known")
    else:
        stacked = []
    return (*carried, *stacked)


def _array(x: Any) -> Any:
    return x.array() if isinstance(x, Known) else x
