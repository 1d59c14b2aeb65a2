"""Operations done in Python: NumPy-backed ones and callbacks, run by the engine."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading
import time
import weakref

import numpy
import pytest
from gates import reader
from programs import Shell

from gemel import _core, cpu, device, gpu, np, npx
from gemel.errors import ShapeError
from gemel.runtime import callback


def busy() -> np.ndarray:
    """A computation that takes a while, so that whatever reads its result is queued."""
    a = np.ones((700, 700))
    return np.dot(a, a)


def test_a_callback_runs_later_and_its_result_is_an_array():
    x = busy()
    doubled = npx.callback(lambda v: v * 2, x, outputs=((700, 700), "float32"))
    assert (doubled + 1)[3, 3].item() == 1401


def test_issuing_a_callback_does_not_wait():
    x = np.ones((4,))
    with reader(x):
        x += 1  # not ready, so the caller cannot run the callback itself
        y = npx.callback(lambda v: v * 2, x, outputs=((4,), "float32"))
    assert y.tolist() == [4] * 4


def test_issuing_a_callback_does_not_wait_for_another_one():
    begun, over, in_time = threading.Event(), threading.Event(), []

    def hold(v: numpy.ndarray) -> numpy.ndarray:
        begun.set()
        in_time.append(over.wait(60))
        return v

    x = np.ones((4,))
    with reader(x):
        x += 1
        held = npx.callback(hold, x, outputs=((4,), "float32"))
    assert begun.wait(60)
    y = npx.callback(lambda v: v * 2, held + 1, outputs=((4,), "float32"))
    over.set()
    assert y.tolist() == [6] * 4
    assert in_time == [True]


def test_issuing_a_callback_does_not_wait_for_what_ends_outside_of_the_engine():
    """As sums over processes do, which may need what is issued next."""
    desk, issued, in_time = _core.Desk(), threading.Event(), []
    x = np.ones((3,))
    (pulled,) = desk.issue(1, "pull of w", [x], [(x.dtype.code, (3,))])

    def end() -> None:
        errand = desk.take(10.0)
        in_time.append(issued.wait(60))
        for output in errand.outputs:
            output.cast("B")[:] = bytes(12)
        errand.end(None)

    thread = threading.Thread(target=end)
    thread.start()
    y = npx.callback(lambda v: v + 2, pulled, outputs=((3,), "float32"))
    issued.set()
    thread.join()
    assert y.tolist() == [2] * 3
    assert in_time == [True]


def test_a_waiting_callback_runs_nothing_that_it_need_not_wait_for():
    """A write that is issued after it began to wait, and all that this write waits for."""
    large, target, done = np.ones((1500, 1500)), np.zeros((1,)), np.zeros((1,))
    begun, over, in_time = threading.Event(), threading.Event(), []
    y = np.dot(large, large)

    def waits(_: numpy.ndarray) -> None:
        begun.set()
        y.wait_to_read()

    callback.issue("waits", waits, [], [], [done])
    assert begun.wait(60)
    callback.issue("holds", lambda _: in_time.append(over.wait(60)), [], [], [target])
    y[:1, :1] += target
    done.wait_to_read()
    over.set()
    npx.waitall()
    assert in_time == [True]


def test_several_results_views_and_dtypes():
    x = np.arange(12).reshape((3, 4))

    def split(v: numpy.ndarray) -> tuple[numpy.ndarray, numpy.ndarray]:
        return v.sum(axis=0), v > 5

    total, large = npx.callback(split, x.T, outputs=[((3,), "int64"), ((4, 3), "bool")])
    assert total.tolist() == x.asnumpy().T.sum(axis=0).tolist()
    assert large.tolist() == (x.asnumpy().T > 5).tolist()


# engine.md 9
@pytest.mark.parametrize("queued", [False, True])
def test_exceptions_of_callbacks_are_sticky(queued):
    x = busy() if queued else np.ones((700, 700))

    def fail(v: numpy.ndarray) -> numpy.ndarray:
        raise KeyError("no such thing")

    bad = npx.callback(fail, x, outputs=((2,), "float32"))
    after = bad + 1
    for array in (bad, after, bad):
        with pytest.raises(KeyError, match=r"fail: 'no such thing'.*test_python_lane\.py"):
            array.asnumpy()
    assert (x[0, 0] + 1).item() in (2, 701)


def test_exceptions_of_callbacks_are_dropped_by_any_thread():
    class OddError(Exception):
        pass

    raised = weakref.WeakSet()

    def fail(a):
        error = OddError("odd")
        raised.add(error)
        raise error

    x = np.ones((200, 200))
    for _ in range(50):
        y = npx.callback(fail, x, outputs=((200, 200), "float32"))
        with pytest.raises(OddError):
            y.wait_to_read()
        y[:] = np.dot(x, x)  # the thread that runs this drops the failure
    npx.waitall()
    end = time.monotonic() + 60
    while raised and time.monotonic() < end:  # that thread may still be running
        gc.collect()
        time.sleep(0.01)
    assert not raised


def test_a_wrong_shape_is_a_failure():
    bad = npx.callback(lambda v: v, np.ones(3), outputs=((2,), "float32"))
    with pytest.raises(ShapeError, match=r"returned shape \(3,\)"):
        bad.asnumpy()


# engine.md 25
def test_a_callback_may_wait():
    other = busy()
    seen = []

    def reads(v: numpy.ndarray) -> numpy.ndarray:
        seen.append(other.sum().item())
        return v + np.dot(np.ones((300, 300)), np.ones((300, 300)))[0, 0].item()

    x = npx.callback(reads, busy()[0], outputs=((700,), "float32"))
    y = npx.callback(reads, x, outputs=((700,), "float32"))
    assert y[5].item() == 700 + 600
    assert seen == [700.0**3] * 2


def test_a_callback_may_wait_for_another_callback():
    def outer(v: numpy.ndarray) -> numpy.ndarray:
        inner = npx.callback(lambda w: w + 1, busy()[0, :3], outputs=((3,), "float32"))
        return v + inner.asnumpy()

    x = npx.callback(outer, busy()[0, :3], outputs=((3,), "float32"))
    assert x.tolist() == [1401.0] * 3


def test_order_with_in_place_writes():
    x = np.zeros((400, 400))
    results = []
    for step in range(20):
        x += 1
        results.append(npx.callback(lambda v: v[0, :2], x, outputs=((2,), "float32")))
        x[np.array([step % 400])] = float(-step)
    assert [r[1].item() for r in results[1:3]] == [1 - 0 + 0, 2.0]
    expected = numpy.zeros((400, 400), "float32")
    for step in range(20):
        expected += 1
        expected[[step % 400]] = -step
    assert (x.asnumpy() == expected).all()


def test_writing_to_positions_does_not_wait():
    x, index = np.zeros((700, 700)), np.array([1, 3])
    rows = busy()[:2]
    x[index] = rows
    x[x > 1] = 5
    assert x.sum().item() == 5 * 1400
    with pytest.raises(ShapeError, match=r"float32\[3\] does not broadcast.*\(2, 700\)"):
        x[index] = np.ones(3)
    x[np.array([900])] = 1
    with pytest.raises(IndexError, match="900"):
        x.asnumpy()


def test_argsort_is_asynchronous_and_permutations_are_right():
    order = np.random.permutation(1000)
    assert sorted(order.tolist()) == list(range(1000))


def test_callbacks_on_a_gpu():
    device.simulate(1)
    try:
        x = np.arange(4, device=gpu(0))
        y = npx.callback(lambda v: v + 1, x, outputs=((4,), "int64"))
        assert y.device == gpu(0) and y.tolist() == [1, 2, 3, 4]
        x[np.array([0, 2])] = np.array([7, 8], device=gpu(0))
        assert x.tolist() == [7, 1, 8, 3]
    finally:
        npx.waitall()
        device.simulate(0)


# engine.md 26
def test_from_many_threads():
    def work(seed: int, out: list[float]) -> None:
        x = np.full((50,), float(seed))
        for _ in range(50):
            x = npx.callback(lambda v: v + 1, x * 1, outputs=((50,), "float32"))
        out.append(x[7].item() - seed)

    out: list[float] = []
    threads = [threading.Thread(target=work, args=(seed, out)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert out == [50.0] * 8


CELLS = """
import gemel
from IPython.core.interactiveshell import InteractiveShell
shell = InteractiveShell.instance()
shell.run_cell("import gemel; from gemel import np, npx")
shell.run_cell("%load_ext gemel")
shell.run_cell("bad = np.arange(3)[np.array([7])]")
print("second cell", flush=True)
shell.run_cell("npx.synchronize(gemel.cpu())")
shell.run_cell("1 + 1")
"""


def test_a_notebook_shows_failures_after_the_cell():
    pytest.importorskip("IPython")
    found = subprocess.run(
        [sys.executable, "-c", CELLS],
        env={**os.environ, "GEMEL_WORKERS": "0"},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert found.returncode == 0, found.stderr
    assert found.stderr.count("IndexError: take") == 1, found.stderr


# engine.md 16
def test_the_report_after_a_cell(capsys):
    from gemel.process import notebook

    shell = Shell()
    notebook.install(shell)
    notebook.install(shell)
    (report,) = shell.callbacks
    _core.set_file_namer(str)
    npx.waitall()
    bad = np.arange(3)[np.array([7])]
    npx.synchronize(cpu())
    report(None)
    assert "IndexError" in capsys.readouterr().err
    report(None)
    assert capsys.readouterr().err == ""
    npx.waitall()  # already seen: not raised again
    with pytest.raises(IndexError):
        bad.asnumpy()


# engine.md 31
def test_serial():
    _core.configure(serial=True)
    try:
        x = npx.callback(lambda v: v + busy()[0, 0].item(), busy(), outputs=((700, 700), "float32"))
        assert x[0, 0].item() == 1400
    finally:
        _core.configure(serial=False)
