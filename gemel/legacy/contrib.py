"""MXNet's `contrib` and other rare operations: deformable convolution, correlation, transforms."""

from __future__ import annotations

from itertools import product as pairs
from math import ceil, log
from typing import Any

from gemel import autograd, np, npx
from gemel.errors import ShapeError
from gemel.legacy.declare import IMAGES, legacy, same
from gemel.ops.steering import with_gradient

same(
    npx.deformable_convolution,
    "_contrib_DeformableConvolution",
    "_npx_deformable_convolution",
    inputs=4,
    optional=1,
)
same(
    npx.modulated_deformable_convolution,
    "_contrib_ModulatedDeformableConvolution",
    "_npx_modulated_deformable_convolution",
    inputs=5,
    optional=1,
)
same(npx.sldwin_atten_score, "_contrib_sldwin_atten_score", "_npx_sldwin_atten_score", inputs=3)
same(
    npx.sldwin_atten_context, "_contrib_sldwin_atten_context", "_npx_sldwin_atten_context", inputs=3
)
same(
    npx.sldwin_atten_mask_like,
    "_contrib_sldwin_atten_mask_like",
    "_npx_sldwin_atten_mask_like",
    inputs=3,
)

# --- tests of elements ----------------------------------------------------------------------


@legacy("_contrib_isnan", inputs=1)
def isnan(data: Any) -> Any:
    """1 where a number is NaN, else 0."""
    return np.isnan(data).astype(data.dtype)


@legacy("_contrib_isinf", inputs=1)
def isinf(data: Any) -> Any:
    """1 where a number is infinite, else 0."""
    return np.isinf(data).astype(data.dtype)


@legacy("_contrib_isfinite", inputs=1)
def isfinite(data: Any) -> Any:
    """1 where a number is finite, else 0."""
    return np.isfinite(data).astype(data.dtype)


@legacy("_contrib_allclose", inputs=2)
def allclose(a: Any, b: Any, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = True) -> Any:
    """[1] if all numbers of both are close, else [0]."""
    close = np.isclose(a, b, rtol=rtol, atol=atol, equal_nan=equal_nan).all()
    return close.astype("float32").reshape(1)


# --- transforms -----------------------------------------------------------------------------


@legacy("_contrib_fft", inputs=1, axes={"data": "..., d"})
def fft(data: Any, compute_size: int = 128) -> Any:
    """The Fourier transform of rows (..., d) as (..., 2 * d): real, imaginary, real, ..."""
    found = np.fft.fft(data, axis=-1)
    parts = np.stack([np.real(found), np.imag(found)], axis=-1)
    return parts.reshape((*data.shape[:-1], 2 * data.shape[-1])).astype(data.dtype)


@legacy("_contrib_ifft", inputs=1, axes={"data": "..., 2 * d"})
def ifft(data: Any, compute_size: int = 128) -> Any:
    """The inverse of `fft`, times d: rows (..., 2 * d) give (..., d)."""
    count = data.shape[-1] // 2
    parts = data.reshape((*data.shape[:-1], count, 2))
    found = np.fft.ifft(parts[..., 0] + parts[..., 1] * 1j, axis=-1)
    return (np.real(found) * count).astype(data.dtype)


# --- images ---------------------------------------------------------------------------------


@legacy("Correlation", inputs=2, axes={"data1": IMAGES, "data2": IMAGES})
def correlation(
    data1: Any,
    data2: Any,
    kernel_size: int = 1,
    max_displacement: int = 1,
    stride1: int = 1,
    stride2: int = 1,
    pad_size: int = 0,
    is_multiply: bool = True,
) -> Any:
    """The similarity of patches of two images (N, C, height, width), for each shift between them.

    The result has a channel for each shift, row by row: the mean of the products of the patches, or
    of their absolute differences. Dosovitskiy et al., FlowNet, ICCV 2015.
    """
    edges = ((0, 0), (0, 0), (pad_size, pad_size), (pad_size, pad_size))
    first, second = np.pad(data1, edges), np.pad(data2, edges)
    border = max_displacement + kernel_size // 2
    counts = [ceil((n - 2 * border) / stride1) for n in first.shape[2:]]
    if kernel_size % 2 == 0 or min(counts) < 1:
        raise ShapeError(
            f"Correlation: kernel_size {kernel_size} must be odd, and an image of "
            f"{list(data1.shape[2:])} with pad_size {pad_size} larger than twice {border}"
        )
    tall, wide = ((count - 1) * stride1 + kernel_size for count in counts)
    at, reach = max_displacement, max_displacement // stride2
    patch = first[:, :, at : at + tall, at : at + wide]
    found = []
    for down, right in pairs(range(-reach, reach + 1), repeat=2):
        y, x = at + down * stride2, at + right * stride2
        other = second[:, :, y : y + tall, x : x + wide]
        alike = patch * other if is_multiply else np.abs(patch - other)
        found.append(alike.mean(axis=1, keepdims=True))
    return npx.pooling(
        np.concatenate(found, axis=1),
        kernel=(kernel_size, kernel_size),
        stride=(stride1, stride1),
        pool_type="avg",
    )


# --- other operations -----------------------------------------------------------------------


@legacy("SVMOutput", inputs=2, optional=1, unread="label", axes={"data": "N, classes"})
def svm_output(
    data: Any,
    label: Any = None,
    margin: float = 1.0,
    regularization_coefficient: float = 1.0,
    use_linear: bool = False,
) -> Any:
    """data itself; with labels, its gradient is that of a one-versus-rest hinge loss.

    The loss is squared unless `use_linear`. Tang, Deep learning using linear support vector
    machines, 2013.
    """
    if label is None or not autograd.is_training():
        return data
    sign = npx.one_hot(label, data.shape[1]).astype(data.dtype) * 2 - 1
    short = margin - sign * data
    slope = np.where(short > 0, 1.0 if use_linear else 2 * short, 0.0)
    return with_gradient(data, data, -regularization_coefficient * sign * slope)


@legacy("fill_element_0index", inputs=3, axes={"lhs": "N, classes", "mhs": "N", "rhs": "N"})
def fill_element_0index(lhs: Any, mhs: Any, rhs: Any) -> Any:
    """lhs with element rhs[i] of row i replaced by mhs[i]."""
    hot = npx.one_hot(rhs, lhs.shape[1]).astype("bool")
    return np.where(hot, mhs.reshape(-1, 1), lhs)


@legacy(
    "amp_multicast",
    outputs=lambda settings: int(settings.get("num_outputs", 1)),
    axes={"data": "..."},
)
def amp_multicast(*data: Any, num_outputs: int = 1, cast_narrow: bool = False) -> list[Any]:
    """Floating arrays in the widest of their dtypes, or the narrowest."""
    sizes = sorted({(each.dtype.itemsize, each.dtype.name) for each in data})
    _, name = sizes[0 if cast_narrow else -1]
    return [each.astype(name) for each in data]


@legacy("cast_storage", inputs=1)
def cast_storage(data: Any, stype: str = "default") -> Any:
    """data itself, as arrays are dense. Raises `ShapeError` for another kind of storage."""
    if stype != "default":
        raise ShapeError(f"cast_storage: {stype!r}: gemel has no sparse arrays; use 'default'")
    return data


@legacy("_contrib_rand_zipfian", inputs=1)
def rand_zipfian(true_classes: Any, num_sampled: int, range_max: int) -> list[Any]:
    """Classes drawn with probabilities (log(k + 2) - log(k + 1)) / log(range_max + 1), like words.

    Also the expected counts of the true classes and of the drawn ones in `num_sampled` draws.
    """
    whole = log(range_max + 1)
    drawn = np.exp(np.random.uniform(0, whole, size=(num_sampled,), dtype="float64")) - 1
    drawn = drawn.astype("int64") % range_max

    def expected(classes: Any) -> Any:
        number = classes.astype("float64")
        return np.log((number + 2) / (number + 1)) / whole * num_sampled

    return [drawn, expected(true_classes), expected(drawn)]
