"""Processes that make batches, forked from the program (decision 0034).

One pair of sockets carries the tasks, which idle workers take, and the results. The numbers of
examples, and the batches themselves, are in the slots, which are shared memory.
"""

from __future__ import annotations

import contextlib
import math
import mmap
import multiprocessing.connection
import os
import pickle
import select
import signal
import socket
import struct
import sys
import threading
import time
import traceback
import warnings
from typing import Any

from gemel import _core
from gemel.gluon.data import shared
from gemel.gluon.data.crew import Maker, WorkerError, late, start_streams

#: A task: its number, its slot, the seed, and the length of the pickled numbers.
TASK = struct.Struct("<QQQQ")
#: A result: number, slot, whether it succeeded, the bytes of the pickled part and of everything.
RESULT = struct.Struct("<QQQQQ")
#: Seconds after which a worker checks whether the program still exists, and a program that waits
#: for workers checks for signals.
LOOK_AROUND = 1.0
#: Seconds that workers have to end by themselves, and then after SIGTERM.
PATIENCE = (0.1, 1.0)


# --- the worker process ---------------------------------------------------------------------


def serve(
    maker: Maker, me: int, link: socket.socket, slots: list[shared.Slot], board: Any, program: int
) -> None:
    """Make batches until the program, the process with this number, has ended."""
    # Ctrl-C is sent to all processes of a terminal; the program decides what to do.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.set_wakeup_fd(-1)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    _core.set_workers(0)  # the processes already use the cores
    # The worker does not continue what the program was recording or profiling.
    _core.set_recording(False)
    if _core.tracing():
        _core.trace_stop()
    threading.Thread(target=_watch, args=(program,), daemon=True).start()
    while True:
        try:
            message = link.recv(TASK.size)
        except OSError:
            return
        if not message:
            return
        number, place, seed, size = TASK.unpack(message)
        board[place] = me + 1
        slot = slots[place]
        numbers = pickle.loads(slot.memory(size)[:size])
        start_streams(seed)
        succeeded, head, total = _made(maker, slot, numbers)
        _flush()
        board[place] = 0
        try:
            link.send(RESULT.pack(number, place, succeeded, head, total))
        except OSError:
            return


def _watch(program: int) -> None:
    """End together with the program, even during an example that never finishes."""
    while os.getppid() == program:
        time.sleep(LOOK_AROUND)
    os._exit(1)


def _made(maker: Maker, slot: shared.Slot, numbers: list[Any]) -> tuple[bool, int, int]:
    """Write a batch, or the error, to a slot."""
    at: list[Any] = []
    try:
        return (True, *shared.put(slot, maker.make(numbers, at)))
    except BaseException as error:
        where = f"example {at[0]!r}" if at else f"the batch of examples {_some_of(numbers)}"
        kind: Any = type(error)
        try:
            pickle.dumps(kind)
        except Exception:  # its class may exist in this process only
            kind = RuntimeError
        about = (
            f"{type(error).__name__}: {error}",
            where,
            "".join(traceback.format_exception(error)),
        )
        return (False, *shared.put(slot, (kind, *about)))


def _some_of(numbers: list[Any]) -> str:
    """The first numbers of examples, for messages."""
    shown = ", ".join(map(str, numbers[:6]))
    return f"{shown}, ... ({len(numbers)} in all)" if len(numbers) > 6 else shown


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()


# --- the main process -----------------------------------------------------------------------


class Processes:
    """Worker processes; each has a copy of the data set from the time they were started."""

    def __init__(self, maker: Maker, workers: int, slots: int) -> None:
        if multiprocessing.current_process().daemon:
            raise WorkerError(
                "DataLoader: a daemon, such as a worker of another loader, cannot start processes; "
                "use num_workers=0 or thread_pool=True for the loader inside"
            )
        self._owner = os.getpid()
        self._link, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._link.setblocking(False)
        self._slots = [shared.Slot() for _ in range(slots)]
        #: For each slot, the worker that uses it, counted from 1.
        self._board = memoryview(mmap.mmap(-1, slots * 2)).cast("H")
        self._tasks: dict[int, tuple[int, list[Any]]] = {}
        self._results: dict[int, tuple[int, int, int, int]] = {}
        self._free = list(range(slots))
        self._dropped: set[int] = set()
        self._next = 0
        self._processes: list[Any] = []
        try:
            for number in range(workers):
                self._start(number, maker, theirs)
        except BaseException:
            self.close()
            raise
        finally:
            theirs.close()
        self._poll = select.poll()
        self._poll.register(self._link, select.POLLIN)
        for process in self._processes:
            self._poll.register(process.sentinel, select.POLLIN)

    def _start(self, number: int, maker: Maker, theirs: Any) -> None:
        """Fork one worker process."""

        def begin() -> None:
            self._link.close()  # otherwise the worker would keep this socket open
            serve(maker, number, theirs, self._slots, self._board, self._owner)

        # Ctrl-C before the worker ignores it would end the worker with a traceback.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            with warnings.catch_warnings():
                # Python warns about forks with threads; gemel handles them (process/forking.py).
                warnings.simplefilter("ignore", DeprecationWarning)
                context = multiprocessing.get_context("fork")
                process = context.Process(target=begin, name=f"gemel-data-{number}", daemon=True)
                process.start()
            self._processes.append(process)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    @property
    def is_usable(self) -> bool:
        """Whether all workers exist and belong to this process."""
        return self._owner == os.getpid() and all(p.is_alive() for p in self._processes)

    def submit(self, numbers: list[Any], seed: int, timeout: float | None) -> int | None:
        """See `crew.Crew`."""
        while not self._free:
            if not self._absorb(timeout):
                return None
        text = pickle.dumps(numbers, protocol=5)
        place = self._free[-1]
        self._slots[place].memory(len(text))[: len(text)] = text
        number = self._next
        while True:
            try:
                self._link.send(TASK.pack(number, place, seed, len(text)))
                break
            except BlockingIOError:  # too many tasks are waiting
                if not self._absorb(timeout):
                    return None
            except OSError:
                self._died()
        self._free.pop()
        self._next += 1
        self._tasks[number] = place, numbers
        return number

    def result(self, ticket: int, timeout: float | None) -> Any:
        """See `crew.Crew`."""
        until = None if timeout is None else time.monotonic() + timeout
        while ticket not in self._results:
            left = None if until is None else until - time.monotonic()
            if left is not None and left <= 0:
                raise late(timeout)
            self._absorb(left)
        place, succeeded, head, total = self._results.pop(ticket)
        self._tasks.pop(ticket)
        try:
            found = shared.get(self._slots[place], head, total)
        finally:
            self._free.append(place)
        if succeeded:
            return found
        raise _failure(*found)

    def drop(self, ticket: int) -> None:
        """See `crew.Crew`."""
        if ticket in self._results:
            self._free.append(self._results.pop(ticket)[0])
            self._tasks.pop(ticket)
        elif ticket in self._tasks:
            self._dropped.add(ticket)

    def _absorb(self, timeout: float | None) -> bool:
        """Receive results, waiting for them; returns False if none arrived in time.

        Raises `WorkerError` if a worker has ended.
        """
        while True:
            try:
                message = self._link.recv(RESULT.size)
            except BlockingIOError:
                pass
            except OSError:  # all workers are gone
                self._died()
            else:
                if not message:
                    self._died()
                number, place, succeeded, head, total = RESULT.unpack(message)
                if number in self._dropped:
                    self._dropped.discard(number)
                    self._tasks.pop(number)
                    self._free.append(place)
                else:
                    self._results[number] = place, succeeded, head, total
                return True
            ready = self._ready(timeout)
            if not ready:
                return False
            if all(file != self._link.fileno() for file, _ in ready):
                self._died()

    def _ready(self, timeout: float | None) -> list[tuple[int, int]]:
        """The descriptors that become ready within this time; empty if none does.

        It wakes up regularly, because a signal that arrives just before a wait does not end the
        wait, and Python would handle Ctrl-C only afterwards.
        """
        until = math.inf if timeout is None else time.monotonic() + timeout
        while True:
            left = max(until - time.monotonic(), 0.0)
            ready = self._poll.poll(min(left, LOOK_AROUND) * 1000)
            if ready or left <= LOOK_AROUND:
                return ready

    def _died(self) -> None:
        """Raise the error for a worker that has ended, and end the others."""
        problem = "a worker has ended"
        ended = multiprocessing.connection.wait([p.sentinel for p in self._processes], PATIENCE[1])
        for me, process in enumerate(self._processes):
            if process.sentinel not in ended:
                continue
            process.join(PATIENCE[1])
            code = process.exitcode or 0
            how = f"ended with exit code {code}"
            if code < 0:
                how = f"was killed by {signal.Signals(-code).name}"
            places = {place for place in range(len(self._slots)) if self._board[place] == me + 1}
            work = [numbers for place, numbers in self._tasks.values() if place in places]
            problem = f"worker {me} (process {process.pid}) {how}"
            if work:
                problem += f" while it made the batch of examples {_some_of(work[0])}"
            if code == -signal.SIGKILL:
                problem += "; the system does that when memory runs out"
            break
        self.close()
        raise WorkerError(f"DataLoader: {problem}")

    def close(self) -> None:
        """End the workers and release the memory."""
        self._link.close()
        for slot in self._slots:
            slot.close()
        if self._owner != os.getpid():
            return  # they belong to another process
        for wait, end in zip(PATIENCE, ("terminate", "kill"), strict=True):
            until = time.monotonic() + wait
            for process in self._processes:
                process.join(max(until - time.monotonic(), 0))
            for process in self._processes:
                if process.is_alive():
                    getattr(process, end)()
        for process in self._processes:
            process.join()


def _failure(kind: type[BaseException], what: str, where: str, text: str) -> WorkerError:
    """A `WorkerError` that, if possible, is also an instance of the data set's exception."""
    message = f"DataLoader: {where}: {what}\nIn the worker:\n\n{text}"
    # A StopIteration would end the loop over the batches.
    if issubclass(kind, Exception) and not issubclass(kind, StopIteration):
        methods = {"__init__": _take_text, "__str__": _give_text}
        with contextlib.suppress(TypeError):  # it may not allow multiple inheritance
            found: WorkerError = type(kind.__name__, (WorkerError, kind), methods)(message)
            return found
    return WorkerError(message)


def _take_text(self: BaseException, text: str) -> None:
    self.args = (text,)


def _give_text(self: BaseException) -> str:
    return str(self.args[0])


__all__ = ["Processes"]
