"""Data types: gemel's own small objects, equal to their NumPy twins without importing NumPy."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, TypeGuard

from gemel.errors import DTypeError, unknown_name
from gemel.extent import Dim

#: The attributes that a dtype has by its NumPy twin.
TWIN_ATTRIBUTES = frozenset(
    ("alignment", "byteorder", "char", "descr", "fields", "hasobject", "isnative", "names")
    + ("newbyteorder", "num", "str", "subdtype", "type")
)


class DType:
    """The type of an array's elements. ``DType(value)``, that is ``np.dtype(value)``, is the dtype
    meant by a name, a Python type or a NumPy dtype; raises `DTypeError`.

    A dtype equals its name, its NumPy twin (``numpy.dtype('float32')`` and ``numpy.float32``) and
    nothing else. In dictionaries it is the same key as its NumPy twin, but, like that, not the same
    key as its name. ``kind`` is ``b``, ``u``, ``i``, ``f`` or ``c``; ``itemsize`` is in bytes;
    ``digits`` is how many binary digits an element (or each part of it) holds.

    ``compute`` is the dtype its elements are computed in, ``accumulate`` the one that sums, means,
    products of many and matrix products add up in. A dtype that is not its own ``compute`` is only
    for storage. ``twin`` is the dtype in which NumPy has its elements: itself, but float32 for
    bfloat16, which NumPy lacks.
    """

    __slots__ = (
        *("_hash", "accumulate", "code", "compute", "digits", "itemsize", "kind", "name"),
        "twin",
    )

    if TYPE_CHECKING:
        name: str
        code: int
        itemsize: int
        kind: str
        digits: int
        compute: DType
        accumulate: DType
        twin: DType
        _hash: int

    def __new__(cls, dtype: object, /) -> DType:
        """One of the existing dtypes."""
        return as_dtype(dtype)

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if other is None or isinstance(other, DType):
            return False
        try:
            return as_dtype(other) is self
        except DTypeError:
            return NotImplemented

    def __hash__(self) -> int:
        return self._hash

    def __repr__(self) -> str:
        return f"dtype('{self.name}')"

    def __str__(self) -> str:
        return self.name

    def __reduce__(self) -> tuple[Any, ...]:
        return as_dtype, (self.name,)

    def __call__(self, value: Any) -> Any:
        """An array of this dtype holding `value`, as ``numpy.float32(3)`` does."""
        return _constructor[0](value, self)

    @property
    def dtype(self) -> Any:
        """Its NumPy twin. NumPy asks for it wherever it takes a dtype."""
        import numpy

        return numpy.dtype(self.twin.name)

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """The attributes that other libraries ask NumPy's dtypes for come from its twin."""
            if name not in TWIN_ATTRIBUTES:
                raise AttributeError(f"a dtype has no attribute {name!r}")
            return getattr(self.dtype, name)

    @property
    def is_floating(self) -> bool:
        """Whether it is one of the floating dtypes."""
        return self.kind == "f"

    @property
    def is_complex(self) -> bool:
        """Whether it is one of the complex dtypes."""
        return self.kind == "c"

    @property
    def is_inexact(self) -> bool:
        """Whether its elements vary continuously, so that there are gradients: floating-point or
        complex."""
        return self.kind in "fc"

    @property
    def floating(self) -> DType:
        """The dtype of quotients, means and functions of its elements; see `default_float`."""
        return self if self.kind in "fc" else default_float()

    @property
    def real(self) -> DType:
        """The dtype of the real parts and magnitudes of its elements: itself, unless it is
        complex."""
        return self if self.kind != "c" else float32 if self.itemsize == 8 else float64

    @property
    def complex(self) -> DType:
        """The complex dtype of this precision."""
        if self.kind == "c":
            return self
        return complex128 if self.floating is float64 else complex64


#: The function that makes an array for `dtype(value)`.
_constructor: list[Callable[[Any, DType], Any]] = []


def set_constructor(make: Callable[[Any, DType], Any]) -> None:
    """Let `make` compute `dtype(value)`: the layer of arrays, above this one, has it."""
    _constructor[:] = [make]


def _flags() -> int | str:
    """What NumPy hashes for a dtype's flags, of which there are none: a character until 2.3, now 0.

    NumPy's version is read from its files, because importing it takes longer than all of gemel.
    """
    version = getattr(sys.modules.get("numpy"), "__version__", "")
    for folder in () if version else sys.path:
        try:
            with open(os.path.join(folder, "numpy", "version.py"), encoding="utf-8") as file:
                version = file.read().partition('version = "')[2]
            break
        except OSError:
            continue
    numbers = version.split(".")[:2]
    known = len(numbers) == 2 and all(map(str.isdecimal, numbers))
    return "\0" if known and tuple(map(int, numbers)) < (2, 4) else 0


FLAGS = _flags()


def _made(
    name: str,
    code: int,
    itemsize: int,
    kind: str,
    digits: int,
    compute: DType | None = None,
    accumulate: DType | None = None,
    twin: DType | None = None,
) -> DType:
    """Make one of the dtypes."""
    made = object.__new__(DType)
    made.name = name
    made.code = code
    made.itemsize = itemsize
    made.kind = kind
    made.digits = digits
    made.compute = compute or made
    made.accumulate = accumulate or made.compute
    made.twin = twin or made
    # What NumPy hashes for the twin: kind, byte order, flags, size and alignment. Asking NumPy for
    # the hash would import it wherever a dtype is a key.
    order = "|" if itemsize == 1 else "<" if sys.byteorder == "little" else ">"
    alignment = itemsize // 2 if kind == "c" else itemsize
    made._hash = hash((kind, order, FLAGS, itemsize, alignment))
    return made


int64 = _made("int64", 4, 8, "i", 63)
int32 = _made("int32", 3, 4, "i", 31, accumulate=int64)
int16 = _made("int16", 10, 2, "i", 15, accumulate=int64)
int8 = _made("int8", 2, 1, "i", 7, accumulate=int64)
uint64 = _made("uint64", 9, 8, "u", 64)
uint32 = _made("uint32", 8, 4, "u", 32, accumulate=uint64)
uint16 = _made("uint16", 11, 2, "u", 16, accumulate=uint64)
uint8 = _made("uint8", 1, 1, "u", 8, accumulate=uint64)
bool_ = _made("bool", 0, 1, "b", 1, accumulate=int64)
float64 = _made("float64", 7, 8, "f", 53)
float32 = _made("float32", 6, 4, "f", 24)
float16 = _made("float16", 5, 2, "f", 11, compute=float32)
bfloat16 = _made("bfloat16", 12, 2, "f", 8, compute=float32, twin=float32)
complex64 = _made("complex64", 13, 8, "c", 24)
complex128 = _made("complex128", 14, 16, "c", 53)

#: All dtypes, in the order of their codes, which the core and files use, too.
DTYPES = (
    *(bool_, uint8, int8, int32, int64, float16, float32, float64),
    *(uint32, uint64, int16, uint16, bfloat16, complex64, complex128),
)
_SIGNED = (int8, int16, int32, int64)

BY_NAME = {dtype.name: dtype for dtype in DTYPES}
#: By NumPy's type numbers. C's "long" has 64 bits on all platforms of the core.
_BY_NUMBER = {
    0: bool_, 1: int8, 2: uint8, 3: int16, 4: uint16, 5: int32, 6: uint32, 7: int64, 8: uint64,
    9: int64, 10: uint64,
    11: float32, 12: float64, 14: complex64, 15: complex128, 23: float16,
}  # fmt: skip
_PYTHON = {bool: bool_, int: int64, float: float64, complex: complex128}


def as_dtype(value: object) -> DType:
    """The dtype meant by a dtype, a name, a Python type or a NumPy dtype, as in NumPy.

    Raises `DTypeError` for anything else, and for NumPy dtypes that gemel has no arrays of.
    """
    if isinstance(value, DType):
        return value
    found = BY_NAME.get(value) if type(value) is str else None
    if found is not None:
        return found
    number: Any = getattr(value, "num", None)
    found = _BY_NUMBER.get(number)  # a fast path for NumPy's dtypes
    if found is not None:
        return found
    if isinstance(value, str):
        name = value
    elif isinstance(value, type) and value in _PYTHON:
        return _PYTHON[value]
    else:
        # numpy.dtype has .name; the scalar classes (numpy.float32) have __name__.
        name = str(getattr(value, "name", None) or getattr(value, "__name__", None))
    found = BY_NAME.get(name if name != "bool_" else "bool")
    if found is None and isinstance(value, str | type):
        found = _numpys(name)
    if found is None:
        known = ", ".join(BY_NAME)
        raise DTypeError(f"{value!r} is not a dtype of gemel arrays; they are {known}")
    return found


def _numpys(name: str) -> DType | None:
    """The dtype for NumPy's other names of it: "int", "f4", "double"."""
    import numpy

    try:
        return _BY_NUMBER.get(numpy.dtype(name).num)
    except (TypeError, ValueError):
        return None


#: Mixed kinds give the higher one: integers with floating-point or complex give that dtype (the one
#: deviation from NumPy).
_LADDER = {"b": 0, "u": 1, "i": 1, "f": 2, "c": 3}


def promote(a: DType, b: DType) -> DType:
    """The dtype that holds values of both, as in NumPy; but floating-point wins over integers."""
    if a is b:
        return a
    if "c" in (a.kind, b.kind) and a.kind in "fc" and b.kind in "fc":
        a, b = a.complex, b.complex
        return a if a.digits > b.digits else b
    if _LADDER[a.kind] != _LADDER[b.kind]:
        return a if _LADDER[a.kind] > _LADDER[b.kind] else b
    if a.kind != b.kind:  # signed and unsigned integers: the next signed dtype that holds both
        digits = max(a.digits, b.digits)
        return next((signed for signed in _SIGNED if signed.digits >= digits), float64)
    if a.itemsize == b.itemsize:  # float16 has more digits, bfloat16 a larger range
        return a.compute
    return a if a.digits > b.digits else b


def keeps_kind(result: DType, target: DType) -> bool:
    """Whether results of one dtype may be written in place into arrays of another: kinds only
    widen.

    From bools to unsigned integers, signed integers, floats and complex numbers: NumPy's casting
    "same_kind".
    """
    kinds = "buifc"
    return kinds.index(result.kind) <= kinds.index(target.kind)


#: What Python's numbers become, and whether floating-point arrays may be positions. `npx.set_np`
#: follows MXNet: integers become float32, too, so float32 arrays are positions.
MANNERS: dict[str, Any] = {"integers": int64, "floats": float32, "floating positions": False}


def default_float() -> DType:
    """The dtype of floating-point arrays if none is given, and of the results of functions such as
    mean for integers. It is part of the key of whatever depends on it: programs, files of plans."""
    found: DType = MANNERS["floats"]
    return found


#: How freely `castable` lets dtypes be converted.
CASTINGS = ("safe", "same_kind", "equiv", "no", "unsafe")


def castable(source: DType, target: DType, casting: str = "safe") -> bool:
    """Whether a dtype may be converted to another: see `np.can_cast`. Raises `ValueError`."""
    if casting not in CASTINGS:
        raise unknown_name("casting", casting, CASTINGS)
    if source is target or casting == "unsafe":
        return True
    if casting in ("equiv", "no"):
        return False
    if casting == "same_kind" or not keeps_kind(source, target):
        return keeps_kind(source, target)
    if source.kind in "iu" and target.kind in "fc":
        size = target.itemsize // (2 if target.kind == "c" else 1)
        return source.itemsize < size or source.itemsize == size == 8
    if source.kind == "f" and target.kind == "c":
        return 2 * source.itemsize <= target.itemsize
    return promote(source, target) is target


def as_number(dtype: DType) -> DType:
    """The dtype in which Python numbers alone are computed: floats have 64 bits."""
    return float64 if dtype.is_floating else complex128 if dtype.is_complex else dtype


def is_large(number: Any) -> TypeGuard[int]:
    """Whether a number is an integer that int64 cannot hold."""
    return type(number) is int and not -(2**63) <= number < 2**63


def limits(dtype: DType) -> tuple[int, int]:
    """The least and the greatest value of an integer dtype or bool."""
    return -(2**dtype.digits) if dtype.kind == "i" else 0, 2**dtype.digits - 1


def check_held(name: str, number: Any, dtype: DType) -> None:
    """Raises `OverflowError` for a whole number that an integer dtype cannot hold.

    For a free extent this leaves a guard, because another size may not fit. int64 holds all sizes.
    """
    if dtype.kind not in "iu" or type(number) not in (int, Dim):
        return
    least, most = limits(dtype)
    if type(number) is Dim and dtype.digits >= int64.digits:
        held = dtype is int64 or number >= 0
    else:
        held = least <= number <= most
    if not held:
        raise OverflowError(f"{name}: {number} is out of bounds for {dtype}")


def as_held(name: str, number: Any, dtype: DType) -> Any:
    """The number, as a float or bool if int64 cannot hold it and the dtype is of these. Raises
    `OverflowError` for a whole number that the dtype cannot hold."""
    check_held(name, number, dtype)
    if not is_large(number) or dtype.kind in "iu":
        return number
    try:
        return float(number) if dtype.is_inexact else True
    except OverflowError:
        bits = number.bit_length()
        raise OverflowError(f"{name}: {dtype} cannot hold a number of {bits} bits") from None


def weak(scalar: bool | int | complex) -> DType:
    """The dtype that a Python scalar has on its own; next to an array it takes the array's."""
    if isinstance(scalar, complex):
        return default_float().complex
    if isinstance(scalar, float):
        return default_float()
    return bool_ if isinstance(scalar, bool) else int64


def any_exact(values: Iterable[Any]) -> bool:
    """Whether an array among these has floats of 64 bits; then floats that become an array beside
    it have them, too. NumPy's float64 is a number."""
    found = (getattr(x, "dtype", None) for x in values if not isinstance(x, (float, complex)))
    return any(dtype in (float64, complex128) for dtype in found)


def promote_weak(array: DType, scalar: DType) -> DType:
    """The dtype of an array mixed with a Python scalar whose own dtype is `scalar`."""
    if scalar.is_complex:
        return array.complex
    return array if _LADDER[array.kind] >= _LADDER[scalar.kind] else scalar
