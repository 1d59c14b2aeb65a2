"""Scripting: a function's source rewritten so that `if`, `while` and `for` can be traced.

Every statement that branches becomes a call of `gemel.flow`, which decides when the function is
traced: by Python where the condition is a Python value, by an operation of the program where it is
an array. `return`, `break` and `continue` become variables that guard what comes after them.
"""

from __future__ import annotations

import ast
import inspect
import linecache
import os
import sysconfig
from collections.abc import Callable, Iterable
from functools import lru_cache
from itertools import count
from types import CellType, CodeType, FunctionType, MethodType
from typing import Any
from weakref import WeakKeyDictionary

from gemel.errors import TraceError
from gemel.flow import HIDDEN, Flow, State

FLOW, GET, PUT, STATE, VALUE, DONE = (
    HIDDEN + name for name in ("flow", "get", "put", "state", "value", "done")
)
LOOPS = (ast.While, ast.For)
SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
HERE = os.path.dirname(os.path.abspath(__file__)) + os.sep
#: Where functions lie that are taken as they are: Python's own, and installed packages'.
LIBRARIES = tuple(sysconfig.get_path(name) + os.sep for name in ("stdlib", "purelib", "platlib"))

_scripted: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()


def script(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, or bound method, with control flow that can be traced.

    Functions it calls are rewritten, too, where they are the program's own. Raises `TraceError`,
    with file and line, for what cannot be.
    """
    if isinstance(function, MethodType):
        return MethodType(script(function.__func__), function.__self__)
    if not isinstance(function, FunctionType):
        raise TraceError(f"script: {function!r} is no function with a Python source")
    found = _scripted.get(function)
    if found is None:
        found = _scripted[function] = _rewritten(function)
    return found  # type: ignore[no-any-return]


class _Scripting(Flow):
    def call(self, function: Any) -> Any:
        """What is called in a function's place: a program's own function is scripted, too."""
        plain = getattr(function, "__func__", function)
        if isinstance(plain, FunctionType) and plain not in _made and _is_own(plain):
            return script(function)
        return super().call(function)


_made: WeakKeyDictionary[Any, bool] = WeakKeyDictionary()


def _is_own(function: FunctionType) -> bool:
    """Whether a function belongs to the program, and has control flow it is worth rewriting for."""
    code = function.__code__
    if code.co_filename.startswith((HERE, *LIBRARIES)) or code.co_flags & GENERATES:
        return False
    if FLOW in code.co_freevars:  # it is defined in a scripted one
        return False
    try:
        node = _find(function)
    except TraceError:
        return False
    return any(isinstance(n, (*LOOPS, ast.If, ast.IfExp, ast.BoolOp)) for n in ast.walk(node))


GENERATES = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR

# --- the source -----------------------------------------------------------------------------


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
    found = [node for node in ast.walk(_parsed("".join(lines), code.co_filename))
             if isinstance(node, SCOPES) and _first_line(node) == code.co_firstlineno
             and getattr(node, "name", "<lambda>") == code.co_name]  # fmt: skip
    if len(found) != 1:
        what = "has changed" if not found else "has several lambdas in one line: use def"
        raise TraceError(f"script: {function.__qualname__}: {place}: its source {what}")
    return found[0]


def _first_line(node: Any) -> int:
    decorators = getattr(node, "decorator_list", [])
    return int(decorators[0].lineno if decorators else node.lineno)


def _rewritten(function: FunctionType) -> FunctionType:
    code, original = function.__code__, _find(function)
    if code.co_flags & GENERATES:
        raise TraceError(f"script: {code.co_filename}:{code.co_firstlineno}: "
                         f"{function.__qualname__} is a generator or a coroutine")  # fmt: skip
    node = _Copy().visit(original)
    if isinstance(node, ast.Lambda):
        body = ast.copy_location(ast.Return(node.body), node.body)
        node = ast.copy_location(_function("_lambda", [body], node.args), original)
    around = function.__qualname__.split(".")[-2:-1]
    owner = around[0] if around and around[0] != "<locals>" else ""
    flow = _Scripting(code.co_filename, function.__qualname__)
    _Rewriter(flow, owner).function(node)
    node.name = HIDDEN + "function"  # not its own, which may be another variable's
    free = [*code.co_freevars, FLOW]
    factory = _function(HIDDEN + "factory", [node], _arguments(free))
    module = ast.Module([ast.copy_location(factory, original)], [])
    made = _inner(compile(ast.fix_missing_locations(module), code.co_filename, "exec"), node.name)
    cells = dict(zip(code.co_freevars, function.__closure__ or (), strict=True))
    cells[FLOW] = CellType(flow)
    closure = tuple(cells[name] for name in made.co_freevars)
    made = _named(made, code.co_name)
    found = FunctionType(made, function.__globals__, function.__name__,
                         function.__defaults__, closure)  # fmt: skip
    found.__kwdefaults__, found.__qualname__ = function.__kwdefaults__, function.__qualname__
    found.__doc__, found.__module__ = function.__doc__, function.__module__
    _made[found] = True
    return found


class _Copy(ast.NodeTransformer):
    """A copy of a tree: the cached one stays as it is."""

    def generic_visit(self, node: ast.AST) -> ast.AST:
        new = type(node)(**dict(ast.iter_fields(node)))
        for name, value in ast.iter_fields(node):
            if isinstance(value, list):
                setattr(new, name, [self.visit(v) if isinstance(v, ast.AST) else v for v in value])
            elif isinstance(value, ast.AST):
                setattr(new, name, self.visit(value))
        return ast.copy_location(new, node)


def _inner(code: CodeType, name: str) -> CodeType:
    """The code of the function called `name` that another one's code makes."""
    for outer in code.co_consts:
        if isinstance(outer, CodeType) and outer.co_name == HIDDEN + "factory":
            return next(c for c in outer.co_consts if isinstance(c, CodeType) and c.co_name == name)
    raise AssertionError(name)


def _named(code: CodeType, name: str) -> CodeType:
    """The code under a name, and the parts of it that were made functions, too."""
    parts = (_named(c, name if c.co_name.startswith(HIDDEN) else c.co_name)
             if isinstance(c, CodeType) else c for c in code.co_consts)  # fmt: skip
    return code.replace(co_name=name, co_consts=tuple(parts))


# --- pieces of trees ------------------------------------------------------------------------


def _arguments(names: Iterable[str]) -> ast.arguments:
    return ast.arguments([], [ast.arg(name) for name in names], None, [], [], None, [])


def _function(name: str, body: list[ast.stmt], arguments: ast.arguments) -> Any:
    found = ast.FunctionDef(name, arguments, body or [ast.Pass()], [])
    found.type_params = []  # type: ignore[attr-defined, unused-ignore] -- from Python 3.12 on
    return found


def _load(name: str) -> Any:
    return ast.Name(name, ast.Load())


def _set(name: str, value: Any) -> ast.stmt:
    return ast.Assign([ast.Name(name, ast.Store())], value)


def _lambda(body: Any) -> Any:
    return ast.Lambda(_arguments(()), body)


def _names(*nodes: Any, stored: bool = False) -> set[str]:
    """The variables in these trees; those that are given a value. Inner scopes are their own."""
    found: set[str] = set()
    for node in nodes:
        if isinstance(node, list):
            found |= _names(*node, stored=stored)
        elif isinstance(node, ast.Name):
            found |= {node.id} if not stored or not isinstance(node.ctx, ast.Load) else set()
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            found |= {node.name} | (set() if stored else _all_names(node))
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            found |= {(item.asname or item.name).split(".")[0] for item in node.names}
        elif isinstance(node, (*COMPREHENSIONS, ast.Lambda)):
            walrus = [n.target for n in ast.walk(node) if isinstance(n, ast.NamedExpr)]
            found |= _names(*walrus, stored=stored) | (set() if stored else _all_names(node))
        elif isinstance(node, ast.AST):
            captured = getattr(node, "name", None) or getattr(node, "rest", None)
            if captured and not isinstance(node, (ast.ExceptHandler, ast.alias)):
                found.add(captured)  # a pattern's
            found |= _names(*ast.iter_child_nodes(node), stored=stored)
    return found


def _all_names(node: Any) -> set[str]:
    return {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}


def _own_nodes(body: Any) -> Iterable[Any]:
    """The nodes of a function's body, without those of functions inside."""
    for node in body if isinstance(body, list) else ast.iter_child_nodes(body):
        yield node
        if not isinstance(node, SCOPES):
            yield from _own_nodes(node)


# --- rewriting ------------------------------------------------------------------------------


class _Rewriter(ast.NodeTransformer):
    """Rewrites one function; those defined inside get one of their own."""

    def __init__(self, flow: Flow, owner: str) -> None:
        self.flow, self.owner = flow, owner
        self.numbers = count()
        self.first = ""

    def function(self, node: Any) -> Any:
        """Rewrite a definition in place."""
        arguments = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
        arguments += [a for a in (node.args.vararg, node.args.kwarg) if a is not None]
        self.parameters = {self._private(a.arg) for a in arguments}
        self.first = arguments[0].arg if arguments else ""
        for argument in arguments:
            argument.arg, argument.annotation = self._private(argument.arg), None
        node.decorator_list, node.returns = [], None
        node.args.defaults = [ast.Constant(None) for _ in node.args.defaults]
        node.args.kw_defaults = [d and ast.Constant(None) for d in node.args.kw_defaults]
        nodes = list(_own_nodes(node.body))
        self.outer = {kind: {n for s in nodes if isinstance(s, kind) for n in s.names}
                      for kind in (ast.Global, ast.Nonlocal)}  # fmt: skip
        self.ends = any(self._inside(statement, ast.Return) for statement in node.body)
        last, reaches_end = node.body[-1], not _terminates(node.body)
        body = self._lowered(node.body)
        if self.ends:
            body = [_set(DONE, ast.Constant(False)), *body]
            if reaches_end:
                body.append(self._guarded({DONE}, [_set(VALUE, ast.Constant(None))], last))
        stored = {self._private(n) for n in _names(*body, stored=True)}
        outer = set().union(*self.outer.values())
        self.local = sorted((stored | self.parameters) - outer - {FLOW})
        self.loose = stored - outer
        new = [self.visit(statement) for statement in body]
        flat = [s for item in new for s in (item if isinstance(item, list) else [item])]
        if self.ends:
            result = self.visit(ast.copy_location(_load(VALUE), last))
            flat.append(ast.copy_location(ast.Return(result), last))
        start = [_set(n, self._flow("undefined")) for n in self.local if n not in self.parameters]
        doc = flat[:1] if ast.get_docstring(node, clean=False) is not None else []
        kept = [s for s in flat[len(doc) :] if not isinstance(s, (ast.Global, ast.Nonlocal))]
        node.body = [*doc, *self._declared(outer), *start, *self._state(), *kept]
        for statement in node.body:
            if not hasattr(statement, "lineno"):
                ast.copy_location(statement, node)
        return node

    def _private(self, name: str) -> str:
        """A name as it is inside of a class."""
        hidden = self.owner and name.startswith("__") and not name.endswith("__")
        return f"_{self.owner.lstrip('_')}{name}" if hidden else name

    def _flow(self, name: str) -> Any:
        return ast.Attribute(_load(FLOW), name, ast.Load())

    def _call(self, at: Any, name: str, *arguments: Any, state: Any = None) -> Any:
        """A call of the flow's method, with the variables it concerns and the line."""
        given = list(arguments)
        if state is not None:
            concerned = sorted({self._private(n) for n in _names(*state)} & set(self.local))
            given += [_load(STATE), ast.Tuple([ast.Constant(n) for n in concerned], ast.Load())]
        found = ast.Call(self._flow(name), [*given, ast.Constant(at.lineno)], [])
        return ast.copy_location(found, at)

    def _state(self) -> list[ast.stmt]:
        """How the function's variables are read and written from outside."""
        names = self.local
        shown = ast.Dict([ast.Constant(n) for n in names], [_load(n) for n in names])
        each = [ast.Subscript(_load(HIDDEN + "values"), ast.Constant(n), ast.Load()) for n in names]
        writes = [_set(n, value) for n, value in zip(names, each, strict=True)]
        made = ast.Call(self._flow("State"), [_load(GET), _load(PUT)], [])
        return [_function(GET, [ast.Return(shown)], _arguments(())),
                _function(PUT, [*self._declared(names), *writes], _arguments((HIDDEN + "values",))),
                _set(STATE, made)]  # fmt: skip

    def _declared(self, stored: Iterable[str]) -> list[ast.stmt]:
        """The declarations a function inside needs to give these variables values."""
        wanted = set(stored)
        inner = wanted & (set(self.local) | self.outer[ast.Nonlocal])
        outside = wanted & self.outer[ast.Global]
        own = wanted >= set().union(*self.outer.values()) and not wanted & set(self.local)
        found: list[ast.stmt] = []
        if inner and (not own or self.outer[ast.Nonlocal]):
            found.append(ast.Nonlocal(sorted(inner)))
        return [*found, ast.Global(sorted(outside))] if outside else found

    # --- return, break and continue become variables ----------------------------------------

    def _inside(self, statement: Any, kind: Any) -> bool:
        """Whether a statement that is no such itself has one in it."""
        return not isinstance(statement, kind) and any(
            isinstance(n, kind) for n in _own_nodes(statement)
        ) and not isinstance(statement, SCOPES)  # fmt: skip

    def _lowered(self, body: list[Any], stop: str = "", skip: str = "") -> list[Any]:
        """The statements without jumps: `stop` and `skip` are the loop's break and continue."""
        found: list[Any] = []
        for index, statement in enumerate(body):
            rest = body[index + 1 :]
            if isinstance(statement, ast.If) and rest and jumps(statement):
                ended, other = _terminates(statement.body), _terminates(statement.orelse)
                if ended != other:  # what follows belongs to the other side
                    side = statement.orelse if ended else statement.body
                    side.extend(rest)
                    rest = []
            new, flags = self._jump(statement, stop, skip)
            found += new
            if flags and rest:
                return [*found, self._guarded(flags, self._lowered(rest, stop, skip), rest[0])]
            if not rest:
                return found
        return found

    def _guarded(self, flags: set[str], body: list[Any], at: Any) -> ast.stmt:
        """The statements where none of the flags is set."""
        names = [_load(flag) for flag in sorted(flags)]
        test = names[0] if len(names) == 1 else ast.BoolOp(ast.Or(), names)
        found = ast.If(ast.UnaryOp(ast.Not(), test), body, [])
        return ast.fix_missing_locations(ast.copy_location(found, at))

    def _jump(self, node: Any, stop: str, skip: str) -> tuple[list[Any], set[str]]:
        """A statement without jumps, and the flags it may set."""
        true = ast.Constant(True)
        new: list[Any] = [node]
        flags: set[str] = set()
        if isinstance(node, ast.Return) and self.ends:
            new, flags = [_set(VALUE, node.value or ast.Constant(None)), _set(DONE, true)], {DONE}
        elif isinstance(node, ast.Break) and stop:
            new, flags = [_set(stop, true)], {stop}
        elif isinstance(node, ast.Continue) and skip:
            new, flags = [_set(skip, true)], {skip}
        elif isinstance(node, LOOPS):
            return self._loop(node)
        elif not isinstance(node, SCOPES):
            flags = self._jumps_in(node, stop, skip)
            self._bodies(node, stop, skip)
        return [ast.fix_missing_locations(ast.copy_location(n, node)) for n in new], flags

    def _jumps_in(self, node: Any, stop: str, skip: str) -> set[str]:
        found = {flag for kind, flag in ((ast.Break, stop), (ast.Continue, skip))
                 if any(isinstance(n, kind) for n in _of_loop(node))}  # fmt: skip
        returns = self.ends and any(isinstance(n, ast.Return) for n in _own_nodes(node))
        return found | ({DONE} if returns else set())

    def _bodies(self, node: Any, stop: str, skip: str) -> None:
        """Lower the blocks of a statement."""
        for part in ("body", "orelse", "finalbody"):
            block = getattr(node, part, None)
            if isinstance(block, list) and block:
                setattr(node, part, self._lowered(block, stop, skip))
        for inner in (*getattr(node, "handlers", ()), *getattr(node, "cases", ())):
            inner.body = self._lowered(inner.body, stop, skip)

    def _loop(self, node: Any) -> tuple[list[Any], set[str]]:
        number = next(self.numbers)
        inner = [n for s in node.body for n in (s, *_of_loop(s))]
        stop = f"{HIDDEN}stop_{number}" if any(isinstance(n, ast.Break) for n in inner) else ""
        skip = f"{HIDDEN}skip_{number}" if any(isinstance(n, ast.Continue) for n in inner) else ""
        done = self._jumps_in(node, "", "") & {DONE}
        node.body = self._lowered(node.body, stop, skip)
        if skip:
            node.body.insert(0, _set(skip, ast.Constant(False)))
        node.stops = {*([stop] if stop else []), *done}
        after = self._lowered(node.orelse)
        node.orelse = []
        new = [_set(stop, ast.Constant(False))] if stop else []
        new += [_set(skip, ast.Constant(False))] if skip else []
        new.append(node)
        if after:
            new += [self._guarded(node.stops, after, node)] if node.stops else after
        return [ast.fix_missing_locations(ast.copy_location(n, node)) for n in new], done

    # --- statements -------------------------------------------------------------------------

    def _part(self, kind: str, body: list[Any], arguments: Iterable[str] = ()) -> Any:
        """A block as a function inside of the function."""
        stored = {self._private(n) for n in _names(*body, stored=True)}
        new = [s for node in body for s in _listed(self.visit(node))]
        new = [s for s in new if not isinstance(s, (ast.Global, ast.Nonlocal))]
        name = f"{HIDDEN}{kind}_{next(self.numbers)}"
        return _function(name, [*self._declared(stored), *(new or [ast.Pass()])],
                         _arguments(arguments))  # fmt: skip

    def visit_If(self, node: ast.If) -> Any:
        """A choice between two functions."""
        concerned = [node.body, node.orelse]
        sides = [self._part("then", node.body), self._part("else", node.orelse)]
        test, names = self.visit(node.test), [_load(side.name) for side in sides]
        call = self._call(node, "if_", test, *names, state=concerned)
        return [
            *(ast.copy_location(s, node) for s in sides),
            ast.copy_location(ast.Expr(call), node),
        ]

    def visit_While(self, node: Any) -> Any:
        """A test and a step as functions."""
        flags = [_load(name) for name in sorted(node.stops)]
        tests = [ast.UnaryOp(ast.Not(), flag) for flag in flags]
        test = ast.BoolOp(ast.And(), [*tests, node.test]) if tests else node.test
        ast.fix_missing_locations(ast.copy_location(test, node.test))
        concerned = [node.body, test]
        parts = [self._part("test", [ast.copy_location(ast.Return(test), node.test)])]
        parts.append(self._part("step", node.body))
        call = self._call(node, "while_", *(_load(p.name) for p in parts), state=concerned)
        return [
            *(ast.copy_location(p, node) for p in parts),
            ast.copy_location(ast.Expr(call), node),
        ]

    def visit_For(self, node: Any) -> Any:
        """What is done for each item as a function."""
        item = HIDDEN + "item"
        first = ast.copy_location(ast.Assign([node.target], _load(item)), node)
        concerned = [node.body, node.target, [_load(name) for name in node.stops]]
        part = self._part("step", [ast.fix_missing_locations(first), *node.body], (item,))
        call = self._call(node, "for_", self.visit(node.iter), _load(part.name), state=concerned)
        stops = ast.Tuple([ast.Constant(name) for name in sorted(node.stops)], ast.Load())
        call.args.insert(-1, stops)
        return [ast.copy_location(part, node), ast.copy_location(ast.Expr(call), node)]

    def visit_FunctionDef(self, node: Any) -> Any:
        """A function inside has variables of its own."""
        decorators = [self.visit(d) for d in node.decorator_list]
        defaults = [self.visit(d) for d in node.args.defaults]
        kw_defaults = [d and self.visit(d) for d in node.args.kw_defaults]
        _Rewriter(self.flow, self.owner).function(node)
        node.decorator_list = decorators
        node.args.defaults, node.args.kw_defaults = defaults, kw_defaults
        return node

    def visit_Lambda(self, node: Any) -> Any:
        """A lambda's parameters are not the function's variables."""
        hidden = {a.arg for a in ast.walk(node.args) if isinstance(a, ast.arg)}
        kept = self.local, self.loose
        self.local = [name for name in self.local if name not in hidden]
        self.loose = self.loose - hidden
        node = self.generic_visit(node)
        self.local, self.loose = kept
        return node

    def _comprehension(self, node: Any) -> Any:
        hidden = _names(*(g.target for g in node.generators), stored=True)
        kept, self.loose = self.loose, self.loose - hidden
        node = self.generic_visit(node)
        self.loose = kept
        return node

    visit_ListComp = visit_SetComp = visit_DictComp = visit_GeneratorExp = _comprehension

    def visit_ClassDef(self, node: Any) -> Any:
        """Classes stay as they are."""
        return node

    def visit_AnnAssign(self, node: Any) -> Any:
        """Without its note: the name may belong to the function around."""
        if node.value is None:
            return ast.copy_location(ast.Pass(), node)
        return self.visit(ast.copy_location(ast.Assign([node.target], node.value), node))

    def visit_AugAssign(self, node: Any) -> Any:
        """x += y: in place where x is an array, as ever."""
        if not isinstance(node.target, ast.Name):
            return self._effects(node)
        name = "i" + OPERATORS[type(node.op)]
        old = self.visit(ast.copy_location(_load(node.target.id), node.target))
        call = ast.Call(
            self._flow("inplace"), [ast.Constant(name), old, self.visit(node.value)], []
        )
        new = ast.Assign([self.visit(node.target)], call)
        return ast.fix_missing_locations(ast.copy_location(new, node))

    def visit_Delete(self, node: Any) -> Any:
        """A deleted variable has no value."""
        new = [ast.Assign([ast.Name(self._private(t.id), ast.Store())], self._flow("undefined"))
               if isinstance(t, ast.Name) else ast.Delete([self.visit(t)])
               for t in node.targets]  # fmt: skip
        return [ast.fix_missing_locations(ast.copy_location(n, node)) for n in new]

    def visit_Assert(self, node: Any) -> Any:
        """What is asserted has to be known."""
        test = self._call(node, "static", self.visit(node.test))
        return ast.copy_location(ast.Assert(test, node.msg and self.visit(node.msg)), node)

    def _effects(self, node: Any) -> Any:
        """A statement that changes more than the function's variables, or raises."""
        what = "raise" if isinstance(node, ast.Raise) else ""
        for target in _own_nodes(node):
            stored = isinstance(getattr(target, "ctx", None), ast.Store)
            if stored and isinstance(target, ast.Attribute):
                what = f"assignment to {ast.unparse(target)}"
            elif stored and isinstance(target, ast.Name) and any(
                target.id in names for names in self.outer.values()
            ):  # fmt: skip
                what = f"assignment to the outer {target.id}"
        new = self.generic_visit(node)
        if not what:
            return new
        call = ast.Expr(self._call(node, "effect", ast.Constant(what)))
        return [ast.copy_location(call, node), new]

    visit_Assign = visit_Raise = _effects

    # --- expressions ------------------------------------------------------------------------

    def visit_Name(self, node: ast.Name) -> Any:
        """A variable that may have no value is asked for it."""
        node.id = self._private(node.id)
        if not isinstance(node.ctx, ast.Load) or node.id not in self.loose:
            return node
        copied = ast.copy_location(_load(node.id), node)
        return self._call(node, "read", copied, ast.Constant(node.id))

    def visit_Attribute(self, node: ast.Attribute) -> Any:
        """Private names of a class."""
        node.attr = self._private(node.attr)
        return self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> Any:
        """What is called may be scripted, too."""
        if isinstance(node.func, ast.Name) and node.func.id == "super" and not node.args:
            node.args = [_load("__class__"), _load(self.first)]
            return ast.fix_missing_locations(node)
        node = self.generic_visit(node)  # type: ignore[assignment]
        node.func = ast.copy_location(ast.Call(self._flow("call"), [node.func], []), node.func)
        return node

    def visit_UnaryOp(self, node: ast.UnaryOp) -> Any:
        """`not` of a symbol is a symbol."""
        new = self.generic_visit(node)
        if not isinstance(node.op, ast.Not):
            return new
        return ast.copy_location(ast.Call(self._flow("not_"), [node.operand], []), node)

    def visit_BoolOp(self, node: ast.BoolOp) -> Any:
        """What comes later is computed only where it matters."""
        if _binds(node):
            return self.generic_visit(node)
        concerned = list(node.values[1:])
        first, *others = map(self.visit, node.values)
        name = "and_" if isinstance(node.op, ast.And) else "or_"
        call = self._call(node, name, first, *map(_lambda, others), state=concerned)
        *call.args, state, names, line = call.args
        pairs = (("state", state), ("names", names), ("line", line))
        call.keywords = [ast.keyword(key, value) for key, value in pairs]
        return call

    def visit_IfExp(self, node: ast.IfExp) -> Any:
        """A choice between two values."""
        if _binds(node):
            return self.generic_visit(node)
        concerned = [node.body, node.orelse]
        test, *sides = map(self.visit, (node.test, node.body, node.orelse))
        return self._call(node, "if_", test, *map(_lambda, sides), state=concerned)

    def visit_Compare(self, node: ast.Compare) -> Any:
        """a < b < c is a < b and b < c, with b computed once."""
        if len(node.ops) == 1 or _binds(node):
            return self.generic_visit(node)
        concerned = list(node.comparators)
        first, *others = map(self.visit, (node.left, *node.comparators))
        signs = [ast.Constant(COMPARISONS[type(op)]) for op in node.ops]
        pairs = [ast.Tuple(list(pair), ast.Load())
                 for pair in zip(signs, map(_lambda, others), strict=True)]  # fmt: skip
        return self._call(node, "compare", first, ast.Tuple(pairs, ast.Load()), state=concerned)


COMPARISONS = {
    ast.Lt: "lt", ast.LtE: "le", ast.Gt: "gt", ast.GtE: "ge", ast.Eq: "eq", ast.NotEq: "ne",
    ast.Is: "is_", ast.IsNot: "is_not", ast.In: "in", ast.NotIn: "not in",
}  # fmt: skip
OPERATORS = {
    ast.Add: "add", ast.Sub: "sub", ast.Mult: "mul", ast.Div: "truediv", ast.FloorDiv: "floordiv",
    ast.Mod: "mod", ast.Pow: "pow", ast.MatMult: "matmul", ast.LShift: "lshift",
    ast.RShift: "rshift", ast.BitOr: "or", ast.BitAnd: "and", ast.BitXor: "xor",
}  # fmt: skip


def _binds(node: Any) -> bool:
    return any(isinstance(n, ast.NamedExpr) for n in ast.walk(node))


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _terminates(body: list[Any]) -> bool:
    """Whether nothing behind these statements is reached."""
    last = body[-1] if body else None
    if isinstance(last, ast.If):
        return _terminates(last.body) and _terminates(last.orelse)
    if isinstance(last, ast.With):
        return _terminates(last.body)
    if isinstance(last, ast.While) and isinstance(last.test, ast.Constant) and last.test.value:
        return not any(isinstance(n, ast.Break) for s in last.body for n in (s, *_of_loop(s)))
    return isinstance(last, (ast.Return, ast.Raise, ast.Break, ast.Continue))


def jumps(node: Any) -> bool:
    """Whether a statement may leave the block it stands in."""
    if any(isinstance(n, ast.Return) for n in _own_nodes(node)):
        return True
    return any(isinstance(n, (ast.Break, ast.Continue)) for n in _of_loop(node))


def _of_loop(node: Any) -> Iterable[Any]:
    """The nodes of a statement in a loop whose jumps are that loop's own."""
    if isinstance(node, (*LOOPS, *SCOPES)):
        return
    for inner in ast.iter_child_nodes(node):
        yield inner
        yield from _of_loop(inner)


__all__ = ["State", "script"]
