"""The gradient of a loop: a loop the other way round, over what the rounds save.

Gradients of what all rounds are given alike are sums over the rounds. Those of factors of products
are one product over all rounds, after the loop; others are added up in it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from gemel.ir.graph import Entry, Graph, Node, copy_node, placeholder, rewrite, walk
from gemel.ir.op_kinds import Composite
from gemel.ir.trace import Trace
from gemel.ops import linalg, reduction, shape
from gemel.ops.elementwise import add, full
from gemel.ops.indexing import basic_index
from gemel.ops.reduction import in_dtype
from gemel.ops.rounds import loop
from gemel.passes.gradient import gradient, leads_to, zeros
from gemel.passes.saved import replaced, saved
from gemel.passes.simplify import swapped
from gemel.spec import Spec, normalize_axes


@loop.backward
def _(node: Node, gs: Sequence[Entry | None], wanted: Sequence[bool]) -> list[Entry | None]:
    return _Backward(node, gs, wanted).run()


class _Backward:
    """The gradients of a loop's wanted inputs, given those of some of its outputs."""

    def __init__(self, node: Node, gs: Sequence[Entry | None], wanted: Sequence[bool]) -> None:
        self.node = node
        self.wanted = wanted
        self.data, self.states = node.params["data"], node.params["states"]
        step = _opened(node.params["step"])
        self.inputs = step.inputs
        condition = node.params["condition"]
        self.condition = step.inputs[condition] if condition >= 0 else None
        self.count = len(step.outputs) - self.states
        self.gs = gs
        self.active = self._active(step)
        self.outputs, self.found = self._round(step)

    def _active(self, step: Graph) -> list[int]:
        """The inputs of a round whose gradients are wanted, or needed for those."""
        active = {i for i, want in enumerate(self.wanted) if want}
        nodes = step.walk()
        while True:
            needed = leads_to(nodes, [self.inputs[i] for i in sorted(active)])
            ends = enumerate(step.outputs[self.count :], start=self.data)
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
        every = shared([*step.outputs, *found])
        made = every[len(step.outputs) :]
        return every[: len(step.outputs)], dict(zip(self.active, made, strict=True))

    def run(self) -> list[Entry | None]:
        """The gradients; None where none is wanted."""
        heads = [*self.heads.values(), *self.passed.values()]
        read = saved(self.outputs, list(self.found.values()), heads)
        if self.condition is not None:  # the same rounds are done
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
        alike = set(self.inputs[self.data + self.states :])
        for entry, stand in stands.items():
            (back.alike if entry in alike else back.data)[stand] = values[entry]
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
        made = back.apply(self.node.params)
        ends = dict(zip(back.states, made[len(back.outputs) :], strict=True))
        results: dict[int, Entry | None] = dict(zip(self.active, made, strict=False))
        results = {i: results[i] for i in self.active if i < self.data}
        results |= {i: ends[stand] for i, stand in self.passed.items()}
        stacked = dict(zip(sums.stacked, made[own:], strict=False))
        results |= {i: total({**stacked, **ends}) for i, total in sums.totals.items()}
        pairs = enumerate(self.wanted)
        return [results[i] if want else None for i, want in pairs]

    def _values(self, read: list[Entry]) -> dict[Entry, Entry]:
        """What the rounds had for these entries, stacked; what all are given is as it is."""
        known = dict(zip(self.inputs, self.node.inputs, strict=True))
        for entry in self.inputs[self.data : self.data + self.states]:
            del known[entry]
        outputs = self.outputs[: self.count]
        before = self._before(read)
        there = {*known, *outputs}
        wanted = dict.fromkeys(before.get(entry, entry) for entry in read)
        more = [entry for entry in wanted if entry not in there]
        node = self.node
        if more:
            results = (*outputs, *more, *self.outputs[self.count :])
            step = Graph(self.inputs, results, name=node.params["step"].name)
            node = loop.apply(node.inputs, {**node.params, "step": step})[0].node
        for entry, value in zip((*outputs, *more), node.entries, strict=False):
            known.setdefault(entry, value)
        firsts = dict(zip(self.inputs, self.node.inputs, strict=True))
        backwards = self.node.params["reverse"]
        known |= {s: _behind(firsts[s], known[a], backwards) for s, a in before.items()}
        return known

    def _before(self, read: list[Entry]) -> dict[Entry, Entry]:
        """The states that are read, where what a round makes of each says what the next one had."""
        if self.condition is not None:
            return {}
        states = self.inputs[self.data : self.data + self.states]
        pairs = zip(states, self.outputs[self.count :], strict=True)
        wanted = set(read)
        return {s: after for s, after in pairs if s in wanted and after.node.op is not None}


class _Loop:
    """A loop being put together: what stands for its inputs, and these."""

    def __init__(self) -> None:
        self.data: dict[Entry, Any] = {}
        self.states: dict[Entry, Any] = {}
        self.alike: dict[Entry, Any] = {}
        self.outputs: list[Entry] = []
        self.after: list[Entry] = []
        self.condition: Entry | None = None

    def apply(self, forward: dict[str, Any]) -> tuple[Entry, ...]:
        """The outputs and last states of it, the other way round than `forward`."""
        inputs = (*self.data, *self.states, *self.alike)
        step = Graph(inputs, (*self.outputs, *self.after), name="back")
        given = (*self.data.values(), *self.states.values(), *self.alike.values())
        settings = {"length": forward["length"], "data": len(self.data), "states": len(self.states)}
        settings["condition"] = next((i for i, e in enumerate(inputs) if e is self.condition), -1)
        return loop.apply(given, {"step": step, **settings, "reverse": not forward["reverse"]})


def _behind(first: Entry, stacked: Entry, backwards: bool) -> Entry:
    """Values of all rounds, each one round later: those of the last one are left out."""
    begin = 1 if backwards else 0
    key = [("slice", 0, extent, 1) for extent in stacked.shape]
    key[0] = ("slice", begin, stacked.shape[0] - 1, 1)
    others = basic_index(stacked, key=tuple(key))
    alone = shape.reshape(first, shape=(1, *first.shape))
    parts = (others, alone) if backwards else (alone, others)
    found: Entry = shape.concatenate(*parts, axis=0)
    return found


def _opened(graph: Graph) -> Graph:
    """A graph with composites that have no gradient of their own written out."""

    def rule(node: Node, inputs: tuple[Entry, ...]) -> tuple[Entry, ...] | None:
        op = node.op
        if not isinstance(op, Composite) or "gradient" in op.rules:
            return None
        with Trace() as trace:
            trace.line, trace.part = node.origin, node.part or op.name
            return _opened(Graph(inputs, op.written_out(inputs, node.params))).outputs

    return rewrite(graph, rule)


# --- sums over the rounds -------------------------------------------------------------------

#: The sum over all rounds, from what is stacked and the last states.
Total = Callable[[dict[Entry, Entry]], Entry]


class _Sums:
    """How sums over the rounds are made: of values stacked for that, or in states of their own.

    Without `all_rounds` the latter only: what is stacked has a place for each, done or not.
    """

    def __init__(self, terms: dict[int, Entry], all_rounds: bool) -> None:
        self.all_rounds = all_rounds
        self.stacked: dict[Entry, None] = {}
        #: What stands for a sum before a round, and the sum after it.
        self.added: dict[Entry, Entry] = {}
        self.totals: dict[int, Total] = {i: self._total(term) for i, term in terms.items()}

    def _total(self, term: Entry) -> Total:
        node = term.node
        if node.op is full:  # nothing arrives
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
            # As the gradient of what is added to all rows of a stacked product, which this may be.
            rounds, rows, *others = given[x].shape
            flat = shape.reshape(given[x], shape=(rounds * rows, *others))
            found: Entry = shape.reshape(
                reduction.sum(flat, axis=(0,), keepdims=True), shape=result
            )
            return found

        return total

    def _of_product(self, a: Entry, b: Entry) -> Total:
        """Of a @ b: as if both stood side by side along the axis that is added along."""
        left, right = self._stack(swapped(a)), self._stack(b)

        def flat(x: Entry) -> Entry:
            rows, terms, columns = x.shape
            found: Entry = shape.reshape(x, shape=(rows * terms, columns))
            return found

        return lambda given: linalg.matmul(swapped(flat(given[left])), flat(given[right]))


# --- loops that save more -------------------------------------------------------------------


def shared(results: Sequence[Entry]) -> list[Entry]:
    """The results, with loops that a gradient has made save more in the place of those before."""
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
        found, states = made[long], node.params["states"]
        outputs = len(node.entries) - states
        return (*found[:outputs], *found[len(found) - states :])

    return list(rewrite(Graph((), results), rule).outputs)


def _known(node: Node) -> tuple[int, ...]:
    """What a loop and the same one that saves more have in common."""
    return tuple(map(id, (*node.inputs, *node.params["step"].inputs)))


def _size(node: Node) -> int:
    return len(node.entries)


__all__ = ["shared"]
