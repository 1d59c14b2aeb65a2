"""Runs each contender in its own process, in turns, and compares their results."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import numpy

from benchmarks.contenders import BY_NAME, TAKING_PART
from benchmarks.machine import BUILD, ROOT
from benchmarks.workloads import Workload

TIMEOUT_SECONDS = 300

Answer = dict[str, Any]


class Result(NamedTuple):
    """What the processes of one contender measured, in microseconds per call."""

    name: str
    issue: list[float]
    done: list[float]
    values: list[float]
    failure: str = ""

    @property
    def done_us(self) -> float:
        """The time until results are ready: the median over the processes."""
        return median(self.done)

    @property
    def issue_us(self) -> float:
        """The time until the call returns: the median over the processes."""
        return median(self.issue)

    @property
    def ours(self) -> bool:
        """Whether this is gemel."""
        return BY_NAME[self.name].ours


def peers_interpreter() -> str:
    """The Python that has the peers: GEMEL_PEERS, else .venv-peers, else this one."""
    named = os.environ.get("GEMEL_PEERS")
    if named:
        path = Path(named)
        return str(path / "bin" / "python" if path.is_dir() else path)
    made = ROOT / ".venv-peers" / "bin" / "python"
    return str(made) if made.exists() else sys.executable


def interpreter_of(name: str) -> str:
    """The Python a contender runs in."""
    return sys.executable if BY_NAME[name].ours else peers_interpreter()


def importable(interpreter: str, modules: tuple[str, ...]) -> bool:
    """Whether `interpreter` finds all `modules`, installed or in this source tree."""
    script = "import sys; from importlib.util import find_spec as find; "
    script += "sys.exit(any(find(name) is None for name in sys.argv[1:]))"
    return subprocess.run([interpreter, "-c", script, *modules], cwd=ROOT).returncode == 0


def has_torch(what: str) -> bool:
    """Whether gemel and torch are installed. Otherwise prints that `what` needs torch."""
    found = all(importable(interpreter_of(name), (name,)) for name in ("gemel", "torch"))
    if not found:
        print(f"{what}: torch is not installed (make peers)")
    return found


def contenders_of(kind: str, quick: bool) -> list[str]:
    """The installed contenders of a workload. Prints the names of those not installed."""
    names = []
    for name in TAKING_PART[kind]:
        contender = BY_NAME[name]
        if quick and contender.slow_start:
            continue
        if importable(interpreter_of(name), contender.requires):
            names.append(name)
        else:
            print(f"{name}: not installed, left out")
    return names


def environment_of(threads: int) -> dict[str, str]:
    """The environment that limits every library to `threads` threads."""
    environment = dict(os.environ)
    for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        environment[variable] = str(threads)
    environment["GEMEL_WORKERS"] = str(threads - 1)
    environment["JAX_PLATFORMS"] = "cpu"
    environment["TORCHINDUCTOR_CACHE_DIR"] = str(BUILD / "inductor")
    if threads == 1:
        flags = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
        environment["XLA_FLAGS"] = flags
    return environment


def held(command: list[str], threads: int) -> list[str]:
    """Pin a command to one core if one thread is measured: variables do not limit all threads."""
    tool = shutil.which("taskset") if threads == 1 else None
    if tool is None:
        return command
    return [tool, "--cpu-list", str(max(os.sched_getaffinity(0))), *command]


def run_once(name: str, workload: Workload, repeats: int, seconds: float) -> Answer | str:
    """Run one process. Returns its answer, or a text that says why there is none."""
    options = {**workload._asdict(), "repeats": repeats, "seconds": seconds}
    command = [interpreter_of(name), "-m", "benchmarks.worker", name, json.dumps(options)]
    return answer_of(held(command, workload.threads), environment_of(workload.threads))


def answer_of(command: list[str], environment: dict[str, str]) -> Answer | str:
    """The last line a process prints, from JSON, or a text that says why there is no answer."""
    try:
        process = subprocess.run(
            command,
            cwd=ROOT,
            env=environment,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_SECONDS,
        )
    except subprocess.TimeoutExpired:
        return f"no answer within {TIMEOUT_SECONDS} s"
    if process.returncode != 0:
        return reason(process)
    answer: Answer = json.loads(process.stdout.strip().splitlines()[-1])
    return answer


def in_turns(
    module: str,
    arguments: Mapping[str, Sequence[object]],
    threads: int,
    rounds: int,
) -> dict[str, list[Any]]:
    """Run a module for each library, with its arguments, in turns. Returns the answers."""
    answers: dict[str, list[Any]] = {library: [] for library in arguments}
    environment = environment_of(threads)
    for _ in range(rounds):
        for library, given in arguments.items():
            command = [interpreter_of(library), "-m", module, library, *map(str, given)]
            answer = answer_of(held(command, threads), environment)
            if isinstance(answer, str):
                print(f"{library} FAILED: {answer}\n")
            else:
                answers[library].append(answer)
    return answers


def reason(process: subprocess.CompletedProcess[str]) -> str:
    """Why a process failed: the last exception that it printed, else its last line."""
    lines = process.stderr.strip().splitlines() or [f"exit status {process.returncode}"]
    exceptions = [line for line in lines if re.match(r"[\w.]+(Error|Exception|Interrupt)\b", line)]
    return (exceptions or lines)[-1]


def measure(
    workload: Workload, names: list[str], rounds: int, repeats: int, seconds: float
) -> list[Result]:
    """Run every contender once per round, round after round, then compare their results."""
    results = {name: Result(name, [], [], []) for name in names}
    for number in range(rounds):
        for name in names:
            result = results[name]
            if result.failure:
                continue
            if sys.stderr.isatty():
                print(f"\r\033[K{number + 1}/{rounds} {name}", end="", file=sys.stderr, flush=True)
            answer = run_once(name, workload, repeats, seconds)
            results[name] = add_answer(result, answer, workload.tolerance)
    if sys.stderr.isatty():
        print("\r\033[K", end="", file=sys.stderr)
    return compare(list(results.values()), workload.tolerance)


def add_answer(result: Result, answer: Answer | str, tolerance: float) -> Result:
    """`result` with the answer of one more process."""
    if isinstance(answer, str):
        return result._replace(failure=answer)
    values = [float(value) for value in answer["values"]]
    if result.values and not agree(values, result.values, tolerance):
        return result._replace(failure="results differ from process to process")
    issue, done = float(answer["issue_us"]), float(answer["done_us"])
    return Result(result.name, [*result.issue, issue], [*result.done, done], values)


def agree(left: list[float], right: list[float], tolerance: float) -> bool:
    """Whether two lists of results are the same up to rounding."""
    if len(left) != len(right):
        return False
    return bool(numpy.allclose(left, right, rtol=tolerance, atol=tolerance))


def compare(results: list[Result], tolerance: float) -> list[Result]:
    """Mark contenders as failed whose results differ from the median of all."""
    lengths = [len(result.values) for result in results if not result.failure]
    if not lengths:
        return results
    length = max(set(lengths), key=lengths.count)
    rows = [r.values for r in results if not r.failure and len(r.values) == length]
    reference = [float(value) for value in numpy.median(numpy.array(rows), axis=0)]
    checked = []
    for result in results:
        if not result.failure and not agree(result.values, reference, tolerance):
            result = result._replace(failure="results differ from the others'")
        checked.append(result)
    return checked
