"""What is alike on all kinds of stores, so that a program can use any of them."""

from __future__ import annotations

import copy
import pickle
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from server_jobs import job
from test_kvstore_sockets import on_all
from test_kvstore_step_schedules import Job, brought

from gemel import autograd, cpu, gluon, init, kvstore, np, npx, optimizer
from gemel.errors import ArgumentError, KVStoreError, OperandError, UnknownNameError, WorkersError

#: A function that is called with a function of a store and a rank, on all workers.
Each = Callable[[Callable[[Any, int], Any]], list[Any]]


@contextmanager
def here(name: str) -> Iterator[Each]:
    yield lambda work: [work(kvstore.create(name), 0)]


@contextmanager
def over_mpi() -> Iterator[Each]:
    with pytest.MonkeyPatch.context() as patch:
        made = Job(2, 30.0, patch)
        stores = made.stores()
        yield lambda work: on_all(2, lambda rank: work(stores[rank], rank))
        made.close()


@contextmanager
def on_servers() -> Iterator[Each]:
    with job(2, servers=2) as made:
        yield lambda work: made.each(lambda rank: work(made.store(rank), rank))


KINDS: dict[str, Callable[[], Any]] = {
    "local": lambda: here("local"),
    "device": lambda: here("device"),
    "over MPI": over_mpi,
    "on servers": on_servers,
}
HUGE = 10**5000
ONE = np.ones((2,))
#: Calls that every store refuses, and what the error says.
REFUSED: list[tuple[Callable[[Any], Any], type[Exception], str]] = [
    (lambda store: store.init(HUGE, ONE), ArgumentError, "more digits than Python prints is not a"),
    (lambda store: store.pull([-HUGE], [ONE]), ArgumentError, "int with more digits than Python"),
    (lambda store: store.init("v", HUGE), ArgumentError, "given for key 'v', is not a gemel array"),
    (lambda store: store.share(HUGE), ArgumentError, "more digits than Python prints is not a key"),
    (lambda store: store.share("unknown"), UnknownNameError, "unknown"),
    (pickle.dumps, OperandError, "belongs to its process .* call kvstore.create there"),
    (copy.deepcopy, TypeError, "belongs to its process and cannot be copied or pickled"),
    (lambda store: store.gathered(3), ArgumentError, "gathered: int 3 cannot be sent"),
    (lambda store: store.gathered("\ud800"), ArgumentError, r"str '\\ud800' cannot be sent"),
]  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_a_program_runs_on_every_store(kind: str) -> None:
    """A loop as in docs/parameter-server.md, which asks where to begin and who took part."""

    def work(store: Any, rank: int) -> Any:
        out, shares = np.zeros((2,)), []
        store.init("w", out)
        shares.append(store.share("w"))
        for _ in range(store.step, 2):
            store.push("w", np.ones((2,)))
            store.pull("w", out)
            assert out.tolist() == [store.num_workers] * 2
            shares.append(store.share("w"))
        assert shares == [0, *[store.num_workers] * 2]
        (total,) = store.totals([7], [[np.ones((2,))]], [cpu(0)])[0]
        assert total.tolist() == [store.num_workers] * 2 and store.share(7) == store.num_workers
        return store.gathered(f"ä{rank}")

    with KINDS[kind]() as each:
        found = each(work)
    assert found == [[f"ä{rank}" for rank in range(len(found))]] * len(found)


@pytest.mark.parametrize("kind", KINDS)
def test_what_only_workers_without_servers_have(kind: str) -> None:
    def work(store: Any, rank: int) -> Any:
        for call in (store.statistics, lambda: store.set_schedule("any")):
            if kind == "over MPI":
                call()
            else:
                with pytest.raises(KVStoreError, match=f"kvstore '{store.type}' has one way to"):
                    call()

    with KINDS[kind]() as each:
        each(work)


@pytest.mark.parametrize("kind", KINDS)
def test_a_key_that_is_initialized_again(kind: str) -> None:
    def work(store: Any, rank: int) -> Any:
        out = np.zeros((2,))
        for value in (1.0, 2.0):
            store.broadcast("w", np.full((2,), value), out)
        return out.tolist()

    with KINDS[kind]() as each:
        found = each(work)
    assert found == [[1.0 if kind == "on servers" else 2.0] * 2] * len(found)


@pytest.mark.parametrize("kind", KINDS)
def test_texts_from_several_threads(kind: str) -> None:
    """Of texts with other lengths on each worker: the calls of the threads may be exchanged, but
    each gets whole texts."""

    def work(store: Any, rank: int) -> Any:
        found: list[list[str]] = []

        def exchange(number: int) -> None:
            for _ in range(5):
                found.append(store.gathered(f"{number}" * (1 + 20_000 * rank + 7 * number)))

        threads = [Thread(target=exchange, args=(number,)) for number in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return found

    with KINDS[kind]() as each:
        found = each(work)
    assert all(len(rows) == 15 for rows in found)
    for rank in range(len(found)):
        sent = sorted(f"{n}" * (1 + 20_000 * rank + 7 * n) for n in range(3) for _ in range(5))
        assert all(sorted(row[rank] for row in rows) == sent for rows in found)


@pytest.mark.parametrize("kind", KINDS)
def test_what_every_store_refuses(kind: str) -> None:
    def work(store: Any, rank: int) -> Any:
        store.init("w", np.zeros((2,)))
        for wrong, error, text in REFUSED:
            with pytest.raises(error, match=text):
                wrong(store)
        return store.gathered("after")

    with KINDS[kind]() as each:
        found = each(work)
    assert found == [["after"] * len(found)] * len(found)


# ---- what is said of a worker that is late


def arrived_at(other: Callable[[Any], Any], late: int) -> str:
    """What all of three workers are told, two of which wait in the courier for the third, which
    does something else."""

    def work(rank: int) -> str:
        store = stores[rank]
        for turn in range(3):
            for total in brought(store, "ab", turn):
                total.wait_to_read()
        with pytest.raises(WorkersError) as caught:
            if rank == late:
                time.sleep(0.3)  # so the others' time ends first
                other(store)
            else:
                brought(store, "ab", 3)[0].wait_to_read()
        return str(caught.value).partition(" (issued at")[0]

    with pytest.MonkeyPatch.context() as patch:
        made = Job(3, 1.0, patch)
        stores = made.stores()
        (text,) = set(on_all(3, work))
        made.close()
    return text


@pytest.mark.parametrize("late", [0, 1])
def test_where_a_late_worker_is(late: int) -> None:
    text = arrived_at(lambda store: store.gathered("here"), late)
    assert text == (
        f"kvstore: worker {late} has not arrived at key 'b', key 'a' for 1 s; worker {late} has "
        "arrived at the length of what workers say instead"
    )
    text = arrived_at(lambda store: brought(store, "b", 3)[0].wait_to_read(), late)
    assert f"; worker {late} has arrived at " in text and "the contents of a step" in text


# ---- optimizers


class Mine(optimizer.SGD):
    """A program's own rule, with an attribute that differs between workers."""

    def __init__(self, rank: int) -> None:
        super().__init__()
        self.rank = rank


def sgd(rank: int, **settings: float) -> Any:
    return optimizer.create("sgd", **settings)


RULES = [
    (lambda rank: optimizer.create("adam" if rank else "sgd"), "rule Adam("),
    (lambda rank: sgd(rank, learning_rate=0.5 * (1 + rank)), "lr=1.0"),
    (lambda rank: sgd(rank, momentum=0.5 * rank), "momentum=0.5"),
    (lambda rank: sgd(rank, rescale_grad=1 / (4 + rank)), "rescale_grad=0.2"),
    (lambda rank: sgd(rank, momentum=0.9), ""),
    (Mine, ""),
]  # fmt: skip


@pytest.mark.parametrize("kind", ["over MPI", "on servers"])
@pytest.mark.parametrize(("rule", "said"), RULES)
def test_optimizers_are_compared(rule: Callable[[int], Any], said: str, kind: str) -> None:
    """Servers tell the worker that came second, and the other one goes on without it."""

    def train(store: Any, rank: int) -> str:
        weight = gluon.Parameter("w", shape=(3,))
        weight.initialize()
        trainer = gluon.Trainer([weight], rules[rank], kvstore=store, update_on_kvstore=False)
        try:
            for _ in range(3):
                with autograd.record():
                    loss = weight.data().sum()
                loss.backward()
                trainer.step(1)
                store.barrier()
        except WorkersError as error:
            if kind == "on servers":
                store.close()
            return str(error)
        return ""

    rules = [rule(rank) for rank in range(2)]
    with KINDS[kind]() as each:
        texts = each(train)
    told = [text for text in texts if "disagree about the optimizer" in text and said in text]
    if not said:
        assert texts == ["", ""]
    elif kind == "over MPI":
        assert len(told) == 2
    else:
        assert told


@pytest.mark.parametrize("kind", ["over MPI", "on servers"])
@pytest.mark.parametrize("by_hand", [False, True])
@pytest.mark.parametrize(("begun", "seen"), [(3, 4), (5, 8), (9, 16), (17, 32)])
@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (lambda trainer: trainer.set_learning_rate(0.25), "lr=0.25"),
        (lambda trainer: setattr(trainer, "_scale", 8.0), "rescale_grad=4.0"),
    ],
)
def test_a_rule_that_one_worker_changes(
    changes: Callable[[Any], None], said: str, begun: int, seen: int, by_hand: bool, kind: str
) -> None:
    """Optimizers are compared again in some steps, here counted from 1."""

    def train(store: Any, rank: int) -> tuple[int, str]:
        weight = gluon.Parameter("w", shape=(3,))
        weight.initialize()
        rule = {"learning_rate": 0.5, "clip_gradient": 0.5}
        trainer = gluon.Trainer([weight], "sgd", rule, kvstore=store, update_on_kvstore=False)
        for step in range(1, 34):
            if step == begun and rank == 1:
                changes(trainer)
            with autograd.record():
                loss = weight.data().sum()
            loss.backward()
            try:
                if by_hand:
                    trainer.allreduce_grads()
                    trainer.update(2)
                else:
                    trainer.step(2)
                store.barrier()
            except WorkersError as error:
                if kind == "on servers":
                    store.close()
                return step, str(error)
        return 0, ""

    with KINDS[kind]() as each:
        found = each(train)
    told = [(step, text) for step, text in found if step]
    assert len(told) == 2 or (kind == "on servers" and told)  # servers tell the second one only
    words = r"the workers disagree about the optimizer: worker \d has a rule SGD"
    for step, text in told:  # the barrier may be faster
        assert step in (seen, seen + 1) and re.search(words, text) and said in text


def test_optimizers_of_a_worker_that_takes_over() -> None:
    """It begins at another step, where its learning rate is its own affair; one that begins at the
    same step again must have the same."""

    def steps(store: Any, rate: float, count: int) -> None:
        weight = gluon.Parameter("w", shape=(3,))
        weight.initialize()
        trainer = gluon.Trainer(
            [weight], "sgd", {"learning_rate": rate}, kvstore=store, update_on_kvstore=False
        )
        for _ in range(count):
            with autograd.record():
                loss = weight.data().sum()
            loss.backward()
            trainer.step(2)
        weight.data().wait_to_read()

    with job(2) as made:
        first = made.store(1)

        def work(rank: int) -> None:
            if rank == 0:
                steps(made.store(0), 0.5, 4)
                return
            steps(first, 0.5, 2)
            first.close(finished=False)
            again = made.store(1)
            assert again.step == 2
            steps(again, 0.25, 2)

        made.each(work)


def test_thresholds_are_compared_to_the_last_digit() -> None:
    def work(store: Any, rank: int) -> None:
        store.init("w", np.zeros((2,)))
        store.set_gradient_compression({"type": "2bit", "threshold": 0.12345671 + 1e-8 * rank})
        out = np.zeros((2,))
        with pytest.raises(WorkersError, match=r"disagree about key 'w': .*threshold 0\.12345671"):
            store.pushpull("w", np.ones((2,)), out)  # its pull raises what is known by then
            out.wait_to_read()

    with KINDS["over MPI"]() as each:
        each(work)
    with suppress(WorkersError):  # the stores' own values have failed, too; nobody read these
        npx.waitall()


@pytest.mark.parametrize("kind", ["device", "over MPI"])
def test_errors_of_compression_follow_the_scale(kind: str) -> None:
    def work(store: Any, rank: int) -> list[float]:
        found, out = [], np.zeros((1,))
        store.init("w", out)
        store.scale_gradients(3.0)  # nothing is compressed yet
        store.set_gradient_compression({"type": "2bit", "threshold": 0.5})
        for scale, value in [(1.0, 0.375), (2.0, 0.0), (0.5, 0.375)]:
            store.scale_gradients(scale)
            store.pushpull("w", np.array([value]), out=out)
            found.append(out.item() / store.num_workers)
        return found

    with KINDS[kind]() as each:
        found = each(work)
    assert found == [[0.0, 0.5, 0.0]] * len(found)  # without scales 0, 0 and 0.5


# ---- one store, several trainers


@pytest.mark.parametrize("on_store", [False, True])
@pytest.mark.parametrize("kind", ["local", "device", "over MPI"])
def test_trainers_that_share_a_store(kind: str, on_store: bool) -> None:
    """Each has its parameters, rule and states, also where the store updates."""

    def work(store: Any, rank: int) -> list[Any]:
        places = [cpu(0), cpu(1)]
        trainers, weights = [], []
        for number, rule in enumerate([{"momentum": 0.5}, {"learning_rate": 0.25}]):
            weight = gluon.Parameter(f"w{number}", shape=(2,), init=init.Constant(number))
            weight.initialize(device=places)
            weights.append(weight)
            made = {"kvstore": store, "update_on_kvstore": on_store}
            settings = {"learning_rate": 0.5, **rule}
            trainers.append(gluon.Trainer([weight], "sgd", settings, **made))
        for order in ([0, 1], [1, 0], [0, 0, 1]):
            for number in order:
                with autograd.record():
                    losses = [weights[number].data(place).sum() for place in places]
                autograd.backward(losses)
                trainers[number].step(2 * store.num_workers)
        return [weight.data(place).tolist() for weight in weights for place in places]

    with KINDS[kind]() as each:
        found = each(work)
    speed, first = 0.0, 0.0
    for _ in range(4):
        speed = 0.5 * speed - 0.5
        first += speed
    assert found == [[[first] * 2] * 2 + [[1 - 3 * 0.25] * 2] * 2] * len(found)


def test_files_of_states_do_not_depend_on_the_order_of_keys(tmp_path: Path) -> None:
    def made(keys: list[Any]) -> Any:
        store = kvstore.create("local")
        store.init(keys, [np.zeros((2,))] * len(keys))
        store.set_optimizer(optimizer.create("sgd", learning_rate=0.5, momentum=0.5))
        return store

    keys, out = ["b", 10, "a", 9], np.zeros((2,))
    store, again = made(keys), made(sorted(keys, key=str))
    for number, key in enumerate(keys):
        store.push(key, np.full((2,), float(number)))
    store.save_optimizer_states(tmp_path / "states")
    again.load_optimizer_states(tmp_path / "states")
    for number, key in enumerate(keys):
        again.pushpull(key, np.zeros((2,)), out=out)
        assert out.tolist() == [-0.25 * number] * 2
