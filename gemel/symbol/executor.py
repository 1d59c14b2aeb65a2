"""Executor: a symbol bound to the arrays it is computed from, as MXNet runs symbols."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gemel import autograd, np
from gemel.errors import GradientError, ShapeError, unknown_name
from gemel.symbol import run

#: Arrays by their names, or in the order of the names.
Arrays = Any


def named(kind: str, names: list[str], given: Arrays) -> dict[str, Any]:
    """Values by their names. Raises `UnknownNameError`, and `ShapeError` for another count."""
    if given is None:
        return {}
    if isinstance(given, Mapping):
        for name in given:
            if name not in names:
                raise unknown_name(kind, name, names)
        return dict(given)
    if len(given) != len(names):
        raise ShapeError(f"bind: {len(given)} for the {len(names)} {kind}s {', '.join(names)}")
    return dict(zip(names, given, strict=True))


class Executor:
    """A symbol with an array for each of its variables; made by `Symbol.bind` and `simple_bind`.

    `forward` computes its outputs, `backward` writes (or adds) into the arrays of `grad_dict`.
    """

    def __init__(
        self, symbol: Any, device: Any, args: Arrays, args_grad: Arrays, grad_req: Any, aux: Arrays
    ) -> None:
        names, states = symbol.list_arguments(), symbol.list_auxiliary_states()
        self._symbol = symbol
        self.arg_dict = named("argument", names, args)
        self.aux_dict = named("auxiliary state", states, aux)
        for name in (*names, *states):
            if name not in self.arg_dict and name not in self.aux_dict:
                raise unknown_name("array for the argument", name, self.arg_dict)
        if isinstance(grad_req, str):
            grad_req = dict.fromkeys(names, grad_req)
        self._requests = named("argument", names, grad_req)
        given = named("argument", names, args_grad)
        self.grad_dict = {name: given.get(name) for name in names}
        self.outputs: list[Any] = []

    @property
    def arg_arrays(self) -> list[Any]:
        """The arrays of the arguments, in order."""
        return [self.arg_dict[name] for name in self._symbol.list_arguments()]

    @property
    def grad_arrays(self) -> list[Any]:
        """The gradients of the arguments, in order; None where there is none."""
        return list(self.grad_dict.values())

    @property
    def aux_arrays(self) -> list[Any]:
        """The arrays of the auxiliary states, in order."""
        return [self.aux_dict[name] for name in self._symbol.list_auxiliary_states()]

    @property
    def output_dict(self) -> dict[str, Any]:
        """What the last `forward` gave, by name."""
        return dict(zip(self._symbol.list_outputs(), self.outputs, strict=True))

    def forward(self, is_train: bool = False, **kwargs: Any) -> list[Any]:
        """The outputs, for training if so said; keywords are written into the arguments first."""
        for name, value in kwargs.items():
            if name not in self.arg_dict:
                raise unknown_name("argument", name, self.arg_dict)
            self.arg_dict[name][...] = value
        values = {**self.arg_dict, **self.aux_dict}
        for name, gradient in self.grad_dict.items() if is_train else ():
            if gradient is not None and self._requests.get(name, "null") != "null":
                values[name] = values[name].detach()
                autograd.mark_variables(values[name], gradient, self._requests[name])
        with autograd.record() if is_train else autograd.pause():
            self.outputs = run.run(self._symbol._heads, values)
        return self.outputs

    def backward(self, out_grads: Any = None, is_train: bool = True) -> None:
        """The gradients of the last `forward`, which was for training; of ones without `out_grads`.

        Raises `GradientError` where there was none.
        """
        if not self.outputs:
            raise GradientError("backward: call forward(is_train=True) first")
        grads = [out_grads] if isinstance(out_grads, np.ndarray) else out_grads
        autograd.backward(self.outputs, grads, retain_graph=True)

    def copy_params_from(
        self, arg_params: Arrays, aux_params: Arrays = None, allow_extra_params: bool = False
    ) -> None:
        """Write values into the arguments and states of these names. Raises `UnknownNameError`."""
        for held, given in ((self.arg_dict, arg_params), (self.aux_dict, aux_params or {})):
            for name, value in given.items():
                if name in held:
                    held[name][...] = value
                elif not allow_extra_params:
                    raise unknown_name("parameter", name, held)


def simple(
    symbol: Any, device: Any, grad_req: Any, dtypes: Mapping[str, Any], shapes: Mapping[str, Any]
) -> Executor:
    """An executor with arrays of zeros of these shapes, and of those that follow from them."""
    found, _, states = symbol.infer_shape(**shapes)
    if found is None:
        raise ShapeError(
            f"simple_bind: the shapes of {sorted(shapes)} do not say those of all of "
            f"{symbol.list_inputs()}"
        )
    names = symbol.list_arguments()
    requests = grad_req if isinstance(grad_req, Mapping) else dict.fromkeys(names, grad_req)

    def zeros(each: tuple[str, Any]) -> Any:
        return np.zeros(each[1], dtype=dtypes.get(each[0], "float32"), device=device)

    pairs = dict(zip(names, found, strict=True))
    args = {name: zeros((name, shape)) for name, shape in pairs.items()}
    kept = {n: np.zeros_like(a) for n, a in args.items() if requests.get(n, "null") != "null"}
    aux = list(map(zeros, zip(symbol.list_auxiliary_states(), states, strict=True)))
    return Executor(symbol, device, args, kept, requests, aux)


__all__ = ["Executor"]
