"""Random kills while arrivals come in: nothing is lost, nothing overlaps, nothing stays open.

On the servers thirty kills during two hundred and fifty arrivals, embedded half as many. With
PLATFORM_TEST_CAMPAIGN=full twice as many, which takes minutes more: for whoever changes the runner or the recovery.
"""

import contextlib
import os
import random
import signal
import sqlite3
import threading
import time
import uuid
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest
from sqlalchemy import Engine, func, select

from platform_defs.store.engine import open_engine, read
from platform_defs.store.tables.arrivals import (
    metrics_etl_log,
    metrics_model_running,
    metrics_task_log,
)
from platform_defs.store.tables.webhooks import metrics_webhook_delivery
from platform_defs.store.tables.work import work
from platform_defs.work.processes import ProcessId
from platform_defs.work.rows import OPEN_STATUSES
from tests import loopback
from tests.conftest import dropped_databases, new_database
from tests.e2e.arrivals_site import PATH, Site
from tests.e2e.conftest import BACKENDS, WEBHOOKS, server_environment, warm_up
from tests.e2e.platform_up import processes_of
from tests.e2e.source_watch import SourceWatch, fork_server_of
from tests.e2e.tree import copy_with_probes
from tests.e2e.warm import Warm
from tests.needs import require
from tests.waiting import PATIENCE_S, until
from tests.webhooks.receiver import receiving

# how often each kind of process is hit; the supervisor is killed once, and stopped once
TIMES = 2 if os.environ.get("PLATFORM_TEST_CAMPAIGN") == "full" else 1
PARTS = {
    "servers": {"child": 17, "fork server": 4, "api": 3, "runner": 3, "code-server": 2},
    "embedded": {"child": 8, "fork server": 2, "api": 2, "runner": 2, "code-server": 1},
}
TARGETS = {
    name: {part: TIMES * hits for part, hits in parts.items()} | {"supervisor": 2} for name, parts in PARTS.items()
}
ARRIVALS = {"servers": TIMES * 250, "embedded": TIMES * 125}
STOPPED_S = 15.0
# a child that dies three times is given up, as it should be
CHILD_KILLS = 2
TABLES = [f"T{number}" for number in range(8)]
BATCHES = [f"2025121{day}" for day in range(5)]
SETTLE_S = 2 * PATIENCE_S


@dataclass
class Campaign:
    """A platform that is hit, and everything that is counted while it is."""

    home: Path
    tree: Path
    environment: dict[str, str]
    targets: dict[str, int]
    arrivals: int
    engine: Engine
    mark: str
    dice: random.Random
    platform: Warm
    key: str
    acknowledged: int = 0
    counting: threading.Lock = field(default_factory=threading.Lock)
    hits: Counter[str] = field(default_factory=Counter)
    child_kills: Counter[tuple[str, str]] = field(default_factory=Counter)
    stopped: dict[int, threading.Timer] = field(default_factory=dict)
    # the next hit is one of an execution: arrivals come until one is there
    wants_child: bool = False

    # -- arrivals ---------------------------------------------------------------------------------------------------

    def post_arrivals(self, seed: int, count: int) -> None:
        """Posts until so many arrivals are acknowledged; what is not answered is posted again."""
        dice, headers = random.Random(seed), {"Authorization": f"Bearer {self.key}"}
        with loopback.client(timeout=30) as client:
            while True:
                # arrivals keep coming for as long as processes are hit, on a fast and on a slow machine
                until("the next hits", lambda left=count: self._may_post(left), 4 * PATIENCE_S)
                if count <= 0 and not self.wants_child:
                    return
                body = {"srcTableName": f"{dice.choice(TABLES)}_{self.mark}", "opTime": dice.choice(BATCHES)}
                with contextlib.suppress(httpx.HTTPError, OSError, ValueError, KeyError):
                    url = f"{self.platform.up['api']}{PATH}"
                    answer = client.post(url, json=body, params={"wait": 0}, headers=headers)
                    if answer.status_code == 200:
                        count -= 1
                        with self.counting:
                            self.acknowledged += 1
                time.sleep(dice.uniform(0.1, 0.5))

    def _may_post(self, left: int) -> bool:
        """Whether the next arrival is due, or no more is needed."""
        hits, wanted = sum(self.hits.values()), sum(self.targets.values())
        return (
            self.wants_child or hits == wanted or (left > 0 and self.acknowledged < self.arrivals * (hits + 6) / wanted)
        )

    # -- kills ------------------------------------------------------------------------------------------------------

    def hit_everything(self) -> None:
        targets = [name for name, count in self.targets.items() for _ in range(count)]
        self.dice.shuffle(targets)
        supervisor = [signal.SIGKILL, signal.SIGSTOP]
        for target in targets:
            if target == "supervisor":
                self._hit_supervisor(supervisor.pop())
            else:
                number = self.dice.choices([signal.SIGKILL, signal.SIGSTOP], [3, 1])[0]
                self.wants_child = target == "child"
                until(f"a {target} to hit", lambda target=target, number=number: self._hit(target, number))
                self.wants_child = False
            self.hits[target] += 1
            time.sleep(self.dice.uniform(0.1, 0.6))

    def _hit(self, target: str, number: signal.Signals) -> bool:
        process = self._child(number) if target == "child" else self._part(target)
        if process is None or process.pid in self.stopped or not process.is_alive():
            return False
        self._send(process, number)
        return True

    def _send(self, process: ProcessId, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.pid, number)
        if number is signal.SIGSTOP:
            timer = threading.Timer(STOPPED_S, self._continue, [process])
            self.stopped[process.pid] = timer
            timer.start()

    def _continue(self, process: ProcessId) -> None:
        self.stopped.pop(process.pid, None)
        if process.is_alive():
            os.kill(process.pid, signal.SIGCONT)

    def _part(self, name: str) -> ProcessId | None:
        try:
            pid = fork_server_of(self.home) if name == "fork server" else int(self.platform.up["pids"].get(name, 0))
        except (OSError, ValueError):
            return None
        return ProcessId.of(pid) if pid else None

    def _child(self, number: signal.Signals) -> ProcessId | None:
        """The process of an execution whose batch has not lost two of them already."""
        log = metrics_task_log.c
        query = (
            select(log.model_id, log.op_time, work.c.pid, work.c.process_started)
            .join_from(metrics_task_log, work, work.c.id == log.work_id)
            .where(work.c.status == "RUNNING", work.c.pid.is_not(None))
        )
        found = read(self.engine, lambda connection: connection.execute(query).all())
        self.dice.shuffle(found := list(found))
        for model_id, op_time, pid, started in found:
            process = ProcessId(pid, started)
            if self.child_kills[model_id, op_time] < CHILD_KILLS and process.is_alive() and pid not in self.stopped:
                self.child_kills[model_id, op_time] += number is signal.SIGKILL
                return process
        return None

    def _hit_supervisor(self, number: signal.Signals) -> None:
        if number is signal.SIGSTOP:
            process = ProcessId.of(self.platform.process.pid)
            assert process is not None
            self._send(process, number)
            return
        self.platform.stop(signal.SIGKILL)
        until("all its processes to end", lambda: set(processes_of(self.home)) == self._log_tails())
        self.platform = Warm(self.home, self.tree, self.environment).until_ready()

    def _log_tails(self) -> set[int]:
        """What Dagster starts beside a run to copy its output; after kill -9 of the run nobody ends it."""
        found = set()
        for pid in processes_of(self.home):
            with contextlib.suppress(OSError):
                if Path(f"/proc/{pid}/cmdline").read_bytes().startswith(b"tail\0"):
                    found.add(pid)
        return found

    def end_log_tails(self) -> None:
        for pid in self._log_tails():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def let_all_continue(self) -> None:
        for timer in list(self.stopped.values()):
            timer.join()

    # -- the end ----------------------------------------------------------------------------------------------------

    def what_is_open(self) -> str:
        """What is not done yet: rows of work, tasks, arrivals that no successful execution has read, webhooks."""
        row, delivery = work.c, metrics_webhook_delivery.c
        counts = {
            "rows of work": select(func.count()).where(row.status.in_(sorted(OPEN_STATUSES))),
            "tasks": select(func.count()).select_from(metrics_model_running),
            "webhooks": select(func.count()).where(delivery.status != "DELIVERED"),
        }
        found = {
            name: read(self.engine, lambda connection, query=query: connection.execute(query).scalar_one())
            for name, query in counts.items()
        }
        found["unread arrivals"] = len(self.unread())
        return ", ".join(f"{count} {name}" for name, count in found.items() if count)

    def tasks(self) -> list[Any]:
        query = select(metrics_task_log).where(metrics_task_log.c.model_id.like(f"%{self.mark}"))
        return list(read(self.engine, lambda connection: connection.execute(query).all()))

    def unread(self) -> list[tuple[str, str]]:
        """Tables and batches whose newest arrival no successful execution of a model that needs it has read."""
        log = metrics_etl_log.c
        query = select(log.table_name, log.op_time, log.arrival_time).where(log.table_name.like(f"%{self.mark}"))
        arrivals = read(self.engine, lambda connection: connection.execute(query).all())
        was_read = {
            (table, task.op_time, at)
            for task in self.tasks()
            if task.status == "SUCCESS"
            for table, at in task.versions.items()
        }
        return [(table, op) for table, op, at in arrivals if (table, op, at.isoformat()) not in was_read]


@pytest.fixture(params=BACKENDS)
def campaign(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Campaign]:
    seed = int(os.environ.get("PLATFORM_TEST_SEED") or random.randrange(1_000_000))
    with request.getfixturevalue("capsys").disabled():
        print(f"\nseed of the campaign: PLATFORM_TEST_SEED={seed}")  # noqa: T201
    tree = copy_with_probes(tmp_path / "tree")
    home, names, file = tmp_path / "home", [], tmp_path / "source.db"
    environment = WEBHOOKS | {"PLATFORM_SOURCE_QUERIES": "8", "PLATFORM_SOURCE_SITE_URL": f"sqlite:///{file}"}
    if request.param == "servers":
        warm_up(require("neo4j"))
        url, names = new_database("mysql", tmp_path)
        environment |= server_environment(url) | {"PLATFORM_SOURCE_SITE_URL": url.render_as_string(hide_password=False)}
    platform = Warm(home, tree, environment).until_ready()
    engine = open_engine(platform.environment.get("PLATFORM_DB_URL", f"sqlite:///{home}/platform.db"))
    made = Campaign(
        home,
        tree,
        environment,
        TARGETS[request.param],
        ARRIVALS[request.param],
        engine,
        uuid.uuid4().hex[:8],
        random.Random(seed),
        platform,
        platform.key,
    )
    try:
        yield made
    finally:
        made.let_all_continue()
        made.platform.end()
        made.end_log_tails()
        engine.dispose()
        dropped_databases("mysql", names)


def _load_models(campaign: Campaign, receiver_url: str) -> None:
    with loopback.client() as client:
        site = Site(campaign.platform, campaign.engine, campaign.mark, client)
        site.orders(*(("north", batch, 1.0) for batch in BATCHES))
        if campaign.engine.dialect.name == "sqlite":
            expression = (
                "SUM(amount) + (WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 800000)"
                " SELECT 0 * MAX(i) FROM n)"
            )
        else:
            expression = "SUM(amount) + SUM(SLEEP(0.8))"
        slow = {"source": "site", "expression": expression}
        site.load(*({"id": f"M{table}", "tables": [table], **slow} for table in TABLES))
        site.load({"id": "MBOTH", "tables": TABLES[:2], **slow})
        for model in [*(f"M{table}" for table in TABLES), "MBOTH"]:
            answer = client.post(
                f"{campaign.platform.up['api']}/api/open/kpi/webhooks",
                json={"kpiId": f"K{site.name(model)}", "callbackUrl": receiver_url, "retryNum": 10},
                headers=site.headers,
            )
            assert answer.status_code in (200, 201), answer.text


def _copy_to_source(campaign: Campaign, file: Path) -> None:
    """On SQLite the source is a file of its own, not in WAL mode, so that its read locks show who reads."""
    with contextlib.closing(sqlite3.connect(file)) as connection:
        connection.execute(f"CREATE TABLE ORDERS_{campaign.mark} (region TEXT, op_time TEXT, amount REAL)")
        rows = [("north", batch, 1.0) for batch in BATCHES]
        connection.executemany(f"INSERT INTO ORDERS_{campaign.mark} VALUES (?, ?, ?)", rows)  # noqa: S608
        connection.commit()


@pytest.mark.needs("time")
def test_random_kills_while_arrivals_come_in_lose_nothing(campaign: Campaign, tmp_path: Path) -> None:
    on_sqlite = campaign.engine.dialect.name == "sqlite"
    file = tmp_path / "source.db"
    if on_sqlite:
        _copy_to_source(campaign, file)
    with receiving() as receiver, ThreadPoolExecutor(8) as pool:
        _load_models(campaign, receiver.url())
        watch = SourceWatch(campaign.engine, file if on_sqlite else None)
        try:
            posters = [
                pool.submit(campaign.post_arrivals, campaign.dice.randrange(1_000_000), campaign.arrivals // 5)
                for _ in range(5)
            ]
            campaign.hit_everything()
            for poster in posters:
                poster.result(SETTLE_S)
            campaign.let_all_continue()
            # without help: no further arrival, no restart, no command
            seen = ""

            def is_settled() -> bool:
                nonlocal seen
                seen = campaign.what_is_open()
                return not seen

            try:
                until("everything to settle", is_settled, SETTLE_S)
            except AssertionError:
                raise AssertionError(f"still open: {seen}; unread {campaign.unread()}") from None
        finally:
            watch.close()
        tasks = campaign.tasks()
        told = {request.id for request in receiver.received}
    assert campaign.hits == campaign.targets
    assert campaign.acknowledged >= campaign.arrivals
    succeeded = [task.id for task in tasks if task.status == "SUCCESS"]
    _every_success_was_told(campaign, succeeded, told)
    _nothing_overlapped(watch, tasks)


def _every_success_was_told(campaign: Campaign, succeeded: list[int], told: set[str]) -> None:
    delivery = metrics_webhook_delivery.c
    query = select(delivery.task_id, delivery.webhook_id)
    found = {row.task_id: row.webhook_id for row in read(campaign.engine, lambda c: c.execute(query).all())}
    assert sorted(found) == sorted(succeeded)
    assert set(found.values()) <= told


def _nothing_overlapped(watch: SourceWatch, tasks: list[Any]) -> None:
    batch_of = {task.id: (task.model_id, task.op_time) for task in tasks}
    of_process = {int(task.process.split(":")[1]): task.id for task in tasks if task.process}
    seen = watch.tasks(of_process)
    assert len(set().union(*seen)) > 20, "the watch must have seen executions"
    for side_by_side in seen:
        counts = Counter(batch_of[task] for task in side_by_side if task in batch_of)
        assert max(counts.values(), default=0) <= 1, counts
