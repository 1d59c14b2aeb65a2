"""The methods and operators of arrays and symbols.

Written by `make stubs`: change what is declared instead.
"""

import builtins
from typing import Any

from typing_extensions import Self

from gemel.ir.methods import WrittenMethods

class ArrayMethods(WrittenMethods):
    """The methods and operators of an array, for arrays and symbols alike."""

    def __abs__(self, /) -> Self:
        """Absolute value."""

    def __add__(self, b: Any, /) -> Self:
        """Sum."""

    def __and__(self, b: Any, /) -> Self:
        """Bits set in both."""

    def __copy__(self, /) -> Self:
        """A copy of the elements in new memory."""

    def __floordiv__(self, b: Any, /) -> Self:
        """Quotient rounded down; integers divided by zero give 0."""

    def __ge__(self, b: Any, /) -> Self:
        """a >= b."""

    def __gt__(self, b: Any, /) -> Self:
        """a > b."""

    def __iadd__(self, other: Any) -> Self:
        """self[...] = add(self, other)."""

    def __iand__(self, other: Any) -> Self:
        """self[...] = bitwise_and(self, other)."""

    def __ifloordiv__(self, other: Any) -> Self:
        """self[...] = floor_divide(self, other)."""

    def __ilshift__(self, other: Any) -> Self:
        """self[...] = left_shift(self, other)."""

    def __imatmul__(self, other: Any) -> Self:
        """self[...] = matmul(self, other)."""

    def __imod__(self, other: Any) -> Self:
        """self[...] = remainder(self, other)."""

    def __imul__(self, other: Any) -> Self:
        """self[...] = multiply(self, other)."""

    def __invert__(self, /) -> Self:
        """Every bit reversed; for bools, not."""

    def __ior__(self, other: Any) -> Self:
        """self[...] = bitwise_or(self, other)."""

    def __ipow__(self, other: Any) -> Self:
        """self[...] = power(self, other)."""

    def __irshift__(self, other: Any) -> Self:
        """self[...] = right_shift(self, other)."""

    def __isub__(self, other: Any) -> Self:
        """self[...] = subtract(self, other)."""

    def __itruediv__(self, other: Any) -> Self:
        """self[...] = divide(self, other)."""

    def __ixor__(self, other: Any) -> Self:
        """self[...] = bitwise_xor(self, other)."""

    def __le__(self, b: Any, /) -> Self:
        """a <= b."""

    def __lshift__(self, b: Any, /) -> Self:
        """The bits of a moved up by b places; 0 once all of them have left."""

    def __lt__(self, b: Any, /) -> Self:
        """a < b."""

    def __matmul__(self, b: Any, /) -> Self:
        """Matrix product of the last two axes; the axes before them broadcast."""

    def __mod__(self, b: Any, /) -> Self:
        """Remainder with the sign of b; integers modulo zero give 0."""

    def __mul__(self, b: Any, /) -> Self:
        """Product."""

    def __neg__(self, /) -> Self:
        """The negative of each element."""

    def __or__(self, b: Any, /) -> Self:
        """Bits set in either."""

    def __pow__(self, b: Any, /) -> Self:
        """a to the power of b. Integers wrap as their products do."""

    def __radd__(self, other: Any) -> Self:
        """add(other, self)."""

    def __rand__(self, other: Any) -> Self:
        """bitwise_and(other, self)."""

    def __rfloordiv__(self, other: Any) -> Self:
        """floor_divide(other, self)."""

    def __rlshift__(self, other: Any) -> Self:
        """left_shift(other, self)."""

    def __rmatmul__(self, other: Any) -> Self:
        """matmul(other, self)."""

    def __rmod__(self, other: Any) -> Self:
        """remainder(other, self)."""

    def __rmul__(self, other: Any) -> Self:
        """multiply(other, self)."""

    def __ror__(self, other: Any) -> Self:
        """bitwise_or(other, self)."""

    def __rpow__(self, other: Any) -> Self:
        """power(other, self)."""

    def __rrshift__(self, other: Any) -> Self:
        """right_shift(other, self)."""

    def __rshift__(self, b: Any, /) -> Self:
        """The bits of a moved down by b places, the sign kept; 0 or -1 once all of them have left."""

    def __rsub__(self, other: Any) -> Self:
        """subtract(other, self)."""

    def __rtruediv__(self, other: Any) -> Self:
        """divide(other, self)."""

    def __rxor__(self, other: Any) -> Self:
        """bitwise_xor(other, self)."""

    def __sub__(self, b: Any, /) -> Self:
        """Difference."""

    def __truediv__(self, b: Any, /) -> Self:
        """Quotient; integers become float32."""

    def __xor__(self, b: Any, /) -> Self:
        """Bits set in exactly one."""

    def abs(
        self,
        /,
        *,
        out: Any = None,
        where: Any = True,
        casting: Any = "same_kind",
        order: Any = "K",
        dtype: Any = None,
        subok: Any = True,
    ) -> Self:
        """Absolute value."""

    def all(
        self,
        /,
        axis: Any = None,
        keepdims: builtins.bool = False,
        *,
        out: Any = None,
        where: Any = True,
    ) -> Self:
        """Whether all elements are true (not zero)."""

    def any(
        self,
        /,
        axis: Any = None,
        keepdims: builtins.bool = False,
        *,
        out: Any = None,
        where: Any = True,
    ) -> Self:
        """Whether any element is true (not zero)."""

    def argmax(
        self, /, axis: Any = None, keepdims: builtins.bool = False, *, out: Any = None
    ) -> Self:
        """Position of the largest element (the first of equals; NaN is largest), int64."""

    def argmin(
        self, /, axis: Any = None, keepdims: builtins.bool = False, *, out: Any = None
    ) -> Self:
        """Position of the smallest element (the first of equals; NaN is smallest), int64."""

    def argpartition(
        self, kth: Any, axis: int | None = -1, kind: str = "introselect", order: Any = None
    ) -> Self:
        """Positions along an axis, those of elements below the kth before its own, others behind."""

    def argsort(
        self,
        axis: int | None = -1,
        kind: Any = None,
        order: None = None,
        *,
        descending: builtins.bool = False,
        stable: builtins.bool = True,
    ) -> Self:
        """The positions that sort each row along an axis, or the flattened array; NaN is largest."""

    def broadcast_to(self, shape: Any, subok: builtins.bool = False) -> Self:
        """Repeated along new axes and axes of length 1, until it has the given shape: as a view."""

    def ceil(
        self,
        /,
        *,
        out: Any = None,
        where: Any = True,
        casting: Any = "same_kind",
        order: Any = "K",
        dtype: Any = None,
        subok: Any = True,
    ) -> Self:
        """Smallest whole number not below x."""

    def choose(self, choices: Any, out: Any = None, mode: str = "raise") -> Self:
        """At each position, the element of the choice with the number in `a`; all arrays broadcast."""

    def clip(
        self,
        min: Any = None,
        max: Any = None,
        out: Any = None,
        *,
        a_min: Any = None,
        a_max: Any = None,
    ) -> Self:
        """Limit a to [min, max], also called a_min and a_max; None leaves that side open."""

    def conj(
        self,
        /,
        *,
        out: Any = None,
        where: Any = True,
        casting: Any = "same_kind",
        order: Any = "K",
        dtype: Any = None,
        subok: Any = True,
    ) -> Self:
        """The complex conjugate of each element."""

    def conjugate(
        self,
        /,
        *,
        out: Any = None,
        where: Any = True,
        casting: Any = "same_kind",
        order: Any = "K",
        dtype: Any = None,
        subok: Any = True,
    ) -> Self:
        """The complex conjugate of each element."""

    def copy(
        self,
        /,
        *,
        out: Any = None,
        where: Any = True,
        casting: Any = "same_kind",
        order: Any = "K",
        dtype: Any = None,
        subok: Any = True,
    ) -> Self:
        """A copy of the elements in new memory."""

    def cos(
        self,
        /,
        *,
        out: Any = None,
        where: Any = True,
        casting: Any = "same_kind",
        order: Any = "K",
        dtype: Any = None,
        subok: Any = True,
    ) -> Self:
        """Cosine of x in radians."""

    def cumprod(self, axis: int | None = None, dtype: Any = None, out: Any = None) -> Self:
        """The products of all elements up to each one, along an axis or of the flattened array."""

    def cumsum(self, axis: int | None = None, dtype: Any = None, out: Any = None) -> Self:
        """The sums of all elements up to each one, along an axis or of the flattened array."""

    def diagonal(self, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Self:
        """The diagonal over two axes, as a last axis; `offset` counts to the right of the main one."""

    def dot(self, b: Any, out: Any = None) -> Self:
        """`np.dot`: the product of a's last axis with b's second last (or only) one."""

    def exp(
        self,
        /,
        *,
        out: Any = None,
        where: Any = True,
        casting: Any = "same_kind",
        order: Any = "K",
        dtype: Any = None,
        subok: Any = True,
    ) -> Self:
        """Exponential."""

    def expand_dims(self, axis: Any = 0) -> Self:
        """Add an axis (or several) of length 1."""

    def expm1(
        self,
        /,
        *,
        out: Any = None,
        where: Any = True,
        casting: Any = "same_kind",
        order: Any = "K",
        dtype: Any = None,
        subok: Any = True,
    ) -> Self:
        """exp(x) - 1, accurate near zero."""

    def floor(
        self,
        /,
        *,
        out: Any = None,
        where: Any = True,
        casting: Any = "same_kind",
        order: Any = "K",
        dtype: Any = None,
        subok: Any = True,
    ) -> Self:
        """Largest whole number not above x."""

    def log(
        self,
        /,
        *,
        out: Any = None,
        where: Any = True,
        casting: Any = "same_kind",
        order: Any = "K",
        dtype: Any = None,
        subok: Any = True,
    ) -> Self:
        """Natural logarithm; -inf at zero, NaN below."""

    def log1p(
        self,
        /,
        *,
        out: Any = None,
        where: Any = True,
        casting: Any = "same_kind",
        order: Any = "K",
        dtype: Any = None,
        subok: Any = True,
    ) -> Self:
        """log(1 + x), accurate near zero."""

    def max(
        self,
        /,
        axis: Any = None,
        keepdims: builtins.bool = False,
        *,
        out: Any = None,
        initial: Any = None,
        where: Any = True,
    ) -> Self:
        """Largest element over the given axes, or all; NaN wins."""

    def mean(
        self,
        /,
        axis: Any = None,
        dtype: Any = None,
        *,
        keepdims: builtins.bool = False,
        out: Any = None,
        where: Any = True,
    ) -> Self:
        """Mean over the given axes, or all; integers become float32, float16 is added in float32."""

    def min(
        self,
        /,
        axis: Any = None,
        keepdims: builtins.bool = False,
        *,
        out: Any = None,
        initial: Any = None,
        where: Any = True,
    ) -> Self:
        """Smallest element over the given axes, or all; NaN wins."""

    def nonzero(self) -> tuple[Any, ...]:
        """The positions of elements that are not zero, one int64 array per axis. Waits for it."""

    def prod(
        self,
        /,
        axis: Any = None,
        dtype: Any = None,
        *,
        keepdims: builtins.bool = False,
        out: Any = None,
        initial: Any = None,
        where: Any = True,
    ) -> Self:
        """Product over the given axes, or all. Integers and bools are multiplied in int64."""

    def reciprocal(
        self,
        /,
        *,
        out: Any = None,
        where: Any = True,
        casting: Any = "same_kind",
        order: Any = "K",
        dtype: Any = None,
        subok: Any = True,
    ) -> Self:
        """1 / x; integers become float32."""

    def repeat(self, repeats: Any, axis: int | None = None) -> Self:
        """Each element several times along an axis, or of the flattened array."""

    def rint(
        self,
        /,
        *,
        out: Any = None,
        where: Any = True,
        casting: Any = "same_kind",
        order: Any = "K",
        dtype: Any = None,
        subok: Any = True,
    ) -> Self:
        """Nearest whole number, ties to even."""

    def round(self, decimals: int = 0, out: Any = None) -> Self:
        """Round to `decimals` decimals, ties to even; negative `decimals` round to tens, hundreds,
        ..."""

    def searchsorted(self, v: Any, side: str = "left", sorter: Any = None) -> Self:
        """Where elements would be put into a sorted row: before ("left") or behind equal ones."""

    def sign(
        self,
        /,
        *,
        out: Any = None,
        where: Any = True,
        casting: Any = "same_kind",
        order: Any = "K",
        dtype: Any = None,
        subok: Any = True,
    ) -> Self:
        """-1, 0 or 1; NaN stays NaN."""

    def sin(
        self,
        /,
        *,
        out: Any = None,
        where: Any = True,
        casting: Any = "same_kind",
        order: Any = "K",
        dtype: Any = None,
        subok: Any = True,
    ) -> Self:
        """Sine of x in radians."""

    def sqrt(
        self,
        /,
        *,
        out: Any = None,
        where: Any = True,
        casting: Any = "same_kind",
        order: Any = "K",
        dtype: Any = None,
        subok: Any = True,
    ) -> Self:
        """Square root; NaN for negative elements."""

    def square(
        self,
        /,
        *,
        out: Any = None,
        where: Any = True,
        casting: Any = "same_kind",
        order: Any = "K",
        dtype: Any = None,
        subok: Any = True,
    ) -> Self:
        """The square of each element."""

    def squeeze(self, axis: Any = None) -> Self:
        """Remove the given axes of length 1, or all of them. Raises `ShapeError` for an axis of another
        length."""

    def std(
        self,
        /,
        axis: Any = None,
        dtype: Any = None,
        *,
        ddof: float | None = None,
        correction: float = 0.0,
        keepdims: builtins.bool = False,
        mean: Any = None,
        out: Any = None,
        where: Any = True,
    ) -> Self:
        """Square root of the variance, over the given axes, or all: see `var`."""

    def sum(
        self,
        /,
        axis: Any = None,
        dtype: Any = None,
        *,
        keepdims: builtins.bool = False,
        out: Any = None,
        initial: Any = None,
        where: Any = True,
    ) -> Self:
        """Sum over the given axes, or all. Integers and bools are summed in int64."""

    def swapaxes(self, axis1: int, axis2: int) -> Self:
        """Exchange two axes."""

    def take(self, indices: Any, axis: Any = None, mode: str = "raise", out: Any = None) -> Self:
        """Select the elements at these positions along an axis, or of the flattened array."""

    def tanh(
        self,
        /,
        *,
        out: Any = None,
        where: Any = True,
        casting: Any = "same_kind",
        order: Any = "K",
        dtype: Any = None,
        subok: Any = True,
    ) -> Self:
        """Hyperbolic tangent."""

    def trace(
        self, offset: int = 0, axis1: int = 0, axis2: int = 1, dtype: Any = None, out: Any = None
    ) -> Self:
        """The sum of a diagonal over two axes."""

    def var(
        self,
        /,
        axis: Any = None,
        dtype: Any = None,
        *,
        ddof: float | None = None,
        correction: float = 0.0,
        keepdims: builtins.bool = False,
        mean: Any = None,
        out: Any = None,
        where: Any = True,
    ) -> Self:
        """Mean squared distance from the mean, over the given axes, or all."""

    def view(self, dtype: Any = None, type: Any = None) -> Self:
        """The same memory as an array of another dtype, as NumPy's: writes of one are the other's."""

__all__ = ["ArrayMethods"]
