"""Automatic differentiation of imperative code: `record` calls, then `backward` through them."""

from __future__ import annotations

from typing import Any

from gemel import _core, reverse
from gemel.errors import GradientError, ShapeError, unknown_name
from gemel.function import Function
from gemel.ir.trace import recording_trace, suspended
from gemel.ops.shape import operand
from gemel.runtime.prepare import spec_of
from gemel.steps import Step, Target
from gemel.tape import Leaf, become_variable, source_of

# --- modes ----------------------------------------------------------------------------------


class _Mode:
    """A block of code in which recording and training are switched."""

    def __init__(self, recording: bool | None, training: bool | None) -> None:
        self._wanted = (recording, training)
        self._before: list[tuple[bool, bool]] = []

    def __enter__(self) -> _Mode:
        self._before.append((is_recording(), _core.training()))
        recording, training = self._wanted
        if recording is not None:
            set_recording(recording)
        if training is not None:
            _core.set_training(training)
        return self

    def __exit__(self, *error: object) -> None:
        recording, training = self._before.pop()
        set_recording(recording)
        _core.set_training(training)


def record(train_mode: bool = True) -> _Mode:
    """A block whose calls are recorded for `backward`; in training mode unless told otherwise."""
    return _Mode(True, train_mode)


def pause(train_mode: bool = False) -> _Mode:
    """A block within a recorded one that is not recorded."""
    return _Mode(False, train_mode)


def train_mode() -> _Mode:
    """A block in which layers behave as in training (dropout drops)."""
    return _Mode(None, True)


def predict_mode() -> _Mode:
    """A block in which layers behave as in prediction."""
    return _Mode(None, False)


def is_recording() -> bool:
    """Whether calls are being recorded on this thread; in a traced function, whether its calls are
    and no `pause` is around this place."""
    trace = recording_trace()
    return bool(_core.recording() if trace is None else trace.recording)


def is_training() -> bool:
    """Whether layers behave as in training on this thread."""
    return bool(_core.training())


def set_recording(is_recording: bool) -> bool:
    """Switch recording on or off; what it was before. In a traced function: for what it does."""
    trace = recording_trace()
    if trace is None:
        return bool(_core.set_recording(is_recording))
    before, trace.recording = trace.recording, bool(is_recording)
    return before


def set_training(train_mode: bool) -> bool:
    """Switch training mode on or off; what it was before."""
    return bool(_core.set_training(train_mode))


# --- variables ------------------------------------------------------------------------------


def mark_variables(variables: Any, gradients: Any = None, grad_reqs: Any = "write") -> None:
    """Make arrays variables; their gradients will be left in `gradients` (zeros by default).

    What was computed while recording stays so: its gradient is left there, and goes on from there.
    """
    arrays = _arrays("mark_variables", variables)
    requests = [grad_reqs] * len(arrays) if isinstance(grad_reqs, str) else list(grad_reqs)
    kept = [None] * len(arrays) if gradients is None else _listed(gradients)
    if not len(arrays) == len(requests) == len(kept):
        raise GradientError(
            f"mark_variables: {len(arrays)} arrays, {len(kept)} gradients and {len(requests)} "
            "grad_reqs; there must be one for each"
        )
    for array, given, request in zip(arrays, kept, requests, strict=True):
        if request not in ("write", "add", "null"):
            raise unknown_name("grad_req", request, ("write", "add", "null"))
        if not array.dtype.is_inexact:
            raise GradientError(
                f"attach_grad: {spec_of(array)} has no floating dtype; use astype('float32')"
            )
        if request == "null":
            array._history, array._grad = None, None
            continue
        if given is not None and (given.shape, given.dtype) != (array.shape, array.dtype):
            raise ShapeError(
                f"mark_variables: {spec_of(given)} cannot be the gradient of {spec_of(array)}"
            )
        array._grad = _zeros_like(array) if given is None else given
        become_variable(array, Leaf(spec_of(array), array._grad, request))


def _listed(values: Any) -> list[Any]:
    return list(values) if isinstance(values, (list, tuple)) else [values]


def _arrays(name: str, values: Any) -> list[Any]:
    """One array or several, as a list. Raises `TypeError` for anything else."""
    found = _listed(values)
    for value in found:
        if not isinstance(value, _core.Array):
            raise TypeError(f"{name}: {type(value).__name__} {value!r} is no array of gemel's")
    return found


def _zeros_like(array: Any) -> Any:
    found = _core.empty(array.shape, array.dtype.code, array.device.code)
    with suspended():  # a layer's parameters may get their gradients while it is traced
        found[...] = 0
    return found


# --- backward -------------------------------------------------------------------------------


def backward(
    heads: Any, head_grads: Any = None, retain_graph: bool = False, train_mode: bool = True
) -> None:
    """Leave the gradients of `heads` in the `.grad` of every variable they were computed from.

    `head_grads` are the gradients of the heads themselves (ones by default). The tape is freed
    unless `retain_graph`. Raises `GradientError` when a head was not recorded, or when an array
    that is needed has been overwritten.
    """
    arrays, grads = _heads(heads, head_grads)
    step = Step.of(arrays, grads)
    for part in step.by_device():
        reverse.into_gradients(part, part.targets())
    if not retain_graph:
        step.free()


def grad(
    heads: Any,
    variables: Any,
    head_grads: Any = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    train_mode: bool = True,
) -> Any:
    """The gradients of `heads` for `variables`, as new arrays; `.grad` stays as it is.

    Variables are arrays with `attach_grad()`, or computed from some while recording. With
    `create_graph` the gradients are recorded themselves, so that they can be differentiated in
    turn; the tape is kept then, unless `retain_graph` says otherwise.
    """
    arrays, grads = _heads(heads, head_grads)
    single = not isinstance(variables, (list, tuple))
    wanted = [variables] if single else list(variables)
    sources = [source_of(variable) for variable in wanted]
    if None in sources:
        raise GradientError("grad: every variable needs attach_grad() before it is used")
    step = Step.of(arrays, grads)
    pairs = zip(sources, wanted, strict=True)
    targets = [Target(source, spec_of(variable), None) for source, variable in pairs]
    found = reverse.fresh(step, targets, [variable.device for variable in wanted], create_graph)
    if not (create_graph if retain_graph is None else retain_graph):
        step.free()
    return found[0] if single else found


def _heads(heads: Any, head_grads: Any) -> tuple[list[Any], list[Any]]:
    arrays = _arrays("backward", heads)
    grads: list[Any] = [None] * len(arrays)
    if head_grads is not None:
        grads = _listed(head_grads)
    if len(grads) != len(arrays):
        raise GradientError(
            f"backward: {len(grads)} gradients for {len(arrays)} heads; there must be one for each"
        )
    pairs = zip(grads, arrays, strict=True)
    grads = [None if g is None else operand(g, (array,)) for g, array in pairs]
    for array, g in zip(arrays, grads, strict=True):
        if source_of(array) is None:
            raise GradientError(
                f"backward: {spec_of(array)} was not computed from a variable while recording; "
                "call x.attach_grad() first and compute inside `with autograd.record():`"
            )
        if g is None and array.dtype.is_complex:
            raise GradientError(
                f"backward: the head {spec_of(array)} is complex, so it is no loss; give its "
                "gradient, or take real(x) or absolute(x)"
            )
        if g is not None and tuple(g.shape) != tuple(array.shape):
            raise ShapeError(
                f"backward: the head {spec_of(array)} needs a gradient like it, not {spec_of(g)}"
            )
    return arrays, grads


def get_symbol(x: Any) -> Any:
    """What was recorded on the way to an array, as a `gemel.symbol.Symbol`.

    Variables are called var0, var1, ... in the order of their first use; arrays that nothing was
    recorded of are variables, too, and numbers the gradient does not need (the 1 of x + 1). Raises
    `GradientError` for an array that was not computed while recording, and `ExportError` for what
    symbols cannot say, such as the call of a hybridized block.
    """
    from gemel.symbol.history import history

    return history(x)


__all__ = [
    "Function",
    "backward",
    "get_symbol",
    "grad",
    "is_recording",
    "is_training",
    "mark_variables",
    "pause",
    "predict_mode",
    "record",
    "set_recording",
    "set_training",
    "train_mode",
]
