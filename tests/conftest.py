"""Fixtures and hooks for all tests."""

from __future__ import annotations

import functools
import gc
import inspect
import os
import random
import signal
from collections.abc import Callable, Iterator

import numpy
import pytest
from drawing import drawn, part_of
from programs import SANITIZER

# Tests are about CPUs, unless they ask for a GPU (`make gpu`). Read when `gemel` is first asked for
# its GPUs.
os.environ.setdefault("GEMEL_CUDA", "0")

from gemel import device, gpu, np, npx, num_gpus
from gemel.npx.engine import NUMPY_MODE


@pytest.fixture(scope="session", autouse=True)
def elsewhere(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Run outside the source tree, so that processes started by tests find the installed package.

    Inside the tree `import gemel` would find the sources, which lack the compiled core.
    """
    before = os.getcwd()
    path = os.environ.get("PYTHONPATH")
    if path:
        os.environ["PYTHONPATH"] = os.pathsep.join(map(os.path.abspath, path.split(os.pathsep)))
    os.chdir(tmp_path_factory.mktemp("elsewhere"))
    yield
    os.chdir(before)


@pytest.fixture(scope="session", autouse=True)
def interruptible() -> Iterator[None]:
    """Make Ctrl-C work here and in every program that the tests start.

    A shell starts background jobs with SIGINT ignored, and child processes inherit that.
    """
    before = signal.getsignal(signal.SIGINT)
    if before is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture(autouse=True)
def seeded() -> None:
    """Seed all generators, so that a test's numbers do not depend on the tests before it."""
    random.seed(0), numpy.random.seed(0), np.random.seed(0)


@pytest.fixture(autouse=True)
def in_the_same_mode() -> Iterator[None]:
    """Restore the mode after a test, so that `npx.reset_np` does not affect the next test."""
    before = dict(NUMPY_MODE)
    yield
    NUMPY_MODE.update(before)


@pytest.fixture(autouse=True)
def on_device(request: pytest.FixtureRequest) -> Iterator[None]:
    """Make arrays on the device that `--device` names."""
    if request.config.getoption("device") == "cpu":
        yield
        return
    with gpu(0):
        yield


@pytest.fixture
def two_gpus() -> Iterator[tuple[device.Device, device.Device]]:
    """Two simulated GPUs, whose links are slow enough that copies take time."""
    device.simulate(2, gigabytes_per_second=4, microseconds=20)
    yield gpu(0), gpu(1)
    npx.waitall()
    device.simulate(0)


@pytest.fixture
def four_gpus() -> Iterator[None]:
    """Four simulated GPUs, whose links are fast."""
    device.simulate(4, gigabytes_per_second=100, microseconds=0)
    yield
    npx.waitall()
    device.simulate(0)


def pytest_collection() -> None:
    """Disable garbage collection while tests are collected; it would take a third of that time."""
    gc.disable()


def pytest_collection_finish() -> None:
    """Freeze the tens of thousands of collected tests, so that no collection scans them again."""
    gc.freeze()
    gc.enable()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options `--cases`, see `drawing`, and `--device`."""
    text = "run only this part of the cases of long tables: 2/4 for the second quarter"
    parser.addoption("--cases", type=part_of, default=part_of("1/1"), metavar="PART", help=text)
    text = "where tests make their arrays: gpu is gpu(0), a real one or with GEMEL_SIMULATED_GPUS=1"
    parser.addoption("--device", choices=("cpu", "gpu"), default="cpu", help=text)


def pytest_report_header(config: pytest.Config) -> str:
    """Show which part of the cases runs, so that a short run can be repeated."""
    part = config.getoption("cases")
    return "" if part.count == 1 else f"cases: {part.number}/{part.count} of long tables"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect the cases a short run leaves out, and skip those a sanitized core cannot run."""
    runs = drawn({item.nodeid: expects_errors(item) for item in items}, config.getoption("cases"))
    left_out = [item for item, kept in zip(items, runs, strict=True) if not kept]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item, kept in zip(items, runs, strict=True) if kept]
    skip_unsanitized(items)
    if config.getoption("device") == "gpu" and not num_gpus():
        for item in items:
            item.add_marker(pytest.mark.skip(reason="there is no GPU"))


def expects_errors(item: pytest.Item) -> bool:
    """Whether a test expects exceptions.

    Each case of such a table has a message of its own, which no other case checks, and takes about
    a millisecond.
    """
    return isinstance(item, pytest.Function) and raises(item.function)


@functools.cache
def raises(test: Callable[..., None]) -> bool:
    return "pytest.raises(" in inspect.getsource(test)


def skip_unsanitized(items: list[pytest.Item]) -> None:
    """Skip tests marked `unsanitized(reason)` on a sanitized core; `by` names one sanitizer."""
    for item in items:
        mark = item.get_closest_marker("unsanitized")
        if SANITIZER and mark is not None and mark.kwargs.get("by", SANITIZER) == SANITIZER:
            item.add_marker(pytest.mark.skip(reason=f"{SANITIZER} sanitizer: {mark.args[0]}"))
