"""`np.random.Generator`: random numbers from a separate stream."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Any

from gemel.arrays.making import array_like
from gemel.device import current_device
from gemel.dtype import int64
from gemel.errors import ArgumentError
from gemel.extent import WHOLE
from gemel.ir.current import current_trace
from gemel.ir.philox import words
from gemel.ir.public import NAMESPACES, function
from gemel.ir.trace import StateArray
from gemel.ops import choices, distributions  # noqa: F401 -- they declare what is drawn
from gemel.ops.elementwise import add, copy
from gemel.ops.random import drawing_from
from gemel.ops.shape import operand
from gemel.spec import normalize_axis, whole

#: Makes the seeds of a generator's children independent of its numbers.
SPAWNED = 0x0C41_1D5E_0C41_1D5E


class BitGenerator:
    """The position of a generator in its stream: `state` can be read, stored and set."""

    def __init__(self, seed: int, number: int = 0, children: int = 0) -> None:
        self._seed = StateArray("seed", array_like(seed, int64))
        self._number = StateArray("number", array_like(number, int64))
        self._children = children
        self._lock = threading.Lock()

    @property
    def state(self) -> dict[str, Any]:
        """The seed, the number of the next call, and the number of children. Waits for them."""
        return {
            "bit_generator": "Philox2x32",
            "seed": int(self._seed.value),
            "number": int(self._number.value),
            "children": self._children,
        }

    @state.setter
    def state(self, value: dict[str, Any]) -> None:
        if value.get("bit_generator") != "Philox2x32":
            raise ArgumentError(f"{value!r} is not the state of a gemel generator")
        with self._lock:
            self._seed.value[...] = value["seed"]
            self._number.value[...] = value["number"]
            self._children = value.get("children", 0)

    def take(self) -> tuple[Any, Any]:
        """The seed and the number of the next call; this advances the number.

        In a trace both are inputs of the program, which also updates the number.
        """
        trace = current_trace()
        if trace is not None:
            number = copy(trace.state.parameter(self._number))  # its value before the update
            trace.state.update(self._number, add(number, 1))
            return trace.state.parameter(self._seed), number
        with self._lock:
            number = self._number.value.copy()
            self._number.value += 1
        device = current_device()
        return self._seed.value.to_device(device), number.to_device(device)

    def spawn(self, count: int) -> list[BitGenerator]:
        """Generators whose streams are independent of this one and of each other."""
        with self._lock:
            first, self._children = self._children, self._children + count
        seed = int(self._seed.value) ^ SPAWNED
        pairs = (words(seed, first + i) for i in range(count))
        return [BitGenerator(low | (high >> 1) << 32) for low, high in pairs]

    def __reduce__(self) -> tuple[Any, ...]:
        state = self.state
        return BitGenerator, (state["seed"], state["number"], state["children"])


def _method(name: str) -> Any:
    """A method that calls a function of `np.random` on the stream of its generator."""
    drawing: Callable[..., Any] = NAMESPACES["np.random"].get(name) or getattr(choices, name)

    def method(self: Generator, *values: Any, **named: Any) -> Any:
        with drawing_from(self.bit_generator):
            return drawing(*values, **named)

    method.__name__ = method.__qualname__ = name
    method.__doc__ = drawing.__doc__
    return method


@function(public="np.random")
class Generator:
    """A source of random numbers with its own stream; created by `default_rng`.

    The same seed and the same calls give the same numbers: imperatively and in compiled programs,
    on every device, whatever else is drawn. Its methods are the functions of `np.random`; numbers
    are float32 unless `dtype` says otherwise.
    """

    def __init__(self, bit_generator: BitGenerator) -> None:
        self.bit_generator = bit_generator

    beta = _method("beta")
    binomial = _method("binomial")
    chisquare = _method("chisquare")
    dirichlet = _method("dirichlet")
    exponential = _method("exponential")
    f = _method("f")
    gamma = _method("gamma")
    geometric = _method("geometric")
    gumbel = _method("gumbel")
    hypergeometric = _method("hypergeometric")
    laplace = _method("laplace")
    logistic = _method("logistic")
    lognormal = _method("lognormal")
    logseries = _method("logseries")
    multinomial = _method("multinomial")
    multivariate_normal = _method("multivariate_normal")
    negative_binomial = _method("negative_binomial")
    normal = _method("normal")
    pareto = _method("pareto")
    poisson = _method("poisson")
    power = _method("power")
    random = _method("random")
    rayleigh = _method("rayleigh")
    standard_cauchy = _method("standard_cauchy")
    standard_exponential = _method("standard_exponential")
    standard_gamma = _method("standard_gamma")
    standard_normal = _method("standard_normal")
    standard_t = _method("standard_t")
    triangular = _method("triangular")
    uniform = _method("uniform")
    vonmises = _method("vonmises")
    wald = _method("wald")
    weibull = _method("weibull")
    zipf = _method("zipf")
    _choice = _method("choice")
    _randint = _method("randint")
    _permutation = _method("permutation")
    _permuted = _method("permuted")
    _shuffle = _method("shuffle")

    def integers(
        self,
        low: Any,
        high: Any = None,
        size: Any = None,
        dtype: Any = None,
        endpoint: bool = False,
    ) -> Any:
        """Whole numbers from low (0 if only one bound is given) to high, excluding high unless
        `endpoint`."""
        if high is None:
            low, high = 0, low
        if endpoint:
            high = high + 1 if isinstance(high, WHOLE) else operand(high) + 1
        return self._randint(low, high, size, dtype)

    def choice(
        self,
        a: Any,
        size: Any = None,
        replace: bool = True,
        p: Any = None,
        axis: int = 0,
        shuffle: bool = True,
    ) -> Any:
        """Like `np.random.choice`; the order is always random."""
        return self._choice(a, size, replace, p, axis=axis)

    def permutation(self, x: Any, axis: int = 0) -> Any:
        """The numbers 0 to x - 1, or an array's slices along an axis, in random order."""
        if axis == 0:
            return self._permutation(x)
        x = operand(x)
        order = self._permutation(x.shape[normalize_axis("permutation", axis, x.ndim)])
        return x.take(order, axis=axis)

    def shuffle(self, x: Any, axis: int = 0) -> None:
        """Put an array's slices along an axis, or a list, in random order, in place."""
        if axis == 0:
            self._shuffle(x)
        else:
            x[...] = self.permutation(x, axis)

    def permuted(self, x: Any, axis: int | None = None) -> Any:
        """An array with all elements in random order; along an axis, each row gets its own
        order."""
        return self._permuted(x, axis)

    def bytes(self, length: int) -> bytes:
        """`length` random bytes. Waits for them."""
        found: bytes = self._randint(0, 256, length, "uint8").asnumpy().tobytes()
        return found

    def spawn(self, n_children: int) -> list[Generator]:
        """Generators with their own streams; each call gives new ones."""
        return [Generator(each) for each in self.bit_generator.spawn(n_children)]

    def __repr__(self) -> str:
        return "Generator(Philox2x32)"

    def __reduce__(self) -> tuple[Any, ...]:
        return Generator, (self.bit_generator,)


@function(public="np.random")
class RandomState(Generator):
    """A generator with the methods of NumPy's older class, with this seed or an unpredictable one.

    >>> np.random.RandomState(7).randint(0, 10, size=4)
    """

    rand = _method("rand")
    randint = _method("randint")
    randn = _method("randn")
    random_sample = _method("random_sample")
    choice = _method("choice")

    def __init__(self, seed: Any = None) -> None:
        super().__init__(default_rng(seed).bit_generator)

    def seed(self, seed: Any = None) -> None:
        """Restart the stream with this seed."""
        self.bit_generator.state = default_rng(seed).bit_generator.state

    def __reduce__(self) -> tuple[Any, ...]:
        return RandomState, (self.bit_generator,)


@function(public="np.random")
def default_rng(seed: Any = None) -> Generator:
    """A generator with its own stream, from this seed or an unpredictable one; a generator given as
    `seed` is returned itself.

    >>> np.random.default_rng(7).integers(0, 10, size=4)
    """
    if isinstance(seed, Generator):
        return seed
    if isinstance(seed, BitGenerator):
        return Generator(seed)
    if seed is None:
        seed = int.from_bytes(os.urandom(8), "little")
    number = whole("default_rng", "the seed", seed)
    if number < 0:
        raise ArgumentError(f"default_rng: the seed {number} must not be negative")
    low, high = words(number & (2**64 - 1), number >> 64)
    return Generator(BitGenerator(low | (high >> 1) << 32))
