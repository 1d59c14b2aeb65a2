"""docs/internals/numbers.md, line by line: what has the same bits, and how close the rest is."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy
import pytest
from op_table import on_gemel
from programs import run

import gemel
from gemel import autograd, np, npx
from gemel.codegen import target
from gemel.gluon import nn, rnn

Step = Callable[[Any, Any], Any]

#: Elementwise steps on arrays of one shape.
ELEMENTWISE: tuple[Step, ...] = (
    lambda a, b: a + b,
    lambda a, b: a * b,
    lambda a, b: a - b * 0.7,
    lambda a, b: a / (np.abs(b) + 1),
    lambda a, b: np.where(a > b, a, b * 0.3),
    lambda a, b: np.maximum(a, b) - np.minimum(a, 0.1),
    lambda a, b: np.tanh(a) + np.sin(b),
    lambda a, b: np.exp(-np.abs(a)),
    lambda a, b: np.log(np.abs(a) + 0.5) * b,
    lambda a, b: npx.sigmoid(a) * b,
    lambda a, b: npx.gelu(a) + npx.softplus(b),
    lambda a, b: np.sqrt(np.abs(a)) ** 1.5,
    lambda a, b: np.clip(a, -0.5, 0.5) % 0.3,
)
#: Steps that move or select elements, or find the largest: none of them adds anything up.
MOVING: tuple[Step, ...] = (
    *ELEMENTWISE,
    lambda a, b: a.T,
    lambda a, b: a[::-1, ::2],
    lambda a, b: np.concatenate([a, a * 2], axis=0)[:9],
    lambda a, b: a.max(axis=0, keepdims=True) + a,
    lambda a, b: a.min(axis=1)[:, None] * a,
    lambda a, b: np.take(a, np.array([0, -1, 0]), axis=0),
)


def program(generator: random.Random, steps: tuple[Step, ...]) -> Any:
    """A function of two arrays, made of some of these steps."""
    chosen = [
        (generator.choice(steps), generator.random(), generator.random())
        for _ in range(generator.randint(3, 10))
    ]

    def function(*arrays: Any) -> Any:
        pool = list(arrays)
        for step, first, second in chosen:
            a, b = pool[int(first * len(pool))], pool[int(second * len(pool))]
            pool.append(step(a, b if b.shape == a.shape else a))
        return tuple(pool[-2:])

    return function


def inputs(generator: random.Random, seed: int, dtype: str) -> list[Any]:
    shape = generator.randint(1, 40), generator.randint(1, 40)
    numbers = numpy.random.default_rng(seed)
    return [numbers.standard_normal(shape).astype(dtype) for _ in range(2)]


def bits(arrays: Any) -> list[bytes]:
    return [array.asnumpy().tobytes() for array in arrays]


def gradients(function: Any, values: list[Any]) -> list[bytes]:
    arrays = on_gemel(values)
    for array in arrays:
        array.attach_grad()
    with autograd.record():
        found = function(*arrays)
    autograd.backward(list(found))
    return bits(array.grad for array in arrays)


# --- the same bits --------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
@pytest.mark.parametrize("kind", ["elementwise", "moving"])
def test_nothing_added_up_has_the_same_bits(kind: str, dtype: str) -> None:
    """Imperative and compiled execution agree."""
    for seed in range(25):
        generator = random.Random(f"{kind}{dtype}{seed}")
        function = program(generator, ELEMENTWISE if kind == "elementwise" else MOVING)
        values = inputs(generator, seed, dtype)
        expected = bits(function(*on_gemel(values)))
        assert bits(gemel.compile(function)(*on_gemel(values))) == expected, seed


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_gradients_of_elementwise_programs_have_the_same_bits(dtype: str) -> None:
    """A value's gradients are added up in the same order by the tape and by a program."""
    for seed in range(25):
        generator = random.Random(f"{dtype}{seed}")
        function = program(generator, ELEMENTWISE)
        values = inputs(generator, seed, dtype)
        assert gradients(gemel.compile(function), values) == gradients(function, values), seed


SUMS: dict[str, Any] = {
    "sum": lambda x: x.sum(),
    "sum of columns": lambda x: x.sum(axis=0),
    "sum of rows": lambda x: x.sum(axis=1),
    "mean": lambda x: x.mean(axis=1),
    "prod": lambda x: x.prod(axis=0),
    "std": lambda x: x.std(axis=1),
    "softmax": lambda x: npx.softmax(x),
    "log_softmax": lambda x: npx.log_softmax(x, axis=0),
    "product": lambda x: np.dot(x, np.ones((x.shape[1], 3)) * 0.3),
    "product with itself": lambda x: np.dot(x.T, x),
}


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
@pytest.mark.parametrize("name", SUMS)
def test_a_sum_over_a_dense_array_has_the_same_bits(name: str, dtype: str) -> None:
    """A single operation, imperative and compiled."""
    for shape in ((3, 5), (40, 70), (130, 257)):
        x = np.array(numpy.random.default_rng(0).standard_normal(shape).astype(dtype))
        (expected,), (found,) = bits([SUMS[name](x)]), bits([gemel.compile(SUMS[name])(x)])
        assert found == expected, shape


FUNCTIONS = """
from hashlib import sha256
from gemel import np, npx
x = np.array([(i * 7919 % 20011 - 10000) / 1234.5 for i in range(20011)])
found = sha256()
for name in ("exp", "expm1", "tanh", "sin", "cos", "sqrt", "square", "rint", "floor", "sign"):
    for y in (x, x.astype("float64")):
        found.update(getattr(np, name)(np.abs(y) if name == "sqrt" else y).asnumpy().tobytes())
for y in (x, x.astype("float64")):
    positive = np.abs(y) + 0.001
    for z in (np.log(positive), np.log1p(positive), positive ** y, y % 0.7, y // 0.7, y / 3,
              npx.sigmoid(y), npx.gelu(y), npx.softplus(y), npx.erf(y), npx.relu(y * 3 + 1)):
        found.update(z.asnumpy().tobytes())
tell(bits=found.hexdigest())
"""


def test_elementwise_results_have_the_same_bits_on_every_target() -> None:
    """Neither the width of the vectors nor fused multiply-add changes the bits."""
    names = [n for n in target.TARGETS if n == "generic" or target._NEEDED[n] <= target._flags()]
    found = {name: run(FUNCTIONS, GEMEL_TARGET=name)["bits"] for name in names}
    assert len(found) > 1 or len(names) == 1
    assert len(set(found.values())) == 1, found


# --- how near the rest is -------------------------------------------------------------------

HALF_ULP = {"float32": 2.0**-24, "float64": 2.0**-53}


def near(found: Any, expected: Any, terms: Any, count: int, dtype: str) -> None:
    """Check two orders of a sum: each rounds every partial sum; none exceeds sum |terms|."""
    bound = 2 * count * HALF_ULP[dtype] * terms
    difference = numpy.abs(found.astype("float64") - expected.astype("float64"))
    assert (difference <= bound + numpy.finfo(dtype).smallest_subnormal).all()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("m", [1, 8, 9, 33, 65])
@pytest.mark.parametrize("k", [1, 7, 127, 300, 2500])
def test_products_of_what_lies_otherwise(m: int, k: int, dtype: str) -> None:
    """The operands' layout decides the kernel, and so the order of the terms."""
    numbers = numpy.random.default_rng(0)
    a = numbers.standard_normal((m, k)).astype(dtype)
    b = numbers.standard_normal((k, 19)).astype(dtype)
    dense = np.dot(np.array(a), np.array(b)).asnumpy()
    turned = np.dot(np.array(a.T).T, np.array(b.T).T).asnumpy()
    half = np.dot(np.array(a), np.array(b.T).T).asnumpy()
    terms = numpy.abs(a.astype("float64")) @ numpy.abs(b.astype("float64"))
    exact = a.astype("float64") @ b.astype("float64")
    for found in (turned, half):
        near(found, dense, terms, k, dtype)
    if dtype == "float32":
        near(dense, exact, terms, k, dtype)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("axis", [0, 1, None])
def test_sums_of_what_lies_otherwise(axis: Any, dtype: str) -> None:
    """A program need not store what it sums, so it may add the terms in another order."""
    for shape in ((5, 10), (33, 65), (257, 130)):
        values = numpy.random.default_rng(0).standard_normal(shape).astype(dtype)

        def function(x: Any) -> Any:
            centred = x.T - x.T.mean()
            return (np.tanh(centred).T * 3).sum(axis=axis)

        found = gemel.compile(function)(np.array(values)).asnumpy()
        expected = function(np.array(values)).asnumpy()
        dense = values.astype("float64")
        terms = numpy.abs(3 * numpy.tanh(dense - dense.mean())).sum(axis=axis)
        # The mean is a sum, too: its error affects every term.
        count = values.size + (values.size if axis is None else shape[axis])
        near(found, expected, terms + 3, count, dtype)


def network() -> Any:
    """Layers of every kind that adds numbers up."""
    net = nn.HybridSequential()
    net.add(nn.Dense(40, activation="relu"), nn.BatchNorm(), nn.Dense(30, activation="tanh"))
    net.add(nn.Dropout(0.3), nn.Dense(10))
    return net


@pytest.mark.parametrize("seed", range(5))
def test_a_network_s_gradients(seed: int) -> None:
    """Imperative and hybridized gradients differ by at most 1e-5 of the largest element."""
    found = []
    for hybrid in (False, True):
        np.random.seed(seed)
        net = network()
        net.initialize()
        if hybrid:
            net.hybridize()
        x = np.random.normal(size=(32, 50))
        with autograd.record():
            loss = (net(x) ** 2).mean()
        loss.backward()
        found.append(
            [p.grad().asnumpy() for p in net.collect_params().values() if p.grad_req != "null"]
        )
    for a, b in zip(*found, strict=True):
        numpy.testing.assert_allclose(b, a, rtol=0, atol=1e-5 * max(abs(a).max(), 1e-3))


@pytest.mark.parametrize("layer", [rnn.LSTM, rnn.RNN, rnn.GRU])
def test_recurrent_layers_whose_steps_are_one_product(layer: type[rnn.LSTM]) -> None:
    """Imperative or hybridized, the bits are the same (0144). Recorded or not, a few roundings
    differ, and none of a GRU, whose steps need both products."""
    np.random.seed(3)
    net = layer(32, input_size=32)
    net.initialize()
    x = np.random.normal(size=(6, 8, 32))
    found = []
    for hybrid in (False, True):
        net.hybridize(hybrid)
        found.append(net(x).asnumpy())
        with autograd.record():
            found.append(net(x).asnumpy())
    assert (found[0] == found[2]).all() and (found[1] == found[3]).all()
    tolerance = 0 if layer is rnn.GRU else 1e-5
    numpy.testing.assert_allclose(found[1], found[0], rtol=0, atol=tolerance * abs(found[0]).max())


@pytest.mark.parametrize(
    "function",
    [np.std, np.nanstd, gemel.compile(lambda x: np.std(x)), lambda x: np.std(x, where=x != 0)],
)
def test_deviations_of_halves_whose_squares_do_not_fit(function: Callable[[Any], Any]) -> None:
    x = np.array([300.0, -300.0], dtype="float16")
    found = function(x)
    assert found.item() == 300 and str(found.dtype) == "float16"
    assert np.std(x, ddof=1).item() == pytest.approx(300 * 2**0.5, rel=1e-3)
    # The squares do not fit in float16, but their mean does.
    assert np.var(np.array([400.0] + [0.0] * 15, dtype="float16")).item() == 9376
