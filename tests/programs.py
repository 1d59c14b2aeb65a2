"""Running small programs in processes of their own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from typing import Any

#: What every program begins with.
HEAD = """
import json
import sys
import warnings

def tell(**what):
    print(json.dumps(what))
"""


def start(program: str, **environment: str | None) -> subprocess.Popen[str]:
    """Start a program; variables set to None are taken out of its environment."""
    variables = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    for name, value in environment.items():
        variables.pop(name, None)
        if value is not None:
            variables[name] = value
    return subprocess.Popen(
        [sys.executable, "-c", HEAD + textwrap.dedent(program)],
        env=variables,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finish(process: subprocess.Popen[str], seconds: float = 120) -> dict[str, Any]:
    """What the program told, and as "stderr" what it wrote there."""
    try:
        out, errors = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        raise
    assert process.returncode == 0, f"exit code {process.returncode}\n{out}\n{errors}"
    found: dict[str, Any] = {"stderr": errors}
    for line in out.splitlines():
        if line.startswith("{"):
            found.update(json.loads(line))
    return found


def run(program: str, **environment: str | None) -> dict[str, Any]:
    """Run a program to its end and give what it told."""
    return finish(start(program, **environment))
