"""Threads that use the same array, full queue, lock or call site, or that have a small stack."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from programs import TIMES, end

from gemel import _core, np, npx

# --- a read is an operation in the queue ----------------------------------------------------


@contextmanager
def written(x: Any, most: float) -> Iterator[threading.Thread]:
    """While the block runs, a thread overwrites all of x, again and again."""
    stop = threading.Event()
    timer = threading.Timer(most, stop.set)

    def write() -> None:
        number = 0
        while not stop.is_set():
            number += 1
            x[:] = number % 1000

    thread = threading.Thread(target=write)
    timer.start()
    thread.start()
    try:
        yield thread
    finally:
        stop.set()
        timer.cancel()
        thread.join()
        npx.waitall()


READS = {
    "tolist": lambda x: set(x.tolist()),
    "asnumpy": lambda x: set(x.asnumpy().tolist()),
    "to_bytes": lambda x: set(memoryview(_core.to_bytes(x)).cast("f")),
    "a sum": lambda x: {(x - x[0]).max().item(), 0.0},
    "a view": lambda x: set(x.reshape(300, 1000)[::2, ::-1].tolist()[7]),
}


# engine.md 1, 2
@pytest.mark.parametrize("way", ["tolist", "to_bytes", "asnumpy", "a view"])
def test_reads_are_consistent_under_concurrent_writes(way: str) -> None:
    x = np.zeros((300_000,))
    with written(x, 2) as writer:
        for _ in range(60):
            assert len(READS[way](x)) == 1
            if not writer.is_alive():
                break


# engine.md 4
@pytest.mark.parametrize("way", READS)
def test_a_read_comes_before_writes_issued_after_it(way: str) -> None:
    """However long the writer continues."""
    x = np.zeros((300_000,))
    with written(x, 60) as writer:
        READS[way](x)
        assert writer.is_alive(), "the read waited for the writer to end"


# --- a full queue ---------------------------------------------------------------------------


# engine.md 25
@pytest.mark.parametrize("workers", ["0", "1", ""])
def test_a_callback_issues_into_a_full_queue(workers: str) -> None:
    """The queue is full of operations that wait for the callback."""
    ended = end(
        """
        import os, threading
        from gemel import _core, np, npx
        big = np.ones((500, 500))
        x = np.ones((4,))
        npx.waitall()
        started, full = threading.Event(), threading.Event()
        def callback(v):
            started.set()
            full.wait(60)
            return v * float(np.dot(big, big)[0, 0])
        def other():
            started.wait()
            for i in range(64):
                if i == 12:
                    threading.Timer(0.3, full.set).start()
                x[:] = 3.0                          # waits for the callback, which reads x
        threading.Timer(0.8, full.set).start()
        threading.Thread(target=other, daemon=True).start()
        y = npx.callback(callback, x, outputs=((4,), "float32"))
        tell(y=y.tolist())
        os._exit(0)
        """,
        GEMEL_QUEUE_OPS="8",
        GEMEL_WORKERS=workers or None,
    )
    assert ended.told == {"y": [500.0] * 4}, ended


# --- a wait under a lock --------------------------------------------------------------------


# engine.md 25
@pytest.mark.parametrize("workers", [0, 1, 2])
def test_a_waiting_thread_runs_only_callbacks_it_waits_for(workers: int) -> None:
    """It may hold a lock that another callback takes (a logger's, say)."""
    a = np.ones((800, 800))
    waiting = [False]
    foreign = []

    def logs(v: Any) -> Any:
        if waiting[0] and threading.current_thread() is threading.main_thread():
            foreign.append(v[0, 0])
        return v

    _core.set_workers(workers)
    try:
        for _ in range(30):
            called = npx.callback(logs, np.dot(a, a), outputs=((800, 800), "float32"))
            y = np.dot(np.dot(np.dot(a, a), a), a)
            waiting[0] = True
            y.wait_to_read()
            waiting[0] = False
            assert called[0, 0].item() == 800
    finally:
        _core.set_workers(-1)
    assert not foreign, f"{len(foreign)} of 30 waits ran a callback that was not waited for"


# --- a call site ----------------------------------------------------------------------------

REPLACED = """
import gc, threading, time
import gemel
from gemel import cpu, gluon, init, np, npx
net = gluon.nn.Dense(256, in_units=256, use_bias=False)
net.initialize(init.One())
call = gemel.compile(lambda v: npx.relu(np.dot(v, net.weight.data())))
x = np.ones((512, 256))
for _ in range(2):
    call(x).wait_to_read()
big = np.ones((4000, 4000))
small = np.ones((1600, 1600))
npx.waitall()
got = []
kept = np.dot(small, small), np.dot(big, big)                  # the queue of two is full
thread = threading.Thread(target=lambda: got.append(call(x)))  # waits for room
thread.start()
time.sleep(0.05)
net.weight.reset_device(cpu(1))
net.weight.reset_device(cpu(0))
y = call(x)                                                    # the site learns of the new array
gc.collect()
junk = [np.full((256, 256), 777.0 + i) for i in range(32)]     # takes the old one's memory
thread.join()
tell(found=float(got[0][0, 0]))
"""


# engine.md 19
@pytest.mark.parametrize("times", [2, pytest.param(TIMES // 10, marks=pytest.mark.slow)])
def test_a_call_that_waits_for_room_keeps_its_parameters(times: int) -> None:
    for _ in range(times):
        ended = end(REPLACED, GEMEL_QUEUE_OPS="2")
        assert ended.told == {"found": 256.0}, ended


# --- a kernel needs more stack than its thread has --------------------------------------------

SMALL_STACK = """
import threading
from gemel import np, npx

def work(found):
    for dtype in ("float32", "bfloat16", "int8"):
        x, images = np.ones((300, 300), dtype=dtype), np.ones((2, 8, 40, 40), dtype=dtype)
        found.append(float(np.matmul(x, x).astype("float32").sum()))
        if dtype != "int8":
            weights = np.ones((8, 8, 3, 3), dtype=dtype)
            seen = npx.convolution(images, weights, no_bias=True, kernel=(3, 3), num_filter=8)
            found.append(float(seen.astype("float32").sum()))

runs = [], []
work(runs[0])  # compiles: that takes more stack
threading.stack_size(65536)
thread = threading.Thread(target=work, args=(runs[1],))
thread.start()
thread.join()
tell(same=runs[0] == runs[1], count=len(runs[1]))
"""


# engine.md 31
@pytest.mark.parametrize("setting", ["GEMEL_WORKERS=0", "GEMEL_ENGINE=serial", "GEMEL_WORKERS=1"])
def test_a_thread_with_a_small_stack_computes(setting: str) -> None:
    """Kernels of products keep up to 0.45 MiB on the stack."""
    name, value = setting.split("=")
    ended = end(SMALL_STACK, **{name: value})
    assert ended.told == {"same": True, "count": 5}, ended
