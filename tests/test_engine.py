"""The engine as users see it: waits, failures that stay, exits."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from gates import reader

from gemel import _core, autograd, np, npx


def run(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the code in a fresh process."""
    return subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=600,
    )


def test_a_long_wait_waits_to_the_end():
    """It lasts well over the interval at which waits check for signals."""
    a = np.ones((1200, 1200))
    for _ in range(6):
        last = np.dot(a, a)
    npx.waitall()
    assert _core.counters()["pending"] == 0
    for _ in range(6):
        last = np.dot(last, a) / 1200
    assert last.asnumpy().min() == last.asnumpy().max() == 1200


# engine.md 3
def test_issuing_returns_before_the_work_is_done():
    x = np.ones((4,))
    with reader(x):
        x += 1
        last = np.dot(x, x) + x
    assert last.tolist() == [18] * 4


# engine.md 10, 11
def test_a_failure_stays_with_what_is_computed_from_it():
    x = np.arange(5)
    bad = x[np.array([7])]
    after = bad + 1
    fine = x + 1
    for array in (bad, after, bad):
        with pytest.raises(IndexError, match="out of bounds for axis 0 with size 5"):
            array.asnumpy()
    assert fine.tolist() == [1, 2, 3, 4, 5]
    assert x.tolist() == [0, 1, 2, 3, 4]


def test_a_failure_says_where_the_call_was():
    bad = np.arange(5)[np.array([9])]
    with pytest.raises(IndexError, match=r"test_engine\.py:\d+"):
        bad.wait_to_read()


# engine.md 11
def test_overwriting_heals():
    bad = np.arange(5)[np.array([9])]
    with pytest.raises(IndexError):
        bad.wait_to_read()
    bad[:] = 3
    assert bad.tolist() == [3]


# engine.md 15
def test_waitall_raises_what_nobody_has_seen():
    np.arange(5)[np.array([11])]
    with pytest.raises(IndexError):
        npx.waitall()
    npx.waitall()


def test_one_bad_batch_leaves_the_parameters_alone():
    weight = np.ones((5, 2))
    weight.attach_grad()
    with autograd.record():
        loss = weight[np.array([8])].sum()
    loss.backward()
    with pytest.raises(IndexError):
        loss.item()
    with pytest.raises(IndexError):
        npx.waitall()
        weight.grad.wait_to_read()
    assert weight.sum().item() == 10


UNSEEN = "from gemel import np; np.arange(5)[np.array([9])]"


# engine.md 16
def test_an_unseen_failure_ends_the_process_with_code_70():
    found = run(UNSEEN)
    assert found.returncode == 70
    assert "out of bounds" in found.stderr


def test_an_unseen_failure_may_be_a_warning():
    found = run(UNSEEN, GEMEL_UNSEEN_ERRORS="warn")
    assert found.returncode == 0
    assert "out of bounds" in found.stderr


def test_exit_with_work_queued():
    code = (
        "from gemel import np\n"
        "a = np.random.normal(size=(800, 800))\n"
        "for _ in range(20): b = np.dot(a, a)\n"
    )
    found = run(code)
    assert (found.returncode, found.stderr) == (0, "")


FORKED = """
import os
from gemel import np
a = np.random.normal(size=(500, 500))
b = np.dot(a, a)
child = os.fork()
total = float(np.dot(b, a).sum())
if child == 0:
    os._exit(0 if total == total else 1)
_, status = os.waitpid(child, 0)
print(os.waitstatus_to_exitcode(status), total == total)
"""


def test_fork_while_busy():
    found = run(FORKED)
    assert found.stdout.strip() == "0 True", found.stderr


# engine.md 18, 19
def test_the_queue_is_bounded():
    code = (
        "from gemel import _core, np\n"
        "a = np.random.normal(size=(300, 300))\n"
        "for _ in range(500): b = np.dot(a, a)\n"
        "print(_core.counters()['peak_bytes'] < 60e6)\n"
        "b.wait_to_read()\n"
    )
    assert run(code, GEMEL_QUEUE_OPS="16").stdout.strip() == "True"


# engine.md 14
@pytest.mark.parametrize("place", [0, 199_999, 399_999])
def test_one_tile_of_many_fails(place):
    positions = np.zeros((400_000,), dtype="int64")
    positions[place] = 7
    bad = np.arange(3)[positions]
    for _ in range(2):
        with pytest.raises(IndexError, match="out of bounds for axis 0 with size 3"):
            bad.asnumpy()


def test_several_tiles_fail_with_one_failure():
    positions = np.zeros((400_000,), dtype="int64") + 9
    messages = set()
    for _ in range(5):
        with pytest.raises(IndexError) as caught:
            np.arange(3)[positions].asnumpy()
        messages.add(str(caught.value))
    npx.waitall()
    assert len(messages) == 1


# engine.md 21
def test_results_computed_ahead_hold_little_memory():
    code = (
        "from gemel import _core, np, npx\n"
        "a = np.random.normal(size=(400, 400))\n"
        "npx.waitall(); _core.reset_peak()\n"
        "total = np.zeros((400, 400))\n"
        "for _ in range(150):\n"
        "    x = np.random.normal(size=(400, 400))\n"  # depends on nothing
        "    total = np.dot(total + x, a) * 0.01\n"  # depends on the one before
        "    del x\n"
        "total.wait_to_read(); npx.waitall()\n"
        "print(_core.counters()['peak_bytes'] / 640e3)\n"
    )
    few = float(run(code, GEMEL_AHEAD_BYTES=str(2 << 20)).stdout)
    assert few < 25, f"{few} arrays of 150 were held at once"


# engine.md 9
def test_missing_memory_is_a_failure_like_any_other():
    huge = np.ones((1 << 44,))
    total = huge.sum()
    for array in (huge, total, huge):
        with pytest.raises(MemoryError, match=r"bytes.*issued at .*test_engine\.py"):
            array.wait_to_read()
    npx.waitall()
    assert (np.ones(2) + 1).tolist() == [2, 2]
