"""The same call imperative, hybridized, interpreted and saved gives the same numbers.

The ways are listed in `WAYS`; another one is one more entry there.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy
import op_table
import pytest
from op_table import CASES, OPS, Case, accepts, close, inputs_of, on_gemel, results

import gemel
from gemel import autograd, np, npx
from gemel.errors import TraceError
from gemel.ir.interpret import interpret
from gemel.ir.op_kinds import Composite, Elementwise, Reduction
from gemel.spec import Spec
from gemel.symbol import json
from gemel.symbol.export import exported
from gemel.symbol.run import run
from gemel.tracing.programs import Arguments

SEED = 5


def imperatively(case: Case, inputs: list[Any]) -> list[Any]:
    """The call itself, one kernel at a time."""
    op_table.seeded(SEED)
    return results(case.op(*on_gemel(inputs), **case.parameters))


def hybridized(case: Case, inputs: list[Any]) -> list[Any]:
    """The call as a compiled program."""
    op_table.seeded(SEED)
    return results(compiled(case)(*on_gemel(inputs)))


def interpreted(case: Case, inputs: list[Any]) -> list[Any]:
    """The traced graph, node by node in NumPy."""
    arrays = on_gemel(inputs)
    graph = compiled(case).graph(*arrays)
    given = [value for value in inputs if isinstance(value, numpy.ndarray)]
    given += [value for value in inputs if type(value) is float]
    with numpy.errstate(all="ignore"):
        return interpret(graph, *given, stream=(SEED, 0))


def saved(case: Case, inputs: list[Any]) -> list[Any]:
    """The program written as text, read again, and run call by call."""
    op, parameters = case.op, case.parameters
    arrays = on_gemel(inputs)
    given = Arguments.of(tuple(arrays))
    specs = [Spec(x.shape, x.dtype) for x in given.arrays]
    found = exported(lambda *xs: op(*xs, **parameters), given._replace(arrays=specs), own=True)
    values = {**found.variables, **dict(zip(found.inputs, given.arrays, strict=True))}
    values.update({f"number{i}": number for i, number in enumerate(given.numbers)})
    places = {name: name[1:].split("_") for name in found.trace.extents.dims}
    sizes = {name: given.arrays[int(i)].shape[int(axis)] for name, (i, axis) in places.items()}
    op_table.seeded(SEED)
    return results(run(json.read(json.written(found.heads)), values, sizes))


_programs: dict[str, Any] = {}


def compiled(case: Case) -> Any:
    """The program of a case, traced only once."""
    key = str(case)
    if key not in _programs:
        op, parameters = case.op, case.parameters
        _programs[key] = gemel.compile(lambda *xs: op(*xs, **parameters))
    return _programs[key]


Way = Callable[[Case, list[Any]], list[Any]]

#: Every way to run a program.
WAYS: dict[str, Way] = {
    "imperative": imperatively,
    "hybridized": hybridized,
    "interpreted": interpreted,
    "saved": saved,
}

TRACED = [case for case in CASES if not case.op.dynamic and not case.op.updates]


def dtype_of(case: Case) -> str:
    return "float32" if accepts(case, inputs_of(case, "float32")) else "int32"


def check(case: Case, inputs: list[Any]) -> None:
    """Check that all ways agree; random numbers from kernels have the same bits."""
    found = {name: way(case, inputs) for name, way in WAYS.items()}
    for way in ("hybridized", "interpreted", "saved"):
        for a, b in zip(found["imperative"], found[way], strict=True):
            close(b, a, case.name)
    if case.op.random:
        for a, b in zip(found["imperative"], found["hybridized"], strict=True):
            assert a.tobytes() == b.tobytes(), "not the same bits"


@pytest.mark.parametrize("case", TRACED, ids=str)
def test_every_operation(case: Case) -> None:
    check(case, inputs_of(case, dtype_of(case)))


def rebatched(case: Case) -> Case:
    """The case with two more rows in each input of the highest rank."""
    rank = max(len(d.shape) for d in case.draws)
    draws = tuple(
        d._replace(shape=(d.shape[0] + 2, *d.shape[1:]))
        if rank and len(d.shape) == rank and d.shape[0] > 1
        else d
        for d in case.draws
    )
    return case._replace(draws=draws)


#: winograd's rounds fit one number of images; the first axis of attention's mask is no batch; the
#: gradient of prod's result has fewer axes than x.
HELD = ("winograd", "winograd_weights", "blocked_attention", "blocked_attention_backward")
HELD += ("prod_backward",)
FREE = [
    case
    for case in TRACED
    if isinstance(case.op, (Elementwise, Reduction, Composite))
    and not {"shape", "sections", "groups"} & set(case.parameters)  # weights have no batch
    and case.name not in ("rnn_step", "lstm_step", "gru_step")
    and case.name not in HELD
    and case.draws
    and rebatched(case) != case
]


@pytest.mark.parametrize("case", FREE, ids=str)
def test_another_batch_size_binds_the_same_program(case: Case) -> None:
    """The first axis is free: another size needs no second trace, and the numbers are right."""
    dtype = dtype_of(case)
    program = compiled(case)
    other = rebatched(case)
    first, second = inputs_of(case, dtype), inputs_of(other, dtype)
    program(*on_gemel(first))
    traces = program.traces
    op_table.seeded(SEED)
    found = results(program(*on_gemel(second)))
    op_table.seeded(SEED)
    expected = results(case.op(*on_gemel(second), **case.parameters))
    for a, b in zip(found, expected, strict=True):
        close(a, b, case.name)
    assert program.traces == traces


@pytest.mark.parametrize("name", ["uniform", "normal", "randint", "dropout"])
def test_random_programs_of_several_calls(name: str) -> None:
    """Calls draw their numbers in the order they are made, whatever runs them."""

    def several(x: Any) -> Any:
        low, high = (0, 7) if name == "randint" else (0.0, 1.0)
        if name == "dropout":
            found = [OPS[name](x, p=0.3)[0] for _ in range(3)]
        else:
            dtype = "int64" if name == "randint" else "float32"
            found = [OPS[name](low, high, shape=(4, 5), dtype=dtype) for _ in range(3)]
        return [y + x for y in found]

    x = np.ones((4, 5))
    op_table.seeded(SEED)
    first = results(several(x))
    after = np.random.uniform(size=3).tolist()
    op_table.seeded(SEED)
    second = results(gemel.compile(several)(x))
    assert after == np.random.uniform(size=3).tolist(), "the stream continues at another place"
    for a, b in zip(first, second, strict=True):
        assert a.tobytes() == b.tobytes()
    assert not numpy.array_equal(first[0], first[1])


def random_program(generator: random.Random) -> Any:
    """A function of three arrays, made of random steps that fit."""
    steps = [
        (generator.randrange(len(STEPS)), generator.random(), generator.random())
        for _ in range(generator.randint(3, 12))
    ]

    def function(*arrays: Any) -> Any:
        pool = list(arrays)
        for kind, first, second in steps:
            a, b = pool[int(first * len(pool))], pool[int(second * len(pool))]
            made = STEPS[kind](a, b, second)
            if made is not None and 0 < made.size <= 3000:
                pool.append(made)
        return tuple(pool[-3:])

    return function


def _broadcast(a: Any, b: Any) -> bool:
    pairs = zip(reversed(a.shape), reversed(b.shape), strict=False)
    return all(m == n or 1 in (m, n) for m, n in pairs) and a.size * b.size <= 3000


def _along(a: Any, r: float) -> int:
    return int(r * a.ndim)


#: Steps of random programs, from two arrays and a number in [0, 1); None if they do not fit.
STEPS: tuple[Callable[[Any, Any, float], Any], ...] = (
    lambda a, b, r: (np.tanh, npx.relu, npx.sigmoid, np.abs)[int(r * 4)](a),
    lambda a, b, r: (a * 0.5 + 1, -a, np.clip(a, -1, 1), np.floor(a))[int(r * 4)],
    lambda a, b, r: a.astype("float64").astype("float32") + r,
    lambda a, b, r: a + b if _broadcast(a, b) else None,
    lambda a, b, r: a * b if _broadcast(a, b) else None,
    lambda a, b, r: np.where(a > b, a, b) if _broadcast(a, b) else None,
    lambda a, b, r: a.sum(axis=_along(a, r), keepdims=r < 0.4) * 0.3 if a.ndim else None,
    lambda a, b, r: a.mean(axis=_along(a, r), keepdims=r < 0.4) if a.ndim else a.mean(),
    lambda a, b, r: a.max(axis=_along(a, r), keepdims=r < 0.4) if a.ndim else a.min(),
    lambda a, b, r: a.swapaxes(0, -1) if a.ndim > 1 else a.reshape(-1),
    lambda a, b, r: npx.softmax(a, axis=_along(a, r)) if a.ndim else None,
    lambda a, b, r: npx.log_softmax(a, axis=_along(a, r)) if a.ndim else None,
    lambda a, b, r: (a[::-1], a[..., None], a[1:])[int(r * 3)] if a.ndim else None,
    lambda a, b, r: np.concatenate([a, a * 2], axis=_along(a, r)) if a.ndim else None,
    lambda a, b, r: np.matmul(a, a.swapaxes(-1, -2)) * 0.1 if a.ndim > 1 else None,
    lambda a, b, r: np.split(a, [1], axis=_along(a, r))[int(r * 2)] if a.ndim else None,
)


def gradients_of(function: Any, values: list[Any]) -> list[Any]:
    """The gradients of the sum of all results of a function."""
    arrays = on_gemel(values)
    for array in arrays:
        array.attach_grad()
    with autograd.record():
        found = function(*arrays)
    tracked = [y for y in found if y._is_tracked]
    if tracked:
        autograd.backward(tracked)
    return [array.grad.asnumpy() for array in arrays]


@pytest.mark.parametrize("seed", range(30))
def test_random_programs(seed: int) -> None:
    """Whatever is fused, results and gradients stay the same."""
    generator = random.Random(seed)
    function = random_program(generator)
    shape = [generator.randint(1, 5) for _ in range(generator.randint(1, 3))]
    shapes = [shape, [1 if generator.random() < 0.3 else n for n in shape], shape[1:]]
    numbers = numpy.random.default_rng(seed)
    values = [numbers.uniform(-1.5, 1.5, s).astype("float32") for s in shapes]
    program = gemel.compile(function)
    first = results(function(*on_gemel(values)))
    second = results(program(*on_gemel(values)))
    third = interpret(program.graph(*on_gemel(values)), *values)
    for a, b, c in zip(first, second, third, strict=True):
        numpy.testing.assert_allclose(b, a, rtol=2e-4, atol=1e-5)
        numpy.testing.assert_allclose(c, a, rtol=2e-4, atol=1e-5)
    pairs = zip(gradients_of(function, values), gradients_of(program, values), strict=True)
    for a, b in pairs:
        numpy.testing.assert_allclose(b, a, rtol=1e-3, atol=1e-4 * max(1.0, abs(a).max()))


def block(x: Any, w: Any, b: Any) -> Any:
    """Products, reductions, views and branches together."""
    hidden = npx.relu(np.matmul(x, w) + b)
    centred = hidden - hidden.mean(axis=-1, keepdims=True)
    scaled = centred / np.sqrt((centred * centred).mean(axis=-1, keepdims=True) + 1e-5)
    parts = np.split(scaled, 2, axis=1)
    joined = np.concatenate([parts[1], parts[0].T.T * 2], axis=1)
    return npx.softmax(joined, axis=-1), joined[:, ::-1].sum(axis=0), joined.max(axis=1)


def test_a_block_of_many_operations() -> None:
    generator = numpy.random.default_rng(0)
    shapes = ((6, 5), (5, 8), (8,))
    values = [generator.standard_normal(shape).astype("float32") for shape in shapes]
    arrays = on_gemel(values)
    program = gemel.compile(block)
    first, second = results(block(*arrays)), results(program(*arrays))
    third = interpret(program.graph(*arrays), *values)
    for a, b, c in zip(first, second, third, strict=True):
        numpy.testing.assert_allclose(a, b, rtol=2e-5, atol=2e-6)
        numpy.testing.assert_allclose(a, c, rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_cond(sign: float) -> None:
    def function(x: Any, w: Any) -> Any:
        scaled = x * 2
        return npx.cond(
            x.sum() > 0,
            lambda a: (np.exp(a) + w, a.sum(axis=0)),
            lambda a: (a - w * scaled, a.max(axis=0)),
            [x],
        )

    values = [numpy.full((2, 3), sign, "float32"), numpy.arange(3, dtype="float32")]
    arrays = on_gemel(values)
    program = gemel.compile(function)
    expected = results(function(*arrays))
    found = results(program(*arrays))
    traced = interpret(program.graph(*arrays), *values)
    for a, b, c in zip(expected, found, traced, strict=True):
        numpy.testing.assert_allclose(a, b, rtol=2e-6)
        numpy.testing.assert_allclose(a, c, rtol=2e-6)


def test_batch_norm_updates_the_same_statistics() -> None:
    """A hybridized block overwrites its statistics after the program has run."""
    from gemel.gluon import nn

    x = np.random.normal(2.0, 3.0, size=(8, 3, 4, 4))
    found = []
    for hybridize in (False, True):
        net = nn.BatchNorm(in_channels=3)
        net.initialize()
        if hybridize:
            net.hybridize()
        with autograd.train_mode():
            y = net(x)
        found.append(
            [y.asnumpy(), net.running_mean.data().asnumpy(), net.running_var.data().asnumpy()]
        )
    for a, b in zip(*found, strict=True):
        numpy.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
    assert abs(found[0][1]).max() > 0.1


@pytest.mark.parametrize("case", [c for c in CASES if c.op.dynamic], ids=str)
def test_value_dependent_shapes_are_refused_in_a_trace(case: Case) -> None:
    with pytest.raises(TraceError, match=case.name):
        compiled(case)(*on_gemel(inputs_of(case, "float32")))


def test_views_as_arguments() -> None:
    """A program takes arrays of any layout."""
    x = numpy.arange(24, dtype="float32").reshape(4, 6)
    program = gemel.compile(lambda a: npx.softmax(a * 0.1, axis=-1))
    array = np.array(x)
    for view, twin in ((array.T, x.T), (array[::-1, ::2], x[::-1, ::2]), (array[1:], x[1:])):
        (found,) = results(program(view))
        expected = interpret(program.graph(view), twin)[0]
        numpy.testing.assert_allclose(found, expected, rtol=2e-6)
