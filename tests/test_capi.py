"""The C interface: a program without Python runs a plan's image and issues its own work."""

from __future__ import annotations

import os
import shutil
import struct
import subprocess
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy
import pytest

import gemel
from gemel import np, npx
from gemel.codegen.target import _NEEDED, EXTENSIONS, TARGETS, _flags, has_extension, host
from gemel.errors import DeviceError
from gemel.gluon import rnn
from gemel.runtime.image import HEADER, MAGIC, VERSION

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
    """The lines a program prints; it must exit with 0."""
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
WIDE = numpy.linspace(-1, 1, 40 * 20, dtype="float32").reshape(40, 20)


def by_pairs(x: Any) -> Any:
    """A product of bfloat16."""
    return np.dot(x.astype("bfloat16"), np.array(WIDE).astype("bfloat16")).astype("float32")


@pytest.mark.parametrize(
    ("function", "made", "rows"),
    [
        (lambda x: npx.softmax(x * 0.25, axis=1) * 2, 8, (2, 3, 8, 130, 1000)),
        (lambda x: x.sum(axis=1), 8, (2, 8, 70000)),
        # The tiles of a product are made for a range of sizes.
        (lambda x: npx.relu(np.dot(x, np.array(WEIGHT)) * 0.5 + 1), 128, (121, 125, 128)),
        # The system has to be asked for tile registers, if the processor has any.
        (lambda x: by_pairs(np.concatenate([x] * 10, axis=1) / 256), 128, (121, 125, 128)),
    ],
)
def test_an_image_runs_from_c(
    program: Path, tmp_path: Path, function: Any, made: int, rows: tuple[int, ...]
) -> None:
    compiled = gemel.compile(function)
    compiled(np.ones((2, 4)))  # what plans have asked of sizes until now is not asked of the image
    image = tmp_path / "function.plan"
    image.write_bytes(compiled.image(np.ones((made, 4))))
    for line in output(program, image, 4, *rows):
        extents, total = line.split(": ")
        count, *result = map(int, extents.split())
        x = np.array(numpy.arange(1, 1 + count * 4, dtype="float32").reshape(count, 4))
        expected = compiled(x).asnumpy()
        assert result == list(expected.shape)
        assert float(total) == pytest.approx(float(expected.sum(dtype="float64")), rel=1e-5)


def by_weights(x: Any) -> Any:
    return np.dot(x, np.array(WEIGHT))


#: What README.md and docs/internals/plan-image.md say of sizes.
SIZES = [
    (lambda x: npx.softmax(x * 2), 8, (2, 7, 9, 1000), (1,)),
    (lambda x: x.sum(axis=0), 1, (1,), (2, 8)),
    (by_weights, 1, (1,), (2, 8)),
    (by_weights, 8, (8,), (1, 7, 9, 1000)),
    (by_weights, 64, (64,), (63, 65)),
    (by_weights, 100, (97, 104), (96, 105)),
    (by_weights, 200, (193, 208), (192, 209)),
]


@pytest.mark.parametrize(("function", "made", "taken", "refused"), SIZES)
def test_sizes_that_an_image_takes(
    function: Any, made: int, taken: tuple[int, ...], refused: tuple[int, ...]
) -> None:
    plan = gemel._core.Plan(gemel.compile(function).image(np.ones((made, 4))))
    for rows in taken:
        x = np.ones((rows, 4))
        assert numpy.allclose(plan(x)[0].asnumpy(), function(x).asnumpy())
    for rows in refused:
        with pytest.raises(TypeError, match="the plan was made for"):
            plan(np.ones((rows, 4)))


def test_a_run_from_c_with_a_smaller_batch_fails(program: Path, tmp_path: Path) -> None:
    path = tmp_path / "product.plan"
    path.write_bytes(gemel.compile(by_weights).image(np.ones((8, 4))))
    run = subprocess.run([program, path, "4", "8", "7"], capture_output=True, text=True)
    assert run.returncode > 0 and "the plan was made for other sizes" in run.stderr


def test_an_image_of_a_recurrent_layer_takes_any_length_of_one_batch() -> None:
    layer = rnn.LSTM(16, input_size=8)
    layer.initialize()
    plan = gemel._core.Plan(gemel.compile(layer).image(np.ones((5, 4, 8))))
    parameters = [each.data() for each in layer.collect_params().values()]
    for length in (4, 5, 30):
        x = np.ones((length, 4, 8))
        assert numpy.allclose(plan(x, *parameters)[0].asnumpy(), layer(x).asnumpy(), atol=1e-6)
    for shape in ((3, 4, 8), (5, 3, 8), (5, 5, 8)):
        with pytest.raises(TypeError, match="the plan was made for"):
            plan(np.ones(shape), *parameters)


def test_the_page_is_about_this_version() -> None:
    page = (HERE.parent / "docs" / "internals" / "plan-image.md").read_text()
    assert page.startswith(f"# The image of a plan, version {VERSION}\n")
    assert f"| magic, version | 0x{MAGIC:016X} (`gemplan`), {VERSION} |" in page


def retold(image: bytes, target: str) -> bytes:
    """The image, changed to say that its kernels were made for another target."""
    words = list(struct.unpack_from(f"<{struct.unpack_from('<q', image, 16)[0]}q", image))
    content = image[8 * len(words) :] + target.encode()
    words[3], words[HEADER + 2], words[HEADER + 3] = len(content), words[3], len(target)
    rest = struct.pack(f"<{len(words) - HEADER}q", *words[HEADER:]) + content
    return struct.pack(f"<{HEADER}q", *words[: HEADER - 1], crc32(rest)) + rest


def told(image: bytes) -> str:
    """The target that an image says its kernels were made for."""
    words, *_, begin, length = struct.unpack_from("<7q", image, 16)
    return image[8 * words + begin :][:length].decode()


@pytest.mark.parametrize(
    ("change", "missing"),
    [
        (lambda target: target + ",+amx-fp64", "amx-fp64"),
        (lambda target: target.replace(target.split("-")[0], "mips64", 1), "mips64"),
        (lambda target: "x86_64-a-b-c cpu level -mmx,+avx9 rest", "avx9"),
    ],
)
def test_an_image_for_another_processor_is_refused(
    program: Path, tmp_path: Path, change: Any, missing: str
) -> None:
    if os.uname().machine != "x86_64":
        pytest.skip("the texts are those of x86-64")
    image = gemel.compile(lambda x: x + 1).image(np.ones((8, 4)))
    assert told(image) == host().text
    other = retold(image, change(host().text))
    path = tmp_path / "other.plan"
    path.write_bytes(other)
    run = subprocess.run([program, path, "4", "8"], capture_output=True, text=True)
    assert run.returncode > 0 and f"no {missing}:" in run.stderr and "DeviceError" in run.stderr
    with pytest.raises(DeviceError, match=f"made for .*this machine has no {missing}"):
        gemel._core.Plan(other)
    for empty in (retold(image, ""), retold(image, host().text)):
        assert gemel._core.Plan(empty)(np.ones((8, 4)))[0].tolist() == [[2.0] * 4] * 8


def test_every_damaged_byte_of_an_image_is_noticed() -> None:
    """Numbers of the program would still be valid, and machine code would still run."""
    image = gemel.compile(lambda x: np.dot(x, np.array(WEIGHT))).image(np.ones((8, 4)))
    assert gemel._core.Plan(image)(np.ones((8, 4)))[0].shape == (8, 3)
    places = [
        *range(0, len(image), 7),
        *range(8 * HEADER + 64),
        *range(len(image) - 64, len(image)),
    ]
    for place in places:
        damaged = bytearray(image)
        damaged[place] ^= 1 << place % 8
        with pytest.raises(ValueError, match=r"damaged|has version"):
            gemel._core.Plan(bytes(damaged))


def test_the_machine_s_flags_and_the_reader_s_are_the_same() -> None:
    """An image that runs nothing is read for each level and each group of instructions."""
    image = gemel.compile(lambda x: x + 1).image(np.ones((8, 4)))
    if os.uname().machine != "x86_64":
        pytest.skip("the levels are those of x86-64")
    known = _flags()
    levels = {name: needed <= known for name, needed in _NEEDED.items()}
    wanted = {TARGETS[name].text: there for name, there in levels.items()}
    for name in EXTENSIONS:
        text = TARGETS["avx512"].with_extension(name).text
        wanted[text] = levels["avx512"] and has_extension(TARGETS["avx512"], name)
    for text, there in wanted.items():
        try:
            gemel._core.Plan(retold(image, text))
        except DeviceError:
            assert not there, text
        else:
            assert there, text
