"""Checks the tests of the engine: they must find known bugs that are inserted into it.

    python tools/mutations.py [--seconds N] [--only NAME]

Each mutation is a bug: a few replacements in one source file. To build a mutant, that file is
compiled and linked with the other object files of the sanitizer build (tools/sanitize.py). Then the
engine's stress program runs on the mutant. If the bug is in code that only Python reaches, a file
of the Python tests runs instead. It is an error if a mutant is not found, or if the text to replace
is no longer in the sources exactly once.
"""

from __future__ import annotations

import argparse
import os
import shlex
import subprocess
import sys
import sysconfig
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import sanitize
from sanitize import ROOT

BUILD = ROOT / "build" / "mutations"
# AddressSanitizer poisons freed blocks, so it finds any access to one at once.
SANITIZER = "address"
#: Seconds beyond `--seconds` after which a program counts as hanging.
PATIENCE = 40


class Mutation(NamedTuple):
    """A bug: (old, new) texts to replace in a file below src/.

    `test` names the Python tests that must find it, tests/test_NAME.py. If it is empty, the stress
    program must find it.
    """

    name: str
    file: str
    changes: tuple[tuple[str, str], ...]
    test: str = ""


RELEASE = """    for (const Request& request : operation->requests()) request.storage->release();
"""


#: Words in the line of the output that says how the bug was noticed.
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
        "python/op_into.cc",
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


def mutated(mutation: Mutation) -> str:
    """The text of the file with the bug in it."""
    text = (ROOT / "src" / mutation.file).read_text()
    for old, new in mutation.changes:
        if text.count(old) != 1:
            sys.exit(f"{mutation.name}: {text.count(old)} times in {mutation.file}: {old}")
        text = text.replace(old, new)
    return text


def run(mutation: Mutation, command: list[str]) -> None:
    """Run a compiler command in the build folder of the sanitizer build."""
    folder = sanitize.core(SANITIZER)
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{mutation.name}: {' '.join(command)}\n{done.stdout}{done.stderr}")


def made(mutation: Mutation, target: str) -> Path:
    """Build a target of the sanitizer build with the bug in it. Returns its path."""
    folder = BUILD / mutation.name
    folder.mkdir(parents=True, exist_ok=True)
    ninja = [sysconfig.get_path("scripts") + "/ninja", "-t", "commands", target]
    told = subprocess.check_output(ninja, cwd=sanitize.core(SANITIZER), text=True)
    *others, last = told.splitlines()
    original = str(ROOT / "src" / mutation.file)
    (line,) = (line for line in others if line.endswith(f" -c {original}"))
    source, thing = folder / Path(original).name, folder / "mutant.o"
    source.write_text(mutated(mutation))
    compiling = shlex.split(line)
    place = compiling.index("-o") + 1
    right, compiling[place], compiling[-1] = compiling[place], str(thing), str(source)
    run(mutation, compiling)
    # The mutant comes first, so the linker takes nothing from the original, even in an archive.
    linking = [word for word in shlex.split(last) if word not in (":", "&&", right)]
    place = linking.index("-o") + 1
    result = folder / Path(linking[place]).name
    run(mutation, [*linking[:place], str(result), str(thing), *linking[place + 1 :]])
    return result


def command_of(mutation: Mutation, seconds: float) -> tuple[list[str], dict[str, str]]:
    """The command that must find the bug, and its environment variables."""
    if not mutation.test:
        return [str(made(mutation, "stress")), "--seconds", str(seconds)], dict(os.environ)
    module = made(mutation, "_core")
    package = sanitize.packaged(SANITIZER, module.parent / "package", module)
    pytest = [sysconfig.get_path("scripts") + "/pytest", "--capture=sys", "-q", "-x"]
    test = str(ROOT / "tests" / f"test_{mutation.test}.py")
    return [*pytest, test], sanitize.surroundings(SANITIZER, package)


def found(mutation: Mutation, seconds: float) -> str:
    """How the tests notice the bug; empty if they do not."""
    command, environment = command_of(mutation, seconds)
    limit = PATIENCE + seconds
    try:
        process = subprocess.run(
            command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=limit
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
    parser.add_argument(
        "--seconds", type=float, default=20, help="seconds of stress for each mutant (default: 20)"
    )
    parser.add_argument("--only", help="run only the mutation of this name")
    options = parser.parse_args()
    sanitize.compiled(SANITIZER, "stress", "_core", "gemel")
    chosen = [m for m in MUTATIONS if options.only in (None, m.name)]
    missed = []
    # Two at a time: while one waits for a program that hangs, the other can use the processor.
    with ThreadPoolExecutor(2) as pool:
        answers = pool.map(lambda mutation: found(mutation, options.seconds), chosen)
        for mutation, how in zip(chosen, answers, strict=True):
            print(f"{mutation.name}: {'found: ' + how[:110] if how else 'NOT FOUND'}", flush=True)
            if not how:
                missed.append(mutation.name)
    sys.exit(f"mistakes the tests do not find: {', '.join(missed)}" if missed else 0)


if __name__ == "__main__":
    main()
