"""The table of what ONNX's operators are in gemel: one function for each.

A rule takes the node, for its attributes, and the inputs: arrays, or the symbols of a trace, None
where one is left out. It returns the result, or a tuple of results, by functions of `np` and
`npx`. Inputs that a rule needs as numbers are `known`: positions, shapes and limits. They come as
`Known`, or with `node.numbers(x)` as a list::

    @imports("Transpose")
    def _(node, x):
        return np.transpose(x, node.get("perm"))

    @imports("Expand", known=(1,))
    def _(node, x, shape):
        return np.broadcast_to(x, tuple(node.numbers(shape)))

`folds` are rules for nodes all of whose inputs are known: the arithmetic of shapes, which exporters
write as nodes. They give a `Known` or None, if there is too much of it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

Rule = Callable[..., Any]


class Operator(NamedTuple):
    """A rule, and of its inputs: which are known numbers, which no gradient changes, and whether
    those without axes may stay Python's numbers."""

    rule: Rule
    known: tuple[int, ...] = ()
    fixed: tuple[int, ...] = ()
    scalars: bool = False


#: The rules of operators, of operators on known numbers, and of those with graphs inside.
OPERATORS: dict[str, Operator] = {}
FOLDS: dict[str, Rule] = {}
INSIDE: dict[str, Rule] = {}


def imports(*names: str, **settings: Any) -> Callable[[Rule], Rule]:
    """Declare what operators are: rule(node, *inputs). For the settings see `Operator`."""

    def declare(rule: Rule) -> Rule:
        OPERATORS.update(dict.fromkeys(names, Operator(rule, **settings)))
        return rule

    return declare


def imports_inside(name: str) -> Callable[[Rule], Rule]:
    """Declare what an operator with graphs inside is: rule(node, run, *inputs), where
    run(graph, values by name) gives the outputs of a graph."""

    def declare(rule: Rule) -> Rule:
        INSIDE[name] = rule
        return rule

    return declare


def folds(*names: str) -> Callable[[Rule], Rule]:
    """Declare what operators are of known inputs: rule(node, *inputs) -> Known."""

    def declare(rule: Rule) -> Rule:
        FOLDS.update(dict.fromkeys(names, rule))
        return rule

    return declare


__all__ = ["FOLDS", "INSIDE", "OPERATORS", "Operator", "Rule", "folds", "imports", "imports_inside"]
