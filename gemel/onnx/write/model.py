"""Writing ONNX files."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Sequence
from typing import Any

from gemel import __version__
from gemel.arrays.archives import appear
from gemel.errors import ExportError, ExportWarning, ShapeError
from gemel.extent import Dim, name_of
from gemel.gluon.block import Block
from gemel.gluon.hybrid import HybridBlock
from gemel.gluon.symbol_block import SymbolBlock
from gemel.onnx.types import code_of, onnx
from gemel.onnx.write.fitting import fixed, needed, too_short
from gemel.onnx.write.graph import all_nodes
from gemel.onnx.write.tracing import Program, program
from gemel.onnx.write.writing import Writer
from gemel.spec import Spec
from gemel.tracing.compiled import Compiled
from gemel.tracing.programs import Arguments

#: The oldest operator set that the rules support, and the one written by default.
OLDEST = OPSET = 18
#: The most bytes of a protobuf file; larger weights are written to a second file.
MOST_BYTES = 2**31 - 2**20


def export(net: Any, path: Any, *, opset: int = OPSET, dynamic: bool | Sequence[Any] = True) -> str:
    """Write a network or a compiled function as an ONNX file, for inference; gives the file's path.

    `net` is a `HybridBlock` or what `gemel.compile` gave, called once before: what it is called on
    says the number and the kinds of its inputs. Sizes the program does not depend on are free in
    the file, the batch as a rule; with `dynamic=False` all are those of the call that was traced,
    and a list of shapes says which sizes the file is for, with None for free ones. Where the
    function has asked for sizes, as in ``if x.shape[0] > 1``, or counts on what a slice has, as in
    ``x[-3:].shape[0]``, the file is for those with the same answers: it cannot say that, an
    `ExportWarning` does. `opset` is the version of ONNX's operators, 18 at least. The file is
    checked by the package onnx, and appears whole or not at all. Raises `ExportError` for what ONNX
    cannot say, naming the operation and the line, and `MissingPackageError` without the package.
    """
    _check_opset(opset)
    function, given, names = _called(net)
    given, wanted = _sized(given, dynamic)
    found, made = modelled(function, given, names, wanted, net.name, opset)
    limits = []
    if found.asked:
        rules = " and ".join(dict.fromkeys(found.asked))
        limits.append(
            f"has asked for sizes: the file is the program where {rules}, and cannot say so; make "
            "it the same for all sizes"
        )
    axes = fixed(found, function, given, wanted)
    if axes:
        limits.append(
            f"takes other sizes, but the file has {' and '.join(axes)}: a Python number is "
            "computed from them, or a size of 0 or 1 is a case of its own; compute with arrays "
            "(np.sqrt(n) in place of n ** 0.5), call it with larger arrays before"
        )
    for each in limits:
        warnings.warn(
            f"onnx.export: {net.name} {each}, export it with dynamic=False, or use gemel.save, "
            "whose files ask again",
            ExportWarning,
            stacklevel=2,
        )
    return write(made, path)


def _check_opset(opset: int) -> None:
    latest = onnx("defs").onnx_opset_version()
    if not isinstance(opset, int) or not OLDEST <= opset <= latest:
        raise ExportError(f"onnx.export: opset {opset!r} must be between {OLDEST} and {latest}")


def _called(net: Any) -> tuple[Any, Arguments, Sequence[str]]:
    """The function of a network or compiled function, the arguments of its last call, and the names
    of its inputs. Raises `ExportError`."""
    if isinstance(net, HybridBlock):
        function, given = net._run, net._last_call("onnx.export")
        names: Sequence[str] = net._inputs if isinstance(net, SymbolBlock) else ()
    elif isinstance(net, Compiled):
        function, given, names = net.function, net.last(), ()
    else:
        hint = "derive it from HybridBlock" if isinstance(net, Block) else "gemel.compile gives one"
        raise ExportError(
            f"onnx.export: {type(net).__name__} is neither a HybridBlock nor a compiled function; "
            f"{hint}"
        )
    if given is None:
        raise ExportError(
            f"onnx.export: call {net.name} once first; the arguments determine what is written"
        )
    return function, given, names


def _sized(given: Arguments, dynamic: bool | Sequence[Any]) -> tuple[Arguments, set[str]]:
    """The arguments to trace for, which have the sizes that are asked for, and the extents to be
    fixed. Raises `ShapeError` for shapes of other arguments."""
    had = [tuple(x.shape) for x in given.arrays]
    if dynamic is True:
        return given, set()
    if dynamic is False:
        return given, numbered(had)
    if not isinstance(dynamic, (list, tuple)):
        raise ShapeError(
            f"onnx.export: dynamic is {dynamic!r}; give True, False or a list of shapes"
        )
    fits = len(dynamic) == len(had) and all(
        isinstance(shape, (list, tuple)) and len(shape) == len(of) and all(map(_is_size, shape))
        for shape, of in zip(dynamic, had, strict=True)
    )
    if not fits:
        raise ShapeError(
            f"onnx.export: dynamic {list(dynamic)} are not shapes for inputs like {had}; give each "
            "axis its size, or None if it is free"
        )
    arrays = [
        Spec([m if n is None else n for n, m in zip(shape, x.shape, strict=True)], x.dtype)
        for shape, x in zip(dynamic, given.arrays, strict=True)
    ]
    return given._replace(arrays=arrays), numbered(dynamic)


def _is_size(n: Any) -> bool:
    return n is None or (isinstance(n, int) and type(n) is not bool and n >= 0)


def numbered(shapes: Sequence[Any]) -> set[str]:
    """The names of the extents that are integers in the shapes of the inputs; None is free."""
    return {
        f"n{place}_{axis}"
        for place, shape in enumerate(shapes)
        for axis, n in enumerate(shape)
        if n is not None
    }


# --- models -----------------------------------------------------------------------------------


def modelled(
    function: Callable[..., Any],
    arguments: Arguments,
    names: Sequence[str],
    held: set[str],
    name: str,
    opset: int,
) -> tuple[Program, Any]:
    """Trace a function, and convert it to a model. Sizes for which the model needs numbers are
    fixed, as those for which the function does. Raises `ExportError`."""
    while True:
        found = program(function, arguments, names, held)
        _check_results(found, name)
        before = set(found.held)
        writer = Writer(found, opset)
        results = writer.written(found.outputs)
        found.read_guards()
        more = found.held - before
        checks = [] if more else needed(writer, function, arguments)
        more = more or too_short(found, checks, arguments)
        if not more:
            break
        held = held | found.held | more
    found.ask(checks)
    return found, _model(writer, results, name, opset)


def _check_results(found: Program, name: str) -> None:
    if found.updates:
        raise ExportError(
            f"onnx.export: forward overwrites {found.updates[0][0].name}, and a file of ONNX keeps "
            "nothing between calls; gemel.save keeps it"
        )
    if not found.outputs:
        raise ExportError(f"onnx.export: {name} gives no arrays")


def _model(writer: Writer, results: list[str], name: str, opset: int) -> Any:
    """Convert what is written to a model of the package onnx, and check it. Raises
    `ExportError`."""
    found = writer.program
    helper, graph = onnx("helper"), writer.graph
    outputs = _outputs(writer, results)
    values = [
        helper.make_tensor_value_info(label, code_of(entry.dtype), _shape(found, entry.spec))
        for label, entry in zip(outputs, found.outputs, strict=True)
    ]
    inputs = [
        helper.make_tensor_value_info(label, code_of(entry.dtype), _shape(found, entry.spec))
        for label, entry in zip(found.inputs, found.entries, strict=True)
    ]
    used = {label for node in all_nodes(graph.nodes) for label in node.input}
    tensors = [
        onnx("numpy_helper").from_array(array, label)
        for label, array in graph.constants.items()
        if label in used
    ]
    whole = helper.make_graph(graph.nodes, name or "program", inputs, values, tensors)
    sets = [helper.make_opsetid("", opset)]
    made = helper.make_model(
        whole,
        opset_imports=sets,
        ir_version=helper.find_min_ir_version_for(sets),
        producer_name="gemel",
        producer_version=__version__,
    )
    return checked(made)


def _outputs(writer: Writer, results: list[str]) -> list[str]:
    """Give the results names of their own: output, or output0, output1, ..."""
    graph, found = writer.graph, []
    computed = {name for node in graph.nodes for name in node.output}
    renamed: dict[str, str] = {}
    for place, name in enumerate(results):
        label = graph.hint = "output" if len(results) == 1 else f"output{place}"
        if name in computed and name not in renamed:
            renamed[name] = graph.rename(name, label)
            found.append(renamed[name])
        else:  # an input, a constant, or a repeated result
            found.append(graph.node("Identity", renamed.get(name, name)))
    return found


def _shape(found: Program, spec: Spec) -> list[Any]:
    """A shape with the names of free extents; None for computed ones."""
    return [_dim(found, n) if isinstance(n, Dim) else n for n in spec.shape]


def _dim(found: Program, extent: Dim) -> str | None:
    name = name_of(extent)
    if not name:
        return None
    position, axis = found.first(name).removeprefix("n").split("_")
    return f"{found.inputs[int(position)]}_{axis}"


def checked(made: Any) -> Any:
    """Check a model with the package onnx, and infer its shapes. Raises `ExportError`."""
    if made.ByteSize() > MOST_BYTES:  # such models are checked as files
        return made
    checker, inference = onnx("checker"), onnx("shape_inference")
    try:
        checker.check_model(made, full_check=True)
        try:
            found = inference.infer_shapes(made, check_type=True, strict_mode=True, data_prop=True)
        except inference.InferenceError:  # it takes all whole numbers for shapes, of one axis
            found = inference.infer_shapes(made, check_type=True, strict_mode=True)
    except (checker.ValidationError, inference.InferenceError) as error:
        raise ExportError(f"onnx.export: what was written is no valid model: {error}") from error
    return found


def write(made: Any, path: Any) -> str:
    """Write a model to a file; weights that are too large for it go to a second file."""
    place: str = os.fspath(path)
    folder = os.path.dirname(place)
    if folder:
        os.makedirs(folder, exist_ok=True)
    if made.ByteSize() <= MOST_BYTES:
        appear(place, [made.SerializeToString()])
        return place
    beside = f"{os.path.basename(place)}.data"
    onnx().save_model(made, place, save_as_external_data=True, location=beside)
    onnx("checker").check_model(place, full_check=True)
    return place


__all__ = ["OLDEST", "OPSET", "export", "modelled", "numbered", "write"]
