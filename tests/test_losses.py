"""Losses: float64 gradients, hybridized and not; users' own losses; and refused arguments."""

from __future__ import annotations

import inspect
import re

import numpy
import pytest

from gemel import autograd, cpu, gluon, np, npx
from gemel.errors import ArgumentError, AxisError, OperandError, ShapeError, UnknownNameError
from gemel.gluon import loss as losses

random = numpy.random.RandomState(5)


def normal(*shape):
    return random.randn(*shape)


def shares(*shape):
    found = random.rand(*shape) + 0.1
    return found / found.sum(axis=-1, keepdims=True)


SIGNS = numpy.sign(normal(4, 3))
EACH = normal(4, 1) ** 2
CASES = [
    (losses.L2Loss(), normal(4, 3), normal(4, 3), EACH),
    (losses.L1Loss(weight=0.5), normal(4, 3), normal(4, 3), EACH),
    (losses.HuberLoss(rho=0.7), normal(4, 3), normal(4, 3), EACH),
    (losses.HingeLoss(), normal(4, 3), SIGNS, EACH),
    (losses.SquaredHingeLoss(margin=2), normal(4, 3), SIGNS, EACH),
    (losses.LogisticLoss(), normal(4, 3), SIGNS, EACH),
    (losses.SigmoidBCELoss(), normal(4, 3), (SIGNS + 1) / 2, EACH),
    (losses.SigmoidBCELoss(), normal(4, 3), (SIGNS + 1) / 2, EACH, normal(1, 3) ** 2),
    (losses.SigmoidBCELoss(from_sigmoid=True), shares(4, 3), (SIGNS + 1) / 2, EACH),
    (losses.SoftmaxCELoss(), normal(4, 3), numpy.array([0, 2, 1, 1])),
    (losses.SoftmaxCELoss(axis=1), normal(4, 3, 2), random.randint(0, 3, (4, 2))),
    (losses.SoftmaxCELoss(sparse_label=False), normal(4, 3), shares(4, 3), EACH),
    (losses.KLDivLoss(from_logits=False), normal(4, 3), shares(4, 3), EACH),
    (losses.CTCLoss(), normal(2, 6, 4), numpy.array([[1, 0, -1], [2, 1, 1]])),
    (losses.TripletLoss(margin=3), normal(4, 3), normal(4, 3), normal(4, 3)),
    (losses.PoissonNLLLoss(), normal(4, 3), random.randint(0, 5, (4, 3)), EACH),
    (losses.PoissonNLLLoss(from_logits=False), shares(4, 3), random.randint(0, 5, (4, 3))),
    (losses.CosineEmbeddingLoss(margin=0.1), normal(4, 3), normal(4, 3), SIGNS[:, 0], EACH),
    (losses.SDMLLoss(), normal(4, 3), normal(4, 3)),
]


def name(case):
    return repr(case) if isinstance(case, gluon.Block) else "-"


@pytest.mark.parametrize("case", CASES, ids=lambda case: type(case[0]).__name__)
def test_gradient(case):
    loss, pred, *rest = case
    rest = [np.array(a, dtype="float64" if a.dtype.kind == "f" else None) for a in rest]
    direction, step = random.randn(*pred.shape), 1e-6

    def value(at):
        return loss(np.array(at, dtype="float64"), *rest)

    moved = (value(pred + step * direction).sum() - value(pred - step * direction).sum()).item()
    expected, out = moved / (2 * step), value(pred)
    for hybrid in (False, True):
        loss.hybridize(hybrid)
        x = np.array(pred, dtype="float64")
        x.attach_grad()
        with autograd.record():
            found = loss(x, *rest)
        found.backward()
        assert found.dtype == "float64"
        numpy.testing.assert_allclose(found.asnumpy(), out.asnumpy(), rtol=1e-12)
        assert (x.grad * direction).sum().item() == pytest.approx(expected, rel=1e-6, abs=1e-8)
        # A smaller batch, like the last one of an epoch.
        if len(pred) == 4 and not isinstance(loss, (losses.PoissonNLLLoss, losses.SDMLLoss)):
            fewer = loss(x[:3], *[a[:3] if len(a) == 4 else a for a in rest])
            numpy.testing.assert_allclose(fewer.asnumpy(), out.asnumpy()[:3], rtol=1e-12)


def test_stirling_where_the_target_is_above_one():
    pred = np.array([[0.5, 1.0, 2.0]], dtype="float64")
    target = np.array([[0.0, 1.0, 4.0]], dtype="float64")
    plain, full = losses.PoissonNLLLoss(), losses.PoissonNLLLoss(compute_full=True)
    added = 4 * numpy.log(4) - 4 + 0.5 * numpy.log(2 * numpy.pi * 4)
    difference = (full(pred, target) - plain(pred, target)).item()
    assert difference == pytest.approx(added / 3, rel=1e-12)


def test_sdml_has_a_weight():
    x, y = np.array(normal(4, 3)), np.array(normal(4, 3))
    once, twice = losses.SDMLLoss()(x, y), losses.SDMLLoss(weight=2.0)(x, y)
    numpy.testing.assert_allclose(twice.asnumpy(), 2 * once.asnumpy(), rtol=1e-6)
    assert numpy.isfinite(losses.SDMLLoss()(x[:1], y[:1]).asnumpy()).all()


@pytest.mark.parametrize("hybrid", [False, True])
@pytest.mark.parametrize("label", [[0, 3], [-1, 0]])
def test_a_label_out_of_range_is_an_error(label, hybrid):
    loss = losses.SoftmaxCELoss()
    loss.hybridize(hybrid)
    x = np.ones((2, 3))
    x.attach_grad()
    with autograd.record():
        found = loss(x, np.array(label))
    with pytest.raises(IndexError, match="out of bounds for axis 1 with size 3"):
        found.asnumpy()
    weights = np.array([[1.0 if 0 <= k < 3 else 0.0] for k in label])
    assert numpy.isfinite(loss(x, np.array(label), weights).asnumpy()).all()


@pytest.mark.parametrize("hybrid", [False, True])
@pytest.mark.parametrize("label", [[0, 3], [-1, 0]])
def test_a_label_out_of_range_teaches_nothing(label, hybrid):
    net, loss = gluon.nn.Dense(3, in_units=2), losses.SoftmaxCELoss()
    net.initialize()
    net.hybridize(hybrid)
    trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 1.0})
    before = net.weight.data().asnumpy()
    with autograd.record():
        found = loss(net(np.ones((2, 2))), np.array(label))
    found.backward()
    trainer.step(2)
    for failed in (found, net.weight.grad()):
        with pytest.raises(IndexError, match="out of bounds for axis 1 with size 3"):
            failed.asnumpy()
    compiled = trainer.compile(lambda x, y: loss(net(x), y))(np.ones((2, 2)), np.array(label))
    with pytest.raises(IndexError, match="out of bounds for axis 1 with size 3"):
        compiled.asnumpy()
    numpy.testing.assert_array_equal(net.weight.data().asnumpy(), before)


@pytest.mark.parametrize("hybrid", [False, True])
@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize(("axis", "batch_axis"), [(0, 1), (0, -1), (-2, 2), (1, 0), (2, -2)])
def test_cross_entropy_counts_the_batch_axis_in_the_prediction(axis, batch_axis, sparse, hybrid):
    pred, label = normal(2, 3, 4), random.randint(0, 2, (2, 3, 4)).max(axis=axis)
    loss = losses.SoftmaxCELoss(axis, sparse, batch_axis=batch_axis)
    loss.hybridize(hybrid)
    chosen = numpy.moveaxis(numpy.eye(pred.shape[axis])[label], -1, axis)
    shares = numpy.exp(pred) / numpy.exp(pred).sum(axis=axis, keepdims=True)
    each = -(numpy.log(shares) * chosen).sum(axis=axis, keepdims=True)
    expected = numpy.moveaxis(each, batch_axis, 0).reshape(pred.shape[batch_axis], -1).mean(axis=1)
    found = loss(np.array(pred), np.array(label if sparse else chosen))
    numpy.testing.assert_allclose(found.asnumpy(), expected, rtol=1e-12)


@pytest.mark.parametrize("weight", [None, 3.0])
@pytest.mark.parametrize("at", [0.0, -0.0, 1e-30, 40.0, -40.0])
@pytest.mark.parametrize("label", [0.0, 0.25, 1.0])
def test_the_gradient_of_binary_cross_entropy(label, at, weight):
    x, y = np.array([[at]], dtype="float64"), np.array([[label]], dtype="float64")
    x.attach_grad()
    more = () if weight is None else (None, np.array([weight], dtype="float64"))
    with autograd.record():
        found = losses.SigmoidBCELoss()(x, y, *more)
    found.backward()
    yes, no = 1 / (1 + numpy.exp(-at)), 1 / (1 + numpy.exp(at))
    expected = (1 - label) * yes - (weight or 1.0) * label * no
    assert x.grad.item() == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("hybrid", [False, True])
def test_labels_without_symbols_are_all_blanks(hybrid):
    loss, pred = losses.CTCLoss(), normal(2, 5, 3)
    loss.hybridize(hybrid)
    blanks = numpy.log(numpy.exp(pred[..., 2]) / numpy.exp(pred).sum(axis=-1))
    found = loss(np.array(pred), np.zeros((2, 0))).asnumpy()
    numpy.testing.assert_allclose(found, -blanks.sum(axis=1), rtol=1e-12)


def test_settings_that_are_refused():
    with pytest.raises(ArgumentError, match="rho must be a number above 0, not 0"):
        losses.HuberLoss(rho=0)
    with pytest.raises(AxisError, match="L2Loss"):
        losses.L2Loss(batch_axis=2)(np.ones((2, 3)), np.ones((2, 3)))
    with pytest.raises(AxisError, match="SoftmaxCrossEntropyLoss"):
        losses.SoftmaxCELoss(batch_axis=2)(np.ones((2, 3)), np.zeros(2))


@pytest.mark.parametrize("hybrid", [False, True])
def test_shapes_that_do_not_fit(hybrid):
    x = np.ones((2, 3))
    for loss, arguments in (
        (losses.L2Loss(), (x, np.ones((2, 2)))),
        (losses.SoftmaxCELoss(), (x, np.zeros((3,)))),
        (losses.KLDivLoss(), (x, np.ones((2, 2)))),
        (losses.TripletLoss(), (x, x, np.ones((2, 2)))),
        (losses.CosineEmbeddingLoss(), (x, x, np.ones((3,)))),
        (losses.SDMLLoss(), (x, np.ones((3, 3)))),
        (losses.L1Loss(), (x, x, np.ones((3, 1)))),
        (losses.SigmoidBCELoss(), (x[:, :1], x[:, :1], None, np.ones((3,)))),
    ):
        loss.hybridize(hybrid)
        with pytest.raises(ShapeError) as caught:
            loss(*arguments)
        assert not re.search(r"n\d_\d", str(caught.value))


@pytest.mark.parametrize(
    ("shapes", "rule"),
    [
        (((2, 3), (2, 3)), r"shape \(2, 3\) and the label \(2, 3\).*pass sparse_label=False"),
        (((2, 4, 5, 3), (2, 5, 3)), r"without axis 3; if axis 1 is that.*pass axis=1"),
        (((2, 3), (3,)), "one class number for each prediction"),
    ],
)
@pytest.mark.parametrize("hybrid", [False, True])
def test_class_numbers_that_do_not_fit(hybrid, shapes, rule):
    """They were called an index of pick, with no way out."""
    loss = losses.SoftmaxCrossEntropyLoss()
    loss.hybridize(hybrid)
    with pytest.raises(ShapeError, match=f"^SoftmaxCrossEntropyLoss: the prediction .*{rule}"):
        loss(*map(np.ones, shapes))


@pytest.mark.parametrize("case", CASES, ids=lambda case: type(case[0]).__name__)
def test_float16(case):
    loss, *arrays = case
    half = [np.array(a, dtype="float16" if a.dtype.kind == "f" else None) for a in arrays]
    wide = [np.array(a, dtype="float64" if a.dtype.kind == "f" else None) for a in arrays]
    found, expected = loss(*half), loss(*wide)
    assert found.dtype == ("float32" if isinstance(loss, losses.CTCLoss) else "float16")
    numpy.testing.assert_allclose(found.asnumpy(), expected.asnumpy(), rtol=2e-2, atol=2e-2)


@pytest.mark.parametrize("case", CASES, ids=lambda case: type(case[0]).__name__)
def test_another_device(case):
    loss, *arrays = case
    here, there = ([np.array(a, device=d) for a in arrays] for d in (cpu(0), cpu(1)))
    for hybrid in (False, True):
        loss.hybridize(hybrid)
        found = loss(*there)
        assert found.device == cpu(1)
        assert found.tolist() == loss(*here).tolist()


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_probabilities_of_zero_and_one(dtype):
    hard = np.array([[0.0, 1.0], [1.0, 0.0]], dtype=dtype)
    logs = np.log(np.array([[0.25, 0.75], [0.5, 0.5]], dtype=dtype))
    assert numpy.isfinite(losses.KLDivLoss()(logs, hard).asnumpy()).all()
    assert numpy.isfinite(losses.SigmoidBCELoss(from_sigmoid=True)(hard, hard).asnumpy()).all()
    zeros, ones = np.zeros((2, 2), dtype=dtype), np.ones((2,), dtype=dtype)
    assert losses.CosineEmbeddingLoss()(zeros, zeros, ones).tolist() == [[1.0], [1.0]]


@pytest.mark.parametrize(("dtype", "size"), [("float16", 1), ("float32", 1e12)])
def test_cosines_of_long_vectors(dtype, size):
    # Vectors of length 22: the product of their squared lengths exceeds float16.
    one, other = normal(2, 512) * size, normal(2, 512) * size
    cosine = (
        (one * other).sum(1) / numpy.linalg.norm(one, axis=1) / numpy.linalg.norm(other, axis=1)
    )
    ones = np.ones((2,), dtype=dtype)
    found = losses.CosineEmbeddingLoss()(
        np.array(one, dtype=dtype), np.array(other, dtype=dtype), ones
    )
    numpy.testing.assert_allclose(found.asnumpy()[:, 0], 1 - cosine, rtol=2e-3)


@pytest.mark.parametrize(
    ("dtype", "most"), [("float16", 2e4), ("bfloat16", 1.1e6), ("float32", 1e6), ("float64", 1e6)]
)
def test_gradients_of_cosines_of_zeros_are_bounded(dtype, most):
    zeros, other = np.zeros((2, 3), dtype=dtype), np.array([[3, -4, 0]] * 2, dtype=dtype)
    zeros.attach_grad()
    with autograd.record():
        loss = losses.CosineEmbeddingLoss(margin=-1)(zeros, other, np.array([1, -1], dtype=dtype))
    loss.backward()
    found = zeros.grad.asnumpy().astype("float64")
    assert 1e4 / 2 < abs(found).max() <= most
    numpy.testing.assert_allclose(found[0] / found[0, 0], [1, -4 / 3, 0], rtol=1e-2)
    numpy.testing.assert_array_equal(found[1], -found[0])


def test_settings_that_cannot_be():
    for make in (
        lambda: losses.LogisticLoss(label_format="singed"),
        lambda: losses.CTCLoss(layout="NCT"),
        lambda: losses.CTCLoss(label_layout="NTT"),
    ):
        with pytest.raises(UnknownNameError):
            make()
    assert losses.L2Loss(weight=numpy.float32(2))(np.ones(1), np.zeros(1)).tolist() == [1.0]
    with pytest.raises(TypeError, match="weight must be a number"):
        losses.L2Loss(weight="1")


def test_no_elements():
    for loss in (losses.L2Loss(), losses.L1Loss()):
        assert loss(np.zeros((0, 3)), np.zeros((0, 3))).shape == (0,)
    assert losses.SoftmaxCELoss()(np.zeros((0, 3)), np.zeros((0,))).shape == (0,)


class Forward(losses.Loss):
    def __init__(self, weight=None, batch_axis=0, **settings):
        super().__init__(weight, batch_axis, **settings)

    def forward(self, pred, label):
        return np.abs(pred - label).sum(axis=1)


class Hybrid(losses.Loss):
    def __init__(self, **settings):
        super().__init__(None, 0, **settings)

    def hybrid_forward(self, F, pred, label, sample_weight=None):
        return F.np.abs(pred - label).sum(axis=1)


class Twice(losses.L1Loss):
    def hybrid_forward(self, F, pred, label, sample_weight=None):
        return super().hybrid_forward(F, pred, label, sample_weight) * 3


class Masked(losses.SoftmaxCELoss):
    """A masked loss as books write it."""

    def forward(self, pred, label, valid_len):
        weights = np.expand_dims(np.ones_like(label), axis=-1)
        weights = npx.sequence_mask(weights, valid_len, True, axis=1)
        return super().forward(pred, label, weights)


ONE_EACH = [
    (losses.SoftmaxCELoss(), normal(4, 3), numpy.array([0, 2, 1, 1])),
    (losses.SoftmaxCELoss(), normal(4, 4, 3), random.randint(0, 3, (4, 4))),
    (losses.L2Loss(), normal(4, 1), normal(4, 1)),
    (losses.CTCLoss(), normal(4, 6, 4), random.randint(0, 3, (4, 2))),
    (losses.TripletLoss(), normal(4, 3), normal(4, 3), normal(4, 3)),
    (losses.CosineEmbeddingLoss(), normal(4, 3), normal(4, 3), SIGNS[:, 0]),
]


@pytest.mark.parametrize("hybrid", [False, True])
@pytest.mark.parametrize("case", ONE_EACH, ids=lambda case: type(case[0]).__name__)
def test_a_weight_for_each_loss_comes_in_any_shape(case, hybrid):
    loss, *given = case
    given = [np.array(each) for each in given]
    loss.hybridize(hybrid)
    steps = isinstance(loss, losses.SoftmaxCELoss) and given[0].ndim == 3
    weights = normal(4, 4) ** 2 if steps else numpy.arange(4.0)
    alone = loss(*given).asnumpy()
    if weights.ndim == 1:
        expected = alone.reshape(4) * weights
    else:
        logs = npx.log_softmax(given[0]).asnumpy()
        picked = numpy.take_along_axis(logs, given[1].asnumpy()[..., None], 2)[..., 0]
        expected = -(picked * weights).mean(axis=1)
    for shape in (weights.shape, (*weights.shape, 1)):
        found = loss(*given, sample_weight=np.array(weights.reshape(shape)))
        assert found.shape == alone.shape
        numpy.testing.assert_allclose(found.asnumpy().reshape(4), expected, rtol=1e-6)
    with pytest.raises(ShapeError, match=r"weight|broadcast"):
        loss(*given, sample_weight=np.ones((4, 1, 1, 2)))


@pytest.mark.parametrize("hybrid", [False, True])
def test_losses_of_users(hybrid):
    x, y = np.array([[1.0, 2.0, 3.0]]), np.array([[1.0, 1.0, 1.0]])
    for kind in (Forward, Hybrid, Twice):
        loss = kind()
        loss.hybridize(hybrid)
        assert loss(x, y).tolist() == pytest.approx([3.0])
    loss = Masked()
    loss.hybridize(hybrid)
    found = loss(np.ones((3, 4, 10)), np.ones((3, 4)), np.array([4, 2, 0]))
    assert found.tolist() == pytest.approx([2.3026, 1.1513, 0.0], abs=1e-4)


@pytest.mark.parametrize("hybrid", [False, True])
@pytest.mark.parametrize("case", CASES, ids=lambda case: type(case[0]).__name__)
def test_lists_and_arrays_of_numpy(case, hybrid):
    loss, *given = case
    arrays = [np.array(a, dtype="float32" if a.dtype.kind == "f" else "int32") for a in given]
    loss.hybridize(hybrid)
    try:
        wanted = loss(*arrays).asnumpy()
        labels = [a.tolist() for a in arrays[1:]]
        numpys = [a.asnumpy() for a in arrays[1:]]
        names = list(inspect.signature(loss.forward).parameters)
        for found in (
            loss(arrays[0], *labels),
            loss(arrays[0], *numpys),
            loss(*(a.tolist() for a in arrays)),
            loss(**dict(zip(names, [arrays[0], *labels], strict=False))),
        ):
            assert isinstance(found, np.ndarray)
            numpy.testing.assert_allclose(found.asnumpy(), wanted, rtol=1e-5, atol=1e-6)
        for number in range(len(given)):
            for bad in ("a", object(), [["a"]]):
                mixed = [*arrays[:number], bad, *arrays[number + 1 :]]
                with pytest.raises(OperandError, match=f"{names[number]}.*not an array of numbers"):
                    loss(*mixed)
    finally:
        loss.hybridize(False)


def test_numbers():
    assert losses.L2Loss()(3.0, 1).item() == 2.0
    with pytest.raises(ShapeError, match=r"the prediction has shape \(2, 3\) and the label \(\)"):
        losses.L1Loss()(np.ones((2, 3)), 1.0)
    with pytest.raises(OperandError, match="the label None is not an array"):
        losses.L1Loss()(np.ones((2, 3)), None)


@pytest.mark.parametrize(
    ("kind", "setting"),
    [
        (losses.HuberLoss, "rho"),
        (losses.HingeLoss, "margin"),
        (losses.TripletLoss, "margin"),
        (losses.CosineEmbeddingLoss, "margin"),
        (losses.SDMLLoss, "smoothing_parameter"),
    ],
)
def test_settings_that_are_no_numbers(kind, setting):
    with pytest.raises(ArgumentError, match=setting):
        kind(**{setting: "a"})
