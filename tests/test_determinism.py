"""The same bits, whichever threads compute them; and close results on all instruction sets."""

from __future__ import annotations

from typing import Any

import pytest
from programs import run

import gemel
from gemel import autograd, gluon, np, npx
from gemel.codegen import target
from gemel.gluon import nn

#: A short training run, large enough for products and loops to be cut into tiles.
TRAINING = """
from hashlib import sha256
import gemel
from gemel import _core, autograd, gluon, np, npx
from gemel.gluon import nn

np.random.seed(SEED)
net = nn.HybridSequential()
net.add(nn.Dense(512, activation="relu"), nn.Dropout(0.3), nn.BatchNorm())
net.add(nn.Dense(512, activation="tanh"), nn.Dropout(0.2), nn.Dense(10))
net.initialize(gemel.init.Xavier())
net(np.ones((2, 300)))
if HYBRID:
    net.hybridize()
loss = gluon.loss.SoftmaxCrossEntropyLoss()
rule = {"learning_rate": 0.05, "momentum": 0.9, "wd": 1e-4}
trainer = gluon.Trainer(net.collect_params(), "sgd", rule)
images = np.random.normal(0, 1, (1024, 300))
labels = np.random.randint(0, 10, (1024,))
order = np.random.permutation(1024)
losses = []
for step in range(4):
    chosen = order[256 * step : 256 * (step + 1)]
    x, label = images[chosen], labels[chosen]
    with autograd.record():
        value = loss(net(x), label).mean()
    value.backward()
    trainer.step(1)
    losses.append(value)
y = net(images)
total = (y * y).sum() + np.exp(images).mean()
bits = sha256()
for array in (*losses, y, total, *(p.data() for p in net.collect_params().values())):
    bits.update(_core.to_bytes(array))
tell(
    bits=bits.hexdigest(),
    losses=[float(value) for value in losses],
    row=y[3].tolist(),
    tiles=_core.counters()["tiles"],
)
"""


def training(hybrid: bool = True, seed: int = 3, **environment: Any) -> dict[str, Any]:
    return run(f"SEED, HYBRID = {seed}, {hybrid}\n{TRAINING}", **environment)


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> dict[bool, dict[str, Any]]:
    """The runs that the others are compared with."""
    return {hybrid: training(hybrid, GEMEL_WORKERS="1") for hybrid in (False, True)}


@pytest.mark.parametrize("hybrid", [False, True])
@pytest.mark.parametrize(
    "environment",
    [
        {"GEMEL_WORKERS": "2"},
        {"GEMEL_ENGINE": "serial"},
        {"GEMEL_WORKERS": "5", "GEMEL_QUEUE_OPS": "3"},
    ],
    ids=["two workers", "serial", "five workers, short queue"],
)
def test_the_same_bits(plain: Any, hybrid: bool, environment: dict[str, str]) -> None:
    found = training(hybrid, **environment)
    assert found["losses"] == plain[hybrid]["losses"]
    assert found["bits"] == plain[hybrid]["bits"]


def test_the_run_is_large_enough_to_be_tiled(plain: Any) -> None:
    assert plain[True]["tiles"] > 0
    assert plain[False]["tiles"] > 0


def test_imperative_and_hybridized_are_close(plain: Any) -> None:
    assert plain[True]["losses"] == pytest.approx(plain[False]["losses"], rel=1e-3)
    assert plain[True]["row"] == pytest.approx(plain[False]["row"], rel=1e-2, abs=1e-3)


def test_the_seed_decides_the_run(plain: Any) -> None:
    assert training(GEMEL_WORKERS="1")["bits"] == plain[True]["bits"]
    assert training(seed=4, GEMEL_WORKERS="1")["bits"] != plain[True]["bits"]


@pytest.mark.parametrize("name", sorted(target.TARGETS))
def test_every_target_runs_the_same_program(plain: Any, name: str) -> None:
    if name != "generic" and not target._NEEDED[name] <= target._flags():
        pytest.skip(f"this processor has no {name}")
    found = training(GEMEL_TARGET=name)
    assert found["losses"] == pytest.approx(plain[True]["losses"], rel=1e-3)
    assert found["row"] == pytest.approx(plain[True]["row"], rel=1e-2, abs=1e-3)


# --- in one process -------------------------------------------------------------------------


def short_run(hybrid: bool, deferred: bool = False) -> list[Any]:
    net = nn.HybridSequential()
    net.add(nn.Dense(9, activation="relu"), nn.Dropout(0.5), nn.Dense(4))
    net.initialize()
    if not deferred:
        net(np.ones((2, 5)))
    if hybrid:
        net.hybridize()
    trainer = gluon.Trainer(net.collect_params(), "adam", {})
    masks = []
    for _ in range(3):
        x = np.random.normal(0, 1, (6, 5))
        with autograd.record():
            loss = (net(x) ** 2).sum()
        loss.backward()
        trainer.step(6)
        masks.append((npx.dropout(np.ones(8), 0.5, mode="always") > 0).tolist())
    return [masks, *(p.data().tolist() for p in net.collect_params().values())]


@pytest.mark.parametrize("hybrid", [False, True])
def test_a_seed_reproduces_a_whole_run(hybrid: bool) -> None:
    found = []
    for seed in (5, 5, 6):
        np.random.seed(seed)
        found.append(short_run(hybrid))
    assert found[0] == found[1]
    assert found[0] != found[2]


def flat(values: Any) -> list[float]:
    return [x for item in values for x in flat(item)] if isinstance(values, list) else [values]


@pytest.mark.parametrize("deferred", [False, True])
def test_imperative_and_hybridized_runs_draw_the_same_numbers(deferred: bool) -> None:
    found = []
    for hybrid in (False, True):
        np.random.seed(9)
        found.append(short_run(hybrid, deferred))
    assert found[0][0] == found[1][0]
    assert flat(found[0]) == pytest.approx(flat(found[1]), rel=1e-3, abs=1e-5)


def test_plans_made_first_and_found_again_give_the_same_bits() -> None:
    function = gemel.compile(lambda x: npx.softmax(np.matmul(x, x.T) * 3).sum(axis=0))
    x = np.random.normal(0, 1, (33, 17))
    first = function(x).tolist()
    assert all(function(x).tolist() == first for _ in range(3))
    assert gemel.compile(function.function)(x).tolist() == first
