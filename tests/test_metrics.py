"""Metrics without a table from MXNet 1.9.1, and users' own; and `update` never waits."""

from __future__ import annotations

import numpy
import pytest
from gates import reader

from gemel import autograd, cpu, gluon, init, metric, nd, np
from gemel.errors import (
    ArgumentError,
    ArrayIndexError,
    AxisError,
    OperandError,
    ShapeError,
    UnknownKeywordError,
    UnknownNameError,
)

random = numpy.random.RandomState(11)


def scores(*shape):
    found = random.rand(*shape)
    return found / found.sum(axis=-1, keepdims=True)


def value(made, *batches):
    for label, pred in batches:
        made.update(np.array(label), np.array(pred))
    return made.get()[1]


def counts(label, pred):
    yes, right = numpy.asarray(pred, bool), numpy.asarray(label, bool)
    return (yes & right).sum(0), (yes & ~right).sum(0), (~yes & right).sum(0)


def fbeta(label, pred, beta=1.0):
    hit, false, missed = counts(label, pred)
    below = (1 + beta**2) * hit + beta**2 * missed + false
    return numpy.where(below > 0, (1 + beta**2) * hit / numpy.maximum(below, 1), 0)


LABEL, PRED = random.randint(0, 2, 20), random.rand(20)
CLASSES, SCORES = random.randint(0, 4, 30), scores(30, 4)
ONE_HOT, BEST = numpy.eye(4)[CLASSES], numpy.eye(4)[SCORES.argmax(1)]
MANY, LIKELY = random.randint(0, 2, (10, 3)), random.rand(10, 3)


@pytest.mark.parametrize("beta", [1, 0.5, 2])
def test_fbeta(beta):
    batches = [(LABEL[:12], PRED[:12]), (LABEL[12:], PRED[12:])]
    expected = fbeta(LABEL, PRED > 0.5, beta)
    assert value(metric.Fbeta(beta=beta), *batches) == pytest.approx(expected)
    assert value(metric.Fbeta(beta=beta, threshold=0.3), *batches) == pytest.approx(
        fbeta(LABEL, PRED > 0.3, beta)
    )
    made = metric.Fbeta(beta=beta, class_type="multilabel", average="macro")
    assert value(made, (MANY, LIKELY)) == pytest.approx(fbeta(MANY, LIKELY > 0.5, beta).mean())


@pytest.mark.parametrize("average", ["macro", "micro", None])
def test_f1_of_several_classes(average):
    made = metric.F1(class_type="multiclass", average=average)
    found = value(made, (CLASSES[:20], SCORES[:20]), (CLASSES[20:], SCORES[20:]))
    each = fbeta(ONE_HOT, BEST)
    together = fbeta(ONE_HOT.ravel(), BEST.ravel())
    expected = {"macro": each.mean(), "micro": together, None: each}[average]
    numpy.testing.assert_allclose(found, expected, rtol=1e-12)


def test_classes_are_along_the_last_axis():
    label, pred = CLASSES.reshape(5, 6), SCORES.reshape(5, 6, 4)
    for average in ("macro", "micro", None):
        flat, deep = (metric.F1(class_type="multiclass", average=average) for _ in range(2))
        expected = value(flat, (CLASSES, SCORES))
        numpy.testing.assert_array_equal(value(deep, (label, pred)), expected)
        flat, deep = (metric.F1(class_type="multilabel", average=average) for _ in range(2))
        expected = value(flat, (MANY, LIKELY))
        found = value(deep, (MANY.reshape(5, 2, 3), LIKELY.reshape(5, 2, 3)))
        numpy.testing.assert_array_equal(found, expected)


def test_thresholds():
    """Also of the second of two probabilities, and one for each class."""
    both = numpy.stack([1 - PRED, PRED], axis=-1)
    for threshold in (0.3, 0.5, 0.8):
        expected = fbeta(LABEL, threshold < PRED)
        for label, pred in ((LABEL, both), (LABEL.reshape(4, 5), both.reshape(4, 5, 2))):
            assert value(metric.F1(threshold=threshold), (label, pred)) == pytest.approx(expected)
    assert value(metric.F1(), (LABEL, both.round().astype("uint8"))) == pytest.approx(
        fbeta(LABEL, PRED > 0.5)
    )
    each = numpy.array([0.2, 0.5, 0.7])
    for threshold in (each, np.array(each)):
        made = metric.BinaryAccuracy(threshold=threshold)
        assert value(made, (MANY, LIKELY)) == pytest.approx(((each < LIKELY) == MANY).mean())
        made = metric.F1(class_type="multilabel", average=None, threshold=threshold)
        numpy.testing.assert_allclose(value(made, (MANY, LIKELY)), fbeta(MANY, each < LIKELY))
    assert value(metric.F1(), (MANY[:, :2], LIKELY[:, :2])) == pytest.approx(
        fbeta(MANY[:, :2].ravel(), LIKELY[:, :2].ravel() > 0.5)
    )


def test_scores_that_are_nan_are_not_all_right():
    label, pred = numpy.arange(4), numpy.full((4, 4), numpy.nan)
    assert value(metric.TopKAccuracy(2), (label, pred)) == 0.5
    pred[:, 2:] = 1.0
    assert value(metric.TopKAccuracy(2), (label, pred)) == 0.5
    assert value(metric.Accuracy(), (label, pred)) == 0.25


@pytest.mark.parametrize("p", [0, 1, 2, 3.5, numpy.inf])
@pytest.mark.parametrize("shape", [(5,), (5, 3), (5, 2, 3)])
def test_distances_of_whole_examples(p, shape):
    x, y = random.randn(*shape), random.randn(*shape)
    expected = [numpy.linalg.norm((a - b).ravel(), p) for a, b in zip(x, y, strict=True)]
    found = value(metric.MeanPairwiseDistance(p=p), (x, y))
    assert found == pytest.approx(numpy.mean(expected))


def test_the_rest_of_mxnet_2():
    made = metric.BinaryAccuracy(threshold=0.6)
    assert value(made, (LABEL, PRED)) == pytest.approx(((PRED > 0.6) == LABEL).mean())
    x, y = random.randn(5, 3), random.randn(5, 3)
    apart = numpy.abs(x - y)
    for p in (1, 2, 3):
        expected = ((apart**p).sum(1) ** (1 / p)).mean()
        found = value(metric.MeanPairwiseDistance(p=p), (x, y))
        assert found == pytest.approx(expected, rel=1e-5)
    cosines = (x * y).sum(1) / numpy.sqrt((x * x).sum(1) * (y * y).sum(1))
    found = value(metric.MeanCosineSimilarity(), (x, y))
    assert found == pytest.approx(cosines.mean(), rel=1e-5)
    logits = numpy.log(SCORES)
    made = metric.CrossEntropy(from_logits=True, ignore_label=2)
    chosen = CLASSES != 2
    expected = -logits[numpy.arange(30), CLASSES][chosen].mean()
    assert value(made, (CLASSES, logits)) == pytest.approx(expected, rel=1e-5)
    assert value(metric.Perplexity(), (CLASSES, SCORES)) == pytest.approx(
        numpy.exp(-logits[numpy.arange(30), CLASSES].mean()), rel=1e-5
    )


def test_ties_go_to_the_first_classes():
    made = metric.TopKAccuracy(top_k=2)
    assert value(made, ([0, 1, 2, 3], numpy.ones((4, 4)))) == 0.5


def test_pcc_of_more_classes_than_before():
    parts = [([0, 1, 1], [0, 1, 0]), ([3, 2, 0], [3, 0, 2])]
    made = metric.PCC()
    made.update(*[[np.array(part[i]) for part in parts] for i in (0, 1)])
    assert made.get()[1] == value(metric.PCC(), *parts) == value(metric.PCC(), *parts[::-1])


@pytest.mark.parametrize(
    "name", ["acc", "ce", "f1", "mcc", "nll_loss", "pcc", "perplexity", "top_k_acc"]
)
def test_labels_in_a_column_are_labels(name):
    settings = {"top_k": 2} if name == "top_k_acc" else {}
    labels, scores = np.array([0, 1, 1, 0]), np.array([[0.8, 0.2], [0.3, 0.7], [0.6, 0.4], [1, 0]])
    one, other = (metric.create(name, **settings) for _ in range(2))
    one.update(labels, scores)
    other.update(labels.reshape(4, 1), scores)
    assert one.get() == other.get()


@pytest.mark.parametrize("name", sorted(set(gluon.metric.base._BY_NAME) - {"composite"}))
def test_a_batch_of_no_examples_changes_nothing(name):
    if "composite" in name or name == "largest":
        return
    made = metric.create(name, **({"top_k": 2} if "top" in name else {}))
    made.update(np.zeros((0, 2)), np.zeros((0, 2)))
    assert numpy.isnan(made.get()[1])


def test_names():
    assert {type(metric.create(name)) for name in ("acc", "Accuracy", "ACC")} == {metric.Accuracy}
    made = metric.create(["acc", metric.MAE(), lambda label, pred: (label.sum(), len(label))])
    assert [type(part) for part in made.metrics][::2] == [metric.Accuracy, metric.CustomMetric]
    with pytest.raises(UnknownNameError, match="did you mean 'accuracy'"):
        metric.create("acuracy")
    assert metric.create("top_k_acc", top_k=3).name == "top_k_accuracy_3"
    assert gluon.metric.Accuracy is metric.Accuracy
    for name in metric.__all__:
        assert getattr(metric, name).__doc__


@pytest.mark.parametrize(
    "made",
    [
        metric.Accuracy(axis=2, output_names=["out"]),
        metric.TopKAccuracy(3),
        metric.TopKAccuracy(3, name="mine"),
        metric.BinaryAccuracy(threshold=0.2),
        metric.F1(class_type="multiclass", average=None, threshold=0.3),
        metric.Fbeta(class_type="multilabel", beta=2),
        metric.MCC(average="micro"),
        metric.CrossEntropy(eps=0.5, name="mine", ignore_label=2, axis=1, from_logits=True),
        metric.Perplexity(ignore_label=2, axis=1, from_logits=True),
        metric.MeanPairwiseDistance(p=1),
        metric.MeanCosineSimilarity(eps=0.1),
        metric.PearsonCorrelation(average="micro"),
        metric.MAE("mine", label_names=["label"]),
    ],
    ids=str,
)
def test_a_configuration_makes_the_metric_again(made):
    again = metric.create(**made.get_config())
    assert type(again) is type(made) and vars(again) == vars(made)
    (inner,) = metric.create(**metric.CompositeEvalMetric([made]).get_config()).metrics
    assert type(inner) is type(made) and vars(inner) == vars(made)


def test_composite():
    made = metric.CompositeEvalMetric(["acc"])
    made.add(metric.np(lambda label, pred: float((label == 1).mean()), name="ones"))
    made.update([np.array([1, 0])], [np.array([[0.2, 0.8], [0.1, 0.9]])])
    assert made.get() == (["accuracy", "ones"], [0.5, 0.5])
    assert made.get_name_value() == [("accuracy", 0.5), ("ones", 0.5)]
    assert made.get_metric(0).get() == ("accuracy", 0.5)
    with pytest.raises(ArrayIndexError, match="get_metric: index 2 is out of range for 2 metrics"):
        made.get_metric(2)
    made.reset()
    assert all(numpy.isnan(found) for found in made.get()[1])
    assert "accuracy" in str(made)


def test_update_dict():
    made = metric.Accuracy(output_names=["out"], label_names=["truth"])
    pred = {"other": np.zeros((2, 3)), "out": np.array([[0.0, 1], [1, 0]])}
    made.update_dict({"truth": np.array([1, 1]), "more": np.zeros(2)}, pred)
    assert made.get() == ("accuracy", 0.5)


def test_custom():
    def error(label, pred):
        assert isinstance(label, numpy.ndarray)
        return numpy.abs(label - pred).sum(), label.size

    made = metric.CustomMetric(error)
    assert made.name == "error"
    assert value(made, ([1.0, 2.0], [1.0, 1.0]), ([5.0], [0.0])) == 2.0
    more = metric.CustomMetric(lambda label, pred: pred.sum(), allow_extra_outputs=True)
    assert more.name == "custom(<lambda>)"
    more.update([np.ones(2)], [np.ones(2), np.zeros(3)])
    assert more.get()[1] == 2


@pytest.mark.parametrize("found", [None, "a", [1, 2], (1, 2, 3), numpy.ones(2), (1, None)], ids=str)
def test_custom_functions_return_numbers(found):
    made = metric.CustomMetric(lambda label, pred: found, name="mine")
    with pytest.raises(OperandError, match="CustomMetric mine: the function returned"):
        made.update(np.ones(2), np.ones(2))
    with pytest.raises(OperandError, match="it must be a function"):
        metric.CustomMetric(found)


@metric.register
class Largest(metric.EvalMetric):
    """A metric in the style of MXNet's users."""

    def __init__(self, name="largest", **settings):
        super().__init__(name, **settings)

    def update(self, labels, preds):
        labels, preds = metric.check_label_shapes(labels, preds, True)
        for _, pred in zip(labels, preds, strict=True):
            self.sum_metric += pred.max()
            self.num_inst += 1


def test_metrics_of_users():
    made = metric.create("largest")
    made.update(np.zeros(3), np.array([1.0, 4.0, 2.0]))
    made.update([np.zeros(3)], [np.array([0.0, 2.0, 1.0])])
    assert made.get() == ("largest", 3.0)


def test_local_and_global():
    made = metric.MAE()
    value(made, ([1.0], [2.0]))
    made.reset_local()
    assert value(made, ([1.0], [4.0])) == 3.0
    assert made.get_global() == ("mae", 2.0)
    made.reset()
    assert numpy.isnan(made.get_global()[1])


@pytest.mark.parametrize(
    ("name", "settings", "label"),
    [
        ("acc", {}, [0, 1]),
        ("top_k_acc", {"top_k": 2}, [0, 1]),
        ("f1", {}, [0, 1]),
        ("f1", {"average": "micro"}, [0, 1]),
        ("mcc", {}, [0, 1]),
        ("pcc", {}, [0, 1]),
        ("ce", {}, [0, 1]),
        ("perplexity", {"ignore_label": 1}, [0, 1]),
        ("mse", {}, [[0.0, 1], [1, 0]]),
        ("pearsonr", {"average": "micro"}, [[0.0, 1], [1, 0]]),
        ("loss", {}, [0, 1]),
    ],
)
def test_update_waits_for_nothing(name, settings, label):
    made, pred = metric.create(name, **settings), np.array([[0.25, 0.75], [0.5, 0.5]])
    label = np.array(label)
    with reader(pred):
        pred *= 1  # pred is not ready yet
        made.update(label, pred)
    made.update(label, pred)
    once = metric.create(name, **settings)
    once.update(label, pred)
    once.update(nd.array(label), nd.array(pred))  # comparisons of NDArrays give floats
    assert made.get() == once.get()


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("acc", {}),
        ("top_k_acc", {"top_k": 2}),
        ("f1", {}),
        ("f1", {"class_type": "multiclass"}),
        ("mcc", {"average": "micro"}),
        ("pcc", {}),
        ("ce", {}),
        ("perplexity", {"ignore_label": 1}),
        ("mse", {}),
        ("pearsonr", {"average": "micro"}),
        ("cos_sim", {}),
        ("loss", {}),
    ],
)
def test_several_devices(name, settings):
    regression = name in ("mse", "pearsonr", "cos_sim", "loss")
    binary = name in ("f1", "mcc") and not settings.get("class_type")
    label = SCORES if regression else LABEL if binary else CLASSES
    pred = scores(20, 2) if binary else SCORES[::-1].copy()
    found = []
    for devices in ([cpu(0)] * 2, [cpu(0), cpu(1)], [cpu(1), cpu(0)]):
        made = metric.create(name, **settings)
        for size in (8, 4):
            parts = [slice(0, size), slice(size, 2 * size)]
            made.update(
                [np.array(label[part], device=d) for part, d in zip(parts, devices, strict=True)],
                [np.array(pred[part], device=d) for part, d in zip(parts, devices, strict=True)],
            )
        found.append(made.get())
    assert found[0] == found[1] == found[2]


def test_nothing_of_it_is_recorded():
    x, made = np.ones((2, 2)), metric.Loss()
    x.attach_grad()
    with autograd.record():
        made.update(None, x * 2)
        metric.MSE().update(x, x * 2)
    with pytest.raises(Exception, match="record"):
        made.sum_metric.backward()


def test_numpy_arrays_lists_and_other_dtypes():
    assert value(metric.Accuracy(), ([1, 0], [[0.1, 0.9], [0.2, 0.8]])) == 0.5
    made = metric.RMSE()
    made.update(numpy.ones(4), numpy.zeros(4, "float16"))
    assert made.get()[1] == 1.0
    made = metric.Loss()
    for _ in range(3):  # sums are kept in double precision
        made.update(None, np.full((1000,), 60000, dtype="float16"))
    assert made.get()[1] == pytest.approx(60000)


@pytest.mark.parametrize("kind", [np.array, numpy.float32, float, nd.array])
def test_a_loss_may_be_a_single_number(kind):
    made = metric.Loss()
    for loss in (1.0, 2.0):
        made.update(0, kind(loss))
    assert made.get() == ("loss", 1.5)
    made = metric.MAE()
    made.update(kind(1.0), kind(3.0))
    assert made.get() == ("mae", 2.0)


def test_bad_input():
    with pytest.raises(ShapeError, match="labels of size"):
        metric.Accuracy().update([np.zeros(2)], [np.zeros(2), np.zeros(2)])
    for made, label, pred in (
        (metric.Accuracy(), np.zeros(3), np.zeros((2, 2))),
        (metric.TopKAccuracy(2), np.zeros(3), np.zeros((2, 2))),
        (metric.MSE(), np.zeros(3), np.zeros(2)),
        (metric.CrossEntropy(), np.zeros(3), np.zeros((2, 2))),
        (metric.PearsonCorrelation(), np.zeros(3), np.zeros(2)),
    ):
        with pytest.raises(ShapeError):
            made.update([label], [pred])
        assert numpy.isnan(made.get()[1])
    made = metric.MSE()
    with pytest.raises(ShapeError):
        made.update([np.zeros(2), np.zeros(2)], [np.ones(2), np.ones(3)])
    assert numpy.isnan(made.get()[1])
    made = metric.CrossEntropy()
    made.update(np.array([2]), np.ones((1, 2)))
    with pytest.raises(IndexError, match="out of bounds"):
        made.get()
    for wrong in (2, -1):
        for made in (metric.F1(), metric.F1(class_type="multiclass"), metric.PCC()):
            made.update(np.array([0, wrong]), np.ones((2, 2)))
            with pytest.raises(ValueError, match=r"two classes|2 classes"):
                made.get()
    made = metric.PCC()
    made.update(np.array([0, -1]), np.array([0, 1]))
    with pytest.raises(ArgumentError, match="out of range for 2 classes"):
        made.get()
    for wrong in (1, 2.5, "2"):
        with pytest.raises(ArgumentError, match="Accuracy"):
            metric.TopKAccuracy(wrong)
    with pytest.raises(AxisError, match="CrossEntropy: axis 5"):
        metric.CrossEntropy(axis=5).update(np.zeros(2), np.ones((2, 2)))
    with pytest.raises(ShapeError, match=r"F1: predictions of shape \(2,\)"):
        metric.F1(class_type="multiclass").update(np.zeros(2), np.zeros(2))
    for label, pred in ((None, np.ones(2)), (np.ones(2), None), ("ab", np.ones(2))):
        with pytest.raises(OperandError, match=r"metric: (labels|preds) is"):
            metric.Accuracy().update(label, pred)
    with pytest.raises(UnknownNameError, match="output of update_dict 'out'"):
        metric.Accuracy(output_names=["out"]).update_dict({"y": np.ones(2)}, {"ouT": np.ones(2)})
    with pytest.raises(ArgumentError, match="no entry 'metric'"):
        metric.create({"axis": 1})
    with pytest.raises(UnknownNameError):
        metric.F1(average="makro")
    for make, setting in (
        (metric.F1, "threshold"),
        (metric.Fbeta, "beta"),
        (metric.BinaryAccuracy, "threshold"),
        (metric.MeanCosineSimilarity, "eps"),
        (metric.CrossEntropy, "eps"),
    ):
        with pytest.raises(ArgumentError, match=f"{make.__name__}: {setting} is 'a'"):
            make(**{setting: "a"})


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: metric.Accuracy(axis="a"), "Accuracy: axis 'a' must be a whole number"),
        (lambda: metric.Perplexity(axis=2.5), "Perplexity: axis 2.5 must be a whole number"),
        (lambda: metric.MAE(output_names="softmax"), "MAE: output_names must be a list, not str"),
        (lambda: metric.F1(label_names=5), "F1: label_names must be a list, not int 5"),
        (lambda: metric.MSE().update_dict([1], {}), r"update_dict: \[1\] is not a dictionary"),
        (lambda: metric.create(["mse"]).update_dict({}, 5), "5 is not a dictionary of each output"),
        (lambda: metric.CompositeEvalMetric("acc"), "CompositeEvalMetric: metrics must be a list"),
        (lambda: metric.create(["mse"]).get_metric("a"), "get_metric: index 'a' must be a whole"),
    ],
)
def test_what_is_no_axis_name_or_position(call, said):
    with pytest.raises(OperandError, match=said):
        call()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: metric.Accuracy(axes=1), "Accuracy takes no keyword 'axes'; did you mean 'axis'"),
        (lambda: metric.create("f1", averages=None), "F1 takes no keyword 'averages'"),
        (lambda: metric.Perplexity(eps=1), "Perplexity takes no keyword 'eps'"),
        (lambda: init.Normal(sigmo=1), r"Normal takes no .* mean 'sigma'\? \(it takes sigma\)"),
        (lambda: init.create("xavier", magnitud=1), "did you mean 'magnitude'"),
    ],
)
def test_unknown_keywords(make, message):
    with pytest.raises(UnknownKeywordError, match=message):
        make()
