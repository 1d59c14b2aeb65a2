"""`import mxnet` as gemel, and programs that run unchanged."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest


def python(*arguments: str, folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments], cwd=folder, text=True, capture_output=True, timeout=600,
        env={**os.environ, **environment},
    )  # fmt: skip


def done(program: str, folder: Path) -> str:
    (folder / "program.py").write_text(program)
    found = python("program.py", folder=folder)
    assert found.returncode == 0, found.stderr
    return found.stdout


# --- the finder -----------------------------------------------------------------------------


def test_modules_are_the_same_under_both_names(tmp_path: Path) -> None:
    done("""
import gemel.as_mxnet
import mxnet as mx
import mxnet.gluon.parameter
import mxnet.numpy as mnp
from mxnet import np, npx, gluon, autograd, init, context
from mxnet.gluon import nn, rnn, Trainer
from mxnet.gluon import loss as gloss
from mxnet.gluon.data.vision import transforms
from mxnet.initializer import Xavier
import sys, gemel
assert mx is gemel and np is gemel.np and mnp is np and nn is gemel.gluon.nn
assert sys.modules["mxnet.gluon.parameter"] is gemel.gluon.parameter
assert mx.gluon.parameter.__spec__.name == "gemel.gluon.parameter"
assert Xavier is gemel.init.Xavier and mx.gluon.parameter is gemel.gluon.parameter
assert [str(d) for d in (mx.cpu(), mx.cpu(1), mx.Context("cpu", 2), mx.context.cpu())] == [
    "cpu(0)", "cpu(1)", "cpu(2)", "cpu(0)"]
mx.random.seed(1, ctx=mx.cpu())
mx.util.set_np(); mx.npx.waitall()
assert mx.util.is_np_array() and mx.np.array([1]).dtype == "float32" and mx.__version__
""", tmp_path)  # fmt: skip


@pytest.mark.parametrize(
    ("line", "error", "words"),
    [
        ("from mxnet import glon", "ImportError", "'mxnet.glon'; did you mean 'gluon'?"),
        ("import mxnet.glon", "ModuleNotFoundError", "did you mean 'gluon'?"),
        ("from mxnet.gluon.nn import Dens", "ImportError", "did you mean 'Dense'?"),
        ("import mxnet; mxnet.glon", "AttributeError", "did you mean 'gluon'?"),
        ("import mxnet.gluon.nothing.more", "ModuleNotFoundError", "'mxnet.gluon.nothing'"),
        ("from mxnet.contrib.ndarray import foreac", "ImportError", "did you mean 'foreach'?"),
        ("from mxnet.ndarray.random import norml", "ImportError", "did you mean 'normal'?"),
        ("import mxnet; mxnet.nd.linalg.gem2", "AttributeError", "did you mean 'gemm2'?"),
        ("import mxnet; mxnet.nd.random.norml", "AttributeError", "did you mean 'normal'?"),
        ("import mxnet; mxnet.gluon.contrib.cn", "AttributeError", "did you mean 'cnn'?"),
    ],
)
def test_names_that_are_not_there(line: str, error: str, words: str, tmp_path: Path) -> None:
    printed = done(
        f"import gemel.as_mxnet\ntry:\n    {line}\nexcept {error} as error:\n    print(error)\n",
        tmp_path,
    )
    assert words in printed


def test_where_mxnet_has_them(tmp_path: Path) -> None:
    """Names are in the modules from which programs import them."""
    done("""
import gemel.as_mxnet
import mxnet as mx
from mxnet import gluon, nd
from mxnet.base import MXNetError
from mxnet.gluon.block import HybridBlock, SymbolBlock
from mxnet.gluon.data.dataloader import DataLoader
from mxnet.gluon.nn.basic_layers import Dense
from mxnet.gluon.rnn.rnn_cell import LSTMCell
from mxnet.ndarray import NDArray
from mxnet.contrib.ndarray import MultiBoxPrior
from mxnet.gluon.contrib.cnn import DeformableConvolution
from mxnet.gluon.contrib.data.sampler import IntervalSampler
from mxnet.ndarray.linalg import gemm2
from mxnet.ndarray.random import normal
from mxnet.symbol.contrib import box_nms
import mxnet.ndarray.contrib as operations
assert operations is mx.contrib.nd and repr(operations) == "<module 'gemel.ndarray.contrib'>"
assert normal is nd.random.normal and nd.random.__name__ == "gemel.ndarray.random"
assert gluon.contrib.cnn.DeformableConvolution is DeformableConvolution
assert isinstance(gemm2(nd.ones((2, 2)), nd.ones((2, 2))), NDArray)
assert HybridBlock is gluon.HybridBlock and Dense is gluon.nn.Dense and MXNetError is mx.MXNetError
assert mx.gluon.block.Block is gluon.Block
x = nd.array([1, 2])
assert isinstance(x, NDArray) and x.dtype == "float32"
assert nd.array([1, 2], dtype="int32").dtype == nd.array(x.astype("int32")).dtype == "int32"
try:
    x + nd.ones((3,))
except mx.base.MXNetError:
    print("caught")
""", tmp_path)  # fmt: skip


def test_mxnet_itself(tmp_path: Path) -> None:
    """An installed mxnet is ignored, but one that was imported before is an error."""
    (tmp_path / "mxnet").mkdir()
    (tmp_path / "mxnet" / "__init__.py").write_text("real = True\n")
    done("import gemel.as_mxnet, mxnet, gemel\nassert mxnet is gemel\n", tmp_path)
    printed = done("""
import mxnet
assert mxnet.real
try:
    import gemel.as_mxnet
except ImportError as error:
    print(error)
""", tmp_path)  # fmt: skip
    assert "already imported" in printed and "import gemel.as_mxnet first" in printed


# --- scripts --------------------------------------------------------------------------------

SCRIPT = """
import sys
import multiprocessing
import helper
from mxnet import np
def inverse(x):
    return 1 / x
if __name__ == "__main__":
    print(sys.argv, __file__ == sys.argv[0] or __file__.endswith("program.py"), helper.ones(2))
    for method in ("spawn", "fork"):
        with multiprocessing.get_context(method).Pool(1) as pool:
            print(pool.map(inverse, [2, 4]), pool.map(helper.ones, [3]))
    inverse(0)
"""
HELPER = """
def ones(n):
    from mxnet import np
    return float(np.ones(n).sum())
"""


def test_scripts_run_as_they_are(tmp_path: Path) -> None:
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "program.py").write_text(SCRIPT)
    (tmp_path / "code" / "helper.py").write_text(HELPER)
    found = python("-m", "gemel", "run", "code/program.py", "--epochs", "3", folder=tmp_path)
    assert found.stdout.splitlines() == [
        "['code/program.py', '--epochs', '3'] True 2.0",
        *["[0.5, 0.25] [3.0]"] * 2,
    ]
    # The first frame shown is the program's own.
    lines = found.stderr.splitlines()
    assert found.returncode == 1 and lines[0] == "Traceback (most recent call last):"
    assert lines[1].endswith('code/program.py", line 13, in <module>')
    assert "return 1 / x" in found.stderr and lines[-1] == "ZeroDivisionError: division by zero"


@pytest.mark.parametrize(
    ("program", "status", "error"),
    [
        ("import sys; sys.exit(7)", 7, ""),
        ("raise SystemExit('why')", 1, "why\n"),
        ("x = (", 1, "SyntaxError"),
        ("from mxnet import np\nnp.ones((2, 3)) + np.ones(2)", 1, "line 2, in <module>"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGINT)", -2, "KeyboardInterrupt"),
    ],
)
def test_how_scripts_end(program: str, status: int, error: str, tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(program)
    found = python("-m", "gemel", "run", "program.py", folder=tmp_path)
    assert found.returncode == status and error in found.stderr
    assert "running.py" not in found.stderr and "runpy" not in found.stderr


def test_help_and_missing_files(tmp_path: Path) -> None:
    for arguments, status in ([], 2), (["--help"], 0):
        found = python("-m", "gemel", *arguments, folder=tmp_path)
        assert found.returncode == status and "python -m gemel run train.py" in found.stdout
    found = python("-m", "gemel", "run", "nothing.py", folder=tmp_path)
    assert found.returncode == 2 and "there is no file 'nothing.py'" in found.stderr


# --- notebooks ------------------------------------------------------------------------------

CELLS = [
    "%matplotlib inline\nimport mxnet as mx\nfrom mxnet import np\nx = np.ones((1, 2))\nx",
    "text = '''\n%d\n!no\n'''\n%time y = 3 + (4\n % 3)\n%timeit -n 2 -r1 y + 1\nprint(text % y)",
    "5;",
    "!echo from the shell\n!pip install mxnet\nif True:\n    !echo inside",
    "%%html\nthis is no Python",
    "display(x + 1); np.ones?",
    "def f(n):\n    return [1, 2][n]",
    "f(5)",
    "print('never')",
]


def test_notebooks_run_cell_by_cell(tmp_path: Path) -> None:
    cells = [{"cell_type": "code", "source": cell.splitlines(True)} for cell in CELLS]
    cells.insert(1, {"cell_type": "markdown", "source": ["# words"]})
    (tmp_path / "book.ipynb").write_text(json.dumps({"nbformat": 4, "cells": cells}))
    found = python("-m", "gemel", "run", "book.ipynb", folder=tmp_path)
    assert found.stdout.split("\n") == [
        "array([[1., 1.]])", "", "4", "!no", "", "from the shell", "inside", "",
    ]  # fmt: skip
    assert "skipped !pip install mxnet" in found.stderr
    assert found.returncode == 1
    assert 'book.ipynb In [8]", line 1' in found.stderr


#: Cells that are not Python, with what they print.
TRANSLATED = {
    "%env SET_A=1 2\n%set_env SET_B 3\nimport os; os.environ['SET_A'], os.environ['SET_B']": (
        "('1 2', '3')"
    ),
    "word = 'so'\nlines = !echo {word}; echo $word and ${HOME:+home}\nlines": (
        "['so', 'so and home']"
    ),
    "!echo one \\\n    two\nprint('three')": "one two\nthree",
    "n = %time 3 + 4\nn": "7",
    "%%time\nprint(5)": "5",
    "%%bash\nfor i in 1 2; do echo $i; done": "1\n2",
    "%%writefile made.txt\n{text} %d\n": "",
    "open('made.txt').read()": r"'{text} %d\n'",
    "import asyncio\nasync def f(x):\n    await asyncio.sleep(0)\n    return x\ny = await f(3)": "",
    "task = asyncio.create_task(f(4)) if False else f(4)\ny, await task": "(3, 4)",
    "async with asyncio.Lock():\n    print([await f(i) for i in range(2)])": "[0, 1]",
    "folder = %pwd\n%cd /\nos.getcwd()": "'/'",
    "%%timeit -n 2 -r1 z = 3\nprint(z * 2)": "6",
    "%timeit -o -n 1 print(1 + 1)": "2",
    "%timeit -o 1 + 1": "2",
    "%%capture caught\nprint(4)\n4 + 1": "",
    "str(caught), caught.stderr": r"('4\n5\n', '')",
    "caught.show()": "4\n5",
    "%%capture caught\nprint(4)": "",
    "caught.stdout": r"'4\n'",
    "%%capture\n!echo not shown": "",
    "get_ipython().run_cell_magic('capture', 'c', 'print(6)')\nc.stdout": r"'6\n'",
    "%system echo so": "['so']",
    "!!echo and so": "['and so']",
    "get_ipython().run_line_magic('matplotlib', 'inline')": "",
    "get_ipython().system('echo {word}')": "so",
    "get_ipython().run_line_magic('timeit', '-n 1 print(5)')": "5",
    "get_ipython().run_cell_magic('time', '', 'q = 2')\nq": "2",
    "get_ipython().magic('matplotlib inline')\n%matplotlib\tinline": "",
    "get_ipython = lambda: None  # as IPython's own\n!echo still": "still",
    "\n   \n%%bash\necho after lines": "after lines",
    "  p = 1\n  if p:\n    print(p)": "1",
    "_ + 1": "3",
    "_, __, _33, Out[33], In[33]": "(3, 2, 3, 3, '_ + 1')",
}


def test_cells_that_are_not_python(tmp_path: Path) -> None:
    cells = [{"cell_type": "code", "source": cell} for cell in TRANSLATED]
    (tmp_path / "book.ipynb").write_text(json.dumps({"nbformat": 4, "cells": cells}))
    found = python("-m", "gemel", "run", "book.ipynb", folder=tmp_path)
    assert not found.stderr and found.returncode == 0
    assert found.stdout == "".join(f"{each}\n" for each in TRANSLATED.values() if each)


@pytest.mark.parametrize(
    ("cell", "named"),
    [
        ("%run other.py", "%run is not done"),
        ("x = %store", "%store is not done"),
        ("%%cython\ncdef int x", "the cell %%cython is not done"),
        ("%%bash\nexit 3", "non-zero exit status 3"),
    ],
)
def test_magics_that_are_not_done(cell: str, named: str, tmp_path: Path) -> None:
    cells = [{"cell_type": "code", "source": each} for each in (cell, "print('never')")]
    (tmp_path / "book.ipynb").write_text(json.dumps({"nbformat": 4, "cells": cells}))
    found = python("-m", "gemel", "run", "book.ipynb", folder=tmp_path)
    assert found.returncode == 1 and named in found.stderr and not found.stdout


@pytest.mark.parametrize(("setting", "status"), [("fail", 70), ("warn", 0)])
def test_a_failure_that_nobody_reads(setting: str, status: int, tmp_path: Path) -> None:
    source = "from mxnet import np\nx = np.take(np.ones(3), np.array([9]), mode='raise')"
    cells = [{"cell_type": "code", "source": each} for each in (source, "print('next')")]
    (tmp_path / "book.ipynb").write_text(json.dumps({"cells": cells}))
    arguments = "-m", "gemel", "run", "book.ipynb"
    found = python(*arguments, folder=tmp_path, GEMEL_UNSEEN_ERRORS=setting)
    assert found.returncode == status and found.stdout == "next\n"
    assert "1 operation(s) failed" in found.stderr and "book.ipynb In [1]:2" in found.stderr


def test_a_failure_that_a_later_cell_reads(tmp_path: Path) -> None:
    sources = (
        "from mxnet import np\nx = np.take(np.ones(3), np.array([9]), mode='raise')",
        "import time\ntime.sleep(0.3)",
        "try:\n    x.item()\nexcept IndexError:\n    print('caught')",
    )
    cells = [{"cell_type": "code", "source": each} for each in sources]
    # Windows' editors begin a file with a mark.
    (tmp_path / "book.ipynb").write_text(json.dumps({"cells": cells}), encoding="utf-8-sig")
    found = python("-m", "gemel", "run", "book.ipynb", folder=tmp_path)
    assert (found.returncode, found.stdout, found.stderr) == (0, "caught\n", "")


def test_files_that_are_no_notebooks(tmp_path: Path) -> None:
    for text in ("{", "[]", '{"cells": [{}]}'):
        (tmp_path / "book.ipynb").write_text(text)
        found = python("-m", "gemel", "run", "book.ipynb", folder=tmp_path)
        assert found.returncode == 2 and "is no notebook" in found.stderr


def test_values_that_have_failed_are_shown_without_frames_of_gemel(tmp_path: Path) -> None:
    """The last line of a cell is displayed after it has run: no line of the program raises."""
    source = "from mxnet import np\nnp.take(np.ones(3), np.array([9]), mode='raise')"
    cells = [{"cell_type": "code", "source": source}]
    (tmp_path / "book.ipynb").write_text(json.dumps({"cells": cells}))
    found = python("-m", "gemel", "run", "book.ipynb", folder=tmp_path)
    assert found.returncode == 1
    (line,) = found.stderr.splitlines()
    assert line.startswith("gemel.errors.ArrayIndexError: take: an index is out of bounds")
    assert "book.ipynb In [1]:2" in line
