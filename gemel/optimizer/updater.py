"""The states of many parameters, and their updates: what a trainer or a key-value store holds."""

from __future__ import annotations

import pickle
import reprlib
from typing import Any

from gemel.errors import DeviceError, GemelError, ParameterFileError
from gemel.optimizer.base import Optimizer, check_array_type
from gemel.tracing.nested import flatten, unflatten


class Updater:
    """Calls an optimizer and keeps the states of its parameters by index."""

    def __init__(self, optimizer: Optimizer) -> None:
        self.optimizer = optimizer
        self.states: dict[Any, Any] = {}
        #: Arrays of states read from a file, for parameters not updated since.
        self.waiting: dict[Any, list[Any]] = {}
        #: For states and waiting arrays, whether they include a float32 copy of the weight, as far
        #: as known: arrays read from a file are taken as they fit the weight that first uses them.
        self.masters: dict[Any, bool] = {}

    def __call__(self, index: Any, grad: Any, weight: Any) -> None:
        """Update one parameter in place, or those in lists as one program."""
        several = isinstance(index, (list, tuple))
        indices, weights = (list(index), list(weight)) if several else ([index], [weight])
        grads = list(grad) if several else [grad]
        if not len(indices) == len(weights) == len(grads):
            raise GemelError(
                f"Updater: {len(indices)} indices, {len(grads)} gradients and {len(weights)} "
                "weights; give the same number of each"
            )
        if not indices:
            return
        _check(weights, grads)
        self.optimizer._set_current_context(weights[0].device.code)
        states = [self.state(i, w) for i, w in zip(indices, weights, strict=True)]
        self.optimizer.update_multi_precision(indices, weights, grads, states)

    def state(self, index: Any, weight: Any) -> Any:
        """The state of a parameter, created when it is first needed, on the weight's device.

        It is converted if the weight's dtype has changed: the float32 copy is dropped if the weight
        is no longer float16 or bfloat16, and added if it is now.
        """
        master = self.optimizer._has_master(weight)
        if index not in self.states:
            self.states[index] = self._begun(index, weight, master)
        if self.masters.setdefault(index, master) is not master:
            self.states[index] = self.optimizer._relaid(self.states[index], weight, master)
            self.masters[index] = master
        return self.states[index]

    def _begun(self, index: Any, weight: Any, master: bool) -> Any:
        """A new state, or the one that waits for its parameter."""
        state = self.optimizer.create_state_multi_precision(index, weight)
        if index not in self.waiting:
            return state
        if self.masters.get(index, master) is not master:
            state = self.optimizer._relaid(state, weight, not master)
        return self._restored(index, state, weight.device)

    def _restored(self, index: Any, state: Any, device: Any) -> Any:
        """A state of this structure, made from the arrays that were read."""
        arrays: list[Any] = []
        structure = flatten(state, arrays, [])
        found = self.waiting[index]
        if len(found) != len(arrays):
            raise ParameterFileError(
                f"{type(self.optimizer).__name__} keeps {len(arrays)} arrays for parameter "
                f"{index} with these settings, but {len(found)} were loaded; nothing was updated"
            )
        del self.waiting[index]
        return unflatten(structure, (array.as_in_ctx(device) for array in found))

    def arrays(self) -> dict[Any, list[Any]]:
        """The arrays of each parameter's state, in order."""
        found: dict[Any, list[Any]] = {index: list(kept) for index, kept in self.waiting.items()}
        for index, state in self.states.items():
            flatten(state, found.setdefault(index, []), [])
        return found

    def restore(self, arrays: dict[Any, list[Any]], masters: dict[Any, bool] | None = None) -> None:
        """Replace the states with the result of `arrays`, from this or another process."""
        self.states, self.waiting = {}, dict(arrays)
        known = (masters or {}).items()
        self.masters = {index: master for index, master in known if index in arrays}

    def get_states(self, dump_optimizer: bool = False) -> bytes:
        """The states, pickled; with `dump_optimizer` also the optimizer."""
        return pickle.dumps((self.states, self.optimizer) if dump_optimizer else self.states)

    def set_states(self, states: bytes) -> None:
        """Restore the result of `get_states`. It is unpickled, so the bytes must be trusted.

        Raises `ParameterFileError` for anything else."""
        try:
            found = pickle.loads(states)
        except (TypeError, EOFError, pickle.UnpicklingError) as error:
            raise ParameterFileError(
                f"set_states: these are not the states that get_states returns: {error}"
            ) from error
        kept, rule = found if isinstance(found, tuple) and len(found) == 2 else (found, None)
        rule = self.optimizer if rule is None else rule
        if not isinstance(kept, dict) or not isinstance(rule, Optimizer):
            raise ParameterFileError(
                f"set_states: {reprlib.repr(found)} are not the states that get_states returns"
            )
        self.states, self.waiting, self.masters, self.optimizer = kept, {}, {}, rule


def _check(weights: list[Any], grads: list[Any]) -> None:
    """Raises `OperandError` for what is no array of gemel's, and `DeviceError` for arrays on
    several devices."""
    device = getattr(weights[0], "device", None)
    for name, arrays in (("weight", weights), ("gradient", grads)):
        for array in arrays:
            check_array_type(f"Updater: the {name}", type(array))
            if array.device != device:
                other = "the" if len(weights) == 1 else "the first"
                raise DeviceError(
                    f"Updater: the {name} is on {array.device}, {other} weight on {device}; move "
                    "one of them with to_device(device)"
                )


def get_updater(optimizer: Optimizer) -> Updater:
    """An `Updater` of this optimizer."""
    return Updater(optimizer)
