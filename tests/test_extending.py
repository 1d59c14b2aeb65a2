"""Operations, passes and recipes from outside: the examples, and what they cannot break."""

from __future__ import annotations

import itertools
import math
import subprocess
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy
import pytest
from programs import surroundings

import gemel
from gemel import autograd, np
from gemel.codegen.language.program import Program
from gemel.codegen.schedules import Recipe, compile_program
from gemel.codegen.target import TARGETS, Target, cuda
from gemel.dtype import float32
from gemel.errors import (
    ArgumentError,
    AxisError,
    CompileError,
    FormulaError,
    GemelError,
    GradientError,
    ShapeError,
    TraceError,
    UnknownNameError,
)
from gemel.ir.declare import composite, elementwise, op, reduction
from gemel.ir.graph import Entry, Graph, Node, placeholder, rewrite
from gemel.ir.interpret import reference
from gemel.ir.layout import Layout
from gemel.ir.trace import Trace
from gemel.ops.elementwise import exp, log
from gemel.passes import optimize
from gemel.runtime.backend import Backend
from gemel.spec import Spec

EXAMPLES = sorted((Path(__file__).parent.parent / "examples" / "extending").glob("*.py"))
#: A text that each prints under GEMEL_DEBUG=2, about what was compiled.
SAID = {
    "elementwise": "1 kernel, 0 bytes",
    "index_formula": "= gather.float32",
    "reduction": "carry 0 (float32 -inf, float32 0.0) in blocks\n",
    "schedule": ": outer wide\n",
    "store": "the weights of the workers: [4.0, 4.0] [4.0, 4.0]",
    "compiler_pass": "with it          [  3.   5. 401.]",
}


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_examples(path: Path, tmp_path: Path) -> None:
    assert len(path.read_text().splitlines()) < 40
    settings = {"GEMEL_DEBUG": "2", "GEMEL_CACHE": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, path], env=surroundings(settings), capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert SAID[path.stem] in done.stdout + done.stderr


# --- an index formula -------------------------------------------------------------------------


@op(moves=1)
def skewed_rows(x: Any, *, step: int = 1) -> Any:
    """Row i of a matrix, rotated by i * step positions."""
    return numpy.stack([numpy.roll(row, i * step) for i, row in enumerate(x)])


@skewed_rows.spec
def _(x: Spec, *, step: int) -> Spec:
    return Spec(x.shape, x.dtype)


@skewed_rows.element
def _(loop: Any, position: Any, x: Any, *, step: int) -> Any:
    row, column = map(loop.number, position)
    return x.at(position[0], (column - row * step) % loop.constant(x.shape[1]))


@skewed_rows.gradient
def _(g: Any, y: Any, x: Any, *, step: int) -> Any:
    return (skewed_rows(g, step=-step),)


@op()
def without_rules(x: Any) -> Any:
    """An operation that does not declare its result."""
    return x


def test_an_operation_without_a_spec_says_so() -> None:
    with pytest.raises(TypeError, match="without_rules: it has no spec; declare"):
        without_rules(np.ones(3))


@pytest.mark.parametrize("dtype", ["float32", "int16", "bool", "bfloat16", "float64"])
def test_an_index_formula_moves_any_dtype_of_any_size(dtype: str) -> None:
    program = gemel.compile(lambda x: skewed_rows(x, step=2))
    for shape in ((3, 4), (5, 7), (1, 3), (4, 1), (6, 2)):
        x = np.array(numpy.random.default_rng(0).integers(0, 9, shape), dtype=dtype)
        wanted = skewed_rows.function(x.asnumpy(), step=2)
        for found in (skewed_rows(x, step=2), program(x), skewed_rows(x.T.copy().T, step=2)):
            numpy.testing.assert_array_equal(found.asnumpy(), wanted)


def test_its_gradient_is_that_of_what_is_moved() -> None:
    x = np.array(numpy.random.default_rng(1).normal(size=(4, 5)))
    w = np.array(numpy.random.default_rng(2).normal(size=(4, 5)))
    for function in (skewed_rows, gemel.compile(lambda x: skewed_rows(x * 1))):
        x.attach_grad()
        with autograd.record():
            y = (function(x) * w).sum()
        y.backward()
        wanted = skewed_rows.function(w.asnumpy(), step=-1)
        numpy.testing.assert_array_equal(x.grad.asnumpy(), wanted)


@op(moves=1)
def turned_rows(x: Any, *, kept: str = "checked") -> Any:
    """The rows, the last one first."""
    return x[::-1]


@turned_rows.spec
def _(x: Spec, *, kept: str) -> Spec:
    return Spec(x.shape, x.dtype)


@turned_rows.element
def _(loop: Any, position: Any, x: Any, *, kept: str) -> Any:
    rows = loop.constant(x.shape[0])
    row = loop.constant(rows) - 1 - loop.number(position[0])
    return x.at(getattr(loop, kept)(row, rows), position[1])


@pytest.mark.parametrize("kept", ["checked", "limited"])
def test_an_extent_may_be_given_as_a_number_to_compute_with(kept: str) -> None:
    program = gemel.compile(lambda x: turned_rows(x * 1, kept=kept))
    for shape in ((3, 2), (5, 4), (1, 3)):
        x = np.arange(float(math.prod(shape))).reshape(shape)
        assert turned_rows(x, kept=kept).tolist() == program(x).tolist() == x.tolist()[::-1]


# --- passes -----------------------------------------------------------------------------------


def undo(graph: Graph) -> Graph:
    """log(exp(x)) is x."""

    def undone(node: Node, inputs: tuple[Entry, ...]) -> Sequence[Entry] | None:
        source = inputs[0].node if node.op is log else None
        return source.inputs if source is not None and source.op is exp else None

    return rewrite(graph, undone)


@op(moves=1)
def next_elements(x: Any) -> Any:
    """Each element's successor; there is none for the last."""
    raise NotImplementedError


@next_elements.spec
def _(x: Spec) -> Spec:
    return Spec(x.shape, x.dtype)


@next_elements.element
def _(loop: Any, position: Any, x: Any) -> Any:
    return x.at(loop.checked(loop.number(position[0]) + 1, x.shape[0]))


def test_an_index_out_of_range_names_the_operation() -> None:
    x = np.ones(3)
    for function in (next_elements, gemel.compile(lambda x: next_elements(x) + 1)):
        with pytest.raises(IndexError, match="next_elements: an index is out of bounds"):
            function(x).asnumpy()


@elementwise()
def doubled(xp: Any, x: Any) -> Any:
    """Twice x, whose gradient the test declares."""
    return x * 2


@pytest.mark.parametrize(
    ("slope", "told"),
    [
        (lambda g: g * 2, "a tuple with an array or None for each of the 1 inputs"),
        (lambda g: (), "a tuple with an array or None"),
        (lambda g: None, "not None"),
        (lambda g: (2.0,), r"not \(2.0,\)"),
        (lambda g: (None, None), r"not \(None, None\)"),
        (lambda g: (g.sum(),), r"float32\[\] for an input of float32\[3\]"),
        (lambda g: (np.concatenate([g, g]),), r"float32\[6\] for an input of float32\[3\]"),
    ],
)
@pytest.mark.parametrize("is_compiled", [False, True])
def test_a_gradient_that_does_not_fit_the_inputs(
    slope: Any, told: str, is_compiled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doubled.rules, "gradient", lambda g, y, x: slope(g))
    function = gemel.compile(lambda x: doubled(x) * 1) if is_compiled else doubled
    x = np.ones(3)
    x.attach_grad()
    with pytest.raises(GradientError, match=f"doubled: its gradient rule.*{told}"):
        with autograd.record():
            y = function(x)
        y.backward()


def _floats(op: Any, specs: Any, parameters: Any) -> Any:
    return (), float32


@elementwise(dtype=_floats, positional=True)
def rows(xp: Any, *, shape: Any, by: Any = 1) -> Any:
    """Each element's position along the first axis, times a number."""
    return xp.index(0) * by


@elementwise(dtype=_floats, positional=True)
def columns(xp: Any, *, shape: Any) -> Any:
    """Each element's position along the last axis."""
    return xp.index(len(shape) - 1)


@rows.spec
@columns.spec
def _(*, shape: Any, by: Any = 1) -> Spec:
    return Spec(shape, float32)


def test_operations_without_arrays_have_their_own_plans() -> None:
    for shape in ((2, 3), (4, 5), (1, 3), (5, 5)):
        at = numpy.indices(shape)
        numpy.testing.assert_array_equal(rows(shape=shape).asnumpy(), at[0])
        numpy.testing.assert_array_equal(columns(shape=shape).asnumpy(), at[1])
        for by in (2, 0.5):
            numpy.testing.assert_array_equal(rows(shape=shape, by=by).asnumpy(), at[0] * by)


# --- formulas ---------------------------------------------------------------------------------


#: Formulas that no kernel can be made of, by what is said about them.
UNFIT: dict[str, tuple[int, Any]] = {
    "'abc' is neither a real number nor computed": (1, lambda xp, x: "abc"),
    "None is neither": (1, lambda xp, x: None),
    "1j is neither": (1, lambda xp, x: x * 1j),
    r"must return a tuple of 2 values, not %0": (2, lambda xp, x: x),
    r"must return a tuple of 2 values, not \(%0": (2, lambda xp, x: (x,)),
    "xp has no 'maximun'; did you mean 'maximum'": (1, lambda xp, x: xp.maximun(x, 0)),
    "use xp.where instead of if": (1, lambda xp, x: x if x > 0 else -x),
    "xp's functions, not Python's": (1, lambda xp, x: math.exp(x)),
    "xp.index needs an operation declared with positional=True": (
        1,
        lambda xp, x: x + xp.index(0),
    ),
    "values that are not known yet.*'Recorded' does not support ufuncs": (
        1,
        lambda xp, x: numpy.exp(x),
    ),
    "use .* xp's functions .* not subscriptable": (1, lambda xp, x: x[0]),
    "xp's functions .*: (exp: )?Recorded .* is not an array": (1, lambda xp, x: np.exp(x)),
    "use .* xp's functions .* no attribute 'sum'": (1, lambda xp, x: x.sum()),
}


@pytest.mark.parametrize("told", UNFIT)
def test_formulas_that_cannot_be_kernels_are_named(told: str) -> None:
    outputs, body = UNFIT[told]
    unfit = formula(body, outputs=outputs)
    for function in (unfit, gemel.compile(lambda x: unfit(x))):
        with pytest.raises(FormulaError, match=f"{unfit.name}: .*{told}"):
            function(np.ones(3))


def formula(body: Any, **options: Any) -> Any:
    """An operation that is declared by this formula; its name is new."""
    body.__name__ = body.__name__.strip("<>") + str(next(NUMBERS))
    return elementwise(**options)(body)


NUMBERS = itertools.count()


def test_a_formula_may_name_dtypes() -> None:
    """As in NumPy, in its method and in its function."""
    truncated = formula(lambda xp, x: xp.astype(x.astype("int32"), "float32") + xp.astype(1, "f4"))
    x = np.array([1.5, -2.5, 0.0])
    for function in (truncated, gemel.compile(lambda x: truncated(x))):
        assert function(x).dtype == "float32" and function(x).tolist() == [2, -1, 1]
    (found,) = reference(truncated, x.asnumpy())
    assert found.tolist() == [2, -1, 1]


def test_what_a_formula_raises_itself_is_left() -> None:
    with pytest.raises(ZeroDivisionError):
        formula(lambda xp, x: x * (1 / 0))(np.ones(3))


@pytest.mark.parametrize("axis", [1, -1])
def test_positions_in_formulas(axis: int) -> None:
    """Also where an operation is not compiled with others."""
    counted = formula(lambda xp, x, y: x + y * xp.index(axis), positional=True)
    counted.gradient(lambda g, z, x, y: (g, counted(np.zeros_like(g), g)))
    x, y = np.ones((2, 3)), np.ones((3,))
    for function in (counted, gemel.compile(lambda x, y: counted(x, y))):
        y.attach_grad()
        with autograd.record():
            z = function(x, y)
        z.backward()
        assert z.tolist() == [[1, 2, 3]] * 2 and y.grad.tolist() == [0, 2, 4]
    (found,) = reference(counted, *(numpy.ones((2, 3)),) * 2)
    assert found.tolist() == [[1, 2, 3]] * 2


#: `element` rules that read nothing, by what is said about them.
UNREADABLE: dict[str, Any] = {
    "None is neither a real number": lambda loop, at, x: None,
    "Source object.* is neither": lambda loop, at, x: x,
    r"at\(\) of its input float32\[2, 3\] takes 2 positions.* not 1": lambda loop, at, x: x.at(
        at[0]
    ),
    r"takes 2 positions.* not 3": lambda loop, at, x: x.at(*at, at[0]),
    "1 is no position": lambda loop, at, x: x.at(at[0], 1),
    "use xp.where instead of if": lambda loop, at, x: x.at(*at) if loop.number(at[0]) else x,
    "values that are not known yet.*'Source' object is not subscriptable": lambda loop, at, x: x[0],
}


@pytest.mark.parametrize("told", UNREADABLE)
def test_index_formulas_that_read_nothing_are_named(told: str) -> None:
    unreadable = moving(lambda x: Spec(x.shape, x.dtype), UNREADABLE[told])
    for function in (unreadable, gemel.compile(lambda x: unreadable(x) + 1)):
        with pytest.raises(FormulaError, match=f"{unreadable.name}: .*{told}"):
            function(np.ones((2, 3)))


def moving(spec: Any, element: Any) -> Any:
    """An operation on one array that has these rules, if any; its name is new."""

    def moved(x: Any) -> Any:
        raise NotImplementedError

    moved.__name__ += str(next(NUMBERS))
    made = op(moves=1)(moved)
    made.spec(spec)
    if element is not None:
        made.element(element)
    return made


def _not_finished(emit: Any, outputs: Any, inputs: Any) -> None:
    loop = emit.loop(outputs[0].shape)
    loop.store(outputs[0], loop.load(inputs[0]))


def _indexed(emit: Any, outputs: Any, inputs: Any) -> None:
    outputs[0][0] = inputs[0]


#: `lower` rules that write nothing, by what is said about them.
UNWRITTEN: dict[str, Any] = {
    r"writes nothing to its result float32\[": lambda emit, outputs, inputs: None,
    "finish the loop": _not_finished,
    "values that are not known yet.*'Place' object does not support item assignment": _indexed,
    "not known yet.*'RuleNest' object has no attribute 'put'": lambda emit, outputs, inputs: (
        emit.loop(outputs[0].shape).put(1)
    ),
}


@pytest.mark.parametrize("told", UNWRITTEN)
def test_kernels_that_write_nothing_are_named(told: str) -> None:
    unwritten = moving(lambda x: Spec(x.shape, x.dtype), None)
    unwritten.lower(UNWRITTEN[told])
    for function in (unwritten, gemel.compile(lambda x: unwritten(x * 2) + 1)):
        with pytest.raises(FormulaError, match=f"{unwritten.name}: .*{told}"):
            function(np.ones((2, 3)))


def test_kernels_of_nothing_need_not_write() -> None:
    empty = moving(lambda x: Spec((0,), x.dtype), None)
    empty.lower(lambda emit, outputs, inputs: None)
    assert empty(np.ones(2)).tolist() == []


def test_an_index_formula_may_be_a_number() -> None:
    filled = moving(lambda x: Spec(x.shape, x.dtype), lambda loop, at, x: 5)
    assert filled(np.ones(2)).tolist() == gemel.compile(filled)(np.ones(2)).tolist() == [5, 5]


@pytest.mark.parametrize(
    ("spec", "told"),
    [
        (lambda x: None, "its spec rule returned None; it must return a Spec"),
        (lambda x: x.shape, r"its spec rule returned \(.*, .*\); it must return a Spec"),
        (lambda x: Spec((-1, 3), x.dtype), r"shape \[-1, 3\] has a negative extent"),
        (lambda x: Spec((2.0, 3), x.dtype), r"shape \[2.0, 3\] must be whole numbers"),
    ],
)
def test_specs_that_no_array_has(spec: Any, told: str) -> None:
    unfit = moving(spec, lambda loop, at, x: x.at(*at))
    for function in (unfit, gemel.compile(lambda x: unfit(x))):
        with pytest.raises(ShapeError, match=f"{unfit.name}: {told}"):
            function(np.ones((2, 3)))


def test_random_numbers_in_formulas() -> None:
    """The same ones whether the operation is compiled with others or not."""
    noisy = formula(
        lambda xp, x, *, call=None: x + xp.cast(xp.random_bits()[0], gemel.dtype.float32) * 2**-32,
        random=True,
    )
    drawn = []
    for function in (noisy, gemel.compile(lambda x: noisy(x))):
        np.random.seed(3)
        drawn.append(function(np.ones(5)).asnumpy())
    numpy.testing.assert_array_equal(*drawn)
    assert numpy.unique(drawn[0]).size == 5 and (drawn[0] >= 1).all() and (drawn[0] <= 2).all()


@pytest.mark.parametrize("found", [None, "text", 5, numpy.ones(2), (None,)])
def test_bodies_of_composites_return_arrays(found: Any) -> None:
    def body(x: Any) -> Any:
        return found

    body.__name__ += str(next(NUMBERS))
    with pytest.raises(FormulaError, match=f"{body.__name__}: its body must return an array"):
        composite()(body)(np.ones(2))


def test_reductions_have_axes() -> None:
    with pytest.raises(TypeError, match="summed: a reduction needs the parameters axis"):

        @reduction(combine="sum")
        def summed(x: Any) -> Any:
            return x


def test_a_view_without_a_put_rule_is_not_written_to_in_a_trace() -> None:
    @op()
    def reversed_axes(x: Any) -> Any:
        return x.T

    reversed_axes.spec(lambda x: Spec(x.shape[::-1], x.dtype))
    reversed_axes.view(lambda layout, y: Layout(y.shape, layout.strides[::-1], layout.offset))

    def written(x: Any) -> Any:
        reversed_axes(x)[0] = 9
        return x

    assert written(np.ones((2, 2))).tolist() == [[9, 1], [9, 1]]
    with pytest.raises(TraceError, match=r"reversed_axes: .* has no `put` rule"):
        gemel.compile(written)(np.ones((2, 2)))


def test_a_position_along_an_axis_that_is_not_there() -> None:
    beyond = formula(lambda xp, x: x + xp.index(2), positional=True)
    with pytest.raises(AxisError, match=rf"{beyond.name}: xp.index\(2\): .*float32\[2, 3\]"):
        beyond(np.ones((2, 3)))


def test_numbers_of_numpy_in_formulas_are_weak() -> None:
    x = np.array([0, 1, 2])
    for body in (lambda xp, x: x * numpy.float32(2.5), lambda xp, x: numpy.float32(2.5) * x):
        half = formula(body)
        assert half(x).tolist() == gemel.compile(lambda x, f=half: f(x))(x).tolist() == [0, 2, 5]


@pytest.mark.parametrize(
    ("options", "body", "error", "told"),
    [
        ({"positonal": True}, lambda xp, x: x, TypeError, "did you mean 'positional'"),
        ({"outputs": 0}, lambda xp, x: x, ArgumentError, "outputs=0 must be a whole number"),
        ({"outputs": "2"}, lambda xp, x: x, ArgumentError, "outputs='2' must be"),
        ({}, 3, TypeError, "by a function in Python, not 3"),
        ({}, lambda: 1, TypeError, "the first argument of a formula must be xp"),
        ({"random": True}, lambda xp, x: x, TypeError, "needs a keyword call=None"),
    ],
)
def test_declarations_that_declare_nothing(options: Any, body: Any, error: Any, told: str) -> None:
    with pytest.raises(error, match=told):
        elementwise(**options)(body)


def test_rules_are_declared_once() -> None:
    """Calls that were made with the first one keep it."""
    twice = formula(lambda xp, x: x * 2)
    twice.gradient(lambda g, y, x: (g * 2,))
    with pytest.raises(ValueError, match=f"{twice.name}: its rule 'gradient' is declared twice"):
        twice.gradient(lambda g, y, x: (g * 3,))


def test_a_pass_is_done_when_training_too() -> None:
    program = gemel.compile(lambda x: np.log(np.exp(x)) * 2, passes=[undo])
    x = np.array([1.0, 200.0])
    x.attach_grad()
    assert program(x).tolist() == [2, 400]
    with autograd.record():
        y = program(x)
    assert y.tolist() == [2, 400]


def test_plans_made_with_a_pass_are_not_those_made_without(tmp_path: Path) -> None:
    def function(x: Any) -> Any:
        return np.log(np.exp(x)) - 1

    x = np.array([200.0])
    for _ in range(2):
        assert gemel.compile(function)(x).tolist() == [numpy.inf]
        assert gemel.compile(function, passes=[undo])(x).tolist() == [199]


def test_a_pass_is_done_beside_what_numpy_does() -> None:
    def function(x: Any) -> Any:
        return np.log(np.exp(x)), np.linalg.svd(x.reshape(1, -1))[1]

    first, _ = gemel.compile(function, passes=[undo])(np.array([200.0, 1.0]))
    assert first.tolist() == [200, 1]


class Nothing:
    """A pass that is an object, and changes nothing."""

    def __call__(self, graph: Graph) -> Graph:
        return graph


def test_passes_need_no_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GEMEL_VERIFY", "1")
    passes = [Nothing(), partial(lambda graph, other: graph, other=1), lambda graph: graph]
    assert gemel.compile(lambda x: x + 1, passes=passes)(np.ones(2)).tolist() == [2, 2]


@pytest.mark.parametrize("wrong", [undo, [3], "fold", 7])
def test_passes_must_be_a_list_of_functions(wrong: Any) -> None:
    with pytest.raises(TypeError):
        gemel.compile(abs, passes=wrong)


#: Things a pass must not do.
WRONG: dict[str, Any] = {
    "not a Graph": lambda graph: None,
    "inputs": lambda graph: Graph(graph.inputs[::-1], graph.outputs, graph.updates),
    "outputs": lambda graph: Graph(graph.inputs, graph.outputs[:1], graph.updates),
    "changed outputs": lambda graph: Graph(graph.inputs, graph.outputs[::-1], graph.updates),
}


@pytest.mark.parametrize("told", WRONG)
@pytest.mark.parametrize("recorded", [False, True])
def test_passes_that_change_what_a_function_is(told: str, recorded: bool) -> None:
    program = gemel.compile(lambda x, y: (x - y.sum(), y * 2), passes=[WRONG[told]])
    x, y = np.ones((2, 3)), np.ones((4,))
    x.attach_grad()
    with pytest.raises(GemelError, match=told), autograd.record(recorded):
        program(x, y)


def test_passes_may_write_composites() -> None:
    def centred(graph: Graph) -> Graph:
        return Graph(graph.inputs, [y - y.mean() + np.std(y) for y in graph.outputs])

    y = gemel.compile(lambda x: x * 2, passes=[centred])(np.array([1.0, 3.0]))
    assert y.tolist() == [0, 4]


#: Things that are no graph, though they look like one.
BROKEN: dict[str, Any] = {
    r"outputs have 3, not an entry": lambda graph: Graph(graph.inputs, [3]),
    r"updates have 3, not": lambda graph: Graph(graph.inputs, graph.outputs, [3]),
    r"the pass <lambda>: .*'z' is used but is not an input": lambda graph: Graph(
        graph.inputs, [placeholder(graph.outputs[0].spec, "z")]
    ),
    r"rule returned 3 .* each of its 1 results": lambda graph: rewrite(graph, lambda n, i: 3),
    r"rule returned <.*exp.*a tuple or list": lambda graph: rewrite(graph, lambda n, i: np.exp(*i)),
    r"rule returned \(\)": lambda graph: rewrite(graph, lambda n, i: ()),
}


@pytest.mark.parametrize("told", BROKEN)
def test_passes_that_return_what_is_no_graph(told: str) -> None:
    program = gemel.compile(lambda x: np.sin(x), passes=[BROKEN[told]])
    with pytest.raises(GemelError, match=told):
        program(np.ones((3,)))


# --- recipes ----------------------------------------------------------------------------------


def recipe(made: list[str], copies: int) -> Recipe:
    """A recipe for loops over `copies` vectors at a time; it appends what it has made to `made`."""

    def emit(program: Program, target: Target) -> Any:
        from gemel.codegen.loops.plain import Loops

        class Other(Loops):
            def outer_copies(self) -> int:
                return copies

        made.append(program.schedule)
        return Other(program, target).build()

    return Recipe(f"by{copies}", lambda program: not program.inner, emit)


def test_recipes_are_for_the_functions_they_are_given_to() -> None:
    made: list[str] = []
    x = np.array(numpy.random.default_rng(3).normal(size=(3, 1001)))
    function = lambda x: np.tanh(x) * x - 3 / (x * x + 1)  # noqa: E731
    wanted = gemel.compile(function)(x).asnumpy()
    assert not made
    for copies in (1, 3, 8):
        program = gemel.compile(function, recipes=[recipe(made, copies), recipe(made, 2)])
        numpy.testing.assert_array_equal(program(x).asnumpy(), wanted)
        numpy.testing.assert_array_equal(program(x[:, :5]).asnumpy(), wanted[:, :5])
    assert set(made) == {"outer by1", "outer by3", "outer by8"}


def test_recipes_of_one_function_are_not_mixed_up() -> None:
    """They differ only in the values that they close over."""
    for copies in (1, 8):
        made: list[str] = []
        same = recipe(made, copies)._replace(name="alike")
        gemel.compile(lambda x: np.sin(x) * 2, recipes=[same])(np.ones((100,)))
        assert made == ["outer alike"]


@pytest.mark.parametrize("names", [("",), ("my wide",), ("two", "two")])
def test_recipes_have_names_that_tell_them_apart(names: tuple[str, ...]) -> None:
    recipes = [recipe([], 1)._replace(name=name) for name in names]
    with pytest.raises(ValueError, match="one word"):
        gemel.compile(abs, recipes=recipes)


@pytest.mark.parametrize("wrong", [undo, [3], recipe([], 1), [undo]])
def test_recipes_must_be_a_list_of_recipes(wrong: Any) -> None:
    with pytest.raises(TypeError, match="recipes="):
        gemel.compile(abs, recipes=wrong)


def test_recipes_have_functions_and_a_name_in_letters() -> None:
    good = recipe([], 1)
    for wrong in (good._replace(suits=None), good._replace(emit="loops")):
        with pytest.raises(TypeError, match="suits and emit of the recipe 'by1' must be functions"):
            gemel.compile(abs, recipes=[wrong])
    with pytest.raises(ValueError, match="named 3; its name must be one word"):
        gemel.compile(abs, recipes=[good._replace(name=3)])


@pytest.mark.parametrize(
    ("code", "told"),
    [
        (None, "returned None, which is not an LLVM module with the function kernel"),
        ("define i32 @other() { ret i32 0 }", "not an LLVM module with the function kernel"),
        ("define i32 @kernel() { nonsense }", "LLVM refuses the code"),
        (
            "declare i32 @foo()\ndefine i32 @kernel() {\n  %x = call i32 @foo()\n  ret i32 %x\n}",
            "calls foo",
        ),
    ],
)
def test_recipes_that_return_no_kernel_are_named(code: Any, told: str) -> None:
    wrong = Recipe("empty", lambda program: True, lambda program, target: code)
    program = gemel.compile(lambda x: np.cos(x) * 3, recipes=[wrong])
    with pytest.raises(CompileError, match=f"the recipe 'empty'.*{told}"):
        program(np.ones((3,)))


def test_images_are_made_with_recipes() -> None:
    made: list[str] = []
    program = gemel.compile(lambda x: np.cos(x) / 3, recipes=[recipe(made, 3)])
    assert program.image(np.ones((9,)))
    assert made and set(made) == {"outer by3"}


def test_kernels_of_recipes_are_not_kept_on_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GEMEL_CACHE", str(tmp_path))
    made: list[str] = []
    for _ in range(2):
        gemel.compile(lambda x: np.cosh(x) / 7, recipes=[recipe(made, 1)])(np.ones((9,)))
    assert len(made) == 2
    assert not [path for path in tmp_path.rglob("*") if path.suffix in (".kernel", ".plan")]


def test_recipes_leave_what_does_not_suit_them() -> None:
    made: list[str] = []
    x = np.ones((20, 30))
    program = gemel.compile(lambda x: (np.dot(x, x.T) + 1).sum(axis=0), recipes=[recipe(made, 4)])
    numpy.testing.assert_array_equal(program(x).asnumpy(), numpy.full(20, 620))
    assert not made


def test_a_schedule_nobody_prints_is_an_error() -> None:
    program = Program(1, 0, "outer wide", (), (), 0, ())
    with pytest.raises(UnknownNameError, match="wide"):
        compile_program(program, TARGETS["generic"])


# --- what passes know of operations -----------------------------------------------------------


def optimized(function: Any, *shapes: tuple[int, ...]) -> Graph:
    """A function's graph after the passes."""
    with Trace():
        inputs = [placeholder(Spec(shape, "float32")) for shape in shapes]
        return optimize(Graph(inputs, [function(*inputs)]))


@elementwise(unchanged=lambda x, y: y.node.is_number and y.node.value == 0)
def raised(xp: Any, x: Any, y: Any) -> Any:
    """A sum."""
    return x + y


@elementwise(dtype=lambda op, specs, given: ((), gemel.dtype.float32), positional=True)
def column(xp: Any, *, shape: Any) -> Any:
    """The column of each element."""
    return xp.index(len(shape) - 1)


@column.spec
def _(*, shape: Any) -> Spec:
    return Spec(shape, "float32")


@op()
def rolled_axes(x: Any, *, by: int) -> Any:
    """The array with its axes rotated by `by`."""
    return numpy.transpose(x, [(i + by) % x.ndim for i in range(x.ndim)])


@rolled_axes.spec
def _(x: Spec, *, by: int) -> Spec:
    return Spec([x.shape[(i + by) % x.ndim] for i in range(x.ndim)], x.dtype)


@rolled_axes.view
def _(layout: Layout, result: Spec, *, by: int) -> Layout:
    axes = [(i + by) % len(layout.shape) for i in range(len(layout.shape))]
    return Layout(result.shape, [layout.strides[axis] for axis in axes], layout.offset)


@op(alignment="repeat")
def rows_of(x: Any, *, count: int) -> Any:
    """A row, repeated `count` times."""
    return numpy.broadcast_to(x, (count, *x.shape))


@rows_of.spec
def _(x: Spec, *, count: int) -> Spec:
    return Spec((count, *x.shape), x.dtype)


@rows_of.view
def _(layout: Layout, result: Spec, *, count: int) -> Layout:
    return Layout(result.shape, (0, *layout.strides), layout.offset)


@pytest.mark.parametrize(
    ("function", "dropped"),
    [
        (lambda x: raised(x, 0), True),
        (lambda x: raised(x, 1), False),
        (lambda x: rolled_axes(x, by=2), True),
        (lambda x: rolled_axes(x, by=1), False),
    ],
)
def test_operations_that_change_nothing_are_dropped(function: Any, dropped: bool) -> None:
    graph = optimized(function, (4, 4))
    assert (graph.outputs[0] is graph.inputs[0]) == dropped


def test_alignments_fuse() -> None:
    """An alignment fuses like a broadcast array."""
    x, y = np.ones((3, 4)), np.arange(4) / 4
    program = gemel.compile(lambda x, y: np.exp(rows_of(y, count=3)) + x)
    assert "1 kernel" in program.plan_summary(x, y)
    wanted = numpy.exp(numpy.arange(4, dtype="float32") / 4) + numpy.ones((3, 1))
    numpy.testing.assert_allclose(program(x, y).asnumpy(), wanted, rtol=1e-6)


def test_positional_operations_are_not_fused_into_products() -> None:
    a, b = np.ones((64, 32)), np.ones((32, 48))
    program = gemel.compile(lambda a, b: np.dot(a, b) + column(shape=(64, 48)))
    wanted = numpy.full((64, 48), 32.0) + numpy.arange(48)
    assert (program(a, b).asnumpy() == wanted).all()
    graph = optimized(lambda a, b: np.dot(a, b) * 2 + column(shape=(64, 48)), (64, 32), (32, 48))
    assert len([node for node in graph.walk() if node.op is not None]) > 1


def test_an_operation_without_results_is_refused() -> None:
    @op()
    def without_results(x: Any) -> Any:
        """No result at all."""
        return ()

    @without_results.spec
    def _(x: Spec) -> tuple[Spec, ...]:
        return ()

    with pytest.raises(ShapeError, match=r"without_results: float32\[3\]: its spec"):
        without_results(np.ones(3))


def test_recipes_are_not_for_gpus() -> None:
    backend = Backend(cuda(90), lambda program, target: b"", bytes)
    assert backend.extended([recipe([], 1)]) is backend
