"""The wake-up: a datagram to a socket in PLATFORM_HOME, so that a new row is looked at now and not in a second."""

import contextlib
import fcntl
import os
import socket
from collections.abc import Iterator
from pathlib import Path

from platform_defs.errors import PlatformError

SOCKET = "runner.sock"


def wake(home: Path) -> bool:
    """True if a runner of this machine listens. Losing it costs a second, never the row."""
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender, _opened(home) as folder:
            sender.setblocking(False)
            sender.sendto(b"\n", f"{_short(home, folder)}/{SOCKET}")
    except BlockingIOError:
        return True  # its queue is full of wake-ups already
    except OSError:
        return False
    return True


@contextlib.contextmanager
def listening(home: Path) -> Iterator[socket.socket]:
    """The runner's end, one per home; only this user may write to it."""
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    with _opened(home) as folder, socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        try:
            # of the folder: it goes with the process, however that ends, and leaves no file
            fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise PlatformError(
                f"another runner serves {home}; a second one needs a PLATFORM_HOME of its own"
            ) from None
        path = home / SOCKET
        path.unlink(missing_ok=True)
        listener.setblocking(False)
        umask = os.umask(0o177)
        try:
            listener.bind(f"{_short(home, folder)}/{SOCKET}")
        finally:
            os.umask(umask)
        try:
            yield listener
        finally:
            path.unlink(missing_ok=True)


def drain(listener: socket.socket) -> None:
    with contextlib.suppress(BlockingIOError):
        while True:
            listener.recv(1)


@contextlib.contextmanager
def _opened(home: Path) -> Iterator[int]:
    descriptor = os.open(home, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _short(home: Path, descriptor: int) -> str:
    """A name of the folder that is short: the path of a Unix socket may have 107 bytes, a home more."""
    short = f"/proc/self/fd/{descriptor}"
    return short if os.path.isdir(short) else str(home)
