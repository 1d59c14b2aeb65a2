"""Which results a NaN or an infinity reaches: the same ones in rounds and at once."""

from __future__ import annotations

from typing import Any

import numpy
import pytest

import gemel
from gemel import autograd, np, npx
from gemel.errors import DTypeError, ShapeError
from gemel.ops.attention_blocks import blocked_attention

SIZES = [(40, 40), (40, 64), (64, 40), (37, 37)]


def at_once(query: Any, key: Any, value: Any, mask: Any, causal: bool) -> Any:
    """Attention of so few scores is not computed in rounds."""
    return npx.attention(query, key, value, mask, scale=1.0, causal=causal)


def in_rounds(query: Any, key: Any, value: Any, mask: Any, causal: bool) -> Any:
    given = (query, key, value) if mask is None else (query, key, value, mask)
    return blocked_attention(*given, causal=causal, heads=1, rows=4)[0]


def nans(way: Any, arrays: list[Any], mask: Any, causal: bool) -> list[Any]:
    """Where the result and the gradients of query, key and value are NaN."""
    query, key, value, g = map(np.array, arrays)
    for x in (query, key, value):
        x.attach_grad()
    with autograd.record():
        found = way(query, key, value, mask, causal)
    found.backward(g)
    return [numpy.isnan(x.asnumpy()) for x in (found, query.grad, key.grad, value.grad)]


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("is_masked", [False, True])
@pytest.mark.parametrize(("n", "m"), SIZES)
def test_both_ways_have_the_same_nans(n: int, m: int, is_masked: bool, causal: bool) -> None:
    generator = numpy.random.default_rng(n + m)
    mask = np.array(generator.random((n, m)) > 0.3) if is_masked else None
    for place in range(4):
        arrays = [generator.normal(size=(2, rows, 4)).astype("float32") for rows in (n, m, m, n)]
        arrays[place][0, 25, 1] = numpy.nan
        wanted = nans(at_once, arrays, mask, causal)
        assert any(x.any() for x in wanted)
        for found, expected in zip(nans(in_rounds, arrays, mask, causal), wanted, strict=True):
            assert (found == expected).all(), place


@pytest.mark.parametrize("bad", [numpy.nan, numpy.inf])
def test_an_unseen_value_is_multiplied_by_zero(bad: float) -> None:
    """As in a matrix product, 0 * NaN is NaN; only the value's own column is affected."""
    query, key, value = (np.ones((1, 40, 3)) for _ in range(3))
    value[0, 39, 1] = bad
    for way in (at_once, in_rounds):
        for function in (way, gemel.compile(lambda q, k, v, way=way: way(q, k, v, None, True))):
            given = (query, key, value) if function is not way else (query, key, value, None, True)
            found = function(*given).asnumpy()
            assert numpy.isnan(found[0, :39, 1]).all()
            assert numpy.allclose(found[0, :, [0, 2]], 1, atol=1e-5)


def test_hidden_values_are_set_to_zero_first() -> None:
    """The remedy that the documentation gives."""
    query, key, value = (np.ones((1, 40, 3)) for _ in range(3))
    value[0, 30:] = numpy.nan
    there = np.arange(40) < 30
    clean = np.where(there.reshape(1, 40, 1), value, 0)
    for way in (at_once, in_rounds):
        found = way(query, key, clean, there.reshape(1, 40), True)
        assert numpy.allclose(found.asnumpy(), 1, atol=1e-5)


def biased(q: Any, k: Any, v: Any, mask: Any, bias: Any, causal: bool) -> Any:
    """Attention with what is added to the scores, in NumPy."""
    scores = q @ k.swapaxes(-1, -2) / numpy.sqrt(q.shape[-1]) + bias
    seen = numpy.ones(scores.shape, bool) if mask is None else mask & numpy.ones(scores.shape, bool)
    seen = numpy.tril(seen) if causal else seen
    weights = numpy.where(seen, numpy.exp(scores), 0)
    return weights / weights.sum(-1, keepdims=True) @ v


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("is_masked", [False, True])
@pytest.mark.parametrize("shape", [(300, 300), (3, 1, 300), (1, 300, 1)])
def test_a_bias_is_added_to_the_scores(
    shape: tuple[int, ...], is_masked: bool, causal: bool
) -> None:
    generator = numpy.random.default_rng(7)
    arrays = [generator.normal(size=(2, 3, 300, 4)) for _ in range(3)]
    bias = generator.normal(size=shape)
    mask = generator.random((300, 300)) > 0.3 if is_masked else None
    if mask is not None:
        mask[:, 0] = True
    given = [np.array(x, dtype="float64") for x in (*arrays, bias)]
    for x in given:
        x.attach_grad()

    def function(q: Any, k: Any, v: Any, b: Any) -> Any:
        return npx.attention(q, k, v, None if mask is None else np.array(mask), None, causal, b)

    wanted = biased(*arrays, mask, bias, causal)
    grads = []
    for way in (function, gemel.compile(function)):
        with autograd.record():
            found = way(*given)
        found.backward(np.ones_like(found))
        numpy.testing.assert_allclose(found.asnumpy(), wanted, rtol=1e-9, atol=1e-12)
        grads.append([x.grad.asnumpy() for x in given])
    step = generator.normal(size=shape)
    bumped = [biased(*arrays, mask, bias + e * step, causal).sum() for e in (1e-5, -1e-5)]
    assert numpy.isclose((grads[0][3] * step).sum(), (bumped[0] - bumped[1]) / 2e-5, rtol=1e-5)
    for one, other in zip(*grads, strict=True):
        numpy.testing.assert_allclose(one, other, rtol=1e-7, atol=1e-12)


def test_masks_and_biases_that_are_refused() -> None:
    x = np.ones((2, 5, 4))
    with pytest.raises(DTypeError, match=r"mask float32\[5, 5\].*astype\(bool\).*bias="):
        npx.attention(x, x, x, np.zeros((5, 5)))
    with pytest.raises(ShapeError, match=r"bias .* does not broadcast to the scores"):
        npx.attention(x, x, x, bias=np.zeros((3, 2, 5, 5)))
