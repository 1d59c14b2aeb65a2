"""Loops run in the order in which arrays lie, not in that of their axes."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy
import pytest

import gemel
from gemel import np, npx
from gemel.codegen.language import body, nest
from gemel.codegen.language.order import joined, merged
from gemel.codegen.language.program import ACROSS, CONTIGUOUS, STRIDED, Program
from gemel.ir.declare import elementwise
from gemel.ir.layout import Layout

SHAPES = [(17, 9, 33), (3, 20, 1), (8, 8, 8), (2, 0, 3), (5, 12, 9, 16)]
RUNS = [lambda f: f, gemel.compile]


def elements(shape: tuple[int, ...], dtype: str = "float32") -> numpy.ndarray[Any, Any]:
    return (numpy.random.default_rng(0).random(shape) * 100 - 50).astype(dtype)


@pytest.mark.parametrize("run", RUNS, ids=["called", "compiled"])
@pytest.mark.parametrize("dtype", ["float32", "int8", "float64"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_copies_of_axes_in_any_order(shape: Any, dtype: str, run: Any) -> None:
    x = elements(shape, dtype)
    for axes in itertools.permutations(range(len(shape))):
        other = elements(tuple(shape[axis] for axis in axes), dtype)

        def both(a: Any, b: Any, axes: Any = axes) -> Any:
            return a.transpose(axes) - b, a.transpose(axes).copy(), a[::-1].transpose(axes) + 1

        found = run(both)(np.array(x), np.array(other))
        for mine, own in zip(found, both(x, other), strict=True):
            numpy.testing.assert_array_equal(mine.asnumpy(), own)


@pytest.mark.parametrize("run", RUNS, ids=["called", "compiled"])
def test_writes_through_axes_in_any_order(run: Any) -> None:
    x, y = elements((9, 17, 12)), elements((12, 9, 17))
    for axes in itertools.permutations(range(3)):
        back = numpy.argsort(axes)

        def written(a: Any, b: Any, axes: Any = axes, back: Any = back) -> Any:
            turned = a.copy().transpose(axes)
            turned += b.transpose((1, 2, 0)).transpose(axes)
            return turned.transpose(tuple(map(int, back)))

        found = run(written)(np.array(x), np.array(y))
        numpy.testing.assert_array_equal(found.asnumpy(), written(x, y))


REDUCTIONS: dict[str, Callable[..., Any]] = {
    "sum": lambda xp, x, axis: xp.sum(x, axis=axis),
    "max": lambda xp, x, axis: xp.max(x, axis=axis),
    "var": lambda xp, x, axis: xp.var(x, axis=axis),
    "any": lambda xp, x, axis: xp.any(x > 49, axis=axis),
    "argmax": lambda xp, x, axis: xp.argmax(xp.floor(x), axis=axis),
    "argmin": lambda xp, x, axis: xp.argmin(xp.floor(x), axis=axis),
    "cumsum": lambda xp, x, axis: xp.cumsum(xp.floor(x), axis=axis),
    "difference": lambda xp, x, axis: x - xp.max(x, axis=axis, keepdims=True),
}


@pytest.mark.parametrize("run", RUNS, ids=["called", "compiled"])
@pytest.mark.parametrize("name", REDUCTIONS)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_reductions_of_axes_in_any_order(shape: Any, name: str, run: Any) -> None:
    single = name in ("argmax", "argmin", "cumsum")
    if 0 in shape and name not in ("sum", "any", "cumsum"):
        pytest.skip("NumPy has no result for no elements")
    x, reduced = elements(shape), REDUCTIONS[name]
    wide = x.astype("float64") if name in ("sum", "var") else x
    dimensions = range(len(shape))
    counts = (1,) if single else range(1, len(shape) + 1)
    chosen = [each for n in counts for each in itertools.combinations(dimensions, n)]
    for axes in itertools.permutations(dimensions):
        for axis in (None, *chosen):
            over = axis[0] if single and axis else axis

            def found(xp: Any, a: Any, axes: Any = axes, over: Any = over) -> Any:
                return reduced(xp, a.transpose(axes), over)

            mine = run(lambda a, found=found: found(np, a))(np.array(x)).asnumpy()
            numpy.testing.assert_allclose(mine, found(numpy, wide), rtol=2e-5, atol=2e-3)


@pytest.fixture
def classes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[list[int]]:
    """The stride classes of the operands of all kernels in loops that are made."""
    found: list[list[int]] = []

    class Spied(Program):
        def __new__(cls, *fields: Any) -> Any:
            found.append([operand.stride_class for operand in fields[3]])
            return Program(*fields)

    for module in (body, nest):
        monkeypatch.setattr(module, "Program", Spied)
    monkeypatch.setenv("GEMEL_CACHE", str(tmp_path))
    return found


@pytest.mark.parametrize(
    ("turned", "plain"),
    [
        (lambda x: x.T.sum(), lambda x: x.sum()),
        (lambda x: x.T.max(axis=1), lambda x: x.max(axis=0)),
        (lambda x: np.var(x.T, axis=1), lambda x: np.var(x, axis=0)),
    ],
)
def test_reductions_of_a_turned_array_are_those_of_the_array(turned: Any, plain: Any) -> None:
    """By the same kernels, so to the same bits."""
    x = np.array(elements((301, 77)))
    one, other = gemel.compile(turned), gemel.compile(plain)
    assert one(x).tolist() == other(x).tolist()
    assert one.source(x) == other.source(x)


def test_operands_across_are_turned_in_squares(classes: list[list[int]]) -> None:
    """Whichever loop they are contiguous along, and whether or not the call is compiled."""

    @elementwise(dtype="same")
    def twice_over(xp: Any, x: Any) -> Any:  # no other test has made its kernels
        return x + x

    x = np.array(elements((12, 9, 17, 10)))
    turned = [axes for axes in itertools.permutations(range(4)) if axes[-1] != 3]
    for run in RUNS:
        del classes[:]
        for axes in turned:
            run(lambda x, axes=axes: twice_over(x.transpose(axes)))(x).wait_to_read()
        assert classes
        assert all(each == [ACROSS, CONTIGUOUS] for each in classes)
    del classes[:]
    twice_over(x.transpose(0, 2, 1, 3)).wait_to_read()  # contiguous along the last loop
    twice_over(x[:, :, :3].transpose(3, 0, 1, 2)).wait_to_read()  # rows of three
    assert classes == [[CONTIGUOUS, CONTIGUOUS], [STRIDED, CONTIGUOUS]]


AGAINST_RESULTS: dict[str, Callable[..., Any]] = {
    "softmax": lambda x, y: npx.softmax(x, axis=-1),
    "softmax of columns": lambda x, y: npx.softmax(x, axis=0),
    "a mean subtracted": lambda x, y: x - x.mean(axis=-1, keepdims=True),
    "running sums": lambda x, y: np.cumsum(x, axis=-1),
    "running products of columns": lambda x, y: np.cumprod(x / 50, axis=0),
    "sums of products": lambda x, y: (x * y).sum(axis=-1),
    "largest difference": lambda x, y: np.abs(x - y).max(axis=0),
}


@pytest.mark.parametrize("name", AGAINST_RESULTS)
def test_reductions_copy_first_what_no_order_of_loops_suits(
    name: str, classes: list[list[int]]
) -> None:
    """In squares, so that results have the bits of a dense array's."""
    function = AGAINST_RESULTS[name]
    x, y = np.array(elements((45, 67))), np.array(elements((67, 45)))
    turned = gemel.compile(lambda x, y: function(x.T, y))(x, y)
    assert [ACROSS, CONTIGUOUS] in classes
    dense = gemel.compile(lambda x, y: function(x, y))(x.T.copy(), y)
    assert turned.tolist() == dense.tolist()


def test_layouts_that_lie_across() -> None:
    assert Layout((3, 5), (1, 3)).lies_across
    assert Layout((3, 5, 1), (1, 3, 7)).lies_across
    assert Layout((2, 4, 3, 3), (36, 1, 12, 4)).lies_across  # images with channels last
    assert not Layout((3, 5), (5, 1)).lies_across
    assert not Layout((1, 5), (1, 3)).lies_across  # along one axis only
    assert not Layout((3, 5), (1, 0)).lies_across  # repeated
    assert not Layout((3, 5), (1, 2)).lies_across  # windows that overlap
    assert not Layout((3, 5), (2, 6)).lies_across  # no lines at all
    assert not Layout((), ()).lies_across


def test_loops_without_gaps_are_joined_in_any_order() -> None:
    rows, lines, planes = (6, [7, 0]), (7, [1, 0]), (5, [42, 0])
    assert joined([lines, planes, rows]) == joined([rows, lines, planes]) == [(210, [1, 0])]
    assert joined([rows, (3, [1, 0]), planes]) == [(3, [1, 0]), (30, [7, 0])]
    assert joined([rows, (7, [1, 1])]) == [rows, (7, [1, 1])]
    other = (4, [1000, 0])
    assert joined([planes, lines, other]) == [planes, lines, other]
    assert merged([other, planes, rows, lines]) == [other, (210, [1, 0])]
    assert joined([other, lines, rows]) == [other, (42, [1, 0])]
