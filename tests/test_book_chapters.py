"""More programs in the style of the book's chapters, each from data to result.

Unlike those of `test_book_programs` they write files, plot, read tables and use several devices.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from test_book_programs import START

pytest.importorskip("matplotlib")
pytest.importorskip("pandas")

PROGRAMS = {
    "calculus and gradient descent, plotted": """
import numpy
from matplotlib import pyplot as plt
x = np.arange(0, 3, 0.1)
x.attach_grad()
with autograd.record():
    y = npx.relu(x - 1) + np.sin(x)
y.backward()
plt.plot(x, y), plt.plot(x, x.grad, 'm--'), plt.scatter(x, y), plt.fill_between(x, y, 2 * x)
plt.hist(y.asnumpy()), plt.bar(x[:3], y[:3]), plt.imshow(np.random.uniform(size=(4, 5, 3)))
grid = np.meshgrid(np.linspace(-2, 2, 9), np.linspace(-2, 2, 9))
plt.contour(*grid, grid[0] ** 2 + 2 * grid[1] ** 2)
plt.figure().add_subplot(projection='3d').plot_wireframe(*grid, grid[0] ** 2)
results = [(-5, -2)]
for _ in range(20):  # lists of numbers first, then arrays of one element
    x1, x2 = results[-1]
    noise = np.random.normal(0.0, 1, (1,))
    results.append((x1 - 0.1 * (2 * x1 + noise), x2 - 0.1 * (4 * x2 + noise)))
plt.figure()
line = plt.plot(*zip(*results), '-o')[0]
assert line.get_xdata().shape == (21,) and line.get_xdata()[0] == -5
assert [a.shape for a in numpy.atleast_1d(1, [2, 3])] == [(1,), (2,)]
try:
    plt.plot([1, [2, 3]])
except ValueError:
    plt.close('all')
else:
    raise AssertionError('a ragged list was plotted')
""",
    "optimizers from scratch": """
X = np.random.normal(size=(60, 5))
y = np.dot(X, np.array([1, -2, 0.5, 3, 0]))
def sgd(p, s, h):
    s[0][:] = h['momentum'] * s[0] + p.grad
    p[:] -= h['lr'] * s[0]
def rmsprop(p, s, h):
    s[0][:] = 0.9 * s[0] + 0.1 * np.square(p.grad)
    p[:] -= h['lr'] * p.grad / np.sqrt(s[0] + 1e-6)
def adadelta(p, s, h):
    s[0][:] = 0.9 * s[0] + 0.1 * np.square(p.grad)
    g = np.sqrt(s[1] + 1e-2) / np.sqrt(s[0] + 1e-2) * p.grad
    p[:] -= g
    s[1][:] = 0.9 * s[1] + 0.1 * g * g
def yogi(p, s, h):
    h['t'] = h.get('t', 0) + 1
    s[0][:] = 0.9 * s[0] + 0.1 * p.grad
    s[1][:] = s[1] + 0.001 * np.sign(np.square(p.grad) - s[1]) * np.square(p.grad)
    mean, square = s[0] / (1 - 0.9 ** h['t']), s[1] / (1 - 0.999 ** h['t'])
    p[:] -= h['lr'] * mean / (np.sqrt(square) + 1e-3)
for update, lr in ((sgd, 0.05), (rmsprop, 0.1), (adadelta, 0), (yogi, 0.1)):
    w, b = np.random.normal(scale=0.01, size=(5, 1)), np.zeros(1)
    states = {id(p): (np.zeros_like(p), np.zeros_like(p)) for p in (w, b)}
    for p in (w, b):
        p.attach_grad()
    hyper, losses = {'lr': lr, 'momentum': 0.5}, []
    for epoch in range(3):
        for features, labels in loader(X, y):
            with autograd.record():
                l = ((np.dot(features, w) + b - labels.reshape(-1, 1)) ** 2 / 2).mean()
            l.backward()
            for p in (w, b):
                update(p, states[id(p)], hyper)
        losses.append(float(l))
    assert losses[-1] < losses[0], (update.__name__, losses)
class SquareRoot:
    def __call__(self, num_update):
        return 0.3 * (num_update + 1.0) ** -0.5
trainer = gluon.Trainer([gluon.Parameter('w', shape=(2,))], 'sgd', {'lr_scheduler': SquareRoot()})
assert abs(trainer.learning_rate - 0.3) < 1e-6
""",
    "a table of houses": """
import os
import pandas as pd
with open('houses.csv', 'w') as f:
    f.write('Rooms,Roof,Price\\n' + ''.join(
        f"{i % 5 or ''},{['Slate', '', 'Tile'][i % 3]},{100 + 20 * (i % 5)}\\n" for i in range(30)))
data = pd.read_csv('houses.csv')
numeric = data[['Rooms']].fillna(data['Rooms'].mean())
features = pd.concat((numeric, pd.get_dummies(data['Roof'], dummy_na=True)), axis=1)
X = np.array(features.values, dtype=np.float32)  # bools beside floats: a table of objects
assert np.array(features.to_numpy(dtype=float)).dtype == np.float64
y = np.log(np.array(data.Price.values.reshape(-1, 1), dtype=np.float32))
net = nn.Sequential()
net.add(nn.Dense(1))
net.initialize()
trainer = gluon.Trainer(net.collect_params(), 'adam', {'learning_rate': 0.5, 'wd': 0})
train(net, loader(X, y), gluon.loss.L2Loss(), trainer, 6)
clipped = np.clip(np.exp(net(X)), 1, float('inf'))
rmse = np.sqrt(2 * gluon.loss.L2Loss()(np.log(clipped), y).mean())
table = pd.DataFrame({'Price': net(X).reshape(-1), 'Id': np.arange(30)})
assert float(rmse) < 5 and table.shape == (30, 2)
assert data.assign(fold=[str(float(v)) for v in np.ones(30)]).fold[0] == '1.0'
""",
    "naive Bayes on files of digits": """
import gzip, os, struct
import numpy
generator, root = numpy.random.RandomState(0), 'digits'
os.makedirs(root)
for name, count in (('train', 200), ('t10k', 60)):
    labels = generator.randint(0, 10, count).astype('uint8')
    pictures = (generator.rand(count, 28, 28) * 100).astype('uint8')
    for picture, label in zip(pictures, labels):
        picture[2 * label:2 * label + 4, 4:20] += 150
    with gzip.open(f'{root}/{name}-images-idx3-ubyte.gz', 'wb') as f:
        f.write(struct.pack('>IIII', 2051, count, 28, 28) + pictures.tobytes())
    with gzip.open(f'{root}/{name}-labels-idx1-ubyte.gz', 'wb') as f:
        f.write(struct.pack('>II', 2049, count) + labels.tobytes())
def transform(data, label):
    return np.floor(data.astype('float32') / 128).squeeze(axis=-1), label
tests = gluon.data.vision.MNIST(root, train=False, transform=transform)
images, labels = gluon.data.vision.MNIST(root, train=True, transform=transform)[:]
assert images.shape == (200, 28, 28) and labels.dtype == numpy.int32
n_y, n_x = np.zeros((10)), np.zeros((10, 28, 28))
for y in range(10):
    n_y[y] = (labels == y).sum()
    n_x[y] = np.array(images.asnumpy()[labels == y].sum(axis=0))
P_xy = (n_x + 1) / (n_y + 2).reshape(10, 1, 1)
log_P, log_not, log_y = np.log(P_xy), np.log(1 - P_xy), np.log(n_y / n_y.sum())
def predict(x):
    x = np.expand_dims(x, axis=0)
    p = (log_P * x + log_not * (1 - x)).reshape(10, -1).sum(axis=1) + log_y
    return p.argmax(axis=0).astype(np.int32)
X, y = tests[:]
found = np.array([predict(x) for x in X], dtype=np.int32)
assert float((found == y).sum()) / len(y) > 0.9 and str(predict(X[0])) == str(y[0])
""",
    "a single-shot detector": """
def predictor(channels):
    return nn.Conv2D(channels, kernel_size=3, padding=1)
def flat(preds):
    return np.concatenate([npx.batch_flatten(p.transpose(0, 2, 3, 1)) for p in preds], axis=1)
class Detector(nn.Block):
    def __init__(self, classes, **kwargs):
        super().__init__(**kwargs)
        self.classes = classes
        for i, pool in enumerate((nn.MaxPool2D(2), nn.MaxPool2D(2), nn.GlobalMaxPool2D())):
            block = nn.Sequential()
            block.add(nn.Conv2D(8, 3, padding=1), nn.BatchNorm(in_channels=8),
                      nn.Activation('relu'), pool)
            setattr(self, f'block_{i}', block)
            setattr(self, f'classes_{i}', predictor(4 * (classes + 1)))
            setattr(self, f'boxes_{i}', predictor(16))
    def forward(self, X):
        anchors, classes, boxes = [], [], []
        for i in range(3):
            X = getattr(self, f'block_{i}')(X)
            anchors.append(npx.multibox_prior(X, sizes=[0.3, 0.4 + 0.2 * i], ratios=[1, 2, 0.5]))
            classes.append(getattr(self, f'classes_{i}')(X))
            boxes.append(getattr(self, f'boxes_{i}')(X))
        classes = flat(classes)
        classes = classes.reshape(classes.shape[0], -1, self.classes + 1)
        return np.concatenate(anchors, axis=1), classes, flat(boxes)
net = Detector(1)
net.initialize(init=init.Xavier())
trainer = gluon.Trainer(net.collect_params(), 'sgd', {'learning_rate': 0.2, 'wd': 5e-4})
class_loss, box_loss = gluon.loss.SoftmaxCrossEntropyLoss(), gluon.loss.L1Loss()
X, Y = np.random.uniform(size=(4, 3, 16, 16)), np.array([[[0, 0.2, 0.2, 0.6, 0.6]]] * 4)
losses = []
for epoch in range(6):
    with autograd.record():
        anchors, classes, boxes = net(X)
        offsets, mask, labels = npx.multibox_target(anchors, Y, classes.transpose(0, 2, 1))
        l = class_loss(classes, labels) + box_loss(boxes * mask, offsets * mask)
    l.backward()
    trainer.step(4)
    losses.append(float(l.mean()))
wrong = 1 - (classes.argmax(axis=-1).astype(labels.dtype) == labels).mean()
assert losses[-1] < losses[0] and float(wrong) < 0.9
probs = npx.softmax(net(X)[1]).transpose(0, 2, 1)
output = npx.multibox_detection(probs, boxes, anchors)
rows = output[0, [i for i, row in enumerate(output[0]) if row[0] != -1]]
for row in rows[:3]:
    corners = row[2:6] * np.array((16, 16, 16, 16), ctx=row.ctx)
    assert f'{float(row[1]):.2f}' and corners.shape == (4,)
""",
    "segmentation by transposed convolution": """
def bilinear(channels, size):
    factor = (size + 1) // 2
    center = factor - 1 if size % 2 == 1 else factor - 0.5
    row, column = np.arange(size).reshape(-1, 1), np.arange(size).reshape(1, -1)
    filt = (1 - np.abs(row - center) / factor) * (1 - np.abs(column - center) / factor)
    weight = np.zeros((channels, channels, size, size))
    weight[range(channels), range(channels), :, :] = filt
    return np.array(weight)
up = nn.Conv2DTranspose(3, kernel_size=4, padding=1, strides=2)
up.initialize(init.Constant(bilinear(3, 4)))
assert abs(up(np.ones((1, 3, 5, 7)))[:, :, 1:-1, 1:-1] - 1).max() < 1e-6
base = gluon.model_zoo.vision.resnet18_v2()
net = nn.HybridSequential()
for layer in base.features[:4]:
    net.add(layer)
net.add(nn.Conv2D(5, kernel_size=1), nn.Conv2DTranspose(5, kernel_size=4, padding=1, strides=2))
net.initialize(init.Xavier())
net[-1].initialize(init.Constant(bilinear(5, 4)), force_reinit=True)
X, Y = np.random.uniform(size=(2, 3, 16, 24)), np.random.randint(0, 5, (2, 16, 24))
loss = gluon.loss.SoftmaxCrossEntropyLoss(axis=1)
trainer = gluon.Trainer(net.collect_params(), 'sgd', {'learning_rate': 0.1, 'wd': 1e-3})
train(net, [(X, Y)], loss, trainer, 4)
colors = np.array([[0, 0, 0], [128, 0, 0], [0, 128, 0], [9, 9, 9], [7, 7, 7]], dtype='uint8')
labels = net(X).argmax(axis=1)
assert colors[labels[0].astype('int32'), :].shape == (16, 24, 3)
""",
    "factorization machines and ranking": """
class Clicks(gluon.data.Dataset):
    def __init__(self, count):
        self.rows = [[random.randint(0, 3) for _ in range(6)] for _ in range(count)]
        sizes = np.zeros(6, dtype=np.int64)
        for i in range(6):
            sizes[i] = 4
        self.sizes, self.offsets = sizes, np.array((0, *np.cumsum(sizes).asnumpy()[:-1]))
    def __len__(self):
        return len(self.rows)
    def __getitem__(self, index):
        label = np.float32([0, 0])
        label[int('1')] = 1
        return np.array(self.rows[index]) + self.offsets, [np.float32(self.rows[index][0] > 1)]
class FM(nn.Block):
    def __init__(self, sizes, factors):
        super(FM, self).__init__()
        inputs = int(sum(sizes))
        self.embedding, self.fc = nn.Embedding(inputs, factors), nn.Embedding(inputs, 1)
        self.linear, self.width, self.mlp = nn.Dense(1), len(sizes) * factors, nn.Sequential()
        self.mlp.add(nn.Dense(8, 'relu', True, in_units=self.width), nn.Dropout(rate=0.1))
        self.mlp.add(nn.Dense(in_units=8, units=1))
    def forward(self, x):
        embedded = self.embedding(x)
        square, squares = np.sum(embedded, axis=1) ** 2, np.sum(embedded ** 2, axis=1)
        deep = self.mlp(np.reshape(embedded, (-1, self.width)))
        wide = self.linear(self.fc(x).sum(1))
        return wide + 0.5 * (square - squares).sum(1, keepdims=True) + deep
data = Clicks(64)
batches = gluon.data.DataLoader(data, shuffle=True, last_batch='rollover', batch_size=16)
net = FM(data.sizes, 4)
net.initialize(init.Xavier(), ctx=[])
trainer = gluon.Trainer(net.collect_params(), 'adam', {'learning_rate': 0.02, 'wd': 1e-5})
loss, losses = gluon.loss.SigmoidBinaryCrossEntropyLoss(), []
for epoch in range(5):
    total = 0
    for x, y in batches:
        assert x.shape == (16, 6) and y.shape == (16, 1)
        (x,), (y,) = (gluon.utils.split_and_load(part, []) for part in (x, y))
        with autograd.record():
            l = loss(net(x), y)
        l.backward()
        trainer.step(16)
        total += float(l.sum())
    losses.append(total)
assert losses[-1] < losses[0], losses
class Ranked(gluon.loss.Loss):
    def __init__(self, weight=None, batch_axis=0, **kwargs):
        super(Ranked, self).__init__(weight=None, batch_axis=0, **kwargs)
    def forward(self, positive, negative, margin=1):
        return np.sum(np.maximum(-(positive - negative) + margin, 0))
P, Q = nn.Embedding(7, 3), nn.Embedding(9, 3)
P.initialize(), Q.initialize()
with autograd.record():
    u = P(np.array([1, 2], dtype='int', ctx=npx.cpu()))
    l = Ranked()((u * Q(np.array([3, 4]))).sum(1), (u * Q(np.array([5, 8]))).sum(1))
l.backward(retain_graph=False)
assert P.weight.grad().shape == (7, 3) and gluon.metric.RMSE().name == 'rmse'
""",
}

SEVERAL = """
assert str([npx.gpu(), npx.gpu(1)]) == '[gpu(0, simulated), gpu(1, simulated)]'
class Block(nn.Block):
    def __init__(self, conv, act, **kwargs):
        super().__init__(**kwargs)
        self.conv, self.norm, self.act = conv, nn.BatchNorm(), act
    def forward(self, X):
        return self.act(self.norm(self.conv(X)))
devices = [npx.gpu(i) for i in range(npx.num_gpus())]
G, D = nn.Sequential(), nn.Sequential()
G.add(Block(nn.Conv2DTranspose(8, 4, use_bias=False), nn.Activation('relu')),
      nn.Conv2DTranspose(3, kernel_size=4, strides=2, padding=1, activation='tanh'))
D.add(Block(nn.Conv2D(4, 4, 2, 1, use_bias=False), nn.LeakyReLU(0.2)), nn.Conv2D(1, kernel_size=4))
for net in (G, D):
    net.initialize(init=init.Normal(0.02), force_reinit=True, ctx=devices[0])
loss, options = gluon.loss.SigmoidBCELoss(), {'learning_rate': 0.005, 'beta1': 0.5}
trainers = [gluon.Trainer(net.collect_params(), 'adam', options) for net in (G, D)]
for _ in range(4):
    X = np.random.uniform(-1, 1, (4, 3, 8, 8), ctx=devices[0])
    Z = np.random.normal(0, 1, size=(4, 5, 1, 1)).as_in_ctx(devices[0])
    ones, zeros = np.ones((4,), ctx=X.ctx), np.zeros((4,), ctx=X.ctx)
    with autograd.record():
        l = (loss(D(X), ones) + loss(D(G(Z).detach()), zeros)) / 2
    l.backward()
    trainers[1].step(4)
    with autograd.record():
        l = loss(D(G(Z)), ones)
    l.backward()
    trainers[0].step(4)
assert float(l.sum()) > 0 and l.ctx == devices[0]
def allreduce(data):
    for i in range(1, len(data)):
        data[0][:] += data[i].copyto(data[0].ctx)
    for i in range(1, len(data)):
        data[0].copyto(data[i])
def forward(X, W, b, V):
    Y = npx.relu(npx.convolution(data=X, weight=W, bias=b, kernel=(3, 3), num_filter=4))
    Y = npx.pooling(data=Y, pool_type='avg', kernel=(2, 2), stride=(2, 2))
    return np.dot(Y.reshape(Y.shape[0], -1), V)
params = [np.random.normal(scale=0.1, size=s) for s in ((4, 1, 3, 3), (4,), (36, 3))]
parts = [[p.copyto(place) for p in params] for place in devices]
for part in parts:
    for p in part:
        p.attach_grad()
X, y = np.random.normal(size=(16, 1, 8, 8)), np.array([i % 3 for i in range(16)])
loss, losses = gluon.loss.SoftmaxCrossEntropyLoss(), []
for _ in range(6):
    Xs, ys = (gluon.utils.split_and_load(a, devices) for a in (X, y))
    with autograd.record():
        ls = [loss(forward(a, *part), b) for a, b, part in zip(Xs, ys, parts)]
    for l in ls:
        l.backward()
    for i in range(len(params)):
        allreduce([part[i].grad for part in parts])
    for part in parts:
        for p in part:
            p[:] = p - 0.5 / 16 * p.grad
    losses.append(sum(float(l.sum()) for l in ls))
assert losses[-1] < losses[0]
for a, b in zip(*parts):
    assert abs(a.as_in_ctx(npx.cpu()) - b.as_in_ctx(npx.cpu())).max() < 1e-5
"""


def run(text: str, folder: Path, **settings: str) -> None:
    (folder / "program.py").write_text(START + text)
    done = subprocess.run(
        [sys.executable, "-m", "gemel", "run", "program.py"], cwd=folder, text=True,
        capture_output=True, timeout=600, env={**os.environ, "MPLBACKEND": "agg", **settings},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", PROGRAMS)
def test_program(name: str, tmp_path: Path) -> None:
    run(PROGRAMS[name], tmp_path)


def test_several_devices(tmp_path: Path) -> None:
    run(SEVERAL, tmp_path, GEMEL_SIMULATED_GPUS="2")
