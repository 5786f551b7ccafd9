"""Models and KPIs in the database: load, save, publish and unpublish.

Dagster's definitions are built from these rows. Every change raises their version counter in the same transaction, so
that definitions are loaded anew.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from sqlalchemy import ColumnElement, Connection, Engine, delete, select, true, update

from platform_defs.arrivals.errors import UnknownModel
from platform_defs.arrivals.models.changes import computes_differently, describe_changes
from platform_defs.arrivals.models.file import FileContents, KnownKpis, ModelFile, check_file
from platform_defs.arrivals.models.model import PUBLISHED, RETIRED, UNPUBLISHED, Kpi, Model
from platform_defs.sources.named import PLATFORM_SOURCE
from platform_defs.store.engine import transact
from platform_defs.store.tables.arrivals import metrics_kpi, metrics_model, metrics_model_dependency
from platform_defs.store.types import utc_now
from platform_defs.store.upsert import upsert
from platform_defs.work.definition_versions import bump

EXTENDED = "EXTENDED"
COMPUTED = "COMPUTED"
# For more models than this, reading all of them is cheaper than a condition with their ids.
MAX_IDS = 1000
# The version counter of models and KPIs.
VERSION_COUNTER = "models"


@dataclass(frozen=True)
class LoadSummary:
    """What a file changed: ids of new models, of updated models, and of computed KPIs."""

    new: tuple[str, ...]
    updated: tuple[str, ...]
    computed: tuple[str, ...]
    # of updated models that compute differently from now on: their new versions
    new_versions: Mapping[str, int] = field(default_factory=dict)
    disabled_subscriptions: tuple[int, ...] = ()


def load_models(connection: Connection, model_ids: Sequence[str] | None = None) -> dict[str, Model]:
    """Models by their ids, in order; ids that do not exist are left out. Three queries load any number of models."""
    wanted = None if model_ids is None else set(model_ids)
    if wanted is not None and not wanted:
        return {}
    dependency, kpi, model = metrics_model_dependency, metrics_kpi, metrics_model

    def is_wanted(column: ColumnElement[str]) -> ColumnElement[bool]:
        return column.in_(sorted(wanted)) if wanted is not None and len(wanted) <= MAX_IDS else true()

    tables: dict[str, list[str]] = defaultdict(list)
    for model_id, table in connection.execute(
        select(dependency.c.model_id, dependency.c.dependency_table_name)
        .where(is_wanted(dependency.c.model_id))
        .order_by(dependency.c.id)
    ):
        tables[model_id].append(table)
    kpis: dict[str, list[Kpi]] = defaultdict(list)
    for model_id, kpi_id, name, expression in connection.execute(
        select(kpi.c.model_id, kpi.c.kpi_id, kpi.c.name, kpi.c.expression)
        .where(kpi.c.kpi_type == EXTENDED, is_wanted(kpi.c.model_id))
        .order_by(kpi.c.id)
    ):
        kpis[model_id].append(Kpi(kpi_id, name or kpi_id, expression))
    rows = connection.execute(select(model).where(is_wanted(model.c.model_id)).order_by(model.c.model_id))
    return {
        row.model_id: Model(
            model_id=row.model_id,
            name=row.name,
            depends_on=tuple(tables[row.model_id]),
            source=row.source or PLATFORM_SOURCE,
            dimensions=tuple(row.dimensions),
            sql=row.source_sql,
            kpis=tuple(kpis[row.model_id]),
            retries=row.retries,
            timeout_s=row.timeout_s,
            due=row.due,
            published=row.state == PUBLISHED,
            retired=row.state == RETIRED,
            period=row.period,
            version=row.version,
        )
        for row in rows
        if wanted is None or row.model_id in wanted
    }


def find_period(connection: Connection, model_id: str) -> str | None:
    """The period of a model's batches; None if it has none or does not exist."""
    return connection.scalar(select(metrics_model.c.period).where(metrics_model.c.model_id == model_id))


def find_version(connection: Connection, model_id: str) -> int | None:
    """The present version of a model; None if it does not exist."""
    return connection.scalar(select(metrics_model.c.version).where(metrics_model.c.model_id == model_id))


def used_periods(connection: Connection) -> list[str]:
    """The periods that published models have."""
    model = metrics_model.c
    query = select(model.period).where(model.state == PUBLISHED, model.period.is_not(None)).distinct()
    return [str(period) for period in connection.scalars(query)]


def save(
    engine: Engine, file: ModelFile, disable_orphaned: Callable[[Connection, str], Sequence[int]] | None = None
) -> LoadSummary:
    """Stores what the file defines, all or nothing. Other models, and whether a model is published, do not change.

    `disable_orphaned` disables subscriptions to KPIs that the file takes from its models.
    """

    def work(connection: Connection) -> LoadSummary:
        # The counter is raised first, because its lock makes two saves wait for each other: the second one must check
        # its file against the models that the first one stored.
        bump(connection, VERSION_COUNTER)
        contents = check_file(file, _load_known_kpis(connection))
        summary = _store_contents(connection, contents)
        if disable_orphaned is None:
            return summary
        return replace(
            summary, disabled_subscriptions=tuple(disable_orphaned(connection, f"{file.name} no longer defines it"))
        )

    return transact(engine, work)


def preview(connection: Connection, file: ModelFile) -> list[str]:
    """The diff that loading the file would make; nothing is stored."""
    contents = check_file(file, _load_known_kpis(connection))
    stored = load_models(connection, [model.model_id for model in contents.models])
    return list(describe_changes(connection, contents, stored))


def publish(engine: Engine, model_id: str) -> bool:
    """Lets arrivals trigger the model from now on; False if it was published already."""
    return _set_state(engine, model_id, PUBLISHED)


def unpublish(engine: Engine, model_id: str) -> bool:
    """Lets arrivals no longer trigger the model; False if it was not published."""
    return _set_state(engine, model_id, UNPUBLISHED)


def _set_state(engine: Engine, model_id: str, state: str) -> bool:
    """Publishes or unpublishes the model; False if it was so already. Raises UnknownModel."""
    model = metrics_model
    published_at = utc_now() if state == PUBLISHED else None
    statement = (
        update(model)
        .where(
            model.c.model_id == model_id, model.c.state == PUBLISHED if published_at is None else model.c.state != state
        )
        .values(state=state, published_at=published_at)
    )

    def work(connection: Connection) -> bool:
        if connection.execute(statement).rowcount:
            bump(connection, VERSION_COUNTER)
            return True
        if connection.execute(select(model.c.id).where(model.c.model_id == model_id)).first() is None:
            raise UnknownModel(f"no model has the id {model_id!r}")
        return False

    return transact(engine, work)


def _load_known_kpis(connection: Connection) -> KnownKpis:
    kpi = metrics_kpi
    rows = connection.execute(select(kpi.c.kpi_id, kpi.c.kpi_type, kpi.c.model_id, kpi.c.depends_on)).all()
    return KnownKpis(
        extended={row.kpi_id: row.model_id for row in rows if row.kpi_type == EXTENDED},
        computed={row.kpi_id: tuple(row.depends_on or ()) for row in rows if row.kpi_type == COMPUTED},
    )


def _store_contents(connection: Connection, contents: FileContents) -> LoadSummary:
    dependency, kpi, model = metrics_model_dependency, metrics_kpi, metrics_model
    ids = [each.model_id for each in contents.models]
    known = load_models(connection, ids)
    new_versions = {
        each.model_id: known[each.model_id].version + 1
        for each in contents.models
        if each.model_id in known and computes_differently(known[each.model_id], each)
    }
    upsert(
        connection,
        model,
        [
            {
                "model_id": each.model_id,
                "name": each.name,
                "source": each.source,
                "source_sql": each.sql,
                "dimensions": list(each.dimensions),
                "retries": each.retries,
                "timeout_s": each.timeout_s,
                "due": each.due,
                "period": each.period,
                "version": new_versions.get(
                    each.model_id, known[each.model_id].version if each.model_id in known else 1
                ),
            }
            for each in contents.models
        ],
        key=["model_id"],
    )
    connection.execute(delete(dependency).where(dependency.c.model_id.in_(ids)))
    upsert(
        connection,
        dependency,
        [
            {"model_id": each.model_id, "dependency_table_name": table}
            for each in contents.models
            for table in each.depends_on
        ],
        key=["model_id", "dependency_table_name"],
    )
    connection.execute(delete(kpi).where(kpi.c.kpi_type == EXTENDED, kpi.c.model_id.in_(ids)))
    extended = [
        (each.kpi_id, each.name, EXTENDED, owner.model_id, each.expression, None)
        for owner in contents.models
        for each in owner.kpis
    ]
    computed = [
        (each.kpi_id, each.name, COMPUTED, None, each.expression, list(each.depends_on)) for each in contents.computed
    ]
    columns = ("kpi_id", "name", "kpi_type", "model_id", "expression", "depends_on")
    upsert(connection, kpi, [dict(zip(columns, row, strict=True)) for row in (*extended, *computed)], key=["kpi_id"])
    return LoadSummary(
        new=tuple(model_id for model_id in ids if model_id not in known),
        updated=tuple(model_id for model_id in ids if model_id in known),
        computed=tuple(each.kpi_id for each in contents.computed),
        new_versions=new_versions,
    )
