"""Recorded calls, and the sources of the contents of arrays.

While recording, each call on a tracked array becomes a `Call`, which keeps what its gradient will
read. The *source* of an array says where a gradient that arrives at the array goes next: to a
`Leaf` (a variable), to a pair (call, index of its output), or (None) nowhere.

An array and all its views share one history (`_core.History`), which holds the source of the whole
contents. So ``y[1:-1] *= 2`` creates a new source for y: the old contents with a part replaced.
When a view is read, it gets its own source, a recorded slice of the whole.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

from gemel import _core
from gemel.dtype import DType
from gemel.errors import GradientError
from gemel.ir.above import above
from gemel.ir.interpret import spec_of
from gemel.ir.op import Op
from gemel.ops.assignment import taken_from
from gemel.ops.elementwise import cast, copy, full
from gemel.ops.indexing import assign, gather
from gemel.ops.shape import broadcast_to, reshape
from gemel.spec import Spec
from gemel.tape.kinds import Kind, Port, kind_of_call, kind_of_specs
from gemel.tape.views import Region, positions, repeats, window


class Leaf:
    """A variable: where a gradient ends. `request` is "write" or "add".

    `travels` is 0 for a gradient that stays on this device. A gradient that is sent elsewhere is
    computed as early as possible, in `travels` blocks of rows. `blocks` are the blocks of the last
    backward pass, with the `state` of the gradient at that time.
    """

    __slots__ = ("blocks", "gradient", "key", "request", "spec", "travels", "words")

    def __init__(self, spec: Spec, gradient: Any, request: str) -> None:
        self.key = id(self)
        self.spec = spec
        self.gradient = gradient
        self.request = request
        self.travels = int(gradient.device.linked)
        self.blocks: tuple[Any, Sequence[Any]] = None, ()
        #: Its part in the key of a gradient graph (`Step.structure`).
        self.words = (1 + (request == "add"), spec.dtype.code, spec.ndim, *spec.shape)

    @property
    def state(self) -> Any:
        """Changes when the gradient is written; None while other libraries may write to it."""
        loans = self.gradient._loans
        return None if loans < 0 else (self.gradient.version, loans)

    @property
    def source(self) -> Leaf:
        """The leaf itself, as the source of the variable's contents."""
        return self

    leaf = source


def key_of(source: Any) -> Any:
    """The key under which gradients that arrive at a source are added up."""
    return (id(source[0]), source[1]) if isinstance(source, tuple) else source.key


# --- contents kept for gradients ------------------------------------------------------------


def keep_contents(history: Any) -> None:
    """Called before contents are overwritten: replace what calls have saved of them by copies."""
    copies: dict[Any, Any] = {}
    for saved in history.take_saved():
        if saved.version == saved.array.version:
            region = region_of(saved.array)
            if region not in copies:
                copies[region] = recording(False, copy, saved.array)
            saved.array = copies[region]
            saved.version = saved.array.version


def recording(flag: bool, function: Any, *arguments: Any, **parameters: Any) -> Any:
    """Call a function with recording switched on or off."""
    before = _core.set_recording(flag)
    try:
        return function(*arguments, **parameters)
    finally:
        _core.set_recording(before)


# --- calls ----------------------------------------------------------------------------------


class Call(_core.Call):
    """One recorded call.

    `sources` are the sources of its inputs; `values` are saved for the ports in `reads`.
    `variables` are the leaves of outputs for which `attach_grad` was called, by index, or None.
    """

    __slots__ = ()

    #: For each input a bit set of the outputs whose gradients reach it; None means all.
    reached: Sequence[int] | None = None

    def keep(self, inputs: tuple[Any, ...], outputs: tuple[Any, ...]) -> None:
        """Save what the gradients of tracked inputs will read."""
        self.reads = self.kind.reads(tuple(source is not None for source in self.sources))
        values = ((inputs if side == "input" else outputs)[i] for side, i in self.reads)
        self.values = tuple(v._save() if isinstance(v, _core.Array) else v for v in values)

    def kept(self, port: Port) -> Any:
        """The saved value of an input or output: a `_core.Saved` or a number."""
        if port not in self.reads:
            raise GradientError(
                f"grad: create_graph=True through {self.kind.name}, which has not kept the "
                "values it needs"
            )
        return self.values[self.reads.index(port)]

    def arrays(self, ports: tuple[Port, ...]) -> list[Any]:
        """Saved arrays. Raises `GradientError` if one has been overwritten."""
        intact = _core.saved_of(self, ports)
        if intact is not None:
            return intact
        found = []
        for saved in map(self.kept, ports):
            found.append(saved.array)
            if saved.array.version != saved.version:
                raise GradientError(
                    f"backward: an array of {self.kind.name} ({spec_of(saved.array)}) was "
                    "overwritten in place outside of the recording, after it was used and before "
                    "backward; write to a new array instead"
                )
        return found

    def tracked(self, port: Port) -> Any:
        """A saved array, connected to the tape so that it can be differentiated through."""
        (array,) = self.arrays((port,))
        side, index = port
        source = (self, index) if side == "output" else self.sources[index]
        if source is not None and array.dtype.is_inexact:
            array = array._detached()
            array._track(source)
        return array

    def free(self) -> None:
        """Release what was saved and the calls before it."""
        self.freed = True
        self.reads = self.values = self.sources = ()


_core.set_call_class(Call)


def record_call(
    op: Op, inputs: tuple[Any, ...], parameters: dict[str, Any], outputs: tuple[Any, ...]
) -> tuple[Any, ...]:
    """Put a call on the tape, as the source of its outputs.

    Returns the kind, the ports of saved values, and whether the first output is floating. From
    then on the core records such calls itself.
    """
    call = Call(kind_of_call(op, inputs, parameters, outputs), tuple(map(source_of, inputs)))
    for index, value in enumerate(outputs):
        if call.kind.floating[index]:
            value._track((call, index))
    call.keep(inputs, outputs)
    # Inputs from calls that an earlier backward has freed become constants. `keep` must run before
    # this, since the core saves the same values for all calls of this kind.
    call.sources = tuple(None if _is_over(source) else source for source in call.sources)
    return call.kind, call.reads, call.kind.floating[0]


class ViewCall(Call):
    """A recorded step from an array to its view. It is not freed, since all readers share it."""

    __slots__ = ()

    def free(self) -> None:
        """It holds nothing to release."""


#: Calls one after another: each a kind, and the positions of its inputs in the list of all sources
#: so far, which begins with those that are given. The last one is the result.
_Calls = tuple[tuple[Kind, tuple[int, ...]], ...]


def _listed(through: Callable[..., Any], specs: tuple[Spec, ...], *given: Any) -> _Calls:
    """The calls by which a function of a `Window` leads from sources of these specs to another."""
    calls: list[tuple[Kind, tuple[int, ...]]] = []

    def apply(op: Op, inputs: tuple[Any, ...], parameters: dict[str, Any]) -> Any:
        kind = kind_of_specs(op, tuple(spec for _, spec in inputs), op.complete(parameters))
        calls.append((kind, tuple(position for position, _ in inputs)))
        return len(specs) + len(calls) - 1, kind.outputs[0]

    through(*enumerate(specs), *given, apply)
    return tuple(calls)


@lru_cache(4096)
def _taking(base: Region, view: Region, dtype: DType) -> _Calls | None:
    """The calls that lead from a base to its view; None if the view has to be gathered."""
    seen = window(base, view)
    return None if seen is None else _listed(seen[0].take, (Spec(base[0], dtype),))


@lru_cache(4096)
def _putting(base: Region, view: Region, dtype: DType) -> _Calls | None:
    """The calls that lead from a base and what is written into its view to the new base."""
    seen = window(base, view)
    if seen is None:
        return None
    return _listed(seen[0].put, (Spec(base[0], dtype), Spec(view[0], dtype)), seen[1])


def _follow(make: type[Call], calls: _Calls, *sources: Any) -> Any:
    """Record calls without running them. Returns the source of the last one's result."""
    found = list(sources)
    for kind, inputs in calls:
        found.append((make(kind, tuple([found[position] for position in inputs])), 0))
    return found[-1]


# --- sources of contents --------------------------------------------------------------------


def tracked(*values: Any) -> bool:
    """Whether any of these is a variable or was computed from one."""
    return any(getattr(value, "_is_tracked", False) for value in values)


def source_of(value: Any) -> Any:
    """Where a value's gradient goes next: a Leaf, (Call, index), or None."""
    if not getattr(value, "_is_tracked", False):
        return None
    history = value._history
    source = _whole_source(history)
    return source if value._is_base or _is_over(source) else _view_source(history, value)


def _whole_source(history: Any) -> Any:
    """The source of the whole contents."""
    source = history.source
    if _is_over(source) and history.variable is not None:
        # A variable overwritten during a step becomes a variable again once the step is freed.
        source = history.source = history.variable
        history.views = None
    return source


def current_source(value: Any) -> Any:
    """The source; None if it is a freed call, because its results are constants then."""
    source = source_of(value)
    return None if _is_over(source) else source


_core.set_source_of(source_of)


def _is_over(source: Any) -> bool:
    """Whether a source is a call that has been freed."""
    return isinstance(source, tuple) and source[0].freed


def region_of(array: Any) -> Region:
    """The elements of its memory that an array shows."""
    return array.shape, array._element_strides, array.offset


def _view_source(history: Any, value: Any) -> Any:
    """The source of a view: a known one, or one recorded now as a slice of the whole contents."""
    if history.views is None:
        history.views = {}
    views, region = history.views, region_of(value)
    found = views.get(region)
    if found is not None:
        return found
    calls = _taking(history.base, region, value.dtype)
    if calls is None:
        if isinstance(history.source, Leaf) and repeats(history.base):
            # Which of the equal elements a view shows cannot be told.
            raise GradientError(
                f"a view of the variable {history.source.spec}, which repeats elements, has no "
                "gradient; copy() the variable before attach_grad()"
            )
        indices = above.from_numpy(positions(history.base, region), value.device)
        return source_of(recording(True, gather, _flat(history, value), indices, axis=0))
    if len(views) >= VIEWS:
        oldest, *_ = views  # atomic: another thread may change the dictionary
        views.pop(oldest, None)
    found = views[region] = _follow(ViewCall, calls, history.source)
    return found


def _flat(history: Any, view: Any) -> Any:
    """The elements of a view's base, in a row and in memory of their own.

    `reshape` alone may give another view of the base, whose source is asked for in the same way.
    """
    base = _base_of(view)
    flat = reshape(recording(False, copy, base), shape=(-1,))
    kind = kind_of_specs(reshape, (spec_of(base),), {"shape": (-1,)})
    flat._track((ViewCall(kind, (history.source,)), 0))
    return flat


#: The number of views a history remembers; the oldest is dropped first.
VIEWS = 256


def _base_of(view: Any) -> Any:
    """The base array of a view."""
    base = view._as_strided(*view._history.base)
    base._history = view._history
    return base


def become_variable(array: Any, leaf: Leaf) -> None:
    """Make an array a variable whose gradient goes to a leaf (`attach_grad`)."""
    array._grad = leaf.gradient
    source = source_of(array)
    history = array._history
    if isinstance(source, tuple) and not _is_over(source):
        call, index = source
        call.variables = {**(call.variables or {}), index: leaf}
        if array._is_base:
            history.variable = leaf
        return
    if history is not None and history.source is None and not array._is_base:
        array._history = None  # a view becomes a variable of its own, separate from its base
    array._track(leaf)
    array._history.variable = leaf


def let_travel(array: Any, blocks: int = 1) -> None:
    """Mark a variable's gradient to be sent to other processes, in `blocks` blocks of rows."""
    history = array._history
    if history is not None and history.variable is not None:
        history.variable.travels = blocks


def blocks_of(array: Any) -> Sequence[Any]:
    """The blocks of rows of a variable's gradient, which are ready one after another.

    Empty if the last backward pass made none, or the gradient has been written since.
    """
    history = array._history
    leaf = history.variable if history is not None else None
    if leaf is None:
        return ()
    state, blocks = leaf.blocks
    leaf.blocks = None, ()  # they are handed out only once
    return blocks if state is not None and state == leaf.state else ()


# --- writes ---------------------------------------------------------------------------------


def concerns(target: Any, *values: Any) -> bool:
    """Whether a write of `values` into `target` has to be recorded."""
    if not _core.recording() or not target.dtype.is_inexact:
        return False
    history = target._history
    return tracked(target, *values) or (history is not None and history.is_saved)


def overwrite(target: Any, value: Any) -> None:
    """Overwrite an array, or a part of one, with an array or number that fits it."""
    if not target.size:
        return
    if concerns(target, value):
        write(target, value)
    else:
        copy.into(target, value)


def write(target: Any, value: Any) -> None:
    """A recorded `overwrite`."""
    if not target.size:
        return
    history = target._shared_history()
    if repeats(region_of(target)):
        raise GradientError(
            f"an in-place write to {spec_of(target)}, which repeats elements, has no gradient"
        )
    fitting = value
    if isinstance(value, _core.Array):
        same = value.dtype is target.dtype
        fitting = value if same else cast(value, dtype=target.dtype)
        fitting = broadcast_to(fitting, shape=target.shape)
    source = current_source(fitting)
    if history.source is not None or source is not None:
        _comes_from(target, fitting, source)
    keep_contents(history)
    copy.into(target, value)


def _comes_from(target: Any, value: Any, source: Any) -> None:
    """Set the source of `target` to that of `value`, which is about to be written into it."""
    history = target._history
    region = region_of(target)
    before = None if _is_over(whole := _whole_source(history)) else whole
    if target._is_base and source is None and history.variable is not None:
        # A recorded call instead of None, so that the array is a variable again when it is freed.
        key = tuple(("slice", 0, n, 1) for n in target.shape)
        kind = kind_of_specs(assign, (spec_of(target),) * 2, {"key": key})
        source = Call(kind, (before, None)), 0
    if target._is_base:
        target._track(source)
        return
    calls = _putting(history.base, region, target.dtype)
    if calls is None:
        new = source_of(recording(True, _base_with, target, value))
    else:
        new = _follow(Call, calls, before, source)
    history.source = new
    history.views = None if source is None else {region: source}


def _base_with(target: Any, value: Any) -> Any:
    """The base of the view `target`, with `value` in place of the elements the view shows."""
    base = _base_of(target)
    if not isinstance(value, _core.Array):
        with target.device:
            value = full(value, shape=target.shape, dtype=target.dtype)
    import numpy

    chosen = numpy.full(base.size, -1, "int64")
    chosen[positions(target._history.base, region_of(target)).reshape(-1)] = range(target.size)
    return taken_from(base, value, above.from_numpy(chosen, target.device))


__all__ = ["Call", "Leaf", "blocks_of", "overwrite", "source_of", "tracked", "write"]
