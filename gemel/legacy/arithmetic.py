"""MXNet's elementwise operations, reductions, products, and functions that create arrays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gemel import np, npx
from gemel.legacy.declare import Legacy, Written, legacy, same, written

# --- unary operations -----------------------------------------------------------------------


def _unary(function: Callable[..., Any], *names: str) -> None:
    def operation(data: Any) -> Any:
        return function(data)

    operation.__doc__ = getattr(function, "__doc__", None) or f"{names[0]} of each element."
    Legacy(operation, names)


for _name in (
    *("exp", "log", "log2", "log10", "log1p", "expm1", "sqrt", "cbrt", "square", "reciprocal"),
    *("sin", "cos", "tan", "arcsin", "arccos", "arctan", "sinh", "cosh", "tanh", "arcsinh"),
    *("arccosh", "arctanh", "degrees", "radians", "sign", "floor", "ceil", "trunc"),
    *("negative", "zeros_like", "ones_like"),
):
    _unary(getattr(np, _name), _name)
for _name in ("sigmoid", "relu", "erf", "erfinv", "gamma", "gammaln", "digamma", "softsign"):
    _unary(getattr(npx, _name), _name)

_unary(np.abs, "abs", "_npi_abs")
_unary(np.trunc, "fix", "_npi_fix")
_unary(lambda x: np.sign(x) * (np.floor(np.abs(x)) + (np.abs(x) % 1 >= 0.5)), "round")
_unary(lambda x: np.floor(x) + (x % 1 > 0.5), "rint")
_unary(lambda x: 1 / np.sqrt(x), "rsqrt")
_unary(lambda x: 1 / np.cbrt(x), "rcbrt")
_unary(lambda x: np.equal(x, 0).astype(x.dtype), "logical_not")
_unary(lambda x: x.copy(), "_copy", "identity", "_np_copy", "_identity_with_attr_like_rhs")
_unary(npx.stop_gradient, "BlockGrad", "stop_gradient")
_unary(lambda x: np.array(x.shape, dtype="int64").prod(keepdims=True), "size_array")


@legacy("Cast", "cast", "_npi_cast", "_npx_cast", "amp_cast")
def cast(data: Any, *, dtype: Any) -> Any:
    """The elements in another dtype."""
    return data.astype(dtype)


@legacy("clip", "_npi_clip")
def clip(data: Any, *, a_min: float | None = None, a_max: float | None = None) -> Any:
    """The elements, not below a_min and not above a_max."""
    return np.clip(data, a_min, a_max)


@written("clip")
def _(a: Any, min: Any, max: Any, a_min: Any, a_max: Any, **_: Any) -> Written | None:
    low, high = a_min if min is None else min, a_max if max is None else max
    if not isinstance(low, (int, float)) or not isinstance(high, (int, float)):
        return None
    return Written("clip", (a,), {"a_min": low, "a_max": high})


# --- binary operations, of two arrays or an array and a number ------------------------------

#: Binary operations: the function, its short names in MXNet 1, and the name of the operation with
#: a number as the second and as the first operand.
PAIRS: tuple[tuple[Callable[..., Any], str, str, str], ...] = (
    (np.add, "add plus", "plus", ""),
    (np.subtract, "sub minus subtract", "minus", "rminus"),
    (np.multiply, "mul multiply", "mul", ""),
    (np.divide, "div divide", "div", "rdiv"),
    (np.power, "power pow", "power", "rpower"),
    (np.maximum, "maximum", "maximum", ""),
    (np.minimum, "minimum", "minimum", ""),
    (np.remainder, "mod modulo", "mod", "rmod"),
    (np.hypot, "hypot", "hypot", ""),
)
#: Comparisons, whose results are numbers of the data's dtype.
COMPARISONS: tuple[tuple[Callable[..., Any], str], ...] = (
    (np.equal, "equal"),
    (np.not_equal, "not_equal"),
    (np.greater, "greater"),
    (np.greater_equal, "greater_equal"),
    (np.less, "lesser"),
    (np.less_equal, "lesser_equal"),
    (np.logical_and, "logical_and"),
    (np.logical_or, "logical_or"),
    (np.logical_xor, "logical_xor"),
)


def _pair(function: Callable[..., Any], *names: str) -> Legacy:
    def operation(lhs: Any, rhs: Any) -> Any:
        return function(lhs, rhs)

    operation.__doc__ = f"{names[0]} of each pair of elements; shapes broadcast."
    return Legacy(operation, names)


def _with_number(function: Callable[..., Any], *names: str, swapped: bool = False) -> None:
    def operation(data: Any, scalar: float = 1.0) -> Any:
        return function(scalar, data) if swapped else function(data, scalar)

    operation.__doc__ = f"{names[0]}: each element with a number."
    Legacy(operation, names, inputs=1)


def _as_data(function: Callable[..., Any]) -> Callable[..., Any]:
    def operation(a: Any, b: Any) -> Any:
        data = a if hasattr(a, "dtype") else b
        return function(a, b).astype(data.dtype)

    return operation


def _camel(name: str) -> str:
    return "".join(part.capitalize() for part in name.split("_"))


for _function, _shorts, _scalar, _reverse in PAIRS:
    _every = _shorts.split()
    _plain = (
        *(f"_{each}" for each in _every),
        *(f"_{_camel(each)}" for each in _every),
    )
    _whole = _pair(_function, *(f"broadcast_{each}" for each in _every), *_every)
    _whole.numbers = f"_{_scalar}_scalar", f"_{_reverse or _scalar}_scalar"
    if _scalar in ("plus", "minus", "mul", "div"):  # the only elemwise_ operations of MXNet
        _plain = (*(f"elemwise_{each}" for each in _every), *_plain)
    _pair(_function, *_plain)
    _with_number(_function, f"_{_scalar}_scalar", f"_{_camel(_scalar)}Scalar")
    if _reverse:
        _names = f"_{_reverse}_scalar", f"_R{_camel(_scalar)}Scalar"
        _with_number(_function, *_names, swapped=True)
for _function, _scalar in COMPARISONS:
    _compared = _as_data(_function)
    _whole = _pair(_compared, f"broadcast_{_scalar}", _scalar, f"_{_scalar}", f"_{_camel(_scalar)}")
    _turned = {"greater": "lesser", "lesser": "greater"}
    _first, *_rest = _scalar.split("_", 1)
    _whole.numbers = (
        f"_{_scalar}_scalar",
        f"_{'_'.join([_turned.get(_first, _first), *_rest])}_scalar",
    )
    _with_number(_compared, f"_{_scalar}_scalar", f"_{_camel(_scalar)}Scalar")

_pair(np.arctan2, "arctan2")


@legacy("add_n", "ElementWiseSum", "_sum", axes={"data": "..."})
def add_n(*data: Any) -> Any:
    """The sum of all arrays."""
    found = data[0]
    for each in data[1:]:
        found = found + each
    return found


# --- reductions -----------------------------------------------------------------------------


def _axes(data: Any, axis: Any, exclude: bool) -> Any:
    """The axes to use: the given ones or, with `exclude`, all others."""
    given = (axis,) if isinstance(axis, int) else axis
    if given == ():
        given = None
    if not exclude:
        return given
    count = len(data.shape)
    inside = {place % count for place in given or ()}
    return tuple(place for place in range(count) if place not in inside)


def _reduction(function: Callable[..., Any], *names: str) -> None:
    def operation(
        data: Any, axis: Any = None, keepdims: bool = False, exclude: bool = False
    ) -> Any:
        found = function(data, axis=_axes(data, axis, exclude), keepdims=keepdims)
        return found.astype(data.dtype) if found.dtype is not data.dtype else found

    operation.__doc__ = f"The {names[0]} along axes, or (`exclude`) along all others."
    Legacy(operation, names, inputs=1)


for _function, _shorts in (
    (np.sum, "sum sum_axis"),
    (np.mean, "mean"),
    (np.prod, "prod"),
    (np.max, "max max_axis"),
    (np.min, "min min_axis"),
    (np.nansum, "nansum"),
    (np.nanprod, "nanprod"),
):
    _reduction(_function, *_shorts.split())


same(npx.norm, "norm", inputs=1)


def _place(function: Callable[..., Any], *names: str) -> None:
    def operation(data: Any, axis: int | None = None, keepdims: bool = False) -> Any:
        return function(data, axis=axis, keepdims=keepdims).astype("float32")

    operation.__doc__ = f"{names[0]}: places, as numbers of float32."
    Legacy(operation, names, inputs=1)


_place(np.argmax, "argmax")
_place(np.argmin, "argmin")


@legacy("argmax_channel")
def argmax_channel(data: Any) -> Any:
    """The position of the largest element along axis 1, as float32."""
    return np.argmax(data, axis=1).astype("float32")


@legacy("moments", inputs=1, outputs=2)
def moments(data: Any, axes: Any = None, keepdims: bool = False) -> Any:
    """The mean and the variance along axes."""
    return [np.mean(data, axes, keepdims=keepdims), np.var(data, axes, keepdims=keepdims)]


# --- products -------------------------------------------------------------------------------


#: The axes of matrices (`Legacy.axes`).
MATRICES = "..., rows, columns"


@legacy("dot", "_sparse_dot", axes={"lhs": "...", "rhs": "..."})
def dot(lhs: Any, rhs: Any, *, transpose_a: bool = False, transpose_b: bool = False) -> Any:
    """The product over the last axis of lhs and the first of rhs."""
    lhs = np.transpose(lhs) if transpose_a else lhs
    rhs = np.transpose(rhs) if transpose_b else rhs
    if len(lhs.shape) <= 2 and len(rhs.shape) <= 2:
        return np.dot(lhs, rhs)
    return np.tensordot(lhs, rhs, axes=1)


@legacy("_np_dot", "_npi_dot")
def np_dot(a: Any, b: Any) -> Any:
    """NumPy's dot."""
    return np.dot(a, b)


@written("dot")
def _(**given: Any) -> Written | None:
    a, b = list(given.values())[:2]
    if not hasattr(a, "spec") or not hasattr(b, "spec"):
        return None
    return Written("_np_dot", (a, b), {})


same(npx.batch_dot, "batch_dot", "_npx_batch_dot", inputs=2)


@written("batch_dot")
def _(a: Any, b: Any, **settings: Any) -> Written:
    return Written("batch_dot", (a, b), settings)


@legacy("_npi_einsum")
def einsum(*data: Any, subscripts: str, optimize: Any = 0) -> Any:
    """Sums of products, as the subscripts say."""
    return np.einsum(subscripts, *data)


@written("einsum")
def _(**given: Any) -> Written | None:
    subscripts = given.pop("subscripts", None)
    operands = given.get("operands", ())
    if not isinstance(subscripts, str) or not operands:
        return None
    settings = {"subscripts": subscripts, "optimize": 0, "num_args": len(operands)}
    return Written("_npi_einsum", tuple(operands), settings)


@legacy("_npi_tensordot_int_axes")
def tensordot_int(a: Any, b: Any, *, axes: int) -> Any:
    """The product over the last axes of a and the first of b."""
    return np.tensordot(a, b, axes)


@legacy("_npi_tensordot")
def tensordot(a: Any, b: Any, *, a_axes_summed: Any, b_axes_summed: Any) -> Any:
    """Sums of products over pairs of axes."""
    return np.tensordot(a, b, (a_axes_summed, b_axes_summed))


@legacy("linalg_gemm2", "_linalg_gemm2", inputs=2, axes={"A": MATRICES, "B": MATRICES})
def gemm2(
    A: Any,  # noqa: N803 -- MXNet's names
    B: Any,  # noqa: N803
    transpose_a: bool = False,
    transpose_b: bool = False,
    alpha: float = 1.0,
    axis: int = -2,
) -> Any:
    """alpha * A @ B, of matrices whose rows lie along `axis` and whose columns along the last."""
    left, right = A.swapaxes(axis, -2), B.swapaxes(axis, -2)
    left = left.swapaxes(-1, -2) if transpose_a else left
    found = np.matmul(left, right.swapaxes(-1, -2) if transpose_b else right) * alpha
    return found.swapaxes(axis, -2)


# --- new arrays -----------------------------------------------------------------------------


def _named(dtype: Any) -> Any:
    return None if dtype in (None, "None") else dtype


@legacy("_zeros", "_npi_zeros", "zeros", "empty", inputs=0)
def zeros(shape: Any, dtype: Any = "float32") -> Any:
    """An array of zeros."""
    return np.zeros(shape, dtype=_named(dtype))


@legacy("_ones", "_npi_ones", "ones", inputs=0)
def ones(shape: Any, dtype: Any = "float32") -> Any:
    """An array of ones."""
    return np.ones(shape, dtype=_named(dtype))


@legacy("_full", "_npi_full", "full", inputs=0)
def full(shape: Any, value: Any = None, dtype: Any = "float32", val: Any = None) -> Any:
    """An array of one value, which MXNet's functions call `val`."""
    return np.full(shape, val if value is None else value, dtype=_named(dtype))


@legacy("_npi_full_like", inputs=1)
def full_like(a: Any, fill_value: float, dtype: Any = None) -> Any:
    """An array of one value, of a's shape."""
    return np.full_like(a, fill_value, dtype=_named(dtype))


def _alike(name: str, first: str) -> None:
    @written(first)
    def rule(**given: Any) -> Written | None:
        x, *_ = given.values()
        dtype = given.get("dtype")
        if dtype not in (None, x.dtype):
            return None
        if name != "_npi_full_like":
            return Written(name, (x,), {})
        value = given.get("fill_value")
        if not isinstance(value, (int, float)):
            return None
        return Written(name, (x,), {"fill_value": float(value)})


_alike("zeros_like", "zeros_like")
_alike("ones_like", "ones_like")
_alike("_npi_full_like", "full_like")


@legacy("_arange", "_npi_arange", "arange", inputs=0)
def arange(
    start: float,
    stop: float | None = None,
    step: float = 1.0,
    repeat: int = 1,
    dtype: Any = "float32",
) -> Any:
    """Numbers from start to stop, each `repeat` times."""
    found = np.arange(0, start, step) if stop is None else np.arange(start, stop, step)
    found = found.astype(_named(dtype) or "float32")
    return np.repeat(found, repeat) if repeat != 1 else found
