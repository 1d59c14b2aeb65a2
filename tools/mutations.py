"""Checks the tests of the engine: builds it with a known mistake in it, which they must find.

    python tools/mutations.py [--seconds N] [--only NAME]

Each mutation is one replacement in one source file, made in a copy of the sources, of which the
next build compiles that file alone. The engine's stress program runs on the mutant or, where the
mistake is in what only Python reaches, a file of the Python tests. A mutant that is not found is an
error, as is a replacement that no longer matches the sources.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
BUILD = ROOT / "build" / "mutations"
TREE = BUILD / "tree"


class Mutation(NamedTuple):
    """A mistake: texts of a file are replaced. `test`: the Python tests that find it."""

    name: str
    file: str
    changes: tuple[tuple[str, str], ...]
    test: str = ""


RELEASE = """    for (const Request& request : operation->requests()) request.storage->release();
"""


#: What stands in the line that says how a mistake shows.
TELLING = ("differs", "ERROR", "failure", "FAILED")

MUTATIONS = (
    Mutation(
        "write-after-read",
        "engine/scheduler.cc",
        (
            (
                "if (no_writer && (!request.write || no_reader)) grant(request);",
                "if (no_writer) grant(request);",
            ),
        ),
    ),
    Mutation(
        "released-too-early",
        "engine/execute.cc",
        (
            (RELEASE, ""),
            (
                "  ++operation_depth;\n  ++operations",
                RELEASE + "  ++operation_depth;\n  ++operations",
            ),
        ),
    ),
    Mutation(
        "lost-wake-up",
        "engine/waking.cc",
        (
            (
                "if (!done(*parker->taker->condition)) return false;",
                "if (!done(*parker->taker->condition) || parker->taker->condition->kind == "
                "Condition::Kind::kWritten) return false;",
            ),
        ),
    ),
    Mutation(
        "end-wakes-nobody",
        "engine/execute.cc",
        (
            (
                "    ended = end(operation, replaced);\n    look_again();\n    restore(wakes);",
                "    ended = end(operation, replaced);\n    look_again();\n"
                "    if (own_taker != nullptr) restore(wakes);",
            ),
        ),
    ),
    Mutation(
        "stream-lets-others-pass",
        "engine/scheduler.cc",
        (("(lane_ == operation->lane && operation->updates.empty())", "lane_ >= 0"),),
    ),
    Mutation(
        "view-aliasing",
        "python/op_type.cc",
        (("copy_overlapping(&operands, tensor, arguments, &copies);", ""),),
        test="random_programs",
    ),
    Mutation(
        "guard-forgotten",
        "program/bind.cc",
        (("return answer == guard.answer;", "return answer || !answer;"),),
        test="core_plans",
    ),
    Mutation(
        "temporaries-over-each-other",
        "program/bind.cc",
        (("|| all[index].first > all[other].last)", "|| all[index].first >= all[other].last)"),),
        test="core_plans",
    ),
)


def copy_sources() -> None:
    """A tree of which files may be changed, with nothing built yet."""
    shutil.rmtree(BUILD, ignore_errors=True)
    ignored = shutil.ignore_patterns("__pycache__", "*.so")
    for folder in ("src", "tests", "gemel"):
        shutil.copytree(ROOT / folder, TREE / folder, ignore=ignored)
    for file in ("CMakeLists.txt", "pyproject.toml"):
        shutil.copy(ROOT / file, TREE)


@contextmanager
def made(mutation: Mutation) -> Iterator[None]:
    """The mistake is in the tree."""
    path = TREE / "src" / mutation.file
    text = right = path.read_text()
    for old, new in mutation.changes:
        if text.count(old) != 1:
            sys.exit(f"{mutation.name}: {text.count(old)} times in {path.name}: {old}")
        text = text.replace(old, new)
    path.write_text(text)
    try:
        yield
    finally:
        path.write_text(right)


def build(source: Path, folder: Path, target: str, *options: str) -> None:
    """Compile with CMake what has changed."""
    tools = f"{sysconfig.get_path('scripts')}{os.pathsep}{os.environ['PATH']}"
    compiler = os.environ.get("CXX", "c++")
    configure = ["cmake", "-S", str(source), "-B", str(folder), "-G", "Ninja", "-Wno-dev"]
    configure += [f"-DCMAKE_CXX_COMPILER={compiler}", *options]
    for command in (configure, ["cmake", "--build", str(folder), "--target", target]):
        environment = {**os.environ, "PATH": tools}
        done = subprocess.run(command, env=environment, capture_output=True, text=True)
        if done.returncode:
            sys.exit(f"{' '.join(command)}\n{done.stdout}{done.stderr}")


def build_stress() -> list[str]:
    """Compile the stress program; the command that runs it."""
    # Freed blocks are poisoned under AddressSanitizer: who touches one is found at once.
    build(TREE / "tests" / "cpp", BUILD / "stress", "stress", "-DSANITIZER=address")
    return [str(BUILD / "stress" / "stress")]


def build_core(test: str) -> list[str]:
    """Compile the core next to its package; the command that runs the Python tests."""
    folder = BUILD / "core"
    names = (f"-DPython_EXECUTABLE={sys.executable}", "-DSKBUILD_PROJECT_NAME=gemel")
    build(TREE, folder, "_core", "-DCMAKE_BUILD_TYPE=Release", *names)
    for library in folder.glob("_core*.so"):
        shutil.copy(library, TREE / "gemel")
    program = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider"]
    return [*program, str(TREE / "tests" / f"test_{test}.py")]


def found(mutation: Mutation, seconds: float) -> str:
    """How the tests notice the mistake; empty when they do not."""
    with made(mutation):
        if mutation.test:
            command = build_core(mutation.test)
        else:
            command = [*build_stress(), "--seconds", str(seconds)]
    environment = {**os.environ, "PYTHONPATH": str(TREE)}
    try:
        process = subprocess.run(
            command,
            cwd=TREE,
            env=environment,
            capture_output=True,
            text=True,
            timeout=30 + seconds,
        )
    except subprocess.TimeoutExpired:
        return "it hangs"
    if process.returncode == 0:
        return ""
    lines = [line for line in (process.stderr + process.stdout).splitlines() if line.strip()]
    told = [line for line in lines if any(word in line for word in TELLING)]
    return (told or lines or ["it fails"])[0].strip()


def main() -> None:
    """Build and run every mutant."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=20, help="of stress for each mutant")
    parser.add_argument("--only", help="the name of one mutation")
    options = parser.parse_args()
    copy_sources()
    missed = []
    for mutation in MUTATIONS:
        if options.only not in (None, mutation.name):
            continue
        how = found(mutation, options.seconds)
        print(f"{mutation.name}: {'found: ' + how[:110] if how else 'NOT FOUND'}", flush=True)
        if not how:
            missed.append(mutation.name)
    sys.exit(f"mistakes the tests do not find: {', '.join(missed)}" if missed else 0)


if __name__ == "__main__":
    main()
