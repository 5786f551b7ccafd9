"""Takes the demo away: what it wrote, what runs made of it, and its traces in Dagster; nothing that a user wrote."""

import time
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

from sqlalchemy import Connection, Engine, delete, exists, select

from platform_defs.access.keys import revoke_key
from platform_defs.access.tenants import DEMO_TENANT, find_tenant
from platform_defs.arrivals.errors import UnknownModel
from platform_defs.arrivals.models import catalog, life
from platform_defs.arrivals.models.forgetting import forget_models, unused_batches
from platform_defs.arrivals.notify import subscriptions
from platform_defs.chain_lineage import NAMESPACE as CHAIN_NAMESPACE
from platform_defs.chains.definitions import set_chain_enabled
from platform_defs.chains.removal import chain_ids_of, delete_chains, stop_runs
from platform_defs.connections import Stores
from platform_defs.demo import story
from platform_defs.demo.lineage import JOB_NAMESPACE, PRODUCER, TABLES
from platform_defs.demo.shop import Calendar
from platform_defs.demo.state import DemoError, folder_of
from platform_defs.demo_source.receiver import PATH as WEBHOOK_PATH
from platform_defs.demo_source.registry import DEMO_SOURCES
from platform_defs.errors import AccessError
from platform_defs.graph.model import DeleteNodes, Node
from platform_defs.ingest.registry.removal import count_executing, end_sources, forget_sources
from platform_defs.lineage.sink.rows.raw_events import StoredEvent
from platform_defs.lineage.upkeep.forgetting import forget_events
from platform_defs.store.engine import read, transact
from platform_defs.store.tables.access import api_keys, tenants
from platform_defs.store.tables.arrivals import metrics_model_dependency, metrics_model_running
from platform_defs.store.tables.lineage import lineage_events
from platform_defs.store.tables.webhooks import metrics_webhook_subscription
from platform_defs.supervisor.demo import KEY_FILE, kept_demo_key
from platform_defs.supervisor.home import forget_demo_key
from platform_defs.supervisor.processes import DEMO_WEBHOOKS

ACTOR = "demo remove"
# how long what the demo still executes may take to end
PATIENCE_S = 60.0
LOOK_S = 0.3


def remove_demo(stores: Stores, home: Path) -> None:
    """May be called again, also after a kill midway."""
    engine = stores.engine
    _remove_subscriptions(engine)
    _remove_chains(engine)
    _remove_models(engine)
    _remove_sources(engine)
    _remove_lineage(stores)
    _remove_key(engine, home)
    _remove_tenant(stores)
    for name in ("shop.db", "shop.db-wal", "shop.db-shm", "shop.db-journal", "models.yaml"):
        (folder_of(home) / name).unlink(missing_ok=True)


def _remove_subscriptions(engine: Engine) -> None:
    for one in subscriptions.list_all(engine):
        mine = one.callback_url.startswith(f"http://{DEMO_WEBHOOKS}:") and one.callback_url.endswith(WEBHOOK_PATH)
        if mine and one.kpi_id == story.SUBSCRIBED_KPI:
            subscriptions.remove(engine, one.id)


def _remove_chains(engine: Engine) -> None:
    ids = list(chain_ids_of(engine, story.CHAINS).values())
    for chain_id in ids:
        set_chain_enabled(engine, chain_id, False, actor=ACTOR)
    _wait("a run of its chains", lambda: stop_runs(engine, ids, actor=ACTOR))
    delete_chains(engine, ids)


def batches_of_nobody(engine: Engine, born: datetime) -> list[str]:
    """The demo's opTimes for which, once it is removed, no table has arrived and no model was executed.

    They are asked for anew by each removal, because an interrupted one may have left their partitions in Dagster.
    """
    return unused_batches(engine, Calendar(born).op_times)


def _remove_models(engine: Engine) -> None:
    running = metrics_model_running.c
    busy = select(running.op_time).where(running.model_id.in_(story.MODELS))
    known = [model_id for model_id in story.MODELS if model_id in read(engine, catalog.load_models)]
    for model_id in known:
        catalog.unpublish(engine, model_id)
    _wait("an execution of its models", lambda: len(read(engine, lambda c: list(c.scalars(busy)))))
    for model_id in known:
        try:
            life.remove(engine, model_id, with_values=True)
        except UnknownModel:
            continue
    forget_models(engine, story.MODELS, story.TABLES)


def _remove_sources(engine: Engine) -> None:
    end_sources(engine, DEMO_SOURCES)
    _wait("a harvest of its sources", lambda: count_executing(engine, DEMO_SOURCES))
    forget_sources(engine, DEMO_SOURCES)


def _remove_lineage(stores: Stores) -> None:
    tenant = find_tenant(stores.engine, DEMO_TENANT.id)
    if tenant is not None:
        forget_events(stores.engine, stores.graph, tenant, is_of_demo)


def is_of_demo(stored: StoredEvent) -> bool:
    """The events of the shop's jobs, and those of runs of the demo's chains."""
    event = stored.event
    if event.job_namespace == JOB_NAMESPACE:
        return event.producer == PRODUCER
    chain, _, _ = (event.job_name or "").partition(".")
    return event.job_namespace == CHAIN_NAMESPACE and chain in story.CHAINS


def observed_by_nobody(stores: Stores) -> list[str]:
    """The names of the shop's tables that no event of anybody else says exist."""
    left = {
        (item.props.get("namespace"), item.props.get("qualifiedName"))
        for item in stores.graph.for_tenant(DEMO_TENANT.id).stream()
        if isinstance(item, Node)
    }
    return [name for name, table in TABLES.items() if (table.namespace, table.name) not in left]


def waited_for_by_others(engine: Engine) -> list[str]:
    """The tables of the shop for which models of somebody else wait."""
    table = metrics_model_dependency.c
    query = select(table.dependency_table_name).where(
        table.dependency_table_name.in_(story.TABLES), table.model_id.not_in(story.MODELS)
    )
    return sorted(read(engine, lambda connection: set(connection.scalars(query))))


def _remove_key(engine: Engine, home: Path) -> None:
    try:
        revoke_key(engine, (kept_demo_key(home) or "").split("_")[1])
    except (OSError, IndexError, AccessError):
        return  # there is none, or another database issued it
    (home / KEY_FILE).unlink(missing_ok=True)
    forget_demo_key(home)


def _remove_tenant(stores: Stores) -> None:
    """Unless something of a user belongs to it."""
    tenant = DEMO_TENANT
    key, subscription = api_keys.c, metrics_webhook_subscription.c
    uses = (
        exists(select(lineage_events.c.id).where(lineage_events.c.tenant_id == tenant.id)),
        exists(select(key.public_id).where(key.tenant_id == tenant.id, key.revoked_at.is_(None))),
        exists(select(subscription.id).where(subscription.team_name == tenant.code)),
    )

    def work(connection: Connection) -> bool:
        if any(connection.execute(select(*uses)).one()):
            return False
        connection.execute(
            delete(tenants).where(tenants.c.tenant_id == tenant.id, tenants.c.tenant_code == tenant.code)
        )
        return True

    if transact(stores.engine, work):
        store = stores.graph.for_tenant(tenant.id)
        if len(items := list(store.stream())) == 1:
            # the node of the tenant itself
            store.apply([DeleteNodes([item.id for item in items if isinstance(item, Node)])])


def _wait(what: str, count: Callable[[], int]) -> None:
    give_up_at = time.monotonic() + PATIENCE_S
    while count():
        if time.monotonic() > give_up_at:
            raise DemoError(
                f"{what} has not ended for {PATIENCE_S:.0f} s. `platform runner status` says whether it is stuck; if"
                " nothing is running, start the platform with --no-demo. Then remove the demo again"
            )
        time.sleep(LOOK_S)
