"""Writes the reference: a page for each public function, made from its declaration.

    python tools/reference.py FOLDER

Each page has the signature, the description, the dtypes, whether there is a gradient, what computes
the function, its names in other standards, and an example with the output it had when the page was
written.
"""

from __future__ import annotations

import contextlib
import inspect
import io
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from gemel import np, npx
from gemel.dtype import DTYPES
from gemel.ir.late import load
from gemel.ir.methods import REGISTRY
from gemel.ir.op import Op
from gemel.ir.op_kinds import Composite, Elementwise
from gemel.ir.public import NAMESPACES
from gemel.spec import Spec

load()  # also the operations that are otherwise imported on first use

#: Arguments for derived examples, in the order they are tried: tables, numbers, counts, masks.
OPERANDS = (
    ("np.array([[1.0, 2.0], [3.0, 4.0]])", "np.array([[2.0, 1.0], [1.0, 0.5]])"),
    ("np.array([0.25, 0.5, 1.0])", "np.array([2.0, 0.5, 4.0])", "np.array([1.0, 0.0, -1.0])"),
    ("np.array([6, 5, 4])", "np.array([1, 2, 2])", "np.array([2, 2, 2])"),
    ("np.array([True, True, False])", "np.array([True, False, False])"),
)
#: The arguments of derived examples for parameters without a default, by name.
ARGUMENTS = {
    "arrays": "[np.array([1.0, 2.0]), np.array([3.0, 4.0])]",
    "axis": "0",
    "axis1": "0",
    "axis2": "1",
    "depth": "3",
    "fill_value": "7",
    "file": "'example.params'",
    "index": "np.array([1, 0])",
    "indices": "np.array([1, 0])",
    "indices_or_sections": "2",
    "n": "3",
    "newshape": "(4, 1)",
    "shape": "(2, 2)",
    "start": "3",
    "stop": "5",
    "value": "[[1.0, 2.0], [3.0, 4.0]]",
}


class Example(NamedTuple):
    """A call and the output it printed."""

    code: str
    printed: str


def public() -> Iterator[tuple[str, str, Any]]:
    """Namespace, name and value of each public function."""
    for namespace, held in NAMESPACES.items():
        for name, value in sorted(held.items()):
            if not inspect.isclass(value):
                yield namespace, name, value


def operation(value: Any) -> Op | None:
    """The operation that a public function is or stands for; None if there is none."""
    found = value if isinstance(value, Op) else REGISTRY.get(value.__name__)
    own = isinstance(found, Op) and found.public and (found is value or _is_facade(found, value))
    return found if own else None


def _is_facade(op: Op, value: Any) -> bool:
    return NAMESPACES[op.public].get(op.name) is value


# --- examples -------------------------------------------------------------------------------


def written(value: Any) -> str:
    """The code of the example in a docstring: the lines that begin with ``>>>`` or ``...``."""
    lines = inspect.cleandoc(value.__doc__ or "").splitlines()
    return "\n".join(line[4:] for line in lines if line.startswith((">>> ", "... ")))


def derived(namespace: str, name: str, value: Any) -> Iterator[str]:
    """Calls of a function that may work, with arguments chosen by the names of its parameters."""
    needed = [
        "*" if parameter.kind is parameter.VAR_POSITIONAL else parameter.name
        for parameter in inspect.signature(value).parameters.values()
        if parameter.default is parameter.empty and parameter.kind is not parameter.VAR_KEYWORD
    ]
    # Elementwise operations try a row first, because their output is easier to read on a row.
    first = 1 if isinstance(operation(value), Elementwise) else 0
    for operands in (*OPERANDS[first:], *OPERANDS[:first]):
        arrays = iter(operands)
        given = [ARGUMENTS.get(each) or next(arrays, "") for each in needed]
        yield f"{namespace}.{name}({', '.join(given)})"


def run(code: str) -> str:
    """The output of an example as a Python prompt shows it. Raises whatever the example raises."""
    scope = {"np": np, "npx": npx}
    *before, last = code.splitlines()
    output = io.StringIO()
    try:
        with contextlib.redirect_stdout(output):
            for line in before:
                exec(line, scope)
            found = eval(last, scope)
    finally:
        npx.reset_np()  # some examples call set_np
    if found is not None:
        print(repr(found), file=output)
    return output.getvalue().rstrip()


def example(namespace: str, name: str, value: Any) -> Example | None:
    """The example in the function's docstring, else the first derived call that works."""
    own = written(value)
    if own:
        return Example(own, run(own))
    for code in derived(namespace, name, value):
        try:
            return Example(code, run(code))
        except (AttributeError, OSError, TypeError, ValueError, SyntaxError):
            continue
    return None


# --- pages ----------------------------------------------------------------------------------


def dtypes(op: Op) -> str:
    """The dtypes of results, by the dtype of all inputs; empty if it alone does not decide."""
    groups: dict[str, list[str]] = {}
    for dtype in DTYPES if not op.dynamic else ():
        try:
            specs = op.infer(*[Spec((2, 2), dtype)] * max(op.required, 1), **op.complete({}))
        except (TypeError, ValueError):
            continue
        result = ", ".join(spec.dtype.name for spec in specs)
        groups.setdefault(result, []).append(dtype.name)
    same = [name for result, names in groups.items() for name in names if name == result]
    lines = [f"of themselves: {', '.join(same)}"] if same else []
    lines += [
        f"{result}: of {', '.join(n for n in names if n != result)}"
        for result, names in groups.items()
        if names != [result]
    ]
    return "; ".join(lines)


def computed(op: Op) -> str:
    """What computes an operation: a compiled kernel or NumPy."""
    if op.dynamic:
        return "by NumPy; the call waits, since the shape of the result depends on values"
    if not op.has_kernel:
        return "by NumPy, asynchronously"
    return "compiled, written over other operations" if isinstance(op, Composite) else "compiled"


def gradient(op: Op) -> str:
    """Whether an operation has a gradient, and where that comes from."""
    if op.differentiable:
        return "yes"
    return "yes, that of what it is written over" if isinstance(op, Composite) else "no"


def facts(op: Op | None) -> Iterator[str]:
    """The lines of a page that list facts about its operation."""
    if op is None:
        yield "- computed: by the functions it is written over"
        return
    results = dtypes(op)
    if results:
        yield f"- dtypes: {results}"
    yield f"- gradient: {gradient(op)}"
    yield f"- computed: {computed(op)}"
    for standard, name in sorted(op.names.items()):
        yield f"- in {standard.upper()}: `{name}`"


def page(namespace: str, name: str, value: Any) -> str:
    """The page of one function."""
    signature = str(inspect.signature(value)).replace("'", "").replace("Array", "ndarray")
    meaning = inspect.cleandoc(value.__doc__ or "").split("\n>>> ")[0].rstrip()
    lines = [f"# {namespace}.{name}", "", f"    {namespace}.{name}{signature}", "", meaning, ""]
    lines += facts(operation(value))
    shown = example(namespace, name, value)
    if shown is not None:
        code = shown.code.splitlines()
        lines += ["", "```", *(f">>> {line}" for line in code), shown.printed, "```"]
    return "\n".join(lines) + "\n"


def by_numpy() -> str:
    """A text that lists gemel's operations without a kernel, and which of them wait for inputs."""
    table = [op for op in REGISTRY.values() if isinstance(op, Op) and not op.has_kernel]
    own = [op for op in table if op.function.__module__.startswith("gemel.ops")]
    without = sorted(f"`{op.name}`" for op in own if not op.dynamic)
    waiting = sorted(f"`{op.name}`" for op in own if op.dynamic)
    return (
        f"As steps of programs, asynchronously: {', '.join(without)}.\n\n"
        f"At once, after waiting for what decides the shape: {', '.join(waiting)}.\n\n"
        "And all that computes with complex numbers, which kernels only move."
    )


def main(folder: Path) -> None:
    """Write the pages and an index."""
    listed = ["# Reference", ""]
    for namespace, name, value in public():
        path = folder / namespace / f"{name}.md"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(page(namespace, name, value))
        meaning = inspect.cleandoc(value.__doc__ or "").split("\n")[0]
        listed.append(f"- [{namespace}.{name}]({namespace}/{name}.md): {meaning}")
    count = len(listed) - 2
    listed += ["", "## Done by NumPy", "", by_numpy()]
    (folder / "index.md").write_text("\n".join(listed) + "\n")
    print(f"{count} pages in {folder}")


if __name__ == "__main__":
    folder = Path(sys.argv[1]).resolve()
    with tempfile.TemporaryDirectory() as scratch:  # some examples write files
        os.chdir(scratch)
        main(folder)
        os.chdir(folder)
