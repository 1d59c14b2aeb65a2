"""Splitting the batch: every device has all parameters and some of the examples."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gemel import autograd
from gemel.gluon.parallel.split import (
    Split,
    SplitError,
    apart,
    as_array,
    as_batch,
    check_trainer,
    joined,
    loss_of,
    together,
)
from gemel.gluon.utils import split_and_load

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gemel.device import Device
    from gemel.gluon.block import Block
    from gemel.np import ndarray


class DataParallel(Split):
    """Each device computes the gradients of a part of the batch; `Trainer` sums them.

    The parts differ by at most one example; with fewer examples than devices, the last devices get
    none. `BatchNorm` uses the statistics of each device's part, `SyncBatchNorm` those of the whole
    batch, which therefore needs an example for each device. Raises `SplitError` for a network with
    layers that are split over the devices themselves: they need the same examples on all devices.
    """

    def __init__(self, net: Block, devices: Sequence[Device]) -> None:
        super().__init__(net, devices)
        self._place()

    def _place(self) -> None:
        cut = [p.name for p in self.collect_params().values() if p.cut_axis is not None]
        if cut and len(self.devices) > 1:
            raise SplitError(
                f"DataParallel: parameter {cut[0]} would be split over the devices, which then "
                "need the same examples; use TensorParallel, or layers without parts"
            )
        super()._place()

    def __call__(self, x: Any) -> ndarray:
        """The network's results, computed in parts, on the first device."""
        parts = split_and_load(as_array(x), self.devices, even_split=False)
        found: ndarray = joined([self.net(part) for part in parts], self.devices[0])
        return found

    def backward(self, x: Any, y: Any, loss: Callable[..., Any]) -> ndarray:
        """Compute each device's own gradients; returns the losses on the first device. See
        `Split.backward`."""
        batch = as_batch(type(self).__name__, x, y)
        parts = [split_and_load(each, self.devices, even_split=False) for each in batch]
        with together(self.net):
            with autograd.record():
                losses = [loss_of(loss, self.net(a), b) for a, b in zip(*parts, strict=True)]
            for one in losses:
                one.backward()
        found: ndarray = apart(losses, self.devices[0])
        return found

    def step(self, trainer: Any, x: Any, y: Any, loss: Callable[..., Any]) -> ndarray:
        """`backward`, then sum the gradients and do a step of the trainer; see `Split.step`."""
        check_trainer(type(self).__name__, trainer)
        losses = self.backward(x, y, loss)
        trainer.step(len(x), ignore_stale_grad=len(x) < len(self.devices))
        return losses


__all__ = ["DataParallel"]
