"""The end of a program while other threads go on, and Ctrl-C in waits and in programs."""

from __future__ import annotations

from pathlib import Path

import pytest
from programs import ENDLESS, IMPORTING, PATIENCE, TIMES, busy, end

#: The main thread ends while a daemon thread computes, waiting for results in one way.
WAITING = """
import threading, time
from gemel import np, npx
w = np.ones((400, 400))
np.dot(w, w).wait_to_read()
ways = {
    "waitall": npx.waitall,
    "asnumpy": lambda: np.dot(w, w).asnumpy(),
    "wait_to_read": lambda: np.dot(w, w).wait_to_read(),
}
def work():
    while True:
        np.dot(w, w)
        ways[WAY]()
threading.Thread(target=work, daemon=True).start()
time.sleep(0.2)
tell(ends="now")
"""

#: The main thread ends while three threads do everything in turns.
BUSY = """
import random, threading, time
import gemel
from gemel import gpu, np, npx
gemel.device.simulate(1)
shared = np.zeros((400, 400))
w = np.ones((400, 400))
npx.waitall()
f = gemel.compile(lambda a, b: npx.relu(np.dot(a, b) + 1))
def assign(i):
    shared[i] = 1.0
ways = [
    lambda r: assign(r.randrange(400)),
    lambda r: float((shared + w)[0, 0]),
    lambda r: f(shared, w),
    lambda r: f(shared, w).wait_to_read(),
    lambda r: npx.callback(lambda a: a * 2, shared, outputs=((400, 400), "float32")),
    lambda r: shared.as_in_ctx(gpu(0)) + 1,
    lambda r: memoryview(w).release(),
    lambda r: npx.waitall(),
    lambda r: shared.asnumpy(),
]
def work(seed):
    r = random.Random(seed)
    while True:
        r.choice(ways)(r)
for i in range(3):
    threading.Thread(target=work, args=(SEED * 10 + i,), daemon=True).start()
time.sleep(0.05 + 0.02 * (SEED % 12))
tell(ends="now")
"""

KINDS = ("waitall", "asnumpy", "wait_to_read", "everything")


def exit_beside_threads(kind: str, times: int) -> None:
    for seed in range(times):
        program = BUSY if kind == "everything" else WAITING
        ended = end(f"WAY, SEED = {kind!r}, {seed}\n{program}")
        assert ended.told == {"ends": "now"}, ended
        assert ended.code == 0, f"exit {seed}: {ended}"
        assert ended.after < 20 * PATIENCE, f"exit {seed}: {ended}"


# engine.md 30
@pytest.mark.parametrize("kind", KINDS)
def test_exit_beside_daemon_threads(kind: str) -> None:
    exit_beside_threads(kind, 3)


@pytest.mark.parametrize("slow", ["gemel.runtime.single", "llvmlite.utils", "numpy.linalg"])
def test_exit_waits_for_the_imports_of_a_daemon_thread(slow: str, tmp_path: Path) -> None:
    """At exit CPython would free a lock that a thread in the middle of an import waits for."""
    program = f"SLOW = {slow!r}\n{IMPORTING}\nprint('ends')"
    ended = end(program, GEMEL_CACHE=str(tmp_path))
    assert ended.code == 0 and ended.told == {"imported": True}, ended


def test_exit_beside_a_thread_that_compiles(tmp_path: Path) -> None:
    """It waits for the kernels that are being made, and not in vain."""
    ended = end(
        """
        import threading, time
        import gemel
        from gemel import np
        def work():
            x = np.ones((5, 7))
            for number in range(2**20, 2**21):
                def chain(x):
                    for digit in f"{number:b}":
                        x = np.exp(x) if digit == "1" else np.tanh(x)
                    return x, x.sum(axis=0)
                gemel.compile(chain)(x)
                compiled.set()
        compiled = threading.Event()
        threading.Thread(target=work, daemon=True).start()
        compiled.wait(60)
        time.sleep(0.1)
        tell(ends="now")
        """,
        GEMEL_CACHE=str(tmp_path),
    )
    assert ended.code == 0 and ended.told == {"ends": "now"}, ended
    assert ended.after < 4 * PATIENCE, ended


@pytest.mark.slow
@pytest.mark.parametrize("others", [0, 2])
@pytest.mark.parametrize("kind", KINDS)
def test_many_exits_beside_daemon_threads(kind: str, others: int) -> None:
    with busy(others):
        exit_beside_threads(kind, TIMES // 2)


# engine.md 28
@pytest.mark.parametrize("wait", ["last.wait_to_read()", "npx.waitall()", "last.asnumpy()"])
def test_control_c_ends_a_wait_for_one_long_operation(wait: str) -> None:
    """The wait ends before the tile or operation that the waiting thread works on."""
    ended = end(
        f"""
        import os, signal, threading
        from gemel import _core, np, npx
        last = {ENDLESS}
        try:
            threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
            {wait}
        except KeyboardInterrupt:
            tell(running=_core.counters()["pending"])
        os._exit(0)
        """
    )
    assert ended.told == {"running": 1}, ended


# engine.md 28, 30
def test_control_c_ends_the_program() -> None:
    """Queued operations are abandoned."""
    ended = end(
        f"""
        import signal
        from gemel import np, npx
        signal.signal(signal.SIGINT, signal.default_int_handler)
        a = np.ones((2000, 2000))
        products = [np.dot(a, a) * {ENDLESS} for _ in range(60)]
        tell(queued=len(products))
        npx.waitall()
        tell(interrupted=False)
        """,
        interrupt=True,
    )
    assert ended.told == {"queued": 60} and "KeyboardInterrupt" in ended.text, ended
    assert ended.code not in (None, 0), ended
