"""`gluon.fit`: training, validation, callbacks; after kill -9 it resumes to the same bits."""

from __future__ import annotations

import random
import signal
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from programs import run, start

from gemel import autograd, cpu, device, gluon, gpu, init, np, npx
from gemel.errors import GemelError, ParameterFileError, ShapeError, UnknownNameError
from gemel.gluon import nn
from gemel.gluon.checkpoint import packed, unpacked

#: Noise from three streams, dropout, running statistics, a stateful scheduler, a callback with a
#: list, a metric whose sums are arrays: anything missing from the checkpoint changes the result.
TRAINING = """
import os, random, signal, sys, time
from hashlib import sha256
import numpy
from gemel import _core, autograd, gluon, init, np
from gemel.gluon import nn

np.random.seed(5), random.seed(6), numpy.random.seed(7)

class Noisy(gluon.data.Dataset):
    x = numpy.random.RandomState(0).normal(size=(48, 10)).astype("float32")
    def __len__(self):
        return 48
    def __getitem__(self, i):
        return np.array(self.x[i]) + random.random() + numpy.random.rand(), i % 3

class Slower:
    def __init__(self):
        self.rate, self.last = 0.01, 0
    def __call__(self, step):
        if step > self.last:
            self.rate, self.last = self.rate * 0.99, step
        return self.rate

class Right:
    def __init__(self):
        self.reset()
    def reset(self):
        self.right, self.count = np.zeros(()), 0
    def update(self, labels, outputs):
        for label, output in zip(labels, outputs, strict=True):
            self.right = self.right + (output.argmax(axis=1) == label).sum()
            self.count += label.size
    def get(self):
        return "right", float(self.right) / self.count

class Watch:
    def __init__(self):
        self.steps, self.network = [], net
    def batch_end(self, run):
        self.steps.append(run.step)
        time.sleep(PAUSE)
        if run.step == KILL:
            os.kill(os.getpid(), signal.SIGKILL)

if WRITING:
    # The file is written in two halves: it ends between them.
    fsync, written = os.fsync, []
    def half(file):
        written.append(file)
        if len(written) == WRITING:
            os.ftruncate(file, 1000)
            fsync(file)
            os.kill(os.getpid(), signal.SIGKILL)
        fsync(file)
    os.fsync = half

net = nn.HybridSequential()
net.add(nn.Dense(16, activation="relu"), nn.BatchNorm(), nn.Dropout(0.4), nn.Dense(3))
net.initialize(init.Xavier())
if HYBRID:
    net.hybridize()
data = gluon.data.DataLoader(Noisy(), 7, True, last_batch="rollover", num_workers=WORKERS)
test = gluon.data.DataLoader(Noisy(), 16)
several = gluon.metric.CompositeEvalMetric([gluon.metric.TopKAccuracy(2), "pcc"])
metrics = [Right(), "accuracy", several]
rule = {"lr_scheduler": Slower(), "wd": 1e-3, "learning_rate": 0.01}
trainer = gluon.Trainer(net.collect_params(), "adam", rule)
loss, watch = gluon.loss.SoftmaxCrossEntropyLoss(), Watch()
found = gluon.fit(
    net, data, loss, trainer, metrics, [watch], epochs=4, validation=test,
    checkpoint=gluon.Checkpoint(FILE, batches=2), progress=False,
)
bits = sha256()
for parameter in net.collect_params().values():
    bits.update(_core.to_bytes(parameter.data()))
tell(bits=bits.hexdigest(), history=found.history, steps=watch.steps, rate=trainer.learning_rate,
     drawn=[random.random(), float(np.random.uniform()), numpy.random.rand()])
"""
BATCHES = 27  # of 7 examples each, 3 roll over


def program(
    file: Path, hybrid: bool, kill: int = -1, writing: int = 0, pause: float = 0, workers: int = 0
) -> str:
    settings = f"FILE, HYBRID, KILL, WORKERS = {str(file)!r}, {hybrid}, {kill}, {workers}\n"
    return settings + f"WRITING, PAUSE = {writing}, {pause}\n" + TRAINING


def killed(text: str) -> bool:
    """Run a program that may kill itself; return whether it did."""
    process = start(text)
    process.communicate(timeout=600)
    return process.returncode == -signal.SIGKILL


@pytest.mark.parametrize("hybrid", [False, True])
def test_killed_and_resumed(hybrid: bool, tmp_path: Path) -> None:
    """At chosen batches (the first, before and after a checkpoint, the last of an epoch), and while
    the checkpoint is written.
    """
    whole = run(program(tmp_path / "whole", hybrid))
    assert whole["steps"] == list(range(1, BATCHES + 1)) and len(whole["history"]) == 4
    file = tmp_path / "interrupted"
    for kill in (9,) if hybrid else (1, 9):
        assert killed(program(file, hybrid, kill))
    assert killed(program(file, hybrid, writing=2))
    assert run(program(file, hybrid)) == whole
    if hybrid:  # the training is complete
        assert run(program(file, hybrid))["bits"] == whole["bits"]
    assert [path.name for path in tmp_path.iterdir() if "interrupted" in path.name] == [file.name]


def test_killed_with_workers(tmp_path: Path) -> None:
    """The random numbers of workers are restored too."""
    whole = run(program(tmp_path / "whole", True, workers=2))
    assert killed(program(tmp_path / "interrupted", True, 9, workers=2))
    assert run(program(tmp_path / "interrupted", True, workers=2)) == whole


def test_killed_at_any_moment(tmp_path: Path) -> None:
    """Killed from outside at a random moment: while importing, compiling, training or writing."""
    whole = run(program(tmp_path / "whole", True))
    chance, file, kills = random.Random(), tmp_path / "interrupted", 0
    for _ in range(3):
        process = start(program(file, True, pause=0.1))
        time.sleep(chance.uniform(0.3, 1.0))
        process.kill()
        process.communicate()
        kills += process.returncode == -signal.SIGKILL
    assert kills
    assert run(program(file, True)) == whole


# --- in this process ------------------------------------------------------------------------


@pytest.fixture(autouse=True)
def seeded() -> None:
    np.random.seed(3)


def examples(size: int = 64) -> gluon.data.ArrayDataset:
    x = np.random.normal(size=(size, 4))
    return gluon.data.ArrayDataset(x, (x.sum(axis=1) > 0).astype("int32"))


class Accuracy:
    """A metric by its interface alone: update, get, reset."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        self.right, self.count = 0.0, 0

    def update(self, labels: list[Any], outputs: list[Any]) -> None:
        for label, output in zip(labels, outputs, strict=True):
            self.right += float((output.argmax(axis=1) == label).sum())
            self.count += label.size

    def get(self) -> tuple[str, float]:
        return "accuracy", self.right / self.count


def network(seed: int = 1) -> tuple[Any, Any]:
    np.random.seed(seed)
    net = nn.HybridSequential()
    net.add(nn.Dense(8, activation="relu"), nn.Dense(2))
    net.initialize(init.Xavier())
    return net, gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.5})


LOSS = gluon.loss.SoftmaxCrossEntropyLoss()


def test_is_the_loop_one_would_write() -> None:
    data = examples(50)  # the last batch is smaller
    losses = []
    net, trainer = network()
    for _ in range(2):
        total = 0.0
        for x, y in gluon.data.DataLoader(data, 16, shuffle=True):
            with autograd.record():
                value = LOSS(net(x), y)
            value.backward()
            trainer.step(len(x))
            total += float(value.sum())
        losses.append(total / 50)
    other, trainer = network()
    loader = gluon.data.DataLoader(data, 16, shuffle=True)
    found = gluon.fit(other, loader, LOSS, trainer, epochs=2, progress=False)
    assert [entry["loss"] for entry in found.history] == pytest.approx(losses, rel=1e-5)
    for a, b in zip(net.collect_params().values(), other.collect_params().values(), strict=True):
        assert float(np.abs(a.data() - b.data()).max()) < 1e-6
    assert found.epoch == 2 and found.step == 8 and found.batch == 0 and not found.stopped


def test_a_mean_loss_is_the_same() -> None:
    data = gluon.data.DataLoader(examples(), 16)
    found = []
    for loss in (LOSS, lambda y, label: LOSS(y, label).mean()):
        net, trainer = network()
        entry = gluon.fit(net, data, loss, trainer, progress=False).history[0]
        found.append((entry["loss"], float(net[0].weight.data().sum())))
    assert found[0] == pytest.approx(found[1], rel=1e-5)


def test_metrics_and_validation() -> None:
    data = examples(256)
    net, trainer = network()
    batches = gluon.data.DataLoader(data.take(192), 16, True)
    others = gluon.data.DataLoader(data.shard(4, 3), 32)
    found = gluon.fit(
        net, batches, LOSS, trainer, Accuracy(), epochs=8, validation=others, progress=False
    )
    last = found.history[-1]
    assert set(last) == {"loss", "accuracy", "validation loss", "validation accuracy"}
    assert last["validation accuracy"] > 0.85 and last["loss"] < found.history[0]["loss"]
    again = gluon.evaluate(net, others, LOSS, [Accuracy()])
    assert again == {name.split()[-1]: v for name, v in last.items() if "validation" in name}


class Log:
    def __init__(self) -> None:
        self.told: list[str] = []

    def __getattr__(self, moment: str) -> Any:
        if moment.startswith("_"):
            raise AttributeError(moment)
        return lambda run: self.told.append(moment)


def test_callbacks_hear_of_everything_in_order() -> None:
    net, trainer = network()
    log = Log()
    gluon.fit(net, gluon.data.DataLoader(examples(), 32), LOSS, trainer, (), [log], progress=False)
    batch = ["batch_end"]
    assert log.told == ["train_begin", "epoch_begin", *batch * 2, "epoch_end", "train_end"]


def test_a_callback_stops() -> None:
    class Stop:
        def batch_end(self, run: Any) -> None:
            if run.step == 3:
                run.stop("enough")

    net, trainer = network()
    data = gluon.data.DataLoader(examples(), 16)
    found = gluon.fit(net, data, LOSS, trainer, (), [Stop()], epochs=5, progress=False)
    assert found.step == 3 and found.stopped == "enough" and found.history == []


class Entries:
    """Adds the next of some values to the history."""

    def __init__(self, *values: float) -> None:
        self.values, self.number = values, 0

    def epoch_end(self, run: Any) -> None:
        run.history[-1]["validation loss"] = self.values[self.number]
        self.number += 1


def test_early_stopping(tmp_path: Path) -> None:
    class Worse(Entries):
        def epoch_end(self, run: Any) -> None:
            super().epoch_end(run)
            weights.append(run.net[0].weight.data().copy())

    data = gluon.data.DataLoader(examples(), 16)
    for epochs in ([6], [2, 4, 6]):  # in one run, and resumed
        weights: list[Any] = []
        for end in epochs:
            net, trainer = network()
            stop = gluon.EarlyStopping(patience=2, restore_best=True)
            worse = Worse(3.0, 2.0, 1.0, 1.5, 1.6, 0.1)
            found = gluon.fit(
                net, data, LOSS, trainer, (), [worse, stop], epochs=end, progress=False,
                checkpoint=tmp_path / f"early {len(epochs)}",
            )  # fmt: skip
        assert found.epoch == 5 and "epoch 3" in found.stopped and len(weights) == 5
        assert (net[0].weight.data() == weights[2]).all()
    with pytest.raises(UnknownNameError, match="validation loss"):
        gluon.fit(net, data, LOSS, trainer, (), [gluon.EarlyStopping()], progress=False)
    stop = gluon.EarlyStopping(patience=2, mode="min")
    for _ in range(2):  # a second run begins anew; NaN is no improvement
        net, trainer = network()
        entry = Entries(float("nan"), 3.0, 2.0, 2.0, float("nan"), 1.0)
        found = gluon.fit(net, data, LOSS, trainer, (), [entry, stop], epochs=6, progress=False)
        assert found.epoch == 5 and stop.best == 2.0 and stop.best_epoch == 3
    alone = gluon.EarlyStopping("loss", patience=0)
    assert gluon.fit(net, data, LOSS, trainer, (), alone, progress=False).epoch == 1
    accuracy = gluon.EarlyStopping("accuracy", patience=1)
    net, trainer = network()
    trainer.set_learning_rate(0.0)
    found = gluon.fit(net, data, LOSS, trainer, Accuracy(), [accuracy], epochs=9, progress=False)
    assert found.epoch == 2


def test_gradients_are_clipped() -> None:
    norms: list[float] = []

    class Norm:
        def gradients_ready(self, run: Any) -> None:
            grads = [p.grad() / run.size for p in run.net.collect_params().values()]
            norms.append(float(np.sqrt(sum((g * g).sum() for g in grads))))

    net, trainer = network()
    data = gluon.data.DataLoader(examples(), 16)
    callbacks = [Norm(), gluon.ClipGradients(0.01), Norm()]
    gluon.fit(net, data, LOSS, trainer, (), callbacks, progress=False)
    assert min(norms[::2]) > 0.01
    assert norms[1::2] == pytest.approx([0.01] * 4, rel=1e-3)


def test_resume_in_the_middle_of_accumulated_gradients(tmp_path: Path) -> None:
    def train(epochs: int, **settings: Any) -> list[float]:
        net, trainer = network()
        net.setattr("grad_req", "add")
        gluon.fit(net, data, LOSS, trainer, epochs=epochs, progress=False, **settings)
        weights: list[float] = net[0].weight.data().reshape(-1).tolist()
        return weights

    data = gluon.data.DataLoader(examples(), 32)
    whole = train(3)
    train(1, checkpoint=tmp_path / "add")
    assert train(3, checkpoint=tmp_path / "add") == whole


def test_checkpoints_of_others_change_nothing(tmp_path: Path) -> None:
    data = gluon.data.DataLoader(examples(), 32)
    net, trainer = network()
    gluon.fit(net, data, LOSS, trainer, checkpoint=tmp_path / "a", progress=False)
    content = (tmp_path / "a").read_bytes()
    (tmp_path / "damaged").write_bytes(content[:-100] + bytes(100))
    (tmp_path / "short").write_bytes(content[:300])
    net.save_parameters(tmp_path / "parameters")
    larger = nn.HybridSequential()
    larger.add(nn.Dense(9), nn.Dense(2))
    larger.initialize()
    adam = gluon.Trainer(network()[0].collect_params(), "adam")
    third, sgd = network(2)
    for file, given, rule, said in [
        ("a", larger, gluon.Trainer(larger.collect_params(), "sgd"), "0.weight has shape"),
        ("a", third, adam, "adam"),
        ("damaged", third, sgd, "damaged"),
        ("short", third, sgd, "truncated"),
        ("parameters", third, sgd, "not a checkpoint"),
    ]:
        third(np.ones((1, 4)))
        before = third[0].weight.data().copy()
        with pytest.raises(ParameterFileError, match=said):
            gluon.fit(given, data, LOSS, rule, checkpoint=tmp_path / file, progress=False)
        assert (third[0].weight.data() == before).all()
    assert (tmp_path / "a").read_bytes() == content


def test_an_error_in_the_middle_leaves_the_last_checkpoint(tmp_path: Path) -> None:
    class Fails:
        def batch_end(self, run: Any) -> None:
            if run.step == 3:
                raise OSError("no room")

    data = gluon.data.DataLoader(examples(), 16, True)
    states = []
    for callbacks in ([], [Fails()]):
        net, trainer = network()
        file = tmp_path / str(len(callbacks))
        for _ in range(2):
            try:
                gluon.fit(
                    net, data, LOSS, trainer, (), callbacks, epochs=2, progress=False,
                    checkpoint=gluon.Checkpoint(file, batches=1),
                )  # fmt: skip
            except OSError:
                net, trainer, callbacks = *network(9), []
        states.append(net[0].weight.data().tolist())
    assert states[0] == states[1]


def test_several_devices(tmp_path: Path) -> None:
    """The same as on one device; a checkpoint has each device's own running statistics too."""
    data, found = gluon.data.DataLoader(examples(40), 16), {}
    device.simulate(2)
    try:
        for kind, devices in {
            "one": [cpu()],
            "gpu": [gpu(0)],
            "two": [cpu(0), cpu(1)],
            "both": [gpu(0), gpu(1)],
        }.items():
            for ends in ([3], [1, 3]):
                for end in ends:
                    np.random.seed(4)
                    net = nn.HybridSequential()
                    net.add(nn.Dense(8, activation="relu"), nn.BatchNorm(), nn.Dense(2))
                    net[1].setattr("grad_req", "null")
                    net.initialize(init.Xavier(), ctx=devices)
                    trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.5})
                    run = gluon.fit(
                        net, data, LOSS, trainer, "acc", [gluon.ClipGradients(5.0)], epochs=end,
                        progress=False, checkpoint=tmp_path / f"{kind} {ends}",
                    )  # fmt: skip
                arrays = [a.tolist() for p in net.collect_params().values() for a in p.list_data()]
                found[kind, len(ends)] = run.history, arrays
    finally:
        npx.waitall()
        device.simulate(0)
    for kind in ("one", "gpu", "two", "both"):
        assert found[kind, 1] == found[kind, 2]
    assert found["one", 1][0] == [pytest.approx(entry) for entry in found["gpu", 1][0]]
    assert found["two", 1][0] == [pytest.approx(entry) for entry in found["both", 1][0]]


def test_progress_with_and_without_tqdm(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    data = gluon.data.DataLoader(examples(), 16)

    def shown() -> str:
        net, trainer = network()
        gluon.fit(net, data, LOSS, trainer, epochs=2)
        found = capsys.readouterr()
        return found.out + found.err

    monkeypatch.setitem(sys.modules, "tqdm", None)
    monkeypatch.setitem(sys.modules, "tqdm.auto", None)
    first, second = shown().splitlines()
    assert first.startswith("epoch 1/2: loss 0.") and second.endswith(" s")
    monkeypatch.undo()
    pytest.importorskip("tqdm")
    assert "4/4" in (text := shown()) and "loss 0." in text and "epoch 2/2" in text


def test_bad_input() -> None:
    net, trainer = network()
    data = gluon.data.DataLoader(examples(), 16)
    cases: list[tuple[type[Exception], str, Any]] = [
        (GemelError, "only once", lambda: gluon.fit(net, iter(data), LOSS, trainer)),
        (GemelError, "is a NoneType, not a Trainer", lambda: gluon.fit(net, data, LOSS, None)),
        (GemelError, "is a str, not a Trainer", lambda: gluon.fit(net, data, LOSS, "sgd")),
        (GemelError, "no batches", lambda: gluon.fit(net, [], LOSS, trainer, progress=False)),
        (
            GemelError,
            "inputs and a label",
            lambda: gluon.fit(net, [np.ones((2, 4))], LOSS, trainer),
        ),
        (GemelError, "epochs must be", lambda: gluon.fit(net, data, LOSS, trainer, epochs=1.5)),
        (GemelError, "callback 3 has none", lambda: gluon.fit(net, data, LOSS, trainer, (), [3])),
        (GemelError, "evaluate: .* no batches", lambda: gluon.evaluate(net, [], LOSS)),
        (ShapeError, "batch_axis=5", lambda: gluon.fit(net, data, LOSS, trainer, batch_axis=5)),
        (GemelError, "batch_axis is 'a'", lambda: gluon.evaluate(net, data, batch_axis="a")),
        (UnknownNameError, "auto", lambda: gluon.EarlyStopping(mode="less")),
        (
            ShapeError,
            r"SoftmaxCrossEntropyLoss: .* \(2, 2\) and the label \(3,\)",
            lambda: gluon.fit(net, [(np.ones((2, 4)), np.ones((3,)))], LOSS, trainer),
        ),
    ]
    for kind, said, call in cases:
        with pytest.raises(kind, match=said):
            call()


def test_packing() -> None:
    class Thing:
        pass

    thing, other = Thing(), Thing()
    thing.inner, thing.itself, thing.call = other, thing, len  # type: ignore[attr-defined]
    other.value = 1  # type: ignore[attr-defined]
    value = {"a": (1, 2.5, None, float("inf")), 3: [np.arange(3), True], "text": thing}
    arrays: dict[str, Any] = {}
    text = packed(value, arrays)
    other.value = 2  # type: ignore[attr-defined]
    found = unpacked(text, arrays, value)
    assert found["a"] == value["a"] and found[3][0].tolist() == [0, 1, 2] and found[3][1] is True
    assert found["text"] is thing and thing.inner is other and other.value == 1  # type: ignore[attr-defined]
    assert "itself" not in text["value"][2][1]["value"]
