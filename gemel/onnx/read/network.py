"""Networks read from ONNX files."""

from __future__ import annotations

import os
from importlib import import_module
from typing import Any

from gemel import np
from gemel.device import as_device
from gemel.errors import MissingFileError, ShapeError, SymbolFileError
from gemel.gluon.hybrid import HybridBlock
from gemel.gluon.parameter import Parameter
from gemel.onnx.read.graph import Graph, Node, Reader
from gemel.onnx.read.rules import OPERATORS
from gemel.onnx.read.running import lifted, run
from gemel.onnx.types import onnx


def load(path: Any, device: Any = None, ctx: Any = None) -> Network:
    """The network in an ONNX file: a block, to be called, trained, hybridized or saved.

    Its parameters are the file's floating tensors of at least one axis; what is written as a
    constant stays one. Raises `SymbolFileError`, naming the place, for a file that is damaged or
    none, `UnknownOperatorsError`, which lists all operators gemel lacks, and `MissingPackageError`
    without the package onnx.
    """
    source = os.fspath(path)
    return network(read(source), source, device if device is not None else ctx)


def read(source: str) -> Any:
    """The model in a file. Raises `SymbolFileError`, `MissingFileError`."""
    package = onnx()
    if not os.path.exists(source):
        raise MissingFileError(f"onnx.load: {source} does not exist")
    try:
        model = package.load(source)
    except (*_refusals(), package.checker.ValidationError, ValueError, TypeError) as error:
        raise SymbolFileError(
            f"ONNX file {source}: is truncated, damaged or no ONNX file: {error}"
        ) from None
    if not model.graph.node and not model.graph.output:
        raise SymbolFileError(f"ONNX file {source}: holds no graph: it is empty, or no ONNX file")
    return model


def _refusals() -> tuple[type[Exception], ...]:
    """The exceptions that protobuf raises for bytes that are not a message."""
    found = import_module("google.protobuf.message").DecodeError, FileNotFoundError
    return found


def network(model: Any, source: str, device: Any = None) -> Network:
    """A model of the package onnx as a network."""
    reader = Reader(model, source)
    return Network(reader.graph(), reader, as_device(device))


class Network(HybridBlock):
    """The graph of an ONNX file, with its weights as parameters."""

    def __init__(self, graph: Graph, reader: Reader, device: Any) -> None:
        super().__init__(prefix="")
        self._graph = graph
        self._inputs = [each.name for each in graph.inputs]
        self._kinds = [_kind(each, reader) for each in graph.inputs]
        uses = _uses(graph)
        for name, constant in list(graph.constants.items()):
            trained = uses.get(name, set())
            if not constant.shape or not constant.dtype.is_floating or not trained:
                continue
            value = np.array(constant.numpy(), dtype=constant.dtype)
            parameter = Parameter(
                name,
                shape=value.shape,
                dtype=value.dtype,
                grad_req="null" if False in trained else "write",
            )
            parameter.initialize("zeros", device)
            parameter.set_data(value)
            self._register_parameter(name, parameter)
            del graph.constants[name]

    def forward(self, *arguments: Any) -> Any:
        """The graph's outputs: one, or a tuple. Raises `ShapeError` for other inputs."""
        if len(arguments) != len(self._inputs):
            raise ShapeError(
                f"{self._graph.name}: takes {len(self._inputs)} inputs ({', '.join(self._inputs)}),"
                f" got {len(arguments)}"
            )
        given = map(self._checked, self._inputs, self._kinds, arguments)
        values = dict(zip(self._inputs, given, strict=True))
        values.update({name: p.data() for name, p in self._reg_params.items()})
        found = tuple(lifted(each) for each in run(self._graph, values))
        return found[0] if len(found) == 1 else found

    def _checked(self, name: str, kind: Any, x: Any) -> Any:
        """An argument, converted to the file's dtype; its number of axes is checked."""
        dtype, shape = kind
        if shape is not None and len(shape) != len(x.shape):
            raise ShapeError(
                f"{self._graph.name}: input {name!r} has {len(shape)} axes ({shape}), "
                f"not {len(x.shape)}"
            )
        return x.astype(dtype, copy=False)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._graph.name}: {', '.join(self._inputs)})"


def _kind(made: Any, reader: Reader) -> Any:
    """The dtype and the shape of an input, with None for free extents."""
    if not made.type.HasField("tensor_type"):
        raise reader.fail(f"input {made.name!r} is no tensor")
    kind = made.type.tensor_type
    shape = None
    if kind.HasField("shape"):
        shape = [
            n.dim_value if n.HasField("dim_value") else n.dim_param or None for n in kind.shape.dim
        ]
    return reader.dtype(kind.elem_type, f"input {made.name!r}"), shape


def _uses(graph: Graph) -> dict[str, set[bool]]:
    """For each tensor that is read as an array, whether its uses allow training."""
    found: dict[str, set[bool]] = {}
    for node in _every(graph):
        operator = OPERATORS.get(node.kind)
        for place, name in enumerate(node.inputs):
            if operator is None or place not in operator.known:
                trained = operator is None or place not in operator.fixed
                found.setdefault(name, set()).add(trained)
    return found


def _every(graph: Graph) -> list[Node]:
    """The nodes of a graph, including those of its inner graphs."""
    found = list(graph.nodes)
    for node in graph.nodes:
        for value in node.attributes.values():
            found += _every(value) if isinstance(value, Graph) else []
    return found


__all__ = ["Network", "load", "network", "read"]
