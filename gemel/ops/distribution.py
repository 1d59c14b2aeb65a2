"""How distributions are declared, and the distributions that every program uses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gemel.device import Device, beside
from gemel.dtype import DType, as_dtype, check_held, default_float, float32, float64, int64, limits
from gemel.errors import (
    ArgumentError,
    DTypeError,
    OperandError,
    ShapeError,
    UnknownKeywordError,
    calls_itself,
    suggestion,
)
from gemel.extent import NUMBER, WHOLE
from gemel.ir.keywords import check_target, fits
from gemel.ir.public import Array, function, publish
from gemel.ops.elementwise import cast, filled, log1p, maximum
from gemel.ops.random import drawn, normal, randint, required, uniform
from gemel.ops.reduction import in_dtype
from gemel.ops.shape import listed, operand
from gemel.spec import Spec, broadcast, same_shape

#: The rules for parameters: their text in messages, and a check for a number or an array.
RULES: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "any": ("a number", lambda x: x == x),
    "not negative": ("0 or more", lambda x: x >= 0),
    "positive": ("above 0", lambda x: x > 0),
    "probability": ("between 0 and 1", lambda x: (x >= 0) & (x <= 1)),
    "chance": ("above 0 and at most 1", lambda x: (x > 0) & (x <= 1)),
}


def held(name: str, what: str, value: Any, rule: str) -> Any:
    """A checked parameter. For a number this raises `ValueError`, for an array waiting does."""
    if rule == "any":
        return value
    words, holds = RULES[rule]
    message = f"{name}: {what} must be {words}"
    if isinstance(value, NUMBER):
        if not holds(value):
            raise ArgumentError(f"{message}, not {value!r}")
        return value
    return required(value, holds(value), message=message)


def drawn_in(dtype: DType) -> DType:
    """The dtype in which numbers for results of this dtype are computed."""
    return dtype.compute if dtype.is_floating else float64


class Draw:
    """Draws random numbers of one shape, for the body of a distribution.

    They have the requested dtype or, if that is too narrow to compute in, the wider one it uses.
    """

    def __init__(self, shape: tuple[int, ...], dtype: DType) -> None:
        self.shape = shape
        self.wanted = dtype
        self.dtype = drawn_in(dtype)

    def uniform(self) -> Any:
        """Numbers in [0, 1)."""
        return drawn(uniform, 0.0, 1.0, shape=self.shape, dtype=self.dtype)

    def positive(self) -> Any:
        """Numbers in (0, 1)."""
        return maximum(self.uniform(), 2.0 ** -(self.dtype.digits + 1))

    def signed(self) -> Any:
        """Numbers in (-1, 1), symmetric around 0 and never 0."""
        return self.uniform() * 2.0 - (1.0 - 2.0**-self.dtype.digits)

    def waiting(self) -> Any:
        """Exponentially distributed numbers (waiting times), all above 0."""
        return -log1p(-self.positive())

    def normal(self) -> Any:
        """Standard normal numbers."""
        return drawn(normal, 0.0, 1.0, shape=self.shape, dtype=self.dtype)


#: The arguments that every distribution takes after its parameters.
COMMON = ("size", "dtype", "device", "ctx", "out")


class Distribution:
    """A distribution: a function of its parameters, and of `COMMON`.

    `body(draw, *parameters)` is written with a `Draw`; `rules` say what parameters must be.
    """

    public = "np.random"

    def __init__(
        self, body: Callable[..., Any], dtype: DType | None, kinds: str, rules: Any
    ) -> None:
        code, defaults = body.__code__, body.__defaults__ or ()
        self.body, self.dtype, self.kinds, self.rules = body, dtype, kinds, rules
        self.__name__ = self.__qualname__ = body.__name__
        self.__doc__ = body.__doc__
        self.__annotations__: dict[str, Any] = {}
        self.parameters = code.co_varnames[1 : code.co_argcount]
        self.defaults = dict(
            zip(self.parameters[len(self.parameters) - len(defaults) :], defaults, strict=True)
        )

    @property
    def __signature__(self) -> Any:
        from inspect import Parameter, Signature  # only help needs it

        kind = Parameter.POSITIONAL_OR_KEYWORD
        listed = [
            Parameter(n, kind, default=self.defaults.get(n, Parameter.empty), annotation="Any")
            for n in self.parameters
        ]
        listed += [Parameter(n, kind, default=None, annotation="Any") for n in COMMON]
        return Signature(listed, return_annotation="Array")

    @calls_itself
    def __call__(self, *values: Any, **named: Any) -> Any:
        """Numbers of this distribution."""
        given = self._bound(values, named)
        out = given["out"]
        size = size_for(self.__name__, given["size"], out)
        dtype = dtype_for(given["dtype"], out, self.dtype or default_float(), self.kinds)
        if dtype.kind not in self.kinds:
            words = {"f": "floating", "iu": "an integer", "iuf": "of numbers"}[self.kinds]
            hint = "; use randint for integers" if self.kinds == "f" else ""
            raise DTypeError(f"{self.__name__}: dtype {dtype} must be {words}{hint}")
        plain = [given[name] for name in self.parameters]
        with beside(given["device"] or given["ctx"], (*plain, out)):
            parameters = [
                self._parameter(name, value, dtype)
                for name, value in zip(self.parameters, plain, strict=True)
            ]
            shape = shape_of(self.__name__, size, parameters)
            found = self.body(Draw(shape, dtype), *parameters)
            return delivered(self.__name__, in_dtype(found, dtype), out)

    def __reduce__(self) -> str:
        return self.__name__

    def _parameter(self, name: str, value: Any, dtype: DType) -> Any:
        if value is None:
            return None
        if not isinstance(value, NUMBER):
            value = operand(value, (Spec((), drawn_in(dtype)),))
        return held(self.__name__, name, value, self.rules.get(name, "any"))

    def _bound(self, values: tuple[Any, ...], named: dict[str, Any]) -> dict[str, Any]:
        """The arguments by name. Raises `OperandError` and `UnknownKeywordError`."""
        names = (*self.parameters, *COMMON)
        place = len(self.parameters) + 1
        if len(values) > place and isinstance(values[place], Device):
            values = (*values[:place], None, *values[place:])  # MXNet's order has no dtype here
        if len(values) > place + 2 and not isinstance(values[place + 2], (Device, str, type(None))):
            values = (*values[: place + 2], None, *values[place + 2 :])  # `out` follows the device
        if len(values) > len(names):
            raise OperandError(f"{self.__name__}: takes {len(names)} arguments, got {len(values)}")
        found = dict(zip(names, values, strict=False))
        for name, value in named.items():
            if name not in names:
                hint = suggestion(name, names)
                raise UnknownKeywordError(f"{self.__name__}: unknown keyword {name!r}{hint}")
            if name in found:
                raise OperandError(f"{self.__name__}: {name} is given twice")
            found[name] = value
        found = {**dict.fromkeys(COMMON), **self.defaults, **found}
        for name in self.parameters:
            if name not in found:
                raise OperandError(f"{self.__name__}: {name} is missing")
        return found


def shape_of(name: str, size: Any, parameters: Any = ()) -> tuple[int, ...]:
    """The shape of a result: `size`, or if that is None the broadcast shape of the parameters."""
    arrays = [p for p in parameters if p is not None and not isinstance(p, NUMBER)]
    specs = [Spec(array.shape, array.dtype) for array in arrays]
    if size is None:
        return broadcast(name, *specs) if specs else ()
    shape = listed(size)
    filled(name, Spec(shape, float32), *specs)
    return shape


def size_for(name: str, size: Any, out: Any) -> Any:
    """`size`, or if that is None the shape of `out`, which must be an array (`TypeError`)."""
    if out is None:
        return size
    check_target(name, out)
    return tuple(out.shape) if size is None else size


def dtype_for(dtype: Any, out: Any, plain: DType, kinds: str) -> DType:
    """The dtype to draw in: the one asked for, or that of `out` if it is of these kinds, or the
    plain one."""
    fits_out = out is not None and out.dtype.kind in kinds
    return as_dtype(dtype or (out.dtype if fits_out else plain))


def delivered(name: str, found: Any, out: Any) -> Any:
    """The result, or `out` after the result was written to it. Raises `DTypeError` if `out` cannot
    hold such numbers, and `ShapeError` if it has another shape."""
    if out is None:
        return found
    fits(name, out, (), found.dtype, "same_kind")
    if not same_shape(tuple(out.shape), tuple(found.shape)):
        raise ShapeError(f"{name}: out of shape {list(out.shape)} cannot hold {list(found.shape)}")
    out[...] = found
    return out


def distribution(
    *,
    dtype: DType | None = None,
    kinds: str = "f",
    public: str = "np.random",
    **rules: str,
) -> Callable[[Callable[..., Any]], Distribution]:
    """Declare a distribution by its body. `kinds` are its dtype kinds, `dtype` the default one.

    A default of None is the default floating dtype.
    """

    def declare(body: Callable[..., Any]) -> Distribution:
        found = Distribution(body, dtype, kinds, rules)
        found.__module__ = f"gemel.{public}"
        publish(found, found.__name__, public)
        return found

    return declare


def numbers_only(*parameters: Any) -> bool:
    """Whether no parameter is an array."""
    return all(isinstance(p, NUMBER) for p in parameters)


def _uniform_between(draw: Draw, low: Any = 0.0, high: Any = 1.0) -> Any:
    """Numbers spread evenly over [low, high).

    >>> np.random.uniform(-1, 1, size=(2, 2)).shape
    """
    if numbers_only(low, high):
        return drawn(uniform, low, high, shape=draw.shape, dtype=draw.wanted)
    return low + (high - low) * draw.uniform()


def _normal_around(draw: Draw, loc: Any = 0.0, scale: Any = 1.0) -> Any:
    """Normally distributed numbers with mean `loc` and standard deviation `scale`.

    A gradient goes to both.

    >>> np.random.normal(0, 2, size=(2, 2)).shape
    """
    if numbers_only(loc, scale):
        return drawn(normal, loc, scale, shape=draw.shape, dtype=draw.wanted)
    return loc + scale * draw.normal()


# The operations `uniform` and `normal` already have these names in this module.
_uniform_between.__name__, _normal_around.__name__ = "uniform", "normal"
uniformly = distribution()(_uniform_between)
normally = distribution(scale="not negative")(_normal_around)


def _whole_numbers(
    low: Any,
    high: Any = None,
    size: Any = None,
    dtype: Any = None,
    device: Any = None,
    ctx: Any = None,
    out: Any = None,
) -> Array:
    """Whole numbers from low (0 when only one bound is given) up to and without high.

    Raises `ValueError` for bounds that enclose nothing, or that the dtype cannot hold: of arrays
    when the result is waited for.

    >>> np.random.randint(0, 10, size=(2, 2)).shape
    """
    if high is None:
        low, high = 0, low
    size = size_for("randint", size, out)
    chosen = dtype_for(dtype, out, int64, "iu")
    with beside(device or ctx, (low, high, out)):
        if isinstance(low, WHOLE) and isinstance(high, WHOLE):
            check_bounds("randint", low, high, chosen)
            low, high = _in_64_bits(low), _in_64_bits(high)
        else:
            low, high = _bounds(low, high, chosen)
        shape = shape_of("randint", size, (low, high))
        return delivered("randint", drawn(randint, low, high, shape=shape, dtype=chosen), out)


def _bounds(low: Any, high: Any, dtype: DType) -> tuple[Any, Any]:
    """Bounds that are arrays, in int64. Raises `ArgumentError` and `DTypeError`; the values are
    checked when the result is waited for."""
    for bound in (low, high):
        if type(bound) is int and not -(2**63) <= bound < 2**64:
            raise ArgumentError(
                f"randint: the bound {bound}, next to a bound that is an array, does not fit into "
                "64 bits; give both as numbers"
            )
    first, second = operand(low), operand(high)
    if first.dtype.kind not in "iu" or second.dtype.kind not in "iu":
        raise DTypeError(f"randint: bounds {first.dtype} and {second.dtype} must be integers")
    holds = first < second
    low, high = cast(first, dtype=int64), cast(second, dtype=int64)
    least, most = limits(dtype)
    if dtype.digits < int64.digits:
        # Bounds of uint64 that int64 lacks became negative, and are not below each other.
        holds = holds & (low < high) & (low >= least) & (high <= most + 1)
    elif least == 0 and first.dtype.kind == "i":
        holds = holds & (low >= 0)
    message = f"randint: low must be below high, and {dtype} must hold the numbers between them"
    return low, required(high + 0 * low, holds, message=message)


def _in_64_bits(bound: int) -> int:
    """The int64 with the lowest 64 bits of a bound, which may be up to 2**64: only the distance of
    the bounds counts."""
    return (bound + 2**63) % 2**64 - 2**63 if type(bound) is int else bound


def check_bounds(name: str, low: int, high: int, dtype: DType) -> None:
    """Raises `ArgumentError` for bounds that enclose nothing, or that the dtype cannot hold."""
    if high <= low:
        raise ArgumentError(f"{name}: low {low} must be a whole number below high {high}")
    try:
        for bound in (low, high - 1):
            check_held(name, bound, dtype)
    except OverflowError as error:
        raise ArgumentError(str(error)) from None


_whole_numbers.__name__ = _whole_numbers.__qualname__ = "randint"
_whole_numbers.__module__ = "gemel.np.random"
publish(_whole_numbers, "randint", "np.random")


@function(public="np.random")
def rand(*shape: int, dtype: Any = None, device: Any = None, ctx: Any = None) -> Array:
    """Numbers spread evenly over [0, 1), in the shape given.

    >>> np.random.rand(2, 3).shape
    """
    return uniformly(size=shape, dtype=dtype, device=device, ctx=ctx)


@function(public="np.random")
def randn(*shape: int, dtype: Any = None, device: Any = None, ctx: Any = None) -> Array:
    """Standard normal numbers, in the shape given.

    >>> np.random.randn(2, 3).shape
    """
    return normally(size=shape, dtype=dtype, device=device, ctx=ctx)
