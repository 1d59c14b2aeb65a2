"""Three workers and two servers as processes, with faults at random moments.

With the rule "replace" the final values are those of a run without the fault, to the bit. With
"leave_out" the others go on, and each sum is exactly the participants' sum times 3 / their number.
"""

from __future__ import annotations

import json
import os
import random
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from server_jobs import Link, quiet

from gemel.kvstore.server.launch import Job, Launcher, LocalPlace, Slot
from gemel.kvstore.server.settings import Limits

pytestmark = [pytest.mark.distributed, pytest.mark.unsanitized("many processes")]

PROGRAM = str(Path(__file__).with_name("server_worker.py"))
LIMITS = Limits(silent=1.0, replace=8.0, wait=12.0, reach=3.0)
#: No job may take longer than this, whatever the fault.
LONGEST = 40.0
#: How many seconds the other processes may stand still.
RECOVERY = 5.0
STEPS, PAUSE = 80, 0.03


class Faulty(Launcher):
    """A launcher whose workers reach the servers over links that can be cut."""

    def __init__(self, job: Job, folder: Path) -> None:
        self.local = LocalPlace(spares=job.spares)
        super().__init__(job, self.local, say=lambda text: self.said.append(text))
        self.said: list[str] = []
        self.logs = folder
        self.links: dict[str, list[Link]] = {}

    def addresses(self, slot: Slot) -> list[tuple[str, int]]:
        for link in self.links.pop(slot.name, []):
            link.close()
        # A restarted worker stands for one on another machine, with intact links.
        self.links[slot.name] = [Link(address) for address in super().addresses(slot)]
        return [link.address for link in self.links[slot.name]]

    def steps(self) -> int:
        """The number of steps of the worker that is furthest ahead."""
        return max((len(lines) for lines in records(self.logs).values()), default=0)

    def kill(self, slot: Slot) -> None:
        os.kill(slot.process.pid, signal.SIGKILL)  # type: ignore[union-attr]


def records(folder: Path) -> dict[str, list[dict[str, Any]]]:
    """The complete log lines of each process, by file name: rank, restarts and process number."""
    found = {}
    for path in sorted(folder.iterdir()):
        text = path.read_text()
        whole = text[: text.rfind("\n") + 1]
        found[path.name] = [json.loads(line) for line in whole.splitlines()]
    return found


def kill_worker(made: Faulty, draw: random.Random) -> None:
    made.kill(draw.choice(made.workers))


def kill_server(made: Faulty, draw: random.Random) -> None:
    made.kill(draw.choice(made.servers))


def kill_two_workers(made: Faulty, draw: random.Random) -> None:
    for slot in draw.sample(made.workers, 2):
        made.kill(slot)


def kill_worker_and_server(made: Faulty, draw: random.Random) -> None:
    made.kill(draw.choice(made.servers))
    made.kill(draw.choice(made.workers))


def kill_both_servers(made: Faulty, draw: random.Random) -> None:
    for slot in made.servers:
        made.kill(slot)


def cut_link(made: Faulty, draw: random.Random) -> None:
    """Cut one link for 3 s, longer than a worker may be silent."""
    draw.choice(made.links[draw.choice(made.workers).name]).cut(3.0)


def cut_links(made: Faulty, draw: random.Random) -> None:
    """Cut all links of a worker for ever: it ends, and is restarted elsewhere."""
    for link in made.links[draw.choice(made.workers).name]:
        link.cut()


def stop_worker(made: Faulty, draw: random.Random) -> None:
    """Stop a worker for 1.5 s, so that it sends no signs of life."""
    pid = draw.choice(made.workers).process.pid  # type: ignore[union-attr]
    os.kill(pid, signal.SIGSTOP)
    threading.Timer(1.5, lambda: os.kill(pid, signal.SIGCONT)).start()


FAULTS: list[Callable[[Faulty, random.Random], None]] = [
    kill_worker, kill_server, kill_two_workers, kill_worker_and_server, kill_both_servers,
    cut_link, cut_links, stop_worker,
]  # fmt: skip


def run(
    folder: Path, mode: str, rule: str, fault: Callable[[Faulty], None] | None = None
) -> Faulty:
    logs = folder / f"logs-{mode}"
    logs.mkdir()
    job = Job(
        PROGRAM, (str(logs), str(STEPS), str(PAUSE), mode), servers=2, workers=3, rule=rule,
        limits=LIMITS, folder=folder / "journals", spares=2,
    )  # fmt: skip
    made = Faulty(job, logs)
    over = threading.Event()

    def harm() -> None:
        while not (made.steps() >= 4 and made.local.ready) and not over.wait(0.02):
            pass
        if fault is not None and not over.is_set():
            fault(made)

    def give_up() -> None:
        if not over.wait(LONGEST):
            for slot in [*made.workers, *made.servers]:
                made.kill(slot)
                slot.restarts = job.restarts

    threads = [threading.Thread(target=f, daemon=True) for f in (harm, give_up)]
    for thread in threads:
        thread.start()
    started = time.monotonic()
    status = made.run()
    over.set()
    assert time.monotonic() - started < LONGEST, made.said
    assert status == 0, made.said
    return made


def ends(made: Faulty) -> list[Any]:
    """The final values of the workers that ended."""
    return [line["values"] for lines in records(made.logs).values() for line in lines[-1:]
            if "ends" in line]  # fmt: skip


def longest_pause(made: Faulty) -> float:
    """The longest time in seconds between two steps of any workers: the whole job stood still."""
    times = sorted(
        line["time"] for lines in records(made.logs).values() for line in lines if "step" in line
    )
    return max(after - before for before, after in zip(times, times[1:], strict=False))


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The final values of a run without faults."""
    made = run(tmp_path_factory.mktemp("whole"), "adam", "replace")
    first, *others = ends(made)
    assert len(others) == 2 and all(other == first for other in others)
    return first


@pytest.mark.parametrize("number", range(12))
def test_replaced(tmp_path: Path, whole: Any, number: int) -> None:
    draw, fault = random.Random(number), FAULTS[number % len(FAULTS)]
    delay = draw.random() * 0.5

    def harm(made: Faulty) -> None:
        time.sleep(delay)
        fault(made, draw)

    made = run(tmp_path, "adam", "replace", harm)
    found = ends(made)
    assert len(found) == 3, (fault.__name__, made.said)
    assert all(values == whole for values in found), fault.__name__
    # A worker that is cut off for ever ends after that limit, and is then replaced.
    limit = LIMITS.reach if fault is cut_links else 0
    assert not quiet() or longest_pause(made) < limit + RECOVERY, fault.__name__


@pytest.mark.parametrize("number", range(8))
def test_left_out(tmp_path: Path, number: int) -> None:
    draw, fault = random.Random(100 + number), FAULTS[number % len(FAULTS)]
    delay = draw.random() * 0.5

    def harm(made: Faulty) -> None:
        time.sleep(delay)
        fault(made, draw)

    made = run(tmp_path, "sums", "leave_out", harm)
    assert ends(made), fault.__name__
    for name, lines in records(made.logs).items():
        for line in lines:
            if "step" not in line:
                continue
            for share, value in zip(line["shares"], line["firsts"], strict=True):
                exact = value * share / 3
                assert exact == int(exact) and int(exact).bit_count() == share, (name, line)
    assert not quiet() or longest_pause(made) < RECOVERY, fault.__name__


def program(folder: Path, text: str) -> str:
    path = folder / "train.py"
    path.write_text(text)
    return str(path)


BEGIN = """
from gemel import kvstore, np
store = kvstore.create("dist_sync")
w = np.zeros((3,))
store.init(0, w)
for step in range(store.step, 5):
    store.pushpull(0, np.ones((3,)), w)
"""


@pytest.mark.parametrize(
    ("text", "status", "said"),
    [
        (BEGIN, 0, [0]),
        (BEGIN + "w.wait_to_read()\nif store.rank: raise ValueError('a mistake')", 1, [4]),
        # It has told the servers that it is done, so they may end before the third try.
        (BEGIN + "import sys\nsys.exit(3 if store.rank else 0)", 1, [2, 3, 4]),
    ],
)
def test_how_programs_end(tmp_path: Path, text: str, status: int, said: list[int]) -> None:
    """Values nobody waits for cause no failure. A mistake is tried again, and then reported."""
    heard: list[str] = []
    limits = Limits(silent=1, replace=8, wait=15, reach=5)
    job = Job(program(tmp_path, text), servers=2, workers=2, restarts=3, limits=limits)
    started = time.monotonic()
    assert Launcher(job, LocalPlace(), heard.append).run() == status
    assert len(heard) in said and time.monotonic() - started < LONGEST
    ends = "is started again", "all servers have ended", "3 restarts ago"
    assert all(any(end in each for end in ends) for each in heard), heard
