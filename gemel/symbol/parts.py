"""Operations expressed by other operations, for files that lack them."""

from __future__ import annotations

import math
from typing import Any

from gemel.ir.graph import Entry, Node, walk
from gemel.ir.methods import call
from gemel.ir.op import Op
from gemel.ir.op_kinds import Composite, Elementwise
from gemel.symbol.composed import COMPOSED


def by_parts(node: Node) -> tuple[Entry, ...] | None:
    """The results of a node by other operations, in the trace in progress; None if the operation is
    not a composition of others."""
    op = node.op
    if isinstance(op, Composite):
        return op.written_out(node.inputs, node.params)
    found = composed(node)
    if found is not None:
        return found
    if isinstance(op, Elementwise) and not op.random:
        try:
            found = op.body(_ByName(op.name), *_computed_in(op, node), **node.params)
            found = found if isinstance(found, tuple) else (found,)
            pairs = zip(found, node.specs, strict=True)  # of numbers, a part may have another dtype
            found = tuple(call("cast", x, dtype=spec.dtype) for x, spec in pairs)
            if all(other.op is not op for other in walk(found, node.inputs)):
                return found
        except (AttributeError, KeyError, ValueError, TypeError):
            pass
    return None


def composed(node: Node) -> tuple[Entry, ...] | None:
    """The results of an operation that NumPy computes, by what it is composed of; None if
    there is no composition of it."""
    assert node.op is not None
    rule = COMPOSED.get(node.op.name)
    if rule is None:
        return None
    inputs: Any = node.inputs
    if isinstance(node.op, Elementwise):
        inputs = _computed_in(node.op, node)
    found = rule(*inputs, **node.params)
    return found if found is None or isinstance(found, tuple) else (found,)


def _computed_in(op: Elementwise, node: Node) -> list[Entry]:
    """The inputs of a node in the dtypes that its operation computes in: the difference of two
    uint8 is none of their floating-point numbers."""
    dtypes, _ = op.types(tuple(entry.spec for entry in node.inputs), node.params)
    return [
        entry if entry.node.is_number or entry.dtype is dtype else call("cast", entry, dtype=dtype)
        for entry, dtype in zip(node.inputs, dtypes, strict=True)
    ]


def kept_by_save(op: Op) -> str:
    """What to do else with an operation that a format lacks. Those of others are in no file."""
    return ", or use gemel.save, which supports every operation of gemel" if op.is_own else ""


class _ByName:
    """Operations on entries by name, for running the body of an elementwise operation."""

    inf, nan, pi = math.inf, math.nan, math.pi

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        if name == self._name:  # it is not a composition of others
            raise AttributeError(name)
        return lambda *inputs, **parameters: call(name, *inputs, **parameters)


__all__ = ["by_parts", "kept_by_save"]
