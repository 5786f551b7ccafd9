"""The wake-up: a datagram to a socket in PLATFORM_HOME tells the runner to look for new rows of work at once."""

import contextlib
import fcntl
import os
import socket
from collections.abc import Iterator
from pathlib import Path

from platform_defs.home import make_home
from platform_defs.work.errors import HomeInUse

SOCKET = "runner.sock"


def wake(home: Path) -> bool:
    """Returns whether a runner of this machine listens. If the wake-up is lost, the runner looks within a second."""
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender, _open_folder(home) as folder:
            sender.setblocking(False)
            sender.sendto(b"\n", f"{_short_path(home, folder)}/{SOCKET}")
    except BlockingIOError:
        return True  # The runner has a whole queue of wake-ups that it has not read yet.
    except OSError:
        return False
    return True


@contextlib.contextmanager
def open_listener(home: Path) -> Iterator[socket.socket]:
    """The runner's end of the socket. A home has at most one, and only the runner's own user may write to it."""
    make_home(home)
    with _open_folder(home) as folder, socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        try:
            # A lock on the folder needs no file, and the kernel releases it however the process ends.
            fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise HomeInUse(f"another runner serves {home}; a second one needs a PLATFORM_HOME of its own") from None
        path = home / SOCKET
        path.unlink(missing_ok=True)
        listener.setblocking(False)
        umask = os.umask(0o177)
        try:
            listener.bind(f"{_short_path(home, folder)}/{SOCKET}")
        finally:
            os.umask(umask)
        try:
            yield listener
        finally:
            path.unlink(missing_ok=True)


def discard_wake_ups(listener: socket.socket) -> None:
    """Reads all pending wake-ups: one look at the rows answers all of them."""
    with contextlib.suppress(BlockingIOError):
        while True:
            listener.recv(1)


@contextlib.contextmanager
def _open_folder(home: Path) -> Iterator[int]:
    descriptor = os.open(home, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _short_path(home: Path, descriptor: int) -> str:
    """A short path of the open folder: the path of a Unix socket has at most 107 bytes, a home may have more."""
    short = f"/proc/self/fd/{descriptor}"
    return short if os.path.isdir(short) else str(home)
