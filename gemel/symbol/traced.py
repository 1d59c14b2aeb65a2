"""A function traced once, for export."""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from typing import Any

from gemel import autograd
from gemel.errors import ExportError
from gemel.extent import Guard
from gemel.ir.graph import Entry, placeholder
from gemel.runtime.prepare import as_entry
from gemel.spec import Spec
from gemel.symbol.noting import Noting
from gemel.tracing.nested import called, flatten_results
from gemel.tracing.programs import Arguments


class Traced:
    """The computation of a function for one kind of arguments, as entries.

    `inputs` are the names of the arguments: the given `names` if there are enough, else data, or
    data0, data1, ... `entries` stand for the arguments and `outputs` for the results, which are
    nested as `structure` says. `updates` are parameters with their new contents. `held` are the
    names of extents that must not be free.
    """

    def __init__(
        self,
        trace: Noting,
        function: Callable[..., Any],
        arguments: Arguments,
        names: Sequence[str] = (),
        held: Container[str] = (),
    ) -> None:
        self.trace = trace
        arrays = arguments.arrays
        #: The axes of arguments that are not free: (argument, axis, length).
        self.fixed = [
            [position, axis, n]
            for position, array in enumerate(arrays)
            for axis, n in enumerate(array.shape)
            if n <= 1 or f"n{position}_{axis}" in held
        ]
        named = ["data"] if len(arrays) == 1 else [f"data{place}" for place in range(len(arrays))]
        self.inputs = list(names) if len(names) == len(arrays) else named
        self.entries = [self._input(i, array) for i, array in enumerate(arrays)]
        results: list[Any] = []
        with autograd.pause(train_mode=False), trace:
            pairs = enumerate(arguments.numbers)
            self.numbers = [trace.notes.argument(f"number{place}", value) for place, value in pairs]
            values = arguments.symbols(self.entries, self.numbers)
            with trace.notes.watching():
                found = called(function, values)
            self.structure = flatten_results(found, results)
            self.outputs = [trace.state.current(as_entry(value)) for value in results]
        if any(entry in trace.state.contents for entry in self.entries):
            raise ExportError(
                "export: forward overwrites an argument in place; write to a copy instead"
            )
        assert trace.inputs.closed is not None
        if trace.inputs.closed.are_written(trace.state.contents):
            raise ExportError(
                "export: forward overwrites an array that it closes over, which files hold as a "
                "constant; write to a copy, or make it a parameter"
            )
        self.updates: list[tuple[Any, Entry]] = list(trace.state.updates.values())

    @property
    def guards(self) -> list[Guard]:
        """The comparisons with free extents that the trace has made."""
        return self.trace.extents.guards

    def _input(self, position: int, array: Any) -> Entry:
        """A placeholder for an argument, with free extents except along fixed axes."""
        fixed = {axis for place, axis, _ in self.fixed if place == position}
        shape = [
            n if axis in fixed else self.trace.extents.free(f"n{position}_{axis}", n)
            for axis, n in enumerate(array.shape)
        ]
        found = placeholder(Spec(shape, array.dtype), self.inputs[position])
        self.trace.notes.sources.update({f"n{position}_{i}": (found, i) for i in range(len(shape))})
        return found


__all__ = ["Traced"]
