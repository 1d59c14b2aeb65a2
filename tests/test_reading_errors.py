"""What a user reads when something goes wrong: few lines, the right ones, and where to look."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from programs import Shell

import gemel
from gemel import _core, np, npx
from gemel.errors import ShapeError
from gemel.gluon import nn

PACKAGE = os.path.dirname(gemel.__file__)

DOT = """
from gemel import np
def use(a):
    return np.dot(a, np.ones((4, 5)))
use(np.ones((2, 3)))
"""
NET = """
from gemel import np
from gemel.gluon import nn
class Part(nn.HybridSequential):
    def forward(self, x):
        return super().forward(x) + np.ones((7,))
net = nn.HybridSequential(prefix="net_")
net.add(nn.Dense(3), Part())
net[1].add(nn.Dense(5))
net.initialize()
net.hybridize()
net(np.ones((2, 3)))
"""
THREAD = """
import threading
from gemel import np
def use():
    np.dot(np.ones(2), np.ones(3))
threading.Thread(target=use).start()
"""
CHAINED = """
from gemel import np
try:
    np.ones(3)[np.array([0.5])]
except TypeError as error:
    raise RuntimeError("the program's own") from error
"""
#: A program, the most lines its traceback may have, and texts it must contain.
PROGRAMS = {
    "dot": (DOT, 6, ("use(np.ones((2, 3)))", "np.dot(a", "ShapeError: dot: matmul")),
    "net": (NET, 7, ("net(np.ones((2, 3)))", "super().forward", "(in net.1)")),
    "thread": (THREAD, 9, ("np.dot(np.ones(2)", "ShapeError")),
    "chained": (CHAINED, 12, ("np.array([0.5])", "DTypeError", "the program's own")),
    "index": ("from gemel import np\nnp.ones(3)[5, 5]\n", 4, ("IndexError",)),
}


def error_of(program: str, folder: Path, **environment: str) -> str:
    """What a program in a file writes to stderr."""
    path = folder / "program.py"
    path.write_text(program)
    found = subprocess.run(
        [sys.executable, str(path)],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=600,
    )
    return found.stderr


@pytest.mark.parametrize("name", PROGRAMS)
def test_tracebacks_show_the_program(name: str, tmp_path: Path) -> None:
    program, most, parts = PROGRAMS[name]
    text = error_of(program, tmp_path)
    for part in parts:
        assert part in text, text
    assert PACKAGE not in text
    lines = [line for line in text.splitlines() if set(line.strip()) - set("^~")]
    assert len(lines) <= most, text


@pytest.mark.parametrize("name", PROGRAMS)
def test_tracebacks_in_full(name: str, tmp_path: Path) -> None:
    if name != "index":  # raised by the core, without frames of gemel
        assert PACKAGE in error_of(PROGRAMS[name][0], tmp_path, GEMEL_TRACEBACK="full")


def test_a_fault_of_gemel_s_own_shows_its_frames(tmp_path: Path) -> None:
    program = """
from gemel import np
from gemel.ops import linalg
linalg.broadcast = linalg.promote_specs = None
np.dot(np.ones((2, 2)), np.ones((2, 2)))
"""
    text = error_of(program, tmp_path)
    assert "TypeError: 'NoneType'" in text and PACKAGE in text


def test_another_hook_is_still_called(tmp_path: Path) -> None:
    program = (
        "import sys\nsys.excepthook = lambda *e: print('mine', e[0].__name__, file=sys.stderr)"
    )
    assert error_of(program + DOT, tmp_path) == "mine ShapeError\n"


# --- layers ---------------------------------------------------------------------------------


class Named(nn.HybridBlock):
    """A block with layers in attributes, as users write them."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.dense1 = nn.Dense(4, in_units=width)

    def forward(self, x: Any) -> Any:
        return self.dense1(x)


@pytest.mark.parametrize("hybrid", [False, True])
def test_an_error_names_the_layer(hybrid: bool) -> None:
    net = nn.HybridSequential(prefix="net_")
    net.add(nn.Dense(3), nn.Dense(3), nn.Dense(3), Named(9))
    net.initialize()
    if hybrid:
        net.hybridize()
    for _ in range(2):
        match = r"matmul.*\(in net\.3\.dense1, which takes \(batch, 9\)"
        with pytest.raises(ShapeError, match=match) as caught:
            net(np.ones((2, 5)))
        assert caught.value.layer == "net.3.dense1"
    with pytest.raises(ShapeError) as outside:
        np.dot(np.ones(2), np.ones(3))
    assert not outside.value.layer


def test_an_error_met_twice_names_the_layer_once() -> None:
    """A callback raises one exception object, and each wait for its array raises it again."""

    class Reading(nn.Block):
        def forward(self, x: Any) -> Any:
            return x.asnumpy()

    def refuse(x: Any) -> Any:
        raise ShapeError("no")

    net = nn.Sequential(prefix="net_")
    net.add(Reading())
    bad = npx.callback(refuse, np.ones(2), outputs=((2,), "float32"))
    for _ in range(3):
        with pytest.raises(ShapeError) as caught:
            net(bad)
        assert caught.value.layer == "net.0"


# --- names ----------------------------------------------------------------------------------


@pytest.mark.parametrize("module", [np, npx], ids=["np", "npx"])
def test_modules_show_their_public_names(module: Any) -> None:
    assert dir(module) == sorted(module.__all__)
    assert all(hasattr(module, name) for name in dir(module))
    assert not {"annotations", "Any", "builtins"} & set(dir(module))


def test_a_missing_name_suggests_the_nearest() -> None:
    with pytest.raises(AttributeError, match=r"gemel\.np.*'sinhh'; did you mean 'sinh'"):
        np.sinhh  # noqa: B018
    with pytest.raises(AttributeError, match=r"'softmx'; did you mean 'softmax'"):
        npx.softmx  # noqa: B018
    with pytest.raises(AttributeError) as caught:
        np.qqqq  # noqa: B018
    assert "mean" not in str(caught.value)
    assert not hasattr(np, "__wrapped__")


# --- lines ----------------------------------------------------------------------------------


def test_waitall_lists_each_failure_with_its_own_line() -> None:
    npx.waitall()
    x = np.arange(3)
    first = x[np.array([7])]
    line = sys._getframe().f_lineno - 1
    second = x[np.array([8])]
    third = x[np.array([9])]
    with pytest.raises(IndexError) as caught:
        npx.waitall()
    lines = str(caught.value).splitlines()
    assert len(lines) == 3, lines
    for text, number in zip(lines, (line, line + 2, line + 3), strict=True):
        assert text.endswith(f"(issued at {__file__}:{number})"), lines
    del first, second, third


def test_a_notebook_names_its_cells_and_hides_our_frames() -> None:
    from gemel.process import notebook

    shell = Shell()
    notebook.install(shell)
    try:
        cell = compile("x = np.arange(3)\nbad = x[np.array([7])]", "/tmp/cell.py", "exec")
        names: dict[str, Any] = {"np": np}
        exec(cell, names)
        with pytest.raises(IndexError, match=r"issued at In \[7\]:2"):
            names["bad"].asnumpy()
        with pytest.raises(IndexError, match=r"issued at .*test_reading_errors.py"):
            np.arange(3)[np.array([7])].asnumpy()
        cell = compile("np.dot(np.ones(2), np.ones(3))", "/tmp/cell.py", "exec")
        with pytest.raises(ShapeError) as caught:
            exec(cell, names)
        shell.handler(shell, ShapeError, caught.value, caught.value.__traceback__, tb_offset=1)
        ((kind, value, traceback), offset) = shell.shown[0]
        files = []
        while traceback is not None:
            files.append(traceback.tb_frame.f_code.co_filename)
            traceback = traceback.tb_next
        assert kind is ShapeError and value is caught.value and offset == 1
        assert files == [__file__, "/tmp/cell.py"]
    finally:
        _core.set_file_namer(str)


# --- how it is started ----------------------------------------------------------------------


def test_a_source_tree_without_a_core_says_what_to_do(tmp_path: Path) -> None:
    ignore = shutil.ignore_patterns("*.so", "__pycache__", "lib")
    shutil.copytree(PACKAGE, tmp_path / "gemel", ignore=ignore)
    found = subprocess.run(
        [sys.executable, "-c", "import gemel"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": ""},
        capture_output=True,
        text=True,
    )
    last = found.stderr.splitlines()[-1]
    assert found.returncode and "not compiled" in last and "make core" in last, found.stderr
    assert "circular" not in found.stderr


def test_control_c_works_where_a_shell_ignores_it() -> None:
    """Scripts start background jobs with SIGINT ignored; tests and their children react to it."""
    assert signal.getsignal(signal.SIGINT) is not signal.SIG_IGN
    tests = Path(__file__).parent
    found = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider",
         f"{tests}/test_robustness.py::test_control_c_interrupts[float]"],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)},
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_IGN),
        capture_output=True,
        text=True,
        timeout=600,
    )  # fmt: skip
    assert "1 passed" in found.stdout, found.stdout
