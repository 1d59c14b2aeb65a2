"""Symbolic programming as the book introduces it: a graph, simplified before it runs."""

from __future__ import annotations

from typing import Any

import pytest

import gemel
from gemel import autograd, cpu, np
from gemel.errors import TraceError
from gemel.ir.verify import verify


def add(a: Any, b: Any) -> Any:
    return a + b


def fancy_func(a: Any, b: Any, c: Any, d: Any) -> Any:
    e = add(a, b)
    f = add(c, d)
    g = add(e, f)
    return g


def arrays() -> list[Any]:
    return [np.array([float(i), i + 0.5]) for i in range(1, 5)]


def test_numbers_are_constant_nodes() -> None:
    graph = gemel.compile(fancy_func).graph(1, 2, 3, 4)
    assert graph.count("constant") == 4
    assert graph.count("add") == 3
    assert len(graph.inputs) == 0
    assert str(graph) == "(1 + 2) + (3 + 4)"


def test_folding_leaves_one_constant() -> None:
    function = gemel.compile(fancy_func)
    folded = verify(function.folded(1, 2, 3, 4))
    assert folded.count("constant") == 1
    assert folded.count("add") == 0
    assert str(folded) == "10"


def test_without_folding_the_adds_are_there_again() -> None:
    function = gemel.compile(fancy_func, fold=False)
    graph = function.folded(1, 2, 3, 4)
    assert graph.count("constant") == 4
    assert graph.count("add") == 3
    assert str(graph) == "(1 + 2) + (3 + 4)"
    kernels = function.graph(1, 2, 3, 4, optimized=True)
    assert sum(n.params["body"].count("add") for n in kernels.walk() if n.op is not None) == 3


def test_arrays_are_inputs_and_need_no_buffers() -> None:
    function = gemel.compile(fancy_func)
    graph = function.graph(*arrays())
    assert len(graph.inputs) == 4
    assert graph.count("constant") == 0
    assert graph.count("add") == 3
    assert "1 kernel, 0 bytes" in function.plan_summary(*arrays())


@pytest.mark.parametrize("fold", [True, False])
def test_results(fold: bool) -> None:
    function = gemel.compile(fancy_func, fold=fold)
    whole = function(1, 2, 3, 4)
    assert whole.item() == 10
    assert str(whole.dtype) == "int64"
    real = function(1, 2.5, 3, 4)
    assert real.item() == 10.5
    assert str(real.dtype) == "float32"
    assert function(*arrays()).tolist() == [10.0, 12.0]
    mixed = function(np.array([1, 2]), 2, 3.5, 4)
    assert mixed.tolist() == [10.5, 11.5]


@pytest.mark.parametrize("fold", [True, False])
def test_a_plan_of_numbers_needs_no_buffers(fold: bool) -> None:
    function = gemel.compile(fancy_func, fold=fold)
    assert "1 kernel, 0 bytes" in function.plan_summary(1, 2, 3, 4)


def test_numbers_of_another_kind_are_another_program() -> None:
    function = gemel.compile(lambda a: a + a)
    assert [function(2).item(), function(2.0).item()] == [4, 4.0]
    assert str(function(2).dtype) == "int64"
    assert str(function(2.0).dtype) == "float32"
    assert str(function(True).dtype) == "bool"
    assert function.traces == 3


def test_a_graph_is_called_like_its_function() -> None:
    def named(x: Any) -> Any:
        return x * 2

    function = gemel.compile(named)
    assert function.plan_summary(np.ones(3)).startswith("named:")
    assert function.graph(np.ones(3)).name == "named"


def test_a_symbol_describes_itself() -> None:
    said: dict[str, Any] = {}

    @gemel.compile
    def function(x: Any) -> Any:
        said.update(ctx=x.ctx, device=x.device, bytes=int(x.nbytes), same=x.as_in_ctx(x.ctx) is x)
        said.update(none=x == None, other=x != None, text=x == "a")  # noqa: E711
        return np.zeros(3, ctx=x.ctx) + np.sum([x, x * 2], axis=0)

    assert function(np.array([1.0, 2.0, 3.0])).tolist() == [3, 6, 9]
    known = {"ctx": cpu(0), "device": cpu(0), "bytes": 12, "same": True}
    assert said == {**known, "none": False, "other": True, "text": False}
    with pytest.raises(TraceError, match="runs on one device"):
        gemel.compile(lambda x: x.as_in_ctx(cpu(1)))(np.ones(3))


def test_lists_of_arrays_are_arrays_without_waiting() -> None:
    x = np.array([1.0, 2.0])
    x.attach_grad()
    with autograd.record():
        np.sum([[x, x * 3], [x, [0, 1]]]).backward()
    assert x.grad.tolist() == [5, 5]
    assert np.array([np.array(1.0), 2, x[1]]).dtype == "float32"
    assert np.array([x, x], dtype="int8").tolist() == [[1, 2], [1, 2]]
