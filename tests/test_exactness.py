"""Float64 and integers keep their digits; other exact results of dtypes, lists and printing."""

from __future__ import annotations

from typing import Any

import numpy
import pytest
from op_table import NAMES, on_gemel

import gemel
from gemel import autograd, gluon, init, np, npx
from gemel.dtype import DTYPES, as_dtype
from gemel.gluon import nn
from gemel.ops.activations import ACTIVATIONS

# --- float64 --------------------------------------------------------------------------------


def written(change: Any, shape: tuple[int, ...] = (3,), dtype: str = "float64") -> Any:
    """An array of zeros after a write."""
    x = np.zeros(shape, dtype=dtype)
    change(x)
    return x.asnumpy()


FLOAT64: dict[str, Any] = {
    "a number in all places": lambda x: x.__setitem__(slice(None), 0.1),
    "a number in one place": lambda x: x.__setitem__(slice(0, 3), 0.1),
    "a list": lambda x: x.__setitem__(slice(None), [0.1, 0.1, 0.1]),
    "a list of one": lambda x: x.__setitem__(slice(None), [0.1]),
    "at positions": lambda x: x.__setitem__([0, 1, 2], 0.1),
    "a list at positions": lambda x: x.__setitem__([0, 1, 2], [0.1, 0.1, 0.1]),
    "under a mask": lambda x: x.__setitem__([True, True, True], 0.1),
    "a sum with a list": lambda x: x.__iadd__([0.1, 0.1, 0.1]),
    "a sum with a number": lambda x: x.__iadd__(0.1),
    "an initializer": lambda x: init.Constant(0.1)("weight", x),
    "an initializer's list": lambda x: init.Constant([0.1, 0.1, 0.1])("weight", x),
}


@pytest.mark.parametrize("case", FLOAT64)
def test_float64_takes_python_numbers_whole(case: str) -> None:
    assert written(FLOAT64[case]).tolist() == [0.1, 0.1, 0.1]


@pytest.mark.parametrize("way", ["imperative", "compiled", "recorded"])
def test_a_list_beside_float64_is_float64(way: str) -> None:
    def function(x: Any) -> Any:
        return np.maximum(x + [0.1, 0.2], [0.3, 0.3]) * np.where(x > 0, x, [0.7, 0.7])

    x = numpy.array([0.0, 1 / 3])
    expected = numpy.maximum(x + [0.1, 0.2], [0.3, 0.3]) * numpy.where(x > 0, x, [0.7, 0.7])
    array = np.array(x)
    if way == "recorded":
        array.attach_grad()
        with autograd.record():
            found = function(array)
    else:
        found = (gemel.compile(function) if way == "compiled" else function)(array)
    assert found.dtype == "float64" and found.tolist() == expected.tolist()
    assert (np.ones(2) + [0.1, 0.2]).dtype == "float32"


@pytest.mark.parametrize("way", ["imperative", "compiled"])
def test_functions_of_numbers_in_float64(way: str) -> None:
    x = numpy.array([-0.7, 0.4])
    calls: dict[str, Any] = {
        "one_hot": (lambda x: npx.one_hot(np.array([1]), 2, 0.1, 0.3, "float64"), [[0.3, 0.1]]),
        "full": (lambda x: np.full((2,), 0.1, dtype="float64"), [0.1, 0.1]),
        "clip": (lambda x: np.clip(x, -0.1, 0.3), [-0.1, 0.3]),
        "where": (lambda x: np.where(x > 0, x, 0.1), [0.1, 0.4]),
        "leaky": (lambda x: npx.leaky_relu(x, slope=0.1), [-0.7 * 0.1, 0.4]),
        "concatenate": (lambda x: np.concatenate([x, [0.1]]), [-0.7, 0.4, 0.1]),
        "dot": (lambda x: np.dot(x, [0.1, 0.3]), float(numpy.dot(x, [0.1, 0.3]))),
        "dot of a list": (lambda x: np.dot([0.1, 0.3], x), float(numpy.dot([0.1, 0.3], x))),
    }
    for name, (function, expected) in calls.items():
        found = (gemel.compile(function) if way == "compiled" else function)(np.array(x))
        assert found.dtype == "float64", name
        numpy.testing.assert_allclose(found.asnumpy(), expected, rtol=3e-16, err_msg=name)


def test_parameters_in_float64() -> None:
    weight = gluon.Parameter("w", shape=(2,), dtype="float64", init=init.Constant(0.1))
    weight.initialize()
    assert weight.data().tolist() == [0.1, 0.1]
    weight.set_data([0.3, 0.7])
    assert weight.data().tolist() == [0.3, 0.7]


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int32", "uint8", "bool"])
def test_numbers_written_are_rounded_once(dtype: str) -> None:
    """As NumPy converts them, for every dtype an array can have."""
    numbers = [0.1, 1.0 + 2.0**-11 + 2.0**-40, 2.7, 100.99999999, 16777217.0, 0.0]
    for number in numbers if dtype != "uint8" else numbers[:4]:
        if dtype == "float16" and number > 60000:
            continue
        twin = numpy.zeros(2)
        twin = twin.astype(dtype)
        twin[:] = number
        found = written(lambda x, n=number: x.__setitem__(slice(None), n), (2,), dtype)
        assert found.tolist() == twin.tolist(), number
        listed = written(lambda x, n=number: x.__setitem__(slice(None), [n]), (2,), dtype)
        assert listed.tolist() == twin.tolist(), number
        assert np.array([number], dtype=dtype).tolist() == twin[:1].tolist()


# --- powers and remainders ------------------------------------------------------------------

INTEGERS = tuple(dtype.name for dtype in DTYPES if dtype.kind in "iu")


@pytest.mark.parametrize("dtype", INTEGERS)
def test_integer_powers_wrap(dtype: str) -> None:
    """As in NumPy, for pairs of small numbers and of numbers whose powers overflow."""
    base = numpy.array([0, 1, 2, 3, 7, 10, 46341, 127, 255, -1, -3, -127]).astype(dtype)
    power = numpy.array([0, 1, 2, 3, 4, 7, 31, 39, 63, 64, 100, 127]).astype(dtype)
    a, b = numpy.meshgrid(base, power)
    expected = numpy.power(a, b)
    assert (np.array(a) ** np.array(b)).tolist() == expected.tolist()
    assert gemel.compile(lambda x, y: x**y)(np.array(a), np.array(b)).tolist() == expected.tolist()
    assert (np.array(base) ** 2).tolist() == (base**2).tolist()


def test_the_powers_of_the_issue() -> None:
    assert (np.array([46341], dtype="int32") ** 2).tolist() == [46341**2 - 2**32]
    assert (np.array([46341]) ** 2).tolist() == [46341**2]
    assert (np.array([3]) ** 39).tolist() == [3**39]
    assert (np.array([127], dtype="uint8") ** 7).tolist() == [127**7 % 256]
    assert (3 ** np.array([39])).tolist() == [3**39]


@pytest.mark.parametrize("way", ["imperative", "compiled"])
def test_negative_powers_of_integers(way: str) -> None:
    """They are refused, as in NumPy."""
    a, b = np.array([1, -1, 2]), np.array([2, -2, 1])
    power = np.power if way == "imperative" else gemel.compile(np.power)
    with pytest.raises(ValueError, match="negative integer powers"):
        power(a, b).wait_to_read()
    assert power(a, abs(b)).tolist() == [1, 1, 2]


@pytest.mark.parametrize("dtype", INTEGERS)
@pytest.mark.parametrize("way", ["imperative", "compiled"])
def test_integers_to_a_float64_power(dtype: str, way: str) -> None:
    a = numpy.arange(1, 100).astype(dtype)
    b = numpy.linspace(-3, 3, 99)
    power = np.power if way == "imperative" else gemel.compile(np.power)
    numpy.testing.assert_allclose(power(*on_gemel([a, b])).asnumpy(), a**b, rtol=4e-15)
    numpy.testing.assert_allclose(power(*on_gemel([b + 4, a])).asnumpy(), (b + 4) ** a, rtol=4e-15)
    numpy.testing.assert_allclose(np.power(3, np.array(b)).asnumpy(), 3**b, rtol=4e-15)


@pytest.mark.parametrize("way", ["imperative", "compiled"])
def test_numbers_among_themselves_keep_their_digits(way: str) -> None:
    """Programs and gradients compute on pure numbers as Python does, in float64."""
    x = numpy.linspace(0.1, 3, 7)
    slopes = {
        "x ** 0.7": (lambda x: x**0.7, 0.7 * x**-0.3),
        "0.3 ** x": (lambda x: 0.3**x, 0.3**x * numpy.log(0.3)),
        "3 ** x": (lambda x: 3**x, 3**x * numpy.log(3)),
    }
    for name, (function, expected) in slopes.items():
        array = np.array(x)
        array.attach_grad()
        with autograd.record():
            y = (gemel.compile(function) if way == "compiled" else function)(array)
        y.backward()
        numpy.testing.assert_allclose(array.grad.asnumpy(), expected, rtol=4e-15, err_msg=name)


SHORT = (0, 1, 2, 3, 4, -1, 0.5, -0.5)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_short_powers(dtype: str) -> None:
    """Powers by products and roots are accurate, right in C's special cases, and have the same bits
    whether the exponent is a number, an array or a constant of a program, alone or fused."""
    limits = numpy.finfo(dtype)
    edges = [0.0, -0.0, 1, -1, numpy.inf, -numpy.inf, numpy.nan, limits.max, -limits.tiny, 1e-3]
    values = numpy.concatenate([edges, numpy.random.default_rng(0).normal(0, 2, 301)]).astype(dtype)
    x = np.array(values)
    for exponent in (*SHORT, 2.0, -1.0, True, 5, -2, 0.75, 1.5):
        with numpy.errstate(all="ignore"):
            expected = numpy.power(values.astype(numpy.longdouble), exponent).astype(dtype)
        found = (x**exponent).asnumpy()
        rounding = {"float16": 2e-3, "float32": 3e-7, "float64": 1.6e-15}[dtype]
        tiny = float(limits.smallest_subnormal)
        numpy.testing.assert_allclose(found, expected, rounding, 2 * tiny, err_msg=f"{exponent}")
        assert (numpy.signbit(found) == numpy.signbit(expected))[~numpy.isnan(expected)].all()
        each = np.array(numpy.full(values.shape, exponent, dtype))
        ways = {
            "array": x**each,
            "one": x ** each[:1],
            "constant": gemel.compile(lambda x, e=exponent: x**e)(x),
            "number": gemel.compile(lambda x, e: x**e)(x, exponent),
            "fused": gemel.compile(lambda x, e: np.maximum(x, x) ** e)(x, each),
            "strided": np.stack([x, x], axis=1)[:, 1] ** exponent,
        }
        for way, other in ways.items():
            numpy.testing.assert_array_equal(other.asnumpy(), found, f"{exponent}: {way}")


@pytest.mark.parametrize("exponent", SHORT)
def test_short_powers_behind_products_and_before_sums(exponent: float) -> None:
    """The kernels have other loops around the powers, and last vectors of all lengths."""
    for n in (1, 15, 16, 33, 100):
        x = np.array(numpy.linspace(0.5, 2, 7 * n).reshape(7, n), dtype="float32")
        weight = np.array(numpy.linspace(0.1, 1, n * n).reshape(n, n), dtype="float32")
        function = lambda x, w: (np.dot(x, w) ** exponent, (x**exponent).sum(axis=1))  # noqa: E731
        for found, expected in zip(
            gemel.compile(function)(x, weight), function(x.asnumpy(), weight.asnumpy()), strict=True
        ):
            numpy.testing.assert_allclose(found.asnumpy(), expected, rtol=2e-5)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_remainders_of_what_is_far_apart(dtype: str) -> None:
    """Exact, however often the divisor goes into the dividend."""
    kind = numpy.dtype(dtype).type
    limits = numpy.finfo(dtype)
    generator = numpy.random.default_rng(0)
    spread = 30 if dtype == "float32" else 200
    a = (generator.standard_normal(2000) * 2.0 ** generator.integers(-spread, spread, 2000)).astype(
        dtype
    )
    b = (generator.standard_normal(2000) * 2.0 ** generator.integers(-spread, spread, 2000)).astype(
        dtype
    )
    edges = numpy.array(
        [3.4e38, 2.5, limits.max, limits.tiny, limits.smallest_subnormal, 1, -3, 7.25], kind
    )
    more = [side.ravel() for side in numpy.meshgrid(edges, edges)]
    a, b = numpy.concatenate([a, more[0], -more[0]]), numpy.concatenate([b, more[1], more[1]])
    with numpy.errstate(all="ignore"):
        expected = numpy.remainder(a, b)
    numpy.testing.assert_array_equal(np.remainder(*on_gemel([a, b])).asnumpy(), expected)


@pytest.mark.parametrize("way", ["imperative", "compiled"])
def test_bools_that_meet_in_a_scatter(way: str) -> None:
    """The sum of True and True is True: one byte with the value 1."""
    from op_table import OPS

    def function(g: Any, places: Any) -> Any:
        return OPS["scatter"](g, places, axis=0, shape=(3,))

    scatter = gemel.compile(function) if way == "compiled" else function
    for count in (1, 2, 256):
        found = scatter(np.array([True] * count + [False]), np.array([0] * count + [1]))
        assert found.dtype == "bool" and found.tolist() == [True, False, False]
        assert found.asnumpy().view("uint8").tolist() == [1, 0, 0]


# --- dtypes beside NumPy's ------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [*map(as_dtype, NAMES)], ids=str)
def test_dtypes_beside_numpy_s(dtype: Any) -> None:
    twin = numpy.dtype(dtype.name)
    assert numpy.dtype(dtype) is twin
    assert numpy.zeros(3, dtype=dtype).dtype == twin
    assert numpy.ones(2).astype(dtype).dtype == twin
    assert dtype == twin and twin == dtype
    assert hash(dtype) == hash(twin)
    assert {dtype: 1}[twin] == 1 and {twin: 2}[dtype] == 2
    assert len({dtype, twin}) == 1


@pytest.mark.parametrize("other", [[], {}, [1], None, 3, "", "x", object(), set()])
def test_a_dtype_equals_no_other_thing(other: Any) -> None:
    assert bool(np.float32 != other) and not bool(np.float32 == other)  # without raising an error


# --- printing, containing, saving -----------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", [(), (0,), (0, 3), (2,), (40,), (3, 30), (2000,)], ids=str)
def test_repr_names_the_dtypes_creation_does_not_give(dtype: Any, shape: Any) -> None:
    text = repr(np.zeros(shape, dtype=dtype))
    plain = ("float32", "int64", "bool", "complex64") if 0 not in shape else ()
    assert (f"dtype={dtype}" in text) == (dtype.name not in plain), text
    assert text.startswith("array(") and text.endswith(")")


def test_repr_reads_as_numpy_s() -> None:
    assert repr(np.array([1.0, 2.5])) == "array([1. , 2.5])"
    assert repr(np.zeros(2, dtype="float64")) == "array([0., 0.], dtype=float64)"
    assert repr(np.zeros((0, 3))) == "array([], shape=(0, 3), dtype=float32)"
    long = numpy.arange(40, dtype="float32").reshape(2, 20)
    assert repr(np.array(long)) == repr(long).replace(", dtype=float32", "").replace(
        ",\n      dtype=float32", ""
    )


def test_in() -> None:
    x = np.array([[1, 2], [3, 4]])
    assert 3 in x and 5 not in x
    assert 2.0 in np.array([1.0, 2.0]) and 1 not in np.zeros((0, 3))
    assert [1, 2] in x and np.array(4) in x


@pytest.mark.parametrize("kind", ["one", "list", "dict"])
def test_saved_arrays_come_back(kind: str, tmp_path: Any) -> None:
    x = np.arange(6).reshape(2, 3)
    given = {"one": x, "list": [x, x + 1], "dict": {"a": x}}[kind]
    npx.save(str(tmp_path / "f"), given)
    found = npx.load(str(tmp_path / "f"))
    if kind == "dict":
        assert list(found) == ["a"] and np.array_equal(found["a"], x)
    elif kind == "list":
        assert len(found) == 2 and np.array_equal(found[0], x)
    else:
        assert found.shape == (2, 3) and np.array_equal(found, x)


def test_numpy_s_integers_are_parameters() -> None:
    two, one = numpy.int64(2), numpy.int32(1)
    x = np.arange(6).reshape(two, 3)
    assert np.zeros(two).shape == (2,) and np.zeros((two, 3)).shape == (2, 3)
    assert x.reshape(numpy.int64(-1)).shape == (6,)
    assert x.sum(axis=one).tolist() == [3, 12] and x.transpose(one, numpy.int8(0)).shape == (3, 2)
    assert [part.shape for part in np.split(x, numpy.array([1]))] == [(1, 3), (1, 3)]
    assert np.ones(numpy.array([2, 3])).shape == (2, 3)
    program = gemel.compile(lambda x, n: x.reshape(n, -1))
    assert program(x, 3).shape == (3, 2) and program(x, 2).shape == (2, 3)


# --- empty products, losses, activations ----------------------------------------------------

EMPTY = [
    ((2, 3, 0), (0, 4)), ((2, 0, 3), (3, 4)), ((0, 2, 3), (3,)), ((2, 3, 0), (5, 0, 4)),
    ((0, 3), (2, 3, 4)), ((2, 2, 0), (0,)), ((0,), (0,)), ((2, 3), (4, 3, 0)),
]  # fmt: skip


@pytest.mark.parametrize(("a", "b"), EMPTY)
def test_dot_of_nothing(a: Any, b: Any) -> None:
    expected = numpy.dot(numpy.ones(a, "float32"), numpy.ones(b, "float32"))
    found = np.dot(np.ones(a), np.ones(b))
    assert found.shape == expected.shape and found.tolist() == expected.tolist()


def test_a_dense_layer_of_an_empty_batch() -> None:
    net = nn.Dense(3)
    net.initialize()
    assert net(np.ones((2, 4, 5))).shape == (2, 3)
    assert net(np.ones((0, 4, 5))).shape == (0, 3)


@pytest.mark.parametrize("weight", [None, 1.0, 3.0])
def test_l2_loss_weights(weight: Any) -> None:
    loss = gluon.loss.L2Loss(weight=weight)
    found = loss(np.array([[1.0, 3.0]]), np.array([[0.0, 1.0]])).tolist()
    assert found == [1.25 * (weight or 1.0)]
    assert repr(loss) == f"L2Loss(batch_axis=0, w={weight})"


@pytest.mark.parametrize("name", sorted(ACTIVATIONS))
def test_every_activation_is_a_layer(name: str) -> None:
    x = np.array([-2.0, 0.0, 0.5])
    net = nn.Activation(name)
    expected = npx.activation(x, act_type=name).tolist()
    assert net(x).tolist() == expected
    net.hybridize()
    assert net(x).tolist() == expected


def test_softsign() -> None:
    x = numpy.array([-3.0, 0.0, 1.0], "float32")
    assert nn.Activation("softsign")(np.array(x)).tolist() == (x / (1 + abs(x))).tolist()
    far = np.array([1e4, -3e3])
    far.attach_grad()
    with autograd.record():
        y = npx.softsign(far)
    y.backward()
    numpy.testing.assert_allclose(far.grad.asnumpy(), (1 + abs(far.asnumpy())) ** -2.0, rtol=1e-6)


def test_a_net_with_deferred_shapes_is_traced_once() -> None:
    """The first call finds the shapes and makes the program that the second call runs."""
    net = nn.HybridSequential()
    net.add(nn.Dense(4, activation="relu"), nn.BatchNorm(), nn.Dense(2))
    net.initialize()
    net.hybridize()
    first = net(np.ones((3, 5))).tolist()
    program = net._own.compiled
    assert program is not None and program.traces == 1
    assert net(np.ones((3, 5))).tolist() == first
    assert net._own.compiled is program and program.traces == 1


@pytest.mark.parametrize("name", ["var", "std", "nanvar", "nanstd"])
@pytest.mark.parametrize("dtype", ["int32", "uint32", "int64", "uint64"])
@pytest.mark.parametrize("options", [{}, {"where": [True] * 5 + [False]}, {"axis": 0, "ddof": 1}])
def test_distances_of_large_integers(name: str, dtype: str, options: dict[str, Any]) -> None:
    limits = numpy.iinfo(dtype)
    steps = numpy.arange(6) * (3 if limits.bits == 32 else 3 * 2**40)  # exact in float64
    near = (limits.max - steps.astype(dtype)).astype(dtype)
    far = numpy.array([limits.min, limits.max] * 3, dtype)
    for given, places in ((near, steps), (far, far)):
        expected = getattr(numpy, name)(places.astype("float64"), **options)
        found = getattr(np, name)(np.array(given), **options)
        assert found.dtype == "float32"
        numpy.testing.assert_allclose(found.asnumpy(), expected, rtol=1e-6)
