"""The tape: gradients through views, in-place writes, and gradients of gradients."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Callable
from typing import Any

import numpy
import pytest

import gemel
from gemel import autograd, device, gpu, np, npx
from gemel.errors import GradientError, ShapeError

Function = Callable[..., Any]


def array(values: Any) -> Any:
    return np.array(values, dtype="float64")


def slopes(function: Function, values: list[Any]) -> list[Any]:
    """The gradients by central differences."""
    found = []
    for position, value in enumerate(values):
        slope = numpy.zeros(numpy.shape(value))
        for place in numpy.ndindex(*slope.shape):
            ends = []
            for step in (1e-6, -1e-6):
                moved = [numpy.array(v, "float64") for v in values]
                moved[position][place] += step
                ends.append(function(*map(array, moved)).asnumpy().sum())
            slope[place] = (ends[0] - ends[1]) / 2e-6
        found.append(slope)
    return found


def gradients(function: Function, values: list[Any], times: int = 3) -> list[list[Any]]:
    """The gradients of a first backward, which is not compiled, and of later ones, which are."""
    arrays = [array(value) for value in values]
    for x in arrays:
        x.attach_grad()
    found = []
    for _ in range(times):
        inputs = [x.copy() for x in arrays]
        with autograd.record():
            y = function(*arrays)
        y.backward()
        found.append([x.grad.asnumpy() for x in arrays])
        for x, before in zip(arrays, inputs, strict=True):
            with autograd.pause():
                x[...] = before
    return found


def check(function: Function, values: list[Any]) -> None:
    expected = slopes(function, values)
    for found in gradients(function, values):
        for g, wanted in zip(found, expected, strict=True):
            numpy.testing.assert_allclose(g, wanted, rtol=1e-6, atol=1e-7)


# --- views and writes -------------------------------------------------------------------------


def written_behind_a_view(a: Any) -> Any:
    b = a * 1
    v = b[0:1]
    b *= 3
    return (v * v).sum()


def written_through_a_view(a: Any) -> Any:
    b = a * 1
    v = b[1:]
    v *= a[0]
    v[1] = a[1] * a[2]
    return (b * b).sum()


def written_through_a_view_of_a_view(a: Any) -> Any:
    b = (a * 2).reshape(1, 3)
    column = b.T[1:]
    column[0] += a[0] * column[1]
    return (b * b).sum() + column.sum()


def a_view_made_before_anything_was_recorded(a: Any) -> Any:
    with autograd.pause():
        b = np.zeros((3,), dtype="float64")
        v = b[::-1]
    b[:] = a * a
    v[0] *= a[0]
    return (v * a).sum()


def the_array_is_gone_but_the_view_stays(a: Any) -> Any:
    with autograd.pause():
        b = np.zeros((3,), dtype="float64")
        v = b[0:2]
    b[:] = a * 3
    del b
    return (v * v).sum()


def a_mask(a: Any) -> Any:
    b = a * 1
    b[a > 1.5] = a[0] * 10
    return (b * b).sum()


def a_mask_of_a_view(a: Any) -> Any:
    b = np.concatenate([a, a * 2])
    v = b[::2]
    v[v > 2] *= a[1]
    return (b * b).sum()


def positions_which_repeat(a: Any) -> Any:
    b = a * 1
    b[np.array([0, 2, 0])] = a * a  # at repeated positions the last value stays
    return (b * a).sum()


def pairs_of_positions(a: Any) -> Any:
    b = np.zeros((2, 2), dtype="float64")
    b[np.array([0, 1]), np.array([1, 0])] = a[:2] * a[1:]
    return (b * b).sum() + b[0, 1]


def a_number_over_everything(a: Any) -> Any:
    b = a * 2
    b[:] = 5.0
    return (b * a).sum()


def a_number_through_a_view(a: Any) -> Any:
    b = a * 2
    b[1:2] = 7
    return (b * b).sum()


def written_over_what_was_saved(a: Any) -> Any:
    b = a * 2
    c = b * b
    b *= b
    b[0] = c[1]
    d = np.tanh(b)
    d += d * d
    return (c * d).sum()


def a_constant_that_was_used(a: Any) -> Any:
    w = np.ones((3,), dtype="float64")
    y = a * w
    w += a
    w[0] = 4.0
    return (y * w).sum()


def row_by_row(a: Any) -> Any:
    b = np.zeros((4, 3), dtype="float64")
    b[0] = a
    for i in range(1, 4):
        b[i] = b[i - 1] * a + i
    return (b * b).mean()


def a_variable_is_overwritten(a: Any) -> Any:
    y = a * a
    a[0] = a[1] * 3
    return (y * a).sum()


def a_variable_is_forgotten(a: Any) -> Any:
    y = a * a
    a[:] = 3.0
    return (y * a).sum()


def reshaped_and_turned(a: Any) -> Any:
    b = np.concatenate([a, a * a]).reshape(2, 3).T
    b[1:, ::-1] += a[:2].reshape(2, 1)
    flat = b.reshape(-1)  # a copy, because b is not dense
    flat *= 2
    return (flat * flat).sum() + (b * b * b).sum()


def split_parts(a: Any) -> Any:
    b = np.concatenate([a, a])
    first, second = np.split(b, 2)
    first *= second
    return (b * b).sum()


def more_than_one_key(a: Any) -> Any:
    """Rows and columns within one axis of the view: no key of the base selects these."""
    b = np.concatenate([a, a * 2, a * 3, a * 4]).reshape(2, 6)
    v = b[:, 1:5].reshape(2, 2, 2)[:, :, 0]
    w = b.reshape(4, 3)[1:3].reshape(6)[1:5].reshape(2, 2).T[::-1]
    w *= a[0]
    return (v * v).sum() + (w * a[1]).sum() + (b * b).sum()


def broadcast_and_read(a: Any) -> Any:
    b = a * 1
    wide = np.broadcast_to(b, (2, 3))
    b[1:] *= a[0]
    return (wide * wide).sum()


def steps_and_signs(a: Any) -> Any:
    b = np.concatenate([a, a * a])
    v = b[-1:0:-2]
    v += v[::-1] * a
    return (b * b).sum()


def all_but_floating(a: Any) -> Any:
    count = np.zeros((3,), dtype="int64")
    count[:] = a
    count += 1
    return (a * count).sum()


def mixed_dtypes(a: Any) -> Any:
    b = np.zeros((3,), dtype="float64")
    b[1:] = a[:2] * a[1:]
    b += a.astype("float64") * 2
    return (b * b).sum()


WRITES = [
    value
    for name, value in list(globals().items())
    if name not in ("gradients", "array")
    and callable(value)
    and getattr(value, "__code__", None) is not None
    and value.__code__.co_varnames[:1] == ("a",)
    and value.__code__.co_argcount == 1
]


@pytest.mark.parametrize("function", WRITES, ids=lambda f: f.__name__)
def test_views_and_writes(function: Function) -> None:
    assert len(WRITES) > 20
    check(function, [[1.25, 2.1, 3.5]])


def test_the_example_of_the_issue() -> None:
    found = gradients(written_behind_a_view, [[1.0, 2.0]])
    assert [g[0].tolist() for g in found] == [[18, 0]] * 3


def test_unrecorded_writes_are_errors_for_gradients_that_need_the_old_values() -> None:
    x = array([1.0, 2.0])
    x.attach_grad()
    with autograd.record():
        y = x * 2
        z = (y * y).sum()
        with autograd.pause():
            y[0] = 3
    with pytest.raises(GradientError, match="overwritten in place outside of the recording"):
        z.backward()


def test_a_view_that_repeats_elements_is_not_written() -> None:
    x = array([1.0, 2.0])
    x.attach_grad()
    with autograd.record():
        y = np.broadcast_to(x * 1, (3, 2))
        with pytest.raises(GradientError, match=r"float64\[3, 2\], which repeats elements"):
            y[:] = x


def test_a_value_that_does_not_fit_changes_nothing() -> None:
    x = array([1.0, 2.0])
    x.attach_grad()
    with autograd.record():
        y = x * 2
        with pytest.raises(ShapeError, match="does not broadcast"):
            y[:1] = x
        with pytest.raises(ShapeError):
            y[np.array([0, 1])] = array([1.0, 2.0, 3.0])
        z = (y * y).sum()
    z.backward()
    assert x.grad.tolist() == [8, 16]


# --- variables --------------------------------------------------------------------------------


@pytest.mark.parametrize("when", ["before", "after", "again"])
def test_the_gradient_of_what_was_computed(when: str) -> None:
    """It is stored there, and also propagated to what the array was computed from."""
    x = array([1.0, 2.0])
    x.attach_grad()
    for _ in range(3):
        with autograd.record():
            u = x * 2
            if when != "after":
                u.attach_grad()
            z = (u * u * x).sum()
            if when != "before":
                u.attach_grad()
        z.backward()
        assert u.grad.tolist() == [4, 16]
        assert x.grad.tolist() == [12, 48]


def test_the_gradient_of_a_part_of_what_was_computed() -> None:
    x = array([1.0, 2.0, 3.0])
    x.attach_grad()
    with autograd.record():
        part = (x * 2)[1:]
        part.attach_grad()
        z = (part * part).sum() + x.sum()
    z.backward()
    assert part.grad.tolist() == [8, 12] and x.grad.tolist() == [1, 17, 25]


def test_computed_arrays_are_variables_once_their_tape_is_gone() -> None:
    x = array([1.0, 2.0])
    x.attach_grad()
    with autograd.record():
        u = x * 2
        u.attach_grad()
        z = (u * u).sum()
    z.backward()
    for _ in range(2):
        with autograd.record():
            z = (u * 3).sum()
        z.backward()
    assert u.grad.tolist() == [3, 3] and x.grad.tolist() == [8, 16]


def test_views_of_a_variable_lead_to_it_whenever_they_were_made() -> None:
    x = array([1.0, 2.0, 3.0])
    first, whole = x[0:2], x.reshape(3, 1)
    x.attach_grad()
    with autograd.record():
        z = (first * whole[1:, 0] * x[2]).sum()
    z.backward()
    expected = slopes(lambda x: (x[0:2] * x[1:] * x[2]).sum(), [[1.0, 2.0, 3.0]])[0]
    numpy.testing.assert_allclose(x.grad.asnumpy(), expected, rtol=1e-6)


def test_a_detached_array_is_cut_off() -> None:
    x = array([1.0, 2.0])
    x.attach_grad()
    with autograd.record():
        y = x * 2
        apart = y.detach()
        z = (apart[0] * y).sum()
    z.backward()
    assert x.grad.tolist() == [4, 4]


# --- examples that failed ---------------------------------------------------------------------

MENDED: dict[str, tuple[Function, list[Any]]] = {
    "product": (lambda x, w: np.dot(x, w), [[[1.0, 2.0], [3.0, 4.0]], [[1.0, 0.5], [2.0, 3.0]]]),
    "inner product": (lambda x, w: np.dot(x, w), [[1.0, 2.0], [3.0, 4.0]]),
    "product with a column": (lambda x, w: np.dot(x, w), [[[1.0, 2.0], [3.0, 4.0]], [1.0, 0.5]]),
    "repeated positions": (
        lambda y: ((y[np.array([0, 0])].sum() + y) ** 2).mean(),
        [[1.0, 2.0, 3.0]],
    ),
    "quotient": (
        lambda b, s: (b / (s.sum() * np.abs(b) + 1)).sum(),
        [[1.0, -2.0, 3.0], [1.0, 2.0]],
    ),
}


@pytest.mark.parametrize("name", MENDED)
def test_examples_that_failed(name: str) -> None:
    function, values = MENDED[name]
    check(function, values)
    for dtype in ("float32", "float16", "float64"):
        arrays = [np.array(value, dtype=dtype) for value in values]
        for x in arrays:
            x.attach_grad()
        for _ in range(2):
            with autograd.record():
                y = function(*arrays)
            y.backward()
            for x, wanted in zip(arrays, slopes(function, values), strict=True):
                assert x.grad.dtype == dtype
                tolerance = 2e-2 if dtype == "float16" else 1e-4
                numpy.testing.assert_allclose(x.grad.asnumpy(), wanted, tolerance, tolerance)


@pytest.mark.parametrize(
    ("function", "slope"),
    [
        (lambda x: x**0.7, lambda x: 0.7 * x**-0.3),
        (lambda x: 0.3**x, lambda x: numpy.log(0.3) * 0.3**x),
        (lambda x: x ** (1 / 3), lambda x: x ** (1 / 3 - 1) / 3),
    ],
)
def test_numbers_keep_their_precision(function: Function, slope: Function) -> None:
    values = numpy.array([0.5, 1.0, 2.0, 3.7])
    for found in gradients(function, [values]):
        numpy.testing.assert_allclose(found[0], slope(values), rtol=1e-14)


# --- plans and caches -------------------------------------------------------------------------


def test_a_structure_is_compiled_when_it_comes_again(monkeypatch: Any) -> None:
    from gemel.tape import step_plans

    compiled: list[Any] = []
    original = step_plans._compile
    monkeypatch.setattr(step_plans, "_compile", lambda *a: (compiled.append(a), original(*a)))
    x = array([1.0, 2.0])
    x.attach_grad()

    def step(factor: float) -> None:
        with autograd.record():
            y = (np.tanh(x * factor) / 7.125).sum()
        y.backward()

    for turn, factor in enumerate((1.5, 2.5, 3.5)):
        step(factor)
        assert len(compiled) == min(turn, 1)
    function = gemel.compile(lambda x: (np.tanh(x) / 7.25).sum())
    with autograd.record():
        y = function(x)
    y.backward()
    assert len(compiled) == 2, "the gradient of a compiled call is compiled at once"


def test_dtypes_and_ranks_do_not_mix() -> None:
    """What a rule reads is remembered separately for each combination of specs."""
    for dtype in ("float32", "float16", "float64", "float32"):
        for shape in ((3,), (3, 3), (2, 3, 3)):
            x, w = np.ones(shape, dtype=dtype), np.ones(shape[-1:] * 2)
            x.attach_grad()
            w.attach_grad()
            for _ in range(2):
                with autograd.record():
                    y = (np.dot(x, w) * 2).sum()
                y.backward()
                assert x.grad.dtype == dtype and w.grad.dtype == "float32"
                assert x.grad.reshape(-1)[0].item() == 6


def test_a_kind_that_is_made_again_has_its_number() -> None:
    from gemel.ops.elementwise import multiply
    from gemel.spec import Spec
    from gemel.tape import kinds

    def number(*shape: int, dtype: str = "float32") -> int:
        found = kinds.kind_of_specs(multiply, (Spec(shape, dtype), Spec((), "float32")), {})
        return found.number

    before = number(97, 3)
    kinds._kinds.clear()
    assert number(97, 3) == before
    assert len({before, number(3, 97), number(97, 3, dtype="float64")}) == 3


def test_the_oldest_entry_is_dropped_unless_it_is_used() -> None:
    from gemel.tape.clock_cache import ClockCache

    class Kept:
        used = False

    cache = ClockCache(3)
    for name in "abc":
        cache.keep(name, Kept())
    cache.find("a")
    cache.keep("d", Kept())
    assert set(cache) == {"a", "c", "d"}
    cache.keep("e", Kept())
    cache.keep("f", Kept())
    assert set(cache) == {"d", "e", "f"} or set(cache) == {"a", "e", "f"}
    assert cache.find("nothing") is None


# --- the rest of the world --------------------------------------------------------------------


def test_two_threads_record_at_once() -> None:
    shared = array([1.0, 2.0])
    shared.attach_grad("add")
    found: list[Any] = []

    def work(factor: float) -> None:
        x = array([1.0, 1.0]) * factor
        x.attach_grad()
        for _ in range(50):
            with autograd.record():
                y = x * 1
                y[0] *= shared[1]
                z = (y * y).sum()
            z.backward()
            found.append((factor, x.grad.tolist()))

    threads = [threading.Thread(target=work, args=(float(i + 1),)) for i in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(g == [8 * f, 2 * f] for f, g in found) and len(found) == 150


def test_an_error_while_recording_leaves_the_tape_usable() -> None:
    x = array([1.0, 2.0])
    x.attach_grad()
    y = None
    with pytest.raises(ShapeError), autograd.record():
        y = x * 2
        y += array([1.0, 2.0, 3.0])
    assert not autograd.is_recording()
    with autograd.record():
        z = (y * y).sum()
    z.backward()
    assert x.grad.tolist() == [8, 16]


def test_nothing_is_kept_alive() -> None:
    """Arrays, calls and what they save refer to each other in cycles; all of it is freed."""
    x = array([1.0, 2.0])
    x.attach_grad()
    gc.collect()
    with autograd.record():
        y = np.tanh(x)
        y *= np.exp(y[::-1])
        z = (y * y).sum()
    watch = [weakref.ref(y), weakref.ref(z)]
    del y, z
    gc.collect()
    assert [w() for w in watch] == [None, None]


@pytest.mark.parametrize("times", [1, 3])
def test_on_another_device(times: int) -> None:
    device.simulate(1)
    try:
        x = array([1.0, 2.0, 3.0])
        x.attach_grad()
        for _ in range(times):
            with autograd.record():
                y = (x * 2).as_in_ctx(gpu(0))
                y[1:] *= y[0]
                y[y > 8] = 1.0
                y[0] = x[2]
                z = (y * y).sum()
            z.backward()
        expected = slopes(lambda x: (x[2] ** 2) + (4 * x[0] * x[1]) ** 2, [[1.0, 2.0, 3.0]])[0]
        numpy.testing.assert_allclose(x.grad.asnumpy(), expected, rtol=1e-6)
    finally:
        npx.waitall()
        device.simulate(0)


def test_views_belong_to_no_step() -> None:
    """Two heads over one view of a variable: each backward frees its own part of the tape."""
    x = array([1.0, 2.0])
    x.attach_grad("add")
    with autograd.record():
        part = x[0:1]
        first, second = part * 2, x[0:1] * 3
    first.backward()
    second.backward()
    assert x.grad.tolist() == [5, 0]


def test_writes_to_nothing_are_recorded_as_nothing() -> None:
    w = np.ones((1, 1))
    w.attach_grad()
    with autograd.record():
        b = w * 1
        b[1::2, 0] = np.zeros((0,))
        b[1::2] = np.zeros((0, 1))
        b[np.zeros((0,), dtype="int64")] = np.zeros((0, 1))
        (b * b).sum().backward()
    assert w.grad.tolist() == [[2]]


@pytest.mark.parametrize("shape", [(0, 0), (3, 0), (0, 3), (2, 0, 3)])
def test_views_of_nothing_have_a_gradient_of_nothing(shape: tuple[int, ...]) -> None:
    x = np.zeros(shape)
    x.attach_grad()
    with autograd.record():
        y = x.T * 2
        (y * y).sum().backward()
    assert x.grad.shape == shape


def test_integers_among_what_is_kept_have_no_gradient() -> None:
    x = np.array([1.5, 3.0])
    x.attach_grad()
    with autograd.record():
        mantissa, _ = np.frexp(x)
        first = autograd.grad((mantissa**3).sum(), [x], create_graph=True)[0]
        first.sum().backward()
    assert x.grad.tolist() == [6 * 0.75 / 4, 6 * 0.75 / 16]


def test_a_freed_tape_is_constant_for_later_recordings() -> None:
    """As in MXNet: a recurrent network's state needs no `detach` from one batch to the next."""
    w, h = np.array([2.0, 3.0]), np.array([1.0, 1.0])
    w.attach_grad()
    for _ in range(3):
        before = h.copy()
        with autograd.record():
            h = np.tanh(h * w)
            loss = (h[::-1] * h).sum()
        loss.backward()
        found = w.grad.copy()
        with autograd.record():
            again = np.tanh(before * w)
            loss_again = (again[::-1] * again).sum()
        loss_again.backward()
        assert (found == w.grad).all()
    with pytest.raises(GradientError, match="freed"):
        loss.backward()


def test_kept_values_do_not_depend_on_freed_tapes() -> None:
    """The core records calls like the first one of their kind, which read values now freed."""
    for _ in range(2):
        x, y = np.array([2.0, 3.0]), np.array([5.0, 7.0])
        x.attach_grad()
        with autograd.record():
            freed = x * 3.0
        freed.backward()
        with autograd.record():
            (freed * y).sum().backward()
        y.attach_grad()
        with autograd.record():
            whole = (x * 3.0 * y).sum()
            (first,) = autograd.grad(whole, [x], create_graph=True)
            second = (first * first).sum()
        second.backward()
        assert y.grad.tolist() == [90.0, 126.0]


@pytest.mark.parametrize("way", [lambda f: f, gemel.compile])
def test_a_state_that_is_written_in_every_step(way: Any) -> None:
    """What the previous step left there is a constant, whichever part is written."""
    x, state = np.array([1.0, 2.0]), np.array([0.5, 0.5])
    x.attach_grad()

    def step(x: Any) -> Any:
        state[1:] = x[1:] * 2
        state[:] *= 0.5
        return (state * x).sum()

    function = way(step)
    for _ in range(3):
        before = state.tolist()
        with autograd.record():
            loss = function(x)
        loss.backward()
        assert x.grad.tolist() == [before[0] * 0.5, 2 * x[1].item()]
