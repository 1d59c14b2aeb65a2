"""The kinds of operations: on each element alone, along axes, written over others.

An `Op` that is none of these says by a `lower` or `view` rule what becomes of it, or NumPy does it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

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
from gemel.errors import DTypeError, ShapeError
from gemel.extent import WHOLE
from gemel.ir.above import above
from gemel.ir.graph import Entry, placeholder
from gemel.ir.keywords import OUT, REDUCTIONS, UFUNC
from gemel.ir.methods import call
from gemel.ir.op import Op, find
from gemel.ir.trace import Trace
from gemel.spec import Spec, broadcast, normalize_axes, promote_specs


class Elementwise(Op):
    """An operation on each element alone: one body, written against a namespace `xp`.

    With xp = NumPy the body is the reference, with xp = a lane it is one iteration of a kernel.
    `dtype` is the policy: ``"same"`` (promote), ``"floating"`` (integers become float32),
    ``"size"`` (promote, result real), ``"numeric"`` (bools become int8), ``"arithmetic"`` (bools
    are refused), ``"integral"`` (floats are), ``"compare"`` (promote, result bool), ``"logical"``
    (bool in and out), or a function (input specs, parameters) -> (dtype per input, result dtype).
    With several results, which a body gives as a tuple, such a function says all their dtypes; the
    names mean the same for all.

    `natural`: which input must not be below 0 where integers are computed, and what the
    `ValueError` says otherwise: at the call of a number, at the wait of an array's elements.

    `unchanged(*input entries)` says when the result is the first input, where their specs are the
    same: x * 1. `positional`: elements depend on where they are, too.
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
        super().__init__(body, **names)
        self.unchanged, self.positional = unchanged, positional
        self.natural = natural
        self.failure = ("ValueError", f"{self.name}: {natural[1]}") if natural else None
        if self.public and not {"dtype", "shape"} & set(self.parameters):
            self.common = names.get("common", UFUNC)
        self.body = body
        self.policy = POLICIES[dtype] if isinstance(dtype, str) else dtype
        #: Whether an element takes an instruction or two, and not a root, a power or a series.
        self.is_light = not self.random and dtype not in ("floating", "numeric")

    def infer(self, *specs: Spec, **parameters: Any) -> tuple[Spec, ...]:
        """Broadcast shape, and the policy's dtype."""
        if "spec" in self.rules:
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
        """The dtype each input is computed in, and those of the results. Raises `DTypeError`."""
        self.check_complex(specs)
        inputs, found = self.policy(self, specs, parameters)
        return inputs, found if isinstance(found, tuple) else (found,) * self.outputs

    def check_numbers(
        self, inputs: tuple[Any, ...], specs: tuple[Spec, ...], parameters: dict[str, Any]
    ) -> None:
        """Raises `OverflowError` for whole numbers int64 cannot hold, nor the integers beside them.

        They are arrays of uint64 by now, or infinite; comparisons take them as they are.
        And `ValueError` for one below 0 where it must not be.
        """
        checked = self.checked(specs)
        if checked is not None and type(inputs[checked]) in WHOLE and inputs[checked] < 0:
            raise ValueError(self.failure[1])  # type: ignore[index]
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

    def checked(self, specs: Sequence[Spec]) -> int | None:
        """Which input must not be below 0; None where there is none, or its dtype says so."""
        place = self.natural[0] if self.natural else None
        if place is None or specs[place].dtype.kind != "i":
            return None
        return place if self.types(tuple(specs), {})[1][0].kind == "i" else None

    def may_fail(self, inputs: Sequence[Entry]) -> bool:
        """Whether an element of an array may be below 0 where it must not be."""
        place = self.checked([entry.spec for entry in inputs]) if self.natural else None
        return place is not None and not inputs[place].node.is_number

    def _kernel(
        self, rank: int, operands: Any, parameters: dict[str, Any], device: int, *target: int
    ) -> Any:
        """The machine code for one combination of dtypes and strides (a miss); None without."""
        self.check_count(len(operands))
        specs = operand_specs(rank, operands)
        if has_complex(specs) and not self.moves:
            return None
        try:
            dtypes = self.types(specs, self.complete(parameters))[1]
        except DTypeError:  # is raised again where the arrays' own shapes are known
            return None
        stored = [DTYPES[code] for code in target[:1]]
        if not self.kernel_for(specs, [Spec((), dtype) for dtype in (*stored, *dtypes)]):
            return None
        return above.elementwise_kernel(self, rank, operands, parameters, device, *target)

    def _only_moves(self, inputs: Sequence[Spec], result: Spec) -> bool:
        pairs = zip(inputs, self.types(tuple(inputs), {})[0], strict=True)
        return all(d.kind != "c" or (s.dtype is d and not s.weak) for s, d in pairs)

    def _into(self, target: Any, inputs: tuple[Any, ...], parameters: dict[str, Any]) -> None:
        """What the core leaves of writing a result into an array: there is no kernel for it."""
        copy: Any = find("copy")
        with target.device:  # where numbers become arrays
            copy.into(target, call("cast", self(*inputs, **parameters), dtype=target.dtype))


def operand_specs(rank: int, operands: Any) -> tuple[Spec, ...]:
    """The specs of operands as the core tells of them: (dtype code or below 0, stride class)."""
    # A number that stands alone has no array to give way to: it keeps its digits.
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
    dtype = int8 if dtype is bool_ else dtype  # as NumPy counts with truths
    return (dtype,) * len(specs), dtype


def _floating(op: Op, specs: tuple[Spec, ...], _: Any) -> tuple[tuple[DType, ...], DType]:
    dtype = promote_specs(*specs).floating
    return (dtype,) * len(specs), dtype


def _size(op: Op, specs: tuple[Spec, ...], _: Any) -> tuple[tuple[DType, ...], DType]:
    dtype = promote_specs(*specs)
    return (dtype,) * len(specs), dtype.real


def _compare(op: Op, specs: tuple[Spec, ...], _: Any) -> tuple[tuple[DType, ...], DType]:
    if all(spec.dtype.kind in "iu" for spec in specs):
        return tuple(spec.dtype for spec in specs), bool_  # exactly, whatever each of them holds
    return (promote_specs(*specs),) * len(specs), bool_


def _logical(op: Op, specs: tuple[Spec, ...], _: Any) -> tuple[tuple[DType, ...], DType]:
    return (bool_,) * len(specs), bool_


def _integral(op: Op, specs: tuple[Spec, ...], _: Any) -> tuple[tuple[DType, ...], DType]:
    dtype = promote_specs(*specs)
    if dtype.is_floating:
        given = " and ".join(map(str, specs))
        raise DTypeError(
            f"{op.name}: {given}: only integers and bools have bits; use astype('int32')"
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
    """An operation that combines elements along axes: `combine` names the instruction."""

    has_kernel = True

    def __init__(self, function: Callable[..., Any], *, combine: str, **names: Any) -> None:
        super().__init__(function, **names)
        self.combine = combine
        self.common = REDUCTIONS.get(combine, OUT)

    def accumulator(self, dtype: DType) -> DType:
        """The dtype the elements are combined in."""
        if self.combine in ("sum", "prod"):
            return dtype.accumulate
        return bool_ if self.combine in ("any", "all") else dtype.compute

    def infer(self, *specs: Spec, **parameters: Any) -> tuple[Spec, ...]:
        """Without the reduced axes (or with them as 1, under keepdims)."""
        self.check_complex(specs)
        (x,) = specs
        if self.combine.startswith("arg") and isinstance(parameters["axis"], tuple):
            raise ShapeError(
                f"{self.name}: {x}: axis {parameters['axis']} must be one axis, or None for all"
            )
        axes = normalize_axes(self.name, parameters["axis"], x.ndim)
        keep = parameters["keepdims"]
        shape = [1 if i in axes else n for i, n in enumerate(x.shape) if keep or i not in axes]
        if self.combine not in ("sum", "prod", "any", "all"):
            empty = [a for a in axes if x.shape[a] == 0]
            if empty:
                raise ShapeError(
                    f"{self.name}: {x}: axis {empty[0]} is empty, so there is no {self.name}"
                )
        return (Spec(shape, self.result_dtype(x.dtype)),)

    def result_dtype(self, dtype: DType) -> DType:
        """The dtype of the result for elements of `dtype`."""
        if self.combine.startswith("arg"):
            return int64
        combined = self.accumulator(dtype)
        return dtype if combined.kind == dtype.kind and dtype.is_inexact else combined


def has_complex(specs: Sequence[Spec]) -> bool:
    """Whether there are complex numbers among these."""
    return any(spec.dtype.kind == "c" for spec in specs)


class Contraction(Op):
    """Sums of the products of two inputs' elements; kernels in tiles compute those of matrices."""

    def __init__(self, function: Callable[..., Any], **options: Any) -> None:
        super().__init__(function, contracts=True, **options)

    def unrounded(self, op: Op) -> Op:
        """Declare the operation that gives the same sums before they are rounded to two bytes."""
        self.rules["unrounded"] = op
        return op


class Composite(Op):
    """An operation written over other operations; expanded into them before kernels are made.

    Its rules are about real numbers. Of complex ones it is what it is written in, from the call on.
    One with `kernel=False` is written over some that NumPy does: a call makes them one by one.
    What it is written in is its meaning, which gradients and exports go by; a `planned` rule may
    say what plans do instead. `combine` says how it combines elements, where it does so as a
    reduction does. Its gradient rule is about all its results, or the first `ruled` ones: others
    are there for the rule to read, and where a gradient arrives at these it is written out.
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
        if "spec" in self.rules and not self.of_complex(specs):
            return super().infer(*specs, **parameters)
        with Trace():  # what it creates is to be a part of it, too
            return tuple(entry.spec for entry in self.expand(specs, parameters)[1])

    def of_complex(self, specs: Sequence[Spec]) -> bool:
        """Whether a call on these is what it is written in, for the sake of complex numbers."""
        return has_complex(specs) and not self.updates

    def apply(self, inputs: tuple[Any, ...], parameters: dict[str, Any]) -> tuple[Entry, ...]:
        """A node of it; of complex numbers the operations it is written in."""
        entries = tuple(above.as_entry(value, inputs) for value in inputs)
        if self.of_complex([entry.spec for entry in entries]):
            return self.written_out(entries, parameters)
        return super().apply(entries, parameters)

    def planned(self, rule: Callable[..., Any]) -> Callable[..., Any]:
        """Declare what a plan does in its body's stead: rule(*inputs, **parameters) -> results."""
        return self._declare("planned", rule)

    def in_plan(self, inputs: tuple[Entry, ...], parameters: dict[str, Any]) -> tuple[Entry, ...]:
        """Its results as a plan computes them: by its `planned` rule, or as its body says."""
        rule = self.rules.get("planned")
        if rule is None:
            return self.written_out(inputs, parameters)
        found = rule(*inputs, **parameters)
        return found if isinstance(found, tuple) else (found,)

    def expand(
        self, specs: tuple[Spec, ...], parameters: dict[str, Any]
    ) -> tuple[tuple[Entry, ...], tuple[Entry, ...]]:
        """Placeholders for the inputs and the entries the body makes of them."""
        inputs = tuple(placeholder(spec) for spec in specs)
        return inputs, self.written_out(inputs, parameters)

    def written_out(
        self, inputs: tuple[Entry, ...], parameters: dict[str, Any]
    ) -> tuple[Entry, ...]:
        """The body's results on these entries. A `DTypeError` names the composite, too."""
        try:
            found = self.function(*inputs, **parameters)
        except DTypeError as error:
            named = str(error).startswith(f"{self.name}:")
            raise (error if named else DTypeError(f"{self.name}: {error}")) from None
        return found if isinstance(found, tuple) else (found,)


__all__ = ["Composite", "Contraction", "Elementwise", "Reduction", "has_complex", "operand_specs"]
