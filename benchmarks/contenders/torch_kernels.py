"""PyTorch, eager: the functions that its users call, in inference mode or with autograd."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch.nn import functional

from benchmarks.cases import Single
from benchmarks.shapes import Shape

matmul = torch.matmul
attention = functional.scaled_dot_product_attention
softmax = partial(torch.softmax, dim=-1)
copy = torch.clone
square = torch.square
CONVOLUTIONS = {3: functional.conv1d, 4: functional.conv2d, 5: functional.conv3d}


def conv(x: Any, w: Any, *, stride: int, pad: int, groups: int) -> Any:
    return CONVOLUTIONS[x.ndim](x, w, None, stride, pad, 1, groups)


conv_bfloat16, matmul_bfloat16 = conv, matmul


def pool(x: Any) -> Any:
    return functional.max_pool2d(x, 2)


def transpose(x: Any, *, axes: list[int]) -> Any:
    return x.permute(axes).contiguous()


def take(table: Any, rows: Any) -> Any:
    return table.index_select(0, rows)


def reduce(x: Any, *, how: str, axis: int) -> Any:
    return {"max": torch.amax}.get(how, getattr(torch, how))(x, axis)


def encoder(weights: list[Any], heads: int) -> Any:
    """torch's own encoder layer with these weights."""
    width = weights[2].shape[0]
    settings: dict[str, Any] = {"dropout": 0.0, "activation": "gelu", "batch_first": True}
    layer = torch.nn.TransformerEncoderLayer(width, heads, weights[4].shape[0], **settings)
    with torch.no_grad():
        for parameter, weight in zip(layer.parameters(), weights, strict=True):
            parameter.copy_(weight)
    return layer.eval()


def case(shape: Shape, threads: int) -> Single | None:
    """The function of a kind, or its gradients; their forward pass runs before each call."""
    torch.set_num_threads(threads)
    data, weights = ([torch.from_numpy(each) for each in part] for part in shape.operands())
    if shape.dtype == "bfloat16":
        data, weights = ([each.bfloat16() for each in part] for part in (data, weights))
    if shape.kind == "encoder":
        layer, arrays = encoder(weights, **shape.settings), data
    else:
        layer, arrays = partial(globals()[shape.kind], **shape.settings), [*data, *weights]

    def forward(_: Any) -> Any:
        with torch.inference_mode():
            return layer(*arrays)

    if not shape.gradients:
        return Single(forward, lambda result: [result.float().numpy()])
    head = torch.from_numpy(shape.head()).to(data[0].dtype)
    for each in arrays:
        each.requires_grad_()
    return Single(
        lambda result: torch.autograd.grad(result, arrays, head),
        lambda found: [each.float().numpy() for each in found],
        lambda: layer(*arrays),
    )
