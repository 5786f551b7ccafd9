"""The fork server process: loads Dagster and the code location once, then forks a child for every order it gets.

It is single-threaded and holds no connection: what a fork would copy half-way does not exist in it.
"""

import faulthandler
import gc
import json
import os
import selectors
import signal
import socket
import sys
import traceback
from pathlib import Path
from typing import Any, TextIO

ROOT = Path(__file__).resolve().parent.parent.parent


def main(channel: socket.socket) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the runner; it tells us by closing the channel
    try:
        _load()
    except BaseException as error:
        _send(channel, {"failed": describe(error)})
        return
    # what is loaded now is never garbage: frozen, it stays shared with the children instead of being copied
    gc.collect()
    gc.freeze()
    _send(channel, {"ready": os.getpid(), "threads": len(os.listdir("/proc/self/task"))})
    _serve(channel)


def describe(error: BaseException) -> str:
    """One line that names the place: for a syntax error the file and line, else the innermost frame of ours."""
    if isinstance(error, SyntaxError):
        return f"{type(error).__name__}: {error.msg} ({_short(error.filename)}, line {error.lineno})"
    place, frame = "", error.__traceback__
    while frame is not None:
        place = f" ({_short(frame.tb_frame.f_code.co_filename)}, line {frame.tb_lineno})"
        frame = frame.tb_next
    return f"{type(error).__name__}: {error}{place}".replace("\n", " ")


def _short(filename: str | None) -> str:
    """Without the folders of this machine: the API shows it to anybody who asks whether it is ready."""
    return str(filename or "?").removeprefix(f"{ROOT}{os.sep}")


def _load() -> None:
    from platform_defs.runner import child

    child.preload()


def _serve(channel: socket.socket) -> None:
    woken, waker = socket.socketpair()
    for end in (woken, waker):
        end.setblocking(False)
    signal.set_wakeup_fd(waker.fileno(), warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    buffer = b""
    with selectors.DefaultSelector() as selector:
        selector.register(channel, selectors.EVENT_READ)
        selector.register(woken, selectors.EVENT_READ)
        while True:
            for key, _ in selector.select():
                if key.fileobj is woken:
                    woken.recv(4096)
                    _reap(channel)
                    continue
                received = channel.recv(65536)
                if not received:
                    return  # the runner is gone; children finish by themselves
                *orders, buffer = (buffer + received).split(b"\n")
                for order in orders:
                    _fork(channel, json.loads(order), inherited=(channel, woken, waker))


def _fork(channel: socket.socket, order: dict[str, Any], inherited: tuple[socket.socket, ...]) -> None:
    pid = os.fork()
    if pid:
        _send(channel, {"started": order["id"], "pid": pid})
        return
    status, crash = 1, sys.stderr
    try:
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGCHLD, signal.SIGTERM):
            signal.signal(number, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        for end in inherited:
            end.close()
        os.setsid()
        crash = _redirect(Path(order["log"]))
        from platform_defs.runner import child

        status = child.main(order)
    except BaseException:
        traceback.print_exc(file=crash)
        crash.flush()
    finally:
        # not sys.exit: what the fork server registered to run at its own exit is not the child's business
        os._exit(status)


def _redirect(log: Path) -> TextIO:
    """What a step prints is captured by Dagster and goes nowhere else; the file is for a crash alone."""
    nothing = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(nothing, descriptor)
    os.close(nothing)
    log.parent.mkdir(parents=True, exist_ok=True)
    crash = os.fdopen(os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "w", encoding="utf-8")
    faulthandler.enable(crash)
    return crash


def _reap(channel: socket.socket) -> None:
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return
        _send(channel, {"exited": pid, "status": status})


def _send(channel: socket.socket, message: dict[str, Any]) -> None:
    try:
        channel.sendall(json.dumps(message).encode() + b"\n")
    except OSError:
        os._exit(0)  # nobody is left to report to


if __name__ == "__main__":
    with socket.socket(fileno=int(sys.argv[1])) as runner:
        main(runner)
