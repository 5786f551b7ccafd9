"""The node type `shell`: a command in a process group of its own, with an environment of its own. Off by default."""

import json
import os
import signal
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from contextlib import suppress
from typing import IO, Any, ClassVar

from pydantic import Field

from platform_defs.chains.nodes.cfg import NodeCfg
from platform_defs.chains.nodes.environment import NodeEnvironment
from platform_defs.chains.nodes.port import NodeContext, NodeFailed, NodeResult, NodeStopped

PATH = "/usr/local/bin:/usr/bin:/bin"
# a command that writes no line break must not fill the memory
_LONGEST_LINE = 64 * 1024
# from SIGTERM to SIGKILL: a stop takes effect within two seconds
GRACE_S = 1.0
# The watcher ends the whole group when the process that executes the chain dies: then the pipe that was its standard
# input has no writer any more. It must not hold the command's output open, which is read to its end.
_LEASHED = (
    "exec 3<&0 </dev/null;"
    " (trap '' TERM; read -r _ <&3; kill -KILL 0) >/dev/null 2>&1 &"
    ' exec 3<&-; exec /bin/sh -c "$0"'
)


class ShellCfg(NodeCfg):
    """Executes a command with /bin/sh in an empty folder and a clean environment; its output is in the log.

    `command` is no template: values come as variables of `env`, so that none of them can change the command. The last
    line of the standard output is the artifact's `output`, as JSON if it is JSON. Off unless PLATFORM_CHAIN_SHELL.
    """

    literal_fields: ClassVar[frozenset[str]] = frozenset({"command"})

    command: str = Field(min_length=1, description="What /bin/sh executes.")
    env: dict[str, str | int | float | bool] = Field(
        {}, description="Variables of the command's environment; `env:NAME` refers to a secret."
    )


class ShellExecutor:
    name = "shell"
    cfg_model = ShellCfg

    def __init__(self, environment: NodeEnvironment | None) -> None:
        self._is_allowed = environment is not None and environment.shell_is_allowed

    def problems(self, cfg: ShellCfg) -> Iterator[str]:
        if not self._is_allowed:
            yield "shell nodes are off; PLATFORM_CHAIN_SHELL=true allows them"
        for name in cfg.env:
            if not name.isidentifier() or not name.isascii():
                yield f"cfg.env: expected the name of a variable, got {name!r}"
        if "\0" in cfg.command:
            yield "cfg.command: expected no NUL character"

    def execute(self, context: NodeContext, cfg: ShellCfg) -> NodeResult:
        with tempfile.TemporaryDirectory(prefix="chain-shell-", ignore_cleanup_errors=True) as folder:
            environment = {
                "PATH": PATH,
                "HOME": folder,
                "TMPDIR": folder,
                "LANG": "C.UTF-8",
                "RUN_ID": context.run_id,
                "NODE_ID": context.node_id,
                "ATTEMPT": str(context.attempt),
                **{name: context.reveal(_text(value)) for name, value in cfg.env.items()},
            }
            code, last_line = _run(context, cfg.command, environment, folder)
        if context.stop.reason is not None:
            raise NodeStopped(context.stop.reason)
        if code:
            how = f"was ended by signal {-code}" if code < 0 else f"ended with exit code {code}"
            raise NodeFailed(f"the command {how}; its output is in the log of this step")
        return NodeResult(artifact={"exitCode": code, "output": _parsed(last_line)})


def _run(context: NodeContext, command: str, environment: dict[str, str], folder: str) -> tuple[int, str]:
    leash, held = os.pipe()
    try:
        process = subprocess.Popen(
            ["/bin/sh", "-c", _LEASHED, command],
            cwd=folder,
            env=environment,
            stdin=leash,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
    except OSError as error:
        os.close(held)
        raise NodeFailed(f"the command cannot be executed: {error.strerror}") from None
    finally:
        os.close(leash)
    output = _Output(context)
    readers = [
        threading.Thread(target=output.read, args=(stream, stream is process.stdout), daemon=True)
        for stream in (process.stdout, process.stderr)
    ]
    for reader in readers:
        reader.start()
    kill = threading.Timer(GRACE_S, _signal, (process.pid, signal.SIGKILL))
    kill.daemon = True

    def end_group() -> None:
        _signal(process.pid, signal.SIGTERM)
        kill.start()

    try:
        with context.stop.interrupting(end_group):
            code = process.wait()
    finally:
        kill.cancel()
        # whatever the command left behind ends with it; the watcher keeps the group's number from being used again
        _signal(process.pid, signal.SIGKILL)
        process.wait()
        os.close(held)
        for reader in readers:
            reader.join(GRACE_S)
        for stream in (process.stdout, process.stderr):
            if stream is not None:
                stream.close()
    return code, output.last_line


def _signal(group: int, number: int) -> None:
    with suppress(ProcessLookupError):
        os.killpg(group, number)


class _Output:
    """Writes the lines of both streams into the log; reads to the end, so that the command never waits for a reader."""

    def __init__(self, context: NodeContext) -> None:
        self._context = context
        self.last_line = ""

    def read(self, stream: IO[bytes], is_standard: bool) -> None:
        while line := stream.readline(_LONGEST_LINE):
            text = line.decode("utf-8", "replace").rstrip("\r\n")
            if is_standard and text.strip():
                self.last_line = text
            self._context.log(text)


def _text(value: Any) -> str:
    return ("true" if value else "false") if isinstance(value, bool) else str(value)


def _parsed(line: str) -> Any:
    try:
        return json.loads(line)
    except ValueError:
        return line or None
