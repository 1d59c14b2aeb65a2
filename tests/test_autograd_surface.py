"""The arguments of `autograd`: modes, variables, heads and gradients, and what it refuses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy
import pytest

from gemel import autograd, np
from gemel.errors import GradientError, ShapeError


def modes() -> tuple[bool, bool]:
    return autograd.is_recording(), autograd.is_training()


def test_modes_nest() -> None:
    assert modes() == (False, False)
    with autograd.record():
        assert modes() == (True, True)
        with autograd.pause():
            assert modes() == (False, False)
        with autograd.pause(train_mode=True):
            assert modes() == (False, True)
        with autograd.predict_mode():
            assert modes() == (True, False)
    with autograd.record(train_mode=False), autograd.train_mode():
        assert modes() == (True, True)
    assert modes() == (False, False)
    assert not autograd.set_recording(True) and autograd.set_recording(False)
    assert not autograd.set_training(True) and autograd.set_training(False)


def variable(*numbers: float) -> Any:
    x = np.array(numbers, dtype="float32")
    x.attach_grad()
    return x


def doubled(x: Any) -> Any:
    with autograd.record():
        return x * 2


def test_marked_variables_leave_their_gradients_where_they_are_told() -> None:
    x, y, kept = np.ones(2), np.ones(2), np.full((2,), 5.0)
    autograd.mark_variables(x, kept, "add")
    autograd.mark_variables([y], grad_reqs=["write"])
    for _ in range(2):
        with autograd.record():
            z = x * 3 + y * 2
        z.backward()
    assert kept.tolist() == [11, 11] and x.grad is kept
    assert y.grad.tolist() == [2, 2]


HEADS: dict[str, Any] = {
    "NumPy's": numpy.ones(3, "float32"),
    "a list": [[1.0, 1.0, 1.0]],
    "integers": np.ones(3, dtype="int32"),
    "wider": np.ones(3, dtype="float64"),
    "none": None,
}


@pytest.mark.parametrize("name", HEADS)
def test_gradients_of_heads(name: str) -> None:
    x = variable(1, 2, 3)
    autograd.backward(doubled(x), HEADS[name])
    assert x.grad.tolist() == [2, 2, 2] and x.grad.dtype == "float32"


REFUSED: dict[str, tuple[Callable[[], Any], type[Exception], str]] = {
    "no variable": (lambda: autograd.mark_variables(None), TypeError, "NoneType"),
    "NumPy's variable": (lambda: autograd.mark_variables(numpy.zeros(3)), TypeError, "ndarray"),
    "integer variable": (
        lambda: np.zeros(3, dtype="int32").attach_grad(), GradientError, "astype"
    ),
    "gradient of another shape": (
        lambda: autograd.mark_variables([np.ones(3)], [np.zeros(4)]), ShapeError, r"float32\[4\]"
    ),
    "gradient of another dtype": (
        lambda: autograd.mark_variables([np.ones(3)], [np.zeros(3, dtype="int32")]),
        ShapeError,
        "int32",
    ),
    "too few gradients": (
        lambda: autograd.mark_variables([np.ones(3)] * 2, [np.zeros(3)]), GradientError, "one for"
    ),
    "too few requests": (
        lambda: autograd.mark_variables([np.ones(3)] * 2, grad_reqs=["add"]), GradientError, "each"
    ),
    "unknown request": (
        lambda: autograd.mark_variables(np.ones(3), grad_reqs="writ"), ValueError, "'write'"
    ),
    "no head": (lambda: autograd.backward(None), TypeError, "NoneType"),
    "a head that is not recorded": (
        lambda: autograd.backward(np.ones(2)), GradientError, "attach_grad"
    ),
    "head of another shape": (
        lambda: autograd.backward(doubled(variable(1, 2)), np.ones(4)), ShapeError, "head"
    ),
    "too many gradients of heads": (
        lambda: autograd.backward(doubled(variable(1)), [np.ones(1)] * 2), GradientError, "2 grad"
    ),
    "text for a head": (
        lambda: autograd.backward(doubled(variable(1)), "a"), TypeError, "not an array"
    ),
    "gradient for what is no variable": (
        lambda: autograd.grad(doubled(variable(1)), np.ones(1)), GradientError, "attach_grad"
    ),
    "operation without a gradient": (
        lambda: np.linalg.qr(doubled(np.eye(2)))[1].backward(), GradientError, "recording"
    ),
    "operation without a gradient, recorded": (
        lambda: recorded_bessel(), GradientError, "i0 has no"
    ),
}  # fmt: skip


def recorded_bessel() -> None:
    x = np.eye(2)
    x.attach_grad()
    with autograd.record():
        y = np.i0(x)
    y.backward()


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str) -> None:
    call, kind, words = REFUSED[name]
    with pytest.raises(kind, match=words):
        call()
