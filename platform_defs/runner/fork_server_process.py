"""The process of a fork server: loads Dagster and the definitions once, then forks one process for every run.

It has one thread and no connections, because a forked process would get an unusable copy of both.
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
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the runner, which then closes the channel.
    try:
        _load()
    except BaseException as error:
        _send(channel, {"failed": describe_error(error)})
        return
    # Without garbage collection of what is loaded now, its memory stays shared with the forked processes.
    gc.collect()
    gc.freeze()
    _send(channel, {"ready": os.getpid(), "threads": len(os.listdir("/proc/self/task"))})
    _serve(channel)


def describe_error(error: BaseException) -> str:
    """One line with file and line number: of the syntax error itself, otherwise of the innermost frame."""
    if isinstance(error, SyntaxError):
        return f"{type(error).__name__}: {error.msg} ({_relative(error.filename)}, line {error.lineno})"
    place, frame = "", error.__traceback__
    while frame is not None:
        place = f" ({_relative(frame.tb_frame.f_code.co_filename)}, line {frame.tb_lineno})"
        frame = frame.tb_next
    return f"{type(error).__name__}: {error}{place}".replace("\n", " ")


def _relative(filename: str | None) -> str:
    """Without the folders of this machine, because /readyz shows the message to anybody."""
    return str(filename or "?").removeprefix(f"{ROOT}{os.sep}")


def _load() -> None:
    from platform_defs.runner import child

    child.preload()


def _serve(channel: socket.socket) -> None:
    """Forks a process for every order and reports their ends, until the runner closes the channel."""
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
                    return  # The runner is gone. The forked processes finish by themselves.
                *orders, buffer = (buffer + received).split(b"\n")
                for order in orders:
                    _fork(channel, json.loads(order), inherited=(channel, woken, waker))


def _fork(channel: socket.socket, order: dict[str, Any], inherited: tuple[socket.socket, ...]) -> None:
    """Forks the process of one run. In that process it does not return."""
    pid = os.fork()
    if pid:
        _send(channel, {"started": order["id"], "pid": pid})
        return
    status, crash_log = 1, sys.stderr
    try:
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGCHLD, signal.SIGTERM):
            signal.signal(number, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        for end in inherited:
            end.close()
        os.setsid()
        crash_log = _redirect_output(Path(order["log"]))
        from platform_defs.runner import child

        status = child.main(order)
    except BaseException:
        traceback.print_exc(file=crash_log)
        crash_log.flush()
    finally:
        # Not sys.exit, which would run the exit handlers of the fork server.
        os._exit(status)


def _redirect_output(log: Path) -> TextIO:
    """Discards all output, since Dagster captures what steps print. Returns the file in which a crash is described."""
    nothing = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(nothing, descriptor)
    os.close(nothing)
    log.parent.mkdir(parents=True, exist_ok=True)
    crash_log = os.fdopen(os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "w", encoding="utf-8")
    faulthandler.enable(crash_log)
    return crash_log


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
        os._exit(0)  # The runner is gone, and nobody is left to report to.


if __name__ == "__main__":
    with socket.socket(fileno=int(sys.argv[1])) as runner:
        main(runner)
