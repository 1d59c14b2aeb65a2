"""Running unedited scripts and notebooks that import `mxnet`.

A script runs as `__main__`, with its own arguments and folder, as with `python script.py`. The
traceback of an exception starts at the script's own first line. A notebook needs no Jupyter: its
code cells run one after the other in one namespace.
"""

from __future__ import annotations

import ast
import asyncio
import inspect
import json
import linecache
import os
import sys
import traceback
from collections.abc import Iterator
from functools import cache
from types import ModuleType
from typing import Any

from gemel import as_mxnet  # noqa: F401 -- from here on mxnet is gemel
from gemel.command import magics
from gemel.errors import GemelError
from gemel.process import tracebacks


def run(file: str, arguments: list[str]) -> int:
    """Run a script or a notebook as the program of this process; returns its exit status.

    An exception of a script is passed on. An exception in a cell ends the notebook, is shown, and
    makes the status 1.
    """
    path = os.path.abspath(file)
    if not os.path.isfile(path):
        print(f"gemel run: there is no file {file!r}", file=sys.stderr)
        return 2
    sys.argv = [file, *arguments]
    sys.path[0] = os.path.dirname(path)  # was the folder Python was started in
    main = ModuleType("__main__")
    sys.modules["__main__"] = main
    if path.endswith(".ipynb"):
        return run_notebook(path, main)
    main.__file__ = path
    with open(path, "rb") as source:
        program = source.read()
    start_tracebacks_at(path)
    exec(compile(program, path, "exec"), vars(main))
    return 0


def start_tracebacks_at(path: str) -> None:
    """Show exceptions without the frames that led to the program's own first line."""
    shown_before = sys.excepthook

    def show(kind: type[BaseException], error: BaseException, _: Any) -> None:
        begin_at(path, error)
        shown_before(kind, error, error.__traceback__)

    sys.excepthook = show


def begin_at(path: str, error: BaseException) -> None:
    """Remove the part of an exception's traceback before a file's first line."""
    first = error.__traceback__
    while first is not None and first.tb_frame.f_code.co_filename != path:
        first = first.tb_next
    if first is not None or isinstance(error, (SyntaxError, GemelError)):
        error.__traceback__ = first


# --- notebooks ------------------------------------------------------------------------------


def run_notebook(path: str, main: ModuleType) -> int:
    """Run the code cells of a notebook in the module's namespace; returns 0, or 1 after an
    exception.

    As after a script, failures of operations that nothing has raised are shown when the process
    ends, and decide its status. A later cell may still read the array.
    """
    try:
        cells = list(code_cells(path))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        print(f"gemel run: {path} is no notebook: {error!r}", file=sys.stderr)
        return 2
    os.environ.setdefault("MPLBACKEND", "agg")  # figures have no window
    scope = vars(main)
    scope.update({"__name__": "__main__", "display": display, "In": [""], "Out": {}})
    for number, source in enumerate(cells, 1):
        name = f"{path} In [{number}]"
        scope["In"].append(source)
        try:
            value = run_cell(source, scope, name)
            if value is not None:
                remember(value, number, scope)
                display(value)
        except SystemExit:
            raise
        except BaseException as error:
            begin_at(name, error)
            tracebacks.shorten(error)
            traceback.print_exception(error)
            return 130 if isinstance(error, KeyboardInterrupt) else 1
        finally:
            sys.stdout.flush()
    return 0


def code_cells(path: str) -> Iterator[str]:
    """The sources of the code cells of a notebook file, of format 4 or 3."""
    with open(path, encoding="utf-8-sig") as file:  # some editors begin it with a mark
        book = json.load(file)
    sheets = book.get("worksheets", [book])
    for cell in (cell for sheet in sheets for cell in sheet["cells"]):
        if cell["cell_type"] == "code":
            source = cell["source"] if "source" in cell else cell["input"]
            yield source if isinstance(source, str) else "".join(source)


def run_cell(source: str, scope: dict[str, Any], name: str = "<cell>") -> Any:
    """Run a cell; returns the value of its last line if that is an expression, else None.

    `name` is the cell's name in tracebacks, which show its lines. As in Jupyter, a semicolon at the
    end hides the value, `await` needs no function, and what is not Python is translated
    (`gemel.command.magics`).
    """
    magics.enter(scope)
    text = magics.plain(source)
    linecache.cache[name] = len(text), None, text.splitlines(keepends=True), name
    tree = ast.parse(text, name)
    last = tree.body[-1] if tree.body and not text.rstrip().endswith(";") else None
    with magics.captured(source, scope) as is_captured:
        if not isinstance(last, ast.Expr):
            return execute(tree, scope, name)
        tree.body.pop()
        execute(tree, scope, name)
        value = execute(ast.Expression(last.value), scope, name)
        if is_captured and value is not None:
            display(value)
        return None if is_captured else value


def execute(tree: ast.Module | ast.Expression, scope: dict[str, Any], name: str) -> Any:
    """Run a part of a cell, which may wait for coroutines; returns the value of an expression."""
    mode = "exec" if isinstance(tree, ast.Module) else "eval"
    code = compile(tree, name, mode, flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    found = eval(code, scope)
    return loop().run_until_complete(found) if code.co_flags & inspect.CO_COROUTINE else found


@cache
def loop() -> asyncio.AbstractEventLoop:
    """The event loop of all cells: tasks that one has begun go on while another waits."""
    return asyncio.new_event_loop()


def remember(value: Any, number: int, scope: dict[str, Any]) -> None:
    """Give a notebook the value of a cell under Jupyter's names: `_`, `_5` and `Out[5]`, and `__`
    and `___` for those before it."""
    scope["Out"][number] = scope[f"_{number}"] = value
    scope["___"], scope["__"], scope["_"] = scope.get("__", ""), scope.get("_", ""), value


def display(*values: Any) -> None:
    """The text that a notebook shows for values."""
    for value in values:
        print(repr(value))


__all__ = ["run", "run_cell", "run_notebook"]
