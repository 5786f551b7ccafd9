"""The demo's traces in Dagster's own storage: runs, materialisations, and partitions that nobody else has."""

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime

from dagster import AssetKey, DagsterInstance, DagsterRun, RunsFilter

from assets.arrivals.names import batches_of, model_key, table_key
from assets.chains.names import CHAIN_TAG
from assets.op_names import op_name
from platform_defs.access.tenants import DEMO_TENANT
from platform_defs.arrivals.kinds_of_work import ARRIVAL_REPORT, MODEL_TAG, TABLES_TAG
from platform_defs.demo import story
from platform_defs.demo.lineage import TABLES
from platform_defs.demo_source.registry import DEMO_SOURCES
from platform_defs.ingest.kinds_of_work import ASSET_PREFIX
from platform_defs.lineage.tables.keys import Table, asset_key_of
from sensors.ingest import STALENESS

RUNS_AT_ONCE = 500
# The night's runs of its sources have a job that Dagster makes of the schedule, and name no assets.
STALENESS_JOBS = tuple(f"__anonymous_asset_job_{STALENESS}{op_name(source)}__" for source in DEMO_SOURCES)


def remove_traces(
    instance: DagsterInstance, op_times: Sequence[str], *, observed: Iterable[str], born: datetime
) -> None:
    """`observed` are the names of the shop's tables that nobody else's lineage has, `born` is when the demo began."""
    keys = [key for key in instance.all_asset_keys() if _is_of_demo(key)]
    keys += [
        AssetKey(asset_key_of(Table(DEMO_TENANT.id, TABLES[name].namespace, TABLES[name].name))) for name in observed
    ]
    for run in _runs(instance, born):
        instance.delete_run(run.run_id)
    if keys:
        instance.wipe_assets(keys)
    for partitions in (batches_of(None), batches_of("day")):
        assert partitions.name is not None, "partitions of batches are dynamic ones"
        known = set(instance.get_dynamic_partitions(partitions.name))
        for op_time in known.intersection(op_times):
            instance.delete_dynamic_partition(partitions.name, op_time)


def _is_of_demo(key: AssetKey) -> bool:
    if key in {*map(model_key, story.MODELS), *map(table_key, story.TABLES)}:
        return True
    return len(key.path) > 1 and key.path[0] == ASSET_PREFIX and key.path[1] in DEMO_SOURCES


def _runs(instance: DagsterInstance, born: datetime) -> list[DagsterRun]:
    """Those of its chains and models by their tags, others by the assets that they materialised or reported."""
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
        if {*tables.split(", ")} <= {*story.TABLES} if tables else run.is_success:
            found[run.run_id] = run
    return [run for run in found.values() if run.is_finished]


def _all_runs(instance: DagsterInstance, chosen: RunsFilter) -> Iterator[DagsterRun]:
    cursor = None
    while page := instance.get_runs(chosen, cursor=cursor, limit=RUNS_AT_ONCE):
        cursor = page[-1].run_id
        yield from page
