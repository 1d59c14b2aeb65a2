"""Programs in the style of the book, as they were written for MXNet, on made-up data."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

START = """
import math
import random
from mxnet import autograd, gluon, image, init, np, npx, lr_scheduler
import mxnet as mx
from mxnet.gluon import nn, rnn
npx.set_np()
mx.random.seed(1)

def loader(*arrays, size=16, shuffle=True):
    return gluon.data.DataLoader(gluon.data.ArrayDataset(*arrays), size, shuffle=shuffle)

def train(net, data, loss, trainer, epochs):
    losses = []
    for _ in range(epochs):
        total = 0.0
        for X, y in data:
            with autograd.record():
                l = loss(net(X), y)
            l.backward()
            trainer.step(X.shape[0])
            total += float(l.mean())
        losses.append(total)
    assert losses[-1] < losses[0], losses
"""

PROGRAMS = {
    "softmax regression from scratch": """
X = np.random.normal(size=(64, 8))
true = np.random.normal(size=(8, 3))
y = np.dot(X, true).argmax(axis=1)
W, b = np.random.normal(0, 0.01, (8, 3)), np.zeros(3)
for p in (W, b):
    p.attach_grad()
def softmax(X):
    e = np.exp(X)
    return e / e.sum(1, keepdims=True)
def loss(y_hat, y):
    return -np.log(y_hat[range(len(y_hat)), y.astype('int32')])
for epoch in range(20):
    for features, labels in loader(X, y):
        with autograd.record():
            l = loss(softmax(np.dot(features, W) + b), labels)
        l.backward()
        for p in (W, b):
            p[:] = p - 0.5 * p.grad / len(features)
assert (np.dot(X, W).argmax(1) == y).astype(np.float32).mean() > 0.8
""",
    "mlp, dropout, weight decay and a schedule": """
X = np.random.uniform(-1, 1, (64, 1, 4, 4))
y = (X.reshape(64, -1).sum(1) > 0).astype('int32')
net = nn.Sequential()
net.add(nn.Dense(32, activation='relu'), nn.Dropout(0.1), nn.Dense(2))
net.initialize(init.Normal(sigma=0.1))
net.collect_params('.*bias').setattr('wd_mult', 0)
scheduler = lr_scheduler.CosineScheduler(20, warmup_steps=2, base_lr=0.3, final_lr=0.01)
trainer = gluon.Trainer(net.collect_params(), 'sgd', {
    'learning_rate': 0.3, 'wd': 1e-3, 'momentum': 0.9, 'lr_scheduler': scheduler})
train(net, loader(X, y), gluon.loss.SoftmaxCrossEntropyLoss(), trainer, 5)
assert trainer.learning_rate < 0.3
""",
    "batch norm from scratch in a LeNet": """
def batch_norm(X, gamma, beta, moving_mean, moving_var, eps, momentum):
    if not autograd.is_training():
        X_hat = (X - moving_mean) / np.sqrt(moving_var + eps)
    else:
        axes = 0 if len(X.shape) == 2 else (0, 2, 3)
        mean = X.mean(axis=axes, keepdims=True)
        var = ((X - mean) ** 2).mean(axis=axes, keepdims=True)
        X_hat = (X - mean) / np.sqrt(var + eps)
        moving_mean = momentum * moving_mean + (1.0 - momentum) * mean
        moving_var = momentum * moving_var + (1.0 - momentum) * var
    return gamma * X_hat + beta, moving_mean, moving_var
class BatchNorm(nn.Block):
    def __init__(self, num_features, num_dims, **kwargs):
        super().__init__(**kwargs)
        shape = (1, num_features) if num_dims == 2 else (1, num_features, 1, 1)
        self.gamma = self.params.get('gamma', shape=shape, init=init.One())
        self.beta = self.params.get('beta', shape=shape, init=init.Zero())
        self.moving_mean, self.moving_var = np.zeros(shape), np.zeros(shape)
    def forward(self, X):
        if self.moving_mean.ctx != X.ctx:
            self.moving_mean = self.moving_mean.copyto(X.ctx)
        Y, self.moving_mean, self.moving_var = batch_norm(
            X, self.gamma.data(), self.beta.data(), self.moving_mean, self.moving_var, 1e-12, 0.9)
        return Y
X, y = np.random.normal(size=(32, 1, 12, 12)), np.array([i % 4 for i in range(32)])
X += y.reshape(-1, 1, 1, 1)
net = nn.Sequential()
net.add(nn.Conv2D(4, kernel_size=3), BatchNorm(4, 4), nn.Activation('sigmoid'),
        nn.AvgPool2D(2, 2), nn.Dense(16), BatchNorm(16, 2), nn.Activation('sigmoid'), nn.Dense(4))
net.initialize(init.Xavier())
trainer = gluon.Trainer(net.collect_params(), 'sgd', {'learning_rate': 0.5})
train(net, loader(X, y), gluon.loss.SoftmaxCrossEntropyLoss(), trainer, 4)
assert net[1].gamma.data().reshape((-1,)).shape == (4,) and net(X[:3]).shape == (3, 4)
""",
    "residual and parallel blocks, hybridized, saved": """
class Residual(nn.HybridBlock):
    def __init__(self, channels, strides=1, **kwargs):
        super().__init__(**kwargs)
        self.conv1 = nn.Conv2D(channels, 3, padding=1, strides=strides)
        self.conv2 = nn.Conv2D(channels, 3, padding=1)
        self.conv3 = nn.Conv2D(channels, 1, strides=strides) if strides > 1 else None
        self.bn1, self.bn2 = nn.BatchNorm(), nn.BatchNorm()
    def forward(self, X):
        Y = npx.relu(self.bn1(self.conv1(X)))
        Y = self.bn2(self.conv2(Y))
        return npx.relu(Y + (self.conv3(X) if self.conv3 else X))
net = nn.HybridSequential()
parallel = nn.HybridConcatenate(axis=1)
parallel.add(nn.Conv2D(2, 1), nn.Conv2D(2, 3, padding=1), nn.Identity())
net.add(parallel, Residual(8, 2), Residual(8), nn.GlobalAvgPool2D(), nn.Dense(3))
net.initialize(init.Xavier())
X, y = np.random.normal(size=(16, 2, 8, 8)), np.array([i % 3 for i in range(16)])
before = net(X)
net.hybridize()
assert abs(net(X) - before).max() < 1e-4
trainer = gluon.Trainer(net.collect_params(), 'adam', {'learning_rate': 0.01})
train(net, loader(X, y, size=8), gluon.loss.SoftmaxCrossEntropyLoss(), trainer, 3)
net.save_parameters('net.params')
again = nn.HybridSequential()
parallel = nn.HybridConcatenate(axis=1)
parallel.add(nn.Conv2D(2, 1), nn.Conv2D(2, 3, padding=1), nn.Identity())
again.add(parallel, Residual(8, 2), Residual(8), nn.GlobalAvgPool2D(), nn.Dense(3))
again.load_parameters('net.params')
assert abs(again(X) - net(X)).max() < 1e-4
""",
    "rnn language model": """
text = 'the time machine by h g wells ' * 6
chars = sorted(set(text))
corpus = [chars.index(c) for c in text]
data = np.array([corpus[i:i + 9] for i in range(0, len(corpus) - 9, 3)])
class Model(nn.Block):
    def __init__(self, layer, size, **kwargs):
        super().__init__(**kwargs)
        self.rnn, self.size, self.dense = layer, size, nn.Dense(size)
    def forward(self, inputs, state):
        X = npx.one_hot(inputs.T, self.size)
        Y, state = self.rnn(X, state)
        return self.dense(Y.reshape(-1, Y.shape[-1])), state
    def begin_state(self, *args, **kwargs):
        return self.rnn.begin_state(*args, **kwargs)
for layer in (rnn.RNN(16), rnn.GRU(16), rnn.LSTM(16, num_layers=2, bidirectional=True)):
    net = Model(layer, len(chars))
    net.initialize(init.Normal(0.1))
    trainer = gluon.Trainer(net.collect_params(), 'adam', {'learning_rate': 0.02})
    loss = gluon.loss.SoftmaxCrossEntropyLoss()
    found = []
    for _ in range(4):
        state = net.begin_state(batch_size=len(data))
        with autograd.record():
            y_hat, state = net(data[:, :-1], state)
            l = loss(y_hat, data[:, 1:].T.reshape(-1)).mean()
        l.backward()
        params = [p.data() for p in net.collect_params().values()]
        norm = math.sqrt(sum((p.grad ** 2).sum() for p in params))
        for p in params:
            p.grad[:] *= min(1, 1 / norm)
        trainer.step(1)
        found.append(l.item())
    assert found[-1] < found[0]
""",
    "attention with masks": """
def masked_softmax(X, valid_lens):
    shape = X.shape
    valid_lens = valid_lens.repeat(shape[1]) if valid_lens.ndim == 1 else valid_lens.reshape(-1)
    X = npx.sequence_mask(X.reshape(-1, shape[-1]), valid_lens, True, value=-1e6, axis=1)
    return npx.softmax(X).reshape(shape)
class Attention(nn.Block):
    def __init__(self, hiddens, heads, **kwargs):
        super().__init__(**kwargs)
        self.heads = heads
        for name in ('q', 'k', 'v', 'o'):
            setattr(self, name, nn.Dense(hiddens, use_bias=False, flatten=False))
        self.norm, self.drop = nn.LayerNorm(), nn.Dropout(0.1)
    def split(self, X):
        X = X.reshape(X.shape[0], X.shape[1], self.heads, -1).transpose(0, 2, 1, 3)
        return X.reshape(-1, X.shape[2], X.shape[3])
    def forward(self, X, valid_lens):
        q, k, v = self.split(self.q(X)), self.split(self.k(X)), self.split(self.v(X))
        scores = npx.batch_dot(q, k, transpose_b=True) / math.sqrt(q.shape[-1])
        self.weights = masked_softmax(scores, valid_lens.repeat(self.heads, axis=0))
        Y = npx.batch_dot(self.drop(self.weights), v)
        Y = Y.reshape(-1, self.heads, Y.shape[1], Y.shape[2]).transpose(0, 2, 1, 3)
        return self.norm(self.o(Y.reshape(Y.shape[0], Y.shape[1], -1)) + X)
P = np.zeros((1, 50, 16))
angles = np.arange(50).reshape(-1, 1) / np.power(10000, np.arange(0, 16, 2) / 16)
P[:, :, 0::2], P[:, :, 1::2] = np.sin(angles), np.cos(angles)
embed, block, out = nn.Embedding(20, 16), Attention(16, 4), nn.Dense(20, flatten=False)
for part in (embed, block, out):
    part.initialize(init.Xavier())
tokens, lens = np.random.randint(0, 20, (4, 7)), np.array([7, 3, 5, 2])
with autograd.record():
    X = embed(tokens) * math.sqrt(16) + P[:, :7, :]
    logits = out(block(X, lens))
    weights = npx.sequence_mask(np.expand_dims(np.ones_like(tokens), -1), lens, True, axis=1)
    l = gluon.loss.SoftmaxCELoss()(logits, tokens, weights).mean()
l.backward()
assert (block.weights[4:8, :, 3:] < 1e-6).all() and embed.weight.grad().shape == (20, 16)
""",
    "anchors and boxes": """
X = np.zeros((2, 3, 16, 16))
anchors = npx.multibox_prior(X, sizes=[0.5, 0.3], ratios=[1, 2])
assert anchors.shape == (1, 16 * 16 * 3, 4)
labels = np.array([[[0, 0.1, 0.1, 0.5, 0.5]], [[1, 0.4, 0.4, 0.9, 0.9]]])
preds = np.random.uniform(size=(2, 3, anchors.shape[1]))
offsets, mask, classes = npx.multibox_target(anchors, labels, preds)
cls_loss, box_loss = gluon.loss.SoftmaxCrossEntropyLoss(), gluon.loss.L1Loss()
bbox = np.random.normal(size=offsets.shape)
for a in (preds, bbox):
    a.attach_grad()
with autograd.record():
    l = cls_loss(preds.transpose(0, 2, 1), classes).mean() + box_loss(bbox * mask, offsets * mask)
l.backward()
found = npx.multibox_detection(npx.softmax(preds, axis=1), bbox * 0.1, anchors, nms_threshold=0.5)
kept = [row for row in found[0] if row[0] != -1]
assert found.shape == (2, anchors.shape[1], 6) and kept
pooled = npx.roi_pooling(X + 1, np.array([[0, 0, 0, 5, 5], [1, 2, 2, 9, 9]]), (2, 2), 1.0)
assert pooled.shape == (2, 3, 2, 2) and pooled.min() == 1
""",
    "style transfer": """
class Synthesized(nn.Block):
    def __init__(self, shape, **kwargs):
        super().__init__(**kwargs)
        self.weight = self.params.get('weight', shape=shape)
    def forward(self):
        return self.weight.data()
def gram(X):
    channels, n = X.shape[1], X.size // X.shape[1]
    X = X.reshape((channels, n))
    return np.dot(X, X.T) / (channels * n)
features = nn.Sequential()
features.add(nn.Conv2D(4, 3, activation='relu'), nn.MaxPool2D(2), nn.Conv2D(8, 3))
features.initialize(init.Xavier())
content, style = np.random.uniform(size=(1, 3, 16, 16)), np.random.uniform(size=(1, 3, 16, 16))
net = Synthesized(content.shape)
net.initialize(init.Constant(content), force_reinit=True)
trainer = gluon.Trainer(net.collect_params(), 'adam', {'learning_rate': 0.05})
target, wanted = features(content), gram(features(style))
losses = []
for epoch in range(4):
    with autograd.record():
        X = net()
        Y = features(X)
        total = 0.5 * (np.abs(X[:, :, 1:, :] - X[:, :, :-1, :]).mean()
                       + np.abs(X[:, :, :, 1:] - X[:, :, :, :-1]).mean())
        l = np.square(Y - target).mean() + 10 * np.square(gram(Y) - wanted).mean() + total
    l.backward()
    trainer.step(1)
    trainer.set_learning_rate(trainer.learning_rate * 0.9)
    npx.waitall()
    losses.append(float(l))
assert losses[-1] < losses[0]
""",
    "matrix factorization and ranking": """
class MF(nn.Block):
    def __init__(self, factors, users, items, **kwargs):
        super(MF, self).__init__(**kwargs)
        self.P, self.Q = nn.Embedding(users, factors), nn.Embedding(items, factors)
        self.user_bias, self.item_bias = nn.Embedding(users, 1), nn.Embedding(items, 1)
    def forward(self, user_id, item_id):
        P_u, Q_i = self.P(user_id), self.Q(item_id)
        outputs = (P_u * Q_i).sum(axis=1) + np.squeeze(self.user_bias(user_id)) + np.squeeze(
            self.item_bias(item_id))
        return outputs.flatten()
users, items = np.random.randint(0, 8, 64), np.random.randint(0, 9, 64)
ratings = ((users + items) % 5).astype('float32')
net = MF(6, 8, 9)
net.initialize(ctx=mx.cpu(), force_reinit=True, init=init.Normal(0.1))
trainer = gluon.Trainer(net.collect_params(), 'adam', {'learning_rate': 0.05, 'wd': 1e-5})
loss, losses = gluon.loss.L2Loss(), []
for epoch in range(6):
    for values in loader(users, items, ratings):
        parts = [gluon.utils.split_and_load(v, [mx.cpu()], even_split=False) for v in values]
        with autograd.record():
            preds = [net(*t) for t in zip(*parts[:-1])]
            ls = [loss(p, s) for p, s in zip(preds, parts[-1])]
        [l.backward() for l in ls]
        trainer.step(values[0].shape[0])
    losses.append(sum(l.asnumpy() for l in ls).mean())
rmse = gluon.metric.RMSE()
rmse.update(labels=[ratings], preds=[net(users, items)])
assert losses[-1] < losses[0] and rmse.get()[1] < 3
""",
    "skip-gram": """
embed_v, embed_u = nn.Embedding(12, 4), nn.Embedding(12, 4)
net = nn.Sequential()
net.add(embed_v, embed_u)
net.initialize()
center, context = np.random.randint(0, 12, (8, 1)), np.random.randint(0, 12, (8, 5))
label, mask = (context % 2).astype('float32'), np.ones((8, 5))
mask[:, 4] = 0
loss = gluon.loss.SigmoidBCELoss()
trainer = gluon.Trainer(net.collect_params(), 'adam', {'learning_rate': 0.1})
found = []
for epoch in range(5):
    with autograd.record():
        v, u = net[0](center), net[1](context)
        pred = npx.batch_dot(v, u.swapaxes(1, 2))
        l = loss(pred.reshape(label.shape), label, mask) / mask.sum(axis=1) * mask.shape[1]
    l.backward()
    trainer.step(8)
    found.append(float(l.sum()))
assert found[-1] < found[0]
W = embed_v.weight.data()
cos = np.dot(W, W[0]) / np.sqrt(np.sum(W * W, axis=1) * np.sum(W[0] * W[0]) + 1e-9)
top = npx.topk(cos, k=3, ret_typ='indices')
assert top.asnumpy().astype('int32')[0] == 0
""",
    "dcgan": """
class Up(nn.Block):
    def __init__(self, channels, **kwargs):
        super().__init__(**kwargs)
        self.conv = nn.Conv2DTranspose(channels, 4, strides=2, padding=1, use_bias=False)
        self.norm, self.act = nn.BatchNorm(), nn.Activation('relu')
    def forward(self, X):
        return self.act(self.norm(self.conv(X)))
G, D = nn.Sequential(), nn.Sequential()
G.add(nn.Conv2DTranspose(8, 4, use_bias=False), Up(4), nn.Conv2DTranspose(3, 4, 2, 1))
G.add(nn.Activation('tanh'))
D.add(nn.Conv2D(4, 4, 2, 1), nn.LeakyReLU(0.2), nn.BatchNorm(), nn.Conv2D(1, 8))
for net in (G, D):
    net.initialize(init=init.Normal(0.02), force_reinit=True)
loss = gluon.loss.SigmoidBCELoss()
options = {'learning_rate': 0.005, 'beta1': 0.5}
trainers = [gluon.Trainer(net.collect_params(), 'adam', options) for net in (G, D)]
X = np.random.uniform(-1, 1, (4, 3, 16, 16))
for _ in range(2):
    Z = np.random.normal(0, 1, size=(4, 6, 1, 1))
    ones, zeros = np.ones((4,), ctx=X.ctx), np.zeros((4,), ctx=X.ctx)
    with autograd.record():
        fake = G(Z)
        l = (loss(D(X), ones) + loss(D(fake.detach()), zeros)) / 2
    l.backward()
    trainers[1].step(4)
    with autograd.record():
        l = loss(D(G(Z)), ones)
    l.backward()
    trainers[0].step(4)
assert G(Z).shape == X.shape and float(l.sum()) > 0
""",
    "pictures": """
from mxnet.gluon.data.vision import transforms
picture = np.random.randint(0, 255, (20, 24, 3)).astype('uint8')
augment = transforms.Compose([
    transforms.RandomFlipLeftRight(), transforms.RandomResizedCrop(12, (0.5, 1), (0.8, 1.2)),
    transforms.RandomColorJitter(0.2, 0.2, 0.2, 0.2), transforms.ToTensor(),
    transforms.Normalize([0.5, 0.5, 0.5], [0.2, 0.2, 0.2])])
data = gluon.data.ArrayDataset([picture] * 6, list(range(6))).transform_first(augment)
for X, y in gluon.data.DataLoader(data, 3):
    assert X.shape == (3, 3, 12, 12) and X.dtype == 'float32'
crop, rect = image.random_crop(picture, (8, 6))
assert crop.shape == (6, 8, 3) and image.fixed_crop(picture, *rect).shape == crop.shape
assert image.imresize(picture, 5, 7).shape == (7, 5, 3)
net = gluon.model_zoo.vision.resnet18_v2(classes=4)
net.initialize()
assert net(np.ones((1, 3, 32, 32))).shape == (1, 4)
""",
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_program(name: str, tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(START + PROGRAMS[name])
    done = subprocess.run(
        [sys.executable, "-m", "gemel", "run", "program.py"], cwd=tmp_path, text=True,
        capture_output=True, timeout=600,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
