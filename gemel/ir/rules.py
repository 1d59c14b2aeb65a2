"""The rules of an operation: decorators that declare what follows from its meaning and what not.

Each rule is stored under its name in `Op.rules`. Only some are needed: an elementwise operation has
its specs and its kernel from its body, a view needs `spec` and `view`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class RuleDecorators:
    """The decorators by which a paragraph of `gemel.ops` adds rules to an operation."""

    name: str
    rules: dict[str, Callable[..., Any]]
    #: Whether it becomes machine code. NumPy runs the others, in the engine's Python lane.
    has_kernel = False
    moves: int
    complex: bool
    is_holomorphic = False

    def _declare(self, kind: str, rule: Callable[..., Any]) -> Callable[..., Any]:
        self.rules[kind] = rule
        self.has_kernel |= kind in ("element", "lower", "pieces", "view")
        if kind == "view":
            self.moves = 1
        return rule

    def spec(self, rule: Callable[..., Any]) -> Callable[..., Any]:
        """Declare the specs of the results: rule(*input specs, **parameters) -> Spec or a tuple."""
        return self._declare("spec", rule)

    def gradient(self, rule: Callable[..., Any]) -> Callable[..., Any]:
        """Declare the gradient: rule(g, y, *inputs, **parameters) -> one entry or None per input.

        y are the results, g the gradients that arrived at them. With several outputs both are
        tuples, and g is None for an output at which none arrived.
        """
        return self._declare("gradient", rule)

    def holomorphic(self, rule: Callable[..., Any]) -> Callable[..., Any]:
        """Declare the gradient of a holomorphic function by its formula for reals, g * f'(x).

        `passes.gradient` makes it g * conj(f'(x)) for complex numbers.
        """
        self.complex = self.is_holomorphic = True
        return self.gradient(rule)

    def backward(self, rule: Callable[..., Any]) -> Callable[..., Any]:
        """Declare the gradient by a rule that is told which inputs it is wanted for.

        rule(node, gradients of the outputs, wanted) -> one entry or None per input.
        """
        return self._declare("backward", rule)

    def element(self, rule: Callable[..., Any]) -> Callable[..., Any]:
        """Declare the element of the result at a position: rule(loop, at, *inputs, **parameters).

        `at` has an `At` (`ir.position`) for each axis of the result. ``x.at(...)`` reads an input,
        given an `At` or a number computed in the loop for each of its axes; `loop.checked` and
        `loop.limited` keep such numbers in range.
        """
        return self._declare("element", rule)

    def pieces(self, rule: Callable[..., Any]) -> Callable[..., Any]:
        """Declare a result put together of parts: rule(layout, *input specs, **parameters).

        It gives (layout of the part, source) for each: the source is the position of an input,
        which is broadcast to the part, or a float that fills it. Later parts cover earlier ones.
        """
        return self._declare("pieces", rule)

    def lower(self, rule: Callable[..., Any]) -> Callable[..., Any]:
        """Declare the kernels: rule(emit, outputs, inputs, **parameters), see runtime.lower."""
        return self._declare("lower", rule)

    def step(self, rule: Callable[..., Any]) -> Callable[..., Any]:
        """Declare work the C++ core does itself, on dense arrays of the host.

        rule(*input specs, **parameters) -> `_core.SortedRows`, or None to leave it to NumPy.
        """
        return self._declare("step", rule)

    def issue(self, rule: Callable[..., Any]) -> Callable[..., Any]:
        """Declare a function that runs calls neither a kernel nor NumPy can do.

        rule(*arrays, **parameters) -> the result, an array. It is not recorded.
        """
        return self._declare("issue", rule)

    def view(self, rule: Callable[..., Any]) -> Callable[..., Any]:
        """Declare that the results are views of input 0.

        rule(layout of the input, *result specs, **parameters) -> a layout per result, or None where
        strides cannot express it and the elements have to be copied.
        """
        return self._declare("view", rule)

    def masked(self, rule: Callable[..., Any]) -> Callable[..., Any]:
        """Declare what `where=` means for a reduction: rule(mask, x, **parameters) -> result."""
        return self._declare("masked", rule)

    def put(self, rule: Callable[..., Any]) -> Callable[..., Any]:
        """Declare a write through a view: rule(x, value, index of the result, **parameters).

        It gives x with `value` in place of the elements the view shows.
        """
        return self._declare("put", rule)

    def extended(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Declare a function for calls with arguments the operation does not have.

        Calls without such arguments go to the operation, and so past Python.
        """
        function.__name__ = function.__qualname__ = self.name
        self.__doc__ = function.__doc__ or self.__doc__
        return self._declare("extended", function)


__all__ = ["RuleDecorators"]
