"""ONNX files of what is composed of other operations, of choices and of loops; also for other sizes
than those seen."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy
import pytest
from test_onnx_export import check, onnx

import gemel
from gemel import np, npx
from gemel.scripting import script

DRAWS = numpy.random.default_rng(11)


def of(dtype: str, *shape: int) -> Any:
    """Whole numbers with many equal ones, and a NaN in each column of floats."""
    values = DRAWS.integers(0 if dtype[0] in "ub" else -9, 10, shape)
    found = np.array(values, dtype="bool" if dtype == "bool" else dtype)
    if found.dtype.name.startswith("float") and len(shape) > 1:
        found[1] = float("nan")
    return found


def sizes(dtype: str, other: str = "", row: bool = False) -> list[tuple[Any, ...]]:
    """Inputs of two sizes."""
    found = [(of(dtype, rows, 4), of(other or dtype, rows, 4)) for rows in (3, 5)]
    return [(x[0], y) for x, y in found] if row else found


#: Functions of two arrays, and the inputs that they are exported with and called on.
CASES: dict[str, tuple[Callable[..., Any], list[tuple[Any, ...]]]] = {}


def ordered(x: Any) -> Any:
    return np.sort(x.reshape(-1))


def searched(a: Any, v: Any) -> list[Any]:
    found = [np.searchsorted(ordered(a), v, side=side) for side in ("left", "right")]
    return [*found, np.searchsorted(a[:0, 0], v)]


def in_bins(a: Any, v: Any) -> list[Any]:
    edges = np.unwrap(np.arange(4.0))
    found = [np.digitize(v, each, right=r) for r in (False, True) for each in (edges, edges[::-1])]
    return [*found, np.digitize(v, edges[:0])]


def inside(a: Any, v: Any) -> list[Any]:
    return [np.isin(a, v), np.isin(a, [1, 2], invert=True), np.isin(a, v[:0])]


def parted(a: Any, v: Any) -> list[Any]:
    return [np.partition(a, 1, axis=0)[1], np.take_along_axis(a, np.argpartition(a, 2), 1)[:, 2]]


def largest(a: Any, v: Any) -> list[Any]:
    a = a[:, :] * 1
    return [f(a, axis=axis) for f in (np.nanargmax, np.nanargmin) for axis in (0, None)]


def so_far(a: Any, v: Any) -> list[Any]:
    found = [f.accumulate(a, axis=1) for f in (np.maximum, np.minimum)]
    return [*found, np.cumprod(a, axis=0), np.cumprod(a[: a.shape[0] // 2], axis=0)]


def bits(a: Any, v: Any) -> list[Any]:
    functions = np.bitwise_or, np.bitwise_and, np.bitwise_xor, np.logical_xor
    found = [f.reduce(a, axis=axis) for f in functions for axis in (0, (0, 1), None)]
    return [
        *found,
        np.bitwise_xor.accumulate(a, axis=1),
        np.bitwise_or.reduce(a[:0], keepdims=True),
    ]


def divisors(a: Any, v: Any) -> list[Any]:
    return [np.gcd(a, v), np.gcd(a, 6), np.lcm(a, v), np.gcd(a[:0], v[:0]), np.bitwise_count(a)]


def positions(a: Any, v: Any) -> list[Any]:
    a = np.abs(a)
    found = [place for order in "CF" for place in np.unravel_index(a, (2, 3, 5), order=order)]
    for mode in "clip", "wrap", ("wrap", "clip"):
        found += [np.ravel_multi_index((a, a * 2), (3, 4), mode=mode, order=o) for o in "CF"]
    return [*found, np.ravel_multi_index((a, a), (10, 10))]


def counts(a: Any, v: Any) -> list[Any]:
    a, found = np.nan_to_num(a), []
    for bins in 5, np.array([-3.0, 0.0, 0.5, 4.0]):
        found += [*np.histogram(a, bins), np.histogram(a, bins, density=True)[0]]
    return [*found, *np.histogram(a, 4, (-2, 2)), np.histogram(a * 0, 3)[0]]


def written(a: Any, v: Any) -> list[Any]:
    """Writes at positions, some of which are the same: the last counts, in the order of the key."""
    i, found = npx.topk(a[:, 0] * 0 + v[:, 1] * 0, k=2, dtype="int64"), []
    rows = np.concatenate([i, i[:1], i[:1] - a.shape[0]])
    table = np.expand_dims(rows, 1), np.expand_dims(np.concatenate([i, i[:1] - 2]), 0)
    for key, value in (
        (rows, v[:1]),
        (rows, 3),
        ((slice(None), np.array([1, -1, 1])), v[:, 1:]),
        (table, v[0, :3]),
        (table, np.expand_dims(v[0], 1)),
        ((table[0], None, 2), v[0, 0]),
    ):
        found.append(a * 1)
        found[-1][key] = value
    return [*found, npx.index_update(a, np.stack([i, i + 1]), v[:2, 0])]


def chosen(a: Any, v: Any) -> list[Any]:
    """Choices, one in another, of what has other sizes."""
    inner = npx.cond(v.sum() > 0, lambda: a[:-2] * a.shape[0], lambda: -a[:-2])
    outer = npx.cond(
        a.sum() > 0,
        lambda x, y: [npx.cond(x.max() > 5, lambda: npx.softmax(y), lambda: y + 1), x.sum()],
        lambda x, y: [x, y.mean()],
        [a, v],
    )
    return [inner, *outer, npx.cond(a[:1, 0] > 0, lambda: a, lambda: np.zeros(a.shape))]


@script
def repeated(a: Any, v: Any) -> Any:
    """A loop as long as values say, with a choice in it."""
    total, i = a * 0, v[0, 0] * 0
    while i < 5:
        if total.sum() > 10:
            total = total - a
        else:
            total = total + a * i
        i = i + 1
    return total, i


for _kind in "float32", "float64", "int32", "int64", "uint8":
    for _function in searched, inside, parted, so_far, counts, written:
        CASES[f"{_function.__name__} {_kind}"] = _function, sizes(_kind)
    CASES[f"in_bins {_kind}"] = in_bins, sizes(_kind)
    if _kind[0] == "f":
        CASES[f"largest {_kind}"] = largest, sizes(_kind)
    else:
        for _function in bits, divisors, positions:
            CASES[f"{_function.__name__} {_kind}"] = _function, sizes(_kind)
CASES["searched mixed"] = searched, sizes("int32", "float32")
CASES["divisors mixed"] = divisors, sizes("int8", "uint8")
whole = [tuple(x.astype("float32") for x in given) for given in sizes("int32")]
CASES["chosen"] = chosen, [(a + n, v - n) for n in (0, 9, -9) for a, v in whole]
CASES["repeated"] = repeated, [(a + n, v) for n in (0, 9, -9) for a, v in whole]
CASES["logaddexp"] = lambda a, v: np.logaddexp.accumulate(a * 0.5, axis=1), sizes("int32")
CASES["ldexp"] = lambda a, v: [np.ldexp(a, v), np.ldexp(a, -140)], sizes("float32", "int32")
CASES["ldexp of a bool"] = lambda v, a: np.ldexp(True, v) + a, sizes("int32")
CASES["half"] = lambda a, v: np.cumprod(a, axis=1), sizes("float16")
CASES["interp"] = lambda a, v: np.interp(a, [0.0, 1.0, 2.0], [0.0, 5.0, 6.0]), sizes("float32")
CASES["convolve"] = lambda a, v: np.convolve(a[:, 0], np.array([1.0, 2.0, 3.0])), sizes("int32")
CASES["constants"] = (
    lambda a, v: a * np.kaiser(4, 3.0) + np.linalg.inv(np.eye(4) * 2),
    [(x[:4], y) for x, y in sizes("int32")[1:]],
)


@pytest.mark.filterwarnings("ignore::RuntimeWarning", "ignore::gemel.errors.ExportWarning")
@pytest.mark.parametrize("name", CASES)
def test_compositions(name: str, tmp_path: Path) -> None:
    function, inputs = CASES[name]
    program = gemel.compile(function)
    program(*inputs[0])
    path = gemel.onnx.export(program, tmp_path / "f.onnx")
    tolerance = 2e-3 if name == "half" else 2e-5
    for given in inputs:
        used = {x.name for x in onnx.load(path).graph.input}
        assert len(used) == len(given)
        check(path, program, *given, tolerance=tolerance)
