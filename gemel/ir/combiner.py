"""What reductions may carry along, besides sums, products and extremes: any values."""

from __future__ import annotations

from gemel.dtype import DType

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    State = tuple[Any, ...]


class Combiner:
    """Values that a reduction carries along; each element updates them. A subclass says how.

    Its methods are formulas over `xp`, as those of elementwise operations: they compute with
    values of single elements. Elements are combined in any order and in any grouping: each lane of
    a vector carries values of its own, and so does each part of a long row. Therefore `combine`
    must not depend on which of its two states is the first, except for rounding.
    """

    #: Whether `update` uses the position. The reduction is then over one axis, or over all.
    counts = False
    #: Whether rounding errors add up in the values. Long rows are then combined from short blocks.
    rounds = True

    def computed(self, dtype: DType) -> DType:
        """The dtype to which elements are converted first."""
        return dtype.compute

    def result_dtype(self, dtype: DType) -> DType:
        """The dtype of the reduction's result for elements of `dtype`."""
        return dtype

    def initial(self, dtype: DType) -> tuple[tuple[DType, Any], ...]:
        """The dtype of each value, and the number that it is before any element, for elements that
        are converted to `dtype`."""
        raise NotImplementedError

    #: changes(xp, state, x, position): whether an element changes the values at all. Only for
    #: values that few elements change: `update` is then computed for these alone.
    changes: Any = None

    def update(self, xp: Any, state: State, x: Any, position: Any) -> State:
        """The values after one more element, whose flat position in the reduced axes is given."""
        raise NotImplementedError

    def combine(self, xp: Any, a: State, b: State) -> State:
        """The values for the elements of two states together."""
        raise NotImplementedError

    def result(self, xp: Any, state: State) -> Any:
        """What the reduction returns; the first value, if a subclass does not say."""
        return state[0]


__all__ = ["Combiner"]
