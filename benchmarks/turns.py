"""Runs each library in its own process; the processes take turns on one shape after another."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from threading import Timer
from time import sleep
from typing import NamedTuple

from benchmarks.contenders import BY_NAME
from benchmarks.driver import (
    TIMEOUT_SECONDS,
    Answer,
    Result,
    add_answer,
    compare,
    environment_of,
    held,
    importable,
    interpreter_of,
)
from benchmarks.machine import ROOT
from benchmarks.shapes import Shape

#: The pause before each turn. Idle threads of the library before spin for a while, OpenMP's for
#: 0.2 s, and must be asleep by then. With a pause of 5 ms, attention took 20 ms on two cores among
#: five libraries, and 12.5 ms alone.
PAUSE_SECONDS = 0.25


class Effort(NamedTuple):
    """How long to measure: processes (`rounds`), turns in each, and the seconds of a turn."""

    rounds: int
    turns: int
    seconds: float
    #: Whether to measure processor time on one core, not wall-clock time, for a busy machine.
    processor: bool = False

    @property
    def threads(self) -> tuple[int, ...]:
        """The numbers of threads to measure with."""
        return (1,) if self.processor else (1, 2)


class Process:
    """A process in which a library measures shapes; it is started again if it has died."""

    def __init__(self, library: str, threads: int) -> None:
        self.library = library
        self.threads = threads
        self.process: subprocess.Popen[str] | None = None

    def start(self) -> subprocess.Popen[str]:
        command = [interpreter_of(self.library), "-m", "benchmarks.turns_worker", self.library]
        return subprocess.Popen(
            held(command, self.threads),
            cwd=ROOT,
            env=environment_of(self.threads),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    def ask(self, shape: Shape, seconds: float, processor: bool) -> Answer | str | None:
        """The answer, a text that says why there is none, or None if the shape is not supported."""
        if self.process is None or self.process.poll() is not None:
            self.process = self.start()
        given, taken = self.process.stdin, self.process.stdout
        assert given is not None and taken is not None
        question = {"shape": shape._asdict(), "threads": self.threads, "seconds": seconds}
        question["processor"] = processor
        limit = Timer(TIMEOUT_SECONDS, self.process.kill)
        limit.start()
        try:
            print(json.dumps(question), file=given, flush=True)
            line = taken.readline()
        except BrokenPipeError:
            line = ""
        limit.cancel()
        answer: Answer | str | None = json.loads(line) if line else "its process has ended"
        return answer

    def stop(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.communicate()


def installed(names: Sequence[str], only: str | None) -> list[str]:
    """The libraries that are wanted and installed. Prints which are missing."""
    wanted = [name for name in names if only is None or name in only.split(",")]
    found = [name for name in wanted if importable(interpreter_of(name), BY_NAME[name].requires)]
    for name in set(wanted) - set(found):
        print(f"{name}: not installed, left out")
    return found


def measure(
    shapes: Sequence[Shape],
    libraries: Sequence[str],
    threads: int,
    effort: Effort,
    reference: str | None = None,
) -> list[dict[str, Result]]:
    """Measure each library on each shape.

    `reference` is another library, which computes each shape once for comparison.
    """
    names = [*libraries, *([reference] if reference else [])]
    found = [{name: Result(name, [], [], []) for name in names} for _ in shapes]
    for _ in range(effort.rounds):
        processes = [Process(name, threads) for name in names]
        try:
            for number, (shape, results) in enumerate(zip(shapes, found, strict=True)):
                show(f"{number + 1}/{len(shapes)} {shape.kind}, {threads} threads")
                for _ in range(effort.turns):
                    take_turns(processes, shape, results, effort, reference)
        finally:
            for process in processes:
                process.stop()
    show("")
    return [
        {result.name: result for result in compare(list(results.values()), shape.tolerance)}
        for shape, results in zip(shapes, found, strict=True)
    ]


def take_turns(
    processes: list[Process],
    shape: Shape,
    results: dict[str, Result],
    effort: Effort,
    reference: str | None,
) -> None:
    """Ask each process once, and add its answer to `results`."""
    for process in processes:
        name = process.library
        result = results.get(name)
        if result is None or result.failure or (name == reference and result.done):
            continue
        sleep(PAUSE_SECONDS)
        answer = process.ask(shape, effort.seconds * (name != reference), effort.processor)
        if answer is None:
            del results[name]
        else:
            results[name] = add_answer(result, answer, shape.tolerance)


def show(text: str) -> None:
    """Show the progress, if standard error is a terminal."""
    if sys.stderr.isatty():
        print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)
