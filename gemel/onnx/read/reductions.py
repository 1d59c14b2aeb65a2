"""Operators along axes: sums, extremes, softmax; matrix products."""

from __future__ import annotations

from typing import Any

from gemel import np, npx
from gemel.onnx.read.table import imports
from gemel.spec import product


def _axes(node: Any, x: Any, axes: Any) -> tuple[int, ...] | None:
    """The axes of a reduction; None for no axes at all."""
    found = node.numbers(axes, "axes")
    if not found:
        return None if node.get("noop_with_empty_axes", 0) else tuple(range(x.ndim))
    return tuple(found)


def _reduces(name: str, rule: Any) -> None:
    """Declare a reduction: rule(x, axis, keepdims)."""

    def reduced(node: Any, x: Any, axes: Any = None) -> Any:
        over = _axes(node, x, axes)
        if over is None:
            return x if name not in ELEMENTWISE else ELEMENTWISE[name](x)
        return rule(x, over, bool(node.get("keepdims", 1))).astype(x.dtype)

    imports(name, known=(1,))(reduced)


#: The result of a reduction over no axes, where it is not the array itself.
ELEMENTWISE = {
    "ReduceL1": np.absolute,
    "ReduceL2": np.absolute,
    "ReduceLogSum": np.log,
    "ReduceSumSquare": np.square,
}
REDUCTIONS = {
    "ReduceL1": lambda x, axes, keep: np.absolute(x).sum(axis=axes, keepdims=keep),
    "ReduceL2": lambda x, axes, keep: np.sqrt(np.square(x).sum(axis=axes, keepdims=keep)),
    "ReduceLogSum": lambda x, axes, keep: np.log(x.sum(axis=axes, keepdims=keep)),
    "ReduceLogSumExp": lambda x, axes, keep: _log_sum_exp(x, axes, keep),
    "ReduceMax": lambda x, axes, keep: _extreme(np.max, x, axes, keep),
    "ReduceMean": lambda x, axes, keep: x.mean(axis=axes, keepdims=keep),
    "ReduceMin": lambda x, axes, keep: _extreme(np.min, x, axes, keep),
    "ReduceProd": lambda x, axes, keep: x.prod(axis=axes, keepdims=keep),
    "ReduceSum": lambda x, axes, keep: x.sum(axis=axes, keepdims=keep),
    "ReduceSumSquare": lambda x, axes, keep: np.square(x).sum(axis=axes, keepdims=keep),
}


def _is_empty(x: Any, axes: tuple[int, ...]) -> bool:
    return any(type(x.shape[axis]) is int and x.shape[axis] == 0 for axis in axes)


def _extreme(function: Any, x: Any, axes: tuple[int, ...], keep: bool) -> Any:
    """The maximum or minimum; without elements, the lowest or highest value of the dtype."""
    if not _is_empty(x, axes):
        return function(x, axis=axes, keepdims=keep)
    least = function is np.max
    if x.dtype.is_floating:
        end: Any = float("-inf") if least else float("inf")
    elif x.dtype == "bool":
        end = not least
    else:
        end = np.iinfo(x.dtype).min if least else np.iinfo(x.dtype).max
    return x.sum(axis=axes, keepdims=keep).astype(x.dtype) * 0 + np.array(end, dtype=x.dtype)


def _log_sum_exp(x: Any, axes: tuple[int, ...], keep: bool) -> Any:
    if _is_empty(x, axes):
        return np.log(x.sum(axis=axes, keepdims=keep))
    return npx.logsumexp(x, axis=axes, keepdims=keep)


for _name, _rule in REDUCTIONS.items():
    _reduces(_name, _rule)


@imports("ArgMax", "ArgMin")
def _(node: Any, x: Any) -> Any:
    function = np.argmax if node.kind == "ArgMax" else np.argmin
    axis, keep = node.get("axis", 0), bool(node.get("keepdims", 1))
    if not node.get("select_last_index", 0):
        return function(x, axis=axis, keepdims=keep)
    last = x.shape[axis] - 1
    return last - function(np.flip(x, axis), axis=axis, keepdims=keep)


@imports("CumSum", "CumProd", known=(1,))
def _(node: Any, x: Any, axis: Any) -> Any:
    place = node.number(axis) % x.ndim
    reverse = node.get("reverse", 0)
    x = np.flip(x, place) if reverse else x
    function = np.cumsum if node.kind == "CumSum" else np.cumprod
    found = function(x, axis=place).astype(x.dtype)
    if node.get("exclusive", 0):
        lead = (slice(None),) * place
        start = np.full_like(x[lead + (slice(0, 1),)], 0 if node.kind == "CumSum" else 1)
        found = np.concatenate([start, found[lead + (slice(0, -1),)]], axis=place)
    return np.flip(found, place) if reverse else found


# --- softmax ----------------------------------------------------------------------------------


@imports("Softmax", "LogSoftmax", "Hardmax")
def _(node: Any, x: Any) -> Any:
    axis = node.get("axis", -1 if node.opset >= 13 else 1)
    if node.opset >= 13:
        return SOFT[node.kind](x, axis)
    place = axis % x.ndim if x.ndim else 0
    rows = np.reshape(x, (product(x.shape[:place]), product(x.shape[place:])))
    return np.reshape(SOFT[node.kind](rows, -1), x.shape)


def _hardmax(x: Any, axis: int) -> Any:
    places = np.argmax(x, axis=axis)
    lanes = npx.one_hot(places, int(x.shape[axis]), dtype=x.dtype)
    return np.moveaxis(lanes, -1, axis)


SOFT = {
    "Softmax": lambda x, axis: npx.softmax(x, axis=axis),
    "LogSoftmax": lambda x, axis: npx.log_softmax(x, axis=axis),
    "Hardmax": _hardmax,
}


# --- products ---------------------------------------------------------------------------------


@imports("MatMul")
def _(node: Any, a: Any, b: Any) -> Any:
    return np.matmul(a, b).astype(a.dtype)


@imports("Gemm")
def _(node: Any, a: Any, b: Any, c: Any = None) -> Any:
    alpha, beta = node.get("alpha", 1.0), node.get("beta", 1.0)
    a = a.T if node.get("transA", 0) else a
    shifted = c is not None and beta == 1 and c.ndim == 1 and c.shape[0] == b.shape[0]
    if node.get("transB", 0) and alpha == 1 and (c is None or shifted):
        return npx.fully_connected(a, b, c, no_bias=c is None, flatten=False)
    found = np.matmul(a, b.T if node.get("transB", 0) else b)
    found = found if alpha == 1 else found * alpha
    if c is None:
        return found
    return (found + (c if beta == 1 else c * beta)).astype(a.dtype)


@imports("Einsum")
def _(node: Any, *inputs: Any) -> Any:
    return np.einsum(node.get("equation").replace(" ", ""), *inputs)


@imports("Det")
def _(node: Any, x: Any) -> Any:
    return np.linalg.det(x)


@imports("LpNormalization")
def _(node: Any, x: Any) -> Any:
    axis = node.get("axis", -1)
    if node.get("p", 2) == 1:
        size = np.absolute(x).sum(axis=axis, keepdims=True)
    else:
        size = np.sqrt(np.square(x).sum(axis=axis, keepdims=True))
    return np.where(size == 0, 0, x / np.where(size == 0, 1, size))
