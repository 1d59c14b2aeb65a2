"""`gluon.fit`: what its history has, small batches on several devices, and wrong arguments."""

from __future__ import annotations

from typing import Any

import numpy
import pytest

from gemel import cpu, gluon, lr_scheduler, metric, np
from gemel.errors import ArgumentError, GemelError

LOSS = gluon.loss.SoftmaxCrossEntropyLoss()
X = numpy.random.RandomState(0).rand(20, 3).astype("float32")
Y = numpy.random.RandomState(1).randint(0, 2, 20)


def batches(size: int = 5) -> gluon.data.DataLoader:
    return gluon.data.DataLoader(gluon.data.ArrayDataset(np.array(X), np.array(Y)), size)


def fit(metrics: Any = (), devices: Any = None, **settings: Any) -> gluon.fitting.Run:
    np.random.seed(0)
    net = gluon.nn.Dense(2, in_units=3)
    net.initialize(ctx=devices or cpu())
    trainer = gluon.Trainer(net.collect_params(), "adam", {"learning_rate": 0.1})
    given = {"data": batches(), "loss": LOSS, "epochs": 2, "progress": False, **settings}
    return gluon.fit(net, given.pop("data"), given.pop("loss"), trainer, metrics, **given)


@pytest.mark.parametrize("size", [5, 19])
@pytest.mark.parametrize("callbacks", [(), gluon.ClipGradients(1.0)])
def test_several_devices_are_as_one(size: int, callbacks: Any) -> None:
    """Also for a last batch of fewer examples than devices, and the loss of validation."""
    data, found = batches(size), []
    for devices in (cpu(), [cpu(0), cpu(1), cpu(2)]):
        run = fit("acc", devices, data=data, validation=data, callbacks=callbacks)
        found.append(run)
        for parameter in run.net.collect_params().values():
            first, *others = (a.asnumpy() for a in parameter.list_data())
            assert all((first == other).all() for other in others)
    one, several = found
    assert several.history == [pytest.approx(entry, rel=1e-4) for entry in one.history]
    assert "validation loss" in one.history[0]


def test_scores_of_each_class_are_entries() -> None:
    made = metric.F1(class_type="multiclass", average=None)
    entry = fit(made, validation=batches()).history[-1]
    expected = dict(zip(("validation f1 0", "validation f1 1"), made.get()[1], strict=True))
    assert {name: entry[name] for name in expected} == expected


@pytest.mark.parametrize(
    "metrics",
    ["loss", ["acc", "acc"], [metric.F1(), metric.create(["acc", metric.F1(average="micro")])]],
)
def test_entries_have_different_names(metrics: Any) -> None:
    with pytest.raises(gluon.fitting.FitError, match="the history would have two entries named"):
        fit(metrics)


@pytest.mark.parametrize(
    ("name", "less"), [("mpd", True), ("rmse", True), ("loss", True), ("mcc", False), ("f1", False)]
)
def test_direction_of_improvement(name: str, less: bool) -> None:
    stopping = gluon.EarlyStopping(f"validation {name}")
    stopping.best = 0.5
    assert stopping._is_better(0.4) == less


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"callbacks": [gluon.EarlyStopping]}, "is a class; give an object"),
        ({"loss": 3}, "loss is 3; it must be a function"),
        ({"data": 3}, "data is 3; give a DataLoader"),
        ({"validation": 3}, "validation is 3; give a DataLoader"),
    ],
)
def test_wrong_arguments(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(GemelError, match=f"fit: .*{message}"):
        fit(**wrong)


@pytest.mark.parametrize("wrong", [5, True, [], ""])
def test_a_checkpoint_is_a_path(wrong: Any) -> None:
    for call in (gluon.Checkpoint, lambda path: fit(checkpoint=path)):
        with pytest.raises(ArgumentError, match=r"Checkpoint: path=.* is not the path of a file"):
            call(wrong)


def test_the_network_is_a_block() -> None:
    trainer = gluon.Trainer([], "sgd")
    with pytest.raises(gluon.fitting.FitError, match="net is a NoneType, not a Block"):
        gluon.fit(None, batches(), LOSS, trainer)


class Stop(Exception):
    pass


class StopAt:
    def batch_end(self, run: gluon.fitting.Run) -> None:
        if run.step == 6:
            raise Stop


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (["acc"], ["f1", "acc"]),
        (["f1", "acc"], ["acc"]),
        (["f1"], ["acc"]),
        ([["acc", "mcc"]], [["f1", "mcc"]]),
    ],
)
def test_a_resumed_run_may_have_other_metrics(before: Any, after: Any, tmp_path: Any) -> None:
    """Those that both have are continued in the middle of an epoch; others begin there."""
    wholes = fit([metric.create(each) for each in before]).history[-1]
    new = fit([metric.create(each) for each in after]).history[-1]
    settings = {"checkpoint": gluon.Checkpoint(tmp_path / "file", batches=1)}
    with pytest.raises(Stop):
        fit([metric.create(each) for each in before], callbacks=StopAt(), **settings)
    entry = fit([metric.create(each) for each in after], **settings).history[-1]
    assert list(entry) == list(new)
    assert {k: v for k, v in entry.items() if k in wholes} == {
        k: v for k, v in new.items() if k in wholes
    }


def test_a_resumed_run_may_have_another_scheduler(tmp_path: Any) -> None:
    for epochs, scheduler, rate in (
        (1, lr_scheduler.FactorScheduler(1, 0.5, base_lr=0.8), 0.1),  # after 4 updates
        (2, lr_scheduler.CosineScheduler(16, base_lr=0.3), 0.15),  # after 8
    ):
        net = gluon.nn.Dense(2, in_units=3)
        net.initialize()
        trainer = gluon.Trainer(net.collect_params(), "sgd", {"lr_scheduler": scheduler})
        gluon.fit(
            net, batches(), LOSS, trainer, epochs=epochs, progress=False,
            checkpoint=tmp_path / "file",
        )  # fmt: skip
        assert trainer.learning_rate == pytest.approx(rate)
