"""Checks of slices against the sizes of their axes, on which a file may depend.

`x[-3:]` has three rows if x has three at least, and a program counts on that where it uses the
number of rows. Files make no such check. So the function is traced again for sizes with the other
answer, and if it gives another program for them, the check is one that the file needs.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from typing import Any

from gemel.errors import GemelError
from gemel.extent import Guard, seen
from gemel.ir.reference import numpy
from gemel.onnx.write.graph import Graph
from gemel.onnx.write.tracing import CallNotes, Program, unlike
from gemel.onnx.write.writing import Writer
from gemel.spec import Spec
from gemel.tracing.programs import Arguments

#: Sizes to try for the other answer.
TRIED = (2, 3, 4, 5, 6, *(2**power for power in range(3, 16)), 1)
#: How many of them are tried: with the first ones, a slice may be as empty as with those seen.
MOST_TRIED = 4


def needed(writer: Writer, function: Callable[..., Any], arguments: Arguments) -> list[Guard]:
    """The checks of slices with whose other answer the program would be another one."""
    found = writer.program
    assert isinstance(found.trace.notes, CallNotes)
    same: list[dict[str, int]] = []
    wanted = []
    for guard in found.trace.notes.fits:
        if guard.relation == "==" or not guard.names() <= set(found.trace.extents.dims):
            continue
        others = [sizes for sizes in _other_sizes(found, guard) if sizes not in same]
        same += others
        graphs = (_written(writer, sizes, function, arguments) for sizes in others)
        if any(other is not None and not _alike(writer.graph, other) for other in graphs):
            wanted.append(guard)
    return wanted


def too_short(found: Program, checks: list[Guard], arguments: Arguments) -> set[str]:
    """The axes of one element that were traced as longer ones, although these checks have another
    answer for one: the file would not be for the arguments themselves."""
    own = {
        f"n{place}_{axis}": n
        for place, x in enumerate(arguments.arrays)
        for axis, n in enumerate(x.shape)
    }
    names = {
        found.first(name) for guard in checks if not guard.holds(own) for name in guard.names()
    }
    return {
        name for name in found.trace.extents.dims if own[name] == 1 and found.first(name) in names
    }


def fixed(
    found: Program, function: Callable[..., Any], arguments: Arguments, wanted: set[str]
) -> list[str]:
    """The axes that the file has fixed, but for those that it is to fix, although the function
    takes other sizes: it has asked for a number, or a size has come out as 1.

    An axis is tried alone, and together with those that are as long, which may have to be equal.
    """
    other = unlike(arguments.arrays)
    sizes = {f"n{place}_{axis}": n for place, axis, n in found.fixed}
    axes = []
    for place, axis, n in found.fixed:
        alone = {f"n{place}_{axis}": other}
        together = {each: other for each, m in sizes.items() if m == n}
        if alone.keys() <= wanted:
            continue
        if any(_traced(found, each, function, arguments) for each in (alone, together)):
            axes.append(f"{found.inputs[place]}.shape[{axis}] at {n}")
    return axes


def _other_sizes(found: Program, guard: Guard) -> list[dict[str, int]]:
    """Sizes for which a check has the other answer, by their names; at most `MOST_TRIED`."""
    now = {name: seen(extent) for name, extent in found.trace.extents.dims.items()}
    names = sorted({found.first(name) for name in guard.names()})
    every = (
        {each: size if found.first(each) == name else n for each, n in now.items()}
        for size in TRIED
        for name in names
    )
    return list(islice((sizes for sizes in every if not guard.holds(sizes)), MOST_TRIED))


def _written(
    writer: Writer, sizes: dict[str, int], function: Callable[..., Any], arguments: Arguments
) -> Graph | None:
    """The graph of the function for these sizes; None if it has none, which is an error there."""
    program = _traced(writer.program, sizes, function, arguments)
    if program is None:
        return None
    other = Writer(program, writer.graph.opset)
    try:
        other.written(program.outputs)
    except GemelError:
        return None
    return other.graph


def _traced(
    found: Program, sizes: dict[str, int], function: Callable[..., Any], arguments: Arguments
) -> Program | None:
    """The function traced for other sizes; None if that is an error."""
    arrays = [
        Spec([sizes.get(f"n{place}_{axis}", n) for axis, n in enumerate(x.shape)], x.dtype)
        for place, x in enumerate(arguments.arrays)
    ]
    held = {f"n{place}_{axis}" for place, axis, _ in found.fixed}
    try:
        return Program(function, arguments._replace(arrays=arrays), found.inputs, held)
    except Exception:  # the function's own, too: it was not called with such arrays
        return None


def _alike(one: Graph, two: Graph) -> bool:
    """Whether two graphs compute the same."""
    return (
        [node.SerializeToString() for node in one.nodes]
        == [node.SerializeToString() for node in two.nodes]
        and one.constants.keys() == two.constants.keys()
        and all(numpy().array_equal(x, two.constants[name]) for name, x in one.constants.items())
    )


__all__ = ["fixed", "needed", "too_short"]
