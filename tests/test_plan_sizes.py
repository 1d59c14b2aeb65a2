"""One lowering for many sizes: binding its image to a size equals lowering at that size."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import numpy
import op_table
import pytest
from op_table import CASES, Case, Draw
from plan_images import Read, closed_over

import gemel
from gemel import np, npx
from gemel.codegen.contract.task import Task, bucket
from gemel.codegen.contract.tilings import decided
from gemel.codegen.language import nest
from gemel.codegen.target import host
from gemel.errors import GemelError
from gemel.extent import Dim, Guards
from gemel.ir.trace import Trace
from gemel.ops.shape import Layout, dense_strides
from gemel.passes.bind import concrete_graph
from gemel.passes.parts import LONG
from gemel.runtime import concurrent
from gemel.runtime import items as items_module
from gemel.runtime.backend import backend_of
from gemel.runtime.image import Branching, Image, Item, Loop, Parallel, Step
from gemel.runtime.lower import Lowering
from gemel.runtime.prepare import strides_of
from gemel.runtime.single import FreeSizes, single_image
from gemel.spec import Spec, product

NATIVE = backend_of(gemel.cpu())

#: Without 2: with a stride of 2, elements are read by another path, with the same results.
SIZES = (3, 5, 7, 64, 65, 1000)

LAYOUTS: dict[str, Callable[[tuple[int, ...]], tuple[int, ...]]] = {
    "dense": dense_strides,
    "turned": lambda shape: dense_strides(shape[::-1])[::-1],
    "stepped": lambda shape: tuple(2 * s for s in dense_strides(shape)),
    "backwards": lambda shape: tuple(-s for s in dense_strides(shape)),
    "padded": lambda shape: dense_strides((*shape[:-1], shape[-1] + 3)) if shape else (),
    "repeated": lambda shape: (0, *dense_strides(shape)[1:]) if shape else (),
}


class Loose:
    """Stands in for an array: has a shape, a dtype and a layout, but no elements."""

    def __init__(self, shape: tuple[int, ...], strides: tuple[int, ...], dtype: Any) -> None:
        self.shape = shape
        self._element_strides = strides
        self.dtype = dtype
        self._is_contiguous = Layout(shape, strides).contiguous


@pytest.fixture(autouse=True)
def without_channels(monkeypatch: pytest.MonkeyPatch) -> None:
    """Write nothing by channel: such a plan serves one number of channels (`test_channels`)."""
    monkeypatch.setattr(nest, "by_channel", lambda nest, dimensions: None)


@pytest.fixture
def uncompiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lower without compiling: only the kernels' arguments matter.

    Nor are items put side by side, because that depends on their cost at the sizes seen.
    """
    monkeypatch.setattr(items_module, "kernel_for", lambda program, backend: None)
    monkeypatch.setattr(concurrent, "WORTH", 1 << 62)


def free_image(op: Any, values: list[Any], parameters: dict[str, Any]) -> Image:
    sizes = FreeSizes(tuple(map(loose_spec, values)))
    layouts = sizes.layouts(strides_of(tuple(values)))
    return single_image(op, sizes.specs, parameters, NATIVE, layouts, sizes.guards)


def fixed_image(op: Any, values: list[Any], parameters: dict[str, Any]) -> Image:
    layouts = {
        i: Layout(
            v.shape,
            tuple(0 if n == 1 else s for n, s in zip(v.shape, v._element_strides, strict=True)),
        )
        for i, v in enumerate(values)
        if isinstance(v, Loose) and not v._is_contiguous
    }
    return single_image(op, tuple(map(loose_spec, values)), parameters, NATIVE, layouts, [])


def loose_spec(value: Any) -> Spec:
    if isinstance(value, Loose):
        return Spec(value.shape, value.dtype)
    return op_table.spec_of(value)


def given(values: list[Any]) -> list[tuple[Any, Any]]:
    return [(v.shape, v._element_strides) for v in values if isinstance(v, Loose)]


def flat(items: Any, read: Read) -> Iterator[Item]:
    """Items that hold the kernels' keys instead of their numbers."""
    for item in items:
        if isinstance(item, Step):
            yield item._replace(kernel=read.kernels[item.kernel][0])
        elif isinstance(item, Branching):
            yield Branching(item.condition, [*flat(item.then, read)], [*flat(item.otherwise, read)])
        elif isinstance(item, Loop):
            yield item._replace(items=[*flat(item.items, read)])
        else:
            yield Parallel([[*flat(part, read)] for part in item.parts])


def same(free: Read, fixed: Read, arrays: list[tuple[Any, Any]]) -> bool:
    """Whether the free image fits these arrays; if so, checks that it equals the fixed one."""
    found, wanted = free.bind(arrays), fixed.bind(arrays)
    assert wanted is not None
    if found is None:
        return False
    assert [*flat(found.items, free)] == [*flat(wanted.items, fixed)]
    assert found.inputs == wanted.inputs
    assert found.outputs == wanted.outputs
    assert found.temporaries == wanted.temporaries
    assert (found.offsets, found.workspace) == (wanted.offsets, wanted.workspace)
    assert (free.sites, free.scalars, free.random) == (fixed.sites, fixed.scalars, fixed.random)
    return True


def other_sizes(
    draws: tuple[Draw, ...], choice: tuple[int, ...] = SIZES, layout: str = "dense"
) -> Iterator[dict[int, int]]:
    """Replace each extent above 1 with another one; equal extents stay equal.

    In dense arrays every extent takes every size. Which sizes a plan serves does not depend on the
    layout, so each other layout tries only two assignments, which differ between layouts.
    """
    extents = sorted({n for draw in draws for n in draw.shape if n > 1})
    place, turns = list(LAYOUTS).index(layout), len(choice)
    for shift in range(turns) if place == 0 else (place % turns, (place + 3) % turns):
        sizes = itertools.cycle(choice[shift:] + choice[:shift])
        yield dict(zip(extents, sizes, strict=False))


def sized(draw: Draw, sizes: dict[int, int], layout: str) -> Any:
    if draw.kind == "number":
        return draw.number
    shape = tuple(sizes.get(n, n) for n in draw.shape)
    return Loose(shape, LAYOUTS[layout](shape), gemel.dtype.as_dtype(draw.dtype or "float32"))


def is_long(value: Any) -> bool:
    """Whether reductions of an array are long enough to be divided."""
    return hasattr(value, "shape") and bool(product(value.shape) >= LONG)


def served(case: Case, layout: str) -> tuple[int, int]:
    """How many other sizes a case's plan serves, and how many were tried."""
    parameters = case.op.complete(case.parameters)
    here = [sized(draw, {}, layout) for draw in case.draws]
    free = Read(free_image(case.op, here, parameters).write())
    assert same(free, Read(fixed_image(case.op, here, parameters).write()), given(here))
    fits = count = 0
    for sizes in other_sizes(case.draws, layout=layout):
        values = [sized(draw, sizes, layout) for draw in case.draws]
        try:
            fixed = Read(fixed_image(case.op, values, parameters).write())
        except GemelError:
            continue  # the parameters require this size
        fit = same(free, fixed, given(values))
        # Long reductions have programs of their own.
        other = any(is_long(x) != is_long(own) for x, own in zip(values, here, strict=True))
        count += fit or not other
        fits += fit
    return fits, count


KERNELS = [
    c
    for c in CASES
    if c.op.has_kernel
    and not str(c.parameters.get("dtype", "")).startswith("complex")
    and op_table.accepts(c, op_table.inputs_of(c, "float32"))
]


#: Operations whose parameters or kernels are made for few sizes.
PARTICULAR = {"split", "place", "matmul", "wide_matmul", "matvec", "vecmat", "einsum", "cross"}
PARTICULAR |= {"matmul_of_bytes"}
#: Operations whose keys name positions, which smaller arrays do not have.
KEYED = {"basic_index", "narrow", "assign"}
#: Operations made of products or groups of channels, or with a size as a parameter.
PARTICULAR |= {"convolution", "deconvolution", "fold", "group_norm", "winograd"}
PARTICULAR |= {"summed_windows", "weights_in_rounds", "winograd_weights", "peaks"}
#: And those in which few windows are a case of its own, that of one.
PARTICULAR |= {"bordered_windows"}
PARTICULAR |= {"rnn_step", "lstm_step", "gru_step"}
PARTICULAR |= {"blocked_attention", "blocked_attention_backward"}
#: Those that are windows where the parts divide the image.
PARTICULAR |= {"adaptive_pooling", "part_sums", "part_peaks"}
#: Those that are computed in one sweep if there are many elements.
PARTICULAR |= {"var", "std", "batch_norm"}


def layouts_of(place: int) -> list[str]:
    """Dense and two other layouts, which alternate with the case's place in the list."""
    dense, *others = LAYOUTS
    return [dense, others[place % 5], others[(place + 2) % 5]]


@pytest.mark.parametrize(
    "case, layout",
    [
        pytest.param(case, layout, id=f"{case}-{layout}")
        for place, case in enumerate(KERNELS)
        for layout in layouts_of(place)
    ],
)
def test_an_image_at_a_size_is_the_lowering_at_that_size(
    case: Case, layout: str, uncompiled: None
) -> None:
    fits, count = served(case, layout)
    assert fits == count or case.name in PARTICULAR


PRODUCTS = [
    ((500, 300), (300, 700)),
    ((136, 72), (72, 80)),
    ((1000, 80), (80,)),
    ((100,), (100, 200)),
    ((96, 72, 200), (200, 100)),
    ((90, 70, 200), (90, 200, 100)),
    ((3, 1, 500, 80), (5, 80, 100)),
    ((2, 100, 3000), (3000, 100)),
]


@pytest.mark.parametrize("layouts", [("dense", "dense"), ("dense", "turned"), ("turned", "dense"),
                                     ("padded", "stepped"), ("turned", "turned")])  # fmt: skip
@pytest.mark.parametrize("shapes", PRODUCTS, ids=str)
def test_a_product_serves_the_sizes_of_its_bucket(
    shapes: Any, layouts: tuple[str, str], uncompiled: None
) -> None:
    matmul = op_table.OPS["matmul"]

    def operands(shrink: int) -> list[Any]:
        made = [tuple(n - shrink if n > 64 else n for n in shape) for shape in shapes]
        return [
            Loose(shape, LAYOUTS[layout](shape), gemel.dtype.float32)
            for shape, layout in zip(made, layouts, strict=True)
        ]

    free = Read(free_image(matmul, operands(0), {}).write())
    fits = 0
    for shrink in (0, 1, 3, 30, 500):
        if any(n <= shrink for shape in shapes for n in shape if n > 64):
            continue
        values = operands(shrink)
        fits += same(free, Read(fixed_image(matmul, values, {}).write()), given(values))
    assert fits >= 2


def test_buckets() -> None:
    assert [bucket(n) for n in (0, 1, 63, 64, 65, 72, 73, 128, 129, 144, 1000, 1025)] == [
        0, 1, 63, 64, 72, 72, 80, 128, 144, 144, 1024, 1152,
    ]  # fmt: skip
    guards = Guards()
    assert bucket(Dim(1000, "n", guards)) == 1024 and bucket(Dim(5, "m", guards)) == 5
    assert [str(guard) for guard in guards] == ["960 < n", "n <= 1024", "m == 5"]


def test_a_product_is_held_along_k_only_where_it_is_computed_otherwise() -> None:
    guards = Guards()
    k = Dim(100, "k", guards)
    task = Task(gemel.dtype.float32, ("k", "n"), host(), 8, 8, k)
    choice = decided(task)
    (guard,) = guards
    assert str(guard) == f"k <= {guard.right}" and guard.right >= 128
    for depth in (2, 3, 64, 101, guard.right):
        assert decided(task._replace(k=depth)) == choice


# --- values ---------------------------------------------------------------------------------


@pytest.mark.parametrize("case", [c for c in KERNELS if c.name not in PARTICULAR | KEYED], ids=str)
def test_one_plan_computes_many_sizes(case: Case) -> None:
    def inputs(sizes: dict[int, int]) -> list[Any]:
        draws = (
            d._replace(
                shape=tuple(sizes.get(n, n) for n in d.shape), limit=sizes.get(d.limit, d.limit)
            )
            for d in case.draws
        )
        return [op_table.draw(how, "float32") for how in draws]

    parameters = case.op.complete(case.parameters)
    plan = free_image(case.op, op_table.on_gemel(inputs({})), parameters).plan()
    for sizes in ({}, *other_sizes(case.draws, (2, 3, 7, 65))):
        values = inputs(sizes)
        if any(is_long(value) for value in values):
            continue  # long reductions have programs of their own
        try:
            expected = op_table.expected_of(case, values, stream=(op_table.SEED, 0))
        except (GemelError, ValueError, IndexError):
            continue  # the parameters require a size
        arrays = op_table.on_gemel(values)
        numbers = [v for v in arrays if isinstance(v, (bool, int, float))]
        op_table.seeded(op_table.SEED)
        found = plan(*(v for v in arrays if hasattr(v, "shape")), *numbers)
        found = list(found) if isinstance(found, tuple) else [found]
        if case.op.updates:
            found += [arrays[position] for position in case.op.updates]
        for value, wanted in zip(found, expected, strict=True):
            op_table.close(value.asnumpy(), wanted, case.name)


def mlp(x: Any, w: Any, v: Any) -> Any:
    return np.matmul(npx.relu(np.matmul(x, w) + 1), v)


def normed(x: Any) -> Any:
    centred = x - x.mean(axis=-1, keepdims=True)
    return centred / np.sqrt((centred * centred).mean(axis=-1, keepdims=True) + 1e-5)


def chosen(x: Any) -> Any:
    return npx.cond(x.sum() > 0, lambda a: a.sum(axis=0) + a.shape[0], lambda a: a[0] * 2, [x])


W, V = np.ones((5, 8)), np.ones((8, 3))
T = np.arange(4, dtype="int64")

PROGRAMS: dict[str, Callable[[Any], Any]] = {
    "mlp": lambda x: mlp(x, W, V),
    "softmax": lambda x: npx.softmax(x * 2),
    "softmax over the batch": lambda x: npx.softmax(x, axis=0),
    "norm": normed,
    "batch mean": lambda x: (x - x.mean(axis=0)) / x.shape[0],
    "concatenate": lambda x: np.concatenate([x, x * 2, np.ones((3, 5))], axis=0),
    "beside": lambda x: np.concatenate([x, x[:, :2]], axis=1),
    "slices": lambda x: x[1:] - x[:-1],
    "last": lambda x: x[-2:] * 3,
    "reshape": lambda x: x.reshape(-1) + 1,
    "heads": lambda x: x.reshape((x.shape[0], 1, 5)).transpose((1, 0, 2)) * 2,
    "transpose": lambda x: (x.T + 1).sum(axis=1),
    "gram": lambda x: np.matmul(x, x.T),
    "batch": lambda x: np.matmul(np.broadcast_to(W, (x.shape[0], 5, 8)), V),
    "reductions": lambda x: (x.sum(), x.max(axis=0), x.argmax(axis=1), x.prod(axis=(0, 1))),
    "take": lambda x: np.take(x, T, axis=1),
    "take rows": lambda x: np.take(x, T, axis=0, mode="clip"),
    "random": lambda x: x + np.random.normal(0, 1, x.shape),
    "cond": chosen,
    "update": lambda x: np.where(x > 0, x, np.exp(x) - 1).astype("float64"),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_is_lowered_once_for_its_sizes(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    function = gemel.compile(PROGRAMS[name])
    batches = (4, 3, 7, 64, 65, 1000)
    for n in batches:
        x = np.array(numpy.linspace(-1, 1, n * 5).reshape(n, 5), dtype="float32")
        np.random.seed(n)
        wanted = op_table.results(PROGRAMS[name](x))
        np.random.seed(n)
        for value, expected in zip(op_table.results(function(x)), wanted, strict=True):
            numpy.testing.assert_allclose(value, expected, rtol=1e-4, atol=1e-5)
    assert function.traces <= 2
    monkeypatch.setattr(items_module, "kernel_for", lambda program, backend: None)
    (program, *_) = next(iter(function._programs.values()))
    plans = program.inference()
    plans.stable = None  # where sizes are fixed, more results would be kept
    fits = 0
    for n, m in itertools.product(batches, batches):
        free = Read(plans.image({"n0_0": n, "n0_1": 5}, NATIVE).write())
        with Trace():
            again = Lowering(concrete_graph(plans.optimized(), {"n0_0": m, "n0_1": 5}), NATIVE)
            again.run()
        fixed = Read(again.image().write())
        arrays = [((m, 5), (5, 1)), *closed_over(program)]
        if fixed.bind(arrays) is not None:
            fits += same(free, fixed, arrays)
    if name in ("mlp", "gram", "batch"):
        assert fits >= len(batches)
    else:
        assert fits == len(batches) ** 2
        assert len(plans._made) == 1 and function.traces == 1


KEYS: dict[str, Callable[[Any], Any]] = {
    "reversed": lambda n: slice(None, None, -1),
    "every second": lambda n: slice(None, None, 2),
    "every third backwards": lambda n: slice(None, None, -3),
    "all but the last, backwards": lambda n: slice(-2, None, -1),
    "backwards to the third": lambda n: slice(None, 2, -1),
    "a range, backwards": lambda n: slice(100, 1, -3),
    "a range": lambda n: slice(1, 100, 3),
    "more than there are from the end": lambda n: slice(-3, None),
    "without more than there are": lambda n: slice(None, -3),
    "the last by its number": lambda n: n - 1,
    "a half": lambda n: slice(n // 2, n),
}


@pytest.mark.parametrize("name", KEYS)
def test_a_key_means_the_same_at_every_size(name: str) -> None:
    key = KEYS[name]
    function = gemel.compile(lambda x: (x[key(x.shape[0])] + 1, x[key(x.shape[0])]))
    for n in (5, 7, 3, 2, 64, 1, 1000, 0, 4):
        if n == 0 and not isinstance(key(n), slice):
            continue
        x = numpy.arange(n * 2, dtype="float32").reshape(n, 2)
        sum_, part = op_table.results(function(np.array(x)))
        numpy.testing.assert_array_equal(part, x[key(n)])
        numpy.testing.assert_array_equal(sum_, x[key(n)] + 1)
    assert function.traces <= 6


def test_a_slice_of_a_free_extent_without_a_step_is_refused() -> None:
    with pytest.raises(ValueError, match="slice step cannot be zero"):
        gemel.compile(lambda x: x[::0])(np.ones((4, 2)))


def test_calls_with_many_extents_are_told_apart() -> None:
    """Such keys have more words than fit inside a key object; the last word counts, too."""
    function = gemel.compile(lambda a, b, c: (a + b * 2 + c).sum())
    for last in (2, 3, 2, 3):
        shape = (1,) * 30 + (2, last)
        arrays = [np.ones(shape) for _ in range(3)]
        for _ in range(2):
            assert function(*arrays).item() == 4 * 2 * last
