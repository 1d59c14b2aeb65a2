"""Flags of layers, optimizers, metrics, ...: what is neither true nor false is refused at once."""

from __future__ import annotations

import copy
import functools
import inspect
import pickle
from collections.abc import Iterator
from typing import Any

import numpy
import pytest

from gemel import autograd, image, io, optimizer, profiler  # noqa: F401 -- they define classes
from gemel.errors import OperandError
from gemel.gluon import callbacks, contrib, data, loss, metric, nn, probability, rnn  # noqa: F401
from gemel.gluon.block import Block
from gemel.gluon.model_zoo import vision
from gemel.monitor import Monitor
from gemel.ranges import _flags_of


def kinds(base: Any) -> Iterator[Any]:
    """The public classes of gemel that are derived from one."""
    for kind in base.__subclasses__():
        yield from kinds(kind)
        if kind.__module__.startswith("gemel.") and kind.__name__[0] != "_":
            yield kind


#: What is true or false by its length only.
WRONG: list[Any] = ["no", []]
BASES = (
    *(Block, optimizer.Optimizer, metric.EvalMetric, probability.Distribution, data.Sampler),
    *(io.DataIter, callbacks.Callback),
)
FLAGS = [
    pytest.param(kind, name, id=f"{kind.__name__}-{name}")
    for base in BASES
    for kind in dict.fromkeys(kinds(base))
    for name in _flags_of(kind)
]


@pytest.mark.parametrize(("kind", "name"), FLAGS)
def test_what_is_neither_true_nor_false_is_refused(kind: Any, name: str) -> None:
    for wrong in WRONG:
        with pytest.raises(OperandError, match=f"^{kind.__name__}: {name} is .*True or False$"):
            kind(**{name: wrong})


def test_the_table_has_all_kinds() -> None:
    found = {str(param.id).split("-")[0] for param in FLAGS}
    assert {"Dense", "Conv2D", "BatchNorm", "LSTM", "Embedding", "SoftmaxCrossEntropyLoss"} <= found
    assert {"Adam", "RMSProp", "LAMB", "PCC", "Normal", "NDArrayIter", "EarlyStopping"} <= found


def test_flags_are_found_by_their_place() -> None:
    with pytest.raises(OperandError, match="Dense: use_bias is 'relu'"):
        nn.Dense(2, None, "relu")  # type: ignore[arg-type]
    assert nn.Dense(2, None, 0).bias is None  # type: ignore[arg-type]
    assert _flags_of(nn.Dense) == {"use_bias": 2, "flatten": 3}
    with pytest.raises(OperandError, match="LSTM: bidirectional is 'no'"):
        rnn.LSTM(3, 1, "TNC", 0.0, "no")
    with pytest.raises(TypeError, match="takes from 2 to"):
        nn.Dense(*range(20))


@pytest.mark.parametrize(
    ("said", "call"),
    [
        ("record: train_mode", autograd.record),
        ("pause: train_mode", autograd.pause),
        ("set_training: train_mode", autograd.set_training),
        ("set_recording: is_recording", autograd.set_recording),
        ("initialize: force_reinit", lambda wrong: nn.Dense(2).initialize(force_reinit=wrong)),
        ("dumps: reset", profiler.dumps),
        ("resnet18_v1: pretrained", vision.resnet18_v1),
        ("DataLoader: shuffle", lambda wrong: data.DataLoader([1], 1, wrong)),
        ("DataLoader: pin_memory", lambda wrong: data.DataLoader([1], 1, pin_memory=wrong)),
        ("Monitor: sort", lambda wrong: Monitor(1, sort=wrong)),
        ("Append: expand", data.batchify.Append),
        ("dump: finished", profiler.dump),
    ],
)
def test_flags_of_functions(said: str, call: Any) -> None:
    for wrong in WRONG:
        with pytest.raises(OperandError, match=f"^{said} is .*; it must be True or False"):
            call(wrong)


def test_numbers_are_flags() -> None:
    with autograd.record(1):  # type: ignore[arg-type]
        assert autograd.is_recording() and autograd.is_training()
        with autograd.pause(0):  # type: ignore[arg-type]
            assert not autograd.is_recording() and not autograd.is_training()
    assert autograd.set_recording(1) is False  # type: ignore[arg-type]
    assert autograd.set_recording(0) is True  # type: ignore[arg-type]


class Scaled(nn.Dense):
    """A user's layer, whose own arguments may be called and annotated as it likes."""

    def __init__(self, units: int, flatten: str, sure: bool = True, **settings: Any) -> None:
        super().__init__(units, **settings)
        self.chosen: Any = flatten, sure


def test_own_arguments_of_users_are_theirs() -> None:
    assert Scaled(2, "rows", "why not").chosen == ("rows", "why not")  # type: ignore[arg-type]
    with pytest.raises(OperandError, match="Scaled: use_bias is 'a'"):
        Scaled(2, "rows", use_bias="a")


class ByName(nn.Dense):
    def __init__(self, units: int, *, use_bias: str, **settings: Any) -> None:
        super().__init__(units, **settings)
        self.chosen = use_bias


class Above(ByName):
    def __init__(self, units: int, **settings: Any) -> None:
        super().__init__(units, **settings)


def handing_on(function: Any) -> Any:
    @functools.wraps(function)
    def decorated(*arguments: Any, **keywords: Any) -> Any:
        return function(*arguments, **keywords)

    return decorated


class Decorated(nn.Dense):
    @handing_on
    def __init__(self, units: int, use_bias: str) -> None:
        super().__init__(units)
        self.chosen = use_bias


class Noted(nn.Dense):
    """`_flags` is no name of gemel's, and annotations may be anything."""

    _flags = ("a", "b")

    def __init__(self, units: int, use_bias: Any) -> None:
        super().__init__(units)
        self.chosen = use_bias


Noted.__init__.__annotations__["use_bias"] = numpy.zeros(3)


@pytest.mark.parametrize("kind", [ByName, Above, Decorated, Noted])
def test_arguments_of_users_by_name_are_theirs(kind: Any) -> None:
    assert kind(2, use_bias="text").chosen == "text"


class Closed(type):
    """A metaclass whose classes refuse attributes."""

    def __setattr__(cls, name: str, value: Any) -> None:
        raise AttributeError(name)


def test_classes_that_refuse_attributes() -> None:
    assert Closed("Sealed", (nn.Dense,), {})(5)._units == 5


def test_signatures_of_other_constructors() -> None:
    def made(*arguments: Any, **settings: Any) -> None:
        nn.Dense.__init__(*arguments, **settings)

    kind = type("Other", (nn.Dense,), {"__init__": made})
    assert [*inspect.signature(kind).parameters] == ["arguments", "settings"]
    assert [*inspect.signature(Decorated).parameters] == ["units", "use_bias"]


class Named:
    """A class whose `__new__` wants what its `__init__` is given."""

    label: str

    def __new__(cls, name: str, *others: Any, **settings: Any) -> Any:
        made = super().__new__(cls)
        made.label = name
        return made


class NamedDense(nn.Dense, Named):
    """Both bases make it."""

    def __init__(self, name: str, units: int, **settings: Any) -> None:
        super().__init__(units, **settings)


class Partial(nn.Dense):
    """A constructor that is no function."""

    __init__ = functools.partialmethod(nn.Dense.__init__, 3, "relu")


def test_other_constructors() -> None:
    assert NamedDense("first", 2).label == "first"
    with pytest.raises(OperandError, match="NamedDense: flatten is 'a'"):
        NamedDense("first", 2, flatten="a")
    assert Partial(False, "what this may be", "float32")._units == 3
    assert _flags_of(Partial)["use_bias"] == -1
    with pytest.raises(OperandError, match="Partial: use_bias is 'a'"):
        Partial(use_bias="a")


def test_classes_without_a_constructor_take_no_arguments() -> None:
    for kind in (data.Sampler, type("Mine", (callbacks.Callback,), {})):
        for arguments, settings in (((1,), {}), ((), {"every": 2})):
            with pytest.raises(TypeError, match=rf"{kind.__name__}\(\) takes no arguments"):
                kind(*arguments, **settings)
        assert not inspect.signature(kind).parameters


def test_classes_have_their_signatures() -> None:
    assert [*inspect.signature(nn.Dense).parameters][:3] == ["units", "activation", "use_bias"]
    assert [*inspect.signature(Scaled).parameters] == ["units", "flatten", "sure", "settings"]
    assert "learning_rate" in inspect.signature(optimizer.Adam).parameters
    assert "units" not in inspect.signature(nn.Dense(2)).parameters
    made = copy.deepcopy(nn.Dense(2, use_bias=False))
    assert isinstance(pickle.loads(pickle.dumps(made)), nn.Dense)
