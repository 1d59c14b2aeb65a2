"""Small helpers of training loops."""

from __future__ import annotations

import warnings
from importlib import import_module
from numbers import Real
from typing import TYPE_CHECKING, Any

from gemel import autograd, np
from gemel.device import current_device
from gemel.errors import ArgumentError, ShapeError, unknown_attribute
from gemel.gluon.hooks import HookHandle
from gemel.ranges import check_flag
from gemel.spec import normalize_axis

if TYPE_CHECKING:
    from gemel.gluon.download import check_sha1, download
    from gemel.np import ndarray


def split_data(
    data: Any, num_slice: int, batch_axis: int = 0, even_split: bool = True
) -> list[ndarray]:
    """Split `data` into `num_slice` parts along `batch_axis`; the parts are views of an array.

    Raises `ShapeError` if the parts would differ in length, or if there are no examples. Without
    `even_split` the first parts may have one example more; with fewer examples than `num_slice`,
    each example is a part. Raises `AxisError` for an axis that `data` does not have,
    `ArgumentError` for less than one part.
    """
    data = _as_array(data)
    axis = normalize_axis("split_data", batch_axis, data.ndim)
    if not hasattr(num_slice, "__index__") or num_slice < 1:
        raise ArgumentError(
            f"split_data: {num_slice!r} parts of an array of shape {data.shape}; give a whole "
            "number, 1 or more"
        )
    size = data.shape[axis]
    if size == 0:
        raise ShapeError(
            f"split_data: 0 examples (axis {axis} of shape {data.shape}) cannot be split into "
            "parts; leave out empty batches"
        )
    check_flag("split_data", "even_split", even_split)
    if even_split and size % num_slice:
        raise ShapeError(
            f"split_data: {size} examples (axis {axis} of shape {data.shape}) do not split "
            f"into {num_slice} equal parts; use another batch size or even_split=False"
        )
    num_slice = min(num_slice, size)
    length, more = divmod(size, num_slice)
    bounds = [length * part + min(part, more) for part in range(num_slice + 1)]
    before = (slice(None),) * axis
    parts = [(*before, slice(a, b)) for a, b in zip(bounds[:-1], bounds[1:], strict=True)]
    return [data[part] for part in parts]


def split_and_load(
    data: Any,
    ctx_list: list[Any] | None = None,
    batch_axis: int = 0,
    even_split: bool = True,
    devices: list[Any] | None = None,
) -> list[ndarray]:
    """Split `data` into one part per device, and copy each part to its device; see `split_data`.

    With fewer examples than devices the last devices get nothing; let `Trainer.step` ignore their
    stale gradients then. With an empty list of devices everything goes to the current device.
    Raises `ArgumentError` if there is no list of devices, and what `split_data` raises.
    """
    places = devices if devices is not None else ctx_list
    if not isinstance(places, (list, tuple)):
        raise ArgumentError(
            f"split_and_load: devices={places!r}; give a list of devices, such as [cpu(0)]"
        )
    places = places or [current_device()]
    data = _as_array(data)
    if len(places) == 1:
        return [data.as_in_ctx(places[0])]
    parts = split_data(data, len(places), batch_axis, even_split)
    return [part.as_in_ctx(place) for part, place in zip(parts, places, strict=False)]


def _as_array(data: Any) -> ndarray:
    return data if hasattr(data, "as_in_ctx") else np.array(data)


def _wide(array: ndarray) -> ndarray:
    """The array in a dtype that can hold its square."""
    halves = ("float16", "bfloat16")
    return array.astype("float32") if str(array.dtype) in halves else array


def clip_global_norm(arrays: list[ndarray], max_norm: float, check_isfinite: bool = True) -> Any:
    """Scale `arrays` in place so that their total norm is at most `max_norm`.

    An array that is there more than once, as the gradient of tied weights, counts once. Returns
    their norm before: a number or, without `check_isfinite`, an array that is not waited for.
    Raises `ArgumentError` if there are no arrays, or no norm. Pascanu et al., On the difficulty of
    training recurrent neural networks, ICML 2013.
    """
    several = isinstance(arrays, (list, tuple)) and all(hasattr(a, "device") for a in arrays)
    if not several or not arrays:
        raise ArgumentError(
            f"clip_global_norm: there must be at least one array, in a list, not {arrays!r}"
        )
    most: Any = max_norm
    if not (hasattr(most, "shape") or (isinstance(most, Real) and float(most) >= 0)):
        raise ArgumentError(f"clip_global_norm: max_norm is {max_norm!r}; it must be 0 or more")
    arrays = list({id(array): array for array in arrays}.values())
    with autograd.pause():
        place = arrays[0].device
        norm = np.sqrt(sum(np.square(_wide(array)).sum().as_in_ctx(place) for array in arrays))
        scale = np.minimum(max_norm / (norm + 1e-8), 1.0)
        for array in arrays:
            array *= scale.as_in_ctx(array.device)
    if not check_isfinite:
        return norm
    value = float(norm)
    if value != value or value in (float("inf"), float("-inf")):
        warnings.warn(
            "clip_global_norm: the norm is not finite; the result contains NaN", stacklevel=2
        )
    return value


def __getattr__(name: str) -> Any:
    if name not in ("check_sha1", "download"):
        raise unknown_attribute(__name__, name, __all__)
    # The module for downloads takes longer to import than all the rest.
    return globals().setdefault(name, getattr(import_module("gemel.gluon.download"), name))


__all__ = [
    "HookHandle",
    "check_sha1",
    "clip_global_norm",
    "download",
    "split_and_load",
    "split_data",
]
