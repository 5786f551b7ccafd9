"""The output of `platform up`: the lines of each child behind its name, and the table of addresses."""

import os
import re
import sys
from collections import defaultdict, deque
from collections.abc import Iterable
from typing import TextIO

TAIL_LINES = 30
LONGEST_LINE = 64 * 1024
_COLOURS = (36, 33, 35, 32, 34, 31)
# What Dagster's daemon writes every few seconds when there is nothing to do, and before a line that says the same.
_IDLE = re.compile(
    r"dagster\.daemon - INFO - Instance is configured with the following daemons"
    r"|dagster\.daemon\.SensorDaemon - INFO - (Creating new|Launching) run for"
    # a tick that the stop before cut off
    r"|dagster\.daemon\.SensorDaemon - WARNING - Moving dangling STARTED tick \d+ into SKIPPED"
    r"|dagster\.daemon\.\w+ - INFO - (Checking for (new )?runs|(Sensor|Schedule) \S+ skipped|Checking run \S+"
    r"|Collected \d+ runs for monitoring|No (backfill jobs|new runs|schedules|sensors)|Not checking for any runs"
    r"|No run requests returned for \S+, skipping|Skipping \d+ runs? for sensor \S+ already completed with run keys)"
)
# What is said each time that definitions are loaded again, beside the runner's line that says it.
_IN_BETWEEN = re.compile(
    r"dagster\.code_server - INFO - (Start|Stopp|Shutt)"
    r"|Received LocationStateChangeEventType\.LOCATION_UPDATED event"
    r"|^INFO the code server has loaded the new definitions"
    # `platform webhooks deliveries` lists them all; one that fails is a warning
    r"|^[\d:]{8} webhook delivered .* attempt=1 "
)
# What the API writes when the demo's writer asks it for something, and what follows from it.
_DEMO = re.compile(
    r"^[\d:]{8} ((GET|POST) \S+ 2\d\d ms=\S+ principal=demo$|webhook delivered |run started .* actor=demo$)"
)
# What processes say when they are stopped in order.
_AT_STOP = re.compile(
    r"^$|^Aborted!$| - INFO - |^INFO |^[\d:]{8} (stopping: 0 requests|Shutting down|Finished server process)"
)
_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


class Output:
    """Writes lines to the terminal and remembers the last lines of each child, for the report of a failed start."""

    def __init__(self, names: Iterable[str], stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stdout
        self._is_terminal = self._stream.isatty()
        self._coloured = self._is_terminal and not os.environ.get("NO_COLOR")
        self._prefixes = {}
        names = list(names)
        width = max(map(len, [*names, "up"]))
        for position, name in enumerate([*names, "up"]):
            prefix = f"{name.ljust(width)} | "
            colour = _COLOURS[position % len(_COLOURS)]
            self._prefixes[name] = f"\x1b[{colour}m{prefix}\x1b[0m" if self._coloured else prefix
        self._is_ready = self._is_writing_demo = self._is_stopping = False
        self._tails: dict[str, deque[str]] = defaultdict(lambda: deque(maxlen=TAIL_LINES))

    def line(self, name: str, text: str) -> None:
        plain = _ESCAPES.sub("", text)
        self._tails[name].append(plain)
        if self._is_terminal and self._says_nothing(plain):
            return  # a log file has every line
        self._write(f"{self._prefixes[name]}{text if self._coloured else plain}\n")

    def ready(self, title: str, rows: Iterable[tuple[str, str]]) -> None:
        """Writes the table of addresses, which from now on nothing without news pushes off the screen."""
        self._is_ready = True
        self.table(title, rows)

    def writing_demo(self, is_writing: bool) -> None:
        """Meanwhile a person need not see each of its requests, which would push the addresses off the screen."""
        self._is_writing_demo = is_writing

    def stopping(self) -> None:
        self._is_stopping = True
        self.say("stopping, which takes some seconds; a second Ctrl-C does not wait")

    def _says_nothing(self, line: str) -> bool:
        """Whether a person can do without the line: an idle platform is silent."""
        return bool(
            _IDLE.search(line)
            or (self._is_ready and _IN_BETWEEN.search(line))
            or (self._is_writing_demo and _DEMO.search(line))
            or (self._is_stopping and _AT_STOP.search(line.strip()))
        )

    def say(self, text: str) -> None:
        """Writes a line of the supervisor itself."""
        self.line("up", text)

    def table(self, title: str, rows: Iterable[tuple[str, str]]) -> None:
        rows = list(rows)
        width = max(len(label) for label, _ in rows)
        body = "".join(f"  {label.ljust(width)}  {value}\n" for label, value in rows)
        self._write(f"\n  {title}\n\n{body}\n")

    def tail(self, name: str) -> list[str]:
        return list(self._tails[name])

    def _write(self, text: str) -> None:
        try:
            self._stream.write(text)
            self._stream.flush()
        except (BrokenPipeError, ValueError):
            # The platform goes on when its reader leaves, as in `platform up | head`.
            self._stream = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115


class LineSplitter:
    """Turns bytes into lines; a line that never ends is cut so that it cannot fill the memory."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> list[str]:
        *lines, self._rest = (self._rest + data).split(b"\n")
        if len(self._rest) > LONGEST_LINE:
            lines.append(self._rest)
            self._rest = b""
        return [_decode(line) for line in lines]

    def end(self) -> list[str]:
        rest, self._rest = self._rest, b""
        return [_decode(rest)] if rest else []


def _decode(line: bytes) -> str:
    return line.decode("utf-8", errors="replace").rstrip("\r")
