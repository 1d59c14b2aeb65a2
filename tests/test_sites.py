"""A plan fails by site: what depends on a failing step fails, nothing else."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

import gemel
from gemel import _core, autograd, gluon, np, npx
from gemel.gluon import nn

WAYS = ("small", "large", "serial")


@pytest.fixture(params=WAYS)
def rows(request: Any) -> Iterator[int]:
    """The arrays' length, so that work runs inline, is queued, or runs in the caller."""
    npx.waitall()
    if request.param == "serial":
        _core.configure(serial=True)
    yield 600 if request.param == "large" else 4
    _core.configure(serial=False)


def line_of(function: Callable[..., Any], text: str) -> str:
    """ "file:line" of the function's line that contains a text."""
    import inspect

    lines, first = inspect.getsourcelines(function)
    number = next(i for i, line in enumerate(lines) if text in line)
    return f"test_sites.py:{first + number}"


def two_results(x: Any, index: Any) -> tuple[Any, Any]:
    taken = x.take(index, axis=0)  # may fail
    return np.dot(taken, x.T) + 1, np.dot(x, x.T) * 2


# engine.md 13
def test_only_what_depends_on_the_site_fails(rows: int) -> None:
    program = gemel.compile(two_results)
    x = np.ones((rows, 5))
    good, bad = np.array([0, 1]), np.array([0, 9999])
    assert program(x, good)[0][0, 0].item() == 6
    for _ in range(3):
        first, second = program(x, bad)
        assert second[0, 0].item() == 10
        with pytest.raises(IndexError) as caught:
            (first + 1).asnumpy()
        message = str(caught.value)
        assert line_of(two_results, "may fail") in message, message
        assert "issued at" in message and "first, second" not in message
        with pytest.raises(IndexError):
            first.asnumpy()
    assert program(x, good)[0][0, 0].item() == 6


def two_sites(x: Any, i: Any, j: Any) -> tuple[Any, Any, Any]:
    a = x.take(i, axis=0)  # site of i
    b = x.take(j, axis=1)  # site of j
    return a * 2, b * 3, a.sum() + b.sum()


def test_two_sites_reach_their_own_results(rows: int) -> None:
    program = gemel.compile(two_sites)
    x = np.ones((rows, rows))
    fine, bad = np.array([1]), np.array([-9999])
    for i, j in ((fine, fine), (bad, fine), (fine, bad), (bad, bad)):
        results = program(x, i, j)
        failures = []
        for result in results:
            try:
                result.asnumpy()
                failures.append("")
            except IndexError as error:
                failures.append("i" if line_of(two_sites, "site of i") in str(error) else "j")
        first, second = ("i" if i is bad else ""), ("j" if j is bad else "")
        assert failures == [first, second, first or second]


class Picks(nn.HybridBlock):
    """A network whose loss may read outside the rows of its input."""

    def __init__(self, units: int) -> None:
        super().__init__()
        self.dense = nn.Dense(units)
        self.norm = nn.BatchNorm()

    def forward(self, x: Any, index: Any) -> Any:
        h = self.norm(self.dense(x.take(index, axis=0)))
        return h.sum()


# engine.md 12
@pytest.mark.parametrize("hybrid", [False, True])
def test_a_bad_batch_changes_no_parameter_and_no_statistics(rows: int, hybrid: bool) -> None:
    net = Picks(6)
    net.initialize()
    x = np.random.normal(size=(rows, rows))
    if hybrid:
        net.hybridize()
    good, bad = np.arange(rows), np.arange(rows) + 5000
    trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.1})

    def step(index: Any) -> Any:
        with autograd.record():
            loss = net(x, index)
        loss.backward()
        trainer.step(rows)
        return loss

    step(good)
    npx.waitall()
    before = {name: p.data().asnumpy() for name, p in net.collect_params().items()}
    loss = step(bad)
    with pytest.raises(IndexError):
        loss.asnumpy()
    for name, parameter in net.collect_params().items():
        assert (parameter.data().asnumpy() == before[name]).all(), name
    step(good)
    after = {name: p.data().asnumpy() for name, p in net.collect_params().items()}
    assert any((after[name] != before[name]).any() for name in before)


def test_a_failure_inside_a_branch(rows: int) -> None:
    def program(x: Any, index: Any, flag: Any) -> tuple[Any, Any]:
        chosen = npx.cond(flag, lambda: x.take(index, axis=0).sum(), lambda: x.sum())
        return chosen * 2, x + 1

    compiled = gemel.compile(program)
    x = np.ones((rows, 3))
    bad = np.array([9999])
    for flag, fails in ((True, True), (False, False)):
        first, second = compiled(x, bad, np.array(flag))
        assert second[0, 0].item() == 2
        if fails:
            with pytest.raises(IndexError):
                first.item()
        else:
            assert first.item() == rows * 6


def test_a_failed_result_heals_and_waitall_lists_all(rows: int) -> None:
    program = gemel.compile(two_sites)
    x = np.ones((rows, rows))
    first, second, _ = program(x, np.array([7777]), np.array([8888]))
    with pytest.raises(IndexError) as caught:
        npx.waitall()
    assert str(caught.value).count("IndexError") == 1  # the second, listed below the first
    assert line_of(two_sites, "site of j") in str(caught.value)
    npx.waitall()
    first[...] = 3
    assert first.sum().item() == 3 * rows
    with pytest.raises(IndexError):
        second.asnumpy()
