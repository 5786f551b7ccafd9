"""Each run of an SQL is counted once, however often and by however many processes its event is stored."""

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import Engine, delete, update

from platform_defs.graph.model import Node
from platform_defs.lineage.events import Event
from platform_defs.lineage.new_events import WRONG_CLOCK
from platform_defs.lineage.sink.rows import raw_events
from platform_defs.lineage.sink.rows.run_counts import Counts, SqlRun, count_runs, delete_older, read_counts, recount
from platform_defs.lineage.upkeep import tenant_rebuild
from platform_defs.lineage.upkeep.retention import Retention, delete_expired
from platform_defs.store.engine import transact
from platform_defs.store.metadata import now
from platform_defs.store.tables.lineage import lineage_events, lineage_sql, lineage_sql_run
from tests.lineage.deliveries import Arrival, Deliveries
from tests.lineage.test_merge_stores import open_graphs
from tests.lineage.test_symlinks import deliveries, opened, path, place, ran

__all__ = ["deliveries", "open_graphs", "opened", "place"]


def counted(engine: Engine, *runs: SqlRun) -> Counts:
    return transact(engine, lambda connection: count_runs(connection, runs))


def test_a_run_counts_once_per_sql_and_tenant(engine: Engine) -> None:
    assert counted(engine, SqlRun(1, "sql:a", "r1"), SqlRun(1, "sql:a", "r2"), SqlRun(1, "sql:a", "r1")) == {
        1: {"sql:a": 2}
    }
    assert counted(engine, SqlRun(1, "sql:a", "r2"), SqlRun(1, "sql:b", "r2"), SqlRun(2, "sql:a", "r1")) == {
        1: {"sql:a": 2, "sql:b": 1},
        2: {"sql:a": 1},
    }
    assert counted(engine) == {}


def test_two_processes_that_count_the_same_runs_agree(engine: Engine) -> None:
    runs = [SqlRun(1, f"sql:{number % 3}", f"r{number}") for number in range(60)]
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda start: counted(engine, *runs[start:], *runs[:start]), (0, 13, 29, 41)))
    assert list(read_counts(engine, 1)) == [{"sql:0": 20, "sql:1": 20, "sql:2": 20}]


def test_a_forgotten_run_stays_counted(engine: Engine) -> None:
    counted(engine, SqlRun(1, "sql:a", "r1"))
    assert delete_older(engine, now() + timedelta(minutes=1)) == 1
    assert list(read_counts(engine, 1)) == [{"sql:a": 1}]


def test_a_run_that_still_sends_events_after_a_quarter_of_a_year_is_not_counted_again(deliveries: Deliveries) -> None:
    def sent(minute: int) -> Arrival:
        return ran(minute, [path("a")], [path("b")], sql="insert into b select * from a", kind="RUNNING", run="stream")

    first = sent(0)
    deliveries.deliver([first])
    deliveries.committer.flush()
    with deliveries.engine.begin() as connection:
        for table in (lineage_events, lineage_sql_run):
            mine = table.c.tenant_id == deliveries.tenant.id
            connection.execute(update(table).where(mine).values(created_at=now() - timedelta(days=100)))
    deliveries.deliver([sent(1)])
    deliveries.committer.flush()
    delete_expired(deliveries.engine, deliveries.graph, Retention(90, 7, 30), now())
    deliveries.deliver([sent(2)])
    deliveries.committer.flush()
    assert counts_in_graph(deliveries) == {"job": 1}


def counts_in_graph(deliveries: Deliveries) -> dict[str, int]:
    nodes = [node for node in deliveries.graph.for_tenant(deliveries.tenant.id).stream() if isinstance(node, Node)]
    return {str(node.props["jobName"]): node.props["executionCount"] for node in nodes if "SQL" in node.labels}


def test_each_job_has_its_own_count_and_only_the_operators_rebuild_counts_stored_events_anew(
    deliveries: Deliveries,
) -> None:
    text, mine = "insert into b select * from a", deliveries.tenant.id
    runs = [ran(minute, [path("a")], [path("b")], job=job, sql=text) for minute in range(3) for job in ("j", "k")]
    deliveries.deliver(runs)
    deliveries.deliver(runs)
    deliveries.committer.flush()
    assert counts_in_graph(deliveries) == {"j": 3, "k": 3}
    # retention deletes all but the newest run of j
    long_ago = now() - timedelta(days=100)
    last = runs[-2].raw["run"]["runId"]
    with deliveries.engine.begin() as connection:
        for table in (lineage_events, lineage_sql_run):
            old = (table.c.tenant_id == mine, table.c.run_uuid != last)
            connection.execute(update(table).where(*old).values(created_at=long_ago))
    delete_expired(deliveries.engine, deliveries.graph, Retention(90, 7, 30), now())
    deliveries.rebuild(keep=True)
    assert counts_in_graph(deliveries) == {"j": 3, "k": 3}
    deliveries.rebuild()
    assert counts_in_graph(deliveries) == {"j": 1}


def test_an_sql_that_is_new_while_the_operators_rebuild_is_under_way_stays_counted(
    deliveries: Deliveries, monkeypatch: pytest.MonkeyPatch
) -> None:
    def of_job(job: str, minute: int) -> Arrival:
        return ran(minute, [path("a")], [path("b")], job=job, sql="insert into b select * from a")

    deliveries.deliver([of_job("old", 0), of_job("gone", 1)])
    deliveries.committer.flush()
    with deliveries.engine.begin() as connection:
        mine = lineage_events.c.tenant_id == deliveries.tenant.id
        connection.execute(delete(lineage_events).where(mine, lineage_events.c.job_name == "gone"))
        # an older release gave the SQL another id
        for table in (lineage_sql, lineage_sql_run):
            connection.execute(
                update(table).where(table.c.tenant_id == deliveries.tenant.id).values(sql_id="sql:" + table.c.sql_id)
            )

    parsed: list[str] = []
    parse = raw_events.parse_event

    def noting(raw: object) -> Event:
        event = parse(raw)
        parsed.append(str(event.job_name))
        return event

    def recount_late(engine: Engine, tenant_id: int, runs: Iterable[SqlRun], **read: Any) -> None:
        # the rebuild has read all events for the last time
        deliveries.deliver([of_job("new", 2)])
        with monkeypatch.context() as patch:
            patch.setattr(raw_events, "parse_event", noting)
            recount(engine, tenant_id, runs, **read)

    monkeypatch.setattr(tenant_rebuild, "recount", recount_late)
    deliveries.rebuild()
    # it locks the counts of the whole tenant, so what the rebuild has read is not read again
    assert parsed == ["new"]
    deliveries.deliver([of_job("new", 3)])
    assert counts_in_graph(deliveries) == {"old": 1, "new": 2}


def test_only_runs_that_are_counted_since_a_rebuild_began_keep_an_sql_that_it_has_not_read(
    deliveries: Deliveries,
) -> None:
    deliveries.deliver([ran(0, [path("a")], [path("b")], sql="insert into b select * from a")])
    deliveries.committer.flush()
    engine, mine = deliveries.engine, deliveries.tenant.id
    recount(engine, mine, [], read_events=set(), since=now())
    assert [list(counts.values()) for counts in read_counts(engine, mine)] == [[1]]
    recount(engine, mine, [], read_events=set(), since=now() + 2 * WRONG_CLOCK)
    assert list(read_counts(engine, mine)) == []
