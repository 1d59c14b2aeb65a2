"""Batches made by worker processes and threads: their values, failures and ends."""

from __future__ import annotations

import gc
import multiprocessing
import os
import random
import signal
import time
from pathlib import Path
from typing import Any

import numpy
import pytest
from programs import end

from gemel import _core, autograd, np
from gemel.gluon import data as gdata

WAYS: dict[str, dict[str, Any]] = {
    "processes": {"num_workers": 2},
    "one at a time": {"num_workers": 2, "prefetch": 0},
    "more workers than room": {"num_workers": 3, "prefetch": 1},
    "threads": {"num_workers": 2, "thread_pool": True},
}
BESIDE = pytest.mark.parametrize("way", WAYS)


class Made(gdata.Dataset):
    """Examples of several kinds, from a gemel array and from random numbers of three streams."""

    def __init__(self, size: int = 23) -> None:
        self.rows = np.arange(3 * size).reshape(size, 3)

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> Any:
        row = self.rows[index] * 2
        return row, index, numpy.full((2, 2), index, "float16"), np.random.uniform(size=(2,))


class Failing(Made):
    """Raises an error at one example."""

    error: Any = None

    def __getitem__(self, index: int) -> Any:
        if index == 7:
            raise self.error
        return index


def numbers(batch: Any) -> list[int]:
    return [int(n) for n in batch.tolist()]


def children() -> list[Any]:
    gc.collect()
    return multiprocessing.active_children()


@pytest.fixture(autouse=True)
def no_worker_is_left() -> Any:
    yield
    until = time.monotonic() + 60
    while children() and time.monotonic() < until:
        time.sleep(0.01)
    assert not children()


@BESIDE
def test_batches_are_those_made_here_in_the_same_order(way: str) -> None:
    here = list(gdata.DataLoader(Made(), 5))
    loader = gdata.DataLoader(Made(), 5, **WAYS[way])
    assert len(loader) == 5
    for _ in range(2):
        there = list(loader)
        assert len(there) == len(here)
        for a, b in zip(there, here, strict=True):
            assert type(a) is type(b) is list
            for x, y in zip(a[:3], b[:3], strict=True):
                assert x.dtype == y.dtype and x.tolist() == y.tolist()
            assert a[3].shape == b[3].shape


def draws(way: str, seed: int) -> list[Any]:
    np.random.seed(seed)
    return [batch[3].tolist() for batch in gdata.DataLoader(Made(), 5, shuffle=True, **WAYS[way])]


def test_random_numbers_follow_the_seed_whoever_draws_them() -> None:
    found = [draws(way, 3) for way in WAYS]
    assert all(each == found[0] for each in found)
    assert draws("processes", 4) != found[0]
    flat = [value for batch in found[0] for row in batch for value in row]
    assert len(set(flat)) == len(flat)


def test_recording_and_engine_workers_are_off_in_data_workers() -> None:
    class Asks(Made):
        def __getitem__(self, index: int) -> Any:
            return int(autograd.is_recording()), _core.workers()

    with autograd.record():
        batch = next(iter(gdata.DataLoader(Asks(), 3, num_workers=1)))
    assert [x.tolist() for x in batch] == [[0, 0, 0], [0, 0, 0]]


def test_each_epoch_draws_anew() -> None:
    loader = gdata.DataLoader(Made(), 5, num_workers=2)
    first, second = ([batch[3].tolist() for batch in loader] for _ in range(2))
    assert first != second


def test_other_streams_are_seeded_too() -> None:
    class Others(Made):
        def __getitem__(self, index: int) -> Any:
            return numpy.array([random.random(), numpy.random.rand()])

    def epoch() -> list[Any]:
        np.random.seed(5)
        return [batch.tolist() for batch in gdata.DataLoader(Others(), 5, num_workers=2)]

    first = epoch()
    assert first == epoch()
    flat = [value for batch in first for row in batch for value in row]
    assert len(set(flat)) == len(flat)


def test_batches_share_no_memory() -> None:
    loader = gdata.DataLoader(
        Made(), 5, batchify_fn=lambda each: [e[2] for e in each], num_workers=1
    )
    first, *others = list(loader)
    for array in first:
        array += 100
    assert all(array.max() < 100 for batch in others for array in batch)
    assert [array[0, 0] for array in first] == [100, 101, 102, 103, 104]


def test_anything_can_be_a_batch() -> None:
    def batchify(examples: list[Any]) -> Any:
        rows = [example[0] for example in examples]
        empty = np.zeros((0, 3), dtype="int32")
        text = numpy.array(["a", None], dtype=object)
        return {"rows": np.stack(rows), "texts": ["é"] * 3, "empty": empty, "o": text, "n": None}

    big = np.ones((400, 500))
    loader = gdata.DataLoader(Made(), 4, batchify_fn=batchify, num_workers=2)
    for batch in loader:
        assert batch["rows"].shape[1] == 3 and batch["texts"] == ["é"] * 3
        assert batch["empty"].shape == (0, 3) and str(batch["empty"].dtype) == "int32"
        assert batch["o"].tolist() == ["a", None] and batch["n"] is None
    grows = gdata.DataLoader(
        list(range(12)), 1, batchify_fn=lambda n: big[: 1 + 30 * n[0]], num_workers=1
    )
    assert [len(batch) for batch in grows] == [1 + 30 * n for n in range(12)]


@pytest.mark.parametrize("last_batch", ["keep", "discard", "rollover"])
def test_last_batches(last_batch: str) -> None:
    def epochs(**settings: Any) -> Any:
        dataset = gdata.SimpleDataset(list(range(7)))
        loader = gdata.DataLoader(dataset, 3, last_batch=last_batch, **settings)
        return [[numbers(batch) for batch in loader] for _ in range(3)]

    assert epochs(num_workers=2) == epochs()


def test_an_endless_sampler_is_read_as_far_as_needed() -> None:
    read = []

    class Endless(gdata.Sampler):
        def __iter__(self) -> Any:
            n = 0
            while True:
                read.append(n)
                yield [n % 5]
                n += 1

    loader = gdata.DataLoader(gdata.SimpleDataset(range(5)), batch_sampler=Endless(), num_workers=2)
    epoch = iter(loader)
    assert [numbers(next(epoch)) for _ in range(7)] == [[n % 5] for n in range(7)]
    assert len(read) <= 7 + 2 * 2
    del epoch


def test_failing_samplers_fail_in_order() -> None:
    def sampler() -> Any:
        yield from range(4)
        raise ValueError("no more")

    class Failing(gdata.Sampler):
        def __iter__(self) -> Any:
            return sampler()

        def __len__(self) -> int:
            return 10

    dataset = gdata.SimpleDataset(list(range(10)))
    epoch = iter(gdata.DataLoader(dataset, 2, sampler=Failing(), num_workers=2))
    assert [numbers(next(epoch)), numbers(next(epoch))] == [[0, 1], [2, 3]]
    with pytest.raises(ValueError, match="no more"):
        next(epoch)


# --- what fails -----------------------------------------------------------------------------


class TwoArguments(Exception):
    def __init__(self, first: Any, second: Any) -> None:
        super().__init__(first, second)


@pytest.mark.parametrize(
    "error",
    [
        ValueError("bad picture"),
        KeyError("bad picture"),
        OSError(2, "bad picture"),
        UnicodeDecodeError("utf-8", b"x", 0, 1, "bad picture"),
        TwoArguments("bad picture", 2),
        type("Local", (Exception,), {})("bad picture"),
        StopIteration("bad picture"),
        KeyboardInterrupt("bad picture"),
        SystemExit("bad picture"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_an_error_names_the_example_and_shows_where(error: BaseException) -> None:
    dataset = Failing()
    dataset.error = error
    loader = gdata.DataLoader(dataset, 3, num_workers=2)
    epoch = iter(loader)
    assert [numbers(next(epoch)) for _ in range(2)] == [[0, 1, 2], [3, 4, 5]]
    with pytest.raises(gdata.WorkerError) as found:
        next(epoch)
    text = str(found.value)
    for part in (
        "example 7",
        type(error).__name__,
        "bad picture",
        "in __getitem__",
        "raise self.e",
    ):
        assert part in text
    if type(error) in (ValueError, KeyError, OSError, TwoArguments):
        assert isinstance(found.value, type(error))
    # The epoch continues after the failed batch, and so does the loader.
    assert numbers(next(epoch)) == [9, 10, 11]
    del epoch
    assert numbers(next(iter(loader))) == [0, 1, 2]


def test_errors_of_batchify_and_of_the_engine_are_told() -> None:
    dataset = gdata.SimpleDataset([np.zeros(2), np.zeros(3)])
    with pytest.raises(ValueError, match=r"the batch of examples 0, 1: "):
        next(iter(gdata.DataLoader(dataset, 2, num_workers=1)))
    rows = np.arange(4.0)
    late = gdata.SimpleDataset([0, 9]).transform(
        lambda n: np.take(rows, np.array([n]), mode="raise")
    )
    with pytest.raises(gdata.WorkerError, match=r"example|examples"):
        list(gdata.DataLoader(late, 2, num_workers=1))


def test_threads_raise_what_the_data_set_raises() -> None:
    dataset = Failing()
    dataset.error = KeyError("bad picture")
    with pytest.raises(KeyError, match="bad picture"):
        list(gdata.DataLoader(dataset, 3, num_workers=2, thread_pool=True))


@pytest.mark.parametrize(
    ("ends", "message"),
    [
        (lambda: os.kill(os.getpid(), signal.SIGKILL), "was killed by SIGKILL.*memory"),
        (lambda: os.abort(), "was killed by SIGABRT"),
        (lambda: os._exit(3), "ended with exit code 3"),
    ],
    ids=["killed", "aborted", "exits"],
)
def test_a_worker_that_ends_is_named(ends: Any, message: str) -> None:
    class Ends(Made):
        def __getitem__(self, index: int) -> Any:
            if index == 7:
                ends()
            return index

    loader = gdata.DataLoader(Ends(), 3, num_workers=2)
    epoch = iter(loader)
    with pytest.raises(gdata.WorkerError, match=r"worker \d \(process \d+\) " + message) as found:
        list(epoch)
    assert "examples 6, 7, 8" in str(found.value)
    assert list(epoch) == []  # the epoch is over
    assert not children()
    with pytest.raises(gdata.WorkerError, match=message):
        list(loader)


def test_a_worker_killed_from_outside() -> None:
    loader = gdata.DataLoader(Made(), 3, num_workers=2)
    epoch = iter(loader)
    next(epoch)
    for worker in children():
        os.kill(worker.pid, signal.SIGKILL)
    with pytest.raises(gdata.WorkerError, match="SIGKILL"):
        list(epoch)
    # Between epochs nothing is lost; new workers take their place.
    assert len(list(loader)) == 8
    for worker in children():
        os.kill(worker.pid, signal.SIGKILL)
        worker.join()
    assert len(list(loader)) == 8


@pytest.mark.parametrize("way", ["processes", "threads"])
def test_a_batch_that_takes_too_long(way: str) -> None:
    release = multiprocessing.Event()

    class Slow(Made):
        def __getitem__(self, index: int) -> Any:
            if index == 4:
                release.wait(100)
            return index

    # The batches that are to come in time have a minute.
    epoch = iter(gdata.DataLoader(Slow(), 2, timeout=60, **WAYS[way]))
    next(epoch), next(epoch)
    assert epoch._timeout == 60
    epoch._timeout = 0.3
    with pytest.raises(gdata.WorkerError, match=r"no batch within 0.3 seconds.*timeout="):
        next(epoch)
    release.set()
    epoch._timeout = 60
    assert numbers(next(epoch)) == [6, 7]


# --- ends -----------------------------------------------------------------------------------


def test_epochs_may_be_left_and_nested() -> None:
    loader = gdata.DataLoader(Made(), 2, num_workers=2)
    for _ in range(5):
        for batch in loader:
            assert numbers(batch[1]) == [0, 1]
            break
    pairs = [(numbers(a[1])[0], numbers(b[1])[0]) for a in loader for b in loader if a[1][0] < 4]
    assert pairs == [(a, b) for a in (0, 2) for b in range(0, 23, 2)]
    workers = {worker.pid for worker in children()}
    list(loader)
    assert {worker.pid for worker in children()} == workers and len(workers) == 2


def test_loaders_inside_of_workers() -> None:
    class Nested(Made):
        def __init__(self, **settings: Any) -> None:
            super().__init__()
            self.settings = settings

        def __getitem__(self, index: int) -> Any:
            return len(list(gdata.DataLoader([1, 2, 3], 2, **self.settings)))

    for inside in ({}, {"num_workers": 1, "thread_pool": True}):
        loader = gdata.DataLoader(Nested(**inside).take(2), 2, num_workers=1)
        assert [b.tolist() for b in loader] == [[2, 2]]
    loader = gdata.DataLoader(Nested(num_workers=1).take(2), 2, num_workers=1)
    with pytest.raises(gdata.WorkerError, match="cannot start processes; use num_workers=0"):
        list(loader)


def test_descriptors_do_not_pile_up() -> None:
    def opened() -> int:
        return len(os.listdir("/proc/self/fd"))

    list(gdata.DataLoader(Made(), 5, num_workers=2))
    gc.collect()
    before = opened()
    for _ in range(3):
        list(gdata.DataLoader(Made(), 5, num_workers=2))
        next(iter(gdata.DataLoader(Made(), 5, num_workers=2)))
    gc.collect()
    until = time.monotonic() + 60
    while opened() > before and time.monotonic() < until:
        time.sleep(0.01)
    assert opened() <= before


HEAD = """
import multiprocessing, os, signal, sys, time
from gemel import np
from gemel.gluon import data as gdata
class Slow(gdata.Dataset):
    def __init__(self, seconds): self.x, self.seconds = np.arange(100), seconds
    def __len__(self): return 100
    def __getitem__(self, n):
        time.sleep(self.seconds)
        return self.x[n] + 1
def pids():
    return [child.pid for child in multiprocessing.active_children()]
"""


def gone(pids: list[int], seconds: float = 60) -> bool:
    """Whether the processes end in time. A zombie counts as ended, since nobody waits for it."""
    until = time.monotonic() + seconds

    def running(pid: int) -> bool:
        try:
            return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
        except FileNotFoundError:
            return False

    while any(running(pid) for pid in pids) and time.monotonic() < until:
        time.sleep(0.02)
    return not any(running(pid) for pid in pids)


ENDS = {
    "an exit in the middle": "sys.exit(0)",
    "an error in the middle": "raise SystemExit(0)",
    "no clean end": "os._exit(0)",
    "a kill": "os.kill(os.getpid(), signal.SIGKILL)",
}


@pytest.mark.parametrize("how", ENDS)
def test_nothing_stays_behind(how: str) -> None:
    ended = end(
        f"""{HEAD}
loader = gdata.DataLoader(Slow(0.01), 4, num_workers=2)
epoch = iter(loader)
other = iter(gdata.DataLoader(Slow(0.01), 4, num_workers=1))
next(epoch), next(other)
named = [line for line in open("/proc/self/maps") if "/dev/shm" in line and "deleted" not in line]
tell(pids=pids(), named=named)
{ENDS[how]}
""",
    )
    assert len(ended.told["pids"]) == 3 and ended.code in (0, -signal.SIGKILL), ended
    assert "Traceback" not in ended.text, ended
    assert gone(ended.told["pids"])
    assert not ended.told["named"]


def test_ctrl_c_ends_a_wait_and_the_workers() -> None:
    ended = end(
        f"""{HEAD}
loader = gdata.DataLoader(Slow(60), 4, num_workers=2, timeout=None)
try:
    epoch = iter(loader)
    tell(pids=pids())
    # As a terminal does: the workers get it, too.
    os.setpgid(0, 0) if os.getpgid(0) != os.getpid() else None
    for pid in pids():
        os.kill(pid, signal.SIGINT)
    next(epoch)
except KeyboardInterrupt:
    tell(interrupted=True)
""",
        interrupt=True,
    )
    assert ended.code == 0 and ended.told.get("interrupted"), ended
    assert ended.text.count("Traceback") == 0, ended
    assert gone(ended.told["pids"])


def test_the_loader_restarts_after_ctrl_c() -> None:
    ended = end(
        f"""{HEAD}
loader = gdata.DataLoader(Slow(0.05), 4, num_workers=2)
epoch = iter(loader)
next(epoch)
signal.signal(signal.SIGALRM, signal.default_int_handler)
try:
    signal.setitimer(signal.ITIMER_REAL, 0.3)
    while True:
        next(epoch)
except KeyboardInterrupt:
    tell(over=list(epoch))
loader._dataset.seconds = 0
tell(again=len(list(loader)))
""",
    )
    assert ended.told == {"over": [], "again": 25} and ended.code == 0, ended


def test_a_worker_that_hangs_does_not_outlive_the_program() -> None:
    ended = end(
        f"""{HEAD}
epoch = iter(gdata.DataLoader(Slow(600), 4, num_workers=2))
tell(pids=pids())
os.kill(os.getpid(), signal.SIGKILL)
""",
    )
    assert gone(ended.told["pids"])


def test_a_fork_leaves_the_workers_to_the_program() -> None:
    ended = end(
        f"""{HEAD}
loader = gdata.DataLoader(Slow(0), 4, num_workers=2)
epoch = iter(loader)
first = next(epoch)
pid = os.fork()
if pid == 0:
    signal.alarm(60)
    try:
        next(epoch)
        os._exit(2)
    except gdata.WorkerError as error:
        assert f"process {{os.getppid()}} began this epoch" in str(error)
    mine = [int(batch[0]) for batch in loader]
    del epoch, loader
    os._exit(0 if mine == list(range(1, 101, 4)) else 1)
tell(child=os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
tell(left=[int(batch[0]) for batch in epoch] == list(range(5, 101, 4)))
tell(again=len(list(loader)))
""",
    )
    assert ended.told == {"child": 0, "left": True, "again": 25} and ended.code == 0, ended


def test_workers_start_beside_threads_that_compute() -> None:
    ended = end(
        f"""{HEAD}
import threading
a = np.ones((200, 200))
stop = False
def computes():
    while not stop:
        float(np.dot(a, a)[0, 0])
threads = [threading.Thread(target=computes, daemon=True) for _ in range(2)]
for thread in threads: thread.start()
for _ in range(5):
    loader = gdata.DataLoader(Slow(0), 10, num_workers=2)
    assert len(list(loader)) == 10
stop = True
found = []
def epoch():
    found.append(len(list(gdata.DataLoader(Slow(0), 10, num_workers=2))))
thread = threading.Thread(target=epoch)
thread.start(); thread.join(100)
tell(found=found)
""",
    )
    assert ended.told == {"found": [10]} and ended.code == 0, ended


def test_workers_print_once() -> None:
    ended = end(
        f"""{HEAD}
class Prints(Slow):
    def __getitem__(self, n):
        sys.stdout.write("example %d\\n" % n)  # at once: the others print, too
        return n
print("begins", end=" ")
list(gdata.DataLoader(Prints(0).take(4), 2, num_workers=2))
""",
    )
    assert ended.text.count("begins") == 1, ended
    assert sorted(line for line in ended.text.splitlines() if "example" in line)[-1].endswith("3")
    assert ended.text.count("example") == 4, ended
