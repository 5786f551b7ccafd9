"""The files of `platform up` in PLATFORM_HOME: the lock that admits one supervisor, and up.json for programs."""

import fcntl
import json
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

from platform_defs.errors import PlatformError
from platform_defs.home import make_home

LEFTOVERS_END_WITHIN_S = 10.0


class AlreadyUp(PlatformError):
    """Another `platform up` runs on this home."""


@contextmanager
def lock_home(home: Path) -> Iterator[int]:
    """Holds the home's lock and yields its descriptor.

    The guards keep the descriptor open, so that the lock stays until the last process of a killed supervisor has ended.
    """
    is_new = not home.exists()
    make_home(home)
    path = home / "up.lock"
    descriptor = _lock(path, time.monotonic() + LEFTOVERS_END_WITHIN_S)
    try:
        os.ftruncate(descriptor, 0)
        os.write(descriptor, str(os.getpid()).encode())
        yield descriptor
    finally:
        path.unlink(missing_ok=True)
        os.close(descriptor)
        if is_new:
            # A start that was refused, because a port is taken, leaves nothing behind.
            with suppress(OSError):
                home.rmdir()


def _lock(path: Path, deadline: float) -> int:
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(descriptor, 32, 0).decode()
            os.close(descriptor)
            if not holder.isdigit() or _is_alive(int(holder)) or time.monotonic() >= deadline:
                up = read_up(path.parent)
                where = f" at {up['ui']}" if up else ""
                who = f" (pid {holder}); `kill {holder}` stops it," if holder.isdigit() else ";"
                raise AlreadyUp(
                    f"the platform is already up in {path.parent}{where}{who} and PLATFORM_HOME chooses a home for"
                    " another one"
                ) from None
            time.sleep(0.1)  # the holder was killed, and its guards are about to end its processes
            continue
        if _is_same_file(path, descriptor):
            return descriptor
        os.close(descriptor)


def _is_same_file(path: Path, descriptor: int) -> bool:
    """False if the previous holder removed the file after this process had opened it."""
    try:
        return os.path.samestat(path.stat(), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


@dataclass(frozen=True)
class UpFile:
    """up.json: exists while everything is ready, and names the present pid of each child.

    `content` is asked at every write: the demo and its key may have been removed since the last one.
    """

    path: Path
    content: Callable[[], Mapping[str, str | None]]

    def write(self, pids: Mapping[str, int]) -> None:
        with _new_content(self.path) as file:
            file.write(_text({**self.content(), "pids": dict(pids)}))

    def remove(self) -> None:
        self.path.unlink(missing_ok=True)


def forget_demo_key(home: Path) -> None:
    """Takes the demo key out of the up.json of a running platform."""
    with _new_content(home / "up.json") as file:
        up = read_up(home)
        if up is not None:
            file.write(_text({**up, "demo_key": None}))


def _text(content: Mapping[str, Any]) -> str:
    return json.dumps(content, indent=2) + "\n"


@contextmanager
def _new_content(path: Path) -> Iterator[TextIO]:
    """A file that takes the place of up.json if something was written to it.

    It is locked, so that there is one writer at a time: who takes the key out must not bring back the pids of a moment
    ago.
    """
    partial = path.with_suffix(".partial")
    while True:
        # Only the owner may read the file, because it holds the demo key.
        descriptor = os.open(partial, os.O_RDWR | os.O_CREAT, 0o600)
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        if _is_same_file(partial, descriptor):
            break
        os.close(descriptor)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        # what a killed writer left
        file.truncate(0)
        try:
            yield file
        finally:
            file.flush()
            if file.tell():
                partial.replace(path)
            else:
                partial.unlink()


def is_starting(home: Path) -> bool:
    """Whether a `platform up` runs whose processes are not all ready yet."""
    try:
        holder = (home / "up.lock").read_text(encoding="utf-8")
    except OSError:
        return False
    return holder.isdigit() and _is_alive(int(holder)) and read_up(home) is None


def read_up(home: Path) -> dict[str, Any] | None:
    """The content of up.json; None without one, or if it is of a platform that was killed."""
    try:
        up: dict[str, Any] = json.loads((home / "up.json").read_text(encoding="utf-8"))
        return up if any(_is_alive(int(pid)) for pid in up["pids"].values()) else None
    except (OSError, ValueError, KeyError):
        return None
