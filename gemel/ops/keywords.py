"""NumPy's common keywords: out, where, initial, dtype, casting, order.

Each keyword is implemented once for each kind of operation, as a composition of operations, so it
is traced, recorded and differentiated like them.
"""

from __future__ import annotations

from math import isfinite
from typing import Any

from gemel import _core
from gemel.dtype import CASTINGS, DType, as_dtype, bool_, castable, check_held, is_large
from gemel.errors import DTypeError, OperandError, unknown_name
from gemel.extent import NUMBER
from gemel.ir.above import above
from gemel.ir.graph import Entry, is_number
from gemel.ir.interpret import spec_of
from gemel.ir.keywords import ORDERS, fits, into
from gemel.ir.methods import named
from gemel.ir.op import Op
from gemel.ir.op_kinds import Elementwise
from gemel.ops.elementwise import cast, full, maximum, minimum, where
from gemel.ops.shape import broadcast_to, operand
from gemel.spec import Spec, normalize_axes, promote_specs


@named
def with_keywords(op: Op, inputs: tuple[Any, ...], given: dict[str, Any]) -> Any:
    """The result of a call with some of these keywords."""
    if len(inputs) < op.required:
        op.check_count(len(inputs))
    common = {**op.common, **{name: given[name] for name in op.common if name in given}}
    rest = {name: value for name, value in given.items() if name not in op.common}
    order = common.pop("order", "K")
    if order not in ORDERS:
        raise unknown_name(f"order of {op.name}", order, [o for o in ORDERS if o])
    common.pop("subok", None)
    if "casting" in common:
        if common["casting"] not in CASTINGS:
            raise unknown_name(f"casting of {op.name}", common["casting"], CASTINGS)
        return _universal(op, inputs, rest, **common)
    return _reduction(op, inputs, rest, **common)


# --- universal functions --------------------------------------------------------------------


def _universal(
    op: Op,
    inputs: tuple[Any, ...],
    parameters: dict[str, Any],
    out: Any,
    casting: str,
    dtype: Any,
    where: Any = True,
) -> Any:
    """The result computed in `dtype` where `where` holds; elsewhere `out` keeps its contents."""
    if len(inputs) > op.arity:
        inputs, out = inputs[: op.arity], inputs[op.arity :]
    targets = out if isinstance(out, tuple) else (out,) * (op.outputs == 1)
    if dtype is not None:
        inputs = _computed_in(op, inputs, parameters, as_dtype(dtype), casting)
    if casting in ("safe", "equiv", "no"):  # promotion stays within the others
        inputs = _cast_as_allowed(op, inputs, parameters, casting)
    if where is True:
        if _straight(op, inputs, parameters, targets, casting):
            return op.into(targets[0], *inputs, **parameters)
        return into(op.name, out, op(*inputs, **parameters), casting)
    found = op(*_harmless(op, where, inputs), **parameters)
    many = isinstance(found, tuple)
    values = found if many else (found,)
    if not any(target is not None for target in targets):
        targets = (None,) * len(values)
    chosen = tuple(
        _chosen(op.name, where, *pair, casting) for pair in zip(values, targets, strict=True)
    )
    return into(op.name, out, chosen if many else chosen[0], casting)


def _harmless(op: Op, mask: Any, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
    """The inputs, without what the operation refuses where the mask leaves elements out."""
    arrays = tuple(above.as_array(value, inputs) for value in inputs)
    place = op.checked([spec_of(x) for x in arrays]) if isinstance(op, Elementwise) else None
    if place is None or isinstance(arrays[place], NUMBER):
        return arrays
    kept = where(_mask(op.name, mask), arrays[place], 0)
    return (*arrays[:place], kept, *arrays[place + 1 :])


def _straight(
    op: Op, inputs: tuple[Any, ...], parameters: dict[str, Any], targets: Any, casting: str
) -> bool:
    """Whether the core can write the result directly into `out`: nothing is recorded or traced."""
    if (
        op.outputs != 1
        or len(targets) != 1
        or not isinstance(targets[0], _core.Array)
        or _core.recording()
    ):
        return False
    if not op.elementwise or not all(isinstance(x, (_core.Array, *NUMBER)) for x in inputs):
        return False
    if any(map(is_large, inputs)):
        return False
    if not any(isinstance(x, _core.Array) for x in inputs):
        return False
    if any(getattr(x, "device", targets[0].device) != targets[0].device for x in inputs):
        return False
    spec = op.infer(*map(spec_of, inputs), **op.complete(parameters))[0]
    fits(op.name, targets[0], spec.shape, spec.dtype, casting)
    return tuple(spec.shape) == tuple(targets[0].shape) and spec.dtype is targets[0].dtype


def _computed_in(
    op: Op, inputs: tuple[Any, ...], parameters: dict[str, Any], dtype: DType, casting: str
) -> tuple[Any, ...]:
    """The inputs, converted to give a result of this dtype. Raises `DTypeError` if none does."""
    for value in inputs:
        check_held(op.name, value, dtype)
    arrays = tuple(above.as_array(value, inputs) for value in inputs)
    full_parameters = op.complete(parameters)
    weak = all(isinstance(value, NUMBER) for value in arrays)
    found = op.infer(*map(spec_of, arrays), **full_parameters)
    if not weak and all(result.dtype is dtype for result in found):
        return arrays
    for value in arrays:
        _check_cast(op, spec_of(value), dtype, casting)
    arrays = tuple(
        (full(value, shape=(), dtype=dtype) if weak else value)
        if isinstance(value, NUMBER)
        else cast(value, dtype=dtype)
        for value in arrays
    )
    for result in op.infer(*map(spec_of, arrays), **full_parameters):
        if result.dtype is not dtype:
            raise DTypeError(
                f"{op.name}: dtype={dtype} is not possible, as the result has dtype {result.dtype}"
            )
    return arrays


def _cast_as_allowed(
    op: Op, inputs: tuple[Any, ...], parameters: dict[str, Any], casting: str
) -> tuple[Any, ...]:
    """The inputs. Raises `DTypeError` if the operation casts one in a way that is not allowed.

    Whole numbers that are compared are not cast, nor is what only counts as true or false.
    """
    arrays = tuple(above.as_array(value, inputs) for value in inputs)
    specs = tuple(map(spec_of, arrays))
    if isinstance(op, Elementwise):
        dtypes = op.types(specs, op.complete(parameters))[0]
    else:
        dtypes = (promote_specs(*specs),) * len(specs)
    for spec, dtype in zip(specs, dtypes, strict=True):
        if dtype is not bool_:
            _check_cast(op, spec, dtype, casting)
    return arrays


def _check_cast(op: Op, spec: Spec, dtype: DType, casting: str) -> None:
    """Raise `DTypeError` unless an input may be computed in a dtype. Numbers adapt to any."""
    if not spec.weak and not castable(spec.dtype, dtype, casting):
        raise DTypeError(
            f"{op.name}: unsafe cast: {spec} cannot be computed in {dtype} (casting={casting!r})"
        )


def _chosen(name: str, mask: Any, value: Any, target: Any, casting: str) -> Any:
    """The value where the mask holds; elsewhere the target's contents, or 0 without a target."""
    mask = _mask(name, mask)
    if target is None:
        return where(mask, value, value.dtype is not bool_ and 0)
    fits(name, target, value.shape, value.dtype, casting)
    value = value if value.dtype is target.dtype else cast(value, dtype=target.dtype)
    return where(mask, value, target)


def _mask(name: str, given: Any) -> Any:
    mask = operand(given)
    if mask.dtype is not bool_:
        raise DTypeError(f"{name}: where has dtype {mask.dtype}; it must be bool")
    return mask


# --- reductions -----------------------------------------------------------------------------


def _reduction(
    op: Op,
    inputs: tuple[Any, ...],
    parameters: dict[str, Any],
    out: Any,
    where: Any = True,
    initial: Any = None,
) -> Any:
    """The reduction of the elements where `where` holds, beginning with `initial`."""
    if where is True and initial is None:
        return into(op.name, out, op(*inputs, **parameters))
    x, *others = inputs
    x = operand(x)
    if where is not True:
        mask = broadcast_to(_mask(op.name, where), shape=tuple(x.shape))
        if op.rules.masked is not None:
            found = op.rules.masked(mask, x, *others, **parameters)
            return into(op.name, out, found)
        x = _left_out(op, mask, x, initial)
    return into(op.name, out, _begun(op, (x, *others), parameters, initial))


def _left_out(op: Op, mask: Any, x: Any, initial: Any) -> Any:
    """x with the neutral element of the reduction where the mask does not hold."""
    if op.combine in ("max", "min"):
        if initial is None:
            raise OperandError(
                f"{op.name}: where may exclude all elements, and then {op.name} is undefined; "
                "give initial"
            )
        return where(mask, x, _begins(initial, x.dtype))
    return where(mask, x, {"sum": 0, "prod": 1, "any": False, "all": True}[op.combine])


def _begun(op: Op, inputs: tuple[Any, ...], parameters: dict[str, Any], initial: Any) -> Any:
    """A reduction that also combines `initial`."""
    if initial is None:
        return op(*inputs, **parameters)
    if op.combine in ("sum", "prod"):
        found = op(*inputs, **parameters)
        begun = _begins(initial, found.dtype)
        return found + begun if op.combine == "sum" else found * begun
    initial = _begins(initial, inputs[0].dtype)
    x, axis = inputs[0], parameters.get("axis", inputs[1] if len(inputs) > 1 else None)
    axes = normalize_axes(op.name, axis, x.ndim)
    more = maximum if op.combine == "max" else minimum
    if all(x.shape[a] != 0 for a in axes):
        return more(op(*inputs, **parameters), initial)
    kept = parameters.get("keepdims", False)
    shape = tuple(1 if a in axes else n for a, n in enumerate(x.shape) if kept or a not in axes)
    return full(initial, shape=shape, dtype=x.dtype)


def _begins(initial: Any, dtype: DType) -> Any:
    """`initial` converted to the dtype of the reduction, as NumPy converts it."""
    if not is_number(initial):
        return operand(initial)
    if dtype.is_inexact:
        return initial
    initial = initial.item() if isinstance(initial, Entry) else initial  # whether it is whole
    if dtype is bool_:
        return bool(initial)
    # No integer is infinite or complex; the dtype of the result changes for such a number.
    if isinstance(initial, float) and isfinite(initial):
        return int(initial)
    return initial


__all__ = ["with_keywords"]
