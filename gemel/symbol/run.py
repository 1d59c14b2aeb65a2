"""Running symbols on arrays, and inferring shapes and dtypes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from gemel.dtype import DType, as_dtype
from gemel.errors import GemelError, ShapeError
from gemel.ir import precision
from gemel.ir.graph import placeholder
from gemel.ir.trace import Trace
from gemel.npx.serialize import dtype_of_flag
from gemel.spec import Spec, extents
from gemel.symbol import own
from gemel.symbol.node import (
    Reference,
    SymbolNode,
    nodes_of,
    places_of,
    value_of,
    variables_of,
)


def run(
    heads: Iterable[Reference], values: Mapping[str, Any], extents: Mapping[str, Any] | None = None
) -> list[Any]:
    """The values of the heads, given arrays (or entries of a trace) by the names of variables.

    `extents` are the sizes that parameters of gemel's own operations refer to.
    """
    heads = tuple(heads)
    results: dict[int, Any] = {}
    for node in nodes_of(heads):
        if node.is_variable:
            results[id(node)] = (values.get(node.name),)
        else:
            with precision.part(node.name):
                inputs = [results[id(source)][index] for source, index in node.inputs]
                results[id(node)] = apply(node, inputs, extents)
    return [results[id(node)][index] for node, index in heads]


def apply(
    node: SymbolNode, inputs: list[Any], extents: Mapping[str, Any] | None = None
) -> tuple[Any, ...]:
    """The outputs of one node. Errors name the node."""
    results: Any
    try:
        if node.is_own:
            results = own.apply(node.attrs, own.operation(node.op), inputs, extents or {})
            return tuple(results) if isinstance(results, (list, tuple)) else (results,)
        operation = node.legacy
        settings = node.settings()
        if node.graphs:
            programs = [_program(heads) for heads in node.graphs]
            results = operation.function(*inputs, programs=programs, **operation.checked(settings))
            return tuple(results)
        named = operation.wanted(settings) if not operation.variadic else ()
        if len(named) == len(inputs):
            results = operation(**dict(zip(named, inputs, strict=True)), **settings)
        else:
            results = operation(*inputs, **settings)
    except GemelError as error:
        if not getattr(error, "_of_node", False):
            error._of_node = True  # type: ignore[attr-defined]
            error.args = (f"node {node.name!r} ({node.op}): {error}", *error.args[1:])
        raise
    except (TypeError, ValueError, LookupError) as error:
        raise ShapeError(f"node {node.name!r} ({node.op}): {error}") from error
    return tuple(results) if isinstance(results, (list, tuple)) else (results,)


def _program(heads: tuple[Reference, ...]) -> Callable[..., list[Any]]:
    """A program inside of a node as a function of its variables."""
    names = [node.name for node in variables_of(heads)]
    return lambda *values: run(heads, dict(zip(names, values, strict=True)))


def shape_said(node: SymbolNode) -> tuple[int, ...] | None:
    """The shape in a variable's attributes, if it is complete."""
    shape = value_of(node.attrs.get("__shape__", ""))
    whole = isinstance(shape, tuple) and all(type(n) is int and n > 0 for n in shape)
    return shape if whole else None


def dtype_said(node: SymbolNode) -> str | None:
    """The dtype in a variable's attributes, if there is one."""
    flag = node.attrs.get("__dtype__")
    return None if flag is None else dtype_of_flag(flag)


def infer(
    heads: Iterable[Reference],
    shapes: Mapping[str, tuple[int, ...]],
    dtypes: Mapping[str, Any] | None = None,
) -> tuple[dict[str, tuple[int, ...]], list[Spec | None]]:
    """The shapes of variables inferred from those given, and the specs of the heads.

    What cannot be inferred is left out, or is None. Raises `ShapeError` for shapes that no array
    can have, and for those that do not fit.
    """
    heads = tuple(heads)
    known: dict[str, tuple[int, ...]] = {
        name: extents(f"variable {name!r}", shape) for name, shape in shapes.items()
    }
    dtypes = dtypes or {}
    specs: dict[int, list[Any]] = {}
    for node in nodes_of(heads):
        if node.is_variable:
            shape = known.get(node.name) or shape_said(node)
            if shape is not None:
                known[node.name] = shape
            continue
        if not node.is_own:
            _follow(node, known, specs)
        inputs = [_spec(reference, known, specs, dtypes) for reference in node.inputs]
        if any(spec is None for spec in inputs):
            specs[id(node)] = [None] * node.outputs
            continue
        known_inputs = [spec for spec in inputs if spec is not None]
        told = None if node.is_own else node.legacy.told(known_inputs, node.settings())
        if told is None:
            with Trace():
                outputs = apply(node, [placeholder(spec) for spec in known_inputs])
            told = [entry.spec for entry in outputs]
        specs[id(node)] = told
    return known, [_spec(head, known, specs, dtypes) for head in heads]


def infer_types(
    heads: Iterable[Reference], names: list[str], given: Mapping[str, Any]
) -> tuple[list[Any], list[Any], list[Any]]:
    """The dtypes of arguments, heads and auxiliary states, for which shapes need not be known.

    A node has the dtype in its settings, or else that of its first input.
    """
    usual = next(iter(given.values()), "float32")
    dtypes: dict[int, DType] = {}
    variables: dict[str, DType] = {}
    for node in nodes_of(heads):
        if node.is_variable:
            said = given.get(node.name, dtype_said(node) or usual)
            dtypes[id(node)] = variables[node.name] = as_dtype(said)
            continue
        said = None if node.is_own else node.settings().get("dtype")
        first = dtypes[id(node.inputs[0][0])] if node.inputs else as_dtype("float32")
        dtypes[id(node)] = first if said in (None, "None") else as_dtype(said)
    outputs = [dtypes[id(node)] for node, _ in heads]
    others = [dtype for name, dtype in variables.items() if name not in names]
    return [variables[name] for name in names], outputs, others


def _spec(
    reference: Reference,
    known: dict[str, tuple[int, ...]],
    specs: dict[int, list[Any]],
    dtypes: Mapping[str, Any],
) -> Spec | None:
    node, index = reference
    if not node.is_variable:
        outputs: list[Spec | None] = specs[id(node)]
        return outputs[index]
    shape = known.get(node.name)
    if shape is None:
        return None
    return Spec(shape, dtypes.get(node.name) or dtype_said(node) or "float32")


def _follow(
    node: SymbolNode, known: dict[str, tuple[int, ...]], specs: dict[int, list[Any]]
) -> None:
    """Infer the shapes of a layer's parameters from that of its data."""
    if node.graphs:
        _follow_inside(node, known, specs)
        return
    inputs = [_spec(reference, known, specs, {}) for reference in node.inputs]
    shapes = [None if spec is None else tuple(spec.shape) for spec in inputs]
    follows = node.legacy.follows(shapes, node.settings())
    for (inner, _), shape in zip(node.inputs, follows, strict=False):
        if inner.is_variable and shape is not None:
            known.setdefault(inner.name, tuple(shape))


def _follow_inside(
    node: SymbolNode, known: dict[str, tuple[int, ...]], specs: dict[int, list[Any]]
) -> None:
    """Infer the shapes that the programs of a loop need, from those of its data and states."""
    places = places_of(node)
    sliced = len(node.settings().get("in_data_locs", ()))
    for position, heads in enumerate(node.graphs):
        variables = variables_of(heads)
        shapes = {}
        for index, variable in enumerate(variables):
            place = places[position, index]
            spec = _spec(node.inputs[place], known, specs, {})
            if spec is not None:
                shapes[variable.name] = tuple(spec.shape[1:] if place < sliced else spec.shape)
        follows, _ = infer(heads, shapes)
        for index, variable in enumerate(variables):
            place = places[position, index]
            outer = node.inputs[place][0]
            if place >= sliced and outer.is_variable and variable.name in follows:
                known.setdefault(outer.name, follows[variable.name])
