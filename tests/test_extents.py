"""What a traced function may ask of an extent: the same numbers as imperatively, at every size."""

from __future__ import annotations

import contextlib
import math
import operator
import pickle
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy
import pytest

import gemel
from gemel import autograd, np, npx
from gemel.errors import TraceError
from gemel.extent import (
    Dim,
    Guards,
    Sizes,
    concrete,
    form_of,
    maximum,
    minimum,
    name_of,
    seen,
)
from gemel.forms import combined, form_text, of_name
from gemel.ir.free import trial

#: Functions of an array that need a number, in every possible way.
FUNCTIONS: dict[str, Callable[[Any, Any], Any]] = {
    "1.0 / n": lambda x, n: x.sum(axis=0) * (1.0 / n),
    "n / 2": lambda x, n: x * (n / 2),
    "2 / n": lambda x, n: x * (2 / n),
    "n * 0.5": lambda x, n: x * (n * 0.5),
    "0.5 * n": lambda x, n: x * (0.5 * n),
    "n - 0.5": lambda x, n: x * (n - 0.5),
    "0.5 - n": lambda x, n: x * (0.5 - n),
    "n // 0.3": lambda x, n: x * (n // 0.3),
    "-n": lambda x, n: x * -n,
    "+n": lambda x, n: x * +n,
    "~n": lambda x, n: x * ~n,
    "abs(n - 10)": lambda x, n: x * abs(n - 10),
    "n**2": lambda x, n: x * n**2,
    "n**0.5": lambda x, n: x * n**0.5,
    "n**-1": lambda x, n: x * n**-1,
    "2**n": lambda x, n: x * 2**n,
    "pow(n, 2, 5)": lambda x, n: x * pow(n, 2, 5),
    "n >> 1": lambda x, n: x * (n >> 1),
    "n << 1": lambda x, n: x * (n << 1),
    "1 << n": lambda x, n: x * (1 << n),
    "n & 6": lambda x, n: x * (n & 6),
    "6 | n": lambda x, n: x * (6 | n),
    "n ^ 3": lambda x, n: x * (n ^ 3),
    "n // 3": lambda x, n: x * (n // 3),
    "100 // n": lambda x, n: x * (100 // n),
    "n % 3": lambda x, n: x * (n % 3),
    "100 % n": lambda x, n: x * (100 % n),
    "divmod": lambda x, n: x * divmod(n, 3)[0] + divmod(50, n)[1],
    "int": lambda x, n: x * int(n),
    "float": lambda x, n: x * float(n),
    "complex": lambda x, n: x * complex(n).real,
    "bool": lambda x, n: x * bool(n) + bool(n - 8),
    "index": lambda x, n: x * operator.index(n),
    "round": lambda x, n: x * round(n) + round(n, -1),
    "trunc": lambda x, n: x * math.trunc(n) + math.floor(n) + math.ceil(n),
    "sqrt": lambda x, n: x / math.sqrt(n),
    "gcd": lambda x, n: x * math.gcd(n, 12),
    "math.prod": lambda x, n: x * math.prod(x.shape),
    "sum": lambda x, n: x * sum([n, 1, n]),
    "min, max": lambda x, n: x * min(n, 10) + max(6, n),
    "sorted": lambda x, n: x * sorted([n, 10, 5])[0],
    "compared": lambda x, n: x * ((n > 6) + (n >= 8) * 2 + (n < 9) * 4 + (n <= 4) * 8),
    "equal": lambda x, n: x * ((n == 8) + (n != 4) * 2 + (n == 8.0) * 4),
    "compared with floats": lambda x, n: x * ((n > 6.5) + (n < 5) * 2 + (n == 8.5)),
    "in": lambda x, n: x * (n in (4, 8)) + (n in {16: 1}),
    "bit_length": lambda x, n: x * n.bit_length() + n.real,
    "str": lambda x, n: (
        x * len(str(n)) + len(f"{n}") + len(f"{n:5d}") + int(f"{n}") + int(f"{n:d}")
    ),
    "list": lambda x, n: x[:, 0] + np.array([1.0] * n),
    "range": lambda x, n: sum(x[i] * i for i in range(n)),
    "len": lambda x, n: x * len(x),
    "iteration": lambda x, n: sum(row * 2 for row in x),
    "numpy": lambda x, n: x * float(numpy.sqrt(numpy.ones(n)).sum() + numpy.multiply(2, n)),
    "x[n - 1]": lambda x, n: x[n - 1],
    "x[n // 2]": lambda x, n: x[n // 2],
    "x[-n]": lambda x, n: x[-n],
    "x[: n // 2]": lambda x, n: x[: n // 2],
    "x[:: n // 4]": lambda x, n: x[:: n // 4],
    "x[n - 2 :: -1]": lambda x, n: x[n - 2 :: -1],
    "x[:, n % 3]": lambda x, n: x[:, n % 3],
    "arange": lambda x, n: np.arange(n) + np.arange(1, n + 1) * 2 + x.sum(),
    "arange by floats": lambda x, n: np.arange(0, n * 0.5, 0.5) + x.sum(),
    "linspace": lambda x, n: np.linspace(0, 1, n) + x.sum(),
    "eye": lambda x, n: np.eye(n) + x.sum(),
    "array": lambda x, n: x * np.array(n) + np.array([n, 1]).sum(),
    "full": lambda x, n: np.full((n, 2), n) + x.sum(),
    "ones": lambda x, n: np.ones((n, 2)) * np.zeros(n).sum() + x.sum(),
    "split": lambda x, n: sum(np.split(x, n)),
    "split at": lambda x, n: np.split(x, [1, n - 1])[1].sum(),
    "reshape": lambda x, n: x.reshape(n * 3).reshape(3, n) + x.reshape(n // 2, -1).sum(),
    "broadcast_to": lambda x, n: np.broadcast_to(x.sum(axis=0), (n, 3)),
    "take": lambda x, n: np.take(x, n - 1, axis=0),
    "every axis": lambda x, n: x.sum() / (x.shape[0] * x.shape[1]) + x.shape[1] // 2,
}
SIZES = (8, 16, 4, 8, 5, 3)


def results(function: Callable[[Any, Any], Any], sizes: tuple[int, ...], compiled: bool) -> Any:
    """Values, or the class of the exception, for each size."""

    def called(x: Any) -> Any:
        return function(x, x.shape[0])

    run = gemel.compile(called) if compiled else called
    found: list[Any] = []
    for n in sizes:
        x = np.array(numpy.arange(n * 3).reshape(n, 3), dtype="float32")
        try:
            found.append(run(x).asnumpy())
        except (ValueError, IndexError) as error:
            found.append(type(error))
    return found


@pytest.mark.parametrize("name", FUNCTIONS)
def test_each_way_of_asking_gives_the_number_of_the_call(name: str) -> None:
    wanted = results(FUNCTIONS[name], SIZES, compiled=False)
    for got, expected in zip(results(FUNCTIONS[name], SIZES, compiled=True), wanted, strict=True):
        if isinstance(expected, type):
            assert got is expected
        else:
            numpy.testing.assert_allclose(got, expected, rtol=1e-5)
            assert got.dtype == expected.dtype


#: Functions that must not need a trace for each size.
GENERIC = (
    "-n",
    "n**2",
    "n >> 1",
    "n << 1",
    "abs(n - 10)",
    "n // 3",
    "n % 3",
    "arange",
    "full",
    "reshape",
    "broadcast_to",
    "x[n - 1]",
    "x[: n // 2]",
    "math.prod",
    "sum",
    "eye",
    "take",
)


@pytest.mark.parametrize("name", GENERIC)
def test_values_with_a_symbolic_form_stay_in_one_trace(name: str) -> None:
    function = gemel.compile(lambda x: FUNCTIONS[name](x, x.shape[0]))
    for n in (16, 12, 20, 36):
        function(np.ones((n, 3)))
    assert function.traces == 1


def test_every_axis_is_free() -> None:
    def forward(x: Any, w: Any) -> Any:
        scores = npx.softmax(np.matmul(x, np.swapaxes(x, 1, 2)) / 8.0)
        return np.matmul(np.matmul(scores, x), w)

    function = gemel.compile(forward)
    w = np.ones((6, 2))
    for batch, length in ((2, 5), (3, 9), (7, 5), (2, 70), (64, 2)):
        x = np.random.normal(0, 1, (batch, length, 6))
        numpy.testing.assert_allclose(
            function(x, w).asnumpy(), forward(x, w).asnumpy(), rtol=1e-4, atol=1e-5
        )
    assert function.traces == 1


def test_sizes_found_equal_are_one() -> None:
    function = gemel.compile(lambda x, y: (x + y).reshape(-1))
    assert function(np.ones((4, 6)), np.ones((4, 6))).shape == (24,)
    assert function(np.ones((5, 3)), np.ones((5, 3))).shape == (15,)
    assert function.traces == 1
    assert function(np.ones((5, 3)), np.ones((1, 3))).shape == (15,)
    assert function(np.ones((5, 3)), np.ones((3,))).shape == (15,)
    with pytest.raises(gemel.errors.ShapeError):
        function(np.ones((5, 3)), np.ones((5, 4)))
    assert function(np.ones((6, 3)), np.ones((6, 3))).shape == (18,)


def test_gradients_at_many_sizes() -> None:
    function = gemel.compile(lambda x: ((x * x.shape[0]) ** 2).mean() * (1.0 / x.shape[1]))
    for rows, columns in ((8, 3), (4, 3), (4, 6), (16, 2)):
        x = np.ones((rows, columns))
        x.attach_grad()
        with autograd.record():
            y = function(x)
        y.backward()
        wanted = 2 * rows * rows / (rows * columns) / columns
        numpy.testing.assert_allclose(x.grad.asnumpy(), numpy.full((rows, columns), wanted), 1e-5)


def test_guards_are_few() -> None:
    function = gemel.compile(lambda x: npx.softmax(x) + npx.log_softmax(x) * x.mean())
    function(np.ones((8, 5)))
    (program, *_) = next(iter(function._programs.values()))
    assert len(program.trace.extents.guards) + len(program.guards) <= 8


def test_guards_that_are_taken_away_are_left_again_by_the_same_question() -> None:
    guards = Guards()
    n = Dim(8, "n", guards)
    assert n > 5 and n < 9 and n > 5
    assert [repr(guard) for guard in guards] == ["5 < n", "n < 9"]
    del guards[1:]
    assert n > 5 and n < 9 and n < 9
    assert [repr(guard) for guard in guards] == ["5 < n", "n < 9"]
    copied = Guards(guards)
    m = Dim(7, "n", copied)  # another number, for which the guards hold
    assert m < 9 and m > 5 and m * 2 > 3
    assert copied == guards


def test_sizes_left_over_from_two_traces_are_two() -> None:
    """Both are called after the same axis of an argument."""
    left: list[int] = []
    for n in (4, 7):
        gemel.compile(lambda x: left.append(x.shape[0]) or x * 2)(np.ones(n))
    four, seven = left
    assert four != seven and four < seven and not seven <= four and seven in (7, four)
    assert minimum(seven, four) == 4 and seven // four == 1 and sorted([seven, four])[0] == 4
    assert [concrete(n, {"n0_0": 50}) for n in (four + seven, seven - four)] == [57, 46]


def test_an_extent_is_no_number_for_c_code() -> None:
    guards = Guards()
    n = Dim(8, "n", guards)
    assert not isinstance(n, int)
    assert n == n and n > 1 and n != 0 and bool(n) and hash(n) == hash(8)
    assert not guards, "this holds for every value"
    assert repr(n * 2 + 1) == "2 * n + 1" and not guards
    for ask in (int, float, str, range, math.sqrt, operator.index, "{}".format, bytes):
        ask(n)  # type: ignore[operator]
    assert [repr(guard) for guard in guards] == ["n == 8"], "one guard, however often asked"
    assert not hasattr(n, "itemsize") and not hasattr(n, "shape")


def test_errors_show_numbers() -> None:
    function = gemel.compile(lambda x: np.dot(x, np.ones((4, 2))))
    with pytest.raises(gemel.errors.ShapeError, match=r"float32\[8, 3\]"):
        function(np.ones((8, 3)))


# --- names that stay ----------------------------------------------------------------------------


def test_names_that_stay_keep_the_form_and_get_the_new_number_and_guards() -> None:
    old = Guards()
    n, m = Dim(12, "n", old), Dim(5, "m", old)
    forms = [n, n + 1, 3 * n * m - m, (n - 1) // 2, (n + m) % 4, (n // m) * (m // 2)]
    new = Guards()
    values = {"n": Dim(40, "n", new), "m": Dim(9, "m", new)}
    staying, slowly = concrete(forms, Sizes(values)), concrete(forms, values)
    for fast, slow in zip(staying, slowly, strict=True):
        assert (repr(fast), seen(fast)) == (repr(slow), seen(slow))
        assert fast.guards is new  # later guards go there
    assert [seen(one) for one in staying] == [40, 41, 1071, 19, 1, 16]
    assert old == new == []


def test_texts_of_forms_have_the_parentheses_that_their_meaning_needs() -> None:
    n, m = Dim(12, "n", Guards()), Dim(5, "m", Guards())
    for form, expected in (
        ((n + 1) // 2, "((n + 1) // 2)"),
        (n // 3 + 1, "(n // 3) + 1"),
        (n // (2 * m), "(n // (2 * m))"),
        (7 % (n + m), "(7 % (m + n))"),
        ((n - 1) // (m // 2), "((n - 1) // (m // 2))"),
        (minimum(n - 1, 3 * m), "minimum(n - 1, 3 * m)"),
    ):
        assert form_text(form_of(form)) == expected


def test_a_product_of_a_long_sum_takes_work_in_proportion_to_it() -> None:
    """A concatenation of hundreds of arrays has such products for each of its parts."""

    def work(count: int) -> int:
        terms = sorted(of_name(f"n{i}", 1)[0] for i in range(count))
        calls = 0

        def count_calls(frame: Any, event: str, argument: Any) -> None:
            nonlocal calls
            calls += event == "call"

        sys.setprofile(count_calls)
        try:
            product = combined("*", tuple(terms), of_name("m", 1))
        finally:
            sys.setprofile(None)
        assert len(product) == count
        return calls

    assert work(400) < 3 * work(200)


def test_bounds_of_extremes_come_from_both_sides() -> None:
    """What is left of n after all but 3 is min(3, n), so never below 1."""
    guards = Guards()
    n = Dim(5, "n", guards, least=1)
    left = n - maximum(0, n - 3)
    assert repr(maximum(0, left)) == repr(left)
    assert left > 0 and maximum(0, n - 3) + 3 >= n and minimum(3, n) <= n
    assert not left < 1 and n - minimum(n, 3) >= 0
    assert not guards
    assert left <= 2 or len(guards) == 1  # 3, if there are as many


def test_a_quotient_without_divisor_is_zero_where_names_stay() -> None:
    guards = Guards()
    n = Dim(12, "n", guards)
    values = {"n": Dim(2, "n", guards)}
    found = concrete([7 // (n // 4), n + 1], Sizes(values))
    assert found[0] == 0 and type(found[0]) is int
    assert repr(found[1]) == repr(n + 1) and seen(found[1]) == 3


def test_names_that_become_others_or_numbers_do_not_stay() -> None:
    guards = Guards()
    n, m = Dim(12, "n", guards), Dim(12, "m", guards)
    assert name_of(concrete(n, Sizes({"n": m, "m": m}))) == "m"
    assert concrete(n * 2 + m, Sizes({"n": 3, "m": 4})) == 10


class Left(NamedTuple):
    """Objects that a traced function has stored in a variable of the program."""

    symbol: Any
    sum: Any
    extent: Any


def left_over() -> Left:
    kept: list[Left] = []

    def function(x: Any) -> Any:
        kept.append(Left(x, x.sum(), x.shape[0]))
        return x + 1

    gemel.compile(function)(np.ones(5))
    return kept[0]


def test_an_extent_left_over_is_pickled_as_a_number() -> None:
    left = pickle.loads(pickle.dumps({"size": left_over().extent}))
    assert left == {"size": 5} and type(left["size"]) is int
    extent = left_over().extent
    assert extent != 4 and extent == 5 and extent != "a"


@pytest.mark.parametrize(
    "use",
    [
        lambda n: np.zeros((n,)) + 5,
        lambda n: np.zeros(n) + n,
        lambda n: np.full((5,), n),
        lambda n: np.array([n] * 5),
        lambda n: np.ones((2, n)).sum(axis=1).reshape(2) * n - 20,
        lambda n: np.where(np.ones(n) > 0, n, 0),
        lambda n: np.maximum(np.ones(5), n),
        lambda n: np.broadcast_to(np.array(5), (n,)),
        lambda n: np.arange(2 * n)[n : n + 1].repeat(n),
        lambda n: np.concatenate([np.zeros(n), np.ones(n) * n])[n:],
    ],
)
def test_an_extent_left_over_is_a_number(use: Callable[[Any], Any]) -> None:
    found = use(left_over().extent)
    assert set(found.tolist()) == {5}


@pytest.mark.parametrize(
    "use",
    [
        lambda left: np.ones(5) * left.symbol,
        lambda left: left.sum + 1,
        lambda left: np.concatenate([np.ones(5), left.symbol]),
        lambda left: left.symbol.asnumpy(),
        lambda left: float(left.sum),
        lambda left: gemel.compile(lambda x: x + left.symbol)(np.ones(5)),
        lambda left: gemel.compile(lambda x: left.sum)(np.ones(5)),
    ],
)
def test_a_symbol_left_over_has_no_value(use: Callable[[Left], Any]) -> None:
    with pytest.raises(TraceError, match=r"<_Symbol \w+> .* stands for a value in one trace"):
        use(left_over())


@pytest.mark.parametrize("fails", [False, True])
def test_guards_of_a_trial_trace_are_discarded(fails: bool) -> None:
    guards = Guards()
    rows, columns = Dim(6, "n", guards), Dim(3, "m", guards)
    assert rows > 4
    with contextlib.suppress(ZeroDivisionError), trial([rows, columns, 2]) as asked:
        assert rows * 2 == 12 and columns < 5
        assert len(guards) == 3 and not asked
        1 / (not fails)
    assert len(asked) == 2 and len(guards) == 1
    with trial([rows, columns]) as asked:
        assert rows > 4  # already known
    assert not asked
