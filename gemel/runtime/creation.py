"""Imperative calls without arrays, such as `zeros`, random numbers, or `sin(2.0)`.

Results of any shape are made by one plan, whose sizes have to come from somewhere: its first input
is an array whose extents are those of the shape. It has one element, which nobody reads.
"""

from __future__ import annotations

from typing import Any

from gemel import _core
from gemel.device import current_device
from gemel.dtype import DType, bool_, check_held, default_float, int64
from gemel.ir.op import Op
from gemel.ir.op_kinds import Elementwise
from gemel.ir.text import call_text
from gemel.runtime.backend import Backend, backend_of
from gemel.runtime.plans import plan_for, single_plan
from gemel.runtime.relay import by_numpy
from gemel.spec import Spec, is_plain

#: A plan, and its first input if its sizes are free.
Creation = tuple[Any, Any]

_plans: dict[Any, list[Any]] = {}
#: How many kinds of calls have plans that are remembered; one more clears them.
KINDS = 1024
#: How many plans of one kind are, for shapes that are computed in different ways.
VARIANTS = 32


def creation(
    op: Op, numbers: tuple[Any, ...], specs: tuple[Spec, ...], parameters: dict[str, Any]
) -> Creation | None:
    """How the core makes such calls by itself; None leaves them to `run`."""
    if not op.has_kernel:
        return None
    if isinstance(op, Elementwise) and op.checked(specs) is not None:
        return None  # each number has to be checked by the call
    op.check_numbers(numbers, specs, parameters)
    if isinstance(op, Elementwise):
        pairs = zip(numbers, op.types(specs, parameters)[0], strict=True)
        if not all(_holds(dtype, number) for number, dtype in pairs):
            return None
    return plan_without_arrays(op, numbers, specs, parameters)


def _holds(dtype: DType, number: Any) -> bool:
    """Whether a dtype holds all numbers that the core takes for such as this one."""
    if type(number) is not int or 0 <= number < 128:
        return True
    return dtype is int64 or dtype.kind not in "iu"


def create(
    op: Op, numbers: tuple[Any, ...], specs: tuple[Spec, ...], parameters: dict[str, Any]
) -> tuple[Any, ...]:
    """The results of a call without arrays."""
    if isinstance(op, Elementwise):
        for number, dtype in zip(numbers, op.types(specs, parameters)[0], strict=True):
            check_held(op.name, number, dtype)
    found = plan_without_arrays(op, numbers, specs, parameters)
    if found is None:
        return by_numpy(op, parameters, op.infer(*specs, **parameters), *numbers)
    plan, sizes = found
    given = numbers if sizes is None else (sizes, *numbers)
    return tuple(plan(*given, device=current_device().code))


def plan_without_arrays(
    op: Op, numbers: tuple[Any, ...], specs: tuple[Spec, ...], parameters: dict[str, Any]
) -> Creation | None:
    """The plan of a call on the current device; None if it has no kernel."""
    if not op.kernel_for(specs, op.infer(*specs, **parameters)):
        return None
    device = current_device()
    backend = backend_of(device)
    shape = parameters.get("shape", ())
    free = [n for n in shape if n > 1] if is_plain(shape) else []
    if not free:
        return single_plan(op, specs, parameters, backend), None
    # Equal extents are one free size.
    pattern = [n if n < 2 else -1 - free.index(n) for n in shape]
    described = call_text(op, (specs, pattern), {**parameters, "shape": ()})
    if described is None:  # nothing would tell the plan from those of other such operations
        return single_plan(op, specs, parameters, backend), None
    sizes = _core.empty((1,), bool_.code, device.code)._as_strided(free, (0,) * len(free), 0)
    known = _remembered((backend, default_float(), described))
    for plan in known:
        if plan.fits(sizes):
            return plan, sizes
    plan = _sized_plan(op, specs, parameters, backend, Spec(free, bool_))
    if not plan.fits(sizes):  # what the core computes from free sizes this large overflows
        return single_plan(op, specs, parameters, backend), None
    known.insert(0, plan)
    del known[VARIANTS:]
    return plan, sizes


def _remembered(key: Any) -> list[Any]:
    """The plans of a kind of calls."""
    if key not in _plans and len(_plans) >= KINDS:
        _plans.clear()
    return _plans.setdefault(key, [])


def _sized_plan(
    op: Op, specs: tuple[Spec, ...], parameters: dict[str, Any], backend: Backend, sizes: Spec
) -> Any:
    """The plan of such calls whose first input gives the sizes."""

    def make() -> Any:
        from gemel.runtime.single import created_image

        return created_image(op, specs, parameters, backend, sizes)

    return plan_for(call_text(op, (specs, sizes), parameters), backend, make)


__all__ = ["create", "creation"]
