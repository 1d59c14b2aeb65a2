"""All environment variables that gemel reads, in one list: type, default and meaning."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from math import inf
from typing import Any

from gemel.errors import ArgumentError, UnknownNameError

YES, NO = ("1", "true", "on", "yes"), ("0", "false", "off", "no")
#: More than any count or size; the core's integers have 64 bits.
LARGEST = (1 << 63) - 1
#: More threads than that are a mistake.
MOST_WORKERS = 4096
#: What the names of gemel's own variables begin with, and how alike a misspelt one is.
_PREFIX, _ALIKE = "GEMEL_", 0.7


class Variable:
    """One setting: its `name` in the environment, its default, and what it means.

    A text is one of the `choices`, if there are any; a number is at least `least` and at most
    `most`, by default the core's largest integer, or infinity.
    """

    __slots__ = ("choices", "default", "doc", "least", "most", "name")

    def __init__(
        self,
        name: str,
        default: Any,
        doc: str,
        choices: tuple[str, ...] = (),
        least: float = 0,
        most: float | None = None,
    ) -> None:
        self.name = name
        self.default = default
        self.doc = doc
        self.choices = choices
        self.least = least
        self.most = most if most is not None else inf if isinstance(default, float) else LARGEST

    def read(self) -> Any:
        """The environment's value in the type of the default.

        Raises `UnknownNameError` for an unknown word, and `ArgumentError` for what is no number, or
        one out of range.
        """
        text = os.environ.get(self.name)
        if text is None or text == "":
            return self.default
        if self.choices and text not in self.choices:
            raise UnknownNameError(
                f"{self.name}={text!r}: must be one of {', '.join(self.choices)}"
            )
        if isinstance(self.default, bool):
            if text.lower() not in YES + NO:
                raise UnknownNameError(
                    f"{self.name}={text!r}: must be one of {', '.join(YES + NO)}"
                )
            return text.lower() in YES
        if isinstance(self.default, int):
            return self._number(text, int)
        if isinstance(self.default, float):
            return self._number(text, float)
        return text

    def _number(self, text: str, kind: type[int] | type[float]) -> int | float:
        try:
            number = kind(text)
            if self.least <= number <= self.most:
                return number
        except ValueError:
            pass
        wanted = "a number" if kind is float else "a whole number"
        ends = {inf: "", LARGEST: " to 2**63 - 1"}
        end = ends.get(self.most, f" to {self.most:g}")
        raise ArgumentError(f"{self.name}={text!r}: must be {wanted} from {self.least:g}{end}")


def check() -> None:
    """Read all variables, so that a mistake is an error at the start. Raises what `read` raises."""
    for each in ALL:
        each.read()


def misspelt() -> list[str]:
    """What to warn of: variables of the environment that gemel does not read, each with the name
    that may have been meant. Variables of others, such as a launcher's, are like none of gemel's.
    """
    known = {each.name for each in ALL}
    unknown = [name for name in os.environ if name.startswith(_PREFIX) and name not in known]
    if not unknown:
        return []
    from difflib import get_close_matches

    # Without what all names begin with, by which every one would be like every other.
    meant = [name.removeprefix(_PREFIX) for name in known if name.startswith(_PREFIX)]
    found = []
    for name in sorted(unknown):
        for near in get_close_matches(name.removeprefix(_PREFIX), meant, 1, _ALIKE):
            found.append(f"{name} has no effect; did you mean {_PREFIX}{near}?")
    return found


WORKERS = Variable(
    "GEMEL_WORKERS",
    -1,
    "engine threads besides the calling one; -1: one for every other core",
    least=-1,
    most=MOST_WORKERS,
)
ENGINE = Variable(
    "GEMEL_ENGINE",
    "threaded",
    "serial runs every operation on the calling thread",
    ("threaded", "serial"),
)
QUEUE_OPERATIONS = Variable(
    "GEMEL_QUEUE_OPS", 1024, "pending operations at which issuing another one waits", least=1
)
QUEUE_BYTES = Variable(
    "GEMEL_QUEUE_BYTES",
    0,
    "bytes running operations may allocate; 0: a quarter of the RAM or of the container's limit",
)
AHEAD_BYTES = Variable(
    "GEMEL_AHEAD_BYTES",
    32 << 20,
    "bytes, per device, of results that may be computed ahead of older operations",
    least=1,
)
CUDA = Variable("GEMEL_CUDA", True, "use this machine's GPUs; 0 leaves them alone")
SIMULATED_GPUS = Variable("GEMEL_SIMULATED_GPUS", 0, "simulated GPUs, 0 to 8", most=8)
SIMULATED_BANDWIDTH = Variable(
    "GEMEL_SIMULATED_BANDWIDTH",
    12.0,
    "bandwidth of a simulated GPU's link, in GB/s in each direction",
    least=1e-6,
    most=1e9,
)
SIMULATED_LATENCY = Variable(
    "GEMEL_SIMULATED_LATENCY",
    10.0,
    "latency of a copy over a simulated link, in microseconds",
    most=1e7,
)
TARGET = Variable(
    "GEMEL_TARGET",
    "",
    "instruction set of the kernels; default: the host's",
    ("avx512", "avx2", "generic"),
)
WINOGRAD = Variable(
    "GEMEL_WINOGRAD",
    "auto",
    "when to use Winograd's scheme for 3 x 3 convolutions; auto: where it is faster",
    ("auto", "never", "always"),
)
CACHE = Variable(
    "GEMEL_CACHE",
    "",
    "folder of cached kernels and plans; default: gemel in XDG_CACHE_HOME, or ~/.cache/gemel",
)
CACHE_BYTES = Variable(
    "GEMEL_CACHE_BYTES",
    256 << 20,
    "bytes for that folder; every sixteenth new file, on average, cuts its own of the 256 folders "
    "inside down to its share, the least recently used files first",
)
KEEP_BYTES = Variable(
    "GEMEL_KEEP_BYTES",
    1 << 30,
    "bytes that a program may use to keep values derived from its parameters between calls",
)
VERIFY = Variable("GEMEL_VERIFY", False, "check every graph after every pass")
UNSEEN_ERRORS = Variable(
    "GEMEL_UNSEEN_ERRORS",
    "fail",
    "errors that nothing has raised by exit: fail exits with code 70, warn only prints them",
    ("fail", "warn"),
)
TRACEBACK = Variable(
    "GEMEL_TRACEBACK",
    "short",
    "full also shows gemel's own frames in tracebacks",
    ("short", "full"),
)
HOME = Variable(
    "MXNET_HOME", "", "folder of data sets, and of trained parameters (models); default: ~/.mxnet"
)
REPOSITORY = Variable(
    "MXNET_GLUON_REPO",
    "https://apache-mxnet.s3-accelerate.dualstack.amazonaws.com/",
    "where data sets are downloaded from",
)
SERVERS = Variable("GEMEL_SERVERS", "", "parameter servers of the job: host:port,host:port")
RANK = Variable("GEMEL_RANK", -1, "rank of this worker in the job, from 0", least=-1)
NUM_WORKERS = Variable("GEMEL_NUM_WORKERS", 0, "number of workers of the job")
SECRET = Variable(
    "GEMEL_SECRET", "", "shared secret of the job's workers and servers, at least 8 bytes"
)
RESTARTS = Variable("GEMEL_RESTARTS", 0, "how often this worker has been restarted")
WAIT_SECONDS = Variable(
    "GEMEL_WAIT_SECONDS", 60.0, "seconds that a worker waits for a server's answer"
)
REACH_SECONDS = Variable(
    "GEMEL_REACH_SECONDS", 30.0, "seconds after which an unreachable server counts as lost"
)
SILENT_SECONDS = Variable(
    "GEMEL_SILENT_SECONDS",
    10.0,
    "seconds without a message after which a connection counts as dead",
)
STALENESS = Variable(
    "GEMEL_STALENESS", 8, "pushes by which a worker of dist_async may be ahead of the slowest one"
)
PIECE = Variable(
    "GEMEL_PIECE",
    1 << 18,
    "elements above which an array is split over several servers",
    least=1,
)
WORKERS_TIMEOUT = Variable(
    "GEMEL_WORKERS_TIMEOUT", 300.0, "seconds that the workers of a job wait for each other"
)
SCHEDULE = Variable(
    "GEMEL_SCHEDULE",
    "ranks",
    "how workers of dist_sync sum gradients over MPI; the same on all of them",
)
SOCKETS = Variable(
    "GEMEL_SOCKETS",
    "all",
    "network interface, such as eth0, for the direct sockets between workers of dist_sync; "
    "all: any interface; none: MPI only, for all workers if any one sets it",
)
MEASURE_SECONDS = Variable(
    "GEMEL_MEASURE_SECONDS",
    0.3,
    "seconds in which joining workers of dist_sync measure how to sum fastest; 0: do not measure",
)
DEBUG = Variable(
    "GEMEL_DEBUG",
    0,
    "1 prints what is compiled, 2 also the kernels' programs and why products get theirs",
    most=2,
)

ALL = (
    WORKERS,
    ENGINE,
    QUEUE_OPERATIONS,
    QUEUE_BYTES,
    AHEAD_BYTES,
    CUDA,
    SIMULATED_GPUS,
    SIMULATED_BANDWIDTH,
    SIMULATED_LATENCY,
    TARGET,
    WINOGRAD,
    CACHE,
    CACHE_BYTES,
    KEEP_BYTES,
    VERIFY,
    UNSEEN_ERRORS,
    TRACEBACK,
    HOME,
    REPOSITORY,
    SERVERS,
    RANK,
    NUM_WORKERS,
    SECRET,
    RESTARTS,
    WAIT_SECONDS,
    REACH_SECONDS,
    SILENT_SECONDS,
    STALENESS,
    PIECE,
    WORKERS_TIMEOUT,
    SCHEDULE,
    SOCKETS,
    MEASURE_SECONDS,
    DEBUG,
)


def explain(text: Callable[[], str]) -> None:
    """Say under GEMEL_DEBUG=2 what was decided, and from which numbers."""
    if DEBUG.read() > 1:
        print(f"gemel: {text()}", file=sys.stderr)


def describe() -> str:
    """One line per variable, for `python -m gemel -h`: name, meaning, choices, default."""
    lines = []
    for each in ALL:
        choices = f"; one of {', '.join(each.choices)}" if each.choices else ""
        value = int(each.default) if isinstance(each.default, bool) else each.default
        default = "" if value == "" else f" ({value})"
        lines.append(f"{each.name:26}{each.doc}{choices}{default}")
    return "\n".join(lines)


def threads_of_share(processes: int) -> int:
    """The GEMEL_WORKERS of each of so many processes that share this machine: its part of the
    cores, but at least one besides the program's thread, so that work continues while that
    waits."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return max(1, (cores or 1) // processes - 1)
