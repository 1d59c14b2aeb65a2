"""The C interface: a program without Python runs a plan's image and pushes work of its own."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy
import pytest

import gemel
from gemel import np, npx

PACKAGE = Path(gemel.__file__).parent
LIBRARY = PACKAGE / "lib"
HERE = Path(__file__).parent
#: The header of an installed package, or of the source tree.
HEADERS = [PACKAGE / "include", HERE.parent / "src" / "capi"]


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The C program, compiled and linked with libgemel alone."""
    compiler = os.environ.get("CC") or shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("there is no C compiler")
    made = tmp_path_factory.mktemp("capi") / "use"
    headers = [f"-I{folder}" for folder in HEADERS]
    options = ["-std=c11", "-D_DEFAULT_SOURCE", "-Wall", "-Wextra", "-Werror", "-O1"]
    libraries = [f"-L{LIBRARY}", "-lgemel", f"-Wl,-rpath,{LIBRARY}", "-pthread"]
    source = HERE / "c" / "use.c"
    subprocess.run([compiler, *options, *headers, source, *libraries, "-o", made], check=True)
    return made


def output(*command: object) -> list[str]:
    """What a program prints, which must end with 0."""
    run = subprocess.run(
        [str(part) for part in command], capture_output=True, text=True, timeout=600
    )
    assert run.returncode == 0, run.stderr
    return run.stdout.splitlines()


def test_the_library_needs_no_python(program: Path) -> None:
    needed = output("ldd", LIBRARY / "libgemel.so")
    assert needed and not [line for line in needed if "python" in line]


def test_work_pushed_from_c(program: Path) -> None:
    assert output(program) == []


WEIGHT = numpy.linspace(-1, 1, 12, dtype="float32").reshape(4, 3)


@pytest.mark.parametrize(
    ("function", "made", "rows"),
    [
        (lambda x: npx.softmax(x * 0.25, axis=1) * 2, 8, (2, 3, 8, 130, 1000)),
        (lambda x: x.sum(axis=1), 8, (2, 8, 70000)),
        # A product's tiles are made for a range of sizes.
        (lambda x: npx.relu(np.dot(x, np.array(WEIGHT)) * 0.5 + 1), 128, (121, 125, 128)),
    ],
)
def test_an_image_runs_from_c(
    program: Path, tmp_path: Path, function: Any, made: int, rows: tuple[int, ...]
) -> None:
    compiled = gemel.compile(function)
    image = tmp_path / "function.plan"
    image.write_bytes(compiled.image(np.ones((made, 4))))
    for line in output(program, image, 4, *rows):
        extents, total = line.split(": ")
        count, *result = map(int, extents.split())
        x = np.array(numpy.arange(1, 1 + count * 4, dtype="float32").reshape(count, 4))
        expected = compiled(x).asnumpy()
        assert result == list(expected.shape)
        assert float(total) == pytest.approx(float(expected.sum(dtype="float64")), rel=1e-5)
