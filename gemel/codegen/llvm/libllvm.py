"""llvmlite's library, whose functions the core calls to turn assembly into an object.

llvmlite's own Python takes longer to import than a small network takes to compile, it lets only one
thread compile at a time, and that thread waits for Python's lock. These functions may change
between versions of llvmlite, so they are called directly only for the versions in `KNOWN`. For any
other version, `gemel.codegen.llvm.objects` uses llvmlite's Python, and a warning says so, once.
"""

from __future__ import annotations

import os
import warnings

from gemel._core import Llvm
from gemel.process.forking import awaited, compiling

#: The versions of llvmlite (by prefix) whose functions the core knows.
KNOWN = ("0.50.",)

_loaded: list[Llvm | None] = []


def library() -> Llvm | None:
    """llvmlite's library, which is opened when it is first used; None if its version is not
    known."""
    if not _loaded:
        with compiling:  # a signal's handler may come here in the middle of it
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
    with compiling:
        found = library()
        if found is not None:
            found.open_soon()


def _settle() -> None:
    """Wait until that thread has ended."""
    for found in filter(None, _loaded):
        found.settle()


# Not a hook of its own: it would be called before forks and exits wait for threads that compile,
# which may open the library, and by several threads at the same time.
awaited.append(_settle)
