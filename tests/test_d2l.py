"""The book's own library for MXNet, from PyPI, on gemel: everything that needs no download."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

needed = ("d2l", "IPython", "matplotlib_inline", "requests", "pandas", "matplotlib")
pytestmark = pytest.mark.skipif(
    not all(importlib.util.find_spec(name) for name in needed),
    reason="the package d2l and what it imports are not installed",
)

START = """
import math, os, random, tempfile
from mxnet import autograd, gluon, init, np, npx, image
from mxnet.gluon import nn, rnn
from d2l import mxnet as d2l
npx.set_np()
np.random.seed(0)
"""

PARTS = {
    "linear regression from scratch and concise": """
data = d2l.SyntheticRegressionData(w=np.array([2, -3.4]), b=4.2, num_train=200, num_val=50)
model = d2l.LinearRegressionScratch(2, lr=0.3)
d2l.Trainer(max_epochs=4).fit(model, data)
assert abs(model.w.reshape(-1) - data.w).max() < 1
model = d2l.LinearRegression(lr=0.3)
trainer = d2l.Trainer(max_epochs=4, gradient_clip_val=5)
trainer.fit(model, data)
w, b = model.get_w_b()
assert w.shape == (1, 2) and abs(b - data.b) < 2
assert model.board.data
""",
    "classifiers": """
class Data(d2l.DataModule):
    def __init__(self, batch_size=20, shape=(1, 28, 28)):
        super().__init__()
        self.save_hyperparameters()
        self.X = np.random.normal(size=(40, *shape))
        self.y = np.array([i % 10 for i in range(40)])
    def get_dataloader(self, train):
        return self.get_tensorloader((self.X, self.y), train)
for model in (d2l.SoftmaxRegression(10, lr=0.1), d2l.LeNet(lr=0.1)):
    d2l.Trainer(max_epochs=1).fit(model, Data())
    assert 0 <= float(model.accuracy(model(Data().X), Data().y)) <= 1
d2l.LeNet().layer_summary((1, 1, 28, 28))
""",
    "recurrent networks": """
text = 'the time traveller for so it will be convenient to speak of him ' * 8
vocab = d2l.Vocab(list(text))
corpus = [vocab[token] for token in text]
class Data(d2l.DataModule):
    batch_size, num_steps = 16, 8
    def __init__(self):
        super().__init__()
        array = np.array([corpus[i:i + 9] for i in range(len(corpus) - 8)])
        self.X, self.Y = array[:, :-1], array[:, 1:]
    def get_dataloader(self, train):
        return self.get_tensorloader([self.X, self.Y], train, slice(0, 64))
rnns = [d2l.RNNScratch(len(vocab), 8), d2l.RNN(8), d2l.GRU(8, 2)]
models = [d2l.RNNLMScratch(rnns[0], len(vocab), lr=1)]
models += [d2l.RNNLM(r, len(vocab), lr=1) for r in rnns[1:]]
for model in models:
    d2l.Trainer(max_epochs=1, gradient_clip_val=1).fit(model, Data())
    assert len(model.predict('it has', 5, vocab)) == 11
    assert model(Data().X[:4]).shape == (4, 8, len(vocab))
""",
    "sequence to sequence": """
encoder = d2l.Seq2SeqEncoder(vocab_size=10, embed_size=8, num_hiddens=16, num_layers=2)
X = np.zeros((4, 9))
outputs, state = encoder(X)
d2l.check_shape(outputs, (9, 4, 16))
class Decoder(d2l.Decoder):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(10, 8)
        self.rnn = d2l.GRU(16, 2, 0)
        self.dense = nn.Dense(10, flatten=False)
        self.initialize(init.Xavier())
    def init_state(self, enc_all_outputs, *args):
        return enc_all_outputs
    def forward(self, X, state):
        embs = self.embedding(d2l.transpose(X))
        enc_output, hidden_state = state
        context = enc_output[-1]
        context = np.tile(context, (embs.shape[0], 1, 1))
        embs_and_context = d2l.concat((embs, context), -1)
        outputs, hidden_state = self.rnn(embs_and_context, hidden_state)
        outputs = d2l.swapaxes(self.dense(outputs), 0, 1)
        return outputs, [enc_output, hidden_state]
class Model(d2l.Seq2Seq):
    def loss(self, Y_hat, Y):
        l = super().loss(Y_hat, Y, averaged=False)
        mask = d2l.astype(d2l.reshape(Y, -1) != 0, d2l.float32)
        return d2l.reduce_sum(l * mask) / d2l.reduce_sum(mask)
class Data(d2l.DataModule):
    batch_size = 4
    def get_dataloader(self, train):
        X = np.random.randint(0, 9, (8, 9))
        return self.get_tensorloader((X, X, np.array([9] * 8), X + 1), train)
model = Model(encoder, Decoder(), tgt_pad=0, lr=0.01)
Data.Y = None
d2l.Trainer(max_epochs=1, gradient_clip_val=1).fit(model, Data())
batch = next(iter(Data().get_dataloader(False)))
preds, _ = model.predict_step(batch, d2l.try_gpu(), 9)
assert preds.shape == (4, 9)
assert d2l.bleu('il est calme .', 'il est calme .', 2) == 1
""",
    "attention and transformers": """
X = np.ones((2, 4, 24))
lens = np.array([3, 2])
print(d2l.masked_softmax(np.random.uniform(size=(2, 2, 4)), lens))
print(d2l.masked_softmax(np.random.uniform(size=(2, 2, 4)), np.array([[1, 3], [2, 4]])))
attention = d2l.AdditiveAttention(num_hiddens=8, dropout=0.1)
attention.initialize()
q, kv = np.random.normal(size=(2, 1, 20)), np.random.normal(size=(2, 10, 2))
assert attention(q, kv, kv, np.array([2, 6])).shape == (2, 1, 2)
weights = attention.attention_weights.reshape((1, 1, 2, 10))
d2l.show_heatmaps(weights, xlabel='Keys', ylabel='Queries')
dot = d2l.DotProductAttention(dropout=0.5)
dot.initialize()
assert dot(kv, kv, kv, np.array([2, 6])).shape == (2, 10, 2)
heads = d2l.MultiHeadAttention(24, 8, 0.5)
heads.initialize()
assert heads(X, X, X, lens).shape == X.shape
encoder = d2l.TransformerEncoder(20, 24, 48, 8, 2, 0.5)
assert encoder(np.ones((2, 10)), lens).shape == (2, 10, 24)
assert d2l.PositionalEncoding(20, 0)(np.zeros((1, 60, 20))).shape == (1, 60, 20)
bert = d2l.BERTModel(50, 16, 32, 2, 2, 0.1, max_len=20)
bert.initialize(init.Xavier())
tokens, segments = np.random.randint(0, 50, (2, 8)), np.zeros((2, 8))
positions = np.array([[1, 5, 2], [6, 1, 5]])
with autograd.record():
    encoded, mlm, nsp = bert(tokens, segments, np.array([8, 6]), positions)
    l = mlm.sum() + nsp.sum()
l.backward()
assert encoded.shape == (2, 8, 16) and mlm.shape == (2, 3, 50) and nsp.shape == (2, 2)
assert bert.encoder.pos_embedding.grad().shape == (1, 20, 16)
""",
    "boxes": """
Y = d2l.multibox_prior(np.zeros((1, 3, 8, 9)), sizes=[0.75, 0.5], ratios=[1, 2, 0.5])
assert Y.shape == (1, 8 * 9 * 4, 4)
boxes = np.array([[60.0, 45, 378, 516], [400, 112, 655, 493]])
assert (d2l.box_center_to_corner(d2l.box_corner_to_center(boxes)) == boxes).all()
truth = np.array([[0, 0.1, 0.08, 0.52, 0.92], [1, 0.55, 0.2, 0.9, 0.88]])
anchors = np.array([[0, 0.1, 0.2, 0.3], [0.15, 0.2, 0.4, 0.4], [0.63, 0.05, 0.88, 0.98],
                    [0.66, 0.45, 0.8, 0.8], [0.57, 0.3, 0.92, 0.9]])
offset, mask, classes = d2l.multibox_target(np.expand_dims(anchors, 0), np.expand_dims(truth, 0))
assert classes.astype('int32').tolist() == [[0, 1, 2, 0, 2]]
anchors = np.array([[0.1, 0.08, 0.52, 0.92], [0.08, 0.2, 0.56, 0.95],
                    [0.15, 0.3, 0.62, 0.91], [0.55, 0.2, 0.9, 0.88]])
probs = np.array([[0] * 4, [0.9, 0.8, 0.7, 0.1], [0.1, 0.2, 0.3, 0.9]])
output = d2l.multibox_detection(np.expand_dims(probs, 0), np.zeros((1, 16)),
                                np.expand_dims(anchors, 0), nms_threshold=0.5)
assert output[0, :, 0].tolist() == [1, 0, -1, -1]
labels = d2l.voc_label_indices(np.array([[[128, 0, 0], [0, 0, 0]]]), d2l.voc_colormap2label())
assert labels.tolist() == [[1, 0]]
""",
    "training loops": """
def loader(n=40, shape=(1, 12, 12)):
    X, y = np.random.normal(size=(n, *shape)), np.array([i % 3 for i in range(n)])
    return d2l.load_array((X, y), 8)
def net():
    net = nn.Sequential()
    net.add(nn.Conv2D(4, 3), nn.BatchNorm(), nn.Activation('relu'))
    net.add(nn.GlobalAvgPool2D(), nn.Dense(3))
    return net
d2l.train_ch6(net(), loader(), loader(), 1, 0.1, d2l.try_gpu())
devices = [npx.cpu(0)]
two = net()
two.initialize(init.Xavier(), ctx=devices)
trainer = gluon.Trainer(two.collect_params(), 'sgd', {'learning_rate': 0.1})
d2l.train_ch13(two, loader(), loader(), gluon.loss.SoftmaxCrossEntropyLoss(), trainer, 1, devices)
resnet = d2l.resnet18(10)
resnet.initialize(init=init.Normal(sigma=0.01), ctx=devices)
assert resnet(np.ones((2, 1, 28, 28))).shape == (2, 10)
assert d2l.evaluate_accuracy_gpus(two, loader()) >= 0
for block in (d2l.Residual(4, True, 2), d2l.ResNeXtBlock(8, 4, 1, True, 2)):
    block.initialize()
    assert block(np.ones((2, 4, 8, 8))).shape[2:] == (4, 4)
data_iter = d2l.load_array((np.random.normal(size=(400, 5)), np.random.normal(size=(400,))), 10)
d2l.train_concise_ch11('sgd', {'learning_rate': 0.05}, data_iter, 1)
def sgd(params, states, hyperparams):
    for p in params:
        p[:] -= hyperparams['lr'] * p.grad
d2l.train_ch11(sgd, None, {'lr': 0.05}, data_iter, 5, 1)
""",
    "plots, timers and sums": """
d2l.plot(np.arange(0, 3, 0.1), [np.sin(np.arange(0, 3, 0.1))], 'x', 'f(x)', legend=['f'])
animator = d2l.Animator(xlabel='epoch', legend=['a', 'b'])
for i in range(3):
    animator.add(i, (np.array(1.0 * i), None))
d2l.show_images(np.random.uniform(size=(4, 8, 8)), 2, 2, titles=list('abcd'))
d2l.show_trace_2d(lambda x1, x2: x1 ** 2 + 2 * x2 ** 2,
                  d2l.train_2d(lambda x1, x2, s1, s2: (x1 * 0.9, x2 * 0.8, 0, 0)))
timer = d2l.Timer()
timer.stop(); timer.stop()
assert len(timer.cumsum()) == 2
metric = d2l.Accumulator(2)
metric.add(np.array(2.0), 3)
assert metric[0] / metric[1] == 2 / 3
assert d2l.corr2d(np.arange(9).reshape(3, 3), np.ones((2, 2))).tolist() == [[8, 12], [20, 24]]
assert d2l.try_gpu() == npx.cpu()
with d2l.Benchmark('timed'):
    npx.waitall()
""",
    "words": """
random.seed(0)
sentences = [list('abcab'), list('bcdde')] * 20
vocab = d2l.Vocab(sentences, min_freq=1)
_, counter = d2l.subsample(sentences, vocab)
centers, contexts = d2l.get_centers_and_contexts([vocab[line] for line in sentences], 2)
negatives = d2l.get_negatives(contexts, vocab, counter, 2)
dataset = gluon.data.ArrayDataset(centers, contexts, negatives)
for batch in gluon.data.DataLoader(dataset, 8, shuffle=True, batchify_fn=d2l.batchify):
    centers, others, mask, label = batch
    assert others.shape == mask.shape == label.shape and centers.shape[1] == 1
loss = d2l.MaskedSoftmaxCELoss()
found = loss(np.ones((3, 4, 10)), np.ones((3, 4)), np.array([4, 2, 0]))
assert [round(x, 4) for x in found.tolist()] == [2.3026, 1.1513, 0.0]
predictor = d2l.BPRLoss(), d2l.HingeLossbRec()
for l in predictor:
    assert l(np.array([[0.3]]), np.array([[0.1]])).size == 1
""",
    "seq2seq with a mask, trained": """
class Net(nn.Block):
    def __init__(self):
        super().__init__()
        self.embedding, self.dense = nn.Embedding(12, 8), nn.Dense(12, flatten=False)
    def forward(self, X, dec, lens):
        return self.dense(self.embedding(dec)), None
vocab = d2l.Vocab([list('abcdefgh')], reserved_tokens=['<pad>', '<bos>', '<eos>'])
X = np.random.randint(0, 11, (8, 5))
arrays = d2l.load_array((X, np.array([5] * 8), X, np.array([5] * 8)), 4)
d2l.train_seq2seq(Net(), arrays, 0.01, 10, vocab, d2l.try_gpu())
""",
}


@pytest.mark.parametrize("part", PARTS)
def test_part_of_the_library(part: str, tmp_path: Path) -> None:
    program = tmp_path / "part.py"
    program.write_text(START + PARTS[part])
    done = subprocess.run(
        [sys.executable, "-m", "gemel", "run", str(program)], cwd=tmp_path, text=True,
        capture_output=True, timeout=600, env={**os.environ, "MPLBACKEND": "agg"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
