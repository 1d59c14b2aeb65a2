"""Attention in blocks, against NumPy in float64: values, first and second gradients, sizes."""

from __future__ import annotations

import re
from pathlib import Path
from threading import Thread
from typing import Any

import numpy
import pytest
from slow import check, drawn

import gemel
from gemel import autograd, gluon, np, npx
from gemel.errors import DTypeError, ShapeError
from gemel.ops.attention_blocks import blocked_attention
from gemel.ops.attention_sizes import Cut, cut, pays

Array = numpy.ndarray[Any, Any]


def seen(scores: Array, mask: Any, causal: bool) -> Array:
    """Which scores count: those that neither the mask nor `causal` hides."""
    found = numpy.broadcast_to(True if mask is None else mask, scores.shape)
    return found & numpy.tri(*scores.shape[-2:], dtype=bool) if causal else found


def slowly(q: Array, k: Array, v: Array, mask: Any = None, causal: bool = False) -> Array:
    """softmax(q @ k.T) @ v; a row that sees nothing gives 0."""
    scores = q @ k.swapaxes(-1, -2)
    counts = seen(scores, mask, causal)
    top = numpy.where(counts, scores, -1e9).max(-1, keepdims=True)
    weights = numpy.where(counts, numpy.exp(numpy.where(counts, scores - top, 0)), 0)
    total = weights.sum(-1, keepdims=True)
    return numpy.asarray(weights / numpy.where(total > 0, total, 1) @ v)


def of(lead: Any, n: int, m: int, d: int = 3, v: int = 2, keys: Any = None) -> list[Array]:
    """Query, key and value; keys and values may have other leading axes."""
    keys = lead if keys is None else keys
    return [drawn(*lead, n, d), drawn(*keys, m, d, seed=1), drawn(*keys, m, v, seed=2)]


def masked(*shape: int, rows: tuple[int, ...] = (1,)) -> Array:
    """A mask with rows that see nothing at all."""
    found = numpy.random.default_rng(3).random(shape) < 0.6
    if len(shape) > 1 and shape[-2] > 1:
        found[..., list(rows), :] = False
    return found


#: Name, inputs, mask, parameters.
CASES: list[tuple[str, list[Array], Any, dict[str, Any]]] = [
    ("rows that divide", of((2,), 6, 5), None, {"rows": 3}),
    ("rows left over", of((2,), 7, 5), None, {"rows": 3}),
    ("one row left over", of((), 7, 5), None, {"rows": 2}),
    ("rows of one", of((1,), 3, 4), None, {"rows": 1}),
    ("too few queries for two rounds", of((2,), 5, 4), None, {"rows": 3}),
    ("heads one by one", of((3,), 4, 5), None, {"heads": 1}),
    ("heads two by two", of((4,), 4, 5), None, {"heads": 2}),
    ("heads that do not divide", of((3,), 4, 5), None, {"heads": 2}),
    ("two leading axes", of((2, 3), 6, 5), None, {"rows": 2}),
    ("three leading axes", of((2, 1, 3), 5, 4), None, {"rows": 2}),
    ("three leading axes, heads", of((2, 2, 4), 3, 4), None, {"heads": 2}),
    ("one key for all heads", of((2, 3), 5, 4, keys=(2, 1)), None, {"rows": 2}),
    ("one key for all heads, heads", of((2, 4), 3, 4, keys=(2, 1)), None, {"heads": 2}),
    ("keys without leading axes", of((3,), 5, 4, keys=()), None, {"rows": 2}),
    ("one query for several keys", of((1,), 5, 4, keys=(3,)), None, {"rows": 2}),
    ("causal", of((2,), 8, 8), None, {"rows": 2, "causal": True}),
    ("causal, rows left over", of((2,), 11, 11), None, {"rows": 2, "causal": True}),
    ("causal, in few rounds", of((2,), 7, 7), None, {"rows": 3, "causal": True}),
    ("causal, more keys", of((2,), 8, 13), None, {"rows": 2, "causal": True}),
    ("causal, many more keys", of((1,), 5, 24), None, {"rows": 2, "causal": True}),
    ("causal, more queries", of((2,), 13, 5), None, {"rows": 2, "causal": True}),
    ("causal, heads", of((2,), 4, 5), None, {"heads": 1, "causal": True}),
    ("mask (n, m)", of((2, 2), 6, 5), masked(6, 5), {"rows": 2}),
    ("mask (m,)", of((2, 2), 6, 5), masked(5), {"rows": 2}),
    ("mask (n, 1)", of((2,), 6, 5), masked(6, 1), {"rows": 2}),
    ("mask (1, 1, m)", of((2, 2), 7, 5), masked(1, 1, 5), {"rows": 2}),
    ("mask (b, 1, 1, m)", of((2, 2), 7, 5), masked(2, 1, 1, 5), {"rows": 3}),
    ("mask (b, 1, n, m)", of((2, 2), 7, 5), masked(2, 1, 7, 5), {"rows": 3}),
    ("mask (h, n, m)", of((2, 2), 7, 5), masked(2, 7, 5), {"rows": 3}),
    ("mask (b, h, n, m)", of((2, 2), 7, 5), masked(2, 2, 7, 5), {"rows": 3}),
    ("mask of one", of((2,), 7, 5), numpy.array(True), {"rows": 3}),
    ("mask that hides all", of((2,), 5, 4), numpy.zeros((5, 4), bool), {"rows": 2}),
    ("mask (b, 1, 1, m), heads", of((2, 4), 3, 5), masked(2, 1, 1, 5), {"heads": 2}),
    ("mask (h, n, m), heads", of((2, 4), 3, 5), masked(4, 3, 5), {"heads": 2}),
    ("mask and causal", of((2,), 9, 9), masked(9, 9), {"rows": 2, "causal": True}),
    ("mask of keys and causal", of((2,), 9, 10), masked(10), {"rows": 2, "causal": True}),
]


@pytest.mark.parametrize(("name", "inputs", "mask", "parameters"), CASES, ids=[c[0] for c in CASES])
def test_against_numpy(
    name: str, inputs: list[Array], mask: Any, parameters: dict[str, Any]
) -> None:
    """Values, and gradients by central differences, imperative and compiled."""
    given = () if mask is None else (np.array(mask),)
    check(
        lambda q, k, v: blocked_attention(q, k, v, *given, **parameters)[0],
        lambda q, k, v: slowly(q, k, v, mask, parameters.get("causal", False)),
        inputs,
    )


@pytest.mark.parametrize("name", ["rows left over", "heads one by one", "mask and causal"])
def test_gradients_of_gradients(name: str) -> None:
    """They equal those of attention written out directly."""
    _, inputs, mask, parameters = next(case for case in CASES if case[0] == name)
    given = () if mask is None else (np.array(mask),)
    causal = parameters.get("causal", False)

    def second(function: Any) -> list[Array]:
        arrays = [np.array(x, dtype="float64") for x in inputs]
        for x in arrays:
            x.attach_grad()
        with autograd.record():
            y = function(*arrays)
            slopes = autograd.grad((y * y).sum(), arrays, create_graph=True)
            total = sum((g * g * (i + 1)).sum() for i, g in enumerate(slopes))
        total.backward()
        return [x.grad.asnumpy() for x in arrays]

    def whole(*x: Any) -> Any:
        return npx.attention(*x, *given, scale=1.0, causal=causal)

    def blocked(*x: Any) -> Any:
        return blocked_attention(*x, *given, **parameters)[0]

    expected = second(whole)
    for function in (blocked, gemel.compile(blocked)):
        for found, wanted in zip(second(function), expected, strict=True):
            numpy.testing.assert_allclose(found, wanted, rtol=1e-9, atol=1e-10)


def test_the_sums_have_a_gradient() -> None:
    """The second result is the logarithm of sums; its gradient by the scores is the weights."""
    q, k, v = (np.array(x, dtype="float64") for x in of((2,), 5, 4))
    q.attach_grad()
    with autograd.record():
        found, sums = blocked_attention(q, k, v, rows=2)
        (sums.sum() + found.sum()).backward()
    scores = q.asnumpy() @ k.asnumpy().swapaxes(-1, -2)
    weights = numpy.exp(scores - numpy.log(numpy.exp(scores).sum(-1, keepdims=True)))
    numpy.testing.assert_allclose(
        sums.asnumpy(), numpy.log(numpy.exp(scores).sum(-1, keepdims=True)), rtol=1e-12
    )
    by_value = weights * (v.asnumpy().sum(-1)[:, None] - (weights @ v.asnumpy()).sum(-1)[..., None])
    numpy.testing.assert_allclose(q.grad.asnumpy(), (weights + by_value) @ k.asnumpy(), rtol=1e-9)


@pytest.mark.parametrize(
    ("dtype", "near"), [("float16", 2e-3), ("bfloat16", 2e-2), ("float32", 1e-5)]
)
def test_dtypes(dtype: str, near: float) -> None:
    """Results have the dtype of the inputs; in between, halves are computed in float32."""
    rounded = [np.array(x, dtype=dtype) for x in of((2,), 70, 40)]
    wide = [x.astype("float64") for x in rounded]
    for x in (*rounded, *wide):
        x.attach_grad()
    for arrays in (rounded, wide):
        with autograd.record():
            y, sums = blocked_attention(*arrays, rows=16, causal=True)
        y.backward(np.ones(y.shape, dtype=y.dtype))
        assert sums.dtype.name == ("float64" if arrays is wide else "float32")
    assert {x.dtype.name for x in (*rounded, *(x.grad for x in rounded))} == {dtype}
    for a, b in zip(rounded, wide, strict=True):
        expected = b.grad.asnumpy()
        found = a.grad.astype("float64").asnumpy()
        numpy.testing.assert_allclose(found, expected, rtol=near, atol=near * abs(expected).max())


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize(("dtype", "rows"), [("float16", 2049), ("bfloat16", 257)])
def test_gradients_of_shared_values_are_rounded_once(dtype: str, rows: int, compiled: bool) -> None:
    """The gradient from one head is no number of the dtype; the sum of both is."""
    q, k = np.zeros((2, rows, 3), dtype=dtype), np.zeros((4, 3), dtype=dtype)
    v, head = np.ones((4, 2), dtype=dtype), np.ones((2, rows, 2), dtype=dtype)
    head[1] = -1
    head[1, -1] = 0

    def gradient(q: Any, k: Any, v: Any, head: Any) -> Any:
        with autograd.record():
            y, _ = blocked_attention(q, k, v, rows=64)
        return autograd.grad(y, [v], head)[0]

    v.attach_grad()
    found = (gemel.compile(gradient) if compiled else gradient)(q, k, v, head)
    assert found.dtype == dtype
    assert (found.astype("float32").asnumpy() == 0.25).all()


@pytest.mark.parametrize("lead", [(0,), (2, 0), (2,)])
def test_empty_axes(lead: tuple[int, ...]) -> None:
    """Without heads or queries the results are empty; without keys there are no weights."""
    n = 0 if 0 not in lead else 3
    for function in (blocked_attention, gemel.compile(blocked_attention)):
        found, sums = function(*(np.zeros((*lead, *rest)) for rest in ((n, 3), (4, 3), (4, 2))))
        assert (found.shape, sums.shape) == ((*lead, n, 2), (*lead, n, 1))
    with pytest.raises(ShapeError, match="no keys"):
        blocked_attention(np.zeros((2, 3, 3)), np.zeros((2, 0, 3)), np.zeros((2, 0, 2)))


def test_what_is_refused() -> None:
    q, k, v = (np.array(x) for x in of((2,), 3, 4))
    with pytest.raises(DTypeError, match="same floating dtype"):
        blocked_attention(q, k.astype("float16"), v)
    with pytest.raises(ShapeError, match=r"mask bool\[5\] does not broadcast|bool\[5\]"):
        blocked_attention(q, k, v, np.array(masked(5)))
    with pytest.raises(ShapeError, match="matmul"):
        blocked_attention(q, k[:, :, :2], v)


# --- sizes ------------------------------------------------------------------------------------


def test_when_it_pays() -> None:
    """It pays from 2**20 scores on, unless there are few keys or much to recompute."""
    worth = [(8, 1024, 1024, 128), (1, 1024, 1024, 128), (64, 128, 128, 128), (2, 2048, 2048, 256)]
    others = [(32, 128, 128, 128), (1, 16384, 64, 128), (4, 1024, 1024, 256), (4, 1024, 1024, 512)]
    assert all(pays(*sizes) for sizes in worth)
    assert not any(pays(*sizes) for sizes in others)
    assert pays(4, 4096, 4096, 512)


def test_how_attention_is_cut_into_blocks() -> None:
    assert cut(8, 1024, 1024) == Cut(1, 128)
    assert cut(8, 1024, 256) == Cut(1, 512)
    assert cut(8, 4096, 16384) == Cut(1, 128)
    assert cut(8, 100, 4096) == Cut(1, 0)
    assert cut(64, 128, 128) == Cut(8, 0)
    assert cut(7, 64, 128) == Cut(7, 0)
    assert cut(66, 64, 128) == Cut(11, 0)
    assert cut(8, 4096, 4096, most=1024) == Cut(1, 128)


def test_causal_attention_has_rounds_for_each_part() -> None:
    """Rounds are short where they skip later keys, and at least one for each of the parts."""
    assert cut(8, 255, 256, causal=True) == cut(8, 255, 256)
    for queries in (256, 300, 384, 511, 512, 1000, 4096):
        rows = cut(8, queries, queries, causal=True).queries
        assert 64 <= rows <= 128 and queries // rows >= 4
    assert cut(8, 1024, 1024, causal=True) == Cut(1, 128)


LONG = [drawn(4, 300, 3), drawn(4, 1100, 3, seed=1), drawn(4, 1100, 2, seed=2)]


@pytest.mark.parametrize("causal", [False, True])
def test_sizes_choose(causal: bool) -> None:
    """`npx.attention` of many scores; for the gradient the keys are divided into ranges."""
    check(
        lambda q, k, v: npx.attention(q, k, v, scale=1.0, causal=causal),
        lambda q, k, v: slowly(q, k, v, None, causal),
        LONG,
    )


def attend(q: Any, k: Any, v: Any) -> Any:
    return npx.attention(q, k, v)


def test_scores_are_not_kept() -> None:
    """The memory of a plan grows with the queries and the keys, not with their product."""
    compiled = gemel.compile(attend)
    sizes = []
    for n in (1024, 4096):
        q = np.array(numpy.zeros((4, n, 8), "float32"))
        assert "blocked_attention" in str(compiled.graph(q, q, q))
        (size,) = re.findall(r"([0-9]+) bytes of workspace", compiled.plan_summary(q, q, q))
        sizes.append(int(size))
    assert sizes[0] < 4 * 1024 * 1024  # a quarter of the scores
    assert sizes[1] < 5 * sizes[0]
    few = np.zeros((1, 64, 8))
    assert "blocked" not in str(compiled.graph(few, few, few))


class Layer(gluon.HybridBlock):
    """Causal self-attention."""

    def forward(self, q: Any, k: Any, v: Any, mask: Any) -> Any:
        """q, k and v are (heads, time, width); the mask is (1, keys)."""
        return npx.attention(q, k, v, mask, causal=True)


def test_lengths_are_free() -> None:
    """One network for lengths below and above the bound, multiples of a block or not."""
    net = Layer()
    net.hybridize()
    for n, m in ((600, 600), (20, 30), (601, 601), (512, 520), (600, 600), (640, 1030)):
        q, k, v = (x.astype("float32") for x in of((4,), n, m))
        mask = masked(1, m)
        arrays = [np.array(x) for x in (q, k, v)]
        for x in arrays:
            x.attach_grad()
        with autograd.record():
            y = net(*arrays, np.array(mask))
        y.backward()
        expected = slowly(q.astype("float64") / numpy.sqrt(3), k, v, mask, True)
        numpy.testing.assert_allclose(y.asnumpy(), expected, rtol=2e-4, atol=2e-5)
        plain = [np.array(x) for x in (q, k, v)]
        for x in plain:
            x.attach_grad()
        with autograd.record():
            z = npx.attention(*plain, np.array(mask), causal=True)
        z.backward()
        for a, b in zip(arrays, plain, strict=True):
            numpy.testing.assert_allclose(a.grad, b.grad, rtol=1e-3, atol=1e-4)


def test_layouts_of_inputs() -> None:
    """Heads that lie side by side in memory are read in place."""
    x = drawn(2, 11, 3, 4)
    turned = np.array(x).transpose(0, 2, 1, 3)
    found = blocked_attention(turned, turned, turned, rows=3)[0]
    lies = x.transpose(0, 2, 1, 3)
    numpy.testing.assert_allclose(found.asnumpy(), slowly(lies, lies, lies), rtol=1e-5, atol=1e-6)


def test_saved_and_exported(tmp_path: Path) -> None:
    """A saved network, also called with other lengths, and one in MXNet's format."""
    net = Layer()
    net.hybridize()
    arrays = [np.array(x) for x in of((4,), 520, 530)]
    mask = np.array(masked(1, 530))
    expected = net(*arrays, mask)
    gemel.save(net, tmp_path / "net.gemel")
    again = gemel.load(tmp_path / "net.gemel")
    numpy.testing.assert_allclose(again(*arrays, mask), expected, rtol=1e-5, atol=1e-6)
    longer = [np.array(x) for x in of((4,), 540, 530)]
    numpy.testing.assert_allclose(again(*longer, mask), net(*longer, mask), rtol=1e-5, atol=1e-6)
    net.export(str(tmp_path / "net"))
    symbol = gluon.SymbolBlock.imports(
        str(tmp_path / "net-symbol.json"), ["data0", "data1", "data2", "data3"]
    )
    numpy.testing.assert_allclose(symbol(*arrays, mask), expected, rtol=1e-5, atol=1e-6)


def test_in_another_thread() -> None:
    arrays = [np.array(x) for x in LONG]
    expected = npx.attention(*arrays).asnumpy()
    found: list[Array] = []
    threads = [Thread(target=lambda: found.append(npx.attention(*arrays).asnumpy())) for _ in "12"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 2
    assert all((each == expected).all() for each in found)


@pytest.mark.parametrize("mask", [None, (2, 5, 0), (1, 1, 1), (5, 1)])
@pytest.mark.parametrize("causal", [False, True])
def test_attention_without_keys_is_zero(mask: Any, causal: bool) -> None:
    """The result is 0, as for a query whose mask hides every key; so are the gradients."""
    q, k, v = (np.ones(shape) for shape in ((2, 5, 3), (2, 0, 3), (2, 0, 4)))
    given = None if mask is None else np.ones(mask, dtype="bool")

    def function(q: Any, k: Any, v: Any) -> Any:
        return npx.attention(q, k, v, given, causal=causal)

    for each in (function, gemel.compile(function)):
        q.attach_grad()
        with autograd.record():
            found = each(q, k, v)
        found.backward()
        numpy.testing.assert_array_equal(found.asnumpy(), numpy.zeros((2, 5, 4)))
        numpy.testing.assert_array_equal(q.grad.asnumpy(), numpy.zeros((2, 5, 3)))


def test_attention_of_a_free_number_of_keys_that_becomes_none() -> None:
    compiled = gemel.compile(npx.attention)
    for keys in (4, 6, 0, 5):
        q, k, v = np.ones((2, 5, 3)), np.ones((2, keys, 3)), np.ones((2, keys, 4))
        wanted = numpy.full((2, 5, 4), float(keys > 0))
        numpy.testing.assert_allclose(compiled(q, k, v).asnumpy(), wanted, rtol=1e-6)
    with pytest.raises(ShapeError):
        npx.attention(np.ones((2, 5, 3)), np.ones((2, 0, 3)), np.ones((2, 1, 4)))
