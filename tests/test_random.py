"""Random numbers: repeatable, well distributed, and the same for every way to compute them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy
import pytest
from op_table import OPS

import gemel
from gemel import autograd, np, npx
from gemel.errors import ArgumentError, DTypeError

MAKERS: dict[str, Callable[[], Any]] = {
    "uniform": lambda: np.random.uniform(size=(7, 11)),
    "uniform float64": lambda: np.random.uniform(-1, 1, size=(7, 11), dtype="float64"),
    "uniform float16": lambda: np.random.uniform(size=(7, 11), dtype="float16"),
    "normal": lambda: np.random.normal(size=(7, 11)),
    "normal of arrays": lambda: np.random.normal(np.zeros((7, 1)), np.ones((11,)), size=(7, 11)),
    "uniform of an array": lambda: np.random.uniform(np.zeros((3,)), 2.0),
    "randint": lambda: np.random.randint(0, 1000, size=(7, 11)),
    "permutation": lambda: np.random.permutation(50),
    "dropout": lambda: npx.dropout(np.ones((7, 11)), p=0.5, mode="always"),
    "one number": lambda: np.random.normal(),
}


@pytest.mark.parametrize("name", MAKERS)
def test_the_seed_decides(name: str) -> None:
    make = MAKERS[name]
    np.random.seed(42)
    first, second = make().asnumpy(), make().asnumpy()
    np.random.seed(42)
    assert make().asnumpy().tobytes() == first.tobytes()
    assert make().asnumpy().tobytes() == second.tobytes()
    assert first.tobytes() != second.tobytes()
    np.random.seed(43)
    assert make().asnumpy().tobytes() != first.tobytes()


@pytest.mark.parametrize("seed", [0, 1, 2**31, 2**62, 2**63 - 1, -1, -(2**63)])
def test_any_seed(seed: int) -> None:
    np.random.seed(seed)
    first = np.random.uniform(size=4).tolist()
    np.random.seed(seed)
    assert np.random.uniform(size=4).tolist() == first
    assert len(set(first)) == 4


def test_seeds_are_not_cut_off() -> None:
    """Each has a stream of its own, and one that has none is refused."""
    found = set()
    for seed in (0, 5, -5, 2**63 - 1, -1, -(2**63)):
        np.random.seed(seed)
        assert np.random.get_state()[0] == seed
        found.add(np.random.uniform(dtype="float64").item())
        state = np.random.get_state()
        drawn = np.random.uniform().item()
        np.random.set_state(state)
        assert np.random.uniform().item() == drawn
    assert len(found) == 6
    for wrong in (2**63, 2**63 + 5, -(2**63) - 1):
        with pytest.raises(ArgumentError, match=f"seed: the seed {wrong} must be from"):
            np.random.seed(wrong)


def test_no_seed_is_a_new_one() -> None:
    found = set()
    for _ in range(2):
        np.random.seed()
        found.add(np.random.uniform(dtype="float64").item())
    np.random.seed(3)
    first = np.random.uniform().item()
    npx.random.seed(3, device=npx.cpu(1))
    assert np.random.uniform().item() == first and len(found) == 2


def test_compiled_and_imperative_share_the_stream() -> None:
    def function(x: Any) -> Any:
        noise = np.random.normal(size=(5, 3)) * 0.1
        shift = np.random.uniform(-1, 1, size=(3,))
        return npx.dropout(x + noise, p=0.5, mode="always") + shift

    x = np.ones((5, 3))
    program = gemel.compile(function)
    np.random.seed(9)
    expected = [function(x).asnumpy() for _ in range(3)]
    np.random.seed(9)
    mixed = [program(x).asnumpy(), function(x).asnumpy(), program(x).asnumpy()]
    for a, b in zip(expected, mixed, strict=True):
        # The masks and the noise have the same bits; the last sum may be rounded once less.
        numpy.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-6)
        numpy.testing.assert_array_equal(a == b[0], b == b[0])
    assert not numpy.array_equal(expected[0], expected[1])


def test_large_arrays_do_not_depend_on_how_they_are_cut() -> None:
    np.random.seed(1)
    large = np.random.uniform(size=(300_007,)).asnumpy()
    np.random.seed(1)
    small = np.random.uniform(size=(101,)).asnumpy()
    numpy.testing.assert_array_equal(large[:101], small)
    np.random.seed(1)
    square = np.random.uniform(size=(7, 101)).asnumpy().ravel()
    numpy.testing.assert_array_equal(large[:707], square)


# --- distributions ----------------------------------------------------------------------------

COUNT = 200_000


def within(value: float, expected: float, deviation: float) -> None:
    """Check a mean of COUNT draws, to five of its standard deviations."""
    assert abs(value - expected) < 5 * deviation / COUNT**0.5


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_uniform_moments(dtype: str) -> None:
    np.random.seed(3)
    x = np.random.uniform(-1.0, 3.0, size=COUNT, dtype=dtype).asnumpy().astype("float64")
    assert x.min() >= -1 and x.max() < 3
    within(x.mean(), 1.0, 4 / 12**0.5)
    within((x**2).mean(), 7 / 3, 2.4)
    counts, _ = numpy.histogram(x, 20, (-1, 3))
    assert abs(counts - COUNT / 20).max() < 5 * (COUNT / 20) ** 0.5


def test_uniform_stays_below_its_upper_bound() -> None:
    np.random.seed(4)
    for dtype in ("float16", "float32"):
        x = np.random.uniform(size=COUNT, dtype=dtype).asnumpy()
        assert x.min() >= 0 and x.max() < 1


def test_float64_numbers_have_its_bits() -> None:
    np.random.seed(4)
    x = np.random.uniform(size=COUNT, dtype="float64").asnumpy()
    assert len(numpy.unique(x)) == COUNT
    assert (x * 2**24 % 1 != 0).any()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_normal_moments(dtype: str) -> None:
    np.random.seed(5)
    x = np.random.normal(2.0, 0.5, size=COUNT, dtype=dtype).asnumpy().astype("float64")
    z = (x - 2) / 0.5
    assert numpy.isfinite(z).all()
    within(z.mean(), 0, 1)
    within((z**2).mean(), 1, 2**0.5)
    within((z**3).mean(), 0, 15**0.5)
    within((z**4).mean(), 3, 96**0.5)
    within((abs(z) < 1).mean(), 0.6826895, 0.47)


def test_neighbours_and_calls_do_not_correlate() -> None:
    np.random.seed(6)
    x = np.random.normal(size=COUNT).asnumpy().astype("float64")
    y = np.random.normal(size=COUNT).asnumpy().astype("float64")
    within((x[1:] * x[:-1]).mean(), 0, 1)
    within((x * y).mean(), 0, 1)


def test_randint_range_and_evenness() -> None:
    np.random.seed(7)
    x = np.random.randint(-2, 5, size=COUNT).asnumpy()
    assert x.dtype == "int64"
    values, counts = numpy.unique(x, return_counts=True)
    assert values.tolist() == [-2, -1, 0, 1, 2, 3, 4]
    assert abs(counts - COUNT / 7).max() < 5 * (COUNT / 7) ** 0.5


def test_randint_bounds_and_dtypes() -> None:
    np.random.seed(8)
    assert set(np.random.randint(3, size=1000).tolist()) == {0, 1, 2}
    assert np.random.randint(5, 6, size=10).tolist() == [5] * 10
    small = np.random.randint(0, 256, size=10_000, dtype="uint8").asnumpy()
    assert small.dtype == "uint8" and small.min() == 0 and small.max() == 255
    wide = np.random.randint(0, 2**31, size=10_000).asnumpy()
    assert wide.min() >= 0 and 2**30 < wide.max() < 2**31
    with pytest.raises(ValueError, match="below high"):
        np.random.randint(5, 5)
    with pytest.raises(ValueError, match="below high"):
        np.random.randint(5, 2)
    with pytest.raises(DTypeError, match="integer"):
        np.random.randint(0, 2, size=3, dtype="float32")
    with pytest.raises(DTypeError, match="floating"):
        np.random.uniform(size=3, dtype="int32")


def test_permutation_and_shuffle() -> None:
    np.random.seed(10)
    order = np.random.permutation(1000).tolist()
    assert sorted(order) == list(range(1000)) and order != list(range(1000))
    x = np.array(numpy.arange(20.0).reshape(10, 2))
    shuffled = np.random.permutation(x)
    assert sorted(shuffled.tolist()) == x.tolist() and shuffled.tolist() != x.tolist()
    before = x.tolist()
    np.random.shuffle(x)
    assert sorted(x.tolist()) == before and x.tolist() != before
    assert np.random.permutation(1).tolist() == [0]
    assert np.random.permutation(0).tolist() == []


def test_permutations_are_even() -> None:
    np.random.seed(11)
    seen: dict[tuple[int, ...], int] = {}
    for _ in range(600):
        order = tuple(np.random.permutation(3).tolist())
        seen[order] = seen.get(order, 0) + 1
    assert len(seen) == 6
    assert min(seen.values()) > 55


# --- dropout ----------------------------------------------------------------------------------


def test_dropout_keeps_the_mean_and_only_in_training() -> None:
    x = np.ones((500, 400))
    assert (npx.dropout(x, p=0.3) == x).all()
    np.random.seed(12)
    with autograd.train_mode():
        y = npx.dropout(x, p=0.3).asnumpy()
    kept = (y != 0).mean()
    assert abs(kept - 0.7) < 5 * (0.21 / COUNT) ** 0.5
    numpy.testing.assert_allclose(y[y != 0], 1 / 0.7, rtol=1e-6)


def test_dropout_along_axes_shares_its_draw() -> None:
    with autograd.train_mode():
        y = npx.dropout(np.ones((50, 8)), p=0.5, axes=(1,)).asnumpy()
    assert all(len(set(row)) == 1 for row in y.tolist())
    assert len({row[0] for row in y.tolist()}) == 2


def test_the_mask_is_the_same_hybridized() -> None:
    from gemel.gluon import nn

    x = np.ones((64, 33))
    net = nn.HybridSequential()
    net.add(nn.Dropout(0.5), nn.Dropout(0.25))
    found = []
    for hybridize in (False, True):
        if hybridize:
            net.hybridize()
        np.random.seed(13)
        with autograd.record():
            found.append([net(x).asnumpy() for _ in range(2)])
    for a, b in zip(*found, strict=True):
        numpy.testing.assert_array_equal(a, b)
    assert not numpy.array_equal(found[0][0], found[0][1])


def test_the_mask_of_backward_is_that_of_forward() -> None:
    mask = OPS["dropout"](np.ones((9, 9)), p=0.5)[1].asnumpy()
    assert mask.dtype == bool
    for compiled in (False, True):
        x = np.full((9, 9), 3.0)
        x.attach_grad()

        def twice(a: Any) -> Any:
            return npx.dropout(a, p=0.5) * npx.dropout(a, p=0.5)

        call = gemel.compile(twice) if compiled else twice
        with autograd.record():
            y = call(x)
        y.backward()
        both = y.asnumpy() != 0
        numpy.testing.assert_array_equal(x.grad.asnumpy() != 0, both)
        assert both.any() and not both.all()


def test_bad_probabilities_are_refused() -> None:
    for p in (-0.1, 1.0, 1.5):
        with pytest.raises(ValueError, match="dropout: p"):
            npx.dropout(np.ones(3), p=p)


@pytest.mark.parametrize(
    ("low", "high", "dtype"),
    [
        (0, 2**63 - 1, "int64"),
        (-(2**63), 2**63 - 1, "int64"),
        (0, 2**64 - 1, "uint64"),
        (0, 2**62, "uint64"),
        (-(2**31), 2**31, "int32"),
        (0, 2**32, "uint32"),
        (-5, 2**33, "int64"),
    ],
)
def test_wide_ranges_are_filled_evenly(low: int, high: int, dtype: str) -> None:
    np.random.seed(5)
    found = np.random.randint(low, high, 4000, dtype=dtype).asnumpy()
    assert found.dtype == dtype and low <= int(found.min()) and int(found.max()) < high
    shares = [(int(value) - low) / (high - low) for value in found]
    counts, _ = numpy.histogram(shares, bins=8, range=(0, 1))
    assert counts.min() > 400 and counts.max() < 600
    assert len(set(found.tolist())) > 3990


@pytest.mark.parametrize(
    ("low", "high", "dtype"), [(0, 70000, "uint16"), (-200, 100, "int8"), (-5, 5, "uint8")]
)
def test_bounds_the_dtype_cannot_hold(low: int, high: int, dtype: str) -> None:
    with pytest.raises(ValueError, match=f"out of bounds for {dtype}"):
        np.random.randint(low, high, dtype=dtype)


def test_draws_nobody_reads_keep_their_numbers() -> None:
    """A compiled program leaves unread draws out; later calls draw the same numbers anyway."""

    def forward(x: Any) -> Any:
        np.random.normal(size=(3,))
        kept = x + np.random.uniform(size=(2,))
        npx.dropout(x, 0.5, mode="always")
        return kept

    found = []
    x = np.ones(2)
    x.attach_grad()
    for way in (forward, gemel.compile(forward)):
        np.random.seed(5)
        first = way(x)
        with autograd.record():
            second = way(x)
        found.append([y.tolist() for y in (first, second, np.random.uniform(size=(2,)))])
    assert found[0] == found[1]


def singular_values(x: Any) -> Any:
    return np.linalg.svd(x)[1]  # it has no kernel, so a program becomes several plans


def _unread_after_numpy(x: Any) -> Any:
    y = np.random.permutation(x)
    np.random.uniform(size=(2,))
    return (y,)


def _unread_in_a_side(x: Any) -> Any:
    y = singular_values(x)
    npx.cond(y.sum() > 1, lambda: np.random.normal(size=(3,)), lambda: np.zeros((3,)))
    return (y,)


SEVERAL_PLANS: dict[str, Callable[[Any], Any]] = {
    "unread": _unread_after_numpy,
    "unread in a side": _unread_in_a_side,
    "of a result": lambda x: (np.random.gamma(singular_values(x)), np.random.uniform(size=(3,))),
    "before and after": lambda x: (
        np.random.normal(size=(3,)) + singular_values(x),
        npx.dropout(singular_values(x + 1), p=0.5),
        np.random.gamma(singular_values(x)),
    ),
    "by NumPy": lambda x: (np.random.poisson(singular_values(x)), np.random.permutation(x)),
    "in a loop": lambda x: npx.foreach(
        lambda row, state: (row + np.random.normal(size=(3,)), state + row), x, singular_values(x)
    ),
}


@pytest.mark.parametrize("kind", SEVERAL_PLANS)
def test_programs_of_several_plans_share_the_stream(kind: str) -> None:
    x = np.array(numpy.arange(9.0).reshape(3, 3) + 1)
    found = []
    for way in (SEVERAL_PLANS[kind], gemel.compile(SEVERAL_PLANS[kind])):
        np.random.seed(2)
        with autograd.train_mode():
            results = [result for _ in range(3) for result in way(x)]
        found.append([result.asnumpy() for result in (*results, np.random.uniform(size=(2,)))])
    for imperative, compiled in zip(*found, strict=True):
        numpy.testing.assert_array_equal(compiled, imperative)
