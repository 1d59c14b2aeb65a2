"""Convolution, its transpose and pooling in NumPy, as plain loops over positions."""

from __future__ import annotations

import itertools
from typing import Any

import numpy

Array = numpy.ndarray[Any, Any]


def convolution(
    x: Array, weight: Array, bias: Any, stride: Any, dilate: Any, pad: Any, groups: int
) -> Array:
    """Each result is the sum of products of a kernel and the elements under it."""
    axes, kernel = x.ndim - 2, weight.shape[2:]
    x = numpy.pad(x, [(0, 0), (0, 0), *((p, p) for p in pad)])
    counts = [
        (x.shape[2 + a] - dilate[a] * (kernel[a] - 1) - 1) // stride[a] + 1 for a in range(axes)
    ]
    y = numpy.zeros((x.shape[0], weight.shape[0], *counts))
    taken, given = weight.shape[1], weight.shape[0] // groups
    for n, o in itertools.product(range(y.shape[0]), range(y.shape[1])):
        first = o // given * taken
        for place in itertools.product(*map(range, counts)):
            spans = zip(place, stride, dilate, kernel, strict=True)
            keys = (slice(i * s, i * s + d * (k - 1) + 1, d) for i, s, d, k in spans)
            seen = x[(n, slice(first, first + taken), *keys)]
            y[(n, o, *place)] = (seen * weight[o]).sum() + (0 if bias is None else bias[o])
    return y


def deconvolution(
    x: Array, weight: Array, bias: Any, stride: Any, dilate: Any, pad: Any, adj: Any, groups: int
) -> Array:
    """Each element adds a scaled kernel to the results under it."""
    axes, kernel = x.ndim - 2, weight.shape[2:]
    whole = [
        (x.shape[2 + a] - 1) * stride[a] + dilate[a] * (kernel[a] - 1) + 1 + adj[a]
        for a in range(axes)
    ]
    given, taken = weight.shape[1], weight.shape[0] // groups
    y = numpy.zeros((x.shape[0], given * groups, *whole))
    for n, c in itertools.product(range(x.shape[0]), range(x.shape[1])):
        first = c // taken * given
        for place in itertools.product(*map(range, x.shape[2:])):
            spans = zip(place, stride, dilate, kernel, strict=True)
            keys = (slice(i * s, i * s + d * (k - 1) + 1, d) for i, s, d, k in spans)
            y[(n, slice(first, first + given), *keys)] += x[(n, c, *place)] * weight[c]
    inside = (slice(p, m - p) for p, m in zip(pad, whole, strict=True))
    y = y[(slice(None), slice(None), *inside)]
    return y if bias is None else y + bias.reshape(-1, *[1] * axes)


def pooling(
    x: Array, kernel: Any, stride: Any, pad: Any, kind: str, full: bool, padded: bool, p: int = 2
) -> Array:
    """Each result depends on its window's part inside the image; averages may count padding."""
    axes = x.ndim - 2
    counts = []
    for a in range(axes):
        steps = (x.shape[2 + a] + 2 * pad[a] - kernel[a]) / stride[a]
        count = int(numpy.ceil(steps) if full else numpy.floor(steps)) + 1
        while (count - 1) * stride[a] - pad[a] >= x.shape[2 + a]:
            count -= 1
        counts.append(count)
    y = numpy.zeros((*x.shape[:2], *counts))
    for place in itertools.product(*map(range, counts)):
        starts = [i * s - b for i, s, b in zip(place, stride, pad, strict=True)]
        ends = [
            min(a + k, n + b) for a, k, n, b in zip(starts, kernel, x.shape[2:], pad, strict=True)
        ]
        keys = (slice(max(a, 0), max(b, 0)) for a, b in zip(starts, ends, strict=True))
        seen = x[(slice(None), slice(None), *keys)].reshape(*x.shape[:2], -1)
        size = seen.shape[-1]
        if padded:
            size = int(numpy.prod([b - a for a, b in zip(starts, ends, strict=True)]))
        found = {
            "max": lambda v: v.max(-1),
            "sum": lambda v: v.sum(-1),
            "avg": lambda v, size=size: v.sum(-1) / size,
            "lp": lambda v: (numpy.abs(v) ** p).sum(-1) ** (1 / p),
        }[kind](seen)
        y[(slice(None), slice(None), *place)] = found
    return y
