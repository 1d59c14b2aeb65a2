"""Modules: parts of networks, in PyTorch's form."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from gemel import autograd, np
from gemel.ir.current import current_trace
from gemel.ir.trace import parameters_replaced
from gemel.scripting import own_scripted
from gemel.torch.tensor import Tensor, apply, lifted


class Parameter(Tensor):
    """A tensor that a module learns. In a trace it is an input of the program."""

    name, lr_mult, wd_mult = "", 1.0, 1.0  # what files keep of a parameter

    def __init__(self, data: Tensor) -> None:
        super().__init__(data.value())
        self.requires_grad_()

    def value(self) -> Any:
        """The array or, while a module is being traced, its symbol."""
        trace = current_trace()
        return self._array if trace is None else trace.state.parameter(self)

    def array(self, device: Any = None) -> Any:
        """The array, in the form in which a trace asks its parameters for it."""
        return self._array

    def __repr__(self) -> str:
        return f"Parameter containing:\n{super().__repr__()}"


class Module:
    """A part of a network: modules and parameters assigned to it, and `forward`."""

    training, _sizes = True, ""

    def _held(self, kind: Any) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if isinstance(value, kind)}

    def children(self) -> Iterator[Module]:
        """The modules assigned to this one."""
        return iter(self._held(Module).values())

    def state_dict(self, prefix: str = "") -> dict[str, Any]:
        """The parameters by their paths, including those of all modules inside."""
        found = {prefix + name: parameter for name, parameter in self._held(Parameter).items()}
        for name, module in self._held(Module).items():
            found |= module.state_dict(f"{prefix}{name}.")
        return found

    def parameters(self) -> Iterator[Parameter]:
        """The parameters of this module and of all modules inside, each once."""
        return iter({id(held): held for held in self.state_dict().values()}.values())

    def train(self, mode: bool = True) -> Module:
        """Switch to training mode, or with False to prediction mode."""
        self.training = mode
        for module in self.children():
            module.train(mode)
        return self

    def eval(self) -> Module:
        """Switch to prediction mode."""
        return self.train(False)

    def to(self, place: Any) -> Module:
        """Move the parameters to a device, or cast them; compiled programs follow."""
        for parameter in self.parameters():
            parameter.__init__(Tensor(parameter.array()).to(place))  # type: ignore[misc]
        parameters_replaced()
        return self

    def __call__(self, *inputs: Any, **options: Any) -> Any:
        """Call `forward` in the module's mode; in a trace, its control flow is scripted first."""
        forward: Any = self.forward  # type: ignore[attr-defined]
        with autograd.train_mode() if self.training else autograd.predict_mode():
            return (own_scripted(forward) if current_trace() else forward)(*inputs, **options)

    def __repr__(self) -> str:
        parts = "".join(f"\n({name}): {part!r}" for name, part in self._held(Module).items())
        inner = parts.replace("\n", "\n  ") + "\n" * bool(parts)
        return f"{type(self).__name__}({self._sizes}{inner})"


class Sequential(Module):
    """Modules one after the other."""

    def __init__(self, *layers: Module) -> None:
        vars(self).update({str(index): layer for index, layer in enumerate(layers)})

    def forward(self, x: Any) -> Any:
        """Apply all modules in order."""
        for layer in self.children():
            x = layer(x)
        return x


class Linear(Module):
    """x @ weight.T + bias; weight (out_features, in_features), both uniform in 1/sqrt(inputs)."""

    def __init__(self, in_features: int, out_features: int, bias: bool = True) -> None:
        self._sizes = f"{in_features=}, {out_features=}, {bias=}"
        draw, bound = np.random.uniform, in_features**-0.5
        self.weight = Parameter(Tensor(draw(-bound, bound, (out_features, in_features))))
        self.bias = Parameter(Tensor(draw(-bound, bound, (out_features,)))) if bias else None

    def forward(self, x: Any) -> Any:
        """The product with the weight, plus the bias."""
        if self.bias is None:
            return x @ self.weight.T
        return apply(lambda b, x, w: np.matmul(x, w.T) + b, "Addmm", self.bias, x, self.weight)


def _elementwise(name: str) -> type[Module]:
    function = lifted(name.lower())
    return type(name, (Module,), {"forward": lambda self, x: function(x), "__doc__": f"{name}."})


ReLU, Sigmoid, Tanh = map(_elementwise, ("ReLU", "Sigmoid", "Tanh"))
