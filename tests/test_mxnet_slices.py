"""Slices in MXNet's files are right for any size of an axis, not only for those seen."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy
import pytest

from gemel import np
from gemel.errors import ExportError, ExportWarning
from gemel.gluon import SymbolBlock, nn


def exported(function: Callable[[Any], Any], folder: Path, shape: tuple[int, ...]) -> Any:
    net = nn.HybridLambda(function)
    net.hybridize()
    net(np.ones(shape))
    symbol, parameters = net.export(folder / "net")
    return SymbolBlock.imports(symbol, ["data"], parameters)


def numbered(*shape: int) -> Any:
    return np.arange(float(numpy.prod(shape))).reshape(shape)


PLACES = numpy.array([2, 0, 1])


def of_a_view(x: Any) -> Any:
    y = x * 1
    part = y[:-2]
    y *= 3
    return part * 1


#: Functions whose slices depend on the number of rows.
FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    ":-2": lambda x: x[:-2] * 1,
    "-3:-1": lambda x: x[-3:-1] * 1,
    "-2:": lambda x: x[-2:] * 1,
    "1:": lambda x: x[1:] * 1,
    "1:-1": lambda x: x[1:-1] * 1,
    "1::3": lambda x: x[1::3] * 1,
    "-4:3": lambda x: x[-4:3] * 1,
    "-1:-3:-1": lambda x: x[-1:-3:-1] * 1,
    "-2::-1": lambda x: x[-2::-1] * 1,
    "-2::-2": lambda x: x[-2::-2] * 1,
    "1::-1": lambda x: x[1::-1] * 1,
    "2:0:-1": lambda x: x[2:0:-1] * 1,
    ":-5:-1": lambda x: x[:-5:-1] * 1,
    "after others": lambda x: x[1:][:-2] * 1,
    "last axes": lambda x: x[:-2, ..., -2::-1] * 1,
    "beside positions": lambda x: x[:-2, :, PLACES] * 1,
    "of what is written": of_a_view,
    "n - 2": lambda x: x[: x.shape[0] - 2] * 1,
    "as many as columns": lambda x: x[: x.shape[1]] * 1,
    "3:n": lambda x: x[3 : x.shape[0]] * 1,
    "n:2:-1": lambda x: x[x.shape[0] : 2 : -1] * 1,
    "1:n + 1": lambda x: x[1 : x.shape[0] + 1] * 1,
    "n:": lambda x: x[x.shape[0] :] * 1,
    ":n:-1": lambda x: x[: x.shape[0] : -1] * 1,
    "-2:, 0": lambda x: x[-2:, 0] * 1,
    "0:3:2, 0": lambda x: x[0:3:2, 0] * 1,
    ":5, -1": lambda x: x[:5, -1] * 1,
    "-3:, 1, 2": lambda x: x[-3:, 1, 2] * 1,
    ":-2, None": lambda x: x[:-2, None] * 1,
    "-2:, None": lambda x: x[-2:, None] * 1,
    "2::3, None": lambda x: x[2::3, None] * 1,
    "None, 1:3:-1": lambda x: x[None, 1:3:-1] * 1,
    "0, :0": lambda x: x[..., 0, :0] * 1,
    "None, -2:, None, 0, ..., None": lambda x: x[None, -2:, None, 0, ..., None] * 1,
    "beside positions and None": lambda x: x[-2:, None, PLACES % 2] * 1,
    "two arrays of positions": lambda x: x[-2:, PLACES % 2, PLACES],
    "last of a slice": lambda x: (x[:3] * 1)[-1:] * 2,
    "a slice joined": lambda x: x[-3:].reshape(x[-3:].shape[0], 6) * 1,
    "sum of a slice": lambda x: x[-3:].sum(axis=0) + x[:2].sum(axis=0),
    "beside an integer and positions": lambda x: x[-2:, 0, PLACES] * 1,
}


@pytest.mark.parametrize("seen", [1, 2, 3, 6])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_any_number_of_rows(name: str, seen: int, tmp_path: Path) -> None:
    function = FUNCTIONS[name]
    if name == "n - 2" and seen == 1:
        pytest.skip("the trace of one example has no size to slice by")
    with warnings.catch_warnings():
        warnings.simplefilter("error", ExportWarning)
        if name == "as many as columns":  # for any number of rows, but for these columns only
            warnings.filterwarnings("ignore", r".* only where data\.shape\[1\] == 2;")
        found = exported(function, tmp_path, (seen, 2, 3))
    for rows in range(8):
        x = numbered(rows, 2, 3)
        wanted = function(x)
        assert found(x).shape == wanted.shape, f"{rows} rows"
        assert (found(x) == wanted).all()


def test_a_backward_slice_of_an_axis_of_one(tmp_path: Path) -> None:
    found = exported(lambda x: x[:, -2::-1] * 1, tmp_path, (4, 1))
    assert found(np.ones((4, 1))).shape == (4, 0)


@pytest.mark.parametrize(
    "function",
    [lambda x: x[: x.shape[0] - 3] * 1, lambda x: x[x.shape[0] - 3 :: -1] * 1],
    ids=["forward", "backward"],
)
def test_a_place_that_counts_from_the_other_end_for_few_rows(
    function: Callable[[Any], Any], tmp_path: Path
) -> None:
    """`n - 3` is -1 for two rows: the last one. Files cannot say so."""
    with pytest.warns(ExportWarning, match=r"where 0 <= data\.shape\[0\] - 3, and"):
        found = exported(function, tmp_path, (4, 2))
    for rows in range(3, 8):
        assert (found(numbered(rows, 2)) == function(numbered(rows, 2))).all()


def test_the_last_row_of_a_slice(tmp_path: Path) -> None:
    found = exported(lambda x: (x[:3] * 1)[-1], tmp_path, (6, 2))
    for rows in range(1, 8):
        x = numbered(rows, 2)
        assert (found(x) == x[:3][-1]).all()


@pytest.mark.parametrize("seen", [2, 6])
@pytest.mark.parametrize(
    "function",
    [
        lambda x: x[2 : x.shape[0] // 2] * 1,
        lambda x: x[-3:].sum(axis=0) / x[-3:].shape[0],
        lambda x: np.arange(x[:3].shape[0]) * 1.0,
    ],
    ids=["n // 2", "number", "arange"],
)
def test_sizes_that_no_file_can_say(
    function: Callable[[Any], Any], seen: int, tmp_path: Path
) -> None:
    with pytest.raises(ExportError, match="depends on the batch size"):
        exported(function, tmp_path, (seen, 2))


def test_a_slice_whose_rows_are_counted(tmp_path: Path) -> None:
    with pytest.warns(ExportWarning, match=r"minimum\(3, data\.shape\[0\]\) == 3"):
        exported(lambda x: x * len(x[:3]), tmp_path, (6, 2))
