"""The gradient of a `loop` node: a loop in the other direction, over values the first one saved.

A loop is a scan: a round (the graph `step`) takes one element of each data array, the states that
the round before left, and inputs that are the same in all rounds ("shared"); it returns elements of
the outputs and the next states. The backward loop takes the gradients of the outputs and the saved
values as data, and carries the gradients of the states from the last round to the first.

The gradient of an input that all rounds share is a sum over rounds. If each term is a matrix
product, ``x_t.T @ g_t``, the factors are stacked and multiplied once after the loop, as one large
product; other sums are states of the backward loop (`_Sums`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from gemel.ir.graph import Entry, Graph, Node, copy_node, placeholder, rewrite, walk
from gemel.ir.loops import LoopSpec
from gemel.ir.op_kinds import Composite
from gemel.ir.trace import Trace
from gemel.ops import linalg, reduction, shape
from gemel.ops.elementwise import add, cast, full
from gemel.ops.indexing import basic_index
from gemel.ops.reduction import in_dtype
from gemel.ops.rounds import loop
from gemel.passes.gradient import dependents, gradient, zeros
from gemel.passes.saved import replaced, saved
from gemel.passes.simplify import transposed_last
from gemel.spec import Spec, normalize_axes


@loop.backward
def _(node: Node, gs: Sequence[Entry | None], wanted: Sequence[bool]) -> list[Entry | None]:
    return _Backward(node, gs, wanted).run()


class _Backward:
    """The gradients of a loop's wanted inputs, given those of some of its outputs."""

    def __init__(self, node: Node, gs: Sequence[Entry | None], wanted: Sequence[bool]) -> None:
        self.node = node
        self.wanted = wanted
        spec = LoopSpec.of(node)
        spec = self.spec = spec._replace(step=_opened(spec.step))
        self.data, self.states = spec.data, spec.states
        self.inputs = spec.step.inputs
        self.condition = spec.asked
        self.count = len(spec.outputs)
        self.gs = gs
        self.active = self._active()
        self.outputs, self.found = self._round(spec.step)

    def _active(self) -> list[int]:
        """The inputs of a round whose gradients are wanted, or needed to compute those."""
        active = {i for i, want in enumerate(self.wanted) if want}
        nodes = self.spec.step.walk()
        while True:
            needed = dependents(nodes, [self.inputs[i] for i in sorted(active)])
            ends = enumerate(self.spec.after, start=self.data)
            more = {i for i, entry in ends if entry in needed} - active
            if not more:
                return sorted(active)
            active |= more

    def _round(self, step: Graph) -> tuple[list[Entry], dict[int, Entry]]:
        """A round's results, and the gradients of its active inputs."""
        floating = [i for i in range(self.count) if step.outputs[i].dtype.is_inexact]
        self.heads = {
            i: placeholder(step.outputs[i].spec) for i in floating if self.gs[i] is not None
        }
        ends = [i for i in self.active if self.data <= i < self.data + self.states]
        self.passed = {i: placeholder(self.inputs[i].spec) for i in ends}
        outputs = [step.outputs[i] for i in self.heads]
        outputs += [step.outputs[self.count + i - self.data] for i in ends]
        heads = [*self.heads.values(), *self.passed.values()]
        found = gradient(outputs, heads, [self.inputs[i] for i in self.active])
        every = share_loops([*step.outputs, *found])
        made = every[len(step.outputs) :]
        return every[: len(step.outputs)], dict(zip(self.active, made, strict=True))

    def run(self) -> list[Entry | None]:
        """The gradients of the loop's inputs; None where none is wanted."""
        heads = [*self.heads.values(), *self.passed.values()]
        read = saved(self.outputs, list(self.found.values()), heads)
        if self.condition is not None:  # the backward loop runs the same rounds
            read = list(dict.fromkeys((*read, self.condition)))
        values = self._values(read)
        stands = {entry: placeholder(entry.spec) for entry in read}
        found = dict(zip(self.found, replaced(list(self.found.values()), stands), strict=True))
        terms = {i: found[i] for i in found if i >= self.data + self.states}
        sums = _Sums(terms, all_rounds=self.condition is None)
        back = _Loop()
        back.condition = None if self.condition is None else stands[self.condition]
        for i, head in self.heads.items():
            back.data[head] = self.gs[i]
        shared = set(self.spec.shared)
        for entry, stand in stands.items():
            (back.shared if entry in shared else back.data)[stand] = values[entry]
        for i, stand in self.passed.items():
            g = self.gs[self.count + i - self.data]
            back.states[stand] = zeros(stand) if g is None else g
            back.after.append(found[i])
        for stand, total in sums.added.items():
            back.states[stand] = zeros(stand)
            back.after.append(total)
        back.outputs = [found[i] for i in self.active if i < self.data]
        own = len(back.outputs)
        back.outputs += sums.stacked
        made = back.apply(self.spec)
        ends = dict(zip(back.states, made[len(back.outputs) :], strict=True))
        results: dict[int, Entry | None] = dict(zip(self.active, made, strict=False))
        results = {i: results[i] for i in self.active if i < self.data}
        results |= {i: ends[stand] for i, stand in self.passed.items()}
        stacked = dict(zip(sums.stacked, made[own:], strict=False))
        results |= {i: total({**stacked, **ends}) for i, total in sums.totals.items()}
        pairs = enumerate(self.wanted)
        return [results[i] if want else None for i, want in pairs]

    def _values(self, read: list[Entry]) -> dict[Entry, Entry]:
        """The values of entries of a round, stacked over the rounds; of shared inputs as they are.

        If the loop does not output one of them yet, it becomes a loop that does.
        """
        known = dict(zip(self.inputs, self.node.inputs, strict=True))
        for entry in self.spec.carried:
            del known[entry]
        outputs = self.outputs[: self.count]
        before = self._before(read)
        there = {*known, *outputs}
        wanted = dict.fromkeys(before.get(entry, entry) for entry in read)
        more = [entry for entry in wanted if entry not in there]
        node = self.node
        if more:
            results = (*outputs, *more, *self.outputs[self.count :])
            spec = self.spec._replace(step=Graph(self.inputs, results, name=self.spec.step.name))
            node = loop.apply(node.inputs, spec.parameters)[0].node
        for entry, value in zip((*outputs, *more), node.entries, strict=False):
            known.setdefault(entry, value)
        firsts = dict(zip(self.inputs, self.node.inputs, strict=True))
        reverse = self.spec.reverse
        known |= {s: _behind(firsts[s], known[a], reverse) for s, a in before.items()}
        return known

    def _before(self, read: list[Entry]) -> dict[Entry, Entry]:
        """States that are read, with the entry that becomes each: the next round's state.

        Stacking that entry serves for both. Not with a condition, where a round may not happen.
        """
        if self.condition is not None:
            return {}
        pairs = zip(self.spec.carried, self.outputs[self.count :], strict=True)
        wanted = set(read)
        return {s: after for s, after in pairs if s in wanted and after.node.op is not None}


class _Loop:
    """A loop under construction. The dictionaries map inputs of a round to inputs of the loop."""

    def __init__(self) -> None:
        self.data: dict[Entry, Any] = {}
        self.states: dict[Entry, Any] = {}
        self.shared: dict[Entry, Any] = {}
        self.outputs: list[Entry] = []
        self.after: list[Entry] = []
        self.condition: Entry | None = None

    def apply(self, forward: LoopSpec) -> tuple[Entry, ...]:
        """Its outputs and last states, run in the direction opposite to the loop `forward`."""
        spec = LoopSpec.made(
            (self.data, self.states, self.shared),
            (*self.outputs, *self.after),
            length=forward.length,
            reverse=not forward.reverse,
            asked=self.condition,
            name="back",
        )
        given = (*self.data.values(), *self.states.values(), *self.shared.values())
        return loop.apply(given, spec.parameters)


def _behind(first: Entry, stacked: Entry, backwards: bool) -> Entry:
    """The states before each round, from the `first` one and the states after each, stacked."""
    begin = 1 if backwards else 0
    key = [("slice", 0, extent, 1) for extent in stacked.shape]
    key[0] = ("slice", begin, stacked.shape[0] - 1, 1)
    others = basic_index(stacked, key=tuple(key))
    alone = shape.reshape(first, shape=(1, *first.shape))
    parts = (others, alone) if backwards else (alone, others)
    found: Entry = shape.concatenate(*parts, axis=0)
    return found


def _opened(graph: Graph) -> Graph:
    """A graph with composites expanded that have no gradient rule."""

    def rule(node: Node, inputs: tuple[Entry, ...]) -> tuple[Entry, ...] | None:
        op = node.op
        if not isinstance(op, Composite) or op.rules.gradient or op.rules.backward:
            return None
        with Trace() as trace:
            trace.line, trace.part = node.origin, node.part or op.name
            return _opened(Graph(inputs, op.written_out(inputs, node.params))).outputs

    return rewrite(graph, rule)


# --- sums over the rounds -------------------------------------------------------------------

#: Computes a sum over all rounds from the stacked values and last states of the backward loop.
Total = Callable[[dict[Entry, Entry]], Entry]


class _Sums:
    """How sums over the rounds are computed: from stacked values afterwards, or in states.

    Without `all_rounds` (a loop with a condition) only in states: stacked values have a place for
    each round, also for those that are not run.
    """

    def __init__(self, terms: dict[int, Entry], all_rounds: bool) -> None:
        self.all_rounds = all_rounds
        self.stacked: dict[Entry, None] = {}
        #: The states that are sums: the sum before a round, and the entry of the sum after it.
        self.added: dict[Entry, Entry] = {}
        self.totals: dict[int, Total] = {i: self._total(term) for i, term in terms.items()}

    def _total(self, term: Entry) -> Total:
        """How the sum of a term over all rounds follows from what the loop returns."""
        node = term.node
        if node.op is full:  # zeros: no gradient arrives
            return lambda given: term
        if node.op is shape.transpose:
            inner, axes = self._total(node.inputs[0]), node.params["axes"]
            return lambda given: shape.transpose.apply((inner(given),), {"axes": axes})[0]
        if node.op is shape.reshape:
            inner = self._total(node.inputs[0])
            return lambda given: shape.reshape.apply((inner(given),), {"shape": term.shape})[0]
        if node.op is add and all(entry.spec == term.spec for entry in node.inputs):
            one, other = map(self._total, node.inputs)
            return lambda given: add(one(given), other(given))
        if node.op is cast and node.inputs[0].dtype is term.dtype.accumulate:
            unrounded = self._total(node.inputs[0])
            return lambda given: cast(unrounded(given), dtype=term.dtype)
        several = self.all_rounds
        if several and node.op is reduction.sum and node.inputs[0].dtype is term.dtype:
            return self._of_sum(node)
        if several and node.op is linalg.matmul and [e.ndim for e in node.inputs] == [2, 2]:
            return self._of_product(*node.inputs)
        stand = placeholder(Spec(term.shape, term.dtype.accumulate))
        self.added[stand] = add(stand, term)
        return lambda given: in_dtype(given[stand], term.dtype)

    def _stack(self, entry: Entry) -> Entry:
        self.stacked[entry] = None
        return entry

    def _of_sum(self, node: Node) -> Total:
        x, result = self._stack(node.inputs[0]), node.specs[0].shape
        axes = normalize_axes("sum", node.params["axis"], x.ndim)
        if axes != (0,):
            wide = (0, *(a + 1 for a in axes))
            return lambda given: shape.reshape(reduction.sum(given[x], axis=wide), shape=result)

        def total(given: dict[Entry, Entry]) -> Entry:
            # In the form the gradient of a bias has outside of loops, so that `merge` finds both.
            rounds, rows, *others = given[x].shape
            flat = shape.reshape(given[x], shape=(rounds * rows, *others))
            found: Entry = shape.reshape(
                reduction.sum(flat, axis=(0,), keepdims=True), shape=result
            )
            return found

        return total

    def _of_product(self, a: Entry, b: Entry) -> Total:
        """The sum of a @ b over rounds: one product of both stacked along the axis summed over."""
        left, right = self._stack(transposed_last(a)), self._stack(b)

        def flat(x: Entry) -> Entry:
            rows, terms, columns = x.shape
            found: Entry = shape.reshape(x, shape=(rows * terms, columns))
            return found

        return lambda given: linalg.matmul(transposed_last(flat(given[left])), flat(given[right]))


# --- loops that save more -------------------------------------------------------------------


def share_loops(results: Sequence[Entry]) -> list[Entry]:
    """The results with each loop that the backward graph repeats, to save more, run only once.

    `_values` makes a copy of a loop with further outputs. Here the longer one replaces the other.
    """
    groups: dict[tuple[int, ...], list[Node]] = {}
    for node in walk(results):
        if node.op is loop:
            groups.setdefault(_known(node), []).append(node)
    longer = {key: max(nodes, key=_size) for key, nodes in groups.items() if len(nodes) == 2}
    if not longer:
        return list(results)
    made: dict[Node, tuple[Entry, ...]] = {}

    def rule(node: Node, inputs: tuple[Entry, ...]) -> tuple[Entry, ...] | None:
        long = longer.get(_known(node)) if node.op is loop else None
        if long is None:
            return None
        if long not in made:
            made[long] = copy_node(long, inputs).entries
        found, states = made[long], LoopSpec.of(node).states
        outputs = len(node.entries) - states
        return (*found[:outputs], *found[len(found) - states :])

    return list(rewrite(Graph((), results), rule).outputs)


def _known(node: Node) -> tuple[int, ...]:
    """A key that a loop shares with its copy that saves more."""
    return tuple(map(id, (*node.inputs, *LoopSpec.of(node).step.inputs)))


def _size(node: Node) -> int:
    return len(node.entries)


__all__ = ["share_loops"]
