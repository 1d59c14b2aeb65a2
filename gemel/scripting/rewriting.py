"""Rewriting a function's syntax tree: every branching statement becomes a call of its `Flow`.

`return`, `break` and `continue` become variables that guard the statements after them.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable
from itertools import count
from typing import Any

from gemel.scripting.flow import Flow
from gemel.scripting.trees import (
    COMPARISONS,
    LOOPS,
    OPERATORS,
    SCOPES,
    arguments,
    assign,
    binds,
    definition,
    jumps,
    listed,
    load,
    names_in,
    of_loop,
    own_nodes,
    terminates,
    thunk,
)
from gemel.scripting.values import HIDDEN

FLOW, GET, PUT, STATE, VALUE, DONE = (
    HIDDEN + name for name in ("flow", "get", "put", "state", "value", "done")
)


class Rewriter(ast.NodeTransformer):
    """Rewrites one function; each function defined inside gets its own `Rewriter`."""

    def __init__(self, flow: Flow, owner: str) -> None:
        self.flow, self.owner = flow, owner
        self.numbers = count()
        self.first = ""

    def function(self, node: Any) -> Any:
        """Rewrite a definition in place."""
        given = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
        given += [a for a in (node.args.vararg, node.args.kwarg) if a is not None]
        self.parameters = {self._private(a.arg) for a in given}
        self.first = given[0].arg if given else ""
        for argument in given:
            argument.arg, argument.annotation = self._private(argument.arg), None
        node.decorator_list, node.returns = [], None
        node.args.defaults = [ast.Constant(None) for _ in node.args.defaults]
        node.args.kw_defaults = [d and ast.Constant(None) for d in node.args.kw_defaults]
        nodes = list(own_nodes(node.body))
        self.outer = {
            kind: {n for s in nodes if isinstance(s, kind) for n in s.names}
            for kind in (ast.Global, ast.Nonlocal)
        }
        self.ends = any(self._inside(statement, ast.Return) for statement in node.body)
        last, reaches_end = node.body[-1], not terminates(node.body)
        body = self._lowered(node.body)
        if self.ends:
            body = [assign(DONE, ast.Constant(False)), *body]
            if reaches_end:
                body.append(self._guarded({DONE}, [assign(VALUE, ast.Constant(None))], last))
        stored = {self._private(n) for n in names_in(*body, stored=True)}
        outer = set().union(*self.outer.values())
        self.local = sorted((stored | self.parameters) - outer - {FLOW})
        self.loose = stored - outer
        new = [self.visit(statement) for statement in body]
        flat = [s for item in new for s in (item if isinstance(item, list) else [item])]
        if self.ends:
            result = self.visit(ast.copy_location(load(VALUE), last))
            flat.append(ast.copy_location(ast.Return(result), last))
        start = [assign(n, self._flow("undefined")) for n in self.local if n not in self.parameters]
        doc = flat[:1] if ast.get_docstring(node, clean=False) is not None else []
        kept = [s for s in flat[len(doc) :] if not isinstance(s, (ast.Global, ast.Nonlocal))]
        node.body = [*doc, *self._declared(outer), *start, *self._state(), *kept]
        for statement in node.body:
            if not hasattr(statement, "lineno"):
                ast.copy_location(statement, node)
        return node

    def _private(self, name: str) -> str:
        """A name after the mangling of private names of classes."""
        hidden = self.owner and name.startswith("__") and not name.endswith("__")
        return f"_{self.owner.lstrip('_')}{name}" if hidden else name

    def _flow(self, name: str) -> Any:
        return ast.Attribute(load(FLOW), name, ast.Load())

    def _call(self, at: Any, name: str, *values: Any, state: Any = None) -> Any:
        """A call of a method of the flow, with the variables it concerns and the line."""
        given = list(values)
        if state is not None:
            concerned = sorted({self._private(n) for n in names_in(*state)} & set(self.local))
            given += [load(STATE), ast.Tuple([ast.Constant(n) for n in concerned], ast.Load())]
        found = ast.Call(self._flow(name), [*given, ast.Constant(at.lineno)], [])
        return ast.copy_location(found, at)

    def _state(self) -> list[ast.stmt]:
        """Statements that define how the function's variables are read and written from outside."""
        names = self.local
        shown = ast.Dict([ast.Constant(n) for n in names], [load(n) for n in names])
        each = [ast.Subscript(load(HIDDEN + "values"), ast.Constant(n), ast.Load()) for n in names]
        writes = [assign(n, value) for n, value in zip(names, each, strict=True)]
        made = ast.Call(self._flow("state"), [load(GET), load(PUT)], [])
        return [
            definition(GET, [ast.Return(shown)], arguments(())),
            definition(PUT, [*self._declared(names), *writes], arguments((HIDDEN + "values",))),
            assign(STATE, made),
        ]

    def _declared(self, stored: Iterable[str]) -> list[ast.stmt]:
        """The nonlocal and global statements an inner function needs to assign these variables."""
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
        """Whether a statement contains one of this kind but is not of this kind itself."""
        return (
            not isinstance(statement, kind)
            and any(isinstance(n, kind) for n in own_nodes(statement))
            and not isinstance(statement, SCOPES)
        )

    def _lowered(self, body: list[Any], stop: str = "", skip: str = "") -> list[Any]:
        """The statements without jumps; `stop` and `skip` are the flags of break and continue."""
        found: list[Any] = []
        for index, statement in enumerate(body):
            rest = body[index + 1 :]
            if isinstance(statement, ast.If) and rest and jumps(statement):
                ended, other = terminates(statement.body), terminates(statement.orelse)
                if ended != other:  # the following statements belong to the side that does not end
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
        """The statements, run only if none of the flags is set."""
        names = [load(flag) for flag in sorted(flags)]
        test = names[0] if len(names) == 1 else ast.BoolOp(ast.Or(), names)
        found = ast.If(ast.UnaryOp(ast.Not(), test), body, [])
        return ast.fix_missing_locations(ast.copy_location(found, at))

    def _jump(self, node: Any, stop: str, skip: str) -> tuple[list[Any], set[str]]:
        """A statement rewritten without jumps, and the flags it may set."""
        true = ast.Constant(True)
        new: list[Any] = [node]
        flags: set[str] = set()
        if isinstance(node, ast.Return) and self.ends:
            new, flags = (
                [assign(VALUE, node.value or ast.Constant(None)), assign(DONE, true)],
                {DONE},
            )
        elif isinstance(node, ast.Break) and stop:
            new, flags = [assign(stop, true)], {stop}
        elif isinstance(node, ast.Continue) and skip:
            new, flags = [assign(skip, true)], {skip}
        elif isinstance(node, LOOPS):
            return self._loop(node)
        elif not isinstance(node, SCOPES):
            flags = self._jumps_in(node, stop, skip)
            self._bodies(node, stop, skip)
        return [ast.fix_missing_locations(ast.copy_location(n, node)) for n in new], flags

    def _jumps_in(self, node: Any, stop: str, skip: str) -> set[str]:
        found = {
            flag
            for kind, flag in ((ast.Break, stop), (ast.Continue, skip))
            if any(isinstance(n, kind) for n in of_loop(node))
        }
        returns = self.ends and any(isinstance(n, ast.Return) for n in own_nodes(node))
        return found | ({DONE} if returns else set())

    def _bodies(self, node: Any, stop: str, skip: str) -> None:
        """Rewrite the blocks of a statement without jumps."""
        for part in ("body", "orelse", "finalbody"):
            block = getattr(node, part, None)
            if isinstance(block, list) and block:
                setattr(node, part, self._lowered(block, stop, skip))
        for inner in (*getattr(node, "handlers", ()), *getattr(node, "cases", ())):
            inner.body = self._lowered(inner.body, stop, skip)

    def _loop(self, node: Any) -> tuple[list[Any], set[str]]:
        number = next(self.numbers)
        inner = [n for s in node.body for n in (s, *of_loop(s))]
        stop = f"{HIDDEN}stop_{number}" if any(isinstance(n, ast.Break) for n in inner) else ""
        skip = f"{HIDDEN}skip_{number}" if any(isinstance(n, ast.Continue) for n in inner) else ""
        done = self._jumps_in(node, "", "") & {DONE}
        node.body = self._lowered(node.body, stop, skip)
        if skip:
            node.body.insert(0, assign(skip, ast.Constant(False)))
        node.stops = {*([stop] if stop else []), *done}
        after = self._lowered(node.orelse)
        node.orelse = []
        new = [assign(stop, ast.Constant(False))] if stop else []
        new += [assign(skip, ast.Constant(False))] if skip else []
        new.append(node)
        if after:
            new += [self._guarded(node.stops, after, node)] if node.stops else after
        return [ast.fix_missing_locations(ast.copy_location(n, node)) for n in new], done

    # --- statements -------------------------------------------------------------------------

    def _part(self, kind: str, body: list[Any], given: Iterable[str] = ()) -> Any:
        """A block as an inner function."""
        stored = {self._private(n) for n in names_in(*body, stored=True)}
        new = [s for node in body for s in listed(self.visit(node))]
        new = [s for s in new if not isinstance(s, (ast.Global, ast.Nonlocal))]
        name = f"{HIDDEN}{kind}_{next(self.numbers)}"
        return definition(name, [*self._declared(stored), *(new or [ast.Pass()])], arguments(given))

    def visit_If(self, node: ast.If) -> Any:
        """`if` becomes a choice between two functions."""
        concerned = [node.body, node.orelse]
        sides = [self._part("then", node.body), self._part("else", node.orelse)]
        test, names = self.visit(node.test), [load(side.name) for side in sides]
        call = self._call(node, "if_", test, *names, state=concerned)
        return [
            *(ast.copy_location(s, node) for s in sides),
            ast.copy_location(ast.Expr(call), node),
        ]

    def visit_While(self, node: Any) -> Any:
        """`while` becomes a test and a step, as functions."""
        flags = [load(name) for name in sorted(node.stops)]
        tests = [ast.UnaryOp(ast.Not(), flag) for flag in flags]
        test = ast.BoolOp(ast.And(), [*tests, node.test]) if tests else node.test
        ast.fix_missing_locations(ast.copy_location(test, node.test))
        concerned = [node.body, test]
        parts = [self._part("test", [ast.copy_location(ast.Return(test), node.test)])]
        parts.append(self._part("step", node.body))
        call = self._call(node, "while_", *(load(p.name) for p in parts), state=concerned)
        return [
            *(ast.copy_location(p, node) for p in parts),
            ast.copy_location(ast.Expr(call), node),
        ]

    def visit_For(self, node: Any) -> Any:
        """`for` becomes a function that is called for each item."""
        item = HIDDEN + "item"
        first = ast.copy_location(ast.Assign([node.target], load(item)), node)
        concerned = [node.body, node.target, [load(name) for name in node.stops]]
        part = self._part("step", [ast.fix_missing_locations(first), *node.body], (item,))
        call = self._call(node, "for_", self.visit(node.iter), load(part.name), state=concerned)
        stops = ast.Tuple([ast.Constant(name) for name in sorted(node.stops)], ast.Load())
        call.args.insert(-1, stops)
        return [ast.copy_location(part, node), ast.copy_location(ast.Expr(call), node)]

    def visit_FunctionDef(self, node: Any) -> Any:
        """An inner function has its own variables and is rewritten separately."""
        decorators = [self.visit(d) for d in node.decorator_list]
        defaults = [self.visit(d) for d in node.args.defaults]
        kw_defaults = [d and self.visit(d) for d in node.args.kw_defaults]
        Rewriter(self.flow, self.owner).function(node)
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
        hidden = names_in(*(g.target for g in node.generators), stored=True)
        kept, self.loose = self.loose, self.loose - hidden
        node = self.generic_visit(node)
        self.loose = kept
        return node

    def visit_ClassDef(self, node: Any) -> Any:
        """Classes stay as they are."""
        return node

    def visit_AnnAssign(self, node: Any) -> Any:
        """Drop the annotation, because the name may belong to the outer function."""
        if node.value is None:
            return ast.copy_location(ast.Pass(), node)
        return self.visit(ast.copy_location(ast.Assign([node.target], node.value), node))

    def visit_AugAssign(self, node: Any) -> Any:
        """`x += y`, which stays in place if x is an array."""
        if not isinstance(node.target, ast.Name):
            return self._effects(node)
        name = "i" + OPERATORS[type(node.op)]
        old = self.visit(ast.copy_location(load(node.target.id), node.target))
        call = ast.Call(
            self._flow("inplace"), [ast.Constant(name), old, self.visit(node.value)], []
        )
        new = ast.Assign([self.visit(node.target)], call)
        return ast.fix_missing_locations(ast.copy_location(new, node))

    def visit_Delete(self, node: Any) -> Any:
        """`del x` becomes the assignment of "undefined"."""
        new = [
            ast.Assign([ast.Name(self._private(t.id), ast.Store())], self._flow("undefined"))
            if isinstance(t, ast.Name)
            else ast.Delete([self.visit(t)])
            for t in node.targets
        ]
        return [ast.fix_missing_locations(ast.copy_location(n, node)) for n in new]

    def visit_Assert(self, node: Any) -> Any:
        """The condition of an assertion must be known while tracing."""
        test = self._call(node, "static", self.visit(node.test))
        return ast.copy_location(ast.Assert(test, node.msg and self.visit(node.msg)), node)

    def _effects(self, node: Any) -> Any:
        """Guard a statement that changes more than the function's variables, or raises."""
        what = "raise" if isinstance(node, ast.Raise) else ""
        for target in own_nodes(node):
            stored = isinstance(getattr(target, "ctx", None), ast.Store)
            if stored and isinstance(target, ast.Attribute):
                what = f"assignment to {ast.unparse(target)}"
            elif (
                stored
                and isinstance(target, ast.Name)
                and any(target.id in names for names in self.outer.values())
            ):
                what = f"assignment to the outer {target.id}"
        new = self.generic_visit(node)
        if not what:
            return new
        call = ast.Expr(self._call(node, "effect", ast.Constant(what)))
        return [ast.copy_location(call, node), new]

    # --- expressions ------------------------------------------------------------------------

    def visit_Name(self, node: ast.Name) -> Any:
        """Reading a variable that may have no value is checked."""
        node.id = self._private(node.id)
        if not isinstance(node.ctx, ast.Load) or node.id not in self.loose:
            return node
        copied = ast.copy_location(load(node.id), node)
        return self._call(node, "read", copied, ast.Constant(node.id))

    def visit_Attribute(self, node: ast.Attribute) -> Any:
        """Mangle private names of a class."""
        node.attr = self._private(node.attr)
        return self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> Any:
        """The called function may be scripted, too."""
        if isinstance(node.func, ast.Name) and node.func.id == "super" and not node.args:
            node.args = [load("__class__"), load(self.first)]
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
        """`and` and `or` compute later operands only if they matter."""
        if binds(node):
            return self.generic_visit(node)
        concerned = list(node.values[1:])
        first, *others = map(self.visit, node.values)
        name = "and_" if isinstance(node.op, ast.And) else "or_"
        call = self._call(node, name, first, *map(thunk, others), state=concerned)
        *call.args, state, names, line = call.args
        pairs = (("state", state), ("names", names), ("line", line))
        call.keywords = [ast.keyword(key, value) for key, value in pairs]
        return call

    def visit_IfExp(self, node: ast.IfExp) -> Any:
        """A conditional expression becomes a choice between two functions."""
        if binds(node):
            return self.generic_visit(node)
        concerned = [node.body, node.orelse]
        test, *sides = map(self.visit, (node.test, node.body, node.orelse))
        return self._call(node, "if_", test, *map(thunk, sides), state=concerned)

    def visit_Compare(self, node: ast.Compare) -> Any:
        """`a < b < c` becomes `a < b and b < c`, with b computed once."""
        if len(node.ops) == 1 or binds(node):
            return self.generic_visit(node)
        concerned = list(node.comparators)
        first, *others = map(self.visit, (node.left, *node.comparators))
        signs = [ast.Constant(COMPARISONS[type(op)]) for op in node.ops]
        pairs: list[Any] = [
            ast.Tuple(list(pair), ast.Load())
            for pair in zip(signs, map(thunk, others), strict=True)
        ]
        return self._call(node, "compare", first, ast.Tuple(pairs, ast.Load()), state=concerned)


for _kind in ("ListComp", "SetComp", "DictComp", "GeneratorExp"):
    setattr(Rewriter, f"visit_{_kind}", Rewriter._comprehension)
for _kind in ("Assign", "Raise"):
    setattr(Rewriter, f"visit_{_kind}", Rewriter._effects)

__all__ = ["FLOW", "Rewriter"]
