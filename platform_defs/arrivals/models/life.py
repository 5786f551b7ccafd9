"""The life of a model after it was loaded: it is renamed, retired or deleted.

Each change is one transaction that raises the version counter of definitions, so that the UI shows it.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from sqlalchemy import Connection, Engine, delete, func, select, update

from platform_defs.arrivals.errors import InvalidChange, UnknownModel
from platform_defs.arrivals.models.catalog import COMPUTED, VERSION_COUNTER
from platform_defs.arrivals.models.kpi_expressions import KPI_ID
from platform_defs.arrivals.models.model import RETIRED
from platform_defs.arrivals.notify.impact import affected_kpis
from platform_defs.store.engine import transact
from platform_defs.store.repeating import once
from platform_defs.store.tables.arrivals import (
    metrics_kpi,
    metrics_kpi_value,
    metrics_model,
    metrics_model_dependency,
    metrics_model_input,
    metrics_model_running,
    metrics_task_log,
)
from platform_defs.store.tables.webhooks import metrics_webhook_delivery, metrics_webhook_subscription
from platform_defs.webhooks.recipients import DISABLED, ENABLED
from platform_defs.work.definition_versions import bump

MAX_ID = 255
_WITH_MODEL = (
    metrics_model,
    metrics_model_dependency,
    metrics_model_input,
    metrics_kpi,
    metrics_kpi_value,
    metrics_task_log,
    metrics_webhook_delivery,
)


@dataclass(frozen=True)
class Deleted:
    """What was deleted with a model: its KPIs, computed KPIs that built on them, and how many stored values."""

    kpis: tuple[str, ...]
    values: int
    disabled_subscriptions: tuple[int, ...]


def rename(engine: Engine, model_id: str, new_id: str) -> None:
    """Gives the model another id in all rows. Refused while one of its batches is being executed."""
    if not KPI_ID.fullmatch(new_id) or len(new_id) > MAX_ID:
        raise InvalidChange(f"{new_id!r}: expected a letter, then letters, digits, '_', '.' or '-', at most {MAX_ID}")

    def work(connection: Connection) -> None:
        _lock(connection, model_id)
        if _exists(connection, new_id):
            raise InvalidChange(f"a model {new_id} exists already")
        for table in _WITH_MODEL:
            connection.execute(update(table).where(table.c.model_id == model_id).values(model_id=new_id))

    def is_renamed(connection: Connection, _: None) -> bool:
        return _exists(connection, new_id) and not _exists(connection, model_id)

    transact(engine, once(work, is_renamed))


def retire(engine: Engine, model_id: str) -> bool:
    """Lets arrivals no longer name the model. Values and tasks stay; publishing brings it back. False if it was so."""
    model = metrics_model.c

    def work(connection: Connection) -> bool:
        bump(connection, VERSION_COUNTER)
        _require(connection, model_id)
        statement = update(metrics_model).where(model.model_id == model_id, model.state != RETIRED)
        return connection.execute(statement.values(state=RETIRED, published_at=None)).rowcount == 1

    return transact(engine, work)


def remove(engine: Engine, model_id: str, *, with_values: bool) -> Deleted:
    """Deletes the model, its KPIs and computed KPIs that build on them; stored values only if asked. Tasks stay."""
    model, kpi, value = metrics_model.c, metrics_kpi.c, metrics_kpi_value.c

    def work(connection: Connection) -> Deleted:
        _lock(connection, model_id)
        own = list(connection.scalars(select(kpi.kpi_id).where(kpi.model_id == model_id)))
        computed = connection.execute(select(kpi.kpi_id, kpi.depends_on).where(kpi.kpi_type == COMPUTED))
        gone = affected_kpis(own, {row.kpi_id: row.depends_on or () for row in computed})
        for table in (metrics_model_dependency, metrics_model_input):
            connection.execute(delete(table).where(table.c.model_id == model_id))
        connection.execute(delete(metrics_kpi).where(kpi.kpi_id.in_(gone)))
        connection.execute(delete(metrics_model).where(model.model_id == model_id))
        values = 0
        if with_values:
            values = connection.execute(delete(metrics_kpi_value).where(value.model_id == model_id)).rowcount
        disabled = disable_orphaned_subscriptions(connection, f"model {model_id} was deleted")
        return Deleted(tuple(gone), values, tuple(disabled))

    return transact(engine, once(work, lambda connection, _: not _exists(connection, model_id)))


def disable_orphaned_subscriptions(connection: Connection, why: str) -> list[int]:
    """Disables subscriptions to KPIs that do not exist any more, with the reason; returns their ids."""
    subscription = metrics_webhook_subscription.c
    known = select(metrics_kpi.c.kpi_id)
    query = select(subscription.id).where(subscription.status == ENABLED, subscription.kpi_id.not_in(known))
    orphaned: Sequence[int] = connection.scalars(query.order_by(subscription.id)).all()
    if orphaned:
        statement = update(metrics_webhook_subscription).where(subscription.id.in_(orphaned))
        connection.execute(statement.values(status=DISABLED, disabled_reason=f"its KPI is gone: {why}"[:255]))
    return list(orphaned)


def stored_batches(connection: Connection, model_ids: Iterable[str]) -> dict[str, tuple[str, str]]:
    """The first and the last batch of which each model has stored values."""
    value = metrics_kpi_value.c
    query = (
        select(value.model_id, func.min(value.op_time), func.max(value.op_time))
        .where(value.model_id.in_(sorted(model_ids)))
        .group_by(value.model_id)
    )
    return {model_id: (first, last) for model_id, first, last in connection.execute(query)}


def _require(connection: Connection, model_id: str) -> None:
    if not _exists(connection, model_id):
        raise UnknownModel(f"no model has the id {model_id!r}")


def _exists(connection: Connection, model_id: str) -> bool:
    return connection.scalar(select(metrics_model.c.id).where(metrics_model.c.model_id == model_id)) is not None


def _lock(connection: Connection, model_id: str) -> None:
    """Keeps others from changing models; refuses while a batch of the model is being executed."""
    bump(connection, VERSION_COUNTER)
    _require(connection, model_id)
    running = metrics_model_running.c
    batches = select(running.op_time).where(running.model_id == model_id).order_by(running.op_time).with_for_update()
    if found := list(connection.scalars(batches)):
        raise InvalidChange(
            f"{model_id} is being executed for {', '.join(found[:5])}: wait until it has ended, or unpublish it first"
        )
