"""Rows of numbers in text files, CSV and LibSVM, and the iterators over batches of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from gemel import ndarray as nd
from gemel.dtype import as_dtype
from gemel.errors import ArgumentError, DataFileError, MissingFileError, ShapeError
from gemel.io import NDArrayIter
from gemel.ir.reference import numpy
from gemel.lists import as_list
from gemel.ranges import counted
from gemel.spec import product


def read_csv(path: Any, dtype: Any = "float32") -> Any:
    """A NumPy array (rows, columns) of the numbers in a comma-separated text.

    Raises `MissingFileError`, and `DataFileError`, with the offset, for an invalid number or a row
    with another length.
    """
    path, kind = Path(path).expanduser(), as_dtype(dtype).dtype
    if not path.exists():
        raise MissingFileError(f"{path} does not exist")
    try:
        return _numbers(path, kind)
    except ValueError as error:
        where = _place(path.read_bytes().splitlines(keepends=True), kind)
        raise DataFileError(f"{path}: {where}: {error}") from None


def _numbers(source: Path | list[bytes], dtype: Any) -> Any:
    """Parse comma-separated lines. Raises `ValueError`."""
    return numpy().loadtxt(source, dtype, delimiter=",", ndmin=2, comments=None)


def _place(lines: list[bytes], dtype: Any) -> str:
    """The position of the first row with an invalid number or another length: the lines before it
    can be parsed, but not with it."""
    good, bad = 0, len(lines)
    while bad - good > 1:
        middle = (good + bad) // 2
        try:
            _numbers(lines[:middle], dtype)
            good = middle
        except ValueError:
            bad = middle
    return f"row {good} at byte {len(b''.join(lines[:good]))}"


class CSVIter(NDArrayIter):
    """Batches of the rows of a CSV file, each as an array of `data_shape`; with those of another
    file as labels, or zeros. Each row is one array: `DataFileError` if it has another number of
    columns than `data_shape`, or `label_shape`, takes.

    The last batch is padded from the beginning, whatever `round_batch` is; its `pad` is the number
    of padding rows.
    """

    def __init__(
        self,
        data_csv: Any,
        data_shape: tuple[int, ...],
        label_csv: Any = None,
        label_shape: tuple[int, ...] = (1,),
        batch_size: int = 1,
        round_batch: bool = True,
        dtype: Any = "float32",
        data_name: str = "data",
        label_name: str = "label",
    ) -> None:
        data_shape, label_shape = tuple(as_list(data_shape)), tuple(as_list(label_shape))
        data = _shaped(data_csv, "data_shape", data_shape, dtype)
        if label_csv in (None, "NULL"):
            label = numpy().zeros((len(data),), as_dtype(dtype).dtype)
        else:
            label = _shaped(label_csv, "label_shape", label_shape, dtype)
            label = label[:, 0] if label_shape == (1,) else label
        _check_lengths(data_csv, data, label_csv, label)
        first, second = (nd.array(each, dtype=dtype) for each in (data, label))
        super().__init__(first, second, batch_size, False, "pad", data_name, label_name)


def _shaped(path: Any, name: str, shape: tuple[int, ...], dtype: Any) -> Any:
    """The rows of a file, each as an array of the shape that the argument `name` gives."""
    rows = read_csv(path, dtype)
    if len(rows) and rows.shape[1] != product(shape):
        raise DataFileError(
            f"{path}: each row has {rows.shape[1]} columns, but {name}={shape} takes "
            f"{product(shape)}"
        )
    return rows.reshape(len(rows), *shape)


def read_libsvm(path: Any, columns: int, dtype: Any = "float32") -> tuple[Any, Any]:
    """NumPy arrays of the labels (rows,) and of the rows (rows, columns) of a LibSVM text.

    Each line has a label and the elements that are not 0: ``1.5 0:0.25 7:-2``, counted from 0.
    Raises `MissingFileError`, and `DataFileError`, with the offset, for what is no such line.
    """
    path = Path(path).expanduser()
    if not path.exists():
        raise MissingFileError(f"{path} does not exist")
    labels: list[float] = []
    places, offset = [], 0
    for line in path.read_bytes().splitlines(keepends=True):
        label, *elements = line.split(b"#")[0].split() or [b""]
        try:
            if label:
                pairs = [element.split(b":") for element in elements]
                places += [(len(labels), int(column), float(value)) for column, value in pairs]
                labels.append(float(label))
        except ValueError as error:
            where = f"row {len(labels)} at byte {offset}"
            raise DataFileError(f"{path}: {where}: {error}") from None
        offset += len(line)
    rows = numpy().zeros((len(labels), columns), as_dtype(dtype).dtype)
    for row, column, value in places:
        if not 0 <= column < columns:
            raise DataFileError(f"{path}: row {row} has column {column}, but there are {columns}")
        rows[row, column] = value
    return numpy().array(labels, rows.dtype), rows


class LibSVMIter(NDArrayIter):
    """Batches of the rows of a LibSVM file as dense arrays (batch_size, *data_shape), with the
    labels in it; or with the rows of another file as labels (batch_size, *label_shape).

    Shapes have one axis. Of `num_parts` parts of the rows it has part `part_index`. The last batch
    is padded from the beginning, whatever `round_batch` is.
    """

    def __init__(
        self,
        data_libsvm: Any,
        data_shape: Any,
        label_libsvm: Any = None,
        label_shape: Any = (1,),
        num_parts: int = 1,
        part_index: int = 0,
        batch_size: int = 1,
        round_batch: bool = True,
        dtype: Any = "float32",
        data_name: str = "data",
        label_name: str = "softmax_label",
    ) -> None:
        if not 0 <= part_index < num_parts:
            raise ArgumentError(f"LibSVMIter: there is no part {part_index} of {num_parts}")
        labels, rows = read_libsvm(data_libsvm, _length("data_shape", data_shape), dtype)
        if label_libsvm not in (None, "NULL"):
            labels = read_libsvm(label_libsvm, _length("label_shape", label_shape), dtype)[1]
        _check_lengths(data_libsvm, rows, label_libsvm, labels)
        begin, end = (len(rows) * part // num_parts for part in (part_index, part_index + 1))
        data, label = (nd.array(each[begin:end], dtype=dtype) for each in (rows, labels))
        super().__init__(data, label, batch_size, False, "pad", data_name, label_name)


def _length(name: str, shape: Any) -> int:
    """The only element of a shape."""
    sizes = as_list(shape)
    if len(sizes) != 1:
        raise ShapeError(f"LibSVMIter: {name}={shape!r} must have one axis")
    return counted("LibSVMIter", name, sizes[0])


def _check_lengths(path: Any, rows: Any, label_path: Any, labels: Any) -> None:
    if len(labels) != len(rows):
        raise DataFileError(
            f"{path} has {len(rows)} rows, but {label_path} has {len(labels)} labels"
        )


__all__ = ["CSVIter", "LibSVMIter", "read_csv", "read_libsvm"]
