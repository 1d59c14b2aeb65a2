"""Long reductions to few results are computed in parts (`passes/parts`)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy
import pytest
from programs import run

import gemel
from gemel import autograd, np, npx
from gemel.ir.graph import Graph
from gemel.ir.op_kinds import Reduction
from gemel.ir.trace import Trace
from gemel.passes import expand
from gemel.passes.parts import FEW, LONG, PARTS, in_parts

SHAPES: list[tuple[tuple[int, ...], Any]] = [
    ((LONG,), None),
    ((LONG + 31,), None),
    ((1, LONG + 1), 1),
    ((LONG + 5, 2), None),
    ((LONG // 4 + 7, 5), 0),
    ((2, LONG // 8 + 3, 4), 1),
    ((3, LONG // 2), (0, 1)),
    ((600, 517), None),
    ((600, 3, 300), (0, 2)),
    ((16, 4, 70, 70), None),
    ((4099, 250), 0),
    ((32, 64, 250), (0, 1)),
]


def drawn(shape: tuple[int, ...], dtype: str) -> numpy.ndarray:
    random = numpy.random.default_rng(sum(shape))
    if dtype.startswith("int"):
        return random.integers(-9, 10, shape).astype(dtype)
    return random.normal(size=shape).astype(dtype)


def after_the_pass(function: Callable[..., Any], *arrays: Any) -> Graph:
    """A traced function's graph after the pass."""
    with Trace():
        return in_parts(expand(gemel.compile(function).graph(*arrays)))


def reductions_of(function: Callable[..., Any], *arrays: Any) -> int:
    """How many reductions a traced function has after the pass."""
    nodes = after_the_pass(function, *arrays).walk()
    return sum(isinstance(node.op, Reduction) for node in nodes)


@pytest.mark.parametrize("keepdims", [False, True])
@pytest.mark.parametrize("name", ["sum", "max", "min", "mean", "var"])
@pytest.mark.parametrize("shape, axis", SHAPES, ids=str)
def test_they_are_right(shape: tuple[int, ...], axis: Any, name: str, keepdims: bool) -> None:
    x = drawn(shape, "float32")
    found = getattr(np, name)(np.array(x), axis=axis, keepdims=keepdims)
    expected = getattr(numpy, name)(x.astype("float64"), axis=axis, keepdims=keepdims)
    assert found.shape == expected.shape
    numpy.testing.assert_allclose(found.asnumpy(), expected, rtol=1e-5, atol=2e-2)


def factors(shape: tuple[int, ...]) -> numpy.ndarray:
    """Ones of both signs, and ten twos."""
    x = numpy.where(drawn(shape, "float64") > 0, 1.0, -1.0)
    x.reshape(-1)[:: x.size // 9] *= 2
    return x


@pytest.mark.parametrize("dtype", ["float64", "float16", "bfloat16", "int8", "int64", "bool"])
@pytest.mark.parametrize("name", ["sum", "prod", "max", "min"])
@pytest.mark.parametrize("shape, axis", SHAPES[1:4], ids=str)
def test_all_dtypes(shape: tuple[int, ...], axis: Any, name: str, dtype: str) -> None:
    """Partial results of two-byte floats are not rounded; integers and bools are exact."""
    x = factors(shape) if name == "prod" else drawn(shape, "float64" if "f" in dtype else "int8")
    array = np.array(x, dtype=dtype)
    found = getattr(np, name)(array, axis=axis)
    exact = array.astype("float64") if "f" in dtype else array
    expected = getattr(numpy, name)(exact.asnumpy(), axis=axis)
    assert found.dtype == getattr(np, name)(np.array([1], dtype=dtype)).dtype
    tolerance = {"float16": 1e-3, "bfloat16": 8e-3, "float64": 1e-9}.get(dtype, 0)
    numpy.testing.assert_allclose(found.astype("float64").asnumpy(), expected, rtol=tolerance)


@pytest.mark.parametrize("place", [0, LONG // 2, LONG + 2])
@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_what_is_not_finite_counts_in_every_part(place: int, value: float) -> None:
    x = numpy.ones(LONG + 3, "float32")
    x[place] = value
    for name in ("sum", "prod", "max", "min"):
        found = float(getattr(np, name)(np.array(x)))
        numpy.testing.assert_equal(found, float(getattr(numpy, name)(x)))


def test_views() -> None:
    """Stepped, reversed, transposed and broadcast arguments."""
    x = drawn((3, 2 * LONG + 10), "float32")
    array = np.array(x)
    views: list[Callable[[Any], Any]] = [
        lambda a: a[1, ::2],
        lambda a: a[2, ::-1],
        lambda a: a[:, 5 : LONG + 9].T,
        lambda a: a[:1, :7].T,
    ]
    for view in views:
        expected = view(x).sum(axis=0, dtype="float64")
        found = view(array).sum(axis=0).asnumpy()
        numpy.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-2)
    wide = np.broadcast_to(array[0, :1], (LONG,))
    numpy.testing.assert_allclose(float(wide.sum()), float(x[0, 0]) * LONG, rtol=1e-5)


def test_what_is_computed_for_it_alone_shares_its_kernel() -> None:
    x, y = (np.array(drawn((LONG + 7,), "float32")) for _ in range(2))
    two_rows = np.array(drawn((2, LONG), "float32"))

    def alone(x: Any, y: Any) -> Any:
        return (np.exp(x) * y + y[:1]).sum()

    def shared(x: Any, y: Any) -> Any:
        z = np.exp(x) * y
        return z.sum(), z

    def columns(x: Any, scale: Any) -> Any:
        return (x * scale).max(axis=1)

    plan = gemel.compile(alone).plan_summary(x, y)
    assert plan.startswith("alone: 3 kernels, 192 bytes"), plan
    numpy.testing.assert_allclose(
        float(gemel.compile(alone)(x, y)), float(alone(x, y)), rtol=1e-4, atol=1e-2
    )
    total, product = gemel.compile(shared)(x, y)
    numpy.testing.assert_allclose(float(total), product.asnumpy().sum(dtype="float64"), rtol=1e-4)
    scale = np.array([[2.0], [-1.0]])
    expected = (two_rows.asnumpy() * scale.asnumpy()).max(axis=1)
    found = gemel.compile(columns)(two_rows, scale)
    numpy.testing.assert_array_equal(found.asnumpy(), expected)


@pytest.mark.parametrize("name, dtype, columns", [("max", "int8", 2048), ("sum", "float16", 1024)])
def test_a_long_reduction_of_what_is_computed_from_another(
    name: str, dtype: str, columns: int
) -> None:
    x = numpy.random.default_rng(1).integers(-9, 10, (1025, columns))
    y = numpy.random.default_rng(2).integers(-9, 10, (3, 100, columns))

    def largest(x: Any, y: Any) -> Any:
        return (y + getattr(x, name)(axis=0)).max()

    found = gemel.compile(largest)(np.array(x, dtype=dtype), np.array(y, dtype=dtype))
    assert int(found) == largest(x, y)


def test_of_a_long_chain() -> None:
    """Longer than Python's stack is deep."""

    def sum_of_chain(x: Any) -> Any:
        for _ in range(1200):
            x = -(x + 1)
        return x.sum()

    assert reductions_of(sum_of_chain, np.zeros(LONG + 3)) == 3


def test_what_cannot_be_cut_is_not_written_to_memory() -> None:
    """A gather, positions and random numbers stay in the kernel of their reduction."""
    x, chosen = np.array(drawn((1000,), "float32")), np.array(drawn((LONG,), "int64") % 1000)

    def gathered(x: Any, chosen: Any) -> Any:
        return (x[chosen] ** 2).sum()

    def placed(y: Any) -> Any:
        return np.where(np.arange(LONG) < 5, y, 0).sum()

    for function, arrays in ((gathered, (x, chosen)), (placed, (np.ones(LONG),))):
        summary = gemel.compile(function).plan_summary(*arrays)
        assert summary.endswith("1 kernel, 0 bytes of workspace"), summary
    expected = (x.asnumpy()[chosen.asnumpy()] ** 2).sum(dtype="float64")
    numpy.testing.assert_allclose(float(gemel.compile(gathered)(x, chosen)), expected, rtol=1e-4)
    assert float(gemel.compile(placed)(np.ones(LONG))) == 5


def test_which_reductions_are_divided() -> None:
    def count(shape: tuple[int, ...], axis: Any = None) -> int:
        return reductions_of(lambda x: x.sum(axis=axis), np.zeros(shape))

    assert count((LONG - 1,)) == 1
    assert count((LONG,)) == 2
    assert count((LONG + 1,)) == 3
    assert count((512, 512)) == 2
    assert count((FEW, LONG), 1) == 1, "a kernel for each core"
    assert count((FEW - 1, LONG), 1) == 2
    assert count((LONG, 512), 0) == 2
    assert count((LONG, 513), 0) == 1
    assert count((32, 128, 256), (0, 1)) == 2
    assert count((512, 2, 256), (0, 1)) == 1, "the parts would be short"
    assert count((64, 512, 512), (1, 2)) == 1
    assert reductions_of(lambda x: x.argmax(), np.zeros(LONG)) == 1
    assert PARTS * PARTS <= LONG


def test_one_function_takes_short_and_long_arrays() -> None:
    f = gemel.compile(lambda x: (x * 2).sum())
    for n in (3, LONG + 1, 7, LONG, LONG + 64, 0, LONG - 1):
        x = drawn((n,), "float32")
        expected = 2 * x.sum(dtype="float64")
        numpy.testing.assert_allclose(float(f(np.array(x))), expected, rtol=1e-4, atol=1e-2)


def test_gradients() -> None:
    x = np.array(drawn((LONG + 9,), "float64"), dtype="float64")
    x.attach_grad()
    with autograd.record():
        y = (x * x).sum() + x.max() * 3
    y.backward()
    expected = 2 * x.asnumpy()
    expected[x.asnumpy().argmax()] += 3
    numpy.testing.assert_allclose(x.grad.asnumpy(), expected, rtol=1e-12)


def test_a_file_gives_the_same_bits(tmp_path: Path) -> None:
    net = gemel.gluon.nn.HybridLambda(lambda x: npx.relu(x).sum())
    x = np.array(drawn((LONG + 9,), "float32"))
    here = net(x)
    net.hybridize()
    assert net(x).tobytes() == here.tobytes()
    gemel.save(net, tmp_path / "net.gemel")
    assert gemel.load(tmp_path / "net.gemel")(x).tobytes() == here.tobytes()


def test_the_same_bits_for_any_number_of_workers() -> None:
    program = """
from gemel import np
x = np.sin(np.arange(1000003))
tell(bits=[float(y) for y in (x.sum(), (x * x).mean(), x.var(), x.max())])
"""
    found = [run(program, GEMEL_WORKERS=workers)["bits"] for workers in ("0", "1", "2", "5")]
    assert all(bits == found[0] for bits in found)


@pytest.mark.parametrize(("shape", "axis"), [((4096, 64), 0), ((32, 128, 64), (0, 1))])
def test_long_reductions_of_one_array_read_it_once(shape: Any, axis: Any) -> None:
    """One kernel for the parts of all of them, and one for each to join its parts."""

    def reductions(x: Any, g: Any) -> Any:
        return g.sum(axis=axis), (g * x).sum(axis=axis), (g - x).max(axis=axis)

    chance = numpy.random.default_rng(0)
    x, g = (chance.random(shape).astype("float32") for _ in range(2))
    compiled = gemel.compile(reductions)
    found = compiled(np.array(x), np.array(g))
    for one, other in zip(found, reductions(x, g), strict=True):
        numpy.testing.assert_allclose(one.asnumpy(), other, rtol=1e-4)
    assert "4 kernels" in compiled.plan_summary(np.array(x), np.array(g))


def test_sums_that_keep_their_axes_share_a_kernel() -> None:
    def both(x: Any) -> Any:
        return x.sum(axis=1, keepdims=True), (x + 1).max(axis=1, keepdims=True)

    x, compiled = np.ones((16, 32, 64)), gemel.compile(both)
    assert [each.shape for each in compiled(x)] == [(16, 1, 64)] * 2
    assert "1 kernel," in compiled.plan_summary(x)
