"""Starts runs of chains by their triggers: at the time of a cron, or because a table has arrived. Each exactly once.

The id of the run is computed from what triggers it, so that a second look at the same time or arrival finds the run
that the first one started.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid5

from sqlalchemy import Connection, Engine, Row, select

from platform_defs.arrivals.op_time import batch_of, satisfying_names
from platform_defs.chains.definitions import Chain, find_chain
from platform_defs.chains.errors import ChainsError, Conflict
from platform_defs.chains.runs.starting import start_chain
from platform_defs.chains.triggers import OP_TIME, TABLE_TRIGGER, CronTrigger, TableTrigger, Trigger, parse_triggers
from platform_defs.store.chunks import chunks
from platform_defs.store.engine import read
from platform_defs.store.tables.arrivals import metrics_etl_log
from platform_defs.store.tables.chains import job_audit, job_run

ACTOR = "trigger"
# the parameter of a run that a cron started: the time that it was due at
SCHEDULED_AT = "scheduledAt"
_NAMESPACE = UUID("6f6a1d7c-2f6e-4bb4-9d8a-6b0d5f4f7a11")
_PLACEHOLDERS = ("yyyymmdd", "yyyymm", "yyyy")
_CHANGES = ("chain.create", "chain.update", "chain.enable", "chain.disable")


@dataclass(frozen=True)
class Triggered:
    """The runs that were started now, and why others were not."""

    run_ids: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()


@dataclass(frozen=True)
class ActiveSince:
    """Since when a chain has been enabled with this trigger, as far as the audit was read."""

    audit_id: int = 0
    since: datetime | None = None

    def as_json(self) -> dict[str, Any]:
        return {"auditId": self.audit_id, "since": None if self.since is None else self.since.isoformat()}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> "ActiveSince":
        since = value.get("since")
        return cls(int(value.get("auditId", 0)), None if since is None else datetime.fromisoformat(since))


def start_scheduled(engine: Engine, chain_id: str, trigger: CronTrigger, at: datetime) -> str | None:
    """The run of the chain for this time of its cron; None if the chain is disabled or has this trigger no longer."""
    at = at.astimezone(UTC)
    if not _is_active(read(engine, lambda connection: find_chain(connection, chain_id)), trigger):
        return None
    run_id = _run_id(chain_id, "cron", trigger.cron, trigger.zone, at.isoformat())
    params = {SCHEDULED_AT: at.isoformat().replace("+00:00", "Z"), **trigger.params}
    text = f"schedule {trigger.cron} {trigger.zone}"
    return start_chain(engine, chain_id, params=params, actor=ACTOR, trigger=text, run_id=run_id).run_id


def start_arrived(
    engine: Engine, chain_id: str, trigger: TableTrigger, known: ActiveSince, *, lookback: timedelta, now: datetime
) -> tuple[Triggered, ActiveSince]:
    """Starts a run for each arrival of the table that has none yet, since the chain is enabled with this trigger.

    An arrival that cannot start a run keeps no other from starting one.
    """

    def look(connection: Connection) -> tuple[ActiveSince, list[Row[Any]]]:
        chain = find_chain(connection, chain_id)
        active = active_since(connection, chain, trigger, known)
        if active.since is not None and active.since > now:
            # The clock was ahead when the chain was enabled: what arrives until that time must start runs too.
            active = replace(active, since=now)
        if active.since is None or not _is_active(chain, trigger):
            return active, []
        return active, _new_arrivals(connection, chain_id, trigger, max(active.since, now - lookback))

    active, arrivals = read(engine, look)
    started, problems = [], []
    for arrival in arrivals:
        batch = batch_of(arrival.op_time)
        try:
            run = start_chain(
                engine,
                chain_id,
                params={**trigger.params, OP_TIME: batch},
                actor=ACTOR,
                trigger=f"{TABLE_TRIGGER}{arrival.table_name} {batch}"[:255],
                run_id=_arrival_run_id(chain_id, trigger, arrival),
            )
        except Conflict as error:
            if error.code == "CHAIN_DISABLED":
                break
            problems.append(f"{arrival.table_name} {batch}: {error}")
        except ChainsError as error:
            problems.append(f"{arrival.table_name} {batch}: {error}")
        else:
            started.append(run.run_id)
    return Triggered(tuple(started), tuple(problems)), active


def active_since(connection: Connection, chain: Chain, trigger: Trigger, known: ActiveSince) -> ActiveSince:
    """Reads the changes of the chain that come after the known ones, oldest first.

    The audit is read instead of the chain's own times: another description must not hide the arrivals before it, and
    arrivals while the chain was disabled must not start runs afterwards. Retention deletes the audit of old changes,
    and other programs write chains without one. The oldest change that is left then says how the chain was before it.
    """
    table = job_audit.c
    query = (
        select(table.id, table.before_json, table.after_json, table.created_at)
        .where(table.object_id == chain.chain_id, table.id > known.audit_id, table.action.in_(_CHANGES))
        .order_by(table.id)
    )
    changes = connection.execute(query).all()
    last, since = known.audit_id, known.since
    if not known.audit_id:
        was_active = _was_active(changes[0].before_json, trigger) if changes else _is_active(chain, trigger)
        since = chain.created_at if was_active else None
    for change in changes:
        since = (since or change.created_at) if _was_active(change.after_json, trigger) else None
        last = change.id
    return ActiveSince(last, since)


def _is_active(chain: Chain, trigger: Trigger) -> bool:
    return chain.enabled and trigger in parse_triggers(chain.dag_json)


def _was_active(audited: Mapping[str, Any] | None, trigger: Trigger) -> bool:
    """The same for a chain as the audit has it; None is a chain that did not exist."""
    if audited is None or not audited.get("enabled"):
        return False
    return trigger in parse_triggers(audited.get("dag_json") or {})


def _new_arrivals(connection: Connection, chain_id: str, trigger: TableTrigger, since: datetime) -> list[Row[Any]]:
    """Arrivals of the table that no run was started for, oldest first. One that comes again is another arrival."""
    log = metrics_etl_log.c
    names = log.table_name == trigger.table
    if pattern := _like(trigger.table):
        names |= log.table_name.like(pattern, escape="\\")
    query = (
        select(log.table_name, log.op_time, log.arrival_time)
        .where(names, log.arrival_time >= since)
        .order_by(log.arrival_time, log.table_name, log.op_time)
    )
    found: dict[str, Any] = {
        _arrival_run_id(chain_id, trigger, row): row
        for row in connection.execute(query)
        # a text that an ETL job wrote there may be no time
        if row.arrival_time is not None and row.table_name in satisfying_names(trigger.table, batch_of(row.op_time))
    }
    for some in chunks(list(found), 500):
        for started in connection.execute(select(job_run.c.run_id).where(job_run.c.run_id.in_(some))).scalars():
            del found[started]
    return list(found.values())


def _like(table: str) -> str | None:
    """A pattern for the names that a table with a date placeholder may arrive under; None if it has none."""
    escaped = table.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
    pattern = escaped
    for placeholder in _PLACEHOLDERS:
        pattern = pattern.replace(placeholder, "%")
    return None if pattern == escaped else pattern


def _arrival_run_id(chain_id: str, trigger: TableTrigger, arrival: Any) -> str:
    return _run_id(
        chain_id, "table", trigger.table, arrival.table_name, arrival.op_time, arrival.arrival_time.isoformat()
    )


def _run_id(*parts: str) -> str:
    return str(uuid5(_NAMESPACE, "\0".join(parts)))
