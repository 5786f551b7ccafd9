"""What `platform up` promises about its processes, over small real ones."""

import json
import os
import signal
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from platform_defs.supervisor.child import Backoff
from platform_defs.supervisor.home import forget_demo_key
from tests.supervisor.running import SLEEPER, STUBBORN, Running, lives, processes_of
from tests.waiting import until

Start = Callable[..., Running]

GRANDCHILD_IN_ANOTHER_SESSION = """
import os, subprocess, sys, time
for extra in ({}, {"start_new_session": True}):
    code = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('grandchild'); time.sleep(600)"
    subprocess.Popen([sys.executable, "-u", "-c", code], **extra)
time.sleep(600)
"""


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    started: list[Running] = []

    def begin(*children: dict[str, Any], **description: Any) -> Running:
        started.append(Running(tmp_path, list(children), **description))
        return started[-1]

    yield begin
    for running in started:
        running.close()


def child(name: str, code: str = SLEEPER, **more: Any) -> dict[str, Any]:
    return {"name": name, "code": code, **more}


def until_both_grandchildren(running: Running) -> None:
    # counted in all the text: their lines may run into each other
    until("both grandchildren", lambda: "".join(running.lines).count("grandchild") == 2)


def test_lines_of_each_child_stand_behind_its_aligned_name(start: Start) -> None:
    running = start(child("api"), child("webserver", "print('über'); print('no end', end=''); " + SLEEPER))
    running.until_up()
    running.until_line("webserver | no endhello")
    running.until_line("api       | hello")
    running.end()
    assert "webserver | über" in running.lines
    assert "webserver | no endhello" in running.lines


def test_up_json_appears_only_when_every_child_is_ready_and_goes_with_the_stop(start: Start, tmp_path: Path) -> None:
    (tmp_path / "demo.key").write_text("k")
    running = start(child("api", ready="api-ready"), child("ui", ready="ui-ready"))
    running.until_line("ui  | hello")
    (tmp_path / "api-ready").touch()
    running.until_line("api | hello")
    assert running.up() is None
    (tmp_path / "ui-ready").touch()
    up = running.until_up()
    assert {name: up[name] for name in ("api", "ui", "demo_key")} == {
        "api": "http://127.0.0.1:1",
        "ui": "http://127.0.0.1:2",
        "demo_key": "k",
    }
    assert set(up["pids"]) == {"api", "ui"}
    assert all(lives(pid) for pid in up["pids"].values())
    assert stat.S_IMODE((tmp_path / "up.json").stat().st_mode) == 0o600
    assert running.end() == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["api-ready", "demo.key", "ui-ready"]


def test_a_demo_key_that_is_removed_is_gone_from_up_json_and_does_not_come_back(start: Start, tmp_path: Path) -> None:
    (tmp_path / "demo.key").write_text("k")
    (tmp_path / "up.partial").write_text("left by a writer that was killed, and longer than what is written now" * 99)
    # as the runner does in a real home, which it locks
    holder = "import fcntl, os; fcntl.flock(os.open(os.environ['HOME_FOLDER'], os.O_RDONLY), fcntl.LOCK_EX); "
    running = start(child("a", holder + SLEEPER), backoff={"first_s": 0.05})
    before = running.until_up()
    (tmp_path / "demo.key").unlink()
    forget_demo_key(tmp_path)
    assert running.up() == {**before, "demo_key": None}
    os.kill(before["pids"]["a"], signal.SIGKILL)
    after = until("a new pid", lambda: up if (up := running.up()) and up["pids"] != before["pids"] else None)
    assert after["demo_key"] is None
    assert running.end() == 0
    forget_demo_key(tmp_path)
    assert list(tmp_path.iterdir()) == [], "nothing runs"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_stop_leaves_no_process_and_restarts_none(start: Start, tmp_path: Path, number: int) -> None:
    running = start(child("a", GRANDCHILD_IN_ANOTHER_SESSION), child("b"))
    until_both_grandchildren(running)
    running.until_up()
    assert running.end(number) == 0
    until("the end of all processes", lambda: not processes_of(tmp_path))
    assert not any("again" in line for line in running.lines)


def test_a_child_that_ends_is_started_again_and_up_json_follows(start: Start) -> None:
    running = start(child("a"), child("b"), backoff={"first_s": 0.05})
    before = running.until_up()["pids"]
    os.kill(before["a"], signal.SIGKILL)
    after = until("a new pid", lambda: (up := running.up()) and up["pids"]["a"] != before["a"] and up["pids"])
    assert lives(after["a"])
    assert after["b"] == before["b"]
    running.until_line("a ended with exit code 137; starting it again in 0.05 s")


def test_the_wait_before_a_restart_grows_and_is_capped(start: Start) -> None:
    running = start(
        child(
            "a",
            "import os, pathlib, sys, time\n"
            "marker = pathlib.Path(os.environ['HOME_FOLDER'], 'end')\n"
            "while not marker.exists(): time.sleep(0.01)\n"
            "sys.exit(3)",
        ),
        backoff={"first_s": 0.02, "cap_s": 0.08},
    )
    running.until_up()
    (running.home / "end").touch()
    until("five restarts", lambda: sum("starting it again" in line for line in running.lines) >= 5)
    running.end()
    waits = [line.rpartition(" in ")[2] for line in running.lines if "starting it again" in line]
    assert waits[:5] == ["0.02 s", "0.04 s", "0.08 s", "0.08 s", "0.08 s"]


def test_a_child_that_had_been_ready_restarts_at_once_however_often_it_is_killed(start: Start, tmp_path: Path) -> None:
    (tmp_path / "ready").touch()
    running = start(child("a", ready="ready"), backoff={"first_s": 600})
    pid = running.until_up()["pids"]["a"]
    for killed in range(1, 7):
        os.kill(pid, signal.SIGKILL)
        until("ready again", lambda: sum("a is ready again" in line for line in running.lines) == killed)  # noqa: B023
        pid = (running.up() or {})["pids"]["a"]
        assert lives(pid)
    running.end()
    assert sum("a ended with exit code 137; starting it again at once" in line for line in running.lines) == 6


def test_a_ready_life_forgives_earlier_failures() -> None:
    backoff = Backoff(first_s=1, cap_s=10)
    assert backoff.failures(5, was_ready=True) == 0
    assert backoff.failures(5, was_ready=False) == 6
    assert [backoff.delay(n) for n in (0, 1, 2, 3, 4, 5, 1000)] == [0, 1, 2, 4, 8, 10, 10]


def test_a_child_that_ignores_sigterm_is_killed_when_its_grace_ends(start: Start, tmp_path: Path) -> None:
    running = start(child("stubborn", STUBBORN, grace_s=0.5), child("polite"))
    running.until_line("stubborn | hello")
    running.until_up()
    assert running.end() == 0
    until("the end of all processes", lambda: not processes_of(tmp_path))
    running.until_line("stubborn does not stop; killing it")


def test_the_kill_of_a_child_that_loses_nothing_is_not_worth_a_line(start: Start, tmp_path: Path) -> None:
    running = start(child("stubborn", STUBBORN, grace_s=0.2, loses_nothing=True))
    running.until_line("stubborn | hello")
    running.until_up()
    assert running.end() == 0
    until("the end of all processes", lambda: not processes_of(tmp_path))
    assert not any("does not stop" in line for line in running.lines)


def test_a_second_ctrl_c_does_not_wait_for_the_grace(start: Start, tmp_path: Path) -> None:
    running = start(child("stubborn", STUBBORN, grace_s=600))
    running.until_line("stubborn | hello")
    running.until_up()
    running.process.send_signal(signal.SIGINT)
    running.until_line("stopping")
    assert running.end(signal.SIGINT) == 0
    until("the end of all processes", lambda: not processes_of(tmp_path))


def test_a_killed_supervisor_leaves_no_process(start: Start, tmp_path: Path) -> None:
    running = start(child("a", GRANDCHILD_IN_ANOTHER_SESSION), child("stubborn", STUBBORN))
    until_both_grandchildren(running)
    running.until_up()
    assert len(processes_of(tmp_path)) >= 4
    running.end(signal.SIGKILL)
    until("the end of all processes", lambda: not processes_of(tmp_path))


def test_after_a_kill_the_next_one_starts_as_soon_as_the_leftovers_are_gone(start: Start, tmp_path: Path) -> None:
    first = start(child("stubborn", STUBBORN))
    first.until_line("hello")
    old = first.until_up()["pids"]["stubborn"]
    first.end(signal.SIGKILL)
    second = start(child("stubborn", STUBBORN, grace_s=0.1))
    new = until("the new pid", lambda: (up := second.up()) and up["pids"]["stubborn"] != old and up["pids"]["stubborn"])
    assert lives(new)
    assert not lives(old)


def test_a_killed_guard_takes_its_child_along_and_both_are_replaced(start: Start, tmp_path: Path) -> None:
    running = start(child("a", GRANDCHILD_IN_ANOTHER_SESSION), backoff={"first_s": 0.05})
    until_both_grandchildren(running)
    pid = running.until_up()["pids"]["a"]
    old = set(processes_of(tmp_path))
    guard = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    os.kill(guard, signal.SIGKILL)
    until("a new child", lambda: (up := running.up()) and up["pids"]["a"] != pid)
    assert not [leftover for leftover in old if lives(leftover)]


def test_a_child_that_cannot_start_ends_the_start_with_its_last_lines(start: Start, tmp_path: Path) -> None:
    running = start(child("good"), child("bad", "import no_such_module", ready="never"), backoff={"first_s": 0.02})
    assert running.wait() == 1
    assert sum("starting it again" in line for line in running.lines) == 2
    assert any("up   |     ModuleNotFoundError: No module named 'no_such_module'" in line for line in running.lines)
    assert running.lines[-1] == "platform: bad ended 3 times during the start (exit code 1)"
    assert list(tmp_path.iterdir()) == []
    until("the end of all processes", lambda: not processes_of(tmp_path))


def test_a_child_that_says_it_is_broken_ends_the_start(start: Start, tmp_path: Path) -> None:
    (tmp_path / "state").write_text("broken")
    running = start(child("ui", ready="state"))
    assert running.wait() == 1
    assert running.lines[-1] == "platform: ui: it says that it is broken"
    until("the end of all processes", lambda: not processes_of(tmp_path))


def test_a_start_that_takes_too_long_says_what_is_missing(start: Start, tmp_path: Path) -> None:
    """How far the children have got by then is a matter of the machine."""
    running = start(child("ui", ready="never"), child("api"), limits={"start_s": 1.5})
    assert running.wait() == 1
    told = running.lines[-1].removeprefix("platform: not ready after 2 s: ").split("; ")
    assert told[0] in ("ui: never is missing", "ui: not started")
    assert told[1:] in ([], ["api: not started"])


def test_a_second_supervisor_on_the_same_home_is_refused_in_one_line(start: Start, tmp_path: Path) -> None:
    first = start(child("a"))
    up = first.until_up()
    second = start(child("a"))
    assert second.wait() == 1
    pid = first.process.pid
    assert second.lines == [
        f"platform: the platform is already up in {tmp_path} at {up['ui']} (pid {pid}); `kill {pid}` stops it, and"
        " PLATFORM_HOME chooses a home for another one"
    ]
    assert json.loads((tmp_path / "up.json").read_text()) == up
    assert first.end() == 0
    assert start(child("a")).until_up()


def test_a_lock_file_that_a_crash_left_does_not_block(start: Start, tmp_path: Path) -> None:
    (tmp_path / "up.lock").write_text("1")
    assert start(child("a")).until_up()


def test_what_follows_runs_once_when_all_are_ready_and_its_failure_ends_nothing(start: Start, tmp_path: Path) -> None:
    running = start(child("api", ready="api-is-ready"), afterwards="print('it follows'); raise SystemExit(3)")
    running.until_line("hello")
    assert not any("it follows" in line for line in running.lines)
    (tmp_path / "api-is-ready").touch()
    running.until_up()
    running.until_line("once ended with 3")
    assert any("once | it follows" in line for line in running.lines)
    assert running.up() is not None
    assert running.process.poll() is None
    running.end()
    assert sum("it follows" in line for line in running.lines) == 1


def test_a_stop_ends_what_follows_midway(start: Start) -> None:
    running = start(child("api"), afterwards=STUBBORN)
    running.until_line("once | hello")
    running.end()
    assert not any("once ended" in line for line in running.lines)
