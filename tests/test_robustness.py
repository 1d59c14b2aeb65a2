"""Threads, forks, signals and exits. Each program runs in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig

import pytest
from programs import ENDLESS

from gemel import _core, np, npx

BUSY = """
import os, signal, sys, threading, time
import gemel
from gemel import _core, np, npx
big = np.random.normal(size=(1500, 1500))
def busy(count=40):
    return [np.dot(big, big) for _ in range(count)]
def chain(count=40):
    last = big
    for _ in range(count):
        last = np.dot(last, big) * 0.02
    return last
"""


def run(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the helpers in BUSY, then `code`, in a fresh process."""
    return subprocess.run(
        [sys.executable, "-c", BUSY + code],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=600,
    )


# --- Ctrl-C ---------------------------------------------------------------------------------

WAITS = {
    "waitall": "npx.waitall()",
    "wait_to_read": "last.wait_to_read()",
    "synchronize": "npx.synchronize(gemel.cpu())",
    "asnumpy": "last.asnumpy()",
    "item": "last[0, 0].item()",
    "float": "float(last.sum())",
    "print": "print(last)",
    "tolist": "last.tolist()",
    "buffer": "memoryview(last)",
    "dlpack": "last.__dlpack__()",
    "nonzero": "np.nonzero(last)",
    "pickle": "import pickle; pickle.dumps(last)",
    "room in the queue": "chain(100)",
    "an exported array": "shared = memoryview(big); np.dot(last, last).wait_to_read()",
}


# engine.md 28
@pytest.mark.parametrize("wait", WAITS)
def test_control_c_interrupts(wait):
    code = f"""
last = big * {ENDLESS}
try:
    threading.Timer(0.25, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
    {WAITS[wait]}
    print("not interrupted")
except KeyboardInterrupt:
    print("interrupted")
print((np.ones(2) + 1).tolist())
os._exit(0)
"""
    environment = {"GEMEL_QUEUE_OPS": "50"} if wait == "room in the queue" else {}
    found = run(code, **environment)
    assert found.stdout.split("\n")[:2] == ["interrupted", "[2.0, 2.0]"], found


def test_control_c_in_a_callback_ends_the_wait():
    code = """
over = threading.Event()
def slow(v):
    threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
    over.wait(60)
    return v
y = npx.callback(slow, chain(3), outputs=((1500, 1500), "float32"))
try:
    y.asnumpy()
    print("not interrupted")
except KeyboardInterrupt:
    print("interrupted")
os._exit(0)
"""
    found = run(code)
    assert found.stdout.strip() == "interrupted", found


# engine.md 30
@pytest.mark.parametrize("moment", ["waiting", "at exit"])
def test_control_c_ends_the_program(moment):
    """Queued and running operations are abandoned."""
    code = f"""
queued = [big * {ENDLESS} for _ in range(8)]
timer = threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGINT))
timer.daemon = True
timer.start()
"""
    found = run(code + ("npx.waitall()" if moment == "waiting" else ""))
    assert found.returncode == (-2 if moment == "waiting" else 0), found


# --- threads --------------------------------------------------------------------------------


def test_arrays_made_and_dropped_by_many_threads():
    code = """
def work(seed):
    random = __import__("random").Random(seed)
    kept = []
    for step in range(1250):
        x = np.full((random.choice((2, 300, 5000)),), float(seed))
        kept.append(x * 2 + step)
        if len(kept) > 20:
            y = kept.pop(random.randrange(len(kept)))
            if random.random() < 0.2:
                assert y[0].item() >= 2 * seed
    totals[seed] = sum((y - y + seed)[0].item() for y in kept)
totals = {}
threads = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
[t.start() for t in threads]
[t.join() for t in threads]
npx.waitall()
print([totals[s] for s in range(8)] == [20.0 * s for s in range(8)], _core.counters()["pending"])
"""
    found = run(code)
    assert found.stdout.split() == ["True", "0"], found.stderr


# engine.md 27
def test_threads_write_to_one_array_and_wait_for_it():
    x = np.zeros((300, 300))

    def add() -> None:
        for _ in range(50):
            np.add.into(x, x, 1.0)
            x[0, 0].item()

    import threading

    threads = [threading.Thread(target=add) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert x[0, 0].item() == 200 and x[299, 299].item() == 200


def test_a_failure_raised_in_another_thread():
    code = """
def work():
    try:
        bad.asnumpy()
    except IndexError as error:
        print("raised", "issued at <string>" in str(error))
bad = np.arange(3)[np.array([8])]
thread = threading.Thread(target=work)
thread.start()
thread.join()
"""
    found = run(code)
    assert (found.returncode, found.stdout.strip()) == (0, "raised True"), found.stderr


# engine.md 25
def test_a_waiting_thread_runs_no_foreign_callback():
    code = """
lock = threading.Lock()
def f(v):
    with lock:
        return v
for _ in range(10):
    called = npx.callback(f, np.dot(big, big), outputs=((1500, 1500), "float32"))
    last = chain(3)
    with lock:
        last.wait_to_read()
    called.wait_to_read()
print("done")
"""
    assert run(code, GEMEL_WORKERS="1").stdout.strip() == "done"


# engine.md 19
def test_a_callback_run_by_its_own_call_needs_no_room():
    code = """
x = np.ones((4,)); npx.waitall()
started = threading.Event()
def f(v):
    started.set()
    time.sleep(0.3)
    return v * float(np.dot(big, big)[0, 0] * 0 + 1)
def other():
    started.wait()
    for i in range(64):
        kept.append(x + i)
        x[:] = 3.0
kept = []
threading.Thread(target=other, daemon=True).start()
print(npx.callback(f, x, outputs=((4,), "float32")).tolist())
os._exit(0)
"""
    found = run(code, GEMEL_QUEUE_OPS="8")
    assert found.stdout.strip() == "[1.0, 1.0, 1.0, 1.0]", found.stderr


# engine.md 41
def test_no_room_for_another_thread():
    code = """
import resource
gemel.device.simulate(1)
np.ones((50, 50)).sum().item(), (np.ones((1000, 1000)) + 1).asnumpy()
room = int(open("/proc/self/statm").read().split()[0]) * 4096 + (4 << 20)
resource.setrlimit(resource.RLIMIT_AS, (room, room))
print(np.ones((50, 50), device=gemel.gpu(0)).sum().item())
"""
    assert run(code).stdout.strip() == "2500.0"


# engine.md 15
def test_failures_beyond_those_remembered_are_counted():
    code = """
x = np.ones((10, 10)); i = np.array([99])
for _ in range(1500): np.take(x, i, axis=0)
try:
    npx.waitall()
except IndexError as error:
    print(str(error).count("out of bounds"), "and 1400 more" in str(error))
"""
    found = run(code)
    assert (found.stdout.strip(), found.returncode) == ("100 True", 0), found.stderr


# engine.md 20
def test_workspaces_count_in_the_bound_of_the_queue():
    code = """
f = gemel.compile(lambda a: np.sum(np.dot(np.dot(a, a), np.dot(a, a))))
f(big).wait_to_read()
npx.waitall(); _core.reset_peak()
f(big).wait_to_read()
one = _core.counters()["peak_bytes"]
results = [f(big) for _ in range(6)]
npx.waitall()
print(_core.counters()["peak_bytes"] <= one + (1 << 20))
"""
    found = run(code, GEMEL_QUEUE_BYTES=str(16 << 20), GEMEL_WORKERS="3")
    assert found.stdout.strip() == "True", found.stderr


# --- fork and spawn -------------------------------------------------------------------------


# engine.md 29
def test_fork_while_threads_issue():
    code = """
stop = threading.Event()
def work():
    x = np.ones((200, 200))
    while not stop.is_set():
        x = np.dot(x, x) / 200
threads = [threading.Thread(target=work) for _ in range(2)]
[t.start() for t in threads]
codes = []
for _ in range(5):
    busy(2)
    child = os.fork()
    if child == 0:
        y = np.dot(np.ones((300, 300)), np.ones((300, 300)))
        z = npx.callback(lambda v: v + 1, y, outputs=((300, 300), "float32"))
        os._exit(0 if z[0, 0].item() == 301 else 1)
    codes.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
stop.set()
[t.join() for t in threads]
print(codes, (np.ones(2) + 1).tolist())
"""
    found = run(code)
    assert found.stdout.strip() == "[0, 0, 0, 0, 0] [2.0, 2.0]", found.stderr


# engine.md 29
def test_a_fork_waits_for_a_callback_that_imports():
    code = """
def f(x):
    time.sleep(0.1)
    import decimal
    return x * 2
y = npx.callback(f, chain(2), outputs=((1500, 1500), "float32"))
child = os.fork()
if child == 0: os._exit(0)
print(os.waitpid(child, 0)[1])
"""
    assert run(code).stdout.strip() == "0"


def test_a_forked_child_sees_simulated_gpus_work():
    code = """
x = np.ones((50, 50), device=gemel.gpu(0))
np.dot(x, x).wait_to_read()
child = os.fork()
y = np.dot(x, x).as_in_ctx(gemel.cpu())
right = y[0, 0].item() == 50
if child == 0:
    os._exit(0 if right else 1)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), right)
"""
    found = run(code, GEMEL_SIMULATED_GPUS="1")
    assert found.stdout.strip() == "0 True", found.stderr


# engine.md 29
@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_worker_processes(method, tmp_path):
    script = tmp_path / "pool.py"
    script.write_text(
        "import multiprocessing\n"
        "from gemel import np\n"
        "def work(n):\n"
        "    return float(np.dot(np.ones((n, 300)), np.ones((300, n)))[0, 0])\n"
        "if __name__ == '__main__':\n"
        "    a = np.ones((900, 900))\n"
        "    queued = [np.dot(a, a) for _ in range(5)]\n"
        f"    context = multiprocessing.get_context('{method}')\n"
        "    with context.Pool(2) as pool:\n"
        "        print(pool.map(work, [2, 300, 400]), queued[-1][0, 0].item())\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    found = subprocess.run(
        [sys.executable, str(script)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert found.stdout.strip() == "[300.0, 300.0, 300.0] 900.0", found.stderr


# --- exits ----------------------------------------------------------------------------------

EXITS = {
    "with work queued": ("busy()", 0),
    "with work queued and sys.exit": ("busy(); sys.exit(3)", 3),
    "with an exception": ("busy(); raise SystemError('mine')", 1),
    "with a pending error": ("a = busy(); bad = np.arange(3)[np.array([8])]", 70),
    "with a pending error and a code": ("bad = np.arange(3)[np.array([8])]; sys.exit(3)", 70),
    "in a daemon thread that issues": (
        "def work():\n    x = np.ones((300, 300))\n    while True: x = np.dot(x, x) / 300\n"
        "threading.Thread(target=work, daemon=True).start(); time.sleep(0.2)",
        0,
    ),
    "in a daemon thread that waits": (
        "def work():\n    while True: busy(3)[-1].asnumpy()\n"
        "threading.Thread(target=work, daemon=True).start(); time.sleep(0.2)",
        0,
    ),
    "in daemon threads that do everything": (
        "import random; gemel.device.simulate(1)\n"
        "shared = np.zeros((400, 400)); w = np.ones((400, 400))\n"
        "f = gemel.compile(lambda a, b: np.dot(a, b) + 1)\n"
        "ways = [lambda: f(shared, w).wait_to_read(), npx.waitall, shared.asnumpy,\n"
        "    lambda: npx.callback(lambda a: a * 2, w, outputs=((400, 400), 'float32')),\n"
        "    lambda: shared.as_in_ctx(gemel.gpu(0)) + 1, lambda: shared.__setitem__(0, 1.0)]\n"
        "def work():\n    while True: random.choice(ways)()\n"
        "for _ in range(3): threading.Thread(target=work, daemon=True).start()\n"
        "time.sleep(0.2)",
        0,
    ),
    "with callbacks queued": (
        "for y in busy(3): npx.callback(lambda v: v + 1, y, outputs=((1500, 1500), 'float32'))",
        0,
    ),
    "with simulated gpus busy": (
        "gemel.device.simulate(2)\nfor y in busy(3): np.dot(y, y).as_in_ctx(gemel.gpu(1)) + 1",
        0,
    ),
    "while tracing": ("gemel.profiler.set_state('run'); busy(3)", 0),
    "with a shared array": ("import numpy; shared = numpy.from_dlpack(big); busy(2)", 0),
}


# engine.md 30
@pytest.mark.parametrize("case", EXITS)
def test_exit(case):
    code, expected = EXITS[case]
    found = run(code)
    assert found.returncode == expected, found.stderr
    assert "terminate" not in found.stderr
    assert ("IndexError" in found.stderr) == (expected == 70)


# --- free-threaded Python -------------------------------------------------------------------


# engine.md 38
def test_the_gil_is_there():
    """The core needs the GIL to guard its state: see docs/internals/engine.md, rule 38."""
    assert not sysconfig.get_config_var("Py_GIL_DISABLED")


# --- priorities -----------------------------------------------------------------------------


# engine.md 6
def test_priorities_decide_what_runs_next():
    _core.set_workers(0)
    try:
        x = np.ones((300, 300))
        npx.waitall()
        _core.trace_start()
        np.dot(x, x)
        with npx.priority(-1):
            x * 5
        with npx.priority(2):
            x - 1
            with npx.priority(3):
                x / 2
        npx.waitall()
        _core.trace_stop()
        taken = sorted(_core.trace_take()["operations"], key=lambda o: o[8])
        assert [o[1] for o in taken] == ["divide", "subtract", "matmul", "multiply"]
    finally:
        _core.trace_stop()
        _core.set_workers(-1)
