"""The parameters of a `loop` node, and what each input of a round is.

The node is in `ops.rounds`. This loop adds up the five elements of x and returns all partial sums::

    spec = LoopSpec(step, length=5, data=1, states=1)

    inputs of the loop:     x, begin                one array of data, one state
    inputs of `step`:       x[r], sum               an element (`elements`), a state (`carried`)
    results of `step`:      sum + x[r], sum + x[r]  an output, the next state (`after`)
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

from gemel.ir.graph import Entry, Graph, Node


class LoopSpec(NamedTuple):
    """The parameters of a `loop` node.

    A round runs `step`; there are `length` rounds. The first inputs of the step are elements of the
    loop's first `data` inputs; then come `states`, then inputs that all rounds share (`shared`).
    With `reverse` the loop begins with the last elements. The step's input number `condition` says
    whether a round is run (-1: all rounds are).
    """

    step: Graph
    length: int
    data: int
    states: int
    reverse: bool = False
    condition: int = -1

    @classmethod
    def of(cls, node: Node) -> LoopSpec:
        """The parameters of a `loop` node, as a `LoopSpec`."""
        return cls(**node.params)

    @classmethod
    def made(
        cls,
        groups: tuple[Collection[Entry], Collection[Entry], Collection[Entry]],
        results: Sequence[Entry],
        *,
        length: int,
        reverse: bool = False,
        asked: Entry | None = None,
        name: str = "step",
    ) -> LoopSpec:
        """A loop whose rounds have these results. `groups` are the inputs of a round: (elements,
        carried, shared); `asked` is the one of them that says whether a round is run."""
        elements, carried, shared = groups
        inputs = (*elements, *carried, *shared)
        condition = next((i for i, entry in enumerate(inputs) if entry is asked), -1)
        step = Graph(inputs, results, name=name)
        return cls(step, length, len(elements), len(carried), reverse, condition)

    @property
    def parameters(self) -> dict[str, Any]:
        """The parameters by name, as the node stores them."""
        return self._asdict()

    @property
    def elements(self) -> tuple[Entry, ...]:
        """The inputs of a round that stand for elements of the data."""
        return self.step.inputs[: self.data]

    @property
    def carried(self) -> tuple[Entry, ...]:
        """The inputs of a round that stand for the states before it."""
        return self.step.inputs[self.data : self.data + self.states]

    @property
    def shared(self) -> tuple[Entry, ...]:
        """The inputs of a round that are the same in all rounds."""
        return self.step.inputs[self.data + self.states :]

    @property
    def asked(self) -> Entry | None:
        """The input that says whether a round is run; None if all are."""
        return self.step.inputs[self.condition] if self.condition >= 0 else None

    @property
    def outputs(self) -> tuple[Entry, ...]:
        """The results of a round that are stacked over the rounds."""
        return self.step.outputs[: len(self.step.outputs) - self.states]

    @property
    def after(self) -> tuple[Entry, ...]:
        """The states after a round."""
        return self.step.outputs[len(self.step.outputs) - self.states :]


__all__ = ["LoopSpec"]
