"""Processes of this machine: spare ones take over a command, others start as usual."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gemel.__main__ import main
from gemel.errors import WorkersError
from gemel.kvstore.server.launch import Job, Launcher
from gemel.kvstore.server.processes import LocalPlace, LocalProcess, start_process

pytestmark = [pytest.mark.unsanitized("many processes")]

SCRIPT = """
import json, os, sys
print(json.dumps([
    __name__, sys.argv[1:], os.environ["A_WORD"], os.path.basename(__file__),
    sys.path[0] == os.path.dirname(os.path.abspath(__file__)), "gemel.gluon" in sys.modules,
    sys.modules["__main__"].__dict__ is globals(),
]), flush=True)
if "fail" in sys.argv:
    raise ValueError("as it was told")
if "exit" in sys.argv:
    sys.exit(3)
"""


def until(true: Callable[[], object], seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end
        time.sleep(0.01)


@pytest.fixture
def script(tmp_path: Path) -> str:
    path = tmp_path / "script.py"
    path.write_text(SCRIPT)
    return str(path)


@pytest.fixture
def place() -> Iterator[LocalPlace]:
    made = LocalPlace(spares=1)
    yield made
    made.close()


def ready(place: LocalPlace) -> None:
    def tended() -> bool:
        place.tend()
        return place.ready

    until(tended)


def ended(process: LocalProcess) -> int:
    until(lambda: process.poll() is not None)
    status = process.poll()
    assert status is not None
    return status


def said(script: str, word: str, spare: bool) -> str:
    flag = "true" if spare else "false"
    return f'["__main__", ["{word}"], "hello", "script.py", true, {flag}, true]'


@pytest.mark.parametrize(("word", "status"), [("go", 0), ("fail", 1), ("exit", 3)])
def test_a_spare_process_is_the_program(
    place: LocalPlace, script: str, word: str, status: int, capfd: pytest.CaptureFixture[str]
) -> None:
    ready(place)
    spare = place._spares[0]._child.pid
    process = place.start("worker 0", ["{python}", script, word], {"A_WORD": "hello"}, True)
    assert process.pid == spare and not place.ready
    assert process.line(30) == said(script, word, spare=True)
    found = ended(process)
    assert (found != 0) == (status != 0) and (word != "exit" or found == 3)
    assert ("ValueError: as it was told" in capfd.readouterr().err) == (word == "fail")


def test_without_a_spare_process_it_starts_as_ever(script: str) -> None:
    process = LocalPlace().start("worker 0", ["{python}", script, "go"], {"A_WORD": "hello"}, True)
    assert process.line(30) == said(script, "go", spare=False) and ended(process) == 0


def test_a_spare_process_is_used_even_before_it_is_ready(place: LocalPlace, script: str) -> None:
    place.tend()
    assert not place.ready
    process = place.start("worker 0", ["{python}", script, "go"], {"A_WORD": "hello"}, True)
    assert process.line(60) == said(script, "go", spare=True) and ended(process) == 0


def test_a_spare_process_that_died_is_no_harm(place: LocalPlace, script: str) -> None:
    ready(place)
    os.kill(place._spares[0]._child.pid, signal.SIGKILL)
    place._spares[0]._child.wait()
    process = place.start("worker 0", ["{python}", script, "go"], {"A_WORD": "hello"}, True)
    assert process.line(30) == said(script, "go", spare=False) and ended(process) == 0


def test_a_spare_process_runs_modules(place: LocalPlace) -> None:
    ready(place)
    command = ["{python}", "-m", "gemel", "serve", "--workers", "1", "--port", "0", "--announce"]
    process = place.start("server 0", command, {"GEMEL_SECRET": "only this test"}, True)
    assert 0 < int(process.line(30)) < 1 << 16
    process.kill()
    assert process.poll() == -signal.SIGKILL


def test_another_spare_process_takes_its_place(place: LocalPlace, script: str) -> None:
    ready(place)
    process = place.start("worker 0", ["{python}", script, "go"], {"A_WORD": "hello"}, True)
    place.tend()
    assert not place._spares  # not yet: a starting process has priority
    assert ended(process) == 0
    ready(place)
    child = place._spares[0]._child
    place.close()
    assert child.poll() is not None


def test_other_commands_and_output_that_is_passed_on(capfd: pytest.CaptureFixture[str]) -> None:
    process = start_process(["echo", "a line"], {}, False)
    assert ended(process) == 0 and capfd.readouterr().out == "a line\n"


SERVERS = ("launch", "--servers", "1")
SERVE = ("serve", "--workers", "1")
REFUSED = [
    ((*SERVERS, "absent.py"), "MissingFileError: launch: there is no file absent.py"),
    ((*SERVERS, "--workers", "0", __file__), "1 servers and 0 workers; give --servers 1 and -n 1"),
    ((*SERVERS, "--restarts", "-1", __file__), "-1 restarts of each process; give --restarts 0"),
    ((*SERVERS, "--reach", "nan", __file__), "the limit reach is nan; it must be more than 0"),
    ((*SERVERS, "--timeout", "3", __file__), "--timeout 3 is for workers over MPI"),
    (("launch", "--engine", "ray", "-n", "1", __file__), "--engine ray starts servers"),
    (("launch", "-n", "1", "--restarts", "5", __file__), "--restarts is for jobs with servers"),
    (("launch", "-n", "1", "--folder", ".", __file__), "--folder is for jobs with servers"),
    (("launch", "-n", "1", "--wait", "60", __file__), "--wait is for jobs with servers"),
    (("launch", "-n", "1", "--rule=replace", __file__), "--rule is for jobs with servers"),
    (
        ("launch", "-n", "1", "--timeout", "0", __file__),
        "--timeout is 0.0 s; it must be more than 0",
    ),
    ((*SERVE, "--port", "70000"), "WorldError: kvstore: there is no port 70000"),
    ((*SERVE, "--port", "-1"), "there is no port -1"),
    (("serve", "--workers", "0"), "a server for 0 workers; give --workers 1 to 65536"),
    ((*SERVE, "--log-bytes", "0"), "after 0 bytes of log"),
    ((*SERVE, "--folder", __file__), "JournalError: .*the journal's folder cannot be created"),
]


@pytest.mark.parametrize(("arguments", "said"), REFUSED)
def test_wrong_use_is_refused_before_anything_starts(
    arguments: tuple[str, ...],
    said: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("GEMEL_SECRET", "only these tests know")
    handler = signal.getsignal(signal.SIGTERM)
    try:
        status = main(list(arguments))
    except SystemExit as error:
        status = int(error.code or 0)
    finally:
        signal.signal(signal.SIGTERM, handler)
    assert status == 2
    assert re.search(said, capsys.readouterr().err)


@pytest.mark.parametrize("spares", [0, 1])
@pytest.mark.parametrize(
    ("own", "cores", "threads"), [(None, 12, "3"), (None, 2, "1"), ("7", 12, "7")]
)
def test_processes_of_a_machine_share_its_cores(
    own: str | None,
    cores: int,
    threads: str,
    spares: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("GEMEL_WORKERS", raising=False)
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: range(cores))
    if own is not None:
        monkeypatch.setenv("GEMEL_WORKERS", own)
    script = tmp_path / "script.py"
    script.write_text("import os\nprint(os.environ['GEMEL_WORKERS'])")
    place = LocalPlace(spares, workers=3)
    if spares:
        ready(place)
    process = place.start("worker 0", ["{python}", str(script)], {}, True)
    assert process.line(30) == threads and ended(process) == 0
    place.close()


def test_fewer_than_no_spare_processes() -> None:
    with pytest.raises(WorkersError, match="-1 spare"):
        Job("train.py", spares=-1)


def test_servers_that_cannot_start_end_the_job(tmp_path: Path) -> None:
    """The output gives the reason."""
    (tmp_path / "server0").write_text("no folder")
    job = Job("train.py", folder=tmp_path)
    with pytest.raises(WorkersError, match="server 0 did not start"):
        Launcher(job, LocalPlace()).run()


@pytest.mark.parametrize(("rule", "status"), [("replace", 1), ("leave_out", 0)])
def test_a_worker_without_servers_is_not_started_again(rule: str, status: int) -> None:
    """It would only look for a server in vain, once for each allowed restart."""

    class Ended:
        def poll(self) -> int:
            return 3

    said: list[str] = []
    launcher = Launcher(Job("train.py", workers=2, rule=rule), LocalPlace(), say=said.append)
    launcher.servers[0].over = True
    launcher.workers[1].process = Ended()  # type: ignore[assignment]
    launcher._look()
    assert launcher.workers[1].over and launcher.status == status
    words = "left out" if rule == "leave_out" else "ended with 3, and all servers have ended"
    assert len(said) == 1 and words in said[0]


# One write for each line: `print` makes two where Python does not buffer, and those of workers mix.
SLEEPER = """
import os, time
from gemel import kvstore
store = kvstore.create("dist_sync")
os.write(1, b"ready\\n")
time.sleep(60 if store.num_workers == 2 else 0)
"""


@pytest.mark.parametrize("number", [None, signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_temporary_folder_goes_when_the_job_ends(
    number: signal.Signals | None, tmp_path: Path
) -> None:
    """Also if a signal ends it."""
    script, folder = tmp_path / "train.py", tmp_path / "temporary"
    script.write_text(SLEEPER)
    folder.mkdir()
    count = "1" if number is None else "2"
    command = [sys.executable, "-m", "gemel", *SERVERS, "--spares", "0", "-n", count, str(script)]
    # Tests that run under nohup ignore SIGHUP, and so would the job.
    job = subprocess.Popen(
        command, env={**os.environ, "TMPDIR": str(folder)}, stdout=subprocess.PIPE, text=True,
        preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_DFL),
    )  # fmt: skip
    assert job.stdout is not None and job.stdout.readline() == "ready\n"
    if number is not None:
        assert list(folder.glob("gemel-servers-*"))
        job.send_signal(number)
    with job:
        assert job.wait(60) == (0 if number is None else 128 + number)
    assert not list(folder.glob("gemel-servers-*"))


@pytest.mark.parametrize("start", [("-n",), ("--servers", "1", "--spares", "0", "-n")])
def test_a_job_started_by_nohup_outlives_its_terminal(
    start: tuple[str, ...], tmp_path: Path
) -> None:
    if start == ("-n",):
        pytest.importorskip("mpi4py")
    script = tmp_path / "train.py"
    script.write_text("import time\nprint('ready', flush=True)\ntime.sleep(1)\nprint('over')\n")
    command = [sys.executable, "-m", "gemel", "launch", *start, "1", str(script)]
    ignoring = ["/bin/sh", "-c", 'trap "" HUP; exec "$@"', "sh", *command]
    with subprocess.Popen(ignoring, stdout=subprocess.PIPE, text=True) as job:
        assert job.stdout is not None and job.stdout.readline() == "ready\n"
        job.send_signal(signal.SIGHUP)
        assert job.stdout.read() == "over\n"
        assert job.wait(60) == 0
