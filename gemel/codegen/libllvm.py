"""llvmlite's library, whose functions the core calls to turn assembly into an object.

llvmlite's own Python takes longer to import than a small network takes to compile, it lets only one
thread compile at a time, and that thread waits for Python's lock. These functions may change
between versions of llvmlite, so they are called directly only for the versions in `KNOWN`. For any
other version, `gemel.codegen.llvm` uses llvmlite's Python, and a warning says so, once.
"""

from __future__ import annotations

import atexit
import os
import threading
import warnings

from gemel._core import Llvm

#: The versions of llvmlite (by prefix) whose functions the core knows.
KNOWN = ("0.50.",)

_loaded: list[Llvm | None] = []
_loading = threading.Lock()


def library() -> Llvm | None:
    """llvmlite's library, which is opened when it is first used; None if its version is not
    known."""
    if not _loaded:
        with _loading:
            if not _loaded:
                _loaded.append(_found())
    return _loaded[0]


def _found() -> Llvm | None:
    import llvmlite
    from llvmlite.utils import get_library_name

    if not llvmlite.__version__.startswith(KNOWN):
        known = " or ".join(f"{version}*" for version in KNOWN)
        warnings.warn(
            f"llvmlite {llvmlite.__version__} is not a version whose library gemel knows "
            f"({known}); kernels are compiled by one thread at a time, which is slower",
            RuntimeWarning,
            stacklevel=2,
        )
        return None
    folder = os.path.dirname(llvmlite.__file__)
    path = os.path.join(folder, "binding", get_library_name())
    return Llvm(path) if os.path.exists(path) else None


def open_soon() -> None:
    """Open the library on another thread, which takes some hundredths of a second: code for many
    kernels will be made."""
    found = library()
    if found is not None:
        found.open_soon()


def _settle() -> None:
    """Wait until that thread has ended: neither a fork nor an exit may find it at work."""
    for found in filter(None, _loaded):
        found.settle()


atexit.register(_settle)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_settle)
