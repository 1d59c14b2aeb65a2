"""MXNet's `test_utils`, as users' tests call it: checks of arrays, gradients and random generators.

Arrays of gemel and NumPy, and numbers, are compared as NumPy arrays. SciPy is imported only when it
is needed.
"""

from __future__ import annotations

import functools
import os
import platform
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from gemel.device import num_gpus
from gemel.errors import GemelError
from gemel.gluon.utils import download  # noqa: F401 -- public here
from gemel.test_utils import compare, draws, programs
from gemel.util import use_np, use_np_array, use_np_default_dtype, use_np_shape  # noqa: F401

SPARSE = ("create_sparse_array", "create_sparse_array_zd", "rand_sparse_ndarray")
FETCHED = (
    *("download_model", "get_bz2_data", "get_cifar10", "get_im2rec_path", "get_mnist"),
    *("get_mnist_iterator", "get_mnist_pkl", "get_mnist_ubyte", "get_zip_data"),
)

_HIDDEN = {*globals(), "SPARSE", "FETCHED"} - {"download", *(n for n in globals() if "use_np" in n)}


def _refuse(name: str, reason: str, *arguments: Any, **keywords: Any) -> None:
    raise GemelError(f"test_utils.{name}: {reason}")


def retry(n: int) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """A decorator for tests of random numbers: one failed assertion of n calls is let pass."""
    if n < 1:
        raise ValueError(f"retry: {n} calls; give at least 1")

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def call(*arguments: Any, **keywords: Any) -> Any:
            for _ in range(n - 1):
                try:
                    return function(*arguments, **keywords)
                except AssertionError:
                    pass
            return function(*arguments, **keywords)

        return call

    return decorate


@contextmanager
def environment(*args: Any) -> Iterator[None]:
    """A block, or a decorated function, with other environment variables; None takes one away.

    Given a name and a value, or a dict of them. What gemel has read at its import stays.
    """
    wanted = args[0] if len(args) == 1 else {args[0]: args[1]}
    before = {name: os.environ.get(name) for name in wanted}
    try:
        _set(wanted)
        yield
    finally:
        _set(before)


def _set(variables: dict[str, Any]) -> None:
    for name, value in variables.items():
        os.environ.pop(name, None)
        if value is not None:
            os.environ[name] = str(value)


def xfail_when_nonstandard_decimal_separator(function: Any) -> Any:
    """Return the test unchanged: gemel reads and writes numbers the same way in every locale."""
    return function


def list_gpus() -> list[int]:
    """The numbers of the GPUs there are."""
    return list(range(num_gpus()))


def is_cd_run() -> bool:
    """Whether a release is being made (CD_JOB=1)."""
    return os.environ.get("CD_JOB") == "1"


def is_aarch64_run() -> bool:
    """Whether this is an Arm machine."""
    return platform.machine() == "aarch64"


def is_op_runnable() -> bool:
    """Whether operations made by TVM run: here they are gemel's own, so they do."""
    return True


def has_tvm_ops() -> bool:
    """Whether there are operations made by TVM: no."""
    return False


with_environment = environment

_given = {name: vars(part)[name] for part in (compare, draws, programs) for name in part.__all__}
_refused = {
    **dict.fromkeys(SPARSE, "gemel has no sparse arrays; use dense ones"),
    **dict.fromkeys(FETCHED, "its server is gone; see gluon.data.vision"),
}
globals().update(_given)
globals().update({name: functools.partial(_refuse, name, why) for name, why in _refused.items()})
__all__ = [name for name in globals() if not name.startswith("_") and name not in _HIDDEN]
