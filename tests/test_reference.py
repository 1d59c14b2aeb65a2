"""The reference: every public function has a page, with an example that runs."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from gemel.ir.public import NAMESPACES

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tools"))
from reference import example, main, page, public


@pytest.mark.parametrize(
    ("namespace", "name", "value"), list(public()), ids=lambda v: v if isinstance(v, str) else ""
)
def test_a_page_with_an_example(
    namespace: str, name: str, value: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # examples write files
    shown = example(namespace, name, value)
    assert shown is not None, "its docstring needs an example after >>>"
    assert value.__doc__ and f"# {namespace}.{name}" in page(namespace, name, value)


def test_contents_of_a_reference_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    text = page("np", "tanh", NAMESPACES["np"]["tanh"])
    for line in (
        "    np.tanh(x: Any, /, *, out: Any = None, where: Any = True, ",
        "float32: of bool, ",
        "- gradient: yes",
        "- computed: compiled",
        "- in ONNX: `Tanh`",
        ">>> np.tanh(np.array([0.25, 0.5, 1.0]))\narray([0.24491866, 0.46211717, 0.7615942 ])",
    ):
        assert line in text
    assert "the call waits" in page("np", "nonzero", NAMESPACES["np"]["nonzero"])
    assert "- gradient: no" in page("np", "i0", NAMESPACES["np"]["i0"])


def test_all_pages_are_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    main(tmp_path / "reference")
    listed = (tmp_path / "reference" / "index.md").read_text().count("](")
    assert listed == len(list((tmp_path / "reference").glob("*/*.md"))) == len(list(public()))
    assert f"{listed} pages" in capsys.readouterr().out
