"""Workers and servers in their own network namespaces, with links of 1 Gb/s that are cut."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from server_jobs import quiet

pytestmark = [pytest.mark.distributed, pytest.mark.unsanitized("many processes")]

PROGRAM = str(Path(__file__).with_name("server_namespaces.py"))
APART = ("unshare", "--map-root-user", "--net", "--mount")
PROBE = (
    "mount -t tmpfs tmpfs /run && ip netns add probe"
    " && ip link add outer type veth peer name inner netns probe"
    " && tc qdisc add dev outer root tbf rate 1gbit burst 128k latency 50ms"
)


@pytest.fixture(scope="module", autouse=True)
def allowed() -> None:
    """Skip, with the reason, if namespaces or shaped links are not available."""
    for tool in ("unshare", "ip", "tc"):
        if shutil.which(tool) is None:
            pytest.skip(f"there is no {tool} here")
    done = subprocess.run([*APART, "sh", "-c", PROBE], capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"no network namespaces here: {done.stderr.strip().splitlines()[-1:]}")


def run(folder: Path, fault: str, rule: str) -> dict[str, list[dict[str, Any]]]:
    done = subprocess.run(
        [*APART, sys.executable, PROGRAM, str(folder), fault, rule],
        capture_output=True, text=True, timeout=90,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["status"] == 0, done.stderr
    said: dict[str, list[dict[str, Any]]] = found["said"]
    return said


def ends(said: dict[str, list[dict[str, Any]]]) -> list[Any]:
    return [lines[-1]["values"] for lines in said.values() if lines and "ends" in lines[-1]]


def longest_pause(said: dict[str, list[dict[str, Any]]]) -> float:
    """The longest time in seconds without a step, after the first ones, which take long."""
    times = sorted(line["time"] for lines in said.values() for line in lines if "step" in line)[9:]
    return max(after - before for before, after in zip(times, times[1:], strict=False))


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Any:
    found = ends(run(tmp_path_factory.mktemp("whole"), "none", "replace"))
    assert len(found) == 3 and found[0] == found[1] == found[2]
    return found[0]


@pytest.mark.parametrize("fault", ["worker", "server", "both", "cut", "cut for ever"])
def test_replaced(tmp_path: Path, whole: Any, fault: str) -> None:
    said = run(tmp_path, fault, "replace")
    assert ends(said) == [whole] * 3
    # A worker cut off for ever ends after 5 s, `silent` plus `reach`, and is then replaced.
    assert not quiet() or longest_pause(said) < (10 if fault == "cut for ever" else 5)


@pytest.mark.parametrize("fault", ["worker", "cut", "cut for ever"])
def test_left_out(tmp_path: Path, fault: str) -> None:
    said = run(tmp_path, fault, "leave_out")
    shares = set()
    for lines in said.values():
        for line in lines:
            for share, value in zip(line.get("shares", ()), line.get("firsts", ()), strict=True):
                shares.add(share)
                exact = value * share / 3
                assert exact == int(exact) and int(exact).bit_count() == share, line
    assert ends(said) and (not quiet() or longest_pause(said) < 5)
    assert shares >= {2, 3}
