"""Products of float16 and bfloat16: read as they are, added up in float32, rounded once."""

from __future__ import annotations

from typing import Any

import numpy
import pytest

import gemel
from gemel import autograd, np, npx

DIGITS = {"float16": 11, "bfloat16": 8, "float32": 24, "float64": 53}
PAIRS = [
    ("float16", "float16"), ("bfloat16", "bfloat16"), ("float16", "float32"),
    ("float32", "bfloat16"), ("float16", "bfloat16"), ("bfloat16", "float64"),
]  # fmt: skip
#: Shapes of a and b: matrices, vectors, batches, empty ones, long sums.
SHAPES: list[tuple[tuple[int, ...], tuple[int, ...]]] = [
    ((5, 7), (7, 3)), ((1, 200), (200, 90)), ((64, 64), (64, 64)), ((130, 33), (33, 70)),
    ((5,), (5, 7)), ((7, 5), (5,)), ((300,), (300,)), ((40, 2500), (2500, 50)),
    ((2, 3, 4, 5), (3, 5, 6)), ((4, 1, 6, 5), (3, 5, 2)), ((3, 0), (0, 4)), ((0, 3), (3, 4)),
    ((6, 9, 40), (40, 30)), ((9, 1, 64), (9, 64, 80)),
]  # fmt: skip


def made(shape: tuple[int, ...], dtype: str, seed: int) -> Any:
    values = numpy.random.default_rng(seed).standard_normal(shape).astype("float32")
    return np.array(values).astype(dtype)


def exact(x: Any) -> Any:
    return x.astype("float64").asnumpy()


def check(found: Any, a: Any, b: Any) -> None:
    """Compare with float64, with the bound that `docs/internals/numbers.md` states."""
    a, b = exact(a), exact(b)
    wanted, sizes = numpy.matmul(a, b), numpy.matmul(abs(a), abs(b))
    digits = DIGITS[str(found.dtype)]
    summing = a.shape[-1] * 2.0 ** (-52 if digits == 53 else -23)
    bound = summing * sizes + abs(wanted) * 2.0**-digits + 2.0**-24
    assert found.shape == wanted.shape
    assert (abs(exact(found) - wanted) <= bound).all()


@pytest.mark.parametrize("pair", PAIRS, ids="-".join)
def test_shapes(pair: tuple[str, str]) -> None:
    for seed, (first, second) in enumerate(SHAPES):
        a, b = made(first, pair[0], seed), made(second, pair[1], seed + 100)
        check(np.matmul(a, b), a, b)


@pytest.mark.parametrize("pair", PAIRS[:4], ids="-".join)
def test_views(pair: tuple[str, str]) -> None:
    """Operands that are transposed, have gaps, are reversed or repeated, or are parts of arrays."""
    x, y = made((40, 60), pair[0], 1), made((60, 60), pair[1], 2)
    repeated = np.broadcast_to(y[0], (60, 60))
    for a, b in (
        (x, y.T), (x[::2], y), (x[:, ::-1], y), (x.T, y[:40]), (x, repeated), (x[:, ::2], y[::2]),
        (x, repeated.T), (x[3:4], y.T), (x[3], y.T),
    ):  # fmt: skip
        check(np.matmul(a, b), a, b)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_compiled_with_what_follows_and_its_gradients(dtype: str) -> None:
    a, b, c = made((33, 70), dtype, 1), made((70, 40), dtype, 2), made((40,), dtype, 3)
    gradients = []

    def function(a: Any, b: Any, c: Any) -> Any:
        return npx.relu(np.matmul(a, b) * 0.1 + c)

    for each in (function, gemel.compile(function)):
        for x in (a, b, c):
            x.attach_grad()
        with autograd.record():
            y = each(a, b, c)
        y.backward()
        gradients.append([y, *(x.grad.copy() for x in (a, b, c))])
    rounding = 2.0 ** (2 - DIGITS[dtype])
    wide = [np.array(exact(x)) for x in (a, b, c)]
    for x in wide:
        x.attach_grad()
    with autograd.record():
        y = function(*wide)
    y.backward()
    for found, other, right in zip(*gradients, [y, *(x.grad for x in wide)], strict=True):
        assert exact(found).tolist() == exact(other).tolist()
        limit = rounding * numpy.abs(exact(right)).max()
        numpy.testing.assert_allclose(exact(found), exact(right), rtol=0, atol=4 * limit)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("options", [
    {"kernel": (3, 3)}, {"kernel": (3, 3), "stride": (2, 2), "pad": (1, 1)},
    {"kernel": (3, 2), "dilate": (2, 1)}, {"kernel": (1, 1)}, {"kernel": (3, 3), "num_group": 2},
], ids=str)  # fmt: skip
def test_convolution(options: dict[str, Any], dtype: str) -> None:
    """The result is float32's, rounded once; a gradient is a sum of such results."""
    groups = options.get("num_group", 1)
    x, w = made((3, 6, 13, 12), dtype, 1), made((8, 6 // groups, *options["kernel"]), dtype, 2)
    results = []
    for given in ((x, w), (x.astype("float32"), w.astype("float32"))):
        for each in given:
            each.attach_grad()
        with autograd.record():
            y = npx.convolution(*given, num_filter=8, no_bias=True, **options)
        y.backward()
        results.append([y, *(each.grad for each in given)])
    unit = 2.0 ** -DIGITS[dtype]
    for number, (found, right) in enumerate(zip(*results, strict=True)):
        sizes = abs(exact(right))
        bound = 4 * unit * sizes.max() if number else 1.01 * unit * sizes + 1e-4
        assert (abs(exact(found) - exact(right)) <= bound).all()


def test_no_copy_of_an_operand_is_made() -> None:
    """Besides kernels that pack, the plan only has the product's own kernel."""
    for shapes in (((200, 300), (300, 100)), ((1, 300), (300, 100)), ((2, 300), (300, 100))):
        for dtype in ("float16", "bfloat16"):
            a, b = (made(shape, dtype, 0) for shape in shapes)
            program = gemel.compile(np.matmul)
            text = program.source(a, b)
            kernels = [line for line in text.splitlines() if line.startswith("/* loops")]
            products = ": gemm", ": dot", ": amx"
            assert len([k for k in kernels if any(kind in k for kind in products)]) == 1
            kinds = (*products, ": pack")
            assert all(any(kind in k for kind in kinds) for k in kernels), kernels


def test_infinities_and_subnormals() -> None:
    a = np.array([[numpy.inf, 1.0], [2.0**-24, 0.0], [numpy.nan, 1.0]]).astype("float16")
    b = np.array([[1.0, 2.0], [numpy.inf, 1.0]]).astype("float16")
    found = np.matmul(a, b).tolist()
    assert found[0] == [numpy.inf, numpy.inf] and numpy.isnan(found[1][0])
    assert found[1][1] == 2.0**-23 and all(map(numpy.isnan, found[2]))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize(
    "equation", ["ij,j->i", "j,ij->i", "ij,ij->", "ij,ij->i", "j,j->", "ijj,j->i"]
)
def test_einsum_rounds_its_products_after_the_sum(equation: str, dtype: str) -> None:
    """The products are too large for float16, and bfloat16 has too few digits for them."""
    row = [258.0, -256.0, 1.0]
    other = [258.0, 260.0, 1.0]
    shapes = {"j": (3,), "ij": (2, 3), "ijj": (2, 3, 3)}
    left, right = equation.split("->")[0].split(",")
    a = numpy.broadcast_to(row, shapes[left])
    b = numpy.broadcast_to(other, shapes[right])
    wanted = numpy.einsum(equation, a, b)
    given = np.array(a, dtype=dtype), np.array(b, dtype=dtype)

    def function(a: Any, b: Any) -> Any:
        return np.einsum(equation, a, b)

    for found in (function(*given), gemel.compile(function)(*given)):
        assert str(found.dtype) == dtype
        numpy.testing.assert_array_equal(found.astype("float64").asnumpy(), wanted)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_vecdot_rounds_its_products_after_the_sum(dtype: str) -> None:
    a, b = (np.array(x, dtype=dtype) for x in ([258.0, -256.0, 1.0], [258.0, 260.0, 1.0]))
    found = np.vecdot(a, b)
    assert str(found.dtype) == dtype
    assert float(found) == 5.0


#: How a factor is broadcast along the first axis of x (2, rows, 3), and its shape.
BROADCAST: dict[str, tuple[Any, tuple[int, ...]]] = {
    "a matrix on the right": (lambda x, w: np.matmul(x, w), (3, 4)),
    "a vector on the right": (lambda x, w: np.matmul(x, w), (3,)),
    "a matrix on the left": (lambda x, w: np.matmul(w, np.swapaxes(x, 1, 2)), (4, 3)),
    "an axis of length 1": (lambda x, w: np.matmul(x, w), (1, 3, 4)),
    "more axes": (lambda x, w: np.matmul(np.expand_dims(x, 1), w), (1, 2, 3, 4)),
    "dense": (lambda x, w: npx.fully_connected(x, w, flatten=False, no_bias=True), (4, 3)),
}  # fmt: skip


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize(("dtype", "rows"), [("float16", 2049), ("bfloat16", 257)])
@pytest.mark.parametrize("name", BROADCAST)
def test_the_gradient_of_a_broadcast_factor_is_rounded_once(
    name: str, dtype: str, rows: int, compiled: bool
) -> None:
    """The sums of one batch are no numbers of the dtype; the sums of both are."""
    function, shape = BROADCAST[name]
    x, w = np.ones((2, rows, 3), dtype=dtype), np.ones(shape, dtype=dtype)
    signs = numpy.ones((2, rows, 1), "float32")
    signs[1] = -1
    signs[1, -1] = 0

    def gradient(x: Any, w: Any, signs: Any) -> Any:
        with autograd.record():
            y = function(x, w)
        turned = np.swapaxes(signs, 1, 2) if name == "a matrix on the left" else signs
        lead = (2, *[1] * (y.ndim - 3))
        head = turned[..., 0] if y.ndim == 2 else turned.reshape(*lead, *turned.shape[1:])
        return autograd.grad(y, [w], np.broadcast_to(head, y.shape))[0]

    w.attach_grad()
    run = gemel.compile(gradient) if compiled else gradient
    found = run(x, w, np.array(signs).astype(dtype))
    assert str(found.dtype) == dtype
    assert found.shape == w.shape
    assert (exact(found) == 1).all()


@pytest.mark.parametrize(("dtype", "rows"), [("float16", 2049), ("bfloat16", 257)])
def test_the_gradient_of_a_broadcast_factor_is_rounded_once_after_a_loop(
    dtype: str, rows: int
) -> None:
    """The sum of each round is no number of the dtype; the sum of all rounds is."""
    x, w = np.ones((40, 2, rows, 3), dtype=dtype), np.ones((3, 4), dtype=dtype)
    signs = numpy.ones((40, 2, rows, 4), "float32")
    signs[:, 1] = 0
    signs[::2, 0] = -1
    signs[0, 0, 0] = 0

    def gradient(x: Any, w: Any, signs: Any) -> Any:
        with autograd.record():
            y, _ = npx.foreach(lambda each, states: (np.matmul(each, w), states), x, [])
        return autograd.grad(y, [w], signs)[0]

    w.attach_grad()
    found = gemel.compile(gradient)(x, w, np.array(signs).astype(dtype))
    assert (exact(found) == 1).all()


#: Sums of products in other functions, of rows a and b, whose products have too many digits.
SUMS: dict[str, Any] = {
    "convolve": lambda a, b: np.convolve(a, b[::-1], "valid")[0],
    "correlate": lambda a, b: np.correlate(a, b)[0],
    "average": lambda a, b: np.average(a, weights=b) * b.sum(),
}


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("name", SUMS)
def test_products_are_rounded_after_the_sum(name: str, dtype: str, compiled: bool) -> None:
    rows = ([258.0, -256.0, 1.0], [258.0, 260.0, 1.0])
    if name == "average":  # the sum of the weights is a number of bfloat16
        rows[1][2] = -6.0
    a, b = (np.array(row, dtype=dtype) for row in rows)
    function = gemel.compile(SUMS[name]) if compiled else SUMS[name]
    found = function(a, b)
    assert str(found.dtype) == dtype
    assert float(found) == sum(x * y for x, y in zip(*rows, strict=True))


@pytest.mark.parametrize(("dtype", "large"), [("float16", 2048.0), ("bfloat16", 256.0)])
def test_trapezoid_rounds_its_terms_after_the_sum(dtype: str, large: float) -> None:
    """The sum of the first two is no number of the dtype."""
    y, x = np.array([large, 3, -large], dtype=dtype), np.arange(3.0).astype(dtype)
    for found in (np.trapezoid(y), np.trapezoid(y, x), np.trapezoid(y, x.astype("int32"))):
        assert str(found.dtype) == dtype
        assert float(found) == 3.0
    wide = np.trapezoid(y, np.arange(3.0))
    assert str(wide.dtype) == "float32"
    assert float(wide) == 3.0


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("name", ["softmax", "log_softmax"])
def test_gradients_of_softmax_are_rounded_once(
    name: str, masked: bool, dtype: str, compiled: bool
) -> None:
    """Computed from the rounded result y."""
    x, head = made((2, 256), dtype, 2), made((2, 256), dtype, 3)
    whole = np.ones((2, 256), dtype="bool")
    function = getattr(npx, "masked_" + name if masked else name)
    given = (x, whole) if masked else (x,)
    x.attach_grad()
    with autograd.record():
        y = (gemel.compile(function) if compiled else function)(*given)
    y.backward(head)
    g = exact(head)
    if name == "softmax":
        wanted = exact(y) * (g - (g * exact(y)).sum(-1, keepdims=True))
    else:
        wanted = g - numpy.exp(exact(y)) * g.sum(-1, keepdims=True)
    assert (abs(exact(x.grad) - wanted) <= 1.01 * 2.0 ** -DIGITS[dtype] * abs(wanted) + 1e-6).all()
