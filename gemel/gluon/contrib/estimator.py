"""`Estimator`: trains a network with a loss and metrics, and calls handlers for everything else.

This is MXNet 1's interface. `gluon.fit` is shorter, and its checkpoints resume with the same bits.
"""

from __future__ import annotations

import copy
import functools
import logging
import reprlib
import sys
import warnings
from types import ModuleType
from typing import Any

from gemel import autograd, init
from gemel.device import Device, cpu, gpu, num_gpus
from gemel.elsewhere import module_elsewhere
from gemel.gluon.block import Block
from gemel.gluon.contrib.event_handler import (
    BatchBegin,
    BatchEnd,
    CheckpointHandler,
    EarlyStoppingHandler,
    EpochBegin,
    EpochEnd,
    EstimatorError,
    GradientUpdateHandler,
    LoggingHandler,
    MetricHandler,
    StoppingHandler,
    TrainBegin,
    TrainEnd,
    ValidationHandler,
)
from gemel.gluon.contrib.position import Position
from gemel.gluon.loss import Loss, SoftmaxCrossEntropyLoss
from gemel.gluon.metric import Accuracy, EvalMetric
from gemel.gluon.metric import Loss as MeanLoss
from gemel.gluon.scaling import scaled
from gemel.gluon.trainer import Trainer
from gemel.gluon.utils import split_and_load
from gemel.lists import listed
from gemel.ranges import counted


class BatchProcessor:
    """Computes a batch; subclasses may override how."""

    def _get_data_and_label(self, batch: Any, ctx: list[Device], batch_axis: int = 0) -> Any:
        """Each device's part of the inputs and of the labels. Raises `EstimatorError` for what is
        no batch."""
        if not isinstance(batch, (list, tuple)) or len(batch) < 2:
            raise EstimatorError(
                f"Estimator: a batch is {reprlib.repr(batch)}; it must be a list of inputs and "
                "labels, as from a DataLoader over ArrayDataset(inputs, labels)"
            )
        return [split_and_load(part, ctx, batch_axis, even_split=False) for part in batch[:2]]

    def evaluate_batch(self, estimator: Estimator, val_batch: Any, batch_axis: int = 0) -> Any:
        """Compute a batch; returns inputs, labels, outputs and losses, one array per device."""
        data, label = self._get_data_and_label(val_batch, estimator.context, batch_axis)
        pred = [estimator.val_net(x) for x in data]
        loss = [estimator.val_loss(*pair) for pair in zip(pred, label, strict=True)]
        return data, label, pred, loss

    def fit_batch(self, estimator: Estimator, train_batch: Any, batch_axis: int = 0) -> Any:
        """Like `evaluate_batch`, and compute the gradients."""
        data, label = self._get_data_and_label(train_batch, estimator.context, batch_axis)
        with autograd.record():
            pred = [estimator.net(x) for x in data]
            loss = [estimator.loss(*pair) for pair in zip(pred, label, strict=True)]
            heads = scaled(estimator.trainer, loss)
        autograd.backward(heads)
        return data, label, pred, loss


class Estimator:
    """Trains `net` to minimize `loss`, on the devices `context`, and reports `train_metrics`.

    The default metrics are the mean of the loss and, for a cross-entropy, the accuracy.
    `val_metrics` are the same for validation data, with `val_net` and `val_loss` if given. The
    default trainer is SGD with learning rate 0.001. Raises `EstimatorError` for arguments of a
    wrong type.
    """

    def __init__(
        self,
        net: Any,
        loss: Any,
        train_metrics: Any = None,
        val_metrics: Any = None,
        initializer: Any = None,
        trainer: Trainer | None = None,
        context: Any = None,
        val_net: Any = None,
        val_loss: Any = None,
        batch_processor: Any = None,
    ) -> None:
        self.context = listed(context) or [gpu(0) if num_gpus() else cpu()]
        self.batch_processor = batch_processor or BatchProcessor()
        for given, kind, name in [
            ([net, val_net or net], Block, "net"),
            (listed(loss), Loss, "loss"),
            (listed(val_loss), Loss, "val_loss"),
            (listed(train_metrics) + listed(val_metrics), EvalMetric, "metrics"),
            (listed(trainer), Trainer, "trainer"),
            (self.context, Device, "context"),
        ]:
            for each in given:
                if not isinstance(each, kind):
                    raise EstimatorError(
                        f"Estimator: {name} {each!r} is not an instance of {kind.__name__}"
                    )
        for method in ("fit_batch", "evaluate_batch"):
            if not hasattr(self.batch_processor, method):
                raise EstimatorError(f"Estimator: batch_processor has no {method}")
        self.net, self.loss = net, loss
        self.val_net, self.val_loss = val_net or net, val_loss or loss
        self.logger = logging.Logger("Estimator", logging.INFO)
        self.logger.addHandler(logging.StreamHandler(sys.stdout))
        self.position = Position()
        self.max_epoch: int | None = None
        self.max_batch: int | None = None
        self.train_metrics = listed(train_metrics) or self._usual_metrics()
        self.val_metrics = listed(val_metrics) or [copy.deepcopy(m) for m in self.train_metrics]
        for use, metrics in ("training", self.train_metrics), ("validation", self.val_metrics):
            _name_by(use, metrics)
        self._initialize(initializer)
        if trainer is None:
            warnings.warn(
                "Estimator: no trainer was given; using SGD with learning rate 0.001", stacklevel=2
            )
            trainer = Trainer(net.collect_params(), "sgd", {"learning_rate": 0.001})
        self.trainer = trainer

    def _usual_metrics(self) -> list[Any]:
        found: list[Any] = [MeanLoss(type(self.loss).__name__.lower())]
        return [Accuracy(), *found] if isinstance(self.loss, SoftmaxCrossEntropyLoss) else found

    def _initialize(self, initializer: Any) -> None:
        if not all(p.homes for p in self.net.collect_params().values()):
            self.net.initialize(init=initializer or init.Uniform(), ctx=self.context)
        elif initializer is not None:
            said = "Estimator: the network is initialized already, and stays as it is: "
            said += "net.initialize(..., force_reinit=True) draws anew"
            warnings.warn(said, stacklevel=3)

    def fit(
        self,
        train_data: Any,
        val_data: Any = None,
        epochs: int | None = None,
        event_handlers: Any = None,
        batches: int | None = None,
        batch_axis: int = 0,
    ) -> None:
        """Train for `epochs` rounds over `train_data`, or for `batches`.

        There is one default handler each for stopping, updating, measuring, validating and logging,
        unless `event_handlers` has one of that kind.
        """
        if (epochs is None) == (batches is None):
            raise EstimatorError("Estimator.fit: give either epochs= or batches=")
        for name, count in (("epochs", epochs), ("batches", batches)):
            if count is not None:
                counted("Estimator.fit", name, count)
        self.max_epoch, self.max_batch = epochs, batches
        usual = [StoppingHandler(), GradientUpdateHandler(), MetricHandler(self.train_metrics)]
        self._check_again(train_data)
        if val_data is not None:
            self._check_again(val_data)
            evaluate = functools.partial(self.evaluate, batch_axis=batch_axis)
            usual.append(ValidationHandler(val_data, evaluate))
        usual.append(LoggingHandler(metrics=self.train_metrics))
        handlers = _Handlers(event_handlers, usual)
        handlers.tell("train_begin", self)
        over = False
        while not over:
            handlers.tell("epoch_begin", self)
            for batch in self.position.batches(train_data):
                handlers.tell("batch_begin", self, batch=batch)
                _, label, pred, loss = self.batch_processor.fit_batch(self, batch, batch_axis)
                arguments = {"batch": batch, "pred": pred, "label": label, "loss": loss}
                over = handlers.tell("batch_end", self, **arguments)
                if over:
                    break
            if not self.position.done:
                raise EstimatorError("Estimator.fit: the data contains no batches")
            over |= handlers.tell("epoch_end", self)
        handlers.tell("train_end", self)

    def evaluate(self, val_data: Any, batch_axis: int = 0, event_handlers: Any = None) -> None:
        """Update `val_metrics` with `val_data`; nothing is trained."""
        usual = [MetricHandler(self.val_metrics), LoggingHandler(metrics=self.val_metrics)]
        handlers = _Handlers(event_handlers, usual)
        self._check_again(val_data)
        handlers.tell("epoch_begin", self)
        for batch in val_data:
            handlers.tell("batch_begin", self, batch=batch)
            _, label, pred, loss = self.batch_processor.evaluate_batch(self, batch, batch_axis)
            handlers.tell("batch_end", self, batch=batch, pred=pred, label=label, loss=loss)
        handlers.tell("epoch_end", self)

    def _check_again(self, data: Any) -> None:
        if not any(hasattr(data, method) for method in ("__iter__", "__getitem__")):
            raise EstimatorError(
                f"Estimator: the data is {data!r}; give a DataLoader or a list of batches"
            )
        if hasattr(data, "__next__") and iter(data) is data:
            raise EstimatorError(
                "Estimator: the data can be iterated over only once; give a DataLoader, a list, "
                "or another object that can be iterated over again"
            )


def _name_by(use: str, metrics: list[Any]) -> None:
    """Put their use before the names of metrics, and of those in composite ones."""
    for metric in metrics:
        if not metric.name.startswith(use):
            metric.name = f"{use} {metric.name}"
        _name_by(use, getattr(metric, "metrics", []))


#: The names of the methods of handlers.
_MOMENTS = ("train_begin", "epoch_begin", "batch_begin", "batch_end", "epoch_end", "train_end")


class _Handlers:
    """Handlers in order: the given ones, and a default one for each missing kind."""

    def __init__(self, given: Any, usual: list[Any]) -> None:
        found = listed(given)
        for handler in found:
            if isinstance(handler, type) or not any(hasattr(handler, each) for each in _MOMENTS):
                raise EstimatorError(
                    f"Estimator: the event handler {handler!r} must be an object with some of the "
                    f"methods {', '.join(_MOMENTS)}"
                )
        kinds = tuple(type(handler) for handler in found)
        found += [u for u in usual if not any(issubclass(kind, type(u)) for kind in kinds)]
        self._found = sorted(found, key=lambda handler: getattr(handler, "priority", 0))

    def tell(self, moment: str, estimator: Estimator, **what: Any) -> bool:
        """Call all handlers of this event; returns whether any of them wants to stop."""
        methods = [getattr(handler, moment, None) for handler in self._found]
        answers = [method(estimator, **what) for method in methods if method is not None]
        return any(answers)


__all__ = [
    "BatchBegin",
    "BatchEnd",
    "BatchProcessor",
    "CheckpointHandler",
    "EarlyStoppingHandler",
    "EpochBegin",
    "EpochEnd",
    "Estimator",
    "EstimatorError",
    "GradientUpdateHandler",
    "LoggingHandler",
    "MetricHandler",
    "StoppingHandler",
    "TrainBegin",
    "TrainEnd",
    "ValidationHandler",
]


def __getattr__(name: str) -> ModuleType:
    return module_elsewhere(__name__, name, __all__)
