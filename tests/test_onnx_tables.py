"""What the page about ONNX lists exists, and what imports what, also without the package onnx."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from gemel.ir.late import load
from gemel.ir.methods import REGISTRY
from gemel.ir.op import Op
from gemel.ir.op_kinds import Elementwise
from gemel.onnx.read.rules import FOLDS, INSIDE, OPERATORS
from gemel.onnx.write.rules import CALLS, OPERATIONS
from gemel.symbol.composed import COMPOSED

PAGE = (Path(__file__).parent.parent / "docs" / "onnx.md").read_text()
load()


def same() -> set[str]:
    """The elementwise operations that need no rule of their own."""
    found = {n for n, op in REGISTRY.items() if isinstance(op, Elementwise) and not op.random}
    return {n for n in found if REGISTRY[n].names.get("onnx")} - set(OPERATIONS)


@pytest.mark.parametrize(
    ("heading", "names"),
    [
        ("Elementwise operations that mean the same", same()),
        ("By a rule", set(OPERATIONS)),
        ("Composed of others", set(COMPOSED)),
        ("Calls that are kept whole", set(CALLS)),
        ("Versions 7 and later of ONNX's own operators", {*OPERATORS, *INSIDE}),
    ],
)
def test_the_page_lists_what_is_there(heading: str, names: set[str]) -> None:
    paragraphs = PAGE.split("\n\n")
    (place,) = (i for i, text in enumerate(paragraphs) if text.startswith(heading))
    assert re.findall(r"`(\w+)`", paragraphs[place + 1]) == sorted(names)


def test_rules_are_of_operations_there_are() -> None:
    assert all(isinstance(REGISTRY.get(name), Op) for name in {*OPERATIONS, *COMPOSED})
    assert not set(FOLDS) - {*OPERATORS, *INSIDE}
    assert len({*OPERATORS, *INSIDE}) >= 120


def test_the_package_is_imported_when_it_is_needed() -> None:
    program = "import sys, gemel; gemel.onnx.load; sys.exit('onnx' in sys.modules)"
    subprocess.run([sys.executable, "-c", program], check=True)
