"""Runs the tests on a core built with sanitizers.

    python tools/sanitize.py address [--short | ARGUMENT ...]   Address-, UndefinedBehaviorSanitizer
    python tools/sanitize.py thread [--short | ARGUMENT ...]    ThreadSanitizer
    python tools/sanitize.py address|thread --stress SECONDS    the tests without Python

The arguments go to pytest. Without any, `address` runs all tests and `thread` those about threads.
`--short`, meant for every change, runs the files that use the core most; `--short=1/2` every second
of them, and `--short=2/2` the others. `--stress` runs the programs of tests/cpp, among them the
stress program for this many seconds.

The core and a copy of the package are in build/sanitize/; the installed package and the source tree
are not touched. Python itself is not instrumented, so the sanitizers' libraries are preloaded, also
into the processes that tests start. A process in which a sanitizer finds something stops. At the
end, the findings are printed here after the tests' own failures. Nothing is suppressed.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
COMPILER = os.environ.get("CXX", "c++")
#: Programs that test the core without Python, besides the stress program.
CPP = (
    *("cases", "desk_test", "courier_test", "meeting_test", "object_test", "memory_test"),
    "assembler_test",
)

#: Tests about threads, by the names of their files.
THREADS = (
  "core", "engine", "robustness", "python_lane", "tape", "devices", "border", "buffer",
  "random_programs", "edges_threads", "edges_failures", "edges_exit", "edges_fork", "core_plans",
  "kept",
)  # fmt: skip
#: The tests of `--short`, for both sanitizers: those that use the core most.
SHORT_THREADS = (
  "core", "engine", "python_lane", "tape", "edges_threads", "edges_exit", "edges_fork",
)  # fmt: skip
SHORT_MEMORY = (
  "core", "core_plans", "capi", "border", "buffer", "errors", "sites", "indexing", "tape",
  "python_lane", "engine", "random_programs", "edges_sizes", "edges_failures",
  "edges_process", "kept",
)  # fmt: skip


def files(names: tuple[str, ...]) -> list[str]:
    """The paths of test files."""
    return [str(ROOT / "tests" / f"test_{name}.py") for name in names]


class Sanitizer(NamedTuple):
    """The libraries to preload, and the environment variables that configure them.

    `tests` are pytest's arguments by default, `short` those of `--short`.
    """

    libraries: tuple[str, ...]
    variables: dict[str, str]
    tests: list[str]
    short: list[str]


def options(**values: object) -> str:
    """Options in the form that sanitizers read."""
    return ":".join(f"{name}={value}" for name, value in values.items())


def log(name: str) -> Path:
    """The path to which processes write findings, with their process id appended."""
    return ROOT / "build" / "sanitize" / name / "found"


# allocator_may_return_null: without memory, allocators return null as the system's do, and the core
# turns that into an error.
SANITIZERS = {
    "address": Sanitizer(
        # libstdc++ is preloaded because AddressSanitizer looks for __cxa_throw when it starts.
        ("libasan.so", "libubsan.so", "libstdc++.so"),
        {
            # No leak detection: the interpreter frees little at exit, so reports would be about it.
            "ASAN_OPTIONS": options(
                detect_leaks=0,
                allocator_may_return_null=1,
                detect_stack_use_after_return=1,
                log_path=log("address"),
            ),
            # With malloc each Python object is a block of its own, so uses after free are found.
            "PYTHONMALLOC": "malloc",
            "UBSAN_OPTIONS": options(print_stacktrace=1),
        },
        [str(ROOT / "tests")],
        files(SHORT_MEMORY),
    ),
    "thread": Sanitizer(
        ("libtsan.so",),
        {
            "TSAN_OPTIONS": options(
                allocator_may_return_null=1,
                atexit_sleep_ms=0,  # the default is a second in each process
                die_after_fork=0,
                halt_on_error=1,
                log_path=log("thread"),
            ),
            # NumPy's own threads are not instrumented, so they would be reported as races.
            "OPENBLAS_NUM_THREADS": "1",
        },
        files(THREADS),
        files(SHORT_THREADS),
    ),
}


def core(name: str) -> Path:
    """The folder in which the core is compiled."""
    return log(name).parent / "core"


def compiled(name: str, *targets: str) -> Path:
    """Build CMake targets with the sanitizer. Returns the build folder."""
    folder = core(name)
    tools = sysconfig.get_path("scripts")
    environment = {**os.environ, "PATH": os.pathsep.join((tools, os.environ["PATH"]))}
    configure = ["cmake", "-S", str(ROOT), "-B", str(folder), "-G", "Ninja", "-Wno-dev"]
    # Asserts stay in. CMakeLists.txt chooses the level of optimisation.
    configure += ["-DCMAKE_BUILD_TYPE=Debug", "-DCMAKE_CXX_FLAGS_DEBUG="]
    configure += [f"-DCMAKE_CXX_COMPILER={COMPILER}", f"-DGEMEL_SANITIZER={name}"]
    configure += [f"-DPython_EXECUTABLE={sys.executable}", "-DSKBUILD_PROJECT_NAME=gemel"]
    for command in (configure, ["cmake", "--build", str(folder), "--target", *targets]):
        done = subprocess.run(command, env=environment, capture_output=True, text=True)
        if done.returncode:
            sys.exit(f"{' '.join(command)}\n{done.stdout}{done.stderr}")
    return folder


def packaged(name: str, folder: Path, module: Path | None = None) -> Path:
    """Copy the package into a folder, with the compiled core or another `module` as its core.

    Returns the folder.
    """
    package = folder / "gemel"
    shutil.rmtree(package, ignore_errors=True)
    ignored = shutil.ignore_patterns("__pycache__", "*.so")
    shutil.copytree(ROOT / "gemel", package, ignore=ignored)
    for library in [module] if module else core(name).glob("_core*.so"):
        shutil.copy(library, package)
    (package / "lib").mkdir(exist_ok=True)
    shutil.copy(core(name) / "src" / "libgemel.so", package / "lib")
    return folder


def library(name: str) -> str:
    """The path of a library that comes with the compiler."""
    command = [COMPILER, f"-print-file-name={name}"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def findings(name: str) -> str:
    """What the sanitizer has written since the last call. Deletes the files."""
    folder, prefix = log(name).parent, log(name).name + "."
    found = []
    for path in sorted(folder.glob(prefix + "*")):
        lines = path.read_text().splitlines(keepends=True)
        path.unlink()
        # Printed whenever an allocation fails, which some tests cause on purpose.
        told = "".join(line for line in lines if "failed to allocate" not in line).strip()
        if told:
            found.append(f"== process {path.name.removeprefix(prefix)}\n{told}")
    return "\n".join(found)


def surroundings(name: str, package: Path) -> dict[str, str]:
    """The environment variables with which Python uses the package in a folder."""
    sanitizer = SANITIZERS[name]
    return {
        **os.environ,
        **sanitizer.variables,
        "LD_PRELOAD": " ".join(map(library, sanitizer.libraries)),
        "PYTHONPATH": str(package),
        "SANITIZER": name,
    }


def test(name: str, arguments: list[str]) -> int:
    """Run the Python tests. Returns pytest's exit code."""
    compiled(name, "_core", "gemel")
    package = packaged(name, log(name).parent / "package")
    findings(name)
    # Not `python -m pytest`, which looks for the package in the working directory first. With
    # --capture=sys, pytest leaves the file descriptors alone: UndefinedBehaviorSanitizer writes to
    # stderr even if log_path is set.
    pytest = [sysconfig.get_path("scripts") + "/pytest", "--capture=sys"]
    if not arguments:
        arguments = SANITIZERS[name].tests
    elif arguments[0].startswith("--short"):
        number, count = map(int, (arguments[0].partition("=")[2] or "1/1").split("/"))
        arguments = SANITIZERS[name].short[number - 1 :: count]
    environment = surroundings(name, package)
    return subprocess.run([*pytest, *arguments], cwd=ROOT, env=environment).returncode


def stress(name: str, seconds: str) -> int:
    """Run the tests without Python. Returns the first exit code that is not 0, or 0."""
    programs = compiled(name, *CPP, "stress") / "cpp"
    for command in (*([program] for program in CPP), ["stress", "--seconds", seconds]):
        code = subprocess.run([str(programs / command[0]), *command[1:]]).returncode
        if code:
            return code
    return 0


def main() -> None:
    """Build, test, report."""
    if len(sys.argv) < 2 or sys.argv[1] not in SANITIZERS:
        sys.exit(__doc__)
    name, *arguments = sys.argv[1:]
    if arguments[:1] == ["--stress"]:
        sys.exit(stress(name, *arguments[1:]))
    code = test(name, arguments)
    found = findings(name)
    if found:
        sys.exit(f"{name}: the sanitizer found\n{found}")
    sys.exit(f"{name}: pytest died of signal {-code}" if code < 0 else code)


if __name__ == "__main__":
    main()
