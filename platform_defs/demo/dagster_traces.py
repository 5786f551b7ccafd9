"""The demo's traces in Dagster's own storage: runs, materialisations, and partitions that nobody else has."""

import time
from collections.abc import Collection, Iterator, Sequence
from datetime import datetime

from dagster import AssetKey, DagsterInstance, DagsterRun, RunsFilter

from assets.arrivals.names import batches_of, model_key, table_key
from assets.chains.names import CHAIN_TAG
from assets.op_names import op_name
from platform_defs.access.tenants import DEMO_TENANT
from platform_defs.arrivals.kinds_of_work import ARRIVAL_REPORT, MODEL_TAG, TABLES_TAG
from platform_defs.arrivals.partitions import MODEL_PREFIX, TABLE_PREFIX
from platform_defs.demo import story
from platform_defs.demo.lineage import ARRIVALS_NAMESPACE, TABLES
from platform_defs.demo.removal import LOOK_S, PATIENCE_S
from platform_defs.demo_source.registry import DEMO_SOURCES
from platform_defs.ingest.kinds_of_work import ASSET_PREFIX
from platform_defs.lineage.tables.keys import Table, asset_key_of
from sensors.ingest import STALENESS

RUNS_AT_ONCE = 500
# The night's runs of its sources have a job that Dagster makes of the schedule, and name no assets.
STALENESS_JOBS = tuple(f"__anonymous_asset_job_{STALENESS}{op_name(source)}__" for source in DEMO_SOURCES)


def remove_traces(
    instance: DagsterInstance,
    op_times: Sequence[str],
    *,
    observed: Collection[str],
    waited_for: Collection[str],
    born: datetime,
    is_up: bool,
) -> int:
    """Returns how many runs of the demo have not ended; those stay. Where the platform `is_up` they may end meanwhile.

    `observed` are the names of the shop's tables that nobody else's lineage has, `waited_for` are those for which a
    model of somebody else waits, `born` is when the demo began.
    """
    # First, because a run that is about to end still tells Dagster of what is forgotten here.
    under_way = {run.run_id for run in _runs(instance, born) if not run.is_finished}
    _await_ends(instance, list(under_way), PATIENCE_S if is_up else 0)
    runs = _runs(instance, born)
    for run in runs:
        if run.is_finished:
            instance.delete_run(run.run_id)
    kept = {*map(table_key, waited_for), *(key for name, key in _SHOP_TABLES.items() if name not in observed)}
    keys = [key for key in instance.all_asset_keys() if _is_of_demo(key) and key not in kept]
    keys += [
        AssetKey(asset_key_of(Table(DEMO_TENANT.id, TABLES[name].namespace, TABLES[name].name))) for name in observed
    ]
    if keys:
        instance.wipe_assets(keys)
    gone = set(op_times) - _batches_of_others(instance)
    for partitions in (batches_of(None), batches_of("day")):
        assert partitions.name is not None, "partitions of batches are dynamic ones"
        for op_time in gone.intersection(instance.get_dynamic_partitions(partitions.name)):
            instance.delete_dynamic_partition(partitions.name, op_time)
    # Reports that have begun since then are of what still arrives, and so not of the demo.
    return sum(not run.is_finished for run in runs if run.run_id in under_way)


def _await_ends(instance: DagsterInstance, run_ids: list[str], patience_s: float) -> None:
    give_up_at = time.monotonic() + patience_s
    while run_ids and time.monotonic() < give_up_at:
        time.sleep(LOOK_S)
        run_ids = [run.run_id for run in instance.get_runs(RunsFilter(run_ids=run_ids)) if not run.is_finished]


def _batches_of_others(instance: DagsterInstance) -> set[str]:
    """Those for which somebody's own model or table was materialised, which may have been done without an arrival."""
    own = (key for key in instance.all_asset_keys() if key.path[0] in (MODEL_PREFIX, TABLE_PREFIX))
    return {batch for key in own if not _is_of_demo(key) for batch in instance.get_materialized_partitions(key)}


def _shop_tables() -> dict[str, AssetKey]:
    """The tables of the shop that are one asset for arrivals and for lineage, by their names in the demo's lineage."""
    keys = {
        name: AssetKey(asset_key_of(Table(DEMO_TENANT.id, one.namespace, one.name), ARRIVALS_NAMESPACE))
        for name, one in TABLES.items()
    }
    return {name: key for name, key in keys.items() if key in set(map(table_key, story.TABLES))}


_SHOP_TABLES = _shop_tables()


def _is_of_demo(key: AssetKey) -> bool:
    if key in {*map(model_key, story.MODELS), *map(table_key, story.TABLES)}:
        return True
    return len(key.path) > 1 and key.path[0] == ASSET_PREFIX and key.path[1] in DEMO_SOURCES


def _runs(instance: DagsterInstance, born: datetime) -> list[DagsterRun]:
    """Those of its chains and models by their tags, others by the assets that they materialised or reported.

    A report of arrivals says which tables it reported when it ends; until then it may be one of the demo.
    """
    found = {
        run.run_id: run
        for tag, names in ((CHAIN_TAG, story.CHAINS), (MODEL_TAG, tuple(story.MODELS)))
        for run in instance.get_runs(RunsFilter(tags={tag: list(names)}))
    }
    for run in _all_runs(instance, RunsFilter(job_name="__ASSET_JOB")):
        if run.asset_selection and all(map(_is_of_demo, run.asset_selection)):
            found[run.run_id] = run
    for run in _all_runs(instance, RunsFilter(created_after=born)):
        if run.job_name.startswith(STALENESS_JOBS):
            found[run.run_id] = run
    for run in instance.get_runs(RunsFilter(job_name=ARRIVAL_REPORT, created_after=born)):
        # a successful run without the tag had nothing to report, because the sensor had been faster
        tables = run.tags.get(TABLES_TAG)
        if {*tables.split(", ")} <= {*story.TABLES} if tables else run.is_success or not run.is_finished:
            found[run.run_id] = run
    return list(found.values())


def _all_runs(instance: DagsterInstance, chosen: RunsFilter) -> Iterator[DagsterRun]:
    cursor = None
    while page := instance.get_runs(chosen, cursor=cursor, limit=RUNS_AT_ONCE):
        cursor = page[-1].run_id
        yield from page
