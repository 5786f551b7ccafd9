"""The wake-up: a datagram to a socket in PLATFORM_HOME, so that a new row is looked at now and not in a second."""

import contextlib
import os
import socket
from collections.abc import Iterator
from pathlib import Path

SOCKET = "runner.sock"


def wake(home: Path) -> bool:
    """True if a runner of this machine listens. Losing it costs a second, never the row."""
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender, _reachable(home) as folder:
            sender.setblocking(False)
            sender.sendto(b"\n", f"{folder}/{SOCKET}")
    except BlockingIOError:
        return True  # its queue is full of wake-ups already
    except OSError:
        return False
    return True


def listen(home: Path) -> socket.socket:
    """The runner's end; only this user may write to it."""
    path = home / SOCKET
    path.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    listener.setblocking(False)
    with _reachable(home) as folder:
        umask = os.umask(0o177)
        try:
            listener.bind(f"{folder}/{SOCKET}")
        finally:
            os.umask(umask)
    return listener


def drain(listener: socket.socket) -> None:
    with contextlib.suppress(BlockingIOError):
        while True:
            listener.recv(1)


@contextlib.contextmanager
def _reachable(home: Path) -> Iterator[str]:
    """A name of the folder that is short: the path of a Unix socket may have 107 bytes, a home more."""
    descriptor = os.open(home, os.O_RDONLY | os.O_DIRECTORY)
    try:
        short = f"/proc/self/fd/{descriptor}"
        yield short if os.path.isdir(short) else str(home)
    finally:
        os.close(descriptor)
