"""Control flow: operations that take graphs as parameters."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from math import inf
from typing import Any

from gemel.dtype import bool_, int64
from gemel.errors import OperandError, ShapeError, TraceError
from gemel.ir.above import above
from gemel.ir.current import current_trace
from gemel.ir.declare import composite, op
from gemel.ir.graph import Entry, Graph, Node, constant, inline, placeholder, rewrite, walk
from gemel.ir.interpret import interpret
from gemel.ir.methods import call
from gemel.ir.op import Op
from gemel.ir.op_kinds import Composite
from gemel.ir.public import function
from gemel.ir.rules import Emitter
from gemel.ir.trace import kept_whole
from gemel.lists import as_list
from gemel.ops.elementwise import full
from gemel.ops.random import stream_taken
from gemel.spec import Spec


@op(fails=True)  # because an operation of either graph may fail
def branch(condition: Any, *inputs: Any, then: Any, otherwise: Any) -> Any:
    """The outputs of one of two graphs on the same inputs, chosen by a 0-d condition."""
    return tuple(_chosen(interpret, condition, *inputs, then=then, otherwise=otherwise))


@branch.control
def _chosen(run: Any, condition: Any, *inputs: Any, then: Any, otherwise: Any) -> Any:
    return run(then if bool(condition) else otherwise, *inputs)


@branch.spec
def _(condition: Spec, *inputs: Spec, then: Any, otherwise: Any) -> tuple[Spec, ...]:
    if condition.size != 1:
        raise ShapeError(f"cond: the condition {condition} must have one element")
    first = tuple(entry.spec for entry in then.outputs)
    second = tuple(entry.spec for entry in otherwise.outputs)
    if first != second:
        raise ShapeError(
            f"cond: both branches must return the same shapes and dtypes, not {list(first)} and "
            f"{list(second)}"
        )
    return first


@branch.gradient
def _(g: Any, y: Any, condition: Any, *inputs: Any, then: Any, otherwise: Any) -> Any:
    gs = g if isinstance(g, tuple) else (g,)
    used = [index for index, entry in enumerate(gs) if entry is not None]
    heads = [gs[index] for index in used]
    wanted = [i for i, entry in enumerate(inputs) if entry.dtype.is_inexact]
    sides = [backward_graph(graph, used, wanted) for graph in (then, otherwise)]
    found = branch.apply((condition, *inputs, *heads), {"then": sides[0], "otherwise": sides[1]})
    gradients: list[Any] = [None] * len(inputs)
    for index, entry in zip(wanted, found, strict=True):
        gradients[index] = entry
    return (None, *gradients)


def backward_graph(graph: Graph, used: list[int], wanted: list[int]) -> Graph:
    """A graph from a graph's inputs and the used outputs' gradients to the wanted gradients."""
    heads = [placeholder(graph.outputs[index].spec) for index in used]
    outputs = [graph.outputs[index] for index in used]
    inputs = [graph.inputs[index] for index in wanted]
    gradients = above.gradient(outputs, heads, inputs)
    return Graph((*graph.inputs, *heads), gradients, name=f"{graph.name}_backward")


@branch.lower
def _(emit: Emitter, outputs: Any, inputs: Any, *, then: Any, otherwise: Any) -> None:
    emit.branch(inputs[0], (then, otherwise), inputs[1:], outputs)


def choose(condition: Any, inputs: tuple[Any, ...], sides: Any) -> tuple[Entry, ...]:
    """A `branch` on entries. Random streams that its sides draw from become inputs.

    Its gradient runs a side again, in another plan, and has to draw the same numbers.
    """
    (then, otherwise), taken = _with_streams(sides)
    # A side that runs again must start from the inputs as they were given, not from what has been
    # written to them since. `apply` would take the latter, `node` does not.
    given = (above.as_entry(condition), *inputs, *taken)
    return _noted(branch.node(given, {"then": then, "otherwise": otherwise}))


def _noted(node: Node) -> tuple[Entry, ...]:
    """The results of a new node, which gets the line and the name that `apply` gives."""
    trace = current_trace()
    node.origin = trace.origin() if trace else ""
    if trace and trace.scopes.open and node.op is not None:
        node.name = trace.scopes.named(node.op.name)
    return node.entries


def _with_streams(graphs: Sequence[Graph]) -> tuple[list[Graph], list[Entry]]:
    """The graphs with the random streams that they draw from as last inputs, and these streams."""
    streams: dict[int, tuple[Entry, Entry]] = {}

    def stream(call: int) -> tuple[Entry, Entry]:
        number = Spec((), int64)
        return streams.setdefault(call, (placeholder(number, "seed"), placeholder(number, "call")))

    drawing = [drawn_from(graph, stream) for graph in graphs]
    stands = [entry for stream in streams.values() for entry in stream]
    taken = [entry for call in streams for entry in stream_taken.apply((), {"call": call})]
    return [closed(g.outputs, (*g.inputs, *stands), g.name) for g in drawing], taken


def drawn_from(graph: Graph, stream: Callable[[int], tuple[Entry, Entry]]) -> Graph:
    """The graph with streams of its own: `stream(call)` is the seed and the number of a call."""
    return rewrite(graph, partial(_from_stream, stream))


def draws(node: Node) -> bool:
    """Whether an operation draws from the program's stream."""
    return node.op is not None and node.op.random and len(node.inputs) <= node.op.required


def _from_stream(
    stream: Callable[[int], tuple[Entry, Entry]], node: Node, inputs: tuple[Entry, ...]
) -> tuple[Entry, ...] | None:
    """A node that draws rewritten to take its stream as inputs."""
    op, parameters = node.op, node.params
    if op is None or not draws(node):
        return None
    if isinstance(op, Composite):
        body = Graph(inputs, op.written_out(inputs, parameters))
        return drawn_from(body, stream).outputs
    given = stream(parameters["call"])
    if op is stream_taken:
        return given
    found = op.node((*inputs, *given), {**parameters, "call": 0})
    found.origin, found.name = node.origin, node.name
    return found.entries


@function(public="npx")
def cond(
    predicate: Any, then_func: Callable[..., Any], else_func: Callable[..., Any], inputs: Any = ()
) -> Any:
    """then_func(*inputs) if the condition holds, else else_func(*inputs).

    `predicate` is a 0-d array, or a function of the inputs that returns one. Called with arrays,
    `cond` waits for the condition and calls one function. In a trace both functions are recorded
    and must return the same shapes and dtypes; the compiled program chooses when it runs.

    >>> npx.cond(np.array(3.0) > 2, lambda x: x + 1, lambda x: x - 1, np.array([5.0]))
    """
    arguments = tuple(inputs) if isinstance(inputs, (tuple, list)) else (inputs,)
    condition = predicate(*arguments) if callable(predicate) else predicate
    if not isinstance(condition, Entry):
        return (then_func if bool(condition) else else_func)(*arguments)
    if condition.dtype is not bool_:
        condition = call("not_equal", condition, 0)
    whole = kept_whole("cond")
    if whole is not None:
        return whole(condition, then_func, else_func, arguments)
    entries = listed(arguments)
    stand_ins = tuple(placeholder(entry.spec, entry.node.name) for entry in entries)
    sides = _recorded((then_func, else_func), stand_ins)
    if any(each is None for results in sides for each in as_list(results)):
        raise OperandError(
            "cond: both functions must return an array or a list of arrays, not None"
        )
    free: dict[Entry, None] = {}
    for results in sides:
        free.update(dict.fromkeys(free_inputs(listed(results), stand_ins)))
    outside = (*stand_ins, *free)
    named = zip(sides, NAMES, strict=True)
    graphs = [closed(listed(results), outside, name) for results, name in named]
    found = choose(condition, (*entries, *free), graphs)
    return found if isinstance(sides[0], (tuple, list)) else found[0]


NAMES = ("then", "otherwise")


# --- loops whose length depends on values ---------------------------------------------------


@op(fails=True)
def iterate(*inputs: Any, condition: Any, step: Any) -> Any:
    """The first inputs after as many steps as the condition allows, which is computed before each.

    `condition` is a graph of all inputs with one result; `step` is one whose results are the next
    values of the first inputs.
    """
    return tuple(_iterated(interpret, *inputs, condition=condition, step=step))


@iterate.control
def _iterated(run: Any, *inputs: Any, condition: Any, step: Any) -> Any:
    *_, last = _steps(run, inputs, condition, step)
    return last[: len(step.outputs)]


def _steps(run: Any, inputs: Any, condition: Any, step: Any) -> Iterator[list[Any]]:
    """All inputs before each step, and after the last."""
    found = list(inputs)
    yield found
    while bool(run(condition, *found)[0]):
        after = run(step, *found)
        found = [*after, *inputs[len(after) :]]
        yield found


@iterate.spec
def _(*inputs: Spec, condition: Any, step: Any) -> tuple[Spec, ...]:
    held, after = condition.outputs[0].spec, tuple(entry.spec for entry in step.outputs)
    if held.size != 1:
        raise ShapeError(f"while: the condition {held} must have one element")
    if after != inputs[: len(after)]:
        raise ShapeError(f"while: a step returns {list(after)} for {list(inputs[: len(after)])}")
    return after


@iterate.gradient
def _(g: Any, y: Any, *inputs: Any, condition: Any, step: Any) -> Any:
    gs = g if isinstance(g, tuple) else (g,)
    used = [i for i, entry in enumerate(step.outputs) if entry.dtype.is_inexact]
    wanted = [i for i, entry in enumerate(inputs) if entry.dtype.is_inexact]
    ends = [above.as_entry(inputs[i]) for i in used]
    heads = [
        full(0, shape=x.shape, dtype=x.dtype) if gs[i] is None else gs[i]
        for i, x in zip(used, ends, strict=True)
    ]
    back = backward_graph(step, used, wanted)
    back = Graph((*back.inputs[len(inputs) :], *back.inputs[: len(inputs)]), back.outputs)
    parameters = {"condition": condition, "step": step, "back": back}
    found = iterate_backward.apply((*heads, *inputs), parameters)
    gradients: list[Any] = [None] * len(inputs)
    for index, entry in zip(wanted, found, strict=True):
        gradients[index] = entry
    return tuple(gradients)


@op(fails=True)
def iterate_backward(*inputs: Any, condition: Any, step: Any, back: Any) -> Any:
    """The gradients of a loop's floating inputs, from the gradients of its results and the inputs.

    `back` computes the gradients of one step's floating inputs from those of its results and its
    inputs. The steps run once more, to have the inputs of each.
    """
    return tuple(_gone_back(interpret, *inputs, condition=condition, step=step, back=back))


@iterate_backward.control
def _gone_back(run: Any, *inputs: Any, condition: Any, step: Any, back: Any) -> Any:
    count = len(back.inputs) - len(step.inputs)
    heads, states = list(inputs[:count]), [*_steps(run, inputs[count:], condition, step)]
    pairs = [*zip(states[0], step.inputs, strict=True)][len(step.outputs) :]
    shared = [value * 0 for value, entry in pairs if entry.dtype.is_inexact]
    for before in reversed(states[:-1]):
        found = run(back, *heads, *before)
        heads = list(found[:count])
        shared = [a + b for a, b in zip(shared, found[count:], strict=True)]
    return (*heads, *shared)


@iterate_backward.spec
def _(*inputs: Spec, condition: Any, step: Any, back: Any) -> tuple[Spec, ...]:
    return tuple(entry.spec for entry in back.outputs)


# --- gradients that a user gives ------------------------------------------------------------


@composite()
def own_gradient(*inputs: Any, results: int, backward: Any) -> Any:
    """The first `results` inputs, whose gradients are what the graph `backward` computes.

    It takes the gradients of the floating results, the results, and the inputs after these, as many
    as it reads. What it gives are the gradients of the last inputs; others get none.
    """
    return inputs[:results]


@own_gradient.spec
def _(*inputs: Spec, results: int, backward: Any) -> tuple[Spec, ...]:
    return inputs[:results]


@own_gradient.backward
def _(node: Node, gs: Sequence[Any], wanted: Sequence[bool]) -> Sequence[Any]:
    count, backward = node.params["results"], node.params["backward"]
    pairs = [(y, g) for y, g in zip(node.entries, gs, strict=True) if y.dtype.is_inexact]
    heads = [full(0, shape=y.shape, dtype=y.dtype) if g is None else g for y, g in pairs]
    others = len(backward.inputs) - len(heads)
    found = inline(backward, (*heads, *node.entries, *node.inputs[count:others]))
    return (*[None] * (len(node.inputs) - len(found)), *found)


def with_own_gradient(
    results: Sequence[Entry],
    heads: Sequence[Entry],
    inputs: Sequence[Entry],
    gradients: Sequence[Entry | None],
) -> tuple[Entry, ...]:
    """The results, as entries whose gradients reach these inputs as `gradients`, if not None.

    These have been traced, in the same trace and after the results, from `heads`: placeholders for
    the gradients of the floating results. What depends on neither is computed before.
    """
    found = [g for g in gradients if g is not None]
    own, began = set(results) - set(inputs), min((h.node.serial for h in heads), default=inf)
    behind, read = set(heads), dict.fromkeys(found)
    for node in walk(found, own):
        # The results as well: gradients of the gradients reach these by the same rule.
        if node.serial > began and any(e in behind or e in own for e in node.inputs):
            behind.update(node.entries)
            read.update(dict.fromkeys(node.inputs))
    others = [e for e in read if not (e in behind or e in own or e.node.is_number)]
    backward = closed(tuple(found), (*heads, *results, *others), "backward")
    (backward,), taken = _with_streams([backward])
    # Not `apply`: what was read may have been written to since then.
    pairs = [*zip(inputs, gradients, strict=True)]
    without, reached = ([x for x, g in pairs if (g is None) is none] for none in (True, False))
    given = (*results, *others, *taken, *without, *reached)
    return _noted(own_gradient.node(given, {"results": len(results), "backward": backward}))


def listed(results: Any) -> tuple[Entry, ...]:
    values = results if isinstance(results, (tuple, list)) else (results,)
    return tuple(above.as_entry(value) for value in values)


def _recorded(functions: tuple[Callable[..., Any], ...], arguments: tuple[Any, ...]) -> list[Any]:
    """The results of each side. Only one will run, so all begin at the same random call."""
    trace, results, ends = current_trace(), [], []
    began = trace.state.random_calls if trace else 0
    for side in functions:
        if trace:
            trace.state.random_calls = began
        results.append(_record(side, arguments))
        ends.append(trace.state.random_calls if trace else 0)
    if trace:
        trace.state.random_calls = max(ends)
    return results


def _record(function: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
    """A branch's results. It may only write to arrays that it has created itself."""
    trace = current_trace()
    if trace is None:
        return function(*arguments)
    began, before = constant(0).node.serial, trace.state.save()
    results = function(*arguments)
    if not trace.state.writes_inside(before, began):
        raise TraceError(
            "cond: a branch must not update a parameter, nor write to an array from outside; do "
            "so after the cond, with np.where"
        )
    return results


def free_inputs(results: tuple[Entry, ...], stand_ins: tuple[Entry, ...]) -> list[Entry]:
    """What a branch needs besides its arguments: the inputs of the program its results depend on.

    A value computed before the branch and reached by closure is computed again inside it; pass it
    in `inputs` to avoid that.
    """
    known = {entry.node for entry in stand_ins}
    return [node.entries[0] for node in walk(results) if node.is_input and node not in known]


def closed(results: tuple[Entry, ...], free: tuple[Entry, ...], name: str) -> Graph:
    """The branch as a graph, with placeholders for what it needs from outside."""
    inputs = tuple(placeholder(entry.spec, entry.node.name) for entry in free)
    return Graph(inputs, inline(Graph(free, results), inputs), name=name)


__all__ = [
    "Op",
    "branch",
    "choose",
    "closed",
    "cond",
    "drawn_from",
    "draws",
    "free_inputs",
    "iterate",
    "listed",
    "own_gradient",
    "with_own_gradient",
]
