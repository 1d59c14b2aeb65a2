"""Schedulers: refused arguments, users' own, and that the rate depends on the update only."""

from __future__ import annotations

import numpy
import pytest

from gemel import autograd, cpu, gluon, lr_scheduler, np
from gemel.errors import ArgumentError, GemelError
from gemel.lr_scheduler import CosineScheduler, FactorScheduler, LRScheduler


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: FactorScheduler(0), "step must be a whole number of at least 1, not 0"),
        (lambda: FactorScheduler(2.5), "step must be a whole number of at least 1, not 2.5"),
        (lambda: FactorScheduler(1, factor=2), "factor is 2; .* from 0 to 1"),
        (lambda: FactorScheduler(1, factor=-0.5), "factor is -0.5; .* from 0 to 1"),
        (lambda: FactorScheduler(1, stop_factor_lr="a"), "stop_factor_lr is 'a'"),
        (lambda: lr_scheduler.MultiFactorScheduler([]), "increasing whole numbers"),
        (lambda: lr_scheduler.MultiFactorScheduler(5), "increasing whole numbers"),
        (lambda: lr_scheduler.MultiFactorScheduler([3, 3]), "increasing whole numbers"),
        (lambda: lr_scheduler.MultiFactorScheduler([3.5]), "each step must be a whole number"),
        (lambda: lr_scheduler.MultiFactorScheduler("34"), "each step must be a whole number"),
        (lambda: lr_scheduler.PolyScheduler(9, pwr=-1), "pwr is -1"),
        (lambda: lr_scheduler.PolyScheduler(9, final_lr="a"), "final_lr is 'a'"),
        (lambda: CosineScheduler(9, base_lr=float("nan")), "base_lr is nan"),
        (lambda: lr_scheduler.PolyScheduler(0), "max_update must be a whole number"),
        (lambda: CosineScheduler(9.5), "max_update must be a whole number"),
        (lambda: CosineScheduler(9, warmup_steps=-1), "warmup_steps must be"),
        (lambda: CosineScheduler(9, warmup_begin_lr=1), "at least warmup_begin_lr"),
        (lambda: CosineScheduler(9, warmup_mode="liner"), "did you mean 'linear'"),
    ],
)
def test_settings_that_cannot_be(make, message):
    with pytest.raises(GemelError, match=message):
        make()


def test_settings_may_be_numpy_s():
    for kind, first, later in (
        (FactorScheduler, (numpy.int64(3), numpy.float32(0.5)), (3, 0.5)),
        (lr_scheduler.MultiFactorScheduler, (numpy.array([2, 5]), 0.5), ([2, 5], 0.5)),
        (lr_scheduler.PolyScheduler, (numpy.int64(9),), (9,)),
        (CosineScheduler, (numpy.int32(9),), (9,)),
    ):
        one, other = kind(*first, warmup_steps=numpy.int64(2)), kind(*later, warmup_steps=2)
        assert [one(number) for number in range(12)] == [other(number) for number in range(12)]


def test_a_schedule_keeps_its_steps():
    steps = [2, 4]
    scheduler = lr_scheduler.MultiFactorScheduler(steps, 0.5)
    before = [scheduler(number) for number in range(9)]
    steps.append(5)
    assert [scheduler(number) for number in range(9)] == before


def test_an_earlier_update_has_the_same_rate_again():
    scheduler = FactorScheduler(step=2, factor=0.5, base_lr=0.8)
    first = [scheduler(number) for number in range(9)]
    assert [scheduler(number) for number in range(9)] == first
    assert first == [0.8, 0.8, 0.8, 0.4, 0.4, 0.2, 0.2, 0.1, 0.1]


def test_the_number_may_be_an_array():
    for scheduler in (FactorScheduler(2, 0.5), CosineScheduler(9), lr_scheduler.PolyScheduler(9)):
        assert [scheduler(t) for t in np.arange(9)] == [scheduler(t) for t in range(9)]


def test_asked_late_for_the_first_time():
    assert CosineScheduler(max_update=5, base_lr=0.3, final_lr=0.1)(100) == pytest.approx(0.1)


class Root(LRScheduler):
    def __call__(self, num_update):
        return self.base_lr / num_update**0.5


@pytest.mark.parametrize("scheduler", [Root(0.4), lambda step: 0.4 / step**0.5])
def test_schedulers_of_users(scheduler):
    made = gluon.Parameter("w", shape=(1,), init="ones")
    made.initialize()
    trainer = gluon.Trainer([made], "sgd", {"lr_scheduler": scheduler})
    for step in range(1, 4):
        before = made.data().item()
        with autograd.record():
            loss = made.data().sum()
        loss.backward()
        trainer.step(1)
        assert before - made.data().item() == pytest.approx(0.4 / step**0.5, rel=1e-5)
        assert trainer.learning_rate == pytest.approx(0.4 / step**0.5)
    with pytest.raises(ArgumentError, match="an lr_scheduler sets the learning rate"):
        trainer.set_learning_rate(0.1)


@pytest.mark.parametrize(
    ("homes", "settings"),
    [
        ([[cpu(0)], [cpu(0)]], {}),
        ([[cpu(0), cpu(1)], [cpu(0), cpu(1)]], {}),
        ([[cpu(0), cpu(1)], [cpu(0), cpu(1)]], {"update_on_kvstore": True}),
        ([[cpu(0), cpu(1)], [cpu(0), cpu(1)]], {"update_on_kvstore": True, "kvstore": "local"}),
        ([[cpu(0)], [cpu(1)]], {}),
        ([[cpu(1)], [cpu(0)]], {}),
    ],
)
@pytest.mark.parametrize("late", [0, 1])
def test_all_parameters_of_a_step_have_its_rate(homes, settings, late):
    """Also one that has been updated less often, wherever it is updated."""
    made = [gluon.Parameter(name, shape=(1,), init="zeros") for name in "ab"]
    for parameter, devices in zip(made, homes, strict=True):
        parameter.initialize(device=devices)
    rates = {"lr_scheduler": lambda step: 10.0 ** (1 - step)}
    trainer = gluon.Trainer(made, "sgd", rates, **settings)
    for used in ([made[1 - late]], made):
        for parameter in used:
            for device in parameter.homes:
                with autograd.record():
                    loss = parameter.data(device).sum() / len(parameter.homes)
                loss.backward()
        trainer.step(1, ignore_stale_grad=True)
    found = [parameter.data(parameter.homes[-1]).item() for parameter in made]
    assert found[late] == pytest.approx(-0.1) and found[1 - late] == pytest.approx(-1.1)


def test_a_base_is_no_schedule():
    with pytest.raises(NotImplementedError, match="LRScheduler"):
        LRScheduler()(1)
