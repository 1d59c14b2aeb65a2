"""Scripted functions: `if`, `while` and `for` on values of arrays, as Python would run them.

Each function of the table runs plain and scripted, forward and backward, on inputs that take
different branches and have different sizes.
"""

from __future__ import annotations

import contextlib
import functools
import traceback
from collections.abc import Callable
from typing import Any

import numpy
import pytest

import gemel
from gemel import autograd, np
from gemel.errors import GemelError, TraceError

LIMIT = 3


def two_sides(x: Any) -> Any:
    if x.sum() > 0:
        y = x * 2
    else:
        y = -x
    return y + 1


def early_return(x: Any) -> Any:
    if x.sum() > 10:
        return x
    elif x.sum() > 5:
        return x * 2
    return x * 3


def nested(x: Any) -> Any:
    y = x
    if x.sum() > 0:
        if x[0] > LIMIT:
            y = y * 2
        else:
            y = y + x[0]
        y = y - 1
    return y


def counted(x: Any) -> Any:
    i = 0
    while (x * x).sum() < 100:
        x = x * 2
        i += 1
    return x * i, i


def forever(x: Any) -> Any:
    while True:
        x = x + abs(x).max()
        if x.sum() > 20:
            return x


def leaves_loops(x: Any) -> Any:
    total = x * 0
    for i in range(5):
        if x[0] > i:
            continue
        if total.sum() > 7:
            break
        total += x
    else:
        total = total - 100
    return total


def range_of_a_value(x: Any) -> Any:
    s = x * 0
    for i in range(int(abs(x).sum())):
        s = s + x * i
        if s.sum() > 9:
            break
    return s * 1 + x


def rows(x: Any) -> Any:
    for row in x.reshape(-1, 1):
        if row.sum() > 1:
            return row
    return x[:1] * 0


def finds(x: Any) -> Any:
    found = x[0] * 0
    while found < 50:
        found = found + 1
        if found * x.max() > 10:
            break
        if found > 20:
            return found
    else:
        found = found * 2
    return found + x.sum()


def chosen(x: Any) -> Any:
    a = x if -1 < x.sum() < 3 else -x
    b = a if not (x.sum() > 1) and x.max() > 0 else a + 1
    c = x.sum() > 2 or x.min() < -1
    return a, b, np.where(c, a, b)


def in_place(x: Any) -> Any:
    x += 1
    alias = x
    if x.sum() > 3:
        x += 1
    while x.sum() < 30:
        x *= 2
        x[0] = x[0] + 5
    return alias.sum()


def writes_elements(x: Any) -> Any:
    out = np.zeros(3, dtype="float64")
    for i in range(3):
        if x.sum() > i:
            out[i] = x.max() * i
        else:
            out[i] = -1
    return out + x.sum()


def lists_and_dicts(x: Any) -> Any:
    state = {"a": x, "n": [x.sum(), 1]}
    if x.sum() > 0:
        state["a"] = state["a"] * 2
        state["n"][1] = 3
    return state["a"].sum() + state["n"][0] * state["n"][1]


def plain_values(x: Any, mode: str = "twice", *, times: int = 2) -> Any:
    if mode == "twice" and times:
        for _ in range(times):
            x = x * 2
    names = [name for name in ("a", "b") if name != mode]
    return x if len(names) == 2 else None


def temporaries(x: Any) -> Any:
    if x.sum() > 0:
        once = x * 2
        y = once + 1
    else:
        y = x
    while y.sum() < 40:
        inner = abs(y) + 1
        y = y + inner
    return y


def helper(x: Any, most: float) -> Any:
    return x if x.sum() < most else x * 0


def calls_helpers(x: Any) -> Any:
    def inner(v: Any) -> Any:
        if v.sum() > LIMIT:
            return helper(v, 10.0)
        return v + 1

    return inner(x) + helper(x, 2.0)


def with_statement(x: Any) -> Any:
    with contextlib.nullcontext():
        if x.sum() > 0:
            return x * 2
    try:
        if x.sum() < -4:
            return x
    finally:
        x = x + 1
    return x * 3


def numbers_differ(x: Any) -> Any:
    scale = 2 if x.sum() > 0 else 0.5
    flag = x.max() > 2
    if flag:
        scale = scale + 1
    return x * scale


def while_in_if(x: Any) -> Any:
    if x.sum() > 0:
        while x.sum() < 9:
            x = x + x.max()
    return x


def if_in_while_in_while(x: Any) -> Any:
    i = 0
    while i < abs(x).max():
        j = 0
        while j < 2:
            if x.sum() > j:
                x = x * 0.5
            else:
                x = x + 0.25
            j = j + 1
        i = i + 1
    return x


FUNCTIONS = [
    two_sides,
    early_return,
    nested,
    counted,
    forever,
    leaves_loops,
    range_of_a_value,
    rows,
    finds,
    chosen,
    in_place,
    writes_elements,
    lists_and_dicts,
    plain_values,
    temporaries,
    calls_helpers,
    with_statement,
    numbers_differ,
    while_in_if,
    if_in_while_in_while,
]
INPUTS = [[1.0, 2.0], [-1.0, -2.0], [5.0, 6.5], [0.5, 0.25, 0.125], [3.0]]


def ran(function: Callable[..., Any], data: list[float]) -> list[Any]:
    """A function's results, the gradient of its argument, and what it left in the argument."""
    x = np.array(data, dtype="float64")
    x.attach_grad()
    with autograd.record():
        given = x * 1
        found = function(given)
        results = found if isinstance(found, tuple) else (found,)
        total = sum((y.sum() if hasattr(y, "sum") else y) for y in results) + x.sum() * 0
    total.backward()
    values = [numpy.asarray(y) for y in results]
    return [*values, x.grad.asnumpy(), given.asnumpy()]


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda f: f.__name__)
def test_scripted_is_imperative(function: Callable[..., Any]) -> None:
    program = gemel.compile(function, script=True)
    for data in INPUTS:
        if function in (forever, temporaries) and data == [-1.0, -2.0]:
            continue
        if function is in_place and data[0] < 0:
            continue
        for mine, theirs in zip(ran(program, data), ran(function, data), strict=True):
            numpy.testing.assert_allclose(mine, theirs, rtol=1e-12)


def test_one_program_for_all_ways() -> None:
    for function in (two_sides, counted, forever):
        program = gemel.compile(function, script=True)
        for data in ([1.0, 2.0], [7.0, 8.0], [0.5, 0.25, 0.125]):
            program(np.array(data, dtype="float64"))
        assert program.traces == 1


def test_closures_methods_defaults_and_decorators() -> None:
    step = 2.0

    class Counter:
        __most = 6

        def __init__(self) -> None:
            self.bound = 4.0

        def run(self, x: Any, *more: Any) -> Any:
            while x.sum() < self.bound + step:
                x = x + step
            return x if x.sum() > self.__most else x * len(more)

    class Child(Counter):
        def run(self, x: Any, *more: Any) -> Any:
            if x.sum() > 100:
                return x
            return super().run(x, *more)

    def decorated(function: Any) -> Any:
        @functools.wraps(function)
        def call(x: Any) -> Any:
            return function(x) if x.sum() > 0 else x

        return call

    @decorated
    def doubled(x: Any) -> Any:
        return x * 2 if x.sum() < 3 else x

    for child in (Counter(), Child()):
        program = gemel.compile(child.run, script=True)
        for data in ([1.0], [3.0, 3.5], [50.0, 60.0]):
            x = np.array(data)
            assert program(x).tolist() == child.run(x).tolist()
    step = 3.0
    assert gemel.compile(Counter().run, script=True)(np.array([1.0])).tolist() == [7.0]
    scripted = gemel.compile(doubled, script=True)
    for value in (-1.0, 1.0, 5.0):
        assert scripted(np.array([value])).tolist() == doubled(np.array([value])).tolist()
    assert gemel.compile(lambda x: x if x.sum() > 0 else -x, script=True)(np.array(-2.0)) == 2.0


def test_outside_of_a_trace_it_is_python() -> None:
    from gemel.scripting import script

    for function in FUNCTIONS:
        if function not in (forever, temporaries, in_place):
            for mine, theirs in zip(
                ran(script(function), INPUTS[1]), ran(function, INPUTS[1]), strict=True
            ):
                numpy.testing.assert_allclose(mine, theirs)


# --- what cannot be -------------------------------------------------------------------------


def one_sided(x: Any) -> Any:
    if x.sum() > 0:
        y = x
    return y  # wrong


def other_shapes(x: Any) -> Any:
    y = x if x.sum() > 0 else x[:1]  # wrong
    return y


def other_dtypes(x: Any) -> Any:
    if x.sum() > 0:
        y = x
    else:
        y = x.astype("float32")
    return y * 2  # wrong


def sometimes_nothing(x: Any) -> Any:
    if x.sum() > 0:  # wrong
        return x


def grows(x: Any) -> Any:
    while x.sum() < 10:  # wrong
        x = np.concatenate([x, x])
    return x


def raises(x: Any) -> Any:
    if x.sum() > 0:
        raise ValueError("positive")  # wrong
    return x


def keeps(x: Any, holder: Any = FUNCTIONS) -> Any:
    if x.sum() > 0:
        keeps.last = x  # type: ignore[attr-defined] # wrong
    return x


def defined_in_a_loop(x: Any) -> Any:
    while x.sum() < 10:
        y = x
        x = x + 1
    return y  # wrong


def asserts(x: Any) -> Any:
    assert x.sum() > 0  # wrong
    return x


@pytest.mark.parametrize(
    "function",
    [one_sided, other_shapes, other_dtypes, sometimes_nothing, grows, raises, keeps,
     defined_in_a_loop, asserts],
    ids=lambda f: f.__name__,
)  # fmt: skip
def test_scripting_errors_name_file_and_line(function: Callable[..., Any]) -> None:
    code = function.__code__
    with open(__file__) as file:
        lines = file.read().split("\n")
    end = next(i for i in range(code.co_firstlineno, 9999) if "wrong" in lines[i - 1])
    with pytest.raises(TraceError) as caught:
        gemel.compile(function, script=True)(np.ones(2, dtype="float64"))
    message = str(caught.value)
    assert function.__name__ in message
    place = f"{code.co_filename}:"
    assert place in message
    line = int(message.split(place)[1].split(":")[0])
    assert abs(line - end) <= 1, message


def test_generators_and_sourceless_functions() -> None:
    def numbers(x: Any) -> Any:
        yield x

    scope: dict[str, Any] = {}
    exec("def f(x):\n    return x", scope)
    for function in (numbers, scope["f"], len):
        with pytest.raises(TraceError, match="script"):
            gemel.compile(function, script=True)


def fails(x: Any) -> Any:
    if x.sum() > 0:
        for _ in range(2):
            x = x + np.ones(7)  # the line
    return x


def test_tracebacks_keep_their_lines() -> None:
    with pytest.raises(GemelError) as caught:
        gemel.compile(fails, script=True)(np.ones(2))
    places = traceback.extract_tb(caught.value.__traceback__)
    own = [place for place in places if place.filename == __file__]
    assert own[-1].line == "x = x + np.ones(7)  # the line" and own[-1].name == "fails"


def drawn_on_one_side(x: Any) -> Any:
    if x.sum() > 0:
        y = x * np.random.uniform(0, 1, x.shape)
    else:
        y = x * x
    return y.sum()


def test_a_branch_is_differentiated_with_what_it_has_drawn() -> None:
    found = []
    for function in (drawn_on_one_side, gemel.compile(drawn_on_one_side, script=True)):
        x = np.array([0.5, 1.0, 2.0])
        x.attach_grad()
        np.random.seed(1)
        with autograd.record():
            y = function(x)
        y.backward()
        found.append([y.item(), *x.grad.tolist()])
    assert found[0] == pytest.approx(found[1])
