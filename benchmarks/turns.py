"""Libraries in processes of their own that take turns on one shape after another."""

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

#: After it threads of the one before, who look out for more work, are asleep: OpenMP's do so for
#: 0.2 s. With 5 ms attention took 20 ms on two cores beside five libraries, by itself 12.5.
PAUSE_SECONDS = 0.25


class Effort(NamedTuple):
    """How long to measure: so many turns in each of so many processes, so many seconds each."""

    rounds: int
    turns: int
    seconds: float
    #: Whether processor time counts, not the clock on the wall: on one core, on a busy machine.
    processor: bool = False

    @property
    def threads(self) -> tuple[int, ...]:
        """How many threads are measured."""
        return (1,) if self.processor else (1, 2)


class Process:
    """A library that measures what it is asked; started again when it has died."""

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
        """Its answer, why there is none, or None if it has nothing to say on this."""
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
    """Those of the libraries that are wanted and on this machine."""
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
    """What each library needs for each shape.

    `reference`, another library, computes every shape once, to compare with.
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
    """Ask each process once, and put its answer into `results`."""
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
    """Say on a terminal how far it is."""
    if sys.stderr.isatty():
        print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)
