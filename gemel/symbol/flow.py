"""Control flow on symbols: `foreach`, `while_loop` and `cond` of MXNet 1's `contrib`.

Nodes that do not depend on the loop's variables are computed once, outside of the loop.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from gemel.errors import ShapeError
from gemel.ops.loops import leaves, nested
from gemel.symbol.loops import choice_places, foreach_places, while_places
from gemel.symbol.node import Reference, SymbolNode, nodes_of, variables_of
from gemel.symbol.scopes import named
from gemel.symbol.symbol import Symbol, var


def foreach(body: Callable[..., Any], data: Any, init_states: Any, name: str = "foreach") -> Any:
    """body(element, states) -> (output, states), for each element of the first axis of data."""
    name = named(None, name)
    arrays, first = _heads(data), _heads(init_states)
    given = _variables(name, len(arrays) + len(first))
    held = iter(given)
    output, after = body(nested(held, data), nested(held, init_states))
    results = _heads(output), _heads(after)
    program = _inside(name, [*results[0], *results[1]], given)
    settings = {
        "num_out_data": len(results[0]),
        "num_outputs": len(results[0]) + len(results[1]),
    }
    places = lambda orders: foreach_places(orders, len(arrays), len(first))  # noqa: E731
    found = iter(_made("_foreach", name, [*arrays, *first], [program], settings, places, True))
    return nested(found, output), nested(found, after)


def while_loop(
    cond: Callable[..., Any],
    func: Callable[..., Any],
    loop_vars: Any,
    max_iterations: int,
    name: str = "while_loop",
) -> Any:
    """Run func(*variables) -> (output, variables) while cond(*variables) holds, at most
    `max_iterations` times."""
    name = named(None, name)
    whole = loop_vars if isinstance(loop_vars, (list, tuple)) else [loop_vars]
    first = _heads(whole)
    given = [_variables(f"{name}_{part}", len(first)) for part in ("cond", "func")]
    test = _inside(name, _heads(cond(*nested(iter(given[0]), whole))), given[0])
    output, after = func(*nested(iter(given[1]), whole))
    after = after if isinstance(after, (list, tuple)) else [after]
    results = _heads(output), _heads(after)
    step = _inside(name, [*results[0], *results[1]], given[1])
    settings = {
        "max_iterations": max_iterations,
        "num_out_data": len(results[0]),
        "num_outputs": len(results[0]) + len(results[1]),
    }
    places = lambda orders: while_places(orders, len(first))  # noqa: E731
    found = iter(_made("_while_loop", name, first, [test, step], settings, places, True))
    return nested(found, output), nested(found, after)


def cond(
    pred: Any,
    then_func: Callable[..., Any],
    else_func: Callable[..., Any],
    inputs: Any = (),
    name: str = "cond",
) -> Any:
    """then_func(*inputs) if the condition holds, else else_func(*inputs)."""
    name = named(None, name)
    arguments = tuple(inputs) if isinstance(inputs, (tuple, list)) else (inputs,)
    test = pred(*arguments) if callable(pred) and not isinstance(pred, Symbol) else pred
    variable = _variables(name, 1)
    programs = [_inside(name, _heads(variable[0]), variable)]
    result: Any = None
    for function in (then_func, else_func):
        result = function(*arguments)
        programs.append(_inside(name, _heads(result), []))
    settings = {"num_outputs": len(_heads(result))}
    found = _made("_cond", name, _heads(test), programs, settings, choice_places, False)
    return nested(iter(found), result)


#: The heads of a program, and what each of its variables stands for: the position of a given
#: variable, or an output of a node outside.
Program = tuple[tuple[Reference, ...], list[Any]]


def _heads(values: Any) -> list[Reference]:
    return [head for value in leaves(values) for head in value._heads]


def _variables(name: str, count: int) -> list[Symbol]:
    return [var(f"{name}_in{place}") for place in range(count)]


def _inside(name: str, heads: Iterable[Reference], given: list[Symbol]) -> Program:
    """A program in which nodes that do not depend on the given variables become new variables."""
    places = {id(each._heads[0][0]): place for place, each in enumerate(given)}
    new: dict[int, SymbolNode] = {}
    taken: dict[tuple[int, int], SymbolNode] = {}
    means: dict[int, Any] = {}

    def reference(node: SymbolNode, index: int) -> Reference:
        if id(node) in new:
            return new[id(node)], index
        if (id(node), index) not in taken:
            made = taken[id(node), index] = var(f"{name}_out{len(taken)}")._heads[0][0]
            means[id(made)] = node, index
        return taken[id(node), index], 0

    every = tuple(heads)
    for node in nodes_of(every):
        if id(node) in places:
            new[id(node)], means[id(node)] = node, places[id(node)]
        elif any(id(inner) in new for inner, _ in node.inputs):
            inputs = [reference(*each) for each in node.inputs]
            new[id(node)] = SymbolNode(
                node.op, node.name, node.attrs, inputs, node.outputs, node.graphs
            )
    found = []
    for place, head in enumerate(every):
        node, index = reference(*head)
        if node.is_variable:  # MXNet does not allow variables as results of programs
            node, index = SymbolNode("_copy", f"{name}_copy{place}", {}, [(node, index)]), 0
        found.append((node, index))
    return tuple(found), [means[id(node)] for node in variables_of(found)]


def _made(
    op: str,
    name: str,
    given: list[Reference],
    programs: list[Program],
    settings: dict[str, int],
    placed: Callable[[list[list[int]]], dict[str, Any]],
    reads_all: bool,
) -> list[Symbol]:
    """The results of a node with programs inside."""
    inputs = list(given)
    outside: dict[tuple[int, int], int] = {}
    orders = []
    for _, means in programs:
        order = []
        for each in means:
            if isinstance(each, tuple):
                key = id(each[0]), each[1]
                if key not in outside:
                    outside[key] = len(inputs)
                    inputs.append(each)
                each = outside[key]
            order.append(each)
        orders.append(order)
    missing = set(range(len(given))) - set(orders[-1])
    if reads_all and missing:
        raise ShapeError(f"{op}: a step does not read the loop's variables {sorted(missing)}")
    whole = {**settings, **placed(orders), "num_args": len(inputs) + len(programs)}
    graphs = [heads for heads, _ in programs]
    attrs = {key: str(value) for key, value in whole.items()}
    node = SymbolNode(op, name, attrs, inputs, settings["num_outputs"], graphs)
    return [Symbol(((node, index),)) for index in range(node.outputs)]
