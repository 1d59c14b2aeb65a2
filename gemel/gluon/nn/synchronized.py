"""Batch normalization of a batch that is split over several devices."""

from __future__ import annotations

from typing import Any

from gemel import autograd, np
from gemel.gluon.block import Tensor
from gemel.gluon.inputs import of_array
from gemel.gluon.nn.basic import BatchNorm
from gemel.ir.current import current_trace
from gemel.ops.meeting import Group, all_reduce
from gemel.tracing import updates


class SyncBatchNorm(BatchNorm):
    """`BatchNorm` over the whole batch, over all devices of its parameters.

    In training, mean and variance are those of all parts together, so outputs, gradients and
    running statistics equal those of `BatchNorm` on the undivided batch. Every device must take
    part: issue the forward of all devices, and the backward of all, before waiting for any result
    (otherwise `DeviceError`). `num_devices`, `ndev` and `key` are accepted for old code. Zhang et
    al., Context encoding for semantic segmentation, CVPR 2018.
    """

    def __init__(
        self,
        in_channels: int = 0,
        num_devices: int | None = None,
        momentum: float = 0.9,
        epsilon: float = 1e-5,
        center: bool = True,
        scale: bool = True,
        use_global_stats: bool = False,
        beta_initializer: Any = "zeros",
        gamma_initializer: Any = "ones",
        running_mean_initializer: Any = "zeros",
        running_variance_initializer: Any = "ones",
        **settings: Any,
    ) -> None:
        for accepted in ("ndev", "key"):
            settings.pop(accepted, None)
        super().__init__(
            settings.pop("axis", 1),
            momentum,
            epsilon,
            center,
            scale,
            use_global_stats,
            beta_initializer,
            gamma_initializer,
            running_mean_initializer,
            running_variance_initializer,
            in_channels,
            **settings,
        )

    @of_array
    def forward(self, x: Tensor) -> Tensor:
        """The shape of `x`, which is one device's part of the batch."""
        devices, settings = tuple(self.running_mean.homes), self._kwargs
        if len(devices) == 1 or settings["use_global_stats"] or not autograd.is_training():
            return super().forward(x)
        if self._own.group is None or self._own.group.devices != devices:
            self._own.group = Group(devices, f"SyncBatchNorm {self.name}")
        axis = self._axis % x.ndim
        axes = tuple(place for place in range(x.ndim) if place != axis)
        lined = tuple(-1 if place == axis else 1 for place in range(x.ndim))
        wide = x.astype("float32") if x.dtype == "float16" else x
        # Subtract a value near the mean before summing, so that no precision is lost.
        shift = self.running_mean.data()
        rest = wide - shift.reshape(lined)
        size = np.ones_like(rest).sum(axis=axes)
        sums = np.stack([rest.sum(axis=axes), np.square(rest).sum(axis=axes), size])
        total = all_reduce(sums, group=self._own.group)
        mean = total[0] / total[2]
        variance = total[1] / total[2] - np.square(mean)
        scale = 1.0 / np.sqrt(variance + settings["eps"])
        if not settings["fix_gamma"]:
            scale = scale * self.gamma.data()
        y = (rest - mean.reshape(lined)) * scale.reshape(lined) + self.beta.data().reshape(lined)
        running = self.running_mean, self.running_var
        with autograd.pause():
            found = [*(p.data() for p in running), mean + shift, variance]
            if current_trace() is None:
                _mix(found, [settings["momentum"]])
            else:
                for parameter, new in zip(
                    running, _mixed(found, [settings["momentum"]]), strict=True
                ):
                    parameter.set_data(new)
        return y.astype(x.dtype)


def _mixed(arrays: list[Any], scalars: list[Any]) -> list[Any]:
    """The running statistics, updated with those of one more batch."""
    (kept,) = scalars
    return [kept * a + (1 - kept) * b for a, b in zip(arrays[:2], arrays[2:], strict=True)]


#: The in-place update; the statistics of a batch that failed change nothing.
_mix = updates.Update(_mixed, "running statistics")


__all__ = ["SyncBatchNorm"]
