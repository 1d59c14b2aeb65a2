"""The kinds of operations: elementwise, reductions, contractions, and composites of others.

An `Op` of none of these kinds has a rule that says how it is lowered (`view`, `element`, `pieces`,
`lower`). NumPy runs operations without such a rule.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from gemel import _core
from gemel.dtype import (
    DTYPES,
    DType,
    bool_,
    check_held,
    default_float,
    float64,
    int8,
    int64,
    is_large,
    uint64,
)
from gemel.errors import ArgumentError, DTypeError, FormulaError, ShapeError, name_call
from gemel.extent import WHOLE
from gemel.ir.above import above
from gemel.ir.combiner import Combiner
from gemel.ir.graph import Entry, placeholder
from gemel.ir.keywords import OUT, REDUCTIONS, UFUNC
from gemel.ir.methods import call
from gemel.ir.numbers import body_on_numbers
from gemel.ir.op import Op, find
from gemel.ir.rules import PlannedRule, WholeRule
from gemel.ir.trace import Trace
from gemel.spec import Spec, broadcast, normalize_axes, promote_specs


class Elementwise(Op):
    """An operation on each element: one body, written against a namespace `xp`.

    With NumPy as `xp` the body is the reference; with a lane of `codegen` it writes one iteration
    of a kernel.

    `dtype` is the promotion policy: ``"same"`` (promote), ``"floating"`` (integers become float32),
    ``"size"`` (promote, result real), ``"numeric"`` (bools become int8), ``"arithmetic"`` (bools
    are refused), ``"integral"`` (floats are refused), ``"compare"`` (promote, result bool),
    ``"logical"`` (bool in and out), or a function (op, input specs, parameters) -> (dtype per
    input, dtype of the result). If the body returns a tuple of several results, the function may
    return a tuple of dtypes; a named policy gives all results the same dtype.

    `natural` is (position of an input that must not be negative if integers are computed, message
    of the `ArgumentError`). A number is checked by the call, an array's elements at run time.

    `unchanged(*input entries)` says whether the result is the first input if their specs are equal
    (x * 1). `positional`: an element also depends on its position.
    """

    elementwise = True
    has_kernel = True

    def __init__(
        self,
        body: Callable[..., Any],
        *,
        dtype: Any = "same",
        natural: tuple[int, str] | None = None,
        unchanged: Callable[..., bool] | None = None,
        positional: bool = False,
        **names: Any,
    ) -> None:
        self.unchanged, self.positional = unchanged, positional
        super().__init__(body, **names)
        self.natural = natural
        self.failure = ("ValueError", f"{self.name}: {natural[1]}") if natural else None
        if self.public and not {"dtype", "shape"} & set(self.parameters):
            self.common = names.get("common", UFUNC)
        self.body = body
        self.policy = POLICIES[dtype] if isinstance(dtype, str) else dtype
        #: Whether an element takes only an instruction or two: no root, power or series.
        self.is_light = not self.random and dtype not in ("floating", "numeric")

    def infer(self, *specs: Spec, **parameters: Any) -> tuple[Spec, ...]:
        """The broadcast shape, and the policy's dtype."""
        if self.rules.spec is not None:
            return super().infer(*specs, **parameters)
        _, dtypes = self.types(specs, parameters)
        weak = bool(specs) and False not in [spec.weak for spec in specs]
        shape = broadcast(self.name, *specs)
        if len(dtypes) == 1:
            return (Spec(shape, dtypes[0], weak),)
        return tuple([Spec(shape, dtype, weak) for dtype in dtypes])

    def types(
        self, specs: tuple[Spec, ...], parameters: dict[str, Any]
    ) -> tuple[tuple[DType, ...], tuple[DType, ...]]:
        """The dtype in which each input is computed, and those of the results. Raises
        `DTypeError`."""
        self.check_complex(specs)
        inputs, found = self.policy(self, specs, parameters)
        return inputs, found if isinstance(found, tuple) else (found,) * self.outputs

    def check_numbers(
        self, inputs: tuple[Any, ...], specs: tuple[Spec, ...], parameters: dict[str, Any]
    ) -> None:
        """Raise `OverflowError` for Python integers that the dtype of the call cannot hold.

        Integers beyond int64 are uint64 arrays or infinities by now; comparisons take them as they
        are. Raises `ArgumentError` for a negative number where `natural` forbids it.
        """
        checked = self.checked(specs)
        if checked is not None and type(inputs[checked]) in WHOLE and inputs[checked] < 0:
            raise ArgumentError(self.failure[1])  # type: ignore[index]
        large = [n for n in inputs if is_large(n)]
        if not large or self.random:
            return
        others = [s for n, s in zip(inputs, specs, strict=True) if type(n) is not int]
        small = Spec((), int64, weak=True)
        plain = (small if is_large(n) else s for n, s in zip(inputs, specs, strict=True))
        if self.infer(*plain, **parameters)[0].dtype is not bool_:
            dtype = promote_specs(*others) if others else bool_
            for number in large:
                check_held(self.name, number, uint64 if dtype is bool_ else dtype)

    def on_numbers(
        self, specs: tuple[Spec, ...], parameters: dict[str, Any], numbers: list[Any]
    ) -> tuple[Any, ...] | None:
        """Its body's results on Python numbers, unless Python cannot compute them."""
        if self.random or not numbers:
            return None
        return body_on_numbers(self.body, *self.types(specs, parameters), numbers, parameters)

    def checked(self, specs: Sequence[Spec]) -> int | None:
        """The input that must not be negative; None if there is none, or it is unsigned."""
        place = self.natural[0] if self.natural else None
        if place is None or specs[place].dtype.kind != "i":
            return None
        return place if self.types(tuple(specs), {})[1][0].kind == "i" else None

    def may_fail(self, inputs: Sequence[Entry]) -> bool:
        """Whether an element of an array may be negative where that is forbidden."""
        place = self.checked([entry.spec for entry in inputs]) if self.natural else None
        return place is not None and not inputs[place].node.is_number

    def _kernel(
        self, rank: int, operands: Any, parameters: dict[str, Any], device: int, *target: int
    ) -> Any:
        """For the core, on a miss: the kernel for such dtypes and strides, or None."""
        self.check_count(len(operands))
        specs = operand_specs(rank, operands)
        if has_complex(specs) and not self.moves:
            return None
        try:
            dtypes = self.types(specs, self.complete(parameters))[1]
        except DTypeError:  # it is raised again when the arrays' own shapes are known
            return None
        stored = [DTYPES[code] for code in target[:1]]
        if not self.kernel_for(specs, [Spec((), dtype) for dtype in (*stored, *dtypes)]):
            return None
        return above.elementwise_kernel(self, rank, operands, parameters, device, *target)

    def _only_moves(self, inputs: Sequence[Spec], result: Spec) -> bool:
        pairs = zip(inputs, self.types(tuple(inputs), {})[0], strict=True)
        return all(
            (s.dtype is d and not s.weak) or "c" not in (s.dtype.kind, d.kind) for s, d in pairs
        )

    def _into(self, target: Any, inputs: tuple[Any, ...], parameters: dict[str, Any]) -> None:
        """For the core: write a result into an array if no kernel can do so directly."""
        copy: Any = find("copy")
        with target.device:  # so that numbers become arrays there
            copy.into(target, call("cast", self(*inputs, **parameters), dtype=target.dtype))


def operand_specs(rank: int, operands: Any) -> tuple[Spec, ...]:
    """The specs of operands the core describes: (dtype code, or -1..-3 for numbers; stride class).

    Only the rank of an array is known, so its extents are set to 2.
    """
    # A call on numbers alone computes in double precision.
    alone = all(code < 0 for code, _ in operands)
    weak = {-1: bool_, -2: int64, -3: float64 if alone else default_float()}
    return tuple(
        Spec((), weak[code], weak=True) if code < 0 else Spec((2,) * rank, DTYPES[code])
        for code, _ in operands
    )


def _same(op: Op, specs: tuple[Spec, ...], _: Any) -> tuple[tuple[DType, ...], DType]:
    dtype = promote_specs(*specs)
    return (dtype,) * len(specs), dtype


def _arithmetic(op: Op, specs: tuple[Spec, ...], _: Any) -> tuple[tuple[DType, ...], DType]:
    dtype = promote_specs(*specs)
    if dtype is bool_:
        rule = f"{op.name}: {' and '.join(map(str, specs))}: bool has no {op.name}"
        raise DTypeError(f"{rule}; use logical_xor, logical_not or astype('int32')")
    return (dtype,) * len(specs), dtype


def _numeric(op: Op, specs: tuple[Spec, ...], _: Any) -> tuple[tuple[DType, ...], DType]:
    dtype = promote_specs(*specs)
    dtype = int8 if dtype is bool_ else dtype  # as NumPy computes with bools
    return (dtype,) * len(specs), dtype


def _floating(op: Op, specs: tuple[Spec, ...], _: Any) -> tuple[tuple[DType, ...], DType]:
    dtype = promote_specs(*specs).floating
    return (dtype,) * len(specs), dtype


def _size(op: Op, specs: tuple[Spec, ...], _: Any) -> tuple[tuple[DType, ...], DType]:
    dtype = promote_specs(*specs)
    return (dtype,) * len(specs), dtype.real


def _compare(op: Op, specs: tuple[Spec, ...], _: Any) -> tuple[tuple[DType, ...], DType]:
    if all(spec.dtype.kind in "iu" for spec in specs):
        return tuple(spec.dtype for spec in specs), bool_  # exact, whatever dtypes they have
    return (promote_specs(*specs),) * len(specs), bool_


def _logical(op: Op, specs: tuple[Spec, ...], _: Any) -> tuple[tuple[DType, ...], DType]:
    return (bool_,) * len(specs), bool_


def _integral(op: Op, specs: tuple[Spec, ...], _: Any) -> tuple[tuple[DType, ...], DType]:
    dtype = promote_specs(*specs)
    if dtype.is_floating:
        given = " and ".join(map(str, specs))
        raise DTypeError(
            f"{op.name}: {given}: bitwise operations need integers or bools; use astype('int32')"
        )
    return (dtype,) * len(specs), dtype


POLICIES = {
    "same": _same,
    "arithmetic": _arithmetic,
    "floating": _floating,
    "numeric": _numeric,
    "size": _size,
    "compare": _compare,
    "logical": _logical,
    "integral": _integral,
}


class Reduction(Op):
    """An operation that combines elements along axes. `combine` names the instruction ("sum"), or
    says what is carried along."""

    has_kernel = True

    def __init__(
        self, function: Callable[..., Any], *, combine: str | Combiner, **names: Any
    ) -> None:
        super().__init__(function, **names)
        if not {"axis", "keepdims"} <= {*self.parameters}:
            raise TypeError(f"{self.name}: a reduction needs the parameters axis and keepdims")
        self.combine = combine
        self.common = REDUCTIONS.get(str(combine), OUT)

    def accumulator(self, dtype: DType) -> DType:
        """The dtype in which the elements are combined."""
        if isinstance(self.combine, Combiner):
            return self.combine.computed(dtype)
        if self.combine in ("sum", "prod"):
            return dtype.accumulate
        return bool_ if self.combine in ("any", "all") else dtype.compute

    def infer(self, *specs: Spec, **parameters: Any) -> tuple[Spec, ...]:
        """The shape without the reduced axes (with keepdims, they are 1)."""
        self.check_complex(specs)
        (x,) = specs
        counts = isinstance(self.combine, Combiner) and self.combine.counts
        if counts and isinstance(parameters["axis"], tuple):
            raise ShapeError(
                f"{self.name}: {x}: axis {parameters['axis']} must be one axis, or None for all "
                "axes"
            )
        axes = normalize_axes(self.name, parameters["axis"], x.ndim)
        keep = parameters["keepdims"]
        shape = [1 if i in axes else n for i, n in enumerate(x.shape) if keep or i not in axes]
        if self.combine not in ("sum", "prod", "any", "all"):
            empty = [a for a in axes if x.shape[a] == 0]
            if empty:
                raise ShapeError(
                    f"{self.name}: {x}: axis {empty[0]} is empty, so {self.name} is undefined"
                )
        return (Spec(shape, self.result_dtype(x.dtype)),)

    def result_dtype(self, dtype: DType) -> DType:
        """The dtype of the result for elements of `dtype`."""
        if isinstance(self.combine, Combiner):
            return self.combine.result_dtype(dtype)
        combined = self.accumulator(dtype)
        return dtype if combined.kind == dtype.kind and dtype.is_inexact else combined


def has_complex(specs: Sequence[Spec]) -> bool:
    """Whether any of these is complex."""
    return any(spec.dtype.kind == "c" for spec in specs)


class Contraction(Op):
    """A sum of products of two inputs' elements: matrix products, convolutions."""

    def __init__(self, function: Callable[..., Any], **options: Any) -> None:
        super().__init__(function, contracts=True, **options)

    def unrounded(self, op: Op) -> Op:
        """Declare the operation that computes the same sums without rounding them to two bytes."""
        self.rules.unrounded = op
        return op


class Composite(Op):
    """An operation whose body applies other operations; it is expanded into these before lowering.

    The body is its meaning, which gradients and exports follow; a `planned` rule may say how plans
    compute it instead. Its rules hold for real numbers: a call on complex ones is expanded at once.
    With `kernel=False` the body uses operations that NumPy runs, and an imperative call runs them
    one by one. `combine` is for a composite that is a reduction. Its gradient rule covers the first
    `ruled` results (all by default), also those that it reads itself. If a gradient arrives at one
    of the others, the gradient is derived from the body.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        *,
        kernel: bool = True,
        combine: str = "",
        ruled: int | None = None,
        **options: Any,
    ) -> None:
        super().__init__(function, **options)
        self.has_kernel = kernel
        self.ruled = self.outputs if ruled is None else ruled
        self.combine = combine
        self.common = REDUCTIONS.get(combine, self.common)

    def infer(self, *specs: Spec, **parameters: Any) -> tuple[Spec, ...]:
        """The specs of its body's results."""
        if self.rules.spec is not None and not self.of_complex(specs):
            return super().infer(*specs, **parameters)
        with Trace():  # so that arrays that the body creates are nodes, too
            return tuple(entry.spec for entry in self.expand(specs, parameters)[1])

    def of_complex(self, specs: Sequence[Spec]) -> bool:
        """Whether a call on these specs is expanded at once because they are complex."""
        return has_complex(specs) and not self.updates

    def check_shapes(self, specs: Sequence[Spec], parameters: dict[str, Any]) -> None:
        """Raise `ShapeError` before the body of a call on such specs runs, if they do not fit.

        The spec rule holds for real numbers; complex ones have the shapes of their real parts.
        """
        if self.rules.spec is not None:
            real = [Spec(spec.shape, spec.dtype.real, spec.weak) for spec in specs]
            self.rules.spec(*real, **parameters)

    def apply(self, inputs: tuple[Any, ...], parameters: dict[str, Any]) -> tuple[Entry, ...]:
        """A node of it; for complex numbers, the nodes of its body."""
        entries = tuple(above.as_entry(value, inputs) for value in inputs)
        specs = [entry.spec for entry in entries]
        if self.of_complex(specs):
            self.check_shapes(specs, parameters)
            return self.written_out(entries, parameters)
        return super().apply(entries, parameters)

    def planned(self, rule: PlannedRule) -> PlannedRule:
        """Declare what plans compute instead of the body."""
        self.rules.planned = rule
        return rule

    def whole(self, rule: WholeRule) -> WholeRule:
        """Declare when plans for a GPU compute the body in spite of the `planned` rule."""
        self.rules.whole = rule
        return rule

    def in_plan(self, inputs: tuple[Entry, ...], parameters: dict[str, Any]) -> tuple[Entry, ...]:
        """Its results as plans compute them: by its `planned` rule, else by its body."""
        rule = self.rules.planned
        if rule is None:
            return self.written_out(inputs, parameters)
        found = rule(*inputs, **parameters)
        return found if isinstance(found, tuple) else (found,)

    def expand(
        self, specs: tuple[Spec, ...], parameters: dict[str, Any]
    ) -> tuple[tuple[Entry, ...], tuple[Entry, ...]]:
        """Placeholders for inputs of these specs, and the body's results on them."""
        inputs = tuple(placeholder(spec) for spec in specs)
        return inputs, self.written_out(inputs, parameters)

    def written_out(
        self, inputs: tuple[Entry, ...], parameters: dict[str, Any]
    ) -> tuple[Entry, ...]:
        """The body's results on these entries. A `DTypeError` from inside names the composite."""
        try:
            found = self.function(*inputs, **parameters)
        except DTypeError as error:
            name_call(error, self.name)
            raise
        results = found if isinstance(found, tuple) else (found,)
        if not all(isinstance(result, (Entry, _core.Array)) for result in results):
            raise FormulaError(
                f"{self.name}: its body must return an array or a tuple of arrays, not {found!r}"
            )
        return results


__all__ = ["Composite", "Contraction", "Elementwise", "Reduction", "has_complex", "operand_specs"]
