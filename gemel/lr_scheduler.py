"""Learning rates that change with the number of updates.

A scheduler is a pure function of the number of the update, which starts at 1; the same number
always gives the same rate. Any other callable can be used as well.
"""

from __future__ import annotations

from itertools import pairwise
from math import cos, inf, pi
from numbers import Real
from typing import TYPE_CHECKING, Any

from gemel.errors import ArgumentError, OperandError, unknown_name
from gemel.ranges import check_number, counted

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = [
    "CosineScheduler",
    "FactorScheduler",
    "LRScheduler",
    "MultiFactorScheduler",
    "PolyScheduler",
]


class LRScheduler:
    """Base class of schedules: a rate `base_lr`, reached by a warm-up over the first `warmup_steps`
    updates.

    In the mode "linear" the rate grows in equal steps from `warmup_begin_lr` to `base_lr`; in the
    mode "constant" it is `warmup_begin_lr` during the warm-up. Subclasses define
    `__call__(num_update)`, or `decayed(num_update)` for the time after the warm-up. Raises
    `ArgumentError` for invalid settings.
    """

    def __init__(
        self,
        base_lr: float = 0.01,
        warmup_steps: int = 0,
        warmup_begin_lr: float = 0,
        warmup_mode: str = "linear",
    ) -> None:
        if warmup_mode not in ("linear", "constant"):
            raise unknown_name("warmup_mode", warmup_mode, ("linear", "constant"))
        self._check(base_lr=base_lr, warmup_begin_lr=warmup_begin_lr)
        if warmup_begin_lr > base_lr:
            raise self._refusal("base_lr must be at least warmup_begin_lr", base_lr)
        self.base_lr = base_lr
        self.warmup_steps = counted(type(self).__name__, "warmup_steps", warmup_steps, 0)
        self.warmup_begin_lr = warmup_begin_lr
        self.warmup_mode = warmup_mode

    @property
    def warmup_final_lr(self) -> float:
        """The rate at the end of the warm-up: `base_lr`."""
        return self.base_lr

    def get_warmup_lr(self, num_update: int) -> float:
        """The rate of an update during the warm-up."""
        if self.warmup_mode == "constant":
            return self.warmup_begin_lr
        done = num_update / self.warmup_steps if self.warmup_steps else 1.0
        return self.warmup_begin_lr + (self.warmup_final_lr - self.warmup_begin_lr) * done

    def decayed(self, num_update: int) -> float:
        """The rate of an update after the warm-up."""
        raise NotImplementedError(f"{type(self).__name__} does not define how the rate changes")

    def __call__(self, num_update: int) -> float:
        """The learning rate of update `num_update`: a number, or an array of one."""
        num_update = num_update.item() if hasattr(num_update, "item") else num_update
        if not isinstance(num_update, (int, Real)):
            raise OperandError(f"{type(self).__name__}: {num_update!r} is not a number of updates")
        warming = num_update < self.warmup_steps
        return self.get_warmup_lr(num_update) if warming else self.decayed(num_update)

    def _check(self, least: float = -inf, most: float = inf, **settings: Any) -> None:
        """Raises `ArgumentError` unless these settings are numbers in this range."""
        for name, value in settings.items():
            check_number(type(self).__name__, name, value, least, most)

    def _refusal(self, rule: str, value: object) -> ArgumentError:
        return ArgumentError(f"{type(self).__name__}: {rule}, not {value!r}")


class FactorScheduler(LRScheduler):
    """`base_lr`, times `factor` after every `step` updates, but not below `stop_factor_lr`."""

    def __init__(
        self,
        step: int,
        factor: float = 1,
        stop_factor_lr: float = 1e-8,
        base_lr: float = 0.01,
        warmup_steps: int = 0,
        warmup_begin_lr: float = 0,
        warmup_mode: str = "linear",
    ) -> None:
        super().__init__(base_lr, warmup_steps, warmup_begin_lr, warmup_mode)
        self._check(0, 1, factor=factor)
        self._check(stop_factor_lr=stop_factor_lr)
        self.step = counted("FactorScheduler", "step", step)
        self.factor = factor
        self.stop_factor_lr = stop_factor_lr

    def decayed(self, num_update: int) -> float:
        """The rate after the decay steps before this update."""
        count = max(0, num_update - 1) // self.step
        rate = self.base_lr * self.factor**count
        return max(rate, self.stop_factor_lr) if count else rate


class MultiFactorScheduler(LRScheduler):
    """`base_lr`, times `factor` after each of the updates listed in `step`."""

    def __init__(
        self,
        step: Sequence[int],
        factor: float = 1,
        base_lr: float = 0.01,
        warmup_steps: int = 0,
        warmup_begin_lr: float = 0,
        warmup_mode: str = "linear",
    ) -> None:
        super().__init__(base_lr, warmup_steps, warmup_begin_lr, warmup_mode)
        self._check(0, 1, factor=factor)
        rule = "step must be a list of increasing whole numbers, the first at least 1"
        if not hasattr(step, "__len__") or not len(step):
            raise self._refusal(rule, step)
        #: Copied, so that the schedule stays as it is.
        self.step = [counted("MultiFactorScheduler", "each step", each) for each in step]
        if any(b <= a for a, b in pairwise(self.step)):
            raise self._refusal(rule, step)
        self.factor = factor

    def decayed(self, num_update: int) -> float:
        """The rate after the listed updates before this one."""
        return self.base_lr * self.factor ** sum(num_update > step for step in self.step)


class _Falling(LRScheduler):
    """From `base_lr` after the warm-up to `final_lr` at update `max_update`, then level."""

    def __init__(
        self,
        max_update: int,
        base_lr: float = 0.01,
        final_lr: float = 0,
        warmup_steps: int = 0,
        warmup_begin_lr: float = 0,
        warmup_mode: str = "linear",
    ) -> None:
        super().__init__(base_lr, warmup_steps, warmup_begin_lr, warmup_mode)
        self._check(final_lr=final_lr)
        self.max_update = counted(type(self).__name__, "max_update", max_update)
        self.final_lr = final_lr
        self.max_steps = self.max_update - self.warmup_steps

    def remaining(self, done: float) -> float:
        """The fraction of the decay that remains after this fraction (0 to 1) of the updates."""
        raise NotImplementedError

    def decayed(self, num_update: int) -> float:
        """The rate during the decay."""
        done = 1.0
        if num_update < self.max_update:
            done = (num_update - self.warmup_steps) / self.max_steps
        return self.final_lr + (self.base_lr - self.final_lr) * self.remaining(done)


class PolyScheduler(_Falling):
    """Polynomial decay from `base_lr` to `final_lr` at `max_update`, with the power `pwr`."""

    def __init__(
        self,
        max_update: int,
        base_lr: float = 0.01,
        pwr: float = 2,
        final_lr: float = 0,
        warmup_steps: int = 0,
        warmup_begin_lr: float = 0,
        warmup_mode: str = "linear",
    ) -> None:
        super().__init__(max_update, base_lr, final_lr, warmup_steps, warmup_begin_lr, warmup_mode)
        self._check(0, pwr=pwr)
        self.power = pwr

    def remaining(self, done: float) -> float:
        """(1 - done) ** pwr."""
        return float((1 - done) ** self.power)


class CosineScheduler(_Falling):
    """Cosine decay from `base_lr` to `final_lr` at `max_update`.

    Loshchilov and Hutter, SGDR: stochastic gradient descent with warm restarts, ICLR 2017.
    """

    def remaining(self, done: float) -> float:
        """(1 + cos(pi * done)) / 2."""
        return (1 + cos(pi * done)) / 2
