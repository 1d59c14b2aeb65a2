"""Measures the libraries on all of gpu.txt, in turns; prints a line of JSON for each workload.

`python -m benchmarks.gpu_worker ROUNDS SECONDS LIBRARIES`
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

ROOT = str(Path(__file__).resolve().parent.parent)
# Prefer an installed gemel to the source tree, whose core may not be compiled.
sys.path[:] = [entry for entry in sys.path if entry not in ("", ROOT)] + [ROOT]

from benchmarks.driver import Result, compare  # noqa: E402
from benchmarks.gpu import TOLERANCE, Workload, workloads  # noqa: E402
from benchmarks.gpu_libraries import Call, Library, on_gpu  # noqa: E402
from benchmarks.shapes import digest  # noqa: E402

#: Calls before the first timed one. The result of the last is checked: after so many training steps
#: the loss would show a wrong update.
WARM_UP = 20


def use_peers() -> None:
    """Find what the peers' environment has installed and this one lacks."""
    peers = os.environ.get("GEMEL_PEERS", sys.executable)
    script = "import sys, sysconfig; print(sys.version_info[:2], sysconfig.get_path('purelib'))"
    done = subprocess.run([peers, "-c", script], capture_output=True, text=True)
    version, _, folder = done.stdout.strip().rpartition(" ")
    if version == str(sys.version_info[:2]) and folder not in sys.path:
        sys.path.append(folder)


def opened(names: list[str]) -> tuple[list[Library], dict[str, str]]:
    """The libraries that can use the GPU, and why the others cannot."""
    found, left_out = [], {}
    for name in names:
        try:
            found.append(on_gpu(name))
        except ImportError:
            left_out[name] = "not installed"
        except Exception as error:
            left_out[name] = f"cannot use the GPU ({first_line(error)})"
    return found, left_out


def first_line(error: Exception) -> str:
    """What an exception says, in a line."""
    text = str(error).strip().splitlines() or [""]
    return f"{type(error).__name__}: {text[0]}"


class Contest:
    """One workload, and what the libraries do with it."""

    def __init__(self, workload: Workload, libraries: list[Library]) -> None:
        self.workload = workload
        self.libraries = {each.name: each for each in libraries if each.name in workload.ways}
        self.calls: dict[str, Call] = {}
        self.failures: dict[str, str] = {}

    def prepare(self) -> None:
        """Make the calls, and compare what they give. Those that differ are not timed."""
        results = [Result(name, [], [], *self._values(name)) for name in self.libraries]
        for result in compare(results, TOLERANCE):
            if result.failure:
                self.failures[result.name] = result.failure
                self.calls.pop(result.name, None)

    def _values(self, name: str) -> tuple[list[float], str]:
        """Numbers that stand for the last result of the warm-up, and why there are none."""
        library = self.libraries[name]
        try:
            call = self.calls[name] = library.call(self.workload)
            for _ in range(WARM_UP):
                result = call()
            library.wait(result)
            return digest([library.numbers(result)]), ""
        except Exception as error:
            return [], first_line(error)

    def seconds(self, name: str, count: int) -> float:
        """How long a number of calls takes, until the GPU has done them."""
        call, wait = self.calls[name], self.libraries[name].wait
        begin = time.perf_counter()
        for _ in range(count):
            result = call()
        wait(result)
        return time.perf_counter() - begin

    def measure(self, rounds: int, seconds: float) -> dict[str, list[float]]:
        """The microseconds of a call in each round; the libraries take turns."""
        counts = {name: self._count(name, seconds) for name in self.calls}
        found: dict[str, list[float]] = {name: [] for name in counts}
        for _ in range(rounds):
            for name, count in counts.items():
                found[name].append(self.seconds(name, count) / count * 1e6)
        return found

    def _count(self, name: str, seconds: float) -> int:
        """How many calls take about so many seconds."""
        count = 1
        while (spent := self.seconds(name, count)) < seconds:
            count = max(count + 1, int(count * min(10.0, 1.1 * seconds / max(spent, 1e-9))))
        return count


def say(answer: dict[str, Any]) -> None:
    print(json.dumps(answer), flush=True)


def main() -> None:
    """Measure what the arguments name."""
    rounds, seconds, names = int(sys.argv[1]), float(sys.argv[2]), sys.argv[3].split(",")
    from gemel import _core, num_gpus

    if num_gpus() == 0:
        say({"none": "there is no GPU that CUDA can use, so nothing is measured"})
        return
    use_peers()
    libraries, left_out = opened(names)
    kept = [each.name for each in libraries]
    name, _, _ = _core.describe_gpu(0)
    say({"gpu": name, "libraries": kept, "left_out": left_out})
    for workload in workloads():
        contest = Contest(workload, libraries)
        contest.prepare()
        us = contest.measure(rounds, seconds)
        say({"name": workload.name, "us": us, "failures": contest.failures})


if __name__ == "__main__":
    main()
