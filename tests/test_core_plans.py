"""The C++ core from Python: plans, general operations, failures, threads, the end of a process."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from typing import Any

import core_kernels as kernels
import numpy
import pytest
from core_fakes import Fake, array, check, checked_copy, installed, loop_step, multiply_add, vector
from core_kernels import BOOL, FLOAT32, INT64

from gemel import _core


@pytest.fixture(autouse=True)
def core() -> Iterator[dict[str, Fake]]:
    """The core with the fakes installed; what was there comes back afterwards."""
    yield from installed()


# --- plans -------------------------------------------------------------------------------------


@pytest.mark.parametrize(("size", "chunk"), [(6, None), (1000, 7), (100000, 1000)])
def test_plan_with_workspace_and_view(size: int, chunk: int | None) -> None:
    plan = multiply_add(size, chunk)
    x = numpy.arange(size, dtype="float32")
    y = numpy.linspace(0, 1, size, dtype="float32")
    for _ in range(3):
        whole, view = plan(array(x), array(y))
        check(whole, 2 * (x * y))
        check(view, (2 * (x * y))[1::2][: size // 2])
        assert view._storage == whole._storage
    assert plan.name == "multiply_add"


def test_plan_checks_its_inputs() -> None:
    plan = multiply_add(4)
    x = array(numpy.ones(4))
    with pytest.raises(TypeError, match="input 1 has dtype int64, the plan was made for float32"):
        plan(x, array(numpy.ones(4), "int64"))
    with pytest.raises(TypeError, match=r"input 0 has shape \(3,\), the plan was made for \(4,\)"):
        plan(array(numpy.ones(3)), x)
    with pytest.raises(TypeError, match="device 1"):
        plan(x, _core.empty((4,), FLOAT32, 1))
    with pytest.raises(TypeError, match="2 arrays and 0 scalars"):
        plan(x)
    with pytest.raises(TypeError, match="not an array"):
        plan(x, 1.0)


def test_plan_copies_inputs_to_its_layout(core: Any) -> None:
    plan = multiply_add(4)
    x = array(numpy.arange(8.0))
    whole, _ = plan(x[::2], x[::-2])
    value = numpy.arange(8.0, dtype="float32")
    check(whole, 2 * (value[::2] * value[::-2]))


def test_plan_scalars_and_random_numbers() -> None:
    step = _core.Step(
        _core.load_object(kernels.store_integers(6)),
        [(1, 0, 0)],
        [7, 0, 0, 0, 0, 0],
        1,
        1,
        [(1, 0, False), (2, 1, True), (3, -1, False), (4, -2, False), (5, -3, False)],
    )
    plan = _core.Plan("scalars", [], [("new", INT64, (6,))], [step], scalars=2, random=2)
    _core.random_seed(11)
    (first,), (second,) = plan(5, 2), plan(True, 0.5)
    two, half = numpy.array([2.0, 0.5]).view("int64").tolist()
    assert first.tolist() == [7, 5, two, 11, 0, 1]
    assert second.tolist() == [7, 1, half, 11, 2, 3]
    assert _core.random_reserve(3) == (11, 4) and _core.random_state() == (11, 7)
    (other,) = plan(1, 1, device=1)
    assert other.device != first.device


def test_plan_writes_its_input_in_place() -> None:
    step = loop_step(vector("add", 6, 6), [(0, 0, 0), (0, 1, 0), (0, 0, 0)], 3)
    plan = _core.Plan(
        "update",
        [(FLOAT32, (3,), None), (FLOAT32, (3,), None)],
        [("view", 0, 0, (3,), (1,), 0)],
        [step],
        writes=[0],
    )
    weight, gradient = array([1.0, 2, 3]), array([1.0, 1, 1])
    (result,) = plan(weight, gradient)
    assert weight.tolist() == [2, 3, 4] and result._storage == weight._storage
    assert weight.version == 1 and gradient.version == 0
    with pytest.raises(TypeError, match="overwritten"):
        plan(array(numpy.zeros(6))[::2], gradient)


def test_plan_input_in_the_storage_that_is_written(core: Any) -> None:
    step = loop_step(vector("add", 6, 6), [(0, 0, 0), (0, 1, 0), (0, 0, 0)], 3)
    spec = (FLOAT32, (3,), None)
    plan = _core.Plan("update", [spec, spec], [], [step], writes=[0])
    x = array([1.0, 2, 3, 4])
    assert plan(x[1:], x[:-1]) == ()
    assert x.tolist() == [1, 3, 5, 7]


def test_branches_choose_at_run_time() -> None:
    def scaled(by: str) -> Any:
        return [loop_step(vector(by, 6, 6), [(0, 1, 0), (0, 1, 0), (1, 0, 0)], 2)]

    inner = _core.Branch((0, 0, 1), scaled("add"), scaled("subtract"))
    branch = _core.Branch((0, 0, 0), [inner], scaled("multiply"))
    plan = _core.Plan(
        "branch", [(BOOL, (2,), None), (FLOAT32, (2,), None)], [("new", FLOAT32, (2,))], [branch]
    )
    x = array([3.0, 4.0])
    assert plan(array([True, True], "bool"), x)[0].tolist() == [6, 8]
    assert plan(array([True, False], "bool"), x)[0].tolist() == [0, 0]
    assert plan(array([False, True], "bool"), x)[0].tolist() == [9, 16]


def test_constants_stay_alive() -> None:
    def make() -> Any:
        constant = array([1.0, 2.0, 3.0])[1:]
        step = loop_step(vector("add", 6, 6), [(0, 0, 0), (3, 0, 0), (1, 0, 0)], 2)
        spec = (FLOAT32, (2,), None)
        return _core.Plan("c", [spec], [("new", *spec[:2])], [step], constants=[constant])

    plan = make()
    gc.collect()
    assert plan(array([10.0, 20.0]))[0].tolist() == [12, 23]


def test_tiles_are_cut_by_the_chunk() -> None:
    kernel = _core.load_object(kernels.tile_starts())
    step = _core.Step(kernel, [(1, 0, 0)], [], 10, 4)
    plan = _core.Plan("tiles", [], [("new", INT64, (10,))], [step])
    assert plan()[0].tolist() == [0] * 4 + [4] * 4 + [8] * 2


def test_malformed_plans_are_refused() -> None:
    kernel = _core.load_object(kernels.tile_starts())
    bad: list[dict[str, Any]] = [
        {"steps": [_core.Step(kernel, [(0, 0, 0)], [], 1, 1)]},
        {"steps": [_core.Step(kernel, [(5, 0, 0)], [], 1, 1)]},
        {"steps": [_core.Step(kernel, [], [1], 1, 1, [(1, -1, False)])]},
        {"steps": [_core.Step(kernel, [], [1], 1, 1, [(0, 0, False)])]},
        {"outputs": [("view", 1, 0, (1,), (1,), 0)]},
        {"outputs": [("new", 99, (1,))]},
        {"writes": [0]},
        {"workspace": -1},
    ]
    for options in bad:
        with pytest.raises(ValueError):
            _core.Plan(**{"name": "bad", "inputs": [], "outputs": [], "steps": [], **options})
    with pytest.raises(TypeError):
        _core.Plan("bad", [], [], ["no step"])


# --- general operations ------------------------------------------------------------------------


class General(_core.OpBase):
    """A general operation that doubles vectors, or views them."""

    def __init__(self, kind: str) -> None:
        super().__init__(kind, False, ())
        self.kind = kind
        self.prepared = 0
        self.recorded: list[Any] = []

    def _prepare(self, inputs: Any, keywords: Any) -> Any:
        self.prepared += 1
        size = inputs[0].size
        if self.kind == "none":
            return None
        if self.kind == "view":
            return _core.View((size // 2,), (2 * inputs[0].strides[0],), 0)
        step = loop_step(vector("add", 6, 6), [(0, 0, 0), (0, 0, 0), (1, 0, 0)], size)
        spec = (FLOAT32, (size,), None)
        return _core.Plan("double", [spec], [("new", FLOAT32, (size,))], [step])

    def _call(self, inputs: Any, keywords: Any) -> Any:
        return "call"

    def _record(self, inputs: Any, keywords: Any, outputs: Any) -> None:
        self.recorded.append(outputs)


def test_general_operations_are_prepared_once_per_spec(core: Any) -> None:
    double = General("double")
    for _ in range(3):
        check(double(array([1.0, 2.0])), numpy.array([2, 4], "float32"))
        check(double(array([1.0])), numpy.array([2], "float32"))
    assert double.prepared == 2
    x = array([1.0, 2, 3, 4, 5, 6])
    assert double(x[::2]).tolist() == [2, 6, 10]
    assert General("none")(x) == "call"
    with pytest.raises(ZeroDivisionError):
        broken = General("double")
        broken._prepare = lambda *_: 1 // 0  # type: ignore[method-assign]
        broken(x)


def test_general_views_are_relative_to_the_input() -> None:
    view = General("view")
    x = array([1.0, 2, 3, 4, 5, 6])
    assert view(x).tolist() == [1, 3, 5]
    assert view(x[2:]).tolist() == [3, 5]
    x._tape = 1
    old = _core.set_recording(True)
    y = view(x)
    _core.set_recording(old)
    assert view.recorded[0][0] is y


# --- failures ----------------------------------------------------------------------------------


@pytest.mark.parametrize("microseconds", [0.1, 1e6])
def test_failures_are_sticky_and_say_where(core: Any, microseconds: float) -> None:
    plan = checked_copy(microseconds)
    line = sys._getframe().f_lineno + 1
    (bad,) = plan(array([1.0, -1.0]))
    spread = bad + 1
    for x in (bad, spread, bad):
        with pytest.raises(IndexError) as caught:
            x.tolist()
        assert str(caught.value) == f"negative element (issued at {__file__}:{line})"
    core["copy"].into(bad, 3.0)
    assert bad.tolist() == [3.0, 3.0]
    with pytest.raises(IndexError):
        spread.wait_to_read()
    _core.wait_all()


def test_wait_all_raises_what_nobody_has_seen() -> None:
    (bad,) = checked_copy(1e6)(array([1.0, -1.0]))
    with pytest.raises(IndexError, match="negative"):
        _core.wait_all()
    _core.wait_all()
    with pytest.raises(IndexError):
        bad.item() if bad.size == 1 else bad.tolist()


def test_an_update_with_a_failed_input_leaves_its_target() -> None:
    (bad,) = checked_copy(1e6)(array([1.0, -1.0]))
    step = loop_step(vector("add", 6, 6), [(0, 0, 0), (0, 1, 0), (0, 0, 0)], 2)
    spec = (FLOAT32, (2,), None)
    update = _core.Plan("update", [spec, spec], [], [step], writes=[0])
    weight = array([1.0, 2.0])
    update(weight, bad)
    assert weight.tolist() == [1.0, 2.0]
    update(weight, weight + 1)
    assert weight.tolist() == [3.0, 5.0]
    with pytest.raises(IndexError):
        bad.wait_to_read()


def run_python(program: str, **environment: str) -> subprocess.CompletedProcess[str]:
    directory = os.path.dirname(__file__)
    path = os.pathsep.join([directory, os.environ.get("PYTHONPATH", "")])
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "PYTHONPATH": path, **environment},
    )


UNSEEN = """
    from core_fakes import array, checked_copy
    checked_copy(1e6)(array([1.0, -1.0]))
    print("done")
"""


def test_unseen_errors_end_the_process_with_70() -> None:
    ended = run_python(UNSEEN)
    assert ended.returncode == 70, ended.stderr
    assert ended.stdout == "done\n"
    assert "IndexError: negative element (issued at <string>:3)" in ended.stderr
    warned = run_python(UNSEEN, GEMEL_UNSEEN_ERRORS="warn")
    assert warned.returncode == 0 and "IndexError" in warned.stderr


def test_fork_while_work_is_pending() -> None:
    ended = run_python("""
        import os, numpy
        from core_fakes import array, multiply_add
        plan = multiply_add(100000, 1000)
        x = array(numpy.ones(100000))
        for _ in range(20):
            y, _ = plan(x, x)
        child = os.fork()
        z, _ = plan(y, y)
        assert z.tolist()[7] == 8.0
        if child == 0:
            os._exit(17)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 17
    """)
    assert ended.returncode == 0, ended.stderr


def test_interrupt_ends_a_wait() -> None:
    ended = run_python("""
        import os, signal, threading, time, numpy, core_kernels
        from gemel import _core
        _core.configure(workers=1)
        kernel = _core.load_object(core_kernels.slow_copy(1 << 40))
        step = _core.Step(kernel, [(0, 0, 0), (1, 0, 0)], [8], 8, 8)
        out = ("new", 7, (8,))
        plan = _core.Plan("forever", [(7, (8,), None)], [out], [step], microseconds=1e9)
        x = _core.empty((8,), 7, 0)
        (y,) = plan(x)
        time.sleep(0.3)  # a worker has begun it
        threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
        try:
            y.wait_to_read()
        except KeyboardInterrupt:
            os._exit(5)
    """)
    assert ended.returncode == 5, ended.stderr


# --- kernels, threads --------------------------------------------------------------------------


def test_corrupt_objects_are_refused() -> None:
    code = kernels.elementwise("add", 1, (FLOAT32, -2), FLOAT32)
    for bad in (b"", b"text", code[:100], code[: len(code) // 2], b"\0" * len(code)):
        with pytest.raises(ValueError):
            _core.load_object(bad)
    for at in range(0, len(code), 3):
        changed = bytearray(code)
        changed[at] ^= 0xFF
        try:
            _core.load_object(bytes(changed))
        except ValueError:
            continue
    with pytest.raises(ValueError, match="not_in_the_table"):
        _core.load_object(kernels.calls_unknown())
    assert _core.load_object(code).address != 0


def test_a_kernel_that_is_no_elementwise_is_refused(core: Any) -> None:
    core["add"]._kernel = lambda *_: 5
    with pytest.raises(TypeError, match="Elementwise"):
        array([1.0]) + 1
    with pytest.raises(ValueError):
        _core.Elementwise(_core.load_object(kernels.tile_starts()), ())


def test_several_threads_issue(core: Any) -> None:
    core["add"].nanoseconds = 1e6
    plan = multiply_add(64, 8)
    wrong: list[Any] = []

    def work(seed: int) -> None:
        x = array(numpy.full(64, seed))
        for _ in range(200):
            x = x + 1
            whole, _ = plan(x, x)
        if x.tolist() != [seed + 200.0] * 64 or whole.tolist() != [2.0 * (seed + 200) ** 2] * 64:
            wrong.append(seed)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_counters_and_configuration() -> None:
    counters = _core.counters()
    assert {"operations", "inline", "queued", "tiles", "allocations", "bytes_in_use"} <= set(
        counters
    )
    assert _core.workers() >= 0
    old = _core.set_training(True)
    assert _core.training() and _core.set_training(old) is True
