"""Automatic differentiation of imperative code: `record` calls, then `backward` through them."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

from gemel import _core
from gemel.errors import GradientError, OperandError, ShapeError, unknown_name
from gemel.ir.current import current_trace, recording_trace, suspended
from gemel.ir.graph import Entry
from gemel.ir.interpret import spec_of
from gemel.ir.recording import copied, unrecorded
from gemel.lists import as_list
from gemel.ops.elementwise import full
from gemel.ops.shape import operand
from gemel.ranges import check_flag
from gemel.runtime.prepare import as_entry
from gemel.spec import Spec, is_several
from gemel.tape import reverse
from gemel.tape.function import Function
from gemel.tape.recording import Leaf, become_variable, source_of
from gemel.tape.steps import Step, Target
from gemel.tracing.inner_gradients import whole_gradient

# --- modes ----------------------------------------------------------------------------------


class _Entered(threading.local):
    """The blocks this thread is in, the innermost last, each with the modes that were before it."""

    def __init__(self) -> None:
        self.modes: list[tuple[_Mode, bool, bool]] = []


_entered = _Entered()


class _Mode:
    """A block of code in which recording and training are switched."""

    __slots__ = ("_wanted",)

    def __init__(self, recording: bool | None, training: bool | None) -> None:
        self._wanted = (recording, training)

    def __enter__(self) -> _Mode:
        _entered.modes.append((self, is_recording(), _core.training()))
        recording, training = self._wanted
        if recording is not None:
            set_recording(recording)
        if training is not None:
            _core.set_training(bool(training))
        return self

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        modes = _entered.modes
        if modes and modes[-1][0] is self:
            self._leave(modes)
            return
        if any(mode is self for mode, *_ in modes):
            while modes[-1][0] is not self:
                modes.pop()
            self._leave(modes)
        if kind is None:  # an exception that is on its way says more
            raise GradientError(
                "autograd: the blocks of record(), pause(), train_mode() and predict_mode() of a "
                "thread must nest, and this one was left after the block around it, or before one "
                "inside it; leave them before another task or generator goes on (await, yield)"
            )

    def _leave(self, modes: list[tuple[_Mode, bool, bool]]) -> None:
        _, recording, training = modes.pop()
        set_recording(recording)
        _core.set_training(training)


def record(train_mode: bool = True) -> _Mode:
    """Record the calls in a block for `backward`, by default in training mode.

    Modes belong to the thread: what another task (asyncio) or generator does meanwhile is recorded,
    too. The blocks of a thread must nest. One that is left before a block inside it ends both, and
    both exits raise `GradientError`.
    """
    check_flag("record", "train_mode", train_mode)
    return _Mode(True, train_mode)


def pause(train_mode: bool = False) -> _Mode:
    """Stop recording for a block inside a recorded one."""
    check_flag("pause", "train_mode", train_mode)
    return _Mode(False, train_mode)


def train_mode() -> _Mode:
    """Let layers behave as in training for a block (dropout is active)."""
    return _Mode(None, True)


def predict_mode() -> _Mode:
    """Let layers behave as in prediction for a block."""
    return _Mode(None, False)


def is_recording() -> bool:
    """Whether calls are being recorded on this thread; in a traced function, whether its calls are
    recorded and this place is not inside `pause`."""
    trace = recording_trace()
    return bool(_core.recording() if trace is None else trace.recording.is_on)


def is_training() -> bool:
    """Whether layers behave as in training on this thread."""
    return bool(_core.training())


def set_recording(is_recording: bool) -> bool:
    """Switch recording on or off and return the previous setting. In a traced function this affects
    only that function."""
    check_flag("set_recording", "is_recording", is_recording)
    trace = recording_trace()
    if trace is None:
        return bool(_core.set_recording(bool(is_recording)))
    before = trace.recording.is_on
    trace.recording.switch(bool(is_recording))
    return before


def set_training(train_mode: bool) -> bool:
    """Switch training mode on or off and return the previous setting."""
    check_flag("set_training", "train_mode", train_mode)
    return bool(_core.set_training(bool(train_mode)))


# --- variables ------------------------------------------------------------------------------


class Deposit:
    """Whether `backward` has written a gradient to a variable since the last one was used.

    The gradient's version cannot tell, because it also counts the user's writes.
    """

    __slots__ = ("fresh",)

    def __init__(self) -> None:
        self.fresh = False


class Variable(Leaf):
    """A leaf that `backward` marks when it writes the gradient. An array that is marked again with
    the same gradient keeps its deposit, because earlier recorded calls still lead to it."""

    __slots__ = ("deposit",)

    def __init__(self, spec: Spec, gradient: Any, request: str, before: Any) -> None:
        super().__init__(spec, gradient, request)
        goes_on = before is not None and before.gradient is gradient
        self.deposit = before.deposit if goes_on else Deposit()


#: The deposit of arrays that are not variables.
_NO_DEPOSIT = Deposit()


def deposit_of(array: Any) -> Deposit:
    """The deposit of the gradient that `backward` writes for an array."""
    history = array._history
    variable = None if history is None else history.variable
    return _NO_DEPOSIT if variable is None else variable.deposit


def mark_variables(variables: Any, gradients: Any = None, grad_reqs: Any = "write") -> None:
    """Make arrays variables; `backward` writes their gradients into `gradients` (zeros by default).

    An array that was computed while recording remains part of the tape: its gradient is stored, and
    also flows on.
    """
    arrays = _arrays("mark_variables", variables)
    requests = list(grad_reqs) if is_several(grad_reqs) else [grad_reqs] * len(arrays)
    kept = [None] * len(arrays) if gradients is None else as_list(gradients)
    _arrays("mark_variables", [gradient for gradient in kept if gradient is not None])
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
    """One array or several, as a list. Raises `OperandError` for anything else."""
    found = as_list(values)
    for value in found:
        if isinstance(value, Entry):
            getattr(value, name)  # raises the error that explains this
        if not isinstance(value, _core.Array):
            raise OperandError(f"{name}: {type(value).__name__} {value!r} is not a gemel array")
    return found


def _zeros_like(array: Any) -> Any:
    found = _core.empty(array.shape, array.dtype.code, array.device.code)
    with suspended():  # a layer's parameters may get gradients during a trace
        found[...] = 0
    return found


# --- backward -------------------------------------------------------------------------------


def backward(
    heads: Any, head_grads: Any = None, retain_graph: bool = False, train_mode: bool = True
) -> None:
    """Compute the gradients of `heads` and store them in the `.grad` of every variable involved.

    `head_grads` are the gradients of the heads themselves (ones by default). The tape is freed
    unless `retain_graph`. Raises `GradientError` when a head was not recorded, or when an array
    that is needed has been overwritten.
    """
    check_flag("backward", "retain_graph", retain_graph)
    check_flag("backward", "train_mode", train_mode)
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
    """The gradients of `heads` with respect to `variables`, as new arrays; `.grad` is unchanged.

    Variables are arrays with `attach_grad()`, or arrays computed from such while recording. With
    `create_graph` the gradients themselves are recorded, so they can be differentiated again; the
    tape is then kept, unless `retain_graph` is False.

    In a traced function variables need no `attach_grad()`: any value in it can be a variable.
    """
    check_flag("grad", "retain_graph", retain_graph)
    check_flag("grad", "create_graph", create_graph)
    check_flag("grad", "train_mode", train_mode)
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
    """Give gradients the methods of their variables, for example those of MXNet 1's NDArrays."""
    pairs = zip(variables, found, strict=True)
    return [g.as_nd_ndarray() if getattr(x, "_is_nd", False) else g for x, g in pairs]


def _grad_in_trace(heads: Any, variables: Any, head_grads: Any, create_graph: bool) -> Any:
    """`grad` in a traced function: the gradient becomes a part of the program."""
    trace = current_trace()
    ends, wanted = ([as_entry(each) for each in as_list(given)] for given in (heads, variables))
    if trace is None:
        raise (ends + wanted)[0].left_over("grad")
    for end in ends:
        if not (trace.recording.was_on(end.node) or end in set(wanted)):
            raise _unrecorded(end.spec)
    pairs = zip(ends, _given(head_grads, ends), strict=True)
    with _Mode(create_graph, None):
        grads = [
            as_entry(full(1, shape=y.shape, dtype=y.dtype) if g is None else g) for y, g in pairs
        ]
        found = whole_gradient(trace, ends, grads, wanted)
    found = copied(found) if create_graph else unrecorded(found)
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
                f"backward: the head {spec_of(head)} needs a gradient of the same shape, not "
                f"{spec_of(g)}"
            )
    return grads


def get_symbol(x: Any) -> Any:
    """The recorded computation of an array, as a `gemel.symbol.Symbol`.

    Variables are named var0, var1, ... in the order of their first use. Arrays without a recorded
    history are variables too, and so are numbers that the gradient does not need (the 1 of x + 1).
    Raises `GradientError` for an array that was not computed while recording, and `ExportError` for
    a computation that symbols cannot express, such as the call of a hybridized block.
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
