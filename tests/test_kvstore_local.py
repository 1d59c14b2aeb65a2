"""Sums in one process: dtypes that are summed as float32, compression and overflow."""

from __future__ import annotations

from typing import Any

import numpy
import pytest
from mpi_programs import by_kind

from gemel import amp, autograd, cpu, device, gluon, gpu, kvstore, np, npx, optimizer
from gemel.errors import GemelError
from gemel.gluon import Parameter

KINDS = ["fp16", "bf16", "2bit"]
#: For each dtype a number to which adding 1 changes nothing, and that number plus 2.
LARGE = {"float16": (2048.0, 2050.0), "bfloat16": (256.0, 258.0)}


@pytest.fixture(autouse=True)
def gpus():
    device.simulate(3, gigabytes_per_second=100, microseconds=0)
    yield
    npx.waitall()
    device.simulate(0)


def store_with(value: Any, kind: str = "none", name: str = "device") -> Any:
    store = kvstore.create(name)
    if kind != "none":
        store.set_gradient_compression(by_kind(kind, 0.5))
    store.init(0, value)
    return store


# ---- sums of two-byte numbers


@pytest.mark.parametrize("places", [[cpu(0), cpu(1), cpu(2)], [gpu(0), gpu(1), gpu(2)],
                                    [cpu(0), gpu(0), cpu(1)]], ids=str)  # fmt: skip
@pytest.mark.parametrize("dtype", LARGE)
@pytest.mark.parametrize(
    ("name", "kind"), [("device", "none"), ("local", "none"), ("device", "fp16")]
)
def test_two_byte_numbers_are_summed_in_float32_and_rounded_once(name, kind, dtype, places):
    large, expected = LARGE[dtype]
    values = [
        np.array([value], dtype=dtype, device=place)
        for value, place in zip((large, 1.0, 1.0), places, strict=True)
    ]
    store, out = store_with(values[0], kind, name), np.zeros((1,), dtype=dtype)
    store.push(0, values)
    store.pull(0, out)
    assert out.tolist() == [expected]
    for row in store.totals([0], [values], places):
        assert (row[0].dtype, row[0].tolist()) == (dtype, [expected])
    store.pushpull(0, values)
    assert [value.tolist() for value in values] == [[expected]] * 3


def test_the_sum_of_one_array_is_another_array():
    for dtype in ("bool", "float16", "float32"):
        one = np.ones((2,), dtype=dtype)
        (row,) = kvstore.create("device").totals([0], [[one]], [cpu(0)])
        row[0][...] = 0
        assert (row[0].dtype, one.tolist()) == (dtype, [1, 1])


@pytest.mark.parametrize("places", [[cpu(0)], [cpu(0), cpu(1)], [cpu(0), gpu(0)]], ids=str)
def test_sums_of_bools_are_bools(places):
    values = [np.array([True, False], dtype="bool", device=place) for place in places]
    for row in kvstore.create("device").totals([0], [values], places):
        assert (row[0].dtype, row[0].tolist()) == ("bool", [True, False])


# ---- compression and what is not finite


@pytest.mark.parametrize("bad", [float("inf"), -float("inf"), float("nan")])
@pytest.mark.parametrize("kind", KINDS)
def test_what_is_not_finite_arrives_once_and_leaves_no_error(kind, bad):
    store, out = store_with(np.zeros((6,)), kind), np.zeros((6,))
    store.pushpull(0, np.array([0.3, bad, 1.0, bad, 1.0, 1.0]), out=out)
    found = numpy.isfinite(out.asnumpy()).tolist()
    assert found == [True, False, True, False, True, True]
    if kind != "2bit":
        numpy.testing.assert_array_equal(out.asnumpy()[[1, 3]], [bad] * 2)
    fresh, expected = store_with(np.zeros((6,)), kind), np.zeros((6,))
    for _ in range(3):
        store.pushpull(0, np.ones((6,)), out=out)
        fresh.pushpull(0, np.ones((6,)), out=expected)
        assert out.tolist()[1] == out.tolist()[3] == expected.tolist()[1]


@pytest.mark.parametrize("kind", ["none", *KINDS])
def test_a_step_that_overflows_on_one_device_is_left_out_on_all(kind):
    """Without compression and with it the same step is skipped, and training goes on."""
    places = [cpu(0), cpu(1)]
    weight = Parameter("w", shape=(2,))
    weight.initialize(init="ones", ctx=places)
    settings = by_kind(kind, 2.0**12)
    trainer = gluon.Trainer([weight], "sgd", {"learning_rate": 0.125}, compression_params=settings)
    amp.init_trainer(trainer, "float16")
    scales, moved = [], []
    for factor in (0.5, float("inf"), 0.5, float("nan"), 0.5):
        before = weight.data().asnumpy()
        with autograd.record():
            losses = [
                (weight.data(place) * np.array([0.5, value], device=place)).sum()
                for place, value in zip(places, (0.5, factor), strict=True)
            ]
            with amp.scale_loss(losses, trainer) as scaled:
                autograd.backward(scaled)
        trainer.step(1)
        scales.append(trainer._amp_loss_scaler.loss_scale)
        after = [array.asnumpy() for array in weight.list_data()]
        assert (after[0] == after[1]).all()
        moved.append(bool((after[0] < before).all()))
    assert scales == [2.0**16, 2.0**15, 2.0**15, 2.0**14, 2.0**14]
    assert moved == [True, False, True, False, True]


@pytest.mark.parametrize("unscaled", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_errors_follow_the_scale_of_the_loss(kind, unscaled):
    """As if what is kept were in the units of the loss without its scale."""
    places, threshold = [cpu(0), cpu(1)], 0.5
    slopes = numpy.array([0.3, -0.7, 1.1, 1e-3], "float32")
    weight = Parameter("w", shape=(4,))
    weight.initialize(init="zeros", ctx=places)
    settings = by_kind(kind, threshold)
    trainer = gluon.Trainer([weight], "sgd", {"learning_rate": 1.0}, compression_params=settings)
    amp.init_trainer(trainer, "float16")

    def sent(value):
        if kind == "2bit":
            return threshold * ((value >= threshold) * 1.0 - (value <= -threshold) * 1.0)
        return np.array(value).astype({"fp16": "float16", "bf16": "bfloat16"}[kind]).asnumpy()

    expected, lost = numpy.zeros(4, "float32"), numpy.zeros(4, "float32")
    for scale in (4.0, 1.0, 8.0, 8.0, 2.0):
        trainer._amp_loss_scaler.loss_scale = scale
        with autograd.record():
            losses = [(weight.data(p) * np.array(slopes, device=p)).sum() for p in places]
            with amp.scale_loss(losses, trainer) as scaled:
                autograd.backward(scaled)
        if unscaled:
            amp.unscale(trainer)
            scale = 1.0
        trainer.step(2)
        arrives = sent(scale * (slopes + lost)).astype("float32") / scale
        lost = slopes + lost - arrives
        expected -= arrives
        assert numpy.allclose(weight.data().asnumpy(), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("on_store", [False, True])
def test_errors_follow_the_batch_size(on_store):
    """What is kept has the units of the mean over a batch, of whatever size."""
    places = [cpu(0), cpu(1)]
    weight = Parameter("w", shape=(1,))
    weight.initialize(init="zeros", ctx=places)
    settings = {"type": "2bit", "threshold": 1.0}
    made = {"compression_params": settings, "update_on_kvstore": on_store}
    trainer = gluon.Trainer([weight], "sgd", {"learning_rate": 1.0}, **made)
    expected = lost = 0.0
    for batch, slope in [(2, 0.75), (8, 0.125), (4, 0.25), (1, 0.375), (16, 3.0), (2, 0.0)]:
        with autograd.record():
            losses = [(weight.data(place) * slope).sum() for place in places]
        autograd.backward(losses)
        trainer.step(batch)
        wanted = slope + lost * batch
        arrives = float(wanted >= 1) - float(wanted <= -1)
        lost = (wanted - arrives) / batch
        expected -= 2 * arrives / batch
        assert weight.data().tolist() == [expected]


def test_errors_belong_to_a_trainer():
    """Two trainers whose parameters have equal keys and shapes, and pushes by hand."""
    places = [cpu(0), cpu(1)]
    store, weights, trainers = store_with(np.zeros((1,)), "2bit"), [], []
    for _ in range(2):
        weight = Parameter("w", shape=(1,))
        weight.initialize(init="zeros", ctx=places)
        weights.append(weight)
        trainers.append(gluon.Trainer([weight], "sgd", {"learning_rate": 1.0}, kvstore=store))
    for turn in range(2):
        for weight, trainer, slope in zip(weights, trainers, (0.375, 0.125), strict=True):
            with autograd.record():
                losses = [(weight.data(place) * slope).sum() for place in places]
            autograd.backward(losses)
            trainer.step(1)
        assert [weight.data().item() for weight in weights] == [-1.0 * turn, 0.0]


@pytest.mark.parametrize("given", [None, "somebody else's"])
def test_compression_without_a_store_that_compresses(given):
    class Store:
        def pushpull(self, key, value, out, priority):
            """Do nothing."""

    store = None if given is None else Store()
    with pytest.raises(GemelError, match="compression_params need a store that compresses"):
        gluon.Trainer([], "sgd", kvstore=store, compression_params={"type": "fp16"})


@pytest.mark.parametrize("name", ["device", "local"])
@pytest.mark.parametrize("rule", [None, "sgd"])
@pytest.mark.parametrize(
    ("keys", "values"),
    [
        ([0, "unknown"], [np.ones((2,))] * 2),
        ([0, 1], [np.ones((2,)), [np.ones((2,)), np.ones((3,))]]),
        ([0, 1], [np.ones((2,)), np.ones((3,))]),
        ([0, 1], [np.ones((2,)), 5]),
        ([0, 1.5], [np.ones((2,))] * 2),
    ],
)
def test_a_call_with_one_wrong_key_changes_none(name, rule, keys, values):
    store = kvstore.create(name)
    if rule is not None:
        store.set_optimizer(optimizer.create(rule))
    store.init([0, 1, 2], [np.zeros((2,))] * 3)
    for call in (store.push, store.pushpull):
        with pytest.raises(GemelError):
            call(keys, values)
    targets = [np.full((2,), 7.0), np.full((3,), 7.0)]
    with pytest.raises(GemelError):
        store.pull([0, 1], out=targets)
    assert targets[0].tolist() == [7, 7]
    store.pull(0, out=targets[0])
    assert targets[0].tolist() == [0, 0]
