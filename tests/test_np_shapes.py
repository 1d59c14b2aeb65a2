"""Functions of `np` that turn, join, select and sort: imperative = compiled = NumPy; gradients.

Each program is written once and called with NumPy and with gemel's `np`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy
import pytest
from numpy_twins import Cases, alike, check_gradients, listed, same

import gemel
from gemel import autograd, np, npx
from gemel.errors import AxisError, DTypeError, ShapeError, TraceError, UnknownNameError


def numbers(*shape: int) -> Any:
    """Distinct float64 numbers in shuffled order."""
    size = int(numpy.prod(shape))
    found = numpy.random.default_rng(size).permutation(size) * 0.75 - size / 3
    return found.reshape(shape)


X, Y, Z = numbers(3, 4), numbers(2, 3, 4), numbers(5)
WHOLE = numpy.array([[3, 0, 2, 3], [1, 1, 0, 2]])

#: Rearrangements, run on float64 arrays (with gradients) and on integers.
ARRANGED: Cases = {
    "flip": (lambda np, x: np.flip(x), (Y,)),
    "flip axis": (lambda np, x: np.flip(x, 1), (Y,)),
    "flip axes": (lambda np, x: np.flip(x, (0, -1)), (Y,)),
    "fliplr": (lambda np, x: np.fliplr(x), (X,)),
    "flipud": (lambda np, x: np.flipud(x), (X,)),
    "rot90": (lambda np, x: [np.rot90(x, k) for k in (-1, 0, 1, 2, 3)], (X,)),
    "rot90 axes": (lambda np, x: np.rot90(x, 1, (2, 1)), (Y,)),
    "roll": (lambda np, x: np.roll(x, 2), (X,)),
    "roll axis": (lambda np, x: np.roll(x, -7, 1), (X,)),
    "roll axes": (lambda np, x: np.roll(x, (1, -2), (0, 1)), (X,)),
    "roll one shift": (lambda np, x: np.roll(x, 1, (0, 1)), (X,)),
    "moveaxis": (lambda np, x: np.moveaxis(x, 0, -1), (Y,)),
    "moveaxis several": (lambda np, x: np.moveaxis(x, (0, 1), (-1, 0)), (Y,)),
    "rollaxis": (lambda np, x: [np.rollaxis(x, a, s) for a in (0, 2) for s in (0, 1, 3)], (Y,)),
    "permute_dims": (lambda np, x: np.permute_dims(x, (1, 2, 0)), (Y,)),
    "matrix_transpose": (lambda np, x: np.matrix_transpose(x), (Y,)),
    "expand_dims": (lambda np, x: np.expand_dims(x, (0, -1)), (X,)),
    "squeeze": (lambda np, x: np.squeeze(x[None, :, :1], (0, 2)), (X,)),
    "ravel": (lambda np, x: [np.ravel(x), np.ravel(x, "F"), x.ravel()], (Y,)),
    "reshape": (lambda np, x: np.reshape(x, (4, -1)), (X,)),
    "reshape in columns": (lambda np, x: np.reshape(x, (4, 6), order="F"), (Y,)),
    "reshape method": (lambda np, x: x.reshape(6, 4, order="F"), (Y,)),
    "repeat": (lambda np, x: np.repeat(x, 3), (X,)),
    "repeat axis": (lambda np, x: np.repeat(x, 2, axis=1), (Y,)),
    "repeat unevenly": (lambda np, x: np.repeat(x, [2, 0, 3], axis=0), (X,)),
    "repeat method": (lambda np, x: x.repeat(2, 0), (X,)),
    "tile": (lambda np, x: np.tile(x, 2), (X,)),
    "tile axes": (lambda np, x: np.tile(x, (2, 1, 3)), (X,)),
    "tile fewer": (lambda np, x: np.tile(x, (3, 2)), (Y,)),
    "resize": (lambda np, x: [np.resize(x, (4, 7)), np.resize(x, 5)], (X,)),
    "pad": (lambda np, x: np.pad(x, 1), (X,)),
    "pad sides": (lambda np, x: np.pad(x, (2, 1), constant_values=3), (X,)),
    "pad values": (
        lambda np, x: np.pad(x, ((1, 0), (2, 3)), constant_values=((5, 6), (7, 8))), (X,)
    ),
    "pad edge": (lambda np, x: np.pad(x, ((0, 2), (3, 1)), mode="edge"), (X,)),
    "pad reflect": (lambda np, x: np.pad(x, ((1, 2), (5, 9)), mode="reflect"), (X,)),
    "pad symmetric": (lambda np, x: np.pad(x, ((1, 2), (5, 9)), mode="symmetric"), (X,)),
    "pad wrap": (lambda np, x: np.pad(x, ((1, 2), (5, 9)), mode="wrap"), (X,)),
    "pad one element": (lambda np, x: np.pad(x[:1], ((2, 3), (0, 0)), mode="reflect"), (X,)),
    "pad maximum": (lambda np, x: np.pad(x, 2, mode="maximum"), (X,)),
    "pad minimum": (lambda np, x: np.pad(x, (0, 2), mode="minimum"), (X,)),
    "atleast": (
        lambda np, x: [np.atleast_1d(x[0, 0]), np.atleast_2d(x[0]), np.atleast_3d(x)], (X,)
    ),
    "atleast several": (lambda np, x, z: np.atleast_3d(x, z), (X, Z)),
    "concat": (lambda np, x, y: np.concat([x, y], axis=1), (X, X[:, :2])),
    "concatenate flat": (lambda np, x, y: np.concatenate([x, y], axis=None), (X, Z)),
    "stack": (lambda np, x, y: np.stack([x, y], axis=-1), (X, -X)),
    "vstack": (lambda np, x, y: np.vstack([x, y]), (X, X[0])),
    "hstack": (lambda np, x, y: np.hstack([x, y]), (X, X[:, :1])),
    "hstack rows": (lambda np, x, y: np.hstack([x, y]), (Z, X[0])),
    "dstack": (lambda np, x, y: np.dstack([x, y]), (X, -X)),
    "column_stack": (lambda np, x, y: np.column_stack([x, y]), (X, X[:, 0])),
    "append": (lambda np, x, y: [np.append(x, y), np.append(x, y, axis=0)], (X, X[:2])),
    "delete": (lambda np, x: [np.delete(x, 1, 0), np.delete(x, [0, -1], 1), np.delete(x, 5)], (X,)),
    "delete slice": (lambda np, x: np.delete(x, slice(None, None, 2), 1), (X,)),
    "insert": (lambda np, x, y: [np.insert(x, 1, y, axis=1), np.insert(x, [1], y[:, None], 1),
                                 np.insert(x, [0, 2], 9.0, axis=0), np.insert(x, -1, 3)],
               (X, X[:, 0])),
    "insert slice": (lambda np, x: np.insert(x, slice(0, 4, 2), 7, axis=1), (X,)),
    "split": (lambda np, x: np.split(x, 2, axis=1), (X,)),
    "array_split": (lambda np, x: np.array_split(x, 3, axis=1), (X,)),
    "array_split at": (lambda np, x: np.array_split(x, [1, 3], axis=1), (X,)),
    "vsplit": (lambda np, x: np.vsplit(x, 3), (X,)),
    "hsplit": (lambda np, x: np.hsplit(x, [1]), (X,)),
    "dsplit": (lambda np, x: np.dsplit(x, 2), (Y,)),
    "unstack": (lambda np, x: np.unstack(x, axis=1), (X,)),
    "broadcast_arrays": (lambda np, x, y: np.broadcast_arrays(x, y), (X, X[:, :1])),
    "meshgrid": (lambda np, x, y: np.meshgrid(x, y), (Z, X[0])),
    "meshgrid ij": (lambda np, x, y, z: np.meshgrid(x, y, z, indexing="ij"), (Z, X[0], X[1, :2])),
    "meshgrid sparse": (lambda np, x, y: np.meshgrid(x, y, sparse=True), (Z, X[0])),
    "tril": (lambda np, x: [np.tril(x), np.tril(x, 1)], (Y,)),
    "triu": (lambda np, x: [np.triu(x), np.triu(x, k=-1)], (Y,)),
    "diag": (lambda np, x: [np.diag(x, k) for k in (-3, -1, 0, 2, 4)], (X,)),
    "diag of a row": (lambda np, x: [np.diag(x), np.diag(x, -2), np.diag(x, 1)], (Z,)),
    "diagflat": (lambda np, x: np.diagflat(x, 1), (X,)),
    "diagonal": (lambda np, x: [np.diagonal(x), x.diagonal(1, 2, 0)], (Y,)),
    "trace": (lambda np, x: [np.trace(x), x.trace(1, 1, 2)], (Y,)),
    "take_along_axis": (
        lambda np, x: np.take_along_axis(x, np.asarray([[3, 0, -1], [1, 1, 2], [0, 0, 0]]), 1), (X,)
    ),
    "take_along_axis repeated": (
        lambda np, x: np.take_along_axis(x, np.asarray([[3, 0]]), axis=1), (X,)
    ),
    "take_along_axis flat": (
        lambda np, x: np.take_along_axis(x, np.asarray([7, 0]), None), (X,)
    ),
    "select": (lambda np, x: np.select([x > 2.1, x > -1.1], [x, x * 2], -5.0), (X,)),
    "choose": (lambda np, x, y: np.choose(np.asarray([0, 1, 1, 0]), [x, y]), (X, X[1] * 3)),
    "choose wrap": (
        lambda np, x: np.choose(np.asarray([-1, 5, 2, 0]), [x, x * 2], mode="wrap"), (X,)
    ),
    "sort": (lambda np, x: [np.sort(x), np.sort(x, 0), np.sort(x, axis=None)], (X,)),
    "partition": (lambda np, x: np.sort(np.partition(x, 2, axis=1)[:, :2], 1), (X,)),
    "interp": (lambda np, x, f: np.interp(x, np.asarray([-3.0, 0.0, 1.0, 2.0, 4.0]), f),
               (X / 3 + 0.1, Z)),
    "interp beside": (
        lambda np, x, f: np.interp(x, np.asarray([-3.0, 0.0, 1.0]), f, left=7.0, right=8.0),
        (X + 0.1, Z[:3]),
    ),
}  # fmt: skip

#: Results are positions or counts, or their shapes depend on values: no gradient.
OTHER: Cases = {
    "indices": (lambda np, x: np.indices((2, 3)), (X,)),
    "indices sparse": (lambda np, x: np.indices((2, 3), sparse=True), (X,)),
    "argsort": (lambda np, x: [np.argsort(x), x.argsort(axis=0), np.argsort(x, axis=None)], (X,)),
    "argsort of equals": (lambda np, x: np.argsort(x, kind="stable"), (WHOLE,)),
    "argpartition": (lambda np, x: np.argpartition(x, 1, axis=1)[:, 1], (X,)),
    "searchsorted": (
        lambda np, x: [np.searchsorted(np.sort(x), x, side) for side in ("left", "right")], (Z,)
    ),
    "searchsorted sorter": (lambda np, x: np.searchsorted(x, x, sorter=np.argsort(x)), (Z,)),
    "digitize": (lambda np, x: np.digitize(x, np.asarray([-2.0, 0.0, 3.0]), right=True), (X,)),
    "digitize falling": (lambda np, x: np.digitize(x, np.asarray([3.0, 0.0, -2.0])), (X,)),
    "isin": (lambda np, x: [np.isin(x, [1, 3]), np.isin(x, [1, 3], invert=True)], (WHOLE,)),
    "histogram": (lambda np, x: np.histogram(x, 4), (X,)),
    "histogram range": (lambda np, x: np.histogram(x, bins=3, range=(-2, 2), density=True), (X,)),
    "histogram edges": (
        lambda np, x, e: np.histogram(x, e, weights=x * x), (X, numpy.array([-9, 0, 1.5]))
    ),
    "unravel_index": (lambda np, x: np.unravel_index(x, (3, 4)), (WHOLE,)),
    "ravel_multi_index": (
        lambda np, x: np.ravel_multi_index((x, x), (3, 2), mode=("clip", "wrap")), (WHOLE,)
    ),
    "broadcast_shapes": (
        lambda np, x: np.ones(np.broadcast_shapes((2, 1), (3,), 1), x.dtype), (X,)
    ),
}  # fmt: skip

DYNAMIC: Cases = {
    "unique": (lambda np, x: np.unique(x), (WHOLE,)),
    "unique and more": (lambda np, x: np.unique(x, True, True, True), (WHOLE,)),
    "unique rows": (lambda np, x: np.unique(x, axis=1, return_counts=True), (WHOLE,)),
    "unique_all": (lambda np, x: np.unique_all(x), (WHOLE,)),
    "unique_counts": (lambda np, x: np.unique_counts(x), (numpy.array([1, numpy.nan, numpy.nan]),)),
    "unique_inverse": (lambda np, x: np.unique_inverse(x), (WHOLE,)),
    "unique_values": (lambda np, x: np.sort(np.unique_values(x)), (WHOLE,)),
    "union1d": (lambda np, x, y: np.union1d(x, y), (WHOLE, numpy.array([5, 1]))),
    "intersect1d": (lambda np, x, y: np.intersect1d(x, y), (WHOLE, numpy.array([5, 1, 3]))),
    "setdiff1d": (lambda np, x, y: np.setdiff1d(x, y), (WHOLE, numpy.array([5, 1]))),
    "setxor1d": (lambda np, x, y: np.setxor1d(x, y), (WHOLE, numpy.array([5, 1]))),
    "bincount": (lambda np, x: np.bincount(x, minlength=6), (WHOLE[0],)),
    "bincount weights": (lambda np, x, w: np.bincount(x, w), (WHOLE[0], X[0])),
    "argwhere": (lambda np, x: np.argwhere(x), (WHOLE,)),
    "nonzero": (lambda np, x: x.nonzero(), (WHOLE,)),
    "flatnonzero": (lambda np, x: np.flatnonzero(x), (WHOLE,)),
    "compress": (lambda np, x: np.compress([True, False, True], x, axis=1), (X,)),
    "extract": (lambda np, x: np.extract(x > 0, x), (X,)),
    "delete mask": (lambda np, x: np.delete(x, np.asarray([True, False, True]), 0), (X,)),
}


EXACT = {**ARRANGED, **OTHER}


@pytest.mark.parametrize("name", EXACT)
def test_imperative_compiled_and_numpy_alike(name: str) -> None:
    alike(*EXACT[name], exact=not name.startswith(("interp", "trace", "histogram")))


@pytest.mark.parametrize("name", DYNAMIC)
def test_what_depends_on_values(name: str) -> None:
    program, arrays = DYNAMIC[name]
    same(program(np, *map(np.array, arrays)), program(numpy, *arrays))


@pytest.mark.parametrize("name", [n for n in ARRANGED if not n.startswith("interp")])
def test_other_dtypes(name: str) -> None:
    """Elements that are only moved keep their dtype."""
    program, arrays = ARRANGED[name]
    for dtype in ("int32", "float32"):
        given = [array.astype(dtype) for array in arrays]
        found, wanted = listed(program(np, *map(np.array, given))), listed(program(numpy, *given))
        for a, b in zip(found, wanted, strict=True):
            assert a.dtype.kind == b.dtype.kind
            numpy.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("name", ARRANGED)
def test_gradients(name: str) -> None:
    check_gradients(*ARRANGED[name])


# --- what NumPy does not have, or otherwise -------------------------------------------------


def test_views_write_through() -> None:
    x = np.zeros((3, 4))
    for view in (
        np.flip(x, 0)[:1, :1], np.rot90(x)[:1, :1], np.diagonal(x)[:1], np.unstack(x)[0],
        np.array_split(x, 2)[0][:1], np.moveaxis(x, 0, 1)[:, :1], np.atleast_3d(x)[0, 0],
    ):  # fmt: skip
        x[...] = 0
        view[...] = 1
        assert x.sum().item() == view.size


def test_written_diagonals_have_gradients() -> None:
    x, d = np.array(X), np.array(Z[:3])
    x.attach_grad()
    d.attach_grad()
    with autograd.record():
        y = x * 1
        np.diagonal(y)[:] = d * 2
        (y * y).sum().backward()
    expected = 2 * X
    numpy.fill_diagonal(expected, 0)
    numpy.testing.assert_allclose(x.grad.asnumpy(), expected)
    numpy.testing.assert_allclose(d.grad.asnumpy(), 8 * Z[:3])


def test_fill_diagonal() -> None:
    for shape in ((3, 3), (4, 2), (2, 2, 2)):
        x, twin = np.zeros(shape), numpy.zeros(shape)
        np.fill_diagonal(x, 5)
        numpy.fill_diagonal(twin, 5)
        numpy.testing.assert_array_equal(x.asnumpy(), twin)


def test_triangle_indices() -> None:
    for n, k, m in ((3, 0, None), (4, -1, 2), (2, 1, 5)):
        same(np.tril_indices(n, k, m), numpy.tril_indices(n, k, m))
        same(np.triu_indices(n, k, m), numpy.triu_indices(n, k, m))
    same(np.diag_indices(3, 3), numpy.diag_indices(3, 3))
    same(np.tril_indices_from(np.array(X), 1), numpy.tril_indices_from(X, 1))
    same(np.triu_indices_from(np.array(X)), numpy.triu_indices_from(X))
    same(np.diag_indices_from(np.ones((2, 2))), numpy.diag_indices_from(numpy.ones((2, 2))))
    with pytest.raises(ShapeError, match="diag_indices_from"):
        np.diag_indices_from(np.ones((2, 3)))


@pytest.mark.parametrize("compiled", [False, True])
def test_put_along_axis(compiled: bool) -> None:
    at = numpy.array([[1, 3], [0, 2], [2, 2]])

    def put(x: Any, v: Any) -> Any:
        y = x * 1
        np.put_along_axis(y, np.array(at), v, 1)
        return y

    run = gemel.compile(put) if compiled else put
    x, v = np.array(X), np.array(X[:, :2] + 100)
    x.attach_grad()
    v.attach_grad()
    with autograd.record():
        y = run(x, v)
        (y * np.array(Y[0])).sum().backward()
    twin = X.copy()
    numpy.put_along_axis(twin, at, X[:, :2] + 100, 1)
    numpy.testing.assert_array_equal(y.asnumpy(), twin)
    stays = numpy.where((at == 2) & (numpy.arange(2) == 0) & (numpy.arange(3)[:, None] == 2), 0, 1)
    numpy.testing.assert_allclose(v.grad.asnumpy(), numpy.take_along_axis(Y[0], at, 1) * stays)
    left = Y[0].copy()
    numpy.put_along_axis(left, at, 0, 1)
    numpy.testing.assert_allclose(x.grad.asnumpy(), left)


def test_put_along_axis_of_the_flattened_array() -> None:
    x, twin = np.array(X), X.copy()
    np.put_along_axis(x, np.array([0, 5]), 9, None)
    numpy.put_along_axis(twin, numpy.array([0, 5]), 9, None)
    numpy.testing.assert_array_equal(x.asnumpy(), twin)


def test_descending_order_is_stable() -> None:
    x = np.array(WHOLE)
    assert np.argsort(x, descending=True).tolist() == [[0, 3, 2, 1], [3, 0, 1, 2]]
    assert np.sort(x, descending=True).tolist() == [[3, 3, 2, 0], [2, 1, 1, 0]]
    strange = np.array([1.0, numpy.nan, -1.0])
    assert np.argsort(strange).tolist() == [2, 0, 1]
    assert np.argsort(strange, descending=True).tolist() == [1, 0, 2]


def test_sorting_in_place() -> None:
    x = np.array(X)
    assert x.sort(axis=0) is None
    numpy.testing.assert_array_equal(x.asnumpy(), numpy.sort(X, 0))

    def program(x: Any) -> Any:
        y = x * 2
        y.sort()
        return y

    numpy.testing.assert_array_equal(
        gemel.compile(program)(np.array(X)).asnumpy(), numpy.sort(X * 2)
    )


@pytest.mark.parametrize("compiled", [False, True])
def test_topk(compiled: bool) -> None:
    order = numpy.argsort(-X, 1)[:, :2]
    x = np.array(X)

    def run(**options: Any) -> Any:
        def call(v: Any) -> Any:
            found = npx.topk(v, 2, **options)
            return tuple(found) if isinstance(found, list) else found

        return (gemel.compile(call) if compiled else call)(x)

    assert run().tolist() == order.tolist() and run().dtype == "int64"
    assert run(dtype="float32").dtype == "float32"
    same(run(ret_typ="value"), numpy.take_along_axis(X, order, 1))
    same(run(ret_typ="both"), (numpy.take_along_axis(X, order, 1), order))
    mask = numpy.zeros_like(X)
    numpy.put_along_axis(mask, order, 1, 1)
    same(run(ret_typ="mask"), mask)
    assert run(is_ascend=True, axis=0).tolist() == numpy.argsort(X, 0)[:2].tolist()
    x.attach_grad()
    with autograd.record():
        y = run(ret_typ="value")
    y.backward()
    numpy.testing.assert_array_equal(x.grad.asnumpy(), mask)


def test_second_gradient_of_sort() -> None:
    x = np.array(Z)
    x.attach_grad()
    with autograd.record():
        (g,) = autograd.grad([(np.sort(x) ** 3 * np.array(X[0, 0])).sum()], [x], create_graph=True)
        total = g.sum()
    total.backward()
    numpy.testing.assert_allclose(x.grad.asnumpy(), 6 * Z * X[0, 0])


def test_free_sizes_in_a_trace() -> None:
    """Another size of the first axis uses the same program."""

    def arranged(x: Any) -> Any:
        y = np.concatenate([np.flip(x, 0), np.roll(x, 1, 1), np.tile(x, (2, 1))])
        y = np.pad(y, ((1, 2), (0, 0)), mode="edge")
        return (
            np.tril(np.repeat(y, 2, axis=0)),
            np.stack(np.array_split(x, 2, 1)),
            np.vstack([x, y]),
        )

    program = gemel.compile(arranged)
    for rows in (3, 5, 8):
        x = np.array(numbers(rows, 4))
        for a, b in zip(program(x), arranged(x), strict=True):
            numpy.testing.assert_array_equal(a.asnumpy(), b.asnumpy())
    assert program.traces == 1


EMPTY = {
    "flip": lambda np, x: np.flip(x),
    "roll": lambda np, x: np.roll(x, 2, 0),
    "repeat": lambda np, x: np.repeat(x, 2, 1),
    "tile": lambda np, x: np.tile(x, (2, 2)),
    "pad": lambda np, x: np.pad(x, 1),
    "sort": lambda np, x: np.sort(x, 1),
    "argsort": lambda np, x: np.argsort(x, 0),
    "tril": lambda np, x: np.tril(x),
    "diagonal": lambda np, x: np.diagonal(x),
    "trace": lambda np, x: np.trace(x),
    "unique": lambda np, x: np.unique(x),
    "insert": lambda np, x: np.insert(x, 0, 5, axis=0),
    "delete": lambda np, x: np.delete(x, [], axis=1),
    "resize": lambda np, x: np.resize(x, (2, 2)),
    "array_split": lambda np, x: np.array_split(x, 2, 1),
    "stack": lambda np, x: np.stack([x, x]),
    "take_along_axis": lambda np, x: np.take_along_axis(x, np.argsort(x, axis=1), 1),
}


@pytest.mark.parametrize("name", EMPTY)
def test_arrays_of_nothing(name: str) -> None:
    x = numpy.zeros((0, 3))
    same(EMPTY[name](np, np.array(x)), EMPTY[name](numpy, x))


def test_reshape_says_when_it_copies() -> None:
    x = np.array(X)
    view = np.reshape(x, (4, 3), copy=False)
    view[0, 0] = 7
    assert x[0, 0].item() == 7
    copied = np.reshape(x, (4, 3), copy=True)
    copied[0, 0] = 8
    assert x[0, 0].item() == 7
    assert np.reshape(x, newshape=12).shape == x.reshape(shape=12).shape == (12,)
    with pytest.raises(ShapeError, match="requires a copy"):
        np.reshape(x.T, (12,), copy=False)
    with pytest.raises(UnknownNameError, match="order of reshape 'Z'"):
        np.reshape(x, 12, order="Z")


def test_python_and_numpy_values_are_taken() -> None:
    assert np.flip([1, 2]).tolist() == [2, 1]
    assert np.sort(numpy.array([2.0, 1.0])).dtype == "float64"
    assert np.stack([1, 2.5]).tolist() == [1, 2.5]
    assert np.append([1], 2).tolist() == [1, 2]
    assert np.vstack([[1, 2], numpy.array([3, 4])]).tolist() == [[1, 2], [3, 4]]
    assert np.tile(3, 2).tolist() == [3, 3]
    assert np.atleast_1d(3).tolist() == [3]
    for number in (2.5, 3, True):
        found = np.transpose(number)
        assert (found.shape, found.item()) == ((), number)
        assert found.dtype.kind == numpy.transpose(number).dtype.kind
    assert np.permute_dims(2.5, ()).item() == 2.5
    assert np.transpose([[1, 2], [3, 4]], (1, 0)).tolist() == [[1, 3], [2, 4]]


def test_numbers_in_lists_are_as_exact_as_what_is_beside_them() -> None:
    x = np.array([-0.7, 0.4], dtype="float64")
    for found in (
        np.stack([x, [0.1, 0.1]]), np.vstack([[0.1, 0.1], x]), np.hstack([x, [0.1]]),
        np.append(x, [0.1]), np.concatenate([x, [0.1]], axis=None), np.insert(x, 0, [0.1]),
        np.column_stack([x, [0.1, 0.1]]), np.interp([0.0], [-1.0, 1.0], x * 0 + [0.1, 0.1]),
        np.union1d(x, [0.1]), np.broadcast_arrays(x, [0.1])[1],
    ):  # fmt: skip
        assert found.dtype == "float64" and 0.1 in found
    assert np.isin(x * 0 + 0.1, [0.1]).all()


BAD: list[tuple[Callable[[Any], Any], type[Exception], str]] = [
    (lambda x: np.flip(x, 2), ShapeError, "flip: axis 2"),
    (lambda x: np.flip(x, (0, 0)), ShapeError, "names an axis twice"),
    (lambda x: np.rot90(x, 1, (1, 1)), ShapeError, "rot90"),
    (lambda x: np.roll(x, (1, 2, 3), (0, 1)), ShapeError, "roll: 3 shifts do not fit 2 axes"),
    (lambda x: np.moveaxis(x, (0, 1), 0), ShapeError, "moveaxis"),
    (lambda x: np.matrix_transpose(x[0]), ShapeError, "matrix_transpose"),
    (lambda x: np.transpose(2.0, (0,)), AxisError, "transpose: axis 0"),
    (lambda x: np.transpose("rows"), TypeError, "'rows' is not an array"),
    (lambda x: np.repeat(x, -1), ShapeError, "repeat: -1"),
    (lambda x: np.repeat(x, [1, 2], 0), ShapeError, "repeat: 2 repetition counts"),
    (lambda x: np.tile(x, -1), ShapeError, "tile"),
    (lambda x: np.pad(x, ((1, 2, 3),)), ShapeError, "pad: pad_width"),
    (lambda x: np.pad(x, -1), ShapeError, "at least 0"),
    (lambda x: np.pad(x, 1, "edges"), UnknownNameError, "did you mean 'edge'"),
    (lambda x: np.pad(x[:0], 1, "edge"), ShapeError, "is empty"),
    (lambda x: np.vsplit(x[0], 2), ShapeError, "vsplit"),
    (lambda x: np.array_split(x, 0), ShapeError, "array_split: 0"),
    (lambda x: np.broadcast_arrays(x, x[:, :2]), ShapeError, "broadcast_arrays"),
    (lambda x: np.meshgrid(x, indexing="yx"), UnknownNameError, "known: ij, xy"),
    (lambda x: np.diag(np.zeros((2, 2, 2))), ShapeError, "diag"),
    (lambda x: np.trace(x[0]), ShapeError, "a matrix has two"),
    (lambda x: np.tril(x[0, 0]), ShapeError, "tril"),
    (lambda x: np.take_along_axis(x, x, 1), DTypeError, "must be integers"),
    (lambda x: np.take_along_axis(x, np.array([1]), 1), ShapeError, "take_along_axis"),
    (lambda x: np.choose(np.array([0]), [x], mode="up"), UnknownNameError, "mode 'up'"),
    (lambda x: np.select([x > 0], [x, x]), ShapeError, "select: 1 conditions and 2 choices"),
    (lambda x: np.sort(x, 2), ShapeError, "sort: axis 2"),
    (lambda x: np.sort(x, kind="fast"), UnknownNameError, "kind of sort"),
    (lambda x: np.partition(x, 4), ShapeError, "has no element 4"),
    (lambda x: npx.topk(x, 5), ShapeError, "topk"),
    (lambda x: npx.topk(x, 1, ret_typ="values"), UnknownNameError, "did you mean 'value'"),
    (lambda x: np.searchsorted(x, x), ShapeError, "searchsorted"),
    (lambda x: np.interp(x, x, x), ShapeError, "interp"),
    (lambda x: np.histogram(x, 0), ShapeError, "histogram"),
    (lambda x: np.stack([]), ShapeError, "stack: needs at least one"),
    (lambda x: np.insert(x, 9, 1, axis=0), IndexError, "out of bounds"),
    (lambda x: np.delete(x, 9, axis=0), IndexError, "out of bounds"),
    (lambda x: gemel.compile(np.unique)(x), TraceError, "unique"),
]


@pytest.mark.parametrize(("call", "kind", "message"), BAD, ids=lambda v: getattr(v, "__name__", v))
def test_errors_at_the_call(call: Any, kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match=message):
        call(np.array(X))


def test_an_axis_that_is_not_there_is_an_index_error_too() -> None:
    for call in (np.flip, np.sort, np.expand_dims, np.squeeze, np.unstack, np.unique):
        for kind in (IndexError, ValueError, AxisError):
            with pytest.raises(kind, match="axis 5 is out of range"):
                call(np.array(X), axis=5)


def test_an_axis_is_a_whole_number() -> None:
    for call in (np.flip, np.sort, np.sum, np.cumsum, np.squeeze, np.unstack):
        for axis in (1.0, "a"):
            with pytest.raises(TypeError, match=r"axis .* must be a whole number"):
                call(np.array(X), axis=axis)


def test_errors_at_the_wait() -> None:
    x = np.array(X)
    for call, kind in (
        (lambda: np.take_along_axis(x, np.array([[4], [0], [0]]), 1), IndexError),
        (lambda: np.choose(np.array([2]), [x, x]), IndexError),
        (lambda: np.choose(np.array([-1], "int8"), [x, x]), IndexError),
        (lambda: np.unravel_index(np.array([12]), (3, 4))[0], ValueError),
        (lambda: np.ravel_multi_index((np.array([3]), np.array([0])), (3, 4)), ValueError),
        (lambda: np.digitize(x, np.array([0.0, 2.0, 1.0])), ValueError),
    ):
        found = call()
        with pytest.raises(kind):
            found.wait_to_read()


@pytest.mark.parametrize("row", [numpy.array, np.array, range])
def test_shapes_and_axes_in_rows_of_numbers(row: Callable[..., Any]) -> None:
    shape, axes = (range(2, 4), range(2)) if row is range else (row([2, 3]), row([1, 0]))
    for x in (np.arange(6), gemel.nd.arange(6)):
        assert x.reshape(shape).shape == (2, 3)
        assert x.reshape((2, 3)).transpose(axes).shape == ((2, 3) if row is range else (3, 2))
    with pytest.raises(ShapeError, match="whole numbers"):
        np.arange(6).reshape(numpy.array([2.0, 3.0]))
    double = gemel.compile(lambda x: x.reshape(numpy.array([-1, 2])) * 2)
    assert double(np.arange(6)).shape == (3, 2)
