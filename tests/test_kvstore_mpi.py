"""Workers that train together over MPI: 2 and 4 processes of this machine."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import mpi_programs
import numpy
import pytest
from sklearn.datasets import load_digits

from gemel import cpu
from gemel.command import launching

pytestmark = [
    pytest.mark.distributed,
    pytest.mark.skipif(
        find_spec("mpi4py") is None, reason="mpi4py is not installed: make distributed"
    ),
]

PROGRAM = Path(mpi_programs.__file__)


def launched(
    folder: Path, workers: int, name: str, *options: str, **settings: Any
) -> tuple[subprocess.CompletedProcess[str], dict[int, Any]]:
    """The finished job, and the workers' result files by rank."""
    folder.mkdir(exist_ok=True)
    given = [name, str(folder), json.dumps(settings)]
    command = [sys.executable, "-m", "gemel", "launch", "-n", str(workers), *options]
    job = subprocess.run(
        [*command, str(PROGRAM), *given], capture_output=True, text=True, timeout=120,
        errors="replace",
    )  # fmt: skip
    files = {rank: folder / f"{rank}.json" for rank in range(workers)}
    return job, {r: json.loads(f.read_text()) for r, f in files.items() if f.exists()}


def found(folder: Path, workers: int, name: str, **settings: Any) -> list[Any]:
    """The workers' results in a job that must succeed."""
    job, written = launched(folder, workers, name, **settings)
    assert job.returncode == 0, job.stdout + job.stderr
    assert sorted(written) == list(range(workers))
    return [written[rank] for rank in range(workers)]


# ---- training


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file of real handwritten digits."""
    images, labels = load_digits(return_X_y=True)
    path = tmp_path_factory.mktemp("data") / "digits.npz"
    numpy.savez(path, images=(images / 16).astype("float32"), labels=labels.astype("int64"))
    return path


TRAININGS: list[tuple[int, dict[str, Any]]] = [
    (2, {}),
    (2, {"hybrid": True, "deferred": False}),
    (2, {"devices": 2, "optimizer": "adam", "rate": 0.01}),
    (2, {"on_store": True}),
    (4, {"hybrid": True}),
]


@pytest.mark.parametrize(("workers", "settings"), TRAININGS)
def test_training_equals_that_on_the_whole_batch(workers, settings, digits, tmp_path):
    """Equal to 1e-5, since the sums over the batch are made in parts."""
    digests = found(tmp_path, workers, "training", data=str(digits), **settings)
    assert len(set(digests)) == 1
    loaded = numpy.load(tmp_path / "parameters.npz")
    settings = {key: value for key, value in settings.items() if key != "on_store"}
    serial = mpi_programs.trained(None, [cpu(0)], digits, settings)
    for number, expected in enumerate(serial):
        numpy.testing.assert_allclose(loaded[f"arr_{number}"], expected, rtol=0, atol=1e-5)


def test_the_same_bits_twice_and_on_devices_of_one_process(digits, tmp_path):
    """Gradients are added in the order of ranks, which is that of the devices."""
    given = {"data": str(digits), "hybrid": True}
    runs = [found(tmp_path / str(run), 4, "training", **given)[0] for run in range(2)]
    places = [cpu(number) for number in range(4)]
    one = mpi_programs.trained("device", places, digits, {"hybrid": True})
    assert runs == [mpi_programs.digest(one)] * 2


def test_training_with_compressed_gradients(digits, tmp_path):
    """Both workers agree to the bit, and the parameters stay near those without compression."""
    digests = found(tmp_path, 2, "training", data=str(digits), compression={"type": "bf16"})
    assert digests[0] == digests[1]
    loaded = numpy.load(tmp_path / "parameters.npz")
    serial = mpi_programs.trained(None, [cpu(0)], digits, {})
    apart = [abs(loaded[f"arr_{n}"] - expected).max() for n, expected in enumerate(serial)]
    assert 0 < max(apart) < 0.05


# ---- stores


@pytest.mark.parametrize("workers", [2, 3])
def test_what_stores_do(workers, tmp_path):
    ranks = range(workers)
    total = sum(rank + 1.0 for rank in ranks)
    for rank, one in enumerate(found(tmp_path, workers, "values")):
        assert one.pop("type") == "dist_sync" and one.pop("place") == [rank, workers]
        assert one.pop("from rank 0") == [5, 5, 5]
        assert one.pop("both devices of all") == [total + 10 * workers] * 3
        assert one.pop("lists") == [[total - workers] * 2, [[2 * workers]]]
        for dtype in ("float16", "bfloat16", "float64", "int32", "int8"):
            assert one.pop(dtype) == [dtype, [total] * 2]
        assert one.pop("bool") == ["bool", [True, False]]
        assert one.pop("rounded once") == [numpy.float16(2047 + 2 * workers)]
        assert one.pop("empty") == [0, 4]
        assert one.pop("orders") == [[n * workers, (10 + n) * workers] for n in range(5)]
        assert one.pop("optimizer") == [1 - 0.5 * workers] * 2
        assert one.pop("updater") == [1 + 3 * workers] * 2
        assert one.pop("other") == [2, 2, 2]
        assert one == {}


@pytest.mark.parametrize("workers", [2, 4])
def test_sums_are_made_in_the_order_of_ranks(workers, tmp_path):
    for one in found(tmp_path, workers, "order"):
        assert one == dict.fromkeys(one, True) and len(one) == 4


@pytest.mark.parametrize("workers", [2, 3, 4])
def test_every_way_to_add_up(workers, tmp_path):
    """The same bits on all workers, alone or with others; in the order of ranks where promised."""
    job, written = launched(tmp_path, workers, "ways")
    assert sorted(written) == list(range(workers)), job.stdout + job.stderr
    first = written[0]
    assert all(one == first for one in written.values())
    said, names = first.pop("said"), {"gather", "pieces", "mpi", "chain", "ring", "tree", "direct"}
    names.add("lines")
    assert f"{workers} workers on 1 machine; measured in" in said and "chosen by 'ranks'" in said
    assert "kept by" not in said and said.count(" kept ") == (9 if workers == 2 else 6)
    assert first.pop("went") == sorted(f"by {name}" for name in names)
    assert first.pop("int8") == [(sum(100 + r for r in range(workers)) + 128) % 256 - 128] * 5
    assert "'rinf'" in first.pop("unknown") and "schedule ring" in first.pop("disagreement")
    assert set(first) == names
    for name, (repeats, exact, near, _) in first.items():
        assert [repeats, exact, near] == [True] * 3, name
    assert len({first[name][3] for name in ("lines", "gather", "pieces", "chain", "direct")}) == 1


@pytest.mark.parametrize("schedule", ["ring", "any"])
def test_training_by_another_schedule(schedule, digits, tmp_path, monkeypatch):
    """Replicas stay equal to the bit; the parameters equal those of one process to 1e-5."""
    monkeypatch.setenv("GEMEL_SCHEDULE", schedule)
    digests = found(tmp_path, 4, "training", data=str(digits), hybrid=True)
    assert len(set(digests)) == 1
    loaded = numpy.load(tmp_path / "parameters.npz")
    for number, expected in enumerate(mpi_programs.trained(None, [cpu(0)], digits, {})):
        numpy.testing.assert_allclose(loaded[f"arr_{number}"], expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize(("kind", "size"), [("2bit", 6), ("fp16", 42), ("bf16", 42)])
def test_compressed_sums_are_those_of_numpy(kind, size, tmp_path):
    for one in found(tmp_path, 2, "compressed", kind=kind):
        assert one == {"apart": 0.0, "bytes": size}


@pytest.mark.parametrize("kind", ["none", "fp16", "bf16", "2bit"])
def test_a_step_that_overflows_on_one_worker_is_left_out_on_all(kind, tmp_path):
    steps = [[True, 2.0**16], [False, 2.0**15], [True, 2.0**15], [True, 2.0**15]]
    assert found(tmp_path, 2, "overflowing", kind=kind) == [steps] * 2


# ---- blocks of rows

BLOCKS = [
    (2, "plain"), (4, "plain"), (2, "imperative"), (2, "add"), (2, "devices"), (3, "fp16"),
    (2, "2bit"), (2, "read"), (2, "touched"), (2, "shared"), (2, "apart"), (2, "on store"),
]  # fmt: skip


@pytest.mark.parametrize(("workers", "how"), BLOCKS)
def test_blocks_of_rows_have_the_bits_of_the_whole(workers, how, tmp_path):
    """Whatever a program does with a gradient, and whether backward has cut it or not."""
    for whole, cut, alone in (written := found(tmp_path, workers, "in_blocks", how=how)):
        assert whole[0] == cut[0] == alone[0]
        assert cut[1] > whole[1] and alone[1] > whole[1]
        assert [whole, cut, alone] == written[0]


@pytest.mark.parametrize(
    ("agreed", "words"),
    [(True, r"key \d, rows |the contents of a step"), (False, "worker 1 is gone")],
)
def test_a_worker_that_dies_between_two_blocks(agreed, words, tmp_path, monkeypatch):
    if _is_mpich():
        pytest.skip("only Open MPI's starter lets the others go on")
    monkeypatch.setenv("PRTE_MCA_state_base_recoverable", "1")
    job, written = launched(tmp_path, 3, "torn", "--timeout", "2", agreed=agreed)
    assert job.returncode != 0 and sorted(written) == [0, 2]
    for one in written.values():
        assert one["error"] == "WorkersError"
        assert re.search(words, one["text"])


@pytest.mark.parametrize("sockets", ["", "none"])
def test_a_program_that_ends_first_does_what_it_has_issued(sockets, tmp_path, monkeypatch):
    monkeypatch.setenv("GEMEL_SOCKETS", sockets)
    assert found(tmp_path, 3, "ending") == [[3.0] * 4, "ended", "ended"]


@pytest.mark.parametrize("name", ["interrupted", "busy"])
def test_what_happens_at_the_end_leaves_nobody_waiting(name, tmp_path):
    """The job ends long before the limit of `launched`; an interrupt ends it at once."""
    job, written = launched(tmp_path, 2, name, "--timeout", "5")
    assert written[1] == "over"
    if name == "interrupted":
        assert job.returncode != 0 and "KeyboardInterrupt" in job.stderr


# ---- what can go wrong

PROBLEMS = [
    ("shape", r"worker 1 has a sum of float32 (4), worker 0 a sum of float32 (3)"),
    ("dtype", r"worker 1 has a sum of int32 (3), worker 0 a sum of float32 (3)"),
    ("compression", r"worker 1 has a gather of bfloat16 (3), bf16, of shape (3,), worker 0"),
    ("key", "worker 1 has not arrived at key 'a' for 2 s; workers 0, 2 have arrived; "
     "worker 1 has arrived at a barrier instead"),
    ("index", "worker 1: key 'a': take: an index is out of bounds"),
    ("exit", "worker 1 has ended while worker 0 waits for it at key 'a'"),
    ("raise", "worker 1 has ended (with ValueError) while worker 0 waits for it at key 'a'"),
]  # fmt: skip


@pytest.mark.parametrize(("how", "words"), PROBLEMS)
def test_a_worker_that_makes_another_call_is_named(how, words, tmp_path):
    job, written = launched(tmp_path, 3, "wrong", "--timeout", "2", how=how)
    assert job.returncode != 0
    told = written[0]
    assert told["error"] == told["after"] == "WorkersError"
    # Worker 1 is compared with whichever other worker has come first.
    texts = [one["text"].replace("worker 2 a ", "worker 0 a ") for one in (told, written[2])]
    assert words in texts[0] and "mpi_programs.py:" in texts[0]
    if how in ("shape", "dtype", "compression", "key"):
        assert words in texts[1]
    assert "gemel launch: the job of 3 workers ended with status" in job.stderr


APART = [
    ("key", "a sum of float32 (4) for key 'b' 3 times, but not key 'a'"),
    ("barrier", "a sum of float32 (3) for key 'a' 6 times and a sum of float32 (4) for key 'b' 0"),
    ("parameters", "wd=0.0, parameters=4)"),
    ("pull", "a sum of float32 (4)"),
]  # fmt: skip


@pytest.mark.parametrize(("how", "words"), APART)
def test_what_differs_is_told_while_nobody_waits_for_sums(how, words, tmp_path):
    """Long before the limit, which is 60 s here, and on all workers."""
    job, written = launched(tmp_path, 3, "apart", "--timeout", "60", how=how)
    assert sorted(written) == [0, 1, 2], job.stdout + job.stderr
    for one in written.values():
        assert one["error"] == "WorkersError" and one["step"] < 100
        assert words in one["text"] and "worker 1 " in one["text"], one["text"]


def test_optimizers_set_on_the_store_are_compared(tmp_path):
    """Each worker updates its own replica."""
    for rank, value in enumerate(found(tmp_path, 2, "optimizers", names=["sgd", "sgd"])):
        assert value == [0.0] * 3, rank
    job, written = launched(tmp_path, 2, "optimizers", names=["sgd", "adam"])
    assert job.returncode != 0
    words = "the workers disagree about the optimizer: worker 1 has a rule Adam("
    assert any(words in one["text"] for one in written.values())
    assert {one["error"] for one in written.values()} == {"WorkersError"}


def test_wrong_use_on_one_worker_names_it(tmp_path):
    texts = found(tmp_path, 2, "misused")[1]
    assert len(texts) == 4 and all("worker 1: " in text for text in texts), texts


def test_another_schedule_of_the_environment_is_named(tmp_path):
    job, _ = launched(tmp_path, 2, "values", schedules=["ranks", "any"])
    assert job.returncode != 0
    assert "WorkersError: kvstore: the workers disagree about the start: " in job.stderr
    assert "schedule any" in job.stderr and "schedule ranks" in job.stderr


@pytest.mark.parametrize("how", ["stop", "kill"])
def test_a_worker_that_dies_leaves_nobody_waiting(how, tmp_path, monkeypatch):
    """With "kill" only if the MPI launcher can be told to let the other workers go on."""
    if how == "kill" and _is_mpich():
        pytest.skip("only Open MPI's starter lets the others go on")
    monkeypatch.setenv("PRTE_MCA_state_base_recoverable", "1")
    job, written = launched(tmp_path, 3, "wrong", "--timeout", "2", how=how)
    assert job.returncode != 0
    for rank in (0, 2):
        assert "worker 1 has not arrived at key 'a' for 2 s" in written[rank]["text"]


def test_a_killed_worker_ends_the_job(tmp_path):
    """The job ends long before the limit for waits between workers, which is 300 s here."""
    job, written = launched(tmp_path, 3, "wrong", how="kill")
    assert job.returncode != 0 and 1 not in written
    assert "the job of 3 workers ended with status" in job.stderr


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_launcher_that_is_told_to_end_ends_its_workers(number, tmp_path):
    program = tmp_path / "program.py"
    # One write for each line: `print` makes two where Python does not buffer, and theirs mix.
    program.write_text("import os, time\nos.write(1, b'%d\\n' % os.getpid())\ntime.sleep(600)\n")
    command = [sys.executable, "-m", "gemel", "launch", "-n", "2", str(program)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as job:
        workers = [int(job.stdout.readline()) for _ in range(2)]
        job.send_signal(number)
        assert job.wait(60) != 0
    until = time.monotonic() + 60  # the starter kills them, and may end before they do
    while left := [pid for pid in workers if Path(f"/proc/{pid}").exists()]:
        assert time.monotonic() < until, f"still there: {left}"
        time.sleep(0.05)


def test_the_first_worker_reads_standard_input_to_its_end(tmp_path):
    program = tmp_path / "program.py"
    program.write_text("import sys\nprint(repr(sys.stdin.read()))\n")
    command = [sys.executable, "-m", "gemel", "launch", "-n", "2", str(program)]
    job = subprocess.run(command, input="a\nb", capture_output=True, text=True, timeout=60)
    assert job.returncode == 0 and sorted(job.stdout.split()) == ["''", r"'a\nb'"]


def test_a_fork_of_a_worker_is_not_a_worker(tmp_path):
    assert found(tmp_path, 2, "wrong", how="fork") == ["done"] * 2


def test_one_process_alone_is_a_world_of_one(tmp_path):
    (tmp_path / "alone").mkdir()
    given = ["values", str(tmp_path / "alone"), "{}"]
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("OMPI_", "PMI"))}
    job = subprocess.run(
        [sys.executable, str(PROGRAM), *given], capture_output=True, text=True, env=clean
    )
    assert job.returncode == 0, job.stderr
    written = json.loads((tmp_path / "alone" / "0.json").read_text())
    assert written["place"] == [0, 1] and written["both devices of all"] == [11, 11, 11]


def test_processes_of_another_mpi_are_no_world(tmp_path):
    (tmp_path / "alone").mkdir()
    given = ["values", str(tmp_path / "alone"), "{}"]
    strange = "OMPI_COMM_WORLD_SIZE" if _is_mpich() else "PMI_SIZE"
    job = subprocess.run(
        [sys.executable, str(PROGRAM), *given], capture_output=True, text=True,
        env={**os.environ, strange: "4"},
    )  # fmt: skip
    assert f"4 processes were started ({strange}), but MPI sees 1" in job.stderr


def _is_mpich() -> bool:
    said = subprocess.run([launching._starter(), "--version"], capture_output=True, text=True)
    return "Open MPI" not in said.stdout
