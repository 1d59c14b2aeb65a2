"""Values computed from parameters that programs keep between calls are never out of date."""

from __future__ import annotations

import gc
import os
import random
import threading
from collections.abc import Callable
from typing import Any

import numpy
import pytest
from core_fakes import FLOAT32, array, image, installed, loop_step, vector
from numpy.testing import assert_allclose

from gemel import _core, autograd, gluon, np, npx
from gemel.gluon import nn
from gemel.runtime.image import WRITTEN, Kept, Temporary

WIDTH = 96


# --- the core ----------------------------------------------------------------------------------


def doubled_and_added() -> Any:
    """The image of (x, w) -> x + 2 w, which keeps 2 w."""
    kernel = vector("add", 6, 6)
    return image(
        "kept",
        [(FLOAT32, (4,)), (FLOAT32, (4,))],
        [(FLOAT32, (4,))],
        [
            Kept([1], [], [16], [loop_step(kernel, [(0, 1, 0), (0, 1, 0), (5, 0, 0)], 4)]),
            loop_step(kernel, [(0, 0, 0), (5, 0, 0), (1, 0, 0)], 4),
        ],
    )


@pytest.fixture
def core() -> Any:
    yield from installed()


def test_kept_values_are_those_of_the_array_given(core: Any) -> None:
    plan = doubled_and_added().plan()
    x, weights = array([1, 2, 3, 4]), [array([i] * 4) for i in range(3)]
    for _ in range(3):
        for i, weight in enumerate(weights):
            assert plan(x, weight)[0].tolist() == [1 + 2 * i, 2 + 2 * i, 3 + 2 * i, 4 + 2 * i]


def test_a_new_array_where_an_old_one_was_is_another(core: Any) -> None:
    plan = doubled_and_added().plan()
    x = array([0] * 4)
    for i in range(200):
        weight = array([i] * 4)
        assert plan(x, weight)[0].tolist() == [2 * i] * 4
        del weight


def test_writes_from_outside_are_seen(core: Any) -> None:
    plan = doubled_and_added().plan()
    x, weight = array([0] * 4), array([1] * 4)
    assert plan(x, weight)[0].tolist() == [2] * 4
    view = memoryview(weight)
    numpy.asarray(view)[:] = 5
    assert plan(x, weight)[0].tolist() == [10] * 4
    numpy.asarray(view)[:] = 6
    assert plan(x, weight)[0].tolist() == [12] * 4
    numpy.asarray(view)[:] = 7
    view.release()
    gc.collect()
    assert plan(x, weight)[0].tolist() == [14] * 4


def test_kept_values_are_checked(core: Any) -> None:
    good = doubled_and_added()
    kept, step = good.items
    for items, match in [
        ([step, kept], "damaged|come first"),
        ([kept, kept, step], "come first"),
        ([kept._replace(inputs=[2]), step], "out of range"),
        ([kept._replace(captured=[0]), step], "out of range"),
        ([kept._replace(sizes=[0]), step], "out of range"),
        ([kept._replace(sizes=[]), step], "out of range"),
    ]:
        good.items = items
        with pytest.raises(ValueError, match=match):
            _core.Plan(good.write(), good.kernels)
    good.items = [kept, step]
    good.inputs[1] = good.inputs[1]._replace(flags=WRITTEN)
    with pytest.raises(ValueError, match="what is kept is overwritten"):
        _core.Plan(good.write(), good.kernels)


def test_values_in_between_are_not_kept(core: Any) -> None:
    kernel = vector("add", 6, 6)
    made = image(
        "between",
        [(FLOAT32, (4,)), (FLOAT32, (4,))],
        [(FLOAT32, (4,))],
        [
            Kept(
                [1],
                [],
                [16],
                [
                    loop_step(kernel, [(0, 1, 0), (0, 1, 0), (2, 0, 0)], 4),
                    loop_step(kernel, [(2, 0, 0), (0, 1, 0), (5, 0, 0)], 4),
                ],
            ),
            loop_step(kernel, [(0, 0, 0), (5, 0, 0), (2, 1, 0)], 4),
            loop_step(kernel, [(2, 1, 0), (5, 0, 0), (1, 0, 0)], 4),
        ],
        temporaries=[Temporary(16, 1, 2), Temporary(16, 3, 4)],
    )
    plan = made.plan()
    for weight in (array([1] * 4), array([2] * 4)):
        for _ in range(3):
            (value,) = set(weight.tolist())
            assert plan(array([1] * 4), weight)[0].tolist() == [1 + 6 * value] * 4


# --- networks ----------------------------------------------------------------------------------


def network(seed: int = 0, **options: Any) -> Any:
    """Two layers: one keeps its weight's panels, the other panels of a value made of its weight."""

    class Twice(gluon.HybridBlock):
        def __init__(self) -> None:
            super().__init__()
            self.first = nn.Dense(WIDTH, activation="relu", in_units=WIDTH)
            self.weight = gluon.Parameter("weight", shape=(WIDTH, WIDTH))
            self.scale = gluon.Parameter("scale", shape=(WIDTH,))

        def forward(self, x: Any) -> Any:
            weight = self.weight.data() * np.exp(self.scale.data())
            return np.dot(self.first(x), weight + weight.T)

    net = Twice()
    net.initialize(**options)
    generator = numpy.random.default_rng(seed)
    for parameter in net.collect_params().values():
        parameter.set_data(np.array(generator.normal(size=parameter.shape) / 8, dtype="float32"))
    net.hybridize()
    return net


def expected(net: Any, x: Any) -> Any:
    """The result in float64, computed by NumPy."""
    found = {name: p.data().asnumpy().astype("float64") for name, p in net.collect_params().items()}
    hidden = x.astype("float64") @ found["first.weight"].T + found["first.bias"]
    weight = found["weight"] * numpy.exp(found["scale"])
    return numpy.maximum(hidden, 0) @ (weight + weight.T)


def batch(rows: int = 24, seed: int = 1) -> Any:
    return numpy.random.default_rng(seed).normal(size=(rows, WIDTH)).astype("float32")


def check(net: Any, x: Any) -> None:
    assert_allclose(net(np.array(x)).asnumpy(), expected(net, x), rtol=2e-5, atol=2e-5)


def parameters_of(net: Any) -> list[Any]:
    return list(net.collect_params().values())


def items_of(net: Any, x: Any) -> list[Any]:
    """The items of the image of its plan."""
    ((program,),) = net._own.compiled._programs.values()
    found = program.inference()
    (backend,) = found._backends.values()
    return list(found.image(program.dims([x]), backend).items)


def test_a_network_keeps_something() -> None:
    """Otherwise the other tests would prove nothing."""
    net, x = network(), np.array(batch())
    net(x).wait_to_read()
    kept = items_of(net, x)[0]
    assert isinstance(kept, Kept)
    assert len(kept.inputs) >= 3 and sum(kept.sizes) >= 2 * 4 * WIDTH * WIDTH


CHANGES: dict[str, Callable[[Any, random.Random], Any]] = {
    "set_data": lambda p, draw: p.set_data(p.data() * draw.uniform(-1, 1)),
    "in place": lambda p, draw: p.data().__imul__(draw.uniform(-1, 1)),
    "an element": lambda p, draw: p.data().__setitem__(0, draw.uniform(-1, 1)),
    "a view": lambda p, draw: p.data()[1:].__iadd__(draw.uniform(-0.1, 0.1)),
    "all": lambda p, draw: p.data().__setitem__(slice(None), draw.uniform(-0.1, 0.1)),
    "out": lambda p, draw: np.multiply(p.data(), 0.5, out=p.data()),
    "by NumPy": lambda p, draw: _by_numpy(p.data(), draw),
    "copyto": lambda p, draw: (p.data() + 0.125).copyto(p.data()),
}


def _by_numpy(array: Any, draw: random.Random) -> None:
    numpy.from_dlpack(array)[...] *= draw.uniform(-1, 1)


@pytest.mark.parametrize("change", CHANGES)
def test_every_way_to_change_a_parameter_is_seen(change: str) -> None:
    net, draw = network(), random.Random(2)
    for rows in (24, 24, 9, 64, 24):
        for parameter in parameters_of(net):
            check(net, batch(rows))
            CHANGES[change](parameter, draw)
            check(net, batch(rows))
    check(net, batch())


def test_random_histories() -> None:
    draw = random.Random(3)
    nets = [network(seed) for seed in range(2)]
    for _ in range(150):
        net = draw.choice(nets)
        if draw.random() < 0.4:
            CHANGES[draw.choice(list(CHANGES))](draw.choice(parameters_of(net)), draw)
        check(net, batch(draw.choice([1, 8, 24, 40]), draw.randrange(5)))


def test_steps_of_training_between_calls() -> None:
    net, x = network(), batch()
    trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.01})
    for _ in range(4):
        check(net, x)
        with autograd.record():
            loss = (net(np.array(x)) ** 2).mean()
        loss.backward()
        check(net, x)
        trainer.step(1)
        check(net, x)


def test_files_casts_and_new_parameters(tmp_path: Any) -> None:
    net, x = network(1), batch()
    check(net, x)
    net.save_parameters(str(tmp_path / "p"))
    other = network(2)
    check(other, x)
    other.load_parameters(str(tmp_path / "p"))
    check(other, x)
    assert_allclose(other(np.array(x)).asnumpy(), net(np.array(x)).asnumpy(), rtol=1e-6)
    other.initialize(force_reinit=True)
    check(other, x)
    other.share_parameters(net.collect_params())
    check(other, x)
    net.weight.data()[:] = 0.25
    check(other, x)
    net.cast("float64")
    wide = x.astype("float64")
    found = net(np.array(wide, dtype="float64")).asnumpy()
    assert_allclose(found, expected(net, wide), rtol=1e-12)


def test_several_devices() -> None:
    devices = [npx.cpu(0), npx.cpu(1)]
    net, x = network(device=devices), batch()
    for value in (0.1, 0.2):
        for _ in range(2):
            for device in devices:
                found = net(np.array(x, device=device)).asnumpy()
                assert_allclose(found, expected(net, x), rtol=2e-5, atol=2e-5)
        net.weight.set_data(np.full((WIDTH, WIDTH), value))


def test_threads_that_share_a_network() -> None:
    net, wrong = network(), []

    def work(seed: int) -> None:
        for turn in range(40):
            x = batch(9 + turn % 3 * 8, seed)
            found = net(np.array(x)).asnumpy()
            if not numpy.allclose(found, expected(net, x), rtol=2e-5, atol=2e-5):
                wrong.append((seed, turn))

    for value in (0.1, 0.3):
        net.weight.data()[:] = value
        threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not wrong


class ByPosition(gluon.HybridBlock):
    """Reads rows of a parameter at positions that depend on the batch size."""

    def __init__(self) -> None:
        super().__init__()
        self.table = gluon.Parameter("table", shape=(50, 3), init="uniform")
        self.places = gluon.Constant(np.arange(50, dtype="int64") - 3)

    def forward(self, x: Any) -> Any:
        rows = x.shape[0]
        places = np.clip(self.places.data(), 0, rows - 1)
        scaled = self.table.data() * (1.0 / rows)
        return np.take(scaled, places, axis=0) + scaled[:rows].sum() + x.sum()


def test_values_that_depend_on_sizes_are_not_kept() -> None:
    net = ByPosition()
    net.initialize()
    net.hybridize()
    table = net.table.data().asnumpy().astype("float64")
    for rows in (7, 20, 7, 33, 20, 50):
        scaled = table / rows
        wanted = scaled[numpy.clip(numpy.arange(50) - 3, 0, rows - 1)] + scaled[:rows].sum()
        assert_allclose(net(np.zeros((rows, 2))).asnumpy(), wanted, rtol=1e-5, atol=1e-6)


def test_writes_that_wait_behind_reads() -> None:
    """A call sees the writes before it and none of the writes after it, however late it runs."""
    net, x = network(), batch()
    slow = np.ones((600, 600))
    results, wanted = [], []
    for turn in range(6):
        late = np.array(x) + 0 * np.dot(slow, slow)[0, 0]
        results.append(net(late))
        wanted.append(expected(net, x) if turn == 0 else None)
        net.weight.data()[:] = 0.05 * turn
        results.append(net(np.array(x)))
    final = results[-1].asnumpy()
    assert_allclose(final, expected(net, x), rtol=2e-5, atol=2e-5)
    assert_allclose(results[0].asnumpy(), wanted[0], rtol=2e-5, atol=2e-5)
    for before, after in zip(results[1::2], results[2::2], strict=False):
        assert_allclose(before.asnumpy(), after.asnumpy(), rtol=1e-6)


def test_memory_goes_with_the_network() -> None:
    def used() -> int:
        npx.waitall()
        gc.collect()
        return int(_core.counters()["bytes_in_use"])

    net = network()
    check(net, batch())
    del net
    before = used()
    for seed in range(5):
        net = network(seed)
        for value in (0.1, 0.2, 0.3):
            net.weight.data()[:] = value
            check(net, batch())
        del net
    assert used() - before < 4 * WIDTH * WIDTH


def test_batches_of_all_sizes_share_what_is_kept() -> None:
    """However many plans a network has, together they keep at most two sets of values."""

    def used() -> int:
        npx.waitall()
        gc.collect()
        return int(_core.counters()["bytes_in_use"])

    net, before = network(), used()
    for rows in range(1, 65):
        check(net, batch(rows))
    programs = [one for found in net._own.compiled._programs.values() for one in found]
    plans = [plan for program in programs for plan in program.inference()._made]
    assert len(plans) > 4
    assert used() - before < 4 * 8 * WIDTH * WIDTH
    for rows in (24, 9, 60, 24, 9, 60):
        net.weight.data()[:] = 0.01 * rows
        check(net, batch(rows))
        check(net, batch(rows + 1))
    assert used() - before < 4 * 8 * WIDTH * WIDTH


def test_nothing_is_kept_beyond_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GEMEL_KEEP_BYTES", "0")
    net, x = network(), np.array(batch())
    check(net, batch())
    assert not any(isinstance(item, Kept) for item in items_of(net, x))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_after_a_fork() -> None:
    net, x = network(), batch()
    check(net, x)
    child = os.fork()
    if child == 0:
        try:
            check(net, x)
            net.weight.data()[:] = 0.5
            check(net, x)
        except BaseException:
            os._exit(1)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    check(net, x)
