"""The states of many parameters, and their updates: what a trainer or a key-value store holds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gemel import autograd, compiled

if TYPE_CHECKING:
    from collections.abc import Callable

    from gemel.np import ndarray
    from gemel.optimizer.base import Optimizer


class Updater:
    """Calls an optimizer and keeps the states of the parameters it is called for, by index."""

    def __init__(self, optimizer: Optimizer) -> None:
        self.optimizer = optimizer
        self.states: dict[Any, list[ndarray]] = {}
        #: The traced programs, by everything that is fixed in them.
        self._programs: dict[tuple[Any, ...], Any] = {}

    def __call__(self, index: Any, grad: Any, weight: Any) -> None:
        """Update one parameter in place, or those in lists as one program."""
        several = isinstance(index, (list, tuple))
        indices, weights = (list(index), list(weight)) if several else ([index], [weight])
        if not indices:
            return
        self.optimizer._set_current_context(weights[0].device.code)
        states = [self.state(i, w) for i, w in zip(indices, weights, strict=True)]
        for i in indices:
            self.optimizer._update_count(i)
        groups, scalars = self._groups(indices)
        decays = tuple([decay != 0 for decay in scalars[1::2]])
        sizes = tuple(map(len, states))
        key = (groups, decays, sizes, self.optimizer.constants())
        program = self._programs.get(key)
        if program is None:
            function = _step_function(self.optimizer, groups, decays, sizes)
            program = self._programs[key] = compiled.Update(function)
        arrays = weights + [array for kept in states for array in kept]
        grads = list(grad) if several else [grad]
        program(arrays + grads, [self.optimizer.rescale_grad, *scalars])

    def state(self, index: Any, weight: Any) -> list[ndarray]:
        """The state of a parameter, made when it is first needed, on the weight's device."""
        states = self.states.get(index)
        if states is None:
            with autograd.pause():
                states = self.optimizer.create_states(weight)
            self.states[index] = states
        if states and states[0].device != weight.device:
            states = self.states[index] = [array.as_in_ctx(weight.device) for array in states]
        return states

    def arrays(self) -> dict[Any, list[ndarray]]:
        """The arrays of each parameter's state, in order."""
        return {index: list(states) for index, states in self.states.items()}

    def restore(self, arrays: dict[Any, list[ndarray]]) -> None:
        """Take what `arrays` gave, here or in another process, in place of the states."""
        self.states = {index: list(states) for index, states in arrays.items()}

    def _groups(self, indices: list[Any]) -> tuple[tuple[int, ...], list[float]]:
        """Which parameters share their rates, and for each group the step size and weight decay."""
        rule = self.optimizer
        rate = rule.learning_rate
        groups: dict[tuple[float, float, int], int] = {}
        members = []
        for index in indices:
            parameter = rule.param_dict.get(index)
            mults = (1.0, 1.0) if parameter is None else (parameter.lr_mult, parameter.wd_mult)
            key = (*mults, rule._index_update_count[index])
            members.append(groups.setdefault(key, len(groups)))
        scalars: list[float] = []
        for lr_mult, wd_mult, count in groups:
            scalars += [float(rule.rate(rate * lr_mult, count)), float(rule.wd * wd_mult)]
        return tuple(members), scalars


def get_updater(optimizer: Optimizer) -> Updater:
    """An `Updater` of this optimizer."""
    return Updater(optimizer)


def _step_function(
    rule: Optimizer, groups: tuple[int, ...], decays: tuple[bool, ...], sizes: tuple[int, ...]
) -> Callable[[list[Any], list[Any]], list[Any]]:
    """One step over many parameters: weights, states, gradients -> new weights, new states.

    The scalars are the gradients' factor, then each group's step size and weight decay.
    """
    count = len(groups)

    def step(arrays: list[Any], scalars: list[Any]) -> list[Any]:
        states = iter(arrays[count : count + sum(sizes)])
        gradients = arrays[count + sum(sizes) :]
        weights, kept = [], []
        for position, group in enumerate(groups):
            weight, new = rule.update(
                arrays[position],
                gradients[position],
                [next(states) for _ in range(sizes[position])],
                learning_rate=scalars[1 + 2 * group],
                weight_decay=scalars[2 + 2 * group] if decays[group] else None,
                rescale=scalars[0],
            )
            weights.append(weight)
            kept += new
        return weights + kept

    return step
