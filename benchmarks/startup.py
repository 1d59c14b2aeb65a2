"""`cold`: from the start of a process to its first inference, with full caches on disk."""

from __future__ import annotations

import json
import os
import subprocess
import time
from pathlib import Path
from statistics import median
from typing import NamedTuple

from benchmarks.contenders import BY_NAME
from benchmarks.driver import Answer, agree, importable, interpreter_of, reason
from benchmarks.machine import BUILD, ROOT
from benchmarks.table import print_rows
from benchmarks.workloads import MLP, inputs, parameters

SCRIPTS = Path(__file__).with_name("cold")


class Starter(NamedTuple):
    """A script in cold/, with an argument that chooses the variant."""

    name: str
    script: str
    variant: str = ""


STARTERS = (
    Starter("gemel", "start_gemel.py", "imperative"),
    Starter("gemel hybridized", "start_gemel.py", "hybridized"),
    Starter("numpy", "start_numpy.py"),
    Starter("onnxruntime", "start_onnx.py"),
    Starter("torch", "start_torch.py", "eager"),
    Starter("torch compile", "start_torch.py", "compile"),
    Starter("jax", "start_jax.py"),
)


def prepare(folder: Path) -> None:
    """Write input, weights and biases one after another, as float32 numbers."""
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / "numbers.bin", "wb") as file:
        file.write(inputs(MLP, 1)[0].tobytes())
        for weight, bias in parameters(MLP):
            file.write(weight.tobytes())
            file.write(bias.tobytes())
    (folder / "sizes.json").write_text(json.dumps(MLP.sizes))


def environment_of(starter: Starter, folder: Path) -> dict[str, str]:
    """The environment of a process, with the source tree only if gemel is not installed."""
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    environment["JAX_PLATFORMS"] = "cpu"
    environment["JAX_COMPILATION_CACHE_DIR"] = str(folder / "jax")
    environment["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
    environment["JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES"] = "-1"
    environment["TORCHINDUCTOR_CACHE_DIR"] = str(BUILD / "inductor")
    if BY_NAME[starter.name].ours:
        check = "import importlib.util, sys; sys.exit(importlib.util.find_spec('gemel') is None)"
        command = [interpreter_of(starter.name), "-c", check]
        if subprocess.run(command, cwd=folder, env=environment).returncode != 0:
            environment["PYTHONPATH"] = str(ROOT)
    return environment


def command_of(starter: Starter, step: str, folder: Path) -> list[str]:
    """The command line of a process for a step, "prepare" or "run"."""
    script = str(SCRIPTS / starter.script)
    return [interpreter_of(starter.name), script, step, str(folder), starter.variant]


def start(starter: Starter, folder: Path, environment: dict[str, str]) -> Answer | str:
    """Run one process. Its own time stamps and its end are milliseconds from its start."""
    command = command_of(starter, "run", folder)
    begin = time.perf_counter()
    process = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    end = time.perf_counter()
    if process.returncode != 0:
        return reason(process)
    answer: Answer = json.loads(process.stdout.strip().splitlines()[-1])
    # Both processes read the system's monotonic clock, so their stamps can be compared.
    for stamp in ("started", "imported", "inferred"):
        answer[stamp] = (answer[stamp] - begin) * 1e3
    answer["ended"] = (end - begin) * 1e3
    return answer


def run(rounds: int, quick: bool, only: str | None) -> bool:
    """Measure all starters in turn and print a table. Returns whether gemel failed."""
    folder = BUILD / "cold"
    prepare(folder)
    answers: dict[str, list[Answer]] = {}
    failures: dict[str, str] = {}
    environments = {}
    starters = []
    for starter in STARTERS:
        contender = BY_NAME[starter.name]
        if (quick and contender.slow_start) or (only and starter.name not in only.split(",")):
            continue
        if importable(interpreter_of(starter.name), contender.requires):
            starters.append(starter)
    for starter in starters:
        answers[starter.name] = []
        environments[starter.name] = environment_of(starter, folder)
        warm_up(starter, folder, environments[starter.name], failures)
    for _ in range(rounds):
        for starter in starters:
            if starter.name in failures:
                continue
            answer = start(starter, folder, environments[starter.name])
            if isinstance(answer, str):
                failures[starter.name] = answer
            else:
                answers[starter.name].append(answer)
    check(answers, failures)
    print_table(answers, failures)
    return any(BY_NAME[name].ours for name in failures)


def warm_up(
    starter: Starter, folder: Path, environment: dict[str, str], failures: dict[str, str]
) -> None:
    """Let the script write the files it needs, then fill its caches and the page cache."""
    command = command_of(starter, "prepare", folder)
    process = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    if process.returncode != 0:
        failures[starter.name] = reason(process)
        return
    for _ in range(2):
        answer = start(starter, folder, environment)
        if isinstance(answer, str):
            failures[starter.name] = answer


def check(answers: dict[str, list[Answer]], failures: dict[str, str]) -> None:
    """Mark starters as failed whose results differ from what NumPy computes here."""
    x = inputs(MLP, 1)[0]
    layers = parameters(MLP)
    for weight, bias in layers[:-1]:
        x = (x @ weight.T + bias).clip(min=0)
    weight, bias = layers[-1]
    expected = [float(value) for value in (x @ weight.T + bias).ravel()]
    for name, rows in answers.items():
        for row in rows:
            if not agree(row["values"], expected, 1e-4):
                failures[name] = f"computed {row['values']} instead of {expected}"


def print_table(answers: dict[str, list[Answer]], failures: dict[str, str]) -> None:
    """Print medians, in milliseconds since the process was started."""
    print("## cold start: mlp " + "-".join(map(str, MLP.sizes)) + ", everything cached\n")
    rows = []
    for name, measured in answers.items():
        if name in failures:
            rows.append([name, "FAILED", "", "", "", ""])
            continue
        row = [name]
        for stamp in ("started", "imported", "inferred", "ended"):
            row.append(f"{median(float(m[stamp]) for m in measured):.1f}")
        row.append(" ".join(measured[0]["heavy"]))
        rows.append(row)
    header = ["contender", "Python, ms", "imported", "first inference", "ended", "loaded besides"]
    print_rows(header, rows)
    for name, failure in failures.items():
        print(f"{name} FAILED: {failure}\n")
