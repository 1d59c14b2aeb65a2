"""`np.random.Generator`: a stream of its own, the same imperatively and compiled."""

from __future__ import annotations

import copy
import pickle
import threading
from collections.abc import Callable
from typing import Any

import numpy
import pytest
from scipy import stats

import gemel
from gemel import autograd, gluon, np, npx
from gemel.errors import AxisError, DTypeError, ShapeError

DRAWS = {
    "normal": lambda r: r.normal(1.0, 2.0, size=(3, 4)),
    "uniform": lambda r: r.uniform(-1, 1, size=5, dtype="float64"),
    "integers": lambda r: r.integers(0, 1000, size=6),
    "random": lambda r: r.random((2, 3)),
    "standard_normal": lambda r: r.standard_normal(4),
    "exponential": lambda r: r.exponential(np.array([1.0, 2.0])),
    "gamma": lambda r: r.gamma(np.array([0.5, 2.0]), 3.0),
    "poisson": lambda r: r.poisson(4.0, size=7),
    "choice": lambda r: r.choice(20, 6, replace=False),
    "choice with p": lambda r: r.choice(3, 6, p=[0.2, 0.3, 0.5]),
    "permutation": lambda r: r.permutation(30),
    "permuted": lambda r: r.permuted(np.arange(24).reshape(4, 6), axis=1),
    "multinomial": lambda r: r.multinomial(20, [0.2, 0.3, 0.5], size=3),
    "beta": lambda r: r.beta(2.0, 3.0, size=4),
}


@pytest.mark.parametrize("name", DRAWS)
def test_its_seed_decides_and_nothing_else(name: str) -> None:
    draw = DRAWS[name]
    rng = np.random.default_rng(12)
    first, second = draw(rng).tolist(), draw(rng).tolist()
    assert first != second
    np.random.seed(5)
    before = gemel._core.random_state()
    again = np.random.default_rng(12)
    assert draw(again).tolist() == first
    assert gemel._core.random_state() == before  # the global stream has not moved
    np.random.uniform(size=3)
    assert draw(again).tolist() == second
    assert draw(np.random.default_rng(13)).tolist() != first


@pytest.mark.parametrize("name", DRAWS)
def test_compiled_programs_draw_from_it(name: str) -> None:
    draw = DRAWS[name]
    rng = np.random.default_rng(3)
    expected = [draw(rng).tolist() for _ in range(5)]
    other = np.random.default_rng(3)
    program = gemel.compile(lambda x: (draw(other) + x, draw(other) + x))
    zero = np.array(0)
    found: list[Any] = []
    for _ in range(2):
        found += [each.tolist() for each in program(zero)]
    found.append(draw(other).tolist())
    for value, wanted in zip(found, expected, strict=True):
        numpy.testing.assert_allclose(value, wanted, rtol=1e-5)


def test_beside_the_programs_stream_in_one_program() -> None:
    rng = np.random.default_rng(3)

    def function(x: Any) -> Any:
        return x + rng.normal(size=3) + np.random.normal(size=3) * 100

    def both(f: Any) -> list[Any]:
        np.random.seed(1)
        rng.bit_generator.state = start
        return [f(np.zeros(3)).tolist() for _ in range(3)]

    start = rng.bit_generator.state
    numpy.testing.assert_allclose(both(gemel.compile(function)), both(function), rtol=1e-4)


def test_state_can_be_kept() -> None:
    rng = np.random.default_rng(7)
    rng.normal(size=2)
    state = rng.bit_generator.state
    expected = rng.normal(size=4).tolist()
    rng.bit_generator.state = state
    assert rng.normal(size=4).tolist() == expected
    other = np.random.default_rng()
    other.bit_generator.state = state
    assert other.normal(size=4).tolist() == expected
    for copied in (lambda r: pickle.loads(pickle.dumps(r)), copy.deepcopy):
        twin = copied(rng)
        assert twin.bit_generator.state == rng.bit_generator.state
        assert twin.normal(size=3).tolist() == rng.normal(size=3).tolist()
    with pytest.raises(ValueError, match="not the state of a gemel generator"):
        rng.bit_generator.state = {"bit_generator": "PCG64"}


def test_other_threads_do_not_disturb_it() -> None:
    def draw(rng: Any) -> list[Any]:
        return [rng.normal(size=3).tolist() for _ in range(50)]

    expected = [draw(np.random.default_rng(seed)) for seed in range(4)]
    found: dict[int, Any] = {}

    def run(seed: int) -> None:
        rng = np.random.default_rng(seed)
        np.random.uniform(size=2)
        found[seed] = draw(rng)

    threads = [threading.Thread(target=run, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [found[seed] for seed in range(4)] == expected


def test_threads_share_one_without_drawing_twice() -> None:
    rng = np.random.default_rng(8)
    found: list[float] = []

    def run() -> None:
        for _ in range(100):
            found.append(rng.random(dtype="float64").item())

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(found)) == 400
    again = np.random.default_rng(8)
    assert {again.random(dtype="float64").item() for _ in range(400)} == set(found)


def test_children() -> None:
    rng = np.random.default_rng(9)
    a, b = rng.spawn(2)
    (c,) = rng.spawn(1)
    rows = [each.random(1000).asnumpy() for each in (rng, a, b, c)]
    corners = numpy.corrcoef(rows) - numpy.eye(4)
    assert abs(corners).max() < 0.15
    first = np.random.default_rng(9).spawn(1)[0]
    assert first.random(1000).tolist() == rows[1].tolist()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_its_numbers_are_spread_evenly(dtype: str) -> None:
    rng = np.random.default_rng(11)
    assert (
        stats.kstest(rng.random(50_000, dtype=dtype).asnumpy(), stats.uniform().cdf).pvalue > 1e-4
    )
    assert (
        stats.kstest(rng.normal(size=50_000, dtype=dtype).asnumpy(), stats.norm().cdf).pvalue > 1e-4
    )
    rows = numpy.array([rng.random(500).asnumpy() for _ in range(40)])
    assert abs(numpy.corrcoef(rows) - numpy.eye(40)).max() < 0.25


def test_integers() -> None:
    rng = np.random.default_rng(2)
    assert set(rng.integers(3, size=200).tolist()) == {0, 1, 2}
    assert set(rng.integers(1, 3, size=200, endpoint=True).tolist()) == {1, 2, 3}
    assert rng.integers(5, size=2, dtype="uint8").dtype == "uint8"
    assert len(rng.bytes(10)) == 10
    with pytest.raises(ValueError, match="below high"):
        rng.integers(3, 3)


def test_orders() -> None:
    rng = np.random.default_rng(2)
    x = np.arange(12).reshape(3, 4)
    assert sorted(rng.permutation(x).tolist()) == x.tolist()
    assert numpy.sort(rng.permutation(x, axis=1).asnumpy(), axis=1).tolist() == x.tolist()
    assert sorted(rng.permuted(x).asnumpy().ravel()) == list(range(12))
    y = x.copy()
    rng.shuffle(y, axis=1)
    columns = sorted(y.asnumpy().T.tolist())
    assert columns == x.asnumpy().T.tolist()


def test_seeds() -> None:
    rng = np.random.default_rng(5)
    assert np.random.default_rng(rng) is rng
    assert np.random.default_rng(rng.bit_generator).bit_generator is rng.bit_generator
    draws = {tuple(np.random.default_rng(s).random(3).tolist()) for s in (0, 1, 2**64, 2**64 + 1)}
    assert len(draws) == 4
    assert np.random.default_rng().random().item() != np.random.default_rng().random().item()
    with pytest.raises(ValueError, match="must not be negative"):
        np.random.default_rng(-1)
    assert repr(rng) == "Generator(Philox2x32)"


def test_on_another_device() -> None:
    expected = np.random.default_rng(5).normal(size=4).tolist()
    rng = np.random.default_rng(5)
    found = rng.normal(size=4, device=npx.cpu(1))
    assert found.device == npx.cpu(1) and found.tolist() == expected


def test_gradients() -> None:
    rng = np.random.default_rng(5)
    start = rng.bit_generator.state
    scale = np.array([1.0, 2.0])
    scale.attach_grad()
    found = []
    function = lambda s: (rng.normal(0.0, s, size=(3, 2)) * rng.gamma(s)).sum()  # noqa: E731
    for each in (function, gemel.compile(function)):
        rng.bit_generator.state = start
        with autograd.record():
            each(scale).backward()
        rng.normal(size=2)  # this does not disturb the tape
        found.append(scale.grad.asnumpy())
    numpy.testing.assert_allclose(*found, rtol=1e-4)


def test_in_a_hybridized_block() -> None:
    class Noisy(gluon.nn.HybridSequential):  # type: ignore[misc]
        def forward(self, x: Any) -> Any:
            return super().forward(x) + rng.normal(size=(2, 3))

    rng = np.random.default_rng(5)
    start = rng.bit_generator.state
    net = Noisy()
    net.add(gluon.nn.Dense(3))
    net.initialize()
    x = np.ones((2, 4))
    expected = [net(x).asnumpy() for _ in range(3)]
    rng.bit_generator.state = start
    net.hybridize()
    for wanted in expected:
        numpy.testing.assert_allclose(net(x).asnumpy(), wanted, rtol=1e-5, atol=1e-6)


def test_a_list_is_put_in_order_too() -> None:
    numbers = list(range(20))
    np.random.default_rng(1).shuffle(numbers)
    assert sorted(numbers) == list(range(20)) != numbers
    for wrong in ((1, 2), np.array(3)):
        with pytest.raises(TypeError, match="must be an array with rows, or a list"):
            np.random.default_rng(1).shuffle(wrong)
    with pytest.raises(AxisError, match="permutation: axis 2 is out of range"):
        np.random.default_rng(1).permutation(np.ones((2, 2)), axis=2)


REFUSED: dict[str, tuple[Callable[[Any], Any], type[Exception], str]] = {
    "out is no array": (lambda r: r.normal(out=3), TypeError, "normal: out is int"),
    "out of integers": (
        lambda r: r.uniform(out=np.zeros(2, dtype="int64")),
        DTypeError,
        "uniform: unsafe cast: .*stored in out of dtype int64",
    ),
    "a dtype that out cannot hold": (
        lambda r: r.uniform(dtype="float32", out=np.zeros(2, dtype="int64")),
        DTypeError,
        "uniform: unsafe cast",
    ),
    "out of another shape": (
        lambda r: r.poisson(size=3, out=np.zeros(2)),
        ShapeError,
        "poisson: out of shape",
    ),
    "choice from a fraction": (lambda r: r.choice(2.5), TypeError, "choice: 2.5 must be a whole"),
    "choice along no axis": (lambda r: r.choice(np.ones(3), axis=1), AxisError, "choice: axis 1"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused(name: str) -> None:
    call, error, message = REFUSED[name]
    for source in (np.random, np.random.default_rng(1)):
        with pytest.raises(error, match=message):
            call(source)


def test_out_gives_the_dtype() -> None:
    found = np.random.default_rng(1).random(out=np.zeros(100, dtype="float64"))
    assert any(value != float(numpy.float32(value)) for value in found.tolist())
    assert np.random.randint(0, 5, out=np.zeros(4, dtype="uint8")).dtype == "uint8"
