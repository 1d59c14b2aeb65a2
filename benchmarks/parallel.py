"""Data-parallel training by workers with one core each: `python -m benchmarks parallel`.

A 512-256-128-2 network is trained with a batch of 4096 on one worker, and with the batch split
between two: gemel's dist_sync over MPI, torch's DistributedDataParallel over gloo, and JAX with two
devices in one process. Then the two workers run behind links of 1 Gb/s, if this machine has network
namespaces.
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

from benchmarks import links
from benchmarks.driver import agree, environment_of, importable, interpreter_of
from benchmarks.machine import Machine
from benchmarks.parallel_worker import BATCH, LAYERS
from benchmarks.table import print_rows

WORKER = str(Path(__file__).with_name("parallel_worker.py"))
NEEDS = {"gemel": ("gemel", "mpi4py"), "torch": ("torch",), "jax": ("jax",)}
CONTENDER = {"gemel": "gemel", "torch": "torch", "jax": "jax"}
TIMEOUT_SECONDS = 300
#: Goals for two workers: rate / one worker's, rate / the best peer's, hidden communication.
GAIN, AHEAD, HIDDEN = 1.8, 1.2, 0.8


def commands(
    library: str, workers: int, seconds: float, apart: bool = False
) -> list[tuple[list[str], dict[str, str]]]:
    """The commands to start, and their environments. `apart`: each worker is behind a link."""
    python = interpreter_of(CONTENDER[library])
    environment = environment_of(1)
    given = [WORKER, library, str(workers), str(seconds)]
    if library == "gemel":
        del environment["GEMEL_WORKERS"]  # `launch` sets it
        launch = ["-m", "gemel", "launch", "-n", str(workers), "--timeout", "60"]
        if apart:
            launch += ["--hosts", ",".join(map(links.address, links.NAMES))]
            environment["GEMEL_WORKERS"] = "1"  # `launch` takes each place for a machine
            environment["OMPI_MCA_mpi_yield_when_idle"] = "1"
        return [([python, *launch, *given], environment)]
    if library == "jax":
        flags = f" --xla_force_host_platform_device_count={workers}"
        environment["XLA_FLAGS"] = environment.get("XLA_FLAGS", "") + flags
        return [([python, *given], environment)]
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    meeting = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    if apart:
        meeting = {**meeting, "MASTER_ADDR": links.address("near"), "GLOO_SOCKET_IFNAME": "eth0"}
    return [
        ([python, *given], {**environment, **meeting, "RANK": str(rank)}) for rank in range(workers)
    ]


def answer(library: str, workers: int, seconds: float, apart: bool = False) -> dict[str, Any] | str:
    """What worker 0 has measured, or a text that says why there is nothing."""
    elsewhere = tempfile.gettempdir()  # not the source tree, from which Python would import gemel
    if apart:
        started = commands(library, workers, seconds, apart=True)
        places = [""] if len(started) == 1 else links.NAMES  # MPI's launcher finds them itself
        found, problem = links.run(
            [{"place": place, "command": command, "environment": environment}
             for place, (command, environment) in zip(places, started, strict=True)],
            elsewhere,
        )  # fmt: skip
        return problem or _read(found)
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
    return _read([(job.returncode, *pair) for job, pair in zip(jobs, said, strict=True)])


def _read(ended: list[tuple[int, str, str]]) -> dict[str, Any] | str:
    """The last line of the first process, from JSON, or a text if a process failed."""
    if any(status for status, _, _ in ended):
        lines = [line for _, _, errors in ended for line in errors.strip().splitlines()]
        return next((line for line in lines if "Error" in line), "it ended with an error")
    found: dict[str, Any] = json.loads(ended[0][1].strip().splitlines()[-1])
    return found


def hidden(found: dict[str, Any]) -> float:
    """The share of the communication time that is hidden behind computation."""
    apart = found["compute"] + found["communicate"]
    share = (apart - found["step"]) / max(found["communicate"], 1e-9)
    return float(min(max(share, 0.0), 1.0))


def hideable(found: dict[str, Any]) -> float:
    """The largest possible value of `hidden`.

    No more communication can be hidden than computation lasts, and a core that sends, receives or
    sums does not compute meanwhile.
    """
    left = found["communicate"] - found["processor communicate"]
    share = min(left, found["compute"]) / max(found["communicate"], 1e-9)
    return float(min(max(share, 0.0), 1.0))


def operations() -> float:
    """Multiplications and additions of a step on the whole batch: three products for each layer.

    The first layer has two, because it needs no gradient of its inputs.
    """
    sizes = [inputs * outputs for inputs, outputs in LAYERS]
    return 2.0 * BATCH * (3 * sum(sizes) - sizes[0])


def _taking_part(only: str | None) -> list[str]:
    """The libraries that are asked for and installed."""
    return [
        name
        for name, needs in NEEDS.items()
        if (only is None or name in only.split(","))
        and importable(interpreter_of(CONTENDER[name]), needs)
    ]


def measure(rounds: int, seconds: float, only: str | None) -> tuple[dict[Any, list[Any]], bool]:
    """The answers by library and number of workers, and whether gemel failed."""
    libraries = _taking_part(only)
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


def run(rounds: int, seconds: float, only: str | None, machine: Machine | None = None) -> bool:
    """Measure and print. Returns whether gemel failed."""
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
    if machine is not None:
        floors = [operations() / machine.flops_per_us(n) / 1e3 for n in (1, 2)]
        print(
            f"the products at the peak of the multiply-adds, ms: {floors[0]:.2f} on one core, "
            f"{floors[1]:.2f} on two at the same time"
        )
    for library in ("gemel", "torch"):
        if answers.get((library, 1)) and answers.get((library, 2)):
            one = median(found["step"] for found in answers[library, 1])
            apart = median(found["compute"] for found in answers[library, 2])
            print(
                f"two {library} workers side by side that never communicate / one: "
                f"{one / apart:.2f}, which is the most that can be had"
            )
    if {("gemel", 1), ("gemel", 2)} <= set(rates):
        ours = rates["gemel", 2]
        peers = [rate for (library, _), rate in rates.items() if library != "gemel"]
        best = f"{ours / max(peers):.2f} (wanted {AHEAD})" if peers else "no peer is installed"
        print(
            f"two workers / one: {ours / rates['gemel', 1]:.2f} (wanted {GAIN}); "
            f"/ the best peer: {best}\n"
        )
    return run_apart(rounds, seconds, only) or failed


def run_apart(rounds: int, seconds: float, only: str | None) -> bool:
    """Measure two workers behind links of 1 Gb/s. Returns whether gemel failed."""
    print("## the same by two workers, each behind a link of 1 Gb/s (tc tbf)\n")
    libraries = [name for name in _taking_part(only) if name != "jax"]
    reason = links.missing()
    rows, failed = [], False
    for library in libraries:
        if reason:
            rows.append([library, f"skipped: {reason}", *[""] * 5])
            continue
        said = [answer(library, 2, seconds, apart=True) for _ in range(rounds)]
        found = [one for one in said if isinstance(one, dict)]
        for problem in (one for one in said if isinstance(one, str)):
            print(f"{library} behind 1 Gb/s FAILED: {problem}\n", file=sys.stderr)
            failed |= library == "gemel"
        if not found:
            rows.append([library, "FAILED", *[""] * 5])
            continue
        middle = {key: median(one[key] for one in found)
                  for key in ("step", "compute", "communicate")}  # fmt: skip
        rows.append([library, f"{BATCH / middle['step'] * 1e3:,.0f}",
                     *(f"{value:.2f}" for value in middle.values()),
                     f"{median(map(hidden, found)):.2f}",
                     f"{median(map(hideable, found)):.2f}"])  # fmt: skip
    header = ["library", "examples/s", "step, ms", "computing", "sending", "hidden", "at most"]
    print_rows(header, rows)
    print(
        f"hidden: (computing + sending - step) / sending, wanted {HIDDEN}; at most: what sending "
        "alone leaves of its core, and no more than computing lasts\n"
    )
    return failed
