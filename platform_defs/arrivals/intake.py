"""An arrival: recorded, and everything that it makes due begun, in one transaction."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Connection, Engine, select

from platform_defs.arrivals.errors import InvalidArrival
from platform_defs.arrivals.op_time import normalise_op_time
from platform_defs.arrivals.readiness import Standing, Verdict, judge, next_version
from platform_defs.arrivals.standings import load_standings, standings_of_dependents
from platform_defs.arrivals.task_log import Task, Trigger, begin_due, decide, last_success, trigger
from platform_defs.store.engine import is_serial, read
from platform_defs.store.tables.arrivals import metrics_etl_log
from platform_defs.store.upsert import upsert

TABLE_LENGTH = 255


@dataclass(frozen=True)
class Arrival:
    table: str
    op_time: str


@dataclass(frozen=True)
class ArrivalOutcome:
    """What an arrival meant for each model that depends on the table."""

    depended_on: bool
    # model id -> the task that was begun
    begun: dict[str, int] = field(default_factory=dict)
    # being executed already; a re-run will cover this arrival
    busy: list[str] = field(default_factory=list)
    # nothing that its last execution has not read
    current: list[Task] = field(default_factory=list)
    waiting: list[str] = field(default_factory=list)
    unpublished: list[str] = field(default_factory=list)


def parse_arrival(body: Any) -> Arrival:
    """The request's body; a refusal names the field."""
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
    def record(connection: Connection) -> ArrivalOutcome:
        now = datetime.now(UTC)
        _write_arrival(connection, arrival, now)
        found = standings_of_dependents(connection, arrival.table, arrival.op_time)
        return _begin_due_models(connection, found, now) if found else ArrivalOutcome(depended_on=False)

    outcome = decide(engine, record)
    if outcome.waiting and not is_serial(engine):
        _check_waiting_again(engine, outcome, arrival.op_time)
    return outcome


def _check_waiting_again(engine: Engine, outcome: ArrivalOutcome, op_time: str) -> None:
    """Two tables that arrive at the same moment do not see each other before both are committed: the later one does."""
    batches = [(model_id, op_time) for model_id in outcome.waiting]
    found = read(engine, lambda connection: load_standings(connection, batches))
    ready = [(one.model_id, one.op_time) for one in found if judge(one) not in (Verdict.WAITING, Verdict.UNPUBLISHED)]
    if ready:
        begun = begin_due(engine, ready, Trigger.ARRIVAL, datetime.now(UTC))
        outcome.begun.update({model_id: task_id for (model_id, _), task_id in begun.items()})
        outcome.busy.extend(batch[0] for batch in ready if batch not in begun)
        outcome.waiting[:] = [model_id for model_id in outcome.waiting if (model_id, op_time) not in ready]


def _begin_due_models(connection: Connection, found: Sequence[Standing], now: datetime) -> ArrivalOutcome:
    outcome = ArrivalOutcome(depended_on=True)
    due = []
    for standing in found:
        batch = (standing.model_id, standing.op_time)
        match judge(standing):
            case Verdict.UNPUBLISHED:
                outcome.unpublished.append(standing.model_id)
            case Verdict.WAITING:
                outcome.waiting.append(standing.model_id)
            case Verdict.CURRENT if (task := last_success(connection, batch)) is not None:
                outcome.current.append(task)
            case _:
                due.append(batch)
    if due:
        begun = trigger(connection, due, Trigger.ARRIVAL, now)
        outcome.begun.update({model_id: task_id for (model_id, _), task_id in begun.items()})
        outcome.busy.extend(batch[0] for batch in due if batch not in begun)
    return outcome


def _write_arrival(connection: Connection, arrival: Arrival, now: datetime) -> None:
    log = metrics_etl_log.c
    # compared by the database: what an ETL job wrote there need not be a time that we can read
    query = select(log.arrival_time == now).where(log.table_name == arrival.table, log.op_time == arrival.op_time)
    same = connection.execute(query.with_for_update()).scalar_one_or_none()
    row = {"table_name": arrival.table, "op_time": arrival.op_time, "arrival_time": next_version(now, taken=bool(same))}
    upsert(connection, metrics_etl_log, [row], key=["table_name", "op_time"])


def _text_field(body: dict[Any, Any], name: str) -> str:
    if name not in body:
        raise InvalidArrival(name, "expected a text; it is missing")
    value = body[name]
    if not isinstance(value, str):
        raise InvalidArrival(name, f"expected a text, got {type(value).__name__}")
    return value
