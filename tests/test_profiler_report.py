"""`profiler.report()`: each bottleneck is provoked, and must be named."""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Iterator
from typing import Any

import numpy
import pytest
from programs import run

from gemel import autograd, cpu, device, gluon, gpu, np, npx, profiler
from gemel.gluon import nn
from gemel.profiler.records import Operation
from gemel.profiler.report import held_by_memory, merged


@pytest.fixture(autouse=True)
def stopped() -> Iterator[None]:
    npx.waitall()
    gc.disable()  # of all that earlier tests left, which takes up to a second
    yield
    gc.enable()
    profiler.set_state("stop")


class SlowReader(gluon.data.Dataset):
    def __len__(self) -> int:
        return 30

    def __getitem__(self, index: int) -> Any:
        time.sleep(0.01)
        return numpy.ones((32,), dtype="float32"), 1


def slowly(x: Any, y: Any) -> Any:
    time.sleep(0.01)
    return x, y


def reader_of_its_own() -> Iterator[Any]:
    for _ in range(10):
        time.sleep(0.04)
        yield np.ones((10, 32)), np.zeros((10,))


def arrays(count: int, width: int = 32) -> gluon.data.ArrayDataset:
    return gluon.data.ArrayDataset(np.ones((count, width)), np.zeros((count,)))


NET, LOSS = nn.HybridSequential(), gluon.loss.SoftmaxCrossEntropyLoss()
NET.add(nn.Dense(512, activation="relu"), nn.Dense(512, activation="relu"), nn.Dense(10))
NET.initialize()
NET.hybridize()


def train(data: Any, read: bool = False) -> None:
    trainer = gluon.Trainer(NET.collect_params(), "sgd", {"learning_rate": 0.01})
    for x, y in data:
        with autograd.record():
            loss = LOSS(NET(x), y)
        if read:  # each part of a step ends before the next one is issued
            loss.mean().item()
        loss.backward()
        if read:
            NET[0].weight.grad()[0, 0].item()
        trainer.step(len(x))
        if read:
            NET[0].weight.data()[0, 0].item()


def tiny_operations() -> None:
    x = np.ones((3,))
    for _ in range(8_000):
        x = x * 0.999 + 0.001


def heavy_products() -> None:
    x = np.ones((600, 600))
    for _ in range(60):
        x = np.dot(x, x) / 600


def copies() -> None:
    x = np.ones((1_000_000,))
    for _ in range(20):
        x = x.copyto(gpu(0)).as_in_ctx(cpu())


PLANTED = {
    "slow reader": (lambda: train(gluon.data.DataLoader(SlowReader(), 10)), "data"),
    "reader of its own": (lambda: train(reader_of_its_own()), "data"),
    "slow transform": (
        lambda: train(gluon.data.DataLoader(arrays(30).transform(slowly), 10)),
        "transforms",
    ),
    "item() every step": (
        lambda: train(gluon.data.DataLoader(arrays(6400), 64), read=True),
        "sync points",
    ),
    "tiny operations": (tiny_operations, "Python issue"),
    "heavy products": (heavy_products, "compute"),
    "copies": (copies, "copies"),
}
SAID = {
    "slow reader": "test_profiler_report.py",
    "slow transform": "test_profiler_report.py",
    "item() every step": "loss.mean().item()",
    "tiny operations": "hybridize",
    "heavy products": "matmul",
}


@pytest.mark.parametrize("kind", PLANTED)
def test_planted(kind: str) -> None:
    work, wanted = PLANTED[kind]
    device.simulate(1, gigabytes_per_second=0.5, microseconds=20)
    try:
        work()
        npx.waitall()
        profiler.set_state("run")
        work()
        profiler.set_state("stop")
        found = profiler.report()
    finally:
        npx.waitall()
        device.simulate(0)
    assert found.bottleneck == wanted, str(found)
    assert sum(found.shares.values()) == pytest.approx(1)
    assert all(share >= 0 for share in found.shares.values())
    text = str(found)
    assert f"bottleneck: {wanted}" in text and "remedy: " in text
    if kind == "item() every step":
        assert SAID[kind] in str(profiler.sync_points())
    else:
        assert SAID.get(kind, "") in found.remedy


def test_garbage_collections() -> None:
    x, kept = np.ones((3,)), [[] for _ in range(300_000)]
    profiler.set_state("run")
    for _ in range(30):
        x = x + 1
        gc.collect()
    profiler.set_state("stop")
    found = profiler.report()
    assert found.bottleneck == "Python issue" and kept
    assert "garbage collector" in found.remedy and "gc.freeze()" in found.remedy
    assert not any("_collects" in str(callback) for callback in gc.callbacks)


def test_one_garbage_collection() -> None:
    """Longer than samples are apart, so that one is due when it ends."""
    x, kept = np.ones((3,)), [[] for _ in range(1_000_000)]
    profiler.set_state("run")
    x + 1
    gc.collect()
    profiler.set_state("stop")
    assert kept and "garbage collector" in profiler.report().remedy


def test_callbacks_of_the_collector_that_the_program_removed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(gc, "callbacks", [])
    for _ in range(2):
        profiler.set_state("run")
        gc.callbacks.clear()
        profiler.set_state("stop")
    assert not [t for t in threading.enumerate() if t.name == "gemel-sampler"]


MEMORY = """
from gemel import np, npx, profiler
xs = [np.ones((100, 20000)) for _ in range(4)]

def work():
    for _ in range(8):
        ys = [(x * 2).sum(axis=0) + np.dot(x, x[0]).sum() for x in xs]
    npx.waitall()

work()
profiler.set_state("run")
work()
profiler.set_state("stop")
found = profiler.report()
tell(bottleneck=found.bottleneck, text=str(found), held=found.held)
"""


def test_a_memory_limit() -> None:
    found = run(MEMORY, GEMEL_QUEUE_BYTES="1000")
    assert found["bottleneck"] == "memory limit", found["text"]
    assert "GEMEL_QUEUE_BYTES" in found["text"]
    assert run(MEMORY)["bottleneck"] != "memory limit"


def operation(number: int, issued: int, started: int, finished: int, size: int) -> Operation:
    """An operation with these times in microseconds and this number of bytes."""
    times = (1000 * issued, 1000 * started, 1000 * finished)
    return Operation(number, "add", "", 0, 0, 0, 0, *times, size, False, False, 1.0, "", 0)


def test_how_long_operations_waited_for_memory() -> None:
    side_by_side = [operation(1, 0, 0, 10, 60), operation(2, 1, 1, 11, 60)]
    assert held_by_memory(side_by_side, 100, 1000) == (0, 0)
    one_by_one = [operation(1, 0, 0, 10, 60), operation(2, 1, 10, 20, 60)]
    assert held_by_memory(one_by_one, 100, 1000) == (9000, 0)
    assert held_by_memory(one_by_one, 200, 1000) == (0, 0)
    assert held_by_memory(one_by_one, 0, 1000) == (0, 0)
    ahead = [
        operation(1, 0, 0, 10, 1),
        operation(2, 0, 0, 4, 600),
        operation(3, 0, 10, 12, 600),
    ]
    assert held_by_memory(ahead, 0, 500) == (0, 6000)
    assert held_by_memory(ahead, 0, 700) == (0, 0)
    assert held_by_memory([], 1, 1) == (0, 0)


def test_merged() -> None:
    assert merged([(5, 7), (1, 3), (2, 4), (6, 6), (7, 9)]) == [(1, 4), (5, 9)]


def test_samples_are_taken_only_while_it_runs() -> None:
    def threads() -> list[str]:
        return [t.name for t in threading.enumerate() if t.name == "gemel-sampler"]

    assert not threads()
    profiler.set_state("run")
    assert threads()
    profiler.pause()
    assert not threads()
    time.sleep(0.05)
    profiler.resume()
    assert "wall time" in str(profiler.report())  # also while the profiler runs
    profiler.set_state("stop")
    assert not threads()
    assert profiler.report().wall < 40
    profiler.set_state("run")
    profiler.set_state("run")
    assert len(threads()) == 1


def test_nothing_recorded() -> None:
    found = run("from gemel import profiler; tell(text=str(profiler.report()))")
    assert "set_state('run')" in found["text"]


def test_an_empty_recording() -> None:
    profiler.set_state("run")
    profiler.set_state("stop")
    found = profiler.report()
    assert sum(found.shares.values()) == pytest.approx(1)
    assert found.bottleneck == found.remedy == ""
    assert str(found).endswith("bottleneck: none, as no operations were recorded")


def test_a_forked_child_has_the_locks_for_itself() -> None:
    """Another thread may be inside the profiler when the process forks."""
    program = """
import os, signal
from gemel import np, profiler
kept = profiler._profiler
profiler.set_state("run")
with kept.lock, kept.recorder.lock:  # as another thread holds them
    child = os.fork()
    if child == 0:
        signal.alarm(20)  # ends what would wait for ever
        np.ones(3)
        profiler.dumps()
        profiler.set_state("stop")
        os._exit(7)
tell(status=os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    assert run(program)["status"] == 7


def test_another_thread_goes_on_while_it_is_read() -> None:
    """The profiler waits for what was issued before, and no longer."""
    a = np.ones((200, 200))
    stopped = threading.Event()

    def issue() -> None:
        while not stopped.is_set():
            np.dot(a, a)

    profiler.set_state("run")
    issuing = threading.Thread(target=issue)
    issuing.start()
    try:
        reading = threading.Thread(target=profiler.dumps, daemon=True)
        reading.start()
        reading.join(60)
        assert not reading.is_alive()
    finally:
        stopped.set()
        issuing.join()
        profiler.set_state("stop")
