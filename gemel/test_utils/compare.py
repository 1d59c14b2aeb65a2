"""Arrays compared, with tolerances that follow from their dtypes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy

from gemel import np, npx
from gemel.device import Device, current_device
from gemel.dtype import as_dtype

#: Tolerances by dtype: relative, absolute, step of finite differences. Other dtypes are exact.
TOLERANCES = {
    "bfloat16": (5e-2, 1e-1, 2.0**-4),
    "float16": (1e-2, 1e-1, 2.0**-6),
    "float32": (1e-4, 1e-3, 2.0**-9),
    "float64": (1e-5, 1e-20, 2.0**-14),
}


# --- defaults -------------------------------------------------------------------------------


def default_device() -> Device:
    """Where arrays are made."""
    return current_device()


def set_default_device(device: Device) -> None:
    """Make arrays there from now on."""
    device.__enter__()


default_context, set_default_context = default_device, set_default_device


def default_dtype() -> type:
    """float32."""
    return numpy.float32


def default_rtols() -> dict[Any, float]:
    """The relative tolerance of each floating dtype."""
    return {numpy.dtype(name): TOLERANCES[name][0] for name in ("float16", "float32", "float64")}


def default_atols() -> dict[Any, float]:
    """The absolute tolerance of each floating dtype."""
    return {numpy.dtype(name): TOLERANCES[name][1] for name in ("float16", "float32", "float64")}


def default_numeric_eps() -> dict[Any, float]:
    """The step of finite differences for each floating dtype."""
    return {numpy.dtype(name): TOLERANCES[name][2] for name in ("float16", "float32", "float64")}


def effective_dtype(dat: Any) -> Any:
    """The dtype whose tolerances are meant for this data."""
    return numpy.dtype(str(getattr(dat, "dtype", numpy.asarray(dat).dtype)))


def _tolerances(dtype: Any) -> tuple[float, float, float]:
    name = str(as_dtype(dtype))
    name = {"complex64": "float32", "complex128": "float64"}.get(name, name)
    return TOLERANCES.get(name, (0.0, 0.0, 0.0))


def get_rtol(rtol: Any = None, dtype: Any = "float64") -> Any:
    """The relative tolerance given, by dtype perhaps, or the dtype's."""
    found = rtol.get(numpy.dtype(dtype)) if isinstance(rtol, Mapping) else rtol
    return _tolerances(dtype)[0] if found is None else found


def get_atol(atol: Any = None, dtype: Any = "float64") -> Any:
    """The absolute tolerance given, by dtype perhaps, or the dtype's."""
    found = atol.get(numpy.dtype(dtype)) if isinstance(atol, Mapping) else atol
    return _tolerances(dtype)[1] if found is None else found


def get_etol(etol: float | None = None) -> float:
    """The fraction of the elements that may differ: none by default."""
    return 0 if etol is None else etol


def get_tols(x: Any, y: Any, rtol: Any, atol: Any) -> tuple[Any, Any]:
    """The tolerances for comparing two arrays, by default those of the less exact dtype."""
    dtypes = [getattr(each, "dtype", numpy.asarray(each).dtype) for each in (x, y)]
    return (
        max(get_rtol(rtol, dtype) for dtype in dtypes),
        max(get_atol(atol, dtype) for dtype in dtypes),
    )


# --- comparisons ----------------------------------------------------------------------------


def plain(value: Any) -> Any:
    """Convert to a NumPy array of a dtype that NumPy can compute with."""
    if isinstance(value, (list, tuple)):
        value = [plain(each) for each in value]
    array = value.asnumpy() if isinstance(value, np.ndarray) else numpy.asarray(value)
    return array.astype("float32") if str(array.dtype) == "bfloat16" else array


def same(a: Any, b: Any) -> bool:
    """Whether two arrays have the same shape and elements."""
    return numpy.array_equal(plain(a), plain(b))


def _close(a: Any, b: Any, rtol: Any, atol: Any, equal_nan: bool, broadcast: bool) -> Any:
    rtol, atol = get_tols(a, b, rtol, atol)
    x, y = plain(a), plain(b)
    if not broadcast and x.shape != y.shape:
        raise AssertionError(f"shapes {x.shape} and {y.shape} differ")
    return numpy.isclose(x, y, rtol=rtol, atol=atol, equal_nan=equal_nan)


def almost_equal(
    a: Any,
    b: Any,
    rtol: Any = None,
    atol: Any = None,
    equal_nan: bool = False,
    use_broadcast: bool = True,
) -> bool:
    """Whether |a - b| <= atol + rtol |b| everywhere."""
    return bool(numpy.all(_close(a, b, rtol, atol, equal_nan, use_broadcast)))


def assert_almost_equal(
    a: Any,
    b: Any,
    rtol: Any = None,
    atol: Any = None,
    names: Sequence[str] = ("a", "b"),
    equal_nan: bool = False,
    use_broadcast: bool = True,
    mismatches: Any = (10, 10),
) -> None:
    """Raise `AssertionError` unless |a - b| <= atol + rtol |b| everywhere.

    Tolerances not given are those of the less exact dtype.
    """
    assert_almost_equal_with_err(
        a, b, rtol, atol, 0, names, equal_nan, mismatches, use_broadcast=use_broadcast
    )


def assert_almost_equal_with_err(
    a: Any,
    b: Any,
    rtol: Any = None,
    atol: Any = None,
    etol: float | None = None,
    names: Sequence[str] = ("a", "b"),
    equal_nan: bool = False,
    mismatches: Any = (10, 10),
    use_broadcast: bool = True,
) -> None:
    """Like `assert_almost_equal`, but a fraction `etol` of the elements may differ."""
    good = _close(a, b, rtol, atol, equal_nan, use_broadcast)
    missed = good.size - numpy.count_nonzero(good)
    if missed <= get_etol(etol) * good.size:
        return
    rtol, atol = get_tols(a, b, rtol, atol)
    x, y = numpy.broadcast_arrays(plain(a), plain(b))
    shown = [
        f"{tuple(map(int, place))}: {names[0]}={x[tuple(place)]}, {names[1]}={y[tuple(place)]}"
        for place in numpy.argwhere(~good)[: mismatches[0]]
    ]
    raise AssertionError(
        f"{missed} of {good.size} elements differ by more than rtol={rtol}, atol={atol}\n"
        + "\n".join(shown)
    )


def assert_almost_equal_ignore_nan(
    a: Any, b: Any, rtol: Any = None, atol: Any = None, names: Sequence[str] = ("a", "b")
) -> None:
    """Like `assert_almost_equal`, for the elements that are NaN in neither array."""
    x, y = plain(a), plain(b)
    known = ~(numpy.isnan(x) | numpy.isnan(y))
    assert_almost_equal(numpy.where(known, x, 0), numpy.where(known, y, 0), rtol, atol, names)


def assert_allclose(
    a: Any, b: Any, rtol: float = 1e-7, atol: float = 0, equal_nan: bool = True
) -> None:
    """NumPy's `assert_allclose`, for arrays of other libraries too."""
    numpy.testing.assert_allclose(plain(a), plain(b), rtol, atol, equal_nan)


def assert_exception(f: Callable[..., Any], exception_type: Any, *args: Any, **kwargs: Any) -> None:
    """Raise `AssertionError` unless the call, or the computation it starts, raises this
    exception."""
    try:
        f(*args, **kwargs)
        npx.waitall()
    except exception_type:
        return
    raise AssertionError(f"{f} did not raise {exception_type}")


def compare_ndarray_tuple(t1: Any, t2: Any, rtol: Any = None, atol: Any = None) -> None:
    """Compare arrays, tuples of them, or None."""
    if isinstance(t1, tuple):
        for one, other in zip(t1, t2, strict=True):
            compare_ndarray_tuple(one, other, rtol, atol)
    elif t1 is not None or t2 is not None:
        assert_almost_equal(t1, t2, rtol=rtol, atol=atol)


def same_array(array1: Any, array2: Any) -> bool:
    """Whether two arrays share the memory of their elements."""
    return bool(np.shares_memory(array1, array2))


def collapse_sum_like(a: Any, shape: Sequence[int]) -> Any:
    """Sum an array to a shape that broadcasts to its own."""
    a = plain(a)
    a = a.sum(axis=tuple(range(a.ndim - len(shape))))
    return a.sum(axis=tuple(i for i, n in enumerate(shape) if n != a.shape[i]), keepdims=True)


def np_reduce(dat: Any, axis: Any, keepdims: bool, numpy_reduce_func: Callable[..., Any]) -> Any:
    """Reduce over several axes with a function that takes one axis."""
    axes = range(dat.ndim) if axis is None else [axis] if isinstance(axis, int) else axis
    places = {each % dat.ndim for each in axes}
    found = dat
    for place in sorted(places, reverse=True):
        found = numpy_reduce_func(found, axis=place)
    kept = [1 if i in places else n for i, n in enumerate(dat.shape)]
    return found.reshape(kept) if keepdims else found


__all__ = [
    "almost_equal",
    "assert_allclose",
    "assert_almost_equal",
    "assert_almost_equal_ignore_nan",
    "assert_almost_equal_with_err",
    "assert_exception",
    "collapse_sum_like",
    "compare_ndarray_tuple",
    "default_atols",
    "default_context",
    "default_device",
    "default_dtype",
    "default_numeric_eps",
    "default_rtols",
    "effective_dtype",
    "get_atol",
    "get_etol",
    "get_rtol",
    "get_tols",
    "np_reduce",
    "same",
    "same_array",
    "set_default_context",
    "set_default_device",
]
