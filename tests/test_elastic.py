"""Checkpoints of jobs: n workers write them, m workers resume; with MPI or parameter servers."""

from __future__ import annotations

import json
import subprocess
import sys
import time
import zlib
from importlib.util import find_spec
from itertools import chain
from pathlib import Path
from typing import Any

import elastic_programs
import numpy
import pytest
from elastic_programs import BATCH, EXAMPLES, PER_EPOCH, trained
from server_jobs import job

from gemel import autograd, gluon, init, np
from gemel.errors import GemelError, ParameterFileError, UnknownNameError, WorkersError
from gemel.gluon import nn
from gemel.gluon.data import DataLoader, WorkerBatchSampler
from gemel.gluon.job import Job

#: The step in the middle of an epoch where a training is stopped, and the total number of steps.
MIDDLE, ALL = PER_EPOCH + 2, 3 * PER_EPOCH

LOSS = gluon.loss.SoftmaxCrossEntropyLoss()

mpi = pytest.mark.skipif(
    find_spec("mpi4py") is None, reason="mpi4py is not installed: make distributed"
)
ENGINES = [
    pytest.param("mpi", marks=[mpi, pytest.mark.distributed]),
    pytest.param("servers", marks=pytest.mark.distributed),
]


def run(engine: str, folder: Path, workers: int, **settings: Any) -> list[dict[str, Any]]:
    """The result file of each worker."""
    settings = {"name": f"{engine} {workers}", **settings}
    options = ["-n", str(workers)] if engine == "mpi" else ["--servers", "2", "-n", str(workers)]
    command = [sys.executable, "-m", "gemel", "launch", *options, elastic_programs.__file__]
    done = subprocess.run(
        [*command, str(folder), json.dumps(settings)],
        capture_output=True, text=True, timeout=150, errors="replace",
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    files = [folder / f"{settings['name']}.{rank}.json" for rank in range(workers)]
    return [json.loads(file.read_text()) for file in files]


def values(found: dict[str, Any]) -> Any:
    return numpy.concatenate(
        [numpy.frombuffer(bytes.fromhex(text), "float32") for text in found["parameters"]]
    )


@pytest.mark.parametrize("engine", ENGINES)
def test_any_number_of_workers_goes_on_from_any_other(engine: str, tmp_path: Path) -> None:
    """They resume within an epoch and reach an uninterrupted run's parameters to 1e-5."""
    alone, whole = trained(None, tmp_path / "never", {"saved": -1})
    assert alone.step == ALL
    expected = numpy.concatenate([value.ravel() for value in whole])
    numbers = range(1, 5)
    for workers in numbers:
        run(engine, tmp_path, workers, files=[f"by {workers}"], steps=MIDDLE)
    files = [f"by {workers}" for workers in numbers]
    for workers in numbers:
        found = run(engine, tmp_path, workers, files=files, saved=-1, name="on")
        for name in files:
            mine = [one[name] for one in found]
            assert all(one["parameters"] == mine[0]["parameters"] for one in mine)
            assert {one["steps"] for one in mine} == {ALL}
            assert {one["rate"] for one in mine} == {alone.trainer.learning_rate}
            numpy.testing.assert_allclose(values(mine[0]), expected, rtol=0, atol=1e-5)
            assert all(one["history"] == mine[0]["history"] for one in mine)
            for one, other in zip(mine[0]["history"], alone.history, strict=True):
                assert one["loss"] == pytest.approx(other["loss"], abs=1e-5)


@pytest.mark.parametrize("engine", ENGINES)
def test_the_same_number_of_workers_resumes_to_the_same_bits(engine: str, tmp_path: Path) -> None:
    """With dropout, whose random numbers differ between workers."""
    given = {"files": ["a"], "dropout": True}
    never = run(engine, tmp_path, 2, **given, saved=-1)
    run(engine, tmp_path, 2, **given, steps=MIDDLE)
    then = run(engine, tmp_path, 2, **given, saved=-1)
    for one, other in zip(never, then, strict=True):
        one, other = one["a"], other["a"]
        assert one["parameters"] == other["parameters"] and one["drawn"] == other["drawn"]
        assert other["history"][0] == one["history"][0] and other["steps"] == ALL
    assert never[0]["a"]["drawn"] != never[1]["a"]["drawn"]
    more = run(engine, tmp_path, 3, **given, saved=-1)  # the third has its own streams
    assert len({tuple(one["a"]["drawn"]) for one in more}) == 3
    assert more == run(engine, tmp_path, 3, **given, saved=-1)


@pytest.mark.parametrize("engine", ENGINES)
def test_data_split_in_another_way(engine: str, tmp_path: Path) -> None:
    """If each worker has its own shard, another number resumes only at the end of an epoch."""
    own = {"own": True, "files": ["middle"]}
    run(engine, tmp_path, 2, **own, steps=3, saved=3)
    for found in run(engine, tmp_path, 3, **own, saved=-1):
        assert found["middle"]["error"] == "ParameterFileError"
        assert "2 workers wrote it in the middle of an epoch" in found["middle"]["text"]
    assert run(engine, tmp_path, 2, **own, steps=-1, saved=-1)[0]["middle"]["steps"] == 30
    given = {"files": ["end"]}
    run(engine, tmp_path, 2, **given, steps=PER_EPOCH)
    assert run(engine, tmp_path, 1, **given, saved=-1)[0]["end"]["steps"] == ALL
    for found in run(engine, tmp_path, 2, **given, saved=-1, seed=2):
        assert "the checkpoint is of" in found["end"]["text"]


def test_servers_that_keep_the_parameters_are_the_checkpoint(tmp_path: Path) -> None:
    for found in run("servers", tmp_path, 2, files=["a"], steps=3, on_store=True):
        assert "resume from the servers' --folder, with any number of workers" in found["a"]["text"]
    assert not (tmp_path / "a").exists()


# ---- what workers say to each other


def test_values_exchanged_by_workers() -> None:
    with job(3, servers=2) as made:

        def work(rank: int) -> list[list[str]]:
            store = made.store(rank)
            texts = [f"worker {rank}", "", "ä" * (20_000 * rank), str(rank)]
            return [store.gathered(text) for text in texts]

        for found in made.each(work):
            assert found == [
                ["worker 0", "worker 1", "worker 2"], [""] * 3,
                ["", "ä" * 20_000, "ä" * 40_000], ["0", "1", "2"],
            ]  # fmt: skip


class Said:
    """A store of two workers, where the other one says a given text."""

    num_workers, rank, pushpull = 2, 0, None

    def __init__(self, other: str) -> None:
        self.other = other

    def gathered(self, text: str) -> list[str]:
        return [text, self.other]

    def broadcast(self, *given: Any, **settings: Any) -> None:
        pass


def of_two(other: str) -> Job:
    return Job(gluon.Trainer([], "sgd", kvstore=Said(other)))


def test_means_are_over_all_losses() -> None:
    assert of_two('["the end of an epoch", [30, {"loss": 2.0}]]').mean({"loss": 1.0}, 10) == {
        "loss": 1.75
    }
    assert of_two("").mean({"loss": 1.0}, 10) == {"loss": 1.0}
    assert Job(gluon.Trainer([], "sgd")).mean({"loss": 1.0}, 10) == {"loss": 1.0}


def test_batches_whose_parts_differ() -> None:
    assert of_two('["batch 3", 5]').whole(2, 4) == 9
    assert of_two("").whole(2, 4) == 8  # the other worker was left out
    with pytest.raises(WorkersError, match="worker 1 is at batch 4, worker 0 at the end of an epo"):
        of_two('["batch 4", 5]').mean({"loss": 1.0}, 10)


def test_parts_of_different_sizes_train_as_one_batch() -> None:
    """Four and three examples in batches of two, so the last batch has two and one."""
    draw = numpy.random.default_rng(5)
    x = draw.normal(size=(7, 6)).astype("float32")
    y = draw.normal(size=(7, 3)).astype("float32")

    def trained(store: Any, batches: Any) -> Any:
        net = gluon.nn.Dense(3, in_units=6)
        net.initialize(init.Constant(0.1))
        trainer = gluon.Trainer(
            net.collect_params(), "sgd", {"learning_rate": 0.1}, kvstore=store,
            update_on_kvstore=False,
        )  # fmt: skip
        gluon.fit(net, batches, gluon.loss.L2Loss(), trainer, epochs=2, progress=False)
        return net.weight.data().asnumpy()

    rows = [[0, 1, 4, 5], [2, 3, 6]]
    whole = [[0, 1, 2, 3], [4, 5, 6]]
    with job(2) as made:

        def work(rank: int) -> Any:
            mine = gluon.data.ArrayDataset(x[rows[rank]], y[rows[rank]])
            return trained(made.store(rank), gluon.data.DataLoader(mine, 2))

        first, second = made.each(work)
    assert (first == second).all()
    numpy.testing.assert_allclose(
        first, trained(None, [(np.array(x[r]), np.array(y[r])) for r in whole]), atol=1e-6
    )


def test_workers_with_different_files(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"some")
    assert of_two(str(zlib.crc32(b"some"))).has_file(str(path))
    assert not of_two("-1").has_file(str(tmp_path / "none"))
    assert of_two("").has_file(str(path))  # the other worker was left out
    for other, words in (("-1", "no file"), ("15", "a file with CRC-32 0000000f")):
        with pytest.raises(WorkersError, match=f"worker 1 has {words}, worker 0 a file with"):
            of_two(other).has_file(str(path))


# ---- parts of batches


@pytest.mark.parametrize("workers", [1, 2, 3, 5])
@pytest.mark.parametrize("last", ["discard", "keep"])
def test_parts_of_batches_are_whole_batches(workers: int, last: str) -> None:
    def sampler(count: int, rank: int) -> WorkerBatchSampler:
        return WorkerBatchSampler(EXAMPLES, BATCH, count, rank, True, 7, last)

    alone = sampler(1, 0)
    several = [sampler(workers, rank) for rank in range(workers)]
    for _ in range(2):
        whole = list(alone)
        parts = [list(one) for one in several]
        assert [list(chain(*rows)) for rows in zip(*parts, strict=True)] == whole
        assert len(whole) == len(several[0]) == (4 if last == "discard" else 5)
        assert [alone.whole_size(n) for n in range(len(whole))] == list(map(len, whole))
        assert len(set(chain(*whole))) == (88 if last == "discard" else EXAMPLES)
    assert list(sampler(1, 0)) != list(alone)  # each epoch has a new order
    other = sampler(workers, 0)
    other.load_state_dict(alone.state_dict())
    assert [row for row in zip(list(other), list(alone), strict=True)
            if row[1][: len(row[0])] != row[0]] == []  # fmt: skip


def test_nothing_is_taken_from_the_random_streams() -> None:
    np.random.seed(1)
    expected = np.random.uniform(size=(2,)).tolist()
    np.random.seed(1)
    data = gluon.data.ArrayDataset(np.arange(10), np.arange(10))
    loader = DataLoader(data, batch_sampler=WorkerBatchSampler(10, 4, 2, 1, shuffle=True))
    assert [len(x) for x, _ in loader] == [2, 2]
    assert np.random.uniform(size=(2,)).tolist() == expected
    assert loader.whole_size(1) == 4 and DataLoader(data, 2).whole_size(0) is None


def test_wrong_samplers() -> None:
    for given in ((10, 0), (10, 4, 0), (10, 4, 2, 2), (10, 4, 2, -1), (10, 2.5)):
        with pytest.raises(ValueError, match="the counts must be 1 or more"):
            WorkerBatchSampler(*given)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="a batch of 2 examples leaves some of the 3"):
        WorkerBatchSampler(10, 2, 3)
    with pytest.raises(ValueError, match="a batch of 1 examples"):
        WorkerBatchSampler(9, 4, 2, last_batch="keep")
    with pytest.raises(UnknownNameError, match="rollover"):
        WorkerBatchSampler(9, 4, last_batch="rollover")
    first = WorkerBatchSampler(10, 4)
    with pytest.raises(ParameterFileError, match="the same whole batches"):
        first.load_state_dict(WorkerBatchSampler(10, 5).state_dict())
    assert issubclass(ParameterFileError, GemelError) and len(first) == 2


# ---- servers that keep the parameters


def by_servers(folder: Path, workers: int, end: int, close: bool, slow: int = -1) -> list[Any]:
    """Each worker's first step, and the parameters after `end` steps on batches that all share.

    If the job is not closed, its servers are killed. Worker `slow` misses the last step.
    """
    draw = numpy.random.default_rng(0)
    xs, ys = draw.normal(size=(8, 12, 5)).astype("float32"), draw.integers(0, 3, (8, 12))
    goes_on = folder.exists()
    with job(workers, servers=2, folder=folder) as made:

        def work(rank: int) -> Any:
            net, store = nets[rank], made.store(rank, piece=20)
            trainer = gluon.Trainer(
                net.collect_params(), "adam", {"learning_rate": 0.02}, kvstore=store
            )
            first, part = store.step, slice(rank, None, workers)
            for step in range(first, end - (rank == slow)):
                with autograd.record():
                    error = LOSS(net(np.array(xs[step][part])), np.array(ys[step][part])).sum()
                error.backward()
                trainer.step(12)
                if step < end - 1 or slow < 0:
                    for parameter in net.collect_params().values():
                        parameter.data().wait_to_read()
            return first, [p.data() for p in net.collect_params().values()]

        nets = []
        for rank in range(workers):
            np.random.seed(rank + 100 * goes_on)  # on resuming the servers' values count
            net = nn.HybridSequential()
            net.add(nn.Dense(16, activation="tanh", in_units=5), nn.Dense(3, in_units=16))
            net[0].bias.grad_req = "null"  # a key that no worker pushes
            net.initialize(init.Xavier())
            nets.append(net)
        found = made.each(work, 60)
        if slow >= 0:
            time.sleep(0.5)
            return [first for first, _ in found]
        values = [(first, [value.asnumpy() for value in row]) for first, row in found]
        for store in made.stores:
            store.close(finished=close)
    return values


@pytest.mark.parametrize(("before", "after"), [(3, 2), (1, 3), (2, 1), (2, 2)])
def test_servers_go_on_with_another_number_of_workers(
    before: int, after: int, tmp_path: Path
) -> None:
    """They load their folders and reach an uninterrupted run's parameters to 1e-5."""
    never = by_servers(tmp_path / "never", before, 8, close=True)
    by_servers(tmp_path / "on", before, 3, close=True)
    then = by_servers(tmp_path / "on", after, 8, close=True)
    assert [first for first, _ in then] == [3] * after
    for _, values in then:
        for one, other in zip(values, never[0][1], strict=True):
            numpy.testing.assert_allclose(one, other, rtol=0, atol=1e-5)


def test_servers_that_died_in_the_middle_of_a_step(tmp_path: Path) -> None:
    """The others repeat a step that not all workers had pushed."""
    never = by_servers(tmp_path / "never", 3, 8, close=True)
    by_servers(tmp_path / "on", 3, 4, close=False, slow=1)
    then = by_servers(tmp_path / "on", 2, 8, close=True)
    assert [first for first, _ in then] == [3, 3]
    for one, other in zip(then[1][1], never[2][1], strict=True):
        numpy.testing.assert_allclose(one, other, rtol=0, atol=1e-5)
