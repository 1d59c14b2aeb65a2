"""Displays symbols: a table of their layers, and a drawing in the language of Graphviz.

Both are MXNet 1's. `Block.summary` prints the table for a network that is not a symbol.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any

from gemel.arrays.archives import appear, checked_path
from gemel.errors import ArgumentError, OperandError, RenderingError, ShapeError
from gemel.ranges import counted, is_finite
from gemel.spec import is_several, product
from gemel.symbol import Symbol
from gemel.symbol.node import SymbolNode, nodes_of
from gemel.symbol.run import infer

#: The columns of the table.
COLUMNS = ("Layer (type)", "Output Shape", "Param #", "Previous Layer")
#: Endings of the names of variables that are weights and statistics.
WEIGHTS = (
    *("_weight", "_bias", "_gamma", "_beta", "_moving_mean", "_moving_var"),
    *("_running_mean", "_running_var", "_parameters"),
)
#: The settings that are shown in the box of an operation.
SHOWN = {
    "Activation": ("act_type",),
    "Convolution": ("kernel", "stride", "num_filter"),
    "Deconvolution": ("kernel", "stride", "num_filter"),
    "Dropout": ("p",),
    "Embedding": ("input_dim", "output_dim"),
    "FullyConnected": ("num_hidden",),
    "LeakyReLU": ("act_type",),
    "Pooling": ("pool_type", "kernel", "stride"),
    "RNN": ("mode", "state_size", "num_layers"),
}
#: Colours of boxes by the kind of operation; others are white.
COLOURS = {
    **dict.fromkeys(
        ("Convolution", "Deconvolution", "Embedding", "FullyConnected", "RNN"), "salmon"
    ),
    **dict.fromkeys(("Activation", "LeakyReLU"), "khaki"),
    **dict.fromkeys(("BatchNorm", "InstanceNorm", "LayerNorm", "GroupNorm"), "thistle"),
    "Pooling": "lightblue",
    **dict.fromkeys(("Concat", "Flatten", "Reshape"), "sandybrown"),
    **dict.fromkeys(("softmax", "log_softmax", "SoftmaxOutput"), "yellowgreen"),
}
VARIABLE_COLOUR = "aquamarine"


# --- the table ------------------------------------------------------------------------------


def print_summary(
    symbol: Symbol,
    shape: Mapping[str, tuple[int, ...]] | None = None,
    line_length: int = 120,
    positions: Sequence[float] = (0.44, 0.64, 0.74, 1.0),
) -> None:
    """Print a table of a symbol's operations: type, shape of an example, parameters, inputs.

    `shape` has the shapes of inputs by name; without it, shapes and parameters are unknown and not
    printed. Parameters are the variables without a shape there, each counted at its first use;
    running statistics and labels do not count. `positions` are the ends of columns, in characters
    or as fractions of `line_length`. Raises `OperandError` for anything but a symbol, `ShapeError`
    if the shapes do not determine all others, and `ArgumentError` for what are no shapes or ends.
    """
    if not isinstance(symbol, Symbol):
        raise OperandError(
            f"print_summary: {type(symbol).__name__} is not a Symbol; see Block.summary"
        )
    fits = is_several(positions) and len(positions) == len(COLUMNS)
    if not fits or not all(is_finite(each) and each >= 0 for each in positions):
        raise ArgumentError(
            f"print_summary: positions {positions!r} must be {len(COLUMNS)} ends, as numbers"
        )
    line_length = counted("print_summary", "line_length", line_length)
    known = None if shape is None else _Shapes("print_summary", symbol, shape)
    ends = [int(line_length * each) if positions[-1] <= 1 else int(each) for each in positions]
    rule = "_" * line_length
    print(rule, _line(COLUMNS, ends), "=" * line_length, sep="\n")
    nodes = nodes_of(symbol._heads)
    heads = {id(node) for node, _ in symbol._heads}
    shown = [n for n in nodes if not n.is_variable or n is nodes[0] or id(n) in heads]
    total = 0
    done: set[str] = set()
    for node in shown:
        before = [n.name for n, _ in node.inputs if not n.is_variable or n is nodes[0]]
        count = 0 if known is None else known.parameters(node, done)
        total += count
        extents = "" if known is None else "x".join(map(str, known.example(node)))
        first = (f"{node.name}({node.op})", extents, "" if known is None else count)
        for number, name in enumerate(before or [""]):
            print(_line((*(first if number == 0 else ("", "", "")), name), ends))
        print("=" * line_length if node is shown[-1] else rule)
    print(f"Total params: {'unknown' if known is None else total}", rule, sep="\n")


def _line(fields: Sequence[Any], ends: Sequence[int]) -> str:
    """Format fields in columns, which cut off longer text."""
    text = ""
    for field, end in zip(fields, ends, strict=True):
        text = f"{text}{field}"[:end].ljust(end)
    return text.rstrip()


class _Shapes:
    """The shapes of a symbol's nodes, computed from those of its inputs."""

    def __init__(self, name: str, symbol: Symbol, given: Mapping[str, tuple[int, ...]]) -> None:
        if not isinstance(given, Mapping) or not all(isinstance(each, str) for each in given):
            raise ArgumentError(f"{name}: shape is {given!r}; give shapes by names of inputs")
        self._given = set(given)
        self._statistics = set(symbol.list_auxiliary_states())
        inside = symbol.get_internals()
        self._variables, specs = infer(inside._heads, dict(given))
        names = inside.list_outputs()
        missing = [name for name, spec in zip(names, specs, strict=True) if spec is None]
        if missing:
            raise ShapeError(
                f"the shapes of {', '.join(given) or 'nothing'} do not determine that of "
                f"{missing[0]}; give the shapes of all inputs"
            )
        pairs = zip(inside._heads, specs, strict=True)
        self._outputs = {(id(node), i): tuple(spec.shape) for (node, i), spec in pairs if spec}

    def output(self, node: SymbolNode, index: int = 0) -> tuple[int, ...]:
        """The shape of an output; () for an output that only operations inside the symbol use."""
        return self._outputs.get((id(node), index), ())

    def example(self, node: SymbolNode) -> tuple[int, ...]:
        """The shape of the node's first output without the batch."""
        return self.output(node)[1:]

    def parameters(self, node: SymbolNode, counted: set[str]) -> int:
        """The number of elements in the parameters that this node is the first to use."""
        total = 0
        others = self._given | self._statistics | counted
        for position, (inner, _) in enumerate(node.inputs):
            if inner.is_variable and inner.name not in others and not _is_label(node, position):
                counted.add(inner.name)
                total += int(product(self._variables[inner.name]))
        return total


def _is_label(node: SymbolNode, position: int) -> bool:
    """Whether an input of an operation is its label."""
    return not node.is_own and node.legacy.inputs[position : position + 1] == ("label",)


# --- the drawing ----------------------------------------------------------------------------


class Drawing:
    """A drawing in the language of Graphviz: its `source`, which needs no package.

    `save` writes that. `render`, `view` and notebooks make pictures, with the package graphviz
    and its program; without them they raise `RenderingError`.
    """

    def __init__(self, title: str, source: str, save_format: str = "pdf") -> None:
        self.title = title
        self.source = source
        self.format = save_format

    def __str__(self) -> str:
        return self.source

    def save(self, filename: Any = None, directory: Any = None) -> str:
        """Write the source to a file, by default the title and ``.gv``, and return its name."""
        name = checked_path("save", "filename", filename or f"{self.title}.gv")
        path = name if directory is None else os.path.join(os.fspath(directory), name)
        appear(path, [self.source.encode()])
        return path

    def render(self, filename: Any = None, directory: Any = None, **options: Any) -> str:
        """Write the source and the picture next to it, and return the picture's name."""
        name = filename or f"{self.title}.gv"
        return str(self._drawn("render", filename=name, directory=directory, **options))

    def view(self, filename: Any = None, directory: Any = None, **options: Any) -> str:
        """Render it, and open the picture."""
        return self.render(filename, directory, view=True, **options)

    def pipe(self, format: str | None = None) -> bytes:
        """The picture's bytes."""
        found: bytes = self._drawn("pipe", format=format or self.format)
        return found

    def _repr_mimebundle_(self, *_: Any, **__: Any) -> dict[str, str]:
        """What a notebook shows: the picture, or else the source."""
        try:
            return {"image/svg+xml": self.pipe("svg").decode(), "text/plain": self.title}
        except RenderingError:
            return {"text/plain": self.source}

    def _drawn(self, what: str, **options: Any) -> Any:
        try:
            package = import_module("graphviz")
        except ImportError:
            raise RenderingError(
                f"{what}: drawing needs Graphviz: pip install graphviz, and your system's "
                "graphviz package; save() writes the source, to draw it elsewhere"
            ) from None
        try:
            return getattr(package.Source(self.source, format=self.format), what)(**options)
        except package.ExecutableNotFound as error:
            raise RenderingError(
                f"{what}: Graphviz's program dot was not found; install your system's graphviz "
                "package, or save() the source, to draw it elsewhere"
            ) from error


def plot_network(
    symbol: Symbol,
    title: str = "plot",
    save_format: str = "pdf",
    shape: Mapping[str, tuple[int, ...]] | None = None,
    dtype: Any = None,
    node_attrs: Mapping[str, Any] | None = None,
    hide_weights: bool = True,
) -> Drawing:
    r"""Draw a symbol: a box for each operation, with arrows to its readers.

    With `shape`, the shapes of inputs by name, arrows say the shape of an example. `node_attrs` are
    attributes of Graphviz for all boxes; weights are left out by `hide_weights`; `dtype` is
    accepted for old code. Raises `OperandError` for anything but a symbol, `ShapeError` if the
    shapes do not determine all others, and `ArgumentError` for two nodes with the same name, and
    settings of a wrong type.

    >>> from gemel import sym
    >>> y = sym.FullyConnected(sym.var("data"), num_hidden=3, name="fc")
    >>> plot_network(y).source.splitlines()[4].strip()
    '"fc" [label="FullyConnected\\n3", fillcolor="salmon"]'
    """
    if not isinstance(symbol, Symbol):
        raise OperandError(f"plot_network: {type(symbol).__name__} is not a Symbol")
    for what, value in ("title", title), ("save_format", save_format):
        if not isinstance(value, str):
            raise ArgumentError(f"plot_network: {what} is {value!r}; it must be a string")
    if not (node_attrs is None or isinstance(node_attrs, Mapping)):
        raise ArgumentError(
            f"plot_network: node_attrs is {node_attrs!r}; give Graphviz's attributes by name"
        )
    known = None if shape is None else _Shapes("plot_network", symbol, shape)
    box = {"shape": "box", "style": "filled", "fixedsize": "false", **(node_attrs or {})}
    lines = [f"digraph {_quoted(title)} {{", f"  node [{_attributes(box)}]", "  rankdir=BT"]
    edges = []
    drawn: dict[str, SymbolNode] = {}
    for node in nodes_of(symbol._heads):
        if hide_weights and node.is_variable and node.name.endswith(WEIGHTS):
            continue
        if node.name in drawn:
            raise ArgumentError(f"plot_network: two nodes are called {node.name}; rename one")
        drawn[node.name] = node
        lines.append(f"  {_quoted(node.name)} [{_attributes(_look(node))}]")
        for inner, index in node.inputs:
            if drawn.get(inner.name) is inner:
                extents = () if known is None else known.output(inner, index)[1:]
                label = f" [label={_quoted('x'.join(map(str, extents)))}]" if extents else ""
                edges.append(f"  {_quoted(inner.name)} -> {_quoted(node.name)}{label}")
    return Drawing(title, "\n".join([*lines, *edges, "}", ""]), save_format)


def _look(node: SymbolNode) -> dict[str, str]:
    """The attributes of a node's box."""
    if node.is_variable:
        return {"label": node.name, "shape": "oval", "fillcolor": VARIABLE_COLOUR}
    said = [node.attrs[name] for name in SHOWN.get(node.op, ()) if name in node.attrs]
    label = f"{node.op}\n{', '.join(said)}" if said else node.op
    return {"label": label, "fillcolor": COLOURS.get(node.op, "white")}


def _attributes(named: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={_quoted(str(value))}" for name, value in named.items())


def _quoted(text: str) -> str:
    """A quoted string for Graphviz."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


__all__ = ["Drawing", "plot_network", "print_summary"]
