"""Plans to be read: their steps, and their kernels as C."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any

from gemel.codegen.print_c import source
from gemel.extent import seen
from gemel.ir.graph import Node
from gemel.runtime.beside import Branch, Launch
from gemel.runtime.sites import operations_of


def as_c(name: str, items: Iterable[Any]) -> str:
    """The steps of a plan as a comment, and the kernels they call.

    `items` are launches, branches, lists of them, and calls of what has no kernel, in order.
    """
    programs: dict[str, Any] = {}
    lines = list(_steps(items, programs, 1))
    told = "\n".join(f" * {line}" for line in lines)
    if len(programs) == 1:
        told = told.replace("kernel0", "kernel")
    head = f"/* {name}: what is done, in order, for the sizes seen\n{told}\n */\n"
    return f"{head}{source(list(programs.values())) if programs else ''}"


def _steps(items: Iterable[Any], programs: dict[str, Any], depth: int) -> Iterator[str]:
    """A line per step; their programs are added."""
    blank = "  " * depth
    for item in items:
        if isinstance(item, list):
            yield from _steps(item, programs, depth)
        elif isinstance(item, Launch):
            program = item.kernel.program
            programs.setdefault(program.text, program)
            number, extent = list(programs).index(program.text), seen(item.kernel.extent)
            yield f"{blank}kernel{number}: {_told(item.node)}, from 0 to {extent}"
        elif isinstance(item, Branch):
            yield f"{blank}if ({_told(item.node)})"
            yield from _steps(item.then, programs, depth + 1)
            yield f"{blank}else"
            yield from _steps(item.otherwise, programs, depth + 1)
        elif isinstance(item, partial):
            yield f"{blank}{item.args[0].name}, which has no kernel"


def _told(node: Node) -> str:
    """The operations of a step, and the line they were traced at."""
    names = [each.op.name for each in operations_of(node) if each.op is not None] or ["copy"]
    return " ".join(names) + (f" ({node.origin})" if node.origin else "")
