"""Every environment variable gemel reads: its type, default and meaning, in one list."""

from __future__ import annotations

import os
from typing import Any

from gemel.errors import UnknownNameError


class Variable:
    """One setting: `name` in the environment, its default, and what it means."""

    __slots__ = ("choices", "default", "doc", "name")

    def __init__(self, name: str, default: Any, doc: str, choices: tuple[str, ...] = ()) -> None:
        self.name = name
        self.default = default
        self.doc = doc
        self.choices = choices

    def read(self) -> Any:
        """The environment's value, as the type of the default; or `UnknownNameError`."""
        text = os.environ.get(self.name)
        if text is None or text == "":
            return self.default
        if self.choices and text not in self.choices:
            raise UnknownNameError(
                f"{self.name}={text!r}: must be one of {', '.join(self.choices)}"
            )
        if isinstance(self.default, bool):
            return text.lower() not in ("0", "false", "off", "no")
        if isinstance(self.default, int):
            return _number(self.name, text, int, "an integer")
        if isinstance(self.default, float):
            return _number(self.name, text, float, "a number")
        return text


def _number(name: str, text: str, kind: type[int] | type[float], wanted: str) -> int | float:
    try:
        return kind(text)
    except ValueError:
        raise UnknownNameError(f"{name}={text!r}: must be {wanted}") from None


WORKERS = Variable(
    "GEMEL_WORKERS", -1, "engine threads beside the caller; -1 is one per other core"
)
ENGINE = Variable(
    "GEMEL_ENGINE", "threaded", "serial runs everything in the caller", ("threaded", "serial")
)
QUEUE_OPERATIONS = Variable("GEMEL_QUEUE_OPS", 1024, "operations issued ahead before issuing waits")
QUEUE_BYTES = Variable(
    "GEMEL_QUEUE_BYTES",
    0,
    "memory running operations may take; 0 is a quarter of the RAM, or of the container's limit",
)
AHEAD_BYTES = Variable(
    "GEMEL_AHEAD_BYTES",
    32 << 20,
    "memory results may take, on each device, that were computed before older operations were done",
)
SIMULATED_GPUS = Variable("GEMEL_SIMULATED_GPUS", 0, "simulated GPUs, 0 to 8")
SIMULATED_BANDWIDTH = Variable(
    "GEMEL_SIMULATED_BANDWIDTH", 12.0, "of a simulated GPU's link, in GB/s each way"
)
SIMULATED_LATENCY = Variable(
    "GEMEL_SIMULATED_LATENCY", 10.0, "of a copy over a simulated link, in microseconds"
)
TARGET = Variable(
    "GEMEL_TARGET",
    "",
    "instruction set of kernels; default: the host's",
    ("avx512", "avx2", "generic"),
)
WINOGRAD = Variable(
    "GEMEL_WINOGRAD",
    "auto",
    "3 x 3 convolutions by Winograd's scheme: where it pays, never, or wherever it is possible",
    ("auto", "never", "always"),
)
CACHE = Variable("GEMEL_CACHE", "", "folder of kernels and plans; default: ~/.cache/gemel")
CACHE_BYTES = Variable(
    "GEMEL_CACHE_BYTES", 256 << 20, "bound on that folder; those used the longest ago go first"
)
KEEP_BYTES = Variable(
    "GEMEL_KEEP_BYTES",
    1 << 30,
    "memory a program may take for values of its parameters that it keeps between calls",
)
VERIFY = Variable("GEMEL_VERIFY", False, "check every graph after every pass")
UNSEEN_ERRORS = Variable(
    "GEMEL_UNSEEN_ERRORS",
    "fail",
    "what unseen errors do at exit: exit code 70, or a warning",
    ("fail", "warn"),
)
TRACEBACK = Variable(
    "GEMEL_TRACEBACK",
    "short",
    "full shows gemel's own frames in tracebacks, too",
    ("short", "full"),
)
HOME = Variable("MXNET_HOME", "", "folder of data sets and parameters; default: ~/.mxnet")
REPOSITORY = Variable(
    "MXNET_GLUON_REPO",
    "https://apache-mxnet.s3-accelerate.dualstack.amazonaws.com/",
    "where they are downloaded from",
)
SERVERS = Variable("GEMEL_SERVERS", "", "parameter servers of the job: host:port,host:port")
RANK = Variable("GEMEL_RANK", -1, "which of the job's workers this process is, from 0")
NUM_WORKERS = Variable("GEMEL_NUM_WORKERS", 0, "how many workers the job has")
SECRET = Variable("GEMEL_SECRET", "", "what its workers and servers know, and nobody else")
RESTARTS = Variable("GEMEL_RESTARTS", 0, "how often this worker was started again")
WAIT_SECONDS = Variable(
    "GEMEL_WAIT_SECONDS", 60.0, "time a worker of a job with servers waits for an answer"
)
REACH_SECONDS = Variable("GEMEL_REACH_SECONDS", 30.0, "time until a server counts as lost")
SILENT_SECONDS = Variable(
    "GEMEL_SILENT_SECONDS",
    10.0,
    "time without a word after which a link counts as dead",
)
STALENESS = Variable(
    "GEMEL_STALENESS", 8, "pushes a worker of dist_async may be ahead of the slowest"
)
PIECE = Variable(
    "GEMEL_PIECE", 1 << 18, "elements of an array above which it is cut for several servers"
)
WORKERS_TIMEOUT = Variable(
    "GEMEL_WORKERS_TIMEOUT", 300.0, "seconds that workers of a job wait for each other"
)
SCHEDULE = Variable(
    "GEMEL_SCHEDULE", "ranks", "how workers of dist_sync add up over MPI; worker 0's counts"
)
SOCKETS = Variable(
    "GEMEL_SOCKETS",
    "all",
    "the interface (such as eth0) over which a worker of dist_sync is reached by sockets of its "
    "own; all: any; none: MPI only, on all workers if on one",
)
MEASURE_SECONDS = Variable(
    "GEMEL_MEASURE_SECONDS", 0.3, "time for which they try that out when they join; 0: not at all"
)
DEBUG = Variable("GEMEL_DEBUG", 0, "1 prints what is compiled, 2 also the programs")

ALL = (
    WORKERS,
    ENGINE,
    QUEUE_OPERATIONS,
    QUEUE_BYTES,
    AHEAD_BYTES,
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


def describe() -> str:
    """One line per variable, for `python -m gemel -h`: name, meaning, choices, default."""
    lines = []
    for each in ALL:
        choices = f"; one of {', '.join(each.choices)}" if each.choices else ""
        default = "" if each.default == "" else f" ({each.default})"
        lines.append(f"{each.name:26}{each.doc}{choices}{default}")
    return "\n".join(lines)
