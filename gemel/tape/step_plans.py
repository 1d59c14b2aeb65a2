"""When the gradient of a step is compiled, and its plan.

A training loop records the same operations again and again. Two steps have the same *structure* if
one gradient graph computes both: the same calls on the same specs, connected in the same way. The
first backward passes of a structure run call by call (`tape.reverse`). A structure that recurs is
compiled, and from then on a backward pass is one call of a plan::

    for x, y in batches:
        with autograd.record():
            loss = ...
        loss.backward()   # the first time: call by call; later: plan_for_step(...).run(...)

`worth_compiling` and `Family` decide when that pays.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from typing import Any

from gemel import _core
from gemel.ir.graph import Graph, placeholder
from gemel.ir.trace import Trace
from gemel.process.urgent import urgent
from gemel.runtime.backend import Backend, backend_for
from gemel.runtime.chain import Chain
from gemel.runtime.files import digest
from gemel.runtime.plans import plan_of
from gemel.tape.clock_cache import ClockCache
from gemel.tape.kinds import Port, Pullback
from gemel.tape.recording import Leaf
from gemel.tape.steps import Step, Target


class StepPlan:
    """What is known about one structure: how often it was seen, and its plan once it has one."""

    def __init__(self) -> None:
        self.used = False  # for `ClockCache`
        #: How many backward passes of this structure ran call by call.
        self.times = 0
        self.plan: Any = None
        #: (target, number of row blocks) of each gradient the plan also returns in blocks.
        self.early: list[tuple[int, int]] = []
        #: The saved arrays that the gradient graph reads: (position of the call, ports).
        self.arrays: list[tuple[int, tuple[Port, ...]]] = []
        #: The calls from whose numbers it computes some: (position of the call, pullback).
        self.numbers: list[tuple[int, Pullback]] = []

    def arguments(self, step: Step) -> list[Any]:
        """What the plan takes of a step with this structure: arrays, then numbers."""
        found = [head.gradient for head in step.heads if head.gradient is not None]
        found += _core.saved_arrays(step.calls, self.arrays)
        for position, pullback in self.numbers:
            found += pullback.numbers(step.calls[position])
        return found

    def blocks(self, found: Sequence[Any]) -> Iterator[tuple[int, Sequence[Any]]]:
        """For each gradient computed in row blocks: its target and its blocks, from the results."""
        start = 0
        for target, count in self.early:
            yield target, found[start : start + count]
            start += count


class Family:
    """All structures that end at variables of the same specs, such as different sequence lengths.

    Counts the calls whose gradients ran call by call, and the calls that went into plans.
    """

    def __init__(self) -> None:
        self.used = False  # for `ClockCache`
        self.run = 0
        self.compiled = 0

    def affords(self, calls: int, times: int) -> bool:
        """Whether one more plan, of `calls` calls, is proportionate to what has run so far.

        Without this limit, a network that sees many lengths in turn would compile all of them in
        the second epoch. A structure that ran often enough on its own to pay for its plan gets one.
        """
        return self.compiled + calls <= AT_ONCE + self.run // RUNS or times >= RUNS


#: A family may compile this many calls, however little has run.
AT_ONCE = 500
#: Compiling a call takes as long as running its gradient some 40 times.
RUNS = 40

_plans = ClockCache(512)
_families = ClockCache(512)


def in_pieces(targets: Sequence[Target | Leaf]) -> bool:
    """Whether backward runs as several operations, so that gradients can be sent early."""
    return any(target.leaf is not None and target.leaf.travels for target in targets)


def blocks_wanted(targets: Sequence[Target | Leaf]) -> tuple[int, ...]:
    """The number of row blocks into which each gradient is cut."""
    leaves = [target.leaf for target in targets]
    return tuple([0 if leaf is None else leaf.travels for leaf in leaves])


def worth_compiling(calls: int, times: int) -> bool:
    """Whether to compile a step of `calls` calls whose structure ran `times` times before.

    Compiling takes 0.1 to 0.4 ms per call and saves about 6 us per call in every later run, so it
    pays off after about thirty runs, however long the step is. A short step is compiled the second
    time it is seen, since the pause is not noticeable. A long one waits until the pause is no
    longer than its runs have taken so far.
    """
    return times > min(calls // 100, 30)


def plan_for_step(step: Step, targets: Sequence[Target | Leaf], in_place: bool) -> StepPlan | None:
    """The plan that computes the gradients of a step's targets; None to run it call by call.

    With `in_place` the plan writes into the variables' gradients. The result is None for a
    structure that is not worth a plan yet, and for a step on several devices.
    """
    if len(step.heads) > 1 and len({head.device.code for head in step.heads}) > 1:
        return None
    wanted = step.wanted(targets)
    pieces = blocks_wanted(targets) if in_place and in_pieces(targets) else None
    backend = backend_for(step.heads)
    key = (step.structure(targets, wanted), in_place, pieces, backend)
    found: StepPlan | None = _plans.find(key)
    if found is None:
        found = _plans.keep(key, StepPlan())
    if found.plan is None:
        # A compiled forward function is meant to run often, and so is its gradient.
        asked = any(call.kind.compiled for call in step.calls)
        family, calls = _family(targets), len(step.calls)
        worth = worth_compiling(calls, found.times) and family.affords(calls, found.times)
        if not (asked or worth):
            found.times += 1
            family.run += calls
            return None
        family.compiled += 0 if asked else calls
        with urgent:
            _compile(found, step, targets, wanted, in_place, pieces, backend)
    return found


def _family(targets: Sequence[Target | Leaf]) -> Family:
    """The family of the structures that end at these targets."""
    key = digest(array("q", [word for target in targets for word in target.words]).tobytes())
    found: Family = _families.find(key) or _families.keep(key, Family())
    return found


def _compile(
    found: StepPlan,
    step: Step,
    targets: Sequence[Target | Leaf],
    wanted: list[tuple[bool, ...]],
    in_place: bool,
    pieces: tuple[int, ...] | None,
    backend: Backend,
) -> None:
    """Give `found` the plan of the step's gradient graph."""
    with Trace():
        inputs, results, reads = step.graph(targets, wanted)
        places = [placeholder(target.spec) for target in targets] if in_place else []
        updates = []
        for position, (target, place) in enumerate(zip(targets, places, strict=False)):
            adds = target.leaf is not None and target.leaf.request == "add"
            updates.append((position, place + results[position] if adds else results[position]))
    found.arrays = [(position, each.arrays) for position, each in reads if each.arrays]
    found.numbers = [(position, each) for position, each in reads if each.takes_numbers]
    # As `arguments` gives them. Targets come first, so that updates have their positions.
    ordered = (*places, *sorted(inputs, key=lambda entry: entry.spec.weak))
    graph = Graph(ordered, () if in_place else results, updates, "backward")
    random = any(node.op is not None and node.op.random for node in graph.walk())
    # If a gradient fails, the old one of the previous batch must not be used in its place.
    if pieces is not None and not random:
        found.plan = Chain(graph, backend, atomic=False, blocks=pieces)
        found.early = found.plan.early
    else:
        found.plan = plan_of(graph, backend, atomic=False)


__all__ = ["StepPlan", "plan_for_step", "worth_compiling"]
