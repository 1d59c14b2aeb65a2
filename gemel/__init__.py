"""gemel: imperative NumPy-style code, run by a native engine, compiled by one graph compiler."""

from __future__ import annotations

from typing import Any

try:
    # Before the core: its hook at the exit runs after the core's.
    from gemel import forking  # noqa: F401
except ImportError:
    from importlib.util import find_spec

    if find_spec("gemel._core") is not None:
        raise
    raise ImportError(
        f"{__path__[0]} is gemel's source, whose core is not compiled: start Python in another "
        "folder to use the installed package, or compile the core with `make core`"
    ) from None

# isort: split
from gemel import _core, config

_core.configure(
    workers=config.WORKERS.read(),
    serial=config.ENGINE.read() == "serial",
    queue_operations=config.QUEUE_OPERATIONS.read(),
    queue_bytes=config.QUEUE_BYTES.read(),
    ahead_bytes=config.AHEAD_BYTES.read(),
)

from gemel import errors, notebook, ops, tracebacks  # noqa: E402 -- the engine is configured before anything can run
from gemel.device import cpu, gpu, num_gpus, try_all_gpus, try_gpu  # noqa: E402

_core.set_exception_types(
    {name: getattr(errors, name) for name in dir(errors) if name.endswith("Error")}
)

tracebacks.install()
notebook.install_if_interactive()


def load_ipython_extension(shell: Any) -> None:
    """`%load_ext gemel`: show failures nobody has seen at the end of each cell."""
    notebook.install(shell)


__version__ = "0.1.0"

#: What is imported when it is first asked for.
_LAZY = {
    "autograd": "gemel.autograd",
    "gluon": "gemel.gluon",
    "image": "gemel.image",
    "init": "gemel.init",
    "io": "gemel.io",
    "kv": "gemel.kvstore",
    "kvstore": "gemel.kvstore",
    "lr_scheduler": "gemel.lr_scheduler",
    "metric": "gemel.metric",
    "np": "gemel.np",
    "npx": "gemel.npx",
    "optimizer": "gemel.optimizer",
    "nd": "gemel.ndarray",
    "profiler": "gemel.profiler",
    "sym": "gemel.symbol",
    "symbol": "gemel.symbol",
    "recordio": "gemel.recordio",
}
_LAZY_NAMES = {
    "Benchmark": "gemel.benchmark",
    "Timer": "gemel.benchmark",
    "compile": "gemel.compiled",
    "load": "gemel.export.program",
    "save": "gemel.export.program",
}


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name in _LAZY:
        return import_module(_LAZY[name])
    if name in _LAZY_NAMES:
        return getattr(import_module(_LAZY_NAMES[name]), name)
    raise AttributeError(f"module 'gemel' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *_LAZY, *_LAZY_NAMES])


__all__ = [
    "Benchmark",
    "Timer",
    "autograd",
    "compile",
    "cpu",
    "errors",
    "gluon",
    "gpu",
    "image",
    "init",
    "io",
    "kv",
    "kvstore",
    "load",
    "lr_scheduler",
    "metric",
    "nd",
    "ndarray",
    "np",
    "npx",
    "num_gpus",
    "ops",
    "optimizer",
    "profiler",
    "recordio",
    "save",
    "sym",
    "symbol",
    "try_all_gpus",
    "try_gpu",
]
