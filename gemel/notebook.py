"""Notebooks: failures nobody has looked at are shown at the end of a cell.

Without this they would be shown when the process ends, and a notebook's process ends days later.
Loaded by `import gemel` in an IPython shell, or by `%load_ext gemel`.
"""

from __future__ import annotations

import sys
from typing import Any

from gemel import _core

_REPORTED = "_gemel_reports_failures"


def report(*_: Any) -> None:
    """Print what has failed so far and nobody has seen; it counts as seen then.

    What is still running is reported at the end of a later cell.
    """
    texts = _core.unseen_failures()
    if texts:
        print(f"gemel: {len(texts)} operation(s) failed:", file=sys.stderr)
    for text in texts:
        print(f"  {text}", file=sys.stderr)


def install(shell: Any) -> None:
    """Report at the end of every cell of an IPython shell."""
    if not getattr(shell, _REPORTED, False):
        shell.events.register("post_run_cell", report)
        setattr(shell, _REPORTED, True)


def install_if_interactive() -> None:
    """`install` when this is an IPython shell."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    if shell is not None:
        install(shell)


__all__ = ["install", "install_if_interactive", "report"]
