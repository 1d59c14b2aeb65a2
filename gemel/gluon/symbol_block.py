"""MXNet's files: `export` writes them, and `SymbolBlock` runs the network that was read."""

from __future__ import annotations

import os
import warnings
from typing import Any

from gemel.arrays.archives import appear
from gemel.device import as_device
from gemel.errors import ArgumentError, ExportError, ExportWarning, ShapeError, unknown_name
from gemel.gluon.block import Tensor
from gemel.gluon.hybrid import HybridBlock
from gemel.gluon.parameter import Parameter
from gemel.lists import as_list
from gemel.npx import serialize
from gemel.symbol import json
from gemel.symbol.export import Exported, exported
from gemel.symbol.node import SymbolNode, nodes_of
from gemel.symbol.run import infer, run
from gemel.symbol.symbol import Symbol, group, load
from gemel.tracing.nested import unflatten
from gemel.tracing.programs import Arguments

# --- writing --------------------------------------------------------------------------------


def traced(block: HybridBlock) -> Exported:
    """The block's forward as a symbol, for arguments like those of its last call."""
    names = block._inputs if isinstance(block, SymbolBlock) else ()
    return exported(block._run, block._last_call("export"), names=names)


def tell_limits(block: Any, program: Exported, depth: int) -> None:
    """Warn about a symbol that is valid only for some sizes, because MXNet's have no
    conditions, and numbers in place of sizes."""
    if program.limits:
        rules = " and ".join(dict.fromkeys(program.limits))
        warnings.warn(
            f"export: {block.name} depends on the batch size: the exported symbol would be right "
            f"only where {rules}, and MXNet's files cannot express that; make forward "
            "independent of the batch size, or use gemel.save",
            ExportWarning,
            stacklevel=depth + 1,
        )
    held = program.held_sizes()
    if held:
        warnings.warn(
            f"export: {block.name} computes with sizes, which MXNet's files hold as numbers: the "
            f"exported symbol would be right only where {' and '.join(held)}; use gemel.save or "
            "onnx.export for a file for all sizes",
            ExportWarning,
            stacklevel=depth + 1,
        )


def export(block: HybridBlock, path: Any, epoch: int = 0) -> tuple[str, str]:
    """Write MXNet's two files, each completely or not at all; returns their names."""
    program = traced(block)
    tell_limits(block, program, 3)
    symbol = Symbol(program.heads)
    auxiliary = set(symbol.list_auxiliary_states())
    arrays = {
        f"{'aux' if name in auxiliary else 'arg'}:{name}": array
        for name, array in program.variables.items()
    }
    place = os.fspath(path)
    folder = os.path.dirname(place)
    if folder:
        os.makedirs(folder, exist_ok=True)
    names = f"{place}-symbol.json", f"{place}-{epoch:04d}.params"
    serialize.save(names[1], arrays)
    appear(names[0], [json.written(program.heads).encode()])
    return names


def export_symbol(block: HybridBlock, path: Any) -> None:
    """Write ``PATH-symbol.json`` alone, for the files of `save_parameters`: its parameters are
    named by their places in the block, ``0.weight``."""
    program = traced(block)
    tell_limits(block, program, 2)
    places = {p.name: place for place, p in reversed(block.collect_params().items())}
    for node in nodes_of(program.heads):
        if node.is_variable:
            node.name = places.get(node.name, node.name)
    appear(f"{os.fspath(path)}-symbol.json", [json.written(program.heads).encode()])


def composed(block: Any, arguments: tuple[Any, ...], function: Any = None) -> Any:
    """Apply a block (or a `function` of it) to symbols, which may be in lists. Returns a symbol
    over theirs and the block's parameters, or such symbols with the nesting of the results."""
    symbols: list[Symbol] = []
    structure = _opened(arguments, symbols)
    for each in symbols:
        if len(each) != 1:
            raise ExportError(
                f"{block.name}: an input is a symbol with {len(each)} outputs; select one, for "
                "example symbol[0]"
            )
    heads = [symbol._heads[0] for symbol in symbols]
    kind = _kind_of(block, structure, heads, called=function is None)
    program = exported(function or block._run, kind, given=heads)
    tell_limits(block, program, 2)
    return unflatten(program.structure, iter([Symbol((head,)) for head in program.heads]))


def _kind_of(block: Any, structure: Any, heads: list[Any], called: bool) -> Arguments:
    """The arguments to trace a block for, from the symbols or else from the block's last call
    (`called`).

    A symbol stands for an NDArray, unless the block was called on NumPy-style arrays.
    """
    specs, own = infer(heads, {})[1], block._own
    last: Arguments | None = None
    if called:
        last = own.last_call()
    if None not in specs:
        return Arguments(structure, specs, [], last is None or last.is_nd)
    if last is None:
        names = [node.name for (node, _), spec in zip(heads, specs, strict=True) if spec is None]
        remedy = ", or call net.hybridize() and then the block once on arrays" if called else ""
        raise ExportError(
            f"{block.name}: the shapes of {', '.join(names)} are not known; give them, for "
            f"example sym.var(name, shape=...){remedy}"
        )
    if len(last.arrays) != len(heads):
        raise ExportError(
            f"{block.name}: was called with {len(last.arrays)} inputs, not {len(heads)}"
        )
    return last


def _opened(value: Any, symbols: list[Symbol]) -> Any:
    """The structure of arguments (see `nested`) in which symbols stand for arrays."""
    if isinstance(value, Symbol):
        symbols.append(value)
        return None
    if isinstance(value, (list, tuple)):
        return type(value), tuple(_opened(item, symbols) for item in value)
    if isinstance(value, dict):
        return type(value), tuple((name, _opened(item, symbols)) for name, item in value.items())
    return "static", type(value), value


# --- reading --------------------------------------------------------------------------------


class SymbolBlock(HybridBlock):
    """A block that runs a symbol; the variables that are not among `inputs` are its parameters.

    `outputs` is a symbol, or a list of them; `inputs` the variables that `forward` is called with,
    in their order. `params` are parameters to share, by name. Made from files by `imports`.
    """

    def __init__(self, outputs: Any, inputs: Any, params: Any = None) -> None:
        super().__init__(prefix="")
        whole = outputs if isinstance(outputs, Symbol) else group(outputs)
        names = [_name(each) for each in _listed(inputs)]
        self._symbol_heads = whole._heads
        self._single = len(whole) == 1
        self._inputs = names
        variables = [node for node in nodes_of(whole._heads) if node.is_variable]
        for name in names:
            if name not in {node.name for node in variables}:
                raise unknown_name("input of the symbol", name, (n.name for n in variables))
        auxiliary = set(whole.list_auxiliary_states())
        unread = _unread(whole)
        for node in variables:
            if node.name not in names and id(node) not in unread:
                self._take(node, node.name in auxiliary, params)

    def _take(self, node: SymbolNode, overwritten: bool, shared: Any) -> None:
        parameter = (shared or {}).get(node.name)
        if not isinstance(parameter, Parameter):
            parameter = _parameter(node, overwritten)
        self._register_parameter(node.name, parameter)

    @staticmethod
    def imports(
        symbol_file: Any,
        input_names: Any,
        param_file: Any = None,
        ctx: Any = None,
        device: Any = None,
        allow_missing: bool = False,
        ignore_extra: bool = False,
    ) -> SymbolBlock:
        """Load a network from MXNet's files, with its parameters on a device.

        Raises `SymbolFileError` and `ParameterFileError`, naming the field and the position, for
        damaged files, and if the two files do not belong together: a parameter is missing (unless
        `allow_missing`) or is not the network's (unless `ignore_extra`).
        """
        symbol, inputs = load(symbol_file), [_name(each) for each in _listed(input_names)]
        values: dict[str, Any] = {}
        if param_file is not None:
            place = device if device is not None else ctx
            place = place[0] if isinstance(place, (list, tuple)) else place
            values = serialize.load_named(param_file, as_device(place))
        names = symbol.list_inputs()
        # The file lacks an input that nothing reads; this is fine if all other variables are known.
        whole = all(name in values or name in inputs for name in names)
        block = SymbolBlock(symbol, [n for n in inputs if n in names] if whole else inputs)
        block._inputs = inputs
        if param_file is not None:
            block._fill(
                values, f"parameter file {os.fspath(param_file)}", allow_missing, ignore_extra
            )
        return block

    def _fill(
        self, values: dict[str, Any], source: str, allow_missing: bool, ignore_extra: bool
    ) -> None:
        """Set the parameters, and their dtypes, from these arrays."""
        parameters = self.params
        for name, value in values.items():
            parameter = parameters.get(name) if name in parameters else None
            if parameter is not None and parameter.dtype != value.dtype:
                if not value.dtype.is_floating:  # a constant, for example indices
                    parameter.grad_req = "null"
                parameter.cast(value.dtype)
        serialize.assign(parameters, values, source, allow_missing, ignore_extra)

    def infer_shape(self, *arguments: Any) -> None:
        """Infer the shapes of its parameters from those of its inputs."""
        inputs = {name: x.shape for name, x in zip(self._inputs, arguments, strict=False)}
        known = {n: p.shape for n, p in self._reg_params.items() if p.shape and -1 not in p.shape}
        shapes, _ = infer(self._symbol_heads, {**known, **inputs})
        for name, parameter in self._reg_params.items():
            if not parameter.is_shape_known and name in shapes:
                parameter.shape = shapes[name]

    def forward(self, *arguments: Tensor) -> Any:
        """The symbol's outputs: one, or a list."""
        if len(arguments) != len(self._inputs):
            raise ShapeError(
                f"SymbolBlock: takes {len(self._inputs)} inputs ({', '.join(self._inputs)}), got "
                f"{len(arguments)}"
            )
        values = {name: p.data() for name, p in self._reg_params.items()}
        values.update(zip(self._inputs, arguments, strict=True))
        results = run(self._symbol_heads, values)
        return results[0] if self._single else results

    def __repr__(self) -> str:
        outputs = ", ".join(node.output_name(index) for node, index in self._symbol_heads)
        return f"{type(self).__name__}({', '.join(self._inputs)} -> {outputs})"


def _listed(value: Any) -> list[Any]:
    if isinstance(value, Symbol):
        return [Symbol((head,)) for head in value._heads]
    return as_list(value)


def _name(value: Any) -> str:
    if not isinstance(value, (str, Symbol)):
        raise ArgumentError(f"SymbolBlock: the input {value!r} must be a name or a symbol")
    return value if isinstance(value, str) else str(value.name)


def _unread(symbol: Symbol) -> set[int]:
    """The variables that nothing reads here, such as the labels of MXNet 1's output layers."""
    nodes = nodes_of(symbol._heads)
    labels: set[int] = set()
    others: set[int] = set()
    for node in nodes:
        unread = "" if node.is_variable else node.legacy.unread
        place = node.legacy.inputs.index(unread) if unread else -1
        for position, (inner, _) in enumerate(node.inputs):
            (labels if position == place else others).add(id(inner))
    return labels - others


DTYPES_TRAINED = ("float16", "bfloat16", "float32", "float64")


def _parameter(node: SymbolNode, overwritten: bool) -> Parameter:
    """The parameter for a variable; its attributes give shape, dtype and multipliers."""
    said = json.value_of(node.attrs.get("__shape__", "None"))
    flag = node.attrs.get("__dtype__", "0")
    dtype = serialize.dtype_of_flag(flag)
    trained = not overwritten and dtype in DTYPES_TRAINED
    return Parameter(
        node.name,
        grad_req="write" if trained else "null",
        shape=said if isinstance(said, tuple) else None,
        dtype=dtype,
        lr_mult=_number(node.attrs.get("__lr_mult__", "1.0")),
        wd_mult=_number(node.attrs.get("__wd_mult__", "1.0")),
        differentiable=trained,
    )


def _number(text: str) -> float:
    value = json.value_of(text)
    return float(value) if isinstance(value, (int, float)) else 1.0


__all__ = ["SymbolBlock", "composed", "export", "export_symbol", "traced"]
