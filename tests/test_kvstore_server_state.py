"""The state of a server: rounds, exactly-once pushes, and the files that restore it."""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import Any

import numpy
import pytest

from gemel import optimizer
from gemel.errors import (
    JournalError,
    KeyShapeError,
    LeftOutError,
    ProtocolError,
    UnknownKeyError,
    WorldError,
)
from gemel.kvstore.server.journal import Journal, read_snapshot, write_snapshot
from gemel.kvstore.server.protocol import Kind, Message, array_message, text_message
from gemel.kvstore.server.split import key_number
from gemel.kvstore.server.state import State
from gemel.kvstore.server.updates import build, describe, numbers_for

NAME = "str:w"
KEY = key_number(NAME, 0)


def declare(name: str = NAME, shape: Any = (3,), dtype: str = "float32", **changes: Any) -> Message:
    values = {
        "name": name, "piece": 0, "shape": list(shape), "dtype": dtype, "rounds": True,
        "staleness": 0, "barrier": False, **changes,
    }  # fmt: skip
    return text_message(Kind.DECLARE, values, key=key_number(name, 0))


def first(array: Any, key: int = KEY) -> Message:
    return array_message(Kind.INIT, numpy.asarray(array), key=key)


def push(array: Any, sequence: int, key: int = KEY, numbers: Any = (0.0, 1.0, 0.0)) -> Message:
    given = numpy.asarray(array)
    return array_message(Kind.PUSH, given, key=key, sequence=sequence, numbers=numbers)


def begun(workers: int, values: Any = (0, 0, 0), **changes: Any) -> State:
    state = State(workers)
    for rank in range(workers):
        state.apply(rank, declare(**changes))
    state.apply(0, first(numpy.asarray(values, "float32")))
    return state


def pulled(state: State, rank: int, sequence: int) -> list[float] | None:
    answer = state.answer(rank, Message(Kind.PULL, key=KEY, sequence=sequence))
    return None if answer is None else answer.array().tolist()


def ones(factor: float) -> Any:
    return numpy.full(3, factor, "float32")


def test_a_round_ends_when_all_have_pushed() -> None:
    state = begun(3)
    assert pulled(state, 1, 0) == [0, 0, 0]
    state.apply(2, push(ones(4), 1)), state.apply(0, push(ones(1), 1))
    assert pulled(state, 0, 1) is None and state.missing(KEY, 1) == [1]
    state.apply(1, push(ones(2), 1))
    assert pulled(state, 0, 1) == [7, 7, 7]


def test_the_sum_is_made_in_the_order_of_ranks() -> None:
    draw = numpy.random.default_rng(0)
    parts = [draw.normal(size=3).astype("float32") * 10.0**rank for rank in range(4)]
    wanted = ((parts[0] + parts[1]) + parts[2]) + parts[3]
    for order in ([0, 1, 2, 3], [3, 2, 1, 0], [2, 0, 3, 1]):
        state = begun(4)
        for rank in order:
            state.apply(rank, push(parts[rank], 1))
        assert pulled(state, 0, 1) == wanted.tolist()


def test_float16_adds_up_in_float32() -> None:
    state = State(3)
    state.apply(0, declare(dtype="float16")), state.apply(0, first(numpy.zeros(3, "float16")))
    for rank, value in enumerate((2048.0, 1.0, 1.0)):
        state.apply(rank, push(numpy.full(3, value, "float16"), 1))
    assert pulled(state, 0, 1) == [2050, 2050, 2050]


def test_a_push_that_comes_twice_counts_once() -> None:
    state = begun(2)
    assert state.apply(0, push(ones(1), 1)) and not state.apply(0, push(ones(1), 1))
    state.apply(1, push(ones(2), 1))
    assert not state.apply(0, push(ones(100), 1))
    assert pulled(state, 0, 1) == [3, 3, 3]


def test_a_push_that_was_lost_is_noticed() -> None:
    state = begun(2)
    with pytest.raises(WorldError, match=r"worker 0 sent push 2 of key 'w'.*after push 0"):
        state.apply(0, push(ones(1), 2))


def test_the_round_before_is_kept() -> None:
    """A worker that takes over within a step gets the values that the step began with."""
    state = begun(1)
    for number in (1, 2):
        state.apply(0, push(ones(number), number))
    assert pulled(state, 0, 1) == [1, 1, 1] and pulled(state, 0, 2) == [2, 2, 2]
    with pytest.raises(WorldError, match="asks for round 0"):
        pulled(state, 0, 0)


def test_a_worker_that_is_left_out() -> None:
    state = begun(3)
    state.apply(0, push(ones(1), 1)), state.apply(1, push(ones(2), 1))
    state.apply(2, text_message(Kind.LEFT_OUT, {}))
    answer = state.answer(0, Message(Kind.PULL, key=KEY, sequence=1))
    assert answer is not None
    assert answer.array().tolist() == [4.5, 4.5, 4.5]  # 3 * 3 / 2, for 2 of 3 workers
    assert answer.numbers == (2.0, 3.0, 0.0)
    with pytest.raises(LeftOutError, match="worker 2 was left out"):
        state.apply(2, push(ones(1), 1))
    with pytest.raises(LeftOutError, match="worker 2"):
        pulled(state, 2, 0)


def test_pushes_before_the_death_of_a_worker_count() -> None:
    state = begun(2)
    state.apply(1, push(ones(5), 1))
    state.apply(1, text_message(Kind.LEFT_OUT, {}))
    assert pulled(state, 0, 0) == [0, 0, 0]
    state.apply(0, push(ones(1), 1)), state.apply(0, push(ones(1), 2))
    assert pulled(state, 0, 1) == [6, 6, 6] and pulled(state, 0, 2) == [2, 2, 2]


def test_a_worker_joins() -> None:
    state = begun(2)
    state.apply(1, text_message(Kind.LEFT_OUT, {}))
    for number in (1, 2, 3):
        state.apply(0, push(ones(number), number))
    assert not state.apply(1, Message(Kind.ACTIVATE, sequence=2)), "round 3 has ended"
    assert state.apply(1, Message(Kind.ACTIVATE, sequence=4))
    assert pulled(state, 1, 4) is None
    state.apply(0, push(ones(4), 4))
    assert pulled(state, 1, 4) == pulled(state, 0, 4) == [8, 8, 8]
    state.apply(0, push(ones(1), 5))
    assert pulled(state, 0, 5) is None, "from now on rounds wait for it"
    state.apply(1, push(ones(2), 5))
    assert pulled(state, 0, 5) == [3, 3, 3]


def test_a_worker_joins_later_than_it_asked_for_first() -> None:
    """Another server had already ended that round, so this one must not wait for the worker."""
    state = begun(2)
    state.apply(1, text_message(Kind.LEFT_OUT, {}))
    state.apply(0, push(ones(1), 1))
    assert state.apply(1, Message(Kind.ACTIVATE, sequence=1))
    state.apply(0, push(ones(2), 2)), state.apply(0, push(ones(3), 3))
    assert pulled(state, 0, 2) is None and state.missing(KEY, 2) == [1]
    assert state.apply(1, Message(Kind.ACTIVATE, sequence=3))
    assert pulled(state, 0, 2) == [4, 4, 4] and pulled(state, 0, 3) == [6, 6, 6]
    assert state.apply(1, Message(Kind.ACTIVATE, sequence=3)), "the first answer may be lost"
    state.apply(0, push(ones(4), 4))
    assert pulled(state, 0, 4) is None
    state.apply(1, push(ones(5), 4))
    assert pulled(state, 0, 4) == pulled(state, 1, 4) == [9, 9, 9]


def test_a_worker_joins_where_it_was_never_left_out() -> None:
    """The other server had noticed its silence, and went on without it."""
    state = begun(3)
    for rank in range(3):
        state.apply(rank, push(ones(1), 1))
    state.apply(0, push(ones(1), 2)), state.apply(2, push(ones(2), 2))
    assert state.missing(KEY, 2) == [1]
    assert state.apply(1, Message(Kind.ACTIVATE, sequence=2))
    assert pulled(state, 0, 2) == [4.5, 4.5, 4.5]
    for rank in range(3):
        state.apply(rank, push(ones(rank), 3))
    assert pulled(state, 1, 3) == [3, 3, 3]


def test_without_rounds_a_push_counts_at_once() -> None:
    state = begun(2, rounds=False, staleness=2)
    for number in range(1, 4):
        state.apply(0, push(ones(number), number))
        answer = pulled(state, 0, number)
        assert answer == ([number] * 3 if number <= 2 else None)
    assert state.missing(KEY, 3) == [1]
    state.apply(1, push(ones(9), 1))
    assert pulled(state, 0, 3) == [9, 9, 9]


def test_refusals_name_worker_and_key() -> None:
    state = begun(2)
    with pytest.raises(KeyShapeError, match=r"worker 1 has float32\[4\] for key 'w'"):
        state.apply(1, declare(shape=(4,)))
    with pytest.raises(KeyShapeError, match=r"worker 1 has float64\[3\] for key 'w'"):
        state.apply(1, declare(dtype="float64"))
    with pytest.raises(WorldError, match=r"worker 1 declares key 'w'.*another kind"):
        state.apply(1, declare(rounds=False))
    with pytest.raises(KeyShapeError, match=r"worker 1 sent float32\[2, 3\]"):
        state.apply(1, push(numpy.zeros((2, 3), "float32"), 1))
    with pytest.raises(UnknownKeyError, match="worker 1 asks for a key"):
        state.apply(1, push(ones(1), 1, key=5))
    with pytest.raises(ProtocolError, match="WELCOME is not a message"):
        state.apply(1, Message(Kind.WELCOME))
    state.apply(0, push(ones(1), 1, numbers=(0.1, 1.0, 0.0)))
    with pytest.raises(WorldError, match=r"worker 1 pushes key 'w'.*worker 0 with"):
        state.apply(1, push(ones(1), 1, numbers=(0.2, 1.0, 0.0)))
    state.apply(0, text_message(Kind.OPTIMIZER, describe(optimizer.create("adam"))))
    with pytest.raises(WorldError, match=r"worker 1 sets the optimizer sgd.*the servers have adam"):
        state.apply(1, text_message(Kind.OPTIMIZER, describe(optimizer.create("sgd"))))
    assert pulled(state, 0, 0) == [0, 0, 0]


# ---- optimizers

REGISTERED = sorted(set(optimizer._BY_NAME) - {"sgld"})


@pytest.mark.parametrize("name", REGISTERED)
def test_an_optimizer_described_is_the_same(name: str) -> None:
    rule = optimizer.create(name, wd=0.01, clip_gradient=1.0)
    again = build(describe(rule))
    assert type(again) is type(rule)
    kept = {k: v for k, v in vars(rule).items() if k[0] != "_" and k not in ("lr", "wd")}
    assert {k: vars(again)[k] for k in kept} == kept


def test_optimizers_servers_cannot_have() -> None:
    with pytest.raises(WorldError, match="sgld draws random numbers"):
        describe(optimizer.create("sgld"))

    with pytest.raises(WorldError, match="sgd's setting clip_gradient=inf is not finite"):
        describe(optimizer.SGD(clip_gradient=float("inf")))

    class Mine(optimizer.SGD):
        pass

    with pytest.raises(WorldError, match=r"Mine is not an optimizer of gemel\.optimizer"):
        describe(Mine())


# ---- files


def history(seed: int) -> list[tuple[int, Message]]:
    """The messages of a job with three workers, two keys and an optimizer."""
    draw, make = random.Random(seed), numpy.random.default_rng(seed)
    rule = optimizer.create("adam", learning_rate=0.1, wd=0.01)
    names = ("str:w", "int:1")
    found: list[tuple[int, Message]] = [(0, declare(name)) for name in names]
    found += [(0, first(ones(1.0), key_number(name, 0))) for name in names]
    found.append((0, text_message(Kind.OPTIMIZER, describe(rule))))
    for step in range(1, 6):
        pushes = [
            (rank, push(make.normal(size=3).astype("float32"), step, key_number(name, 0),
                        numbers_for(rule, name, step)))
            for rank in range(3) for name in names
        ]  # fmt: skip
        draw.shuffle(pushes)
        if step == 3:
            pushes.append((2, text_message(Kind.LEFT_OUT, {})))
        found += [(rank, m) for rank, m in pushes if step <= 3 or rank != 2]
    return found


def values(state: State) -> list[Any]:
    return [
        (
            number,
            entry.version,
            None if entry.value is None else entry.value.tobytes(),
            None if entry.previous is None else entry.previous.tobytes(),
            entry.last,
            {sequence: sorted(pushes) for sequence, pushes in entry.pending.items()},
        )
        for number, entry in state.entries.items()
    ]


@pytest.mark.parametrize("limit", [1, 300, 1 << 20], ids=["always", "often", "never"])
def test_a_server_started_again_is_where_it_was(tmp_path: Path, limit: int) -> None:
    """The server may restart after any message, with a snapshot of any age."""
    straight = State(3)
    journal = Journal(tmp_path, limit)
    state = journal.load(3)
    for rank, message in history(1):
        straight.apply(rank, message)
        if state.apply(rank, message):
            journal.append(rank, message)
        if journal.is_full:
            journal.snapshot(state)
        journal.close()
        journal = Journal(tmp_path, limit)
        state = journal.load(3)
        assert values(state) == values(straight)
    journal.close()
    assert state.gone == {2} and state.updates is not None
    counts, arrays = state.updates.states()
    assert set(counts.values()) == {5} and len(arrays) == 2
    assert len(os.listdir(tmp_path)) == 3  # a snapshot, its log and the lock


def test_a_record_cut_off_is_forgotten(tmp_path: Path) -> None:
    """The process was killed while it wrote the record; nobody was told that the push counts."""
    journal = Journal(tmp_path)
    state = journal.load(1)
    sizes = []
    for rank, message in history(2)[:5]:
        state.apply(rank, message)
        journal.append(rank, message)
        sizes.append((tmp_path / "log.0").stat().st_size)
    journal.close()
    data = (tmp_path / "log.0").read_bytes()
    for length in range(sizes[3], sizes[4]):
        (tmp_path / "log.0").write_bytes(data[:length])
        again = Journal(tmp_path)
        found = again.load(1)
        again.close()
        assert found.updates is None and len(found.entries) == 2
        assert (tmp_path / "log.0").stat().st_size == sizes[3]


def test_damage_is_noticed(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    state = journal.load(1)
    for rank, message in history(3)[:5]:
        state.apply(rank, message)
        journal.append(rank, message)
    journal.close()
    path = tmp_path / "log.0"
    data = bytearray(path.read_bytes())
    data[40] ^= 1
    path.write_bytes(data)
    with pytest.raises(JournalError, match="the record at byte 0 is damaged"):
        Journal(tmp_path).load(1)
    write_snapshot(tmp_path / "snapshot.1", state)
    whole = (tmp_path / "snapshot.1").read_bytes()
    assert values(read_snapshot(tmp_path / "snapshot.1")) == values(state)
    for damaged in (whole[:-1], whole[:30], b"", whole[:50] + b"?" + whole[51:]):
        (tmp_path / "snapshot.1").write_bytes(damaged)
        with pytest.raises(JournalError, match="damaged"):
            read_snapshot(tmp_path / "snapshot.1")


def test_a_record_with_another_rank_or_length_is_damaged(tmp_path: Path) -> None:
    """A longer record could look like an unfinished last one, and all after it would be lost."""
    journal = Journal(tmp_path)
    state = journal.load(3)
    for rank, message in history(3)[:5]:
        if state.apply(rank, message):
            journal.append(rank, message)
    journal.close()
    whole = (tmp_path / "log.0").read_bytes()
    for place in range(16):
        damaged = bytearray(whole)
        damaged[place] ^= 1
        (tmp_path / "log.0").write_bytes(damaged)
        with pytest.raises(JournalError, match="the record at byte 0 is damaged"):
            Journal(tmp_path).load(3)


def test_a_log_without_its_snapshot_is_no_new_job(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    journal.snapshot(journal.load(1))
    journal.close()
    (tmp_path / "snapshot.1").unlink()
    with pytest.raises(JournalError, match=r"log.1 continues snapshot.1, which is missing"):
        Journal(tmp_path).load(1)


def test_a_folder_is_one_server_s(tmp_path: Path) -> None:
    """Another server, even of another job, would cut off and lose what this one writes."""
    journal = Journal(tmp_path)
    journal.load(1)
    for workers in (1, 2):
        with pytest.raises(JournalError, match="a running server already keeps its journal here"):
            Journal(tmp_path).load(workers)
    journal.close()
    again = Journal(tmp_path)
    again.load(1)
    again.close()


@pytest.mark.parametrize("workers", [1, 2, 5])
@pytest.mark.parametrize("until", [20, None], ids=["in a round", "after a round"])
def test_another_number_of_workers_goes_on(tmp_path: Path, workers: int, until: int | None) -> None:
    """They start from the values of complete rounds; pushes of an open round are repeated."""
    journal = Journal(tmp_path)
    state = journal.load(3)
    for rank, message in history(5)[:until]:
        if state.apply(rank, message):
            journal.append(rank, message)
    journal.close()
    again = Journal(tmp_path)
    found = again.load(workers)
    assert again.is_new_job and found.live == list(range(workers)) and found.workers == workers
    for number, entry in found.entries.items():
        old = state.entries[number]
        assert (entry.value == old.value).all() and entry.version == old.version
        assert entry.last == dict.fromkeys(range(workers), old.version) and not entry.pending
    assert any(entry.pending for entry in state.entries.values()) == (until is not None)
    again.close()
    third = Journal(tmp_path)
    assert values(third.load(workers)) == values(found) and not third.is_new_job
    third.close()


def test_the_next_job_after_one_that_ended(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    state = journal.load(3)
    for rank, message in [*history(6), *((rank, Message(Kind.LEAVE)) for rank in (0, 1))]:
        if state.apply(rank, message):
            journal.append(rank, message)
    journal.close()
    again = Journal(tmp_path)
    assert again.load(3).live == [0, 1, 2] and again.is_new_job
    again.close()


def test_keys_that_nobody_ever_pushes_do_not_count(tmp_path: Path) -> None:
    """Such as running statistics. In the first step keys without pushes yet count all the same."""
    state = State(1)
    for name in ("str:weight", "str:running mean"):
        state.apply(0, declare(name))
        state.apply(0, first(ones(0.0), key_number(name, 0)))
    assert state.pushed(0) == (0, 0)
    numbers = [(0, 1), (2, 2), (3, 3)]
    for step, expected in enumerate(numbers, 1):
        state.apply(0, push(ones(1.0), step, key_number("str:weight", 0)))
        assert state.pushed(0) == expected


def test_which_server_it_is_survives(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    state = journal.load(1)
    assert state.take_place(0, [1, 2]) and not state.take_place(0, [1, 2])
    journal.snapshot(state)
    journal.close()
    again = Journal(tmp_path)
    state = again.load(3)
    again.close()
    with pytest.raises(WorldError, match=r"worker 2 this is server 0 of 2 .* of server 1 of 2"):
        state.take_place(2, [0, 2])
    for place in (None, [1], [2, 2], [-1, 2], [True, 2], [0.0, 2], ["0", 2], "01"):
        with pytest.raises(ProtocolError, match="is not the place of a server"):
            State(1).take_place(0, place)


def test_names_are_on_disk_before_older_files_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a power failure a log without its name would be lost, with pushes that counted."""
    events: list[Any] = []

    def sync(number: int) -> None:
        path = Path(os.readlink(f"/proc/self/fd/{number}"))
        events.append(sorted(os.listdir(path)) if path == tmp_path else path.name)

    journal = Journal(tmp_path)
    state = journal.load(1)
    monkeypatch.setattr(os, "fsync", sync)
    journal.snapshot(state)
    journal.close()
    both = ["lock", "log.0", "log.1", "snapshot.0", "snapshot.1"]
    assert events == ["new.snapshot.1", both]
    assert sorted(os.listdir(tmp_path)) == ["lock", "log.1", "snapshot.1"]


def written(folder: Path) -> Any:
    """The state after some messages, which a journal in the folder has."""
    journal = Journal(folder)
    state = journal.load(1)
    for rank, message in history(4)[:5]:
        state.apply(rank, message)
        journal.append(rank, message)
    journal.close()
    return state


def test_files_of_a_process_that_died_between_two_snapshots_go(tmp_path: Path) -> None:
    """It had written the new snapshot, or half of another one."""
    state = written(tmp_path)
    write_snapshot(tmp_path / "snapshot.1", state)
    (tmp_path / "new.snapshot.2").write_bytes(b"GKS1 and then the process died")
    again = Journal(tmp_path)
    assert values(again.load(1)) == values(state)
    again.close()
    assert sorted(os.listdir(tmp_path)) == ["lock", "log.1", "snapshot.1"]


def test_a_snapshot_half_written_does_not_count(tmp_path: Path) -> None:
    state = written(tmp_path)
    (tmp_path / "new.snapshot.1").write_bytes(b"GKS1 and then the power went")
    again = Journal(tmp_path)
    assert values(again.load(1)) == values(state)
    again.close()
