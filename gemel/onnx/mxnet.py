"""MXNet's functions for ONNX files: those of ``mx.onnx`` and ``mx.contrib.onnx``."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from gemel.errors import ExportError, ShapeError
from gemel.gluon.symbol_block import SymbolBlock
from gemel.npx import serialize
from gemel.onnx.read.network import Network, load, read
from gemel.onnx.write.model import OPSET, modelled, numbered, write
from gemel.spec import Spec
from gemel.symbol.export import exported
from gemel.symbol.symbol import Symbol
from gemel.symbol.symbol import load as load_symbol
from gemel.tracing.programs import Arguments


def export_model(
    sym: Any,
    params: Any,
    in_shapes: Sequence[Any] | None = None,
    in_types: Any = "float32",
    onnx_file_path: Any = "model.onnx",
    verbose: bool = False,
    dynamic: bool = False,
    dynamic_input_shapes: Sequence[Any] | None = None,
    run_shape_inference: bool = False,
    input_type: Any = None,
    input_shape: Any = None,
    large_model: bool = False,
) -> str:
    """Write a symbol and its parameters as an ONNX file; gives the file's path.

    `sym` is a symbol or its file, `params` a dictionary of arrays, a list of two of them, or their
    file. `in_shapes` and `in_types` are of the inputs, in the symbol's order. With `dynamic` sizes
    are free, those that are None in `dynamic_input_shapes` or all. Shapes are always inferred,
    whatever `run_shape_inference` says, and large models have their weights beside them.
    """
    symbol = sym if isinstance(sym, Symbol) else load_symbol(os.fspath(sym))
    arrays = _arrays(params)
    known = {name.removeprefix("arg:").removeprefix("aux:"): x for name, x in arrays.items()}
    names = [name for name in symbol.list_inputs() if name not in known]
    shapes = in_shapes if in_shapes is not None else input_shape
    specs = _specs(names, shapes, in_types if input_type is None else input_type)
    block = SymbolBlock(symbol, names)
    block._fill(known, "export_model: params", allow_missing=False, ignore_extra=True)
    given = Arguments((tuple, (None,) * len(specs)), list(specs), [])
    held = numbered(_free(specs, dynamic_input_shapes) if dynamic else [s.shape for s in specs])
    name = block.name or symbol.name or "symbol"
    _, made = modelled(block._run, given, names, held, name, OPSET)
    return write(made, onnx_file_path)


def _free(specs: list[Spec], wanted: Sequence[Any] | None) -> list[list[Any]]:
    """Shapes with None for free extents: all extents, or those that are not integers in
    `wanted`."""
    if wanted is None:
        return [[None] * spec.ndim for spec in specs]
    rows = [[wanted[place][axis] for axis in range(s.ndim)] for place, s in enumerate(specs)]
    return [[n if isinstance(n, int) else None for n in row] for row in rows]


def _arrays(params: Any) -> dict[str, Any]:
    """The arrays by name, from any of the accepted forms."""
    if isinstance(params, dict):
        return params
    if isinstance(params, (list, tuple)):
        return {name: array for part in params for name, array in part.items()}
    return dict(serialize.load_named(params))


def _specs(names: list[str], shapes: Any, types: Any) -> list[Spec]:
    """The specs of the inputs. Raises `ShapeError` unless there is one shape for each."""
    if shapes is None or len(shapes) != len(names):
        raise ShapeError(
            f"export_model: in_shapes {shapes} must have a shape for each of the inputs "
            f"({', '.join(names)})"
        )
    each = list(types) if isinstance(types, (list, tuple)) else [types] * len(names)
    return [Spec(shape, dtype) for shape, dtype in zip(shapes, each, strict=True)]


def import_model(model_file: Any) -> tuple[Symbol, dict[str, Any], dict[str, Any]]:
    """The network of an ONNX file as a symbol, its arguments and its auxiliary states.

    A batch that is free is one example. Raises `ExportError` for what MXNet has no operations for,
    and for files that leave other sizes free: `gemel.onnx.load` reads these.
    """
    net = load(model_file)
    arrays = [
        Spec([_extent(name, shape, axis) for axis in range(len(shape))], dtype)
        for name, (dtype, shape) in zip(net._inputs, net._kinds, strict=True)
    ]
    given = Arguments((tuple, (None,) * len(arrays)), list(arrays), [])
    found = exported(net._run, given, names=net._inputs)
    symbol = Symbol(found.heads)
    auxiliary = set(symbol.list_auxiliary_states())
    values = {name: array.as_nd_ndarray() for name, array in found.variables.items()}
    return (
        symbol,
        {name: array for name, array in values.items() if name not in auxiliary},
        {name: array for name, array in values.items() if name in auxiliary},
    )


def _extent(name: str, shape: Any, axis: int) -> int:
    """A size of an input. Raises `ExportError` if it is free in the file."""
    extent = shape[axis]
    if isinstance(extent, int):
        return extent
    if axis:
        raise ExportError(
            f"import_model: input {name!r} {list(shape)} leaves axis {axis} free, and a symbol is "
            "for one size; use gemel.onnx.load, or write the file with fixed sizes"
        )
    return 1


def import_to_gluon(model_file: Any, ctx: Any = None) -> Network:
    """The network of an ONNX file as a block: `gemel.onnx.load`."""
    return load(model_file, ctx=ctx)


def get_model_metadata(model_file: Any) -> dict[str, list[tuple[str, tuple[int, ...]]]]:
    """The names and shapes of an ONNX file's inputs and outputs; 0 stands for free sizes."""
    graph = read(os.fspath(model_file)).graph
    constants = {each.name for each in graph.initializer}

    def described(values: Any) -> list[tuple[str, tuple[int, ...]]]:
        return [
            (each.name, tuple(n.dim_value for n in each.type.tensor_type.shape.dim))
            for each in values
            if each.name not in constants
        ]

    return {
        "input_tensor_data": described(graph.input),
        "output_tensor_data": described(graph.output),
    }


__all__ = ["export_model", "get_model_metadata", "import_model", "import_to_gluon"]
