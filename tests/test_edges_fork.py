"""Forks while other threads compute, run callbacks, compile and fork too."""

from __future__ import annotations

from pathlib import Path

import pytest
from programs import IMPORTING, TIMES, busy, end

#: Forks while threads run `compute` without end.
COMPUTING = """
import multiprocessing, os, signal, threading, time
from gemel import np
x = np.ones((300, 300))
float((x + 1)[0, 0])
def compute():
    while True:
        float((x + 1)[0, 0])
def child():
    signal.alarm(60)
    assert float((x + 1)[0, 0]) == 2
for _ in range(THREADS):
    threading.Thread(target=compute, daemon=True).start()
time.sleep(0.1)
"""

WAYS = {
    "fork": """
    for i in range(COUNT):
        pid = os.fork()
        if pid == 0:
            child()
            os._exit(0)
        assert os.waitpid(pid, 0)[1] == 0
        tell(forks=i + 1)
    os._exit(0)
    """,
    "multiprocessing": """
    context = multiprocessing.get_context("fork")
    for i in range(COUNT):
        process = context.Process(target=child)
        process.start()
        process.join()
        assert process.exitcode == 0
        tell(forks=i + 1)
    os._exit(0)
    """,
    "subprocess": """
    import subprocess
    for i in range(COUNT):
        subprocess.run(["true"], preexec_fn=int, check=True)
        tell(forks=i + 1)
    os._exit(0)
    """,
}


def fork_beside_threads(way: str, threads: int, count: int) -> None:
    head = f"THREADS, COUNT = {threads}, {count}\n{COMPUTING}"
    ended = end(head + WAYS[way].replace("\n    ", "\n"), seconds=120 + 2 * count)
    assert ended.code == 0 and ended.told["forks"] == count, ended


# engine.md 29
@pytest.mark.unsanitized("another thread may hold its allocator's lock at a fork", by="thread")
@pytest.mark.parametrize("way", WAYS)
def test_fork_beside_computing_threads(way: str) -> None:
    fork_beside_threads(way, 2, 60)


@pytest.mark.slow
@pytest.mark.parametrize("others", [0, 2])
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("way", WAYS)
def test_many_forks_beside_computing_threads(way: str, threads: int, others: int) -> None:
    with busy(others):
        fork_beside_threads(way, threads, TIMES)


# The fork comes from C code that has released the GIL. The child may then wait for a GIL that none
# of its threads holds, so it is not asked to do anything.
FORKS_FROM_C = """
import ctypes, os, signal, threading, time
from gemel import np
fork = ctypes.CDLL(None).fork
x = np.ones((500, 500))
x.wait_to_read()
stop = time.monotonic() + SECONDS
def forks():
    while time.monotonic() < stop:
        pid = fork()
        if pid == 0:
            os._exit(0)
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
def issues():
    while time.monotonic() < stop:
        x + 1
threads = [threading.Thread(target=target, daemon=True) for target in (forks, forks, issues)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join(SECONDS + 60)
tell(hanging=sum(thread.is_alive() for thread in threads), sum=float((x + 1)[0, 0]))
os._exit(0)
"""


@pytest.mark.parametrize("seconds", [2, pytest.param(TIMES / 10, marks=pytest.mark.slow)])
def test_two_threads_fork_while_a_third_issues(seconds: float) -> None:
    ended = end(f"SECONDS = {seconds}\n{FORKS_FROM_C}", seconds=3 * seconds + 120)
    assert ended.code == 0 and ended.told == {"hanging": 0, "sum": 2}, ended


# engine.md 29
def test_fork_while_a_callback_is_about_to_import() -> None:
    """Python takes its import lock before C's handlers run, and the callback needs it."""
    ended = end(
        """
        import os, threading
        from gemel import np, npx
        entered = threading.Event()
        def late(v):
            entered.set()
            end = __import__("time").monotonic() + 0.3
            while __import__("time").monotonic() < end:
                pass
            import decimal
            return v * 2
        a = np.ones((1000, 1000))
        y = npx.callback(late, np.dot(a, a), outputs=((1000, 1000), "float32"))
        entered.wait(60)
        pid = os.fork()
        right = float(y[0, 0]) == 2000
        if pid == 0:
            os._exit(0 if right else 1)
        tell(child=os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), right=right)
        os._exit(0)
        """,
    )
    assert ended.told == {"child": 0, "right": True}, ended


#: Forks while another thread is in a callback that its call runs itself. The child writes what the
#: callback reads.
INSIDE_A_CALL = """
import ctypes, os, signal, threading
from gemel import np, npx
x = np.ones((3,))
x.wait_to_read()
entered, over = threading.Event(), threading.Event()
ended = []
def read(v):
    entered.set()
    over.wait(60)
    ended.append(True)
    return v
thread = threading.Thread(target=lambda: npx.callback(read, x, outputs=((3,), x.dtype)))
thread.start()
entered.wait(60)
BEFORE
pid = FORK()
if pid == 0:
    signal.alarm(20)
    x[0] = 3
    os._exit(0 if x.tolist() == [3, 1, 1] else 1)
waited = bool(ended)
over.set()
tell(child=os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), waited=waited)
thread.join()
os._exit(0)
"""


@pytest.mark.parametrize("workers", ["0", "2"])
@pytest.mark.parametrize(
    "fork, before, waits",
    [
        ("os.fork", "threading.Timer(0.3, over.set).start()", True),
        ("ctypes.PyDLL(None).fork", "", False),  # nothing may wait for a callback here
    ],
)
def test_fork_inside_a_callback_of_another_thread(
    fork: str, before: str, waits: bool, workers: str
) -> None:
    program = INSIDE_A_CALL.replace("FORK", fork).replace("BEFORE", before)
    ended = end(program, GEMEL_WORKERS=workers)
    assert ended.code == 0 and ended.told == {"child": 0, "waited": waits}, ended


def test_fork_while_another_thread_compiles(tmp_path: Path) -> None:
    """All locks of the compiler are free in the child."""
    ended = end(
        """
        import os, signal, threading
        import gemel
        from gemel import np
        x = np.ones((4,))
        def new(number):
            def chain(v):
                for digit in f"{number:b}":
                    v = np.exp(v) if digit == "1" else np.tanh(v)
                return v
            return gemel.compile(chain)
        first = threading.Event()
        def compiles():
            number = 1000
            while True:
                new(number)(x)
                first.set()
                number += 1
        threading.Thread(target=compiles, daemon=True).start()
        first.wait()
        for i in range(8):
            pid = os.fork()
            if pid == 0:
                signal.alarm(60)
                new(100 + i)(x).wait_to_read()
                os._exit(0)
            tell(forks=i, status=os.waitpid(pid, 0)[1])
        os._exit(0)
        """,
        GEMEL_CACHE=str(tmp_path),
    )
    assert ended.code == 0 and ended.told == {"forks": 7, "status": 0}, ended


FORK_IN_AN_IMPORT = """
pid = os.fork()
if pid == 0:
    signal.alarm(60)
    right = float((np.tanh(np.ones((4,))) * 3).asnumpy()[0]) > 2
    os._exit(0 if right else 1)
tell(status=os.waitpid(pid, 0)[1])
os._exit(0)
"""


@pytest.mark.parametrize("slow", ["gemel.runtime.single", "llvmlite.utils", "numpy.linalg"])
def test_fork_while_a_thread_imports(slow: str, tmp_path: Path) -> None:
    """The child would wait for a thread that it does not have."""
    program = f"SLOW = {slow!r}\n{IMPORTING}\n{FORK_IN_AN_IMPORT}"
    ended = end(program, GEMEL_CACHE=str(tmp_path))
    assert ended.code == 0 and ended.told == {"status": 0}, ended


SAME_IMPORT = """
import importlib, os, signal, sys, threading, time
import gemel

class Slow:
    def find_spec(self, name, path=None, target=None):
        if name == SLOW and not entered.is_set():
            entered.set()
            time.sleep(0.5)
        return None

entered = threading.Event()
assert SLOW not in sys.modules
sys.meta_path.insert(0, Slow())
threading.Thread(target=importlib.import_module, args=(SLOW,), daemon=True).start()
assert entered.wait(60)
pid = os.fork()
if pid == 0:
    signal.alarm(30)
    importlib.import_module(SLOW)
    os._exit(0)
tell(status=os.waitpid(pid, 0)[1])
os._exit(0)
"""


@pytest.mark.parametrize("slow", ["gemel.gluon.nn.convolution", "llvmlite", "encodings.cp037"])
def test_fork_while_a_thread_looks_for_a_module(slow: str) -> None:
    """The lock of a module is held before the module exists, also in the standard library."""
    ended = end(f"SLOW = {slow!r}\n{SAME_IMPORT}")
    assert ended.code == 0 and ended.told == {"status": 0}, ended


# The program may do nothing but import.
LONG_IMPORT = """
import importlib, os, sys, threading, time
from importlib.util import spec_from_loader
import gemel

class Program:
    def find_spec(self, name, path=None, target=None):
        return spec_from_loader(name, self) if name == "program" else None
    def create_module(self, spec):
        return None
    def exec_module(self, module):
        entered.set()
        done.wait(60)

entered, done = threading.Event(), threading.Event()
sys.meta_path.insert(0, Program())
thread = threading.Thread(target=importlib.import_module, args=("program",))
thread.start()
assert entered.wait(60)
began = time.monotonic()
pid = os.fork()
if pid == 0:
    os._exit(0)
took = time.monotonic() - began
done.set()
thread.join()
tell(status=os.waitpid(pid, 0)[1], at_once=took < gemel.process.forking.PATIENCE)
"""


def test_fork_does_not_wait_for_the_import_of_a_program() -> None:
    ended = end(LONG_IMPORT)
    assert ended.code == 0 and ended.told == {"status": 0, "at_once": True}, ended


#: A child of a process with a failure that nothing has raised, and what it is told of it.
FAILED_BEFORE = """
import os, sys
from gemel import np, npx
bad = np.arange(4)[np.array([9])]
pid = os.fork()
if pid == 0:
    npx.waitall()
    CHILD
    sys.exit(0)
tell(child=os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
"""


@pytest.mark.parametrize(
    ("child", "code"),
    [
        ("pass", 0),
        ("worse = np.arange(4)[np.array([8])]", 70),
        ("bad.asnumpy()", 1),
    ],
)
def test_a_child_reports_only_failures_of_its_own(child: str, code: int) -> None:
    ended = end(FAILED_BEFORE.replace("CHILD", child))
    assert ended.told == {"child": code}
    assert ended.code == 70, "the parent reports its own"
