"""A table of layers and small networks with the shapes of their inputs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from gemel import np, npx
from gemel.gluon import nn, rnn


class LayerCase(NamedTuple):
    """How to make a network, and the shapes of the inputs it is called with."""

    name: str
    make: Callable[[], Any]
    shapes: tuple[tuple[int, ...], ...]
    dtype: str = "float32"

    def __str__(self) -> str:
        return self.name

    def inputs(self, batch: int) -> list[Any]:
        """Inputs with `batch` examples."""
        axis = 1 if self.name in ("RNN", "LSTM", "loops", "order") else 0
        shapes = ((*s[:axis], batch, *s[axis + 1 :]) for s in self.shapes)
        if self.dtype != "float32":
            return [np.random.randint(0, 5, size=s) for s in shapes]
        return [np.random.normal(size=s) for s in shapes]


def stacked(*layers: Any) -> Any:
    """The layers in sequence."""
    net = nn.HybridSequential()
    net.add(*layers)
    return net


def joined() -> Any:
    """Two branches side by side."""
    net = nn.HybridConcatenate()
    net.add(nn.Dense(2), nn.Dense(3, activation="tanh"))
    return net


class Several(nn.HybridBlock):
    """Two inputs, three outputs."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Dense(3), nn.Dense(3)

    def forward(self, x: Any, y: Any) -> Any:
        h = self.first(x) + self.second(y)
        return h, npx.softmax(h), np.concatenate([x, h], axis=1)


class Shared(nn.HybridBlock):
    """Two layers that share one weight."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Dense(4, in_units=4)
        self.second = nn.Dense(4, in_units=4, params=self.first.params)

    def forward(self, x: Any) -> Any:
        return self.second(self.first(x))


class Constants(nn.HybridBlock):
    """A constant parameter, which is not trained."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = self.params.get_constant("scale", np.array([[1.0, 2.0, 3.0]]))
        self.dense = nn.Dense(2)

    def forward(self, x: Any) -> Any:
        return self.dense(x * self.scale.data() + 1)


class OldStyle(nn.HybridBlock):
    """`hybrid_forward` with MXNet 1's operations."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = self.params.get("weight", shape=(3, 3))

    def hybrid_forward(self, F: Any, x: Any, weight: Any) -> Any:
        y = F.FullyConnected(x, weight, None, num_hidden=3, no_bias=True)
        y = F.Activation(y, act_type="tanh")
        z = F.reshape(F.concat(x, y, dim=1), shape=(0, 2, -1))
        z = F.mean(z, axis=0, exclude=True) + F.sum(F.broadcast_add(x, y), axis=1)
        parts = F.SliceChannel(F.slice_axis(x, axis=1, begin=0, end=2), num_outputs=2, axis=1)
        return F.stack(z, F.squeeze(parts[0], axis=1), axis=1), F.dot(x, weight)


class Operations(nn.HybridBlock):
    """Operations of np and npx, written as users write them."""

    def forward(self, x: Any) -> Any:
        a = np.exp(x) * 2 - 1 / (np.abs(x) + 3)
        b = np.where(x > 0, x, -x) ** 2 + np.maximum(x, 0.1) + np.clip(x, -0.5, 0.5)
        c = x.reshape(x.shape[0], -1).sum(axis=1, keepdims=True) + x.mean() + x.var(axis=0)
        d = np.stack([a, b], axis=1).mean(axis=1) + np.expand_dims(x, 1).squeeze(1)
        p, q, r = np.split(x, 3, axis=1)
        e = np.concatenate([r, p, q], axis=1) * np.tile(p, (1, 3)) + np.zeros_like(x)
        f = npx.log_softmax(x) + npx.one_hot(np.zeros_like(x[:, 1]), 3) + (x.T * 2).T
        g = npx.batch_dot(x.reshape(-1, 1, 3), x.reshape(-1, 3, 1)).reshape(-1, 1)
        h = npx.gelu(x) + npx.mish(x) + npx.hard_sigmoid(x) + npx.leaky_relu(x) + np.floor(x)
        i = x[:, ::2].max(axis=1) + npx.pick(x, np.zeros_like(x[:, 0])) + x[:, ::-1].argmax(axis=1)
        return a + b + c + d + e + f + g + h, i, x[:, None, 1:], np.dot(x, x.T)[:, :1]


class Loops(nn.HybridBlock):
    """Each kind of loop around layers, with unused states and data, and values from outside."""

    def __init__(self) -> None:
        super().__init__()
        self.step, self.then = nn.Dense(3, in_units=6), nn.Dense(3, in_units=3)

    def forward(self, x: Any, y: Any) -> Any:
        z, y = x.mean(axis=(0, 1)) * 2, y.sum(axis=(0, 1))

        def body(rows: Any, states: Any) -> Any:
            joined = np.concatenate([rows[0], states[0]], axis=1)
            h = npx.relu(self.step(joined)) + z + y
            return [h, rows[0].sum(axis=1)], [h, states[0]]

        def half(x: Any, state: Any) -> Any:
            return npx.foreach(lambda a, b: (a + b, a * b), x, state)

        start = np.zeros_like(x[0])
        (a, b), (c, d) = npx.foreach(body, [x, x * 2], [start, start])
        e, (i, f) = npx.while_loop(
            lambda i, v: i.sum() < 2,
            lambda i, v: (v * i + y, [i + 1, v + x[0]]),
            [np.zeros((1,)), start],
            max_iterations=2,
        )
        g = npx.cond(x.sum() > y.sum(), lambda v: self.then(v) + z, lambda v: v * 2, [x[0]])
        return a, b, c, d, e, i, f, g, *npx.foreach(half, x.swapaxes(1, 2), x[0, :, 0])


class Vision(nn.HybridBlock):
    """Boxes, regions and resized images."""

    def forward(self, x: Any) -> Any:
        regions = np.array([[0, 0, 0, 4, 4], [0, 1, 2, 7, 6]], dtype="float32")
        boxes = npx.sigmoid(x[:, 0]).reshape(-1, 16, 4)
        corners = np.concatenate([boxes[:, :, :2] / 2, boxes[:, :, :2] / 2 + 0.3], axis=2)
        ranked = np.concatenate([boxes[:, :, 2:], corners], axis=2)
        return (
            npx.roi_align(x, regions, (2, 2), 1.0, 2),
            npx.roi_pooling(x, regions, 2, 0.5),
            npx.box_iou(corners, corners[:, :3]),
            npx.box_nms(ranked, 0.3, coord_start=2, score_index=0),
            npx.bilinear_resize_2d(x, 5, 9),
            npx.bilinear_resize_2d(x, scale_height=2, scale_width=0.5, align_corners=False),
            npx.upsampling(x, 2),
            npx.multibox_prior(x, sizes=(0.5, 0.25), ratios=(1, 2)),
            np.pad(x, ((0, 0), (0, 0), (1, 2), (3, 0)), mode="reflect"),
            npx.l2_normalization(x, mode="channel"),
        )


class Order(nn.HybridBlock):
    """Positions, sorting, splitting and statistics."""

    def forward(self, x: Any, y: Any) -> Any:
        lengths = np.clip(y[0, :, 0] * 0 + 2, 1, 3)
        places = np.array([[0, 2]], dtype="int32")
        return (
            *npx.topk(x, 2, axis=0, ret_typ="both"),
            npx.topk(x, k=2, axis=2, ret_typ="mask"),
            np.sort(x, axis=-1),
            np.argsort(x, axis=0),
            np.sort(x, axis=0, descending=True),
            npx.sequence_mask(x, lengths, True, -1.0),
            npx.sequence_last(x, lengths, True),
            npx.sequence_reverse(x, lengths, True),
            npx.slice_like(x, y, axes=(2,)),
            npx.gather_nd(x, places),
            npx.pick(x, x[:, :, 0] * 0 + 1),
            np.where(x > 0, x, x * 0),
            npx.norm(x, axis=2),
            np.median(x, axis=2),
            *np.meshgrid(x[:, 0, 0], x[0, 0]),
            *np.split(x, (1, 3), axis=2),
            *np.array_split(x, 3, axis=0),
            *np.hsplit(y[0], 2),
            npx.smooth_l1(x, 2.0),
            npx.batch_dot(x, x, transpose_b=True),
        )


def layer(name: str, make: Callable[[], Any], *shapes: tuple[int, ...], **more: Any) -> LayerCase:
    """One line of the table."""
    return LayerCase(name, make, shapes, **more)


LINE, IMAGE, SOLID = (2, 4, 8), (2, 4, 8, 8), (2, 4, 5, 5, 5)
LAYERS = [
    layer("Dense", lambda: nn.Dense(4, activation="relu"), (2, 3)),
    layer("Dense rows", lambda: nn.Dense(4, flatten=False, use_bias=False), (2, 3, 5)),
    layer("Dense flat", lambda: nn.Dense(4), (2, 3, 5)),
    layer("Flatten", lambda: nn.Flatten(), (2, 3, 4)),
    layer("Dropout", lambda: stacked(nn.Dropout(0.5), nn.Dense(2)), (2, 3)),
    layer("BatchNorm", lambda: nn.BatchNorm(), IMAGE),
    layer("BatchNorm last", lambda: nn.BatchNorm(axis=-1, scale=False, center=False), (2, 3, 4)),
    layer("LayerNorm", lambda: nn.LayerNorm(), (2, 3)),
    layer("GroupNorm", lambda: nn.GroupNorm(num_groups=2), IMAGE),
    layer("InstanceNorm", lambda: nn.InstanceNorm(), IMAGE),
    layer("Embedding", lambda: nn.Embedding(10, 4), (2, 3), dtype="int64"),
    layer("Conv1D", lambda: nn.Conv1D(3, 3, padding=1, activation="relu"), LINE),
    layer("Conv2D", lambda: nn.Conv2D(3, 3, strides=2, padding=1), IMAGE),
    layer("Conv2D groups", lambda: nn.Conv2D(6, 3, groups=2, use_bias=False, dilation=2), IMAGE),
    layer("Conv3D", lambda: nn.Conv3D(3, 3), SOLID),
    layer("Conv1DTranspose", lambda: nn.Conv1DTranspose(3, 3, strides=2), LINE),
    layer("Conv2DTranspose", lambda: nn.Conv2DTranspose(3, 3, 2, 1, output_padding=1), IMAGE),
    layer("Conv3DTranspose", lambda: nn.Conv3DTranspose(3, 3), SOLID),
    layer("Conv1D last", lambda: nn.Conv1D(3, 2, layout="NWC"), (2, 5, 4)),
    layer("Conv2D last", lambda: nn.Conv2D(6, (3, 2), groups=2, layout="NHWC"), (2, 5, 6, 4)),
    layer(
        "Conv2DTranspose last",
        lambda: nn.Conv2DTranspose(3, (3, 2), layout="NHWC", use_bias=False),
        (2, 5, 6, 4),
    ),
    layer("MaxPool1D", lambda: nn.MaxPool1D(2), LINE),
    layer("MaxPool2D", lambda: nn.MaxPool2D(3, 2, 1, ceil_mode=True), IMAGE),
    layer("MaxPool3D", lambda: nn.MaxPool3D(2), SOLID),
    layer("AvgPool1D", lambda: nn.AvgPool1D(2), LINE),
    layer("AvgPool2D", lambda: nn.AvgPool2D(3, 2, 1, count_include_pad=False), IMAGE),
    layer("AvgPool3D", lambda: nn.AvgPool3D(2), SOLID),
    layer("GlobalMaxPool1D", lambda: nn.GlobalMaxPool1D(), LINE),
    layer("GlobalMaxPool2D", lambda: nn.GlobalMaxPool2D(), IMAGE),
    layer("GlobalMaxPool3D", lambda: nn.GlobalMaxPool3D(), SOLID),
    layer("GlobalAvgPool1D", lambda: nn.GlobalAvgPool1D(), LINE),
    layer("GlobalAvgPool2D", lambda: nn.GlobalAvgPool2D(), IMAGE),
    layer("GlobalAvgPool3D", lambda: nn.GlobalAvgPool3D(), SOLID),
    layer("AdaptiveMaxPool1D", lambda: nn.AdaptiveMaxPool1D(3), LINE),
    layer("AdaptiveMaxPool2D", lambda: nn.AdaptiveMaxPool2D((4, 3)), IMAGE),
    layer("AdaptiveMaxPool3D", lambda: nn.AdaptiveMaxPool3D(2), SOLID),
    layer("AdaptiveAvgPool1D", lambda: nn.AdaptiveAvgPool1D(3), LINE),
    layer("AdaptiveAvgPool2D", lambda: nn.AdaptiveAvgPool2D((4, 3)), IMAGE),
    layer("AdaptiveAvgPool3D", lambda: nn.AdaptiveAvgPool3D((2, 3, 1)), SOLID),
    layer("LeakyReLU", lambda: nn.LeakyReLU(0.1), (2, 3)),
    layer("PReLU", lambda: nn.PReLU(in_channels=3), (2, 3, 4)),
    layer("ELU", lambda: nn.ELU(0.7), (2, 3)),
    layer("SELU", lambda: nn.SELU(), (2, 3)),
    layer("GELU", lambda: nn.GELU(), (2, 3)),
    layer("GELU tanh", lambda: nn.GELU("tanh"), (2, 3)),
    layer("SiLU", lambda: nn.SiLU(), (2, 3)),
    layer("Swish", lambda: nn.Swish(1.5), (2, 3)),
    *(
        layer(f"Activation {kind}", lambda kind=kind: nn.Activation(kind), (2, 3))
        for kind in ("relu", "tanh", "sigmoid", "softrelu", "softsign", "gelu")
    ),
    layer("PixelShuffle1D", lambda: nn.PixelShuffle1D(2), LINE),
    layer("PixelShuffle2D", lambda: nn.PixelShuffle2D(2), IMAGE),
    layer("PixelShuffle3D", lambda: nn.PixelShuffle3D((2, 2, 1)), SOLID),
    layer("ReflectionPad2D", lambda: nn.ReflectionPad2D(2), IMAGE),
    layer("DeformableConvolution", lambda: nn.DeformableConvolution(3, 2, padding=1), IMAGE),
    layer(
        "ModulatedDeformableConvolution",
        lambda: nn.ModulatedDeformableConvolution(3, 2, offset_weight_initializer=None),
        IMAGE,
    ),
    layer("SyncBatchNorm", lambda: nn.SyncBatchNorm(), IMAGE),
    layer("Identity", lambda: nn.Identity(), (2, 3)),
    layer("HybridLambda", lambda: nn.HybridLambda("tanh"), (2, 3)),
    layer("HybridConcatenate", joined, (2, 3)),
    layer("RNN", lambda: rnn.RNN(3, activation="tanh"), (3, 2, 3)),
    layer("LSTM", lambda: rnn.LSTM(3, bidirectional=True), (3, 2, 3)),
    layer("GRU", lambda: rnn.GRU(3, layout="NTC"), (2, 4, 3)),
    layer("several outputs", Several, (2, 3), (2, 4)),
    layer("shared parameters", Shared, (2, 4)),
    layer("constant parameters", Constants, (2, 3)),
    layer("hybrid_forward", OldStyle, (2, 3)),
    layer("operations", Operations, (2, 3)),
    layer("vision", Vision, IMAGE),
    layer("order", Order, (4, 2, 4), (1, 2, 2)),
    layer("loops", Loops, (4, 2, 3), (1, 2, 3)),
]
