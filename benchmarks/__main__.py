"""The command line: `python -m benchmarks NAME ...`; README.md describes each name."""

from __future__ import annotations

import argparse
import sys
from statistics import median

from benchmarks import (
    compiling,
    data,
    devices,
    engine,
    gpu,
    instructions,
    kernels,
    memory,
    networks,
    operations,
    parallel,
    programs,
    residual,
    startup,
    sweep,
    ufuncs,
    workloads,
)
from benchmarks.driver import contenders_of, measure
from benchmarks.machine import Machine, measure_machine, processor
from benchmarks.table import print_results, print_rows
from benchmarks.turns import Effort
from benchmarks.workloads import Workload


def arguments() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description="Measure gemel and every library installed by `make peers`. Each contender "
        "runs in its own process and the processes take turns. Figures are medians. A contender "
        "whose results differ from the others' is marked FAILED.",
    )
    parser.add_argument("what", nargs="+", choices=tuple(RUNNERS))
    parser.add_argument(
        "--runs", type=int, help="rounds of processes (default: 1 to 9, depending on the name)"
    )
    parser.add_argument("--quick", action="store_true", help="few short rounds, no slow contenders")
    parser.add_argument(
        "--shapes",
        type=int,
        default=0,
        help="mlp: number of random networks to compare with their floors",
    )
    parser.add_argument("--only", help="contenders to run, separated by commas")
    parser.add_argument(
        "--groups",
        type=lambda text: text.split(","),
        help="kernels, sweep: groups to measure, separated by commas; networks, memory, "
        "programs: names",
    )
    parser.add_argument(
        "--processor-time",
        action="store_true",
        help="kernels, sweep, operations, networks: measure processor time on one core, for a busy "
        "machine",
    )
    parser.add_argument("--beside", choices=("torch",), help="sweep: also measure this library")
    return parser.parse_args()


class Session:
    """What the command line asks for, on this machine."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.machine: Machine | None = measure_machine()
        self.failed = False

    def measure(self, workload: Workload, repeats: int, seconds: float, rounds: int) -> list:
        """Measure all contenders of a workload that are installed and asked for."""
        quick = self.options.quick
        names = contenders_of(workload.kind, quick)
        if self.options.only:
            wanted = self.options.only.split(",")
            names = [name for name in names if name in wanted]
        rounds = self.options.runs or (2 if quick else rounds)
        results = measure(workload, names, rounds, max(1, repeats // (4 if quick else 1)), seconds)
        self.failed |= any(result.failure and result.ours for result in results)
        if self.machine is not None and not self.options.shapes:
            self.machine = self.machine.or_better(measure_machine())
        return results

    def floor(self, function: object, workload: Workload) -> float | None:
        """The floor of a workload in microseconds per call."""
        if self.machine is None:
            return None
        flops = self.machine.flops_per_us(workload.threads)
        if function is workloads.mlp_floor:
            return workloads.mlp_floor(workload, self.machine.l2_bytes_per_us, flops)
        return function(workload, flops)  # type: ignore[operator,no-any-return]


def run_mlp(session: Session) -> None:
    """Inference of a small network: batch 1 on one thread, batch 32 on two."""
    if session.options.shapes:
        run_shapes(session, session.options.shapes)
        return
    for workload in (workloads.MLP, workloads.MLP_BATCH):
        sizes = "-".join(map(str, workload.sizes))
        threads = "1 thread" if workload.threads == 1 else f"{workload.threads} threads"
        title = f"mlp {sizes}, batch {workload.batch}, {threads}"
        results = session.measure(workload, repeats=20, seconds=0.02, rounds=5)
        floor = session.floor(workloads.mlp_floor, workload)
        print_results(title, results, "us per call", 1.0, floor)


def run_shapes(session: Session, count: int) -> None:
    """Random networks: how far each is from its floor, and how much that varies."""
    if session.machine is None:
        sys.exit("the floors need a C++ compiler")
    session.options.only = session.options.only or "gemel hybridized,numpy"
    rows, distances = [], []
    for workload in workloads.random_mlps(count):
        results = session.measure(workload, repeats=20, seconds=0.01, rounds=2)
        floor = session.floor(workloads.mlp_floor, workload)
        assert floor is not None
        row = ["-".join(map(str, workload.sizes)), str(workload.batch), f"{floor:.2f}"]
        for result in results:
            if result.failure:
                row += ["FAILED", ""]
                continue
            distance = result.done_us / floor
            row += [f"{result.done_us:.2f}", f"{distance:.2f}"]
            if result.ours:
                distances.append(distance)
        rows.append(row)
    header = ["sizes", "batch", "floor, us"]
    for result in results:
        header += [f"{result.name}, us", "x floor"]
    print(f"## {count} random networks, 1 thread\n")
    print_rows(header, rows)
    if distances:
        middle = median(distances)
        print(
            f"distance to the floor: median {middle:.2f}, from {min(distances):.2f} to "
            f"{max(distances):.2f}; farthest / median {max(distances) / middle:.2f}, "
            f"median / nearest {middle / min(distances):.2f}\n"
        )


def run_issue(session: Session) -> None:
    """The cost of issuing an operation."""
    results = session.measure(workloads.ADD, repeats=100, seconds=0.0, rounds=7)
    print_results("y = x + 1 on (1, 2), 1000 then wait", results, "us per op", 1.0, issue=True)
    run_products(session)


def run_products(session: Session) -> None:
    """Large operations one after the other, which are issued while the first runs."""
    results = session.measure(workloads.DOT, repeats=5, seconds=0.0, rounds=5)
    floor = session.floor(workloads.dot_floor, workloads.DOT)
    title = "10 x (random normal 1000x1000; dot), 2 threads"
    print_results(title, results, "ms in all", 1e-3 * workloads.DOT.count, floor, issue=True)


def run_train(session: Session) -> None:
    """Training loops that do not wait after each batch: a large network and a small one."""
    for workload, unit, scale in (
        (workloads.TRAIN, "s", 1e-6 * workloads.TRAIN.count),
        (workloads.TRAIN_SMALL, "us a step", 1.0),
    ):
        results = session.measure(workload, repeats=1, seconds=0.0, rounds=3)
        floor = session.floor(workloads.train_floor, workload)
        sizes = "-".join(map(str, workload.sizes))
        title = (
            f"training mlp {sizes}, batch {workload.batch}, {workload.count} batches, SGD, "
            f"{workload.threads} threads"
        )
        print_results(title, results, unit, scale, floor, issue=True)


def run_lstm(session: Session) -> None:
    """A recurrent layer: inference over whole sequences, and training."""
    for workload in (workloads.LSTM, workloads.LSTM_TRAIN):
        floor = session.floor(workloads.lstm_floor, workload)
        results = session.measure(workload, repeats=8, seconds=0.0, rounds=5)
        kind = "inference" if workload.kind == "lstm" else "training"
        title = f"LSTM of 256 states, 35 steps, batch 32, 2 threads: {kind}"
        print_results(title, results, "ms per call", 1e-3, floor)


def run_resnet(session: Session) -> None:
    """The whole ResNet-18: inference of one picture on one core and of eight on two; training."""
    for workload in (residual.INFERENCE, residual.TOGETHER, residual.TRAINING):
        floor = session.floor(residual.floor, workload)
        results = session.measure(workload, repeats=4, seconds=0.0, rounds=3)
        kind = "training" if workload.kind == "resnet_train" else "inference"
        threads = "1 thread" if workload.threads == 1 else f"{workload.threads} threads"
        title = f"ResNet-18, 224 x 224, batch {workload.batch}, {threads}: {kind}"
        print_results(title, results, "ms per batch", 1e-3, floor)


def run_engine(session: Session) -> None:
    """The guarantees of the engine, the instructions of a call, and issuing beside the peers."""
    options = session.options
    rounds = options.runs or (1 if options.quick else 5)
    session.failed |= engine.run(rounds)
    session.failed |= instructions.run()
    run_products(session)


def run_devices(session: Session) -> None:
    """Data-parallel training on two devices, compared with one."""
    options = session.options
    session.failed |= devices.run(options.runs or (1 if options.quick else 5))


def run_parallel(session: Session) -> None:
    """Data-parallel training by two workers, compared with one worker and with the peers."""
    options = session.options
    rounds, seconds = (1, 0.5) if options.quick else (5, 2.0)
    session.failed |= parallel.run(options.runs or rounds, seconds, options.only, session.machine)


def run_cold(session: Session) -> None:
    """From the start of a process to the first inference."""
    options = session.options
    rounds = options.runs or (2 if options.quick else 9)
    session.failed |= startup.run(rounds, options.quick, options.only)


def run_compile(session: Session) -> None:
    """The first results of programs, which include tracing and compiling them."""
    options = session.options
    rounds = options.runs or (1 if options.quick else 3)
    session.failed |= compiling.run(rounds, options.quick, options.only)


def run_programs(session: Session) -> None:
    """Whole imperative programs, beside NumPy and torch."""
    options = session.options
    rounds = options.runs or (1 if options.quick else 5)
    session.failed |= programs.run(rounds, options.quick, options.groups)


def run_ufuncs(session: Session) -> None:
    """Array functions, compared with NumPy's."""
    options = session.options
    rounds = options.runs or (1 if options.quick else 5)
    session.failed |= ufuncs.run(rounds, options.quick, options.only)


def run_operations(session: Session) -> None:
    """The operations that networks are made of, compared with torch's."""
    options = session.options
    rounds, seconds = (1, 0.05) if options.quick else (3, 0.2)
    session.failed |= operations.run(options.runs or rounds, seconds, options.processor_time)


def run_networks(session: Session) -> None:
    """Training steps and inference of small networks, compared with torch's."""
    options = session.options
    rounds, seconds = (1, 0.05) if options.quick else (3, 0.3)
    rounds = options.runs or rounds
    session.failed |= networks.run(rounds, seconds, options.processor_time, options.groups)


def run_memory(session: Session) -> None:
    """The memory that training small networks takes, compared with torch's."""
    options = session.options
    session.failed |= memory.run(options.runs or 2, options.groups)


def run_data(session: Session) -> None:
    """Images a second from DataLoader."""
    options = session.options
    rounds = options.runs or (1 if options.quick else 3)
    session.failed |= data.run(rounds, options.quick, options.only, session.machine)


def run_kernels(session: Session) -> None:
    """Single operations, compared with the peers."""
    options = session.options
    runs, turns, seconds = (1, 2, 0.02) if options.quick else (3, 3, 0.1)
    effort = Effort(options.runs or runs, turns, seconds, options.processor_time)
    session.failed |= kernels.run(effort, options.only, session.machine, options.groups)


def run_gpu(session: Session) -> None:
    """Operations and networks on a real GPU, compared with the peers there."""
    options = session.options
    rounds, seconds = (3, 0.005) if options.quick else (7, 0.02)
    session.failed |= gpu.run(options.runs or rounds, seconds, options.only)


def run_sweep(session: Session) -> None:
    """Operations on random shapes, compared with their floors."""
    options = session.options
    seconds, count = (0.005, 30) if options.quick else (0.02, 200)
    effort = Effort(options.runs or 1, 1, seconds, options.processor_time)
    session.failed |= sweep.run(effort, count, options.beside, session.machine, options.groups)


RUNNERS = {
    "mlp": run_mlp,
    "issue": run_issue,
    "train": run_train,
    "lstm": run_lstm,
    "resnet": run_resnet,
    "cold": run_cold,
    "compile": run_compile,
    "devices": run_devices,
    "parallel": run_parallel,
    "engine": run_engine,
    "ufuncs": run_ufuncs,
    "programs": run_programs,
    "operations": run_operations,
    "networks": run_networks,
    "memory": run_memory,
    "data": run_data,
    "kernels": run_kernels,
    "sweep": run_sweep,
    "gpu": run_gpu,
}


def main() -> None:
    """Run what the command line asks for."""
    options = arguments()
    session = Session(options)
    print(f"{processor()}", end="")
    if session.machine is not None:
        machine = session.machine
        print(
            f": {machine.cores} cores, {machine.gflops_one:.0f} / {machine.gflops_all:.0f} GFLOP/s "
            f"on 1 / all, {machine.l2_gbs:.0f} GB/s from L2, {machine.l3_gbs:.0f} from L3, "
            f"{machine.memory_gbs:.0f} / {machine.memory_gbs_all:.0f} from memory",
            end="",
        )
    print("\n")
    for what in options.what:
        RUNNERS[what](session)
    sys.exit(1 if session.failed else 0)


if __name__ == "__main__":
    main()
