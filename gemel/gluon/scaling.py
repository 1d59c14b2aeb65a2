"""Loss scaling: the loss is multiplied by a large number so that float16 gradients do not vanish.

Micikevicius et al., Mixed precision training, ICLR 2018, section 3.2.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from gemel import autograd, np
from gemel.gluon.parameter import Parameter
from gemel.ranges import check_number, counted
from gemel.tracing.compiled import Compiled

if TYPE_CHECKING:
    from gemel.device import Device
    from gemel.gluon.trainer import Trainer

#: For the positions of the parameters to update: the gradients on each device, and which are new.
Chosen = dict[int, tuple[list[Any], list[bool]]]
#: Parameters to update, their devices, and the gradients on each device.
Part = tuple[Chosen, "list[Device]", list[list[Any]]]

#: MXNet's initial scale, the largest scale, and the number of steps after which it is doubled.
FIRST, MOST, WINDOW = 2.0**16, 2.0**24, 2000


class Group(NamedTuple):
    """Parameters on the same devices, by their positions."""

    devices: list[Device]
    positions: list[int]


class LossScaler:
    """The number a loss is multiplied by: halved where gradients overflow, doubled after many steps
    without that.

    A scaler that is not `dynamic` keeps its number, and nothing waits for gradients.
    """

    def __init__(
        self, init_scale: float = FIRST, scale_window: int = WINDOW, dynamic: bool = True
    ) -> None:
        check_number("LossScaler", "init_scale", init_scale, 1)
        #: The factor for the next loss.
        self.loss_scale = float(init_scale)
        self.scale_window = counted("LossScaler", "scale_window", scale_window)
        self.dynamic = dynamic
        #: The number of steps since the scale was changed.
        self._unskipped = 0

    def has_overflow(self, params: Iterable[Parameter]) -> bool:
        """Whether a gradient of these parameters is infinite or NaN. Waits for the gradients."""
        rows: dict[Any, list[Any]] = {}
        for gradient in (g for p in params if p.grad_req != "null" for g in p.list_grad()):
            rows.setdefault(gradient.device, []).append(gradient)
        return not all(map(all_finite, rows.values()))

    def update_scale(self, overflowed: bool) -> None:
        """Choose the next scale: lower after an overflow, higher after many steps without one."""
        if overflowed:
            self.loss_scale = max(self.loss_scale / 2, 1.0)
            self._unskipped = 0
            return
        self._unskipped += 1
        if self._unskipped == self.scale_window:
            self._unskipped = 0
            self.loss_scale = min(self.loss_scale * 2, MOST)

    def state(self) -> list[float]:
        """What changes with the steps, for a file."""
        return [self.loss_scale, self._unskipped]

    def set_state(self, state: Sequence[float]) -> None:
        """Go on from a `state`."""
        self.loss_scale, self._unskipped = float(state[0]), int(state[1])

    def overflowed(self, rows: list[list[Any]]) -> bool:
        """Whether to discard these gradients, a row per device; also chooses the next scale. Waits
        for them."""
        if not self.dynamic:
            return False
        found = not all(map(all_finite, rows))
        self.update_scale(found)
        return found


def scale_steps(trainer: Trainer, scale: float) -> None:
    """Tell a trainer, which tells its store, by what the gradients are multiplied."""
    trainer._scale = trainer._amp_original_scale / scale


def scaled(trainer: Trainer, losses: Sequence[Any]) -> list[Any]:
    """The losses times the trainer's scale, for `backward`; as they are if it scales none."""
    if trainer._amp_loss_scaler is None:
        return list(losses)
    scale = trainer._amp_loss_scaler.loss_scale
    scale_steps(trainer, scale)
    return [each if scale == 1 else each * scale for each in losses]


def unscale(trainer: Trainer) -> None:
    """Divide the gradients by the scale of the last loss; the step then does not."""
    factor = trainer._scale / trainer._amp_original_scale if trainer._amp_original_scale else 1
    if factor == 1:
        return
    scale_steps(trainer, 1.0)
    with autograd.pause():
        for parameter in trainer._params:
            for gradient in parameter.list_grad() if parameter.grad_req != "null" else ():
                gradient *= factor


def usable(
    scaler: LossScaler | None, parts: Iterable[Part], params: Sequence[Parameter]
) -> Iterable[Part]:
    """The parts of a step; none if gradients of a scaled loss have overflowed. In that case the
    step is skipped, and the gradients count as used."""
    if scaler is None or not scaler.dynamic:
        return parts
    parts = list(parts)
    if not scaler.overflowed([row for _, _, gradients in parts for row in gradients]):
        return parts
    for position in (position for part, _, _ in parts for position in part):
        params[position]._mark_used()
    return ()


def all_finite(arrays: list[Any]) -> bool:
    """Whether all elements of arrays on one device are finite. Waits for them."""
    with autograd.pause():
        return not arrays or bool(_ALL_FINITE(arrays))


def _finite(arrays: list[Any]) -> Any:
    found = np.isfinite(arrays[0]).all()
    for array in arrays[1:]:
        found = np.logical_and(found, np.isfinite(array).all())
    return found


_ALL_FINITE = Compiled(_finite, "all_finite")

__all__ = ["Group", "LossScaler", "all_finite", "scale_steps", "scaled", "unscale", "usable"]
