"""Runs parameter servers and workers in threads of this process, with links that can be cut."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from gemel import npx
from gemel.errors import GemelError
from gemel.kvstore.server.client import ServerStore
from gemel.kvstore.server.server import Server
from gemel.kvstore.server.settings import Limits, ServerSettings, WorkerSettings

SECRET = b"only these tests know"
QUICK = Limits(silent=0.6, replace=1.5, wait=8.0, reach=4.0)


class ServerThread:
    """A server that can be stopped at once, as if killed, and restarted at the same port."""

    def __init__(self, settings: ServerSettings) -> None:
        self.settings = settings
        self.error: BaseException | None = None
        self.server: Server | None = None
        self.start()

    def start(self) -> None:
        came = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(came,), daemon=True)
        self._thread.start()
        assert came.wait(20)
        if self.error is not None:
            raise self.error

    def _run(self, came: threading.Event) -> None:
        async def main() -> None:
            self.server = Server(self.settings)
            self._loop = asyncio.get_running_loop()

            def ready(port: int) -> None:
                self.settings = replace(self.settings, port=port)
                came.set()

            await self.server.run(ready)

        try:
            asyncio.run(main())
        except Exception as error:
            self.error = error
            came.set()

    def stop(self) -> None:
        if self._thread.is_alive() and self.server is not None:
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self.server.stop)
        self._thread.join(10)
        assert not self._thread.is_alive()

    def join(self, seconds: float) -> bool:
        self._thread.join(seconds)
        return not self._thread.is_alive()


class Job:
    """Servers in threads, and the stores of workers, which may be in threads too."""

    def __init__(
        self,
        workers: int,
        servers: int = 1,
        folder: Path | None = None,
        rule: str = "replace",
        limits: Limits = QUICK,
        **settings: Any,
    ) -> None:
        self.workers, self.limits = workers, limits
        self.servers: list[ServerThread] = []
        self.stores: list[ServerStore] = []
        for number in range(servers):
            place = None if folder is None else folder / str(number)
            self.servers.append(
                ServerThread(
                    ServerSettings(
                        workers, SECRET, folder=place, rule=rule, limits=limits, **settings
                    )
                )
            )

    @property
    def addresses(self) -> tuple[tuple[str, int], ...]:
        return tuple(("127.0.0.1", server.settings.port) for server in self.servers)

    def settings(self, rank: int, **changes: Any) -> WorkerSettings:
        known = WorkerSettings(
            self.addresses, rank, self.workers, SECRET, self.limits, piece=1 << 18
        )
        return replace(known, **changes)

    def store(self, rank: int, name: str = "dist_sync", **changes: Any) -> ServerStore:
        store = ServerStore(name, self.settings(rank, **changes))
        self.stores.append(store)
        return store

    def each(self, work: Callable[[int], Any], seconds: float = 30) -> list[Any]:
        """The results of `work(rank)`, one thread for each rank; raises the lowest rank's error."""
        found: dict[int, Any] = {}
        errors: dict[int, BaseException] = {}

        def run(rank: int) -> None:
            try:
                found[rank] = work(rank)
            except BaseException as error:
                errors[rank] = error

        threads = [
            threading.Thread(target=run, args=(r,), daemon=True) for r in range(self.workers)
        ]
        for thread in threads:
            thread.start()
        until = time.monotonic() + seconds
        for thread in threads:
            thread.join(max(0.0, until - time.monotonic()))
        if errors:
            raise errors[min(errors)]
        assert not any(thread.is_alive() for thread in threads), "a worker hangs"
        return [found[rank] for rank in range(self.workers)]

    def close(self) -> None:
        with contextlib.suppress(GemelError):
            npx.waitall()  # raises pending failures now, so that no later test sees them
        for store in self.stores:
            store.close(finished=False)
        for server in self.servers:
            server.stop()


@contextlib.contextmanager
def job(workers: int, **settings: Any) -> Iterator[Job]:
    made = Job(workers, **settings)
    try:
        yield made
    finally:
        made.close()


class Link:
    """A port that leads to a server until it is cut; then no data pass in either direction.

    While it is cut, connections stay open, as they do when a cable is unplugged. New connections
    are accepted, but lead nowhere.
    """

    def __init__(self, address: tuple[str, int]) -> None:
        self._address = address
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address: tuple[str, int] = ("127.0.0.1", self._listener.getsockname()[1])
        self._whole = threading.Event()
        self._whole.set()
        self._over = False
        self.delay = 0.0
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self, seconds: float | None = None) -> None:
        self._whole.clear()
        if seconds is not None:
            threading.Timer(seconds, self._whole.set).start()

    def close(self) -> None:
        self._over = True
        self._whole.set()
        self._listener.close()

    def _accept(self) -> None:
        while not self._over:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._connect, args=(near,), daemon=True).start()

    def _connect(self, near: socket.socket) -> None:
        self._whole.wait()
        try:
            far = socket.create_connection(self._address)
        except OSError:
            near.close()
            return
        for end in (near, far):
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for pair in ((near, far), (far, near)):
            threading.Thread(target=self._pass_on, args=pair, daemon=True).start()

    def _pass_on(self, source: socket.socket, target: socket.socket) -> None:
        try:
            while data := source.recv(1 << 16):
                self._whole.wait()
                if self.delay:
                    time.sleep(self.delay)
                target.sendall(data)
        except OSError:
            pass
        finally:
            for end in (source, target):
                with contextlib.suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)


def quiet() -> bool:
    """Whether the machine is idle enough for the start time of a process to mean something."""
    return os.getloadavg()[0] <= 3 * (os.cpu_count() or 1)
