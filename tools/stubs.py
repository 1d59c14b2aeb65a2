"""Writes the type stubs of `np`, `npx` and the methods of arrays, which are filled at run time.

    python tools/stubs.py FOLDER

FOLDER is the package's source. What these modules contain comes from the declarations of the
operations, so type checkers and editors cannot see it in the source. They read the stubs instead.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gemel import np, npx
from gemel.dtype import DType
from gemel.ir.array_methods import ArrayMethods
from gemel.ir.late import load
from gemel.ir.public import NAMESPACES

load()  # also the operations that are otherwise imported on first use

HEAD = '"""{title}\n\nWritten by `make stubs`: change what is declared instead.\n"""\n\n'
#: The types that signatures may name: module and name.
TYPES = (
    ("collections.abc", "Callable"),
    ("collections.abc", "Iterable"),
    ("collections.abc", "Iterator"),
    ("collections.abc", "Sequence"),
    ("gemel.device", "Device"),
    ("gemel.dtype", "DType"),
    ("gemel.ndarray", "ndarray"),
    ("gemel.np.types", "FloatInfo"),
    ("gemel.np.types", "IntegerInfo"),
    ("gemel.ops.decomposing", "EigResult"),
    ("gemel.ops.decomposing", "EighResult"),
    ("gemel.ops.solving", "SlogdetResult"),
    ("gemel.ops.sorting", "UniqueAll"),
    ("gemel.ops.sorting", "UniqueCounts"),
    ("gemel.ops.sorting", "UniqueInverse"),
)


class Verbatim(str):
    """Text that `str(signature)` shows without quotes."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def annotation(found: Any, array: str) -> Any:
    """An annotation as a stub writes it: `bool` may be a dtype there, so the type is qualified."""
    if found is inspect.Parameter.empty:
        return found
    text = str(found).replace("Array", array)
    return Verbatim(re.sub(r"\bbool\b", "builtins.bool", text))


def written(value: Callable[..., Any], array: str, method: bool, operator: bool = False) -> str:
    """The signature of an operation or a function, as text.

    In a method, the first parameter becomes `self`. The keyword-only parameters of an operator are
    left out, because `a + b` cannot give them.
    """
    signature = inspect.signature(value)
    listed: list[inspect.Parameter] = []
    for place, parameter in enumerate(signature.parameters.values()):
        if operator and parameter.kind is parameter.KEYWORD_ONLY:
            continue
        if method and place == 0:
            listed.append(parameter.replace(name="self", annotation=parameter.empty))
            continue
        listed.append(parameter.replace(annotation=annotation(parameter.annotation, array)))
    result = annotation(signature.return_annotation, array)
    return str(signature.replace(parameters=listed, return_annotation=result))


def definition(name: str, value: Callable[..., Any], array: str, method: bool = False) -> str:
    """The definition of a function, with the first paragraph of its docstring."""
    meaning = inspect.cleandoc(value.__doc__ or "").split("\n\n")[0].replace("\n", "\n    ")
    operator = name.startswith("__")
    text = f'def {name}{written(value, array, method, operator)}:\n    """{meaning}"""\n'
    return text if not method else "".join(f"    {line}\n" for line in text.splitlines())


def namespace(module: Any) -> str:
    """The stub of a namespace such as `np`: declared functions, and imports of everything else."""
    declared = NAMESPACES[module.__name__.removeprefix("gemel.")]
    imports: dict[str, None] = {}
    body = []
    for name in module.__all__:
        value = getattr(module, name)
        if name in declared and not inspect.isclass(value):
            body.append(definition(name, value, "ndarray"))
        elif inspect.ismodule(value):
            imports[f"from {module.__name__} import {name} as {name}\n"] = None
        elif hasattr(value, "__module__") and not isinstance(value, DType):
            own = value.__name__ if inspect.isclass(value) else name
            imports[f"from {value.__module__} import {own} as {name}\n"] = None
        else:
            kind = "None" if value is None else type(value).__name__
            body.append(f"{name}: {kind}\n")
    for home, name in TYPES:
        if re.search(rf"\b{name}\b", "".join(body)) and name not in module.__all__:
            imports[f"from {home} import {name}\n"] = None
    title = (module.__doc__ or "").split("\n")[0]
    names = "".join(f'    "{name}",\n' for name in module.__all__)
    head = HEAD.format(title=title) + "import builtins\nfrom typing import Any\n\n"
    return f"{head}{''.join(imports)}\n{''.join(body)}\n__all__ = [\n{names}]\n"


def methods() -> str:
    """The stub of the methods and operators that operations declare."""
    body = [
        definition(name, value, "Self", method=True)
        for name, value in sorted(vars(ArrayMethods).items())
        if callable(value) and name not in ("__hash__", "__eq__", "__ne__")
    ]
    return (
        HEAD.format(title="The methods and operators of arrays and symbols.")
        + "import builtins\nfrom typing import Any\n\nfrom typing_extensions import Self\n\n"
        + "from gemel.ir.methods import WrittenMethods\n\n"
        + f'class ArrayMethods(WrittenMethods):\n    """{ArrayMethods.__doc__}"""\n\n'
        + "\n".join(body)
        + '\n__all__ = ["ArrayMethods"]\n'
    )


def stubs() -> dict[str, str]:
    """The text of each stub, by its path in the package."""
    return {
        "np/__init__.pyi": namespace(np),
        "np/fft.pyi": namespace(np.fft),
        "np/linalg.pyi": namespace(np.linalg),
        "np/random.pyi": namespace(np.random),
        "npx/__init__.pyi": namespace(npx),
        "npx/image.pyi": namespace(npx.image),
        "npx/random.pyi": namespace(npx.random),
        "ir/array_methods.pyi": methods(),
    }


if __name__ == "__main__":
    for path, text in stubs().items():
        (Path(sys.argv[1]) / path).write_text(text)
