"""Memory shared with other libraries: its contents are right whenever somebody reads them."""

from __future__ import annotations

import ctypes
import gc
import threading
import time
import weakref

import numpy
import pytest
from gates import reader

import gemel
from gemel import _core, cpu, device, dtype, gpu, np, npx

DTYPES = tuple(d.name for d in dtype.DTYPES if d.twin is d)


def products(x: np.ndarray, count: int = 6) -> list[np.ndarray]:
    """Reads of x that keep the engine busy."""
    return [np.dot(x, x) for _ in range(count)]


@pytest.mark.parametrize("dtype", DTYPES)
def test_numpy_sees_the_same_memory(dtype):
    x = np.array([[1, 0, 1], [0, 1, 1]], dtype=dtype)
    for view in (x, x.T, x[:, ::2], x[::-1], x[0, 0], x[:0]):
        seen = numpy.from_dlpack(view)
        assert seen.dtype == dtype and seen.shape == view.shape
        assert (seen == view.asnumpy()).all()
    del seen
    assert _core.exports() == 0


# engine.md 32
def test_imported_memory_is_shared():
    source = numpy.arange(12.0).reshape(3, 4)
    for view in (source, source.T, source[::-1, ::2], source[0, 0:1], source[:0]):
        x = np.from_dlpack(view)
        assert x.tolist() == view.tolist()
        x += 1
        assert x.tolist() == view.tolist()
        view[...] -= 1
        assert (x * 1).tolist() == view.tolist()
    apart = np.from_dlpack(source, copy=True)
    source[...] = 7
    assert apart[1, 1].item() == 5
    assert np.from_dlpack(np.ones(3)).tolist() == [1, 1, 1]
    del x
    assert _core.exports() == 0


def test_imported_arrays_go_to_the_given_device():
    source = numpy.ones(3)
    x = np.from_dlpack(source, device=cpu(2))
    x += 1
    assert x.device == cpu(2) and source.tolist() == [2, 2, 2]
    assert np.from_dlpack(x).device == cpu(2)
    device.simulate(1)
    try:
        y = np.from_dlpack(source, device=gpu(0))
        y += 1
        assert y.device == gpu(0) and y.tolist() == [3, 3, 3] and source.tolist() == [2, 2, 2]
        with pytest.raises(BufferError, match=r"moving data to gpu\(0, .* copies it"):
            np.from_dlpack(source, device=gpu(0), copy=False)
        del y
    finally:
        npx.waitall()
        device.simulate(0)


@pytest.mark.parametrize("place", [1, 3])
def test_memory_that_cannot_be_shared_is_copied(place):
    readonly = numpy.arange(4.0)
    readonly.flags.writeable = False
    crooked = numpy.frombuffer(bytearray(8 * 5), "uint8")[place : place + 32].view("float64")
    for source, why in ((readonly, "read-only"), (crooked, "not aligned to its elements")):
        x = np.from_dlpack(source)
        x += 1
        assert x.tolist() == (source + 1).tolist()
        with pytest.raises(BufferError, match=f"the data is {why}, so it has to be copied"):
            np.from_dlpack(source, copy=False)
    assert np.from_dlpack(readonly[:0], copy=False).shape == (0,)
    assert _core.exports() == 0


def test_lent_memory_lives_as_long_as_the_array_and_no_longer():
    source = numpy.arange(400.0)
    seen = weakref.ref(source)
    x = np.from_dlpack(source[10:])
    view = x[::2]
    del source, x
    gc.collect()
    assert seen() is not None and view[1].item() == 12
    del view
    assert seen() is None and _core.exports() == 0


def test_lent_memory_is_given_back_by_whatever_thread_is_the_last():
    source = numpy.ones((300, 300), "float32")
    seen = weakref.ref(source)
    x = np.from_dlpack(source)
    waiting = products(x)
    held = [x, *waiting]
    del x, waiting, source
    thread = threading.Thread(target=held.clear)
    thread.start()
    thread.join()
    npx.waitall()
    until = time.monotonic() + 60  # the engine's threads leave the release to the main thread
    while seen() is not None and time.monotonic() < until:
        time.sleep(0.001)
    assert seen() is None and _core.exports() == 0


def test_writes_from_outside_are_seen_and_ours_are_visible_at_once():
    x = np.zeros((300, 300))
    shared = numpy.from_dlpack(x)
    for step in range(5):
        y = x * 2
        x += 1
        assert shared[0, 0] == 2 * step + 1 and shared[299, 299] == 2 * step + 1
        shared += 1
        assert y[0, 0].item() == 4 * step
    z = np.dot(x, x)
    shared[...] = -1
    assert z[0, 0].item() == 300 * 100
    del shared
    assert _core.exports() == 0


# engine.md 33
def test_reads_queued_before_the_export_saw_the_old_data():
    x = np.ones((500, 500))
    queued = products(x)
    shared = numpy.from_dlpack(x)
    shared[...] = 5
    assert {y[0, 0].item() for y in queued} == {500}
    assert np.dot(x, x)[3, 3].item() == 500 * 25


def test_memoryviews_likewise():
    x = np.ones((500, 500))
    queued = products(x)
    with memoryview(x) as shared:
        numpy.asarray(shared)[...] = 5
        assert _core.exports() == 1
    assert {y[0, 0].item() for y in queued} == {500}
    assert _core.exports() == 0


# engine.md 32
def test_asnumpy_does_not_wait_for_readers():
    x = np.ones((4,))
    with reader(x):
        assert x.asnumpy().tolist() == [1] * 4


def test_compiled_programs_read_what_outside_wrote():
    w = np.ones((300, 300))
    program = gemel.compile(lambda x: np.dot(x, w))
    x = np.ones((300, 300))
    assert program(x)[0, 0].item() == 300
    shared = numpy.from_dlpack(w)
    for value in (2.0, 3.0):
        shared[...] = value
        y = program(x)
        shared[...] = 0
        assert y[0, 0].item() == 300 * value


# engine.md 34
def test_arrays_a_program_closes_over_are_read_in_order():
    w = np.ones((400, 400))
    program = gemel.compile(lambda x: np.dot(x, w))
    x = np.ones((400, 400))
    program(x).wait_to_read()
    results = []
    for _ in range(10):
        w += 1
        results.append(program(x))
    assert [y[0, 0].item() for y in results] == [400.0 * (n + 2) for n in range(10)]


def test_capsules_nobody_uses_and_capsules_used_twice():
    x = np.ones(4)
    capsule = x.__dlpack__()
    assert _core.exports() == 1
    del capsule
    assert _core.exports() == 0
    capsule = x.__dlpack__(max_version=(1, 0))
    assert _core.from_dlpack(capsule).tolist() == [1] * 4
    assert _core.exports() == 0
    with pytest.raises(BufferError, match="used one"):
        _core.from_dlpack(capsule)
    assert x.__dlpack_device__() == (1, 0)


def test_copies_and_other_devices():
    x = np.ones(4)
    shared = numpy.from_dlpack(x, copy=True)
    shared[...] = 3
    assert x.tolist() == [1] * 4
    with pytest.raises(BufferError, match="cannot go to"):
        x.__dlpack__(dl_device=(2, 0))
    with pytest.raises(BufferError, match="no streams"):
        x.__dlpack__(stream=1)
    assert x.__dlpack__(stream=None, dl_device=(1, 0), copy=False) is not None
    device.simulate(1)
    try:
        y = np.ones(3, device=gpu(0))
        for export in (memoryview, numpy.from_dlpack):
            with pytest.raises(BufferError, match=r"gpu\(0"):
                export(y)
        assert numpy.asarray(y).tolist() == [1, 1, 1]
    finally:
        npx.waitall()
        device.simulate(0)


def test_complex_numbers_come_too():
    x = np.from_dlpack(numpy.array([1 + 2j], dtype=numpy.complex64))
    assert (x.dtype, x.tolist()) == (np.complex64, [1 + 2j])


class Lent(ctypes.Structure):
    """The part of DLPack's struct that these tests read."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device", ctypes.c_int32),
        ("number", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
    )


def address(capsule, name):
    """The address of a capsule's struct."""
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
    return pointer(capsule, name)


def test_a_capsule_says_its_version_and_whether_it_is_a_copy():
    x = np.ones(3)
    for copy, flags in ((None, 0), (False, 0), (True, 2)):
        capsule = x.__dlpack__(max_version=(1, 1), copy=copy)
        start = address(capsule, b"dltensor_versioned")
        assert list((ctypes.c_uint32 * 2).from_address(start)) == [1, 0]
        assert ctypes.c_uint64.from_address(start + 24).value == flags
    for version in (None, (0, 8)):
        assert address(x.__dlpack__(max_version=version), b"dltensor")
    shared = numpy.from_dlpack(x, device="cpu", copy=False)
    shared[0] = 5
    assert x[0].item() == 5


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("device", 2, "the data is on a device of type 2"),
        ("code", 9, "no dtype here has type code 9"),
        ("bits", 128, "code 2, 128 bits"),
        ("lanes", 4, "4 lanes; convert first"),
        ("ndim", 40, "40 dimensions; at most 32"),
        ("data", None, "there are elements, but no memory"),
    ],
)
def test_dtypes_gemel_has_no_arrays_of(field, value, message):
    """Such a capsule is refused, but stays usable."""
    capsule = numpy.ones(3, "float32").__dlpack__()
    lent = Lent.from_address(address(capsule, b"dltensor"))
    before = getattr(lent, field)
    setattr(lent, field, value)
    with pytest.raises(BufferError, match=message):
        np.from_dlpack(capsule)
    setattr(lent, field, before)
    assert np.from_dlpack(capsule).tolist() == [1, 1, 1]


def test_the_last_holder_may_let_go_on_another_thread():
    x = np.ones(1000)
    held = [numpy.from_dlpack(x)]
    del x
    thread = threading.Thread(target=held.clear)
    thread.start()
    thread.join()
    assert _core.exports() == 0


def test_a_failed_array_is_not_exported():
    bad = np.arange(3)[np.array([7])]
    with pytest.raises(IndexError):
        numpy.from_dlpack(bad)
    assert _core.exports() == 0


class Foreign:
    """An array of a library that supports DLPack and nothing else."""

    def __init__(self, values):
        self.values = values

    def __dlpack__(self, **options):
        return self.values.__dlpack__(**options)

    def __dlpack_device__(self):
        return self.values.__dlpack_device__()


def test_arrays_of_others_beside_ours():
    mine = np.array([[1.0, 2.0], [3.0, 4.0]])
    theirs = Foreign(numpy.array([[2.0, 0.5], [1.0, 4.0]], "float32"))
    for found, expected in (
        (mine + theirs, mine + theirs.values),
        (theirs + mine, theirs.values + mine),
        (theirs - mine, theirs.values - mine),
        (mine @ theirs, mine @ theirs.values),
        (mine < theirs, mine < theirs.values),
        (np.maximum(mine, theirs), np.maximum(mine, theirs.values)),
        (np.array(theirs), theirs.values),
        (np.concatenate([mine, theirs]), np.concatenate([mine, theirs.values])),
        (gemel.compile(lambda x: x * theirs + 1)(mine), mine * theirs.values + 1),
    ):
        assert isinstance(found, np.ndarray) and found.tolist() == expected.tolist()
    view = mine[0]
    view += Foreign(numpy.ones(2, "float32"))
    mine[1] = Foreign(numpy.zeros(2, "float32"))
    assert mine.tolist() == [[2, 3], [0, 0]]
    x = np.array(theirs)
    theirs.values[...] = 9
    assert x[0, 0].item() == 2, "operands from outside are copied"
    assert mine + Foreign(np.ones(2, dtype="bfloat16")) is not None and _core.exports() == 0


# --- torch, when it is there ----------------------------------------------------------------


def test_torch_writes_while_reads_are_queued():
    torch = pytest.importorskip("torch")
    x = np.ones((500, 500))
    for value in (2.0, 3.0, 4.0):
        old = x[0, 0].item()
        queued = products(x, 4)
        tensor = torch.from_dlpack(x)
        tensor.fill_(value)
        later = products(x, 2)
        assert {y[0, 0].item() for y in queued} == {500 * old**2}
        tensor.mul_(0).add_(value)
        assert {y[0, 0].item() for y in later} == {500 * value**2}
        x += 0.5
        assert tensor[7, 7].item() == value + 0.5
        x -= 0.5
        del tensor
        assert _core.exports() == 0


def test_torch_tensors_come_in_as_they_are():
    torch = pytest.importorskip("torch")
    tensor = torch.arange(6, dtype=torch.float32).reshape(2, 3)
    x, y = np.from_dlpack(tensor), np.from_dlpack(tensor.T)
    x += 1
    tensor.mul_(2)
    assert x.tolist() == [[2, 4, 6], [8, 10, 12]]
    assert y.tolist() == [[2, 8], [4, 10], [6, 12]]
    half = torch.ones(3, dtype=torch.bfloat16)
    z = np.from_dlpack(half)
    z += 1
    assert z.dtype == "bfloat16" and half.tolist() == [2, 2, 2]
    for found in (x * tensor, tensor * x, np.array(half) * 2, half + z):
        assert isinstance(found, np.ndarray)


def test_jax_arrays_both_ways():
    jax = pytest.importorskip("jax")
    theirs, x = jax.numpy.arange(6.0).reshape(2, 3), np.ones((2, 3))
    for found in (x + theirs, theirs + x, np.from_dlpack(theirs) + 1, np.array(theirs) + x):
        assert isinstance(found, np.ndarray) and found.tolist() == [[1, 2, 3], [4, 5, 6]]
    assert jax.numpy.from_dlpack(x.T).shape == (3, 2)
    half = jax.numpy.from_dlpack(x.astype("bfloat16"))
    assert np.from_dlpack(half).dtype == "bfloat16"
    with pytest.raises(BufferError, match="convert first"):
        np.from_dlpack(theirs.astype(jax.numpy.float8_e4m3fn))
