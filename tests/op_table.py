"""One table with calls of every operation, from which the operation tests are derived.

A `Case` is one call: the operation, a draw for each input, and its parameters. `ELSEWHERE` lists
the operations without a case, with the reason. Accepted dtypes are not listed, because an operation
refuses the others in its `infer`.
"""

from __future__ import annotations

import zlib
from typing import Any, NamedTuple

import numpy

import gemel
from gemel import np
from gemel.dtype import DTYPES
from gemel.errors import DTypeError
from gemel.ir.interpret import reference, spec_of
from gemel.ir.late import load
from gemel.ir.methods import REGISTRY
from gemel.ir.op import Op
from gemel.ir.op_kinds import Composite, Elementwise, Reduction

load()
Array = numpy.ndarray[Any, Any]

#: All of gemel's operations; other tests declare some of their own.
OPS: dict[str, Op] = {n: op for n, op in REGISTRY.items() if isinstance(op, Op) and op.is_own}
#: The dtypes that NumPy has too.
NAMES = tuple(dtype.name for dtype in DTYPES if dtype.twin is dtype)
FLOATING = ("float16", "float32", "float64")

#: Operations whose kernels approximate a function; all other elementwise operations are exact.
FUNCTIONS = frozenset((
    "power", "exp", "expm1", "log", "log1p", "tanh", "sin", "cos", "sigmoid", "gelu", "erf",
    "softplus", "normal", "log_gamma",
    "tan", "arcsin", "arccos", "arctan", "arctan2", "hypot", "sinc", "sinh", "cosh", "arcsinh",
    "arccosh", "arctanh", "degrees", "radians", "exp2", "log2", "log10", "logaddexp", "logaddexp2",
    "logcumsumexp", "exponential_sums",
    "cbrt", "ldexp", "elu", "gamma", "gammaln", "digamma", "polygamma", "erfinv",
))  # fmt: skip

#: The seed of random operations.
SEED = 11

#: Relative error allowed where results are not exact.
TOLERANCE = {
    "float16": 1e-3,
    **{"float32": 2e-6, "float64": 2e-14, "complex64": 2e-6, "complex128": 2e-14},
}


class Draw(NamedTuple):
    """How to make an input: its shape, the values it may take, and a dtype if only one is allowed.

    `kind` is "any", "positive", "nonzero", "unit" (from -1 to 1), "above one", "smooth" (away from
    kinks, no ties), "mask", "index" (from -limit to limit - 1), "place" (0 to limit - 1),
    "definite" (invertible symmetric matrices), "sorted" (each row), or "number" (a Python number).
    """

    shape: tuple[int, ...]
    kind: str = "any"
    dtype: str = ""
    limit: int = 0
    number: Any = None


class Case(NamedTuple):
    """One call of an operation. `smooth` draws are used instead where gradients are checked."""

    name: str
    draws: tuple[Draw, ...]
    parameters: dict[str, Any]
    smooth: tuple[Draw, ...] = ()

    @property
    def op(self) -> Op:
        return OPS[self.name]

    def __str__(self) -> str:
        shapes = "-".join("x".join(map(str, d.shape)) or str(d.number or 0) for d in self.draws)
        extra = ",".join(f"{k}={v}" for k, v in self.parameters.items())
        return f"{self.name}[{shapes}]" + (f"({extra})" if extra else "")


def draw(how: Draw, dtype: str, seed: int = 0) -> Any:
    """The NumPy array (or Python number) that a draw describes; the same for the same seed."""
    if how.kind == "number":
        return how.number
    name = how.dtype or dtype
    # Not hash(): its value for a string differs from process to process.
    text = f"{how}{seed}".encode()
    generator = numpy.random.default_rng(zlib.crc32(text))
    if how.kind == "definite":
        return _definite(generator, how.shape, name)
    if how.kind == "sorted":
        return numpy.sort(draw(how._replace(kind="any"), dtype, seed), axis=-1)
    if how.kind == "mask" or (name == "bool" and how.kind not in ("index", "place")):
        return (generator.random(how.shape) < 0.5).astype(name)
    if how.kind in ("index", "place"):
        low = -how.limit if how.kind == "index" else 0
        return generator.integers(low, how.limit, how.shape).astype(name)
    if name.startswith("complex"):
        parts = (_numbers(generator, how, seed + part) for part in (0, 1))
        return (next(parts) + 1j * next(parts)).astype(name)
    if name not in FLOATING:
        return _integers(generator, how, name)
    return _numbers(generator, how, seed).astype(name)


def _definite(generator: Any, shape: tuple[int, ...], name: str) -> Array:
    unit = numpy.eye(shape[-1])
    if name == "bool":
        return numpy.broadcast_to(unit, shape).astype(name)
    base = generator.integers(0, 3, shape)
    return numpy.asarray(base @ numpy.swapaxes(base, -1, -2) + shape[-1] * unit).astype(name)


def _integers(generator: Any, how: Draw, name: str) -> Array:
    low = 0 if name.startswith("uint") else -5
    if how.kind in ("positive", "exponent"):
        low = 1 if how.kind == "positive" else 0
    high = 6
    if how.kind in ("unit", "above one"):
        low, high = (0, 2) if how.kind == "unit" else (1, 6)
    found = generator.integers(low, high, how.shape)
    if how.kind in ("nonzero", "smooth"):
        found = numpy.where(found == 0, 3, found)
    return numpy.asarray(found).astype(name)


def _numbers(generator: Any, how: Draw, seed: int) -> Array:
    if how.kind == "positive":
        return numpy.asarray(generator.uniform(0.25, 3.0, how.shape))
    if how.kind in ("unit", "above one"):
        low, high = (-0.9, 0.9) if how.kind == "unit" else (1.1, 4.0)
        return numpy.asarray(generator.uniform(low, high, how.shape))
    found = generator.uniform(-3.0, 3.0, how.shape)
    if how.kind == "nonzero":
        found = found + numpy.copysign(0.25, found)
    if how.kind == "smooth":
        # Distinct values, none near a whole or half number; another seed gives other values.
        size = int(numpy.prod(how.shape))
        grid = (generator.permutation(size) + 0.5) * (5.0 / max(size, 1)) - 2.5 + 0.013 * seed
        near = numpy.abs(grid * 2 - numpy.rint(grid * 2)) < 0.1
        found = numpy.where(near, grid + 0.11, grid).reshape(how.shape)
    return numpy.asarray(found)


def inputs_of(case: Case, dtype: str, seed: int = 0, smooth: bool = False) -> list[Any]:
    """The drawn inputs of a case."""
    draws = case.smooth or case.draws if smooth else case.draws
    return [draw(how, dtype, seed + position) for position, how in enumerate(draws)]


def on_gemel(values: Any) -> list[Any]:
    """NumPy arrays converted to gemel's; Python numbers unchanged."""
    plain = (bool, int, float, complex)
    return [v if isinstance(v, plain) else np.array(v, dtype=v.dtype.name) for v in values]


def results(found: Any) -> list[Array]:
    """The results of a call as a list of NumPy arrays."""
    several = found if isinstance(found, (tuple, list)) else (found,)
    return [value.asnumpy() for value in several]


def accepts(case: Case, inputs: list[Any]) -> bool:
    """Whether the operation accepts inputs of these dtypes."""
    if case.op.dynamic:
        return True
    try:
        case.op.infer(*map(spec_of, inputs), **case.op.complete(case.parameters))
    except DTypeError:
        return False
    return True


def expected_of(case: Case, inputs: list[Any], stream: tuple[int, int] = (0, 0)) -> list[Array]:
    """The results of the reference, in the dtypes that `infer` declares."""
    op, parameters = case.op, case.op.complete(case.parameters)
    with numpy.errstate(all="ignore"):
        if op.random:
            found = _random_reference(op, inputs, parameters, stream)
        elif isinstance(op, (Elementwise, Composite)):
            found = list(reference(op, *inputs, **parameters))
        else:
            arrays = [*map(numpy.asarray, inputs)]
            found = list(reference(op, *arrays, **parameters))
            if isinstance(op, Reduction) and all(x.dtype == "float32" for x in arrays):
                # NumPy adds a single column up sequentially, which is less accurate than in blocks.
                wide = reference(op, *(x.astype("float64") for x in arrays), **parameters)
                found = [w.astype(f.dtype) for w, f in zip(wide, found, strict=True)]
    return [numpy.asarray(value) for value in found]


def _random_reference(op: Op, inputs: list[Any], parameters: Any, stream: Any) -> list[Array]:
    from gemel.ir.interpret import composite

    if isinstance(op, Composite):
        return composite(op, tuple(inputs), {**parameters, "call": 0}, stream)
    return list(reference(op, *inputs, **{**parameters, "stream": stream}))


def close(found: Array, expected: Array, name: str, scale: float = 1.0) -> None:
    """Check for the same shape and dtype; values equal, or near if the operation approximates."""
    assert found.shape == expected.shape, (found.shape, expected.shape)
    assert found.dtype == expected.dtype, (found.dtype, expected.dtype)
    exact = isinstance(OPS[name], Elementwise) and name not in FUNCTIONS
    rounded = not isinstance(OPS[name], (Reduction, Composite)) and name not in (
        "matmul",
        "wide_matmul",
        "scatter",
        "add_along_axis",
        "add_points",
        "fold",
    )
    if found.dtype.kind not in "fc" or exact or (rounded and name not in FUNCTIONS):
        numpy.testing.assert_array_equal(found, expected)
        zero = (expected == 0) & ~numpy.isnan(expected) if found.dtype.kind == "f" else None
        if zero is not None and exact and name not in ("maximum", "minimum", "limit", "relu"):
            numpy.testing.assert_array_equal(
                numpy.signbit(found[zero]), numpy.signbit(expected[zero])
            )
        return
    near = TOLERANCE[found.dtype.name] * scale
    numpy.testing.assert_allclose(found, expected, rtol=near, atol=near)


def check(case: Case, inputs: list[Any], arrays: list[Any] | None = None) -> None:
    """Check one call against the reference: shapes, dtypes and values, and the specs of `infer`."""
    op = case.op
    if arrays is None:
        arrays = on_gemel(inputs)
    specs = (
        op.infer(*map(spec_of, inputs), **op.complete(case.parameters)) if not op.dynamic else ()
    )
    expected = expected_of(case, inputs, stream=(SEED, 0))
    seeded(SEED)
    found = results(op(*arrays, **case.parameters))
    if op.updates:
        found += [arrays[position].asnumpy() for position in op.updates]
    assert len(found) == len(expected)
    for value, wanted in zip(found, expected, strict=True):
        close(value, wanted, case.name)
    for value, spec in zip(found, specs, strict=not op.dynamic and not op.updates):
        assert value.shape == spec.shape
        assert value.dtype.name == spec.dtype.name


# --- the table ------------------------------------------------------------------------------

SMALL = (3, 4)


def _case(name: str, *draws: Any, smooth: Any = (), **parameters: Any) -> Case:
    made = tuple(d if isinstance(d, Draw) else Draw(d) for d in draws)
    return Case(name, made, parameters, tuple(smooth))


def _unary() -> list[Case]:
    kinds = {
        "sqrt": "positive", "log": "positive", "log1p": "positive", "reciprocal": "nonzero",
        "log2": "positive", "log10": "positive", "arcsin": "unit", "arccos": "unit",
        "arctanh": "unit", "arccosh": "above one", "gamma": "positive", "gammaln": "positive",
        "digamma": "positive", "polygamma": "positive", "erfinv": "unit",
    }  # fmt: skip
    names = [
        "negative", "absolute", "sign", "square", "reciprocal", "sqrt", "exp", "expm1", "log",
        "log1p", "tanh", "sin", "cos", "floor", "ceil", "rint", "sigmoid", "relu", "copy",
        "stop_gradient", "gelu", "erf", "softplus", "softsign", "isnan", "logical_not", "invert",
        "tan", "arcsin", "arccos", "arctan", "sinh", "cosh", "arcsinh", "arccosh", "arctanh",
        "degrees", "radians", "sinc", "exp2", "log2", "log10", "cbrt", "trunc", "round", "signbit",
        "modf", "frexp", "spacing", "positive", "fabs", "isfinite", "isinf", "isposinf", "isneginf",
        "bitwise_count", "i0", "gamma", "gammaln", "digamma", "polygamma", "erfinv",
    ]  # fmt: skip
    found = []
    for name in names:
        kind = kinds.get(name, "any")
        smooth = Draw(SMALL, "smooth" if kind in ("any", "nonzero") else kind)
        found.append(_case(name, Draw(SMALL, kind), smooth=(smooth,)))
    return found


def _binary() -> list[Case]:
    first = {"power": "positive"}
    second = {
        "divide": "nonzero", "floor_divide": "nonzero", "remainder": "nonzero", "divmod": "nonzero",
        "fmod": "nonzero", "power": "exponent",
    }  # fmt: skip
    names = [
        "add", "subtract", "multiply", "divide", "floor_divide", "remainder", "divmod", "power",
        "maximum", "minimum", "equal", "not_equal", "less", "less_equal", "greater",
        "greater_equal", "logical_and", "logical_or", "logical_xor", "bitwise_and",
        "bitwise_or", "bitwise_xor", "leaky_relu", "arctan2", "hypot", "logaddexp", "logaddexp2",
        "fmod", "copysign", "nextafter", "fmax", "fmin", "heaviside", "left_shift", "right_shift",
        "gcd", "lcm",
    ]  # fmt: skip
    found = []
    for name in names:
        a, b = first.get(name, "any"), second.get(name, "any")
        soft = [Draw(SMALL, k if k == "positive" else "smooth") for k in (a, b)]
        found.append(_case(name, Draw(SMALL, a), Draw(SMALL, b), smooth=soft))
        wide = [Draw((2, 1, 4), soft[0].kind), Draw((3, 1), soft[1].kind)]
        found.append(_case(name, Draw((2, 1, 4), a), Draw((3, 1), b), smooth=wide))
    return found


def _other_elementwise() -> list[Case]:
    low = Draw((), "number", number=-1)
    high = Draw((), "number", number=2)
    soft = Draw(SMALL, "smooth")
    return [
        _case("limit", SMALL, low, high, smooth=(soft, low, high)),
        _case("limit", SMALL, Draw((4,), "nonzero"), Draw((3, 1), "positive"),
              smooth=(soft, Draw((4,), "smooth"), Draw((3, 1), "positive"))),
        _case("where", Draw(SMALL, "mask", "bool"), SMALL, SMALL),
        _case("where", Draw((3, 1), "mask"), Draw((4,)), Draw((), "number", number=0)),
        *(_case("cast", Draw(SMALL, "positive"), dtype=name) for name in NAMES),
        _case("round", Draw(SMALL, "smooth"), decimals=1),
        _case("round", Draw(SMALL, "smooth"), decimals=-1),
        _case("ldexp", SMALL, Draw(SMALL, "index", "int32", 20)),
        _case("ldexp", SMALL, SMALL),
        _case("isclose", SMALL, SMALL, Draw((), "number", number=0.1), high, equal_nan=True),
        _case("isclose", SMALL, Draw((2, 1, 4)), low, high, equal_nan=False),
        _case("replace_special", SMALL, Draw((4,)), high, Draw((), "number", number=1)),
        _case("full", Draw((), "number", number=3), shape=(2, 3), dtype="float32"),
        _case("full", Draw((), "number", number=True), shape=(), dtype="int8"),
        _case("full", Draw((3,)), shape=(2, 3), dtype="float64"),
        _case("iota", shape=(3, 4), axis=0, dtype="int64"),
        _case("iota", shape=(3, 4), axis=1, dtype="float32"),
        _case("iota", shape=(0,), axis=0, dtype="int32"),
        _case("uniform", Draw((), "number", number=-1.0), Draw((), "number", number=2.0),
              shape=(5, 7), dtype="float32"),
        _case("uniform", Draw((7,), "positive", "float64"), Draw((5, 1), "positive", "float64"),
              shape=(5, 7), dtype="float64"),
        _case("normal", Draw((), "number", number=1.0), Draw((), "number", number=0.5),
              shape=(5, 7), dtype="float32"),
        _case("normal", Draw((7,)), Draw((5, 1), "positive"), shape=(5, 7), dtype="float64"),
        _case("randint", Draw((), "number", number=-3), Draw((), "number", number=9),
              shape=(5, 7), dtype="int64"),
        _case("randint", Draw((), "number", number=0), Draw((), "number", number=250),
              shape=(40,), dtype="uint8"),
        _case("uniform", Draw((4,), "positive"), Draw((), "number", number=9.0),
              Draw((), "number", number=3), Draw((), "number", number=5), shape=(3, 4),
              dtype="float64", call=0),
        _case("normal", Draw((4,)), Draw((4,), "positive"), Draw((), "place", "int64", 9),
              Draw((), "place", "int64", 9), shape=(3, 4), dtype="float32", call=0),
        _case("randint", Draw((), "number", number=0), Draw((), "number", number=250),
              Draw((), "place", "int64", 9), Draw((), "place", "int64", 9), shape=(40,),
              dtype="int32", call=0),
        _case("log_gamma", Draw((5, 1), "positive"), shape=(5, 7), dtype="float32"),
        _case("log_gamma", Draw((7,), "positive", "float64"), shape=(5, 7), dtype="float64"),
        _case("gamma_slope", SMALL, Draw(SMALL, "positive")),
        _case("by_numpy", Draw((2,), "place", "int64", 999), Draw((3,), "positive"),
              kind="poisson", shape=(3,), dtype="int64"),
        _case("required", SMALL, Draw((), "number", number=True), message="it must"),
    ]  # fmt: skip


#: Reductions that are composed of others.
COMPOSED = (
    "nansum", "nanprod", "nanmean", "nanmax", "nanmin", "nanvar", "count_nonzero", "ptp",
    "logsumexp",
)  # fmt: skip


def _reductions() -> list[Case]:
    found = []
    names = (
        "sum", "prod", "max", "min", "any", "all", "argmax", "argmin", "mean", "var", "std",
    )  # fmt: skip
    for name in names:
        single = name.startswith("arg")
        shape = (3, 4, 5)
        soft = (Draw(shape, "smooth"),)
        axes = (None, 0, 1, -1) if single else (None, 0, 1, -1, (0, 2), (1, 2), (0, 1, 2))
        found += [_case(name, shape, smooth=soft, axis=axis, keepdims=False) for axis in axes]
        found.append(_case(name, shape, smooth=soft, axis=1, keepdims=True))
        found.append(_case(name, Draw((6,), "smooth"), axis=None, keepdims=True))
    for name in ("var", "std"):
        found.append(_case(name, shape, smooth=soft, axis=(0, 2), ddof=1, keepdims=True))
    for name in COMPOSED:
        found += [_case(name, SMALL, axis=axis, keepdims=bool(axis)) for axis in (None, 0, 1)]
    for name in ("nanargmax", "nanargmin"):
        found += [_case(name, SMALL, axis=axis, keepdims=bool(axis)) for axis in (None, 0, 1)]
    for name in ("cumsum", "cumprod"):
        found += [_case(name, Draw(shape, "nonzero"), smooth=soft, axis=axis) for axis in (1, -1)]
    for name in ("cummax", "cummin", "logcumsumexp"):
        found += [_case(name, shape, smooth=soft, axis=axis) for axis in (0, -1)]
    for later in (False, True):
        found.append(_case("exponential_sums", *[SMALL] * 3, axis=-1, later=later))
    found += [_case("ranked", SMALL, ranks=(0, 3)), _case("ranked", (2, 3, 5), ranks=(2, 2, 4))]
    found.append(_case("sum", (), axis=None, keepdims=False))
    found.append(_case("sum", SMALL, axis=(), keepdims=False))
    found.append(_case("prod", Draw((3, 4), "any"), axis=-1, keepdims=False))
    found.append(_case("prod_backward", (3, 4), Draw((3, 2, 4), "nonzero"), axis=1))
    return found


def _shapes() -> list[Case]:
    part = (("slice", 1, 2, 1), ("slice", 3, 2, -2))
    point = (("int", 1), ("new",), ("slice", 0, 4, 1))
    return [
        _case("reshape", SMALL, shape=(2, 6)),
        _case("reshape", SMALL, shape=(-1,)),
        _case("reshape", (6,), shape=(2, -1, 1)),
        _case("reshape", (1, 1), shape=()),
        _case("transpose", (2, 3, 4), axes=None),
        _case("transpose", (2, 3, 4), axes=(1, 2, 0)),
        _case("broadcast_to", (3, 1), shape=(2, 3, 4)),
        _case("broadcast_to", (), shape=(2,)),
        _case("concatenate", SMALL, (2, 4), axis=0),
        _case("concatenate", SMALL, (3, 2), (3, 1), axis=-1),
        _case("concatenate", (4,), axis=0),
        _case("concatenate", (0, 4), SMALL, axis=0),
        _case("split", (6, 2), sections=3, axis=0),
        _case("split", (2, 7), sections=(2, 5), axis=1),
        _case("split", (2, 7), sections=(2, 2, 9), axis=-1),
        _case("narrow", SMALL, axis=1, start=1, length=2),
        _case("basic_index", SMALL, key=part),
        _case("basic_index", SMALL, key=point),
        _case("place", (2, 2), key=part, shape=SMALL),
        _case("place", (1, 4), key=point, shape=SMALL),
        _case("assign", SMALL, (2, 1), key=part),
        _case("assign", SMALL, (), key=point),
    ]


def _points() -> list[Case]:
    rows, columns = Draw((4,), "index", "int64", 3), Draw((2, 1), "place", "int32", 5)
    both: Any = {"axis": 1, "named": (1, 2), "caller": "take"}
    added = {**both, "shape": (2, 3, 5, 2)}
    found: list[Case] = []
    for read, add in (("points", "points_added"), ("read_points", "add_points")):
        found += [
            _case(read, (2, 3, 5, 2), rows, columns, **both),
            _case(read, (3, 5), rows, Draw((), "index", "uint8", 5), **{**both, "axis": 0}),
            _case(add, (2, 2, 4, 2), rows, columns, **added),
        ]
    return found


def _indexing() -> list[Case]:
    return [
        *_points(),
        _case("gather", (5, 3), Draw((4,), "index", "int64", 5), axis=0),
        _case("gather", (2, 5, 3), Draw((2, 3), "index", "int32", 5), axis=1),
        _case("gather", (4, 5), Draw((), "index", "int8", 5), axis=1),
        _case("gather", (5,), Draw((7,), "place", "uint8", 5), axis=0),
        _case("scatter", (4, 3), Draw((4,), "index", "int64", 3), axis=0, shape=(3, 3)),
        _case("scatter", (2, 2, 3, 3), Draw((2, 3), "place", "int32", 2), axis=1, shape=(2, 2, 3)),
        _case("pick", (4, 5), Draw((4,), "place", "int64", 7), axis=-1, keepdims=False),
        _case("pick", (4, 5), Draw((5,), "place", "float32", 4), axis=0, keepdims=True),
        _case("pick", (2, 3, 4), Draw((2, 4), "place", "int32", 3), axis=1, keepdims=False),
        _case("pick_inside", (4, 5), Draw((4,), "place", "int64", 5), axis=-1, keepdims=True),
        _case("one_hot", Draw((2, 3), "place", "int64", 4), depth=5),
        _case("one_hot", Draw((3,), "place", "float32", 4), depth=3, on_value=2.0, off_value=-1.0,
              dtype="float64"),
        _case("nonzero", SMALL),
        _case("boolean_index", SMALL, Draw(SMALL, "mask", "bool")),
    ]  # fmt: skip


def _sorting() -> list[Case]:
    rows = Draw((3, 4), "smooth")
    return [
        _case("argsort", (3, 4), axis=0),
        _case("argsort", (2, 3, 4), axis=1, descending=True),
        _case("sort", (3, 4), smooth=(rows,), axis=-1),
        _case("sort", (3, 4), smooth=(rows,), axis=0, descending=True),
        _case("top_positions", (3, 9), axis=-1, descending=True, count=2),
        _case("top_positions", (9, 2), axis=0, descending=False, count=5),
        _case("argpartition", (3, 4), kth=(2,), axis=1),
        _case("fold_along", (3, 4), by="fmax", axis=1, keepdims=False),
        _case("running", (3, 4), by="fmin", axis=0),
        _case("fold_slices", (5, 3), Draw((2,), "place", "int64", 5), by="fmax", axis=0),
        _case(
            *("combine_flat", (6,), Draw((4,), "index", "int64", 6), (4,)), by="fmax"
        ),
        _case(
            *("extremes_flat", (6,), Draw((4,), "index", "int64", 6), (4,)), by="fmax"
        ),
        _case("apply_flat", (6,), Draw((4,), "index", "int64", 6), by="absolute"),
        _case("searchsorted", Draw((6,), "sorted"), (2, 3), side="left"),
        _case("searchsorted", Draw((6,), "sorted"), (), side="right"),
        _case("digitize", (2, 3), Draw((4,), "sorted")),
        _case("bincount", Draw((7,), "place", "int64", 5), minlength=3),
        _case("bincount", Draw((7,), "place", "int64", 5), Draw((7,), "any", "float64")),
        _case("histogram_edges", (3, 4), bins=3, limits=None),
        _case("histogram_edges", (3, 4), bins=4, limits=(-1.0, 2.0)),
        _case("histogram_counts", (3, 4), Draw((5,), "sorted", "float32"), density=False),
        _case("histogram_counts", (3, 4), Draw((5,), "sorted", "float32"),
              Draw((3, 4), "positive", "float64"), density=True),
        _case("unique", (3, 4)),
        _case("unique", (3, 4), more=False, axis=1),
        _case("isin", (3, 4), (2,)),
    ]  # fmt: skip


def _selection() -> list[Case]:
    return [
        _case("repeat", (2, 3, 4), repeats=3, axis=1),
        _case("repeat", (5,), repeats=2, axis=0),
        _case("tril", (2, 3, 4)),
        _case("tril", (3, 4), k=-1),
        _case("triu", (2, 3, 4)),
        _case("triu", (3, 4), k=2),
        _case("take_along_axis", (3, 5), Draw((3, 2), "index", "int64", 5), axis=1),
        _case("take_along_axis", (5, 2, 3), Draw((4, 2, 3), "place", "int32", 5), axis=0),
        _case("add_along_axis", (3, 4), Draw((3, 4), "index", "int64", 5), axis=1, extent=5),
        _case("add_along_axis", (4, 2), Draw((4, 2), "place", "uint8", 2), axis=0, extent=2),
        _case("with_rows_put", (3, 5), Draw((3, 4), "index", "int64", 5), (3, 1), axis=1),
        _case("unravel_index", Draw((2, 3), "place", "int64", 12), shape=(3, 4), order="C"),
        _case("ravel_multi_index", Draw((4,), "place", "int64", 3), Draw((4,), "place", "int64", 4),
              dims=(3, 4), mode="raise", order="F"),
    ]  # fmt: skip


def _algebra() -> list[Case]:
    square, many = Draw((3, 3), "definite"), Draw((2, 3, 3), "definite")
    return [
        _case("vecdot", (3, 4), (3, 4)),
        _case("vecdot", (3, 4, 5), (3, 1, 5), axis=0),
        _case("matvec", (2, 3, 4), (4,)),
        _case("vecmat", (3,), (2, 3, 4)),
        _case("cross", (4, 3), (4, 3)),
        _case("cross", (2, 3, 4), (2, 3, 4), axis=1),
        _case("einsum", (2, 3, 4), (2, 4, 5), equation="bij,bjk->bik"),
        _case("einsum", (3, 4), (3, 4), equation="ij,ij->i"),
        _case("einsum", (2, 3, 4), (4,), equation="...j,j->..."),
        _case("vector_norm", (3, 4), smooth=(Draw((3, 4), "smooth"),), axis=1),
        *(_case("vector_norm", (3, 4), axis=0, ord=p) for p in (1, 3, 0, numpy.inf, -numpy.inf)),
        _case("vector_norm", (3, 4), keepdims=True, ord=2.5),
        _case("inv", square),
        _case("inv", many),
        _case("inv_or_nan", many),
        _case("solve", square, (3,)),
        _case("solve", many, (3, 2)),
        _case("det", square),
        _case("det", many),
        _case("slogdet", many),
        _case("cholesky", square),
        _case("cholesky", many),
        _case("qr", (3, 4), complete=False),
        _case("qr", (2, 4, 3), complete=True),
        _case("svd", (3, 4), full_matrices=False),
        _case("svd", (2, 4, 3), full_matrices=True),
        _case("svdvals", (2, 4, 3)),
        _case("eigh", many, upper=False),
        _case("eigvalsh", square, upper=True),
        _case("pinv", (3, 4), Draw((), "number", number=-1.0), hermitian=False),
        _case("pinv", square, Draw((), "number", number=1e-3), hermitian=True),
        _case("matrix_rank", many, Draw((), "number", number=-1.0), relative=True, hermitian=False),
        _case("lstsq", (5, 3), (5,), rcond=None),
    ]


def _networks() -> list[Case]:
    channels = [Draw((3,), "positive"), Draw((3,)), Draw((3,)), Draw((3,), "positive")]
    last = [Draw((5,), "positive"), Draw((5,)), Draw((5,)), Draw((5,), "positive")]
    return [
        _case("matmul", (3, 4), (4, 5)),
        _case("matmul", (4,), (4, 5)),
        _case("matmul", (3, 4), (4,)),
        _case("matmul", (4,), (4,)),
        _case("matmul", (2, 3, 4), (4, 5)),
        _case("matmul", (2, 1, 3, 4), (6, 4, 5)),
        _case("matmul", (2, 3, 4), (4,)),
        _case("matmul", (4,), (2, 4, 5)),
        _case("wide_matmul", (3, 4), (4, 5)),
        _case("wide_matmul", (4,), (4,)),
        _case(
            "matmul_of_bytes",
            Draw((3, 4), "index", "int8", 128),
            Draw((4, 5), "index", "int8", 128),
        ),
        _case(
            "matmul_of_bytes",
            Draw((2, 1, 3, 9), "place", "uint8", 256),
            Draw((6, 9, 5), "index", "int8", 128),
        ),
        _case(
            "matmul_of_bytes", Draw((9,), "index", "int8", 128), Draw((9, 5), "place", "uint8", 256)
        ),
        _case("softmax", SMALL, axis=-1),
        _case("softmax", (2, 3, 4), axis=1),
        _case("log_softmax", SMALL, axis=-1),
        _case("log_softmax", (2, 3, 4), axis=0),
        _case("dropout", (6, 8), p=0.4),
        _case("rnn_step", (2, 3), (2, 3), (3, 3), (3,), mode="rnn_tanh"),
        _case("lstm_step", (2, 12), (2, 3), (2, 3), (12, 3), (12,), low=-0.5, high=None),
        _case("gru_step", (2, 9), (2, 3), (9, 3), (9,)),
        _case("ctc_step", (2, 5), (2, 5), Draw((2, 5), "mask", "bool")),
        _case("greedy_pairs", (2, 3, 4), ascending=False, threshold=0.0, topk=-1),
        _case("dropout", (6, 8), p=0.5, axes=(0,)),
        _case("batch_norm", (4, 3), *channels),
        _case("batch_norm", (2, 3, 2, 2), *channels, eps=1e-3, momentum=0.8),
        _case("batch_norm", (4, 5), *last, axis=-1),
    ]


def _windows() -> list[Case]:
    flat = {"kernel": (2,), "stride": (1,), "dilate": (2,)}
    wide = {"kernel": (3, 2), "stride": (2, 2), "dilate": (1, 1)}
    pools = {"kernel": (3,), "stride": (2,), "pad": (1,), "p": 2}
    return [
        _case("windows", (3, 7), **flat),
        _case("windows", (2, 7, 5), **wide),
        _case("bordered_windows", (3, 7), **flat, before=(2,), after=(1,)),
        _case("bordered_windows", (2, 7, 5), **wide, before=(1, 3), after=(0, 2)),
        _case("bordered_windows", Draw((2, 1, 3), dtype="int8"), **wide, before=(2, 1),
              after=(2, 1), lowest=True),
        _case("fold", (3, 2, 5), **flat, shape=(7,)),
        _case("fold", (2, 3, 2, 3, 2), **wide, shape=(8, 5)),
        _case("border", SMALL, before=(2,), after=(0,)),
        _case("border", (2, 3, 4), before=(1, 0), after=(1, 2), most=(2, 2)),
        _case("apart", (2, 3, 2), (2, 3, 1), steps=(2,), shape=(5,)),
        _case("apart", (2, 3, 17), steps=(3, 2), shape=(8, 34)),
        _case("apart", (2, 2, 1), (2, 2, 1), steps=(2, 3), shape=(4, 5)),
        _case("apart", (1, 3, 1), steps=(1, 4), shape=(3, 2)),
        _case("turns", SMALL, SMALL, SMALL, steps=(3,)),
        _case("turns", (2, 3, 17), (2, 3, 17), (2, 3, 17), (2, 3, 17), steps=(2, 2)),
        _case("turns", (1, 2), (1, 2), steps=(2, 1)),
        _case("planes_of", SMALL, SMALL, SMALL),
        _case("planes_of", (3, 1, 4)),
        _case("border", Draw(SMALL, dtype="int32"), before=(0, 1), after=(1, 2), lowest=True),
        _case("convolution", (2, 4, 7), (6, 2, 2), (6,), **flat, pad=(1,), groups=2),
        _case("convolution", (2, 4, 7, 5), (3, 4, 3, 2), **wide, pad=(1, 0), groups=1),
        _case("convolution", Draw((2, 3, 5, 4), "positive"), Draw((4, 3, 3, 3), "positive"),
              Draw((4,), "positive"), kernel=(3, 3), stride=(1, 1),
              dilate=(1, 1), pad=(1, 0), groups=1, scheme="always"),
        _case("winograd", Draw((3, 3, 4, 5), "positive"), Draw((2, 3, 3, 3), "positive"),
              pad=(0, 1), scheme="always"),
        _case("winograd", Draw((3, 2, 4, 5), "positive"), Draw((2, 3, 3, 3), "positive"),
              pad=(2, 1), scheme="always", turned=True),
        _case("winograd_weights", Draw((3, 2, 4, 5), "positive"), Draw((3, 3, 4, 3), "positive"),
              pad=(1, 0), scheme="always"),
        _case("winograd", Draw((2, 2, 3, 4, 5), "positive"), Draw((3, 2, 2, 3, 3), "positive"),
              pad=(1, 0, 1), scheme="always"),
        _case("winograd", Draw((2, 2, 3, 4, 5), "positive"), Draw((2, 3, 3, 3, 3), "positive"),
              pad=(1, 2, 1), scheme="always", turned=True),
        _case("winograd_weights", Draw((2, 2, 3, 4, 5), "positive"),
              Draw((2, 3, 2, 4, 3), "positive"), pad=(0, 1, 0), scheme="always"),
        _case("deconvolution", (2, 4, 5), (4, 3, 2), (6,), **flat, pad=(1,), adjust=(0,), groups=2),
        _case("deconvolution", (2, 4, 3, 2), (4, 3, 3, 2), **wide, pad=(1, 0), adjust=(0, 1),
              groups=1),
        _case("summed_windows", (2, 4, 3, 2), (4, 3, 3, 2), **wide, pad=(1, 0), groups=1,
              space=(5, 4)),
        _case("weights_in_rounds", (2, 4, 5, 4), (2, 6, 3, 2), **wide, pad=(1, 0), groups=2),
        *(_case("pooling", (2, 3, 8), smooth=(Draw((2, 3, 8), "smooth"),), **pools, kind=kind,
                convention="full", padded=True) for kind in ("max", "lp")),
        _case("peaks", (2, 3, 7, 6), kernel=(3, 3), stride=(2, 2), before=(1, 1), after=(1, 1),
              most=(1, 1)),
        _case("peaks", (1, 2, 8), kernel=(3,), stride=(1,), before=(0,), after=(1,), most=None),
        _case("peaks", (2, 1, 4, 9), kernel=(2, 2), stride=(2, 3), before=(0, 0), after=(0, 0),
              most=(0, 0)),
        *(_case("adaptive_pooling", (2, 3, *image), smooth=(Draw((2, 3, *image), "smooth"),),
                kind=kind, sizes=sizes)
          for kind in ("avg", "max")
          for image, sizes in (((7,), (3,)), ((6, 4), (3, 2)), ((6, 8), (7, 5)))),
        _case("gather_inside", (2, 7, 3), Draw((2, 4), "place", "int64", 7), axis=1),
        _case("part_sums", Draw((2, 7, 3), "smooth", "float32"), axis=1, parts=3),
        _case("part_peaks", (2, 7, 3), axis=1, parts=4),
        _case("peak", (2, 3, 4), axes=(1, 2), keepdims=True),
        _case("peak", (2, 3, 2, 4), axes=(2,), keepdims=False),
        _case("pooling", (2, 3, 8), kernel=(), stride=(), pad=(), p=2, kind="avg",
              convention="valid", padded=True),
    ]  # fmt: skip


def _norms() -> list[Case]:
    ends = Draw((3,), "place", "int64", 5)
    mask = Draw((4,), "mask", "bool")
    vectors = [Draw((4,), "positive"), Draw((4,))]
    return [
        _case("standardized", (2, 3, 4), axes=(1, 2), eps=1e-3),
        _case("layer_norm", (3, 4), *vectors, axis=-1),
        _case("group_norm", (2, 4, 3), *vectors, num_groups=2),
        _case("instance_norm", (2, 4, 5), *vectors),
        _case("masked_softmax", SMALL, mask),
        _case("masked_softmax", SMALL, Draw(SMALL, "mask", "bool"), axis=0),
        _case("masked_log_softmax", SMALL, Draw((4,), "number", number=True)),
        _case("blocked_attention", (3, 5, 6), (3, 4, 6), (3, 4, 7), causal=True, heads=1, rows=0),
        _case("blocked_attention", (8, 6), (4, 6), (4, 5), mask, causal=False, heads=0, rows=3),
        _case("blocked_attention_backward", (3, 5, 7), Draw((3, 5, 6), "unit"),
              Draw((3, 4, 6), "unit"), (3, 4, 7), *(Draw((3, 5, 1), "above one", "float32"),) * 2,
              causal=False, heads=1, rows=0),
        _case("blocked_attention_backward", (8, 5), Draw((8, 6), "unit"), Draw((4, 6), "unit"),
              (4, 5), *(Draw((8, 1), "above one", "float32"),) * 2, mask,
              causal=True, heads=0, rows=3),
        _case("sequence_mask", (5, 3, 2), ends, value=2.0),
        _case("smooth_l1", SMALL, Draw((), "number", number=1.5)),
        _case("elu", SMALL, Draw((), "number", number=0.7)),
    ]  # fmt: skip


CASES: tuple[Case, ...] = (
    *_unary(),
    *_binary(),
    *_other_elementwise(),
    *_reductions(),
    *_shapes(),
    *_indexing(),
    *_sorting(),
    *_selection(),
    *_algebra(),
    *_networks(),
    *_windows(),
    *_norms(),
)

#: Operations without a case here, and the reasons.
ELSEWHERE = {
    "fused": "made by the fusing pass from others, which are all here (test_three_ways)",
    "loop": "what it does is a program (test_loops)",
    "stream_taken": "what choices give to their sides (test_control_flow)",
    "all_reduce": "several devices meet in it (test_several_devices)",
    **dict.fromkeys(("iterate", "iterate_backward"), "what they do is a program (test_scripting)"),
    "anchor_targets": "its inputs are boxes (test_boxes)",
    "detections": "its inputs are boxes (test_boxes)",
    "region_peaks": "its inputs are regions (test_boxes)",
    "region_weights": "its inputs are regions (test_boxes)",
    "surviving": "its inputs are boxes (test_boxes)",
    "outcomes": "the sum of probabilities is 1 at most (test_distributions)",
    "choice": "which element x[key] = value puts where (test_writes_in_traces)",
    **dict.fromkeys(("real", "imag", "conj", "of_parts"), "only of complex numbers (test_complex)"),
    **dict.fromkeys(
        ("transform", "half_transform", "whole_transform"), "from real to complex (test_fft)"
    ),
    **dict.fromkeys(("eig", "eigvals"), "known up to order and sign (test_complex)"),
    "viewed": "what it takes depends on sizes of dtypes (test_as_numpy)",
    "detached": "detach() in a trace; arrays have their own (test_found_outside)",
    "cumprod_backward": "two of its inputs depend on each other (test_second_gradients)",
    "with_gradient": "its gradient is given, not that of what it computes (test_nd_calls)",
    "found_by_lstsq": "its gradient is that of what `lstsq` found (test_np_linalg)",
    "branch": "its operands are programs: npx.cond makes them (test_three_ways)",
    "overwritten": "only traces make it (test_gradients_in_traces)",
    "own_gradient": "its gradient is a program: autograd.Function (test_function_in_programs)",
}


def first_cases() -> list[Case]:
    """The first case of each operation."""
    found: dict[str, Case] = {}
    for case in CASES:
        found.setdefault(case.name, case)
    return list(found.values())


def seeded(number: int) -> None:
    """Restart the random stream."""
    gemel.np.random.seed(number)
