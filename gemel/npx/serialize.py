"""Parameter files: MXNet's binary ``.params`` format, written and read without NumPy.

Little-endian::

    u64 0x112 | u64 check | u64 N | N arrays | u64 K (0 or N) | K x {u64 length, name in UTF-8}
    array:  u32 magic | i32 storage (0: dense) | i32 ndim, i64 x ndim | i32 device type, i32 device
            | i32 type | elements
    sparse arrays, which are only read: see `densify`

`check` is reserved in MXNet, which writes 0 and does not read it. gemel puts a checksum there: the
bytes ``geme`` (``gem1`` for a single array instead of a list) above the CRC-32 of everything that
follows. Files may come from anywhere, so each length is compared with the file's size before use.
"""

from __future__ import annotations

from math import prod
from struct import pack, unpack_from
from typing import TYPE_CHECKING, Any, NoReturn
from zlib import crc32

from gemel import _core
from gemel.arrays import tensors
from gemel.arrays.archives import (
    MAGIC,
    Opened,
    appear,
    checked_path,
    contents,
    is_numpys,
    packed,
    unpacked,
)
from gemel.arrays.making import array_like, from_buffer
from gemel.device import Device, as_device
from gemel.dtype import DTYPES, MANNERS, DType, as_dtype
from gemel.errors import ArgumentError, NothingLeftError, ParameterFileError, unknown_name
from gemel.ir.public import function, publish
from gemel.npx.densify import INDICES, Sparse

if TYPE_CHECKING:
    from gemel.gluon.parameter import Parameter, ParameterDict
    from gemel.np import ndarray

_MAGIC = 0x112
_V1, _V2, _V3 = 0xF993FAC8, 0xF993FAC9, 0xF993FACA
_CHECKED = int.from_bytes(b"geme", "big")
_ALONE = int.from_bytes(b"gem1", "big")
_MAX_DIMENSIONS = 32

#: MXNet's numbers for dtypes. Complex dtypes, which it lacks, get the next free numbers.
_TYPES = {
    0: "float32",
    1: "float64",
    2: "float16",
    3: "uint8",
    4: "int32",
    5: "int8",
    6: "int64",
    7: "bool",
    8: "int16",
    9: "uint16",
    10: "uint32",
    11: "uint64",
    12: "bfloat16",
    13: "complex64",
    14: "complex128",
}
_FLAGS = {name: flag for flag, name in _TYPES.items()}


@function(public="npx")
def save(file: Any, arr: dict[str, ndarray] | list[ndarray] | ndarray) -> None:
    """Write arrays (named, a list, or a single one) to `file`, in MXNet's format: the one for NumPy
    mode after `set_np`, otherwise the legacy one. If `file` ends in ``.safetensors``, named arrays
    are written in that format, which Hugging Face's tools read.

    `load` returns what was written: a dictionary, a list or an array. Raises `ArgumentError` for
    names that are not text, and for what is neither arrays nor an array; `DTypeError` for values
    that no dtype of gemel holds, such as text.

    The file appears complete or not at all: it is written under a temporary name and then renamed.
    If an array has failed, its error is raised here, before anything is written.
    """
    path = checked_path("save", "file", file)
    if path.endswith(tensors.ENDING):
        _names(arr if isinstance(arr, dict) else {})  # raises for names that are not text
        appear(path, tensors.written(arr))
    else:
        appear(path, parts(arr))


def parts(arr: Any) -> list[bytes]:
    """The bytes that `save` writes, in pieces."""
    names = _names(arr) if isinstance(arr, dict) else []
    alone = hasattr(arr, "shape")  # iterating over a single array would give its rows
    if not alone and not hasattr(arr, "__iter__"):
        raise ArgumentError(
            f"save: a {type(arr).__name__} is neither an array nor a list or dictionary of arrays"
        )
    mark = _ALONE if alone else _CHECKED
    values = [arr] if alone else list(arr.values() if isinstance(arr, dict) else arr)
    found = [pack("<Q", len(values))]
    for value in values:
        found += _array_parts(array_like(value))
    found.append(pack("<Q", len(names)))
    for encoded in names:
        found += [pack("<Q", len(encoded)), encoded]
    head = pack("<QQ", _MAGIC, mark << 32 | _checksum(found))
    return [head, *found]


def _names(arrays: dict[Any, Any]) -> list[bytes]:
    """The names of arrays, encoded. Raises `ArgumentError`."""
    for name in arrays:
        if not isinstance(name, str) or any("\ud800" <= c <= "\udfff" for c in name):
            raise ArgumentError(f"save: the name {name!r} must be text that UTF-8 can encode")
    return [name.encode() for name in arrays]


@function(public="npx")
def savez(file: Any, *args: Any, **kwargs: Any) -> None:
    """Write arrays to `file` as a NumPy archive (.npz), as MXNet 2 does.

    Those without a keyword are named arr_0, arr_1, ...; `npx.load` and `numpy.load` read it.

    >>> npx.savez("archive", np.array([1.0]), w=np.array([2.0]))
    >>> npx.load("archive")
    """
    appear(checked_path("savez", "file", file), [packed("savez", args, kwargs)])


@function(public="npx")
def load(file: Any, device: Any = None) -> dict[str, ndarray] | list[ndarray] | ndarray:
    """Read the arrays in `file`: a dictionary if they are named, else a list, or the single saved
    array.

    Supports MXNet's formats, old and new, NumPy's (.npy, .npz) and safetensors. Raises
    `ParameterFileError`, naming the field and the position, for a file that is damaged, truncated
    or in another format, and `MissingFileError` if there is none.

    >>> npx.save("weights", {"w": np.ones((2,))})
    >>> npx.load("weights")
    """
    path = checked_path("load", "file", file)
    found: dict[str, ndarray] | list[ndarray] | ndarray
    found = read(path, contents("load", path), device)
    return found


def _from_file(
    file: Any, device: Any = None, *, mmap_mode: str | None = None, allow_pickle: bool = False
) -> Any:
    """The array in a `.npy` file, or a dictionary of those in a `.npz` file; a path or open file.

    An open file may have several arrays, one for each call. Also reads what `npx.save` writes.
    Pickled objects are not read, whatever `allow_pickle` is. The file is never mapped, whatever
    `mmap_mode` is: "c" and "r" read it, and modes that write into it are an `ArgumentError`. Raises
    `ParameterFileError`, naming what is wrong, for a file that is damaged, truncated or in another
    format, and `NothingLeftError`, which is an `EOFError`, at the end of an open file.

    >>> np.save("numbers", np.arange(3))
    >>> np.load("numbers.npy")
    """
    if mmap_mode not in (None, "c", "r"):
        raise ArgumentError(
            f"load: mmap_mode {mmap_mode!r} maps a file for writing, which gemel does not; change "
            "the array and np.save it"
        )
    if not hasattr(file, "read"):
        return load(file, device)
    if isinstance(file.read(0), str):
        raise ArgumentError("load: the file is open as text; open it with mode 'rb'")
    opened = Opened(file)
    if not opened.begin:
        raise NothingLeftError("load: the open file is at its end")
    if opened.begin == MAGIC:
        return opened.next_array("the open file", as_device(device))
    return read("the open file", opened.rest(), device)


_from_file.__name__ = "load"
publish(_from_file, "load", "np")


def read(path: str, content: bytes, device: Any = None) -> Any:
    """The contents of a file's bytes, in any known format."""
    if is_numpys(content):
        return unpacked(path, content, as_device(device))
    if tensors.is_safetensors(content):
        return tensors.read(path, content, as_device(device))
    return _Reader(path, content, as_device(device)).file()


def load_named(filename: Any, device: Any = None) -> dict[str, ndarray]:
    """The named arrays in `filename`; ``arg:`` and ``aux:`` before names are dropped."""
    arrays = load(filename, device)
    if isinstance(arrays, dict):
        return {without_kind(name): array for name, array in arrays.items()}
    if isinstance(arrays, list) and not arrays:
        return {}
    count = len(arrays) if isinstance(arrays, list) else 1
    raise ParameterFileError(
        f"{filename}: its {count} arrays have no names, so it is not a parameter "
        "file; npx.load reads it"
    )


def without_kind(name: str) -> str:
    """A parameter's name in gemel. MXNet 1 names those of recurrent layers after unfused cells:
    ``_unfused.0.i2h_weight``, or with both directions ``_unfused.0.l_cell.i2h_weight``.
    """
    name = name.removeprefix("arg:").removeprefix("aux:")
    place, found, rest = name.rpartition("_unfused.")
    if not found:
        return name
    layer, *direction, kind = rest.split(".")
    return f"{place}{direction[0][0] if direction else 'l'}{layer}_{kind}"


def assign(
    parameters: ParameterDict,
    values: dict[str, ndarray],
    source: str,
    allow_missing: bool = False,
    ignore_extra: bool = False,
    cast_dtype: bool = False,
    dtype_source: str = "current",
    device: Any = None,
) -> None:
    """Set `parameters` to `values`: all of them or, if anything is wrong, none.

    Values are matched by place (``0.weight``), or by full name if the file has full names. `device`
    (one or several) is for parameters without a device yet; others must be there already.
    `dtype_source` "saved" gives the parameters the dtypes of the values.
    """
    if dtype_source not in ("current", "saved"):
        raise unknown_name("dtype_source", dtype_source, ("current", "saved"))
    given = device if isinstance(device, (list, tuple)) else [device]
    devices = None if device is None else list(map(as_device, given))
    targets = dict(parameters)  # matched by place
    if not any(name in targets for name in values):
        by_name = {parameter.name: parameter for parameter in parameters.values()}
        if any(name in by_name for name in values):
            targets = by_name
    problems = _differences(targets, values, allow_missing, ignore_extra, cast_dtype)
    problems += _elsewhere(targets, values, devices)
    if problems:
        raise ParameterFileError(
            f"{source} does not fit this network: {'; '.join(problems)}; no parameter was changed"
        )
    for name, value in values.items():
        if name in targets:
            if dtype_source == "saved":
                targets[name].cast(value.dtype)
            targets[name].load(value, devices)


def _differences(
    targets: dict[str, Parameter],
    values: dict[str, ndarray],
    allow_missing: bool,
    ignore_extra: bool,
    cast_dtype: bool,
) -> list[str]:
    """Why values do not fit parameters, unless the settings allow it; empty if they do."""
    problems = []
    given = {id(targets[name]) for name in values if name in targets}
    missing = [name for name, parameter in targets.items() if id(parameter) not in given]
    extra = [name for name in values if name not in targets]
    if missing and not allow_missing:
        problems.append(f"it lacks {_listed(missing)} (allow_missing=True keeps those as they are)")
    if extra and not ignore_extra:
        problems.append(f"the network has no {_listed(extra)} (ignore_extra=True skips them)")
    for name, value in values.items():
        if name not in targets:
            continue
        if not (hasattr(value, "shape") and hasattr(value, "dtype")):
            problems.append(f"{name} is a {type(value).__name__}, not an array")
            continue
        parameter, shape = targets[name], tuple(value.shape)
        known = parameter.shape
        if known is not None and not _compatible(known, shape):
            problems.append(f"{name} has shape {shape}, the network's has {known}")
        if parameter.dtype != value.dtype and not cast_dtype:
            problems.append(
                f"{name} is {value.dtype}, the network's is {parameter.dtype} "
                "(cast_dtype=True converts)"
            )
    return problems


def _compatible(known: tuple[int, ...], shape: tuple[int, ...]) -> bool:
    if len(known) != len(shape):
        return False
    return all(a in (-1, b) for a, b in zip(known, shape, strict=True))


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - 5} more" if len(names) > 5 else ""
    return ", ".join(names[:5]) + more


def _elsewhere(
    targets: dict[str, Parameter], values: dict[str, ndarray], devices: list[Device] | None
) -> list[str]:
    """A message about parameters that are, or will be, on devices other than those requested."""
    names = [name for name in values if name in targets] if devices is not None else []
    wrong = [name for name in names if targets[name].homes not in ([], devices)]
    if not wrong:
        return []
    homes, asked = (", ".join(map(str, of)) for of in (targets[wrong[0]].homes, devices or ()))
    return [f"the network has {_listed(wrong)} on {homes}, not on {asked} (reset_ctx moves them)"]


# ---- writing


def type_flag(dtype: Any) -> int:
    """MXNet's number for a dtype."""
    return _FLAGS[as_dtype(dtype).name]


def dtype_of_flag(flag: str) -> str:
    """The dtype for MXNet's number, given as text; float32 if it is none of the numbers."""
    return {str(number): dtype for number, dtype in _TYPES.items()}.get(flag, "float32")


def _array_parts(value: ndarray) -> list[bytes]:
    # MXNet reads _V3 after `set_np`, else _V2, in which each array must have axes and elements.
    old = value.ndim and value.size and not MANNERS["floating positions"]
    magic = _V2 if old else _V3
    header = pack("<IiI", magic, 0, value.ndim) + pack(f"<{value.ndim}q", *value.shape)
    return [header + pack("<iii", 1, 0, _FLAGS[value.dtype.name]), _core.to_bytes(value)]


def _checksum(parts: list[bytes]) -> int:
    check = 0
    for part in parts:
        check = crc32(part, check)
    return check


# ---- reading


class _Reader:
    """Reads one file's content from front to back, never past its end."""

    def __init__(self, path: str, content: bytes, device: Device) -> None:
        self.path = path
        self.content = memoryview(content)
        self.device = device
        self.position = 0

    def file(self) -> dict[str, ndarray] | list[ndarray] | ndarray:
        if self.number("Q", "the format's number") != _MAGIC:
            self.fail("is not a parameter file: it does not begin with 0x112")
        check = self.number("Q", "the checksum")
        self.check(check)
        arrays = [self.array() for _ in range(self.count("the number of arrays", 4))]
        names = [self.name() for _ in range(self.count("the number of names", 8))]
        if self.position != len(self.content):
            self.fail(f"continues after its end at byte {self.position}")
        if names and len(names) != len(arrays):
            self.fail(f"has {len(arrays)} arrays but {len(names)} names")
        if len(set(names)) != len(names):
            self.fail("gives one name to two arrays")
        made = [self.made(found) for found in arrays]
        if check >> 32 == _ALONE and len(made) == 1:
            return made[0]
        return dict(zip(names, made, strict=True)) if names else made

    def fail(self, problem: str) -> NoReturn:
        raise ParameterFileError(f"parameter file {self.path} {problem}")

    def check(self, expected: int) -> None:
        if expected >> 32 not in (_CHECKED, _ALONE):
            if expected:
                self.fail("is damaged: its second field is neither 0 nor a checksum")
            return
        if _checksum([self.content[self.position :]]) != expected & 0xFFFFFFFF:  # type: ignore[list-item]
            self.fail("is damaged or truncated: its checksum does not match its content")

    def take(self, length: int, field: str) -> int:
        """Skip the next `length` bytes and return where they begin."""
        begin = self.position
        left = len(self.content) - begin
        if length > left:
            self.fail(
                f"is truncated or damaged: at byte {begin}, {field} takes {length} bytes and "
                f"{left} are left"
            )
        self.position = begin + length
        return begin

    def number(self, code: str, field: str) -> int:
        length = 8 if code in "Qq" else 4
        value: int = unpack_from("<" + code, self.content, self.take(length, field))[0]
        return value

    def count(self, field: str, smallest: int) -> int:
        """The next count, of things that take at least `smallest` bytes each."""
        count = self.number("Q", field)
        if count * smallest > len(self.content) - self.position:
            self.fail(f"is truncated or damaged: {field} is {count}, more than fit in the file")
        return count

    def name(self) -> str:
        length = self.number("Q", "the length of a name")
        begin = self.take(length, "a name")
        try:
            return str(self.content[begin : self.position], "utf-8")
        except UnicodeDecodeError:
            self.fail(f"is damaged: the name at byte {begin} is not UTF-8")

    def shape(self, code: str, ndim: int) -> tuple[int, ...]:
        if not 0 <= ndim <= _MAX_DIMENSIONS:
            self.fail(f"is damaged: before byte {self.position}, an array of {ndim} dimensions")
        return tuple(self.number(code, "a dimension") for _ in range(ndim))

    def array(self) -> tuple[DType, tuple[int, ...], memoryview] | Sparse:
        """The next array's dtype, its shape, and its elements."""
        magic = self.number("I", "an array's magic number")
        storage, stored = 0, tuple[int, ...]()
        if magic in (_V2, _V3):
            storage = self.number("i", "an array's storage type")
            if storage and storage not in INDICES:
                self.fail(f"is damaged: before byte {self.position}, storage type {storage}")
            if storage:
                stored = self.shape("q", self.number("i", "the number of stored dimensions"))
            ndim = self.number("i", "the number of dimensions")
            if magic == _V3 and ndim == -1:  # of unknown shape
                self.fail(f"contains an array without a value before byte {self.position}")
            shape = self.shape("q", ndim)
        elif magic == _V1:
            shape = self.shape("q", self.number("i", "the number of dimensions"))
        else:
            shape = self.shape("I", magic)  # in the oldest files this is the number of dimensions
        if (magic != _V3 and not shape) or (magic == _V3 and -1 in shape):
            self.fail(f"contains an array without a value before byte {self.position}")
        self.take(8, "an array's device")
        dtype = self.dtype(self.number("i", "an array's dtype"))
        if not storage:
            return dtype, shape, self.elements(dtype, shape)
        kinds = [self.kind() for _ in range(INDICES[storage])]
        held = self.elements(dtype, stored)
        indices = [(*kind, self.elements(*kind)) for kind in kinds]
        return Sparse(storage, dtype, shape, stored, held, indices)

    def kind(self) -> tuple[DType, tuple[int, ...]]:
        """The dtype and the shape of a sparse array's indices."""
        dtype = self.dtype(self.number("i", "the dtype of indices"))
        return dtype, self.shape("q", self.number("i", "the number of dimensions of indices"))

    def elements(self, dtype: DType, shape: tuple[int, ...]) -> memoryview:
        if any(extent < 0 for extent in shape):
            self.fail(f"is damaged: before byte {self.position}, an array of shape {shape}")
        size = prod(shape) * dtype.itemsize
        begin = self.take(size, f"an array of shape {shape}")
        return self.content[begin : begin + size]

    def dtype(self, flag: int) -> DType:
        if flag not in _TYPES:
            self.fail(f"is damaged: before byte {self.position}, dtype number {flag}")
        return as_dtype(_TYPES[flag])

    def made(self, found: tuple[DType, tuple[int, ...], memoryview] | Sparse) -> ndarray:
        array: ndarray
        if isinstance(found, Sparse):
            try:
                array = found.dense(self.device)
            except ValueError as reason:
                self.fail(f"contains a damaged sparse array: {reason}")
        else:
            dtype, shape, content = found
            array = from_buffer(content, dtype, shape, self.device)
        return array


assert len(_TYPES) == len(DTYPES)
