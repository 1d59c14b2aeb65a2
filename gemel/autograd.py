"""Automatic differentiation of imperative code: `record` calls, then `backward` through them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gemel import _core
from gemel.errors import GradientError, ShapeError, unknown_name
from gemel.ir.graph import Entry
from gemel.ir.interpret import spec_of
from gemel.ir.trace import current_trace, recording_trace, suspended
from gemel.lists import as_list
from gemel.ops.elementwise import full
from gemel.ops.shape import operand
from gemel.runtime.prepare import as_entry
from gemel.spec import Spec
from gemel.tape import reverse
from gemel.tape.function import Function
from gemel.tape.recording import Leaf, become_variable, source_of
from gemel.tape.steps import Step, Target
from gemel.tracing.inner_gradients import whole_gradient

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
    before = trace.recording
    trace.record(bool(is_recording))
    return before


def set_training(train_mode: bool) -> bool:
    """Switch training mode on or off; what it was before."""
    return bool(_core.set_training(train_mode))


# --- variables ------------------------------------------------------------------------------


class Deposit:
    """Whether backward has left a gradient at a variable since somebody used the last one.

    The gradient's version does not say so: it counts what users write, too.
    """

    __slots__ = ("fresh",)

    def __init__(self) -> None:
        self.fresh = False


class Variable(Leaf):
    """Where a gradient ends, which backward tells of it. Who is marked again keeps the deposit
    along with the gradient: what was recorded before still leads there.
    """

    __slots__ = ("deposit",)

    def __init__(self, spec: Spec, gradient: Any, request: str, before: Any) -> None:
        super().__init__(spec, gradient, request)
        goes_on = before is not None and before.gradient is gradient
        self.deposit = before.deposit if goes_on else Deposit()


#: Of arrays that are no variables.
_NO_DEPOSIT = Deposit()


def deposit_of(array: Any) -> Deposit:
    """What is known of the gradient backward leaves at an array."""
    history = array._history
    variable = None if history is None else history.variable
    return _NO_DEPOSIT if variable is None else variable.deposit


def mark_variables(variables: Any, gradients: Any = None, grad_reqs: Any = "write") -> None:
    """Make arrays variables; their gradients will be left in `gradients` (zeros by default).

    What was computed while recording stays so: its gradient is left there, and goes on from there.
    """
    arrays = _arrays("mark_variables", variables)
    requests = [grad_reqs] * len(arrays) if isinstance(grad_reqs, str) else list(grad_reqs)
    kept = [None] * len(arrays) if gradients is None else as_list(gradients)
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
                f"attach_grad: {spec_of(array)} does not have a floating dtype; use "
                "astype('float32')"
            )
        if request == "null":
            array._history, array._grad = None, None
            continue
        if given is not None and (given.shape, given.dtype) != (array.shape, array.dtype):
            raise ShapeError(
                f"mark_variables: {spec_of(given)} cannot be the gradient of {spec_of(array)}"
            )
        array._grad = _zeros_like(array) if given is None else given
        before = None if array._history is None else array._history.variable
        become_variable(array, Variable(spec_of(array), array._grad, request, before))


def _arrays(name: str, values: Any) -> list[Any]:
    """One array or several, as a list. Raises `TypeError` for anything else."""
    found = as_list(values)
    for value in found:
        if isinstance(value, Entry):
            getattr(value, name)  # says why there is no such thing
        if not isinstance(value, _core.Array):
            raise TypeError(f"{name}: {type(value).__name__} {value!r} is not a gemel array")
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
        targets = part.targets()
        reverse.into_gradients(part, targets)
        for target in targets:
            leaf = target.leaf
            if isinstance(leaf, Variable):
                leaf.deposit.fresh = True
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

    In a traced function variables need no `attach_grad()`: any value of it can be one.
    """
    if any(isinstance(value, Entry) for value in (*as_list(heads), *as_list(variables))):
        return _grad_in_trace(heads, variables, head_grads, create_graph)
    arrays, grads = _heads(heads, head_grads)
    single = not isinstance(variables, (list, tuple))
    wanted = [variables] if single else list(variables)
    sources = [source_of(variable) for variable in wanted]
    if None in sources:
        raise GradientError("grad: call attach_grad() on every variable before you use it")
    step = Step.of(arrays, grads)
    pairs = zip(sources, wanted, strict=True)
    targets = [Target(source, spec_of(variable), None) for source, variable in pairs]
    found = reverse.fresh(step, targets, [variable.device for variable in wanted], create_graph)
    if not (create_graph if retain_graph is None else retain_graph):
        step.free()
    found = _like(wanted, found)
    return found[0] if single else found


def _like(variables: Sequence[Any], found: Sequence[Any]) -> list[Any]:
    """Gradients with the methods of their variables: those of MXNet 1's NDArrays are some."""
    pairs = zip(variables, found, strict=True)
    return [g.as_nd_ndarray() if getattr(x, "_is_nd", False) else g for x, g in pairs]


def _grad_in_trace(heads: Any, variables: Any, head_grads: Any, create_graph: bool) -> Any:
    """What `grad` does in a traced function: the gradient is a part of the program."""
    trace = current_trace()
    ends, wanted = ([as_entry(each) for each in as_list(given)] for given in (heads, variables))
    if trace is None:
        raise (ends + wanted)[0].left_over("grad")
    for end in ends:
        if not (trace.was_recorded(end.node) or end in set(wanted)):
            raise _unrecorded(end.spec)
    pairs = zip(ends, _given(head_grads, ends), strict=True)
    with _Mode(create_graph, None):
        grads = [full(1, shape=y.shape, dtype=y.dtype) if g is None else g for y, g in pairs]
        found = whole_gradient(trace, ends, grads, wanted)
    found = trace.copied(found) if create_graph else trace.unrecorded(found)
    several = isinstance(variables, (list, tuple))
    gradients = _like(as_list(variables), found)
    return gradients if several else gradients[0]


def _heads(heads: Any, head_grads: Any) -> tuple[list[Any], list[Any]]:
    arrays = _arrays("backward", heads)
    for array in arrays:
        if source_of(array) is None:
            raise _unrecorded(spec_of(array))
    return arrays, _given(head_grads, arrays)


def _unrecorded(spec: Any) -> GradientError:
    return GradientError(
        f"backward: {spec} was not computed from a variable while recording; "
        "call x.attach_grad() first and compute inside `with autograd.record():`"
    )


def _given(head_grads: Any, heads: list[Any]) -> list[Any]:
    """The gradient of each head, or None for ones."""
    grads: list[Any] = [None] * len(heads)
    if head_grads is not None:
        grads = as_list(head_grads)
    if len(grads) != len(heads):
        raise GradientError(
            f"backward: {len(grads)} gradients for {len(heads)} heads; there must be one for each"
        )
    pairs = zip(grads, heads, strict=True)
    grads = [None if g is None else operand(g, (head,)) for g, head in pairs]
    for head, g in zip(heads, grads, strict=True):
        if g is None and head.dtype.is_complex:
            raise GradientError(
                f"backward: the head {spec_of(head)} is complex, so it cannot be a loss; give "
                "its gradient, or use real(x) or absolute(x)"
            )
        if g is not None and tuple(g.shape) != tuple(head.shape):
            raise ShapeError(
                f"backward: the head {spec_of(head)} needs a gradient of the same shape and "
                f"dtype, not {spec_of(g)}"
            )
    return grads


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
