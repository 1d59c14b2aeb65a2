"""In-place writes mean the same in a compiled function as outside it."""

from __future__ import annotations

from collections.abc import Callable
from threading import Thread
from typing import Any

import numpy
import pytest

import gemel
from gemel import autograd, gluon, np, npx
from gemel.errors import DTypeError, ShapeError, TraceError

Function = Callable[..., Any]


def the_same_array_by_another_name(x: Any) -> Any:
    y = x
    y += 1
    return x * y


def an_element(x: Any) -> Any:
    y = x * 1
    y[0] = 5
    return y


def views_see_it(x: Any) -> Any:
    y = x * 1
    v = y[1:]
    y *= 2
    v += 1
    return y * v.sum(), v, y[::-1] * x


def views_of_views(x: Any) -> Any:
    y = np.stack([x, x * 2, x * 3])
    v = y.T[1:]
    w = v.reshape(-1)  # a copy
    v[0] += x
    w += 100
    row = y[2]
    row[1:] = v[0, :1]
    return y, v, w, row


def parts(x: Any) -> Any:
    y = np.concatenate([x, x])
    first, second = np.split(y, 2)
    first *= second
    second[1:] -= 1
    return y, first, second


def masks(x: Any) -> Any:
    y = x * 1
    y[y > 1.5] = y.sum()
    z = np.stack([y, y])
    z[np.array([True, False])] = 0
    return y, z


def numbers_are_cut_to_the_dtype(x: Any) -> Any:
    y = (x * 10).astype("int32")
    y[0], y[y > 25], y[np.array([1])] = 1.5, 2.5, 3.5
    return y


def positions(x: Any) -> Any:
    y = np.stack([x, x * 2, x + 1])
    rows = np.array([2, 0, 2])
    y[rows] = np.stack([x, -x, x * x])  # at repeated positions the last value stays
    y[rows[:2], 1:] = x[0]
    y[..., np.array([1])] += 7
    v = y[:, 0]
    v[np.array([-1, 1])] = x[1:]
    y[[0, 1], [2, 1]] = 0.5
    return y, v


def masks_that_take_arrays(x: Any) -> Any:
    y = np.stack([x, x * 2])
    y[np.array([[True, False, True], [False, False, True]])] = x * x
    y[np.array([False, True])] = x
    y[:, np.array([True, False, False])] = x[2]
    return y


def the_argument_and_a_view_of_it(x: Any) -> Any:
    v = x[:2]
    x[1:] = x[0] * 3
    v -= 0.5
    return v * 2, x.sum()


def copies_are_apart(x: Any) -> Any:
    y, z = +x, x.copy()
    y += 1
    z *= 3
    return x, y, z


def numbers_are_replaced(x: Any) -> Any:
    n = x.shape[0]
    total = 0.0
    for _ in range(3):
        n += 1
        total += 0.5
    return x * n + total


def every_operator(x: Any) -> Any:
    y = x * 4
    y -= 1
    y /= 2
    y //= 1
    y **= 2
    y %= 7
    count = np.ones((3,), dtype="int64") * x.astype("int64")
    count += 6
    count &= 5
    count |= 8
    count ^= 1
    square = np.ones((3, 3)) * x
    square @= square.T
    return y, count, square


PROGRAMS = [
    the_same_array_by_another_name,
    an_element,
    views_see_it,
    views_of_views,
    parts,
    masks,
    numbers_are_cut_to_the_dtype,
    positions,
    masks_that_take_arrays,
    the_argument_and_a_view_of_it,
    copies_are_apart,
    numbers_are_replaced,
]


def listed(found: Any) -> list[Any]:
    if found is None:
        return []
    return [value.asnumpy() for value in (found if isinstance(found, tuple) else (found,))]


@pytest.mark.parametrize("recorded", [False, True])
@pytest.mark.parametrize("function", PROGRAMS, ids=lambda f: f.__name__)
def test_the_same_both_ways(function: Function, recorded: bool) -> None:
    compiled = gemel.compile(function)
    for _ in range(3):
        ways = []
        for call in (function, compiled):
            x = np.array([1.0, 2.0, 3.0])
            if recorded:
                x.attach_grad()
                with autograd.record():
                    found = call(x)
                    results = found if isinstance(found, tuple) else (found,)
                    loss = sum(((y * y).sum() for y in results if y._is_tracked), (x * x).sum())
                loss.backward()
                ways.append([*listed(found), x.asnumpy(), x.grad.asnumpy()])
            else:
                ways.append([*listed(call(x)), x.asnumpy()])
        for a, b in zip(*ways, strict=True):
            numpy.testing.assert_allclose(a, b, rtol=1e-5)
    assert compiled.traces == 1


#: Keys with an array of positions, and the shape of a value for an array of `n + 3` by 4 rows.
KEYS: dict[str, tuple[Function, Function]] = {
    "rows": (lambda i: i, lambda n: (n, 4)),
    "one row for all": (lambda i: i, lambda n: (1, 4)),
    "with leading axes": (lambda i: i, lambda n: (1, 1, n, 1)),
    "columns": (lambda i: (slice(None), i % 4), lambda n: (n + 3, n)),
    "pairs": (lambda i: (i[:, None], i[None] % 4), lambda n: (n, n)),
    "beside a number": (lambda i: (i, 2), lambda n: (n,)),
    "apart": (lambda i: (i, None, i % 4), lambda n: (n, 1)),
    "none": (lambda i: i, lambda n: ()),
}


@pytest.mark.parametrize("name", KEYS)
def test_positions_are_written_by_one_program(name: str) -> None:
    key, shape = KEYS[name]

    def write(x: Any, i: Any, value: Any) -> None:
        x[key(i)] = value

    compiled = gemel.compile(write)
    for n in 2, 3, 5, 9:
        expected = numpy.zeros((n + 3, 4), "float32")
        i, value = numpy.arange(n) * 2 % (n + 3), numpy.random.normal(size=shape(n))
        x, value = np.array(expected), value.astype("float32")
        write(expected, i, value)
        compiled(x, np.array(i), np.array(value))
        numpy.testing.assert_array_equal(x.asnumpy(), expected)
    assert compiled.traces == 1


def test_every_operator() -> None:
    x = np.array([1.0, 2.0, 3.0])
    for a, b in zip(every_operator(x), gemel.compile(every_operator)(x), strict=True):
        assert a.dtype is b.dtype and a.tolist() == b.tolist()


def test_a_parameter_is_overwritten() -> None:
    class Counting(gluon.HybridBlock):
        def __init__(self) -> None:
            super().__init__()
            self.seen = gluon.Parameter("seen", shape=(2,), init="zeros", grad_req="null")

        def forward(self, x: Any) -> Any:
            seen = self.seen.data()
            before = seen * 1
            seen[0] += x.sum()
            return before + self.seen.data()

    found = []
    for hybridize in (False, True):
        block = Counting()
        block.initialize()
        if hybridize:
            block.hybridize()
        found.append([block(np.ones((3,))).tolist() for _ in range(3)])
        assert block.seen.data().tolist() == [9, 0]
    assert found[0] == found[1] == [[3, 0], [9, 0], [15, 0]]


def one_branch_writes(x: Any) -> Any:
    return npx.cond(x.sum() > 0, lambda a: a.__iadd__(1), lambda a: a, [x])


@pytest.mark.parametrize(
    ("function", "error", "text"),
    [
        (lambda x: x.__iadd__(np.ones((2, 3))), ShapeError, r"in place, float32\[3\]"),
        (lambda x: x.astype("int32").__iadd__(0.5), DTypeError, "int32 cannot hold float32"),
        (lambda x: x.__setitem__(np.array([0, 1]), x), ShapeError, "does not broadcast"),
        (lambda x: x.astype("int8").__setitem__(0, 300), OverflowError, "assign: 300 is out of"),
        (lambda x: x.astype("uint8").__setitem__(x > 1, -1), OverflowError, "assign: -1 is out"),
        (lambda x: x.__setitem__(np.array([0.5, 1]), 0), DTypeError, "must be integers"),
        (lambda x: x.__setitem__(np.array([True]), 0), IndexError, "mask"),
        (lambda x: np.broadcast_to(x, (2, 3)).__setitem__(0, x), TraceError, "repeats elements"),
        (one_branch_writes, TraceError, "a branch must not"),
    ],
)
def test_what_cannot_be_written(function: Function, error: Any, text: str) -> None:
    with pytest.raises(error, match=text):
        gemel.compile(function)(np.array([1.0, 2.0, 3.0]))


def test_a_position_out_of_range_fails_what_is_written() -> None:
    @gemel.compile
    def function(x: Any, place: Any) -> Any:
        y = x * 2
        y[place] = x[0]
        return y, x + 1

    good, _ = function(np.array([1.0, 2.0]), np.array([1]))
    assert good.tolist() == [2, 1]
    bad, other = function(np.array([1.0, 2.0]), np.array([2]))
    assert other.tolist() == [2, 3]
    with pytest.raises(IndexError, match="out of bounds"):
        bad.wait_to_read()


def test_a_branch_that_sees_what_was_computed_before_a_write() -> None:
    """The branch computes it again, from the values before the write."""

    def forward(x: Any, state: Any) -> Any:
        before = x + state
        state += 1
        state[state > 2] = 0.5
        return npx.cond(x.sum() > 0, lambda: before * state, lambda: before - state)

    function = gemel.compile(forward)
    for sign in (1, -1):
        results = []
        for way in (forward, function):
            state = np.array([1.0, 0.2, 1.7])
            results.append((way(np.ones(3) * sign, state).tolist(), state.tolist()))
        assert results[0] == results[1]


# --- arguments that are overwritten where they lie ----------------------------------------------


def swap(a: Any, b: Any, x: Any) -> Any:
    old = a * 1
    a[:] = b + x
    b[:] = old - x
    return (a * b).sum()


def descend(a: Any, b: Any, x: Any) -> Any:
    with autograd.record():
        loss = ((x * a + b) ** 2).mean()
    for each, g in zip((a, b), autograd.grad(loss, [a, b]), strict=True):
        each -= 0.1 * g
    return a, loss


def only_a_part(a: Any, b: Any, x: Any) -> Any:
    a[1:] *= x[1:]
    b[::2] = 0
    return x + 1


def from_the_other_end(a: Any, b: Any, x: Any) -> Any:
    a[:] = a[::-1] + x
    b[:] = np.cumsum(b)
    return b


def read_again(a: Any, b: Any, x: Any) -> Any:
    old = a[::-1]
    new = a * 2 + x
    b[:] = np.convolve(b, a, "same") if a.size < 9 else b + np.cumsum(a)
    a[:] = new
    return old, a * 1


def turned_and_straight(a: Any, b: Any, x: Any) -> Any:
    square = a[:1] * x[:, None] + x  # a square of any size
    a += (square.T + square).sum(axis=0)
    b[:] = b - (a * 0.5)[::-1]


IN_PLACE = [swap, descend, only_a_part, from_the_other_end, read_again, turned_and_straight]


def numbers(size: int, seed: int) -> Any:
    return np.array(numpy.random.default_rng(seed).standard_normal(size).astype("float32"))


@pytest.mark.parametrize("size", [1, 5, 3000])
@pytest.mark.parametrize("function", IN_PLACE, ids=lambda f: f.__name__)
def test_arguments_are_overwritten_in_every_call(function: Function, size: int) -> None:
    compiled = gemel.compile(function)
    ways = []
    for call in (function, compiled):
        a, b, found = numbers(size, 1), numbers(size, 2), []
        a.attach_grad()
        b.attach_grad()
        seen = a[:]
        for step in range(5):  # traced, then remembered, then straight to the plan
            before = a.version
            found += listed(call(a, b, numbers(size, step)))
            assert a.version > before or size == 1  # a[1:] is empty then
            found += listed((seen * 1, b * 1))
        ways.append([*found, a.asnumpy(), b.asnumpy()])
    for one, other in zip(*ways, strict=True):
        numpy.testing.assert_allclose(one, other, rtol=2e-5, atol=1e-6)


def a_square(a: Any, b: Any) -> Any:
    before = a.T
    a[:] = a.T * 2 + a
    b[:] = np.matmul(b, before)
    return (a @ b).sum()


def after_a_product(a: Any, b: Any) -> Any:
    c = np.matmul(b, a)
    a[:] = a - 0.1 * np.matmul(c.T, b)
    b[:] = np.matmul(b, a.T) * 0.1 + b
    return c


@pytest.mark.parametrize("size", [3, 40, 300])
@pytest.mark.parametrize("function", [a_square, after_a_product], ids=lambda f: f.__name__)
def test_matrices_are_overwritten_when_they_have_been_read(function: Function, size: int) -> None:
    compiled = gemel.compile(function)
    ways = []
    for call in (function, compiled):
        a, b = (numbers(size * size, seed).reshape(size, size) * 0.1 for seed in (1, 2))
        found = [value for _ in range(4) for value in listed(call(a, b))]
        ways.append([*found, a.asnumpy(), b.asnumpy()])
    for one, other in zip(*ways, strict=True):
        numpy.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-4 * abs(one).max())


def test_arguments_that_do_not_lie_dense_are_overwritten_too() -> None:
    compiled = gemel.compile(swap)
    for step in range(6):
        whole, b, x = np.array(numpy.ones((4, 6), "float32")), numbers(4, 2), numbers(4, 3)
        a = whole[:, 2] if step % 2 else whole[2, :4]
        wanted = (b + x).tolist()
        compiled(a, b, x)
        assert a.tolist() == wanted
        assert float(whole.sum()) == pytest.approx(20 + sum(wanted), rel=1e-5)


def test_arguments_that_share_memory_are_refused_in_every_call() -> None:
    compiled = gemel.compile(swap)
    for _ in range(3):
        compiled(numbers(4, 1), numbers(4, 2), numbers(4, 3))
    whole = numbers(8, 1)
    before = whole.tolist()
    for a, b, x in (
        (whole[:4], whole[:4], numbers(4, 3)),
        (whole[:4], numbers(4, 2), whole[1:5]),
        (whole[:4], whole[2:6], numbers(4, 3)),
        (whole[:4], whole[::2], numbers(4, 3)),  # the program takes a copy of the second one
        (whole[:4], numbers(4, 2), whole[6::-2]),
    ):
        with pytest.raises(TraceError, match="shares memory"):
            compiled(a, b, x)
    assert whole.tolist() == before
    compiled(whole[:4], whole[4:], numbers(4, 3))  # two parts without common elements
    assert whole.tolist() != before


def test_values_kept_by_a_recorded_call_stay() -> None:
    compiled = gemel.compile(lambda a: a.__imul__(2) * 1)
    for _ in range(3):
        a = np.array([1.0, 2.0, 3.0])
        w = np.array([1.0, 1.0, 1.0])
        w.attach_grad()
        with autograd.record():
            y = (w * a).sum()
            compiled(a)
        y.backward()
        assert w.grad.tolist() == [1, 2, 3]
        assert a.tolist() == [2, 4, 6]


def test_an_argument_stays_when_something_fails() -> None:
    @gemel.compile
    def function(a: Any, place: Any) -> Any:
        a += 1
        return a[place]

    a = np.array([1.0, 2.0])
    for step in range(3):
        assert function(a, np.array([1])).tolist() == [3 + step]
    with pytest.raises(IndexError, match="out of bounds"):
        function(a, np.array([5])).wait_to_read()


@pytest.mark.parametrize("gives", [True, False])
def test_results_of_failed_arguments_fail(gives: bool) -> None:
    def function(a: Any, b: Any) -> Any:
        a += b
        return a * 1 if gives else None

    compiled = gemel.compile(function)
    for each in (function, compiled, compiled, compiled):
        a, failed = np.array([1.0]), np.arange(5.0)[np.array([9])]
        each(np.array([1.0]), np.array([2.0]))
        each(a, failed)
        with pytest.raises(IndexError, match="out of bounds"):
            a.wait_to_read()


def test_threads_overwrite_arguments_one_after_the_other() -> None:
    compiled = gemel.compile(lambda a, x: a.__iadd__(x).sum())
    total = np.zeros(500, dtype="float32")
    one = np.ones(500, dtype="float32")
    compiled(total, one)
    threads = [Thread(target=lambda: [compiled(total, one) for _ in range(50)]) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert total.tolist() == [201.0] * 500


def test_parts_without_elements() -> None:
    def function(x: Any) -> Any:
        y = x[..., 1:] * 2
        return y, y.sum(axis=1), y.sum(axis=(1, 2))

    x = np.ones((3, 4, 1))
    for found, expected in zip(gemel.compile(function)(x), function(x), strict=True):
        assert found.shape == expected.shape
        assert found.tolist() == expected.tolist()


# --- arguments of NumPy's -----------------------------------------------------------------------


def fill_parts(given: Any, factor: Any) -> Any:
    given["a"][1][0, 1:] = factor * 2
    given["b"] += 1
    return given["a"][1] * 1


def test_arrays_of_numpy_are_written_as_if_nothing_were_compiled() -> None:
    compiled = gemel.compile(fill_parts)
    for size in (3, 5, 3):
        found = []
        for way in (fill_parts, compiled):
            a, b = numpy.zeros((size, 4)).T, numpy.arange(6.0, dtype=">f4")[::2]  # no dense ones
            result = way({"a": [np.ones(2), a], "b": b}, 2.5)
            found.append((result.tolist(), a.tolist(), b.tolist()))
        assert found[0] == found[1]
    x, w = numpy.ones(3), np.ones(3)
    w.attach_grad()
    with autograd.record():
        y = gemel.compile(lambda x, w: x.__setitem__(0, w[0] * 3) or x * w)(x, w)
    y.backward()
    assert x.tolist() == [3, 1, 1] and w.grad.tolist() == [6, 1, 1]


def read_only() -> Any:
    x = numpy.zeros(3)
    x.flags.writeable = False
    return x


class Other:
    """An array of another library."""

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        return numpy.zeros(3)


SHARED = numpy.zeros(3)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ([read_only(), np.ones(3)], "a read-only array of NumPy's; pass gemel.np.array of"),
        ([Other(), np.ones(3)], "an argument of the type Other; pass"),
        ([numpy.float64(1), np.ones(3)], "an argument of the type float64; pass"),
        ([SHARED[:2], SHARED], r"float64\[2\], which .* shares memory with float64\[3\]"),
    ],
)
def test_arrays_of_others_that_cannot_be_written(arguments: Any, text: str) -> None:
    with pytest.raises(TraceError, match=f"write: .*{text}"):
        gemel.compile(write)(*arguments)
    assert SHARED.tolist() == [0, 0, 0]


def write(a: Any, b: Any) -> Any:
    a[...] = 5
    return b * 1


def test_symbols_have_no_value_for_arrays_of_numpy() -> None:
    outside = numpy.zeros(3)
    with pytest.raises(TraceError, match="needs the value of <_Symbol data>"):
        gemel.compile(lambda x: outside.__setitem__(0, x))(np.array(1.0))
