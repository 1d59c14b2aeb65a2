"""Modules and functions as programs: `script` compiles, `save` and `load` use files."""

from __future__ import annotations

from typing import Any

import gemel
from gemel.scripting import own_scripted
from gemel.torch.nn import Module, Parameter
from gemel.torch.tensor import Tensor, apply, unwrapped, wrapped
from gemel.tracing.compiled import Compiled


class Scripted(Module):
    """A module or a function of tensors; its calls run a compiled program."""

    def __init__(self, obj: Any, parts: dict[str, Any]) -> None:
        vars(self).update(parts)
        self._made = "Script"
        function = own_scripted(getattr(obj, "forward", obj))

        def run(*arrays: Any) -> Any:
            found = function(*wrapped(list(arrays), "Given"))
            self._made = getattr(found, "_grad_fn", "").removesuffix("Backward0") or self._made
            return unwrapped(found)

        self._program: Any = Compiled(run, name=getattr(obj, "__name__", type(obj).__name__))
        for path, parameter in self.state_dict().items():
            parameter.name = path

    def forward(self, *inputs: Any) -> Any:
        """The program's results."""
        found = apply(self._program, "Script", *inputs, among=self.parameters())
        if getattr(found, "_grad_fn", ""):
            found._grad_fn = f"{self._made}Backward0"
        return found

    def save(self, path: Any) -> None:
        """Write the program, which must have been called before, and the parameters into one
        file."""
        gemel.save(self._program, path)


def script(obj: Any) -> Any:
    """Compile a module or function of tensors, including `if`, `while` and `for` on tensors."""
    return obj if isinstance(obj, Scripted) else Scripted(obj, vars(obj))


def load(path: Any) -> Scripted:
    """Load what `save` has written; this needs no Python code of the program."""
    block = gemel.load(path)
    held = {name: Parameter(Tensor(p.data())) for name, p in block.collect_params().items()}
    found = Scripted(block, held)
    found._program = block
    return found
