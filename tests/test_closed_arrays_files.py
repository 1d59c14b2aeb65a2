"""Files of programs that compute with arrays they close over, and write to the results in place."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy
import pytest

import gemel
from gemel import gluon, np, npx
from gemel.errors import ExportError
from gemel.gluon import nn


def saved(thing: Any, folder: Path) -> Any:
    path = folder / "model.gemel"
    gemel.save(thing, path)
    return gemel.load(path)


#: An array that the functions below close over.
OUTSIDE = np.array([[2.0, -1.0, 0.5], [3.0, 4.0, -2.0], [1.0, 0.0, 5.0]])


def _minus_an_argument(x: Any) -> Any:
    y = OUTSIDE * 2
    y -= x
    return y


def _of_one_dtype(x: Any) -> Any:
    y = OUTSIDE.astype("float64")
    y += x
    return y


def _of_a_product(x: Any) -> Any:
    y = OUTSIDE @ OUTSIDE
    y *= x
    return y


def _a_row(x: Any) -> Any:
    y = OUTSIDE * 2
    y[0] = x[0]
    return y


def _a_number(x: Any) -> Any:
    y = OUTSIDE * 2
    y[0] = 7
    return y + x


def _a_diagonal(x: Any) -> Any:
    y = OUTSIDE * 2
    np.fill_diagonal(y, 3)
    return y + x


def _a_diagonal_of_an_argument(x: Any) -> Any:
    y = OUTSIDE * 2
    np.fill_diagonal(y, x[0, 0])
    return y + x


def _sorted(x: Any) -> Any:
    y = np.sort(OUTSIDE * 1)
    y += x
    return y


def _made_inside(x: Any) -> Any:
    y = np.array([1.0, -2.0, 3.0])
    y += x[0]
    return npx.relu(y) * np.arange(3)


def _in_rounds(x: Any) -> Any:
    def step(row: Any, state: Any) -> Any:
        mine = OUTSIDE[1] * 2
        mine += row
        return mine + state, state + OUTSIDE[0] * 3

    return npx.foreach(step, OUTSIDE, x[0])[0]


def _while(x: Any) -> Any:
    step = lambda i, held: (held * 2, [i + 1, held * 0.5 + x])  # noqa: E731
    return npx.while_loop(lambda i, held: i < 4, step, [np.array(0.0), OUTSIDE], 5)[0]


def _unwritten(x: Any) -> Any:
    return np.linalg.inv(OUTSIDE) * 2 + x


OF_OUTSIDE = [
    _minus_an_argument,
    _of_one_dtype,
    _of_a_product,
    _a_row,
    _a_number,
    _a_diagonal,
    _a_diagonal_of_an_argument,
    _sorted,
    _made_inside,
    _in_rounds,
    _while,
    _unwritten,
]
#: Those that write something MXNet has no operation for.
BEYOND_MXNET = _a_row, _a_diagonal_of_an_argument


@pytest.mark.parametrize("function", OF_OUTSIDE)
@pytest.mark.parametrize("way", ["saved", "exported"])
def test_results_of_closed_over_arrays_are_written_to(
    function: Any, way: str, tmp_path: Path
) -> None:
    x = np.array([[1.0, -2.0, 0.5], [-1.0, 0.25, 2.0], [4.0, 1.5, 3.0]])
    net = nn.HybridLambda(function)
    net.hybridize()
    wanted, before = net(x), OUTSIDE.asnumpy().copy()
    if way == "saved":
        found = saved(net, tmp_path)(x)
    elif function in BEYOND_MXNET:
        with pytest.raises(ExportError, match="MXNet has no operation"):
            net.export(tmp_path / "net")
        return
    else:
        files = net.export(tmp_path / "net")
        found = gluon.SymbolBlock.imports(files[0], ["data"], files[1])(x)
    numpy.testing.assert_allclose(found.asnumpy(), wanted.asnumpy(), rtol=1e-5)
    assert (OUTSIDE.asnumpy() == before).all()


@pytest.mark.parametrize("way", ["save", "export"])
def test_writing_to_a_closed_over_array_is_refused(way: str, tmp_path: Path) -> None:
    count = np.zeros(3)

    def counted(x: Any) -> Any:
        nonlocal count
        count += 1
        return x * count

    net = nn.HybridLambda(counted)
    net.hybridize()
    net(np.ones((2, 3)))
    with pytest.raises(ExportError, match="forward overwrites an array that it closes over"):
        gemel.save(net, tmp_path / "net") if way == "save" else net.export(tmp_path / "net")
    assert count.tolist() == [1, 1, 1]


def test_closed_over_arrays_of_another_device(tmp_path: Path) -> None:
    table = np.arange(3.0).to_device(gemel.cpu(1))
    program = gemel.compile(lambda x: x + table.to_device(x.device) * 2)
    program(np.ones((2, 3)))
    assert saved(program, tmp_path)(np.ones((2, 3))).tolist() == [[1, 3, 5]] * 2
