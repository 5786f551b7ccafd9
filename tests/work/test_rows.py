"""Rows of work: written once, claimed by one, closed once, on every store."""

import uuid
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from threading import Barrier

import pytest
from sqlalchemy import Connection, Engine, update

from platform_defs.runner.kinds_of_work import job_launch
from platform_defs.store.engine import transact
from platform_defs.store.tables.work import work as table
from platform_defs.work import leases, rows
from platform_defs.work.errors import UnknownKind, WorkTimeout
from platform_defs.work.processes import ProcessId, hostname
from platform_defs.work.rows import EndedBy, Status


def test_work_written_twice_under_one_key_is_one_row(engine: Engine) -> None:
    first = rows.enqueue(engine, "selfcheck", {"n": 1}, key="once")
    again = rows.enqueue(engine, "selfcheck", {"n": 2}, key="once")
    assert again == first
    assert again.payload == {"n": 1}
    assert rows.enqueue(engine, "selfcheck", {}).id != first.id


def test_work_that_is_open_already_is_not_written_again_until_it_has_ended(engine: Engine) -> None:
    other = rows.enqueue(engine, "lineage_apply", {})
    first = rows.enqueue_unless_open(engine, "selfcheck", key="interval 1")
    assert first.id != other.id
    assert rows.enqueue_unless_open(engine, "selfcheck", key="interval 2").id == first.id
    leases.claim(engine, "a", 2)
    assert rows.enqueue_unless_open(engine, "selfcheck", key="interval 3").id == first.id
    rows.finish(engine, first.id, Status.FAILED)
    # not twice within an interval
    assert rows.enqueue_unless_open(engine, "selfcheck", key="interval 1").id == first.id
    assert rows.enqueue_unless_open(engine, "selfcheck", key="interval 4").id != first.id


def test_rows_are_claimed_urgent_ones_first_and_then_in_the_order_they_were_written(engine: Engine) -> None:
    written = [rows.enqueue(engine, "selfcheck", {}, priority=priority) for priority in (100, 100, 5)]
    assert [row.id for row in leases.claim(engine, "a", 2)] == [written[2].id, written[0].id]
    assert [row.id for row in leases.claim(engine, "a", 2)] == [written[1].id]
    assert leases.claim(engine, "a", 2) == []


def test_many_runners_never_get_the_same_row(engine: Engine) -> None:
    ids = {rows.enqueue(engine, "selfcheck", {"n": n}).id for n in range(60)}

    def drain(owner: str) -> list[int]:
        taken: list[int] = []
        # while others hold the head of the queue a claim may come back empty although rows are left
        while rows.count_open_rows(engine)[Status.QUEUED]:
            taken += [row.id for row in leases.claim(engine, owner, 3)]
        return taken

    with ThreadPoolExecutor(6) as pool:
        taken = [row for drained in pool.map(drain, "abcdef") for row in drained]
    assert sorted(taken) == sorted(ids)


def test_only_the_owner_of_the_lease_can_start_a_row(engine: Engine) -> None:
    row = rows.enqueue(engine, "selfcheck", {})
    leases.claim(engine, "a", 1)
    assert not leases.mark_started(engine, "b", row.id, ProcessId.current())
    leases.give_back(engine, "a", [row.id])
    assert not leases.mark_started(engine, "a", row.id, ProcessId.current())
    [again] = leases.claim(engine, "b", 1)
    assert leases.mark_started(engine, "b", row.id, ProcessId.current())
    assert (again.attempts, rows.get(engine, row.id).process) == (2, ProcessId.current())


def test_a_row_whose_process_has_started_is_not_given_back(engine: Engine) -> None:
    row = rows.enqueue(engine, "selfcheck", {})
    leases.claim(engine, "a", 1)
    leases.mark_started(engine, "a", row.id, ProcessId.current())
    leases.give_back(engine, "a", [row.id])
    assert rows.get(engine, row.id).status is Status.RUNNING


def test_a_row_is_closed_once(engine: Engine) -> None:
    row = rows.enqueue(engine, "selfcheck", {})
    assert rows.finish(engine, row.id, Status.SUCCEEDED, result={"found": 1})
    assert not rows.finish(engine, row.id, Status.FAILED, error="too late")
    closed = rows.wait(engine, row.id, 0)
    assert (closed.status, closed.result, closed.error) == (Status.SUCCEEDED, {"found": 1}, None)


def test_a_lease_that_ran_out_is_found_and_one_that_is_renewed_is_not(engine: Engine) -> None:
    kept, lost = (rows.enqueue(engine, "selfcheck", {}) for _ in range(2))
    leases.claim(engine, "a", 2)
    expired = datetime.now(UTC) - timedelta(seconds=1)
    with engine.begin() as connection:
        connection.execute(update(table).values(leased_until=expired))
    leases.renew(engine, "a", [kept.id])
    assert [row.id for row in leases.rows_with_expired_lease(engine)] == [lost.id]


def test_waiting_for_a_row_that_nobody_takes_ends_with_what_it_is(engine: Engine) -> None:
    row = rows.enqueue(engine, "selfcheck", {})
    with pytest.raises(WorkTimeout, match=f"work {row.id} is QUEUED after 0.05 s"):
        rows.wait(engine, row.id, 0.05)


def test_a_cancel_reaches_the_owner_and_not_a_finished_row(engine: Engine) -> None:
    row, done = (rows.enqueue(engine, "selfcheck", {}) for _ in range(2))
    leases.claim(engine, "a", 2)
    rows.finish(engine, done.id, Status.SUCCEEDED)
    assert rows.request_cancel(engine, done.run_id) is None
    assert rows.request_cancel(engine, row.run_id) is not None
    assert leases.ids_to_cancel(engine, "a") == [row.id]
    assert leases.ids_to_cancel(engine, "b") == []


def test_only_rows_that_waited_long_enough_are_handed_to_another_launcher(engine: Engine) -> None:
    old, _ = (rows.enqueue(engine, "selfcheck", {}) for _ in range(2))
    asked_for = rows.enqueue(engine, rows.DAGSTER_RUN, {})
    long_ago = datetime.now(UTC) - timedelta(minutes=1)
    with engine.begin() as connection:
        connection.execute(update(table).where(table.c.id.in_([old.id, asked_for.id])).values(created_at=long_ago))
    taken = leases.claim(
        engine, leases.DAGSTER, 10, lease=None, waiting_for=timedelta(seconds=5), without={rows.DAGSTER_RUN}
    )
    assert [row.id for row in taken] == [old.id]
    assert [row.id for row in leases.rows_handed_to_dagster(engine)] == [old.id]
    assert leases.rows_with_expired_lease(engine) == []


def test_an_unknown_kind_is_refused_with_the_known_ones() -> None:
    with pytest.raises(UnknownKind, match=r"'nonsense'; expected one of .*selfcheck"):
        job_launch("nonsense", {})


def test_a_process_is_seen_at_work_on_this_machine_while_it_lives_and_never_on_another(engine: Engine) -> None:
    me = ProcessId.current()
    gone = ProcessId(me.pid, me.started - 1)
    seen = {}
    for host in (hostname(), "elsewhere"):
        for process in (None, gone, me):
            row = rows.enqueue(engine, "selfcheck", {})
            owner = f"{host}:{me.pid}:{me.started}"
            leases.claim(engine, owner, 1)
            if process is not None:
                leases.mark_started(engine, owner, row.id, process)
            found = rows.get(engine, row.id)
            seen[host, process] = (found.is_alive_here, found.local_runner)
    assert seen == {
        (hostname(), None): (False, me),
        (hostname(), gone): (False, me),
        (hostname(), me): (True, me),
        ("elsewhere", None): (False, None),
        ("elsewhere", gone): (False, None),
        ("elsewhere", me): (False, None),
    }


def test_a_row_that_waits_for_a_time_is_claimed_when_it_comes_or_when_somebody_hurries_it(engine: Engine) -> None:
    now = datetime.now(UTC)
    past = rows.enqueue(engine, "selfcheck", {}, not_before=now - timedelta(seconds=1))
    later = rows.enqueue(engine, "selfcheck", {}, not_before=now + timedelta(hours=1))
    assert [row.id for row in leases.claim(engine, "me", 5)] == [past.id]
    assert rows.count_open_rows(engine)[Status.QUEUED] == 0
    assert transact(engine, lambda connection: rows.hurry(connection, [past.id, later.id])) == [later.id]
    assert transact(engine, lambda connection: rows.hurry(connection, [past.id, later.id])) == []
    assert [row.id for row in leases.claim(engine, "me", 5)] == [later.id]


def test_no_more_rows_of_a_resource_run_than_it_bears_and_the_others_do_not_wait_for_it(engine: Engine) -> None:
    def add(connection: Connection) -> list[rows.Work]:
        return rows.add(connection, "selfcheck", [{}] * 7, resources=["a", "a", "a", "a", None, "b", "b"])

    written = transact(engine, add)
    first = leases.claim(engine, "me", 5, resource_limit=lambda name: 2)
    assert [row.id for row in first] == [written[at].id for at in (0, 1, 4, 5, 6)]
    assert leases.claim(engine, "me", 5, resource_limit=lambda name: 2) == []
    rows.finish(engine, first[0].id, Status.SUCCEEDED)
    third = leases.claim(engine, "me", 5, resource_limit=lambda name: 2)
    assert [(row.id, row.attempts) for row in third] == [(written[2].id, 1)]


def test_runners_that_claim_at_the_same_moment_do_not_exceed_a_resource_together(engine: Engine) -> None:
    runners = 6
    for round_number in range(8):
        name = f"source:{round_number}"
        transact(
            engine, lambda connection, name=name: rows.add(connection, "selfcheck", [{}] * 12, resources=[name] * 12)
        )
        together = Barrier(runners)

        def claim(number: int, together: Barrier = together) -> list[rows.Work]:
            together.wait()
            return leases.claim(engine, f"runner-{number}", 2, resource_limit=lambda name: 3)

        with ThreadPoolExecutor(runners) as pool:
            claimed = [row for found in pool.map(claim, range(runners)) for row in found]
        assert [row.resource for row in claimed].count(name) == 3
        later = leases.claim(engine, "later", 12, resource_limit=lambda name: 3)
        assert later == []


def test_whoever_asked_first_to_end_a_run_has_ended_it(engine: Engine) -> None:
    row = rows.enqueue(engine, "selfcheck", {})
    rows.request_cancel(engine, row.run_id, EndedBy.RESTART)
    rows.request_cancel(engine, row.run_id)
    rows.finish(engine, row.id, Status.CANCELED, ended_by=EndedBy.DEATH)
    assert rows.get(engine, row.id).ended_by is EndedBy.RESTART


def test_a_row_that_dagster_made_a_run_for_is_queued_with_that_run_once(engine: Engine) -> None:
    row = rows.enqueue(engine, "selfcheck", {})
    run_id, other = str(uuid.uuid4()), str(uuid.uuid4())
    assert leases.take_back_from_dagster(engine, row.id, run_id) is None
    leases.claim(engine, leases.DAGSTER, 1, lease=None)
    for _ in range(2):  # Dagster may launch the same run again
        back = leases.take_back_from_dagster(engine, row.id, run_id)
        assert back is not None
        assert (back.id, back.run_id, back.status) == (row.id, run_id, Status.QUEUED)
    assert leases.take_back_from_dagster(engine, row.id, other) is None


def test_a_row_is_closed_although_the_run_that_did_its_work_has_a_row_of_its_own(engine: Engine) -> None:
    row, other = rows.enqueue(engine, "selfcheck", {}), rows.enqueue(engine, "selfcheck", {})
    assert rows.finish(engine, row.id, Status.FAILED, run_id=other.run_id)
    assert rows.get(engine, row.id).run_id == row.run_id
