"""Reloads of the code server: once after the last change, one at a time, again after a failure, never waited for."""

import logging
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from sqlalchemy import Engine

from platform_defs.runner.code_server import (
    AGAIN_S,
    QUIET_S,
    CodeServer,
    CodeServerReloads,
    ReloadFailed,
    request_reload,
)
from platform_defs.runner.definitions_loader import LOAD_EVERY_S
from platform_defs.runner.fingerprint import read_fingerprint
from platform_defs.settings import Settings
from platform_defs.work.definition_versions import bump
from tests.waiting import PATIENCE_S, until


class Server(CodeServer):
    """Counts the reloads; one lasts until it is let go."""

    def __init__(self, *, behind: bool = False) -> None:
        self.behind = behind
        self.asked = 0
        self.failing = False
        self.go_on = threading.Event()
        self.go_on.set()

    def may_be_behind(self) -> bool:
        return self.behind

    def reload(self) -> None:
        self.asked += 1
        assert self.go_on.wait(PATIENCE_S)
        if self.failing:
            raise ReloadFailed("it does not load")


def settled(reloads: CodeServerReloads) -> None:
    until("the reload to end", lambda: reloads._asking is None or not reloads._asking.is_alive())


def test_a_reload_follows_the_last_of_many_changes() -> None:
    server = Server()
    reloads = CodeServerReloads(server)
    for second, rows in enumerate(["a", "b", "c", "d"]):
        reloads.step(rows, second)
        settled(reloads)
    reloads.step("d", 3 + QUIET_S - 0.1)
    settled(reloads)
    assert server.asked == 0
    for later in (0.0, 1.0, 100.0):
        reloads.step("d", 3 + QUIET_S + later)
        settled(reloads)
    assert server.asked == 1


def test_a_change_during_a_reload_is_reloaded_after_it_and_nobody_waits() -> None:
    server = Server()
    reloads = CodeServerReloads(server)
    reloads.step("a", 0)
    reloads.step("b", 1)
    server.go_on.clear()
    reloads.step("b", 10)
    reloads.step("c", 11)
    reloads.step("c", 30)
    until("the first reload", lambda: server.asked)
    assert server.asked == 1
    server.go_on.set()
    settled(reloads)
    reloads.step("c", 31)
    settled(reloads)
    assert server.asked == 2


def test_somebody_who_changes_definitions_all_the_time_has_them_reloaded_at_a_pace() -> None:
    server = Server()
    reloads = CodeServerReloads(server)
    reloads.step("before", 0)
    asked = []
    for second in range(1, 121):
        # a change every five seconds, each of which is followed by a quiet moment
        reloads.step(f"change {second // 5}", second)
        settled(reloads)
        asked.append(server.asked)
    assert asked[10 - 1] == 2, "the first two at once"
    assert 120 / LOAD_EVERY_S <= server.asked <= 120 / LOAD_EVERY_S + 2
    reloads.step("change 24", 120 + LOAD_EVERY_S + QUIET_S)
    settled(reloads)
    assert reloads._loaded == "change 24", "the last change is loaded at last"


def test_what_mends_definitions_that_did_not_load_is_reloaded_at_once() -> None:
    server = Server()
    reloads = CodeServerReloads(server)
    reloads.step("before", 0)
    server.failing = True
    for second, rows in ((1, "a"), (4, "a"), (15, "a"), (26, "a")):
        reloads.step(rows, second)
        settled(reloads)
    assert server.asked == 3
    server.failing = False
    reloads.step("mended", 27)
    reloads.step("mended", 27 + QUIET_S)
    settled(reloads)
    assert server.asked == 4


def test_a_failure_is_told_once_and_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    server = Server()
    reloads = CodeServerReloads(server)
    reloads.step("a", 0)
    reloads.step("b", 1)
    server.failing = True
    for attempt in range(3):
        reloads.step("b", 10 + attempt * AGAIN_S)
        reloads.step("b", 10 + attempt * AGAIN_S + 1)
        settled(reloads)
    server.failing = False
    reloads.step("b", 100)
    settled(reloads)
    reloads.step("b", 200)
    assert server.asked == 4
    assert [record.levelname for record in caplog.records] == ["ERROR", "INFO"]


def test_a_server_that_may_have_missed_a_change_is_asked_at_the_start() -> None:
    server = Server(behind=True)
    reloads = CodeServerReloads(server)
    reloads.step("a", 0)
    reloads.step("a", QUIET_S)
    settled(reloads)
    assert server.asked == 1


def test_a_server_may_be_behind_if_a_model_was_published_since_it_started(
    engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PLATFORM_HOME", str(tmp_path))
    settings = Settings.load()
    server = CodeServer(settings, engine)
    with engine.begin() as connection:
        bump(connection, "models")
    assert not server.may_be_behind()  # nobody here supervises one
    server.reload()
    workspace = settings.dagster_home / "workspace.yaml"
    workspace.parent.mkdir(parents=True)
    workspace.write_text("load_from: [{grpc_server: {host: 127.0.0.1, port: 1}}]")
    for seconds, behind in ((-60, True), (60, False)):
        started = time.time() + seconds
        os.utime(workspace, (started, started))
        assert server.may_be_behind() is behind
    with pytest.raises(ReloadFailed, match=r"^the code server does not answer: [^\n]+$"):
        server.reload()


def test_a_process_of_the_code_server_that_was_told_to_end_goes_on_asking_until_the_definitions_load() -> None:
    script = """
import threading
from platform_defs.runner.code_server import CodeServer, DefinitionsDoNotLoad, request_reload

class Server(CodeServer):
    def __init__(self):
        self.failures = 4

    def reload(self):
        print("asked", flush=True)
        self.failures -= 1
        if self.failures >= 0:
            raise DefinitionsDoNotLoad("it does not load")

# a server may serve its ticks in daemon threads, whose children are daemons too unless told otherwise
tick = threading.Thread(target=request_reload, args=(Server(), print), daemon=True)
tick.start()
tick.join()
"""
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=PATIENCE_S)
    assert ended.stdout.split() == ["asked", "10.0", "asked", "20.0", "asked", "40.0", "asked", "60.0", "asked"]


def no_request_is_under_way() -> None:
    until("the request to end", lambda: all(thread.name != "reload" for thread in threading.enumerate()))


def test_a_server_that_does_not_answer_is_asked_again_by_the_next_tick() -> None:
    server = Server()
    server.failing = True
    for tick in range(3):
        request_reload(server)
        no_request_is_under_way()
        assert server.asked == tick + 1


def test_ticks_during_a_request_do_not_ask_beside_it() -> None:
    server = Server()
    server.go_on.clear()
    for _ in range(3):
        request_reload(server)
    server.go_on.set()
    no_request_is_under_way()
    assert server.asked == 1


def test_a_published_model_changes_the_rows_and_not_the_code(engine: Engine) -> None:
    before = read_fingerprint(engine)
    with engine.begin() as connection:
        bump(connection, "models")
    after = read_fingerprint(engine)
    assert (after.code, after.rows != before.rows, after.digest != before.digest) == (before.code, True, True)
