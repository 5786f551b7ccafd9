"""A TCP proxy in front of a real server: cut, the server is gone for its clients; mended, it is back."""

import asyncio
import contextlib
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from tests.ports import free_ports
from tests.waiting import PATIENCE_S


class Cable:
    """Forwards one port to another; belongs to the loop of its own thread."""

    def __init__(self, host: str, port: int) -> None:
        self._target = (host, port)
        self._loop = asyncio.new_event_loop()
        self._writers: set[asyncio.StreamWriter] = set()
        self._server: asyncio.Server | None = None
        # it must still be free when the cable is mended
        (self.port,) = free_ports(1)
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()
        self.mend()

    def cut(self) -> None:
        """Every connection breaks, and no new one is accepted."""
        self._call(self._cut())

    def mend(self) -> None:
        self._call(self._listen())

    def close(self) -> None:
        self.cut()
        self._call(self._end_tasks())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _call(self, work: object) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(PATIENCE_S)  # type: ignore[arg-type]

    async def _listen(self) -> None:
        if self._server is None:
            self._server = await asyncio.start_server(self._forward, "127.0.0.1", self.port, reuse_address=True)

    async def _cut(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None
        for writer in list(self._writers):
            writer.transport.abort()

    async def _end_tasks(self) -> None:
        others = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        try:
            there_reader, there_writer = await asyncio.open_connection(*self._target)
        except OSError:
            writer.transport.abort()
            self._writers.discard(writer)
            return
        self._writers.add(there_writer)
        await asyncio.gather(_copy(reader, there_writer), _copy(there_reader, writer))
        self._writers -= {writer, there_writer}


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    writer.transport.abort()


@contextmanager
def cable(host: str, port: int) -> Iterator[Cable]:
    running = Cable(host, port)
    try:
        yield running
    finally:
        running.close()
