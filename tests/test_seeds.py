"""Every code cell of the chapter's five texts runs, and prints what the text shows.

`tests/seeds` has the cells word for word, each with its printed output; 003 has no cells. Each text
runs in its own process, because names are counted from its start. In MXNet's cells `mxnet` is
replaced by `gemel`, or nothing is; in PyTorch's cells `torch` is replaced by `gemel.torch`.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

SEEDS = Path(__file__).parent / "seeds"

#: How a printed line may differ, and why; the rest must be the same, character by character.
EXEMPT = [
    (r"\d+\.\d+ sec", "# sec", "times depend on the machine"),
    (r"(increased memory:) -?\d+\.\d+", r"\1 #", "memory depends on the machine"),
    (r"(array|tensor)\(\[\[ ?-?\d\.\d+, +-?\d\.\d+\]\]", r"\1(#", "random numbers"),
    (r"^((value  x|result  ): +)\[\[.*\]\]$", r"\1#", "random numbers"),
    (r"<module '(mxnet|gemel)\.(\w+)'.*>$", r"<module \2>", "where the package lies"),
    (r"grad_fn=(<AddmmBackward0>)?\)", "grad_fn=)", "004 lost what stands in angle brackets"),
    (r"^(-rw-r--r-- 1) .* my_mlp$", r"\1 # my_mlp", "whose file it is, and when; ours is smaller"),
    (
        r"^\('\./models/my_mlp-symbol\.json', .*\)$",
        "",
        "later MXNets give the files' names",
    ),
]
#: How a cell's text is changed before it runs, and why.
CHANGED = {
    "mxnet": [
        (r"^import d2l$", "from gemel import d2l", "the book's helpers are gemel.d2l"),
        (r"\bmxnet\b(?!\.np')", "gemel", "the package's name"),
    ],
    "torch": [
        (r"from d2l import torch as d2l", "from gemel import d2l", "the book's helpers"),
        (r"^import torch$", "from gemel import torch", "the package's name"),
        (r"^from torch import", "from gemel.torch import", "the package's name"),
        (r"^!pip .*$", "", "nothing is to be installed"),
    ],
}
#: Three experiments are smaller, unless `-m slow` asks for the text's own sizes.
SMALLER = [
    (r"num_batches, batch_size = 150, 1024", "num_batches, batch_size = 150, 16"),
    (r"^(x_\w+ = np\.random\.uniform\(size=\()2000, 2000", r"\g<1>200, 200"),
]

CHILD = """
import contextlib, io, json, sys, traceback
from gemel.command.running import display, run_cell
scope, found = {"__name__": "__main__"}, []
for source in json.load(sys.stdin):
    printed, error = io.StringIO(), ""
    with contextlib.redirect_stdout(printed):
        try:
            value = run_cell(source, scope)
            if value is not None:
                display(value)
        except BaseException:
            error = traceback.format_exc()
    found.append((printed.getvalue(), error))
print(json.dumps(found))
"""


def cells(seed: str) -> list[tuple[str, str, str]]:
    """(name, code, printed output) of each cell."""
    text = (SEEDS / f"{seed}.txt").read_text()
    parts = re.split(r"(?m)^#### In \[(.+)\]\n", text)[1:]
    found = []
    for name, body in zip(parts[::2], parts[1::2], strict=True):
        code, _, printed = body.partition("#### prints\n")
        found.append((name, code, printed))
    return found


def indented(code: str) -> str:
    """The code with methods indented further: 004's lines are indented by one space at most."""
    lines, step = [], ""
    for line in code.split("\n"):
        inside = line.startswith(" ") and not line.startswith((" def ", ' """'))
        lines.append(step + line if inside else line)
        step = " " if line.startswith(" def ") else step if line.strip() else ""
    return "\n".join(lines)


def changed(code: str, rules: list[tuple[str, ...]]) -> str:
    for pattern, new, *_ in rules:
        code = re.sub(pattern, new, code, flags=re.MULTILINE)
    return code


def comparable(printed: str) -> list[str]:
    """The non-empty lines of a cell's output, without what may differ."""
    lines = [line.rstrip() for line in printed.split("\n")]
    for pattern, new, _ in EXEMPT:
        lines = [re.sub(pattern, new, line) for line in lines]
    return [line for line in lines if line]


def run(sources: list[str], folder: Path, seconds: int = 600) -> list[tuple[str, str]]:
    done = subprocess.run(
        [sys.executable, "-c", CHILD], input=json.dumps(sources), cwd=folder, text=True,
        capture_output=True, timeout=seconds,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return [(printed, error) for printed, error in json.loads(done.stdout.splitlines()[-1])]


def check(seed: str, sources: list[str], folder: Path) -> dict[str, str]:
    """Run the cells and compare what they print; returns their output by name.

    Cells called In [None] were not run when the text was saved, so their output is not compared.
    """
    found = run(sources, folder)
    wrong = []
    for (name, _, expected), (printed, error) in zip(cells(seed), found, strict=True):
        if error:
            wrong.append(f"In [{name}] raises\n{error}")
        elif name != "None" and comparable(printed) != comparable(expected):
            wrong.append(f"In [{name}] prints\n{printed}and not\n{expected}")
    assert not wrong, "\n".join(wrong)
    return {name: printed for (name, *_), (printed, _) in zip(cells(seed), found, strict=True)}


def mxnet_seed(folder: Path, rules: list[tuple[str, ...]]) -> None:
    sources = [changed(code, rules) for _, code, _ in cells("001")]
    printed = check("001", sources, folder)
    # Compiled or not, the same numbers.
    assert printed["4"] == printed["5"]
    assert printed["10"].splitlines()[-1] == printed["11"].splitlines()[-1]
    assert printed["11"].splitlines()[-1] == printed["12"].strip()
    # The text shows the beginning of the file, whose names are counted from the second network.
    nodes = json.loads((folder / "models" / "my_mlp-symbol.json").read_text())["nodes"]
    assert [(node["op"], node["name"], node["inputs"]) for node in nodes[:2]] == [
        ("null", "data", []),
        ("null", "dense3_weight", []),
    ]
    assert (folder / "models" / "my_mlp-0000.params").stat().st_size <= 651 * 1024


def test_mxnet_edition(tmp_path: Path) -> None:
    mxnet_seed(tmp_path, [*CHANGED["mxnet"], *SMALLER])


@pytest.mark.slow
def test_mxnet_edition_in_its_own_sizes(tmp_path: Path) -> None:
    mxnet_seed(tmp_path, CHANGED["mxnet"])


def torch_seed(seed: str, folder: Path) -> dict[str, str]:
    sources = [changed(code, CHANGED["torch"]) for _, code, _ in cells(seed)]
    if seed == "004":
        sources = [indented(code) if "class Benchmark" in code else code for code in sources]
    return check(seed, sources, folder)


@pytest.mark.parametrize("seed", ["000", "002", "004"])
def test_pytorch_edition(seed: str, tmp_path: Path) -> None:
    printed = torch_seed(seed, tmp_path)
    net, scripted = {"000": "56", "002": ("9", "10"), "004": "34"}[seed]
    assert printed[net] == printed[scripted]  # compiled or not, the same numbers
    assert (tmp_path / "my_mlp").stat().st_size <= 651 * 1024


def test_mxnet_edition_unedited(tmp_path: Path) -> None:
    """The chapter as a notebook, under `python -m gemel run`, without changing a letter.

    Only its long experiments are left out; they run in another test.
    """
    chosen = [cell for cell in cells("001") if int(cell[0]) <= 18]
    book = {
        "nbformat": 4,
        "cells": [{"cell_type": "code", "source": code} for _, code, _ in chosen],
    }
    (tmp_path / "chapter.ipynb").write_text(json.dumps(book))
    done = subprocess.run(
        [sys.executable, "-m", "gemel", "run", "chapter.ipynb"], cwd=tmp_path, text=True,
        capture_output=True, timeout=600,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert comparable(done.stdout) == [line for *_, text in chosen for line in comparable(text)]
