"""The table of ONNX's operators: one function for each, in terms of gemel.

A rule takes the node, which has the attributes, and the inputs: arrays, or the symbols of a trace,
or None for a missing input. It returns the result, or a tuple of results, computed with functions
of `np` and `npx`. Inputs that a rule needs as numbers, such as positions, shapes and limits, are
declared `known`. They are passed as `Known`, or can be read as a list with `node.numbers(x)`::

    @imports("Transpose")
    def _(node, x):
        return np.transpose(x, node.get("perm"))

    @imports("Expand", known=(1,))
    def _(node, x, shape):
        return np.broadcast_to(x, tuple(node.numbers(shape)))

`folds` declares rules for nodes whose inputs are all known: the arithmetic of shapes, which
exporters write as nodes. They return a `Known`, or None if it would be too large."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

Rule = Callable[..., Any]


class Operator(NamedTuple):
    """A rule, and for its inputs: which are known numbers, which get no gradient, and whether those
    without axes may stay Python numbers."""

    rule: Rule
    known: tuple[int, ...] = ()
    fixed: tuple[int, ...] = ()
    scalars: bool = False


#: The rules of operators, of operators on known numbers, and of those with inner graphs.
OPERATORS: dict[str, Operator] = {}
FOLDS: dict[str, Rule] = {}
INSIDE: dict[str, Rule] = {}


def imports(*names: str, **settings: Any) -> Callable[[Rule], Rule]:
    """Declare the rule of operators: rule(node, *inputs). For the settings see `Operator`."""

    def declare(rule: Rule) -> Rule:
        OPERATORS.update(dict.fromkeys(names, Operator(rule, **settings)))
        return rule

    return declare


def imports_inside(name: str) -> Callable[[Rule], Rule]:
    """Declare the rule of an operator with inner graphs: rule(node, run, *inputs), where run(graph,
    values by name) returns the outputs of a graph."""

    def declare(rule: Rule) -> Rule:
        INSIDE[name] = rule
        return rule

    return declare


def folds(*names: str) -> Callable[[Rule], Rule]:
    """Declare the rule of operators on known inputs: rule(node, *inputs) -> Known."""

    def declare(rule: Rule) -> Rule:
        FOLDS.update(dict.fromkeys(names, rule))
        return rule

    return declare


__all__ = ["FOLDS", "INSIDE", "OPERATORS", "Operator", "Rule", "folds", "imports", "imports_inside"]
