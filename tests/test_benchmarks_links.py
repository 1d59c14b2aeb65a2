"""The links of 1 Gb/s through which benchmarks connect two processes."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).resolve().parent.parent))

from benchmarks import links

pytestmark = [pytest.mark.distributed, pytest.mark.unsanitized("network namespaces")]

RECEIVE = """
import socket
with socket.create_server(("0.0.0.0", 9000)) as listener:
    channel, _ = listener.accept()
    got = 0
    while part := channel.recv(1 << 16):
        got += len(part)
    print(got)
"""
SEND = f"""
import socket, time
until = time.monotonic() + 20
while True:
    try:
        channel = socket.create_connection(("{links.address("near")}", 9000), 5)
        break
    except OSError:
        if time.monotonic() > until:
            raise
        time.sleep(0.05)
begun = time.monotonic()
channel.sendall(bytes(20_000_000))
channel.shutdown(socket.SHUT_WR)
channel.recv(1)
print(time.monotonic() - begun)
"""


def test_missing_tools_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    assert links.missing() == "there is no unshare"


def test_two_processes_are_1_gigabit_apart(tmp_path: Path) -> None:
    reason = links.missing()
    if reason:
        pytest.skip(reason)
    jobs: list[links.Job] = [
        {"place": place, "command": [sys.executable, "-c", program], "environment": {}}
        for place, program in (("near", RECEIVE), ("far", SEND))
    ]
    found, problem = links.run(jobs, str(tmp_path))
    assert not problem and [status for status, _, _ in found] == [0, 0], (problem, found)
    assert int(found[0][1]) == 20_000_000
    assert float(found[1][1]) > 0.15  # 0.16 s at 1 Gb/s, less the first burst


def test_a_process_that_fails_is_told_of(tmp_path: Path) -> None:
    reason = links.missing()
    if reason:
        pytest.skip(reason)
    failing = {"place": "far", "command": ["sh", "-c", "echo why >&2; exit 3"], "environment": {}}
    found, problem = links.run([failing], str(tmp_path))
    assert not problem and found == [(3, "", "why\n")]
