"""The programs that the benchmark compares with NumPy and torch: they run, and agree with NumPy."""

from __future__ import annotations

import ast
import math
import sys
from pathlib import Path

import numpy
import pytest

sys.path.append(str(Path(__file__).resolve().parent.parent))

from benchmarks import programs, programs_array, programs_gemel, programs_worker
from benchmarks.driver import agree
from benchmarks.ufuncs_worker import digest

ANSWER = {"life": [2.0, [1.0, 2.0]]}


@pytest.mark.parametrize("name", programs_array.PROGRAMS)
def test_an_array_program_computes_what_numpy_does(name: str) -> None:
    ours, right = (programs_worker.array_call(each, name)() for each in ("gemel", "numpy"))
    assert ours.shape == right.shape
    assert agree(digest(ours), digest(right), programs.TOLERANCE)
    # Masks of a fractal differ where a number is next to the bound.
    assert numpy.mean(~numpy.isclose(ours, right, 1e-2, 1e-3)) < 1e-3


@pytest.mark.parametrize("name", programs.DYNAMIC)
def test_a_dynamic_program_goes_on(name: str) -> None:
    call = getattr(programs_gemel, name)()
    found = [call() for _ in range(3)]
    assert all(map(math.isfinite, found))
    if name == "trees":
        assert found[0] > found[1] > found[2] > 0


def test_both_libraries_have_the_same_programs() -> None:
    folder = Path(programs.__file__).parent
    for library in ("gemel", "torch"):
        tree = ast.parse((folder / f"programs_{library}.py").read_text())
        public = [each.name for each in tree.body if isinstance(each, ast.FunctionDef)]
        assert [name for name in public if not name.startswith("_")] == list(programs.DYNAMIC)


def test_other_results_are_reported(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = {"numpy": [ANSWER], "gemel": [{"life": [1.0, [1.0, 2.0]]}]}
    monkeypatch.setattr(programs, "in_turns", lambda *given: answers)
    assert not programs._compare("numpy", ["life"], 1, 1, 0.1)
    assert " 0.50 |" in capsys.readouterr().out
    answers["gemel"] = [{"life": [1.0, [1.0, 2.1]]}]
    assert programs._compare("numpy", ["life"], 1, 1, 0.1)
    assert "0.50!" in capsys.readouterr().out
    answers["gemel"] = []
    assert programs._compare("numpy", ["life"], 1, 1, 0.1)
