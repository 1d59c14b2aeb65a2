"""Sizes that programs compute with, in ONNX files: right for all sizes that the file takes."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy
import pytest
from onnx_networks import drawn, prepared, stacked
from test_onnx_export import check, onnx

import gemel
from gemel import np, npx
from gemel.errors import ExportError, ExportWarning, ShapeError
from gemel.gluon import nn

POSITIONS = np.array([7, -9, 1], dtype="int32")
ENDS = np.array([0, -1])
#: Functions that use sizes as numbers. The file has all their sizes free.
FREE: dict[str, Callable[[Any], Any]] = {
    "divided": lambda x: x / x.shape[0],
    "inverse": lambda x: x.shape[0] / (x * x + 1),
    "multiplied": lambda x: x * x.shape[1],
    "added": lambda x: x + x.size,
    "maximum": lambda x: np.maximum(x, x.shape[0]),
    "where": lambda x: np.where(x > x.shape[0], x, x.shape[1]),
    "power": lambda x: x ** x.shape[0],
    "one less": lambda x: x.sum(axis=0) / (x.shape[0] - 9),
    "quotients": lambda x: x + x.shape[0] // 2 - x.shape[0] % 3,
    "negative quotients": lambda x: x * ((1 - x.shape[0]) // 2),
    "quotients by negatives": lambda x: x * (x.shape[0] // (1 - 2 * x.shape[1])) + 7 // -x.size,
    "square root": lambda x: (x @ x.T) / np.sqrt(x.shape[-1]),
    "sample variance": lambda x: np.concatenate([x, x + 1]).var(axis=0, ddof=1),
    "points": lambda x: [
        x[ENDS, ENDS[::-1]],
        x[None, ENDS, 0],
        (x @ x.T)[..., ENDS[:, None], ENDS.astype("int8")],
        np.stack([x, x])[np.array([1, 0]), :, ENDS],
    ],
    "a diagonal": lambda x: np.tril(x @ x.T, k=x.shape[0] - 3),
    "array": lambda x: x.sum() + np.full((2,), x.shape[0]),
    "padding by edges": lambda x: np.pad(x, 1, mode="edge"),
    "padding by reflection": lambda x: np.pad(x, 2, mode="reflect"),
    "padding by point reflection": lambda x: np.pad(x, 2, mode="reflect", reflect_type="odd"),
    "larger pictures": lambda x: npx.upsampling(x[None, None], 3),
    "larger smooth pictures": lambda x: npx.upsampling(x[None, None], 2, "bilinear"),
    "limits": lambda x: (
        np.clip(x * 9, 0, x.shape[0]),
        *(np.clip((x * 9).astype(kind), 0, x.shape[0]) for kind in ("int32", "int64", "int8")),
        np.clip((x * 9).astype("int32"), -1, np.arange(x.shape[1])),
        np.clip((x * 9).astype("uint8"), 1, 3),
    ),
    "integers": lambda x: (
        x.astype("int32") // x.shape[0],
        x.astype("int64") % x.shape[1],
        x.astype("int8") * x.shape[0],
        x.astype("float16") / x.shape[0],
    ),
}


@pytest.mark.parametrize("seen", [1, 3])
@pytest.mark.parametrize("name", FREE)
def test_sizes_as_numbers(name: str, seen: int, tmp_path: Path) -> None:
    others = [[shape] for shape in ((1, 4), (2, 4), (3, 4), (3, 2), (6, 5))]
    check_sizes(tmp_path, FREE[name], [(seen, 4)], ["data_0", "data_1"], *others)


def test_sizes_as_numbers_beside_a_fixed_one(tmp_path: Path) -> None:
    program = gemel.compile(lambda x: x / x.shape[0] + x.shape[1])
    program(drawn(1, 4))
    path = gemel.onnx.export(program, tmp_path / "f.onnx", dynamic=False)
    assert dims(path) == [1, 4]
    check(path, program, drawn(1, 4))
    path = gemel.onnx.export(program, tmp_path / "f.onnx", dynamic=[(None, 4)])
    assert dims(path) == ["data_0", 4]
    for rows in 1, 2, 5:
        check(path, program, drawn(rows, 4))


#: Functions for which ONNX needs a size as a number, with the sizes in the file.
FIXED: dict[str, tuple[Callable[[Any], Any], list[Any]]] = {
    "an operator's attribute": (
        lambda x: npx.leaky_relu(x, slope=x.shape[1]),
        ["data_0", 4],
    ),
    "clipped positions": (lambda x: np.take(x, POSITIONS, axis=0, mode="clip"), [3, "data_1"]),
    "a float": (lambda x: x * x.shape[0] ** 0.5, [3, "data_1"]),
}


@pytest.mark.parametrize("name", FIXED)
def test_sizes_that_are_numbers_in_the_file_are_fixed(name: str, tmp_path: Path) -> None:
    function, expected = FIXED[name]
    program = gemel.compile(function)
    program(drawn(3, 4))
    with pytest.warns(ExportWarning, match=r"but the file has data\.shape\[\d\] at"):
        path = gemel.onnx.export(program, tmp_path / "f.onnx")
    assert dims(path) == expected
    for rows, columns in (3, 4), (5, 4), (3, 6):
        if all(
            isinstance(n, str) or n == m for n, m in zip(expected, (rows, columns), strict=True)
        ):
            check(path, program, drawn(rows, columns))


#: Functions whose slices have other sizes outside of some range, with the rows seen and the range.
SLICED: dict[str, tuple[Callable[[Any], Any], int, str]] = {
    "as many as are there": (
        lambda x: x[-3:].sum(axis=0) / x[-3:].shape[0],
        6,
        r"not data.shape\[0\] - 3 < 0",
    ),
    "fewer than asked for": (
        lambda x: x[-3:].sum(axis=0) / x[-3:].shape[0],
        2,
        r"where data.shape\[0\] - 3 < 0",
    ),
    "empty for several sizes": (
        lambda x: np.pad(x[1:-3], 1, constant_values=3),
        2,
        r"where data.shape\[0\] - 3 < 0",
    ),
    "in a sample variance": (
        lambda x: x[:4].var(axis=0, ddof=1),
        5,
        r"data.shape\[0\] < 4",
    ),
    "empty where seen": (lambda x: x[2 : x.shape[0]] * 1, 2, r"not 0 < data.shape\[0\] - 2"),
}


@pytest.mark.parametrize("name", SLICED)
def test_sizes_of_slices_that_depend_on_checks(name: str, tmp_path: Path) -> None:
    function, seen, expected = SLICED[name]
    program = gemel.compile(function)
    program(drawn(seen, 4))
    with pytest.warns(ExportWarning, match=expected):
        path = gemel.onnx.export(program, tmp_path / "f.onnx")
    check(path, program, drawn(seen, 4))
    with warnings.catch_warnings():
        warnings.simplefilter("error", ExportWarning)
        path = gemel.onnx.export(program, tmp_path / "f.onnx", dynamic=False)
    check(path, program, drawn(seen, 4))


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x[-1:1].sum(axis=0) / x[-1:1].shape[0],
        lambda x: np.tile(x[-1:1], (2, 1)),
        lambda x: x[1:].reshape(-1) * 2,
    ],
)
def test_slices_of_one_element_that_are_others_for_more(function: Any, tmp_path: Path) -> None:
    """The file was for two elements and more, and not for what the program was called with."""
    program = gemel.compile(function)
    program(drawn(1, 4))
    with pytest.warns(ExportWarning, match=r"but the file has data\.shape\[0\] at 1"):
        path = gemel.onnx.export(program, tmp_path / "f.onnx")
    assert dims(path) == [1, "data_1"]
    for columns in 4, 6:
        check(path, program, drawn(1, columns))


#: Functions whose parts of an image have no elements, and the images' sizes.
EMPTIED: dict[str, tuple[Callable[[Any], Any], tuple[int, ...]]] = {
    "to more rows": (lambda x: np.pad(into_rows(x[:0]), EDGES), (1, 1, 4, 4)),
    "to more channels": (lambda x: np.pad(into_channels(x[..., :0]), EDGES), (4, 2, 1, 1)),
    "split": (lambda x: x[:, :0].reshape(x.shape[2] // 2, 3, -1).sum(), (2, 1, 2, 3)),
}
EDGES = (1, 1), (2, 0), (0, 0), (2, 2)


def into_rows(x: Any) -> Any:
    """Groups of four channels as blocks of 2 x 2 pixels."""
    n, c, h, w = x.shape
    blocks = x.reshape(n, 2, 2, c // 4, h, w).transpose(0, 3, 4, 1, 5, 2)
    return blocks.reshape(n, c // 4, h * 2, w * 2)


def into_channels(x: Any) -> Any:
    """Blocks of 2 x 2 pixels as groups of four channels."""
    n, c, h, w = x.shape
    blocks = x.reshape(n, c, h // 2, 2, w // 2, 2).transpose(0, 3, 5, 1, 2, 4)
    return blocks.reshape(n, c * 4, h // 2, w // 2)


@pytest.mark.parametrize("name", EMPTIED)
def test_sizes_that_come_out_as_zero(name: str, tmp_path: Path) -> None:
    """A `Reshape` took 0 for the size that the array has on this axis."""
    function, shape = EMPTIED[name]
    program = gemel.compile(function)
    program(drawn(*shape))
    path = gemel.onnx.export(program, tmp_path / "f.onnx")
    for sizes in shape, (3, 4, 2, 6):
        check(path, program, drawn(*sizes))


WEIGHT = np.ones((3, 2))


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (lambda x: x[:, -3:] @ WEIGHT, ["data_0", "data_1"]),
        (lambda x: x[:, :3] @ WEIGHT, ["data_0", "data_1"]),
        (lambda x: x[:, ::2] @ WEIGHT, ["data_0", 6]),
        (lambda x: x[:, : x.shape[1] // 2] @ WEIGHT, ["data_0", 6]),
        (lambda x: x[:, 3:] @ WEIGHT, ["data_0", 6]),
    ],
)
def test_axes_of_which_a_part_has_to_fit_a_weight(
    function: Any, expected: Any, tmp_path: Path
) -> None:
    program = gemel.compile(function)
    program(drawn(3, 6))
    with warnings.catch_warnings():
        warnings.simplefilter("error", ExportWarning)
        path = gemel.onnx.export(program, tmp_path / "f.onnx")
    assert dims(path) == expected
    for rows, columns in (3, 6), (1, 6), *([(2, 9)] if expected[1] != 6 else []):
        check(path, program, drawn(rows, columns))


def halved(x: Any) -> Any:
    """A picture at half its size."""
    return npx.pooling(x, kernel=(2, 2), stride=(2, 2), pool_type="max")


def beside_a_coarser_one(x: Any) -> Any:
    """A skip connection, as in a U-Net: even heights and widths fit."""
    return np.concatenate([x, halved(x).repeat(2, axis=2).repeat(2, axis=3)], axis=1)


#: Functions with checks of sizes that files make again: arguments, names, and others that fit.
CHECKED_AGAIN: dict[str, tuple[Any, ...]] = {
    "a skip connection": (
        beside_a_coarser_one,
        [(2, 1, 6, 8)],
        ["data_0", "data_1", "data_2", "data_3"],
        [(1, 3, 10, 4)],
    ),
    "an added one": (
        lambda x: x + halved(x).repeat(2, axis=2).repeat(2, axis=3),
        [(2, 3, 6, 8)],
        ["data_0", "data_1", "data_2", "data_3"],
        [(3, 2, 4, 12)],
    ),
    "keys and values kept so far": (
        lambda x, keys, values: (
            npx.softmax(x @ np.concatenate([keys, x]).T) @ np.concatenate([values, x])
        ),
        [(3, 4), (5, 4), (5, 4)],
        ["data0_0", "data0_1", "data1_0", "data0_1", "data1_0", "data0_1"],
        [(1, 6), (9, 6), (9, 6)],
    ),
    "a batch of two arguments": (
        lambda x, scores: (
            (scores.reshape(-1, 1, 1) * x).reshape(x.shape[0], x.shape[1], -1) @ WEIGHT
        ),
        [(4, 5, 3), (4,)],
        ["data0_0", "data0_1", 3, "data0_0"],
        [(2, 7, 3), (2,)],
    ),
}


@pytest.mark.parametrize("name", CHECKED_AGAIN)
def test_sizes_that_are_checked_again_are_free(name: str, tmp_path: Path) -> None:
    check_sizes(tmp_path, *CHECKED_AGAIN[name])


def test_slices_whose_sizes_do_not_matter_are_no_question(tmp_path: Path) -> None:
    functions: list[Callable[[Any], Any]] = [
        lambda x: x[-3:] * 2,
        lambda x: x[1:] - x[:-1],
        lambda x: x[:4].mean(axis=0),
        lambda x: x[-1] + x.shape[0],
        lambda x: x + np.ones((64, 4))[: x.shape[0]],
    ]
    for function in functions:
        program = gemel.compile(function)
        program(drawn(5, 4))
        with warnings.catch_warnings():
            warnings.simplefilter("error", ExportWarning)
            path = gemel.onnx.export(program, tmp_path / "f.onnx")
        for rows in 5, 2, 8:
            check(path, program, drawn(rows, 4))


#: Pools whose last windows are cut short, or left out because they would begin after the image;
#: the axes of their inputs, and whether the channels are the last.
POOLS: dict[str, tuple[Callable[[], Any], int, bool]] = {
    "complete or not": (lambda: nn.MaxPool2D(3, 2, ceil_mode=True), 4, False),
    "left out": (lambda: nn.MaxPool2D(3, 3, padding=1, ceil_mode=True), 4, False),
    "left out, without padding": (lambda: nn.AvgPool2D(1, 3, ceil_mode=True), 4, False),
    "channels last": (lambda: nn.MaxPool2D(2, 3, layout="NHWC", ceil_mode=True), 4, True),
    "volumes": (lambda: nn.AvgPool3D(2, 3, 1, layout="NDHWC", ceil_mode=True), 5, True),
    "volumes, whole windows": (lambda: nn.MaxPool3D(2, layout="NDHWC"), 5, True),
}


@pytest.mark.parametrize("name", POOLS)
def test_pools_are_for_images_of_any_size(name: str, tmp_path: Path) -> None:
    """The reshape behind a pool needs its size."""
    pool, axes, last = POOLS[name]

    def images(count: int, first: int) -> Any:
        space = range(first, first + axes - 2)
        return drawn(count, *space, 3) if last else drawn(count, 3, *space)

    net = stacked(pool(), nn.HybridLambda(lambda x: x.reshape(x.shape[0], -1, 1)))
    prepared(net, images(1, 6))
    with warnings.catch_warnings():
        warnings.simplefilter("error", ExportWarning)
        path = gemel.onnx.export(net, tmp_path / "f.onnx")
    again = gemel.onnx.load(path)
    for first in range(6, 12):
        x = images(2, first)
        check(path, net, x)
        numpy.testing.assert_allclose(again(x), net(x), 1e-5)


def test_arguments_of_the_export(tmp_path: Path) -> None:
    program = gemel.compile(lambda x: x + 1)
    program(drawn(2, 3))
    for wrong in 5, "all", [5]:
        with pytest.raises(ShapeError, match="dynamic"):
            gemel.onnx.export(program, tmp_path / "f.onnx", dynamic=wrong)  # type: ignore[arg-type]
    with pytest.raises(ExportError, match="opset '18'"):
        gemel.onnx.export(program, tmp_path / "f.onnx", opset="18")  # type: ignore[arg-type]


#: Functions called with axes of one element, or with sizes that come out as 1: the shapes seen, the
#: sizes in the file, and other shapes that it has to take.
SINGLE: dict[str, tuple[Callable[..., Any], list[Any], list[Any], list[Any]]] = {
    "one column": (lambda x: x * 2, [(3, 1)], ["data_0", "data_1"], [(2, 5)]),
    "two arguments": (
        lambda x, y: x + y,
        [(3, 1), (3, 1)],
        ["data0_0", "data0_1", "data0_0", "data0_1"],
        [(2, 4), (2, 4)],
    ),
    "in another dtype": (
        lambda x, y: [np.add(x, y, dtype="float64"), np.float_power(x * x + 1, y)],
        [(3, 2), (3, 2)],
        ["data0_0", "data0_1", "data0_0", "data0_1"],
        [(2, 4), (2, 4)],
    ),
    "broadcasting": (
        lambda x, y: x + y,
        [(2, 2), (2, 1)],
        ["data0_0", "data0_1", "data0_0", 1],
        [(4, 3), (4, 1)],
    ),
    "a sequence of one step": (
        lambda x, n: npx.sequence_mask(x, n, use_sequence_length=True),
        [(1, 2, 3), (2,)],
        ["data0_0", "data0_1", "data0_2", "data0_1"],
        [(4, 3, 2), (3,)],
    ),
    "a choice": (
        lambda x: np.where(x[:, ::2] > 0, x[:, ::2], 0),
        [(3, 2)],
        ["data_0", "data_1"],
        [(2, 7)],
    ),
    "one window": (
        lambda x: nn.AvgPool2D((1, 3))(x) + x[..., :1],
        [(1, 2, 4, 5)],
        ["data_0", "data_1", "data_2", "data_3"],
        [(3, 1, 2, 9)],
    ),
    "products": (
        lambda x: np.einsum("ij,kj->ik", x[:, ::2], x[:, ::2]),
        [(3, 2)],
        ["data_0", "data_1"],
        [(4, 6)],
    ),
    "a weight": (lambda x: x @ np.ones((1, 3)), [(1, 1)], ["data_0", 1], [(4, 1)]),
}


@pytest.mark.parametrize("name", SINGLE)
def test_sizes_of_one_are_free(name: str, tmp_path: Path) -> None:
    check_sizes(tmp_path, *SINGLE[name])


@pytest.mark.parametrize(
    ("function", "shape", "axis"),
    [
        (np.squeeze, (1, 3), r"data\.shape\[0\] at 1"),
        (lambda x: x * 2, (0, 3), r"data\.shape\[0\] at 0"),
        (lambda x: x[:, ::2] + x[:, 1::2], (3, 2), r"data\.shape\[1\] at 2"),
    ],
)
def test_fixed_sizes_that_need_not_be_are_a_warning(
    function: Callable[[Any], Any], shape: tuple[int, ...], axis: str, tmp_path: Path
) -> None:
    program = gemel.compile(function)
    program(drawn(*shape))
    with pytest.warns(ExportWarning, match=rf"takes other sizes, but the file has {axis}:"):
        gemel.onnx.export(program, tmp_path / "f.onnx")
    with warnings.catch_warnings():
        warnings.simplefilter("error", ExportWarning)
        gemel.onnx.export(program, tmp_path / "f.onnx", dynamic=False)


def check_sizes(
    folder: Path,
    function: Callable[..., Any],
    seen: list[Any],
    expected: list[Any],
    *others: list[Any],
) -> None:
    """Checks that a function is exported without a warning, the sizes of its file's inputs, and its
    results for the shapes it was called with and for others."""
    program = gemel.compile(function)
    program(*(drawn(*shape) for shape in seen))
    with warnings.catch_warnings():
        warnings.simplefilter("error", ExportWarning)
        path = gemel.onnx.export(program, folder / "f.onnx")
    assert dims(path) == expected
    for shapes in seen, *others:
        check(path, program, *(drawn(*shape) for shape in shapes))


def dims(path: str) -> list[Any]:
    """The names or numbers of the sizes of a file's inputs."""
    shapes = [given.type.tensor_type.shape for given in onnx.load(path).graph.input]
    return [dim.dim_param or dim.dim_value for shape in shapes for dim in shape.dim]
