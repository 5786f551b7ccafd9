"""The intake of a reported arrival: it is recorded, and every model that it makes due is queued, in one transaction."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Connection, Engine, select

from platform_defs.arrivals.batches import Batch
from platform_defs.arrivals.errors import InvalidArrival
from platform_defs.arrivals.executions.lifecycle import queue_due_batches, queue_executions
from platform_defs.arrivals.executions.running_batches import transact_until_uncontended
from platform_defs.arrivals.executions.task_log import Task, Trigger, last_success
from platform_defs.arrivals.executions.trigger_texts import trigger_text
from platform_defs.arrivals.op_time import normalise_op_time
from platform_defs.arrivals.readiness import Standing, Verdict, judge, next_version
from platform_defs.arrivals.standings import load_standings, standings_of_dependents
from platform_defs.store.engine import has_one_writer, read
from platform_defs.store.repeating import once
from platform_defs.store.tables.arrivals import metrics_etl_log
from platform_defs.store.upsert import upsert

TABLE_LENGTH = 255


@dataclass(frozen=True)
class Arrival:
    """A source table that is complete for a batch."""

    table: str
    op_time: str


@dataclass(frozen=True)
class ArrivalOutcome:
    """What an arrival led to, for each model that depends on the table."""

    depended_on: bool
    # model id -> the new task
    queued: dict[str, int] = field(default_factory=dict)
    # models whose batch was being executed already; it is executed again afterwards, because of this arrival
    busy: list[str] = field(default_factory=list)
    # the last successful tasks of models that have read all arrivals in their present versions
    current: list[Task] = field(default_factory=list)
    # models that wait for another table
    waiting: list[str] = field(default_factory=list)
    unpublished: list[str] = field(default_factory=list)

    def add_queued(self, due: Sequence[Batch], tasks: dict[Batch, int]) -> None:
        """Notes which of the due batches have a task that is about to start; the others were at work already."""
        self.queued.update({model_id: task_id for (model_id, _), task_id in tasks.items()})
        self.busy.extend(batch[0] for batch in due if batch not in tasks)


def parse_arrival(body: Any) -> Arrival:
    """Reads the body of a request; raises InvalidArrival with the name of the wrong field."""
    if not isinstance(body, dict):
        raise InvalidArrival("body", "expected a JSON object with srcTableName and opTime")
    table = _text_field(body, "srcTableName").strip()
    if not table:
        raise InvalidArrival("srcTableName", "expected the name of a table, got an empty text")
    if len(table) > TABLE_LENGTH:
        raise InvalidArrival("srcTableName", f"expected at most {TABLE_LENGTH} characters, got {len(table)}")
    if any(not letter.isprintable() for letter in table):
        raise InvalidArrival("srcTableName", "expected a name without control characters")
    return Arrival(table, normalise_op_time(_text_field(body, "opTime")))


def record_arrival(engine: Engine, arrival: Arrival) -> ArrivalOutcome:
    """Records the arrival and queues the models that it makes due."""

    def record(connection: Connection) -> tuple[ArrivalOutcome, datetime]:
        now = datetime.now(UTC)
        version = _write_arrival(connection, arrival, now)
        standings = standings_of_dependents(connection, arrival.table, arrival.op_time)
        if not standings:
            return ArrivalOutcome(depended_on=False), version
        return _queue_due_models(connection, standings, arrival.table, now), version

    def is_recorded(connection: Connection, recorded: tuple[ArrivalOutcome, datetime]) -> bool:
        log = metrics_etl_log.c
        same = (log.table_name == arrival.table) & (log.op_time == arrival.op_time) & (log.arrival_time == recorded[1])
        return connection.execute(select(log.id).where(same)).first() is not None

    outcome, _ = transact_until_uncontended(engine, once(record, is_recorded))
    if outcome.waiting and not has_one_writer(engine):
        _judge_waiting_again(engine, outcome, arrival.op_time)
    return outcome


def _queue_due_models(
    connection: Connection, standings: Sequence[Standing], table: str, now: datetime
) -> ArrivalOutcome:
    outcome = ArrivalOutcome(depended_on=True)
    due = []
    for standing in standings:
        batch = (standing.model_id, standing.op_time)
        match judge(standing):
            case Verdict.UNPUBLISHED:
                outcome.unpublished.append(standing.model_id)
            case Verdict.WAITING:
                outcome.waiting.append(standing.model_id)
            case Verdict.CURRENT if (task := last_success(connection, batch)) is not None:
                outcome.current.append(task)
            case _:
                due.append(standing)
    if due:
        texts = {
            (standing.model_id, standing.op_time): trigger_text(Trigger.ARRIVAL, standing, table) for standing in due
        }
        queued = queue_executions(connection, due, Trigger.ARRIVAL, now, triggers=texts)
        outcome.add_queued(list(texts), queued)
    return outcome


def _judge_waiting_again(engine: Engine, outcome: ArrivalOutcome, op_time: str) -> None:
    """Queues waiting models whose last table was reported at the same moment.

    Two concurrent transactions do not see each other's arrival, so both find the model waiting. After both have
    committed, at least the later one sees both arrivals here.
    """
    batches = [(model_id, op_time) for model_id in outcome.waiting]
    standings = read(engine, lambda connection: load_standings(connection, batches))
    ready = [
        (standing.model_id, standing.op_time)
        for standing in standings
        if judge(standing) not in (Verdict.WAITING, Verdict.UNPUBLISHED)
    ]
    if ready:
        outcome.add_queued(ready, queue_due_batches(engine, ready, Trigger.ARRIVAL, datetime.now(UTC)))
        outcome.waiting[:] = [model_id for model_id in outcome.waiting if (model_id, op_time) not in ready]


def _write_arrival(connection: Connection, arrival: Arrival, now: datetime) -> datetime:
    """Returns the version of the arrival."""
    log = metrics_etl_log.c
    # The database compares the times, because an ETL job may have written a text there that is no time.
    query = select(log.arrival_time == now).where(log.table_name == arrival.table, log.op_time == arrival.op_time)
    same = connection.execute(query.with_for_update()).scalar_one_or_none()
    version = next_version(now, taken=bool(same))
    row = {"table_name": arrival.table, "op_time": arrival.op_time, "arrival_time": version}
    upsert(connection, metrics_etl_log, [row], key=["table_name", "op_time"])
    return version


def _text_field(body: dict[Any, Any], name: str) -> str:
    if name not in body:
        raise InvalidArrival(name, "expected a text; it is missing")
    value = body[name]
    if not isinstance(value, str):
        raise InvalidArrival(name, f"expected a text, got {type(value).__name__}")
    return value
