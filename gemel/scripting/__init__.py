"""Scripting: a function's source rewritten so that `if`, `while` and `for` can be traced.

Every branching statement becomes a call of a method of `scripting.flow.Flow`, which decides while
the function is traced: if the condition is a Python value, Python branches; if it is an array, an
operation of the program does. `return`, `break` and `continue` become variables that guard the
statements after them.

`rewriting`, `trees`
    The new source, as a syntax tree.
`flow`, `choices`, `loops`, `values`
    What it calls while the function is traced: `Flow`, branches and loops of the program, and the
    values of variables in them.
"""

from __future__ import annotations

import ast
import inspect
import linecache
import os
import sysconfig
from collections.abc import Callable
from functools import lru_cache
from types import CellType, CodeType, FunctionType, MethodType
from typing import Any
from weakref import WeakKeyDictionary

from gemel.errors import TraceError
from gemel.scripting.flow import Flow
from gemel.scripting.rewriting import FLOW, Rewriter
from gemel.scripting.trees import LOOPS, SCOPES, arguments, definition
from gemel.scripting.values import HIDDEN

HERE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
#: The folders of functions that are not rewritten: Python's own, and installed packages.
LIBRARIES = tuple(sysconfig.get_path(name) + os.sep for name in ("stdlib", "purelib", "platlib"))

_scripted: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()


def script(function: Callable[..., Any]) -> Callable[..., Any]:
    """Rewrite a function or bound method so that its control flow can be traced.

    Functions that it calls are also rewritten if they are the program's own. Raises `TraceError`,
    with file and line, for code that cannot be rewritten.
    """
    if isinstance(function, MethodType):
        return MethodType(script(function.__func__), function.__self__)
    if not isinstance(function, FunctionType):
        raise TraceError(f"script: {function!r} is not a function with Python source code")
    found = _scripted.get(function)
    if found is None:
        found = _scripted[function] = _rewritten(function)
    return found


def own_scripted(function: Any) -> Any:
    """The scripted form of a function that is the program's own; else the function itself."""
    plain = getattr(function, "__func__", function)
    if isinstance(plain, FunctionType) and plain not in _made and _is_own(plain):
        return script(function)
    return function


class _Scripting(Flow):
    def call(self, function: Any) -> Any:
        """The function to call instead: a function of the program itself is scripted, too."""
        found = own_scripted(function)
        return found if found is not function else super().call(function)


_made: WeakKeyDictionary[Any, bool] = WeakKeyDictionary()


def _is_own(function: FunctionType) -> bool:
    """Whether a function belongs to the program, and has control flow worth rewriting."""
    code = function.__code__
    if code.co_filename.startswith((HERE, *LIBRARIES)) or code.co_flags & GENERATES:
        return False
    if FLOW in code.co_freevars:  # it is defined inside of a scripted function
        return False
    try:
        node = _find(function)
    except TraceError:
        return False
    return any(isinstance(n, (*LOOPS, ast.If, ast.IfExp, ast.BoolOp)) for n in ast.walk(node))


GENERATES = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR

# --- source code ----------------------------------------------------------------------------


@lru_cache(32)
def _parsed(text: str, file: str) -> ast.Module:
    return ast.parse(text, file)


def _find(function: FunctionType) -> Any:
    """The function's definition in its file."""
    code = function.__code__
    linecache.checkcache(code.co_filename)
    lines = linecache.getlines(code.co_filename, function.__globals__)
    place = f"{code.co_filename}:{code.co_firstlineno}"
    if not lines:
        raise TraceError(f"script: {function.__qualname__}: {place}: its source cannot be read")
    found = [
        node
        for node in ast.walk(_parsed("".join(lines), code.co_filename))
        if isinstance(node, SCOPES)
        and _first_line(node) == code.co_firstlineno
        and getattr(node, "name", "<lambda>") == code.co_name
    ]
    if len(found) != 1:
        what = "has changed" if not found else "has several lambdas in one line: use def"
        raise TraceError(f"script: {function.__qualname__}: {place}: its source {what}")
    return found[0]


def _first_line(node: Any) -> int:
    decorators = getattr(node, "decorator_list", [])
    return int(decorators[0].lineno if decorators else node.lineno)


def _rewritten(function: FunctionType) -> FunctionType:
    """A function of the rewritten source, with the closure, defaults and name of the original."""
    code, original = function.__code__, _find(function)
    if code.co_flags & GENERATES:
        raise TraceError(
            f"script: {code.co_filename}:{code.co_firstlineno}: {function.__qualname__} is a "
            "generator or a coroutine, which cannot be compiled"
        )
    node = _Copy().visit(original)
    if isinstance(node, ast.Lambda):
        body = ast.copy_location(ast.Return(node.body), node.body)
        node = ast.copy_location(definition("_lambda", [body], node.args), original)
    around = function.__qualname__.split(".")[-2:-1]
    owner = around[0] if around and around[0] != "<locals>" else ""
    flow = _Scripting(code.co_filename, function.__qualname__)
    Rewriter(flow, owner).function(node)
    node.name = HIDDEN + "function"  # its own name might be that of another variable
    free = [*code.co_freevars, FLOW]
    factory = definition(HIDDEN + "factory", [node], arguments(free))
    module = ast.Module([ast.copy_location(factory, original)], [])
    made = _inner(compile(ast.fix_missing_locations(module), code.co_filename, "exec"), node.name)
    cells = dict(zip(code.co_freevars, function.__closure__ or (), strict=True))
    cells[FLOW] = CellType(flow)
    closure = tuple(cells[name] for name in made.co_freevars)
    made = _named(made, code.co_name)
    found = FunctionType(
        made, function.__globals__, function.__name__, function.__defaults__, closure
    )
    found.__kwdefaults__, found.__qualname__ = function.__kwdefaults__, function.__qualname__
    found.__doc__, found.__module__ = function.__doc__, function.__module__
    _made[found] = True
    return found


class _Copy(ast.NodeTransformer):
    """Copies a tree, so that the cached one is not changed."""

    def generic_visit(self, node: ast.AST) -> ast.AST:
        new = type(node)(**dict(ast.iter_fields(node)))
        for name, value in ast.iter_fields(node):
            if isinstance(value, list):
                setattr(new, name, [self.visit(v) if isinstance(v, ast.AST) else v for v in value])
            elif isinstance(value, ast.AST):
                setattr(new, name, self.visit(value))
        return ast.copy_location(new, node)


def _inner(code: CodeType, name: str) -> CodeType:
    """The code of the function called `name` inside of the factory in `code`."""
    for outer in code.co_consts:
        if isinstance(outer, CodeType) and outer.co_name == HIDDEN + "factory":
            return next(c for c in outer.co_consts if isinstance(c, CodeType) and c.co_name == name)
    raise AssertionError(name)


def _named(code: CodeType, name: str) -> CodeType:
    """The code renamed, and also the blocks in it that became functions."""
    parts = (
        _named(c, name if c.co_name.startswith(HIDDEN) else c.co_name)
        if isinstance(c, CodeType)
        else c
        for c in code.co_consts
    )
    return code.replace(co_name=name, co_consts=tuple(parts))


__all__ = ["own_scripted", "script"]
