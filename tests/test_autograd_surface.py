"""The arguments of `autograd`: modes, variables, heads and gradients, and what it refuses."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy
import pytest

from gemel import autograd, np, npx
from gemel.errors import GradientError, ShapeError


def modes() -> tuple[bool, bool]:
    return autograd.is_recording(), autograd.is_training()


def test_modes_nest() -> None:
    assert modes() == (False, False)
    with autograd.record():
        assert modes() == (True, True)
        with autograd.pause():
            assert modes() == (False, False)
        with autograd.pause(train_mode=True):
            assert modes() == (False, True)
        with autograd.predict_mode():
            assert modes() == (True, False)
    with autograd.record(train_mode=False), autograd.train_mode():
        assert modes() == (True, True)
    assert modes() == (False, False)
    assert not autograd.set_recording(True) and autograd.set_recording(False)
    assert not autograd.set_training(True) and autograd.set_training(False)


def recorded(*, train_mode: bool = True) -> Iterator[None]:
    with autograd.record(train_mode):
        yield


def test_modes_that_do_not_nest_are_refused_and_leave_the_thread_as_it_was() -> None:
    first, second = recorded(), recorded(train_mode=False)
    next(first), next(second)
    with pytest.raises(GradientError, match="must nest, and this one was left after the block aro"):
        next(first)
    assert modes() == (False, False)
    with pytest.raises(GradientError, match="before another task or generator goes on"):
        next(second)
    assert modes() == (False, False)


def test_tasks_that_record_by_turns_are_refused() -> None:
    async def task(turns: int) -> None:
        with autograd.record():
            for _ in range(turns):
                await asyncio.sleep(0)

    async def both() -> list[Any]:
        return await asyncio.gather(task(1), task(2), return_exceptions=True)

    assert [type(each) for each in asyncio.run(both())] == [GradientError, GradientError]
    assert modes() == (False, False)
    asyncio.run(task(3))
    assert modes() == (False, False)


def test_an_exception_is_not_hidden_by_modes_that_do_not_nest() -> None:
    first, second = recorded(), recorded()
    next(first), next(second)
    with pytest.raises(KeyError):
        first.throw(KeyError("mine"))
    second.close()
    assert modes() == (False, False)


def test_one_mode_may_be_entered_again_and_by_several_threads() -> None:
    mode, found = autograd.record(), []
    with mode, mode:
        thread = threading.Thread(target=lambda: found.append((modes(), mode.__enter__(), modes())))
        thread.start()
        thread.join()
        assert modes() == (True, True)
    assert modes() == (False, False)
    assert found == [((False, False), mode, (True, True))]


def variable(*numbers: float) -> Any:
    x = np.array(numbers, dtype="float32")
    x.attach_grad()
    return x


def doubled(x: Any) -> Any:
    with autograd.record():
        return x * 2


def test_marked_variables_leave_their_gradients_where_they_are_told() -> None:
    x, y, kept = np.ones(2), np.ones(2), np.full((2,), 5.0)
    autograd.mark_variables(x, kept, "add")
    autograd.mark_variables([y], grad_reqs=["write"])
    for _ in range(2):
        with autograd.record():
            z = x * 3 + y * 2
        z.backward()
    assert kept.tolist() == [11, 11] and x.grad is kept
    assert y.grad.tolist() == [2, 2]


HEADS: dict[str, Any] = {
    "NumPy's": numpy.ones(3, "float32"),
    "a list": [[1.0, 1.0, 1.0]],
    "integers": np.ones(3, dtype="int32"),
    "wider": np.ones(3, dtype="float64"),
    "none": None,
}


@pytest.mark.parametrize("name", HEADS)
def test_gradients_of_heads(name: str) -> None:
    x = variable(1, 2, 3)
    autograd.backward(doubled(x), HEADS[name])
    assert x.grad.tolist() == [2, 2, 2] and x.grad.dtype == "float32"


REFUSED: dict[str, tuple[Callable[[], Any], type[Exception], str]] = {
    "no variable": (lambda: autograd.mark_variables(None), TypeError, "NoneType"),
    "NumPy's variable": (lambda: autograd.mark_variables(numpy.zeros(3)), TypeError, "ndarray"),
    "integer variable": (
        lambda: np.zeros(3, dtype="int32").attach_grad(), GradientError, "astype"
    ),
    "gradient of another shape": (
        lambda: autograd.mark_variables([np.ones(3)], [np.zeros(4)]), ShapeError, r"float32\[4\]"
    ),
    "gradient of another dtype": (
        lambda: autograd.mark_variables([np.ones(3)], [np.zeros(3, dtype="int32")]),
        ShapeError,
        "int32",
    ),
    "too few gradients": (
        lambda: autograd.mark_variables([np.ones(3)] * 2, [np.zeros(3)]), GradientError, "one for"
    ),
    "too few requests": (
        lambda: autograd.mark_variables([np.ones(3)] * 2, grad_reqs=["add"]), GradientError, "each"
    ),
    "unknown request": (
        lambda: autograd.mark_variables(np.ones(3), grad_reqs="writ"), ValueError, "'write'"
    ),
    "no head": (lambda: autograd.backward(None), TypeError, "NoneType"),
    "a head that is not recorded": (
        lambda: autograd.backward(np.ones(2)), GradientError, "attach_grad"
    ),
    "head of another shape": (
        lambda: autograd.backward(doubled(variable(1, 2)), np.ones(4)),
        ShapeError,
        r"of the same shape, not float32\[4\]",
    ),
    "too many gradients of heads": (
        lambda: autograd.backward(doubled(variable(1)), [np.ones(1)] * 2), GradientError, "2 grad"
    ),
    "text for a head": (
        lambda: autograd.backward(doubled(variable(1)), "a"), TypeError, "not an array"
    ),
    "gradient for what is no variable": (
        lambda: autograd.grad(doubled(variable(1)), np.ones(1)), GradientError, "attach_grad"
    ),
    "operation without a gradient": (
        lambda: np.linalg.qr(doubled(np.eye(2)))[1].backward(), GradientError, "recording"
    ),
    "operation without a gradient, recorded": (
        lambda: recorded_bessel(), GradientError, "i0 has no"
    ),
}  # fmt: skip


def recorded_bessel() -> None:
    x = np.eye(2)
    x.attach_grad()
    with autograd.record():
        y = np.i0(x)
    y.backward()


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str) -> None:
    call, kind, words = REFUSED[name]
    with pytest.raises(kind, match=words):
        call()


@pytest.mark.parametrize("turned", [(0, 1), (0,), (1,), ()])
@pytest.mark.parametrize("shape", [(2, 3), (1, 3), (3, 1)])
def test_views_of_turned_variables(shape: tuple[int, ...], turned: tuple[int, ...]) -> None:
    """A variable may itself be a view that goes from the last element to the first."""
    values = numpy.arange(1.0, 1.0 + numpy.prod(shape)).reshape(shape)
    x = np.flip(np.array(values), turned)
    x.attach_grad()
    with autograd.record():
        loss = (x[-1:, :2] ** 2).sum()
    loss.backward()
    expected = numpy.zeros(shape)
    expected[-1:, :2] = 2 * numpy.flip(values, turned)[-1:, :2]
    numpy.testing.assert_array_equal(x.grad.asnumpy(), expected)


def test_a_view_of_a_variable_that_repeats_elements() -> None:
    x = np.broadcast_to(np.array([[1.0, 2.0, 3.0]]), (2, 3))
    x.attach_grad()
    with autograd.record():
        loss = (x * x).sum()
        with pytest.raises(GradientError, match=r"float32\[2, 3\], which repeats elements.*copy"):
            (x[1:] * 2).sum()
    loss.backward()
    assert x.grad.tolist() == [[2.0, 4.0, 6.0]] * 2


VIEWS: dict[str, Callable[[Any], Any]] = {
    "a row, backwards": lambda x: x[2:1:-2, ::-2],
    "a column, upwards": lambda x: x[::-2, 3:2:-2],
    "an element": lambda x: x[2:1:-2, 3:2:-2],
    "rows and columns, backwards": lambda x: x[::-2, ::-2],
}
READINGS: dict[str, Callable[[Any], Any]] = {
    "reshape": lambda x: x.reshape(1, -1),
    "transpose": lambda x: x.T,
    "expand_dims": lambda x: np.expand_dims(x, 1),
    "a slice": lambda x: x[::-1, :1],
    "stack": lambda x: np.stack([x, 2 * x]),
    "written": lambda x: x.T.__imul__(3),
}


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("reading", READINGS)
def test_a_variable_may_be_a_view_that_runs_backwards(view: str, reading: str) -> None:
    x = VIEWS[view](np.array(numpy.arange(12.0).reshape(3, 4), dtype="float64"))
    plain = np.array(x.asnumpy(), dtype="float64")
    for each in (x, plain):
        each.attach_grad()
        with autograd.record():
            loss = (READINGS[reading](each) ** 2).sum()
        loss.backward()
    assert x.grad.tolist() == plain.grad.tolist() and any(plain.grad.ravel().tolist())


#: Functions that read the number q before they run, of a row x of three.
READING: dict[str, Callable[[Any, Any], Any]] = {
    "quantile": lambda x, q: np.quantile(x, q),
    "nanpercentile": lambda x, q: np.nanpercentile(x, q),
    "pad": lambda x, q: np.pad(x, 1, constant_values=q),
    "pad, one side": lambda x, q: np.pad(x, 1, constant_values=(q, 1.0)),
    "pad, linear_ramp": lambda x, q: np.pad(x, 1, mode="linear_ramp", end_values=q),
    "std": lambda x, q: np.std(x, ddof=q),
    "round": lambda x, q: np.round(x, q),
    "kaiser": lambda x, q: np.kaiser(3, q),
    "arange": lambda x, q: np.arange(q, 3),
    "histogram": lambda x, q: np.histogram(x, range=(q, 3))[1],
    "layer_norm": lambda x, q: npx.layer_norm(x, np.ones(3), np.ones(3), eps=q),
    "dropout": lambda x, q: npx.dropout(x, p=q),
    "one_hot": lambda x, q: npx.one_hot(np.array([1]), 3, on_value=q),
}


@pytest.mark.parametrize("name", READING)
def test_a_recorded_array_is_not_read_as_a_number(name: str) -> None:
    x, q = np.array([1.0, 2.0, 3.0]), np.array(0.3)
    q.attach_grad()
    with autograd.record(), pytest.raises(GradientError, match=name.split(",")[0]):
        READING[name](x, q)
    READING[name](x, q if name != "round" else 0)


def test_the_slope_of_smooth_l1_in_its_scalar() -> None:
    x, scalar = np.array([0.1, -0.2, 3.0], dtype="float64"), np.array(1.5, dtype="float64")
    scalar.attach_grad()
    with autograd.record():
        y = npx.smooth_l1(x, scalar)
    y.backward()
    step = 1e-6
    above, below = (float(npx.smooth_l1(x, 1.5 + d).sum()) for d in (step, -step))
    assert float(scalar.grad) == pytest.approx((above - below) / (2 * step), rel=1e-6)
