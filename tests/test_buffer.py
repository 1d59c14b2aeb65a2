"""Buffers of arrays (PEP 3118): what others read and write through them, and when."""

from __future__ import annotations

import struct
import subprocess
import sys
import threading
from typing import Any

import numpy
import pytest

import gemel
from gemel import _core, autograd, cpu, np, npx
from gemel.dtype import DTYPES
from gemel.errors import TraceError

HELD = tuple(dtype for dtype in DTYPES if dtype.twin is dtype)
VALUES = numpy.array([[1.0, 0.0, 3.0], [4.0, 5.0, 1.0]])


@pytest.mark.parametrize("dtype", HELD, ids=str)
def test_buffer_attributes(dtype: Any) -> None:
    theirs = VALUES.astype(dtype.name)
    x = np.array(theirs)
    for pick in (
        lambda a: a,
        lambda a: a.T,
        lambda a: a[::-1, ::2],
        lambda a: a[:, 1],
        lambda a: a[1:2, 1:2],
        lambda a: a[1, 2],
        lambda a: a[:0],
    ):
        ours, expected = memoryview(pick(x)), memoryview(numpy.asarray(pick(theirs)))
        assert (ours.shape, ours.ndim, ours.nbytes) == (
            expected.shape,
            expected.ndim,
            expected.nbytes,
        )
        assert ours.itemsize == dtype.itemsize and not ours.readonly
        assert numpy.asarray(ours).dtype == dtype
        if 0 not in ours.shape and 1 not in ours.shape:
            assert ours.strides == expected.strides
        assert bytes(ours) == expected.tobytes() and bytes(pick(x)) == bytes(expected.obj)
        assert numpy.asarray(ours).tolist() == pick(theirs).tolist()
        del ours
    assert _core.exports() == 0


def test_bytes_of_numbers() -> None:
    x = np.array([[1.5, 2.0], [3.0, -1.0]])
    assert struct.unpack("4f", x) == (1.5, 2.0, 3.0, -1.0)
    assert numpy.frombuffer(x, "float32").tolist() == [1.5, 2.0, 3.0, -1.0]
    struct.pack_into("f", x, 4, 7.0)
    assert x.tolist() == [[1.5, 7.0], [3.0, -1.0]]
    for view in (x.T, x[:, 0]):
        with pytest.raises(BufferError, match="not C-contiguous"):
            struct.unpack("4f", view)
        with pytest.raises((BufferError, ValueError)):
            numpy.frombuffer(view, "float32")
    flat = np.zeros(6, dtype="uint8")
    memoryview(flat)[1:4] = b"abc"
    assert flat.tolist() == [0, 97, 98, 99, 0, 0]
    assert memoryview(x).cast("B").cast("f")[3] == -1.0


def test_arrays_without_a_buffer() -> None:
    with pytest.raises(BufferError, match="no bfloat16; convert it first"):
        memoryview(np.ones(2, dtype="bfloat16"))
    failed = np.arange(3)[np.array([7])]
    with pytest.raises(IndexError):
        memoryview(failed)
    assert _core.exports() == 0


def test_numpy_takes_the_memory_itself() -> None:
    x = np.zeros((2, 3))
    theirs = numpy.asarray(x)
    theirs[0] = 5
    x += 1
    assert theirs.tolist() == x.tolist() == [[6, 6, 6], [1, 1, 1]]
    for copied in (numpy.array(x), x.asnumpy(), numpy.asarray(x, "float64"), x.__array__()):
        copied[...] = 0
    assert x[0, 0].item() == 6
    same = x.__array__(copy=False)
    same[0, 0] = 2
    assert x[0, 0].item() == 2 and numpy.array(x, copy=False)[0, 0] == 2
    for dtype in ("float64", "int32"):
        with pytest.raises(ValueError, match="only by copying"):
            x.__array__(dtype, copy=False)
    with pytest.raises(ValueError, match=r"bfloat16 on .* can become NumPy.s float32"):
        x.astype("bfloat16").__array__(copy=False)


def test_writes_are_ordered_with_operations() -> None:
    """Taking a buffer waits for pending operations; later calls return when they have ended."""
    x = np.ones((400, 400))
    queued = [np.dot(x, x) for _ in range(4)]
    x += 1
    with memoryview(x) as shared:
        plain = numpy.asarray(shared)
        assert plain[0, 0] == 2
        plain[...] = 3
        y = np.dot(x, x)
        plain[...] = 4
        x *= 2
        assert plain[399, 399] == 8
        del plain
    assert {q[1, 1].item() for q in queued} == {400} and y[0, 0].item() == 9 * 400
    assert x[0, 0].item() == 8 and _core.exports() == 0


def test_a_buffer_keeps_the_memory() -> None:
    view = memoryview(np.arange(1000.0)[10:20])
    held = numpy.asarray(np.full((300, 300), 3.0))
    garbage = [np.zeros((300, 300)) + 1 for _ in range(5)]
    assert view.tolist() == list(range(10, 20)) and (held == 3).all() and garbage
    del view, held
    assert _core.exports() == 0


def test_arrays_that_gradients_read_are_exported_read_only() -> None:
    x = np.array([1.0, 2.0, 3.0])
    x.attach_grad()
    with autograd.record():
        y = x * x
        z = (y * y).sum()
    for computed in (y, y[1:], z):
        assert memoryview(computed).readonly
        assert not numpy.asarray(computed).flags.writeable
    with pytest.raises(TypeError, match="read-write"):
        struct.pack_into("f", y, 0, 5.0)
    with pytest.raises(TypeError, match="read-only"):
        memoryview(y)[0] = 5.0
    for share in (numpy.from_dlpack, lambda a: a.__dlpack__(), npx.to_dlpack_for_write):
        with pytest.raises(BufferError, match=r"share x\.detach\(\)"):
            share(y)
    assert numpy.from_dlpack(y.detach()).tolist() == [1, 4, 9]
    z.backward()
    assert x.grad.tolist() == [4, 32, 108]
    assert not memoryview(x[1:]).readonly, "a variable can be written from outside too"
    numpy.from_dlpack(x)[1] = 0
    with autograd.record():
        z = (x * x).sum()
    z.backward()
    assert x.grad.tolist() == [2, 0, 6]


def test_in_a_trace_there_is_no_memory() -> None:
    for share in (memoryview, numpy.asarray, numpy.from_dlpack, bytes, np.from_dlpack):

        def shared(a: Any, share: Any = share) -> Any:
            return share(a)

        with pytest.raises((TraceError, TypeError)):
            gemel.compile(shared)(np.ones(3))


# --- by MXNet's names -----------------------------------------------------------------------


def test_capsules() -> None:
    x = np.ones((2, 2))
    for give in (npx.to_dlpack_for_read, npx.to_dlpack_for_write):
        for take in (npx.from_dlpack, np.from_dlpack):
            y = take(give(x))
            y += 1
    assert x.tolist() == [[5, 5], [5, 5]]
    capsule = npx.to_dlpack_for_write(x)
    npx.from_dlpack(capsule)
    with pytest.raises(BufferError, match="used one"):
        npx.from_dlpack(capsule)
    for wrong in (3.0, [1.0], "x"):
        with pytest.raises(TypeError, match="not an array that libraries can share"):
            np.from_dlpack(wrong)


@pytest.mark.parametrize("dtype", HELD, ids=str)
def test_from_numpy_without_a_copy(dtype: Any) -> None:
    theirs = VALUES.astype(dtype.name)
    x = npx.from_numpy(theirs)
    assert not theirs.flags.writeable and x.dtype is dtype
    x[0, 1] = 1
    assert theirs[0, 1] == 1 and x.tolist() == theirs.tolist()
    copied = npx.from_numpy(theirs, zero_copy=False)
    copied[0, 0] = 0
    assert theirs[0, 0] == 1
    with pytest.raises(ValueError, match="only C-contiguous"):
        npx.from_numpy(VALUES.astype(dtype.name).T)
    again = npx.from_numpy(theirs)  # `theirs` is read-only by now
    again[0, 0] = 0
    assert theirs[0, 0] == 1


def test_from_numpy_shares_or_copies() -> None:
    theirs = numpy.zeros(3)
    copied, shared = np.from_numpy(theirs), np.from_numpy(theirs, zero_copy=True)
    placed = np.from_numpy(theirs, cpu(1), zero_copy=True)
    theirs[0] = 1
    assert copied.tolist() == [0, 0, 0] and shared.tolist() == placed.tolist() == [1, 0, 0]
    assert placed.device == cpu(1) and placed.dtype == "float64"


# --- threads, forks, exits ------------------------------------------------------------------


def test_exports_while_another_thread_computes() -> None:
    x = np.zeros((120, 120))
    wrong: list[Any] = []
    stop = threading.Event()

    def compute() -> None:
        while not stop.is_set():
            y = x * 2 + 1
            if y.shape != (120, 120) or not (y.asnumpy() >= 1).all():
                wrong.append(y)

    threads = [threading.Thread(target=compute) for _ in range(2)]
    for thread in threads:
        thread.start()
    for step in range(150):
        with memoryview(x) as shared:
            plain = numpy.asarray(shared)
            plain += 1
            seen = plain[7, 7]
            del plain
        x += 1
        if x[7, 7].item() != seen + 1 or seen != 2 * step + 1:
            wrong.append(step)
    stop.set()
    for thread in threads:
        thread.join()
    assert not wrong and _core.exports() == 0


def test_a_callback_uses_an_array_that_is_shared_and_that_it_reads() -> None:
    program = """
x = np.ones((200, 200))
held = memoryview(x)
lent = np.from_dlpack(numpy.ones((200, 200), "float32"))
for y in (x, lent):
    busy = np.dot(np.dot(y, y), y)
    z = npx.callback(lambda a: a + (y * 2).asnumpy(), y, outputs=((200, 200), "float32"))
    print(z[3, 3].item())
"""
    assert ends_well(program) == "3.0\n3.0\n"


def ends_well(program: str) -> str:
    """The output of a process that runs the program, which must end without errors."""
    program = "import os, numpy\nfrom gemel import np, npx\n" + program
    # Since Python 3.12 a fork in a process with threads warns.
    done = subprocess.run(
        [sys.executable, "-W", "ignore::DeprecationWarning", "-c", program],
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0 and not done.stderr, done.stderr
    return done.stdout


@pytest.mark.parametrize(
    "held",
    [
        "memoryview(x)",
        "numpy.asarray(x)",
        "numpy.from_dlpack(x)",
        "x.__dlpack__()",
        "np.from_dlpack(numpy.ones((300, 300), 'float32'))",
        "npx.from_numpy(numpy.ones((300, 300), 'float32')) + 1",
    ],
)
def test_a_process_ends_while_memory_is_shared(held: str) -> None:
    program = f"x = np.ones((300, 300))\nheld = {held}\ny = np.dot(x, x)\nx += 1\nprint('end')"
    assert ends_well(program) == "end\n"
    assert ends_well(program + "\nimport sys; sys.held = [held, x, y]; del held") == "end\n"


def test_a_fork_while_memory_is_shared() -> None:
    program = """
x = np.ones((300, 300))
shared, source = numpy.asarray(x), numpy.full(4, 2.0)
lent = np.from_dlpack(source)
y = np.dot(x, x)
child = os.fork()
shared[...] = 5 if child else 7
source[...] = 6 if child else 8
found = (x * 1)[3, 3].item(), (lent + 0)[0].item(), y[0, 0].item()
if not child:
    os._exit(0 if found == (7, 8, 300) else 1)
assert os.waitpid(child, 0)[1] == 0
print(found)
"""
    assert ends_well(program) == "(5.0, 6.0, 300.0)\n"
