"""Runs processes behind links of 1 Gb/s, each in a network namespace of its own, behind one switch.

`run` starts this file again inside new namespaces (`unshare`). There it creates two more network
namespaces, the places "near" and "far", whose links are shaped by `tc tbf`, and runs the jobs that
it reads as JSON. MPI's launcher, which reaches other machines by ssh, reaches the places by
`python benchmarks/links.py enter ADDRESS COMMAND`.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

#: The rate at which each place sends. With a smaller burst, the sender's processor would have to
#: split each packet of 64 KB, which is usually the work of a network card.
RATE = ("rate", "1gbit", "burst", "72k", "latency", "50ms")
NAMES = ("near", "far")
APART = ("unshare", "--map-root-user", "--net", "--mount")
PROBE = (
    "mount -t tmpfs tmpfs /run && ip netns add probe"
    " && ip link add outer type veth peer name inner netns probe"
    f" && tc qdisc add dev outer root tbf {' '.join(RATE)}"
)
TIMEOUT_SECONDS = 280

#: A process: its place ("near", "far", or "" outside of both), its command and its environment.
Job = dict[str, Any]


def missing() -> str:
    """Why this machine cannot make such links; an empty text if it can."""
    for tool in ("unshare", "ip", "tc"):
        if shutil.which(tool) is None:
            return f"there is no {tool}"
    done = subprocess.run([*APART, "sh", "-c", PROBE], capture_output=True, text=True)
    lines = done.stderr.strip().splitlines() or [f"status {done.returncode}"]
    return f"no network namespaces: {lines[-1]}" if done.returncode else ""


def address(name: str) -> str:
    """The IP address of a place."""
    return f"10.78.0.{NAMES.index(name) + 1}"


def run(jobs: list[Job], folder: str) -> tuple[list[tuple[int, str, str]], str]:
    """The status, output and errors of each job, and a text that says why there are none."""
    command = [*APART, sys.executable, str(Path(__file__).resolve()), "run"]
    try:
        done = subprocess.run(
            command, input=json.dumps(jobs), capture_output=True, text=True, cwd=folder,
            timeout=TIMEOUT_SECONDS + 10,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return [], f"no answer within {TIMEOUT_SECONDS} s"
    if done.returncode:
        return [], (done.stderr.strip().splitlines() or ["it ended with an error"])[-1]
    return [tuple(one) for one in json.loads(done.stdout.splitlines()[-1])], ""


# ---- inside


def tell(*command: str) -> None:
    """Run a command that must not fail."""
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)}: {done.stderr.strip()}")


def build() -> None:
    """Create the places behind a switch, to which this process is connected, too."""
    tell("mount", "-t", "tmpfs", "tmpfs", "/run")
    tell("ip", "link", "set", "lo", "up")
    tell("ip", "link", "add", "switch", "type", "bridge")
    tell("ip", "addr", "add", "10.78.0.254/24", "dev", "switch")
    tell("ip", "link", "set", "switch", "up")
    for name in NAMES:
        inside = ("ip", "netns", "exec", name)
        tell("ip", "netns", "add", name)
        tell(*f"ip link add to-{name} type veth peer name eth0 netns {name}".split())
        tell(*f"ip link set to-{name} master switch up".split())
        tell(*inside, "ip", "addr", "add", f"{address(name)}/24", "dev", "eth0")
        for device in ("eth0", "lo"):
            tell(*inside, "ip", "link", "set", device, "up")
        tell(*inside, "tc", "qdisc", "add", "dev", "eth0", "root", "tbf", *RATE)


def start(job: Job) -> subprocess.Popen[str]:
    """Start a process at its place."""
    inside = ["ip", "netns", "exec", job["place"]] if job["place"] else []
    agent = f"{sys.executable} {Path(__file__).resolve()} enter"
    environment = {
        **os.environ,
        "PRTE_MCA_plm_ssh_agent": agent,
        "PRTE_MCA_plm_ssh_no_tree_spawn": "1",
        **job["environment"],
    }
    return subprocess.Popen(
        [*inside, *job["command"]], env=environment, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip


def main() -> None:
    """Create the links, run the jobs read from standard input, and print what they returned."""
    jobs = json.load(sys.stdin)
    build()
    children = [start(job) for job in jobs]
    try:
        said = [child.communicate(timeout=TIMEOUT_SECONDS) for child in children]
    finally:
        for child in children:
            child.kill()
    found = [(child.returncode, *pair) for child, pair in zip(children, said, strict=True)]
    print(json.dumps(found))


def enter(host: str, command: list[str]) -> None:
    """Become a command at a place, under a host name of its own."""
    name = NAMES[int(host.rpartition(".")[2]) - 1]
    text = f"hostname {name}; {' '.join(command)}"
    inside = ["ip", "netns", "exec", name, "unshare", "--uts", "sh", "-c", text]
    os.execvp("ip", inside)


if __name__ == "__main__":
    if sys.argv[1] == "enter":
        enter(sys.argv[2], sys.argv[3:])
    else:
        main()
