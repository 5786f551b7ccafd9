"""Arrivals, executions, sweep and recovery on the real databases, without a runner: what each step stores."""

import itertools
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import Engine, event, func, insert, literal, select, text, update

from platform_defs.arrivals import sweep as arrival_sweep
from platform_defs.arrivals.errors import AlreadyRunning, ModelFailed, TakenOver
from platform_defs.arrivals.executions import lifecycle, recovery, task_log
from platform_defs.arrivals.executions.task_log import TaskStatus, Trigger
from platform_defs.arrivals.intake import Arrival, ArrivalOutcome, record_arrival
from platform_defs.arrivals.matching import batch_sql, dashed_sql, rendered_name_sql
from platform_defs.arrivals.op_time import batch_of, render_table_name, spellings
from platform_defs.arrivals.standings import standings_of_dependents
from platform_defs.store.engine import read, transact
from platform_defs.store.tables.arrivals import metrics_etl_log, metrics_model_running
from platform_defs.store.tables.work import work as work_table
from platform_defs.work import leases, rows
from tests.arrivals.world import add_model, add_models, logged_tasks, silent, work_of, write_arrival
from tests.waiting import PATIENCE_S

OP = "20251219"
DASHED = "2025-12-19"
LOOKBACK = timedelta(days=7)


def report(engine: Engine, table: str, op_time: str = OP) -> ArrivalOutcome:
    return record_arrival(engine, Arrival(table, op_time))


def begin(engine: Engine, model_id: str = "M", op_time: str = OP) -> lifecycle.Execution:
    task = logged_tasks(engine, model_id, op_time)[-1]
    return lifecycle.start_queued_execution(engine, (model_id, op_time), task.work_id, task.run_id, datetime.now(UTC))


def succeed(engine: Engine, begun: lifecycle.Execution) -> int | None:
    return lifecycle.finish_execution(engine, begun, TaskStatus.SUCCESS, silent, compute_count=2, storage_count=3)


def statuses(engine: Engine, model_id: str = "M") -> list[tuple[str, str]]:
    return [(task.status, task.trigger_code) for task in logged_tasks(engine, model_id, OP)]


def sweep(engine: Engine) -> dict[tuple[str, str], int]:
    return arrival_sweep.sweep_arrivals(engine, LOOKBACK, datetime.now(UTC))


def test_the_first_arrival_is_inserted_and_the_next_one_moves_its_time(engine: Engine) -> None:
    report(engine, "T")
    first = _arrivals(engine)
    report(engine, "T")
    second = _arrivals(engine)
    assert list(first) == list(second) == [("T", OP)]
    assert second["T", OP] > first["T", OP]


def test_names_are_compared_exactly(engine: Engine) -> None:
    add_model(engine, "M", ["T"])
    assert not report(engine, "t").depended_on
    assert not report(engine, "T2").depended_on
    assert report(engine, "T").queued


def test_a_model_runs_once_all_its_tables_arrived_and_only_for_that_batch(engine: Engine) -> None:
    add_model(engine, "M", ["A", "B"])
    assert report(engine, "A").waiting == ["M"]
    assert report(engine, "B", "20251220").waiting == ["M"]
    assert list(report(engine, "B").queued) == ["M"]


def test_an_arrival_by_the_rendered_name_meets_the_placeholder(engine: Engine) -> None:
    add_model(engine, "M", ["A_yyyymmdd", "B_yyyymm"])
    assert report(engine, f"A_{OP}").waiting == ["M"]
    assert list(report(engine, "B_202512").queued) == ["M"]


def test_an_arrival_by_the_name_as_the_model_spells_it_meets_the_placeholder_too(engine: Engine) -> None:
    add_model(engine, "M", ["A_yyyymmdd"])
    assert list(report(engine, "A_yyyymmdd").queued) == ["M"]


def test_two_tables_that_arrive_in_the_same_moment_begin_their_model(engine: Engine) -> None:
    """Concurrent transactions do not see each other's arrival. No sensor runs here that would queue the model later."""
    add_model(engine, "M", ["A", "B"])
    batches = [f"202512{day:02}" for day in range(1, 21)]
    with ThreadPoolExecutor(2) as pool:
        for op_time in batches:
            list(pool.map(lambda table, op_time=op_time: report(engine, table, op_time), "AB"))
    assert [len(logged_tasks(engine, "M", op_time)) for op_time in batches] == [1] * len(batches)


def test_what_an_arrival_begins_is_there_with_its_row_of_work(engine: Engine) -> None:
    add_model(engine, "M", ["A"])
    (task_id,) = report(engine, "A").queued.values()
    (task,) = logged_tasks(engine, "M", OP)
    assert (task.id, task.status, task.trigger_code) == (task_id, "RUNNING", "ARRIVAL")
    row = work_of(engine, task)
    assert (row.kind, row.status, row.payload) == (
        "model_run",
        "QUEUED",
        {"model_id": "M", "op_time": OP, "trigger": "arrival of A"},
    )


def test_an_arrival_before_the_run_has_begun_is_read_by_it(engine: Engine) -> None:
    add_model(engine, "M", ["A"])
    report(engine, "A")
    assert report(engine, "A").busy == ["M"]
    assert succeed(engine, begin(engine)) is None
    assert statuses(engine) == [("SUCCESS", "ARRIVAL")]


def test_an_arrival_during_the_run_makes_the_model_run_again_once(engine: Engine) -> None:
    add_model(engine, "M", ["A", "B"])
    report(engine, "A")
    report(engine, "B")
    begun = begin(engine)
    assert report(engine, "A").busy == ["M"]
    assert report(engine, "B").busy == ["M"]
    assert succeed(engine, begun) is not None
    assert succeed(engine, begin(engine)) is None
    assert statuses(engine) == [("SUCCESS", "ARRIVAL"), ("SUCCESS", "AGAIN")]


def test_a_failed_run_is_made_again_by_the_next_arrival_and_not_before(engine: Engine) -> None:
    add_model(engine, "M", ["A"])
    report(engine, "A")
    assert lifecycle.finish_execution(engine, begin(engine), TaskStatus.FAILED, silent, message="x" * 3000) is None
    assert sweep(engine) == {}
    (task,) = logged_tasks(engine, "M", OP)
    assert (task.status, len(task.message)) == ("FAILED", 2000)
    assert report(engine, "A").queued


def test_the_versions_that_a_run_read_are_in_the_task_log(engine: Engine) -> None:
    add_model(engine, "M", ["A"])
    report(engine, "A")
    begin(engine)
    (task,) = logged_tasks(engine, "M", OP)
    assert task.versions == {"A": _arrivals(engine)["A", OP].isoformat()}


def test_an_operator_runs_it_without_all_tables_but_never_beside_a_running_one(engine: Engine) -> None:
    add_model(engine, "M", ["A", "B"])
    report(engine, "A")
    begun = lifecycle.start_operator_execution(engine, "M", OP, "run-1", datetime.now(UTC))
    with pytest.raises(AlreadyRunning, match="任务正在执行中"):
        lifecycle.start_operator_execution(engine, "M", OP, "run-2", datetime.now(UTC))
    (task,) = logged_tasks(engine, "M", OP)
    assert (task.trigger_code, task.missing_tables, task.run_id) == ("OPERATOR", ["B"], "run-1")
    # The missing table arrives during the execution.
    assert report(engine, "B").busy == ["M"]
    assert succeed(engine, begun) is not None


def test_an_arrival_that_an_etl_job_wrote_itself_is_found_once(engine: Engine) -> None:
    add_model(engine, "M", ["A", "B_yyyymmdd"])
    add_model(engine, "N", ["A"], published=False)
    now = datetime.now(UTC).replace(microsecond=0)
    write_arrival(engine, "A", OP, now - timedelta(hours=8))
    assert sweep(engine) == {}
    write_arrival(engine, f"B_{OP}", OP, now + timedelta(hours=2))
    assert list(sweep(engine)) == [("M", OP)]
    assert sweep(engine) == {}
    assert succeed(engine, begin(engine)) is None
    assert sweep(engine) == {}
    write_arrival(engine, "A", OP, now)
    assert list(sweep(engine)) == [("M", OP)]
    assert statuses(engine) == [("SUCCESS", "SENSOR"), ("RUNNING", "SENSOR")]


@pytest.mark.parametrize(
    ("written", "op_time"),
    [("2025-12", "202512"), (DASHED, OP), ("2025-12-19-08", "2025121908"), ("2025-12-19-08-30-00", "20251219083000")],
)
def test_a_request_sees_the_table_whose_batch_an_etl_job_wrote_with_dashes(
    engine: Engine, written: str, op_time: str
) -> None:
    add_model(engine, "M", ["A", "B", "C_yyyymm"])
    write_arrival(engine, "A", written)
    assert report(engine, "B", op_time).waiting == ["M"]
    write_arrival(engine, "C_202512", written)
    assert list(report(engine, "B", op_time).queued) == ["M"]
    assert sweep(engine) == {}
    assert succeed(engine, begin(engine, op_time=op_time)) is None
    assert sweep(engine) == {}


def test_a_batch_that_arrived_half_with_dashes_is_swept_once_and_every_change_of_it_makes_it_run_again(
    engine: Engine,
) -> None:
    add_model(engine, "M", ["A", "B_yyyymmdd"])
    now = datetime.now(UTC).replace(microsecond=0)
    report(engine, "A")
    write_arrival(engine, f"B_{OP}", DASHED, now)
    assert list(sweep(engine)) == [("M", OP)]
    # The same table arrives once more, with dashes in the opTime and by a clock that is behind.
    begun = begin(engine)
    write_arrival(engine, "A", DASHED, now - timedelta(hours=8))
    assert sweep(engine) == {}
    assert succeed(engine, begun) is not None
    assert succeed(engine, begin(engine)) is None
    assert sweep(engine) == {}
    for changed, at in ((DASHED, now - timedelta(hours=7)), (OP, now + timedelta(hours=1))):
        write_arrival(engine, "A", changed, at)
        assert list(sweep(engine)) == [("M", OP)]
        assert succeed(engine, begin(engine)) is None
        assert sweep(engine) == {}
    assert [trigger for _, trigger in statuses(engine)] == ["SENSOR", "AGAIN", "SENSOR", "SENSOR"]
    assert set(_arrivals(engine)) == {("A", OP), ("A", DASHED), (f"B_{OP}", DASHED)}
    versions = {table if op == OP else f"{table} {op}": at.isoformat() for (table, op), at in _arrivals(engine).items()}
    assert logged_tasks(engine, "M", OP)[-1].versions == versions


@pytest.mark.parametrize("written", ["2025-Q4", "2025-12-19 08", "2025-1219", "2025--12", "-2025-12"])
def test_any_other_text_is_a_batch_of_its_own(engine: Engine, written: str) -> None:
    add_model(engine, "M", ["A", "B"])
    write_arrival(engine, "A", written)
    write_arrival(engine, "B", written.replace("-", ""))
    assert sweep(engine) == {}
    write_arrival(engine, "B", written)
    assert list(sweep(engine)) == [("M", written)]
    assert succeed(engine, begin(engine, op_time=written)) is None
    assert sweep(engine) == {}


def test_batches_that_changed_before_the_lookback_are_left_alone(engine: Engine) -> None:
    add_model(engine, "M", ["A"])
    write_arrival(engine, "A", OP, datetime.now(UTC) - LOOKBACK - timedelta(hours=1))
    assert sweep(engine) == {}


def test_a_run_whose_process_died_is_closed_and_made_again_at_most_twice(engine: Engine) -> None:
    add_model(engine, "M", ["A"])
    report(engine, "A")
    for _ in range(3):
        begin(engine)
        _die(engine, "process 7 was killed")
        recovery.settle_dead_executions(engine, datetime.now(UTC))
    assert statuses(engine) == [("FAILED", "ARRIVAL"), ("FAILED", "RECOVERY"), ("FAILED", "RECOVERY")]
    assert {task.message for task in logged_tasks(engine, "M", OP)} == {"death: process 7 was killed"}
    assert sweep(engine) == {}
    assert report(engine, "A").queued


def test_restarts_of_the_platform_do_not_count_against_a_model(engine: Engine) -> None:
    add_model(engine, "M", ["A"])
    report(engine, "A")
    for _ in range(5):
        begin(engine)
        rows.finish(
            engine, logged_tasks(engine, "M", OP)[-1].work_id, rows.Status.CANCELED, error="the runner was stopped"
        )
        assert recovery.settle_dead_executions(engine, datetime.now(UTC)).queued
    assert succeed(engine, begin(engine)) is None
    assert statuses(engine)[-1] == ("SUCCESS", "RECOVERY")


def test_a_second_run_of_the_same_row_is_refused(engine: Engine) -> None:
    add_model(engine, "M", ["A"])
    report(engine, "A")
    first = begin(engine)
    with pytest.raises(AlreadyRunning):
        lifecycle.start_queued_execution(
            engine, ("M", OP), logged_tasks(engine, "M", OP)[0].work_id, "another-run", datetime.now(UTC)
        )
    assert succeed(engine, first) is None


def test_whoever_waits_for_a_run_that_died_hears_of_the_one_that_makes_it_again(engine: Engine) -> None:
    add_model(engine, "M", ["A"])
    (task_id,) = report(engine, "A").queued.values()
    begin(engine)
    _die(engine, "killed")
    begun = recovery.settle_dead_executions(engine, datetime.now(UTC)).queued
    failed = task_log.ended_tasks(engine, [task_id])
    assert task_log.recovery_tasks(engine, list(failed.values())) == {task_id: begun["M", OP]}
    lifecycle.finish_execution(engine, begin(engine), TaskStatus.FAILED, silent, message="its own fault")
    report(engine, "A")
    failed = task_log.ended_tasks(engine, [begun["M", OP]])
    assert task_log.recovery_tasks(engine, list(failed.values())) == {}


def test_thousands_of_batches_of_one_model_are_begun_at_once(engine: Engine) -> None:
    add_model(engine, "M", ["A"])
    rows = [{"table_name": "A", "op_time": f"2025{n:08}", "arrival_time": datetime.now(UTC)} for n in range(1100)]
    transact(engine, lambda connection: connection.execute(insert(metrics_etl_log), rows))
    assert len(sweep(engine)) == len(rows)
    assert sweep(engine) == {}


@pytest.mark.parametrize("engine", ["sqlite"], indirect=True)
def test_a_time_that_cannot_be_read_harms_nobody_else_and_is_mended_by_the_next_arrival(engine: Engine) -> None:
    add_model(engine, "M", ["A"])
    add_model(engine, "N", ["B"])
    write_arrival(engine, "A", OP)
    write_arrival(engine, "B", OP)
    garble = text("UPDATE metrics_etl_log SET arrival_time = :at WHERE table_name = 'A'")
    for unreadable in ("2026/11/16 12:00", "soon"):
        transact(engine, lambda c, at=unreadable: c.execute(garble, {"at": at}))
        arrival_sweep.sweep_arrivals(engine, timedelta(days=3650), datetime.now(UTC))
    assert statuses(engine) == []
    assert len(statuses(engine, "N")) == 1
    assert report(engine, "A").queued


@pytest.mark.parametrize("op_time", ["2025", "202512", "20251219", "2025121908"])
def test_the_database_renders_names_as_we_do(engine: Engine, op_time: str) -> None:
    names = ["T", "T_yyyymmdd", "T_yyyymm", "yyyy_T", "yyyymmdd_yyyymm_yyyy", "yyyymmyyyymmdd", "yyyydd"]
    for name in names:
        query = select(rendered_name_sql(literal(name), literal(op_time)))
        assert read(engine, lambda c, query=query: c.execute(query).scalar_one()) == render_table_name(name, op_time)


def test_the_database_spells_batches_as_we_do(engine: Engine) -> None:
    digits = ["2025", "202512", "20251219", "2025121908", "202512190830", "20251219083000"]
    dashed = [spellings(op_time)[-1] for op_time in digits]
    others = ["2025-Q4", "2025-1", "2025-1219", "2025-12-19 08", "20251", "2025-12-19-08-30-00-00"]
    for op_time in [*digits, *dashed, *others]:
        query = select(batch_sql(literal(op_time)), dashed_sql(batch_sql(literal(op_time))))
        batch, spelled = read(engine, lambda c, query=query: c.execute(query).one())
        assert batch == batch_of(op_time)
        assert op_time in others or spelled == spellings(batch)[-1]


def test_a_run_that_an_operator_canceled_is_not_made_again(engine: Engine) -> None:
    add_model(engine, "M", ["A"])
    report(engine, "A")
    begin(engine)
    (task,) = logged_tasks(engine, "M", OP)
    rows.request_cancel(engine, task.run_id)
    rows.finish(engine, task.work_id, rows.Status.CANCELED, error="canceled")
    assert recovery.settle_dead_executions(engine, datetime.now(UTC)).queued == {}
    assert sweep(engine) == {}


def test_one_that_was_taken_for_dead_cannot_close_what_came_after_it(engine: Engine) -> None:
    add_model(engine, "M", ["A"])
    report(engine, "A")
    zombie = begin(engine)
    _die(engine, "its lease ran out")
    recovery.settle_dead_executions(engine, datetime.now(UTC))
    for write in (lambda: succeed(engine, zombie), lambda: transact(engine, lambda c: lifecycle.fence(c, zombie))):
        with pytest.raises(TakenOver):
            write()
    assert statuses(engine) == [("FAILED", "ARRIVAL"), ("RUNNING", "RECOVERY")]
    with pytest.raises(ModelFailed, match="closed meanwhile"):
        lifecycle.start_queued_execution(
            engine, ("M", OP), logged_tasks(engine, "M", OP)[0].work_id, "r", datetime.now(UTC)
        )


def test_runs_without_a_row_of_work_are_left_to_whoever_knows_them(engine: Engine) -> None:
    add_model(engine, "M", ["A"])
    report_only = lifecycle.start_operator_execution(engine, "M", OP, "run-1", datetime.now(UTC))
    unknown = read(engine, recovery.executions_without_work)
    assert unknown["run-1"].task_id == report_only.task_id
    assert recovery.settle_dead_executions(engine, datetime.now(UTC)).closed == []
    assert recovery.settle_dead_executions(engine, datetime.now(UTC), [unknown["run-1"]]).closed == [
        report_only.task_id
    ]
    assert statuses(engine) == [("FAILED", "OPERATOR")]


def test_concurrent_arrivals_never_begin_two_executions_and_none_is_lost(engine: Engine) -> None:
    """With arrivals, executions and recoveries at the same time, the last execution has read the last arrivals."""
    add_model(engine, "M", ["A", "B"])
    done = threading.Event()

    def drive() -> None:
        while not done.is_set() or _running(engine):
            for row in leases.claim(engine, "driver", 1):
                begun = lifecycle.start_queued_execution(engine, ("M", OP), row.id, row.run_id, datetime.now(UTC))
                succeed(engine, begun)
                rows.finish(engine, row.id, rows.Status.SUCCEEDED)

    driver = threading.Thread(target=drive)
    driver.start()
    try:
        with ThreadPoolExecutor(8) as pool:
            outcomes = list(pool.map(lambda number: report(engine, "AB"[number % 2]), range(40)))
    finally:
        done.set()
        driver.join(PATIENCE_S)
    log = logged_tasks(engine, "M", OP)
    assert {task.status for task in log} == {"SUCCESS"}
    assert log[-1].versions == {table: at.isoformat() for (table, _), at in _arrivals(engine).items()}
    assert sum(len(outcome.queued) for outcome in outcomes) + sum(
        task.trigger_code == Trigger.AGAIN for task in log
    ) == len(log)
    assert all(before.end_time <= after.start_time for before, after in itertools.pairwise(log))


def test_an_arrival_in_the_last_moment_of_a_run_waits_for_it_and_begins_the_next(engine: Engine) -> None:
    add_model(engine, "M", ["A"])
    report(engine, "A")
    begun = begin(engine)
    outcomes: list[ArrivalOutcome] = []
    latecomer = threading.Thread(target=lambda: outcomes.append(report(engine, "A")))

    def before_the_commit(connection: object) -> None:
        if not latecomer.ident:
            latecomer.start()
            latecomer.join(timeout=0.5)  # it must not get through: the run has looked for arrivals already

    event.listen(engine, "commit", before_the_commit)
    try:
        assert succeed(engine, begun) is None
    finally:
        event.remove(engine, "commit", before_the_commit)
    latecomer.join()
    assert list(outcomes[0].queued) == ["M"]


def test_judging_an_arrival_takes_three_queries_however_many_models_depend_on_it(engine: Engine) -> None:
    add_models(engine, {f"M{number}": ["A", f"B{number}"] for number in range(30)}, published=True)
    queries: list[str] = []

    def note(connection: object, cursor: object, statement: str, *_: object) -> None:
        if statement.startswith("SELECT"):
            queries.append(statement)

    event.listen(engine, "before_cursor_execute", note)
    try:
        assert len(read(engine, lambda connection: standings_of_dependents(connection, "A", OP))) == 30
    finally:
        event.remove(engine, "before_cursor_execute", note)
    assert len(queries) == 3


def _arrivals(engine: Engine) -> dict[tuple[str, str], datetime]:
    log = metrics_etl_log.c
    rows = read(engine, lambda c: c.execute(select(log.table_name, log.op_time, log.arrival_time)).all())
    return {(table, op_time): at for table, op_time, at in rows}


def _running(engine: Engine) -> int:
    return read(engine, lambda c: c.execute(select(func.count()).select_from(metrics_model_running)).scalar_one())


def _die(engine: Engine, reason: str) -> None:
    last = logged_tasks(engine, "M", OP)[-1]
    values = {"status": "FAILED", "error": reason}
    transact(engine, lambda c: c.execute(update(work_table).where(work_table.c.id == last.work_id).values(values)))
