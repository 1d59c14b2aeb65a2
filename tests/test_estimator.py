"""`gluon.contrib.estimator`: the loop, the order of events and each handler, as in MXNet 1.9.1."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest

from gemel import autograd, cpu, device, gluon, gpu, init, metric, nd, np, npx
from gemel.errors import ArgumentError, UnknownNameError
from gemel.gluon import nn
from gemel.gluon.contrib import estimator as est


def examples(size: int = 32, batch: int = 8, arrays: Any = np) -> gluon.data.DataLoader:
    x = np.random.normal(size=(size, 4))
    y = (x.sum(axis=1) > 0).astype("int32")
    if arrays is nd:
        x, y = nd.array(x), nd.array(y)
    return gluon.data.DataLoader(gluon.data.ArrayDataset(x, y), batch)


def made(rate: float = 0.5, **settings: Any) -> est.Estimator:
    np.random.seed(3)
    net = nn.HybridSequential()
    net.add(nn.Dense(8, activation="relu", in_units=4), nn.Dense(2, in_units=8))
    context = settings.pop("context", cpu())
    net.initialize(init.Xavier(), ctx=context)
    trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": rate})
    loss = gluon.loss.SoftmaxCrossEntropyLoss()
    found = est.Estimator(net, loss, trainer=trainer, context=context, **settings)
    found.logger.handlers.clear()
    return found


class Log:
    """Logs every event with the names of its arguments."""

    priority = 0

    def __init__(self) -> None:
        self.told: list[Any] = []

    def __getattr__(self, moment: str) -> Any:
        if moment.startswith("_"):
            raise AttributeError(moment)

        def tell(estimator: Any, **what: Any) -> None:
            self.told.append((moment, sorted(what)))

        return tell


EPOCH = ["epoch_begin", *["batch_begin", "batch_end"] * 4, "epoch_end"]


@pytest.mark.parametrize(
    ("limit", "wanted"),
    [({"epochs": 2}, EPOCH * 2), ({"batches": 6}, [*EPOCH, *EPOCH[:5], "epoch_end"])],
)
def test_events(limit: Any, wanted: list[str]) -> None:
    log = Log()
    made().fit(examples(), event_handlers=[log], **limit)
    assert [name for name, _ in log.told] == ["train_begin", *wanted, "train_end"]
    assert dict(log.told)["batch_end"] == ["batch", "label", "loss", "pred"]


@pytest.mark.parametrize("devices", [cpu(), [gpu(0), gpu(1)]])
@pytest.mark.parametrize("arrays", [np, nd])
def test_is_the_loop_one_would_write(devices: Any, arrays: Any) -> None:
    device.simulate(2)
    try:
        one, other = made(context=devices), made()
        data = examples(36, arrays=arrays)
        one.fit(data, data, epochs=3)
        for _ in range(3):
            right = 0.0
            for x, y in data:
                with autograd.record():
                    output = other.net(x)
                    loss = other.loss(output, y)
                loss.backward()
                other.trainer.step(len(x))
                right += float((output.argmax(axis=1).astype(y.dtype) == y).sum())
        pairs = [e.net.collect_params().values() for e in (one, other)]
        for a, b in zip(*pairs, strict=True):
            assert float(np.abs(a.data(one.context[0]).as_in_ctx(cpu()) - b.data()).max()) < 1e-5
        names = ["accuracy", "softmaxcrossentropyloss"]
        for kind, metrics in ("training", one.train_metrics), ("validation", one.val_metrics):
            assert [m.name for m in metrics] == [f"{kind} {name}" for name in names]
        assert one.train_metrics[0].get()[1] == pytest.approx(right / 36)
        assert one.val_metrics[0].get()[1] > 0.8 and one.val_metrics[1].get()[1] < 0.5
    finally:
        npx.waitall()
        device.simulate(0)


def test_the_log_of_a_training(capsys: pytest.CaptureFixture[str]) -> None:
    one = made()
    one.logger.addHandler(logging_to_stdout())
    data = examples()
    one.fit(data, data, epochs=1)
    lines = capsys.readouterr().out.splitlines()
    begins = [
        "Training begin: using optimizer SGD with current learning rate 0.5000 ",
        "Train for 1 epochs.", "[Epoch 0] Begin, current learning rate: 0.5000",
        "Validation Begin", "[Epoch 0] Finished in ", "[Epoch 0] Finished in ",
        "Train finished using total 0s with 1 epochs. training accuracy: ",
    ]  # fmt: skip
    assert len(lines) == len(begins)
    assert all(line.startswith(begin) for line, begin in zip(lines, begins, strict=True)), lines
    one.fit(data, batches=3, event_handlers=est.LoggingHandler(2, one.train_metrics[:1]))
    lines = capsys.readouterr().out.splitlines()
    assert lines[1] == "Train for 3 batches."
    assert [line.split("]time")[0].split(" time")[0] for line in lines[3:5]] == [
        "[Epoch 0][Batch 0][Samples 8]", "[Epoch 0][Batch 2][Samples 24]",
    ]  # fmt: skip


def logging_to_stdout() -> Any:
    import logging
    import sys

    return logging.StreamHandler(sys.stdout)


class Falling(metric.EvalMetric):
    """A metric with given values, one for each epoch."""

    def __init__(self, values: list[float], name: str = "falling") -> None:
        self.values = iter(values)
        super().__init__(name)

    def update(self, labels: Any, preds: Any) -> None:
        pass

    def get(self) -> tuple[str, float]:
        return self.name, self.value

    def reset(self) -> None:
        self.value = next(self.values, 0.0)


@pytest.mark.parametrize(
    ("values", "settings", "epochs"),
    [
        ([3, 2, 1, 0.9, 0.8], {"patience": 1}, 5),
        ([3, 2, 2, 1, 1], {"patience": 1}, 3),
        ([3, 2, 2, 1, 1, 1, 1], {"patience": 2}, 6),
        ([1, 2, 3, 3], {"patience": 1, "mode": "max"}, 4),
        ([3, 2.9, 2.8], {"patience": 1, "min_delta": 0.5}, 2),
        ([3, 2, 1], {"patience": 1, "baseline": 2.5}, 1),
        ([1, 2, 2], {"patience": 1, "name": "accuracy"}, 3),
    ],
)
def test_early_stopping(values: list[float], settings: Any, epochs: int) -> None:
    fake, log = Falling([0, *values], settings.pop("name", "loss")), Log()
    stop = est.EarlyStoppingHandler(fake, **settings)
    handlers = [est.MetricHandler([fake]), stop, log]
    made().fit(examples(), epochs=len(values), event_handlers=handlers)
    assert sum(name == "epoch_end" for name, _ in log.told) == epochs
    assert stop.stop_training == (epochs < len(values) or stop.wait > 0)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def both(*stems: str) -> list[str]:
    return sorted(f"m-{stem}.{kind}" for stem in stems for kind in ("params", "states"))


def test_checkpoints(tmp_path: Path) -> None:
    def run(folder: str, epochs: int = 3, estimator: Any = None, **settings: Any) -> Any:
        one = estimator or made()
        handler = est.CheckpointHandler(tmp_path / folder, "m", **settings)
        one.fit(data, epochs=epochs, event_handlers=[handler])
        return one

    data = examples()
    run("each")
    assert names(tmp_path / "each") == both("epoch0batch4", "epoch1batch8", "epoch2batch12")
    run("second", epoch_period=2)
    assert names(tmp_path / "second") == both("epoch1batch8")
    run("batches", epoch_period=None, batch_period=3, max_checkpoints=2)
    assert names(tmp_path / "batches") == both("epoch2batch8", "epoch2batch11")
    run("few", 3, max_checkpoints=2)
    run("few", 4, max_checkpoints=2, resume_from_checkpoint=True)
    assert names(tmp_path / "few") == both("epoch2batch12", "epoch3batch16")
    one = made()
    one.net.hybridize()
    run("best", 2, one, save_best=True, monitor=one.train_metrics[1], mode="min")
    wanted = [*both("best", "epoch0batch4", "epoch1batch8"), "m-symbol.json"]
    assert names(tmp_path / "best") == wanted
    x, stem = np.ones((2, 4)), str(tmp_path / "best" / "m")
    read = gluon.SymbolBlock.imports(f"{stem}-symbol.json", ["data"], f"{stem}-epoch1batch8.params")
    assert read(x).tolist() == one.net(x).tolist()
    # A resumed run gives the same as one that was never interrupted.
    whole, again = run("each", 5, resume_from_checkpoint=False), made()
    run("again", 3), run("again", 5, again, resume_from_checkpoint=True)
    assert "m-epoch4batch20.params" in names(tmp_path / "again")
    for a, b in zip(*(e.net.collect_params().values() for e in (whole, again)), strict=True):
        assert (a.data() == b.data()).all()
    with pytest.raises(est.EstimatorError, match="already reached max_epoch=5"):
        run("again", 5, resume_from_checkpoint=True)
    with pytest.raises(est.EstimatorError, match="by epochs only"):
        run("again", 9, resume_from_checkpoint=True, batch_period=1)


@pytest.mark.parametrize("mode", ["min", "max"])
def test_the_best_is_known_after_resuming(tmp_path: Path, mode: str) -> None:
    def run(values: list[float], epochs: int, name: str = "falling") -> bool:
        """Whether the best files were written."""
        before = best.read_bytes() if best.exists() else b""
        fake = Falling([0, *(v if mode == "min" else -v for v in values)], name)
        handler = est.CheckpointHandler(
            tmp_path, "m", fake, save_best=True, mode=mode, resume_from_checkpoint=True
        )
        one = made()
        one.fit(examples(), epochs=epochs, event_handlers=[est.MetricHandler([fake]), handler])
        one.trainer.load_states(tmp_path / "m-best.states")  # it holds the best value, too
        return best.read_bytes() != before

    best = tmp_path / "m-best.params"
    assert run([3, 2, 4], 3)
    assert not run([2.5, 2], 5)
    assert run([1.5], 6)
    assert not run([1.7], 7)
    assert run([8], 8, "another")  # values of two metrics are not compared


@pytest.mark.parametrize("by", ["epoch", "batch"])
def test_checkpoints_interrupted_while_writing(
    tmp_path: Path, by: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The newest complete one is resumed, whichever file was not written."""

    def run(count: int) -> None:
        periods: Any = {"epoch_period": None, "batch_period": None, f"{by}_period": 1}
        handler = est.CheckpointHandler(tmp_path, "m", resume_from_checkpoint=True, **periods)
        limit: Any = {"epochs" if by == "epoch" else "batches": count}
        made().fit(examples(), event_handlers=[handler], **limit)

    def interrupted(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    run(1)
    complete = names(tmp_path)
    for kind, method in (gluon.Trainer, "save_states"), (nn.HybridSequential, "save_parameters"):
        with monkeypatch.context() as patch:
            patch.setattr(kind, method, interrupted)
            with pytest.raises(KeyboardInterrupt):
                run(3)
    run(2)
    assert len([each for each in names(tmp_path) if each.endswith(".params")]) == 2
    assert set(complete) < set(names(tmp_path))


def test_metrics_of_several_values(capsys: pytest.CaptureFixture[str]) -> None:
    """Composite ones, whose mean losses are of the losses, and scores of each class."""
    each = metric.F1(class_type="multiclass", average=None)
    one = made(train_metrics=[metric.create(["acc", "loss"]), each])
    one.logger.addHandler(est.logging.StreamHandler(est.sys.stdout))
    one.fit(examples(), examples(), epochs=1)
    names = [name for name, _ in one.train_metrics[0].get_name_value()]
    assert names == ["training accuracy", "training loss"]
    said = capsys.readouterr().out
    for name, value in zip(("training f1 0", "training f1 1"), each.get()[1], strict=True):
        assert f"{name}: {value:.4f}" in said
    assert f"training loss: {one.train_metrics[0].get()[1][1]:.4f}" in said
    assert "validation loss: " in said
    for several in one.val_metrics[0], each:
        with pytest.raises(est.EstimatorError, match="has several values"):
            one.fit(examples(), epochs=1, event_handlers=est.EarlyStoppingHandler(several))


def test_limits_of_a_stopping_handler() -> None:
    for settings, limit, epochs in (
        ({"max_epoch": 2}, {"epochs": 5}, 2),
        ({"max_epoch": 5}, {"epochs": 2}, 2),
        ({"max_batch": 5}, {"epochs": 5}, 2),
        ({"max_batch": 50}, {"batches": 4}, 1),
    ):
        log, one = Log(), made()
        one.fit(examples(), event_handlers=[est.StoppingHandler(**settings), log], **limit)
        assert sum(name == "epoch_end" for name, _ in log.told) == epochs


def test_batches_of_fewer_examples_than_devices() -> None:
    one = made(context=[cpu(0), cpu(1)])
    one.fit(examples(17), epochs=1)
    for parameter in one.net.collect_params().values():
        first, second = (a.asnumpy() for a in parameter.list_data())
        assert (first == second).all()


def test_a_loss_without_axes() -> None:
    """It counts as one example."""

    class Total(gluon.loss.Loss):
        def forward(self, output: Any, label: Any) -> Any:
            return (output**2).sum()

    one, other, data = made(0.01), made(0.01), examples(8)
    one.loss = Total(None, 0)
    one.fit(data, epochs=1)
    for x, _ in data:
        with autograd.record():
            total = (other.net(x) ** 2).sum()
        total.backward()
        other.trainer.step(1)
    pairs = [e.net.collect_params().values() for e in (one, other)]
    for a, b in zip(*pairs, strict=True):
        assert float(np.abs(a.data() - b.data()).max()) < 1e-6


def test_a_processor_of_one_s_own() -> None:
    class Noted(est.BatchProcessor):
        seen = 0

        def fit_batch(self, estimator: Any, train_batch: Any, batch_axis: int = 0) -> Any:
            self.seen += 1
            return super().fit_batch(estimator, train_batch, batch_axis)

    class Still(est.GradientUpdateHandler):
        """Updates nothing."""

        def batch_end(self, estimator: Any, *args: Any, **kwargs: Any) -> None:
            pass

    one = made(batch_processor=Noted(), val_metrics=metric.TopKAccuracy(2))
    before = one.net[0].weight.data().copy()
    one.fit(examples(), epochs=1, event_handlers=[Still()])
    assert one.batch_processor.seen == 4 and (one.net[0].weight.data() == before).all()
    one.evaluate(examples())
    assert [m.get() for m in one.val_metrics] == [("validation top_k_accuracy_2", 1.0)]


def test_bad_input() -> None:
    one, loss = made(), gluon.loss.L2Loss()
    cases: list[tuple[str, Any]] = [
        ("net 3 is not an instance of Block", lambda: est.Estimator(3, loss)),
        ("net 3 is not", lambda: est.Estimator(one.net, loss, val_net=3)),
        ("eval_fn None must be", lambda: est.ValidationHandler(examples(), None)),
        ("loss 3 is not an instance of Loss", lambda: est.Estimator(one.net, 3)),
        (
            "trainer 3 is not an instance of Trainer",
            lambda: est.Estimator(one.net, loss, trainer=3),
        ),
        ("'acc' is not an instance of EvalMetric", lambda: est.Estimator(one.net, loss, "acc")),
        (
            "context 1 is not an instance of Device",
            lambda: est.Estimator(one.net, loss, context=[1]),
        ),
        ("no fit_batch", lambda: est.Estimator(one.net, loss, batch_processor=3)),
        ("either epochs= or batches=", lambda: one.fit(examples())),
        ("only once", lambda: one.fit(iter(examples()), epochs=1)),
        ("no batches", lambda: one.fit([], epochs=1)),
        ("the data is 5; give a DataLoader", lambda: one.fit(5, epochs=1)),
        ("the data is 5; give a DataLoader", lambda: one.fit(examples(), 5, epochs=1)),
        ("the data is None; give", lambda: one.evaluate(None)),
        ("a batch is 1; it must be a list of inputs", lambda: one.fit([1, 2], epochs=1)),
        ("a batch is .*; it must be a list of inp", lambda: one.evaluate([(np.ones((2, 4)),)])),
        ("must be 'epoch'", lambda: est.LoggingHandler("batch")),
        ("is not a metric", lambda: est.EarlyStoppingHandler("loss")),
    ]
    for message, call in cases:
        with pytest.raises(est.EstimatorError, match=message):
            call()
    for wrong in ({"epochs": 0}, {"epochs": -1}, {"epochs": 1.5}, {"batches": 0}):
        with pytest.raises(ArgumentError, match=r"Estimator\.fit: .* must be a whole number"):
            one.fit(examples(), **wrong)
    for handler in (3, est.LoggingHandler):
        with pytest.raises(est.EstimatorError, match=r"event handler .* must be an object"):
            one.fit(examples(), epochs=1, event_handlers=[handler])
    for call in (
        lambda: est.StoppingHandler(max_epoch=0),
        lambda: est.StoppingHandler(max_batch="a"),
        lambda: est.EarlyStoppingHandler(one.train_metrics[0], patience=-1),
        lambda: est.EarlyStoppingHandler(one.train_metrics[0], min_delta="a"),
        lambda: est.EarlyStoppingHandler(one.train_metrics[0], baseline="a"),
    ):
        with pytest.raises(ArgumentError, match="Handler: "):
            call()
    with pytest.raises(est.EstimatorError, match="log_interval 0 must be"):
        est.LoggingHandler(0)
    with pytest.raises(UnknownNameError, match="auto"):
        est.EarlyStoppingHandler(one.train_metrics[0], mode="more")
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        assert est.Estimator(one.net, loss, initializer=init.One()).trainer.learning_rate == 0.001
    assert ["initialized already" in str(w.message) for w in told] == [True, False]


@pytest.mark.parametrize("stopped", [2, 4, 6, 8])
@pytest.mark.parametrize("last_batch", ["keep", "rollover"])
def test_resuming_in_the_middle_of_an_epoch(tmp_path: Path, stopped: int, last_batch: str) -> None:
    """It goes on with the rest of that epoch's batches: the run is as if it were not stopped."""

    class Seen:
        def __init__(self) -> None:
            self.numbers: list[Any] = []

        def batch_end(self, estimator: Any, **what: Any) -> None:
            self.numbers.append(what["batch"][1].tolist() + [np.random.uniform().item()])

    def run(folder: str, batches: int, **settings: Any) -> Any:
        x, y = np.ones((30, 4)), np.arange(30)
        order = gluon.data.RandomSampler(30)
        data = gluon.data.DataLoader(
            gluon.data.ArrayDataset(x, y), 8, sampler=order, last_batch=last_batch
        )
        one, seen = made(rate=0), Seen()
        one.batch_processor = Unlabelled()
        settings = {"epoch_period": None, "batch_period": 2, **settings}
        handler = est.CheckpointHandler(tmp_path / folder, "m", **settings)
        metrics = est.MetricHandler([])
        one.fit(data, batches=batches, event_handlers=[seen, handler, metrics])
        return seen.numbers

    whole = run("whole", 12)
    assert names(tmp_path / "whole")[0].startswith("m-epoch")
    before = run("parts", stopped)
    after = run("parts", 12, resume_from_checkpoint=True)
    assert before + after == whole
    assert set(names(tmp_path / "whole")) <= set(names(tmp_path / "parts"))


class Unlabelled(est.BatchProcessor):
    """Learns nothing from the labels."""

    def fit_batch(self, estimator: Any, batch: Any, batch_axis: int = 0) -> Any:
        """The mean of the outputs as the loss."""
        with autograd.record():
            out = estimator.net(batch[0])
            loss = out.mean(axis=1)
        loss.backward()
        return [batch[0]], [batch[1]], [out], [loss]


def test_checkpoints_that_do_not_know_their_position(tmp_path: Path) -> None:
    def run(batches: int) -> None:
        handler = est.CheckpointHandler(
            tmp_path, "m", epoch_period=None, batch_period=3, resume_from_checkpoint=True
        )
        made().fit(examples(), batches=batches, event_handlers=[handler])

    run(3)
    one = made()
    one.trainer.load_states(tmp_path / "m-epoch0batch2.states")
    one.trainer.save_states(tmp_path / "m-epoch0batch2.states")
    with pytest.warns(UserWarning, match="does not say which batches of the epoch were done"):
        run(6)
