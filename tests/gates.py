"""Work that goes on until a test says so: no test need be quicker than it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from gemel import npx


@contextmanager
def reader(x: Any) -> Iterator[None]:
    """A block beside which somebody reads x until the block ends. Nothing in it may wait for that.

    What the block writes to x comes after the reader, and so does what is computed from it then.
    """
    begun, over = threading.Event(), threading.Event()
    in_time: list[bool] = []
    results: list[Any] = []

    def read(v: Any) -> Any:
        begun.set()
        in_time.append(over.wait(60))
        return v.ravel()[:1]

    # In a thread of its own: a call may run what it issues.
    thread = threading.Thread(
        target=lambda: results.append(npx.callback(read, x, outputs=((1,), x.dtype)))
    )
    thread.start()
    assert begun.wait(60)
    try:
        yield
    finally:
        over.set()
        thread.join()
    results[0].wait_to_read()
    assert in_time == [True], "the block waited for the reader"
