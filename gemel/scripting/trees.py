"""Creating pieces of syntax trees, and finding their variables and jumps."""

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
    """The definition of a function with this body."""
    found = ast.FunctionDef(name, arguments, body or [ast.Pass()], [])
    setattr(found, "type_params", [])  # noqa: B010 -- Python 3.12 needs it, older ones lack it
    return found


def load(name: str) -> Any:
    """An expression that reads a variable."""
    return ast.Name(name, ast.Load())


def assign(name: str, value: Any) -> ast.stmt:
    """A statement that assigns a value to a variable."""
    return ast.Assign([ast.Name(name, ast.Store())], value)


def thunk(body: Any) -> Any:
    """A function without parameters that returns the value of an expression."""
    return ast.Lambda(arguments(()), body)


def names_in(*nodes: Any, stored: bool = False) -> set[str]:
    """The variables in these trees, or only the assigned ones if `stored`.

    Inner scopes keep their own variables.
    """
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
                found.add(captured)  # the name in a pattern
            found |= names_in(*ast.iter_child_nodes(node), stored=stored)
    return found


def _all_names(node: Any) -> set[str]:
    return {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}


def own_nodes(body: Any) -> Iterable[Any]:
    """The nodes of a function's body, without those of inner functions."""
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
    """Whether an expression assigns variables (`:=`)."""
    return any(isinstance(n, ast.NamedExpr) for n in ast.walk(node))


def listed(value: Any) -> list[Any]:
    """One or several statements as a list."""
    return value if isinstance(value, list) else [value]


def terminates(body: list[Any]) -> bool:
    """Whether control never reaches the end of these statements."""
    last = body[-1] if body else None
    if isinstance(last, ast.If):
        return terminates(last.body) and terminates(last.orelse)
    if isinstance(last, ast.With):
        return terminates(last.body)
    if isinstance(last, ast.While) and isinstance(last.test, ast.Constant) and last.test.value:
        return not any(isinstance(n, ast.Break) for s in last.body for n in (s, *of_loop(s)))
    return isinstance(last, (ast.Return, ast.Raise, ast.Break, ast.Continue))


def jumps(node: Any) -> bool:
    """Whether a statement may leave its block."""
    if any(isinstance(n, ast.Return) for n in own_nodes(node)):
        return True
    return any(isinstance(n, (ast.Break, ast.Continue)) for n in of_loop(node))


def of_loop(node: Any) -> Iterable[Any]:
    """The nodes of a statement in a loop whose break and continue refer to that loop."""
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
