"""The recorded history of an array, as a symbol."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gemel.errors import ExportError, GradientError
from gemel.spec import Spec
from gemel.symbol.export import exported
from gemel.symbol.symbol import Symbol
from gemel.tape.kinds import OperationKind
from gemel.tape.recording import key_of, source_of
from gemel.tape.steps import Step
from gemel.tracing.programs import Arguments


def history(x: Any) -> Symbol:
    """The computation that led from the recorded variables to `x`; see `get_symbol`."""
    if not isinstance(source_of(x), tuple):
        raise GradientError(
            "get_symbol: the array was not computed from a variable while recording; call "
            "x.attach_grad() first and compute inside `with autograd.record():`"
        )
    calls = Step.of([x], [None]).calls
    places, specs = _variables(calls)
    names = [f"var{number}" for number in range(len(specs))]
    arguments = Arguments((tuple, (None,) * len(specs)), specs, [])
    return Symbol(
        exported(_again(calls, places, key_of(source_of(x))), arguments, names=names).heads
    )


def _variables(calls: list[Any]) -> tuple[dict[Any, int], list[Spec]]:
    """The argument for each input that is not a result of these calls, and the arguments' specs."""
    places: dict[Any, int] = {}
    specs: list[Spec] = []
    for position, call in enumerate(calls):
        if not isinstance(call.kind, OperationKind):
            raise ExportError(
                f"get_symbol: {call.kind.name} is a compiled program; record it without hybridize"
            )
        for index, (source, spec) in enumerate(zip(call.sources, call.kind.inputs, strict=True)):
            key = (position, index) if source is None else key_of(source)
            if not (isinstance(source, tuple) or _is_kept(call, index) or key in places):
                places[key] = len(specs)
                specs.append(Spec(spec.shape, spec.dtype))
    return places, specs


def _is_kept(call: Any, index: int) -> bool:
    """Whether an input is a number that the tape keeps, because the gradient reads it."""
    return call.kind.inputs[index].weak and ("input", index) in call.reads


def _again(calls: list[Any], places: dict[Any, int], wanted: Any) -> Callable[..., Any]:
    """A function that repeats the calls on its arguments."""

    def function(*arguments: Any) -> Any:
        known: dict[Any, Any] = {}
        for position, call in enumerate(calls):
            inputs = []
            for index, source in enumerate(call.sources):
                if _is_kept(call, index):
                    inputs.append(call.kept(("input", index)))
                    continue
                key = (position, index) if source is None else key_of(source)
                inputs.append(known[key] if isinstance(source, tuple) else arguments[places[key]])
            found = call.kind.op(*inputs, **call.kind.parameters)
            for index, value in enumerate(found if isinstance(found, tuple) else (found,)):
                known[id(call), index] = value
        return known[wanted]

    return function
