"""The update of many parameters as one program, which works in place."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gemel import autograd, updates
from gemel.nested import flatten

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gemel.np import ndarray
    from gemel.optimizer.base import Optimizer


class Fused:
    """The programs of an optimizer: one for each choice of parameters it is asked to update.

    Rates, weight decays and the factor of the gradients are run-time values. Only a setting that
    changes (`Optimizer.constants`), a weight decay that becomes or stops being 0, or parameters
    whose multipliers or counts begin to differ, is another program.
    """

    def __init__(self, rule: Optimizer) -> None:
        self.rule = rule
        self.programs: dict[tuple[Any, ...], updates.Update] = {}

    def __call__(
        self,
        indices: Sequence[Any],
        weights: list[ndarray],
        grads: list[ndarray],
        states: list[Any],
        masters: list[ndarray | None],
    ) -> None:
        """Update `weights` and `states` in place; where there is a float32 master, it leads."""
        rule, scalars = self.rule, [float(self.rule.rescale_grad)]
        groups: dict[tuple[Any, ...], int] = {}
        members: list[int] = []
        decays: list[bool] = []
        for index in indices:
            number = groups.setdefault(rule.alike(index), len(decays))
            members.append(number)
            if number == len(decays):
                decay = rule._get_wd(index)
                decays.append(decay != 0)
                scalars += [float(decay), *map(float, rule.rates(index))]
        kept = [_leaves(state, master) for state, master in zip(states, masters, strict=True)]
        sizes = tuple(map(len, kept))
        led = tuple(master is not None for master in masters)
        key = (tuple(members), tuple(decays), sizes, led, rule.constants())
        program = self.programs.get(key)
        if program is None:
            function = _step(rule, members, decays, sizes, led)
            program = self.programs[key] = updates.Update(function)
        # A program overwrites whole arrays: a view of part of one is updated beside it.
        whole = [w if w._is_contiguous else w.copy() for w in weights]
        program([*whole, *(array for leaves in kept for array in leaves), *grads], scalars)
        for weight, new in zip(weights, whole, strict=True):
            if new is not weight:
                with autograd.pause():
                    weight[...] = new


def _leaves(state: Any, master: ndarray | None) -> list[ndarray]:
    """The arrays of a parameter besides its weight, the master first."""
    found: list[Any] = [] if master is None else [master]
    if state is not None:
        flatten(state, found, [])
    return found


def _step(
    rule: Optimizer,
    members: list[int],
    decays: list[bool],
    sizes: tuple[int, ...],
    led: tuple[bool, ...],
) -> Callable[[list[Any], list[Any]], list[Any]]:
    """Weights, what is kept, gradients -> new weights, what is kept then.

    The scalars are the gradients' factor, then for each group its weight decay and its rates.
    """
    count = len(members)

    def step(arrays: list[Any], scalars: list[Any]) -> list[Any]:
        kept = iter(arrays[count : count + sum(sizes)])
        grads = arrays[count + sum(sizes) :]
        width = (len(scalars) - 1) // len(decays)
        weights, states = [], []
        for weight, grad, group, size, has in zip(arrays, grads, members, sizes, led, strict=False):
            decay, *rates = scalars[1 + group * width :][:width]
            given = [_wide(next(kept)) for _ in range(size)]
            old = given[0] if has else _wide(weight)
            new, after = rule.advance(
                old,
                grad.astype(old.dtype) * scalars[0],
                given[has:],
                tuple(rates),
                decay if decays[group] else None,
            )
            weights.append(new)
            states += [new, *after] if has else after
        return weights + states

    return step


def _wide(array: Any) -> Any:
    """Arithmetic of an update is never done in float16."""
    return array.astype("float32") if array.dtype == "float16" else array
