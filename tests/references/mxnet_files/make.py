"""Write the files in this folder: networks of MXNet 1.9.1, and its results for them.

Run with MXNet 1.9.1 and NumPy 1.23.5 in an environment of their own: ``python make.py``. Each case
is a symbol file, a parameter file, and a file of inputs (x0, ...) and outputs (y0, ...).
"""

from __future__ import annotations

import mxnet as mx
from mxnet import autograd
from mxnet.gluon import nn


def stacked(*layers):
    net = nn.HybridSequential()
    net.add(*layers)
    return net


class Branches(nn.HybridBlock):
    """Two inputs, several outputs, and operations of np and npx."""

    def __init__(self, **settings):
        super().__init__(**settings)
        self.first, self.second = nn.Dense(3), nn.Dense(3)

    def hybrid_forward(self, F, x, y):
        h = F.npx.relu(self.first(x)) + self.second(y) * 2 - 1
        joined = F.np.concatenate([x, h], axis=1)
        centred = (h - h.mean(axis=1, keepdims=True)) / (1 + F.np.abs(h))
        parts = F.np.split(joined, 3, axis=1)
        last = F.np.where(h > 0, h, F.np.exp(h)) ** 2
        return (
            centred,
            F.npx.softmax(joined),
            parts[1],
            F.np.stack([last, h], axis=1),
            1 / (h * h + 1),
        )


class Shapes(nn.HybridBlock):
    """Operations of np and npx that move elements."""

    def hybrid_forward(self, F, x):
        a = F.npx.reshape(x, (-2, -5, -1))
        b = F.np.transpose(x, (0, 2, 1, 3)).reshape(-1, 12)
        c = F.np.squeeze(F.np.expand_dims(x, 1), 1).sum(axis=(1, 2))
        d = F.np.max(x, axis=-1) + F.np.min(x, axis=-1) + F.np.prod(x, axis=3) * F.np.sum(x, axis=3)
        e = F.npx.slice(x, begin=(None, 1), end=(None, 3))
        f = F.np.tile(x, (1, 1, 2, 1)).swapaxes(1, 2)
        g = F.np.repeat(x, 2, axis=1)
        h = F.npx.pick(b, F.np.argmax(b, axis=1))
        i = (
            F.np.cumsum(x, axis=1)
            + F.np.flip(x, 1)
            + F.np.clip(x, -0.5, 0.5)
            + F.np.sqrt(F.np.square(x))
        )
        j = F.np.dot(b, b.T), F.npx.batch_dot(d, d, transpose_b=True)
        return a, b, c, d, e, f, g, h, i, F.np.var(x, axis=1), F.np.std(x, axis=1), *j


def numpy_cases():
    """Networks in MXNet's NumPy mode."""
    random = mx.np.random.normal
    image = (2, 4, 9, 9)
    yield (
        "mlp",
        stacked(
            nn.Dense(5, activation="relu"), nn.Dense(4, flatten=False), nn.Dense(2, use_bias=False)
        ),
        [random(size=(3, 2, 3))],
    )
    yield (
        "lenet",
        stacked(
            nn.Conv2D(3, kernel_size=3, padding=1, activation="sigmoid"),
            nn.AvgPool2D(2, 2),
            nn.Conv2D(4, kernel_size=3, strides=2, use_bias=False),
            nn.BatchNorm(),
            nn.Activation("relu"),
            nn.GlobalAvgPool2D(),
            nn.Flatten(),
            nn.Dropout(0.3),
            nn.Dense(2),
        ),
        [random(size=image)],
    )
    yield (
        "pools",
        stacked(
            nn.MaxPool2D(3, 2, 1, ceil_mode=True),
            nn.AvgPool2D(3, 1, 1, count_include_pad=False),
            nn.Conv2DTranspose(4, 3, strides=2, padding=1, output_padding=1, groups=2),
            nn.Conv2D(4, 3, groups=4, dilation=2),
            nn.GlobalMaxPool2D(),
        ),
        [random(size=image)],
    )
    yield (
        "line",
        stacked(nn.Conv1D(4, 3), nn.MaxPool1D(2), nn.Conv1DTranspose(3, 2), nn.AvgPool1D(2)),
        [random(size=(2, 3, 9))],
    )
    yield (
        "solid",
        stacked(nn.Conv3D(2, 2), nn.MaxPool3D(2), nn.Conv3DTranspose(2, 2), nn.GlobalAvgPool3D()),
        [random(size=(2, 1, 5, 5, 5))],
    )
    yield (
        "norms",
        stacked(nn.LayerNorm(), nn.BatchNorm(scale=False, axis=-1)),
        [random(size=(2, 3, 4))],
    )
    yield (
        "activations",
        stacked(
            nn.LeakyReLU(0.1),
            nn.PReLU(),
            nn.ELU(0.7),
            nn.SELU(),
            nn.GELU(),
            nn.Swish(1.5),
            nn.Activation("tanh"),
            nn.Activation("softrelu"),
            nn.Activation("softsign"),
        ),
        [random(size=(2, 5))],
    )
    yield (
        "embedding",
        stacked(nn.Embedding(7, 3), nn.Dense(2, flatten=False)),
        [mx.np.array([[1, 2, 3], [4, 5, 6]])],
    )
    yield "branches", Branches(), [random(size=(2, 3)), random(size=(2, 4))]
    yield "shapes", Shapes(), [random(size=(2, 3, 4, 2))]


def legacy_cases():
    """Symbols with MXNet 1's own operations."""
    sym, x = mx.sym, mx.sym.var("data")
    y = sym.Convolution(x, num_filter=4, kernel=(3, 3), pad=(1, 1), name="conv")
    y = sym.Activation(sym.BatchNorm(y, fix_gamma=False, name="norm"), act_type="relu")
    y = sym.Pooling(y, kernel=(2, 2), stride=(2, 2), pool_type="max", name="pool")
    y = sym.FullyConnected(sym.Flatten(y), num_hidden=3, name="fc")
    yield "classic", sym.SoftmaxOutput(y, name="softmax"), {"data": (2, 2, 6, 6)}
    a, b = sym.var("a"), sym.var("b")
    c = (a + b) * 2 - a / (b * b + 1) + (3 - a) + sym.maximum(a, b) + a**2 + 2 / (sym.abs(a) + 1)
    d = sym.broadcast_add(c, sym.mean(a, axis=1, keepdims=True)) + sym.broadcast_mul(
        a, sym.sum(b, axis=0, keepdims=True)
    )
    parts = sym.SliceChannel(d, num_outputs=2, axis=1)
    e = sym.Concat(parts[0], parts[1], parts[0], dim=1)
    f = sym.Reshape(e, shape=(0, -4, 3, -1)) + 0
    g = sym.transpose(f, axes=(0, 2, 1))
    outs = [
        d,
        e,
        g,
        sym.slice_axis(g, axis=1, begin=0, end=1),
        sym.Reshape(g, shape=(-3, 0)),
        sym.mean(g, axis=1, exclude=True),
        sym.dot(a, b, transpose_b=True),
        sym.stack(a, b, axis=1),
        sym.expand_dims(a, axis=1),
        sym.SwapAxis(g, dim1=0, dim2=2),
        sym.softmax(a),
        sym.log_softmax(a),
        sym.clip(a, -1, 0.5),
        sym.where(a > b, a, b),
        sym.argmax(a, axis=1),
        sym.norm(a, axis=1),
        sym.slice(a, begin=(0, 1), end=(2, 3)),
        sym.flip(a, axis=1),
        sym.tile(a, reps=(1, 2)),
        sym.one_hot(sym.argmax(a, axis=1), depth=4),
        sym.broadcast_greater(a, b),
        sym.topk(a, k=2, ret_typ="value"),
        sym.L2Normalization(a),
        sym.ElementWiseSum(a, b, a),
        sym.LeakyReLU(a, slope=0.3),
        sym.square(a),
        sym.rsqrt(sym.abs(b)),
        sym.pad(
            sym.Reshape(a, shape=(1, 1, 2, 4)), mode="edge", pad_width=(0, 0, 0, 0, 1, 1, 2, 0)
        ),
        sym.batch_dot(sym.expand_dims(a, 1), sym.expand_dims(b, 1), transpose_b=True),
        sym.Cast(a > 0, dtype="float64"),
        sym.UpSampling(sym.Reshape(a, shape=(1, 1, 2, 4)), scale=2, sample_type="nearest"),
    ]
    yield "arithmetic", sym.Group(outs), {"a": (2, 4), "b": (2, 4)}
    h = sym.LRN(x, nsize=3) + sym.Deconvolution(x, num_filter=2, kernel=(1, 1), name="up") * 0.5
    yield (
        "lrn",
        sym.InstanceNorm(h, name="instance") + sym.LayerNorm(h, name="layer"),
        {"data": (2, 2, 3, 4)},
    )
    z = sym.RNN(
        x,
        sym.var("weights"),
        sym.var("h0"),
        sym.var("c0"),
        state_size=3,
        num_layers=2,
        mode="lstm",
        bidirectional=True,
        state_outputs=True,
        name="lstm",
    )
    yield "lstm", sym.Group(list(z)), {"data": (4, 2, 2)}
    z = sym.RNN(
        x, sym.var("weights"), sym.var("h0"), state_size=3, num_layers=1, mode="gru", name="gru"
    )
    yield "gru", z, {"data": (4, 2, 2)}


def write_numpy(name, net, inputs):
    net.initialize(mx.init.Normal(0.5))
    net.hybridize()
    with autograd.record():
        net(*inputs)
    outputs = net(*inputs)
    net.export(name)
    outputs = outputs if isinstance(outputs, (list, tuple)) else [outputs]
    held = {f"x{i}": x for i, x in enumerate(inputs)}
    mx.npx.save(f"{name}.io", {**held, **{f"y{i}": y for i, y in enumerate(outputs)}})


def write_legacy(name, symbol, shapes):
    shapes_of = dict(zip(symbol.list_arguments(), symbol.infer_shape(**shapes)[0], strict=True))
    auxiliary = dict(
        zip(symbol.list_auxiliary_states(), symbol.infer_shape(**shapes)[2], strict=True)
    )
    random = lambda shape: mx.nd.random.normal(shape=shape)  # noqa: E731
    arrays = {n: random(s) for n, s in shapes_of.items()}
    states = {n: mx.nd.abs(random(s)) for n, s in auxiliary.items()}
    executor = symbol.bind(mx.cpu(), arrays, aux_states=states)
    outputs = executor.forward(is_train=False)
    held = {f"x{i}": arrays[n] for i, n in enumerate(shapes)}
    kept = {f"arg:{n}": a for n, a in arrays.items() if n not in shapes and "label" not in n}
    mx.nd.save(f"{name}-0000.params", {**kept, **{f"aux:{n}": a for n, a in states.items()}})
    mx.nd.save(f"{name}.io", {**held, **{f"y{i}": y for i, y in enumerate(outputs)}})
    symbol.save(f"{name}-symbol.json")


if __name__ == "__main__":
    mx.random.seed(0)
    for case in legacy_cases():
        write_legacy(*case)
    mx.npx.set_np()
    mx.npx.random.seed(0)
    for case in numpy_cases():
        write_numpy(*case)
