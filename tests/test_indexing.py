"""x[key] and x[key] = value against NumPy, for keys of every kind."""

from __future__ import annotations

import enum
import operator
import random
from typing import Any

import numpy
import pytest

import gemel
from gemel import autograd, np, npx
from gemel.errors import ArrayIndexError, ShapeError


def random_key(generator: random.Random, shape: tuple[int, ...], arrays: bool) -> tuple[Any, ...]:
    """A key for an array of this shape: positions, slices, None, Ellipsis, integer arrays."""
    key: list[Any] = []
    for extent in shape[: generator.randint(0, len(shape))]:
        kind = generator.randint(0, 6 if arrays else 4)
        if kind == 0 and extent:
            key.append(generator.randint(-extent, extent - 1))
        elif kind > 4 and extent:
            places = [generator.randint(-extent, extent - 1) for _ in range(3)]
            key.append(numpy.array(places if kind == 5 else [[places[0]], [places[1]]]))
        else:
            bound = [None, None, generator.randint(-extent - 1, extent + 1)]
            step = generator.choice([None, 1, 2, -1, -2, 3])
            key.append(slice(generator.choice(bound), generator.choice(bound), step))
    if generator.random() < 0.2:
        key.insert(generator.randint(0, len(key)), None)
    if generator.random() < 0.2:
        key.insert(generator.randint(0, len(key)), Ellipsis)
    return tuple(key)


def on_gemel(key: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(np.array(item) if isinstance(item, numpy.ndarray) else item for item in key)


def same(x: Any, twin: Any) -> None:
    assert x.shape == twin.shape
    numpy.testing.assert_array_equal(x.asnumpy(), twin)


def selected(twin: Any, key: Any) -> Any:
    """What NumPy selects; None if the key does not fit."""
    try:
        return twin[key]
    except IndexError:
        return None


@pytest.mark.parametrize("start", range(0, 600, 100))
def test_random_keys(start: int) -> None:
    """Reads and writes through views of views, and with integer arrays."""
    for seed in range(start, start + 100):
        generator = random.Random(seed)
        shape = tuple(generator.randint(1, 5) for _ in range(generator.randint(1, 4)))
        base = numpy.arange(numpy.prod(shape)).reshape(shape)
        base = base.astype(generator.choice(["float32", "int64", "uint8"]))
        x = np.array(base)
        view, twin = viewed(generator, x, base)
        same(view, twin)
        key = random_key(generator, twin.shape, True)
        if selected(twin, key) is not None:
            same(view[on_gemel(key)], twin[key])
        key = random_key(generator, twin.shape, generator.random() < 0.5)
        part = selected(twin, key)
        if part is not None and part.size:
            write(generator, view, twin, key, part.shape)
            same(x, base)


def viewed(generator: random.Random, x: Any, twin: Any) -> tuple[Any, Any]:
    """Views of views, the same of two arrays."""
    for _ in range(generator.randint(0, 3)):
        if generator.random() < 0.3:
            x, twin = x.T, twin.T
            continue
        key = random_key(generator, twin.shape, False)
        if isinstance(selected(twin, key), numpy.ndarray):
            x, twin = x[key], twin[key]
    return x, twin


def write(generator: random.Random, view: Any, twin: Any, key: Any, shape: Any) -> None:
    """Write the same number or broadcast array into both."""
    if generator.random() < 0.3:
        view[on_gemel(key)] = 7
        twin[key] = 7
        return
    extents = [n if generator.random() < 0.6 else 1 for n in shape]
    value = numpy.arange(numpy.prod(extents, dtype=int)).reshape(extents)
    twin[key] = value
    view[on_gemel(key)] = np.array(value)


@pytest.mark.parametrize("start", range(0, 100, 50))
def test_random_masks(start: int) -> None:
    for seed in range(start, start + 50):
        generator = random.Random(seed)
        shape = tuple(generator.randint(1, 4) for _ in range(generator.randint(1, 3)))
        base = numpy.arange(numpy.prod(shape), dtype="float32").reshape(shape)
        x = np.array(base)
        first = generator.randint(0, len(shape) - 1)
        last = generator.randint(first + 1, len(shape))
        mask = numpy.random.default_rng(seed).random(shape[first:last]) < 0.5
        key = (*[slice(None)] * first, mask)
        same(x[on_gemel(key)], base[key])
        x[on_gemel(key)] = -1
        base[key] = -1
        same(x, base)


MASKS = {
    "too short": ((3, 4), lambda m: m[[True, False]]),
    "too long": ((3, 4), lambda m: m[[True, False, False, True]]),
    "too short behind": ((3, 4), lambda m: m[:, [True, False]]),
    "of the other axis": ((3, 4), lambda m: m[..., [True, False, True]]),
    "of too many axes": ((3,), lambda m: m[numpy.ones((3, 1), bool)]),
    "of two axes, one too short": ((3, 4, 2), lambda m: m[numpy.ones((3, 3), bool)]),
    "beside a position": ((3, 4), lambda m: m[1, [True, False, True]]),
    "two ellipses": ((3, 4), lambda m: m[..., [True, False, True], ...]),
    "floats": ((3, 4), lambda m: m[[0.0, 1.0], [0, 1]]),
}


@pytest.mark.parametrize("case", MASKS)
def test_masks_that_do_not_fit(case: str) -> None:
    """The call refuses them for reads and writes, as in NumPy."""
    shape, use = MASKS[case]
    for x in (numpy.zeros(shape), np.zeros(shape)):
        with pytest.raises((IndexError, TypeError)):
            use(x)
        with pytest.raises((IndexError, TypeError)):
            use(Assigned(x))
        assert not x.any()


class Assigned:
    """Writes 1 where the key selects."""

    def __init__(self, array: Any) -> None:
        self.array = array

    def __getitem__(self, key: Any) -> None:
        self.array[key] = 1
        npx.waitall()


def mask(*shape: int, seed: int = 0) -> Any:
    return numpy.random.default_rng(seed).random(shape) < 0.5


KEYS: list[Any] = [
    True, False, (True, 0), (0, True), (slice(None), True), (Ellipsis, False), (None, True),
    (True, slice(1, 2)), (True, [0, 2]), ([1, 0], True), (True, True), numpy.True_,
    numpy.array(True), numpy.array(False), (numpy.array(True), Ellipsis, 1),
    mask(3), (slice(None), mask(4)), (Ellipsis, mask(2)), (mask(3), 1), (1, mask(4)),
    (mask(3), slice(None), 1), mask(3, 4), (Ellipsis, mask(4, 2)), (mask(3, 4), 0),
    (None, mask(3, 4)), (slice(None), mask(4, 2)), (0, mask(4, 2)), (1, slice(None), mask(2)),
    mask(3, 4, 2), (mask(3), [0] * int(mask(3).sum())), numpy.zeros((3, 4), bool),
    numpy.zeros((0,), int),
]  # fmt: skip


@pytest.mark.parametrize("key", KEYS, ids=lambda key: repr(key).replace("\n", ""))
def test_masks_and_truths(key: Any) -> None:
    """Masks over all axes, over fewer, or without dimensions: read, recorded and written."""
    base = numpy.arange(24.0, dtype="float32").reshape(3, 4, 2)
    x = np.array(base)
    given = on_gemel(key) if isinstance(key, tuple) else on_gemel((key,))[0]
    same(x[given], base[key])
    x.attach_grad()
    with autograd.record():
        total = (x[given] * x[given]).sum()
    total.backward()
    gradient = numpy.zeros_like(base)
    gradient[key] = 2 * base[key]
    same(x.grad, gradient)
    x = np.array(base)
    x[given] = -1
    base[key] = -1
    same(x, base)


def test_positions_in_an_axis_without_elements() -> None:
    """Nothing is read or written outside of the array."""
    empty = np.zeros((0, 3))
    for read in (lambda: empty[[0]], lambda: np.take(empty, np.array([-1]), axis=0)):
        with pytest.raises(IndexError):
            read().asnumpy()
    assert empty[np.zeros((0,), "int64")].shape == (0, 3)
    with pytest.raises(IndexError):
        np.zeros((2, 0))[[0, 1], [0, 0]].asnumpy()


SPLITS: list[Any] = [
    [-2], [1, -1], [-3, -1], [-9], [9], [-1, 1], [3, 1], [0], [], [2, 2], [-6, 6], 2, 3,
]  # fmt: skip


@pytest.mark.parametrize("sections", SPLITS, ids=str)
@pytest.mark.parametrize("way", ["imperative", "compiled"])
def test_split(sections: Any, way: str) -> None:
    """Cuts are positions as in slices: negative ones count from the end."""
    base = numpy.arange(12.0, dtype="float32").reshape(6, 2)

    def cut(x: Any) -> Any:
        return np.split(x, sections)

    parts = (gemel.compile(cut) if way == "compiled" else cut)(np.array(base))
    for part, twin in zip(parts, numpy.split(base, sections), strict=True):
        same(part, twin)


def test_positions_beside_arrays() -> None:
    """As in NumPy, positions count as arrays; if a slice separates them, their axes come first."""
    base = numpy.arange(60).reshape(3, 4, 5)
    x = np.array(base)
    places = numpy.array([0, 2, 1])
    for key in (
        (0, slice(None), places),
        (places, slice(None), 1),
        (slice(None), places, 1),
        (1, places),
        (Ellipsis, places, 0),
        (0, None, places),
        (places, 0, places),
        (places, slice(1, 3), places),
    ):
        same(x[on_gemel(key)], base[key])


def test_writes_that_overlap_what_they_read() -> None:
    base = numpy.arange(12.0, dtype="float32")
    x = np.array(base)
    x[1:] = x[:-1]
    base[1:] = base[:-1].copy()
    same(x, base)
    x[::-1] = x
    base[::-1] = base.copy()
    same(x, base)
    x += x[::-1]
    base += base[::-1].copy()
    same(x, base)
    square = numpy.arange(9.0, dtype="float32").reshape(3, 3)
    y = np.array(square)
    y += y.T
    same(y, square + square.T)


class Grade(enum.IntEnum):
    GOOD = 2


@pytest.mark.parametrize("number", [numpy.float64(2.5), Grade.GOOD], ids=lambda n: type(n).__name__)
@pytest.mark.parametrize("dtype", ["float32", "float64", "int32"])
def test_numbers_of_classes_derived_from_pythons_are_written(number: Any, dtype: str) -> None:
    base = numpy.zeros((2, 3), dtype)
    x = np.array(base)
    for array in (base, x):
        array[0, 1] = number
        array[1] = number
        array[array > 5] = number
    same(x, base)
    x.fill(number)
    base.fill(number)
    same(x, base)
    written = gemel.compile(lambda x: operator.setitem(x, 0, number) or x)
    same(written(np.zeros(2, dtype=dtype)), numpy.array([number, 0], dtype))
    y = np.ones(2)
    y.attach_grad()
    with autograd.record():
        z = y * 3
        z[0] = number
    z.backward()
    same(y.grad, numpy.array([0, 3], "float32"))


def test_lists_and_numpy_arrays_are_keys() -> None:
    base = numpy.arange(12).reshape(3, 4)
    x = np.array(base)
    same(x[[0, 2]], base[[0, 2]])
    same(x[numpy.array([1, -1]), [0, 1]], base[numpy.array([1, -1]), [0, 1]])
    same(x[numpy.int64(1)], base[1])
    same(x[base > 5], base[base > 5])
    x[numpy.int64(2), numpy.int32(1)] = -5
    x[[0, 1], 3] = [70, 80]
    base[2, 1], base[0, 3], base[1, 3] = -5, 70, 80
    same(x, base)


UNSIGNED = numpy.array([0, 1, 2**63 - 1, 2**63, 2**64 - 2, 2**64 - 1], "uint64")


@pytest.mark.parametrize("run", [lambda f: f, gemel.compile], ids=["called", "compiled"])
@pytest.mark.parametrize("mode", ["clip", "wrap"])
def test_unsigned_positions_that_int64_cannot_hold(mode: str, run: Any) -> None:
    """They are beyond the end, so the nearest element is the last, not the first."""
    x = numpy.arange(18, dtype="float32").reshape(6, 3)
    places = numpy.minimum(UNSIGNED, 2) if mode == "clip" else UNSIGNED % numpy.uint64(3)
    index, places = np.array(UNSIGNED), places.astype("int64")
    taken = run(lambda x, i: np.take(x, i, axis=1, mode=mode))
    picked = run(lambda x, i: npx.pick(x, i, axis=1, mode=mode))
    given = np.array(x)
    given.attach_grad()
    with autograd.record():
        found = taken(given, index)
    found.backward()
    numpy.testing.assert_array_equal(found.asnumpy(), x[:, places])
    wanted = numpy.broadcast_to(numpy.bincount(places, minlength=3), x.shape)
    numpy.testing.assert_array_equal(given.grad.asnumpy(), wanted)
    with autograd.record():
        found = picked(given, index)
    found.backward()
    numpy.testing.assert_array_equal(found.asnumpy(), x[range(6), places])
    numpy.testing.assert_array_equal(given.grad.asnumpy(), numpy.eye(3)[places])


@pytest.mark.parametrize("run", [lambda f: f, gemel.compile], ids=["called", "compiled"])
def test_unsigned_positions_are_not_counted_from_the_end(run: Any) -> None:
    x, index = np.arange(9.0).reshape(3, 3), np.array(UNSIGNED[-1:])
    for function in (lambda x, i: x[i, i], lambda x, i: npx.gather_nd(x, i.reshape(1, 1))):
        with pytest.raises(IndexError):
            run(function)(x, index).asnumpy()


@pytest.mark.parametrize(
    ("key", "axis"),
    [
        ((0, [9]), 1),
        ((slice(None), 0, [9]), 2),
        ((None, 0, slice(None), [9]), 2),
        ((0, [9], [0]), 1),
        (([9],), 0),
    ],
)
def test_errors_name_the_axis_that_the_position_is_for(key: Any, axis: int) -> None:
    with pytest.raises(IndexError, match=rf"out of bounds for axis {axis}\b"):
        np.ones((3, 3, 3))[key].asnumpy()


@pytest.mark.parametrize("run", [lambda f: f, gemel.compile], ids=["called", "compiled"])
@pytest.mark.parametrize(
    ("key", "value", "error"),
    [
        ((0, [9]), 1, ArrayIndexError),
        (([9],), 1, ArrayIndexError),
        (([True, False, True], 9), 1, ArrayIndexError),
        (([True, False, True], [0, 1, 2]), 1, ArrayIndexError),
        (([0, 1], [0, 1, 2]), 1, ArrayIndexError),
        ((9, [0, 1]), 1, ArrayIndexError),
        (([True, False, True],), numpy.zeros((3, 4)), ShapeError),
    ],
    ids=str,
)
def test_errors_of_assignments_are_gemels(key: Any, value: Any, error: Any, run: Any) -> None:
    """They were NumPy's bare ones when they were not recorded or compiled."""

    def assign(x: Any) -> Any:
        x = x + 1
        x[key] = np.array(value)
        return x

    with pytest.raises(error, match="assign: "):
        run(assign)(np.zeros((3, 4))).asnumpy()
