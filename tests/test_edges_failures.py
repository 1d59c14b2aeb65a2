"""Failures as users see them: a callback's own exception, and more of them than a message holds."""

from __future__ import annotations

import contextlib
import gc
import re
import threading
import traceback
from typing import Any

import pytest

from gemel import np, npx


class Mine(ValueError):
    """An exception that cannot be made from its message."""

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(f"code {code}: {reason}")
        self.code = code


def raises_mine(v: Any) -> Any:
    raise Mine(7, "mine")


def decodes(v: Any) -> Any:
    return b"\xff".decode("utf8")


def frames(error: BaseException) -> list[str]:
    """The functions that the exception and its causes came through."""
    found = [frame.name for frame in traceback.extract_tb(error.__traceback__)]
    return found + (frames(error.__cause__) if error.__cause__ else [])


def issued(function: Any, queued: bool) -> Any:
    """The result of a callback that runs in the call itself or from the queue."""
    x = np.ones((4,))
    if not queued:
        return npx.callback(function, x, outputs=((4,), "float32"))
    gate = threading.Event()

    def waits(v: Any) -> Any:
        gate.wait(20)
        return v

    a = np.ones((1200, 1200))
    x = npx.callback(waits, np.dot(a, a), outputs=((1200, 1200), "float32"))
    found = npx.callback(function, x, outputs=((4,), "float32"))
    gate.set()
    return found


# engine.md 9, 10
@pytest.mark.parametrize("queued", [False, True])
def test_a_callback_s_exception_arrives_as_it_was_raised(queued: bool) -> None:
    """The first reader gets the original traceback; the others get a note about it."""
    bad = issued(raises_mine, queued)
    for place, array in enumerate((bad, bad, bad + 1)):
        with pytest.raises(Mine, match="code 7: mine") as caught:
            array.wait_to_read()
        error = caught.value
        assert (error.code, error.args) == (7, ("code 7: mine",))
        said = frames(error) if place == 0 else str(getattr(error, "__notes__", "raises_mine"))
        assert "raises_mine" in said


def fails_in_numpy() -> None:
    b = np.ones((4, 4)) * 1
    b[np.array([9])] = 1.0
    with contextlib.suppress(IndexError):
        b.asnumpy()


def fails_in_a_callback() -> None:
    bad = npx.callback(raises_mine, np.ones((4,)), outputs=((4,), "float32"))
    for _ in range(2):
        with contextlib.suppress(Mine):
            bad.asnumpy()


def raises_from_another(v: Any) -> Any:
    try:
        return {}[v.shape]
    except KeyError as error:
        raise Mine("mine", 7) from error


def fails_after_another_error() -> None:
    bad = npx.callback(raises_from_another, np.ones((4,)), outputs=((4,), "float32"))
    with pytest.raises(Mine) as caught:
        bad.asnumpy()
    assert isinstance(caught.value.__cause__, KeyError)
    assert "raises_from_another" in frames(caught.value.__cause__)
    with pytest.raises(Mine, match="mine"):
        bad.asnumpy()


@pytest.mark.parametrize("fails", [fails_in_numpy, fails_in_a_callback, fails_after_another_error])
def test_failures_that_were_seen_are_let_go(fails: Any) -> None:
    """Their frames lead to the readers, and from there to the arrays that failed."""

    def objects(times: int) -> int:
        for _ in range(times):
            fails()
        npx.waitall()
        gc.collect()
        return len(gc.get_objects())

    before = objects(20)
    assert objects(200) < before + 200


@pytest.mark.parametrize("queued", [False, True])
def test_exceptions_of_builtin_classes_keep_their_arguments(queued: bool) -> None:
    bad = issued(decodes, queued)
    with pytest.raises(UnicodeDecodeError) as caught:
        bad.wait_to_read()
    assert caught.value.args == ("utf-8", b"\xff", 0, 1, "invalid start byte")
    assert "decodes" in frames(caught.value)


def test_waiting_again_does_not_lengthen_the_traceback() -> None:
    bad = issued(raises_mine, False)
    lengths = []
    for _ in range(4):
        with pytest.raises(Mine) as caught:
            bad.wait_to_read()
        lengths.append(len(frames(caught.value)))
    assert lengths[1] == lengths[3]


# engine.md 15
@pytest.mark.parametrize("count", [3, 1500, 5000])
def test_waitall_tells_how_many_failed(count: int) -> None:
    """It lists them, or some of them and the number of the others; then all count as seen."""
    x, positions = np.ones((10, 10)), np.array([99], dtype="int64")
    for _ in range(count):
        np.take(x, positions, axis=0)
    with pytest.raises(IndexError) as caught:
        npx.waitall()
    text = str(caught.value)
    listed = text.count("out of bounds")
    more = [
        int(number.replace(",", "")) for number in re.findall(r"(\d[\d,]*) (?:more|other)", text)
    ]
    assert listed + sum(more) == count, f"{listed} of {count} are listed:\n{text[-400:]}"
    npx.waitall()
