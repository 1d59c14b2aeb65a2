"""The callbacks of `fit`: plain objects with any of these methods."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Any

from gemel.errors import unknown_name
from gemel.gluon.utils import clip_global_norm
from gemel.ranges import FlagsChecked, check_number, counted

if TYPE_CHECKING:
    from gemel.gluon.fitting import Run


class Callback(FlagsChecked):
    """Base class: does nothing. Any object with some of these methods will do.

    Attributes that are numbers, strings, arrays, or lists and dictionaries of these, are part of a
    checkpoint and are restored when a run is resumed.
    """

    def train_begin(self, run: Run) -> None:
        """Called before the first batch; a resumed run has its restored state."""

    def epoch_begin(self, run: Run) -> None:
        """Called before an epoch, except one that is resumed in the middle."""

    def gradients_ready(self, run: Run) -> None:
        """Called when gradients are summed over devices, before the parameters are updated."""

    def batch_end(self, run: Run) -> None:
        """Called after each batch. Reading `run.losses` here waits for the engine."""

    def epoch_end(self, run: Run) -> None:
        """Called after each epoch; its results are ``run.history[-1]``."""

    def train_end(self, run: Run) -> None:
        """Called after the last batch, or when the training is stopped."""


#: Endings of metric names for which lower is better.
_LESS = ("loss", "error", "mse", "mae", "mpd", "perplexity", "entropy", "likelihood")


class EarlyStopping(Callback):
    """Stops when `monitor`, an entry of the history, has not improved for `patience` epochs.

    `mode` is "min" or "max", the direction of improvement; "auto" is "min" for losses, errors,
    distances and perplexity, and "max" for anything else. Improvements up to `min_delta` do not
    count, and NaN is none. With `restore_best`, the parameters of the best epoch are restored at
    the end.
    """

    def __init__(
        self,
        monitor: str = "validation loss",
        patience: int = 3,
        min_delta: float = 0.0,
        mode: str = "auto",
        restore_best: bool = False,
    ) -> None:
        if mode not in ("auto", "min", "max"):
            raise unknown_name("mode of EarlyStopping", mode, ("auto", "min", "max"))
        check_number("EarlyStopping", "min_delta", min_delta)
        self.monitor = monitor
        self.patience = counted("EarlyStopping", "patience", patience, 0)
        self.min_delta = min_delta
        self.mode = mode
        self.restore_best = restore_best
        self._forget()

    def _forget(self) -> None:
        self.best: float | None = None
        self.best_epoch = 0
        self.parameters: dict[str, Any] = {}

    def train_begin(self, run: Run) -> None:
        """Forget an earlier run, unless this one is resumed."""
        if not run.step:
            self._forget()

    def epoch_end(self, run: Run) -> None:
        """Compare this epoch with the best. Raises `UnknownNameError` for an unknown `monitor`."""
        entry = run.history[-1]
        if self.monitor not in entry:
            raise unknown_name("entry of the history", self.monitor, entry)
        value = entry[self.monitor]
        if self._is_better(value):
            self.best, self.best_epoch = value, run.epoch
            if self.restore_best:
                parameters = run.net.collect_params()
                self.parameters = {name: p.list_data()[0].copy() for name, p in parameters.items()}
        elif run.epoch - self.best_epoch >= self.patience:
            run.stop(f"{self.monitor} has not improved since epoch {self.best_epoch}")

    def _is_better(self, value: float) -> bool:
        if self.best is None or value != value:
            return value == value
        less = self.monitor.endswith(_LESS) if self.mode == "auto" else self.mode == "min"
        return (self.best - value if less else value - self.best) > self.min_delta

    def train_end(self, run: Run) -> None:
        """Restore the best parameters if `restore_best`."""
        if self.parameters:
            run.net.load_dict(self.parameters)


class ClipGradients(Callback):
    """Scales the gradients of the mean loss down to a total norm of at most `max_norm`.

    Pascanu et al., On the difficulty of training recurrent neural networks, ICML 2013.
    """

    def __init__(self, max_norm: float) -> None:
        check_number("ClipGradients", "max_norm", max_norm, 0)
        self.max_norm = max_norm

    def gradients_ready(self, run: Run) -> None:
        """Scale the gradients, separately on each device: they are equal. Nothing waits for
        this."""
        trained = [p for p in run.net.collect_params().values() if p.grad_req != "null"]
        for gradients in zip(*(p.list_grad() for p in trained), strict=True):
            clip_global_norm(list(gradients), self.max_norm * run.size, check_isfinite=False)


class Progress(Callback):
    """A bar for each epoch if tqdm is installed, else a line."""

    def __init__(self) -> None:
        self._bar: Any = None
        self._began = 0.0

    def _begin(self, run: Run) -> None:
        self._began = time.perf_counter()
        try:
            from tqdm.auto import tqdm
        except ImportError:
            return
        total = len(run.data) if hasattr(run.data, "__len__") else None
        self._bar = tqdm(total=total, initial=run.batch, desc=self._title(run, run.epoch + 1))

    def train_begin(self, run: Run) -> None:
        """Print where a resumed run continues."""
        if run.epoch or run.batch:
            place = f", batch {run.batch}" if run.batch else ""
            print(f"resumed after epoch {run.epoch}{place}", file=sys.stderr, flush=True)
        if run.batch:
            self._begin(run)

    def epoch_begin(self, run: Run) -> None:
        """Start a new bar."""
        self._begin(run)

    def batch_end(self, run: Run) -> None:
        """Advance the bar by one step; it reads no arrays, so nothing waits."""
        if self._bar is not None:
            self._bar.update()

    def epoch_end(self, run: Run) -> None:
        """Show the results of the epoch."""
        entry = ", ".join(f"{name} {value:.4g}" for name, value in run.history[-1].items())
        if self._bar is not None:
            self._bar.set_postfix_str(entry)
            self._bar.close()
            self._bar = None
            return
        seconds = time.perf_counter() - self._began
        print(f"{self._title(run, run.epoch)}: {entry}, {seconds:.2f} s", flush=True)

    def _title(self, run: Run, epoch: int) -> str:
        return f"epoch {epoch}/{run.epochs}"

    def train_end(self, run: Run) -> None:
        """Print why the training was stopped early."""
        if self._bar is not None:
            self._bar.close()
        if run.stopped:
            print(f"stopped after epoch {run.epoch}: {run.stopped}", file=sys.stderr, flush=True)


__all__ = ["Callback", "ClipGradients", "EarlyStopping", "Progress"]
