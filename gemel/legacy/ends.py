"""The output layers of MXNet 1: operations with the gradient of a loss, whatever follows them."""

from __future__ import annotations

from typing import Any

from gemel import autograd, np, npx
from gemel.legacy.declare import Shapes, legacy
from gemel.ops.steering import with_gradient
from gemel.spec import product

#: Output layers take arrays with any axes; numbers become arrays, too.
ANY = {"data": "...", "label": "..."}


@legacy("SoftmaxOutput", "Softmax", inputs=2, optional=1, unread="label", axes=ANY)
def softmax_output(
    data: Any,
    label: Any = None,
    grad_scale: float = 1.0,
    ignore_label: float = -1.0,
    multi_output: bool = False,
    use_ignore: bool = False,
    preserve_shape: bool = False,
    normalization: str = "null",
    out_grad: bool = False,
    smooth_alpha: float = 0.0,
) -> Any:
    """softmax over an example's classes; with labels, its gradient is that of the cross-entropy.

    The gradient that arrives is ignored or, with `out_grad`, multiplied with this one.
    """
    axis = 1 if multi_output else -1
    rows = data if multi_output or preserve_shape else npx.batch_flatten(data)
    found = npx.softmax(rows, axis=axis)
    if label is None or not autograd.is_training():
        return found.reshape(data.shape)
    if tuple(label.shape) == tuple(rows.shape):
        error = (found - label) * grad_scale
        return with_gradient(found, rows, error, scaled=out_grad).reshape(data.shape)
    classes = found.shape[axis]
    hot = npx.one_hot(label, classes, 1 - smooth_alpha, smooth_alpha / max(classes - 1, 1))
    hot = hot.astype(found.dtype)
    error = found - (np.moveaxis(hot, -1, 1) if multi_output else hot)
    counted = np.not_equal(label, ignore_label).astype(found.dtype)
    if use_ignore:
        error = error * np.expand_dims(counted, axis)
    if normalization == "valid":
        error = error / np.maximum(counted.sum(), 1)
    else:
        places = product(data.shape[2:]) if multi_output else 1
        error = error / (places * (data.shape[0] if normalization == "batch" else 1))
    return with_gradient(found, rows, error * grad_scale, scaled=out_grad).reshape(data.shape)


@softmax_output.infer
def _(shapes: Shapes, multi_output: bool = False, preserve_shape: bool = False, **_: Any) -> Shapes:
    data = shapes["data"]
    if multi_output:
        return {"label": (data[0], *data[2:])}
    return {"label": data[:-1] if preserve_shape else data[:1]}


def _output(function: Any, error: Any, name: str) -> None:
    @legacy(name, inputs=2, optional=1, unread="label", axes=ANY)
    def operation(data: Any, label: Any = None, grad_scale: float = 1.0) -> Any:
        """An output layer; with labels, its gradient is that of a loss."""
        found = function(data)
        if label is None or not autograd.is_training():
            return found
        scale = grad_scale * label.shape[0] / product(label.shape)
        return with_gradient(found, data, error(found - label.reshape(found.shape)) * scale)

    @operation.infer
    def _(shapes: Shapes, **_: Any) -> Shapes:
        return {"label": shapes["data"]}


@legacy("MakeLoss", inputs=1, axes=ANY)
def make_loss(
    data: Any, grad_scale: float = 1.0, valid_thresh: float = 0.0, normalization: str = "null"
) -> Any:
    """data itself, as an output layer whose gradient is `grad_scale`, whatever follows."""
    if not autograd.is_training():
        return data
    ones = np.ones_like(data)
    counted: Any = ones.shape[0] if normalization == "batch" else 1.0
    if normalization == "valid":
        counted = np.maximum((data > valid_thresh).astype(data.dtype).sum(), 1)
    return with_gradient(data, data, ones * grad_scale / counted)


@legacy("make_loss", axes=ANY)
def made_loss(data: Any) -> Any:
    """data itself, as an output layer whose gradient is 1, whatever follows."""
    return with_gradient(data, data, np.ones_like(data))


_output(lambda data: data, lambda error: error, "LinearRegressionOutput")
_output(lambda data: data, np.sign, "MAERegressionOutput")
_output(npx.sigmoid, lambda error: error, "LogisticRegressionOutput")
