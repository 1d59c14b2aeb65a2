"""Checks the tests of the engine: builds it with a known mistake in it, which they must find.

    python tools/mutations.py [--seconds N] [--only NAME]

Each mutation is one replacement in one source file, made in a copy of the sources. The engine's
stress program runs on the mutant (or, where the mistake is in the front end, the random programs of
tests/test_random_programs.py). A mutant that is not found is an error, as is a replacement that no
longer matches the sources.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
BUILD = ROOT / "build" / "mutations"


class Mutation(NamedTuple):
    """A mistake: texts of a file are replaced. `core`: the file is in the Python front end."""

    name: str
    file: str
    changes: tuple[tuple[str, str], ...]
    core: bool = False


RELEASE = """    for (const Request& request : operation->requests()) request.storage->release();
"""


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
        (("if (!copy_overlapping(&operands, target, &copies)) return false;", ""),),
        core=True,
    ),
)


def mutate(mutation: Mutation) -> Path:
    """A copy of the sources with the mistake in it."""
    tree = BUILD / mutation.name
    shutil.rmtree(tree, ignore_errors=True)
    for folder in ("src", "tests", "gemel"):
        ignored = shutil.ignore_patterns("__pycache__", "*.so")
        shutil.copytree(ROOT / folder, tree / folder, ignore=ignored)
    for file in ("CMakeLists.txt", "pyproject.toml"):
        shutil.copy(ROOT / file, tree)
    path = tree / "src" / mutation.file
    text = path.read_text()
    for old, new in mutation.changes:
        if text.count(old) != 1:
            sys.exit(f"{mutation.name}: {text.count(old)} times in {path.name}: {old}")
        text = text.replace(old, new)
    path.write_text(text)
    return tree


def build_stress(tree: Path) -> list[str]:
    """Compile the stress program; the command that runs it."""
    folders = ("memory", "engine", "program")
    sources = [str(path) for name in folders for path in (tree / "src" / name).glob("*.cc")]
    sources.append(str(tree / "tests" / "cpp" / "stress.cc"))
    program = str(tree / "stress")
    compiler = os.environ.get("CXX", "c++")
    # Freed blocks are poisoned under AddressSanitizer: who touches one is found at once.
    options = ["-std=c++20", "-O1", "-g", "-fsanitize=address", "-pthread", f"-I{tree / 'src'}"]
    subprocess.run([compiler, *options, *sources, "-o", program], check=True)
    return [program]


def build_core(tree: Path) -> list[str]:
    """Compile the core next to its package; the command that runs the random programs."""
    folder = tree / "build"
    configure = [
        "cmake",
        "-S",
        str(tree),
        "-B",
        str(folder),
        "-DCMAKE_BUILD_TYPE=Release",
        "-Wno-dev",
    ]
    configure += [f"-DPython_EXECUTABLE={sys.executable}", "-DSKBUILD_PROJECT_NAME=gemel"]
    tools = f"{sysconfig.get_path('scripts')}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": tools}
    quiet = {"env": environment, "check": True, "capture_output": True}
    subprocess.run(configure, **quiet)
    subprocess.run(["cmake", "--build", str(folder), "-j", str(os.cpu_count() or 1)], **quiet)
    for library in folder.glob("_core*.so"):
        shutil.copy(library, tree / "gemel")
    program = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider"]
    return [*program, str(tree / "tests" / "test_random_programs.py")]


def found(mutation: Mutation, seconds: float) -> str:
    """How the tests notice the mistake; empty when they do not."""
    tree = mutate(mutation)
    command = build_core(tree) if mutation.core else build_stress(tree)
    if not mutation.core:
        command += ["--seconds", str(seconds)]
    environment = {**os.environ, "PYTHONPATH": str(tree)}
    try:
        process = subprocess.run(
            command,
            cwd=tree,
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
    told = [line for line in lines if "differs" in line or "ERROR" in line or "failure" in line]
    return (told or lines or ["it fails"])[0].strip()


def main() -> None:
    """Build and run every mutant."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=20, help="of stress for each mutant")
    parser.add_argument("--only", help="the name of one mutation")
    options = parser.parse_args()
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
