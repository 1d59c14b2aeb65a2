"""A training step as one program, the result of `Trainer.compile`.

A call traces the user's function, takes the gradients of its result and applies the optimizer's
formula to every parameter, all in one trace. The parameters' arrays and the optimizer's states are
inputs that the program overwrites; learning rate and step counts are run-time numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import is_
from typing import TYPE_CHECKING, Any, NamedTuple

from gemel import autograd
from gemel._core import Array
from gemel.errors import ArgumentError, GemelError, GradientError, check_function
from gemel.gluon.parameter import Parameter
from gemel.ir.current import current_trace
from gemel.ir.graph import Entry, walk
from gemel.ir.precision import scope
from gemel.ir.trace import StateArray, Trace
from gemel.optimizer.base import by_hand
from gemel.optimizer.fused import Kept
from gemel.tracing import compiled
from gemel.tracing.mixing import mixed_so_far
from gemel.tracing.nested import Named, by_place, called, flatten, with_named

if TYPE_CHECKING:
    from gemel.device import Device
    from gemel.gluon.trainer import Trainer
    from gemel.optimizer import Updater
    from gemel.optimizer.fused import Asked


#: How many programs a step keeps, the newest last; settings may differ between steps.
PROGRAMS = 16


class CompiledStep:
    """A callable training step, see `Trainer.compile`.

    Gradients are divided by `batch_size`, by default the length of the first argument. Other
    keyword arguments go to the function.
    """

    def __init__(self, trainer: Trainer, function: Callable[..., Any]) -> None:
        check_function("Trainer.compile", function)
        self._trainer = trainer
        self._function = function
        self._last: _Updated | None = None
        #: The programs by the key of the update (`Asked.key`).
        self._programs: dict[Any, _Program] = {}

    def __call__(self, *arguments: Any, batch_size: float | None = None, **named: Any) -> Any:
        """Do one step. Returns the function's result, computed before the update.

        Raises `GradientError` for a parameter that has no part in the loss, and `GemelError` where
        the trainer's parameters live on several devices or are trained together with other workers.
        """
        if self._trainer._amp_loss_scaler is not None and self._trainer._amp_loss_scaler.dynamic:
            raise _refused("its losses are scaled (amp.init_trainer), so steps may be skipped")
        if current_trace() is not None:
            raise GemelError(
                "step: a step is a program; call it outside of other compiled programs"
            )
        if named:
            from inspect import signature  # rarely needed

            placed = by_place("step", signature(self._function), arguments, named)
            arguments = with_named(*placed)
        if batch_size is None:
            batch_size = _length(arguments)
        trainer, updated = self._trainer, self._updated(arguments)
        rule = updated.updater.optimizer
        rule._set_current_context(updated.device.code)
        trainer._divide("step", batch_size)
        with rule._counting(updated.indices):
            asked = rule._fused.asked(updated.indices, updated.kept)
            program = self._program(asked, updated.parameters)
            program.check_apart(arguments)
            with autograd._Mode(False, True):
                return program.run(*arguments, *asked.scalars)

    def _updated(self, arguments: Sequence[Any]) -> _Updated:
        """What a step updates; it is kept until a parameter or the states are replaced."""
        words = self._words()
        if self._last is None or self._last.words != words or not self._last.holds():
            if not all(p._arrays for p in self._trainer._params if p.grad_req != "null"):
                with autograd.record(train_mode=False):  # it may take gradients itself
                    called(self._function, arguments)  # creates parameters of unknown shape
            self._last = self._found()
        return self._last

    def _words(self) -> list[Any]:
        """A key that changes if a parameter gets other arrays, or is frozen or unfrozen."""
        found: list[Any] = []  # no comprehensions, for speed in every step
        for parameter in self._trainer._params:
            found.append(id(parameter._arrays))
            found.append(parameter._grad_req)
        return found

    def _found(self) -> _Updated:
        """What steps update. Raises `GemelError` if that cannot be one program on one device."""
        trainer = self._trainer
        trainer._find_groups()
        if trainer._has_others or trainer._on_store:
            raise _refused("its gradients are summed with other workers', or in a store")
        if all(parameter.grad_req == "null" for parameter in trainer._params):
            raise GemelError(
                "step: every parameter of the trainer has grad_req 'null', so nothing can be "
                "trained"
            )
        numbered = enumerate(trainer._params)
        indices = [i for i, p in numbered if p._arrays and p.grad_req != "null"]
        parameters = [trainer._params[i] for i in indices]
        homes = {home for parameter in parameters for home in parameter.homes}
        if len(homes) != 1:
            raise _refused("its parameters are not all on one device")
        (device,) = homes
        updater = trainer._updaters[device]
        if by_hand(type(updater.optimizer)):
            kind = type(updater.optimizer).__name__
            raise _refused(f"{kind} updates arrays in Python, which cannot be part of a program")
        for parameter in parameters:
            if parameter.grad_req == "add":
                raise _refused(f"parameter {parameter.name} accumulates gradients (grad_req 'add')")
        weights = [parameter._arrays[0] for parameter in parameters]
        states = [updater.state(i, w) for i, w in zip(indices, weights, strict=True)]
        kept = Kept.of(*updater.optimizer._apart(weights, states))
        arrays = [parameter._arrays for parameter in trainer._params]
        known = self._words(), arrays, updater.states
        return _Updated(*known, device, updater, indices, parameters, kept)

    def _program(self, asked: Asked, parameters: list[Parameter]) -> _Program:
        known = self._programs.get(asked.key)
        if known is None or not known.keeps(parameters, asked.kept):
            update = self._trainer.optimizer._fused.function(asked)
            known = _Program(self._function, update, parameters, asked)
            self._programs.pop(asked.key, None)
            compiled.make_room(self._programs, PROGRAMS)
            self._programs[asked.key] = known
        return known


class _Updated(NamedTuple):
    """The parameters that steps update, and the updater and states they use."""

    words: list[Any]
    arrays: list[Any]  # keeps the arrays alive, because `words` has their ids
    by_index: dict[Any, Any]
    device: Device
    updater: Updater
    indices: list[int]
    parameters: list[Parameter]
    kept: Kept

    def holds(self) -> bool:
        """Whether the updater still has these states."""
        return self.updater.states is self.by_index


class _Program:
    """The program of a step, for one kind of update of these parameters and arrays."""

    def __init__(
        self,
        function: Callable[..., Any],
        update: Callable[[list[Any], list[Any]], list[Any]],
        parameters: list[Parameter],
        asked: Asked,
    ) -> None:
        self.function = function
        self.update = update
        self.parameters = parameters
        self.arrays = [parameter._arrays[0] for parameter in parameters]
        self.kept = [StateArray("state", array) for array in asked.kept]
        self.scalars = len(asked.scalars)
        #: The storages that the program overwrites.
        self.storages = frozenset(array._storage for array in (*self.arrays, *asked.kept))
        self.run = compiled.Compiled(self._step, name=getattr(function, "__name__", "step"))
        self.run.apart = True  # see `check_apart`

    def keeps(self, parameters: list[Parameter], kept: list[Any]) -> bool:
        """Whether it was made for these parameters, their present arrays and these states."""
        held = (each.value for each in self.kept)
        now = (parameter._arrays[0] for parameter in parameters)
        return (
            all(map(is_, self.parameters, parameters))
            and all(map(is_, self.arrays, now))
            and all(map(is_, held, kept))
        )

    def check_apart(self, arguments: Sequence[Any]) -> None:
        """Raises `ArgumentError` for an argument that shares memory with what the step overwrites.

        No gradient would pass through it, and it might be read before or after the update.
        """
        places: list[tuple[Any, Any]] = [*enumerate(arguments)]
        if arguments and type(arguments[-1]) is Named:
            places[-1:] = arguments[-1].items()
        for place, argument in places:
            arrays = [argument]
            if isinstance(argument, (list, tuple, dict)):
                flatten(argument, arrays, [])
            for array in arrays:
                if isinstance(array, Array) and array._storage in self.storages:
                    raise ArgumentError(
                        f"step: argument {place} shares memory with a parameter or an "
                        "optimizer state, which the step overwrites; read the parameter inside "
                        "the function (data()), or pass a copy"
                    )

    def _step(self, *values: Any) -> Any:
        """The traced function: takes the arguments, then the optimizer's numbers."""
        trace = current_trace()
        assert trace is not None
        arguments, scalars = values[: -self.scalars], list(values[-self.scalars :])
        assert trace.inputs.closed is not None
        for parameter, array in zip(self.parameters, self.arrays, strict=True):
            # The function may have read this array by closure; its gradient includes that use.
            trace.inputs.closed.is_parameter(array, trace.state.parameter(parameter))
        with autograd.record():
            found = mixed_so_far(trace, called(self.function, arguments))
        with scope(None):
            return self._updating(trace, found, scalars)

    def _updating(self, trace: Trace, found: Any, scalars: list[Any]) -> Any:
        """Trace the gradients and updates, in full precision; returns the function's result."""
        loss = found[0] if isinstance(found, (tuple, list)) and found else found
        if not isinstance(loss, (Entry, Array)):
            raise ArgumentError(
                "step: the function must return the loss (an array), or a tuple that begins "
                f"with the loss; it returned {type(found).__name__}"
            )
        weights = [parameter.data() for parameter in self.parameters]
        self._check(loss, trace)
        gradients = autograd.grad(loss, weights)
        kept = [trace.state.parameter(each) for each in self.kept]
        new = self.update([*weights, *kept, *gradients], scalars)
        targets = [*self.parameters, *self.kept]
        for target, old, value in zip(targets, [*weights, *kept], new, strict=True):
            cast = value if value.dtype is old.dtype else value.astype(old.dtype)
            trace.state.update(target, cast)
        updated = (parameter for parameter, _ in trace.state.updates.values())
        self.storages = self.storages.union(each.array()._storage for each in updated)
        return found

    def _check(self, loss: Any, trace: Trace) -> None:
        """Raise for a parameter without part in the loss, and for views of what is overwritten."""
        if any(own.op_hook for own in trace.scopes.blocks.values()):
            raise _refused("a network of the step has a hook on operations (register_op_hook)")
        outside = trace.inputs.closed
        for closed in outside.inputs.values() if outside is not None else ():
            if closed.array._storage in self.storages:
                raise ArgumentError(
                    "step: the function reads a view of a parameter or of an optimizer state "
                    "that was made outside of the function; take views of data() inside"
                )
        read = set(walk([loss]))
        for parameter in self.parameters:
            _, entry = trace.state.parameters.get(id(parameter), (None, None))
            if entry is None or entry.node not in read:
                raise GradientError(
                    f"step: parameter {parameter.name} does not contribute to the loss; if that "
                    "is intended, set its grad_req to 'null'"
                )


def _length(arguments: Sequence[Any]) -> int:
    first = arguments[0] if arguments else None
    shape = getattr(first, "shape", ())
    if not shape:
        raise ArgumentError(
            "step: the first argument has no axis of examples; give batch_size=, the number by "
            "which gradients are divided"
        )
    return int(shape[0])


def _refused(reason: str) -> GemelError:
    """The error for a trainer whose steps cannot be one program on one device."""
    return GemelError(f"Trainer.compile: {reason}; write the loop with record, backward and step")


__all__ = ["CompiledStep"]
