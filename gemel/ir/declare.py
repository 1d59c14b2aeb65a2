"""The decorators that declare operations: each paragraph of `gemel.ops` begins with one.

A paragraph is one operation, its declaration and its rules::

    @elementwise(public="np", operator="add")
    def add(xp, a, b):
        return a + b

    @add.gradient
    def _(g, y, a, b):
        return g, g
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gemel.extent import Dim
from gemel.ir.graph import Entry
from gemel.ir.op import Op
from gemel.ir.op_kinds import Composite, Contraction, Elementwise, Reduction


def elementwise(**options: Any) -> Callable[[Callable[..., Any]], Elementwise]:
    """Declare an operation on each element. With several `outputs` its body returns a tuple."""
    return lambda body: Elementwise(body, **options)


def op(**options: Any) -> Callable[[Callable[..., Any]], Op]:
    """Declare an operation by its NumPy reference. Its rules (`Op.spec`, ...) are added after."""
    return lambda function: Op(function, **options)


def reduction(**options: Any) -> Callable[[Callable[..., Any]], Reduction]:
    """Declare a reduction by its NumPy reference."""
    return lambda function: Reduction(function, **options)


def contraction(**options: Any) -> Callable[[Callable[..., Any]], Contraction]:
    """Declare a sum of products by its NumPy reference."""
    return lambda function: Contraction(function, **options)


def composite(**options: Any) -> Callable[[Callable[..., Any]], Composite]:
    """Declare an operation by composing others."""
    return lambda function: Composite(function, **options)


def always(*inputs: Entry) -> bool:
    """For `unchanged=`: the result is the first input whenever their specs are equal (a cast)."""
    return True


def by_one(a: Entry, b: Entry) -> bool:
    """For `unchanged=`: the result is the first input if the second is the number 1 (x * 1).

    Not for complex numbers: 1 is then 1+0j, and the products with 0 give NaN for infinities and
    change signs of zeros.
    """
    node = b.node
    if not node.is_number or isinstance(node.value, Dim) or a.dtype.is_complex:
        return False
    return bool(node.value == 1)


__all__ = ["always", "by_one", "composite", "contraction", "elementwise", "op", "reduction"]
