"""The node types `arrival`, which reports that a table is complete, and `wait_for_arrival`, which waits for that."""

from collections.abc import Callable, Collection, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

from pydantic import Field
from sqlalchemy import Connection, Engine, select

from platform_defs.arrivals.errors import InvalidArrival
from platform_defs.arrivals.intake import Arrival, parse_arrival, record_arrival
from platform_defs.arrivals.op_time import satisfying_names, spellings
from platform_defs.chains.nodes.cfg import NodeCfg
from platform_defs.chains.nodes.patience import patiently
from platform_defs.chains.nodes.port import NodeContext, NodeResult, Outcome, Waiting
from platform_defs.chains.runs.waking import waiting_nodes, wake_nodes
from platform_defs.store.chunks import chunks
from platform_defs.store.engine import read
from platform_defs.store.tables.arrivals import metrics_etl_log

ARRIVAL = "arrival"
# The sensor of chains looks every few seconds; this is for a platform whose sensors are off.
LOOK_AGAIN = timedelta(seconds=30)
_NAMES_PER_QUERY = 500


class ArrivalCfg(NodeCfg):
    """Reports that a table is complete for a batch, as POST /api/open/kpi/srcTableComplete does."""

    table: str = Field(description="The name of the table.")
    op_time: str | int = Field(description="The batch, such as 20251219 or 2025-12-19.")


class WaitForArrivalCfg(NodeCfg):
    """Waits until a table is complete for a batch; an arrival before the run began counts too. Needs no process."""

    table: str = Field(description="The name of the table; yyyymmdd, yyyymm and yyyy stand for the batch.")
    op_time: str | int = Field(description="The batch, such as 20251219 or 2025-12-19.")


class ArrivalExecutor:
    name = "arrival"
    cfg_model = ArrivalCfg

    def __init__(self, engine: Engine, wake: Callable[[], object] = lambda: None) -> None:
        self._engine = engine
        self._wake = wake

    def problems(self, cfg: ArrivalCfg) -> Iterator[str]:
        yield from _problems(cfg)

    def execute(self, context: NodeContext, cfg: ArrivalCfg) -> NodeResult:
        arrival = _parsed(cfg)
        saved: dict[str, Any] | None = context.checkpoint
        if saved is not None:
            # reported by an attempt whose process died: a second report would have every model computed again
            return NodeResult(artifact=saved, checkpoint=saved)
        # after a lost answer it is reported again, which is the same as another arrival
        outcome = patiently(context.stop, lambda: record_arrival(self._engine, arrival))
        if outcome.queued:
            self._wake()
        artifact = {
            "table": arrival.table,
            "opTime": arrival.op_time,
            "queuedModels": sorted(outcome.queued),
            "waitingModels": sorted(outcome.waiting),
        }
        context.save_checkpoint(artifact)
        context.log(f"{arrival.table} is complete for {arrival.op_time}: {len(outcome.queued)} models are due")
        return NodeResult(artifact=artifact, checkpoint=artifact)


class WaitForArrivalExecutor:
    name = "wait_for_arrival"
    cfg_model = WaitForArrivalCfg

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def problems(self, cfg: WaitForArrivalCfg) -> Iterator[str]:
        yield from _problems(cfg)

    def execute(self, context: NodeContext, cfg: WaitForArrivalCfg) -> Outcome:
        arrival = _parsed(cfg)
        found = patiently(
            context.stop,
            lambda: read(self._engine, lambda connection: find_arrival(connection, arrival.table, arrival.op_time)),
        )
        if found is not None:
            return NodeResult(artifact=found)
        waits_for = {"kind": ARRIVAL, "table": arrival.table, "opTime": arrival.op_time}
        return Waiting(waits_for, look_again_at=datetime.now(UTC) + LOOK_AGAIN)


def find_arrival(connection: Connection, table: str, op_time: str) -> dict[str, Any] | None:
    """The arrival of a table for a batch: its name as it arrived, the batch, and the time."""
    log = metrics_etl_log.c
    query = select(log.table_name, log.arrival_time).where(
        log.table_name.in_(satisfying_names(table, op_time)), log.op_time.in_(spellings(op_time))
    )
    rows = connection.execute(query.order_by(log.arrival_time.desc(), log.table_name)).all()
    if not rows:
        return None
    # a text that an ETL job wrote there may be no time
    at = rows[0].arrival_time
    return {"table": rows[0].table_name, "opTime": op_time, "arrivedAt": at.isoformat() if at else None}


def wake_arrived(connection: Connection) -> int:
    """Wakes the nodes whose table has arrived; returns how many. The caller wakes the runner after the commit."""
    waiting = waiting_nodes(connection, ARRIVAL)
    wanted = {(waits["table"], waits["opTime"]) for _, _, waits in waiting}
    names = {pair: _log_keys(*pair) for pair in wanted}
    arrived = _arrived_keys(connection, {key for keys in names.values() for key in keys})
    ready = [
        (run_id, node_id) for run_id, node_id, waits in waiting if names[waits["table"], waits["opTime"]] & arrived
    ]
    return wake_nodes(connection, ready)


def _log_keys(table: str, op_time: str) -> frozenset[tuple[str, str]]:
    """Every (table name, opTime) under which an arrival of the table for the batch may have been written."""
    return frozenset((name, written) for name in satisfying_names(table, op_time) for written in spellings(op_time))


def _arrived_keys(connection: Connection, wanted: Collection[tuple[str, str]]) -> set[tuple[str, str]]:
    log, found = metrics_etl_log.c, set()
    for some in chunks(sorted({name for name, _ in wanted}), _NAMES_PER_QUERY):
        rows = connection.execute(select(log.table_name, log.op_time).where(log.table_name.in_(some)))
        found |= {(row.table_name, row.op_time) for row in rows} & set(wanted)
    return found


def _parsed(cfg: ArrivalCfg | WaitForArrivalCfg) -> Arrival:
    return parse_arrival(_body(cfg))


def _body(cfg: ArrivalCfg | WaitForArrivalCfg) -> dict[str, str]:
    return {"srcTableName": cfg.table, "opTime": str(cfg.op_time)}


def _problems(cfg: ArrivalCfg | WaitForArrivalCfg) -> Iterator[str]:
    try:
        _parsed(cfg)
    except InvalidArrival as error:
        name = {"srcTableName": "table"}.get(error.field, error.field)
        yield f"cfg.{name}: {str(error).removeprefix(f'{error.field}: ')}"
