"""A second front end for the same back end: the part of PyTorch that the book's chapter uses.

It has no operations of its own: a `Tensor` holds a gemel array and calls gemel's functions.
Operations on tensors that require gradients are recorded, except under `no_grad`.
"""

from __future__ import annotations

from typing import Any

from gemel import np
from gemel.torch import cuda, jit, nn
from gemel.torch.tensor import Tensor, device, lifted, no_grad, unwrapped

__all__ = ["Tensor", "cuda", "device", "jit", "nn", "no_grad", "tensor"]
_device = device


def tensor(data: Any, device: Any = None, requires_grad: Any = False, **options: Any) -> Tensor:
    """A tensor with a copy of the data; `dtype=` as for arrays."""
    found = Tensor(np.array(unwrapped(data), device=_device(device), **options))
    return found.requires_grad_() if requires_grad else found


def _maker(function: Any, meaning: str) -> Any:
    def make(*size: Any, device: Any = None, requires_grad: Any = False, **options: Any) -> Tensor:
        shape = options.pop("size", size[0] if size and hasattr(size[0], "__len__") else size)
        with _device(device):
            return tensor(function(tuple(shape), **options), None, requires_grad)

    make.__doc__ = f"{meaning} of a shape: f(2, 3), f((2, 3)) or f(size=(2, 3)); dtype=, device=."
    return make


ones, zeros = _maker(np.ones, "Ones"), _maker(np.zeros, "Zeros")
randn = _maker(lambda size, **more: np.random.normal(size=size, **more), "Normal numbers")
manual_seed = np.random.seed
__getattr__ = lifted  # everything else is a function of np or npx
