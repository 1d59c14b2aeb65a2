"""A plan as text for readers (`Compiled.source`): its steps as a comment, its kernels as C or CUDA
C++."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

from gemel.codegen.c.kernels import source
from gemel.codegen.language.launch import Launch
from gemel.extent import seen
from gemel.ir.graph import Node
from gemel.runtime.concurrent import Branch, Concurrent
from gemel.runtime.rounds import Repeat
from gemel.runtime.sites import operations_of


def as_c(name: str, items: Iterable[Any], printed: Callable[..., str] = source) -> str:
    """The steps of a plan as a comment, and the kernels they call, as `printed` prints them.

    `items` are launches, branches, loops, concurrent items, lists of all these, and calls of
    operations without a kernel, in order.
    """
    programs: dict[str, Any] = {}
    lines = list(_steps(items, programs, 1))
    listing = "\n".join(f" * {line}" for line in lines)
    if len(programs) == 1:
        listing = listing.replace("kernel0", "kernel")
    head = f"/* {name}: what is done, in order, for the sizes seen\n{listing}\n */\n"
    return f"{head}{printed(list(programs.values())) if programs else ''}"


def _steps(items: Iterable[Any], programs: dict[str, Any], depth: int) -> Iterator[str]:
    """Yields a line for each step; adds the steps' programs to `programs`."""
    blank = "  " * depth
    for item in items:
        if isinstance(item, list):
            yield from _steps(item, programs, depth)
        elif isinstance(item, Launch):
            program = item.program
            programs.setdefault(program.text, program)
            number, extent = list(programs).index(program.text), seen(item.extent)
            yield f"{blank}kernel{number}: {_told(item.node)}, from 0 to {extent}"
        elif isinstance(item, partial):
            yield f"{blank}{item.args[0].name}, which has no kernel"
        else:
            for head, inside in _lists(item):
                yield f"{blank}{head}"
                yield from _steps(inside, programs, depth + 1)


def _lists(item: Any) -> Iterator[tuple[str, list[Any]]]:
    """The lists of items inside of an item, each with a text that says when it runs."""
    if isinstance(item, Branch):
        yield f"if ({_told(item.node)})", item.then
        yield "else", item.otherwise
    elif isinstance(item, Repeat):
        rounds = f"{seen(item.length)} times ({_told(item.node)})"
        yield (
            rounds if item.condition is None else f"{rounds}, while its condition holds",
            item.items,
        )
        if item.after:
            yield "and at the end", item.after
    elif isinstance(item, Concurrent):
        for number, part in enumerate(item.parts):
            yield "beside that" if number else "side by side", part
    else:
        raise TypeError(f"source: {item!r} is not an item of a plan that can be printed")


def _told(node: Node) -> str:
    """The operations of a step, and the line they were traced at."""
    names = [inner.op.name for inner in operations_of(node) if inner.op is not None] or ["copy"]
    return " ".join(names) + (f" ({node.origin})" if node.origin else "")
