"""Work that lasts until a test ends it, so that no test has to be faster than the work."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from gemel import npx


@contextmanager
def reader(x: Any) -> Iterator[None]:
    """Read x on another thread until the block ends. Nothing in the block may wait for that read.

    A write to x in the block is queued behind the read, and so is everything computed from it.
    """
    begun, over = threading.Event(), threading.Event()
    in_time: list[bool] = []
    results: list[Any] = []

    def read(v: Any) -> Any:
        begun.set()
        in_time.append(over.wait(60))
        return v.ravel()[:1]

    # On its own thread, since a call may run the operation it issues.
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
