"""`npx`: what neural networks need beyond NumPy, and the engine's switches."""

from __future__ import annotations

from typing import Any

from gemel import _core, autograd
from gemel.device import as_device, cpu, current_device, gpu, num_gpus, try_all_gpus, try_gpu
from gemel.dtype import as_dtype
from gemel.errors import unknown_attribute, unknown_name
from gemel.ndarray import CREATION, array_like
from gemel.npx import serialize
from gemel.ops import neural
from gemel.ops.control import cond
from gemel.ops.elementwise import relu, sigmoid, stop_gradient, tanh
from gemel.ops.indexing import one_hot as _one_hot
from gemel.ops.indexing import pick as _pick
from gemel.ops.linalg import matmul
from gemel.ops.neural import erf, gelu, softplus, softsign
from gemel.ops.shape import reshape, transpose
from gemel.runtime import callback as runtime_callback
from gemel.spec import Spec, product


def waitall() -> None:
    """Wait until everything issued has been computed; raises the first error nobody has seen."""
    _core.wait_all()


def synchronize(device: Any = None) -> None:
    """Wait until everything issued to a device has been computed, copies to it included.

    Without a device it is `waitall`. With one, failures stay with the arrays that carry them.
    """
    if device is None:
        _core.wait_all()
    else:
        _core.wait_device(as_device(device).code)


class priority:  # noqa: N801 -- used as a function
    """A block whose operations go before others that are ready: `with npx.priority(1): ...`.

    Higher levels first, 0 without a block; what somebody waits for goes before them all.
    """

    def __init__(self, level: int) -> None:
        self._level = level
        self._before: list[int] = []

    def __enter__(self) -> None:
        self._before.append(_core.set_priority(self._level))

    def __exit__(self, *error: object) -> None:
        _core.set_priority(self._before.pop())


def callback(function: Any, *arrays: Any, outputs: Any, name: str | None = None) -> Any:
    """Issue a Python function of NumPy arrays as an operation of the engine.

    `function` gets a NumPy array (a copy) for each of `arrays` and returns a NumPy array for each
    of `outputs`, which are (shape, dtype) pairs; one pair instead of a list gives one array. It
    runs when its inputs are there: at once, or on a thread that waits, or on the Python lane's
    thread; the call does not wait for it. What it raises is raised where a result is read. It may
    wait for other arrays. It has no gradient: see `autograd.Function`.
    """
    single = len(outputs) == 2 and not isinstance(outputs[1], tuple | list)
    pairs = [outputs] if single else outputs
    specs = [Spec(tuple(shape), as_dtype(dtype)) for shape, dtype in pairs]
    inputs = [array_like(array) for array in arrays]
    label = name or str(getattr(function, "__name__", "callback"))
    found = runtime_callback.issue(label, runtime_callback.copying(function), inputs, specs)
    return found[0] if single else list(found)


def set_np(shape: bool = True, array: bool = True, dtype: bool = False) -> None:
    """MXNet's NumPy mode: Python integers become float32 arrays, unless `dtype` is set."""
    CREATION["integers"] = "int64" if dtype else "float32"


def reset_np() -> None:
    """Back to NumPy's own: Python integers become int64 arrays."""
    CREATION["integers"] = "int64"


def softmax(data: Any, axis: int = -1, temperature: float | None = None) -> Any:
    """exp(x / temperature) along an axis, divided by its sum."""
    scaled = data if temperature in (None, 1.0) else data / temperature
    return neural.softmax(scaled, axis=axis)


def log_softmax(data: Any, axis: int = -1, temperature: float | None = None) -> Any:
    """The logarithm of `softmax`, accurate where softmax is nearly 0 or 1."""
    scaled = data if temperature in (None, 1.0) else data / temperature
    return neural.log_softmax(scaled, axis=axis)


def one_hot(
    data: Any, depth: int, on_value: float = 1.0, off_value: float = 0.0, dtype: Any = "float32"
) -> Any:
    """A new last axis of `depth`: `on_value` at the place data names, `off_value` elsewhere."""
    return _one_hot(
        data,
        depth=depth,
        on_value=float(on_value),
        off_value=float(off_value),
        dtype=as_dtype(dtype),
    )


def pick(data: Any, index: Any, axis: int = -1, mode: str = "clip", keepdims: bool = False) -> Any:
    """From each row along an axis, the element at that row's index; out of range is clipped."""
    if mode != "clip":
        raise unknown_name("mode of pick", mode, ("clip",))
    return _pick(data, index, axis=axis, keepdims=keepdims)


def fully_connected(
    x: Any,
    weight: Any,
    bias: Any = None,
    num_hidden: int | None = None,
    no_bias: bool = False,
    flatten: bool = True,
) -> Any:
    """x @ weight.T + bias, weight (units, inputs); `flatten` joins all axes of x but the first."""
    if flatten and len(x.shape) > 2:
        x = reshape(x, shape=(x.shape[0], product(x.shape[1:])))
    y = matmul(x, transpose(weight))
    return y if bias is None or no_bias else y + bias


ACTIVATIONS = {
    "relu": relu,
    "sigmoid": sigmoid,
    "tanh": tanh,
    "gelu": gelu,
    "softrelu": softplus,
    "softplus": softplus,
    "softsign": softsign,
}


def activation(data: Any, act_type: str = "relu") -> Any:
    """An activation by its name. Raises `UnknownNameError`, suggesting the nearest."""
    function = ACTIVATIONS.get(act_type)
    if function is None:
        raise unknown_name("activation", act_type, ACTIVATIONS)
    return function(data)


def leaky_relu(data: Any, act_type: str = "leaky", slope: float = 0.25) -> Any:
    """data where positive, slope * data elsewhere."""
    if act_type != "leaky":
        raise unknown_name("kind of leaky_relu", act_type, ("leaky",))
    return neural.leaky_relu(data, slope)


def dropout(data: Any, p: float = 0.5, mode: str = "training", axes: Any = ()) -> Any:
    """While training, elements set to 0 with probability p and the others scaled by 1 / (1 - p).

    `mode` "always" drops outside training too. Along `axes` one draw serves all elements. Raises
    `ValueError` unless 0 <= p < 1.
    """
    if not 0 <= p < 1:
        raise ValueError(f"dropout: p must be at least 0 and below 1, not {p!r}")
    if p == 0 or not (mode == "always" or autograd.is_training()):
        return data
    return neural.dropout(data, p=float(p), axes=tuple(axes))[0]


def batch_norm(
    x: Any,
    gamma: Any,
    beta: Any,
    running_mean: Any,
    running_var: Any,
    eps: float = 1e-3,
    momentum: float = 0.9,
    fix_gamma: bool = False,
    use_global_stats: bool = False,
    axis: int = 1,
) -> Any:
    """x normalised over all axes but one, times gamma plus beta (Ioffe and Szegedy 2015).

    While training (and not `use_global_stats`) the batch's own mean and variance are used, and the
    running ones are overwritten in place: momentum * old + (1 - momentum) * batch's.
    """
    if fix_gamma:
        gamma = gamma * 0 + 1
    if autograd.is_training() and not use_global_stats:
        return neural.batch_norm(
            x,
            gamma,
            beta,
            running_mean,
            running_var,
            eps=float(eps),
            momentum=float(momentum),
            axis=axis,
        )[0]
    lined = neural.channel_shape(x, axis)
    scale = gamma / (running_var + eps).sqrt()
    shift = beta - running_mean * scale
    return x * reshape(scale, shape=lined) + reshape(shift, shape=lined)


def save(file: str, arr: Any) -> None:
    """Write arrays (one, a list or a dict by name) to a file in MXNet's parameter format."""
    serialize.save(file, arr)


def load(file: str) -> Any:
    """Read the arrays of a parameter file. Raises `ParameterFileError`."""
    return serialize.load(file)


__all__ = [
    "activation",
    "batch_norm",
    "callback",
    "cond",
    "cpu",
    "current_device",
    "dropout",
    "erf",
    "fully_connected",
    "gelu",
    "gpu",
    "leaky_relu",
    "load",
    "log_softmax",
    "num_gpus",
    "one_hot",
    "pick",
    "priority",
    "relu",
    "reset_np",
    "save",
    "set_np",
    "sigmoid",
    "softmax",
    "softplus",
    "softsign",
    "stop_gradient",
    "synchronize",
    "try_all_gpus",
    "try_gpu",
    "waitall",
]


def __getattr__(name: str) -> Any:
    raise unknown_attribute(__name__, name, __all__)


def __dir__() -> list[str]:
    return __all__
