"""Imperative calls the core has not seen before: kernels and plans for them.

`elementwise_kernel` and `prepare` answer a miss of the core's cache: from then on the core runs
such calls without Python. `run` handles calls that the core always leaves to Python.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable
from typing import Any

from gemel import _core
from gemel.device import from_code
from gemel.errors import CallError, DeviceError, NoKernelError, name_call
from gemel.extent import NUMBER
from gemel.ir.above import above
from gemel.ir.current import current_trace
from gemel.ir.graph import Entry, captured, constant
from gemel.ir.interpret import resolved, spec_of
from gemel.ir.keywords import static
from gemel.ir.op import Op
from gemel.ir.op_kinds import Composite, Elementwise
from gemel.ir.text import call_text
from gemel.ir.trace import own
from gemel.runtime import callback
from gemel.runtime.backend import backend_for, backend_of
from gemel.runtime.creation import create, creation
from gemel.runtime.plans import ELEMENTWISE, Prepared, cached, making, plan_for, single_plan
from gemel.runtime.relay import by_numpy, core_step
from gemel.spec import Spec, extents

# --- calls the core has not seen --------------------------------------------------------------


def elementwise_kernel(
    op: Elementwise,
    rank: int,
    operands: tuple[tuple[int, int], ...],
    parameters: dict[str, Any],
    device: int,
    out: int | None = None,
    stride: int = 1,
) -> Any:
    """The kernel of an elementwise call, for one combination of dtypes and strides."""
    parameters = op.complete(parameters)
    backend = backend_of(from_code(device))
    target = None if out is None else (out, stride)

    def make() -> Prepared:
        from gemel.runtime.single import elementwise_call

        return elementwise_call(op, rank, operands, parameters, target, backend)

    def build(kernels: list[Any], content: bytes) -> Any:
        count, nanoseconds = struct.unpack_from(ELEMENTWISE, content)
        codes = content[struct.calcsize(ELEMENTWISE) :]
        return _core.Elementwise(
            kernels[0],
            tuple(codes[:count]),
            nanoseconds,
            op.failure,
            op.name,
            list(codes[count:]),
        )

    text = call_text(op, (rank, operands, target), parameters)
    if text is not None:
        return cached(text, "call", backend, make, build)
    with making():
        prepared = make()
    return build(*prepared.loaded(backend))


def prepare(op: Op, inputs: tuple[Any, ...], parameters: dict[str, Any]) -> Any:
    """The plan for calls on such arrays and numbers, also of other sizes.

    For an operation without a kernel: what NumPy does for these sizes. For a call without arrays
    see `creation`. None leaves it to `run`.
    """
    specs = tuple(spec_of(value) for value in inputs)
    if all(isinstance(value, NUMBER) for value in inputs):
        by_parts = isinstance(op, Composite) and _one_by_one(op, specs)
        return None if op.dynamic or by_parts else creation(op, inputs, specs, parameters)
    if op.dynamic:
        op.check_complex(specs)
        return waiting(op, specs, parameters), None
    if isinstance(op, Composite) and _one_by_one(op, specs):
        op.check_shapes(specs, parameters)
        return None
    results = op.infer(*specs, **parameters)  # raises when the call is wrong, in numbers
    for spec in results:
        extents(op.name, spec.shape)
    strides = strides_of(inputs)
    if not op.kernel_for(specs, results):
        own = strides or op.random or op.rules.issue is not None or _device_of(inputs).linked
        return None if own else _step(op, specs, parameters, results)
    backend = backend_for(inputs)

    def make() -> Any:
        from gemel.runtime.single import call_image

        return call_image(op, specs, strides, parameters, backend)

    try:
        return plan_for(call_text(op, (specs, strides), parameters), backend, make)
    except NoKernelError as error:
        raise NoKernelError(
            f"{op.name}: {error}; declare the operation with kernel=False"
        ) from None


def _step(
    op: Op, specs: tuple[Spec, ...], parameters: dict[str, Any], results: tuple[Spec, ...]
) -> Any:
    """How the core can run such calls on dense arrays: by its own code, or by NumPy."""
    done = core_step(op, specs, parameters)
    if done is not None:
        return done, [(spec.dtype.code, spec.shape) for spec in results]
    return callback.step(resolved(op, specs, parameters), specs, results)


def _one_by_one(op: Composite, specs: tuple[Spec, ...]) -> bool:
    """Whether an imperative call runs the operations of a composite's body one by one."""
    return not op.has_kernel or op.of_complex(specs)


def _device_of(inputs: tuple[Any, ...]) -> Any:
    return next(value.device for value in inputs if not isinstance(value, NUMBER))


def strides_of(inputs: tuple[Any, ...]) -> dict[int, tuple[int, ...]]:
    """The strides of inputs that are arrays, but not dense, by position."""
    return {
        position: value._element_strides
        for position, value in enumerate(inputs)
        if not getattr(value, "_is_contiguous", True)
    }


# --- calls the core leaves to Python --------------------------------------------------------


def run(op: Op, inputs: tuple[Any, ...], parameters: dict[str, Any]) -> tuple[Any, ...]:
    """A call with other arguments than arrays, or without a kernel: creation, conversion, an
    error."""
    op.check_count(len(inputs))
    try:
        arrays = tuple(own(above.as_array(value, inputs)) for value in inputs)
    except CallError as error:
        name_call(error, op.name)
        raise
    specs = tuple(spec_of(value) for value in arrays)
    op.check_numbers(inputs, specs, parameters)
    if op.dynamic:
        op.check_complex(specs)
        results = waiting(op, specs, parameters)(*arrays)
        return results if isinstance(results, tuple) else (results,)
    check_one_device(op.name, arrays)
    if isinstance(op, Composite) and _one_by_one(op, specs):
        op.check_shapes(specs, parameters)
        return op.written_out(arrays, parameters)
    if op.has_kernel and all(isinstance(value, NUMBER) for value in arrays):
        return create(op, arrays, specs, parameters)
    results = op.infer(*specs, **parameters)  # raises when the call is wrong
    if not op.kernel_for(specs, results):
        return _recorded(op, arrays, parameters, by_numpy(op, parameters, results, *arrays))
    if any(a is not b for a, b in zip(arrays, inputs, strict=True)):
        results = op(*arrays, **parameters)
        return results if isinstance(results, tuple) else (results,)
    plan = single_plan(op, specs, parameters, backend_for(arrays))
    return _recorded(op, arrays, parameters, tuple(plan(*arrays)))


def _recorded(
    op: Op, arrays: tuple[Any, ...], parameters: dict[str, Any], results: tuple[Any, ...]
) -> tuple[Any, ...]:
    """Put a call on the tape if it is to be recorded. Returns the results."""
    is_new = results[0]._history is None  # otherwise it is a view, which shares its base's history
    if is_new and _core.recording() and any(getattr(a, "_is_tracked", False) for a in arrays):
        above.record(op, arrays, parameters, results)
    return results


def waiting(op: Op, specs: tuple[Spec, ...], parameters: dict[str, Any]) -> Callable[..., Any]:
    """A function that waits for its inputs and runs an operation whose result's shape depends on
    their values (`nonzero`).
    """
    from numpy import empty

    function = resolved(op, specs, parameters)
    kinds = [None if s.weak else (tuple(s.shape), s.dtype.twin.name) for s in specs]
    # Dtypes NumPy lacks: it computes with their twins, and results are converted back.
    own = {s.dtype.twin: s.dtype for s in specs if s.dtype.twin is not s.dtype}

    def read(value: Any, kind: Any) -> Any:
        if own or kind is None:
            return value if kind is None else value.asnumpy()
        array: Any = empty(*kind)
        _core.read_into(value, array)
        return array

    def run(*inputs: Any) -> Any:
        values = map(read, inputs, kinds)
        device = next((value.device for value in inputs if not isinstance(value, NUMBER)), None)
        results = tuple([above.from_numpy(value, device) for value in function(*values)])
        if own:
            results = tuple(a.astype(own.get(a.dtype, a.dtype), copy=False) for a in results)
        return results[0] if op.outputs == 1 and len(results) == 1 else results

    return run


def tagged(value: Any) -> Any:
    """A parameter as a key that tells 2, 2.0 and True apart."""
    if isinstance(value, tuple):
        return tuple(tagged(item) for item in value)
    return type(value), static(value)


def check_one_device(name: str, arrays: Iterable[Any]) -> None:
    """Raise `DeviceError` unless all arrays are on one device."""
    devices = {a.device for a in arrays if hasattr(a, "device")}
    if len(devices) > 1:
        names = " and ".join(sorted(map(str, devices)))
        raise DeviceError(
            f"{name}: the arrays are on {names}; move them to one device with to_device(device)"
        )


def as_entry(value: Any, beside: Iterable[Any] = ()) -> Entry:
    """An argument of an operation as an entry. It may be a symbol, a number, or array-like."""
    if isinstance(value, Entry):
        trace = current_trace()
        return value.as_np_ndarray() if trace is None else trace.state.current(value)
    array = above.as_array(value, beside)
    if isinstance(array, Entry):  # from a list with symbols in it
        return array
    if isinstance(array, NUMBER):
        return constant(own(array))
    trace = current_trace()
    return captured(array) if trace is None else trace.inputs.captured(array)


__all__ = [
    *("as_entry", "check_one_device", "elementwise_kernel", "prepare", "run"),
    "spec_of",
]
