"""The store of a worker: the values are on parameter servers, and pushes and pulls are issued.

A push is an operation that passes the array to the connections' threads as soon as backward has
computed it. A pull is an operation that ends when the answer has arrived. No thread of the engine
waits for the network.
"""

from __future__ import annotations

import atexit
import secrets
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from gemel import autograd, np, npx
from gemel.device import CPUS, Device
from gemel.errors import (
    GemelError,
    KVStoreError,
    UnknownKeyError,
    WaitLimitError,
    WorldError,
)
from gemel.kvstore import compression
from gemel.kvstore.base import KVStore, alike_key, encoded, pairs, plain_key
from gemel.kvstore.local import LocalStore
from gemel.kvstore.server.connection import Connection
from gemel.kvstore.server.errands import Errands, end
from gemel.kvstore.server.key import Fetch, Key, Meeting, contents
from gemel.kvstore.server.optimizer_states import RemoteUpdater
from gemel.kvstore.server.owners import Owners
from gemel.kvstore.server.protocol import Kind, Message, check_sendable, text_message
from gemel.kvstore.server.reports import Reports
from gemel.kvstore.server.settings import WorkerSettings, from_environment
from gemel.kvstore.server.split import key_name, pieces_of
from gemel.kvstore.server.updates import count_up, describe, numbers_for
from gemel.runtime import callback
from gemel.spec import Spec

#: How often a joining worker tries to find a round that has not ended.
JOINS = 200
#: The lengths of gathered texts are rounded up to this many bytes, so that few keys are needed.
WIDTH = 1 << 14
#: The result of operations that only have to run before others.
FLAG = Spec((1,), "uint8")


class ServerStore(Reports, KVStore):
    """A store on parameter servers. `name` is ``"dist_sync"`` or ``"dist_async"``.

    With ``dist_sync`` a pull after the n-th push of a key gives the value after round n, the same
    on all workers: a round ends when the pushes of all workers have arrived, and sums them in rank
    order. With ``dist_async`` each push updates the value at once; a pull waits only while some
    worker is more than `settings.staleness` pushes behind (Ho et al., More effective distributed ML
    via a stale synchronous parallel parameter server, NeurIPS 2013).

    If a round ends without a worker that was left out or has finished, its sum is multiplied by
    num_workers / number of pushes, which `share` returns.

    Raises `ServerLostError`, `SecretError`, `WorldError`, each naming rank and server.
    """

    def __init__(self, name: str, settings: WorkerSettings | None = None) -> None:
        super().__init__(name)
        self.settings = settings or from_environment()
        self._rounds = "async" not in name
        self._keys: dict[Any, Key] = {}
        self._owners = Owners(self.rank)
        #: Held by the thread that creates a key.
        self._declaring = threading.Lock()
        self._rule: Any = None
        #: How often optimizers were compared, and why one is not that of the other workers.
        self._rules = 0
        self._apart: BaseException | None = None
        self._whole = False
        self._local = LocalStore("device", on_devices=True)
        self._closed = False
        self._errands = Errands()
        run = secrets.token_hex(8)
        count = len(self.settings.servers)
        self._connections = [Connection(self.settings, number, run) for number in range(count)]
        try:
            for connection in self._connections:
                connection.ready()
            self._from, self._first, self._last = self._enter()
        except BaseException:
            self._end()
            raise
        atexit.register(self._leave)

    # ---- workers

    @property
    def rank(self) -> int:
        """The rank of this worker, from 0."""
        return self.settings.rank

    @property
    def num_workers(self) -> int:
        """The number of workers of the job."""
        return self.settings.workers

    @property
    def keeps_parameters(self) -> bool:
        """True: another worker, or this one after a restart, finds the values on the servers."""
        return True

    @property
    def step(self) -> int:
        """The number of steps this rank had done when this process started: 0, unless it took over.

        A program that may be restarted begins there: ``for step in range(store.step, steps)``.
        """
        return self._from

    def share(self, key: Any) -> int:
        """The number of workers whose pushes are in the last pulled value of a key; 0 before any
        round."""
        return self._known(plain_key(key)).share

    def _enter(self) -> tuple[int, int, int]:
        """Join the job: returns the round at which this rank continues, and its fewest and most
        pushes."""
        welcomes = [connection.welcome for connection in self._connections]
        if any(welcome.get("gone") for welcome in welcomes):
            joined = self._join(max(int(welcome.get("newest", 0)) for welcome in welcomes))
            if self._rounds:
                return joined, joined, joined
        pushed = [welcome["pushed"] for welcome in welcomes if welcome.get("pushed")]
        low = min((int(pair[0]) for pair in pushed), default=0)
        return low, low, max((int(pair[1]) for pair in pushed), default=0)

    def _join(self, newest: int) -> int:
        """Join after a round that has not ended on any server."""
        for _ in range(JOINS):
            message = Message(Kind.ACTIVATE, sequence=newest)
            found = [self._ask(connection, message).values() for connection in self._connections]
            if all(values.get("joined") for values in found):
                return newest
            newest = max(newest, *(int(values.get("newest", 0)) for values in found)) + 1
        raise WorldError(
            f"kvstore: worker {self.rank} could not join, because rounds end too quickly"
        )

    def _ask(self, connection: Connection, message: Message, key: str = "") -> Message:
        """Send a message and wait for its answer; raises an error that arrives instead of it."""
        came = threading.Event()
        found: list[Message | BaseException] = []

        def answer(message: Message | BaseException) -> None:
            found.append(message)
            came.set()

        connection.send(message, answer, key)
        if not came.wait(self.settings.limits.wait + 5):
            raise WaitLimitError(f"kvstore: worker {self.rank}: {connection.name} did not answer")
        if not isinstance(found[0], Message):
            raise found[0]
        return found[0]

    def barrier(self) -> None:
        """Wait until all workers have called this. Raises `WaitLimitError`, `WorkerLostError`."""
        import numpy

        self._met("barrier", numpy.zeros(0, "uint8"))

    def gathered(self, text: str) -> list[str]:
        """The value that each worker gave, by rank; waits for all of them. It is "" for a worker
        that was left out."""
        import numpy

        said = encoded(text)
        sizes = numpy.zeros(self.num_workers, "int64")
        sizes[self.rank] = len(said)
        with self._gathering:
            sizes = self._met("sizes", sizes)
            width = -(-int(sizes.max()) // WIDTH) * WIDTH
            rows = numpy.zeros((self.num_workers, width), "uint8")
            rows[self.rank, : len(said)] = numpy.frombuffer(said, "uint8")
            rows = self._met(f"rows of {width}", rows)
        return [bytes(row[:size]).decode() for row, size in zip(rows, sizes, strict=True)]

    def _met(self, name: str, array: Any) -> Any:
        """The sum of the arrays that all workers bring to a meeting; several meetings may be
        open."""
        self._check_rules()
        meeting = Meeting(name)
        with self._declaring:
            key = self._keys.get(meeting)
            if key is None:
                known = pieces_of(name, 0, len(self._connections), 1)[0]
                piece = replace(known, end=array.size)
                made = f"barrier:{name}", array.shape, array.dtype.name, [piece], True, 0
                key = Key(*made, barrier=True)
                self._declare(meeting, key, None)
        with key.order:
            key.pushes += 1
            self._hand(key, array, key.pushes, (0.0, 1.0, 0.0), 0)
            found = self._fetch(key, 0)
        return found.asnumpy()

    def claim(self, key: Any, parameter: Any) -> None:
        """Note that a `Trainer` begins to use a key for a parameter. Raises `KVStoreError` if
        another parameter has it: the servers have one value for both."""
        self._owners.claim(key, parameter)

    def agree(self, optimizer: Any) -> None:
        """As with other stores, unless the servers have the optimizer: then they compare it, and
        the numbers of every push. Only workers that began at the same step are compared."""
        if optimizer is not self._rule:
            super().agree(optimizer)

    def _compare(self, rule: str) -> None:
        def answer(found: Message | BaseException) -> None:
            if not isinstance(found, Message):
                self._apart = found
                for key in list(self._keys.values()):
                    key.fail(found)

        values = {"rule": rule, "turn": self._rules}
        self._rules += 1
        message = text_message(Kind.COMPARE, values, sequence=self._first)
        self._connections[0].send(message, answer)

    def _check_rules(self) -> None:
        """Raise the error that the workers' optimizers differ, if it has arrived."""
        if self._apart is not None:
            raise self._apart

    # ---- values

    def init(self, key: Any, value: Any) -> None:
        """Initialize each key with rank 0's value. A key that the servers already have keeps its
        value.

        Raises `KeyShapeError` if workers disagree about shape or dtype, `DTypeError`, `ShapeError`
        and `ArgumentError` for a dtype, number of dimensions or key that cannot be sent, and
        `KVStoreError` for a trainer's parameter that the program wrote to.
        """
        for one, values in pairs(key, value):
            with self._declaring:
                if one in self._keys:
                    self._keys[one].fits(self.rank, values[0])
                    if self._rule is not None or not self._rounds:  # the servers update
                        self._owners.check(one, values[0])
                    continue
                dtype = values[0].dtype.twin.name
                name, shape = key_name(one), tuple(values[0].shape)
                check_sendable(one, shape, dtype)
                count = len(self._connections)
                pieces = pieces_of(name, values[0].size, count, self.settings.piece)
                made = Key(name, shape, dtype, pieces, self._rounds, self.settings.staleness)
                self._declare(one, made, values[0])

    def _declare(self, one: Any, key: Key, value: Any) -> None:
        """Tell the servers of a key, learn what they know of it, and give them its first value."""
        if self._whole and len(key.pieces) > 1:
            raise self._refuse_pieces(key)
        pushed, known = [], []
        for piece in key.pieces:
            number = key.number(piece)
            message = text_message(Kind.DECLARE, key.describe(piece), key=number)
            found = self._ask(self._connections[piece.server], message, key.name).values()
            pushed.append(int(found.get("pushed", 0)))
            known.append(bool(found.get("known")))
        key.pushes = min(pushed)
        if self._rounds and not key.barrier and self._last - self._first <= 1:
            # A worker that died in the middle of a step repeats the step from its beginning.
            key.pushes = min(key.pushes, self._first)
        key.joined, key.workers = key.pushes, self.num_workers
        first = value is None or self.rank == 0
        if first and not all(known):
            import numpy

            array = numpy.zeros(key.shape, key.dtype) if value is None else contents(value)
            for piece, message in key.messages(Kind.INIT, array):
                self._ask(self._connections[piece.server], message, key.name)
        self._keys[one] = key

    def broadcast(self, key: Any, value: Any, out: Any, priority: int = 0) -> None:
        """`init`, then `pull`. A trainer's parameters that the servers do not update get rank 0's
        arrays again, from meetings of the workers."""
        for (one, values), (_, targets) in zip(pairs(key, value), pairs(key, out), strict=True):
            known = self._keys.get(one) if self._rounds and self._rule is None else None
            if known is None or self._owners.parameter(one) is None:
                super().broadcast(one, values, targets, priority)
                continue
            known.fits(self.rank, values[0])
            mine = contents(values[0] if self.rank == 0 else np.zeros_like(values[0]))
            found = np.array(self._met(f"values of {known.name}", mine), dtype=values[0].dtype)
            written = self._owners.written(one, values[0])
            for target in targets:
                found.copyto(target)
            if not written:
                self._owners.pulled(one, targets[0])

    def _known(self, key: Any) -> Key:
        if key not in self._keys:
            hint = alike_key(key, self._keys) or "; call init first"
            raise UnknownKeyError(f"kvstore: worker {self.rank}: there is no key {key!r}{hint}")
        return self._keys[key]

    def push(self, key: Any, value: Any, priority: int = 0) -> None:
        """Send the sum of the arrays of each key when they are ready; does not wait."""
        for one, values in pairs(key, value):
            known = self._known(one)
            for array in values:
                known.fits(self.rank, array)
            with npx.priority(priority), autograd.pause():
                here = [a.as_in_ctx(CPUS[0]) if a.device.linked else a for a in values]
                several = len(here) > 1
                total = self._local.totals([one], [here], CPUS[:1])[0][0] if several else here[0]
                self._push(one, known, total, priority)

    def _push(self, one: Any, key: Key, total: Any, priority: int) -> None:
        """Issue a push of a key, which is sent after the key's pushes before it."""
        import numpy

        given = callback.as_twin(total)

        def send(errand: Any) -> None:
            if errand.failure is not None:
                key.fail(KVStoreError(f"kvstore: push of {key}: {errand.failure}"))
                return
            array = numpy.frombuffer(errand.inputs[0], key.dtype).reshape(key.shape).copy()
            self._hand(key, array, sequence, numbers, priority)
            end(errand)

        with key.order:
            key.pushes += 1
            numbers = numbers_for(self._rule, one, key.pushes + key.ahead)
            sequence = key.pushes
            # The previous push must run first, so its flag is an input.
            before = [] if key.flag is None else [key.flag]
            begin = key.turns.next(send)
            key.flag = self._errands.issue(f"push of {key}", begin, [given, *before], FLAG)

    def _hand(self, key: Key, array: Any, sequence: int, numbers: Any, priority: int) -> None:
        """Pass an array to the connections; if that fails, the key keeps the error from then on."""

        def answer(found: Message | BaseException) -> None:
            if not isinstance(found, Message):
                key.fail(found)

        try:
            for piece, message in key.messages(Kind.PUSH, array, sequence, numbers):
                self._connections[piece.server].send(message, answer, key.name, priority)
        except KVStoreError as error:
            key.fail(error)

    def pull(self, key: Any, out: Any, priority: int = 0, ignore_sparse: bool = True) -> None:
        """Write each key's value into the arrays in `out`; does not wait.

        Errors are raised where these arrays are read.
        """
        for one, targets in pairs(key, out):
            known = self._known(one)
            for target in targets:
                known.fits(self.rank, target)
            with npx.priority(priority), autograd.pause():
                with known.order:
                    found = self._fetch(known, priority)
                for target in targets:
                    found.copyto(target)
            self._owners.pulled(one, targets[0])

    def _fetch(self, key: Key, priority: int) -> Any:
        """Issue the request for a value; returns its array. The caller holds the key's `order`."""
        sequence = key.pushes
        before = [] if key.flag is None else [key.flag]

        def ask(errand: Any) -> None:
            if errand.failure is not None:
                return
            fetch = Fetch(key, errand)
            fetch.ask(self._connections, sequence, priority)

        spec = Spec(key.shape, key.dtype)
        return self._errands.issue(f"pull of {key}", key.turns.next(ask), before, spec)

    def totals(
        self,
        keys: Sequence[Any],
        values: Sequence[Sequence[Any]],
        devices: Sequence[Device],
        blocks: Sequence[Sequence[Sequence[Any]]] = (),
    ) -> list[list[Any]]:
        """For each device the sums, over all workers' devices, of the arrays of each key.

        Raises the known failure of an earlier sum: an optimizer keeps parameters whose sum has
        failed, so a program might never notice otherwise.
        """
        if not self._rounds:
            raise KVStoreError(
                f"kvstore {self.type!r}: this store does not sum gradients; let the servers "
                "update the parameters (update_on_kvstore=True)"
            )
        self._check_rules()
        for key in filter(None, map(self._keys.get, keys)):
            if (problem := key.error or key.missed) is not None:
                raise problem
        found: list[list[Any]] = [[None] * len(keys) for _ in devices]
        for position in reversed(range(len(keys))):
            one, arrays = keys[position], values[position]
            if one not in self._keys:
                self.init(one, arrays[0])
            self.push(one, arrays, -position)
            known = self._known(one)
            with npx.priority(-position), autograd.pause():
                with known.order:
                    fetched = self._fetch(known, -position)
                total = fetched.astype(arrays[0].dtype, copy=False)
                for row, device in zip(found, devices, strict=True):
                    row[position] = total.as_in_ctx(device)
        return found

    # ---- updating

    def set_optimizer(self, optimizer: Any) -> None:
        """Let the servers update the values by an optimizer of `gemel.optimizer`.

        Its name and settings are sent; learning rate, scale and weight decay go with every push, so
        schedulers and `set_learning_rate` work. All workers must set the same one. Raises
        `WorldError`.
        """
        description = describe(optimizer)
        self._whole = optimizer.needs_whole
        if self._whole:
            for key in self._keys.values():
                if len(key.pieces) > 1:
                    raise self._refuse_pieces(key)
        for connection in self._connections:
            self._ask(connection, text_message(Kind.OPTIMIZER, description))
        self._rule = optimizer
        if self._updater is None or self._updater.optimizer is not optimizer:
            self._updater = RemoteUpdater(optimizer, self._keys, self._asked, self._last > 0)
        for one, key in self._keys.items():
            if key.pushes and not key.barrier:
                count_up(optimizer, one, key.pushes + key.ahead)

    def _refuse_pieces(self, key: Key) -> WorldError:
        return WorldError(
            f"kvstore: {key} is cut into {len(key.pieces)} pieces, but this optimizer needs "
            "whole parameters; set GEMEL_PIECE to at least the number of elements of the "
            "largest one"
        )

    def set_gradient_compression(self, compression_params: dict[str, Any]) -> None:
        """Not supported, unless the type is "none": servers sum uncompressed arrays."""
        if compression.create(compression_params) is not None:
            raise GemelError(
                "kvstore: parameter servers do not accept compressed gradients; leave out the "
                "compression, or use dist_sync over MPI"
            )

    # ---- closing

    def close(self, finished: bool = True) -> None:
        """Wait for pending messages, tell the servers that this worker has finished, and
        disconnect.

        A program that ends without an uncaught exception does that by itself.
        """
        if self._closed:
            return
        self._closed = True
        atexit.unregister(self._leave)
        until = time.monotonic() + self.settings.limits.wait
        over = finished and self._errands.finish(until)
        if over and all(connection.finish(until) for connection in self._connections):
            for connection in self._connections:
                connection.send(Message(Kind.LEAVE), lambda found: None)
            for connection in self._connections:
                connection.finish(min(until, time.monotonic() + 5))
        self._end()

    def _leave(self) -> None:
        """At exit. After an uncaught exception the worker does not finish: it counts as dead."""
        self.close(finished=getattr(sys, "last_value", None) is None)

    def _end(self) -> None:
        self._errands.close()
        for connection in self._connections:
            connection.close()


__all__ = ["ServerStore"]
