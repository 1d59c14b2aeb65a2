"""Files of arrays: MXNet's format, NumPy's .npy and .npz, and errors for damaged files."""

from __future__ import annotations

import io
import os
import re
import resource
import subprocess
import sys
import threading
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy
import pytest

import gemel
from gemel import gluon, np, npx, profiler
from gemel.dtype import DTYPES
from gemel.errors import (
    ArgumentError,
    DataFileError,
    MissingFileError,
    NothingLeftError,
    ParameterFileError,
)

SHAPES: list[tuple[int, ...]] = [(), (0,), (3,), (2, 0, 3), (2, 3)]


def filled(shape: tuple[int, ...], dtype: str) -> Any:
    size = int(numpy.prod(shape))
    return (np.arange(size) % 2).reshape(shape).astype(dtype)


@pytest.mark.parametrize("dtype", [dtype.name for dtype in DTYPES])
def test_every_dtype_and_shape_comes_back(dtype: str, tmp_path: Path) -> None:
    """Arrays, lists and dictionaries come back; in NumPy's files bfloat16 becomes float32."""
    arrays = [filled(shape, dtype) for shape in SHAPES]
    path = str(tmp_path / "a")
    for value in arrays:
        npx.save(path, value)
        found = npx.load(path)
        assert (found.shape, found.dtype, found.tolist()) == (
            value.shape, value.dtype, value.tolist(),
        )  # fmt: skip
        np.save(path, value)
        again = np.load(path + ".npy")
        assert again.shape == value.shape
        assert again.dtype == value.dtype.twin
        assert again.tolist() == value.tolist() == numpy.load(path + ".npy").tolist()
    for given in (arrays, arrays[:1], [], {str(i): a for i, a in enumerate(arrays)}):
        npx.save(path, given)
        found = npx.load(path)
        assert type(found) is type(given)
        both = zip(found.values(), given.values()) if isinstance(given, dict) else zip(found, given)  # noqa: B905
        assert len(found) == len(given)
        assert all(a.dtype == b.dtype and a.tolist() == b.tolist() for a, b in both)


def test_archives_have_names(tmp_path: Path) -> None:
    path = str(tmp_path / "a")
    npx.savez(path, np.ones(2), np.zeros((1, 2)), w=np.array([3]))
    found = npx.load(path)
    assert list(found) == ["arr_0", "arr_1", "w"] == found.files
    assert found["w"].dtype == "int64"
    with numpy.load(path) as theirs:
        assert theirs["arr_1"].shape == (1, 2)
    for save in (np.savez, np.savez_compressed):
        save(path, np.ones(2), b=np.zeros(()))
        with np.load(path + ".npz") as archive:
            assert archive["arr_0"].tolist() == [1, 1]
            assert archive["b"].shape == ()
    with pytest.raises(ValueError, match="arr_0"):
        np.savez(path, np.ones(1), arr_0=np.ones(1))


def test_files_written_by_numpy_are_read(tmp_path: Path) -> None:
    path = str(tmp_path / "a.npy")
    for value in (
        numpy.asfortranarray(numpy.arange(6.0).reshape(2, 3)), numpy.arange(3, dtype=">i4"),
        numpy.array(5, "uint16"), numpy.zeros((0, 2)), numpy.array([True, False]),
    ):  # fmt: skip
        numpy.save(path, value)
        found = np.load(path)
        assert found.dtype == value.dtype.newbyteorder("=")
        assert found.tolist() == value.tolist()
        opened = io.BytesIO()
        np.save(opened, found)
        opened.seek(0)
        assert numpy.load(opened).tolist() == value.tolist()
        opened.seek(0)
        assert np.load(opened).tolist() == value.tolist()


def test_lists_and_numpys_arrays_are_saved(tmp_path: Path) -> None:
    path = str(tmp_path / "a")
    npx.save(path, [numpy.ones(2, "int8"), [1.5, 2.5]])
    first, second = npx.load(path)
    assert first.dtype == "int8"
    assert second.tolist() == [1.5, 2.5]
    npx.save(path, numpy.ones((2, 3), "int8"))  # one array, not its rows
    assert npx.load(path).tolist() == [[1] * 3] * 2
    npx.save(path, {"a": np.ones(1)}.values())
    assert [each.tolist() for each in npx.load(path)] == [[1]]


@pytest.mark.parametrize("wrong", [{1: 0.0}, {b"a": 0.0}, {"\ud800": 0.0}, None, 5])
def test_what_cannot_be_saved(wrong: Any, tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match="save: "):
        npx.save(str(tmp_path / "a"), wrong)
    assert not os.listdir(tmp_path)


def test_broken_files_say_what_is_wrong(tmp_path: Path) -> None:
    path = tmp_path / "a.npy"
    np.save(path, np.arange(10))
    whole = path.read_bytes()
    for content in (
        whole[:-1], whole[:60], whole[:7],
        whole[:8] + b"\x01" + whole[9:], whole + b"x", whole.replace(b"(10,)", b"(99,)"),
        whole.replace(b"<i8", b"|O8"), whole.replace(b"<i8", b"<U2"),
        b"\x93NUMPY\x09\x00" + whole[8:],
        b"", b"nothing of the kind",
    ):  # fmt: skip
        path.write_bytes(content)
        with pytest.raises(ParameterFileError, match=r"a\.npy"):
            np.load(path)
    npx.savez(tmp_path / "a.npy", np.arange(1000))
    whole = path.read_bytes()
    middle = bytearray(whole)
    middle[500] ^= 255
    for content in (whole[: len(whole) // 2], whole[:-4], bytes(middle)):
        path.write_bytes(content)
        with pytest.raises(ParameterFileError, match="damaged or truncated"):
            npx.load(path)
    place = whole.rindex(b"PK\x05\x06") + 16  # the offset of the directory
    path.write_bytes(whole[:place] + b"\xff\xff\x7f\x00" + whole[place + 4 :])
    with pytest.raises(ParameterFileError, match="damaged or truncated"):
        npx.load(path)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("notes.txt", "no array")
    with pytest.raises(ParameterFileError, match=r"notes\.txt"):
        npx.load(path)
    with pytest.raises(FileNotFoundError):
        np.load(tmp_path / "nowhere")


def test_an_array_that_failed_writes_nothing(tmp_path: Path) -> None:
    bad = np.take(np.arange(3), np.array([7]))
    for save in (npx.save, npx.savez):
        with pytest.raises(IndexError):
            save(str(tmp_path / "a"), bad)
    assert not list(tmp_path.iterdir())


#: Functions that write a file.
WRITERS: dict[str, Callable[[str], Any]] = {
    "npx.save": lambda path: npx.save(path, [np.ones(2)]),
    "np.save": lambda path: np.save(path, np.ones(2)),
    "np.savez": lambda path: np.savez(path, np.ones(2)),
    "save_parameters": lambda path: _layer().save_parameters(path),
    "gemel.save": lambda path: gemel.save(_called(), path),
    "Symbol.save": lambda path: (gemel.sym.var("x") * 2).save(path),
    "save_states": lambda path: gluon.Trainer(_layer().collect_params(), "adam").save_states(path),
    "profiler.dump": lambda path: _dumped(path),
}


def _dumped(path: str) -> None:
    profiler.set_config(filename=path)
    try:
        profiler.dump()
    finally:
        profiler.set_config(filename="profile.json")


def _layer() -> Any:
    layer = gluon.nn.Dense(2, in_units=3)
    layer.initialize()
    return layer


def _called() -> Any:
    layer = _layer()
    layer.hybridize()
    layer(np.ones((1, 3)))
    return layer


@pytest.mark.parametrize("name", WRITERS)
def test_errors_of_full_disks_name_the_file(name: str, tmp_path: Path) -> None:
    """A limit on the size of files stands for the full disk."""
    ending = {"np.save": ".npy", "np.savez": ".npz"}.get(name, "")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10, before[1]))
    try:
        with pytest.raises(OSError) as caught:
            WRITERS[name](str(tmp_path / "file"))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert caught.value.filename == str(tmp_path / "file") + ending
    assert not os.listdir(tmp_path)


@pytest.mark.parametrize("name", WRITERS)
def test_folders_that_cannot_be_written(name: str, tmp_path: Path) -> None:
    """The error names the given path, not the temporary one, and no temporary file is left."""
    folder = str(tmp_path / "none")
    with pytest.raises(MissingFileError, match=re.escape(f"no folder {folder!r}")):
        WRITERS[name](f"{folder}/file")
    taken = tmp_path / "taken.npy"
    taken.mkdir()
    (tmp_path / "taken.npz").mkdir()
    path = str(tmp_path / ("taken" if name == "np.savez" else "taken.npy"))
    with pytest.raises(IsADirectoryError) as caught:
        WRITERS[name](path)
    assert ".part" not in str(caught.value) and str(tmp_path / "taken") in str(caught.value)
    assert sorted(os.listdir(tmp_path)) == ["taken.npy", "taken.npz"]


def test_a_pipe_in_the_cache_is_not_waited_for(tmp_path: Path) -> None:
    """Opening it to read would wait for a writer, for ever."""
    (tmp_path / "ab").mkdir()
    os.mkfifo(tmp_path / "ab" / "abc.kernel", 0o600)
    program = "from gemel.runtime.files import load; load('abc', 'kernel', bytes)"
    found = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "GEMEL_CACHE": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert "is not used and will be rebuilt: it is not a file of the cache" in found.stderr


def test_mapped_files_are_read(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.arange(3))
    for mode in ("c", "r"):
        assert np.load(tmp_path / "a.npy", mmap_mode=mode).tolist() == [0, 1, 2]
    with pytest.raises(ArgumentError, match="'r\\+' maps a file for writing"):
        np.load(tmp_path / "a.npy", mmap_mode="r+")


class Trickle:
    """An open file with `read` alone, which gives a byte or two at a time, as pipes may."""

    def __init__(self, content: bytes) -> None:
        self._held = io.BytesIO(content)

    def read(self, count: int = -1) -> bytes:
        return self._held.read(min(count, 2) if count > 0 else count)


def test_several_arrays_in_a_file_that_cannot_go_back() -> None:
    content = io.BytesIO()
    np.save(content, np.arange(3))
    np.save(content, np.ones(2))
    file = Trickle(content.getvalue())
    assert [np.load(file).tolist() for _ in range(2)] == [[0, 1, 2], [1, 1]]
    with pytest.raises(NothingLeftError):
        np.load(file)
    archive = io.BytesIO()
    np.savez(archive, a=np.arange(3))
    assert np.load(Trickle(archive.getvalue()))["a"].tolist() == [0, 1, 2]


def test_no_more_is_read_than_an_array_takes() -> None:
    content = io.BytesIO()
    np.save(content, np.arange(3))
    content.write(b"more")
    content.seek(0)
    assert np.load(content).tolist() == [0, 1, 2]
    assert content.read() == b"more"


@pytest.mark.parametrize("kept", [3, 7, 9, 60, -1])
def test_open_files_that_are_truncated(kept: int) -> None:
    content = io.BytesIO()
    np.save(content, np.arange(3))
    with pytest.raises(ParameterFileError, match="the open file"):
        np.load(io.BytesIO(content.getvalue()[:kept]))


def test_sizes_that_no_memory_has() -> None:
    content = io.BytesIO()
    np.save(content, np.arange(3))
    damaged = content.getvalue().replace(b"(3,), ", b"(3000000000000,), ")
    damaged = damaged.replace(b" " * 12, b"", 1)
    with pytest.raises(ParameterFileError, match="takes 24000000000000 bytes, but there are 24"):
        np.load(io.BytesIO(damaged))


def test_several_arrays_in_one_open_file(tmp_path: Path) -> None:
    values = [numpy.arange(3), numpy.zeros((2, 0)), numpy.asfortranarray(numpy.ones((2, 3)))]
    for write in np.save, numpy.save:
        with open(tmp_path / "a", "wb") as file:
            for value in values:
                write(file, value, allow_pickle=False)
        with open(tmp_path / "a", "rb") as file:
            for value in values:
                assert np.load(file, allow_pickle=True).tolist() == value.tolist()
            with pytest.raises(EOFError, match="at its end") as caught:
                np.load(file)
    assert isinstance(caught.value, NothingLeftError)


def test_files_open_as_text_are_refused(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.ones(1))
    with (
        open(tmp_path / "a.npy", encoding="latin-1") as file,
        pytest.raises(ArgumentError, match="mode 'rb'"),
    ):
        np.load(file)


TEXTS: dict[str, Callable[[], Any]] = {
    "a word": lambda: np.loadtxt(["1 2", "3 x"]),
    "a shorter row": lambda: np.loadtxt(["1 2", "3"]),
    "a column that is not there": lambda: np.loadtxt(["1 2"], usecols=5),
    "rows of several lengths": lambda: np.genfromtxt(["1 2", "3"]),
    "bytes that are no text": lambda: np.loadtxt(io.BytesIO(b"1 \xff")),
}


@pytest.mark.parametrize("name", TEXTS)
def test_texts_that_are_no_rows_of_numbers(name: str) -> None:
    with pytest.raises(DataFileError, match=r"loadtxt|genfromtxt"):
        TEXTS[name]()


READERS: dict[str, Callable[[str], Any]] = {
    "npx.load": npx.load,
    "np.load": np.load,
    "np.loadtxt": np.loadtxt,
    "np.genfromtxt": np.genfromtxt,
    "np.fromfile": np.fromfile,
    "gemel.load": gemel.load,
    "sym.load": gemel.sym.load,
    "load_parameters": lambda path: gluon.nn.Dense(1).load_parameters(path),
    "SymbolBlock.imports": lambda path: gluon.SymbolBlock.imports(path, ["data"]),
}


@pytest.mark.parametrize("name", READERS)
def test_files_that_are_not_there(name: str, tmp_path: Path) -> None:
    with pytest.raises(MissingFileError, match=r"none does not exist"):
        READERS[name](str(tmp_path / "none"))


def test_a_link_stays_and_what_it_leads_to_is_written(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    link, target = tmp_path / "a.params", tmp_path / "disk" / "large.params"
    link.symlink_to(target)
    for number in (1.0, 2.0):
        npx.save(str(link), np.array([number]))
        assert link.is_symlink()
        assert npx.load(str(target)).tolist() == [number]
    assert [each.name for each in tmp_path.rglob("*.part")] == []
    link.unlink()
    link.symlink_to(tmp_path / "nowhere" / "b.params")
    with pytest.raises(MissingFileError, match="nowhere"):
        npx.save(str(link), np.ones(1))


def test_file_permissions_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "a.params"
    npx.save(str(path), np.ones(1))
    path.chmod(0o640)
    npx.save(str(path), np.zeros(1))
    assert path.stat().st_mode & 0o777 == 0o640
    assert npx.load(str(path)).tolist() == [0]


def test_pipes_are_written_into(tmp_path: Path) -> None:
    """A pipe, or a device such as /dev/null, was once replaced by a file."""
    pipe, found = tmp_path / "pipe", []
    os.mkfifo(pipe)
    reader = threading.Thread(target=lambda: found.append(pipe.read_bytes()))
    reader.start()
    npx.save(str(pipe), np.array([3.0]))
    reader.join(30)
    (tmp_path / "file").write_bytes(*found)
    assert npx.load(str(tmp_path / "file")).tolist() == [3]
    assert pipe.is_fifo()
