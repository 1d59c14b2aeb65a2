"""Makes rnn.npz: results of MXNet 1.9.1's recurrent layers and cells, and their parameter files.

It runs with MXNet, not with gemel: pip install mxnet==1.9.1 numpy==1.23.5, then python rnn_mxnet.py
"""

from __future__ import annotations

import os
import tempfile

import numpy
from mxnet import autograd, init, nd, random
from mxnet.gluon import contrib, rnn

CASES = {
    "relu": lambda: rnn.RNN(3),
    "tanh": lambda: rnn.RNN(3, 2, "tanh", bidirectional=True),
    "lstm": lambda: rnn.LSTM(3, 2),
    "lstm_both": lambda: rnn.LSTM(3, 2, bidirectional=True, layout="NTC"),
    "gru": lambda: rnn.GRU(3, 2),
    "gru_both": lambda: rnn.GRU(3, 1, "NTC", 0, True),
    "cell_rnn": lambda: rnn.RNNCell(3),
    "cell_lstm": lambda: rnn.LSTMCell(3),
    "cell_gru": lambda: rnn.GRUCell(3),
    "cell_residual": lambda: rnn.ResidualCell(rnn.GRUCell(2)),
    "cell_both": lambda: rnn.BidirectionalCell(rnn.LSTMCell(3), rnn.GRUCell(3)),
}
#: Cells over pictures, with the shape of a picture.
CONVOLUTIONAL = {
    "cell_conv1d_rnn": (contrib.rnn.Conv1DRNNCell, (2, 6), (3, 2, 3), {"activation": "relu"}),
    "cell_conv1d_lstm": (contrib.rnn.Conv1DLSTMCell, (2, 6), (3, 3, 3), {"i2h_pad": 1}),
    "cell_conv2d_lstm": (
        contrib.rnn.Conv2DLSTMCell,
        (2, 5, 4),
        (2, (2, 3), (3, 1)),
        {"i2h_pad": (1, 1), "i2h_dilate": (2, 1), "h2h_dilate": 2},
    ),
    "cell_conv2d_gru": (contrib.rnn.Conv2DGRUCell, (2, 5, 4), (2, 3, 3), {"activation": "relu"}),
    "cell_conv3d_gru": (contrib.rnn.Conv3DGRUCell, (1, 3, 4, 3), (2, (1, 2, 3), 1), {}),
}
LENGTHS = [2, 4, 1]


def run(name: str, net, x) -> tuple[list, list]:
    """Outputs and last states, and the outputs for sequences of the lengths LENGTHS."""
    if name.startswith("cell"):
        outputs, states = net.unroll(4, x, layout="TNC", merge_outputs=True)
        lengths = nd.array(LENGTHS)
        cut, ends = net.unroll(4, x, layout="TNC", merge_outputs=True, valid_length=lengths)
        return [outputs, *states], [cut, *ends]
    batch = 4 if "both" in name else 3
    states = [nd.ones(state.shape) for state in net.begin_state(batch_size=batch)]
    outputs, ends = net(x, states)
    return [outputs, *ends], []


def tuple_of(value, shape):
    return value if isinstance(value, tuple) else (value,) * (len(shape) - 1)


def main() -> None:
    random.seed(1)
    x = nd.random.normal(shape=(4, 3, 2))
    found = {"x": x.asnumpy()}
    nets = [(name, make(), x) for name, make in CASES.items()]
    for name, (kind, shape, given, settings) in CONVOLUTIONAL.items():
        settings = {k: v if k == "activation" else tuple_of(v, shape) for k, v in settings.items()}
        pictures = numpy.random.RandomState(1).normal(size=(4, 3, *shape)).astype("float32")
        found[f"{name}.x"] = pictures
        nets.append((name, kind(shape, *given, **settings), nd.array(pictures)))
    for name, net, x in nets:
        net.initialize(init.Uniform(0.8))
        with autograd.record():
            first, second = run(name, net, x)
            total = (first[0] * first[0]).sum()
        total.backward()
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "net.params")
            net.save_parameters(path)
            with open(path, "rb") as file:
                found[f"{name}.file"] = numpy.frombuffer(file.read(), "uint8")
        for kind, arrays in (("whole", first), ("cut", second)):
            for number, array in enumerate(arrays):
                found[f"{name}.{kind}.{number}"] = array.asnumpy()
        biases = [p for n, p in net.collect_params().items() if n.endswith("i2h_bias")]
        found[f"{name}.bias_gradient"] = biases[0].grad().asnumpy()
    numpy.savez_compressed(os.path.join(os.path.dirname(__file__), "rnn.npz"), **found)


if __name__ == "__main__":
    main()
