"""The update of many parameters as one program, which works in place."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from gemel import autograd, np
from gemel._core import Array
from gemel.errors import ArgumentError, DTypeError, GemelError, ShapeError
from gemel.tracing import updates
from gemel.tracing.nested import flatten

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gemel.np import ndarray
    from gemel.optimizer.base import Optimizer


class Kept(NamedTuple):
    """What is kept for the parameters besides their weights, concatenated."""

    arrays: list[ndarray]
    #: How many arrays each parameter has, and whether the first of them is a float32 master.
    sizes: tuple[int, ...]
    has_master: tuple[bool, ...]

    @classmethod
    def of(cls, states: Sequence[Any], masters: Sequence[ndarray | None]) -> Kept:
        """The arrays of these states, each after the float32 copy of its weight, if it has one."""
        each = [_leaves(state, master) for state, master in zip(states, masters, strict=True)]
        has_master = tuple(master is not None for master in masters)
        return cls(
            [array for leaves in each for array in leaves], tuple(map(len, each)), has_master
        )


class Asked(NamedTuple):
    """The inputs of one update besides weights and gradients, and the key of its program."""

    #: The group of each parameter, whether each group decays, the number of arrays kept for each
    #: parameter, whether the first of these is a master, and the optimizer's settings.
    key: tuple[tuple[int, ...], tuple[bool, ...], tuple[int, ...], tuple[bool, ...], Any]
    #: The arrays kept for all parameters, concatenated.
    kept: list[ndarray]
    #: The factor of the gradients, then the weight decay and the rates of each group.
    scalars: list[float]


class Fused:
    """The programs of an optimizer: one for each set of parameters that it updates together.

    Rates, weight decays and the factor of the gradients are run-time values. A new program is
    needed only if a setting changes (`Optimizer.constants`), a weight decay becomes or stops being
    0, or the multipliers or counts of parameters begin to differ.
    """

    def __init__(self, rule: Optimizer) -> None:
        self.rule = rule
        self.programs: dict[tuple[Any, ...], updates.Update] = {}

    def asked(self, indices: Sequence[Any], kept: Kept) -> Asked:
        """The inputs of an update of these parameters, whose counts are already increased."""
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
        key = tuple(members), tuple(decays), kept.sizes, kept.has_master, rule.constants()
        return Asked(key, kept.arrays, scalars)

    def function(self, asked: Asked) -> Callable[[list[Any], list[Any]], list[Any]]:
        """(weights, kept arrays, gradients), scalars -> new weights, new kept arrays."""
        return _step(self.rule, *asked.key[:4])

    def __call__(
        self,
        indices: Sequence[Any],
        weights: list[ndarray],
        grads: list[ndarray],
        states: list[Any],
        masters: list[ndarray | None],
    ) -> None:
        """Update `weights` and `states` in place; if there is a float32 master, the weight follows
        it."""
        asked = self.asked(indices, Kept.of(states, masters))
        program = self.programs.get(asked.key)
        if program is None:
            program = self.programs[asked.key] = updates.Update(self.function(asked))
        # A program overwrites whole arrays, so a view of a part is updated through a copy.
        whole = [w if w._is_contiguous else w.copy() for w in weights]
        program([*whole, *asked.kept, *grads], asked.scalars)
        for weight, new in zip(weights, whole, strict=True):
            if new is not weight:
                with autograd.pause():
                    weight[...] = new


def _leaves(state: Any, master: ndarray | None) -> list[ndarray]:
    """The arrays of a parameter besides its weight, the master first."""
    found: list[Any] = [] if master is None else [master]
    for each in state if type(state) is tuple else (state,):
        if isinstance(each, Array):  # the common case, in every step
            found.append(each)
        elif each is not None:
            flatten(each, found, [])
    return found


def _step(
    rule: Optimizer,
    members: tuple[int, ...],
    decays: tuple[bool, ...],
    sizes: tuple[int, ...],
    has_master: tuple[bool, ...],
) -> Callable[[list[Any], list[Any]], list[Any]]:
    """See `Fused.function`."""
    count = len(members)

    def step(arrays: list[Any], scalars: list[Any]) -> list[Any]:
        kept = iter(arrays[count : count + sum(sizes)])
        grads = arrays[count + sum(sizes) :]
        width = (len(scalars) - 1) // len(decays)
        weights, states = [], []
        rows = zip(arrays, grads, members, sizes, has_master, strict=False)
        for weight, grad, group, size, has in rows:
            _check(rule, weight, grad)
            decay, *rates = scalars[1 + group * width :][:width]
            given = [_wide(next(kept)) for _ in range(size)]
            old = given[0] if has else _wide(weight)
            scaled = grad.astype(old.dtype) * scalars[0]
            moved_by = tuple(rates), decay if decays[group] else None
            new, after = _advanced(rule, old, scaled, given[has:], *moved_by)
            weights.append(new)
            states += [new, *after] if has else after
        return weights + states

    return step


def _advanced(
    rule: Optimizer, weight: Any, grad: Any, states: list[Any], rates: Any, decay: Any
) -> tuple[Any, list[Any]]:
    """`rule.advance`. Raises `ArgumentError` for states that are not those that the rule keeps."""
    try:
        new, after = rule.advance(weight, grad, states, rates, decay)
    except (IndexError, ValueError) as error:
        wanted = len(rule.create_states(weight))
        if isinstance(error, GemelError) or wanted == len(states):
            raise
        raise _other_states(rule, states, wanted) from None
    if len(after) != len(states):
        raise _other_states(rule, states, len(after))
    return new, list(map(_settled, after))


def _settled(state: Any) -> Any:
    """A state with 0 in place of numbers that are too small to be normal.

    Where gradients stay 0, running means end among these: 0.9 of the smallest is rounded to it
    again. Intel's processors take a hundred cycles for each product of such a number.
    """
    if state.dtype not in ("float32", "float64"):
        return state
    return np.where(abs(state) < np.finfo(state.dtype).tiny, 0, state)


def _other_states(rule: Optimizer, states: list[Any], wanted: int) -> ArgumentError:
    return ArgumentError(
        f"{type(rule).__name__}: the state of a weight consists of {len(states)} arrays, not of "
        f"{wanted}; give what create_state(index, weight) returned"
    )


def _check(rule: Optimizer, weight: Any, grad: Any) -> None:
    """Raises `ShapeError` or `DTypeError` for a weight that cannot move along this gradient."""
    name = type(rule).__name__
    if weight.shape != grad.shape:
        raise ShapeError(
            f"{name}: a gradient of shape {grad.shape} for a weight of shape {weight.shape}; they "
            "must be equal"
        )
    if not (weight.dtype.is_floating or weight.dtype.is_complex):
        raise DTypeError(
            f"{name}: a weight of {weight.dtype} cannot take small steps; use astype('float32')"
        )


def is_narrow(array: Any) -> bool:
    """Whether it is float16 or bfloat16, to whose numbers small steps cannot be added."""
    return array.dtype.is_floating and array.dtype.accumulate is not array.dtype


def _wide(array: Any) -> Any:
    """Widen the array if it is narrow: updates are never computed in float16 or bfloat16."""
    return array.astype("float32") if is_narrow(array) else array
