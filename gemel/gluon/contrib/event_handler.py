"""The handlers of an `Estimator`: any object with some of the six methods can be one.

For one event, handlers with a smaller `priority` (default 0) are called first.
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gemel.errors import GemelError, unknown_name
from gemel.gluon.contrib.position import add_to, added_to
from gemel.gluon.fitting import values_of
from gemel.gluon.hybrid import HybridBlock, symbol_block
from gemel.gluon.metric import CompositeEvalMetric, EvalMetric, Loss
from gemel.lists import listed
from gemel.ranges import FlagsChecked, check_number, counted
from gemel.spec import plain


class EstimatorError(GemelError, ValueError):
    """Raised for arguments that an `Estimator` cannot train with."""


class TrainBegin:
    """Has a `train_begin` method."""

    def train_begin(self, estimator: Any, *args: Any, **kwargs: Any) -> None:
        """Called before the first batch."""


class TrainEnd:
    """Has a `train_end` method."""

    def train_end(self, estimator: Any, *args: Any, **kwargs: Any) -> None:
        """Called after the last batch."""


class EpochBegin:
    """Has an `epoch_begin` method."""

    def epoch_begin(self, estimator: Any, *args: Any, **kwargs: Any) -> None:
        """Called before an epoch."""


class EpochEnd:
    """Has an `epoch_end` method."""

    def epoch_end(self, estimator: Any, *args: Any, **kwargs: Any) -> bool | None:
        """Called after an epoch; True ends the training."""


class BatchBegin:
    """Has a `batch_begin` method."""

    def batch_begin(self, estimator: Any, *args: Any, **kwargs: Any) -> None:
        """Called before a batch, with `batch=`."""


class BatchEnd:
    """Has a `batch_end` method."""

    def batch_end(self, estimator: Any, *args: Any, **kwargs: Any) -> bool | None:
        """Called after a batch, with `batch=`, and with `pred=`, `label=` and `loss=`, which are
        lists with an array for each device. True ends the training."""


class StoppingHandler(TrainBegin, BatchEnd, EpochEnd):
    """Ends the training after `max_epoch` epochs or `max_batch` batches, if the estimator's own
    limits are not reached before."""

    def __init__(self, max_epoch: int | None = None, max_batch: int | None = None) -> None:
        for name, limit in (("max_epoch", max_epoch), ("max_batch", max_batch)):
            if limit is not None:
                counted(type(self).__name__, name, limit)
        self.max_epoch, self.max_batch = max_epoch, max_batch
        self.current_epoch = self.current_batch = 0
        self.stop_training = False

    def train_begin(self, estimator: Any, *args: Any, **kwargs: Any) -> None:
        """Reset the counts."""
        self.current_epoch = self.current_batch = 0
        self.stop_training = False

    def batch_end(self, estimator: Any, *args: Any, **kwargs: Any) -> bool:
        """Whether that was the last batch."""
        self.current_batch += 1
        self.stop_training |= self.current_batch in (self.max_batch, estimator.max_batch)
        return self.stop_training

    def epoch_end(self, estimator: Any, *args: Any, **kwargs: Any) -> bool:
        """Whether that was the last epoch."""
        self.current_epoch += 1
        self.stop_training |= self.current_epoch in (self.max_epoch, estimator.max_epoch)
        return self.stop_training


class MetricHandler(EpochBegin, BatchEnd):
    """Updates `metrics` with each batch, and resets them at each epoch."""

    def __init__(self, metrics: Any, priority: float = -1000) -> None:
        self.metrics = listed(metrics)
        self.priority = priority

    def epoch_begin(self, estimator: Any, *args: Any, **kwargs: Any) -> None:
        """Reset the metrics."""
        for metric in self.metrics:
            metric.reset()

    def batch_end(self, estimator: Any, *args: Any, **kwargs: Any) -> None:
        """Update the metrics."""
        for metric in self.metrics:
            _measure(metric, kwargs)


def _measure(metric: Any, batch: dict[str, Any]) -> None:
    """Update a metric, and those in a composite one, each with what it measures."""
    if isinstance(metric, CompositeEvalMetric):
        for each in metric.metrics:
            _measure(each, batch)
    elif isinstance(metric, Loss):
        metric.update(0, batch["loss"])
    else:
        metric.update(batch["label"], batch["pred"])


class _Periodic(TrainBegin, BatchEnd, EpochEnd):
    """Does something after a number of batches, and after a number of epochs."""

    def __init__(self, epoch_period: int | None, batch_period: int | None) -> None:
        for name, period in (("epoch_period", epoch_period), ("batch_period", batch_period)):
            if period is not None:
                counted(type(self).__name__, name, period, 0)
        self.epoch_period, self.batch_period = epoch_period, batch_period
        self.current_epoch = self.current_batch = 0

    def train_begin(self, estimator: Any, *args: Any, **kwargs: Any) -> None:
        """Reset the counts."""
        self.current_epoch = self.current_batch = 0

    def batch_end(self, estimator: Any, *args: Any, **kwargs: Any) -> None:
        """Act if it is time."""
        if self.batch_period and (self.current_batch + 1) % self.batch_period == 0:
            self._do(estimator)
        self.current_batch += 1

    def epoch_end(self, estimator: Any, *args: Any, **kwargs: Any) -> None:
        """Act if it is time."""
        if self.epoch_period and (self.current_epoch + 1) % self.epoch_period == 0:
            self._do(estimator)
        self.current_epoch += 1

    def _do(self, estimator: Any) -> None:
        raise NotImplementedError


class ValidationHandler(_Periodic):
    """Calls `eval_fn(val_data=..., event_handlers=...)`."""

    def __init__(
        self,
        val_data: Any,
        eval_fn: Callable[..., Any],
        epoch_period: int | None = 1,
        batch_period: int | None = None,
        priority: float = -1000,
        event_handlers: Any = None,
    ) -> None:
        super().__init__(epoch_period, batch_period)
        if not callable(eval_fn):
            raise EstimatorError(
                f"ValidationHandler: eval_fn {eval_fn!r} must be a function, such as "
                "estimator.evaluate"
            )
        self.val_data, self.eval_fn = val_data, eval_fn
        self.priority, self.event_handlers = priority, event_handlers

    def _do(self, estimator: Any) -> None:
        self.eval_fn(val_data=self.val_data, event_handlers=self.event_handlers)


class GradientUpdateHandler(BatchEnd):
    """Updates the parameters: `trainer.step` with the number of examples."""

    def __init__(self, priority: float = -2000) -> None:
        self.priority = priority

    def batch_end(self, estimator: Any, *args: Any, **kwargs: Any) -> None:
        """Do one step. A loss without axes counts as one example; devices that got no examples
        have no gradients."""
        losses = listed(kwargs["loss"])
        size = sum(loss.shape[0] if loss.shape else 1 for loss in losses)
        without = len(losses) < len(estimator.context)
        estimator.trainer.step(size, ignore_stale_grad=without)


class LoggingHandler(TrainBegin, TrainEnd, EpochBegin, EpochEnd, BatchBegin, BatchEnd):
    """Logs `metrics` after each epoch, or every `log_interval` batches."""

    def __init__(
        self, log_interval: int | str = "epoch", metrics: Any = None, priority: float = math.inf
    ) -> None:
        log_interval = plain(log_interval)
        if log_interval != "epoch" and not (isinstance(log_interval, int) and log_interval > 0):
            raise EstimatorError(f"LoggingHandler: log_interval {log_interval!r} must be 'epoch' "
                                 "or a number of batches")  # fmt: skip
        self.log_interval, self.priority = log_interval, priority
        self.metrics = listed(metrics)
        self.current_epoch = self.batch_index = self.processed_samples = 0
        self._began = {"training": 0.0, "epoch": 0.0, "interval": 0.0}

    def _seconds(self, of: str) -> float:
        return time.perf_counter() - self._began[of]

    def _values(self) -> str:
        pairs = values_of(self.metrics).items()
        return ", ".join(f"{name}: {value:.4f}" for name, value in pairs)

    def train_begin(self, estimator: Any, *args: Any, **kwargs: Any) -> None:
        """Log the start of the training."""
        self.current_epoch = self.batch_index = self.processed_samples = 0
        self._began = dict.fromkeys(self._began, time.perf_counter())
        trainer = estimator.trainer
        estimator.logger.info(
            "Training begin: using optimizer %s with current learning rate %.4f ",
            type(trainer.optimizer).__name__,
            trainer.learning_rate,
        )
        if estimator.max_epoch:
            estimator.logger.info("Train for %d epochs.", estimator.max_epoch)
        else:
            estimator.logger.info("Train for %d batches.", estimator.max_batch)

    def train_end(self, estimator: Any, *args: Any, **kwargs: Any) -> None:
        """Log the duration and the final metrics."""
        said = f"Train finished using total {self._seconds('training'):.0f}s with "
        said += f"{self.current_epoch} epochs. {self._values()}"
        estimator.logger.info(said.rstrip())

    def epoch_begin(self, estimator: Any, *args: Any, **kwargs: Any) -> None:
        """Log the start of an epoch."""
        self._began["epoch"] = self._began["interval"] = time.perf_counter()
        if self.metrics and all("validation" in metric.name for metric in self.metrics):
            estimator.logger.info("Validation Begin")
            return
        rate = estimator.trainer.learning_rate
        said = f"[Epoch {self.current_epoch}] Begin, current learning rate: {rate:.4f}"
        estimator.logger.info(said)

    def epoch_end(self, estimator: Any, *args: Any, **kwargs: Any) -> None:
        """Log the metrics of the epoch."""
        said = f"[Epoch {self.current_epoch}] Finished in {self._seconds('epoch'):.3f}s, "
        estimator.logger.info((said + self._values()).rstrip(", "))
        self.current_epoch += 1
        self.batch_index = 0

    def batch_end(self, estimator: Any, *args: Any, **kwargs: Any) -> None:
        """Log the metrics if `log_interval` batches have passed."""
        if not isinstance(self.log_interval, int):
            return
        self.processed_samples += len(kwargs["batch"][0])
        if self.batch_index % self.log_interval == 0:
            said = f"[Epoch {self.current_epoch}][Batch {self.batch_index}]"
            said += f"[Samples {self.processed_samples}] "
            said += f"time/interval: {self._seconds('interval'):.3f}s {self._values()}"
            estimator.logger.info(said.rstrip())
            self._began["interval"] = time.perf_counter()
        self.batch_index += 1


class _Monitor:
    """The best value of a metric so far. In the mode "auto", higher is better for accuracies and
    F1."""

    def __init__(self, name: str, metric: Any, mode: str, least: float = 0.0) -> None:
        if not isinstance(metric, EvalMetric):
            raise EstimatorError(
                f"{name}: monitor={metric!r} is not a metric; give one of "
                "estimator.train_metrics or estimator.val_metrics"
            )
        if mode not in ("auto", "min", "max"):
            raise unknown_name(f"mode of {name}", mode, ("auto", "min", "max"))
        name_value = metric.get()
        if isinstance(name_value[0], list):
            raise EstimatorError(
                f"{name}: the metric to monitor has several values, {', '.join(name_value[0])}; "
                "give one of its metrics (get_metric)"
            )
        said = str(name_value[0]).lower()
        more = mode == "max" or (mode == "auto" and ("acc" in said or "f1" in said))
        self.name, self.metric, self.sign, self.least = name, metric, 1 if more else -1, least
        self.best = -self.sign * math.inf
        self.what = [str(name_value[0]), self.sign]

    def resume(self, path: Path) -> None:
        """Take the best value of the same metric from a file, if there is one."""
        found = added_to(path, "best") if path.exists() else None
        if found is not None and found[:-1] == self.what:
            self.best = found[-1]

    def improved(self) -> bool:
        """Whether the metric is better than ever before; if so, record it as the best."""
        values = values_of([self.metric])
        if len(values) != 1:
            raise EstimatorError(
                f"{self.name}: the metric to monitor has several values, {', '.join(values)}; give "
                "one with a single value"
            )
        (value,) = values.values()
        better = self.sign * value - self.least > self.sign * self.best
        self.best = value if better else self.best
        return better


class EarlyStoppingHandler(TrainBegin, EpochEnd, TrainEnd):
    """Ends the training when a metric has not improved by `min_delta` for `patience` epochs."""

    def __init__(
        self,
        monitor: Any,
        min_delta: float = 0,
        patience: int = 0,
        mode: str = "auto",
        baseline: float | None = None,
    ) -> None:
        who = type(self).__name__
        counted(who, "patience", patience, 0)
        check_number(who, "min_delta", min_delta)
        if baseline is not None:
            check_number(who, "baseline", baseline)
        self._monitor = _Monitor(who, monitor, mode, abs(min_delta))
        self.monitor, self.patience, self.baseline = monitor, patience, baseline
        self.wait = self.stopped_epoch = self.current_epoch = 0
        self.stop_training = False

    def train_begin(self, estimator: Any, *args: Any, **kwargs: Any) -> None:
        """Reset the counts; only values better than `baseline` count as an improvement."""
        self.wait = self.stopped_epoch = self.current_epoch = 0
        self.stop_training = False
        worst = -self._monitor.sign * math.inf
        self._monitor.best = worst if self.baseline is None else self.baseline

    @property
    def best(self) -> float:
        """The best value so far."""
        return self._monitor.best

    def epoch_end(self, estimator: Any, *args: Any, **kwargs: Any) -> bool:
        """Whether to stop."""
        self.wait = 0 if self._monitor.improved() else self.wait + 1
        if self.wait and self.wait >= self.patience:
            self.stopped_epoch, self.stop_training = self.current_epoch, True
        self.current_epoch += 1
        return self.stop_training

    def train_end(self, estimator: Any, *args: Any, **kwargs: Any) -> None:
        """Log why the training was stopped."""
        if self.stop_training:
            name = self.monitor.get()[0]
            estimator.logger.info(
                "[Epoch %d] EarlyStoppingHandler: early stopping due to %s not improving",
                self.stopped_epoch,
                name,
            )


class CheckpointHandler(FlagsChecked, _Periodic):
    """Writes ``PREFIX-epochEbatchB.params`` and ``.states`` into a folder, and keeps the newest
    `max_checkpoints` of them, also those from before it was resumed.

    A compiled network's ``PREFIX-symbol.json`` is written once; `SymbolBlock.imports` reads it with
    any of the ``.params``. `save_best` writes ``PREFIX-best...`` when the metric `monitor`
    improves. With `resume_from_checkpoint` the training resumes from the newest file, and the best
    value is that of before. One saved by batches goes on with the rest of that epoch's batches: the
    ``.states`` also hold the random streams, the position in the data and, if it has a
    `state_dict`, the state of the data. Metrics of that epoch are those of the rest.
    """

    def __init__(
        self,
        model_dir: Any,
        model_prefix: str = "model",
        monitor: Any = None,
        verbose: int = 0,
        save_best: bool = False,
        mode: str = "auto",
        epoch_period: int | None = 1,
        batch_period: int | None = None,
        max_checkpoints: int = 5,
        resume_from_checkpoint: bool = False,
    ) -> None:
        super().__init__(epoch_period, batch_period)
        self._best = _Monitor("CheckpointHandler", monitor, mode) if save_best else None
        self.model_dir, self.model_prefix = Path(model_dir), model_prefix
        self.verbose = verbose
        self.max_checkpoints = counted("CheckpointHandler", "max_checkpoints", max_checkpoints)
        self.resume_from_checkpoint = resume_from_checkpoint
        self.saved_checkpoints: list[str] = []
        self.trained_epoch, self.trained_batch = -1, 0

    def train_begin(self, estimator: Any, *args: Any, **kwargs: Any) -> None:
        """Create the folder, and resume from its files."""
        super().train_begin(estimator)
        self.model_dir.mkdir(parents=True, exist_ok=True)
        self.trained_epoch, self.trained_batch = -1, 0
        self.saved_checkpoints = []
        if self.resume_from_checkpoint:
            self._resume(estimator)

    def _resume(self, estimator: Any) -> None:
        """Load the newest checkpoint in the folder, if there is one, and train what is left."""
        pattern = re.compile(re.escape(self.model_prefix) + r"-epoch(\d+)batch(\d+)\.params")
        names = (pattern.fullmatch(path.name) for path in self.model_dir.iterdir())
        found = [(int(name[1]), int(name[2])) for name in names if name]
        if not found:
            return
        newest = sorted(found)[-self.max_checkpoints :]
        epoch, batch = newest[-1]
        path = self.model_dir / f"{self.model_prefix}-epoch{epoch}batch{batch}"
        by_epochs = estimator.max_epoch is not None
        limit, done = ("max_epoch", epoch + 1) if by_epochs else ("max_batch", batch + 1)
        if self.batch_period if by_epochs else self.epoch_period:
            raise EstimatorError(
                "CheckpointHandler: to resume training by epochs, save by epochs only "
                "(batch_period=None); to resume training by batches, save by batches only "
                "(epoch_period=None)"
            )
        if done >= getattr(estimator, limit):
            raise EstimatorError(
                f"CheckpointHandler: {path}.params has already reached "
                f"{limit}={getattr(estimator, limit)}; use resume_from_checkpoint=False to start "
                "again"
            )
        self.saved_checkpoints = [f"epoch{each}batch{last}" for each, last in newest]
        setattr(estimator, limit, getattr(estimator, limit) - done)
        estimator.net.load_parameters(f"{path}.params", ctx=estimator.context)
        estimator.trainer.load_states(f"{path}.states")
        if self._best is not None:
            self._best.resume(self.model_dir / f"{self.model_prefix}-best.states")
        self.trained_epoch, self.trained_batch = epoch, batch if by_epochs else done
        if not by_epochs and estimator.position.resume(f"{path}.states"):
            self.trained_epoch -= 1  # which goes on
        estimator.logger.info(
            "CheckpointHandler: Checkpoint resumed from epoch %d batch %d", epoch, batch
        )

    def _do(self, estimator: Any) -> None:
        epoch = self.trained_epoch + self.current_epoch + 1
        prefix = f"epoch{epoch}batch{self.trained_batch + self.current_batch}"
        self._save(estimator, prefix)
        self.saved_checkpoints.append(prefix)
        if len(self.saved_checkpoints) > self.max_checkpoints:
            oldest = self.saved_checkpoints.pop(0)
            for kind in ("params", "states"):
                (self.model_dir / f"{self.model_prefix}-{oldest}.{kind}").unlink(missing_ok=True)
        if self._best is not None and self._best.improved():
            self._save(estimator, "best")
            if estimator.trainer._updaters:
                path = self.model_dir / f"{self.model_prefix}-best.states"
                add_to(path, "best", [*self._best.what, self._best.best])

    def _save(self, estimator: Any, name: str) -> None:
        path, net = self.model_dir / self.model_prefix, estimator.net
        if (
            isinstance(net, HybridBlock)
            and net._active
            and not Path(f"{path}-symbol.json").exists()
        ):
            symbol_block().export_symbol(net, path)
        # The parameters last: a checkpoint is resumed only if it has them, so that one whose
        # writing was interrupted does not hide the one before.
        estimator.trainer.save_states(f"{path}-{name}.states")
        if self.batch_period and estimator.trainer._updaters:
            estimator.position.add_to(f"{path}-{name}.states")
        net.save_parameters(f"{path}-{name}.params")
        if self.verbose:
            estimator.logger.info("CheckpointHandler: saved %s-%s.params", path, name)


__all__ = [
    "BatchBegin",
    "BatchEnd",
    "CheckpointHandler",
    "EarlyStoppingHandler",
    "EpochBegin",
    "EpochEnd",
    "EstimatorError",
    "GradientUpdateHandler",
    "LoggingHandler",
    "MetricHandler",
    "StoppingHandler",
    "TrainBegin",
    "TrainEnd",
    "ValidationHandler",
]
