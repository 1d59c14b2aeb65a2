"""Norms, masks, sequences, look-ups and loops, against NumPy, with their gradients."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy
import pytest
from slow import check, drawn

import gemel
from gemel import autograd, np, npx
from gemel.errors import GemelError, ShapeError, UnknownNameError

Array = numpy.ndarray[Any, Any]


def standardized(x: Array, axes: Any, eps: float) -> Array:
    centred = x - x.mean(axes, keepdims=True)
    return numpy.asarray(centred / numpy.sqrt(x.var(axes, keepdims=True) + eps))


def lined(vector: Array, x: Array, axis: int = 1) -> Array:
    """The vector, reshaped to lie along one axis of x."""
    return vector.reshape([-1 if i == axis % x.ndim else 1 for i in range(x.ndim)])


def softmax(x: Array, mask: Any = True) -> Array:
    """Over the last axis, row by row; 0 for elements that the mask leaves out."""
    mask = numpy.broadcast_to(mask, x.shape)
    found = numpy.zeros(x.shape)
    for row in itertools.product(*map(range, x.shape[:-1])):
        kept = x[row][mask[row]]
        if kept.size:
            raised = numpy.exp(kept - kept.max())
            found[row][mask[row]] = raised / raised.sum()
    return found


def grouped(x: Array, groups: int, eps: float) -> Array:
    parts = x.reshape(x.shape[0], groups, -1)
    return standardized(parts, (2,), eps).reshape(x.shape)


VECTORS = [drawn(6) + 3, drawn(6, seed=1)]
MASK = numpy.array([[True, False, True, True], [False] * 4, [True] * 4])
LENGTHS = numpy.array([2, 4, 1], dtype="int32")


def masked(x: Array, lengths: Array, axis: int, value: float) -> Array:
    found = x.copy()
    for n, length in enumerate(lengths):
        found[(slice(length, None), n) if axis == 0 else (n, slice(length, None))] = value
    return found


def last(x: Array, lengths: Array, axis: int) -> Array:
    x = numpy.swapaxes(x, 0, axis)
    return numpy.stack([x[length - 1, n] for n, length in enumerate(lengths)])


def turned(x: Array, lengths: Array, axis: int) -> Array:
    found = numpy.swapaxes(x, 0, axis).copy()
    for n, length in enumerate(lengths):
        found[:length, n] = found[:length, n][::-1]
    return numpy.swapaxes(found, 0, axis)


def placed(x: Array, rows: Any, value: Array, add: bool) -> Array:
    found = x.copy()
    for column in range(len(rows[0])):
        key = tuple(row[column] for row in rows)
        found[key] = (found[key] if add else 0) + numpy.broadcast_to(
            value, (len(rows[0]), *x.shape[len(rows) :])
        )[column]
    return found


ROWS = numpy.array([[0, 1, 0], [2, 0, 2]])

#: Name, call, reference, inputs.
CASES: list[tuple[str, Callable[..., Any], Callable[..., Any], list[Array]]] = [
    ("layer_norm", lambda x, g, b: npx.layer_norm(x, g, b),
     lambda x, g, b: standardized(x, -1, 1e-5) * g + b, [drawn(2, 3, 6), *VECTORS]),
    ("layer_norm, axis 1", lambda x, g, b: npx.layer_norm(x, g, b, axis=1, eps=0.1),
     lambda x, g, b: standardized(x, 1, 0.1) * lined(g, x) + lined(b, x),
     [drawn(2, 6, 3), *VECTORS]),
    ("group_norm", lambda x, g, b: npx.group_norm(x, g, b, num_groups=3),
     lambda x, g, b: grouped(x, 3, 1e-3) * lined(g, x) + lined(b, x),
     [drawn(2, 6, 3, 2), *VECTORS]),
    ("group_norm, by groups", lambda x, g, b: npx.group_norm(x, g, b, num_groups=6, eps=0.1),
     lambda x, g, b: grouped(x, 6, 0.1) * lined(g, x).repeat(2, 1) + lined(b, x).repeat(2, 1),
     [drawn(2, 12, 3), *VECTORS]),
    ("instance_norm", lambda x, g, b: npx.instance_norm(x, g, b),
     lambda x, g, b: standardized(x, (2, 3), 1e-3) * lined(g, x) + lined(b, x),
     [drawn(2, 6, 3, 4), *VECTORS]),
    *((f"l2_normalization, {mode}", lambda x, mode=mode: npx.l2_normalization(x, mode=mode),
       lambda x, axes=axes: x / numpy.sqrt((x * x).sum(axes, keepdims=True) + 1e-10),
       [drawn(2, 3, 4, 2)])
      for mode, axes in (("instance", (1, 2, 3)), ("channel", 1), ("spatial", (2, 3)))),
    ("masked_softmax", lambda x: npx.masked_softmax(x, np.array(MASK), temperature=0.5),
     lambda x: softmax(x / 0.5, MASK), [drawn(2, 3, 4)]),
    ("masked_softmax, axis 0", lambda x: npx.masked_softmax(x, np.array(MASK.T), axis=0),
     lambda x: softmax(x.T, MASK).T, [drawn(4, 3)]),
    ("masked_log_softmax", lambda x: np.where(np.array(MASK), npx.masked_log_softmax(
        x, np.array(MASK)), 0), lambda x: numpy.log(numpy.where(MASK, softmax(x, MASK), 1)),
     [drawn(3, 4)]),
    ("smooth_l1", lambda x: npx.smooth_l1(x, scalar=1.5), lambda x: numpy.where(
        numpy.abs(x) < 1 / 2.25, 0.5 * 2.25 * x * x, numpy.abs(x) - 0.5 / 2.25), [drawn(3, 7)]),
    ("batch_dot", npx.batch_dot, lambda a, b: a @ b, [drawn(2, 3, 4), drawn(2, 4, 5)]),
    ("batch_dot, turned", lambda a, b: npx.batch_dot(a, b, True, True),
     lambda a, b: a.transpose(0, 2, 1) @ b.transpose(0, 2, 1), [drawn(2, 4, 3), drawn(2, 5, 4)]),
    ("attention", npx.attention,
     lambda q, k, v: softmax(q @ k.swapaxes(-1, -2) / 2.0) @ v,
     [drawn(2, 2, 3, 4), drawn(2, 2, 5, 4, seed=1), drawn(2, 2, 5, 3)]),
    ("attention, causal", lambda q, k, v: npx.attention(q, k, v, scale=0.3, causal=True),
     lambda q, k, v: softmax(q @ k.swapaxes(-1, -2) * 0.3, numpy.tri(3, 5, dtype=bool)) @ v,
     [drawn(2, 3, 4), drawn(2, 5, 4, seed=1), drawn(2, 5, 3)]),
    ("attention, masked", lambda q, k, v: npx.attention(q, k, v, np.array(MASK), causal=True),
     lambda q, k, v: softmax(q @ k.swapaxes(-1, -2) / 2, MASK & numpy.tri(3, 4, dtype=bool)) @ v,
     [drawn(2, 3, 4), drawn(2, 4, 4, seed=1), drawn(2, 4, 3)]),
    *((f"{name}, axis {axis}", lambda x, n, name=name, axis=axis, more=more: getattr(npx, name)(
        x, n, True, axis=axis, **more), lambda x, n, slow=slow, axis=axis: slow(x, n, axis),
       [drawn(*((4, 3, 2) if axis == 0 else (3, 4, 2))), LENGTHS])
      for axis in (0, 1)
      for name, more, slow in (
          ("sequence_mask", {"value": -1.5}, lambda x, n, axis: masked(x, n, axis, -1.5)),
          ("sequence_last", {}, last), ("sequence_reverse", {}, turned))),
    ("sequence_reverse, all", npx.sequence_reverse, lambda x: x[::-1], [drawn(4, 3)]),
    ("sequence_last, all", npx.sequence_last, lambda x: x[-1], [drawn(4, 3)]),
    ("embedding", npx.embedding, lambda i, w: w[i], [numpy.array([[0, 2], [2, 1]]), drawn(3, 4)]),
    ("gather_nd", lambda x: npx.gather_nd(x, np.array(ROWS)), lambda x: x[ROWS[0], ROWS[1]],
     [drawn(2, 3, 4)]),
    ("index_add", lambda x, v: npx.index_add(x, np.array(ROWS), v),
     lambda x, v: placed(x, ROWS, v, True), [drawn(2, 3, 4), drawn(3, 4, seed=1)]),
    ("index_add, broadcast", lambda x, v: npx.index_add(x, np.array(ROWS), v),
     lambda x, v: placed(x, ROWS, v, True), [drawn(2, 3, 4), drawn(4, seed=1)]),
    ("index_update", lambda x, v: npx.index_update(x, np.array(ROWS), v),
     lambda x, v: placed(x, ROWS, v, False), [drawn(2, 3, 4), drawn(3, 4, seed=1)]),
    ("prelu", lambda x, a: npx.leaky_relu(x, a, act_type="prelu"),
     lambda x, a: numpy.where(x > 0, x, lined(a, x) * x), [drawn(2, 6, 3), VECTORS[0]]),
    ("elu", lambda x: npx.leaky_relu(x, act_type="elu", slope=0.7),
     lambda x: numpy.where(x > 0, x, 0.7 * numpy.expm1(x)), [drawn(3, 6)]),
    ("selu", npx.selu, lambda x: 1.0507009873554805 * numpy.where(
        x > 0, x, 1.6732632423543772 * numpy.expm1(x)), [drawn(3, 6)]),
    ("silu", lambda x: npx.silu(x, beta=1.5), lambda x: x / (1 + numpy.exp(-1.5 * x)),
     [drawn(3, 6)]),
    ("foreach", lambda x, s: npx.foreach(lambda a, b: (a * b, a + b), x, s)[0],
     lambda x, s: numpy.stack([x[i] * (s + x[:i].sum(0)) for i in range(4)]),
     [drawn(4, 3), drawn(3)]),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda case: case[0])
def test_against_numpy(case: Any) -> None:
    """Values and gradients, imperative and compiled."""
    _, call, slow, inputs = case
    check(call, slow, inputs)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_norms_of_halves_are_computed_in_float32(dtype: str) -> None:
    x = np.array(drawn(2, 300) * 300, dtype=dtype)
    found = npx.layer_norm(x, np.ones(300, dtype=dtype), np.zeros(300, dtype=dtype))
    assert found.dtype == dtype
    wide = x.astype("float32").asnumpy()
    expected = standardized(wide, -1, 1e-5)
    numpy.testing.assert_allclose(found.astype("float32").asnumpy(), expected, atol=2e-2)


def test_layer_norm_gives_its_statistics() -> None:
    x = drawn(3, 5)
    _, mean, deviation = npx.layer_norm(np.array(x), np.ones(5), np.zeros(5), output_mean_var=True)
    numpy.testing.assert_allclose(mean.asnumpy(), x.mean(-1, keepdims=True), atol=1e-6)
    numpy.testing.assert_allclose(
        deviation.asnumpy(), numpy.sqrt(x.var(-1, keepdims=True) + 1e-5), rtol=1e-5
    )


def test_shapes_like_others() -> None:
    x = np.zeros((2, 3))
    assert npx.arange_like(x, start=1.0, step=0.5).tolist() == [[1, 1.5, 2], [2.5, 3, 3.5]]
    assert npx.arange_like(x, axis=1, repeat=2).tolist() == [0, 0, 1]
    y = np.zeros((6, 5))
    assert npx.reshape_like(y, x, lhs_begin=0, lhs_end=1, rhs_begin=0, rhs_end=2).shape == (2, 3, 5)
    assert npx.batch_flatten(np.zeros((2, 3, 4))).shape == (2, 12)
    program = gemel.compile(lambda v: npx.arange_like(v, axis=0))
    assert [program(np.zeros((n, 2))).tolist() for n in (2, 3)] == [[0, 1], [0, 1, 2]]


def test_masks_are_left_out_on_request() -> None:
    x = np.array(drawn(3, 4))
    assert npx.sequence_mask(x).tolist() == x.tolist()
    assert npx.sequence_mask(x, np.array([1, 1, 1]), axis=1).tolist() == x.tolist()
    logits = npx.masked_log_softmax(x, np.array(MASK)).asnumpy()
    assert (logits[~MASK] == -numpy.inf).all()
    assert not numpy.isnan(logits).any()


def test_masked_elements_have_no_gradient() -> None:
    x, mask = np.array(drawn(3, 4)), np.array(MASK)
    x.attach_grad()
    found = []
    for keep in (lambda y: y, lambda y: np.where(mask, y, 0)):
        with autograd.record():
            y = keep(npx.masked_log_softmax(x, mask))
        y.backward()
        found.append(x.grad.asnumpy())
    numpy.testing.assert_allclose(found[0], found[1], atol=1e-6)
    assert (found[0][~MASK] == 0).all()
    assert (found[0][MASK] != 0).any()


# --- loops ----------------------------------------------------------------------------------


def test_foreach_takes_lists() -> None:
    first, second = np.array([[1.0], [2.0]]), np.array([[3.0], [4.0]])

    def body(data: Any, states: Any) -> Any:
        total = states[0] + data[0] * data[1]
        return [total, data[0]], [total, states[1] + 1]

    for run in (npx.foreach, gemel.compile(lambda *xs: npx.foreach(body, xs[:2], list(xs[2:])))):
        given = (first, second, np.zeros(1), np.zeros(()))
        if run is npx.foreach:
            outputs, states = run(body, [first, second], list(given[2:]))
        else:
            outputs, states = run(*given)
        assert [each.tolist() for each in outputs] == [[[3], [11]], [[1], [2]]]
        assert [each.tolist() for each in states] == [[11], 2]


def test_while_loop() -> None:
    x = np.array([1.0, 2.0])
    x.attach_grad()

    def step(value: Any, count: Any) -> Any:
        return value * 2, [value * value, count + 1]

    with autograd.record():
        outputs, (last_value, count) = npx.while_loop(
            lambda value, count: count < 2, step, [x, np.array(0)], max_iterations=4
        )
        last_value.sum().backward()
    assert outputs.tolist() == [[2, 4], [2, 8], [0, 0], [0, 0]]
    assert int(count) == 2
    assert x.grad.tolist() == [4, 32]
    none, variables = npx.while_loop(lambda v: v > 5, step, np.array(1), 3)
    assert none == []
    assert int(variables) == 1


# --- bad input ------------------------------------------------------------------------------

WRONG: list[tuple[Callable[[], Any], type[Exception], str]] = [
    (lambda: npx.layer_norm(np.ones((2, 3)), np.ones(2), np.ones(3)), ShapeError, "gamma"),
    (lambda: npx.layer_norm(np.ones((2, 3), dtype="int32"), np.ones(3), np.ones(3)), GemelError,
     "must be floating"),
    (lambda: npx.group_norm(np.ones((2, 3)), np.ones(3), np.ones(3), num_groups=2), ShapeError,
     "divide into 2 groups"),
    (lambda: npx.instance_norm(np.ones((2, 3)), np.ones(3), np.ones(3)), ShapeError, "3 axes"),
    (lambda: npx.l2_normalization(np.ones((2, 3)), mode="channels"), UnknownNameError, "channel"),
    (lambda: npx.masked_softmax(np.ones((2, 3)), np.ones((2, 2))), ShapeError, "masked_softmax"),
    (lambda: npx.masked_softmax(np.ones(3), np.ones((2, 3))), ShapeError, "does not broadcast"),
    (lambda: npx.batch_dot(np.ones((2, 3)), np.ones((3, 2))), ShapeError, "3 axes"),
    (lambda: npx.sequence_mask(np.ones((2, 3)), np.ones(2), True), ShapeError, "sequence_mask"),
    (lambda: npx.sequence_last(np.ones((2, 3)), np.array([1, 3, 1]), True).tolist(), IndexError,
     "out of bounds"),
    (lambda: npx.embedding(np.array([3]), np.ones((3, 2))).tolist(), IndexError, "out of bounds"),
    (lambda: npx.embedding(np.array([3]), np.ones((3, 2)), 4, 2), ShapeError, "embedding"),
    (lambda: npx.gather_nd(np.ones((2, 3)), np.array([[0], [3]])).tolist(), IndexError, "bounds"),
    (lambda: npx.gather_nd(np.ones(3), np.array([[0], [3]])), ShapeError, "one row for each"),
    (lambda: npx.index_add(np.ones(3), np.array([[True]]), 1.0), GemelError, "whole numbers"),
    (lambda: npx.index_update(np.ones(3), np.array([[0, 1]]), np.ones(3)), ShapeError, "assign"),
    (lambda: npx.foreach(lambda a, s: (a, s), [np.ones(2), np.ones(3)], []), ShapeError, "foreach"),
    (lambda: npx.leaky_relu(np.ones(2), act_type="relu7"), UnknownNameError, "prelu"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("call", "error", "match"), WRONG, ids=lambda v: v if isinstance(v, str) else ""
)
def test_what_is_refused(call: Any, error: Any, match: str) -> None:
    with pytest.raises(error, match=match):
        call()


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_l2_normalization_of_two_bytes_neither_overflows_nor_divides_by_zero(dtype: str) -> None:
    x = np.array([[300.0, 400.0], [0.0, 0.0]], dtype=dtype)
    found = npx.l2_normalization(x)
    assert found.dtype == np.dtype(dtype)
    wanted = [[0.6, 0.8], [0, 0]]
    numpy.testing.assert_allclose(found.astype("float32").asnumpy(), wanted, rtol=2.0**-8)
