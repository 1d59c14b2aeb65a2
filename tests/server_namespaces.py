"""Runs a job whose workers and servers each have a network namespace, behind links of 1 Gb/s.

Run it with `unshare --map-root-user --net --mount`; the arguments are a folder, a fault and a rule.
It prints the workers' logs as JSON.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gemel.kvstore.server.launch import Job, Launcher, Process
from gemel.kvstore.server.processes import Spare, start_process
from gemel.kvstore.server.settings import Limits

RATE = ("rate", "1gbit", "burst", "128k", "latency", "50ms")
#: Enough steps that the others are still training when a restarted process returns.
STEPS = "120"
PROGRAM = str(Path(__file__).with_name("server_worker.py"))


def tell(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True)


def build(names: Sequence[str]) -> None:
    """A namespace for each name, all connected to one switch."""
    tell("mount", "-t", "tmpfs", "tmpfs", "/run")
    tell("ip", "link", "set", "lo", "up")
    tell("ip", "link", "add", "switch", "type", "bridge")
    tell("ip", "addr", "add", "10.77.0.254/24", "dev", "switch")
    tell("ip", "link", "set", "switch", "up")
    for number, name in enumerate(names, 1):
        tell("ip", "netns", "add", name)
        tell(
            "ip",
            "link",
            "add",
            f"to{number}",
            "type",
            "veth",
            "peer",
            "name",
            "eth0",
            "netns",
            name,
        )
        tell("ip", "link", "set", f"to{number}", "master", "switch", "up")
        inside = ("ip", "netns", "exec", name)
        tell(*inside, "ip", "addr", "add", f"10.77.0.{number}/24", "dev", "eth0")
        tell(*inside, "ip", "link", "set", "eth0", "up")
        tell(*inside, "ip", "link", "set", "lo", "up")
        tell(*inside, "tc", "qdisc", "add", "dev", "eth0", "root", "tbf", *RATE)
        tell("tc", "qdisc", "add", "dev", f"to{number}", "root", "tbf", *RATE)


class Namespaces:
    """A place where each process has a namespace, like a machine of its own, and a spare."""

    def __init__(self, names: Sequence[str]) -> None:
        self.names = list(names)
        self.spares: dict[str, Spare] = {}
        build([name.replace(" ", "") for name in names])

    def inside(self, slot: str) -> list[str]:
        return ["ip", "netns", "exec", slot.replace(" ", "")]

    def start(
        self, slot: str, command: Sequence[str], environment: dict[str, str], printed: bool
    ) -> Process:
        spare = self.spares.get(slot)
        if spare is not None:
            return spare.become(command, environment, printed)
        return start_process([*self.inside(slot), *command], environment, printed)

    def tend(self) -> None:
        for name in self.names:
            if name not in self.spares:
                self.spares[name] = Spare(self.inside(name))
                return

    @property
    def ready(self) -> bool:
        return len(self.spares) == len(self.names) and all(s.ready for s in self.spares.values())

    def address(self, slot: str) -> str:
        return f"10.77.0.{self.names.index(slot) + 1}"

    def link(self, slot: str, state: str) -> None:
        tell("ip", "link", "set", f"to{self.names.index(slot) + 1}", state)

    def close(self) -> None:
        for spare in self.spares.values():
            spare.close()


class Watched(Launcher):
    """A launcher that repairs the link of a slot before it starts a process there again.

    The new process stands for one on another machine. With the rule "leave_out" the restart takes
    longer than a worker may be silent, so that the worker is left out.
    """

    def _work(self, slot: Any) -> None:
        self.place.link(slot.name, "up")  # type: ignore[attr-defined]
        if slot.restarts and self.job.rule == "leave_out":
            time.sleep(1.5 * self.job.limits.silent)
        super()._work(slot)


def main(folder: Path, fault: str, rule: str) -> None:
    names = ["server 0", "server 1", "worker 0", "worker 1", "worker 2"]
    place = Namespaces(names)
    logs = folder / "logs"
    logs.mkdir()
    mode = "adam" if rule == "replace" else "sums"
    # On a loaded machine a process may not run for a second.
    limits = Limits(silent=2.0, replace=16.0, wait=24.0, reach=3.0)
    job = Job(
        PROGRAM, (str(logs), STEPS, "0.03", mode), servers=2, workers=3, rule=rule, limits=limits,
        folder=folder / "journals",
    )  # fmt: skip
    made = Watched(job, place, lambda text: print(text, file=sys.stderr))

    def kill(slot: Any) -> None:
        os.kill(slot.process.pid, signal.SIGKILL)

    def harm() -> None:
        # Wait until the job is past everything that is slow at its start.
        while not place.ready or sum(p.read_text().count("step") for p in logs.iterdir()) < 15:
            time.sleep(0.02)
        if fault == "worker":
            kill(made.workers[1])
        elif fault == "server":
            kill(made.servers[0])
        elif fault == "both":
            kill(made.servers[1])
            kill(made.workers[2])
        elif fault == "cut":
            place.link("worker 1", "down")
            threading.Timer(3.0, place.link, ("worker 1", "up")).start()
        elif fault == "cut for ever":
            place.link("worker 2", "down")

    threading.Thread(target=harm, daemon=True).start()
    status = made.run()
    lines = {path.name: path.read_text().splitlines() for path in logs.iterdir()}
    found = {name: [json.loads(line) for line in said] for name, said in lines.items()}
    print(json.dumps({"status": status, "said": found}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], sys.argv[3])
