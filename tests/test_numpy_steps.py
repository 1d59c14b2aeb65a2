"""Operations without kernels: NumPy computes them, imperatively, in traces and under the tape."""

from __future__ import annotations

from typing import Any

import numpy
import pytest

import gemel
from gemel import autograd, np, npx
from gemel.errors import CompileError, TraceError
from gemel.gluon import nn
from gemel.ir.declare import composite, op
from gemel.ir.methods import REGISTRY
from gemel.ir.op import Op
from gemel.spec import Spec


@pytest.fixture(autouse=True, scope="module")
def _operations() -> Any:
    """This module's operations: a running sum, a determinant, both together, and a failure."""
    before = set(REGISTRY)

    @op()
    def running_sum(x: Any, *, axis: int = 0) -> Any:
        return numpy.cumsum(x, axis)

    @running_sum.spec
    def _(x: Spec, *, axis: int) -> Spec:
        return Spec(x.shape, x.dtype)

    @running_sum.gradient
    def _(g: Any, y: Any, x: Any, *, axis: int) -> Any:
        total = g.sum(axis=axis, keepdims=True)
        return (total - running_sum(g, axis=axis) + g,)

    @op(outputs=2)
    def sign_and_size(x: Any) -> Any:
        return numpy.sign(x), numpy.abs(x)

    @sign_and_size.spec
    def _(x: Spec) -> tuple[Spec, Spec]:
        return Spec(x.shape, x.dtype), Spec(x.shape, x.dtype)

    @op()
    def scaled_by_numpy(x: Any, factor: Any) -> Any:
        if (numpy.asarray(x) < -100).any():
            raise ArithmeticError("far too small")
        return x * factor

    @scaled_by_numpy.spec
    def _(x: Spec, factor: Spec) -> Spec:
        return Spec(x.shape, x.dtype)

    @composite(kernel=False)
    def running_mean(x: Any) -> Any:
        return running_sum(x) / x.shape[0]

    yield
    for name in set(REGISTRY) - before:
        del REGISTRY[name]


def ops(name: str) -> Any:
    return REGISTRY[name]


PROGRAMS: dict[str, Any] = {
    "alone": lambda x: ops("running_sum")(x),
    "between kernels": lambda x: npx.softmax(ops("running_sum")(x * 2 + 1)) - x,
    "twice in a row": lambda x: ops("running_sum")(ops("running_sum")(x), axis=1),
    "two apart": lambda x: ops("running_sum")(np.exp(x)) + np.exp(ops("running_sum")(x, axis=1)),
    "on a result of another": lambda x: ops("running_sum")(np.tanh(ops("running_sum")(x)) * x) * x,
    "two results": lambda x: sum(ops("sign_and_size")(x - 0.5)),
    "one of two results": lambda x: ops("sign_and_size")(x - 0.5)[1] * 2,
    "several outputs": lambda x: (ops("running_sum")(x), x + 1, x, ops("running_sum")(x) * 2, 3.0),
    "a number beside": lambda x: ops("scaled_by_numpy")(x, 2.5) + ops("scaled_by_numpy")(x, 3),
    "in a composite": lambda x: ops("running_mean")(x) * 2,
    "a view of it": lambda x: ops("running_sum")(x).T[1:] * 2,
    "given a view": lambda x: ops("running_sum")(x.T[:, ::2]),
    "closing over an array": lambda x: ops("running_sum")(x + np.ones((3,))) * np.ones((3,)),
    "a constant": lambda x: ops("running_sum")(np.ones((2, 3))) + x.sum(),
    "sorted": lambda x: (
        x.reshape(-1)[np.argsort(x.reshape(-1) * -1)] if hasattr(np, "argsort") else x
    ),
}


def listed(found: Any) -> list[Any]:
    return [y.asnumpy() for y in (found if isinstance(found, tuple) else (found,))]


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_imperatively_and_compiled_alike(name: str, dtype: str) -> None:
    function = gemel.compile(PROGRAMS[name])
    for rows in (2, 4, 2, 5):
        x = np.array(numpy.linspace(-1, 1, rows * 3).reshape(rows, 3), dtype=dtype)
        if name == "several outputs":
            wanted = listed(tuple(np.array(y) for y in PROGRAMS[name](x)))
        else:
            wanted = listed(PROGRAMS[name](x))
        for got, expected in zip(listed(function(x)), wanted, strict=True):
            numpy.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-6)
            assert got.shape == expected.shape


DIFFERENTIABLE = (
    "alone",
    "between kernels",
    "twice in a row",
    "two apart",
    "on a result of another",
    "in a composite",
    "a view of it",
    "given a view",
)


@pytest.mark.parametrize("name", DIFFERENTIABLE)
@pytest.mark.parametrize("compiled", [False, True])
def test_gradients(name: str, compiled: bool) -> None:
    function = gemel.compile(PROGRAMS[name]) if compiled else PROGRAMS[name]
    x = np.array(numpy.linspace(-0.7, 0.9, 6).reshape(2, 3), dtype="float64")
    weights = numpy.cos(numpy.arange(PROGRAMS[name](x).size)).reshape(PROGRAMS[name](x).shape)
    x.attach_grad()
    with autograd.record():
        y = (function(x) * np.array(weights)).sum()
    y.backward()
    values = x.asnumpy()
    for place in numpy.ndindex(values.shape):
        step = numpy.zeros_like(values)
        step[place] = 1e-6
        sides = [
            (PROGRAMS[name](np.array(values + s)).asnumpy() * weights).sum() for s in (step, -step)
        ]
        numpy.testing.assert_allclose(
            x.grad.asnumpy()[place], (sides[0] - sides[1]) / 2e-6, rtol=1e-5
        )


def test_issuing_does_not_wait() -> None:
    import threading

    gate = threading.Event()

    @op()
    def gated(x: Any) -> Any:
        assert gate.wait(20)
        return x + 1

    @gated.spec
    def _(x: Spec) -> Spec:
        return Spec(x.shape, x.dtype)

    function = gemel.compile(lambda x: gated(np.dot(x, x)) * 2)
    x = np.ones((1500, 1500))  # its product is not ready at once
    try:
        results = [function(x), gated(np.dot(x, x))]
    finally:
        gate.set()
        del REGISTRY["gated"]
    assert results[0][0, 0].item() == 3002 and results[1][0, 0].item() == 1501


def test_a_failure_reaches_what_depends_on_it() -> None:
    function = gemel.compile(lambda x: (ops("scaled_by_numpy")(x, 2) + 1, x * 3))
    bad, good = function(np.array([-1000.0, 1.0]))
    assert good.tolist() == [-3000.0, 3.0]
    with pytest.raises(ArithmeticError, match="far too small"):
        bad.wait_to_read()
    with pytest.raises(ArithmeticError, match="far too small"):
        ops("scaled_by_numpy")(np.array([-1000.0]), 2).wait_to_read()


def test_statistics_are_written_after_all_has_been_read() -> None:
    class Net(nn.HybridBlock):
        def __init__(self) -> None:
            super().__init__()
            self.norm = nn.BatchNorm(in_channels=3)

        def forward(self, x: Any) -> Any:
            return ops("running_sum")(self.norm(ops("running_sum")(x)))

    x = np.array(numpy.linspace(-1, 1, 12).reshape(4, 3), dtype="float32")
    found = []
    for hybrid in (False, True):
        net = Net()
        net.initialize()
        if hybrid:
            net.hybridize()
        with autograd.record():
            y = net(x)
            loss = (y * y).sum()
        loss.backward()
        parameters = net.collect_params().values()
        found.append([y, *(p.data() for p in parameters)])
        found[-1] += [p.grad() for p in parameters if p.grad_req != "null"]
    for a, b in zip(*found, strict=True):
        numpy.testing.assert_allclose(a.asnumpy(), b.asnumpy(), rtol=1e-4, atol=1e-5)


def test_such_a_program_has_no_image() -> None:
    function = gemel.compile(PROGRAMS["alone"])
    with pytest.raises(CompileError, match="running_sum is computed by NumPy"):
        function.image(np.ones((2, 2)))


def test_a_composite_says_that_numpy_does_part_of_it() -> None:
    x = np.arange(6).reshape(3, 2) * 1.5
    assert ops("running_mean")(x).tolist() == (numpy.cumsum(x.asnumpy(), 0) / 3).tolist()

    @composite()
    def running_half(x: Any) -> Any:
        return ops("running_sum")(x) / 2

    for _ in range(2):
        with pytest.raises(CompileError, match=r"running_half: .*by NumPy.*kernel=False"):
            running_half(x)
    assert gemel.compile(running_half)(x).tolist() == (numpy.cumsum(x.asnumpy(), 0) / 2).tolist()


def test_which_operations_have_no_kernel() -> None:
    """NumPy computes these; every other operation is compiled."""
    table = [found for found in REGISTRY.values() if isinstance(found, Op)]
    ours = [found for found in table if found.function.__module__.startswith("gemel.ops")]
    own = [found for found in ours if found.rules.issue is None]
    found = sorted(found.name for found in own if not found.has_kernel)
    assert found == [
        "anchor_targets", "apply_flat", "argpartition", "argsort", "bincount", "bitwise_count",
        "boolean_index", "by_numpy", "choice", "cholesky", "combine_flat", "det", "detections",
        "digitize", "eig", "eigh", "eigvals", "eigvalsh", "extremes_flat", "fold_along",
        "fold_slices", "found_by_lstsq", "frexp",
        "gamma_slope", "gcd", "greedy_pairs", "half_transform", "histogram_counts",
        "histogram_edges", "i0", "inv", "inv_or_nan", "isin", "iterate", "iterate_backward",
        "lcm", "lstsq", "matrix_rank", "nanargmax", "nanargmin", "nextafter", "nonzero",
        "of_parts", "outcomes", "pinv", "qr", "ranked", "ravel_multi_index", "region_peaks",
        "region_weights", "running", "searchsorted", "slogdet", "solve", "sort", "spacing",
        "surviving", "svd", "svdvals", "top_positions", "transform", "unique", "unravel_index",
        "viewed", "whole_transform", "with_rows_put",
    ]  # fmt: skip


def test_only_shapes_that_depend_on_values_refuse_a_trace() -> None:
    with pytest.raises(TraceError, match="nonzero"):
        gemel.compile(lambda x: np.nonzero(x)[0])(np.ones((2,)))
    assert np.nonzero(np.array([0.0, 2.0]))[0].tolist() == [1]


# --- steps the core knows: the second call of a kind goes another way than the first -------------


@pytest.mark.parametrize("dtype", ["float32", "float64", "int64", "complex64", "float16"])
@pytest.mark.parametrize("shape", [(7,), (0,), (3, 4), ()])
def test_the_second_call_gives_what_the_first_gave(dtype: str, shape: tuple[int, ...]) -> None:
    x = numpy.arange(numpy.prod(shape, dtype=int), dtype=dtype).reshape(shape)[::-1] if shape else 1
    array = np.array(numpy.ascontiguousarray(numpy.array(x, dtype)))
    for call in (lambda a: np.unwrap(a) if a.ndim and a.dtype.kind == "f" else a * a, np.fft.fft):
        if call is np.fft.fft and (not shape or 0 in shape):
            continue
        first, second = call(array), call(array)
        assert first.dtype == second.dtype
        numpy.testing.assert_array_equal(first.asnumpy(), second.asnumpy())


def test_parts_of_arrays_are_found_where_they_lie() -> None:
    x = np.arange(24.0).reshape(4, 6)[::-1].copy()
    for _ in range(2):
        for row in range(4):  # dense views with different offsets
            numpy.testing.assert_array_equal(
                np.sort(x[row]).asnumpy(), numpy.sort(x[row].asnumpy())
            )
        numpy.testing.assert_array_equal(
            np.sort(x[:, ::2]).asnumpy(), numpy.sort(x.asnumpy()[:, ::2])
        )
        numpy.testing.assert_array_equal(np.sort(x.T).asnumpy(), numpy.sort(x.asnumpy().T))


def test_numbers_are_no_part_of_what_is_remembered() -> None:
    z = np.array([1 + 2j, 3 - 1j])
    for factor in (2, 3, -1):
        numpy.testing.assert_array_equal((z * factor).asnumpy(), z.asnumpy() * factor)
    assert (z * 2.5).dtype == (z * 2).dtype == "complex64"


def test_a_step_waits_for_what_is_not_there_yet() -> None:
    np.sort(np.zeros(300_000))
    x = np.ones(300_000)
    for _ in range(30):
        x = x + 1  # queued: the sort must not read x before this is done
        found = np.sort(x)
    x[...] = 0
    assert found.asnumpy()[0] == 31


def test_steps_are_recorded() -> None:
    x = np.array([3.0, 1.0, 2.0])
    np.sort(x)
    np.sort(x)
    x.attach_grad()
    for _ in range(2):
        with autograd.record():
            y = (np.sort(x) * np.array([1.0, 10.0, 100.0])).sum()
        y.backward()
        assert x.grad.tolist() == [100.0, 1.0, 10.0]


def test_a_failing_step_fails_its_results_each_time() -> None:
    x = np.array([-200.0, 1.0])
    call = REGISTRY["scaled_by_numpy"]
    for _ in range(3):
        found = call(x, np.array(2.0))
        with pytest.raises(ArithmeticError, match="far too small"):
            found.wait_to_read()
    assert call(np.array([1.0, 2.0]), np.array(2.0)).tolist() == [2.0, 4.0]


def test_steps_on_another_device_go_there() -> None:
    on_cpu = np.array([2.0, 1.0])
    np.sort(on_cpu)
    moved = on_cpu.to_device(gemel.cpu(1))
    found = np.sort(moved)
    assert found.device == gemel.cpu(1)
    assert found.tolist() == [1.0, 2.0]
    assert np.unique(moved).device == gemel.cpu(1)


def test_shapes_that_depend_on_values_are_found_anew() -> None:
    for values, wanted in (([1.0, 1.0, 2.0], [1, 2]), ([3.0, 1.0, 2.0], [1, 2, 3])):
        assert np.unique(np.array(values)).tolist() == wanted
    with pytest.raises(TraceError):
        gemel.compile(lambda a: np.unique(a))(np.array([1.0, 1.0, 2.0]))


# --- sorting, which the core does ----------------------------------------------------------------

REAL = ["bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]
REAL += ["float16", "float32", "float64"]
ROWS = [((1000,), 0), ((7,), 0), ((0,), 0), ((3, 50), 1), ((50, 3), 0), ((4, 60, 5), 1)]


@pytest.mark.parametrize("dtype", REAL)
@pytest.mark.parametrize(("shape", "axis"), ROWS, ids=str)
def test_sorted_as_numpy_sorts(dtype: str, shape: tuple[int, ...], axis: int) -> None:
    values = numpy.random.default_rng(0).normal(0, 50, shape)
    x = (
        values > 20 if dtype == "bool" else numpy.abs(values) if dtype[0] == "u" else values
    ).astype(dtype)
    if dtype[0] == "f" and x.size > 20:
        x.flat[3:13] = [
            numpy.nan,
            -numpy.nan,
            numpy.inf,
            -numpy.inf,
            0.0,
            -0.0,
            0.0,
            65504,
            -65504,
            6e-8,
        ]
    array, floating = np.array(x), dtype[0] == "f"
    assert numpy.array_equal(np.sort(array, axis).asnumpy(), numpy.sort(x, axis), floating)
    assert numpy.array_equal(
        np.argsort(array, axis).asnumpy(), numpy.argsort(x, axis, kind="stable")
    )
    down = np.argsort(array, axis, descending=True).asnumpy()
    found = numpy.take_along_axis(x, down, axis)
    assert numpy.array_equal(found, numpy.flip(numpy.sort(x, axis), axis), floating)
    assert numpy.array_equal(np.sort(array, axis, descending=True).asnumpy(), found, floating)
    same = numpy.diff(down, axis=axis) < 0  # equal elements keep their order
    assert not (same & (numpy.diff(found, axis=axis) == 0)).any()


def test_sorting_what_lies_otherwise_or_is_not_there_yet() -> None:
    x = np.arange(12.0).reshape(3, 4)
    assert np.sort(x.T[::-1], axis=0).tolist() == numpy.sort(x.asnumpy().T[::-1], axis=0).tolist()
    assert np.sort(np.array([3.0, 1.0, 2.0], dtype="bfloat16")).tolist() == [1.0, 2.0, 3.0]
    y = np.zeros(200_000)
    for _ in range(20):
        y = y + np.arange(200_000)[::-1]
    assert np.sort(y)[:3].tolist() == [0.0, 20.0, 40.0]
    compiled = gemel.compile(lambda a: np.sort(a * 2) + np.argsort(a)[0])
    for n in (5, 9):
        assert compiled(np.arange(float(n))).tolist() == [2.0 * i for i in range(n)]


@pytest.mark.parametrize("equal", [True, False])
def test_distinct_elements(equal: bool) -> None:
    for values in ([], [1.0], [2.0, 1.0, 2.0, 2.0], [numpy.nan, 1.0, numpy.nan], [0.0, -0.0]):
        x = numpy.array(values, "float32")
        found = np.unique(np.array(x), equal_nan=equal).asnumpy()
        assert numpy.array_equal(found, numpy.unique(x, equal_nan=equal), equal_nan=True)


@pytest.mark.parametrize("recorded", [False, True])
def test_results_beside_steps_are_arrays_of_their_own(recorded: bool) -> None:
    def function(a: Any, b: Any) -> Any:
        kept, ordered = a * 1, np.sort(b)
        a *= 3
        return kept, ordered, ordered * 1, b

    a, b = np.full(3, 2.0), np.array([3.0, 1.0, 2.0])
    a.attach_grad()
    b.attach_grad()
    with autograd.record(recorded):
        given = a * 1, b * 1
        results = gemel.compile(function)(*given)
    for found in results:
        found += 10
    expected = [[12.0] * 3, [11.0, 12.0, 13.0], [11.0, 12.0, 13.0], [13.0, 11.0, 12.0]]
    assert [found.tolist() for found in results] == expected
    assert [x.tolist() for x in given] == [[6.0] * 3, [3.0, 1.0, 2.0]]


def test_numbers_beside_steps_are_arrays() -> None:
    found = gemel.compile(lambda x, n: (np.sort(x), n, n))(np.ones(2), 2.0)
    assert [each.asnumpy().tolist() for each in found] == [[1.0, 1.0], 2.0, 2.0]
