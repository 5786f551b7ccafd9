"""The supervisor: starts the children, waits until all are ready, restarts those that end, and stops them together."""

import asyncio
import os
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from platform_defs.supervisor.child import (
    Backoff,
    Broken,
    ChildSpec,
    GuardedProcess,
    NotReady,
    StartFailed,
    always_ready,
)
from platform_defs.supervisor.guard import adopt_orphans, descendants, own_children, send_signal
from platform_defs.supervisor.output import Output

LAST_LINES_WAIT_S = 0.5
REAP_EVERY_S = 2.0
STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@dataclass(frozen=True)
class SupervisorLimits:
    """How long and how often the supervisor tries; tests shorten the times."""

    start_s: float = 300.0
    start_attempts: int = 3
    probe_every_s: float = 0.15
    # Time for killed children to end. With the longest grace of a child it stays below 10 s, the promise of a stop.
    after_kill_s: float = 2.0
    shown_lines: int = 15
    backoff: Backoff = field(default_factory=Backoff)


class Supervisor:
    """Keeps the children running until a stop is requested.

    `on_change` is called with the pids when all children have become ready, and after every later restart of one.
    `afterwards` is a process that is run once when all are ready; `on_end` is called with its exit code.
    `descriptors` stay open until the last guard has ended.
    """

    def __init__(
        self,
        specs: Sequence[ChildSpec],
        output: Output,
        *,
        on_change: Callable[[Mapping[str, int]], None],
        descriptors: Sequence[int] = (),
        limits: SupervisorLimits | None = None,
        afterwards: ChildSpec | None = None,
        on_end: Callable[[int], None] = lambda code: None,
    ) -> None:
        self._specs = specs
        self._output = output
        self._on_change = on_change
        self._descriptors = descriptors
        self._limits = limits or SupervisorLimits()
        self._afterwards = afterwards
        self._on_end = on_end
        self._follow_up: asyncio.Task[None] | None = None
        self._running: dict[str, GuardedProcess] = {}
        self._pids: dict[str, int] = {}
        self._not_ready: dict[str, str] = {spec.name: "not started" for spec in specs}
        self._was_ready: set[str] = set()  # in their present life
        self._all_ready = False
        self._reaping: asyncio.Task[None] | None = None

    async def run(self) -> None:
        """Returns after a requested stop; raises StartFailed when the children do not become ready."""
        adopt_orphans()
        loop = asyncio.get_running_loop()
        self._end: asyncio.Future[None] = loop.create_future()
        self._stopping = asyncio.Event()
        self._spawning = asyncio.Lock()
        for number in STOP_SIGNALS:
            loop.add_signal_handler(number, self._on_signal)
        late = loop.call_later(self._limits.start_s, self._on_late_start)
        tasks = [asyncio.create_task(self._keep_running(spec)) for spec in self._specs]
        for task in tasks:
            task.add_done_callback(self._on_task_done)
        try:
            await self._end
        finally:
            late.cancel()
            await self._stop(tasks)
            for number in STOP_SIGNALS:
                loop.remove_signal_handler(number)
        self._output.say("stopped")

    def _on_signal(self) -> None:
        if not self._end.done():
            self._output.stopping()
            self._end.set_result(None)
        elif self._stopping.is_set():
            # The second signal: whoever sends it does not want to wait for the grace.
            for process in self._running.values():
                process.kill()

    def _on_late_start(self) -> None:
        if not self._all_ready:
            waiting = "; ".join(f"{name}: {reason}" for name, reason in self._not_ready.items())
            self._fail(f"not ready after {self._limits.start_s:.0f} s: {waiting}")

    def _on_task_done(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) and not self._end.done():
            self._end.set_exception(error)

    def _fail(self, reason: str) -> None:
        if not self._end.done():
            self._end.set_exception(StartFailed(reason))

    async def _keep_running(self, spec: ChildSpec) -> None:
        failures = 0
        while not self._stopping.is_set():
            code = await self._run_once(spec)
            if self._stopping.is_set():
                return
            failures = self._limits.backoff.failures(failures, was_ready=spec.name in self._was_ready)
            if not self._all_ready and failures >= self._limits.start_attempts:
                self._fail_with_tail(
                    spec.name, f"{spec.name} ended {failures} times during the start (exit code {code})"
                )
                return
            if spec.keep_descendants_on_crash:
                self._reaping = self._reaping or asyncio.create_task(self._reap_strays())
            delay = self._limits.backoff.delay(failures)
            when = f"in {delay:g} s" if delay else "at once"
            self._output.say(f"{spec.name} ended with exit code {code}; starting it again {when}")
            await self._sleep_unless_stopped(delay)

    async def _run_once(self, spec: ChildSpec) -> int:
        started_at = time.time()
        self._was_ready.discard(spec.name)
        async with self._spawning:
            process = await GuardedProcess.start(spec, self._descriptors)
            self._running[spec.name] = process
        logs = asyncio.create_task(self._copy_lines(spec.name, process))
        probing: asyncio.Task[None] | None = None
        try:
            self._pids[spec.name] = await process.pid()
            probing = asyncio.create_task(self._probe(spec, started_at))
            if self._stopping.is_set():
                process.ask_to_stop()
            if self._all_ready:
                self._on_change({spec.name: self._pids[spec.name] for spec in self._specs})
            code = await process.wait()
            if code < 0:
                await self._end_strays()
            # Descendants kept for the successor may hold the output open for as long as they live.
            await asyncio.wait([logs], timeout=LAST_LINES_WAIT_S if spec.keep_descendants_on_crash else None)
            return code
        finally:
            if probing:
                probing.cancel()
            logs.cancel()
            process.close()
            del self._running[spec.name]

    async def _run_to_end(self, spec: ChildSpec) -> None:
        """Runs a process that is not started again, and whose end does not concern the others."""
        async with self._spawning:
            process = await GuardedProcess.start(spec, self._descriptors)
            self._running[spec.name] = process
        logs = asyncio.create_task(self._copy_lines(spec.name, process))
        try:
            await process.pid()
            if self._stopping.is_set():
                process.ask_to_stop()
            code = await process.wait()
            await asyncio.wait([logs], timeout=LAST_LINES_WAIT_S)
        finally:
            logs.cancel()
            process.close()
            del self._running[spec.name]
        if not self._stopping.is_set():
            self._on_end(code)

    async def _copy_lines(self, name: str, process: GuardedProcess) -> None:
        async for line in process.lines():
            self._output.line(name, line)

    async def _probe(self, spec: ChildSpec, started_at: float) -> None:
        while not self._stopping.is_set():
            try:
                await asyncio.to_thread(spec.probe, started_at)
            except NotReady as reason:
                if spec.name in self._not_ready:
                    self._not_ready[spec.name] = str(reason)
            except Broken as reason:
                if self._all_ready:
                    self._output.say(f"{spec.name}: {reason}")
                    return
                self._fail_with_tail(spec.name, f"{spec.name}: {reason}")
                return
            else:
                # A child that cannot be asked may have been of no use all the time.
                if spec.probe is not always_ready:
                    self._was_ready.add(spec.name)
                self._on_ready(spec.name)
                return
            await self._sleep_unless_stopped(self._limits.probe_every_s)

    def _on_ready(self, name: str) -> None:
        if self._stopping.is_set():
            return
        if self._all_ready:
            self._output.say(f"{name} is ready again")
        elif self._not_ready.pop(name, None) is not None and not self._not_ready:
            self._all_ready = True
            self._on_change({spec.name: self._pids[spec.name] for spec in self._specs})
            if self._afterwards is not None:
                self._follow_up = asyncio.create_task(self._run_to_end(self._afterwards))

    def _fail_with_tail(self, name: str, reason: str) -> None:
        if not self._end.done():
            tail = self._output.tail(name)[-self._limits.shown_lines :]
            self._output.say(f"{reason}; its last lines:")
            for line in tail:
                self._output.say(f"    {line}")
        self._fail(reason)

    async def _sleep_unless_stopped(self, seconds: float) -> None:
        try:
            await asyncio.wait_for(self._stopping.wait(), seconds)
        except TimeoutError:
            return

    async def _stop(self, tasks: Sequence[asyncio.Task[None]]) -> None:
        self._stopping.set()
        loop = asyncio.get_running_loop()
        for process in self._running.values():
            process.ask_to_stop()
        if self._follow_up is not None:
            tasks = [*tasks, self._follow_up]
        specs = [*self._specs, *([] if self._afterwards is None else [self._afterwards])]
        kills = [loop.call_later(spec.grace_s, self._kill, spec) for spec in specs]
        longest = max((spec.grace_s for spec in specs), default=0.0)
        _, late = await asyncio.wait(tasks, timeout=longest + self._limits.after_kill_s)
        for kill in kills:
            kill.cancel()
        for task in late:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._reaping is not None:
            await self._reaping
        await self._end_strays()

    def _kill(self, spec: ChildSpec) -> None:
        if process := self._running.get(spec.name):
            if not spec.loses_nothing:
                self._output.say(f"{spec.name} does not stop; killing it")
            process.kill()

    async def _end_strays(self) -> None:
        """Kills the descendants of guards that were killed; this process has adopted them."""
        async with self._spawning:
            guards = {process.guard.pid for process in self._running.values()}
            while strays := [pid for pid in own_children() if pid not in guards]:
                for stray in strays:
                    send_signal([*descendants(stray), stray], signal.SIGKILL)
                    await asyncio.to_thread(os.waitpid, stray, 0)

    async def _reap_strays(self) -> None:
        """Reaps descendants that a crashed child left to its successor; this process has adopted them."""
        while not self._stopping.is_set():
            async with self._spawning:
                guards = {process.guard.pid for process in self._running.values()}
                for stray in [pid for pid in own_children() if pid not in guards]:
                    os.waitpid(stray, os.WNOHANG)
            await self._sleep_unless_stopped(REAP_EVERY_S)
