"""Executor: a symbol bound to arrays, which is how MXNet 1 trains networks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from gemel import autograd, np
from gemel import ndarray as nd
from gemel.device import Device, as_device
from gemel.errors import GradientError, ShapeError, unknown_name
from gemel.lists import as_list
from gemel.symbol import run
from gemel.symbol.node import Reference, nodes_of
from gemel.symbol.symbol import Symbol
from gemel.tracing.manners import are_nd, as_nd

REQUESTS = ("write", "add", "null")


class Executor:
    """A symbol with arrays for its variables: `forward` computes, `backward` fills the gradients.

    Created by `Symbol.bind` and `Symbol.simple_bind`. `arg_dict`, `grad_dict` and `aux_dict` hold
    the arrays by name; a gradient that is not asked for is None.
    """

    def __init__(
        self,
        symbol: Symbol,
        device: Any,
        arguments: Any,
        gradients: Any = None,
        grad_req: Any = "write",
        auxiliary: Any = None,
    ) -> None:
        names, states = symbol.list_arguments(), symbol.list_auxiliary_states()
        self._symbol = symbol
        self._ctx = as_device(device)
        self.arg_dict = _named("args", names, arguments, whole=True)
        self.aux_dict = _named("aux_states", states, auxiliary, whole=True)
        self._requests = _requests(names, grad_req)
        buffers = _named("args_grad", names, gradients)
        self.grad_dict: dict[str, Any] = dict.fromkeys(names)
        for name, array in self.arg_dict.items():
            if (gradients is not None and name not in buffers) or not array.dtype.is_inexact:
                self._requests[name] = "null"
            if self._requests[name] != "null":
                buffer = buffers.get(name)
                self.grad_dict[name] = _zeros_like(array) if buffer is None else buffer
        marked = [name for name in names if self._requests[name] != "null"]
        autograd.mark_variables(
            [self.arg_dict[name] for name in marked],
            [self.grad_dict[name] for name in marked],
            [self._requests[name] for name in marked],
        )
        self._outputs: list[Any] | None = None
        self._recorded = False
        self._monitor: tuple[Callable[[str, Any], Any], bool] | None = None

    # ---- arrays

    @property
    def arg_arrays(self) -> list[Any]:
        """The arguments, in order of `list_arguments`."""
        return list(self.arg_dict.values())

    @property
    def grad_arrays(self) -> list[Any]:
        """Their gradients; None where none is asked for."""
        return list(self.grad_dict.values())

    @property
    def aux_arrays(self) -> list[Any]:
        """The states training overwrites, in order of `list_auxiliary_states`."""
        return list(self.aux_dict.values())

    @property
    def outputs(self) -> list[Any]:
        """The outputs of the last `forward`; before the first, zeros."""
        if self._outputs is None:
            every = {**self.arg_dict, **self.aux_dict}
            shapes = {name: array.shape for name, array in every.items()}
            dtypes = {name: array.dtype for name, array in every.items()}
            _, specs = run.infer(self._symbol._heads, shapes, dtypes)
            known = [spec for spec in specs if spec is not None]
            zeros = [np.zeros(s.shape, dtype=s.dtype, device=self._ctx) for s in known]
            self._outputs = as_nd(zeros) if are_nd(every) else zeros
        return self._outputs

    @property
    def output_dict(self) -> dict[str, Any]:
        """The outputs of the last `forward`, by name."""
        return dict(zip(self._symbol.list_outputs(), self.outputs, strict=True))

    # ---- running

    def forward(self, is_train: bool = False, **values: Any) -> list[Any]:
        """Compute the outputs, after writing `values` into arguments. Raises `UnknownNameError`."""
        for name, value in values.items():
            if name not in self.arg_dict:
                raise unknown_name("argument", name, self.arg_dict)
            _write(name, self.arg_dict[name], value)
        every = {**self.arg_dict, **self.aux_dict}
        self._recorded = bool(is_train)
        mode = autograd.record() if is_train else autograd.pause(train_mode=False)
        with mode, self._ctx:
            results = self._run(every)
        self._outputs = as_nd(results) if are_nd(every) else results
        return self._outputs

    def set_monitor_callback(
        self, callback: Callable[[str, Any], Any] | None, monitor_all: bool = False
    ) -> None:
        """Have ``callback(name, array)`` called for every output of every operation, in `forward`.

        With `monitor_all` also for arguments and states. None removes the callback.
        """
        self._monitor = None if callback is None else (callback, monitor_all)

    def _run(self, values: dict[str, Any]) -> list[Any]:
        """The outputs. The monitor callback gets all internal outputs."""
        heads = self._symbol._heads
        if self._monitor is None:
            return run.run(heads, values)
        callback, monitor_all = self._monitor
        inside = self._symbol.get_internals()._heads
        results = run.run((*heads, *inside), values)
        results = as_nd(results) if are_nd(values) else results
        with autograd.pause(train_mode=autograd.is_training()):
            for (node, index), value in zip(inside, results[len(heads) :], strict=True):
                if monitor_all or not node.is_variable:
                    callback(node.output_name(index), value)
        return results[: len(heads)]

    def backward(self, out_grads: Any = None, is_train: bool = True) -> None:
        """Fill `grad_dict` with the gradients of the outputs, weighted by `out_grads` (ones by
        default).

        Raises `GradientError` without a `forward(is_train=True)` before.
        """
        if not self._recorded:
            raise GradientError("backward: call forward(is_train=True) first")
        heads = None if out_grads is None else as_list(out_grads)
        outputs = self.outputs
        if heads is not None and len(heads) != len(outputs):
            raise ShapeError(f"backward: {len(heads)} gradients for {len(outputs)} outputs")
        autograd.backward(outputs, heads, retain_graph=True, train_mode=is_train)

    def copy_params_from(
        self, arg_params: Any, aux_params: Any = None, allow_extra_params: bool = False
    ) -> None:
        """Write arrays by name into the arguments and states.

        Raises `UnknownNameError` for unknown names, unless `allow_extra_params`.
        """
        for own, new in ((self.arg_dict, arg_params), (self.aux_dict, aux_params or {})):
            for name, value in new.items():
                if name in own:
                    _write(name, own[name], value)
                elif not allow_extra_params:
                    raise unknown_name("parameter", name, own)

    def reshape(
        self, partial_shaping: bool = False, allow_up_sizing: bool = False, **shapes: Any
    ) -> Executor:
        """An executor for arguments of these shapes; it shares the arrays whose shapes stay."""
        other = bound(self._symbol, self._ctx, self._requests, {}, shapes)
        for mine, others in ((self.arg_dict, other.arg_dict), (self.aux_dict, other.aux_dict)):
            kept = {n: mine[n] for n, x in others.items() if x.shape == mine[n].shape}
            others.update(kept)
        gradients = {n: g for n, g in self.grad_dict.items() if g is not None}
        same = {n: g for n, g in gradients.items() if g.shape == other.arg_dict[n].shape}
        other.grad_dict.update(same)
        whole = {n: g for n, g in other.grad_dict.items() if g is not None}
        return Executor(
            self._symbol, self._ctx, other.arg_dict, whole, self._requests, other.aux_dict
        )

    def debug_str(self) -> str:
        """The nodes of its symbol, one a line."""
        return described(self._symbol._heads)

    def __repr__(self) -> str:
        return f"<Executor {self._symbol!r} @{self._ctx}>"


def bound(
    symbol: Symbol, device: Any, grad_req: Any, dtypes: Mapping[str, Any], shapes: Mapping[str, Any]
) -> Executor:
    """An executor on new arrays of zeros, with shapes inferred from the given ones.

    Raises `ShapeError` that names the arguments whose shapes cannot be inferred.
    """
    place: Device = as_device(device)
    arguments, _, auxiliary = symbol.infer_shape_partial(**shapes)
    names = symbol.list_arguments(), symbol.list_auxiliary_states()
    known = (
        dict(zip(names[0], arguments, strict=True)),
        dict(zip(names[1], auxiliary, strict=True)),
    )
    missing = [name for group in known for name, shape in group.items() if shape is None]
    if missing:
        raise ShapeError(
            f"simple_bind: the shapes of {', '.join(missing)} cannot be inferred from those of "
            f"{', '.join(shapes) or 'nothing'}; give them too"
        )
    types = dict(zip(names[0], symbol.infer_type(**dtypes)[0], strict=True))
    arrays = [
        {n: nd.zeros(s, dtype=types.get(n, "float32"), ctx=place) for n, s in group.items()}
        for group in known
    ]
    return Executor(symbol, place, arrays[0], None, grad_req, arrays[1])


def described(heads: Iterable[Reference]) -> str:
    """The nodes that the heads depend on, one per line."""
    lines = []
    for node in nodes_of(heads):
        inputs = ", ".join(inner.output_name(index) for inner, index in node.inputs)
        lines.append(f"{node.op} {node.name}({inputs}) {node.attrs or ''}".rstrip())
    return "\n".join(lines)


def _zeros_like(array: Any) -> Any:
    zeros = np.zeros_like(array)
    return as_nd(zeros) if are_nd(array) else zeros


def _named(what: str, names: list[str], given: Any, whole: bool = False) -> dict[str, Any]:
    """Arrays by name, from a dictionary or a list in the names' order."""
    if given is None:
        given = {}
    if not isinstance(given, Mapping):
        values = list(given)
        if len(values) != len(names):
            raise ShapeError(f"bind: {what} has {len(values)} arrays for {len(names)} names")
        given = {n: value for n, value in zip(names, values, strict=True) if value is not None}
    for name in names if whole else ():
        if name not in given:
            raise unknown_name(f"array in {what} for", name, given)
    return {name: given[name] for name in names if name in given}


def _requests(names: list[str], given: Any) -> dict[str, str]:
    """The gradient request of each argument."""
    if isinstance(given, str):
        requests = dict.fromkeys(names, given)
    elif isinstance(given, Mapping):
        requests = {name: given.get(name, "null") for name in names}
    else:
        requests = dict(zip(names, given, strict=True))
    for request in requests.values():
        if request not in REQUESTS:
            raise unknown_name("grad_req", request, REQUESTS)
    return requests


def _write(name: str, target: Any, value: Any) -> None:
    value = np.array(value, dtype=target.dtype, device=target.device)
    if value.shape != target.shape:
        raise ShapeError(
            f"executor: {name} is {target.spec}, not {value.spec}; use reshape(), or bind again"
        )
    target[...] = value
