"""Iterators over batches as in MXNet 1: arrays, CSV files, pictures, pictures with boxes."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import numpy
import pytest

from gemel import image, io, np, recordio
from gemel.errors import ArgumentError, DataFileError, GemelError, MissingFileError, ShapeError

ROWS = numpy.arange(10).reshape(5, 2)
RECORDS = Path(__file__).parent / "mxnet_data" / "images.rec"


def epochs(batches: Any, count: int) -> list[Any]:
    found = []
    for _ in range(count):
        found.append([b.data[0].asnumpy()[:, 0].tolist() for b in batches])
        batches.reset()
    return found


# The expected values are those of MXNet 1.9.1.
@pytest.mark.parametrize(
    ("handle", "expected"),
    [
        ("pad", [[[0, 2], [4, 6], [8, 0]]] * 3),
        ("discard", [[[0, 2], [4, 6]]] * 3),
        ("roll_over", [[[0, 2], [4, 6]], [[8, 0], [2, 4], [6, 8]], [[0, 2], [4, 6]]]),
    ],
)
def test_the_last_batch(handle: str, expected: Any) -> None:
    batches = io.NDArrayIter(ROWS, numpy.arange(5), 2, last_batch_handle=handle)
    assert epochs(batches, 3) == expected
    assert [batch.pad for batch in batches][-1] == (handle == "pad")


def test_arrays_by_name() -> None:
    batches = io.NDArrayIter({"a": ROWS, "b": np.ones((5, 3), "int8")}, batch_size=2, shuffle=True)
    assert [(d.name, d.shape) for d in batches.provide_data] == [("a", (2, 2)), ("b", (2, 3))]
    batch = next(batches)
    assert [str(x.dtype) for x in batch.data] == ["float32", "int8"] and batch.label == []
    assert "data shapes: [(2, 2), (2, 3)]" in str(batch)
    two = io.NDArrayIter([ROWS, ROWS], batch_size=2)
    assert [d.name for d in two.provide_data] == ["_0_data", "_1_data"]
    assert repr(io.NDArrayIter(ROWS, batch_size=2).provide_data[0]).startswith("DataDesc[data,(2,")
    with pytest.raises(ValueError, match="differ in length"):
        io.NDArrayIter(ROWS, numpy.ones(4))
    with pytest.raises(ValueError, match="did you mean 'discard'"):
        io.NDArrayIter(ROWS, last_batch_handle="discrad")
    for size in (0, -1, 2.5, "2"):
        with pytest.raises(ArgumentError, match=f"batch_size={size!r} must be a whole number, 1"):
            io.NDArrayIter(ROWS, batch_size=size)
    with pytest.raises(ArgumentError, match="only 5 examples; they make a batch with last_batch"):
        io.NDArrayIter(ROWS, batch_size=6, last_batch_handle="discard")


def test_csv(tmp_path: Path) -> None:
    data, labels = tmp_path / "a.csv", tmp_path / "b.csv"
    data.write_text("1,2,3,4\n5,6,7,8\n9,10,11,12\n")
    labels.write_text("1\n0\n1\n")
    batches = io.CSVIter(data, (2, 2), labels, batch_size=2)
    found = [(b.data[0].tolist(), b.label[0].tolist(), b.pad) for b in batches]
    assert found == [
        ([[[1, 2], [3, 4]], [[5, 6], [7, 8]]], [1, 0], 0),
        ([[[9, 10], [11, 12]], [[1, 2], [3, 4]]], [1, 1], 1),
    ]
    assert next(io.CSVIter(data, (4,))).label[0].tolist() == [0]
    for text, message in (
        ("1,2\n3,x\n", r"a\.csv: row 1 at byte 4: "),
        ("1,2\n3,4\n5\n", r"a\.csv: row 2 at byte 8: "),
        ("1,2\r3,4\r1_000,6\r7,8\r", r"a\.csv: row 2 at byte 8: "),
    ):
        data.write_text(text)
        with pytest.raises(DataFileError, match=message):
            io.CSVIter(data, (2,))
    for dtype, rows in (("uint8", "1,2\n3,300\n5,6\n"), ("int32", "1,2\n3,4.5\n5,6\n")):
        data.write_text(rows)
        with pytest.raises(DataFileError, match=r"row 1 at byte 4: "):
            io.CSVIter(data, (2,), dtype=dtype)
    data.write_text("1,2\n3,4\n")
    halves = next(io.CSVIter(data, 2, dtype="bfloat16")).data[0]
    assert halves.dtype == "bfloat16" and halves.tolist() == [[1, 2]]
    for shape, message in (
        ((3,), r"a\.csv: each row has 2 columns, but data_shape=\(3,\) takes 3"),
        ((2, 2), r"data_shape=\(2, 2\) takes 4"),  # two rows
        ((1,), r"data_shape=\(1,\) takes 1"),  # half a row
    ):
        with pytest.raises(DataFileError, match=message):
            io.CSVIter(data, shape)
    with pytest.raises(DataFileError, match=r"b\.csv: each row has 1 columns, but label_shape"):
        io.CSVIter(data, (2,), labels, (3,))
    with pytest.raises(DataFileError, match=r"has 2 rows, but .* has 3 labels"):
        io.CSVIter(data, (2,), labels)
    with pytest.raises(MissingFileError, match=r"c\.csv does not exist"):
        io.CSVIter(tmp_path / "c.csv", (2,))


def test_libsvm(tmp_path: Path) -> None:
    data, labels = tmp_path / "a.t", tmp_path / "b.t"
    data.write_text("1.0 0:0.5 2:1.25 # a comment\n-2.0\n\n-3.0 1:2.5\n4 2:-1.25\n")
    labels.write_text("1\n-2 0:0.125\n-3 2:1.5\n4 1:1 2:-1.5\n")
    batches = io.LibSVMIter(data_libsvm=data, data_shape=(3,), batch_size=3)
    assert [(b.data[0].tolist(), b.label[0].tolist(), b.pad) for b in batches] == [
        ([[0.5, 0, 1.25], [0, 0, 0], [0, 2.5, 0]], [1, -2, -3], 0),
        ([[0, 0, -1.25], [0.5, 0, 1.25], [0, 0, 0]], [4, 1, -2], 2),
    ]
    assert batches.provide_data[0].shape == (3, 3)
    assert batches.provide_label[0].name == "softmax_label"
    of_rows = io.LibSVMIter(data, 3, labels, (3,), batch_size=4, dtype="float64")
    assert next(of_rows).label[0].tolist() == [[0, 0, 0], [0.125, 0, 0], [0, 0, 1.5], [0, 1, -1.5]]
    parts = [io.LibSVMIter(data, 3, num_parts=3, part_index=n) for n in range(3)]
    assert [[b.label[0].item() for b in part] for part in parts] == [[1], [-2], [-3, 4]]
    for text, message in (
        ("1 0:1\n2 0:x\n", r"a\.t: row 1 at byte 6: "),
        ("1 0:1\n2 5\n", r"a\.t: row 1 at byte 6: "),
        ("1 0:1\n2 3:1\n", r"a\.t: row 1 has column 3, but there are 3"),
        ("1 -1:1\n", r"a\.t: row 0 has column -1"),
        ("1 0:1\n", r"has 1 rows, but .*b\.t has 4 labels"),
    ):
        data.write_text(text)
        with pytest.raises(DataFileError, match=message):
            io.LibSVMIter(data, (3,), labels, (3,))
    with pytest.raises(ShapeError, match=r"data_shape=\(3, 1\) must have one axis"):
        io.LibSVMIter(data, (3, 1))
    with pytest.raises(ArgumentError, match="no part 2 of 2"):
        io.LibSVMIter(data, 3, num_parts=2, part_index=2)
    with pytest.raises(MissingFileError, match=r"c\.t does not exist"):
        io.LibSVMIter(tmp_path / "c.t", 3)


# --- pictures -------------------------------------------------------------------------------


@pytest.fixture
def files(tmp_path: Path) -> Path:
    pytest.importorskip("PIL")
    for number in range(5):
        pixels = numpy.full((12, 16, 3), 50 * number, "uint8")
        (tmp_path / f"{number}.png").write_bytes(image.encoded(pixels, 9, ".png"))
    return tmp_path


def test_pictures_of_a_list(files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [[float(n), f"{n}.png"] for n in range(5)]
    batches = image.ImageIter(2, (3, 8, 8), imglist=rows, path_root=files, mean=numpy.ones(3))
    found = list(batches)
    assert [b.pad for b in found] == [0, 0, 1]
    assert found[1].data[0].shape == (2, 3, 8, 8) and found[1].label[0].tolist() == [2, 3]
    assert found[1].data[0][0, 0, 0, 0].item() == 99
    (files / "all.lst").write_text("".join(f"{n}\t{n}\t{2 * n}\t{n}.png\n" for n in range(5)))
    batches = image.ImageIter(
        2, (3, 8, 8), 2, path_imglist="all.lst", path_root=files, part_index=1, num_parts=2
    )
    assert [b.label[0].tolist() for b in batches] == [[[2, 4], [3, 6]]]
    assert batches.provide_label[0].shape == (2, 2)
    (files / "lists").mkdir()
    (files / "lists" / "two.lst").write_text("0\t7\t1.png\n1\t8\t0.png\n")
    (files / "pictures").symlink_to(files)
    monkeypatch.chdir(files)  # the list is found from here; only the pictures are below the root
    for root in ("pictures", files, None):
        listed = image.ImageIter(2, (3, 8, 8), path_imglist="lists/two.lst", path_root=root)
        assert next(listed).label[0].tolist() == [7, 8]
    np.random.seed(1)
    mixed = image.ImageIter(5, (3, 8, 8), imglist=rows, path_root=files, shuffle=True, aug_list=[])
    order = next(mixed).label[0].tolist()
    assert sorted(order) == [0, 1, 2, 3, 4] != order
    (files / "3.png").write_bytes(b"no picture")
    with pytest.raises(DataFileError, match=r"3\.png: not an image"):
        list(image.ImageIter(2, (3, 8, 8), imglist=rows, path_root=files))
    with pytest.raises(ValueError, match="label_width is 2"):
        next(image.ImageIter(2, (3, 8, 8), 2, imglist=rows, path_root=files))
    wrong: list[tuple[dict[str, Any], str]] = [
        ({}, "give path_imgrec, path_imglist or imglist"),
        ({"imglist": rows, "part_index": 2, "num_parts": 2}, "2 is not below num_parts=2"),
        ({"imglist": rows, "part_index": "a"}, "part_index must be a whole number"),
        ({"imglist": rows, "num_parts": 0}, "num_parts must be a whole number of at least 1"),
        ({"path_imglist": 5}, "path_imglist=5 is not the path of a file"),
    ]
    for settings, message in wrong:
        with pytest.raises(ArgumentError, match=f"ImageIter: .*{message}"):
            image.ImageIter(2, (3, 8, 8), path_root=files, **settings)


def read_first(path: Path) -> Any:
    with recordio.MXRecordIO(path, "r") as reader:
        return reader.read()


def test_pictures_of_records(tmp_path: Path) -> None:
    pytest.importorskip("PIL")
    batches = image.ImageIter(1, (3, 5, 5), path_imgrec=str(RECORDS))
    assert next(batches).label[0].tolist() == [7.0]
    grey = io.ImageRecordIter(str(RECORDS), (1, 5, 5), 1, mean_r=2.0, std_r=0.5)
    assert grey.provide_data[0].shape == (1, 1, 5, 5)
    picture = image.center_crop(image.imdecode(recordio.unpack(read_first(RECORDS))[1], 0), (5, 5))
    expected = (picture[0].asnumpy().astype("float32") - 2.0) * 2.0
    numpy.testing.assert_array_equal(next(grey).data[0].asnumpy()[0, 0], expected[..., 0])
    with pytest.raises(ShapeError, match=r"\(5, 5, 3\), whose channels are not"):
        next(image.ImageIter(1, (1, 5, 5), path_imgrec=str(RECORDS), mean=True))
    broken = recordio.MXIndexedRecordIO(tmp_path / "a.idx", tmp_path / "a.rec", "w")
    broken.write_idx(0, recordio.pack((0, 1.0, 0, 0), b"hello"))
    broken.close()
    with pytest.raises(DataFileError, match=r"a\.rec: record 0 at byte 0: not an image"):
        next(image.ImageIter(1, (3, 5, 5), path_imgrec=str(tmp_path / "a.rec")))


def test_iterators_of_formats(tmp_path: Path) -> None:
    pytest.importorskip("PIL")
    settings: Any = {"mean_r": 10, "std_r": 2, "scale": 0.5, "path_imgrec": str(RECORDS)}
    batches = io.ImageRecordIter(data_shape=(3, 12, 10), batch_size=1, **settings)
    red = (numpy.arange(12) * 20 - 10) / 4
    numpy.testing.assert_allclose(next(batches).data[0].asnumpy()[0, 0, :, 3], red)
    pixels = numpy.random.RandomState(0).randint(0, 256, (5, 28, 28)).astype("uint8")
    head = struct.pack(">4I", 0x803, 5, 28, 28), struct.pack(">2I", 0x801, 5)
    (tmp_path / "a").write_bytes(head[0] + pixels.tobytes())
    (tmp_path / "b").write_bytes(head[1] + bytes(range(5)))
    for flat, shape in ((True, (2, 784)), (False, (2, 1, 28, 28))):
        digits = io.MNISTIter(tmp_path / "a", tmp_path / "b", 2, shuffle=False, flat=flat)
        found = list(digits)
        assert [batch.data[0].shape for batch in found] == [shape, shape]
        assert found[1].label[0].tolist() == [2, 3]
        expected = pixels[2].ravel() / 256
        numpy.testing.assert_allclose(found[1].data[0][0].asnumpy().ravel(), expected)
    with pytest.raises(MissingFileError, match="none does not exist"):
        io.MNISTIter(tmp_path / "none", tmp_path / "b")
    with pytest.raises(AttributeError, match="did you mean 'MNISTIter'"):
        io.MNISTIterr  # noqa: B018 -- the name is what is asked for


BOXES = numpy.array([[1, 0.25, 0.25, 0.75, 0.75], [0, 0.0, 0.5, 0.5, 1.0]], "float32")


def painted() -> Any:
    """A picture of size (40, 80) whose second box is white."""
    pixels = numpy.zeros((40, 80, 3), "uint8")
    pixels[20:, :40] = 255
    return np.array(pixels, dtype="uint8")


def white(picture: Any) -> list[float]:
    """The bounds of the white area, relative to the size: left, top, right, bottom."""
    rows, columns = numpy.nonzero(picture.asnumpy()[..., 0] > 128)
    high, wide = picture.shape[:2]
    return [
        columns.min() / wide, rows.min() / high, (columns.max() + 1) / wide, (rows.max() + 1) / high
    ]  # fmt: skip


@pytest.mark.parametrize(
    "augmenter",
    [
        image.DetHorizontalFlipAug(1.0),
        image.DetRandomCropAug(0.1, (0.5, 2.0), (0.3, 1.0), 0.2),
        image.DetRandomPadAug((1.5, 2.5), (1.2, 3.0), pad_val=(9, 9, 9)),
    ],
    ids=lambda each: type(each).__name__,
)
def test_boxes_move_with_the_picture(augmenter: Any) -> None:
    np.random.seed(2)
    before, changed = BOXES.copy(), 0
    for _ in range(20):
        picture, boxes = augmenter(painted(), BOXES)
        changed += picture.shape != (40, 80, 3) or not numpy.array_equal(boxes, BOXES)
        second = boxes[boxes[:, 0] == 0]
        if len(second):
            numpy.testing.assert_allclose(white(picture), second[0, 1:], atol=0.03)
        assert (boxes[:, 1:] >= 0).all() and (boxes[:, 1:] <= 1).all()
    assert changed > 10 and numpy.array_equal(BOXES, before)


def test_pictures_with_boxes(files: Path) -> None:
    rows = [[[2, 5, *BOXES[: 1 + n % 2].ravel().tolist()], f"{n}.png"] for n in range(5)]
    settings: Any = {"imglist": rows, "path_root": files}
    batches = image.ImageDetIter(2, (3, 8, 10), **settings)
    assert batches.label_shape == (2, 5)
    batch = next(batches)
    assert batch.data[0].shape == (2, 3, 8, 10) and batch.label[0].shape == (2, 2, 5)
    numpy.testing.assert_allclose(batch.label[0][1].asnumpy(), BOXES)
    assert batch.label[0][0, 1].tolist() == [-1] * 5
    np.random.seed(0)
    changed = image.ImageDetIter(
        3, (3, 8, 10), rand_crop=0.7, rand_pad=0.7, rand_mirror=True, mean=True, std=True,
        brightness=0.1, hue=0.1, pca_noise=0.1, rand_gray=0.1, **settings,
    )  # fmt: skip
    for batch in changed:
        assert batch.data[0].shape == (3, 3, 8, 10) and batch.label[0].shape == (3, 2, 5)
    changed.reshape(label_shape=(4, 6))
    changed.reset()
    assert batches.sync_label_shape(changed).provide_label[0].shape == (3, 4, 6)
    assert next(changed).label[0].shape == (3, 4, 6) and batches.label_shape == (4, 6)
    with pytest.raises(ValueError, match="must be at least"):
        changed.reshape(label_shape=(1, 5))
    rows[3][0] = [2, 5, 1, 1]
    with pytest.raises(DataFileError, match=r"3\.png: a label of 4 numbers that begins with"):
        image.ImageDetIter(2, (3, 8, 10), **settings)
    several = image.CreateMultiRandCropAugmenter([0.1, 0.5], area_range=[(0.1, 1), (0.2, 1)])
    assert len(several.aug_list) == 2


# --- iterators in parts, and around others --------------------------------------------------


class Counting(io.DataIter):
    """An iterator written as in MXNet's documentation, without `next`."""

    def __init__(self, count: int) -> None:
        super().__init__(2)
        self.count, self.at = count, -1
        self.provide_data = [io.DataDesc("data", (2, 3))]
        self.provide_label = []

    def reset(self) -> None:
        self.at = -1

    def iter_next(self) -> bool:
        self.at += 1
        return self.at < self.count

    def getdata(self) -> list[Any]:
        return [np.full((2, 3), float(self.at))]

    def getlabel(self) -> list[Any]:
        return []

    def getpad(self) -> int:
        return 0

    def getindex(self) -> None:
        return None


def firsts(batches: Any) -> list[list[float]]:
    return [[x[0, 0].item() for x in batch.data] for batch in batches]


def test_iterators_in_parts() -> None:
    own = Counting(3)
    assert firsts(own) == [[0], [1], [2]]
    ours = io.NDArrayIter(ROWS, numpy.arange(5), 2)
    with pytest.raises(GemelError, match="no batch yet"):
        ours.getdata()
    seen = []
    while ours.iter_next():
        label = ours.getlabel()
        assert label is not None
        seen.append((ours.getdata()[0][0, 0].item(), label[0].tolist(), ours.getpad()))
    assert seen == [(0, [0, 1], 0), (4, [2, 3], 0), (8, [4, 0], 1)]
    assert ours.getindex().tolist() == [4, 0]
    pairs = io.DataDesc.get_list([("a", (2, 3)), ("b", (2,))], [("b", "int32")])
    assert [(d.name, d.shape, d.dtype) for d in pairs] == [
        ("a", (2, 3), "float32"), ("b", (2,), "int32"),
    ]  # fmt: skip
    with pytest.raises(NotImplementedError, match="neither next nor iter_next"):
        io.DataIter().next()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: io.ResizeIter(Counting(3), -1), "ResizeIter: size=-1"),
        (lambda: io.ResizeIter(Counting(3), 1.5), "ResizeIter: size=1.5"),
        (lambda: io.PrefetchingIter([]), "0 iterators"),
        (lambda: io.PrefetchingIter([Counting(3)], [{}, {}]), "1 iterators and 2 dictionaries"),
        (lambda: io.NDArrayIter([]), "needs an array of data"),
        (lambda: io.NDArrayIter(np.array(3.0)), "arrays with an axis 0"),
        (lambda: io.NDArrayIter(np.ones(2), np.array(3.0)), "arrays with an axis 0"),
    ],
)
def test_iterators_of_nothing(call: Any, message: str) -> None:
    with pytest.raises(GemelError, match=message):
        call()


def test_resized_and_prefetched() -> None:
    resized = io.ResizeIter(Counting(3), 5)
    assert firsts(resized) == [[0], [1], [2], [0], [1]]
    resized.reset()
    assert firsts(resized) == [[0], [1], [2], [0], [1]]
    going_on = io.ResizeIter(Counting(3), 2, reset_internal=False)
    assert firsts(going_on) == [[0], [1]]
    going_on.reset()
    assert firsts(going_on) == [[2], [0]]
    names = [{"data": "a"}, {"data": "b"}]
    both = io.PrefetchingIter([Counting(3), Counting(2)], rename_data=names)
    assert [(d.name, d.shape) for d in both.provide_data] == [("a", (2, 3)), ("b", (2, 3))]
    for _ in range(2):
        assert firsts(both) == [[0, 0], [1, 1]]
        both.reset()
    assert both.next().data[0].tolist() == [[0.0] * 3] * 2
    both.reset()
    assert firsts(both) == [[0, 0], [1, 1]]
