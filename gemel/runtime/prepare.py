"""Preparing calls: the core's misses become kernels and plans. Installs the hooks of `ir.op`."""

from __future__ import annotations

from functools import partial
from typing import Any

from gemel import _core
from gemel.codegen.body import write_elementwise
from gemel.codegen.nest import estimate
from gemel.codegen.target import host
from gemel.device import current_device
from gemel.dtype import BY_CODE, weak
from gemel.errors import DeviceError, TraceError
from gemel.extent import Dim, Guard
from gemel.ir import interpret  # noqa: F401 -- puts the references in place
from gemel.ir.graph import Entry, Graph, captured, constant, placeholder
from gemel.ir.op import HOOKS, Elementwise, Op, static
from gemel.ir.trace import Trace
from gemel.ops.shape import Layout, dense
from gemel.passes import optimize
from gemel.runtime import callback
from gemel.runtime.cache import kernel_for
from gemel.runtime.image import Image, Input, Output
from gemel.runtime.lower import Lowering, free_sizes
from gemel.spec import Spec


def spec_of(value: Any) -> Spec:
    """The spec of an array or a Python number."""
    if isinstance(value, (bool, int, float)):
        return Spec((), weak(value), weak=True)
    return Spec(value.shape, value.dtype)


# --- elementwise kernels --------------------------------------------------------------------


def elementwise_kernel(
    op: Elementwise,
    rank: int,
    operands: tuple[tuple[int, int], ...],
    parameters: dict[str, Any],
    out: int | None = None,
    stride: int = 1,
) -> Any:
    """The kernel of an elementwise call, for one combination of dtypes and strides."""
    parameters = op.complete(parameters)
    target = None if out is None else (BY_CODE[out], stride)
    program, dtype = write_elementwise(op, rank, operands, parameters, target)
    kernel = kernel_for(program, host())
    nanoseconds = (estimate(program, 1000) - estimate(program, 0)) / 1000
    return _core.Elementwise(kernel, (dtype.code,), nanoseconds, name=op.name)


# --- plans of single operations -------------------------------------------------------------


def prepare(op: Op, inputs: tuple[Any, ...], parameters: dict[str, Any]) -> Any:
    """The plan of a call on arrays and numbers like these, of other sizes too."""
    specs = tuple(spec_of(value) for value in inputs)
    op.infer(*specs, **parameters)  # raises when the call is wrong, in numbers
    sizes = Sizes(specs)
    layouts = sizes.layouts(inputs)
    return single_image(op, sizes.specs, parameters, layouts, sizes.guards).plan()


class Sizes:
    """The sizes of a call as free ones. Equal extents are taken to be the same thing and have one
    name, and so are equal strides.

    Extents and strides of 0 and 1, which decide how a call is computed, stay numbers.
    """

    def __init__(self, specs: tuple[Spec, ...]) -> None:
        self.guards: list[Guard] = []
        self._known: dict[tuple[str, int], int] = {}
        self.specs = tuple(
            spec if spec.weak else Spec((self._named("n", n, 2) for n in spec.shape), spec.dtype)
            for spec in specs
        )

    def _named(self, kind: str, value: int, least: int | None) -> int:
        if value in (0, 1):
            return value
        dim = Dim(value, f"{kind}{len(self._known)}", self.guards, least)
        return self._known.setdefault((kind, value), dim)

    def layouts(self, inputs: tuple[Any, ...]) -> dict[int, Layout]:
        """The layouts of arrays that are not dense, by position."""
        found = {}
        for position, (value, spec) in enumerate(zip(inputs, self.specs, strict=True)):
            if not spec.weak and not value._is_contiguous:
                # An axis of length 1 may have any stride.
                pairs = zip(value.shape, value.strides, strict=True)
                strides = (0 if n == 1 else self._named("s", s, None) for n, s in pairs)
                found[position] = Layout(spec.shape, strides, 0)
        return found


def single_plan(op: Op, specs: tuple[Spec, ...], parameters: dict[str, Any]) -> Any:
    """The plan of one operation on dense arrays of these sizes."""
    return single_image(op, specs, parameters, {}, []).plan()


def single_image(
    op: Op,
    specs: tuple[Spec, ...],
    parameters: dict[str, Any],
    layouts: dict[int, Layout],
    guards: list[Guard],
) -> Image:
    """The image of a graph of one operation, or of a view when its result is one."""
    results = op.infer(*specs, **parameters)
    if "view" in op.rules and len(results) == 1:
        found = op.rules["view"](layouts.get(0) or dense(specs[0].shape), *results, **parameters)
        if found is not None:
            return view_image(op.name, specs[0], layouts.get(0), found, guards)
    with Trace():
        entries = tuple(placeholder(spec) for spec in specs)
        found = op.node(entries, parameters).entries
    hidden = set(op.updates.values())
    outputs = [entry for index, entry in enumerate(found) if index not in hidden]
    updates = [(position, found[index]) for position, index in op.updates.items()]
    lowering = Lowering(optimize(Graph(entries, outputs, updates, op.name)), layouts, guards)
    lowering.run()
    return lowering.image()


def view_image(
    name: str, source: Spec, layout: Layout | None, view: Layout, guards: list[Guard]
) -> Image:
    """The image of an operation whose result is a view of its only array."""
    image = Image(name)
    image.guards = [*free_sizes([source.shape]), *guards]
    code = source.dtype.code
    image.inputs = [Input(code, source.shape, None if layout is None else layout.strides)]
    image.outputs = [Output(code, view.shape, view.strides, view.offset)]
    return image


# --- calls the core leaves to Python --------------------------------------------------------

_creations: dict[Any, Any] = {}
#: Bound on remembered plans of calls without arrays; then they are forgotten and made again.
CREATIONS = 1024


def run(op: Op, inputs: tuple[Any, ...], parameters: dict[str, Any]) -> tuple[Any, ...]:
    """A call that is not all arrays: creation, conversion, a blocking operation, or an error."""
    op.check_count(len(inputs))
    arrays = tuple(HOOKS["array"](value) for value in inputs)
    specs = tuple(spec_of(value) for value in arrays)
    if op.blocks:
        return _by_reference(op, arrays, parameters)
    if all(isinstance(value, (bool, int, float)) for value in arrays):
        return _create(op, arrays, specs, parameters)
    _same_device(op, arrays)
    op.infer(*specs, **parameters)  # raises when the call is wrong
    if any(a is not b for a, b in zip(arrays, inputs, strict=True)):
        found = op(*arrays, **parameters)
        return found if isinstance(found, tuple) else (found,)
    found = tuple(single_plan(op, specs, parameters)(*arrays))
    if _core.recording() and any(getattr(a, "_tape", None) is not None for a in arrays):
        HOOKS["record"](op, arrays, parameters, found)
    return found


def _by_reference(op: Op, arrays: tuple[Any, ...], parameters: dict[str, Any]) -> tuple[Any, ...]:
    """An operation done by NumPy; it waits when the shape of the result depends on values."""
    if "spec" in op.rules and all(hasattr(value, "device") for value in arrays):
        specs = op.infer(*map(spec_of, arrays), **parameters)
        return callback.issue(op.name, partial(op.reference, **parameters), arrays, specs)
    values = [
        value if isinstance(value, (bool, int, float)) else value.asnumpy() for value in arrays
    ]
    device = next((a.device for a in arrays if hasattr(a, "device")), None)
    return tuple(
        HOOKS["from_numpy"](value, device) for value in op.reference(*values, **parameters)
    )


def _create(
    op: Op, numbers: tuple[Any, ...], specs: tuple[Spec, ...], parameters: dict[str, Any]
) -> tuple[Any, ...]:
    """A call with numbers only: its plan is remembered under the parameters."""
    key = (op.name, tuple(type(n) for n in numbers), tagged(tuple(parameters.values())))
    plan = _creations.get(key)
    if plan is None:
        if len(_creations) >= CREATIONS:
            _creations.clear()
        plan = _creations[key] = single_plan(op, specs, parameters)
    device = current_device().code
    return tuple(plan(*numbers, device=device) if device else plan(*numbers))


def tagged(value: Any) -> Any:
    """A parameter as a key that tells 2, 2.0 and True apart."""
    if isinstance(value, tuple):
        return tuple(tagged(item) for item in value)
    return type(value), static(value)


def _same_device(op: Op, arrays: tuple[Any, ...]) -> None:
    devices = {a.device for a in arrays if hasattr(a, "device")}
    if len(devices) > 1:
        names = " and ".join(sorted(map(str, devices)))
        raise DeviceError(f"{op.name}: arrays on {names}; move one with to_device(device)")


def as_entry(value: Any) -> Entry:
    """An entry for anything an operation takes: symbols, numbers, arrays of every sort."""
    if isinstance(value, Entry):
        return value
    if isinstance(value, (bool, int, float)):
        return constant(value)
    array = HOOKS["array"](value)
    return constant(array) if isinstance(array, (bool, int, float)) else captured(array)


def blocked(op: Op) -> TraceError:
    """The error for an operation that needs values, met in a trace."""
    return TraceError(
        f"{op.name}: the shape of its result depends on values, which are only known when the "
        "program runs; call it outside the hybridized function, or use np.where"
    )


HOOKS["kernel"] = elementwise_kernel
HOOKS["prepare"] = prepare
HOOKS["run"] = run
HOOKS["entry"] = as_entry
HOOKS["blocked"] = blocked

__all__ = ["prepare", "run", "single_plan", "spec_of"]
