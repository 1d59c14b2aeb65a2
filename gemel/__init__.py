"""gemel: imperative NumPy-style code, run by a native engine, compiled by one graph compiler."""

from __future__ import annotations

from typing import Any

try:
    # Imported before the core, so that its exit hook runs after the core's.
    from gemel.process import forking  # noqa: F401
except ImportError:
    from importlib.util import find_spec

    if find_spec("gemel._core") is not None:
        raise
    raise ImportError(
        f"{__path__[0]} is gemel's source tree, and its core is not compiled: start Python in "
        "another folder to use the installed package, or compile the core with `make core`"
    ) from None

# isort: split
from gemel import _core, config
from gemel.process import tracebacks

tracebacks.install()  # first, for the errors of the settings
config.check()
for _text in config.misspelt():
    tracebacks.warn(_text)
_core.configure(
    workers=config.WORKERS.read(),
    serial=config.ENGINE.read() == "serial",
    queue_operations=config.QUEUE_OPERATIONS.read(),
    queue_bytes=config.QUEUE_BYTES.read(),
    ahead_bytes=config.AHEAD_BYTES.read(),
)

from gemel import device, errors, ops  # noqa: E402 -- the engine is configured before anything can run
from gemel.device import (  # noqa: E402
    Context,
    Device,
    cpu,
    cpu_pinned,
    current_context,
    current_device,
    gpu,
    gpu_memory_info,
    num_gpus,
    try_all_gpus,
    try_gpu,
)
from gemel.process import notebook  # noqa: E402

_core.set_exception_types(
    {
        **{name: getattr(errors, name) for name in dir(errors) if name.endswith("Error")},
        # Python's own exceptions, under the core's names for them.
        "IndexError": errors.ArrayIndexError,
        "ValueError": errors.ArgumentError,
    }
)

notebook.install_if_interactive()


def load_ipython_extension(shell: Any) -> None:
    """`%load_ext gemel`: show failures nobody has seen at the end of each cell."""
    notebook.install(shell)


__version__ = "0.1.0"

#: Modules that are imported when they are first used, by their names here: the modules of gemel,
_LATE_MODULES = {
    name: f"gemel.{name}"
    for name in (
        *("amp", "autograd", "base", "callback", "context", "contrib", "d2l", "gluon", "image"),
        *("init", "io", "kvstore", "lr_scheduler", "metric", "model", "monitor", "ndarray", "np"),
        *("npx", "onnx", "operator", "optimizer", "profiler", "random", "recordio", "runtime"),
        *("symbol", "test_utils", "topology", "torch", "util", "visualization"),
    )
}
#: and MXNet's other names for them.
_LATE_MODULES |= {
    "attribute": "gemel.symbol.scopes",
    "engine": "gemel.util",
    "img": "gemel.image",
    "initializer": "gemel.init",
    "kv": "gemel.kvstore",
    "mon": "gemel.monitor",
    "name": "gemel.symbol.scopes",
    "nd": "gemel.ndarray",
    "numpy": "gemel.np",
    "numpy_extension": "gemel.npx",
    "rnd": "gemel.random",
    "sym": "gemel.symbol",
    "viz": "gemel.visualization",
}
#: Names in modules that are imported when they are first used.
_LATE_NAMES = {
    "AttrScope": "gemel.symbol.scopes",
    "Benchmark": "gemel.benchmark",
    "MXNetError": "gemel.base",
    "Timer": "gemel.benchmark",
    "compile": "gemel.tracing.compiled",
    "load": "gemel.export.program",
    "save": "gemel.export.program",
    "waitall": "gemel.npx",
    **dict.fromkeys(
        ("is_np_array", "is_np_shape", "np_array", "np_shape", "set_np_shape")
        + ("use_np", "use_np_array", "use_np_shape"),
        "gemel.util",
    ),
}


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name in _LATE_MODULES:
        return import_module(_LATE_MODULES[name])
    if name in _LATE_NAMES:
        return getattr(import_module(_LATE_NAMES[name]), name)
    raise errors.unknown_attribute("gemel", name, __dir__())


def __dir__() -> list[str]:
    return sorted([*globals(), *_LATE_MODULES, *_LATE_NAMES])


__all__ = [
    "Benchmark",
    "Context",
    "Device",
    "Timer",
    "amp",
    "autograd",
    "compile",
    "context",
    "contrib",
    "cpu",
    "cpu_pinned",
    "current_context",
    "current_device",
    "d2l",
    "device",
    "errors",
    "gluon",
    "gpu",
    "gpu_memory_info",
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
    "onnx",
    "ops",
    "optimizer",
    "profiler",
    "recordio",
    "save",
    "sym",
    "symbol",
    "topology",
    "torch",
    "try_all_gpus",
    "try_gpu",
    "util",
]
