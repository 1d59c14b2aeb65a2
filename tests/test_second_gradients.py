"""Gradients of gradients: `grad(create_graph=True)`, to any order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy
import pytest
from test_tape import a_mask, array, row_by_row, slopes, written_over_what_was_saved

import gemel
from gemel import autograd, np, npx
from gemel.errors import GradientError

Function = Callable[..., Any]


SMOOTH: dict[str, Function] = {
    "power": lambda x: x**3,
    "exponential": lambda x: np.exp(x) * np.sin(x) / (1 + x * x),
    "logarithm": lambda x: np.log(x) * np.sqrt(x) - np.tanh(x),
    "real powers": lambda x: x**0.7 + 0.3**x,
    "sigmoid": lambda x: npx.sigmoid(x) * npx.softplus(x),
    "softmax": lambda x: npx.softmax(x) * x,
    "log softmax": lambda x: npx.log_softmax(x) * x * x,
    "reductions": lambda x: (x * x).mean() * x.var() + x.std() + x.prod(),
    "extremes": lambda x: (x * x).max() * x + (x**3).min(),
    "running products": lambda x: np.cumprod(x) * np.cumprod(x[::-1]),
    "products": lambda x: np.dot(x.reshape(1, 3) * x, np.tanh(x).reshape(3, 1)) * x,
    "matrices": lambda x: np.matmul(x.reshape(3, 1), x.reshape(1, 3)).T @ np.exp(x),
    "choices": lambda x: np.where(x > 1.5, x**3, x**2) + np.maximum(x, 1.2) * x,
    "gather": lambda x: x[np.array([0, 2, 0])] * x * x[1],
    "pick": lambda x: npx.pick((x.reshape(3, 1) * x), np.array([0, 2, 1])) * x,
    "joined": lambda x: np.concatenate([x * x, x[::-1] ** 3]),
    "split": lambda x: np.split(x**3, 3)[1] * x,
    "clipped": lambda x: np.clip(x * x, 1.0, 8.0) * x,
    "written": written_over_what_was_saved,
    "masked": lambda x: a_mask(x) * a_mask(x * x),
    "rows": row_by_row,
    "compiled": gemel.compile(lambda x: (np.tanh(x) * x[::-1]).sum() * x),
}


def test_second_gradients_at_zeros() -> None:
    x = array([0.0, 2.0, 3.0])
    x.attach_grad()
    with autograd.record():
        slope = autograd.grad(np.prod(x), x, create_graph=True)
    slope.backward()
    assert x.grad.tolist() == [5.0, 3.0, 2.0]  # the sums of rows of [[0, 3, 2], [3, 0, 0], ...]
    x = array([0.0, 1e-9, 0.25])
    x.attach_grad()
    with autograd.record():
        slope = autograd.grad(np.sinc(x), x, create_graph=True)
    slope.backward()
    wanted = [-(numpy.pi**2) / 3] * 2 + [-2.70306075]
    numpy.testing.assert_allclose(x.grad.asnumpy(), wanted, rtol=1e-6)


@pytest.mark.parametrize("compiled", [False, True])
def test_gradients_of_running_products_at_zeros(compiled: bool) -> None:
    """Each running product is also differentiated as a product of elements."""

    def of_elements(x: Any) -> Any:
        found = [x[0]]
        for place in range(1, 4):
            found.append(found[-1] * x[place])
        return np.stack(found)

    def running(x: Any) -> Any:
        return np.cumprod(x, axis=0)

    weights = array([[0.5, -1.0], [2.0, 1.0], [0.25, 3.0], [1.5, -0.5]])
    for start in ([[0.0, 2.0], [2.0, 0.0], [3.0, 0.0], [-1.0, 4.0]], [[1.0, 0.5]] * 4):
        found = []
        for function in (gemel.compile(running) if compiled else running, of_elements):
            x = array(start)
            x.attach_grad()
            with autograd.record():
                slope = autograd.grad((function(x) * weights).sum(), x, create_graph=True)
                second = autograd.grad((slope * weights).sum(), x, create_graph=True)
                last = (second * weights).sum()
            third = autograd.grad(last, x)
            found.append([slope.asnumpy(), second.asnumpy(), third.asnumpy()])
        numpy.testing.assert_allclose(*found, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_slope_of_sinc_near_zero(dtype: str) -> None:
    x = np.array([1e-9, 1e-5, 1e-4], dtype=dtype)
    x.attach_grad()
    with autograd.record():
        y = np.sinc(x)
    y.backward()
    numpy.testing.assert_allclose(x.grad.asnumpy(), -x.asnumpy() * numpy.pi**2 / 3, rtol=1e-6)


def directional(function: Function, x: Any, order: int) -> Any:
    """The gradient of a weighted sum of a gradient, repeated up to this order."""
    weights = array([0.5, -1.0, 2.0])
    with autograd.record():
        y = function(x).sum()
        for _ in range(order - 1):
            y = (autograd.grad(y, x, create_graph=True) * weights).sum()
    return autograd.grad(y, x)


@pytest.mark.parametrize("name", SMOOTH)
@pytest.mark.parametrize("order", [2, 3])
def test_gradients_of_gradients(name: str, order: int) -> None:
    function = SMOOTH[name]
    start = [1.25, 2.1, 0.9]
    x = array(start)
    x.attach_grad()
    found = directional(function, x, order).asnumpy()
    weights = numpy.array([0.5, -1.0, 2.0])
    slope = numpy.zeros(3)
    for place in range(3):
        ends = []
        for step in (1e-5, -1e-5):
            moved = array([v + step * (i == place) for i, v in enumerate(start)])
            moved.attach_grad()
            ends.append((directional(function, moved, order - 1).asnumpy() * weights).sum())
        slope[place] = (ends[0] - ends[1]) / 2e-5
    numpy.testing.assert_allclose(found, slope, rtol=2e-5, atol=1e-6)


def test_a_penalty_on_the_gradient_trains() -> None:
    """backward() through the result of grad(create_graph=True), for several variables and heads."""
    w, x = array([[1.0, 2.0], [3.0, -1.0]]), array([0.5, 2.0])
    for variable in (w, x):
        variable.attach_grad()

    def penalty(w: Any, x: Any) -> Any:
        y = np.tanh(np.dot(w, x))
        dw, dx = autograd.grad([y[0] * 2, y[1]], [w, x], create_graph=True)
        return (dw * dw).sum() + (dx**3).sum()

    def alone(w: Any, x: Any) -> Any:
        w.attach_grad()
        x.attach_grad()
        with autograd.record():
            return penalty(w, x)

    expected = slopes(alone, [w.asnumpy(), x.asnumpy()])
    for _ in range(2):
        with autograd.record():
            z = penalty(w, x)
        z.backward()
        numpy.testing.assert_allclose(w.grad.asnumpy(), expected[0], rtol=1e-6, atol=1e-8)
        numpy.testing.assert_allclose(x.grad.asnumpy(), expected[1], rtol=1e-6, atol=1e-8)


def test_through_batch_norm_and_what_users_write() -> None:
    from gemel.gluon import nn

    class Square(autograd.Function):
        def forward(self, x: Any) -> Any:
            y = x * x
            self.save_for_backward(x, y)
            return y

        def backward(self, g: Any) -> Any:
            x, y = self.saved_tensors
            return g * 2 * x + (y - x * x) * g

    net = nn.BatchNorm(axis=1, in_channels=3)
    net.initialize()
    net.cast("float64")

    def second(x: Any) -> Any:
        x.attach_grad()
        with autograd.record():
            y = (Square()(net(x)) * x).sum()
            g = autograd.grad(y, x, create_graph=True)
            z = (g * g).sum()
        return z, x

    start = numpy.random.default_rng(0).random((4, 3))
    z, x = second(array(start))
    z.backward()
    slope = slopes(lambda x: second(x)[0], [start])[0]
    numpy.testing.assert_allclose(x.grad.asnumpy(), slope, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("hybrid", [False, True])
def test_batch_norm_runs_once_and_knows_how_its_results_depend(hybrid: bool) -> None:
    from gemel.gluon import nn

    net = nn.HybridSequential()
    net.add(nn.BatchNorm(in_channels=3, momentum=0.5), nn.Dense(2, in_units=3), nn.BatchNorm())
    net.initialize()
    net.cast("float64")
    net(array(numpy.zeros((4, 3))))
    net.hybridize(hybrid)

    def penalty(x: Any) -> Any:
        x.attach_grad()
        with autograd.record():
            y = (net(x) ** 3).sum()
            g = autograd.grad(y, x, create_graph=True)
            return (g * g).sum()

    start = numpy.random.default_rng(0).random((4, 3))
    x = array(start)
    penalty(x).backward()
    numpy.testing.assert_allclose(net[0].running_mean.data().asnumpy(), start.mean(0) / 2)
    slope = slopes(penalty, [start])[0]
    numpy.testing.assert_allclose(x.grad.asnumpy(), slope, rtol=1e-4, atol=1e-6)


def test_random_numbers_are_not_drawn_again() -> None:
    dropped = gemel.compile(lambda x: npx.dropout(x * x, 0.5))
    x = array([1.0, 2.0])
    x.attach_grad()
    with autograd.record():
        y = dropped(x).sum()
        with pytest.raises(GradientError, match=r"create_graph=True.*random"):
            autograd.grad(y, x, create_graph=True)


def test_gradients_share_no_memory_with_what_was_given() -> None:
    x, head = array([1.0, 2.0]), array([3.0, 4.0])
    x.attach_grad()
    for options in ({}, {}, {"create_graph": True}):
        with autograd.record():
            y = x + 0
            found = autograd.grad([y, y], [x, x], [head, None], **options)
        found[0][:] = 0
        assert head.tolist() == [3, 4] and found[1].tolist() == [4, 5]


def _cut_off(x, y):
    return np.sin(x.detach()) * y * y + x


def _cut_off_in_one_of_two(x, y):
    return x.detach() * y * y, x * 5


@pytest.mark.parametrize("function", [_cut_off, _cut_off_in_one_of_two])
def test_compiled_calls_stay_cut_off(function):
    """`detach` returns the contents of its input, whose history the tape does not follow."""
    found = []
    for way in (function, gemel.compile(function)):
        x, y = np.array([2.0, 1.0]), np.array([3.0, -1.0])
        for variable in (x, y):
            variable.attach_grad()
            variable.grad[...] = 7
        with autograd.record():
            results = way(x, y)
            first = results[0] if isinstance(results, (list, tuple)) else results
            slope = autograd.grad((first * first).sum(), y, create_graph=True)
            loss = (slope * slope).sum()
        loss.backward()
        found.append((x.grad.asnumpy(), y.grad.asnumpy()))
    numpy.testing.assert_allclose(found[1], found[0], rtol=1e-5)


@pytest.mark.parametrize("first", [npx.gammaln, npx.digamma])
def test_gradients_of_the_gamma_function_of_any_order(first: Any) -> None:
    """f(x + 1) - f(x) is log(x) for gammaln, and 1 / x for its derivative."""
    x = array([0.2, 0.7, 1.0, 6.5, 20.0])
    x.attach_grad()
    with autograd.record():
        found = first(x + 1) - first(x)
        known = np.log(x) if first is npx.gammaln else 1 / x
        for _ in range(5):
            found = autograd.grad(found, x, create_graph=True)[0]
            known = autograd.grad(known, x, create_graph=True)[0]
            numpy.testing.assert_allclose(found.asnumpy(), known.asnumpy(), rtol=1e-9)
