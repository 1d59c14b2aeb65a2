"""MXNet's callbacks for batches and epochs, which training loops call with their state.

Batch callbacks receive one object with `epoch`, `nbatch` and `eval_metric` (may be None).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any

from gemel.errors import ArgumentError
from gemel.ranges import is_finite


def _measured(metric: Any) -> str:
    return "".join(f"\t{name}={value:f}" for name, value in metric.get_name_value())


def _checked(what: str, value: Any) -> Any:
    """A number of batches or examples. Raises `ArgumentError` unless it is positive."""
    if not (is_finite(value) and value > 0):
        raise ArgumentError(f"{what}={value!r} must be positive, and a number")
    return value


class Speedometer:
    """Logs samples per second, and the metric, every `frequent` batches."""

    def __init__(self, batch_size: int, frequent: int = 50, auto_reset: bool = True) -> None:
        self.batch_size = _checked("Speedometer: batch_size", batch_size)
        self.frequent = _checked("Speedometer: frequent", frequent)
        self.auto_reset = auto_reset
        self._start: float | None = None
        self._last = 0

    def __call__(self, param: Any) -> None:
        """Called after a batch."""
        if param.nbatch < self._last:
            self._start = None  # a new epoch
        self._last = param.nbatch
        if self._start is None:
            self._start = time.perf_counter()
        elif param.nbatch % self.frequent == 0:
            spent = time.perf_counter() - self._start
            speed = self.frequent * self.batch_size / spent if spent else float("inf")
            text = ""
            if param.eval_metric is not None:
                text = _measured(param.eval_metric)
                if self.auto_reset:
                    param.eval_metric.reset()
            place = f"Epoch[{param.epoch}] Batch [{param.nbatch}]"
            logging.info("%s\tSpeed: %.2f samples/sec%s", place, speed, text)
            self._start = time.perf_counter()


class ProgressBar:
    """Logs how many of `total` batches are done, as a bar of `length` characters."""

    def __init__(self, total: int, length: int = 80) -> None:
        self.total = _checked("ProgressBar: total", total)
        self.length = length

    def __call__(self, param: Any) -> None:
        """Called after a batch."""
        filled = round(self.length * param.nbatch / self.total)
        percent = -(-100 * param.nbatch // self.total)
        logging.info("[%s] %d%%", "=" * filled + "-" * (self.length - filled), percent)


class LogValidationMetricsCallback:
    """Logs the metric at the end of an epoch."""

    def __call__(self, param: Any) -> None:
        """Called after an epoch."""
        if param.eval_metric is not None:
            for name, value in param.eval_metric.get_name_value():
                logging.info("Epoch[%d] Validation-%s=%f", param.epoch, name, value)


def log_train_metric(period: int, auto_reset: bool = False) -> Callable[[Any], None]:
    """A callback that logs the metric every `period` batches."""
    _checked("log_train_metric: period", period)

    def call(param: Any) -> None:
        if param.nbatch % period == 0 and param.eval_metric is not None:
            for name, value in param.eval_metric.get_name_value():
                logging.info(
                    "Iter[%d] Batch[%d] Train-%s=%f", param.epoch, param.nbatch, name, value
                )
            if auto_reset:
                param.eval_metric.reset()

    return call


def do_checkpoint(prefix: Any, period: int = 1) -> Callable[..., None]:
    """A callback that writes a checkpoint (`model.save_checkpoint`) every `period` epochs."""

    def call(iter_no: int, sym: Any, arg: Any, aux: Any) -> None:
        if (iter_no + 1) % max(period, 1) == 0:
            from gemel.model import save_checkpoint

            save_checkpoint(prefix, iter_no + 1, sym, arg, aux)

    return call


__all__ = [
    "LogValidationMetricsCallback",
    "ProgressBar",
    "Speedometer",
    "do_checkpoint",
    "log_train_metric",
]
