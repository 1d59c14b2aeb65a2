"""The common part of the ways to split a network: the interface, and the checks."""

from __future__ import annotations

import reprlib
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from gemel import autograd, np, npx
from gemel.device import as_device
from gemel.errors import ArgumentError, DeviceError, GemelError, ShapeError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from gemel.device import Device
    from gemel.gluon.block import Block
    from gemel.gluon.parameter import ParameterDict
    from gemel.np import ndarray


class SplitError(GemelError, ValueError):
    """Raised for a network that cannot be split in this way."""


class Split:
    """A network and the devices that train it together; subclasses decide which device has what.

    Parameters that are initialized are moved to the devices; otherwise call `initialize`. The
    network itself does not change: its parameter files are the same as on one device.
    """

    def __init__(self, net: Block, devices: Sequence[Device]) -> None:
        if isinstance(net, type) or not hasattr(net, "reset_device"):
            raise SplitError(
                f"{type(self).__name__}: {type(net).__name__} {net!r} is not a network"
            )
        self.net = net
        self.devices = _distinct(type(self).__name__, devices)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.net.name} on {', '.join(map(str, self.devices))})"

    # ---- the network's methods

    def collect_params(self, select: str | None = None) -> ParameterDict:
        """The network's parameters, for a `Trainer`."""
        return self.net.collect_params(select)

    def initialize(self, init: Any = None, force_reinit: bool = False) -> None:
        """Initialize the network's parameters on the devices that need them."""
        self.net.initialize(init, self.devices[0], force_reinit=force_reinit)
        self._place()

    def hybridize(self, active: bool = True) -> None:
        """Compile the network; see `Block.hybridize`."""
        self.net.hybridize(active)

    def save_parameters(self, filename: Any) -> None:
        """Write the parameters, in the same file as on one device."""
        self.net.save_parameters(filename)

    def load_parameters(self, filename: Any, **settings: Any) -> None:
        """Read a file of the network, written split or not; see `Block.load_parameters`."""
        self.net.load_parameters(filename, **settings)
        self._place()

    def _place(self) -> None:
        """Move the parameters to their devices."""
        self.net.reset_device(self.devices)

    # ---- training

    def __call__(self, x: Any) -> ndarray:
        """The network's results for a batch, on one of the devices."""
        raise NotImplementedError

    def backward(self, x: Any, y: Any, loss: Callable[..., Any]) -> ndarray:
        """Run forward and backward on a batch: stores the gradients and returns the loss of each
        example.

        `loss(prediction, label)` gives one number (or row) per example, as Gluon's losses do; the
        gradients are those of their sum. Nothing waits. Raises `ShapeError` for a loss that is one
        number for the batch (its parts could not be combined), for an empty batch, and for a
        different number of labels.
        """
        raise NotImplementedError

    def step(self, trainer: Any, x: Any, y: Any, loss: Callable[..., Any]) -> ndarray:
        """`backward`, then a step of the trainer, with gradients divided by the batch size.

        Raises `ArgumentError` for something else than a trainer, before it computes anything.
        """
        check_trainer(type(self).__name__, trainer)
        losses = self.backward(x, y, loss)
        trainer.step(len(x))
        return losses


def check_trainer(name: str, trainer: Any) -> None:
    """Raise `ArgumentError` for something without a step."""
    if not callable(getattr(trainer, "step", None)):
        raise ArgumentError(
            f"{name}.step: {reprlib.repr(trainer)} is not a trainer, such as "
            'gluon.Trainer(split.collect_params(), "sgd")'
        )


def loss_of(loss: Callable[..., Any], prediction: Any, label: Any) -> Any:
    """The loss of each example. Raises `ArgumentError` for a loss that is not a function which
    returns an array, and `ShapeError` for a single number for the batch."""
    if not callable(loss):
        raise ArgumentError(
            f"loss: {loss!r} is not a function of prediction and label, such as gluon.loss.L2Loss()"
        )
    found = loss(prediction, label)
    if not hasattr(found, "as_in_ctx"):
        raise ArgumentError(
            f"loss: it returned a {type(found).__name__}, not an array with the loss of each "
            "example"
        )
    if tuple(found.shape[:1]) != tuple(label.shape[:1]):
        raise ShapeError(
            f"loss: {len(label)} examples have a loss of shape {tuple(found.shape)}; its first "
            "axis must be the examples, because their losses are combined over the devices; "
            "leave out the mean or sum over the batch"
        )
    return found


@contextmanager
def together(net: Block) -> Iterator[None]:
    """A block of code in which all devices take part in the meetings of the network's layers; after
    an error, none of them has to any more."""

    def give_up(block: Block) -> None:
        if block._own.group is not None:
            block._own.group.give_up(_failing)

    try:
        yield
    except BaseException:
        net.apply(give_up)
        raise


def _failing(like: Any) -> Any:
    """An array with this spec whose computation fails."""

    def absent() -> Any:
        raise DeviceError(
            "all-reduce: another device did not take part, because of an earlier error"
        )

    return npx.callback(absent, outputs=(like.shape, str(like.dtype)))


def as_array(value: Any) -> Any:
    """Convert NumPy arrays and lists of examples to a gemel array. Raises `ArgumentError` for a
    tuple of arrays, whose first axis would not be the examples."""
    if isinstance(value, tuple) and any(hasattr(each, "shape") for each in value):
        shapes = ", ".join(str(list(getattr(each, "shape", ()))) for each in value)
        raise ArgumentError(
            f"a network that is split takes one array of examples, and one of labels, not "
            f"{len(value)} in a tuple (shapes {shapes}); concatenate them along "
            "another axis than the first, and let the network or the loss take them apart"
        )
    return value if hasattr(value, "as_in_ctx") else np.array(value)


def as_batch(name: str, x: Any, y: Any) -> tuple[Any, Any]:
    """A batch as arrays. Raises `ShapeError` if it is empty or lacks a label for each example."""
    x, y = as_array(x), as_array(y)
    if not x.ndim or not len(x):
        raise ShapeError(f"{name}: {list(x.shape)} is an empty batch")
    if not y.ndim or len(x) != len(y):
        raise ShapeError(
            f"{name}: a batch of {len(x)} examples {list(x.shape)} with labels {list(y.shape)}; "
            "the first axis of both must be the examples, in equal number"
        )
    return x, y


def joined(parts: Sequence[Any], device: Device) -> Any:
    """Concatenate parts of a batch on a device; each of the results, if a network has several.
    Raises `SplitError` for results other than arrays."""
    if isinstance(parts[0], (tuple, list)):
        return type(parts[0])([joined(each, device) for each in zip(*parts, strict=True)])
    if not hasattr(parts[0], "to_device"):
        raise SplitError(
            f"a network that is split returned something of type {type(parts[0]).__name__}, which "
            "cannot be put together from the parts of a batch; return an array, or a tuple or list "
            "of arrays"
        )
    if len(parts) == 1:
        return parts[0].to_device(device)
    return np.concatenate([part.to_device(device) for part in parts], axis=0)


def apart(parts: Sequence[Any], device: Device) -> Any:
    """The same without recording, for results that are only looked at."""
    with autograd.pause():
        return joined([part.detach() for part in parts], device)


def _distinct(name: str, given: Any) -> list[Device]:
    devices = list(map(as_device, given)) if isinstance(given, (list, tuple)) else [given]
    if not devices:
        raise DeviceError(f"{name}: no devices; give a list such as [gpu(0), gpu(1)]")
    if not isinstance(given, (list, tuple)):
        raise DeviceError(f"{name}: {given!r} is not a list of devices, such as [gpu(0), gpu(1)]")
    if len(set(devices)) < len(devices):
        raise DeviceError(
            f"{name}: {', '.join(map(str, devices))} names a device twice; each device gets one "
            "part"
        )
    return devices


__all__ = [
    *("Split", "SplitError", "apart", "as_array", "as_batch", "check_trainer", "joined"),
    *("loss_of", "together"),
]
