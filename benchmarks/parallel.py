"""Data-parallel training by workers with a core each: `python -m benchmarks parallel`.

The seed's network 512-256-128-2 with a batch of 4096 on one worker, and cut between two: gemel's
dist_sync over MPI, torch's DistributedDataParallel over gloo, JAX with two devices in a process.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.driver import agree, environment_of, importable, interpreter_of
from benchmarks.parallel_worker import BATCH
from benchmarks.table import print_rows

WORKER = str(Path(__file__).with_name("parallel_worker.py"))
NEEDS = {"gemel": ("gemel", "mpi4py"), "torch": ("torch",), "jax": ("jax",)}
CONTENDER = {"gemel": "gemel", "torch": "torch", "jax": "jax"}
TIMEOUT_SECONDS = 300
#: What two workers are to reach: of one worker's rate, of the best peer's, hidden communication.
GAIN, AHEAD, HIDDEN = 1.8, 1.2, 0.8


def commands(library: str, workers: int, seconds: float) -> list[tuple[list[str], dict[str, str]]]:
    """The processes to start, and their environments."""
    python = interpreter_of(CONTENDER[library])
    environment = environment_of(1)
    given = [WORKER, library, str(workers), str(seconds)]
    if library == "gemel":
        del environment["GEMEL_WORKERS"]  # the starter knows
        launch = ["-m", "gemel", "launch", "-n", str(workers), "--timeout", "60"]
        return [([python, *launch, *given], environment)]
    if library == "jax":
        flags = f" --xla_force_host_platform_device_count={workers}"
        environment["XLA_FLAGS"] = environment.get("XLA_FLAGS", "") + flags
        return [([python, *given], environment)]
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    meeting = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    return [
        ([python, *given], {**environment, **meeting, "RANK": str(rank)}) for rank in range(workers)
    ]


def answer(library: str, workers: int, seconds: float) -> dict[str, Any] | str:
    """What worker 0 has measured; or, as a text, why there is nothing."""
    elsewhere = tempfile.gettempdir()  # where no source tree is taken for the installed package
    jobs = [
        subprocess.Popen(
            command, cwd=elsewhere, env={**os.environ, **environment}, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )
        for command, environment in commands(library, workers, seconds)
    ]  # fmt: skip
    try:
        said = [job.communicate(timeout=TIMEOUT_SECONDS) for job in jobs]
    except subprocess.TimeoutExpired:
        return f"no answer within {TIMEOUT_SECONDS} s"
    finally:
        for job in jobs:
            job.kill()
    if any(job.returncode for job in jobs):
        lines = [line for _, errors in said for line in errors.strip().splitlines()]
        return next((line for line in lines if "Error" in line), "it ended with an error")
    found: dict[str, Any] = json.loads(said[0][0].strip().splitlines()[-1])
    return found


def hidden(found: dict[str, Any]) -> float:
    """The share of the time of communication in which computation went on."""
    apart = found["compute"] + found["communicate"]
    share = (apart - found["step"]) / max(found["communicate"], 1e-9)
    return float(min(max(share, 0.0), 1.0))


def measure(rounds: int, seconds: float, only: str | None) -> tuple[dict[Any, list[Any]], bool]:
    """The answers by library and number of workers; whether something failed."""
    libraries = [
        name
        for name, needs in NEEDS.items()
        if (only is None or name in only.split(","))
        and importable(interpreter_of(CONTENDER[name]), needs)
    ]
    answers: dict[Any, list[Any]] = {(name, n): [] for name in libraries for n in (1, 2)}
    failed = False
    losses: list[float] | None = None
    for _ in range(rounds):
        for (library, workers), kept in answers.items():
            found = answer(library, workers, seconds)
            if isinstance(found, str):
                print(f"{library} with {workers} FAILED: {found}\n", file=sys.stderr)
                failed |= library == "gemel"
                continue
            if workers == 1:
                losses = losses or found["losses"]
                if not agree(found["losses"], losses, 1e-3):
                    print(f"{library} FAILED: other losses\n", file=sys.stderr)
                    failed |= library == "gemel"
                    continue
            kept.append(found)
    return answers, failed


def run(rounds: int, seconds: float, only: str | None) -> bool:
    """Measure and print; whether something failed."""
    answers, failed = measure(rounds, seconds, only)
    rows, rates = [], {}
    for (library, workers), found in answers.items():
        if not found:
            rows.append([library, str(workers), "FAILED", "", "", "", ""])
            continue
        middle = {key: median(one[key] for one in found) for key in ("step", "compute")}
        sent = median(one["communicate"] for one in found)
        rates[library, workers] = BATCH / middle["step"] * 1e3
        together = workers > 1 and library != "jax"
        rows.append([
            library, str(workers), f"{rates[library, workers]:,.0f}", f"{middle['step']:.2f}",
            f"{middle['compute']:.2f}" if together else "", f"{sent:.2f}" if together else "",
            f"{median(hidden(one) for one in found):.2f}" if together else "",
        ])  # fmt: skip
    print(f"## data-parallel training, 512-256-128-2, batch {BATCH}, a core for each worker\n")
    header = ["library", "workers", "examples/s", "step, ms", "computing", "sending", "hidden"]
    print_rows(header, rows)
    if {("gemel", 1), ("gemel", 2)} <= set(rates):
        ours = rates["gemel", 2]
        peers = [rate for (library, _), rate in rates.items() if library != "gemel"]
        best = f"{ours / max(peers):.2f} (wanted {AHEAD})" if peers else "no peer is installed"
        print(
            f"two workers / one: {ours / rates['gemel', 1]:.2f} (wanted {GAIN}); "
            f"/ the best peer: {best}; hidden is wanted {HIDDEN} at 1 Gb/s, this is one machine\n"
        )
    return failed
