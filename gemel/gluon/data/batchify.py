"""Functions that make a batch from a list of examples."""

from __future__ import annotations

from functools import wraps
from typing import TYPE_CHECKING, Any, TypeVar, cast

from gemel import np
from gemel.errors import OperandError, ShapeError, check_function
from gemel.extent import NUMBER
from gemel.ranges import FlagsChecked, counted
from gemel.tracing.manners import like

if TYPE_CHECKING:
    from collections.abc import Callable

    Batchify = TypeVar("Batchify", bound=Callable[..., Any])


def _like_examples(batchify: Batchify) -> Batchify:
    """Decorate a function whose last argument is a list of examples: their class is the
    result's."""

    @wraps(batchify)
    def made(*given: Any) -> Any:
        found = batchify(*given)
        return like(given[-1], found)

    return cast("Batchify", made)


@_like_examples
def default_batchify_fn(examples: list[Any]) -> Any:
    """Make a batch of examples: arrays are stacked, tuples part by part, and numbers become one
    array.

    The array has a dtype that holds all of them. An example that is a list becomes a row of one
    array. Raises `ShapeError` for examples that do not fit together, or none.
    """
    check_any(examples)
    first = examples[0]
    if isinstance(first, np.ndarray):
        return _stacked(np.stack, examples)
    if isinstance(first, (tuple, list)):
        other = next((each for each in examples if not isinstance(each, (tuple, list))), first)
        if other is not first:
            raise OperandError(
                f"DataLoader: a {type(first).__name__} and {type(other).__name__} cannot form a "
                "batch; give all examples the same parts, or give a batchify_fn, such as "
                "batchify.AsList()"
            )
        lengths = {len(example) for example in examples}
        if len(lengths) > 1:
            raise ShapeError(
                f"DataLoader: examples of {sorted(lengths)} parts cannot form a batch; give all "
                "examples the same number of parts, or give a batchify_fn, such as "
                "batchify.Pad()"
            )
        if isinstance(first, list) and first:
            values = default_batchify_fn([value for example in examples for value in example])
            if isinstance(values, np.ndarray):
                return values.reshape(len(examples), len(first), *values.shape[1:])
        return [default_batchify_fn(list(part)) for part in zip(*examples, strict=True)]
    if all(isinstance(example, (int, float)) for example in examples):
        whole = all(isinstance(example, int) for example in examples)
        return np.array(examples, dtype="int64" if whole else "float32")
    if not any(hasattr(example, "__array_interface__") for example in examples):
        if any(isinstance(example, np.ndarray) for example in examples):
            return _stacked(np.stack, examples)
        other = next(each for each in examples if not isinstance(each, (int, float)))
        raise OperandError(
            f"DataLoader: cannot make an array of {type(other).__name__}; give a batchify_fn, "
            "such as batchify.AsList()"
        )
    import numpy

    stacked = _stacked(numpy.stack, examples)
    return np.array(stacked, dtype=_held_by(examples, stacked.dtype))


def check_any(examples: list[Any]) -> None:
    """Raises `ShapeError` for a batch without examples."""
    if not examples:
        raise ShapeError(
            "DataLoader: a batch must have at least one example; leave out the empty lists of "
            "the batch_sampler"
        )


def _stacked(stack: Callable[[list[Any]], Any], examples: list[Any]) -> Any:
    """Stack the examples along a new first axis. Raises `ShapeError` if their shapes differ."""
    try:
        return stack(examples)
    except ValueError:
        shapes = {tuple(getattr(example, "shape", ())) for example in examples}
        if len(shapes) == 1:
            raise
        named = ", ".join(map(str, sorted(shapes)))
        raise ShapeError(
            f"DataLoader: examples of the shapes {named} cannot form a batch; give all examples "
            "the same shape, or give a batchify_fn, such as batchify.Pad()"
        ) from None


def _held_by(examples: list[Any], dtype: Any) -> Any:
    """The dtype of a stack of NumPy arrays and Python numbers, where the arrays decide about
    fractions.

    >>> _held_by([numpy.float32(0.5), 1], numpy.dtype("float64"))
    dtype('float32')
    """
    if dtype.kind in "biu" or getattr(examples[0], "dtype", None) == dtype:
        return dtype
    import numpy

    return numpy.result_type(
        *(x if type(x) in (bool, int, float) else numpy.asarray(x).dtype for x in examples)
    )


def _array(example: Any) -> Any:
    return example if isinstance(example, np.ndarray) else default_batchify_fn([example])[0]


class Stack:
    """Stacks examples of equal shape along a new first axis, like `default_batchify_fn`."""

    def __init__(self, use_shared_mem: bool = False) -> None:
        del use_shared_mem  # workers always pass arrays in shared memory

    def __call__(self, data: list[Any]) -> Any:
        """The batch."""
        return default_batchify_fn(list(data))


class Pad:
    """Pads arrays or lists of numbers of equal rank with `val` (0) to the largest extents, and
    stacks them.

    `dtype` is that of the result, by default one that holds all of the examples, and `val`;
    `round_to` makes each extent a multiple of a number.
    """

    def __init__(
        self,
        val: float | None = None,
        dtype: Any = None,
        round_to: int | None = None,
        use_shared_mem: bool = False,
    ) -> None:
        del use_shared_mem
        self._val = _number(0 if val is None else val)
        self._dtype = dtype
        self._round_to = counted("Pad", "round_to", round_to or 1)

    @_like_examples
    def __call__(self, data: list[Any]) -> Any:
        """The batch: (N, largest extents). Raises `ShapeError` if the ranks of examples differ."""
        check_any(data)
        arrays = [np.array(x) if isinstance(x, (list, tuple)) else _array(x) for x in data]
        ranks = {len(x.shape) for x in arrays}
        if len(ranks) != 1:
            raise ShapeError(
                f"Pad: the examples have {sorted(ranks)} axes; they must all have the same number"
            )
        if not ranks.pop():
            found = np.stack(arrays)
            return found if self._dtype is None else found.astype(self._dtype)
        step = self._round_to
        widest = [-(-max(n) // step) * step for n in zip(*(x.shape for x in arrays), strict=True)]
        shape = (len(arrays), *widest)
        # An empty list has no dtype, but an empty array does.
        pairs = zip(arrays, data, strict=True)
        typed = [x for x, given in pairs if x.size or not isinstance(given, (list, tuple))]
        dtype = self._dtype or _with_value(self._val, typed or arrays)
        found = np.full(shape, self._val, dtype=dtype)
        for number, x in enumerate(arrays):
            place = (number, *(slice(0, n) for n in x.shape))
            found[place] = x
        return found


def _number(value: Any) -> Any:
    """Check what pads. Raises `OperandError` unless it is a number."""
    if not isinstance(value, NUMBER) and not hasattr(value, "item"):
        raise OperandError(f"Pad: val is {value!r}; it must be a number")
    return value


def _with_value(value: Any, arrays: list[Any]) -> Any:
    """A dtype that holds all of the arrays and also this value."""
    found = np.result_type(*arrays)
    if found.is_inexact:
        return found
    if not float(value).is_integer():
        return np.result_type(found, float(value))
    least, most = (0, 1) if found == "bool" else (np.iinfo(found).min, np.iinfo(found).max)
    return found if least <= value <= most else np.result_type(found, np.array(int(value)))


class Append(FlagsChecked):
    """Makes a list of the examples as arrays, each with a batch axis of length 1 (unless `expand`
    is off)."""

    def __init__(
        self, expand: bool = True, batch_axis: int = 0, use_shared_mem: bool = False
    ) -> None:
        del use_shared_mem
        self._expand = expand
        self._batch_axis = batch_axis

    @_like_examples
    def __call__(self, data: list[Any]) -> list[Any]:
        """The list."""
        arrays = [np.array(x) if isinstance(x, (list, tuple)) else _array(x) for x in data]
        return [np.expand_dims(x, self._batch_axis) for x in arrays] if self._expand else arrays


class Group:
    """Applies one function per part of the examples: ``Group(Stack(), Pad())``, or a list of
    functions."""

    def __init__(self, fn: Any, *args: Callable[[list[Any]], Any]) -> None:
        self._functions = list(fn) if isinstance(fn, (list, tuple)) else [fn, *args]
        for function in self._functions:
            check_function("Group", function)

    def __call__(self, data: list[Any]) -> tuple[Any, ...]:
        """One batch per part. Raises `ShapeError` if examples have another number of parts."""
        check_any(data)
        if not all(isinstance(example, (tuple, list)) for example in data):
            raise OperandError(
                f"Group: there are {len(self._functions)} functions, but the examples are no tuples"
            )
        if any(len(example) != len(self._functions) for example in data):
            raise ShapeError(
                f"Group: there are {len(self._functions)} functions, but examples of "
                f"{sorted({len(example) for example in data})} parts"
            )
        parts = zip(*data, strict=True)
        return tuple(
            function(list(part)) for function, part in zip(self._functions, parts, strict=True)
        )


#: Its name in older editions.
Tuple = Group


class AsList:
    """Makes a list of the unchanged examples: for strings and other values that cannot form an
    array."""

    def __call__(self, data: list[Any]) -> list[Any]:
        """The list."""
        return list(data)


__all__ = ["Append", "AsList", "Group", "Pad", "Stack", "Tuple", "default_batchify_fn"]
