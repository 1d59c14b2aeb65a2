"""Environment variables: what they may be, and that a mistake is an error at the import."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from programs import end

from gemel import config
from gemel.errors import ArgumentError, UnknownNameError
from gemel.runtime.files import folder

REFUSED = [
    ("GEMEL_QUEUE_OPS", "99999999999999999999", r"a whole number from 1 to 2\*\*63 - 1"),
    ("GEMEL_QUEUE_OPS", "-5", "a whole number from 1"),
    ("GEMEL_QUEUE_OPS", "0", "a whole number from 1"),
    ("GEMEL_WORKERS", "-7", "a whole number from -1 to 4096"),
    ("GEMEL_WORKERS", "2.5", "a whole number from -1 to 4096"),
    ("GEMEL_QUEUE_BYTES", "-1", "a whole number from 0"),
    ("GEMEL_AHEAD_BYTES", "0", "a whole number from 1"),
    ("GEMEL_CACHE_BYTES", "-1", "a whole number from 0"),
    ("GEMEL_KEEP_BYTES", "1e9", "a whole number from 0"),
    ("GEMEL_SIMULATED_GPUS", "9", "a whole number from 0 to 8"),
    ("GEMEL_SIMULATED_LATENCY", "nan", r"a number from 0 to 1e\+07$"),
    ("GEMEL_SIMULATED_LATENCY", "1e300", r"a number from 0 to 1e\+07$"),
    ("GEMEL_SIMULATED_BANDWIDTH", "1e-300", r"a number from 1e-06 to 1e\+09$"),
    ("GEMEL_SIMULATED_BANDWIDTH", "0", r"a number from 1e-06 to 1e\+09$"),
    ("GEMEL_WAIT_SECONDS", "-0.5", "a number from 0$"),
    ("GEMEL_DEBUG", "x", "a whole number from 0 to 2"),
    ("GEMEL_VERIFY", "maybe", "one of 1, true, on, yes, 0, false, off, no"),
    ("GEMEL_UNSEEN_ERRORS", "wran", "one of fail, warn"),
]


@pytest.mark.parametrize(("name", "text", "allowed"), REFUSED)
def test_what_is_refused(
    monkeypatch: pytest.MonkeyPatch, name: str, text: str, allowed: str
) -> None:
    monkeypatch.setenv(name, text)
    with pytest.raises(
        (ArgumentError, UnknownNameError), match=f"^{name}='{text}': must be {allowed}"
    ):
        config.check()


@pytest.mark.parametrize(
    ("variable", "text", "value"),
    [
        (config.WORKERS, "-1", -1),
        (config.QUEUE_OPERATIONS, "1", 1),
        (config.CACHE_BYTES, "0", 0),
        (config.WAIT_SECONDS, "inf", float("inf")),
        (config.VERIFY, "ON", True),
        (config.VERIFY, "no", False),
        (config.VERIFY, "", False),
        (config.CUDA, "", True),
        (config.UNSEEN_ERRORS, "warn", "warn"),
    ],
)
def test_what_is_read(
    monkeypatch: pytest.MonkeyPatch, variable: config.Variable, text: str, value: object
) -> None:
    monkeypatch.setenv(variable.name, text)
    config.check()
    assert variable.read() == value


def test_defaults_are_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in config.ALL:
        if variable.default == "":
            monkeypatch.delenv(variable.name, raising=False)
        else:
            monkeypatch.setenv(variable.name, str(variable.default))
    config.check()
    assert [variable.read() for variable in config.ALL] == [each.default for each in config.ALL]


@pytest.mark.parametrize("name", ["GEMEL_DEBUG", "GEMEL_UNSEEN_ERRORS", "GEMEL_QUEUE_OPS"])
def test_a_mistake_is_an_error_at_the_start(name: str) -> None:
    """Also of variables that are read late, or by the core."""
    ended = end("import gemel", **{name: "x"})
    assert ended.code == 1
    assert f"{name}='x': must be" in ended.text.splitlines()[-1]
    assert f"gemel{os.sep}__init__.py" not in ended.text


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("GEMEL_WORKER", "GEMEL_WORKERS"),
        ("GEMEL_QUEUE_OPERATIONS", "GEMEL_QUEUE_OPS"),
        ("GEMEL_CACHE_DIR", "GEMEL_CACHE"),
        ("GEMEL_SIMULATED_GPU", "GEMEL_SIMULATED_GPUS"),
        ("GEMEL_workers", None),  # names have capitals only
        # Those of tests, benchmarks, builds and launchers.
        ("GEMEL_EXAMPLES", None),
        ("GEMEL_TEST_PROGRAMS", None),
        ("GEMEL_PEERS", None),
        ("GEMEL_SANITIZER", None),
        ("GEMEL_LTO", None),
        ("GEMEL_NOTE", None),
        ("MXNET_HOMES", None),
        *((variable.name, None) for variable in config.ALL),
    ],
)
def test_a_misspelt_name_is_warned_of(
    monkeypatch: pytest.MonkeyPatch, given: str, meant: str | None
) -> None:
    before = config.misspelt()
    monkeypatch.setenv(given, "1")
    new = [text for text in config.misspelt() if text not in before]
    assert new == ([f"{given} has no effect; did you mean {meant}?"] if meant else [])


def test_the_default_folder_is_where_the_text_says(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("GEMEL_CACHE", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    assert folder() == str(tmp_path / ".cache" / "gemel")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "other"))
    assert folder() == str(tmp_path / "other" / "gemel")
    (line,) = [line for line in config.describe().splitlines() if line.startswith("GEMEL_CACHE ")]
    assert line.endswith("default: gemel in XDG_CACHE_HOME, or ~/.cache/gemel")


def test_a_misspelt_name_is_warned_of_at_the_import() -> None:
    ended = end("import gemel\nimport gemel.np", GEMEL_WORKER="1")
    assert ended.code == 0
    assert ended.text.count("GEMEL_WORKER has no effect; did you mean GEMEL_WORKERS?") == 1


@pytest.mark.parametrize("variable", config.ALL, ids=lambda variable: variable.name)
def test_a_default_is_shown_as_the_texts_have_it(
    variable: config.Variable, monkeypatch: pytest.MonkeyPatch
) -> None:
    (line,) = [each for each in config.describe().splitlines() if each.split()[0] == variable.name]
    if variable.default != "":
        shown = line.rpartition("(")[2].rstrip(")")
        assert shown not in ("True", "False")  # the texts say "0 leaves them alone"
        monkeypatch.setenv(variable.name, shown)
        assert variable.read() == variable.default


@pytest.mark.parametrize("name", ["GEMEL_WORKERS", "GEMEL_TRACEBACK"])
def test_the_command_shows_a_mistake_alone(name: str) -> None:
    command = [sys.executable, "-m", "gemel", "-h"]
    found = subprocess.run(
        command, env={**os.environ, name: "x"}, text=True, capture_output=True, timeout=120
    )
    (line,) = found.stderr.splitlines()
    assert found.returncode == 1 and f"{name}='x': must be" in line


def test_decisions_about_products_are_told(tmp_path: Path) -> None:
    """From which sizes and estimates a tiling, and Winograd's scheme, were chosen."""
    program = """if True:
        from gemel import compile, np, npx
        np.ones((128, 64)) @ np.ones((64, 96))
        compile(lambda a, b: a @ b)(np.ones((3, 128, 700)), np.ones((3, 700, 64)))
        image, weight = np.ones((4, 64, 28, 28)), np.ones((64, 64, 3, 3))
        npx.convolution(image, weight, kernel=(3, 3), num_filter=64, pad=(1, 1), no_bias=True)
    """
    settings = {"GEMEL_CACHE": str(tmp_path), "GEMEL_TARGET": "generic", "GEMEL_WINOGRAD": "auto"}
    told = end(program, GEMEL_DEBUG="2", **settings).text
    chosen = r"float32 a:k b:n on generic, about \d+ ns: gemm .*; tiles of \d+ x \d+, \d+ a call"
    assert re.search(f"^gemel: product 128 x 64 by 64 x 96 {chosen}", told, re.MULTILINE)
    assert re.search(f"^gemel: product 3 x 128 x 700 by 700 x 64 {chosen}", told, re.MULTILINE)
    assert "gemel: 3 x 3 windows, 4 x 64 channels to 64 of 28 x 28: 115605504 " in told
    assert "gemel: product" not in end(program, GEMEL_DEBUG="1", **settings).text
