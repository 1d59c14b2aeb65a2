"""Notebooks: failures nobody has looked at are shown at the end of a cell, places as In [n].

Without this they would be shown when the process ends, and a notebook's process ends days later.
Tracebacks are shown without gemel's own frames. Loaded by `import gemel` in an IPython shell, or
by `%load_ext gemel`.
"""

from __future__ import annotations

import sys
from typing import Any

from gemel import _core, config
from gemel.process import tracebacks

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


def show(
    shell: Any, kind: Any, error: BaseException, traceback: Any, tb_offset: Any = None
) -> None:
    """Show what a cell has raised, without gemel's own frames."""
    tracebacks.shorten(error)
    shell.showtraceback((kind, error, error.__traceback__), tb_offset=tb_offset)


def install(shell: Any) -> None:
    """Report at the end of every cell of an IPython shell, and show errors as programs do."""
    if getattr(shell, _REPORTED, False):
        return
    setattr(shell, _REPORTED, True)
    shell.events.register("post_run_cell", report)
    # A shell has one such handler: another one's stays.
    if config.TRACEBACK.read() == "short" and not shell.custom_exceptions:
        shell.set_custom_exc((Exception,), show)

    def cell(file: str) -> str:
        found = shell.compile.format_code_name(file)  # ("Cell", "In[3]") for what is one
        return str(found[1]).replace("In[", "In [") if found else file

    _core.set_file_namer(cell)


def install_if_interactive() -> None:
    """`install` when this is an IPython shell."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    if shell is not None:
        install(shell)


__all__ = ["install", "install_if_interactive", "report"]
