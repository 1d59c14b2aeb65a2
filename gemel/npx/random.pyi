"""`npx.random`: random arrays that MXNet has in addition to `np.random`.

Written by `make stubs`: change what is declared instead.
"""

from typing import Any

from gemel.ndarray import ndarray

def bernoulli(
    prob: Any = None,
    logit: Any = None,
    size: Any = None,
    dtype: Any = None,
    device: Any = None,
    ctx: Any = None,
    out: Any = None,
) -> ndarray:
    """1 with probability `prob`, or 1 / (1 + exp(-logit)), else 0."""

def normal_n(
    loc: Any = 0.0,
    scale: Any = 1.0,
    batch_shape: Any = None,
    dtype: Any = None,
    device: Any = None,
    ctx: Any = None,
) -> ndarray:
    """Normal numbers in the shape batch_shape, followed by that of the parameters together."""

def seed(seed: int | None = None, device: Any = "all", ctx: Any = "all") -> None:
    """Restart the stream: the same seed and the same calls give the same numbers."""

def uniform_n(
    low: Any = 0.0,
    high: Any = 1.0,
    batch_shape: Any = None,
    dtype: Any = None,
    device: Any = None,
    ctx: Any = None,
) -> ndarray:
    """Uniform numbers in the shape batch_shape, followed by that of the bounds together."""

__all__ = [
    "bernoulli",
    "normal_n",
    "seed",
    "uniform_n",
]
