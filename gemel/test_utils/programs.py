"""Checks of symbols, networks and optimizers, against references and against themselves."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy

from gemel import autograd, np, npx
from gemel.test_utils.compare import assert_almost_equal, get_atol, get_rtol, plain

__all__ = [
    "check_consistency",
    "check_gluon_hybridize_consistency",
    "check_numeric_gradient",
    "check_speed",
    "check_symbolic_backward",
    "check_symbolic_forward",
    "compare_optimizer",
    "numeric_grad",
    "simple_forward",
]


def _arrays(names: Sequence[str], given: Any, dtype: Any, device: Any) -> dict[str, Any]:
    """Fresh arrays by name, from values by name or in order; floats get the given dtype."""
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        given = dict(zip(names, given, strict=True))
    found = {}
    for name, value in given.items():
        array = plain(value)
        kind = dtype if array.dtype.kind == "f" else array.dtype
        found[name] = np.array(array, dtype=str(numpy.dtype(kind)), device=device)
    return found


def _bound(sym: Any, location: Any, aux_states: Any, requests: Any, dtype: Any, device: Any) -> Any:
    args = _arrays(sym.list_arguments(), location, dtype, device)
    aux = _arrays(sym.list_auxiliary_states(), aux_states, dtype, device)
    if isinstance(requests, (list, tuple)):
        requests = dict(zip(sym.list_arguments(), requests, strict=True))
    if isinstance(requests, str):
        requests = dict.fromkeys(args, requests)
    grads = {n: np.zeros_like(args[n]) for n, kind in requests.items() if kind != "null"}
    return sym.bind(device, args, grads, requests, aux)


def simple_forward(sym: Any, ctx: Any = None, is_train: bool = False, **inputs: Any) -> Any:
    """A symbol's outputs as NumPy arrays for inputs by name; a single one without a list."""
    found = _bound(sym, inputs, None, "null", "float32", ctx).forward(is_train)
    values = [each.asnumpy() for each in found]
    return values[0] if len(values) == 1 else values


def check_symbolic_forward(
    sym: Any,
    location: Any,
    expected: Any,
    rtol: Any = None,
    atol: Any = None,
    aux_states: Any = None,
    ctx: Any = None,
    equal_nan: bool = False,
    dtype: Any = "float32",
) -> list[Any]:
    """Compare a symbol's outputs with the expected ones, and return them. Raises
    `AssertionError`."""
    executor = _bound(sym, location, aux_states, "null", dtype, ctx)
    names = sym.list_outputs()
    wanted = [expected[n] for n in names] if isinstance(expected, Mapping) else expected
    for name, found, value in zip(names, executor.forward(), wanted, strict=True):
        assert_almost_equal(value, found, rtol, atol, (f"EXPECTED_{name}", name), equal_nan)
    return list(executor.outputs)


def check_symbolic_backward(
    sym: Any,
    location: Any,
    out_grads: Any,
    expected: Any,
    rtol: Any = None,
    atol: Any = None,
    aux_states: Any = None,
    grad_req: Any = "write",
    ctx: Any = None,
    grad_stypes: Any = None,
    equal_nan: bool = False,
    dtype: Any = "float32",
) -> dict[str, Any]:
    """Compare a symbol's gradients with the expected ones, and return them. Raises
    `AssertionError`.

    With ``grad_req="add"``, the gradients are added to random numbers.
    """
    executor = _bound(sym, location, aux_states, grad_req, dtype, ctx)
    names = sym.list_arguments()
    if not isinstance(expected, Mapping):
        expected = dict(zip(names, expected, strict=True))
    before = {}
    for name, gradient in executor.grad_dict.items():
        if gradient is not None:
            before[name] = numpy.random.normal(size=gradient.shape).astype(str(gradient.dtype))
            gradient[...] = before[name]
    executor.forward(is_train=True)
    executor.backward(_heads(sym, executor, out_grads))
    for name, value in expected.items():
        request = executor._requests.get(name, "null")
        if request == "null":
            continue
        wanted = plain(value) + before[name] if request == "add" else value
        shown = (f"EXPECTED_{name}", name)
        assert_almost_equal(wanted, executor.grad_dict[name], rtol, atol, shown, equal_nan)
    return dict(executor.grad_dict)


def _heads(sym: Any, executor: Any, out_grads: Any) -> Any:
    if out_grads is None:
        return None
    if isinstance(out_grads, Mapping):
        out_grads = [out_grads[name] for name in sym.list_outputs()]
    if isinstance(out_grads, (np.ndarray, numpy.ndarray)):
        out_grads = [out_grads]
    pairs = zip(out_grads, executor.outputs, strict=True)
    return [np.array(plain(g), dtype=y.dtype, device=y.device) for g, y in pairs]


def numeric_grad(
    executor: Any,
    location: Mapping[str, Any],
    aux_states: Any = None,
    eps: float = 1e-4,
    use_forward_train: bool = True,
    dtype: Any = "float32",
) -> dict[str, Any]:
    """The gradients of the sum of an executor's outputs, by central differences of step `eps`."""
    heads = [1.0] * len(executor._symbol.list_outputs())
    return _differences(executor, location, aux_states, heads, eps, use_forward_train)


def _differences(
    executor: Any, location: Any, states: Any, heads: Any, eps: float, training: bool
) -> dict[str, Any]:
    """The gradient for each floating array, by differences of the results, element by element."""

    def total() -> float:
        executor.copy_params_from({}, states or {})
        found = executor.forward(is_train=training)
        pairs = zip(found, heads, strict=True)
        return float(sum(numpy.sum(plain(y).astype("float64") * g) for y, g in pairs))

    gradients = {}
    for name, value in location.items():
        held = executor.arg_dict[name]
        base = plain(value).astype(str(held.dtype))
        held[...] = base
        if base.dtype.kind != "f":
            continue
        gradient = numpy.zeros(base.shape)
        for place in numpy.ndindex(base.shape):
            sides = []
            for step in (eps / 2, -eps / 2):
                moved = base.copy()
                moved[place] += step
                held[...] = moved
                sides.append(total())
            gradient[place] = (sides[0] - sides[1]) / eps
        held[...] = base
        gradients[name] = gradient
    return gradients


def check_numeric_gradient(
    sym: Any,
    location: Any,
    aux_states: Any = None,
    numeric_eps: float | None = None,
    rtol: Any = None,
    atol: Any = None,
    grad_nodes: Any = None,
    use_forward_train: bool = True,
    ctx: Any = None,
    grad_stype_dict: Any = None,
    dtype: Any = "float32",
) -> None:
    """Compare a symbol's gradients with finite differences. Raises `AssertionError`.

    The outputs are weighted with random numbers; the differences are taken in float64.
    """
    names = sym.list_arguments()
    nodes = grad_nodes if grad_nodes is not None else names
    requests = nodes if isinstance(nodes, Mapping) else dict.fromkeys(nodes, "write")
    requests = {name: request for name, request in requests.items() if request != "null"}
    executor = _bound(sym, location, aux_states, requests, dtype, ctx)
    outputs = executor.forward(is_train=True)
    weights = [numpy.random.uniform(0.1, 1.1, size=y.shape).astype("float32") for y in outputs]
    executor.backward(_heads(sym, executor, weights))
    exact = _bound(sym, location, aux_states, "null", "float64", ctx)
    points = {name: exact.arg_dict[name].asnumpy() for name in requests}
    states = {name: state.asnumpy() for name, state in exact.aux_dict.items()}
    eps = 1e-4 if numeric_eps is None else numeric_eps
    wanted = _differences(exact, points, states, weights, eps, use_forward_train)
    rtol, atol = (1e-3 if rtol is None else rtol), get_atol(atol, "float32")
    for name, value in wanted.items():
        shown = (f"NUMERICAL_{name}", f"BACKWARD_{name}")
        assert_almost_equal(value, executor.grad_dict[name], rtol, atol, shown)


def check_consistency(
    sym: Any,
    ctx_list: Sequence[Mapping[str, Any]],
    scale: float = 1.0,
    grad_req: Any = "write",
    arg_params: Any = None,
    aux_params: Any = None,
    rtol: Any = None,
    atol: Any = None,
    raise_on_err: bool = True,
    ground_truth: Any = None,
    equal_nan: bool = False,
    use_uniform: bool = False,
    rand_type: Any = numpy.float64,
) -> Any:
    """Compare a symbol's outputs and gradients on several devices and in several dtypes.

    `ctx_list` has dictionaries with the shapes by name, ``ctx`` and perhaps ``type_dict``; `sym`
    may be a list with one symbol for each. The results of the most exact dtype are the reference,
    unless there is a `ground_truth`; the reference is returned.
    """
    syms = sym if isinstance(sym, list) else [sym] * len(ctx_list)
    values: dict[str, Any] = dict(arg_params or {})
    runs = []
    for each, spec in zip(syms, ctx_list, strict=True):
        executor = each.simple_bind(grad_req=grad_req, **spec)
        draw = numpy.random.uniform if use_uniform else numpy.random.normal
        for name, array in executor.arg_dict.items():
            if name not in values:
                values[name] = draw(size=array.shape).astype(rand_type) * scale
            array[...] = values[name].astype(str(array.dtype))
        executor.copy_params_from({}, aux_params or {})
        outputs = executor.forward(is_train=grad_req != "null")
        if grad_req != "null":
            executor.backward([np.array(plain(y), dtype=y.dtype) for y in outputs])
        found = {f"output{i}": y for i, y in enumerate(outputs)}
        found.update((f"grad_{name}", g) for name, g in executor.grad_dict.items())
        runs.append({name: plain(array) for name, array in found.items() if array is not None})
    exactness = [max(array.dtype.itemsize for array in run.values()) for run in runs]
    truth = ground_truth or runs[exactness.index(max(exactness))]
    for run in runs:
        for name, array in run.items():
            tolerances = get_rtol(rtol, array.dtype), get_atol(atol, array.dtype)
            try:
                assert_almost_equal(array, truth[name], *tolerances, (name, "truth"), equal_nan)
            except AssertionError as error:
                if raise_on_err:
                    raise
                print(f"check_consistency: {error}")
    return truth


def check_gluon_hybridize_consistency(
    net_builder: Callable[[], Any],
    data_l: Sequence[Any],
    numpy_func: Callable[..., Any] | None = None,
    test_grad: bool = True,
    rtol: Any = 1e-4,
    atol: Any = 1e-4,
) -> None:
    """Compare a network's outputs and gradients before and after `hybridize`, and with a function.

    Raises `AssertionError`. The network may not draw random numbers.
    """
    net = net_builder()
    net.initialize()
    runs = []
    for hybrid in (False, True):
        if hybrid:
            net.hybridize()
        inputs = [np.array(plain(x), dtype=str(getattr(x, "dtype", "float32"))) for x in data_l]
        if not test_grad:
            outputs = net(*inputs)
            runs.append({"output": outputs.asnumpy()})
            continue
        for x in inputs:
            x.attach_grad()
        with autograd.record():
            outputs = net(*inputs)
        outputs.backward()
        found = {"output": outputs.asnumpy()}
        found.update((f"data{i}", x.grad.asnumpy()) for i, x in enumerate(inputs))
        for name, parameter in net.collect_params().items():
            if parameter.grad_req != "null":
                found[name] = parameter.grad().asnumpy()
        runs.append(found)
    for name, value in runs[0].items():
        assert_almost_equal(runs[1][name], value, rtol, atol, (f"hybrid {name}", name))
    if numpy_func is not None:
        assert_almost_equal(runs[0]["output"], numpy_func(*map(plain, data_l)), rtol, atol)


def check_speed(
    sym: Any,
    location: Any = None,
    ctx: Any = None,
    N: int = 20,  # noqa: N803 -- MXNet's
    grad_req: Any = "write",
    typ: str = "whole",
    **kwargs: Any,
) -> float:
    """The seconds of a symbol's `forward`, and for ``typ="whole"`` also of its `backward`."""
    if typ not in ("whole", "forward"):
        raise ValueError(f"check_speed: typ is {typ!r}; it is 'whole' or 'forward'")
    if location is None:
        executor = sym.simple_bind(ctx, grad_req, **kwargs)
        for array in executor.arg_arrays:
            array[...] = numpy.random.normal(size=array.shape)
    else:
        executor = _bound(sym, location, None, grad_req, "float32", ctx)

    def once() -> None:
        executor.forward(is_train=typ == "whole")
        if typ == "whole":
            executor.backward()

    once()
    npx.waitall()
    start = time.perf_counter()
    for _ in range(N):
        once()
    npx.waitall()
    return (time.perf_counter() - start) / N


def compare_optimizer(
    opt1: Any,
    opt2: Any,
    shapes: Any,
    dtype: Any,
    w_stype: str = "default",
    g_stype: str = "default",
    rtol: Any = 1e-4,
    atol: Any = 1e-5,
    compare_states: bool = True,
) -> None:
    """Compare the results of one step of two optimizers on the same weights and gradients.

    `shapes` is one shape, or a list of several. Raises `AssertionError`.
    """
    if shapes and isinstance(shapes[0], int):
        shapes = [shapes]
    weights = [np.array(numpy.random.uniform(-1, 1, shape), dtype=dtype) for shape in shapes]
    grads = [np.array(numpy.random.uniform(-1, 1, shape), dtype=dtype) for shape in shapes]
    runs = []
    for optimizer in (opt1, opt2):
        copies = [weight.copy() for weight in weights]
        states = [optimizer.create_state_multi_precision(i, w) for i, w in enumerate(copies)]
        indices = list(range(len(copies)))
        gradients = [grad.copy() for grad in grads]
        optimizer.update_multi_precision(indices, copies, gradients, states)
        runs.append((copies, states))
    for one, other in zip(runs[0][0], runs[1][0], strict=True):
        assert_almost_equal(one, other, rtol, atol)
    if compare_states:
        pairs = zip(_leaves(runs[0][1]), _leaves(runs[1][1]), strict=True)
        for one, other in pairs:
            assert_almost_equal(one, other, rtol, atol)


def _leaves(states: Any) -> list[Any]:
    if states is None:
        return []
    if isinstance(states, (list, tuple)):
        return [leaf for each in states for leaf in _leaves(each)]
    return [states]
