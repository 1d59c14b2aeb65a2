"""`autograd.Function` in hybridized functions: operations, with the gradient that it defines."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy
import pytest

import gemel
from gemel import amp, autograd, gluon, nd, np, npx, onnx
from gemel.errors import GradientError, OperandError, PythonGivenError, ShapeError
from gemel.gluon import nn


class Function(autograd.Function):
    """Its gradients are not those of its operations, so that the tests can tell them apart."""


class Reversed(Function):
    def forward(self, x: Any) -> Any:
        return x

    def backward(self, g: Any) -> Any:
        return -3 * g


class Clipped(Function):
    """A gradient through what has none."""

    def forward(self, x: Any) -> Any:
        assert not autograd.is_recording()
        y = np.sign(x)
        self.save_for_backward(x)
        return y

    def backward(self, g: Any) -> Any:
        (x,) = self.saved_tensors
        return np.where(abs(x) < 1, g, 0)


class Several(Function):
    """Saves an argument, a value in between and a result; one argument has no gradient."""

    def forward(self, x: Any, y: Any, scale: float) -> Any:
        between = np.exp(x * y)
        result = between * scale
        self.save_for_backward(x, between, result)
        self.y, self.scale = y, scale
        return result, (x > 0), x[:1] * 2

    def backward(self, g: Any, of_bools: Any, h: Any) -> Any:
        assert of_bools.dtype == "bool"
        x, between, result = self.saved_tensors
        return g * self.y * between + 7 * h, g * result * x + h.sum() * self.scale, None


class NoneForSome(Function):
    def forward(self, x: Any, y: Any) -> Any:
        return x * y

    def backward(self, g: Any) -> Any:
        return None, g * 2


class Same(Function):
    """The same result twice, and a view."""

    def forward(self, x: Any) -> Any:
        y = x * 2
        return [y, y, x.reshape(-1)]

    def backward(self, g: Any, h: Any, flat: Any) -> Any:
        return g + 5 * h + flat.reshape(g.shape)


class Writes(Function):
    def forward(self, x: Any) -> Any:
        y = np.zeros_like(x)
        y[:1] = x[:1] * 3
        y += x
        self.save_for_backward(y)
        return y

    def backward(self, g: Any) -> Any:
        (y,) = self.saved_tensors
        found = np.zeros_like(y)
        found[:] = g
        found[1:] *= y[1:]
        return found


class Overwrites(Function):
    """Writes to its argument."""

    def forward(self, x: Any) -> Any:
        x *= 2
        self.save_for_backward(x)
        return x * 3

    def backward(self, g: Any) -> Any:
        return g * 7 * self.saved_tensors[0]


class Fixed(Function):
    def forward(self, x: Any) -> Any:
        return x * 2

    def backward(self, g: Any) -> Any:
        return np.ones(g.shape, dtype=g.dtype)


class Inner(Function):
    """A function that calls another one, and a compiled function."""

    def forward(self, x: Any) -> Any:
        self.save_for_backward(x)
        return Reversed()(x) * gemel.compile(np.tanh)(x)

    def backward(self, g: Any) -> Any:
        return Clipped()(self.saved_tensors[0]) * g + Reversed()(g)


class Picked(Function):
    def forward(self, x: Any, rows: Any) -> Any:
        self.save_for_backward(x, rows)
        return x[rows]

    def backward(self, g: Any) -> Any:
        x, rows = self.saved_tensors
        found = np.zeros_like(x)
        found[rows] = g * 2
        return found, None


class ByNumpy(Function):
    """Backward has an operation without a kernel."""

    def forward(self, x: Any) -> Any:
        return x * 2

    def backward(self, g: Any) -> Any:
        return g / np.linalg.svd(g)[1].sum()


ROWS = np.array([2, 0, 1], dtype="int32")
OUTSIDE = np.array([[2.0], [3.0], [4.0]], dtype="float64")


def closes_over(x: Any, y: Any) -> Any:
    wide = OUTSIDE * np.ones_like(x)
    return NoneForSome()(OUTSIDE, x) + NoneForSome()(y, wide)


def several(x: Any, y: Any) -> Any:
    result, positive, first = Several()(np.tanh(x), y, 0.5)
    return result * positive + first


def twice(x: Any, y: Any) -> Any:
    a, _, b = Several()(x, y, 2.0)
    c, _, d = Several()(a / 10, y, 0.25)
    return a * c + b * d


def unused(x: Any, y: Any) -> Any:
    _, _, first = Several()(x, y, 0.5)
    return first + Several()(x, y, 1.0)[0]


def overwritten(x: Any, y: Any) -> Any:
    z = x * 1
    result, _, first = Several()(z, y, 0.5)
    z[:] *= y
    product = result * z
    result += z
    return product + result + first


def shared(x: Any, y: Any) -> Any:
    first, second, flat = Same()(x)
    first += y
    return first * second * y + flat.reshape(x.shape)


def scanned(x: Any, y: Any) -> Any:
    def body(row: Any, state: Any) -> Any:
        found, _, first = Several()(row, state, 0.5)
        return found + Clipped()(first), np.tanh(state + Reversed()(row))

    rows = np.concatenate([x, y, x - y])
    outputs, last = npx.foreach(body, rows, y[0] * 0.1)
    return outputs[:3] * last


def scanned_by_numpy(x: Any, y: Any) -> Any:
    def body(row: Any, state: Any) -> Any:
        return ByNumpy()(row.reshape(1, -1)), state

    return npx.foreach(body, np.concatenate([x, y]), y[0])[0]


def looped(x: Any, y: Any) -> Any:
    def step(i: Any, z: Any) -> Any:
        return z, [i + 1, Same()(z)[1] * 0.4 + NoneForSome()(z, y)]

    _, (_, last) = npx.while_loop(lambda i, z: i < 5, step, [np.array(0), x], 6)
    return last


def chosen(x: Any, y: Any) -> Any:
    over = npx.cond(x.sum() > 0, lambda a, b: twice(a, b), lambda a, b: a - b, [x, y])
    under = npx.cond(x.sum() < 0, lambda a, b: a * b, lambda a, b: Reversed()(a) * b, [x, y])
    return over + under


def paused(x: Any, y: Any) -> Any:
    with autograd.pause():
        constant = NoneForSome()(x, y)
    return constant * x


def taken_inside(x: Any, y: Any) -> Any:
    x.attach_grad()
    with autograd.record():
        z = (twice(x, y) * y).sum()
    return autograd.grad(z, x)[0] + x


MODELS: dict[str, Callable[[Any, Any], Any]] = {
    "reversed": lambda x, y: Reversed()(x) * y,
    "clipped": lambda x, y: Clipped()(x * y) * x,
    "several": several,
    "twice": twice,
    "none": lambda x, y: NoneForSome()(x, y) * x,
    "only none": lambda x, y: NoneForSome()(x, 2 * np.ones_like(y)) * y,
    "unused": unused,
    "shared": shared,
    "writes": lambda x, y: Writes()(x * y) * y,
    "overwrites": lambda x, y: Overwrites()(x * y) * y,
    "fixed": lambda x, y: Fixed()(x * y) * y,
    "inner": lambda x, y: Inner()(x * y) * y,
    "picked": lambda x, y: Picked()(x * y, ROWS) * y,
    "numpy": lambda x, y: ByNumpy()(x * y) * y,
    "numpy in foreach": scanned_by_numpy,
    "closed over": closes_over,
    "overwritten": overwritten,
    "foreach": scanned,
    "while_loop": looped,
    "cond": chosen,
    "paused": paused,
}


def values(seed: int = 3, columns: int = 2) -> list[numpy.ndarray]:
    random = numpy.random.default_rng(seed)
    return [random.normal(size=(3, columns)), random.normal(size=(3, columns)) + 0.5]


def gradients(model: Any, given: list[numpy.ndarray], make: Any = np.array) -> list[Any]:
    """The results, and the gradients of the arguments; both are 7 where none arrives."""
    arrays = [make(each, dtype=each.dtype) for each in given]
    for array in arrays:
        array.attach_grad()
        array.grad[:] = 7
    with autograd.record():
        result = model(*arrays)
        loss = (result * np.arange(1, result.size + 1).reshape(result.shape)).sum()
    loss.backward()
    return [each.asnumpy() for each in (result, *(array.grad for array in arrays))]


def assert_alike(found: list[Any], wanted: list[Any]) -> None:
    for each, other in zip(found, wanted, strict=True):
        numpy.testing.assert_allclose(each, other, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", MODELS)
def test_programs_compute_the_same(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GEMEL_VERIFY", "1")
    model = MODELS[name]
    program = gemel.compile(model)
    for given in (values(), values(4), values(5, columns=4)):
        assert_alike(gradients(program, given), gradients(model, given))
        wanted = model(*map(np.array, given)).asnumpy()
        assert_alike([program(*map(np.array, given)).asnumpy()], [wanted])
    assert program.traces <= 4


def test_numbers_are_free() -> None:
    program = gemel.compile(lambda x, y, scale: Several()(x, y, scale)[0] * y)
    for scale in (0.5, 2.0):
        found = gradients(lambda x, y, scale=scale: program(x, y, scale), values())
        wanted = gradients(lambda x, y, scale=scale: Several()(x, y, scale)[0] * y, values())
        assert_alike(found, wanted)
    assert program.traces == 1


def squared_gradient(model: Any) -> Any:
    """The sum of squares of a gradient, which is recorded to be differentiated again."""

    def penalty(x: Any, y: Any) -> Any:
        with autograd.record():
            loss = (model(x, y) ** 2).sum()
            found = autograd.grad(loss, [x, y], create_graph=True)
        return sum((each**2).sum() for each in found) + (x * y).sum() * 0

    return penalty


# In the others a part is a constant, or `backward` is not linear in what it is given.
OTHERS = ("paused", "cond", "fixed", "numpy", "numpy in foreach", "overwrites")


@pytest.mark.parametrize("name", [name for name in MODELS if name not in OTHERS])
@pytest.mark.parametrize("whole", [False, True])
def test_gradients_of_gradients(name: str, whole: bool) -> None:
    model, penalty = MODELS[name], squared_gradient(MODELS[name])
    program = gemel.compile(penalty) if whole else squared_gradient(gemel.compile(model))
    assert_alike(gradients(program, values()), gradients(penalty, values()))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "complex128"])
def test_other_dtypes(dtype: str) -> None:
    def model(x: Any, y: Any) -> Any:
        return abs(NoneForSome()(Reversed()(x) * y, y)).astype("float64")

    given = [np.array(each, dtype=dtype) for each in values()]
    found, wanted = [], []
    for call, into in ((gemel.compile(model), found), (model, wanted)):
        for each in given:
            each.attach_grad()
        with autograd.record():
            result = call(*given)
        result.backward()
        into += [each.astype("complex128").asnumpy() for each in (result, *(x.grad for x in given))]
    assert_alike(found, wanted)


def test_nd_arrays() -> None:
    class Kinds(NoneForSome):
        def forward(self, x: Any, y: Any) -> Any:
            self.save_for_backward(x)
            return np.multiply(x, y)

        def backward(self, g: Any) -> Any:
            assert g._is_nd and self.saved_tensors[0]._is_nd
            return super().backward(g)

    def model(x: Any, y: Any) -> Any:
        result = Kinds()(x, y)
        assert result._is_nd
        return result * y

    found = gradients(gemel.compile(model), values(), make=nd.array)
    assert_alike(found, gradients(model, values(), make=nd.array))


class Network(nn.HybridBlock):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Dense(4, in_units=3), nn.Dense(1, in_units=4)
        self.scale = gluon.Parameter("scale", shape=(4,), init="ones")

    def forward(self, x: Any) -> Any:
        h = Clipped()(self.first(x))
        return self.last(NoneForSome()(h, Reversed()(self.scale.data() * np.ones_like(h))) + h)


def trained(way: str) -> list[numpy.ndarray]:
    """The parameters after some steps."""
    npx.random.seed(3)
    net, loss = Network(), gluon.loss.L2Loss()
    net.initialize(gemel.init.Xavier())
    random = numpy.random.default_rng(0)
    trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.05})
    if way == "hybridized":
        net.hybridize()
    step = trainer.compile(lambda x, y: loss(net(x), y))
    for _ in range(4):
        x, y = (np.array(random.normal(size=(5, n)), dtype="float32") for n in (3, 1))
        if way == "program":
            step(x, y, batch_size=5)
            continue
        with autograd.record():
            each = loss(net(x), y)
        each.backward()
        trainer.step(5)
    return [parameter.data().asnumpy() for parameter in net.collect_params().values()]


@pytest.mark.parametrize("way", ["hybridized", "program"])
def test_networks_are_trained_alike(way: str) -> None:
    for found, wanted in zip(trained(way), trained("imperative"), strict=True):
        numpy.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("recorded", [False, True])
def test_files_have_the_operations_of_forward(recorded: bool, tmp_path: Any) -> None:
    net = Network()
    net.initialize(gemel.init.Xavier())
    net.hybridize()
    x = np.ones((2, 3))
    with autograd.record():
        wanted = net(x).asnumpy()
    with autograd.record() if recorded else autograd.pause():
        symbol, parameters = net.export(str(tmp_path / "net"))
        gemel.save(net, str(tmp_path / "net.gemel"))
        onnx.export(net, str(tmp_path / "net.onnx"))
    imported = gluon.SymbolBlock.imports(symbol, ["data"], parameters)
    for read in (
        imported,
        gemel.load(str(tmp_path / "net.gemel")),
        onnx.load(tmp_path / "net.onnx"),
    ):
        numpy.testing.assert_allclose(read(x).asnumpy(), wanted, rtol=1e-6)


def test_mixed_precision() -> None:
    class Product(Function):
        def forward(self, x: Any, w: Any) -> Any:
            self.save_for_backward(x, w)
            return np.matmul(x, w)

        def backward(self, g: Any) -> Any:
            x, w = self.saved_tensors
            return 2 * np.matmul(g, w.T), 3 * np.matmul(x.T, g)

    def model(x: Any, w: Any) -> Any:
        return Product()(np.matmul(x, w), w.T) * 2

    given = [each.astype("float32") for each in values()]
    given[1] = given[1].T
    wanted = gradients(model, given)
    with amp.autocast("bfloat16"):
        found = gradients(gemel.compile(model), given)
    for each, other in zip(found, wanted, strict=True):
        numpy.testing.assert_allclose(each, other, rtol=0.05, atol=0.05)


def test_random_numbers_in_backward() -> None:
    class Noisy(Function):
        def forward(self, x: Any) -> Any:
            return x * 1

        def backward(self, g: Any) -> Any:
            return npx.dropout(g, p=0.5, mode="always") + 0 * np.random.uniform(size=g.shape)

    def rows(x: Any) -> Any:
        return npx.foreach(lambda row, state: (Noisy()(row), state), x, np.zeros(()))[0]

    for model in (lambda x: Noisy()(x) * 1, rows):
        program = gemel.compile(model)
        (_, first), (_, second) = (gradients(program, [numpy.ones((6, 50))]) for _ in range(2))
        for found in (first, second):
            kept = found != 0
            assert 0.3 < kept.mean() < 0.7
            weights = numpy.arange(1, found.size + 1).reshape(found.shape)
            numpy.testing.assert_allclose(found[kept], 2 * weights[kept])
            assert all((kept[0] != row).any() for row in kept[1:])
        assert (first != second).any()


def test_without_recording_only_forward_is_traced() -> None:
    class Once(Function):
        def forward(self, x: Any) -> Any:
            return x * 2

        def backward(self, g: Any) -> Any:
            raise KeyError("backward")

    program = gemel.compile(lambda x: Once()(x))
    x = np.ones(2)
    assert program(x).tolist() == [2, 2]
    assert str(program.graph(x)) == "data * 2"
    x.attach_grad()
    with autograd.record(), pytest.raises(KeyError, match="backward"):
        program(x)


def test_an_instance_may_be_in_several_traces() -> None:
    function = Several()
    program = gemel.compile(lambda x, y: function(x, y, 0.5)[0])
    for columns in (1, 2, 3):
        assert_alike(
            gradients(program, values(columns=columns)),
            gradients(lambda x, y: Several()(x, y, 0.5)[0], values(columns=columns)),
        )
    assert function.saved_tensors == ()
    x, y = map(np.array, values())
    x.attach_grad()
    with autograd.record():
        result = function(x, y, 0.5)[0]
        with pytest.raises(GradientError, match="already been called"):
            gemel.compile(lambda x, y: function(x, y, 0.5)[0])(x, y)
    result.backward()


def broken(**methods: Any) -> Any:
    return type("Broken", (Reversed,), methods)


def by_numpy(self: Any, x: Any) -> Any:
    return np.array(x.asnumpy())


def by_branch(self: Any, x: Any) -> Any:
    return x if x.sum() > 0 else -x


def filled(self: Any, g: Any) -> Any:
    numpy.zeros(3)[0] = g
    return g


def writing(self: Any, g: Any) -> Any:
    OUTSIDE[:] = 0
    return g


@pytest.mark.parametrize(
    ("methods", "error", "told"),
    [
        ({"forward": by_numpy}, PythonGivenError, r"by_numpy is traced once .*: asnumpy\(\) at"),
        ({"forward": by_branch}, PythonGivenError, r"by_branch .* bool\(\) at .* use npx.cond"),
        ({"backward": by_numpy}, PythonGivenError, r"only use gemel's operations: asnumpy"),
        ({"backward": filled}, PythonGivenError, "filled is traced once"),
        ({"backward": writing}, PythonGivenError, "writing .* nor write to an array from outside"),
        ({"forward": lambda s, x: "text"}, OperandError, "Broken.forward must return arrays"),
        ({"backward": lambda s, g: (g, g)}, GradientError, "returned 2 gradients for 1"),
        ({"backward": lambda s, g: g.sum()}, ShapeError, r"returned float32\[\] as the gradient"),
        ({"backward": lambda s, g: "text"}, OperandError, "Broken.backward: str 'text'"),
    ],
)
def test_errors(methods: Any, error: type[Exception], told: str) -> None:
    function, x = broken(**methods), np.ones((3, 1))
    x.attach_grad()
    with autograd.record(), pytest.raises(error, match=told):
        gemel.compile(lambda x: function()(x) * 2)(x)


@pytest.mark.parametrize("method", ["forward", "backward"])
def test_blocks_run_in_parts_if_values_are_needed(method: str) -> None:
    function = broken(**{method: lambda self, x: np.array(5 * x.asnumpy())})
    net = nn.HybridSequential()
    net.add(nn.Dense(2, in_units=2), nn.HybridLambda(lambda x: function()(x)))
    net.initialize()
    x = np.ones((2, 2))
    x.attach_grad()
    results = []
    for _ in range(2):
        with autograd.record():
            y = net(x)
        y.backward()
        results.append([y.asnumpy(), x.grad.asnumpy()])
        if len(results) == 1:
            net.hybridize()
            with autograd.record(), pytest.warns(UserWarning, match="is not compiled as a whole"):
                net(x)
    assert_alike(*results)
