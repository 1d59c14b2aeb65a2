"""Results with a given gradient instead of a derived one, for the output layers of MXNet 1."""

from __future__ import annotations

from typing import Any

from gemel.ir.declare import elementwise


@elementwise()
def with_gradient(xp: Any, found: Any, data: Any, gradient: Any, *, scaled: bool = False) -> Any:
    """`found`, with the given gradient with respect to data, whatever gradient arrives.

    If `scaled`, it is multiplied by the gradient that arrives. All three have the same shape.
    """
    return found


@with_gradient.gradient
def _(g: Any, y: Any, found: Any, data: Any, gradient: Any, *, scaled: bool) -> Any:
    return None, g * gradient if scaled else gradient, None
