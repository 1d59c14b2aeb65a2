"""Bugs reported from outside, each with the few lines that showed it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy
import pytest

import gemel
from gemel import autograd, np, npx
from gemel.errors import NotInTraceError, ShapeError, TraceError


def gradient(function: Callable[[Any], Any], x: Any) -> list[float]:
    x = x.copy()
    x.attach_grad()
    with autograd.record():
        loss = function(x)
    loss.backward()
    found: list[float] = x.grad.tolist()
    return found


@pytest.mark.parametrize(
    "function",
    [
        lambda x: np.einsum("i,i->", x, x),
        lambda x: np.einsum("i,i,i->", x, x, x),
        lambda x: np.vecdot(x, x),
        lambda x: (npx.layer_norm(x, x, x) ** 2).sum(),
    ],
    ids=["square", "cube", "vecdot", "layer_norm"],
)
def test_a_composite_given_one_array_twice(function: Callable[[Any], Any]) -> None:
    x = np.array([1.0, 2.0, 4.0])
    numpy.testing.assert_allclose(
        gradient(gemel.compile(function), x), gradient(function, x), rtol=1e-5
    )


def sets_a_part(z: Any) -> Any:
    z = z * 1
    z.imag[:] = 2
    return z


def reads_a_part_later(z: Any) -> Any:
    z = z * 1
    part = z.real
    z[0] = 100
    return part * 1


def adds_to_a_part(z: Any) -> Any:
    z = z * 1
    part = z.real
    part += 5
    z.real[0] = 9
    return z


@pytest.mark.parametrize("function", [sets_a_part, reads_a_part_later, adds_to_a_part])
def test_parts_of_complex_numbers_are_views_in_programs(function: Callable[[Any], Any]) -> None:
    z = np.array([1 + 1j, 3 + 3j])
    assert gemel.compile(function)(z).tolist() == function(z).tolist()
    with autograd.record():
        assert function(z).tolist() == gemel.compile(function)(z).tolist()


def test_an_infinite_part_leaves_the_other_one() -> None:
    z = np.array([1 + 1j])
    z.imag = numpy.inf
    assert z.tolist() == [complex(1, numpy.inf)]
    z.real = 5
    assert z.tolist() == [complex(5, numpy.inf)]


def test_masked_comparisons_are_bools() -> None:
    x, mask = np.array([1.0, 2.0]), np.array([True, False])
    assert np.isfinite(x, where=mask).tolist() == [True, False]
    assert np.isfinite(x, where=mask).dtype == "bool"
    assert np.max(np.array([True]), initial=2).dtype == "bool"
    assert np.sum(np.array([1, 2]), dtype="bool", initial=2).dtype == "bool"


def test_numbers_that_no_dtype_holds() -> None:
    with pytest.raises(OverflowError, match="add"):
        np.add(np.array([1, 2], dtype="int8"), 2**63, dtype="int64")
    out = np.zeros(2)
    np.add(np.array([1.0, 2.0]), 2**64, out=out)
    assert out.tolist() == [2.0**64, 2.0**64]


@pytest.mark.parametrize("make", [np.array, np.asarray, np.ascontiguousarray, np.float32])
def test_making_arrays_of_arrays_in_programs(make: Any) -> None:
    x = np.array([1.0, 2.0])
    assert gemel.compile(lambda a: make(a) * 2)(x).tolist() == [2, 4]


def test_positions_of_different_shapes() -> None:
    x = np.zeros((8, 3, 2))
    with pytest.raises(IndexError, match="positions"):
        x[np.array([0, 1]), np.array([0, 1, 2])]


@pytest.mark.parametrize("value", [1.0, 0.5, 0.0, numpy.nan, 256, 2**32, True])
def test_conditions_of_every_dtype(value: Any) -> None:
    def chosen(p: Any, x: Any) -> Any:
        return npx.cond(p, lambda: x * 2, lambda: x * 3)

    p, x = np.array(value), np.ones(1)
    assert gemel.compile(chosen)(p, x).tolist() == chosen(p, x).tolist()


def test_random_numbers_of_known_parameters_are_new_in_each_call() -> None:
    def draw(x: Any) -> Any:
        return np.random.gamma([1.0, 2.0]) + x

    draw(np.zeros(2)).wait_to_read()
    compiled = gemel.compile(draw)
    drawn = [compiled(np.zeros(2)).tolist() for _ in range(3)]
    assert drawn[0] != drawn[1] != drawn[2]


def test_all_integers_there_are() -> None:
    found = np.random.randint(-(2**63), 2**63, size=64)
    assert (found < 0).any() and (found > 0).any()
    generator = np.random.default_rng(1)
    assert generator.integers([0, 0], [5, 9], endpoint=True).shape == (2,)


def test_choice_never_takes_what_has_no_probability() -> None:
    with pytest.raises(ValueError, match="fewer than 2"):
        np.random.choice(3, size=2, replace=False, p=[1.0, 0, 0]).wait_to_read()


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
def test_random_is_below_one(dtype: str) -> None:
    assert float(np.random.random(200_000, dtype=dtype).max()) < 1


def test_a_callback_shares_what_it_reads() -> None:
    x, many = np.ones(4), np.ones((700, 700))
    later = np.dot(many, many)  # not computed yet, so the callback must wait
    for array in (x, later):
        spec = (array.shape, "float32")
        found = npx.callback(lambda _, array=array: numpy.asarray(array) * 2, array, outputs=spec)
        assert found.sum() == array.sum() * 2
    shared = np.from_dlpack(numpy.ones(4, dtype="float32"))

    def overwrites(a: Any) -> Any:
        shared[:] = 7
        return a

    assert npx.callback(overwrites, shared, outputs=((4,), "float32")).tolist() == [1] * 4
    assert shared.tolist() == [7] * 4


@pytest.mark.parametrize(
    ("function", "arrays"),
    [
        (lambda np, x: np.gradient(x), ([1.0, 2.0, numpy.inf, 3.0, 4.0],)),
        (lambda np, x: np.gradient(x, edge_order=2), ([1.0, numpy.nan, 1.0, 3.0, 4.0],)),
        (lambda np, x: np.signbit(np.pad(x, 1, constant_values=-0.0)), ([0.0, 1.0],)),
        (lambda np, x: np.conj(x, dtype="complex128"), ([1 + 2j, 3j],)),
        (lambda np, x: np.conjugate(x, out=np.ones(2, dtype="complex64")), ([1 + 2j, 3j],)),
        (lambda np, x: np.linalg.vector_norm(x, ord=np.inf), ([],)),
        (lambda np, x: np.linalg.vector_norm(x, axis=0, ord=np.inf, keepdims=True), ([[]],)),
        (lambda np, x: np.linalg.matrix_norm(x, ord=np.inf), ([[], []],)),
        (lambda np, x: np.linalg.matrix_norm(x.T, ord=1), ([[], []],)),
        (lambda np, x: np.linalg.matrix_norm(x, ord=2), ([[], []],)),
        (lambda np, x: np.linalg.matrix_rank(x, np.array([0.5, 3.0])), ([[2.0, 0], [0, 4]],)),
    ],
)
def test_as_numpy_has_it(function: Callable[..., Any], arrays: tuple[Any, ...]) -> None:
    held = [numpy.array(a, "complex64" if 3j in a else "float32") for a in arrays]
    wanted = function(numpy, *held)
    for way in (function, gemel.compile(lambda *xs: function(np, *xs))):
        found = way(*([np] if way is function else []), *map(np.array, held))
        numpy.testing.assert_array_equal(found.asnumpy(), wanted)


def test_products_of_float16_that_leave_its_range() -> None:
    x = numpy.random.default_rng(0).normal(size=(3, 50)).astype("float16") * 100
    for function in ("cov", "corrcoef"):
        found = getattr(np, function)(np.array(x))
        assert found.dtype == "float16"
        numpy.testing.assert_allclose(
            found.asnumpy(), getattr(numpy, function)(x.astype("float64")), 2e-3, 2e-3
        )


def test_a_mask_of_the_largest_of_all_has_the_shape_of_the_array() -> None:
    x = np.array([[1.0, 5.0, 3.0], [4.0, 2.0, 6.0]])
    assert npx.topk(x, axis=None, k=2, ret_typ="mask").tolist() == [[0, 1, 0], [0, 0, 1]]


# --- views that repeat elements -----------------------------------------------------------------


def test_tiled_arrays_have_their_own_elements() -> None:
    y = np.array([1.0, 2.0])
    for tiled in (np.tile(y, (3, 1)), npx.broadcast_like(y, np.zeros((3, 2)))):
        tiled += np.array([[1.0], [2.0], [3.0]])
        assert tiled.tolist() == [[2, 3], [3, 4], [4, 5]]
    assert y.tolist() == [1, 2]


@pytest.mark.parametrize(
    "write",
    [
        lambda b: b.__iadd__(1),
        lambda b: b.__setitem__(0, 5),
        lambda b: b.__setitem__(slice(None), 5),
        lambda b: b.__setitem__((0, 0), 5),
        lambda b: b.__setitem__(np.array([0, 1]), 5),
        lambda b: b.__setitem__(b > 0, 5),
        lambda b: np.add(b, 1, out=b),
        lambda b: b.__imatmul__(np.ones((2, 2))),
    ],
)
def test_views_that_repeat_elements_are_not_written_to(write: Callable[[Any], Any]) -> None:
    y = np.array([1.0, 2.0])
    with pytest.raises(ShapeError, match=r"repeats elements.* copy\(\) it first"):
        write(np.broadcast_to(y, (3, 2)))
    assert y.tolist() == [1, 2]


@pytest.mark.parametrize(
    "function",
    [
        lambda x: npx.dropout(x),
        lambda x: np.take(x, 0, axis=0),
        lambda x: np.block(x),
        lambda x: np.tile(x, 1),
        lambda x: npx.sequence_mask(x),
        lambda x: npx.sequence_last(x),
        lambda x: npx.sequence_reverse(x),
    ],
    ids=["dropout", "take", "block", "tile", "mask", "last", "reverse"],
)
def test_conversions_that_change_nothing_copy(function: Callable[[Any], Any]) -> None:
    def written(x: Any) -> Any:
        whole = x * 1
        found = function(whole)
        found += 1
        return whole

    x = np.ones((2, 3))
    assert written(x).tolist() == gemel.compile(written)(x).tolist() == x.tolist()


def test_writes_through_detach_are_seen() -> None:
    def function(x: Any) -> Any:
        y = x * 1
        part = y[0].detach()
        part += 100
        return y * y

    x = np.ones((2, 2))
    assert function(x).tolist() == gemel.compile(function)(x).tolist() == [[101**2] * 2, [1, 1]]
    assert gradient(lambda x: (x.detach() * x).sum(), x) == [[1, 1], [1, 1]]
    assert gradient(gemel.compile(lambda x: (x.detach() * x).sum()), x) == [[1, 1], [1, 1]]


# --- what a traced function asks for ------------------------------------------------------------


@pytest.mark.parametrize(
    "ask",
    [
        lambda x: x.shape[0] in {2, 3},
        lambda x: {2: True, 3: True}.get(x.shape[0], False),
        lambda x: x.shape in {(2,), (3,)},
        lambda x: frozenset([x.shape[0], 9]) == {2, 9} or frozenset([x.shape[0]]) == {3},
    ],
)
def test_a_size_that_is_looked_up_is_held(ask: Callable[[Any], bool]) -> None:
    function = gemel.compile(lambda x: x * (5 if ask(x) else 7))
    assert [function(np.ones(n)).tolist()[0] for n in (4, 2, 3, 5)] == [7, 5, 5, 7]


def test_pause_in_a_traced_function() -> None:
    def product(x: Any) -> Any:
        with autograd.pause():
            square = x * x
        return (square * x).sum()

    def overwritten(x: Any) -> Any:
        w = np.array([1.0, 1.0])
        with autograd.pause():
            w += x
        return (x * w).sum()

    def looped(x: Any) -> Any:
        def body(each: Any, total: Any) -> Any:
            with autograd.pause():
                other = each * 10
            return each, total + each * other

        return npx.foreach(body, x, np.zeros(()))[1]

    x = np.array([2.0, 3.0])
    for function, wanted in ((product, [4, 9]), (overwritten, [3, 4]), (looped, [20, 30])):
        assert gradient(function, x) == gradient(gemel.compile(function), x) == wanted


def test_is_recording_in_a_traced_function() -> None:
    def function(x: Any) -> Any:
        with autograd.pause():
            inside = autograd.is_recording()
        return x * (10 if autograd.is_recording() else 1) + inside

    compiled = gemel.compile(function)
    x = np.ones(1)
    for _ in range(2):
        with autograd.record():
            assert compiled(x).tolist() == function(x).tolist() == [10]
        assert compiled(x).tolist() == function(x).tolist() == [1]


def test_a_value_that_is_asked_for_is_read_again_after_numpy_had_access() -> None:
    w, x = np.array([1.0]), np.ones(1)
    function = gemel.compile(lambda x: x * float(w[0]))
    assert function(x).tolist() == [1]
    numpy.asarray(w)[0] = 9
    assert function(x).tolist() == [9]
    traces = function.traces
    numpy.asarray(w)  # reads without a write
    assert function(x).tolist() == [9]
    assert function.traces == traces


@pytest.mark.parametrize(
    "function",
    [
        lambda x, n: x * {1: 10, 3: 30}.get(n, 0),
        lambda x, n: x * (5 if isinstance(n, int) else 7),
        lambda x, n: x * (5 if n is True else 7),
        lambda x, n: x * 2**n,
        lambda x, n: x * len(f"{n}"),
    ],
)
def test_whole_numbers_beside_arrays_are_numbers(function: Callable[[Any, Any], Any]) -> None:
    x, compiled = np.ones(2), gemel.compile(function)
    for n in (1, True, -1, 3, 10):
        assert compiled(x, n).tolist() == function(x, n).tolist()


def test_a_float_as_text_is_held() -> None:
    compiled = gemel.compile(lambda x, n: x * len(f"{n:.1f}"))
    assert [compiled(np.ones(1), n).item() for n in (1.5, 10.5, 2.5)] == [3, 4, 3]


def fills_and_puts(x: Any) -> Any:
    y = x.copy()
    y.fill(3)
    y.put([0, 4], np.array([7.0, 8.0]))
    y.itemset(1, 9.0)
    y.itemset((1, 2), 4.0)
    return y


def writes_flat(x: Any) -> Any:
    y = x * 1
    y.T.flat[0:3] = 5
    y.flat[5] = 7
    return y


def partitions(x: Any) -> Any:
    y = -x
    y.partition(1)
    return y


def copies_to(x: Any) -> Any:
    y = x * 0
    (x * 2).copyto(y)
    return y


@pytest.mark.parametrize("function", [fills_and_puts, writes_flat, partitions, copies_to])
def test_methods_that_write_do_so_in_programs(function: Callable[[Any], Any]) -> None:
    x = np.arange(6.0).reshape(2, 3)
    assert gemel.compile(function)(x).tolist() == function(x).tolist()
    assert x.tolist() == [[0, 1, 2], [3, 4, 5]]


MEMORY = ["strides", "flags", "base", "offset", "version", "tobytes", "tofile", "wait_to_read"]
GRADIENT = ["backward", "drop_grad", "grad", "zero_grad"]


@pytest.mark.parametrize("name", MEMORY + GRADIENT)
def test_methods_missing_on_symbols_say_why(name: str) -> None:
    reason = "array in memory" if name in MEMORY else r"autograd\.grad"
    with pytest.raises(NotInTraceError, match=f"^{name} at .*{reason}"):
        gemel.compile(lambda x: getattr(x, name))(np.ones(2))
    assert gemel.compile(lambda x: x * hasattr(x, name))(np.ones(2)).tolist() == [0, 0]
    assert hasattr(np.ones(2), name)


def test_numbers_of_a_program_in_numpys_arrays() -> None:
    function = gemel.compile(lambda x, n: x * numpy.array([n, 2 * n]))
    assert function(np.ones(2), 2.5).tolist() == [2.5, 5]
    assert function(np.ones(2), 1.5).tolist() == [1.5, 3]


def test_whether_an_element_is_in_a_constant_of_a_program() -> None:
    given = np.array([1.0, 2.0])
    assert gemel.compile(lambda x: x * (2.0 in given))(np.ones(2)).tolist() == [1, 1]
    with pytest.raises(TraceError, match="any"):
        gemel.compile(lambda x: x * (2.0 in x))(np.ones(2))


def test_slice_like_a_number_says_what_is_missing() -> None:
    with pytest.raises(ShapeError, match="give axes"):
        npx.slice_like(np.ones(2), 0)


def test_out_may_be_an_array_from_outside() -> None:
    kept, x = np.zeros((2, 3)), np.arange(6.0).reshape(2, 3)
    function = gemel.compile(lambda x: np.add(x, 1, out=kept))
    for each in (x, x + 1):
        assert function(each).tolist() == (each + 1).tolist() == kept.tolist()


@pytest.mark.parametrize("compiled", [False, True])
def test_statistics_may_be_arrays_from_outside(compiled: bool) -> None:
    gamma, beta, mean, variance = np.ones(3), np.zeros(3), np.zeros(3), np.ones(3)

    def function(x: Any) -> Any:
        return npx.batch_norm(x, gamma, beta, mean, variance, momentum=0.5)

    x = np.arange(12.0).reshape(4, 3)
    for _ in range(2):
        with autograd.record():
            (gemel.compile(function) if compiled else function)(x)
    assert mean.tolist() == [4.5 * 0.75, 5.5 * 0.75, 6.5 * 0.75]
    assert variance.tolist() == [0.25 + 11.25 * 0.75] * 3


def view_of_no_elements(v: Any, y: Any) -> None:
    v[:, None][:, 1:] = y


@pytest.mark.parametrize("value", [lambda y: y.max(0, keepdims=True), lambda y: y * 3, np.sum])
def test_empty_results_are_not_written(value: Callable[[Any], Any]) -> None:
    def function(x: Any, y: Any) -> Any:
        v = x * 2
        view_of_no_elements(v, value(y))
        return v

    for x in (np.ones((1, 1, 1)), np.ones((3, 1, 1))):
        assert gemel.compile(function)(x, np.ones((1, 1))).tolist() == (x * 2).tolist()


def all_of_it(v: Any, x: Any) -> None:
    v[:] = x


def turned_round(v: Any, x: Any) -> None:
    v[::-1] = x


def its_columns(v: Any, x: Any) -> None:
    v.T[...] = x.T


def an_axis_more(v: Any, x: Any) -> None:
    v[:, None][:, 0] = x


def a_number_first(v: Any, x: Any) -> None:
    v.fill(2)
    v += x


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize(
    "write", [all_of_it, turned_round, its_columns, an_axis_more, a_number_first]
)
def test_overwritten_values_have_no_gradient(
    write: Callable[[Any, Any], None], compiled: bool
) -> None:
    def function(x: Any) -> Any:
        v = x / (np.abs(x) + 1)  # NaN at infinity, and so would be 0 times its derivative
        write(v, x)
        return v

    x = np.array([[1.0, np.inf], [2.0, 3.0]])
    assert gradient(gemel.compile(function) if compiled else function, x) == [[1, 1], [1, 1]]


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("shape", [(1,), (1, 4), (0,), (5, 0), (2, 3, 0)])
@pytest.mark.parametrize(
    "view", [lambda v: v[1:], lambda v: v[::-1][1:], lambda v: v[None, 1:], lambda v: v[1:].T]
)
def test_masked_writes_to_views_of_no_elements(
    view: Callable[[Any], Any], shape: tuple[int, ...], compiled: bool
) -> None:
    def function(x: Any) -> Any:
        v = x * 1
        w = view(v)
        w[w > 0] = 0.5
        return v

    x = np.ones(shape)
    assert gradient(gemel.compile(function) if compiled else function, x) == x.tolist()


def masked(x: Any) -> Any:
    v = x + 0
    w = v[::-1]
    w[w > 0] = 0.5
    return v.sum() + x.sum()


@pytest.mark.parametrize("shape", [(5, 0), (0, 5), (2, 3, 0)])
def test_an_array_of_no_elements_repeats_none(shape: tuple[int, ...]) -> None:
    x = np.ones(shape)
    assert gradient(masked, x) == gradient(gemel.compile(masked), x) == x.tolist()


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("dtype", ["float16", "float32"])
@pytest.mark.parametrize("shape", [(1, 7, 0), (0, 7, 0), (0, 7, 1), (2, 7, 0)])
def test_convolutions_that_see_nothing_but_padding(
    shape: tuple[int, ...], dtype: str, compiled: bool
) -> None:
    def function(x: Any, weight: Any) -> Any:
        return npx.convolution(x, weight, kernel=(3,), stride=(3,), pad=(2,), no_bias=True)

    x, weight = np.ones(shape, dtype=dtype), np.ones((5, 7, 3), dtype=dtype)
    weight.attach_grad()
    assert (
        gradient(lambda x: (gemel.compile(function) if compiled else function)(x, weight), x)
        == x.tolist()
    )
    assert not weight.grad.any()


def test_the_target_shape_of_a_deconvolution_in_a_program() -> None:
    weight = np.ones((2, 3, 3, 3))

    def function(x: Any) -> Any:
        return npx.deconvolution(x, weight, kernel=(3, 3), stride=(2, 2), target_shape=(9, 9))

    compiled = gemel.compile(function)
    for size in (5, 4):
        x = np.ones((1, 2, size, size))
        assert compiled(x).tolist() == function(x).tolist()
    with pytest.raises(ShapeError, match=r"pad \(-2, -2\)"):
        compiled(np.ones((1, 2, 2, 2)))


def test_results_of_a_program_share_nothing() -> None:
    x = np.zeros(3)
    same, part, turned = gemel.compile(lambda x: (x, x[1:], x[::-1]))(x)
    same[:] = 5
    assert x.tolist() == turned.tolist() == [0, 0, 0]
    assert part.tolist() == [0, 0]
