"""The limits of dtypes, type promotion, and which arrays share memory."""

from __future__ import annotations

from typing import Any, NamedTuple

from gemel import _core
from gemel.dtype import DType, as_dtype, bool_, castable, promote, weak
from gemel.errors import DTypeError, OperandError, unknown_name
from gemel.extent import NUMBER
from gemel.ir.public import function, publish
from gemel.ir.reference import numpy
from gemel.ndarray import ndarray
from gemel.runtime.callback import View
from gemel.spec import Spec, promote_specs

#: The bits of the fraction and of the exponent.
FLOATS = {"float16": (10, 5), "bfloat16": (7, 8), "float32": (23, 8), "float64": (52, 11)}


class FloatInfo(NamedTuple):
    """The limits of a floating dtype: `max` and `min` are its largest and its most negative number,
    `eps` the distance from 1 to the next larger one."""

    dtype: DType
    bits: int
    eps: float
    max: float
    min: float
    smallest_normal: float
    smallest_subnormal: float
    precision: int
    resolution: float

    @property
    def tiny(self) -> float:
        """The smallest positive normal number."""
        return self.smallest_normal


class IntegerInfo(NamedTuple):
    """The limits of an integer dtype."""

    dtype: DType
    bits: int
    max: int
    min: int


def _dtype(value: Any) -> DType:
    """The dtype that is given, or that of a given array."""
    found = getattr(value, "dtype", None)
    return found if isinstance(found, DType) else as_dtype(value if found is None else found)


publish(DType, "dtype", "np")


@function(public="np")
def finfo(type: Any) -> FloatInfo:
    """The limits of a floating dtype, or of an array's dtype; for complex dtypes, of each part.

    Raises `DTypeError` for others.
    """
    dtype = _dtype(type).real
    if dtype.name not in FLOATS:
        raise DTypeError(f"finfo: {dtype} is not a floating dtype; use iinfo")
    fraction, exponent = FLOATS[dtype.name]
    bias = 2 ** (exponent - 1)
    eps, normal = 2.0**-fraction, 2.0 ** (2 - bias)
    largest = (2.0 - eps) * 2.0 ** (bias - 1)
    digits = int(fraction * 0.30103)
    return FloatInfo(
        dtype,
        8 * dtype.itemsize,
        eps,
        largest,
        -largest,
        normal,
        normal * eps,
        digits,
        10.0**-digits,
    )


@function(public="np")
def iinfo(type: Any) -> IntegerInfo:
    """The limits of an integer dtype, or of an array's dtype. Raises `DTypeError` for other
    dtypes."""
    dtype = _dtype(type)
    if dtype.kind not in "iu":
        raise DTypeError(f"iinfo: {dtype} is not an integer dtype; use finfo")
    bits = 8 * dtype.itemsize
    low = -(2 ** (bits - 1)) if dtype.kind == "i" else 0
    return IntegerInfo(dtype, bits, low + 2**bits - 1, low)


#: For each kind of the Array API standard, the letters of its dtypes.
KINDS = {
    "bool": "b",
    "signed integer": "i",
    "unsigned integer": "u",
    "integral": "iu",
    "real floating": "f",
    "complex floating": "c",
    "numeric": "iufc",
}


@function(public="np")
def isdtype(dtype: Any, kind: Any) -> bool:
    """Whether a dtype equals another, or is of a kind ("integral", ...), or of any in a tuple.

    >>> np.isdtype("int32", "integral")
    """
    if isinstance(kind, tuple):
        return any(isdtype(dtype, each) for each in kind)
    found = as_dtype(dtype)
    if isinstance(kind, str) and kind not in KINDS:
        raise unknown_name("kind of dtype", kind, KINDS)
    return found.kind in KINDS[kind] if isinstance(kind, str) else found is as_dtype(kind)


@function(public="np")
def issubdtype(arg1: Any, arg2: Any) -> bool:
    """Whether a dtype equals another, or belongs to a family of NumPy's (``numpy.floating``).

    >>> np.issubdtype("int32", "int32")
    """
    plain = (getattr(a, "dtype", a) if isinstance(a, DType) else a for a in (arg1, arg2))
    return bool(numpy().issubdtype(*plain))


@function(public="np")
def common_type(*arrays: Any) -> DType:
    """The floating or complex dtype that can hold the elements of all arrays; float32 for integers.

    >>> np.common_type(np.array([1, 2]), np.array([1.5], dtype="float64"))
    """
    found = result_type(*arrays)
    if found is bool_:
        raise DTypeError("common_type: bools are not numbers; use astype('int32')")
    return found.floating


@function(public="np")
def promote_types(type1: Any, type2: Any) -> DType:
    """The dtype that can hold numbers of both; a floating dtype wins over an integer one.

    >>> np.promote_types("int32", "float32")
    """
    return promote(as_dtype(type1), as_dtype(type2))


@function(public="np")
def result_type(*arrays_and_dtypes: Any) -> DType:
    """The common dtype of arrays, dtypes and Python numbers; Python numbers adapt to the others."""
    if not arrays_and_dtypes:
        raise OperandError("result_type: needs at least one array, dtype or number")
    plain = (bool, int, float, complex)
    return promote_specs(
        *(
            Spec((), weak(value), weak=True)
            if isinstance(value, NUMBER) and type(value) in plain
            else Spec((), _dtype(value))
            for value in arrays_and_dtypes
        )
    )


@function(public="np")
def can_cast(from_: Any, to: Any, casting: str = "safe") -> bool:
    """Whether a dtype (or that of an array) may be converted to another.

    "safe": if every value is preserved; "same_kind": also to fewer bits of the same kind; "equiv"
    and "no": only to the same dtype; "unsafe": always.

    >>> np.can_cast("int32", "int64")
    """
    return castable(_dtype(from_), as_dtype(to), casting)


@function(public="np")
def isscalar(element: Any) -> bool:
    """Whether something is a number or a string, not an array."""
    return isinstance(element, (*NUMBER, str, bytes)) or (
        type(element).__module__ == "numpy"
        and not hasattr(element, "__len__")
        and getattr(element, "ndim", 1) == 0
        and not hasattr(element, "__setitem__")
    )


# --- memory ---------------------------------------------------------------------------------


def _over_one_block(a: ndarray, b: ndarray) -> tuple[Any, Any]:
    """NumPy arrays with the layouts of these two, over a block that stands for their memory."""

    def end(x: ndarray) -> int:
        reach = sum(max(n - 1, 0) * max(s, 0) for n, s in zip(x.shape, x.strides, strict=True))
        return int((x.offset + 1) * x.dtype.itemsize + reach)

    memory = memoryview(numpy().empty(max(end(a), end(b)), "uint8"))
    return View(a, whole=True).over(memory), View(b, whole=True).over(memory)


def _memories(a: Any, b: Any) -> tuple[Any, Any] | None:
    """NumPy arrays that overlap exactly as these two do; None if they certainly do not.

    Either may be a NumPy array over memory of the other.
    """
    ours = [x for x in (a, b) if isinstance(x, ndarray)]
    if len(ours) == 2 and a._storage == b._storage:
        return _over_one_block(a, b)
    if len(ours) == 2 and not _core.exports():
        return None
    if any(x.device.linked or x.dtype.twin is not x.dtype for x in ours):
        return None  # other libraries only get copies
    return numpy().asarray(a), numpy().asarray(b)


@function(public="np")
def shares_memory(a: Any, b: Any, max_work: Any = None) -> bool:
    """Whether two arrays share an element, as one is a view of the other or both are views of a
    third."""
    found = _memories(a, b)
    return found is not None and bool(numpy().shares_memory(*found, max_work=max_work))


@function(public="np")
def may_share_memory(a: Any, b: Any, max_work: Any = None) -> bool:
    """Whether the memory ranges of two arrays overlap, so that they may share elements."""
    found = _memories(a, b)
    return found is not None and bool(numpy().may_share_memory(*found))
