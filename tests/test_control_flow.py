"""Special cases of foreach, while_loop and cond: the same imperatively, recorded and compiled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy
import pytest

import gemel
from gemel import autograd, np, npx
from gemel.errors import GradientError, ShapeError, TraceError


def three_ways(function: Callable[..., Any], *inputs: Any) -> list[Any]:
    """A function's result and its inputs' gradients; the same imperatively and compiled."""
    found = []
    for each in (function, gemel.compile(function), gemel.compile(function)):
        arrays = [np.array(x, dtype="float64") for x in inputs]
        plain = each(*arrays)
        for x in arrays:
            x.attach_grad()
        with autograd.record():
            y = each(*arrays)
        y.backward()
        numpy.testing.assert_allclose(plain.asnumpy(), y.asnumpy())
        found.append([y.asnumpy(), *(x.grad.asnumpy() for x in arrays)])
    for other in found[1:]:
        for a, b in zip(found[0], other, strict=True):
            numpy.testing.assert_allclose(a, b, rtol=1e-12)
    return found[0]


# --- while_loop -----------------------------------------------------------------------------


@pytest.mark.parametrize(("start", "steps"), [(0.5, 3), (3.0, 1), (9.0, 0), (0.001, 5)])
def test_gradients_through_while_loop(start: float, steps: int) -> None:
    """The loop doubles while the value is below 4, at most five times."""

    def function(x: Any) -> Any:
        _, last = npx.while_loop(lambda v: v.sum() < 4, lambda v: (v, v * 2), x, max_iterations=5)
        return last

    y, g = three_ways(function, [start])
    assert y.tolist() == [start * 2**steps] and g.tolist() == [2.0**steps]


def test_outputs_of_while_loop() -> None:
    def function(x: Any) -> Any:
        outputs, _ = npx.while_loop(
            lambda i, v: i < 3, lambda i, v: ([v * v, v + i], (i + 1, v * 2)),
            (np.array(0), x), max_iterations=4,
        )  # fmt: skip
        return outputs[0] + outputs[1]

    y, g = three_ways(function, [1.0, 2.0])
    assert y.tolist() == [[2, 6], [7, 21], [22, 74], [0, 0]]
    assert g.tolist() == [3 + 10 + 36, 5 + 18 + 68]


def test_while_loop_closes_over_arrays() -> None:
    def function(x: Any, scale: Any) -> Any:
        scaled = scale * 3
        outputs, (last, _) = npx.while_loop(
            lambda v, i: i < 2, lambda v, i: (v, [v * scaled, i + 1]), [x, np.array(0)], 3
        )
        return last.sum() + outputs.sum()

    _, dx, dscale = three_ways(function, [1.0, 2.0], 2.0)
    assert dx.tolist() == [36 + 7, 36 + 7]
    assert dscale.item() == 3 * 18 * 2 + 3 * 3


def test_steps_that_are_not_made_do_not_fail() -> None:
    table = np.array([1.0, 2.0, 3.0])

    def function(i: Any) -> Any:
        return npx.while_loop(lambda i: i < 3, lambda i: (table[i.reshape(1)], i + 1), i, 10)[0]

    program = gemel.compile(function)
    for start in (1, 2):
        found = program(np.array(start)).tolist()
        assert found == function(np.array(start)).tolist()
        assert found[: 3 - start] == [[2.0], [3.0]][start - 1 :]


def test_nested_loops() -> None:
    def function(x: Any) -> Any:
        def outer(row: Any, total: Any) -> Any:
            _, inner = npx.while_loop(
                lambda v: v.sum() < 10, lambda v: (v, v + row), row * 1.0, max_iterations=4
            )
            return inner, total + inner

        outputs, total = npx.foreach(outer, x, np.zeros(2, dtype="float64"))
        return outputs.sum() + total.sum()

    y, g = three_ways(function, [[1.0, 2.0], [6.0, 7.0]])
    assert y.item() == 2 * (4 * 3 + 13) and g.tolist() == [[8, 8], [2, 2]]


def test_while_loop_in_while_loop() -> None:
    def function(x: Any) -> Any:
        def outer(v: Any, i: Any) -> Any:
            _, w = npx.while_loop(lambda u: u < 3, lambda u: (u, u * 2), v, max_iterations=3)
            return w, (w - 2.5, i + 1)

        return npx.while_loop(lambda v, i: i < 2, outer, (x, np.array(0)), 2)[0]

    three_ways(function, 1.0)
    three_ways(function, 2.9)


def test_while_loop_refuses_invalid_arguments() -> None:
    with pytest.raises(TypeError, match="max_iterations"):
        npx.while_loop(lambda v: v < 3, lambda v: (v, v), np.array(1), 2.5)
    assert npx.while_loop(lambda v: v < 3, lambda v: (v, v), np.array(1), 0)[0] == []
    program = gemel.compile(
        lambda x: npx.while_loop(lambda v: v.sum() < 3, lambda v: (v, [v, v]), x, 2)[0]
    )
    with pytest.raises(ShapeError, match="returned 2 variables"):
        program(np.ones(2))
    program = gemel.compile(
        lambda x: npx.while_loop(
            lambda v: v.sum() < 3, lambda v: (v, np.concatenate([v, v])), x, 2
        )[0]
    )
    with pytest.raises(ShapeError, match="keep the shapes and dtypes"):
        program(np.ones(2))


# --- foreach --------------------------------------------------------------------------------


def test_foreach_with_nested_states_and_data() -> None:
    def function(a: Any, b: Any, c: Any) -> Any:
        def body(data: Any, states: Any) -> Any:
            (x, (y,)), (total, [count]) = data, states
            return [x * y, [x + total]], [total + y, [count + 1]]

        outputs, (total, (count,)) = npx.foreach(body, [a, (b,)], [c, [np.zeros(())]])
        first, (second,) = outputs
        return first.sum() + second.sum() + total.sum() + count

    three_ways(function, [[1.0], [2.0]], [[3.0], [5.0]], [1.0])


def test_foreach_without_steps_and_with_other_lengths() -> None:
    outputs, states = npx.foreach(lambda x, s: (x, s), np.zeros((0, 2)), [])
    assert outputs.shape == (0, 2) and states == []
    for data in ([np.zeros((2, 1)), np.zeros((3, 1))], np.array(1.0)):
        with pytest.raises(ShapeError, match="foreach"):
            npx.foreach(lambda x, s: (x, s), data, [])
    program = gemel.compile(lambda x: npx.foreach(lambda a, s: (a, s + a), x, np.zeros(2))[1])
    for count in (1, 2, 0, 5, 2):
        assert program(np.ones((count, 2))).tolist() == [count, count]
    outputs, states = npx.foreach(lambda x, s: (x, s), np.ones((2, 1)), [])
    assert outputs.shape == (2, 1) and states == []


def test_foreach_closes_over_variables() -> None:
    def function(x: Any, w: Any) -> Any:
        return npx.foreach(lambda a, s: (a * w, s * w + a), x, np.zeros(2, dtype="float64"))[1]

    _, _, dw = three_ways(function, [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]], [2.0, 3.0])
    assert dw.tolist() == [2 * 2 * 1 + 3, 2 * 3 * 2 + 4]


# --- cond -----------------------------------------------------------------------------------


@pytest.mark.parametrize("start", [1.0, -1.0])
def test_a_branch_writes_to_an_array_of_its_own(start: float) -> None:
    def function(x: Any) -> Any:
        def then(v: Any) -> Any:
            made = np.zeros((3,), dtype="float64")
            made[1] = v * 2
            made[2:] += v * v
            return made

        def otherwise(v: Any) -> Any:
            made = np.ones((3,), dtype="float64") * v
            made *= 5
            return made

        return npx.cond(x > 0, then, otherwise, x)

    y, g = three_ways(function, start)
    assert y.tolist() == ([0, 2, 1] if start > 0 else [-5, -5, -5])
    assert g.item() == (4 if start > 0 else 15)


def test_a_branch_does_not_write_outside() -> None:
    def function(x: Any, write: Callable[[Any, Any], Any]) -> Any:
        made = x * 2

        def then() -> Any:
            write(made, x)
            return made

        return npx.cond(x.sum() > 0, then, lambda: made)

    def by_item(made: Any, x: Any) -> None:
        made[0] = 3.0

    def by_view(made: Any, x: Any) -> None:
        view = made[1:]
        view += 1

    def the_argument(made: Any, x: Any) -> None:
        x[:] = 0

    for write in (by_item, by_view, the_argument):
        with pytest.raises(TraceError, match="outside"):
            gemel.compile(lambda x, write=write: function(x, write))(np.ones(2))
    with pytest.raises(TraceError, match="outside"):
        gemel.compile(lambda x: npx.cond(x.sum() > 0, lambda v: v.__iadd__(1), lambda v: v, x))(
            np.ones(2)
        )


@pytest.mark.parametrize("start", [[3.0, 1.0], [-3.0, 1.0], [3.0, -9.0]])
def test_nested_conditions_and_closures(start: list[float]) -> None:
    def function(x: Any, w: Any) -> Any:
        inner = w * x

        def then(v: Any) -> Any:
            return npx.cond(v.sum() > 0, lambda u: u * inner, lambda u: u + w, v)

        return npx.cond(x[0] > 0, then, lambda v: v * w * w, x)

    three_ways(function, start, [2.0, 0.5])


def test_cond_takes_lists_and_functions_of_them() -> None:
    def function(x: Any, y: Any) -> Any:
        found = npx.cond(
            lambda a, b: a.sum() > b.sum(), lambda a, b: [a, b * 2], lambda a, b: [b, a], [x, y]
        )
        return found[0] * 3 + found[1]

    assert three_ways(function, [2.0], [1.0])[0].tolist() == [8]
    assert three_ways(function, [1.0], [2.0])[0].tolist() == [7]


def test_the_branch_not_taken_does_not_fail() -> None:
    table = np.array([1.0, 2.0])
    program = gemel.compile(
        lambda i: npx.cond(i < 2, lambda i: table[i.reshape(1)], lambda i: np.zeros(1), i)
    )
    assert [program(np.array(i)).tolist() for i in (1, 5)] == [[2], [0]]


# --- random numbers behind a condition ------------------------------------------------------


def uniform_drawn(v: Any) -> Any:
    return v * np.random.uniform(0, 1, v.shape)


def normal_drawn(v: Any) -> Any:
    return v * v * np.random.normal(0, 1, v.shape)


def gamma_drawn(v: Any) -> Any:
    return v * np.random.gamma(2.0, 1.0, size=v.shape)


def dropped(v: Any) -> Any:
    return npx.dropout(v * v, 0.5, mode="always")


def drawn_outside(v: Any) -> Any:
    drawn = np.random.uniform(0, 1, v.shape)
    return npx.cond(v.sum() > 0, lambda w: w * drawn, lambda w: w, [v]) * drawn


DRAWS = [uniform_drawn, normal_drawn, gamma_drawn, dropped, drawn_outside]


def seeded(function: Callable[..., Any]) -> Callable[..., Any]:
    def run(x: Any) -> Any:
        np.random.seed(1)
        return function(x)

    return run


def agrees_when_seeded(function: Callable[..., Any]) -> None:
    """Values and gradients are the same imperatively and compiled, for the same seed."""
    found = []
    for each in (function, gemel.compile(function)):
        x = np.array([0.5, 1.0, 2.0, 4.0, 1.5, 3.0], dtype="float64")
        x.attach_grad()
        np.random.seed(1)
        with autograd.record():
            y = each(x)
        np.random.uniform(size=(2,))  # numbers drawn in between change nothing
        y.backward()
        found.append((y.asnumpy(), x.grad.asnumpy()))
    for a, b in zip(*found, strict=True):
        numpy.testing.assert_allclose(a, b, rtol=1e-6)
    assert found[0][1].any()


@pytest.mark.parametrize("draw", DRAWS)
def test_a_branch_is_differentiated_with_what_it_has_drawn(draw: Callable[..., Any]) -> None:
    agrees_when_seeded(lambda x: npx.cond(x.sum() > 0, draw, lambda v: v * 1, [x]).sum())


@pytest.mark.parametrize("most", [1, 3, 5])
@pytest.mark.parametrize("draw", DRAWS[:4])
def test_a_while_loop_is_differentiated_with_what_it_has_drawn(
    draw: Callable[..., Any], most: int
) -> None:
    def step(v: Any) -> tuple[Any, Any]:
        return v * 2, draw(v) + 1

    agrees_when_seeded(lambda x: npx.while_loop(lambda v: v.sum() < 1e9, step, x, most)[1].sum())


@pytest.mark.parametrize("start", [[0.5, 2.0], [0.25, 0.5], [-1.0, -2.0]])
def test_branches_in_branches_draw_the_same_twice(start: list[float]) -> None:
    def inner(v: Any) -> Any:
        chosen = npx.cond(v.sum() > 1, uniform_drawn, dropped, [v])
        return uniform_drawn(v) + chosen * np.random.uniform(0, 1, v.shape)

    program = seeded(gemel.compile(lambda x: npx.cond(x.sum() > 0, inner, normal_drawn, [x]).sum()))
    x = np.array(start, dtype="float64")
    x.attach_grad()
    with autograd.record():
        y = program(x)
    y.backward()
    step = 1e-4
    for i, g in enumerate(x.grad.tolist()):
        nearby = [start[:i] + [start[i] + d] + start[i + 1 :] for d in (step, -step)]
        above, below = (program(np.array(each, dtype="float64")).item() for each in nearby)
        assert g == pytest.approx((above - below) / (2 * step), rel=1e-3)


def test_second_gradients_refuse_to_draw_again() -> None:
    program = gemel.compile(lambda x: npx.cond(x.sum() > 0, normal_drawn, dropped, [x]).sum())
    x = np.array([1.0, 2.0])
    x.attach_grad()
    with autograd.record():
        y = program(x)
        with pytest.raises(GradientError, match="random numbers"):
            autograd.grad(y, [x], create_graph=True)
