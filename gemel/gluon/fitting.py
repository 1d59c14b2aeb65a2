"""`fit`: the training loop, with validation, callbacks, and checkpoints to resume from."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from importlib import import_module
from typing import Any

from gemel import autograd
from gemel.errors import AxisError, GemelError
from gemel.gluon.block import Block
from gemel.gluon.callbacks import Callback, Progress
from gemel.gluon.checkpoint import Checkpoint, named, set_streams, streams
from gemel.gluon.job import Job
from gemel.gluon.scaling import scaled, unscale
from gemel.gluon.trainer import Trainer
from gemel.gluon.utils import split_and_load
from gemel.ranges import counted
from gemel.tracing import compiled

#: The names of the methods of callbacks.
_MOMENTS = [name for name in vars(Callback) if not name.startswith("_")]


class FitError(GemelError, ValueError):
    """Raised for arguments that `fit` cannot train with."""


def fit(
    net: Block,
    data: Any,
    loss: Any,
    trainer: Trainer,
    metrics: Any = (),
    callbacks: Iterable[Any] = (),
    *,
    epochs: int = 1,
    validation: Any = None,
    checkpoint: Any = None,
    batch_axis: int = 0,
    progress: bool = True,
) -> Run:
    """Train `net` for `epochs` epochs over `data`; returns the run, whose `history` has one entry
    per epoch.

    Each iteration over `data` gives batches (inputs..., label), as from a `DataLoader`.
    `loss(net(*inputs), label)` is one number per example (or one for all); the `trainer` minimizes
    the mean. A batch is split over the devices of the parameters. After each epoch `metrics` and
    the loss are also computed on `validation` data; a metric of several values has an entry for
    each: ``f1 0``, ``f1 1``. `callbacks` are objects with any of the methods of `Callback`, such as
    `EarlyStopping` and `ClipGradients`. Losses are scaled if `amp.init_trainer` prepared the
    trainer for that; callbacks get gradients without the scale.

    `checkpoint` is a path, written after each epoch, or a `Checkpoint`. If the file exists when
    `fit` starts, training resumes from it, with the same bits as without the interruption: to
    continue a killed script, just run it again. The order of the data must follow the random
    streams (`np.random`, Python's and NumPy's), as a `DataLoader`'s does; data with further state
    must have ``state_dict()`` and ``load_state_dict(state)``. Raises `ParameterFileError` if the
    file belongs to another network or trainer.

    With several workers (`trainer` has a store such as ``"dist_sync"``), each calls `fit` with its
    part of the data, best by a `gluon.data.WorkerBatchSampler`. The mean is then over the whole
    batch, and the history has the mean over the workers, the same on all. Worker 0 shows progress
    and writes the checkpoint; a job with another number of workers can resume from it.

    >>> net = gluon.nn.Dense(1)
    >>> net.initialize()
    >>> data = gluon.data.ArrayDataset(np.random.normal(size=(64, 3)), np.ones((64, 1)))
    >>> batches = gluon.data.DataLoader(data, 16, shuffle=True)
    >>> trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.1})
    >>> run = gluon.fit(net, batches, gluon.loss.L2Loss(), trainer, epochs=3, progress=False)
    >>> run.history[-1]["loss"] < run.history[0]["loss"]
    """
    if not isinstance(trainer, Trainer):
        raise FitError(
            f"fit: trainer is a {type(trainer).__name__}, not a Trainer; create one, for example "
            'gluon.Trainer(net.collect_params(), "sgd")'
        )
    epochs = counted("fit", "epochs", epochs, 0)
    watchers = [Progress()] * (progress and Job(trainer).rank == 0) + _checked(callbacks)
    if checkpoint is not None:  # the last, to see the effects of the others
        watchers.append(
            checkpoint if isinstance(checkpoint, Checkpoint) else Checkpoint(checkpoint)
        )
    run = Run(net, data, loss, trainer, metrics, watchers, epochs, validation, batch_axis)
    if checkpoint is not None:
        watchers[-1].restore(run)
    run.train()
    return run


def _checked(callbacks: Any) -> list[Any]:
    """The callbacks as a list. Raises `FitError` for what is none."""
    several = [*callbacks] if isinstance(callbacks, Iterable) else [callbacks]
    for each in several:
        if isinstance(each, type):
            raise FitError(
                f"fit: the callback {each.__name__} is a class; give an object of it: "
                f"{each.__name__}(...)"
            )
        if not any(callable(getattr(each, moment, None)) for moment in _MOMENTS):
            raise FitError(
                f"fit: the callback {each!r} has none of the methods {', '.join(_MOMENTS)}"
            )
    return several


def evaluate(
    net: Block, data: Any, loss: Any = None, metrics: Any = (), batch_axis: int = 0
) -> dict[str, float]:
    """Compute the mean `loss` and the `metrics` of `net` over `data`, by name; nothing is
    trained. Raises `FitError` for data without batches."""
    several = _metrics(metrics)
    for metric in several:
        metric.reset()
    total, count, batch = 0.0, 0, None
    for batch in data:
        devices = devices_of(net)
        inputs, labels = split_batch(batch, devices, batch_axis)
        outputs = [net(*each) for each in inputs]
        if loss is not None:
            for output, label in zip(outputs, labels, strict=True):
                value = loss(output, label)
                total = total + value.astype("float64").sum().as_in_ctx(devices[0])
                count += value.size
        for metric in several:
            metric.update(labels, outputs)
    if batch is None:
        raise FitError("evaluate: the data contains no batches")
    entry = {} if loss is None or not count else {"loss": float(total) / count}
    return {**entry, **values_of(several)}


class Run:
    """A training run: what is trained, with what, and its progress.

    `epoch` counts the finished epochs, `batch` the finished batches of the current epoch, `step`
    all finished batches. `losses`, `outputs` and `labels` are those of the last batch, one array
    per device.
    """

    def __init__(
        self,
        net: Block,
        data: Any,
        loss: Any,
        trainer: Trainer,
        metrics: Any,
        callbacks: list[Any],
        epochs: int,
        validation: Any,
        batch_axis: int,
    ) -> None:
        if not isinstance(net, Block):
            raise FitError(f"fit: net is a {type(net).__name__}, not a Block, such as nn.Dense(2)")
        if not callable(loss):
            raise FitError(f"fit: loss is {loss!r}; it must be a function of outputs and labels")
        for name, source in (("data", data), ("validation", validation)):
            if source is None:
                continue
            if not any(hasattr(source, method) for method in ("__iter__", "__getitem__")):
                raise FitError(f"fit: {name} is {source!r}; give a DataLoader or a list of batches")
            if iter(source) is source:
                raise FitError(
                    f"fit: {name} can be iterated over only once; give a DataLoader, a list, or "
                    "another object that can be iterated over again"
                )
        self.net = net
        self.data = data
        self.loss = loss
        self.trainer = trainer
        self.metrics = _named_apart(_metrics(metrics))
        self.callbacks = callbacks
        self.epochs = epochs
        self.validation = validation
        self.batch_axis = batch_axis
        self.epoch = self.batch = self.step = 0
        #: The number of losses in the last batch, over all workers.
        self.size = 0
        self.history: list[dict[str, float]] = []
        #: Why the training ended before its last epoch; else empty.
        self.stopped = ""
        self.losses: list[Any] = []
        self.outputs: list[Any] = []
        self.labels: list[Any] = []
        self._total: Any = 0.0
        self._count = 0
        self._job = Job(trainer)
        self._epoch_streams: dict[str, Any] = {}
        self._data_state: Any = None

    @property
    def is_over(self) -> bool:
        """Whether no batch is left to train."""
        return bool(self.stopped) or self.epoch >= self.epochs

    def stop(self, reason: str) -> None:
        """End the training after this batch's or epoch's callbacks."""
        self.stopped = reason

    def train(self) -> None:
        """Train until the last epoch is done, or a callback stops it."""
        self._tell("train_begin")
        try:
            while not self.is_over:
                for batch in self._batches():
                    self._learn(batch)
                    self.batch += 1
                    self.step += 1
                    self._tell("batch_end")
                    if self.stopped:
                        return
                self._finish_epoch()
        finally:
            self._tell("train_end")

    def _tell(self, moment: str) -> None:
        for callback in self.callbacks:
            method = getattr(callback, moment, None)
            if method is not None:
                method(self)

    # ---- an epoch

    def _batches(self) -> Iterator[Any]:
        """The batches of this epoch; if it is resumed, the remaining ones."""
        done = self.batch
        if not done:
            self._total, self._count = 0.0, 0
            for metric in self.metrics:
                metric.reset()
            self._tell("epoch_begin")
            self._epoch_streams, self._data_state = streams(), self._state_of_data()
            yield from self.data
            return
        now = streams()
        set_streams(self._epoch_streams)
        batches = iter(self.data)
        for _ in range(done):
            next(batches, None)
        set_streams(now)
        yield from batches

    def _state_of_data(self) -> Any:
        """The state that the data reports between two epochs, or None."""
        return self.data.state_dict() if hasattr(self.data, "state_dict") else None

    def _finish_epoch(self) -> None:
        if not self.batch:
            raise FitError("fit: the data contains no batches")
        mean = float(self._total) / self._count if self._count else 0.0
        entry = {"loss": mean, **values_of(self.metrics)}
        if self.validation is not None:
            arguments = self.validation, self.loss, self.metrics, self.batch_axis
            values = evaluate(self.net, *arguments)
            entry.update({f"validation {name}": value for name, value in values.items()})
        entry = self._job.mean(entry, self._count)
        self.history.append(entry)
        self.epoch += 1
        self.batch = 0
        self._tell("epoch_end")

    def _learn(self, batch: Any) -> None:
        """Process one batch: forward, backward, update. Nothing here waits for the engine, but the
        workers' numbers of losses may have to be exchanged (`Job.whole`)."""
        devices = devices_of(self.net)
        inputs, self.labels = split_batch(batch, devices, self.batch_axis)
        self.outputs, self.losses, heads = [], [], []
        with autograd.record():
            for each, label in zip(inputs, self.labels, strict=True):
                output = self.net(*each)
                value = self.loss(output, label)
                head, total = _summed(value)
                heads.append(head)
                self.outputs.append(output)
                self.losses.append(value)
                self._total = self._total + total.detach().as_in_ctx(self.losses[0].ctx)
            heads = scaled(self.trainer, heads)
        for head in heads:  # a program on each device
            head.backward()
        own = sum(value.size for value in self.losses)
        self._count += own
        self.size = own if self._job.alone else self._whole(own)
        self._update(without=len(devices) > len(inputs))
        for metric in self.metrics:
            metric.update(self.labels, self.outputs)

    def _whole(self, own: int) -> int:
        """The number of losses over all workers in a batch where this one has `own`."""
        known = self.data.whole_size(self.batch) if hasattr(self.data, "whole_size") else None
        if known is None:
            return self._job.whole(self.batch, own)
        mine = sum(int(label.shape[self.batch_axis]) for label in self.labels)
        return int(known) * own // mine

    def _update(self, without: bool) -> None:
        """Update the parameters; `without` says that some devices got no examples of this batch."""
        if not any(_overrides(callback, "gradients_ready") for callback in self.callbacks):
            self.trainer.step(self.size, ignore_stale_grad=without)
            return
        self.trainer.allreduce_grads()
        unscale(self.trainer)
        self._tell("gradients_ready")
        self.trainer.update(self.size, ignore_stale_grad=without)

    # ---- checkpoints

    def state(self) -> dict[str, Any]:
        """The run's state, besides the parameters and the trainer's states."""
        return {
            "epoch": self.epoch,
            "batch": self.batch,
            "step": self.step,
            "stopped": self.stopped,
            "history": self.history,
            "total": self._total,
            "count": self._count,
            "streams": streams(),
            "epoch streams": self._epoch_streams,
            "data": self._data_state if self.batch else self._state_of_data(),
            "metrics": named(self.metrics),
            "optimizer": self.trainer.optimizer,
        }

    def own_state(self) -> dict[str, Any]:
        """This worker's own state: its random streams, and its losses in the current epoch."""
        return {
            "streams": streams(),
            "epoch streams": self._epoch_streams,
            "total": float(self._total) if self.batch else 0.0,
            "count": self._count if self.batch else 0,
        }

    def set_epoch_streams(self, streams: dict[str, Any]) -> None:
        """Set the random streams that the current epoch began with."""
        self._epoch_streams = streams

    def set_counted(self, total: float, count: int) -> None:
        """Set the sum and number of the losses in the current epoch."""
        self._total, self._count = total, count

    def set_state(self, state: dict[str, Any]) -> None:
        """Restore a state into the run's own metrics and optimizer."""
        self.epoch, self.batch, self.step = state["epoch"], state["batch"], state["step"]
        self.stopped, self.history = state["stopped"], state["history"]
        self._total, self._count = state["total"], state["count"]
        self._epoch_streams, self._data_state = state["epoch streams"], state["data"]
        if self._data_state is not None:
            self.data.load_state_dict(self._data_state)
        set_streams(state["streams"])


@compiled.compile
def _summed(value: Any) -> tuple[Any, Any]:
    """The sum of the losses, and the same in float64.

    It is compiled, so that each step's gradient is compiled the first time: a resumed run must
    compute in the same way as the original one.
    """
    return value.sum(), value.astype("float64").sum()


def _overrides(callback: Any, moment: str) -> bool:
    """Whether a callback has its own method for this event."""
    method = getattr(type(callback), moment, None)
    return method is not None and method is not getattr(Callback, moment)


def _metrics(given: Any) -> list[Any]:
    """Metrics or names of metrics, single or in a list, as a list of metrics."""
    several = given if isinstance(given, Sequence) and not isinstance(given, str) else [given]
    create = None
    checked = []
    for metric in several:
        if not hasattr(metric, "update"):
            create = create or import_module("gemel.gluon.metric").create
            metric = create(metric)
        checked.append(metric)
    return checked


def _named_apart(metrics: list[Any]) -> list[Any]:
    """The metrics. Raises `FitError` if two entries of the history would have the same name."""
    known = {"loss"}
    for name in names_of(metrics):
        if name in known:
            raise FitError(
                f"fit: the history would have two entries named {name!r}; give the metric another "
                "name (name=...). The mean loss is always one of them"
            )
        known.add(name)
    return metrics


def names_of(metrics: Iterable[Any]) -> list[str]:
    """The names of metrics, and of those in composite ones, as far as they have names."""
    found: list[Any] = []
    for metric in metrics:
        inner = getattr(metric, "metrics", None)
        found += names_of(inner) if isinstance(inner, list) else [getattr(metric, "name", None)]
    return [name for name in found if isinstance(name, str)]


def values_of(metrics: Iterable[Any]) -> dict[str, float]:
    """The present values of metrics, by name; values for several classes are numbered."""
    all_values: dict[str, float] = {}
    for metric in metrics:
        names, values = metric.get()
        if not isinstance(names, list):
            names, values = [names], [values]
        for name, value in zip(names, values, strict=True):
            if getattr(value, "ndim", 0):
                all_values.update({f"{name} {i}": float(each) for i, each in enumerate(value)})
            else:
                all_values[name] = float(value)
    return all_values


def devices_of(net: Block) -> list[Any]:
    """The devices of a network. Raises `FitError` if they have parts of its layers, and so need the
    same examples."""
    parameters = net.collect_params()
    devices = parameters.list_ctx()
    cut = [p.name for p in parameters.values() if p.cut_axis is not None]
    if cut and len(devices) > 1:
        raise FitError(
            f"fit: parameter {cut[0]} is split over {', '.join(map(str, devices))}, but each of "
            "these would get other examples; train with TensorParallel.step in a loop"
        )
    return devices


def split_batch(batch: Any, devices: list[Any], axis: int) -> tuple[list[Any], list[Any]]:
    """Each device's part of a batch's inputs and labels."""
    if not isinstance(batch, (list, tuple)) or len(batch) < 2:
        raise FitError(
            f"fit: a batch is {type(batch).__name__}; it must be a list of inputs and a label, "
            "as from a DataLoader over ArrayDataset(inputs, labels)"
        )
    if not hasattr(axis, "__index__"):
        raise FitError(f"fit: batch_axis is {axis!r}; it must be a whole number")
    if axis and not -len(batch[0].shape) <= axis < len(batch[0].shape):
        raise AxisError(f"fit: batch_axis={axis}, but the data has shape {tuple(batch[0].shape)}")
    count = min(len(devices), len(batch[0]) if axis == 0 else batch[0].shape[axis])
    parts = [split_and_load(each, devices[:count], axis, even_split=False) for each in batch]
    *inputs, labels = parts
    return [list(each) for each in zip(*inputs, strict=True)], labels


__all__ = ["FitError", "Run", "evaluate", "fit"]
