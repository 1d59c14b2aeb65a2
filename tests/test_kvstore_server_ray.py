"""Parameter servers and workers on a local Ray cluster; skipped without Ray."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gemel.errors import WorkersError
from gemel.kvstore.server.launch import Job, Launcher
from gemel.kvstore.server.ray import GONE, RayPlace, RayProcess, _own_address
from gemel.kvstore.server.settings import Limits

PROGRAM = str(Path(__file__).with_name("server_worker.py"))
# An actor takes 20 s or more to start while other processes keep the cores busy.
LIMITS = Limits(silent=2.0, replace=90.0, wait=120.0, reach=90.0)


def test_without_ray() -> None:
    """A typed error says what to install."""
    hidden = "import sys; sys.modules['ray'] = None\n"
    text = hidden + "from gemel.__main__ import main\nsys.exit(main(sys.argv[1:]))"
    arguments = ["launch", "--engine", "ray", "--servers", "1", "--workers", "1", "train.py"]
    done = subprocess.run(
        [sys.executable, "-c", text, *arguments], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 2
    assert "WorkersError" in done.stderr and "pip install 'gemel[ray]'" in done.stderr


@pytest.mark.parametrize(
    ("where", "words"),
    [
        ("auto", "Ray could not join the cluster at RAY_ADDRESS=auto: no such.*; start a cluster"),
        ("", "Ray could not start on this machine: no such"),
    ],
)
def test_no_cluster(where: str, words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(**settings: Any) -> None:
        raise ConnectionError("no such cluster")

    made = SimpleNamespace(is_initialized=lambda: False, init=fail)
    monkeypatch.setitem(sys.modules, "ray", made)
    monkeypatch.setenv("RAY_ADDRESS", where)
    with pytest.raises(WorkersError, match=words):
        RayPlace(2)


@pytest.mark.parametrize("where", ["127.0.0.1:{port}", "ray://127.0.0.1:{port}", "nowhere:6379"])
def test_an_address_that_nobody_answers(where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray itself would try for longer than the limit."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        where = where.format(port=free.getsockname()[1])
    made = SimpleNamespace(is_initialized=lambda: False, init=lambda **_: pytest.fail("asked"))
    monkeypatch.setitem(sys.modules, "ray", made)
    monkeypatch.setenv("RAY_ADDRESS", where)
    monkeypatch.setattr("gemel.kvstore.server.ray.REACHING", 0.3)
    words = f"nobody answers at RAY_ADDRESS={where} within 0.3 s: .*ray start --head"
    with pytest.raises(WorkersError, match=words):
        RayPlace(2)


def test_an_address_that_somebody_answers_is_left_to_ray(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    monkeypatch.setattr("gemel.kvstore.server.ray.REACHING", 0.5)
    made = SimpleNamespace(is_initialized=lambda: False, init=lambda **_: asked.append(1))
    made.remote = lambda kind: kind
    monkeypatch.setitem(sys.modules, "ray", made)
    for host in ("127.0.0.1", _own_address()):
        with socket.create_server((host, 0)) as listener:
            monkeypatch.setenv("RAY_ADDRESS", f"127.0.0.1:{listener.getsockname()[1]}")
            RayPlace(2)
    assert asked == [1, 1]


def test_a_poll_without_an_answer_is_repeated() -> None:
    class RayError(Exception):
        pass

    class GetTimeoutError(RayError):
        pass

    answers: list[Any] = [GetTimeoutError(), None, *[GetTimeoutError()] * 3, RayError(), 7]

    def get(asked: Any, timeout: float) -> Any:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    errors = SimpleNamespace(RayError=RayError, GetTimeoutError=GetTimeoutError)
    actor = SimpleNamespace(poll=SimpleNamespace(remote=lambda: None))
    process = RayProcess(SimpleNamespace(get=get, exceptions=errors), actor)
    assert [process.poll() for _ in range(7)] == [None, None, None, None, GONE, GONE, 7]


def children(word: str) -> list[int]:
    """The processes that have a word in their command line."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if word.encode() in path.read_bytes().replace(b"\0", b" "):
                found.append(int(path.parent.name))
        except OSError:
            continue
    return found


@pytest.fixture
def ray() -> Any:
    found = pytest.importorskip("ray", reason="Ray is not there: pip install 'gemel[ray]'")
    yield found
    found.shutdown()


@pytest.mark.distributed
@pytest.mark.parametrize("victim", ["worker", "server", "actor"])
def test_dead_processes_are_restarted(tmp_path: Path, ray: Any, victim: str) -> None:
    logs = tmp_path / "logs"
    logs.mkdir()
    arguments = (str(logs), "60", "0.05", "adam")
    job = Job(PROGRAM, arguments, servers=2, workers=2, limits=LIMITS, folder=tmp_path / "journals")
    said: list[str] = []
    place = RayPlace(4)
    made = Launcher(job, place, said.append)
    killed = []

    def harm() -> None:
        while sum(path.read_text().count("step") for path in logs.iterdir()) < 10:
            time.sleep(0.05)
        if victim == "worker":
            killed.append(int(next(logs.glob("1.0.*")).name.split(".")[2]))
            os.kill(killed[0], signal.SIGKILL)
        elif victim == "server":
            killed.extend(children(f"serve --workers 2 --host {place.address('server 0')}")[:1])
            os.kill(killed[0], signal.SIGKILL)
        else:
            killed.append(0)
            ray.kill(place._actors["worker 1"])

    thread = threading.Thread(target=harm, daemon=True)
    thread.start()
    assert made.run() == 0, said
    assert killed and len(said) == 1, said
    ends = {path.read_text().splitlines()[-1].split('"values": ')[1].split("]")[0]
            for path in logs.iterdir() if '"values"' in path.read_text()}  # fmt: skip
    assert len(ends) == 1, "all workers end with the same parameters"
    assert not children(str(logs)), "no process is left"


@pytest.mark.distributed
def test_a_cluster_without_room(ray: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gemel.kvstore.server.ray.PLACING", 3.0)
    with pytest.raises(WorkersError, match="Ray has no free CPU for worker 0"):
        Launcher(Job(PROGRAM, workers=2, servers=1), RayPlace(1)).run()
