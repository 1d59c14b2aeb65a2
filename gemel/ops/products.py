"""Products of several kinds, composed of matrix products, sums and views."""

from __future__ import annotations

import builtins
from collections.abc import Sequence
from typing import Any

from gemel.device import beside_arrays
from gemel.dtype import bool_
from gemel.errors import ArgumentError, DTypeError, ShapeError, unknown_name
from gemel.extent import WHOLE
from gemel.ir.declare import composite
from gemel.ir.keywords import ORDERS, ROWS, converted, into
from gemel.ir.public import Array, function
from gemel.ir.reference import numpy
from gemel.ops.arrange import moveaxis
from gemel.ops.complexes import conjugated
from gemel.ops.elementwise import cast, iota, multiply, subtract
from gemel.ops.linalg import dot, matmul
from gemel.ops.logic import equal
from gemel.ops.reduction import sum
from gemel.ops.shape import broadcast_to, expand_dims, operand, reshape, stack, transpose
from gemel.ops.solving import inv
from gemel.ops.triangles import diagonal
from gemel.spec import (
    broadcast,
    normalize_axis,
    plain,
    product,
    promote_specs,
    same_shape,
    sequence,
    stays,
    whole,
    wholes,
)


def _pair(a: Any, b: Any) -> tuple[Any, Any]:
    return operand(a, (b,)), operand(b, (a,))


@function(public="np")
@beside_arrays
def outer(a: Any, b: Any, out: Any = None) -> Array:
    """The outer product of two flattened arrays: a matrix."""
    a, b = _pair(a, b)
    found = multiply(reshape(a, shape=(-1, 1)), reshape(b, shape=(1, -1)))
    return into("outer", out, found)


@function(public="np")
@beside_arrays
def inner(a: Any, b: Any) -> Array:
    """The product over the last axes; numbers multiply."""
    a, b = _pair(a, b)
    if not a.ndim or not b.ndim:
        return multiply(a, b)
    return tensordot(a, b, ((-1,), (-1,)))


@function(public="np")
@beside_arrays
def vdot(a: Any, b: Any) -> Array:
    """The dot product of two flattened arrays: a number. Complex elements of the first are
    conjugated."""
    a, b = _pair(a, b)
    a = conjugated(a)
    return dot(reshape(a, shape=(-1,)), reshape(b, shape=(-1,)))


@composite(public="np", common=ROWS)
def vecdot(x1: Any, x2: Any, *, axis: int = -1) -> Any:
    """The sum of products along an axis; the other axes broadcast. Complex numbers of the first
    are conjugated."""
    for x in (x1, x2):
        normalize_axis("vecdot", axis, getattr(x, "ndim", 0))
    if not x1.shape[axis] == x2.shape[axis]:
        raise ShapeError(
            f"vecdot: {x1.spec} and {x2.spec} must have the same length along axis {axis}"
        )
    a, b = (moveaxis(x, axis, -1) for x in (conjugated(x1), x2))
    return sum_of_products(a, b, (-1,))


def sum_of_products(a: Any, b: Any, axis: tuple[int, ...]) -> Any:
    """The sum of a * b along axes, in their common dtype. Floating products are only rounded to it
    after they are summed."""
    dtype = promote_specs(a.spec, b.spec)
    if dtype.is_floating:
        a, b = (cast(x, dtype=dtype.accumulate) for x in (a, b))
    return cast(sum(multiply(a, b), axis=axis), dtype=dtype)


@composite(public="np", common=ROWS)
def matvec(x1: Any, x2: Any) -> Any:
    """The products of matrices, in the last two axes, with vectors; the other axes broadcast."""
    _check_matrices("matvec", x1, x2)
    return matmul(x1, expand_dims(x2, -1))[..., 0]


@composite(public="np", common=ROWS)
def vecmat(x1: Any, x2: Any) -> Any:
    """The products of vectors in the last axis, conjugated, with matrices in the last two; others
    broadcast."""
    _check_matrices("vecmat", x2, x1)
    return matmul(expand_dims(conjugated(x1), -2), x2)[..., 0, :]


def _check_matrices(name: str, matrices: Any, vectors: Any) -> None:
    """Raises `ShapeError` unless these have the axes of matrices and of vectors."""
    if matrices.ndim < 2 or vectors.ndim < 1:
        raise ShapeError(
            f"{name}: {matrices.spec} and {vectors.spec}: matrices have two dimensions or more, "
            "vectors one or more"
        )


@function(public="np")
@beside_arrays
def tensordot(a: Any, b: Any, axes: Any = 2) -> Array:
    """The product over several axes: the last ones of a and the first ones of b, or the named ones.

    The others follow one another, a's first.
    """
    (a, b), axes = _pair(a, b), plain(axes)
    ours: Any
    theirs: Any
    if isinstance(axes, WHOLE):
        ours, theirs = range(a.ndim - axes, a.ndim), range(axes)
    else:
        sides = sequence("tensordot", "axes", axes)
        if len(sides) != 2:
            raise ShapeError(f"tensordot: axes {axes} must be a number, or those of a and of b")
        ours, theirs = (wholes("tensordot", "axes", side) for side in sides)
    left = [normalize_axis("tensordot", axis, a.ndim) for axis in ours]
    right = [normalize_axis("tensordot", axis, b.ndim) for axis in theirs]
    lengths = [tuple(x.shape[i] for i in at) for x, at in ((a, left), (b, right))]
    if not same_shape(*lengths):
        raise ShapeError(
            f"tensordot: {list(a.shape)} and {list(b.shape)}: axes {left} and {right} must match "
            "in number and length"
        )
    rest_a = [axis for axis in range(a.ndim) if axis not in left]
    rest_b = [axis for axis in range(b.ndim) if axis not in right]
    shape = (*(a.shape[i] for i in rest_a), *(b.shape[i] for i in rest_b))
    rows, inside = product(a.shape[i] for i in rest_a), product(lengths[0])
    columns = product(b.shape[i] for i in rest_b)
    a = reshape(transpose(a, axes=(*rest_a, *left)), shape=(rows, inside))
    b = reshape(transpose(b, axes=(*right, *rest_b)), shape=(inside, columns))
    return reshape(matmul(a, b), shape=shape)


@function(public="np")
@beside_arrays
def kron(a: Any, b: Any) -> Array:
    """Kronecker's product: a, with each element replaced by its product with b."""
    a, b = _pair(a, b)
    ndim = max(a.ndim, b.ndim)
    first, second = ((*[1] * (ndim - x.ndim), *x.shape) for x in (a, b))
    a = reshape(a, shape=tuple(n for extent in first for n in (extent, 1)))
    b = reshape(b, shape=tuple(n for extent in second for n in (1, extent)))
    return reshape(multiply(a, b), shape=tuple(m * n for m, n in zip(first, second, strict=True)))


@composite(public="np")
def cross(
    a: Any, b: Any, *, axisa: int = -1, axisb: int = -1, axisc: int = -1, axis: Any = None
) -> Any:
    """The cross product of vectors of three elements along an axis (or of two, as if with a 0)."""
    if axis is not None:
        axisa = axisb = axisc = axis
    if promote_specs(a.spec, b.spec) is bool_:
        raise DTypeError(
            f"cross: {a.spec} and {b.spec}: differences of bools are not defined; use "
            "astype('int32')"
        )
    a, b = moveaxis(a, axisa, -1), moveaxis(b, axisb, -1)
    lengths = (a.shape[-1], b.shape[-1])
    if not builtins.all(n == 2 or n == 3 for n in lengths):
        raise ShapeError(
            f"cross: vectors of {lengths[0]} and {lengths[1]} elements; they must have 2 or 3"
        )
    (a0, a1, a2), (b0, b1, b2) = (
        [x[..., i] if not i == n else None for i in range(3)]
        for x, n in zip((a, b), lengths, strict=True)
    )
    last = subtract(multiply(a0, b1), multiply(a1, b0))
    if a2 is None and b2 is None:
        return last
    first = _minus(_times(a1, b2), _times(a2, b1))
    second = _minus(_times(a2, b0), _times(a0, b2))
    shape = broadcast("cross", *(x.spec for x in (first, second, last)))
    return moveaxis(
        stack([broadcast_to(x, shape=shape) for x in (first, second, last)], -1), -1, axisc
    )


def _times(a: Any, b: Any) -> Any:
    return None if a is None or b is None else multiply(a, b)


def _minus(a: Any, b: Any) -> Any:
    return -b if a is None else a if b is None else subtract(a, b)


@function(public="np.linalg")
@beside_arrays
def matrix_power(a: Any, n: int) -> Array:
    """The matrices multiplied n times with themselves; negative powers are those of the inverse."""
    a, n = operand(a), whole("matrix_power", "n", n)
    if a.ndim < 2 or not a.shape[-1] == a.shape[-2]:
        raise ShapeError(f"matrix_power: {list(a.shape)} does not contain square matrices")
    if n < 0:
        a, n = inv(a), -n
    if n == 0:
        extent = a.shape[-1]
        rows = iota(shape=(extent, 1), axis=0, dtype="int64")
        unit = equal(rows, iota(shape=(1, extent), axis=1, dtype="int64"))
        return broadcast_to(cast(unit, dtype=a.dtype), shape=a.shape)
    found = None
    while n:  # square repeatedly, and multiply the squares for which n has a bit
        if n % 2:
            found = a if found is None else matmul(found, a)
        n //= 2
        a = matmul(a, a) if n else a
    return found


# --- einsum ---------------------------------------------------------------------------------


def parsed(equation: str, ndims: Sequence[int]) -> tuple[list[str], str]:
    """The labels of each operand and of the result, "..." written out. Raises `ShapeError`."""

    def refuse(reason: str) -> ShapeError:
        return ShapeError(f"einsum: {equation!r}: {reason}")

    text = equation.replace(" ", "")
    given, arrow, result = text.partition("->")
    terms = given.split(",")
    if len(terms) != len(ndims):
        raise refuse(f"it has {len(terms)} operands, but {len(ndims)} were given")
    used = set(text) - set(".,->")
    if not builtins.all(label.isalpha() for label in used):
        raise refuse("labels must be letters")
    spare = [chr(code) for code in range(ord("À"), ord("À") + 64)]
    most = 0
    found = []
    for term, ndim in zip(terms, ndims, strict=True):
        named = term.replace("...", "")
        if "." in named or term.count("...") > 1:
            raise refuse(f"{term!r} has dots that are not '...'")
        more = ndim - len(named)
        if more < 0 or (more and "..." not in term):
            raise refuse(f"{term!r} labels {len(named)} axes of an operand with {ndim}")
        most = max(most, more if "..." in term else 0)
        found.append((term, more))

    def filled(term: str, count: int) -> str:
        return term.replace("...", "".join(spare[most - count : most]))

    labels = [filled(term, more) for term, more in found]
    if not arrow:
        counts = [label for label in "".join(terms) if label != "."]
        alone = "".join(sorted(label for label in set(counts) if counts.count(label) == 1))
        return labels, "".join(spare[:most]) + alone
    out = filled(result, most)
    if len(set(out)) != len(out) or not set(out) <= set("".join(labels)):
        raise refuse(f"{result!r} repeats a label, or has a label that no operand has")
    return labels, out


@composite(public="np", onnx="Einsum")
def einsum(*operands: Any, equation: str, path: Any = ()) -> Any:
    """Sums of products of elements, by labels of axes: Einstein's notation."""
    dtype = promote_specs(*(x.spec for x in operands))
    labels, result = parsed(equation, [x.ndim for x in operands])
    extents = _extents(equation, labels, operands)
    # Two of several operands may have a narrower dtype than all of them.
    wide = (x if x.dtype is dtype else cast(x, dtype=dtype) for x in operands)
    terms = [_without_repetition(name, x) for name, x in zip(labels, wide, strict=True)]
    steps = list(path)
    while len(terms) > 1:
        first, second = sorted(steps.pop(0) if steps else (0, 1))
        right, left = terms.pop(second), terms.pop(first)
        wanted = {*result, *(label for name, _ in terms for label in name)}
        terms.append(_contracted(left, right, wanted, extents))
    name, x = _summed(terms[0], set(result))
    found = transpose(x, axes=tuple(name.index(label) for label in result))
    shape = tuple(extents[label] for label in result)
    return cast(broadcast_to(found, shape=shape), dtype=dtype)


def _extents(equation: str, labels: Sequence[str], operands: Sequence[Any]) -> dict[str, Any]:
    """The extent of each label. Raises `ShapeError` if operands do not agree."""
    extents: dict[str, Any] = {}
    for name, x in zip(labels, operands, strict=True):
        for label, extent in zip(name, x.shape, strict=True):
            known = extents.setdefault(label, extent)
            if stays(known, extent):
                continue
            if known == 1:
                extents[label] = extent
            elif not extent == 1 and not extent == known:
                raise ShapeError(
                    f"einsum: {equation!r}: axis {label!r} has {known} and {extent}; they must be "
                    "equal, or one of them 1"
                )
    return extents


def _without_repetition(name: str, x: Any) -> tuple[str, Any]:
    """A term in which each label occurs once; for an axis named twice, its diagonal is taken."""
    for label in sorted({label for label in name if name.count(label) > 1}):
        while name.count(label) > 1:
            first = name.index(label)
            second = name.index(label, first + 1)
            if not x.shape[first] == x.shape[second]:
                raise ShapeError(f"einsum: axes {label!r} of {x.spec} must have the same length")
            x = diagonal(x, 0, first, second)
            rest = "".join(c for i, c in enumerate(name) if i not in (first, second))
            name = rest + label
    return name, x


def _summed(term: tuple[str, Any], wanted: set[str]) -> tuple[str, Any]:
    """A term summed over the labels that are not wanted."""
    name, x = term
    gone = tuple(i for i, label in enumerate(name) if label not in wanted)
    if not gone:
        return term
    return "".join(label for label in name if label in wanted), sum(x, axis=gone)


def _contracted(
    left: tuple[str, Any], right: tuple[str, Any], wanted: set[str], extents: dict[str, Any]
) -> tuple[str, Any]:
    """Two terms combined to one. Labels that are not wanted are summed over: by a matrix product
    if both sides have an axis of their own, else by a sum of products."""
    (a, x), (b, y) = _summed(left, wanted | set(right[0])), _summed(right, wanted | set(left[0]))
    both = [label for label in a if label in b]
    batch = [label for label in both if label in wanted]
    inside = [label for label in both if label not in wanted]
    rows, columns = [c for c in a if c not in b], [c for c in b if c not in a]
    x = transpose(x, axes=tuple(a.index(c) for c in (*batch, *rows, *inside)))
    y = transpose(y, axes=tuple(b.index(c) for c in (*batch, *inside, *columns)))
    if not inside or not (rows and columns):
        x = reshape(x, shape=(*x.shape, *[1] * len(columns)))
        lead = len(batch)
        y = reshape(y, shape=(*y.shape[:lead], *[1] * len(rows), *y.shape[lead:]))
        at = tuple(range(lead + len(rows), lead + len(rows) + len(inside)))
        found = sum_of_products(x, y, at) if at else multiply(x, y)
        return "".join((*batch, *rows, *columns)), found
    shapes = [tuple(extents[c] for c in part) for part in (batch, rows, inside, columns)]
    many, high, deep, wide = map(product, shapes)
    together = (many,) if batch else ()
    x = broadcast_to(x, shape=(*shapes[0], *shapes[1], *shapes[2]))
    y = broadcast_to(y, shape=(*shapes[0], *shapes[2], *shapes[3]))
    x, y = reshape(x, shape=(*together, high, deep)), reshape(y, shape=(*together, deep, wide))
    found = reshape(matmul(x, y), shape=(*shapes[0], *shapes[1], *shapes[3]))
    return "".join((*batch, *rows, *columns)), found


@einsum.facade
def _(
    subscripts: Any,
    *operands: Any,
    out: Any = None,
    optimize: Any = False,
    dtype: Any = None,
    order: str = "K",
    casting: str = "safe",
) -> Array:
    """Sums of products of elements, by labels of axes: ``einsum("ij,jk->ik", a, b)``.

    Also as ``einsum(a, [0, 1], b, [1, 2], [0, 2])``. Without ``->`` the result has the labels that
    occur once, in alphabetical order; "..." stands for axes that broadcast. Operands are taken
    from left to right; `optimize` takes them in the order that computes least. With `dtype` they
    are converted first. Raises `DTypeError` for conversions, also to `out`, that `casting` forbids.

    >>> np.einsum("ij,jk->ik", np.array([[1, 2]]), np.array([[3], [4]]))
    """
    if not isinstance(subscripts, str):
        subscripts, operands = _lettered((subscripts, *operands))
    if not operands:
        raise ShapeError("einsum: needs at least one array")
    if order not in ORDERS:
        raise unknown_name("order of einsum", order, [known for known in ORDERS if known])
    found = [operand(x, operands) for x in operands]
    if dtype is not None:
        found = [converted("einsum", x, dtype, casting) for x in found]
    path: tuple[Any, ...] = ()
    if optimize and len(found) > 2:
        path = _cheapest(subscripts, found, optimize)
    return into("einsum", out, einsum(*found, equation=subscripts, path=path), casting)


@function(public="np")
def einsum_path(subscripts: Any, *operands: Any, optimize: Any = "greedy") -> tuple[Any, str]:
    """The order in which `einsum` would combine its operands, and NumPy's description of the cost.

    The order is a list that `einsum(optimize=...)` takes. Only shapes matter: nothing is computed.

    >>> x = np.ones((2, 2))
    >>> np.einsum_path("ij,jk,kl->il", x, x, x)[0]
    """
    if not isinstance(subscripts, str):
        subscripts, operands = _lettered((subscripts, *operands))
    found = [operand(x, operands) for x in operands]
    return _path(subscripts, found, optimize)


def _path(equation: str, operands: Sequence[Any], optimize: Any) -> tuple[Any, str]:
    """NumPy's order of contractions, which depends on the operands' shapes only. Raises
    `ShapeError`, or `ArgumentError` for an `optimize` that is no order."""
    labels, _ = parsed(equation, [x.ndim for x in operands])
    _extents(equation, labels, operands)
    np = numpy()
    stand_ins = (np.broadcast_to(np.int8(0), x.shape) for x in operands)
    try:
        found: tuple[Any, str] = np.einsum_path(equation, *stand_ins, optimize=optimize)
    except (KeyError, TypeError, IndexError, RuntimeError) as error:
        raise ArgumentError(
            f"einsum: optimize={optimize!r} must be True, False, 'greedy', 'optimal', one of these "
            "two with a limit, or a path: ['einsum_path', (0, 1), ...], which takes all "
            f"{len(operands)} operands"
        ) from error
    return found


def _cheapest(equation: str, operands: Sequence[Any], optimize: Any) -> tuple[tuple[int, int], ...]:
    """Which two terms to take next, until one is left."""
    _, *steps = _path(equation, operands, "greedy" if optimize is True else optimize)[0]
    return tuple(step for step in steps if len(step) == 2) if steps else ()


def _letter(number: Any) -> str:
    if number is Ellipsis:
        return "..."
    number = whole("einsum", "the number of an axis", number)
    if not 0 <= number < 52:
        raise ArgumentError(f"einsum: axes are numbered from 0 to 51, not {number}")
    return chr(ord("A") + number + 6 * (number > 25))


def _lettered(given: tuple[Any, ...]) -> tuple[str, tuple[Any, ...]]:
    """An equation from alternating arrays and lists of axes; the last list is the result's."""

    def term(numbers: Any) -> str:
        return "".join(map(_letter, sequence("einsum", "the axes of an array", numbers)))

    arrays, names = given[: len(given) // 2 * 2 : 2], given[1::2]
    text = ",".join(map(term, names))
    return f"{text}->{term(given[-1])}" if len(given) % 2 else text, arrays
