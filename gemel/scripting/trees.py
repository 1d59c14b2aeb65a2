"""Pieces of syntax trees: made, and asked which variables and jumps they have."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from typing import Any

LOOPS = (ast.While, ast.For)
SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


def arguments(names: Iterable[str]) -> ast.arguments:
    """Parameters with these names."""
    return ast.arguments([], [ast.arg(name) for name in names], None, [], [], None, [])


def definition(name: str, body: list[ast.stmt], arguments: ast.arguments) -> Any:
    """A function with that body."""
    found = ast.FunctionDef(name, arguments, body or [ast.Pass()], [])
    setattr(found, "type_params", [])  # noqa: B010 -- Python 3.12 asks for it, others lack it
    return found


def load(name: str) -> Any:
    """The value of a variable."""
    return ast.Name(name, ast.Load())


def assign(name: str, value: Any) -> ast.stmt:
    """A variable given a value."""
    return ast.Assign([ast.Name(name, ast.Store())], value)


def thunk(body: Any) -> Any:
    """A function without parameters that gives the value of an expression."""
    return ast.Lambda(arguments(()), body)


def names_in(*nodes: Any, stored: bool = False) -> set[str]:
    """The variables in these trees; those that are given a value. Inner scopes are their own."""
    found: set[str] = set()
    for node in nodes:
        if isinstance(node, list):
            found |= names_in(*node, stored=stored)
        elif isinstance(node, ast.Name):
            found |= {node.id} if not stored or not isinstance(node.ctx, ast.Load) else set()
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            found |= {node.name} | (set() if stored else _all_names(node))
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            found |= {(item.asname or item.name).split(".")[0] for item in node.names}
        elif isinstance(node, (*COMPREHENSIONS, ast.Lambda)):
            walrus = [n.target for n in ast.walk(node) if isinstance(n, ast.NamedExpr)]
            found |= names_in(*walrus, stored=stored) | (set() if stored else _all_names(node))
        elif isinstance(node, ast.AST):
            captured = getattr(node, "name", None) or getattr(node, "rest", None)
            if captured and not isinstance(node, (ast.ExceptHandler, ast.alias)):
                found.add(captured)  # a pattern's
            found |= names_in(*ast.iter_child_nodes(node), stored=stored)
    return found


def _all_names(node: Any) -> set[str]:
    return {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}


def own_nodes(body: Any) -> Iterable[Any]:
    """The nodes of a function's body, without those of functions inside."""
    for node in body if isinstance(body, list) else ast.iter_child_nodes(body):
        yield node
        if not isinstance(node, SCOPES):
            yield from own_nodes(node)


OPERATORS = {
    ast.Add: "add",
    ast.Sub: "sub",
    ast.Mult: "mul",
    ast.Div: "truediv",
    ast.FloorDiv: "floordiv",
    ast.Mod: "mod",
    ast.Pow: "pow",
    ast.MatMult: "matmul",
    ast.LShift: "lshift",
    ast.RShift: "rshift",
    ast.BitOr: "or",
    ast.BitAnd: "and",
    ast.BitXor: "xor",
}


def binds(node: Any) -> bool:
    """Whether an expression gives variables values."""
    return any(isinstance(n, ast.NamedExpr) for n in ast.walk(node))


def listed(value: Any) -> list[Any]:
    """One statement, or several, as a list."""
    return value if isinstance(value, list) else [value]


def terminates(body: list[Any]) -> bool:
    """Whether nothing behind these statements is reached."""
    last = body[-1] if body else None
    if isinstance(last, ast.If):
        return terminates(last.body) and terminates(last.orelse)
    if isinstance(last, ast.With):
        return terminates(last.body)
    if isinstance(last, ast.While) and isinstance(last.test, ast.Constant) and last.test.value:
        return not any(isinstance(n, ast.Break) for s in last.body for n in (s, *of_loop(s)))
    return isinstance(last, (ast.Return, ast.Raise, ast.Break, ast.Continue))


def jumps(node: Any) -> bool:
    """Whether a statement may leave the block it stands in."""
    if any(isinstance(n, ast.Return) for n in own_nodes(node)):
        return True
    return any(isinstance(n, (ast.Break, ast.Continue)) for n in of_loop(node))


def of_loop(node: Any) -> Iterable[Any]:
    """The nodes of a statement in a loop whose jumps are that loop's own."""
    if isinstance(node, (*LOOPS, *SCOPES)):
        return
    for inner in ast.iter_child_nodes(node):
        yield inner
        yield from of_loop(inner)


COMPARISONS = {
    ast.Lt: "lt",
    ast.LtE: "le",
    ast.Gt: "gt",
    ast.GtE: "ge",
    ast.Eq: "eq",
    ast.NotEq: "ne",
    ast.Is: "is_",
    ast.IsNot: "is_not",
    ast.In: "in",
    ast.NotIn: "not in",
}
