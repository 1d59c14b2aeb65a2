"""Random numbers. A call takes the next number of the stream; an element's index is the counter.

So the same seed and the same order of calls give the same numbers, however the calls are run. The
stream is the program's or, inside a block `with drawing_from(...)`, another one.
"""

from __future__ import annotations

import os
import threading
from typing import Any, Protocol

from gemel import _core
from gemel.dtype import DType, as_dtype, bool_, int64, uint64
from gemel.errors import ArgumentError, DTypeError
from gemel.ir.above import above
from gemel.ir.current import current_trace
from gemel.ir.declare import elementwise, op
from gemel.ir.layout import broadcast_strides
from gemel.ir.op import Op
from gemel.ir.public import function
from gemel.ir.rules import Emitter
from gemel.ops.elementwise import filled, where
from gemel.spec import Spec, extents, whole

# --- streams --------------------------------------------------------------------------------


@function(public="np.random")
def seed(seed: int | None = None, device: Any = "all", ctx: Any = "all") -> None:
    """Restart the stream: the same seed and the same calls give the same numbers.

    All devices draw from one stream, whatever `device` or `ctx` is. Without a seed the stream is
    unpredictable. Raises `ArgumentError` for a seed that int64 does not hold.

    >>> np.random.seed(42)
    >>> np.random.uniform(size=(2,))
    """
    if seed is None:
        seed = int.from_bytes(os.urandom(7), "little")
    seed = whole("seed", "the seed", seed)
    if not -(2**63) <= seed < 2**63:
        raise ArgumentError(f"seed: the seed {seed} must be from -2**63 to 2**63 - 1")
    _core.random_seed(seed)
    _initialized[0] = 0


@function(public="np.random")
def get_state() -> tuple[int, int, int]:
    """The position of the stream: the seed, the number of the next call, and that of the next
    initial values; `set_state` restores it.

    >>> np.random.seed(1)
    >>> np.random.get_state()
    """
    return (*_core.random_state(), _initialized[0])


@function(public="np.random")
def set_state(state: Any) -> None:
    """Restore the stream to a state returned by `get_state`.

    >>> state = np.random.get_state()
    >>> a = np.random.uniform(size=(2,))
    >>> np.random.set_state(state)
    >>> (a == np.random.uniform(size=(2,))).all()
    """
    seed, number, initialized = (whole("set_state", "a part of the state", n) for n in state)
    _core.set_random_state(seed, number)
    _initialized[0] = initialized


#: How many random calls have drawn initial values since `seed`.
_initialized = [0]
#: Makes their stream different from the program's.
INITIALIZATION = 0x5EED_1417_0F5E_ED00


class initialization:  # noqa: N801 -- used as a function
    """A block of code that draws from the stream of initial values.

    A parameter is created when its shape is known. As it draws from a separate stream, the time of
    this does not affect dropout, and a network starts the same imperatively and hybridized.
    """

    def __enter__(self) -> None:
        self._program = _core.random_state()
        _core.set_random_state(self._program[0] ^ INITIALIZATION, _initialized[0])

    def __exit__(self, *error: object) -> None:
        _initialized[0] = _core.random_state()[1]
        _core.set_random_state(*self._program)


class Stream(Protocol):
    """A random stream other than the program's."""

    def take(self) -> tuple[Any, Any]:
        """The seed and the number of the next call: two 0-d int64 arrays."""


class _Own(threading.local):
    """The stream this thread draws from, if not the program's."""

    def __init__(self) -> None:
        self.stream: Stream | None = None


_own = _Own()


class drawing_from:  # noqa: N801 -- used as a function
    """A block of code in which this thread draws from a stream other than the program's."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream

    def __enter__(self) -> None:
        self._before, _own.stream = _own.stream, self._stream

    def __exit__(self, *error: object) -> None:
        _own.stream = self._before


def has_own_stream() -> bool:
    """Whether this thread draws from a stream other than the program's."""
    return _own.stream is not None


def drawn(operation: Op, *inputs: Any, **parameters: Any) -> Any:
    """The result of a random operation on this thread's stream; in a trace, an entry."""
    if current_trace() is not None:
        inputs = tuple(above.as_entry(value) for value in inputs)
    if _own.stream is None:
        return operation(*inputs, **parameters)
    return operation(*inputs, *_own.stream.take(), call=0, **parameters)


def mixed(seed: int, number: int) -> int:
    """A number below 2**63, mixed from the two so that it reveals neither (as in SplitMix64)."""
    word = (seed ^ (number + 1) * 0x9E37_79B9_7F4A_7C15) % 2**64
    word = (word ^ word >> 30) * 0xBF58_476D_1CE4_E5B9 % 2**64
    word = (word ^ word >> 27) * 0x94D0_49BB_1331_11EB % 2**64
    return (word ^ word >> 31) >> 1


def number_drawn() -> int:
    """A Python int below 2**63, from this thread's stream."""
    if _own.stream is None:
        return mixed(*_core.random_reserve(1))
    seed, number = _own.stream.take()
    return mixed(int(seed), int(number))


# --- operations -----------------------------------------------------------------------------


def floating(op: Op, specs: tuple[Spec, ...], parameters: Any) -> tuple[tuple[DType, ...], DType]:
    dtype = as_dtype(parameters["dtype"])
    if not dtype.is_floating:
        raise DTypeError(f"{op.name}: dtype {dtype} must be floating; use randint for integers")
    return _with_stream(op, specs, dtype), dtype


def _with_stream(op: Op, specs: tuple[Spec, ...], dtype: DType) -> tuple[DType, ...]:
    """The dtypes of an operation's inputs: after its own come a seed and a number, int64."""
    return tuple(int64 if i >= op.required else dtype for i in range(len(specs)))


def _two_numbers(op: Op, specs: tuple[Spec, ...], _: Any) -> tuple[tuple[DType, ...], Any]:
    return (), (int64, int64)


@elementwise(dtype=_two_numbers, random=True, outputs=2)
def stream_taken(xp: Any, *, call: Any = None) -> Any:
    """The seed and the number of a random call. An operation given these draws the same numbers."""
    return xp.random_stream()


def _shaped(name: str, a: Spec, b: Spec, shape: Any, dtype: Any) -> Spec:
    return filled(name, Spec(extents(name, shape), dtype), a, b)


def bits(xp: Any, seed: Any, number: Any) -> tuple[Any, Any]:
    """64 random bits for each element, from the given stream or the program's."""
    first, second = xp.random_bits() if seed is None else xp.random_bits(seed, number)
    return first, second


@elementwise(dtype=floating, random=True, onnx="RandomUniform", mxnet="_npi_uniform")
def uniform(
    xp: Any,
    low: Any,
    high: Any,
    seed: Any = None,
    number: Any = None,
    *,
    shape: Any,
    dtype: Any = "float32",
    call: Any = None,
) -> Any:
    """Numbers spread evenly over [low, high)."""
    return low + (high - low) * fraction(xp, bits(xp, seed, number), low.dtype, dtype)


def fraction(xp: Any, random: Any, compute: Any, dtype: Any) -> Any:
    """A number in [0, 1) with as many random bits as the dtype holds, so none is rounded to 1."""
    first, second = random
    wanted = as_dtype(dtype)
    if wanted.digits > 32:
        high, low = xp.cast(first >> 5, compute), xp.cast(second >> 6, compute)
        return (high * 2.0**26 + low) * 2.0**-53
    return xp.cast(first >> (32 - wanted.digits), compute) * 2.0**-wanted.digits


@uniform.spec
def _(low: Spec, high: Spec, *_: Spec, shape: Any, dtype: Any, call: Any = None) -> Spec:
    return _shaped("uniform", low, high, shape, dtype)


@uniform.gradient
def _(g: Any, y: Any, low: Any, high: Any, *stream: Any, **_: Any) -> Any:
    share = where(high == low, 0, (y - low) / where(high == low, 1, high - low))
    return g * (1 - share), g * share, *[None] * len(stream)


@elementwise(dtype=floating, random=True, onnx="RandomNormal", mxnet="_npi_normal")
def normal(
    xp: Any,
    loc: Any,
    scale: Any,
    seed: Any = None,
    number: Any = None,
    *,
    shape: Any,
    dtype: Any = "float32",
    call: Any = None,
) -> Any:
    """Normally distributed numbers with mean `loc` and standard deviation `scale`.

    By Box and Muller (A note on the generation of random normal deviates, 1958).
    """
    return loc + scale * deviate(xp, bits(xp, seed, number), loc.dtype)


def deviate(xp: Any, random: Any, compute: Any) -> Any:
    """A standard normal number from 48 random bits."""
    first, second = random
    # (bits + 1) / 2**24 lies in (0, 1], so its logarithm is finite.
    radius = xp.sqrt(-2 * xp.log((xp.cast(first >> 8, compute) + 1) * 2.0**-24))
    angle = xp.cast(second >> 8, compute) * (2.0**-23 * 3.141592653589793)
    return radius * xp.cos(angle)


@normal.spec
def _(loc: Spec, scale: Spec, *_: Spec, shape: Any, dtype: Any, call: Any = None) -> Spec:
    return _shaped("normal", loc, scale, shape, dtype)


@normal.gradient
def _(g: Any, y: Any, loc: Any, scale: Any, *stream: Any, **_: Any) -> Any:
    return g, g * ((y - loc) / scale), *[None] * len(stream)


def _integers(op: Op, specs: tuple[Spec, ...], parameters: Any) -> tuple[tuple[DType, ...], DType]:
    dtype = as_dtype(parameters["dtype"])
    if dtype.kind not in "iu":
        raise DTypeError(f"{op.name}: dtype {dtype} must be an integer")
    return (int64,) * len(specs), dtype


@elementwise(dtype=_integers, random=True, mxnet="_npi_random_randint")
def randint(
    xp: Any,
    low: Any,
    high: Any,
    seed: Any = None,
    number: Any = None,
    *,
    shape: Any,
    dtype: Any = "int64",
    call: Any = None,
) -> Any:
    """Whole numbers from low up to and without high."""
    first, second = (xp.cast(each, uint64) for each in bits(xp, seed, number))
    width = xp.cast(high - low, uint64)  # 0 means 2**64: all numbers
    narrow = (width * (first >> 1)) >> 31  # for widths below 2**32
    whole = (first << 32) | second
    wide = _upper_half(width, whole)
    return xp.cast(low, uint64) + xp.where(width == 0, whole, xp.where(width < 2**32, narrow, wide))


def _upper_half(a: Any, b: Any) -> Any:
    """The upper 64 bits of a product of two uint64, from products of 32 bits."""
    low = 2**32 - 1
    middle = (a >> 32) * (b & low) + (((a & low) * (b & low)) >> 32)
    other = (middle & low) + (a & low) * (b >> 32)
    return (a >> 32) * (b >> 32) + (middle >> 32) + (other >> 32)


@randint.spec
def _(low: Spec, high: Spec, *_: Spec, shape: Any, dtype: Any, call: Any = None) -> Spec:
    return _shaped("randint", low, high, shape, dtype)


@op(fails=True)
def required(x: Any, condition: Any, *, message: str) -> Any:
    """x if the condition holds everywhere; otherwise waiting for the result raises `ValueError`.

    The condition broadcasts to x.
    """
    if not condition.all():
        raise ArgumentError(message)
    return x.copy()


@required.spec
def _(x: Spec, condition: Spec, *, message: str) -> Spec:
    filled("required", x, condition)
    return Spec(x.shape, x.dtype)


@required.gradient
def _(g: Any, y: Any, x: Any, condition: Any, *, message: str) -> Any:
    return g, None


@required.lower
def _(emit: Emitter, outputs: Any, inputs: Any, *, message: str) -> None:
    (result,), (x, condition) = outputs, inputs
    loop = emit.loop(result.shape, failure=("ValueError", message))
    strides = broadcast_strides(condition.shape, condition.strides, len(result.shape))
    holds = loop.load(condition, strides)
    loop.recorder.check(loop.cast(holds, bool_))  # MXNet 1's comparisons give numbers
    loop.store(result, loop.load(x))
    loop.finish()
