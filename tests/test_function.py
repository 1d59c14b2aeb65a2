"""`autograd.Function`: operations users write in Python."""

from __future__ import annotations

from typing import Any

import numpy
import pytest

import gemel
from gemel import autograd, cpu, device, gluon, gpu, np, npx
from gemel.errors import GradientError, OperandError, PythonGivenError, ShapeError, TraceError


class Sigmoid(autograd.Function):
    """Computed by NumPy, so that forward and backward wait for what they read."""

    def forward(self, x: Any) -> Any:
        y = np.array(1 / (1 + numpy.exp(-x.asnumpy())))
        self.save_for_backward(y)
        return y

    def backward(self, dy: Any) -> Any:
        (y,) = self.saved_tensors
        return np.array(dy.asnumpy() * y.asnumpy() * (1 - y.asnumpy()))


class Both(autograd.Function):
    """Two results, and an argument without a gradient."""

    def forward(self, x: Any, y: Any, scale: float) -> Any:
        self.save_for_backward(x, y)
        self.scale = scale
        return x * y * scale, x

    def backward(self, d_product: Any, d_same: Any) -> Any:
        x, y = self.saved_tensors
        return d_product * y * self.scale + d_same, d_product * x * self.scale, None


def numeric(function: Any, values: list[numpy.ndarray], which: int) -> numpy.ndarray:
    """The gradient of a sum by central differences, in float64."""
    result = numpy.zeros_like(values[which])
    for index in numpy.ndindex(*result.shape):
        sums = []
        for step in (1e-6, -1e-6):
            moved = [value.copy() for value in values]
            moved[which][index] += step
            sums.append(function(*(np.array(m) for m in moved)).item())
        result[index] = (sums[0] - sums[1]) / 2e-6
    return result


def once(x: Any, y: Any) -> Any:
    return (Sigmoid()(x * 2) * y).sum()


def twice_and_around(x: Any, y: Any) -> Any:
    a = Sigmoid()(np.tanh(x))
    b, same = Both()(a * x, y, 3.0)
    c = Sigmoid()(b + x)
    return (c * same + x * y).sum() + (a * b).mean()


def unused_results(x: Any, y: Any) -> Any:
    product, _ = Both()(x, y, 2.0)
    return product.sum()


def first_and_last(x: Any, y: Any) -> Any:
    return Sigmoid()(np.dot(Sigmoid()(x), y.T)).sum()


MODELS = (once, twice_and_around, unused_results, first_and_last)


@pytest.mark.parametrize("model", MODELS)
def test_gradients(model):
    random = numpy.random.default_rng(5)
    values = [random.normal(size=(3, 4)), random.normal(size=(3, 4))]
    arrays = [np.array(value) for value in values]
    for array in arrays:
        array.attach_grad()
    with autograd.record():
        loss = model(*arrays)
    loss.backward(retain_graph=True)
    for which, array in enumerate(arrays):
        expected = numeric(model, values, which)
        numpy.testing.assert_allclose(array.grad.asnumpy(), expected, atol=1e-7)
    fresh = autograd.grad(loss, arrays)
    for array, gradient in zip(arrays, fresh, strict=True):
        numpy.testing.assert_allclose(gradient.asnumpy(), array.grad.asnumpy(), atol=1e-12)


def test_add_and_head_gradients():
    x = np.array([1.0, 2.0], dtype="float64")
    x.attach_grad("add")
    for _ in range(2):
        with autograd.record():
            y = Sigmoid()(x)
        y.backward(np.array([1.0, 10.0], dtype="float64"))
    s = 1 / (1 + numpy.exp(-x.asnumpy()))
    numpy.testing.assert_allclose(x.grad.asnumpy(), 2 * s * (1 - s) * [1, 10])


def gradients_are_numeric(model: Any, values: list[Any]) -> None:
    """Also in a second step, which may be computed in another way."""
    arrays = [np.array(value) for value in values]
    for array in arrays:
        array.attach_grad()
    for _ in range(2):
        with autograd.record():
            loss = model(*arrays)
        loss.backward()
        for which, array in enumerate(arrays):
            expected = numeric(model, values, which)
            numpy.testing.assert_allclose(array.grad.asnumpy(), expected, atol=1e-7)


def test_saved_arrays_that_are_overwritten_while_recording():
    def model(x: Any, y: Any) -> Any:
        z = x * 1
        product, _ = Both()(z, y, 2.0)
        z[1:] *= y[1:]
        s = Sigmoid()(product)
        t = s * s
        s += z
        return (s * t).sum()

    random = numpy.random.default_rng(6)
    gradients_are_numeric(model, [random.normal(size=(3, 2)), random.normal(size=(3, 2))])


class Alike(autograd.Function):
    """Its argument, and parts of another array."""

    def forward(self, x: Any) -> Any:
        y = x * 2
        return x, y[:1], y[1:]

    def backward(self, same: Any, first: Any, rest: Any) -> Any:
        return same + np.concatenate([first, rest]) * 2


def test_results_that_share_memory_and_are_overwritten_while_recording():
    def model(x: Any, y: Any) -> Any:
        z = x * 1
        same, first, rest = Alike()(z)
        product = first * rest
        if not autograd.is_recording():
            same = z.copy()
        z *= y
        first += y[:1]
        same[1:] *= y[1:]
        return (same * z * rest[0]).sum() + (product * first).sum()

    random = numpy.random.default_rng(7)
    gradients_are_numeric(model, [random.normal(size=(3, 2)), random.normal(size=(3, 2))])


@pytest.mark.parametrize("create_graph", [False, True])
def test_saved_arrays_that_are_overwritten_outside(create_graph: bool) -> None:
    x, scale = np.array([1.0, 2.0]), np.array([3.0, 4.0])
    x.attach_grad()
    for overwritten in (scale, None):
        with autograd.record():
            y, _ = Both()(x, scale, 1.0)
            s = Sigmoid()(y)
            overwritten = s if overwritten is None else overwritten
        overwritten[:] = 0
        with pytest.raises(GradientError, match="had saved for backward, was overwritten"):
            autograd.grad(s, x, create_graph=create_graph)


def test_outside_recording_and_untracked():
    assert Sigmoid()(np.zeros(2)).tolist() == [0.5, 0.5]
    with autograd.record():
        y = Sigmoid()(np.zeros(2))
    with pytest.raises(GradientError, match="not computed from a variable"):
        y.backward()


def test_nothing_inside_is_recorded():
    seen = []

    class Watch(autograd.Function):
        def forward(self, x: Any) -> Any:
            seen.append((autograd.is_recording(), autograd.is_training()))
            return x

        def backward(self, g: Any) -> Any:
            seen.append((autograd.is_recording(), autograd.is_training()))
            return g

    x = np.ones(2)
    x.attach_grad()
    with autograd.record():
        y = Watch()(x)
        assert y is not x
    y.backward()
    assert seen == [(False, True), (False, False)]
    assert x.grad.tolist() == [1, 1]


# engine.md 17
def test_an_error_in_forward_is_raised_by_the_call():
    class Broken(autograd.Function):
        def forward(self, x: Any) -> Any:
            raise KeyError("in forward")

    x = np.ones(2)
    x.attach_grad()
    with autograd.record():
        with pytest.raises(KeyError, match="in forward"):
            Broken()(x)
        assert autograd.is_recording()
        y = x * 3
    y.backward()
    assert x.grad.tolist() == [3, 3]


# engine.md 17
def test_an_error_in_backward_changes_no_gradient():
    class Broken(Sigmoid):
        def backward(self, dy: Any) -> Any:
            raise KeyError("in backward")

    x, w = np.ones(2), np.ones(2)
    for array in (x, w):
        array.attach_grad()
        array.grad[...] = 7
    with autograd.record():
        y = (Broken()(x * w) * w).sum()
    with pytest.raises(KeyError, match="in backward"):
        y.backward()
    assert x.grad.tolist() == w.grad.tolist() == [7, 7]
    assert not autograd.is_recording()


def test_asynchronous_failures_pass_through():
    class Double(autograd.Function):
        def forward(self, x: Any) -> Any:
            return x * 2

        def backward(self, g: Any) -> Any:
            return g * 2

    x = np.ones(3)
    x.attach_grad()
    with autograd.record():
        bad = Double()(x.take(np.array([9])))
    with pytest.raises(IndexError):
        bad.asnumpy()
    bad.backward()
    with pytest.raises(IndexError):
        x.grad.asnumpy()
    with autograd.record():
        fine = Double()(x)
    fine.backward()
    assert x.grad.tolist() == [2, 2, 2]


@pytest.mark.parametrize(
    ("result", "error", "text"),
    [
        (lambda g: (g, g), GradientError, "returned 2 gradients for 1"),
        (lambda g: np.ones(5), ShapeError, r"float32\[5\] as the gradient of float32\[2\]"),
    ],
)
def test_wrong_gradients(result, error, text):
    class Wrong(autograd.Function):
        def forward(self, x: Any) -> Any:
            return x * 1

        def backward(self, g: Any) -> Any:
            return result(g)

    x = np.ones(2)
    x.attach_grad()
    with autograd.record():
        y = Wrong()(x)
    with pytest.raises(error, match=text):
        y.backward()


def test_wrong_results_and_uses():
    class Text(autograd.Function):
        def forward(self, x: Any) -> Any:
            return "no array"

    with pytest.raises(TypeError, match=r"Text\.forward must return arrays; it returned a str"):
        Text()(np.ones(2))
    with pytest.raises(NotImplementedError, match="Function needs a method forward"):
        autograd.Function()(np.ones(2))
    x = np.ones(2)
    x.attach_grad()
    function = Sigmoid()
    with autograd.record():
        function(x)
        with pytest.raises(GradientError, match="already been called"):
            function(x)


def test_the_tape_is_freed():
    x = np.ones(2)
    x.attach_grad()
    with autograd.record():
        y = Sigmoid()(x)
    y.backward()
    with pytest.raises(GradientError, match="freed"):
        y.backward()


def test_not_in_a_compiled_function():
    with pytest.raises(TraceError, match=r"Sigmoid.forward is traced once .* asnumpy"):
        gemel.compile(lambda x: Sigmoid()(x))(np.ones(2))


def test_gradients_travel_between_devices():
    device.simulate(1)
    try:
        x, w = np.ones((3, 3)), np.ones((3, 3), device=gpu(0))
        x.attach_grad()
        w.attach_grad()
        with autograd.record():
            h = np.dot((x * 2).as_in_ctx(gpu(0)), w)
            loss = (h.as_in_ctx(cpu(1)) * 5).sum()
        loss.backward()
        assert x.grad.device == cpu(0) and w.grad.device == gpu(0)
        assert x.grad.tolist() == [[30.0] * 3] * 3
        assert w.grad.tolist() == [[30.0] * 3] * 3
    finally:
        npx.waitall()
        device.simulate(0)


class Doubled(autograd.Function):
    """Not what the gradient says."""

    def forward(self, x: Any) -> Any:
        return x * 2

    def backward(self, g: Any) -> Any:
        return g * 5


@pytest.mark.parametrize(
    "python",
    [
        lambda x: Sigmoid()(x),
        lambda x: npx.callback(lambda a: a * 2, x, outputs=(x.shape, x.dtype)),
    ],
)
def test_hybridized_blocks_with_python_inside_run_in_parts(python: Any) -> None:
    net = gluon.nn.HybridSequential()
    net.add(gluon.nn.Dense(3, in_units=2), gluon.nn.HybridLambda(python))
    net.initialize()
    x = np.ones((2, 2))
    wanted = net(x).asnumpy()
    net.hybridize()
    with pytest.warns(UserWarning, match="is not compiled as a whole"):
        found = net(x)
    numpy.testing.assert_array_equal(found, wanted)
    with pytest.raises(PythonGivenError, match=r"compiled program|hybridized function"):
        gemel.compile(lambda x: python(x))(x)


@pytest.mark.parametrize(
    ("outputs", "told"),
    [
        (None, "not None"),
        (((2, 3),), r"not \(\(2, 3\),\)"),
        ((2, 3), r"not \(2, 3\)"),
        ([((2,), "float32"), 3], "or a list of them"),
        (((-1,), "float32"), r"shape \[-1\] has a negative extent"),
        (((2.0,), "float32"), r"shape \[2.0\] must be whole numbers"),
    ],
)
def test_a_callback_needs_shapes_and_dtypes(outputs: Any, told: str) -> None:
    with pytest.raises(ValueError, match=f"callback: .*{told}"):
        npx.callback(lambda: 1, outputs=outputs)
    with pytest.raises(OperandError, match="callback: 3 is not a function"):
        npx.callback(3, outputs=((), "float32"))


def test_a_gradient_that_is_no_array_names_the_function() -> None:
    wrong = type("Wrong", (Doubled,), {"backward": lambda self, g: "text"})
    x = np.ones(2)
    x.attach_grad()
    with autograd.record():
        y = wrong()(x)
    with pytest.raises(OperandError, match=r"Wrong.backward: str 'text' is not an array"):
        y.backward()


@pytest.mark.parametrize("wrapped", [lambda f: f, gemel.compile])
def test_a_gradient_may_be_a_number(wrapped: Any) -> None:
    number = type("Number", (Doubled,), {"backward": lambda self, g: 2.5})
    x = np.array(3.0)
    x.attach_grad()
    with autograd.record():
        y = wrapped(lambda x: number()(x) * 3)(x)
    y.backward()
    assert x.grad.item() == 2.5 and x.grad.dtype == "float32"
